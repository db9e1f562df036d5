/* ui_draw.c - what the views have in common: header, health line, footer, titles, charts, lists.
 * See ui_state.h. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tui/chart.h"
#include "tui/text.h"
#include "tui/ui_state.h"

#define ARROW "\xe2\x86\x92"   /* → */
#define DOT "\xc2\xb7"         /* · */
#define RULE 0x2500            /* ─ */
#define MARK_CHARACTER 0x25bc  /* ▼ */
#define BAND_ROWS 5            /* in a lower chart the band would hide the curve */
#define RESTART_SHOWN_MS 60000 /* how long the header says that a node restarted */

void ui_draw(struct ui *ui, struct screen *screen)
{
    static void (*const draw[VIEW_COUNT])(struct ui *, struct screen *) = {
        [VIEW_OVERVIEW] = view_draw_overview,   [VIEW_POSITIONS] = view_draw_positions,
        [VIEW_ESTIMATOR] = view_draw_estimator, [VIEW_COST] = view_draw_cost,
        [VIEW_REQUESTS] = view_draw_requests,   [VIEW_DECISIONS] = view_draw_decisions,
        [VIEW_FLEET] = view_draw_fleet,         [VIEW_SETTINGS] = view_draw_settings,
        [VIEW_HELP] = view_draw_help,
    };

    screen_erase(screen);
    if (screen_rows(screen) < LAYOUT_MIN_ROWS || screen_cols(screen) < LAYOUT_MIN_COLS) {
        screen_printf(screen, 0, 0, ELEMENT_WARN, "trimtab needs %dx%d, this is %dx%d",
                      LAYOUT_MIN_COLS, LAYOUT_MIN_ROWS, screen_cols(screen), screen_rows(screen));
        return;
    }
    draw[ui->view](ui, screen);
    screen_clip(screen, NULL);
}

char *ui_moment(const struct ui *ui, char out[TEXT_NUMBER], int64_t time_ms)
{
    return text_moment_brief(out, time_ms, ui->wall_ms, ui->options.utc);
}

/* ---- header */

static bool nodes_are_none(const struct ui *ui)
{
    return ui->model->nodes_known && ui->model->nodes_count == 0;
}

/* Badges stand at the right end; returns the column where they begin. */
static int draw_badges(const struct ui *ui, struct screen *screen, int row, int end)
{
    char text[64], age[TEXT_NUMBER];
    int col = end - 1;

    if (ui_is_past(ui)) {
        text_moment(age, ui_at_ms(ui), ui->wall_ms, ui->options.utc);
        snprintf(text, sizeof text, "[PAST %s]", age);
        col = screen_put_right(screen, row, col, ELEMENT_NOTE, text);
    } else if (!ui->model->snapshot_known) {
        col = screen_put_right(screen, row, col, ELEMENT_STALE,
                               ui->trouble[0] != '\0' ? "[NO DATA]"
                               : nodes_are_none(ui)   ? "[NO NODE]"
                                                      : "[CONNECTING]");
    } else if (ui_is_stale(ui)) {
        text_age(age, (double)(ui->mono_ms - ui->model->advanced_mono_ms) / 1000);
        snprintf(text, sizeof text, "[STALE %s]", age);
        col = screen_put_right(screen, row, col, ELEMENT_STALE, text);
    } else if (ui->paused) {
        col = screen_put_right(screen, row, col, ELEMENT_NOTE, "[PAUSED]");
    } else {
        col = screen_put_right(screen, row, col, ELEMENT_LIVE, "[LIVE]");
    }
    if (ui_is_read_only(ui))
        col = screen_put_right(screen, row, col - 1, ELEMENT_NOTE, "[READ-ONLY]");
    if (strcmp(ui->shown.node.kind, "replay") == 0)
        col = screen_put_right(screen, row, col - 1, ELEMENT_NOTE, "[REPLAY]");
    if (ui->model->restarted_time_ms > 0 &&
        ui_chart_end_ms(ui) - ui->model->restarted_time_ms < RESTART_SHOWN_MS)
        col = screen_put_right(screen, row, col - 1, ELEMENT_WARN, "[RESTARTED]");
    return col;
}

