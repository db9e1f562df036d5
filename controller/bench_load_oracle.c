/* bench_load_oracle.c - what a planner that knew every outcome would reach on a cell's load, by the
 * costs that were measured here; see bench_load.h.
 *
 * A teacher-forced trace of the mix's greedy texts is recorded on the pair itself, then replayed
 * under the adaptive loop's own cost model: off, every fixed K, and the oracle of replay.h.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "controller/bench_load.h"
#include "controller/cause.h"
#include "controller/replay.h"
#include "controller/trace_record.h"

#define MOST_TEXTS 24

/* The lines that a recorder wrote, as a set. */
static struct trace_set *read_lines(char *lines, char **cause)
{
    struct trace_set *set = trace_set_new();
    char *rest = lines, *header = strsep(&rest, "\n"), *line;
    struct trace_reader *reader = set ? trace_reader_new(set, header, cause) : NULL;
    bool read = reader != NULL;

    while (read && (line = strsep(&rest, "\n")) && line[0])
        read = trace_reader_line(reader, line, cause);
    if (reader) trace_reader_end(reader);
    trace_reader_free(reader);
    if (read) return set;
    trace_set_free(set);
    return NULL;
}

struct trace_set *load_oracle_record(const struct pair *pair, const struct load_texts *texts,
                                     char **cause)
{
    const struct trace_recorder_options options = {
        .pair = pair, .max_draft = texts->max_draft, .max_tokens = texts->tokens};
    struct trace_recorder *recorder = trace_recorder_new(&options, cause);
    struct trace_set *set = NULL;
    char *lines = NULL;
    size_t size = 0;
    FILE *file = recorder ? open_memstream(&lines, &size) : NULL;
    bool recorded = file && fprintf(file,
                                    "{\"schema\": \"" TRACE_SCHEMA "\", \"rule\": \"greedy\", "
                                    "\"temperature\": 0, \"max_draft\": %d}\n",
                                    texts->max_draft) > 0;

    for (int i = 0; recorded && i < texts->count && i < MOST_TEXTS && !load_stopped; i++)
        recorded = trace_recorder_text(recorder, file, i, texts->prompt[i], cause) >= 0;
    if (file && fclose(file) != 0) recorded = false;
    if (recorded && !load_stopped) set = read_lines(lines, cause);
    trace_recorder_free(recorder);
    free(lines);
    return set;
}

bool load_oracle_bound(const struct trace_set *traces, const struct cost_model *cost,
                       struct load_cell *cell)
{
    struct replay_options options = {
        .traces = traces,
        .cost = cost,
        .concurrency = cell->load.concurrency,
        .policy = REPLAY_PLANNER,
        .planner = {.max_draft = cell->policies.max_draft, .min_gain = 0.01},
        .estimator = TT_ONLINE,
    };
    double best = 0, off = NAN, oracle;

    for (int draft = 0; draft <= cell->policies.max_draft; draft++) {
        double rate;

        options.mode = draft > 0 ? MODE_FIXED : MODE_OFF;
        options.planner.fixed_draft = draft;
        rate = replay_run(&options, 1, NULL);
        if (draft == 0) off = rate;
        if (rate > best) best = rate;
    }
    options.policy = REPLAY_ORACLE;
    options.mode = MODE_ADAPTIVE;
    oracle = replay_run(&options, 1, NULL);
    if (!(oracle > 0) || !(best > 0) || !(off > 0)) return false;
    if (oracle < best) oracle = best; /* who knows all may also do what the best fixed K does */
    cell->oracle_to_best = oracle / best;
    cell->oracle_to_off = oracle / off;
    return true;
}
