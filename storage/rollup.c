/* rollup.c - see rollup.h. */
#include "config.h"

#include "storage/rollup.h"

#include "storage/sql.h"

#define MINUTE_MS INT64_C(60000)
#define TOGGLE_MS                                                                                  \
    302000 /* a mode change and the seconds behind it that its effect is computed from */

/* ---- seconds to minutes and hours */

/* clang-format off */
/* NULL is unknown: it adds nothing, and stays where nothing is known. */
#define ADD_KNOWN(column)                                                                          \
    " " #column " = coalesce(" #column " + excluded." #column ", " #column ", excluded." #column ")"
#define SUMS                                                                                       \
    " seconds = seconds + excluded.seconds, busy_seconds = busy_seconds + excluded.busy_seconds,"  \
    ADD_KNOWN(running_sum) "," ADD_KNOWN(queued_sum) "," ADD_KNOWN(steps) "," ADD_KNOWN(drafted)   \
    "," ADD_KNOWN(admitted) "," ADD_KNOWN(verified) "," ADD_KNOWN(accepted) "," ADD_KNOWN(emitted) \
    "," ADD_KNOWN(target_rows) "," ADD_KNOWN(draft_us) "," ADD_KNOWN(verify_us) ","                \
    ADD_KNOWN(own_us) "," ADD_KNOWN(step_us) ","                                                   \
    " unpriced_us = coalesce(unpriced_us, step_us) + excluded.unpriced_us,"                        \
    ADD_KNOWN(late_us) "," ADD_KNOWN(missed_us)
/* samples ?1 < id <= ?2 into their periods of `ms` */
#define ROLL_SAMPLES(table, unit, ms)                                                              \
    "INSERT INTO " table "(run_id, " unit ", mode_id, seconds, busy_seconds, running_sum,"         \
    " queued_sum, steps, drafted, admitted, verified, accepted, emitted, target_rows,"             \
    " draft_us, verify_us, own_us, step_us, unpriced_us, late_us, missed_us)"                      \
    " SELECT run_id, time_ms / " ms ", mode_id, count(*),"                                         \
    " sum(coalesce(steps, emitted, 0) > 0), sum(running), sum(queued), sum(steps),"                \
    " sum(drafted), sum(admitted), sum(verified), sum(accepted),"         \
    " sum(emitted), sum(target_rows), sum(draft_us), sum(verify_us), sum(own_us), sum(step_us),"   \
    " sum(coalesce(unpriced_us, step_us)), sum(late_us), sum(missed_us)"                           \
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
    " accepted = accepted + excluded.accepted," ADD_KNOWN(predicted_e4) "," ADD_KNOWN(             \
        squared_error_e4) "," ADD_KNOWN(log_loss_e4)
/* clang-format on */

static int roll_samples(sqlite3 *db, int64_t now_ms)
{
    static const char *const rolls[] = {ROLL_SAMPLES("sample_1m", "minute", "60000"),
                                        ROLL_SAMPLES("sample_1h", "hour", "3600000"),
                                        ROLL_POSITIONS("sample_1m_position", "minute", "60000"),
                                        ROLL_POSITIONS("sample_1h_position", "hour", "3600000")};
    int64_t range[2], begun;
    int rc = storage_state_get(db, "rolled_sample_id", &range[0]);
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
    return rc == SQLITE_OK ? storage_state_advance(db, "rolled_sample_id", range[1]) : rc;
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
    int64_t open_toggles = 0;
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc != SQLITE_OK) return rc;
    rc = roll_samples(db, now_ms);
    if (rc == SQLITE_OK)
        rc = storage_sql_int(
            db,
            "SELECT EXISTS(SELECT 1 FROM decision WHERE what = 'mode' AND before IS NOT after"
            " AND run_id IS NOT NULL"
            " AND decision_id NOT IN (SELECT decision_id FROM toggle_result))",
            NULL, 0, 0, &open_toggles);
    if (rc == SQLITE_OK && open_toggles) rc = keep_toggles(db, now_ms);
    return storage_end_transaction(db, rc);
}
