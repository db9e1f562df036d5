/* slot.c - see slot.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "controller/slot.h"

bool slot_init(struct slot *slot, int sequence, int capacity, int max_draft, size_t q_vocab,
               bool ngram, int end_tokens)
{
    memset(slot, 0, sizeof *slot);
    slot->sequence = sequence;
    slot->capacity = capacity;
    slot->tokens = calloc((size_t)capacity, sizeof *slot->tokens);
    slot->counts = calloc((size_t)capacity, sizeof *slot->counts);
    slot->bias = calloc((size_t)(end_tokens + 1), sizeof *slot->bias);
    if (q_vocab) slot->q = calloc((size_t)max_draft * q_vocab, sizeof *slot->q);
    if (ngram) slot->index = ngram_index_new(capacity);
    return slot->tokens && slot->counts && slot->bias && (!q_vocab || slot->q) &&
           (!ngram || slot->index);
}

void slot_destroy(struct slot *slot)
{
    free(slot->tokens);
    free(slot->counts);
    free(slot->bias);
    free(slot->q);
    ngram_index_free(slot->index);
    text_free(slot->text);
}
