/* node_vllm_read.c - what the engine said: who it is, its pages of metrics, its restarts and
 * silences; the rows and events that come of it. Runs on the scraper's thread.
 */
#include "config.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/exposition.h"
#include "controller/node_vllm_state.h"
#include "controller/ticks.h"

#define HEALTH_S 30           /* between two looks at /health */
#define BACKOFF_MOST_MS 30000 /* between two tries of a dead node */

_Static_assert(ENGINE_POSITIONS == SNAPSHOT_MAX_POSITIONS, "positions of a page and of a snapshot");

static const char *const paths[] = {
    [ASK_VERSION] = "/version",
    [ASK_MODELS] = "/v1/models",
    [ASK_HEALTH] = "/health",
    [ASK_METRICS] = "/metrics",
};

void vllm_node_event(struct vllm_node *node, const char *severity, const char *kind,
                     const char *text)
{
    struct store_event event = {atomic_load(&node->run_id), utc_ms(), severity, kind, text, NULL};
    char named[SNAPSHOT_NAME + 400];

    if (event.run_id == 0) { /* never read yet: nothing else says whose it is */
        snprintf(named, sizeof named, "%s: %s", node->node.id, text);
        event.text = named;
    }
    if (node->store) store_put_event(node->store, &event);
}

static void on_rpc_event(void *node, const char *severity, const char *kind, const char *text)
{
    vllm_node_event(node, severity, kind, text);
}

bool vllm_node_is_stale(const struct vllm_node *node, double age_s)
{
    return age_s > fmax(NODE_VLLM_STALE_S, 3e-3 * node->interval_ms);
}

double vllm_node_window_s(const struct vllm_node *node)
{
    return engine_counts_at_end(engine_watch_page(node->watch)->engine) ? NODE_VLLM_LONG_WINDOW_S
                                                                        : NODE_VLLM_WINDOW_S;
}

/* ------------------------------------------------------------------------------------ the store */

void vllm_node_end_run(struct vllm_node *node)
{
    int64_t run_id = atomic_exchange(&node->run_id, 0);

    if (node->store && run_id > 0) store_end_run(node->store, run_id);
}

static void begin_run(struct vllm_node *node)
{
    struct store_run run = {
        .node = node->node.id,
        .kind = "vllm",
        .engine = engine_name(node->page.engine),
        .version = node->version[0] ? node->version : NULL,
        .model = node->model[0] ? node->model : NULL,
        .max_draft = engine_positions(&node->page) > 0 ? engine_positions(&node->page) : -1,
    };
    int64_t run_id = 0;

    vllm_node_end_run(node);
    node->seen = (struct coefficients_seen){0};
    node->admitted = -1;
    node->owed_s = 0;
    if (node->store) run_id = store_begin_run(node->store, &run);
    atomic_store(&node->run_id, run_id > 0 ? run_id : 0);
}

int64_t vllm_node_count(double value)
{
    return isnan(value) ? -1 : (int64_t)(value + 0.5);
}

/* Part i of a count that is spread evenly over so many; the parts add up to it. */
static int64_t part_of(int64_t count, int i, int parts)
{
    return count < 0 ? -1 : count * (i + 1) / parts - count * i / parts;
}

/* Drafts that were admitted since the last reading, by the extension's own count; NaN = unknown. */
static double take_admitted(struct vllm_node *node, const struct snapshot *steering)
{
    int64_t before = node->admitted, now = steering->admitted_total;

    node->admitted = now;
    return before >= 0 && now >= before ? (double)(now - before) : NAN;
}

/* How many of the store's seconds a reading stands for: an engine may be read less often than once
 * a second, or late. 0 after a silence: a gap stays a gap, whatever came meanwhile. */
static int seconds_of(struct vllm_node *node, double seconds)
{
    int count;

    if (vllm_node_is_stale(node, seconds)) {
        node->owed_s = 0;
        return 0;
    }
    node->owed_s += seconds;
    count = node->owed_s < 1 ? 1 : (int)(node->owed_s + 0.5);
    node->owed_s -= count;
    return count;
}

static void put_seconds(struct vllm_node *node, const struct store_sample *sum, int count)
{
    for (int i = 0; i < count; i++) {
        struct store_sample sample = *sum;

        sample.time_ms -= (int64_t)1000 * (count - 1 - i);
        sample.drafted = part_of(sum->drafted, i, count);
        sample.admitted = part_of(sum->admitted, i, count);
        sample.verified = part_of(sum->verified, i, count);
        sample.accepted = part_of(sum->accepted, i, count);
        sample.emitted = part_of(sum->emitted, i, count);
        sample.steps = part_of(sum->steps, i, count);
        for (int k = 0; k < sample.positions; k++) {
            sample.position[k].reached = part_of(sum->position[k].reached, i, count);
            sample.position[k].accepted = part_of(sum->position[k].accepted, i, count);
        }
        store_put_sample(node->store, &sample);
    }
}

