/* store.c - the calls of store.h: copies into the queue, the list of runs, open and close. The work
 * is writer.c's. */
#include "config.h"

#include "storage/store.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/sql.h"
#include "storage/writer.h"

#define QUEUE_BYTES (2u << 20) /* each of two: 20 minutes of one node, over a minute of sixteen */

static int64_t system_now(void *state)
{
    (void)state;
    return storage_clock_ms();
}

/* Waits are on the monotonic clock: a clock that is set must not stall the commits. */
static void init_locks(struct store *store)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&store->mutex, NULL);
    pthread_cond_init(&store->wake, &monotonic);
    pthread_cond_init(&store->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void free_run(struct run_slot *slot)
{
    if (!slot) return;
    const char *const strings[] = {
        slot->run.node,     slot->run.kind,         slot->run.engine, slot->run.version,
        slot->run.model,    slot->run.model_digest, slot->run.draft,  slot->run.draft_digest,
        slot->run.hardware, slot->run.settings_json};
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        union {
            const char *constant;
            char *owned;
        } string = {strings[i]};
        free(string.owned);
    }
    free(slot);
}

static void free_store(struct store *store)
{
    writer_disconnect(store);
    if (store->lock >= 0) close(store->lock);
    store_queue_free(&store->front);
    store_queue_free(&store->back);
    for (size_t i = 0; i < store->run_count; i++) free_run(store->runs[i]);
    free(store->runs);
    free(store->damage);
    free(store->notice);
    free(store->path);
    pthread_cond_destroy(&store->done);
    pthread_cond_destroy(&store->wake);
    pthread_mutex_destroy(&store->mutex);
    free(store);
}

static int start(struct store *store, const struct store_options *options, char **cause)
{
    store->path = store_file_place(options->path, cause);
    if (!store->path) return -1;
    store->lock = store_file_lock(store->path, cause);
    if (store->lock < 0) return -1;
    if (!store_queue_init(&store->front, QUEUE_BYTES) ||
        !store_queue_init(&store->back, QUEUE_BYTES))
        return storage_fail(cause, "out of memory");
    if (writer_connect(store, cause) != 0) return -1;
    store->notice = store->file.notice ? strdup(store->file.notice) : NULL;
    if (storage_sql_int(store->file.db, "SELECT 1 + max(run_id) FROM run", NULL, 0, 1,
                        &store->first_run_id))
        return storage_fail(cause, "cannot read the store %s: %s", store->path,
                            sqlite3_errmsg(store->file.db));
    int64_t now_ms = store->now_ms(store->now_state);
    store->clock_offset_ms = now_ms - storage_monotonic_ms();
    store->health = (struct store_health){.ok = true, .since_ms = now_ms};
    if (pthread_create(&store->thread, NULL, writer_run, store) != 0)
        return storage_fail(cause, "cannot start the store's thread");
    return 0;
}

struct store *store_open(const struct store_options *options, char **cause)
{
    if (cause) *cause = NULL;
    struct store *store = calloc(1, sizeof *store);
    if (!store) {
        storage_fail(cause, "out of memory");
        return NULL;
    }
    store->lock = -1;
    store->now_ms = options->now_ms ? options->now_ms : system_now;
    store->now_state = options->now_state;
    retention_limits_default(&store->limits);
    if (options->keep_second_ms > 0) store->limits.keep_second_ms = options->keep_second_ms;
    if (options->keep_minute_ms > 0) store->limits.keep_minute_ms = options->keep_minute_ms;
    init_locks(store);
    if (start(store, options, cause) == 0) return store;
    free_store(store);
    return NULL;
}

void store_close(struct store *store)
{
    if (!store) return;
    pthread_mutex_lock(&store->mutex);
    int64_t now_ms = store->now_ms(store->now_state);
    for (size_t i = 0; i < store->run_count; i++)
        if (store->runs[i]->end_ms == 0) store->runs[i]->end_ms = now_ms;
    store->stop = true;
    pthread_cond_signal(&store->wake);
    pthread_mutex_unlock(&store->mutex);
    pthread_join(store->thread, NULL);
    free_store(store);
}

const char *store_path(const struct store *store)
{
    return store ? store->path : "";
}

const char *store_notice(const struct store *store)
{
    return store && store->notice ? store->notice : "";
}

