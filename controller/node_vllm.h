/* node_vllm.h - a node that is an engine in another process: vLLM, or any other whose metrics
 * engine_table.h knows. Watched through HTTP (tier 0); a vLLM with trimtab's worker extension is
 * steered too (tier 1, vllm_rpc.h).
 */
#ifndef CONTROLLER_NODE_VLLM_H
#define CONTROLLER_NODE_VLLM_H

#include "controller/fetch.h"
#include "controller/node.h"

#define NODE_VLLM_INTERVAL_MS 1000

struct scraper;
struct store;

struct node_vllm_options {
    const char *id;
    const struct remote *remote; /* copied */
    int interval_ms;             /* between two readings of its metrics */
    struct store *store;         /* may be NULL; outlives the node */
    struct scraper *scraper;     /* outlives the node */
};

/* Returns at once; the scraper's thread does the rest. NULL with *cause. */
struct node *node_vllm_open(const struct node_vllm_options *options, char **cause);
/* Ask it no more and end its run in the store; the node stays, for those who hold it still, until
 * its close. */
void node_vllm_retire(struct node *node);

#endif
