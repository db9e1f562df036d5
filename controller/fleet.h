/* fleet.h - the engines in other processes that the configuration names: one vllm node each, and
 * the thread that asks them all.
 *
 * One thread (the daemon's main) calls this. A node that is taken out of the configuration is
 * retired at once, and freed with the fleet: a client may still hold it.
 */
#ifndef CONTROLLER_FLEET_H
#define CONTROLLER_FLEET_H

#include "controller/configuration.h"
#include "controller/node.h"

struct fleet;
struct server;
struct store;

struct fleet *fleet_new(struct store *store, char **cause); /* store may be NULL; outlives it */
void fleet_free(struct fleet *fleet);                       /* after the server. NULL-safe */

/* Watch these nodes and no others: those that are as before go on undisturbed. `server` learns of
 * new ones; NULL before it runs (fleet_node hands them out then). -1 with *cause (a key that cannot
 * be read, no memory): nothing has changed, or not all was added. */
int fleet_apply(struct fleet *fleet, const struct configured_node *nodes, int count,
                struct server *server, char **cause);
int fleet_count(const struct fleet *fleet); /* of the present nodes */
struct node *fleet_node(const struct fleet *fleet, int i);

#endif
