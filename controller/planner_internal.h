/* planner_internal.h - inside of the planner, shared by planner.c (modes and the course of a step),
 * planner_regime.c (when to draft at all) and planner_value.c (how many). Nothing else includes it.
 */
#ifndef CONTROLLER_PLANNER_INTERNAL_H
#define CONTROLLER_PLANNER_INTERNAL_H

#include "controller/acceptance.h"
#include "controller/planner.h"
#include "kernels/trimtab.h"

enum plan_kind {
    PLAN_NONE,    /* no drafts */
    PLAN_UNIFORM, /* every request `depth` deep, everything admitted: fixed, warm-up, probe */
    PLAN_RULE,    /* depth by depth, where it pays */
};

struct row { /* one request of the step */
    struct planner_request request;
    double survival;    /* of the drafts admitted so far; 1 without any */
    double probability; /* prediction at the depth in hand */
    double worth;       /* what the strict order sorts by */
    double expected;    /* acceptances that the plan expects: the sum over what it admitted */
    double skipped; /* prediction of the first drafted position that was not admitted; NaN = none */
    int drafted, admitted; /* under the plan; in shadow as the plan would have it */
    int forced;            /* explore down to here, whatever it is worth */
    bool live;             /* the plan drafts it at the depth in hand */
    bool refused;          /* its draft row had no law: the block ends there */
    bool known; /* the chains below are of its own predictions; else the stratum's hold */
    double reach[TT_MAX_POSITIONS + 1], chain[TT_MAX_POSITIONS + 1];
};

struct stratum {
    struct acceptance acceptance;
    bool present; /* the chains are this step's */
    /* reach[k]: probability that k positions in a row are accepted; chain[k] = reach[1] + ... +
     * reach[k]: how many of k admitted ones to expect. */
    double reach[TT_MAX_POSITIONS + 1], chain[TT_MAX_POSITIONS + 1];
};

struct contender { /* a row of the order, as planner_value_best needs it */
    const double
        *chain; /* its own or its stratum's, from the first position that is not yet known */
    double start, scale;
    int left; /* drafts that its cap still allows */
    bool drafter;
};

struct candidate { /* a way to go on */
    double score;  /* tokens gained less lambda times the time taken; 0 = stop here */
    double value;  /* tokens gained */
    double ms;     /* time taken */
    int count;     /* requests to admit: a prefix of the order; 0 = none */
    int forward;   /* requests to draft for: a prefix of the order (depth 0 only) */
};

struct planner {
    struct planner_options options;
    const struct cost_model *cost;
    enum mode mode;
    int fixed_draft; /* K of modes fixed and shadow */
    struct stratum stratum[PLANNER_MAX_STRATA];

    /* this step */
    struct row *row; /* (max_requests) */
    int *live;       /* (max_requests) rows being drafted, ascending: what the caller sees */
    int *order;      /* (max_requests) rows by worth */
    double *lift;    /* (max_requests + PLANNER_GRID) */
    struct contender *contender; /* (max_requests) */
    int count, base_tokens, finishing, band;
    uint64_t step;
    enum plan_kind plan; /* in shadow: what adaptive would do; the caller follows fixed */
    int uniform_depth;   /* PLAN_UNIFORM */
    bool probing, exploring, warming;
    int live_count;
    int tokens;            /* target rows so far: base + admitted under the plan */
    double reading_now_ms; /* what the first draft forward of this step reads beyond its drafts */
    double draft_ms;       /* planned draft forwards so far */
    double lambda;         /* tokens per ms that time is worth */
    double plain_rate;     /* tokens per ms without drafts */
    /* by K, of the decode rows alone */
    double uniform_value[TT_MAX_POSITIONS + 1], uniform_ms[TT_MAX_POSITIONS + 1];
    int best_uniform;
    struct candidate first; /* the decision about depth 0 */

