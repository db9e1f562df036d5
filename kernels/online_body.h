/* online_body.h - the arithmetic of the estimator `online`, one text for C and CUDA. The method is
 * told in online.c, the state in online.h.
 *
 * Every sum has one owner and one order of its terms (request by request, position by position), so
 * that a device that gives each sum a thread of its own finds the bits of the CPU, which adds label
 * by label. No libm, no fused multiply-add, no allocation.
 */
#ifndef KERNELS_ONLINE_BODY_H
#define KERNELS_ONLINE_BODY_H

#include <stdbool.h>
#include <string.h>

#include "kernels/estimator_maths.h"
#include "kernels/online.h"

/* Precisions of the prior: slope, level, intercepts around the level. The published fits of one
 * slope across models spread by 0.15 around 0.55 and positions lie within 0.24 of each other; these
 * are deliberately weaker. */
#define SLOPE_PRECISION 1.0
#define LEVEL_PRECISION 2.0
#define INTERCEPT_PRECISION 2.0

#define MAX_SLOPE_CHANGE 1.0
#define MAX_INTERCEPT_CHANGE 2.0

#define LOSS_FORGET 0.9 /* a refit */

#define DRIFT_FIRST_REFIT 10 /* no test before: the fit itself still moves */
#define DRIFT_MIN_VARIANCE 5.0
#define DRIFT_Z 4.5
#define DRIFT_MIN_LOGIT 0.25
#define DRIFT_SUM_FORGET 0.8 /* a refit */
#define DRIFT_WINDOW_RATE 0.02
#define DRIFT_SUM_RATE 0.01
#define DRIFT_SCALE_CLIP 9.0 /* one outlier moves the scale by at most 3 standard deviations */
#define MISFIT_FORGET 0.98   /* a refit: 1000 steps, the memory of the slow speed */
#define MISFIT_Z 2.5

#define DRIFT_KEEP 0.1 /* of the memory after an alarm */

/* ---------------------------------------------------------------------------------------- labels
 */

LANE_FN double online_clamp_feature(double feature)
{
    return double_clamp(feature, -ONLINE_FEATURE_CLAMP, ONLINE_FEATURE_CLAMP);
}

LANE_FN double speed_logit(const struct online *online, const struct online_speed *speed,
                           int32_t position, double feature)
{
    return speed->fit.slope * (feature - online->centre) + speed->fit.intercept[position];
}

LANE_FN double online_probability(const struct online *online, int32_t position, double feature)
{
    const struct online_speed *speed = &online->speed[online->active];
    return sigmoid_double(speed_logit(online, speed, position, online_clamp_feature(feature)));
}

/* One label, graded at the coefficients in force. */
struct online_grade {
    double feature; /* clamped */
    double x;       /* feature - centre */
    double soft, hard;
    double p[ONLINE_SPEEDS], loss[ONLINE_SPEEDS];
};

LANE_FN void online_grade_label(const struct online *online, int32_t position, double feature,
                                double soft, double hard, struct online_grade *out)
{
    out->feature = online_clamp_feature(feature);
    out->x = out->feature - online->centre;
    out->soft = soft;
    out->hard = hard;
    for (int s = 0; s < ONLINE_SPEEDS; s++) {
        const double u = speed_logit(online, &online->speed[s], position, out->feature);
        out->p[s] = sigmoid_double(u);
        /* -soft log p - (1 - soft) log(1 - p) */
        out->loss[s] = softplus_double(u) - soft * u;
    }
}

/* A label's part in the sums of its position at one speed. */
LANE_FN void online_add_position(struct online_speed *__restrict speed, int s, int32_t position,
                                 const struct online_grade *__restrict grade)
{
    const double residual = grade->soft - grade->p[s], x = grade->x;
    const double weight = grade->p[s] * (1.0 - grade->p[s]), squared = residual * residual;
    speed->window_gradient.intercept[position] += residual;
    speed->window_curvature.cross[position] += weight * x;
    speed->window_curvature.corner[position] += weight;
    speed->window_scatter.cross[position] += squared * x;
    speed->window_scatter.corner[position] += squared;
}

