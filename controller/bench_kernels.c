/* bench_kernels.c - `trimtab bench kernels`: libtrimtab against the speed of this machine's memory,
 * and what its calls cost.
 *
 * The first table holds the ratio of row statistics to a plain read loop for each instruction set,
 * element type, vocabulary and thread count, beside the project's targets; the second the
 * nanoseconds of decisions and of work on a row. Medians with their 95 % intervals.
 */
#include "config.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/bench_kernels.h"
#include "controller/cost_cache.h"

#define SCHEMA "trimtab.bench.kernels/1"
#define ISAS_MAX 3
#define ALL_VOCAB "49152,131072,151936"
#define QUICK_VOCAB "131072"
#define ALL_BLOCKS "15"
#define QUICK_BLOCKS "5"

/* ---- what the parts share */

void kernel_progress(struct kernel_bench *bench, const char *what)
{
    bench->done++;
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[Kbench kernels: %d of %d (%s)", bench->done, bench->all, what);
    if (bench->done == bench->all) fputs("\r\033[K", stderr);
}

void kernel_require(int status, const tt *handle, const char *what)
{
    if (status >= 0) return;
    fprintf(stderr, "trimtab bench kernels: %s: %s\n", what,
            handle ? tt_message(handle) : tt_strerror(status));
    exit(1);
}

static bool is_device(const char *isa)
{
    return strncmp(isa, "cuda", 4) == 0;
}

tt *kernel_open(const struct kernel_bench *bench, const char *isa, size_t vocab, size_t max_rows)
{
    const struct tt_options options = {.backend = bench->backend,
                                       .isa = isa && is_device(isa) ? NULL : isa,
                                       .vocab = vocab,
                                       .max_rows = max_rows};
    tt *handle;

    if (tt_open(&handle, &options) == TT_OK) return handle;
    fprintf(stderr, "trimtab bench kernels: %s\n", tt_message(NULL));
    exit(1);
}

/* The instruction sets to measure, the best last; of a device, its own name. */
static size_t find_isas(const struct kernel_bench *bench, const char **isas)
{
    static const char *const known[ISAS_MAX] = {"baseline", "avx2", "avx512"};
    static char device[32];
    size_t count = 0;

    if (bench->isa || is_device(bench->backend)) {
        tt *handle = kernel_open(bench, bench->isa, 1, 1); /* or says why not */

        snprintf(device, sizeof device, "%s", tt_isa(handle));
        tt_close(handle);
        isas[0] = device;
        return 1;
    }
    for (size_t i = 0; i < ISAS_MAX; i++) {
        const struct tt_options options = {
            .backend = bench->backend, .isa = known[i], .vocab = 1, .max_rows = 1};
        tt *handle;

        if (tt_open(&handle, &options) != TT_OK) continue;
        tt_close(handle);
        isas[count++] = known[i];
    }
    if (count == 0) kernel_open(bench, known[0], 1, 1); /* says why */
    return count;
}

/* ---- JSON */

static json_t *median_to_json(struct bench_median value)
{
    return json_pack("{s:f s:f s:f}", "median", value.median, "low", value.low, "high", value.high);
}

static json_t *cell_to_json(const struct kernel_ratio *cell)
{
    json_t *row = json_pack("{s:s s:s s:I s:i s:o s:o s:o}", "isa", cell->isa, "type",
                            kernel_type_name(cell->dtype), "vocab", (json_int_t)cell->vocab,
                            "threads", cell->threads, "ratio", median_to_json(cell->ratio),
                            "read_gbs", median_to_json(cell->read_gbs), "statistics_gbs",
                            median_to_json(cell->statistics_gbs));
    const int set = !isnan(cell->target);

    json_object_set_new(row, "target", set ? json_real(cell->target) : json_null());
    json_object_set_new(row, "met",
                        set ? json_boolean(cell->ratio.median >= cell->target) : json_null());
    return row;
}

static json_t *call_to_json(const struct kernel_cost *cost)
{
    json_t *row = json_pack("{s:s s:s s:s s:o}", "operation", cost->operation, "kind", cost->kind,
                            "per", cost->per, "ns", median_to_json(cost->ns));

    json_object_set_new(row, "isa", cost->isa ? json_string(cost->isa) : json_null());
    json_object_set_new(row, "vocab",
                        cost->vocab ? json_integer((json_int_t)cost->vocab) : json_null());
    json_object_set_new(row, "requests",
                        cost->requests ? json_integer(cost->requests) : json_null());
    json_object_set_new(row, "positions",
                        cost->positions ? json_integer(cost->positions) : json_null());
    return row;
}

struct result {
    char hardware[128];
    const char *isas[ISAS_MAX];
    size_t isa_count;
    struct kernel_ratio *ratio;
    struct kernel_cost *cost;
    size_t ratios, costs;
};

static void print_json(const struct kernel_bench *bench, const struct result *result)
{
    json_t *isas = json_array(), *rows = json_array(), *costs = json_array(), *report;

    for (size_t i = 0; i < result->isa_count; i++)
        json_array_append_new(isas, json_string(result->isas[i]));
    for (size_t i = 0; i < result->ratios; i++)
        json_array_append_new(rows, cell_to_json(&result->ratio[i]));
    for (size_t i = 0; i < result->costs; i++)
        json_array_append_new(costs, call_to_json(&result->cost[i]));
    report =
        json_pack("{s:s s:s s:s s:s s:o s:I s:I s:i s:o s:o}", "schema", SCHEMA, "version",
                  tt_version(), "hardware", result->hardware, "backend", bench->backend, "isas",
                  isas, "cache_bytes", (json_int_t)bench->cache_bytes, "working_set_bytes",
                  (json_int_t)bench->bytes, "blocks", bench->blocks, "rows", rows, "costs", costs);
    json_dumpf(report, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(report);
}

/* ---- tables */

static void print_ratios(const struct result *result)
{
    printf("%-9s %-5s %8s %8s %22s %10s %10s %8s\n", "isa", "type", "vocab", "threads",
           "ratio (95 %)", "read GB/s", "stats GB/s", "target");
    for (size_t i = 0; i < result->ratios; i++) {
        const struct kernel_ratio *cell = &result->ratio[i];
        char ratio[40];

        snprintf(ratio, sizeof ratio, "%.3f (%.3f..%.3f)", cell->ratio.median, cell->ratio.low,
                 cell->ratio.high);
        printf("%-9s %-5s %8zu %8d %22s %10.1f %10.1f ", cell->isa, kernel_type_name(cell->dtype),
               cell->vocab, cell->threads, ratio, cell->read_gbs.median,
               cell->statistics_gbs.median);
        if (isnan(cell->target))
            printf("%8s\n", "--");
        else
            printf("%8.2f %s\n", cell->target,
                   cell->ratio.median >= cell->target ? "met" : "not met");
    }
}

static void print_costs(const struct result *result)
{
    printf("\n%-14s %-10s %6s %6s %8s  %s\n", "call", "kind", "R", "K", "vocab",
           "nanoseconds (95 %)");
    for (size_t i = 0; i < result->costs; i++) {
        const struct kernel_cost *cost = &result->cost[i];

        printf("%-14s %-10s ", cost->operation, cost->kind[0] ? cost->kind : "--");
        if (cost->requests)
            printf("%6d %6d %8s", cost->requests, cost->positions, "--");
        else
            printf("%6s %6s %8zu", "--", "--", cost->vocab);
        printf("  %.0f (%.0f..%.0f) a %s\n", cost->ns.median, cost->ns.low, cost->ns.high,
               cost->per);
    }
}

static void print_table(const struct kernel_bench *bench, const struct result *result)
{
    printf("%s; libtrimtab %s, backend %s; rows of %zu MiB, cache %zu MiB; %d blocks\n\n",
           result->hardware, tt_version(), bench->backend, bench->bytes >> 20,
           bench->cache_bytes >> 20, bench->blocks);
    print_ratios(result);
    print_costs(result);
}

/* ---- the verb */

static int run(struct kernel_bench *bench, bool as_json)
{
    struct result result = {.isa_count = 0};

    cost_cache_hardware(result.hardware, sizeof result.hardware);
    result.isa_count = find_isas(bench, result.isas);
    const size_t ratios = result.isa_count * KERNEL_TYPES * bench->vocabs * bench->thread_counts;
    result.ratio = calloc(ratios, sizeof *result.ratio);
    result.cost = calloc(KERNEL_COSTS_MAX, sizeof *result.cost);
    if (!result.ratio || !result.cost || kernel_rows_new(bench) != 0) {
        fprintf(stderr, "trimtab bench kernels: out of memory\n");
        return 1;
    }
    bench->all = (int)ratios + kernel_count_of_decisions() + kernel_count_of_rows(bench);
    for (int dtype = TT_F32; dtype < KERNEL_TYPES; dtype++) {
        kernel_rows_fill(bench, (enum tt_dtype)dtype);
        for (size_t i = 0; i < result.isa_count * bench->vocabs * bench->thread_counts; i++) {
            struct kernel_ratio *cell = &result.ratio[result.ratios++];

            cell->dtype = (enum tt_dtype)dtype;
            cell->threads = (int)bench->threads[i % bench->thread_counts];
            cell->vocab = (size_t)bench->vocab[i / bench->thread_counts % bench->vocabs];
            cell->isa = result.isas[i / bench->thread_counts / bench->vocabs];
            kernel_ratio_measure(bench, cell);
        }
    }
    kernel_costs_of_decisions(bench, result.cost, &result.costs);
    kernel_costs_of_rows(bench, result.isas[result.isa_count - 1], result.cost, &result.costs);
    if (as_json)
        print_json(bench, &result);
    else
        print_table(bench, &result);
    kernel_rows_free(bench);
    free(result.ratio);
    free(result.cost);
    return 0;
}

int bench_kernels(int argc, char **argv)
{
    struct bench_option options[] = {
        {"backend", "NAME", "cpu, or cuda with its rows in host memory", "cpu"},
        {"isa", "NAME", "one instruction set: baseline, avx2 or avx512", NULL},
        {"vocab", "V,…", "vocabularies [" ALL_VOCAB "; quick: " QUICK_VOCAB "]", NULL},
        {"threads", "N,…", "threads, a handle each", "1,2"},
        {"size", "MiB", "rows to go over; 0 = eight times the largest cache", "0"},
        {"blocks", "N", "samples of every figure [" ALL_BLOCKS "; quick: " QUICK_BLOCKS "]", NULL},
        {"quick", NULL, "fewer vocabularies and samples", NULL},
        {"json", NULL, "one JSON object in place of the tables", NULL},
    };
    const size_t count = sizeof options / sizeof options[0];
    struct kernel_bench bench = {0};
    int status = bench_options(argc, argv, "kernels [OPTION]…", options, count, NULL, 0);

    if (status != 0) return status > 0 ? 0 : 2;
    const bool quick = bench_text(options, "quick") != NULL;
    for (size_t i = 0; i < count; i++) {
        if (options[i].value) continue;
        if (strcmp(options[i].name, "vocab") == 0)
            options[i].value = quick ? QUICK_VOCAB : ALL_VOCAB;
        if (strcmp(options[i].name, "blocks") == 0)
            options[i].value = quick ? QUICK_BLOCKS : ALL_BLOCKS;
    }
    bench.backend = bench_text(options, "backend");
    bench.isa = bench_text(options, "isa");
    bench.blocks = (int)bench_number(options, "blocks", 3, KERNEL_BLOCKS_MAX);
    bench.bytes = (size_t)bench_number(options, "size", 0, 1 << 20) << 20;
    bench.vocabs = bench_list(options, "vocab", 1024, 1 << 20, bench.vocab, 8);
    bench.thread_counts = bench_list(options, "threads", 1, KERNEL_THREADS_MAX, bench.threads, 8);
    return run(&bench, bench_text(options, "json") != NULL);
}
