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
 * Standard errors: the sandwich (H + P)^-1 (J + P) (H + P)^-1 says how far coin tosses move a law
 * that stands still. A law that moves is further away than that: `misfit` compares whole windows'
 * residuals with what coin tosses would leave, along the slope, the level and each position, and
 * what is more than chance is added to the variance.
 *
 * The arithmetic is in online_body.h, which a GPU runs as well. Owns nothing but the struct it is
 * given; allocates nothing.
 */
#include "config.h"

#include <assert.h>
#include <string.h>

#include "kernels/online_body.h"

static const double SPEED_FORGET[ONLINE_SPEEDS] = {0.999, 0.99};

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
    online->drift_z = double_nan();
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

void online_add_label(struct online *online, int32_t position, double feature, double soft,
                      double hard)
{
    struct online_grade grade;
    online_grade_label(online, position, feature, soft, hard, &grade);
    for (int s = 0; s < ONLINE_SPEEDS; s++) {
        online_add_position(&online->speed[s], s, position, &grade);
        online_add_slope(&online->speed[s], s, &grade);
    }
    online_add_window(online, online->active, &grade);
}

int online_end_step(struct online *online)
{
    struct online_fold fold;
    if (!online_window_due(online)) return 0;
    online_fold_open(online, &fold);
    for (int s = 0; s < ONLINE_SPEEDS; s++) online_fold_speed(online, &online->speed[s], &fold);
    return online_fold_close(online, &fold);
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
    arrowhead_reduce(&speed->curvature, online->positions, &m);
    memset(out, 0, sizeof(*out));
    out->centre = centre;
    out->slope = speed->fit.slope;
    out->level = speed->fit.level - centre * speed->fit.slope;
    const double slope_misfit = misfit_square(&online->misfit_slope);
    const double level_misfit = misfit_square(&online->misfit_level);
    const double shifted = centre * centre * slope_misfit; /* at feature 0 */
    out->slope_se =
        sqrt_double(sandwich(speed, &m, online->positions, 1.0, 0.0, -1) + slope_misfit);
    out->level_se = sqrt_double(sandwich(speed, &m, online->positions, -centre, 1.0, -1) +
                                level_misfit + shifted);
    for (int32_t k = 0; k < online->positions; k++) {
        const double own = misfit_square(&online->misfit_position[k]);
        out->intercept[k] = speed->fit.intercept[k] - centre * speed->fit.slope;
        out->intercept_se[k] = sqrt_double(sandwich(speed, &m, online->positions, -centre, 0.0, k) +
                                           (own > level_misfit ? own : level_misfit) + shifted);
    }
}
