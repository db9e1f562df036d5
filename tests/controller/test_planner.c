/* test_planner.c - the planner's decisions: modes, caps, depth by depth, regimes, probes,
 * exploration, shadow.
 *
 * Small simulations stand in for the node: requests whose drafts are accepted with a known
 * probability, a cost table, and a clock that follows it. Everything is seeded; nothing waits.
 */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "controller/planner.h"
#include "kernels/trimtab.h"

#define ROWS 64
#define DEPTH 6

struct simulation {
    struct cost_model *cost;
    struct planner *planner;
    struct planner_options options;
    int count;   /* requests */
    int prefill; /* further rows of every step */
    int cap[ROWS], catch_up, starved;
    bool free_draft, catching_up; /* catching_up: a request that was not drafted for falls behind */
    double acceptance;            /* of every position */
    double spread;                /* predictions are acceptance +- spread, and true */
    double own_ms;
    uint64_t step, random;
    /* sums */
    long steps, drafted, admitted, accepted, plain, probes, explored, resumed;
    double ms, probe_ms;
    int deepest, last_admitted[ROWS];
    struct planner_report report;
};

static double random_uniform(struct simulation *simulation)
{
    return tt_uniform(99, simulation->random++, 0, TT_DRAFT);
}

/* ms of n tokens is first + (n - 1) * more, of a draft forward 0.4 + 0.05 r. */
static struct cost_model *line_cost(double first, double more)
{
    struct cost_model *cost = cost_new(ROWS * (DEPTH + 1), ROWS);
    for (int n = 1; n <= 448; n = n < 16 ? n + 1 : n * 2)
        cost_observe_verify(cost, n, 0, first + (n - 1) * more);
    for (int r = 1; r <= ROWS; r *= 2) cost_observe_draft(cost, r, 0.4 + 0.05 * r);
    return cost;
}

/* q8_0 of the traces: two tokens cost 2.3 of one, seven more than eight. */
static struct cost_model *staircase_cost(void)
{
    static const struct {
        int tokens;
        double ms;
    } stairs[] = {{1, 6.55},  {2, 15.14}, {3, 19.55},  {4, 22.12},  {5, 26.35}, {6, 27.82},
                  {7, 30.13}, {8, 25.47}, {12, 30.74}, {16, 31.06}, {32, 58.43}};
    struct cost_model *cost = cost_new(448, ROWS);
    for (size_t i = 0; i < sizeof stairs / sizeof *stairs; i++)
        cost_observe_verify(cost, stairs[i].tokens, 0, stairs[i].ms);
    for (int r = 1; r <= ROWS; r *= 2) cost_observe_draft(cost, r, 0.4 + 0.05 * r);
    return cost;
}

static void simulation_init(struct simulation *simulation, struct cost_model *cost, int count,
                            double acceptance)
{
    *simulation = (struct simulation){
        .cost = cost, .count = count, .catch_up = 1, .starved = -1, .acceptance = acceptance};
    simulation->options = (struct planner_options){
        .max_draft = DEPTH, .max_requests = ROWS, .min_gain = 0.01, .exploration = true, .key = 7};
    for (int r = 0; r < ROWS; r++) simulation->cap[r] = DEPTH;
    simulation->planner = planner_new(&simulation->options, cost);
    assert_non_null(simulation->planner);
}

static void simulation_end(struct simulation *simulation)
{
    planner_free(simulation->planner);
    cost_free(simulation->cost);
}

static void clear_sums(struct simulation *simulation)
{
    simulation->steps = simulation->drafted = simulation->admitted = simulation->accepted =
        simulation->plain = 0;
    simulation->probes = simulation->explored = simulation->resumed = 0;
    simulation->ms = simulation->probe_ms = 0;
    simulation->deepest = 0;
}

static double rate(const struct simulation *simulation)
{
    return (double)(simulation->steps * simulation->count + simulation->accepted) / simulation->ms;
}

