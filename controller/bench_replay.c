/* bench_replay.c - trimtab bench replay: policies on recorded text under a virtual clock, as ratios
 * to the best of off and every fixed K. A record of decisions goes to bench_decisions.c.
 */
#include "config.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/bench.h"
#include "controller/replay.h"

#define MOST_FILES 256
#define MOST_LOADS 32
#define POLICIES (TT_MAX_POSITIONS + 4) /* off, every fixed K, parity, online, oracle */

struct bench {
    struct trace_set *traces;
    struct cost_model *cost;
    struct cost_model *believed; /* what the planner begins with; NULL = the same */
    struct replay_options options;
    double passes;
    int done, all;
};

struct row {
    char policy[16];
    int concurrency;
    double tokens_per_ms, ratio;
    struct replay_counts counts;
};

static int complain(char *cause)
{
    fprintf(stderr, "trimtab bench replay: %s\n", cause ? cause : "out of memory");
    free(cause);
    return 1;
}

static void progress(struct bench *bench, const char *policy)
{
    if (!isatty(STDERR_FILENO)) return;
    bench->done++;
    fprintf(stderr, "\r\033[Kbench replay: %d of %d (%s)", bench->done, bench->all, policy);
    if (bench->done == bench->all) fputs("\r\033[K", stderr);
}

static bool run_row(struct bench *bench, struct row *row, const char *name)
{
    snprintf(row->policy, sizeof row->policy, "%s", name);
    row->concurrency = bench->options.concurrency;
    row->tokens_per_ms = replay_run(&bench->options, bench->passes, &row->counts);
    progress(bench, name);
    return !isnan(row->tokens_per_ms);
}

/* off, fixed-1 … fixed-K: the first rows. */
static bool run_fixed(struct bench *bench, struct row *rows, int depth)
{
    char name[16];

    bench->options.policy = REPLAY_PLANNER;
    for (int draft = 0; draft <= depth; draft++) {
        bench->options.mode = draft ? MODE_FIXED : MODE_OFF;
        bench->options.planner.fixed_draft = draft;
        snprintf(name, sizeof name, draft ? "fixed-%d" : "off", draft);
        if (!run_row(bench, &rows[draft], name)) return false;
    }
    return true;
}

/* With times that scatter, or a table that the planner believes though another one holds, it learns
 * in a cost model of its own. */
static bool run_online(struct bench *bench, struct row *row)
{
    bool ok;

    bench->options.policy = REPLAY_PLANNER;
    if (bench->believed || bench->options.noise > 0 || bench->options.wander > 0) {
        bench->options.learned = cost_copy(bench->believed ? bench->believed : bench->cost);
        if (!bench->options.learned) return false;
    }
    ok = run_row(bench, row, "online");
    cost_free(bench->options.learned);
    bench->options.learned = NULL;
    return ok;
}

/* parity, online, oracle. */
static bool run_adaptive(struct bench *bench, struct row *rows)
{
    bench->options.mode = MODE_ADAPTIVE;
    bench->options.planner.fixed_draft = 0;
    bench->options.policy = REPLAY_PARITY;
    if (!run_row(bench, &rows[0], "parity") || !run_online(bench, &rows[1])) return false;
    bench->options.policy = REPLAY_ORACLE;
    return run_row(bench, &rows[2], "oracle");
}

/* All rows of one concurrency; returns how many, or -1. */
static int run_load(struct bench *bench, struct row *rows)
{
    int depth = bench->options.planner.max_draft;
    double best = 0;

    if (!run_fixed(bench, rows, depth) || !run_adaptive(bench, rows + depth + 1)) return -1;
    for (int i = 0; i <= depth; i++) best = fmax(best, rows[i].tokens_per_ms);
    for (int i = 0; i < depth + 4; i++) rows[i].ratio = rows[i].tokens_per_ms / best;
    return depth + 4;
}

static json_t *row_to_json(const struct row *row)
{
    const struct tally_counts *counts = &row->counts.tally;

    return json_pack(
        "{s:s s:i s:f s:f s:I s:I s:I s:I s:I s:f s:f}", "policy", row->policy, "concurrency",
        row->concurrency, "tokens_per_ms", row->tokens_per_ms, "ratio_to_best_fixed", row->ratio,
        "steps", (json_int_t)counts->steps, "drafted", (json_int_t)counts->drafted, "admitted",
        (json_int_t)counts->admitted, "accepted", (json_int_t)counts->accepted, "emitted",
        (json_int_t)counts->emitted, "ms", counts->step_ms, "probe_ms", row->counts.probe_ms);
}

