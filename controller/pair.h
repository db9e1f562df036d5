/* pair.h - a target and, where there is one, the draft model that drafts for it: opened with
 * contexts of the sizes that the loop needs, and checked to fit each other.
 */
#ifndef CONTROLLER_PAIR_H
#define CONTROLLER_PAIR_H

#include <stdbool.h>

#include "controller/cost.h"
#include "controller/lm.h"

struct pair_options {
    const char *target, *draft; /* GGUF files; draft may be NULL */
    const char *device;
    int parallel, max_draft;
    int context, threads; /* 0 = as lm_options says */
    bool exact;
    void (*progress)(void *state, const char *what, double done); /* 0..1; may be NULL */
    void *state;
};

struct pair {
    struct lm *target, *draft;
};

/* 0; or -1 with *cause: a model that cannot be loaded, a draft with another vocabulary or with
 * memory that cannot be rolled back. pair_close is harmless then. */
int pair_open(struct pair *pair, const struct pair_options *options, char **cause);
/* The same with contexts of its own over the models of `owner`, which outlives it. */
int pair_share(struct pair *pair, const struct pair *owner, const struct pair_options *options,
               char **cause);
void pair_close(struct pair *pair);

/* An empty cost model with room for every batch of a loop of this size; NULL when out of memory. */
struct cost_model *pair_cost_new(int parallel, int max_draft);

#endif
