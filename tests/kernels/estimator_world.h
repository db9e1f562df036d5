/* estimator_world.h - laws that draw features and outcomes of drafts, for judging estimators: known
 * exactly, moved by a script, seeded. */
#ifndef TESTS_KERNELS_ESTIMATOR_WORLD_H
#define TESTS_KERNELS_ESTIMATOR_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#define WORLD_POSITIONS 6

enum scenario {
    WELL_SPECIFIED,
    SOFT_LABELS,       /* the same, fitted to min(1, p/q) of the drawn token */
    WRONG_LINK,        /* not a logistic function of the feature */
    NEAR_CONSTANT,     /* the feature hardly varies */
    NEGATIVE_SLOPE,    /* a certain draft is accepted less often */
    MIXED_TEMPERATURE, /* two laws in one stratum, which nobody is told apart */
    POISONED,          /* 1 in 20 always rejected; 2 % of requests with a NaN feature */
    DRIFT,             /* the level falls by 0.8 for the middle third */
    STARVATION,        /* it falls by 2.5, and drafting stops being worth it */
    CRASH,             /* nothing is accepted for a tenth of the time */
    DEEP_COLLAPSE,     /* positions 3 and deeper fall by 2 for the middle third */
    RANDOM_WALK,       /* the level wanders all the time */
    SCENARIOS
};

extern const char *const scenario_name[SCENARIOS];

/* Whether the law has a slope and intercepts of the model's form, for intervals to cover. */
bool scenario_has_coefficients(enum scenario scenario);
/* Whether the law stands still, so that a drift alarm is false. */
bool scenario_is_stationary(enum scenario scenario);

/* splitmix64. */
struct generator {
    uint64_t state;
};
double generator_uniform(struct generator *g); /* in (0, 1) */
double generator_normal(struct generator *g);

struct world {
    enum scenario scenario;
    int steps;
    double slope, intercept[WORLD_POSITIONS];
    double level; /* current offset of all positions */
    double deep;  /* of positions 3 and deeper alone */
    struct generator generator;
};

/* One request's draft block of one step. */
struct draft_block {
    float feature[WORLD_POSITIONS]; /* as the estimators see it */
    float soft[WORLD_POSITIONS];
    /* What is to be known of it: P(position k accepted | reached, features), NaN features known. */
    double p[WORLD_POSITIONS];
    int matched; /* positions that would be accepted if all were admitted */
    double coin; /* in (0, 1), for the policy's own use */
};

void world_start(struct world *world, enum scenario scenario, int steps, uint64_t seed);
/* Move the law to step t, counted from 0. Returns true where it changes suddenly. */
bool world_step(struct world *world, int t);
void world_draw(struct world *world, struct draft_block *out);
/* The true intercept at feature 0. */
double world_intercept(const struct world *world, int position);

#endif
