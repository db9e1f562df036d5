/* reply.h - the answer to one HTTP request while it is being made: status, body, the few headers it
 * may carry. */
#ifndef CONTROLLER_REPLY_H
#define CONTROLLER_REPLY_H

#include <jansson.h>

#include "controller/buffer.h"

struct reply {
    int status; /* 0 = not decided yet */
    struct buffer body;
    const char *content_type; /* static text */
    const char *allow;        /* Allow header of a 405; static text */
    int retry_after_s;        /* > 0: Retry-After */
};

void reply_free(struct reply *reply);
/* {"error":{"message","type","param","code"}}, the form of the OpenAI API and of docs/api.md; the
 * type follows from the status. param and code may be NULL (null in JSON). Replaces what the reply
 * held. */
void reply_error(struct reply *reply, int status, const char *param, const char *code,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Takes over `body`; NULL (out of memory while it was built) becomes a 500. */
void reply_json(struct reply *reply, int status, json_t *body);
/* Appends the error object alone, without braces around it: "error":{…}. */
void reply_put_error(struct buffer *out, int status, const char *param, const char *code,
                     const char *message);
/* A JSON string of the text's longest prefix that is UTF-8 (names cut at a buffer's end). */
json_t *reply_text(const char *text);
/* Appends compact JSON. */
void reply_put_json(struct buffer *out, const json_t *value);

#endif
