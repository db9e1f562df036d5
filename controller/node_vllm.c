/* node_vllm.c - see node_vllm.h: the node's calls, answered from what was read last. Nothing here
 * waits for the engine but a change of mode, which is given some seconds.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/cause.h"
#include "controller/node_report.h"
#include "controller/node_rows.h"
#include "controller/node_vllm_state.h"
#include "controller/ratio.h"
#include "controller/ticks.h"
#include "controller/vllm_fit.h"

#define SET_MODE_MS 3000 /* what a change of mode waits for its read-back; then it is pending */
#define RECENT_S 60      /* a restart is mentioned for so long */

static struct vllm_node *self(struct node *node)
{
    return (struct vllm_node *)node;
}

/* ------------------------------------------------------------------------------------- snapshot */

static double age_s(const struct vllm_node *node)
{
    return node->read_us > 0 ? (double)(ticks_us() - node->read_us) / 1e6 : INFINITY;
}

static bool is_stale(const struct vllm_node *node)
{
    return vllm_node_is_stale(node, age_s(node));
}

/* Why it cannot be steered. */
static void say_unable(const struct vllm_node *node, const struct vllm_rpc_view *view, char *out,
                       size_t size)
{
    switch (engine_watch_page(node->watch)->engine) {
    case ENGINE_UNKNOWN:
        snprintf(out, size, "read-only: the engine is not known yet");
        break;
    case ENGINE_VLLM:
        snprintf(out, size, "read-only: %s",
                 view->state == VLLM_RPC_PROBING
                     ? "not known yet whether it was started with the trimtab worker extension"
                     : view->reason);
        break;
    case ENGINE_TRIMTAB:
        snprintf(out, size, "read-only: steer it through its own control API: trimtab %s",
                 node->remote.url);
        break;
    default:
        snprintf(out, size, "read-only: %s has no switch that trimtab knows",
                 engine_name(engine_watch_page(node->watch)->engine));
        break;
    }
}

static void fill_names(struct vllm_node *node, struct snapshot *out)
{
    const struct engine_page *page = engine_watch_page(node->watch);
    struct vllm_rpc_view view = {.state = VLLM_RPC_PROBING};

    if (node->rpc) vllm_rpc_look(node->rpc, &view);
    snprintf(out->node.id, sizeof out->node.id, "%s", node->node.id);
    snprintf(out->node.kind, sizeof out->node.kind, "vllm");
    if (page->engine != ENGINE_UNKNOWN)
        snprintf(out->node.engine, sizeof out->node.engine, "%s", engine_name(page->engine));
    snprintf(out->node.version, sizeof out->node.version, "%s", node->version);
    snprintf(out->node.model, sizeof out->node.model, "%s", node->model);
    out->node.engines = page->rows > 0 ? page->rows : -1;
    if (engine_counts_at_end(page->engine))
        snprintf(out->node.rates, sizeof out->node.rates, "per request end");
    if (view.state == VLLM_RPC_READY) {
        out->node.tier = 1;
        snprintf(out->node.capabilities, sizeof out->node.capabilities, "mode,settings");
    } else {
        say_unable(node, &view, out->node.unable, sizeof out->node.unable);
    }
}

static void fill_totals(const struct engine_page *page, struct snapshot *out)
{
    out->steps = vllm_node_count(engine_total(page, FIGURE_STEPS));
    out->drafts_total = vllm_node_count(engine_total(page, FIGURE_DRAFTS));
    out->drafted_total = vllm_node_count(engine_total(page, FIGURE_DRAFTED));
    out->admitted_total = vllm_node_count(engine_total(page, FIGURE_ADMITTED));
    out->verified_total = vllm_node_count(engine_total(page, FIGURE_VERIFIED));
    out->accepted_total = vllm_node_count(engine_total(page, FIGURE_ACCEPTED));
    out->emitted_total = vllm_node_count(engine_total(page, FIGURE_EMITTED));
    out->prompt_tokens_total = vllm_node_count(engine_total(page, FIGURE_PROMPT));
    out->requests_total = vllm_node_count(engine_total(page, FIGURE_REQUESTS));
    out->max_draft = engine_positions(page) > 0 ? engine_positions(page) : -1;
}

/* What is true at the moment of the last page. */
static void fill_present(const struct vllm_node *node, struct snapshot *out)
{
    const struct engine_page *page = engine_watch_page(node->watch);

    out->running = (int)vllm_node_count(engine_total(page, FIGURE_RUNNING));
    out->queued = (int)vllm_node_count(engine_total(page, FIGURE_WAITING));
    out->kv_ratio = engine_total(page, FIGURE_KV);
    out->first_token_p50_ms = engine_watch_quantile(node->watch, FIGURE_FIRST_TOKEN, 0.5) * 1e3;
    out->first_token_p95_ms = engine_watch_quantile(node->watch, FIGURE_FIRST_TOKEN, 0.95) * 1e3;
    out->inter_token_p50_ms = engine_watch_quantile(node->watch, FIGURE_INTER_TOKEN, 0.5) * 1e3;
    out->inter_token_p95_ms = engine_watch_quantile(node->watch, FIGURE_INTER_TOKEN, 0.95) * 1e3;
}

