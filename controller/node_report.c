/* node_report.c - see node_report.h. */
#include "config.h"

#include "controller/node_report.h"

#include <math.h>
#include <stdio.h>

#include "controller/json_number.h"
#include "controller/policy.h"
#include "controller/ratio.h"
#include "storage/store.h"

/* ---- snapshot */

void report_store(struct store *store, struct snapshot *out)
{
    struct store_health health = {.ok = false, .reason = "no store"};

    if (store) store_get_health(store, &health);
    out->store.ok = health.ok;
    out->store.since_ms = health.since_ms;
    snprintf(out->store.reason, sizeof out->store.reason, "%s", health.reason);
}

void report_totals(const struct tally_counts *counts, struct snapshot *out)
{
    out->steps = counts->steps;
    out->drafted_total = counts->drafted;
    out->admitted_total = counts->admitted;
    out->verified_total = counts->verified;
    out->accepted_total = counts->accepted;
    out->emitted_total = counts->emitted;
    out->requests_total = counts->requests;
    out->target_rows_total = counts->target_rows;
    out->failed_total = counts->failed;
    out->drafts_total = counts->drafts;
    out->prompt_tokens_total = counts->prompt_tokens;
    for (int k = 0; k < out->estimator.positions_count; k++)
        out->estimator.position[k].accepted_total = counts->position[k].accepted_any;
}

void report_window(const struct rates *rates, struct snapshot *out, struct rates_second *sum)
{
    const struct tally_counts *delta = &sum->delta;
    double steps;

    rates_window(rates, RATES_WINDOW_S, sum);
    steps = (double)delta->steps;
    out->window_ms = sum->seconds * 1000;
    out->throughput_tps = ratio((double)delta->emitted, sum->seconds);
    out->tokens_per_step = ratio((double)delta->emitted, steps);
    out->step_ms = ratio(delta->step_ms, steps);
    out->draft_ms = ratio(delta->draft_ms, steps);
    out->verify_ms = ratio(delta->verify_ms, steps);
    out->own_ms = ratio(delta->own_ms, steps);
    out->own_ratio = ratio(delta->own_ms, delta->step_ms);
    out->drafted_per_step = ratio((double)delta->drafted, steps);
    out->verified_per_step = ratio((double)delta->verified, steps);
    out->budget = ratio((double)delta->admitted, steps);
    out->accepted_verified_ratio = ratio((double)delta->accepted, (double)delta->verified);
    out->accepted_drafted_ratio = ratio((double)delta->accepted, (double)delta->drafted);
    out->mean_length = 1 + ratio((double)delta->accepted, (double)delta->drafts);
    out->predicted_tps = ratio(delta->planned_tokens, delta->planned_ms) * 1000;
    out->predicted_step_ms = ratio(delta->predicted_ms, (double)delta->priced_steps);
    out->cost_error_ratio = ratio(delta->missed_ms, delta->priced_ms);
    out->cost_bias_ratio = ratio(delta->priced_ms - delta->predicted_ms, delta->priced_ms);
}

void report_estimator(const struct known_stratum *strata, int shown, enum tt_estimator_kind kind,
                      int positions, const struct rates_second *sum, struct snapshot *out)
{
    const struct known_stratum *known;
    const struct tt_estimator_report *report;

    snprintf(out->estimator.kind, sizeof out->estimator.kind, "%s", estimator_name(kind));
    out->estimator.positions_count = positions;
    for (int k = 0; k < positions; k++)
        out->estimator.position[k].reached = sum->delta.position[k].reached;
    if (shown < 0) return;
    known = &strata[shown];
    report = &known->report;
    snprintf(out->estimator.stratum, sizeof out->estimator.stratum, "%s", strata_name(shown));
    out->estimator.slope = report->slope;
    out->estimator.slope_se = report->slope_se;
    out->estimator.level = report->level;
    out->estimator.drift_z = report->drift_z;
    out->estimator.ece = report->ece;
    out->estimator.auc = report->auc;
    out->estimator.refits = (int64_t)report->refits;
    out->estimator.drift_events = (int64_t)report->drift_events;
    out->estimator.last_drift_ms = known->last_drift_ms;
    for (int k = 0; k < report->positions && k < SNAPSHOT_MAX_POSITIONS; k++) {
        const struct tt_position_report *from = &report->position[k];
        struct snapshot_position *to = &out->estimator.position[k];

        to->n = (int64_t)from->n;
        if (from->n == 0) continue; /* never seen: the prior is not an estimate */
        to->intercept = from->intercept;
        to->intercept_se = from->intercept_se;
        to->accepted_ratio = ratio(from->accepted, from->reached);
        to->predicted_ratio = ratio(from->predicted, from->reached);
    }
}

