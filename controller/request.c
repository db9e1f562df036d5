/* request.c - see request.h and request_node.h: one generation as a queue of pieces between two
 * threads.
 *
 * Two locks, so that taking pieces never waits for a notify that runs: `lock` guards the data and
 * is a leaf; `notify_lock` is held while notify runs, and request_cancel takes it, which is what
 * makes "no more notifies after it returns" true. A caller of request_cancel therefore must hold no
 * lock that its notify takes.
 */
#include "config.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "controller/request.h"
#include "controller/request_node.h"

struct request {
    uint64_t id;
    atomic_int references;
    atomic_bool cancelled; /* the node should stop */
    atomic_bool abandoned; /* nobody takes pieces any more */
    struct request_params params;
    int32_t *prompt;
    int prompt_count;

    pthread_mutex_t notify_lock; /* guards notify, notify_state and is held during the call */
    void (*notify)(void *state);
    void *notify_state;

    pthread_mutex_t lock; /* guards everything below */
    struct request_piece *first, **last;
    enum request_finish finish;
    char *error;
    struct request_usage usage;
};

static atomic_uint_fast64_t last_id;

void request_params_default(struct request_params *params)
{
    *params = (struct request_params){
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .logprobs = -1};
}

static void request_params_clear(struct request_params *params)
{
    for (int i = 0; i < params->stop_count; i++) free(params->stop[i]);
    free(params->bias);
    params->stop_count = 0;
    params->bias = NULL;
    params->bias_count = 0;
}

struct request *request_new(struct request_params *params, int32_t *prompt, int prompt_count,
                            void (*notify)(void *state), void *notify_state)
{
    struct request *request = calloc(1, sizeof *request);

    if (!request) return NULL; /* params and prompt stay the caller's */
    request->id = atomic_fetch_add(&last_id, 1) + 1;
    atomic_init(&request->references, 1);
    atomic_init(&request->cancelled, false);
    atomic_init(&request->abandoned, false);
    request->params = *params;
    params->stop_count = 0; /* taken over */
    params->bias = NULL;
    params->bias_count = 0;
    request->prompt = prompt;
    request->prompt_count = prompt_count;
    request->notify = notify;
    request->notify_state = notify_state;
    request->last = &request->first;
    pthread_mutex_init(&request->notify_lock, NULL);
    pthread_mutex_init(&request->lock, NULL);
    return request;
}

struct request *request_ref(struct request *request)
{
    atomic_fetch_add(&request->references, 1);
    return request;
}

void request_unref(struct request *request)
{
    if (!request) return;
    int before = atomic_fetch_sub(&request->references, 1);
    assert(before > 0);
    if (before > 1) return;
    request_params_clear(&request->params);
    request_piece_free(request->first);
    free(request->prompt);
    free(request->error);
    pthread_mutex_destroy(&request->notify_lock);
    pthread_mutex_destroy(&request->lock);
    free(request);
}

static void request_notify(struct request *request)
{
    pthread_mutex_lock(&request->notify_lock);
    if (request->notify) request->notify(request->notify_state);
    pthread_mutex_unlock(&request->notify_lock);
}

/* --------------------------------------------------------------------------------- node's side */

uint64_t request_id(const struct request *request)
{
    return request->id;
}

const struct request_params *request_params_of(const struct request *request)
{
    return &request->params;
}

const int32_t *request_prompt_of(const struct request *request, int *count)
{
    *count = request->prompt_count;
    return request->prompt;
}

bool request_is_cancelled(const struct request *request)
{
    return atomic_load(&request->cancelled);
}

void request_ask_stop(struct request *request)
{
    atomic_store(&request->cancelled, true);
}

/* One block holds the piece, its token records and its text: one allocation, one free. */
static struct request_piece *piece_new(const char *text, size_t length, int tokens,
                                       const struct request_token *token, int token_count)
{
    size_t records = (size_t)token_count * sizeof *token;
    struct request_piece *piece = malloc(sizeof *piece + records + length + 1);

    if (!piece) return NULL;
    *piece = (struct request_piece){.length = length, .tokens = tokens, .token_count = token_count};
    char *end = (char *)(piece + 1);
    if (token_count > 0) {
        piece->token = (struct request_token *)(void *)end;
        memcpy(piece->token, token, records);
    }
    piece->text = end + records;
    if (length > 0) memcpy(piece->text, text, length);
    piece->text[length] = '\0';
    return piece;
}

bool request_push_piece(struct request *request, const char *text, size_t length, int tokens,
                        const struct request_token *token, int token_count)
{
    if (atomic_load(&request->abandoned)) return true;
    struct request_piece *piece = piece_new(text, length, tokens, token, token_count);
    if (!piece) return false;
    pthread_mutex_lock(&request->lock);
    assert(request->finish == REQUEST_RUNNING);
    *request->last = piece;
    request->last = &piece->next;
    pthread_mutex_unlock(&request->lock);
    request_notify(request);
    return true;
}

void request_finish(struct request *request, enum request_finish finish, const char *error)
{
    pthread_mutex_lock(&request->lock);
    bool first = request->finish == REQUEST_RUNNING;
    if (first) {
        request->finish = finish;
        if (finish == REQUEST_FAILED && error) request->error = strdup(error);
    }
    pthread_mutex_unlock(&request->lock);
    if (first) request_notify(request);
}

void request_set_usage(struct request *request, const struct request_usage *usage)
{
    pthread_mutex_lock(&request->lock);
    request->usage = *usage;
    pthread_mutex_unlock(&request->lock);
}

/* -------------------------------------------------------------------------------- front's side */

struct request_piece *request_take(struct request *request)
{
    pthread_mutex_lock(&request->lock);
    struct request_piece *list = request->first;
    request->first = NULL;
    request->last = &request->first;
    pthread_mutex_unlock(&request->lock);
    return list;
}

void request_piece_free(struct request_piece *list)
{
    while (list) {
        struct request_piece *next = list->next;
        free(list);
        list = next;
    }
}

bool request_ended(struct request *request, enum request_finish *finish, const char **error)
{
    pthread_mutex_lock(&request->lock);
    *finish = request->finish;
    *error = NULL;
    if (request->finish == REQUEST_FAILED)
        *error = request->error ? request->error : "the generation failed";
    pthread_mutex_unlock(&request->lock);
    return *finish != REQUEST_RUNNING;
}

void request_cancel(struct request *request)
{
    atomic_store(&request->abandoned, true);
    atomic_store(&request->cancelled, true);
    pthread_mutex_lock(&request->notify_lock); /* waits for a notify that runs */
    request->notify = NULL;
    pthread_mutex_unlock(&request->notify_lock);
}

void request_get_usage(struct request *request, struct request_usage *out)
{
    pthread_mutex_lock(&request->lock);
    *out = request->usage;
    pthread_mutex_unlock(&request->lock);
}
