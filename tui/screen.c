/* screen.c - see screen.h. */
#include "config.h"

#include "tui/screen.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "tui/text.h"

struct screen {
    int rows, cols;
    bool ascii;
    struct rect clip;
    struct cell *cell; /* (rows, cols) */
};

/* One column for one column, so that ASCII screens have the same layout. */
static const struct {
    uint32_t glyph;
    char ascii;
} stand_ins[] = {
    {0x2500, '-'}, /* ─ */ {0x2502, '|'}, /* │ */ {0x251c, '|'}, /* ├ */ {0x2524, '|'}, /* ┤ */
    {0x2506, ':'}, /* ┆ */ {0x25cf, 'o'}, /* ● */ {0x25b2, '^'}, /* ▲ */ {0x25bc, 'v'}, /* ▼ */
    {0x25b6, '>'}, /* ▶ */ {0x25c0, '<'}, /* ◀ */ {0x2192, '>'}, /* → */ {0x2190, '<'}, /* ← */
    {0x21c4, '='}, /* ⇄ */ {0x2026, '~'}, /* … */ {0x00b7, '-'}, /* · */ {0x00d7, '*'}, /* × */
    {0x00b1, '~'}, /* ± */ {0x2265, '>'}, /* ≥ */ {0x2264, '<'}, /* ≤ */ {0x2212, '-'}, /* − */
    {0x2191, '^'}, /* ↑ */ {0x2193, 'v'}, /* ↓ */ {0x03c3, 's'}, /* σ */ {0x25cb, 'o'}, /* ○ */
};

static uint32_t ascii_for(uint32_t character)
{
    for (size_t i = 0; i < sizeof stand_ins / sizeof stand_ins[0]; i++)
        if (stand_ins[i].glyph == character) return (uint32_t)stand_ins[i].ascii;
    return '?';
}

