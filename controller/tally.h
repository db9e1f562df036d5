/* tally.h - what the loop counted: totals since the node's start, added to once a step, copied by
 * whoever asks.
 *
 * The five counts are those of the glossary; every ratio is made from two copies by its reader.
 * Thread-safe.
 */
#ifndef CONTROLLER_TALLY_H
#define CONTROLLER_TALLY_H

#include <pthread.h>
#include <stdint.h>

#include "controller/strata.h"
#include "kernels/trimtab.h"

struct tally_position {
    int64_t reached, accepted;
    double predicted, squared_error, log_loss; /* sums over reached positions */
    int64_t graded;                            /* reached positions with a prediction */
};

struct tally_counts {
    int64_t drafts;                        /* blocks: one a request and step with drafts */
    int64_t accepted_at[TT_MAX_POSITIONS]; /* accepted drafts by position */
    int64_t steps, drafted, admitted, verified, accepted, emitted, target_rows, prompt_tokens,
        requests, failed, cancelled;
    double draft_ms, verify_ms, own_ms, step_ms; /* sums over steps */
    double planned_tokens, planned_ms;           /* sums over steps with a plan */
    struct tally_position position[TT_MAX_POSITIONS];
};

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
