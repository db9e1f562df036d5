/* vllm_rpc_call.c - see vllm_rpc_internal.h: one call, and what its failure means. */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/cause.h"
#include "controller/vllm_rpc_internal.h"

enum {
    INFO_MAX = 1 << 20,     /* bytes of /server_info */
    PROBE_AGAIN_MS = 30000, /* /server_info costs the engine seconds */
};

void rpc_say(struct vllm_rpc *rpc, const char *severity, const char *kind, const char *format, ...)
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
void rpc_enter(struct vllm_rpc *rpc, enum vllm_rpc_state state, const char *format, ...)
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
        rpc_say(rpc, "error", "rpc", "hands off until the engine restarts: %s", reason);
    else if (state == VLLM_RPC_UNABLE)
        rpc_say(rpc, "info", "rpc", "read-only: %s", reason);
    else if (state == VLLM_RPC_READY)
        rpc_say(rpc, "info", "rpc", "the worker extension answers: the node can be steered");
}

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
    int64_t end = monotonic_ms() + deadline_ms;
    bool farewell = stopping(rpc);
    enum sent sent = SENT_OK;
    CURLcode code = CURLE_FAILED_INIT;
    int running = 1, left;

    if (curl_multi_add_handle(rpc->multi, easy) != CURLM_OK) return SENT_UNREACHABLE;
    note_pending(rpc, utc_ms());
    while (sent == SENT_OK && curl_multi_perform(rpc->multi, &running) == CURLM_OK && running) {
        int64_t rest = end - monotonic_ms();

        if (!farewell && stopping(rpc))
            sent = SENT_STOPPED;
        else if (rest <= 0)
            sent = SENT_LATE;
        else
            curl_multi_poll(rpc->multi, NULL, 0,
                            (int)(rest < VLLM_RPC_POLL_MS ? rest : VLLM_RPC_POLL_MS), NULL);
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
        rpc_enter(
            rpc, VLLM_RPC_POISONED,
            "no answer to %s within %d s; it may still run, and answers may be late from now on",
            method, VLLM_RPC_DEADLINE_MS / 1000);
        break;
    case SENT_REFUSED:
        error_text(answer, text, sizeof text);
        if (answer->refused)
            rpc_enter(rpc, VLLM_RPC_UNABLE, "the engine wants a key for /collective_rpc: %s", text);
        else if (answer->status == 404)
            rpc_enter(rpc, VLLM_RPC_UNABLE,
                      "dev mode is off: start vLLM with VLLM_SERVER_DEV_MODE=1 and "
                      "--worker-extension-cls " VLLM_EXTENSION);
        else
            rpc_enter(rpc, VLLM_RPC_POISONED, "%s failed in a worker: %s", method, text);
        break;
    case SENT_UNREACHABLE:
        rpc->probe_due_ms = monotonic_ms() + PROBE_AGAIN_MS;
        rpc_enter(rpc, VLLM_RPC_PROBING, "the engine did not answer %s: %s", method, answer->why);
        break;
    case SENT_OK:
    case SENT_STOPPED:
        break;
    }
}

bool rpc_call(struct vllm_rpc *rpc, const char *method, json_t *arguments, int64_t deadline_ms,
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
        rpc_enter(rpc, VLLM_RPC_POISONED, "%s: %s", method, cause ? cause : "out of memory");
    } else {
        good = true;
    }
    free(cause);
    return good;
}

int64_t rpc_next_generation(struct vllm_rpc *rpc)
{
    int64_t generation;

    pthread_mutex_lock(&rpc->lock);
    generation = ++rpc->view.generation;
    pthread_mutex_unlock(&rpc->lock);
    return generation;
}

void rpc_publish(struct vllm_rpc *rpc, const struct vllm_reply *reply)
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

void rpc_restore(struct vllm_rpc *rpc)
{
    struct vllm_reply reply;

    if (rpc_call(rpc, "trimtab_restore", json_pack("[I]", (json_int_t)rpc_next_generation(rpc)),
                 VLLM_RPC_DEADLINE_MS, &reply))
        rpc_publish(rpc, &reply);
    vllm_reply_clear(&reply);
}

bool rpc_command(struct vllm_rpc *rpc, const char *method, json_t *arguments, char *why,
                 size_t size, struct vllm_reply *out)
{
    int64_t generation = rpc_next_generation(rpc);
    bool good;

    if (arguments) json_array_append_new(arguments, json_integer(generation));
    good = rpc_call(rpc, method, arguments, VLLM_RPC_DEADLINE_MS, out);
    if (!good) {
        pthread_mutex_lock(&rpc->lock);
        snprintf(why, size, "%s", rpc->view.reason[0] ? rpc->view.reason : "the call was not made");
        pthread_mutex_unlock(&rpc->lock);
        return false;
    }
    if (!out->error[0] && !out->disagree[0] && out->generation == generation) {
        rpc_publish(rpc, out);
        return true;
    }
    snprintf(why, size, "%.250s; everything was put back as the engine had it",
             out->error[0]      ? out->error
             : out->disagree[0] ? out->disagree
                                : "somebody else commands this engine, too");
    rpc_restore(rpc);
    return false;
}

bool rpc_get(struct vllm_rpc *rpc, const char *path, struct fetch_answer *answer)
{
    enum sent sent;

    fetch_begin(rpc->fetch, path, INFO_MAX);
    sent = transfer(rpc, VLLM_RPC_DEADLINE_MS, answer);
    if (sent == SENT_OK) return true;
    rpc->probe_due_ms = monotonic_ms() + PROBE_AGAIN_MS;
    if (sent == SENT_LATE) /* nothing was commanded: not poisoned */
        rpc_enter(rpc, VLLM_RPC_PROBING, "%s did not answer within %d s", path,
                  VLLM_RPC_DEADLINE_MS / 1000);
    else if (sent == SENT_REFUSED && answer->status >= 500)
        rpc_enter(rpc, VLLM_RPC_PROBING, "%s answers with %s", path, answer->why);
    else if (sent == SENT_REFUSED && answer->status != 404 && !answer->refused)
        rpc_enter(rpc, VLLM_RPC_UNABLE, "%s answers with %s", path, answer->why);
    else
        judge_failure(rpc, path, sent, answer);
    return false;
}
