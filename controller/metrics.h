/* metrics.h - /metrics: what the nodes count, in Prometheus text.
 *
 * Speculation, requests and tokens carry vLLM's names, so that dashboards and load tools made for
 * it read trimtab too; what only trimtab knows is named trimtab_*. What a node does not know is
 * absent, never zero.
 */
#ifndef CONTROLLER_METRICS_H
#define CONTROLLER_METRICS_H

#include "controller/buffer.h"
#include "controller/snapshot.h"

struct exchange;

void metrics_handle(struct exchange *exchange);

/* The text for (count) snapshots; generates[i]: the node is this process's own engine, so that
 * vLLM's names are its. */
/* One family's header, and one sample with the labels of its node and perhaps one more. */
void metrics_put_header(struct buffer *out, const char *name, const char *type, const char *help);
void metrics_put_sample(struct buffer *out, const char *name, const struct snapshot *snapshot,
                        int engine, const char *label, const char *label_value, double value);

/* The text for (count) snapshots; generates[i]: the node is this process's own engine, so that
 * vLLM's names are its. */
void metrics_put(struct buffer *out, const struct snapshot *snapshots, const bool *generates,
                 int count);

#endif
