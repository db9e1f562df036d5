/* bench_loop.c - what trimtab's own work costs: policies in interleaved blocks beside a bare
 * libllama batched loop, in one process, on the same prompts.
 *
 *   own_ratio    time outside the two models, less the sampling that `off` does for as many tokens,
 * over step time off_to_bare  tokens/s of mode off over those of the bare loop (same batch shapes,
 * argmax, nothing else) ttft_ratio   submit to first token on an idle loop over a plain prefill of
 * the same prompt memory       bytes that loop, planner, estimators and buffers take beyond the
 * engine
 */
#include "config.h"

#include <jansson.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/bench.h"
#include "controller/inprocess.h"
#include "controller/ticks.h"

#define MOST_BLOCKS 64
#define MOST_CONCURRENT 32
#define MAX_DRAFT 6

struct bench {
    struct inprocess process;
    struct bench_prompt *prompt;
    int prompts, blocks, tokens, done, all;
    double memory_bytes;
};

struct cell { /* one concurrency and temperature; values by block */
    int concurrency;
    float temperature;
    double off_tps[MOST_BLOCKS], bare_tps[MOST_BLOCKS], adaptive_tps[MOST_BLOCKS];
    double off_to_bare[MOST_BLOCKS], own_ratio[MOST_BLOCKS], own_ms[MOST_BLOCKS], gain[MOST_BLOCKS];
};

static void progress(struct bench *bench, const char *what)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[Kbench loop: %d of %d (%s)", bench->done, bench->all, what);
    bench->done++;
    if (bench->done == bench->all && isatty(STDERR_FILENO)) fputc('\n', stderr);
}

static char *chat(struct bench *bench, int i)
{
    char *cause = NULL,
         *text = inprocess_chat(&bench->process, bench->prompt[i % bench->prompts].text, &cause);

    if (text) return text;
    fprintf(stderr, "trimtab bench loop: %s\n", cause ? cause : "out of memory");
    exit(1);
}

struct measured {
    double tps, own_ms, step_ms, emitted, steps;
};

static struct measured run_policy(struct bench *bench, const struct cell *cell, int block,
                                  enum mode mode)
{
    struct inprocess_job jobs[MOST_CONCURRENT];
    struct tally_counts before, after;
    struct measured out;
    char *cause = NULL;
    double begun;

    memset(jobs, 0, sizeof jobs);
    for (int i = 0; i < cell->concurrency; i++)
        jobs[i] = (struct inprocess_job){.prompt = chat(bench, block * cell->concurrency + i),
                                         .temperature = cell->temperature,
                                         .ignore_eos = true,
                                         .max_tokens = bench->tokens};
    loop_set_mode(bench->process.loop, mode);
    tally_copy(&bench->process.loop->tally, &before);
    begun = ticks_ms();
    if (inprocess_run(&bench->process, jobs, cell->concurrency, cell->concurrency, NULL, NULL,
                      &cause) != 0) {
        fprintf(stderr, "trimtab bench loop: %s\n", cause ? cause : "a run failed");
        exit(1);
    }
    begun = ticks_ms() - begun;
    tally_copy(&bench->process.loop->tally, &after);
    out.emitted = (double)(after.emitted - before.emitted);
    out.steps = (double)(after.steps - before.steps);
    out.tps = out.emitted / begun * 1000;
    out.own_ms = after.own_ms - before.own_ms;
    out.step_ms = after.step_ms - before.step_ms;
    for (int i = 0; i < cell->concurrency; i++) free((char *)(uintptr_t)jobs[i].prompt);
    inprocess_clear(jobs, cell->concurrency);
    return out;
}

static int32_t argmax(const float *logits, int vocab)
{
    int best = 0;

    for (int v = 1; v < vocab; v++)
        if (logits[v] > logits[best]) best = v;
    return best;
}

/* The same prompts and counts through lm.h alone: one prefill batch, then one row a sequence and
 * step. */
static double run_bare(struct bench *bench, const struct cell *cell, int block)
{
    struct lm *lm = bench->process.pair.target;
    struct lm_batch *batch = lm_batch_new(lm_batch_limit(lm));
    int position[MOST_CONCURRENT], row[MOST_CONCURRENT];
    double begun = ticks_ms(), length;

    for (int s = 0; s < cell->concurrency; s++) lm_trim(lm, s, 0);
    for (int s = 0; s < cell->concurrency; s++) {
        char *text = chat(bench, block * cell->concurrency + s);
        int32_t *tokens;
        int count = lm_tokenize(lm, text, strlen(text), true, true, &tokens);

        for (int i = 0; i < count; i++)
            row[s] = lm_batch_add(batch, tokens[i], i, s, i == count - 1);
        position[s] = count;
        free(tokens);
        free(text);
    }
    for (int step = 0; step < bench->tokens; step++) {
        int32_t next[MOST_CONCURRENT];

        if (lm_decode(lm, batch, NULL) != 0) break;
        for (int s = 0; s < cell->concurrency; s++)
            next[s] = argmax(lm_logits(lm, row[s]), lm_vocab(lm));
        lm_batch_clear(batch);
        for (int s = 0; s < cell->concurrency; s++)
            row[s] = lm_batch_add(batch, next[s], position[s]++, s, true);
    }
    length = ticks_ms() - begun;
    for (int s = 0; s < cell->concurrency; s++) {
        lm_trim(lm, s, 0);
        bench->process.loop->slot[s].in_target =
            0; /* the loop's remembered beginnings are gone with it */
    }
    lm_batch_free(batch);
    return cell->concurrency * bench->tokens / length * 1000;
}

