/* watchdog.c - see watchdog.h. */
#include "config.h"

#include "controller/watchdog.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define POSITION_REACHED 200    /* design, faults: 200 positions without one exception */
#define POSITION_PREDICTED 0.9  /* all accepted is no wonder above */
#define ACCEPTANCE_GRADED 400   /* reached positions with a prediction, of all positions together */
#define ACCEPTANCE_COLLAPSE 0.5 /* accepted of predicted: an alarm below … */
#define ACCEPTANCE_WELL 0.75    /* … which ends above */
#define COST_STEPS 200
#define COST_ERROR                                                                                 \
    0.3 /* mean absolute error over measured time: an alarm above, twice in a row … */
#define COST_WELL 0.15 /* … which ends below */
#define CALIBRATION_GRADED 1000
#define CALIBRATION_BIAS 0.05 /* accepted less predicted: an alarm beyond, twice in a row, … */
#define CALIBRATION_Z 4       /* … when it is no chance … */
#define CALIBRATION_WELL 0.03 /* … which ends within */
#define THROUGHPUT_STEPS 400
#define THROUGHPUT_LOW 0.7   /* of the planned: an alarm below, twice in a row … */
#define THROUGHPUT_WELL 0.85 /* … which ends above */
#define PROMPT_SHARE 0.05    /* more prompt tokens among the rows and steps are not as planned */

void watchdog_init(struct watchdog *watchdog, int positions)
{
    assert(positions >= 0 && positions <= TT_MAX_POSITIONS);
    *watchdog = (struct watchdog){.positions = positions};
}

/* ---- positions */

static bool watch_position(struct watchdog_position *at, int k, const struct tally_position *delta,
                           struct watchdog_finding *finding)
{
    at->reached += delta->reached;
    at->accepted += delta->accepted;
    at->graded += delta->graded;
    at->predicted += delta->predicted;
    if (at->reached < POSITION_REACHED) return false;
    double predicted = at->graded > 0 ? at->predicted / (double)at->graded : NAN;
    bool none = at->accepted == 0,
         all = at->accepted == at->reached && predicted < POSITION_PREDICTED;
    bool news = (none || all) && !at->alarmed;
    if (news) {
        *finding = (struct watchdog_finding){.severity = "warning", .kind = "acceptance"};
        if (none)
            snprintf(finding->text, sizeof finding->text,
                     "position %d accepted none of its last %lld drafts", k,
                     (long long)at->reached);
        else
            snprintf(finding->text, sizeof finding->text,
                     "position %d accepted all of its last %lld drafts though %.2f were predicted",
                     k, (long long)at->reached, predicted);
        if (isfinite(predicted))
            snprintf(finding->numbers, sizeof finding->numbers,
                     "{\"position\": %d, \"reached\": %lld, \"accepted\": %lld, \"predicted\": "
                     "%.4f}",
                     k, (long long)at->reached, (long long)at->accepted, predicted);
        else
            snprintf(finding->numbers, sizeof finding->numbers,
                     "{\"position\": %d, \"reached\": %lld, \"accepted\": %lld}", k,
                     (long long)at->reached, (long long)at->accepted);
    }
    *at = (struct watchdog_position){.alarmed = none || all};
    return news;
}

/* ---- acceptance */

static bool watch_acceptance(struct watchdog *watchdog, const struct tally_counts *delta,
                             struct watchdog_finding *finding)
{
    for (int k = 0; k < watchdog->positions; k++) {
        watchdog->acceptance.graded += delta->position[k].graded;
        watchdog->acceptance.accepted += delta->position[k].accepted;
        watchdog->acceptance.predicted += delta->position[k].predicted;
    }
    if (watchdog->acceptance.graded < ACCEPTANCE_GRADED) return false;
    double graded = (double)watchdog->acceptance.graded,
           accepted = (double)watchdog->acceptance.accepted / graded,
           predicted = watchdog->acceptance.predicted / graded;
    bool alarmed = watchdog->acceptance.alarmed;
    bool bad = accepted < (alarmed ? ACCEPTANCE_WELL : ACCEPTANCE_COLLAPSE) * predicted;
    if (bad != alarmed) {
        *finding =
            (struct watchdog_finding){.severity = bad ? "warning" : "info", .kind = "acceptance"};
        snprintf(
            finding->text, sizeof finding->text,
            bad ? "acceptance collapsed: %.2f of %.0f reached drafts, where %.2f were predicted"
                : "acceptance is as predicted again: %.2f of %.0f reached drafts, %.2f "
                  "predicted",
            accepted, graded, predicted);
        snprintf(finding->numbers, sizeof finding->numbers,
                 "{\"reached\": %.0f, \"accepted_ratio\": %.4f, \"predicted_ratio\": %.4f}", graded,
                 accepted, predicted);
    }
    watchdog->acceptance.graded = watchdog->acceptance.accepted = 0;
    watchdog->acceptance.predicted = 0;
    watchdog->acceptance.alarmed = bad;
    return bad != alarmed;
}

