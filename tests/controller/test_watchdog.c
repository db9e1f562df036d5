/* test_watchdog.c - injected faults: what must be noticed, what the planner must fall back from,
 * and that it tries again by itself.
 *
 * Faults are those that the field reports: acceptance that collapses in the middle of a run, a rule
 * that accepts everything, costs that the table does not know, a draft model whose context went
 * stale while it stood still.
 */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "controller/inprocess.h"
#include "controller/planner.h"
#include "controller/watchdog.h"

#define DEPTH 4

/* ---- what a second counted */

struct watch {
    struct watchdog watchdog;
    struct watchdog_finding finding[WATCHDOG_FINDINGS];
    int found;
};

static void watch_position(struct watch *watch, int reached, int accepted, double predicted)
{
    struct tally_counts delta = {0};
    delta.position[0].reached = delta.position[0].graded = reached;
    delta.position[0].accepted = accepted;
    delta.position[0].predicted = predicted * reached;
    watch->found = watchdog_second(&watch->watchdog, &delta, watch->finding);
}

static void watch_costs(struct watch *watch, int steps, double predicted_ms, double measured_ms)
{
    struct tally_counts delta = {.priced_steps = steps,
                                 .predicted_ms = steps * predicted_ms,
                                 .priced_ms = steps * measured_ms,
                                 .missed_ms = steps * fabs(measured_ms - predicted_ms)};
    watch->found = watchdog_second(&watch->watchdog, &delta, watch->finding);
}

static void nothing_accepted_is_said_once(void **state)
{
    (void)state;
    struct watch watch;
    int events = 0;
    watchdog_init(&watch.watchdog, DEPTH);
    for (int second = 0; second < 9; second++) {
        watch_position(&watch, 50, 0, 0.1);
        events += watch.found;
        if (second < 3) assert_int_equal(events, 0);
    }
    assert_int_equal(events, 2); /* position 0, and the acceptance of all that were reached */
    assert_string_equal(watch.watchdog.reason, "position 0 accepts abnormally; see decisions");
    for (int second = 0; second < 20; second++) watch_position(&watch, 50, 5, 0.1);
    assert_string_equal(watch.watchdog.reason, "");
}

/* A rule whose coin always falls on "accept" looks like a success (vllm-ascend 13470). */
static void everything_accepted_against_prediction(void **state)
{
    (void)state;
    struct watch watch;
    watchdog_init(&watch.watchdog, DEPTH);
    watch_position(&watch, 250, 250, 0.95);
    assert_int_equal(watch.found, 0);
    watch_position(&watch, 199, 199, 0.5);
    assert_int_equal(watch.found, 0);
    watch_position(&watch, 1, 1, 0.5);
    assert_int_equal(watch.found, 1);
    assert_string_equal(watch.finding[0].kind, "acceptance");
    assert_string_equal(watch.finding[0].severity, "warning");
    assert_non_null(strstr(watch.finding[0].text, "all of its last 200"));
    assert_non_null(strstr(watch.finding[0].numbers, "\"predicted\": 0.5000"));
}

static void collapse_and_return_are_events(void **state)
{
    (void)state;
    struct watch watch;
    watchdog_init(&watch.watchdog, DEPTH);
    for (int i = 0; i < 10; i++) {
        watch_position(&watch, 100, 62, 0.6);
        assert_int_equal(watch.found, 0);
    }
    for (int i = 0; i < 2; i++)
        watch_position(&watch, 100, 12, 0.6); /* completes 400: still well */
    for (int i = 0; i < 3; i++) watch_position(&watch, 100, 12, 0.6);
    watch_position(&watch, 100, 12, 0.6);
    assert_int_equal(watch.found, 1);
    assert_non_null(strstr(watch.finding[0].text, "collapsed"));
    assert_true(watch.watchdog.reason[0] != '\0');
    for (int i = 0; i < 3; i++) watch_position(&watch, 100, 12, 0.15);
    watch_position(&watch, 100, 14, 0.15); /* the estimator has learned it */
    assert_int_equal(watch.found, 1);
    assert_string_equal(watch.finding[0].severity, "info");
    assert_string_equal(watch.watchdog.reason, "");
}

