/* verify_core.h - the decisions of speculative verification, apart from where the laws come from.
 *
 * tt_verify_core walks one request's block: it reaches a row, accepts or rejects, and draws the
 * token that ends the step. It asks a `verify_law` about probabilities and takes every random
 * choice through a `choice`. tt_verify gives it fp32 rows and Philox streams; the law tests give it
 * double-precision tables and an enumerator. Sources: speculative sampling, arXiv 2211.17192
 * (theorem 1) and 2302.01318; coupled sampling, arXiv 2408.07978.
 *
 * Internal to the project: installed nowhere, linked through kernels/libtrimtab_core.la.
 */
#ifndef KERNELS_VERIFY_CORE_H
#define KERNELS_VERIFY_CORE_H

#include "kernels/choice.h"

/* What `reach` found. Negative values are enum tt_status and end the call. */
enum verify_reached {
    VERIFY_READY = 0,
    VERIFY_TARGET_FLAGGED = 1, /* the target row has no law */
    VERIFY_DRAFT_FLAGGED =
        2, /* the draft row has no law: the block ends before it, as if never admitted */
};

/* What is drawn from target row k. */
enum verify_remainder {
    VERIFY_WHOLE = 0,    /* p */
    VERIFY_WITHOUT = 1,  /* p without one token, renormalised */
    VERIFY_RESIDUAL = 2, /* max(p - q, 0), renormalised; p where it is zero everywhere */
};

/* The rows of one block as the core sees them; k is the position, k = admitted is the bonus row.
 * Nothing but `reach` is called for a row that was not reached. */
struct verify_law {
    void *context;
    /* with_draft: the draft law of position k is going to be used too (ratio rule, k < admitted).
     */
    int (*reach)(void *context, int32_t k, int with_draft);
    int32_t (*mode)(void *context, int32_t k);
    double (*target)(void *context, int32_t k, int32_t token);
    double (*draft)(void *context, int32_t k, int32_t token);
    int32_t (*draw)(void *context, int32_t k, enum verify_remainder remainder, int32_t without,
                    struct choice *choice, const struct choice_site *site);
    int32_t (*race)(void *context, int32_t k, struct choice *choice, uint64_t token_index);
};

struct verify_task {
    enum tt_rule rule;
    const int32_t *tokens; /* (admitted); a -1 ends the block there */
    int32_t admitted;      /* 0 .. TT_MAX_POSITIONS */
    uint64_t token_index;  /* of the token at position 0 */
};

/* Decide one block. Returns 0, or the negative status that `reach` returned. */
int tt_verify_core(const struct verify_task *task, const struct verify_law *law,
                   struct choice *choice, struct tt_verdict *out);

/* The laws as plain tables in double precision. Rows sum to 1; a row with a NaN is flagged. */
struct verify_tables {
    const double *p; /* (admitted + 1, vocab) target */
    const double
        *q; /* (admitted, draft_vocab) draft, ratio rule only; q = 0 for token >= draft_vocab */
    size_t vocab, draft_vocab;
};

/* tt_verify_core over tables. Vocabularies up to VERIFY_TABLE_VOCAB_MAX; TT_ELIMIT beyond. */
#define VERIFY_TABLE_VOCAB_MAX 64
int tt_verify_tables(const struct verify_task *task, const struct verify_tables *tables,
                     struct choice *choice, struct tt_verdict *out);

#endif
