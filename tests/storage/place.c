/* place.c - see place.h. */
#include "config.h"

#include "tests/storage/place.h"

#include <ftw.h>
#include <math.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "storage/bench.h"

void place_make(struct place *place)
{
    const char *base = getenv("TMPDIR"); /* memory rather than a disk: these tests commit a lot */
    if (!base || strlen(base) > 40)
        base = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
    place->now_ms = PLACE_START_MS + 3600000;
    snprintf(place->folder, sizeof place->folder, "%s/trimtab-XXXXXX", base);
    assert_non_null(mkdtemp(place->folder));
    snprintf(place->path, sizeof place->path, "%s/t.db", place->folder);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

void place_remove(struct place *place)
{
    chmod(place->folder, 0700);
    nftw(place->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

char *place_name(const struct place *place, const char *name)
{
    char *path = NULL;
    assert_true(asprintf(&path, "%s/%s", place->folder, name) > 0);
    return path;
}

static sqlite3 *open_file(const char *path)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    return db;
}

static sqlite3_stmt *first_row(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(statement);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    return statement;
}

int64_t place_integer(const char *path, const char *sql)
{
    sqlite3 *db = open_file(path);
    sqlite3_stmt *statement = first_row(db, sql);
    int64_t value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return value;
}

double place_real(const char *path, const char *sql)
{
    sqlite3 *db = open_file(path);
    sqlite3_stmt *statement = first_row(db, sql);
    double value = sqlite3_column_type(statement, 0) == SQLITE_NULL
                       ? NAN
                       : sqlite3_column_double(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return value;
}

char *place_text(const char *path, const char *sql)
{
    sqlite3 *db = open_file(path);
    sqlite3_stmt *statement = first_row(db, sql);
    const char *text = (const char *)sqlite3_column_text(statement, 0);
    char *copy = strdup(text ? text : "");
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return copy;
}

void place_execute(const char *path, const char *sql)
{
    sqlite3 *db = open_file(path);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_close(db);
}

struct store *place_open(struct place *place)
{
    struct store_options options = {
        .path = place->path, .now_ms = place_now_ms, .now_state = &place->now_ms};
    char *cause = NULL;
    struct store *store = store_open(&options, &cause);
    if (!store) fail_msg("%s", cause);
    return store;
}

int64_t place_begin(struct store *store, const char *node)
{
    struct store_run run = {.node = node,
                            .kind = "replay",
                            .engine = "trace",
                            .version = "1",
                            .model = "m",
                            .model_digest = "0123",
                            .draft = "d",
                            .settings_json = "{\"K\":4}",
                            .max_draft = 4};
    int64_t run_id = store_begin_run(store, &run);
    assert_true(run_id > 0);
    return run_id;
}

void place_sample(struct store_sample *sample, int64_t run_id, int64_t i, int positions)
{
    memset(sample, 0, sizeof *sample);
    sample->run_id = run_id;
    sample->time_ms = PLACE_START_MS + i * 1000;
    sample->mode = i / 100 % 2 ? "adaptive" : "fixed";
    sample->running = 4;
    sample->queued = (int)(i % 3);
    sample->steps = 20;
    sample->drafted = 80;
    sample->admitted = 60 + i % 5;
    sample->verified = 60 + i % 5;
    sample->accepted = 40;
    sample->emitted = 60 + i % 7;
    sample->target_rows = 140;
    sample->draft_ms = 100.25;
    sample->verify_ms = 800;
    sample->own_ms = 2.5;
    sample->step_ms = 902.75;
    sample->predicted_ms = 880;
    sample->priced_ms = 900;
    sample->missed_ms = 45;
    sample->budget = (double)sample->admitted / 20;
    sample->positions = positions;
    for (int k = 0; k < positions; k++) {
        double p = 0.8 - 0.03 * k;
        int64_t reached = 80 - 3 * k - i % 2;
        sample->position[k] =
            (struct store_position){reached, reached * 3 / 4, p * (double)reached,
                                    0.17 * (double)reached, 0.52 * (double)reached};
    }
}

void place_refit(struct store_refit *refit, int64_t run_id, int64_t i, int positions)
{
    memset(refit, 0, sizeof *refit);
    refit->run_id = run_id;
    refit->time_ms = PLACE_START_MS + i * 1000;
    refit->epoch = i;
    refit->stratum = "model/greedy/t0";
    refit->kind = "online";
    refit->slope = 0.5 + 1e-5 * (double)i;
    refit->slope_se = 0.02;
    refit->level = -0.4;
    refit->centre = 1.25;
    refit->drift_z = 0.3;
    refit->observations = 100 + i;
    refit->positions = positions;
    for (int k = 0; k < positions; k++) {
        refit->position[k].intercept = -0.1 * k + 1e-5 * (double)i;
        refit->position[k].intercept_se = 0.05;
        refit->position[k].observations = 50 + i;
    }
}

void place_calibration(struct store_calibration *calibration, int64_t run_id, int64_t minute,
                       int positions)
{
    memset(calibration, 0, sizeof *calibration);
    calibration->run_id = run_id;
    calibration->time_ms = PLACE_START_MS + minute * 60000;
    calibration->stratum = "model/greedy/t0";
    calibration->positions = positions;
    for (int k = 0; k < positions; k++) {
        for (int bin = 0; bin < STORE_CALIBRATION_BINS; bin++) {
            calibration->bin[k][bin].n = 100;
            calibration->bin[k][bin].sum_p = 100 * (bin + 0.5) / STORE_CALIBRATION_BINS;
            calibration->bin[k][bin].sum_y = 100 * (bin + 0.5) / STORE_CALIBRATION_BINS - 2;
        }
    }
}

bool place_bench(const struct place *place)
{
    const struct bench_cell cell = {"BF16", "mixed", 0, 4};
    const struct bench_block block = {.block = 1, .time_ms = PLACE_START_MS + 400000};
    const struct bench_result result = {.policy = "adaptive", .time_ms = PLACE_START_MS + 400000};
    struct bench_store *store = bench_store_open(place->path, "{}", NULL);
    bool put = store && bench_store_put_block(store, &cell, "adaptive", &block, NULL) == 0 &&
               bench_store_put_result(store, &cell, &result, NULL) == 0;

    bench_store_close(store);
    return put;
}

int64_t place_now_ms(void *state)
{
    return *(_Atomic int64_t *)state;
}

int place_setup_samples(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    place_make(place);
    struct store *store = place_open(place);
    int64_t run = place_begin(store, "local");
    for (int i = 0; i < 100; i++) {
        struct store_sample sample;
        place_sample(&sample, run, i, 2);
        store_put_sample(store, &sample);
    }
    store_close(store);
    *state = place;
    return 0;
}

int place_teardown(void **state)
{
    place_remove(*state);
    free(*state);
    return 0;
}

struct reader *place_reader(const struct place *place)
{
    char *cause = NULL;
    struct reader *reader = reader_open(place->path, &cause);
    if (!reader) fail_msg("%s", cause);
    return reader;
}
