/* cuda_body.h - what a warp or a block of threads does with one row: the device half of the row
 * kernels, over the bodies that the CPU compiles too. Included by .cu files alone.
 *
 * A chunk belongs to one warp; an aligned full chunk is read once, 16 bytes (fp32) or 8 bytes
 * (fp16, bf16) a thread and load, and stays in registers between the search for its maximum and the
 * sum of its losers. Draws are made by a whole block; every thread of it gets the token.
 */
#ifndef KERNELS_CUDA_BODY_H
#define KERNELS_CUDA_BODY_H

#include "kernels/cuda_workspace.h" /* the runtime, before the bodies */

#include "kernels/choice_body.h"
#include "kernels/law_body.h"
#include "kernels/race_body.h"

#define CUDA_FN static __device__ __forceinline__
#define CUDA_CALL static __device__ inline
#ifdef __CUDACC__
#define CUDA_UNROLL_FEW                                                                            \
    _Pragma("unroll 4") /* some loads in flight, without running out of registers */
#else
#define CUDA_UNROLL_FEW
#endif

/* Four neighbouring elements of an aligned row, as loaded. */
template <enum row_dtype dtype> struct row_quad {
    uint2 held;

    __device__ __forceinline__ void load(const void *row, size_t i)
    {
        held = *reinterpret_cast<const uint2 *>(static_cast<const uint16_t *>(row) + i);
    }
    __device__ __forceinline__ float at(int j) const
    {
        const uint32_t word = j < 2 ? held.x : held.y;
        const uint16_t half = static_cast<uint16_t>(j % 2 ? word >> 16 : word);
        return row_value(&half, dtype, 0);
    }
};

template <> struct row_quad<ROW_F32> {
    float4 held;

    __device__ __forceinline__ void load(const void *row, size_t i)
    {
        held = *reinterpret_cast<const float4 *>(static_cast<const float *>(row) + i);
    }
    __device__ __forceinline__ float at(int j) const
    {
        return j == 0 ? held.x : j == 1 ? held.y : j == 2 ? held.z : held.w;
    }
};

CUDA_FN bool row_is_aligned(const void *row, enum row_dtype dtype)
{
    return reinterpret_cast<uintptr_t>(row) % (dtype == ROW_F32 ? 16 : 8) == 0;
}

/* chunk_losers of a full chunk of an aligned row, read once. */
template <enum row_dtype dtype>
CUDA_FN struct row_partial chunk_losers_held(const void *row, size_t from,
                                             float inverse_temperature)
{
    const size_t own = from + threadIdx.x % LANE_THREADS * LANE_WIDTH;
    row_quad<dtype> held[ROW_CHUNK_GROUPS];
    float max[LANE_WIDTH], rest[LANE_WIDTH], ties[LANE_WIDTH];

    LANE_UNROLL
    for (int t = 0; t < ROW_CHUNK_GROUPS; t++) held[t].load(row, own + (size_t)t * LANE_COUNT);
    LANE_UNROLL
    for (int j = 0; j < LANE_WIDTH; j++) {
        max[j] = -row_infinity();
        rest[j] = ties[j] = 0.0f;
    }
    LANE_UNROLL
    for (int t = 0; t < ROW_CHUNK_GROUPS; t++) {
        LANE_UNROLL
        for (int j = 0; j < LANE_WIDTH; j++) {
            const float x = held[t].at(j);
            max[j] = x > max[j] ? x : max[j];
        }
    }
    const float chunk_max = lanes_max(max);
    const float reference = chunk_reference(chunk_max), rate = exp_rate(inverse_temperature);
    LANE_UNROLL
    for (int t = 0; t < ROW_CHUNK_GROUPS; t++) {
        LANE_UNROLL
        for (int j = 0; j < LANE_WIDTH; j++)
            lose(held[t].at(j), reference, rate, &rest[j], &ties[j]);
    }
    const float rest_sum = lanes_sum(rest);
    return chunk_finish(chunk_max, rest_sum, lanes_sum(ties));
}

/* One chunk of a row, by one warp. */
template <enum row_dtype dtype>
CUDA_FN struct row_partial warp_partial(const void *row, size_t chunk, size_t vocab,
                                        float inverse_temperature)
{
    const size_t from = chunk * ROW_CHUNK;
    if (vocab - from >= ROW_CHUNK && row_is_aligned(row, dtype))
        return chunk_losers_held<dtype>(row, from, inverse_temperature);
    const size_t end = vocab - from > ROW_CHUNK ? from + ROW_CHUNK : vocab;
    const struct row_ahead none = {0, 0};
    return chunk_losers(row, dtype, from, end, none, inverse_temperature);
}

/* A row's statistics from its partials, by one block: its first thread merges, all of them look for
 * the mode in the first chunk that holds the maximum. `out` is written by the first thread. */
CUDA_FN void block_measure(const void *row, enum row_dtype dtype, size_t vocab,
                           float inverse_temperature, const struct row_partial *partials,
                           struct tt_row_stats *out)
{
    __shared__ float max;
    __shared__ double rest;
    __shared__ unsigned mode;
    const size_t chunks = (vocab + ROW_CHUNK - 1) / ROW_CHUNK;

