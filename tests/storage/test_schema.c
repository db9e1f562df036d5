/* test_schema.c - migrations: forward, in one transaction, with a copy beside; all or nothing.
 * The mechanism runs here with lists of steps made for the test; what a real step does to rows is
 * tested beside it.
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
#include "storage/schema.h"
#include "storage/views.h"
#include "tests/storage/place.h"

static const char add_power[] =
    "ALTER TABLE sample ADD COLUMN power_w REAL; UPDATE sample SET power_w = emitted * 2.0";
/* A table rebuilt, as it has to be for what ALTER TABLE cannot do. */
static const char rebuild_event[] =
    "CREATE TABLE event_new(event_id INTEGER PRIMARY KEY, run_id INTEGER REFERENCES run, time_ms "
    "INTEGER NOT NULL,"
    " severity TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL, numbers TEXT) STRICT;"
    "INSERT INTO event_new SELECT event_id, run_id, time_ms, severity, kind, ifnull(text, ''), "
    "numbers FROM event;"
    "DROP TABLE event; ALTER TABLE event_new RENAME TO event";

static int make(void **state)
{
    *state = calloc(1, sizeof(struct place));
    place_make(*state);
    return 0;
}

static int clean(void **state)
{
    place_remove(*state);
    free(*state);
    return 0;
}

/* A file of version 1 as a daemon leaves it, with rows. */
static void make_version_1(struct place *place)
{
    struct store_file file = {0};
    struct schema_steps first = {schema_steps.sql, 1};
    char *cause = NULL;
    if (store_file_open(&file, place->path, &first, NULL, &cause) != 0) fail_msg("%s", cause);
    assert_int_equal(
        sqlite3_exec(
            file.db,
            "INSERT INTO node VALUES(1, 'a', 'replay'); INSERT INTO run(run_id, node_id, start_ms, "
            "end_ms, clean)"
            " VALUES(1, 1, 5, 9, 1); INSERT INTO sample VALUES(1, 1, 6, 2, 1, 0, 2, 3, 3, 3, 2, 7, "
            "9,"
            " 1, 2, 3, 4, 1.5); INSERT INTO sample_position VALUES(1, 0, 3, 2, 20000, 1000, 3000);"
            "INSERT INTO event VALUES(1, 1, 8, 'info', 'restart', NULL, NULL)",
            NULL, NULL, NULL),
        SQLITE_OK);
    store_file_close(&file);
}

static int migrate(struct place *place, const char *const *steps, int count, char **notice,
                   char **cause)
{
    const char *sql[8] = {schema_steps.sql[0]};
    for (int i = 0; i < count; i++) sql[i + 1] = steps[i];
    struct schema_steps list = {sql, count + 1};
    struct store_file file = {0};
    int rc = store_file_open(&file, place->path, &list, NULL, cause);
    if (rc == 0 && notice) *notice = strdup(file.notice ? file.notice : "");
    store_file_close(&file);
    return rc;
}

static void two_steps_at_once(void **state)
{
    struct place *place = *state;
    const char *const steps[] = {add_power, rebuild_event};
    char *notice = NULL, *cause = NULL, *backup = place_name(place, "t.db.schema-1.bak");
    make_version_1(place);
    if (migrate(place, steps, 2, &notice, &cause) != 0) fail_msg("%s", cause);
    assert_int_equal(place_integer(place->path, "PRAGMA user_version"), 3);
    assert_true(place_real(place->path, "SELECT power_w FROM sample") == 14);
    assert_int_equal(place_integer(place->path, "SELECT emitted FROM throughput"),
                     7); /* the views came back */
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM decisions WHERE text = ''"),
                     1);
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM pragma_foreign_key_check"),
                     0);
    assert_non_null(strstr(notice, backup));
    /* the copy stands alone and is the file as it was */
    assert_int_equal(place_integer(backup, "PRAGMA user_version"), 1);
    assert_int_equal(place_integer(backup, "SELECT emitted FROM throughput"), 7);
    assert_int_equal(
        place_integer(backup,
                      "SELECT count(*) FROM pragma_table_info('sample') WHERE name = 'power_w'"),
        0);
    /* once more: nothing to do, nothing to say */
    free(notice);
    assert_int_equal(migrate(place, steps, 2, &notice, &cause), 0);
    assert_string_equal(notice, "");
    free(notice);
    free(backup);
}

