/* replay_traces.c - policies on recorded text: off, fixed K and adaptive, as ratios to the best
 * fixed one.
 *
 * Without arguments it is a test: a few cells, each with the bound that the design promises. With
 * arguments it prints `cost temperature kind policy concurrency tokens_per_ms ratio_to_best_fixed`
 * for every cell asked for, e.g. replay_traces --cost bf16,q8_0 --temperature 0 --kind json
 * --concurrency 1,8,32 --passes 2 The best fixed one is the best of off and K = 1 .. 6 under the
 * same clock.
 */
#include "config.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/controller/replay.h"

static char directory[2048];

static struct replay_traces *load_traces(const char *kind, int temperature)
{
    static const char *const kinds[] = {"chat", "code", "json"};
    struct replay_traces *traces = replay_traces_new();
    for (size_t i = 0; traces && i < 3; i++) {
        char path[4096];
        if (strcmp(kind, "all") != 0 && strcmp(kind, kinds[i]) != 0) continue;
        snprintf(path, sizeof path, "%s/%s-%s.txt.gz", directory, kinds[i],
                 temperature ? "t1.0" : "t0");
        if (!replay_traces_add(traces, path)) exit(1);
    }
    return traces;
}

static struct cost_model *load_cost(const char *name)
{
    char path[4096], *cause = NULL;
    snprintf(path, sizeof path, "%s/cost-%s.txt", directory, name);
    struct cost_model *cost = cost_read_table(path, &cause);
    if (!cost) {
        fprintf(stderr, "%s\n", cause ? cause : "out of memory");
        exit(1);
    }
    return cost;
}

struct cell_result {
    double fixed[REPLAY_DEPTH + 1]; /* [0] = off */
    double best;
    struct replay_result adaptive;
};

static struct cell_result run_cell(const struct replay_traces *traces,
                                   const struct cost_model *cost, int concurrency, double passes,
                                   double own_ms)
{
    struct cell_result result = {0};
    for (int draft = 0; draft <= REPLAY_DEPTH; draft++) {
        struct replay_run run = {draft ? MODE_FIXED : MODE_OFF, draft, concurrency, 1, 0};
        result.fixed[draft] = replay(traces, cost, &run).tokens_per_ms;
        result.best = fmax(result.best, result.fixed[draft]);
    }
    struct replay_run run = {MODE_ADAPTIVE, 0, concurrency, passes, own_ms};
    result.adaptive = replay(traces, cost, &run);
    return result;
}

static void print_row(const char *prefix, const char *policy, int concurrency, double rate,
                      double best)
{
    printf("%s %-8s %2d %.5f %.4f\n", prefix, policy, concurrency, rate, rate / best);
}

static void print_cell(const char *prefix, int concurrency, const struct cell_result *result)
{
    char policy[16];
    for (int draft = 0; draft <= REPLAY_DEPTH; draft++) {
        snprintf(policy, sizeof policy, draft ? "fixed-%d" : "off", draft);
        print_row(prefix, policy, concurrency, result->fixed[draft], result->best);
    }
    print_row(prefix, "adaptive", concurrency, result->adaptive.tokens_per_ms, result->best);
    const struct replay_result *a = &result->adaptive;
    printf("# steps %ld drafted %ld admitted %ld accepted %ld plain %ld probes %ld (%.4f of time) "
           "explored %ld regimes %ld\n",
           a->steps, a->drafted, a->admitted, a->accepted, a->plain_steps, a->probes,
           a->probe_ms / a->ms, a->explored, a->regime_changes);
}

