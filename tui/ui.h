/* ui.h - the console without a terminal: what is shown, what a key does, what is asked of the node.
 *
 * Used by one thread. Time and data come from outside, keys are numbers, the result is a struct
 * screen: terminal.c puts it on a terminal, script.c into golden files. What must happen outside is
 * told by the UI_… bits that ui_key returns and by ui_take_command.
 */
#ifndef TUI_UI_H
#define TUI_UI_H

#include <stdbool.h>
#include <stdint.h>

#include "tui/keys.h"
#include "tui/model.h"
#include "tui/screen.h"

struct ui_options {
    bool utc, ascii, read_only;
    bool printed; /* on paper, so to say: no keys in the last line */
    int64_t interval_ms;
};

enum { /* what a key asks of the outside */
       UI_QUIT = 1,
       UI_DRAW = 2,
       UI_REPAINT = 4, /* forget what the terminal shows */
       UI_REFRESH = 8, /* fetch everything anew: another view, node, window, or `r` */
       UI_COMMAND = 16 /* ui_take_command has something */
};

enum command_kind { COMMAND_MODE, COMMAND_SET, COMMAND_CANCEL };
struct ui_command { /* what to ask of a node */
    enum command_kind kind;
    char node[SNAPSHOT_NAME];
    enum mode mode;                                       /* MODE */
    char setting[MODEL_SETTING_NAME], value[MODEL_VALUE]; /* SET; the value as JSON */
    int64_t request;                                      /* CANCEL */
    int64_t expect_generation;                            /* MODE and SET */
};

enum answer { ANSWER_OK, ANSWER_CONFLICT, ANSWER_REFUSED, ANSWER_UNREACHABLE };

struct ui; /* full in ui_state.h, for the views */

struct ui *ui_new(const struct ui_options *options); /* NULL when out of memory */
void ui_free(struct ui *ui);
struct model *ui_model(struct ui *ui);

/* mono_ms: monotonic; wall_ms: UTC. Never goes back. Returns true when what is shown depends on it
 * now (ages count up). */
bool ui_set_time(struct ui *ui, int64_t mono_ms, int64_t wall_ms);
/* The model has news. Returns true when the screen has to be drawn. */
bool ui_data_arrived(struct ui *ui);
/* The last attempt to fetch failed (text), or worked (NULL). */
void ui_set_trouble(struct ui *ui, const char *text);
/* Ctrl-C leaves a question as Esc does; what it means without one is the caller's. */
unsigned ui_key(struct ui *ui, uint32_t key);
/* A question or a prompt waits for its answer. */
bool ui_is_asking(const struct ui *ui);
bool ui_take_command(struct ui *ui, struct ui_command *out);
/* The daemon's answer to that command; text explains everything but ANSWER_OK. */
void ui_take_answer(struct ui *ui, enum answer answer, int64_t generation, const char *text);

void ui_draw(struct ui *ui, struct screen *screen);

/* What to fetch: the node, the view, the interval and the chart's window. */
const char *ui_node(const struct ui *ui);
enum view ui_view(const struct ui *ui);
int64_t ui_interval_ms(const struct ui *ui);
int64_t ui_window_ms(const struct ui *ui);
int64_t ui_at_ms(const struct ui *ui); /* the moment that is looked at; 0 = now */

#endif
