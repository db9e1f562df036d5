/* writer.c - see writer.h.
 *
 * Once a second the thread swaps the two buffers of the queue and writes the back one in a
 * transaction, with the runs that began or ended. A batch that cannot be written stays and is tried
 * again, so a short outage only delays rows; what no longer fits into the front meanwhile is
 * dropped and counted.
 */
#include "config.h"

#include "storage/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "storage/rollup.h"
#include "storage/sql.h"

#define TICK_MS 1000
#define REOPEN_FAILURES 10    /* commits that failed in a row before the file is opened anew */
#define HORIZON_TICKS 600     /* the retention is looked at every ten minutes */
#define CLOCK_STEP_MS 60000   /* a jump of the clock that is worth an event */
#define CLOCK_HOLD_MS 3600000 /* after one, nothing is deleted for an hour: it may be set back */
#define WAL_LARGE_BYTES (INT64_C(64) << 20)
#define FREE_PAGES_KEPT                                                                            \
    8192 /* 32 MiB of free pages wait for new rows; beyond that the file shrinks */

static int64_t now_of(const struct store *store)
{
    return store->now_ms(store->now_state);
}

/* ---- what the last run left, at an open */

static int put_event(struct store *store, int64_t row_id, const char *severity, const char *text,
                     const char *numbers_json)
{
    union queue_row row = {.event = {.time_ms = now_of(store),
                                     .severity = severity,
                                     .kind = "store",
                                     .text = text,
                                     .numbers_json = numbers_json}};
    return rows_put(store->rows, QUEUE_EVENT, &row, row_id);
}

static bool is_own_run(struct store *store, int64_t row_id)
{
    bool own = false;
    pthread_mutex_lock(&store->mutex);
    for (size_t i = 0; i < store->run_count && !own; i++) own = store->runs[i]->row_id == row_id;
    pthread_mutex_unlock(&store->mutex);
    return own;
}

static int close_unclean_run(struct store *store, int64_t run_id, const char *node)
{
    int64_t start_ms, last_ms;
    char text[256], when[STORAGE_TIME_SIZE];
    int rc = storage_sql_int(store->file.db, "SELECT start_ms FROM run WHERE run_id = ?1", &run_id,
                             1, 0, &start_ms);
    if (rc == SQLITE_OK)
        rc = storage_sql_int(store->file.db,
                             "SELECT max((SELECT max(time_ms) FROM sample WHERE run_id = ?1),"
                             " coalesce((SELECT max(time_ms) FROM event WHERE run_id = ?1), 0))",
                             &run_id, 1, 0, &last_ms);
    if (rc != SQLITE_OK) return rc;
    if (last_ms > 0)
        snprintf(text, sizeof text, "the last run of %s ended without a clean stop; last row %s",
                 node, storage_time(last_ms, when));
    else
        snprintf(text, sizeof text,
                 "the last run of %s ended without a clean stop and without a row", node);
    rc = put_event(store, run_id, "warning", text, NULL);
    return rc == SQLITE_OK
               ? rows_end_run(store->rows, run_id, last_ms > 0 ? last_ms : start_ms, false)
               : rc;
}

static int close_unclean_runs(struct store *store)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(store->file.db,
                                "SELECT run_id, name FROM run JOIN node USING (node_id)"
                                " WHERE end_ms IS NULL ORDER BY run_id DESC",
                                -1, &statement, NULL);
    while (rc == SQLITE_OK && (rc = sqlite3_step(statement)) == SQLITE_ROW) {
        int64_t run_id = sqlite3_column_int64(statement, 0);
        rc =
            is_own_run(store, run_id)
                ? SQLITE_OK
                : close_unclean_run(store, run_id, (const char *)sqlite3_column_text(statement, 1));
    }
    sqlite3_finalize(statement);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int report_clock_behind(struct store *store)
{
    int64_t newest_ms, now_ms = now_of(store);
    char text[160], when[STORAGE_TIME_SIZE];
    int rc = storage_sql_int(store->file.db, "SELECT max(coalesce(end_ms, start_ms)) FROM run",
                             NULL, 0, 0, &newest_ms);
    if (rc != SQLITE_OK || newest_ms <= now_ms + CLOCK_STEP_MS) return rc;
    store->hold_until_ms = storage_monotonic_ms() + CLOCK_HOLD_MS;
    snprintf(text, sizeof text,
             "the clock is behind the newest row by %lld s (%s); rows are kept as they are",
             (long long)((newest_ms - now_ms) / 1000), storage_time(newest_ms, when));
    return put_event(store, 0, "warning", text, NULL);
}

