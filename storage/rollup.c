/* rollup.c - see rollup.h. */
#include "config.h"

#include "storage/rollup.h"

#include "storage/sql.h"

#define MINUTE_MS INT64_C(60000)
#define HOUR_MS INT64_C(3600000)
#define CHUNK_ROWS 2000 /* rows looked at in one deletion: some milliseconds of the writer */
#define THIN_MS (5 * MINUTE_MS) /* one refit in this time stays after thinning */
#define TOGGLE_MS                                                                                  \
    302000 /* a mode change and the seconds behind it that its effect is computed from */
#define RECENT_MS (2 * HOUR_MS) /* never deleted for the sake of a row limit */

void rollup_limits_default(struct rollup_limits *limits)
{
    *limits = (struct rollup_limits){
        .keep_second_ms = 24 * HOUR_MS,
        .keep_minute_ms = 30 * 24 * HOUR_MS,
        .samples = 1500000,
        .positions = 1400000,        /* a day of one node with 16 positions */
        .minute_positions = 1200000, /* 30 days of one with 16 and of four with 6 */
        .intercepts = 500000,
        .calibrations = 400000,
        .costs = 200000,
        .events = 200000,
    };
}

/* ---- seconds to minutes and hours */

#define SUMS                                                                                       \
    " seconds = seconds + excluded.seconds, busy_seconds = busy_seconds + excluded.busy_seconds,"  \
    " running_sum = running_sum + excluded.running_sum,"                                           \
    " queued_sum = queued_sum + excluded.queued_sum, steps = steps + excluded.steps,"              \
    " drafted = drafted + excluded.drafted, admitted = admitted + excluded.admitted,"              \
    " verified = verified + excluded.verified, accepted = accepted + excluded.accepted,"           \
    " emitted = emitted + excluded.emitted, target_rows = target_rows + excluded.target_rows,"     \
    " draft_us = coalesce(draft_us + excluded.draft_us, draft_us, excluded.draft_us),"             \
    " verify_us = coalesce(verify_us + excluded.verify_us, verify_us, excluded.verify_us),"        \
    " own_us = coalesce(own_us + excluded.own_us, own_us, excluded.own_us),"                       \
    " step_us = coalesce(step_us + excluded.step_us, step_us, excluded.step_us)"
/* samples ?1 < id <= ?2 into their periods of `ms` */
#define ROLL_SAMPLES(table, unit, ms)                                                              \
    "INSERT INTO " table "(run_id, " unit ", mode_id, seconds, busy_seconds, running_sum,"         \
    " queued_sum, steps, drafted, admitted, verified, accepted, emitted, target_rows,"             \
    " draft_us, verify_us, own_us, step_us)"                                                       \
    " SELECT run_id, time_ms / " ms ", mode_id, count(*), sum(steps > 0), sum(running),"           \
    " sum(queued), sum(steps), sum(drafted), sum(admitted), sum(verified), sum(accepted),"         \
    " sum(emitted), sum(target_rows), sum(draft_us), sum(verify_us), sum(own_us), sum(step_us)"    \
    " FROM sample WHERE sample_id > ?1 AND sample_id <= ?2 GROUP BY 1, 2, 3"                       \
    " ON CONFLICT DO UPDATE SET" SUMS
#define ROLL_POSITIONS(table, unit, ms)                                                            \
    "INSERT INTO " table "(run_id, " unit ", position, reached, accepted, predicted_e4,"           \
    " squared_error_e4, log_loss_e4)"                                                              \
    " SELECT s.run_id, s.time_ms / " ms ", p.position, sum(p.reached), sum(p.accepted),"           \
    " sum(p.predicted_e4), sum(p.squared_error_e4), sum(p.log_loss_e4)"                            \
    " FROM sample AS s JOIN sample_position AS p USING (sample_id)"                                \
    " WHERE s.sample_id > ?1 AND s.sample_id <= ?2 GROUP BY 1, 2, 3"                               \
    " ON CONFLICT DO UPDATE SET reached = reached + excluded.reached,"                             \
    " accepted = accepted + excluded.accepted,"                                                    \
    " predicted_e4 = coalesce(predicted_e4 + excluded.predicted_e4, predicted_e4,"                 \
    " excluded.predicted_e4),"                                                                     \
    " squared_error_e4 = coalesce(squared_error_e4 + excluded.squared_error_e4,"                   \
    " squared_error_e4, excluded.squared_error_e4),"                                               \
    " log_loss_e4 = coalesce(log_loss_e4 + excluded.log_loss_e4, log_loss_e4,"                     \
    " excluded.log_loss_e4)"

