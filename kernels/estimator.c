/* estimator.c - the public face of both estimators: argument checks, dispatch by kind, and what
 * they share (label counts, starvation, calibration, the report).
 *
 * Every check is done before anything changes: a call that returns an error leaves the estimator as
 * it was.
 *
 * Owns the tt_estimator handle; allocates in tt_estimator_new only. Sources: vLLM pull request
 * 52228 (labels, model); online.c and parity.c for the methods.
 */
#include "config.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/estimator_body.h"

#define STARVED_LABELS 5.0 /* forgotten count of labels that is enough */

/* Bounds of a prior that is not a mistake. Published slopes lie in 0.44 .. 0.83, levels in -0.92 ..
 * -0.14. */
#define MAX_PRIOR_SLOPE 10.0
#define MAX_PRIOR_LEVEL 40.0

/* ----------------------------------------------------------------------------------- life cycle */

static bool prior_valid(double slope, double level)
{
    return slope >= 0.0 && slope <= MAX_PRIOR_SLOPE && fabs(level) <= MAX_PRIOR_LEVEL;
}

int tt_estimator_new(tt_estimator **out, const struct tt_estimator_options *options)
{
    if (out == NULL) return TT_EINVAL;
    *out = NULL;
    if (options == NULL || (options->kind != TT_ONLINE && options->kind != TT_PARITY) ||
        options->positions < 1 || options->positions > TT_MAX_POSITIONS ||
        options->refit_interval_steps < 0)
        return TT_EINVAL;
    const double slope = isnan(options->prior_slope) ? ONLINE_PRIOR_SLOPE : options->prior_slope;
    const double level = isnan(options->prior_level) ? ONLINE_PRIOR_LEVEL : options->prior_level;
    if (!prior_valid(slope, level)) return TT_EINVAL;

    tt_estimator *estimator = calloc(1, sizeof(*estimator));
    if (estimator == NULL) return TT_ENOMEM;
    estimator->kind = options->kind;
    estimator->positions = options->positions;
    calibration_init(&estimator->calibration, options->positions);
    int32_t interval = options->refit_interval_steps;
    if (options->kind == TT_PARITY) {
        if (interval == 0) interval = PARITY_REFIT_INTERVAL_STEPS;
        parity_init(&estimator->u.parity, options->positions, interval);
    } else {
        if (interval == 0) interval = ONLINE_REFIT_INTERVAL_STEPS;
        online_init(&estimator->u.online, options->positions, interval, slope, level);
    }
    *out = estimator;
    return TT_OK;
}

void tt_estimator_free(tt_estimator *estimator)
{
    free(estimator);
}

int tt_estimator_set_prior(tt_estimator *estimator, double slope, double level)
{
    if (estimator == NULL || !prior_valid(slope, level)) return TT_EINVAL;
    if (estimator->kind != TT_ONLINE) return TT_ENOTSUP;
    online_set_prior(&estimator->u.online, slope, level);
    return TT_OK;
}

/* -------------------------------------------------------------------------------------- predict */

int tt_estimator_predict(const tt_estimator *estimator, int32_t position, const float *feature,
                         size_t count, double *probability)
{
    if (estimator == NULL || position < 0 || position >= estimator->positions) return TT_EINVAL;
    if (count > 0 && (feature == NULL || probability == NULL)) return TT_EINVAL;
    for (size_t i = 0; i < count; i++)
        probability[i] = estimator_probability(estimator, position, feature[i]);
    return TT_OK;
}

/* -------------------------------------------------------------------------------------- observe */

int tt_estimator_observe(tt_estimator *estimator, const struct tt_observation *observation)
{
    struct estimator_label label;
    if (estimator == NULL || observation == NULL ||
        !observation_valid(observation, estimator->positions))
        return TT_EINVAL;
    for (int32_t k = 0; k < observation_reached(observation); k++) {
        if (!estimator_read_label(estimator, observation, k, &label)) {
            estimator->flagged++;
            continue;
        }
        calibration_add(&estimator->calibration, k, label.feature, label.predicted, label.hard);
        if (estimator->kind == TT_ONLINE)
            online_add_label(&estimator->u.online, k, label.feature, label.soft,
                             (double)label.hard);
        estimator_count_label(estimator, k);
        estimator->labels++;
    }
    /* Every request, labelled or not, non-finite features included: that is what was released. */
    if (estimator->kind == TT_PARITY) parity_observe(&estimator->u.parity, observation);
    return TT_OK;
}

