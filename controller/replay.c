/* replay.c - see replay.h. Owns the streams and the virtual clock; the planner's policy runs here,
 * the two it is compared with in replay_policies.c.
 */
#include "config.h"

#include "controller/replay.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "controller/grade.h"
#include "controller/replay_streams.h"

#define NOISE_KEY 11  /* stream of the scatter */
#define WANDER_KEY 12 /* and of the levels: one a period */
#define PACE_PERIOD_MS 1500
#define CONTEXT_PERIOD_MS 30000
#define SPIKE_RATE 0.02
#define SPIKE_FACTOR 3
#define START_TEXT 7   /* streams begin this many texts and … */
#define START_INDEX 13 /* … indices apart */
#define ORACLE_ROUNDS 6
#define ORACLE_SETTLED 1e-4 /* relative change of lambda */

/* ---- streams */

int replay_cap(const struct replay *replay, const struct stream *stream)
{
    const struct trace_text *text = stream_text(replay, stream);
    int cap = text->length - stream->index - 1, drafted = text->drafted[stream->index];

    if (cap > drafted) cap = drafted;
    return cap < replay->depth ? cap : replay->depth;
}

static void enter_text(const struct replay *replay, struct stream *stream, int index)
{
    const struct trace_text *text = stream_text(replay, stream);

    stream->index = index;
    stream->fresh = true;
    stream->behind = replay->options.catch_up > 1 ? replay->options.catch_up : 1;
    stream->stratum = strata_index(DRAFTER_MODEL, text->rule, text->temperature, false);
}

static void place(struct replay *replay, int r)
{
    struct stream *stream = &replay->stream[r];

    stream->text = (int)((long)r * START_TEXT % replay->options.traces->count);
    enter_text(replay, stream, r * START_INDEX % stream_text(replay, stream)->length);
}

static void advance(struct replay *replay, struct stream *stream)
{
    int most = replay->options.catch_up;

    stream->behind = stream->drafted
                         ? 1 + (stream->accepted == stream->admitted && stream->admitted > 0)
                         : stream->behind + 1;
    if (stream->behind > most) stream->behind = most > 1 ? most : 1;
    stream->index += stream->accepted + 1;
    if (stream->index < stream_text(replay, stream)->length) return;
    stream->text = (stream->text + 1) % replay->options.traces->count;
    enter_text(replay, stream, 0);
}

/* ---- clock */

/* A level around 1 that goes from one random value to the next in a period of the virtual clock. */
static double level(const struct replay *replay, double period_ms, uint32_t which)
{
    double at = replay->tally.counts.step_ms / period_ms, begun = floor(at), from, to;

    if (replay->options.wander <= 0) return 1;
    from = tt_uniform(WANDER_KEY, (uint64_t)begun, which, TT_DRAFT);
    to = tt_uniform(WANDER_KEY, (uint64_t)begun + 1, which, TT_DRAFT);
    return 1 + replay->options.wander * (2 * (from + (to - from) * (at - begun)) - 1);
}

static double draft_ms(const struct replay *replay, int tokens)
{
    return cost_draft(replay->options.cost, tokens) * level(replay, PACE_PERIOD_MS, 0);
}

static double verify_ms(const struct replay *replay, int tokens, int band)
{
    return cost_verify(replay->options.cost, tokens, band) * level(replay, PACE_PERIOD_MS, 0) *
           level(replay, CONTEXT_PERIOD_MS, 1);
}

/* What a clock would show for a forward pass that takes ms. */
static double measured(struct replay *replay, double ms)
{
    double noise = replay->options.noise, u, spike;

    if (noise <= 0) return ms;
    u = tt_uniform(NOISE_KEY, replay->measurements++, 0, TT_DRAFT);
    spike =
        tt_uniform(NOISE_KEY, replay->measurements, 1, TT_DRAFT) < SPIKE_RATE ? SPIKE_FACTOR : 1;
    return ms * (1 + noise * (2 * u - 1)) * spike;
}

double replay_forward(struct replay *replay, int depth, const int *rows, int live)
{
    int tokens = 0;
    double ms;

    for (int i = 0; i < live; i++) {
        struct stream *stream = &replay->stream[rows ? rows[i] : i];

        tokens += depth == 0 ? stream->behind : 1;
        stream->drafted = true;
        stream->drafts = depth + 1;
    }
    ms = measured(replay, draft_ms(replay, tokens));
    if (replay->options.learned) cost_observe_draft(replay->options.learned, tokens, ms);
    return ms;
}

