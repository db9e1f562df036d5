/* acceptance.h - forgotten mean acceptance of each position of one stratum: what the planner
 * expects before it has seen any feature of a step.
 *
 * mean(k) estimates P(position k accepted | reached) over all requests of the stratum, trimmed or
 * not: a position that was drafted but not admitted, and that every admitted one led up to, counts
 * with its predicted probability, so that trimming the unlikely drafts does not make the mean look
 * better than it is.
 *
 * lift(k, u) says how much better than the mean the best fraction u of predictions at position k
 * is: the worth of looking at features before admitting. Single-threaded; no allocation.
 */
#ifndef CONTROLLER_ACCEPTANCE_H
#define CONTROLLER_ACCEPTANCE_H

#include "kernels/trimtab.h"

#define ACCEPTANCE_BINS 12

struct acceptance_position {
    double reached, accepted; /* forgotten sums; accepted <= reached */
    double bin_n[ACCEPTANCE_BINS],
        bin_sum[ACCEPTANCE_BINS]; /* forgotten: predictions by their size */
};

struct acceptance {
    int positions;
    double total; /* forgotten number of requests' steps learned from */
    struct acceptance_position position[TT_MAX_POSITIONS];
};

void acceptance_clear(struct acceptance *acceptance, int positions);

/* One request's step: `accepted` of `admitted`; skipped is the prediction for position `admitted`
 * when that was drafted and not admitted, else NaN. weight >= 1: how many ordinary steps this one
 * stands for (probes are rare). */
void acceptance_observe(struct acceptance *acceptance, int admitted, int accepted, double skipped,
                        double weight);
/* A prediction was made for a drafted position. */
void acceptance_predicted(struct acceptance *acceptance, int position, double probability);

/* In (0, 1). Without labels: one half at position 0, and each deeper position follows the one
 * before it. */
double acceptance_mean(const struct acceptance *acceptance, int position);
/* The mean and one standard error: what it may well be. */
double acceptance_hoped(const struct acceptance *acceptance, int position);
/* >= 1; u in (0, 1]; 1 without predictions. */
double acceptance_lift(const struct acceptance *acceptance, int position, double u);

#endif
