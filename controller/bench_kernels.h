/* bench_kernels.h - what the parts of `trimtab bench kernels` share: rows to measure, one measured
 * row of either table, and how to time a call. */
#ifndef CONTROLLER_BENCH_KERNELS_H
#define CONTROLLER_BENCH_KERNELS_H

#include <stddef.h>

#include "controller/bench.h"
#include "kernels/trimtab.h"

#define KERNEL_BLOCKS_MAX 64
#define KERNEL_THREADS_MAX 64
#define KERNEL_TYPES 3

struct kernel_bench {
    const char *backend; /* of tt_open */
    const char *isa;     /* one, or NULL for each of this machine */
    int blocks;          /* samples of every figure, up to KERNEL_BLOCKS_MAX */
    long vocab[8], threads[8];
    size_t vocabs, thread_counts;
    size_t cache_bytes; /* the largest cache of a core */
    char *data;         /* (bytes) rows of the type at hand, several times the cache */
    size_t bytes;
    int done, all; /* figures */
};

/* Words of an element type, and its width. */
const char *kernel_type_name(enum tt_dtype dtype);
size_t kernel_width(enum tt_dtype dtype);

/* Allocate the rows, bench->bytes or, when that is 0, larger than the caches. 0 or -1.
 * kernel_rows_fill writes bell-shaped logits of the type into all of them. */
int kernel_rows_new(struct kernel_bench *bench);
void kernel_rows_fill(struct kernel_bench *bench, enum tt_dtype dtype);
void kernel_rows_free(struct kernel_bench *bench);

/* One more figure is done: says so on a terminal. */
void kernel_progress(struct kernel_bench *bench, const char *what);

/* Open a handle; complains and ends the program with status 1 when it cannot be had. */
tt *kernel_open(const struct kernel_bench *bench, const char *isa, size_t vocab, size_t max_rows);
/* A call that must not fail; complains with the handle's message and ends the program otherwise. */
void kernel_require(int status, const tt *handle, const char *what);

/* Row statistics against a plain read of the same memory, in alternate blocks. */
struct kernel_ratio {
    const char *isa;
    enum tt_dtype dtype;
    size_t vocab;
    int threads;
    struct bench_median ratio, read_gbs, statistics_gbs; /* all threads together, 10^9 bytes/s */
    double target;                                       /* NaN: none is set */
};
void kernel_ratio_measure(struct kernel_bench *bench, struct kernel_ratio *cell);
/* The ratio to reach, or NaN. */
double kernel_target(const char *isa, enum tt_dtype dtype, size_t vocab);

/* Nanoseconds of one call. */
struct kernel_cost {
    const char *operation, *kind; /* kind: an estimator's, a type's or a rule's; "" = none */
    const char *per;              /* what one figure is of: "decision" or "row" */
    const char *isa;              /* of row costs, else NULL */
    size_t vocab;                 /* of row costs, else 0 */
    int requests, positions;      /* of decisions, else 0 */
    struct bench_median ns;
};
#define KERNEL_COSTS_MAX 256
/* Fill costs (KERNEL_COSTS_MAX) from *count on. */
void kernel_costs_of_decisions(struct kernel_bench *bench, struct kernel_cost *costs,
                               size_t *count);
void kernel_costs_of_rows(struct kernel_bench *bench, const char *isa, struct kernel_cost *costs,
                          size_t *count);
/* How many of each there will be. */
int kernel_count_of_decisions(void);
int kernel_count_of_rows(const struct kernel_bench *bench);

#endif
