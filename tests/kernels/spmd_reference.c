/* spmd_reference.c - see spmd_reference.h. */
#include "config.h"

#include "kernels/row_ops.h"
#include "tests/kernels/spmd_reference.h"

struct row_partial reference_partial(const float *row, size_t from, size_t end, float scale)
{
    return row_ops_baseline.partial(row, TT_F32, from, end, scale);
}

void reference_arrivals(uint64_t key, uint64_t token_index, uint32_t group, float first,
                        uint32_t place, float *arrival)
{
    row_ops_baseline.arrivals(key, token_index, group, first, place, arrival);
}