void report_effect(const struct rates_effect *effect, struct snapshot *out)
{
    out->toggle.known = effect != NULL;
    if (!effect) return;
    out->toggle.time_ms = effect->time_ms;
    snprintf(out->toggle.before, sizeof out->toggle.before, "%s", mode_name(effect->before));
    snprintf(out->toggle.after, sizeof out->toggle.after, "%s", mode_name(effect->after));
    out->toggle.tps_before = effect->tps_before;
    out->toggle.tps_after = effect->tps_after;
    out->toggle.step_ms_before = effect->step_ms_before;
    out->toggle.step_ms_after = effect->step_ms_after;
    out->toggle.gain = effect->gain;
    out->toggle.gain_low = effect->low;
    out->toggle.gain_high = effect->high;
    out->toggle.n = effect->n;
    out->toggle.window_s = effect->window_s;
}

/* ---- JSON */

/* What an estimator of the other kind made of the same labels. */
static json_t *rival_to_json(const struct known_stratum *known)
{
    const struct tt_estimator_report *rival = &known->rival;

    if (!known->rival_known) return json_null();
    return json_pack("{s:s s:o s:o s:I s:I s:o s:o s:o s:o}", "kind", estimator_name(rival->kind),
                     "slope", json_number(rival->slope), "level", json_number(rival->level),
                     "refits", (json_int_t)rival->refits, "labels", (json_int_t)rival->labels,
                     "ece", json_number(rival->ece), "brier", json_number(rival->brier), "log_loss",
                     json_number(rival->log_loss), "auc", json_number(rival->auc));
}

static json_t *stratum_to_json(int stratum, const struct known_stratum *known)
{
    const struct tt_estimator_report *report = &known->report;
    json_t *bins = json_array(), *positions = json_array();

    for (int b = 0; b < TT_CALIBRATION_BINS; b++)
        json_array_append_new(bins, json_pack("{s:o s:o s:o}", "n", json_number(report->bin[b].n),
                                              "sum_p", json_number(report->bin[b].sum_p), "sum_y",
                                              json_number(report->bin[b].sum_y)));
    for (int k = 0; k < report->positions; k++) {
        const struct tt_position_report *position = &report->position[k];

        json_array_append_new(
            positions,
            json_pack("{s:i s:o s:o s:o s:o s:I s:I}", "position", k, "intercept",
                      json_number(position->intercept), "intercept_se",
                      json_number(position->intercept_se), "accepted_ratio",
                      json_number(ratio(position->accepted, position->reached)), "predicted_ratio",
                      json_number(ratio(position->predicted, position->reached)), "reached",
                      (json_int_t)(position->reached + 0.5), "n", (json_int_t)position->n));
    }
    return json_pack("{s:s s:s s:o s:o s:o s:o s:I s:o s:I s:o s:o s:o s:o s:o s:o s:o}", "stratum",
                     strata_name(stratum), "kind", estimator_name(report->kind), "slope",
                     json_number(report->slope), "slope_se", json_number(report->slope_se), "level",
                     json_number(report->level), "centre", json_number(report->centre), "refits",
                     (json_int_t)report->refits, "drift_z", json_number(report->drift_z),
                     "drift_events", (json_int_t)report->drift_events, "ece",
                     json_number(report->ece), "brier", json_number(report->brier), "log_loss",
                     json_number(report->log_loss), "auc", json_number(report->auc), "bins", bins,
                     "positions", positions, "rival", rival_to_json(known));
}

json_t *report_calibration(const struct known_stratum *strata)
{
    json_t *list = json_array();

    for (int i = 0; i < STRATA_ESTIMATORS; i++)
        if (strata[i].known) json_array_append_new(list, stratum_to_json(i, &strata[i]));
    return json_pack("{s:o}", "strata", list);
}

/* Predicted against measured over the snapshot's window. */
static json_t *error_to_json(const struct tally_counts *delta)
{
    return json_pack("{s:I s:f s:f s:o s:o}", "steps", (json_int_t)delta->priced_steps,
                     "predicted_ms", delta->predicted_ms, "measured_ms", delta->priced_ms,
                     "error_ratio", json_number(ratio(delta->missed_ms, delta->priced_ms)),
                     "bias_ratio",
                     json_number(ratio(delta->priced_ms - delta->predicted_ms, delta->priced_ms)));
}

json_t *report_cost(const struct cost_model *cost, const struct planner *planner, int max_draft,
                    const struct rates_second *window)
{
    double uniform[TT_MAX_POSITIONS + 1];
    json_t *object = cost_to_json(cost), *list = json_array();

    planner_uniform(planner, uniform, TT_MAX_POSITIONS + 1);
    for (int k = 0; k <= max_draft; k++)
        json_array_append_new(list, json_number(uniform[k] * 1000));
    if (!object) {
        json_decref(list);
        return NULL;
    }
    json_object_set_new(object, "uniform_tps", list);
    json_object_set_new(object, "error", error_to_json(&window->delta));
    json_object_set_new(object, "flat", json_boolean(cost_flat(cost)));
    json_object_set_new(object, "unsteady", json_boolean(cost_unsteady(cost) != NULL));
    return object;
}
