/* view_overview.c - view 1: one node at a glance; and the table of positions that view 2 shares.
 * See the console page of docs/.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tui/chart.h"
#include "tui/text.h"
#include "tui/ui_state.h"

#define ARROW "\xe2\x86\x92"  /* → */
#define TIMES "\xc3\x97"      /* × */
#define PLUS_MINUS "\xc2\xb1" /* ± */
#define FIRM_S 300            /* seconds a side when the effect of a toggle is counted to its end */
#define SPARK_COLS 8
#define SPARK_MS 60000 /* what the sparkline spans */

static enum element mode_element(enum mode mode)
{
    static const enum element element[] = {[MODE_OFF] = ELEMENT_OFF,
                                           [MODE_FIXED] = ELEMENT_FIXED,
                                           [MODE_ADAPTIVE] = ELEMENT_ADAPTIVE,
                                           [MODE_SHADOW] = ELEMENT_SHADOW};

    return mode == MODE_UNKNOWN ? ELEMENT_FAINT : element[mode];
}

/* ---- mode and verify lines */

static int draw_mode_name(const struct ui *ui, struct screen *screen, int row)
{
    const struct snapshot *s = &ui->shown;
    int col = 1 + screen_put(screen, row, 1, -1, ELEMENT_LABEL, "MODE") + 1;
    char mode[40];

    if (!model_is_known(ui->model))
        return col + screen_put(screen, row, col, -1, ELEMENT_FAINT, TEXT_UNKNOWN);
    col += screen_put(screen, row, col, -1, mode_element(s->mode),
                      mode_describe(s->mode, s->fixed_draft, mode, sizeof mode));
    if (ui->pending && ui->command.kind == COMMAND_MODE && ui->command.mode != s->mode)
        col += screen_printf(screen, row, col, ELEMENT_NOTE, " " ARROW "%s?",
                             mode_name(ui->command.mode));
    else if (s->switching)
        col += screen_put(screen, row, col, -1, ELEMENT_NOTE, " switching");
    return col;
}

static void draw_mode_line(const struct ui *ui, struct screen *screen, const struct rect *area)
{
    const struct snapshot *s = &ui->shown;
    char tps[TEXT_NUMBER], tokens[TEXT_NUMBER], step[TEXT_NUMBER], draft[TEXT_NUMBER],
        verify[TEXT_NUMBER], running[TEXT_NUMBER], queued[TEXT_NUMBER], plan[TEXT_NUMBER];
    double bucket[SPARK_COLS];
    int64_t end_ms = ui_chart_end_ms(ui);
    int col;

    screen_clip(screen, area);
    col = draw_mode_name(ui, screen, area->row) + 2;
    col += screen_put(screen, area->row, col, -1, ELEMENT_STRONG,
                      text_significant(tps, s->throughput_tps));
    col += screen_put(screen, area->row, col, -1, ELEMENT_FAINT, " tok/s ");
    end_ms = (end_ms * SPARK_COLS / SPARK_MS + 1) * SPARK_MS / SPARK_COLS; /* whole buckets */
    series_bucket(model_series(ui->model, SERIES_THROUGHPUT), end_ms - SPARK_MS, end_ms,
                  ui_chart_end_ms(ui), SPARK_MS / SPARK_COLS, bucket, SPARK_COLS);
    chart_sparkline(screen, area->row, col, ELEMENT_SPARK, bucket, SPARK_COLS);
    col += SPARK_COLS + 2;
    const struct ui_label label[] = {
        {"", text_significant(tokens, s->tokens_per_step), "tok/step", ELEMENT_VALUE},
        {"step", text_significant(step, s->step_ms), "ms", ELEMENT_VALUE},
        {"", text_count(running, s->running), "run", ELEMENT_VALUE},
        {"", text_count(queued, s->queued), "wait", s->queued > 0 ? ELEMENT_NOTE : ELEMENT_VALUE},
        {"draft", text_significant(draft, s->draft_ms), "ms", ELEMENT_VALUE},
        {"verify", text_significant(verify, s->verify_ms), "ms", ELEMENT_VALUE},
        {"planned", text_significant(plan, s->predicted_tps), "tok/s", ELEMENT_VALUE},
    };
    ui_draw_labels(screen, area->row, col, area->cols, label, sizeof label / sizeof label[0]);
}