static void earlier_backups_stay(void **state)
{
    struct place *place = *state;
    const char *const steps[] = {add_power};
    char *notice = NULL, *cause = NULL, *backup = place_name(place, "t.db.schema-1.bak");
    FILE *file = fopen(backup, "we");
    fputs("keep me", file);
    fclose(file);
    make_version_1(place);
    assert_int_equal(migrate(place, steps, 1, &notice, &cause), 0);
    assert_non_null(strstr(notice, ".schema-1.1.bak"));
    char text[16] = "";
    file = fopen(backup, "re");
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_string_equal(text, "keep me");
    free(notice);
    free(backup);
}

static void assert_as_it_was(struct place *place, const char *cause, const char *expected)
{
    char *backup = place_name(place, "t.db.schema-1.bak");
    if (!strstr(cause, expected)) fail_msg("%s", cause);
    assert_non_null(strstr(cause, "as it was"));
    assert_int_equal(place_integer(place->path, "PRAGMA user_version"), 1);
    assert_int_equal(
        place_integer(place->path,
                      "SELECT count(*) FROM pragma_table_info('sample') WHERE name = 'power_w'"),
        0);
    assert_int_equal(place_integer(place->path, "SELECT emitted FROM throughput"), 7);
    assert_int_equal(access(backup, F_OK), -1); /* no copy of what did not change */
    free(backup);
}

static void a_step_that_fails_changes_nothing(void **state)
{
    struct place *place = *state;
    const char *const steps[] = {add_power, "ALTER TABLE nowhere ADD COLUMN x"};
    char *cause = NULL;
    make_version_1(place);
    assert_int_equal(migrate(place, steps, 2, NULL, &cause), -1);
    assert_as_it_was(place, cause, "no such table: nowhere");
    free(cause);
}

static void a_step_that_orphans_rows_changes_nothing(void **state)
{
    struct place *place = *state;
    const char *const steps[] = {add_power, "DELETE FROM run"};
    char *cause = NULL;
    make_version_1(place);
    assert_int_equal(migrate(place, steps, 2, NULL, &cause), -1);
    assert_as_it_was(place, cause, "rows would lose what they refer to");
    free(cause);
}

