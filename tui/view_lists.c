/* view_lists.c - the views that are a list: 2 positions, 5 requests, 6 decisions and events, and
 * help. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tui/text.h"
#include "tui/ui_state.h"

#define ARROW "\xe2\x86\x92" /* → */
#define DOT "\xc2\xb7"       /* · */

/* ---- 2 positions */

static int64_t position_identity(const struct ui *ui, int row)
{
    (void)ui;
    return row;
}

static void draw_position_figures(const struct ui *ui, struct screen *screen,
                                  const struct rect *panel, int position)
{
    const struct snapshot_position *p = &ui->shown.estimator.position[position];
    char intercept[TEXT_NUMBER], se[TEXT_NUMBER], accepted[TEXT_NUMBER], predicted[TEXT_NUMBER],
        both[80], reached[TEXT_NUMBER], n[TEXT_NUMBER], difference[TEXT_NUMBER], estimate[80];

    snprintf(estimate, sizeof estimate, "%s \xc2\xb1 %s", text_decimal(intercept, p->intercept, 3),
             text_decimal(se, UI_NORMAL_95 * p->intercept_se, 3));
    snprintf(both, sizeof both, "%s", text_decimal(accepted, p->accepted_ratio, 3));
    const struct ui_label label[] = {
        {"intercept", estimate, "(95 %)", ELEMENT_STRONG},
        {"accepted", both, "", ELEMENT_VALUE},
        {"predicted", text_decimal(predicted, p->predicted_ratio, 3), "", ELEMENT_VALUE},
        {"a - p", text_signed(difference, p->accepted_ratio - p->predicted_ratio, 3), "",
         ELEMENT_VALUE},
        {"n", text_count(n, p->n), "", ELEMENT_VALUE},
        {"in window", text_count(reached, p->reached), "", ELEMENT_VALUE},
    };
    screen_clip(screen, panel);
    ui_draw_labels(screen, panel->row + panel->rows - 1, 1, panel->cols, label,
                   sizeof label / sizeof label[0]);
}

/* The selected intercept's past with its band; below, as many heat strips as there is room for, the
 * selected one among them; its figures last. */
static void draw_position_past(const struct ui *ui, struct screen *screen, const struct rect *panel,
                               int position)
{
    const int count = ui->shown.estimator.positions_count, least_chart = 4;
    int strips = (panel->rows - 1) / 2 - 1; /* half of what figures and title leave */
    struct rect chart_panel = *panel, heat = *panel;
    char title[48];
    struct ui_chart chart = {.series = SERIES_INTERCEPT + position,
                             .se = SERIES_INTERCEPT_SE + position,
                             .title = title,
                             .least_span = 0.2,
                             .decimals = 2,
                             .marks = 1u << MARK_DRIFT | 1u << MARK_RESTART};
    int first;

    if (panel->rows - 1 - least_chart < strips + 1) strips = panel->rows - 2 - least_chart;
    strips = strips < 1 ? 0 : strips > count ? count : strips;
    first = position - strips + 1 < 0 ? 0 : position - strips + 1;
    if (first + strips > count) first = count - strips;
    heat.rows = strips > 0 ? strips + 1 : 0;
    chart_panel.rows -= 1 + heat.rows;
    heat.row += chart_panel.rows;
    snprintf(title, sizeof title, "Intercept of position %d", position);
    ui_draw_chart(ui, screen, &chart_panel, &chart);
    ui_draw_heat_strip(ui, screen, &heat, first);
    draw_position_figures(ui, screen, panel, position);
}

void view_draw_positions(struct ui *ui, struct screen *screen)
{
    struct layout layout;
    const struct rect *body = &layout.part[LAYOUT_BODY], *detail = &layout.part[LAYOUT_DETAIL];
    struct ui_list *list = &ui->list[VIEW_POSITIONS];
    int count = ui->shown.estimator.positions_count, spare;
    char title[120];

    spare = screen_rows(screen) - 3 -
            (2 + (count > 0 ? count : 1)); /* header, health, footer; title, head, rows */
    ui_frame(ui, screen, LAYOUT_LIST_DETAIL, spare > 7 ? spare : 7, &layout);
    snprintf(title, sizeof title, "Positions  %s  %s", ui->shown.estimator.kind,
             ui->shown.estimator.stratum);
    ui_draw_title(ui, screen, body, title);
    ui_list_settle(ui, list, count, body->rows - 2, position_identity);
    ui_draw_position_rows(ui, screen, body, list->top, list->selected);
    if (detail->rows >= 4 && count > 0) draw_position_past(ui, screen, detail, list->selected);
    ui_dim_if_stale(ui, screen, &layout);
}