int writer_connect(struct store *store, char **cause)
{
    if (store_file_open(&store->file, store->path, &schema_steps, store->damage, cause) != 0)
        return -1;
    free(store->damage);
    store->damage = NULL;
    store->rows = rows_open(store->file.db, cause);
    if (!store->rows) goto fail;
    int rc = sqlite3_exec(store->file.db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc == SQLITE_OK && store->file.notice)
        rc = put_event(store, 0, "error", store->file.notice, NULL);
    if (rc == SQLITE_OK) rc = close_unclean_runs(store);
    if (rc == SQLITE_OK) rc = report_clock_behind(store);
    if (rc == SQLITE_OK) rc = sqlite3_exec(store->file.db, "COMMIT", NULL, NULL, NULL);
    if (rc == SQLITE_OK) return 0;
    storage_fail(cause, "cannot write to the store %s: %s", store->path,
                 sqlite3_errmsg(store->file.db));
fail:
    rows_close(store->rows);
    store->rows = NULL;
    store_file_close(&store->file);
    return -1;
}

void writer_disconnect(struct store *store)
{
    rows_close(store->rows);
    store->rows = NULL;
    store_file_close(&store->file);
}

/* ---- one transaction */

/* What only the row is to blame for; everything else is the file's or the disk's state. */
static bool is_row_error(int rc)
{
    int code = rc & 0xff;
    return code == SQLITE_CONSTRAINT || code == SQLITE_MISMATCH || code == SQLITE_TOOBIG;
}

static int64_t row_id_of(struct store *store, int64_t run_id)
{
    int64_t index = run_id - store->first_run_id, row_id = 0;
    pthread_mutex_lock(&store->mutex); /* the list may be moved by a new run */
    if (index >= 0 && (size_t)index < store->run_count) row_id = store->runs[index]->row_id;
    pthread_mutex_unlock(&store->mutex);
    return row_id;
}

static int64_t run_id_of(enum queue_kind kind, const union queue_row *row)
{
    switch (kind) {
    case QUEUE_SAMPLE:
        return row->sample.run_id;
    case QUEUE_REFIT:
        return row->refit.run_id;
    case QUEUE_CALIBRATION:
        return row->calibration.run_id;
    case QUEUE_COST:
        return row->cost.run_id;
    case QUEUE_DECISION:
        return row->decision.run_id;
    case QUEUE_EVENT:
        return row->event.run_id;
    case QUEUE_KINDS:
        break;
    }
    return 0;
}

struct run_change { /* a run to insert or to end, copied under the mutex */
    struct run_slot *slot;
    int64_t run_id, end_ms;
    bool begun; /* in the transaction that runs */
};

static int write_runs(struct store *store, struct run_change *changes, size_t count, bool ends)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < count; i++) {
        struct run_slot *slot = changes[i].slot;
        if (!ends && slot->row_id == 0) {
            int64_t row_id = changes[i].run_id;
            rc = rows_begin_run(store->rows, &slot->run, slot->start_ms, &row_id);
            if (rc == SQLITE_OK) slot->row_id = row_id;
            changes[i].begun = rc == SQLITE_OK;
        } else if (ends && changes[i].end_ms > 0) {
            rc = rows_end_run(store->rows, slot->row_id, changes[i].end_ms, true);
        }
    }
    return rc;
}

static int write_batch(struct store *store)
{
    size_t offset = 0;
    enum queue_kind kind;
    union queue_row row;
    int rc = SQLITE_OK;
    while (rc == SQLITE_OK && store_queue_next(&store->back, &offset, &kind, &row)) {
        rc = rows_put(store->rows, kind, &row, row_id_of(store, run_id_of(kind, &row)));
        if (rc == SQLITE_OK || !is_row_error(rc)) continue;
        store->refused++;
        snprintf(store->refusal, sizeof store->refusal, "%s", sqlite3_errmsg(store->file.db));
        rc = SQLITE_OK;
    }
    return rc;
}

