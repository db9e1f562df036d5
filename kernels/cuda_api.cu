/* cuda_api.cu - trimtab_cuda.h for rows and steps: arguments checked on the host, kernels enqueued,
 * nothing waited for. */
#include "config.h"

#include "kernels/cuda_workspace.h"
#include "kernels/handle.h"

#include <limits.h>

/* The handle's device, entered, and the stream to use. */
static int enter(tt *handle, void *stream, cudaStream_t *out)
{
    if (!handle) return TT_EINVAL;
    if (!handle->cuda)
        return handle_error(handle, TT_ENOTSUP,
                            "the handle was opened with backend %s; open it with backend cuda",
                            tt_isa(handle));
    *out = stream ? static_cast<cudaStream_t>(stream) : handle->cuda->device.stream;
    const int status = cuda_enter(&handle->cuda->device);
    return status ? handle_error(handle, status, "%s", handle->cuda->device.message) : TT_OK;
}

static int finish(tt *handle, int status)
{
    return status ? handle_error(handle, status, "%s", handle->cuda->device.message) : TT_OK;
}

/* ---- rows */

static int check_rows(tt *handle, const struct tt_cuda_rows *rows, struct cuda_rows *out)
{
    if (!rows) return handle_error(handle, TT_EINVAL, "rows: no data");
    const struct tt_rows shape = {rows->data, rows->dtype, rows->rows, rows->vocab, rows->stride};
    const int status = handle_check_rows(handle, &shape);
    if (status) return status;
    if (rows->rows > INT_MAX / row_chunks(rows->vocab))
        return handle_error(handle, TT_ELIMIT, "rows: %zu rows are too many for one launch",
                            rows->rows);
    out->data = rows->data;
    out->dtype = (enum row_dtype)rows->dtype;
    out->rows = rows->rows;
    out->vocab = rows->vocab;
    out->stride = rows->stride;
    out->inverse_temperature = rows->inverse_temperature;
    return TT_OK;
}

int tt_cuda_row_statistics(tt *handle, const struct tt_cuda_rows *rows, struct tt_row_stats *stats,
                           float *feature, float clamp, void *stream)
{
    struct cuda_rows placed;
    cudaStream_t own;
    int status = enter(handle, stream, &own);
    if (!status) status = check_rows(handle, rows, &placed);
    if (status) return status;
    if (!stats && rows->rows > 0)
        return handle_error(handle, TT_EINVAL, "row statistics: nowhere to put them");
    return finish(handle, cuda_rows_measure(handle->cuda, own, &placed, handle->cuda->partials,
                                            stats, feature, clamp));
}

typedef int draw_function(struct cuda_backend *, cudaStream_t, const struct cuda_rows *,
                          const struct row_partial *, const struct tt_row_stats *,
                          const struct cuda_sites *, int32_t *);

static int sample_rows(tt *handle, draw_function *draw, const struct tt_cuda_rows *rows,
                       const struct tt_cuda_sites *sites, int32_t *tokens,
                       struct tt_row_stats *stats, float *feature, float clamp, void *stream)
{
    struct cuda_rows placed;
    cudaStream_t own;
    int status = enter(handle, stream, &own);
    if (!status) status = check_rows(handle, rows, &placed);
    if (status) return status;
    if (!sites || !sites->key || !sites->token_index || !tokens ||
        (unsigned)sites->purpose > TT_GUMBEL)
        return handle_error(handle, TT_EINVAL,
                            "sample: no streams, no place for tokens, or an unknown purpose");
    const struct cuda_sites at = {sites->key, sites->token_index, sites->position, sites->purpose};
    struct tt_row_stats *measured = stats ? stats : handle->cuda->stats;
    status = cuda_rows_measure(handle->cuda, own, &placed, handle->cuda->partials, measured,
                               feature, clamp);
    if (!status)
        status = draw(handle->cuda, own, &placed, handle->cuda->partials, measured, &at, tokens);
    return finish(handle, status);
}