/* ---- 5 requests */

enum {
    REQUEST_ID,
    REQUEST_PHASE,
    REQUEST_AGE,
    REQUEST_PROMPT,
    REQUEST_EMITTED,
    REQUEST_TOKENS,
    REQUEST_DRAFTER,
    REQUEST_RULE,
    REQUEST_TEMPERATURE,
    REQUEST_SEED,
    REQUEST_COLUMNS
};
static const struct ui_column request_column[REQUEST_COLUMNS] = {
    {"id", 8, 0},       {"phase", -7, 0},   {"age", 6, 0},   {"prompt", 6, 0}, {"emitted", 7, 0},
    {"tok/step", 8, 0}, {"drafter", -8, 0}, {"rule", -8, 0}, {"T", 4, 70},     {"seed", 4, 76},
};
static const int request_sorts[] = {REQUEST_ID, REQUEST_AGE, REQUEST_EMITTED, REQUEST_TOKENS};
#define REQUEST_SORTS ((int)(sizeof request_sorts / sizeof request_sorts[0]))

static double request_key(const struct model_request *row, int by)
{
    double key = by == REQUEST_AGE       ? row->age_s
                 : by == REQUEST_EMITTED ? (double)row->emitted
                 : by == REQUEST_TOKENS  ? row->tokens_per_step
                                         : -(double)row->id;

    return isfinite(key) ? key : -1;
}

/* Largest first; equal ones by id, so that rows do not jump. */
static int compare_requests(const void *a, const void *b, void *state)
{
    const struct ui_sorting *sorting = state;
    const struct model_request *left = &sorting->model->request[*(const int *)a],
                               *right = &sorting->model->request[*(const int *)b];
    double x = request_key(left, sorting->by), y = request_key(right, sorting->by);

    if (x != y) return x > y ? -1 : 1;
    return (left->id > right->id) - (left->id < right->id);
}

static int64_t request_identity(const struct ui *ui, int row)
{
    return ui->model->request[ui->order[row]].id;
}

static void draw_request(struct screen *screen, int row, int cols, const struct model_request *r)
{
    char text[REQUEST_COLUMNS][TEXT_NUMBER];
    int col = 1;

    snprintf(text[REQUEST_ID], TEXT_NUMBER, "%lld", (long long)r->id);
    snprintf(text[REQUEST_PHASE], TEXT_NUMBER, "%s", r->phase);
    text_young_age(text[REQUEST_AGE], r->age_s);
    text_count(text[REQUEST_PROMPT], r->prompt_tokens);
    text_count(text[REQUEST_EMITTED], r->emitted);
    text_decimal(text[REQUEST_TOKENS], r->tokens_per_step, 2);
    snprintf(text[REQUEST_DRAFTER], TEXT_NUMBER, "%s",
             r->drafter[0] != '\0' ? r->drafter : TEXT_UNKNOWN);
    snprintf(text[REQUEST_RULE], TEXT_NUMBER, "%s", r->rule[0] != '\0' ? r->rule : TEXT_UNKNOWN);
    text_decimal(text[REQUEST_TEMPERATURE], r->temperature, 2);
    snprintf(text[REQUEST_SEED], TEXT_NUMBER, "%s", r->seeded ? "yes" : "no");
    for (int i = 0; i < REQUEST_COLUMNS; i++)
        col = ui_draw_field(screen, row, col, &request_column[i], cols,
                            i == REQUEST_PHASE && strcmp(r->phase, "queued") == 0 ? ELEMENT_NOTE
                            : i == REQUEST_ID                                     ? ELEMENT_STRONG
                                                                                  : ELEMENT_VALUE,
                            text[i]);
}

static bool request_matches(const struct model_request *r, const char *filter)
{
    char all[120];

    snprintf(all, sizeof all, "%lld %s %s %s", (long long)r->id, r->phase, r->drafter, r->rule);
    return ui_filter_matches(filter, all);
}

