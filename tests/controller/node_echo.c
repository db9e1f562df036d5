/* node_echo.c - see node_echo.h. One thread steps every live request; `lock` guards everything. */
#include "config.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "controller/cause.h"
#include "controller/request_node.h"
#include "tests/controller/node_echo.h"

enum { QUEUE_MAX = 256 };

struct slot {
    struct request *request; /* NULL = free */
    int start, emitted, limit, fail_after;
    char recent[64]; /* the last bytes sent, for stop strings */
};

struct echo {
    struct node node; /* first */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct slot slot[QUEUE_MAX];
    int step_us, fail_next;
    bool hold, full, stop, draining;
    char health[16];
    struct node_echo_counts counts;
    struct request_params params;
    char stop_string[64];
    enum mode mode;
    int64_t generation, max_draft, prompt_tokens, emitted, drafted;
    struct node_actor last_actor;
};

static struct echo *echo_of(struct node *node)
{
    return (struct echo *)(void *)node;
}

/* ------------------------------------------------------------------------------------ the loop */

static int word_of(const struct slot *slot, int i)
{
    return ECHO_FIRST_WORD + (slot->start + i) % ECHO_WORDS;
}

static void end(struct echo *echo, struct slot *slot, enum request_finish finish, const char *error)
{
    struct request_usage usage = {.completion_tokens = slot->emitted,
                                  .drafted = 2 * slot->emitted,
                                  .accepted = slot->emitted};

    request_prompt_of(slot->request, &usage.prompt_tokens);
    usage.cached_tokens = usage.prompt_tokens > 1 ? 1 : 0;
    request_set_usage(slot->request, &usage);
    if (finish == REQUEST_CANCELLED) echo->counts.cancelled++;
    echo->counts.finished++;
    echo->counts.live--;
    request_finish(slot->request, finish, error);
    request_unref(slot->request);
    slot->request = NULL;
}

static void record(struct request_token *token, int id, size_t offset, size_t length,
                   int alternatives)
{
    *token = (struct request_token){.token = id,
                                    .logprob = -0.25F,
                                    .alternatives = alternatives,
                                    .text_offset = offset,
                                    .text_length = length};
    for (int i = 0; i < alternatives; i++) {
        token->alternative[i].token = i == 0   ? id
                                      : i == 1 ? 0xE6
                                               : ECHO_FIRST_WORD + i; /* one is half a character */
        token->alternative[i].logprob = i == 2 ? -INFINITY : -0.25F - (float)i;
    }
}

/* One step of one request: one, two or three words. */
static void step(struct echo *echo, struct slot *slot)
{
    const struct request_params *params = request_params_of(slot->request);
    struct request_token tokens[3];
    char text[128];
    size_t length = 0;
    int count = 0, most = 1 + (slot->start + slot->emitted) % 3;
    bool stopped = false;

    for (; count < most && slot->emitted < slot->limit && !stopped; count++) {
        const char *word = echo_word(slot->start + slot->emitted);
        if (params->logprobs >= 0)
            record(&tokens[count], word_of(slot, slot->emitted), length, strlen(word),
                   params->logprobs);
        memcpy(text + length, word, strlen(word));
        length += strlen(word);
        slot->emitted++;
        echo->emitted++;
        text[length] = '\0';
        for (int i = 0; i < params->stop_count; i++) {
            char *found = strstr(text, params->stop[i]);
            if (!found) continue;
            length = (size_t)(found - text);
            stopped = true;
        }
        if (slot->fail_after >= 0 && slot->emitted >= slot->fail_after) break;
    }
    bool pushed = request_push_piece(slot->request, text, length, count,
                                     params->logprobs >= 0 ? tokens : NULL,
                                     params->logprobs >= 0 ? count : 0);
    assert(pushed);
    if (slot->fail_after >= 0 && slot->emitted >= slot->fail_after)
        end(echo, slot, REQUEST_FAILED, "the model produced no finite logits");
    else if (stopped)
        end(echo, slot, REQUEST_STOP, NULL);
    else if (slot->emitted == slot->limit)
        end(echo, slot,
            slot->limit == ECHO_NATURAL_TOKENS && params->max_tokens != slot->limit
                ? REQUEST_STOP
                : REQUEST_LENGTH,
            NULL);
}

