/* test_series.c - lines of charts: sums over sums, the tier that fits, and how long a day takes.
 */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "storage/file.h"
#include "storage/reader.h"
#include "storage/rollup.h"
#include "storage/rows.h"
#include "storage/schema.h"
#include "storage/sql.h"
#include "tests/storage/place.h"

struct points {
    int count;
    int64_t time_ms[1000];
    double value[1000];
};

static void add_point(void *state, int64_t time_ms, double value)
{
    struct points *points = state;
    if (points->count < 1000) {
        points->time_ms[points->count] = time_ms;
        points->value[points->count] = value;
    }
    points->count++;
}

static int read_series(struct reader *reader, const char *name, int64_t from_s, int64_t to_s,
                       int64_t step_ms, struct points *points)
{
    char *cause = NULL;
    points->count = 0;
    int count = reader_series(reader, "local", name, PLACE_START_MS + from_s * 1000,
                              PLACE_START_MS + to_s * 1000, step_ms, add_point, points, &cause);
    if (count < 0) fail_msg("%s", cause);
    assert_int_equal(count, points->count);
    return count;
}

static void series_are_sums_over_sums(void **state)
{
    struct place *place = *state;
    struct reader *reader = place_reader(place);
    struct points points;
    assert_int_equal(read_series(reader, "throughput_tps", 0, 100, 10000, &points), 10);
    for (int b = 0; b < 10; b++) {
        double sum = 0;
        for (int i = 10 * b; i < 10 * b + 10; i++) sum += 60 + i % 7;
        assert_int_equal(points.time_ms[b], PLACE_START_MS + b * 10000);
        assert_true(fabs(points.value[b] - sum / 10) < 1e-9);
    }
    assert_int_equal(read_series(reader, "step_ms", 0, 100, 25000, &points), 4);
    assert_true(fabs(points.value[2] - 902.75 / 20) < 1e-9);
    assert_int_equal(read_series(reader, "tokens_per_step", 10, 11, 1000, &points), 1);
    assert_true(fabs(points.value[0] - 63.0 / 20) < 1e-9);
    assert_int_equal(read_series(reader, "accepted_ratio", 0, 3, 3000, &points), 1);
    assert_true(fabs(points.value[0] - 120.0 / 183) < 1e-9);
    assert_int_equal(read_series(reader, "budget", 0, 5, 5000, &points), 1);
    assert_true(fabs(points.value[0] - 62.0 / 20) < 1e-9);
    assert_int_equal(read_series(reader, "predicted.1", 0, 10, 10000, &points), 1);
    assert_true(fabs(points.value[0] - 0.77) < 1e-4);
    assert_int_equal(read_series(reader, "accepted.1", 0, 2, 2000, &points), 1);
    assert_true(fabs(points.value[0] - (57.0 + 57) / (77 + 76)) < 1e-9);
    assert_int_equal(read_series(reader, "accepted.1", 0, 100, 60000, &points), 2);
    assert_int_equal(read_series(reader, "accepted.2", 0, 100, 10000, &points), 0);
    assert_int_equal(read_series(reader, "throughput_tps", 200, 300, 1000, &points),
                     0); /* a gap is absent */
    assert_int_equal(read_series(reader, "throughput_tps", 50, 50, 1000, &points), 0);
    assert_int_equal(read_series(reader, "throughput_tps", 0, 100, 60000, &points),
                     2); /* minutes that are not rolled up */
    assert_int_equal(read_series(reader, "slope", 0, 100, 1000, &points), 0);
    char *cause = NULL;
    assert_int_equal(
        reader_series(reader, "local", "nonsense", 0, 1, 1, add_point, &points, &cause), -1);
    free(cause);
    assert_int_equal(reader_series(reader, "local", "slope", 0, 1, 0, add_point, &points, &cause),
                     -1);
    free(cause);
    assert_int_equal(
        reader_series(reader, "local", "slope", 0, INT64_C(1) << 52, 1, add_point, &points, &cause),
        -1);
    assert_non_null(strstr(cause, "longer"));
    free(cause);
    assert_int_equal(
        reader_series(reader, "nobody", "slope", 0, 1000, 10, add_point, &points, &cause), 0);
    reader_close(reader);
    static const char *const known[] = {
        "slope",       "throughput_tps", "step_ms",       "tokens_per_step", "accepted_ratio",
        "intercept.0", "intercept.31",   "slope_se",      "drift_z",         "budget",
        "accepted.0",  "predicted.31",   "intercept_se.3"};
    static const char *const unknown[] = {
        "",         "intercept.", "intercept.x", "intercept.1x", "intercept.1000",
        "Slope",    "intercept",  "slope_",      "slope.1",      "accepted_ratio.1",
        "accepted", "predicted.", "drift"};
    for (size_t i = 0; i < 13; i++) {
        assert_true(reader_series_known(known[i]));
        assert_false(reader_series_known(unknown[i]));
    }
}