/* What an engine does not tell is unknown in the store, too. */
static void put_sample(struct vllm_node *node, const struct engine_second *second,
                       const struct snapshot *steering)
{
    const double *delta = second->delta;
    struct store_sample sample = {
        .run_id = node->run_id,
        .time_ms = node->read_ms,
        .running = (int)vllm_node_count(engine_total(&node->page, FIGURE_RUNNING)),
        .queued = (int)vllm_node_count(engine_total(&node->page, FIGURE_WAITING)),
        .drafted = vllm_node_count(delta[FIGURE_DRAFTED]),
        .admitted = vllm_node_count(delta[FIGURE_ADMITTED]),
        .verified = vllm_node_count(delta[FIGURE_VERIFIED]),
        .accepted = vllm_node_count(delta[FIGURE_ACCEPTED]),
        .emitted = vllm_node_count(delta[FIGURE_EMITTED]),
        .steps = vllm_node_count(delta[FIGURE_STEPS]),
        .target_rows = -1,
        .draft_ms = NAN,
        .verify_ms = NAN,
        .own_ms = NAN,
        .step_ms = NAN,
        .predicted_ms = NAN,
        .priced_ms = NAN,
        .missed_ms = NAN,
        .budget = steering->budget,
        .mode = mode_name(steering->mode),
        .positions = second->positions,
    };

    for (int k = 0; k < sample.positions; k++)
        sample.position[k] =
            (struct store_position){vllm_node_count(engine_second_reached(second, k)),
                                    vllm_node_count(second->accepted_at[k]), NAN, NAN, NAN};
    if (node->store && node->run_id > 0)
        put_seconds(node, &sample, seconds_of(node, second->seconds));
}

/* What a change of mode did, second by second, for who looks on. */
static void watch_effect(struct vllm_node *node, const struct engine_second *second,
                         const struct snapshot *steering)
{
    struct rates_second next = {
        .time_ms = node->read_ms,
        .seconds = second->seconds,
        .mode = steering->mode,
        .fixed_draft = steering->fixed_draft,
        .running = (int)vllm_node_count(engine_total(&node->page, FIGURE_RUNNING))};

    if (steering->mode == MODE_UNKNOWN || isnan(second->delta[FIGURE_EMITTED])) return;
    if (!node->rates) node->rates = calloc(1, sizeof *node->rates);
    if (!node->rates) return; /* out of memory: no effect is told */
    next.delta.emitted = vllm_node_count(second->delta[FIGURE_EMITTED]);
    next.delta.steps = isnan(second->delta[FIGURE_STEPS])
                           ? next.delta.emitted
                           : vllm_node_count(second->delta[FIGURE_STEPS]);
    next.delta.step_ms = NAN; /* an engine tells no time of its steps */
    rates_add(node->rates, &next);
    node->effect_known = rates_toggle_effect(node->rates, &node->effect);
}

/* The coefficients in force, each time they are others than before: the history of an estimator
 * that fits in another process. */
static void put_refit(struct vllm_node *node, const struct snapshot *steering)
{
    struct coefficients_seen now = {.positions = steering->estimator.positions_count,
                                    .trimtab = strcmp(steering->estimator.kind, "trimtab") == 0,
                                    .slope = steering->estimator.slope,
                                    .refits = node->seen.refits + 1};
    struct store_refit row = {.run_id = node->run_id,
                              .time_ms = node->read_ms,
                              .epoch = now.refits,
                              .stratum = "all",
                              .kind = steering->estimator.kind,
                              .slope = now.slope,
                              .slope_se = steering->estimator.slope_se,
                              .level = steering->estimator.level,
                              .centre = NAN,
                              .drift_z = steering->estimator.drift_z,
                              .observations = -1,
                              .positions = now.positions};
    bool same = now.positions == node->seen.positions && now.trimtab == node->seen.trimtab &&
                now.slope == node->seen.slope;

    if (isnan(now.slope)) return;
    for (int k = 0; k < now.positions; k++) {
        const struct snapshot_position *position = &steering->estimator.position[k];

        now.intercept[k] = position->intercept;
        same = same && now.intercept[k] == node->seen.intercept[k];
        row.position[k].intercept = position->intercept;
        row.position[k].intercept_se = position->intercept_se;
        row.position[k].observations = now.trimtab ? position->n : -1;
    }
    if (same || !node->store || node->run_id <= 0) return;
    node->seen = now;
    store_put_refit(node->store, &row);
}

