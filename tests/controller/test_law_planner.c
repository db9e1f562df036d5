/* test_law_planner.c - the output law under the shipping planner and the shipping verifier, by
 * exact enumeration.
 *
 * Every branch of drafting and verification of one or two steps is run with its weight, for one to
 * three requests at once with rules and temperatures of their own. The joint law of what the
 * requests emit, each completed by plain decoding, must be the product of the targets' laws to
 * 1e-12. Planners that look at a drawn token, withdraw one, or break ties by its value are seeded
 * here and must be caught.
 */
#include "config.h"

#include <assert.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "controller/planner_internal.h"
#include "kernels/verify_core.h"
#include "tests/kernels/enumerate.h"
#include "tests/kernels/law_world.h"

#define REQUESTS_MAX 3
#define LENGTH_MAX 5 /* tokens whose law is compared */
#define EMITTED_MAX 16
#define JOINT_MAX 20000
#define RACE_STRIDE 100 /* requests have noise of their own */
#define KEY 42

enum confidence {
    BY_FEATURE, /* sigma(w f + b), and b moves with what the step before accepted */
    ALL_EQUAL,  /* every comparison is a tie */
    ALL_ZERO,
    ALL_ONE,
    BY_STEPS /* few different values: ties between some */
};

enum fault { SOUND, LOOKS_AT_TOKEN, WITHDRAWS, TIES_BY_VALUE, COMPARES_FINISHED };

enum costs { STAIRCASE, SLOPE, GENTLE, STEEP, LEVEL };

enum moment { ANY_STEP, PROBE_STEP, PLAIN_STEP, EXPLORE_STEP };

struct scenario {
    const char *name;
    enum world_kind world;
    uint32_t seed;
    size_t vocab;
    int max_draft, requests, steps;
    enum tt_rule rule[REQUESTS_MAX];
    double temperature[REQUESTS_MAX]; /* of rules other than greedy */
    int cap[REQUESTS_MAX];
    enum mode mode;
    int fixed_draft;
    enum confidence confidence;
    enum costs costs;
    enum moment moment;
    bool cold;   /* no history: warm-up */
    bool either; /* every request may also take a free draft, by the planner's choice */
    enum fault fault;
};

struct request_state {
    struct world world;
    int32_t token[EMITTED_MAX];
    int emitted, admitted, accepted;
    int32_t draft[TT_MAX_POSITIONS];
    double q[TT_MAX_POSITIONS * WORLD_VOCAB_MAX];
    double known[TT_MAX_POSITIONS]; /* predictions of the free draft */
    int32_t proposal[TT_MAX_POSITIONS];
    bool free_draft; /* this step's drafts are the proposal */
    enum tt_rule
        rule; /* of this step: a proposal is verified as a point mass in place of the ratio */
};

struct driver {
    const struct scenario *scenario;
    struct enumerator *e;
    struct planner *planner;
    uint64_t first_step;
    struct request_state request[REQUESTS_MAX];
    unsigned totals; /* bit n: n tokens were admitted in some step */
    const char *why;
    unsigned drafters; /* bit 0: some request drafted by model in some branch; bit 1: freely */
};

/* ---- laws ---- */

static double temperature_of(const struct scenario *scenario, int r)
{
    return scenario->rule[r] == TT_GREEDY ? 1.0 : scenario->temperature[r];
}

static void target_law(const struct scenario *scenario, const struct request_state *request, int r,
                       int32_t *prefix, int length, double *law)
{
    float logits[WORLD_VOCAB_MAX];
    size_t mode = 0;
    world_target(&request->world, prefix, length, logits);
    world_softmax(logits, scenario->vocab, temperature_of(scenario, r), law);
    if (scenario->rule[r] != TT_GREEDY) return;
    for (size_t i = 1; i < scenario->vocab; i++)
        if (logits[i] > logits[mode]) mode = i;
    for (size_t i = 0; i < scenario->vocab; i++) law[i] = i == mode ? 1.0 : 0.0;
}

