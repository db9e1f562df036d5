/* node_llama_open.h - the llama node's start: models, cost profile and its cache; and its snapshot.
 * Internal to the node. */
#ifndef CONTROLLER_NODE_LLAMA_OPEN_H
#define CONTROLLER_NODE_LLAMA_OPEN_H

#include <stddef.h>

#include "controller/node_llama_state.h"

/* Load target and draft, check that they fit, open the record. 0, or -1 with *cause. */
int llama_open_models(struct llama_node *node, char **cause);
/* Costs from the cache, or measured now and cached. 0, or -1 with *cause. */
int llama_open_costs(struct llama_node *node, char **cause);
void llama_open_save_costs(struct llama_node *node);
/* Estimators from the last run on the same pair, if it left any; and keeping them. The loop's
 * thread. */
void llama_open_learned(struct llama_node *node);
void llama_open_save_learned(struct llama_node *node);

/* node_llama_snapshot.c */
void llama_node_snapshot(struct node *node, struct snapshot *out);

#endif