void view_draw_header(const struct ui *ui, struct screen *screen, const struct rect *area)
{
    const struct snapshot *s = &ui->shown;
    bool known = model_is_known(ui->model);
    char text[400], name[200], clock[TEXT_NUMBER], zone[TEXT_NUMBER], up[TEXT_NUMBER];
    int col, used;

    screen_clip(screen, area);
    col = draw_badges(ui, screen, area->row, area->cols);
    text_clock(clock, ui->wall_ms, ui->options.utc);
    text_zone(zone, ui->wall_ms, ui->options.utc);
    if (area->cols < 100 && strcmp(zone, "UTC") == 0)
        snprintf(text, sizeof text, "%sZ", clock); /* ISO 8601's short form */
    else
        snprintf(text, sizeof text, "%s %s", clock, zone);
    col = screen_put_right(screen, area->row, col - 2, ELEMENT_HEADER, text);
    text_uptime(up, s->uptime_s);
    col = screen_put_right(screen, area->row, col - 2, ELEMENT_HEADER, up);
    col = screen_put_right(screen, area->row, col - 1, ELEMENT_FAINT, "up");
    used = 1 + screen_put(screen, area->row, 1, -1, ELEMENT_BRAND, "trimtab");
    if (!known)
        snprintf(text, sizeof text, "%s",
                 ui->model->node_id[0] != '\0' ? ui->model->node_id : TEXT_UNKNOWN);
    else if (s->node.draft[0] != '\0')
        snprintf(text, sizeof text, "%s " DOT " %s " DOT " %s + %s", s->node.id, s->node.kind,
                 s->node.model, s->node.draft);
    else
        snprintf(text, sizeof text, "%s " DOT " %s " DOT " %s", s->node.id, s->node.kind,
                 s->node.model);
    if (known && text_width(text) > col - used - 4) /* the draft model goes first */
        snprintf(text, sizeof text, "%s " DOT " %s " DOT " %s", s->node.id, s->node.kind,
                 s->node.model);
    screen_put(screen, area->row, used + 2, -1, ELEMENT_HEADER,
               text_shorten(name, sizeof name, text, col - used - 4));
}

/* ---- one line of labelled figures */

int ui_draw_labels(struct screen *screen, int row, int col, int cols, const struct ui_label *label,
                   int count)
{
    for (int i = 0; i < count; i++) {
        const struct ui_label *part = &label[i];
        int wanted = text_width(part->label) + text_width(part->value) + text_width(part->unit) +
                     (part->label[0] != '\0') + (part->unit[0] != '\0');

        if (part->value[0] == '\0' || col + wanted > cols)
            continue; /* a later, shorter one may fit */
        if (part->label[0] != '\0')
            col += screen_put(screen, row, col, -1, ELEMENT_LABEL, part->label) + 1;
        col += screen_put(screen, row, col, -1, part->element, part->value);
        if (part->unit[0] != '\0')
            col += 1 + screen_put(screen, row, col + 1, -1, ELEMENT_FAINT, part->unit);
        col += 2;
    }
    return col;
}

/* ---- health */

static void draw_trouble(const struct ui *ui, struct screen *screen, const struct rect *area)
{
    char shown[300];

    screen_put(screen, area->row, 1, -1, ELEMENT_BAD,
               text_shorten(shown, sizeof shown, ui->trouble, area->cols - 2));
}

/* The past has no health of its own; what happened then is in the log. */
static void draw_past_note(const struct ui *ui, struct screen *screen, const struct rect *area)
{
    char shown[300];

    screen_put(screen, area->row, 1, -1,
               ui->model->past.refusal[0] != '\0' ? ELEMENT_WARN : ELEMENT_FAINT,
               text_shorten(shown, sizeof shown,
                            ui->model->past.refusal[0] != '\0' ? ui->model->past.refusal
                            : ui->model->past.known
                                ? "from the store; [ ] step, { } events, g time, Esc back to now"
                                : "reading the store",
                            area->cols - 2));
}

