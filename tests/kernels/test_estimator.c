/* test_estimator.c - the public estimator interface: bad input changes nothing, labels are counted
 * as defined, flagged features drop out, starvation, calibration, the prior, save and load.
 * Statistical behaviour: estimator_sim.c. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/estimator_handle.h"
#include "kernels/trimtab.h"

static const struct tt_estimator_options online6 = {
    .kind = TT_ONLINE, .positions = 6, .prior_slope = NAN, .prior_level = NAN};
static const struct tt_estimator_options parity6 = {
    .kind = TT_PARITY, .positions = 6, .prior_slope = NAN, .prior_level = NAN};

/* The library's calloc (linked with --wrap): fails once when asked to. */
static bool fail_next_calloc;
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    if (!fail_next_calloc) return __real_calloc(count, size);
    fail_next_calloc = false;
    return NULL;
}

static uint64_t random_state;
static double random_uniform(void)
{
    random_state = random_state * UINT64_C(48271) % UINT64_C(2147483647);
    return (double)random_state / 2147483647.0;
}

static void assert_near(double got, double want, double tolerance)
{
    assert_true(fabs(got - want) <= tolerance);
}

static tt_estimator *new_estimator(const struct tt_estimator_options *options)
{
    tt_estimator *estimator = NULL;
    assert_int_equal(tt_estimator_new(&estimator, options), TT_OK);
    assert_non_null(estimator);
    return estimator;
}

/* Reports are written over zeroed memory, field by field the same when the state is: compare bytes
 * (NaN included). */
static struct tt_estimator_report report_of(const tt_estimator *estimator)
{
    struct tt_estimator_report report;
    memset(&report, 0xee, sizeof(report));
    assert_int_equal(tt_estimator_report(estimator, &report), TT_OK);
    return report;
}

/* The whole state, hidden parts included. */
static void assert_same_state(const tt_estimator *a, const tt_estimator *b)
{
    size_t size_a = 0, size_b = 0;
    assert_int_equal(tt_estimator_save(a, NULL, 0, &size_a), TT_OK);
    assert_int_equal(tt_estimator_save(b, NULL, 0, &size_b), TT_OK);
    assert_int_equal(size_a, size_b);
    void *blob_a = malloc(size_a), *blob_b = malloc(size_b);
    assert_non_null(blob_a);
    assert_non_null(blob_b);
    assert_int_equal(tt_estimator_save(a, blob_a, size_a, NULL), TT_OK);
    assert_int_equal(tt_estimator_save(b, blob_b, size_b, NULL), TT_OK);
    assert_memory_equal(blob_a, blob_b, size_a);
    free(blob_a);
    free(blob_b);
}

/* Steps of `rows` requests whose acceptance is sigmoid(0.7 f - 0.3 - 0.1 k), all six drafts
 * verified. */
static void learn(tt_estimator *estimator, int steps, int rows)
{
    for (int t = 0; t < steps; t++) {
        for (int r = 0; r < rows; r++) {
            float feature[6];
            int32_t accepted = 0;
            for (int k = 0; k < 6; k++) feature[k] = (float)(4.0 * random_uniform());
            while (accepted < 6 &&
                   random_uniform() <
                       1.0 / (1.0 + exp(-(0.7 * (double)feature[accepted] - 0.3 - 0.1 * accepted))))
                accepted++;
            const struct tt_observation observation = {
                .feature = feature, .admitted = 6, .accepted = accepted};
            assert_int_equal(tt_estimator_observe(estimator, &observation), TT_OK);
        }
        assert_true(tt_estimator_end_step(estimator) >= 0);
    }
}

/* ------------------------------------------------------------------------------------ bad input */