static void *run(void *state)
{
    struct echo *echo = state;
    struct timespec until;

    pthread_mutex_lock(&echo->lock);
    while (!echo->stop) {
        for (int i = 0; i < QUEUE_MAX; i++) {
            struct slot *slot = &echo->slot[i];
            if (!slot->request) continue;
            if (request_is_cancelled(slot->request))
                end(echo, slot, REQUEST_CANCELLED, NULL);
            else if (!echo->hold)
                step(echo, slot);
        }
        if (echo->counts.live == 0) {
            pthread_cond_wait(&echo->changed, &echo->lock);
            continue;
        }
        int pause_us = echo->hold ? 2000 : echo->step_us;
        if (pause_us == 0) { /* let the front in */
            pthread_mutex_unlock(&echo->lock);
            pthread_mutex_lock(&echo->lock);
            continue;
        }
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += (long)pause_us * 1000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        while (pthread_cond_timedwait(&echo->changed, &echo->lock, &until) == 0 && !echo->stop) {}
    }
    for (int i = 0; i < QUEUE_MAX; i++) {
        if (echo->slot[i].request) end(echo, &echo->slot[i], REQUEST_CANCELLED, NULL);
    }
    pthread_mutex_unlock(&echo->lock);
    return NULL;
}

/* ---------------------------------------------------------------------------- the node's calls */

static enum node_status echo_submit(struct node *node, struct request *request, char **cause)
{
    struct echo *echo = echo_of(node);
    const struct request_params *params = request_params_of(request);
    enum node_status status = NODE_OK;
    struct slot *slot = NULL;
    int count;
    const int32_t *prompt = request_prompt_of(request, &count);

    pthread_mutex_lock(&echo->lock);
    echo->params = *params;
    snprintf(echo->stop_string, sizeof echo->stop_string, "%s",
             params->stop_count ? params->stop[0] : "");
    for (int i = 0; i < QUEUE_MAX && !slot; i++) {
        if (!echo->slot[i].request) slot = &echo->slot[i];
    }
    if (echo->draining) {
        status = NODE_DRAINING;
        cause_set(cause, "the node is draining");
    } else if (count >= ECHO_CONTEXT) {
        status = NODE_TOO_LONG;
        cause_set(cause, "the prompt has %d tokens, the context %d", count, ECHO_CONTEXT);
    } else if (echo->full || !slot) {
        status = NODE_FULL;
        cause_set(cause, "the queue is full");
    } else {
        *slot = (struct slot){.request = request_ref(request), .fail_after = echo->fail_next};
        echo->fail_next = -1;
        for (int i = 0; i < count; i++) slot->start += prompt[i];
        slot->start +=
            (int)(params->seed % 1000) + 7 * (int)params->choice + 3 * (int)params->prompt;
        slot->limit = params->max_tokens > 0 ? params->max_tokens : ECHO_NATURAL_TOKENS;
        if (!params->ignore_eos && slot->limit > ECHO_NATURAL_TOKENS)
            slot->limit = ECHO_NATURAL_TOKENS;
        echo->counts.submitted++;
        echo->counts.live++;
        echo->prompt_tokens += count;
        pthread_cond_signal(&echo->changed);
    }
    pthread_mutex_unlock(&echo->lock);
    return status;
}

static void echo_snapshot(struct node *node, struct snapshot *out)
{
    struct echo *echo = echo_of(node);

    snapshot_clear(out);
    pthread_mutex_lock(&echo->lock);
    snprintf(out->node.id, sizeof out->node.id, "%s", node->id);
    snprintf(out->node.kind, sizeof out->node.kind, "echo");
    snprintf(out->node.engine, sizeof out->node.engine, "echo");
    snprintf(out->node.version, sizeof out->node.version, "1");
    snprintf(out->node.model, sizeof out->node.model, "echo-tiny");
    snprintf(out->node.capabilities, sizeof out->node.capabilities, "mode,settings,generate");
    snprintf(out->health.state, sizeof out->health.state, "%s", echo->health);
    out->node.tier = 2;
    out->mode = echo->mode;
    out->generation = echo->generation;
    out->max_draft = (int)echo->max_draft;
    out->time_ms = 1790000000000;
    out->uptime_s = 12.5;
    out->window_ms = 5000;
    out->throughput_tps = 400.25;
    out->predicted_step_ms = 23.5;
    out->cost_error_ratio = 0.04;
    out->cost_bias_ratio = -0.01;
    out->running = echo->counts.live;
    out->queued = 0;
    out->steps = echo->emitted;
    out->emitted_total = echo->emitted;
    out->drafted_total = echo->drafted;
    out->drafts_total = echo->drafted / 2;
    out->accepted_total = echo->drafted / 4;
    out->prompt_tokens_total = echo->prompt_tokens;
    out->requests_total = echo->counts.submitted;
    out->estimator.slope = 0.552;
    out->estimator.drift_events = 1;
    out->estimator.positions_count = 2;
    out->estimator.position[0].intercept = -0.31;
    out->estimator.position[0].accepted_total = 7;
    out->store.ok = true;
    pthread_mutex_unlock(&echo->lock);
}

