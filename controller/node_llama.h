/* node_llama.h - the node that generates in this process: loads a model pair, profiles its costs,
 * runs the loop. */
#ifndef CONTROLLER_NODE_LLAMA_H
#define CONTROLLER_NODE_LLAMA_H

#include <stdbool.h>

#include "controller/node.h"
#include "controller/policy.h"

struct store;

struct node_llama_options {
    const char *id, *model;
    const char *draft; /* draft model file, or NULL */
    const char *device;
    int parallel, context, threads, max_draft, queue, prefill_chunk;
    bool exact;
    struct policy policy;
    struct store *store;   /* may be NULL; outlives the node */
    const char *cache_dir; /* where the cost profile is kept; NULL = not kept */
    const char *state_dir; /* where the estimators are kept across restarts; NULL = not kept */
    const char *record;    /* JSON Lines of every step, or NULL */
    void (*progress)(const char *what,
                     double done); /* loading and profiling, 0..1; any thread; may be NULL */
};

/* Returns at once; a thread loads the models. Strings are copied. NULL with *cause when memory is
 * out. */
struct node *node_llama_open(const struct node_llama_options *options, char **cause);
/* Wait until it serves or failed to start: 0, or -1 with *cause. */
int node_llama_wait(struct node *node, char **cause);

#endif