static void new_refuses_bad_options(void **state)
{
    (void)state;
    static const struct tt_estimator_options bad[] = {
        {.kind = TT_ONLINE, .positions = 0, .prior_slope = NAN, .prior_level = NAN},
        {.kind = TT_ONLINE, .positions = -1, .prior_slope = NAN, .prior_level = NAN},
        {.kind = TT_ONLINE, .positions = 33, .prior_slope = NAN, .prior_level = NAN},
        {.kind = TT_PARITY, .positions = 33, .prior_slope = NAN, .prior_level = NAN},
        {.kind = (enum tt_estimator_kind)7, .positions = 6, .prior_slope = NAN, .prior_level = NAN},
        {.positions = 6, .refit_interval_steps = -1, .prior_slope = NAN, .prior_level = NAN},
        {.positions = 6, .prior_slope = -0.1, .prior_level = NAN},
        {.positions = 6, .prior_slope = INFINITY, .prior_level = NAN},
        {.positions = 6, .prior_slope = NAN, .prior_level = -INFINITY},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        tt_estimator *estimator = (tt_estimator *)&estimator;
        assert_int_equal(tt_estimator_new(&estimator, &bad[i]), TT_EINVAL);
        assert_null(estimator);
    }
    tt_estimator *estimator = NULL;
    assert_int_equal(tt_estimator_new(NULL, &online6), TT_EINVAL);
    assert_int_equal(tt_estimator_new(&estimator, NULL), TT_EINVAL);
    tt_estimator_free(NULL);
}

static void null_handles_are_refused(void **state)
{
    (void)state;
    const float feature = 1.0F;
    double probability = 7.0;
    struct tt_estimator_report report;
    struct tt_calibration_bin bin[TT_CALIBRATION_BINS];
    const struct tt_observation observation = {.feature = &feature, .admitted = 1};
    size_t needed = 7;
    assert_int_equal(tt_estimator_predict(NULL, 0, &feature, 1, &probability), TT_EINVAL);
    assert_int_equal(tt_estimator_observe(NULL, &observation), TT_EINVAL);
    assert_int_equal(tt_estimator_end_step(NULL), TT_EINVAL);
    assert_int_equal(tt_estimator_set_prior(NULL, 0.5, 0.0), TT_EINVAL);
    assert_int_equal(tt_estimator_starved(NULL), -1);
    assert_int_equal(tt_estimator_report(NULL, &report), TT_EINVAL);
    assert_int_equal(tt_estimator_calibration(NULL, 0, bin), TT_EINVAL);
    assert_int_equal(tt_estimator_save(NULL, NULL, 0, &needed), TT_EINVAL);
    assert_true(probability == 7.0 && needed == 7);
}

/* Every refused call leaves the estimator, hidden state included, as it was. */
static void refused_observations_change_nothing(void **state)
{
    (void)state;
    const float good[6] = {1.0F, 1.0F, 1.0F, 1.0F, 1.0F, 1.0F};
    const float soft_nan[6] = {0.5F, NAN, 0.5F, 0.5F, 0.5F, 0.5F};
    const float soft_high[6] = {0.5F, 1.5F, 0.5F, 0.5F, 0.5F, 0.5F};
    const float soft_low[6] = {-0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F};
    const struct tt_observation bad[] = {
        {.feature = good, .admitted = 3, .accepted = 4},
        {.feature = good, .admitted = 7, .accepted = 1},
        {.feature = good, .admitted = 33, .accepted = 33},
        {.feature = good, .admitted = -1, .accepted = 0},
        {.feature = good, .admitted = 3, .accepted = -1},
        {.feature = NULL, .admitted = 3, .accepted = 1},
        {.feature = good, .soft = soft_nan, .admitted = 3, .accepted = 1},
        {.feature = good, .soft = soft_high, .admitted = 3, .accepted = 1},
        {.feature = good, .soft = soft_low, .admitted = 3, .accepted = 1},
        {.feature = good, .predicted = soft_high, .admitted = 3, .accepted = 1},
        {.feature = good, .predicted = soft_low, .admitted = 3, .accepted = 1},
    };
    const struct tt_estimator_options *kinds[] = {&online6, &parity6};
    for (int kind = 0; kind < 2; kind++) {
        tt_estimator *touched = new_estimator(kinds[kind]), *untouched = new_estimator(kinds[kind]);
        random_state = 11;
        learn(touched, 30, 2);
        random_state = 11;
        learn(untouched, 30, 2);
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
            assert_int_equal(tt_estimator_observe(touched, &bad[i]), TT_EINVAL);
        assert_int_equal(tt_estimator_observe(touched, NULL), TT_EINVAL);
        assert_int_equal(tt_estimator_set_prior(touched, NAN, 0.0), TT_EINVAL);
        assert_int_equal(tt_estimator_set_prior(touched, 0.5, INFINITY), TT_EINVAL);
        assert_int_equal(tt_estimator_set_prior(touched, -1.0, 0.0), TT_EINVAL);
        assert_same_state(touched, untouched);
        tt_estimator_free(touched);
        tt_estimator_free(untouched);
    }
}

