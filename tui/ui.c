/* ui.c - see ui.h: time, data and keys. Acting on a node is in ui_act.c, drawing in ui_draw.c and
 * view_*.c. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tui/text.h"
#include "tui/ui_state.h"
#include "tui/when.h"

#define INTERVAL_LEAST_MS 250
#define INTERVAL_MOST_MS 60000
#define MINUTE_MS INT64_C(60000)
#define HOUR_MS (60 * MINUTE_MS)
#define STEPS_A_WINDOW 15 /* `[` and `]` */

static const int64_t windows_ms[] = {MINUTE_MS,        5 * MINUTE_MS,    15 * MINUTE_MS,
                                     HOUR_MS,          6 * HOUR_MS,      24 * HOUR_MS,
                                     7 * 24 * HOUR_MS, 30 * 24 * HOUR_MS};
#define WINDOWS ((int)(sizeof windows_ms / sizeof windows_ms[0]))

struct ui *ui_new(const struct ui_options *options)
{
    struct ui *ui = calloc(1, sizeof *ui);

    if (ui == NULL) return NULL;
    ui->options = *options;
    ui->window_ms = 15 * MINUTE_MS;
    ui->model = model_new();
    if (ui->model == NULL) {
        free(ui);
        return NULL;
    }
    snapshot_clear(&ui->shown);
    return ui;
}

void ui_free(struct ui *ui)
{
    if (ui == NULL) return;
    model_free(ui->model);
    free(ui);
}

struct model *ui_model(struct ui *ui)
{
    return ui->model;
}

const char *ui_node(const struct ui *ui)
{
    return ui->model->node_id;
}

enum view ui_view(const struct ui *ui)
{
    return ui->view == VIEW_HELP ? ui->back : ui->view;
}

int64_t ui_interval_ms(const struct ui *ui)
{
    return ui->options.interval_ms;
}

int64_t ui_window_ms(const struct ui *ui)
{
    return ui->window_ms;
}

int64_t ui_at_ms(const struct ui *ui)
{
    return ui->model->past.time_ms;
}

bool ui_is_past(const struct ui *ui)
{
    return ui->model->past.time_ms > 0;
}

bool ui_is_stale(const struct ui *ui)
{
    return !ui_is_past(ui) && model_is_stale(ui->model, ui->mono_ms, ui->options.interval_ms);
}

bool ui_is_read_only(const struct ui *ui)
{
    return ui->options.read_only || ui->model->read_only;
}

int64_t ui_chart_end_ms(const struct ui *ui)
{
    int64_t end_ms = ui->shown.time_ms + 1;

    if (ui_is_past(ui)) return ui_at_ms(ui) + 1;
    if (!ui->paused && ui_is_stale(ui)) end_ms += ui->mono_ms - ui->model->advanced_mono_ms;
    return end_ms;
}

bool ui_set_time(struct ui *ui, int64_t mono_ms, int64_t wall_ms)
{
    ui->mono_ms = mono_ms;
    ui->wall_ms = wall_ms;
    if (ui->message[0] != '\0' && ui->message_until_ms > 0 && mono_ms >= ui->message_until_ms) {
        ui->message[0] = '\0';
        return true;
    }
    return ui->pending || ui_is_stale(ui) || ui->trouble[0] != '\0';
}

void ui_set_trouble(struct ui *ui, const char *text)
{
    text_clean(ui->trouble, sizeof ui->trouble, text != NULL ? text : "");
}

bool ui_data_arrived(struct ui *ui)
{
    if (!ui->paused) ui->shown = *model_snapshot(ui->model);
    ui_read_back(ui);
    return !ui->paused;
}

/* ---- keys */

static void go_to(struct ui *ui, enum view view)
{
    if (view == VIEW_HELP) {
        if (ui->view != VIEW_HELP) ui->back = ui->view;
        ui->help_top = 0;
    }
    ui->view = view;
}

