/* online.c - the estimator `online`. Sources in online.h.
 *
 * Model: P(position k accepted | reached) = sigmoid(w f + b_k), one slope w, K intercepts b_k, and
 * a level l that the intercepts scatter around, so that a position without labels follows the
 * others.
 *
 * Energy: (w - w0)^2/2 + 2 (l - l0)^2/2 + sum_k 2 (b_k - l)^2/2 + forgotten negative log
 * likelihood.
 *
 * Refit: one Newton step a window, in information form:
 *     target    <- keep * target + H_window beta + gradient
 *     curvature <- keep * curvature + H_window
 *     beta      <- (curvature + P)^-1 (target + P beta0)
 * The prior P is added at the solve and never accumulated: it counts once, not once a window.
 *
 * Coordinates: x = f - centre, which makes slope and level nearly independent. When the centre
 * moves, every sum moves with it; the transformation is exact.
 *
 * Two of these forget at 0.999 and 0.99 a step; the one of lower forgotten log loss predicts.
 *
 * Owns nothing but the struct it is given; allocates nothing.
 */
#include "config.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/host_math.h"
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
#define DRIFT_KEEP 0.1       /* of the memory after an alarm */

static const double SPEED_FORGET[ONLINE_SPEEDS] = {0.999, 0.99};

/* ------------------------------------------------------------------------------- arrowhead sums */

static void arrowhead_scale(struct online_arrowhead *sums, double scale, int32_t positions)
{
    sums->slope *= scale;
    for (int32_t k = 0; k < positions; k++) {
        sums->cross[k] *= scale;
        sums->corner[k] *= scale;
    }
}

static void arrowhead_add(struct online_arrowhead *into, const struct online_arrowhead *window,
                          int32_t positions)
{
    into->slope += window->slope;
    for (int32_t k = 0; k < positions; k++) {
        into->cross[k] += window->cross[k];
        into->corner[k] += window->corner[k];
    }
}

static void arrowhead_add_label(struct online_arrowhead *into, int32_t k, double weight, double x)
{
    into->slope += weight * x * x;
    into->cross[k] += weight * x;
    into->corner[k] += weight;
}

/* Rewrite sums over x as sums over x - shift. */
static void arrowhead_shift(struct online_arrowhead *sums, double shift, int32_t positions)
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

