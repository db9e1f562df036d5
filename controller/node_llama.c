/* node_llama.c - see node_llama.h. One thread loads, profiles and then runs the loop; one samples
 * it every second. Calls from other threads leave a wish or read a copy; the loop takes wishes up
 * between two steps, so nothing that runs is dropped by a change of mode.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "controller/cause.h"
#include "controller/node_llama_open.h"
#include "controller/node_llama_state.h"
#include "controller/node_rows.h"
#include "controller/record.h"
#include "controller/request_node.h"
#include "controller/ticks.h"

#define IDLE_WAIT_MS 500
#define KEEP_LEARNED_S 60

static struct llama_node *self(struct node *node)
{
    return (struct llama_node *)node;
}

void llama_node_event(struct llama_node *node, const char *severity, const char *kind,
                      const char *text)
{
    rows_event(node->options.store, node->run_id, severity, kind, text, NULL);
}

static void put_decision(struct llama_node *node, const struct node_actor *actor, const char *what,
                         const char *before, const char *after, const char *reason,
                         const char *numbers)
{
    rows_decision(node->options.store, node->run_id, actor, what, before, after, reason, numbers);
}

/* ------------------------------------------------------------------------------------------ the
 * loop's thread */

static const struct node_actor daemon_actor = {"trimtabd", "daemon"};

static struct planner_options planner_options_of(const struct llama_node *node,
                                                 const struct policy *policy)
{
    return (struct planner_options){
        .max_draft = policy->max_draft,
        .max_requests = node->options.parallel,
        .fixed_draft = policy->fixed_draft,
        .min_gain = policy->min_gain,
        .exploration = policy->exploration,
        .key = tt_stream_key(0x7472696d746162u, 0, 0),
    };
}

/* Bring the wish into force. The mode that results is noted with the K that was chosen for it. */
static void take_wishes(struct llama_node *node)
{
    struct planner_options planner;
    struct policy wish, force;
    int64_t generation;
    int fixed_draft = node->fixed_draft;
    bool same, taken = true;

    pthread_mutex_lock(&node->lock);
    same = node->generation == node->force_generation;
    wish = node->wish;
    force = node->force;
    generation = node->generation;
    pthread_mutex_unlock(&node->lock);
    if (same) return;
    planner = planner_options_of(node, &wish);
    taken = loop_set_policy(node->loop, &planner, wish.draft, wish.estimator,
                            wish.refit_interval_steps);
    if (taken && (wish.mode != force.mode || wish.fixed_draft != force.fixed_draft ||
                  wish.max_draft != force.max_draft))
        fixed_draft = loop_set_mode(node->loop, wish.mode);
    pthread_mutex_lock(&node->lock);
    if (taken) node->force = wish;
    node->force_generation = generation;
    node->fixed_draft = fixed_draft;
    if (!taken) node->wish = node->force;
    pthread_mutex_unlock(&node->lock);
    if (!taken)
        llama_node_event(node, "error", "settings",
                         "out of memory: the change of settings was not taken");
    if (taken && wish.mode == MODE_FIXED && fixed_draft >= 0 && wish.fixed_draft == 0) {
        char text[32];

        snprintf(text, sizeof text, "%d", fixed_draft);
        put_decision(node, &rows_planner_actor, "fixed_draft", "auto", text,
                     "the best uniform K of the cost table", NULL);
    }
}

static void publish_live(struct llama_node *node)
{
    node->live_count = 0;
    for (int i = 0; i < node->loop->parallel; i++) {
        const struct slot *slot = &node->loop->slot[i];

        if (slot->phase == SLOT_FREE) continue;
        node->live[node->live_count++] = (struct live_request){
            .id = request_id(slot->request),
            .prefill = slot->phase == SLOT_PREFILL,
            .seeded = request_params_of(slot->request)->seeded,
            .started_us = slot->queued_us,
            .prompt = slot->prompt_count,
            .emitted = slot_emitted(slot),
            .steps = slot->steps,
            .drafter = slot->drafter,
            .rule = slot->step_rule,
            .temperature = slot->temperature,
        };
    }
}