static void predict_checks_its_arguments(void **state)
{
    (void)state;
    tt_estimator *estimator = new_estimator(&online6);
    const float feature[3] = {0.0F, NAN, INFINITY};
    double p[3] = {7.0, 7.0, 7.0};
    assert_int_equal(tt_estimator_predict(estimator, 6, feature, 3, p), TT_EINVAL);
    assert_int_equal(tt_estimator_predict(estimator, -1, feature, 3, p), TT_EINVAL);
    assert_int_equal(tt_estimator_predict(estimator, 0, NULL, 3, p), TT_EINVAL);
    assert_int_equal(tt_estimator_predict(estimator, 0, feature, 3, NULL), TT_EINVAL);
    assert_true(p[0] == 7.0);
    assert_int_equal(tt_estimator_predict(estimator, 0, NULL, 0, NULL), TT_OK);
    assert_int_equal(tt_estimator_predict(estimator, 0, feature, 3, p), TT_OK);
    assert_near(p[0], 1.0 / (1.0 + exp(0.4)), 1e-12); /* the prior's level */
    assert_true(p[1] == 0.0);
    assert_true(p[2] > 0.99 && p[2] < 1.0);
    tt_estimator_free(estimator);
}

/* --------------------------------------------------------------------------------------- labels */

/* Positions 0 .. min(accepted, admitted - 1) carry labels, no others. */
static void labels_are_the_reached_positions(void **state)
{
    (void)state;
    const float feature[6] = {1.0F, 1.0F, 1.0F, 1.0F, 1.0F, 1.0F};
    static const int32_t cases[][3] = {{0, 0, 0}, {1, 0, 1}, {1, 1, 1}, {4, 0, 1},
                                       {4, 2, 3}, {4, 4, 4}, {6, 5, 6}, {6, 6, 6}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tt_estimator *estimator = new_estimator(&online6);
        const struct tt_observation observation = {
            .feature = feature, .admitted = cases[i][0], .accepted = cases[i][1]};
        assert_int_equal(tt_estimator_observe(estimator, &observation), TT_OK);
        const struct tt_estimator_report report = report_of(estimator);
        assert_int_equal(report.labels, cases[i][2]);
        for (int32_t k = 0; k < 6; k++) {
            assert_int_equal(report.position[k].n, k < cases[i][2]);
            assert_true(report.position[k].reached == (k < cases[i][2] ? 1.0 : 0.0));
            assert_true(report.position[k].accepted == (k < cases[i][1] ? 1.0 : 0.0));
        }
        tt_estimator_free(estimator);
    }
}

/* A flagged feature drops its own label and nothing else: the fit equals the fit without that
 * label. */
static void non_finite_features_drop_their_label_only(void **state)
{
    (void)state;
    static const float poison[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        tt_estimator *poisoned = new_estimator(&online6), *clean = new_estimator(&online6);
        random_state = 5;
        learn(poisoned, 400, 4);
        random_state = 5;
        learn(clean, 400, 4);
        for (int t = 0; t < 40; t++) {
            const float bad[6] = {1.0F, 2.0F, poison[i], poison[i], poison[i], poison[i]};
            const struct tt_observation with = {.feature = bad, .admitted = 6, .accepted = 2};
            const struct tt_observation without = {.feature = bad, .admitted = 2, .accepted = 2};
            assert_int_equal(tt_estimator_observe(poisoned, &with), TT_OK);
            assert_int_equal(tt_estimator_observe(clean, &without), TT_OK);
            tt_estimator_end_step(poisoned);
            tt_estimator_end_step(clean);
        }
        struct tt_estimator_report a = report_of(poisoned), b = report_of(clean);
        assert_int_equal(a.flagged, 40); /* position 2 was reached, 3 to 5 were not */
        assert_int_equal(b.flagged, 0);
        a.flagged = 0;
        assert_memory_equal(&a, &b, sizeof(a));
        tt_estimator_free(poisoned);
        tt_estimator_free(clean);
    }
}

