/* cuda_rows.cu - batches of rows on a CUDA device: statistics, draws, coupled draws.
 *
 * Statistics take two launches: a warp measures a chunk, a block merges a row. A draw adds one, a
 * coupled draw two. The bits are those of the CPU objects (-fmad=false).
 */
#include "config.h"

#include "kernels/cuda_body.h"

#define MEASURE_THREADS 128 /* four chunks a block: their registers hold 64 KB of fp32 */
#define MEASURE_BLOCKS 3    /* a multiprocessor: what 65,536 registers allow */
#define MERGE_THREADS 128

static_assert((int)ROW_F32 == (int)TT_F32 && (int)ROW_F16 == (int)TT_F16 &&
                  (int)ROW_BF16 == (int)TT_BF16,
              "element types of the bodies are those of the interface");

struct measure_task {
    struct cuda_rows rows;
    size_t pitch; /* partials of a row */
    struct row_partial *partials;
    struct tt_row_stats *stats;
    float *feature, clamp;
};

CUDA_FN const void *row_of(const struct cuda_rows *rows, size_t row)
{
    return row_address(rows->data, rows->dtype, row * rows->stride);
}

CUDA_FN float scale_of(const struct cuda_rows *rows, size_t row)
{
    return rows->inverse_temperature ? rows->inverse_temperature[row] : 1.0f;
}

CUDA_FN size_t chunks_of(size_t vocab)
{
    return (vocab + ROW_CHUNK - 1) / ROW_CHUNK;
}

/* Warp w of the grid measures chunk w % chunks of row w / chunks. */
template <enum row_dtype dtype>
static __global__ void __launch_bounds__(MEASURE_THREADS, MEASURE_BLOCKS)
    measure_kernel(struct measure_task task)
{
    const size_t chunks = chunks_of(task.rows.vocab);
    const size_t warp =
        (size_t)blockIdx.x * (MEASURE_THREADS / LANE_THREADS) + threadIdx.x / LANE_THREADS;
    if (warp >= task.rows.rows * chunks) return;
    const size_t row = warp / chunks, chunk = warp % chunks;
    const void *x = row_address(task.rows.data, dtype, row * task.rows.stride);
    const struct row_partial partial =
        warp_partial<dtype>(x, chunk, task.rows.vocab, scale_of(&task.rows, row));
    LANE_ONCE task.partials[row * task.pitch + chunk] = partial;
}

static __global__ void __launch_bounds__(MERGE_THREADS) merge_kernel(struct measure_task task)
{
    const size_t row = blockIdx.x;
    struct tt_row_stats *stats = &task.stats[row];
    block_measure(row_of(&task.rows, row), task.rows.dtype, task.rows.vocab,
                  scale_of(&task.rows, row), task.partials + row * task.pitch, stats);
    if (threadIdx.x == 0 && task.feature) task.feature[row] = row_feature(stats, task.clamp);
}

int cuda_rows_measure(struct cuda_backend *backend, cudaStream_t stream,
                      const struct cuda_rows *rows, struct row_partial *partials,
                      struct tt_row_stats *stats, float *feature, float clamp)
{
    const struct measure_task task = {*rows, backend->chunks, partials, stats, feature, clamp};
    const size_t warps = rows->rows * ((rows->vocab + ROW_CHUNK - 1) / ROW_CHUNK);
    const size_t per_block = MEASURE_THREADS / LANE_THREADS;
    const dim3 blocks((unsigned)((warps + per_block - 1) / per_block));
    void (*const kernel)(struct measure_task) = rows->dtype == ROW_F32   ? measure_kernel<ROW_F32>
                                                : rows->dtype == ROW_F16 ? measure_kernel<ROW_F16>
                                                                         : measure_kernel<ROW_BF16>;
    if (rows->rows == 0) return TT_OK;
    const int status = cuda_launch(&backend->device, stream, kernel, blocks, MEASURE_THREADS, task,
                                   "measuring rows");
    if (status) return status;
    return cuda_launch(&backend->device, stream, merge_kernel, dim3((unsigned)rows->rows),
                       MERGE_THREADS, task, "merging rows");
}

/* ---- draws */

struct draw_task {
    struct cuda_rows rows;
    size_t pitch;
    const struct row_partial *partials;
    const struct tt_row_stats *stats;
    struct cuda_sites sites;
    double *masses;
    struct race_winner *winners;
    int32_t *tokens;
};