static void run_step(struct simulation *simulation)
{
    struct planner_request request[ROWS];
    int admitted[ROWS] = {0}, accepted[ROWS] = {0}, live, total = 0,
        tokens = simulation->count + simulation->prefill;
    double truth[ROWS][DEPTH], ms = 0;
    struct planner_outcome outcome = {
        .admitted = admitted, .accepted = accepted, .own_ms = simulation->own_ms};
    const int *rows;
    for (int r = 0; r < simulation->count; r++)
        request[r] = (struct planner_request){.cap = simulation->cap[r],
                                              .catch_up = simulation->catch_up,
                                              .free_draft = simulation->free_draft,
                                              .starved = simulation->starved};
    planner_begin(simulation->planner, request, simulation->count, tokens, 0, 100,
                  simulation->step++);
    for (int depth = 0; (live = planner_draft(simulation->planner, depth, &rows)) > 0; depth++) {
        double probability[ROWS];
        uint8_t admit[ROWS];
        int kept = 0;
        assert_true(depth < DEPTH);
        if (depth == 0 && simulation->catch_up > 1) simulation->resumed++;
        for (int i = 0; i < live; i++) {
            assert_in_range(rows[i], 0, simulation->count - 1);
            assert_true(i == 0 || rows[i] > rows[i - 1]);
            assert_true(depth < simulation->cap[rows[i]] && admitted[rows[i]] == depth);
            double sign = random_uniform(simulation) < 0.5 ? -1 : 1;
            truth[rows[i]][depth] = simulation->acceptance + sign * simulation->spread;
            probability[i] = truth[rows[i]][depth];
        }
        ms += simulation->free_draft
                  ? 0
                  : cost_draft(simulation->cost, depth == 0 ? live * simulation->catch_up : live);
        int said = planner_admit(simulation->planner, depth, probability, admit);
        for (int i = 0; i < live; i++) {
            admitted[rows[i]] += admit[i];
            kept += admit[i];
        }
        assert_int_equal(said, kept);
        simulation->drafted += live;
        if (depth + 1 > simulation->deepest && kept > 0) simulation->deepest = depth + 1;
    }
    for (int r = 0; r < simulation->count; r++) {
        while (accepted[r] < admitted[r] && random_uniform(simulation) < truth[r][accepted[r]])
            accepted[r]++;
        total += admitted[r];
        simulation->accepted += accepted[r];
        simulation->last_admitted[r] = admitted[r];
    }
    outcome.draft_ms = ms;
    outcome.verify_ms = cost_verify(simulation->cost, tokens + total, 0);
    planner_get_report(simulation->planner, &simulation->report);
    planner_end(simulation->planner, &outcome);
    ms += outcome.verify_ms + (total > 0 ? simulation->own_ms : 0);
    simulation->steps++;
    simulation->admitted += total;
    simulation->plain += total == 0;
    simulation->ms += ms;
    bool probe = !strcmp(simulation->report.why, "probe"),
         explore = !strcmp(simulation->report.why, "explore");
    simulation->probes += probe;
    simulation->explored += explore;
    if (probe) simulation->probe_ms += ms - cost_verify(simulation->cost, tokens, 0);
    if (simulation->catching_up)
        simulation->catch_up = ms > outcome.verify_ms      ? 1
                               : simulation->catch_up < 32 ? simulation->catch_up + 1
                                                           : 32;
}

static void run_steps(struct simulation *simulation, int steps)
{
    clear_sums(simulation);
    for (int i = 0; i < steps; i++) run_step(simulation);
}

/* ---- modes ---- */

static void off_never_drafts(void **state)
{
    (void)state;
    struct simulation s;
    simulation_init(&s, line_cost(10, 0.1), 4, 0.9);
    assert_int_equal(planner_set_mode(s.planner, MODE_OFF), -1);
    run_steps(&s, 300);
    assert_int_equal(s.drafted, 0);
    assert_string_equal(s.report.why, "off");
    assert_int_equal(s.report.regime, 0);
    simulation_end(&s);
}

static void fixed_drafts_and_admits_everything_within_caps(void **state)
{
    (void)state;
    struct simulation s;
    simulation_init(&s, line_cost(10, 9), 5, 0.1); /* whatever it is worth */
    s.cap[1] = 0;
    s.cap[2] = 1;
    s.cap[4] = 2;
    s.options.fixed_draft = 3;
    planner_set_options(s.planner, &s.options);
    assert_int_equal(planner_set_mode(s.planner, MODE_FIXED), 3);
    assert_int_equal(planner_fixed_draft(s.planner), 3);
    run_steps(&s, 20);
    assert_int_equal(s.admitted, 20 * (3 + 0 + 1 + 3 + 2));
    assert_int_equal(s.drafted, s.admitted);
    assert_string_equal(s.report.why, "fixed 3");
    assert_int_equal(s.report.regime, 3);
    assert_int_equal(s.report.admitted, 9);
    simulation_end(&s);
}

static void fixed_chooses_the_best_uniform_for_the_load(void **state)
{
    (void)state;
    for (int count = 1; count <= 16; count *= 2) {
        struct simulation s;
        simulation_init(&s, staircase_cost(), count, 0.8);
        s.options.fixed_draft = DEPTH;
        planner_set_options(s.planner, &s.options);
        planner_set_mode(s.planner, MODE_FIXED);
        run_steps(&s, 400); /* learn what is accepted */
        s.options.fixed_draft = 0;
        planner_set_options(s.planner, &s.options);
        int chosen = planner_set_mode(s.planner, MODE_FIXED), best = 1;
        double uniform[DEPTH + 1];
        run_steps(&s, 1);
        planner_uniform(s.planner, uniform, DEPTH + 1);
        for (int k = 2; k <= DEPTH; k++)
            if (uniform[k] > uniform[best]) best = k;
        assert_int_equal(chosen, best);
        assert_int_equal(s.admitted, chosen * count);
        simulation_end(&s);
    }
}

