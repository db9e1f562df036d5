/* row_kinds.c - see row_kinds.h. */
#include "config.h"

#include "tests/kernels/row_kinds.h"

#include <float.h>
#include <math.h>
#include <string.h>

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static double uniform(uint32_t *state)
{
    return (next(state) + 0.5) / 16777216.0;
}

static double bell(uint32_t *state)
{
    const double radius = sqrt(-2.0 * log(uniform(state)));
    return radius * cos(6.283185307179586 * uniform(state));
}

static float value(size_t i, size_t vocab, enum row_kind kind, uint32_t *state)
{
    static const float few[] = {-1.0f, 0.5f, 2.0f, 2.0f};
    static const float tiny[] = {0.0f, -0.0f, 1e-45f, -1e-45f, 1e-40f, -3e-39f};
    switch (kind) {
    case ROW_WIDE:
        return (float)(20.0 * bell(state));
    case ROW_EQUAL:
        return -3.25f;
    case ROW_TIED:
        return few[next(state) % 4];
    case ROW_ONE_HOT:
    case ROW_NAN_IN_MASK:
    case ROW_EMPTY:
        return -INFINITY;
    case ROW_MASKED:
        return next(state) % 16 ? -INFINITY : (float)bell(state);
    case ROW_HUGE:
        return next(state) % 2 ? 1e30f : -1e30f;
    case ROW_LIMITS:
        return next(state) % 2 ? FLT_MAX : -FLT_MAX;
    case ROW_TINY:
        return tiny[next(state) % 6];
    case ROW_RISING:
        return (float)(12.0 * (double)i / (double)vocab);
    case ROW_FALLING:
        return (float)(-12.0 * (double)i / (double)vocab);
    default:
        return (float)(2.0 * bell(state));
    }
}

void row_fill(float *row, size_t vocab, enum row_kind kind, uint32_t seed)
{
    uint32_t state = seed * 747796405u + (uint32_t)kind * 977u + (uint32_t)vocab;
    for (size_t i = 0; i < vocab; i++) row[i] = value(i, vocab, kind, &state);
    const size_t some = next(&state) % vocab;
    switch (kind) {
    case ROW_PEAKED:
        row[some] = 21.0f;
        break;
    case ROW_ONE_HOT:
        row[some] = -7.5f;
        break;
    case ROW_MASKED:
        row[some] = 1.0f;
        break;
    case ROW_NAN_FIRST:
        row[0] = NAN;
        break;
    case ROW_NAN_LAST:
        row[vocab - 1] = NAN;
        break;
    case ROW_NAN_IN_MASK:
        row[some] = NAN;
        break;
    case ROW_INFINITE:
        row[some] = INFINITY;
        break;
    default:
        break;
    }
}

/* Round to nearest, ties to even, at `bits` fraction bits above 2^(low_exponent); independent of
 * the library's reader. */
static double round_binary(double x, int bits, int low_exponent)
{
    int exponent;
    if (!isfinite(x) || x == 0.0) return x;
    (void)frexp(x, &exponent);
    const int unit = (exponent - 1 < low_exponent ? low_exponent : exponent - 1) - bits;
    return ldexp(nearbyint(ldexp(x, -unit)), unit);
}

static uint16_t half_bits(double x)
{
    const uint16_t sign = signbit(x) ? 0x8000u : 0u;
    const double a = fabs(x);
    int exponent;
    if (isnan(x)) return 0x7e00u;
    if (a >= 65536.0) return (uint16_t)(sign | 0x7c00u);
    if (a == 0.0) return sign;
    (void)frexp(a, &exponent);
    if (exponent - 1 < -14) return (uint16_t)(sign | (uint16_t)ldexp(a, 24));
    return (uint16_t)(sign | (uint16_t)((exponent + 14) << 10) |
                      (uint16_t)(ldexp(a, 11 - exponent) - 1024.0));
}

float row_narrow(float x, enum tt_dtype dtype, uint16_t *half)
{
    if (dtype == TT_F16) {
        double rounded = round_binary((double)x, 10, -14);
        if (fabs(rounded) >= 65536.0) rounded = copysign(INFINITY, rounded);
        *half = half_bits(rounded);
        return (float)rounded;
    }
    const float rounded = (float)round_binary((double)x, 7, -126);
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    *half = (uint16_t)(bits >> 16);
    return rounded;
}

size_t open_every_isa(tt **handles, size_t vocab, size_t max_rows)
{
    static const char *const isas[] = {"baseline", "avx2", "avx512", NULL};
    size_t count = 0;
    for (size_t i = 0; i < ISAS_MAX; i++) {
        const struct tt_options options = {.backend = isas[i] ? "cpu" : "cuda",
                                           .isa = isas[i],
                                           .vocab = vocab,
                                           .max_rows = max_rows};
        if (tt_open(&handles[count], &options) == TT_OK) count++;
    }
    return count;
}
