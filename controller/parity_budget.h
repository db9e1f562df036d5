/* parity_budget.h - the budget rule that vLLM released with the estimator `parity`: cost tables,
 * the choice of how many drafts to verify, the host's even split, and which confidences (of which
 * age) a step reads.
 *
 * Kept for reproduction and comparison only: the replay runs it beside the planner (policy
 * `parity`); trimtabd does not plan with it.
 *
 * Source: vLLM pull request 47808; numbers of a real run in tests/kernels/data/vectors.
 */
#ifndef CONTROLLER_PARITY_BUDGET_H
#define CONTROLLER_PARITY_BUDGET_H

#include <stddef.h>
#include <stdint.h>

/* One measured cost: `size` tokens (or requests) take `ms`. */
struct parity_cost_point {
    int32_t size;
    double ms;
};

/* Fill table[0 .. entries-1] from a curve of `points` >= 1 sizes in increasing order. Costs are
 * first made monotone (running maximum). Up to capture_limit (0 = everywhere) a size costs what the
 * next measured size does, because captured graphs are padded; above it, between measured sizes,
 * linear; beyond the last, the last two's line. */
void parity_table_build(const struct parity_cost_point *curve, size_t points, int32_t capture_limit,
                        double *table, size_t entries);

struct parity_budget_request {
    const float *confidence; /* (rows, positions) the stale ones */
    size_t rows, positions;
    const int32_t *drafted;     /* (rows) drafts scheduled */
    int64_t base_tokens;        /* tokens of the batch that are not drafts */
    int64_t sampling_requests;  /* requests that finish prefill or decode in this step */
    int64_t max_logits;         /* cap on rows of logits; negative = none */
    const double *draft_table;  /* (draft_entries) */
    const double *verify_table; /* (verify_entries) */
    size_t draft_entries, verify_entries;
};

/* How many drafts to verify: the first maximum over n of (sampling requests + sum of the best n
 * survivals) / (draft[rows] + verify[base + n]). scratch is (rows * positions). Negative when the
 * tables do not cover the batch. */
int64_t parity_budget_choose(const struct parity_budget_request *request, double *scratch);

/* The host's guess of each request's verified tokens: its drafts when all are admitted, else the
 * budget spread evenly over the requests that drafted, earlier rows first. tokens is (rows). */
void parity_budget_split(const int32_t *drafted, const int32_t *non_draft, size_t rows,
                         int64_t budget, int32_t *tokens);

/* Confidences by slot: the allocation of a step reads what was published last, its budget what had
 * been published two steps before. A new slot reads 1.0 for both until its own arrive. */
struct parity_confidences {
    size_t slots, positions;
    float *latest, *previous; /* (slots, positions) */
    int64_t *latest_step;     /* (slots) step that published `latest` */
    int64_t step;             /* the step under way */
};

/* Storage for `slots` * `positions`; all zero on failure (-1). */
int parity_confidences_init(struct parity_confidences *store, size_t slots, size_t positions);
void parity_confidences_free(struct parity_confidences *store);
void parity_confidences_add(struct parity_confidences *store, size_t slot); /* a new request's */
const float *parity_confidences_for_budget(const struct parity_confidences *store, size_t slot);
const float *parity_confidences_for_allocation(const struct parity_confidences *store, size_t slot);
void parity_confidences_publish(struct parity_confidences *store, size_t slot,
                                const float *confidence);
void parity_confidences_end_step(struct parity_confidences *store);

#endif