void store_get_health(struct store *store, struct store_health *out)
{
    if (!store) {
        *out = (struct store_health){.reason = "there is no store"};
        return;
    }
    pthread_mutex_lock(&store->mutex);
    *out = store->health;
    pthread_mutex_unlock(&store->mutex);
}

/* ---- runs */

static int copy_string(const char **to, const char *from)
{
    *to = from ? strdup(from) : NULL;
    return from && !*to ? -1 : 0;
}

static struct run_slot *copy_run(const struct store_run *run, int64_t start_ms)
{
    struct run_slot *slot = calloc(1, sizeof *slot);
    if (!slot) return NULL;
    struct store_run *to = &slot->run;
    slot->start_ms = start_ms;
    to->max_draft = run->max_draft;
    if (copy_string(&to->node, run->node) ||
        copy_string(&to->kind, run->kind ? run->kind : "unknown") ||
        copy_string(&to->engine, run->engine) || copy_string(&to->version, run->version) ||
        copy_string(&to->model, run->model) || copy_string(&to->model_digest, run->model_digest) ||
        copy_string(&to->draft, run->draft) || copy_string(&to->draft_digest, run->draft_digest) ||
        copy_string(&to->hardware, run->hardware) ||
        copy_string(&to->settings_json, run->settings_json)) {
        free_run(slot);
        return NULL;
    }
    return slot;
}

int64_t store_begin_run(struct store *store, const struct store_run *run)
{
    if (!store || !run->node) return -1;
    int64_t run_id = -1;
    struct run_slot *slot = copy_run(run, store->now_ms(store->now_state));
    if (!slot) return -1;
    pthread_mutex_lock(&store->mutex);
    if (store->run_count == store->run_capacity) {
        size_t capacity = store->run_capacity ? 2 * store->run_capacity : 16;
        struct run_slot **larger = realloc(store->runs, capacity * sizeof(struct run_slot *));
        if (!larger) goto out;
        store->runs = larger;
        store->run_capacity = capacity;
    }
    run_id = store->first_run_id + (int64_t)store->run_count;
    store->runs[store->run_count++] = slot;
    slot = NULL;
    store->put_sequence++;
out:
    pthread_mutex_unlock(&store->mutex);
    free_run(slot);
    return run_id;
}

void store_end_run(struct store *store, int64_t run_id)
{
    if (!store) return;
    int64_t now_ms = store->now_ms(store->now_state);
    pthread_mutex_lock(&store->mutex);
    int64_t index = run_id - store->first_run_id;
    if (index >= 0 && (size_t)index < store->run_count && store->runs[index]->end_ms == 0) {
        store->runs[index]->end_ms = now_ms;
        store->put_sequence++;
    }
    pthread_mutex_unlock(&store->mutex);
}

/* ---- rows */

static void put(struct store *store, enum queue_kind kind, const void *row)
{
    if (!store) return;
    pthread_mutex_lock(&store->mutex);
    if (store_queue_push(&store->front, kind, row)) {
        store->put_sequence++;
        if (store->front.used > store->front.capacity / 4 * 3) pthread_cond_signal(&store->wake);
    } else {
        store->health.dropped++;
    }
    pthread_mutex_unlock(&store->mutex);
}

void store_put_sample(struct store *store, const struct store_sample *sample)
{
    put(store, QUEUE_SAMPLE, sample);
}
void store_put_refit(struct store *store, const struct store_refit *refit)
{
    put(store, QUEUE_REFIT, refit);
}
void store_put_calibration(struct store *store, const struct store_calibration *calibration)
{
    put(store, QUEUE_CALIBRATION, calibration);
}
void store_put_cost(struct store *store, const struct store_cost *cost)
{
    put(store, QUEUE_COST, cost);
}
void store_put_decision(struct store *store, const struct store_decision *decision)
{
    put(store, QUEUE_DECISION, decision);
}
void store_put_event(struct store *store, const struct store_event *event)
{
    put(store, QUEUE_EVENT, event);
}

bool store_flush(struct store *store)
{
    if (!store) return false;
    pthread_mutex_lock(&store->mutex);
    uint64_t wanted = store->put_sequence, failures = store->failures;
    while (store->committed_sequence < wanted && store->failures == failures) {
        store->flush = true;
        pthread_cond_signal(&store->wake);
        pthread_cond_wait(&store->done, &store->mutex);
    }
    bool committed = store->committed_sequence >= wanted;
    pthread_mutex_unlock(&store->mutex);
    return committed;
}