static void a_killed_migration_changes_nothing(void **state)
{
    struct place *place = *state;
    make_version_1(place);
    sqlite3 *db = NULL; /* what the process leaves that dies before its COMMIT */
    assert_int_equal(sqlite3_open(place->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, add_power, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(place_integer(place->path, "PRAGMA user_version"), 1);
    const char *const steps[] = {add_power};
    char *cause = NULL;
    assert_int_equal(migrate(place, steps, 1, NULL, &cause), 0);
    assert_int_equal(place_integer(place->path, "PRAGMA user_version"), 2);
}

/* Settings that only count when they are made at the right moment. */
static void file_settings(void **state)
{
    struct place *place = *state;
    store_close(place_open(place));
    assert_int_equal(place_integer(place->path, "PRAGMA application_id"), SCHEMA_APPLICATION_ID);
    assert_int_equal(place_integer(place->path, "PRAGMA user_version"), schema_steps.count);
    assert_int_equal(place_integer(place->path, "PRAGMA auto_vacuum"), 2); /* incremental */
    char *mode = place_text(place->path, "PRAGMA journal_mode");
    assert_string_equal(mode, "wal");
    free(mode);
    /* every table is STRICT */
    assert_int_equal(
        place_integer(place->path,
                      "SELECT count(*) FROM pragma_table_list WHERE type = 'table' AND strict = 0"
                      " AND name NOT LIKE 'sqlite_%'"),
        0);
}

/* Every view runs, and every row can be asked for by time. */
static void every_view_runs(void **state)
{
    struct place *place = *state;
    make_version_1(place);
    store_close(place_open(place));
    for (int i = 0; i < views_count; i++) {
        char *sql = sqlite3_mprintf("SELECT count(*) FROM %s WHERE %s >= 0", views[i].name,
                                    views[i].until_ms);
        place_integer(place->path, sql);
        sqlite3_free(sql);
    }
}

/* What an older daemon did not measure stays unknown; what is measured from now on stands beside
 * it. */
static void older_samples_have_no_prices(void **state)
{
    struct place *place = *state;
    struct store_sample sample;
    make_version_1(place);
    struct store *store = place_open(place);
    int64_t run = place_begin(store, "b");
    place_sample(&sample, run, 1, 1);
    store_put_sample(store, &sample);
    assert_true(store_flush(store));
    store_close(store);
    assert_int_equal(place_integer(place->path, "SELECT sum(steps) FROM throughput"), 2 + 20);
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM cost_error"), 1);
    assert_true(fabs(place_real(place->path, "SELECT error_ratio FROM cost_error") - 0.05) < 1e-9);
    assert_true(fabs(place_real(place->path, "SELECT bias_ratio FROM cost_error") - 20.0 / 900) <
                1e-9);
}

/* An engine in another process had 0 for what it does not tell. Its own counts stay, as do those of
 * a node of trimtab's. */
static void counts_of_remote_engines_become_unknown(void **state)
{
    struct place *place = *state;
    struct store_file file = {0};
    struct schema_steps older = {schema_steps.sql, 3};
    char *cause = NULL;
    make_version_1(place);
    if (store_file_open(&file, place->path, &older, NULL, &cause) != 0) fail_msg("%s", cause);
    assert_int_equal(
        sqlite3_exec(file.db,
                     "INSERT INTO node VALUES(2, 'far', 'vllm');"
                     "INSERT INTO run(run_id, node_id, engine, start_ms) VALUES(2, 2, 'vllm', 5);"
                     "INSERT INTO sample VALUES(2, 2, 6, 2, 1, 0, 2, 3, 0, 0, 2, 7, 0,"
                     " NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);"
                     "INSERT INTO sample_1m VALUES(2, 0, 2, 1, 1, 1, 0, 2, 3, 0, 0, 2, 7, 0,"
                     " NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
                     NULL, NULL, NULL),
        SQLITE_OK);
    store_file_close(&file);
    store_close(place_open(place));
    assert_int_equal(place_integer(place->path,
                                   "SELECT count(*) FROM throughput WHERE node = 'far'"
                                   " AND verified IS NULL AND admitted IS NULL AND drafted = 3"
                                   " AND emitted = 7 AND accepted_verified_ratio IS NULL"),
                     1);
    assert_int_equal(
        place_integer(place->path, "SELECT count(*) FROM sample_1m WHERE verified IS NULL"), 1);
    assert_int_equal(place_integer(place->path, "SELECT verified FROM throughput WHERE node = 'a'"),
                     3);
    assert_int_equal(place_integer(place->path, "SELECT sum(reached) FROM acceptance_by_position"),
                     3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(older_samples_have_no_prices, make, clean),
        cmocka_unit_test_setup_teardown(counts_of_remote_engines_become_unknown, make, clean),
        cmocka_unit_test_setup_teardown(two_steps_at_once, make, clean),
        cmocka_unit_test_setup_teardown(earlier_backups_stay, make, clean),
        cmocka_unit_test_setup_teardown(a_step_that_fails_changes_nothing, make, clean),
        cmocka_unit_test_setup_teardown(a_step_that_orphans_rows_changes_nothing, make, clean),
        cmocka_unit_test_setup_teardown(a_killed_migration_changes_nothing, make, clean),
        cmocka_unit_test_setup_teardown(file_settings, make, clean),
        cmocka_unit_test_setup_teardown(every_view_runs, make, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