static int cells(const struct replay *replay)
{
    return REPLAY_CELLS_A_STREAM * replay->options.concurrency;
}

static double target_forward(struct replay *replay, int tokens)
{
    int band = cost_context_band(cells(replay));
    double ms = measured(replay, verify_ms(replay, tokens, band));

    if (replay->options.learned) cost_observe_verify(replay->options.learned, tokens, band, ms);
    return ms;
}

static double own_work(const struct replay *replay, const struct step_times *times)
{
    double own = cost_own(replay->options.cost, replay->options.concurrency);

    return (isfinite(own) ? own : 0) + (times->draft_ms > 0 ? replay->options.own_ms : 0);
}

/* ---- a step's second half */

static void observe(struct replay *replay, const struct stream *stream)
{
    struct trace_index at = stream_at(replay, stream);
    struct tt_observation observation = {
        .feature = at.feature,
        .predicted = stream->predicted,
        .soft = isfinite(at.soft[0]) ? at.soft : NULL,
        .admitted = stream->admitted,
        .accepted = stream->accepted,
    };

    if (stream->admitted > 0) strata_observe(replay->strata, stream->stratum, &observation);
}

static void count(struct replay *replay, const struct stream *stream)
{
    struct tally_counts *counts = &replay->tally.counts;

    counts->drafted += stream->drafts;
    counts->admitted += stream->admitted;
    counts->verified += stream->admitted;
    counts->accepted += stream->accepted;
    counts->emitted += stream->accepted + 1;
    counts->drafts += stream->admitted > 0;
    counts->target_rows += stream->admitted + 1;
    counts->requests += stream->fresh;
    for (int k = 0; k < stream->accepted; k++) counts->position[k].accepted_any++;
    for (int k = 0; k < stream->admitted && k <= stream->accepted; k++)
        grade_position(&replay->tally, stream->stratum, k, (double)stream->predicted[k],
                       k < stream->accepted);
}

void replay_verify(struct replay *replay, struct step_times *times)
{
    int streams = replay->options.concurrency, tokens = streams;

    pthread_mutex_lock(&replay->tally.lock);
    for (int r = 0; r < streams; r++) {
        struct stream *stream = &replay->stream[r];
        int would = stream_at(replay, stream).accepted;

        stream->accepted = would < stream->admitted ? would : stream->admitted;
        replay->admitted[r] = stream->admitted;
        replay->accepted[r] = stream->accepted;
        tokens += stream->admitted;
        observe(replay, stream);
        count(replay, stream);
        stream->fresh = false;
        advance(replay, stream);
    }
    pthread_mutex_unlock(&replay->tally.lock);
    times->verify_ms = target_forward(replay, tokens);
    times->own_ms = own_work(replay, times);
    replay->counts.plain_steps += tokens == streams;
}

static void count_times(struct replay *replay, const struct step_times *times)
{
    struct tally_counts *counts = &replay->tally.counts;

    pthread_mutex_lock(&replay->tally.lock);
    counts->steps++;
    counts->draft_ms += times->draft_ms;
    counts->verify_ms += times->verify_ms;
    counts->own_ms += times->own_ms;
    counts->step_ms += times->draft_ms + times->verify_ms + times->own_ms;
    pthread_mutex_unlock(&replay->tally.lock);
}

/* ---- the planner's policy */

/* Drafts of one depth: features, predictions, admission. */
static void draft_depth(struct replay *replay, int depth, const int *rows, int live)
{
    for (int i = 0; i < live; i++) {
        struct stream *stream = &replay->stream[rows[i]];

        replay->probability[i] = strata_predict(replay->strata, stream->stratum, depth,
                                                stream_at(replay, stream).feature[depth]);
        stream->predicted[depth] = (float)replay->probability[i];
    }
    planner_admit(replay->planner, depth, replay->probability, replay->admit);
    for (int i = 0; i < live; i++) replay->stream[rows[i]].admitted += replay->admit[i];
}

