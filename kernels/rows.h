/* rows.h - statistics of one row from its chunk partials; shared by statistics, sampling and
 * verification. Internal to kernels/. */
#ifndef KERNELS_ROWS_H
#define KERNELS_ROWS_H

#include "kernels/handle.h"

/* The row's statistics from its partials (row_chunks(vocab)). */
void row_stats_from_partials(const struct row_ops *ops, const void *row, enum tt_dtype dtype,
                             size_t vocab, float inverse_temperature,
                             const struct row_partial *partials, struct tt_row_stats *out);

/* The partials remembered of this row when its statistics were taken last, or NULL. */
const struct row_partial *row_memory_find(const tt *handle, const struct tt_rows *row,
                                          float inverse_temperature,
                                          const struct tt_row_stats *stats);

#endif
