/* maths.h - exp and log with the same bits on every machine: CPU objects of any ISA and CUDA.
 *
 * libm differs between its own variants and from CUDA, so no shared body calls it. Everything here
 * is additions, multiplications, divisions and bit operations in a fixed order; a multiplication
 * and an addition are one only where the text says so (fused_lane; -ffp-contract=off, nvcc
 * -fmad=false). Method: Cody and Waite argument reduction; a minimax polynomial (float) or a
 * truncated series (double) on the reduced argument. NaN passes through.
 */
#ifndef KERNELS_MATHS_H
#define KERNELS_MATHS_H

#include <stdint.h>
#include <string.h>

#include "kernels/lanes.h"

/* A term of a sum of exponentials counts as 0 below this: -125.5 log 2. */
#define MATHS_EXP_CUT (-86.98997f)

LANE_FN uint32_t bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

LANE_FN float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

LANE_FN uint64_t bits_of_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

LANE_FN double double_of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* a * b + c with one rounding. Where the machine has no such instruction the product is taken
 * exactly in double and the sum rounded to odd, so that the second rounding cannot be wrong (Boldo
 * and Melquiond, IEEE TC 57, 2008). NaN and infinities pass. */
LANE_FN float fused_lane(float a, float b, float c)
{
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, c);
#elif defined(__FMA__)
    return __builtin_fmaf(a, b, c);
#else
    const double product = (double)a * (double)b;
    const double sum = product + (double)c;
    const double added = sum - product;
    const double lost = (product - (sum - added)) + ((double)c - added); /* TwoSum, Knuth */
    const uint64_t bits = bits_of_double(sum);
    const uint64_t towards = (lost > 0.0) == (sum > 0.0) ? 1u : ~(uint64_t)0;
    const int odd = (lost > 0.0 || lost < 0.0) && (bits & 1u) == 0;
    return (float)double_of_bits(odd ? bits + towards : bits);
#endif
}

/* An exponential as 2^i 2^r with an integer i and r in [-1/2, 1/2]. */
struct exp_lane_parts {
    float n; /* MATHS_EXP_ROUND + i: the low bits are those of the integer i - 3 */
    float p; /* 8 times 2^r; NaN where the argument is NaN */
};

/* 1.5 * 2^23 - 3: adding it rounds to an integer that stays in the low bits. The 3 puts n - 3 of
 * every term that counts, and of no other, into the last 128 numbers below 0, which differ from it
 * in their lowest seven bits alone. The polynomial is larger by 2^3 for it. */
#define MATHS_EXP_ROUND 12582909.0f
#define MATHS_EXP_LEAST (MATHS_EXP_ROUND - 125.0f) /* the least n that counts */
#define MATHS_EXP_ONE 8.0f                         /* p at x = 0, exactly */

/* What exp_parts multiplies by: log2 e / T, finite. */
LANE_FN float exp_rate(float inverse_temperature)
{
    const float rate = inverse_temperature * 1.44269504f;
    return rate > 3.40282347e38f ? 3.40282347e38f : rate;
}

/* The parts of 2^(d rate) for d <= 0. The polynomial is the minimax one of degree 5 with the
 * constant 1 (relative error 9.4e-8); r is rounded once. */
LANE_FN struct exp_lane_parts exp_parts(float d, float rate)
{
    struct exp_lane_parts parts;
    parts.n = fused_lane(d, rate, MATHS_EXP_ROUND);
    const float r = fused_lane(d, rate, MATHS_EXP_ROUND - parts.n);
    float p = 8.0f * 1.326919417e-3f;
    p = fused_lane(p, r, 8.0f * 9.671282023e-3f);
    p = fused_lane(p, r, 8.0f * 5.550711602e-2f);
    p = fused_lane(p, r, 8.0f * 2.402224690e-1f);
    p = fused_lane(p, r, 8.0f * 6.931470037e-1f);
    parts.p = fused_lane(p, r, MATHS_EXP_ONE);
    return parts;
}

/* The parts' exponential, where n is at least MATHS_EXP_LEAST. Garbage that the caller masks
 * elsewhere, for a NaN too: a branch-free body is what vectorises. */
