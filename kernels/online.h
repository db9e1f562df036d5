/* online.h - the estimator `online`: logistic regression with one slope and K intercepts, a prior,
 * exponential forgetting at two speeds, drift detection and sandwich standard errors.
 *
 * Internal to libtrimtab: reached through tt_estimator_*. The caller (estimator.c) has validated
 * every argument.
 *
 * Sources: Penny & Roberts 1999 and McCormick et al. 2012 (dynamic logistic regression with
 * forgetting); Gupta & Ramdas, arXiv 2305.00070 (online Platt scaling); vLLM pull request 52228
 * (the model and its labels).
 */
#ifndef TRIMTAB_KERNELS_ONLINE_H
#define TRIMTAB_KERNELS_ONLINE_H

#include <stdint.h>

#include "kernels/trimtab.h"

#define ONLINE_REFIT_INTERVAL_STEPS 20
#define ONLINE_PRIOR_SLOPE 0.55
#define ONLINE_PRIOR_LEVEL (-0.4)
#define ONLINE_FEATURE_CLAMP 16.0
#define ONLINE_SPEEDS 2

/* Sums of a symmetric arrowhead matrix over (slope, intercepts): no two intercepts share a label,
 * so every entry between two of them is zero. */
struct online_arrowhead {
    double slope;                    /* sum of weight * x * x */
    double cross[TT_MAX_POSITIONS];  /* sum of weight * x, per position */
    double corner[TT_MAX_POSITIONS]; /* sum of weight, per position */
};

struct online_vector {
    double slope;
    double intercept[TT_MAX_POSITIONS];
};

/* Coefficients in centred coordinates: p = sigmoid(slope * (f - centre) + intercept[k]). */
struct online_fit {
    double slope; /* >= 0 */
    double level;
    double intercept[TT_MAX_POSITIONS];
};

/* One of the two estimators that see the same labels and forget at different rates. */
struct online_speed {
    double forget; /* per step, constant */
    struct online_fit fit;
    /* Everything remembered, in information form. */
    struct online_vector
        target; /* eta: the curvature times the uncapped solution, plus gradients */
    struct online_arrowhead curvature; /* H */
    struct online_arrowhead scatter;   /* J: outer products of the score, for the sandwich */
    /* The window since the last refit, graded at `fit`. */
    struct online_vector window_gradient;
    struct online_arrowhead window_curvature, window_scatter;
    double window_loss;
    double loss; /* log loss, forgotten by refit; decides which speed predicts */
};

/* One statistic of the drift test. */
struct online_drift_sum {
    double residual, variance,
        weight;    /* sums of y - p, p(1-p) forgotten as a variance, p(1-p) forgotten as the sum */
    double scale2; /* s^2 >= 1: how much wider than its model the statistic really is */
};

/* How far predictions were really off along one coordinate, whatever the model says: the residuals
 * of whole windows are compared with what independent labels leave. Forgotten by refit. */
struct online_misfit {
    double excess; /* sum of (residual^2 - spread), spread = sum of squared label residuals */
    double weight; /* sum of curvature^2: excess / weight is a mean squared logit */
    double noise;  /* variance of `excess` where the model holds, forgotten as a variance */
};

struct online {
    int32_t positions;
    int32_t refit_interval_steps;
    double prior_slope, prior_level; /* level at feature 0 */
    double centre;                   /* c: cumulative mean of labelled features */
    double feature_sum;
    uint64_t feature_count;
    int32_t active; /* index of the speed that predicts */
    struct online_speed speed[ONLINE_SPEEDS];
    int32_t window_steps;
    double window_feature_sum;
    uint64_t window_labels;
    double window_residual, window_variance; /* hard outcomes, active speed */
    struct online_drift_sum drift_window, drift_sum;
    double drift_z; /* NaN until the first test */
    uint64_t refits, rejected, drift_events;
    struct online_misfit misfit_slope, misfit_level, misfit_position[TT_MAX_POSITIONS];
};

/* Coefficients at feature 0 and their standard errors. */
struct online_summary {
    double slope, slope_se, level, level_se, centre;
    double intercept[TT_MAX_POSITIONS], intercept_se[TT_MAX_POSITIONS];
};

void online_init(struct online *online, int32_t positions, int32_t refit_interval_steps,
                 double prior_slope, double prior_level);
/* A new prior mean; takes effect at the next refit, at once when nothing has been learned yet. */
void online_set_prior(struct online *online, double slope, double level);
/* One label: feature finite; soft in [0, 1] is fitted, hard (0 or 1) is tested for drift. */
void online_add_label(struct online *online, int32_t position, double feature, double soft,
                      double hard);
/* End of a step. Returns TT_STEP_* bits. */
int online_end_step(struct online *online);
void online_summarize(const struct online *online, struct online_summary *out);

#endif
