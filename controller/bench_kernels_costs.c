/* bench_kernels_costs.c - what one call of libtrimtab costs: an estimator's and the allocator's
 * decisions, and the work on one row.
 *
 * A call is repeated until it fills SAMPLE_US; a figure is the median over such samples. Rows come
 * from the working set of bench_kernels_rows.c in turn, so that they are not in a cache.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/bench_kernels.h"
#include "controller/ticks.h"

#define SAMPLE_US 2000
#define BLOCK_DRAFTS 4 /* of a verified block */
#define ROW_SETS 64    /* rows, or blocks of rows, that a row's cost goes over in turn */
#define KEY 1

static const int request_counts[] = {1, 64, 1024}, position_counts[] = {4, 16};
#define COUNT(ARRAY) (sizeof(ARRAY) / sizeof(ARRAY)[0])

/* ---- timing */

/* One call; it says how many units (decisions, rows) that was. */
typedef double (*kernel_call)(void *context);

static double sample_ns(kernel_call call, void *context)
{
    const int64_t begun = ticks_us();
    double units = 0;
    int64_t now;

    do {
        units += call(context);
        now = ticks_us();
    } while (now - begun < SAMPLE_US);
    return 1000.0 * (double)(now - begun) / units;
}

static void measure(struct kernel_bench *bench, kernel_call call, void *context,
                    struct kernel_cost cost, struct kernel_cost *costs, size_t *count)
{
    double ns[KERNEL_BLOCKS_MAX];

    (void)sample_ns(call, context); /* warms up */
    for (int block = 0; block < bench->blocks; block++) ns[block] = sample_ns(call, context);
    cost.ns = bench_median(ns, bench->blocks);
    kernel_progress(bench, cost.operation);
    if (*count < KERNEL_COSTS_MAX) costs[(*count)++] = cost;
}

/* ---- decisions */

struct step { /* one step of `requests` requests with `positions` drafts each */
    int requests, positions;
    tt_estimator *estimator;
    float *feature;              /* (positions, requests) */
    double *probability;         /* (positions, requests) */
    double *survival;            /* (requests, positions) */
    int32_t *drafted, *admitted; /* (requests) */
    uint64_t turn;
};

static double call_predict(void *context)
{
    struct step *step = context;

    for (int k = 0; k < step->positions; k++) {
        const size_t at = (size_t)k * (size_t)step->requests;

        kernel_require(tt_estimator_predict(step->estimator, k, step->feature + at,
                                            (size_t)step->requests, step->probability + at),
                       NULL, "predict");
    }
    return step->requests;
}

/* Survivals of every request, then half of all drafts. */
static double call_allocate(void *context)
{
    struct step *step = context;
    const size_t positions = (size_t)step->positions;

    for (int r = 0; r < step->requests; r++)
        kernel_require(tt_survival(step->probability + (size_t)r * positions, positions,
                                   step->survival + (size_t)r * positions),
                       NULL, "survival");
    if (tt_allocate(step->survival, (size_t)step->requests, positions, step->drafted,
                    (int64_t)step->requests * step->positions / 2, step->admitted) < 0)
        kernel_require(TT_EINVAL, NULL, "allocate");
    return step->requests;
}

/* A step's labels and the refit that ends it (the estimator refits at every step here). */
static double call_refit(void *context)
{
    struct step *step = context;
    const size_t stride = (size_t)step->positions;

    for (int r = 0; r < step->requests; r++) {
        const struct tt_observation observation = {
            .feature = step->feature + (size_t)r * stride,
            .admitted = step->positions,
            .accepted = (int32_t)(step->turn++ % ((uint64_t)step->positions + 1))};

        kernel_require(tt_estimator_observe(step->estimator, &observation), NULL, "observe");
    }
    if (tt_estimator_end_step(step->estimator) < 0) kernel_require(TT_EINVAL, NULL, "refit");
    return step->requests;
}

static void step_open(struct step *step, enum tt_estimator_kind kind)
{
    const size_t all = (size_t)step->requests * (size_t)step->positions;
    const struct tt_estimator_options options = {.kind = kind,
                                                 .positions = step->positions,
                                                 .refit_interval_steps = 1,
                                                 .prior_slope = NAN,
                                                 .prior_level = NAN};

    step->feature = calloc(all, sizeof *step->feature);
    step->probability = calloc(all, sizeof *step->probability);
    step->survival = calloc(all, sizeof *step->survival);
    step->drafted = calloc((size_t)step->requests, sizeof *step->drafted);
    step->admitted = calloc((size_t)step->requests, sizeof *step->admitted);
    if (!step->feature || !step->probability || !step->survival || !step->drafted ||
        !step->admitted)
        kernel_require(TT_ENOMEM, NULL, "decisions");
    kernel_require(tt_estimator_new(&step->estimator, &options), NULL, "an estimator");
    for (size_t i = 0; i < all; i++) {
        step->feature[i] = (float)(6 * tt_uniform(KEY, i, 0, TT_DRAFT) - 2);
        step->probability[i] = tt_uniform(KEY, i, 1, TT_DRAFT);
    }
    for (int r = 0; r < step->requests; r++) step->drafted[r] = step->positions;
}