LANE_FN float exp_of_parts(struct exp_lane_parts parts)
{
    return float_of_bits(bits_of_float(parts.p) + (bits_of_float(parts.n) << 23));
}

/* 0 above the seventh bit where n is at least MATHS_EXP_LEAST, and only there: not for a NaN. A
 * loop over many terms ORs these and asks exp_bits_cut once. */
LANE_FN uint32_t exp_bits(struct exp_lane_parts parts)
{
    return bits_of_float(parts.n) ^ bits_of_float(MATHS_EXP_ROUND);
}

LANE_FN int exp_bits_cut(uint32_t bits)
{
    return bits > 0x7fu;
}

/* e^x for x <= 0 within 1.9e-7 + 1.4e-8 |x|, relative; exactly 1 at 0; 0 below MATHS_EXP_CUT
 * (-infinity included); NaN for NaN. */
LANE_FN float exp_lane(float x)
{
    const struct exp_lane_parts parts = exp_parts(x, exp_rate(1.0f));
    const float e = parts.n < MATHS_EXP_LEAST ? 0.0f : exp_of_parts(parts);
    return x == x ? e : x;
}

/* log x for positive normal x, within 2 ulp. x = 2^e m, m in [sqrt 1/2, sqrt 2); log m = 2
 * atanh((m-1)/(m+1)). */
LANE_FN float log_lane(float x)
{
    const uint32_t shifted = bits_of_float(x) - 0x3f3504f3u; /* sqrt 1/2 */
    const float e = (float)((int32_t)shifted >> 23);
    const float m = float_of_bits((shifted & 0x007fffffu) + 0x3f3504f3u);
    const float s = (m - 1.0f) / (m + 1.0f);
    const float z = s * s;
    float p = 0.222222222f;
    p = p * z + 0.285714286f;
    p = p * z + 0.4f;
    p = p * z + 0.666666667f;
    return e * 0.693359375f + (2.0f * s + (s * (z * p) + e * -2.12194440e-4f));
}

/* -log(1 - v) for v in (0, 1), accurate for the smallest v too: Kahan's correction of log1p. */
LANE_FN float exponential_lane(float v)
{
    const float u = 1.0f - v;
    const float lost = 1.0f - u;
    const float e = -log_lane(u) * (v / lost);
    return lost == 0.0f ? v : e;
}

/* e^x in double for x <= 0, within 2 ulp; 0 below -708. */
LANE_FN double exp_double(double x)
{
    const double round = 6755399441055744.0; /* 1.5 * 2^52 */
    const double t = x * 1.4426950408889634 + round;
    const double n = t - round;
    const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    const double e = double_of_bits(bits_of_double(p) + (bits_of_double(t) << 52));
    return x < -708.0 ? 0.0 : e;
}

/* log x in double for positive normal x, within 2 ulp; log_lane with a longer series. */
LANE_FN double log_double(double x)
{
    const uint64_t shifted = bits_of_double(x) - 0x3fe6a09e667f3bcdu;
    const double e = (double)((int64_t)shifted >> 52);
    const double m = double_of_bits((shifted & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
    const double s = (m - 1.0) / (m + 1.0);
    const double z = s * s;
    double p = 2.0 / 23.0;
    p = p * z + 2.0 / 21.0;
    p = p * z + 2.0 / 19.0;
    p = p * z + 2.0 / 17.0;
    p = p * z + 2.0 / 15.0;
    p = p * z + 2.0 / 13.0;
    p = p * z + 2.0 / 11.0;
    p = p * z + 2.0 / 9.0;
    p = p * z + 2.0 / 7.0;
    p = p * z + 2.0 / 5.0;
    p = p * z + 2.0 / 3.0;
    return e * 0.693147180369123816490 + (2.0 * s + (s * (z * p) + e * 1.90821492927058770002e-10));
}

/* log(1 + x) in double for x >= 0. */
LANE_FN double log1p_double(double x)
{
    const double u = 1.0 + x;
    return u == 1.0 ? x : log_double(u) * (x / (u - 1.0));
}

#endif