void view_draw_health(const struct ui *ui, struct screen *screen, const struct rect *area)
{
    const struct snapshot *s = &ui->shown;
    bool ok = strcmp(s->health.state, "ok") == 0;
    char store[220], ece[TEXT_NUMBER], auc[TEXT_NUMBER], failed[TEXT_NUMBER], drifts[TEXT_NUMBER],
        last[40] = "", clock[TEXT_NUMBER], health[480], since[48] = "", shown[480];
    struct ui_label label[8];
    int count = 0, room = area->cols - 10;

    screen_clip(screen, area);
    if (ui->trouble[0] != '\0') {
        draw_trouble(ui, screen, area);
        return;
    }
    if (ui_is_past(ui)) {
        draw_past_note(ui, screen, area);
        return;
    }
    if (!ui->model->snapshot_known) {
        screen_put(screen, area->row, 1, -1, ELEMENT_FAINT,
                   nodes_are_none(ui) ? "the daemon watches no node yet"
                                      : "waiting for the first figures");
        return;
    }
    if (!ok && s->health.since_ms > 0)
        snprintf(since, sizeof since, " since %s", ui_moment(ui, clock, s->health.since_ms));
    snprintf(health, sizeof health, "%s%s%s%s%s%s",
             s->health.state[0] != '\0' ? s->health.state : TEXT_UNKNOWN, since,
             s->health.reason[0] != '\0' ? ": " : "", s->health.reason,
             !ok && s->health.advice[0] != '\0' ? "; try: " : "", ok ? "" : s->health.advice);
    if (s->store.ok)
        snprintf(store, sizeof store, "ok");
    else
        snprintf(store, sizeof store, "not writing since %s%s%s",
                 ui_moment(ui, clock, s->store.since_ms), s->store.reason[0] != '\0' ? ": " : "",
                 s->store.reason);
    if (!s->store.ok) /* the worse news may take the line, both keep their first words */
        room = ok ? area->cols - 11 : (area->cols - 20) / 2;
    label[count++] =
        (struct ui_label){"health", text_shorten(shown, sizeof shown, health, room), "",
                          ok                                       ? ELEMENT_GOOD
                          : strcmp(s->health.state, "failed") == 0 ? ELEMENT_BAD
                                                                   : ELEMENT_WARN};
    if (!ok && s->store.ok && text_width(shown) > area->cols - 20) {
        ui_draw_labels(screen, area->row, 1, area->cols, label, count);
        return;
    }
    if (!s->store.ok) {
        int col = ui_draw_labels(screen, area->row, 1, area->cols, label, count);
        char part[300];

        label[0] = (struct ui_label){
            "store", text_shorten(part, sizeof part, store, area->cols - col - 7), "", ELEMENT_BAD};
        ui_draw_labels(screen, area->row, col, area->cols, label, 1);
        return;
    }
    if (s->estimator.last_drift_ms > 0)
        snprintf(last, sizeof last, "last %s", ui_moment(ui, clock, s->estimator.last_drift_ms));
    label[count++] = (struct ui_label){"store", store, "", ELEMENT_GOOD};
    label[count++] =
        (struct ui_label){"ECE", text_decimal(ece, s->estimator.ece, 3), "", ELEMENT_VALUE};
    label[count++] =
        (struct ui_label){"AUC", text_decimal(auc, s->estimator.auc, 2), "", ELEMENT_VALUE};
    label[count++] = (struct ui_label){
        "drift events", text_count(drifts, s->estimator.drift_events), last, ELEMENT_VALUE};
    label[count++] = (struct ui_label){"failed", text_count(failed, s->failed_total), "",
                                       s->failed_total > 0 ? ELEMENT_WARN : ELEMENT_VALUE};
    ui_draw_labels(screen, area->row, 1, area->cols, label, count);
}

/* ---- footer: question, pending, answer, or keys */

/* The node that is asked about, shortened to what the rest of the line leaves. */
static const char *fit_node(const struct ui *ui, char out[SNAPSHOT_NAME], int cols)
{
    const int least = 8;

    return text_shorten(out, SNAPSHOT_NAME, ui->asked.node, cols > least ? cols : least);
}