static void shadow_acts_as_fixed_and_reports_as_adaptive(void **state)
{
    (void)state;
    struct simulation s;
    simulation_init(&s, line_cost(10, 2.5), 8, 0.5);
    s.spread = 0.45;
    s.options.fixed_draft = 3;
    planner_set_options(s.planner, &s.options);
    assert_int_equal(planner_set_mode(s.planner, MODE_SHADOW), 3);
    run_steps(&s, 400);
    assert_int_equal(s.admitted, 400 * 3 * 8);
    int fewer = 0;
    for (int i = 0; i < 50; i++) {
        run_step(&s);
        assert_string_equal(s.report.why, "adaptive");
        assert_true(s.report.admitted <= 24 && s.report.drafted >= s.report.admitted);
        assert_true(s.report.cost_ms < cost_verify(s.cost, 32, 0));
        fewer += s.report.admitted < 24 && s.report.admitted > 0;
    }
    assert_true(fewer > 40);
    simulation_end(&s);
}

static void modes_change_between_steps(void **state)
{
    (void)state;
    static const enum mode modes[] = {MODE_ADAPTIVE, MODE_FIXED,    MODE_OFF,
                                      MODE_SHADOW,   MODE_ADAPTIVE, MODE_OFF};
    struct simulation s;
    simulation_init(&s, line_cost(10, 1), 4, 0.7);
    for (int i = 0; i < 60; i++) {
        enum mode mode = modes[i % 6];
        planner_set_mode(s.planner, mode);
        run_steps(&s, 7);
        assert_true((s.drafted > 0) == (mode != MODE_OFF) || mode == MODE_ADAPTIVE);
    }
    simulation_end(&s);
}

/* ---- one decision ---- */

/* Past the warm-up, with every position accepted at 0.6. */
static void warm(struct simulation *s)
{
    planner_set_mode(s->planner, MODE_ADAPTIVE);
    run_steps(s, 300);
}

/* Admission at depth 0 for given predictions. */
static int admit_once(struct simulation *s, const double *probability, uint8_t *admit)
{
    struct planner_request request[ROWS];
    const int *rows;
    for (int r = 0; r < s->count; r++)
        request[r] = (struct planner_request){.cap = s->cap[r], .catch_up = 1, .starved = -1};
    planner_begin(s->planner, request, s->count, s->count + s->prefill, 0, 100, s->step++);
    int live = planner_draft(s->planner, 0, &rows);
    if (live == 0) return 0;
    assert_int_equal(live, s->count);
    return planner_admit(s->planner, 0, probability, admit);
}

static void likely_drafts_are_admitted_first(void **state)
{
    (void)state;
    struct simulation s;
    uint8_t admit[4];
    simulation_init(&s, line_cost(10, 4), 4, 0.6);
    s.spread = 0.35;
    warm(&s);
    assert_int_equal(admit_once(&s, (double[]){0.05, 0.95, 0.1, 0.97}, admit), 2);
    assert_int_equal(admit[0], 0);
    assert_int_equal(admit[1], 1);
    assert_int_equal(admit[2], 0);
    assert_int_equal(admit[3], 1);
    simulation_end(&s);
}

/* Room for some of equal ones: the smaller rows win. */
static void equal_survivals_go_by_row(void **state)
{
    (void)state;
    struct simulation s;
    uint8_t admit[6];
    struct cost_model *cost = cost_new(64, ROWS);
    for (int n = 1; n <= 42; n++)
        cost_observe_verify(cost, n, 0, n <= 9 ? 10 + 0.01 * n : 10 + 20.0 * (n - 9));
    for (int r = 1; r <= 8; r++) cost_observe_draft(cost, r, 0.3);
    simulation_init(&s, cost, 6, 0.6);
    warm(&s);
    static const double equal[] = {0.6, 0.6, 0.6, 0.6, 0.6, 0.6};
    assert_int_equal(admit_once(&s, equal, admit), 3);
    for (int r = 0; r < 6; r++) assert_int_equal(admit[r], r < 3);
    simulation_end(&s);
}