static int get_state(sqlite3 *db, const char *name, int64_t *value)
{
    sqlite3_stmt *statement = NULL;
    *value = 0;
    int rc = sqlite3_prepare_v2(db, "SELECT value FROM rollup_state WHERE name = ?1", -1,
                                &statement, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW) *value = sqlite3_column_int64(statement, 0);
        if (rc == SQLITE_ROW || rc == SQLITE_DONE) rc = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    return rc;
}

/* Horizons only move forward: a clock that is set back brings nothing back. */
static int advance_state(sqlite3 *db, const char *name, int64_t value)
{
    sqlite3_stmt *statement = NULL;
    int rc =
        sqlite3_prepare_v2(db, "UPDATE rollup_state SET value = ?2 WHERE name = ?1 AND value < ?2",
                           -1, &statement, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
        sqlite3_bind_int64(statement, 2, value);
        rc = sqlite3_step(statement);
        if (rc == SQLITE_DONE) rc = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    return rc;
}

/* End the transaction that began before: keep its work when rc is SQLITE_OK. */
static int end_transaction(sqlite3 *db, int rc)
{
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (rc != SQLITE_OK && !sqlite3_get_autocommit(db))
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

static int roll_samples(sqlite3 *db, int64_t now_ms)
{
    static const char *const rolls[] = {ROLL_SAMPLES("sample_1m", "minute", "60000"),
                                        ROLL_SAMPLES("sample_1h", "hour", "3600000"),
                                        ROLL_POSITIONS("sample_1m_position", "minute", "60000"),
                                        ROLL_POSITIONS("sample_1h_position", "hour", "3600000")};
    int64_t range[2], begun;
    int rc = get_state(db, "rolled_sample_id", &range[0]);
    if (rc != SQLITE_OK) return rc;
    /* up to the first row of the minute that still runs; rows stamped by a clock far ahead do not
     * hold up the others */
    const int64_t window[] = {range[0], now_ms / MINUTE_MS * MINUTE_MS, now_ms + 5000};
    rc = storage_sql_int(db,
                         "SELECT min(sample_id) FROM sample WHERE sample_id > ?1 AND time_ms >= ?2"
                         " AND time_ms <= ?3",
                         window, 3, 0, &begun);
    if (rc == SQLITE_OK)
        rc = storage_sql_int(db, "SELECT max(sample_id) FROM sample", NULL, 0, 0, &range[1]);
    if (begun > 0) range[1] = begun - 1;
    if (rc != SQLITE_OK || range[1] <= range[0]) return rc;
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof rolls / sizeof *rolls; i++)
        rc = storage_sql_run(db, rolls[i], range, 2);
    return rc == SQLITE_OK ? advance_state(db, "rolled_sample_id", range[1]) : rc;
}

/* A mode change's effect is final once its seconds are past, another change came, or the run ended.
 */
static int keep_toggles(sqlite3 *db, int64_t now_ms)
{
    return storage_sql_run(
        db,
        "INSERT INTO toggle_result SELECT decision_id, seconds_before, seconds_after, tps_before, "
        "tps_after,"
        " gain, gain_low, gain_high, step_ms_before, step_ms_after FROM toggle_effect AS t"
        " WHERE decision_id NOT IN (SELECT decision_id FROM toggle_result) AND (time_ms < ?1 OR"
        " EXISTS(SELECT 1 FROM decision AS d WHERE d.what = 'mode' AND d.run_id = t.run_id"
        " AND d.before IS NOT d.after AND d.time_ms > t.time_ms) OR EXISTS(SELECT 1 FROM run AS r"
        " WHERE r.run_id = t.run_id AND r.end_ms IS NOT NULL))",
        (const int64_t[]){now_ms - TOGGLE_MS}, 1);
}

int rollup_advance(sqlite3 *db, int64_t now_ms)
{
    int64_t open_toggles;
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc != SQLITE_OK) return rc;
    rc = roll_samples(db, now_ms);
    if (rc == SQLITE_OK)
        rc = storage_sql_int(
            db,
            "SELECT EXISTS(SELECT 1 FROM decision WHERE what = 'mode' AND decision_id"
            " NOT IN"
            " (SELECT decision_id FROM toggle_result))",
            NULL, 0, 0, &open_toggles);
    if (rc == SQLITE_OK && open_toggles) rc = keep_toggles(db, now_ms);
    return end_transaction(db, rc);
}

