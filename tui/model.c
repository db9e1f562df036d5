/* model.c - see model.h. */
#include "config.h"

#include "tui/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/cause.h"
#include "tui/text.h"

#define STALE_LEAST_MS 5000
#define STALE_INTERVALS 3
#define MARK_SAME_MS 2500 /* the same moment, told by two documents */

struct model *model_new(void)
{
    struct model *model = calloc(1, sizeof *model);

    if (model != NULL) snapshot_clear(&model->snapshot);
    return model;
}

static void clear_past(struct model *model)
{
    for (int i = 0; i < SERIES_COUNT; i++) series_free(&model->past.series[i]);
    memset(&model->past, 0, sizeof model->past);
    snapshot_clear(&model->past.snapshot);
}

void model_free(struct model *model)
{
    if (model == NULL) return;
    clear_past(model);
    for (int i = 0; i < SERIES_COUNT; i++) series_free(&model->series[i]);
    free(model);
}

/* Strata and costs belong to the moment that is shown. */
static void forget_tables(struct model *model)
{
    model->strata_known = model->costs_known = false;
    model->strata_count = model->costs_count = model->uniform_count = 0;
}

void model_look(struct model *model, int64_t time_ms)
{
    if (time_ms == model->past.time_ms) return;
    clear_past(model);
    forget_tables(model);
    model->past.time_ms = time_ms;
    model->marks_count = 0; /* those around the moment come with its decisions */
}

void model_watch(struct model *model, const char *node_id)
{
    for (int i = 0; i < SERIES_COUNT; i++) series_free(&model->series[i]);
    clear_past(model);
    forget_tables(model);
    text_clean(model->node_id, sizeof model->node_id, node_id);
    model->snapshot_known = model->requests_known = model->decisions_known = false;
    model->settings_known = false;
    model->settings_count = 0;
    memset(model->refusal, 0, sizeof model->refusal);
    model->requests_count = model->decisions_count = model->marks_count = 0;
    model->restarted_time_ms = 0;
    snapshot_clear(&model->snapshot);
}

void model_refuse(struct model *model, enum model_list list, const char *why)
{
    text_clean(model->refusal[list], sizeof model->refusal[list], why);
}

void model_refuse_past(struct model *model, const char *why)
{
    text_clean(model->past.refusal, sizeof model->past.refusal, why);
}

const struct snapshot *model_snapshot(const struct model *model)
{
    return model->past.time_ms > 0 ? &model->past.snapshot : &model->snapshot;
}

const struct series *model_series(const struct model *model, int series)
{
    return model->past.time_ms > 0 ? &model->past.series[series] : &model->series[series];
}

bool model_is_known(const struct model *model)
{
    return model->past.time_ms > 0 ? model->past.known : model->snapshot_known;
}

const struct model_node *model_watched(const struct model *model)
{
    for (int i = 0; i < model->nodes_count; i++)
        if (strcmp(model->node[i].id, model->node_id) == 0) return &model->node[i];
    return NULL;
}

static bool is_old(int64_t age_ms, int64_t interval_ms)
{
    return age_ms > STALE_LEAST_MS && age_ms > STALE_INTERVALS * interval_ms;
}

bool model_is_stale(const struct model *model, int64_t mono_ms, int64_t interval_ms)
{
    return model->snapshot_known && is_old(mono_ms - model->advanced_mono_ms, interval_ms);
}

bool model_nodes_are_stale(const struct model *model, int64_t mono_ms, int64_t interval_ms)
{
    return model->nodes_known && is_old(mono_ms - model->nodes_mono_ms, interval_ms);
}