    if (threadIdx.x == 0) {
        merge_partials(partials, chunks, inverse_temperature, &max, &rest);
        mode = 0xffffffffu;
    }
    __syncthreads();
    if (row_is_flagged(max, rest)) {
        if (threadIdx.x == 0) row_stats_flagged(out);
        return;
    }
    size_t chunk = 0;
    while (partials[chunk].max != max) chunk++;
    const size_t from = chunk * ROW_CHUNK;
    const size_t end = vocab - from > ROW_CHUNK ? from + ROW_CHUNK : vocab;
    for (size_t i = from + threadIdx.x; i < end; i += blockDim.x)
        if (row_value(row, dtype, i) == max) {
            atomicMin(&mode, (unsigned)i);
            break;
        }
    __syncthreads();
    if (threadIdx.x == 0)
        row_stats_measured(max, rest, inverse_temperature, mode, row_value(row, dtype, mode), out);
}

/* ---- draws */

/* Weights of a tile for a draw from the row itself, relative to its chunk's maximum. */
struct whole_tile {
    const void *row;
    enum row_dtype dtype;
    float max, inverse_temperature;

    __device__ __forceinline__ void weigh(size_t i, size_t end, float *weight) const
    {
        LANES(l)
        LANE_AT(weight, l) = exp_lane((row_value_or_removed(row, dtype, i + (size_t)l, end) - max) *
                                      inverse_temperature);
    }
};

/* Weights of a tile for a draw from max(p - q, 0). */
struct residual_tile {
    struct row_law p, q;

    __device__ __forceinline__ void weigh(size_t i, size_t end, float *weight) const
    {
        LANES(l)
        LANE_AT(weight, l) =
            law_residual(&p, &q, row_value_or_removed(p.logits, ROW_F32, i + (size_t)l, end),
                         row_value_or_removed(q.logits, ROW_F32, i + (size_t)l, q.vocab));
    }
};

/* Where a draw is made: its stream, and its place in it. */
struct draw_site {
    uint64_t key;
    struct choice_site site;
};

CUDA_FN double draw_uniform(const struct draw_site *at, enum choice_level level)
{
    return choice_uniform(at->key, &at->site, (uint32_t)level);
}

/* A token inside the chunk x[from .. end), by the first warp; every thread of the block gets it. */
template <typename Tile>
CUDA_CALL int32_t block_draw_in_chunk(const Tile &tile, size_t from, size_t end,
                                      const struct draw_site *at)
{
    __shared__ double weights[LANE_COUNT];
    __shared__ int32_t token;

    if (threadIdx.x < LANE_THREADS) {
        LANE_PRIVATE(float, weight);
        CUDA_UNROLL_FEW
        for (size_t g = 0; g < ROW_CHUNK_GROUPS; g++) {
            const size_t i = from + g * ROW_GROUP;
            double sum = 0.0;
            if (i < end) {
                tile.weigh(i, end, weight);
                sum = (double)lanes_sum(weight);
            }
            LANE_ONCE weights[g] = sum;
        }
        __syncwarp();
        const size_t group = choice_pick(draw_uniform(at, CHOICE_GROUP), weights, ROW_CHUNK_GROUPS);
        __syncwarp();
        tile.weigh(from + group * ROW_GROUP, end, weight);
        LANES(l) weights[l] = (double)LANE_AT(weight, l);
        __syncwarp();
        const size_t j = choice_pick(draw_uniform(at, CHOICE_TOKEN), weights, ROW_GROUP);
        LANE_ONCE token = (int32_t)(from + group * ROW_GROUP + j);
    }
    __syncthreads();
    const int32_t drawn = token;
    __syncthreads(); /* the next draw writes it again */
    return drawn;
}

CUDA_FN size_t chunk_end(size_t from, size_t vocab)
{
    return vocab - from > ROW_CHUNK ? from + ROW_CHUNK : vocab;
}

/* A token from softmax(row * inverse_temperature). max is the row's; masses (chunks) is room. */
CUDA_CALL int32_t block_draw(const void *row, enum row_dtype dtype, size_t vocab, float max,
                             float inverse_temperature, const struct row_partial *partials,
                             double *masses, const struct draw_site *at)
{
    const size_t chunks = (vocab + ROW_CHUNK - 1) / ROW_CHUNK;
    for (size_t c = threadIdx.x; c < chunks; c += blockDim.x)
        masses[c] = partial_mass(partials[c], max, inverse_temperature);
    __syncthreads();
    const size_t chunk = choice_pick(draw_uniform(at, CHOICE_CHUNK), masses, chunks);
    const size_t from = chunk * ROW_CHUNK;
    const struct whole_tile tile = {row, dtype, partials[chunk].max, inverse_temperature};
    return block_draw_in_chunk(tile, from, chunk_end(from, vocab), at);
}

/* A token from max(p - q, 0), renormalised; -1 where that is 0 everywhere. masses (chunks) is room.
 */
