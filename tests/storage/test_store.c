/* test_store.c - the writer through store.h: what goes in comes out of the views, runs begin and
 * end, a second opener and another program's file are refused, a long reader does not hold it up,
 * it costs little.
 */
#include "config.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "storage/queue.h"
#include "storage/sql.h"
#include "tests/storage/place.h"

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

static void assert_text(const char *path, const char *sql, const char *expected)
{
    char *text = place_text(path, sql);
    assert_string_equal(text, expected);
    free(text);
}

/* ---- rows */

static void every_row_comes_out(void **state)
{
    struct place *place = *state;
    struct store *store = place_open(place);
    assert_string_equal(store_notice(store), "");
    int64_t run = place_begin(store, "local");
    struct store_sample sample;
    place_sample(&sample, run, 0, 3);
    store_put_sample(store, &sample);
    struct store_refit refit;
    place_refit(&refit, run, 0, 2);
    refit.rejected = "one row is not a number";
    refit.reset = true;
    store_put_refit(store, &refit);
    struct store_calibration calibration;
    place_calibration(&calibration, run, 0, 2);
    store_put_calibration(store, &calibration);
    store_put_cost(store,
                   &(struct store_cost){run, PLACE_START_MS, "verify", 8, 4, 1, 21.5, 0.5, 9});
    store_put_cost(
        store, &(struct store_cost){run, PLACE_START_MS + 1, "verify", 8, 4, 1, 22.5, 0.25, 10});
    store_put_decision(store,
                       &(struct store_decision){run, PLACE_START_MS, "uid 7", "socket", "mode",
                                                "fixed", "adaptive", "because", "{\"n\":3}"});
    store_put_event(store,
                    &(struct store_event){0, PLACE_START_MS + 1, "warning", "drift", "text", NULL});
    assert_true(store_flush(store));

    assert_text(
        place->path,
        "SELECT node || run_id || period_s || mode || emitted || ' ' || throughput_tps || ' ' ||"
        " step_ms || ' ' || own_ms || ' ' || budget || ' ' || running FROM throughput",
        "local11fixed60 60.0 45.1375 0.125 3.0 4.0");
    assert_text(
        place->path,
        "SELECT group_concat(position || ':' || reached || ':' || accepted || ':' ||"
        " round(predicted_ratio, 3) || ':' || round(brier, 3) || ':' || round(log_loss, 3), ' ')"
        " FROM acceptance_by_position",
        "0:80:60:0.8:0.17:0.52 1:77:57:0.77:0.17:0.52 2:74:55:0.74:0.17:0.52");
    assert_text(place->path,
                "SELECT group_concat(stratum || epoch || position || intercept || ' ' || reset ||"
                " rejected, ';') FROM coefficient_history",
                "model/greedy/t0000.0 1one row is not a number;model/greedy/t001-0.1 1one row is "
                "not a number");
    assert_text(place->path,
                "SELECT slope || ' ' || round(slope_low, 4) || ' ' || round(slope_high, 4) || ' ' "
                "|| drift_z"
                " FROM slope_drift",
                "0.5 0.4608 0.5392 0.3");
    assert_text(place->path,
                "SELECT count(*) || ' ' || sum(n) || ' ' || round(max(ece), 6) || ' ' || "
                "round(max(bias), 6)"
                " FROM calibration_error",
                "2 2000 0.02 0.02");
    assert_text(place->path,
                "SELECT part || tokens || requests || context_band || ' ' || ms || ' ' || n FROM "
                "cost_curve",
                "verify841 22.5 10");
    assert_text(
        place->path,
        "SELECT group_concat(kind || severity || what || ifnull(node, '-') || ifnull(who, '-') ||"
        " ifnull(after, '-') || text || ifnull(numbers, '-'), ' ') FROM (SELECT * FROM decisions "
        "ORDER BY time_ms)",
        "decisioninfomodelocaluid 7adaptivebecause{\"n\":3} eventwarningdrift---text-");
    assert_text(
        place->path,
        "SELECT node || kind || engine || model || settings || max_draft || ifnull(end_ms, '-')"
        " FROM runs",
        "localreplaytracem{\"K\":4}4-");
    store_close(store);
    assert_int_equal(place_integer(place->path, "SELECT clean FROM runs WHERE end_ms >= start_ms"),
                     1);
}

