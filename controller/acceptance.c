/* acceptance.c - see acceptance.h. Source: design, algorithm 5 (forgotten mean acceptances, cold
 * slots use the prior). */
#include "config.h"

#include "controller/acceptance.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define MEMORY 0.998           /* forgetting a request's step: some 500 of them are remembered */
#define PRIOR 0.5              /* a cold position 0: neither a reason to draft nor one not to */
#define PRIOR_WEIGHT 4.0       /* request-steps the prior counts for */
#define LEAST_PREDICTIONS 20.0 /* fewer say nothing about the spread */

void acceptance_clear(struct acceptance *acceptance, int positions)
{
    assert(positions >= 1 && positions <= TT_MAX_POSITIONS);
    memset(acceptance, 0, sizeof *acceptance);
    acceptance->positions = positions;
}

/* Every position forgets at the same pace, labelled or not: what is no longer tried falls back to
 * its neighbour. */
static void forget(struct acceptance *acceptance, double factor)
{
    acceptance->total *= factor;
    for (int k = 0; k < acceptance->positions; k++) {
        acceptance->position[k].reached *= factor;
        acceptance->position[k].accepted *= factor;
    }
}

void acceptance_observe(struct acceptance *acceptance, int admitted, int accepted, double skipped,
                        double weight)
{
    assert(accepted >= 0 && accepted <= admitted && admitted <= acceptance->positions);
    forget(acceptance, weight == 1 ? MEMORY : pow(MEMORY, weight));
    acceptance->total += weight;
    for (int k = 0; k < admitted && k <= accepted; k++) {
        acceptance->position[k].reached += weight;
        acceptance->position[k].accepted += k < accepted ? weight : 0;
    }
    if (accepted == admitted && admitted < acceptance->positions && !isnan(skipped)) {
        acceptance->position[admitted].reached += weight;
        acceptance->position[admitted].accepted += weight * skipped;
    }
}

void acceptance_predicted(struct acceptance *acceptance, int position, double probability)
{
    struct acceptance_position *at = &acceptance->position[position];
    for (int b = 0; b < ACCEPTANCE_BINS; b++) {
        at->bin_n[b] *= MEMORY;
        at->bin_sum[b] *= MEMORY;
    }
    int bin = (int)(probability * ACCEPTANCE_BINS);
    if (bin >= ACCEPTANCE_BINS) bin = ACCEPTANCE_BINS - 1;
    at->bin_n[bin] += 1;
    at->bin_sum[bin] += probability;
}

double acceptance_mean(const struct acceptance *acceptance, int position)
{
    double mean = PRIOR;
    for (int k = 0; k <= position; k++) {
        const struct acceptance_position *at = &acceptance->position[k];
        mean = (at->accepted + PRIOR_WEIGHT * mean) / (at->reached + PRIOR_WEIGHT);
    }
    return mean;
}

double acceptance_hoped(const struct acceptance *acceptance, int position)
{
    double mean = acceptance_mean(acceptance, position);
    double n = acceptance->position[position].reached + PRIOR_WEIGHT;
    return fmin(mean + sqrt(mean * (1 - mean) / n), 1);
}

double acceptance_lift(const struct acceptance *acceptance, int position, double u)
{
    const struct acceptance_position *at = &acceptance->position[position];
    double n = 0, sum = 0, taken = 0, top = 0;
    for (int b = 0; b < ACCEPTANCE_BINS; b++) {
        n += at->bin_n[b];
        sum += at->bin_sum[b];
    }
    if (n < LEAST_PREDICTIONS || !(sum > 0)) return 1;
    for (int b = ACCEPTANCE_BINS - 1; b >= 0 && taken < u * n; b--) {
        double take = fmin(at->bin_n[b], u * n - taken);
        if (!(take > 0)) continue;
        top += take * at->bin_sum[b] / at->bin_n[b];
        taken += take;
    }
    double lift = (top / taken) / (sum / n);
    return lift > 1 ? lift : 1;
}