/* Two tokens beyond six: the seventh row is dearer than both. */
static void a_staircase_is_climbed_by_two(void **state)
{
    (void)state;
    struct simulation s;
    uint8_t admit[6];
    struct cost_model *cost = cost_new(64, ROWS);
    for (int n = 1; n <= 42; n++)
        cost_observe_verify(cost, n, 0, n == 7 ? 30 : n <= 8 ? 20 : 20 + 15.0 * (n - 8));
    for (int r = 1; r <= 8; r++) cost_observe_draft(cost, r, 0.3);
    simulation_init(&s, cost, 6, 0.6);
    warm(&s);
    assert_int_equal(admit_once(&s, (double[]){0.3, 0.3, 0.3, 0.3, 0.3, 0.3}, admit), 2);
    /* with a prefill row the step starts at seven: one more token saves time */
    s.prefill = 1;
    assert_int_equal(admit_once(&s, (double[]){0.3, 0.3, 0.3, 0.3, 0.3, 0.3}, admit), 1);
    /* and from eight every further one is too dear */
    s.prefill = 2;
    assert_int_equal(admit_once(&s, (double[]){0.3, 0.3, 0.3, 0.3, 0.3, 0.3}, admit), 0);
    simulation_end(&s);
}

static void a_row_without_a_law_is_never_admitted(void **state)
{
    (void)state;
    static const enum mode modes[] = {MODE_FIXED, MODE_ADAPTIVE, MODE_SHADOW};
    for (int m = 0; m < 3; m++) {
        struct simulation s;
        uint8_t admit[4];
        const int *rows;
        simulation_init(&s, line_cost(10, 0.1), 4, 0.6);
        planner_set_mode(s.planner, modes[m]);
        assert_int_equal(admit_once(&s, (double[]){NAN, 0.9, 0, 0.9}, admit),
                         2); /* warm-up, or fixed */
        assert_int_equal(admit[0] + admit[2], 0);
        int live = planner_draft(s.planner, 1, &rows);
        for (int i = 0; i < live; i++) assert_true(rows[i] == 1 || rows[i] == 3);
        warm(&s);
        planner_set_mode(s.planner, modes[m]);
        assert_int_equal(admit_once(&s, (double[]){NAN, 0.9, 0, 0.9}, admit), 2);
        assert_int_equal(admit[0] + admit[2], 0);
        simulation_end(&s);
    }
}

static void prefill_and_nothing_to_decode(void **state)
{
    (void)state;
    struct simulation s;
    const int *rows;
    struct planner_outcome outcome = {.verify_ms = 50};
    simulation_init(&s, line_cost(10, 1), 4, 0.7);
    warm(&s);
    planner_begin(s.planner, NULL, 0, 128, 1, 100, 1);
    assert_int_equal(planner_draft(s.planner, 0, &rows), 0);
    double uniform[3];
    planner_uniform(s.planner, uniform, 3);
    assert_true(isnan(uniform[0]) && isnan(uniform[2]));
    planner_end(s.planner, &outcome);
    run_steps(&s, 10);
    assert_true(s.admitted > 0);
    simulation_end(&s);
}

static void without_costs_nothing_is_drafted(void **state)
{
    (void)state;
    struct simulation s;
    simulation_init(&s, cost_new(64, ROWS), 4, 0.9);
    assert_true(planner_set_mode(s.planner, MODE_FIXED) >= 1);
    planner_set_mode(s.planner, MODE_ADAPTIVE);
    struct planner_request request = {.cap = 3, .starved = 0};
    const int *rows;
    planner_begin(s.planner, &request, 1, 1, 0, 0, 0);
    assert_int_equal(planner_draft(s.planner, 0, &rows), 0);
    simulation_end(&s);
}

static void the_report_adds_up(void **state)
{
    (void)state;
    struct simulation s;
    simulation_init(&s, line_cost(10, 1), 2, 0.8);
    s.options.fixed_draft = 2;
    planner_set_options(s.planner, &s.options);
    planner_set_mode(s.planner, MODE_FIXED);
    run_steps(&s, 400);
    assert_true(fabs(s.report.value - (2 + 2 * (0.8 + 0.64))) < 1e-9);
    assert_true(fabs(s.report.cost_ms - (15 + 2 * 0.5)) < 1e-6);
    assert_int_equal(s.report.drafted, 4);
    double uniform[DEPTH + 1];
    planner_uniform(s.planner, uniform, DEPTH + 1);
    assert_true(fabs(uniform[0] - 2.0 / 11) < 1e-6);
    assert_true(fabs(uniform[2] - (2 + 2 * (0.8 + 0.64)) / 16) <
                0.01); /* acceptances are learned */
    assert_true(s.report.lambda >= uniform[2]);
    simulation_end(&s);
}

/* ---- which drafter ---- */

