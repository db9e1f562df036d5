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
 * The arithmetic is in parity_body.h, which a GPU runs as well. Owns nothing but the struct it is
 * given; allocates nothing.
 */
#include "config.h"

#include <assert.h>
#include <string.h>

#include "kernels/parity_body.h"

void parity_init(struct parity *parity, int32_t positions, int32_t refit_interval_steps)
{
    assert(positions >= 1 && positions <= TT_MAX_POSITIONS && refit_interval_steps >= 1);
    memset(parity, 0, sizeof(*parity));
    parity->positions = positions;
    parity->refit_interval_steps = refit_interval_steps;
    parity->slope = PARITY_START_SLOPE;
    for (int32_t k = 0; k < positions; k++) parity->intercept[k] = PARITY_START_INTERCEPT;
}

void parity_observe(struct parity *parity, const struct tt_observation *observation)
{
    assert(parity->rows + 1 < 1U << PARITY_TREE_LEVELS);
    for (int32_t k = 0; k < parity->positions; k++)
        parity_push(parity, observation, parity->rows, k);
    parity->rows++;
}

int parity_end_step(struct parity *parity)
{
    for (int32_t k = 0; k < parity->positions; k++) parity_fold(parity, parity->rows, k);
    return parity_close_step(parity);
}
