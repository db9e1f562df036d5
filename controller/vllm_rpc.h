/* vllm_rpc.h - steering a running vLLM engine through trimtab's worker extension (controller/vllm/)
 * over POST /collective_rpc.
 *
 * Owns one thread and one connection a node: one call at a time, never a retry, never a `timeout`
 * in a request (when the engine's own expires, every later answer belongs to another call and the
 * next generation ends the engine). Nothing here blocks the caller but vllm_rpc_set_mode and
 * vllm_rpc_set_estimator, for the time they are given.
 *
 * Before any command: /version, /server_info once, one echo with a nonce. An answer that does not
 * carry the call's nonce on every rank, an exception in a worker or no answer within 30 s means
 * "poisoned": hands off until vllm_rpc_restarted, with an event.
 *
 * Source: vLLM 0.32.0 and 0.33.0, observed; pull requests 47808 (adaptive verification), 52228 (the
 * acceptance estimator).
 */
#ifndef CONTROLLER_VLLM_RPC_H
#define CONTROLLER_VLLM_RPC_H

#include <stdbool.h>
#include <stdint.h>

#include "controller/fetch.h"
#include "controller/snapshot.h"

struct vllm_rpc;

#define VLLM_RPC_DEADLINE_MS 30000 /* a busy engine answers after 8 to 16 s */

enum vllm_rpc_state {
    VLLM_RPC_PROBING, /* not looked at yet, or looking */
    VLLM_RPC_READY,   /* the extension answers on every rank and the engine trims */
    VLLM_RPC_UNABLE,  /* cannot be steered: `reason` says why and what to do */
    VLLM_RPC_POISONED /* answers belong to other calls: hands off until the engine restarts */
};

struct vllm_rpc_options {
    const struct remote *remote; /* copied; its deadline is not: VLLM_RPC_DEADLINE_MS */
    /* Called from the rpc's thread. severity "info" "warning" "error"; kind "rpc" or "estimator".
     */
    void (*event)(void *state, const char *severity, const char *kind, const char *text);
    void *state;
};

struct vllm_rpc_view { /* what is known now */
    enum vllm_rpc_state state;
    char reason[400];         /* READY: empty, or why the last command failed */
    bool open;                /* dev mode can be reached without a key beyond loopback */
    int ranks;                /* 0 = unknown */
    int64_t pending_since_ms; /* UTC, of the call on its way; 0 = none */
    bool commanding;          /* a command is queued or on its way */
    bool busy;                /* that, or a tick is not worked off yet */
    enum mode mode;           /* fixed or adaptive, as every rank reads back; else unknown */
    int64_t generation;       /* of the extension: one a command */
    bool trimtab_fits;        /* coefficients in force are trimtab's, the engine's refit is held */
    bool trimtab_wanted;      /* what vllm_rpc_set_estimator was asked for last */
    int64_t fit_refits, fit_labels; /* what trimtab's own fit has seen, for taking over */
    int64_t read_ms;                /* UTC, of the last good reading; 0 = never */
};

/* Does not connect. NULL with *cause. */
struct vllm_rpc *vllm_rpc_new(const struct vllm_rpc_options *options, char **cause);
/* Ends a call on its way at once; hands the refit back to the engine first where trimtab held it
 * and the engine answers within two seconds (else the extension does so by itself within a minute).
 * NULL-safe. */
void vllm_rpc_free(struct vllm_rpc *rpc);

/* Once a scrape while the engine answers: probe when that is due, read when it is ready (at most
 * once a second). Never blocks. */
void vllm_rpc_tick(struct vllm_rpc *rpc);
/* The engine is another process now (its counters began anew): forget everything, probe again. */
void vllm_rpc_restarted(struct vllm_rpc *rpc);

/* The engine says that it is not well: what was put in force there is put back, with an event.
 * Never blocks. */
void vllm_rpc_unwell(struct vllm_rpc *rpc);

void vllm_rpc_look(struct vllm_rpc *rpc, struct vllm_rpc_view *out);
/* Fills what only the extension knows: mode, switching, estimator.* (the coefficients in force; of
 * trimtab's own fit where it fits, with its standard errors), admitted_total, verified_total
 * (drafts admitted; the engine's padding is not counted), budget. Leaves the snapshot alone where
 * nothing is known. */
void vllm_rpc_fill(struct vllm_rpc *rpc, struct snapshot *out);

enum vllm_rpc_outcome {
    VLLM_RPC_DONE = 0,    /* read back from every rank */
    VLLM_RPC_PENDING = 1, /* on its way still; vllm_rpc_look tells the end */
    VLLM_RPC_REFUSED = -1 /* *cause (malloc'd) says why */
};

/* MODE_FIXED verifies every draft, MODE_ADAPTIVE puts the engine's own cost tables back; other
 * modes are refused. Waits wait_ms at most. */
enum vllm_rpc_outcome vllm_rpc_set_mode(struct vllm_rpc *rpc, enum mode mode, int wait_ms,
                                        char **cause);
/* Whose fit predicts: trimtab's `online` written into the engine (its own refit held off), or the
 * engine's, which goes on from the coefficients in force. Waits wait_ms at most. */
enum vllm_rpc_outcome vllm_rpc_set_estimator(struct vllm_rpc *rpc, bool trimtab, int wait_ms,
                                             char **cause);

#endif
