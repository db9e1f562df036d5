/* policy.h - what an operator may change on a running node: the mode and the settings, checked as a
 * whole. */
#ifndef CONTROLLER_POLICY_H
#define CONTROLLER_POLICY_H

#include <jansson.h>
#include <stdbool.h>

#include "controller/loop.h"
#include "controller/snapshot.h"
#include "kernels/trimtab.h"

struct policy {
    enum mode mode;
    int max_draft;   /* K in use, 1 .. the K the node was opened with */
    int fixed_draft; /* uniform K of mode fixed; 0 = the best of the cost table when the mode is
                        entered */
    bool exploration;
    enum tt_estimator_kind estimator;
    int refit_interval_steps; /* 0 = the estimator's own */
    double min_gain;          /* least predicted gain before a plan regime is left */
    enum draft_choice draft;
};

/* Change `policy` by the members of a settings object that it names (`expect_generation` and
 * `reason` are passed over). All or none: 0, or -1 with *cause naming the member that is unknown,
 * of a wrong type or out of range. */
int policy_change(struct policy *policy, const json_t *settings, int opened_max_draft,
                  bool has_draft_model, char **cause);
/* A caller expected (>= 0) another generation than the present one: true with *cause. */
bool policy_conflict(int64_t expect, int64_t generation, char **cause);
/* New object with every setting (not the mode). */
json_t *policy_to_json(const struct policy *policy);
const char *estimator_name(enum tt_estimator_kind kind);
bool estimator_parse(const char *name, enum tt_estimator_kind *kind);

#endif
