/* vllm_rpc.c - see vllm_rpc.h. One thread makes one call at a time; everything that others ask for
 * is a note to it under `lock`. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "controller/cause.h"
#include "controller/vllm_rpc_internal.h"

enum {
    READ_LEAST_MS = 1000,
    FAREWELL_MS = 2000,
    LABELS_MOST = 1024,
};

/* ------------------------------------------------------------------------------------- the thread
 */

static void read_engine(struct vllm_rpc *rpc)
{
    struct vllm_coefficients graded = rpc->in_force; /* when these labels' drafts were made */
    struct vllm_reply reply;

    if (monotonic_ms() < rpc->read_due_ms) return;
    rpc->read_due_ms = monotonic_ms() + READ_LEAST_MS;
    if (rpc_call(rpc, "trimtab_read", json_pack("[i, i]", (int)rpc->wants_fit, (int)LABELS_MOST),
                 VLLM_RPC_DEADLINE_MS, &reply)) {
        rpc_publish(rpc, &reply);
        if (reply.error[0] || reply.disagree[0]) {
            char why[sizeof rpc->view.reason];

            snprintf(why, sizeof why, "%.380s", reply.error[0] ? reply.error : reply.disagree);
            rpc_restore(rpc);
            rpc_enter(rpc, VLLM_RPC_UNABLE, "%.280s; everything was put back as the engine had it",
                      why);
        } else {
            rpc_work_on_fit(rpc, &reply, graded.positions > 0 ? &graded : &rpc->in_force);
        }
    }
    vllm_reply_clear(&reply);
}

static bool set_mode(struct vllm_rpc *rpc, enum mode mode, char *why, size_t size)
{
    struct vllm_reply reply = {0};
    bool good =
        rpc_command(rpc, "trimtab_set_mode", json_pack("[s]", mode_name(mode)), why, size, &reply);

    if (good && (!reply.mode_known || reply.mode != mode)) {
        snprintf(why, size, "the engine reads back %s",
                 reply.mode_known ? mode_name(reply.mode) : "no mode");
        rpc_restore(rpc);
        good = false;
    }
    vllm_reply_clear(&reply);
    return good;
}

static bool set_estimator(struct vllm_rpc *rpc, bool trimtab, char *why, size_t size)
{
    bool fits;

    if (trimtab && rpc->in_force.positions == 0) {
        snprintf(why, size,
                 "the engine has no estimator whose coefficients could be written: a "
                 "confidence head predicts, or the build keeps them elsewhere");
        return false;
    }
    rpc_want_fit(rpc, trimtab);
    pthread_mutex_lock(&rpc->lock);
    fits = rpc->view.trimtab_fits;
    pthread_mutex_unlock(&rpc->lock);
    return trimtab || !fits || rpc_hold(rpc, false, why, size);
}

/* The lock is held. */
static const char *why_not_ready(const struct vllm_rpc *rpc)
{
    return rpc->view.reason[0] ? rpc->view.reason : "the node was not looked at yet";
}

static void carry_out(struct vllm_rpc *rpc, const struct command *what)
{
    char why[sizeof rpc->view.reason] = "";
    bool good = false, ready;

    pthread_mutex_lock(&rpc->lock);
    ready = rpc->view.state == VLLM_RPC_READY;
    if (!ready) snprintf(why, sizeof why, "%s", why_not_ready(rpc));
    pthread_mutex_unlock(&rpc->lock);
    if (ready)
        good = what->kind == COMMAND_MODE ? set_mode(rpc, what->mode, why, sizeof why)
                                          : set_estimator(rpc, what->trimtab, why, sizeof why);
    if (!good)
        rpc_say(rpc, "error", what->kind == COMMAND_MODE ? "rpc" : "estimator", "not done: %s",
                why);
    pthread_mutex_lock(&rpc->lock);
    if (rpc->view.state == VLLM_RPC_READY)
        snprintf(rpc->view.reason, sizeof rpc->view.reason, "%s", good ? "" : why);
    snprintf(rpc->done_why, sizeof rpc->done_why, "%s", good ? "" : why);
    rpc->done_serial = what->serial;
    rpc->command.kind = COMMAND_NONE;
    rpc->view.commanding = false;
    pthread_cond_broadcast(&rpc->done);
    pthread_mutex_unlock(&rpc->lock);
}