static void step_close(struct step *step)
{
    tt_estimator_free(step->estimator);
    free(step->feature);
    free(step->probability);
    free(step->survival);
    free(step->drafted);
    free(step->admitted);
}

static void costs_of_step(struct kernel_bench *bench, int requests, int positions,
                          struct kernel_cost *costs, size_t *count)
{
    static const char *const kinds[] = {"online", "parity"};
    struct kernel_cost cost = {.per = "decision", .requests = requests, .positions = positions};

    for (int kind = TT_ONLINE; kind <= TT_PARITY; kind++) {
        struct step step = {.requests = requests, .positions = positions};

        step_open(&step, (enum tt_estimator_kind)kind);
        cost.kind = "";
        cost.operation = "allocate";
        if (kind == TT_ONLINE) measure(bench, call_allocate, &step, cost, costs, count);
        cost.kind = kinds[kind];
        cost.operation = "refit";
        measure(bench, call_refit, &step, cost, costs, count);
        cost.operation = "predict";
        measure(bench, call_predict, &step, cost, costs, count);
        step_close(&step);
    }
}

void kernel_costs_of_decisions(struct kernel_bench *bench, struct kernel_cost *costs, size_t *count)
{
    for (size_t r = 0; r < COUNT(request_counts); r++)
        for (size_t k = 0; k < COUNT(position_counts); k++)
            costs_of_step(bench, request_counts[r], position_counts[k], costs, count);
}

int kernel_count_of_decisions(void)
{
    return (int)(COUNT(request_counts) * COUNT(position_counts) * 5);
}

/* ---- rows */

struct row_turn { /* rows of one type and vocabulary, taken in turn */
    tt *handle;
    struct tt_rows rows; /* all of them */
    size_t sets, at;     /* how many are used, and the next */
    struct tt_row_stats stats[ROW_SETS];
    enum tt_rule rule;
    int32_t tokens[ROW_SETS][BLOCK_DRAFTS];
};

static struct tt_rows row_of(const struct row_turn *turn, size_t index)
{
    struct tt_rows row = turn->rows;

    row.data = (const char *)row.data + index * row.stride * kernel_width(row.dtype);
    row.rows = 1;
    return row;
}

static size_t next_set(struct row_turn *turn)
{
    turn->at = turn->at + 1 < turn->sets ? turn->at + 1 : 0;
    return turn->at;
}

static double call_sample(void *context)
{
    struct row_turn *turn = context;
    const size_t i = next_set(turn);
    const struct tt_rows row = row_of(turn, i);
    int32_t token;

    kernel_require(
        tt_sample(turn->handle, &row, 1.0f, &turn->stats[i], KEY, i, 0, TT_DRAFT, &token),
        turn->handle, "sample");
    return 1;
}

static double call_coupled(void *context)
{
    struct row_turn *turn = context;
    const size_t i = next_set(turn);
    const struct tt_rows row = row_of(turn, i);
    int32_t token;

    kernel_require(tt_sample_coupled(turn->handle, &row, 1.0f, KEY, i, &token), turn->handle,
                   "coupled sample");
    return 1;
}

static double call_statistics(void *context)
{
    struct row_turn *turn = context;
    const struct tt_rows row = row_of(turn, next_set(turn));
    struct tt_row_stats stats;

    kernel_require(tt_row_statistics(turn->handle, &row, NULL, &stats), turn->handle,
                   "row statistics");
    return 1;
}

static float *block_of(const struct row_turn *turn, size_t set)
{
    char *data = (char *)(uintptr_t)turn->rows.data;

    return (float *)(void *)(data + set * (BLOCK_DRAFTS + 1) * turn->rows.stride * 4);
}