static void step_view(struct ui *ui, int by)
{
    int views = VIEW_HELP; /* help is not in the round */

    go_to(ui, (enum view)((ui->view == VIEW_HELP ? 0 : (int)ui->view + by + views) % views));
}

static void move(struct ui *ui, int by, bool to_end)
{
    struct ui_list *list = &ui->list[ui->view];
    int *row = ui->view == VIEW_HELP       ? &ui->help_top
               : ui->view == VIEW_OVERVIEW ? &ui->positions_top
                                           : &list->selected;

    *row = to_end ? (by < 0 ? 0 : 1 << 20) : *row + by; /* the view bounds it when it draws */
    if (*row < 0) *row = 0;
    list->identity = -1; /* the row decides now, the view notes the identity */
}

static void change_interval(struct ui *ui, bool slower)
{
    int64_t *interval = &ui->options.interval_ms;
    char text[80];

    *interval = slower ? *interval * 2 : *interval / 2;
    if (*interval < INTERVAL_LEAST_MS) *interval = INTERVAL_LEAST_MS;
    if (*interval > INTERVAL_MOST_MS) *interval = INTERVAL_MOST_MS;
    snprintf(text, sizeof text, "sampling every %g s", (double)*interval / 1000);
    ui_say(ui, ELEMENT_GOOD, false, text);
}

static void change_window(struct ui *ui, int by)
{
    int i = 0;

    while (windows_ms[i] != ui->window_ms) i++;
    if (i + by >= 0 && i + by < WINDOWS) ui->window_ms = windows_ms[i + by];
}

/* ---- going back in time */

static unsigned look_at(struct ui *ui, int64_t time_ms)
{
    if (ui->model->snapshot_known && time_ms >= ui->model->snapshot.time_ms) time_ms = 0;
    ui->paused = false;
    model_look(ui->model, time_ms < 0 ? 0 : time_ms);
    ui->shown = *model_snapshot(ui->model);
    return UI_DRAW | UI_REFRESH;
}

static int64_t looked_at_ms(const struct ui *ui)
{
    return ui_is_past(ui) ? ui_at_ms(ui) : ui->model->snapshot.time_ms;
}

static unsigned step_time(struct ui *ui, int by)
{
    const int64_t second_ms = 1000;
    int64_t at_ms = looked_at_ms(ui) / second_ms * second_ms;

    if (!ui_is_past(ui) && (by > 0 || !ui->model->snapshot_known)) return UI_DRAW;
    return look_at(ui, at_ms + by * (ui->window_ms / STEPS_A_WINDOW));
}

/* To the nearest decision or event on that side. */
static unsigned step_event(struct ui *ui, int by)
{
    const struct model *model = ui->model;
    int64_t at_ms = looked_at_ms(ui), found_ms = 0;

    for (int i = 0; i < model->decisions_count; i++) {
        int64_t time_ms = model->decision[i].time_ms;

        if (by < 0 ? time_ms < at_ms && time_ms > found_ms
                   : time_ms > at_ms && (found_ms == 0 || time_ms < found_ms))
            found_ms = time_ms;
    }
    if (found_ms > 0) return look_at(ui, found_ms);
    if (by > 0 && ui_is_past(ui)) return look_at(ui, 0);
    ui_say(ui, ELEMENT_NOTE, false,
           by < 0 ? "no earlier decision or event is known" : "no later decision or event");
    return UI_DRAW;
}

static unsigned visit(struct ui *ui)
{
    const struct model_decision *decision = view_decisions_selected(ui);

    if (decision != NULL) return look_at(ui, decision->time_ms);
    ui_say_none(ui, view_decisions_none(ui));
    return UI_DRAW;
}

