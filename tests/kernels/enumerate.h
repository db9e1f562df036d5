/* enumerate.h - a `choice` that visits every branch, for proving output laws exactly.
 *
 * Use:  struct enumerator e;
 *       enumerator_start(&e);
 *       while (enumerator_next(&e)) { run the code under test with &e.base; total[what came out] +=
 * enumerator_weight(&e); } assert_null(e.failure); The code runs once per path of the tree of its
 * choices; the weights of all paths sum to 1.
 *
 * A draw is a branch per index of positive weight, a coin one or two branches. Races of one token
 * index share their noise: the first is a draw; a second one, with other weights, is drawn from the
 * exact joint law of two exponential races given the first one's winner; one with weights raced
 * before has that winner again. Three different sets of weights at one token index are beyond it
 * (`failure` says so).
 */
#ifndef TESTS_KERNELS_ENUMERATE_H
#define TESTS_KERNELS_ENUMERATE_H

#include "kernels/choice.h"

#define ENUMERATOR_DEPTH_MAX 64
#define ENUMERATOR_OPTIONS_MAX 128
#define ENUMERATOR_RACES_MAX 32
#define ENUMERATOR_RACE_WIDTH_MAX 64

struct enumerator_branch {
    size_t count, taken;
    double probability[ENUMERATOR_OPTIONS_MAX]; /* (count) */
};

struct enumerator_race {
    uint64_t token_index;
    size_t count, winner;
    double law[ENUMERATOR_RACE_WIDTH_MAX]; /* (count) */
};

struct enumerator {
    struct choice base; /* first member */
    int started;
    size_t depth;    /* choices made on this path */
    size_t recorded; /* choices whose branch is prescribed */
    size_t races;
    const char
        *failure; /* NULL, or what the enumerator cannot do; its figures are then worthless */
    struct enumerator_branch branch[ENUMERATOR_DEPTH_MAX];
    struct enumerator_race race[ENUMERATOR_RACES_MAX];
};

void enumerator_start(struct enumerator *enumerator);
/* Begin the next path; 0 when all have been visited. */
int enumerator_next(struct enumerator *enumerator);
/* Probability of the path just run. */
double enumerator_weight(const struct enumerator *enumerator);

/* P(argmin E/q = i and argmin E/p = j) for exponential E shared by both; q and p (count) sum to 1.
 */
double enumerator_joint_race(const double *q, const double *p, size_t count, size_t i, size_t j);

#endif
