/* choice.h - the one door through which the verifier (and whoever drafts) takes a random choice.
 *
 * Production binds it to the Philox streams of one request (choice_philox_init); the law tests bind
 * an enumerating version that visits every branch with its weight, so that the shipping control
 * flow itself is proven exact. Nothing else in the library may look at a uniform while it decides
 * about a token.
 *
 * Internal to the project: installed nowhere, linked through kernels/libtrimtab_core.la.
 */
#ifndef KERNELS_CHOICE_H
#define KERNELS_CHOICE_H

#include "kernels/trimtab.h"

/* Where a choice is made. Two choices of one request never share a site and a level. */
struct choice_site {
    uint64_t token_index; /* index in the request's output of the token in question */
    uint32_t position;    /* its position inside the block of this step */
    enum tt_purpose purpose;
};

/* One row for a race: law proportional to exp(logits[i] * inverse_temperature). */
struct choice_row {
    const void *logits; /* (vocab), free of NaN and +inf, at least one finite */
    enum tt_dtype dtype;
    size_t vocab;
    float inverse_temperature;
    const float
        *group_max; /* (groups of 128) largest logit of each group, or NULL: found where needed */
};

struct choice;

struct choice_ops {
    /* An index i with probability weights[i] / sum. weights (count) are >= 0 and finite, at least
     * one is positive; an index of weight 0 is never returned. `level` tells apart the draws of one
     * site (chunk, group, token). */
    size_t (*draw)(struct choice *choice, const struct choice_site *site, uint32_t level,
                   const double *weights, size_t count);
    /* 1 with the given probability: never at <= 0, always at >= 1. */
    int (*coin)(struct choice *choice, const struct choice_site *site, double probability);
    /* The winner of an exponential race with the given rates: a draw as above, but all races of one
     * token index share their noise, index by index (arXiv 2408.07978). */
    size_t (*race)(struct choice *choice, uint64_t token_index, const double *weights,
                   size_t count);
    /* The same race over a row of logits. */
    int32_t (*race_row)(struct choice *choice, uint64_t token_index, const struct choice_row *row);
};

struct choice {
    const struct choice_ops *ops;
};

static inline size_t choice_draw(struct choice *choice, const struct choice_site *site,
                                 uint32_t level, const double *weights, size_t count)
{
    return choice->ops->draw(choice, site, level, weights, count);
}

static inline int choice_coin(struct choice *choice, const struct choice_site *site,
                              double probability)
{
    return choice->ops->coin(choice, site, probability);
}

static inline size_t choice_race(struct choice *choice, uint64_t token_index, const double *weights,
                                 size_t count)
{
    return choice->ops->race(choice, token_index, weights, count);
}

static inline int32_t choice_race_row(struct choice *choice, uint64_t token_index,
                                      const struct choice_row *row)
{
    return choice->ops->race_row(choice, token_index, row);
}

/* The production binding: draws and coins from the streams of `key`. handle lends the vectorised
 * race and may be NULL where only draw, coin and race (over weights) are used. */
struct choice_philox {
    struct choice base; /* first member: a pointer to it is the pointer to the whole */
    tt *handle;
    uint64_t key;
};
void choice_philox_init(struct choice_philox *choice, tt *handle, uint64_t key);

#endif
