/* vllm_rpc.c - see vllm_rpc.h. One thread makes one call at a time; everything that others ask for
 * is a note to it under `lock`. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "controller/buffer.h"
#include "controller/cause.h"
#include "controller/ticks.h"
#include "controller/vllm_fit.h"
#include "controller/vllm_reply.h"
#include "controller/vllm_rpc.h"

enum {
    READ_LEAST_MS = 1000,
    PROBE_AGAIN_MS = 30000, /* after the engine could not be reached: /server_info costs seconds */
    FAREWELL_MS = 2000,
    LABELS_MOST = 1024,
    INFO_MAX = 1 << 20,
    POLL_MS = 1000,
};
#define COEFFICIENT_STEP 1e-4 /* smaller moves are not worth a call */

enum command_kind { COMMAND_NONE, COMMAND_MODE, COMMAND_ESTIMATOR };

struct command {
    enum command_kind kind;
    enum mode mode;
    bool trimtab;
    int64_t serial;
};

struct vllm_rpc {
    struct vllm_rpc_options options;
    struct remote remote;
    struct fetch *fetch;
    CURLM *multi;
    pthread_t thread;

    pthread_mutex_t lock; /* guards what follows, up to the blank line */
    pthread_cond_t wake;  /* the thread: something to do */
    pthread_cond_t done;  /* who waits for a command */
    bool stop, restarted, tick_due;
    struct command command; /* queued or on its way */
    int64_t serial, done_serial;
    char done_why[sizeof((struct vllm_rpc_view *)0)->reason]; /* of done_serial; empty = done */
    struct vllm_rpc_view view;
    struct vllm_reply known; /* the last reading, without its document */
    struct tt_estimator_report report;
    bool report_known;
    double budget; /* drafts admitted a step between the last two readings */

    /* The thread's own. */
    char nonce_prefix[20];
    int64_t calls, read_due_ms, probe_due_ms;
    struct vllm_info info;
    struct vllm_fit *fit;
    bool wants_fit; /* the operator's choice; in force once the fit is ready */
    struct vllm_coefficients engines_own, in_force;
};

static int64_t now_ms(void)
{
    return ticks_us() / 1000;
}

static void say(struct vllm_rpc *rpc, const char *severity, const char *kind, const char *format,
                ...) __attribute__((format(printf, 4, 5)));
static void say(struct vllm_rpc *rpc, const char *severity, const char *kind, const char *format,
                ...)
{
    va_list arguments;
    char text[512];

    if (!rpc->options.event) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rpc->options.event(rpc->options.state, severity, kind, text);
}

static bool stopping(struct vllm_rpc *rpc)
{
    bool stop;

    pthread_mutex_lock(&rpc->lock);
    stop = rpc->stop;
    pthread_mutex_unlock(&rpc->lock);
    return stop;
}

/* A new state with its reason; hands off what a state does not have. */
static void enter(struct vllm_rpc *rpc, enum vllm_rpc_state state, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void enter(struct vllm_rpc *rpc, enum vllm_rpc_state state, const char *format, ...)
{
    char reason[sizeof rpc->view.reason];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&rpc->lock);
    rpc->view.state = state;
    snprintf(rpc->view.reason, sizeof rpc->view.reason, "%s", reason);
    if (state != VLLM_RPC_READY) rpc->view.trimtab_fits = false;
    pthread_mutex_unlock(&rpc->lock);
    if (state == VLLM_RPC_POISONED)
        say(rpc, "error", "rpc", "hands off until the engine restarts: %s", reason);
    else if (state == VLLM_RPC_UNABLE)
        say(rpc, "info", "rpc", "read-only: %s", reason);
    else if (state == VLLM_RPC_READY)
        say(rpc, "info", "rpc", "the worker extension answers: the node can be steered");
}

/* ------------------------------------------------------------------------------------- one call */

enum sent { SENT_OK, SENT_STOPPED, SENT_UNREACHABLE, SENT_LATE, SENT_REFUSED };

static void note_pending(struct vllm_rpc *rpc, int64_t since_ms)
{
    pthread_mutex_lock(&rpc->lock);
    rpc->view.pending_since_ms = since_ms;
    pthread_mutex_unlock(&rpc->lock);
}

