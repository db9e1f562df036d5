/* cuda_transform.cu - what a client asked for, applied to target rows on a CUDA device: a block a
 * row, in one launch.
 *
 * Bias and penalties are those of transform_body.h. A filter looks for its border, the last token
 * that stays in the order of candidate_rank, by radix selection over the 32 bits of the rank: four
 * histograms of what weighs in (1 for top-k, the token's mass for top-p), then the place among
 * equals. Masses are double precision exponentials held as integers of 2^-64, so that sums do not
 * depend on their order.
 */
#include "config.h"

#include "kernels/cuda_step.h"
#include "kernels/transform_body.h"

#define WARPS (CUDA_ROW_THREADS / LANE_THREADS)
#define DIGITS 256 /* of a radix; also the threads of a block */
static_assert(CUDA_ROW_THREADS == DIGITS, "a thread a digit");

typedef unsigned __int128 wide;
typedef unsigned long long word; /* what atomicAdd takes */

/* A sum of masses in two words: whole * 2^-32 + part * 2^-64. Up to 2^31 tokens fit. */
struct mass {
    word whole, part;
};

CUDA_FN struct mass mass_of(double weight)
{
    struct mass mass;
    const double scaled = weight * 4294967296.0;
    mass.whole = (word)scaled;
    mass.part = (word)((scaled - (double)mass.whole) * 4294967296.0);
    return mass;
}

CUDA_FN wide wide_of(word whole, word part)
{
    return ((wide)whole << 32) + part;
}

/* double * 2^64, truncated; for 0 <= x < 2^63. */
CUDA_FN wide wide_of_double(double x)
{
    const double whole = (double)(word)x;
    return ((wide)(word)x << 64) + (wide)((x - whole) * 18446744073709551616.0);
}

CUDA_FN double double_of_wide(wide x)
{
    return (double)(word)(x >> 64) + (double)(word)x * 0x1p-64;
}

/* The last token that stays: every one of a smaller rank, and of this rank up to this id. */
struct border {
    uint32_t rank, last;
};

struct filter {
    const float *row;
    size_t vocab;
    float max;
    double inverse_temperature;
};

CUDA_FN bool is_within(const struct border *border, uint32_t rank, size_t i)
{
    return rank < border->rank || (rank == border->rank && i <= border->last);
}

CUDA_FN struct mass weight_in(const struct filter *filter, bool by_mass, float x)
{
    if (by_mass) return mass_of(filter_weight(x, filter->max, filter->inverse_temperature));
    const struct mass one = {4294967296u, 0};
    return one;
}

struct select_scratch {
    word whole[WARPS][DIGITS], part[WARPS][DIGITS]; /* a histogram a warp: fewer collisions */
    wide reached;
    uint32_t rank;
    unsigned counts[WARPS];
    unsigned last;
};

/* One histogram: what tokens of this prefix weigh, by the next 8 bits of their rank. */
CUDA_FN void count_digits(const struct filter *filter, bool by_mass, const struct border *within,
                          unsigned shift, struct select_scratch *scratch)
{
    const unsigned warp = threadIdx.x / LANE_THREADS;
    const uint32_t prefix = scratch->rank;

    for (int w = 0; w < WARPS; w++)
        scratch->whole[w][threadIdx.x] = scratch->part[w][threadIdx.x] = 0;
    __syncthreads();
    for (size_t i = threadIdx.x; i < filter->vocab; i += CUDA_ROW_THREADS) {
        const float x = filter->row[i];
        const uint32_t rank = candidate_rank(x);
        if (x == -row_infinity() || !is_within(within, rank, i)) continue;
        if (shift < 24 && rank >> (shift + 8) != prefix >> (shift + 8)) continue;
        const struct mass mass = weight_in(filter, by_mass, x);
        const unsigned digit = rank >> shift & (DIGITS - 1);
        atomicAdd(&scratch->whole[warp][digit], mass.whole);
        if (mass.part) atomicAdd(&scratch->part[warp][digit], mass.part);
    }
    __syncthreads();
    for (int w = 1; w < WARPS; w++) {
        scratch->whole[0][threadIdx.x] += scratch->whole[w][threadIdx.x];
        scratch->part[0][threadIdx.x] += scratch->part[w][threadIdx.x];
    }
    __syncthreads();
}

/* The digit in which the target is reached; where all of it weighs less, the last that weighs. */
CUDA_FN void choose_digit(wide target, unsigned shift, struct select_scratch *scratch)
{
    wide reached = scratch->reached, before = reached;
    unsigned chosen = 0;
    for (unsigned d = 0; d < DIGITS; d++) {
        const wide weight = wide_of(scratch->whole[0][d], scratch->part[0][d]);
        if (weight == 0) continue;
        chosen = d;
        before = reached;
        reached += weight;
        if (reached >= target) break;
    }
    scratch->reached = before;
    scratch->rank |= chosen << shift;
}

