/* view_cost.c - view 4: what a target forward pass costs by its tokens, which sizes the node really
 * runs, how well a step's time is predicted, and what each fixed K would give now.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tui/chart.h"
#include "tui/text.h"
#include "tui/ui_state.h"

enum {
    COST_TOKENS,
    COST_CONTEXT,
    COST_MS,
    COST_SPREAD,
    COST_EACH,
    COST_N,
    COST_DROPPED,
    COST_COLUMNS
};
static const struct ui_column cost_column[COST_COLUMNS] = {
    {"tokens", 6, 0},   {"context", -7, 0}, {"ms", 7, 0},      {"spread", 6, 0},
    {"ms/token", 8, 0}, {"n", 6, 0},        {"dropped", 7, 0},
};
#define COST_BAR_COL 62 /* where the columns end */

/* The bands of the cost model (controller/cost.h): mean KV cells in use. */
static const char *context_name(int band)
{
    static const char *const names[] = {"< 512", "< 2048", "< 8192", "more"};

    return band >= 0 && band < 4 ? names[band] : TEXT_UNKNOWN;
}

static void draw_bar(struct screen *screen, int row, int col, int cols, double part)
{
    int length = isfinite(part) && part > 0 ? (int)lround(fmin(part, 1) * cols) : 0;

    screen_fill(screen, row, col, length, ELEMENT_AREA, screen_is_ascii(screen) ? '=' : 0x2588);
}

static void draw_cost(struct screen *screen, int row, int cols, const struct model_cost *c,
                      double most_ms)
{
    char text[COST_COLUMNS][TEXT_NUMBER];
    int col = 1;

    text_count(text[COST_TOKENS], c->tokens);
    snprintf(text[COST_CONTEXT], TEXT_NUMBER, "%s", context_name(c->context_band));
    text_significant(text[COST_MS], c->ms);
    text_significant(text[COST_SPREAD], c->spread_ms);
    text_significant(text[COST_EACH], c->tokens > 0 ? c->ms / (double)c->tokens : (double)NAN);
    text_count(text[COST_N], c->n);
    text_count(text[COST_DROPPED], c->dropped);
    for (int i = 0; i < COST_COLUMNS; i++)
        col = ui_draw_field(screen, row, col, &cost_column[i], cols,
                            i == COST_MS ? ELEMENT_STRONG : ELEMENT_VALUE, text[i]);
    draw_bar(screen, row, COST_BAR_COL, cols - COST_BAR_COL - 1, c->ms / most_ms);
}

static int64_t cost_identity(const struct ui *ui, int row)
{
    return ui->model->cost[row].tokens * 16 + ui->model->cost[row].context_band;
}

/* ---- the staircase: time by tokens, one context band, tokens on a logarithmic axis */

#define PLOT_AXIS_COLS 7
#define PLOT_EXTRA_ROWS 4 /* title, histogram, axis, figures of the selected cell */
#define PLOT_LEAST_ROWS (PLOT_EXTRA_ROWS + 4)
#define PLOT_MOST_ROWS 18

struct plot {
    const struct model_cost *cell[MODEL_COSTS]; /* of the band, by tokens */
    int count;
    double most_ms, most_tokens;
};

static void fill_plot(const struct model *model, int band, struct plot *plot)
{
    memset(plot, 0, sizeof *plot);
    for (int i = 0; i < model->costs_count; i++) {
        const struct model_cost *c = &model->cost[i];
        int at = plot->count;

        if (c->context_band != band || c->tokens < 1 || !isfinite(c->ms)) continue;
        for (; at > 0 && plot->cell[at - 1]->tokens > c->tokens; at--)
            plot->cell[at] = plot->cell[at - 1];
        plot->cell[at] = c;
        plot->count++;
        plot->most_ms = fmax(plot->most_ms, c->ms);
        plot->most_tokens = fmax(plot->most_tokens, (double)c->tokens);
    }
}

