/* transform.c - tt_transform_row: what a client asked for, applied to one target row.
 *
 * Order: logit bias, penalties, (temperature,) top-k, top-p, min-p. The filters work on candidates
 * ordered by logit, then id, and leave one border (logit, id) behind; a last pass removes what lies
 * beyond it. Only groups of tokens that can hold candidates are read. Masses are double precision,
 * so the borders are those of a sorted oracle.
 */
#include "config.h"

#include "kernels/select.h"
#include "kernels/transform.h"

#include <math.h>

/* ---- bias and penalties */

static void apply_penalties(float *row, const struct tt_transform *transform, const int32_t *extra,
                            size_t extra_count)
{
    if (!has_penalties(transform)) return;
    for (size_t i = 0; i < transform->counts_count; i++)
        penalise_counted(row, transform, i, extra, extra_count);
    for (size_t i = 0; i < extra_count; i++) penalise_extra(row, transform, i, extra, extra_count);
}

/* ---- filters */

/* Relative error bound of a row's mass in single precision: sums of 32 terms a lane, the exponent's
 * two roundings. */
#define MASS_SLACK 1e-4

struct filter {
    tt *handle;
    const float *row;
    size_t vocab;
    float max;
    double inverse_temperature;
    struct candidate *list; /* (count), room for vocab */
    size_t count;
};

static double weight_of(const struct filter *filter, float x)
{
    return filter_weight(x, filter->max, filter->inverse_temperature);
}

/* List every token with a logit of at least `floor` that is not removed. */
static void gather(struct filter *filter, float floor)
{
    const float *group_max = filter->handle->group_max;
    filter->count = 0;
    for (size_t from = 0; from < filter->vocab; from += ROW_GROUP, group_max++) {
        if (*group_max < floor) continue;
        const size_t end = filter->vocab - from > ROW_GROUP ? from + ROW_GROUP : filter->vocab;
        for (size_t i = from; i < end; i++) {
            const float x = filter->row[i];
            if (!(x >= floor) || x == -INFINITY) continue;
            filter->list[filter->count++] = (struct candidate){candidate_key(x, (uint32_t)i), 1.0};
        }
    }
}

/* A logit that at least k tokens reach: the k-th largest of the groups' maxima. */
static float floor_of_top(const struct filter *filter, size_t k)
{
    const size_t groups = row_groups(filter->vocab);
    if (k > groups) return -INFINITY;
    for (size_t g = 0; g < groups; g++)
        filter->list[g] =
            (struct candidate){candidate_key(filter->handle->group_max[g], (uint32_t)g), 1.0};
    return candidate_logit(filter->list[select_head(filter->list, groups, (double)k) - 1].key);
}

static void keep_top_k(struct filter *filter, size_t k)
{
    gather(filter, floor_of_top(filter, k));
    filter->count = select_head(filter->list, filter->count, (double)k);
}

/* Weigh the list; returns its mass. */
static double weigh(struct filter *filter)
{
    double mass = 0.0;
    for (size_t i = 0; i < filter->count; i++) {
        filter->list[i].weight = weight_of(filter, candidate_logit(filter->list[i].key));
        mass += filter->list[i].weight;
    }
    return mass;
}

/* The row's mass relative to its mode in single precision: right within MASS_SLACK. */
static double quick_mass(const struct filter *filter)
{
    const float scale = (float)filter->inverse_temperature;
    struct row_partial *partials = filter->handle->partials;
    double mass = 0.0;
    filter->handle->ops->partials(filter->row, TT_F32, filter->vocab, scale, partials);
    for (size_t c = 0; c < row_chunks(filter->vocab); c++)
        mass += partial_mass(partials[c], filter->max, scale);
    return mass;
}

static double exact_mass(const struct filter *filter)
{
    return filter->handle->ops->mass(filter->row, filter->vocab, filter->max,
                                     (float)filter->inverse_temperature);
}

/* List the tokens near the mode, further and further, until they weigh `target`; at least the mode.
 */
static void gather_mass(struct filter *filter, double target)
{
    static const double reach[] = {4.0, 8.0, 16.0, 32.0, 64.0, INFINITY};
    for (size_t i = 0; i < sizeof reach / sizeof reach[0]; i++) {
        gather(filter, (float)((double)filter->max - reach[i] / filter->inverse_temperature));
        if (weigh(filter) >= target) break;
    }
}

/* The shortest head that weighs `low`, if it weighs `high` too: then it is the head of every target
 * between them. */
static int select_between(struct filter *filter, double low, double high)
{
    const size_t head = select_head(filter->list, filter->count, low);
    double mass = 0.0;
    for (size_t i = 0; i < head; i++) mass += filter->list[i].weight;
    if (low < high && mass < high) return 0;
    filter->count = head;
    return 1;
}

/* Single precision settles nearly every row; where the border falls between its bounds, double
 * precision does. */
static void keep_top_p(struct filter *filter, double top_p, int have_list)
{
    double target;
    if (have_list) {
        target = top_p * weigh(filter);
    } else {
        target = top_p * quick_mass(filter);
        gather_mass(filter, target * (1.0 + MASS_SLACK));
        if (select_between(filter, target * (1.0 - MASS_SLACK), target * (1.0 + MASS_SLACK)))
            return;
        target = top_p * exact_mass(filter);
    }
    (void)select_between(filter, target, target);
}

