/* choice_body.h - how a choice is made from the Philox streams of a request: the same text for the
 * CPU (philox.c) and for CUDA.
 *
 * Level L of a site is the L-th uniform of its stream, two to a Philox block.
 */
#ifndef KERNELS_CHOICE_BODY_H
#define KERNELS_CHOICE_BODY_H

#include "kernels/choice.h"
#include "kernels/philox.h"

/* The levels of a draw from a row: the chunk by its mass, the group of 128 inside it, the token
 * inside that. Each is its own choice, so the law is the product of exact conditional laws. */
enum choice_level { CHOICE_CHUNK = 0, CHOICE_GROUP = 1, CHOICE_TOKEN = 2 };

/* A uniform in (0, 1) with 53 random bits. */
LANE_FN double choice_uniform(uint64_t key, const struct choice_site *site, uint32_t level)
{
    const philox4x32_ctr_t block =
        philox_block(key, site->token_index, site->position, (uint32_t)site->purpose, level / 2);
    const uint32_t half = level % 2 * 2;
    const uint64_t bits = (uint64_t)block.v[half + 1] << 32 | block.v[half];
    return bits >> 11 ? (double)(bits >> 11) * 0x1p-53 : 0x1p-54;
}

/* The index that a uniform picks from weights (count), none negative, at least one positive; never
 * one of weight 0. */
LANE_FN size_t choice_pick(double uniform, const double *weights, size_t count)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) sum += weights[i];
    const double target = uniform * sum;
    double reached = 0.0;
    size_t last = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(weights[i] > 0.0)) continue;
        reached += weights[i];
        last = i;
        if (reached > target)
            break; /* strict: and where rounding falls off the end, the last possible one */
    }
    return last;
}

#endif
