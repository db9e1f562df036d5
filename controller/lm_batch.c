/* lm_batch.c - the token batch that every implementation of lm.h decodes. */
#include "config.h"

#include <stdlib.h>

#include "controller/lm.h"

struct lm_batch *lm_batch_new(int capacity)
{
    struct lm_batch *batch = calloc(1, sizeof *batch);

    if (!batch) return NULL;
    batch->capacity = capacity;
    batch->token = calloc((size_t)capacity, sizeof *batch->token);
    batch->position = calloc((size_t)capacity, sizeof *batch->position);
    batch->sequence = calloc((size_t)capacity, sizeof *batch->sequence);
    batch->want = calloc((size_t)capacity, sizeof *batch->want);
    if (!batch->token || !batch->position || !batch->sequence || !batch->want) {
        lm_batch_free(batch);
        return NULL;
    }
    return batch;
}

void lm_batch_free(struct lm_batch *batch)
{
    if (!batch) return;
    free(batch->token);
    free(batch->position);
    free(batch->sequence);
    free(batch->want);
    free(batch);
}

int lm_batch_add(struct lm_batch *batch, int32_t token, int32_t position, int32_t sequence,
                 bool want)
{
    int row = batch->count;

    if (row == batch->capacity) return -1;
    batch->token[row] = token;
    batch->position[row] = position;
    batch->sequence[row] = sequence;
    batch->want[row] = want;
    batch->count++;
    return row;
}
