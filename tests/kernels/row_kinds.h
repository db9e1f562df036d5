/* row_kinds.h - the input classes of the row tests: every way in which a row of logits can be
 * awkward. */
#ifndef TESTS_KERNELS_ROW_KINDS_H
#define TESTS_KERNELS_ROW_KINDS_H

#include "kernels/trimtab.h"

/* How many times fewer the statistical tests draw; above 1 where a device is a shim. */
#ifndef TEST_SLOWNESS
#define TEST_SLOWNESS 1
#endif

enum row_kind {
    ROW_NORMAL,    /* bell-shaped, spread 2 */
    ROW_WIDE,      /* bell-shaped, spread 20 */
    ROW_PEAKED,    /* one token far ahead of a bell */
    ROW_EQUAL,     /* all the same */
    ROW_TIED,      /* few different values: many equal maxima */
    ROW_ONE_HOT,   /* one finite token */
    ROW_MASKED,    /* most tokens removed (-inf) */
    ROW_HUGE,      /* +-1e30 */
    ROW_LIMITS,    /* +-FLT_MAX: differences overflow */
    ROW_TINY,      /* subnormal numbers and signed zeros */
    ROW_RISING,    /* sorted upwards: every chunk beats the last */
    ROW_FALLING,   /* sorted downwards */
    ROW_NAN_FIRST, /* flagged from here on */
    ROW_NAN_LAST,
    ROW_NAN_IN_MASK, /* nothing but NaN and -inf */
    ROW_INFINITE,    /* a +inf */
    ROW_EMPTY,       /* nothing finite */
    ROW_KINDS
};

static inline int row_kind_is_flagged(enum row_kind kind)
{
    return kind >= ROW_NAN_FIRST;
}

/* A row (vocab) of this kind; the same for the same arguments. */
void row_fill(float *row, size_t vocab, enum row_kind kind, uint32_t seed);

/* Round to the type and back; store (vocab) elements of it. */
float row_narrow(float x, enum tt_dtype dtype, uint16_t *half);

/* Backends and instruction sets to try; a handle of each that this machine and build have. Returns
 * how many. */
#define ISAS_MAX 4
size_t open_every_isa(tt **handles, size_t vocab, size_t max_rows);

#endif