static int run_bench(struct bench *bench, const long *loads, size_t count, bool as_json)
{
    json_t *list = json_array();
    int rows = 0;

    bench->all = (int)count * (bench->options.planner.max_draft + 4);
    if (!as_json)
        printf("%-9s %11s %13s %19s\n", "policy", "concurrency", "tokens_per_ms",
               "ratio_to_best_fixed");
    for (size_t l = 0; l < count && rows >= 0; l++) {
        struct row row[POLICIES];

        memset(row, 0, sizeof row);
        bench->options.concurrency = (int)loads[l];
        rows = run_load(bench, row);
        for (int i = 0; i < rows; i++) {
            json_array_append_new(list, row_to_json(&row[i]));
            if (!as_json)
                printf("%-9s %11d %13.5f %19.4f\n", row[i].policy, row[i].concurrency,
                       row[i].tokens_per_ms, row[i].ratio);
        }
        fflush(stdout);
    }
    if (as_json && rows >= 0) {
        json_t *report =
            json_pack("{s:s s:I s:i s:f s:O}", "schema", "trimtab.bench.replay/1", "tokens",
                      (json_int_t)bench->traces->tokens, "max_draft",
                      bench->options.planner.max_draft, "passes", bench->passes, "rows", list);

        json_dumpf(report, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
        putchar('\n');
        json_decref(report);
    }
    json_decref(list);
    return rows < 0 ? complain(NULL) : 0;
}

static bool read_inputs(struct bench *bench, const char *const *file, size_t files,
                        double temperature, const char *table, const char *believed, char **cause)
{
    bench->traces = trace_set_new();
    if (!bench->traces) return false;
    for (size_t i = 0; i < files; i++) {
        char *warning = NULL;

        if (!trace_read(bench->traces, file[i], temperature, &warning, cause)) {
            free(warning);
            return false;
        }
        if (warning) fprintf(stderr, "trimtab bench replay: warning: %s\n", warning);
        free(warning);
    }
    bench->cost = cost_read_table(table, cause);
    if (!bench->cost || !believed) return bench->cost != NULL;
    bench->believed = cost_read_table(believed, cause);
    return bench->believed != NULL;
}

int bench_replay(int argc, char **argv)
{
    struct bench_option options[] = {
        {"cost", "TABLE", "costs of a step: text, a cache file, or bench cost --json", NULL},
        {"concurrency", "LIST", "requests at once, separated by commas", "1,2,4,8,16,32"},
        {"max-draft", "K", "most draft positions; 0 = what the traces hold", "0"},
        {"passes", "N", "how often each request goes through all texts", "1"},
        {"temperature", "T", "of text traces; -1 = from the name NAME-tT.txt", "-1"},
        {"own", "MS", "trimtab's own work in a step with drafts", "0"},
        {"catch-up", "TOKENS", "what a draft model that lost its place reads again", "0"},
        {"noise", "FRACTION", "scatter of measured times", "0"},
        {"wander", "FRACTION", "by how much the machine is now slower, now faster", "0"},
        {"believed", "TABLE", "costs that the planner begins with; the same if not given", NULL},
        {"json", NULL, "one JSON object in place of the table", NULL},
    };
    struct bench bench = {
        .options = {
            .planner = {.min_gain = 0.01, .exploration = true, .key = UINT64_C(0x7472696d746162)},
            .estimator = TT_ONLINE}};
    const char *file[MOST_FILES];
    long loads[MOST_LOADS];
    size_t files, count;
    char *cause = NULL;
    int depth, status = bench_options_words(argc, argv, "replay FILE… --cost TABLE [OPTION]…",
                                            options, sizeof options / sizeof options[0], file, 1,
                                            MOST_FILES, &files);

    if (status != 0) return status > 0 ? 0 : 2;
    if (files == 1 && bench_is_record(file[0]))
        return bench_decisions(file[0], bench_text(options, "json") != NULL);
    if (!bench_text(options, "cost")) {
        fprintf(stderr, "trimtab bench replay: give --cost TABLE (trimtab bench cost --json makes "
                        "one)\n");
        return 2;
    }
    count = bench_list(options, "concurrency", 1, REPLAY_STREAMS, loads, MOST_LOADS);
    bench.passes = bench_real(options, "passes", 0.01, 1000);
    bench.options.own_ms = bench_real(options, "own", 0, 1e6);
    bench.options.catch_up = (int)bench_number(options, "catch-up", 0, 512);
    bench.options.noise = bench_real(options, "noise", 0, 0.9);
    bench.options.wander = bench_real(options, "wander", 0, 0.9);
    depth = (int)bench_number(options, "max-draft", 0, TT_MAX_POSITIONS);
    if (read_inputs(&bench, file, files, bench_real(options, "temperature", -1, 100),
                    bench_text(options, "cost"), bench_text(options, "believed"), &cause)) {
        if (depth == 0 || depth > bench.traces->depth) depth = bench.traces->depth;
        bench.options.planner.max_draft = depth;
        bench.options.traces = bench.traces;
        bench.options.cost = bench.cost;
        status = run_bench(&bench, loads, count, bench_text(options, "json") != NULL);
    } else {
        status = complain(cause);
    }
    trace_set_free(bench.traces);
    cost_free(bench.cost);
    cost_free(bench.believed);
    return status;
}
