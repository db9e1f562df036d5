/* estimator_loop.c - see estimator_loop.h.
 *
 * A step costs 1 + token_cost * (requests + verified drafts). The budget is the best prefix of all
 * drafts in the order of their predicted survival, chosen by the survivals of the step itself;
 * tt_allocate spends it. `parity` is given that too, where the released planner reads survivals
 * that are one and two steps old: what is compared here are estimators. `online` verifies every
 * draft at first, and probes down to a starved position in 0.5 % of request-steps, for at most
 * 0.3 % of the time: as the planner does.
 *
 * Tokens are expectations over the outcomes, given what was admitted: less noise than counting.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/estimator_loop.h"

#define K WORLD_POSITIONS
#define FIRST_STEPS 60 /* that verify every draft, or as many as hold FIRST_ROWS requests */
#define FIRST_ROWS 240
#define EXPLORE 0.005            /* of request-steps */
#define EXPLORE_BUDGET 0.003     /* of time */
#define EXPLORE_SAVED_STEPS 4000 /* of credit, at most */
#define JUDGE_INTERVAL_STEPS 200
#define JUDGE_FROM_STEP 1000 /* intervals: the memory is full */
#define MIN_LABELS 200.0     /* effective, for an interval to be judged */
#define RECOVERED 0.98       /* of the oracle's tokens per time */
#define RECOVERY_FORGET 0.95 /* of tokens and time, a step */

struct player {
    tt_estimator *estimator; /* NULL: the oracle */
    double recent_tokens, recent_time;
    double credit; /* time that exploration may still take */
    int since;     /* steps since the law changed; -1: found again */
};

struct loop {
    struct world world;
    struct loop_options options;
    int requests;
    struct player player[PLAYERS];
    struct loop_figures *figures;
    /* (requests) of the step under way */
    struct draft_block *block;
    int32_t *drafted, *admitted;
    double *predicted, *survival, *sorted; /* (requests, K) */
};

/* ------------------------------------------------------------------------------------- one step */