static enum node_status check_generation(struct echo *echo, int64_t expected,
                                         const struct node_actor *actor, int64_t *generation,
                                         char **cause)
{
    *generation = echo->generation;
    if (expected >= 0 && expected != echo->generation) {
        cause_set(cause, "the node's generation is %lld, not %lld", (long long)echo->generation,
                  (long long)expected);
        return NODE_CONFLICT;
    }
    echo->last_actor = *actor;
    *generation = ++echo->generation;
    return NODE_OK;
}

static enum node_status echo_set_mode(struct node *node, enum mode mode, int64_t expect_generation,
                                      const char *reason, const struct node_actor *actor,
                                      int64_t *generation, char **cause)
{
    struct echo *echo = echo_of(node);

    (void)reason;
    pthread_mutex_lock(&echo->lock);
    enum node_status status = check_generation(echo, expect_generation, actor, generation, cause);
    if (status == NODE_OK) echo->mode = mode;
    pthread_mutex_unlock(&echo->lock);
    return status;
}

static enum node_status echo_set(struct node *node, const json_t *settings,
                                 int64_t expect_generation, const char *reason,
                                 const struct node_actor *actor, int64_t *generation, char **cause)
{
    struct echo *echo = echo_of(node);
    const json_t *max_draft = json_object_get(settings, "max_draft");
    enum node_status status;

    (void)reason;
    if (max_draft && (json_integer_value(max_draft) < 1 || json_integer_value(max_draft) > 32)) {
        cause_set(cause, "'max_draft' must be between 1 and 32");
        return NODE_INVALID;
    }
    pthread_mutex_lock(&echo->lock);
    status = check_generation(echo, expect_generation, actor, generation, cause);
    if (status == NODE_OK && max_draft) echo->max_draft = json_integer_value(max_draft);
    pthread_mutex_unlock(&echo->lock);
    return status;
}

static json_t *echo_settings(struct node *node)
{
    struct echo *echo = echo_of(node);

    pthread_mutex_lock(&echo->lock);
    /* who asked last stands here so that tests see the actor that the front made */
    json_t *settings =
        json_pack("{s:I, s:s, s:s}", "max_draft", (json_int_t)echo->max_draft, "last_who",
                  echo->last_actor.who, "last_origin", echo->last_actor.origin);
    pthread_mutex_unlock(&echo->lock);
    return settings;
}

static json_t *echo_requests(struct node *node)
{
    struct echo *echo = echo_of(node);
    json_t *list = json_array();

    pthread_mutex_lock(&echo->lock);
    for (int i = 0; i < QUEUE_MAX; i++) {
        const struct slot *slot = &echo->slot[i];
        if (slot->request)
            json_array_append_new(list, json_pack("{s:I, s:s, s:i}", "id",
                                                  (json_int_t)request_id(slot->request), "phase",
                                                  "decode", "emitted", slot->emitted));
    }
    pthread_mutex_unlock(&echo->lock);
    return list;
}

static json_t *echo_cost(struct node *node)
{
    (void)node;
    return json_pack("{s:[{s:i, s:i, s:f}], s:[{s:i, s:f}]}", "verify", "tokens", 8, "context_band",
                     0, "ms", 20.5, "draft", "requests", 4, "ms", 1.25);
}

static json_t *echo_calibration(struct node *node)
{
    (void)node;
    return json_pack("{s:[]}", "strata");
}

