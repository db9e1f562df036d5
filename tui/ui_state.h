/* ui_state.h - the console's state, shared by ui.c and the views (view_*.c), and what the views
 * offer. */
#ifndef TUI_UI_STATE_H
#define TUI_UI_STATE_H

#include "tui/layout.h"
#include "tui/text.h"
#include "tui/ui.h"

#define UI_FILTER 64
#define UI_NORMAL_95 1.96 /* half a 95 % interval, in standard errors */

enum prompt { PROMPT_NONE, PROMPT_CONFIRM, PROMPT_VALUE, PROMPT_FILTER, PROMPT_TIME };

struct ui_list { /* where a list stands; the selection follows identity, not the row */
    int64_t identity;
    int selected, top;
    int sort;
    char filter[UI_FILTER];
};

struct ui {
    struct ui_options options;
    struct model *model;
    int64_t mono_ms, wall_ms;
    enum view view, back;  /* back: where Esc leaves help to */
    struct snapshot shown; /* of now or of the past, or the one held by pause */
    bool paused;
    int64_t window_ms;
    char trouble[240]; /* why the last fetch failed; empty = it worked */

    enum prompt prompt;
    char typed[32];           /* at PROMPT_TIME and PROMPT_VALUE */
    struct ui_command asked;  /* what PROMPT_CONFIRM and PROMPT_VALUE are about */
    struct model_setting old; /* of a setting that is asked about: its value before */

    bool command_waiting; /* for ui_take_command */
    struct ui_command command;
    struct model_setting undo;  /* the value before the last change of a setting; no name = none */
    bool pending;               /* asked, not yet read back */
    int64_t pending_since_ms;   /* mono */
    int64_t pending_generation; /* the daemon's answer; -1 = none yet */

    char message[320];
    enum element message_element;
    int64_t message_until_ms; /* mono; 0 = until a key */

    struct ui_list list[VIEW_COUNT];
    int help_top, positions_top;
    int order[MODEL_NODES]; /* rows of the shown list, as indices of the model's; while drawing
                             */
};
_Static_assert(MODEL_NODES >= MODEL_DECISIONS && MODEL_NODES >= MODEL_REQUESTS, "holds any list");

/* ---- of ui_act.c, for ui.c and the views */
void ui_say(struct ui *ui, enum element element, bool until_key, const char *text);
/* A key that acts on the selected row found none. */
void ui_say_none(struct ui *ui, const char *why);
void ui_ask_toggle(struct ui *ui);
void ui_ask_cancel(struct ui *ui);  /* of the selected request */
void ui_ask_setting(struct ui *ui); /* of the selected one */
void ui_ask_undo(struct ui *ui);
unsigned ui_answer_question(struct ui *ui, uint32_t key); /* a key at PROMPT_CONFIRM */
unsigned ui_edit_value(struct ui *ui, uint32_t key);      /* a key at PROMPT_VALUE */
/* A key of a line that is being typed. */
void ui_type(struct ui *ui, uint32_t key);
/* News from the node: is what was asked for in force? */
void ui_read_back(struct ui *ui);
/* What is asked, or was, in words: `fixed K=2 → adaptive, drafts trimmed`. */
const char *ui_describe(const struct ui *ui, const struct ui_command *command, char *out,
                        size_t size);
/* A setting's value as a person writes it: without quotes, on and off. */
const char *ui_plain_value(const char *json, char out[MODEL_VALUE]);

/* ---- for views */
bool ui_is_stale(const struct ui *ui); /* what is shown; the past never is */
bool ui_is_past(const struct ui *ui);
bool ui_is_read_only(const struct ui *ui);
/* A moment in few columns: the clock, or the date when it is not of today (text_moment_brief). */
char *ui_moment(const struct ui *ui, char out[TEXT_NUMBER], int64_t time_ms);
/* End of the charts' window in the node's clock. */
int64_t ui_chart_end_ms(const struct ui *ui);
/* `─Title──────` over a panel; returns the column after the title. */
int ui_draw_title(const struct ui *ui, struct screen *screen, const struct rect *panel,
                  const char *title);
/* Keep list->selected on the row of list->identity, and it inside `rows` shown rows. identity_of
 * gives a row's identity; only the view that defines it can tell which row it means
 * (view_..._selected). */
void ui_list_settle(struct ui *ui, struct ui_list *list, int count, int rows,
                    int64_t (*identity_of)(const struct ui *ui, int row));
#define UI_IDENTITY INT64_C(0x2c1e33f52f0b3927) /* where an identity made of text begins */
/* Carries an identity on over one more text; never negative. */
int64_t ui_identity(int64_t identity, const char *text);
bool ui_filter_matches(const char *filter, const char *text); /* case-insensitive part of it */

