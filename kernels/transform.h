/* transform.h - tt_transform_row without its checks, for callers that made them once. Internal to
 * kernels/. */
#ifndef KERNELS_TRANSFORM_H
#define KERNELS_TRANSFORM_H

#include "kernels/handle.h"

/* 0, or a status with its message: every number and id in range. */
int transform_check(tt *handle, const struct tt_transform *transform, size_t vocab);

/* Apply a checked transform; extra (extra_count) holds ids of the vocabulary. */
int transform_row(tt *handle, float *row, size_t vocab, const struct tt_transform *transform,
                  const int32_t *extra, size_t extra_count);

#endif
