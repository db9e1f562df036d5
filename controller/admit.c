/* admit.c - waiting requests into free slots, and the share that prefills get of this step.
 *
 * KV cells are shared (unified KV, and llama_decode fails when none is left): a request enters only
 * when its prompt, its output limit and a block of drafts fit beside what the others were promised.
 * First come, first served: a request that does not fit holds back those behind it, so that it
 * cannot starve.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "controller/loop.h"
#include "controller/request_node.h"
#include "controller/ticks.h"

#define LEAST_FAIR_SHARE                                                                           \
    64 /* output tokens that a request without max_tokens gets even on a full node */

static int shared_prefix(const struct slot *slot, const int32_t *prompt, int count)
{
    int limit = slot->in_target < count - 1 ? slot->in_target
                                            : count - 1; /* the last prompt row must be computed */
    int same = 0;

    while (same < limit && slot->tokens[same] == prompt[same]) same++;
    return same;
}

/* The free slot that holds the longest beginning of the prompt; among equals the one with the least
 * to lose. */
static struct slot *best_free_slot(struct loop *loop, const int32_t *prompt, int count)
{
    struct slot *best = NULL;
    int best_shared = -1;

    for (int i = 0; i < loop->parallel; i++) {
        struct slot *slot = &loop->slot[i];
        int shared;

        if (slot->phase != SLOT_FREE) continue;
        shared = shared_prefix(slot, prompt, count);
        if (!best || shared > best_shared ||
            (shared == best_shared && slot->in_target < best->in_target)) {
            best = slot;
            best_shared = shared;
        }
    }
    return best;
}

static void forget_text(struct loop *loop, struct slot *slot)
{
    lm_trim(loop->target, slot->sequence, 0);
    slot->in_target = 0;
}

/* Cells that no one uses or was promised, when `keep` will be taken over. Free slots' remembered
 * beginnings go first. */
static bool make_room(struct loop *loop, const struct slot *keep, int need)
{
    int room = lm_context_cells(loop->target) - need;

    for (int i = 0; i < loop->parallel; i++)
        if (loop->slot[i].phase != SLOT_FREE) room -= loop->slot[i].reserved;
    if (room < 0) return false;
    for (int i = 0; i < loop->parallel; i++) {
        struct slot *slot = &loop->slot[i];

        if (slot->phase != SLOT_FREE || slot == keep) continue;
        if (slot->in_target > room)
            forget_text(loop, slot);
        else
            room -= slot->in_target;
    }
    return true;
}

int loop_request_cells(const struct loop *loop)
{
    int sequence = lm_sequence_cells(loop->target), all = lm_context_cells(loop->target);

    return (sequence < all ? sequence : all) - loop->max_draft - 1;
}

/* Output tokens that this request may have. */
static int output_limit(const struct loop *loop, const struct request_params *params, int prompt)
{
    int most = loop_request_cells(loop) - prompt;
    int fair = lm_context_cells(loop->target) / loop->parallel - loop->max_draft - 1 - prompt;

    if (params->max_tokens > 0) return params->max_tokens < most ? params->max_tokens : most;
    if (fair < LEAST_FAIR_SHARE) fair = LEAST_FAIR_SHARE;
    return fair < most ? fair : most;
}

static enum tt_rule rule_of(const struct loop *loop, const struct request_params *params)
{
    if (params->temperature <= 0) return TT_GREEDY;
    if (params->rule_given && params->rule != TT_GREEDY &&
        !(params->rule == TT_RATIO && !loop->draft))
        return params->rule;
    if (params->seeded)
        return TT_COUPLED; /* the text is a function of prompt, seed and target alone */
    return loop->draft ? TT_RATIO : TT_POINT_MASS;
}

static void set_law(struct loop *loop, struct slot *slot, const struct request_params *params)
{
    uint64_t seed =
        params->seeded ? params->seed : loop->options.fresh_key(loop->options.fresh_state);
    bool penalties = params->presence_penalty != 0 || params->frequency_penalty != 0 ||
                     params->repetition_penalty != 1;

    slot->rule = rule_of(loop, params);
    slot->temperature = slot->rule == TT_GREEDY ? 0 : params->temperature;
    slot->inverse_temperature = slot->rule == TT_GREEDY ? 1 : 1 / params->temperature;
    slot->key = tt_stream_key(seed, params->choice, params->prompt);
    slot->counted = penalties;
    slot->adjusted = penalties || params->bias_count > 0;
    slot->transform = (struct tt_transform){
        .temperature = slot->temperature,
        .top_k = params->top_k,
        .top_p = params->top_p,
        .min_p = params->min_p,
        .presence_penalty = params->presence_penalty,
        .frequency_penalty = params->frequency_penalty,
        .repetition_penalty = params->repetition_penalty,
        .bias = slot->bias,
        .counts = slot->counts,
    };
    /* While min_tokens holds, end tokens are impossible; the client's own bias stands before them.
     */
    free(slot->bias);
    slot->bias = calloc(params->bias_count + (size_t)loop->end_count + 1, sizeof *slot->bias);
    if (slot->bias) {
        if (params->bias_count)
            memcpy(slot->bias, params->bias, params->bias_count * sizeof *slot->bias);
        for (int i = 0; i < loop->end_count; i++)
            slot->bias[params->bias_count + (size_t)i] =
                (struct tt_logit_bias){loop->end_tokens[i], -INFINITY};
    }
    slot->transform.bias = slot->bias;
    slot->transform.bias_count = slot->bias ? params->bias_count : 0;
    slot->transforms =
        slot->adjusted ||
        (slot->rule != TT_GREEDY && (params->top_k > 0 || params->top_p < 1 || params->min_p > 0));
}