static void draft_law(const struct scenario *scenario, const struct request_state *request, int r,
                      int32_t *prefix, int length, double *law)
{
    float logits[WORLD_VOCAB_MAX];
    world_draft(&request->world, prefix, length, logits);
    world_softmax(logits, request->world.draft_vocab, temperature_of(scenario, r), law);
}

static int32_t mode_of(const double *law, size_t count)
{
    size_t mode = 0;
    for (size_t i = 1; i < count; i++)
        if (law[i] > law[mode]) mode = i;
    return (int32_t)mode;
}

/* The tokens emitted so far and the block drafted after them. */
static int prefix_of(const struct request_state *request, int depth, int32_t *prefix)
{
    memcpy(prefix, request->token, (size_t)request->emitted * sizeof *prefix);
    memcpy(prefix + request->emitted, request->draft, (size_t)depth * sizeof *prefix);
    return request->emitted + depth;
}

/* ---- draft ---- */

/* What the estimator would say of a draft law: the log-odds of its mode, or a value that makes
 * trouble. */
static double predict(const struct scenario *scenario, const struct request_state *request,
                      const double *q)
{
    double top = q[mode_of(q, request->world.draft_vocab)];
    double f = fmin(log(top / fmax(1 - top, 1e-7)), 16);
    switch (scenario->confidence) {
    case ALL_EQUAL:
        return 0.6;
    case ALL_ZERO:
        return 0;
    case ALL_ONE:
        return 1;
    case BY_STEPS:
        return top > 0.6 ? 0.75 : 0.25;
    default:
        return 1 / (1 + exp(-(3 * f - 0.3 + 0.4 * request->accepted)));
    }
}

static int32_t draw_token(struct driver *driver, int r, int depth, const double *q)
{
    struct request_state *request = &driver->request[r];
    uint64_t index = (uint64_t)(RACE_STRIDE * r + request->emitted + depth);
    struct choice_site site = {index, (uint32_t)depth, TT_DRAFT};
    if (request->free_draft) return request->proposal[depth];
    switch (request->rule) {
    case TT_RATIO:
        return (int32_t)choice_draw(&driver->e->base, &site, 0, q, request->world.draft_vocab);
    case TT_COUPLED:
        return (int32_t)choice_race(&driver->e->base, index, q, request->world.draft_vocab);
    default:
        return mode_of(q, request->world.draft_vocab);
    }
}

/* The faults: each lets the fate of a token depend on its own value, in a way that was seen in the
 * field. */
static void apply_fault(struct driver *driver, const int *rows, int live, int depth, uint8_t *admit)
{
    enum fault fault = driver->scenario->fault;
    if (fault == WITHDRAWS) /* "round down to a bucket": the less likely token goes */
        for (int i = 0; i < live; i++)
            if (admit[i] && driver->request[rows[i]].draft[depth] == 1) admit[i] = 0;
    if (fault == TIES_BY_VALUE && live == 2 && admit[0] + admit[1] == 1 &&
        driver->request[rows[0]].draft[depth] != driver->request[rows[1]].draft[depth])
        for (int i = 0; i < live; i++) admit[i] = driver->request[rows[i]].draft[depth] == 0;
}

static int draft_depth(struct driver *driver, const int *rows, int live, int depth)
{
    const struct scenario *scenario = driver->scenario;
    double probability[REQUESTS_MAX];
    uint8_t admit[REQUESTS_MAX];
    int total = 0;
    for (int i = 0; i < live; i++) {
        struct request_state *request = &driver->request[rows[i]];
        int32_t prefix[EMITTED_MAX];
        double *q = &request->q[(size_t)depth * request->world.draft_vocab];
        assert_true(depth < scenario->max_draft && depth < scenario->cap[rows[i]]);
        draft_law(scenario, request, rows[i], prefix, prefix_of(request, depth, prefix), q);
        probability[i] =
            request->free_draft ? request->known[depth] : predict(scenario, request, q);
        bool drawn = scenario->fault == COMPARES_FINISHED && depth == 0 && !request->free_draft;
        if (scenario->fault == SOUND || drawn) continue;
        request->draft[depth] = draw_token(driver, rows[i], depth, q);
        if (scenario->fault == LOOKS_AT_TOKEN) probability[i] = q[request->draft[depth]];
    }
    int admitted = planner_admit(driver->planner, depth, probability, admit);
    for (int i = 0; i < live; i++) total += admit[i];
    assert_int_equal(admitted, total);
    apply_fault(driver, rows, live, depth, admit);
    for (int i = 0; i < live; i++) {
        struct request_state *request = &driver->request[rows[i]];
        if (!admit[i]) continue;
        if (scenario->fault == SOUND) /* only now */
            request->draft[depth] = draw_token(
                driver, rows[i], depth, &request->q[(size_t)depth * request->world.draft_vocab]);
        request->admitted = depth + 1;
    }
    return total;
}