CUDA_CALL int32_t block_draw_residual(const struct row_law *p, const struct row_law *q,
                                      double *masses, const struct draw_site *at)
{
    const size_t chunks = (p->vocab + ROW_CHUNK - 1) / ROW_CHUNK;
    const size_t warps = blockDim.x / LANE_THREADS;
    const struct residual_tile tile = {*p, *q};
    double total = 0.0;

    for (size_t c = threadIdx.x / LANE_THREADS; c < chunks; c += warps) {
        const size_t end = chunk_end(c * ROW_CHUNK, p->vocab);
        LANE_PRIVATE(float, weight);
        LANE_PRIVATE(float, sum);
        LANES(l) LANE_AT(sum, l) = 0.0f;
        CUDA_UNROLL_FEW
        for (size_t i = c * ROW_CHUNK; i < end; i += ROW_GROUP) {
            tile.weigh(i, end, weight);
            LANES(l) LANE_AT(sum, l) += LANE_AT(weight, l);
        }
        const float mass = lanes_sum(sum);
        LANE_ONCE masses[c] = (double)mass;
    }
    __syncthreads();
    for (size_t c = 0; c < chunks; c++) total += masses[c];
    if (!(total > 0.0)) return -1;
    const size_t from = choice_pick(draw_uniform(at, CHOICE_CHUNK), masses, chunks) * ROW_CHUNK;
    return block_draw_in_chunk(tile, from, chunk_end(from, p->vocab), at);
}

/* ---- the race */

CUDA_FN bool race_beats(float score, int32_t token, const struct race_winner *leader)
{
    return leader->token < 0 || score > leader->score ||
           (score == leader->score && token < leader->token);
}

/* The winner among the tokens of one chunk, by one warp; every thread of it gets it. max is the
 * row's. A group is expanded only where its bound reaches the leader (race_body.h). */
CUDA_CALL struct race_winner warp_race(const void *row, enum row_dtype dtype, size_t chunk,
                                       size_t vocab, float max, float inverse_temperature,
                                       uint64_t key, uint64_t token_index)
{
    const size_t from = chunk * ROW_CHUNK, end = chunk_end(from, vocab);
    const uint32_t first_group = (uint32_t)(from / ROW_GROUP);
    struct race_winner leader = {-row_infinity(), -1};
    uint32_t own_word, own_place; /* of the group that this lane stands for */

    race_first(key, token_index, first_group + threadIdx.x % LANE_THREADS, &own_word, &own_place);
    const float own_first = race_first_arrival(own_word);
    for (size_t i = from; i < end; i += ROW_GROUP) {
        const int g = (int)((i - from) / ROW_GROUP);
        const float first = __shfl_sync(0xffffffffu, own_first, g);
        const uint32_t place = __shfl_sync(0xffffffffu, own_place, g);
        LANE_PRIVATE(float, x);
        LANE_PRIVATE(float, arrival);
        LANES(l) LANE_AT(x, l) = row_value_or_removed(row, dtype, i + (size_t)l, end);
        const float bound = race_bound(lanes_max(x), max, inverse_temperature, first);
        if (leader.token >= 0 && bound < leader.score - race_slack(leader.score)) continue;
        race_expand(key, token_index, first_group + (uint32_t)g, first, place, arrival);
        LANES(l)
        {
            const int32_t token = (int32_t)(i + (size_t)l);
            const float score =
                (LANE_AT(x, l) - max) * inverse_temperature - log_lane(LANE_AT(arrival, l));
            if (LANE_AT(x, l) > -row_infinity() && race_beats(score, token, &leader)) {
                leader.score = score;
                leader.token = token;
            }
        }
        for (int hop = LANE_THREADS / 2; hop > 0; hop /= 2) {
            const float score = __shfl_xor_sync(0xffffffffu, leader.score, hop);
            const int32_t token = __shfl_xor_sync(0xffffffffu, leader.token, hop);
            if (token >= 0 && race_beats(score, token, &leader)) {
                leader.score = score;
                leader.token = token;
            }
        }
    }
    return leader;
}

/* Largest of the partials' maxima, by one warp; every thread of it gets it. */
CUDA_FN float warp_row_max(const struct row_partial *partials, size_t chunks)
{
    float max = -row_infinity();
    for (size_t c = threadIdx.x % LANE_THREADS; c < chunks; c += LANE_THREADS)
        max = partials[c].max > max ? partials[c].max : max;
    for (int hop = LANE_THREADS / 2; hop > 0; hop /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, max, hop);
        max = other > max ? other : max;
    }
    return max;
}

/* The winner of a row from those of its chunks. */
CUDA_FN int32_t race_winner_of(const struct race_winner *winners, size_t chunks)
{
    struct race_winner leader = {-row_infinity(), -1};
    for (size_t c = 0; c < chunks; c++)
        if (winners[c].token >= 0 && race_beats(winners[c].score, winners[c].token, &leader))
            leader = winners[c];
    return leader.token;
}

#endif
