/* node_report.h - what a node that plans by itself (llama, replay) says of itself: the parts of its
 * snapshot and of its tables that come from the tally, the rates, the estimators and the costs.
 *
 * The vllm node uses what is as true of an engine elsewhere: the store and a change's effect.
 *
 * Pure: the caller holds whatever lock its arguments need.
 */
#ifndef CONTROLLER_NODE_REPORT_H
#define CONTROLLER_NODE_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "controller/cost.h"
#include "controller/planner.h"
#include "controller/rates.h"
#include "controller/snapshot.h"
#include "controller/tally.h"

struct store;

struct known_stratum { /* the estimator of a stratum after its last refit */
    bool known, rival_known;
    struct tt_estimator_report report, rival;
    int64_t last_drift_ms;
};

/* store may be NULL. */
void report_store(struct store *store, struct snapshot *out);
/* Totals since the start; after report_estimator, which says how many positions there are. */
void report_totals(const struct tally_counts *counts, struct snapshot *out);
/* Rates and means of the last RATES_WINDOW_S seconds, which go into *sum. */
void report_window(const struct rates *rates, struct snapshot *out, struct rates_second *sum);
/* strata is (STRATA_ESTIMATORS); shown: the one with the newest labels, -1 = none. */
void report_estimator(const struct known_stratum *strata, int shown, enum tt_estimator_kind kind,
                      int positions, const struct rates_second *sum, struct snapshot *out);
/* effect NULL = not known. */
void report_effect(const struct rates_effect *effect, struct snapshot *out);

/* {"strata":[…]}: the estimators of every known stratum with their bins. New object. */
json_t *report_calibration(const struct known_stratum *strata);
/* Cost cells, predicted tokens/s of every uniform K, error over the window. New object. */
json_t *report_cost(const struct cost_model *cost, const struct planner *planner, int max_draft,
                    const struct rates_second *window);

#endif
