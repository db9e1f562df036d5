/* rows_cpu.c - the loop flavour of the row bodies, compiled once per instruction set.
 *
 * ROW_OPS names the table this object defines and ROW_ISA its instruction set; the flags in
 * local.mk choose the machine. No floating-point contraction: every object gives the same bits.
 */
#include "config.h"

#include "kernels/race_body.h"
#include "kernels/row_ops.h"

#include <string.h>

#ifndef ROW_OPS
#error "ROW_OPS names the table of this object"
#endif

/* Calls `f` with the element type as a constant, so that its loads vectorise. */
#define FOR_DTYPE(dtype, f, ...)                                                                   \
    ((dtype) == TT_F32   ? f(ROW_F32, __VA_ARGS__)                                                 \
     : (dtype) == TT_F16 ? f(ROW_F16, __VA_ARGS__)                                                 \
                         : f(ROW_BF16, __VA_ARGS__))

static size_t end_of(size_t from, size_t step, size_t vocab)
{
    return vocab - from > step ? from + step : vocab;
}

/* One text for all types, so that there is one loop to make quick: a chunk is fp32 here. */
static __attribute__((noinline)) struct row_partial
losers_of(const float *chunk, size_t count, struct row_ahead ahead, float inverse_temperature)
{
    return chunk_losers(chunk, ROW_F32, 0, count, ahead, inverse_temperature);
}

LANE_FN struct row_partial partial_of(enum row_dtype dtype, const void *row, size_t from,
                                      size_t end, float inverse_temperature)
{
    _Alignas(LANE_LINE_BYTES) float wide[ROW_CHUNK];
    const size_t count = end - from;
    const struct row_ahead ahead = {(uintptr_t)row_address(row, dtype, end),
                                    LANE_BLOCK * (dtype == ROW_F32 ? 4 : 2)};

    if (dtype == ROW_F32)
        return losers_of((const float *)row + from, count, ahead, inverse_temperature);
#pragma omp simd
    for (size_t i = 0; i < count; i++) wide[i] = row_value(row, dtype, from + i);
    return losers_of(wide, count, ahead, inverse_temperature);
}

LANE_FN int partials_of(enum row_dtype dtype, const void *row, size_t vocab,
                        float inverse_temperature, struct row_partial *partials)
{
    for (size_t from = 0; from < vocab; from += ROW_CHUNK, partials++)
        *partials =
            partial_of(dtype, row, from, end_of(from, ROW_CHUNK, vocab), inverse_temperature);
    return 0;
}

static void partials_any(const void *row, enum tt_dtype dtype, size_t vocab,
                         float inverse_temperature, struct row_partial *partials)
{
    (void)FOR_DTYPE(dtype, partials_of, row, vocab, inverse_temperature, partials);
}

static struct row_partial partial_any(const void *row, enum tt_dtype dtype, size_t from, size_t end,
                                      float inverse_temperature)
{
    return FOR_DTYPE(dtype, partial_of, row, from, end, inverse_temperature);
}

LANE_FN size_t find_of(enum row_dtype dtype, const void *row, size_t from, size_t end, float value)
{
    size_t i = from;
    for (; i + LANE_COUNT <= end; i += LANE_COUNT) {
        unsigned hit = 0;
#pragma omp simd reduction(| : hit)
        for (int l = 0; l < LANE_COUNT; l++)
            hit |= row_value(row, dtype, i + (size_t)l) == value ? 1u : 0u;
        if (hit) break;
    }
    while (i < end && row_value(row, dtype, i) != value) i++;
    return i;
}

static size_t find_any(const void *row, enum tt_dtype dtype, size_t from, size_t end, float value)
{
    return FOR_DTYPE(dtype, find_of, row, from, end, value);
}

LANE_FN int group_maxima_of(enum row_dtype dtype, const void *row, size_t vocab, float *maxima)
{
    LANE_PRIVATE(float, nans);
    LANES(l) nans[l] = 0.0f;
    for (size_t from = 0; from < vocab; from += ROW_GROUP, maxima++) {
        float x[LANE_COUNT];
        if (vocab - from >= LANE_COUNT) {
            if (from + LANE_PREFETCH_AHEAD < vocab)
                for (size_t line = 0; line < LANE_COUNT; line += dtype == ROW_F32 ? 16 : 32)
                    LANE_PREFETCH(row_address(row, dtype, from + LANE_PREFETCH_AHEAD + line));
            LANES(l) x[l] = row_value(row, dtype, from + (size_t)l);
        } else {
            for (int l = 0; l < LANE_COUNT; l++)
                x[l] = row_value_or_removed(row, dtype, from + (size_t)l, vocab);
        }
        LANES(l)
        {
            nans[l] += x[l] != x[l] ? 1.0f : 0.0f;
            x[l] = x[l] != x[l] ? -row_infinity() : x[l];
        }
        *maxima = lanes_max(x);
    }
    return lanes_sum(nans) > 0.0f;
}

static int group_maxima_any(const void *row, enum tt_dtype dtype, size_t vocab, float *maxima)
{
    return FOR_DTYPE(dtype, group_maxima_of, row, vocab, maxima);
}