static void draw_verify_line(const struct ui *ui, struct screen *screen, const struct rect *area)
{
    const struct snapshot *s = &ui->shown;
    char verified[TEXT_NUMBER], drafted[TEXT_NUMBER], of[64], ratio[TEXT_NUMBER], own[TEXT_NUMBER],
        window[TEXT_NUMBER], budget[TEXT_NUMBER], steps[TEXT_NUMBER], emitted[TEXT_NUMBER],
        requests[TEXT_NUMBER];

    snprintf(of, sizeof of, "%s of %s", text_significant(verified, s->verified_per_step),
             text_significant(drafted, s->drafted_per_step));
    const struct ui_label label[] = {
        {"verify", of, "drafted/step", ELEMENT_VALUE},
        {"accepted/verified", text_decimal(ratio, s->accepted_verified_ratio, 2), "",
         ELEMENT_VALUE},
        {"own cost", text_decimal(own, s->own_ratio * 100, 1), "%", ELEMENT_VALUE},
        {"over", text_decimal(window, s->window_ms / 1000, 0), "s", ELEMENT_FAINT},
        {"budget", text_significant(budget, s->budget), "/step", ELEMENT_VALUE},
        {"steps", text_count(steps, s->steps), "", ELEMENT_VALUE},
        {"emitted", text_count(emitted, s->emitted_total), "tok", ELEMENT_VALUE},
        {"requests", text_count(requests, s->requests_total), "", ELEMENT_VALUE},
    };
    screen_clip(screen, area);
    ui_draw_labels(screen, area->row, 1, area->cols, label, sizeof label / sizeof label[0]);
}

/* ---- positions */

/* Whole numbers around all intervals, three units wide at least; far outliers leave the axis, the
 * rest stays readable. */
static struct chart_range choose_axis(const struct snapshot *s)
{
    struct chart_range axis = {-2, 1};

    for (int i = 0; i < s->estimator.positions_count; i++) {
        const struct snapshot_position *p = &s->estimator.position[i];
        double half = isfinite(p->intercept_se) ? fmin(UI_NORMAL_95 * p->intercept_se, 1.5) : 0;

        if (!isfinite(p->intercept)) continue;
        axis.low = fmin(axis.low, floor(fmax(p->intercept - half, -8)));
        axis.high = fmax(axis.high, ceil(fmin(p->intercept + half, 8)));
    }
    return axis;
}

static void draw_position_head(struct screen *screen, int row,
                               const struct layout_span span[LAYOUT_COLUMNS],
                               const struct chart_range *axis)
{
    static const char *const head[LAYOUT_COLUMNS] = {
        [COLUMN_POSITION] = "pos",
        [COLUMN_INTERCEPT] = "intercept",
        [COLUMN_INTERVAL] = PLUS_MINUS "95%",
        [COLUMN_ACCEPTED] = "accepted",
        [COLUMN_PREDICTED] = "predicted",
        [COLUMN_DIFFERENCE] = "a - p",
        [COLUMN_SURVIVAL] = "survival",
        [COLUMN_REACHED] = "in window",
        [COLUMN_N] = "n",
    };
    const struct layout_span *bar = &span[COLUMN_BAR];
    int unit = axis->high - axis->low > 6 ? 2 : 1, free_from = 0;

    for (int i = 0; i < LAYOUT_COLUMNS; i++)
        if (head[i] != NULL && span[i].cols > 0)
            screen_put_right(screen, row, span[i].col + span[i].cols, ELEMENT_LABEL, head[i]);
    for (int x = (int)axis->low; x <= (int)axis->high && bar->cols > 0; x += unit) {
        int cell = chart_axis_cell(axis, bar->cols, x), col;
        char number[16];

        snprintf(number, sizeof number, "%d", x);
        col = bar->col + cell - (x < 0); /* the digit stands over its tick */
        if (cell < 0 || col < free_from || (x < 0 && cell == 0 && bar->col == 0)) continue;
        free_from = col + 1 + screen_put(screen, row, col, -1, ELEMENT_FAINT, number);
    }
}

