/* bench.h - what the load benchmark measured, kept in a file with the store's schema: one row a
 * finished block, so that a broken run goes on where it was, and one row a policy of a cell, which
 * the view bench_load shows.
 *
 * Written in the caller's thread, each row in a transaction of its own. A file has one writer:
 * opening takes the store's lock, so a daemon's store is refused while that daemon runs.
 */
#ifndef STORAGE_BENCH_H
#define STORAGE_BENCH_H

#include <stdbool.h>
#include <stdint.h>

struct bench_store;

/* Open or create the file (its folder too). `configuration` is whatever a figure depends on (JSON):
 * blocks of another one are never seen. NULL with *cause. */
struct bench_store *bench_store_open(const char *path, const char *configuration, char **cause);
void bench_store_close(struct bench_store *store); /* NULL-safe */

struct bench_cell { /* one load: all its policies meet the same requests */
    const char *form, *mix;
    double temperature;
    int concurrency;
};

struct bench_block { /* one policy's run over one block of requests */
    int block;       /* from 1 */
    int64_t time_ms, tokens, steps, drafted, admitted, accepted;
    double seconds, draft_ms, verify_ms, own_ms;
};

struct bench_result {                          /* a policy of a cell; NaN = unknown */
    const char *policy, *best_fixed, *verdict; /* verdict NULL = none is given */
    int64_t time_ms;
    int blocks;
    double tps, tps_ci95; /* mean over blocks, half-width of its 95 % interval */
    double ratio_to_best_fixed, ratio_to_best_fixed_low, ratio_to_best_fixed_high;
    double ratio_to_off, ratio_to_off_low, ratio_to_off_high;
};

/* 0, or -1 with *cause. */
int bench_store_put_block(struct bench_store *store, const struct bench_cell *cell,
                          const char *policy, const struct bench_block *block, char **cause);
int bench_store_put_result(struct bench_store *store, const struct bench_cell *cell,
                           const struct bench_result *result, char **cause);
/* Every block of the cell, by policy and block. */
int bench_store_each_block(struct bench_store *store, const struct bench_cell *cell,
                           void (*take)(void *state, const char *policy,
                                        const struct bench_block *block),
                           void *state, char **cause);
/* A result's ratios; NaN when there is none. */
int bench_store_get_ratios(struct bench_store *store, const struct bench_cell *cell,
                           const char *policy, double *to_best_fixed, double *to_off, char **cause);
/* Forget the cell's blocks and results. */
int bench_store_forget(struct bench_store *store, const struct bench_cell *cell, char **cause);

#endif
