/* golden_vectors.c - replays recorded runs of the released estimator and budget code and compares
 * every number.
 *
 * usage: golden_vectors [DIR]      DIR holds *.json.gz sets; default: the sets of this source tree
 *
 * A set is recognised by its content: a stream (labels, statistics, refits), a closed loop,
 * staleness, budget, features. Format and tolerances: data/vectors/README. Speaks TAP, one line a
 * set, and closes with how many passed and failed.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/parity_body.h"
#include "controller/parity_budget.h"
#include "kernels/trimtab.h"
#include "tests/kernels/golden_features.h"
#include "tests/kernels/golden_set.h"

#define MAX_ROWS 1024
#define K_MAX TT_MAX_POSITIONS

/* -------------------------------------------------------------------------------------- streams */

struct tolerance {
    double coefficient; /* after one refit from the file's own coefficients */
    double statistic;   /* of info, relative to 1 + |x|; of a gradient, to 1 + the sum of its terms'
                           magnitudes */
    double free_run; /* of coefficients, through the public interface, never reset to the file's */
};

/* In a set of a nearly constant feature the released slope is float32 noise: robustness only.
 * Features at +-40 leave p(1-p) with few digits. */
static struct tolerance tolerance_of(const char *scenario)
{
    if (scenario[0] == 'd') return (struct tolerance){3.4e-3, 8e-7, 5e-3};
    if (scenario[0] == 'e') return (struct tolerance){2.1e-6, 2e-5, 1e-5};
    return (struct tolerance){4.5e-7, 8e-7, 1e-5};
}

/* Sums of the magnitudes of a window's gradient terms. A gradient is a difference of large float32
 * sums: what it may be off by is proportional to these, not to itself. */
static double magnitude[K_MAX][2];

static void magnitude_add(const struct parity *parity, const struct tt_observation *observation)
{
    for (int32_t k = 0; k < observation->admitted && k <= observation->accepted; k++) {
        const float f = observation->feature[k];
        const double p = observation->predicted != NULL ? (double)observation->predicted[k]
                                                        : (double)parity_probability(parity, k, f);
        const double residual = fabs((k < observation->accepted ? 1.0 : 0.0) - p);
        if (!isfinite(residual * (double)f)) continue;
        magnitude[k][0] += residual * fabs((double)f);
        magnitude[k][1] += residual;
    }
}

static double statistic_error(double got, double want, double scale)
{
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0.0 : INFINITY;
    return fabs(got - want) / (1.0 + scale);
}

static double compare_statistics(const struct parity *parity, const json_t *want, int32_t positions)
{
    double worst = 0.0;
    for (int32_t k = 0; k < positions; k++) {
        const json_t *info = json_array_get(json_object_get(want, "info"), (size_t)k);
        const json_t *gradient = json_array_get(json_object_get(want, "grad"), (size_t)k);
        for (size_t i = 0; i < 3; i++) {
            const double x = golden_item(info, i);
            worst = fmax(worst,
                         statistic_error((double)parity->window.position[k].info[i], x, fabs(x)));
        }
        for (size_t i = 0; i < 2; i++)
            worst = fmax(worst, statistic_error((double)parity->window.position[k].gradient[i],
                                                golden_item(gradient, i), magnitude[k][i]));
        if (parity->count[k] != (uint64_t)golden_int(want, "counts", (size_t)k))
            golden_fail("position %d: %" PRIu64 " labels, not %d", k, parity->count[k],
                        golden_int(want, "counts", (size_t)k));
    }
    return worst;
}

/* Give one row of a step to both: the module under its own reset, and the public estimator. */
static void observe_row(struct parity *parity, tt_estimator *estimator, const json_t *step,
                        size_t r, int32_t positions)
{
    float feature[K_MAX], stale[K_MAX];
    char key[24];
    golden_floats(json_array_get(json_object_get(step, "f"), r), feature, (size_t)positions);
    struct tt_observation observation = {.feature = feature,
                                         .admitted = golden_int(step, "adm", r),
                                         .accepted = golden_int(step, "acc", r)};
    snprintf(key, sizeof(key), "%zu", r);
    const json_t *predicted = json_object_get(json_object_get(step, "stale_p"), key);
    if (predicted != NULL) {
        golden_floats(predicted, stale, (size_t)positions);
        observation.predicted = stale;
    }
    magnitude_add(parity, &observation);
    parity_observe(parity, &observation);
    if (tt_estimator_observe(estimator, &observation) != TT_OK)
        golden_fail("row %zu was refused", r);
}

