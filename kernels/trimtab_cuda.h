/* trimtab_cuda.h - what libtrimtab offers to an engine whose logits, features and verdicts are in
 * the memory of a CUDA device: calls that only enqueue work on a stream.
 *
 * Conventions
 *   As trimtab.h, and: every pointer inside a task struct points to device memory; the structs
 *   themselves are the caller's, read before the call returns. `stream` is a cudaStream_t, or NULL
 *   for the handle's own. A call that takes a stream enqueues kernels alone: it allocates nothing,
 *   copies nothing, waits for nothing, branches on nothing that a step changes, and so can be
 *   captured into a graph. An error of the device shows at the next call that waits.
 *   The handle is one opened with backend "cuda".
 */
#ifndef TRIMTAB_CUDA_H
#define TRIMTAB_CUDA_H

#include "trimtab.h"

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__) && __GNUC__ >= 4
#pragma GCC visibility push(default)
#endif

/* --------------------------------------------------------------------------- rows and verification
 *
 * Row statistics, draws and verdicts have the bits of the CPU's. A batch may have as many rows as
 * the handle's max_rows; a step as many as max(max_rows, 33), counting positions + 1 rows a
 * request. TT_ELIMIT beyond, TT_EINVAL for shapes that cannot be, TT_ENOTSUP when the handle has no
 * device, TT_EDEVICE when it has failed. The handle's workspace serves one stream at a time. */

/* Logits on the device. 16-byte (fp32) or 8-byte aligned rows are read fastest. */
struct tt_cuda_rows {
    const void *data; /* (rows, vocab), rows `stride` elements apart */
    enum tt_dtype dtype;
    size_t rows, vocab, stride;
    const float *inverse_temperature; /* (rows), each positive and finite, or NULL for 1 */
};

/* tt_row_statistics and tt_feature for a batch (two launches). stats (rows); feature (rows) clamped
 * to +-clamp, or NULL. */
int tt_cuda_row_statistics(tt *handle, const struct tt_cuda_rows *rows, struct tt_row_stats *stats,
                           float *feature, float clamp, void *stream);

/* Where the draws of a batch come from; see tt_sample. */
struct tt_cuda_sites {
    const uint64_t *key, *token_index; /* (rows) */
    const uint32_t *position;          /* (rows), or NULL for 0 */
    enum tt_purpose purpose;           /* not heeded by the coupled draw */
};

/* tt_sample for a batch, statistics included (three launches). tokens (rows), -1 for a flagged row;
 * stats (rows) and feature (rows) receive the statistics, or are NULL. */
int tt_cuda_sample(tt *handle, const struct tt_cuda_rows *rows, const struct tt_cuda_sites *sites,
                   int32_t *tokens, struct tt_row_stats *stats, float *feature, float clamp,
                   void *stream);
/* tt_sample_coupled for a batch (four launches); as tt_cuda_sample. */
int tt_cuda_sample_coupled(tt *handle, const struct tt_cuda_rows *rows,
                           const struct tt_cuda_sites *sites, int32_t *tokens,
                           struct tt_row_stats *stats, float *feature, float clamp, void *stream);

/* In a verdict's flags: a number or a token of the request was out of range; it was left alone:
 * accepted 0, next -1, no labels. */
enum { TT_REQUEST_REFUSED = 4 };

/* One ragged step: `requests` blocks of up to `positions` drafts each; see struct tt_block. Every
 * pointer is to device memory. */
struct tt_cuda_step {
    size_t requests, positions; /* R; K, 0 .. TT_MAX_POSITIONS */
    /* (R) enum tt_rule, or NULL: `all_rule` for all. `rules` has bit 1 << rule set for every rule
     * that may occur in this step, or in any replay of a graph captured from it; 0 = for all four.
     */
    const int32_t *rule;
    enum tt_rule all_rule;
    uint32_t rules;
    /* (target rows, vocab) fp32 logits. Request r has rows first_row[r] .. first_row[r] +
     * admitted[r]; first_row NULL: row r * (positions + 1) is its first. */
    float *target;
    size_t target_stride, vocab;
    const int32_t *first_row; /* (R) */
    /* TT_RATIO: (R, positions) rows of draft logits, draft_stride apart; draft_stats (R, positions)
     * at the request's temperature, or NULL: computed */
    const float *draft;
    size_t draft_stride, draft_vocab;
    const struct tt_row_stats *draft_stats;
    const int32_t *tokens;       /* (R, positions); a -1 is padding and ends the block there */
    const int32_t *admitted;     /* (R) */
    const float *temperature;    /* (R) 0 with TT_GREEDY, > 0 otherwise */
    const uint64_t *key;         /* (R) the requests' streams */
    const uint64_t *token_index; /* (R) of the token at position 0 */
    /* (R) transforms, or NULL. The lists they point to are on the device too. Their numbers must be
     * in range; ids outside the vocabulary are left out. */
    const struct tt_transform *transform;
    struct tt_verdict *verdict; /* (R) receives the verdicts */
};