/* ---- step ---- */

static void verify(struct driver *driver, int r)
{
    const struct scenario *scenario = driver->scenario;
    struct request_state *request = &driver->request[r];
    double p[(TT_MAX_POSITIONS + 1) * WORLD_VOCAB_MAX];
    int32_t prefix[EMITTED_MAX];
    for (int k = 0; k <= request->admitted; k++)
        target_law(scenario, request, r, prefix, prefix_of(request, k, prefix),
                   &p[(size_t)k * scenario->vocab]);
    struct verify_task task = {request->rule, request->draft, request->admitted,
                               (uint64_t)(RACE_STRIDE * r + request->emitted)};
    struct verify_tables tables = {p, request->q, scenario->vocab, request->world.draft_vocab};
    struct tt_verdict verdict;
    assert_int_equal(tt_verify_tables(&task, &tables, &driver->e->base, &verdict), TT_OK);
    assert_in_range(verdict.accepted, 0, request->admitted);
    assert_in_range(verdict.next, 0, scenario->vocab - 1);
    request->accepted = verdict.accepted;
    for (int k = 0; k < verdict.accepted; k++)
        request->token[request->emitted++] = request->draft[k];
    request->token[request->emitted++] = verdict.next;
}

/* What an n-gram index might propose: any function of what was emitted before, and how sure it is.
 */
static void propose(const struct scenario *scenario, struct request_state *request, int r)
{
    uint32_t hash = 2166136261u + (uint32_t)r;
    for (int i = 0; i < request->emitted; i++)
        hash = (hash ^ (uint32_t)request->token[i]) * 16777619u;
    for (int k = 0; k < scenario->max_draft; k++) {
        hash = (hash ^ (uint32_t)k) * 16777619u;
        request->proposal[k] = (int32_t)(hash >> 8) % (int32_t)scenario->vocab;
        request->known[k] = 0.05 + 0.9 * ((hash >> 16) % 8) / 7;
    }
}

/* The choice between both drafters by the shipping code; the fault makes it when both blocks are
 * finished, by what was drawn. */
static void choose_drafter(struct driver *driver, int r, struct planner_request *plan)
{
    const struct scenario *scenario = driver->scenario;
    struct request_state *request = &driver->request[r];
    request->free_draft = false;
    request->rule = scenario->rule[r];
    if (!scenario->either) return;
    propose(scenario, request, r);
    struct planner_request free_draft = *plan;
    free_draft.free_draft = true;
    free_draft.known = request->known;
    if (scenario->fault != COMPARES_FINISHED &&
        !planner_prefers_free(driver->planner, plan, &free_draft, scenario->requests))
        return;
    if (scenario->fault == COMPARES_FINISHED) {
        int32_t prefix[EMITTED_MAX];
        draft_law(scenario, request, r, prefix, prefix_of(request, 0, prefix), request->q);
        request->draft[0] = draw_token(driver, r, 0, request->q);
        if (request->draft[0] != 0) return;
    }
    request->free_draft = true;
    if (request->rule == TT_RATIO) request->rule = TT_POINT_MASS;
    *plan = free_draft;
}