/* Nothing but NaN for hundreds of steps: no label, no change of the coefficients, every call
 * succeeds. */
static void nan_everywhere_changes_no_coefficient(void **state)
{
    (void)state;
    tt_estimator *estimator = new_estimator(&online6);
    const float feature[6] = {NAN, NAN, NAN, NAN, NAN, NAN};
    const struct tt_estimator_report before = report_of(estimator);
    for (int t = 0; t < 200; t++) {
        const struct tt_observation observation = {
            .feature = feature, .predicted = feature, .admitted = 6, .accepted = t % 7};
        assert_int_equal(tt_estimator_observe(estimator, &observation), TT_OK);
        assert_true(tt_estimator_end_step(estimator) >= 0);
    }
    const struct tt_estimator_report after = report_of(estimator);
    assert_int_equal(after.labels, 0);
    assert_true(after.slope == before.slope && after.level == before.level);
    for (int k = 0; k < 6; k++)
        assert_true(after.position[k].intercept == before.position[k].intercept);
    assert_true(isnan(after.ece) && isnan(after.auc) && isnan(after.drift_z));
    tt_estimator_free(estimator);
}

/* A finite feature beyond any clamp is bounded, so that one row cannot own the slope. */
static void huge_features_are_clamped(void **state)
{
    (void)state;
    tt_estimator *huge = new_estimator(&online6), *clamped = new_estimator(&online6);
    for (int t = 0; t < 40; t++) {
        const float f = t % 2 ? 3e38F : -3e38F, g = t % 2 ? 16.0F : -16.0F;
        const struct tt_observation a = {.feature = &f, .admitted = 1, .accepted = t % 2};
        const struct tt_observation b = {.feature = &g, .admitted = 1, .accepted = t % 2};
        assert_int_equal(tt_estimator_observe(huge, &a), TT_OK);
        assert_int_equal(tt_estimator_observe(clamped, &b), TT_OK);
        tt_estimator_end_step(huge);
        tt_estimator_end_step(clamped);
    }
    assert_same_state(huge, clamped);
    assert_true(isfinite(report_of(huge).slope));
    tt_estimator_free(huge);
    tt_estimator_free(clamped);
}

/* Soft labels move the fit; counts, bins and scores stay those of the hard outcomes. */
static void soft_labels_fit_and_hard_outcomes_are_shown(void **state)
{
    (void)state;
    tt_estimator *soft = new_estimator(&online6), *hard = new_estimator(&online6);
    const float feature = 1.0F, label = 0.9F, predicted = 0.6F;
    for (int t = 0; t < 200; t++) {
        const struct tt_observation a = {.feature = &feature,
                                         .soft = &label,
                                         .predicted = &predicted,
                                         .admitted = 1,
                                         .accepted = t % 2};
        struct tt_observation b = a;
        b.soft = NULL;
        tt_estimator_observe(soft, &a);
        tt_estimator_observe(hard, &b);
        tt_estimator_end_step(soft);
        tt_estimator_end_step(hard);
    }
    double p_soft, p_hard;
    tt_estimator_predict(soft, 0, &feature, 1, &p_soft);
    tt_estimator_predict(hard, 0, &feature, 1, &p_hard);
    assert_true(fabs(p_soft - 0.9) < 0.03);
    assert_true(fabs(p_hard - 0.5) < 0.03);
    const struct tt_estimator_report a = report_of(soft), b = report_of(hard);
    assert_true(a.position[0].accepted == b.position[0].accepted);
    assert_true(a.brier == b.brier && a.log_loss == b.log_loss && a.ece == b.ece);
    assert_memory_equal(a.bin, b.bin, sizeof(a.bin));
    tt_estimator_free(soft);
    tt_estimator_free(hard);
}

/* ------------------------------------------------------------------------------------ behaviour */

