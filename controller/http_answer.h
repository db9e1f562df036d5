/* http_answer.h - one HTTP/1.1 answer as it came over the wire (status line, headers, body with its
 * chunk framing), kept in a file: its body, or why it is not whole.
 */
#ifndef CONTROLLER_HTTP_ANSWER_H
#define CONTROLLER_HTTP_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#include "controller/buffer.h"

bool http_answer_is(const char *text, size_t length); /* begins like one, or like a plain text? */
/* Appends the body. 0 with *status and the content type (cut at its size, empty when unnamed), or
 * -1 with *cause: a malformed head, fewer bytes than promised, a broken chunk. */
int http_answer_read(const char *text, size_t length, int *status, char *type, size_t type_size,
                     struct buffer *body, char **cause);

#endif