const struct model_request *view_requests_selected(const struct ui *ui)
{
    const struct model *model = ui->model;
    const int64_t identity = ui->list[VIEW_REQUESTS].identity;

    for (int i = 0; i < model->requests_count && !ui_is_past(ui); i++)
        if (identity >= 0 && model->request[i].id == identity) return &model->request[i];
    return NULL;
}

const char *view_requests_none(const struct ui *ui)
{
    return ui_is_past(ui)
               ? "requests are not stored one by one: only now is known; Esc returns to it"
           : !ui->model->requests_known                ? ui_why_unknown(ui, LIST_REQUESTS)
           : ui->model->requests_count == 0            ? "the node works on no request now"
           : ui->list[VIEW_REQUESTS].filter[0] != '\0' ? "no request has this text; Esc shows all"
                                                       : "the one that was selected has ended";
}

void view_draw_requests(struct ui *ui, struct screen *screen)
{
    const struct model *model = ui->model;
    struct ui_list *list = &ui->list[VIEW_REQUESTS];
    struct ui_sorting sorting;
    struct layout layout;
    const struct rect *body = &layout.part[LAYOUT_BODY];
    int count = 0, rows;
    char title[96];

    ui_frame(ui, screen, LAYOUT_LIST, 0, &layout);
    if (ui_is_past(ui)) {
        ui_draw_title(ui, screen, body, "Requests");
        screen_put(screen, body->row + 1, 2, -1, ELEMENT_FAINT, view_requests_none(ui));
        return;
    }
    list->sort %= REQUEST_SORTS;
    sorting = (struct ui_sorting){model, request_sorts[list->sort]};
    for (int i = 0; i < model->requests_count; i++)
        if (request_matches(&model->request[i], list->filter)) ui->order[count++] = i;
    qsort_r(ui->order, (size_t)count, sizeof ui->order[0], compare_requests, &sorting);
    snprintf(title, sizeof title, "Requests  %d run  %d wait",
             ui->shown.running > 0 ? ui->shown.running : 0,
             ui->shown.queued > 0 ? ui->shown.queued : 0);
    ui_draw_title(ui, screen, body, model_is_known(ui->model) ? title : "Requests");
    ui_draw_filter_note(screen, body, list, count, model->requests_count);
    ui_draw_heads(screen, body->row + 1, request_column, REQUEST_COLUMNS, body->cols, sorting.by);
    rows = body->rows - 2;
    ui_list_settle(ui, list, count, rows, request_identity);
    if (count == 0) screen_put(screen, body->row + 2, 2, -1, ELEMENT_FAINT, view_requests_none(ui));
    for (int i = list->top; i < count && i < list->top + rows; i++) {
        draw_request(screen, body->row + 2 + i - list->top, body->cols,
                     &model->request[ui->order[i]]);
        if (i == list->selected)
            screen_paint(screen, body->row + 2 + i - list->top, 0, body->cols, ELEMENT_SELECTED);
    }
    ui_dim_if_stale(ui, screen, &layout);
}

/* ---- 6 decisions and events */

static enum element severity_element(const struct model_decision *d)
{
    return strcmp(d->severity, "error") == 0     ? ELEMENT_BAD
           : strcmp(d->severity, "warning") == 0 ? ELEMENT_WARN
           : d->is_event                         ? ELEMENT_VALUE
                                                 : ELEMENT_STRONG;
}

/* A letter, so that the kind is not told by colour alone. */
static const char *severity_sign(const struct model_decision *d)
{
    return strcmp(d->severity, "error") == 0     ? "E"
           : strcmp(d->severity, "warning") == 0 ? "W"
           : d->is_event                         ? DOT
                                                 : "D";
}

/* Of a list that reaches back beyond today, as wide as its dates. */
static int moment_cols(const struct ui *ui)
{
    const struct model *model = ui->model;
    char first[TEXT_NUMBER], last[TEXT_NUMBER];

    if (model->decisions_count == 0) return 0;
    ui_moment(ui, first, model->decision[0].time_ms); /* newest */
    ui_moment(ui, last, model->decision[model->decisions_count - 1].time_ms);
    return text_width(first) > text_width(last) ? text_width(first) : text_width(last);
}

