/* rows.c - tt_row_statistics and tt_feature: one read of each logits row.
 *
 * Owns the memory of the last call's chunk partials. Method: loser accumulation, see row_body.h.
 * The sums of a chunk are fp32 over lanes; chunks merge, and the logarithms are taken, in double
 * precision, once a row.
 */
#include "config.h"

#include "kernels/rows.h"

#include <string.h>

/* The first place of the maximum lies in the first chunk that holds it. */
static size_t find_mode(const struct row_ops *ops, const void *row, enum tt_dtype dtype,
                        size_t vocab, const struct row_partial *partials, float max)
{
    size_t c = 0;
    while (partials[c].max != max) c++;
    const size_t from = c * ROW_CHUNK;
    return ops->find(row, dtype, from, from + ROW_CHUNK < vocab ? from + ROW_CHUNK : vocab, max);
}

void row_stats_from_partials(const struct row_ops *ops, const void *row, enum tt_dtype dtype,
                             size_t vocab, float inverse_temperature,
                             const struct row_partial *partials, struct tt_row_stats *out)
{
    float max;
    double sum;

    memset(out, 0, sizeof *out); /* rows are found again by comparing statistics byte by byte */
    merge_partials(partials, row_chunks(vocab), inverse_temperature, &max, &sum);
    if (row_is_flagged(max, sum)) {
        row_stats_flagged(out);
        return;
    }
    const size_t mode = find_mode(ops, row, dtype, vocab, partials, max);
    row_stats_measured(max, sum, inverse_temperature, mode,
                       row_value(row, (enum row_dtype)dtype, mode), out);
}

static float scale_of(const float *inverse_temperature, size_t row)
{
    return inverse_temperature ? inverse_temperature[row] : 1.0f;
}

static int cpu_row_statistics(tt *handle, const struct tt_rows *rows,
                              const float *inverse_temperature, struct tt_row_stats *out)
{
    const size_t chunks = row_chunks(handle->vocab);
    for (size_t r = 0; r < rows->rows; r++) {
        const void *row = row_address(rows->data, (enum row_dtype)rows->dtype, r * rows->stride);
        const float scale = scale_of(inverse_temperature, r);
        struct row_partial *partials = handle->memory.partials + r * chunks;
        handle->ops->partials(row, rows->dtype, rows->vocab, scale, partials);
        row_stats_from_partials(handle->ops, row, rows->dtype, rows->vocab, scale, partials,
                                &out[r]);
    }
    return TT_OK;
}

static void remember(struct row_memory *memory, const struct tt_rows *rows,
                     const float *inverse_temperature, const struct tt_row_stats *stats)
{
    memory->data = rows->data;
    memory->dtype = rows->dtype;
    memory->rows = rows->rows;
    memory->vocab = rows->vocab;
    memory->stride = rows->stride;
    for (size_t r = 0; r < rows->rows; r++) {
        memory->inverse_temperature[r] = scale_of(inverse_temperature, r);
        memory->stats[r] = stats[r];
    }
}

int tt_row_statistics(tt *handle, const struct tt_rows *rows, const float *inverse_temperature,
                      struct tt_row_stats *out)
{
    if (!handle) return TT_EINVAL;
    int status = handle_check_rows(handle, rows);
    if (status) return status;
    if (!out && rows->rows > 0)
        return handle_error(handle, TT_EINVAL, "row statistics: nowhere to put them");
    for (size_t r = 0; inverse_temperature && r < rows->rows; r++) {
        status = handle_check_temperature(handle, inverse_temperature[r]);
        if (status) return status;
    }

    handle->memory.rows = 0;
    status = handle->cuda ? cuda_row_statistics(handle, rows, inverse_temperature, out)
                          : cpu_row_statistics(handle, rows, inverse_temperature, out);
    if (!status) remember(&handle->memory, rows, inverse_temperature, out);
    return status;
}

const struct row_partial *row_memory_find(const tt *handle, const struct tt_rows *row,
                                          float inverse_temperature,
                                          const struct tt_row_stats *stats)
{
    const struct row_memory *memory = &handle->memory;
    const uintptr_t data = (uintptr_t)row->data, base = (uintptr_t)memory->data;
    const size_t width = row->dtype == TT_F32 ? 4 : 2;

    if (memory->rows == 0 || row->dtype != memory->dtype || row->vocab != memory->vocab ||
        data < base)
        return NULL;
    const size_t step = memory->stride * width, index = (data - base) / step;
    if ((data - base) % step != 0 || index >= memory->rows) return NULL;
    if (memory->inverse_temperature[index] != inverse_temperature) return NULL;
    if (memcmp(&memory->stats[index], stats, sizeof *stats) != 0) return NULL;
    return memory->partials + index * row_chunks(handle->vocab);
}

float tt_feature(const struct tt_row_stats *stats, float clamp)
{
    return stats ? row_feature(stats, clamp) : row_nan();
}
