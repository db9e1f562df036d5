/* test_export.c - stand-alone copies, made while a daemon writes: consistent, filtered, complete or
 * absent, over nothing.
 */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "storage/reader.h"
#include "storage/rollup.h"
#include "storage/views.h"
#include "tests/storage/place.h"

#define SECONDS 600

static int make(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    place_make(place);
    struct store *store = place_open(place);
    int64_t old = place_begin(store, "old"), run = place_begin(store, "local");
    for (int i = 0; i < SECONDS; i++) {
        struct store_sample sample;
        struct store_refit refit;
        place_sample(&sample, i < 200 ? old : run, i, 3);
        store_put_sample(store, &sample);
        place_refit(&refit, run, i, 3);
        if (i % 10 == 0) store_put_refit(store, &refit);
        if (i % 100 == 0)
            store_put_event(store, &(struct store_event){0, PLACE_START_MS + i * 1000, "info",
                                                         "drift", "t", NULL});
    }
    struct store_calibration calibration;
    place_calibration(&calibration, run, 0, 2);
    store_put_calibration(store, &calibration);
    store_put_cost(store, &(struct store_cost){run, PLACE_START_MS, "verify", 4, 1, 0, 9, 1, 7});
    store_put_decision(store,
                       &(struct store_decision){run, PLACE_START_MS + 400000, "uid 0", "socket",
                                                "mode", "fixed", "adaptive", NULL, NULL});
    if (!store_flush(store)) return -1;
    store_close(store);
    *state = place;
    return place_bench(place) ? 0 : -1;
}

static volatile sig_atomic_t stop; /* what every export here looks at */

struct progress {
    int calls;
    double last;
};

static void note_progress(void *state, double done)
{
    struct progress *progress = state;
    assert_true(done >= progress->last && done <= 1);
    progress->last = done;
    progress->calls++;
}

static int export_to(const struct place *place, const char *to, int64_t since_ms, bool overwrite,
                     char **cause)
{
    struct reader *reader = place_reader(place);
    struct progress progress = {0};
    *cause = NULL;
    reader_stop_when(reader, &stop);
    int rc = reader_export(reader, to, since_ms, overwrite, note_progress, &progress, cause);
    if (rc == 0)
        assert_true(progress.calls > 1 && progress.last == 1);
    else
        assert_non_null(*cause);
    reader_close(reader);
    return rc;
}

static void assert_exports(const struct place *place, const char *to, int64_t since_ms,
                           bool overwrite)
{
    char *cause;
    if (export_to(place, to, since_ms, overwrite, &cause) != 0) fail_msg("%s", cause);
}

static void assert_refused(const struct place *place, const char *to, bool overwrite,
                           const char *expected)
{
    char *cause;
    assert_int_equal(export_to(place, to, 0, overwrite, &cause), -1);
    if (!strstr(cause, expected)) fail_msg("%s", cause);
    free(cause);
}

/* No temporary file stayed beside the store. */
static void assert_tidy(const struct place *place, int expected)
{
    char command[256];
    snprintf(command, sizeof command, "ls -A '%s' | grep -c -e tmp- -e old-", place->folder);
    FILE *pipe = popen(command, "re");
    int found = -1;
    assert_int_equal(fscanf(pipe, "%d", &found), 1);
    pclose(pipe);
    assert_int_equal(found, expected);
}