struct stream_result {
    double coefficient, statistic, free_run;
    size_t refits, refused;
};

/* Compare the refit that just happened in both, then continue from the file's coefficients. */
static void compare_refit(struct parity *parity, const tt_estimator *estimator, const json_t *want,
                          float slope_before, struct stream_result *result)
{
    struct tt_estimator_report report;
    const json_t *rows = json_object_get(want, "coefficients");
    const json_t *slopes = json_array_get(rows, 0), *intercepts = json_array_get(rows, 1);
    const float slope = (float)golden_item(slopes, 0);
    tt_estimator_report(estimator, &report);
    result->coefficient = fmax(result->coefficient, fabs((double)parity->slope - (double)slope));
    result->free_run = fmax(result->free_run, fabs(report.slope - (double)slope));
    if (slope_before == slope) {
        result->refused++;
        if (parity->slope != slope_before)
            golden_fail("the slope moved where the released one did not");
    }
    parity->slope = slope;
    for (int32_t k = 0; k < parity->positions; k++) {
        const float b = (float)golden_item(intercepts, (size_t)k);
        result->coefficient =
            fmax(result->coefficient, fabs((double)parity->intercept[k] - (double)b));
        result->free_run = fmax(result->free_run, fabs(report.position[k].intercept - (double)b));
        parity->intercept[k] = b;
    }
    result->refits++;
}

static void replay_steps(const json_t *root, struct parity *parity, tt_estimator *estimator,
                         struct stream_result *result)
{
    const json_t *steps = json_object_get(root, "steps"), *refits = json_object_get(root, "refits");
    const int32_t positions = parity->positions;
    for (size_t t = 0; t < json_array_size(steps) && golden_sound(); t++) {
        const json_t *step = json_array_get(steps, t);
        for (size_t r = 0; r < golden_length(step, "idx"); r++)
            observe_row(parity, estimator, step, r, positions);
        /* the statistics just before the solve: close the step in a copy that never solves */
        struct parity before = *parity;
        before.refit_interval_steps = INT32_MAX;
        parity_end_step(&before);
        parity_end_step(parity);
        tt_estimator_end_step(estimator);
        const json_t *after = json_object_get(step, "after");
        if (after != NULL)
            result->statistic =
                fmax(result->statistic, compare_statistics(&before, after, positions));
        const json_t *refit = json_array_get(refits, result->refits);
        if (parity->refits == result->refits) continue;
        if ((size_t)json_integer_value(json_object_get(refit, "after_step")) != t) {
            golden_fail("step %zu: a refit that the file does not have", t);
            return;
        }
        result->statistic =
            fmax(result->statistic,
                 compare_statistics(&before, json_object_get(refit, "stats"), positions));
        compare_refit(parity, estimator, refit, before.slope, result);
        memset(magnitude, 0, sizeof(magnitude));
    }
}

static void replay_stream(const char *name, const json_t *root)
{
    const json_t *meta = json_object_get(root, "meta"), *last = json_object_get(root, "final");
    const int32_t positions = (int32_t)json_integer_value(json_object_get(meta, "K"));
    const struct tolerance tolerance = tolerance_of(name);
    const struct tt_estimator_options options = {
        .kind = TT_PARITY, .positions = positions, .prior_slope = NAN, .prior_level = NAN};
    struct stream_result result = {0};
    struct parity parity;
    tt_estimator *estimator = NULL;
    char summary[160];

    if (tt_estimator_new(&estimator, &options) != TT_OK)
        golden_fail("K = %d is refused", positions);
    else {
        memset(magnitude, 0, sizeof(magnitude));
        parity_init(&parity, positions, PARITY_REFIT_INTERVAL_STEPS);
        replay_steps(root, &parity, estimator, &result);
        result.statistic = fmax(result.statistic, compare_statistics(&parity, last, positions));
    }
    tt_estimator_free(estimator);
    if (result.refits != golden_length(root, "refits") || result.refits == 0)
        golden_fail("%zu refits, not %zu", result.refits, golden_length(root, "refits"));
    if (!(result.coefficient <= tolerance.coefficient))
        golden_fail("a coefficient is %.2e off, more than %.1e", result.coefficient,
                    tolerance.coefficient);
    if (!(result.statistic <= tolerance.statistic))
        golden_fail("a statistic is %.2e off, more than %.1e", result.statistic,
                    tolerance.statistic);
    if (!(result.free_run <= tolerance.free_run))
        golden_fail("free run: a coefficient is %.2e off, more than %.1e", result.free_run,
                    tolerance.free_run);
    snprintf(
        summary, sizeof(summary),
        "%zu refits (%zu slopes refused), coefficients within %.1e (free %.1e), statistics %.1e",
        result.refits, result.refused, result.coefficient, result.free_run, result.statistic);
    golden_tap_line(name, summary);
}

