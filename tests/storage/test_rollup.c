/* test_rollup.c - tiers and retention on a clock of the test's: nothing lost, nothing twice,
 * whatever the order of rows; deletion in chunks; the effect of a mode change and its interval; how
 * large the file gets.
 */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "storage/file.h"
#include "storage/retention.h"
#include "storage/rollup.h"
#include "storage/rows.h"
#include "storage/sql.h"
#include "tests/storage/place.h"

#define MINUTE_MS INT64_C(60000)
#define HOUR_MS INT64_C(3600000)

struct world { /* a store without its thread */
    struct place place;
    struct store_file file;
    struct rows *rows;
    struct retention_limits limits;
};

static int make(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    char *cause = NULL;
    place_make(&world->place);
    if (store_file_open(&world->file, world->place.path, &schema_steps, NULL, &cause) != 0)
        fail_msg("%s", cause);
    world->rows = rows_open(world->file.db, &cause);
    assert_non_null(world->rows);
    sqlite3_exec(world->file.db, "PRAGMA synchronous = OFF", NULL, NULL, NULL);
    retention_limits_default(&world->limits);
    *state = world;
    return 0;
}

static int clean(void **state)
{
    struct world *world = *state;
    rows_close(world->rows);
    store_file_close(&world->file);
    place_remove(&world->place);
    free(world);
    return 0;
}

static int64_t begin_run(struct world *world, const char *node)
{
    int64_t run_id = 1000;
    struct store_run run = {.node = node, .kind = "replay"};
    assert_int_equal(rows_begin_run(world->rows, &run, PLACE_START_MS, &run_id), SQLITE_OK);
    return run_id;
}

static void put(struct world *world, enum queue_kind kind, const union queue_row *row, int64_t run)
{
    assert_int_equal(rows_put(world->rows, kind, row, run), SQLITE_OK);
}

static void put_second(struct world *world, int64_t run, int64_t i, int positions)
{
    union queue_row row;
    place_sample(&row.sample, run, i, positions);
    put(world, QUEUE_SAMPLE, &row, run);
}

