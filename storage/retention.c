/* retention.c - see retention.h. */
#include "config.h"

#include "storage/retention.h"

#include "storage/sql.h"

#define MINUTE_MS INT64_C(60000)
#define HOUR_MS INT64_C(3600000)
#define CHUNK_ROWS 2000         /* rows deleted at once: some milliseconds of the writer */
#define CHUNK_REFITS 500        /* refits looked at in one thinning; each has a row a position */
#define THIN_MS (5 * MINUTE_MS) /* one refit in this time stays after thinning */
#define RECENT_MS (2 * HOUR_MS) /* never deleted for the sake of a row limit */

void retention_limits_default(struct retention_limits *limits)
{
    *limits = (struct retention_limits){
        .keep_second_ms = 24 * HOUR_MS,
        .keep_minute_ms = 30 * 24 * HOUR_MS,
        .samples = 1500000,
        .positions = 1385000,        /* a day of one node with 16 positions */
        .minute_positions = 1000000, /* 30 days of one with 16, or three with 6 */
        .intercepts = 400000,
        .calibrations = 231000, /* a day of one node with 16 positions */
        .costs = 200000,
        .events = 200000,
    };
}

/* ---- horizons */

static int count_rows(sqlite3 *db, const char *table, int64_t *rows)
{
    *rows = 0;
    char *sql = sqlite3_mprintf("SELECT count(*) FROM %s", table);
    int rc = sql ? storage_sql_int(db, sql, NULL, 0, 0, rows) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return rc;
}

/* Of a table whose key `id` grows with time: the oldest id that is within the newest `most` rows; 0
 * = all are. */
static int id_horizon(sqlite3 *db, const char *table, const char *id, int64_t most,
                      int64_t *from_id)
{
    int64_t rows;
    *from_id = 0;
    int rc = count_rows(db, table, &rows);
    if (rc != SQLITE_OK || rows <= most) return rc;
    char *sql = sqlite3_mprintf("SELECT %s FROM %s ORDER BY %s LIMIT 1 OFFSET ?1", id, table, id);
    rc = sql ? storage_sql_int(db, sql, (const int64_t[]){rows - most}, 1, 0, from_id)
             : SQLITE_NOMEM;
    sqlite3_free(sql);
    return rc;
}

static int64_t round_up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* The seconds: by age, and the time of the newest row that is too many; on a whole minute. */
static int second_horizon(sqlite3 *db, const struct retention_limits *limits, int64_t now_ms,
                          int64_t *from_ms)
{
    int64_t from_id, limit_ms = 0;
    *from_ms = now_ms - limits->keep_second_ms;
    int rc = id_horizon(db, "sample", "sample_id", limits->samples, &from_id);
    if (rc == SQLITE_OK && from_id > 0)
        rc = storage_sql_int(db, "SELECT time_ms FROM sample WHERE sample_id = ?1", &from_id, 1, 0,
                             &limit_ms);
    limit_ms = round_up(limit_ms, MINUTE_MS);
    if (limit_ms > *from_ms && limit_ms < now_ms - RECENT_MS) *from_ms = limit_ms;
    *from_ms = *from_ms / MINUTE_MS * MINUTE_MS;
    return rc;
}

/* A table with a row a minute and more: by age, and in proportion to the rows that are too many; on
 * a whole hour. */
static int minute_horizon(sqlite3 *db, const char *table, int64_t most, int64_t keep_ms,
                          int64_t now_ms, int64_t *from_ms)
{
    int64_t rows, oldest = 0, age_ms = now_ms - keep_ms;
    int rc = count_rows(db, table, &rows);
    *from_ms = age_ms;
    if (rc == SQLITE_OK && rows > most) {
        char *sql = sqlite3_mprintf("SELECT min(minute) FROM %s WHERE minute >= ?1", table);
        rc = sql ? storage_sql_int(db, sql, (const int64_t[]){age_ms / MINUTE_MS}, 1, 0, &oldest)
                 : SQLITE_NOMEM;
        sqlite3_free(sql);
        int64_t span_ms = now_ms - oldest * MINUTE_MS;
        if (rc == SQLITE_OK && oldest > 0 && span_ms > 0) {
            double share = (double)(rows - most) / (double)rows;
            int64_t limit_ms =
                round_up(oldest * MINUTE_MS + (int64_t)(share * (double)span_ms), HOUR_MS);
            if (limit_ms > *from_ms && limit_ms < now_ms - RECENT_MS) *from_ms = limit_ms;
        }
    }
    *from_ms = *from_ms / HOUR_MS * HOUR_MS;
    return rc;
}

