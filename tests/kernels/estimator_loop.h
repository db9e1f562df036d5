/* estimator_loop.h - `online`, `parity` and an oracle that knows the law, each in a closed loop of
 * its own over the same drafts: the estimator decides how much is verified, and so which labels it
 * sees. */
#ifndef TESTS_KERNELS_ESTIMATOR_LOOP_H
#define TESTS_KERNELS_ESTIMATOR_LOOP_H

#include "kernels/trimtab.h"
#include "tests/kernels/estimator_world.h"

#define PLAYERS 3 /* online, parity, oracle */
#define ORACLE 2
#define RELIABILITY_BINS 10
#define INTERVALS (1 + WORLD_POSITIONS) /* the slope, and each intercept */

/* Ways of making `online` what it is not, to see what a part of it is worth. */
struct loop_options {
    double token_cost; /* of one more token, in steps of one token */
    bool explore;      /* starved positions are probed */
};

struct player_figures {
    double tokens, time; /* expected tokens emitted; their cost */
    double excess;       /* sum of KL(p || predicted), weighted by the chance to be reached */
    double weight;
    double gap[RELIABILITY_BINS]; /* sum of p - predicted by predicted probability */
    double recovery, recoveries;  /* steps until near the oracle again, summed over changes */
    bool unsound;                 /* a non-finite coefficient */
};

struct loop_figures {
    struct player_figures player[PLAYERS];
    /* `online`'s nominal 95 % intervals: those that held, and those judged */
    double covered[INTERVALS], judged[INTERVALS];
    double alarms, steps; /* drift alarms of `online` */
};

/* Run one seeded stream of `steps` steps with `requests` requests each, adding to *figures. */
void loop_run(enum scenario scenario, int requests, int steps, uint64_t seed,
              const struct loop_options *options, struct loop_figures *figures);

/* Share of the oracle's tokens per time that a player loses. */
double loop_regret(const struct loop_figures *figures, int player);
double loop_excess(const struct loop_figures *figures, int player); /* nats per 1000 labels */
double loop_ece(const struct loop_figures *figures, int player);
double loop_recovery(const struct loop_figures *figures, int player); /* steps; NaN: no change */
double loop_alarms(const struct loop_figures *figures);               /* in 10,000 steps */
/* Coverage of one interval; NaN where fewer than 20 were judged. */
double loop_coverage(const struct loop_figures *figures, int interval);

#endif
