/* replay.h - teacher-forced traces under a virtual clock: what a policy would have made of recorded
 * text.
 *
 * A trace holds, for every index of an emitted text, the features of the draft model's greedy chain
 * from there and how much of it the text confirms, so that every policy can be replayed exactly
 * under the point-mass rule. Time comes from a cost table. The real planner and the real estimator
 * run; nothing else of the node does.
 */
#ifndef TESTS_CONTROLLER_REPLAY_H
#define TESTS_CONTROLLER_REPLAY_H

#include <stdbool.h>

#include "controller/cost.h"
#include "controller/snapshot.h"

#define REPLAY_DEPTH 6 /* drafts of a trace line */

struct replay_traces;

/* Read `DIR/KIND-tT.txt.gz`; several kinds append. False with a message on stderr. */
struct replay_traces *replay_traces_new(void);
bool replay_traces_add(struct replay_traces *traces, const char *path);
void replay_traces_free(struct replay_traces *traces);

struct replay_run {
    enum mode mode;
    int fixed_draft; /* MODE_FIXED */
    int concurrency;
    double passes; /* how often every stream goes through all texts */
    double own_ms; /* trimtab's own work in a step with drafts */
    int catch_up; /* tokens that a draft model which lost its place reads again; 0 = no such cost */
    double
        noise; /* measured times scatter by this fraction, and one in 50 is three times as long */
    /* With noise: the cost model that the planner reads, and learns in. Otherwise it reads the
     * clock's own. */
    struct cost_model *learned;
};

struct replay_result {
    double tokens_per_ms;
    long steps, tokens, drafted, admitted, accepted, probes, explored, plain_steps, regime_changes;
    double probe_ms, ms;
};

/* One run from cold. The cost model is only read. */
struct replay_result replay(const struct replay_traces *traces, const struct cost_model *cost,
                            const struct replay_run *run);

#endif