static unsigned edit_time(struct ui *ui, uint32_t key)
{
    int64_t time_ms;
    char text[120];

    if (key == KEY_CODE_ESCAPE) {
        ui->prompt = PROMPT_NONE;
    } else if (key == KEY_CODE_ENTER) {
        ui->prompt = PROMPT_NONE;
        if (ui->typed[0] == '\0' || strcmp(ui->typed, "now") == 0) return look_at(ui, 0);
        if (when_parse(ui->typed, ui->wall_ms, ui->options.utc, &time_ms))
            return look_at(ui, time_ms);
        snprintf(text, sizeof text,
                 "\"%s\" is no time in the past; try 12:04, 11-29 12:04, 2h or now", ui->typed);
        ui_say(ui, ELEMENT_WARN, true, text);
    } else {
        ui_type(ui, key);
    }
    return UI_DRAW;
}

static unsigned watch(struct ui *ui, const char *node_id)
{
    if (strcmp(node_id, ui->model->node_id) == 0) return UI_DRAW;
    model_watch(ui->model, node_id);
    snapshot_clear(&ui->shown);
    ui->paused = ui->pending = false;
    ui->positions_top = 0;
    return UI_DRAW | UI_REFRESH;
}

static unsigned open_node(struct ui *ui)
{
    const struct model_node *node = view_fleet_selected(ui);

    if (node == NULL) {
        ui_say_none(ui, view_fleet_none(ui));
        return UI_DRAW;
    }
    go_to(ui, VIEW_OVERVIEW);
    return watch(ui, node->id);
}

static unsigned next_node(struct ui *ui)
{
    struct model *model = ui->model;

    if (model->nodes_count < 2) {
        ui_say(ui, ELEMENT_NOTE, false, "the daemon has no other node");
        return UI_DRAW;
    }
    for (int i = 0; i < model->nodes_count; i++)
        if (strcmp(model->node[i].id, model->node_id) == 0)
            return watch(ui, model->node[(i + 1) % model->nodes_count].id);
    return watch(ui, model->node[0].id);
}

static unsigned back(struct ui *ui)
{
    struct ui_list *list = &ui->list[ui->view];

    if (ui->view == VIEW_HELP) {
        ui->view = ui->back;
    } else if (list->filter[0] != '\0') {
        list->filter[0] = '\0';
    } else if (ui_is_past(ui)) {
        return look_at(ui, 0);
    } else {
        go_to(ui, VIEW_OVERVIEW);
    }
    return UI_DRAW;
}

