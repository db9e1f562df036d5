/* text.h - text from outside made safe for a terminal, and numbers made readable: 3 significant
 * digits, SI, `--` for unknown.
 *
 * Owns no memory. Strings are UTF-8 here whatever the locale is; a locale that cannot show a
 * character gets `?`. Widths are those of wcwidth(3). Everything that a node, a file or a server
 * sent goes through text_clean or the screen, which cleans too.
 */
#ifndef TUI_TEXT_H
#define TUI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_REPLACEMENT 0xfffd /* what a damaged byte becomes */
#define TEXT_UNKNOWN "--"       /* absent; never 0 or nan */

/* Decode one character at *text and step over it. A damaged byte gives TEXT_REPLACEMENT; the end
 * gives 0. */
uint32_t text_next(const char **text);
/* Encode one character; returns its bytes (1 .. 4), `out` is terminated. */
size_t text_encode(uint32_t character, char out[5]);
/* Columns of a character: 0 = not to be drawn (control, combining), 1 or 2. What the locale cannot
 * show counts 1 (`?`). */
int text_char_width(uint32_t character);
/* Columns of a string as the screen would draw it. */
int text_width(const char *text);
/* Copy without control characters, line breaks as one blank, cut to fit `size` at a character.
 * Returns `out`. */
char *text_clean(char *out, size_t size, const char *text);
/* The same, cut to `columns` with an ellipsis in place of what was left out. */
char *text_shorten(char *out, size_t size, const char *text, int columns);

/* Numbers. Each fills `out` (at least TEXT_NUMBER) and returns it; not finite gives `--`. */
#define TEXT_NUMBER 32
char *text_significant(char out[TEXT_NUMBER], double value); /* 412, 2.31, 23.4, 1.84k, 0.0123 */
char *text_decimal(char out[TEXT_NUMBER], double value,
                   int decimals); /* fixed decimals; never "-0.00" */
char *text_signed(char out[TEXT_NUMBER], double value,
                  int decimals); /* the same with its sign: +0.8 */
char *text_count(char out[TEXT_NUMBER],
                 int64_t count); /* 1840, 91840, 1.24M; negative is unknown */
char *text_uptime(char out[TEXT_NUMBER], double seconds);           /* 00:12:41, 3d 04:12 */
char *text_age(char out[TEXT_NUMBER], double seconds);              /* 12 s, 4 min, 3 h, 2 d */
char *text_young_age(char out[TEXT_NUMBER], double seconds);        /* 0.4 s, then as text_age */
char *text_clock(char out[TEXT_NUMBER], int64_t time_ms, bool utc); /* 12:04:31; <= 0 is unknown */
char *text_date(char out[TEXT_NUMBER], int64_t time_ms, bool utc);  /* 2026-11-30 12:04:31 */
/* The clock, with its date when that is not the date of now_ms. */
char *text_moment(char out[TEXT_NUMBER], int64_t time_ms, int64_t now_ms, bool utc);
/* The same in a table's or a line's few columns: 12:04:31 on the day of now_ms, 11-29 12:04 on
 * another, the date alone in another year. */
char *text_moment_brief(char out[TEXT_NUMBER], int64_t time_ms, int64_t now_ms, bool utc);
char *text_span(char out[TEXT_NUMBER], int64_t span_ms);           /* 15 min, 60 min, 6 h, 7 d */
char *text_zone(char out[TEXT_NUMBER], int64_t time_ms, bool utc); /* UTC, CEST */

#endif
