/* node_replay.h - a node that decodes nothing: recorded texts under a virtual clock, planned by the
 * node's own planner and estimators, so that mode, settings, snapshot, store and console work as on
 * a live one. For demonstrations, planning and tests; its kind is "replay" wherever it is named.
 *
 * All its times are the virtual clock's, which runs `speed` times as fast as the wall's. At the end
 * of the last text the streams begin again with the first.
 */
#ifndef CONTROLLER_NODE_REPLAY_H
#define CONTROLLER_NODE_REPLAY_H

#include "controller/node.h"
#include "controller/policy.h"

struct store;

struct node_replay_options { /* texts are copied */
    const char *id;
    const char *trace;    /* a teacher-forced trace, of either form */
    const char *cost;     /* a table of costs, of any form */
    double speed;         /* virtual over wall time, > 0 */
    int concurrency;      /* 1 .. REPLAY_STREAMS */
    struct policy policy; /* its max_draft is cut to what the trace holds */
    struct store *store;  /* may be NULL; outlives the node */
};

/* NULL with *cause: a file that cannot be used, by its line. *warning (malloc'd): a trace that was
 * cut short. */
struct node *node_replay_open(const struct node_replay_options *options, char **warning,
                              char **cause);

#endif