static bool prefers_free(const struct simulation *s, double probability)
{
    double known[DEPTH];
    for (int k = 0; k < DEPTH; k++) known[k] = probability;
    struct planner_request model = {.cap = DEPTH, .catch_up = 1, .starved = -1},
                           free_draft = {.cap = DEPTH,
                                         .stratum = 1,
                                         .free_draft = true,
                                         .starved = -1,
                                         .known = known};
    return planner_prefers_free(s->planner, &model, &free_draft, s->count);
}

/* draft = auto: a likely proposal beats the model, an unlikely one does not, and where the draft
 * model stands still it need only be worth its verification. */
static void the_drafter_goes_by_expected_value(void **state)
{
    (void)state;
    struct simulation s;
    simulation_init(&s, line_cost(10, 1), 2, 0.6);
    planner_set_mode(s.planner, MODE_ADAPTIVE);
    run_step(&s);
    assert_false(prefers_free(&s, 0.99)); /* the warm-up learns what the model is worth */
    warm(&s);
    assert_true(prefers_free(&s, 0.95));
    assert_false(prefers_free(&s, 0.2));
    planner_set_mode(s.planner, MODE_FIXED);
    assert_false(prefers_free(&s, 0.99)); /* fixed is one drafter's */
    simulation_end(&s);

    simulation_init(&s, line_cost(10, 4), 2, 0.05);
    warm(&s);
    run_steps(&s, 200);
    assert_true(s.plain > 180);
    assert_true(prefers_free(&s, 0.7)); /* a token costs 0.4 of a step: 0.5 would not pay for two */
    assert_false(prefers_free(&s, 0.3));
    simulation_end(&s);
}

/* A free draft whose predictions are known is used where they are high, whatever its kind makes on
 * average. */
static void known_predictions_count_for_more_than_the_mean(void **state)
{
    (void)state;
    struct simulation s;
    const int *rows;
    simulation_init(&s, line_cost(10, 4), 1, 0.05);
    s.free_draft = true;
    warm(&s);
    for (int likely = 0; likely < 2; likely++) {
        double known[DEPTH];
        for (int k = 0; k < DEPTH; k++) known[k] = likely ? 0.95 : 0.05;
        struct planner_request request = {
            .cap = DEPTH, .free_draft = true, .starved = -1, .known = known};
        planner_begin(s.planner, &request, 1, 1, 0, 100, 1000000 + s.step++);
        assert_int_equal(planner_draft(s.planner, 0, &rows), likely);
    }
    simulation_end(&s);
}

/* ---- warm-up ---- */

/* Everything is verified as deep as one who hopes would go: to the end where drafts are accepted,
 * and no longer than it takes to see that they are not. */
static void a_warm_up_goes_as_deep_as_hope(void **state)
{
    (void)state;
    struct simulation s;
    simulation_init(&s, line_cost(10, 0.5), 1, 0.9);
    planner_set_mode(s.planner, MODE_ADAPTIVE);
    run_steps(&s, 60);
    assert_string_equal(s.report.why, "warm-up");
    assert_int_equal(s.drafted, s.admitted);
    assert_true(s.admitted > 55 * DEPTH);
    simulation_end(&s);
    simulation_init(&s, line_cost(10, 0.5), 1, 0.05);
    planner_set_mode(s.planner, MODE_ADAPTIVE);
    run_step(&s);
    assert_true(s.admitted >= DEPTH - 1); /* nothing is known yet */
    run_steps(&s, 60);
    assert_true(s.admitted < 120); /* a prior of one half gives way */
    run_steps(&s, 100);
    assert_true(s.admitted < 20);
    simulation_end(&s);
}

static void a_warm_up_is_no_deeper_than_it_may_cost(void **state)
{
    (void)state;
    struct simulation s;
    simulation_init(&s, line_cost(10, 2), 4,
                    0.5); /* 16 ms plain; K = 1: 24 and the draft; K = 2: 32 */
    planner_set_mode(s.planner, MODE_ADAPTIVE);
    run_step(&s);
    assert_int_equal(s.admitted, 4);
    assert_string_equal(s.report.why, "warm-up");
    simulation_end(&s);
    simulation_init(&s, line_cost(10, 10), 1, 0.5); /* even one draft doubles the step */
    planner_set_mode(s.planner, MODE_ADAPTIVE);
    run_steps(&s, 20);
    assert_int_equal(s.admitted, 0);
    simulation_end(&s);
}

