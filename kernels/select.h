/* select.h - the head of a list of weighted tokens, without sorting the list.
 * Internal to kernels/. */
#ifndef KERNELS_SELECT_H
#define KERNELS_SELECT_H

#include "kernels/transform_body.h"

#include <stddef.h>
#include <stdint.h>

struct candidate {
    uint64_t key; /* unique; the smaller, the better */
    double weight;
};

/* The key of a token: larger logits first, then smaller ids. x is not NaN; -0 equals 0. */
static inline uint64_t candidate_key(float x, uint32_t token)
{
    return (uint64_t)candidate_rank(x) << 32 | token;
}
static inline float candidate_logit(uint64_t key)
{
    return candidate_rank_logit((uint32_t)(key >> 32));
}
static inline uint32_t candidate_token(uint64_t key)
{
    return (uint32_t)key;
}

/* Move the shortest head, in the order of the keys, whose weights reach `target` to list[0 ..
 * result). All of the list (count) when it weighs less; at least one. The head itself is left in no
 * particular order, but for its last element, which is the worst of it. Expected time O(count),
 * O(count log count) at worst; nothing is allocated. */
size_t select_head(struct candidate *list, size_t count, double target);

#endif
