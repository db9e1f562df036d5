/* cuda_backend.cu - the synchronous functions of trimtab.h on a CUDA device.
 *
 * Owns the workspace. Host rows are copied over before, and back after, what the kernels do; device
 * rows are used where they lie, unless a transform would change rows that verification never
 * reaches: then a copy is transformed, and the reached rows are copied back.
 */
#include "config.h"

#include "kernels/cuda_workspace.h"
#include "kernels/handle.h"
#include "kernels/sample.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- open and close */

/* Elements between the workspace's own rows: they stay aligned. */
static size_t own_stride(const struct cuda_backend *backend)
{
    return (backend->vocab + 3) / 4 * 4;
}

/* Entries of a transform's list, and extra tokens, that one call may bring. */
static size_t list_room(const struct cuda_backend *backend)
{
    return backend->vocab > 1024 ? backend->vocab : 1024;
}

static int workspace_new(struct cuda_backend *backend, size_t max_rows)
{
    struct cuda_device *device = &backend->device;
    const size_t rows = backend->rows, list = list_room(backend);
    const size_t parts = rows * backend->chunks; /* in range: tt_open checked it */
    int status = cuda_allocate(device, &backend->memory_partials, max_rows * backend->chunks);
    if (!status) status = cuda_allocate(device, &backend->partials, parts);
    if (!status) status = cuda_allocate(device, &backend->draft_partials, parts);
    if (!status) status = cuda_allocate(device, &backend->stats, rows);
    if (!status) status = cuda_allocate(device, &backend->draft_stats, rows);
    if (!status) status = cuda_allocate(device, &backend->winners, parts);
    if (!status) status = cuda_allocate(device, &backend->masses, parts);
    if (!status) status = cuda_allocate(device, &backend->scales, rows);
    if (!status) status = cuda_allocate(device, &backend->tokens, rows);
    if (!status) status = cuda_allocate(device, &backend->verdict, 1);
    if (!status) status = cuda_allocate(device, &backend->parameters, 1);
    if (!status) status = cuda_allocate(device, &backend->bias, list);
    if (!status) status = cuda_allocate(device, &backend->counts, list);
    if (!status) status = cuda_allocate(device, &backend->extra, list);
    if (!status) status = cuda_allocate(device, &backend->target, rows * own_stride(backend));
    if (!status)
        status = cuda_allocate(device, &backend->draft, TT_MAX_POSITIONS * own_stride(backend));
    return status ? status : cuda_synchronize(device);
}

int cuda_backend_open(struct cuda_backend **out, const struct tt_options *options, int ordinal,
                      char *words, size_t room)
{
    *out = NULL;
    struct cuda_backend *backend = (struct cuda_backend *)calloc(1, sizeof *backend);
    if (!backend) return TT_ENOMEM;
    backend->vocab = options->vocab;
    backend->chunks = row_chunks(options->vocab);
    backend->rows =
        options->max_rows > TT_MAX_POSITIONS + 1 ? options->max_rows : TT_MAX_POSITIONS + 1;
    int status = cuda_device_open(&backend->device, ordinal);
    if (!status && backend->rows > (SIZE_MAX / sizeof(float) - 4) / (options->vocab + 4))
        status = TT_ELIMIT;
    if (!status) status = workspace_new(backend, options->max_rows);
    if (!status) {
        *out = backend;
        return TT_OK;
    }
    (void)snprintf(words, room, "%s", backend->device.message);
    cuda_backend_close(backend);
    return status;
}

void cuda_backend_close(struct cuda_backend *backend)
{
    if (!backend) return;
    cuda_device_close(&backend->device);
    free(backend);
}

const char *cuda_backend_isa(const struct cuda_backend *backend)
{
    return backend->device.isa;
}

struct row_partial *cuda_backend_memory(const struct cuda_backend *backend)
{
    return backend->memory_partials;
}

struct cuda_device *cuda_device_of(tt *handle)
{
    return handle && handle->cuda ? &handle->cuda->device : NULL;
}

/* ---- rows over and back */

/* The status of a call, with the device's words for it. */
static int finish(tt *handle, int status)
{
    return status ? handle_error(handle, status, "%s", handle->cuda->device.message) : TT_OK;
}

/* rows of `width` bytes, pitches in bytes. A pitch beyond what the runtime takes goes row by row.
 */
