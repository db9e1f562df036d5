/* node_vllm_state.h - what the halves of the vllm node share: node_vllm.c answers callers,
 * node_vllm_read.c takes what the engine said. Internal to the node. */
#ifndef CONTROLLER_NODE_VLLM_STATE_H
#define CONTROLLER_NODE_VLLM_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "controller/engine_watch.h"
#include "controller/node_vllm.h"
#include "controller/rates.h"
#include "controller/scrape.h"
#include "controller/vllm_rpc.h"
#include "storage/store.h"

#define NODE_VLLM_WINDOW_S 5 /* of rates */
#define NODE_VLLM_STALE_S                                                                          \
    5.0 /* without news for so long (or three intervals) rates are unknown                         \
         */
#define NODE_VLLM_LONG_WINDOW_S 60 /* of those that move when a request ends, and of acceptance */

enum vllm_ask { ASK_VERSION, ASK_MODELS, ASK_HEALTH, ASK_METRICS };

struct vllm_node {
    struct node node; /* first */
    struct remote remote;
    int interval_ms;
    struct store *store;
    struct scraper *scraper;
    struct scrape_target *target; /* NULL once retired; the owner's thread */
    struct engine_page page;      /* being read; the scraper's thread */
    struct engine_watch *watch;   /* written by the scraper's thread, under the lock */

    _Atomic int64_t run_id; /* 0 = none; events come from more than one thread */

    pthread_mutex_t lock; /* guards all below, and `watch` */
    struct vllm_rpc *rpc; /* made when a vLLM is recognised; stays until close */
    enum vllm_ask asking;
    int64_t due_us;           /* when the metrics are due, monotonic */
    int64_t health_us;        /* when its health is due */
    int failures;             /* since the last answer */
    int64_t failed_ms;        /* UTC, of the first of them */
    char why[200];            /* of the last one */
    int wait_ms;              /* until the next try, after a failure */
    int64_t read_us, read_ms; /* of the last page; 0 = none yet */
    int64_t first_ms;         /* UTC, of the first page */
    char version[32], model[SNAPSHOT_NAME];
    char refused[200]; /* why /v1/models was not answered; empty = it was, or was not asked */
    bool ill;          /* /health says no */
    bool silent;       /* said that it does not speculate */
    bool retired;
    double owed_s;    /* of the seconds that were stored, less or more than went by */
    int64_t admitted; /* the extension's count at the last reading; -1 = unknown */
    struct coefficients_seen {
        int positions; /* 0 = none yet */
        bool trimtab;  /* whose */
        double slope, intercept[SNAPSHOT_MAX_POSITIONS];
        int64_t refits; /* stored of this run */
    } seen;
    struct rates *rates;        /* once it can be steered: what a change of mode did */
    struct rates_effect effect; /* of the last one */
    bool effect_known;
    int64_t restarts, restarted_ms;
    int64_t generation; /* changes of mode by us */
};

/* scrape_done of the node. */
void vllm_node_read(void *node, const struct fetch_answer *answer, struct scrape_next *next);
void vllm_node_event(struct vllm_node *node, const char *severity, const char *kind,
                     const char *text);
/* End the run in the store, if there is one. Under the lock. */
void vllm_node_end_run(struct vllm_node *node);
/* To the next whole; -1 for one that the engine does not tell. */
int64_t vllm_node_count(double value);
/* Is that long without news? */
bool vllm_node_is_stale(const struct vllm_node *node, double age_s);
/* Seconds of the window that rates are made over. */
double vllm_node_window_s(const struct vllm_node *node);

#endif
