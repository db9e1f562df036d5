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
    bool found = false;
    for (size_t i = 0; traces && i < 3; i++) {
        char path[4096];
        if (strcmp(kind, "all") != 0 && strcmp(kind, kinds[i]) != 0) continue;
        snprintf(path, sizeof path, "%s/%s-%s.txt.gz", directory, kinds[i],
                 temperature ? "t1.0" : "t0");
        if (!replay_traces_add(traces, path)) exit(1);
        found = true;
    }
    if (!found) {
        fprintf(stderr, "no kind of text `%s`: all, chat, code or json\n", kind);
        exit(2);
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

/* How a grid or a test cell is run. */
struct conditions {
    double passes, own_ms, noise;
    int catch_up;
};

static struct cell_result run_cell(const struct replay_traces *traces, const char *cost_name,
                                   int concurrency, const struct conditions *conditions)
{
    struct cell_result result = {0};
    struct cost_model *cost = load_cost(cost_name), *learned = load_cost(cost_name);
    struct replay_run run = {.concurrency = concurrency,
                             .passes = 1,
                             .own_ms = conditions->own_ms,
                             .catch_up = conditions->catch_up,
                             .noise = conditions->noise};
    for (int draft = 0; draft <= REPLAY_DEPTH; draft++) {
        run.mode = draft ? MODE_FIXED : MODE_OFF;
        run.fixed_draft = draft;
        result.fixed[draft] = replay(traces, cost, &run).tokens_per_ms;
        result.best = fmax(result.best, result.fixed[draft]);
    }
    run.mode = MODE_ADAPTIVE;
    run.fixed_draft = 0;
    run.passes = conditions->passes;
    if (run.noise > 0) run.learned = learned;
    result.adaptive = replay(traces, cost, &run);
    cost_free(cost);
    cost_free(learned);
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

/* A comma-separated list, cut into words in place. */
struct list {
    char text[128];
    const char *word[16];
    int count;
};

static bool list_parse(struct list *list, const char *text)
{
    char *state = NULL;
    list->count = 0;
    if (snprintf(list->text, sizeof list->text, "%s", text) >= (int)sizeof list->text) return false;
    for (char *word = strtok_r(list->text, ",", &state); word; word = strtok_r(NULL, ",", &state)) {
        if (list->count == (int)(sizeof list->word / sizeof *list->word)) return false;
        list->word[list->count++] = word;
    }
    return list->count > 0;
}

struct grid {
    struct list costs, temperatures, kinds, loads;
};

static void print_texts(const struct grid *grid, const char *kind, int temperature,
                        const struct conditions *conditions)
{
    char prefix[64];
    struct replay_traces *traces = load_traces(kind, temperature);
    for (int c = 0; c < grid->costs.count; c++)
        for (int l = 0; l < grid->loads.count; l++) {
            int load = atoi(grid->loads.word[l]);
            struct cell_result result = run_cell(traces, grid->costs.word[c], load, conditions);
            snprintf(prefix, sizeof prefix, "%s %d %s", grid->costs.word[c], temperature, kind);
            print_cell(prefix, load, &result);
        }
    replay_traces_free(traces);
}

static void print_grid(const struct grid *grid, const struct conditions *conditions)
{
    for (int k = 0; k < grid->kinds.count; k++)
        for (int t = 0; t < grid->temperatures.count; t++)
            print_texts(grid, grid->kinds.word[k], atoi(grid->temperatures.word[t]), conditions);
}

/* The promise (design, algorithm 5) on cells of every kind: where drafts pay, where they never do,
 * on a staircase, where they pay for some text only, with a draft model that has to read up, and
 * with times that scatter. */
static int run_tests(void)
{
    static const struct {
        const char *cost, *kind;
        int temperature, concurrency;
        double least; /* ratio to the best fixed K */
        struct conditions conditions;
    } cells[] = {
        {"bf16", "all", 0, 1, 1.05, {.passes = 1}},
        {"bf16", "all", 0, 4, 1.10, {.passes = 1}},
        {"bf16", "json", 0, 32, 1.02, {.passes = 1}},
        {"bf16", "all", 1, 8, 0.99, {.passes = 1}},
        {"q8_0", "all", 0, 1, 0.985, {.passes = 1}},
        {"q8_0", "json", 0, 2, 1.04, {.passes = 1}},
        {"q4_0", "all", 1, 16, 0.985, {.passes = 1}},
        {"flat", "chat", 1, 32, 0.985, {.passes = 1}},
        {"bf16", "all", 0, 8, 1.00, {.passes = 1, .catch_up = 64}},
        {"bf16", "all", 1, 16, 0.98, {.passes = 1, .catch_up = 64}},
        {"q8_0", "all", 0, 4, 1.00, {.passes = 1, .noise = 0.1}},
        {"q4_0", "all", 0, 1, 1.00, {.passes = 1, .noise = 0.1, .own_ms = 0.05}},
    };
    int count = sizeof cells / sizeof *cells, failed = 0;
    printf("1..%d\n", count);
    for (int i = 0; i < count; i++) {
        struct replay_traces *traces = load_traces(cells[i].kind, cells[i].temperature);
        struct cell_result result =
            run_cell(traces, cells[i].cost, cells[i].concurrency, &cells[i].conditions);
        double ratio = result.adaptive.tokens_per_ms / result.best;
        bool ok = ratio >= cells[i].least;
        failed += !ok;
        printf("%sok %d - %s %s T=%d R=%d catch-up %d noise %.2f: %.4f of the best fixed, at least "
               "%.3f\n",
               ok ? "" : "not ", i + 1, cells[i].cost, cells[i].kind, cells[i].temperature,
               cells[i].concurrency, cells[i].conditions.catch_up, cells[i].conditions.noise, ratio,
               cells[i].least);
        replay_traces_free(traces);
    }
    return failed > 0;
}

static int usage(void)
{
    fprintf(stderr,
            "usage: replay_traces [--cost LIST] [--temperature LIST] [--kind LIST] [--concurrency "
            "LIST]\n"
            "       [--passes N] [--own MS] [--catch-up TOKENS] [--noise FRACTION] [--data DIR]\n");
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"cost", required_argument, NULL, 'c'},     {"temperature", required_argument, NULL, 't'},
        {"kind", required_argument, NULL, 'k'},     {"concurrency", required_argument, NULL, 'r'},
        {"passes", required_argument, NULL, 'p'},   {"own", required_argument, NULL, 'o'},
        {"catch-up", required_argument, NULL, 'u'}, {"noise", required_argument, NULL, 'n'},
        {"data", required_argument, NULL, 'd'},     {0}};
    static struct grid grid;
    struct conditions conditions = {.passes = 1};
    const char *source = getenv("SRC");
    bool ok = list_parse(&grid.costs, "bf16,q8_0,q4_0,flat") &&
              list_parse(&grid.temperatures, "0,1") && list_parse(&grid.kinds, "all") &&
              list_parse(&grid.loads, "1,2,4,8,16,32");
    snprintf(directory, sizeof directory, "%s/tests/controller/data/traces", source ? source : ".");
    for (int c; ok && (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'c')
            ok = list_parse(&grid.costs, optarg);
        else if (c == 't')
            ok = list_parse(&grid.temperatures, optarg);
        else if (c == 'k')
            ok = list_parse(&grid.kinds, optarg);
        else if (c == 'r')
            ok = list_parse(&grid.loads, optarg);
        else if (c == 'p')
            conditions.passes = atof(optarg);
        else if (c == 'o')
            conditions.own_ms = atof(optarg);
        else if (c == 'u')
            conditions.catch_up = atoi(optarg);
        else if (c == 'n')
            conditions.noise = atof(optarg);
        else if (c == 'd')
            snprintf(directory, sizeof directory, "%s", optarg);
        else
            ok = false;
    }
    if (!ok || optind < argc) return usage();
    if (argc == 1) return run_tests();
    print_grid(&grid, &conditions);
    return 0;
}