static void unknown_is_null(void **state)
{
    struct place *place = *state;
    struct store *store = place_open(place);
    struct store_sample sample = {.run_id = place_begin(store, "a"),
                                  .time_ms = 5,
                                  .running = -1,
                                  .drafted = -1,
                                  .draft_ms = NAN,
                                  .verify_ms = INFINITY,
                                  .own_ms = 1e300,
                                  .step_ms = NAN,
                                  .budget = NAN,
                                  .mode = "a new mode",
                                  .positions = 1};
    sample.position[0] = (struct store_position){1, 1, NAN, NAN, -INFINITY};
    store_put_sample(store, &sample);
    store_put_decision(store, &(struct store_decision){
                                  .run_id = sample.run_id, .what = "x", .numbers_json = "{broken"});
    assert_true(store_flush(store));
    assert_int_equal(
        place_integer(place->path,
                      "SELECT count(*) FROM throughput WHERE step_ms IS NULL AND own_ms IS NULL"
                      " AND running IS NULL AND drafted IS NULL AND accepted = 0 AND queued = 0"
                      " AND budget IS NULL AND tokens_per_step IS NULL AND mode = 'unknown'"),
        1);
    assert_int_equal(
        place_integer(place->path,
                      "SELECT count(*) FROM acceptance_by_position WHERE accepted_ratio = 1"
                      " AND predicted_ratio IS NULL AND log_loss IS NULL"),
        1);
    assert_int_equal(
        place_integer(place->path, "SELECT count(*) FROM decisions WHERE numbers IS NULL"), 1);
    store_close(store);
}

/* Rows of a run that does not exist are refused, counted and told; the rows around them are kept.
 */
static void refused_rows_are_counted(void **state)
{
    struct place *place = *state;
    struct store *store = place_open(place);
    struct store_sample sample;
    int64_t run = place_begin(store, "a");
    for (int i = 0; i < 4; i++) {
        place_sample(&sample, i % 2 ? run + 999 : run, i, 1);
        store_put_sample(store, &sample);
    }
    assert_true(store_flush(store));
    struct store_health health;
    store_get_health(store, &health);
    assert_true(health.ok);
    assert_int_equal(health.dropped, 2);
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM throughput"), 2);
    assert_int_equal(place_integer(place->path,
                                   "SELECT json_extract(numbers, '$.dropped') FROM decisions"
                                   " WHERE kind = 'event' AND what = 'store'"),
                     2);
    store_close(store);
}

/* More than the queue holds in one go: what does not fit is counted, what fits is written, and
 * nothing waits. */
