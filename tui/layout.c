/* layout.c - see layout.h. */
#include "config.h"

#include "tui/layout.h"

#include <string.h>

/* Rows are handed out from the top; what is not enough for a part leaves it empty. */
struct column_of_rows {
    int next, left, cols;
};

static void take(struct column_of_rows *rows, struct rect *part, int count)
{
    if (count <= 0 || count > rows->left) return;
    *part = (struct rect){rows->next, 0, count, rows->cols};
    rows->next += count;
    rows->left -= count;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Heights of the overview's panels, title rows included. */
struct heights {
    int positions, slope, throughput, toggle, tokens, recent;
};

#define LIST_LEAST 5 /* title, head, three rows */
#define CHART_MIN 3  /* a title and two rows */
#define RECENT_MIN 4 /* a title and three decisions */
#define RECENT_MAX 9
#define TOKENS_FROM 22 /* rows that three charts together need before the third one comes */

static struct heights share_rows(int rows, int positions)
{
    struct heights h = {0};
    int wanted = 2 + (positions > 0 ? positions : 1), rest;

    h.positions = least(wanted, rows);
    /* The charts get their least height first, the table scrolls; then charts grow. */
    if (rows >= 2 + 3 + CHART_MIN) h.throughput = CHART_MIN;
    if (rows >= 2 + 3 + 2 * CHART_MIN + 1) {
        h.slope = CHART_MIN;
        h.toggle = 1;
    }
    h.positions = least(wanted, rows - h.throughput - h.slope - h.toggle);
    rest = rows - h.positions - h.throughput - h.slope - h.toggle;
    if (rest < 0 || h.slope == 0) {
        if (h.throughput > 0) h.throughput += rest > 0 ? rest : 0;
        return h;
    }
    if (rest >= 12) {
        h.recent = least(RECENT_MIN + (rest - 12) / 4, RECENT_MAX);
        rest -= h.recent;
    }
    rest += h.slope + h.throughput;
    if (rest >= TOKENS_FROM) h.tokens = rest * 3 / 10;
    rest -= h.tokens;
    h.slope = rest * 2 / 5;
    if (h.slope < CHART_MIN) h.slope = CHART_MIN;
    h.throughput = rest - h.slope;
    return h;
}

void layout_compute(enum layout_kind kind, int rows, int cols, int positions, int detail_rows,
                    struct layout *out)
{
    struct column_of_rows all = {0, rows, cols};
    struct heights h;
    int detail;

    memset(out, 0, sizeof *out);
    if (rows < 1 || cols < 1) return;
    if (rows < LAYOUT_MIN_ROWS || cols < LAYOUT_MIN_COLS) {
        take(&all, &out->part[LAYOUT_TOO_SMALL], 1);
        return;
    }
    out->part[LAYOUT_FOOTER] = (struct rect){rows - 1, 0, 1, cols};
    out->part[LAYOUT_HEALTH] = (struct rect){rows - 2, 0, 1, cols};
    all.left -= 2;
    take(&all, &out->part[LAYOUT_HEADER], 1);
    if (kind != LAYOUT_OVERVIEW) {
        detail = kind == LAYOUT_LIST_DETAIL ? least(detail_rows, all.left - LIST_LEAST) : 0;
        if (detail < CHART_MIN) detail = 0;
        take(&all, &out->part[LAYOUT_BODY], all.left - detail);
        take(&all, &out->part[LAYOUT_DETAIL], detail);
        return;
    }
    take(&all, &out->part[LAYOUT_MODE], 1);
    take(&all, &out->part[LAYOUT_VERIFY], 1);
    h = share_rows(all.left, positions);
    take(&all, &out->part[LAYOUT_POSITIONS], h.positions);
    take(&all, &out->part[LAYOUT_SLOPE], h.slope);
    take(&all, &out->part[LAYOUT_THROUGHPUT], h.throughput);
    take(&all, &out->part[LAYOUT_TOGGLE], h.toggle);
    take(&all, &out->part[LAYOUT_TOKENS], h.tokens);
    take(&all, &out->part[LAYOUT_RECENT], h.recent);
}

void layout_positions(int cols, struct layout_span out[LAYOUT_COLUMNS])
{
    static const struct {
        int width, from_cols; /* least width of the panel that shows it */
    } column[LAYOUT_COLUMNS] = {
        [COLUMN_POSITION] = {3, 0},    [COLUMN_INTERCEPT] = {9, 0},  [COLUMN_INTERVAL] = {6, 0},
        [COLUMN_BAR] = {0, 0},         [COLUMN_ACCEPTED] = {8, 0},   [COLUMN_PREDICTED] = {9, 0},
        [COLUMN_DIFFERENCE] = {7, 96}, [COLUMN_SURVIVAL] = {8, 106}, [COLUMN_REACHED] = {9, 118},
        [COLUMN_N] = {6, 0},
    };
    int used = 1, col = 1, bar;

    memset(out, 0, LAYOUT_COLUMNS * sizeof out[0]);
    for (int i = 0; i < LAYOUT_COLUMNS; i++)
        if (cols >= column[i].from_cols && i != COLUMN_BAR) used += column[i].width + 1;
    bar = cols - used - 4; /* two blanks before it and after it */
    for (int i = 0; i < LAYOUT_COLUMNS; i++) {
        int width = i == COLUMN_BAR ? bar : column[i].width;

        if (cols < column[i].from_cols || width < 1 || col + width > cols) continue;
        if (i == COLUMN_BAR) col++;
        out[i] = (struct layout_span){col, width};
        col += width + 1 + (i == COLUMN_BAR);
    }
}