/* What will happen is read whole; the keys' words and the node's name give way, in this order. */
static void draw_question(const struct ui *ui, struct screen *screen, const struct rect *area)
{
    const char *keys = "Enter confirm  Esc cancel";
    char what[200], name[SNAPSHOT_NAME], text[300], shown[300];
    int room = area->cols - text_width(keys) - 4, rest;

    ui_describe(ui, &ui->asked, what, sizeof what);
    rest = text_width(what) + 3; /* `: ` and `?` */
    if (text_width(ui->asked.node) + rest > room) {
        keys = "Enter  Esc";
        room = area->cols - text_width(keys) - 4;
    }
    snprintf(text, sizeof text, "%s: %s?", fit_node(ui, name, room - rest), what);
    screen_fill(screen, area->row, 0, area->cols, ELEMENT_PROMPT, ' ');
    screen_put(screen, area->row, 1, -1, ELEMENT_PROMPT,
               text_shorten(shown, sizeof shown, text, room));
    screen_put_right(screen, area->row, area->cols - 1, ELEMENT_PROMPT, keys);
}

/* A line that is being typed, with its keys, and before them what it takes where there is room. */
static void draw_typing(const struct ui *ui, struct screen *screen, const struct rect *area,
                        const char *what, const char *takes, const char *keys)
{
    char text[200];
    int col, end = area->cols - 1;

    screen_fill(screen, area->row, 0, area->cols, ELEMENT_PROMPT, ' ');
    snprintf(text, sizeof text, "%s%s_", what, ui->typed);
    col = 1 + screen_put(screen, area->row, 1, -1, ELEMENT_PROMPT, text);
    if (col + text_width(keys) + 2 > end) return;
    end = screen_put_right(screen, area->row, end, ELEMENT_PROMPT, keys) - 2;
    if (col + text_width(takes) + 2 <= end)
        screen_put_right(screen, area->row, end, ELEMENT_PROMPT, takes);
}

static void draw_value(const struct ui *ui, struct screen *screen, const struct rect *area)
{
    static const char keys[] = "Enter set  Esc cancel";
    const int typed_cols = 6; /* as long as most values are */
    char what[100 + SNAPSHOT_NAME], rest[100], value[MODEL_VALUE], name[SNAPSHOT_NAME];

    snprintf(rest, sizeof rest, "%s %s " ARROW " ", ui->asked.setting,
             ui_plain_value(ui->old.value, value));
    snprintf(what, sizeof what, "%s: %s",
             fit_node(ui, name, area->cols - text_width(rest) - typed_cols - (int)sizeof keys - 5),
             rest);
    draw_typing(ui, screen, area, what, view_setting_choices(ui->asked.setting), keys);
}

static void draw_pending(const struct ui *ui, struct screen *screen, const struct rect *area)
{
    const struct ui_command *command = &ui->command;
    char text[300], shown[300], age[TEXT_NUMBER], what[200];

    text_age(age, (double)(ui->mono_ms - ui->pending_since_ms) / 1000);
    snprintf(text, sizeof text, "%s: %s requested%s, pending for %s", command->node,
             command->kind == COMMAND_MODE ? mode_name(command->mode)
                                           : ui_describe(ui, command, what, sizeof what),
             ui->pending_generation < 0 ? "" : " and accepted, not in force yet", age);
    screen_put(screen, area->row, 1, -1, ELEMENT_NOTE,
               text_shorten(shown, sizeof shown, text, area->cols - 2));
}

/* In the last line; a longer one takes the health line above too. */
static void draw_message(const struct ui *ui, struct screen *screen, const struct rect *area)
{
    const int cols = area->cols - 2, broken = 10; /* columns that a break at a blank may leave */
    const struct rect both = {area->row - 1, area->col, 2, area->cols};
    char shown[320];

    if (text_width(ui->message) <= cols || area->row == 0) {
        screen_put(screen, area->row, 1, -1, ui->message_element, ui->message);
        return;
    }
    screen_clip(screen, &both);
    screen_fill(screen, both.row, 0, both.cols, ELEMENT_TEXT, ' ');
    ui_draw_wrapped(screen, both.row, 1, cols, both.row + both.rows, ui->message_element,
                    text_shorten(shown, sizeof shown, ui->message, 2 * cols - broken));
}

