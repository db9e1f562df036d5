/* metrics.c - see metrics.h. Tables of metrics over struct snapshot; format: Prometheus text
 * exposition 0.0.4. */
#include "config.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/exchange.h"
#include "controller/metrics.h"
#include "controller/traffic.h"

enum kind { COUNT, INTEGER, REAL, FLAG }; /* int, int64_t, double, bool */

struct metric {
    const char *name, *type, *help;
    enum kind kind;
    size_t offset;
    double scale; /* into the unit of the name */
};

#define AT(MEMBER) offsetof(struct snapshot, MEMBER)

/* What vLLM calls the same; of nodes that are an engine of this process only, lest a fleet is
 * counted twice. */
static const struct metric vllm_metrics[] = {
    {"vllm:num_requests_running", "gauge", "Requests being generated.", COUNT, AT(running), 1},
    {"vllm:num_requests_waiting", "gauge", "Requests waiting to be admitted.", COUNT, AT(queued),
     1},
    {"vllm:prompt_tokens_total", "counter", "Prompt tokens processed.", INTEGER,
     AT(prompt_tokens_total), 1},
    {"vllm:generation_tokens_total", "counter", "Tokens sent to clients.", INTEGER,
     AT(emitted_total), 1},
    {"vllm:spec_decode_num_drafts_total", "counter", "Draft blocks.", INTEGER, AT(drafts_total), 1},
    {"vllm:spec_decode_num_draft_tokens_total", "counter",
     "Draft tokens proposed, before trimming.", INTEGER, AT(drafted_total), 1},
    {"vllm:spec_decode_num_accepted_tokens_total", "counter", "Draft tokens accepted.", INTEGER,
     AT(accepted_total), 1},
};

static const struct metric vllm_position_metrics[] = {
    {"vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter",
     "Draft tokens accepted at a position.", INTEGER,
     offsetof(struct snapshot_position, accepted_total), 1},
};

