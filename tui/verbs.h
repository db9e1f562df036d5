/* verbs.h - what trimtab does without its console. Each verb takes the parsed command line and
 * returns the exit status. */
#ifndef TUI_VERBS_H
#define TUI_VERBS_H

#include "tui/options.h"
#include "tui/ui.h"

int verb_status(const struct options *options);
int verb_top(const struct options *options);
int verb_nodes(const struct options *options);
int verb_mode(const struct options *options);
int verb_set(const struct options *options);
int verb_query(const struct options *options);
int verb_export(const struct options *options);
int verb_bench(const struct options *options);
int verb_help(const struct options *options);

/* --once: one screen, or one JSON object (schema trimtab.once/1), from two samples. */
int verb_once(const struct options *options, const struct ui_options *ui_options);

#endif