static void run_block(struct bench *bench, struct cell *cell, int block)
{
    struct measured off, adaptive;

    inprocess_forget(&bench->process);
    cell->bare_tps[block] = run_bare(bench, cell, block);
    off = run_policy(bench, cell, block, MODE_OFF);
    inprocess_forget(&bench->process);
    adaptive = run_policy(bench, cell, block, MODE_ADAPTIVE);
    cell->off_tps[block] = off.tps;
    cell->adaptive_tps[block] = adaptive.tps;
    cell->off_to_bare[block] = off.tps / cell->bare_tps[block];
    cell->gain[block] = adaptive.tps / off.tps;
    cell->own_ratio[block] =
        (adaptive.own_ms - off.own_ms / off.emitted * adaptive.emitted) / adaptive.step_ms;
    cell->own_ms[block] = adaptive.own_ms / adaptive.steps;
    progress(bench, "blocks");
}

/* Time to first token on an idle loop over a plain prefill, the same prompt of some 200 tokens. */
static struct bench_median first_token(struct bench *bench)
{
    double ratio[MOST_BLOCKS];
    struct lm *lm = bench->process.pair.target;
    struct lm_batch *batch = lm_batch_new(lm_batch_limit(lm));

    loop_set_mode(bench->process.loop, MODE_OFF);
    for (int block = 0; block < bench->blocks; block++) {
        struct inprocess_job job = {.max_tokens = 1};
        char text[2048];
        int32_t *tokens;
        double bare;
        int count;

        snprintf(text, sizeof text, "Block %d.", block);
        for (int i = 0; i < 36; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), " Here is sentence %d.",
                     i + block);
        count = lm_tokenize(lm, text, strlen(text), true, true, &tokens);
        inprocess_forget(&bench->process);
        lm_batch_clear(batch);
        bare = ticks_ms();
        for (int i = 0; i < count; i++) lm_batch_add(batch, tokens[i], i, 0, i == count - 1);
        if (lm_decode(lm, batch, NULL) == 0) argmax(lm_logits(lm, batch->count - 1), lm_vocab(lm));
        bare = ticks_ms() - bare;
        inprocess_forget(&bench->process);
        job.prompt = text;
        if (inprocess_run(&bench->process, &job, 1, 1, NULL, NULL, NULL) != 0) break;
        ratio[block] = job.first_ms / bare;
        inprocess_clear(&job, 1);
        free(tokens);
        progress(bench, "first token");
    }
    lm_batch_free(batch);
    return bench_median(ratio, bench->blocks);
}

static json_t *interval(double *values, int count)
{
    struct bench_median median = bench_median(values, count);

    return json_pack("{s:f s:f s:f}", "median", median.median, "low", median.low, "high",
                     median.high);
}

static json_t *cell_to_json(struct cell *cell, int blocks)
{
    bool greedy = cell->temperature <= 0;
    json_t *row = json_pack(
        "{s:i s:f s:o s:o s:o s:o s:o s:o}", "concurrency", cell->concurrency, "temperature",
        (double)cell->temperature, "own_ratio", interval(cell->own_ratio, blocks),
        "own_ms_per_step", interval(cell->own_ms, blocks), "adaptive_to_off",
        interval(cell->gain, blocks), "off_tps", interval(cell->off_tps, blocks), "bare_tps",
        interval(cell->bare_tps, blocks), "adaptive_tps", interval(cell->adaptive_tps, blocks));

    json_object_set_new(row, "off_to_bare",
                        greedy ? interval(cell->off_to_bare, blocks) : json_null());
    return row;
}

