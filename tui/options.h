/* options.h - the command line: one table of options and one of verbs, for parsing, help,
 * completion and "did you mean". */
#ifndef TUI_OPTIONS_H
#define TUI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tui/scheme.h"

enum { /* exit statuses */
       EXIT_HEALTHY = 0,
       EXIT_DEGRADED = 1,    /* also: refused, failed */
       EXIT_UNREACHABLE = 2, /* no daemon answers */
       EXIT_INCOMPLETE = 3,  /* query: a limit ended it, rows are missing */
       EXIT_USAGE = 64       /* the command line is wrong (EX_USAGE of sysexits.h) */
};

struct options {
    const char *endpoint; /* socket path or URL; NULL = the default */
    char **urls;          /* (urls_count) the addresses that were named, engines' or a daemon's */
    int urls_count;
    char *key_env, *key_file; /* where the engines' key is */
    const char *token_file, *node, *script, *reason, *database, *export_to, *since;
    enum scheme scheme;
    bool scheme_given, read_only, utc, ascii, no_color, once, json, mouse, csv, jsonl, overwrite,
        dump_keys, plain, help, version;
    int64_t interval_ms, effect_s, limit_rows, timeout_s, count, minutes, window_s;
    int words_count; /* what is left: the verb's arguments */
    char **words;
};

struct verb {
    const char *name;
    int (*run)(const struct options *options);
    int words_least, words_most; /* -1 = any number */
    const char *arguments, *text;
};
extern const struct verb verbs[]; /* verbs.c */
extern const int verbs_count;

/* Parse; reorders argv. *verb is NULL for the console itself. 0, or -1 after *cause (malloc'd) was
 * set: exit EXIT_USAGE. */
int options_parse(int argc, char **argv, struct options *out, const struct verb **verb,
                  char **cause);
void options_print_help(FILE *out);

#endif
