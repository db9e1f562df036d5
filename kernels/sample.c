/* sample.c - tt_sample and tt_sample_coupled: one token from one row.
 *
 * A draw goes down three levels: the chunk by its mass, the group of 128 inside it, the token
 * inside that. Only the chosen chunk is read again; there is no V-sized noise and no V-sized
 * temporary. Each level is its own choice, so the law is the product of exact conditional laws.
 */
#include "config.h"

#include "kernels/choice_body.h"
#include "kernels/race.h"
#include "kernels/rows.h"
#include "kernels/sample.h"

#include <math.h>

/* The token inside the chunk whose weights stand in handle->chunk. */
static int32_t sample_chunk(tt *handle, size_t from, const float *sums, struct choice *choice,
                            const struct choice_site *site)
{
    double *weights = handle->weights;
    for (size_t g = 0; g < ROW_CHUNK_GROUPS; g++) weights[g] = (double)sums[g];
    const size_t group = choice_draw(choice, site, CHOICE_GROUP, weights, ROW_CHUNK_GROUPS);
    const float *weight = handle->chunk + group * ROW_GROUP;
    for (size_t j = 0; j < ROW_GROUP; j++) weights[j] = (double)weight[j];
    /* The tail group's lanes beyond the row weigh 0, and a draw never returns those. */
    const size_t token = choice_draw(choice, site, CHOICE_TOKEN, weights, ROW_GROUP);
    return (int32_t)(from + group * ROW_GROUP + token);
}

static size_t chunk_end(size_t from, size_t vocab)
{
    return vocab - from > ROW_CHUNK ? from + ROW_CHUNK : vocab;
}

int32_t sample_partials(tt *handle, const struct tt_rows *row, float inverse_temperature, float max,
                        const struct row_partial *partials, struct choice *choice,
                        const struct choice_site *site)
{
    const size_t chunks = row_chunks(row->vocab);
    float sums[ROW_CHUNK_GROUPS];

    for (size_t c = 0; c < chunks; c++)
        handle->weights[c] = partial_mass(partials[c], max, inverse_temperature);
    const size_t chunk = choice_draw(choice, site, CHOICE_CHUNK, handle->weights, chunks);
    const size_t from = chunk * ROW_CHUNK;
    handle->ops->weights(row->data, row->dtype, from, chunk_end(from, row->vocab),
                         partials[chunk].max, inverse_temperature, handle->chunk, sums);
    return sample_chunk(handle, from, sums, choice, site);
}

int32_t sample_residual(tt *handle, const struct row_law *p, const struct row_law *q,
                        struct choice *choice, const struct choice_site *site)
{
    const size_t chunks = row_chunks(p->vocab);
    float sums[ROW_CHUNK_GROUPS];
    double total = 0.0;

    handle->ops->residual_masses(p, q, handle->masses);
    for (size_t c = 0; c < chunks; c++) {
        handle->weights[c] = (double)handle->masses[c];
        total += handle->weights[c];
    }
    if (!(total > 0.0)) return -1;
    const size_t chunk = choice_draw(choice, site, CHOICE_CHUNK, handle->weights, chunks);
    const size_t from = chunk * ROW_CHUNK;
    handle->ops->residuals(p, q, from, chunk_end(from, p->vocab), handle->chunk, sums);
    return sample_chunk(handle, from, sums, choice, site);
}

static int check_row(tt *handle, const struct tt_rows *row, float inverse_temperature,
                     const int32_t *token)
{
    const int status = handle_check_rows(handle, row);
    if (status) return status;
    if (row->rows != 1 || !row->data || !token)
        return handle_error(handle, TT_EINVAL, "sample: exactly one row and a place for the token");
    return handle_check_temperature(handle, inverse_temperature);
}

int sample_flagged(tt *handle)
{
    return handle_error(handle, TT_EINVAL,
                        "sample: the row holds a NaN or +inf, or no finite value: it has no law");
}

int sample_foreign(tt *handle)
{
    return handle_error(handle, TT_EINVAL, "sample: the statistics are not this row's");
}

int tt_sample(tt *handle, const struct tt_rows *row, float inverse_temperature,
              const struct tt_row_stats *stats, uint64_t key, uint64_t token_index,
              uint32_t position, enum tt_purpose purpose, int32_t *token)
{
    struct choice_philox philox;
    const struct choice_site site = {token_index, position, purpose};

    if (!handle) return TT_EINVAL;
    const int status = check_row(handle, row, inverse_temperature, token);
    if (status) return status;
    if (!stats || (unsigned)purpose > TT_GUMBEL)
        return handle_error(handle, TT_EINVAL, "sample: no statistics, or an unknown purpose");
    if (stats->flags & TT_ROW_FLAGGED) return sample_flagged(handle);
    if (stats->argmax < 0 || (size_t)stats->argmax >= row->vocab) return sample_foreign(handle);

    const struct row_partial *partials = row_memory_find(handle, row, inverse_temperature, stats);
    if (handle->cuda)
        return cuda_sample(handle, row, inverse_temperature, stats, partials, key, &site, token);
    if (row_value(row->data, (enum row_dtype)row->dtype, (size_t)stats->argmax) != stats->max)
        return sample_foreign(handle);
    if (!partials) {
        struct tt_row_stats own;
        handle->ops->partials(row->data, row->dtype, row->vocab, inverse_temperature,
                              handle->partials);
        row_stats_from_partials(handle->ops, row->data, row->dtype, row->vocab, inverse_temperature,
                                handle->partials, &own);
        if (own.flags & TT_ROW_FLAGGED) return sample_flagged(handle);
        if (own.argmax != stats->argmax) return sample_foreign(handle);
        partials = handle->partials;
    }
    choice_philox_init(&philox, handle, key);
    *token = sample_partials(handle, row, inverse_temperature, stats->max, partials, &philox.base,
                             &site);
    return TT_OK;
}

int tt_sample_coupled(tt *handle, const struct tt_rows *row, float inverse_temperature,
                      uint64_t key, uint64_t token_index, int32_t *token)
{
    if (!handle) return TT_EINVAL;
    const int status = check_row(handle, row, inverse_temperature, token);
    if (status) return status;
    if (handle->cuda)
        return cuda_sample_coupled(handle, row, inverse_temperature, key, token_index, token);

    const struct choice_row view = {row->data, row->dtype, row->vocab, inverse_temperature,
                                    handle->group_max};
    const int has_nan =
        handle->ops->group_maxima(row->data, row->dtype, row->vocab, handle->group_max);
    for (size_t g = 0; g < row_groups(row->vocab); g++)
        if (handle->group_max[g] == row_infinity()) return sample_flagged(handle);
    if (has_nan) return sample_flagged(handle);
    const int32_t winner = race_row(handle, key, token_index, &view);
    if (winner < 0) return sample_flagged(handle);
    *token = winner;
    return TT_OK;
}
