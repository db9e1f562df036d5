/* terminal.h - the console on a real terminal: ncurses, signals, and the loop that waits for keys
 * and news.
 *
 * curses is used by the calling thread only and never in a signal handler. The terminal is put back
 * on every way out: return, SIGTERM, SIGHUP, SIGINT, and fatal signals (a handler that writes a
 * prepared sequence and dies of the signal).
 */
#ifndef TUI_TERMINAL_H
#define TUI_TERMINAL_H

#include "controller/client.h"
#include "tui/scheme.h"
#include "tui/ui.h"

/* Can this terminal show the console? NULL, or a sentence that says why not. */
const char *terminal_unfit(void);

struct terminal_options {
    struct ui_options ui;
    enum scheme scheme;
    bool mouse;
    const char *node; /* NULL = the daemon's first */
    struct client_options client;
};

/* Returns an exit status; *cause (malloc'd) is set when it is not 0. Dies of a signal that ended
 * it. */
int terminal_run(const struct terminal_options *options, char **cause);

#endif
