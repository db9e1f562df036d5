/* generate.c - see generate.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "controller/exchange.h"
#include "controller/generate.h"
#include "controller/lm.h"
#include "controller/openai.h"
#include "controller/ticks.h"
#include "controller/traffic.h"

enum { RETRY_FULL_S = 1, RETRY_DRAINING_S = 10 };

struct choice {
    struct generation *generation;
    struct request *request; /* NULL until it was made */
    bool submitted, role_sent, ended;
    enum request_finish finish;
    int64_t characters;        /* code points sent */
    bool first_seen, end_seen; /* counted as traffic; of the node's thread until request_cancel */
};

struct generation {
    struct exchange *exchange;
    char id[OPENAI_ID_SIZE];
    char *model;
    struct openai_head head;
    bool stream, include_usage;
    int node;              /* its number */
    int64_t start_us;      /* monotonic: the body was here */
    int64_t prompt_tokens; /* every prompt once, however many choices it has */
    int count;
    struct choice choice[]; /* (count) prompt-major */
};

/* -------------------------------------------------------------------------------------- models */

static bool can_generate(const struct node *node)
{
    return (node->capabilities & NODE_CAN_GENERATE) != 0;
}

/* The name of a node's model in /v1; NULL when the node cannot generate (yet). */
static const char *model_name(const struct server_view *server, int i, const struct lm **lm)
{
    struct node *node = server->nodes[i];

    *lm = can_generate(node) ? node->ops->text(node) : NULL;
    if (!*lm) return NULL;
    for (int k = 0; k < i && server->model_alias; k++) {
        if (can_generate(server->nodes[k])) return lm_name(*lm); /* the alias is the first one's */
    }
    return server->model_alias ? server->model_alias : lm_name(*lm);
}

/* The node that serves `model` (NULL = the first that generates), or NULL with the reply filled. */
static struct node *find_model(struct exchange *x, const char *model, const char **name,
                               const struct lm **lm)
{
    const struct server_view *server = exchange_server(x);
    bool starting = false;

    for (int i = 0; i < server->node_count; i++) {
        struct node *node = server->nodes[i];
        *name = model_name(server, i, lm);
        starting |= can_generate(node) && !*name;
        if (!*name) continue;
        if (!model || strcmp(model, *name) == 0 || strcmp(model, lm_name(*lm)) == 0 ||
            strcmp(model, node->id) == 0)
            return node;
    }
    if (starting) {
        reply_error(&x->reply, 503, NULL, "starting", "the model is being loaded; try again");
        x->reply.retry_after_s = RETRY_FULL_S;
    } else if (model) {
        reply_error(&x->reply, 404, "model", "model_not_found",
                    "the model '%.200s' does not exist here; see /v1/models", model);
    } else {
        reply_error(&x->reply, 404, NULL, "model_not_found", "this daemon runs no model itself");
    }
    return NULL;
}

static json_t *model_to_json(const struct server_view *server, const char *name,
                             const struct lm *lm)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:i}", "id", name, "object", "model", "created",
                     (json_int_t)(server->started_ms / 1000), "owned_by", "trimtab",
                     "max_model_len", lm_sequence_cells(lm));
}

void generate_models(struct exchange *x)
{
    const struct server_view *server = exchange_server(x);
    json_t *list = json_array();
    const struct lm *lm;

    for (int i = 0; i < server->node_count; i++) {
        const char *name = model_name(server, i, &lm);
        if (name && json_array_append_new(list, model_to_json(server, name, lm)) != 0) {
            json_decref(list);
            list = NULL;
            break;
        }
    }
    reply_json(&x->reply, 200,
               list ? json_pack("{s:s, s:o}", "object", "list", "data", list) : NULL);
}

void generate_model(struct exchange *x)
{
    const struct lm *lm;
    const char *name;

    if (!find_model(x, x->segment[0], &name, &lm)) return;
    reply_json(&x->reply, 200, model_to_json(exchange_server(x), name, lm));
}

