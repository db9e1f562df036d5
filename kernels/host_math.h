/* host_math.h - the one place where the estimators of libtrimtab touch libm.
 *
 * The row kernels use exponentials of their own, because their results must agree bit for bit
 * between instruction sets and with the GPU. The estimators run once, on the host, in double
 * precision; they may take libm's. Keeping the calls here makes that decision visible and
 * reversible. Compile with -ffp-contract=off.
 */
#ifndef TRIMTAB_KERNELS_HOST_MATH_H
#define TRIMTAB_KERNELS_HOST_MATH_H

#include <math.h>

static inline double host_exp(double x)
{
    return exp(x);
}

/* 1 / (1 + exp(-u)), exact at both ends. */
static inline double host_sigmoid(double u)
{
    const double e = host_exp(-fabs(u));
    return u >= 0.0 ? 1.0 / (1.0 + e) : e / (1.0 + e);
}

/* log(1 + exp(u)) without overflow. */
static inline double host_softplus(double u)
{
    return (u > 0.0 ? u : 0.0) + log1p(host_exp(-fabs(u)));
}

/* -log(p), p taken as at least 1e-12 so that one impossible outcome costs 27.6 nats and not
 * infinity. */
static inline double host_surprise(double p)
{
    return -log(p > 1e-12 ? p : 1e-12);
}

static inline double host_sqrt(double x)
{
    return sqrt(x);
}

#endif