static void run_step(struct driver *driver, uint64_t number)
{
    const struct scenario *scenario = driver->scenario;
    struct planner_request plan[REQUESTS_MAX];
    int admitted[REQUESTS_MAX], accepted[REQUESTS_MAX], total = 0, live;
    struct planner_outcome outcome = {admitted, accepted, 0.5, 20, 0.01};
    const int *rows;
    for (int r = 0; r < scenario->requests; r++) {
        driver->request[r].admitted = 0;
        plan[r] = (struct planner_request){
            .cap = scenario->cap[r],
            .stratum = r,
            .catch_up = 1,
            .free_draft = scenario->rule[r] == TT_POINT_MASS,
            .starved = scenario->moment == EXPLORE_STEP ? scenario->max_draft - 1 : -1};
        choose_drafter(driver, r, &plan[r]);
    }
    planner_begin(driver->planner, plan, scenario->requests, scenario->requests, 0, 100, number);
    for (int depth = 0; (live = planner_draft(driver->planner, depth, &rows)) > 0; depth++)
        draft_depth(driver, rows, live, depth);
    struct planner_report report;
    planner_get_report(driver->planner, &report);
    driver->why = report.why;
    for (int r = 0; r < scenario->requests; r++) {
        verify(driver, r);
        admitted[r] = driver->request[r].admitted;
        accepted[r] = driver->request[r].accepted;
        total += admitted[r];
        if (admitted[r] > 0) driver->drafters |= driver->request[r].free_draft ? 2 : 1;
    }
    driver->totals |= 1u << total;
    planner_end(driver->planner, &outcome);
}

/* ---- joint output law ---- */

static int law_length(const struct scenario *scenario)
{
    int length = scenario->max_draft + scenario->steps;
    while (length > 1 &&
           pow((double)scenario->vocab, (double)length * scenario->requests) > JOINT_MAX)
        length--;
    return length < LENGTH_MAX ? length : LENGTH_MAX;
}

/* Spread `weight` over every completion of what request r, r + 1, ... emitted; places are counted
 * in base vocab. */
static void spread(const struct driver *driver, int r, int at, int32_t *prefix, size_t place,
                   double weight, double *law)
{
    const struct scenario *scenario = driver->scenario;
    int length = law_length(scenario);
    if (weight <= 0) return;
    if (at == length) {
        r++;
        at = 0;
    }
    if (r == scenario->requests) {
        law[place] += weight;
        return;
    }
    const struct request_state *request = &driver->request[r];
    double next[WORLD_VOCAB_MAX];
    if (at < request->emitted) {
        prefix[r * LENGTH_MAX + at] = request->token[at];
        spread(driver, r, at + 1, prefix, place * scenario->vocab + (size_t)request->token[at],
               weight, law);
        return;
    }
    target_law(scenario, request, r, &prefix[r * LENGTH_MAX], at, next);
    for (size_t i = 0; i < scenario->vocab; i++) {
        prefix[r * LENGTH_MAX + at] = (int32_t)i;
        spread(driver, r, at + 1, prefix, place * scenario->vocab + i, weight * next[i], law);
    }
}

static void reset_requests(struct driver *driver)
{
    const struct scenario *scenario = driver->scenario;
    memset(driver->request, 0, sizeof driver->request);
    for (int r = 0; r < scenario->requests; r++)
        driver->request[r].world =
            (struct world){.kind = scenario->world,
                           .vocab = scenario->vocab,
                           .draft_vocab = scenario->vocab - (scenario->world == WORLD_SHORT),
                           .drafts = scenario->max_draft,
                           .seed = scenario->seed + (uint32_t)r};
}

/* ---- the planner ---- */

static struct cost_model *make_cost(enum costs costs)
{
    static const double stairs[] = {10, 13, 13.5, 19, 19.2, 19.4, 26, 24, 24.5, 31, 31.2, 31.4};
    static const double token_ms[] = {[SLOPE] = 1.9, [GENTLE] = 1.1, [STEEP] = 10, [LEVEL] = 0.01};
    struct cost_model *cost = cost_new(16, REQUESTS_MAX);
    for (int n = 1; n <= 12; n++) {
        double ms = costs == STAIRCASE ? stairs[n - 1] : 10 + token_ms[costs] * (n - 1);
        for (int i = 0; i < 3; i++) cost_observe_verify(cost, n, 0, ms);
    }
    for (int r = 1; r <= REQUESTS_MAX; r++)
        for (int i = 0; i < 3; i++)
            cost_observe_draft(cost, r, costs == STEEP ? 4.0 * r : 0.2 + 0.05 * r);
    return cost;
}