static void fill_rates(const struct vllm_node *node, struct snapshot *out)
{
    const struct engine_page *page = engine_watch_page(node->watch);
    struct engine_second sum;
    const double *delta = sum.delta;
    double steps;

    engine_watch_window(node->watch, vllm_node_window_s(node), &sum);
    if (!(sum.seconds > 0)) return;
    steps = delta[FIGURE_STEPS];
    out->window_ms = sum.seconds * 1000;
    out->throughput_tps = delta[FIGURE_EMITTED] / sum.seconds;
    out->tokens_per_step = ratio(delta[FIGURE_EMITTED], steps);
    out->drafted_per_step = ratio(delta[FIGURE_DRAFTED], steps);
    out->verified_per_step = ratio(delta[FIGURE_VERIFIED], steps);
    out->budget = ratio(delta[FIGURE_ADMITTED], steps);
    out->accepted_verified_ratio = ratio(delta[FIGURE_ACCEPTED], delta[FIGURE_VERIFIED]);
    out->accepted_drafted_ratio = ratio(delta[FIGURE_ACCEPTED], delta[FIGURE_DRAFTED]);
    out->mean_length = 1 + ratio(delta[FIGURE_ACCEPTED], delta[FIGURE_DRAFTS]);
    if (isnan(out->mean_length)) out->mean_length = engine_total(page, FIGURE_LENGTH);
}

/* Acceptance needs more drafts than a rate needs seconds. */
static void fill_positions(const struct vllm_node *node, struct snapshot *out)
{
    const struct engine_page *page = engine_watch_page(node->watch);
    struct engine_second sum;

    engine_watch_window(node->watch, NODE_VLLM_LONG_WINDOW_S, &sum);
    out->estimator.positions_count = engine_positions(page);
    for (int k = 0; k < out->estimator.positions_count; k++) {
        struct snapshot_position *position = &out->estimator.position[k];
        double before =
            k == 0 ? engine_total(page, FIGURE_DRAFTS) : engine_accepted_at(page, k - 1);

        position->accepted_total = vllm_node_count(engine_accepted_at(page, k));
        position->n = vllm_node_count(before);
        if (!(sum.seconds > 0)) continue;
        position->reached = vllm_node_count(engine_second_reached(&sum, k));
        position->accepted_ratio = ratio(sum.accepted_at[k], engine_second_reached(&sum, k));
    }
}

static void say(struct snapshot *out, const char *state, const char *reason)
{
    snprintf(out->health.state, sizeof out->health.state, "%s", state);
    snprintf(out->health.reason, sizeof out->health.reason, "%s", reason);
}

static void fill_failure(const struct vllm_node *node, struct snapshot *out)
{
    char text[sizeof out->health.reason], last[40] = "";

    if (node->read_us > 0) snprintf(last, sizeof last, "; last read %.4g s ago", age_s(node));
    snprintf(text, sizeof text, "%.90s%s; %d tries, the next within %d s", node->why, last,
             node->failures, (node->wait_ms + 999) / 1000);
    say(out, "failed", text);
}

/* What is no trouble but should be known. */
static const char *remark(const struct vllm_node *node)
{
    struct vllm_rpc_view view = {.open = false};

    if (node->rpc) vllm_rpc_look(node->rpc, &view);
    if (view.open) return "its dev mode can be commanded by whoever reaches it: use a tunnel";
    if (node->silent) return "no series of speculation: it is off there, or hidden";
    return node->refused;
}

static void fill_health(const struct vllm_node *node, struct snapshot *out)
{
    char text[sizeof out->health.reason];
    int64_t since_s = (utc_ms() - node->restarted_ms) / 1000;

    if (node->retired) {
        say(out, "failed", "taken out of the configuration");
    } else if (node->failures > 0) {
        fill_failure(node, out);
    } else if (node->read_us == 0) {
        say(out, "starting", "not read yet");
    } else if (is_stale(node)) {
        snprintf(text, sizeof text, "no answer for %.0f s", age_s(node));
        say(out, "degraded", text);
    } else if (node->ill) {
        say(out, "degraded", "/health says it is not well");
    } else if (engine_watch_trouble(node->watch)[0]) {
        say(out, "degraded", engine_watch_trouble(node->watch));
    } else if (engine_watch_slowdown(node->watch)[0]) {
        say(out, "degraded", engine_watch_slowdown(node->watch));
    } else if (!out->store.ok) {
        snprintf(text, sizeof text, "store: not writing (%.150s)", out->store.reason);
        say(out, "degraded", text);
    } else if (node->restarted_ms > 0 && since_s < RECENT_S) {
        snprintf(text, sizeof text, "restarted %lld s ago: its counters began anew",
                 (long long)since_s);
        say(out, "ok", text);
    } else {
        say(out, "ok", remark(node));
    }
}