/* Rows that are missing, as an event in the transaction that goes on. */
static int report_gap(struct store *store, const struct store_health *health)
{
    char text[512], numbers[128], from[STORAGE_TIME_SIZE], to[STORAGE_TIME_SIZE];
    int64_t now_ms = now_of(store);
    uint64_t missing = health->dropped - store->dropped_reported + store->refused;
    if (health->ok && missing == 0) return SQLITE_OK;
    if (!health->ok)
        snprintf(text, sizeof text,
                 "the store was not written from %s to %s (%s): %llu rows are missing",
                 storage_time(health->since_ms, from), storage_time(now_ms, to), health->reason,
                 (unsigned long long)missing);
    else if (store->refused > 0)
        snprintf(text, sizeof text, "%llu rows did not fit the tables and are missing: %s",
                 (unsigned long long)missing, store->refusal);
    else
        snprintf(text, sizeof text,
                 "%llu rows came faster than they could be written and are missing",
                 (unsigned long long)missing);
    snprintf(numbers, sizeof numbers, "{\"since_ms\":%lld,\"until_ms\":%lld,\"dropped\":%llu}",
             (long long)(health->ok ? now_ms : health->since_ms), (long long)now_ms,
             (unsigned long long)missing);
    return put_event(store, 0, "warning", text, numbers);
}

static int commit_batch(struct store *store, struct run_change *changes, size_t count,
                        const struct store_health *health)
{
    store->refused = 0;
    int rc = sqlite3_exec(store->file.db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc == SQLITE_OK) rc = write_runs(store, changes, count, false);
    if (rc == SQLITE_OK) rc = write_batch(store);
    if (rc == SQLITE_OK) rc = report_gap(store, health);
    if (rc == SQLITE_OK) rc = write_runs(store, changes, count, true);
    if (rc == SQLITE_OK) rc = sqlite3_exec(store->file.db, "COMMIT", NULL, NULL, NULL);
    return rc;
}

/* ---- when it does not work */

static void note_damage(struct store *store, int rc)
{
    int code = rc & 0xff;
    if ((code == SQLITE_CORRUPT || code == SQLITE_NOTADB) && !store->damage)
        storage_fail(&store->damage, "%s", sqlite3_errmsg(store->file.db));
}

static void forget_row_ids(struct store *store)
{
    pthread_mutex_lock(&store->mutex);
    for (size_t i = 0; i < store->run_count; i++) store->runs[i]->row_id = 0;
    pthread_mutex_unlock(&store->mutex);
}

/* Another connection, perhaps to another file: the open runs are then begun in it again. */
static int reopen_file(struct store *store, char **cause)
{
    bool same = store_file_same(&store->file, store->path);
    if (!same || store->damage) forget_row_ids(store);
    writer_disconnect(store);
    if (writer_connect(store, cause) != 0) return -1;
    if (!same)
        put_event(
            store, 0, "error",
            "the store's file was removed or replaced while in use; what stands in its place is "
            "written from now on",
            NULL);
    return 0;
}

static void describe_failure(sqlite3 *db, int rc, char *reason, size_t size)
{
    int error = sqlite3_system_errno(db);
    switch (rc & 0xff) {
    case SQLITE_FULL:
        snprintf(reason, size, "no space left on the disk");
        break;
    case SQLITE_READONLY:
        snprintf(reason, size, "the file is read-only");
        break;
    case SQLITE_BUSY:
        snprintf(reason, size, "another program holds the file locked");
        break;
    default:
        snprintf(reason, size, "%s%s%s", sqlite3_errmsg(db), error ? ": " : "",
                 error ? strerror(error) : "");
    }
}

/* An open connection to the file that stands at the path, or false with the reason. */
static bool ensure_open(struct store *store, char *reason, size_t size)
{
    char *cause = NULL;
    bool moved = store->file.db && !store_file_same(&store->file, store->path);
    if (store->file.db && !moved && !store->damage && store->failed_ticks < REOPEN_FAILURES)
        return true;
    store->failed_ticks = 0;
    if (reopen_file(store, &cause) == 0) return true;
    snprintf(reason, size, "%s", cause ? cause : "out of memory");
    free(cause);
    return false;
}

