/* lanes.h - the layer that lets one kernel text compile as plain C loops and as CUDA threads.
 *
 * A lane group works on tiles of LANE_COUNT consecutive elements; lane l owns element l of every
 * tile. In the loop flavour (gcc, clang) private lane state is an array [LANE_COUNT] and LANES a
 * simd loop; in the SPMD flavour (nvcc) the group is one warp, and each thread owns LANE_WIDTH
 * neighbouring lanes in registers. Reductions over lanes use one fixed tree, written out here for
 * both flavours, so that their bits agree.
 *
 * Where a body's lane state should stay in a CPU's registers over many tiles, it walks LANE_BLOCKS:
 * blocks of LANE_BLOCK neighbouring lanes, one after another, each over all its tiles. b is a
 * block's first lane, LANE_OWN(b) its place in a LANE_PRIVATE array, BLOCK_LANES(j) its lanes b +
 * j. A thread of the SPMD flavour has one block: its own lanes.
 *
 * Rules of a shared body: no libm, no fused multiply-add but fused_lane (maths.h), no early exit
 * inside LANES, every lane statement independent of the other lanes.
 */
#ifndef KERNELS_LANES_H
#define KERNELS_LANES_H

#include <stddef.h>
#include <stdint.h>

#define LANE_THREADS 32
#define LANE_WIDTH 4 /* lanes a thread: one 16-byte load of fp32 */
#define LANE_COUNT (LANE_THREADS * LANE_WIDTH)

#define LANE_LINE_BYTES 64 /* a CPU's cache line */
#define LANE_PREFETCH_AHEAD                                                                        \
    4096 /* elements; the distance that keeps one core's loads in flight                           \
          */

/* LANE_SHIM: a test compiles the SPMD flavour for the CPU. */
#if defined(__CUDACC__) || defined(LANE_SHIM)

#define LANE_SPMD 1
#define LANE_FN static __host__ __device__ __forceinline__
#define LANE_GROUP_FN static __device__ __forceinline__
#define LANE_PRIVATE(type, name) type name[LANE_WIDTH]
#ifdef __CUDACC__
#define LANE_UNROLL _Pragma("unroll")
#else
#define LANE_UNROLL
#endif
#define LANES(l)                                                                                   \
    LANE_UNROLL for (int lane_##l = 0, l = (int)(threadIdx.x % LANE_THREADS) * LANE_WIDTH;         \
                     lane_##l < LANE_WIDTH; lane_##l++, l++)
#define LANE_AT(name, l) (name)[lane_##l]
#define LANE_BLOCK LANE_WIDTH
#define LANE_BLOCKS(b)                                                                             \
    for (int once_##b = 1, b = (int)(threadIdx.x % LANE_THREADS) * LANE_WIDTH; once_##b;           \
         once_##b = 0)
#define LANE_OWN(b) 0
#define BLOCK_LANES(j) LANE_UNROLL for (int j = 0; j < LANE_BLOCK; j++)
#define LANE_SCAN LANE_BLOCK
#define LANE_SCANS(b) LANE_BLOCKS(b)
#define SCAN_LANES(j) BLOCK_LANES(j)
#define LANE_ONCE if (threadIdx.x % LANE_THREADS == 0)
#define LANE_PREFETCH(pointer) ((void)0)

LANE_GROUP_FN float lanes_sum(const float *value)
{
    float sum = (value[0] + value[2]) + (value[1] + value[3]);
    for (int hop = LANE_THREADS / 2; hop > 0; hop /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, hop);
    return sum;
}

LANE_GROUP_FN float lanes_max(const float *value)
{
    float max = value[0];
    for (int j = 1; j < LANE_WIDTH; j++) max = value[j] > max ? value[j] : max;
    for (int hop = LANE_THREADS / 2; hop > 0; hop /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, max, hop);
        max = other > max ? other : max;
    }
    return max;
}

#else

#define LANE_SPMD 0
#define LANE_FN static inline __attribute__((always_inline, unused))
#define LANE_GROUP_FN LANE_FN
#define LANE_PRIVATE(type, name) type name[LANE_COUNT]
#define LANES(l) _Pragma("omp simd") for (int l = 0; l < LANE_COUNT; l++)
#define LANE_AT(name, l) (name)[l]
#define LANE_BLOCK                                                                                 \
    16 /* one AVX-512 register, two AVX2 ones: their loops leave no value in memory */
#define LANE_BLOCKS(b) for (int b = 0; b < LANE_COUNT; b += LANE_BLOCK)
/* A loop with one operation an element reads whole tiles in their order where registers allow: a
 * CPU fetches ahead of what it sees read in order. */
#ifdef __AVX512F__
#define LANE_SCAN LANE_COUNT
#else
#define LANE_SCAN LANE_BLOCK
#endif
#define LANE_SCANS(b) for (int b = 0; b < LANE_COUNT; b += LANE_SCAN)
#define SCAN_LANES(j) _Pragma("omp simd") for (int j = 0; j < LANE_SCAN; j++)
#define LANE_OWN(b) (b)
#define BLOCK_LANES(j) _Pragma("omp simd") for (int j = 0; j < LANE_BLOCK; j++)
#define LANE_ONCE
#define LANE_PREFETCH(pointer) __builtin_prefetch((pointer), 0, 3)

/* Spelt out level by level: with constant trip counts every level becomes vector code. */
#define LANES_FOLD(half)                                                                           \
    _Pragma("omp simd") for (int t = 0; t < (half); t++) sum[t] += sum[t + (half)]

/* Thread t of the other flavour holds lanes 4t .. 4t + 3. */
LANE_GROUP_FN float lanes_sum(const float *value)
{
    float sum[LANE_THREADS];
    for (int t = 0; t < LANE_THREADS; t++) {
        const float *own = value + LANE_WIDTH * t;
        sum[t] = (own[0] + own[2]) + (own[1] + own[3]);
    }
    LANES_FOLD(16);
    LANES_FOLD(8);
    LANES_FOLD(4);
    LANES_FOLD(2);
    return sum[0] + sum[1];
}

#define LANES_HALVE(half)                                                                          \
    _Pragma("omp simd") for (int t = 0; t < (half); t++) max[t] =                                  \
        max[t + (half)] > max[t] ? max[t + (half)] : max[t]

LANE_GROUP_FN float lanes_max(const float *value)
{
    float max[LANE_COUNT / 2];
#pragma omp simd
    for (int t = 0; t < LANE_COUNT / 2; t++) {
        const float other = value[t + LANE_COUNT / 2];
        max[t] = other > value[t] ? other : value[t];
    }
    LANES_HALVE(32);
    LANES_HALVE(16);
    LANES_HALVE(8);
    LANES_HALVE(4);
    LANES_HALVE(2);
    return max[1] > max[0] ? max[1] : max[0];
}

#endif
#endif