/* --------------------------------------------------------------------------------------- budget */

struct table {
    double *entry;
    size_t count;
};

static struct table build_table(const json_t *curve, int32_t capture_limit, size_t entries)
{
    const size_t points = json_array_size(curve);
    struct parity_cost_point *point = calloc(points + 1, sizeof(*point));
    struct table table = {calloc(entries, sizeof(double)), entries};
    if (point == NULL || table.entry == NULL || points == 0) abort();
    for (size_t i = 0; i < points; i++) {
        point[i].size = (int32_t)golden_item(json_array_get(curve, i), 0);
        point[i].ms = golden_item(json_array_get(curve, i), 1);
    }
    parity_table_build(point, points, capture_limit, table.entry, entries);
    free(point);
    return table;
}

static void compare_table(const struct table *table, const json_t *want, const char *what)
{
    if (json_array_size(want) > table->count) golden_fail("%s: wrong length", what);
    for (size_t i = 0; i < json_array_size(want); i++) {
        if (!(fabs(table->entry[i] - golden_item(want, i)) <= 1e-12))
            golden_fail("%s[%zu] is %.17g, not %.17g", what, i, table->entry[i],
                        golden_item(want, i));
    }
}

static void override_table(struct table *table, const char *how)
{
    const double first = table->entry[0];
    if (how == NULL) return;
    for (size_t i = 0; i < table->count; i++) {
        if (strcmp(how, "flat") == 0)
            table->entry[i] = first;
        else if (strcmp(how, "decreasing") == 0)
            table->entry[i] = 1.0 - 0.5 * (double)i / (double)table->count;
        else if (strcmp(how, "steep") == 0)
            table->entry[i] = first + 0.5 * (double)i;
        else
            golden_fail("unknown table override %s", how);
    }
}

/* Admit the best `budget` drafts by these confidences. */
static void allocate(const float *confidence, size_t rows, size_t positions, const int32_t *drafted,
                     int64_t budget, int32_t *admitted)
{
    double *survival = calloc(rows * positions + 1, sizeof(*survival));
    if (survival == NULL) abort();
    for (size_t r = 0; r < rows; r++) {
        double *row = survival + r * positions;
        for (size_t k = 0; k < positions; k++) row[k] = (double)confidence[r * positions + k];
        if (tt_survival(row, positions, row) != TT_OK)
            golden_fail("a confidence is outside [0, 1]");
    }
    const int count = tt_allocate(survival, rows, positions, drafted, budget, admitted);
    if (count != budget) golden_fail("%d drafts admitted of a budget of %" PRId64, count, budget);
    free(survival);
}