static void snapshot(struct node *base, struct snapshot *out)
{
    struct vllm_node *node = self(base);

    snapshot_clear(out);
    out->time_ms = utc_ms();
    report_store(node->store, out);
    pthread_mutex_lock(&node->lock);
    fill_names(node, out);
    out->generation = node->generation;
    out->restarts = node->read_us > 0 ? node->restarts : -1;
    out->restarted_ms = node->restarted_ms;
    if (node->read_us > 0) {
        const struct engine_page *page = engine_watch_page(node->watch);
        double began_s = isnan(page->process_start) ? (page->rows > 0 ? page->row[0].created : NAN)
                                                    : page->process_start;

        out->read_ms = node->read_ms;
        out->uptime_s = (double)out->time_ms / 1000 - began_s;
        fill_totals(page, out);
    }
    if (!is_stale(node) && node->failures == 0) {
        fill_present(node, out);
        fill_rates(node, out);
        fill_positions(node, out);
        if (node->rpc) vllm_rpc_fill(node->rpc, out);
    }
    report_effect(node->effect_known ? &node->effect : NULL, out);
    fill_health(node, out);
    pthread_mutex_unlock(&node->lock);
}

/* --------------------------------------------------------------------------------------- changes
 */

/* The rpc and what is in force, when the change may be made. */
static enum node_status begin_change(struct vllm_node *node, int64_t expect, int64_t *generation,
                                     struct vllm_rpc **rpc, struct vllm_rpc_view *before,
                                     char **cause)
{
    char unable[sizeof((struct snapshot *)0)->node.unable];
    enum node_status status = NODE_OK;

    *before = (struct vllm_rpc_view){.state = VLLM_RPC_PROBING};
    pthread_mutex_lock(&node->lock);
    *generation = node->generation;
    *rpc = node->rpc;
    if (node->rpc) vllm_rpc_look(node->rpc, before);
    if (before->state != VLLM_RPC_READY) {
        say_unable(node, before, unable, sizeof unable);
        cause_set(cause, "%s", unable);
        status = NODE_UNABLE;
    } else if (expect >= 0 && expect != node->generation) {
        cause_set(cause, "the node was changed meanwhile: generation %lld",
                  (long long)node->generation);
        status = NODE_CONFLICT;
    }
    pthread_mutex_unlock(&node->lock);
    return status;
}

static int64_t end_change(struct vllm_node *node)
{
    int64_t generation;

    pthread_mutex_lock(&node->lock);
    generation = ++node->generation;
    pthread_mutex_unlock(&node->lock);
    return generation;
}

static enum node_status set_mode(struct node *base, enum mode mode, int64_t expect,
                                 const char *reason, const struct node_actor *actor,
                                 int64_t *generation, char **cause)
{
    struct vllm_node *node = self(base);
    struct vllm_rpc_view before;
    struct vllm_rpc *rpc;
    enum node_status status = begin_change(node, expect, generation, &rpc, &before, cause);

    if (status != NODE_OK) return status;
    if (vllm_rpc_set_mode(rpc, mode, SET_MODE_MS, cause) == VLLM_RPC_REFUSED) return NODE_UNABLE;
    *generation = end_change(node);
    rows_decision(node->store, atomic_load(&node->run_id), actor, "mode", mode_name(before.mode),
                  mode_name(mode), reason, NULL);
    return NODE_OK;
}

static const char *estimator_word(bool trimtab)
{
    return trimtab ? "trimtab" : "engine";
}

/* The one setting is `estimator`: whose fit is in force, the engine's or trimtab's. */
static int read_settings(const json_t *settings, bool *trimtab, char **cause)
{
    const char *word = json_string_value(json_object_get(settings, "estimator"));

    if (json_object_size(settings) != 1 || !word) {
        cause_set(cause, "the one setting of this node is estimator: engine or trimtab");
        return -1;
    }
    *trimtab = strcmp(word, estimator_word(true)) == 0;
    if (*trimtab || strcmp(word, estimator_word(false)) == 0) return 0;
    cause_set(cause, "estimator is engine or trimtab, not \"%.40s\"", word);
    return -1;
}