/* A past in which half to two thirds of all drafts were accepted, so that the rule decides and has
 * reason to vary. */
static void make_past(struct driver *driver)
{
    const struct scenario *scenario = driver->scenario;
    for (uint64_t number = 0; number < 90; number++) {
        struct planner_request plan[REQUESTS_MAX];
        int admitted[REQUESTS_MAX] = {0}, accepted[REQUESTS_MAX] = {0}, live;
        struct planner_outcome outcome = {admitted, accepted, 0.5, 20, 0.01};
        const int *rows;
        for (int r = 0; r < scenario->requests; r++)
            plan[r] = (struct planner_request){
                .cap = scenario->max_draft, .stratum = r, .catch_up = 1, .starved = -1};
        planner_begin(driver->planner, plan, scenario->requests, scenario->requests, 0, 100,
                      number);
        for (int depth = 0; (live = planner_draft(driver->planner, depth, &rows)) > 0; depth++) {
            double probability[REQUESTS_MAX];
            uint8_t admit[REQUESTS_MAX];
            for (int i = 0; i < live; i++)
                probability[i] = (double)((number * 7 + (uint64_t)rows[i] * 3) % 10) / 10;
            planner_admit(driver->planner, depth, probability, admit);
            for (int i = 0; i < live; i++) admitted[rows[i]] += admit[i];
        }
        for (int r = 0; r < scenario->requests; r++) {
            int most = (int)((number + (uint64_t)r) % 4);
            accepted[r] = most < admitted[r] ? most : admitted[r];
        }
        planner_end(driver->planner, &outcome);
    }
}

/* A step number at which the lot falls as the scenario wants. */
static uint64_t find_step(const struct scenario *scenario)
{
    static const uint32_t lot[] = {[PROBE_STEP] = 0, [PLAIN_STEP] = 2, [EXPLORE_STEP] = 3};
    uint32_t which = lot[scenario->moment];
    uint64_t number = 100;
    while (scenario->moment != ANY_STEP && tt_uniform(KEY, number, which, TT_EXPLORE) >= 0.005)
        number++;
    return number;
}

static struct planner *make_planner(struct driver *driver, const struct cost_model *cost)
{
    const struct scenario *scenario = driver->scenario;
    struct planner_options options = {.max_draft = scenario->max_draft,
                                      .max_requests = REQUESTS_MAX,
                                      .fixed_draft = scenario->fixed_draft,
                                      .min_gain = 0.01,
                                      .exploration = true,
                                      .key = KEY};
    driver->planner = planner_new(&options, cost);
    assert_non_null(driver->planner);
    if (!scenario->cold) {
        planner_set_mode(driver->planner, MODE_ADAPTIVE);
        make_past(driver);
    }
    planner_set_mode(driver->planner, scenario->mode);
    driver->planner->credit_ms = 1e6;
    return driver->planner;
}

/* A planner's memory as it was: all of it but the strata that no request has. The arrays hold
 * nothing between steps. */
static void copy_planner(struct planner *to, const struct planner *from)
{
    size_t start = offsetof(struct planner, stratum), end = start + sizeof from->stratum;
    memcpy(to, from, start + REQUESTS_MAX * sizeof from->stratum[0]);
    memcpy((char *)to + end, (const char *)from + end, sizeof *from - end);
}

