/* race_body.h - the noise of coupled sampling as an exponential race, generated top-down.
 *
 * argmax(log p_i + Gumbel_i) is the winner of a race in which token i arrives at A_i / p_i, A_i
 * exponential of rate 1. The noise of ROW_GROUP neighbouring tokens is drawn from the top: first
 * the earliest arrival of the group (exponential of rate ROW_GROUP) and who has it (uniform), then
 * every other arrival, which by the lack of memory is the first one plus a fresh exponential. The
 * joint law is that of independent arrivals, the noise is a function of (key, token index, token)
 * alone, and a group whose best conceivable token cannot win is never expanded. Sources: coupled
 * sampling, arXiv 2408.07978; top-down races: Maddison, Tarlow, Minka, A* sampling, arXiv
 * 1411.0030.
 */
#ifndef KERNELS_RACE_BODY_H
#define KERNELS_RACE_BODY_H

#include "kernels/philox.h"
#include "kernels/row_body.h"
#include "kernels/trimtab.h"

/* arrival (ROW_GROUP lanes) of one group. Four tokens share a Philox block. */
LANE_GROUP_FN void race_expand(uint64_t key, uint64_t token_index, uint32_t group, float first,
                               uint32_t place, float *arrival)
{
    LANE_PRIVATE(uint32_t, word);
#if LANE_SPMD
    const uint32_t t = threadIdx.x % LANE_THREADS;
    const philox4x32_ctr_t block =
        philox_block(key, token_index, 0, TT_GUMBEL, group * LANE_THREADS + t);
    for (int j = 0; j < LANE_WIDTH; j++) word[j] = block.v[j];
#else
    for (uint32_t t = 0; t < LANE_THREADS; t++) {
        const philox4x32_ctr_t block =
            philox_block(key, token_index, 0, TT_GUMBEL, group * LANE_THREADS + t);
        for (int j = 0; j < LANE_WIDTH; j++) word[LANE_WIDTH * t + (uint32_t)j] = block.v[j];
    }
#endif
    LANES(l)
    {
        const float more = exponential_lane(uniform_of_word(LANE_AT(word, l)));
        LANE_AT(arrival, l) = (uint32_t)l == place ? first : first + more;
    }
}

/* A group's first arrival and its place. */
LANE_FN void race_first(uint64_t key, uint64_t token_index, uint32_t group, uint32_t *word,
                        uint32_t *place)
{
    const philox4x32_ctr_t block =
        philox_block(key, token_index, 0, TT_GUMBEL, PHILOX_GROUP_BLOCK | group);
    *word = block.v[0];
    *place = block.v[1] / (0x80000000u / (ROW_GROUP / 2)); /* its top bits */
}

LANE_FN float race_first_arrival(uint32_t word)
{
    return exponential_lane(uniform_of_word(word)) * (1.0f / ROW_GROUP);
}

/* The best score that a group with this largest logit and this first arrival could have. */
LANE_FN float race_bound(float group_max, float max, float inverse_temperature, float first)
{
    return (group_max - max) * inverse_temperature - log_lane(first);
}

/* log_lane need not be monotone in its last bits: a bound below the leader by no more than this
 * (relative and absolute) is run all the same. */
LANE_FN float race_slack(float leading)
{
    return 1e-5f * (1.0f + (leading < 0.0f ? -leading : leading));
}

#endif