/* Is it about a change, which a read-only console cannot make? */
static bool acts(enum action action)
{
    return action == ACTION_TOGGLE || action == ACTION_EDIT || action == ACTION_UNDO ||
           action == ACTION_CANCEL;
}

/* ` a toggle 2 positions …  ? q`: the last two always, others in their order while they fit;
 * roomier where there is room. */
static void draw_keys(const struct ui *ui, struct screen *screen, const struct rect *area)
{
    bool wide = area->cols >= 110;
    int col = 1, gap = wide ? 2 : 1,
        limit = area->cols - (wide ? 17 : 6); /* `  ? help  q quit`, `  ? q` */

    for (int i = 0; i < key_bindings_count; i++) {
        const struct key_binding *key = &key_bindings[i];
        bool end = key->action == ACTION_HELP || key->action == ACTION_QUIT;
        const char *brief = end && !wide ? "" : key->brief;
        char name[8];
        int wanted;

        if (key->brief == NULL || (key->views & 1u << ui->view) == 0) continue;
        if (ui_is_read_only(ui) && acts(key->action)) continue;
        if (key->action == ACTION_VIEW_OVERVIEW + (enum action)ui->view) continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(key->shown, " "), key->shown);
        wanted = text_width(name) + 1 + text_width(brief);
        if (key->action == ACTION_HELP) {
            limit = area->cols;
            col += !wide; /* set apart */
        }
        if (col + wanted > limit) limit = 0; /* no later one in its place: keys keep their order */
        if (limit == 0) continue;
        col += screen_put(screen, area->row, col, -1, ELEMENT_KEY, name);
        if (brief[0] != '\0')
            col += 1 + screen_put(screen, area->row, col + 1, -1, ELEMENT_TEXT, brief);
        col += gap;
    }
}

void view_draw_footer(const struct ui *ui, struct screen *screen, const struct rect *area)
{
    screen_clip(screen, area);
    if (ui->options.printed) return;
    if (ui->prompt == PROMPT_CONFIRM) {
        draw_question(ui, screen, area);
    } else if (ui->prompt == PROMPT_FILTER) {
        screen_fill(screen, area->row, 0, area->cols, ELEMENT_PROMPT, ' ');
        screen_printf(screen, area->row, 1, ELEMENT_PROMPT, "filter: %s_",
                      ui->list[ui->view].filter);
        screen_put_right(screen, area->row, area->cols - 1, ELEMENT_PROMPT,
                         "Enter keep  Esc clear");
    } else if (ui->prompt == PROMPT_TIME) {
        draw_typing(ui, screen, area, "go to: ", "12:04, 11-29 12:04, 2h, now",
                    "Enter go  Esc cancel");
    } else if (ui->prompt == PROMPT_VALUE) {
        draw_value(ui, screen, area);
    } else if (ui->message[0] != '\0') {
        draw_message(ui, screen, area);
    } else if (ui->pending) {
        draw_pending(ui, screen, area);
    } else {
        draw_keys(ui, screen, area);
    }
}

/* ---- panels */

int ui_draw_title(const struct ui *ui, struct screen *screen, const struct rect *panel,
                  const char *title)
{
    char shown[256];

    (void)ui;
    screen_clip(screen, panel);
    screen_fill(screen, panel->row, panel->col, panel->cols, ELEMENT_FAINT, RULE);
    return panel->col + 1 +
           screen_put(screen, panel->row, panel->col + 1, -1, ELEMENT_TITLE,
                      text_shorten(shown, sizeof shown, title, panel->cols - 2));
}

#define AXIS_COLS 7 /* ` 0.60 ` and ` 1.24k ` */

static void draw_axis(struct screen *screen, const struct rect *area,
                      const struct chart_range *range, int decimals)
{
    int labels = area->rows >= 7 ? 3 : 2;

    for (int i = 0; i < labels; i++) {
        double part = 1 - (double)i / (labels - 1),
               value = range->low + part * (range->high - range->low);
        char number[TEXT_NUMBER];
        int row = area->row + (int)lround((1 - part) * (area->rows - 1));

        if (decimals < 0 || fabs(value) >= 100)
            text_significant(number, value);
        else
            text_decimal(number, value, decimals);
        screen_put_right(screen, row, area->col - 1, ELEMENT_FAINT, number);
    }
}