static unsigned act(struct ui *ui, enum action action)
{
    struct ui_list *list = &ui->list[ui->view];
    const int page = 10;

    switch (action) {
    case ACTION_NONE:
        return 0;
    case ACTION_QUIT:
        return UI_QUIT;
    case ACTION_HELP:
        if (ui->view == VIEW_HELP) return back(ui);
        go_to(ui, VIEW_HELP);
        return UI_DRAW;
    case ACTION_TOGGLE:
        ui_ask_toggle(ui);
        return UI_DRAW;
    case ACTION_VIEW_OVERVIEW:
    case ACTION_VIEW_POSITIONS:
    case ACTION_VIEW_ESTIMATOR:
    case ACTION_VIEW_COST:
    case ACTION_VIEW_REQUESTS:
    case ACTION_VIEW_DECISIONS:
    case ACTION_VIEW_FLEET:
    case ACTION_VIEW_SETTINGS:
        go_to(ui, (enum view)(action - ACTION_VIEW_OVERVIEW));
        return UI_DRAW | UI_REFRESH;
    case ACTION_NEXT_VIEW:
    case ACTION_PREVIOUS_VIEW:
        step_view(ui, action == ACTION_NEXT_VIEW ? 1 : -1);
        return UI_DRAW | UI_REFRESH;
    case ACTION_UP:
    case ACTION_DOWN:
        move(ui, action == ACTION_DOWN ? 1 : -1, false);
        return UI_DRAW;
    case ACTION_PAGE_UP:
    case ACTION_PAGE_DOWN:
        move(ui, action == ACTION_PAGE_DOWN ? page : -page, false);
        return UI_DRAW;
    case ACTION_FIRST:
    case ACTION_LAST:
        move(ui, action == ACTION_LAST ? 1 : -1, true);
        return UI_DRAW;
    case ACTION_OPEN:
        return open_node(ui);
    case ACTION_EDIT:
        ui_ask_setting(ui);
        return UI_DRAW;
    case ACTION_UNDO:
        ui_ask_undo(ui);
        return UI_DRAW;
    case ACTION_CANCEL:
        ui_ask_cancel(ui);
        return UI_DRAW;
    case ACTION_SORT:
        list->sort++;
        if (list->selected == 0) list->identity = -1; /* who looks at the top wants the new one */
        return UI_DRAW;
    case ACTION_FILTER:
        ui->prompt = PROMPT_FILTER;
        return UI_DRAW;
    case ACTION_EARLIER:
    case ACTION_LATER:
        return step_time(ui, action == ACTION_LATER ? 1 : -1);
    case ACTION_EVENT_BEFORE:
    case ACTION_EVENT_AFTER:
        return step_event(ui, action == ACTION_EVENT_AFTER ? 1 : -1);
    case ACTION_GO_TO_TIME:
        ui->prompt = PROMPT_TIME;
        ui->typed[0] = '\0';
        return UI_DRAW;
    case ACTION_VISIT:
        return visit(ui);
    case ACTION_PAUSE:
        ui->paused = !ui->paused;
        if (!ui->paused) ui->shown = *model_snapshot(ui->model);
        return UI_DRAW;
    case ACTION_SLOWER:
    case ACTION_FASTER:
        change_interval(ui, action == ACTION_SLOWER);
        return UI_DRAW | UI_REFRESH; /* the next sample may be due a whole old interval later */
    case ACTION_WIDER:
    case ACTION_NARROWER:
        change_window(ui, action == ACTION_WIDER ? 1 : -1);
        return UI_DRAW | UI_REFRESH;
    case ACTION_NODE:
        return next_node(ui);
    case ACTION_REFRESH:
        return UI_DRAW | UI_REFRESH;
    case ACTION_REDRAW:
        return UI_DRAW | UI_REPAINT;
    case ACTION_BACK:
        return back(ui);
    }
    return 0;
}

static unsigned edit_filter(struct ui *ui, uint32_t key)
{
    char *filter = ui->list[ui->view].filter, bytes[5];
    size_t length = strlen(filter);

    if (key == KEY_CODE_ENTER) {
        ui->prompt = PROMPT_NONE;
    } else if (key == KEY_CODE_ESCAPE) {
        filter[0] = '\0';
        ui->prompt = PROMPT_NONE;
    } else if (key == KEY_CODE_BACKSPACE) {
        while (length > 0 && ((unsigned char)filter[length - 1] & 0xc0) == 0x80) length--;
        if (length > 0) filter[length - 1] = '\0';
    } else if (key < KEY_CODE_UP && text_char_width(key) > 0 &&
               length + text_encode(key, bytes) < UI_FILTER) {
        strcat(filter, bytes);
    }
    return UI_DRAW;
}

bool ui_is_asking(const struct ui *ui)
{
    return ui->prompt != PROMPT_NONE;
}

unsigned ui_key(struct ui *ui, uint32_t key)
{
    if (ui_is_asking(ui) && key == KEY_CONTROL('C')) key = KEY_CODE_ESCAPE;
    if (ui->prompt == PROMPT_FILTER) return edit_filter(ui, key);
    if (ui->prompt == PROMPT_TIME) return edit_time(ui, key);
    if (ui->prompt == PROMPT_CONFIRM) return ui_answer_question(ui, key);
    if (ui->prompt == PROMPT_VALUE) return ui_edit_value(ui, key);
    ui->message[0] = '\0';
    return act(ui, key_action(key, ui->view)) | UI_DRAW;
}