/* Probabilities and survivals of all drafts in a player's eyes. */
static void predict(struct loop *loop, const struct player *player)
{
    for (int r = 0; r < loop->requests; r++) {
        const struct draft_block *block = &loop->block[r];
        double *p = loop->predicted + r * K;
        for (int k = 0; k < K; k++) {
            if (player->estimator == NULL)
                p[k] = isnan(block->feature[k]) ? 0.0 : block->p[k];
            else if (tt_estimator_predict(player->estimator, k, &block->feature[k], 1, &p[k]) != 0)
                abort();
        }
        if (tt_survival(p, K, loop->survival + r * K) != TT_OK) abort();
    }
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

static double step_time(const struct loop *loop, double drafts)
{
    return 1.0 + loop->options.token_cost * (loop->requests + drafts);
}

/* The budget with the most predicted tokens per time. */
static int64_t choose_budget(struct loop *loop)
{
    const int drafts = loop->requests * K;
    memcpy(loop->sorted, loop->survival, (size_t)drafts * sizeof(*loop->sorted));
    qsort(loop->sorted, (size_t)drafts, sizeof(*loop->sorted), descending);
    double tokens = loop->requests, best = tokens / step_time(loop, 0.0);
    int64_t budget = 0;
    for (int b = 1; b <= drafts; b++) {
        tokens += loop->sorted[b - 1];
        const double value = tokens / step_time(loop, b);
        if (value > best) {
            best = value;
            budget = b;
        }
    }
    return budget;
}

static bool warming(const struct loop *loop, int t)
{
    return t < FIRST_STEPS && t * loop->requests < FIRST_ROWS;
}

/* Some requests verify down to the first starved position, whatever that is worth. */
static void explore(struct loop *loop, struct player *player)
{
    const int starved = tt_estimator_starved(player->estimator);
    if (starved < 0 || !loop->options.explore) return;
    for (int r = 0; r < loop->requests; r++) {
        const double time = loop->options.token_cost * (starved + 1 - loop->admitted[r]);
        if (time <= 0.0 || loop->block[r].coin >= EXPLORE || time > player->credit) continue;
        player->credit -= time;
        loop->admitted[r] = starved + 1;
    }
}

/* Fill loop->admitted as this player decides. */
static void plan(struct loop *loop, int index, int t)
{
    const bool all = index == TT_ONLINE && warming(loop, t);
    if (tt_allocate(loop->survival, (size_t)loop->requests, K, loop->drafted,
                    all ? INT64_MAX : choose_budget(loop), loop->admitted) < 0)
        abort();
    if (index == TT_ONLINE) explore(loop, &loop->player[index]);
}

/* Expected tokens and time of what was admitted. */
static void account(struct loop *loop, int index)
{
    struct player *player = &loop->player[index];
    struct player_figures *figures = &loop->figures->player[index];
    double tokens = loop->requests, drafts = 0.0;
    for (int r = 0; r < loop->requests; r++) {
        double survival = 1.0;
        for (int k = 0; k < loop->admitted[r]; k++) {
            survival *= loop->block[r].p[k];
            tokens += survival;
        }
        drafts += loop->admitted[r];
    }
    const double time = step_time(loop, drafts);
    figures->tokens += tokens;
    figures->time += time;
    player->recent_tokens = RECOVERY_FORGET * player->recent_tokens + tokens;
    player->recent_time = RECOVERY_FORGET * player->recent_time + time;
    player->credit =
        fmin(player->credit + EXPLORE_BUDGET * time, EXPLORE_BUDGET * EXPLORE_SAVED_STEPS * time);
}

static double divergence(double p, double q)
{
    double sum = 0.0;
    q = fmin(fmax(q, 1e-12), 1.0 - 1e-12);
    if (p > 0.0) sum += p * log(p / q);
    if (p < 1.0) sum += (1.0 - p) * log((1.0 - p) / (1.0 - q));
    return sum;
}

/* Judge predictions at every position, each as far as it would be reached. */
static void judge_predictions(struct loop *loop, struct player_figures *figures)
{
    for (int r = 0; r < loop->requests; r++) {
        const struct draft_block *block = &loop->block[r];
        double reach = 1.0;
        for (int k = 0; k < K; k++) {
            const double p = block->p[k], q = loop->predicted[r * K + k];
            if (!isnan(block->feature[k])) {
                const int bin = (int)(q * RELIABILITY_BINS);
                figures->excess += reach * divergence(p, q);
                figures->weight += reach;
                figures->gap[bin < RELIABILITY_BINS ? bin : RELIABILITY_BINS - 1] +=
                    reach * (p - q);
            }
            reach *= p;
        }
    }
}

static int observe(struct loop *loop, tt_estimator *estimator)
{
    for (int r = 0; r < loop->requests; r++) {
        const struct draft_block *block = &loop->block[r];
        const struct tt_observation observation = {
            .feature = block->feature,
            .soft = loop->world.scenario == SOFT_LABELS ? block->soft : NULL,
            .admitted = loop->admitted[r],
            .accepted = block->matched < loop->admitted[r] ? block->matched : loop->admitted[r]};
        if (tt_estimator_observe(estimator, &observation) != TT_OK) abort();
    }
    const int done = tt_estimator_end_step(estimator);
    if (done < 0) abort();
    return done;
}

/* ------------------------------------------------------------------------------------- judgement
 */

static void judge_interval(struct loop_figures *figures, int interval, double error, double se)
{
    figures->covered[interval] += fabs(error) < 1.96 * se;
    figures->judged[interval] += 1.0;
}

static void judge_intervals(struct loop *loop, const struct tt_estimator_report *report)
{
    const struct world *world = &loop->world;
    if (!scenario_has_coefficients(world->scenario)) return;
    judge_interval(loop->figures, 0, report->slope - world->slope, report->slope_se);
    for (int k = 0; k < K; k++) {
        const struct tt_position_report *position = &report->position[k];
        if (position->reached >= MIN_LABELS)
            judge_interval(loop->figures, 1 + k, position->intercept - world_intercept(world, k),
                           position->intercept_se);
    }
}

/* Steps from a change of the law until a player earns nearly what the oracle does. */
static void judge_recovery(struct loop *loop, int index, bool changed)
{
    struct player *player = &loop->player[index];
    const struct player *oracle = &loop->player[ORACLE];
    struct player_figures *figures = &loop->figures->player[index];
    const bool pending = player->since >= 0;
    const bool near = player->recent_tokens * oracle->recent_time >=
                      RECOVERED * oracle->recent_tokens * player->recent_time;
    if (pending && (near || changed)) {
        figures->recovery += player->since;
        figures->recoveries += 1.0;
        player->since = -1;
    }
    if (changed) player->since = player->recent_tokens = player->recent_time = 0;
    if (player->since >= 0) player->since++;
}

static void end_step(struct loop *loop, int index, int done, int t)
{
    struct tt_estimator_report report;
    if (!(done & TT_STEP_REFIT)) return;
    if (tt_estimator_report(loop->player[index].estimator, &report) != TT_OK) abort();
    for (int k = 0; k < K; k++) {
        if (!isfinite(report.slope + report.position[k].intercept))
            loop->figures->player[index].unsound = true;
    }
    if (index != TT_ONLINE) return;
    if (!isfinite(report.slope_se + report.level + report.level_se))
        loop->figures->player[index].unsound = true;
    loop->figures->alarms += (done & TT_STEP_DRIFT) != 0;
    if (t >= JUDGE_FROM_STEP && (t + 1) % JUDGE_INTERVAL_STEPS == 0) judge_intervals(loop, &report);
}

/* ------------------------------------------------------------------------------------- the loop */

static tt_estimator *estimator_new(enum tt_estimator_kind kind)
{
    const struct tt_estimator_options options = {
        .kind = kind, .positions = K, .prior_slope = NAN, .prior_level = NAN};
    tt_estimator *estimator = NULL;
    if (tt_estimator_new(&estimator, &options) != TT_OK) abort();
    return estimator;
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (memory == NULL) abort();
    return memory;
}

static void run_step(struct loop *loop, int t)
{
    const bool changed = world_step(&loop->world, t);
    for (int r = 0; r < loop->requests; r++) world_draw(&loop->world, &loop->block[r]);
    for (int i = 0; i < PLAYERS; i++) {
        struct player *player = &loop->player[i];
        predict(loop, player);
        plan(loop, i, t);
        if (changed) judge_recovery(loop, i, true);
        account(loop, i);
        judge_predictions(loop, &loop->figures->player[i]);
        if (player->estimator != NULL) end_step(loop, i, observe(loop, player->estimator), t);
    }
    for (int i = 0; i < ORACLE; i++) judge_recovery(loop, i, false);
}

void loop_run(enum scenario scenario, int requests, int steps, uint64_t seed,
              const struct loop_options *options, struct loop_figures *figures)
{
    const size_t rows = (size_t)requests;
    struct loop loop = {.options = *options, .requests = requests, .figures = figures};
    world_start(&loop.world, scenario, steps, seed * 64 + rows);
    loop.block = allocate(rows, sizeof(*loop.block));
    loop.drafted = allocate(rows, sizeof(*loop.drafted));
    loop.admitted = allocate(rows, sizeof(*loop.admitted));
    loop.predicted = allocate(rows * K, sizeof(*loop.predicted));
    loop.survival = allocate(rows * K, sizeof(*loop.survival));
    loop.sorted = allocate(rows * K, sizeof(*loop.sorted));
    for (int r = 0; r < requests; r++) loop.drafted[r] = K;
    for (int i = 0; i < PLAYERS; i++) {
        loop.player[i].since = -1;
        if (i != ORACLE) loop.player[i].estimator = estimator_new((enum tt_estimator_kind)i);
    }
    for (int t = 0; t < steps; t++) run_step(&loop, t);
    figures->steps += steps;
    for (int i = 0; i < PLAYERS; i++) tt_estimator_free(loop.player[i].estimator);
    free(loop.block);
    free(loop.drafted);
    free(loop.admitted);
    free(loop.predicted);
    free(loop.survival);
    free(loop.sorted);
}

/* -------------------------------------------------------------------------------------- figures */

double loop_regret(const struct loop_figures *figures, int player)
{
    const struct player_figures *own = &figures->player[player], *best = &figures->player[ORACLE];
    return 1.0 - own->tokens / own->time * best->time / best->tokens;
}

double loop_excess(const struct loop_figures *figures, int player)
{
    return 1000.0 * figures->player[player].excess / figures->player[player].weight;
}

double loop_ece(const struct loop_figures *figures, int player)
{
    double sum = 0.0;
    for (int b = 0; b < RELIABILITY_BINS; b++) sum += fabs(figures->player[player].gap[b]);
    return sum / figures->player[player].weight;
}

double loop_recovery(const struct loop_figures *figures, int player)
{
    const struct player_figures *own = &figures->player[player];
    return own->recoveries > 0.0 ? own->recovery / own->recoveries : (double)NAN;
}

double loop_alarms(const struct loop_figures *figures)
{
    return 1e4 * figures->alarms / figures->steps;
}

double loop_coverage(const struct loop_figures *figures, int interval)
{
    return figures->judged[interval] >= 20.0
               ? figures->covered[interval] / figures->judged[interval]
               : (double)NAN;
}
