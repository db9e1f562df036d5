/* cuda_none.c - backend "cuda" in a build without it: it cannot be opened. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "config.h"

#include "kernels/cuda_backend.h"
#include "kernels/trimtab_cuda.h"

#include <stdio.h>

int cuda_backend_open(struct cuda_backend **out, const struct tt_options *options, int ordinal,
                      char *words, size_t room)
{
    *out = NULL;
    (void)snprintf(words, room,
                   "backend cuda: this build has no CUDA; configure it where nvcc is found");
    return TT_ENOTSUP;
}

void cuda_backend_close(struct cuda_backend *backend) {}

const char *cuda_backend_isa(const struct cuda_backend *backend)
{
    return "none";
}

struct row_partial *cuda_backend_memory(const struct cuda_backend *backend)
{
    return NULL;
}

int cuda_row_statistics(tt *handle, const struct tt_rows *rows, const float *inverse_temperature,
                        struct tt_row_stats *out)
{
    return TT_ENOTSUP;
}

int cuda_sample(tt *handle, const struct tt_rows *row, float inverse_temperature,
                const struct tt_row_stats *stats, const struct row_partial *partials, uint64_t key,
                const struct choice_site *site, int32_t *token)
{
    return TT_ENOTSUP;
}

int cuda_sample_coupled(tt *handle, const struct tt_rows *row, float inverse_temperature,
                        uint64_t key, uint64_t token_index, int32_t *token)
{
    return TT_ENOTSUP;
}

int cuda_transform_row(tt *handle, float *row, size_t vocab, const struct tt_transform *transform,
                       const int32_t *extra, size_t extra_count)
{
    return TT_ENOTSUP;
}

int cuda_verify(tt *handle, const struct tt_block *block, struct tt_verdict *out)
{
    return TT_ENOTSUP;
}

/* ---- trimtab_cuda.h: no handle of this build has a device */

int tt_cuda_row_statistics(tt *handle, const struct tt_cuda_rows *rows, struct tt_row_stats *stats,
                           float *feature, float clamp, void *stream)
{
    return TT_ENOTSUP;
}

int tt_cuda_sample(tt *handle, const struct tt_cuda_rows *rows, const struct tt_cuda_sites *sites,
                   int32_t *tokens, struct tt_row_stats *stats, float *feature, float clamp,
                   void *stream)
{
    return TT_ENOTSUP;
}

int tt_cuda_sample_coupled(tt *handle, const struct tt_cuda_rows *rows,
                           const struct tt_cuda_sites *sites, int32_t *tokens,
                           struct tt_row_stats *stats, float *feature, float clamp, void *stream)
{
    return tt_cuda_sample(handle, rows, sites, tokens, stats, feature, clamp, stream);
}

int tt_cuda_transform(tt *handle, const struct tt_cuda_step *step, void *stream)
{
    return TT_ENOTSUP;
}

int tt_cuda_verify(tt *handle, const struct tt_cuda_step *step, void *stream)
{
    return TT_ENOTSUP;
}

int tt_cuda_estimator_new(tt *handle, const tt_estimator *from, size_t max_rows,
                          tt_cuda_estimator **out)
{
    if (out) *out = NULL;
    return TT_ENOTSUP;
}

void tt_cuda_estimator_free(tt_cuda_estimator *estimator) {}

int tt_cuda_estimator_step(tt_cuda_estimator *estimator, const struct tt_cuda_outcomes *outcomes,
                           void *stream)
{
    return TT_ENOTSUP;
}

int tt_cuda_estimator_allocate(tt_cuda_estimator *estimator, const struct tt_cuda_drafts *drafts,
                               void *stream)
{
    return TT_ENOTSUP;
}

int tt_cuda_estimator_read(tt_cuda_estimator *estimator, tt_estimator *into,
                           struct tt_cuda_estimator_counts *counts, void *stream)
{
    return TT_ENOTSUP;
}

int tt_cuda_estimator_write(tt_cuda_estimator *estimator, const tt_estimator *from, void *stream)
{
    return TT_ENOTSUP;
}
