/* slot.h - one place in the batch: a request that is being generated, its tokens, and its share of
 * the present step.
 *
 * A free slot keeps the tokens whose KV cells it still holds, so that a request with the same
 * beginning reuses them. Owned by the loop's thread.
 */
#ifndef CONTROLLER_SLOT_H
#define CONTROLLER_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "controller/ngram.h"
#include "controller/request.h"
#include "controller/strata.h"
#include "controller/text.h"

/* Rows of a model's last decode, and the kernels that read them where they lie. */
struct logits {
    tt *kernels;
    float *data;
};

enum slot_phase { SLOT_FREE, SLOT_PREFILL, SLOT_DECODE };

struct slot {
    int sequence; /* of both contexts; the slot's index */
    enum slot_phase phase;
    struct request *request; /* a reference; NULL when free */

    /* Text. tokens[0 .. count) = prompt, then what was emitted; the last one is not yet in the
     * target's KV. */
    int32_t *tokens; /* (capacity) */
    int capacity, count, prompt_count;
    int limit;                 /* count at which max_tokens is reached */
    int reserved;              /* KV cells kept for it */
    int in_target;             /* tokens [0 .. in_target) have cells in the target's context */
    int draft_base, draft_end; /* the draft context holds tokens [draft_base .. draft_end) at
                                  positions from 0 */
    struct text *text;
    struct ngram_index *index; /* of tokens[0 .. count), when n-gram drafts may be asked for */

    /* Law. */
    enum tt_rule
        rule; /* for drafts of the model; n-gram drafts use the point mass in place of the ratio */
    float temperature, inverse_temperature; /* inverse 1 for greedy */
    uint64_t key;
    bool transforms; /* transform does something */
    bool counted;    /* penalties: keep counts */
    bool adjusted;   /* target-only transforms: no labels */
    struct tt_transform transform;
    struct tt_logit_bias *
        bias; /* (transform.bias_count) the client's, then every end token while min_tokens holds */
    struct tt_token_count *counts; /* (capacity) */

    /* This step. */
    enum drafter drafter;
    enum tt_rule step_rule;
    int stratum, drafted, admitted, accepted, match,
        prefill;  /* prefill: prompt tokens in this step's batch */
    int emitted;  /* tokens a client received in this step */
    int labelled; /* admitted positions that may carry labels (cut at stops) */
    bool sampled, flagged;
    int row;  /* first row in the batch of the model that ran last */
    float *q; /* (max_draft, vocab) draft logits as drawn from; ratio rule */
    struct tt_row_stats q_stats[TT_MAX_POSITIONS]; /* of those rows */
    int32_t draft[TT_MAX_POSITIONS];
    float feature[TT_MAX_POSITIONS];
    double predicted[TT_MAX_POSITIONS];
    int32_t proposal[TT_MAX_POSITIONS]; /* what the n-gram index proposed, taken or not */
    int proposed;                       /* its length; `match` is what it rests on */
    struct tt_row_stats stats;          /* of the draft row just computed */
    struct logits draft_row;            /* that row */
    struct tt_verdict verdict;

    /* Accounts. */
    int64_t queued_us, started_us,
        decode_us; /* monotonic: entered the queue, the slot, its first token */
    struct request_usage usage;
    uint64_t steps;
};

/* buffers for `capacity` tokens and, with a draft model, max_draft rows of q. False when out of
 * memory. */
bool slot_init(struct slot *slot, int sequence, int capacity, int max_draft, size_t q_vocab,
               bool ngram, int end_tokens);
void slot_destroy(struct slot *slot);

/* Emitted so far = index in the output of the next token. */
static inline int slot_emitted(const struct slot *slot)
{
    return slot->count - slot->prompt_count;
}

#endif
