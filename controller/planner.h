/* planner.h - how many tokens to draft and to verify in one step (algorithm 5): the argmax of value
 * over measured cost.
 *
 * Pure: no engine, no clock, no I/O; every random choice (exploration, probes) is drawn before the
 * step's first draft through tt_uniform(TT_EXPLORE), so that the law test enumerates this very
 * code. One step goes
 *
 *     planner_begin            the requests that decode in this step, and what else the batch holds
 *     while planner_draft(k)   decide whether depth k is worth a forward pass, for whom
 *         planner_admit(k)     q_k is known for all who are live: choose who keeps a draft,
 *                              before any x_k is drawn
 *     planner_end              what happened
 *
 * Decisions at depth k use survivals of depths < k and q_k, never x_k: admission is final at the
 * draw. Among equal survivals the smaller row wins. Candidates always include no drafts at all and
 * every uniform K.
 */
#ifndef CONTROLLER_PLANNER_H
#define CONTROLLER_PLANNER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "controller/cost.h"
#include "controller/snapshot.h"

#define PLANNER_MAX_STRATA 24

struct planner;

struct planner_options {
    int max_draft; /* K, 1 .. TT_MAX_POSITIONS */
    int max_requests;
    /* K of mode fixed, at most max_draft of it; 0 = the best uniform K of the cost table when the
     * mode is entered. */
    int fixed_draft;
    double min_gain;  /* least predicted relative gain before drafting is resumed, e.g. 0.01 */
    bool exploration; /* probes and exploration on */
    uint64_t key;     /* stream of the exploration choices */
};

struct planner_request { /* one decoding request of this step; row = its index */
    /* Most drafts it may take in this step (max_tokens, context, KV cells, batch, outputs; the
     * length of an n-gram proposal), >= 0. */
    int cap;
    int stratum; /* 0 .. PLANNER_MAX_STRATA - 1: (drafter, rule, temperature band) */
    /* Tokens the draft model must read before its first draft. 1 or 2: it is in step; more is
     * reading up, whose price is spread over the expected stay. */
    int catch_up;
    bool free_draft; /* its drafts cost no draft forward (n-gram) */
    /* (cap) Of a free draft: P(position accepted | reached), known before the step's first draw.
     * NULL = not known: the stratum's means stand in. Read by planner_begin only. */
    const double *known;
    int starved; /* first starved position of its estimator, or -1 */
};

/* NULL when out of memory. cost is only read, and outlives the planner. */
struct planner *planner_new(const struct planner_options *options, const struct cost_model *cost);
void planner_free(struct planner *planner);
/* Between steps; max_requests stays as it was. In modes fixed and shadow K is chosen anew. */
void planner_set_options(struct planner *planner, const struct planner_options *options);
/* Enter a mode (before a step). For MODE_FIXED and MODE_SHADOW chooses and returns the uniform K,
 * at least 1 (off is a mode of its own); else returns -1. */
int planner_set_mode(struct planner *planner, enum mode mode);
/* The uniform K acted on in modes fixed and shadow, else -1. */
int planner_fixed_draft(const struct planner *planner);

/* Should a request take the free draft (known predictions) in this step, rather than what the draft
 * model may propose? By expected value, before anything is drafted, from what was known before the
 * step; finished drafts are never compared. Between planner_end and planner_begin; count: requests
 * that will decode. Only where the mode decides; else, and in the warm-up, the model. */
bool planner_prefers_free(const struct planner *planner, const struct planner_request *model,
                          const struct planner_request *free_draft, int count);

/* base_tokens: target rows of the step without drafts (decode rows + prefill rows). step: the
 * step's number. finishing: prefill requests that will sample a token in this step. context_cells:
 * KV cells in use. */
void planner_begin(struct planner *planner, const struct planner_request *request, int count,
                   int base_tokens, int finishing, int context_cells, uint64_t step);

/* Run draft forward `depth`? Then *rows / the return value are the live requests (ascending rows);
 * 0 = stop drafting. */
int planner_draft(struct planner *planner, int depth, const int **rows);

/* probability[i]: P(position depth accepted | reached) of live request i (order of planner_draft's
 * rows). Fills admit[i] with 0 or 1. A probability of exactly 0 (a flagged draft row) is never
 * admitted, in any mode. Returns how many are admitted. Those are the live requests of the next
 * depth. */
int planner_admit(struct planner *planner, int depth, const double *probability, uint8_t *admit);

struct planner_outcome {
    /* (count) By request of planner_begin: drafts that carry labels, and how many of them were
     * accepted. A block cut at a stop is cut here too; 0 and 0 where a request gives no labels. */
    const int *admitted, *accepted;
    double draft_ms, verify_ms;
    double own_ms; /* the rest of the step, drafts or not: the difference is what drafting costs */
};
/* Learn from the step: forgotten mean acceptance per stratum and position, hysteresis, probe
 * budgets. */
void planner_end(struct planner *planner, const struct planner_outcome *outcome);

struct planner_report { /* of the step just planned; in shadow, of what adaptive would do */
    int drafted, admitted;
    double value, cost_ms; /* planned tokens; planned milliseconds */
    double lambda;         /* tokens per ms of the best candidate */
    /* "off", "fixed K", "adaptive", "warm-up", "probe", "explore"; valid until the next begin */
    const char *why;
    int regime; /* best uniform candidate: 0 = no drafts, K otherwise */
};
void planner_get_report(const struct planner *planner, struct planner_report *out);
/* Predicted tokens/ms of every uniform K (0 .. max_draft) for the decoding requests of the step
 * begun last; NaN = unknown. */
void planner_uniform(const struct planner *planner, double *tokens_per_ms, int capacity);
/* A change of regime since the last call: true with from, to and the numbers behind it. */
bool planner_take_change(struct planner *planner, int *from, int *to, double *predicted_gain);
struct planner_change {
    int from, to;           /* uniform K; 0 = no drafts */
    double gain;            /* predicted, or measured where measured_tps is known */
    double plain_tps;       /* predicted of no drafts, of the requests of that step */
    double draft_tps;       /* predicted of the best uniform K >= 1 */
    double measured_tps;    /* what drafting made; NaN unless that decided */
    double accepted_ratio;  /* of what the rule admitted, over what it expected; NaN = unknown */
    int steps, pause_steps; /* of the spell that ended; until the next may begin */
};
/* The numbers behind the change that planner_take_change gave last. */
const struct planner_change *planner_last_change(const struct planner *planner);

#endif