static int set_tiers(sqlite3 *db, const struct retention_limits *limits, int64_t now_ms)
{
    int64_t minute_ms = (now_ms - limits->keep_minute_ms) / HOUR_MS * HOUR_MS;
    int64_t second_ms = 0, position_ms = 0, calibration_ms = 0;
    int rc = second_horizon(db, limits, now_ms, &second_ms);
    if (second_ms < minute_ms) second_ms = minute_ms; /* the finer tier is never the longer one */
    if (rc == SQLITE_OK)
        rc = minute_horizon(db, "sample_1m_position", limits->minute_positions,
                            limits->keep_minute_ms, now_ms, &position_ms);
    if (rc == SQLITE_OK)
        rc = minute_horizon(db, "calibration", limits->calibrations, limits->keep_second_ms, now_ms,
                            &calibration_ms);
    if (rc == SQLITE_OK) rc = storage_state_advance(db, "second_from_ms", second_ms);
    if (rc == SQLITE_OK) rc = storage_state_advance(db, "minute_from_ms", minute_ms);
    if (rc == SQLITE_OK) rc = storage_state_advance(db, "minute_position_from_ms", position_ms);
    if (rc == SQLITE_OK) rc = storage_state_advance(db, "calibration_from_ms", calibration_ms);
    return rc;
}

static int set_refits(sqlite3 *db, const struct retention_limits *limits, int64_t now_ms)
{
    int64_t from_id, limit_ms = 0, until_ms = now_ms - limits->keep_second_ms;
    int rc = id_horizon(db, "refit_intercept", "refit_id", limits->intercepts, &from_id);
    if (rc == SQLITE_OK && from_id > 0)
        rc = storage_sql_int(db, "SELECT time_ms FROM refit WHERE refit_id = ?1", &from_id, 1, 0,
                             &limit_ms);
    if (limit_ms > until_ms && limit_ms < now_ms) until_ms = limit_ms;
    if (rc == SQLITE_OK) rc = storage_state_advance(db, "thin_until_ms", until_ms);
    if (rc == SQLITE_OK)
        rc = storage_state_advance(db, "sparse_until_ms", now_ms - limits->keep_minute_ms);
    return rc;
}

static int set_ids(sqlite3 *db, const struct retention_limits *limits)
{
    const struct {
        const char *state, *table, *id;
        int64_t most;
    } tables[] = {{"position_from_id", "sample_position", "sample_id", limits->positions},
                  {"cost_from_id", "cost", "cost_id", limits->costs},
                  {"event_from_id", "event", "event_id", limits->events},
                  {"decision_from_id", "decision", "decision_id", limits->events}};
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof tables / sizeof *tables; i++) {
        int64_t from_id;
        rc = id_horizon(db, tables[i].table, tables[i].id, tables[i].most, &from_id);
        if (rc == SQLITE_OK) rc = storage_state_advance(db, tables[i].state, from_id);
    }
    return rc;
}

int retention_set_horizon(sqlite3 *db, const struct retention_limits *limits, int64_t now_ms)
{
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc != SQLITE_OK) return rc;
    rc = set_tiers(db, limits, now_ms);
    if (rc == SQLITE_OK) rc = set_refits(db, limits, now_ms);
    if (rc == SQLITE_OK) rc = set_ids(db, limits);
    return storage_end_transaction(db, rc);
}

/* ---- deletion */

/* clang-format off */
/* A run's rows (?1 = run, ?2 = horizon in ms). Seconds only when they are in the coarser tiers; minutes an hour at a time,
 * as such a table is keyed by run and minute. */
#define DELETE_MINUTES(table) \
    "DELETE FROM " table " WHERE run_id = ?1 AND minute < min(?2 / 60000," \
    " 60 + (SELECT min(minute) FROM " table " WHERE run_id = ?1))"
static const struct {
    const char *state, *table, *sql;
} by_time[] = {
    {"second_from_ms", "sample",
     "DELETE FROM sample WHERE sample_id IN (SELECT sample_id FROM sample"
     " WHERE run_id = ?1 AND time_ms < ?2 AND sample_id <="
     " (SELECT value FROM rollup_state WHERE name = 'rolled_sample_id') LIMIT 500)"},
    {"minute_from_ms", "sample_1m", DELETE_MINUTES("sample_1m")},
    {"minute_position_from_ms", "sample_1m_position", DELETE_MINUTES("sample_1m_position")},
    {"calibration_from_ms", "calibration",
     "DELETE FROM calibration WHERE (run_id, stratum_id, minute) IN (SELECT run_id, stratum_id,"
     " minute FROM calibration WHERE run_id = ?1 AND minute < ?2 / 60000 LIMIT 2000)"},
};
/* The oldest rows below an id (?1 = horizon): positions that are rolled up; cost cells that a later row replaced; events;
 * decisions that are no change of mode. */