static void assert_stands_alone(const char *path)
{
    char *sound = place_text(path, "PRAGMA integrity_check"), *wal = NULL;
    assert_string_equal(sound, "ok");
    free(sound);
    assert_int_equal(place_integer(path, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    assert_true(asprintf(&wal, "%s-wal", path) > 0);
    assert_int_equal(access(wal, F_OK), -1);
    free(wal);
}

/* ---- a database */

static void a_database_has_everything(void **state)
{
    struct place *place = *state;
    char *to = place_name(place, "copy.db");
    assert_exports(place, to, 0, false);
    assert_stands_alone(to);
    for (int i = 0; i < views_count; i++) {
        char *sql = sqlite3_mprintf("SELECT count(*) FROM %s", views[i].name);
        assert_true(place_integer(place->path, sql) > 0);
        assert_int_equal(place_integer(to, sql), place_integer(place->path, sql));
        sqlite3_free(sql);
    }
    assert_int_equal(place_integer(to, "SELECT sum(emitted) FROM throughput"),
                     place_integer(place->path, "SELECT sum(emitted) FROM throughput"));
    char *cause = NULL; /* and trimtab's own reader takes it */
    struct reader *reader = reader_open(to, &cause);
    assert_non_null(reader);
    reader_close(reader);
    assert_tidy(place, 0);
    free(to);
}

static void since_leaves_older_rows_out(void **state)
{
    struct place *place = *state;
    char *to = place_name(place, "copy.sqlite");
    assert_exports(place, to, PLACE_START_MS + 300000, false);
    assert_stands_alone(to);
    assert_int_equal(place_integer(to, "SELECT count(*) FROM sample"), SECONDS - 300);
    assert_int_equal(place_integer(to, "SELECT count(*) FROM refit"), 30);
    assert_int_equal(place_integer(to, "SELECT count(*) FROM refit_intercept"), 90);
    assert_int_equal(place_integer(to, "SELECT count(*) FROM decisions WHERE kind = 'event'"), 3);
    assert_int_equal(place_integer(to, "SELECT count(*) FROM cost_curve"),
                     1); /* older, but what holds now */
    assert_int_equal(place_integer(to, "SELECT count(*) FROM toggle_effect"), 1);
    free(to);
}

/* A writer that goes on all the time: the copy is one moment of it. Emitted tokens and positions of
 * a second are written together, so a torn copy would have one without the other. */
struct writer {
    struct store *store;
    int64_t run;
    _Atomic bool stop;
};

static void *write_on(void *state)
{
    struct writer *writer = state;
    for (int64_t i = SECONDS; !atomic_load(&writer->stop); i++) {
        struct store_sample sample;
        place_sample(&sample, writer->run, i, 3);
        store_put_sample(writer->store, &sample);
        if (i % 20 == 0) store_flush(writer->store);
    }
    return NULL;
}

static void exports_while_writing(void **state)
{
    struct place *place = *state;
    static const char *const names[] = {"a.db", "b.db", "c.csv", "d.jsonl"};
    pthread_t thread;
    struct writer writer = {.store = place_open(place)};
    writer.run = place_begin(writer.store, "busy");
    assert_int_equal(pthread_create(&thread, NULL, write_on, &writer), 0);
    int64_t before = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *to = place_name(place, names[i]);
        assert_exports(place, to, 0, false);
        if (i < 2) {
            assert_stands_alone(to);
            int64_t rows = place_integer(to, "SELECT count(*) FROM sample");
            assert_true(rows >= before);
            before = rows;
            assert_int_equal(place_integer(to, "SELECT count(*) FROM sample_position"), 3 * rows);
        }
        free(to);
    }
    struct store_health health;
    store_get_health(writer.store, &health);
    assert_true(health.ok);
    atomic_store(&writer.stop, true);
    pthread_join(thread, NULL);
    store_close(writer.store);
    assert_tidy(place, 0);
}

/* ---- text */

static void a_folder_of_csv(void **state)
{
    struct place *place = *state;
    char *to = place_name(place, "stats.csv");
    assert_exports(place, to, PLACE_START_MS + 300000, false);
    for (int i = 0; i < views_count; i++) {
        char *name = NULL, line[8192];
        assert_true(asprintf(&name, "%s/%s.csv", to, views[i].name) > 0);
        FILE *file = fopen(name, "re");
        assert_non_null(file);
        int lines = 0;
        while (fgets(line, sizeof line, file)) lines++;
        fclose(file);
        char *sql = sqlite3_mprintf("SELECT count(*) FROM %s WHERE %s >= %lld", views[i].name,
                                    views[i].until_ms, (long long)(PLACE_START_MS + 300000));
        assert_int_equal(lines, 1 + place_integer(place->path, sql));
        sqlite3_free(sql);
        free(name);
    }
    free(to);
}

static void lines_of_json(void **state)
{
    struct place *place = *state;
    char *to = place_name(place, "stats.jsonl"), line[8192];
    int seconds = 0;
    assert_exports(place, to, 0, false);
    FILE *file = fopen(to, "re");
    while (fgets(line, sizeof line, file)) {
        json_t *row = json_loads(line, 0, NULL);
        assert_non_null(row);
        const char *view = json_string_value(json_object_get(row, "view"));
        assert_non_null(view);
        if (strcmp(view, "throughput") == 0) seconds++;
        json_decref(row);
    }
    fclose(file);
    assert_int_equal(seconds, SECONDS);
    free(to);
}

/* ---- places */

static void nothing_is_overwritten_unasked(void **state)
{
    struct place *place = *state;
    static const char *const names[] = {"x.db", "x.csv", "x.jsonl"};
    for (int i = 0; i < 3; i++) {
        char *to = place_name(place, names[i]);
        struct stat first, second;
        assert_exports(place, to, 0, false);
        assert_int_equal(stat(to, &first), 0);
        assert_refused(place, to, false, "exists");
        assert_int_equal(stat(to, &second), 0);
        assert_int_equal(first.st_ino, second.st_ino);
        assert_exports(place, to, 0, true);
        assert_int_equal(stat(to, &second), 0);
        assert_int_not_equal(first.st_ino, second.st_ino);
        free(to);
    }
    assert_tidy(place, 0);
}

static void what_is_no_export_is_never_replaced(void **state)
{
    struct place *place = *state;
    assert_refused(place, place->path, true, "the store itself");
    char *folder = place_name(place, "mine.csv"), *file = NULL;
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_true(asprintf(&file, "%s/thesis.txt", folder) > 0);
    fclose(fopen(file, "we"));
    assert_refused(place, folder, true, "not an earlier export");
    assert_int_equal(access(file, F_OK), 0);
    char *database = place_name(place, "used.db"), *wal = place_name(place, "used.db-wal");
    assert_exports(place, database, 0, false);
    fclose(fopen(wal, "we"));
    assert_refused(place, database, true, "in use");
    free(wal);
    free(database);
    free(file);
    free(folder);
    char *pipe = place_name(place, "pipe.jsonl"), *folder_of_mine = place_name(place, "folder.db");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_refused(place, pipe, true, "not an earlier export");
    assert_int_equal(mkdir(folder_of_mine, 0700), 0);
    assert_refused(place, folder_of_mine, true, "not an earlier export");
    free(folder_of_mine);
    free(pipe);
    char *odd = place_name(place, "stats.txt");
    assert_refused(place, odd, false, "should end in");
    free(odd);
}

static void a_failure_leaves_nothing(void **state)
{
    struct place *place = *state;
    static const char *const names[] = {"none/x.db", "none/x.csv", "none/x.jsonl"};
    for (int i = 0; i < 3; i++) {
        char *to = place_name(place, names[i]);
        assert_refused(place, to, false, "");
        assert_int_equal(access(to, F_OK), -1);
        free(to);
    }
    /* in the middle: a view that breaks */
    place_execute(place->path, "DROP VIEW toggle_effect; CREATE VIEW toggle_effect AS SELECT "
                               "nothing_like_it AS time_ms FROM node");
    for (int i = 1; i < 3; i++) {
        char *to = place_name(place, names[i] + 5);
        assert_refused(place, to, false, "nothing_like_it");
        assert_int_equal(access(to, F_OK), -1);
        free(to);
    }
    place_execute(place->path, "DROP TABLE calibration");
    char *to = place_name(place, "x.db");
    assert_refused(place, to, false, "calibration");
    assert_int_equal(access(to, F_OK), -1);
    free(to);
    assert_tidy(place, 0);
}

/* A disk without room, by the limit of a file's size: the reason and the place are said, and what
 * was half written is gone. */
static void a_full_disk_is_told_and_leaves_nothing(void **state)
{
    struct place *place = *state;
    static const char *const names[] = {"x.db", "x.csv", "x.jsonl"};
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small =
        (struct rlimit){.rlim_cur = 40960,
                        /* enough for the shared memory of a reader */ .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 3; i++) {
        char *to = place_name(place, names[i]), *cause, *expected = NULL;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        int rc = export_to(place, to, 0, false, &cause);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(rc, -1);
        assert_true(asprintf(&expected, "cannot export to %s: ", to) > 0);
        assert_non_null(strstr(cause, expected));
        if (i > 0) assert_non_null(strstr(cause, strerror(EFBIG)));
        assert_int_equal(access(to, F_OK), -1);
        free(expected);
        free(cause);
        free(to);
    }
    assert_tidy(place, 0);
}

/* Ctrl-C of `trimtab export`. */
static void a_stopped_export_leaves_nothing(void **state)
{
    struct place *place = *state;
    static const char *const names[] = {"x.db", "x.csv", "x.jsonl"};
    stop = 1;
    for (int i = 0; i < 3; i++) {
        char *to = place_name(place, names[i]);
        assert_refused(place, to, false, "interrupt");
        assert_int_equal(access(to, F_OK), -1);
        free(to);
    }
    stop = 0;
    assert_tidy(place, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_database_has_everything, make, place_teardown),
        cmocka_unit_test_setup_teardown(since_leaves_older_rows_out, make, place_teardown),
        cmocka_unit_test_setup_teardown(exports_while_writing, make, place_teardown),
        cmocka_unit_test_setup_teardown(a_folder_of_csv, make, place_teardown),
        cmocka_unit_test_setup_teardown(lines_of_json, make, place_teardown),
        cmocka_unit_test_setup_teardown(nothing_is_overwritten_unasked, make, place_teardown),
        cmocka_unit_test_setup_teardown(what_is_no_export_is_never_replaced, make, place_teardown),
        cmocka_unit_test_setup_teardown(a_failure_leaves_nothing, make, place_teardown),
        cmocka_unit_test_setup_teardown(a_full_disk_is_told_and_leaves_nothing, make,
                                        place_teardown),
        cmocka_unit_test_setup_teardown(a_stopped_export_leaves_nothing, make, place_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