struct ui_column { /* of a list */
    const char *head;
    int cols;      /* negative: left-aligned */
    int from_cols; /* least width of the panel that shows it */
};
struct ui_sorting { /* what the comparisons that qsort_r calls need */
    const struct model *model;
    int by; /* column */
};
/* Header, health and footer of a view that is a list. */
void ui_frame(struct ui *ui, struct screen *screen, enum layout_kind kind, int detail_rows,
              struct layout *layout);
void ui_dim_if_stale(const struct ui *ui, struct screen *screen, const struct layout *layout);
/* A cell, right-aligned or cut; returns the next column. */
int ui_draw_field(struct screen *screen, int row, int col, const struct ui_column *column, int cols,
                  enum element element, const char *text);
/* sorted: index of the column the list is sorted by, -1 = none. */
void ui_draw_heads(struct screen *screen, int row, const struct ui_column *column, int count,
                   int cols, int sorted);
/* Why a list that was not fetched is empty. */
const char *ui_why_unknown(const struct ui *ui, enum model_list list);
/* ` 3 of 12 with "x"` at the right of the title's rule. */
void ui_draw_filter_note(struct screen *screen, const struct rect *panel,
                         const struct ui_list *list, int shown, int all);
/* Text over rows [row, row_end), broken at blanks. Returns the next row. */
int ui_draw_wrapped(struct screen *screen, int row, int col, int cols, int row_end,
                    enum element element, const char *text);

struct ui_label { /* one `label value unit` of a line */
    const char *label, *value, *unit;
    enum element element;
};
/* Draw the parts that fit, in order, two blanks apart; returns the next column. */
int ui_draw_labels(struct screen *screen, int row, int col, int cols, const struct ui_label *label,
                   int count);

/* A titled chart of one series in `panel`, with its 95 % band where the standard error is known. */
struct ui_chart {
    int series, se;                 /* se: series of its standard error, for the band; 0 = none */
    const char *title;              /* without the window */
    double least_span, least_ratio; /* of the axis: absolute, and as a part of the highest value */
    bool area;
    int decimals;
    unsigned marks; /* bit per enum mark_kind */
};
extern const struct ui_chart ui_slope_chart; /* of the overview and the estimator view */
void ui_draw_chart(const struct ui *ui, struct screen *screen, const struct rect *panel,
                   const struct ui_chart *chart);

/* A row a position from `first` on: how far accepted lay from predicted, over the charts' window.
 */
void ui_draw_heat_strip(const struct ui *ui, struct screen *screen, const struct rect *panel,
                        int first);

/* Rows of the table of positions from `first` on, with its head; selected -1 = none. */
void ui_draw_position_rows(const struct ui *ui, struct screen *screen, const struct rect *panel,
                           int first, int selected);

/* One decision or event on one row. */
void ui_draw_decision(const struct ui *ui, struct screen *screen, int row, int cols,
                      const struct model_decision *decision, bool selected);

void view_draw_header(const struct ui *ui, struct screen *screen, const struct rect *area);
void view_draw_health(const struct ui *ui, struct screen *screen, const struct rect *area);
void view_draw_footer(const struct ui *ui, struct screen *screen, const struct rect *area);
void view_draw_overview(struct ui *ui, struct screen *screen);
void view_draw_positions(struct ui *ui, struct screen *screen);
void view_draw_requests(struct ui *ui, struct screen *screen);
void view_draw_decisions(struct ui *ui, struct screen *screen);
void view_draw_estimator(struct ui *ui, struct screen *screen);
void view_draw_cost(struct ui *ui, struct screen *screen);
void view_draw_fleet(struct ui *ui, struct screen *screen);
void view_draw_settings(struct ui *ui, struct screen *screen);
void view_draw_help(struct ui *ui, struct screen *screen);
/* The row that the view's last drawing had selected, found again by its identity, for the list may
 * have changed since; NULL = none, and view_..._none says why. */
const struct model_request *view_requests_selected(const struct ui *ui);
const struct model_decision *view_decisions_selected(const struct ui *ui);
const struct model_node *view_fleet_selected(const struct ui *ui);
const struct model_setting *view_settings_selected(const struct ui *ui);
const char *view_requests_none(const struct ui *ui);
const char *view_decisions_none(const struct ui *ui);
const char *view_fleet_none(const struct ui *ui);
const char *view_settings_none(const struct ui *ui);
/* What a setting takes, in a few words; empty when this console does not know it. */
const char *view_setting_choices(const char *name);

#endif