static int clamp(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

struct screen *screen_new(int rows, int cols, bool ascii)
{
    struct screen *screen = calloc(1, sizeof *screen);

    if (screen == NULL) return NULL;
    screen->ascii = ascii;
    if (!screen_resize(screen, rows, cols)) {
        free(screen);
        return NULL;
    }
    return screen;
}

void screen_free(struct screen *screen)
{
    if (screen == NULL) return;
    free(screen->cell);
    free(screen);
}

bool screen_resize(struct screen *screen, int rows, int cols)
{
    struct cell *cell;

    rows = clamp(rows, 1, SCREEN_MAX_ROWS);
    cols = clamp(cols, 1, SCREEN_MAX_COLS);
    cell = calloc((size_t)rows * (size_t)cols, sizeof *cell);
    if (cell == NULL) return false;
    free(screen->cell);
    screen->cell = cell;
    screen->rows = rows;
    screen->cols = cols;
    screen_erase(screen);
    return true;
}

int screen_rows(const struct screen *screen)
{
    return screen->rows;
}

int screen_cols(const struct screen *screen)
{
    return screen->cols;
}

bool screen_is_ascii(const struct screen *screen)
{
    return screen->ascii;
}

static struct cell *cell_at(const struct screen *screen, int row, int col)
{
    return &screen->cell[(size_t)row * (size_t)screen->cols + (size_t)col];
}

const struct cell *screen_cell(const struct screen *screen, int row, int col)
{
    return cell_at(screen, row, col);
}

void screen_erase(struct screen *screen)
{
    const struct cell blank = {.character = ' ', .element = ELEMENT_TEXT};

    screen_clip(screen, NULL);
    for (int row = 0; row < screen->rows; row++)
        for (int col = 0; col < screen->cols; col++) *cell_at(screen, row, col) = blank;
}

void screen_clip(struct screen *screen, const struct rect *clip)
{
    const struct rect all = {0, 0, screen->rows, screen->cols};
    int row_end, col_end;

    if (clip == NULL) {
        screen->clip = all;
        return;
    }
    screen->clip.row = clamp(clip->row, 0, screen->rows);
    screen->clip.col = clamp(clip->col, 0, screen->cols);
    row_end = clamp(clip->row + clip->rows, screen->clip.row, screen->rows);
    col_end = clamp(clip->col + clip->cols, screen->clip.col, screen->cols);
    screen->clip.rows = row_end - screen->clip.row;
    screen->clip.cols = col_end - screen->clip.col;
}

/* Overwriting one half of a wide character leaves a blank in the other. */
static void split_wide(struct screen *screen, int row, int col)
{
    if (cell_at(screen, row, col)->character == 0 && col > 0)
        cell_at(screen, row, col - 1)->character = ' ';
    if (col + 1 < screen->cols && cell_at(screen, row, col + 1)->character == 0)
        cell_at(screen, row, col + 1)->character = ' ';
}

static bool inside(const struct screen *screen, int row, int col)
{
    const struct rect *clip = &screen->clip;

    return row >= clip->row && row < clip->row + clip->rows && col >= clip->col &&
           col < clip->col + clip->cols;
}

/* Draws one character that fits; returns its columns, 0 when it cannot be drawn at all, -1 when
 * there is no room. */
static int put(struct screen *screen, int row, int col, int room, enum element element,
               uint32_t character)
{
    int width = text_char_width(character);

    if (width == 0) return 0;
    if (screen->ascii && character >= 0x80) {
        width = 1;
        character = ascii_for(character);
    } else if (character >= 0x80 && wcwidth((wchar_t)character) < 0) {
        character = '?';
    }
    if (width > room) return -1;
    for (int i = 0; i < width; i++)
        if (!inside(screen, row, col + i)) return width; /* clipped, but it has its columns */
    for (int i = 0; i < width; i++) {
        split_wide(screen, row, col + i);
        *cell_at(screen, row, col + i) =
            (struct cell){.character = i == 0 ? character : 0, .element = (unsigned char)element};
    }
    return width;
}

int screen_put(struct screen *screen, int row, int col, int max_cols, enum element element,
               const char *text)
{
    int used = 0;
    uint32_t character;

    if (max_cols < 0) max_cols = SCREEN_MAX_COLS;
    while ((character = text_next(&text)) != 0) {
        int width;

        if (character == '\n' || character == '\t') character = ' ';
        width = put(screen, row, col + used, max_cols - used, element, character);
        if (width < 0) break;
        used += width;
    }
    return used;
}

int screen_printf(struct screen *screen, int row, int col, enum element element, const char *format,
                  ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return screen_put(screen, row, col, -1, element, text);
}

int screen_put_right(struct screen *screen, int row, int col, enum element element,
                     const char *text)
{
    int first = col - text_width(text);

    screen_put(screen, row, first, -1, element, text);
    return first;
}

void screen_put_char(struct screen *screen, int row, int col, enum element element,
                     uint32_t character)
{
    put(screen, row, col, SCREEN_MAX_COLS, element, character);
}

void screen_fill(struct screen *screen, int row, int col, int cols, enum element element,
                 uint32_t character)
{
    for (int i = 0; i < cols; i++) screen_put_char(screen, row, col + i, element, character);
}

void screen_paint(struct screen *screen, int row, int col, int cols, enum element element)
{
    for (int i = 0; i < cols; i++)
        if (inside(screen, row, col + i))
            cell_at(screen, row, col + i)->element = (unsigned char)element;
}

void screen_dim(struct screen *screen, const struct rect *area)
{
    for (int row = area->row; row < area->row + area->rows; row++)
        for (int col = area->col; col < area->col + area->cols; col++)
            if (row >= 0 && col >= 0 && row < screen->rows && col < screen->cols)
                cell_at(screen, row, col)->faint = true;
}

void screen_write(const struct screen *screen, FILE *out)
{
    screen_write_rows(screen, screen->rows, out);
}

void screen_write_rows(const struct screen *screen, int rows, FILE *out)
{
    for (int row = 0; row < rows; row++) {
        int end = screen->cols;

        while (end > 0 && cell_at(screen, row, end - 1)->character == ' ') end--;
        for (int col = 0; col < end; col++) {
            char bytes[5];

            if (cell_at(screen, row, col)->character == 0) continue;
            text_encode(cell_at(screen, row, col)->character, bytes);
            fputs(bytes, out);
        }
        fputc('\n', out);
    }
}

void screen_write_styles(const struct screen *screen, FILE *out)
{
    for (int row = 0; row < screen->rows; row++) {
        for (int col = 0; col < screen->cols; col++) {
            const struct cell *cell = cell_at(screen, row, col);

            fputc(cell->faint && cell->character != ' '
                      ? '~'
                      : scheme_letter((enum element)cell->element),
                  out);
        }
        fputc('\n', out);
    }
}
