/* series.c - reader_series: one line of a chart from the tier that fits.
 *
 * Rates and ratios are those of the bucket's sums, not means of ratios. Seconds serve steps below a
 * minute, minutes those below an hour; what a tier no longer holds comes from the next coarser one,
 * so a long chart gets sparser on the left instead of ending. Coefficients are means of up to
 * REFITS_PER_BUCKET refits spread over the bucket, found by seeks: a day of refits is many more
 * than a chart can show.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "storage/reader_internal.h"
#include "storage/sql.h"

#define MINUTE_MS INT64_C(60000)
#define HOUR_MS INT64_C(3600000)
#define MAX_BUCKETS 200000
#define REFITS_PER_BUCKET 4

struct bucket {
    double over, under; /* the value is over / under; under = 0: nothing there */
};

struct window {
    int64_t from_ms, to_ms, step_ms;
    struct bucket *buckets;
};

/* RATIO: over / under of a tier's rows, NODE's or those of a POSITION; the others are a column of
 * refits. */
enum series_kind { SERIES_NODE_RATIO, SERIES_POSITION_RATIO, SERIES_REFIT, SERIES_INTERCEPT };

struct series {
    enum series_kind kind;
    int position;             /* of POSITION_RATIO and INTERCEPT */
    const char *over, *under; /* SQL over a row of a tier; of refits `over` is the column */
};

static const struct {
    const char *name; /* ending in '.': a position follows */
    struct series series;
} known_series[] = {
    {"throughput_tps", {SERIES_NODE_RATIO, 0, "emitted", "seconds"}},
    {"step_ms", {SERIES_NODE_RATIO, 0, "step_us / 1000.0", "steps"}},
    {"tokens_per_step", {SERIES_NODE_RATIO, 0, "emitted", "steps"}},
    {"accepted_ratio", {SERIES_NODE_RATIO, 0, "accepted", "verified"}},
    {"budget", {SERIES_NODE_RATIO, 0, "admitted", "steps"}},
    {"rows_per_step", {SERIES_NODE_RATIO, 0, "target_rows", "steps"}},
    {"accepted.", {SERIES_POSITION_RATIO, 0, "accepted", "reached"}},
    {"predicted.", {SERIES_POSITION_RATIO, 0, "predicted_e4 / 1e4", "reached"}},
    {"slope", {SERIES_REFIT, 0, "slope", NULL}},
    {"slope_se", {SERIES_REFIT, 0, "slope_se", NULL}},
    {"drift_z", {SERIES_REFIT, 0, "drift_z", NULL}},
    {"intercept.", {SERIES_INTERCEPT, 0, "intercept", NULL}},
    {"intercept_se.", {SERIES_INTERCEPT, 0, "intercept_se", NULL}},
};

static bool find_series(const char *name, struct series *series)
{
    for (size_t i = 0; i < sizeof known_series / sizeof *known_series; i++) {
        const char *known = known_series[i].name, *digits = name + strlen(known);
        bool of_position = known[strlen(known) - 1] == '.';
        if (strncmp(name, known, strlen(known)) != 0) continue;
        if (!of_position && *digits != '\0') continue;
        *series = known_series[i].series;
        if (!of_position) return true;
        size_t length = strspn(digits, "0123456789");
        if (length == 0 || length > 3 || digits[length] != '\0') return false;
        series->position = atoi(digits);
        return true;
    }
    return false;
}

bool reader_series_known(const char *series)
{
    struct series found;
    return find_series(series, &found);
}

static void add_to_bucket(struct window *window, int64_t time_ms, double over, double under)
{
    if (time_ms < window->from_ms || time_ms >= window->to_ms) return;
    struct bucket *bucket = &window->buckets[(time_ms - window->from_ms) / window->step_ms];
    bucket->over += over;
    bucket->under += under;
}

/* ---- rates and ratios */

struct tier {
    const char *table, *key; /* a row's time is key * unit_ms */
    int64_t unit_ms;
    const char *seconds;   /* SQL: how many of them a row holds */
    const char *positions; /* FROM and JOIN of its rows of one position, in place of the table */
};
static const struct tier second_tier = {
    "sample", "time_ms", 1, "1",
    "(SELECT s.run_id, s.time_ms, s.sample_id, p.* FROM sample AS s"
    " JOIN sample_position AS p USING (sample_id) WHERE p.position = ?4)"};
static const struct tier minute_tier = {"sample_1m", "minute", MINUTE_MS, "seconds",
                                        "(SELECT * FROM sample_1m_position WHERE position = ?4)"};
static const struct tier hour_tier = {"sample_1h", "hour", HOUR_MS, "seconds",
                                      "(SELECT * FROM sample_1h_position WHERE position = ?4)"};

static int64_t round_up(int64_t time_ms, int64_t unit_ms)
{
    return (time_ms + unit_ms - 1) / unit_ms;
}

/* Rows of [from, to) of a tier; not_rolled: only seconds that are in no coarser tier yet, which are
 * few and the newest: the signs keep the planner off the index by time. */
