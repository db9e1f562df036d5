/* vllm_fit.c - see vllm_fit.h. */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "controller/vllm_fit.h"

enum {
    STEPS_MAX = 20000, /* of one reading; an engine does a few hundred a second */
    GUARD_LABELS = 300,
};
#define GUARD_FORGET 0.9 /* a reading */
#define GUARD_NATS 0.005 /* a label */
#define GUARD_ERRORS 3.0 /* standard errors */

struct vllm_fit {
    tt_estimator *estimator;
    int positions;
    struct vllm_coefficients reference; /* positions 0 = none yet */
    double difference, square, labels;  /* loss in force - loss of the reference; forgotten sums */
};

struct vllm_fit *vllm_fit_new(int positions)
{
    const struct tt_estimator_options options = {
        .kind = TT_ONLINE, .positions = positions, .prior_slope = NAN, .prior_level = NAN};
    struct vllm_fit *fit = calloc(1, sizeof *fit);

    if (!fit) return NULL;
    fit->positions = positions;
    if (positions <= SNAPSHOT_MAX_POSITIONS && tt_estimator_new(&fit->estimator, &options) == TT_OK)
        return fit;
    free(fit);
    return NULL;
}

void vllm_fit_free(struct vllm_fit *fit)
{
    if (!fit) return;
    tt_estimator_free(fit->estimator);
    free(fit);
}

void vllm_fit_set_reference(struct vllm_fit *fit, const struct vllm_coefficients *reference)
{
    fit->reference = *reference;
    fit->difference = fit->square = fit->labels = 0;
}

static double logit_of(const struct vllm_coefficients *coefficients, int k, float feature)
{
    return coefficients->slope * (double)feature + coefficients->intercept[k];
}

/* -log p of a label under a logit, without overflow. */
static double loss_of(double logit, bool accepted)
{
    double margin = accepted ? logit : -logit;

    return fmax(-margin, 0) + log1p(exp(-fabs(margin)));
}

static void judge(struct vllm_fit *fit, const struct vllm_row *row,
                  const struct vllm_coefficients *in_force)
{
    if (fit->reference.positions != fit->positions || in_force->positions != fit->positions) return;
    for (int k = 0; k < row->admitted && k <= row->accepted; k++) {
        bool accepted = k < row->accepted;
        double difference;

        if (!isfinite(row->feature[k])) continue;
        difference = loss_of(logit_of(in_force, k, row->feature[k]), accepted) -
                     loss_of(logit_of(&fit->reference, k, row->feature[k]), accepted);
        fit->difference += difference;
        fit->square += difference * difference;
        fit->labels++;
    }
}

static void learn(struct vllm_fit *fit, const struct vllm_row *row,
                  const struct vllm_coefficients *in_force)
{
    float predicted[SNAPSHOT_MAX_POSITIONS];
    struct tt_observation observation = {
        .feature = row->feature, .admitted = row->admitted, .accepted = row->accepted};

    if (in_force->positions == fit->positions) {
        for (int k = 0; k < row->admitted; k++)
            predicted[k] = isfinite(row->feature[k])
                               ? (float)(1 / (1 + exp(-logit_of(in_force, k, row->feature[k]))))
                               : 0;
        observation.predicted = predicted;
    }
    (void)tt_estimator_observe(fit->estimator, &observation); /* a bad row teaches nothing */
}

int vllm_fit_observe(struct vllm_fit *fit, const struct vllm_reply *reply,
                     const struct vllm_coefficients *in_force)
{
    int64_t steps = reply->label_steps < STEPS_MAX ? reply->label_steps : STEPS_MAX;
    size_t rows = json_array_size(reply->rows), next = 0;
    int refits = 0;

    fit->difference *= GUARD_FORGET;
    fit->square *= GUARD_FORGET * GUARD_FORGET;
    fit->labels *= GUARD_FORGET;
    for (int64_t step = 0; step < steps; step++) {
        struct vllm_row row;

        for (; next < rows; next++) {
            if (!vllm_reply_row(reply, next, &row) || row.admitted > fit->positions) continue;
            if (row.step > step) break;
            judge(fit, &row, in_force);
            learn(fit, &row, in_force);
        }
        if (tt_estimator_end_step(fit->estimator) & TT_STEP_REFIT) refits++;
    }
    return refits;
}

void vllm_fit_report(const struct vllm_fit *fit, struct tt_estimator_report *out)
{
    (void)tt_estimator_report(fit->estimator, out); /* fails for NULL only */
}

bool vllm_fit_ready(const struct vllm_fit *fit)
{
    struct tt_estimator_report report;

    vllm_fit_report(fit, &report);
    return report.refits >= VLLM_FIT_READY_REFITS && report.labels >= VLLM_FIT_READY_LABELS;
}

void vllm_fit_coefficients(const struct vllm_fit *fit, struct vllm_coefficients *out)
{
    struct tt_estimator_report report;
    bool finite;

    vllm_fit_report(fit, &report);
    *out = (struct vllm_coefficients){.slope = (double)(float)report.slope};
    finite = isfinite(out->slope);
    for (int k = 0; k < fit->positions; k++) {
        out->intercept[k] = (double)(float)report.position[k].intercept;
        finite = finite && isfinite(out->intercept[k]);
    }
    out->positions = finite ? fit->positions : 0;
}

bool vllm_fit_is_worse(const struct vllm_fit *fit, double *nats)
{
    *nats = fit->labels > 0 ? fit->difference / fit->labels : 0;
    return fit->labels >= GUARD_LABELS && *nats > GUARD_NATS &&
           fit->difference > GUARD_ERRORS * sqrt(fit->square);
}