void model_series_label(int series, char *out, size_t size)
{
    static const char *const of_node[] = {[SERIES_SLOPE] = "slope",
                                          [SERIES_THROUGHPUT] = "throughput_tps",
                                          [SERIES_STEP] = "step_ms",
                                          [SERIES_TOKENS_PER_STEP] = "tokens_per_step",
                                          [SERIES_ACCEPTED] = "accepted_ratio",
                                          [SERIES_BUDGET] = "budget",
                                          [SERIES_ROWS] = "rows_per_step",
                                          [SERIES_SLOPE_SE] = "slope_se",
                                          [SERIES_DRIFT_Z] = "drift_z"};
    static const char *const of_position[] = {"intercept", "intercept_se", "accepted", "predicted"};
    const int beyond = series - SERIES_NODE_COUNT;

    if (beyond < 0)
        snprintf(out, size, "%s", of_node[series]);
    else
        snprintf(out, size, "%s.%d", of_position[beyond / SNAPSHOT_MAX_POSITIONS],
                 beyond % SNAPSHOT_MAX_POSITIONS);
}

/* ---- reading JSON: what is absent or null is unknown, text is cleaned */

static const char *string_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "";
}

#define COPY(field, object, key) text_clean(field, sizeof(field), string_at(object, key))

static double real_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

static int64_t integer_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    if (json_is_integer(value)) return json_integer_value(value);
    return json_is_real(value) && fabs(json_real_value(value)) < 9e15
               ? (int64_t)json_real_value(value)
               : -1;
}

static bool has_name(const json_t *array, const char *name)
{
    const json_t *item;
    size_t i;

    json_array_foreach(array, i, item) if (json_is_string(item) &&
                                           strcmp(json_string_value(item), name) == 0) return true;
    return false;
}

static int check_schema(const json_t *document, const char *schema, const char *array, char **cause)
{
    const char *found = string_at(document, "schema");

    if (strcmp(found, schema) != 0) {
        char clean[80];

        cause_set(
            cause,
            "the daemon sent \"%s\" where this console reads \"%s\"; update the older of them",
            text_clean(clean, sizeof clean, found), schema);
        return -1;
    }
    if (array != NULL && !json_is_array(json_object_get(document, array))) {
        cause_set(cause, "the daemon's %s document has no \"%s\" list", schema, array);
        return -1;
    }
    return 0;
}

int model_take_nodes(struct model *model, const json_t *nodes, int64_t mono_ms, char **cause)
{
    const json_t *item, *health;
    size_t i;

    if (check_schema(nodes, "trimtab.nodes/1", "nodes", cause) != 0) return -1;
    model->nodes_count = 0;
    json_array_foreach(json_object_get(nodes, "nodes"), i, item)
    {
        struct model_node *node;

        if (model->nodes_count == MODEL_NODES) break;
        node = &model->node[model->nodes_count++];
        memset(node, 0, sizeof *node);
        health = json_object_get(item, "health");
        COPY(node->id, item, "id");
        COPY(node->kind, item, "kind");
        COPY(node->model, item, "model");
        COPY(node->engine, item, "engine");
        COPY(node->mode, item, "mode");
        COPY(node->unable, item, "unable");
        node->throughput_tps = real_at(item, "throughput_tps");
        node->mean_length = real_at(item, "mean_length");
        node->accepted_verified_ratio = real_at(item, "accepted_verified_ratio");
        node->slope = real_at(item, "slope");
        node->drift_z = real_at(item, "drift_z");
        node->queued = integer_at(item, "queued");
        node->age_s =
            integer_at(item, "read_ms") > 0
                ? (double)(integer_at(item, "time_ms") - integer_at(item, "read_ms")) / 1000
                : NAN;
        COPY(node->state, health, "state");
        COPY(node->reason, health, "reason");
        node->tier = (int)integer_at(item, "tier");
        node->can_set_mode = has_name(json_object_get(item, "capabilities"), "mode");
        node->can_set = has_name(json_object_get(item, "capabilities"), "settings");
    }
    model->read_only = json_is_true(json_object_get(nodes, "read_only"));
    model->nodes_known = true;
    model->nodes_mono_ms = mono_ms;
    if (model->node_id[0] == '\0' && model->nodes_count > 0) model_watch(model, model->node[0].id);
    return 0;
}