static void execute(struct world *world, const char *sql)
{
    if (sqlite3_exec(world->file.db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(world->file.db));
}

static int64_t integer(struct world *world, const char *sql)
{
    int64_t value;
    if (storage_sql_int(world->file.db, sql, NULL, 0, -1, &value) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(world->file.db));
    return value;
}

static double real(struct world *world, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    assert_int_equal(sqlite3_prepare_v2(world->file.db, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    double value = sqlite3_column_type(statement, 0) == SQLITE_NULL
                       ? NAN
                       : sqlite3_column_double(statement, 0);
    sqlite3_finalize(statement);
    return value;
}

/* All retention that is due, and how many chunks it took. */
static int retain(struct world *world, int64_t now_ms)
{
    bool more = true;
    int chunks = 0;
    assert_int_equal(retention_set_horizon(world->file.db, &world->limits, now_ms), SQLITE_OK);
    for (; more; chunks++)
        assert_int_equal(retention_delete_chunk(world->file.db, &more), SQLITE_OK);
    return chunks;
}

static void advance(struct world *world, int64_t now_ms)
{
    assert_int_equal(rollup_advance(world->file.db, now_ms), SQLITE_OK);
}

struct totals {
    int64_t seconds, emitted, steps, running, reached, accepted;
    double predicted;
};

static struct totals totals_of(struct world *world)
{
    return (struct totals){
        integer(world, "SELECT sum(seconds) FROM throughput"),
        integer(world, "SELECT sum(emitted) FROM throughput"),
        integer(world, "SELECT sum(steps) FROM throughput"),
        integer(world, "SELECT round(sum(running * seconds)) FROM throughput"),
        integer(world, "SELECT sum(reached) FROM acceptance_by_position"),
        integer(world, "SELECT sum(accepted) FROM acceptance_by_position"),
        real(world, "SELECT sum(predicted_ratio * reached) FROM acceptance_by_position"),
    };
}

static void assert_totals(struct world *world, const struct totals *expected)
{
    struct totals now = totals_of(world);
    assert_int_equal(now.seconds, expected->seconds);
    assert_int_equal(now.emitted, expected->emitted);
    assert_int_equal(now.steps, expected->steps);
    assert_int_equal(now.running, expected->running);
    assert_int_equal(now.reached, expected->reached);
    assert_int_equal(now.accepted, expected->accepted);
    assert_true(fabs(now.predicted - expected->predicted) < 1e-6 * expected->predicted);
}

/* ---- tiers */

/* Two nodes for 30 hours: at every hour the views add up to what went in, whichever tier it has got
 * to. */
static void views_add_up_at_all_times(void **state)
{
    struct world *world = *state;
    int64_t runs[] = {begin_run(world, "a"), begin_run(world, "b")};
    struct totals expected = {0};
    world->limits.keep_second_ms = 2 * HOUR_MS;
    world->limits.keep_minute_ms = 9 * HOUR_MS;
    for (int64_t i = 0; i < 30 * 360; i++) { /* a row in ten seconds is enough */
        if (i % 360 == 0) execute(world, i ? "COMMIT; BEGIN" : "BEGIN");
        for (int r = 0; r < 2; r++) {
            struct store_sample sample;
            put_second(world, runs[r], i * 10, 3);
            place_sample(&sample, runs[r], i * 10, 3);
            expected.seconds++;
            expected.emitted += sample.emitted;
            expected.steps += sample.steps;
            expected.running += sample.running;
            for (int k = 0; k < 3; k++) {
                expected.reached += sample.position[k].reached;
                expected.accepted += sample.position[k].accepted;
                expected.predicted += sample.position[k].predicted;
            }
        }
        int64_t now_ms = PLACE_START_MS + i * 10000;
        if (i % 6 == 1 || i % 360 == 359) { /* now and then, not in step with the minutes */
            execute(world, "COMMIT");
            advance(world, now_ms);
            if (i % 360 == 359) {
                retain(world, now_ms);
                assert_totals(world, &expected);
            }
            execute(world, "BEGIN");
        }
    }
    execute(world, "COMMIT");
    /* each tier holds its share and no more */
    assert_in_range(integer(world, "SELECT count(*) FROM sample"), 2 * 719, 2 * 730);
    assert_in_range(integer(world, "SELECT count(DISTINCT minute) FROM sample_1m"), 9 * 60,
                    10 * 60 + 1);
    assert_int_equal(integer(world, "SELECT count(DISTINCT hour) FROM sample_1h"), 31);
    assert_int_equal(integer(world, "SELECT count(*) FROM sample_position WHERE sample_id NOT IN"
                                    " (SELECT sample_id FROM sample)"),
                     0);
    assert_int_equal(
        integer(world, "SELECT count(*) FROM (SELECT period_s FROM throughput GROUP BY 1)"), 3);
}

/* Rows that come late, twice as many in a minute, from a clock set back or far ahead. */
static void order_does_not_matter(void **state)
{
    struct world *world = *state;
    int64_t run = begin_run(world, "a");
    static const int64_t seconds[] = {0,     1,    2,   130, 131, 3,           4,   90,
                                      10000, -500, 132, 0,   260, 86400 * 365, 261, 5};
    int64_t emitted = 0;
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        struct store_sample sample;
        int64_t at = seconds[i] < 0 ? 7 : seconds[i];
        place_sample(&sample, run, at, 2);
        emitted += sample.emitted;
        union queue_row row = {.sample = sample};
        row.sample.time_ms = PLACE_START_MS + seconds[i] * 1000;
        put(world, QUEUE_SAMPLE, &row, run);
        advance(world, PLACE_START_MS + (int64_t)i * 30000);
        assert_int_equal(integer(world, "SELECT sum(emitted) FROM throughput"), emitted);
        assert_int_equal(integer(world, "SELECT sum(seconds) FROM throughput"), (int64_t)i + 1);
        assert_int_equal(integer(world, "SELECT sum(reached) FROM acceptance_by_position"),
                         integer(world, "SELECT sum(reached) FROM sample_position"));
    }
    advance(world, PLACE_START_MS + 400 * 24 * HOUR_MS);
    advance(world, PLACE_START_MS + 400 * 24 * HOUR_MS + 1);
    assert_int_equal(integer(world, "SELECT sum(emitted) FROM sample_1m"), emitted);
    assert_int_equal(integer(world, "SELECT sum(emitted) FROM sample_1h"), emitted);
    assert_int_equal(integer(world, "SELECT sum(reached) FROM sample_1h_position"),
                     integer(world, "SELECT sum(reached) FROM sample_position"));
}

/* A count that an engine does not tell stays unknown in every tier, and takes nothing from those
 * that are told; which seconds were busy is then known by what came out. */
static void unknown_counts_stay_unknown(void **state)
{
    struct world *world = *state;
    int64_t far = begin_run(world, "far"), mixed = begin_run(world, "mixed");
    world->limits.keep_second_ms = HOUR_MS;
    for (int i = 0; i < 7200; i++) {
        union queue_row row;
        place_sample(&row.sample, far, i, 1);
        row.sample.running = row.sample.queued = -1;
        row.sample.steps = row.sample.drafted = row.sample.admitted = row.sample.verified = -1;
        row.sample.accepted = row.sample.target_rows = -1;
        row.sample.emitted = i % 2;
        row.sample.position[0].reached = -1;
        put(world, QUEUE_SAMPLE, &row, far);
        place_sample(&row.sample, mixed, i, 1);
        if (i % 2) row.sample.verified = -1;
        put(world, QUEUE_SAMPLE, &row, mixed);
        if (i % 600 == 599) advance(world, PLACE_START_MS + i * INT64_C(1000));
    }
    advance(world, PLACE_START_MS + 3 * HOUR_MS);
    retain(world, PLACE_START_MS + 3 * HOUR_MS);
    assert_int_equal(integer(world, "SELECT count(*) FROM throughput WHERE node = 'far'"
                                    " AND coalesce(running, queued, steps, drafted, admitted,"
                                    " verified, accepted, target_rows, budget, tokens_per_step,"
                                    " accepted_verified_ratio) IS NOT NULL"),
                     0);
    assert_int_equal(integer(world, "SELECT sum(busy_seconds) FROM throughput WHERE node = 'far'"),
                     3600);
    assert_int_equal(integer(world, "SELECT sum(emitted) FROM sample_1h WHERE verified IS NULL"),
                     3600);
    assert_int_equal(
        integer(world, "SELECT count(*) FROM acceptance_by_position WHERE node = 'far'"), 0);
    assert_int_equal(integer(world, "SELECT sum(verified) FROM throughput WHERE node = 'mixed'"),
                     integer(world, "SELECT sum(verified) FROM sample_1h"));
    assert_true(integer(world, "SELECT sum(verified) FROM sample_1h") > 0);
}

/* After all seconds are gone, new ones are still rolled up: ids go on. */
static void ids_go_on_after_everything_expired(void **state)
{
    struct world *world = *state;
    int64_t run = begin_run(world, "a");
    char *cause = NULL;
    for (int i = 0; i < 100; i++) put_second(world, run, i, 1);
    advance(world, PLACE_START_MS + 48 * HOUR_MS);
    retain(world, PLACE_START_MS + 48 * HOUR_MS);
    assert_int_equal(integer(world, "SELECT count(*) FROM sample"), 0);
    rows_close(world->rows); /* a restart */
    world->rows = rows_open(world->file.db, &cause);
    for (int i = 0; i < 50; i++) put_second(world, run, 48 * 3600 + i, 1);
    advance(world, PLACE_START_MS + 49 * HOUR_MS);
    assert_int_equal(integer(world, "SELECT sum(seconds) FROM sample_1m"), 150);
}

/* ---- retention */

static void deletion_comes_in_chunks(void **state)
{
    struct world *world = *state;
    int64_t run = begin_run(world, "a");
    execute(world, "BEGIN");
    for (int i = 0; i < 20000; i++) put_second(world, run, i, 4);
    execute(world, "COMMIT");
    int64_t now_ms = PLACE_START_MS + 60 * 24 * HOUR_MS;
    advance(world, now_ms);
    int64_t before = sqlite3_total_changes64(world->file.db), largest = 0, rows = 0;
    assert_int_equal(retention_set_horizon(world->file.db, &world->limits, now_ms), SQLITE_OK);
    for (bool more = true; more;) {
        before = sqlite3_total_changes64(world->file.db);
        assert_int_equal(retention_delete_chunk(world->file.db, &more), SQLITE_OK);
        int64_t changes = sqlite3_total_changes64(world->file.db) - before;
        rows += changes;
        if (changes > largest) largest = changes;
    }
    assert_true(rows > 20000 * 5);
    assert_true(largest < 10000);
    assert_int_equal(integer(world, "SELECT count(*) FROM sample_position"), 0);
    assert_int_equal(integer(world, "SELECT count(*) FROM sample_1m"), 0);
    assert_int_equal(integer(world, "SELECT sum(seconds) FROM throughput"), 20000);
}

/* A fleet that would fill the disk keeps less of the fine tiers; what is kept is the newest, and
 * complete. */
static void row_limits_hold(void **state)
{
    struct world *world = *state;
    int64_t run = begin_run(world, "a");
    const int64_t seconds = 6 * 3600;
    world->limits.samples = 9000;
    world->limits.positions = 8000;
    world->limits.minute_positions = 600;
    world->limits.intercepts = 1000;
    world->limits.calibrations = 3000;
    world->limits.costs = 50;
    world->limits.events = 40;
    execute(world, "BEGIN");
    for (int64_t i = 0; i < seconds; i++) {
        union queue_row row;
        put_second(world, run, i, 3);
        if (i % 10 == 0) {
            place_refit(&row.refit, run, i, 2);
            row.refit.reset = i % 1000 == 0;
            put(world, QUEUE_REFIT, &row, run);
        }
        if (i % 60 == 0) {
            place_calibration(&row.calibration, run, i / 60, 2);
            put(world, QUEUE_CALIBRATION, &row, run);
            row.cost = (struct store_cost){
                run, PLACE_START_MS + i * 1000, "verify", (int)(i / 60 % 3), 1, 0, 2.0, 0.1, i};
            put(world, QUEUE_COST, &row, run);
            row.event =
                (struct store_event){run, PLACE_START_MS + i * 1000, "info", "drift", "t", NULL};
            put(world, QUEUE_EVENT, &row, run);
        }
    }
    execute(world, "COMMIT");
    int64_t now_ms = PLACE_START_MS + seconds * 1000;
    advance(world, now_ms);
    struct totals before = totals_of(world);
    int64_t calibrated = integer(world, "SELECT sum(n) FROM calibration_error");
    retain(world, now_ms);
    assert_totals(world, &before);
    assert_in_range(integer(world, "SELECT count(*) FROM sample"), 8900, 9000);
    assert_true(integer(world, "SELECT count(*) FROM sample_position") <= 8000 + 3);
    assert_in_range(integer(world, "SELECT count(*) FROM sample_1m_position"), 350, 600);
    assert_in_range(integer(world, "SELECT count(*) FROM calibration"), 2200, 3000);
    assert_int_equal(integer(world, "SELECT sum(n) FROM calibration_error"), calibrated);
    assert_in_range(integer(world, "SELECT count(*) FROM cost"), 3, 50);
    assert_int_equal(integer(world, "SELECT min(n) FROM cost_curve"),
                     (seconds / 60 - 3) * 60); /* the latest stay */
    assert_int_equal(integer(world, "SELECT count(*) FROM event"), 40);
    /* refits: the newest are all there, older ones one in five minutes, drift resets for ever */
    assert_true(integer(world, "SELECT count(*) FROM refit_intercept") < 1800);
    assert_int_equal(integer(world, "SELECT count(*) FROM slope_drift WHERE reset = 1"),
                     (seconds + 999) / 1000);
    assert_int_equal(integer(world, "SELECT max(epoch) FROM slope_drift"), seconds - 10);
    assert_int_equal(
        integer(world,
                "SELECT count(*) FROM slope_drift WHERE time_ms >= 1790000040000 + 20000000"),
        160);
}

/* Many nodes, so that a block of refits is shorter than a slot: one in five minutes stays all the
 * same. */
static void refits_are_thinned_by_slot(void **state)
{
    struct world *world = *state;
    const int nodes = 40;
    int64_t runs[40];
    world->limits.intercepts = 100;
    execute(world, "BEGIN");
    for (int r = 0; r < nodes; r++) runs[r] = begin_run(world, "a");
    for (int64_t i = 0; i < 3600; i += 10) {
        for (int r = 0; r < nodes; r++) {
            union queue_row row;
            place_refit(&row.refit, runs[r], i, 1);
            row.refit.reset = i == 700;
            if (i == 800) row.refit.rejected = "not a number";
            put(world, QUEUE_REFIT, &row, runs[r]);
        }
    }
    execute(world, "COMMIT");
    retain(world, PLACE_START_MS + 3600 * 1000);
    int64_t thinned =
        integer(world, "SELECT value FROM rollup_state WHERE name = 'thinned_refit_id'");
    assert_in_range(thinned, 13500, 14400);
    assert_int_equal(
        integer(world, "SELECT max(n) FROM (SELECT count(*) AS n FROM refit, rollup_state"
                       " WHERE name = 'thinned_refit_id' AND refit_id <= value AND reset = 0 AND"
                       " rejected IS NULL GROUP BY run_id, time_ms / 300000)"),
        1);
    /* twelve or thirteen slots of each node, its reset, its rejection, and the newest that are not
     * touched yet */
    assert_in_range(integer(world, "SELECT count(*) FROM refit"), nodes * (12 + 2),
                    nodes * (13 + 2) + 14400 - thinned);
    assert_int_equal(integer(world, "SELECT sum(reset) FROM refit"), nodes);
    assert_int_equal(integer(world, "SELECT count(rejected) FROM refit"), nodes);
    retain(world,
           PLACE_START_MS + 31 * 24 * HOUR_MS); /* a month later: one an hour, whatever it was */
    retain(world, PLACE_START_MS + 31 * 24 * HOUR_MS);
    assert_true(integer(world, "SELECT count(*) FROM refit") < nodes * 2 + 500);
}

/* A clock that runs a year ahead and comes back does not shorten what is kept later; one at 1970
 * deletes nothing. */
static void horizons_do_not_go_back(void **state)
{
    struct world *world = *state;
    int64_t run = begin_run(world, "a");
    for (int i = 0; i < 200; i++) put_second(world, run, i, 1);
    advance(world, 5);
    retain(world, 5);
    assert_int_equal(integer(world, "SELECT count(*) FROM sample"), 200);
    assert_int_equal(integer(world, "SELECT sum(seconds) FROM throughput"), 200);
    advance(world, PLACE_START_MS + HOUR_MS);
    retain(world, PLACE_START_MS + 48 * HOUR_MS);
    retain(world, PLACE_START_MS + HOUR_MS);
    assert_int_equal(integer(world, "SELECT count(*) FROM throughput WHERE period_s = 60"),
                     5); /* four minutes, one of them in two modes */
    assert_int_equal(integer(world, "SELECT sum(seconds) FROM throughput"), 200);
}

/* ---- size */

/* Bytes a row of each table, measured, times the most rows that a week of 16 nodes with 16
 * positions keeps. */
static void a_week_of_a_fleet_fits(void **state)
{
    struct world *world = *state;
    const int nodes = 16, positions = 16, seconds = 600;
    const double week = 7 * 86400;
    int64_t runs[16];
    execute(world, "BEGIN");
    for (int r = 0; r < nodes; r++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", r);
        runs[r] = begin_run(world, name);
    }
    for (int64_t i = 0; i < seconds; i++) {
        for (int r = 0; r < nodes; r++) {
            union queue_row row;
            put_second(world, runs[r], i, positions);
            place_refit(&row.refit, runs[r], i, positions);
            put(world, QUEUE_REFIT, &row, runs[r]);
            place_calibration(&row.calibration, runs[r], i / 60, positions);
            if (i % 60 == 0) put(world, QUEUE_CALIBRATION, &row, runs[r]);
        }
    }
    execute(world, "COMMIT");
    advance(world, PLACE_START_MS + HOUR_MS);
    const struct retention_limits *limits = &world->limits;
    const double day_rows = nodes * 86400.0, minute_rows = nodes * week / 60,
                 hour_rows = nodes * week / 3600;
    const struct {
        const char *tables; /* with indexes, as dbstat names them */
        const char *count;
        double rows;
    } parts[] = {
        {"'sample', 'sample_by_time'", "sample", fmin(day_rows, (double)limits->samples)},
        {"'sample_position'", "sample_position",
         fmin(day_rows * positions, (double)limits->positions)},
        {"'sample_1m'", "sample_1m",
         minute_rows * 1.1 /* minutes with a mode change have two rows */},
        {"'sample_1m_position'", "sample_1m_position",
         fmin(minute_rows * positions, (double)limits->minute_positions)},
        {"'sample_1h', 'sample_1h_position'", "sample_1h_position", hour_rows * positions},
        /* the newest whole, and one in five minutes of a week */
        {"'refit_intercept', 'refit', 'refit_by_time'", "refit_intercept",
         fmin(day_rows * positions, (double)limits->intercepts) + nodes * positions * week / 300},
        {"'calibration'", "calibration",
         fmin(minute_rows * positions * 10, (double)limits->calibrations)},
        {"'calibration_1h'", "calibration_1h", hour_rows * positions * 10},
    };
    double total = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *bytes =
            sqlite3_mprintf("SELECT sum(pgsize) FROM dbstat WHERE name IN (%s)", parts[i].tables);
        char *count = sqlite3_mprintf("SELECT count(*) FROM %s", parts[i].count);
        double row_bytes = real(world, bytes) / real(world, count);
        print_message("# %-32s %5.1f bytes x %8.0f rows = %5.1f MB\n", parts[i].count, row_bytes,
                      parts[i].rows, row_bytes * parts[i].rows / 1e6);
        total += row_bytes * parts[i].rows;
        sqlite3_free(bytes);
        sqlite3_free(count);
    }
    total *=
        1.06; /* pages that deletion left half full, and free ones: measured over a day's run */
    print_message("# a week of 16 nodes with 16 positions: %.0f MB\n", total / 1e6);
    assert_true(total < 300e6);
}

/* ---- mode changes */

static void put_decision(struct world *world, int64_t run, int64_t time_ms, const char *before,
                         const char *after)
{
    union queue_row row = {
        .decision = {run, time_ms, "uid 0", "socket", "mode", before, after, NULL, NULL}};
    put(world, QUEUE_DECISION, &row, run);
}

static void put_rate(struct world *world, int64_t run, int64_t second, double rate, int64_t steps,
                     double step_ms)
{
    union queue_row row = {.sample = {.run_id = run,
                                      .time_ms = PLACE_START_MS + second * 1000,
                                      .emitted = llround(rate),
                                      .steps = steps,
                                      .step_ms = step_ms,
                                      .mode = "fixed"}};
    put(world, QUEUE_SAMPLE, &row, run);
}

static void toggle_windows(void **state)
{
    struct world *world = *state;
    int64_t run = begin_run(world, "a"), other = begin_run(world, "a"),
            idle = begin_run(world, "b");
    execute(world, "BEGIN");
    for (int i = 0; i < 1200; i++) {
        /* run: 100 tok/s, from 500 on 120, from 560 on 90; every tenth second without work; 1 s
         * around changes is wild */
        bool wild = i == 500 || i == 560;
        double rate = wild ? 5000 : i < 500 ? 100 + i % 2 : i < 560 ? 120 : 90;
        put_rate(world, run, i, i % 10 == 0 ? 0 : rate, i % 10 == 0 && !wild ? 0 : 10,
                 i < 500 ? 300 : 250);
        put_rate(world, other, i, 777, 10,
                 100); /* the node's next run: not this change's business */
        put_rate(world, idle, i, 0, 0, 0);
    }
    put_decision(world, run, PLACE_START_MS + 500000, "fixed", "adaptive");
    put_decision(world, run, PLACE_START_MS + 550000, "adaptive", "adaptive"); /* no change */
    put_decision(world, run, PLACE_START_MS + 560000, "adaptive", "off");
    put_decision(world, idle, PLACE_START_MS + 500000, "fixed", "adaptive");
    execute(world, "COMMIT");
    for (int pass = 0; pass < 3;
         pass++) { /* from the seconds; kept; kept when the seconds are gone */
        assert_int_equal(integer(world, "SELECT count(*) FROM toggle_effect"), 3);
        assert_int_equal(integer(world,
                                 "SELECT seconds_before * 1000 + seconds_after FROM toggle_effect"
                                 " WHERE after = 'adaptive' AND node = 'a'"),
                         270 * 1000 + 54);
        assert_true(fabs(real(world, "SELECT tps_before FROM toggle_effect WHERE after = "
                                     "'adaptive' AND node = 'a'") -
                         (100 + 150.0 / 270)) < 1e-9);
        assert_true(
            fabs(real(world,
                      "SELECT gain FROM toggle_effect WHERE after = 'adaptive' AND node = 'a'") -
                 (120 / (100 + 150.0 / 270) - 1)) < 1e-9);
        assert_true(real(world, "SELECT step_ms_before FROM toggle_effect WHERE after = 'adaptive' "
                                "AND node = 'a'") == 30);
        assert_true(real(world, "SELECT step_ms_after FROM toggle_effect WHERE after = 'adaptive' "
                                "AND node = 'a'") == 25);
        assert_int_equal(integer(world,
                                 "SELECT seconds_before * 1000 + seconds_after FROM toggle_effect"
                                 " WHERE after = 'off'"),
                         54 * 1000 + 270);
        assert_int_equal(
            integer(world,
                    "SELECT count(*) FROM toggle_effect WHERE node = 'b' AND seconds_before = 0"
                    " AND gain IS NULL AND gain_low IS NULL"),
            1);
        if (pass == 0) advance(world, PLACE_START_MS + HOUR_MS);
        if (pass == 1) {
            assert_int_equal(integer(world, "SELECT count(*) FROM toggle_result"), 3);
            retain(world, PLACE_START_MS + 48 * HOUR_MS);
            assert_int_equal(integer(world, "SELECT count(*) FROM sample"), 0);
        }
    }
}

/* A change whose seconds are still coming is shown, but not kept yet. */
static void an_open_toggle_grows(void **state)
{
    struct world *world = *state;
    int64_t run = begin_run(world, "a");
    put_decision(world, run, PLACE_START_MS + 100000, "fixed", "adaptive");
    for (int i = 0; i < 220; i++) {
        put_rate(world, run, i, i < 100 ? 50 + i % 3 : 60 + i % 3, 5, 100);
        if (i == 102) { /* too few behind it for an interval */
            advance(world, PLACE_START_MS + i * 1000);
            assert_true(real(world, "SELECT gain FROM toggle_effect") > 0.1);
            assert_true(isnan(real(world, "SELECT gain_low FROM toggle_effect")));
        }
    }
    advance(world, PLACE_START_MS + 220000);
    assert_int_equal(integer(world, "SELECT count(*) FROM toggle_result"), 0);
    assert_int_equal(integer(world, "SELECT seconds_after FROM toggle_effect"), 119);
    assert_int_equal(rows_end_run(world->rows, run, PLACE_START_MS + 220000, true), SQLITE_OK);
    advance(world, PLACE_START_MS + 240000);
    assert_int_equal(integer(world, "SELECT count(*) FROM toggle_result"), 1);
}

static double normal(uint64_t *seed)
{
    double sum =
        -6; /* twelve uniforms: near enough to a normal one, and the same on every machine */
    for (int i = 0; i < 12; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*seed >> 11) / 9007199254740992.0;
    }
    return sum;
}