static const struct metric trimtab_metrics[] = {
    {"trimtab_steps_total", "counter", "Target forward passes.", INTEGER, AT(steps), 1},
    {"trimtab_requests_total", "counter", "Requests taken.", INTEGER, AT(requests_total), 1},
    {"trimtab_failed_requests_total", "counter", "Requests that failed.", INTEGER, AT(failed_total),
     1},
    {"trimtab_drafted_tokens_total", "counter", "Draft tokens proposed.", INTEGER,
     AT(drafted_total), 1},
    {"trimtab_admitted_tokens_total", "counter", "Draft tokens kept after trimming.", INTEGER,
     AT(admitted_total), 1},
    {"trimtab_verified_tokens_total", "counter", "Draft rows the target evaluated.", INTEGER,
     AT(verified_total), 1},
    {"trimtab_accepted_tokens_total", "counter", "Draft tokens accepted.", INTEGER,
     AT(accepted_total), 1},
    {"trimtab_emitted_tokens_total", "counter", "Tokens clients received.", INTEGER,
     AT(emitted_total), 1},
    {"trimtab_target_rows_total", "counter", "All rows the target evaluated, prefill included.",
     INTEGER, AT(target_rows_total), 1},
    {"trimtab_requests_running", "gauge", "Requests being generated.", COUNT, AT(running), 1},
    {"trimtab_requests_queued", "gauge", "Requests waiting.", COUNT, AT(queued), 1},
    {"trimtab_throughput_tokens_per_second", "gauge", "Emitted tokens a second over the window.",
     REAL, AT(throughput_tps), 1},
    {"trimtab_predicted_tokens_per_second", "gauge", "What the plan expected.", REAL,
     AT(predicted_tps), 1},
    {"trimtab_tokens_per_step", "gauge", "Emitted tokens a step and request over the window.", REAL,
     AT(tokens_per_step), 1},
    {"trimtab_step_seconds", "gauge", "Mean step over the window.", REAL, AT(step_ms), 1e-3},
    {"trimtab_draft_seconds", "gauge", "Mean time of a step spent drafting.", REAL, AT(draft_ms),
     1e-3},
    {"trimtab_verify_seconds", "gauge", "Mean time of a step in the target.", REAL, AT(verify_ms),
     1e-3},
    {"trimtab_own_seconds", "gauge", "Mean time of a step outside the models.", REAL, AT(own_ms),
     1e-3},
    {"trimtab_predicted_step_seconds", "gauge", "Mean step as the cost table predicted it.", REAL,
     AT(predicted_step_ms), 1e-3},
    {"trimtab_cost_error_ratio", "gauge",
     "Mean absolute error of predicted step times, as a part of the measured time.", REAL,
     AT(cost_error_ratio), 1},
    {"trimtab_cost_bias_ratio", "gauge",
     "Measured less predicted step time, as a part of the measured time.", REAL,
     AT(cost_bias_ratio), 1},
    {"trimtab_own_ratio", "gauge", "Own time as a part of the step.", REAL, AT(own_ratio), 1},
    {"trimtab_budget_tokens", "gauge", "Mean draft tokens admitted a step.", REAL, AT(budget), 1},
    {"trimtab_accepted_verified_ratio", "gauge", "Accepted of verified over the window.", REAL,
     AT(accepted_verified_ratio), 1},
    {"trimtab_fixed_draft", "gauge", "K of mode fixed.", COUNT, AT(fixed_draft), 1},
    {"trimtab_max_draft", "gauge", "Most positions drafted.", COUNT, AT(max_draft), 1},
    {"trimtab_generation", "gauge", "Changes of mode or settings so far.", INTEGER, AT(generation),
     1},
    {"trimtab_slope", "gauge", "Slope of the acceptance law.", REAL, AT(estimator.slope), 1},
    {"trimtab_slope_standard_error", "gauge", "Its standard error.", REAL, AT(estimator.slope_se),
     1},
    {"trimtab_level", "gauge", "Level that intercepts shrink to.", REAL, AT(estimator.level), 1},
    {"trimtab_refits_total", "counter", "Updates of the coefficients.", INTEGER,
     AT(estimator.refits), 1},
    {"trimtab_drift_events_total", "counter", "Changes of the acceptance law noticed.", INTEGER,
     AT(estimator.drift_events), 1},
    {"trimtab_drift_z", "gauge", "Drift statistic in standard units.", REAL, AT(estimator.drift_z),
     1},
    {"trimtab_calibration_error", "gauge", "Expected calibration error of predicted acceptance.",
     REAL, AT(estimator.ece), 1},
    {"trimtab_auc", "gauge", "Area under the curve of predicted acceptance.", REAL,
     AT(estimator.auc), 1},
    {"trimtab_store_ok", "gauge", "1 while history is being written.", FLAG, AT(store.ok), 1},
    {"trimtab_uptime_seconds", "gauge", "Since the node's start.", REAL, AT(uptime_s), 1},
};

#define POSITION(MEMBER) offsetof(struct snapshot_position, MEMBER)
static const struct metric trimtab_position_metrics[] = {
    {"trimtab_intercept", "gauge", "Intercept of a position.", REAL, POSITION(intercept), 1},
    {"trimtab_intercept_standard_error", "gauge", "Its standard error.", REAL,
     POSITION(intercept_se), 1},
    {"trimtab_accepted_ratio", "gauge", "Accepted of reached at a position.", REAL,
     POSITION(accepted_ratio), 1},
    {"trimtab_predicted_ratio", "gauge", "Predicted of reached at a position.", REAL,
     POSITION(predicted_ratio), 1},
    {"trimtab_labels_total", "counter", "Labels of a position.", INTEGER, POSITION(n), 1},
};

#define LENGTH(TABLE) (sizeof(TABLE) / sizeof *(TABLE))

/* -------------------------------------------------------------------------------------- values */