/* Off by less than a collapse: no chance, and enough to matter. */
static void biased_predictions_are_an_event(void **state)
{
    (void)state;
    struct watch watch;
    int found = 0;
    watchdog_init(&watch.watchdog, DEPTH);
    for (int i = 0; i < 30; i++) { /* 0.02 off is within the band, however sure */
        struct tally_counts delta = {0};
        delta.position[0] = (struct tally_position){
            .reached = 400, .accepted = 248, .graded = 400, .predicted = 240, .squared_error = 94};
        found += watchdog_second(&watch.watchdog, &delta, watch.finding);
    }
    assert_int_equal(found, 0);
    for (int i = 0; i < 6; i++) { /* two verdicts of 1200 */
        struct tally_counts delta = {0};
        delta.position[0] = (struct tally_position){
            .reached = 400, .accepted = 280, .graded = 400, .predicted = 240, .squared_error = 94};
        found += watchdog_second(&watch.watchdog, &delta, watch.finding);
    }
    assert_int_equal(found, 1);
    assert_string_equal(watch.finding[0].kind, "calibration");
    assert_non_null(strstr(watch.finding[0].text, "0.70 accepted where 0.60 were predicted"));
    assert_non_null(strstr(watch.watchdog.advice, "refits"));
}

static int watch_plan(struct watch *watch, double emitted, double planned, double prompts)
{
    const struct tally_counts delta = {.steps = 100,
                                       .emitted = (int64_t)(100 * emitted),
                                       .step_ms = 1000,
                                       .planned_tokens = 100 * planned,
                                       .planned_ms = 1000,
                                       .prompt_tokens = (int64_t)(100 * prompts),
                                       .target_rows = 400 + (int64_t)(100 * prompts)};
    watch->found = watchdog_second(&watch->watchdog, &delta, watch->finding);
    return watch->found;
}

static void throughput_below_the_plan_is_an_event(void **state)
{
    (void)state;
    struct watch watch;
    int found = 0;
    watchdog_init(&watch.watchdog, DEPTH);
    for (int i = 0; i < 8; i++) found += watch_plan(&watch, 1.9, 2, 0);
    for (int i = 0; i < 8; i++) found += watch_plan(&watch, 1, 2, 1); /* prompts share the steps */
    assert_int_equal(found, 0);
    for (int i = 0; i < 8; i++) found += watch_plan(&watch, 1, 2, 0);
    assert_int_equal(found, 1);
    assert_string_equal(watch.finding[0].kind, "throughput");
    assert_non_null(strstr(watch.watchdog.reason, "below what was planned"));
    for (int i = 0; i < 4; i++) found += watch_plan(&watch, 1.9, 2, 0);
    assert_int_equal(found, 2);
    assert_string_equal(watch.watchdog.reason, "");
}

static void wrong_costs_are_an_event(void **state)
{
    (void)state;
    struct watch watch;
    watchdog_init(&watch.watchdog, DEPTH);
    watch_costs(&watch, 300, 10, 11);
    watch_costs(&watch, 300, 10, 20); /* one bad stretch is no verdict */
    watch_costs(&watch, 300, 10, 10);
    assert_int_equal(watch.found, 0);
    watch_costs(&watch, 300, 10, 20);
    watch_costs(&watch, 300, 10, 20);
    assert_int_equal(watch.found, 1);
    assert_string_equal(watch.finding[0].kind, "cost");
    assert_non_null(strstr(watch.finding[0].numbers, "\"measured_ms\": 20.0000"));
    watch_costs(&watch, 300, 10, 12.5); /* better, not well */
    assert_int_equal(watch.found, 0);
    watch_costs(&watch, 300, 10, 10.5);
    assert_int_equal(watch.found, 1);
    assert_string_equal(watch.finding[0].severity, "info");
}

/* ---- what the planner makes of it */

struct run {
    struct planner *planner;
    struct cost_model *table;
    double acceptance;
    double hidden; /* drafting steps take this many times what the table says */
    uint64_t step, random;
    long steps, tokens, falls, returns, plain;
    double ms;
    struct planner_change fall, back; /* the last of each */
};

static struct cost_model *make_table(void)
{
    struct cost_model *cost = cost_new(16, 4);
    for (int n = 1; n <= 12; n++)
        for (int i = 0; i < 5; i++) cost_observe_verify(cost, n, 0, 9 + n);
    for (int r = 1; r <= 4; r++) cost_observe_draft(cost, r, 0.4);
    return cost;
}