static bool arrowhead_finite(const struct online_arrowhead *sums, int32_t positions)
{
    double total = sums->slope;
    for (int32_t k = 0; k < positions; k++) total += sums->cross[k] + sums->corner[k];
    return isfinite(total);
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

static void reduce(const struct online_arrowhead *curvature, int32_t positions, struct reduced *out)
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
static void reduce_rhs(const struct online_arrowhead *curvature, const struct reduced *m,
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
static void solve_at_slope(const struct online_arrowhead *curvature, const struct reduced *m,
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

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* New coefficients from everything remembered. The caps bound what one refit may do to predictions;
 * `target` keeps the uncapped solution, because re-anchoring it at a capped one makes the next
 * refit overshoot. */
static void refit(const struct online *online, struct online_speed *speed)
{
    const int32_t positions = online->positions;
    const struct online_arrowhead *h = &speed->curvature;
    struct triple rhs, solution;
    rhs.slope = speed->target.slope + SLOPE_PRECISION * online->prior_slope;
    /* the prior's level, stated at feature 0, expressed at the centre */
    rhs.level = LEVEL_PRECISION * (online->prior_level + online->prior_slope * online->centre);
    memcpy(rhs.intercept, speed->target.intercept, sizeof(rhs.intercept));

    struct reduced m;
    double slope_rhs, level_rhs;
    reduce(h, positions, &m);
    reduce_rhs(h, &m, &rhs, positions, &slope_rhs, &level_rhs);
    double slope = (slope_rhs - m.cross * level_rhs / m.level) / m.pivot;
    slope = clamp(slope, speed->fit.slope - MAX_SLOPE_CHANGE, speed->fit.slope + MAX_SLOPE_CHANGE);
    if (slope < 0.0) slope = 0.0;
    solve_at_slope(h, &m, &rhs, level_rhs, positions, slope, &solution);

    speed->fit.slope = slope;
    speed->fit.level = solution.level;
    for (int32_t k = 0; k < positions; k++) {
        const double old = speed->fit.intercept[k];
        speed->fit.intercept[k] =
            clamp(solution.intercept[k], old - MAX_INTERCEPT_CHANGE, old + MAX_INTERCEPT_CHANGE);
    }
}

/* --------------------------------------------------------------------------------------- window */

static void window_clear(struct online *online)
{
    for (int s = 0; s < ONLINE_SPEEDS; s++) {
        struct online_speed *speed = &online->speed[s];
        memset(&speed->window_gradient, 0, sizeof(speed->window_gradient));
        memset(&speed->window_curvature, 0, sizeof(speed->window_curvature));
        memset(&speed->window_scatter, 0, sizeof(speed->window_scatter));
        speed->window_loss = 0.0;
    }
    online->window_steps = 0;
    online->window_feature_sum = 0.0;
    online->window_labels = 0;
    online->window_residual = 0.0;
    online->window_variance = 0.0;
}

static bool window_finite(const struct online *online)
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
    return isfinite(total);
}

/* Age what is remembered by the window's steps. Goes on without labels: a position that is no
 * longer drafted must not stay frozen where its last labels left it. */
static void speed_forget(struct online_speed *speed, double keep, int32_t positions)
{
    speed->target.slope *= keep;
    for (int32_t k = 0; k < positions; k++) speed->target.intercept[k] *= keep;
    arrowhead_scale(&speed->curvature, keep, positions);
    /* the scatter holds squared weights */
    arrowhead_scale(&speed->scatter, keep * keep, positions);
}

/* target += H_window beta + gradient; curvature and scatter likewise. */
static void speed_absorb(struct online_speed *speed, int32_t positions)
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
static void speed_shift(struct online_speed *speed, double shift, int32_t positions)
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
static bool drift_test(struct online_drift_sum *sum, double rate, double *z)
{
    if (sum->variance < DRIFT_MIN_VARIANCE) return false;
    const double raw = sum->residual / host_sqrt(sum->variance);
    *z = raw / host_sqrt(sum->scale2);
    const bool alarm = fabs(*z) > DRIFT_Z && fabs(sum->residual) > DRIFT_MIN_LOGIT * sum->weight;
    const double z2 = raw * raw, clip = DRIFT_SCALE_CLIP * sum->scale2;
    sum->scale2 += rate * ((z2 < clip ? z2 : clip) - sum->scale2);
    if (sum->scale2 < 1.0) sum->scale2 = 1.0;
    return alarm;
}

/* Test the finished window alone (a jump) and a forgotten sum of windows (a smaller one, at low
 * load). Pooled over positions: their common level is what moves with the data; a single position
 * is left to forgetting. */
static bool drift_step(struct online *online)
{
    if (online->refits < DRIFT_FIRST_REFIT) return false;
    struct online_drift_sum *window = &online->drift_window, *sum = &online->drift_sum;
    window->residual = online->window_residual;
    window->variance = online->window_variance;
    window->weight = online->window_variance;
    sum->residual = DRIFT_SUM_FORGET * sum->residual + online->window_residual;
    sum->variance = DRIFT_SUM_FORGET * DRIFT_SUM_FORGET * sum->variance + online->window_variance;
    sum->weight = DRIFT_SUM_FORGET * sum->weight + online->window_variance;

    double window_z = NAN, sum_z = NAN;
    const bool window_alarm = drift_test(window, DRIFT_WINDOW_RATE, &window_z);
    const bool sum_alarm = drift_test(sum, DRIFT_SUM_RATE, &sum_z);
    if (!isnan(window_z)) online->drift_z = window_z;
    if (!isnan(sum_z) && (isnan(window_z) || fabs(sum_z) > fabs(window_z))) online->drift_z = sum_z;
    if (!window_alarm && !sum_alarm) return false;
    sum->residual = sum->variance = sum->weight = 0.0;
    online->drift_events++;
    return true;
}

/* --------------------------------------------------------------------------------------- public */

static void fit_reset(struct online *online)
{
    for (int s = 0; s < ONLINE_SPEEDS; s++) {
        struct online_fit *fit = &online->speed[s].fit;
        fit->slope = online->prior_slope;
        fit->level = online->prior_level;
        for (int32_t k = 0; k < online->positions; k++) fit->intercept[k] = online->prior_level;
    }
}

void online_init(struct online *online, int32_t positions, int32_t refit_interval_steps,
                 double prior_slope, double prior_level)
{
    assert(positions >= 1 && positions <= TT_MAX_POSITIONS && refit_interval_steps >= 1);
    memset(online, 0, sizeof(*online));
    online->positions = positions;
    online->refit_interval_steps = refit_interval_steps;
    online->prior_slope = prior_slope;
    online->prior_level = prior_level;
    for (int s = 0; s < ONLINE_SPEEDS; s++) online->speed[s].forget = SPEED_FORGET[s];
    online->drift_window.scale2 = online->drift_sum.scale2 = 1.0;
    online->drift_z = NAN;
    fit_reset(online);
}

void online_set_prior(struct online *online, double slope, double level)
{
    online->prior_slope = slope;
    online->prior_level = level;
    /* Window sums are graded at the coefficients in force, which therefore may not move inside a
     * window. */
    if (online->feature_count == 0 && online->window_labels == 0) fit_reset(online);
}

static double speed_logit(const struct online *online, const struct online_speed *speed,
                          int32_t position, double feature)
{
    return speed->fit.slope * (feature - online->centre) + speed->fit.intercept[position];
}

double online_predict(const struct online *online, int32_t position, double feature)
{
    const double f = clamp(feature, -ONLINE_FEATURE_CLAMP, ONLINE_FEATURE_CLAMP);
    return host_sigmoid(speed_logit(online, &online->speed[online->active], position, f));
}

void online_add_label(struct online *online, int32_t position, double feature, double soft,
                      double hard)
{
    const double f = clamp(feature, -ONLINE_FEATURE_CLAMP, ONLINE_FEATURE_CLAMP);
    const double x = f - online->centre;
    for (int s = 0; s < ONLINE_SPEEDS; s++) {
        struct online_speed *speed = &online->speed[s];
        const double u = speed_logit(online, speed, position, f);
        const double p = host_sigmoid(u), residual = soft - p;
        speed->window_gradient.slope += residual * x;
        speed->window_gradient.intercept[position] += residual;
        arrowhead_add_label(&speed->window_curvature, position, p * (1.0 - p), x);
        arrowhead_add_label(&speed->window_scatter, position, residual * residual, x);
        /* -soft log p - (1 - soft) log(1 - p) */
        speed->window_loss += host_softplus(u) - soft * u;
        if (s == online->active) {
            online->window_residual += hard - p;
            online->window_variance += p * (1.0 - p);
        }
    }
    online->window_feature_sum += f;
    online->window_labels++;
}

/* Age what is remembered, then fold the window in, unless it is empty or must be rejected. */
static int window_fold(struct online *online)
{
    const bool usable = window_finite(online);
    const bool alarm = usable && drift_step(online);
    const int32_t positions = online->positions;
    for (int s = 0; s < ONLINE_SPEEDS; s++) {
        struct online_speed *speed = &online->speed[s];
        double keep = 1.0;
        for (int32_t t = 0; t < online->window_steps; t++) keep *= speed->forget;
        /* On an alarm the past shrinks before the window that revealed the change is added at full
         * weight. */
        speed_forget(speed, alarm ? keep * DRIFT_KEEP : keep, positions);
        if (!usable) continue;
        speed_absorb(speed, positions);
        speed->loss = LOSS_FORGET * speed->loss + speed->window_loss;
    }
    if (!usable) return TT_STEP_REJECTED;
    online->feature_sum += online->window_feature_sum;
    online->feature_count += online->window_labels;
    if (online->feature_count > 0) {
        const double centre = online->feature_sum / (double)online->feature_count;
        for (int s = 0; s < ONLINE_SPEEDS; s++)
            speed_shift(&online->speed[s], centre - online->centre, positions);
        online->centre = centre;
    }
    return alarm ? TT_STEP_DRIFT : 0;
}

int online_end_step(struct online *online)
{
    if (++online->window_steps < online->refit_interval_steps) return 0;
    const int done = window_fold(online);
    for (int s = 0; s < ONLINE_SPEEDS; s++) refit(online, &online->speed[s]);
    online->active = online->speed[1].loss < online->speed[0].loss ? 1 : 0;
    online->rejected += (done & TT_STEP_REJECTED) != 0;
    online->refits++;
    window_clear(online);
    return done | TT_STEP_REFIT;
}

/* Variance of slope * slope_weight + level * level_weight + intercept[k] * intercept_weight under
 * the sandwich (H + P)^-1 (J + P) (H + P)^-1; k < 0 for no intercept. */
static double sandwich(const struct online_speed *speed, const struct reduced *m, int32_t positions,
                       double slope_weight, double level_weight, int32_t k)
{
    struct triple rhs, u;
    double slope_rhs, level_rhs;
    memset(&rhs, 0, sizeof(rhs));
    rhs.slope = slope_weight;
    rhs.level = level_weight;
    if (k >= 0) rhs.intercept[k] = 1.0;
    reduce_rhs(&speed->curvature, m, &rhs, positions, &slope_rhs, &level_rhs);
    const double slope = (slope_rhs - m->cross * level_rhs / m->level) / m->pivot;
    solve_at_slope(&speed->curvature, m, &rhs, level_rhs, positions, slope, &u);

    const struct online_arrowhead *j = &speed->scatter;
    double sum =
        (j->slope + SLOPE_PRECISION) * u.slope * u.slope + LEVEL_PRECISION * u.level * u.level;
    for (int32_t i = 0; i < positions; i++) {
        const double b = u.intercept[i], apart = b - u.level;
        sum += 2.0 * j->cross[i] * u.slope * b + j->corner[i] * b * b +
               INTERCEPT_PRECISION * apart * apart;
    }
    return sum > 0.0 ? sum : 0.0; /* a quadratic form; below zero is rounding */
}

void online_summarize(const struct online *online, struct online_summary *out)
{
    const struct online_speed *speed = &online->speed[online->active];
    const double centre = online->centre;
    struct reduced m;
    reduce(&speed->curvature, online->positions, &m);
    memset(out, 0, sizeof(*out));
    out->centre = centre;
    out->slope = speed->fit.slope;
    out->level = speed->fit.level - centre * speed->fit.slope;
    out->slope_se = host_sqrt(sandwich(speed, &m, online->positions, 1.0, 0.0, -1));
    out->level_se = host_sqrt(sandwich(speed, &m, online->positions, -centre, 1.0, -1));
    for (int32_t k = 0; k < online->positions; k++) {
        out->intercept[k] = speed->fit.intercept[k] - centre * speed->fit.slope;
        out->intercept_se[k] = host_sqrt(sandwich(speed, &m, online->positions, -centre, 0.0, k));
    }
}
