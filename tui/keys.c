/* keys.c - see keys.h. */
#include "config.h"

#include "tui/keys.h"

#include <string.h>

#include "tui/text.h"

#define ALL ((1u << VIEW_COUNT) - 1)
#define ON(view) (1u << (view))
#define LISTS (ON(VIEW_REQUESTS) | ON(VIEW_DECISIONS) | ON(VIEW_FLEET))
#define DATED (ALL & ~ON(VIEW_HELP)) /* have a past, or say that they have none */

const struct key_binding key_bindings[] = {
    {{'a'},
     ACTION_TOGGLE,
     ALL & ~ON(VIEW_HELP),
     "a",
     "toggle",
     "turn adaptive verification on or off (asks first)"},
    {{'s'},
     ACTION_SORT,
     ON(VIEW_REQUESTS) | ON(VIEW_FLEET),
     "s",
     "sort",
     "requests, fleet: sort by the next column"},
    {{'/'},
     ACTION_FILTER,
     LISTS,
     "/",
     "filter",
     "requests, decisions, fleet: show rows with a text"},
    {{KEY_CODE_ENTER, KEY_CODE_RIGHT, 'l'},
     ACTION_OPEN,
     ON(VIEW_FLEET),
     "Enter l",
     "watch",
     "fleet: watch the selected node"},
    {{KEY_CODE_ENTER, KEY_CODE_RIGHT, 'l'},
     ACTION_VISIT,
     ON(VIEW_DECISIONS),
     "Enter l",
     "visit",
     "decisions: look at the moment of the selected one"},
    {{KEY_CODE_ENTER, 'e'},
     ACTION_EDIT,
     ON(VIEW_SETTINGS),
     "Enter e",
     "change",
     "settings: change the selected one"},
    {{'u'}, ACTION_UNDO, ON(VIEW_SETTINGS), "u", "undo", "settings: take the last change back"},
    {{'x'}, ACTION_CANCEL, ON(VIEW_REQUESTS), "x", "cancel", "requests: cancel the selected one"},
    {{'1'},
     ACTION_VIEW_OVERVIEW,
     ALL,
     "1",
     "overview",
     "overview: mode, positions, slope and throughput"},
    {{'2'},
     ACTION_VIEW_POSITIONS,
     ALL,
     "2",
     "positions",
     "positions: what each draft position learned, with its past"},
    {{'3'},
     ACTION_VIEW_ESTIMATOR,
     ALL,
     "3",
     "estimator",
     "estimator: every stratum, its drift and its calibration curve"},
    {{'4'},
     ACTION_VIEW_COST,
     ALL,
     "4",
     "cost",
     "cost: measured times, and what each fixed K would give now"},
    {{'5'}, ACTION_VIEW_REQUESTS, ALL, "5", "requests", "requests: what the node works on now"},
    {{'6'},
     ACTION_VIEW_DECISIONS,
     ALL,
     "6",
     "decisions",
     "decisions and events, with the numbers behind each"},
    {{'7'},
     ACTION_VIEW_FLEET,
     ALL,
     "7",
     "fleet",
     "fleet: every node of the daemon; Enter watches one"},
    {{'8'},
     ACTION_VIEW_SETTINGS,
     ALL,
     "8",
     "settings",
     "settings of the node: Enter changes one, u takes it back"},
    {{KEY_CODE_TAB}, ACTION_NEXT_VIEW, ALL, "Tab", NULL, "next view (Shift-Tab: previous)"},
    {{KEY_CODE_BACK_TAB}, ACTION_PREVIOUS_VIEW, ALL, NULL, NULL, NULL},
    {{KEY_CODE_DOWN, 'j'}, ACTION_DOWN, ALL, "Down j", NULL, "next row"},
    {{KEY_CODE_UP, 'k'}, ACTION_UP, ALL, "Up k", NULL, "previous row"},
    {{KEY_CODE_PAGE_DOWN, ' '}, ACTION_PAGE_DOWN, ALL, "PgDn Space", NULL, "a page down"},
    {{KEY_CODE_PAGE_UP, 'b'}, ACTION_PAGE_UP, ALL, "PgUp b", NULL, "a page up"},
    {{KEY_CODE_HOME}, ACTION_FIRST, ALL, "Home", NULL, "first row"},
    {{KEY_CODE_END, 'G'}, ACTION_LAST, ALL, "End G", NULL, "last row"},
    {{'['}, ACTION_EARLIER, DATED, "[", "past", "go back in time by a part of the window"},
    {{']'}, ACTION_LATER, DATED, "]", NULL, "forward in time, up to now"},
    {{'{'}, ACTION_EVENT_BEFORE, DATED, "{", NULL, "to the decision or event before"},
    {{'}'}, ACTION_EVENT_AFTER, DATED, "}", NULL, "to the decision or event after"},
    {{'g'}, ACTION_GO_TO_TIME, DATED, "g", NULL, "go to a time: 12:04, 11-29 12:04, 2h, now"},
    {{'n'}, ACTION_NODE, ALL, "n", NULL, "watch the daemon's next node"},
    {{'w'}, ACTION_WIDER, DATED, "w", NULL, "longer charts, up to 30 days"},
    {{'W'}, ACTION_NARROWER, DATED, "W", NULL, "shorter charts, down to a minute"},
    {{'p'}, ACTION_PAUSE, ALL, "p", NULL, "hold the screen still; sampling goes on"},
    {{'+', '='}, ACTION_SLOWER, ALL, "+", NULL, "longer sampling interval"},
    {{'-'}, ACTION_FASTER, ALL, "-", NULL, "shorter sampling interval"},
    {{'r', KEY_CODE_F5}, ACTION_REFRESH, ALL, "r F5", NULL, "ask for everything anew"},
    {{KEY_CONTROL('L')}, ACTION_REDRAW, ALL, "Ctrl-L", NULL, "paint the whole screen anew"},
    {{KEY_CODE_ESCAPE, KEY_CODE_LEFT, 'h'},
     ACTION_BACK,
     ALL,
     "Esc h",
     NULL,
     "back: clears a filter, returns to now, to the overview"},
    {{'?', KEY_CODE_F1}, ACTION_HELP, ALL, "? F1", "help", "this help"},
    {{'q', KEY_CODE_F10}, ACTION_QUIT, ALL, "q F10", "quit", "leave"},
};
const int key_bindings_count = sizeof key_bindings / sizeof key_bindings[0];