static void refits_happen_at_each_kinds_interval(void **state)
{
    (void)state;
    struct tt_estimator_options every3 = online6;
    every3.refit_interval_steps = 3;
    const struct tt_estimator_options *options[] = {&online6, &parity6, &every3};
    static const int interval[] = {20, 100, 3};
    for (int i = 0; i < 3; i++) {
        tt_estimator *estimator = new_estimator(options[i]);
        for (int t = 1; t <= 300; t++) { /* no labels: steps count all the same */
            const int done = tt_estimator_end_step(estimator);
            assert_true(done >= 0);
            assert_int_equal((done & TT_STEP_REFIT) != 0, t % interval[i] == 0);
        }
        assert_int_equal(report_of(estimator).refits, 300 / interval[i]);
        assert_int_equal(report_of(estimator).steps, 300);
        tt_estimator_free(estimator);
    }
}

/* No label can make a sum non-finite (features are clamped); if one ever is, its window counts as
 * empty. */
static void a_non_finite_window_is_rejected(void **state)
{
    (void)state;
    struct online broken, empty;
    for (int which = 0; which < 4; which++) {
        online_init(&broken, 3, 20, 0.55, -0.4);
        for (int t = 0; t < 40; t++) {
            online_add_label(&broken, t % 3, 1.0 + t % 2, t % 2, t % 2);
            online_end_step(&broken);
        }
        empty = broken;
        for (int t = 0; t < 19; t++) {
            online_add_label(&broken, t % 3, 1.0, 1.0, 1.0);
            assert_int_equal(online_end_step(&broken), 0);
            assert_int_equal(online_end_step(&empty), 0);
        }
        if (which == 0) broken.speed[0].window_gradient.slope = NAN;
        if (which == 1) broken.speed[1].window_curvature.cross[2] = INFINITY;
        if (which == 2) broken.speed[0].window_scatter.corner[0] = -INFINITY;
        if (which == 3) broken.window_feature_sum = NAN;
        assert_int_equal(online_end_step(&broken), TT_STEP_REFIT | TT_STEP_REJECTED);
        assert_int_equal(online_end_step(&empty), TT_STEP_REFIT);
        assert_int_equal(broken.rejected, 1);
        for (int s = 0; s < ONLINE_SPEEDS; s++)
            assert_memory_equal(&broken.speed[s].fit, &empty.speed[s].fit,
                                sizeof(empty.speed[s].fit));
        assert_true(broken.centre == empty.centre);
    }
}

static void starvation_names_the_first_starved_position(void **state)
{
    (void)state;
    tt_estimator *estimator = new_estimator(&online6);
    const float feature[6] = {9.0F, 9.0F, 9.0F, 9.0F, 9.0F, 9.0F};
    assert_int_equal(tt_estimator_starved(estimator), 0); /* nothing known yet */
    learn(estimator, 60, 8);
    assert_int_equal(tt_estimator_starved(estimator), -1);
    for (int t = 0; t < 400; t++) {
        const struct tt_observation two = {.feature = feature, .admitted = 2, .accepted = 2};
        tt_estimator_observe(estimator, &two);
        tt_estimator_end_step(estimator);
    }
    assert_int_equal(tt_estimator_starved(estimator), 2);
    tt_estimator_free(estimator);
}

/* A prior is in force at once while nothing has been learned, and fades before labels afterwards.
 */
static void prior_counts_once(void **state)
{
    (void)state;
    tt_estimator *near = new_estimator(&online6), *far = new_estimator(&online6);
    const float zero = 0.0F;
    double p;
    assert_int_equal(tt_estimator_set_prior(far, 0.9, 1.5), TT_OK);
    tt_estimator_predict(far, 3, &zero, 1, &p);
    assert_near(p, 1.0 / (1.0 + exp(-1.5)), 1e-12);
    random_state = 3;
    learn(near, 800, 8);
    random_state = 3;
    learn(far, 800, 8);
    const struct tt_estimator_report a = report_of(near), b = report_of(far);
    assert_true(fabs(a.slope - b.slope) < 0.02);
    for (int k = 0; k < 6; k++)
        assert_true(fabs(a.position[k].intercept - b.position[k].intercept) < 0.05);
    tt_estimator_free(near);
    tt_estimator_free(far);

    tt_estimator *parity = new_estimator(&parity6);
    assert_int_equal(tt_estimator_set_prior(parity, 0.5, 0.0), TT_ENOTSUP);
    tt_estimator_free(parity);
}

