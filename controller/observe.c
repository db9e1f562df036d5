/* observe.c - what the step revealed: labels to the estimators, which may refit; outcome and
 * measured times to the planner and the cost model; counts to the tally.
 */
#include "config.h"

#include <math.h>

#include "controller/grade.h"
#include "controller/loop.h"
#include "controller/ticks.h"

static void label_block(struct loop *loop, const struct slot *slot)
{
    float predicted[TT_MAX_POSITIONS];
    struct tt_observation observation = {
        .feature = slot->feature,
        .predicted = predicted,
        .soft = slot->step_rule == TT_RATIO ? slot->verdict.soft : NULL,
        .admitted = slot->labelled,
        .accepted = slot->accepted,
    };

    for (int k = 0; k < slot->labelled; k++) predicted[k] = (float)slot->predicted[k];
    if (slot->labelled > 0) strata_observe(loop->strata, slot->stratum, &observation);
}

/* What an n-gram proposal would have been worth shows in the text that came, whoever drafted it:
 * the next token equals the proposed one as often as the target would have accepted it. */
static void grade_proposal(struct loop *loop, const struct slot *slot)
{
    const int32_t *text = slot->tokens + slot->count - slot->emitted;
    int known = slot->emitted < slot->proposed ? slot->emitted : slot->proposed, same = 0;

    while (same < known && text[same] == slot->proposal[same]) same++;
    if (known > 0) ngram_observe(loop->ngram, slot->match, known, same);
}

/* Hard outcomes against predictions at the positions that were reached. */
static void count_positions(struct tally *tally, const struct slot *slot)
{
    for (int k = 0; k < slot->labelled && k <= slot->accepted; k++)
        grade_position(tally, slot->stratum, k, slot->predicted[k], k < slot->accepted);
}

/* No prefill rows in the batch, and it was computed: its times belong to its size. */
static bool pure_step(const struct loop *loop)
{
    if (loop->step.failed) return false;
    for (int i = 0; i < loop->parallel; i++)
        if (loop->slot[i].prefill > 0) return false;
    return true;
}

/* A step whose drafts were all trimmed is no measurement of one without: the draft forward has
 * taken its part of the caches (BF16, 4 requests: 18.8 ms, 17.8 without). */
static bool all_trimmed(const struct loop *loop)
{
    return loop->step.draft_ms > 0 && loop->target_batch->count == loop->step.decoding;
}

static int cells_in_use(const struct loop *loop)
{
    int cells = 0;

    for (int i = 0; i < loop->parallel; i++) cells += loop->slot[i].in_target;
    return cells;
}

static void learn(struct loop *loop)
{
    struct step *step = &loop->step;
    struct planner_outcome outcome = {step->admitted, step->accepted, step->draft_ms,
                                      step->verify_ms, 0};

    for (int i = 0; i < step->decoding; i++) {
        const struct slot *slot = &loop->slot[step->slot[i]];

        step->admitted[i] = slot->labelled;
        step->accepted[i] = slot->accepted;
        label_block(loop, slot);
        grade_proposal(loop, slot);
    }
    strata_end_step(loop->strata, loop->options.refitted, loop->options.state);
    /* Labels and refits are own work too: a plan that drafts pays for them. */
    outcome.own_ms = ticks_ms() - step->begun_ms - step->draft_ms - step->verify_ms;
    if (pure_step(loop)) {
        if (!all_trimmed(loop))
            cost_observe_verify(loop->cost, loop->target_batch->count,
                                cost_context_band(cells_in_use(loop)), step->verify_ms);
        cost_observe_own(loop->cost, step->decoding, outcome.own_ms);
    }
    planner_end(loop->planner, &outcome);
}

/* Predicted against measured, of a step whose cost the plan could know: in shadow the plan is of
 * another step. */
static void count_price(struct loop *loop, const struct planner_report *report, double step_ms)
{
    struct tally_counts *counts = &loop->tally.counts;

    if (loop->step.decoding == 0 || !isfinite(report->cost_ms)) return;
    counts->planned_tokens += report->value;
    counts->planned_ms += report->cost_ms;
    if (loop->mode == MODE_SHADOW || !pure_step(loop)) return;
    counts->priced_steps++;
    counts->predicted_ms += report->cost_ms;
    counts->priced_ms += step_ms;
    counts->missed_ms += fabs(step_ms - report->cost_ms);
}

static void count(struct loop *loop, const struct planner_report *report)
{
    struct step *step = &loop->step;
    struct tally_counts *counts = &loop->tally.counts;
    double step_ms = ticks_ms() - step->begun_ms;

    pthread_mutex_lock(&loop->tally.lock);
    counts->steps++;
    counts->target_rows += loop->target_batch->count;
    for (int i = 0; i < loop->parallel; i++) {
        const struct slot *slot = &loop->slot[i];

        counts->drafted += slot->drafted;
        counts->admitted += slot->admitted;
        counts->verified += slot->admitted;
        counts->accepted += slot->accepted;
        counts->drafts += slot->admitted > 0;
        for (int k = 0; k < slot->accepted; k++) counts->position[k].accepted_any++;
        counts->emitted += slot->emitted;
        counts->prompt_tokens += slot->prefill;
        count_positions(&loop->tally, slot);
    }
    counts->draft_ms += step->draft_ms;
    counts->verify_ms += step->verify_ms;
    counts->own_ms += step_ms - step->draft_ms - step->verify_ms;
    counts->step_ms += step_ms;
    count_price(loop, report, step_ms);
    pthread_mutex_unlock(&loop->tally.lock);
}

void loop_observe(struct loop *loop)
{
    struct planner_report report;

    planner_get_report(loop->planner, &report); /* before anything is learned from the step */
    learn(loop);
    count(loop, &report);
}