/* Largest difference between the joint law of the output and the product of the targets' laws. */
static double law_error(const struct scenario *scenario, struct driver *driver)
{
    static struct enumerator e;
    static struct planner past;
    static double law[JOINT_MAX + 1], exact[JOINT_MAX + 1];
    struct cost_model *cost = make_cost(scenario->costs);
    size_t places =
        (size_t)(pow((double)scenario->vocab, (double)law_length(scenario) * scenario->requests) +
                 0.5);
    int32_t prefix[REQUESTS_MAX * LENGTH_MAX];
    double worst = 0, whole = 0;
    *driver = (struct driver){.scenario = scenario, .e = &e};
    struct planner *planner = make_planner(driver, cost);
    past = *planner;
    assert_true(places <= JOINT_MAX);
    memset(law, 0, sizeof law);
    memset(exact, 0, sizeof exact);
    uint64_t first = find_step(scenario);
    enumerator_start(&e);
    while (enumerator_next(&e)) {
        copy_planner(planner, &past);
        reset_requests(driver);
        for (int s = 0; s < scenario->steps; s++) run_step(driver, first + (uint64_t)s);
        whole += enumerator_weight(&e);
        spread(driver, 0, 0, prefix, 0, enumerator_weight(&e), law);
    }
    assert_null(e.failure);
    assert_true(fabs(whole - 1) < 1e-12);
    reset_requests(driver);
    spread(driver, 0, 0, prefix, 0, 1, exact);
    for (size_t i = 0; i < places; i++) worst = fmax(worst, fabs(law[i] - exact[i]));
    planner_free(planner);
    cost_free(cost);
    return worst;
}

/* Returns whether the number admitted depended on what was drafted. */
static bool check_scenario(const struct scenario *scenario)
{
    static struct driver driver;
    double error = law_error(scenario, &driver);
    if (error > 1e-12)
        fail_msg("%s, world %d, rule %d, confidence %d: the law is off by %g", scenario->name,
                 scenario->world, scenario->rule[0], scenario->confidence, error);
    return (driver.totals & (driver.totals - 1)) != 0;
}

/* ---- tests ---- */

static struct scenario one_request(enum tt_rule rule)
{
    return (struct scenario){.name = "one request",
                             .vocab = 3,
                             .max_draft = 3,
                             .requests = 1,
                             .steps = 1,
                             .rule = {rule},
                             .temperature = {0.8},
                             .cap = {9},
                             .mode = MODE_ADAPTIVE,
                             .costs = SLOPE};
}

static int check_costs_and_seeds(struct scenario *scenario)
{
    int varied = 0;
    for (int costs = STAIRCASE; costs <= GENTLE; costs++)
        for (scenario->seed = 0; scenario->seed < 8; scenario->seed++) {
            scenario->costs = (enum costs)costs;
            varied += check_scenario(scenario);
        }
    return varied;
}

static void every_rule_world_and_confidence(void **state)
{
    (void)state;
    int varied[5] = {0};
    for (int rule = TT_GREEDY; rule <= TT_COUPLED; rule++)
        for (int world = 0; world < WORLD_KINDS; world++)
            for (int confidence = BY_FEATURE; confidence <= BY_STEPS; confidence++)
                for (int vocab = 2; vocab <= 4; vocab++) {
                    struct scenario scenario = one_request((enum tt_rule)rule);
                    scenario.world = (enum world_kind)world;
                    scenario.confidence = (enum confidence)confidence;
                    scenario.vocab = (size_t)vocab;
                    varied[confidence] += check_costs_and_seeds(&scenario);
                }
    /* A planner that never makes use of q_k would pass too, and show nothing. */
    if (varied[BY_FEATURE] < 50 || varied[BY_STEPS] < 50)
        fail_msg("drafts mattered in %d and %d scenarios only", varied[BY_FEATURE],
                 varied[BY_STEPS]);
}

static void every_mode_and_fixed_depth(void **state)
{
    (void)state;
    static const enum mode modes[] = {MODE_OFF, MODE_FIXED, MODE_SHADOW};
    for (int rule = TT_GREEDY; rule <= TT_COUPLED; rule++)
        for (int m = 0; m < 3; m++)
            for (int fixed = 0; fixed <= 3; fixed++)
                for (int world = 0; world < WORLD_KINDS; world++) {
                    struct scenario scenario = one_request((enum tt_rule)rule);
                    scenario.name = "modes";
                    scenario.mode = modes[m];
                    scenario.fixed_draft = fixed;
                    scenario.world = (enum world_kind)world;
                    check_scenario(&scenario);
                }
}

static void caps_and_no_drafts(void **state)
{
    (void)state;
    for (int cap = 0; cap <= 3; cap++)
        for (int costs = STAIRCASE; costs <= LEVEL; costs++) {
            struct scenario scenario = one_request(TT_RATIO);
            scenario.name = "caps";
            scenario.cap[0] = cap;
            scenario.costs = (enum costs)costs;
            check_scenario(&scenario);
            scenario.cold = true;
            check_scenario(&scenario);
        }
}

