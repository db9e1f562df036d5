/* reader.h - the read-only half of storage: history for the API, `trimtab query`, `trimtab export`.
 *
 * Works on a file that a daemon is writing, or on one at rest. Every statement runs under an
 * authorizer that allows reading only, with a time and a row limit. Not thread-safe: one reader a
 * thread.
 */
#ifndef STORAGE_READER_H
#define STORAGE_READER_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct reader;

/* NULL with *cause (malloc'd) when the file is missing, unreadable, not trimtab's, or of a newer
 * schema. */
struct reader *reader_open(const char *path, char **cause);
void reader_close(struct reader *reader); /* NULL-safe */
/* From now on what is under way fails with "interrupted" once *stop is not 0, which a signal
 * handler may set; it outlives the reader. */
void reader_stop_when(struct reader *reader, const volatile sig_atomic_t *stop);

struct reader_limits {
    int64_t time_ms, rows;
}; /* 0 = no limit; defaults are the caller's */

enum reader_type { READER_NULL, READER_INTEGER, READER_REAL, READER_TEXT, READER_BLOB };
struct reader_value {
    enum reader_type type;
    int64_t integer;
    double real;      /* also set for integers */
    const char *text; /* also set for BLOB (bytes); valid during the callback */
    size_t length;
};
/* Called once with values == NULL (column names only), then for every row. Return false to stop. */
typedef bool reader_row_fn(void *state, int columns, const char *const *names,
                           const struct reader_value *values);

enum reader_end {
    READER_DONE = 0,
    READER_ROW_LIMIT = 1,
    READER_TIME_LIMIT = 2,
    READER_STOPPED = 3,
    READER_ERROR = -1
};
/* Run one SELECT (further statements are refused). `bind` are (bind_count) values for ?1…; may be
 * NULL. */
enum reader_end reader_query(struct reader *reader, const char *sql,
                             const struct reader_value *bind, int bind_count,
                             const struct reader_limits *limits, reader_row_fn *row, void *state,
                             char **cause);

enum reader_format { READER_TABLE, READER_CSV, READER_JSON, READER_JSONL };
/* The same, printed to `out`, well-formed also where a limit ended it. Returns READER_DONE, the
 * limit that was hit, or READER_ERROR with *cause. */
enum reader_end reader_print(struct reader *reader, const char *sql,
                             const struct reader_limits *limits, enum reader_format format,
                             FILE *out, char **cause);

/* A consistent stand-alone copy of all rows newer than since_ms (0 = everything) while the daemon
 * writes. The ending of `to` decides: .db/.sqlite, .csv (a folder of one file a view), .jsonl. An
 * existing file is refused unless overwrite. progress(done 0..1) may be NULL. Returns 0, or -1 with
 * *cause; on failure nothing is left at `to` or beside it. */
int reader_export(struct reader *reader, const char *to, int64_t since_ms, bool overwrite,
                  void (*progress)(void *state, double done), void *state, char **cause);

/* One series for charts. series: "throughput_tps", "step_ms", "tokens_per_step", "accepted_ratio",
 * "budget", "rows_per_step", "slope", "slope_se", "drift_z", and of position K "intercept.K",
 * "intercept_se.K", "accepted.K", "predicted.K". Points are means over `step_ms` buckets of
 * [from_ms, to_ms), from the tier that fits; gaps are absent. Calls point(time_ms, value). Returns
 * the number of points, or -1 with *cause. */
int reader_series(struct reader *reader, const char *node, const char *series, int64_t from_ms,
                  int64_t to_ms, int64_t step_ms,
                  void (*point)(void *state, int64_t time_ms, double value), void *state,
                  char **cause);
bool reader_series_known(const char *series);

#endif