/* Requests whose drafts give no labels must not keep it going. */
static void a_warm_up_without_labels_ends(void **state)
{
    (void)state;
    struct simulation s;
    int drafting = 0;
    simulation_init(&s, line_cost(10, 1), 1, 0.5);
    planner_set_mode(s.planner, MODE_ADAPTIVE);
    for (uint64_t step = 0; step < 400; step++) {
        struct planner_request request = {.cap = DEPTH, .catch_up = 1, .starved = -1};
        int none = 0;
        struct planner_outcome outcome = {&none, &none, 1, 10, 0.1};
        const int *rows;
        uint8_t admit;
        planner_begin(s.planner, &request, 1, 1, 0, 100, step);
        for (int depth = 0; planner_draft(s.planner, depth, &rows) > 0; depth++)
            planner_admit(s.planner, depth, (double[]){0.02}, &admit);
        planner_get_report(s.planner, &s.report);
        drafting += s.report.admitted > 0;
        planner_end(s.planner, &outcome);
    }
    assert_in_range(drafting, 60, 130);
    simulation_end(&s);
}

/* ---- regimes ---- */

static void off_where_drafts_cannot_pay(void **state)
{
    (void)state;
    struct simulation s;
    simulation_init(&s, staircase_cost(), 1, 0.5); /* two tokens cost 2.3 of one */
    planner_set_mode(s.planner, MODE_ADAPTIVE);
    run_steps(&s, 200);
    run_steps(&s, 4000);
    assert_true(s.plain > 3900);
    assert_true(rate(&s) > 0.99 / cost_verify(s.cost, 1, 0));
    simulation_end(&s);
}

static void collapse_falls_back_to_none_and_recovers(void **state)
{
    (void)state;
    struct simulation s;
    int from, to;
    double gain;
    simulation_init(&s, line_cost(10, 1.5), 4, 0.75);
    s.spread = 0.15;
    s.catching_up = true;
    planner_set_mode(s.planner, MODE_ADAPTIVE);
    run_steps(&s, 1000);
    run_steps(&s, 500);
    assert_true(s.plain < 25);
    while (planner_take_change(s.planner, &from, &to, &gain)) continue;

    s.acceptance = s.spread = 0.01;
    run_steps(&s, 300);
    assert_true(planner_take_change(s.planner, &from, &to, &gain));
    assert_true(from > 0);
    assert_int_equal(to, 0);
    run_steps(&s, 20000);
    assert_true(s.plain > 19700);
    assert_in_range(s.probes, 10, 200);
    assert_true(s.probe_ms < 0.005 * s.ms);

    s.acceptance = 0.75;
    s.spread = 0.15;
    int steps = 0;
    while (!planner_take_change(s.planner, &from, &to, &gain) && steps < 40000) {
        run_step(&s);
        steps++;
    }
    assert_int_equal(from, 0);
    assert_true(to > 0 && gain > 0);
    assert_true(steps < 20000);
    run_steps(&s, 500);
    assert_true(s.plain < 50);
    simulation_end(&s);
}

/* Where drafts just break even, noise must not make the regime flap (llama.cpp 27210, vllm 49548).
 */
static void no_thrash_at_break_even(void **state)
{
    (void)state;
    struct simulation s;
    int from, to, changes = 0;
    double gain;
    simulation_init(&s, line_cost(10, 4.6), 4, 0.52);
    s.catching_up = true;
    planner_set_mode(s.planner, MODE_ADAPTIVE);
    run_steps(&s, 500);
    clear_sums(&s);
    for (int i = 0; i < 8000; i++) {
        run_step(&s);
        changes += planner_take_change(s.planner, &from, &to, &gain);
    }
    assert_true(changes <= 40); /* one in 200 steps at most */
    double plain = 4 / cost_verify(s.cost, 4, 0);
    assert_true(rate(&s) > 0.985 * plain);
    simulation_end(&s);
}

static void the_load_decides(void **state)
{
    (void)state;
    struct simulation s;
    simulation_init(&s, line_cost(10, 3), 1, 0.5);
    s.spread = 0.2;
    planner_set_mode(s.planner, MODE_ADAPTIVE);
    run_steps(&s, 400);
    run_steps(&s, 400);
    assert_true(s.admitted > 150); /* alone: a second token costs 0.3 of the first */
    s.count = 32;
    run_steps(&s, 50);
    run_steps(&s, 400);
    assert_true(s.admitted < 400 * 32 / 4); /* together: each costs as much as a token is worth */
    s.count = 1;
    run_steps(&s, 1000);
    run_steps(&s, 400);
    assert_true(s.admitted > 150);
    simulation_end(&s);
}

static void reading_up_is_priced_into_the_return(void **state)
{
    (void)state;
    for (int behind = 0; behind < 2; behind++) {
        struct simulation s;
        simulation_init(&s, line_cost(10, 2), 4, 0.65);
        s.options.exploration = false;
        planner_set_options(s.planner, &s.options);
        warm(&s);
        planner_set_mode(s.planner, MODE_OFF);
        run_steps(&s, 5);
        planner_set_mode(s.planner, MODE_ADAPTIVE);
        s.catch_up = behind ? 2000 : 1; /* a forward of 8000 tokens */
        run_steps(&s, 20);
        if (behind)
            assert_int_equal(s.drafted, 0);
        else
            assert_true(s.drafted > 0);
        simulation_end(&s);
    }
}

