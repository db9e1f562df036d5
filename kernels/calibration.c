/* calibration.c - reliability bins, ECE, Brier score, log loss and AUC, exponentially forgotten.
 *
 * The usual definitions; the AUC is the Mann-Whitney statistic over a histogram of the feature,
 * ties within a bin counting one half (bins of 1/8 of a natural-log odds: an error far below what
 * is shown).
 *
 * Owns nothing but the struct it is given.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "kernels/calibration.h"
#include "kernels/host_math.h"

#define UNIT_LIMIT 1e9 /* where the growing unit is divided out again */

void calibration_init(struct calibration *calibration, int32_t positions)
{
    memset(calibration, 0, sizeof(*calibration));
    calibration->positions = positions;
    calibration->unit = 1.0;
}

static int bin_of(double value, double low, double high, int bins)
{
    const int bin = (int)((value - low) / (high - low) * bins);
    return bin < 0 ? 0 : bin >= bins ? bins - 1 : bin;
}

void calibration_add(struct calibration *calibration, int32_t position, double feature,
                     double probability, int outcome)
{
    const double unit = calibration->unit, y = outcome ? 1.0 : 0.0;
    struct tt_calibration_bin *bin =
        &calibration->bin[position][bin_of(probability, 0.0, 1.0, TT_CALIBRATION_BINS)];
    bin->n += unit;
    bin->sum_p += unit * probability;
    bin->sum_y += unit * y;
    calibration->reached[position] += unit;
    calibration->accepted[position] += unit * y;
    calibration->predicted[position] += unit * probability;
    calibration->n += unit;
    calibration->squared_error += unit * (y - probability) * (y - probability);
    calibration->surprise += unit * host_surprise(outcome ? probability : 1.0 - probability);
    const double f = fmin(fmax(feature, -CALIBRATION_FEATURE_LIMIT), CALIBRATION_FEATURE_LIMIT);
    calibration->by_feature[outcome != 0][bin_of(
        f, -CALIBRATION_FEATURE_LIMIT, CALIBRATION_FEATURE_LIMIT, CALIBRATION_FEATURE_BINS)] +=
        unit;
}

/* Divide every sum by the unit, which becomes 1 again. */
static void rescale(struct calibration *calibration)
{
    const double scale = 1.0 / calibration->unit;
    for (int32_t k = 0; k < calibration->positions; k++) {
        for (int b = 0; b < TT_CALIBRATION_BINS; b++) {
            calibration->bin[k][b].n *= scale;
            calibration->bin[k][b].sum_p *= scale;
            calibration->bin[k][b].sum_y *= scale;
        }
        calibration->reached[k] *= scale;
        calibration->accepted[k] *= scale;
        calibration->predicted[k] *= scale;
    }
    for (int b = 0; b < CALIBRATION_FEATURE_BINS; b++) {
        calibration->by_feature[0][b] *= scale;
        calibration->by_feature[1][b] *= scale;
    }
    calibration->n *= scale;
    calibration->squared_error *= scale;
    calibration->surprise *= scale;
    calibration->unit = 1.0;
}

void calibration_end_step(struct calibration *calibration)
{
    calibration->unit /= CALIBRATION_FORGET;
    if (calibration->unit > UNIT_LIMIT) rescale(calibration);
}

void calibration_bins(const struct calibration *calibration, int32_t position,
                      struct tt_calibration_bin out[TT_CALIBRATION_BINS])
{
    const int32_t first = position < 0 ? 0 : position;
    const int32_t last = position < 0 ? calibration->positions - 1 : position;
    memset(out, 0, TT_CALIBRATION_BINS * sizeof(*out));
    for (int32_t k = first; k <= last; k++) {
        for (int b = 0; b < TT_CALIBRATION_BINS; b++) {
            out[b].n += calibration->bin[k][b].n / calibration->unit;
            out[b].sum_p += calibration->bin[k][b].sum_p / calibration->unit;
            out[b].sum_y += calibration->bin[k][b].sum_y / calibration->unit;
        }
    }
}

/* P(feature of an accepted draft > feature of a rejected one), ties one half. */
static double area_under_curve(const struct calibration *calibration)
{
    double rejected_below = 0.0, accepted = 0.0, pairs = 0.0;
    for (int b = 0; b < CALIBRATION_FEATURE_BINS; b++) {
        const double rejected_here = calibration->by_feature[0][b];
        const double accepted_here = calibration->by_feature[1][b];
        pairs += accepted_here * (rejected_below + 0.5 * rejected_here);
        rejected_below += rejected_here;
        accepted += accepted_here;
    }
    return accepted > 0.0 && rejected_below > 0.0 ? pairs / accepted / rejected_below : NAN;
}

void calibration_score(const struct calibration *calibration, struct calibration_scores *out)
{
    struct tt_calibration_bin bin[TT_CALIBRATION_BINS];
    const double n = calibration->n;
    if (!(n > 0.0)) {
        out->ece = out->brier = out->log_loss = out->auc = NAN;
        return;
    }
    double gap = 0.0;
    calibration_bins(calibration, -1, bin);
    for (int b = 0; b < TT_CALIBRATION_BINS; b++) gap += fabs(bin[b].sum_y - bin[b].sum_p);
    out->ece = gap * calibration->unit / n;
    out->brier = calibration->squared_error / n;
    out->log_loss = calibration->surprise / n;
    out->auc = area_under_curve(calibration);
}