static void draw_position_row(struct screen *screen, int row, const struct snapshot *s,
                              int position, double survival,
                              const struct layout_span span[LAYOUT_COLUMNS],
                              const struct chart_range *axis)
{
    const struct snapshot_position *p = &s->estimator.position[position];
    const struct layout_span *bar = &span[COLUMN_BAR];
    double difference = p->accepted_ratio - p->predicted_ratio;
    char text[LAYOUT_COLUMNS][TEXT_NUMBER];
    int zero = chart_axis_cell(axis, bar->cols, 0);

    snprintf(text[COLUMN_POSITION], TEXT_NUMBER, "%d", position);
    text_decimal(text[COLUMN_INTERCEPT], p->intercept, 2);
    text_decimal(text[COLUMN_INTERVAL], UI_NORMAL_95 * p->intercept_se, 2);
    text[COLUMN_BAR][0] = '\0';
    text_decimal(text[COLUMN_ACCEPTED], p->accepted_ratio, 3);
    text_decimal(text[COLUMN_PREDICTED], p->predicted_ratio, 3);
    text_signed(text[COLUMN_DIFFERENCE], difference, 3);
    text_decimal(text[COLUMN_SURVIVAL], survival, 3);
    text_count(text[COLUMN_REACHED], p->reached);
    text_count(text[COLUMN_N], p->n);
    if (zero >= 0 && bar->cols > 0)
        screen_put_char(screen, row, bar->col + zero, ELEMENT_FAINT, 0x2506);
    for (int i = 0; i < LAYOUT_COLUMNS; i++) {
        bool unknown = strcmp(text[i], TEXT_UNKNOWN) == 0;

        if (span[i].cols == 0) continue;
        screen_put_right(screen, row, span[i].col + span[i].cols,
                         unknown                                        ? ELEMENT_FAINT
                         : i == COLUMN_INTERCEPT                        ? ELEMENT_STRONG
                         : i == COLUMN_POSITION || i == COLUMN_INTERVAL ? ELEMENT_TEXT
                                                                        : ELEMENT_VALUE,
                         text[i]);
    }
    chart_interval(screen, row, bar->col, bar->cols, axis, p->intercept,
                   UI_NORMAL_95 * p->intercept_se);
}

void ui_draw_position_rows(const struct ui *ui, struct screen *screen, const struct rect *panel,
                           int first, int selected)
{
    const struct snapshot *s = &ui->shown;
    struct layout_span span[LAYOUT_COLUMNS];
    struct chart_range axis = choose_axis(s);
    int rows = panel->rows - 2, count = s->estimator.positions_count;
    double survival = 1;

    layout_positions(panel->cols, span);
    draw_position_head(screen, panel->row + 1, span, &axis);
    if (count == 0)
        screen_put(screen, panel->row + 2, 2, -1, ELEMENT_FAINT,
                   !model_is_known(ui->model)     ? "no figures yet"
                   : s->mode == MODE_OFF          ? "speculation is off: nothing is drafted"
                   : s->estimator.kind[0] == '\0' ? "the node has no estimator to show"
                                                  : "nothing learned yet");
    for (int i = 0; i < count; i++) {
        int row = panel->row + 2 + i - first;

        survival *= s->estimator.position[i].predicted_ratio; /* NaN from the first unknown on */
        if (i < first || i >= first + rows) continue;
        if (i == first + rows - 1 && i + 1 < count && selected < 0) {
            screen_printf(screen, row, 1, ELEMENT_FAINT, "%3s %d more: Down scrolls, 2 shows all",
                          "..", count - i);
            return;
        }
        draw_position_row(screen, row, s, i, survival, span, &axis);
        if (i == selected) screen_paint(screen, row, 0, panel->cols, ELEMENT_SELECTED);
    }
}