/* A label's part in the sums that all positions share at one speed. */
LANE_FN void online_add_slope(struct online_speed *__restrict speed, int s,
                              const struct online_grade *__restrict grade)
{
    const double residual = grade->soft - grade->p[s], x = grade->x;
    speed->window_gradient.slope += residual * x;
    speed->window_curvature.slope += grade->p[s] * (1.0 - grade->p[s]) * x * x;
    speed->window_scatter.slope += residual * residual * x * x;
    speed->window_loss += grade->loss[s];
}

/* A label's part in the sums of the window itself: the drift test's and the centre's. */
LANE_FN void online_add_window(struct online *__restrict online, int active,
                               const struct online_grade *__restrict grade)
{
    const double p = grade->p[active];
    online->window_residual += grade->hard - p;
    online->window_variance += p * (1.0 - p);
    online->window_feature_sum += grade->feature;
    online->window_labels++;
}

/* ------------------------------------------------------------------------------- arrowhead sums */

LANE_FN void arrowhead_scale(struct online_arrowhead *sums, double scale, int32_t positions)
{
    sums->slope *= scale;
    for (int32_t k = 0; k < positions; k++) {
        sums->cross[k] *= scale;
        sums->corner[k] *= scale;
    }
}

LANE_FN void arrowhead_add(struct online_arrowhead *into, const struct online_arrowhead *window,
                           int32_t positions)
{
    into->slope += window->slope;
    for (int32_t k = 0; k < positions; k++) {
        into->cross[k] += window->cross[k];
        into->corner[k] += window->corner[k];
    }
}

/* Rewrite sums over x as sums over x - shift. */
LANE_FN void arrowhead_shift(struct online_arrowhead *sums, double shift, int32_t positions)
{
    double crosses = 0.0, corners = 0.0;
    for (int32_t k = 0; k < positions; k++) {
        crosses += sums->cross[k];
        corners += sums->corner[k];
        sums->cross[k] -= shift * sums->corner[k];
    }
    sums->slope += shift * shift * corners - 2.0 * shift * crosses;
    /* A sum of squares; rounding may take it below zero when the feature is nearly constant. */
    if (sums->slope < 0.0) sums->slope = 0.0;
}

LANE_FN bool arrowhead_finite(const struct online_arrowhead *sums, int32_t positions)
{
    double total = sums->slope;
    for (int32_t k = 0; k < positions; k++) total += sums->cross[k] + sums->corner[k];
    return double_is_finite(total);
}

/* ------------------------------------------------------------------------------------ the solve */

/* The matrix curvature + P after the intercepts have been eliminated: 2 x 2 over (slope, level). */
struct reduced {
    double slope, cross, level;      /* entries */
    double pivot;                    /* of the slope after the level is eliminated too */
    double corner[TT_MAX_POSITIONS]; /* curvature of the intercepts, prior included */
};

/* Right-hand side (or solution) over (slope, level, intercepts). */
struct triple {
    double slope, level;
    double intercept[TT_MAX_POSITIONS];
};

LANE_FN void arrowhead_reduce(const struct online_arrowhead *curvature, int32_t positions,
                              struct reduced *out)
{
    double from_slope = 0.0, cross = 0.0, level = LEVEL_PRECISION;
    for (int32_t k = 0; k < positions; k++) {
        const double corner = curvature->corner[k] + INTERCEPT_PRECISION;
        const double share = curvature->cross[k] / corner;
        out->corner[k] = corner;
        from_slope += share * curvature->cross[k];
        cross += INTERCEPT_PRECISION * share;
        /* 2 - 4 / (H_kk + 2), written without the cancellation */
        level += INTERCEPT_PRECISION * curvature->corner[k] / corner;
    }
    out->slope = curvature->slope + SLOPE_PRECISION - from_slope;
    out->cross = cross;
    out->level = level;
    out->pivot = out->slope - cross * cross / level;
    /* Labels only add information about the slope: less than the prior's is rounding. */
    if (!(out->pivot >= SLOPE_PRECISION)) out->pivot = SLOPE_PRECISION;
}

