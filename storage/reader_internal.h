/* reader_internal.h - what the modules of the read-only half share: reader.c (connection,
 * authorizer, limits), print.c, export.c and series.c.
 */
#ifndef STORAGE_READER_INTERNAL_H
#define STORAGE_READER_INTERNAL_H

#include <sqlite3.h>

#include "storage/reader.h"

/* Virtual machine steps between two calls of reader_check: microseconds. */
#define READER_CHECK_STEPS 1000

struct reader {
    sqlite3 *db;
    char *path;
    char *uri;           /* to attach the same file elsewhere, in the same way */
    bool trusted;        /* the statement is storage's own: the authorizer lets it pass */
    char denied[128];    /* what the authorizer last refused */
    int64_t deadline_ms; /* monotonic; 0 = none */
    bool timed_out;
    const volatile sig_atomic_t *stop; /* the caller's; NULL = nobody stops it */
};

/* SQLite's progress handler for any connection that works for `state`, a reader: nonzero at the
 * deadline and when its caller stops it. */
int reader_check(void *state);

/* A statement of storage's own (BEGIN, COMMIT). Returns 0, or -1 with *cause. */
int reader_run(struct reader *reader, const char *sql, char **cause);

/* As reader_print, with parameters, and the end in *end. */
int reader_print_bound(struct reader *reader, const char *sql, const struct reader_value *bind,
                       int bind_count, const struct reader_limits *limits,
                       enum reader_format format, FILE *out, enum reader_end *end, char **cause);

#endif