static void a_full_queue_drops_and_counts(void **state)
{
    struct place *place = *state;
    struct store *store = place_open(place);
    struct store_event event = {.time_ms = 1, .severity = "info", .kind = "load"};
    char text[16001];
    memset(text, 'x', 16000);
    text[16000] = '\0';
    event.text = text;
    sqlite3 *other = NULL; /* holds the write lock, so that the writer cannot make room meanwhile */
    assert_int_equal(sqlite3_open(place->path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    const int put = 600; /* of 16 kB: more than both buffers */
    int64_t begin_ms = storage_monotonic_ms();
    for (int i = 0; i < put; i++) store_put_event(store, &event);
    assert_true(storage_monotonic_ms() - begin_ms < 1000);
    assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(other);
    while (!store_flush(store)) {}
    struct store_health health;
    store_get_health(store, &health);
    assert_true(health.dropped > 0 && health.dropped < (uint64_t)put);
    assert_int_equal(
        place_integer(place->path, "SELECT count(*) FROM decisions WHERE what = 'load'"),
        put - (int64_t)health.dropped);
    assert_int_equal(place_integer(place->path,
                                   "SELECT sum(json_extract(numbers, '$.dropped')) FROM decisions"
                                   " WHERE what = 'store'"),
                     (int64_t)health.dropped);
    store_close(store);
}

static void queue_keeps_what_it_was_given(void **state)
{
    (void)state;
    struct store_queue queue;
    union queue_row row;
    enum queue_kind kind;
    assert_true(store_queue_init(&queue, 3000));
    char who[] = "first";
    struct store_decision decision = {.run_id = 1, .who = who, .what = ""};
    struct store_sample sample;
    place_sample(&sample, 2, 3, STORE_MAX_POSITIONS);
    sample.positions = 100; /* too many: those that a sample holds are copied */
    assert_true(store_queue_push(&queue, QUEUE_DECISION, &decision));
    who[0] = 'F'; /* the caller's string may change */
    assert_true(store_queue_push(&queue, QUEUE_SAMPLE, &sample));
    assert_false(store_queue_push(&queue, QUEUE_SAMPLE, &sample));
    size_t offset = 0;
    assert_true(store_queue_next(&queue, &offset, &kind, &row));
    assert_int_equal(kind, QUEUE_DECISION);
    assert_string_equal(row.decision.who, "first");
    assert_string_equal(row.decision.what, "");
    assert_null(row.decision.reason);
    assert_true(store_queue_next(&queue, &offset, &kind, &row));
    assert_int_equal(kind, QUEUE_SAMPLE);
    assert_string_equal(row.sample.mode, "fixed");
    assert_int_equal(row.sample.position[31].reached, sample.position[31].reached);
    assert_false(store_queue_next(&queue, &offset, &kind, &row));
    store_queue_clear(&queue);
    assert_true(store_queue_push(&queue, QUEUE_SAMPLE, &sample));
    store_queue_free(&queue);
}

static void no_store_is_harmless(void **state)
{
    (void)state;
    struct store_sample sample = {0};
    struct store_health health;
    assert_int_equal(store_begin_run(NULL, &(struct store_run){.node = "a"}), -1);
    store_put_sample(NULL, &sample);
    store_put_event(NULL, &(struct store_event){0});
    store_end_run(NULL, 1);
    store_get_health(NULL, &health);
    assert_false(health.ok);
    assert_string_equal(health.reason, "there is no store");
    assert_false(store_flush(NULL));
    assert_string_equal(store_notice(NULL), "");
    store_close(NULL);
}

/* ---- runs */

static void runs_end_when_told(void **state)
{
    struct place *place = *state;
    struct store *store = place_open(place);
    int64_t first = place_begin(store, "a"), second = place_begin(store, "b");
    assert_true(store_flush(store));
    store_end_run(store, first);
    store_end_run(store, 12345); /* nobody's */
    assert_true(store_flush(store));
    assert_int_equal(
        place_integer(place->path,
                      "SELECT run_id FROM runs WHERE end_ms IS NOT NULL AND clean = 1"),
        first);
    int64_t third = place_begin(store, "a"); /* the node again */
    store_end_run(store, third);             /* begun and ended between two commits */
    store_close(store);
    assert_true(first < second && second < third);
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM runs WHERE clean = 1"), 3);
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM node"), 2);
    store = place_open(place);
    assert_int_equal(place_begin(store, "a"), third + 1);
    store_close(store);
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM decisions"),
                     0); /* nothing to tell */
}

/* ---- openers */

static void wait_child(pid_t child, int signal)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (signal)
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == signal);
    else
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void second_opener_is_refused(void **state)
{
    struct place *place = *state;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct store_options options = {.path = place->path};
        char *cause = NULL;
        struct store *store = store_open(&options, &cause);
        if (write(ready[1], store ? "y" : "n", 1) != 1) _exit(1);
        for (;;) pause();
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    struct stat before, after;
    assert_int_equal(stat(place->path, &before), 0);
    char *cause = NULL, pid[32], *linked = place_name(place, "link.db");
    struct store_options options = {.path = place->path};
    assert_null(store_open(&options, &cause));
    snprintf(pid, sizeof pid, "(pid %ld)", (long)child);
    assert_non_null(strstr(cause, pid));
    assert_non_null(strstr(cause, place->path));
    free(cause);
    assert_int_equal(symlink(place->path, linked), 0); /* the same file by another name */
    options.path = linked;
    assert_null(store_open(&options, &cause));
    assert_non_null(strstr(cause, pid));
    free(cause);
    assert_int_equal(stat(place->path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    kill(child, SIGKILL);
    wait_child(child, SIGKILL);
    store_close(place_open(place)); /* the lock died with its holder */
    free(linked);
    close(ready[0]);
    close(ready[1]);
}

static void folder_is_made(void **state)
{
    struct place *place = *state;
    struct stat status;
    char *cause = NULL, *path = place_name(place, "one/two/t.db"),
         *folder = place_name(place, "one");
    struct store_options options = {.path = path};
    struct store *store = store_open(&options, &cause);
    assert_non_null(store);
    assert_string_equal(store_path(store), path);
    store_close(store);
    assert_int_equal(stat(folder, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
    char *below = place_name(place, "t.db/x.db"); /* a file where a folder should be */
    store_close(place_open(place));
    options.path = below;
    assert_null(store_open(&options, &cause));
    assert_non_null(strstr(cause, "folder"));
    free(cause);
    options.path = place->folder; /* a folder where the file should be */
    assert_null(store_open(&options, &cause));
    assert_non_null(strstr(cause, "names no file but a folder"));
    free(cause);
    options.path = "";
    assert_null(store_open(&options, &cause));
    free(cause);
    free(below);
    free(folder);
    free(path);
}

/* ---- beside others */

static void a_long_reader_does_not_block(void **state)
{
    struct place *place = *state;
    struct store *store = place_open(place);
    struct store_sample sample;
    int64_t run = place_begin(store, "a");
    assert_true(store_flush(store));
    sqlite3 *reader = NULL;
    assert_int_equal(sqlite3_open(place->path, &reader), SQLITE_OK);
    assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM sample", NULL, NULL, NULL),
                     SQLITE_OK);
    for (int i = 0; i < 200; i++) {
        place_sample(&sample, run, i, 4);
        store_put_sample(store, &sample);
        int64_t begin_ms = storage_monotonic_ms();
        assert_true(store_flush(store));
        assert_true(storage_monotonic_ms() - begin_ms < 1000);
    }
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM throughput"), 200);
    assert_int_equal(sqlite3_exec(reader, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(reader);
    store_close(store);
}

/* A reader that keeps an old state open makes the WAL grow: the daemon goes on, and says so. */
static void a_growing_wal_is_reported(void **state)
{
    struct place *place = *state;
    struct store *store = place_open(place);
    static char text[16001];
    memset(text, 'x', sizeof text - 1);
    const struct store_event event = {
        .time_ms = PLACE_START_MS, .severity = "info", .kind = "load", .text = text};
    sqlite3 *reader = NULL;
    assert_true(store_flush(store));
    assert_int_equal(sqlite3_open(place->path, &reader), SQLITE_OK);
    assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM event", NULL, NULL, NULL),
                     SQLITE_OK);
    for (int i = 0; i < 45; i++) { /* 1.6 MB each */
        for (int k = 0; k < 100; k++) store_put_event(store, &event);
        assert_true(store_flush(store));
    }
    for (int minute = 0; minute < 3; minute++) { /* said once */
        place->now_ms += 60000;
        assert_true(store_flush(store));
        store_put_event(store, &event); /* so that the flush before is over when this one is */
        assert_true(store_flush(store));
    }
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM event WHERE kind = 'store'"
                                                " AND text LIKE 'the write-ahead log has grown%'"),
                     1);
    sqlite3_close(reader);
    store_close(store);
}

static void a_removed_file_is_noticed(void **state)
{
    struct place *place = *state;
    struct store *store = place_open(place);
    struct store_sample sample;
    int64_t run = place_begin(store, "a");
    place_sample(&sample, run, 0, 1);
    store_put_sample(store, &sample);
    assert_true(store_flush(store));
    assert_int_equal(unlink(place->path), 0);
    place_sample(&sample, run, 1, 1);
    store_put_sample(store, &sample);
    assert_true(store_flush(store));
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM throughput WHERE node = 'a'"),
                     1);
    assert_int_equal(place_integer(place->path,
                                   "SELECT count(*) FROM decisions WHERE severity = 'error' AND"
                                   " text LIKE '%removed or replaced%'"),
                     1);
    store_close(store);
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM runs WHERE clean = 1"), 1);
}

struct clock { /* a clock that is set while the store runs */
    pthread_mutex_t mutex;
    int64_t offset_ms;
};

static int64_t set_clock_ms(void *state)
{
    struct clock *clock = state;
    pthread_mutex_lock(&clock->mutex);
    int64_t now_ms = storage_clock_ms() + clock->offset_ms;
    pthread_mutex_unlock(&clock->mutex);
    return now_ms;
}

static void clock_steps_are_survived(void **state)
{
    struct place *place = *state;
    struct clock clock = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    struct store_options options = {
        .path = place->path, .now_ms = set_clock_ms, .now_state = &clock};
    char *cause = NULL;
    struct store *store = store_open(&options, &cause);
    assert_non_null(store);
    int64_t run = place_begin(store, "a");
    const int64_t steps_ms[] = {0, 400 * INT64_C(86400000), -7200000, 0};
    for (int i = 0; i < 4; i++) { /* a year and more ahead, two hours behind, right again */
        pthread_mutex_lock(&clock.mutex);
        clock.offset_ms = steps_ms[i];
        pthread_mutex_unlock(&clock.mutex);
        struct store_sample sample;
        place_sample(&sample, run, i, 1);
        sample.time_ms = set_clock_ms(&clock);
        store_put_sample(store, &sample);
        assert_true(store_flush(store));
    }
    assert_true(store_flush(store));
    store_close(store);
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM sample"),
                     4); /* nothing was deleted as too old */
    assert_int_equal(place_integer(place->path, "SELECT sum(emitted) FROM throughput"),
                     60 + 61 + 62 + 63);
    assert_int_equal(
        place_integer(place->path,
                      "SELECT count(*) FROM decisions WHERE text LIKE '%clock jumped%'"),
        1);
    clock.offset_ms = -86400000; /* at the next start the clock is a day behind */
    store = store_open(&options, &cause);
    assert_non_null(store);
    store_close(store);
    assert_int_equal(
        place_integer(place->path,
                      "SELECT count(*) FROM decisions WHERE text LIKE '%clock is behind%'"),
        1);
}