/* Right-hand sides of slope and level after the intercepts have been eliminated. */
LANE_FN void reduce_rhs(const struct online_arrowhead *curvature, const struct reduced *m,
                        const struct triple *rhs, int32_t positions, double *slope, double *level)
{
    *slope = rhs->slope;
    *level = rhs->level;
    for (int32_t k = 0; k < positions; k++) {
        const double mean = rhs->intercept[k] / m->corner[k];
        *slope -= curvature->cross[k] * mean;
        *level += INTERCEPT_PRECISION * mean;
    }
}

/* Level and intercepts that solve the system once the slope is given. */
LANE_FN void solve_at_slope(const struct online_arrowhead *curvature, const struct reduced *m,
                            const struct triple *rhs, double level_rhs, int32_t positions,
                            double slope, struct triple *out)
{
    out->slope = slope;
    out->level = (level_rhs - m->cross * slope) / m->level;
    for (int32_t k = 0; k < positions; k++) {
        out->intercept[k] =
            (rhs->intercept[k] + INTERCEPT_PRECISION * out->level - curvature->cross[k] * slope) /
            m->corner[k];
    }
}

/* New coefficients from everything remembered. The caps bound what one refit may do to predictions;
 * `target` keeps the uncapped solution, because re-anchoring it at a capped one makes the next
 * refit overshoot. */
LANE_FN void speed_solve(const struct online *online, struct online_speed *speed)
{
    const int32_t positions = online->positions;
    const struct online_arrowhead *h = &speed->curvature;
    struct triple rhs, solution;
    rhs.slope = speed->target.slope + SLOPE_PRECISION * online->prior_slope;
    /* the prior's level, stated at feature 0, expressed at the centre */
    rhs.level = LEVEL_PRECISION * (online->prior_level + online->prior_slope * online->centre);
    memcpy(rhs.intercept, speed->target.intercept, sizeof rhs.intercept);

    struct reduced m;
    double slope_rhs, level_rhs;
    arrowhead_reduce(h, positions, &m);
    reduce_rhs(h, &m, &rhs, positions, &slope_rhs, &level_rhs);
    double slope = (slope_rhs - m.cross * level_rhs / m.level) / m.pivot;
    slope = double_clamp(slope, speed->fit.slope - MAX_SLOPE_CHANGE,
                         speed->fit.slope + MAX_SLOPE_CHANGE);
    if (slope < 0.0) slope = 0.0;
    solve_at_slope(h, &m, &rhs, level_rhs, positions, slope, &solution);

    speed->fit.slope = slope;
    speed->fit.level = solution.level;
    for (int32_t k = 0; k < positions; k++) {
        const double old = speed->fit.intercept[k];
        speed->fit.intercept[k] = double_clamp(solution.intercept[k], old - MAX_INTERCEPT_CHANGE,
                                               old + MAX_INTERCEPT_CHANGE);
    }
}

/* ---------------------------------------------------------------------------------------- window
 */

LANE_FN bool window_finite(const struct online *online)
{
    double total = online->window_feature_sum + online->window_residual + online->window_variance;
    for (int s = 0; s < ONLINE_SPEEDS; s++) {
        const struct online_speed *speed = &online->speed[s];
        total += speed->window_gradient.slope + speed->window_loss;
        for (int32_t k = 0; k < online->positions; k++)
            total += speed->window_gradient.intercept[k];
        if (!arrowhead_finite(&speed->window_curvature, online->positions) ||
            !arrowhead_finite(&speed->window_scatter, online->positions))
            return false;
    }
    return double_is_finite(total);
}

/* Age what is remembered by the window's steps. Goes on without labels: a position that is no
 * longer drafted must not stay frozen where its last labels left it. */
LANE_FN void speed_forget(struct online_speed *speed, double keep, int32_t positions)
{
    speed->target.slope *= keep;
    for (int32_t k = 0; k < positions; k++) speed->target.intercept[k] *= keep;
    arrowhead_scale(&speed->curvature, keep, positions);
    /* the scatter holds squared weights */
    arrowhead_scale(&speed->scatter, keep * keep, positions);
}