static int read_tier(struct reader *reader, const struct tier *tier, const char *node,
                     const struct series *series, int64_t from_ms, int64_t to_ms, bool not_rolled,
                     struct window *window)
{
    sqlite3_stmt *statement = NULL;
    const char *under = strcmp(series->under, "seconds") == 0 ? tier->seconds : series->under;
    const char *sign = not_rolled ? "+" : "";
    bool of_position = series->kind == SERIES_POSITION_RATIO;
    if (from_ms >= to_ms) return SQLITE_OK;
    char *sql =
        sqlite3_mprintf("SELECT t.%s, %s, %s FROM node AS n JOIN run AS r USING (node_id)"
                        " JOIN %s AS t ON %st.run_id = r.run_id"
                        " WHERE n.name = ?1 AND %st.%s >= ?2 AND %st.%s < ?3%s",
                        tier->key, series->over, under, of_position ? tier->positions : tier->table,
                        sign, sign, tier->key, sign, tier->key,
                        not_rolled ? " AND t.sample_id > (SELECT value FROM rollup_state"
                                     " WHERE name = 'rolled_sample_id')"
                                   : "");
    int rc = sql ? sqlite3_prepare_v2(reader->db, sql, -1, &statement, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    if (rc == SQLITE_OK) {
        sqlite3_bind_text(statement, 1, node, -1, SQLITE_STATIC);
        sqlite3_bind_int64(statement, 2, round_up(from_ms, tier->unit_ms));
        sqlite3_bind_int64(statement, 3, round_up(to_ms, tier->unit_ms));
        if (of_position) sqlite3_bind_int(statement, 4, series->position);
        while ((rc = sqlite3_step(statement)) == SQLITE_ROW) {
            if (sqlite3_column_type(statement, 1) == SQLITE_NULL ||
                sqlite3_column_type(statement, 2) == SQLITE_NULL)
                continue; /* a part is unknown */
            add_to_bucket(window, sqlite3_column_int64(statement, 0) * tier->unit_ms,
                          sqlite3_column_double(statement, 1), sqlite3_column_double(statement, 2));
        }
        if (rc == SQLITE_DONE) rc = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    return rc;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int read_ratio(struct reader *reader, const char *node, const struct series *series,
                      struct window *window)
{
    int64_t second_ms, minute_ms;
    int rc =
        storage_sql_int(reader->db, "SELECT value FROM rollup_state WHERE name = 'second_from_ms'",
                        NULL, 0, 0, &second_ms);
    if (rc == SQLITE_OK)
        rc = storage_sql_int(reader->db,
                             "SELECT value FROM rollup_state WHERE name = 'minute_from_ms'", NULL,
                             0, 0, &minute_ms);
    if (rc != SQLITE_OK) return rc;
    bool seconds = window->step_ms < MINUTE_MS, minutes = window->step_ms < HOUR_MS;
    /* hours up to `minute_ms`, minutes up to `second_ms`, seconds from there: or no finer than the
     * step asks for */
    if (!minutes) minute_ms = INT64_MAX;
    if (!seconds) second_ms = INT64_MAX;
    int64_t from = window->from_ms, to = window->to_ms;
    rc = read_tier(reader, &hour_tier, node, series, from, smaller(to, minute_ms), false, window);
    if (rc == SQLITE_OK && minutes)
        rc = read_tier(reader, &minute_tier, node, series, larger(from, minute_ms),
                       smaller(to, second_ms), false, window);
    if (rc == SQLITE_OK)
        rc = read_tier(reader, &second_tier, node, series, seconds ? larger(from, second_ms) : from,
                       to, !seconds, window);
    return rc;
}

/* ---- coefficients */

/* The first refit of a run and stratum at or behind ?3, that was not rejected; of it a column, or
 * that of one intercept. */
#define REFIT_WHERE                                                                                \
    " WHERE f.run_id = ?1 AND f.stratum_id = ?2 AND f.time_ms >= ?3 AND f.time_ms < ?4"            \
    " AND f.rejected IS NULL AND %s IS NOT NULL ORDER BY f.time_ms LIMIT 1"
static const char refit_sql[] = "SELECT f.time_ms, f.%s FROM refit AS f" REFIT_WHERE;
static const char intercept_sql[] =
    "SELECT f.time_ms, i.%s FROM refit AS f CROSS JOIN refit_intercept AS i"
    " ON i.refit_id = f.refit_id AND i.position = ?5" REFIT_WHERE;

static int prepare_refits(struct reader *reader, const struct series *series,
                          sqlite3_stmt **statement)
{
    char *sql = sqlite3_mprintf(series->kind == SERIES_INTERCEPT ? intercept_sql : refit_sql,
                                series->over, series->over);
    int rc = sql ? sqlite3_prepare_v2(reader->db, sql, -1, statement, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    if (rc == SQLITE_OK && series->kind == SERIES_INTERCEPT)
        sqlite3_bind_int(*statement, 5, series->position);
    return rc;
}

static int read_run(sqlite3_stmt *statement, int64_t run_id, int64_t stratum_id,
                    struct window *window)
{
    int64_t slot_ms = larger(1, window->step_ms / REFITS_PER_BUCKET), at_ms = window->from_ms;
    int rc = SQLITE_DONE;
    sqlite3_bind_int64(statement, 1, run_id);
    sqlite3_bind_int64(statement, 2, stratum_id);
    sqlite3_bind_int64(statement, 4, window->to_ms);
    while (at_ms < window->to_ms) {
        sqlite3_bind_int64(statement, 3, at_ms);
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW) {
            int64_t time_ms = sqlite3_column_int64(statement, 0);
            add_to_bucket(window, time_ms, sqlite3_column_double(statement, 1), 1);
            at_ms = window->from_ms + ((time_ms - window->from_ms) / slot_ms + 1) * slot_ms;
        }
        sqlite3_reset(statement);
        if (rc != SQLITE_ROW) break;
    }
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Strata have coefficients of their own: a chart shows the one that the node used most, by
 * observations in its last refits. */
static const char stratum_sql[] =
    "SELECT f.stratum_id FROM node AS n JOIN run AS r USING (node_id) JOIN stratum AS s JOIN refit "
    "AS f"
    " ON f.refit_id = (SELECT x.refit_id FROM refit AS x WHERE x.run_id = r.run_id"
    " AND x.stratum_id = s.stratum_id AND x.time_ms < ?3 ORDER BY x.time_ms DESC LIMIT 1)"
    " WHERE n.name = ?1 AND f.time_ms >= ?2 GROUP BY f.stratum_id ORDER BY sum(f.observations) "
    "DESC, 1 LIMIT 1";

static int find_stratum(struct reader *reader, const char *node, const struct window *window,
                        int64_t *stratum_id)
{
    sqlite3_stmt *statement = NULL;
    *stratum_id = 0;
    int rc = sqlite3_prepare_v2(reader->db, stratum_sql, -1, &statement, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_bind_text(statement, 1, node, -1, SQLITE_STATIC);
        sqlite3_bind_int64(statement, 2, window->from_ms);
        sqlite3_bind_int64(statement, 3, window->to_ms);
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW) *stratum_id = sqlite3_column_int64(statement, 0);
        if (rc == SQLITE_ROW || rc == SQLITE_DONE) rc = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    return rc;
}

static int read_coefficient(struct reader *reader, const char *node, const struct series *series,
                            struct window *window)
{
    sqlite3_stmt *runs = NULL, *refits = NULL;
    int64_t stratum_id;
    int rc = find_stratum(reader, node, window, &stratum_id);
    if (rc != SQLITE_OK || stratum_id == 0) return rc;
    rc = prepare_refits(reader, series, &refits);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(reader->db,
                                "SELECT run_id FROM node JOIN run USING (node_id) WHERE name = ?1",
                                -1, &runs, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_bind_text(runs, 1, node, -1, SQLITE_STATIC);
        while ((rc = sqlite3_step(runs)) == SQLITE_ROW) {
            rc = read_run(refits, sqlite3_column_int64(runs, 0), stratum_id, window);
            if (rc != SQLITE_OK) break;
        }
        if (rc == SQLITE_DONE) rc = SQLITE_OK;
    }
    sqlite3_finalize(runs);
    sqlite3_finalize(refits);
    return rc;
}

/* ---- */

int reader_series(struct reader *reader, const char *node, const char *name, int64_t from_ms,
                  int64_t to_ms, int64_t step_ms,
                  void (*point)(void *state, int64_t time_ms, double value), void *state,
                  char **cause)
{
    struct series series;
    struct window window = {.from_ms = from_ms, .to_ms = to_ms, .step_ms = step_ms};
    int points = 0;
    if (cause) *cause = NULL;
    if (!find_series(name, &series)) return storage_fail(cause, "there is no series '%s'", name);
    if (step_ms <= 0) return storage_fail(cause, "the step must be longer than nothing");
    if (to_ms <= from_ms) return 0;
    int64_t buckets = (to_ms - from_ms - 1) / step_ms + 1;
    if (buckets > MAX_BUCKETS)
        return storage_fail(cause,
                            "a step of %lld ms makes %lld points, more than %d; take a longer one",
                            (long long)step_ms, (long long)buckets, MAX_BUCKETS);
    window.buckets = calloc((size_t)buckets, sizeof *window.buckets);
    if (!window.buckets) return storage_fail(cause, "out of memory");
    reader->trusted = true;
    bool ratio = series.kind == SERIES_NODE_RATIO || series.kind == SERIES_POSITION_RATIO;
    int rc = ratio ? read_ratio(reader, node, &series, &window)
                   : read_coefficient(reader, node, &series, &window);
    reader->trusted = false;
    for (int64_t i = 0; rc == SQLITE_OK && i < buckets; i++) {
        if (window.buckets[i].under <= 0) continue;
        point(state, from_ms + i * step_ms, window.buckets[i].over / window.buckets[i].under);
        points++;
    }
    free(window.buckets);
    return rc == SQLITE_OK
               ? points
               : storage_fail(cause, "%s: %s", reader->path, sqlite3_errmsg(reader->db));
}
