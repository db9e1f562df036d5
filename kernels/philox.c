/* philox.c - random streams, and the production binding of every choice to them.
 *
 * tt_stream_key and tt_uniform are the public streams; choice_philox draws from the same counters:
 * level L of a site is the L-th uniform of its stream, two to a Philox block, so that level 0 is
 * tt_uniform's.
 */
#include "config.h"

#include "kernels/choice_body.h"
#include "kernels/race.h"

/* Counter words that no stream uses: purpose 0xff with every position bit set. */
#define KEY_PURPOSE 0xffu

uint64_t tt_stream_key(uint64_t seed, uint32_t choice, uint32_t prompt)
{
    const philox4x32_ctr_t block =
        philox_block(seed, (uint64_t)prompt << 32 | choice, UINT32_MAX, KEY_PURPOSE, 0);
    return (uint64_t)block.v[1] << 32 | block.v[0];
}

double tt_uniform(uint64_t key, uint64_t token_index, uint32_t position, enum tt_purpose purpose)
{
    const struct choice_site site = {token_index, position, purpose};
    return choice_uniform(key, &site, 0);
}

static uint64_t key_of(const struct choice *choice)
{
    return ((const struct choice_philox *)(const void *)choice)->key;
}

static size_t philox_draw(struct choice *choice, const struct choice_site *site, uint32_t level,
                          const double *weights, size_t count)
{
    return choice_pick(choice_uniform(key_of(choice), site, level), weights, count);
}

static int philox_coin(struct choice *choice, const struct choice_site *site, double probability)
{
    return choice_uniform(key_of(choice), site, 0) < probability;
}

static size_t philox_race(struct choice *choice, uint64_t token_index, const double *weights,
                          size_t count)
{
    return race_weights(key_of(choice), token_index, weights, count);
}

static int32_t philox_race_row(struct choice *choice, uint64_t token_index,
                               const struct choice_row *row)
{
    const struct choice_philox *philox = (const struct choice_philox *)(const void *)choice;
    return race_row(philox->handle, philox->key, token_index, row);
}

void choice_philox_init(struct choice_philox *choice, tt *handle, uint64_t key)
{
    static const struct choice_ops ops = {philox_draw, philox_coin, philox_race, philox_race_row};
    choice->base.ops = &ops;
    choice->handle = handle;
    choice->key = key;
}
