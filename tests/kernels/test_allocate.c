/* test_allocate.c - survivals and the allocation of a budget: against a sort of all drafts in the
 * strict order, at ties, with NaN, and on bad input. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/trimtab.h"

#define ROWS 40
#define WIDTH 8

/* A small generator of the test's own (Lehmer), seeded. */
static uint64_t random_state;
static unsigned random_below(unsigned n)
{
    random_state = random_state * UINT64_C(48271) % UINT64_C(2147483647);
    return (unsigned)(random_state % n);
}

struct draft {
    double survival;
    int32_t position, row;
};

static int strict_order(const void *a, const void *b)
{
    const struct draft *x = a, *y = b;
    if (x->survival != y->survival) return x->survival < y->survival ? 1 : -1;
    if (x->position != y->position) return x->position < y->position ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

/* The definition: sort every draft, take the first `budget`. */
static void reference(const double *survival, int32_t rows, int32_t positions,
                      const int32_t *drafted, int64_t budget, int32_t *admitted)
{
    struct draft all[ROWS * WIDTH];
    size_t count = 0;
    memset(admitted, 0, (size_t)rows * sizeof(*admitted));
    for (int32_t r = 0; r < rows; r++) {
        for (int32_t k = 0; k < drafted[r]; k++)
            all[count++] = (struct draft){survival[r * positions + k], k, r};
    }
    qsort(all, count, sizeof(all[0]), strict_order);
    for (size_t i = 0; i < count && (int64_t)i < budget; i++) {
        /* a prefix: the draft admitted is the row's next one */
        assert_int_equal(all[i].position, admitted[all[i].row]);
        admitted[all[i].row]++;
    }
}

/* Survivals on a coarse grid of probabilities, so that ties, ones and zeros are common. */
static void random_block(double *survival, int32_t rows, int32_t positions, int32_t *drafted,
                         unsigned grid)
{
    for (int32_t r = 0; r < rows; r++) {
        double product = 1.0;
        drafted[r] = (int32_t)random_below((unsigned)positions + 1);
        for (int32_t k = 0; k < positions; k++) {
            product *= (double)random_below(grid + 1) / (double)grid;
            survival[r * positions + k] = product;
        }
    }
}

static void allocation_is_the_strict_order(void **state)
{
    (void)state;
    static const unsigned grids[] = {1, 2, 4, 1000000};
    double survival[ROWS * WIDTH];
    int32_t drafted[ROWS], got[ROWS], want[ROWS];
    random_state = 20240501;
    for (int trial = 0; trial < 2000; trial++) {
        const int32_t rows = 1 + (int32_t)random_below(ROWS);
        const int32_t positions = 1 + (int32_t)random_below(WIDTH);
        random_block(survival, rows, positions, drafted, grids[trial % 4]);
        int64_t total = 0;
        for (int32_t r = 0; r < rows; r++) total += drafted[r];
        const int64_t budget = (int64_t)random_below((unsigned)total + 3);
        const int count =
            tt_allocate(survival, (size_t)rows, (size_t)positions, drafted, budget, got);
        assert_int_equal(count, budget < total ? budget : total);
        reference(survival, rows, positions, drafted, budget, want);
        assert_memory_equal(got, want, (size_t)rows * sizeof(got[0]));
    }
}

static void ties_go_to_the_earlier_position_then_row(void **state)
{
    (void)state;
    const double survival[] = {0.5, 0.5, 0.5, 0.5, 0.5, 0.5}; /* (3, 2) */
    const int32_t drafted[] = {2, 2, 2};
    static const int32_t want[7][3] = {{0, 0, 0}, {1, 0, 0}, {1, 1, 0}, {1, 1, 1},
                                       {2, 1, 1}, {2, 2, 1}, {2, 2, 2}};
    for (int64_t budget = 0; budget <= 6; budget++) {
        int32_t admitted[3];
        assert_int_equal(tt_allocate(survival, 3, 2, drafted, budget, admitted), budget);
        assert_memory_equal(admitted, want[budget], sizeof(admitted));
    }
}

static void nan_survival_counts_as_zero(void **state)
{
    (void)state;
    const double survival[] = {0.9, NAN, 0.8, 0.3}; /* (2, 2) */
    const int32_t drafted[] = {2, 2};
    int32_t admitted[2];
    assert_int_equal(tt_allocate(survival, 2, 2, drafted, 3, admitted), 3);
    assert_int_equal(admitted[0], 1);
    assert_int_equal(admitted[1], 2);
    const double all_nan[] = {NAN, NAN, NAN, NAN};
    assert_int_equal(tt_allocate(all_nan, 2, 2, drafted, 1, admitted), 1);
    assert_int_equal(admitted[0], 1);
    assert_int_equal(admitted[1], 0);
}

/* A caller's mistake must not break the prefix: the row counts as its running minimum. */
static void increasing_row_is_read_as_its_running_minimum(void **state)
{
    (void)state;
    const double survival[] = {0.2, 0.9, 0.5, 0.4}; /* (2, 2) */
    const int32_t drafted[] = {2, 2};
    int32_t admitted[2];
    assert_int_equal(tt_allocate(survival, 2, 2, drafted, 2, admitted), 2);
    assert_int_equal(admitted[0], 0);
    assert_int_equal(admitted[1], 2);
}

static void empty_batches_are_fine(void **state)
{
    (void)state;
    const int32_t drafted[] = {0, 0};
    int32_t admitted[2] = {9, 9};
    assert_int_equal(tt_allocate(NULL, 0, 0, NULL, 5, NULL), 0);
    assert_int_equal(tt_allocate(NULL, 2, 0, drafted, 5, admitted), 0);
    assert_int_equal(admitted[0], 0);
    assert_int_equal(admitted[1], 0);
}

static void bad_input_is_refused_and_writes_nothing(void **state)
{
    (void)state;
    const double survival[] = {0.5, 0.4};
    const int32_t one[] = {2}, more[] = {3}, negative[] = {-1};
    int32_t admitted[1] = {77};
    assert_int_equal(tt_allocate(survival, 1, 2, one, -1, admitted), TT_EINVAL);
    assert_int_equal(tt_allocate(survival, 1, 2, more, 1, admitted), TT_EINVAL);
    assert_int_equal(tt_allocate(survival, 1, 2, negative, 1, admitted), TT_EINVAL);
    assert_int_equal(tt_allocate(survival, 1, TT_MAX_POSITIONS + 1, one, 1, admitted), TT_EINVAL);
    assert_int_equal(tt_allocate(NULL, 1, 2, one, 1, admitted), TT_EINVAL);
    assert_int_equal(tt_allocate(survival, 1, 2, NULL, 1, admitted), TT_EINVAL);
    assert_int_equal(tt_allocate(survival, 1, 2, one, 1, NULL), TT_EINVAL);
    assert_int_equal(tt_allocate(survival, SIZE_MAX / 2, 2, one, 1, admitted), TT_ELIMIT);
    assert_int_equal(admitted[0], 77);
}

static void survival_is_the_running_product(void **state)
{
    (void)state;
    double p[] = {0.5, 0.5, NAN, 1.0}, survival[4];
    assert_int_equal(tt_survival(p, 4, survival), TT_OK);
    assert_true(survival[0] == 0.5 && survival[1] == 0.25 && survival[2] == 0.0 &&
                survival[3] == 0.0);
    assert_int_equal(tt_survival(p, 2, p), TT_OK); /* in place */
    assert_true(p[0] == 0.5 && p[1] == 0.25);
    assert_int_equal(tt_survival(NULL, 0, NULL), TT_OK);
}

static void survival_refuses_what_is_no_probability(void **state)
{
    (void)state;
    const double above[] = {0.5, 1.5}, below[] = {-0.1}, infinite[] = {INFINITY};
    double survival[2] = {7.0, 7.0};
    assert_int_equal(tt_survival(above, 2, survival), TT_EINVAL);
    assert_int_equal(tt_survival(below, 1, survival), TT_EINVAL);
    assert_int_equal(tt_survival(infinite, 1, survival), TT_EINVAL);
    assert_int_equal(tt_survival(NULL, 1, survival), TT_EINVAL);
    assert_int_equal(tt_survival(above, 1, NULL), TT_EINVAL);
    assert_true(survival[0] == 7.0 && survival[1] == 7.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocation_is_the_strict_order),
        cmocka_unit_test(ties_go_to_the_earlier_position_then_row),
        cmocka_unit_test(nan_survival_counts_as_zero),
        cmocka_unit_test(increasing_row_is_read_as_its_running_minimum),
        cmocka_unit_test(empty_batches_are_fine),
        cmocka_unit_test(bad_input_is_refused_and_writes_nothing),
        cmocka_unit_test(survival_is_the_running_product),
        cmocka_unit_test(survival_refuses_what_is_no_probability),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