static void draw_positions(struct ui *ui, struct screen *screen, const struct rect *panel)
{
    const struct snapshot *s = &ui->shown;
    char text[256], law[64], slope[TEXT_NUMBER], se[TEXT_NUMBER], z[TEXT_NUMBER],
        refits[TEXT_NUMBER];
    const char *sigma = ui->options.ascii ? "sigm" : "\xcf\x83";
    int last = s->estimator.positions_count - (panel->rows - 2), used, col;

    if (panel->rows < 3) return;
    snprintf(law, sizeof law, isfinite(s->estimator.slope) ? "%s(%s" TIMES "f + b)" : "%s(%s)",
             sigma, text_decimal(slope, s->estimator.slope, 3));
    used =
        snprintf(text, sizeof text, " p = %s  slope " PLUS_MINUS "%s  drift z %s  refit %s ", law,
                 text_decimal(se, UI_NORMAL_95 * s->estimator.slope_se, 3),
                 text_signed(z, s->estimator.drift_z, 1), text_count(refits, s->estimator.refits));
    if (panel->cols >= 100 && s->estimator.stratum[0] != '\0')
        snprintf(text + used, sizeof text - (size_t)used, " %s  %s ", s->estimator.kind,
                 s->estimator.stratum);
    col = ui_draw_title(ui, screen, panel, "Positions") + 1;
    screen_put(screen, panel->row, col, panel->cols - col - 1, ELEMENT_VALUE, text);
    if (ui->positions_top > last) ui->positions_top = last < 0 ? 0 : last;
    ui_draw_position_rows(ui, screen, panel, ui->positions_top, -1);
}

/* ---- the effect of the last change of mode */

static void draw_toggle(const struct ui *ui, struct screen *screen, const struct rect *area)
{
    const struct snapshot *s = &ui->shown;
    char clock[TEXT_NUMBER], gain[TEXT_NUMBER], low[TEXT_NUMBER], high[TEXT_NUMBER],
        seconds[TEXT_NUMBER], n[TEXT_NUMBER], tps[2][TEXT_NUMBER], step[2][TEXT_NUMBER], what[80],
        effect[48], interval[128], rates[80], steps[80];
    bool clear = s->toggle.gain_low > 0 || s->toggle.gain_high < 0;

    screen_clip(screen, area);
    if (!s->toggle.known) {
        int col = 1 + screen_put(screen, area->row, 1, -1, ELEMENT_LABEL, "toggle effect ");

        screen_put(screen, area->row, col, -1, ELEMENT_FAINT,
                   model_is_known(ui->model) ? TEXT_UNKNOWN
                       "  no change of mode with enough seconds before and after"
                                             : TEXT_UNKNOWN);
        return;
    }
    snprintf(what, sizeof what, "%s %s" ARROW "%s", ui_moment(ui, clock, s->toggle.time_ms),
             s->toggle.before, s->toggle.after);
    snprintf(effect, sizeof effect, "%s %% tok/s", text_signed(gain, s->toggle.gain * 100, 1));
    snprintf(interval, sizeof interval, "(95 %% %s..%s, n %s)",
             text_signed(low, s->toggle.gain_low * 100, 0),
             text_signed(high, s->toggle.gain_high * 100, 0), text_count(n, s->toggle.n));
    text_significant(seconds, s->toggle.window_s);
    snprintf(rates, sizeof rates, "%s" ARROW "%s", text_significant(tps[0], s->toggle.tps_before),
             text_significant(tps[1], s->toggle.tps_after));
    snprintf(steps, sizeof steps, "%s" ARROW "%s",
             text_significant(step[0], s->toggle.step_ms_before),
             text_significant(step[1], s->toggle.step_ms_after));
    const struct ui_label label[] = {
        {"toggled", what, "", ELEMENT_VALUE},
        {"", effect, "",
         !clear                   ? ELEMENT_STRONG
         : s->toggle.gain_low > 0 ? ELEMENT_GOOD
                                  : ELEMENT_BAD},
        {"", interval, "", ELEMENT_VALUE},
        {"", clear ? "" : "not clear", "", ELEMENT_NOTE},
        {s->toggle.window_s < FIRM_S ? "still counting," : "", seconds, "s each side",
         ELEMENT_FAINT},
        {"", isfinite(s->toggle.tps_after) ? rates : "", "tok/s", ELEMENT_VALUE},
        {"step", isfinite(s->toggle.step_ms_after) ? steps : "", "ms", ELEMENT_VALUE},
    };
    ui_draw_labels(screen, area->row, 1, area->cols, label, sizeof label / sizeof label[0]);
}

