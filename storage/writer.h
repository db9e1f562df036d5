/* writer.h - inside of the store: what its two halves share, the calls of store.h (store.c) and the
 * thread that owns the write connection (writer.c).
 */
#ifndef STORAGE_WRITER_H
#define STORAGE_WRITER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "storage/file.h"
#include "storage/queue.h"
#include "storage/retention.h"
#include "storage/rows.h"
#include "storage/store.h"

struct run_slot {
    struct store_run run; /* owned strings */
    int64_t start_ms;
    int64_t end_ms;  /* 0 = open */
    int64_t row_id;  /* in the file; 0 = not there yet. The writer's alone */
    bool end_stored; /* the writer's alone */
};

struct store {
    char *path;
    int lock;
    int64_t (*now_ms)(void *state);
    void *now_state;
    char *notice; /* of the first open */
    pthread_t thread;

    pthread_mutex_t mutex; /* guards everything down to `health` */
    pthread_cond_t wake;   /* the writer has something to do */
    pthread_cond_t done;   /* a commit was tried */
    struct store_queue front;
    struct run_slot **runs; /* index = run id - first_run_id */
    size_t run_count, run_capacity;
    uint64_t put_sequence, committed_sequence, failures;
    bool stop, flush;
    struct store_health health;

    /* the writer's alone */
    struct store_file file;
    struct rows *rows;
    struct store_queue back;
    uint64_t back_sequence;
    int64_t first_run_id;
    uint64_t refused; /* rows that the tables did not take since the last report */
    char refusal[160];
    uint64_t dropped_reported;
    int failed_ticks;
    int64_t last_minute;
    int ticks_to_horizon;
    bool delete_more;
    int64_t clock_offset_ms; /* wall less monotonic clock at the last tick */
    int64_t hold_until_ms;   /* monotonic; nothing is deleted before */
    char *damage;            /* why the file has to be moved aside, or NULL */
    bool wal_reported;
    struct retention_limits limits;
};

/* Open the file, and say in it what was found. Returns 0, or -1 with *cause. Before the thread
 * runs. */
int writer_connect(struct store *store, char **cause);
void writer_disconnect(struct store *store);
/* The thread: commits until store->stop is set and what is queued is written (or cannot be). */
void *writer_run(void *store);

#endif
