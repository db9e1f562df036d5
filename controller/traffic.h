/* traffic.h - how the generations of /v1 went, seen from the front: their ends, and how long
 * clients waited.
 *
 * One record a node. Thread-safe; recording takes a lock for a few additions.
 */
#ifndef CONTROLLER_TRAFFIC_H
#define CONTROLLER_TRAFFIC_H

#include <stdbool.h>

#include "controller/buffer.h"
#include "controller/request.h"
#include "controller/snapshot.h"

struct traffic;

struct traffic *traffic_new(int nodes);     /* NULL when out of memory */
void traffic_free(struct traffic *traffic); /* NULL-safe */

/* `seconds` from the arrival of the body. */
void traffic_add_first_token(struct traffic *traffic, int node, double seconds);
/* REQUEST_RUNNING: the client left. */
void traffic_add_end(struct traffic *traffic, int node, enum request_finish finish, double seconds);

/* Prometheus text under vLLM's names, for the nodes that generate. */
void traffic_put(struct buffer *out, struct traffic *traffic, const struct snapshot *snapshots,
                 const bool *generates, int count);

#endif
