/* node_replay.c - see node_replay.h. One thread steps the replay, sleeps until the wall clock has
 * caught up, and samples once a second; calls from other threads leave a wish or read a copy.
 */
#include "config.h"

#include "controller/node_replay.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/cause.h"
#include "controller/node_report.h"
#include "controller/node_rows.h"
#include "controller/replay.h"
#include "controller/ticks.h"

#define SAMPLE_US 1000000
#define CALIBRATION_S 60
#define LATE_US                                                                                    \
    200000 /* further behind than this the clock is set anew: no catching up in a burst */

struct replay_node {
    struct node node; /* first */
    struct store *store;
    char *trace, *table; /* base names */
    double speed;
    int concurrency, depth; /* drafts that the trace holds */
    struct trace_set *traces;
    struct cost_model *cost;
    struct replay *replay; /* the thread's */
    struct tally_counts last;
    double virtual_ms, sampled_ms; /* virtual time so far; of it, sampled */
    int64_t run_id;
    pthread_t thread;
    bool started;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    bool stop, draining;
    struct policy wish, force;
    int64_t generation, force_generation;
    int fixed_draft;
    double uptime_ms; /* virtual */
    struct known_stratum stratum[STRATA_ESTIMATORS];
    int shown;
    struct rates rates;
    struct rates_effect effect;
    bool effect_known;
    struct regime_log regime_log;
    struct replay_stream *live; /* (concurrency) */
    json_t *costs;              /* as last published */
};

static struct replay_node *self(struct node *node)
{
    return (struct replay_node *)node;
}

static const struct node_actor daemon_actor = {"trimtabd", "daemon"};

/* ---- the thread */

static struct planner_options planner_options_of(const struct policy *policy)
{
    return (struct planner_options){
        .max_draft = policy->max_draft,
        .fixed_draft = policy->fixed_draft,
        .min_gain = policy->min_gain,
        .exploration = policy->exploration,
        .key = UINT64_C(0x7472696d746162),
    };
}

static void put_event(struct replay_node *node, const char *severity, const char *kind,
                      const char *text)
{
    struct store_event event = {node->run_id, utc_ms(), severity, kind, text, NULL};

    if (node->store) store_put_event(node->store, &event);
}

static void take_wishes(struct replay_node *node)
{
    struct planner_options planner;
    struct policy wish, force;
    int64_t generation;
    bool taken, remodel;
    int fixed_draft;

    pthread_mutex_lock(&node->lock);
    wish = node->wish;
    force = node->force;
    generation = node->generation;
    taken = generation == node->force_generation;
    fixed_draft = node->fixed_draft;
    pthread_mutex_unlock(&node->lock);
    if (taken) return;
    planner = planner_options_of(&wish);
    taken = replay_set_policy(node->replay, &planner, wish.estimator, wish.refit_interval_steps);
    remodel = wish.mode != force.mode || wish.fixed_draft != force.fixed_draft ||
              wish.max_draft != force.max_draft;
    if (taken && remodel) fixed_draft = replay_set_mode(node->replay, wish.mode);
    pthread_mutex_lock(&node->lock);
    if (taken)
        node->force = wish;
    else
        node->wish = node->force;
    node->force_generation = generation;
    node->fixed_draft = fixed_draft;
    pthread_mutex_unlock(&node->lock);
    if (!taken)
        put_event(node, "error", "settings", "out of memory: the change of settings was not taken");
}