enum action key_action(uint32_t key, enum view view)
{
    for (int i = 0; i < key_bindings_count; i++) {
        const struct key_binding *binding = &key_bindings[i];

        if ((binding->views & ON(view)) == 0 || key == 0) continue;
        for (int j = 0; j < 3; j++)
            if (binding->key[j] == key) return binding->action;
    }
    return ACTION_NONE;
}

uint32_t key_parse(const char *name)
{
    static const struct {
        const char *name;
        uint32_t key;
    } named[] = {
        {"Up", KEY_CODE_UP},
        {"Down", KEY_CODE_DOWN},
        {"Left", KEY_CODE_LEFT},
        {"Right", KEY_CODE_RIGHT},
        {"PgUp", KEY_CODE_PAGE_UP},
        {"PgDn", KEY_CODE_PAGE_DOWN},
        {"Home", KEY_CODE_HOME},
        {"End", KEY_CODE_END},
        {"Enter", KEY_CODE_ENTER},
        {"Esc", KEY_CODE_ESCAPE},
        {"Tab", KEY_CODE_TAB},
        {"Shift-Tab", KEY_CODE_BACK_TAB},
        {"F1", KEY_CODE_F1},
        {"F5", KEY_CODE_F5},
        {"F10", KEY_CODE_F10},
        {"Space", ' '},
        {"Backspace", KEY_CODE_BACKSPACE},
    };
    const char *rest = name;
    uint32_t character;

    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
        if (strcmp(name, named[i].name) == 0) return named[i].key;
    if (strncmp(name, "Ctrl-", 5) == 0 && name[5] >= 'A' && name[5] <= 'Z' && name[6] == '\0')
        return KEY_CONTROL(name[5]);
    character = text_next(&rest);
    return character != 0 && *rest == '\0' ? character : KEY_CODE_NONE;
}

void key_write_table(FILE *out)
{
    for (int i = 0; i < key_bindings_count; i++)
        if (key_bindings[i].shown != NULL)
            fprintf(out, "%s\t%s\n", key_bindings[i].shown, key_bindings[i].text);
}
