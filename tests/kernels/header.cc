// header.cc - trimtab.h is a C++ header too: its C functions are called from here through the
// installed library.
#include "kernels/trimtab.h"

#include <cstdio>

int main()
{
    const float row[4] = {0.0f, 3.0f, 1.0f, 3.0f};
    tt_options options = {};
    options.vocab = 4;
    options.max_rows = 1;
    tt *handle = nullptr;
    int32_t token = -1;
    tt_row_stats stats = {};
    const tt_rows rows = {row, TT_F32, 1, 4, 4};
    const bool works = tt_open(&handle, &options) == TT_OK &&
                       tt_row_statistics(handle, &rows, nullptr, &stats) == TT_OK &&
                       stats.argmax == 1 &&
                       tt_sample(handle, &rows, 1.0f, &stats, 1, 0, 0, TT_BONUS, &token) == TT_OK &&
                       token >= 0 && token < 4;
    tt_close(handle);
    std::printf("1..1\n%s 1 - the header and the shared library from C++\n",
                works ? "ok" : "not ok");
    return works ? 0 : 1;
}