static void enter(struct loop *loop, struct slot *slot, struct request *request, int64_t since_us)
{
    const struct request_params *params = request_params_of(request);
    int prompt_count;
    const int32_t *prompt = request_prompt_of(request, &prompt_count);
    int reuse = shared_prefix(slot, prompt, prompt_count);

    if (reuse < slot->in_target) lm_trim(loop->target, slot->sequence, reuse);
    slot->in_target = reuse;
    memcpy(slot->tokens, prompt, (size_t)prompt_count * sizeof *prompt);
    slot->count = slot->prompt_count = prompt_count;
    slot->limit = prompt_count + output_limit(loop, params, prompt_count);
    slot->reserved = slot->limit + loop->max_draft + 1;
    slot->transform.counts_count = 0;
    slot->request = request;
    slot->phase = SLOT_PREFILL;
    slot->queued_us = since_us;
    slot->started_us = ticks_us();
    slot->steps = 0;
    slot->usage =
        (struct request_usage){.prompt_tokens = prompt_count,
                               .cached_tokens = reuse,
                               .queue_ms = (double)(slot->started_us - since_us) / 1000.0};
    set_law(loop, slot, params);
    if (loop->draft) lm_trim(loop->draft, slot->sequence, 0);
    slot->draft_base = slot->draft_end = 0;
    if (slot->index) {
        ngram_index_reset(slot->index);
        ngram_index_append(slot->index, prompt, prompt_count);
    }
    slot->text = text_new(params->stop, params->stop_count);
}

static void fail_waiting(struct loop *loop, struct request *request, enum request_finish finish,
                         const char *error)
{
    queue_pop(loop->queue);
    request_finish(request, finish, error);
    request_unref(request);
    pthread_mutex_lock(&loop->tally.lock);
    loop->tally.counts.failed += finish == REQUEST_FAILED;
    loop->tally.counts.cancelled += finish == REQUEST_CANCELLED;
    pthread_mutex_unlock(&loop->tally.lock);
}

static void take_waiting(struct loop *loop)
{
    struct request *request;
    int64_t since_us = 0;

    while ((request = queue_peek(loop->queue, &since_us))) {
        const struct request_params *params = request_params_of(request);
        int count;
        const int32_t *prompt = request_prompt_of(request, &count);
        struct slot *slot;

        if (request_is_cancelled(request)) {
            fail_waiting(loop, request, REQUEST_CANCELLED, NULL);
            continue;
        }
        slot = best_free_slot(loop, prompt, count);
        if (!slot ||
            !make_room(loop, slot, count + output_limit(loop, params, count) + loop->max_draft + 1))
            return;
        queue_pop(loop->queue);
        enter(loop, slot, request, since_us);
        pthread_mutex_lock(&loop->tally.lock);
        loop->tally.counts.requests++;
        pthread_mutex_unlock(&loop->tally.lock);
        if (!slot->text || !slot->bias) loop_release(loop, slot, REQUEST_FAILED, "out of memory");
    }
}

/* Prompt tokens of this step: everything at once on an idle node, a bounded chunk beside requests
 * that decode. */
static void share_prefill(struct loop *loop)
{
    int room = loop->target_batch->capacity - loop->parallel * (loop->max_draft + 1);
    int decoding = 0;

    for (int i = 0; i < loop->parallel; i++) {
        decoding += loop->slot[i].phase == SLOT_DECODE;
    }
    if (decoding > 0 && room > loop->options.prefill_chunk) room = loop->options.prefill_chunk;
    loop->step.finishing = 0;
    for (int i = 0; i < loop->parallel; i++) {
        struct slot *slot = &loop->slot[i];
        int left = slot->prompt_count - slot->in_target;

        slot->prefill = 0;
        if (slot->phase != SLOT_PREFILL) continue;
        slot->prefill = left < room ? left : room;
        room -= slot->prefill;
        loop->step.finishing += slot->prefill == left;
    }
}

static void drop_cancelled(struct loop *loop)
{
    for (int i = 0; i < loop->parallel; i++) {
        struct slot *slot = &loop->slot[i];

        if (slot->phase != SLOT_FREE && request_is_cancelled(slot->request))
            loop_release(loop, slot, REQUEST_CANCELLED, NULL);
    }
}

bool loop_admit(struct loop *loop)
{
    drop_cancelled(loop);
    take_waiting(loop);
    share_prefill(loop);
    return loop_running(loop) > 0;
}