static void draw_recent(const struct ui *ui, struct screen *screen, const struct rect *panel)
{
    const struct model *model = ui->model;
    int first = 0;

    if (panel->rows < 2) return;
    ui_draw_title(ui, screen, panel, "Decisions and events, newest first");
    while (ui_is_past(ui) && first < model->decisions_count &&
           model->decision[first].time_ms > ui_at_ms(ui))
        first++; /* what came after the moment belongs to the decisions view */
    if (model->decisions_count == first)
        screen_put(screen, panel->row + 1, 2, -1, ELEMENT_FAINT,
                   model->decisions_known ? "none yet" : ui_why_unknown(ui, LIST_DECISIONS));
    for (int i = 0; first + i < model->decisions_count && i < panel->rows - 1; i++)
        ui_draw_decision(ui, screen, panel->row + 1 + i, panel->cols, &model->decision[first + i],
                         false);
}

void view_draw_overview(struct ui *ui, struct screen *screen)
{
    static const struct ui_chart tokens = {.series = SERIES_TOKENS_PER_STEP,
                                           .title = "Tokens a step",
                                           .least_span = 0.5,
                                           .decimals = 2,
                                           .marks = 1u << MARK_TOGGLE | 1u << MARK_RESTART};
    static const struct ui_chart throughput = {.series = SERIES_THROUGHPUT,
                                               .title = "Throughput, tok/s",
                                               .area = true,
                                               .least_span = 20,
                                               .least_ratio = 0.4,
                                               .decimals = -1,
                                               .marks = 1u << MARK_TOGGLE | 1u << MARK_RESTART};
    struct layout layout;
    const struct rect *part = layout.part;

    layout_compute(LAYOUT_OVERVIEW, screen_rows(screen), screen_cols(screen),
                   ui->shown.estimator.positions_count, 0, &layout);
    view_draw_header(ui, screen, &part[LAYOUT_HEADER]);
    draw_mode_line(ui, screen, &part[LAYOUT_MODE]);
    draw_verify_line(ui, screen, &part[LAYOUT_VERIFY]);
    draw_positions(ui, screen, &part[LAYOUT_POSITIONS]);
    ui_draw_chart(ui, screen, &part[LAYOUT_SLOPE], &ui_slope_chart);
    ui_draw_chart(ui, screen, &part[LAYOUT_THROUGHPUT], &throughput);
    draw_toggle(ui, screen, &part[LAYOUT_TOGGLE]);
    ui_draw_chart(ui, screen, &part[LAYOUT_TOKENS], &tokens);
    draw_recent(ui, screen, &part[LAYOUT_RECENT]);
    for (int i = LAYOUT_MODE; i <= LAYOUT_RECENT && ui_is_stale(ui); i++)
        screen_dim(screen, &part[i]);
    view_draw_health(ui, screen, &part[LAYOUT_HEALTH]);
    view_draw_footer(ui, screen, &part[LAYOUT_FOOTER]);
}