/* Write the back buffer and the changes of runs. True when they are committed, else false with the
 * reason. */
static bool try_commit(struct store *store, struct run_change *changes, size_t count,
                       const struct store_health *health, char *reason, size_t size)
{
    int rc = commit_batch(store, changes, count, health);
    if (rc == SQLITE_OK) {
        store->failed_ticks = 0;
        return true;
    }
    describe_failure(store->file.db, rc, reason, size);
    note_damage(store, rc);
    if (!sqlite3_get_autocommit(store->file.db))
        sqlite3_exec(store->file.db, "ROLLBACK", NULL, NULL, NULL);
    for (size_t i = 0; i < count; i++)
        if (changes[i].begun) changes[i].slot->row_id = 0;
    store->failed_ticks++;
    return false;
}

/* ---- upkeep, after a commit */

static void check_clock(struct store *store)
{
    char text[160];
    int64_t monotonic_ms = storage_monotonic_ms();
    int64_t offset_ms = now_of(store) - monotonic_ms, step_ms = offset_ms - store->clock_offset_ms;
    store->clock_offset_ms = offset_ms;
    if (step_ms < CLOCK_STEP_MS && step_ms > -CLOCK_STEP_MS) return;
    bool held = monotonic_ms < store->hold_until_ms;
    store->hold_until_ms = monotonic_ms + CLOCK_HOLD_MS;
    if (held) return; /* said already */
    snprintf(text, sizeof text,
             "the clock jumped by %+lld s (set, or the machine slept); nothing is deleted for "
             "an hour",
             (long long)(step_ms / 1000));
    put_event(store, 0, "warning", text, NULL);
}

static void check_wal(struct store *store)
{
    struct stat status;
    char *name = NULL, text[200];
    if (asprintf(&name, "%s-wal", store->path) < 0) return;
    int64_t bytes = stat(name, &status) == 0 ? (int64_t)status.st_size : 0;
    free(name);
    if (bytes >= WAL_LARGE_BYTES && !store->wal_reported) {
        store->wal_reported = true;
        snprintf(text, sizeof text,
                 "the write-ahead log has grown to %lld MiB: a reader keeps an old state open "
                 "(a long query or export)",
                 (long long)(bytes >> 20));
        put_event(store, 0, "warning", text, NULL);
    } else if (bytes < WAL_LARGE_BYTES / 2) {
        store->wal_reported = false;
    }
}

/* Give back free pages beyond what new rows will soon need, a little at a time. */
static int shrink_file(sqlite3 *db)
{
    int64_t pages;
    int rc = storage_sql_int(db, "PRAGMA freelist_count", NULL, 0, 0, &pages);
    if (rc != SQLITE_OK || pages <= FREE_PAGES_KEPT) return rc;
    return sqlite3_exec(db, "PRAGMA incremental_vacuum(500)", NULL, NULL, NULL);
}

static void keep_up(struct store *store)
{
    int rc = SQLITE_OK;
    int64_t now_ms = now_of(store);
    check_clock(store);
    if (now_ms / 60000 != store->last_minute) {
        store->last_minute = now_ms / 60000;
        rc = rollup_advance(store->file.db, now_ms);
        check_wal(store);
    }
    if (storage_monotonic_ms() < store->hold_until_ms) goto out;
    if (rc == SQLITE_OK && --store->ticks_to_horizon <= 0) {
        store->ticks_to_horizon = HORIZON_TICKS;
        store->delete_more = true;
        rc = retention_set_horizon(store->file.db, &store->limits, now_ms);
    }
    if (rc == SQLITE_OK && store->delete_more) {
        rc = retention_delete_chunk(store->file.db, &store->delete_more);
        if (rc == SQLITE_OK && !store->delete_more) rc = shrink_file(store->file.db);
    }
out:
    note_damage(store, rc); /* anything else shows up at the next commit */
}

/* ---- the thread */

