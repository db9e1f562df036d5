/* bench_kernels_rows.c - how close row statistics come to the memory's own speed.
 *
 * A plain read loop and the statistics go over the same rows in alternate blocks of one process, so
 * that clock, neighbours and placement trouble both alike; the figure is the ratio of a pair of
 * neighbouring blocks. Owns the rows: a working set of several times the caches, in equal parts for
 * the threads, each of which has a handle of its own.
 */
#include "config.h"

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/bench_kernels.h"
#include "controller/ticks.h"

#define CACHE_MULTIPLE 8 /* working set over the largest cache */
#define LEAST_CACHE ((size_t)8 << 20)
#define LINE_BYTES 64
#define TILE_BYTES ((size_t)1 << 20) /* of generated logits, repeated */

const char *kernel_type_name(enum tt_dtype dtype)
{
    static const char *const names[KERNEL_TYPES] = {"fp32", "fp16", "bf16"};

    return names[dtype];
}

size_t kernel_width(enum tt_dtype dtype)
{
    return dtype == TT_F32 ? 4 : 2;
}

/* ---- rows */

/* The largest cache that the first processor sees, as the kernel tells it; a guest is told of its
 * share, where sysconf may count the whole socket. */
static size_t largest_cache(void)
{
    size_t largest = 0;

    for (int i = 0; i < 8; i++) {
        char path[64];
        size_t kilobytes;
        FILE *file;

        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        file = fopen(path, "re");
        if (!file) break;
        if (fscanf(file, "%zuK", &kilobytes) == 1 && kilobytes * 1024 > largest)
            largest = kilobytes * 1024;
        fclose(file);
    }
#ifdef _SC_LEVEL3_CACHE_SIZE
    if (largest == 0 && sysconf(_SC_LEVEL3_CACHE_SIZE) > 0)
        largest = (size_t)sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return largest > LEAST_CACHE ? largest : LEAST_CACHE;
}

int kernel_rows_new(struct kernel_bench *bench)
{
    bench->cache_bytes = largest_cache();
    if (bench->bytes == 0) bench->bytes = CACHE_MULTIPLE * bench->cache_bytes;
    bench->bytes -= bench->bytes % TILE_BYTES;
    bench->data = aligned_alloc(LINE_BYTES, bench->bytes);
    return bench->data ? 0 : -1;
}

void kernel_rows_free(struct kernel_bench *bench)
{
    free(bench->data);
    bench->data = NULL;
}

static uint16_t narrow(float x, enum tt_dtype dtype)
{
    uint32_t bits;
    int32_t exponent;

    memcpy(&bits, &x, sizeof bits);
    if (dtype == TT_BF16) return (uint16_t)(bits >> 16);
    exponent = (int32_t)(bits >> 23 & 0xff) - 112; /* biases: 127 and 15 */
    if (exponent <= 0) return 0;
    return (uint16_t)((bits >> 16 & 0x8000u) | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ffu));
}

/* Bell-shaped, spread 2: four uniforms summed. */
static float logit(uint64_t i)
{
    double sum = -2;

    for (uint32_t j = 0; j < 4; j++) sum += tt_uniform(1, i, j, TT_DRAFT);
    return (float)(sum * 3.46);
}

void kernel_rows_fill(struct kernel_bench *bench, enum tt_dtype dtype)
{
    for (size_t i = 0; i < TILE_BYTES / kernel_width(dtype); i++) {
        const float x = logit(i);
        const uint16_t half = narrow(x, dtype == TT_F32 ? TT_BF16 : dtype);

        if (dtype == TT_F32)
            memcpy(bench->data + 4 * i, &x, sizeof x);
        else
            memcpy(bench->data + 2 * i, &half, sizeof half);
    }
    for (size_t at = TILE_BYTES; at < bench->bytes; at += TILE_BYTES)
        memcpy(bench->data + at, bench->data, TILE_BYTES);
}

/* ---- the two loops */

/* A plain read: every byte once, in order, four sums so that no addition waits for another. */
static uint64_t read_all(const char *data, size_t bytes)
{
    typedef uint64_t pair __attribute__((vector_size(16), may_alias));
    const pair *from = (const pair *)(const void *)data;
    pair sum[4] = {{0}};

    for (size_t i = 0; i + 4 <= bytes / sizeof *from; i += 4) {
        sum[0] ^= from[i];
        sum[1] ^= from[i + 1];
        sum[2] ^= from[i + 2];
        sum[3] ^= from[i + 3];
    }
    sum[0] ^= sum[1] ^ sum[2] ^ sum[3];
    return sum[0][0] ^ sum[0][1];
}

enum { READ = 0, STATISTICS = 1 };

struct crew { /* what the threads of one cell share */
    int blocks;
    pthread_barrier_t together;
};

struct worker {
    struct crew *crew;
    pthread_t thread;
    tt *handle;
    struct tt_rows rows;
    struct tt_row_stats *stats; /* (rows) */
    volatile uint64_t sum;      /* keeps the reads alive */
    /* When each block began and ended; the first pair warms up. */
    int64_t begun_us[2][KERNEL_BLOCKS_MAX + 1], ended_us[2][KERNEL_BLOCKS_MAX + 1];
};