/* ---- from when on a tier is kept */

static int count_rows(sqlite3 *db, const char *table, int64_t *rows)
{
    char *sql = sqlite3_mprintf("SELECT count(*) FROM %s", table);
    int rc = sql ? storage_sql_int(db, sql, NULL, 0, 0, rows) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return rc;
}

static int64_t round_up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* The horizon of the seconds: by age, and the time of the newest row that is too many; on a whole
 * minute. */
static int second_horizon(sqlite3 *db, const struct rollup_limits *limits, int64_t now_ms,
                          int64_t *from_ms)
{
    int64_t rows = 0, limit_ms = 0;
    *from_ms = now_ms - limits->keep_second_ms;
    int rc = count_rows(db, "sample", &rows);
    if (rc == SQLITE_OK && rows > limits->samples) {
        rc = storage_sql_int(db, "SELECT time_ms FROM sample ORDER BY sample_id LIMIT 1 OFFSET ?1",
                             (const int64_t[]){rows - limits->samples}, 1, 0, &limit_ms);
        limit_ms = round_up(limit_ms, MINUTE_MS);
        if (limit_ms > *from_ms && limit_ms < now_ms - RECENT_MS) *from_ms = limit_ms;
    }
    *from_ms = *from_ms / MINUTE_MS * MINUTE_MS;
    return rc;
}

/* The horizon of a table with a row a minute and more: by age, and in proportion to the rows that
 * are too many; on a whole hour. */
static int minute_horizon(sqlite3 *db, const char *table, int64_t most_rows, int64_t keep_ms,
                          int64_t now_ms, int64_t *from_ms)
{
    int64_t rows = 0, oldest = 0, age_from_ms = now_ms - keep_ms;
    int rc = count_rows(db, table, &rows);
    *from_ms = age_from_ms;
    if (rc == SQLITE_OK && rows > most_rows) {
        char *sql = sqlite3_mprintf("SELECT min(minute) FROM %s WHERE minute >= ?1", table);
        rc = sql ? storage_sql_int(db, sql, (const int64_t[]){age_from_ms / MINUTE_MS}, 1, 0,
                                   &oldest)
                 : SQLITE_NOMEM;
        sqlite3_free(sql);
        int64_t span_ms = now_ms - oldest * MINUTE_MS;
        if (rc == SQLITE_OK && oldest > 0 && span_ms > 0) {
            double share = (double)(rows - most_rows) / (double)rows;
            int64_t limit_ms =
                round_up(oldest * MINUTE_MS + (int64_t)(share * (double)span_ms), HOUR_MS);
            if (limit_ms > *from_ms && limit_ms < now_ms - RECENT_MS) *from_ms = limit_ms;
        }
    }
    *from_ms = *from_ms / HOUR_MS * HOUR_MS;
    return rc;
}

int rollup_set_horizon(sqlite3 *db, const struct rollup_limits *limits, int64_t now_ms)
{
    int64_t minute_ms = (now_ms - limits->keep_minute_ms) / HOUR_MS * HOUR_MS;
    int64_t second_ms = 0, position_ms = 0, calibration_ms = 0;
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc != SQLITE_OK) return rc;
    rc = second_horizon(db, limits, now_ms, &second_ms);
    if (rc == SQLITE_OK)
        rc = minute_horizon(db, "sample_1m_position", limits->minute_positions,
                            limits->keep_minute_ms, now_ms, &position_ms);
    if (rc == SQLITE_OK)
        rc = minute_horizon(db, "calibration", limits->calibrations, limits->keep_second_ms, now_ms,
                            &calibration_ms);
    if (second_ms < minute_ms) second_ms = minute_ms; /* the finer tier is never the longer one */
    if (rc == SQLITE_OK) rc = advance_state(db, "second_from_ms", second_ms);
    if (rc == SQLITE_OK) rc = advance_state(db, "minute_from_ms", minute_ms);
    if (rc == SQLITE_OK) rc = advance_state(db, "minute_position_from_ms", position_ms);
    if (rc == SQLITE_OK) rc = advance_state(db, "calibration_from_ms", calibration_ms);
    return end_transaction(db, rc);
}

/* ---- deletion */

/* Run `sql` (?1 = run, ?2 = limit value) for every run that has rows in `table`, until one chunk is
 * deleted. */