/* 95 % intervals hold the true gain about as often as they say, for seconds that are independent
 * and for seconds that resemble their neighbours, at long and short windows. */
static void intervals_cover(void **state)
{
    struct world *world = *state;
    static const struct {
        double correlation, gain;
        int seconds;
    } cases[] = {{0, 0.2, 300}, {0.5, 0.2, 300}, {0.8, -0.1, 300}, {0, 0.05, 15}, {0.5, 0.1, 60}};
    const int trials = 100;
    uint64_t seed = 20260131;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double correlation = cases[c].correlation,
               spread = 400 * sqrt(1 - correlation * correlation);
        execute(world, "BEGIN");
        for (int t = 0; t < trials; t++) {
            int64_t run = begin_run(world, "a");
            double noise = 400 * normal(&seed);
            for (int i = 1; i <= 2 * cases[c].seconds; i++) {
                noise = correlation * noise + spread * normal(&seed);
                double mean = i <= cases[c].seconds ? 5000 : 5000 * (1 + cases[c].gain);
                put_rate(world, run, i, mean + noise, 10, 900);
            }
            put_decision(world, run, PLACE_START_MS + cases[c].seconds * 1000 + 500, "fixed",
                         "adaptive");
        }
        execute(world, "COMMIT");
        char *sql = sqlite3_mprintf(
            "SELECT 1.0 * sum(%f BETWEEN gain_low AND gain_high) / count(*) FROM toggle_effect",
            cases[c].gain);
        double covered = real(world, sql),
               width = real(world, "SELECT avg(gain_high - gain_low) FROM toggle_effect");
        sqlite3_free(sql);
        print_message("# correlation %.1f, %d s a side: covered %.3f, mean width %.3f\n",
                      correlation, cases[c].seconds, covered, width);
        assert_true(covered >= 0.89 && covered <= 0.995);
        execute(world, "DELETE FROM sample; DELETE FROM decision");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(views_add_up_at_all_times, make, clean),
        cmocka_unit_test_setup_teardown(order_does_not_matter, make, clean),
        cmocka_unit_test_setup_teardown(unknown_counts_stay_unknown, make, clean),
        cmocka_unit_test_setup_teardown(ids_go_on_after_everything_expired, make, clean),
        cmocka_unit_test_setup_teardown(deletion_comes_in_chunks, make, clean),
        cmocka_unit_test_setup_teardown(row_limits_hold, make, clean),
        cmocka_unit_test_setup_teardown(refits_are_thinned_by_slot, make, clean),
        cmocka_unit_test_setup_teardown(horizons_do_not_go_back, make, clean),
        cmocka_unit_test_setup_teardown(a_week_of_a_fleet_fits, make, clean),
        cmocka_unit_test_setup_teardown(toggle_windows, make, clean),
        cmocka_unit_test_setup_teardown(an_open_toggle_grows, make, clean),
        cmocka_unit_test_setup_teardown(intervals_cover, make, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