static void apply_filters(tt *handle, float *row, size_t vocab,
                          const struct tt_transform *transform)
{
    const int by_k = filters_by_k(transform, vocab);
    const int by_p = transform->top_p<1.0f, by_min = transform->min_p> 0.0f;
    struct filter filter = {.handle = handle,
                            .row = row,
                            .vocab = vocab,
                            .max = -INFINITY,
                            .inverse_temperature = (double)(1.0f / transform->temperature),
                            .list = handle->candidates};

    if (!by_k && !by_p && !by_min) return;
    if (handle->ops->group_maxima(row, TT_F32, vocab, handle->group_max))
        return; /* flagged later */
    for (size_t g = 0; g < row_groups(vocab); g++)
        if (handle->group_max[g] > filter.max) filter.max = handle->group_max[g];
    if (isinf(filter.max)) return; /* likewise */

    float border = -INFINITY;
    size_t last = vocab - 1;
    if (by_k) keep_top_k(&filter, (size_t)transform->top_k);
    if (by_p) keep_top_p(&filter, (double)transform->top_p, by_k);
    if (by_k || by_p) {
        const uint64_t worst = filter.list[filter.count - 1].key;
        border = candidate_logit(worst);
        last = candidate_token(worst);
    }
    const float floor =
        by_min ? min_p_floor(filter.max, filter.inverse_temperature, transform->min_p) : -INFINITY;
    if (floor > border) {
        border = floor;
        last = vocab - 1;
    }
    handle->ops->keep_from(row, vocab, border, last);
}

/* ---- checks and entry points */

static int check_numbers(tt *handle, const struct tt_transform *transform)
{
    if (!(transform->temperature >= 0.0f) || !isfinite(transform->temperature) ||
        (transform->temperature > 0.0f && !isfinite(1.0f / transform->temperature)))
        return handle_error(handle, TT_EINVAL, "transform: temperature %g: 0 or a positive number",
                            (double)transform->temperature);
    if (!(transform->top_p >= 0.0f))
        return handle_error(handle, TT_EINVAL,
                            "transform: top-p %g: from 0 (the mode alone) to 1 (off)",
                            (double)transform->top_p);
    if (isnan(transform->min_p) || transform->min_p > 1.0f ||
        (transform->min_p > 0.0f && !isnormal(transform->min_p)))
        return handle_error(handle, TT_EINVAL,
                            "transform: min-p %g: a normal number up to 1, 0 switches it off",
                            (double)transform->min_p);
    if (!isfinite(transform->presence_penalty) || !isfinite(transform->frequency_penalty) ||
        !isfinite(transform->repetition_penalty) || transform->repetition_penalty < 0.0f)
        return handle_error(handle, TT_EINVAL,
                            "transform: penalties must be finite, the repetition penalty >= 0");
    return TT_OK;
}

int transform_check(tt *handle, const struct tt_transform *transform, size_t vocab)
{
    if ((transform->bias_count > 0 && !transform->bias) ||
        (transform->counts_count > 0 && !transform->counts))
        return handle_error(handle, TT_EINVAL, "transform: a list is missing");
    for (size_t i = 0; i < transform->bias_count; i++) {
        const struct tt_logit_bias *bias = &transform->bias[i];
        if (bias->token < 0 || (size_t)bias->token >= vocab)
            return handle_error(handle, TT_EINVAL,
                                "transform: bias for token %d, the vocabulary has %zu",
                                (int)bias->token, vocab);
        if (isnan(bias->bias) || bias->bias == INFINITY)
            return handle_error(handle, TT_EINVAL,
                                "transform: bias of token %d is not finite and not -inf",
                                (int)bias->token);
    }
    for (size_t i = 0; i < transform->counts_count; i++)
        if (transform->counts[i].token < 0 || (size_t)transform->counts[i].token >= vocab)
            return handle_error(handle, TT_EINVAL,
                                "transform: count for token %d, the vocabulary has %zu",
                                (int)transform->counts[i].token, vocab);
    return check_numbers(handle, transform);
}

int transform_row(tt *handle, float *row, size_t vocab, const struct tt_transform *transform,
                  const int32_t *extra, size_t extra_count)
{
    for (size_t i = 0; i < transform->bias_count; i++)
        row[transform->bias[i].token] += transform->bias[i].bias;
    apply_penalties(row, transform, extra, extra_count);
    if (transform->temperature > 0.0f) apply_filters(handle, row, vocab, transform);
    return TT_OK;
}

int tt_transform_row(tt *handle, float *row, size_t vocab, const struct tt_transform *transform,
                     const int32_t *extra, size_t extra_count)
{
    if (!handle) return TT_EINVAL;
    const struct tt_rows shape = {row, TT_F32, 1, vocab, vocab};
    int status = handle_check_rows(handle, &shape);
    if (status) return status;
    if (!transform || (extra_count > 0 && !extra))
        return handle_error(handle, TT_EINVAL, "transform: no transform, or no extra tokens");
    status = transform_check(handle, transform, vocab);
    if (status) return status;
    for (size_t i = 0; i < extra_count; i++)
        if (extra[i] < 0 || (size_t)extra[i] >= vocab)
            return handle_error(handle, TT_EINVAL,
                                "transform: extra token %d, the vocabulary has %zu", (int)extra[i],
                                vocab);
    return handle->cuda ? cuda_transform_row(handle, row, vocab, transform, extra, extra_count)
                        : transform_row(handle, row, vocab, transform, extra, extra_count);
}
