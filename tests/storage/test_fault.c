/* test_fault.c - what the disk and other people do to a store: no space, I/O errors, read-only,
 * damage, files of others and of the future. Nothing of it may lose what was committed, overwrite a
 * file, or stop the caller.
 */
#include "config.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "storage/schema.h"
#include "tests/storage/io_fault.h"
#include "tests/storage/place.h"

static int make(void **state)
{
    io_fault_install();
    io_fault_clear();
    *state = calloc(1, sizeof(struct place));
    place_make(*state);
    return 0;
}

static int clean(void **state)
{
    io_fault_clear();
    place_remove(*state);
    free(*state);
    return 0;
}

static void put_seconds(struct store *store, int64_t run, int from, int to)
{
    struct store_sample sample;
    for (int i = from; i < to; i++) {
        place_sample(&sample, run, i, 4);
        store_put_sample(store, &sample);
    }
}

/* A store with 10 seconds in it, closed. */
static void fill(struct place *place)
{
    struct store *store = place_open(place);
    put_seconds(store, place_begin(store, "a"), 0, 10);
    assert_true(store_flush(store));
    store_close(store);
}

static void assert_sound(const char *path)
{
    char *text = place_text(path, "PRAGMA integrity_check");
    assert_string_equal(text, "ok");
    free(text);
    assert_int_equal(place_integer(path, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
}

/* ---- the disk */

static void outage(struct place *place, int rc, const char *reason)
{
    struct store *store = place_open(place);
    struct store_health health;
    int64_t run = place_begin(store, "a");
    put_seconds(store, run, 0, 5);
    assert_true(store_flush(store));
    place->now_ms += 1000;
    int64_t since_ms = place->now_ms;
    io_fault_set(rc, 0, -1);
    put_seconds(store, run, 5, 10);
    assert_false(store_flush(store));
    store_get_health(store, &health);
    assert_false(health.ok);
    assert_int_equal(health.since_ms, since_ms);
    assert_non_null(strstr(health.reason, reason));
    for (int i = 0; health.dropped == 0 && i < 100; i++) { /* until the queue is full */
        put_seconds(store, run, 10, 1000);
        store_get_health(store, &health);
    }
    assert_true(health.dropped > 0);
    io_fault_clear();
    put_seconds(store, run, 0, 1); /* dropped, too: the queue is still full */
    while (!store_flush(store)) {}
    put_seconds(store, run, 2000, 2001);
    assert_true(store_flush(store));
    store_get_health(store, &health);
    assert_true(health.ok);
    assert_int_equal(place_integer(place->path,
                                   "SELECT count(*) FROM (SELECT DISTINCT time_ms FROM throughput"
                                   " WHERE time_ms < 1790000040000 + 10000)"),
                     10); /* none of the first rows is lost */
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM throughput WHERE time_ms ="
                                                " 1790000040000 + 2000000"),
                     1);
    char *text = place_text(
        place->path, "SELECT text FROM decisions WHERE what = 'store' ORDER BY time_ms LIMIT 1");
    assert_non_null(strstr(text, "was not written from 2026-"));
    assert_non_null(strstr(text, reason));
    free(text);
    assert_int_equal(
        place_integer(place->path, "SELECT sum(json_extract(numbers, '$.dropped')) FROM decisions"),
        (int64_t)health.dropped);
    assert_int_equal(
        place_integer(place->path,
                      "SELECT min(json_extract(numbers, '$.since_ms')) FROM decisions"),
        since_ms);
    store_close(store);
    assert_sound(place->path);
    assert_int_equal(place_integer(place->path, "SELECT clean FROM runs"), 1);
}

static void full_disk_and_back(void **state)
{
    outage(*state, SQLITE_FULL, "no space left on the disk");
}
static void io_error_and_back(void **state)
{
    outage(*state, SQLITE_IOERR_WRITE, "disk I/O error");
}
static void read_only_and_back(void **state)
{
    outage(*state, SQLITE_READONLY, "the file is read-only");
}

/* The N-th write fails, once, for every N: the store opens or says why not; what follows is whole.
 */
