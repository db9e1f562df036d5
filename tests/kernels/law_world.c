/* law_world.c - see law_world.h. */
#include "config.h"

#include "tests/kernels/law_world.h"

#include <math.h>

uint32_t world_hash(const struct world *world, const int32_t *prefix, int32_t length, uint32_t salt)
{
    uint32_t h = world->seed * 2654435761u + salt * 40503u + (uint32_t)world->kind * 97u + 1u;
    for (int32_t i = 0; i < length; i++) h = (h ^ (uint32_t)(prefix[i] + 1)) * 16777619u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    h *= 3266489917u;
    return h ^ h >> 16;
}

static void fill(const struct world *world, const int32_t *prefix, int32_t length, uint32_t salt,
                 size_t count, float *logits)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t h = world_hash(world, prefix, length, salt + (uint32_t)i);
        double weight = 0.02 + (h >> 8) / 16777216.0;
        if (world->kind == WORLD_TIES) weight = 1.0 + (h >> 8) % 2;
        if (world->kind == WORLD_ZEROS && (h >> 8) % 3 == 0) weight = 0.0;
        logits[i] = (float)log(weight);
    }
    if (world->kind == WORLD_ZEROS) /* one token is always possible */
        logits[world_hash(world, prefix, length, salt + 99) % count] = 0.25f;
}

void world_target(const struct world *world, const int32_t *prefix, int32_t length, float *logits)
{
    fill(world, prefix, length, 1000, world->vocab, logits);
}

void world_draft(const struct world *world, const int32_t *prefix, int32_t length, float *logits)
{
    fill(world, prefix, length, world->kind == WORLD_SAME ? 1000 : 2000, world->draft_vocab,
         logits);
}

void world_softmax(const float *logits, size_t count, double temperature, double *law)
{
    double max = -INFINITY, sum = 0.0;
    for (size_t i = 0; i < count; i++) max = fmax(max, (double)logits[i]);
    for (size_t i = 0; i < count; i++) sum += law[i] = exp(((double)logits[i] - max) / temperature);
    for (size_t i = 0; i < count; i++) law[i] /= sum;
}

size_t world_index(const struct world *world, const int32_t *sequence)
{
    size_t index = 0;
    for (int32_t i = 0; i <= world->drafts; i++) index = index * world->vocab + (size_t)sequence[i];
    return index;
}

size_t world_sequences(const struct world *world)
{
    size_t count = 1;
    for (int32_t i = 0; i <= world->drafts; i++) count *= world->vocab;
    return count;
}