void llama_node_publish(struct llama_node *node)
{
    pthread_mutex_lock(&node->lock);
    node->running = loop_running(node->loop);
    publish_live(node);
    pthread_mutex_unlock(&node->lock);
}

static void refitted(void *state, int stratum, int bits)
{
    struct llama_node *node = state;
    struct tt_estimator_report report;
    char text[120];

    if (!strata_report(node->loop->strata, stratum, &report)) return;
    rows_refit(node->options.store, node->run_id, stratum, bits, &report);
    pthread_mutex_lock(&node->lock);
    node->stratum[stratum].known = true;
    node->stratum[stratum].report = report;
    node->stratum[stratum].rival_known =
        strata_rival(node->loop->strata, stratum, &node->stratum[stratum].rival);
    if (bits & TT_STEP_DRIFT) node->stratum[stratum].last_drift_ms = utc_ms();
    node->shown = stratum;
    pthread_mutex_unlock(&node->lock);
    if (!(bits & TT_STEP_DRIFT)) return;
    snprintf(text, sizeof text, "drift in %s: z %+.1f; the estimator forgot nine tenths",
             strata_name(stratum), report.drift_z);
    llama_node_event(node, "warning", "drift", text);
}

static void stepped(void *state, const struct slot *slot, int slots)
{
    struct llama_node *node = state;

    llama_node_publish(node);
    rows_regime(node->options.store, node->run_id, node->loop->planner, &node->regime_log);
    if (node->record_file) record_step(node->record_file, &node->loop->step, slot, slots);
}

/* Sleep until a request, a wish, a visit or the end comes. */
static void wait_for_work(struct llama_node *node)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += IDLE_WAIT_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&node->lock);
    while (!node->stop && !node->visit && node->generation == node->force_generation &&
           queue_length(node->loop->queue) == 0)
        if (pthread_cond_timedwait(&node->changed, &node->lock, &until) == ETIMEDOUT) break;
    pthread_mutex_unlock(&node->lock);
}

static bool take_visit(struct llama_node *node)
{
    void (*visit)(struct llama_node *, void *);
    bool stop;

    pthread_mutex_lock(&node->lock);
    visit = node->visit;
    stop = node->stop;
    pthread_mutex_unlock(&node->lock);
    if (visit) {
        visit(node, node->visit_state);
        pthread_mutex_lock(&node->lock);
        node->visit = NULL;
        pthread_cond_broadcast(&node->changed);
        pthread_mutex_unlock(&node->lock);
    }
    return !stop;
}

static void serve(struct llama_node *node)
{
    double costs_ms = ticks_ms();
    int seconds = 0;

    while (take_visit(node)) {
        take_wishes(node);
        if (!loop_step(node->loop)) {
            llama_node_publish(node);
            wait_for_work(node);
        }
        if (ticks_ms() - costs_ms < 1000) continue;
        rows_costs(node->options.store, node->run_id, node->cost);
        costs_ms = ticks_ms();
        if (++seconds % KEEP_LEARNED_S == 0) llama_open_save_learned(node);
    }
}

static uint64_t fresh_key(void *state)
{
    uint64_t key = 0;

    (void)state;
    if (getrandom(&key, sizeof key, 0) != (ssize_t)sizeof key)
        key = (uint64_t)ticks_us() * UINT64_C(0x9e3779b97f4a7c15);
    return key;
}

static struct loop *make_loop(struct llama_node *node, char **cause)
{
    struct loop_options options = {
        .target = node->pair.target,
        .draft = node->pair.draft,
        .cost = node->cost,
        .parallel = node->options.parallel,
        .max_draft = node->options.max_draft,
        .prefill_chunk = node->options.prefill_chunk,
        .choice = node->wish.draft,
        .planner = planner_options_of(node, &node->wish),
        .estimator = node->wish.estimator,
        .refit_interval_steps = node->wish.refit_interval_steps,
        .fresh_key = fresh_key,
        .refitted = refitted,
        .stepped = stepped,
        .state = node,
    };

