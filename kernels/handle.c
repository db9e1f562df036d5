/* handle.c - opening and closing libtrimtab, choosing its instruction set, and its words for
 * errors.
 *
 * Owns the handle and its workspace. The instruction set is asked from the processor
 * (__builtin_cpu_supports) unless the caller names one; every choice, a CUDA device included, gives
 * the same bits.
 */
#include "config.h"

#include "kernels/handle.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tt_strerror(int status)
{
    switch (status) {
    case TT_OK:
        return "no error";
    case TT_EINVAL:
        return "an argument is outside its documented range";
    case TT_ENOMEM:
        return "out of memory";
    case TT_ENOTSUP:
        return "the backend, instruction set or type is not in this build or on this machine";
    case TT_ELIMIT:
        return "larger than what the handle was opened for";
    case TT_EDEVICE:
        return "the device failed; the handle can only be closed";
    default:
        return "unknown status";
    }
}

const char *tt_version(void)
{
    return PACKAGE_VERSION;
}

/* Why the last tt_open of this thread failed. */
static _Thread_local char open_message[256];

static int open_error(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int open_error(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(open_message, sizeof open_message, format, arguments);
    va_end(arguments);
    return status;
}

int handle_error(tt *handle, int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(handle->message, sizeof handle->message, format, arguments);
    va_end(arguments);
    return status;
}

const char *tt_message(const tt *handle)
{
    return handle ? handle->message : open_message[0] ? open_message : "no handle";
}
const char *tt_isa(const tt *handle)
{
    if (!handle) return "none";
    return handle->cuda ? cuda_backend_isa(handle->cuda) : handle->ops->isa;
}

/* The tables of this build, best first, with whether this machine can run them. */
static const struct row_ops *ops_named(const char *isa)
{
#ifdef ROW_OPS_X86
    __builtin_cpu_init();
    /* The feature levels x86-64-v4 and -v3, by the members that no processor has without the rest.
     */
    const int has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    const int has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                           __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512cd") &&
                           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (has_avx512 && (!isa || !strcmp(isa, "avx512"))) return &row_ops_avx512;
    if (has_avx2 && (!isa || !strcmp(isa, "avx2"))) return &row_ops_avx2;
#endif
    if (!isa || !strcmp(isa, "baseline")) return &row_ops_baseline;
    return NULL;
}

enum backend { BACKEND_CPU, BACKEND_CUDA, BACKEND_AUTO };

/* "cpu", "auto", "cuda", "cuda:N"; a named instruction set asks for the CPU. */
static int backend_named(const struct tt_options *options, enum backend *backend, int *ordinal)
{
    const char *name = options->backend ? options->backend : "auto";
    *ordinal = 0;
    *backend = BACKEND_CPU;
    if (!strcmp(name, "cpu")) return TT_OK;
    if (!strcmp(name, "auto")) {
        *backend = options->isa ? BACKEND_CPU : BACKEND_AUTO;
        return TT_OK;
    }
    *backend = BACKEND_CUDA;
    if (!strcmp(name, "cuda")) return TT_OK;
    if (!strncmp(name, "cuda:", 5) && name[5] >= '0' && name[5] <= '9') {
        char *end;
        const long number = strtol(name + 5, &end, 10);
        if (*end == '\0' && number <= INT16_MAX) {
            *ordinal = (int)number;
            return TT_OK;
        }
    }
    return open_error(TT_EINVAL, "backend \"%s\": auto, cpu, cuda or cuda:N", name);
}

static int options_check(const struct tt_options *options)
{
    const char *isa = options->isa;

    if (options->vocab < 1 || options->vocab > INT32_MAX || options->max_rows < 1)
        return open_error(TT_EINVAL, "a handle needs a vocabulary of 1 to %d and at least one row",
                          INT32_MAX);
    if (options->max_rows > SIZE_MAX / 64 / row_chunks(options->vocab))
        return open_error(TT_ELIMIT, "%zu rows need a workspace beyond the address space",
                          options->max_rows);
    if (isa && strcmp(isa, "baseline") && strcmp(isa, "avx2") && strcmp(isa, "avx512"))
        return open_error(TT_EINVAL, "instruction set \"%s\": baseline, avx2 or avx512", isa);
    return TT_OK;
}

/* What tt_row_statistics remembers of its rows besides their partials. */
static int memory_new(tt *handle)
{
    struct row_memory *memory = &handle->memory;
    memory->inverse_temperature = calloc(handle->max_rows, sizeof *memory->inverse_temperature);
    memory->stats = calloc(handle->max_rows, sizeof *memory->stats);
    return memory->inverse_temperature && memory->stats ? TT_OK : TT_ENOMEM;
}

static int workspace_new(tt *handle)
{
    const size_t chunks = row_chunks(handle->vocab), groups = row_groups(handle->vocab);
    const size_t draw = chunks > ROW_GROUP ? chunks : ROW_GROUP;
    struct row_memory *memory = &handle->memory;

    memory->partials = calloc(handle->max_rows * chunks, sizeof *memory->partials);
    handle->partials = calloc(chunks, sizeof *handle->partials);
    handle->draft_partials = calloc(chunks, sizeof *handle->draft_partials);
    handle->masses = calloc(chunks, sizeof *handle->masses);
    handle->weights = calloc(draw, sizeof *handle->weights);
    handle->chunk = calloc(ROW_CHUNK, sizeof *handle->chunk);
    handle->group_max = calloc(groups, sizeof *handle->group_max);
    handle->group_bound = calloc(groups, sizeof *handle->group_bound);
    handle->group_first = calloc(groups, sizeof *handle->group_first);
    handle->group_place = calloc(groups, sizeof *handle->group_place);
    handle->candidates = calloc(handle->vocab, sizeof *handle->candidates);
    if (!memory->partials || !handle->partials || !handle->draft_partials || !handle->masses ||
        !handle->weights || !handle->chunk || !handle->group_max || !handle->group_bound ||
        !handle->group_first || !handle->group_place || !handle->candidates)
        return TT_ENOMEM;
    return TT_OK;
}

/* Give the handle its backend. BACKEND_AUTO takes the CPU where there is no device. */
static int backend_open(tt *handle, const struct tt_options *options, enum backend backend,
                        int ordinal)
{
    if (backend != BACKEND_CPU) {
        const int status =
            cuda_backend_open(&handle->cuda, options, ordinal, open_message, sizeof open_message);
        if (!status) {
            handle->memory.partials = cuda_backend_memory(handle->cuda);
            return TT_OK;
        }
        if (status != TT_ENOTSUP || backend == BACKEND_CUDA) return status;
    }
    handle->ops = ops_named(options->isa);
    if (!handle->ops)
        return open_error(TT_ENOTSUP, "instruction set %s: this machine or build lacks it",
                          options->isa);
    return workspace_new(handle);
}

int tt_open(tt **out, const struct tt_options *options)
{
    enum backend backend;
    int ordinal;

    open_message[0] = '\0';
    if (!out) return open_error(TT_EINVAL, "tt_open: nowhere to put the handle");
    *out = NULL;
    if (!options) return open_error(TT_EINVAL, "tt_open: no options");
    int status = options_check(options);
    if (!status) status = backend_named(options, &backend, &ordinal);
    if (status) return status;

    tt *handle = calloc(1, sizeof *handle);
    if (!handle) return open_error(TT_ENOMEM, "out of memory");
    handle->vocab = options->vocab;
    handle->max_rows = options->max_rows;
    status = backend_open(handle, options, backend, ordinal);
    if (!status) status = memory_new(handle);
    if (status) {
        if (!open_message[0] || status == TT_ENOMEM) open_error(status, "%s", tt_strerror(status));
        tt_close(handle);
        return status;
    }
    *out = handle;
    return TT_OK;
}

void tt_close(tt *handle)
{
    if (!handle) return;
    free(handle->candidates);
    free(handle->group_place);
    free(handle->group_first);
    free(handle->group_bound);
    free(handle->group_max);
    free(handle->chunk);
    free(handle->weights);
    free(handle->masses);
    free(handle->draft_partials);
    free(handle->partials);
    free(handle->memory.stats);
    free(handle->memory.inverse_temperature);
    if (!handle->cuda) free(handle->memory.partials);
    cuda_backend_close(handle->cuda);
    free(handle);
}

int handle_check_span(tt *handle, size_t rows, size_t width, size_t stride, size_t vocab)
{
    const size_t most = (size_t)PTRDIFF_MAX / width - vocab; /* elements before the last row */
    if (stride > most / (rows > 1 ? rows - 1 : 1))
        return handle_error(handle, TT_EINVAL,
                            "rows: %zu rows of stride %zu exceed the address space", rows, stride);
    return TT_OK;
}

int handle_check_rows(tt *handle, const struct tt_rows *rows)
{
    if (!rows || (!rows->data && rows->rows > 0))
        return handle_error(handle, TT_EINVAL, "rows: no data");
    if (rows->dtype != TT_F32 && rows->dtype != TT_F16 && rows->dtype != TT_BF16)
        return handle_error(handle, TT_ENOTSUP, "rows: unknown element type %d", (int)rows->dtype);
    if (rows->vocab < 1) return handle_error(handle, TT_EINVAL, "rows: the vocabulary is empty");
    if (rows->vocab > handle->vocab)
        return handle_error(handle, TT_ELIMIT,
                            "rows: vocabulary %zu, the handle was opened for %zu", rows->vocab,
                            handle->vocab);
    if (rows->rows > handle->max_rows)
        return handle_error(handle, TT_ELIMIT, "rows: %zu rows, the handle was opened for %zu",
                            rows->rows, handle->max_rows);
    if (rows->stride < rows->vocab)
        return handle_error(handle, TT_EINVAL, "rows: stride %zu is below the vocabulary %zu",
                            rows->stride, rows->vocab);
    return handle_check_span(handle, rows->rows, rows->dtype == TT_F32 ? 4 : 2, rows->stride,
                             rows->vocab);
}

int handle_check_temperature(tt *handle, float inverse_temperature)
{
    if (!(inverse_temperature > 0.0f) || !isfinite(inverse_temperature))
        return handle_error(handle, TT_EINVAL,
                            "inverse temperature %g: it must be positive and finite",
                            (double)inverse_temperature);
    return TT_OK;
}