/* Apply the transforms to the target rows 0 .. admitted[r] of every request, in place (one launch).
 */
int tt_cuda_transform(tt *handle, const struct tt_cuda_step *step, void *stream);

/* tt_verify for a step: transforms where there are any (one launch), statistics (two), races where
 * `rules` has TT_COUPLED (one), decisions (one). Unlike tt_verify, rows beyond the last one reached
 * are transformed too. */
int tt_cuda_verify(tt *handle, const struct tt_cuda_step *step, void *stream);

/* --------------------------------------------------------------------------------- estimator */

/* A tt_estimator whose state lives on the device and changes there: observe, refit, drift,
 * calibration, prediction, allocation, with the arithmetic and the bits of the CPU's. Three
 * launches a step: one by tt_cuda_estimator_step, two by tt_cuda_estimator_allocate. One stream at
 * a time. */
typedef struct tt_cuda_estimator tt_cuda_estimator;

/* Begin where `from` stands (a fresh one, or one loaded from a blob), for up to max_rows requests a
 * step. Free it before the handle is closed. TT_ENOTSUP: the handle has no device. TT_ELIMIT: more
 * than 2^24 rows. TT_ENOMEM. *out is NULL on failure. */
int tt_cuda_estimator_new(tt *handle, const tt_estimator *from, size_t max_rows,
                          tt_cuda_estimator **out);
void tt_cuda_estimator_free(tt_cuda_estimator *estimator); /* NULL-safe; waits */

/* What one step's requests revealed; see struct tt_observation. Either verdict, or accepted and
 * soft. */
struct tt_cuda_outcomes {
    size_t rows;          /* requests, in batch order */
    const float *feature; /* (rows, feature_stride) as drafted; not finite = no label there */
    size_t feature_stride;
    /* (rows, predicted_stride) predictions that were acted on, or NULL */
    const float *predicted;
    size_t predicted_stride;
    /* (rows) drafts that may carry labels: those admitted, fewer where the text ended earlier */
    const int32_t *admitted;
    /* (rows) as verification left them: accepted, soft labels, flagged rows; or NULL */
    const struct tt_verdict *verdict;
    const int32_t *accepted; /* (rows) where verdict is NULL */
    const float *soft;       /* (rows, soft_stride) labels for fitting, or NULL for the hard ones */
    size_t soft_stride;
    int32_t *step_bits; /* (1) receives the TT_STEP_* bits, or NULL */
};

/* Learn from one step and end it (one launch): tt_estimator_observe for every row in order, then
 * tt_estimator_end_step. A row out of range is left out and counted. TT_ELIMIT: too many rows. */
int tt_cuda_estimator_step(tt_cuda_estimator *estimator, const struct tt_cuda_outcomes *outcomes,
                           void *stream);

/* The drafts of a step, and where their admission goes. */
struct tt_cuda_drafts {
    size_t rows;
    const float *feature; /* (rows, feature_stride) */
    size_t feature_stride;
    const int32_t *drafted; /* (rows) 0 .. positions; out of range counts as 0 */
    const int64_t *budget;  /* (1) drafts to admit; below 0 counts as 0 */
    int32_t *admitted;      /* (rows) receives the admitted lengths */
    int32_t *total;         /* (1) receives their sum, or NULL */
    float *predicted;       /* (rows, predicted_stride) receives probabilities, or NULL */
    size_t predicted_stride;
    double *survival; /* (rows, survival_stride) receives survivals, or NULL */
    size_t survival_stride;
};

/* tt_estimator_predict, tt_survival and tt_allocate for a batch (two launches). Only the drafted
 * positions of predicted and survival are written. TT_ELIMIT: too many rows. */
int tt_cuda_estimator_allocate(tt_cuda_estimator *estimator, const struct tt_cuda_drafts *drafts,
                               void *stream);

struct tt_cuda_estimator_counts {
    uint64_t refused_rows; /* left out because a number was out of range, since the start */
    int32_t step_bits;     /* TT_STEP_* of the last step */
};

/* Copy the state into a host estimator of the same kind and positions (report, save), when the
 * stream's work is done; waits. counts may be NULL. */
int tt_cuda_estimator_read(tt_cuda_estimator *estimator, tt_estimator *into,
                           struct tt_cuda_estimator_counts *counts, void *stream);
/* Replace the state by a host estimator's, e.g. after tt_estimator_set_prior; waits likewise. */
int tt_cuda_estimator_write(tt_cuda_estimator *estimator, const tt_estimator *from, void *stream);

#if defined(__GNUC__) && __GNUC__ >= 4
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