static void refitted(void *state, int stratum, int bits)
{
    struct replay_node *node = state;
    struct tt_estimator_report report;
    char text[120];

    if (!strata_report(replay_strata(node->replay), stratum, &report)) return;
    rows_refit(node->store, node->run_id, stratum, bits, &report);
    pthread_mutex_lock(&node->lock);
    node->stratum[stratum].known = true;
    node->stratum[stratum].report = report;
    node->stratum[stratum].rival_known =
        strata_rival(replay_strata(node->replay), stratum, &node->stratum[stratum].rival);
    if (bits & TT_STEP_DRIFT) node->stratum[stratum].last_drift_ms = utc_ms();
    node->shown = stratum;
    pthread_mutex_unlock(&node->lock);
    if (!(bits & TT_STEP_DRIFT)) return;
    snprintf(text, sizeof text, "drift in %s: z %+.1f; the estimator forgot nine tenths",
             strata_name(stratum), report.drift_z);
    put_event(node, "warning", "drift", text);
}

/* Copies for other threads, once a second. */
static void publish(struct replay_node *node, const struct rates_second *second)
{
    json_t *costs;
    struct rates_second window;

    pthread_mutex_lock(&node->lock);
    rates_add(&node->rates, second);
    node->effect_known = rates_toggle_effect(&node->rates, &node->effect);
    rates_window(&node->rates, RATES_WINDOW_S, &window);
    node->uptime_ms = node->virtual_ms;
    for (int i = 0; i < node->concurrency; i++) node->live[i] = replay_stream_at(node->replay, i);
    pthread_mutex_unlock(&node->lock);
    costs = report_cost(node->cost, replay_planner(node->replay), node->depth, &window);
    pthread_mutex_lock(&node->lock);
    json_decref(node->costs);
    node->costs = costs;
    pthread_mutex_unlock(&node->lock);
}

static void sample(struct replay_node *node, int seconds)
{
    struct tally *tally = replay_tally(node->replay);
    struct rates_second second = {.time_ms = utc_ms(),
                                  .seconds = (node->virtual_ms - node->sampled_ms) / 1000,
                                  .running = node->concurrency};
    struct tally_counts now;

    tally_copy(tally, &now);
    second.delta = now;
    tally_accumulate(&second.delta, &node->last, -1);
    node->last = now;
    node->sampled_ms = node->virtual_ms;
    pthread_mutex_lock(&node->lock);
    second.mode = node->force.mode;
    second.fixed_draft = node->fixed_draft;
    pthread_mutex_unlock(&node->lock);
    publish(node, &second);
    rows_sample(node->store, node->run_id, &second, 0, node->depth);
    if (seconds % CALIBRATION_S == 0)
        rows_calibration(node->store, node->run_id, tally, node->depth);
}

/* Wait until the wall clock shows `until_us`, or the end comes. */
static bool wait_until(struct replay_node *node, int64_t until_us)
{
    struct timespec until = {.tv_sec = until_us / 1000000, .tv_nsec = until_us % 1000000 * 1000};
    bool stop;

    pthread_mutex_lock(&node->lock);
    while (!node->stop && pthread_cond_timedwait(&node->changed, &node->lock, &until) != ETIMEDOUT)
        continue;
    stop = node->stop;
    pthread_mutex_unlock(&node->lock);
    return !stop;
}

static bool keeps_on(struct replay_node *node, bool *draining)
{
    bool stop;

    pthread_mutex_lock(&node->lock);
    stop = node->stop;
    *draining = node->draining;
    pthread_mutex_unlock(&node->lock);
    return !stop;
}

static void *run(void *state)
{
    struct replay_node *node = state;
    int64_t begun_us = ticks_us(), due_us = begun_us, sampled_us = begun_us;
    int seconds = 0;
    bool draining;

    while (keeps_on(node, &draining)) {
        int64_t now_us = ticks_us();

        take_wishes(node);
        if (now_us - sampled_us >= SAMPLE_US) {
            sampled_us += SAMPLE_US;
            sample(node, ++seconds);
        }
        if (draining) { /* nothing runs any more */
            if (!wait_until(node, now_us + SAMPLE_US)) break;
            continue;
        }
        if (now_us - due_us > LATE_US) due_us = now_us;
        if (due_us > now_us && !wait_until(node, due_us)) break;
        due_us += (int64_t)(replay_step(node->replay) * 1000 / node->speed);
        node->virtual_ms = replay_tally(node->replay)->counts.step_ms;
        rows_regime(node->store, node->run_id, replay_planner(node->replay), &node->regime_log);
    }
    return NULL;
}

