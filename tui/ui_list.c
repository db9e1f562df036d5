/* ui_list.c - what the list views share: columns, heads, selection by identity, filter, wrapped
 * text. See ui_state.h. */
#include "config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tui/text.h"
#include "tui/ui_state.h"

/* A cell, right-aligned or cut; returns the next column. */
int ui_draw_field(struct screen *screen, int row, int col, const struct ui_column *column, int cols,
                  enum element element, const char *text)
{
    char shown[300];
    int width = abs(column->cols);

    if (cols < column->from_cols || col + width > cols) return col;
    text_shorten(shown, sizeof shown, text, width);
    if (column->cols > 0)
        screen_put_right(screen, row, col + width, element, shown);
    else
        screen_put(screen, row, col, -1, element, shown);
    return col + width + 2;
}

void ui_draw_heads(struct screen *screen, int row, const struct ui_column *column, int count,
                   int cols, int sorted)
{
    int col = 1;

    for (int i = 0; i < count; i++) {
        int next = ui_draw_field(screen, row, col, &column[i], cols,
                                 i == sorted ? ELEMENT_TITLE : ELEMENT_LABEL, column[i].head);

        if (i == sorted && next > col)
            screen_put(screen, row, next - 2, 1, ELEMENT_TITLE,
                       i == 0 || column[i].cols < 0
                           ? "\xe2\x86\x91"
                           : "\xe2\x86\x93"); /* names rise, figures fall */
        col = next;
    }
}

void ui_frame(struct ui *ui, struct screen *screen, enum layout_kind kind, int detail_rows,
              struct layout *layout)
{
    layout_compute(kind, screen_rows(screen), screen_cols(screen), 0, detail_rows, layout);
    view_draw_header(ui, screen, &layout->part[LAYOUT_HEADER]);
    view_draw_health(ui, screen, &layout->part[LAYOUT_HEALTH]);
    view_draw_footer(ui, screen, &layout->part[LAYOUT_FOOTER]);
}

void ui_dim_if_stale(const struct ui *ui, struct screen *screen, const struct layout *layout)
{
    if (!ui_is_stale(ui)) return;
    screen_dim(screen, &layout->part[LAYOUT_BODY]);
    screen_dim(screen, &layout->part[LAYOUT_DETAIL]);
}

/* ` 3 of 12 shown, filter "x"` at the right of the title's rule. */
void ui_draw_filter_note(struct screen *screen, const struct rect *panel,
                         const struct ui_list *list, int shown, int all)
{
    char text[UI_FILTER + 64];

    if (list->filter[0] == '\0') return;
    snprintf(text, sizeof text, " %d of %d with \"%s\" ", shown, all, list->filter);
    screen_put_right(screen, panel->row, panel->cols - 2, ELEMENT_NOTE, text);
}

/* Text over several rows, broken at blanks. Returns the next row. */
int ui_draw_wrapped(struct screen *screen, int row, int col, int cols, int row_end,
                    enum element element, const char *text)
{
    while (*text != '\0' && row < row_end) {
        const char *at = text, *cut = text;
        int used = 0;
        char line[400];

        while (*at != '\0') {
            const char *next = at;
            int width = text_char_width(text_next(&next));

            if (used + width > cols || next - text >= (int)sizeof line) break;
            used += width;
            at = next;
            if (*at == ' ' || *at == '\0') cut = at;
        }
        if (cut == text) cut = at; /* one long word */
        if (cut == text) return row;
        snprintf(line, sizeof line, "%.*s", (int)(cut - text), text);
        screen_put(screen, row++, col, -1, element, line);
        text = cut;
        while (*text == ' ') text++;
    }
    return row;
}

void ui_list_settle(struct ui *ui, struct ui_list *list, int count, int rows,
                    int64_t (*identity_of)(const struct ui *ui, int row))
{
    /* rows that are alike in every respect share an identity: the one at its place stays */
    bool stays = list->identity >= 0 && list->selected >= 0 && list->selected < count &&
                 identity_of(ui, list->selected) == list->identity;

    for (int i = 0; i < count && !stays && list->identity >= 0; i++) {
        if (identity_of(ui, i) != list->identity) continue;
        list->selected = i;
        break;
    }
    if (list->selected >= count) list->selected = count - 1;
    if (list->selected < 0) list->selected = 0;
    list->identity = count > 0 ? identity_of(ui, list->selected) : -1;
    if (list->selected < list->top) list->top = list->selected;
    if (list->selected >= list->top + rows) list->top = list->selected - rows + 1;
    if (list->top > count - rows) list->top = count - rows;
    if (list->top < 0) list->top = 0;
}

int64_t ui_identity(int64_t identity, const char *text)
{
    uint64_t hash = (uint64_t)identity;

    for (; *text != '\0'; text++) /* FNV-1a */
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return (int64_t)((hash * UINT64_C(1099511628211)) >> 1); /* where one text ends counts */
}

const char *ui_why_unknown(const struct ui *ui, enum model_list list)
{
    return ui->model->refusal[list][0] != '\0' ? ui->model->refusal[list] : "not fetched yet";
}

bool ui_filter_matches(const char *filter, const char *text)
{
    size_t length = strlen(filter);

    if (length == 0) return true;
    for (; *text != '\0'; text++) {
        size_t i = 0;

        while (i < length && tolower((unsigned char)text[i]) == tolower((unsigned char)filter[i]))
            i++;
        if (i == length) return true;
    }
    return false;
}