/* ------------------------------------------------------------------------------------- prompts */

struct prompt {
    int32_t *token;
    int count;
};

static void prompts_free(struct prompt *prompt, int count)
{
    for (int i = 0; prompt && i < count; i++) free(prompt[i].token);
    free(prompt);
}

static int tokenize(struct exchange *x, const struct lm *lm, const char *text, size_t length,
                    const char *field, struct prompt *out)
{
    out->count = lm_tokenize(lm, text, length, true, true, &out->token);
    if (out->count > 0) return 0;
    if (out->count == 0)
        reply_error(&x->reply, 400, field, "invalid_value", "'%s' is empty: nothing to go on from",
                    field);
    else
        reply_error(&x->reply, 400, field, "invalid_value", "'%s' cannot be turned into tokens",
                    field);
    return -1;
}

static int take_ids(struct exchange *x, const struct lm *lm, struct openai_prompt *given,
                    struct prompt *out)
{
    for (int i = 0; i < given->count; i++) {
        if (given->token[i] < lm_vocab(lm)) continue;
        reply_error(&x->reply, 400, "prompt", "invalid_value",
                    "'prompt' holds the token id %d; the vocabulary has %d tokens", given->token[i],
                    lm_vocab(lm));
        return -1;
    }
    *out = (struct prompt){.token = given->token, .count = given->count};
    given->token = NULL; /* taken over */
    return 0;
}

static int chat_prompt(struct exchange *x, const struct lm *lm, const struct openai_task *task,
                       struct prompt *out)
{
    char *cause = NULL, *text = lm_chat(lm, task->message, task->message_count, &cause);
    int result = -1;

    if (text)
        result = tokenize(x, lm, text, strlen(text), "messages", out);
    else
        reply_error(&x->reply, 400, "messages", "chat_template",
                    "%s; /v1/completions works without a template",
                    cause ? cause : "the model's chat template cannot be applied");
    free(text);
    free(cause);
    return result;
}

/* (task->prompt_count, or 1 for chat) token lists, or NULL with the reply filled. */
static struct prompt *make_prompts(struct exchange *x, const struct lm *lm,
                                   struct openai_task *task, int count)
{
    struct prompt *prompt = calloc((size_t)count, sizeof *prompt);
    int failed = 0;

    if (!prompt) {
        reply_error(&x->reply, 500, NULL, "out_of_memory", "out of memory for the prompts");
        return NULL;
    }
    for (int i = 0; i < count && !failed; i++) {
        struct openai_prompt *given = task->chat ? NULL : &task->prompt[i];
        if (task->chat)
            failed = chat_prompt(x, lm, task, &prompt[i]);
        else if (given->text)
            failed = tokenize(x, lm, given->text, given->length, "prompt", &prompt[i]);
        else
            failed = take_ids(x, lm, given, &prompt[i]);
    }
    if (!failed) return prompt;
    prompts_free(prompt, count);
    return NULL;
}

