/* row_body.h - what is computed over one chunk or one group of a logits row: the shared bodies of
 * the CPU objects and of the CUDA kernels.
 *
 * Loser accumulation, chunk by chunk: the chunk's maximum M is found first, then every element that
 * is below it adds exp((x - M) / T) and every element equal to it is counted, so that the mode
 * never enters the sum and nothing is subtracted. Chunks merge by rescaling the loser: rest =
 * rest_w + (1 + rest_l) * exp((M_l - M_w) / T). A term below 2^-125.5 of its chunk's maximum
 * counts as 0. A NaN of any bits flows into the sums.
 */
#ifndef KERNELS_ROW_BODY_H
#define KERNELS_ROW_BODY_H

#include "kernels/lanes.h"
#include "kernels/maths.h"

#define ROW_CHUNK 4096 /* elements a chunk: 16 KB of fp32, re-read from the first-level cache */
#define ROW_GROUP                                                                                  \
    LANE_COUNT /* elements a group: what one uniform of the coupled race stands for                \
                */
#define ROW_CHUNK_GROUPS (ROW_CHUNK / ROW_GROUP)

/* Element types, as enum tt_dtype; a compile-time constant wherever a body uses it. */
enum row_dtype { ROW_F32 = 0, ROW_F16 = 1, ROW_BF16 = 2 };

/* One chunk: its maximum and the sum over everything but one element that holds it, scaled by that
 * maximum. */
struct row_partial {
    float max;  /* -inf: nothing finite */
    float rest; /* NaN when the chunk holds a NaN or +inf */
};

LANE_FN float row_infinity(void)
{
    return float_of_bits(0x7f800000u);
}
LANE_FN float row_nan(void)
{
    return float_of_bits(0x7fc00000u);
}

LANE_FN float float_of_half(uint16_t half)
{
    const uint32_t magnitude = (uint32_t)(half & 0x7fffu) << 13;
    /* 2^112 moves the exponent's bias and makes subnormal halves normal; infinities and NaN take
     * all exponent bits. */
    const uint32_t finite = bits_of_float(float_of_bits(magnitude) * 5.192296858534828e33f);
    const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
    return float_of_bits((finite | special) | ((uint32_t)(half & 0x8000u) << 16));
}

LANE_FN float row_value(const void *row, enum row_dtype dtype, size_t i)
{
    if (dtype == ROW_F32) return ((const float *)row)[i];
    const uint16_t half = ((const uint16_t *)row)[i];
    return dtype == ROW_F16 ? float_of_half(half) : float_of_bits((uint32_t)half << 16);
}

/* The tail tile of a row: lanes beyond its end read as removed tokens. */
LANE_FN float row_value_or_removed(const void *row, enum row_dtype dtype, size_t i, size_t end)
{
    return i < end ? row_value(row, dtype, i) : -row_infinity();
}

LANE_FN const void *row_address(const void *row, enum row_dtype dtype, size_t i)
{
    return (const char *)row + i * (dtype == ROW_F32 ? 4 : 2);
}

/* Maxima (lanes) of the whole tiles x[from .. end); -inf where there are none. NaN elements are not
 * seen. */
LANE_GROUP_FN void lane_maxima(const void *row, enum row_dtype dtype, size_t from, size_t end,
                               float *max)
{
    LANE_SCANS(b)
    {
        float high[LANE_SCAN];
        SCAN_LANES(j) high[j] = -row_infinity();
        for (size_t i = from + (size_t)b; i < end; i += LANE_COUNT) {
            SCAN_LANES(j)
            {
                const float x = row_value(row, dtype, i + (size_t)j);
                high[j] = x > high[j] ? x : high[j];
            }
        }
        SCAN_LANES(j) max[LANE_OWN(b) + j] = high[j];
    }
}

/* One element against the chunk's maximum: its own term, or one more tie; a NaN ends in the ties.
 */
LANE_FN void lose(float x, float max, float rate, float *rest, float *ties)
{
    const float d = x - max;
    const struct exp_lane_parts parts = exp_parts(d, rate);
    const int below = d < 0.0f, counts = below & (parts.n >= MATHS_EXP_LEAST);
    *rest += counts ? exp_of_parts(parts) : 0.0f; /* no branch: it must become a mask */
    *ties += below ? 0.0f : parts.p;
}

