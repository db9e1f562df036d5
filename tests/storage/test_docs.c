/* test_docs.c - docs/sql.md is true: every view has its section with exactly its columns, and every
 * example runs over a week of data and finds rows.
 */
#include "config.h"

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "storage/file.h"
#include "storage/reader.h"
#include "storage/retention.h"
#include "storage/rollup.h"
#include "storage/rows.h"
#include "storage/schema.h"
#include "storage/views.h"
#include "tests/storage/place.h"

static char *page; /* docs/sql.md */
static struct place place;

#define HOUR_MS INT64_C(3600000)
#define WEEK_HOURS 168
#define SECONDS_AN_HOUR 90 /* they stand for it */

static void put(struct rows *rows, enum queue_kind kind, const union queue_row *row, int64_t run)
{
    assert_int_equal(rows_put(rows, kind, row, run), SQLITE_OK);
}

/* One hour of a node: its seconds at the hour's start, a refit every ten of them. */
static void make_hour(struct rows *rows, int64_t run, int hour, const char *mode)
{
    const int64_t begin_s = (int64_t)hour * 3600;
    const bool adaptive = strcmp(mode, "adaptive") == 0;
    union queue_row row;

    for (int i = 0; i < SECONDS_AN_HOUR; i++) {
        place_sample(&row.sample, run, begin_s + i, 4);
        row.sample.mode = mode;
        row.sample.running = 1 + hour % 24 / 6;
        row.sample.emitted += adaptive ? 10 : 0;
        row.sample.queued = hour % 24 == 20 ? 3 : 0;
        put(rows, QUEUE_SAMPLE, &row, run);
        if (i % 10 != 0) continue;
        place_refit(&row.refit, run, begin_s + i, 4);
        row.refit.reset = hour % 50 == 49 && i == 50;
        row.refit.drift_z = row.refit.reset ? 5.1 + hour / 100.0 : 0.3;
        row.refit.rejected = hour == 30 && i == 20 ? "a sum was not finite" : NULL;
        put(rows, QUEUE_REFIT, &row, run);
    }
    place_calibration(&row.calibration, run, (int64_t)hour * 60, 4);
    put(rows, QUEUE_CALIBRATION, &row, run);
}

static void put_decision(struct rows *rows, int64_t run, int64_t time_ms, const char *before,
                         const char *after)
{
    const union queue_row row = {.decision = {run, time_ms, "uid 0", "socket", "mode", before,
                                              after, "the week's experiment", NULL}};

    put(rows, QUEUE_DECISION, &row, run);
}

/* A week of two nodes: toggled twice a day in the middle of the seconds that are kept, one restart,
 * a staircase of costs that is not monotone, warnings. */
static void make_week(const char *path)
{
    struct store_file file = {0};
    struct retention_limits limits;
    int64_t run[2] = {1, 2};
    char *cause = NULL;
    bool more = true;

    if (store_file_open(&file, path, &schema_steps, NULL, &cause) != 0) fail_msg("%s", cause);
    struct rows *rows = rows_open(file.db, &cause);
    sqlite3_exec(file.db, "BEGIN", NULL, NULL, NULL);
    for (int n = 0; n < 2; n++) {
        const struct store_run info = {.node = n == 0 ? "local" : "edge", .kind = "replay"};
        assert_int_equal(rows_begin_run(rows, &info, PLACE_START_MS, &run[n]), SQLITE_OK);
    }
    for (int hour = 0; hour < WEEK_HOURS; hour++) {
        const char *mode = hour / 12 % 2 ? "adaptive" : "fixed";
        if (hour == 100) {
            const struct store_run info = {.node = "local", .kind = "replay"};
            rows_end_run(rows, run[0], PLACE_START_MS + hour * HOUR_MS - 1800000, false);
            run[0] = 3;
            assert_int_equal(rows_begin_run(rows, &info, PLACE_START_MS + hour * HOUR_MS, &run[0]),
                             SQLITE_OK);
        }
        for (int n = 0; n < 2; n++) {
            make_hour(rows, run[n], hour, n == 0 ? mode : "adaptive");
            if (n == 0 && hour % 12 == 6)
                put_decision(rows, run[n], PLACE_START_MS + hour * HOUR_MS + 45500, mode,
                             hour / 12 % 2 ? "fixed" : "adaptive");
        }
    }
    for (int tokens = 1; tokens <= 16; tokens++) {
        const union queue_row row = {.cost = {run[0], PLACE_START_MS + 100 * HOUR_MS, "verify",
                                              tokens, 0, 0, tokens == 7 ? 30 : 6 + 2.5 * tokens, 1,
                                              5}};
        put(rows, QUEUE_COST, &row, run[0]);
    }
    for (int i = 0; i < 3; i++) {
        const union queue_row row = {.event = {run[1], PLACE_START_MS + (20 + i) * HOUR_MS,
                                               i == 2 ? "error" : "warning",
                                               i == 2 ? "store" : "queue", "requests wait", NULL}};
        put(rows, QUEUE_EVENT, &row, run[1]);
    }
    sqlite3_exec(file.db, "COMMIT", NULL, NULL, NULL);
    assert_int_equal(rollup_advance(file.db, PLACE_START_MS + WEEK_HOURS * HOUR_MS), SQLITE_OK);
    retention_limits_default(&limits);
    assert_int_equal(retention_set_horizon(file.db, &limits, PLACE_START_MS + WEEK_HOURS * HOUR_MS),
                     SQLITE_OK);
    while (more) assert_int_equal(retention_delete_chunk(file.db, &more), SQLITE_OK);
    rows_close(rows);
    store_file_close(&file);
}

