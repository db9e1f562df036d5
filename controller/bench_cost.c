/* bench_cost.c - trimtab bench cost: what a step costs on this machine, as the daemon knows it:
 * from its cache, or measured now and cached. Printed as a staircase, or as JSON that bench replay
 * and trimtabd --cost read.
 *
 * Its options are the daemon's, and its defaults too, the system's configuration file included: so
 * it looks at the very table that the daemon would use.
 */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "controller/bench.h"
#include "controller/cause.h"
#include "controller/configuration.h"
#include "controller/cost_cache.h"
#include "controller/given.h"
#include "controller/json_number.h"

#define BAR 40 /* columns of the longest bar */
#define MOST_ARGUMENTS 32

struct bench {
    struct configuration configuration;
    struct pair pair;
    struct cost_model *cost;
    struct cost_cache cache;
};

static int complain(char *cause, int status)
{
    fprintf(stderr, "trimtab bench cost: %s\n", cause ? cause : "out of memory");
    free(cause);
    return status;
}

static void show_profile(void *state, int done, int all)
{
    (void)state;
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[Kbench cost: measuring %d of %d", done, all);
    if (done == all) fputs("\r\033[K", stderr);
}

/* ---- the staircase */

static double member(const json_t *cell, const char *key)
{
    return json_number_value(json_object_get(cell, key));
}

static double highest(const json_t *cells)
{
    const json_t *cell;
    double most = 0;
    size_t i;

    json_array_foreach(cells, i, cell) most = fmax(most, member(cell, "ms"));
    return most;
}

/* Cells of one curve in order of size: size, ms, spread, n, dropped, and a bar as long as ms. */
static void plot(const char *title, const json_t *cells, const char *size, int band)
{
    double most = highest(cells);
    const json_t *cell;
    size_t i;
    int shown = 0;

    json_array_foreach(cells, i, cell)
    {
        int bar = (int)lround(member(cell, "ms") / most * BAR);

        if (band >= 0 && (int)member(cell, "context_band") != band) continue;
        if (shown++ == 0)
            printf("%s\n%8s %10s %9s %7s %7s\n", title, size, "ms", "spread", "n", "dropped");
        printf("%8.0f %10.3f %9.3f %7.0f %7.0f  %.*s\n", member(cell, size), member(cell, "ms"),
               member(cell, "spread_ms"), member(cell, "n"), member(cell, "dropped"), bar,
               "########################################");
    }
    if (shown > 0) putchar('\n');
}

static void print_staircase(const json_t *cells)
{
    static const char *const titles[COST_CONTEXT_BANDS] = {
        "V: a target forward, fewer than 512 cells in use",
        "V: a target forward, 512 to 2047 cells in use",
        "V: a target forward, 2048 to 8191 cells in use",
        "V: a target forward, 8192 cells and more in use"};
    const json_t *own = json_object_get(cells, "own");

    for (int band = 0; band < COST_CONTEXT_BANDS; band++)
        plot(titles[band], json_object_get(cells, "verify"), "tokens", band);
    plot("D: a draft forward", json_object_get(cells, "draft"), "requests", -1);
    plot("o: trimtab's own work", own, "requests", -1);
    if (json_array_size(own) == 0) puts("o: not known yet; the daemon learns it while it serves\n");
}

static void print_text(const struct bench *bench, const json_t *cells)
{
    const struct configuration *from = &bench->configuration;

    printf("target %s, draft %s, %d requests, K = %d\n\n", lm_name(bench->pair.target),
           bench->pair.draft ? lm_name(bench->pair.draft) : "none", from->parallel,
           from->max_draft);
    print_staircase(cells);
    printf("%s\n", bench->cache.found ? "from the cache (--fresh measures anew)" : "measured now");
    if (cost_unsteady(bench->cost))
        printf(
            "UNSTEADY: the machine was busy with something else: %s. Not kept; try again when it "
            "is idle.\n",
            cost_unsteady(bench->cost));
    if (cost_flat(bench->cost))
        puts("FLAT: the target's cost never rises, so that trimming cannot pay");
    printf("cache    %s\nkey      %s\n", bench->cache.path[0] ? bench->cache.path : "none",
           bench->cache.key);
}

static void print_json(const struct bench *bench, json_t *cells)
{
    double scatter = cost_scatter(bench->cost);
    json_t *report =
        json_pack("{s:s s:b s:s* s:s s:b s:b s:o s:O}", "schema", "trimtab.bench.cost/1", "cached",
                  bench->cache.found, "cache", bench->cache.path[0] ? bench->cache.path : NULL,
                  "key", bench->cache.key, "unsteady", cost_unsteady(bench->cost) != NULL, "flat",
                  cost_flat(bench->cost), "scatter_ratio", json_number(scatter), "cells", cells);

    json_dumpf(report, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(report);
}

/* ---- run */

/* The options that were given, as arguments of the daemon's own configuration. */
static int configure(struct bench *bench, const struct bench_option *options, size_t count,
                     char **cause)
{
    char *arguments[MOST_ARGUMENTS] = {strdup("bench cost")}, *text;
    int used = 1, status = -1;

    for (size_t i = 0; i < count && used < MOST_ARGUMENTS; i++) {
        const struct bench_option *option = &options[i];

        if (!option->value || strcmp(option->name, "fresh") == 0 ||
            strcmp(option->name, "json") == 0)
            continue;
        if (asprintf(&text, "--%s=%s", option->name, option->value) < 0) goto out;
        arguments[used++] = text;
    }
    status = configuration_read(&bench->configuration, used, arguments, cause);
out:
    for (int i = 0; i < used; i++) free(arguments[i]);
    return status;
}

static int open_costs(struct bench *bench, bool fresh, char **cause)
{
    const struct configuration *from = &bench->configuration;
    struct policy policy;
    struct pair_options pair = {.target = from->model,
                                .device = from->device,
                                .parallel = from->parallel,
                                .max_draft = from->max_draft,
                                .context = from->ctx,
                                .threads = from->threads,
                                .exact = from->exact};
    struct cost_cache_options options = {.pair = &bench->pair,
                                         .device = from->device,
                                         .threads = from->threads,
                                         .parallel = from->parallel,
                                         .max_draft = from->max_draft,
                                         .exact = from->exact,
                                         .fresh = fresh,
                                         .dir = from->cache,
                                         .progress = show_profile};
    char *warning = NULL;
    int status;

    configuration_policy(from, &policy, &pair.draft);
    if (given_check_folder(from->cache, cause) != 0) return -1;
    if (pair_open(&bench->pair, &pair, cause) != 0) return -1;
    if (mkdir(from->cache, 0700) != 0 && errno != EEXIST)
        fprintf(stderr, "trimtab bench cost: cannot make the folder %s: %s\n", from->cache,
                strerror(errno));
    status = cost_cache_open(&options, &bench->cost, &bench->cache, &warning, cause);
    if (warning) fprintf(stderr, "trimtab bench cost: not kept: %s\n", warning);
    free(warning);
    return status;
}

int bench_cost(int argc, char **argv)
{
    struct bench_option options[] = {
        {"model", "FILE", "target (GGUF)", NULL},
        {"draft", "FILE|none", "draft model (GGUF)", NULL},
        {"parallel", "N", "requests at once, as the daemon's", NULL},
        {"max-draft", "K", "most draft positions, as the daemon's", NULL},
        {"ctx", "N", "KV cells in all, as the daemon's", NULL},
        {"threads", "N", "threads of the engine, as the daemon's", NULL},
        {"device", "DEVICE", "as the daemon's", NULL},
        {"exact", NULL, "as the daemon's", NULL},
        {"cache", "DIR", "where costs are kept, as the daemon's", NULL},
        {"config", "FILE", "the daemon's configuration file", NULL},
        {"fresh", NULL, "measure now even when the cache has them", NULL},
        {"json", NULL, "one JSON object in place of the staircase", NULL},
    };
    size_t count = sizeof options / sizeof options[0];
    struct bench bench = {0};
    char *cause = NULL;
    int status = bench_options(argc, argv, "cost [--model FILE --draft FILE] [OPTION]…", options,
                               count, NULL, 0);

    if (status != 0) return status > 0 ? 0 : 2;
    if (configure(&bench, options, count, &cause) != 0) return complain(cause, 2);
    if (!bench.configuration.model) {
        cause_set(&cause, "give --model FILE (a GGUF model); no configuration file names one");
        status = complain(cause, 2);
    } else if (open_costs(&bench, bench_text(options, "fresh") != NULL, &cause) != 0) {
        status = complain(cause, 1);
    } else {
        json_t *cells = cost_to_json(bench.cost);

        if (bench_text(options, "json"))
            print_json(&bench, cells);
        else
            print_text(&bench, cells);
        json_decref(cells);
    }
    cost_free(bench.cost);
    pair_close(&bench.pair);
    configuration_clear(&bench.configuration);
    return status;
}
