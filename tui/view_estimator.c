/* view_estimator.c - view 3: what the estimator learned, and how well it is calibrated. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tui/chart.h"
#include "tui/text.h"
#include "tui/ui_state.h"

static const struct chart_range probability = {0, 1};

enum {
    STRATUM_NAME,
    STRATUM_SLOPE,
    STRATUM_INTERVAL,
    STRATUM_REFITS,
    STRATUM_DRIFT,
    STRATUM_EVENTS,
    STRATUM_ECE,
    STRATUM_AUC,
    STRATUM_LABELS,
    STRATUM_LEVEL,
    STRATUM_BRIER,
    STRATUM_LOSS,
    STRATUM_COLUMNS
};
static const struct ui_column stratum_column[STRATUM_COLUMNS] = {
    {"stratum", -20, 0},
    {"slope", 6, 0},
    {"\xc2\xb1"
     "95%",
     6, 0},
    {"refits", 6, 0},
    {"drift z", 7, 0},
    {"events", 6, 0},
    {"ECE", 5, 0},
    {"AUC", 5, 79},
    {"labels", 7, 90},
    {"level", 6, 100},
    {"Brier", 6, 110},
    {"log loss", 8, 120},
};

static double labels_of(const struct model_stratum *s)
{
    double n = 0;

    for (int i = 0; i < MODEL_BINS; i++) n += isfinite(s->bin[i].n) ? s->bin[i].n : 0;
    return n;
}

static void draw_stratum(struct screen *screen, int row, int cols, const struct model_stratum *s)
{
    char text[STRATUM_COLUMNS][TEXT_NUMBER];
    int col = 1;

    text_decimal(text[STRATUM_SLOPE], s->slope, 3);
    text_decimal(text[STRATUM_INTERVAL], UI_NORMAL_95 * s->slope_se, 3);
    text_count(text[STRATUM_REFITS], s->refits);
    text_signed(text[STRATUM_DRIFT], s->drift_z, 1);
    text_count(text[STRATUM_EVENTS], s->drift_events);
    text_decimal(text[STRATUM_ECE], s->ece, 3);
    text_decimal(text[STRATUM_AUC], s->auc, 2);
    text_significant(text[STRATUM_LABELS], labels_of(s));
    text_decimal(text[STRATUM_LEVEL], s->level, 2);
    text_decimal(text[STRATUM_BRIER], s->brier, 3);
    text_decimal(text[STRATUM_LOSS], s->log_loss, 3);
    for (int i = 0; i < STRATUM_COLUMNS; i++)
        col = ui_draw_field(screen, row, col, &stratum_column[i], cols,
                            i == STRATUM_NAME ? ELEMENT_STRONG : ELEMENT_VALUE,
                            i == STRATUM_NAME ? s->stratum : text[i]);
}

static int64_t stratum_identity(const struct ui *ui, int row)
{
    uint64_t sum = 5381; /* Bernstein's string hash: strata are few */

    for (const char *c = ui->model->stratum[row].stratum; *c != '\0'; c++)
        sum = sum * 33 + (unsigned char)*c;
    return (int64_t)(sum >> 1);
}

/* ` 0.6-0.7     412   0.652     0.661  +0.009        ○─● `: predicted and observed should meet. */
static void draw_bin(struct screen *screen, int row, int cols, const struct model_stratum *s,
                     int bin)
{
    double n = s->bin[bin].n, predicted = s->bin[bin].sum_p / n, observed = s->bin[bin].sum_y / n;
    bool known = n >= 1;
    char text[4][TEXT_NUMBER];
    int bar = 46, width = cols - bar - 2, from, to;

    screen_printf(screen, row, 1, ELEMENT_TEXT, "%.1f-%.1f", bin / 10.0, (bin + 1) / 10.0);
    screen_put_right(screen, row, 17, ELEMENT_VALUE, text_significant(text[0], n));
    screen_put_right(screen, row, 27, ELEMENT_VALUE,
                     text_decimal(text[1], known ? predicted : (double)NAN, 3));
    screen_put_right(screen, row, 36, ELEMENT_VALUE,
                     text_decimal(text[2], known ? observed : (double)NAN, 3));
    screen_put_right(screen, row, 44, ELEMENT_VALUE,
                     text_signed(text[3], known ? observed - predicted : (double)NAN, 3));
    if (!known || width < 10) return;
    from = chart_axis_cell(&probability, width, predicted);
    to = chart_axis_cell(&probability, width, observed);
    if (from < 0 || to < 0) return;
    screen_fill(screen, row, bar + (from < to ? from : to), from < to ? to - from : from - to,
                ELEMENT_BAR, 0x2500);
    screen_put_char(screen, row, bar + from, ELEMENT_BAR, 0x25cb);
    screen_put_char(screen, row, bar + to, ELEMENT_POINT, 0x25cf);
}