/* A second in which one part of a ratio is unknown is in neither sum. */
static void unknown_parts_are_left_out(void **state)
{
    struct place *place = *state;
    struct points all, known;
    struct reader *reader = place_reader(place);
    sqlite3 *db = NULL;
    assert_int_equal(read_series(reader, "tokens_per_step", 0, 100, 1000, &all), 100);
    reader_close(reader);
    assert_int_equal(sqlite3_open(place->path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db, "UPDATE sample SET steps = NULL WHERE sample_id % 2", NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
    reader = place_reader(place);
    assert_int_equal(read_series(reader, "tokens_per_step", 0, 100, 1000, &known), 50);
    assert_true(known.value[0] == all.value[known.time_ms[0] == all.time_ms[0] ? 0 : 1]);
    read_series(reader, "tokens_per_step", 0, 100, 100000, &known);
    assert_true(known.value[0] <
                4); /* 60 to 66 tokens in 20 steps: not 40 seconds' over half of the steps */
    reader_close(reader);
}

/* A day of a node at 1 Hz, with a refit a second in two strata. */
static void make_day(struct place *place)
{
    struct store_file file = {0};
    char *cause = NULL;
    unlink(place->path);
    if (store_file_open(&file, place->path, &schema_steps, NULL, &cause) != 0)
        fail_msg("%s", cause);
    struct rows *rows = rows_open(file.db, &cause);
    int64_t run = 1;
    struct store_run info = {.node = "local"};
    info.kind = "replay";
    assert_int_equal(rows_begin_run(rows, &info, PLACE_START_MS, &run), SQLITE_OK);
    sqlite3_exec(file.db, "BEGIN", NULL, NULL, NULL);
    for (int i = 0; i < 86400; i++) {
        union queue_row row;
        place_sample(&row.sample, run, i, 2);
        assert_int_equal(rows_put(rows, QUEUE_SAMPLE, &row, run), SQLITE_OK);
        place_refit(&row.refit, run, i, 6);
        if (i % 4 == 0) {
            row.refit.stratum = "model/ratio/t1";
            row.refit.slope = 0.1;
            row.refit.observations /= 10;
        }
        assert_int_equal(rows_put(rows, QUEUE_REFIT, &row, run), SQLITE_OK);
    }
    sqlite3_exec(file.db, "COMMIT", NULL, NULL, NULL);
    assert_int_equal(rollup_advance(file.db, PLACE_START_MS + 86400 * INT64_C(1000)), SQLITE_OK);
    rows_close(rows);
    store_file_close(&file);
}

static void a_day_reads_fast(void **state)
{
    struct place *place = *state;
    make_day(place);
    struct reader *reader = place_reader(place);
    static const char *const names[] = {"throughput_tps", "step_ms", "slope", "intercept.5",
                                        "accepted.1"};
    struct points points;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t best_ms = INT64_MAX;
        for (int pass = 0; pass < 3;
             pass++) { /* the best of three: other tests share the machine */
            int64_t begin_ms = storage_monotonic_ms();
            read_series(reader, names[i], 0, 86400, 144000, &points);
            int64_t took_ms = storage_monotonic_ms() - begin_ms;
            if (took_ms < best_ms) best_ms = took_ms;
        }
        print_message("# a day of %s in 600 points: %lld ms\n", names[i], (long long)best_ms);
        assert_int_equal(points.count, 600);
        assert_true(best_ms < 50);
    }
    /* the stratum that is used most, not the mean of two; a mean near the bucket's middle */
    read_series(reader, "slope", 0, 86400, 144000, &points);
    assert_true(fabs(points.value[300] - (0.5 + 1e-5 * (300 * 144 + 54))) < 2e-4);
    /* all tiers say the same */
    read_series(reader, "throughput_tps", 0, 86400, 3600000, &points);
    assert_true(fabs(points.value[5] - 63) < 0.01);
    int64_t begin_ms = storage_monotonic_ms();
    assert_int_equal(read_series(reader, "throughput_tps", 0, 86400, 1000, &points), 86400);
    print_message("# a day of seconds: %lld ms\n", (long long)(storage_monotonic_ms() - begin_ms));
    reader_close(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(series_are_sums_over_sums, place_setup_samples,
                                        place_teardown),
        cmocka_unit_test_setup_teardown(unknown_parts_are_left_out, place_setup_samples,
                                        place_teardown),
        cmocka_unit_test_setup_teardown(a_day_reads_fast, place_setup_samples, place_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
