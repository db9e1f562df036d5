/* estimator_maths.h - the functions of the estimators' arithmetic, in double, with the same bits on
 * CPU and GPU: built from maths.h, no libm, no fused multiply-add. The square root is IEEE's, which
 * both machines round correctly. */
#ifndef KERNELS_ESTIMATOR_MATHS_H
#define KERNELS_ESTIMATOR_MATHS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/maths.h"

LANE_FN double double_nan(void)
{
    return double_of_bits(UINT64_C(0x7ff8000000000000));
}

LANE_FN bool double_is_nan(double x)
{
    return x != x;
}

LANE_FN bool double_is_finite(double x)
{
    return (bits_of_double(x) >> 52 & 0x7ff) != 0x7ff;
}

LANE_FN double double_magnitude(double x)
{
    return double_of_bits(bits_of_double(x) & ~(UINT64_C(1) << 63));
}

LANE_FN double double_clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

LANE_FN double sqrt_double(double x)
{
#ifdef __CUDA_ARCH__
    return __dsqrt_rn(x);
#else
    return __builtin_sqrt(x);
#endif
}

/* e^x for any x: 0 and infinity beyond +-708. */
LANE_FN double exp_any_double(double x)
{
    return x <= 0.0 ? exp_double(x) : 1.0 / exp_double(-x);
}

/* 1 / (1 + exp(-u)), exact at both ends. */
LANE_FN double sigmoid_double(double u)
{
    const double e = exp_double(-double_magnitude(u));
    return u >= 0.0 ? 1.0 / (1.0 + e) : e / (1.0 + e);
}

/* log(1 + exp(u)) without overflow. */
LANE_FN double softplus_double(double u)
{
    return (u > 0.0 ? u : 0.0) + log1p_double(exp_double(-double_magnitude(u)));
}

/* -log(p), p taken as at least 1e-12 so that one impossible outcome costs 27.6 nats and not
 * infinity. */
LANE_FN double surprise_double(double p)
{
    return -log_double(p > 1e-12 ? p : 1e-12);
}

#endif