void ui_draw_decision(const struct ui *ui, struct screen *screen, int row, int cols,
                      const struct model_decision *d, bool selected)
{
    char clock[TEXT_NUMBER], change[160] = "", text[700], shown[700];
    int col = 1;

    const int clock_cols = moment_cols(ui);

    ui_moment(ui, clock, d->time_ms);
    if (d->before[0] != '\0' || d->after[0] != '\0')
        snprintf(change, sizeof change, "%s" ARROW "%s",
                 d->before[0] != '\0' ? d->before : TEXT_UNKNOWN,
                 d->after[0] != '\0' ? d->after : TEXT_UNKNOWN);
    screen_put(screen, row, col, clock_cols, ELEMENT_FAINT, clock);
    col += clock_cols + 1;
    col += screen_put(screen, row, col, 1, severity_element(d), severity_sign(d)) + 1;
    screen_put(screen, row, col, 12, severity_element(d),
               text_shorten(shown, sizeof shown, d->what, 12));
    col += 13;
    snprintf(text, sizeof text, "%s%s%s%s%s", change, change[0] != '\0' ? "  " : "", d->text,
             d->who[0] != '\0' ? "  by " : "", d->who);
    screen_put(screen, row, col, -1, ELEMENT_VALUE,
               text_shorten(shown, sizeof shown, text, cols - col - 1));
    if (selected) screen_paint(screen, row, 0, cols, ELEMENT_SELECTED);
}

/* Rows of one millisecond differ in what they say. */
static int64_t identity_of(const struct model_decision *d)
{
    int64_t identity = ui_identity(UI_IDENTITY ^ d->time_ms, d->what);

    identity = ui_identity(ui_identity(identity, d->before), d->after);
    return ui_identity(ui_identity(identity, d->text), d->numbers);
}

static int64_t decision_identity(const struct ui *ui, int row)
{
    return identity_of(&ui->model->decision[ui->order[row]]);
}

const struct model_decision *view_decisions_selected(const struct ui *ui)
{
    const struct model *model = ui->model;

    for (int i = 0; i < model->decisions_count; i++)
        if (identity_of(&model->decision[i]) == ui->list[VIEW_DECISIONS].identity)
            return &model->decision[i];
    return NULL;
}

const char *view_decisions_none(const struct ui *ui)
{
    return !ui->model->decisions_known      ? ui_why_unknown(ui, LIST_DECISIONS)
           : ui->model->decisions_count > 0 ? "nothing has this text; Esc shows all"
                                            : "nothing was decided yet";
}

static void draw_decision_detail(const struct ui *ui, struct screen *screen,
                                 const struct rect *panel, const struct model_decision *d)
{
    char date[TEXT_NUMBER], zone[TEXT_NUMBER], line[300];
    int row = panel->row + 1, end = panel->row + panel->rows;

    text_date(date, d->time_ms, ui->options.utc);
    snprintf(line, sizeof line, "%s %s  %s", date, text_zone(zone, d->time_ms, ui->options.utc),
             d->what);
    ui_draw_title(ui, screen, panel, line);
    if (d->before[0] != '\0' || d->after[0] != '\0') {
        snprintf(line, sizeof line, "%s " ARROW " %s",
                 d->before[0] != '\0' ? d->before : TEXT_UNKNOWN,
                 d->after[0] != '\0' ? d->after : TEXT_UNKNOWN);
        row = ui_draw_wrapped(screen, row, 1, panel->cols - 2, end, ELEMENT_STRONG, line);
    }
    row = ui_draw_wrapped(screen, row, 1, panel->cols - 2, end, ELEMENT_VALUE, d->text);
    row = ui_draw_wrapped(screen, row, 1, panel->cols - 2, end, ELEMENT_VALUE, d->numbers);
    snprintf(line, sizeof line, "by %s, %s", d->who[0] != '\0' ? d->who : TEXT_UNKNOWN,
             d->origin[0] != '\0' ? d->origin : TEXT_UNKNOWN);
    ui_draw_wrapped(screen, row, 1, panel->cols - 2, end, ELEMENT_FAINT, line);
}

static bool decision_matches(const struct model_decision *d, const char *filter)
{
    return ui_filter_matches(filter, d->what) || ui_filter_matches(filter, d->text) ||
           ui_filter_matches(filter, d->who) || ui_filter_matches(filter, d->severity) ||
           ui_filter_matches(filter, d->before) || ui_filter_matches(filter, d->after) ||
           ui_filter_matches(filter, d->is_event ? "event" : "decision");
}

