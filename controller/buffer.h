/* buffer.h - growable text: bodies that arrive and bodies that are built, with the JSON escapes a
 * formatter needs.
 *
 * Errors stick: after memory ran out `failed` is set, nothing more is added, and the one who sends
 * the text looks once.
 */
#ifndef CONTROLLER_BUFFER_H
#define CONTROLLER_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct buffer {
    char *data; /* NULL until something was added; not terminated */
    size_t length, capacity;
    bool failed;
};

void buffer_free(struct buffer *buffer);  /* releases the memory and makes it empty */
void buffer_clear(struct buffer *buffer); /* empty; keeps the memory, forgets a failure */

void buffer_add(struct buffer *buffer, const void *bytes, size_t count);
void buffer_add_text(struct buffer *buffer, const char *text);
void buffer_add_format(struct buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void buffer_add_json(struct buffer *buffer, const char *text, size_t length);
/* A number that reads back equal to `digits` significant digits in every locale; null when it is
 * not finite. */
void buffer_add_number(struct buffer *buffer, double value, int digits);

/* Length of the well-formed UTF-8 character at text (1 .. 4), or 0. */
size_t utf8_length(const char *text, size_t available);
/* Length of the longest prefix of a terminated text that is well-formed. */
size_t utf8_prefix(const char *text);

#endif