static size_t collect_changes(struct store *store, struct run_change **changes, size_t *capacity)
{
    size_t count = 0;
    if (*capacity < store->run_count) {
        struct run_change *larger = realloc(*changes, store->run_capacity * sizeof *larger);
        if (!larger) return 0; /* tried again at the next tick */
        *changes = larger;
        *capacity = store->run_capacity;
    }
    for (size_t i = 0; i < store->run_count; i++) {
        struct run_slot *slot = store->runs[i];
        if (slot->end_stored || (slot->row_id != 0 && slot->end_ms == 0)) continue;
        (*changes)[count++] =
            (struct run_change){slot, store->first_run_id + (int64_t)i, slot->end_ms, false};
    }
    return count;
}

static bool wait_for_work(struct store *store, int64_t *deadline_ms)
{
    while (!store->stop && !store->flush) {
        if (store->health.ok && store->front.used > store->front.capacity / 4 * 3) break;
        struct timespec until = {.tv_sec = (time_t)(*deadline_ms / 1000),
                                 .tv_nsec = (long)(*deadline_ms % 1000) * 1000000};
        if (pthread_cond_timedwait(&store->wake, &store->mutex, &until) != 0) break;
    }
    int64_t now = storage_monotonic_ms();
    if (now >= *deadline_ms)
        *deadline_ms = *deadline_ms + TICK_MS > now ? *deadline_ms + TICK_MS : now + TICK_MS;
    store->flush = false;
    return !store->stop;
}

static void note_result(struct store *store, bool committed, const struct run_change *changes,
                        size_t count, const struct store_health *before, const char *reason)
{
    struct store_health *health = &store->health;
    if (committed) {
        for (size_t i = 0; i < count; i++)
            if (changes[i].end_ms > 0) changes[i].slot->end_stored = true;
        store->dropped_reported = before->dropped + store->refused;
        health->dropped += store->refused;
        if (!health->ok)
            *health = (struct store_health){
                .ok = true, .since_ms = now_of(store), .dropped = health->dropped};
        store_queue_clear(&store->back);
        store->committed_sequence = store->back_sequence;
    } else {
        if (health->ok) health->since_ms = now_of(store);
        health->ok = false;
        snprintf(health->reason, sizeof health->reason, "%s", reason);
        store->failures++;
    }
    pthread_cond_broadcast(&store->done);
}

/* One round with the mutex held at both ends: take the rows, commit them without it, note the
 * result. */
static bool write_round(struct store *store, struct run_change **changes, size_t *capacity,
                        bool last)
{
    char reason[sizeof store->health.reason] = "";
    bool committed = false;
    size_t count = 0;
    pthread_mutex_unlock(&store->mutex);
    bool open = ensure_open(store, reason, sizeof reason);
    pthread_mutex_lock(&store->mutex);
    struct store_health health = store->health;
    if (open) {
        if (store->back.rows == 0) {
            struct store_queue full = store->front;
            store->front = store->back;
            store->back = full;
        }
        /* the front is empty now, or holds what came after a batch that is tried again */
        store->back_sequence = store->put_sequence - store->front.rows;
        count = collect_changes(store, changes, capacity);
        pthread_mutex_unlock(&store->mutex);
        committed = try_commit(store, *changes, count, &health, reason, sizeof reason);
        pthread_mutex_lock(&store->mutex);
    }
    note_result(store, committed, *changes, count, &health, reason);
    if (committed && !last) { /* nobody waits for this */
        pthread_mutex_unlock(&store->mutex);
        keep_up(store);
        pthread_mutex_lock(&store->mutex);
    }
    return committed;
}

void *writer_run(void *argument)
{
    struct store *store = argument;
    struct run_change *changes = NULL;
    size_t capacity = 0;
    int64_t deadline_ms = storage_monotonic_ms() + TICK_MS;
    bool go_on = true;
    pthread_mutex_lock(&store->mutex);
    while (go_on) {
        bool stopping = !wait_for_work(store, &deadline_ms);
        bool committed = write_round(store, &changes, &capacity, stopping);
        go_on = !stopping || (committed && store->front.rows > 0); /* the last rows, then the end */
    }
    pthread_mutex_unlock(&store->mutex);
    free(changes);
    return NULL;
}