/* A block whose draft law is the target's; per row that was reached. */
static double call_verify(void *context)
{
    struct row_turn *turn = context;
    const size_t set = next_set(turn);
    const struct tt_block block = {.rule = turn->rule,
                                   .target = block_of(turn, set),
                                   .target_stride = turn->rows.stride,
                                   .vocab = turn->rows.vocab,
                                   .draft = block_of(turn, set),
                                   .draft_stride = turn->rows.stride,
                                   .draft_vocab = turn->rows.vocab,
                                   .tokens = turn->tokens[set],
                                   .admitted = BLOCK_DRAFTS,
                                   .temperature = turn->rule == TT_GREEDY ? 0.0f : 1.0f,
                                   .key = KEY};
    struct tt_verdict verdict;

    kernel_require(tt_verify(turn->handle, &block, &verdict), turn->handle, "verify");
    return verdict.accepted + 1;
}

/* Drafts as a drafter of this rule would make them from the same rows. */
static void draft_tokens(struct row_turn *turn)
{
    for (size_t set = 0; set < turn->sets; set++)
        for (size_t k = 0; k < BLOCK_DRAFTS; k++) {
            const struct tt_rows row = row_of(turn, set * (BLOCK_DRAFTS + 1) + k);
            struct tt_row_stats stats;
            int status = tt_row_statistics(turn->handle, &row, NULL, &stats);

            if (!status && turn->rule == TT_COUPLED)
                status = tt_sample_coupled(turn->handle, &row, 1.0f, KEY, k, &turn->tokens[set][k]);
            else if (!status && turn->rule == TT_RATIO)
                status = tt_sample(turn->handle, &row, 1.0f, &stats, KEY, k, (uint32_t)k, TT_DRAFT,
                                   &turn->tokens[set][k]);
            else
                turn->tokens[set][k] = stats.argmax;
            kernel_require(status, turn->handle, "drafts");
        }
}

static void use_sets(struct row_turn *turn, size_t rows_a_set)
{
    const size_t sets = turn->rows.rows / rows_a_set;

    turn->sets = sets < ROW_SETS ? sets : ROW_SETS;
    turn->at = 0;
}

static void costs_of_verification(struct kernel_bench *bench, struct row_turn *turn,
                                  struct kernel_cost cost, struct kernel_cost *costs, size_t *count)
{
    static const char *const rules[] = {"greedy", "point_mass", "ratio", "coupled"};

    use_sets(turn, BLOCK_DRAFTS + 1);
    cost.operation = "verify";
    for (int rule = TT_GREEDY; rule <= TT_COUPLED; rule++) {
        cost.kind = rules[rule];
        turn->rule = (enum tt_rule)rule;
        draft_tokens(turn);
        measure(bench, call_verify, turn, cost, costs, count);
    }
}

static void costs_of_type(struct kernel_bench *bench, const char *isa, size_t vocab,
                          enum tt_dtype dtype, struct kernel_cost *costs, size_t *count)
{
    struct row_turn *turn = calloc(1, sizeof *turn);
    struct kernel_cost cost = {
        .per = "row", .isa = isa, .vocab = vocab, .kind = kernel_type_name(dtype)};

    if (!turn) kernel_require(TT_ENOMEM, NULL, "rows");
    turn->rows = (struct tt_rows){bench->data, dtype, bench->bytes / (vocab * kernel_width(dtype)),
                                  vocab, vocab};
    turn->handle = kernel_open(bench, isa, vocab, ROW_SETS);
    use_sets(turn, 1);
    cost.operation = "statistics";
    measure(bench, call_statistics, turn, cost, costs, count);
    struct tt_rows used = turn->rows;
    used.rows = turn->sets;
    kernel_require(tt_row_statistics(turn->handle, &used, NULL, turn->stats), turn->handle,
                   "row statistics");
    cost.operation = "sample";
    measure(bench, call_sample, turn, cost, costs, count);
    cost.operation = "sample_coupled";
    measure(bench, call_coupled, turn, cost, costs, count);
    if (dtype == TT_F32) costs_of_verification(bench, turn, cost, costs, count);
    tt_close(turn->handle);
    free(turn);
}

void kernel_costs_of_rows(struct kernel_bench *bench, const char *isa, struct kernel_cost *costs,
                          size_t *count)
{
    for (int dtype = TT_F32; dtype < KERNEL_TYPES; dtype++) {
        kernel_rows_fill(bench, (enum tt_dtype)dtype);
        for (size_t v = 0; v < bench->vocabs; v++)
            costs_of_type(bench, isa, (size_t)bench->vocab[v], (enum tt_dtype)dtype, costs, count);
    }
}

int kernel_count_of_rows(const struct kernel_bench *bench)
{
    return (int)bench->vocabs * (KERNEL_TYPES * 3 + 4);
}
