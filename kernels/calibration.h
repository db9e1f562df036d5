/* calibration.h - how well predicted acceptance agrees with what happened: probability bins a
 * position, proper scores, and the discrimination (AUC) of the feature itself. Exponentially
 * forgotten by step.
 *
 * Internal to libtrimtab; the results leave through tt_estimator_report and
 * tt_estimator_calibration. Only hard outcomes enter, so that every figure shown is about events
 * that happened.
 */
#ifndef TRIMTAB_KERNELS_CALIBRATION_H
#define TRIMTAB_KERNELS_CALIBRATION_H

#include <stdint.h>

#include "kernels/trimtab.h"

#define CALIBRATION_FORGET 0.999     /* a step */
#define CALIBRATION_FEATURE_BINS 256 /* over -16 .. 16, ends included in the outermost bins */
#define CALIBRATION_FEATURE_LIMIT 16.0

/* Every sum below carries the factor `unit`, which grows by 1/CALIBRATION_FORGET a step in place of
 * shrinking thousands of sums. */
struct calibration {
    int32_t positions;
    double unit;
    struct tt_calibration_bin bin[TT_MAX_POSITIONS][TT_CALIBRATION_BINS];
    double reached[TT_MAX_POSITIONS], accepted[TT_MAX_POSITIONS], predicted[TT_MAX_POSITIONS];
    double squared_error, surprise, n;
    double by_feature[2][CALIBRATION_FEATURE_BINS]; /* [outcome] */
};

/* Scores over all positions; NaN where there are no labels (auc: of both kinds). */
struct calibration_scores {
    double ece, brier, log_loss, auc;
};

void calibration_init(struct calibration *calibration, int32_t positions);
/* feature finite, probability in [0, 1], outcome 0 or 1. */
void calibration_add(struct calibration *calibration, int32_t position, double feature,
                     double probability, int outcome);
void calibration_end_step(struct calibration *calibration);
/* Bins of one position, or of all of them pooled for position -1. */
void calibration_bins(const struct calibration *calibration, int32_t position,
                      struct tt_calibration_bin out[TT_CALIBRATION_BINS]);
void calibration_score(const struct calibration *calibration, struct calibration_scores *out);

#endif