static void run_init(struct run *run, double acceptance)
{
    struct planner_options options = {
        .max_draft = DEPTH, .max_requests = 2, .min_gain = 0.01, .exploration = true, .key = 5};
    *run = (struct run){.acceptance = acceptance, .hidden = 1, .table = make_table()};
    run->planner = planner_new(&options, run->table);
    assert_non_null(run->planner);
    planner_set_mode(run->planner, MODE_ADAPTIVE);
}

static void run_end(struct run *run)
{
    planner_free(run->planner);
    cost_free(run->table);
}

static void run_step(struct run *run)
{
    struct planner_request request[2];
    int admitted[2] = {0}, accepted[2] = {0}, live, total = 0, from, to;
    double gain, ms = 0;
    const int *rows;
    for (int r = 0; r < 2; r++)
        request[r] = (struct planner_request){.cap = DEPTH, .catch_up = 1, .starved = -1};
    planner_begin(run->planner, request, 2, 2, 0, 100, run->step++);
    for (int depth = 0; (live = planner_draft(run->planner, depth, &rows)) > 0; depth++) {
        double probability[2] = {run->acceptance, run->acceptance};
        uint8_t admit[2];
        planner_admit(run->planner, depth, probability, admit);
        for (int i = 0; i < live; i++) admitted[rows[i]] += admit[i];
        ms += cost_draft(run->table, live);
    }
    for (int r = 0; r < 2; r++) {
        while (accepted[r] < admitted[r] &&
               tt_uniform(3, run->random++, 0, TT_DRAFT) < run->acceptance)
            accepted[r]++;
        total += admitted[r];
        run->tokens += 1 + accepted[r];
    }
    ms += cost_verify(run->table, 2 + total, 0);
    if (total > 0) ms *= run->hidden;
    struct planner_outcome outcome = {admitted, accepted, 0, ms, 0};
    planner_end(run->planner, &outcome);
    if (planner_take_change(run->planner, &from, &to, &gain)) {
        if (to == 0) run->fall = *planner_last_change(run->planner);
        if (from == 0) run->back = *planner_last_change(run->planner);
        run->falls += to == 0;
        run->returns += from == 0;
    }
    run->steps++;
    run->plain += total == 0;
    run->ms += ms;
}

static void run_steps(struct run *run, int steps)
{
    run->steps = run->tokens = run->falls = run->returns = run->plain = 0;
    run->ms = 0;
    for (int i = 0; i < steps; i++) run_step(run);
}

/* Everything that is predicted says "draft"; the clock says that it loses. */
static void the_clock_overrules_the_table(void **state)
{
    (void)state;
    struct run run;
    run_init(&run, 0.7);
    run_steps(&run, 1000);
    assert_int_equal(run.falls, 0);
    assert_true(run.plain < 50);
    run.hidden = 3;
    run_steps(&run, 600);
    assert_true(run.falls >= 1);
    assert_true(isfinite(run.fall.measured_tps));
    assert_true(run.fall.measured_tps < run.fall.plain_tps);
    assert_true(run.fall.draft_tps > run.fall.plain_tps); /* as predicted */
    run_steps(&run, 30000);
    assert_true(run.returns >= 2); /* it tries again by itself, … */
    double plain = 2 / cost_verify(run.table, 2, 0);
    assert_true((double)run.tokens / run.ms > 0.93 * plain); /* … ever more rarely */
    run.hidden = 1;
    run_steps(&run, 9000); /* the longest pause, and then some */
    run_steps(&run, 1000);
    assert_true(run.plain < 50);
    run_end(&run);
}

static void a_collapse_falls_back_with_its_numbers(void **state)
{
    (void)state;
    struct run run;
    run_init(&run, 0.75);
    run_steps(&run, 1000);
    run.acceptance = 0.02;
    run_steps(&run, 800);
    assert_int_equal(run.falls, 1);
    assert_true(run.fall.from > 0);
    assert_true(run.fall.plain_tps > run.fall.draft_tps || isfinite(run.fall.measured_tps));
    run.acceptance = 0.75;
    run_steps(&run, 20000);
    assert_true(run.returns >= 1);
    assert_true(run.back.to > 0);
    assert_true(run.back.gain > 0.01 && run.back.plain_tps > 0);
    run_end(&run);
}