/* Place of a number of tokens on an axis of `cells`. */
static int token_cell(const struct plot *plot, int cells, double tokens)
{
    double part = plot->most_tokens > 1 ? log2(fmax(tokens, 1)) / log2(plot->most_tokens) : 0;

    return (int)lround(fmin(part, 1) * (cells - 1));
}

/* Straight lines between measured sizes. */
static double interpolate(const struct plot *plot, double tokens)
{
    for (int i = 1; i < plot->count; i++) {
        const struct model_cost *a = plot->cell[i - 1], *b = plot->cell[i];

        if (tokens > (double)b->tokens && i + 1 < plot->count) continue;
        if (b->tokens == a->tokens) return b->ms;
        return a->ms +
               (b->ms - a->ms) * (tokens - (double)a->tokens) / (double)(b->tokens - a->tokens);
    }
    return plot->count > 0 ? plot->cell[0]->ms : (double)NAN;
}

static void draw_curve(struct screen *screen, const struct rect *area, const struct plot *plot,
                       const struct model_cost *selected)
{
    double bucket[CHART_MAX_BUCKETS];
    const struct chart_range range = {0, plot->most_ms};
    int count = chart_buckets(screen, area->cols);
    char number[TEXT_NUMBER];

    if (count > CHART_MAX_BUCKETS) count = CHART_MAX_BUCKETS;
    for (int i = 0; i < count; i++)
        bucket[i] = interpolate(plot, exp2(log2(plot->most_tokens) * i / (count - 1)));
    chart_draw(screen, area, CHART_CURVE, ELEMENT_CURVE, bucket, NULL, count, &range);
    for (int i = 0; i < plot->count; i++) {
        const struct model_cost *c = plot->cell[i];
        int row = area->row + (int)lround((1 - c->ms / plot->most_ms) * (area->rows - 1));

        screen_put_char(screen, row, area->col + token_cell(plot, area->cols, (double)c->tokens),
                        c == selected ? ELEMENT_SELECTED : ELEMENT_POINT, 0x25cf);
    }
    screen_put_right(screen, area->row, area->col - 1, ELEMENT_FAINT,
                     text_significant(number, plot->most_ms));
    screen_put_right(screen, area->row + area->rows - 1, area->col - 1, ELEMENT_FAINT, "0 ms");
}

/* How often each size ran, over the charts' window, on the axis of the curve. */
static void draw_sizes(const struct ui *ui, struct screen *screen, const struct rect *area,
                       const struct plot *plot)
{
    const struct series *rows = model_series(ui->model, SERIES_ROWS);
    const int64_t to_ms = ui_chart_end_ms(ui), from_ms = to_ms - ui->window_ms;
    double seconds[SCREEN_MAX_COLS] = {0};
    bool any = false;

    for (int i = 0; i < rows->count; i++) {
        const struct series_point *point = &rows->point[i];

        if (point->time_ms < from_ms || point->time_ms >= to_ms || !isfinite(point->value))
            continue;
        seconds[token_cell(plot, area->cols, point->value)]++;
        any = true;
    }
    screen_put_right(screen, area->row, area->col - 1, ELEMENT_FAINT, "run");
    for (int i = 0; i < area->cols; i++)
        if (seconds[i] == 0) seconds[i] = NAN;
    if (any)
        chart_sparkline(screen, area->row, area->col, ELEMENT_SPARK, seconds, area->cols);
    else
        screen_put(screen, area->row, area->col, -1, ELEMENT_FAINT,
                   "no steps in the charts' window");
}

static void draw_token_axis(struct screen *screen, const struct rect *area, const struct plot *plot)
{
    int free_from = 0;

    screen_put_right(screen, area->row, area->col - 1, ELEMENT_FAINT, "tokens");
    for (int tokens = 1; tokens <= (int)plot->most_tokens; tokens *= 2) {
        char number[16];
        int col = token_cell(plot, area->cols, tokens);

        snprintf(number, sizeof number, "%d", tokens);
        if (col + text_width(number) > area->cols) col = area->cols - text_width(number);
        if (col < free_from) continue;
        free_from =
            col + 1 + screen_put(screen, area->row, area->col + col, -1, ELEMENT_FAINT, number);
    }
}