/* ▼ on the title's rule over the moment, its text beside it where there is room; newest first. */
static void draw_marks(const struct ui *ui, struct screen *screen, const struct rect *panel,
                       unsigned kinds, int64_t from_ms, int64_t to_ms, int free_from)
{
    const struct model *model = ui->model;
    int cols = panel->cols - AXIS_COLS, free_to = panel->cols;
    const int64_t end_ms = to_ms;

    for (;;) {
        const struct model_mark *next = NULL;
        char text[96], clock[TEXT_NUMBER];
        int col, width, text_col;

        for (int i = 0; i < model->marks_count; i++) {
            const struct model_mark *mark = &model->mark[i];

            if ((kinds & 1u << mark->kind) == 0 || mark->time_ms < from_ms ||
                mark->time_ms >= to_ms)
                continue;
            if (next == NULL || mark->time_ms > next->time_ms) next = mark;
        }
        if (next == NULL) return;
        to_ms = next->time_ms; /* the next round looks before it */
        col = AXIS_COLS +
              (int)((double)(next->time_ms - from_ms) * cols / (double)(end_ms - from_ms));
        if (col < free_from || col >= free_to) continue;
        snprintf(text, sizeof text, " %s %s ", next->text, ui_moment(ui, clock, next->time_ms));
        width = text_width(text);
        text_col = col + 1 + width <= free_to ? col + 1 : col - width;
        screen_put_char(screen, panel->row, panel->col + col, ELEMENT_MARK, MARK_CHARACTER);
        if (text_col >= free_from) {
            screen_put(screen, panel->row, panel->col + text_col, -1, ELEMENT_MARK, text);
            free_to = text_col < col ? text_col : col;
        } else {
            free_to = col;
        }
    }
}

/* The window of all charts: whole buckets, so that what a bucket holds does not change while the
 * chart moves on. */
struct chart_window {
    int64_t from_ms, to_ms, bucket_ms;
};

static struct chart_window window_of(const struct ui *ui, int count)
{
    struct chart_window window = {.bucket_ms = ui->window_ms / count};

    window.to_ms = (ui_chart_end_ms(ui) / window.bucket_ms + 1) * window.bucket_ms;
    window.from_ms = window.to_ms - count * window.bucket_ms;
    return window;
}

static void fill_buckets(const struct ui *ui, const struct chart_window *window, int series,
                         double *bucket, int count)
{
    series_bucket(model_series(ui->model, series), window->from_ms, window->to_ms,
                  ui_chart_end_ms(ui), 3 * (window->bucket_ms + ui->options.interval_ms), bucket,
                  count);
}

/* A round range that holds the values, and their bands as far as they are no wider than the values
 * need themselves: an interval of the first refits would flatten the rest. */
static bool range_of(const struct ui_chart *chart, const double *bucket, const double *half,
                     int count, struct chart_range *out)
{
    double edge[2 * CHART_MAX_BUCKETS];
    struct chart_range plain;

    if (!chart_choose_range(bucket, count, chart->least_span, chart->least_ratio, &plain))
        return false;
    for (int i = 0; i < count && half != NULL; i++) {
        double reach = fmin(half[i], plain.high - plain.low);

        edge[2 * i] = bucket[i] - (isfinite(half[i]) ? reach : 0);
        edge[2 * i + 1] = bucket[i] + (isfinite(half[i]) ? reach : 0);
    }
    if (half == NULL) *out = plain;
    return half == NULL ||
           chart_choose_range(edge, 2 * count, chart->least_span, chart->least_ratio, out);
}

const struct ui_chart ui_slope_chart = {.series = SERIES_SLOPE,
                                        .se = SERIES_SLOPE_SE,
                                        .title = "Slope",
                                        .least_span = 0.1,
                                        .decimals = 2,
                                        .marks = 1u << MARK_DRIFT | 1u << MARK_RESTART};