/* ---- calls of other threads */

static void fill_names(const struct replay_node *node, struct snapshot *out)
{
    snprintf(out->node.id, sizeof out->node.id, "%s", node->node.id);
    snprintf(out->node.kind, sizeof out->node.kind, "replay");
    snprintf(out->node.engine, sizeof out->node.engine, "replay");
    snprintf(out->node.version, sizeof out->node.version, "%s", PACKAGE_VERSION);
    snprintf(out->node.model, sizeof out->node.model, "REPLAY of %.80s", node->trace);
    snprintf(out->node.draft, sizeof out->node.draft, "costs of %.80s", node->table);
    out->node.tier = 2;
    snprintf(out->node.capabilities, sizeof out->node.capabilities, "mode,settings");
}

static void snapshot(struct node *base, struct snapshot *out)
{
    struct replay_node *node = self(base);
    struct tally_counts counts;
    struct rates_second sum;

    snapshot_clear(out);
    report_store(node->store, out);
    fill_names(node, out);
    out->time_ms = out->read_ms = utc_ms();
    tally_copy(replay_tally(node->replay), &counts);
    pthread_mutex_lock(&node->lock);
    out->mode = node->force.mode;
    out->switching = node->generation != node->force_generation;
    out->fixed_draft = node->fixed_draft;
    out->max_draft = node->force.max_draft;
    out->generation = node->generation;
    out->uptime_s = node->uptime_ms / 1000;
    out->running = node->draining ? 0 : node->concurrency;
    out->queued = 0;
    report_window(&node->rates, out, &sum);
    report_estimator(node->stratum, node->shown, node->force.estimator, node->depth, &sum, out);
    report_effect(node->effect_known ? &node->effect : NULL, out);
    snprintf(out->health.state, sizeof out->health.state, node->draining ? "draining" : "ok");
    snprintf(out->health.reason, sizeof out->health.reason,
             "a replay of recorded text at %g times its pace: nothing is generated", node->speed);
    pthread_mutex_unlock(&node->lock);
    report_totals(&counts, out);
}

/* The lock is held. */
static enum node_status wish(struct replay_node *node, const struct policy *policy, int64_t expect,
                             int64_t *generation, char **cause)
{
    if (policy_conflict(expect, node->generation, cause)) {
        *generation = node->generation;
        return NODE_CONFLICT;
    }
    node->wish = *policy;
    *generation = ++node->generation;
    return NODE_OK;
}

static enum node_status set_mode(struct node *base, enum mode mode, int64_t expect,
                                 const char *reason, const struct node_actor *actor,
                                 int64_t *generation, char **cause)
{
    struct replay_node *node = self(base);
    enum node_status status;
    struct policy policy;
    char before[32];

    pthread_mutex_lock(&node->lock);
    policy = node->wish;
    mode_describe(policy.mode, node->fixed_draft, before, sizeof before);
    policy.mode = mode;
    status = wish(node, &policy, expect, generation, cause);
    pthread_mutex_unlock(&node->lock);
    if (status == NODE_OK)
        rows_decision(node->store, node->run_id, actor, "mode", before, mode_name(mode), reason,
                      NULL);
    return status;
}

static enum node_status set(struct node *base, const json_t *settings, int64_t expect,
                            const char *reason, const struct node_actor *actor, int64_t *generation,
                            char **cause)
{
    struct replay_node *node = self(base);
    enum node_status status = NODE_INVALID;
    struct policy before, after;

    pthread_mutex_lock(&node->lock);
    before = after = node->wish;
    *generation = node->generation;
    if (policy_change(&after, settings, node->depth, true, cause) == 0) {
        if (after.draft == before.draft)
            status = wish(node, &after, expect, generation, cause);
        else
            cause_set(cause, "draft: a replay has the drafts that were recorded");
    }
    pthread_mutex_unlock(&node->lock);
    if (status == NODE_OK) rows_settings(node->store, node->run_id, actor, &before, &after, reason);
    return status;
}

