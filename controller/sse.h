/* sse.h - server-sent events (WHATWG HTML, "Server-sent events") out of bytes as they arrive: the
 * data of each event; other fields, comments and keep-alives are passed over.
 */
#ifndef CONTROLLER_SSE_H
#define CONTROLLER_SSE_H

#include <stdbool.h>
#include <stddef.h>

#include "controller/buffer.h"

struct sse {
    /* An event's data, its lines joined by newlines; not terminated, valid during the call. False:
     * no more of the stream is wanted. */
    bool (*event)(void *state, const char *data, size_t length);
    void *state;
    size_t limit;   /* most bytes of one event */
    bool too_large; /* one was larger, or memory ran out */
    struct buffer line, data;
    size_t scanned; /* bytes of line without a newline */
};

/* The next bytes. False when event() said so, or too_large: nothing more is to be given. */
bool sse_take(struct sse *sse, const char *bytes, size_t count);
/* Before the first bytes of another stream: what was left of the last one is forgotten. */
void sse_clear(struct sse *sse);
void sse_free(struct sse *sse); /* releases what it holds, not the structure */

#endif