/* The selected cell in figures, and how well a step's time is predicted. */
static void draw_figures(const struct ui *ui, struct screen *screen, int row, int cols,
                         const struct model_cost *c)
{
    const struct snapshot *s = &ui->shown;
    char cell[160], ms[TEXT_NUMBER], spread[TEXT_NUMBER], each[TEXT_NUMBER], n[TEXT_NUMBER],
        dropped[TEXT_NUMBER], predicted[TEXT_NUMBER], measured[TEXT_NUMBER], error[TEXT_NUMBER],
        step[96];

    snprintf(cell, sizeof cell, "%s \xc2\xb1 %s ms", text_significant(ms, c->ms),
             text_significant(spread, c->spread_ms));
    snprintf(step, sizeof step, "%s predicted, %s measured",
             text_significant(predicted, s->predicted_step_ms),
             text_significant(measured, s->step_ms));
    char tokens[48];
    snprintf(tokens, sizeof tokens, "%lld token%s", (long long)c->tokens,
             c->tokens == 1 ? "" : "s");
    const struct ui_label label[] = {
        {tokens, cell, "", ELEMENT_STRONG},
        {"each", text_significant(each, c->ms / (double)c->tokens), "", ELEMENT_VALUE},
        {"n", text_count(n, c->n), "", ELEMENT_VALUE},
        {"step", step, "ms", ELEMENT_VALUE},
        {"off by", text_decimal(error, s->cost_error_ratio * 100, 1), "%", ELEMENT_VALUE},
        {"context", context_name(c->context_band), "", ELEMENT_VALUE},
        {"dropped", text_count(dropped, c->dropped), "", ELEMENT_VALUE},
    };
    ui_draw_labels(screen, row, 1, cols, label, sizeof label / sizeof label[0]);
}

static void draw_plot(const struct ui *ui, struct screen *screen, const struct rect *panel,
                      const struct model_cost *selected)
{
    struct rect area = {panel->row + 1, panel->col + PLOT_AXIS_COLS, panel->rows - PLOT_EXTRA_ROWS,
                        panel->cols - PLOT_AXIS_COLS - 1};
    struct plot plot;
    char title[120];

    snprintf(title, sizeof title, "Cost of one target forward pass, measured; context %s",
             context_name(selected->context_band));
    ui_draw_title(ui, screen, panel, title);
    fill_plot(ui->model, selected->context_band, &plot);
    if (plot.count > 0 && plot.most_ms > 0) {
        draw_curve(screen, &area, &plot, selected);
        area.row += area.rows;
        draw_sizes(ui, screen, &area, &plot);
        area.row++;
        draw_token_axis(screen, &area, &plot);
    }
    draw_figures(ui, screen, panel->row + panel->rows - 1, panel->cols, selected);
}