/* ---- cost */

/* 600 seconds of one node with 16 positions, a commit each, against 1 % of a core. */
static void the_writer_costs_little(void **state)
{
    struct place *place = *state;
    struct store *store = place_open(place);
    struct store_sample sample;
    struct store_refit refit;
    struct rusage before, after;
    const int seconds = 600;
    int64_t run = place_begin(store, "a");
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < seconds; i++) {
        place_sample(&sample, run, i, 16);
        store_put_sample(store, &sample);
        place_refit(&refit, run, i, 16);
        store_put_refit(store, &refit);
        assert_true(store_flush(store));
    }
    getrusage(RUSAGE_SELF, &after);
    store_close(store);
    double ms = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec -
                         before.ru_stime.tv_sec) *
                    1e3 +
                (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec -
                         before.ru_stime.tv_usec) /
                    1e3;
    print_message("# writer: %.3f ms of processor time a second of one node\n", ms / seconds);
    assert_true(ms / seconds < 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_row_comes_out, make, clean),
        cmocka_unit_test_setup_teardown(unknown_is_null, make, clean),
        cmocka_unit_test_setup_teardown(refused_rows_are_counted, make, clean),
        cmocka_unit_test_setup_teardown(a_full_queue_drops_and_counts, make, clean),
        cmocka_unit_test(queue_keeps_what_it_was_given),
        cmocka_unit_test(no_store_is_harmless),
        cmocka_unit_test_setup_teardown(runs_end_when_told, make, clean),
        cmocka_unit_test_setup_teardown(second_opener_is_refused, make, clean),
        cmocka_unit_test_setup_teardown(folder_is_made, make, clean),
        cmocka_unit_test_setup_teardown(a_long_reader_does_not_block, make, clean),
        cmocka_unit_test_setup_teardown(a_growing_wal_is_reported, make, clean),
        cmocka_unit_test_setup_teardown(a_removed_file_is_noticed, make, clean),
        cmocka_unit_test_setup_teardown(clock_steps_are_survived, make, clean),
        cmocka_unit_test_setup_teardown(the_writer_costs_little, make, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