LANE_FN int weights_of(enum row_dtype dtype, const void *row, size_t from, size_t end, float max,
                       float inverse_temperature, float *weight, float *sums)
{
    memset(sums, 0, ROW_CHUNK_GROUPS * sizeof *sums);
    for (size_t i = from; i < end; i += ROW_GROUP, weight += ROW_GROUP, sums++) {
        if (end - i >= ROW_GROUP) {
            LANES(l)
            weight[l] =
                exp_lane((row_value(row, dtype, i + (size_t)l) - max) * inverse_temperature);
        } else {
            for (int l = 0; l < LANE_COUNT; l++)
                weight[l] = exp_lane((row_value_or_removed(row, dtype, i + (size_t)l, end) - max) *
                                     inverse_temperature);
        }
        *sums = lanes_sum(weight);
    }
    return 0;
}

static void weights_any(const void *row, enum tt_dtype dtype, size_t from, size_t end, float max,
                        float inverse_temperature, float *weight, float *sums)
{
    (void)FOR_DTYPE(dtype, weights_of, row, from, end, max, inverse_temperature, weight, sums);
}

/* One tile of ROW_GROUP residuals from token i on. */
LANE_FN void residual_tile(const struct row_law *p, const struct row_law *q, size_t i, size_t end,
                           float *weight)
{
    /* Copies: the compiler need not fear that `weight` overlaps the laws. */
    const struct row_law pl = *p, ql = *q;
    if (i + ROW_GROUP <= end && i + ROW_GROUP <= ql.vocab) {
        LANES(l)
        weight[l] = law_residual(&pl, &ql, pl.logits[i + (size_t)l], ql.logits[i + (size_t)l]);
        return;
    }
    for (int l = 0; l < LANE_COUNT; l++)
        weight[l] =
            law_residual(&pl, &ql, row_value_or_removed(pl.logits, ROW_F32, i + (size_t)l, end),
                         row_value_or_removed(ql.logits, ROW_F32, i + (size_t)l, ql.vocab));
}

static void residuals(const struct row_law *p, const struct row_law *q, size_t from, size_t end,
                      float *weight, float *sums)
{
    memset(sums, 0, ROW_CHUNK_GROUPS * sizeof *sums);
    for (size_t i = from; i < end; i += ROW_GROUP, weight += ROW_GROUP, sums++) {
        residual_tile(p, q, i, end, weight);
        *sums = lanes_sum(weight);
    }
}

static void residual_masses(const struct row_law *p, const struct row_law *q, float *masses)
{
    for (size_t from = 0; from < p->vocab; from += ROW_CHUNK, masses++) {
        const size_t end = end_of(from, ROW_CHUNK, p->vocab);
        float weight[LANE_COUNT], sum[LANE_COUNT];
        LANES(l) sum[l] = 0.0f;
        for (size_t i = from; i < end; i += ROW_GROUP) {
            residual_tile(p, q, i, end, weight);
            LANES(l) sum[l] += weight[l];
        }
        *masses = lanes_sum(sum);
    }
}

static double mass(const float *row, size_t vocab, float max, float inverse_temperature)
{
    double sum[LANE_COUNT];
    size_t i = 0;
    LANES(l) sum[l] = 0.0;
    for (; i + LANE_COUNT <= vocab; i += LANE_COUNT) {
        LANES(l)
        sum[l] +=
            exp_double(((double)row[i + (size_t)l] - (double)max) * (double)inverse_temperature);
    }
    for (int l = 0; i < vocab; i++, l++)
        sum[l] += exp_double(((double)row[i] - (double)max) * (double)inverse_temperature);
    for (int hop = LANE_COUNT / 2; hop > 0; hop /= 2)
        for (int l = 0; l < hop; l++) sum[l] += sum[l + hop];
    return sum[0];
}

static void keep_from(float *row, size_t vocab, float value, size_t last)
{
    const float removed = -row_infinity();
    const size_t lead = last + 1 < vocab ? last + 1 : vocab;
#pragma omp simd
    for (size_t i = 0; i < lead; i++) row[i] = row[i] < value ? removed : row[i];
#pragma omp simd
    for (size_t i = lead; i < vocab; i++) row[i] = row[i] <= value ? removed : row[i];
}

static void arrivals(uint64_t key, uint64_t token_index, uint32_t group, float first,
                     uint32_t place, float *arrival)
{
    race_expand(key, token_index, group, first, place, arrival);
}

static void first_arrivals(uint64_t key, uint64_t token_index, size_t groups, float *first,
                           uint32_t *place)
{
    for (size_t from = 0; from < groups; from += LANE_COUNT) {
        const size_t count = groups - from < LANE_COUNT ? groups - from : LANE_COUNT;
        uint32_t word[LANE_COUNT] = {0};
        float arrival[LANE_COUNT];
        for (size_t g = 0; g < count; g++)
            race_first(key, token_index, (uint32_t)(from + g), &word[g], &place[from + g]);
        LANES(l) arrival[l] = race_first_arrival(word[l]);
        memcpy(first + from, arrival, count * sizeof *first);
    }
}

const struct row_ops ROW_OPS = {
    .isa = ROW_ISA,
    .partials = partials_any,
    .partial = partial_any,
    .find = find_any,
    .group_maxima = group_maxima_any,
    .weights = weights_any,
    .residuals = residuals,
    .residual_masses = residual_masses,
    .mass = mass,
    .keep_from = keep_from,
    .arrivals = arrivals,
    .first_arrivals = first_arrivals,
};