static void forget(struct vllm_rpc *rpc)
{
    pthread_mutex_lock(&rpc->lock);
    rpc->view = (struct vllm_rpc_view){.commanding = rpc->view.commanding, .mode = MODE_UNKNOWN};
    rpc->known = (struct vllm_reply){.steps = -1};
    rpc->report_known = false;
    rpc->budget = NAN;
    pthread_mutex_unlock(&rpc->lock);
    vllm_fit_free(rpc->fit);
    rpc->fit = NULL;
    rpc_want_fit(rpc, false);
    rpc->in_force.positions = 0;
    rpc->probe_due_ms = rpc->read_due_ms = 0;
}

/* Of an engine that is not well nothing stays changed by us. */
static void put_back(struct vllm_rpc *rpc)
{
    bool changed, back;

    pthread_mutex_lock(&rpc->lock);
    changed = rpc->view.state == VLLM_RPC_READY &&
              (rpc->view.mode == MODE_FIXED || rpc->view.trimtab_fits || rpc->wants_fit);
    pthread_mutex_unlock(&rpc->lock);
    if (!changed) return;
    rpc_want_fit(rpc, false);
    rpc_restore(rpc);
    pthread_mutex_lock(&rpc->lock);
    back = rpc->view.state == VLLM_RPC_READY && rpc->view.mode == MODE_ADAPTIVE &&
           !rpc->view.trimtab_fits;
    pthread_mutex_unlock(&rpc->lock);
    rpc_say(rpc, back ? "warning" : "error", "rpc",
            back ? "/health says that the engine is not well: everything was put back as it had it"
                 : "/health says that the engine is not well, and it cannot be put back");
}

static void *run(void *argument)
{
    struct vllm_rpc *rpc = argument;
    bool held;

    pthread_mutex_lock(&rpc->lock);
    while (!rpc->stop) {
        struct command what = rpc->command;
        bool restarted = rpc->restarted, unwell = rpc->unwell, tick = rpc->tick_due;
        enum vllm_rpc_state state = rpc->view.state;

        rpc->view.busy = restarted || unwell || tick || what.kind != COMMAND_NONE;
        if (!rpc->view.busy) {
            pthread_cond_wait(&rpc->wake, &rpc->lock);
            continue;
        }
        rpc->restarted = rpc->unwell = rpc->tick_due = false;
        pthread_mutex_unlock(&rpc->lock);
        if (restarted)
            forget(rpc);
        else if (unwell)
            put_back(rpc);
        else if (what.kind != COMMAND_NONE)
            carry_out(rpc, &what);
        else if (state == VLLM_RPC_PROBING)
            rpc_probe(rpc);
        else if (state == VLLM_RPC_READY)
            read_engine(rpc);
        pthread_mutex_lock(&rpc->lock);
    }
    held = rpc->view.state == VLLM_RPC_READY && rpc->view.trimtab_fits;
    pthread_mutex_unlock(&rpc->lock);
    if (held) {
        struct vllm_reply reply;

        (void)rpc_call(rpc, "trimtab_hold",
                       json_pack("[i, I]", 0, (json_int_t)rpc_next_generation(rpc)), FAREWELL_MS,
                       &reply);
        vllm_reply_clear(&reply);
    }
    return NULL;
}

/* ----------------------------------------------------------------------------------------- public
 */

/* Unlike any other client's, so that two daemons at one engine notice each other's answers. */
static void make_prefix(struct vllm_rpc *rpc)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(rpc->nonce_prefix, sizeof rpc->nonce_prefix, "t%08lx%08lx",
             (unsigned long)now.tv_sec & 0xffffffff,
             ((unsigned long)now.tv_nsec ^ (unsigned long)(uintptr_t)rpc >> 4) & 0xffffffff);
}

struct vllm_rpc *vllm_rpc_new(const struct vllm_rpc_options *options, char **cause)
{
    struct vllm_rpc *rpc = calloc(1, sizeof *rpc);
    pthread_condattr_t monotonic;

