/* transform_body.h - the parts of a transform that are computed token by token: penalties, the
 * order of the filters, the border of min-p. One text for CPU and CUDA.
 */
#ifndef KERNELS_TRANSFORM_BODY_H
#define KERNELS_TRANSFORM_BODY_H

#include "kernels/row_body.h"
#include "kernels/trimtab.h"

/* ---- the order of the filters: larger logits first, then smaller ids */

/* The 32 bits that sort like that; x is not NaN, -0 equals 0. */
LANE_FN uint32_t candidate_rank(float x)
{
    const uint32_t bits = bits_of_float(x + 0.0f);
    return ~(bits >> 31 ? ~bits : bits | 0x80000000u);
}

LANE_FN float candidate_rank_logit(uint32_t rank)
{
    const uint32_t ascending = ~rank;
    return float_of_bits(ascending >> 31 ? ascending & 0x7fffffffu : ~ascending);
}

/* ---- penalties */

/* How often the token is among these. */
LANE_FN int64_t times_in(int32_t token, const int32_t *extra, size_t extra_count)
{
    int64_t times = 0;
    for (size_t i = 0; i < extra_count; i++) times += extra[i] == token;
    return times;
}

LANE_FN void penalise(float *logit, const struct tt_transform *transform, int64_t count)
{
    const float repetition = transform->repetition_penalty;
    if (count <= 0) return;
    if (repetition > 0.0f && repetition != 1.0f)
        *logit = *logit > 0.0f ? *logit / repetition : *logit * repetition;
    *logit -= (float)count * transform->frequency_penalty;
    *logit -= transform->presence_penalty;
}

LANE_FN int has_penalties(const struct tt_transform *transform)
{
    return transform->presence_penalty != 0.0f || transform->frequency_penalty != 0.0f ||
           (transform->repetition_penalty > 0.0f && transform->repetition_penalty != 1.0f);
}

LANE_FN int is_counted(const struct tt_transform *transform, int32_t token)
{
    for (size_t i = 0; i < transform->counts_count; i++)
        if (transform->counts[i].token == token) return 1;
    return 0;
}

LANE_FN void penalise_counted(float *row, const struct tt_transform *transform, size_t i,
                              const int32_t *extra, size_t extra_count)
{
    const struct tt_token_count *entry = &transform->counts[i];
    penalise(&row[entry->token], transform,
             entry->count + times_in(entry->token, extra, extra_count));
}

/* A token that only the block itself has brought, at its first place there. */
LANE_FN void penalise_extra(float *row, const struct tt_transform *transform, size_t i,
                            const int32_t *extra, size_t extra_count)
{
    if (!times_in(extra[i], extra, i) && !is_counted(transform, extra[i]))
        penalise(&row[extra[i]], transform, times_in(extra[i], extra, extra_count));
}

/* ---- filters */

LANE_FN int filters_by_k(const struct tt_transform *transform, size_t vocab)
{
    return transform->top_k > 0 && (size_t)transform->top_k < vocab;
}

LANE_FN double filter_weight(float x, float max, double inverse_temperature)
{
    return exp_double(((double)x - (double)max) * inverse_temperature);
}

/* The smallest logit with exp((x - max) / T) >= min_p: a bisection over the ordered bit patterns of
 * floats. */
LANE_FN float min_p_floor(float max, double inverse_temperature, float min_p)
{
    const double least = log_double((double)min_p);
    uint32_t in = candidate_rank(max), out = candidate_rank(-row_infinity());
    while (out - in > 1) {
        const uint32_t middle = in + (out - in) / 2;
        const double x = (double)candidate_rank_logit(middle);
        if ((x - (double)max) * inverse_temperature >= least)
            in = middle;
        else
            out = middle;
    }
    return candidate_rank_logit(in);
}

#endif