static int delete_by_run(sqlite3 *db, const char *table, const char *sql, int64_t limit, bool *more)
{
    int64_t run_id = 0;
    char *next = sqlite3_mprintf("SELECT min(run_id) FROM %s WHERE run_id > ?1", table);
    int rc = next ? SQLITE_OK : SQLITE_NOMEM;
    int64_t before = sqlite3_total_changes64(db);
    while (rc == SQLITE_OK && sqlite3_total_changes64(db) - before < CHUNK_ROWS) {
        rc = storage_sql_int(db, next, (const int64_t[]){run_id}, 1, 0, &run_id);
        if (rc != SQLITE_OK || run_id == 0) break;
        rc = storage_sql_run(db, sql, (const int64_t[]){run_id, limit}, 2);
    }
    if (sqlite3_total_changes64(db) > before) *more = true;
    sqlite3_free(next);
    return rc;
}

static int delete_seconds(sqlite3 *db, const struct rollup_limits *limits, bool *more)
{
    int64_t from_ms = 0, rows = 0, before = sqlite3_total_changes64(db);
    int rc = get_state(db, "second_from_ms", &from_ms);
    if (rc == SQLITE_OK)
        rc = delete_by_run(
            db, "sample",
            "DELETE FROM sample WHERE sample_id IN (SELECT sample_id FROM sample WHERE"
            " run_id = ?1 AND time_ms < ?2 AND sample_id <= (SELECT value FROM rollup_state"
            " WHERE name = 'rolled_sample_id') LIMIT 500)",
            from_ms, more);
    if (rc == SQLITE_OK) rc = count_rows(db, "sample_position", &rows);
    if (rc == SQLITE_OK && rows > limits->positions) {
        int64_t over =
            rows - limits->positions < CHUNK_ROWS ? rows - limits->positions : CHUNK_ROWS;
        rc = storage_sql_run(
            db,
            "DELETE FROM sample_position WHERE sample_id < min((SELECT sample_id FROM"
            " sample_position ORDER BY sample_id LIMIT 1 OFFSET ?1), 1 + (SELECT value FROM"
            " rollup_state WHERE name = 'rolled_sample_id'))",
            &over, 1);
    }
    if (sqlite3_total_changes64(db) > before) *more = true;
    return rc;
}

/* A run's oldest hour at a time: such a table is keyed by run and minute. */
#define DELETE_MINUTES(table)                                                                      \
    "DELETE FROM " table                                                                           \
    " WHERE run_id = ?1 AND minute < min(?2 / 60000, 60 + (SELECT min(minute)"                     \
    " FROM " table " WHERE run_id = ?1))"
#define DELETE_BINS                                                                                \
    "DELETE FROM calibration WHERE (run_id, stratum_id, minute) IN (SELECT run_id, stratum_id,"    \
    " minute FROM calibration WHERE run_id = ?1 AND minute < ?2 / 60000 LIMIT 2000)"

static int delete_minutes(sqlite3 *db, bool *more)
{
    static const struct {
        const char *state, *table, *sql;
    } tiers[] = {
        {"minute_from_ms", "sample_1m", DELETE_MINUTES("sample_1m")},
        {"minute_position_from_ms", "sample_1m_position", DELETE_MINUTES("sample_1m_position")},
        {"calibration_from_ms", "calibration", DELETE_BINS},
    };
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof tiers / sizeof *tiers; i++) {
        int64_t from_ms;
        rc = get_state(db, tiers[i].state, &from_ms);
        if (rc == SQLITE_OK) rc = delete_by_run(db, tiers[i].table, tiers[i].sql, from_ms, more);
    }
    return rc;
}

/* Of the next refits behind `state` that are older than until_ms, keep the last one in slot_ms of a
 * run and stratum, and with keep_marked also resets and rejections. */