static void add_mark(struct model *model, enum mark_kind kind, int64_t time_ms, const char *text)
{
    struct model_mark *mark = NULL;

    if (time_ms <= 0) return;
    for (int i = 0; i < model->marks_count; i++) {
        if (model->mark[i].kind == kind && llabs(model->mark[i].time_ms - time_ms) < MARK_SAME_MS)
            return;
        if (mark == NULL || model->mark[i].time_ms < mark->time_ms) mark = &model->mark[i];
    }
    if (model->marks_count < MODEL_MARKS)
        mark = &model->mark[model->marks_count++];
    else if (mark->time_ms > time_ms)
        return; /* older than all that are kept */
    *mark = (struct model_mark){.kind = kind, .time_ms = time_ms};
    text_clean(mark->text, sizeof mark->text, text);
}

static void add_live_point(struct model *model, int series, double value)
{
    if (isfinite(value)) series_add(&model->series[series], model->snapshot.time_ms, value);
}

/* What a position accepted and what was predicted come with the history alone: the snapshot's are
 * of the estimator's whole memory. */
static void add_live_points(struct model *model)
{
    const struct snapshot *s = &model->snapshot;

    add_live_point(model, SERIES_SLOPE, s->estimator.slope);
    add_live_point(model, SERIES_SLOPE_SE, s->estimator.slope_se);
    add_live_point(model, SERIES_DRIFT_Z, s->estimator.drift_z);
    add_live_point(model, SERIES_THROUGHPUT, s->throughput_tps);
    add_live_point(model, SERIES_STEP, s->step_ms);
    add_live_point(model, SERIES_TOKENS_PER_STEP, s->tokens_per_step);
    add_live_point(model, SERIES_ACCEPTED, s->accepted_verified_ratio);
    add_live_point(model, SERIES_BUDGET, s->budget);
    for (int i = 0; i < s->estimator.positions_count; i++) {
        add_live_point(model, SERIES_INTERCEPT + i, s->estimator.position[i].intercept);
        add_live_point(model, SERIES_INTERCEPT_SE + i, s->estimator.position[i].intercept_se);
    }
}

/* A node that came back counts from nothing: the charts get a hole there, not a spike. */
static void note_restart(struct model *model, const struct snapshot *next)
{
    const struct snapshot *last = &model->snapshot;
    bool younger =
        isfinite(last->uptime_s) && isfinite(next->uptime_s) && next->uptime_s + 1 < last->uptime_s;
    bool counts_fell = next->steps >= 0 && next->steps < last->steps;

    if (!model->snapshot_known || !(younger || counts_fell)) return;
    model->restarted_time_ms =
        next->time_ms - (isfinite(next->uptime_s) ? (int64_t)(next->uptime_s * 1000) : 0);
    add_mark(model, MARK_RESTART, model->restarted_time_ms, "restart");
    for (int i = 0; i < SERIES_COUNT; i++)
        if (model->series[i].count > 0) series_add(&model->series[i], last->time_ms + 1, NAN);
}

int model_take_snapshot(struct model *model, const json_t *snapshot, int64_t mono_ms, char **cause)
{
    struct snapshot next;
    char text[48];

    if (snapshot_from_json(snapshot, &next, cause) != 0) return -1;
    if (strcmp(next.node.id, model->node_id) != 0) return 0;
    note_restart(model, &next);
    if (!model->snapshot_known || next.time_ms != model->snapshot.time_ms)
        model->advanced_mono_ms = mono_ms;
    model->snapshot = next;
    model->snapshot_known = true;
    add_live_points(model);
    if (next.toggle.known) {
        snprintf(text, sizeof text, "%s\xe2\x86\x92%s", next.toggle.before, next.toggle.after);
        add_mark(model, MARK_TOGGLE, next.toggle.time_ms, text);
    }
    add_mark(model, MARK_DRIFT, next.estimator.last_drift_ms, "drift reset");
    return 0;
}