static int make(void **state)
{
    (void)state;
    char name[4096];
    const char *source = getenv("SRC");
    snprintf(name, sizeof name, "%s/docs/sql.md", source ? source : ".");
    FILE *file = fopen(name, "re");
    if (!file) return -1;
    page = calloc(1, 1 << 16);
    size_t size = fread(page, 1, (1 << 16) - 1, file);
    fclose(file);
    place_make(&place);
    make_week(place.path);
    return size > 0 && place_bench(&place) ? 0 : -1;
}

static int clean(void **state)
{
    (void)state;
    free(page);
    place_remove(&place);
    return 0;
}

struct result {
    char columns[4096];
    int rows;
};

static bool take_row(void *state, int columns, const char *const *names,
                     const struct reader_value *values)
{
    struct result *result = state;
    if (values) {
        result->rows++;
        return true;
    }
    for (int i = 0; i < columns; i++) {
        strcat(result->columns, i ? " " : "");
        strcat(result->columns, names[i]);
    }
    return true;
}

static void run_query(const char *sql, struct result *result)
{
    char *cause = NULL;
    const struct reader_limits limits = {5000, 1000};
    *result = (struct result){.rows = 0};
    struct reader *reader = reader_open(place.path, &cause);
    if (!reader) fail_msg("%s", cause);
    if (reader_query(reader, sql, NULL, 0, &limits, take_row, result, &cause) != READER_DONE)
        fail_msg("%s\n%s", sql, cause ? cause : "a limit was hit");
    reader_close(reader);
}

static void every_example_runs_and_finds_rows(void **state)
{
    (void)state;
    int examples = 0;
    for (const char *at = page; (at = strstr(at, "```sql\n")); examples++) {
        at += strlen("```sql\n");
        const char *end = strstr(at, "```");
        assert_non_null(end);
        char *sql = strndup(at, (size_t)(end - at));
        struct result result;
        run_query(sql, &result);
        if (result.rows == 0) fail_msg("no rows from\n%s", sql);
        free(sql);
        at = end + 3;
    }
    assert_true(examples >= views_count + 20);
}

static void every_view_is_described(void **state)
{
    (void)state;
    for (int i = 0; i < views_count; i++) {
        char heading[128], sql[128], listed[4096] = "", *to = listed;
        struct result result;
        snprintf(heading, sizeof heading, "\n## %s\n", views[i].name);
        const char *section = strstr(page, heading);
        if (!section) fail_msg("docs/sql.md has no section on %s", views[i].name);
        const char *from = strstr(section, "Columns: `");
        assert_non_null(from);
        for (from += strlen("Columns: `"); *from && *from != '`'; from++)
            *to++ = *from == '\n' ? ' ' : *from;
        *to = '\0';
        snprintf(sql, sizeof sql, "SELECT * FROM %s LIMIT 1", views[i].name);
        run_query(sql, &result);
        assert_string_equal(result.columns, listed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_example_runs_and_finds_rows),
        cmocka_unit_test(every_view_is_described),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
