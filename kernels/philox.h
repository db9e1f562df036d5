/* philox.h - how the library spends Philox counters: one layout, so that purposes never share bits.
 *
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011),
 * from Random123. Counter words: block, token index (low, high), purpose and position. Key: the
 * stream key (low, high).
 */
#ifndef KERNELS_PHILOX_H
#define KERNELS_PHILOX_H

#include <stdint.h>

#if defined(__GNUC__) && !defined(__CUDACC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#endif
#include <Random123/philox.h>
#if defined(__GNUC__) && !defined(__CUDACC__)
#pragma GCC diagnostic pop
#endif

#include "kernels/lanes.h"

#define PHILOX_POSITION_BITS 24 /* of the fourth word; the purpose has the other 8 */
#define PHILOX_GROUP_BLOCK                                                                         \
    0x80000000u /* blocks of a race's groups, apart from those of its tokens */

LANE_FN philox4x32_ctr_t philox_block(uint64_t key, uint64_t token_index, uint32_t position,
                                      uint32_t purpose, uint32_t block)
{
    philox4x32_ctr_t counter;
    philox4x32_key_t words;
    counter.v[0] = block;
    counter.v[1] = (uint32_t)token_index;
    counter.v[2] = (uint32_t)(token_index >> 32);
    counter.v[3] =
        purpose << PHILOX_POSITION_BITS | (position & ((1u << PHILOX_POSITION_BITS) - 1));
    words.v[0] = (uint32_t)key;
    words.v[1] = (uint32_t)(key >> 32);
    return philox4x32_R(10, counter, words);
}

/* A float in (0, 1) from 32 bits, precise near 0, where a race is decided; never 0 and never 1. */
LANE_FN float uniform_of_word(uint32_t word)
{
    const float u = ((float)word + 0.5f) * 2.32830644e-10f; /* 2^-32 */
    return u > 0.99999994f ? 0.99999994f : u;
}

#endif
