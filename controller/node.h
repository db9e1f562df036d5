/* node.h - one speculating engine that trimtab watches and steers: llama (in this process), vllm
 * (remote), replay.
 *
 * A node runs by itself once opened; these calls come from other threads and never wait for a step.
 * What a node lacks is a capability bit that is off, with a reason in words; never faked.
 */
#ifndef CONTROLLER_NODE_H
#define CONTROLLER_NODE_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "controller/request.h"
#include "controller/snapshot.h"

struct node;
struct lm;

enum { NODE_CAN_SET_MODE = 1, NODE_CAN_SET = 2, NODE_CAN_GENERATE = 4 };

struct node_actor {  /* who asks, for the decision log */
    char who[48];    /* "uid 1000", "write token", "daemon" */
    char origin[64]; /* "socket", "tcp 127.0.0.1", "signal" */
};

enum node_status {
    NODE_OK = 0,
    NODE_CONFLICT = -1,
    NODE_INVALID = -2,
    NODE_UNABLE = -3,
    NODE_FULL = -4,
    NODE_DRAINING = -5,
    NODE_TOO_LONG = -6
};

struct node_ops {
    void (*snapshot)(struct node *node, struct snapshot *out);
    /* expect_generation < 0 = do not check. On NODE_OK and NODE_CONFLICT *generation is the present
     * one. *cause (malloc'd) explains everything but NODE_OK. */
    enum node_status (*set_mode)(struct node *node, enum mode mode, int64_t expect_generation,
                                 const char *reason, const struct node_actor *actor,
                                 int64_t *generation, char **cause);
    /* settings: an object of `max_draft fixed_draft exploration estimator refit_interval_steps
     * min_gain draft`; all or none are applied. */
    enum node_status (*set)(struct node *node, const json_t *settings, int64_t expect_generation,
                            const char *reason, const struct node_actor *actor, int64_t *generation,
                            char **cause);
    json_t *(*settings)(struct node *node); /* present settings; new object */
    json_t *(*requests)(struct node *node); /* live table; new array */
    json_t *(*cost)(struct node *node);     /* cost cells; new object */
    json_t *(*calibration)(
        struct node *node); /* estimators of every stratum with bins; new object */
    bool (*cancel)(struct node *node, uint64_t request_id); /* NULL: it cannot; false: none such */
    /* Queue one generation; the node takes its own reference. *cause explains a refusal (NODE_FULL,
     * NODE_TOO_LONG, …). */
    enum node_status (*submit)(struct node *node, struct request *request, char **cause);
    const struct lm *(*text)(
        struct node *node);           /* tokenizer and template; NULL when it cannot generate */
    void (*drain)(struct node *node); /* accept no more; finish what runs */
    bool (*idle)(struct node *node);
    void (*close)(struct node *node); /* stop now; frees */
};

struct node {
    const struct node_ops *ops;
    char id[SNAPSHOT_NAME];
    unsigned
        capabilities;   /* of its kind; what it can do now, and why not more, its snapshot says */
    atomic_bool hidden; /* taken out of the configuration: not listed any more */
};

#endif