    return loop_new(&options, node->options.queue, cause);
}

static void start_run(struct llama_node *node)
{
    json_t *settings = policy_to_json(&node->wish);
    char *text = settings ? json_dumps(settings, JSON_COMPACT) : NULL;
    char hardware[128];
    struct store_run run = {
        .node = node->node.id,
        .kind = "llama",
        .engine = "libllama",
        .version = lm_engine_version(),
        .model = lm_name(node->pair.target),
        .model_digest = lm_digest(node->pair.target),
        .draft = node->pair.draft ? lm_name(node->pair.draft) : NULL,
        .draft_digest = node->pair.draft ? lm_digest(node->pair.draft) : NULL,
        .hardware = hardware,
        .settings_json = text,
        .max_draft = node->options.max_draft,
    };

    cost_cache_hardware(hardware, sizeof hardware);
    node->run_id = node->options.store ? store_begin_run(node->options.store, &run) : 0;
    free(text);
    json_decref(settings);
}

static void become(struct llama_node *node, enum node_phase phase, char *failure)
{
    pthread_mutex_lock(&node->lock);
    if (node->phase == NODE_STARTING) node->phase = phase;
    free(node->failure);
    node->failure = failure;
    pthread_cond_broadcast(&node->changed);
    pthread_mutex_unlock(&node->lock);
}

/* Costs that were measured on a busy machine are told of, and by what that shows. */
static void note_unsteady(struct llama_node *node)
{
    char *text = NULL;

    if (!cost_unsteady(node->cost)) return;
    cause_set(&text,
              "the step costs were measured while the machine was busy with something else (%s): "
              "they are corrected as steps run, and measured again at the next start",
              cost_unsteady(node->cost));
    llama_node_event(node, "warning", "cost", text ? text : "the step costs are unsteady");
    free(text);
}

static void *run(void *state)
{
    struct llama_node *node = state;
    char *cause = NULL;
    char before[48];

    if (llama_open_models(node, &cause) != 0 || llama_open_costs(node, &cause) != 0 ||
        !(node->loop = make_loop(node, &cause))) {
        become(node, NODE_FAILED, cause);
        return NULL;
    }
    llama_open_learned(node);
    start_run(node);
    node->fixed_draft = loop_set_mode(node->loop, node->wish.mode);
    mode_describe(node->wish.mode, node->fixed_draft, before, sizeof before);
    put_decision(node, &daemon_actor, "mode", "start", mode_name(node->wish.mode), before, NULL);
    if (cost_flat(node->cost))
        llama_node_event(node, "warning", "cost",
                         "the cost curve never rises: trimming cannot pay on this machine");
    note_unsteady(node);
    if (node->loop->device_note)
        llama_node_event(node, "warning", "device", node->loop->device_note);
    if (!lm_can_roll_back(node->pair.target))
        llama_node_event(node, "warning", "model",
                         "this model's memory cannot be rolled back: it runs without speculation");
    node->sampler_started =
        pthread_create(&node->sampler_thread, NULL, llama_node_sample, node) == 0;
    become(node, NODE_SERVING, NULL);
    serve(node);
    return NULL;
}

/* ------------------------------------------------------------------------------------- calls of
 * other threads */

bool llama_node_visit(struct llama_node *node, void (*visit)(struct llama_node *node, void *state),
                      void *state)
{
    bool served;

    pthread_mutex_lock(&node->lock);
    while (node->phase == NODE_SERVING && !node->stop && node->visit)
        pthread_cond_wait(&node->changed, &node->lock);
    served = node->phase == NODE_SERVING && !node->stop;
    if (served) {
        node->visit = visit;
        node->visit_state = state;
        pthread_cond_broadcast(&node->changed);
        while (node->visit == visit && node->visit_state == state && !node->stop)
            pthread_cond_wait(&node->changed, &node->lock);
        served = !node->stop;
    }
    pthread_mutex_unlock(&node->lock);
    return served;
}