/* target += H_window beta + gradient; curvature and scatter likewise. */
LANE_FN void speed_absorb(struct online_speed *speed, int32_t positions)
{
    const struct online_arrowhead *h = &speed->window_curvature;
    double slope = h->slope * speed->fit.slope + speed->window_gradient.slope;
    for (int32_t k = 0; k < positions; k++) {
        slope += h->cross[k] * speed->fit.intercept[k];
        speed->target.intercept[k] += h->cross[k] * speed->fit.slope +
                                      h->corner[k] * speed->fit.intercept[k] +
                                      speed->window_gradient.intercept[k];
    }
    speed->target.slope += slope;
    arrowhead_add(&speed->curvature, h, positions);
    arrowhead_add(&speed->scatter, &speed->window_scatter, positions);
}

/* Express everything remembered around a centre that moved by `shift`. */
LANE_FN void speed_shift(struct online_speed *speed, double shift, int32_t positions)
{
    double targets = 0.0;
    for (int32_t k = 0; k < positions; k++) {
        targets += speed->target.intercept[k];
        speed->fit.intercept[k] += speed->fit.slope * shift;
    }
    speed->target.slope -= shift * targets;
    arrowhead_shift(&speed->curvature, shift, positions);
    arrowhead_shift(&speed->scatter, shift, positions);
}

/* ---------------------------------------------------------------------------------------- drift */

/* One statistic against its own recent spread: true for an alarm; *z in standard units. */
LANE_FN bool drift_test(struct online_drift_sum *sum, double rate, double *z)
{
    if (sum->variance < DRIFT_MIN_VARIANCE) return false;
    const double raw = sum->residual / sqrt_double(sum->variance);
    *z = raw / sqrt_double(sum->scale2);
    const bool alarm = double_magnitude(*z) > DRIFT_Z &&
                       double_magnitude(sum->residual) > DRIFT_MIN_LOGIT * sum->weight;
    const double z2 = raw * raw, clip = DRIFT_SCALE_CLIP * sum->scale2;
    sum->scale2 += rate * ((z2 < clip ? z2 : clip) - sum->scale2);
    if (sum->scale2 < 1.0) sum->scale2 = 1.0;
    return alarm;
}

/* Test the finished window alone (a jump) and a forgotten sum of windows (a smaller one, at low
 * load). Pooled over positions: their common level is what moves with the data; a single position
 * is left to forgetting. */
LANE_FN bool drift_step(struct online *online)
{
    if (online->refits < DRIFT_FIRST_REFIT) return false;
    struct online_drift_sum *window = &online->drift_window, *sum = &online->drift_sum;
    window->residual = online->window_residual;
    window->variance = online->window_variance;
    window->weight = online->window_variance;
    sum->residual = DRIFT_SUM_FORGET * sum->residual + online->window_residual;
    sum->variance = DRIFT_SUM_FORGET * DRIFT_SUM_FORGET * sum->variance + online->window_variance;
    sum->weight = DRIFT_SUM_FORGET * sum->weight + online->window_variance;

    double window_z = double_nan(), sum_z = double_nan();
    const bool window_alarm = drift_test(window, DRIFT_WINDOW_RATE, &window_z);
    const bool sum_alarm = drift_test(sum, DRIFT_SUM_RATE, &sum_z);
    if (!double_is_nan(window_z)) online->drift_z = window_z;
    if (!double_is_nan(sum_z) &&
        (double_is_nan(window_z) || double_magnitude(sum_z) > double_magnitude(window_z)))
        online->drift_z = sum_z;
    if (!window_alarm && !sum_alarm) return false;
    sum->residual = sum->variance = sum->weight = 0.0;
    online->drift_events++;
    return true;
}

/* -------------------------------------------------------------------------------------- misfit */

LANE_FN void misfit_add(struct online_misfit *misfit, double residual, double spread,
                        double curvature)
{
    misfit->excess = MISFIT_FORGET * misfit->excess + (residual * residual - spread);
    misfit->weight = MISFIT_FORGET * misfit->weight + curvature * curvature;
    misfit->noise = MISFIT_FORGET * MISFIT_FORGET * misfit->noise + 2.0 * spread * spread;
}