/* Predicted against what the clock shows; in shadow the plan is of another step. */
static void note_price(struct replay *replay, const struct planner_report *report, double ms)
{
    struct tally_counts *counts = &replay->tally.counts;

    if (!isfinite(report->cost_ms)) return;
    pthread_mutex_lock(&replay->tally.lock);
    counts->planned_tokens += report->value;
    counts->planned_ms += report->cost_ms;
    if (replay->options.mode != MODE_SHADOW) {
        counts->priced_steps++;
        counts->predicted_ms += report->cost_ms;
        counts->priced_ms += ms;
        counts->missed_ms += fabs(ms - report->cost_ms);
    }
    pthread_mutex_unlock(&replay->tally.lock);
}

static void note_plan(struct replay *replay, const struct planner_report *report, double ms)
{
    struct replay_counts *counts = &replay->counts;

    note_price(replay, report, ms);
    counts->explored += strcmp(report->why, "explore") == 0;
    if (strcmp(report->why, "probe") != 0) return;
    counts->probes++;
    counts->probe_ms += ms - cost_verify(replay->options.cost, replay->options.concurrency,
                                         cost_context_band(cells(replay)));
}

static void plan_step(struct replay *replay, struct step_times *times)
{
    struct planner_outcome outcome = {.admitted = replay->admitted, .accepted = replay->accepted};
    struct planner_report report;
    int streams = replay->options.concurrency, live;
    const int *rows;

    for (int r = 0; r < streams; r++) {
        struct stream *stream = &replay->stream[r];

        replay->plan[r] =
            (struct planner_request){.cap = replay_cap(replay, stream),
                                     .stratum = stream->stratum,
                                     .catch_up = stream->behind,
                                     .starved = strata_starved(replay->strata, stream->stratum)};
    }
    planner_begin(replay->planner, replay->plan, streams, streams, 0, cells(replay),
                  replay->number);
    for (int depth = 0; (live = planner_draft(replay->planner, depth, &rows)) > 0; depth++) {
        times->draft_ms += replay_forward(replay, depth, rows, live);
        draft_depth(replay, depth, rows, live);
    }
    replay_verify(replay, times);
    planner_get_report(replay->planner, &report);
    note_plan(replay, &report, times->draft_ms + times->verify_ms + times->own_ms);
    outcome.draft_ms = times->draft_ms;
    outcome.verify_ms = times->verify_ms;
    outcome.own_ms = times->own_ms;
    planner_end(replay->planner, &outcome);
}

double replay_step(struct replay *replay)
{
    struct step_times times = {0};

    for (int r = 0; r < replay->options.concurrency; r++) {
        replay->stream[r].drafted = false;
        replay->stream[r].drafts = replay->stream[r].admitted = 0;
    }
    switch (replay->options.policy) {
    case REPLAY_PARITY:
        parity_policy_admit(replay);
        replay_verify(replay, &times);
        times.draft_ms = parity_policy_draft(replay);
        break;
    case REPLAY_ORACLE:
        times.draft_ms = oracle_admit(replay);
        replay_verify(replay, &times);
        break;
    default:
        plan_step(replay, &times);
    }
    strata_end_step(replay->strata, replay->options.refitted, replay->options.state);
    count_times(replay, &times);
    replay->number++;
    return times.draft_ms + times.verify_ms + times.own_ms;
}

/* ---- life */

static void ignore_refit(void *state, int stratum, int bits)
{
    (void)state, (void)stratum, (void)bits;
}

static void bound_planner(const struct replay *replay, struct planner_options *planner)
{
    planner->max_requests = replay->options.concurrency;
    if (planner->max_draft > replay->options.traces->depth)
        planner->max_draft = replay->options.traces->depth;
}

static bool make_arrays(struct replay *replay)
{
    size_t streams = (size_t)replay->options.concurrency;

    replay->stream = calloc(streams, sizeof *replay->stream);
    replay->plan = calloc(streams, sizeof *replay->plan);
    replay->admitted = calloc(streams, sizeof *replay->admitted);
    replay->accepted = calloc(streams, sizeof *replay->accepted);
    replay->probability = calloc(streams, sizeof *replay->probability);
    replay->admit = calloc(streams, sizeof *replay->admit);
    replay->rows = calloc(streams, sizeof *replay->rows);
    return replay->stream && replay->plan && replay->admitted && replay->accepted &&
           replay->probability && replay->admit && replay->rows;
}

struct replay *replay_new(const struct replay_options *options)
{
    struct replay *replay = calloc(1, sizeof *replay);