    if (!rpc || remote_copy(&rpc->remote, options->remote) != 0) {
        cause_set(cause, "out of memory");
        free(rpc);
        return NULL;
    }
    rpc->options = *options;
    rpc->options.remote = &rpc->remote;
    rpc->remote.deadline_ms =
        VLLM_RPC_DEADLINE_MS + VLLM_RPC_POLL_MS; /* its own watch ends first */
    rpc->view.mode = MODE_UNKNOWN;
    rpc->known.steps = -1;
    rpc->budget = NAN;
    make_prefix(rpc);
    pthread_mutex_init(&rpc->lock, NULL);
    pthread_cond_init(&rpc->wake, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&rpc->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    rpc->fetch = fetch_new(&rpc->remote, cause);
    rpc->multi = curl_multi_init();
    if (rpc->fetch && rpc->multi && pthread_create(&rpc->thread, NULL, run, rpc) == 0) return rpc;
    if (rpc->fetch) cause_set(cause, "no thread for the node: %s", strerror(errno));
    fetch_free(rpc->fetch);
    curl_multi_cleanup(rpc->multi);
    remote_clear(&rpc->remote);
    free(rpc);
    return NULL;
}

void vllm_rpc_free(struct vllm_rpc *rpc)
{
    if (!rpc) return;
    pthread_mutex_lock(&rpc->lock);
    rpc->stop = true;
    pthread_cond_broadcast(&rpc->wake);
    pthread_mutex_unlock(&rpc->lock);
    curl_multi_wakeup(rpc->multi);
    pthread_join(rpc->thread, NULL);
    fetch_free(rpc->fetch);
    curl_multi_cleanup(rpc->multi);
    vllm_fit_free(rpc->fit);
    remote_clear(&rpc->remote);
    pthread_cond_destroy(&rpc->wake);
    pthread_cond_destroy(&rpc->done);
    pthread_mutex_destroy(&rpc->lock);
    free(rpc);
}

void vllm_rpc_tick(struct vllm_rpc *rpc)
{
    pthread_mutex_lock(&rpc->lock);
    rpc->tick_due = rpc->view.busy = true;
    pthread_cond_signal(&rpc->wake);
    pthread_mutex_unlock(&rpc->lock);
}

void vllm_rpc_restarted(struct vllm_rpc *rpc)
{
    pthread_mutex_lock(&rpc->lock);
    rpc->restarted = rpc->view.busy = true;
    pthread_cond_signal(&rpc->wake);
    pthread_mutex_unlock(&rpc->lock);
}

void vllm_rpc_unwell(struct vllm_rpc *rpc)
{
    pthread_mutex_lock(&rpc->lock);
    rpc->unwell = rpc->view.busy = true;
    pthread_cond_signal(&rpc->wake);
    pthread_mutex_unlock(&rpc->lock);
}

void vllm_rpc_look(struct vllm_rpc *rpc, struct vllm_rpc_view *out)
{
    pthread_mutex_lock(&rpc->lock);
    *out = rpc->view;
    if (rpc->command.kind == COMMAND_ESTIMATOR) out->trimtab_wanted = rpc->command.trimtab;
    if (rpc->report_known) {
        out->fit_refits = (int64_t)rpc->report.refits;
        out->fit_labels = (int64_t)rpc->report.labels;
    }
    pthread_mutex_unlock(&rpc->lock);
}

/* The engine's coefficients; of trimtab's own fit also what it knows about them. */
static void fill_estimator(const struct vllm_rpc *rpc, struct snapshot *out)
{
    const struct vllm_coefficients *coefficients = &rpc->known.coefficients;
    const struct tt_estimator_report *report = &rpc->report;

    if (coefficients->positions == 0) return;
    snprintf(out->estimator.kind, sizeof out->estimator.kind, "%s",
             rpc->view.trimtab_fits ? "trimtab" : "engine");
    out->estimator.slope = coefficients->slope;
    if (out->estimator.positions_count < coefficients->positions)
        out->estimator.positions_count = coefficients->positions;
    for (int k = 0; k < coefficients->positions; k++)
        out->estimator.position[k].intercept = coefficients->intercept[k];
    if (!rpc->report_known) {
        if (rpc->known.refits >= 0) out->estimator.refits = rpc->known.refits;
        return;
    }
    out->estimator.drift_z = report->drift_z;
    out->estimator.ece = report->ece;
    out->estimator.auc = report->auc;
    out->estimator.drift_events = (int64_t)report->drift_events;
    out->estimator.refits = rpc->view.trimtab_fits ? (int64_t)report->refits : rpc->known.refits;
    if (rpc->view.trimtab_fits) {
        out->estimator.slope_se = report->slope_se;
        out->estimator.level = report->level;
    }
    for (int k = 0; k < report->positions && k < coefficients->positions; k++) {
        const struct tt_position_report *from = &report->position[k];
        struct snapshot_position *to = &out->estimator.position[k];

        to->n = (int64_t)from->n;
        if (rpc->view.trimtab_fits) to->intercept_se = from->intercept_se;
        if (!(from->reached > 0)) continue;
        to->accepted_ratio = from->accepted / from->reached;
        to->predicted_ratio = from->predicted / from->reached;
    }
}

void vllm_rpc_fill(struct vllm_rpc *rpc, struct snapshot *out)
{
    pthread_mutex_lock(&rpc->lock);
    out->switching = rpc->view.commanding;
    if (rpc->view.state == VLLM_RPC_READY && rpc->view.read_ms > 0 && rpc->known.mode_known) {
        out->mode = rpc->view.mode;
        out->admitted_total = rpc->known.admitted;
        out->verified_total = rpc->known.admitted;
        out->budget = rpc->budget;
        if (rpc->view.mode == MODE_FIXED) out->fixed_draft = out->max_draft; /* the whole block */
        fill_estimator(rpc, out);
    }
    pthread_mutex_unlock(&rpc->lock);
}

/* Waits until the command is done; the lock is held. */
static bool wait_done(struct vllm_rpc *rpc, int64_t serial, int wait_ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += wait_ms / 1000;
    until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    while (rpc->done_serial < serial && !rpc->stop)
        if (pthread_cond_timedwait(&rpc->done, &rpc->lock, &until) == ETIMEDOUT) break;
    return rpc->done_serial >= serial;
}

static enum vllm_rpc_outcome submit(struct vllm_rpc *rpc, struct command what, int wait_ms,
                                    char **cause)
{
    enum vllm_rpc_outcome outcome = VLLM_RPC_REFUSED;

    pthread_mutex_lock(&rpc->lock);
    if (rpc->view.state != VLLM_RPC_READY) {
        cause_set(cause, "%s", why_not_ready(rpc));
    } else if (rpc->command.kind != COMMAND_NONE) {
        cause_set(cause, "another change is on its way to the engine; try again when it is done");
    } else {
        what.serial = ++rpc->serial;
        rpc->command = what;
        rpc->view.commanding = rpc->view.busy = true;
        pthread_cond_signal(&rpc->wake);
        outcome = VLLM_RPC_PENDING;
        if (wait_done(rpc, what.serial, wait_ms)) {
            outcome = rpc->done_why[0] ? VLLM_RPC_REFUSED : VLLM_RPC_DONE;
            if (rpc->done_why[0]) cause_set(cause, "%s", rpc->done_why);
        }
    }
    pthread_mutex_unlock(&rpc->lock);
    return outcome;
}

enum vllm_rpc_outcome vllm_rpc_set_mode(struct vllm_rpc *rpc, enum mode mode, int wait_ms,
                                        char **cause)
{
    if (mode != MODE_ADAPTIVE && mode != MODE_FIXED) {
        cause_set(cause, "a vLLM node is switched between adaptive and fixed; %s needs a restart",
                  mode_name(mode));
        return VLLM_RPC_REFUSED;
    }
    return submit(rpc, (struct command){.kind = COMMAND_MODE, .mode = mode}, wait_ms, cause);
}

enum vllm_rpc_outcome vllm_rpc_set_estimator(struct vllm_rpc *rpc, bool trimtab, int wait_ms,
                                             char **cause)
{
    return submit(rpc, (struct command){.kind = COMMAND_ESTIMATOR, .trimtab = trimtab}, wait_ms,
                  cause);
}
