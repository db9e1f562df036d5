/* request.h - one generation: what a client asked for, and the pipe through which its tokens come
 * back.
 *
 * Made by the front (HTTP), owned jointly: the front and the node each hold a reference. The node's
 * loop thread writes pieces; the front takes them in order. `notify` is called from the loop thread
 * whenever pieces or the end were added; it must not block.
 */
#ifndef CONTROLLER_REQUEST_H
#define CONTROLLER_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/trimtab.h"

#define REQUEST_MAX_LOGPROBS 20
#define REQUEST_MAX_STOPS 16

struct request_params {
    float temperature, top_p, min_p;
    int top_k;
    float presence_penalty, frequency_penalty, repetition_penalty;
    bool seeded;
    uint64_t seed;
    uint32_t choice, prompt; /* choice index (`n`), prompt index: part of the stream key */
    int max_tokens;          /* 0 = not given: the node caps it at a fair share */
    int min_tokens;
    bool ignore_eos;
    int logprobs; /* -1 = none, else the number of alternatives, 0 .. REQUEST_MAX_LOGPROBS */
    char *stop[REQUEST_MAX_STOPS]; /* owned */
    int stop_count;
    struct tt_logit_bias *bias; /* owned */
    size_t bias_count;
    bool rule_given; /* `trimtab_rule` asked for a rule: */
    enum tt_rule rule;
};
void request_params_default(struct request_params *params); /* temperature 1, everything else off */

struct request_logprob {
    int32_t token;
    float logprob;
};

struct request_token { /* kept per emitted token only when logprobs were asked for */
    int32_t token;
    float logprob;
    int alternatives;
    struct request_logprob alternative[REQUEST_MAX_LOGPROBS];
    size_t text_offset, text_length; /* in the piece's text */
};

enum request_finish {
    REQUEST_RUNNING = 0,
    REQUEST_STOP,
    REQUEST_LENGTH,
    REQUEST_CANCELLED,
    REQUEST_FAILED
};

struct request_piece { /* one step's worth of text: valid UTF-8, never splits a character */
    char *text;
    size_t length;
    int tokens;
    struct request_token *token; /* (token_count), NULL without logprobs */
    int token_count;
    struct request_piece *next;
};

struct request;

/* Takes over the contents of params (stop strings, bias) and the prompt ids (malloc'd). NULL when
 * out of memory: both stay the caller's. */
struct request *request_new(struct request_params *params, int32_t *prompt, int prompt_count,
                            void (*notify)(void *state), void *notify_state);
struct request *request_ref(struct request *request);
void request_unref(struct request *request); /* NULL-safe */

/* Front's side. */
/* The next pieces (a list, the caller's to free), or NULL. */
struct request_piece *request_take(struct request *request);
void request_piece_free(struct request_piece *list);
/* Finished? Then *finish and, for REQUEST_FAILED, *error (owned by the request) are set. Asked
 * before request_take, a true answer means that nothing comes after what is taken then. */
bool request_ended(struct request *request, enum request_finish *finish, const char **error);
/* The client went away; no notify runs or starts after it returns. Call it without any lock that
 * the notify takes. */
void request_cancel(struct request *request);
struct request_usage {
    int prompt_tokens, completion_tokens, drafted, accepted, cached_tokens;
    double queue_ms, prefill_ms;
};
void request_get_usage(struct request *request, struct request_usage *out);

#endif