static void every_single_write_may_fail(void **state)
{
    struct place *place = *state;
    static const int codes[] = {SQLITE_FULL, SQLITE_IOERR_FSYNC};
    for (size_t c = 0; c < sizeof codes / sizeof *codes; c++) {
        int after = 0, hits = 1;
        for (; hits > 0; after += after < 30 ? 1 : 5) {
            struct store_options options = {
                .path = place->path, .now_ms = place_now_ms, .now_state = &place->now_ms};
            char *cause = NULL;
            io_fault_set(codes[c], after, 1);
            struct store *store = store_open(&options, &cause);
            if (!store) {
                assert_non_null(cause);
                free(cause);
                store = place_open(place); /* the fault is over */
            }
            int64_t run = place_begin(store, "a");
            put_seconds(store, run, 0, 3);
            if (!store_flush(store)) assert_true(store_flush(store));
            put_seconds(store, run, 3, 6);
            if (!store_flush(store)) assert_true(store_flush(store));
            store_close(store);
            hits = io_fault_hits();
            io_fault_clear();
            assert_sound(place->path);
            assert_int_equal(place_integer(place->path, "SELECT count(*) FROM sample"), 6);
            struct place again = *place; /* the next N gets a folder of its own */
            place_make(place);
            place_remove(&again);
        }
        assert_true(after > 20);
    }
}

static void full_disk_at_the_start(void **state)
{
    struct place *place = *state;
    struct store_options options = {
        .path = place->path, .now_ms = place_now_ms, .now_state = &place->now_ms};
    char *cause = NULL;
    io_fault_set(SQLITE_FULL, 0, -1);
    assert_null(store_open(&options, &cause)); /* nothing there yet */
    assert_non_null(strstr(cause, "full"));
    free(cause);
    io_fault_clear();
    fill(place);
    io_fault_set(SQLITE_FULL, 0, -1);
    struct store *store = place_open(place); /* a store that is there is opened, and waits */
    put_seconds(store, place_begin(store, "a"), 10, 20);
    assert_false(store_flush(store));
    io_fault_clear();
    assert_true(store_flush(store));
    store_close(store);
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM throughput"), 20);
}

/* As a user without rights: root may do everything. */
static void no_permission_is_told(void **state)
{
    struct place *place = *state;
    fill(place);
    assert_int_equal(chmod(place->folder, 0555), 0);
    assert_int_equal(chmod(place->path, 0444), 0);
    pid_t child = fork();
    if (child == 0) {
        struct store_options options = {.path = place->path};
        char *cause = NULL;
        if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
        if (store_open(&options, &cause)) _exit(3);
        _exit(strstr(cause, "Permission denied") ? 0 : 4);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- damage */

static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*size + 1);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

static void write_at(const char *path, long at, const char *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, at), size);
    close(fd);
}

/* Opening a damaged file moves it away, byte for byte, says so, and begins a new one that works. */
static void assert_moved_aside(struct place *place)
{
    size_t size, moved_size;
    char *before = read_file(place->path, &size);
    struct store *store = place_open(place);
    const char *notice = store_notice(store), *name = strstr(notice, "it was moved to ");
    assert_non_null(strstr(notice, "damaged"));
    assert_non_null(name);
    name += strlen("it was moved to ");
    char *moved = strndup(name, strcspn(name, " ")), *after = read_file(moved, &moved_size);
    assert_int_equal(size, moved_size);
    assert_memory_equal(before, after, size);
    put_seconds(store, place_begin(store, "a"), 0, 2);
    assert_true(store_flush(store));
    store_close(store);
    assert_sound(place->path);
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM throughput"), 2);
    assert_int_equal(place_integer(place->path,
                                   "SELECT count(*) FROM decisions WHERE severity = 'error'"
                                   " AND text LIKE '%damaged%moved to%'"),
                     1);
    free(after);
    free(moved);
    free(before);
}

static void a_broken_header_is_moved_aside(void **state)
{
    struct place *place = *state;
    fill(place);
    write_at(place->path, 0, "this is not a database any more", 31);
    assert_moved_aside(place);
    write_at(place->path, 0, "nor is this one", 15); /* twice: another name, the first stays */
    assert_moved_aside(place);
}

static void a_broken_page_is_moved_aside(void **state)
{
    struct place *place = *state;
    char garbage[4096];
    memset(garbage, 0xa5, sizeof garbage);
    fill(place);
    long page = (long)place_integer(place->path,
                                    "SELECT rootpage FROM sqlite_schema WHERE name = 'sample'");
    write_at(place->path, (page - 1) * 4096, garbage, sizeof garbage);
    assert_moved_aside(place);
}