void view_draw_decisions(struct ui *ui, struct screen *screen)
{
    const struct model *model = ui->model;
    struct ui_list *list = &ui->list[VIEW_DECISIONS];
    struct layout layout;
    const struct rect *body = &layout.part[LAYOUT_BODY], *detail = &layout.part[LAYOUT_DETAIL];
    int count = 0, rows;

    ui_frame(ui, screen, LAYOUT_LIST_DETAIL, 6, &layout);
    for (int i = 0; i < model->decisions_count; i++)
        if (decision_matches(&model->decision[i], list->filter)) ui->order[count++] = i;
    ui_draw_title(ui, screen, body,
                  list->filter[0] != '\0' /* whose note needs the room */
                      ? "Decisions and events"
                      : "Decisions (D) and events, warnings (W), errors (E), newest first");
    ui_draw_filter_note(screen, body, list, count, model->decisions_count);
    rows = body->rows - 1;
    ui_list_settle(ui, list, count, rows, decision_identity);
    if (count == 0)
        screen_put(screen, body->row + 1, 2, -1, ELEMENT_FAINT, view_decisions_none(ui));
    for (int i = list->top; i < count && i < list->top + rows; i++) {
        const struct model_decision *d = &model->decision[ui->order[i]];
        const struct rect line = {body->row + 1 + i - list->top, 0, 1, body->cols};

        ui_draw_decision(ui, screen, line.row, line.cols, d, i == list->selected);
        if (ui_is_past(ui) && d->time_ms > ui_at_ms(ui)) screen_dim(screen, &line);
    }
    if (count > 0 && detail->rows >= 3)
        draw_decision_detail(ui, screen, detail, &model->decision[ui->order[list->selected]]);
}

/* ---- help */

void view_draw_help(struct ui *ui, struct screen *screen)
{
    static const char *const words[][2] = {
        {"position", "0-based place in a block of draft tokens"},
        {"slope, intercept", "learned: P(accepted) = \xcf\x83(slope \xc3\x97 f + intercept)"},
        {"f", "the draft model's log-odds of its likeliest token"},
        {"accepted", "share of the drafts that were reached and survived"},
        {"predicted", "what was expected of the same drafts"},
        {"verify A of B", "draft tokens verified, of those drafted, a step"},
        {"adaptive", "drafts are trimmed by what was learned"},
        {"fixed K", "every draft of a uniform length K is verified"},
        {"off, shadow", "no speculation; decide as adaptive, act as fixed"},
        {"--", "unknown: no data, which is not zero"},
    };
    const int words_count = sizeof words / sizeof words[0];
    struct layout layout;
    const struct rect *body = &layout.part[LAYOUT_BODY];
    int row, lines = 0, total = words_count + 2, rows;

    ui_frame(ui, screen, LAYOUT_LIST, 0, &layout);
    for (int i = 0; i < key_bindings_count; i++) total += key_bindings[i].shown != NULL;
    rows = body->rows - 1;
    if (ui->help_top > total - rows) ui->help_top = total - rows;
    if (ui->help_top < 0) ui->help_top = 0;
    ui_draw_title(ui, screen, body,
                  total > rows ? "Help (Down scrolls, Esc leaves)" : "Help (Esc leaves)");
    row = body->row + 1 - ui->help_top;
    for (int i = 0; i < key_bindings_count; i++) {
        if (key_bindings[i].shown == NULL) continue;
        if (lines >= ui->help_top && lines < ui->help_top + rows) {
            screen_put(screen, row + lines, 2, -1, ELEMENT_STRONG, key_bindings[i].shown);
            screen_put(screen, row + lines, 15, -1, ELEMENT_TEXT, key_bindings[i].text);
        }
        lines++;
    }
    lines++;
    for (int i = -1; i < words_count; i++, lines++) {
        if (lines < ui->help_top || lines >= ui->help_top + rows) continue;
        if (i < 0) {
            screen_put(screen, row + lines, 2, -1, ELEMENT_TITLE, "Words");
            continue;
        }
        screen_put(screen, row + lines, 2, -1, ELEMENT_STRONG, words[i][0]);
        screen_put(screen, row + lines, 23, -1, ELEMENT_TEXT, words[i][1]);
    }
}
