/* screen.h - a grid of character cells that the views draw into and that a terminal, a golden file
 * or a pipe shows.
 *
 * Owns the cells. Nothing can be drawn outside the grid or the clip set by screen_clip. Control
 * characters are dropped, wide characters take two cells. In ASCII mode every glyph of ours has a
 * one-column stand-in, other characters become `?`.
 */
#ifndef TUI_SCREEN_H
#define TUI_SCREEN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tui/scheme.h"

struct rect {
    int row, col, rows, cols;
};

struct cell {
    uint32_t character;    /* 0 = right half of the wide character before it */
    unsigned char element; /* enum element */
    bool faint;            /* dimmed beyond its element: stale values */
};

struct screen;

#define SCREEN_MAX_ROWS 1000
#define SCREEN_MAX_COLS 1000

/* Sizes are clamped to 1 .. SCREEN_MAX. NULL when out of memory. */
struct screen *screen_new(int rows, int cols, bool ascii);
void screen_free(struct screen *screen); /* NULL-safe */
/* Change the size; the cells become blank. False when out of memory (the screen stays as it is). */
bool screen_resize(struct screen *screen, int rows, int cols);
int screen_rows(const struct screen *screen);
int screen_cols(const struct screen *screen);
bool screen_is_ascii(const struct screen *screen);
const struct cell *screen_cell(const struct screen *screen, int row, int col);

void screen_erase(struct screen *screen);                         /* blank, and no clip */
void screen_clip(struct screen *screen, const struct rect *clip); /* NULL = the whole grid */
/* Draw text from (row, col), at most max_cols columns (< 0: up to the clip). Returns the columns it
 * advanced. */
int screen_put(struct screen *screen, int row, int col, int max_cols, enum element element,
               const char *text);
int screen_printf(struct screen *screen, int row, int col, enum element element, const char *format,
                  ...) __attribute__((format(printf, 5, 6)));
/* The same, its last column at col - 1; returns the first column. */
int screen_put_right(struct screen *screen, int row, int col, enum element element,
                     const char *text);
void screen_put_char(struct screen *screen, int row, int col, enum element element,
                     uint32_t character);
void screen_fill(struct screen *screen, int row, int col, int cols, enum element element,
                 uint32_t character);
/* Keep the characters of a part of a row, change how they look. */
void screen_paint(struct screen *screen, int row, int col, int cols, enum element element);
void screen_dim(struct screen *screen, const struct rect *area); /* values that are not of now */

/* Write the text, one line a row, trailing blanks removed. */
void screen_write(const struct screen *screen, FILE *out);
void screen_write_rows(const struct screen *screen, int rows, FILE *out); /* the first `rows` */
/* Write one letter a cell for its element (scheme.h); dimmed cells as `~`. */
void screen_write_styles(const struct screen *screen, FILE *out);

#endif