/* Where drafting is worth what was promised, chance alone must not stop it. */
static void chance_is_no_fault(void **state)
{
    (void)state;
    struct run run;
    run_init(&run, 0.55);
    run_steps(&run, 500);
    run_steps(&run, 20000);
    assert_int_equal(run.falls, 0);
    run_end(&run);
}

/* ---- the loop */

static double acceptance_of(struct inprocess *process, enum mode mode)
{
    struct inprocess_job jobs[6];
    struct tally_counts before, after;
    char *cause = NULL;
    memset(jobs, 0, sizeof jobs);
    for (int i = 0; i < 6; i++)
        jobs[i] = (struct inprocess_job){
            .prompt = "the quick brown fox jumps over", .max_tokens = 40, .ignore_eos = true};
    loop_set_mode(process->loop, mode);
    tally_copy(&process->loop->tally, &before);
    if (inprocess_run(process, jobs, 6, 2, NULL, NULL, &cause) != 0) fail_msg("%s", cause);
    tally_copy(&process->loop->tally, &after);
    inprocess_clear(jobs, 6);
    return (double)(after.accepted - before.accepted) / (double)(after.verified - before.verified);
}

struct toggling {
    double share[2]; /* accepted of verified while drafts are on: before a pause, after it */
    struct tally_counts begun;
    int phase;
};

static void pause_in_the_middle(void *state, struct loop *loop, long steps)
{
    struct toggling *toggling = state;
    struct tally_counts now;
    tally_copy(&loop->tally, &now);
    int phase = steps < 12 ? 0 : steps < 24 ? 1 : 2;
    if (phase == toggling->phase) return;
    if (phase == 1)
        toggling->share[0] = (double)(now.accepted - toggling->begun.accepted) /
                             (double)(now.verified - toggling->begun.verified);
    toggling->phase = phase;
    toggling->begun = now;
    loop_set_mode(loop, phase == 1 ? MODE_OFF : MODE_FIXED);
}

/* Off in the middle of a text, and on again: the draft model takes the text up where it is, and its
 * drafts are as good as before (TensorRT-LLM 16888). */
static void drafts_are_as_good_after_a_pause(void **state)
{
    (void)state;
    struct inprocess_options options = {.pair = {.target = "synthetic:target:0:0",
                                                 .draft = "synthetic:draft:0:0",
                                                 .parallel = 2,
                                                 .max_draft = DEPTH},
                                        .profile = true,
                                        .choice = DRAFT_MODEL,
                                        .fixed_draft = 3};
    struct inprocess process;
    struct inprocess_job job = {
        .prompt = "the quick brown fox", .max_tokens = 200, .ignore_eos = true};
    struct toggling toggling = {0};
    struct tally_counts end;
    char *cause = NULL;
    if (inprocess_open(&process, &options, &cause) != 0) fail_msg("%s", cause);
    double whole = acceptance_of(&process, MODE_FIXED);
    loop_set_mode(process.loop, MODE_FIXED);
    tally_copy(&process.loop->tally, &toggling.begun);
    if (inprocess_run(&process, &job, 1, 1, pause_in_the_middle, &toggling, &cause) != 0)
        fail_msg("%s", cause);
    tally_copy(&process.loop->tally, &end);
    assert_int_equal(toggling.phase, 2);
    toggling.share[1] = (double)(end.accepted - toggling.begun.accepted) /
                        (double)(end.verified - toggling.begun.verified);
    assert_true(whole > 0);
    assert_true(toggling.share[1] > 0.5 * fmin(whole, toggling.share[0]));
    inprocess_clear(&job, 1);
    inprocess_close(&process);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_accepted_is_said_once),
        cmocka_unit_test(everything_accepted_against_prediction),
        cmocka_unit_test(collapse_and_return_are_events),
        cmocka_unit_test(biased_predictions_are_an_event),
        cmocka_unit_test(throughput_below_the_plan_is_an_event),
        cmocka_unit_test(wrong_costs_are_an_event),
        cmocka_unit_test(the_clock_overrules_the_table),
        cmocka_unit_test(a_collapse_falls_back_with_its_numbers),
        cmocka_unit_test(chance_is_no_fault),
        cmocka_unit_test(drafts_are_as_good_after_a_pause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