static enum node_status set(struct node *base, const json_t *settings, int64_t expect,
                            const char *reason, const struct node_actor *actor, int64_t *generation,
                            char **cause)
{
    struct vllm_node *node = self(base);
    struct vllm_rpc_view before;
    struct vllm_rpc *rpc;
    bool trimtab;
    enum node_status status = begin_change(node, expect, generation, &rpc, &before, cause);

    if (status != NODE_OK) return status;
    if (read_settings(settings, &trimtab, cause) != 0) return NODE_INVALID;
    if (vllm_rpc_set_estimator(rpc, trimtab, SET_MODE_MS, cause) == VLLM_RPC_REFUSED)
        return NODE_UNABLE;
    *generation = end_change(node);
    rows_decision(node->store, atomic_load(&node->run_id), actor, "estimator",
                  estimator_word(before.trimtab_fits), estimator_word(trimtab), reason, NULL);
    return NODE_OK;
}

/* What was asked for and is not in force yet, and what it waits for. */
static void add_pending(const struct vllm_rpc_view *view, json_t *settings)
{
    char why[200];

    if (view->trimtab_wanted == view->trimtab_fits) return;
    if (view->commanding)
        snprintf(why, sizeof why, "the engine has not answered yet");
    else if (view->trimtab_wanted)
        snprintf(why, sizeof why,
                 "trimtab's fit takes over after %d refits and %d labels; it has seen %lld and "
                 "%lld",
                 VLLM_FIT_READY_REFITS, VLLM_FIT_READY_LABELS, (long long)view->fit_refits,
                 (long long)view->fit_labels);
    else
        return; /* refused, or put back by the engine itself: nothing is under way */
    json_object_set_new(settings, "pending",
                        json_pack("{s:s}", "estimator", estimator_word(view->trimtab_wanted)));
    json_object_set_new(settings, "pending_reason", json_string(why));
}

/* NULL where nothing can be set. */
static json_t *settings(struct node *base)
{
    struct vllm_node *node = self(base);
    struct vllm_rpc_view view = {.state = VLLM_RPC_PROBING};
    int64_t generation;
    json_t *object;

    pthread_mutex_lock(&node->lock);
    generation = node->generation;
    if (node->rpc) vllm_rpc_look(node->rpc, &view);
    pthread_mutex_unlock(&node->lock);
    if (view.state != VLLM_RPC_READY) return NULL;
    object = json_pack("{s:s, s:I}", "estimator", estimator_word(view.trimtab_fits), "generation",
                       (json_int_t)generation);
    if (object) add_pending(&view, object);
    return object;
}

/* ------------------------------------------------------------------------------------- the rest */

static const struct lm *text(struct node *node)
{
    (void)node;
    return NULL;
}

static void drain(struct node *node)
{
    (void)node; /* it takes no requests */
}

static bool idle(struct node *node)
{
    (void)node;
    return true;
}

void node_vllm_retire(struct node *base)
{
    struct vllm_node *node = self(base);

    scraper_remove(node->scraper, node->target);
    node->target = NULL;
    pthread_mutex_lock(&node->lock);
    node->retired = true;
    vllm_node_end_run(node);
    pthread_mutex_unlock(&node->lock);
    atomic_store(&node->node.hidden, true);
}

static void close_node(struct node *base)
{
    struct vllm_node *node = self(base);

    if (!node) return;
    if (node->target) scraper_remove(node->scraper, node->target);
    vllm_rpc_free(node->rpc);
    vllm_node_end_run(node);
    pthread_mutex_destroy(&node->lock);
    engine_watch_free(node->watch);
    free(node->rates);
    remote_clear(&node->remote);
    free(node);
}

static const struct node_ops vllm_ops = {
    .snapshot = snapshot,
    .set_mode = set_mode,
    .set = set,
    .settings = settings,
    .text = text,
    .drain = drain,
    .idle = idle,
    .close = close_node,
};

struct node *node_vllm_open(const struct node_vllm_options *options, char **cause)
{
    struct vllm_node *node = calloc(1, sizeof *node);

    if (!node) {
        cause_set(cause, "out of memory");
        return NULL;
    }
    pthread_mutex_init(&node->lock, NULL);
    node->node.ops = &vllm_ops;
    node->node.capabilities = NODE_CAN_SET_MODE | NODE_CAN_SET; /* with the extension */
    snprintf(node->node.id, sizeof node->node.id, "%s", options->id);
    node->interval_ms = options->interval_ms > 0 ? options->interval_ms : NODE_VLLM_INTERVAL_MS;
    node->admitted = -1;
    node->store = options->store;
    node->scraper = options->scraper;
    node->watch = engine_watch_new();
    if (!node->watch || remote_copy(&node->remote, options->remote) != 0) {
        cause_set(cause, "out of memory");
    } else {
        node->target = scraper_add(node->scraper, &node->remote, vllm_node_read, node, cause);
        if (node->target) return &node->node;
    }
    close_node(&node->node);
    return NULL;
}
