/* cuda_workspace.h - the workspace of a handle on a CUDA device, and the work that the .cu files
 * enqueue over it. Included by .cu files alone.
 *
 * Everything is allocated by cuda_backend_open; nothing here allocates or waits, but for
 * cuda_backend.cu, which serves the synchronous functions of trimtab.h.
 */
#ifndef KERNELS_CUDA_WORKSPACE_H
#define KERNELS_CUDA_WORKSPACE_H

#include "kernels/cuda_device.h" /* the runtime, before the bodies */
#include "kernels/cuda_backend.h"
#include "kernels/row_body.h"
#include "kernels/trimtab_cuda.h"

#define CUDA_ROW_THREADS 256 /* of a block that works on one row */

/* What a synchronous tt_verify and the single draws hand over, in one copy. */
struct cuda_parameters {
    int32_t rule, admitted;
    int32_t first_row;
    float temperature;
    uint64_t key, token_index;
    uint32_t position;
    float inverse_temperature;
    struct tt_transform transform; /* its lists point to the workspace's */
    int32_t tokens[TT_MAX_POSITIONS];
    struct tt_row_stats draft_stats[TT_MAX_POSITIONS];
};

/* Who wins the race among the tokens of one chunk. */
struct race_winner {
    float score;
    int32_t token; /* -1: no finite token */
};

struct cuda_backend {
    struct cuda_device device;
    size_t vocab, rows, chunks; /* rows: of the largest step, target or draft */
    /* (max_rows, chunks) what tt_row_statistics left; see struct row_memory */
    struct row_partial *memory_partials;
    struct row_partial *partials, *draft_partials; /* (rows, chunks) */
    struct tt_row_stats *stats, *draft_stats;      /* (rows) */
    struct race_winner *winners;                   /* (rows, chunks) */
    double *masses;                                /* (rows, chunks) */
    float *scales;                                 /* (rows) 1/T of tt_row_statistics */
    int32_t *tokens;                               /* (rows) */
    struct tt_verdict *verdict;                    /* (1) */
    struct cuda_parameters *parameters;            /* (1) */
    struct tt_logit_bias *bias;                    /* (list_room) */
    struct tt_token_count *counts;                 /* (list_room) */
    int32_t *extra;                                /* (list_room) */
    float *target;                                 /* (rows, vocab) copies of host rows */
    float *draft;                                  /* (TT_MAX_POSITIONS, vocab) likewise */
};

/* Rows on the device. */
struct cuda_rows {
    const void *data;
    enum row_dtype dtype;
    size_t rows, vocab, stride;
    const float *inverse_temperature; /* (rows) on the device, or NULL for 1 */
};

/* partials (rows, chunks of the workspace) and stats (rows); feature (rows) may be NULL. */
int cuda_rows_measure(struct cuda_backend *backend, cudaStream_t stream,
                      const struct cuda_rows *rows, struct row_partial *partials,
                      struct tt_row_stats *stats, float *feature, float clamp);

/* Streams of a batch of draws, on the device. */
struct cuda_sites {
    const uint64_t *key, *token_index; /* (rows) */
    const uint32_t *position;          /* (rows), or NULL for 0 */
    enum tt_purpose purpose;
};

/* tokens (rows) drawn from measured rows; -1 where a row is flagged. */
int cuda_rows_draw(struct cuda_backend *backend, cudaStream_t stream, const struct cuda_rows *rows,
                   const struct row_partial *partials, const struct tt_row_stats *stats,
                   const struct cuda_sites *sites, int32_t *tokens);

/* tokens (rows) that win the coupled race of measured rows; -1 where a row is flagged. */
int cuda_rows_race(struct cuda_backend *backend, cudaStream_t stream, const struct cuda_rows *rows,
                   const struct row_partial *partials, const struct tt_row_stats *stats,
                   const struct cuda_sites *sites, int32_t *tokens);

/* A step in the sense of trimtab_cuda.h, checked as far as the host can. */
int cuda_step_transform(struct cuda_backend *backend, cudaStream_t stream,
                        const struct tt_cuda_step *step);
int cuda_step_verify(struct cuda_backend *backend, cudaStream_t stream,
                     const struct tt_cuda_step *step);

/* One row on the device, transformed in place; everything in device memory. */
int cuda_row_transform(struct cuda_backend *backend, cudaStream_t stream, float *row, size_t vocab,
                       const struct tt_transform *transform, const int32_t *extra,
                       size_t extra_count);

#endif