static void a_cut_file_is_moved_aside(void **state)
{
    struct place *place = *state;
    fill(place);
    assert_int_equal(truncate(place->path, 3 * 4096 + 100), 0);
    assert_moved_aside(place);
}

static void any_other_file_is_moved_aside(void **state)
{
    struct place *place = *state;
    char text[8192];
    memset(text, 't', sizeof text);
    write_at(place->path, 0, text, sizeof text);
    assert_moved_aside(place);
}

/* SQLite would delete a WAL beside an empty file. */
static void a_lonely_wal_is_kept(void **state)
{
    struct place *place = *state;
    char *wal = place_name(place, "t.db-wal");
    write_at(place->path, 0, "", 0);
    write_at(wal, 0, "rows of a store whose main file was lost", 40);
    struct store *store = place_open(place);
    const char *name = strstr(store_notice(store), "it was moved to ");
    assert_non_null(name);
    name += strlen("it was moved to ");
    char *moved = NULL;
    size_t size;
    assert_true(asprintf(&moved, "%.*s-wal", (int)strcspn(name, " "), name) > 0);
    free(read_file(moved, &size));
    assert_int_equal(size, 40);
    free(moved);
    free(wal);
    store_close(store);
}

static void damage_while_running(void **state)
{
    struct place *place = *state;
    struct store *store = place_open(place);
    int64_t run = place_begin(store, "a");
    put_seconds(store, run, 0, 3);
    assert_true(store_flush(store));
    put_seconds(store, run, 3, 5); /* this commit comes after all upkeep of the first */
    assert_true(store_flush(store));
    io_fault_set(SQLITE_CORRUPT, 0, 1);
    put_seconds(store, run, 5, 8);
    assert_false(store_flush(store));
    assert_true(store_flush(store)); /* in a new file, the rows that waited and the run with them */
    store_close(store);
    assert_sound(place->path);
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM throughput WHERE node = 'a'"),
                     3);
    assert_int_equal(
        place_integer(place->path, "SELECT count(*) FROM decisions WHERE text LIKE '%moved to%'"),
        1);
}

/* ---- files of others */

static void assert_refused_untouched(struct place *place, const char *expected)
{
    size_t size, size_after;
    char *cause = NULL, *before = read_file(place->path, &size);
    struct store_options options = {.path = place->path};
    assert_null(store_open(&options, &cause));
    assert_non_null(cause);
    assert_non_null(strstr(cause, expected));
    char *after = read_file(place->path, &size_after);
    assert_int_equal(size, size_after);
    assert_memory_equal(before, after, size);
    free(before);
    free(after);
    free(cause);
}

static void a_newer_schema_is_refused(void **state)
{
    struct place *place = *state;
    char sql[64];
    fill(place);
    snprintf(sql, sizeof sql, "PRAGMA user_version = %d", schema_steps.count + 1);
    place_execute(place->path, sql);
    assert_refused_untouched(place, "newer trimtab");
}

static void another_database_is_refused(void **state)
{
    struct place *place = *state;
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(place->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE photos(id)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_refused_untouched(place, "another program");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(full_disk_and_back, make, clean),
        cmocka_unit_test_setup_teardown(io_error_and_back, make, clean),
        cmocka_unit_test_setup_teardown(read_only_and_back, make, clean),
        cmocka_unit_test_setup_teardown(every_single_write_may_fail, make, clean),
        cmocka_unit_test_setup_teardown(full_disk_at_the_start, make, clean),
        cmocka_unit_test_setup_teardown(no_permission_is_told, make, clean),
        cmocka_unit_test_setup_teardown(a_broken_header_is_moved_aside, make, clean),
        cmocka_unit_test_setup_teardown(a_broken_page_is_moved_aside, make, clean),
        cmocka_unit_test_setup_teardown(a_cut_file_is_moved_aside, make, clean),
        cmocka_unit_test_setup_teardown(any_other_file_is_moved_aside, make, clean),
        cmocka_unit_test_setup_teardown(a_lonely_wal_is_kept, make, clean),
        cmocka_unit_test_setup_teardown(damage_while_running, make, clean),
        cmocka_unit_test_setup_teardown(a_newer_schema_is_refused, make, clean),
        cmocka_unit_test_setup_teardown(another_database_is_refused, make, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