static enum node_status wish(struct llama_node *node, const struct policy *policy, int64_t expect,
                             int64_t *generation, char **cause)
{
    if (policy_conflict(expect, node->generation, cause)) {
        *generation = node->generation;
        return NODE_CONFLICT;
    }
    node->wish = *policy;
    *generation = ++node->generation;
    pthread_cond_broadcast(&node->changed);
    return NODE_OK;
}

static enum node_status set_mode(struct node *base, enum mode mode, int64_t expect,
                                 const char *reason, const struct node_actor *actor,
                                 int64_t *generation, char **cause)
{
    struct llama_node *node = self(base);
    enum node_status status = NODE_UNABLE;
    struct policy policy;
    char before[32];

    pthread_mutex_lock(&node->lock);
    policy = node->wish;
    mode_describe(policy.mode, node->fixed_draft, before, sizeof before);
    policy.mode = mode;
    *generation = node->generation;
    if (node->phase == NODE_FAILED)
        cause_set(cause, "the node failed to start: %s", node->failure);
    else
        status = wish(node, &policy, expect, generation, cause);
    pthread_mutex_unlock(&node->lock);
    if (status == NODE_OK) put_decision(node, actor, "mode", before, mode_name(mode), reason, NULL);
    return status;
}

static enum node_status set(struct node *base, const json_t *settings, int64_t expect,
                            const char *reason, const struct node_actor *actor, int64_t *generation,
                            char **cause)
{
    struct llama_node *node = self(base);
    enum node_status status = NODE_INVALID;
    struct policy before, after;

    pthread_mutex_lock(&node->lock);
    before = after = node->wish;
    *generation = node->generation;
    if (policy_change(&after, settings, node->options.max_draft, node->draft != NULL, cause) == 0)
        status = wish(node, &after, expect, generation, cause);
    pthread_mutex_unlock(&node->lock);
    if (status == NODE_OK)
        rows_settings(node->options.store, node->run_id, actor, &before, &after, reason);
    return status;
}

static json_t *settings(struct node *base)
{
    struct llama_node *node = self(base);
    struct policy policy;
    int64_t generation;
    json_t *object;

    pthread_mutex_lock(&node->lock);
    policy = node->wish;
    generation = node->generation;
    pthread_mutex_unlock(&node->lock);
    object = policy_to_json(&policy);
    if (object) json_object_set_new(object, "generation", json_integer(generation));
    return object;
}

static json_t *request_row(const struct live_request *live, const char *phase, int64_t now_us)
{
    static const char *const rules[] = {"greedy", "point mass", "ratio", "coupled"};
    json_t *per_step =
        live->steps > 0 ? json_real((double)live->emitted / (double)live->steps) : json_null();

    return json_pack("{s:I s:s s:f s:i s:i s:o s:s s:s s:f s:b}", "id", (json_int_t)live->id,
                     "phase", phase, "age_s", (double)(now_us - live->started_us) / 1e6,
                     "prompt_tokens", live->prompt, "emitted", live->emitted, "tokens_per_step",
                     per_step, "drafter", drafter_name(live->drafter), "rule", rules[live->rule],
                     "temperature", (double)live->temperature, "seeded", live->seeded);
}

struct queued_rows {
    json_t *rows;
    int64_t now_us;
};

static void add_queued(void *state, struct request *request, int64_t since_us)
{
    struct queued_rows *queued = state;
    const struct request_params *params = request_params_of(request);
    struct live_request live = {.id = request_id(request),
                                .started_us = since_us,
                                .seeded = params->seeded,
                                .temperature = params->temperature};

    request_prompt_of(request, &live.prompt);
    live.rule = params->temperature <= 0 ? TT_GREEDY : params->seeded ? TT_COUPLED : TT_RATIO;
    json_array_append_new(queued->rows, request_row(&live, "queued", queued->now_us));
}

