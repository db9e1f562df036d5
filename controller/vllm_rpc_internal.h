/* vllm_rpc_internal.h - what the parts of the client of collective_rpc share: vllm_rpc.c (the
 * thread and its callers), vllm_rpc_call.c (one call, and what its failure means), vllm_rpc_probe.c
 * (may the engine be steered), vllm_rpc_fit.c (trimtab's own fit in force). All but vllm_rpc.c run
 * on the thread.
 */
#ifndef CONTROLLER_VLLM_RPC_INTERNAL_H
#define CONTROLLER_VLLM_RPC_INTERNAL_H

#include <jansson.h>
#include <pthread.h>

#include "controller/ticks.h"
#include "controller/vllm_fit.h"
#include "controller/vllm_reply.h"
#include "controller/vllm_rpc.h"

#define VLLM_RPC_POLL_MS 1000

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
    bool stop, restarted, unwell, tick_due;
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
    bool wants_fit; /* by rpc_want_fit; in force once the fit is ready */
    struct vllm_coefficients engines_own, in_force;
};

/* An event. */
void rpc_say(struct vllm_rpc *rpc, const char *severity, const char *kind, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A new state with its reason, and its event. */
void rpc_enter(struct vllm_rpc *rpc, enum vllm_rpc_state state, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A GET; false when the state says why it did not end well. */
bool rpc_get(struct vllm_rpc *rpc, const char *path, struct fetch_answer *answer);
/* POST /collective_rpc; `arguments` (taken over) follow the nonce. True when every rank answered
 * this very call; else the state says why. */
bool rpc_call(struct vllm_rpc *rpc, const char *method, json_t *arguments, int64_t deadline_ms,
              struct vllm_reply *out);
/* A call with a generation (appended) that changes something; true when every rank did it and
 * agrees. Else everything is put back and *why (sized as a reason) tells. */
bool rpc_command(struct vllm_rpc *rpc, const char *method, json_t *arguments, char *why,
                 size_t size, struct vllm_reply *out);
int64_t rpc_next_generation(struct vllm_rpc *rpc);
/* What an answer tells of the present, for everybody to see. */
void rpc_publish(struct vllm_rpc *rpc, const struct vllm_reply *reply);
/* Everything as the engine had it, on every rank. */
void rpc_restore(struct vllm_rpc *rpc);

/* When that is due: may the engine be steered? Ends in a state. */
void rpc_probe(struct vllm_rpc *rpc);

/* The operator's choice of whose fit predicts, for the thread and for everybody to see. */
void rpc_want_fit(struct vllm_rpc *rpc, bool trimtab);
/* Hold the engine's own refit off, or let it go on. */
bool rpc_hold(struct vllm_rpc *rpc, bool held, char *why, size_t size);
/* One reading's outcomes, drafted under `graded`, into the fit, and what follows from them. */
void rpc_work_on_fit(struct vllm_rpc *rpc, const struct vllm_reply *reply,
                     const struct vllm_coefficients *graded);

#endif