/* --------------------------------------------------------------------------------- who is there */

static void take_version(struct vllm_node *node, const struct fetch_answer *answer)
{
    json_t *body = answer->ok ? json_loadb(answer->body, answer->length, 0, NULL) : NULL;
    const char *version = json_string_value(json_object_get(body, "version"));

    snprintf(node->version, sizeof node->version, "%s", version ? version : "");
    json_decref(body);
}

static void take_models(struct vllm_node *node, const struct fetch_answer *answer)
{
    json_t *body = answer->ok ? json_loadb(answer->body, answer->length, 0, NULL) : NULL;
    const char *id =
        json_string_value(json_object_get(json_array_get(json_object_get(body, "data"), 0), "id"));

    snprintf(node->model, sizeof node->model, "%s", id ? id : "");
    node->refused[0] = '\0';
    if (answer->refused)
        snprintf(node->refused, sizeof node->refused, "/v1/models: %.150s", answer->why);
    json_decref(body);
}

static void take_health(struct vllm_node *node, const struct fetch_answer *answer)
{
    bool ill = !answer->ok && answer->status >= 500;

    if (ill && !node->ill) vllm_node_event(node, "error", "health", "/health says it is not well");
    if (ill && node->rpc) vllm_rpc_unwell(node->rpc);
    node->ill = ill;
    node->health_us = ticks_us() + (int64_t)HEALTH_S * 1000000;
}

/* Steering is for vLLM only; its probe is cheap where the extension is not there. */
static void tick_rpc(struct vllm_node *node)
{
    const struct vllm_rpc_options options = {
        .remote = &node->remote, .event = on_rpc_event, .state = node};

    if (!node->rpc && node->page.engine == ENGINE_VLLM) node->rpc = vllm_rpc_new(&options, NULL);
    if (node->rpc) vllm_rpc_tick(node->rpc);
}

/* ------------------------------------------------------------------------------------ the pages */

static void note_restart(struct vllm_node *node)
{
    char text[160];

    node->restarts++;
    node->restarted_ms = node->read_ms;
    snprintf(text, sizeof text,
             "its counters began anew: a new process, or one of its engines (%lld since it is "
             "watched)",
             (long long)node->restarts);
    begin_run(node);
    vllm_node_event(node, "warning", "restart", text);
    if (node->rpc) vllm_rpc_restarted(node->rpc);
    node->health_us = 0;
}

/* Absent is not zero: say once that there is nothing to be seen of speculation. */
static void note_silence(struct vllm_node *node)
{
    bool silent = !engine_speculates(&node->page);

    if (silent && !node->silent)
        vllm_node_event(node, "info", "series",
                        "it has no series of speculation: speculation is off there, or hidden");
    else if (!silent && node->silent)
        vllm_node_event(node, "info", "series", "its series of speculation are there now");
    node->silent = silent;
}

static void note_news(struct vllm_node *node, unsigned news)
{
    if (news & ENGINE_NEWS_FIRST) begin_run(node);
    if (news & ENGINE_NEWS_RESTARTED) note_restart(node);
    note_silence(node);
    if (news & ENGINE_NEWS_BROKEN)
        vllm_node_event(node, "warning", "acceptance", engine_watch_trouble(node->watch));
    if (news & ENGINE_NEWS_MENDED)
        vllm_node_event(node, "info", "acceptance", "acceptance is plausible again");
    if (news & ENGINE_NEWS_SLOWED)
        vllm_node_event(node, "warning", "throughput", engine_watch_slowdown(node->watch));
}

static void note_failure(struct vllm_node *node, const char *why)
{
    char text[300];

    node->wait_ms = node->interval_ms;
    for (int i = 0; i < node->failures && node->wait_ms < BACKOFF_MOST_MS; i++) node->wait_ms *= 2;
    if (node->wait_ms > BACKOFF_MOST_MS) node->wait_ms = BACKOFF_MOST_MS;
    snprintf(node->why, sizeof node->why, "%s", why);
    node->due_us = 0;
    if (node->failures++ > 0) return;
    node->failed_ms = utc_ms();
    snprintf(text, sizeof text, "it cannot be read: %s", why);
    vllm_node_event(node, "warning", "unreachable", text);
}