static json_t *requests(struct node *base)
{
    struct llama_node *node = self(base);
    struct queued_rows queued = {json_array(), ticks_us()};
    bool serving;

    pthread_mutex_lock(&node->lock);
    serving = node->phase == NODE_SERVING;
    for (int i = 0; i < node->live_count; i++)
        json_array_append_new(queued.rows, request_row(&node->live[i],
                                                       node->live[i].prefill ? "prefill" : "decode",
                                                       queued.now_us));
    pthread_mutex_unlock(&node->lock);
    if (serving) queue_visit(node->loop->queue, add_queued, &queued);
    return queued.rows;
}

static void visit_cost(struct llama_node *node, void *state)
{
    json_t **out = state;
    struct rates_second window;

    pthread_mutex_lock(&node->lock);
    rates_window(&node->rates, RATES_WINDOW_S, &window);
    pthread_mutex_unlock(&node->lock);
    *out = report_cost(node->cost, node->loop->planner, node->loop->options.planner.max_draft,
                       &window);
}

static json_t *cost(struct node *base)
{
    json_t *object = NULL;

    return llama_node_visit(self(base), visit_cost, &object) ? object : json_object();
}

static json_t *calibration(struct node *base)
{
    struct llama_node *node = self(base);
    json_t *object;

    pthread_mutex_lock(&node->lock);
    object = report_calibration(node->stratum);
    pthread_mutex_unlock(&node->lock);
    return object;
}

struct cancellation {
    uint64_t id;
    bool found;
};

static void visit_cancel(struct llama_node *node, void *state)
{
    struct cancellation *cancellation = state;

    for (int i = 0; i < node->loop->parallel; i++) {
        const struct slot *slot = &node->loop->slot[i];

        if (slot->phase == SLOT_FREE || request_id(slot->request) != cancellation->id) continue;
        request_ask_stop(slot->request);
        cancellation->found = true;
    }
    if (!cancellation->found)
        cancellation->found = queue_ask_stop(node->loop->queue, cancellation->id);
}

static bool cancel(struct node *base, uint64_t id)
{
    struct cancellation cancellation = {id, false};

    return llama_node_visit(self(base), visit_cancel, &cancellation) && cancellation.found;
}

static enum node_status submit(struct node *base, struct request *request, char **cause)
{
    struct llama_node *node = self(base);
    const struct request_params *params = request_params_of(request);
    int prompt, cells;
    bool open;

    pthread_mutex_lock(&node->lock);
    open = node->phase == NODE_SERVING && !node->draining && !node->stop;
    if (!open)
        cause_set(cause, node->phase == NODE_STARTING ? "the model is still being loaded"
                                                      : "the node is stopping");
    pthread_mutex_unlock(&node->lock);
    if (!open) return NODE_DRAINING;
    request_prompt_of(request, &prompt);
    cells = loop_request_cells(node->loop);
    if (prompt + (params->max_tokens > 0 ? params->max_tokens : 1) > cells) {
        if (params->max_tokens > 0)
            cause_set(cause,
                      "this node's context is %d tokens; the prompt has %d and max_tokens asks for "
                      "%d more",
                      cells, prompt, params->max_tokens);
        else
            cause_set(cause, "this node's context is %d tokens and the prompt has %d", cells,
                      prompt);
        return NODE_TOO_LONG;
    }
    if (!queue_push(node->loop->queue, request)) {
        cause_set(cause, "the queue of %d requests is full", node->options.queue);
        return NODE_FULL;
    }
    pthread_mutex_lock(&node->lock);
    pthread_cond_broadcast(&node->changed);
    pthread_mutex_unlock(&node->lock);
    return NODE_OK;
}

static const struct lm *text(struct node *base)
{
    struct llama_node *node = self(base);
    bool serving;

    pthread_mutex_lock(&node->lock);
    serving = node->phase == NODE_SERVING;
    pthread_mutex_unlock(&node->lock);
    return serving ? node->pair.target : NULL;
}

