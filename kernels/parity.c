/* parity.c - the estimator `parity`: one damped Newton step on each window of 100 steps, as
 * released. Source: vLLM pull request 52228.
 *
 * Statistics are float32 because the released ones are, and the released faults follow from it:
 *
 * - A NaN or infinite feature anywhere, observed or not, makes the window's slope sums NaN: the
 *   slope step is refused.
 * - With a nearly constant feature the slope's denominator is a difference of two large sums.
 * - No prior and no memory: a window with few labels is all there is; starved positions stay.
 * - A slope that would turn negative is refused, not clipped: a truly negative relation sticks.
 * - A position that only ever rejects walks away without bound.
 *
 * The sums of one step run over its requests pairwise, in batch order, which reproduces the
 * released statistics to float32 rounding (a straight running sum is ten times further away). The
 * solve itself is double.
 *
 * Owns nothing but the struct it is given; allocates nothing.
 */
#include "config.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/host_math.h"
#include "kernels/parity.h"

#define RIDGE 1e-3   /* on the slope's diagonal and on each intercept's */
#define DAMPING 50.0 /* labels; a step is scaled by n / (n + 50) */

void parity_init(struct parity *parity, int32_t positions, int32_t refit_interval_steps)
{
    assert(positions >= 1 && positions <= TT_MAX_POSITIONS && refit_interval_steps >= 1);
    memset(parity, 0, sizeof(*parity));
    parity->positions = positions;
    parity->refit_interval_steps = refit_interval_steps;
    parity->slope = PARITY_START_SLOPE;
    for (int32_t k = 0; k < positions; k++) parity->intercept[k] = PARITY_START_INTERCEPT;
}

float parity_predict(const struct parity *parity, int32_t position, float feature)
{
    const float u = parity->slope * feature + parity->intercept[position];
    return 1.0F / (1.0F + (float)host_exp(-(double)u));
}

static void sums_add(struct parity_sums *into, const struct parity_sums *other, int32_t positions)
{
    for (int32_t k = 0; k < positions; k++) {
        for (int i = 0; i < 3; i++) into->info[k][i] += other->info[k][i];
        for (int i = 0; i < 2; i++) into->gradient[k][i] += other->gradient[k][i];
    }
}

/* Put one request's terms into the step's pairwise sum: a binary counter whose digits are partial
 * sums. */
static void tree_push(struct parity *parity, struct parity_sums *terms)
{
    int level = 0;
    for (; (parity->rows >> level) & 1U; level++) {
        sums_add(&parity->tree[level], terms, parity->positions);
        *terms = parity->tree[level];
    }
    assert(level < PARITY_TREE_LEVELS);
    parity->tree[level] = *terms;
    parity->rows++;
}

/* Close the step's sum, smallest partial sums first, and add it to the window. */
static void tree_fold(struct parity *parity)
{
    const struct parity_sums *carry = NULL;
    for (int level = 0; level < PARITY_TREE_LEVELS; level++) {
        if (!((parity->rows >> level) & 1U)) continue;
        if (carry != NULL) sums_add(&parity->tree[level], carry, parity->positions);
        carry = &parity->tree[level];
    }
    if (carry != NULL) sums_add(&parity->window, carry, parity->positions);
    parity->rows = 0;
}

void parity_observe(struct parity *parity, const struct tt_observation *observation)
{
    struct parity_sums terms;
    memset(&terms, 0, sizeof(terms));
    for (int32_t k = 0; k < observation->admitted; k++) {
        const float f = observation->feature[k];
        const float p = observation->predicted != NULL ? observation->predicted[k]
                                                       : parity_predict(parity, k, f);
        const bool observed = k <= observation->accepted;
        const float hard = k < observation->accepted ? 1.0F : 0.0F;
        /* Unobserved positions get weight zero and are multiplied all the same: 0 * NaN is the
         * released fault. */
        const float weight = observed ? p * (1.0F - p) : 0.0F;
        const float residual = observed ? hard - p : 0.0F;
        const float weighted = weight * f;
        terms.info[k][0] = weighted * f;
        terms.info[k][1] = weighted;
        terms.info[k][2] = weight;
        terms.gradient[k][0] = residual * f;
        terms.gradient[k][1] = residual;
        parity->count[k] += observed;
    }
    tree_push(parity, &terms);
}

static double damped(uint64_t labels)
{
    return (double)labels / ((double)labels + DAMPING);
}

/* One damped Newton step on the window. Returns false when the slope step was refused. */
static bool refit(struct parity *parity)
{
    const struct parity_sums *sums = &parity->window;
    double gradient = 0.0, curvature = RIDGE;
    double gradient_out = 0.0, curvature_out = 0.0; /* what eliminating the intercepts takes away */
    uint64_t labels = 0;
    for (int32_t k = 0; k < parity->positions; k++) {
        const double cross = (double)sums->info[k][1], corner = (double)sums->info[k][2] + RIDGE;
        gradient += (double)sums->gradient[k][0];
        curvature += (double)sums->info[k][0];
        gradient_out += cross * (double)sums->gradient[k][1] / corner;
        curvature_out += cross * cross / corner;
        labels += parity->count[k];
    }
    double step = (gradient - gradient_out) / (curvature - curvature_out) * damped(labels);
    const bool taken = (double)parity->slope + step >= 0.0; /* false for NaN too */
    if (!taken) step = 0.0;
    parity->slope = (float)((double)parity->slope + step);
    for (int32_t k = 0; k < parity->positions; k++) {
        const double cross = (double)sums->info[k][1], corner = (double)sums->info[k][2] + RIDGE;
        const double change =
            ((double)sums->gradient[k][1] - cross * step) / corner * damped(parity->count[k]);
        if (!isnan(change)) parity->intercept[k] = (float)((double)parity->intercept[k] + change);
    }
    return taken;
}

int parity_end_step(struct parity *parity)
{
    tree_fold(parity);
    if (++parity->window_steps < parity->refit_interval_steps) return 0;
    const bool taken = refit(parity);
    memset(&parity->window, 0, sizeof(parity->window));
    memset(parity->count, 0, sizeof(parity->count));
    parity->window_steps = 0;
    parity->refits++;
    parity->refused += !taken;
    return TT_STEP_REFIT | (taken ? 0 : TT_STEP_REJECTED);
}