/* Transfers what fetch_begin prepared. */
static enum sent transfer(struct vllm_rpc *rpc, int64_t deadline_ms, struct fetch_answer *answer)
{
    CURL *easy = fetch_handle(rpc->fetch);
    int64_t end = now_ms() + deadline_ms;
    bool farewell = stopping(rpc);
    enum sent sent = SENT_OK;
    CURLcode code = CURLE_FAILED_INIT;
    int running = 1, left;

    if (curl_multi_add_handle(rpc->multi, easy) != CURLM_OK) return SENT_UNREACHABLE;
    note_pending(rpc, utc_ms());
    while (sent == SENT_OK && curl_multi_perform(rpc->multi, &running) == CURLM_OK && running) {
        int64_t rest = end - now_ms();

        if (!farewell && stopping(rpc))
            sent = SENT_STOPPED;
        else if (rest <= 0)
            sent = SENT_LATE;
        else
            curl_multi_poll(rpc->multi, NULL, 0, (int)(rest < POLL_MS ? rest : POLL_MS), NULL);
    }
    for (CURLMsg *message; (message = curl_multi_info_read(rpc->multi, &left));)
        if (message->msg == CURLMSG_DONE) code = message->data.result;
    curl_multi_remove_handle(rpc->multi, easy);
    note_pending(rpc, 0);
    if (sent != SENT_OK) return sent;
    fetch_end(rpc->fetch, code, answer);
    if (code == CURLE_OPERATION_TIMEDOUT) return SENT_LATE;
    if (answer->status == 0) return SENT_UNREACHABLE;
    return answer->ok ? SENT_OK : SENT_REFUSED;
}

