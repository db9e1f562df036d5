/* keys.h - every key of the console in one table: it drives dispatch, the help screen, the footer
 * and the man page's list.
 *
 * A test checks that no key means two things in one view and that every function key has a letter.
 */
#ifndef TUI_KEYS_H
#define TUI_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { /* keys without a character, beyond Unicode */
       KEY_CODE_UP = 0x110000,
       KEY_CODE_DOWN,
       KEY_CODE_LEFT,
       KEY_CODE_RIGHT,
       KEY_CODE_PAGE_UP,
       KEY_CODE_PAGE_DOWN,
       KEY_CODE_HOME,
       KEY_CODE_END,
       KEY_CODE_ENTER,
       KEY_CODE_ESCAPE,
       KEY_CODE_TAB,
       KEY_CODE_BACK_TAB,
       KEY_CODE_BACKSPACE,
       KEY_CODE_F1,
       KEY_CODE_F5,
       KEY_CODE_F10,
       KEY_CODE_NONE
};
#define KEY_CONTROL(letter) ((uint32_t)((letter)&0x1f))

enum view {
    VIEW_OVERVIEW,
    VIEW_POSITIONS,
    VIEW_ESTIMATOR,
    VIEW_COST,
    VIEW_REQUESTS,
    VIEW_DECISIONS,
    VIEW_FLEET,
    VIEW_SETTINGS,
    VIEW_HELP,
    VIEW_COUNT
};

enum action {
    ACTION_NONE,
    ACTION_QUIT,
    ACTION_HELP,
    ACTION_TOGGLE,
    ACTION_VIEW_OVERVIEW, /* in the order of enum view */
    ACTION_VIEW_POSITIONS,
    ACTION_VIEW_ESTIMATOR,
    ACTION_VIEW_COST,
    ACTION_VIEW_REQUESTS,
    ACTION_VIEW_DECISIONS,
    ACTION_VIEW_FLEET,
    ACTION_VIEW_SETTINGS,
    ACTION_NEXT_VIEW,
    ACTION_PREVIOUS_VIEW,
    ACTION_UP,
    ACTION_DOWN,
    ACTION_PAGE_UP,
    ACTION_PAGE_DOWN,
    ACTION_FIRST,
    ACTION_LAST,
    ACTION_OPEN,
    ACTION_EDIT,
    ACTION_UNDO,
    ACTION_CANCEL,
    ACTION_SORT,
    ACTION_FILTER,
    ACTION_EARLIER,
    ACTION_LATER,
    ACTION_EVENT_BEFORE,
    ACTION_EVENT_AFTER,
    ACTION_GO_TO_TIME,
    ACTION_VISIT,
    ACTION_PAUSE,
    ACTION_SLOWER,
    ACTION_FASTER,
    ACTION_WIDER,
    ACTION_NARROWER,
    ACTION_NODE,
    ACTION_REFRESH,
    ACTION_REDRAW,
    ACTION_BACK
};

struct key_binding {
    uint32_t key[3]; /* 0 = none; the first is the one that is advertised */
    enum action action;
    unsigned views;    /* bit per enum view */
    const char *shown; /* as help writes it: "a", "Up k" */
    const char *brief; /* one word for the footer, NULL = not there */
    const char *text;  /* what it does */
};

extern const struct key_binding key_bindings[];
extern const int key_bindings_count;

enum action key_action(uint32_t key, enum view view);
/* A key by its name in scripts: "a", "Enter", "F1", "Ctrl-L", "Space". KEY_CODE_NONE when there is
 * no such key. */
uint32_t key_parse(const char *name);
/* "KEY<tab>what it does" lines; the man page's list is tested against it. */
void key_write_table(FILE *out);

#endif
