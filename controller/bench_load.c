/* bench_load.c - the promise, measured: the node's loop in this process under constant loads, off,
 * fixed K and adaptive side by side over blocks of the same requests; see bench_load.h.
 *
 * Every finished block is stored at once, under everything that its figures depend on; the same
 * command goes on where the last one was broken off. With a time limit each cell gets its share of
 * what is left.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/bench_load.h"
#include "controller/cause.h"
#include "controller/lm.h"
#include "controller/cost_cache.h"
#include "controller/ticks.h"

#define WARM_STEPS 300 /* least steps of the adaptive loop on a load before it is timed */
#define STATUS_STOPPED 130

struct bench {
    struct load_grid grid;
    struct load_policies policies;
    struct load_cell *cell; /* (cells): by form, temperature, mix, concurrency */
    size_t cells, cells_done;
    struct bench_prompt *prompt;
    int prompts;
    const char *target, *draft, *database;
    char *own_target, *own_database;
    int blocks, tokens, threads, parallel;
    double begun_ms, deadline_ms;      /* deadline INFINITY = none */
    long runs_done, runs_left;         /* runs_left: at most */
    double run_ms[LOAD_MOST_POLICIES]; /* of the cell's last block */
    struct load_server *server;
    struct bench_store *store;
};

struct mix_trace { /* what the oracle is replayed on */
    const char *name;
    struct trace_set *traces;
};

static int fail(char *cause)
{
    fprintf(stderr, "trimtab bench load: %s\n", cause ? cause : "out of memory");
    free(cause);
    return -1;
}

/* ---- progress */