/* Known probabilities and outcomes: every score by hand. */
static void calibration_scores_by_hand(void **state)
{
    (void)state;
    tt_estimator *estimator = new_estimator(&online6);
    static const float feature[4] = {2.0F, -1.0F, 2.0F, 0.5F},
                       predicted[4] = {0.8F, 0.3F, 0.8F, 0.55F};
    static const int32_t accepted[4] = {1, 0, 0, 1};
    double brier = 0.0, loss = 0.0;
    for (int i = 0; i < 4; i++) {
        const struct tt_observation one = {.feature = &feature[i],
                                           .predicted = &predicted[i],
                                           .admitted = 1,
                                           .accepted = accepted[i]};
        assert_int_equal(tt_estimator_observe(estimator, &one), TT_OK);
        const double p = (double)predicted[i], y = accepted[i];
        brier += (y - p) * (y - p) / 4.0;
        loss -= log(accepted[i] ? p : 1.0 - p) / 4.0;
    }
    const struct tt_estimator_report report = report_of(estimator);
    assert_near(report.brier, brier, 1e-12);
    assert_near(report.log_loss, loss, 1e-12);
    /* bins: .8 twice with one acceptance, .3 once with none, .55 once with one */
    assert_near(report.ece, (0.6 + 0.3 + 0.45) / 4.0, 1e-7);
    /* pairs (accepted 2 and .5, rejected -1 and 2): 1 + 1/2 + 1 + 0 of 4 */
    assert_near(report.auc, 2.5 / 4.0, 1e-12);
    assert_true(report.bin[8].n == 2.0 && report.bin[3].n == 1.0 && report.bin[5].n == 1.0);
    struct tt_calibration_bin bin[TT_CALIBRATION_BINS];
    assert_int_equal(tt_estimator_calibration(estimator, 0, bin), TT_OK);
    assert_memory_equal(bin, report.bin, sizeof(bin));
    assert_int_equal(tt_estimator_calibration(estimator, 1, bin), TT_OK);
    for (int b = 0; b < TT_CALIBRATION_BINS; b++) assert_true(bin[b].n == 0.0);
    assert_int_equal(tt_estimator_calibration(estimator, 6, bin), TT_EINVAL);
    assert_int_equal(tt_estimator_calibration(estimator, 0, NULL), TT_EINVAL);

    /* forgotten: a thousand steps without labels leave exp(-1) of the counts and the same scores */
    for (int t = 0; t < 1000; t++) tt_estimator_end_step(estimator);
    const struct tt_estimator_report later = report_of(estimator);
    assert_near(later.position[0].reached, 4.0 * pow(0.999, 1000.0), 1e-9);
    assert_near(later.ece, report.ece, 1e-9);
    assert_near(later.brier, report.brier, 1e-9);
    tt_estimator_free(estimator);
}

/* Two million steps, far beyond what the growing unit of the forgotten sums could hold. */
static void long_runs_keep_their_scale(void **state)
{
    (void)state;
    struct calibration calibration;
    struct calibration_scores scores;
    struct tt_calibration_bin bin[TT_CALIBRATION_BINS];
    calibration_init(&calibration, 1);
    for (int t = 0; t < 2000000; t++) {
        calibration_add(&calibration, 0, 0.5, 0.75, t % 2);
        calibration_end_step(&calibration);
    }
    calibration_score(&calibration, &scores);
    calibration_bins(&calibration, -1, bin);
    assert_near(bin[7].n, 999.0, 0.01); /* .999 / (1 - .999) */
    assert_near(bin[7].sum_p / bin[7].n, 0.75, 1e-12);
    assert_near(bin[7].sum_y / bin[7].n, 0.5, 0.001);
    assert_near(calibration.accepted[0] / calibration.reached[0], 0.5, 0.001);
    assert_near(calibration.predicted[0] / calibration.reached[0], 0.75, 1e-12);
    assert_near(calibration.reached[0] / calibration.unit, 999.0, 0.01);
    assert_near(scores.brier, 0.5 * (0.0625 + 0.5625), 0.001);
    assert_near(scores.log_loss, -0.5 * (log(0.75) + log(0.25)), 0.001);
    assert_near(scores.ece, 0.25, 0.001);
    assert_near(scores.auc, 0.5, 1e-12);
}

