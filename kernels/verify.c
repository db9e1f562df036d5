/* verify.c - tt_verify: the verification core over fp32 rows and the request's Philox streams.
 *
 * Owns what the core needs to know about the row at hand. A row is transformed and measured when it
 * is reached, never before; the draft row of a position is read only under the ratio rule. Greedy
 * and coupled need the row's maxima alone.
 */
#include "config.h"

#include "kernels/handle.h"
#include "kernels/rows.h"
#include "kernels/sample.h"
#include "kernels/transform.h"
#include "kernels/verify_core.h"
#include "kernels/verify_rows.h"

#include <math.h>

/* The block as the core sees it, with the laws of the row at hand. */
struct verify_rows {
    tt *handle;
    const struct tt_block *block;
    float inverse_temperature;
    struct row_law p, q;
    int32_t mode;
};

static float *target_row(const struct verify_rows *rows, int32_t k)
{
    return rows->block->target + (size_t)k * rows->block->target_stride;
}

static const float *draft_row(const struct verify_rows *rows, int32_t k)
{
    return rows->block->draft + (size_t)k * rows->block->draft_stride;
}

/* Measure the target row into handle->partials and rows->p. */
static int measure_target(struct verify_rows *rows, int32_t k)
{
    const struct tt_block *block = rows->block;
    const float *row = target_row(rows, k);
    struct tt_row_stats stats;

    rows->handle->ops->partials(row, TT_F32, block->vocab, rows->inverse_temperature,
                                rows->handle->partials);
    row_stats_from_partials(rows->handle->ops, row, TT_F32, block->vocab, rows->inverse_temperature,
                            rows->handle->partials, &stats);
    if (stats.flags & TT_ROW_FLAGGED) return VERIFY_TARGET_FLAGGED;
    rows->mode = stats.argmax;
    rows->p = row_law_of(row, block->vocab, rows->inverse_temperature, &stats);
    return VERIFY_READY;
}

/* Only the maxima: enough for the mode and for a race. */
static int measure_maxima(struct verify_rows *rows, int32_t k)
{
    const struct tt_block *block = rows->block;
    const float *row = target_row(rows, k);
    const float *maxima = rows->handle->group_max;
    const size_t groups = row_groups(block->vocab);
    size_t best = 0;

    if (rows->handle->ops->group_maxima(row, TT_F32, block->vocab, rows->handle->group_max))
        return VERIFY_TARGET_FLAGGED;
    for (size_t g = 1; g < groups; g++)
        if (maxima[g] > maxima[best]) best = g;
    if (isinf(maxima[best])) return VERIFY_TARGET_FLAGGED;
    const size_t from = best * ROW_GROUP;
    const size_t end = block->vocab - from > ROW_GROUP ? from + ROW_GROUP : block->vocab;
    rows->mode = (int32_t)rows->handle->ops->find(row, TT_F32, from, end, maxima[best]);
    return VERIFY_READY;
}

static int measure_draft(struct verify_rows *rows, int32_t k)
{
    const struct tt_block *block = rows->block;
    const float *row = draft_row(rows, k);
    struct tt_row_stats stats;

    if (block->draft_stats) {
        stats = block->draft_stats[k];
    } else {
        struct row_partial *partials = rows->handle->draft_partials;
        rows->handle->ops->partials(row, TT_F32, block->draft_vocab, rows->inverse_temperature,
                                    partials);
        row_stats_from_partials(rows->handle->ops, row, TT_F32, block->draft_vocab,
                                rows->inverse_temperature, partials, &stats);
    }
    if (stats.flags & TT_ROW_FLAGGED) return VERIFY_DRAFT_FLAGGED;
    rows->q = row_law_of(row, block->draft_vocab, rows->inverse_temperature, &stats);
    return VERIFY_READY;
}

static int rows_reach(void *context, int32_t k, int with_draft)
{
    struct verify_rows *rows = context;
    const struct tt_block *block = rows->block;
    if (block->transform) {
        const int status = transform_row(rows->handle, target_row(rows, k), block->vocab,
                                         block->transform, block->tokens, (size_t)k);
        if (status) return status;
    }
    const int maxima_only = block->rule == TT_GREEDY || block->rule == TT_COUPLED;
    const int reached = maxima_only ? measure_maxima(rows, k) : measure_target(rows, k);
    if (reached != VERIFY_READY || !with_draft) return reached;
    return measure_draft(rows, k);
}

