/* test_acceptance.c - the planner's mean acceptances: prior, forgetting, what trimming hides, and
 * the worth of choosing. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "controller/acceptance.h"
#include "kernels/trimtab.h"

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) < 1e-6)) fail_msg("%.9g, expected %.9g", value, expected);
}

static void means_start_at_the_prior_and_follow_their_neighbour(void **state)
{
    (void)state;
    static struct acceptance a;
    acceptance_clear(&a, 6);
    for (int k = 0; k < 6; k++) assert_near(acceptance_mean(&a, k), 0.5);
    for (int i = 0; i < 3000; i++) acceptance_observe(&a, 1, i % 10 < 8, NAN, 1);
    assert_true(fabs(acceptance_mean(&a, 0) - 0.8) < 0.02);
    assert_near(acceptance_mean(&a, 3), acceptance_mean(&a, 0)); /* never tried */
    for (int i = 0; i < 3000; i++) acceptance_observe(&a, 1, 0, NAN, 1);
    assert_true(acceptance_mean(&a, 0) < 0.01);
    assert_true(acceptance_mean(&a, 5) < 0.01);
}

/* Admitting only what looks good must not make a position look good. */
static void what_was_trimmed_counts_with_its_prediction(void **state)
{
    (void)state;
    static struct acceptance trimmed, all;
    acceptance_clear(&trimmed, 2);
    acceptance_clear(&all, 2);
    for (int i = 0; i < 6000; i++) {
        double p = i % 2 ? 0.9 : 0.2;
        int y = tt_uniform(8, (uint64_t)i, 0, TT_DRAFT) < p;
        acceptance_observe(&all, 1, y, NAN, 1);
        if (i % 2)
            acceptance_observe(&trimmed, 1, y, NAN, 1);
        else
            acceptance_observe(&trimmed, 0, 0, p, 1);
    }
    assert_true(fabs(acceptance_mean(&all, 0) - 0.55) < 0.06);
    assert_true(fabs(acceptance_mean(&trimmed, 0) - 0.55) < 0.06);
}

static void a_probe_counts_for_several_steps(void **state)
{
    (void)state;
    static struct acceptance a;
    acceptance_clear(&a, 2);
    for (int i = 0; i < 1000; i++) acceptance_observe(&a, 1, 0, NAN, 1);
    for (int i = 0; i < 100; i++) acceptance_observe(&a, 1, 1, NAN, 8);
    assert_true(acceptance_mean(&a, 0) > 0.75);
}

static void lift_is_what_choosing_is_worth(void **state)
{
    (void)state;
    static struct acceptance a;
    acceptance_clear(&a, 2);
    assert_near(acceptance_lift(&a, 0, 0.5), 1);
    for (int i = 0; i < 1000; i++) acceptance_predicted(&a, 0, i % 2 ? 0.9 : 0.1);
    assert_true(fabs(acceptance_lift(&a, 0, 0.5) - 1.8) < 0.02);
    assert_near(acceptance_lift(&a, 0, 1), 1);
    for (int i = 1; i < 10; i++)
        assert_true(acceptance_lift(&a, 0, i / 10.0) >=
                    acceptance_lift(&a, 0, (i + 1) / 10.0) - 1e-12);
    for (int i = 0; i < 1000; i++) acceptance_predicted(&a, 1, i % 2);
    assert_true(fabs(acceptance_lift(&a, 1, 0.25) - 2) < 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_start_at_the_prior_and_follow_their_neighbour),
        cmocka_unit_test(what_was_trimmed_counts_with_its_prediction),
        cmocka_unit_test(a_probe_counts_for_several_steps),
        cmocka_unit_test(lift_is_what_choosing_is_worth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
