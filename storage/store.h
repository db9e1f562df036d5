/* store.h - what trimtab remembers: one SQLite file, written by one thread, read by everyone.
 *
 * The writer: store_open starts a thread that owns the write connection. store_put_* copy a row
 * into a bounded queue and return at once (a full queue drops the row and counts it); one
 * transaction a second commits. The file may vanish, fill up or become read-only while the daemon
 * runs: rows are then dropped and counted, store_health says since when, and a gap event is written
 * when writing works again. Readers use reader.h. Knows rows, not engines. All times are UTC
 * milliseconds; NaN is stored as NULL.
 */
#ifndef STORAGE_STORE_H
#define STORAGE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_MAX_POSITIONS 32
#define STORE_CALIBRATION_BINS 10

struct store;

struct store_options {
    const char *path;       /* database file; its folder is made (0700) when missing */
    int64_t keep_second_ms; /* 0 = a day */
    int64_t keep_minute_ms; /* 0 = 30 days */
    int64_t (*now_ms)(
        void *state); /* clock; NULL = the system's. Called from the writer thread as well */
    void *now_state;
};

/* Open or create, migrate (with a backup copy beside), recover what the last run left (an unclean
 * end becomes an event). A file that is damaged is moved aside and a new one begun: store_notice
 * and an event say so. NULL with *cause (malloc'd) on failure: newer schema, another daemon holds
 * it, another program's database, no permission, no space. A daemon may go on without: every other
 * call takes a NULL store, drops the row and reports "there is no store". */
struct store *store_open(const struct store_options *options, char **cause);
/* Commit what is queued, end the open runs cleanly, stop the thread. NULL-safe. */
void store_close(struct store *store);
const char *store_path(const struct store *store);
/* What the open found and did, worth a line in the log (file moved aside, migrated); "" when
 * nothing. */
const char *store_notice(const struct store *store);

struct store_health {
    bool ok;
    int64_t since_ms; /* UTC ms: of the first row that could not be written; when ok, of the open or
                         of the recovery */
    uint64_t dropped; /* rows */
    char reason[160];
};
void store_get_health(struct store *store, struct store_health *out);

/* A node and one lifetime of it. Returns the run id (> 0) used by every row, or -1. Strings are
 * copied; NULL = unknown. */
struct store_run {
    const char *node, *kind, *engine, *version, *model, *model_digest, *draft, *draft_digest,
        *hardware, *settings_json;
    int max_draft; /* below 0 = unknown */
};
int64_t store_begin_run(struct store *store, const struct store_run *run);
void store_end_run(struct store *store, int64_t run_id);

struct store_position { /* one second, one position; nothing is kept of one that was not reached */
    int64_t reached, accepted;
    double predicted, squared_error, log_loss; /* sums over reached positions with a prediction */
};

struct store_sample { /* one second of a node; counts below 0 are unknown */
    int64_t run_id, time_ms;
    int running, queued;
    int64_t drafted, admitted, verified, accepted, emitted, steps, target_rows; /* in this second */
    double draft_ms, verify_ms, own_ms, step_ms; /* sums over the second's steps */
    /* Sums over the second's priced steps (their cost was predicted, no prefill in them):
     * predicted, measured, |measured - predicted|. NaN where no cost is ever predicted. */
    double predicted_ms, priced_ms, missed_ms;
    double budget;    /* mean admitted a step; NaN without steps */
    const char *mode; /* adaptive fixed off shadow */
    int positions;
    struct store_position position[STORE_MAX_POSITIONS];
};
void store_put_sample(struct store *store, const struct store_sample *sample);

struct store_refit {
    int64_t run_id, time_ms, epoch; /* epoch: refits of this stratum so far */
    const char *stratum, *kind;     /* "model/greedy/t0", "online" */
    double slope, slope_se, level, centre, drift_z;
    int64_t observations; /* below 0 = unknown, as below */
    bool reset;           /* drift reset */
    const char *rejected; /* why the window was rejected, or NULL */
    int positions;
    struct {
        double intercept, intercept_se;
        int64_t observations;
    } position[STORE_MAX_POSITIONS];
};
void store_put_refit(struct store *store, const struct store_refit *refit);

struct store_calibration { /* a minute, one stratum: what that minute added, not a running total */
    int64_t run_id, time_ms;
    const char *stratum;
    int positions;
    struct {
        int64_t n;
        double sum_p, sum_y;
    } bin[STORE_MAX_POSITIONS][STORE_CALIBRATION_BINS];
};
void store_put_calibration(struct store *store, const struct store_calibration *calibration);

struct store_cost {
    int64_t run_id, time_ms;
    const char *part; /* "draft", "verify", "own" */
    int tokens, requests, context_band;
    double ms, spread_ms;
    int64_t n;
};
void store_put_cost(struct store *store, const struct store_cost *cost);

struct store_decision { /* who changed what, and the numbers behind it */
    int64_t run_id, time_ms;
    const char *who,
        *origin;      /* "uid 1000" / "token" / "planner"; "socket" / "tcp 127.0.0.1" / "daemon" */
    const char *what; /* "mode", "max_draft", … */
    const char *before, *after, *reason;
    const char *numbers_json; /* NULL or a JSON object */
};
void store_put_decision(struct store *store, const struct store_decision *decision);

struct store_event {
    int64_t run_id, time_ms; /* run_id 0 = the daemon itself */
    const char *severity,
        *kind; /* "info" "warning" "error"; "restart" "drift" "store" "request" … */
    const char *text, *numbers_json;
};
void store_put_event(struct store *store, const struct store_event *event);

/* Commit now and wait until everything queued before the call is committed (tests, shutdown). False
 * when the store is not writing. */
bool store_flush(struct store *store);

#endif