static int copy_rows(struct cuda_device *device, void *to, size_t to_pitch, const void *from,
                     size_t from_pitch, size_t width, size_t rows, enum cudaMemcpyKind kind)
{
    if (device->failed) return device->failed;
    if (rows <= 1 || (to_pitch <= INT_MAX && from_pitch <= INT_MAX))
        return rows == 0 ? TT_OK
                         : cuda_check(device,
                                      cudaMemcpy2DAsync(to, rows > 1 ? to_pitch : width, from,
                                                        rows > 1 ? from_pitch : width, width, rows,
                                                        kind, device->stream),
                                      "copying rows");
    int status = TT_OK;
    for (size_t r = 0; r < rows && !status; r++)
        status = copy_rows(device, (char *)to + r * to_pitch, 0,
                           (const char *)from + r * from_pitch, 0, width, 1, kind);
    return status;
}

/* The rows on the device: where they lie, or a copy in the workspace's target rows. */
static int place_rows(struct cuda_backend *backend, const struct tt_rows *rows,
                      struct cuda_rows *out)
{
    const size_t width = rows->dtype == TT_F32 ? 4 : 2;
    out->data = rows->data;
    out->dtype = (enum row_dtype)rows->dtype;
    out->rows = rows->rows;
    out->vocab = rows->vocab;
    out->stride = rows->stride;
    if (rows->rows == 0 || cuda_is_device_memory(rows->data)) return TT_OK;
    out->data = backend->target;
    out->stride = own_stride(backend);
    return copy_rows(&backend->device, backend->target, out->stride * width, rows->data,
                     rows->stride * width, rows->vocab * width, rows->rows, cudaMemcpyHostToDevice);
}

/* ---- statistics and draws */

int cuda_row_statistics(tt *handle, const struct tt_rows *rows, const float *inverse_temperature,
                        struct tt_row_stats *out)
{
    struct cuda_backend *backend = handle->cuda;
    struct cuda_device *device = &backend->device;
    struct cuda_rows placed;
    int status = cuda_enter(device);

    if (!status) status = place_rows(backend, rows, &placed);
    if (status) return finish(handle, status);
    placed.inverse_temperature = inverse_temperature ? backend->scales : NULL;
    if (inverse_temperature)
        status = cuda_upload(device, backend->scales, inverse_temperature,
                             rows->rows * sizeof *inverse_temperature);
    if (!status)
        status = cuda_rows_measure(backend, device->stream, &placed, backend->memory_partials,
                                   backend->stats, NULL, 0.0f);
    if (!status) status = cuda_download(device, out, backend->stats, rows->rows * sizeof *out);
    return finish(handle, status);
}

static int put_site(struct cuda_backend *backend, float inverse_temperature, uint64_t key,
                    const struct choice_site *site, struct cuda_rows *rows,
                    struct cuda_sites *sites)
{
    struct cuda_parameters parameters, *there = backend->parameters;
    memset(&parameters, 0, sizeof parameters);
    parameters.key = key;
    parameters.token_index = site->token_index;
    parameters.position = site->position;
    parameters.inverse_temperature = inverse_temperature;
    rows->inverse_temperature = &there->inverse_temperature;
    sites->key = &there->key;
    sites->token_index = &there->token_index;
    sites->position = &there->position;
    sites->purpose = site->purpose;
    return cuda_upload(&backend->device, there, &parameters, sizeof parameters);
}

/* The row's own statistics, measured now, or those given where they are remembered. */
static int measure_one(struct cuda_backend *backend, const struct cuda_rows *row,
                       const struct row_partial *partials, struct tt_row_stats *stats)
{
    struct cuda_device *device = &backend->device;
    if (partials) return cuda_upload(device, backend->stats, stats, sizeof *stats);
    const int status = cuda_rows_measure(backend, device->stream, row, backend->partials,
                                         backend->stats, NULL, 0.0f);
    return status ? status : cuda_download(device, stats, backend->stats, sizeof *stats);
}

/* Whether the row still has the statistics' maximum at their mode; *status as the read went. */
static bool row_has_mode(struct cuda_backend *backend, const struct tt_rows *row,
                         const struct tt_row_stats *stats, int *status)
{
    uint32_t element = 0;
    const size_t width = row->dtype == TT_F32 ? 4 : 2;
    const void *at = row_address(row->data, (enum row_dtype)row->dtype, (size_t)stats->argmax);
    if (cuda_is_device_memory(row->data))
        *status = cuda_download(&backend->device, &element, at, width);
    else
        memcpy(&element, at, width);
    return row_value(&element, (enum row_dtype)row->dtype, 0) == stats->max;
}