static int take_one_series(struct series *series, const json_t *points, int64_t step_ms)
{
    size_t count = json_array_size(points);
    struct series_point *point;
    int used = 0;
    bool ok;

    if (count == 0) return 0;
    point = calloc(count, sizeof *point);
    if (point == NULL) return -1;
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(points, i), *time = json_array_get(pair, 0),
                     *value = json_array_get(pair, 1);

        if (!json_is_number(time) || !json_is_number(value)) continue;
        point[used] =
            (struct series_point){(int64_t)json_number_value(time), json_number_value(value)};
        if (used > 0 && point[used].time_ms <= point[used - 1].time_ms) continue;
        used++;
    }
    ok = series_merge(series, point, used, step_ms);
    free(point);
    return ok ? 0 : -1;
}

static int take_all_series(struct series *series, const json_t *history, char **cause)
{
    const json_t *all = json_object_get(history, "series");
    int64_t step_ms = integer_at(history, "step_ms");

    if (check_schema(history, "trimtab.history/1", NULL, cause) != 0) return -1;
    for (int i = 0; i < SERIES_COUNT; i++) {
        char label[24];

        model_series_label(i, label, sizeof label);
        if (take_one_series(&series[i], json_object_get(all, label),
                            step_ms > 0 ? step_ms : 1000) != 0) {
            cause_set(cause, "out of memory");
            return -1;
        }
    }
    return 0;
}

int model_take_history(struct model *model, const json_t *history, char **cause)
{
    return take_all_series(model->series, history, cause);
}

int model_take_past_history(struct model *model, const json_t *history, char **cause)
{
    if (integer_at(history, "to_ms") != model->past.time_ms + 1) return 0;
    for (int i = 0; i < SERIES_COUNT; i++) series_free(&model->past.series[i]);
    return take_all_series(model->past.series, history, cause);
}

int model_take_requests(struct model *model, const json_t *requests, char **cause)
{
    const json_t *item;
    size_t i;

    if (check_schema(requests, "trimtab.requests/1", "requests", cause) != 0) return -1;
    model->requests_count = 0;
    json_array_foreach(json_object_get(requests, "requests"), i, item)
    {
        struct model_request *row;
        const json_t *id = json_object_get(item, "id");

        if (model->requests_count == MODEL_REQUESTS) break;
        row = &model->request[model->requests_count++];
        memset(row, 0, sizeof *row);
        row->id =
            json_is_string(id) ? strtoll(json_string_value(id), NULL, 10) : integer_at(item, "id");
        COPY(row->phase, item, "phase");
        COPY(row->drafter, item, "drafter");
        COPY(row->rule, item, "rule");
        row->age_s = real_at(item, "age_s");
        row->prompt_tokens = integer_at(item, "prompt_tokens");
        row->emitted = integer_at(item, "emitted");
        row->tokens_per_step = real_at(item, "tokens_per_step");
        row->temperature = real_at(item, "temperature");
        row->seeded = json_is_true(json_object_get(item, "seeded"));
    }
    model->requests_known = true;
    model->refusal[LIST_REQUESTS][0] = '\0';
    return 0;
}

/* {"gain":0.184,"n":600} as `gain 0.184 · n 600`. */
static void write_numbers(char *out, size_t size, const json_t *numbers)
{
    const char *key;
    json_t *value;
    size_t used = 0;

    out[0] = '\0';
    json_object_foreach((json_t *)(uintptr_t)numbers, key, value)
    {
        char number[TEXT_NUMBER] = "", part[120], name[48];
        const char *shown = number;

        if (json_is_integer(value))
            snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        else if (json_is_real(value))
            snprintf(number, sizeof number, "%.4g", json_real_value(value));
        else if (json_is_string(value))
            shown = json_string_value(value);
        else if (json_is_boolean(value))
            shown = json_is_true(value) ? "yes" : "no";
        else
            shown = TEXT_UNKNOWN;
        snprintf(part, sizeof part, "%s%s %.60s", used > 0 ? " \xc2\xb7 " : "",
                 text_clean(name, sizeof name, key), shown);
        if (used + strlen(part) + 1 > size) break;
        text_clean(out + used, size - used, part);
        used = strlen(out);
    }
}