static void replay_budget_case(const json_t *one, const json_t *table_json)
{
    static float stale[MAX_ROWS * K_MAX], live[MAX_ROWS * K_MAX];
    static double scratch[MAX_ROWS * K_MAX];
    int32_t drafted[MAX_ROWS], non_draft[MAX_ROWS], tokens[MAX_ROWS], admitted[MAX_ROWS];
    int32_t starts[MAX_ROWS + 1] = {0}, logits[MAX_ROWS + 1] = {0};
    const size_t rows = golden_length(one, "slots");
    const size_t positions = (size_t)json_integer_value(json_object_get(one, "K"));
    if (rows > MAX_ROWS || positions > K_MAX) abort();
    int64_t base = 0;
    golden_ints(one, "drafts", drafted, rows);
    golden_ints(one, "non_draft", non_draft, rows);
    for (size_t r = 0; r < rows; r++) {
        golden_floats(json_array_get(json_object_get(one, "stale"), r), stale + r * positions,
                      positions);
        golden_floats(json_array_get(json_object_get(one, "live"), r), live + r * positions,
                      positions);
        base += non_draft[r];
    }
    struct table draft = build_table(json_object_get(table_json, "draft_curve"), 0,
                                     golden_length(table_json, "draft_table"));
    struct table verify =
        build_table(json_object_get(table_json, "verify_curve"),
                    (int32_t)json_integer_value(json_object_get(table_json, "capture_limit")),
                    golden_length(table_json, "verify_table"));
    override_table(&verify, json_string_value(json_object_get(one, "table_override")));
    const json_t *cap = json_object_get(one, "max_total_logits");
    const struct parity_budget_request request = {
        .confidence = stale,
        .rows = rows,
        .positions = positions,
        .drafted = drafted,
        .base_tokens = base,
        .sampling_requests = json_integer_value(json_object_get(one, "sampling_requests")),
        .max_logits = json_is_null(cap) ? -1 : json_integer_value(cap),
        .draft_table = draft.entry,
        .verify_table = verify.entry,
        .draft_entries = draft.count,
        .verify_entries = verify.count};
    const int64_t budget = parity_budget_choose(&request, scratch);
    golden_expect_integer(one, "budget", budget);
    golden_expect_integer(one, "num_tokens", base + budget);
    parity_budget_split(drafted, non_draft, rows, budget, tokens);
    golden_expect_ints(one, "cpu_lens", tokens, rows);
    allocate(live, rows, positions, drafted, budget, admitted);
    golden_expect_ints(one, "admitted", admitted, rows);
    for (size_t r = 0; r < rows; r++) {
        starts[r + 1] = starts[r] + non_draft[r] + admitted[r];
        logits[r + 1] = logits[r] + 1 + admitted[r];
    }
    golden_expect_ints(one, "query_start_loc", starts, rows + 1);
    golden_expect_ints(one, "cu_num_logits", logits, rows + 1);
    free(draft.entry);
    free(verify.entry);
}

static void replay_budget(const char *name, const json_t *root)
{
    const json_t *tables = json_object_get(root, "tables"), *cases = json_object_get(root, "cases");
    char summary[120];
    for (size_t i = 0; i < json_array_size(tables); i++) {
        const json_t *one = json_array_get(tables, i);
        const json_t *draft_want = json_object_get(one, "draft_table");
        const json_t *verify_want = json_object_get(one, "verify_table");
        struct table draft =
            build_table(json_object_get(one, "draft_curve"), 0, json_array_size(draft_want));
        struct table verify =
            build_table(json_object_get(one, "verify_curve"),
                        (int32_t)json_integer_value(json_object_get(one, "capture_limit")),
                        json_array_size(verify_want));
        compare_table(&draft, draft_want, "draft_table");
        compare_table(&verify, verify_want, "verify_table");
        free(draft.entry);
        free(verify.entry);
    }
    for (size_t i = 0; i < json_array_size(cases) && golden_sound(); i++) {
        const json_t *one = json_array_get(cases, i);
        replay_budget_case(
            one, json_array_get(tables, (size_t)json_integer_value(json_object_get(one, "table"))));
    }
    if (json_array_size(cases) == 0) golden_fail("no cases");
    snprintf(summary, sizeof(summary), "%zu cost tables, %zu budgets and allocations",
             json_array_size(tables), json_array_size(cases));
    golden_tap_line(name, summary);
}

/* ------------------------------------------------------------------------------------ staleness */

static void replay_staleness(const char *name, const json_t *root)
{
    const json_t *meta = json_object_get(root, "meta"), *steps = json_object_get(root, "steps");
    const size_t positions = (size_t)json_integer_value(json_object_get(meta, "K"));
    struct parity_confidences store;
    char summary[80];
    if (parity_confidences_init(&store, (size_t)json_integer_value(json_object_get(meta, "slots")),
                                positions) != 0)
        abort();
    for (size_t t = 0; t < json_array_size(steps); t++) {
        const json_t *step = json_array_get(steps, t);
        for (size_t i = 0; i < golden_length(step, "added"); i++)
            parity_confidences_add(&store, (size_t)golden_int(step, "added", i));
        for (size_t r = 0; r < golden_length(step, "batch"); r++) {
            const size_t slot = (size_t)golden_int(step, "batch", r);
            golden_expect_floats(parity_confidences_for_budget(&store, slot),
                                 json_array_get(json_object_get(step, "budget_reads"), r),
                                 positions, 0.0, "budget reads", t);
            golden_expect_floats(parity_confidences_for_allocation(&store, slot),
                                 json_array_get(json_object_get(step, "allocation_reads"), r),
                                 positions, 0.0, "allocation reads", t);
        }
        for (size_t r = 0; r < golden_length(step, "batch"); r++) {
            float published[K_MAX];
            golden_floats(json_array_get(json_object_get(step, "published"), r), published,
                          positions);
            parity_confidences_publish(&store, (size_t)golden_int(step, "batch", r), published);
        }
        parity_confidences_end_step(&store);
    }
    if (json_array_size(steps) == 0) golden_fail("no steps");
    parity_confidences_free(&store);
    snprintf(summary, sizeof(summary), "%zu steps", json_array_size(steps));
    golden_tap_line(name, summary);
}