static const struct {
    const char *state, *sql;
} by_id[] = {
    {"position_from_id",
     "DELETE FROM sample_position WHERE sample_id < min(?1, (SELECT value + 1 FROM rollup_state"
     "  WHERE name = 'rolled_sample_id'), coalesce((SELECT sample_id FROM sample_position"
     "  ORDER BY sample_id LIMIT 1 OFFSET 2000), ?1))"},
    {"cost_from_id",
     "DELETE FROM cost WHERE cost_id IN (SELECT cost_id FROM cost AS c WHERE cost_id < ?1"
     " AND EXISTS(SELECT 1 FROM cost AS x WHERE x.run_id = c.run_id AND x.part = c.part"
     "  AND x.tokens = c.tokens AND x.requests = c.requests"
     "  AND x.context_band = c.context_band AND x.cost_id > c.cost_id)"
     " ORDER BY cost_id LIMIT 2000)"},
    {"event_from_id",
     "DELETE FROM event WHERE event_id IN (SELECT event_id FROM event WHERE event_id < ?1"
     " ORDER BY event_id LIMIT 2000)"},
    {"decision_from_id",
     "DELETE FROM decision WHERE decision_id IN (SELECT decision_id FROM decision"
     " WHERE decision_id < ?1 AND what <> 'mode' ORDER BY decision_id LIMIT 2000)"},
};
/* clang-format on */

/* For every run that has rows in the table, until one chunk is deleted. */
static int delete_by_time(sqlite3 *db, const char *table, const char *sql, int64_t from_ms)
{
    int64_t run_id = 0, before = sqlite3_total_changes64(db);
    char *next = sqlite3_mprintf("SELECT min(run_id) FROM %s WHERE run_id > ?1", table);
    int rc = next ? SQLITE_OK : SQLITE_NOMEM;
    while (rc == SQLITE_OK && sqlite3_total_changes64(db) - before < CHUNK_ROWS) {
        rc = storage_sql_int(db, next, (const int64_t[]){run_id}, 1, 0, &run_id);
        if (rc != SQLITE_OK || run_id == 0) break;
        rc = storage_sql_run(db, sql, (const int64_t[]){run_id, from_ms}, 2);
    }
    sqlite3_free(next);
    return rc;
}

/* The next block of refits behind `done`, when all of it is older than until_ms: (from, to] in ids,
 * to = 0 when there is none. */
static int next_block(sqlite3 *db, const char *done, int64_t until_ms, int64_t *from, int64_t *to)
{
    int64_t young = 0;
    *to = 0;
    int rc = storage_state_get(db, done, from);
    if (rc == SQLITE_OK)
        rc = storage_sql_int(
            db,
            "SELECT refit_id FROM refit WHERE refit_id > ?1 ORDER BY refit_id LIMIT 1 OFFSET ?2",
            (const int64_t[]){*from, CHUNK_REFITS - 1}, 2, 0, to);
    if (rc == SQLITE_OK && *to > 0)
        rc = storage_sql_int(
            db,
            "SELECT EXISTS(SELECT 1 FROM refit WHERE refit_id > ?1 AND refit_id <= ?2"
            " AND time_ms >= ?3)",
            (const int64_t[]){*from, *to, until_ms}, 3, 0, &young);
    if (young) *to = 0;
    return rc;
}

/* Delete the refits that a later one of the same run and stratum follows in the same slot; with
 * keep_marked not the resets and rejections. */
static int thin_refits(sqlite3 *db, const char *done, const char *until, int64_t slot_ms,
                       bool keep_marked, bool *more)
{
    int64_t until_ms = 0, from = 0, to = 0;
    int rc = storage_state_get(db, until, &until_ms);
    if (rc == SQLITE_OK) rc = next_block(db, done, until_ms, &from, &to);
    if (rc != SQLITE_OK || to == 0) return rc;
    rc = storage_sql_run(db,
                         "DELETE FROM refit WHERE refit_id > ?1 AND refit_id <= ?2"
                         " AND (?4 = 0 OR (reset = 0 AND rejected IS NULL))"
                         " AND EXISTS(SELECT 1 FROM refit AS x WHERE x.run_id = refit.run_id"
                         " AND x.stratum_id = refit.stratum_id AND x.time_ms > refit.time_ms"
                         " AND x.time_ms < (refit.time_ms / ?3 + 1) * ?3 AND x.rejected IS NULL)",
                         (const int64_t[]){from, to, slot_ms, keep_marked}, 4);
    *more = true;
    return rc == SQLITE_OK ? storage_state_advance(db, done, to) : rc;
}

int retention_delete_chunk(sqlite3 *db, bool *more)
{
    int64_t horizon, before = sqlite3_total_changes64(db);
    *more = false;
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc != SQLITE_OK) return rc;
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof by_time / sizeof *by_time; i++) {
        rc = storage_state_get(db, by_time[i].state, &horizon);
        if (rc == SQLITE_OK) rc = delete_by_time(db, by_time[i].table, by_time[i].sql, horizon);
    }
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof by_id / sizeof *by_id; i++) {
        rc = storage_state_get(db, by_id[i].state, &horizon);
        if (rc == SQLITE_OK && horizon > 0) rc = storage_sql_run(db, by_id[i].sql, &horizon, 1);
    }
    if (sqlite3_total_changes64(db) > before) *more = true;
    if (rc == SQLITE_OK)
        rc = thin_refits(db, "thinned_refit_id", "thin_until_ms", THIN_MS, true, more);
    if (rc == SQLITE_OK)
        rc = thin_refits(db, "sparse_refit_id", "sparse_until_ms", HOUR_MS, false, more);
    return storage_end_transaction(db, rc);
}