static int32_t rows_mode(void *context, int32_t k)
{
    (void)k;
    return ((const struct verify_rows *)context)->mode;
}

static double rows_target(void *context, int32_t k, int32_t token)
{
    (void)k;
    return law_probability(&((const struct verify_rows *)context)->p, token);
}

static double rows_draft(void *context, int32_t k, int32_t token)
{
    (void)k;
    return law_probability(&((const struct verify_rows *)context)->q, token);
}

static int32_t draw_whole(struct verify_rows *rows, int32_t k, struct choice *choice,
                          const struct choice_site *site)
{
    const size_t vocab = rows->block->vocab;
    const struct tt_rows row = {target_row(rows, k), TT_F32, 1, vocab, vocab};
    return sample_partials(rows->handle, &row, rows->inverse_temperature, rows->p.max,
                           rows->handle->partials, choice, site);
}

/* Take one token out of the row, measure its chunk again, draw, and put the token back. A rejected
 * token is never alone: its probability would be 1. Should rounding say otherwise, p itself is
 * drawn from. */
static int32_t draw_without(struct verify_rows *rows, int32_t k, int32_t without,
                            struct choice *choice, const struct choice_site *site)
{
    const struct tt_block *block = rows->block;
    struct row_partial *partials = rows->handle->partials;
    const size_t chunk = (size_t)without / ROW_CHUNK, from = chunk * ROW_CHUNK;
    const size_t end = block->vocab - from > ROW_CHUNK ? from + ROW_CHUNK : block->vocab;
    const struct row_partial whole = partials[chunk];
    float *row = target_row(rows, k);
    const float kept = row[without], whole_max = rows->p.max;
    double rest;

    row[without] = -INFINITY;
    partials[chunk] = rows->handle->ops->partial(row, TT_F32, from, end, rows->inverse_temperature);
    merge_partials(partials, row_chunks(block->vocab), rows->inverse_temperature, &rows->p.max,
                   &rest);
    if (rows->p.max == -INFINITY) {
        row[without] = kept;
        partials[chunk] = whole;
        rows->p.max = whole_max;
    }
    const int32_t token = draw_whole(rows, k, choice, site);
    row[without] = kept;
    return token;
}

static int32_t rows_draw(void *context, int32_t k, enum verify_remainder remainder, int32_t without,
                         struct choice *choice, const struct choice_site *site)
{
    struct verify_rows *rows = context;

    if (remainder == VERIFY_RESIDUAL) {
        const int32_t token = sample_residual(rows->handle, &rows->p, &rows->q, choice, site);
        if (token >= 0) return token;
    }
    if (remainder == VERIFY_WITHOUT) return draw_without(rows, k, without, choice, site);
    return draw_whole(rows, k, choice, site);
}

static int32_t rows_race(void *context, int32_t k, struct choice *choice, uint64_t token_index)
{
    struct verify_rows *rows = context;
    const struct choice_row row = {target_row(rows, k), TT_F32, rows->block->vocab,
                                   rows->inverse_temperature, rows->handle->group_max};
    return choice_race_row(choice, token_index, &row);
}

static int check_tokens(tt *handle, const struct tt_block *block)
{
    const size_t vocab = block->rule == TT_RATIO ? block->draft_vocab : block->vocab;
    if (block->admitted > 0 && !block->tokens)
        return handle_error(handle, TT_EINVAL, "verify: no draft tokens");
    for (int32_t k = 0; k < block->admitted; k++)
        if (block->tokens[k] < -1 || (block->tokens[k] >= 0 && (size_t)block->tokens[k] >= vocab))
            return handle_error(handle, TT_EINVAL,
                                "verify: token %d at position %d is outside the vocabulary of %zu",
                                (int)block->tokens[k], (int)k, vocab);
    return TT_OK;
}