/* What a chunk's elements are compared with. All removed: any finite reference will do, and a NaN
 * still reaches the sum. */
LANE_FN float chunk_reference(float max)
{
    return max == -row_infinity() ? 0.0f : max;
}

/* What a chunk's maximum and its two sums make of it. */
LANE_FN struct row_partial chunk_finish(float max, float rest, float ties)
{
    struct row_partial partial;
    partial.max = max;
    if (max == -row_infinity())
        partial.rest = rest + ties; /* 0, or NaN */
    else if (max == row_infinity())
        partial.rest = row_nan();
    else
        partial.rest = rest + (ties * (1.0f / MATHS_EXP_ONE) - 1.0f);
    return partial;
}

/* What a CPU fetches while it sums a chunk: the bytes behind it, those of the next chunk or as a
 * rule of the next row, `step` of them for every LANE_BLOCK elements. A number and no pointer, for
 * nothing need be there. */
struct row_ahead {
    uintptr_t at;
    size_t step;
};

LANE_FN void ahead_fetch(struct row_ahead *ahead)
{
    LANE_PREFETCH((const void *)ahead->at);
    ahead->at += ahead->step;
}

/* Sums (LANE_BLOCK) over the tiles of one block of lanes, whose first element is x[first]. */
LANE_GROUP_FN void block_lose(const void *row, enum row_dtype dtype, size_t first, size_t end,
                              float max, float rate, float *rest, float *ties)
{
    float own_rest[LANE_BLOCK], own_ties[LANE_BLOCK];
    BLOCK_LANES(j) own_rest[j] = own_ties[j] = 0.0f;
    for (size_t i = first; i < end; i += LANE_COUNT) {
        BLOCK_LANES(j)
        lose(row_value(row, dtype, i + (size_t)j), max, rate, &own_rest[j], &own_ties[j]);
    }
    BLOCK_LANES(j)
    {
        rest[j] = own_rest[j];
        ties[j] = own_ties[j];
    }
}

/* block_lose() without the masks that a block does not need where no term is cut off and none is a
 * NaN; bits (LANE_BLOCK) takes exp_bits() of all terms, which tells. tied: whether the block holds
 * the maximum. */
LANE_GROUP_FN void block_lose_fast(const void *row, enum row_dtype dtype, size_t first, size_t end,
                                   float max, float rate, int tied, struct row_ahead *ahead,
                                   uint32_t *bits, float *rest, float *ties)
{
    float own_rest[LANE_BLOCK], own_ties[LANE_BLOCK];
    BLOCK_LANES(j) own_rest[j] = own_ties[j] = 0.0f;
    for (size_t i = first; i < end; i += LANE_COUNT) {
        ahead_fetch(ahead);
        BLOCK_LANES(j)
        {
            const float d = row_value(row, dtype, i + (size_t)j) - max;
            const struct exp_lane_parts parts = exp_parts(d, rate);
            const int tie = tied && d == 0.0f;
            bits[j] |= exp_bits(parts);
            own_rest[j] += tie ? 0.0f : exp_of_parts(parts);
            if (tied) own_ties[j] += tie ? MATHS_EXP_ONE : 0.0f;
        }
    }
    BLOCK_LANES(j)
    {
        rest[j] = own_rest[j];
        ties[j] = own_ties[j];
    }
}