static void mark_decision(struct model *model, const struct model_decision *row)
{
    char text[160];

    if (strstr(row->what, "drift") != NULL) {
        add_mark(model, MARK_DRIFT, row->time_ms, "drift reset");
    } else if (strcmp(row->what, "mode") == 0 && row->after[0] != '\0') {
        snprintf(text, sizeof text, "%s\xe2\x86\x92%s", row->before, row->after);
        add_mark(model, MARK_TOGGLE, row->time_ms, text);
    } else if (strcmp(row->what, "restart") == 0) {
        add_mark(model, MARK_RESTART, row->time_ms, "restart");
    }
}

int model_take_decisions(struct model *model, const json_t *decisions, char **cause)
{
    const json_t *item;
    size_t i;

    if (check_schema(decisions, "trimtab.decisions/1", "decisions", cause) != 0) return -1;
    model->decisions_count = 0;
    json_array_foreach(json_object_get(decisions, "decisions"), i, item)
    {
        struct model_decision *row;

        if (model->decisions_count == MODEL_DECISIONS) break;
        row = &model->decision[model->decisions_count++];
        memset(row, 0, sizeof *row);
        row->time_ms = integer_at(item, "time_ms");
        row->is_event = strcmp(string_at(item, "kind"), "event") == 0;
        COPY(row->severity, item, "severity");
        COPY(row->what, item, "what");
        COPY(row->before, item, "before");
        COPY(row->after, item, "after");
        COPY(row->who, item, "who");
        COPY(row->origin, item, "origin");
        COPY(row->text, item, "text");
        write_numbers(row->numbers, sizeof row->numbers, json_object_get(item, "numbers"));
        mark_decision(model, row);
    }
    model->decisions_known = true;
    model->refusal[LIST_DECISIONS][0] = '\0';
    return 0;
}

static void take_bins(struct model_stratum *row, const json_t *bins)
{
    for (int i = 0; i < MODEL_BINS; i++) {
        const json_t *bin = json_array_get(bins, (size_t)i);

        row->bin[i].n = real_at(bin, "n");
        row->bin[i].sum_p = real_at(bin, "sum_p");
        row->bin[i].sum_y = real_at(bin, "sum_y");
    }
}

static int take_calibration(struct model *model, const json_t *calibration, char **cause)
{
    const json_t *item, *rival;
    size_t i;

    if (check_schema(calibration, "trimtab.calibration/1", "strata", cause) != 0) return -1;
    model->strata_count = 0;
    json_array_foreach(json_object_get(calibration, "strata"), i, item)
    {
        struct model_stratum *row;

        if (model->strata_count == MODEL_STRATA) break;
        row = &model->stratum[model->strata_count++];
        memset(row, 0, sizeof *row);
        COPY(row->stratum, item, "stratum");
        COPY(row->kind, item, "kind");
        row->slope = real_at(item, "slope");
        row->slope_se = real_at(item, "slope_se");
        row->level = real_at(item, "level");
        row->drift_z = real_at(item, "drift_z");
        row->ece = real_at(item, "ece");
        row->brier = real_at(item, "brier");
        row->log_loss = real_at(item, "log_loss");
        row->auc = real_at(item, "auc");
        row->refits = integer_at(item, "refits");
        row->drift_events = integer_at(item, "drift_events");
        take_bins(row, json_object_get(item, "bins"));
        rival = json_object_get(item, "rival");
        COPY(row->rival.kind, rival, "kind");
        row->rival.slope = real_at(rival, "slope");
        row->rival.ece = real_at(rival, "ece");
        row->rival.brier = real_at(rival, "brier");
        row->rival.log_loss = real_at(rival, "log_loss");
    }
    model->strata_known = true;
    model->refusal[LIST_CALIBRATION][0] = '\0';
    return 0;
}