static size_t worker_bytes(const struct worker *worker)
{
    return worker->rows.rows * worker->rows.vocab * kernel_width(worker->rows.dtype);
}

static void run_half(struct worker *worker, int block, int what)
{
    pthread_barrier_wait(&worker->crew->together);
    worker->begun_us[what][block] = ticks_us();
    if (what == READ)
        worker->sum = read_all(worker->rows.data, worker_bytes(worker));
    else
        kernel_require(tt_row_statistics(worker->handle, &worker->rows, NULL, worker->stats),
                       worker->handle, "row statistics");
    worker->ended_us[what][block] = ticks_us();
}

static void *run_worker(void *argument)
{
    struct worker *worker = argument;

    for (int block = 0; block <= worker->crew->blocks; block++) {
        run_half(worker, block, block % 2);
        run_half(worker, block, !(block % 2));
    }
    return NULL;
}

/* From the first begin to the last end of a block. */
static double seconds(const struct worker *workers, int threads, int what, int block)
{
    int64_t begun = workers[0].begun_us[what][block], ended = workers[0].ended_us[what][block];

    for (int t = 1; t < threads; t++) {
        if (workers[t].begun_us[what][block] < begun) begun = workers[t].begun_us[what][block];
        if (workers[t].ended_us[what][block] > ended) ended = workers[t].ended_us[what][block];
    }
    return (double)(ended - begun) / 1e6;
}

static void start_worker(struct kernel_bench *bench, const struct kernel_ratio *cell,
                         struct crew *crew, struct worker *worker, int number)
{
    const size_t share = bench->bytes / (size_t)cell->threads / LINE_BYTES * LINE_BYTES;
    const size_t rows = share / (cell->vocab * kernel_width(cell->dtype));

    worker->crew = crew;
    worker->rows = (struct tt_rows){bench->data + (size_t)number * share, cell->dtype,
                                    rows > 0 ? rows : 1, cell->vocab, cell->vocab};
    worker->handle = kernel_open(bench, cell->isa, cell->vocab, worker->rows.rows);
    worker->stats = calloc(worker->rows.rows, sizeof *worker->stats);
    if (!worker->stats || pthread_create(&worker->thread, NULL, run_worker, worker) != 0) {
        fprintf(stderr, "trimtab bench kernels: no memory, or no thread\n");
        exit(1);
    }
}

void kernel_ratio_measure(struct kernel_bench *bench, struct kernel_ratio *cell)
{
    struct worker *workers = calloc((size_t)cell->threads, sizeof *workers);
    struct crew crew = {.blocks = bench->blocks};
    double ratio[KERNEL_BLOCKS_MAX], read[KERNEL_BLOCKS_MAX], statistics[KERNEL_BLOCKS_MAX];
    double gigabytes = 0;
    char what[96];

    if (!workers) kernel_require(TT_ENOMEM, NULL, "threads");
    pthread_barrier_init(&crew.together, NULL, (unsigned)cell->threads);
    for (int t = 0; t < cell->threads; t++) start_worker(bench, cell, &crew, &workers[t], t);
    for (int t = 0; t < cell->threads; t++) {
        pthread_join(workers[t].thread, NULL);
        gigabytes += (double)worker_bytes(&workers[t]) / 1e9;
    }
    for (int block = 0; block < bench->blocks; block++) {
        read[block] = gigabytes / seconds(workers, cell->threads, READ, block + 1);
        statistics[block] = gigabytes / seconds(workers, cell->threads, STATISTICS, block + 1);
        ratio[block] = statistics[block] / read[block];
    }
    cell->ratio = bench_median(ratio, bench->blocks);
    cell->read_gbs = bench_median(read, bench->blocks);
    cell->statistics_gbs = bench_median(statistics, bench->blocks);
    cell->target = kernel_target(cell->isa, cell->dtype, cell->vocab);
    for (int t = 0; t < cell->threads; t++) {
        free(workers[t].stats);
        tt_close(workers[t].handle);
    }
    pthread_barrier_destroy(&crew.together);
    free(workers);
    snprintf(what, sizeof what, "%s %s, vocabulary %zu, threads %d", cell->isa,
             kernel_type_name(cell->dtype), cell->vocab, cell->threads);
    kernel_progress(bench, what);
}

/* The project's own goals for a CPU. */
double kernel_target(const char *isa, enum tt_dtype dtype, size_t vocab)
{
    static const struct {
        const char *isa;
        enum tt_dtype dtype;
        double large, medium; /* vocabularies from 131072 and from 49152 */
    } targets[] = {{"avx512", TT_F32, 0.85, 0.80},
                   {"avx2", TT_F32, 0.45, 0.40},
                   {"avx512", TT_BF16, 0.35, 0.33}};

    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++)
        if (strcmp(isa, targets[i].isa) == 0 && dtype == targets[i].dtype && vocab >= 49152)
            return vocab >= 131072 ? targets[i].large : targets[i].medium;
    return NAN;
}
