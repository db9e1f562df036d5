/* replay.h - teacher-forced traces under a virtual clock: what a policy would have made of recorded
 * text.
 *
 * `concurrency` streams walk through the texts, each from a place of its own, as arrivals do. Time
 * comes from a cost model and nowhere else, so that a run is deterministic. The policies:
 *
 *     REPLAY_PLANNER  the node's own: planner, strata and estimator, in any mode (adaptive, off,
 *                     fixed K, shadow)
 *     REPLAY_PARITY   vLLM's: every draft made, the estimator `parity`, the budget rule as released
 *                     (parity_budget.h), its tables taken from the clock at every size
 *     REPLAY_ORACLE   told before a step how many drafts each request would accept; takes the
 *                     admissions that make the most of tokens - lambda ms. docs/replay.md says what
 *                     this bounds and what it does not
 *
 * Single-threaded; no allocation in a step.
 */
#ifndef CONTROLLER_REPLAY_H
#define CONTROLLER_REPLAY_H

#include <stdbool.h>

#include "controller/cost.h"
#include "controller/planner.h"
#include "controller/strata.h"
#include "controller/tally.h"
#include "controller/trace.h"

#define REPLAY_STREAMS 1024       /* most streams */
#define REPLAY_CELLS_A_STREAM 128 /* KV cells that each holds: the context of the tables */

enum replay_policy { REPLAY_PLANNER, REPLAY_PARITY, REPLAY_ORACLE };

struct replay;

struct replay_options {
    const struct trace_set *traces; /* at least one text; outlives the replay */
    const struct cost_model *cost;  /* the clock; outlives the replay */
    /* With noise or wander: the cost model that the planner reads and learns in. NULL = the clock's
     * own. */
    struct cost_model *learned;
    int concurrency; /* 1 .. REPLAY_STREAMS */
    enum replay_policy policy;
    enum mode mode;                 /* REPLAY_PLANNER */
    struct planner_options planner; /* max_draft at most the set's depth; max_requests is ignored */
    enum tt_estimator_kind estimator;
    int refit_interval_steps; /* 0 = the kind's own */
    double lambda;            /* REPLAY_ORACLE: tokens per ms that time is worth */
    double own_ms;            /* trimtab's own work in a step with drafts, beside the table's own */
    int catch_up; /* tokens that a draft model which lost its place reads again; 0 = no such cost */
    double
        noise; /* measured times scatter by this fraction, and one in 50 is three times as long */
    double wander; /* the machine is slower and faster for a second or two by this fraction, and
                      the target's forward once more over half a minute, as contexts grow and end */
    /* After a step in which an estimator did something (TT_STEP_* bits); NULL = nobody asks. */
    void (*refitted)(void *state, int stratum, int bits);
    void *state;
};

/* NULL when memory is out. */
struct replay *replay_new(const struct replay_options *options);
void replay_free(struct replay *replay); /* NULL-safe */
/* One step of all streams; returns its virtual milliseconds. */
double replay_step(struct replay *replay);

struct replay_counts {
    struct tally_counts tally;
    long plain_steps, probes, explored, regime_changes;
    double probe_ms;
};
const struct replay_counts *replay_counts(const struct replay *replay);

/* Between steps; REPLAY_PLANNER. Returns the uniform K of mode fixed, else -1. */
int replay_set_mode(struct replay *replay, enum mode mode);
/* False when memory is out: nothing changed. */
bool replay_set_policy(struct replay *replay, const struct planner_options *planner,
                       enum tt_estimator_kind estimator, int refit_interval_steps);
struct planner *replay_planner(struct replay *replay);
const struct strata *replay_strata(const struct replay *replay);
struct tally *replay_tally(struct replay *replay); /* may be copied by another thread */

struct replay_stream { /* a row of the request table */
    int text, index, admitted, accepted;
    int stratum;
};
struct replay_stream replay_stream_at(const struct replay *replay, int stream);

/* From cold until every stream has gone `passes` times through as many tokens as the traces hold.
 * Tokens per ms; *counts if given. REPLAY_ORACLE looks for the lambda that reproduces itself. NaN
 * when memory is out. */
double replay_run(const struct replay_options *options, double passes,
                  struct replay_counts *counts);

#endif
