/* verify.c - one target forward pass over every request's last token, its admitted drafts and
 * prefill chunks; then the verdict of each block and what of it the client receives.
 *
 * This file owns the map between batch rows and slots. A failed pass fails the requests in it; it
 * never shortens a draft.
 */
#include "config.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "controller/logprobs.h"
#include "controller/loop.h"
#include "controller/request_node.h"
#include "controller/ticks.h"

static void fill_batch(struct loop *loop)
{
    struct lm_batch *batch = loop->target_batch;

    lm_batch_clear(batch);
    for (int i = 0; i < loop->parallel; i++) {
        struct slot *slot = &loop->slot[i];

        slot->row = batch->count;
        if (slot->phase == SLOT_DECODE) {
            lm_batch_add(batch, slot->tokens[slot->count - 1], slot->count - 1, slot->sequence,
                         true);
            for (int k = 0; k < slot->admitted; k++)
                lm_batch_add(batch, slot->draft[k], slot->count + k, slot->sequence, true);
            slot->sampled = true;
        }
        for (int k = 0; k < slot->prefill; k++) {
            int at = slot->in_target + k;
            bool last = at == slot->prompt_count - 1;

            slot->row = batch->count;
            lm_batch_add(batch, slot->tokens[at], at, slot->sequence, last);
            slot->sampled = last;
        }
    }
}

static void fail_batch(struct loop *loop, const char *cause)
{
    for (int i = 0; i < loop->parallel; i++) {
        struct slot *slot = &loop->slot[i];

        if (slot->phase == SLOT_FREE) continue;
        loop_release(loop, slot, REQUEST_FAILED, cause ? cause : "the engine failed");
        lm_trim(loop->target, slot->sequence, 0);
        slot->in_target = 0;
    }
}

static void count_token(struct slot *slot, int32_t token)
{
    for (size_t i = 0; i < slot->transform.counts_count; i++) {
        if (slot->counts[i].token != token) continue;
        slot->counts[i].count++;
        return;
    }
    slot->counts[slot->transform.counts_count++] = (struct tt_token_count){token, 1};
}

/* Keep the rows as the target gave them: transforms change them in place. */
static void keep_raw(struct loop *loop, const struct slot *slot, const float *rows)
{
    struct tt_rows raw = {loop->raw, TT_F32, (size_t)slot->admitted + 1, loop->vocab, loop->vocab};

    memcpy(loop->raw, rows, raw.rows * loop->vocab * sizeof *rows);
    if (tt_row_statistics(loop->rows, &raw, NULL, loop->stats) != TT_OK)
        for (size_t i = 0; i < raw.rows; i++) loop->stats[i].log_norm = NAN;
}

/* The verdict on one block. NULL, or why the request cannot go on, valid until the kernels' next
 * call. */
static const char *judge(struct loop *loop, struct slot *slot, int wanted)
{
    /* Log probabilities are taken from the host's copy, and the ratio rule's draft rows are there:
     * then the target's rows are read there too, rather than copying over what is needed. */
    bool host = wanted >= 0 || (slot->step_rule == TT_RATIO && slot->admitted > 0);
    struct logits rows = loop_logits(loop, loop->target, slot->row, host);
    struct tt_block block = {
        .rule = slot->step_rule,
        .target = rows.data,
        .target_stride = lm_logits_stride(loop->target),
        .vocab = loop->vocab,
        .draft = slot->q,
        .draft_stride = loop->draft_vocab,
        .draft_vocab = loop->draft_vocab,
        .draft_stats = slot->q_stats,
        .tokens = slot->draft,
        .admitted = slot->admitted,
        .temperature = slot->temperature,
        .key = slot->key,
        .token_index = (uint64_t)slot_emitted(slot),
    };
    int forced = request_params_of(slot->request)->min_tokens - slot_emitted(slot);

    if (!rows.data) return "the engine gave no logits";
    slot->transform.bias_count =
        request_params_of(slot->request)->bias_count + (forced > 0 ? (size_t)loop->end_count : 0);
    if (slot->transforms || forced > 0) block.transform = &slot->transform;
    if (wanted >= 0) keep_raw(loop, slot, rows.data);
    if (tt_verify(rows.kernels, &block, &slot->verdict) != TT_OK) return tt_message(rows.kernels);
    if (slot->verdict.next < 0) return "the model gave logits that are not numbers";
    assert(slot->verdict.accepted >= 0 && slot->verdict.accepted <= slot->admitted);
    slot->accepted = slot->verdict.accepted;
    return NULL;
}

static void note_logprobs(struct loop *loop, int k, int32_t token, int wanted)
{
    const float *raw = loop->raw + (size_t)k * loop->vocab;
    struct request_token *entry = &loop->tokens[k];

    *entry =
        (struct request_token){.token = token, .logprob = raw[token] - loop->stats[k].log_norm};
    logprobs_top(raw, loop->vocab, loop->stats[k].log_norm, wanted, entry);
}

