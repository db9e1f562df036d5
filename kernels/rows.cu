/* rows.cu - the SPMD flavour of the row bodies: row statistics on a CUDA device.
 *
 * One warp measures one chunk (row_body.h), one thread merges a row's chunks and finds its mode.
 * Compiled with -fmad=false, so that the bits are those of the CPU objects. Statistics only, and
 * through host memory: the caller's rows are copied over. Owns its device buffers for the length of
 * a call.
 */
#include "config.h"

#include "kernels/rows_cuda.h"
#include "kernels/row_body.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

#define THREADS 128 /* four warps a block */

static_assert((int)ROW_F32 == (int)TT_F32 && (int)ROW_F16 == (int)TT_F16 &&
                  (int)ROW_BF16 == (int)TT_BF16,
              "element types of the bodies are those of the interface");

/* partials (rows, chunks): warp w of the grid measures chunk w % chunks of row w / chunks. */
template <enum row_dtype dtype>
static __global__ void chunk_kernel(const void *data, size_t rows, size_t vocab, size_t stride,
                                    const float *inverse_temperature, struct row_partial *partials)
{
    const size_t chunks = (vocab + ROW_CHUNK - 1) / ROW_CHUNK;
    const size_t warp = (size_t)blockIdx.x * (THREADS / LANE_THREADS) + threadIdx.x / LANE_THREADS;
    if (warp >= rows * chunks) return;
    const size_t row = warp / chunks, from = warp % chunks * ROW_CHUNK;
    const size_t end = vocab - from > ROW_CHUNK ? from + ROW_CHUNK : vocab;
    const struct row_partial partial =
        chunk_losers(row_address(data, dtype, row * stride), dtype, from, end, row_ahead{},
                     inverse_temperature[row]);
    LANE_ONCE partials[warp] = partial;
}

/* One block a row: its first thread merges, all of them look for the mode in the first chunk that
 * holds the maximum. */
static __global__ void merge_kernel(const void *data, int dtype, size_t vocab, size_t stride,
                                    const float *inverse_temperature,
                                    const struct row_partial *partials, struct tt_row_stats *out)
{
    __shared__ float max;
    __shared__ double rest;
    __shared__ unsigned long long mode;
    const size_t chunks = (vocab + ROW_CHUNK - 1) / ROW_CHUNK, row = blockIdx.x;
    const void *x = row_address(data, (enum row_dtype)dtype, row * stride);
    const float scale = inverse_temperature[row];

    partials += row * chunks;
    if (threadIdx.x == 0) {
        merge_partials(partials, chunks, scale, &max, &rest);
        mode = vocab;
    }
    __syncthreads();
    const bool flagged = rest != rest || max == row_infinity() || max == -row_infinity();
    if (!flagged) {
        size_t c = 0;
        while (partials[c].max != max) c++;
        const size_t end = vocab - c * ROW_CHUNK > ROW_CHUNK ? (c + 1) * ROW_CHUNK : vocab;
        for (size_t i = c * ROW_CHUNK + threadIdx.x; i < end; i += blockDim.x)
            if (row_value(x, (enum row_dtype)dtype, i) == max) {
                atomicMin(&mode, (unsigned long long)i);
                break;
            }
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    struct tt_row_stats stats;
    stats.argmax = flagged ? -1 : (int32_t)mode;
    stats.max = flagged ? row_nan() : row_value(x, (enum row_dtype)dtype, mode);
    stats.rest = flagged ? row_nan() : (float)rest;
    stats.log_odds = flagged ? row_nan() : rest > 0.0 ? (float)-log_double(rest) : row_infinity();
    stats.log_norm =
        flagged ? row_nan() : (float)((double)max * (double)scale + log1p_double(rest));
    stats.flags = flagged ? TT_ROW_FLAGGED : 0u;
    out[row] = stats;
}

struct device_buffers {
    void *data;
    float *inverse_temperature;
    struct row_partial *partials;
    struct tt_row_stats *stats;
};

static void launch(const struct tt_rows *rows, const struct device_buffers *device)
{
    const size_t warps = rows->rows * ((rows->vocab + ROW_CHUNK - 1) / ROW_CHUNK);
    const unsigned blocks = (unsigned)((warps * LANE_THREADS + THREADS - 1) / THREADS);
#define LAUNCH(type)                                                                               \
    chunk_kernel<type><<<blocks, THREADS>>>(device->data, rows->rows, rows->vocab, rows->stride,   \
                                            device->inverse_temperature, device->partials)
    if (rows->dtype == TT_F32)
        LAUNCH(ROW_F32);
    else if (rows->dtype == TT_F16)
        LAUNCH(ROW_F16);
    else
        LAUNCH(ROW_BF16);
#undef LAUNCH
    merge_kernel<<<(unsigned)rows->rows, THREADS>>>(device->data, (int)rows->dtype, rows->vocab,
                                                    rows->stride, device->inverse_temperature,
                                                    device->partials, device->stats);
}

static cudaError_t run(const struct tt_rows *rows, const float *inverse_temperature,
                       struct device_buffers *device, struct tt_row_stats *out)
{
    const size_t width = rows->dtype == TT_F32 ? 4 : 2;
    const size_t bytes = ((rows->rows - 1) * rows->stride + rows->vocab) * width;
    const size_t chunks = (rows->vocab + ROW_CHUNK - 1) / ROW_CHUNK;
    const float one = 1.0f;
    cudaError_t error;

    if ((error = cudaMalloc(&device->data, bytes))) return error;
    if ((error = cudaMalloc((void **)&device->inverse_temperature, rows->rows * sizeof(float))))
        return error;
    if ((error = cudaMalloc((void **)&device->partials,
                            rows->rows * chunks * sizeof(struct row_partial))))
        return error;
    if ((error = cudaMalloc((void **)&device->stats, rows->rows * sizeof(struct tt_row_stats))))
        return error;
    if ((error = cudaMemcpy(device->data, rows->data, bytes, cudaMemcpyHostToDevice))) return error;
    for (size_t r = 0; r < rows->rows; r++)
        if ((error = cudaMemcpy(device->inverse_temperature + r,
                                inverse_temperature ? &inverse_temperature[r] : &one, sizeof(float),
                                cudaMemcpyHostToDevice)))
            return error;
    launch(rows, device);
    if ((error = cudaGetLastError())) return error;
    return cudaMemcpy(out, device->stats, rows->rows * sizeof *out, cudaMemcpyDeviceToHost);
}

extern "C" int rows_cuda_statistics(const struct tt_rows *rows, const float *inverse_temperature,
                                    struct tt_row_stats *out)
{
    struct device_buffers device;
    if (!rows_cuda_device()) return TT_ENOTSUP;
    if (rows->rows == 0) return TT_OK;
    memset(&device, 0, sizeof device);
    const cudaError_t error = run(rows, inverse_temperature, &device, out);
    cudaFree(device.stats);
    cudaFree(device.partials);
    cudaFree(device.inverse_temperature);
    cudaFree(device.data);
    if (error == cudaSuccess) return TT_OK;
    return error == cudaErrorMemoryAllocation ? TT_ENOMEM : TT_ENOTSUP;
}

extern "C" const char *rows_cuda_device(void)
{
    static char name[24];
    int count = 0, major = 0, minor = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count < 1) return NULL;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) != cudaSuccess ||
        major < 8)
        return NULL;
    snprintf(name, sizeof name, "cuda:sm_%d%d", major, minor);
    return name;
}