/* ---- cost */

static bool watch_cost(struct watchdog *watchdog, const struct tally_counts *delta,
                       struct watchdog_finding *finding)
{
    watchdog->cost.steps += delta->priced_steps;
    watchdog->cost.predicted_ms += delta->predicted_ms;
    watchdog->cost.priced_ms += delta->priced_ms;
    watchdog->cost.missed_ms += delta->missed_ms;
    if (watchdog->cost.steps < COST_STEPS || !(watchdog->cost.priced_ms > 0)) return false;
    double steps = (double)watchdog->cost.steps, predicted = watchdog->cost.predicted_ms / steps,
           measured = watchdog->cost.priced_ms / steps,
           error = watchdog->cost.missed_ms / watchdog->cost.priced_ms;
    bool alarmed = watchdog->cost.alarmed;
    watchdog->cost.bad = error > COST_ERROR ? watchdog->cost.bad + 1 : 0;
    bool bad = alarmed ? error > COST_WELL : watchdog->cost.bad >= 2;
    if (bad != alarmed) {
        *finding = (struct watchdog_finding){.severity = bad ? "warning" : "info", .kind = "cost"};
        snprintf(finding->text, sizeof finding->text,
                 bad ? "steps take %.1f ms where the cost table says %.1f (error %.0f %%): is the "
                       "machine busy?"
                     : "step times are as predicted again: %.1f ms, %.1f predicted (error %.0f %%)",
                 measured, predicted, 100 * error);
        snprintf(
            finding->numbers, sizeof finding->numbers,
            "{\"steps\": %.0f, \"measured_ms\": %.4f, \"predicted_ms\": %.4f, \"error_ratio\": "
            "%.4f}",
            steps, measured, predicted, error);
    }
    watchdog->cost.steps = 0;
    watchdog->cost.predicted_ms = watchdog->cost.priced_ms = watchdog->cost.missed_ms = 0;
    watchdog->cost.alarmed = bad;
    return bad != alarmed;
}

/* ---- calibration: smaller than a collapse, but there */

static bool watch_calibration(struct watchdog *watchdog, const struct tally_counts *delta,
                              struct watchdog_finding *finding)
{
    for (int k = 0; k < watchdog->positions; k++) {
        watchdog->calibration.graded += (double)delta->position[k].graded;
        watchdog->calibration.accepted += (double)delta->position[k].accepted;
        watchdog->calibration.predicted += delta->position[k].predicted;
        watchdog->calibration.squared_error += delta->position[k].squared_error;
    }
    const double graded = watchdog->calibration.graded;
    if (graded < CALIBRATION_GRADED) return false;
    const double off = watchdog->calibration.accepted - watchdog->calibration.predicted,
                 bias = off / graded, z = off / sqrt(fmax(watchdog->calibration.squared_error, 1)),
                 accepted = watchdog->calibration.accepted / graded,
                 predicted = watchdog->calibration.predicted / graded;
    const bool alarmed = watchdog->calibration.alarmed,
               beyond = fabs(bias) > CALIBRATION_BIAS && fabs(z) > CALIBRATION_Z;
    watchdog->calibration.bad = beyond ? watchdog->calibration.bad + 1 : 0;
    const bool bad = alarmed ? fabs(bias) > CALIBRATION_WELL : watchdog->calibration.bad >= 2;
    if (bad != alarmed) {
        *finding =
            (struct watchdog_finding){.severity = bad ? "warning" : "info", .kind = "calibration"};
        snprintf(finding->text, sizeof finding->text,
                 bad ? "predictions are off: %.2f accepted where %.2f were predicted, of %.0f"
                     : "predictions hold again: %.2f accepted, %.2f predicted, of %.0f",
                 accepted, predicted, graded);
        snprintf(finding->numbers, sizeof finding->numbers,
                 "{\"graded\": %.0f, \"accepted_ratio\": %.4f, \"predicted_ratio\": %.4f, \"z\": "
                 "%.2f}",
                 graded, accepted, predicted, z);
    }
    watchdog->calibration.graded = watchdog->calibration.accepted = 0;
    watchdog->calibration.predicted = watchdog->calibration.squared_error = 0;
    watchdog->calibration.alarmed = bad;
    return bad != alarmed;
}