int tt_estimator_end_step(tt_estimator *estimator)
{
    if (estimator == NULL) return TT_EINVAL;
    estimator->steps++;
    for (int32_t k = 0; k < estimator->positions; k++) estimator_age_position(estimator, k);
    calibration_end_step(&estimator->calibration);
    return estimator->kind == TT_PARITY ? parity_end_step(&estimator->u.parity)
                                        : online_end_step(&estimator->u.online);
}

int32_t tt_estimator_starved(const tt_estimator *estimator)
{
    if (estimator == NULL) return -1;
    for (int32_t k = 0; k < estimator->positions; k++) {
        if (estimator->recent_labels[k] < STARVED_LABELS) return k;
    }
    return -1;
}

/* --------------------------------------------------------------------------------------- report */

static void report_online(const struct online *online, struct tt_estimator_report *out)
{
    struct online_summary summary;
    online_summarize(online, &summary);
    out->slope = summary.slope;
    out->slope_se = summary.slope_se;
    out->level = summary.level;
    out->level_se = summary.level_se;
    out->centre = summary.centre;
    out->refits = online->refits;
    out->rejected = online->rejected;
    out->drift_events = online->drift_events;
    out->drift_z = online->drift_z;
    for (int32_t k = 0; k < online->positions; k++) {
        out->position[k].intercept = summary.intercept[k];
        out->position[k].intercept_se = summary.intercept_se[k];
    }
}

/* `parity` has no level, no drift test and no standard errors: unknown, not zero. */
static void report_parity(const struct parity *parity, struct tt_estimator_report *out)
{
    out->slope = (double)parity->slope;
    out->slope_se = out->level = out->level_se = out->drift_z = NAN;
    out->centre = 0.0;
    out->refits = parity->refits;
    out->rejected = parity->refused;
    for (int32_t k = 0; k < parity->positions; k++) {
        out->position[k].intercept = (double)parity->intercept[k];
        out->position[k].intercept_se = NAN;
    }
}

int tt_estimator_report(const tt_estimator *estimator, struct tt_estimator_report *out)
{
    if (estimator == NULL || out == NULL) return TT_EINVAL;
    const struct calibration *calibration = &estimator->calibration;
    struct calibration_scores scores;
    memset(out, 0, sizeof(*out));
    out->kind = estimator->kind;
    out->positions = estimator->positions;
    out->steps = estimator->steps;
    out->labels = estimator->labels;
    out->flagged = estimator->flagged;
    if (estimator->kind == TT_PARITY)
        report_parity(&estimator->u.parity, out);
    else
        report_online(&estimator->u.online, out);
    for (int32_t k = 0; k < TT_MAX_POSITIONS; k++) {
        struct tt_position_report *position = &out->position[k];
        if (k >= estimator->positions) {
            position->intercept = position->intercept_se = NAN;
            continue;
        }
        position->reached = calibration->reached[k] / calibration->unit;
        position->accepted = calibration->accepted[k] / calibration->unit;
        position->predicted = calibration->predicted[k] / calibration->unit;
        position->n = estimator->position_labels[k];
    }
    calibration_bins(calibration, -1, out->bin);
    calibration_score(calibration, &scores);
    out->ece = scores.ece;
    out->brier = scores.brier;
    out->log_loss = scores.log_loss;
    out->auc = scores.auc;
    return TT_OK;
}

int tt_estimator_calibration(const tt_estimator *estimator, int32_t position,
                             struct tt_calibration_bin out[TT_CALIBRATION_BINS])
{
    if (estimator == NULL || out == NULL || position < 0 || position >= estimator->positions)
        return TT_EINVAL;
    calibration_bins(&estimator->calibration, position, out);
    return TT_OK;
}