/* Sums (lanes) over the whole tiles x[from .. end), the lanes' maxima known. */
LANE_GROUP_FN void lanes_lose(const void *row, enum row_dtype dtype, size_t from, size_t end,
                              float max, const float *lane_max, float rate, struct row_ahead ahead,
                              float *rest, float *ties)
{
    uint32_t bits[LANE_BLOCK], all = 0;
    BLOCK_LANES(j) bits[j] = 0;
    LANE_BLOCKS(b)
    {
        const size_t first = from + (size_t)b;
        const int own = LANE_OWN(b);
        int tied = 0;
        BLOCK_LANES(j) tied |= lane_max[own + j] == max;
        if (LANE_SPMD)
            block_lose(row, dtype, first, end, max, rate, rest + own, ties + own);
        else if (tied)
            block_lose_fast(row, dtype, first, end, max, rate, 1, &ahead, bits, rest + own,
                            ties + own);
        else
            block_lose_fast(row, dtype, first, end, max, rate, 0, &ahead, bits, rest + own,
                            ties + own);
    }
    BLOCK_LANES(j) all |= bits[j];
    if (!exp_bits_cut(all)) return;
    LANE_BLOCKS(b)
    block_lose(row, dtype, from + (size_t)b, end, max, rate, rest + LANE_OWN(b),
               ties + LANE_OWN(b));
}

/* The chunk x[from .. end), at most ROW_CHUNK elements. */
LANE_GROUP_FN struct row_partial chunk_losers(const void *row, enum row_dtype dtype, size_t from,
                                              size_t end, struct row_ahead ahead,
                                              float inverse_temperature)
{
    LANE_PRIVATE(float, lane_max);
    LANE_PRIVATE(float, rest);
    LANE_PRIVATE(float, ties);
    LANE_PRIVATE(float, tail);
    LANE_PRIVATE(float, max_of_all);
    const size_t whole = end - (end - from) % LANE_COUNT;

    lane_maxima(row, dtype, from, whole, lane_max);
    LANES(l)
    {
        LANE_AT(tail, l) = -row_infinity();
        LANE_AT(max_of_all, l) = LANE_AT(lane_max, l);
    }
    if (whole < end) {
        LANES(l)
        {
            const float x = row_value_or_removed(row, dtype, whole + (size_t)l, end);
            LANE_AT(tail, l) = x;
            LANE_AT(max_of_all, l) = x > LANE_AT(lane_max, l) ? x : LANE_AT(lane_max, l);
        }
    }
    const float chunk_max = lanes_max(max_of_all);
    const float max = chunk_reference(chunk_max), rate = exp_rate(inverse_temperature);
    lanes_lose(row, dtype, from, whole, max, lane_max, rate, ahead, rest, ties);
    if (whole < end) {
        LANES(l)
        lose(LANE_AT(tail, l), max, rate, &LANE_AT(rest, l), &LANE_AT(ties, l));
    }
    const float rest_sum = lanes_sum(rest);
    return chunk_finish(chunk_max, rest_sum, lanes_sum(ties));
}

/* exp(gap / T) for a gap <= 0 between two maxima, with the cut of a single term: where a token lies
 * in its row does not matter. */
LANE_FN double maxima_scale(float lower, float upper, float inverse_temperature)
{
    const double d = ((double)lower - (double)upper) * (double)inverse_temperature;
    return d < (double)MATHS_EXP_CUT ? 0.0 : exp_double(d);
}

/* Merge the chunks of a row, in their order. The sum stays relative to the largest maximum. */
LANE_FN void merge_partials(const struct row_partial *partials, size_t count,
                            float inverse_temperature, float *max, double *rest)
{
    float m = -row_infinity();
    double r = 0.0;
    for (size_t c = 0; c < count; c++) {
        const struct row_partial p = partials[c];
        if (p.rest != p.rest) { /* flagged chunk */
            r = (double)p.rest;
            break;
        }
        if (p.max == -row_infinity()) continue;
        if (m == -row_infinity()) {
            m = p.max;
            r = (double)p.rest;
            continue;
        }
        if (p.max > m) {
            r = (double)p.rest + (1.0 + r) * maxima_scale(m, p.max, inverse_temperature);
            m = p.max;
        } else {
            r = r + (1.0 + (double)p.rest) * maxima_scale(p.max, m, inverse_temperature);
        }
    }
    *max = m;
    *rest = r;
}

/* Mass of a chunk relative to exp(max / T), max being the row's. */
LANE_FN double partial_mass(struct row_partial partial, float max, float inverse_temperature)
{
    if (partial.max == -row_infinity()) return 0.0;
    return (1.0 + (double)partial.rest) * maxima_scale(partial.max, max, inverse_temperature);
}

#endif
