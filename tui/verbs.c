/* verbs.c - the table of verbs: what the command line and the help know. See options.h. */
#include "config.h"

#include "tui/verbs.h"

const struct verb verbs[] = {
    {"status", verb_status, 0, 0, "", "a line a node, the exit status tells health"},
    {"top", verb_top, 0, 0, "", "a line a second, until stopped"},
    {"nodes", verb_nodes, 0, 0, "", "what the daemon watches"},
    {"mode", verb_mode, 2, 2, "NODE adaptive|fixed|off|shadow",
     "switch a node, wait until it is in force"},
    {"ab", verb_ab, 1, 1, "NODE", "compare fixed and adaptive on a running node, by turns"},
    {"set", verb_set, 1, -1, "NODE [KEY=VALUE...]", "show or change a node's settings"},
    {"query", verb_query, 1, 1, "SQL", "read the store with one SELECT"},
    {"export", verb_export, 0, 0, "--to FILE", "copy the store while the daemon writes"},
    {"inspect", verb_inspect, 1, 1, "URL|FILE", "what is understood of a page of metrics"},
    {"bench", verb_bench, 0, -1, "WHAT...", "measure (its own --help)"},
    {"help", verb_help, 0, 0, "", "print this"},
};
const int verbs_count = sizeof verbs / sizeof verbs[0];

int verb_help(const struct options *options)
{
    (void)options;
    options_print_help(stdout);
    return EXIT_HEALTHY;
}