/* ---------------------------------------------------------------------------------- closed loop */

struct loop {
    size_t positions;
    tt_estimator *estimator;
    struct parity_confidences store;
    struct table draft, verify;
    float feature[MAX_ROWS][K_MAX], predicted[MAX_ROWS][K_MAX]; /* by slot, for grading */
    double worst_refit;
    size_t refits;
};

/* Choose the budget from stale confidences, the admitted lengths from live ones. */
static void loop_plan(struct loop *loop, const json_t *step, size_t t, int32_t *admitted)
{
    static float stale[MAX_ROWS * K_MAX], live[MAX_ROWS * K_MAX];
    static double scratch[MAX_ROWS * K_MAX];
    int32_t drafted[MAX_ROWS];
    const size_t rows = golden_length(step, "idx"), width = loop->positions;
    int64_t base = 0;
    golden_ints(step, "drafts", drafted, rows);
    for (size_t r = 0; r < rows; r++) {
        const size_t slot = (size_t)golden_int(step, "idx", r);
        memcpy(stale + r * width, parity_confidences_for_budget(&loop->store, slot),
               width * sizeof(float));
        memcpy(live + r * width, parity_confidences_for_allocation(&loop->store, slot),
               width * sizeof(float));
        base += golden_int(step, "non_draft", r);
    }
    const struct parity_budget_request request = {.confidence = stale,
                                                  .rows = rows,
                                                  .positions = width,
                                                  .drafted = drafted,
                                                  .base_tokens = base,
                                                  .sampling_requests = (int64_t)rows,
                                                  .max_logits = -1,
                                                  .draft_table = loop->draft.entry,
                                                  .verify_table = loop->verify.entry,
                                                  .draft_entries = loop->draft.count,
                                                  .verify_entries = loop->verify.count};
    const int64_t budget = parity_budget_choose(&request, scratch);
    if (budget != json_integer_value(json_object_get(step, "budget")))
        golden_fail("step %zu: budget %" PRId64 ", not %" PRId64, t, budget,
                    (int64_t)json_integer_value(json_object_get(step, "budget")));
    allocate(live, rows, width, drafted, budget, admitted);
    golden_expect_ints(step, "admitted", admitted, rows);
}

static void loop_learn(struct loop *loop, const json_t *step, const json_t *refits, size_t t,
                       const int32_t *admitted)
{
    for (size_t r = 0; r < golden_length(step, "idx"); r++) {
        const size_t slot = (size_t)golden_int(step, "idx", r);
        const struct tt_observation observation = {.feature = loop->feature[slot],
                                                   .predicted = loop->predicted[slot],
                                                   .admitted = admitted[r],
                                                   .accepted = golden_int(step, "accepted", r)};
        if (tt_estimator_observe(loop->estimator, &observation) != TT_OK)
            golden_fail("step %zu: row %zu was refused", t, r);
    }
    if (!(tt_estimator_end_step(loop->estimator) & TT_STEP_REFIT)) return;
    struct tt_estimator_report report;
    tt_estimator_report(loop->estimator, &report);
    const json_t *want = json_object_get(json_array_get(refits, loop->refits++), "coefficients");
    loop->worst_refit =
        fmax(loop->worst_refit, fabs(report.slope - golden_item(json_array_get(want, 0), 0)));
    for (size_t k = 0; k < loop->positions; k++)
        loop->worst_refit = fmax(loop->worst_refit, fabs(report.position[k].intercept -
                                                         golden_item(json_array_get(want, 1), k)));
}