/* Mean squared error of the predictions along one coordinate, in logit^2, shrunk towards 0 as far
 * as it may be chance. */
LANE_FN double misfit_square(const struct online_misfit *misfit)
{
    const double excess = misfit->excess, squared = excess * excess;
    if (!(excess > 0.0)) return 0.0;
    return excess / misfit->weight * (squared / (squared + MISFIT_Z * MISFIT_Z * misfit->noise));
}

LANE_FN void misfit_step(struct online *online)
{
    const struct online_speed *speed = &online->speed[online->active];
    const struct online_vector *gradient = &speed->window_gradient;
    const struct online_arrowhead *spread = &speed->window_scatter, *h = &speed->window_curvature;
    double level_residual = 0.0, level_spread = 0.0, level_curvature = 0.0;
    if (online->refits < DRIFT_FIRST_REFIT) return;
    misfit_add(&online->misfit_slope, gradient->slope, spread->slope, h->slope);
    for (int32_t k = 0; k < online->positions; k++) {
        misfit_add(&online->misfit_position[k], gradient->intercept[k], spread->corner[k],
                   h->corner[k]);
        level_residual += gradient->intercept[k];
        level_spread += spread->corner[k];
        level_curvature += h->corner[k];
    }
    misfit_add(&online->misfit_level, level_residual, level_spread, level_curvature);
}

/* ----------------------------------------------------------------------------------------- refit
 */

/* What a due refit does, decided once for both speeds. */
struct online_fold {
    bool usable; /* the window's sums are finite */
    bool alarm;
    double shift; /* of the centre */
};

/* Count a step; true when its window is full. */
LANE_FN bool online_window_due(struct online *online)
{
    return ++online->window_steps >= online->refit_interval_steps;
}

/* Judge the full window and move the centre. */
LANE_FN void online_fold_open(struct online *online, struct online_fold *fold)
{
    fold->usable = window_finite(online);
    fold->alarm = fold->usable && drift_step(online);
    fold->shift = 0.0;
    if (!fold->usable) return;
    misfit_step(online);
    online->feature_sum += online->window_feature_sum;
    online->feature_count += online->window_labels;
    if (online->feature_count == 0) return;
    const double centre = online->feature_sum / (double)online->feature_count;
    fold->shift = centre - online->centre;
    online->centre = centre;
}

/* One speed's share of a refit: age what is remembered, fold the window in unless it must be
 * rejected, solve, begin a new window. */
LANE_FN void online_fold_speed(const struct online *online, struct online_speed *speed,
                               const struct online_fold *fold)
{
    const int32_t positions = online->positions;
    double keep = 1.0;
    for (int32_t t = 0; t < online->window_steps; t++) keep *= speed->forget;
    /* On an alarm the past shrinks before the window that revealed the change is added at full
     * weight. */
    speed_forget(speed, fold->alarm ? keep * DRIFT_KEEP : keep, positions);
    if (fold->usable) {
        speed_absorb(speed, positions);
        speed->loss = LOSS_FORGET * speed->loss + speed->window_loss;
        speed_shift(speed, fold->shift, positions);
    }
    speed_solve(online, speed);
    memset(&speed->window_gradient, 0, sizeof speed->window_gradient);
    memset(&speed->window_curvature, 0, sizeof speed->window_curvature);
    memset(&speed->window_scatter, 0, sizeof speed->window_scatter);
    speed->window_loss = 0.0;
}

/* Once both speeds are solved. Returns TT_STEP_* bits. */
LANE_FN int online_fold_close(struct online *online, const struct online_fold *fold)
{
    online->active = online->speed[1].loss < online->speed[0].loss ? 1 : 0;
    online->rejected += !fold->usable;
    online->refits++;
    online->window_steps = 0;
    online->window_feature_sum = 0.0;
    online->window_labels = 0;
    online->window_residual = 0.0;
    online->window_variance = 0.0;
    return TT_STEP_REFIT | (fold->alarm ? TT_STEP_DRIFT : 0) |
           (fold->usable ? 0 : TT_STEP_REJECTED);
}

#endif
