/* calibration.c - reliability bins, ECE, Brier score, log loss and AUC, exponentially forgotten.
 *
 * The usual definitions; the AUC is the Mann-Whitney statistic over a histogram of the feature,
 * ties within a bin counting one half (bins of 1/8 of a natural-log odds: an error far below what
 * is shown).
 *
 * The sums are added in calibration_body.h, which a GPU runs as well. Owns nothing but the struct
 * it is given.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "kernels/calibration_body.h"

void calibration_init(struct calibration *calibration, int32_t positions)
{
    memset(calibration, 0, sizeof(*calibration));
    calibration->positions = positions;
    calibration->unit = 1.0;
}

void calibration_add(struct calibration *calibration, int32_t position, double feature,
                     double probability, int outcome)
{
    const double unit = calibration->unit;
    struct calibration_label label;
    calibration_sort(feature, probability, outcome, &label);
    calibration_add_bin(&calibration->bin[position][label.bin], unit, &label);
    calibration_add_position(calibration, unit, position, &label);
    calibration_add_scores(calibration, unit, &label);
    calibration->by_feature[outcome != 0][label.feature_bin] += unit;
}

void calibration_end_step(struct calibration *calibration)
{
    if (!calibration_age(calibration)) return;
    const double scale = 1.0 / calibration->unit;
    for (int32_t k = 0; k < calibration->positions; k++)
        calibration_scale_position(calibration, scale, k);
    for (int b = 0; b < CALIBRATION_FEATURE_BINS; b++)
        calibration_scale_feature(calibration, scale, b);
    calibration_scale_scores(calibration, scale);
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
