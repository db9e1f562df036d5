/* node_llama_snapshot.c - the llama node at one moment, from copies that the loop and the sampler
 * publish. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "controller/node_llama_open.h"
#include "controller/node_report.h"
#include "controller/ticks.h"

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
    } else if (node->health.reason[0]) {
        state = "degraded";
        reason = node->health.reason;
        out->health.since_ms = node->health.since_ms;
        snprintf(out->health.advice, sizeof out->health.advice, "%s", node->health.advice);
    }
    snprintf(out->health.state, sizeof out->health.state, "%s", state);
    snprintf(out->health.reason, sizeof out->health.reason, "%s", reason);
}

void llama_node_snapshot(struct node *base, struct snapshot *out)
{
    struct llama_node *node = (struct llama_node *)base;
    struct tally_counts counts = {0};
    struct rates_second sum;

    snapshot_clear(out);
    report_store(node->options.store, out);
    out->time_ms = out->read_ms = utc_ms();
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
    report_window(&node->rates, out, &sum);
    report_estimator(node->stratum, node->shown, node->force.estimator, node->options.max_draft,
                     &sum, out);
    fill_health(node, out);
    report_effect(node->effect_known ? &node->effect : NULL, out);
    if (node->phase == NODE_SERVING) tally_copy(&node->loop->tally, &counts);
    pthread_mutex_unlock(&node->lock);
    report_totals(&counts, out);
}