/* ---- throughput: what the plan promised of the same steps */

static bool watch_throughput(struct watchdog *watchdog, const struct tally_counts *delta,
                             struct watchdog_finding *finding)
{
    watchdog->throughput.steps += (double)delta->steps;
    watchdog->throughput.emitted += (double)delta->emitted;
    watchdog->throughput.step_ms += delta->step_ms;
    watchdog->throughput.planned_tokens += delta->planned_tokens;
    watchdog->throughput.planned_ms += delta->planned_ms;
    watchdog->throughput.prompt_tokens += (double)delta->prompt_tokens;
    watchdog->throughput.target_rows += (double)delta->target_rows;
    if (watchdog->throughput.steps < THROUGHPUT_STEPS) return false;
    const double measured = 1e3 * watchdog->throughput.emitted / watchdog->throughput.step_ms,
                 planned =
                     1e3 * watchdog->throughput.planned_tokens / watchdog->throughput.planned_ms,
                 ratio = measured / planned;
    const bool alarmed = watchdog->throughput.alarmed,
               comparable = watchdog->throughput.prompt_tokens <
                                PROMPT_SHARE * watchdog->throughput.target_rows &&
                            isfinite(ratio);
    watchdog->throughput.bad =
        comparable && ratio < THROUGHPUT_LOW ? watchdog->throughput.bad + 1 : 0;
    const bool bad = !comparable ? alarmed
                     : alarmed   ? ratio < THROUGHPUT_WELL
                                 : watchdog->throughput.bad >= 2;
    if (bad != alarmed) {
        *finding =
            (struct watchdog_finding){.severity = bad ? "warning" : "info", .kind = "throughput"};
        snprintf(finding->text, sizeof finding->text,
                 bad ? "%.0f tok/s while steps run, where the plan promised %.0f"
                     : "throughput is as planned again: %.0f tok/s while steps run, %.0f planned",
                 measured, planned);
        snprintf(finding->numbers, sizeof finding->numbers,
                 "{\"steps\": %.0f, \"measured_tps\": %.2f, \"planned_tps\": %.2f}",
                 watchdog->throughput.steps, measured, planned);
    }
    const int in_a_row = watchdog->throughput.bad;
    memset(&watchdog->throughput, 0, sizeof watchdog->throughput);
    watchdog->throughput.bad = in_a_row;
    watchdog->throughput.alarmed = bad;
    return bad != alarmed;
}

/* ---- all */

static void say(struct watchdog *watchdog, const char *reason, const char *advice)
{
    snprintf(watchdog->reason, sizeof watchdog->reason, "%s", reason);
    snprintf(watchdog->advice, sizeof watchdog->advice, "%s", advice);
}

/* The worst news first: what is broken, then what costs, then what is only off. */
static void state_reason(struct watchdog *watchdog)
{
    char reason[64];

    say(watchdog, "", "");
    for (int k = 0; k < watchdog->positions; k++)
        if (watchdog->position[k].alarmed) {
            snprintf(reason, sizeof reason, "position %d accepts abnormally; see decisions", k);
            say(watchdog, reason,
                "mode off until the draft model is checked against the target: vocabulary, "
                "template, file");
            return;
        }
    if (watchdog->acceptance.alarmed)
        say(watchdog, "fewer drafts are accepted than predicted; see decisions",
            "wait a minute: the estimator learns; if it stays, look at what the requests ask for");
    else if (watchdog->cost.alarmed)
        say(watchdog, "steps do not take the time that the cost table predicts; see decisions",
            "look for other programs on these cores; restart with an empty --cache on a quiet "
            "machine");
    else if (watchdog->throughput.alarmed)
        say(watchdog, "throughput is far below what was planned; see decisions",
            "compare with mode off: trimtab ab NODE; look for other programs on these cores");
    else if (watchdog->calibration.alarmed)
        say(watchdog, "predictions of acceptance are off; see decisions",
            "wait for refits; if it stays, tell which requests, and set estimator to the other "
            "kind");
}

int watchdog_second(struct watchdog *watchdog, const struct tally_counts *delta,
                    struct watchdog_finding *finding)
{
    int count = 0;
    for (int k = 0; k < watchdog->positions; k++)
        count += watch_position(&watchdog->position[k], k, &delta->position[k], &finding[count]);
    count += watch_acceptance(watchdog, delta, &finding[count]);
    count += watch_cost(watchdog, delta, &finding[count]);
    count += watch_calibration(watchdog, delta, &finding[count]);
    count += watch_throughput(watchdog, delta, &finding[count]);
    state_reason(watchdog);
    return count;
}