/* NaN when unknown: then there is no sample. */
static double value_of(const struct metric *metric, const void *base)
{
    const void *at = (const char *)base + metric->offset;

    switch (metric->kind) {
    case COUNT:
        return *(const int *)at < 0 ? NAN : *(const int *)at * metric->scale;
    case INTEGER:
        return *(const int64_t *)at < 0 ? NAN : (double)*(const int64_t *)at * metric->scale;
    case REAL:
        return *(const double *)at * metric->scale;
    case FLAG:
        return *(const bool *)at ? 1 : 0;
    }
    return NAN;
}

static void put_label(struct buffer *out, const char *name, const char *value)
{
    buffer_add_format(out, "%s=\"", name);
    for (const char *c = value; *c; c++) {
        if (*c == '\n')
            buffer_add_text(out, "\\n");
        else if (*c == '"' || *c == '\\')
            buffer_add_format(out, "\\%c", *c);
        else
            buffer_add(out, c, 1);
    }
    buffer_add_text(out, "\"");
}

void metrics_put_sample(struct buffer *out, const char *name, const struct snapshot *snapshot,
                        int engine, const char *label, const char *label_value, double value)
{
    buffer_add_format(out, "%s{", name);
    put_label(out, "model_name", snapshot->node.model);
    buffer_add_format(out, ",engine=\"%d\"", engine);
    if (strncmp(name, "trimtab_", strlen("trimtab_")) == 0) {
        buffer_add_text(out, ",");
        put_label(out, "node", snapshot->node.id);
    }
    if (label) {
        buffer_add_text(out, ",");
        put_label(out, label, label_value);
    }
    buffer_add_text(out, "} ");
    buffer_add_number(out, value, 15);
    buffer_add_text(out, "\n");
}

