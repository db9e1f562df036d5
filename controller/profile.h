/* profile.h - the start-up cost profile: what target and draft forward passes of every schedulable
 * size cost here. */
#ifndef CONTROLLER_PROFILE_H
#define CONTROLLER_PROFILE_H

#include <stdatomic.h>

#include "controller/cost.h"
#include "controller/lm.h"

struct profile_options {
    struct lm *target, *draft; /* draft may be NULL; both hold no sequences */
    int parallel, max_draft;
    const atomic_bool *stop; /* give up when it becomes true */
    void (*progress)(void *state, int done, int all);
    void *state;
};

/* Measure into `cost`; leaves both contexts empty. On a busy machine the rounds are repeated, and
 * what stays unsteady is marked (cost_unsteady). 0, or -1 with *cause, which stays NULL when `stop`
 * ended it. */
int profile_costs(const struct profile_options *options, struct cost_model *cost, char **cause);

#endif
