/* tally.h - what the loop counted: totals since the node's start, added to once a step, copied by
 * whoever asks.
 *
 * The five counts are those of the glossary; every ratio is made from two copies by its reader. One
 * list names every counter, so that none is forgotten where copies are added or subtracted.
 * Thread-safe.
 */
#ifndef CONTROLLER_TALLY_H
#define CONTROLLER_TALLY_H

#include <pthread.h>
#include <stdint.h>

#include "controller/strata.h"
#include "kernels/trimtab.h"

/* Counts; of drafts: blocks, one a request and step with drafts; of priced_steps: those whose cost
 * was predicted and that carried no prefill. */
#define TALLY_COUNTS(X)                                                                            \
    X(steps)                                                                                       \
    X(drafts)                                                                                      \
    X(drafted)                                                                                     \
    X(admitted)                                                                                    \
    X(verified) X(accepted) X(emitted) X(target_rows) X(prompt_tokens) X(requests) X(failed)       \
        X(cancelled) X(priced_steps)
/* Sums over steps: times; planned_… over steps with a plan; predicted_ms, priced_ms and missed_ms
 * (predicted, measured, and the sum of |measured - predicted|) over priced steps. */
#define TALLY_SUMS(X)                                                                              \
    X(draft_ms)                                                                                    \
    X(verify_ms)                                                                                   \
    X(own_ms) X(step_ms) X(planned_tokens) X(planned_ms) X(predicted_ms) X(priced_ms) X(missed_ms)
/* Of one position: reached and accepted; graded: reached with a prediction, over which the sums
 * run. */
#define TALLY_POSITION_COUNTS(X) X(reached) X(accepted) X(graded) X(accepted_any)
#define TALLY_POSITION_SUMS(X) X(predicted) X(squared_error) X(log_loss)

#define TALLY_COUNT_FIELD(name) int64_t name;
#define TALLY_SUM_FIELD(name) double name;

struct tally_position {
    TALLY_POSITION_COUNTS(TALLY_COUNT_FIELD) /* accepted_any: labels or not */
    TALLY_POSITION_SUMS(TALLY_SUM_FIELD)
};

struct tally_counts {
    TALLY_COUNTS(TALLY_COUNT_FIELD)
    TALLY_SUMS(TALLY_SUM_FIELD)
    struct tally_position position[TT_MAX_POSITIONS];
};

/* sum += sign * more, field by field; sign is 1 or -1. */
static inline void tally_accumulate(struct tally_counts *sum, const struct tally_counts *more,
                                    int sign)
{
#define TALLY_ADD(name) sum->name += sign * more->name;
#define TALLY_ADD_POSITION(name) sum->position[k].name += sign * more->position[k].name;
    TALLY_COUNTS(TALLY_ADD)
    TALLY_SUMS(TALLY_ADD)
    for (int k = 0; k < TT_MAX_POSITIONS; k++) {
        TALLY_POSITION_COUNTS(TALLY_ADD_POSITION)
        TALLY_POSITION_SUMS(TALLY_ADD_POSITION)
    }
#undef TALLY_ADD
#undef TALLY_ADD_POSITION
}

struct tally_bin { /* hard outcomes of predictions in one tenth of [0, 1] */
    int64_t n;
    double sum_p, sum_y;
};

struct tally {
    pthread_mutex_t lock; /* guards all below */
    struct tally_counts counts;
    /* since the sampler took them last */
    struct tally_bin calibration[STRATA_ESTIMATORS][TT_MAX_POSITIONS][TT_CALIBRATION_BINS];
};

static inline void tally_init(struct tally *tally)
{
    pthread_mutex_init(&tally->lock, NULL);
    tally->counts = (struct tally_counts){0};
}

static inline void tally_copy(struct tally *tally, struct tally_counts *out)
{
    pthread_mutex_lock(&tally->lock);
    *out = tally->counts;
    pthread_mutex_unlock(&tally->lock);
}

#endif