static void unknown_is_nan_not_zero(void **state)
{
    (void)state;
    tt_estimator *parity = new_estimator(&parity6), *online = new_estimator(&online6);
    const struct tt_estimator_report p = report_of(parity), o = report_of(online);
    assert_true(isnan(p.slope_se) && isnan(p.level) && isnan(p.position[0].intercept_se));
    assert_true(isnan(p.drift_z) && isnan(o.drift_z) && isnan(o.auc) && isnan(o.log_loss));
    assert_true(p.slope == 0.5 && (float)p.position[5].intercept == -0.2F);
    assert_true(isnan(p.position[6].intercept) && isnan(o.position[31].intercept));
    assert_near(o.slope, 0.55, 1e-15);
    assert_near(o.slope_se, 1.0, 1e-12); /* the prior's */
    assert_near(o.level_se, sqrt(0.5), 1e-12);
    assert_near(o.position[0].intercept_se, 1.0, 1e-12); /* sqrt(1/2 + 1/2) */
    tt_estimator_free(parity);
    tt_estimator_free(online);
}

/* -------------------------------------------------------------------------------- save and load */

static void a_loaded_estimator_continues_bit_for_bit(void **state)
{
    (void)state;
    const struct tt_estimator_options *kinds[] = {&online6, &parity6};
    for (int kind = 0; kind < 2; kind++) {
        tt_estimator *original = new_estimator(kinds[kind]), *loaded = NULL;
        random_state = 17;
        learn(original, 333, 5);    /* in the middle of a window */
        const float feature = 1.0F; /* and of a step */
        const struct tt_observation one = {.feature = &feature, .admitted = 1, .accepted = 1};
        tt_estimator_observe(original, &one);
        size_t size = 0;
        assert_int_equal(tt_estimator_save(original, NULL, 0, &size), TT_OK);
        unsigned char *blob = malloc(size);
        assert_non_null(blob);
        assert_int_equal(tt_estimator_save(original, blob, size - 1, NULL), TT_ELIMIT);
        assert_int_equal(tt_estimator_save(original, blob, size, NULL), TT_OK);
        assert_int_equal(tt_estimator_load(&loaded, blob, size), TT_OK);
        assert_memory_equal(&original->calibration, &loaded->calibration,
                            sizeof(original->calibration));
        if (kind == 0)
            assert_memory_equal(&original->u.online, &loaded->u.online, sizeof(original->u.online));
        random_state = 18;
        learn(original, 333, 5);
        random_state = 18;
        learn(loaded, 333, 5);
        assert_same_state(original, loaded);
        tt_estimator_free(original);
        tt_estimator_free(loaded);
        free(blob);
    }
}

static void damaged_blobs_are_refused(void **state)
{
    (void)state;
    tt_estimator *original = new_estimator(&online6), *loaded = original;
    random_state = 19;
    learn(original, 50, 3);
    size_t size = 0;
    tt_estimator_save(original, NULL, 0, &size);
    unsigned char *blob = malloc(size);
    assert_non_null(blob);
    tt_estimator_save(original, blob, size, NULL);
    for (size_t i = 0; i < size; i += i < 64 ? 1 : 97) { /* one bit anywhere */
        blob[i] ^= 0x10;
        assert_int_equal(tt_estimator_load(&loaded, blob, size), TT_EINVAL);
        assert_null(loaded);
        blob[i] ^= 0x10;
    }
    for (size_t n = 0; n < size; n += 41) /* cut short */
        assert_int_equal(tt_estimator_load(&loaded, blob, n), TT_EINVAL);
    assert_int_equal(tt_estimator_load(&loaded, NULL, size), TT_EINVAL);
    assert_int_equal(tt_estimator_load(NULL, blob, size), TT_EINVAL);
    assert_int_equal(tt_estimator_load(&loaded, blob, size), TT_OK);
    tt_estimator_free(loaded);
    tt_estimator_free(original);
    free(blob);
}