/* Score the new drafts and publish their confidences. */
static void loop_draft(struct loop *loop, const json_t *step, size_t t)
{
    for (size_t r = 0; r < golden_length(step, "idx"); r++) {
        const size_t slot = (size_t)golden_int(step, "idx", r);
        const json_t *want = json_array_get(json_object_get(step, "new_confidence"), r);
        golden_floats(json_array_get(json_object_get(step, "new_features"), r), loop->feature[slot],
                      loop->positions);
        for (size_t k = 0; k < loop->positions; k++) {
            double probability = NAN;
            if (tt_estimator_predict(loop->estimator, (int32_t)k, &loop->feature[slot][k], 1,
                                     &probability) != TT_OK)
                golden_fail("step %zu: no prediction", t);
            loop->predicted[slot][k] = (float)probability;
        }
        golden_expect_floats(loop->predicted[slot], want, loop->positions, 1e-6, "confidence", t);
        parity_confidences_publish(&loop->store, slot, loop->predicted[slot]);
    }
    parity_confidences_end_step(&loop->store);
}

static void replay_loop(const char *name, const json_t *root)
{
    const json_t *meta = json_object_get(root, "meta"), *steps = json_object_get(root, "steps");
    const json_t *refits = json_object_get(root, "refits");
    const size_t slots = (size_t)json_integer_value(json_object_get(meta, "slots"));
    struct loop *loop = calloc(1, sizeof(*loop));
    char summary[120];
    if (loop == NULL || slots > MAX_ROWS) abort();
    loop->positions = (size_t)json_integer_value(json_object_get(meta, "K"));
    const struct tt_estimator_options options = {.kind = TT_PARITY,
                                                 .positions = (int32_t)loop->positions,
                                                 .prior_slope = NAN,
                                                 .prior_level = NAN};
    if (tt_estimator_new(&loop->estimator, &options) != TT_OK ||
        parity_confidences_init(&loop->store, slots, loop->positions) != 0)
        abort();
    loop->draft = build_table(json_object_get(meta, "draft_curve"), 0, slots + 1);
    loop->verify = build_table(json_object_get(meta, "verify_curve"),
                               (int32_t)json_integer_value(json_object_get(meta, "capture_limit")),
                               (size_t)json_integer_value(json_object_get(meta, "max_tokens")) + 1);
    compare_table(&loop->draft, json_object_get(root, "draft_table"), "draft_table");
    compare_table(&loop->verify, json_object_get(root, "verify_table"), "verify_table");
    for (size_t t = 0; t < json_array_size(steps) && golden_sound(); t++) {
        const json_t *step = json_array_get(steps, t);
        int32_t admitted[MAX_ROWS];
        for (size_t i = 0; i < golden_length(step, "added"); i++)
            parity_confidences_add(&loop->store, (size_t)golden_int(step, "added", i));
        loop_plan(loop, step, t, admitted);
        loop_learn(loop, step, refits, t, admitted);
        loop_draft(loop, step, t);
    }
    if (loop->refits == 0 || loop->refits != json_array_size(refits))
        golden_fail("%zu refits, not %zu", loop->refits, json_array_size(refits));
    if (!(loop->worst_refit <= 1e-5)) golden_fail("a coefficient is %.2e off", loop->worst_refit);
    snprintf(summary, sizeof(summary), "%zu steps exact, %zu refits within %.1e",
             json_array_size(steps), loop->refits, loop->worst_refit);
    tt_estimator_free(loop->estimator);
    parity_confidences_free(&loop->store);
    free(loop->draft.entry);
    free(loop->verify.entry);
    free(loop);
    golden_tap_line(name, summary);
}

/* ------------------------------------------------------------------------------ shapes of a file
 */

/* Every number of a (nested) array is a whole one from 0 to below the limit. */
static bool all_below(const json_t *value, json_int_t limit)
{
    const json_t *item;
    size_t i;

    if (!json_is_array(value))
        return value == NULL || (json_is_integer(value) && json_integer_value(value) >= 0 &&
                                 json_integer_value(value) < limit);
    json_array_foreach(value, i, item)
    {
        if (!all_below(item, limit)) return false;
    }
    return true;
}

static bool curve_fits(const json_t *table, const char *curve)
{
    return golden_length(table, curve) > 0;
}