static bool echo_cancel(struct node *node, uint64_t id)
{
    struct echo *echo = echo_of(node);
    bool found = false;

    pthread_mutex_lock(&echo->lock);
    for (int i = 0; i < QUEUE_MAX && !found; i++) {
        found = echo->slot[i].request && request_id(echo->slot[i].request) == id;
        if (found) request_ask_stop(echo->slot[i].request);
    }
    pthread_cond_signal(&echo->changed);
    pthread_mutex_unlock(&echo->lock);
    return found;
}

static const struct lm *echo_text(struct node *node)
{
    struct echo *echo = echo_of(node);

    pthread_mutex_lock(&echo->lock);
    bool starting = strcmp(echo->health, "starting") == 0;
    pthread_mutex_unlock(&echo->lock);
    return starting ? NULL : &echo_lm;
}

static void echo_drain(struct node *node)
{
    pthread_mutex_lock(&echo_of(node)->lock);
    echo_of(node)->draining = true;
    pthread_mutex_unlock(&echo_of(node)->lock);
}

static bool echo_idle(struct node *node)
{
    struct node_echo_counts counts;

    node_echo_get_counts(node, &counts);
    return counts.live == 0;
}

static void echo_close(struct node *node)
{
    struct echo *echo = echo_of(node);

    pthread_mutex_lock(&echo->lock);
    echo->stop = true;
    pthread_cond_signal(&echo->changed);
    pthread_mutex_unlock(&echo->lock);
    pthread_join(echo->thread, NULL);
    pthread_mutex_destroy(&echo->lock);
    pthread_cond_destroy(&echo->changed);
    free(echo);
}

static const struct node_ops echo_ops = {
    .snapshot = echo_snapshot,
    .set_mode = echo_set_mode,
    .set = echo_set,
    .settings = echo_settings,
    .requests = echo_requests,
    .cost = echo_cost,
    .calibration = echo_calibration,
    .cancel = echo_cancel,
    .submit = echo_submit,
    .text = echo_text,
    .drain = echo_drain,
    .idle = echo_idle,
    .close = echo_close,
};

struct node *node_echo_new(const char *id)
{
    struct echo *echo = calloc(1, sizeof *echo);

    if (!echo) return NULL;
    echo->node.ops = &echo_ops;
    echo->node.capabilities = NODE_CAN_SET_MODE | NODE_CAN_SET | NODE_CAN_GENERATE;
    snprintf(echo->node.id, sizeof echo->node.id, "%s", id);
    strcpy(echo->health, "ok");
    echo->fail_next = -1;
    echo->max_draft = 6;
    pthread_mutex_init(&echo->lock, NULL);
    pthread_cond_init(&echo->changed, NULL);
    if (pthread_create(&echo->thread, NULL, run, echo) == 0) return &echo->node;
    free(echo);
    return NULL;
}

/* --------------------------------------------------------------------------------- test's side */

#define SET(FUNCTION, TYPE, STATEMENT)                                                             \
    void FUNCTION(struct node *node, TYPE value)                                                   \
    {                                                                                              \
        struct echo *echo = echo_of(node);                                                         \
        pthread_mutex_lock(&echo->lock);                                                           \
        STATEMENT;                                                                                 \
        pthread_cond_signal(&echo->changed);                                                       \
        pthread_mutex_unlock(&echo->lock);                                                         \
    }

SET(node_echo_set_delay, int, echo->step_us = value)
SET(node_echo_hold, bool, echo->hold = value)
SET(node_echo_set_full, bool, echo->full = value)
SET(node_echo_fail_next, int, echo->fail_next = value)
SET(node_echo_add_record, int64_t, echo->drafted += value)
SET(node_echo_set_health, const char *, snprintf(echo->health, sizeof echo->health, "%s", value))

void node_echo_get_counts(struct node *node, struct node_echo_counts *out)
{
    pthread_mutex_lock(&echo_of(node)->lock);
    *out = echo_of(node)->counts;
    pthread_mutex_unlock(&echo_of(node)->lock);
}

void node_echo_get_params(struct node *node, struct request_params *out, char *stop, size_t size)
{
    struct echo *echo = echo_of(node);

    pthread_mutex_lock(&echo->lock);
    *out = echo->params;
    out->bias = NULL;
    snprintf(stop, size, "%s", echo->stop_string);
    pthread_mutex_unlock(&echo->lock);
    for (int i = 0; i < REQUEST_MAX_STOPS; i++) out->stop[i] = NULL;
}