/* What the engine says of an error, for the person: the message of its body. */
static void error_text(const struct fetch_answer *answer, char *out, size_t size)
{
    json_t *body = json_loadb(answer->body, answer->length, 0, NULL);
    const char *message =
        json_string_value(json_object_get(json_object_get(body, "error"), "message"));

    snprintf(out, size, "%.250s", message ? message : answer->why);
    for (char *at = out; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
    json_decref(body);
}

/* Why a call did not end well decides what may still be done with the engine. */
static void judge_failure(struct vllm_rpc *rpc, const char *method, enum sent sent,
                          const struct fetch_answer *answer)
{
    char text[256];

    switch (sent) {
    case SENT_LATE:
        enter(rpc, VLLM_RPC_POISONED,
              "no answer to %s within %d s; it may still run, and answers may be late from now on",
              method, VLLM_RPC_DEADLINE_MS / 1000);
        break;
    case SENT_REFUSED:
        error_text(answer, text, sizeof text);
        if (answer->refused)
            enter(rpc, VLLM_RPC_UNABLE, "the engine wants a key for /collective_rpc: %s", text);
        else if (answer->status == 404)
            enter(rpc, VLLM_RPC_UNABLE,
                  "dev mode is off: start vLLM with VLLM_SERVER_DEV_MODE=1 and "
                  "--worker-extension-cls " VLLM_EXTENSION);
        else
            enter(rpc, VLLM_RPC_POISONED, "%s failed in a worker: %s", method, text);
        break;
    case SENT_UNREACHABLE:
        rpc->probe_due_ms = now_ms() + PROBE_AGAIN_MS;
        enter(rpc, VLLM_RPC_PROBING, "the engine did not answer %s: %s", method, answer->why);
        break;
    case SENT_OK:
    case SENT_STOPPED:
        break;
    }
}

/* POST /collective_rpc; `arguments` (taken over) follow the nonce. True when every rank answered
 * this very call; else the state says why. */
static bool call(struct vllm_rpc *rpc, const char *method, json_t *arguments, int64_t deadline_ms,
                 struct vllm_reply *out)
{
    struct fetch_answer answer = {0};
    char nonce[64], *text = NULL, *cause = NULL;
    json_t *body;
    enum sent sent;
    bool good = false;

    *out = (struct vllm_reply){0};
    snprintf(nonce, sizeof nonce, "%s-%lld", rpc->nonce_prefix, (long long)++rpc->calls);
    if (arguments) json_array_insert_new(arguments, 0, json_string(nonce));
    body = json_pack("{s:s, s:o}", "method", method, "args", arguments);
    text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    if (!text) return false; /* out of memory: not sent */
    fetch_begin_post(rpc->fetch, "/collective_rpc", text, VLLM_REPLY_MAX);
    free(text);
    sent = transfer(rpc, deadline_ms, &answer);
    if (sent != SENT_OK) {
        judge_failure(rpc, method, sent, &answer);
    } else if (vllm_reply_read(answer.body, answer.length, nonce, out, &cause) != 0) {
        enter(rpc, VLLM_RPC_POISONED, "%s: %s", method, cause ? cause : "out of memory");
    } else {
        good = true;
    }
    free(cause);
    return good;
}

static int64_t next_generation(struct vllm_rpc *rpc)
{
    int64_t generation;

    pthread_mutex_lock(&rpc->lock);
    generation = ++rpc->view.generation;
    pthread_mutex_unlock(&rpc->lock);
    return generation;
}

/* What an answer tells of the present, for everybody to see. */
static void publish(struct vllm_rpc *rpc, const struct vllm_reply *reply)
{
    pthread_mutex_lock(&rpc->lock);
    rpc->view.ranks = reply->ranks;
    if (reply->mode_known) rpc->view.mode = reply->mode;
    if (reply->generation > rpc->view.generation) rpc->view.generation = reply->generation;
    rpc->view.trimtab_fits = reply->held;
    if (reply->steps >= 0) {
        int64_t steps = reply->steps - rpc->known.steps;

        if (rpc->view.read_ms > 0 && steps > 0)
            rpc->budget = (double)(reply->admitted - rpc->known.admitted) / (double)steps;
        rpc->known = *reply;
        rpc->known.document = NULL;
        rpc->known.rows = NULL;
        rpc->view.read_ms = utc_ms();
    }
    if (reply->coefficients.positions > 0) rpc->known.coefficients = reply->coefficients;
    pthread_mutex_unlock(&rpc->lock);
    if (reply->coefficients.positions > 0) rpc->in_force = reply->coefficients;
}

/* Everything as the engine had it, on every rank. */
static void restore(struct vllm_rpc *rpc)
{
    struct vllm_reply reply;

    if (call(rpc, "trimtab_restore", json_pack("[I]", (json_int_t)next_generation(rpc)),
             VLLM_RPC_DEADLINE_MS, &reply))
        publish(rpc, &reply);
    vllm_reply_clear(&reply);
}

/* A command with its generation (which it appends); true when every rank did it and agrees. Else
 * everything is put back and *why (sized as a reason) tells. */
static bool command(struct vllm_rpc *rpc, const char *method, json_t *arguments, char *why,
                    size_t size, struct vllm_reply *out)
{
    int64_t generation = next_generation(rpc);
    bool good;

    if (arguments) json_array_append_new(arguments, json_integer(generation));
    good = call(rpc, method, arguments, VLLM_RPC_DEADLINE_MS, out);
    if (!good) {
        pthread_mutex_lock(&rpc->lock);
        snprintf(why, size, "%s", rpc->view.reason[0] ? rpc->view.reason : "the call was not made");
        pthread_mutex_unlock(&rpc->lock);
        return false;
    }
    if (!out->error[0] && !out->disagree[0] && out->generation == generation) {
        publish(rpc, out);
        return true;
    }
    snprintf(why, size, "%.250s; everything was put back as the engine had it",
             out->error[0]      ? out->error
             : out->disagree[0] ? out->disagree
                                : "somebody else commands this engine, too");
    restore(rpc);
    return false;
}

/* ----------------------------------------------------------------------------------------- probe
 */

/* A GET; false when the state says why it did not end well. */
static bool get(struct vllm_rpc *rpc, const char *path, struct fetch_answer *answer)
{
    enum sent sent;

    fetch_begin(rpc->fetch, path, INFO_MAX);
    sent = transfer(rpc, VLLM_RPC_DEADLINE_MS, answer);
    if (sent == SENT_OK) return true;
    if (sent == SENT_LATE) { /* nothing was commanded: not poisoned */
        rpc->probe_due_ms = now_ms() + PROBE_AGAIN_MS;
        enter(rpc, VLLM_RPC_PROBING, "%s did not answer within %d s", path,
              VLLM_RPC_DEADLINE_MS / 1000);
    } else {
        if (sent == SENT_REFUSED && answer->status != 404 && !answer->refused)
            enter(rpc, VLLM_RPC_UNABLE, "%s answers with %s", path, answer->why);
        else
            judge_failure(rpc, path, sent, answer);
    }
    return false;
}

static void warn_if_open(struct vllm_rpc *rpc)
{
    if (remote_is_loopback(rpc->remote.url)) return;
    pthread_mutex_lock(&rpc->lock);
    rpc->view.open = true;
    pthread_mutex_unlock(&rpc->lock);
    say(rpc, "warning", "rpc",
        "vLLM's dev mode asks nobody for a key, and %s is not this machine: whoever reaches it can "
        "command the engine; let it listen on loopback and use a tunnel",
        rpc->remote.url);
}

/* Can this engine be steered, as far as its configuration tells? */
static bool configuration_allows(struct vllm_rpc *rpc)
{
    const struct vllm_info *info = &rpc->info;

    if (!info->extension[0])
        enter(rpc, VLLM_RPC_UNABLE,
              "the node was started without the trimtab worker extension: add "
              "--worker-extension-cls " VLLM_EXTENSION);
    else if (strcmp(info->extension, VLLM_EXTENSION) != 0)
        enter(rpc, VLLM_RPC_UNABLE,
              "the node was started with another worker extension (%s), not " VLLM_EXTENSION,
              info->extension);
    else if (info->engines > 1)
        enter(rpc, VLLM_RPC_UNABLE,
              "%lld data parallel engines answer at this address and a call reaches one of them: "
              "steer engines that have an address each",
              (long long)info->engines);
    else
        return true;
    return false;
}

/* Why an engine whose workers have the extension does not trim. */
static void explain_not_adaptive(struct vllm_rpc *rpc, const struct vllm_reply *status)
{
    const struct vllm_info *info = &rpc->info;
    const char *runner = status->runner[0] ? status->runner : "model";

    if (!info->method[0])
        enter(rpc, VLLM_RPC_UNABLE, "the engine was started without speculative decoding");
    else if (!info->adaptive)
        enter(rpc, VLLM_RPC_UNABLE,
              "the engine was not started with adaptive verification, and it cannot be turned on "
              "later: add \"enable_adaptive_verification\": true to --speculative-config (it needs "
              "model runner V2 and full CUDA graphs; this is the %s, method %s)",
              runner, info->method);
    else
        enter(rpc, VLLM_RPC_UNABLE,
              "adaptive verification was asked for but does not run: method %s on the %s (n-gram "
              "drafts and the V1 runner never trim); missing: %s",
              info->method, runner, status->missing);
}

static void probe(struct vllm_rpc *rpc)
{
    struct fetch_answer answer = {0};
    struct vllm_reply reply = {0};
    char *cause = NULL;

    if (now_ms() < rpc->probe_due_ms) return;
    if (!get(rpc, "/version", &answer) || !get(rpc, "/server_info?config_format=json", &answer))
        return;
    warn_if_open(rpc);
    if (vllm_info_read(answer.body, answer.length, &rpc->info, &cause) != 0)
        enter(rpc, VLLM_RPC_UNABLE, "%s", cause ? cause : "out of memory");
    else if (configuration_allows(rpc) &&
             call(rpc, "trimtab_echo", json_array(), VLLM_RPC_DEADLINE_MS, &reply)) {
        vllm_reply_clear(&reply);
        if (call(rpc, "trimtab_read", json_pack("[i, i]", 0, 0), VLLM_RPC_DEADLINE_MS, &reply)) {
            publish(rpc, &reply);
            if (reply.error[0] || reply.disagree[0])
                enter(rpc, VLLM_RPC_UNABLE, "%s", reply.error[0] ? reply.error : reply.disagree);
            else if (!reply.adaptive || !reply.mode_known)
                explain_not_adaptive(rpc, &reply);
            else
                enter(rpc, VLLM_RPC_READY, "%s", "");
        }
    }
    vllm_reply_clear(&reply);
    free(cause);
}

/* --------------------------------------------------------------------------- the fit of trimtab */

/* Write the fit's coefficients where the engine's kernels read them. */
static bool write_coefficients(struct vllm_rpc *rpc, const struct vllm_coefficients *to, char *why,
                               size_t size)
{
    json_t *intercepts = json_array();
    struct vllm_reply reply = {0};
    bool good;

    for (int k = 0; k < to->positions; k++)
        json_array_append_new(intercepts, json_real(to->intercept[k]));
    good = command(rpc, "trimtab_set_coefficients", json_pack("[f, o]", to->slope, intercepts), why,
                   size, &reply);
    if (good && !vllm_coefficients_equal(&reply.coefficients, to)) {
        snprintf(why, size, "the coefficients do not read back as written");
        restore(rpc);
        good = false;
    }
    vllm_reply_clear(&reply);
    return good;
}

static bool hold(struct vllm_rpc *rpc, bool held, char *why, size_t size)
{
    struct vllm_reply reply = {0};
    bool good = command(rpc, "trimtab_hold", json_pack("[i]", (int)held), why, size, &reply);

    vllm_reply_clear(&reply);
    return good;
}

static void give_up_fit(struct vllm_rpc *rpc, const char *why)
{
    rpc->wants_fit = false;
    say(rpc, "warning", "estimator", "the engine fits again: %s", why);
    pthread_mutex_lock(&rpc->lock);
    snprintf(rpc->view.reason, sizeof rpc->view.reason, "the engine fits again: %.300s", why);
    pthread_mutex_unlock(&rpc->lock);
}

static void take_over(struct vllm_rpc *rpc, const struct vllm_coefficients *fitted)
{
    char why[sizeof rpc->view.reason];

    rpc->engines_own = rpc->in_force;
    vllm_fit_set_reference(rpc->fit, &rpc->engines_own);
    if (!hold(rpc, true, why, sizeof why) || !write_coefficients(rpc, fitted, why, sizeof why))
        give_up_fit(rpc, why);
    else
        say(rpc, "info", "estimator", "trimtab's coefficients are in force (slope %.3f, was %.3f)",
            fitted->slope, rpc->engines_own.slope);
}

/* The engine's own coefficients again, and its refit goes on from them. */
static void revert(struct vllm_rpc *rpc, double nats)
{
    char why[sizeof rpc->view.reason], undone[sizeof rpc->view.reason];

    snprintf(why, sizeof why,
             "trimtab's predictions were worse than those of the coefficients that it replaced, by "
             "%.4f nats a label; those are in force again",
             nats);
    if (!write_coefficients(rpc, &rpc->engines_own, undone, sizeof undone) ||
        !hold(rpc, false, undone, sizeof undone))
        snprintf(why, sizeof why, "%.390s", undone);
    give_up_fit(rpc, why);
}

static bool moved(const struct vllm_coefficients *a, const struct vllm_coefficients *b)
{
    bool far = fabs(a->slope - b->slope) > COEFFICIENT_STEP;

    for (int k = 0; k < a->positions; k++)
        far = far || fabs(a->intercept[k] - b->intercept[k]) > COEFFICIENT_STEP;
    return far;
}

/* One reading's outcomes into the fit, and what follows from them. */
static void work_on_fit(struct vllm_rpc *rpc, const struct vllm_reply *reply,
                        const struct vllm_coefficients *graded)
{
    struct vllm_coefficients fitted;
    char why[sizeof rpc->view.reason];
    double nats;
    int refits;

    if (!rpc->fit && rpc->wants_fit && reply->coefficients.positions > 0)
        rpc->fit = vllm_fit_new(reply->coefficients.positions);
    if (!rpc->fit || reply->label_steps < 0) return;
    refits = vllm_fit_observe(rpc->fit, reply, graded);
    pthread_mutex_lock(&rpc->lock);
    vllm_fit_report(rpc->fit, &rpc->report);
    rpc->report_known = true;
    pthread_mutex_unlock(&rpc->lock);
    if (!rpc->wants_fit || refits == 0) return;
    vllm_fit_coefficients(rpc->fit, &fitted);
    if (fitted.positions != rpc->in_force.positions) return;
    if (!reply->held) {
        if (vllm_fit_ready(rpc->fit)) take_over(rpc, &fitted);
    } else if (vllm_fit_is_worse(rpc->fit, &nats)) {
        revert(rpc, nats);
    } else if (moved(&fitted, &rpc->in_force) &&
               !write_coefficients(rpc, &fitted, why, sizeof why)) {
        give_up_fit(rpc, why);
    }
}

/* ------------------------------------------------------------------------------------- the thread
 */

static void read_engine(struct vllm_rpc *rpc)
{
    struct vllm_coefficients graded = rpc->in_force; /* when these labels' drafts were made */
    struct vllm_reply reply;

    if (now_ms() < rpc->read_due_ms) return;
    rpc->read_due_ms = now_ms() + READ_LEAST_MS;
    if (call(rpc, "trimtab_read", json_pack("[i, i]", (int)rpc->wants_fit, (int)LABELS_MOST),
             VLLM_RPC_DEADLINE_MS, &reply)) {
        publish(rpc, &reply);
        if (reply.error[0] || reply.disagree[0]) {
            char why[sizeof rpc->view.reason];

            snprintf(why, sizeof why, "%.380s", reply.error[0] ? reply.error : reply.disagree);
            restore(rpc);
            enter(rpc, VLLM_RPC_UNABLE, "%.280s; everything was put back as the engine had it",
                  why);
        } else {
            work_on_fit(rpc, &reply, graded.positions > 0 ? &graded : &rpc->in_force);
        }
    }
    vllm_reply_clear(&reply);
}

static bool set_mode(struct vllm_rpc *rpc, enum mode mode, char *why, size_t size)
{
    struct vllm_reply reply = {0};
    bool good =
        command(rpc, "trimtab_set_mode", json_pack("[s]", mode_name(mode)), why, size, &reply);

    if (good && (!reply.mode_known || reply.mode != mode)) {
        snprintf(why, size, "the engine reads back %s",
                 reply.mode_known ? mode_name(reply.mode) : "no mode");
        restore(rpc);
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
    rpc->wants_fit = trimtab;
    pthread_mutex_lock(&rpc->lock);
    fits = rpc->view.trimtab_fits;
    pthread_mutex_unlock(&rpc->lock);
    return trimtab || !fits || hold(rpc, false, why, size);
}

static void carry_out(struct vllm_rpc *rpc, const struct command *what)
{
    char why[sizeof rpc->view.reason] = "";
    bool good = false, ready;

    pthread_mutex_lock(&rpc->lock);
    ready = rpc->view.state == VLLM_RPC_READY;
    if (!ready) snprintf(why, sizeof why, "%s", rpc->view.reason);
    pthread_mutex_unlock(&rpc->lock);
    if (ready)
        good = what->kind == COMMAND_MODE ? set_mode(rpc, what->mode, why, sizeof why)
                                          : set_estimator(rpc, what->trimtab, why, sizeof why);
    if (!good)
        say(rpc, "error", what->kind == COMMAND_MODE ? "rpc" : "estimator", "not done: %s", why);
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
    rpc->wants_fit = false;
    rpc->in_force.positions = 0;
    rpc->probe_due_ms = rpc->read_due_ms = 0;
}

static void *run(void *argument)
{
    struct vllm_rpc *rpc = argument;
    bool held;

    pthread_mutex_lock(&rpc->lock);
    while (!rpc->stop) {
        struct command what = rpc->command;
        bool restarted = rpc->restarted, tick = rpc->tick_due;
        enum vllm_rpc_state state = rpc->view.state;

        rpc->view.busy = restarted || tick || what.kind != COMMAND_NONE;
        if (!rpc->view.busy) {
            pthread_cond_wait(&rpc->wake, &rpc->lock);
            continue;
        }
        rpc->restarted = rpc->tick_due = false;
        pthread_mutex_unlock(&rpc->lock);
        if (restarted)
            forget(rpc);
        else if (what.kind != COMMAND_NONE)
            carry_out(rpc, &what);
        else if (state == VLLM_RPC_PROBING)
            probe(rpc);
        else if (state == VLLM_RPC_READY)
            read_engine(rpc);
        pthread_mutex_lock(&rpc->lock);
    }
    held = rpc->view.state == VLLM_RPC_READY && rpc->view.trimtab_fits;
    pthread_mutex_unlock(&rpc->lock);
    if (held) {
        struct vllm_reply reply;

        (void)call(rpc, "trimtab_hold", json_pack("[i, I]", 0, (json_int_t)next_generation(rpc)),
                   FAREWELL_MS, &reply);
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
    rpc->remote.deadline_ms = VLLM_RPC_DEADLINE_MS + POLL_MS; /* its own watch ends first */
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

void vllm_rpc_look(struct vllm_rpc *rpc, struct vllm_rpc_view *out)
{
    pthread_mutex_lock(&rpc->lock);
    *out = rpc->view;
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
    if (rpc->view.read_ms > 0 && rpc->known.mode_known) {
        out->mode = rpc->view.mode;
        out->admitted_total = rpc->known.admitted;
        out->verified_total = rpc->known.admitted;
        out->budget = rpc->budget;
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
        cause_set(cause, "%s",
                  rpc->view.reason[0] ? rpc->view.reason : "the node was not looked at yet");
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