/* The id of the nth (from 1) token of this rank. */
static __device__ uint32_t find_nth(const struct filter *filter, uint32_t rank, size_t nth,
                                    struct select_scratch *scratch)
{
    const unsigned warp = threadIdx.x / LANE_THREADS, lane = threadIdx.x % LANE_THREADS;
    size_t before = 0;
    for (size_t from = 0; from < filter->vocab && before < nth; from += CUDA_ROW_THREADS) {
        const size_t i = from + threadIdx.x;
        const bool hit = i < filter->vocab && candidate_rank(filter->row[i]) == rank;
        const unsigned hits = __ballot_sync(0xffffffffu, hit);
        size_t own = before + (size_t)__popc(hits & ((1u << lane) - 1));
        size_t all = 0;
        LANE_ONCE scratch->counts[warp] = (unsigned)__popc(hits);
        __syncthreads();
        for (unsigned w = 0; w < WARPS; w++) {
            if (w < warp) own += scratch->counts[w];
            all += scratch->counts[w];
        }
        if (hit && own + 1 == nth) scratch->last = (unsigned)i;
        before += all;
        __syncthreads();
    }
    return scratch->last;
}

/* The shortest head, in the order of the filters, that weighs `target`; at least one token. */
static __device__ struct border block_select(const struct filter *filter, bool by_mass, wide target,
                                             const struct border *within,
                                             struct select_scratch *scratch)
{
    struct border border;
    if (threadIdx.x == 0) {
        scratch->reached = 0;
        scratch->rank = 0;
    }
    __syncthreads();
    for (int shift = 24; shift >= 0; shift -= 8) {
        count_digits(filter, by_mass, within, (unsigned)shift, scratch);
        if (threadIdx.x == 0) choose_digit(target, (unsigned)shift, scratch);
        __syncthreads();
    }
    border.rank = scratch->rank;
    const struct mass mass = weight_in(filter, by_mass, candidate_rank_logit(border.rank));
    const wide each = wide_of(mass.whole, mass.part);
    const wide missing = target > scratch->reached ? target - scratch->reached : 1;
    const unsigned digit = border.rank & (DIGITS - 1);
    const wide equals = wide_of(scratch->whole[0][digit], scratch->part[0][digit]);
    __syncthreads();
    if (missing > equals - each)
        border.last = border.rank == within->rank ? within->last : 0xffffffffu; /* all of them */
    else
        border.last = find_nth(filter, border.rank, (size_t)((missing + each - 1) / each), scratch);
    return border;
}

/* What the tokens within the border weigh, in double precision. */
static __device__ double block_mass(const struct filter *filter, const struct border *within,
                                    struct select_scratch *scratch)
{
    struct mass own = {0, 0};
    if (threadIdx.x == 0) scratch->whole[0][0] = scratch->part[0][0] = 0;
    __syncthreads();
    for (size_t i = threadIdx.x; i < filter->vocab; i += CUDA_ROW_THREADS) {
        const float x = filter->row[i];
        if (x == -row_infinity() || !is_within(within, candidate_rank(x), i)) continue;
        const struct mass mass = weight_in(filter, true, x);
        own.whole += mass.whole;
        own.part += mass.part;
    }
    atomicAdd(&scratch->whole[0][0], own.whole);
    atomicAdd(&scratch->part[0][0], own.part);
    __syncthreads();
    const double mass = double_of_wide(wide_of(scratch->whole[0][0], scratch->part[0][0]));
    __syncthreads();
    return mass;
}

/* The row's largest logit; NaN when it holds one. */
static __device__ float block_max(const float *row, size_t vocab)
{
    __shared__ float maxima[WARPS];
    __shared__ int nans[WARPS];
    float max = -row_infinity();
    bool nan = false;
    for (size_t i = threadIdx.x; i < vocab; i += CUDA_ROW_THREADS) {
        const float x = row[i];
        nan |= x != x;
        max = x > max ? x : max;
    }
    for (int hop = LANE_THREADS / 2; hop > 0; hop /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, max, hop);
        max = other > max ? other : max;
    }
    nan = __any_sync(0xffffffffu, nan);
    LANE_ONCE
    {
        maxima[threadIdx.x / LANE_THREADS] = max;
        nans[threadIdx.x / LANE_THREADS] = nan;
    }
    __syncthreads();
    for (int w = 0; w < WARPS; w++) {
        max = maxima[w] > max ? maxima[w] : max;
        nan |= nans[w] != 0;
    }
    __syncthreads();
    return nan ? row_nan() : max;
}

