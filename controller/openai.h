/* openai.h - the wire format of the OpenAI API's completions and chat completions: reading a body,
 * writing answers.
 *
 * Pure text in and out; generate.c runs what was read. Unknown fields are ignored; a field of a
 * wrong type or out of its range is a 400 that names it; what this server cannot do (echo, suffix,
 * tools, images, JSON modes) is refused, never silently left out. Format:
 * https://platform.openai.com/docs/api-reference (completions, chat), and vLLM's additions top_k,
 * min_p, repetition_penalty, ignore_eos, min_tokens.
 */
#ifndef CONTROLLER_OPENAI_H
#define CONTROLLER_OPENAI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "controller/buffer.h"
#include "controller/lm.h"
#include "controller/reply.h"
#include "controller/request.h"

#define OPENAI_MAX_CHOICES 128          /* prompts x n of one request */
#define OPENAI_COMPLETION_MAX_TOKENS 16 /* default of /v1/completions, the API's own */

struct openai_prompt { /* text or tokens, owned */
    char *text;
    size_t length;
    int32_t *token;
    int count;
};

struct openai_task { /* one request body, read */
    bool chat, stream, include_usage;
    char *model; /* NULL = not given */
    int n;
    struct openai_prompt *prompt; /* (prompt_count); completions */
    int prompt_count;
    struct lm_message *message; /* (message_count); chat; texts owned */
    size_t message_count;
    struct request_params params; /* of every choice; `choice` and `prompt` are 0 */
};

/* 0, or -1 with *error filled (400). *task is always safe to clear. */
int openai_read(const char *body, size_t length, bool chat, struct openai_task *task,
                struct reply *error);
void openai_task_clear(struct openai_task *task);

/* A deep copy for one choice; false when out of memory (nothing is left behind). */
bool openai_copy_params(const struct openai_task *task, int prompt, int choice,
                        struct request_params *out);
void openai_clear_params(struct request_params *params);

/* ------------------------------------------------------------------------------------- answers */

struct openai_head { /* the same in every chunk of an answer */
    const char *id, *model;
    int64_t created_s;
    bool chat;
    const struct lm *lm; /* texts of tokens, for logprobs */
    bool logprobs;
    int alternatives; /* asked for: 0 leaves the list of alternatives out */
};

struct openai_usage {
    int64_t prompt_tokens, completion_tokens, cached_tokens;
};

/* "chatcmpl-…" or "cmpl-…" with 24 random hexadecimal digits. */
#define OPENAI_ID_SIZE 36
void openai_make_id(bool chat, char id[OPENAI_ID_SIZE]);

/* Server-sent events, each with its empty line. *characters: code points of this choice sent so
 * far. */
void openai_put_role(struct buffer *out, const struct openai_head *head, int index);
void openai_put_piece(struct buffer *out, const struct openai_head *head, int index,
                      const struct request_piece *piece, int64_t *characters);
void openai_put_finish(struct buffer *out, const struct openai_head *head, int index,
                       enum request_finish finish);
void openai_put_usage(struct buffer *out, const struct openai_head *head,
                      const struct openai_usage *usage);
void openai_put_failure(struct buffer *out, int status, const char *code, const char *message);
void openai_put_done(struct buffer *out);

/* The whole answer at once: choice i has the pieces of list pieces[i]. */
void openai_put_answer(struct buffer *out, const struct openai_head *head,
                       const struct request_piece *const *pieces, const enum request_finish *finish,
                       int count, const struct openai_usage *usage);

#endif