/* `beside: parity slope 0.61  ECE 0.034  log loss 0.523 (+0.013)`: what the other kind would have
 * made of the same labels. */
static void draw_rival(struct screen *screen, const struct rect *panel,
                       const struct model_stratum *s)
{
    char slope[TEXT_NUMBER], ece[TEXT_NUMBER], loss[TEXT_NUMBER], more[TEXT_NUMBER], text[160];

    if (s->rival.kind[0] == '\0') return;
    snprintf(text, sizeof text, " beside: %s slope %s  ECE %s  log loss %s (%s) ", s->rival.kind,
             text_decimal(slope, s->rival.slope, 3), text_decimal(ece, s->rival.ece, 3),
             text_decimal(loss, s->rival.log_loss, 3),
             text_signed(more, s->rival.log_loss - s->log_loss, 3));
    screen_put_right(screen, panel->row, panel->cols - 1, ELEMENT_VALUE, text);
}

static void draw_calibration(const struct ui *ui, struct screen *screen, const struct rect *panel,
                             const struct model_stratum *s)
{
    char title[120];

    snprintf(title, sizeof title,
             "Calibration of %s: predicted \xe2\x97\x8b, observed \xe2\x97\x8f", s->stratum);
    ui_draw_title(ui, screen, panel, title);
    if (text_width(title) + 64 < panel->cols) draw_rival(screen, panel, s);
    screen_put(screen, panel->row + 1, 1, -1, ELEMENT_LABEL, "predicted");
    screen_put_right(screen, panel->row + 1, 17, ELEMENT_LABEL, "labels");
    screen_put_right(screen, panel->row + 1, 27, ELEMENT_LABEL, "mean");
    screen_put_right(screen, panel->row + 1, 36, ELEMENT_LABEL, "observed");
    screen_put_right(screen, panel->row + 1, 44, ELEMENT_LABEL, "o - p");
    screen_put(screen, panel->row + 1, 46, -1, ELEMENT_FAINT, "0");
    screen_put_right(screen, panel->row + 1, panel->cols - 2, ELEMENT_FAINT, "1");
    for (int bin = 0; bin < MODEL_BINS && bin < panel->rows - 2; bin++)
        draw_bin(screen, panel->row + 2 + bin, panel->cols, s, bin);
}

/* The slope's past and, on tall screens, the statistic that watches it, in the rows that the strata
 * leave. */
static void draw_slope_past(const struct ui *ui, struct screen *screen, const struct rect *body,
                            int used_rows)
{
    static const struct ui_chart drift = {.series = SERIES_DRIFT_Z,
                                          .title = "Drift statistic z, alarm beyond 4.5",
                                          .least_span = 4,
                                          .decimals = 1,
                                          .marks = 1u << MARK_DRIFT};
    const int least = 4;
    struct rect panel = {body->row + used_rows, body->col, body->rows - used_rows, body->cols};

    if (panel.rows < least) return;
    if (panel.rows >= 3 * least) {
        struct rect below = panel;

        below.rows = panel.rows / 3;
        panel.rows -= below.rows;
        below.row += panel.rows;
        ui_draw_chart(ui, screen, &below, &drift);
    }
    ui_draw_chart(ui, screen, &panel, &ui_slope_chart);
}

void view_draw_estimator(struct ui *ui, struct screen *screen)
{
    const struct model *model = ui->model;
    struct ui_list *list = &ui->list[VIEW_ESTIMATOR];
    struct layout layout;
    const struct rect *body = &layout.part[LAYOUT_BODY], *detail = &layout.part[LAYOUT_DETAIL];
    int rows;

    ui_frame(ui, screen, LAYOUT_LIST_DETAIL, 2 + MODEL_BINS, &layout);
    ui_draw_title(ui, screen, body, "Estimator, a row a stratum (drafter/rule/temperature)");
    ui_draw_heads(screen, body->row + 1, stratum_column, STRATUM_COLUMNS, body->cols, -1);
    rows = body->rows - 2;
    ui_list_settle(ui, list, model->strata_count, rows, stratum_identity);
    if (model->strata_count == 0)
        screen_put(screen, body->row + 2, 2, -1, ELEMENT_FAINT,
                   model->strata_known ? "nothing learned yet"
                                       : ui_why_unknown(ui, LIST_CALIBRATION));
    for (int i = list->top; i < model->strata_count && i < list->top + rows; i++) {
        int row = body->row + 2 + i - list->top;

        draw_stratum(screen, row, body->cols, &model->stratum[i]);
        if (i == list->selected) screen_paint(screen, row, 0, body->cols, ELEMENT_SELECTED);
    }
    draw_slope_past(ui, screen, body, 2 + (model->strata_count > 0 ? model->strata_count : 1));
    if (model->strata_count > 0 && detail->rows >= 3)
        draw_calibration(ui, screen, detail, &model->stratum[list->selected]);
    ui_dim_if_stale(ui, screen, &layout);
}
