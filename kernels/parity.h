/* parity.h - the estimator `parity`: the online acceptance estimator as vLLM released it in 0.32
 * and 0.33, for reproduction and comparison. Its faults are part of it; `online` is the default.
 *
 * Internal to libtrimtab: reached through tt_estimator_*. The caller (estimator.c) has validated
 * every argument.
 *
 * Source: vLLM pull request 52228; numbers of a real run in tests/kernels/data/vectors.
 */
#ifndef TRIMTAB_KERNELS_PARITY_H
#define TRIMTAB_KERNELS_PARITY_H

#include <stdint.h>

#include "kernels/trimtab.h"

#define PARITY_REFIT_INTERVAL_STEPS 100
#define PARITY_START_SLOPE 0.5F
#define PARITY_START_INTERCEPT (-0.2F)
#define PARITY_TREE_LEVELS 24 /* 2^24 requests a step */

/* Statistics of one position in float32, as released: info = sum of (w f f, w f, w) with w =
 * p(1-p); gradient = sum of ((y-p) f, y-p). */
struct parity_position_sums {
    float info[3];
    float gradient[2];
};

struct parity_sums {
    struct parity_position_sums position[TT_MAX_POSITIONS];
};

struct parity {
    int32_t positions;
    int32_t refit_interval_steps;
    float slope;
    float intercept[TT_MAX_POSITIONS];
    struct parity_sums window;
    uint64_t count[TT_MAX_POSITIONS]; /* labels of the window */
    int32_t window_steps;
    uint64_t refits;
    uint64_t refused; /* refits that left the slope where it was */
    /* Requests of the step under way, added pairwise: tree[i] is the sum of 2^i of them where bit i
     * of `rows` is set. */
    uint32_t rows;
    struct parity_sums tree[PARITY_TREE_LEVELS];
};

void parity_init(struct parity *parity, int32_t positions, int32_t refit_interval_steps);
/* Grade one request, in batch order; also one without drafts, which keeps its place in the sum. */
void parity_observe(struct parity *parity, const struct tt_observation *observation);
/* End of a step. Returns TT_STEP_* bits; TT_STEP_REJECTED when the refit refused its slope step. */
int parity_end_step(struct parity *parity);

#endif
