/* node_rows.h - what a node that plans by itself (llama, replay) writes to the store. A store of
 * NULL takes nothing.
 */
#ifndef CONTROLLER_NODE_ROWS_H
#define CONTROLLER_NODE_ROWS_H

#include <stdint.h>

#include "controller/cost.h"
#include "controller/node.h"
#include "controller/policy.h"
#include "controller/rates.h"
#include "controller/tally.h"
#include "storage/store.h"

/* Who decided what no person asked for. */
extern const struct node_actor rows_planner_actor;

/* reason and numbers may be NULL. */
void rows_decision(struct store *store, int64_t run_id, const struct node_actor *actor,
                   const char *what, const char *before, const char *after, const char *reason,
                   const char *numbers);
/* run_id 0 = the daemon itself; numbers: a JSON object or NULL. */
void rows_event(struct store *store, int64_t run_id, const char *severity, const char *kind,
                const char *text, const char *numbers);
/* A decision for every setting that differs. */
void rows_settings(struct store *store, int64_t run_id, const struct node_actor *actor,
                   const struct policy *before, const struct policy *after, const char *reason);
struct regime_log {  /* of one planner; zeroed at first */
    int told;        /* K of the last decision that was written */
    int64_t told_ms; /* UTC; 0 = none yet */
};
/* Takes the planner's change of regime, if there is one: a decision, and an event where it fell
 * back to no drafts or came back from there. Between two depths it goes with the text, many times a
 * minute: of those changes one a minute is told. On the planner's thread. */
void rows_regime(struct store *store, int64_t run_id, struct planner *planner,
                 struct regime_log *log);

/* bits: TT_STEP_* of the step that refitted. */
void rows_refit(struct store *store, int64_t run_id, int stratum, int bits,
                const struct tt_estimator_report *report);
/* Cells that changed since the last call. */
void rows_costs(struct store *store, int64_t run_id, struct cost_model *cost);

void rows_sample(struct store *store, int64_t run_id, const struct rates_second *second, int queued,
                 int positions);
/* What was added to the bins since the last call. */
void rows_calibration(struct store *store, int64_t run_id, struct tally *tally, int positions);

#endif