static void drain(struct node *base)
{
    struct llama_node *node = self(base);

    pthread_mutex_lock(&node->lock);
    node->draining = true;
    pthread_mutex_unlock(&node->lock);
}

static bool idle(struct node *base)
{
    struct llama_node *node = self(base);
    bool empty;

    pthread_mutex_lock(&node->lock);
    empty =
        node->phase != NODE_SERVING || (node->running == 0 && queue_length(node->loop->queue) == 0);
    pthread_mutex_unlock(&node->lock);
    return empty;
}

static void close_node(struct node *base)
{
    struct llama_node *node = self(base);

    if (!node) return;
    pthread_mutex_lock(&node->lock);
    node->stop = true;
    atomic_store(&node->leaving, true);
    pthread_cond_broadcast(&node->changed);
    pthread_mutex_unlock(&node->lock);
    if (node->loop_started) pthread_join(node->loop_thread, NULL);
    if (node->sampler_started) pthread_join(node->sampler_thread, NULL);
    if (node->loop) {
        llama_open_save_costs(node);
        llama_open_save_learned(node);
    }
    if (node->options.store && node->run_id > 0) store_end_run(node->options.store, node->run_id);
    loop_free(node->loop);
    cost_free(node->cost);
    pair_close(&node->pair);
    if (node->record_file) fclose(node->record_file);
    pthread_mutex_destroy(&node->lock);
    pthread_cond_destroy(&node->changed);
    free(node->failure);
    free(node->live);
    free(node->model);
    free(node->draft);
    free(node->device);
    free(node->cache_dir);
    free(node->state_dir);
    free(node->record);
    free(node);
}

static const struct node_ops llama_ops = {
    .snapshot = llama_node_snapshot,
    .set_mode = set_mode,
    .set = set,
    .settings = settings,
    .requests = requests,
    .cost = cost,
    .calibration = calibration,
    .cancel = cancel,
    .submit = submit,
    .text = text,
    .drain = drain,
    .idle = idle,
    .close = close_node,
};

static char *copy_or_null(const char *text)
{
    return text ? strdup(text) : NULL;
}

struct node *node_llama_open(const struct node_llama_options *options, char **cause)
{
    struct llama_node *node = calloc(1, sizeof *node);
    pthread_condattr_t attributes;

    if (!node) {
        cause_set(cause, "out of memory");
        return NULL;
    }
    node->node.ops = &llama_ops;
    node->node.capabilities = NODE_CAN_SET_MODE | NODE_CAN_SET | NODE_CAN_GENERATE;
    snprintf(node->node.id, sizeof node->node.id, "%s", options->id);
    node->options = *options;
    node->model = copy_or_null(options->model);
    node->draft = copy_or_null(options->draft);
    node->device = copy_or_null(options->device);
    node->cache_dir = copy_or_null(options->cache_dir);
    node->state_dir = copy_or_null(options->state_dir);
    node->record = copy_or_null(options->record);
    node->live = calloc((size_t)options->parallel, sizeof *node->live);
    node->wish = node->force = options->policy;
    node->generation = node->force_generation = 1;
    node->fixed_draft = -1;
    node->shown = -1;
    node->started_us = ticks_us();
    pthread_mutex_init(&node->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&node->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (node->model && node->live && pthread_create(&node->loop_thread, NULL, run, node) == 0) {
        node->loop_started = true;
        return &node->node;
    }
    cause_set(cause, "cannot start the node's thread");
    close_node(&node->node);
    return NULL;
}

int node_llama_wait(struct node *base, char **cause)
{
    struct llama_node *node = self(base);
    bool failed;

    pthread_mutex_lock(&node->lock);
    while (node->phase == NODE_STARTING && !node->stop)
        pthread_cond_wait(&node->changed, &node->lock);
    failed = node->phase == NODE_FAILED;
    if (failed) cause_set(cause, "%s", node->failure ? node->failure : "the node failed to start");
    pthread_mutex_unlock(&node->lock);
    return failed ? -1 : 0;
}