static __global__ void __launch_bounds__(CUDA_ROW_THREADS) draw_kernel(struct draw_task task)
{
    const size_t row = blockIdx.x;
    struct draw_site at;
    int32_t token = -1;

    at.key = task.sites.key[row];
    at.site.token_index = task.sites.token_index[row];
    at.site.position = task.sites.position ? task.sites.position[row] : 0;
    at.site.purpose = task.sites.purpose;
    if (!(task.stats[row].flags & TT_ROW_FLAGGED))
        token = block_draw(row_of(&task.rows, row), task.rows.dtype, task.rows.vocab,
                           task.stats[row].max, scale_of(&task.rows, row),
                           task.partials + row * task.pitch, task.masses + row * task.pitch, &at);
    if (threadIdx.x == 0) task.tokens[row] = token;
}

static struct draw_task draw_task_of(struct cuda_backend *backend, const struct cuda_rows *rows,
                                     const struct row_partial *partials,
                                     const struct tt_row_stats *stats,
                                     const struct cuda_sites *sites, int32_t *tokens)
{
    const struct draw_task task = {*rows,  backend->chunks, partials,         stats,
                                   *sites, backend->masses, backend->winners, tokens};
    return task;
}

int cuda_rows_draw(struct cuda_backend *backend, cudaStream_t stream, const struct cuda_rows *rows,
                   const struct row_partial *partials, const struct tt_row_stats *stats,
                   const struct cuda_sites *sites, int32_t *tokens)
{
    if (rows->rows == 0) return TT_OK;
    return cuda_launch(
        &backend->device, stream, draw_kernel, dim3((unsigned)rows->rows), CUDA_ROW_THREADS,
        draw_task_of(backend, rows, partials, stats, sites, tokens), "drawing tokens");
}

/* Warp w of the grid runs the race of chunk w % chunks of row w / chunks. */
static __global__ void __launch_bounds__(CUDA_ROW_THREADS) race_kernel(struct draw_task task)
{
    const size_t chunks = chunks_of(task.rows.vocab);
    const size_t warp =
        (size_t)blockIdx.x * (CUDA_ROW_THREADS / LANE_THREADS) + threadIdx.x / LANE_THREADS;
    if (warp >= task.rows.rows * chunks) return;
    const size_t row = warp / chunks, chunk = warp % chunks;
    if (task.stats[row].flags & TT_ROW_FLAGGED) return;
    const float max = warp_row_max(task.partials + row * task.pitch, chunks);
    const struct race_winner winner =
        warp_race(row_of(&task.rows, row), task.rows.dtype, chunk, task.rows.vocab, max,
                  scale_of(&task.rows, row), task.sites.key[row], task.sites.token_index[row]);
    LANE_ONCE task.winners[row * task.pitch + chunk] = winner;
}

/* A thread a row. */
static __global__ void __launch_bounds__(CUDA_ROW_THREADS) finish_race_kernel(struct draw_task task)
{
    const size_t row = (size_t)blockIdx.x * CUDA_ROW_THREADS + threadIdx.x;
    if (row >= task.rows.rows) return;
    task.tokens[row] =
        task.stats[row].flags & TT_ROW_FLAGGED
            ? -1
            : race_winner_of(task.winners + row * task.pitch, chunks_of(task.rows.vocab));
}

int cuda_rows_race(struct cuda_backend *backend, cudaStream_t stream, const struct cuda_rows *rows,
                   const struct row_partial *partials, const struct tt_row_stats *stats,
                   const struct cuda_sites *sites, int32_t *tokens)
{
    const struct draw_task task = draw_task_of(backend, rows, partials, stats, sites, tokens);
    const size_t warps = rows->rows * ((rows->vocab + ROW_CHUNK - 1) / ROW_CHUNK);
    const size_t per_block = CUDA_ROW_THREADS / LANE_THREADS;
    if (rows->rows == 0) return TT_OK;
    const int status = cuda_launch(&backend->device, stream, race_kernel,
                                   dim3((unsigned)((warps + per_block - 1) / per_block)),
                                   CUDA_ROW_THREADS, task, "running races");
    if (status) return status;
    return cuda_launch(&backend->device, stream, finish_race_kernel,
                       dim3((unsigned)((rows->rows + CUDA_ROW_THREADS - 1) / CUDA_ROW_THREADS)),
                       CUDA_ROW_THREADS, task, "finishing races");
}