static void own_work_is_charged(void **state)
{
    (void)state;
    for (int dear = 0; dear < 2; dear++) {
        struct simulation s;
        simulation_init(&s, line_cost(10, 1), 1, 0.3);
        planner_set_mode(s.planner, MODE_ADAPTIVE);
        planner_set_mode(s.planner, MODE_OFF);
        s.own_ms = 0.001;
        run_steps(&s, 30); /* what a plain step takes */
        planner_set_mode(s.planner, MODE_ADAPTIVE);
        s.own_ms = dear ? 3 : 0.001;
        run_steps(&s, 62); /* warm-up */
        s.own_ms = 0.001;
        run_steps(&s, 300);
        if (dear)
            assert_true(s.plain > 250);
        else
            assert_true(s.plain < 100);
        simulation_end(&s);
    }
}

/* Drafts that cost no draft forward go on while the draft model is off. */
static void free_drafts_pay_where_others_do_not(void **state)
{
    (void)state;
    for (int is_free = 0; is_free < 2; is_free++) {
        struct simulation s;
        struct cost_model *cost = cost_new(448, ROWS);
        for (int n = 1; n <= 64; n++) cost_observe_verify(cost, n, 0, 10 + 0.5 * n);
        for (int r = 1; r <= 8; r++) cost_observe_draft(cost, r, 8);
        simulation_init(&s, cost, 4, 0.4);
        s.free_draft = is_free;
        planner_set_mode(s.planner, MODE_ADAPTIVE);
        run_steps(&s, 200);
        run_steps(&s, 400);
        if (is_free)
            assert_true(s.admitted > 1000);
        else
            assert_true(s.admitted < 100);
        simulation_end(&s);
    }
}

/* A request that has a hopeless stratum does not make the others pay for it, nor the other way
 * round. */
static void strata_are_told_apart(void **state)
{
    (void)state;
    struct simulation s;
    simulation_init(&s, line_cost(10, 2), 8, 0.5);
    planner_set_mode(s.planner, MODE_ADAPTIVE);
    long good = 0, bad = 0;
    for (int i = 0; i < 800; i++) {
        struct planner_request request[8];
        int admitted[8] = {0}, accepted[8] = {0}, live;
        struct planner_outcome outcome = {admitted, accepted, 1, 20, 0.01};
        const int *rows;
        for (int r = 0; r < 8; r++)
            request[r] = (struct planner_request){
                .cap = DEPTH, .stratum = r % 2, .catch_up = 1, .starved = -1};
        planner_begin(s.planner, request, 8, 8, 0, 100, s.step++);
        for (int depth = 0; (live = planner_draft(s.planner, depth, &rows)) > 0; depth++) {
            double probability[8];
            uint8_t admit[8];
            for (int k = 0; k < live; k++) probability[k] = rows[k] % 2 ? 0.05 : 0.85;
            planner_admit(s.planner, depth, probability, admit);
            for (int k = 0; k < live; k++) admitted[rows[k]] += admit[k];
        }
        for (int r = 0; r < 8; r++)
            while (accepted[r] < admitted[r] && random_uniform(&s) < (r % 2 ? 0.05 : 0.85))
                accepted[r]++;
        for (int r = 0; i >= 400 && r < 8; r++) *(r % 2 ? &bad : &good) += admitted[r];
        planner_end(s.planner, &outcome);
    }
    assert_true(good > 400 * 4 * 0.9);
    assert_true(bad < 400);
    simulation_end(&s);
}

/* ---- probes, exploration ---- */

static void exploration_reaches_starved_positions_within_its_budget(void **state)
{
    (void)state;
    for (int on = 0; on < 2; on++) {
        struct simulation s;
        simulation_init(&s, line_cost(10, 0.8), 8, 0.5);
        s.options.exploration = on;
        planner_set_options(s.planner, &s.options);
        warm(&s);
        s.starved = 4;
        run_steps(&s, 6000);
        if (on) {
            assert_true(s.explored > 20);
            assert_int_equal(s.deepest, 5);
            assert_true(s.explored < 6000 * 8 * 0.005 * 1.2);
        } else {
            assert_int_equal(s.explored, 0);
            assert_true(s.deepest < 5);
        }
        simulation_end(&s);
    }
}