void metrics_put_header(struct buffer *out, const char *name, const char *type, const char *help)
{
    buffer_add_format(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* ------------------------------------------------------------------------------------ families */

struct source {
    const struct snapshot *snapshots;
    const bool *wanted; /* NULL = all */
    int count;
};

/* One family over all nodes and, with `positions`, over their positions; its header only with a
 * sample. */
static void put_family(struct buffer *out, const struct metric *metric, const struct source *source,
                       bool positions)
{
    bool headed = false;
    char index[12];

    for (int i = 0; i < source->count; i++) {
        const struct snapshot *snapshot = &source->snapshots[i];
        int rows = positions ? snapshot->estimator.positions_count : 1;
        if (source->wanted && !source->wanted[i]) continue;
        for (int k = 0; k < rows && k < SNAPSHOT_MAX_POSITIONS; k++) {
            double value = value_of(
                metric, positions ? (const void *)&snapshot->estimator.position[k] : snapshot);
            if (!isfinite(value)) continue;
            if (!headed) metrics_put_header(out, metric->name, metric->type, metric->help);
            headed = true;
            snprintf(index, sizeof index, "%d", k);
            metrics_put_sample(out, metric->name, snapshot, i, positions ? "position" : NULL, index,
                               value);
        }
    }
}

static void put_families(struct buffer *out, const struct metric *metrics, size_t count,
                         const struct source *source, bool positions)
{
    for (size_t i = 0; i < count; i++) put_family(out, &metrics[i], source, positions);
}

/* A state set: one sample a state, 1 for the present one. */
static void put_modes(struct buffer *out, const struct source *source)
{
    if (source->count > 0)
        metrics_put_header(out, "trimtab_mode", "gauge", "1 for the mode that is set.");
    for (int i = 0; i < source->count; i++) {
        for (int mode = MODE_OFF; mode <= MODE_SHADOW; mode++)
            metrics_put_sample(out, "trimtab_mode", &source->snapshots[i], i, "mode",
                               mode_name((enum mode)mode),
                               source->snapshots[i].mode == (enum mode)mode);
    }
}

static void put_health(struct buffer *out, const struct source *source)
{
    static const char *const states[] = {"ok", "degraded", "starting", "draining", "failed"};

    if (source->count > 0)
        metrics_put_header(out, "trimtab_health", "gauge", "1 for the node's state of health.");
    for (int i = 0; i < source->count; i++) {
        for (size_t k = 0; k < LENGTH(states); k++)
            metrics_put_sample(out, "trimtab_health", &source->snapshots[i], i, "state", states[k],
                               strcmp(source->snapshots[i].health.state, states[k]) == 0);
    }
}

void metrics_put(struct buffer *out, const struct snapshot *snapshots, const bool *generates,
                 int count)
{
    struct source own = {snapshots, generates, count}, all = {snapshots, NULL, count};

    put_families(out, vllm_metrics, LENGTH(vllm_metrics), &own, false);
    put_families(out, vllm_position_metrics, LENGTH(vllm_position_metrics), &own, true);
    put_modes(out, &all);
    put_health(out, &all);
    put_families(out, trimtab_metrics, LENGTH(trimtab_metrics), &all, false);
    put_families(out, trimtab_position_metrics, LENGTH(trimtab_position_metrics), &all, true);
}

/* ---------------------------------------------------------------------------------- cost cells */

/* Cells of one part of a node's cost table (cost_to_json): {"tokens" or "requests", "context_band",
 * "ms"}. */
static void put_cells(struct buffer *out, const struct snapshot *snapshot, int engine,
                      const char *part, const json_t *cells)
{
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *cell = json_array_get(cells, i), *ms = json_object_get(cell, "ms");
        const json_t *size =
            json_object_get(cell, strcmp(part, "verify") == 0 ? "tokens" : "requests");
        if (!json_is_number(ms) || !json_is_integer(size)) continue;
        buffer_add_text(out, "trimtab_cost_seconds{");
        put_label(out, "model_name", snapshot->node.model);
        buffer_add_format(out, ",engine=\"%d\",", engine);
        put_label(out, "node", snapshot->node.id);
        buffer_add_format(out, ",part=\"%s\",size=\"%lld\",context_band=\"%lld\"} ", part,
                          (long long)json_integer_value(size),
                          (long long)json_integer_value(json_object_get(cell, "context_band")));
        buffer_add_number(out, json_number_value(ms) * 1e-3, 9);
        buffer_add_text(out, "\n");
    }
}

static void put_costs(struct buffer *out, struct node *const *nodes,
                      const struct snapshot *snapshots, int count)
{
    static const char *const parts[] = {"verify", "draft", "own"};
    bool headed = false;

    for (int i = 0; i < count; i++) {
        struct node *node = nodes[i];
        json_t *cost = node->ops->cost ? node->ops->cost(node) : NULL;
        if (cost && !headed)
            metrics_put_header(
                out, "trimtab_cost_seconds", "gauge",
                "Measured cost of a forward pass: size is tokens (verify) or requests.");
        headed |= cost != NULL;
        for (size_t k = 0; k < LENGTH(parts); k++)
            put_cells(out, &snapshots[i], i, parts[k], json_object_get(cost, parts[k]));
        json_decref(cost);
    }
}

void metrics_handle(struct exchange *x)
{
    const struct server_view *server = exchange_server(x);
    int all = server->node_count, count = 0;
    struct snapshot *snapshots = calloc((size_t)all + 1, sizeof *snapshots);
    struct node **nodes = calloc((size_t)all + 1, sizeof *nodes);
    bool *generates = calloc((size_t)all + 1, sizeof *generates);

    x->reply.status = 200;
    x->reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
    if (!snapshots || !nodes || !generates) {
        reply_error(&x->reply, 500, NULL, "out_of_memory", "out of memory");
    } else {
        /* the nodes that generate stand first and are never hidden: their numbers stay */
        for (int i = 0; i < all; i++) {
            struct node *node = server->nodes[i];

            if (atomic_load(&node->hidden)) continue;
            node->ops->snapshot(node, &snapshots[count]);
            generates[count] = (node->capabilities & NODE_CAN_GENERATE) != 0;
            nodes[count++] = node;
        }
        metrics_put(&x->reply.body, snapshots, generates, count);
        traffic_put(&x->reply.body, server->traffic, snapshots, generates, count);
        put_costs(&x->reply.body, nodes, snapshots, count);
    }
    free(nodes);
    free(snapshots);
    free(generates);
}
