/* replay_policies.c - what the replay compares the planner with: vLLM's rule as released, and an
 * oracle. See replay.h.
 *
 * Source of parity: vLLM pull requests 47808 (budget) and 52228 (estimator). A step there verifies
 * drafts that were made at the end of the step before; which of them is decided by the confidences
 * published then, and how many by those published one step earlier still.
 */
#include "config.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "controller/parity_budget.h"
#include "controller/replay_streams.h"

/* ---- parity */

struct parity_policy {
    struct parity_confidences confidences;
    float *stale;                       /* (streams, depth) */
    double *survival, *scratch;         /* (streams, depth) */
    int32_t *drafted, *admitted;        /* (streams) */
    double *draft_table, *verify_table; /* by requests; by tokens */
    size_t draft_entries, verify_entries;
};

/* A table at every size, made monotone as released; [0] is what no token costs there: the first. */
static double *make_table(size_t entries, double (*at)(const struct replay *replay, int size),
                          const struct replay *replay)
{
    struct parity_cost_point *curve = calloc(entries, sizeof *curve);
    double *table = calloc(entries, sizeof *table);

    for (size_t i = 1; curve && i < entries; i++)
        curve[i - 1] = (struct parity_cost_point){(int32_t)i, at(replay, (int)i)};
    if (curve && table) parity_table_build(curve, entries - 1, 0, table, entries);
    free(curve);
    return table;
}

static double draft_all(const struct replay *replay, int requests)
{
    return replay->depth * cost_draft(replay->options.cost, requests);
}

static double verify(const struct replay *replay, int tokens)
{
    int cells = REPLAY_CELLS_A_STREAM * replay->options.concurrency;

    return cost_verify(replay->options.cost, tokens, cost_context_band(cells));
}

struct parity_policy *parity_policy_new(const struct replay *replay)
{
    size_t streams = (size_t)replay->options.concurrency, depth = (size_t)replay->depth;
    struct parity_policy *parity = calloc(1, sizeof *parity);

    if (!parity) return NULL;
    parity->draft_entries = streams + 1;
    parity->verify_entries = streams * (depth + 1) + 1;
    parity->stale = calloc(streams * depth, sizeof *parity->stale);
    parity->survival = calloc(streams * depth, sizeof *parity->survival);
    parity->scratch = calloc(streams * depth, sizeof *parity->scratch);
    parity->drafted = calloc(streams, sizeof *parity->drafted);
    parity->admitted = calloc(streams, sizeof *parity->admitted);
    parity->draft_table = make_table(parity->draft_entries, draft_all, replay);
    parity->verify_table = make_table(parity->verify_entries, verify, replay);
    if (parity->stale && parity->survival && parity->scratch && parity->drafted &&
        parity->admitted && parity->draft_table && parity->verify_table &&
        parity_confidences_init(&parity->confidences, streams, depth) == 0)
        return parity;
    parity_policy_free(parity);
    return NULL;
}

void parity_policy_free(struct parity_policy *parity)
{
    if (!parity) return;
    parity_confidences_free(&parity->confidences);
    free(parity->stale);
    free(parity->survival);
    free(parity->scratch);
    free(parity->drafted);
    free(parity->admitted);
    free(parity->draft_table);
    free(parity->verify_table);
    free(parity);
}

static int64_t choose_budget(struct replay *replay)
{
    struct parity_policy *parity = replay->parity;
    size_t streams = (size_t)replay->options.concurrency, depth = (size_t)replay->depth;
    struct parity_budget_request request = {
        .confidence = parity->stale,
        .rows = streams,
        .positions = depth,
        .drafted = parity->drafted,
        .base_tokens = (int64_t)streams,
        .sampling_requests = (int64_t)streams,
        .max_logits = -1,
        .draft_table = parity->draft_table,
        .verify_table = parity->verify_table,
        .draft_entries = parity->draft_entries,
        .verify_entries = parity->verify_entries,
    };

    for (size_t r = 0; r < streams; r++) {
        const float *from = parity_confidences_for_budget(&parity->confidences, r);

        for (size_t k = 0; k < depth; k++) parity->stale[r * depth + k] = from[k];
    }
    return parity_budget_choose(&request, parity->scratch);
}