static void note_answer(struct vllm_node *node)
{
    char text[120];

    if (node->failures > 0) {
        snprintf(text, sizeof text, "it answers again, after %.0f s",
                 (double)(utc_ms() - node->failed_ms) / 1000);
        vllm_node_event(node, "info", "reachable", text);
    }
    node->failures = 0;
    node->why[0] = '\0';
}

/* Is the answer a whole page of an engine? Read into node->page then; else why not. */
static bool read_page(struct vllm_node *node, const struct fetch_answer *answer, const char **why)
{
    bool openmetrics = strstr(answer->type, "openmetrics") != NULL;
    struct exposition reader;

    *why = answer->why;
    if (!answer->ok) return false;
    *why = "its page of metrics was cut short and is dropped";
    if (!exposition_is_whole(answer->body, answer->length, openmetrics)) return false;
    engine_read(&node->page, &reader, answer->body, answer->length);
    *why = "/metrics has no series of an engine that is known (vLLM, llama-server with --metrics, "
           "SGLang, TensorRT-LLM, trimtab)";
    return node->page.used > 0;
}

static void take_page(struct vllm_node *node)
{
    double predicted[ENGINE_POSITIONS];
    struct engine_second second;
    struct snapshot steering; /* what the extension told last */
    unsigned news;

    snapshot_clear(&steering);
    if (node->rpc) vllm_rpc_fill(node->rpc, &steering);
    for (int k = 0; k < ENGINE_POSITIONS; k++)
        predicted[k] = steering.estimator.position[k].predicted_ratio;
    node->read_us = ticks_us();
    node->read_ms = utc_ms();
    if (node->first_ms == 0) node->first_ms = node->read_ms;
    if (!node->model[0] && node->page.model[0])
        snprintf(node->model, sizeof node->model, "%s", node->page.model);
    news = engine_watch_take(node->watch, &node->page, take_admitted(node, &steering), predicted,
                             node->read_us, &second);
    note_answer(node);
    note_news(node, news);
    if (second.seconds > 0) {
        put_sample(node, &second, &steering);
        watch_effect(node, &second, &steering);
    }
    if (!(news & ENGINE_NEWS_RESTARTED)) put_refit(node, &steering);
    if (news & ENGINE_NEWS_RESTARTED) node->asking = ASK_VERSION; /* who is it now? */
    tick_rpc(node);
}

/* ------------------------------------------------------------------------------------ what next */

/* A node's first question is spread over the interval, so that a fleet is not asked in one burst.
 */
static int64_t first_wait_ms(const struct vllm_node *node)
{
    uint32_t hash = 2166136261u; /* FNV-1a */

    for (const char *at = node->node.id; *at; at++) hash = (hash ^ (unsigned char)*at) * 16777619u;
    return (int64_t)(hash % (uint32_t)node->interval_ms);
}

static int64_t metrics_wait_ms(struct vllm_node *node)
{
    int64_t now = ticks_us();

    if (node->due_us == 0) node->due_us = now;
    node->due_us += (int64_t)node->interval_ms * 1000;
    if (node->due_us < now) node->due_us = now; /* late: the rhythm begins anew */
    return (node->due_us - now) / 1000;
}

/* False when it cannot be read. */
static bool take_answer(struct vllm_node *node, const struct fetch_answer *answer)
{
    enum vllm_ask asked = node->asking;
    const char *why = answer->why;
    bool there = answer->status != 0;

    if (asked != ASK_METRICS && there) node->asking = asked + 1;
    if (asked == ASK_VERSION && there) take_version(node, answer);
    if (asked == ASK_MODELS && there) take_models(node, answer);
    if (asked == ASK_HEALTH && there) take_health(node, answer);
    if (asked == ASK_METRICS) {
        there = read_page(node, answer, &why);
        if (there) take_page(node);
    }
    if (!there) note_failure(node, why);
    return there;
}

void vllm_node_read(void *state, const struct fetch_answer *answer, struct scrape_next *next)
{
    struct vllm_node *node = state;
    enum vllm_ask asked;

    pthread_mutex_lock(&node->lock);
    asked = node->asking;
    if (!answer)
        next->wait_ms = first_wait_ms(node);
    else if (!take_answer(node, answer))
        next->wait_ms = node->wait_ms;
    else
        next->wait_ms = asked == ASK_METRICS ? metrics_wait_ms(node) : 0;
    if (node->asking == ASK_METRICS && node->failures == 0 && ticks_us() >= node->health_us)
        node->asking = ASK_HEALTH;
    next->path = paths[node->asking];
    next->limit = node->asking == ASK_METRICS ? FETCH_METRICS_MAX : FETCH_REPLY_MAX;
    pthread_mutex_unlock(&node->lock);
}