static json_t *settings(struct node *base)
{
    struct replay_node *node = self(base);
    json_t *object;

    pthread_mutex_lock(&node->lock);
    object = policy_to_json(&node->wish);
    if (object) json_object_set_new(object, "generation", json_integer(node->generation));
    pthread_mutex_unlock(&node->lock);
    return object;
}

/* A stream is shown as the request whose text it walks through. */
static json_t *requests(struct node *base)
{
    struct replay_node *node = self(base);
    json_t *rows = json_array();

    pthread_mutex_lock(&node->lock);
    for (int i = 0; i < node->concurrency && !node->draining; i++) {
        const struct replay_stream *stream = &node->live[i];
        const struct trace_text *text = &node->traces->text[stream->text];

        json_array_append_new(
            rows, json_pack("{s:i s:s s:n s:n s:i s:n s:s s:s s:f s:b}", "id", i + 1, "phase",
                            "decode", "age_s", "prompt_tokens", "emitted", stream->index,
                            "tokens_per_step", "drafter", drafter_name(DRAFTER_MODEL), "rule",
                            text->rule == TT_GREEDY  ? "greedy"
                            : text->rule == TT_RATIO ? "ratio"
                                                     : "point mass",
                            "temperature", (double)text->temperature, "seeded", 0));
    }
    pthread_mutex_unlock(&node->lock);
    return rows;
}

static json_t *cost(struct node *base)
{
    struct replay_node *node = self(base);
    json_t *object;

    pthread_mutex_lock(&node->lock);
    object = node->costs ? json_deep_copy(node->costs) : json_object();
    pthread_mutex_unlock(&node->lock);
    return object;
}

static json_t *calibration(struct node *base)
{
    struct replay_node *node = self(base);
    json_t *object;

    pthread_mutex_lock(&node->lock);
    object = report_calibration(node->stratum);
    pthread_mutex_unlock(&node->lock);
    return object;
}

static enum node_status submit(struct node *base, struct request *request, char **cause)
{
    (void)base, (void)request;
    cause_set(cause, "this node replays recorded text; it generates nothing");
    return NODE_UNABLE;
}

static const struct lm *text(struct node *base)
{
    (void)base;
    return NULL;
}

static void drain(struct node *base)
{
    struct replay_node *node = self(base);

    pthread_mutex_lock(&node->lock);
    node->draining = true;
    pthread_mutex_unlock(&node->lock);
}

static bool idle(struct node *base)
{
    (void)base; /* nobody waits for a replay */
    return true;
}

static void close_node(struct node *base)
{
    struct replay_node *node = self(base);

    if (!node) return;
    pthread_mutex_lock(&node->lock);
    node->stop = true;
    pthread_cond_broadcast(&node->changed);
    pthread_mutex_unlock(&node->lock);
    if (node->started) pthread_join(node->thread, NULL);
    if (node->store && node->run_id > 0) store_end_run(node->store, node->run_id);
    replay_free(node->replay);
    cost_free(node->cost);
    trace_set_free(node->traces);
    json_decref(node->costs);
    pthread_mutex_destroy(&node->lock);
    pthread_cond_destroy(&node->changed);
    free(node->live);
    free(node->trace);
    free(node->table);
    free(node);
}

static const struct node_ops replay_ops = {
    .snapshot = snapshot,
    .set_mode = set_mode,
    .set = set,
    .settings = settings,
    .requests = requests,
    .cost = cost,
    .calibration = calibration,
    .submit = submit,
    .text = text,
    .drain = drain,
    .idle = idle,
    .close = close_node,
};

/* ---- opening */

