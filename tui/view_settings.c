/* view_settings.c - view 8: the node's settings, what each means and takes. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tui/text.h"
#include "tui/ui_state.h"

static const struct {
    const char *name, *choices, *meaning;
} known[] = {
    {"max_draft", "1 to the node's limit", "K: most draft tokens of one request in one step"},
    {"fixed_draft", "0 to max_draft; 0 is the best by cost", "the uniform K of mode fixed"},
    {"exploration", "on, off",
     "spend up to 0.5 % of steps on positions and drafters that have too few labels"},
    {"estimator", "online, parity; vLLM: engine, trimtab",
     "who learns: online forgets and notices drift, parity is vLLM's own rule"},
    {"refit_interval_steps", "1 and more; 0 is the estimator's own",
     "steps between two refits of the coefficients"},
    {"min_gain", "0 to 1; 0.01 is one per cent",
     "least predicted gain before drafting is taken up again"},
    {"draft", "auto, model, ngram, none", "who drafts; auto chooses by expected value"},
};
#define KNOWN (sizeof known / sizeof known[0])

static const struct ui_column column[] = {{"setting", -22, 0}, {"value", 10, 0}, {"takes", -42, 0}};
enum { COLUMNS = sizeof column / sizeof column[0] };

static int index_of(const char *name)
{
    for (size_t i = 0; i < KNOWN; i++)
        if (strcmp(known[i].name, name) == 0) return (int)i;
    return -1;
}

const char *view_setting_choices(const char *name)
{
    int i = index_of(name);

    return i >= 0 ? known[i].choices : "";
}

static int64_t setting_identity(const struct ui *ui, int row)
{
    return ui_identity(UI_IDENTITY, ui->model->setting[row].name);
}

const struct model_setting *view_settings_selected(const struct ui *ui)
{
    for (int row = 0; row < ui->model->settings_count; row++)
        if (setting_identity(ui, row) == ui->list[VIEW_SETTINGS].identity)
            return &ui->model->setting[row];
    return NULL;
}

const char *view_settings_none(const struct ui *ui)
{
    return ui->model->settings_known ? "the node has no settings"
                                     : ui_why_unknown(ui, LIST_SETTINGS);
}

static void draw_setting(struct screen *screen, int row, int cols, const struct model_setting *s)
{
    char value[MODEL_VALUE];
    const char *text[COLUMNS] = {s->name, ui_plain_value(s->value, value),
                                 view_setting_choices(s->name)};
    static const enum element element[] = {ELEMENT_TEXT, ELEMENT_STRONG, ELEMENT_FAINT};
    int col = 1;

    for (int i = 0; i < COLUMNS; i++)
        col = ui_draw_field(screen, row, col, &column[i], cols, element[i], text[i]);
}

static void draw_detail(const struct ui *ui, struct screen *screen, const struct rect *panel,
                        const struct model_setting *s)
{
    const int i = index_of(s->name), end = panel->row + panel->rows;
    char undo[160], pending[280], value[MODEL_VALUE];
    int row = panel->row + 1;

    ui_draw_title(ui, screen, panel, s->name);
    row = ui_draw_wrapped(screen, row, 1, panel->cols - 2, end, ELEMENT_VALUE,
                          i >= 0 ? known[i].meaning : "unknown to this console");
    if (s->pending[0] != '\0') {
        snprintf(pending, sizeof pending, "pending: %s (%s)", ui_plain_value(s->pending, value),
                 ui->model->settings_await);
        row = ui_draw_wrapped(screen, row, 1, panel->cols - 2, end, ELEMENT_WARN, pending);
    }
    if (ui->undo.name[0] == '\0') return;
    snprintf(undo, sizeof undo, "u takes the last change back: %s was %s", ui->undo.name,
             ui_plain_value(ui->undo.value, value));
    ui_draw_wrapped(screen, row, 1, panel->cols - 2, end, ELEMENT_NOTE, undo);
}

void view_draw_settings(struct ui *ui, struct screen *screen)
{
    const struct model *model = ui->model;
    struct ui_list *list = &ui->list[VIEW_SETTINGS];
    struct layout layout;
    const struct rect *body = &layout.part[LAYOUT_BODY], *detail = &layout.part[LAYOUT_DETAIL];

    ui_frame(ui, screen, LAYOUT_LIST_DETAIL, 4, &layout);
    ui_draw_title(ui, screen, body,
                  ui_is_past(ui) ? "Settings, as they are now (decisions tell their past)"
                                 : "Settings");
    ui_draw_heads(screen, body->row + 1, column, COLUMNS, body->cols, -1);
    ui_list_settle(ui, list, model->settings_count, body->rows - 2, setting_identity);
    if (model->settings_count == 0)
        screen_put(screen, body->row + 2, 2, -1, ELEMENT_FAINT, view_settings_none(ui));
    for (int i = list->top; i < model->settings_count && i < list->top + body->rows - 2; i++) {
        const int row = body->row + 2 + i - list->top;

        draw_setting(screen, row, body->cols, &model->setting[i]);
        if (i == list->selected) screen_paint(screen, row, 0, body->cols, ELEMENT_SELECTED);
    }
    if (model->settings_count > 0 && detail->rows >= 3)
        draw_detail(ui, screen, detail, &model->setting[list->selected]);
    ui_dim_if_stale(ui, screen, &layout);
}
