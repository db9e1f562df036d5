/* test_rows_cuda.c - the CUDA flavour of the row statistics gives the bits of the CPU flavour.
 * Needs a device. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/rows_cuda.h"
#include "tests/kernels/row_kinds.h"

enum { ROWS = 3, VOCAB_MAX = 151936 };

static void compare(tt *handle, const struct tt_rows *rows, const float *scales, int kind)
{
    struct tt_row_stats host[ROWS], device[ROWS];
    assert_int_equal(tt_row_statistics(handle, rows, scales, host), TT_OK);
    assert_int_equal(rows_cuda_statistics(rows, scales, device), TT_OK);
    for (size_t r = 0; r < rows->rows; r++) {
        if (row_kind_is_flagged((enum row_kind)kind)) {
            assert_int_equal(device[r].flags, TT_ROW_FLAGGED);
            assert_int_equal(device[r].argmax, -1);
        } else {
            assert_memory_equal(&host[r], &device[r], sizeof host[r]);
        }
    }
}

static void test_same_bits(void **state)
{
    static const size_t sizes[] = {1, 2, 7, 32, 1000, 8193, 10000, 49152, 50257, 131072, VOCAB_MAX};
    static const float scales[ROWS] = {1.0f, 1.0f / 0.7f, 0.5f};
    const struct tt_options options = {.vocab = VOCAB_MAX, .max_rows = ROWS};
    const size_t room = ROWS * (VOCAB_MAX + 3);
    float *wide = calloc(room, sizeof *wide);
    uint16_t *narrow = calloc(room, sizeof *narrow);
    tt *handle;
    (void)state;
    assert_true(wide && narrow);
    assert_int_equal(tt_open(&handle, &options), TT_OK);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int kind = 0; kind < ROW_KINDS; kind++)
            for (int dtype = TT_F32; dtype <= TT_BF16; dtype++) {
                const size_t vocab = sizes[s], stride = vocab + 3;
                for (uint32_t r = 0; r < ROWS; r++)
                    row_fill(wide + r * stride, vocab, (enum row_kind)kind, r);
                for (size_t i = 0; dtype != TT_F32 && i < ROWS * stride; i++)
                    (void)row_narrow(wide[i], (enum tt_dtype)dtype, &narrow[i]);
                const struct tt_rows rows = {dtype == TT_F32 ? (const void *)wide : narrow,
                                             (enum tt_dtype)dtype, ROWS, vocab, stride};
                /* Rounding to fp16 can make infinities: then both sides flag, or the kind is not of
                 * that type. */
                if (dtype == TT_F16 && (kind == ROW_HUGE || kind == ROW_LIMITS)) continue;
                compare(handle, &rows, scales, kind);
            }
    tt_close(handle);
    free(narrow);
    free(wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits)};
    if (!rows_cuda_device()) {
        printf("1..0 # SKIP no CUDA device of compute capability 8.0 or later\n");
        return 0;
    }
    return cmocka_run_group_tests_name("rows_cuda", tests, NULL, NULL);
}