void parity_policy_admit(struct replay *replay)
{
    struct parity_policy *parity = replay->parity;
    size_t streams = (size_t)replay->options.concurrency, depth = (size_t)replay->depth;
    int64_t budget;
    int admitted;

    for (size_t r = 0; r < streams; r++) {
        struct stream *stream = &replay->stream[r];
        const float *live = parity_confidences_for_allocation(&parity->confidences, r);
        double *row = parity->survival + r * depth;

        /* Nothing was drafted yet for a text that has just begun. */
        parity->drafted[r] = stream->fresh ? 0 : replay_cap(replay, stream);
        for (size_t k = 0; k < depth; k++) row[k] = (double)live[k];
        if (tt_survival(row, depth, row) != TT_OK)
            for (size_t k = 0; k < depth; k++) row[k] = 0;
    }
    budget = choose_budget(replay);
    admitted = tt_allocate(parity->survival, streams, depth, parity->drafted,
                           budget > 0 ? budget : 0, parity->admitted);
    assert(admitted >= 0);
    (void)admitted;
    for (size_t r = 0; r < streams; r++) {
        replay->stream[r].admitted = parity->admitted[r];
        replay->stream[r].drafts = parity->drafted[r];
        replay->stream[r].drafted = parity->drafted[r] > 0;
    }
}

/* Draft every stream where it stands now: all depths, whatever comes of them. */
double parity_policy_draft(struct replay *replay)
{
    struct parity_policy *parity = replay->parity;
    int streams = replay->options.concurrency;
    float confidence[TT_MAX_POSITIONS];
    double ms = 0;

    for (int depth = 0; depth < replay->depth; depth++)
        ms += replay_forward(replay, depth, NULL, streams);
    for (int r = 0; r < streams; r++) {
        struct stream *stream = &replay->stream[r];
        struct trace_index at = stream_at(replay, stream);

        for (int k = 0; k < replay->depth; k++) {
            stream->predicted[k] =
                (float)strata_predict(replay->strata, stream->stratum, k, at.feature[k]);
            confidence[k] = stream->predicted[k];
        }
        if (stream->fresh) parity_confidences_add(&parity->confidences, (size_t)r);
        parity_confidences_publish(&parity->confidences, (size_t)r, confidence);
        stream->fresh = false; /* it has drafts now */
    }
    parity_confidences_end_step(&parity->confidences);
    return ms;
}

/* ---- oracle */

static int would_accept(const struct replay *replay, int r)
{
    const struct stream *stream = &replay->stream[r];
    int accepted = stream_at(replay, stream).accepted, cap = replay_cap(replay, stream);

    return accepted < cap ? accepted : cap;
}

/* Streams by what they would accept, most first; equal ones by row. */
static void sort_rows(struct replay *replay)
{
    int count = 0, streams = replay->options.concurrency;

    for (int accepted = replay->depth; accepted >= 0; accepted--)
        for (int r = 0; r < streams; r++)
            if (would_accept(replay, r) == accepted) replay->rows[count++] = r;
}

/* Tokens less lambda times the time, of the first `streams` rows, `deep` deep: reach[d] rows
 * accept at least d, and the first i + 1 rows read read[i] tokens before their first draft. */
static double worth(const struct replay *replay, int streams, int deep, const int *reach,
                    const int *read)
{
    int admitted = 0;
    double ms = 0;

    for (int d = 1; d <= deep; d++) {
        int live = reach[d] < streams ? reach[d] : streams;

        if (live == 0) break;
        ms += cost_draft(replay->options.cost, d == 1 ? read[live - 1] : live);
        admitted += live;
    }
    if (admitted > 0) ms += replay->options.own_ms;
    ms += verify(replay, replay->options.concurrency + admitted);
    return admitted - replay->options.lambda * ms;
}

double oracle_admit(struct replay *replay)
{
    int streams = replay->options.concurrency, best_streams = 0, best_deep = 0;
    int reach[TT_MAX_POSITIONS + 1] = {0}, *read = replay->admitted; /* scratch until the verdict */
    double best, ms = 0;

    sort_rows(replay);
    for (int i = 0; i < streams; i++) {
        for (int d = 1; d <= would_accept(replay, replay->rows[i]); d++) reach[d]++;
        read[i] = (i ? read[i - 1] : 0) + replay->stream[replay->rows[i]].behind;
    }
    best = worth(replay, 0, 0, reach, read);
    for (int m = 1; m <= reach[1]; m++)
        for (int deep = 1; deep <= replay->depth && reach[deep] > 0; deep++) {
            double score = worth(replay, m, deep, reach, read);

            if (score <= best) continue;
            best = score;
            best_streams = m;
            best_deep = deep;
        }
    for (int i = 0; i < best_streams; i++) {
        struct stream *stream = &replay->stream[replay->rows[i]];
        int would = would_accept(replay, replay->rows[i]);

        stream->admitted = would < best_deep ? would : best_deep;
    }
    for (int d = 0; d < best_deep; d++) {
        int live = reach[d + 1] < best_streams ? reach[d + 1] : best_streams;

        if (live > 0) ms += replay_forward(replay, d, replay->rows, live);
    }
    return ms;
}
