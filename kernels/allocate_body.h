/* allocate_body.h - the parts of an allocation that C (allocate.c) and CUDA (estimator.cu) share:
 * survivals, their sortable keys, and a row's place against the threshold.
 */
#ifndef KERNELS_ALLOCATE_BODY_H
#define KERNELS_ALLOCATE_BODY_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/maths.h"

#define ALLOCATE_DIGIT_BITS 8
#define ALLOCATE_DIGITS (64 / ALLOCATE_DIGIT_BITS)
#define ALLOCATE_DIGIT_VALUES (1U << ALLOCATE_DIGIT_BITS)

/* The next survival of a row; NaN: nothing is known to survive. */
LANE_FN double survival_next(double product, double probability)
{
    return product * (probability >= 0.0 ? probability : 0.0);
}

/* A survival as a sortable key, never above the one before it in its row; NaN and negatives are 0.
 */
LANE_FN uint64_t allocate_key(double survival, uint64_t previous)
{
    const uint64_t key = survival > 0.0 ? bits_of_double(survival) : 0;
    return key < previous ? key : previous;
}

/* How many of a row's first drafts are above the threshold. */
LANE_FN int32_t allocate_above(const double *row, int32_t drafted, uint64_t threshold)
{
    int32_t k = 0;
    while (k < drafted && allocate_key(row[k], UINT64_MAX) > threshold) k++;
    return k;
}

/* Whether a row that has k drafts admitted has a next one that ties with the threshold: everything
 * before k is admitted, so its running minimum is at or above the threshold. */
LANE_FN bool allocate_ties(const double *row, int32_t drafted, int32_t k, uint64_t threshold)
{
    return k < drafted && allocate_key(row[k], UINT64_MAX) >= threshold;
}

#endif