    /* memory */
    int labelled_steps, labelled_rows, warm_steps;
    bool drafting;                     /* regime: the draft model is in use */
    int contrary_steps;                /* consecutive steps that spoke against the regime */
    int regime, regime_contrary_steps; /* incumbent uniform K; 0 = off */
    int probe_steps, probe_depth;      /* a probe that goes on */
    double reading_each_ms; /* forgotten mean, a drafting step and request, of reading up */
    double spell_steps;     /* steps since the draft model was taken into use */
    double stay_steps;      /* how long that lasts, forgotten mean */
    /* Forgotten sums of rule steps: tokens without drafts, planned acceptances, and what the best
     * uniform K would have made. */
    double rule_base, rule_survival, rule_uniform;
    double accepted_sum, predicted_sum; /* forgotten: realised and planned acceptances */
    struct {
        double ms, weight; /* forgotten mean for one request, and how much it rests on */
    } own[2];              /* without and with drafts */
    int load;              /* requests of the last step that had any */
    double credit_ms;      /* time that probes and exploration may still take */

    struct planner_report report;
    char why[16];
    struct { /* what steps with drafts in use made, forgotten sums of this spell */
        double tokens, ms, plain_tokens, plain_ms; /* plain: what none would have */
        int steps;
    } record;
    int pause_steps; /* drafts were measured not to pay: none until these have passed */
    int next_pause_steps;

    bool changed; /* regime changed and nobody has asked yet */
    struct planner_change change;
};

/* What a draft model reads in its first forward while it keeps up: the last draft and the token
 * after it, when all were accepted. More is reading up. */
#define PLANNER_IN_STEP_TOKENS 2
#define PLANNER_GRID 16 /* room for fractions of a request in planner_value_best */

/* ---- planner_value.c ---- */
double planner_verify_ms(const struct planner *planner, int tokens);
/* Chains of a row: from its own predictions where they are known, else of its stratum. */
const double *planner_reach(const struct planner *planner, const struct row *row);
const double *planner_chain(const struct planner *planner, const struct row *row);
void planner_chain_known(struct row *row);
double planner_draft_ms(const struct planner *planner, int requests);
/* trimtab's own work in a step with or without drafts. What was never seen of one kind is taken
 * from the other. */
double planner_own_ms(const struct planner *planner, bool drafting);
/* The first draft forward for the first `count` rows of `order` (NULL: all rows with a cap).
 * Reading up is a forward of all the tokens that the draft model lacks; it serves `steps` steps. */
double planner_first_draft_ms(const struct planner *planner, const int *order, int count,
                              double steps);
/* Chains of every stratum of the step, value and cost of every uniform K, the best of them,
 * plain_rate and lambda. */
void planner_value_uniform(struct planner *planner);
double planner_uniform_rate(const struct planner *planner, int draft); /* tokens per ms */
int planner_best_drafting(const struct planner *planner);              /* the best uniform K >= 1 */
/* Tokens of uniform K = draft when every mean acceptance is as high as its evidence allows. */
double planner_hoped_value(const struct planner *planner, int draft);
/* Rows by worth, descending, equal ones by row: the strict order within one depth. */
void planner_sort(const struct planner *planner, int *order, int count);
/* The best way on for the first `count` rows of order at `depth`, looking one, two, ... depths
 * ahead. known: the predictions of this depth are there; otherwise expected ones are used and
 * forward_ms is charged. */
struct candidate planner_value_best(struct planner *planner, const int *order, int count, int depth,
                                    bool known, double forward_ms, double lambda);

/* ---- planner_regime.c ---- */
void planner_regime_init(struct planner *planner);
/* A mode that decides is entered; resuming: it comes from one that did not draft. */
void planner_regime_enter(struct planner *planner, bool resuming);
/* Choose the plan of this step: warm-up, none, probe or rule, with exploration. Sets plan, first,
 * order. */
void planner_choose(struct planner *planner);
/* Learn from a finished step. */
void planner_learn(struct planner *planner, const struct planner_outcome *outcome);

#endif