static bool bias_fits(struct exchange *x, const struct lm *lm, const struct request_params *params)
{
    for (size_t i = 0; i < params->bias_count; i++) {
        if (params->bias[i].token < lm_vocab(lm)) continue;
        reply_error(&x->reply, 400, "logit_bias", "invalid_value",
                    "'logit_bias' names the token id %d; the vocabulary has %d tokens",
                    params->bias[i].token, lm_vocab(lm));
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------ the generation */

/* Time to the first token and to the end of one choice. */
static void count_traffic(struct choice *choice, bool ended, enum request_finish finish)
{
    const struct generation *generation = choice->generation;
    struct traffic *traffic = exchange_server(generation->exchange)->traffic;
    double seconds = (double)(ticks_us() - generation->start_us) * 1e-6;

    if (!choice->first_seen && (!ended || finish == REQUEST_STOP || finish == REQUEST_LENGTH)) {
        traffic_add_first_token(traffic, generation->node, seconds);
        choice->first_seen = true;
    }
    if (!ended) return;
    traffic_add_end(traffic, generation->node, finish, seconds);
    choice->end_seen = true;
}

/* From the node's thread. An answer in one piece needs no wake before its end. */
static void on_notify(void *state)
{
    struct choice *choice = state;
    enum request_finish finish;
    const char *error;
    bool ended = request_ended(choice->request, &finish, &error);

    if (!choice->first_seen || ended) count_traffic(choice, ended, finish);
    if (choice->generation->stream || ended) exchange_wake(choice->generation->exchange);
}

static void generation_free(struct generation *generation)
{
    if (!generation) return;
    for (int i = 0; i < generation->count; i++) {
        struct choice *choice = &generation->choice[i];
        if (!choice->request) continue;
        request_cancel(choice->request); /* does nothing to one that has ended */
        if (choice->submitted && !choice->end_seen) {
            choice->first_seen = true; /* nobody waited for it to the end */
            count_traffic(choice, true, REQUEST_RUNNING);
        }
        request_unref(choice->request);
    }
    free(generation->model);
    free(generation);
}

static void release_generation(struct exchange *x)
{
    generation_free(x->state);
    x->state = NULL;
}

static struct generation *generation_new(struct exchange *x, const struct openai_task *task,
                                         int count, const char *model, const struct lm *lm)
{
    struct generation *generation =
        calloc(1, sizeof *generation + (size_t)count * sizeof *generation->choice);

    if (!generation) return NULL;
    generation->model = strdup(model);
    if (!generation->model) {
        free(generation);
        return NULL;
    }
    generation->exchange = x;
    generation->stream = task->stream;
    generation->include_usage = task->include_usage;
    generation->count = count;
    for (int i = 0; i < count; i++) generation->choice[i].generation = generation;
    openai_make_id(task->chat, generation->id);
    generation->head = (struct openai_head){.id = generation->id,
                                            .model = generation->model,
                                            .created_s = exchange_server(x)->now_ms() / 1000,
                                            .chat = task->chat,
                                            .lm = lm,
                                            .logprobs = task->params.logprobs >= 0,
                                            .alternatives = task->params.logprobs};
    return generation;
}

static void refuse(struct exchange *x, enum node_status status, const char *cause, bool chat)
{
    const char *field = chat ? "messages" : "prompt";

    switch (status) {
    case NODE_FULL:
        reply_error(&x->reply, 503, NULL, "queue_full", "%s",
                    cause ? cause : "the queue is full; try again");
        x->reply.retry_after_s = RETRY_FULL_S;
        return;
    case NODE_DRAINING:
        reply_error(&x->reply, 503, NULL, "draining", "%s",
                    cause ? cause : "the server is shutting down");
        x->reply.retry_after_s = RETRY_DRAINING_S;
        return;
    case NODE_TOO_LONG:
        reply_error(&x->reply, 400, field, "context_length_exceeded", "%s",
                    cause ? cause : "the prompt does not fit the model's context");
        return;
    case NODE_INVALID:
        reply_error(&x->reply, 400, NULL, "invalid_value", "%s",
                    cause ? cause : "the node refuses this request");
        return;
    default:
        reply_error(&x->reply, 503, NULL, "unavailable", "%s",
                    cause ? cause : "the node cannot generate now");
        return;
    }
}

/* Makes and submits one choice; 0, or -1 with the reply filled. */
static int submit(struct exchange *x, struct node *node, const struct openai_task *task,
                  const struct prompt *prompt, int prompt_index, int choice_index,
                  struct choice *choice)
{
    struct request_params params;
    int32_t *token = malloc((size_t)prompt->count * sizeof *token);
    char *cause = NULL;
    enum node_status status;

    if (!token || !openai_copy_params(task, prompt_index, choice_index, &params)) goto no_memory;
    memcpy(token, prompt->token, (size_t)prompt->count * sizeof *token);
    choice->request = request_new(&params, token, prompt->count, on_notify, choice);
    if (!choice->request) {
        openai_clear_params(&params);
        goto no_memory;
    }
    status = node->ops->submit(node, choice->request, &cause);
    choice->submitted = status == NODE_OK;
    if (status != NODE_OK) refuse(x, status, cause, task->chat);
    free(cause);
    return status == NODE_OK ? 0 : -1;
no_memory:
    free(token);
    reply_error(&x->reply, 500, NULL, "out_of_memory", "out of memory for the request");
    return -1;
}

/* ------------------------------------------------------------------------------------- answers */

static struct openai_usage usage_of(const struct generation *generation)
{
    struct openai_usage usage = {.prompt_tokens = generation->prompt_tokens};
    struct request_usage one;

    for (int i = 0; i < generation->count; i++) {
        request_get_usage(generation->choice[i].request, &one);
        usage.completion_tokens += one.completion_tokens;
        usage.cached_tokens += one.cached_tokens;
    }
    return usage;
}

/* NULL for a normal end, else why there is none, with its code. */
static const char *failure_of(enum request_finish finish, const char *error, const char **code)
{
    *code = finish == REQUEST_CANCELLED ? "cancelled" : "generation_failed";
    if (finish == REQUEST_CANCELLED)
        return "the request was cancelled by the operator or by a shutdown";
    return finish == REQUEST_FAILED ? error : NULL;
}

static const char shutting_down[] = "the server is shutting down";

/* Sends what one choice has ready. False when it failed: the stream ends. */
static bool fill_choice(struct generation *generation, int index, struct buffer *out)
{
    struct choice *choice = &generation->choice[index];
    const char *error, *code, *failure;
    /* In this order: what was pushed before the end is taken with or before it. */
    bool ended = request_ended(choice->request, &choice->finish, &error);
    struct request_piece *list = request_take(choice->request);

    if (generation->head.chat && !choice->role_sent && (list || ended)) {
        openai_put_role(out, &generation->head, index);
        choice->role_sent = true;
    }
    for (const struct request_piece *piece = list; piece; piece = piece->next) {
        if (piece->length > 0 || piece->token_count > 0)
            openai_put_piece(out, &generation->head, index, piece, &choice->characters);
    }
    request_piece_free(list);
    if (!ended) return true;
    choice->ended = true;
    failure = failure_of(choice->finish, error, &code);
    if (failure)
        openai_put_failure(out, 500, code, failure);
    else
        openai_put_finish(out, &generation->head, index, choice->finish);
    return !failure;
}

static bool fill(struct exchange *x, struct buffer *out)
{
    struct generation *generation = x->state;
    bool all = true;

    for (int i = 0; i < generation->count; i++) {
        if (generation->choice[i].ended) continue;
        if (!fill_choice(generation, i, out)) {
            openai_put_done(out);
            return false;
        }
        all &= generation->choice[i].ended;
    }
    if (!all && atomic_load(&exchange_server(x)->stopping)) {
        openai_put_failure(out, 503, "shutting_down", shutting_down);
        all = true;
    } else if (all && generation->include_usage) {
        struct openai_usage usage = usage_of(generation);
        openai_put_usage(out, &generation->head, &usage);
    }
    if (all) openai_put_done(out);
    return !all;
}

static void answer(struct exchange *x, struct generation *generation)
{
    const struct request_piece **pieces = calloc((size_t)generation->count, sizeof *pieces);
    enum request_finish *finish = calloc((size_t)generation->count, sizeof *finish);
    struct openai_usage usage = usage_of(generation);

    if (!pieces || !finish) {
        reply_error(&x->reply, 500, NULL, "out_of_memory", "out of memory for the answer");
    } else {
        for (int i = 0; i < generation->count; i++) {
            pieces[i] = request_take(generation->choice[i].request);
            finish[i] = generation->choice[i].finish;
        }
        buffer_clear(&x->reply.body);
        openai_put_answer(&x->reply.body, &generation->head, pieces, finish, generation->count,
                          &usage);
        for (int i = 0; i < generation->count; i++)
            request_piece_free((struct request_piece *)(uintptr_t)pieces[i]);
    }
    free(pieces);
    free(finish);
}

/* exchange.finish: the whole answer once every choice has ended, an error once one failed. */
static bool finish(struct exchange *x)
{
    struct generation *generation = x->state;
    const char *error, *code, *failure;
    bool all = true;

    for (int i = 0; i < generation->count; i++) {
        struct choice *choice = &generation->choice[i];
        choice->ended = request_ended(choice->request, &choice->finish, &error);
        all &= choice->ended;
        failure = choice->ended ? failure_of(choice->finish, error, &code) : NULL;
        if (!failure) continue;
        reply_error(&x->reply, 500, NULL, code, "%s", failure);
        return true;
    }
    if (all)
        answer(x, generation);
    else if (atomic_load(&exchange_server(x)->stopping))
        reply_error(&x->reply, 503, NULL, "shutting_down", shutting_down);
    else
        return false;
    return true;
}

/* ------------------------------------------------------------------------------------ handlers */

static int number_of(const struct server_view *server, const struct node *node)
{
    int i = 0;

    while (server->nodes[i] != node) i++;
    return i;
}

/* Takes over nothing; on success the exchange holds the generation. */
static void start(struct exchange *x, struct openai_task *task, int64_t start_us)
{
    const char *model;
    const struct lm *lm;
    struct node *node = find_model(x, task->model, &model, &lm);
    int prompts = task->chat ? 1 : task->prompt_count;
    struct prompt *prompt = NULL;
    struct generation *generation = NULL;

    if (!node || !bias_fits(x, lm, &task->params)) return;
    prompt = make_prompts(x, lm, task, prompts);
    if (!prompt) return;
    generation = generation_new(x, task, prompts * task->n, model, lm);
    if (!generation) {
        reply_error(&x->reply, 500, NULL, "out_of_memory", "out of memory for the request");
        goto out;
    }
    generation->start_us = start_us;
    generation->node = number_of(exchange_server(x), node);
    for (int p = 0; p < prompts; p++) {
        generation->prompt_tokens += prompt[p].count;
        for (int c = 0; c < task->n; c++) {
            if (submit(x, node, task, &prompt[p], p, c, &generation->choice[p * task->n + c]) != 0)
                goto out;
        }
    }
    x->state = generation;
    x->release = release_generation;
    x->reply.status = 200;
    x->reply.content_type = task->stream ? "text/event-stream; charset=utf-8" : "application/json";
    if (task->stream)
        x->fill = fill;
    else
        x->finish = finish;
    generation = NULL;
out:
    generation_free(generation); /* cancels what was submitted already */
    prompts_free(prompt, prompts);
}

static void generate(struct exchange *x, bool chat)
{
    struct openai_task task;
    int64_t start_us = ticks_us();

    if (atomic_load(&exchange_server(x)->draining)) {
        reply_error(&x->reply, 503, NULL, "draining", shutting_down);
        x->reply.retry_after_s = RETRY_DRAINING_S;
        return;
    }
    if (openai_read(x->body.data, x->body.length, chat, &task, &x->reply) == 0) {
        atomic_fetch_sub(&exchange_server(x)->body_bytes, x->body.capacity);
        buffer_free(&x->body); /* the task holds what matters of it */
        start(x, &task, start_us);
    }
    openai_task_clear(&task);
}

void generate_completion(struct exchange *x)
{
    generate(x, false);
}

void generate_chat(struct exchange *x)
{
    generate(x, true);
}
