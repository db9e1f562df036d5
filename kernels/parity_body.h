/* parity_body.h - the arithmetic of the estimator `parity`, one text for C and CUDA. The method and
 * its faults are told in parity.c, the state in parity.h.
 *
 * No position reads another's sums before the refit, so a device gives each position a thread.
 */
#ifndef KERNELS_PARITY_BODY_H
#define KERNELS_PARITY_BODY_H

#include <stdbool.h>
#include <string.h>

#include "kernels/estimator_maths.h"
#include "kernels/parity.h"

#define PARITY_RIDGE 1e-3   /* on the slope's diagonal and on each intercept's */
#define PARITY_DAMPING 50.0 /* labels; a step is scaled by n / (n + 50) */

/* float32 probability, NaN for a NaN feature. */
LANE_FN float parity_probability(const struct parity *parity, int32_t position, float feature)
{
    const float u = parity->slope * feature + parity->intercept[position];
    return 1.0F / (1.0F + (float)exp_any_double(-(double)u));
}

LANE_FN void position_sums_add(struct parity_position_sums *into,
                               const struct parity_position_sums *other)
{
    for (int i = 0; i < 3; i++) into->info[i] += other->info[i];
    for (int i = 0; i < 2; i++) into->gradient[i] += other->gradient[i];
}

/* One request's terms at one position. */
LANE_FN void parity_terms(const struct parity *parity, const struct tt_observation *observation,
                          int32_t position, struct parity_position_sums *out)
{
    memset(out, 0, sizeof *out);
    if (position >= observation->admitted) return;
    const float f = observation->feature[position];
    const float p = observation->predicted != NULL ? observation->predicted[position]
                                                   : parity_probability(parity, position, f);
    const bool observed = position <= observation->accepted;
    const float hard = position < observation->accepted ? 1.0F : 0.0F;
    /* Unobserved positions get weight zero and are multiplied all the same: 0 * NaN is the
     * released fault. */
    const float weight = observed ? p * (1.0F - p) : 0.0F;
    const float residual = observed ? hard - p : 0.0F;
    const float weighted = weight * f;
    out->info[0] = weighted * f;
    out->info[1] = weighted;
    out->info[2] = weight;
    out->gradient[0] = residual * f;
    out->gradient[1] = residual;
}

/* Put request number `row` of the step into the step's pairwise sum at one position: a binary
 * counter whose digits are partial sums. */
LANE_FN void parity_push(struct parity *parity, const struct tt_observation *observation,
                         uint32_t row, int32_t position)
{
    struct parity_position_sums terms;
    int level = 0;
    parity_terms(parity, observation, position, &terms);
    parity->count[position] +=
        position < observation->admitted && position <= observation->accepted;
    for (; (row >> level) & 1U; level++) {
        position_sums_add(&parity->tree[level].position[position], &terms);
        terms = parity->tree[level].position[position];
    }
    parity->tree[level].position[position] = terms;
}

/* Close the step's sum of `rows` requests at one position, smallest partial sums first, and add it
 * to the window. */
LANE_FN void parity_fold(struct parity *parity, uint32_t rows, int32_t position)
{
    const struct parity_position_sums *carry = NULL;
    for (int level = 0; level < PARITY_TREE_LEVELS; level++) {
        if (!((rows >> level) & 1U)) continue;
        struct parity_position_sums *digit = &parity->tree[level].position[position];
        if (carry != NULL) position_sums_add(digit, carry);
        carry = digit;
    }
    if (carry != NULL) position_sums_add(&parity->window.position[position], carry);
}

LANE_FN double parity_damped(uint64_t labels)
{
    return (double)labels / ((double)labels + PARITY_DAMPING);
}

/* One damped Newton step on the window. Returns false when the slope step was refused. */
LANE_FN bool parity_solve(struct parity *parity)
{
    double gradient = 0.0, curvature = PARITY_RIDGE;
    double gradient_out = 0.0, curvature_out = 0.0; /* what eliminating the intercepts takes away */
    uint64_t labels = 0;
    for (int32_t k = 0; k < parity->positions; k++) {
        const struct parity_position_sums *sums = &parity->window.position[k];
        const double cross = (double)sums->info[1], corner = (double)sums->info[2] + PARITY_RIDGE;
        gradient += (double)sums->gradient[0];
        curvature += (double)sums->info[0];
        gradient_out += cross * (double)sums->gradient[1] / corner;
        curvature_out += cross * cross / corner;
        labels += parity->count[k];
    }
    double step = (gradient - gradient_out) / (curvature - curvature_out) * parity_damped(labels);
    const bool taken = (double)parity->slope + step >= 0.0; /* false for NaN too */
    if (!taken) step = 0.0;
    parity->slope = (float)((double)parity->slope + step);
    for (int32_t k = 0; k < parity->positions; k++) {
        const struct parity_position_sums *sums = &parity->window.position[k];
        const double cross = (double)sums->info[1], corner = (double)sums->info[2] + PARITY_RIDGE;
        const double change =
            ((double)sums->gradient[1] - cross * step) / corner * parity_damped(parity->count[k]);
        if (!double_is_nan(change))
            parity->intercept[k] = (float)((double)parity->intercept[k] + change);
    }
    return taken;
}

/* Count a step whose sums are folded, and refit when the window is full. Returns TT_STEP_* bits. */
LANE_FN int parity_close_step(struct parity *parity)
{
    parity->rows = 0;
    if (++parity->window_steps < parity->refit_interval_steps) return 0;
    const bool taken = parity_solve(parity);
    memset(&parity->window, 0, sizeof parity->window);
    memset(parity->count, 0, sizeof parity->count);
    parity->window_steps = 0;
    parity->refits++;
    parity->refused += !taken;
    return TT_STEP_REFIT | (taken ? 0 : TT_STEP_REJECTED);
}

#endif