static bool budget_fits(const json_t *root)
{
    const json_t *tables = json_object_get(root, "tables"), *cases = json_object_get(root, "cases");
    const json_t *one;
    size_t i;

    json_array_foreach(tables, i, one)
    {
        if (!curve_fits(one, "draft_curve") || !curve_fits(one, "verify_curve") ||
            golden_length(one, "draft_table") == 0 || golden_length(one, "verify_table") == 0)
            return false;
    }
    json_array_foreach(cases, i, one)
    {
        if (golden_length(one, "slots") > MAX_ROWS ||
            !all_below(json_object_get(one, "K"), K_MAX + 1) ||
            !all_below(json_object_get(one, "table"), (json_int_t)json_array_size(tables)))
            return false;
    }
    return true;
}

/* What the replays index with lies within their arrays: a damaged file fails, the program does not.
 */
static bool shapes_fit(const json_t *root)
{
    const json_t *meta = json_object_get(root, "meta"), *steps = json_object_get(root, "steps");
    const json_int_t slots = json_integer_value(json_object_get(meta, "slots")),
                     positions = json_integer_value(json_object_get(meta, "K"));
    const json_t *step;
    size_t t;

    if (json_object_get(root, "tables") != NULL) return budget_fits(root);
    if (!json_is_array(steps)) return true;
    if (slots < 1 || slots > MAX_ROWS || positions < 1 || positions > K_MAX) return false;
    json_array_foreach(steps, t, step)
    {
        static const char *const places[] = {"idx", "added", "batch"}, *const lengths[] = {
                                                                           "adm", "acc", "drafts",
                                                                           "accepted"};

        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
            if (!all_below(json_object_get(step, places[i]), slots) ||
                golden_length(step, places[i]) > MAX_ROWS)
                return false;
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
            if (!all_below(json_object_get(step, lengths[i]), positions + 1)) return false;
    }
    if (json_object_get(meta, "draft_curve") == NULL) return true;
    return curve_fits(meta, "draft_curve") && curve_fits(meta, "verify_curve") &&
           all_below(json_object_get(meta, "max_tokens"), 1 << 20);
}

/* ----------------------------------------------------------------------------------------- main */

static void replay(const char *directory, const char *file)
{
    char path[PATH_MAX + NAME_MAX + 2], name[NAME_MAX + 1];
    snprintf(path, sizeof(path), "%s/%s", directory, file);
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(file, "."), file);
    json_t *root = golden_load(path);
    const json_t *first = json_array_get(json_object_get(root, "steps"), 0);
    if (root == NULL) {
        golden_fail("%s cannot be read (gzip -dc, then JSON)", path);
        golden_tap_line(name, "");
    } else if (!shapes_fit(root)) {
        golden_fail("%s has a shape that no set has", path);
        golden_tap_line(name, "");
    } else if (json_object_get(root, "tables") != NULL) {
        replay_budget(name, root);
    } else if (json_object_get(first, "published") != NULL) {
        replay_staleness(name, root);
    } else if (json_object_get(first, "new_features") != NULL) {
        replay_loop(name, root);
    } else if (json_object_get(first, "f") != NULL) {
        replay_stream(name, root);
    } else if (json_object_get(root, "logits") != NULL) {
        golden_features_replay(name, root);
    } else {
        golden_fail("%s is no set this program knows", path);
        golden_tap_line(name, "");
    }
    json_decref(root);
}

static int is_set(const struct dirent *entry)
{
    const char *suffix = strstr(entry->d_name, ".json.gz");
    return suffix != NULL && strcmp(suffix, ".json.gz") == 0;
}

int main(int argc, char **argv)
{
    char directory[PATH_MAX];
    const char *source = getenv("SRC");
    if (argc > 2) {
        fprintf(stderr, "usage: golden_vectors [DIR]\n");
        return 2;
    }
    if (argc == 2)
        snprintf(directory, sizeof(directory), "%s", argv[1]);
    else
        snprintf(directory, sizeof(directory), "%s/tests/kernels/data/vectors",
                 source != NULL ? source : ".");
    struct dirent **entry = NULL;
    const int count = scandir(directory, &entry, is_set, alphasort);
    if (count <= 0) {
        printf("Bail out! %s: %s\n", directory,
               count < 0 ? strerror(errno) : "no sets (*.json.gz) are in it");
        return 1;
    }
    for (int i = 0; i < count; i++) {
        replay(directory, entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    return golden_tap_end();
}