int cuda_sample(tt *handle, const struct tt_rows *row, float inverse_temperature,
                const struct tt_row_stats *stats, const struct row_partial *partials, uint64_t key,
                const struct choice_site *site, int32_t *token)
{
    struct cuda_backend *backend = handle->cuda;
    struct cuda_device *device = &backend->device;
    struct tt_row_stats own = *stats;
    struct cuda_rows placed;
    struct cuda_sites sites;
    int32_t drawn;
    int status = cuda_enter(device);

    const bool has_mode = !status && row_has_mode(backend, row, stats, &status);
    if (!status && !has_mode) return sample_foreign(handle);
    if (!status) status = place_rows(backend, row, &placed);
    if (!status) status = put_site(backend, inverse_temperature, key, site, &placed, &sites);
    if (!status) status = measure_one(backend, &placed, partials, &own);
    if (status) return finish(handle, status);
    if (own.flags & TT_ROW_FLAGGED) return sample_flagged(handle);
    if (own.argmax != stats->argmax) return sample_foreign(handle);
    status =
        cuda_rows_draw(backend, device->stream, &placed, partials ? partials : backend->partials,
                       backend->stats, &sites, backend->tokens);
    if (!status) status = cuda_download(device, &drawn, backend->tokens, sizeof drawn);
    if (!status) *token = drawn;
    return finish(handle, status);
}

int cuda_sample_coupled(tt *handle, const struct tt_rows *row, float inverse_temperature,
                        uint64_t key, uint64_t token_index, int32_t *token)
{
    struct cuda_backend *backend = handle->cuda;
    struct cuda_device *device = &backend->device;
    const struct choice_site site = {token_index, 0, TT_GUMBEL};
    struct cuda_rows placed;
    struct cuda_sites sites;
    int32_t drawn;
    int status = cuda_enter(device);

    if (!status) status = place_rows(backend, row, &placed);
    if (!status) status = put_site(backend, inverse_temperature, key, &site, &placed, &sites);
    if (!status)
        status = cuda_rows_measure(backend, device->stream, &placed, backend->partials,
                                   backend->stats, NULL, 0.0f);
    if (!status)
        status = cuda_rows_race(backend, device->stream, &placed, backend->partials, backend->stats,
                                &sites, backend->tokens);
    if (!status) status = cuda_download(device, &drawn, backend->tokens, sizeof drawn);
    if (status) return finish(handle, status);
    if (drawn < 0) return sample_flagged(handle);
    *token = drawn;
    return TT_OK;
}

/* ---- transforms */

/* The transform with its lists on the device. TT_ELIMIT for a list longer than the vocabulary. */
static int put_transform(tt *handle, const struct tt_transform *transform, struct tt_transform *out)
{
    struct cuda_backend *backend = handle->cuda;
    const size_t bias = transform->bias_count, counts = transform->counts_count;
    if (bias > list_room(backend) || counts > list_room(backend))
        return handle_error(handle, TT_ELIMIT,
                            "transform: a list of %zu entries, this handle takes %zu",
                            bias > counts ? bias : counts, list_room(backend));
    *out = *transform;
    out->bias = backend->bias;
    out->counts = backend->counts;
    int status = cuda_upload(&backend->device, backend->bias, transform->bias,
                             bias * sizeof *transform->bias);
    if (!status)
        status = cuda_upload(&backend->device, backend->counts, transform->counts,
                             counts * sizeof *transform->counts);
    return finish(handle, status);
}

int cuda_transform_row(tt *handle, float *row, size_t vocab, const struct tt_transform *transform,
                       const int32_t *extra, size_t extra_count)
{
    struct cuda_backend *backend = handle->cuda;
    struct cuda_device *device = &backend->device;
    const struct tt_rows shape = {row, TT_F32, 1, vocab, vocab};
    struct cuda_parameters *there = backend->parameters;
    struct tt_transform placed_transform;
    struct cuda_rows placed;

    if (extra_count > list_room(backend))
        return handle_error(handle, TT_ELIMIT, "transform: %zu extra tokens, this handle takes %zu",
                            extra_count, list_room(backend));
    int status = finish(handle, cuda_enter(device));
    if (!status) status = put_transform(handle, transform, &placed_transform);
    if (status) return status;
    status = cuda_upload(device, &there->transform, &placed_transform, sizeof placed_transform);
    if (!status) status = cuda_upload(device, backend->extra, extra, extra_count * sizeof *extra);
    if (!status) status = place_rows(backend, &shape, &placed);
    if (status) return finish(handle, status);
    const bool is_copy = placed.data != row;
    float *data = is_copy ? backend->target : row;
    status = cuda_row_transform(backend, device->stream, data, vocab, &there->transform,
                                backend->extra, extra_count);
    if (!status)
        status = is_copy ? cuda_download(device, row, data, vocab * sizeof *row)
                         : cuda_synchronize(device);
    return finish(handle, status);
}

