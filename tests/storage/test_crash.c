/* test_crash.c - kill -9 of a writer under load: nothing that was committed is lost, at most about
 * a second that was not, the file is sound, and the next start says what happened. Many children at
 * once, each killed at its own moment.
 */
#include "config.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "storage/sql.h"
#include "tests/storage/place.h"

#define CHILDREN 20
#define FLUSHERS 180 /* with the children: 200 kills */
#define ROW_MS 5     /* between the rows of a child */
#define LOST_MS 1000 /* the promise: a second */
#define SLACK_MS                                                                                   \
    1500 /* 20 writers share the test machine's cores; a commit may wait this long for its turn */
#define SHORTEST_MS 1300 /* lives of the children: past the first commit */
#define LONGEST_MS 2600

struct progress {                   /* shared with the children */
    _Atomic int64_t rows[CHILDREN]; /* rows put so far */
};

static struct progress *progress;
static struct place places[CHILDREN];

static void pause_ms(int64_t ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Row i says when it was put: its budget is the monotonic clock's seconds. */
static void write_for_ever(int child)
{
    struct store *store = place_open(&places[child]);
    int64_t run = place_begin(store, "a");
    for (int64_t i = 0;; i++) {
        struct store_sample sample;
        place_sample(&sample, run, 0, 8);
        sample.time_ms += i;
        sample.budget = (double)storage_monotonic_ms() / 1e3;
        store_put_sample(store, &sample);
        atomic_store(&progress->rows[child], i + 1);
        pause_ms(ROW_MS);
    }
}

static pid_t start_child(int child)
{
    pid_t pid = fork();
    if (pid == 0) {
        write_for_ever(child);
        _exit(1);
    }
    assert_true(pid > 0);
    return pid;
}

static void check_child(int child, int64_t killed_ms, int64_t put)
{
    const char *path = places[child].path;
    places[child].now_ms += 3600000;
    struct store *store = place_open(&places[child]);
    assert_string_equal(store_notice(store), "");
    store_close(store);
    char *sound = place_text(path, "PRAGMA integrity_check");
    assert_string_equal(sound, "ok");
    free(sound);
    int64_t rows = place_integer(path, "SELECT count(*) FROM sample");
    assert_in_range(rows, 1, put + 1);
    /* an unbroken prefix: no hole, every row with its positions */
    assert_int_equal(place_integer(path, "SELECT max(time_ms) - min(time_ms) + 1 FROM sample"),
                     rows);
    assert_int_equal(place_integer(path, "SELECT count(*) FROM sample_position"), 8 * rows);
    int64_t last_ms = (int64_t)(place_real(path, "SELECT max(budget) FROM sample") * 1e3);
    if (killed_ms - last_ms > LOST_MS + SLACK_MS)
        fail_msg("child %d lost %lld ms", child, (long long)(killed_ms - last_ms));
    assert_int_equal(place_integer(path, "SELECT count(*) FROM runs WHERE clean = 0 AND end_ms ="
                                         " (SELECT max(time_ms) FROM sample)"),
                     1);
    assert_int_equal(
        place_integer(path,
                      "SELECT count(*) FROM decisions WHERE node = 'a' AND severity = 'warning' AND"
                      " text LIKE 'the last run of a ended without a clean stop; last row 2026-%'"),
        1);
}

static void killed_writers_lose_a_second_at_most(void **state)
{
    (void)state;
    pid_t pids[CHILDREN];
    int64_t killed_ms[CHILDREN], put[CHILDREN];
    progress =
        mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(progress != MAP_FAILED);
    for (int i = 0; i < CHILDREN; i++) {
        place_make(&places[i]);
        places[i].now_ms = PLACE_START_MS;
        pids[i] = start_child(i);
    }
    for (int i = 0; i < CHILDREN; i++) /* all are at work: their first commit is a second away */
        while (atomic_load(&progress->rows[i]) == 0) pause_ms(1);
    int64_t begin_ms = storage_monotonic_ms();
    for (int i = 0; i < CHILDREN; i++) { /* at moments spread over the second between two commits */
        int64_t at_ms = begin_ms + SHORTEST_MS + (LONGEST_MS - SHORTEST_MS) * i / CHILDREN;
        int64_t now_ms = storage_monotonic_ms();
        if (at_ms > now_ms) pause_ms(at_ms - now_ms);
        kill(pids[i], SIGKILL);
        killed_ms[i] = storage_monotonic_ms();
        put[i] = atomic_load(&progress->rows[i]);
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_true(put[i] > 20);
    }
    for (int i = 0; i < CHILDREN; i++) {
        check_child(i, killed_ms[i], put[i]);
        place_remove(&places[i]);
    }
}

/* What store_flush has answered for is there, whenever the kill comes. */
static void flushed_rows_are_never_lost(void **state)
{
    (void)state;
    for (int round = 0; round < FLUSHERS; round++) {
        struct place place;
        int64_t flushed[2];
        place_make(&place);
        int pipes[2];
        assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
        pid_t pid = fork();
        if (pid == 0) {
            struct store *store = place_open(&place);
            int64_t run = place_begin(store, "a");
            for (int64_t i = 0;; i++) {
                struct store_sample sample;
                place_sample(&sample, run, i, 4);
                store_put_sample(store, &sample);
                if (i % 3 == 0 &&
                    (!store_flush(store) || write(pipes[1], &i, sizeof i) != sizeof i))
                    _exit(1);
            }
        }
        close(pipes[1]);
        assert_int_equal(read(pipes[0], &flushed[0], sizeof flushed[0]), sizeof flushed[0]);
        pause_ms(7 + 13 * (round % 10) + round / 10);
        kill(pid, SIGKILL);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        while (read(pipes[0], &flushed[1], sizeof flushed[1]) == sizeof flushed[1])
            flushed[0] = flushed[1];
        close(pipes[0]);
        assert_true(place_integer(place.path, "SELECT count(*) FROM sample") >= flushed[0] + 1);
        place_remove(&place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_writers_lose_a_second_at_most),
        cmocka_unit_test(flushed_rows_are_never_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