/* One sub-grid; list arguments are comma-separated. */
static void print_grid(char *costs, char *temperatures, char *kinds, const char *loads,
                       double passes, double own_ms)
{
    char *at_cost, *at_temperature, *at_kind, *at_load;
    for (char *cost_name = strtok_r(costs, ",", &at_cost); cost_name;
         cost_name = strtok_r(NULL, ",", &at_cost)) {
        struct cost_model *cost = load_cost(cost_name);
        char temperature_list[64];
        snprintf(temperature_list, sizeof temperature_list, "%s", temperatures);
        for (char *t = strtok_r(temperature_list, ",", &at_temperature); t;
             t = strtok_r(NULL, ",", &at_temperature)) {
            char kind_list[64];
            snprintf(kind_list, sizeof kind_list, "%s", kinds);
            for (char *kind = strtok_r(kind_list, ",", &at_kind); kind;
                 kind = strtok_r(NULL, ",", &at_kind)) {
                struct replay_traces *traces = load_traces(kind, atoi(t));
                char load_list[64], prefix[64];
                snprintf(load_list, sizeof load_list, "%s", loads);
                snprintf(prefix, sizeof prefix, "%s %s %s", cost_name, t, kind);
                for (char *load = strtok_r(load_list, ",", &at_load); load;
                     load = strtok_r(NULL, ",", &at_load)) {
                    struct cell_result result = run_cell(traces, cost, atoi(load), passes, own_ms);
                    print_cell(prefix, atoi(load), &result);
                }
                replay_traces_free(traces);
            }
        }
        cost_free(cost);
    }
}

/* The promise (design, algorithm 5) on cells of every kind: where drafts pay, where they never do,
 * on a staircase, and where they pay for some text only. */
static int run_tests(void)
{
    static const struct {
        const char *cost, *kind;
        int temperature, concurrency;
        double least; /* ratio to the best fixed K */
    } cells[] = {
        {"bf16", "all", 0, 1, 1.02},  {"bf16", "all", 0, 4, 1.05},   {"bf16", "json", 0, 32, 0.98},
        {"bf16", "all", 1, 8, 0.98},  {"q8_0", "all", 0, 1, 0.98},   {"q8_0", "json", 0, 2, 1.02},
        {"q4_0", "all", 1, 16, 0.98}, {"flat", "chat", 1, 32, 0.98},
    };
    int count = sizeof cells / sizeof *cells, failed = 0;
    printf("1..%d\n", count);
    for (int i = 0; i < count; i++) {
        struct replay_traces *traces = load_traces(cells[i].kind, cells[i].temperature);
        struct cost_model *cost = load_cost(cells[i].cost);
        struct cell_result result = run_cell(traces, cost, cells[i].concurrency, 1, 0);
        double ratio = result.adaptive.tokens_per_ms / result.best;
        bool ok = ratio >= cells[i].least;
        failed += !ok;
        printf("%sok %d - %s %s T=%d R=%d: %.4f of the best fixed, at least %.2f\n",
               ok ? "" : "not ", i + 1, cells[i].cost, cells[i].kind, cells[i].temperature,
               cells[i].concurrency, ratio, cells[i].least);
        cost_free(cost);
        replay_traces_free(traces);
    }
    return failed > 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"cost", required_argument, NULL, 'c'},   {"temperature", required_argument, NULL, 't'},
        {"kind", required_argument, NULL, 'k'},   {"concurrency", required_argument, NULL, 'r'},
        {"passes", required_argument, NULL, 'p'}, {"own", required_argument, NULL, 'o'},
        {"data", required_argument, NULL, 'd'},   {0}};
    char costs[64] = "bf16,q8_0,q4_0,flat", temperatures[64] = "0,1", kinds[64] = "all",
         loads[64] = "1,2,4,8,16,32";
    double passes = 1, own_ms = 0;
    const char *source = getenv("SRC");
    snprintf(directory, sizeof directory, "%s/tests/controller/data/traces", source ? source : ".");
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'c':
            snprintf(costs, sizeof costs, "%s", optarg);
            break;
        case 't':
            snprintf(temperatures, sizeof temperatures, "%s", optarg);
            break;
        case 'k':
            snprintf(kinds, sizeof kinds, "%s", optarg);
            break;
        case 'r':
            snprintf(loads, sizeof loads, "%s", optarg);
            break;
        case 'p':
            passes = atof(optarg);
            break;
        case 'o':
            own_ms = atof(optarg);
            break;
        case 'd':
            snprintf(directory, sizeof directory, "%s", optarg);
            break;
        default:
            return 2;
        }
    }
    if (argc == 1) return run_tests();
    print_grid(costs, temperatures, kinds, loads, passes, own_ms);
    return 0;
}
