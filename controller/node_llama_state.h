/* node_llama_state.h - what node_llama.c and sampler.c share of the llama node. */
#ifndef CONTROLLER_NODE_LLAMA_STATE_H
#define CONTROLLER_NODE_LLAMA_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "controller/cost_cache.h"
#include "controller/node_llama.h"
#include "controller/node_report.h"
#include "controller/node_rows.h"
#include "controller/pair.h"
#include "controller/rates.h"
#include "storage/store.h"

enum node_phase { NODE_STARTING, NODE_SERVING, NODE_FAILED, NODE_LEAVING };

struct live_request { /* a row of the request table, copied after every step */
    uint64_t id;
    bool prefill, seeded;
    int64_t started_us;
    int prompt, emitted;
    uint64_t steps;
    enum drafter drafter;
    enum tt_rule rule;
    float temperature;
};

struct node_health { /* of a node that serves; reason empty = well */
    char reason[200], advice[160];
    int64_t since_ms;
};

struct llama_node {
    struct node node; /* first */
    struct node_llama_options options;
    char *model, *draft, *device, *cache_dir, *state_dir, *record;
    struct pair pair;
    struct cost_model *cost; /* the loop's thread */
    struct cost_cache cost_cache;
    struct loop *loop;
    int64_t run_id;
    FILE *record_file;            /* the loop's thread */
    struct regime_log regime_log; /* the loop's thread */
    pthread_t loop_thread, sampler_thread;
    bool loop_started, sampler_started;
    atomic_bool leaving; /* set with stop: ends the profile early */

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    enum node_phase phase;
    char *failure; /* why it failed to start */
    bool stop, draining;
    struct policy wish, force; /* asked for; in force in the loop */
    int64_t generation, force_generation;
    int fixed_draft; /* K in force in mode fixed, -1 otherwise */
    int running;
    struct live_request *live; /* (parallel) */
    int live_count;
    struct known_stratum stratum[STRATA_ESTIMATORS];
    int shown; /* stratum with the newest labels */
    struct rates rates;
    struct rates_effect effect;
    bool effect_known;
    int64_t started_us;
    double window_ms;
    struct node_health health; /* written by the sampler alone */
    /* A call that the loop's thread runs between two steps; see node_visit. */
    void (*visit)(struct llama_node *node, void *state);
    void *visit_state;
};

/* Run `visit` on the loop's thread between two steps and wait for it. False when the node is not
 * serving. */
bool llama_node_visit(struct llama_node *node, void (*visit)(struct llama_node *node, void *state),
                      void *state);
/* The second-by-second half: samples to the store, rates, health. Body of a thread. */
void *llama_node_sample(void *node);
/* Publish to readers what the loop knows (loop's thread). */
void llama_node_publish(struct llama_node *node);
void llama_node_event(struct llama_node *node, const char *severity, const char *kind,
                      const char *text);

#endif
