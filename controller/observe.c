/* observe.c - what the step revealed: labels to the estimators, which may refit; outcome and
 * measured times to the planner and the cost model; counts to the tally.
 */
#include "config.h"

#include <math.h>

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
    if (slot->drafter == DRAFTER_NGRAM && slot->admitted > 0)
        ngram_observe(loop->ngram, slot->match, slot->labelled, slot->accepted);
}

/* Hard outcomes against predictions at the positions that were reached. */
static void count_positions(struct tally *tally, const struct slot *slot)
{
    for (int k = 0; k < slot->labelled && k <= slot->accepted; k++) {
        struct tally_position *position = &tally->counts.position[k];
        struct tally_bin *bin;
        double p = slot->predicted[k], y = k < slot->accepted;

        position->reached++;
        position->accepted += k < slot->accepted;
        if (!(p > 0)) continue;
        if (p > 1 - 1e-9) p = 1 - 1e-9;
        position->graded++;
        position->predicted += p;
        position->squared_error += (y - p) * (y - p);
        position->log_loss -= y > 0 ? log(p) : log1p(-p);
        if (slot->stratum >= STRATA_ESTIMATORS) continue; /* not the estimator's own law */
        bin = &tally->calibration[slot->stratum][k][(int)(p * TT_CALIBRATION_BINS)];
        bin->n++;
        bin->sum_p += p;
        bin->sum_y += y;
    }
}

static void learn(struct loop *loop)
{
    struct step *step = &loop->step;
    bool pure = true; /* no prefill rows in the batch: its time belongs to its size */
    double own_ms = ticks_ms() - step->begun_ms - step->draft_ms - step->verify_ms;
    struct planner_outcome outcome = {step->admitted, step->accepted, step->draft_ms,
                                      step->verify_ms, own_ms};
    int cells = 0;

    for (int i = 0; i < step->decoding; i++) {
        const struct slot *slot = &loop->slot[step->slot[i]];

        step->admitted[i] = slot->labelled;
        step->accepted[i] = slot->accepted;
        label_block(loop, slot);
    }
    for (int i = 0; i < loop->parallel; i++) {
        pure = pure && loop->slot[i].prefill == 0;
        cells += loop->slot[i].in_target;
    }
    if (pure && !step->failed) {
        cost_observe_verify(loop->cost, loop->target_batch->count, cost_context_band(cells),
                            step->verify_ms);
        cost_observe_own(loop->cost, step->decoding, own_ms);
    }
    planner_end(loop->planner, &outcome);
    strata_end_step(loop->strata, loop->options.refitted, loop->options.state);
}

static void count(struct loop *loop)
{
    struct step *step = &loop->step;
    struct tally_counts *counts = &loop->tally.counts;
    struct planner_report report;
    double step_ms = ticks_ms() - step->begun_ms;

    planner_get_report(loop->planner, &report);
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
        for (int k = 0; k < slot->accepted; k++) counts->accepted_at[k]++;
        counts->emitted += slot->emitted;
        counts->prompt_tokens += slot->prefill;
        count_positions(&loop->tally, slot);
    }
    counts->draft_ms += step->draft_ms;
    counts->verify_ms += step->verify_ms;
    counts->own_ms += step_ms - step->draft_ms - step->verify_ms;
    counts->step_ms += step_ms;
    if (step->decoding > 0 && isfinite(report.cost_ms) && isfinite(report.value)) {
        counts->planned_tokens += report.value;
        counts->planned_ms += report.cost_ms;
    }
    pthread_mutex_unlock(&loop->tally.lock);
}

void loop_observe(struct loop *loop)
{
    learn(loop);
    count(loop);
}