static void several_requests_share_a_budget(void **state)
{
    (void)state;
    int varied = 0;
    for (int world = 0; world < WORLD_KINDS; world++)
        for (int confidence = BY_FEATURE; confidence <= BY_STEPS; confidence++)
            for (int rule = TT_RATIO; rule <= TT_COUPLED; rule++) {
                struct scenario two = {.name = "two requests",
                                       .vocab = 2,
                                       .max_draft = 3,
                                       .requests = 2,
                                       .steps = 1,
                                       .rule = {(enum tt_rule)rule, TT_RATIO},
                                       .temperature = {0.7, 1.3},
                                       .cap = {9, 9},
                                       .mode = MODE_ADAPTIVE,
                                       .world = (enum world_kind)world,
                                       .confidence = (enum confidence)confidence};
                varied += check_costs_and_seeds(&two);
            }
    if (varied < 50) fail_msg("drafts mattered in %d scenarios only", varied);
}

static void three_requests_of_mixed_rules(void **state)
{
    (void)state;
    static const enum tt_rule rules[][REQUESTS_MAX] = {{TT_RATIO, TT_POINT_MASS, TT_COUPLED},
                                                       {TT_GREEDY, TT_RATIO, TT_RATIO},
                                                       {TT_RATIO, TT_RATIO, TT_RATIO}};
    int varied = 0;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        for (int confidence = BY_FEATURE; confidence <= BY_STEPS; confidence++) {
            struct scenario three = {.name = "three requests, mixed rules",
                                     .vocab = 2,
                                     .max_draft = 2,
                                     .requests = 3,
                                     .steps = 1,
                                     .temperature = {0.7, 1, 1.4},
                                     .cap = {9, 1, 9},
                                     .mode = MODE_ADAPTIVE,
                                     .confidence = (enum confidence)confidence};
            memcpy(three.rule, rules[i], sizeof three.rule);
            varied += check_costs_and_seeds(&three);
        }
    if (varied < 10) fail_msg("drafts mattered in %d scenarios only", varied);
}

/* What a step learns decides the next one. */
static void two_steps(void **state)
{
    (void)state;
    int varied = 0;
    for (int world = 0; world < WORLD_KINDS; world++) {
        struct scenario scenario = one_request(TT_RATIO);
        scenario.name = "two steps";
        scenario.world = (enum world_kind)world;
        scenario.steps = 2;
        scenario.vocab = 2;
        varied += check_costs_and_seeds(&scenario);
        scenario.rule[0] = TT_POINT_MASS;
        check_costs_and_seeds(&scenario);
        scenario.cold = true;
        scenario.rule[0] = TT_RATIO;
        check_costs_and_seeds(&scenario);
    }
    if (varied < 20) fail_msg("drafts mattered in %d scenarios only", varied);
}

/* The law at a step where the lot falls as `moment` wants, and that it did. */
static void check_moment(struct scenario *scenario, const char *name, enum moment moment,
                         enum costs costs, const char *why, struct driver *driver)
{
    scenario->name = name;
    scenario->moment = moment;
    scenario->costs = costs;
    check_scenario(scenario);
    law_error(scenario, driver);
    assert_string_equal(driver->why, why);
}

static void probes_and_exploration(void **state)
{
    (void)state;
    static struct driver driver;
    for (int world = 0; world < WORLD_KINDS; world++) {
        struct scenario scenario = one_request(TT_RATIO);
        scenario.world = (enum world_kind)world;
        scenario.requests = 2;
        scenario.vocab = 2;
        scenario.rule[1] = TT_RATIO;
        scenario.temperature[1] = 1.5;
        scenario.cap[1] = 2;
        check_moment(&scenario, "probe", PROBE_STEP, STEEP, "probe", &driver);
        assert_true(driver.totals & ~1u);
        check_moment(&scenario, "a step without drafts", PLAIN_STEP, STAIRCASE, "probe", &driver);
        assert_int_equal(driver.totals, 1);
        check_moment(&scenario, "exploration", EXPLORE_STEP, STAIRCASE, "explore", &driver);
    }
}