void ui_draw_chart(const struct ui *ui, struct screen *screen, const struct rect *panel,
                   const struct ui_chart *chart)
{
    struct rect area = {panel->row + 1, panel->col + AXIS_COLS, panel->rows - 1,
                        panel->cols - AXIS_COLS};
    double bucket[CHART_MAX_BUCKETS], half[CHART_MAX_BUCKETS];
    const double *band = chart->se > 0 && area.rows >= BAND_ROWS ? half : NULL;
    struct chart_range range;
    struct chart_window window;
    char title[80], span[TEXT_NUMBER];
    int count = chart_buckets(screen, area.cols), title_end;

    if (panel->rows < 2) return;
    if (count > CHART_MAX_BUCKETS) count = CHART_MAX_BUCKETS;
    window = window_of(ui, count);
    snprintf(title, sizeof title, "%s%s, %s", chart->title, band != NULL ? " \xc2\xb1 95 %" : "",
             text_span(span, ui->window_ms));
    title_end = ui_draw_title(ui, screen, panel, title);
    fill_buckets(ui, &window, chart->series, bucket, count);
    if (band != NULL) fill_buckets(ui, &window, chart->se, half, count);
    for (int i = 0; i < count && band != NULL; i++) half[i] *= UI_NORMAL_95;
    if (!model_is_known(ui->model) || !range_of(chart, bucket, band, count, &range)) {
        screen_put(screen, area.row + (area.rows - 1) / 2, area.col, -1, ELEMENT_FAINT,
                   "no samples in this window yet");
        return;
    }
    draw_axis(screen, &area, &range, chart->decimals);
    chart_draw(screen, &area, chart->area ? CHART_AREA : CHART_CURVE,
               chart->area ? ELEMENT_AREA : ELEMENT_CURVE, bucket, band, count, &range);
    draw_marks(ui, screen, panel, chart->marks, window.from_ms, window.to_ms, title_end + 1);
}

/* How far accepted lies from predicted, in a sign: `-` and `+` beyond 0.03, arrows beyond 0.08. */
static void draw_heat(struct screen *screen, int row, int col, double difference)
{
    const bool ascii = screen_is_ascii(screen);

    if (!isfinite(difference)) return;
    if (fabs(difference) < 0.03)
        screen_put_char(screen, row, col, ELEMENT_FAINT, ascii ? '.' : 0xb7);
    else if (fabs(difference) < 0.08)
        screen_put_char(screen, row, col, ELEMENT_NOTE, difference < 0 ? '-' : '+');
    else
        screen_put_char(screen, row, col, ELEMENT_BAD,
                        difference < 0 ? (ascii ? 'v' : 0x25bc) : (ascii ? '^' : 0x25b2));
}

void ui_draw_heat_strip(const struct ui *ui, struct screen *screen, const struct rect *panel,
                        int first)
{
    double accepted[SCREEN_MAX_COLS], predicted[SCREEN_MAX_COLS];
    const int count = panel->cols - AXIS_COLS;
    struct chart_window window;
    char title[120], span[TEXT_NUMBER], label[16];

    if (panel->rows < 2 || count < 1) return;
    window = window_of(ui, count);
    snprintf(title, sizeof title,
             "Accepted - predicted, %s: %s within 0.03  + - beyond  %s %s beyond 0.08",
             text_span(span, ui->window_ms), screen_is_ascii(screen) ? "." : "\xc2\xb7",
             screen_is_ascii(screen) ? "^" : "\xe2\x96\xb2",
             screen_is_ascii(screen) ? "v" : "\xe2\x96\xbc");
    ui_draw_title(ui, screen, panel, title);
    for (int i = 0; i < panel->rows - 1; i++) {
        const int position = first + i, row = panel->row + 1 + i;

        if (position >= ui->shown.estimator.positions_count) return;
        snprintf(label, sizeof label, "%d", position);
        screen_put_right(screen, row, panel->col + AXIS_COLS - 1, ELEMENT_FAINT, label);
        fill_buckets(ui, &window, SERIES_POSITION_ACCEPTED + position, accepted, count);
        fill_buckets(ui, &window, SERIES_POSITION_PREDICTED + position, predicted, count);
        for (int col = 0; col < count; col++)
            draw_heat(screen, row, panel->col + AXIS_COLS + col, accepted[col] - predicted[col]);
    }
}