/* A blob that passes its sum and is wrong all the same: refused, or an estimator that is safe to
 * run. Memory and undefined behaviour are the sanitizer build's to see. */
static void hostile_blobs_do_no_harm(void **state)
{
    (void)state;
    static const uint64_t words[] = {0,
                                     1,
                                     UINT64_MAX,
                                     UINT64_C(0x7ff0000000000000),
                                     UINT64_C(0x7ff8000000000000),
                                     UINT64_C(0x7fefffffffffffff),
                                     UINT64_C(0x7fffffff)};
    const struct tt_estimator_options *kinds[] = {&online6, &parity6};
    int loaded_count = 0, refused_count = 0;
    random_state = 23;
    for (int kind = 0; kind < 2; kind++) {
        tt_estimator *original = new_estimator(kinds[kind]);
        learn(original, 47, 3);
        size_t size = 0;
        tt_estimator_save(original, NULL, 0, &size);
        unsigned char *blob = malloc(size);
        assert_non_null(blob);
        for (size_t i = 2; i < size / 8 - 1; i++) {
            const uint64_t word = words[i % (sizeof(words) / sizeof(words[0]))];
            tt_estimator *loaded = NULL;
            tt_estimator_save(original, blob, size, NULL);
            for (int b = 0; b < 8; b++) blob[8 * i + (size_t)b] = (unsigned char)(word >> (8 * b));
            uint64_t sum = UINT64_C(0xcbf29ce484222325);
            for (size_t b = 0; b < size - 8; b++) sum = (sum ^ blob[b]) * UINT64_C(0x100000001b3);
            for (int b = 0; b < 8; b++)
                blob[size - 8 + (size_t)b] = (unsigned char)(sum >> (8 * b));
            if (tt_estimator_load(&loaded, blob, size) != TT_OK) {
                assert_null(loaded);
                refused_count++;
                continue;
            }
            loaded_count++;
            learn(loaded, 21, 1);
            (void)report_of(loaded);
            tt_estimator_free(loaded);
        }
        tt_estimator_free(original);
        free(blob);
    }
    assert_true(loaded_count > 100 && refused_count > 10);
}

static void out_of_memory_is_reported(void **state)
{
    (void)state;
    tt_estimator *estimator = new_estimator(&online6), *other = estimator;
    size_t size = 0;
    tt_estimator_save(estimator, NULL, 0, &size);
    void *blob = malloc(size);
    assert_non_null(blob);
    tt_estimator_save(estimator, blob, size, NULL);
    fail_next_calloc = true;
    assert_int_equal(tt_estimator_new(&other, &online6), TT_ENOMEM);
    assert_null(other);
    other = estimator;
    fail_next_calloc = true;
    assert_int_equal(tt_estimator_load(&other, blob, size), TT_ENOMEM);
    assert_null(other);
    tt_estimator_free(estimator);
    free(blob);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_refuses_bad_options),
        cmocka_unit_test(null_handles_are_refused),
        cmocka_unit_test(refused_observations_change_nothing),
        cmocka_unit_test(predict_checks_its_arguments),
        cmocka_unit_test(labels_are_the_reached_positions),
        cmocka_unit_test(non_finite_features_drop_their_label_only),
        cmocka_unit_test(nan_everywhere_changes_no_coefficient),
        cmocka_unit_test(huge_features_are_clamped),
        cmocka_unit_test(soft_labels_fit_and_hard_outcomes_are_shown),
        cmocka_unit_test(refits_happen_at_each_kinds_interval),
        cmocka_unit_test(a_non_finite_window_is_rejected),
        cmocka_unit_test(starvation_names_the_first_starved_position),
        cmocka_unit_test(prior_counts_once),
        cmocka_unit_test(calibration_scores_by_hand),
        cmocka_unit_test(long_runs_keep_their_scale),
        cmocka_unit_test(unknown_is_nan_not_zero),
        cmocka_unit_test(a_loaded_estimator_continues_bit_for_bit),
        cmocka_unit_test(damaged_blobs_are_refused),
        cmocka_unit_test(hostile_blobs_do_no_harm),
        cmocka_unit_test(out_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