int tt_cuda_sample(tt *handle, const struct tt_cuda_rows *rows, const struct tt_cuda_sites *sites,
                   int32_t *tokens, struct tt_row_stats *stats, float *feature, float clamp,
                   void *stream)
{
    return sample_rows(handle, cuda_rows_draw, rows, sites, tokens, stats, feature, clamp, stream);
}

int tt_cuda_sample_coupled(tt *handle, const struct tt_cuda_rows *rows,
                           const struct tt_cuda_sites *sites, int32_t *tokens,
                           struct tt_row_stats *stats, float *feature, float clamp, void *stream)
{
    return sample_rows(handle, cuda_rows_race, rows, sites, tokens, stats, feature, clamp, stream);
}

/* ---- steps */

static int check_sizes(tt *handle, const struct tt_cuda_step *step)
{
    const struct cuda_backend *backend = handle->cuda;
    if (step->positions > TT_MAX_POSITIONS || step->vocab > backend->vocab)
        return handle_error(handle, TT_ELIMIT,
                            "step: %zu positions, vocabulary %zu; at most %d and %zu here",
                            step->positions, step->vocab, TT_MAX_POSITIONS, backend->vocab);
    if (step->requests > backend->rows / (step->positions + 1) ||
        step->requests * (step->positions + 1) > INT_MAX / 2 / backend->chunks)
        return handle_error(handle, TT_ELIMIT,
                            "step: %zu requests of %zu rows, the handle was opened for %zu rows",
                            step->requests, step->positions + 1, backend->rows);
    if (step->vocab < 1 || step->target_stride < step->vocab)
        return handle_error(handle, TT_EINVAL,
                            "step: target rows need a vocabulary and a stride of at least that");
    if ((unsigned)step->all_rule > TT_COUPLED || step->rules > 15u)
        return handle_error(handle, TT_EINVAL, "step: unknown rule");
    return TT_OK;
}

static int check_arrays(tt *handle, const struct tt_cuda_step *step)
{
    if (!step->target || !step->admitted || !step->temperature ||
        (step->positions > 0 && !step->tokens))
        return handle_error(handle, TT_EINVAL,
                            "step: target rows, tokens, admitted lengths and temperatures are "
                            "needed");
    if (!(step->rules >> TT_RATIO & 1u) || step->positions == 0) return TT_OK;
    if (!step->draft || step->draft_vocab < 1 || step->draft_vocab > step->vocab ||
        step->draft_stride < step->draft_vocab)
        return handle_error(handle, TT_EINVAL,
                            "step: the ratio rule needs draft rows of a vocabulary no larger than "
                            "the target's, and a stride of at least that");
    return TT_OK;
}

/* The step with its defaults filled in. */
static int check_step(tt *handle, const struct tt_cuda_step *step, struct tt_cuda_step *out)
{
    if (!step) return handle_error(handle, TT_EINVAL, "step: none given");
    *out = *step;
    const uint32_t given = step->rules ? step->rules : 15u;
    if ((unsigned)step->all_rule <= TT_COUPLED)
        out->rules = step->rule ? given : 1u << step->all_rule;
    int status = check_sizes(handle, out);
    if (!status && step->requests > 0) status = check_arrays(handle, out);
    return status;
}

int tt_cuda_transform(tt *handle, const struct tt_cuda_step *step, void *stream)
{
    struct tt_cuda_step own;
    cudaStream_t on;
    int status = enter(handle, stream, &on);
    if (!status) status = check_step(handle, step, &own);
    if (status || own.requests == 0) return status;
    if (!own.transform) return handle_error(handle, TT_EINVAL, "step: no transforms");
    return finish(handle, cuda_step_transform(handle->cuda, on, &own));
}

int tt_cuda_verify(tt *handle, const struct tt_cuda_step *step, void *stream)
{
    struct tt_cuda_step own;
    cudaStream_t on;
    int status = enter(handle, stream, &on);
    if (!status) status = check_step(handle, step, &own);
    if (status || own.requests == 0) return status;
    if (!own.key || !own.token_index || !own.verdict)
        return handle_error(handle, TT_EINVAL,
                            "step: streams and a place for the verdicts are needed");
    return finish(handle, cuda_step_verify(handle->cuda, on, &own));
}