static int take_cost(struct model *model, const json_t *cost, char **cause)
{
    const json_t *item, *uniform = json_object_get(cost, "uniform_tps");
    size_t i;

    if (check_schema(cost, "trimtab.cost/1", "verify", cause) != 0) return -1;
    model->costs_count = model->uniform_count = 0;
    json_array_foreach(json_object_get(cost, "verify"), i, item)
    {
        struct model_cost *row;

        if (model->costs_count == MODEL_COSTS) break;
        row = &model->cost[model->costs_count++];
        row->tokens = integer_at(item, "tokens");
        row->context_band = (int)integer_at(item, "context_band");
        row->ms = real_at(item, "ms");
        row->spread_ms = real_at(item, "spread_ms");
        row->n = integer_at(item, "n");
        row->dropped = integer_at(item, "dropped");
    }
    json_array_foreach(uniform, i, item)
    {
        if (model->uniform_count == MODEL_UNIFORM) break;
        model->uniform_tps[model->uniform_count++] =
            json_is_number(item) ? json_number_value(item) : NAN;
    }
    model->costs_known = true;
    model->refusal[LIST_COST][0] = '\0';
    return 0;
}

int model_take_calibration(struct model *model, const json_t *calibration, char **cause)
{
    return model->past.time_ms > 0 ? 0 : take_calibration(model, calibration, cause);
}

int model_take_cost(struct model *model, const json_t *cost, char **cause)
{
    return model->past.time_ms > 0 ? 0 : take_cost(model, cost, cause);
}

int model_take_past(struct model *model, const json_t *past, char **cause)
{
    struct snapshot snapshot;

    if (check_schema(past, "trimtab.past/1", NULL, cause) != 0) return -1;
    if (model->past.time_ms == 0 || integer_at(past, "at_ms") != model->past.time_ms) return 0;
    if (snapshot_from_json(json_object_get(past, "snapshot"), &snapshot, cause) != 0) return -1;
    if (strcmp(snapshot.node.id, model->node_id) != 0) return 0;
    model->past.snapshot = snapshot;
    model->past.known = true;
    model->past.refusal[0] = '\0';
    return take_calibration(model, json_object_get(past, "calibration"), cause) != 0 ||
                   take_cost(model, json_object_get(past, "cost"), cause) != 0
               ? -1
               : 0;
}

const struct model_setting *model_setting_named(const struct model *model, const char *name)
{
    for (int i = 0; i < model->settings_count; i++)
        if (strcmp(model->setting[i].name, name) == 0) return &model->setting[i];
    return NULL;
}

static void copy_value(char out[MODEL_VALUE], const json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)) : NULL;

    text_clean(out, MODEL_VALUE, text != NULL ? text : "");
    free(text);
}

int model_take_settings(struct model *model, const json_t *settings, char **cause)
{
    const json_t *pending = json_object_get(settings, "pending");
    const char *key, *why = json_string_value(json_object_get(settings, "pending_reason"));
    json_t *value;

    if (check_schema(settings, "trimtab.settings/1", NULL, cause) != 0) return -1;
    model->settings_count = 0;
    text_clean(model->settings_await, sizeof model->settings_await, why != NULL ? why : "");
    json_object_foreach((json_t *)(uintptr_t)settings, key, value)
    {
        struct model_setting *row = &model->setting[model->settings_count];

        if (strcmp(key, "schema") == 0 || strcmp(key, "generation") == 0 ||
            strncmp(key, "pending", 7) == 0)
            continue;
        if (model->settings_count == MODEL_SETTINGS) break;
        text_clean(row->name, sizeof row->name, key);
        copy_value(row->value, value);
        copy_value(row->pending, json_object_get(pending, key));
        model->settings_count++;
    }
    model->settings_known = true;
    model->refusal[LIST_SETTINGS][0] = '\0';
    return 0;
}
