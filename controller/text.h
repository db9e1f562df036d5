/* text.h - turns the bytes of tokens into text that may be sent: whole UTF-8 characters, cut at
 * stop strings.
 *
 * Bytes that could still become part of a stop string or of a character are held back; what is
 * released is valid UTF-8 (bytes that never form a character become U+FFFD). One assembler serves
 * one generation.
 */
#ifndef CONTROLLER_TEXT_H
#define CONTROLLER_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text;

/* stops are (count) non-empty strings that outlive the assembler. NULL when out of memory. */
struct text *text_new(char *const *stops, int count);
void text_free(struct text *text); /* NULL-safe */

/* Append a token's bytes. True when a stop string is now complete: the text ends before it, further
 * bytes are ignored. */
bool text_add(struct text *text, const char *bytes, size_t length);

/* Take what may be sent now (everything when `final`); malloc'd and terminated, *length bytes, NULL
 * when there is nothing or memory is out. */
char *text_take(struct text *text, bool final, size_t *length);

#endif