    if (!replay) return NULL;
    assert(options->traces->count > 0 && options->concurrency >= 1 &&
           options->concurrency <= REPLAY_STREAMS);
    replay->options = *options;
    if (!replay->options.refitted) replay->options.refitted = ignore_refit;
    bound_planner(replay, &replay->options.planner);
    replay->depth = replay->options.planner.max_draft;
    tally_init(&replay->tally);
    replay->planner =
        planner_new(&replay->options.planner, options->learned ? options->learned : options->cost);
    replay->strata = strata_new(replay->options.traces->depth,
                                options->policy == REPLAY_PARITY ? TT_PARITY : options->estimator,
                                options->refit_interval_steps);
    if (!replay->planner || !replay->strata || !make_arrays(replay)) goto fail;
    for (int r = 0; r < options->concurrency; r++) place(replay, r);
    planner_set_mode(replay->planner, options->mode);
    if (options->policy != REPLAY_PARITY) return replay;
    replay->parity = parity_policy_new(replay);
    if (replay->parity) return replay;
fail:
    replay_free(replay);
    return NULL;
}

void replay_free(struct replay *replay)
{
    if (!replay) return;
    parity_policy_free(replay->parity);
    planner_free(replay->planner);
    strata_free(replay->strata);
    pthread_mutex_destroy(&replay->tally.lock);
    free(replay->stream);
    free(replay->plan);
    free(replay->admitted);
    free(replay->accepted);
    free(replay->probability);
    free(replay->admit);
    free(replay->rows);
    free(replay);
}

/* ---- what others ask */

const struct replay_counts *replay_counts(const struct replay *replay)
{
    return &replay->counts;
}

int replay_set_mode(struct replay *replay, enum mode mode)
{
    replay->options.mode = mode;
    return planner_set_mode(replay->planner, mode);
}

bool replay_set_policy(struct replay *replay, const struct planner_options *planner,
                       enum tt_estimator_kind estimator, int refit_interval_steps)
{
    struct replay_options *options = &replay->options;

    if (estimator != options->estimator || refit_interval_steps != options->refit_interval_steps) {
        struct strata *strata = strata_new(options->traces->depth, estimator, refit_interval_steps);

        if (!strata) return false;
        strata_free(replay->strata);
        replay->strata = strata;
        options->estimator = estimator;
        options->refit_interval_steps = refit_interval_steps;
    }
    options->planner = *planner;
    bound_planner(replay, &options->planner);
    replay->depth = options->planner.max_draft;
    planner_set_options(replay->planner, &options->planner);
    return true;
}

struct planner *replay_planner(struct replay *replay)
{
    return replay->planner;
}

const struct strata *replay_strata(const struct replay *replay)
{
    return replay->strata;
}

struct tally *replay_tally(struct replay *replay)
{
    return &replay->tally;
}

struct replay_stream replay_stream_at(const struct replay *replay, int stream)
{
    const struct stream *from = &replay->stream[stream];

    return (struct replay_stream){from->text, from->index, from->admitted, from->accepted,
                                  from->stratum};
}

/* ---- whole runs */

static double run_once(const struct replay_options *options, double passes,
                       struct replay_counts *out)
{
    struct replay *replay = replay_new(options);
    double enough = passes * (double)options->traces->tokens * options->concurrency, rate;
    int from, to;
    double gain;

    if (!replay) return NAN;
    while ((double)replay->tally.counts.emitted < enough) {
        replay_step(replay);
        replay->counts.regime_changes += planner_take_change(replay->planner, &from, &to, &gain);
    }
    rate = (double)replay->tally.counts.emitted / replay->tally.counts.step_ms;
    if (out) {
        *out = replay->counts;
        out->tally = replay->tally.counts;
    }
    replay_free(replay);
    return rate;
}

double replay_run(const struct replay_options *options, double passes, struct replay_counts *counts)
{
    struct replay_options copy = *options;
    double rate, best = 0;

    if (options->policy != REPLAY_ORACLE) return run_once(options, passes, counts);
    copy.lambda = 0; /* time is worth nothing: everything that will be accepted is taken */
    for (int round = 0; round < ORACLE_ROUNDS; round++) {
        rate = run_once(&copy, passes, counts);
        if (isnan(rate)) return NAN;
        if (rate > best) best = rate;
        if (fabs(rate - copy.lambda) <= ORACLE_SETTLED * rate) break;
        copy.lambda = rate;
    }
    return best;
}