/* ---- verification */

static int32_t admitted_of(const struct tt_block *block)
{
    int32_t k = 0;
    while (k < block->admitted && block->tokens[k] >= 0) k++;
    return k;
}

/* The rows of one side on the device, stride included; `room` takes a copy where one is needed. */
static int place_side(struct cuda_backend *backend, const float *rows, size_t stride, size_t vocab,
                      size_t count, bool copy, float *room, const float **out, size_t *out_stride)
{
    const bool is_device = cuda_is_device_memory(rows);
    *out = rows;
    *out_stride = stride;
    if (is_device && !copy) return TT_OK;
    *out = room;
    *out_stride = own_stride(backend);
    return copy_rows(&backend->device, room, *out_stride * sizeof *room, rows,
                     stride * sizeof *rows, vocab * sizeof *rows, count,
                     is_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice);
}

/* The block as a step of one request. */
static int put_block(tt *handle, const struct tt_block *block, struct tt_cuda_step *step)
{
    struct cuda_backend *backend = handle->cuda;
    struct cuda_parameters parameters, *there = backend->parameters;
    const int32_t admitted = admitted_of(block);
    const bool drafts = block->rule == TT_RATIO && admitted > 0;
    const float *target, *draft = NULL;
    int status = TT_OK;

    memset(&parameters, 0, sizeof parameters);
    memset(step, 0, sizeof *step);
    parameters.admitted = admitted;
    parameters.temperature = block->temperature;
    parameters.key = block->key;
    parameters.token_index = block->token_index;
    for (int32_t k = 0; k < admitted; k++) parameters.tokens[k] = block->tokens[k];
    for (int32_t k = 0; drafts && block->draft_stats && k < admitted; k++)
        parameters.draft_stats[k] = block->draft_stats[k];
    if (block->transform) status = put_transform(handle, block->transform, &parameters.transform);
    if (status) return status;

    step->requests = 1;
    step->positions = (size_t)admitted;
    step->all_rule = block->rule;
    step->rules = 1u << block->rule;
    step->vocab = block->vocab;
    step->draft_vocab = block->draft_vocab;
    step->tokens = there->tokens;
    step->admitted = &there->admitted;
    step->temperature = &there->temperature;
    step->key = &there->key;
    step->token_index = &there->token_index;
    step->transform = block->transform ? &there->transform : NULL;
    step->draft_stats = drafts && block->draft_stats ? there->draft_stats : NULL;
    step->verdict = backend->verdict;
    status = cuda_upload(&backend->device, there, &parameters, sizeof parameters);
    if (!status)
        status = place_side(backend, block->target, block->target_stride, block->vocab,
                            (size_t)admitted + 1, block->transform != NULL, backend->target,
                            &target, &step->target_stride);
    if (!status && drafts)
        status = place_side(backend, block->draft, block->draft_stride, block->draft_vocab,
                            (size_t)admitted, false, backend->draft, &draft, &step->draft_stride);
    if (status) return finish(handle, status);
    step->target = const_cast<float *>(target);
    step->draft = draft;
    return TT_OK;
}

/* The reached rows as the transform left them, back to the caller. */
static int return_rows(struct cuda_backend *backend, const struct tt_block *block, size_t reached)
{
    const int status = copy_rows(
        &backend->device, block->target, block->target_stride * sizeof(float), backend->target,
        own_stride(backend) * sizeof(float), block->vocab * sizeof(float), reached,
        cuda_is_device_memory(block->target) ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost);
    return status ? status : cuda_synchronize(&backend->device);
}

int cuda_verify(tt *handle, const struct tt_block *block, struct tt_verdict *out)
{
    struct cuda_backend *backend = handle->cuda;
    struct tt_cuda_step step;
    struct tt_verdict verdict;
    int status = finish(handle, cuda_enter(&backend->device));

    if (!status) status = put_block(handle, block, &step);
    if (status) return status;
    status = cuda_step_verify(backend, backend->device.stream, &step);
    if (!status)
        status = cuda_download(&backend->device, &verdict, backend->verdict, sizeof verdict);
    if (!status && block->transform)
        status = return_rows(backend, block, (size_t)verdict.accepted + 1);
    if (!status) *out = verdict;
    return finish(handle, status);
}