static __device__ void block_filter(float *row, size_t vocab, const struct tt_transform *transform)
{
    __shared__ struct select_scratch scratch;
    const bool by_k = filters_by_k(transform, vocab);
    const bool by_p = transform->top_p<1.0f, by_min = transform->min_p> 0.0f;
    struct border border = {0xffffffffu, 0xffffffffu};

    if (!by_k && !by_p && !by_min) return;
    const float max = block_max(row, vocab);
    if (max != max || max == row_infinity() || max == -row_infinity()) return; /* flagged later */
    const struct filter filter = {row, vocab, max, (double)(1.0f / transform->temperature)};
    if (by_k)
        border = block_select(&filter, false, (wide)transform->top_k << 64, &border, &scratch);
    if (by_p) {
        const double target = (double)transform->top_p * block_mass(&filter, &border, &scratch);
        border = block_select(&filter, true, wide_of_double(target), &border, &scratch);
    }
    if (by_min) {
        const uint32_t floor =
            candidate_rank(min_p_floor(max, filter.inverse_temperature, transform->min_p));
        if (floor < border.rank) {
            border.rank = floor;
            border.last = 0xffffffffu;
        }
    }
    for (size_t i = threadIdx.x; i < vocab; i += CUDA_ROW_THREADS)
        if (!is_within(&border, candidate_rank(row[i]), i)) row[i] = -row_infinity();
}

/* Ids outside the vocabulary are left out. A token that is listed twice is added to twice, by the
 * thread of its first place. */
static __device__ void block_bias(float *row, size_t vocab, const struct tt_transform *transform)
{
    const struct tt_logit_bias *bias = transform->bias;
    for (size_t i = threadIdx.x; i < transform->bias_count; i += CUDA_ROW_THREADS) {
        const int32_t token = bias[i].token;
        bool first = token >= 0 && (size_t)token < vocab;
        for (size_t j = 0; first && j < i; j++) first = bias[j].token != token;
        for (size_t j = i; first && j < transform->bias_count; j++)
            if (bias[j].token == token) row[token] += bias[j].bias;
    }
}

static __device__ void block_penalties(float *row, size_t vocab,
                                       const struct tt_transform *transform, const int32_t *extra,
                                       size_t extra_count)
{
    if (!has_penalties(transform)) return;
    for (size_t i = threadIdx.x; i < transform->counts_count; i += CUDA_ROW_THREADS) {
        const int32_t token = transform->counts[i].token;
        if (token >= 0 && (size_t)token < vocab)
            penalise_counted(row, transform, i, extra, extra_count);
    }
    for (size_t i = threadIdx.x; i < extra_count; i += CUDA_ROW_THREADS)
        if (extra[i] >= 0 && (size_t)extra[i] < vocab)
            penalise_extra(row, transform, i, extra, extra_count);
}

static __device__ void block_transform(float *row, size_t vocab,
                                       const struct tt_transform *transform, const int32_t *extra,
                                       size_t extra_count)
{
    block_bias(row, vocab, transform);
    __syncthreads();
    block_penalties(row, vocab, transform, extra, extra_count);
    __syncthreads();
    if (transform->temperature > 0.0f) block_filter(row, vocab, transform);
}

/* ---- one row, and the rows of a step */

struct row_task {
    float *row;
    size_t vocab;
    const struct tt_transform *transform;
    const int32_t *extra;
    size_t extra_count;
};

static __global__ void __launch_bounds__(CUDA_ROW_THREADS) row_kernel(struct row_task task)
{
    const struct tt_transform transform = *task.transform;
    block_transform(task.row, task.vocab, &transform, task.extra, task.extra_count);
}

int cuda_row_transform(struct cuda_backend *backend, cudaStream_t stream, float *row, size_t vocab,
                       const struct tt_transform *transform, const int32_t *extra,
                       size_t extra_count)
{
    const struct row_task task = {row, vocab, transform, extra, extra_count};
    return cuda_launch(&backend->device, stream, row_kernel, dim3(1), CUDA_ROW_THREADS, task,
                       "transforming a row");
}

/* Block b: position b % (positions + 1) of request b / (positions + 1). */
static __global__ void __launch_bounds__(CUDA_ROW_THREADS) step_kernel(struct tt_cuda_step step)
{
    const size_t r = blockIdx.x / (step.positions + 1), k = blockIdx.x % (step.positions + 1);
    struct step_request request;
    if (!step_request_of(&step, r, &request) || k > (size_t)request.admitted) return;
    const struct tt_transform transform = step.transform[r];
    block_transform(step_target(&step, r, k), step.vocab, &transform,
                    step.tokens + r * step.positions, k);
}

int cuda_step_transform(struct cuda_backend *backend, cudaStream_t stream,
                        const struct tt_cuda_step *step)
{
    return cuda_launch(&backend->device, stream, step_kernel,
                       dim3((unsigned)(step->requests * (step->positions + 1))), CUDA_ROW_THREADS,
                       *step, "transforming the rows of a step");
}
