/* spmd_reference.h - the loop flavour's answers, for a file that is compiled in the SPMD flavour.
 */
#ifndef TESTS_KERNELS_SPMD_REFERENCE_H
#define TESTS_KERNELS_SPMD_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

struct row_partial;

struct row_partial reference_partial(const float *row, size_t from, size_t end, float scale);
void reference_arrivals(uint64_t key, uint64_t token_index, uint32_t group, float first,
                        uint32_t place, float *arrival);

#endif