static void print_table(const json_t *report)
{
    const json_t *row;
    size_t i;

    printf("%4s %4s %26s %26s %26s %10s\n", "R", "T", "own_ratio % (95 %)", "off / bare (95 %)",
           "adaptive / off (95 %)", "off tok/s");
    json_array_foreach(json_object_get(report, "rows"), i, row)
    {
        const char *keys[] = {"own_ratio", "off_to_bare", "adaptive_to_off"};

        printf("%4lld %4.1f", (long long)json_integer_value(json_object_get(row, "concurrency")),
               json_real_value(json_object_get(row, "temperature")));
        for (int k = 0; k < 3; k++) {
            const json_t *value = json_object_get(row, keys[k]);
            double scale = k == 0 ? 100 : 1;
            char text[40] = "--";

            if (json_is_object(value))
                snprintf(text, sizeof text, "%.3f (%.3f..%.3f)",
                         scale * json_real_value(json_object_get(value, "median")),
                         scale * json_real_value(json_object_get(value, "low")),
                         scale * json_real_value(json_object_get(value, "high")));
            printf(" %26s", text);
        }
        printf(" %10.1f\n",
               json_real_value(json_object_get(json_object_get(row, "off_tps"), "median")));
    }
    printf("time to first token / plain prefill: %.3f\nmemory beyond the engine: %.1f MiB\n",
           json_real_value(json_object_get(json_object_get(report, "ttft_ratio"), "median")),
           json_real_value(json_object_get(report, "memory_bytes")) / 1048576);
}

/* Loop and buffers are what inprocess_open allocates after the engine: measured as the allocator's
 * growth around a second loop over the same models. */
static double loop_memory(struct bench *bench)
{
    struct mallinfo2 before = mallinfo2(), after;
    char *cause = NULL;
    struct loop *second = loop_new(&bench->process.loop->options, 16, &cause);

    after = mallinfo2();
    free(cause);
    if (!second) return NAN;
    loop_free(second);
    return (double)(after.uordblks + after.hblkhd) - (double)(before.uordblks + before.hblkhd);
}

static int run_bench(struct bench *bench, bool as_json)
{
    static const struct {
        int concurrency;
        float temperature;
    } plan[] = {{1, 0}, {8, 0}, {1, 1}, {8, 1}};
    size_t cells = sizeof plan / sizeof plan[0];
    struct cell *cell = calloc(cells, sizeof *cell);
    json_t *report, *rows = json_array();
    struct bench_median first;

    if (!cell) return 1;
    bench->all = bench->blocks * ((int)cells + 1);
    for (int block = 0; block < bench->blocks; block++)
        for (size_t i = 0; i < cells; i++) {
            cell[i].concurrency = plan[i].concurrency;
            cell[i].temperature = plan[i].temperature;
            run_block(bench, &cell[i], block);
        }
    first = first_token(bench);
    for (size_t i = 0; i < cells; i++)
        json_array_append_new(rows, cell_to_json(&cell[i], bench->blocks));
    report = json_pack("{s:s s:i s:i s:o s:{s:f s:f s:f} s:f}", "schema", "trimtab.bench.loop/1",
                       "blocks", bench->blocks, "tokens", bench->tokens, "rows", rows, "ttft_ratio",
                       "median", first.median, "low", first.low, "high", first.high, "memory_bytes",
                       bench->memory_bytes);
    if (as_json) {
        json_dumpf(report, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
        putchar('\n');
    } else {
        print_table(report);
    }
    json_decref(report);
    free(cell);
    return 0;
}

int bench_loop(int argc, char **argv)
{
    struct bench_option options[] = {
        {"model", "FILE", "target (GGUF)", NULL},
        {"draft", "FILE", "draft model (GGUF)", NULL},
        {"prompts", "FILE", "JSON Lines of prompts", PKGDATADIR "/demo-prompts.jsonl"},
        {"blocks", "N", "interleaved blocks", "9"},
        {"tokens", "N", "tokens a request", "64"},
        {"threads", "N", "threads; 0 = one a processor", "0"},
        {"json", NULL, "one JSON object in place of the table", NULL},
    };
    struct bench bench = {0};
    struct inprocess_options process = {.pair = {.parallel = 8, .max_draft = MAX_DRAFT},
                                        .profile = true};
    char *cause = NULL;
    int status = bench_options(argc, argv, "loop --model FILE --draft FILE [OPTION]…", options,
                               sizeof options / sizeof options[0], NULL, 0);

    if (status != 0) return status > 0 ? 0 : 2;
    process.pair.target = bench_text(options, "model");
    process.pair.draft = bench_text(options, "draft");
    process.pair.threads = (int)bench_number(options, "threads", 0, 1024);
    bench.blocks = (int)bench_number(options, "blocks", 1, MOST_BLOCKS);
    bench.tokens = (int)bench_number(options, "tokens", 1, 512);
    if (!process.pair.target || !process.pair.draft) {
        fprintf(stderr, "trimtab bench loop: give --model and --draft\n");
        return 2;
    }
    bench.prompts = bench_read_prompts(bench_text(options, "prompts"), &bench.prompt);
    if (bench.prompts < 0) return 1;
    if (inprocess_open(&bench.process, &process, &cause) != 0) {
        fprintf(stderr, "trimtab bench loop: %s\n", cause ? cause : "out of memory");
        free(cause);
        status = 1;
    } else {
        bench.memory_bytes = loop_memory(&bench);
        status = run_bench(&bench, bench_text(options, "json") != NULL);
    }
    inprocess_close(&bench.process);
    bench_free_prompts(bench.prompt, bench.prompts);
    return status;
}