static char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return strdup(slash ? slash + 1 : path);
}

static bool read_inputs(struct replay_node *node, const struct node_replay_options *options,
                        char **warning, char **cause)
{
    node->traces = trace_set_new();
    if (!node->traces) return false;
    if (!trace_read(node->traces, options->trace, -1, warning, cause)) return false;
    node->cost = cost_read_table(options->cost, cause);
    node->depth = node->traces->depth;
    return node->cost != NULL;
}

static bool make_replay(struct replay_node *node)
{
    struct replay_options options = {
        .traces = node->traces,
        .cost = node->cost,
        .concurrency = node->concurrency,
        .policy = REPLAY_PLANNER,
        .mode = node->wish.mode,
        .planner = planner_options_of(&node->wish),
        .estimator = node->wish.estimator,
        .refit_interval_steps = node->wish.refit_interval_steps,
        .refitted = refitted,
        .state = node,
    };

    node->live = calloc((size_t)node->concurrency, sizeof *node->live);
    node->replay = node->live ? replay_new(&options) : NULL;
    if (!node->replay) return false;
    node->fixed_draft = planner_fixed_draft(replay_planner(node->replay));
    for (int i = 0; i < node->concurrency; i++) node->live[i] = replay_stream_at(node->replay, i);
    return true;
}

static void start_run(struct replay_node *node)
{
    json_t *object = policy_to_json(&node->wish);
    char *settings_json = object ? json_dumps(object, JSON_COMPACT) : NULL;
    char mode[32];
    struct store_run row = {
        .node = node->node.id,
        .kind = "replay",
        .engine = "replay",
        .version = PACKAGE_VERSION,
        .model = node->trace,
        .draft = node->table,
        .hardware = "virtual clock",
        .settings_json = settings_json,
        .max_draft = node->depth,
    };

    node->run_id = node->store ? store_begin_run(node->store, &row) : 0;
    free(settings_json);
    json_decref(object);
    mode_describe(node->wish.mode, node->fixed_draft, mode, sizeof mode);
    rows_decision(node->store, node->run_id, &daemon_actor, "mode", "start",
                  mode_name(node->wish.mode), mode, NULL);
    rows_costs(node->store, node->run_id, node->cost);
}

static struct replay_node *make_node(const struct node_replay_options *options)
{
    struct replay_node *node = calloc(1, sizeof *node);
    pthread_condattr_t attributes;

    if (!node) return NULL;
    node->node.ops = &replay_ops;
    node->node.capabilities = NODE_CAN_SET_MODE | NODE_CAN_SET;
    snprintf(node->node.id, sizeof node->node.id, "%s", options->id);
    node->store = options->store;
    node->speed = options->speed;
    node->concurrency = options->concurrency;
    node->wish = options->policy;
    node->wish.draft = DRAFT_MODEL;
    node->generation = node->force_generation = 1;
    node->fixed_draft = node->shown = -1;
    pthread_mutex_init(&node->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&node->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    node->trace = base_name(options->trace);
    node->table = base_name(options->cost);
    if (node->trace && node->table) return node;
    close_node(&node->node);
    return NULL;
}

struct node *node_replay_open(const struct node_replay_options *options, char **warning,
                              char **cause)
{
    struct replay_node *node = make_node(options);

    *warning = NULL;
    if (!node || !read_inputs(node, options, warning, cause)) goto fail;
    if (node->wish.max_draft > node->depth) node->wish.max_draft = node->depth;
    if (node->wish.fixed_draft > node->wish.max_draft)
        node->wish.fixed_draft = node->wish.max_draft;
    node->force = node->wish;
    if (!make_replay(node)) goto fail;
    start_run(node);
    node->started = pthread_create(&node->thread, NULL, run, node) == 0;
    if (node->started) return &node->node;
fail:
    if (cause && !*cause) cause_set(cause, "out of memory");
    if (node) close_node(&node->node);
    return NULL;
}