static int thin_refits(sqlite3 *db, const char *state, int64_t until_ms, int64_t slot_ms,
                       bool keep_marked, bool *more)
{
    int64_t from = 0, young = 0, last = 0, count = 0;
    int rc = get_state(db, state, &from);
    if (rc == SQLITE_OK)
        rc = storage_sql_int(
            db,
            "SELECT max(refit_id) FROM (SELECT refit_id FROM refit WHERE refit_id > ?1"
            " ORDER BY refit_id LIMIT 500)",
            &from, 1, 0, &last);
    if (rc != SQLITE_OK || last == 0) return rc;
    const int64_t block[] = {from, last, until_ms};
    rc = storage_sql_int(db,
                         "SELECT min(refit_id) FROM refit WHERE refit_id > ?1 AND refit_id <= ?2"
                         " AND time_ms >= ?3",
                         block, 3, last + 1, &young);
    if (rc != SQLITE_OK || young <= from + 1) return rc;
    const int64_t old[] = {from, young - 1, slot_ms, keep_marked};
    rc = storage_sql_int(db, "SELECT count(*) FROM refit WHERE refit_id > ?1 AND refit_id <= ?2",
                         old, 2, 0, &count);
    /* a block is worked on when it is whole, so that its slots are */
    if (rc != SQLITE_OK || count < 500) return rc;
    rc = storage_sql_run(
        db,
        "DELETE FROM refit WHERE refit_id > ?1 AND refit_id <= ?2 AND (?4 = 0 OR"
        " (reset = 0 AND rejected IS NULL)) AND refit_id NOT IN (SELECT max(refit_id) FROM"
        " refit WHERE refit_id > ?1 AND refit_id <= ?2 AND rejected IS NULL"
        " GROUP BY run_id, stratum_id, time_ms / ?3)",
        old, 4);
    if (rc == SQLITE_OK) rc = advance_state(db, state, young - 1);
    *more = true;
    return rc;
}

static int delete_refits(sqlite3 *db, const struct rollup_limits *limits, int64_t now_ms,
                         bool *more)
{
    int64_t rows = 0, limit_ms = 0, until_ms = now_ms - limits->keep_second_ms;
    int rc = count_rows(db, "refit_intercept", &rows);
    if (rc == SQLITE_OK && rows > limits->intercepts)
        rc = storage_sql_int(db,
                             "SELECT time_ms FROM refit WHERE refit_id = (SELECT refit_id FROM"
                             " refit_intercept ORDER BY refit_id LIMIT 1 OFFSET ?1)",
                             (const int64_t[]){rows - limits->intercepts}, 1, 0, &limit_ms);
    if (limit_ms > until_ms) until_ms = limit_ms;
    if (rc == SQLITE_OK) rc = thin_refits(db, "thinned_refit_id", until_ms, THIN_MS, true, more);
    if (rc == SQLITE_OK)
        rc = thin_refits(db, "sparse_refit_id", now_ms - limits->keep_minute_ms, HOUR_MS, false,
                         more);
    return rc;
}

/* Cost cells that a later row replaced, events, and decisions of the planner: the oldest go first.
 */
static int delete_logs(sqlite3 *db, const struct rollup_limits *limits)
{
    static const char cost_sql[] = "DELETE FROM cost WHERE cost_id IN (SELECT cost_id FROM cost AS "
                                   "c WHERE EXISTS(SELECT 1 FROM cost AS"
                                   " x WHERE x.run_id = c.run_id AND x.part = c.part AND x.tokens "
                                   "= c.tokens AND x.requests = c.requests"
                                   " AND x.context_band = c.context_band AND x.cost_id > "
                                   "c.cost_id) ORDER BY cost_id LIMIT ?1)";
    static const char event_sql[] = "DELETE FROM event WHERE event_id IN (SELECT event_id FROM "
                                    "event ORDER BY event_id LIMIT ?1)";
    static const char decision_sql[] = "DELETE FROM decision WHERE decision_id IN (SELECT "
                                       "decision_id FROM decision WHERE what <> 'mode'"
                                       " ORDER BY decision_id LIMIT ?1)";
    const struct {
        const char *table, *sql;
        int64_t most;
    } logs[] = {{"cost", cost_sql, limits->costs},
                {"event", event_sql, limits->events},
                {"decision", decision_sql, limits->events}};
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof logs / sizeof *logs; i++) {
        int64_t rows = 0;
        rc = count_rows(db, logs[i].table, &rows);
        int64_t over = rows - logs[i].most < CHUNK_ROWS ? rows - logs[i].most : CHUNK_ROWS;
        if (rc == SQLITE_OK && over > 0) rc = storage_sql_run(db, logs[i].sql, &over, 1);
    }
    return rc;
}

int rollup_delete_chunk(sqlite3 *db, const struct rollup_limits *limits, int64_t now_ms, bool *more)
{
    *more = false;
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc != SQLITE_OK) return rc;
    rc = delete_seconds(db, limits, more);
    if (rc == SQLITE_OK) rc = delete_minutes(db, more);
    if (rc == SQLITE_OK) rc = delete_refits(db, limits, now_ms, more);
    if (rc == SQLITE_OK) rc = delete_logs(db, limits);
    return end_transaction(db, rc);
}