static void clear_progress(void)
{
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

static void show_opening(void *state, const char *what, double done)
{
    const struct load_form *form = state;

    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%s: %s %3.0f %%", form->name, what, 100 * done);
}

static double expected_left_ms(const struct bench *bench)
{
    double now = ticks_ms(), left = bench->deadline_ms - now;
    double pace = bench->runs_done > 0 ? (now - bench->begun_ms) / (double)bench->runs_done : NAN;

    if (isfinite(pace) && pace * (double)bench->runs_left < left)
        left = pace * (double)bench->runs_left;
    return left > 0 ? left : 0;
}

static void show_progress(const struct bench *bench, const struct load_cell *cell, const char *what)
{
    char bar[21];
    double left_s = expected_left_ms(bench) / 1000, spent_s = (ticks_ms() - bench->begun_ms) / 1000;
    double done = isfinite(left_s) ? spent_s / (spent_s + left_s + 1e-9) : 0;

    if (!isatty(STDERR_FILENO)) return;
    memset(bar, ' ', sizeof bar);
    memset(bar, '#', (size_t)(done * 20));
    bar[20] = '\0';
    fprintf(stderr, "\r\033[K[%s] %3.0f %%  %s %s t%g x%d %s", bar, 100 * done, cell->load.form,
            cell->load.mix, cell->load.temperature, cell->load.concurrency, what);
    if (isfinite(left_s)) fprintf(stderr, "  %d:%02d left", (int)left_s / 60, (int)left_s % 60);
}

/* ---- options */

enum { /* rows of the option table that presets change */
       OPTION_FORMS,
       OPTION_MIXES,
       OPTION_TEMPERATURES,
       OPTION_CONCURRENCY,
       OPTION_MINUTES,
       OPTION_BLOCKS
};

struct preset {
    const char *flag, *forms, *mixes, *temperatures, *concurrency, *minutes, *blocks;
};
/* Minutes: a little less than is promised, since a block that has begun is finished. */
static const struct preset presets[] = {
    {"--quick", "BF16", "mixed", "0", "1,4,16", "4", "12"},
    {"--acceptance", "BF16,Q8_0", "mixed,json", "0", "1,4,16", "58", "40"},
};

/* A preset changes defaults: what is given beside it still holds. */
static void take_presets(int argc, char **argv, struct bench_option *options)
{
    for (int i = 1; i < argc; i++)
        for (size_t p = 0; p < sizeof presets / sizeof presets[0]; p++) {
            if (strcmp(argv[i], presets[p].flag) != 0) continue;
            options[OPTION_FORMS].value = presets[p].forms;
            options[OPTION_MIXES].value = presets[p].mixes;
            options[OPTION_TEMPERATURES].value = presets[p].temperatures;
            options[OPTION_CONCURRENCY].value = presets[p].concurrency;
            options[OPTION_MINUTES].value = presets[p].minutes;
            options[OPTION_BLOCKS].value = presets[p].blocks;
        }
}

/* 0, or 2 after complaining. */
static int read_options(struct bench *bench, const struct bench_option *options)
{
    struct load_grid *grid = &bench->grid;
    const char *prompts = bench_text(options, "prompts");
    long minutes = bench_number(options, "minutes", 0, 100000);
    char *cause = NULL;

    bench->policies.max_draft = (int)bench_number(options, "max-draft", 1, LOAD_MOST_DRAFT);
    bench->blocks = (int)bench_number(options, "blocks", 1, LOAD_MOST_BLOCKS);
    bench->tokens = (int)bench_number(options, "tokens", 16, 4096);
    bench->threads = (int)bench_number(options, "threads", 0, 1024);
    bench->deadline_ms = minutes > 0 ? ticks_ms() + 60000.0 * (double)minutes : INFINITY;
    grid->levels = bench_list(options, "concurrency", 1, LOAD_MOST_CONCURRENCY, grid->concurrency,
                              LOAD_MOST_LEVELS);
    for (size_t i = 0; i < grid->levels; i++)
        if (grid->concurrency[i] > bench->parallel) bench->parallel = (int)grid->concurrency[i];
    if (!load_grid_read(grid, bench_text(options, "forms"), bench_text(options, "mixes"),
                        bench_text(options, "temperatures")))
        return 2;
    bench->prompts = bench_read_prompts(prompts, &bench->prompt);
    if (bench->prompts < 0 || !load_grid_has_prompts(grid, bench->prompt, bench->prompts, prompts))
        return 2;
    bench->draft = bench_text(options, "draft");
    bench->target = bench_text(options, "target");
    if (!bench->target) bench->target = bench->own_target = load_form_target(&cause);
    bench->database = bench_text(options, "db");
    if (!bench->database) bench->database = bench->own_database = load_default_database();
    if (bench->target && bench->database) return 0;
    fail(cause ? cause : strdup("HOME is not set; name a file for the results with --db"));
    return 2;
}

/* ---- the grid and what is stored of it */

static bool make_cells(struct bench *bench)
{
    const struct load_grid *grid = &bench->grid;
    struct load_cell *cell;

    bench->cells = grid->forms * grid->temperatures * grid->mixes * grid->levels;
    bench->cell = cell = calloc(bench->cells, sizeof *cell);
    if (!cell) return false;
    for (size_t f = 0; f < grid->forms; f++)
        for (size_t t = 0; t < grid->temperatures; t++)
            for (size_t m = 0; m < grid->mixes; m++)
                for (size_t c = 0; c < grid->levels; c++, cell++) {
                    cell->load =
                        (struct bench_cell){grid->form[f].name, grid->mix[m], grid->temperature[t],
                                            (int)grid->concurrency[c]};
                    cell->policies = bench->policies;
                    load_cell_clear(cell);
                }
    return true;
}

/* Whatever the figures of all forms depend on; a new object. */
static json_t *describe(const struct bench *bench, const char *prompts)
{
    char draft[LOAD_DIGEST_SIZE], texts[LOAD_DIGEST_SIZE], hardware[128];

    load_file_digest(bench->draft, draft);
    load_file_digest(prompts, texts);
    cost_cache_hardware(hardware, sizeof hardware);
    return json_pack("{s:s s:s s:s s:o s:s s:s s:i s:i s:i s:i}", "hardware", hardware, "engine",
                     lm_engine_build(), "version", PACKAGE_VERSION, "build", load_build_digest(),
                     "draft", draft, "prompts", texts, "threads", bench->threads, "parallel",
                     bench->parallel, "max_draft", bench->policies.max_draft, "tokens",
                     bench->tokens);
}

/* Find or make a form, and name what its figures depend on. */
static int prepare_form(struct bench *bench, struct load_form *form, const json_t *about)
{
    char digest[LOAD_DIGEST_SIZE], *cause = NULL;
    json_t *configuration;

    form->path = load_form_path(bench->target, form->name);
    if (!form->path) return fail(strdup("HOME is not set; there is no place for the forms"));
    show_opening(form, "making this form of the target", 0);
    if (load_form_make(bench->target, form->path, form->name, bench->threads, &cause) != 0) {
        clear_progress();
        return fail(cause);
    }
    load_file_digest(form->path, digest);
    configuration = json_deep_copy(about);
    json_object_set_new(configuration, "target", json_string(digest));
    form->configuration = json_dumps(configuration, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(configuration);
    return form->configuration ? 0 : fail(NULL);
}

static void take_block(void *state, const char *policy, const struct bench_block *block)
{
    struct load_cell *cell = state;
    int index = load_policy_parse(&cell->policies, policy);

    if (index >= 0 && block->block >= 1 && block->block <= LOAD_MOST_BLOCKS && block->seconds > 0)
        cell->tps[index][block->block - 1] = (double)block->tokens / block->seconds;
}

static struct load_cell *cells_of(const struct bench *bench, size_t form, size_t *count)
{
    *count = bench->cells / bench->grid.forms;
    return &bench->cell[form * *count];
}

static int recall_cell(struct bench_store *store, struct load_cell *cell, char **cause)
{
    if (bench_store_each_block(store, &cell->load, take_block, cell, cause) != 0) return -1;
    return bench_store_get_ratios(store, &cell->load, LOAD_ORACLE, &cell->oracle_to_best,
                                  &cell->oracle_to_off, cause);
}

/* Read what an earlier run of the same command finished, or forget it. */
static int recall_form(struct bench *bench, size_t form, bool fresh)
{
    char *cause = NULL;
    size_t count;
    struct load_cell *cell = cells_of(bench, form, &count);
    struct bench_store *store =
        bench_store_open(bench->database, bench->grid.form[form].configuration, &cause);
    int status = store ? 0 : -1;

    for (size_t i = 0; i < count && status == 0; i++)
        status = fresh ? bench_store_forget(store, &cell[i].load, &cause)
                       : recall_cell(store, &cell[i], &cause);
    bench_store_close(store);
    return status == 0 ? 0 : fail(cause);
}

/* ---- a cell */

static long runs_left(const struct bench *bench, const struct load_cell *cell)
{
    long left = 0;

    for (int block = 1; block <= bench->blocks; block++)
        for (int policy = 0; policy < load_policy_count(&cell->policies); policy++)
            left += !isfinite(cell->tps[policy][block - 1]) && load_cell_wants(cell, policy, block);
    return left;
}

static int store_results(struct bench *bench, const struct load_cell *cell, char **cause)
{
    struct load_summary summary;
    int status = 0;

    load_cell_summarize(cell, &summary);
    for (int row = 0; row < summary.count && status == 0; row++)
        status = bench_store_put_result(bench->store, &cell->load, &summary.row[row], cause);
    return status;
}

/* What the next block of these policies will take: their parts of this one's wall time. */
static void note_times(struct bench *bench, const bool *ran, const struct bench_block *out,
                       double wall_ms)
{
    double sum = 0;

    for (int policy = 0; policy < load_policy_count(&bench->policies); policy++)
        if (ran[policy]) sum += out[policy].seconds;
    for (int policy = 0; policy < load_policy_count(&bench->policies); policy++) {
        if (!ran[policy]) continue;
        bench->run_ms[policy] = wall_ms * out[policy].seconds / sum;
        bench->runs_done++;
        bench->runs_left--;
    }
}

/* The wanted policies over one block, and into the store. As load_server_run. */
static int run_policies(struct bench *bench, struct load_cell *cell, const bool *wanted,
                        const struct load_requests *requests)
{
    struct bench_block out[LOAD_MOST_POLICIES];
    double begun = ticks_ms();
    char *cause = NULL;
    int status = load_server_run(bench->server, wanted, requests, out, &cause);

    for (int policy = 0; policy < load_policy_count(&cell->policies) && status == 0; policy++) {
        char name[LOAD_POLICY_NAME];

        if (!wanted[policy]) continue;
        load_policy_name(&cell->policies, policy, name, sizeof name);
        take_block(cell, name, &out[policy]);
        status = bench_store_put_block(bench->store, &cell->load, name, &out[policy], &cause);
    }
    if (status == 0) note_times(bench, wanted, out, ticks_ms() - begun);
    if (status >= 0) return status;
    clear_progress();
    return fail(cause);
}

/* A block that lacks a policy is run as a whole: policies are compared that ran side by side. */
static int run_block(struct bench *bench, struct load_cell *cell, struct load_requests *requests)
{
    bool wanted[LOAD_MOST_POLICIES], lacking = false;
    char what[64], *cause = NULL;
    int count = 0, status = 0;

    for (int policy = 0; policy < load_policy_count(&cell->policies); policy++) {
        wanted[policy] = load_cell_wants(cell, policy, requests->block);
        count += wanted[policy];
        lacking |= wanted[policy] && !isfinite(cell->tps[policy][requests->block - 1]);
    }
    snprintf(what, sizeof what, "block %d, %d policies", requests->block, count);
    show_progress(bench, cell, what);
    if (lacking) status = run_policies(bench, cell, wanted, requests);
    if (status >= 0 && store_results(bench, cell, &cause) != 0) status = fail(cause);
    return status;
}

/* Serve the load untimed until the adaptive loop has settled on it, at most until `until_ms`. */
static int warm_up(struct bench *bench, const struct load_cell *cell,
                   struct load_requests *requests, double until_ms)
{
    const int adaptive = load_policy_adaptive(&cell->policies);
    bool wanted[LOAD_MOST_POLICIES] = {false};
    char *cause = NULL;
    int64_t steps = 0;
    int status = 0;

    wanted[adaptive] = true;
    for (int round = 0; status == 0 && steps < WARM_STEPS && ticks_ms() < until_ms; round++) {
        struct bench_block out[LOAD_MOST_POLICIES];

        show_progress(bench, cell, "warm-up");
        requests->block =
            LOAD_MOST_BLOCKS + 1 + round; /* prompts that the next blocks do not use */
        status = load_server_run(bench->server, wanted, requests, out, &cause);
        if (status == 0) steps += out[adaptive].steps > 0 ? out[adaptive].steps : 1;
    }
    if (status < 0) {
        clear_progress();
        fail(cause);
    }
    return status;
}

/* Wall time of the next block, as far as it is known. */
static double block_ms(const struct bench *bench, const struct load_cell *cell, int block)
{
    double sum = 0;

    for (int policy = 0; policy < load_policy_count(&cell->policies); policy++)
        if (load_cell_wants(cell, policy, block)) sum += bench->run_ms[policy];
    return sum;
}

/* The prompts of the cell's mix in the chat template. (count), or NULL with *cause. */
static char **make_prompts(const struct bench *bench, const struct load_cell *cell, int *count,
                           char **cause)
{
    char **texts = calloc((size_t)bench->prompts, sizeof *texts);

    *count = 0;
    for (int i = 0; texts && i < bench->prompts; i++) {
        if (!load_in_mix(&bench->prompt[i], cell->load.mix)) continue;
        texts[*count] = load_server_chat(bench->server, bench->prompt[i].text, cause);
        if (texts[*count]) {
            ++*count;
            continue;
        }
        while (*count > 0) free(texts[--*count]);
        free(texts);
        return NULL;
    }
    return texts;
}

/* The mix's trace, recorded once a form. As load_server_run. */
static int record_mix(struct bench *bench, const struct load_cell *cell, struct mix_trace *mix)
{
    const char **prompts = calloc((size_t)bench->prompts, sizeof *prompts);
    struct load_texts texts = {
        .prompt = prompts, .tokens = bench->tokens, .max_draft = cell->policies.max_draft};
    char *cause = NULL;

    for (int i = 0; prompts && i < bench->prompts; i++)
        if (load_in_mix(&bench->prompt[i], cell->load.mix))
            prompts[texts.count++] = bench->prompt[i].text;
    show_progress(bench, cell, "recording for the oracle");
    trace_set_free(mix->traces);
    mix->name = cell->load.mix;
    mix->traces = prompts ? load_server_record(bench->server, &texts, &cause) : NULL;
    free(prompts);
    if (mix->traces) return 0;
    if (load_stopped) return 1;
    clear_progress();
    return fail(cause);
}

/* The oracle's bound of a greedy cell, by the costs as they are known now. Others have none: what
 * would have been accepted depends on the rule, and a trace holds that of another one. */
static int bound_cell(struct bench *bench, struct load_cell *cell, struct mix_trace *mix)
{
    char *cause = NULL;
    int status = 0;

    if (cell->load.temperature > 0) return 0;
    if (mix->name != cell->load.mix) status = record_mix(bench, cell, mix);
    if (status != 0) return status;
    if (!load_oracle_bound(mix->traces, load_server_cost(bench->server), cell)) return fail(NULL);
    return store_results(bench, cell, &cause) == 0 ? 0 : fail(cause);
}

/* How much of the time is this cell's, as parts of the others': a block of many requests takes
 * longer. */
static double weight_of(const struct load_cell *cell)
{
    return fmax(cell->load.concurrency / 8.0, 1);
}

static double share_ms_of(const struct bench *bench, const struct load_cell *cell, double now)
{
    double all = 0;

    for (size_t i = bench->cells_done; i < bench->cells; i++) all += weight_of(&bench->cell[i]);
    return (bench->deadline_ms - now) * weight_of(cell) / all;
}

static int run_cell(struct bench *bench, struct load_cell *cell)
{
    double now = ticks_ms(), share_ms = share_ms_of(bench, cell, now);
    char *cause = NULL;
    int count, status;
    char **texts = make_prompts(bench, cell, &count, &cause);
    struct load_requests requests = {.prompt = texts,
                                     .prompts = count,
                                     .concurrency = cell->load.concurrency,
                                     .tokens = bench->tokens,
                                     .temperature = (float)cell->load.temperature};

    if (!texts) return fail(cause);
    memset(bench->run_ms, 0, sizeof bench->run_ms);
    status = warm_up(bench, cell, &requests, now + share_ms / 4);
    for (int block = 1; status == 0 && block <= bench->blocks; block++) {
        /* Two blocks are the least that gives a ratio. */
        if (block > 2 && ticks_ms() + block_ms(bench, cell, block) > now + share_ms) break;
        requests.block = block;
        status = run_block(bench, cell, &requests);
    }
    for (int i = 0; i < count; i++) free(texts[i]);
    free(texts);
    return status;
}

/* All cells of a form that are not complete: one server, as long as they last. */
static int run_form(struct bench *bench, size_t index)
{
    struct load_form *form = &bench->grid.form[index];
    struct load_server_options options = {.target = form->path,
                                          .draft = bench->draft,
                                          .parallel = bench->parallel,
                                          .max_draft = bench->policies.max_draft,
                                          .threads = bench->threads,
                                          .progress = show_opening,
                                          .state = form};
    char *cause = NULL;
    size_t count;
    struct load_cell *cell = cells_of(bench, index, &count);
    struct mix_trace mix = {NULL, NULL};
    int status = 0;

    for (size_t i = 0; i < count && status == 0; i++, bench->cells_done++) {
        long left = runs_left(bench, &cell[i]), runs = bench->runs_left;

        if (left == 0 && (cell[i].load.temperature > 0 || isfinite(cell[i].oracle_to_best)))
            continue;
        if (!bench->server) {
            bench->server = load_server_open(&options, &cause);
            if (bench->server)
                bench->store = bench_store_open(bench->database, form->configuration, &cause);
            clear_progress();
            if (!bench->store) status = fail(cause);
        }
        if (status == 0) status = load_stopped ? 1 : run_cell(bench, &cell[i]);
        if (status == 0) status = bound_cell(bench, &cell[i], &mix);
        bench->runs_left = runs - left; /* what a cell leaves out is not waited for */
    }
    trace_set_free(mix.traces);
    bench_store_close(bench->store);
    bench->store = NULL;
    load_server_close(bench->server);
    bench->server = NULL;
    return status;
}

static int run_grid(struct bench *bench, const json_t *about, bool fresh)
{
    int status = 0;

    for (size_t f = 0; f < bench->grid.forms && status == 0; f++)
        if (prepare_form(bench, &bench->grid.form[f], about) != 0 ||
            recall_form(bench, f, fresh) != 0)
            status = -1;
    clear_progress();
    for (size_t i = 0; i < bench->cells; i++) bench->runs_left += runs_left(bench, &bench->cell[i]);
    bench->begun_ms = ticks_ms();
    for (size_t f = 0; f < bench->grid.forms && status == 0; f++) status = run_form(bench, f);
    clear_progress();
    return status;
}

static void stop(int signal)
{
    (void)signal;
    load_stopped = 1;
}

/* The first signal ends the run at the next step; a second one ends the program. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = stop, .sa_flags = (int)SA_RESETHAND};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static void free_bench(struct bench *bench)
{
    for (size_t f = 0; f < bench->grid.forms; f++) {
        free(bench->grid.form[f].path);
        free(bench->grid.form[f].configuration);
    }
    if (bench->prompts > 0) bench_free_prompts(bench->prompt, bench->prompts);
    free(bench->cell);
    free(bench->own_target);
    free(bench->own_database);
}

int bench_load(int argc, char **argv)
{
    struct bench_option options[] = {
        [OPTION_FORMS] = {"forms", "LIST", "forms of the target; as-is = its file as it is",
                          "BF16,Q8_0,Q4_0"},
        [OPTION_MIXES] = {"mixes", "LIST", "categories of prompts, or mixed",
                          "chat,code,json,mixed"},
        [OPTION_TEMPERATURES] = {"temperatures", "LIST", "0 = greedy", "0,1"},
        [OPTION_CONCURRENCY] = {"concurrency", "LIST", "requests at a time", "1,2,4,8,16,32"},
        [OPTION_MINUTES] = {"minutes", "N", "end after so long; 0 = when all is done", "0"},
        [OPTION_BLOCKS] = {"blocks", "N", "most blocks a cell", "12"},
        {"quick", NULL, "BF16, mixed, greedy, 1, 4 and 16 requests, within 5 minutes", NULL},
        {"acceptance", NULL,
         "BF16 and Q8_0, mixed and json, greedy, 1, 4 and 16 requests, within 60 minutes", NULL},
        {"target", "FILE",
         "target (GGUF) of which the forms are made; the default one if not given", NULL},
        {"draft", "FILE", "draft model (GGUF)", PKGDATADIR "/smollm2-draft-9m-q8_0.gguf"},
        {"prompts", "FILE", "JSON Lines of {\"category\", \"prompt\"}",
         PKGDATADIR "/bench-prompts.jsonl"},
        {"tokens", "N", "tokens a request", "64"},
        {"max-draft", "N", "fixed K from 1 to this, and the most that adaptive drafts", "6"},
        {"threads", "N", "threads; 0 = one a processor", "0"},
        {"db", "FILE", "where results are kept; bench.db in the state folder if not given", NULL},
        {"fresh", NULL, "forget what the same command measured before", NULL},
        {"json", NULL, "one JSON object in place of tables", NULL},
    };
    struct bench bench = {0};
    json_t *about = NULL;
    int status;

    take_presets(argc, argv, options);
    status = bench_options(argc, argv, "load [OPTION]…", options,
                           sizeof options / sizeof options[0], NULL, 0);
    if (status != 0) return status > 0 ? 0 : 2;
    status = read_options(&bench, options);
    if (status == 0) {
        catch_signals();
        about = describe(&bench, bench_text(options, "prompts"));
        status = about && make_cells(&bench) ? 0 : fail(NULL);
    }
    if (status == 0) {
        status = run_grid(&bench, about, bench_text(options, "fresh") != NULL);
        if (status > 0)
            fprintf(stderr, "trimtab bench load: stopped; the same command goes on from here\n");
        json_object_set_new(about, "schema", json_string("trimtab.bench.load/1"));
        if (bench_text(options, "json"))
            load_report_json(stdout, bench.cell, bench.cells, about);
        else
            load_report_print(stdout, bench.cell, bench.cells);
        status = status < 0 ? 1 : status > 0 ? STATUS_STOPPED : 0;
    }
    json_decref(about);
    free_bench(&bench);
    return status < 0 ? 1 : status;
}