static int check_rule(tt *handle, const struct tt_block *block)
{
    if ((unsigned)block->rule > TT_COUPLED)
        return handle_error(handle, TT_EINVAL, "verify: unknown rule %d", (int)block->rule);
    const int greedy = block->rule == TT_GREEDY;
    if (greedy ? block->temperature != 0.0f
               : !(block->temperature > 0.0f) || !isfinite(block->temperature) ||
                     !isfinite(1.0f / block->temperature))
        return handle_error(
            handle, TT_EINVAL,
            "verify: temperature %g; greedy needs 0, the other rules a positive one",
            (double)block->temperature);
    if (block->transform && block->transform->temperature != block->temperature)
        return handle_error(handle, TT_EINVAL,
                            "verify: the transform's temperature %g is not the block's %g",
                            (double)block->transform->temperature, (double)block->temperature);
    if (block->rule != TT_RATIO || block->admitted == 0) return TT_OK;
    if (!block->draft || block->draft_vocab < 1 || block->draft_stride < block->draft_vocab)
        return handle_error(
            handle, TT_EINVAL,
            "verify: the ratio rule needs draft rows with a stride of at least their "
            "vocabulary");
    if (block->draft_vocab > block->vocab)
        return handle_error(handle, TT_EINVAL,
                            "verify: draft vocabulary %zu is larger than the target's %zu",
                            block->draft_vocab, block->vocab);
    return TT_OK;
}

/* Numbers that could be those of a row; whose row is not looked at before it is reached. */
static int check_draft_stats(tt *handle, const struct tt_block *block)
{
    for (int32_t k = 0; block->draft_stats && k < block->admitted; k++) {
        const struct tt_row_stats *stats = &block->draft_stats[k];
        if (stats->flags & TT_ROW_FLAGGED) continue;
        if (stats->argmax < 0 || (size_t)stats->argmax >= block->draft_vocab ||
            !isfinite(stats->max) || !(stats->rest >= 0.0f) || isinf(stats->rest))
            return handle_error(handle, TT_EINVAL,
                                "verify: no row has the draft statistics of position %d", (int)k);
    }
    return TT_OK;
}

static int check_block(tt *handle, const struct tt_block *block)
{
    if (block->admitted < 0 || block->admitted > TT_MAX_POSITIONS)
        return handle_error(handle, TT_EINVAL, "verify: %d admitted drafts, 0 to %d are possible",
                            (int)block->admitted, TT_MAX_POSITIONS);
    /* The handle's row limit is for statistics: a block is worked off row by row. */
    const struct tt_rows last = {block->target, TT_F32, 1, block->vocab, block->target_stride};
    int status = handle_check_rows(handle, &last);
    if (!status)
        status = handle_check_span(handle, (size_t)block->admitted + 1, 4, block->target_stride,
                                   block->vocab);
    if (!status) status = check_rule(handle, block);
    if (!status && block->rule == TT_RATIO && block->admitted > 0)
        status = handle_check_span(handle, (size_t)block->admitted, 4, block->draft_stride,
                                   block->draft_vocab);
    if (!status && block->rule == TT_RATIO) status = check_draft_stats(handle, block);
    if (!status) status = check_tokens(handle, block);
    if (!status && block->transform)
        status = transform_check(handle, block->transform, block->vocab);
    return status;
}

int verify_rows(tt *handle, const struct tt_block *block, struct choice *choice,
                struct tt_verdict *out)
{
    struct verify_rows rows = {
        .handle = handle,
        .block = block,
        .inverse_temperature = block->rule == TT_GREEDY ? 1.0f : 1.0f / block->temperature,
    };
    const struct verify_law law = {
        .context = &rows,
        .reach = rows_reach,
        .mode = rows_mode,
        .target = rows_target,
        .draft = rows_draft,
        .draw = rows_draw,
        .race = rows_race,
    };
    const struct verify_task task = {block->rule, block->tokens, block->admitted,
                                     block->token_index};
    return tt_verify_core(&task, &law, choice, out);
}

int tt_verify(tt *handle, const struct tt_block *block, struct tt_verdict *out)
{
    struct choice_philox philox;

    if (!handle) return TT_EINVAL;
    if (!block || !out) return handle_error(handle, TT_EINVAL, "verify: no block or no verdict");
    const int status = check_block(handle, block);
    if (status) return status;
    if (handle->cuda) return cuda_verify(handle, block, out);
    choice_philox_init(&philox, handle, block->key);
    return verify_rows(handle, block, &philox.base, out);
}