/* Append one token. Returns what it ends the request with, or REQUEST_RUNNING. */
static enum request_finish emit(struct loop *loop, struct slot *slot, int32_t token)
{
    const struct request_params *params = request_params_of(slot->request);
    char bytes[256];
    int length;

    slot->tokens[slot->count++] = token;
    slot->emitted++;
    if (slot->index) ngram_index_append(slot->index, &token, 1);
    if (slot->counted) count_token(slot, token);
    if (lm_is_end(loop->target, token) && !params->ignore_eos) return REQUEST_STOP;
    length = lm_piece(loop->target, token, bytes, sizeof bytes);
    if (text_add(slot->text, bytes, (size_t)length)) return REQUEST_STOP;
    return slot->count == slot->limit ? REQUEST_LENGTH : REQUEST_RUNNING;
}

static bool send_text(struct loop *loop, struct slot *slot, bool final, bool logprobs)
{
    size_t length = 0;
    char *text = text_take(slot->text, final, &length);
    bool sent = request_push_piece(slot->request, text ? text : "", length, slot->emitted,
                                   logprobs ? loop->tokens : NULL, logprobs ? slot->emitted : 0);

    free(text);
    return sent;
}

/* Give the client the accepted drafts and the target's own token, cut at the first end. */
static void deliver(struct loop *loop, struct slot *slot, int wanted)
{
    enum request_finish finish = REQUEST_RUNNING;
    int before = slot->count;

    for (int k = 0; k <= slot->accepted && finish == REQUEST_RUNNING; k++) {
        int32_t token = k < slot->accepted ? slot->draft[k] : slot->verdict.next;

        if (wanted >= 0) note_logprobs(loop, k, token, wanted);
        finish = emit(loop, slot, token);
    }
    /* Positions behind a stop are no labels, and not accepted: a client never saw them. */
    if (slot->accepted > slot->emitted) slot->accepted = slot->emitted;
    slot->labelled = slot->admitted < slot->emitted ? slot->admitted : slot->emitted;
    slot->in_target = before + slot->accepted;
    slot->usage.completion_tokens += slot->emitted;
    slot->usage.drafted += slot->drafted;
    slot->usage.accepted += slot->accepted;
    if (finish != REQUEST_RUNNING || slot->emitted > 0)
        request_set_usage(slot->request, &slot->usage);
    if (!send_text(loop, slot, finish != REQUEST_RUNNING, wanted >= 0)) {
        loop_release(loop, slot, REQUEST_FAILED, "out of memory");
        return;
    }
    if (finish != REQUEST_RUNNING) loop_release(loop, slot, finish, NULL);
}

/* Forget in both contexts what was verified or drafted but not accepted. */
static void roll_back(struct loop *loop, struct slot *slot, int computed, int valid)
{
    if (computed > valid) lm_trim(loop->target, slot->sequence, valid);
    if (!loop->draft || slot->draft_end <= valid) return;
    slot->draft_end = valid > slot->draft_base ? valid : slot->draft_base;
    lm_trim(loop->draft, slot->sequence, slot->draft_end - slot->draft_base);
}

static void settle(struct loop *loop, struct slot *slot)
{
    int wanted = request_params_of(slot->request)->logprobs;
    int computed = slot->count + slot->admitted; /* tokens with cells now, drafts included */
    const char *failure;

    if (slot->phase == SLOT_PREFILL) {
        computed = slot->count;
        slot->phase = SLOT_DECODE;
        slot->step_rule = slot->rule;
        slot->decode_us = ticks_us();
        slot->usage.prefill_ms = (double)(slot->decode_us - slot->started_us) / 1000.0;
    }
    slot->steps++;
    failure = judge(loop, slot, wanted);
    if (failure) {
        slot->flagged = true;
        loop_release(loop, slot, REQUEST_FAILED, failure);
        lm_trim(loop->target, slot->sequence, 0);
        slot->in_target = 0;
        return;
    }
    deliver(loop, slot, wanted);
    roll_back(loop, slot, computed, slot->in_target);
}

void loop_verify(struct loop *loop)
{
    struct step *step = &loop->step;
    char *cause = NULL;

    fill_batch(loop);
    step->verify_ms = ticks_ms();
    step->failed = lm_decode(loop->target, loop->target_batch, &cause) != 0;
    step->verify_ms = ticks_ms() - step->verify_ms;
    if (step->failed) {
        fail_batch(loop, cause);
        free(cause);
        return;
    }
    for (int i = 0; i < loop->parallel; i++) {
        struct slot *slot = &loop->slot[i];

        if (slot->phase == SLOT_PREFILL) slot->in_target += slot->prefill;
        if (slot->sampled) settle(loop, slot);
    }
}
