/* law_body.h - what a measured row says: its statistics, and the probabilities of its tokens. One
 * text for CPU and CUDA.
 */
#ifndef KERNELS_LAW_BODY_H
#define KERNELS_LAW_BODY_H

#include "kernels/row_body.h"
#include "kernels/trimtab.h"

/* An fp32 row with what turns it into a law:
 * p_i = exp((logits[i] - max) * inverse_temperature) * scale. */
struct row_law {
    const float *logits; /* (vocab) */
    size_t vocab;
    float max, inverse_temperature;
    float scale; /* 1 / (1 + rest) */
};

/* Whether a row with this maximum and this sum of losers has no law. */
LANE_FN int row_is_flagged(float max, double sum)
{
    return sum != sum || max == row_infinity() || max == -row_infinity();
}

LANE_FN void row_stats_flagged(struct tt_row_stats *out)
{
    out->argmax = -1;
    out->max = out->rest = out->log_odds = out->log_norm = row_nan();
    out->flags = TT_ROW_FLAGGED;
}

/* max and sum as merge_partials left them; mode: the first place of max, value: what stands there.
 */
LANE_FN void row_stats_measured(float max, double sum, float inverse_temperature, size_t mode,
                                float value, struct tt_row_stats *out)
{
    out->argmax = (int32_t)mode;
    out->max = value;
    out->rest = (float)sum;
    out->log_odds = sum > 0.0 ? (float)-log_double(sum) : row_infinity();
    out->log_norm = (float)((double)max * (double)inverse_temperature + log1p_double(sum));
    out->flags = 0;
}

/* See tt_feature. */
LANE_FN float row_feature(const struct tt_row_stats *stats, float clamp)
{
    if (stats->flags & TT_ROW_FLAGGED) return row_nan();
    if (stats->log_odds > clamp) return clamp;
    return stats->log_odds < -clamp ? -clamp : stats->log_odds;
}

/* The law of one row from its statistics; the same statistics give the same bits on either side. */
LANE_FN struct row_law row_law_of(const float *logits, size_t vocab, float inverse_temperature,
                                  const struct tt_row_stats *stats)
{
    struct row_law law;
    law.logits = logits;
    law.vocab = vocab;
    law.max = stats->max;
    law.inverse_temperature = inverse_temperature;
    law.scale = (float)(1.0 / (1.0 + (double)stats->rest));
    return law;
}

/* In [0, 1], NaN for a NaN, even where the statistics were another row's. */
LANE_FN float law_value(const struct row_law *law, float x)
{
    const float d = (x - law->max) * law->inverse_temperature;
    return exp_lane(d > 0.0f ? 0.0f : d) * law->scale;
}

LANE_FN double law_probability(const struct row_law *law, int32_t token)
{
    return (size_t)token < law->vocab ? (double)law_value(law, law->logits[token]) : 0.0;
}

/* max(p - q, 0) of a token with logits x in p and y in q. */
LANE_FN float law_residual(const struct row_law *p, const struct row_law *q, float x, float y)
{
    const float d = law_value(p, x) - law_value(q, y);
    return d > 0.0f ? d : 0.0f;
}

#endif