/* "What would fixed K give now?", beside what the node gives and what it planned. */
static void draw_uniform(const struct ui *ui, struct screen *screen, const struct rect *panel)
{
    const struct model *model = ui->model;
    double most = fmax(ui->shown.throughput_tps, ui->shown.predicted_tps); /* fmax leaves NaN out */
    int best = -1, row = panel->row + 1, end = panel->row + panel->rows;
    char number[TEXT_NUMBER], now[TEXT_NUMBER], planned[TEXT_NUMBER];

    for (int k = 0; k < model->uniform_count; k++) {
        most = fmax(most, model->uniform_tps[k]);
        if (isfinite(model->uniform_tps[k]) &&
            (best < 0 || model->uniform_tps[k] > model->uniform_tps[best]))
            best = k;
    }
    ui_draw_title(ui, screen, panel,
                  "What would each fixed K give now? tok/s, from measured costs");
    for (int k = 0; k < model->uniform_count && row < end - 1; k++, row++) {
        screen_printf(screen, row, 1, k == best ? ELEMENT_STRONG : ELEMENT_TEXT,
                      k == 0 ? "off" : "K=%d", k);
        screen_put_right(screen, row, 14, k == best ? ELEMENT_STRONG : ELEMENT_VALUE,
                         text_significant(number, model->uniform_tps[k]));
        if (k == best) screen_put(screen, row, 15, -1, ELEMENT_GOOD, "best");
        draw_bar(screen, row, 21, panel->cols - 22, model->uniform_tps[k] / most);
    }
    const struct ui_label label[] = {
        {"now", text_significant(now, ui->shown.throughput_tps), "tok/s", ELEMENT_STRONG},
        {"planned", text_significant(planned, ui->shown.predicted_tps), "tok/s", ELEMENT_VALUE},
        {"mode", mode_name(ui->shown.mode), "", ELEMENT_VALUE},
    };
    ui_draw_labels(screen, end - 1, 1, panel->cols, label, model_is_known(model) ? 3 : 0);
}

/* The cells as a table, where there is room for more than the plot. */
static void draw_cells(struct ui *ui, struct screen *screen, const struct rect *panel)
{
    const struct model *model = ui->model;
    const struct ui_list *list = &ui->list[VIEW_COST];
    double most_ms = 0;

    for (int i = 0; i < model->costs_count; i++) most_ms = fmax(most_ms, model->cost[i].ms);
    screen_clip(screen, panel);
    ui_draw_heads(screen, panel->row, cost_column, COST_COLUMNS, panel->cols, -1);
    for (int i = list->top; i < model->costs_count && i < list->top + panel->rows - 1; i++) {
        int row = panel->row + 1 + i - list->top;

        draw_cost(screen, row, panel->cols, &model->cost[i], most_ms);
        if (i == list->selected) screen_paint(screen, row, 0, panel->cols, ELEMENT_SELECTED);
    }
}

void view_draw_cost(struct ui *ui, struct screen *screen)
{
    const struct model *model = ui->model;
    struct ui_list *list = &ui->list[VIEW_COST];
    struct layout layout;
    const struct rect *body = &layout.part[LAYOUT_BODY], *detail = &layout.part[LAYOUT_DETAIL];
    const int least_table = 6;
    struct rect plot, table;

    ui_frame(ui, screen, LAYOUT_LIST_DETAIL,
             model->uniform_count > 0 ? 2 + model->uniform_count : 0, &layout);
    plot = table = *body;
    if (plot.rows > PLOT_MOST_ROWS && plot.rows - PLOT_MOST_ROWS >= least_table)
        plot.rows = PLOT_MOST_ROWS;
    if (plot.rows < PLOT_LEAST_ROWS) plot.rows = 0;
    table.rows -= plot.rows > 0 ? plot.rows : 1;
    table.row += plot.rows > 0 ? plot.rows : 1;
    ui_list_settle(ui, list, model->costs_count, table.rows > 1 ? table.rows - 1 : 1,
                   cost_identity);
    if (model->costs_count == 0 || plot.rows == 0)
        ui_draw_title(ui, screen, body, "Cost of one target forward pass, measured");
    if (model->costs_count == 0) {
        screen_put(screen, body->row + 1, 2, -1, ELEMENT_FAINT,
                   model->costs_known ? "nothing measured yet" : ui_why_unknown(ui, LIST_COST));
    } else {
        if (plot.rows > 0) draw_plot(ui, screen, &plot, &model->cost[list->selected]);
        if (table.rows > 1) draw_cells(ui, screen, &table);
    }
    if (detail->rows >= 3) draw_uniform(ui, screen, detail);
    ui_dim_if_stale(ui, screen, &layout);
}
