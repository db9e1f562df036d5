/* verbs.h - what trimtab does without its console. Each verb takes the parsed command line and
 * returns the exit status. */
#ifndef TUI_VERBS_H
#define TUI_VERBS_H

#include "controller/client.h"
#include "controller/snapshot.h"
#include "tui/options.h"
#include "tui/ui.h"

int verb_status(const struct options *options);
int verb_top(const struct options *options);
int verb_nodes(const struct options *options);
int verb_mode(const struct options *options);
int verb_ab(const struct options *options);
int verb_set(const struct options *options);
int verb_query(const struct options *options);
int verb_export(const struct options *options);
int verb_bench(const struct options *options);
int verb_inspect(const struct options *options);
int verb_help(const struct options *options);

#define CONTROL_DEADLINE_MS 35000 /* a busy remote node may take this long to answer */
/* PUT the mode; EXIT_HEALTHY with its *generation, or the exit status after a message. */
int control_put_mode(struct client *client, const char *node, enum mode mode, int64_t expect,
                     const char *reason, int64_t *generation);
/* Watch the node until it reports what was asked for; the exit status, after a message but for
 * EXIT_HEALTHY. */
int control_read_back(struct client *client, const char *node, enum mode wanted, int64_t generation,
                      struct snapshot *snapshot);

/* --once: one screen, or one JSON object (schema trimtab.once/1), from two samples. */
int verb_once(const struct options *options, const struct ui_options *ui_options);

#endif
