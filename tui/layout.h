/* layout.h - where everything goes: a pure function of the screen's size and of what there is to
 * show.
 *
 * Rectangles never overlap and never leave the screen (swept from 1×1 to 250×80 by a test). A part
 * without room has no rows. Wider screens get more columns, taller ones taller charts and more
 * panels; the order from top to bottom never changes.
 */
#ifndef TUI_LAYOUT_H
#define TUI_LAYOUT_H

#include "tui/screen.h"

#define LAYOUT_MIN_ROWS 12
#define LAYOUT_MIN_COLS 60

enum layout_part {
    LAYOUT_HEADER, /* who and when; all views */
    LAYOUT_MODE,   /* overview only, down to LAYOUT_RECENT */
    LAYOUT_VERIFY,
    LAYOUT_POSITIONS, /* title, head, a row a position */
    LAYOUT_SLOPE,     /* title and chart, as all charts */
    LAYOUT_THROUGHPUT,
    LAYOUT_TOGGLE,    /* one line: what the last change of mode did */
    LAYOUT_TOKENS,    /* tokens per step; tall screens */
    LAYOUT_RECENT,    /* last decisions; tall screens */
    LAYOUT_HEALTH,    /* one line; all views */
    LAYOUT_BODY,      /* list of the other views: title, head, rows */
    LAYOUT_DETAIL,    /* what belongs to the selected row */
    LAYOUT_FOOTER,    /* keys, question or answer */
    LAYOUT_TOO_SMALL, /* the only part of a screen below 60×12 */
    LAYOUT_PARTS
};

enum layout_kind { LAYOUT_OVERVIEW, LAYOUT_LIST, LAYOUT_LIST_DETAIL };

struct layout {
    struct rect part[LAYOUT_PARTS];
};

/* positions: rows that the overview's table wants. detail_rows: what the detail of a LIST_DETAIL
 * wants, title included. */
void layout_compute(enum layout_kind kind, int rows, int cols, int positions, int detail_rows,
                    struct layout *out);

/* Columns of the table of positions, for a panel that is `cols` wide. A column that is not shown
 * has no width. */
enum layout_column {
    COLUMN_POSITION,
    COLUMN_INTERCEPT,
    COLUMN_INTERVAL,
    COLUMN_BAR,
    COLUMN_ACCEPTED,
    COLUMN_PREDICTED,
    COLUMN_DIFFERENCE,
    COLUMN_SURVIVAL,
    COLUMN_REACHED,
    COLUMN_N,
    LAYOUT_COLUMNS
};
struct layout_span {
    int col, cols; /* of the text; one blank at least stands between two columns */
};
void layout_positions(int cols, struct layout_span out[LAYOUT_COLUMNS]);

#endif
