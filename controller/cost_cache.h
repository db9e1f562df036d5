/* cost_cache.h - the costs of a model pair on this machine: from the cache on disk when everything
 * that they depend on is the same, else measured now. The daemon and `trimtab bench cost` share it.
 */
#ifndef CONTROLLER_COST_CACHE_H
#define CONTROLLER_COST_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "controller/cost.h"
#include "controller/pair.h"

struct cost_cache_options {
    const struct pair *pair; /* open, without sequences */
    const char *device;      /* as asked for; NULL = auto */
    int threads, parallel, max_draft;
    bool exact;
    bool fresh;              /* measure even when the cache has them */
    const char *dir;         /* NULL = keep nothing */
    const atomic_bool *stop; /* give up measuring when it becomes true; may be NULL */
    void (*progress)(void *state, int done, int all); /* may be NULL */
    void *state;
};

struct cost_cache {
    char key[512];   /* everything that a measured cost depends on */
    char path[4096]; /* the file; empty = nothing is kept */
    bool found;      /* the costs came from it */
};

/* A new cost model in *cost, the caller's, and where it is kept. Measured costs are saved, unless
 * the machine was busy (cost_unsteady). 0, or -1 with *cause, NULL when `stop` ended it; *cost is
 * then NULL. A file that cannot be written is no failure: *warning (malloc'd) says so. */
int cost_cache_open(const struct cost_cache_options *options, struct cost_model **cost,
                    struct cost_cache *cache, char **warning, char **cause);
/* Keep what was learned since. False with *cause; true when nothing is to be kept. */
bool cost_cache_save(const struct cost_cache *cache, const struct cost_model *cost, char **cause);

/* "AMD EPYC, 2 processors" */
void cost_cache_hardware(char *out, size_t size);

#endif