/* draft = auto: the drafter of every request and step is the planner's choice. */
static void either_drafter_by_value(void **state)
{
    (void)state;
    static struct driver driver;
    unsigned drafters = 0;
    int varied = 0;
    for (int world = 0; world < WORLD_KINDS; world++)
        for (int rule = TT_GREEDY; rule <= TT_COUPLED; rule++)
            for (int requests = 1; requests <= 2; requests++) {
                struct scenario scenario = {.name = "either drafter",
                                            .vocab = 2,
                                            .max_draft = 3,
                                            .requests = requests,
                                            .steps = 3 - requests,
                                            .rule = {(enum tt_rule)rule, TT_RATIO},
                                            .temperature = {0.8, 1.2},
                                            .cap = {9, 2},
                                            .mode = MODE_ADAPTIVE,
                                            .world = (enum world_kind)world,
                                            .either = true};
                varied += check_costs_and_seeds(&scenario);
                for (uint32_t seed = 1; seed <= 6; seed++) {
                    scenario.seed = seed;
                    scenario.costs = SLOPE;
                    law_error(&scenario, &driver);
                    drafters |= driver.drafters;
                }
            }
    assert_int_equal(drafters, 3);
    assert_true(varied > 20);
}

/* ---- the same test catches what must not be */

static void expect_caught(const struct scenario *scenario)
{
    static struct driver driver;
    double error = law_error(scenario, &driver);
    if (!(error > 1e-3))
        fail_msg("%s: not caught, the law is off by %g only", scenario->name, error);
    struct scenario sound = *scenario;
    sound.fault = SOUND;
    check_scenario(&sound);
}

/* Two finished blocks, and the one that looks better wins: the fate of a drawn token depends on its
 * value. */
static void comparing_finished_drafts_is_caught(void **state)
{
    (void)state;
    struct scenario scenario = one_request(TT_RATIO);
    scenario.name = "a choice between finished drafts";
    scenario.either = true;
    scenario.confidence = ALL_ONE;
    scenario.fault = COMPARES_FINISHED;
    expect_caught(&scenario);
}

static void looking_at_the_token_is_caught(void **state)
{
    (void)state;
    struct scenario scenario = one_request(TT_RATIO);
    scenario.name = "a planner that looks at x_k";
    scenario.fault = LOOKS_AT_TOKEN;
    expect_caught(&scenario);
}

static void withdrawing_a_token_is_caught(void **state)
{
    (void)state;
    struct scenario scenario = one_request(TT_RATIO);
    scenario.name = "a planner that withdraws a token";
    scenario.confidence = ALL_ONE;
    scenario.fault = WITHDRAWS;
    expect_caught(&scenario);
}

/* Two equal requests at a stair that has room for one. */
static void ties_by_value_are_caught(void **state)
{
    (void)state;
    struct scenario scenario = {.name = "a planner that breaks ties by value",
                                .vocab = 2,
                                .max_draft = 1,
                                .requests = 2,
                                .steps = 1,
                                .rule = {TT_RATIO, TT_RATIO},
                                .temperature = {1, 1},
                                .cap = {9, 9},
                                .mode = MODE_ADAPTIVE,
                                .confidence = ALL_EQUAL,
                                .fault = TIES_BY_VALUE};
    expect_caught(&scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_world_and_confidence),
        cmocka_unit_test(every_mode_and_fixed_depth),
        cmocka_unit_test(caps_and_no_drafts),
        cmocka_unit_test(several_requests_share_a_budget),
        cmocka_unit_test(three_requests_of_mixed_rules),
        cmocka_unit_test(two_steps),
        cmocka_unit_test(probes_and_exploration),
        cmocka_unit_test(either_drafter_by_value),
        cmocka_unit_test(comparing_finished_drafts_is_caught),
        cmocka_unit_test(looking_at_the_token_is_caught),
        cmocka_unit_test(withdrawing_a_token_is_caught),
        cmocka_unit_test(ties_by_value_are_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
