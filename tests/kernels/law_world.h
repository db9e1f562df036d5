/* law_world.h - small worlds with known laws: every prefix of tokens has a target row and a draft
 * row.
 *
 * A world is a pure function of its fields, so that a law test can enumerate it. Rows are fp32
 * logits; the exact laws are their softmax in double precision.
 */
#ifndef TESTS_KERNELS_LAW_WORLD_H
#define TESTS_KERNELS_LAW_WORLD_H

#include "kernels/trimtab.h"

#define WORLD_VOCAB_MAX 4
#define WORLD_LENGTH_MAX 4 /* drafts + 1 */

enum world_kind {
    WORLD_RANDOM,
    WORLD_TIES,  /* few different weights */
    WORLD_SAME,  /* the draft's law is the target's */
    WORLD_ZEROS, /* impossible tokens on either side */
    WORLD_SHORT, /* the draft lacks the last token */
    WORLD_KINDS
};

struct world {
    enum world_kind kind;
    size_t vocab, draft_vocab;
    int32_t drafts; /* K */
    uint32_t seed;
};

/* A hash in [0, 2^32) of a prefix (length) and a salt. */
uint32_t world_hash(const struct world *world, const int32_t *prefix, int32_t length,
                    uint32_t salt);

/* Logits of the next token after a prefix: target (vocab), draft (draft_vocab). */
void world_target(const struct world *world, const int32_t *prefix, int32_t length, float *logits);
void world_draft(const struct world *world, const int32_t *prefix, int32_t length, float *logits);

/* softmax(logits / temperature) in double precision. */
void world_softmax(const float *logits, size_t count, double temperature, double *law);

/* Index of a sequence of drafts + 1 tokens among all of them, and how many there are. */
size_t world_index(const struct world *world, const int32_t *sequence);
size_t world_sequences(const struct world *world);

#endif