static void without_exploration_there_are_no_probes(void **state)
{
    (void)state;
    struct simulation s;
    simulation_init(&s, staircase_cost(), 1, 0.3);
    s.options.exploration = false;
    planner_set_options(s.planner, &s.options);
    planner_set_mode(s.planner, MODE_ADAPTIVE);
    run_steps(&s, 200);
    run_steps(&s, 5000);
    assert_int_equal(s.drafted, 0);
    simulation_end(&s);
}

/* ---- others ---- */

static void the_same_inputs_give_the_same_plan(void **state)
{
    (void)state;
    struct simulation a, b;
    simulation_init(&a, line_cost(10, 2), 6, 0.6);
    simulation_init(&b, line_cost(10, 2), 6, 0.6);
    a.spread = b.spread = 0.3;
    planner_set_mode(a.planner, MODE_ADAPTIVE);
    planner_set_mode(b.planner, MODE_ADAPTIVE);
    for (int i = 0; i < 1000; i++) {
        run_step(&a);
        run_step(&b);
        assert_memory_equal(a.last_admitted, b.last_admitted, sizeof a.last_admitted);
    }
    simulation_end(&a);
    simulation_end(&b);
}

static void options_change_while_running(void **state)
{
    (void)state;
    struct simulation s;
    simulation_init(&s, line_cost(10, 0.2), 4, 0.95);
    warm(&s);
    run_steps(&s, 20);
    assert_int_equal(s.deepest, DEPTH);
    s.options.max_draft = 2;
    planner_set_options(s.planner, &s.options);
    run_steps(&s, 50);
    assert_int_equal(s.deepest, 2);
    s.options.max_draft = 4;
    planner_set_options(s.planner, &s.options);
    run_steps(&s, 400);
    assert_int_equal(s.deepest, 4);
    simulation_end(&s);
}

/* Known predictions pay: the rule beats every uniform K that sees the same requests. */
static void the_rule_beats_uniform_drafting(void **state)
{
    (void)state;
    double best = 0;
    for (int draft = 0; draft <= DEPTH; draft++) {
        struct simulation s;
        simulation_init(&s, line_cost(10, 1.5), 8, 0.5);
        s.spread = 0.4;
        s.options.fixed_draft = draft;
        planner_set_options(s.planner, &s.options);
        planner_set_mode(s.planner, draft ? MODE_FIXED : MODE_OFF);
        run_steps(&s, 2000);
        best = fmax(best, rate(&s));
        simulation_end(&s);
    }
    struct simulation s;
    simulation_init(&s, line_cost(10, 1.5), 8, 0.5);
    s.spread = 0.4;
    planner_set_mode(s.planner, MODE_ADAPTIVE);
    run_steps(&s, 100);
    run_steps(&s, 2000);
    assert_true(rate(&s) > 1.07 * best);
    simulation_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(off_never_drafts),
        cmocka_unit_test(fixed_drafts_and_admits_everything_within_caps),
        cmocka_unit_test(fixed_chooses_the_best_uniform_for_the_load),
        cmocka_unit_test(shadow_acts_as_fixed_and_reports_as_adaptive),
        cmocka_unit_test(modes_change_between_steps),
        cmocka_unit_test(likely_drafts_are_admitted_first),
        cmocka_unit_test(equal_survivals_go_by_row),
        cmocka_unit_test(a_staircase_is_climbed_by_two),
        cmocka_unit_test(a_row_without_a_law_is_never_admitted),
        cmocka_unit_test(prefill_and_nothing_to_decode),
        cmocka_unit_test(without_costs_nothing_is_drafted),
        cmocka_unit_test(the_report_adds_up),
        cmocka_unit_test(the_drafter_goes_by_expected_value),
        cmocka_unit_test(known_predictions_count_for_more_than_the_mean),
        cmocka_unit_test(a_warm_up_goes_as_deep_as_hope),
        cmocka_unit_test(a_warm_up_is_no_deeper_than_it_may_cost),
        cmocka_unit_test(a_warm_up_without_labels_ends),
        cmocka_unit_test(off_where_drafts_cannot_pay),
        cmocka_unit_test(collapse_falls_back_to_none_and_recovers),
        cmocka_unit_test(no_thrash_at_break_even),
        cmocka_unit_test(the_load_decides),
        cmocka_unit_test(reading_up_is_priced_into_the_return),
        cmocka_unit_test(own_work_is_charged),
        cmocka_unit_test(free_drafts_pay_where_others_do_not),
        cmocka_unit_test(strata_are_told_apart),
        cmocka_unit_test(exploration_reaches_starved_positions_within_its_budget),
        cmocka_unit_test(without_exploration_there_are_no_probes),
        cmocka_unit_test(the_same_inputs_give_the_same_plan),
        cmocka_unit_test(options_change_while_running),
        cmocka_unit_test(the_rule_beats_uniform_drafting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
