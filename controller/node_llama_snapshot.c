/* node_llama_snapshot.c - the llama node at one moment, from copies that the loop and the sampler
 * publish. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "controller/node_llama_open.h"
#include "controller/ticks.h"

static double per(double sum, double count)
{
    return count > 0 ? sum / count : NAN;
}

static void copy_version(struct snapshot *out)
{
    const char *space = strchr(lm_engine_version(), ' ');
    int length = space ? (int)(space - lm_engine_version()) : (int)strlen(lm_engine_version());

    snprintf(out->node.engine, sizeof out->node.engine, "%.*s", length, lm_engine_version());
    snprintf(out->node.version, sizeof out->node.version, "%s", space ? space + 1 : "");
}

static void fill_names(const struct llama_node *node, struct snapshot *out)
{
    snprintf(out->node.id, sizeof out->node.id, "%s", node->node.id);
    snprintf(out->node.kind, sizeof out->node.kind, "llama");
    copy_version(out);
    out->node.tier = 2;
    snprintf(out->node.capabilities, sizeof out->node.capabilities, "mode,settings,generate");
    if (node->phase != NODE_SERVING) return;
    snprintf(out->node.model, sizeof out->node.model, "%s", lm_name(node->pair.target));
    if (node->pair.draft)
        snprintf(out->node.draft, sizeof out->node.draft, "%s", lm_name(node->pair.draft));
}

static void fill_totals(const struct tally_counts *counts, struct snapshot *out)
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

static void fill_window(const struct llama_node *node, struct snapshot *out,
                        struct rates_second *sum)
{
    const struct tally_counts *delta = &sum->delta;
    double steps;

    rates_window(&node->rates, RATES_WINDOW_S, sum);
    steps = (double)delta->steps;
    out->window_ms = sum->seconds * 1000;
    out->throughput_tps = per((double)delta->emitted, sum->seconds);
    out->tokens_per_step = per((double)delta->emitted, steps);
    out->step_ms = per(delta->step_ms, steps);
    out->draft_ms = per(delta->draft_ms, steps);
    out->verify_ms = per(delta->verify_ms, steps);
    out->own_ms = per(delta->own_ms, steps);
    out->own_ratio = per(delta->own_ms, delta->step_ms);
    out->drafted_per_step = per((double)delta->drafted, steps);
    out->verified_per_step = per((double)delta->verified, steps);
    out->budget = per((double)delta->admitted, steps);
    out->accepted_verified_ratio = per((double)delta->accepted, (double)delta->verified);
    out->predicted_tps = per(delta->planned_tokens, delta->planned_ms) * 1000;
    out->predicted_step_ms = per(delta->predicted_ms, (double)delta->priced_steps);
    out->cost_error_ratio = per(delta->missed_ms, delta->priced_ms);
    out->cost_bias_ratio = per(delta->priced_ms - delta->predicted_ms, delta->priced_ms);
}

static void fill_estimator(const struct llama_node *node, const struct rates_second *sum,
                           struct snapshot *out)
{
    const struct known_stratum *known;
    const struct tt_estimator_report *report;

    snprintf(out->estimator.kind, sizeof out->estimator.kind, "%s",
             estimator_name(node->force.estimator));
    out->estimator.positions_count = node->options.max_draft;
    for (int k = 0; k < node->options.max_draft; k++)
        out->estimator.position[k].reached = sum->delta.position[k].reached;
    if (node->shown < 0) return;
    known = &node->stratum[node->shown];
    report = &known->report;
    snprintf(out->estimator.stratum, sizeof out->estimator.stratum, "%s", strata_name(node->shown));
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
        to->accepted_ratio = per(from->accepted, from->reached);
        to->predicted_ratio = per(from->predicted, from->reached);
    }
}

static void fill_health(const struct llama_node *node, struct snapshot *out)
{
    const char *state = "ok", *reason = "";

    if (node->phase == NODE_STARTING) {
        state = "starting";
        reason = "the model is being loaded and its costs measured";
    } else if (node->phase == NODE_FAILED) {
        state = "failed";
        reason = node->failure ? node->failure : "";
    } else if (node->draining) {
        state = "draining";
        reason = "stopping: no new requests";
    } else if (node->health[0]) {
        state = "degraded";
        reason = node->health;
    }
    snprintf(out->health.state, sizeof out->health.state, "%s", state);
    snprintf(out->health.reason, sizeof out->health.reason, "%s", reason);
}

static void fill_effect(const struct llama_node *node, struct snapshot *out)
{
    const struct rates_effect *effect = &node->effect;

    out->toggle.known = node->effect_known;
    if (!node->effect_known) return;
    out->toggle.time_ms = effect->time_ms;
    snprintf(out->toggle.before, sizeof out->toggle.before, "%s", mode_name(effect->before));
    snprintf(out->toggle.after, sizeof out->toggle.after, "%s", mode_name(effect->after));
    out->toggle.gain = effect->gain;
    out->toggle.gain_low = effect->low;
    out->toggle.gain_high = effect->high;
    out->toggle.n = effect->n;
    out->toggle.window_s = effect->window_s;
}

void llama_node_snapshot(struct node *base, struct snapshot *out)
{
    struct llama_node *node = (struct llama_node *)base;
    struct store_health store = {.ok = false, .reason = "no store"};
    struct tally_counts counts = {0};
    struct rates_second sum;

    snapshot_clear(out);
    if (node->options.store) store_get_health(node->options.store, &store);
    out->store.ok = store.ok;
    out->store.since_ms = store.since_ms;
    snprintf(out->store.reason, sizeof out->store.reason, "%s", store.reason);
    out->time_ms = utc_ms();
    pthread_mutex_lock(&node->lock);
    fill_names(node, out);
    out->mode = node->force.mode;
    out->switching = node->generation != node->force_generation;
    out->fixed_draft = node->fixed_draft;
    out->max_draft = node->force.max_draft;
    out->generation = node->generation;
    out->uptime_s = (double)(ticks_us() - node->started_us) / 1e6;
    out->running = node->running;
    out->queued = node->phase == NODE_SERVING ? queue_length(node->loop->queue) : 0;
    fill_window(node, out, &sum);
    fill_estimator(node, &sum, out);
    fill_health(node, out);
    fill_effect(node, out);
    if (node->phase == NODE_SERVING) tally_copy(&node->loop->tally, &counts);
    pthread_mutex_unlock(&node->lock);
    fill_totals(&counts, out);
}
