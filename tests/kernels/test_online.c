/* test_online.c - the refit of `online` against its definition, computed another way: every label
 * ever seen is kept with its weight, the sums are formed around the current centre from scratch,
 * and the full matrix over (slope, level, intercepts) is solved by elimination with pivoting. Also
 * the drift statistics and the misfit that widens the intervals, recomputed from the same labels.
 */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/online_body.h"

#define K 4
#define N (K + 2) /* slope, level, intercepts */
#define MAX_LABELS 20000
#define MAX_WINDOWS 100

struct label {
    double feature, weight[2]; /* by speed: forgotten so far */
    double curvature[2], residual[2], logit[2];
    double active_residual, variance; /* of the speed that predicted */
    double x;                         /* the feature as it was centred then */
    int position, window;
};

/* The estimator by its definition. */
struct reference {
    struct label label[MAX_LABELS];
    int labels, window;
    double slope[2], level[2], intercept[2][K]; /* centred */
    double centre, prior_slope, prior_level;
    double covariance[2][N][N];
};

static const double forget[2] = {0.999, 0.99};

static uint64_t random_state;
static double random_uniform(void)
{
    random_state = random_state * UINT64_C(48271) % UINT64_C(2147483647);
    return (double)random_state / 2147483647.0;
}

/* ------------------------------------------------------------------------ dense linear algebra */

/* Solve a x = b in place by elimination with partial pivoting; b becomes x. */
static void solve(int n, double a[N][N], double b[N])
{
    for (int i = 0; i < n; i++) {
        int pivot = i;
        for (int r = i + 1; r < n; r++) pivot = fabs(a[r][i]) > fabs(a[pivot][i]) ? r : pivot;
        for (int c = 0; c < n; c++) {
            const double swap = a[i][c];
            a[i][c] = a[pivot][c];
            a[pivot][c] = swap;
        }
        const double swap = b[i];
        b[i] = b[pivot];
        b[pivot] = swap;
        for (int r = i + 1; r < n; r++) {
            const double factor = a[r][i] / a[i][i];
            for (int c = i; c < n; c++) a[r][c] -= factor * a[i][c];
            b[r] -= factor * b[i];
        }
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int c = i + 1; c < n; c++) b[i] -= a[i][c] * b[c];
        b[i] /= a[i][i];
    }
}

/* The prior's matrix: (w - w0)^2/2 + 2 (l - l0)^2/2 + sum 2 (b_k - l)^2/2. */
static void add_prior(double a[N][N])
{
    a[0][0] += 1.0;
    a[1][1] += 2.0;
    for (int k = 0; k < K; k++) {
        a[1][1] += 2.0;
        a[2 + k][2 + k] += 2.0;
        a[1][2 + k] -= 2.0;
        a[2 + k][1] -= 2.0;
    }
}

static void inverse(double a[N][N], double out[N][N])
{
    for (int column = 0; column < N; column++) {
        double copy[N][N], unit[N] = {0};
        memcpy(copy, a, sizeof(copy));
        unit[column] = 1.0;
        solve(N, copy, unit);
        for (int r = 0; r < N; r++) out[r][column] = unit[r];
    }
}

static void multiply(double a[N][N], double b[N][N], double out[N][N])
{
    for (int r = 0; r < N; r++) {
        for (int c = 0; c < N; c++) {
            out[r][c] = 0.0;
            for (int i = 0; i < N; i++) out[r][c] += a[r][i] * b[i][c];
        }
    }
}

/* --------------------------------------------------------------------------------- definition */

static void reference_add(struct reference *reference, int active, int position, double feature,
                          double soft)
{
    assert_true(reference->labels < MAX_LABELS);
    struct label *label = &reference->label[reference->labels++];
    label->position = position;
    label->feature = feature;
    label->window = reference->window;
    label->x = feature - reference->centre;
    for (int s = 0; s < 2; s++) {
        const double u =
            reference->slope[s] * (feature - reference->centre) + reference->intercept[s][position];
        const double p = 1.0 / (1.0 + exp(-u));
        label->weight[s] = 1.0;
        label->logit[s] = u;
        label->curvature[s] = p * (1.0 - p);
        label->residual[s] = soft - p;
        if (s == active) {
            label->active_residual = soft - p;
            label->variance = p * (1.0 - p);
        }
    }
}

static double limit(double x, double old, double change)
{
    return fmin(fmax(x, old - change), old + change);
}

/* Coefficients from all labels around `centre`. */
static void reference_solve(struct reference *reference, int s)
{
    double h[N][N] = {{0}}, j[N][N] = {{0}}, rhs[N] = {0}, a[N][N], m[N][N], half[N][N];
    for (int i = 0; i < reference->labels; i++) {
        const struct label *label = &reference->label[i];
        double z[N] = {0};
        z[0] = label->feature - reference->centre;
        z[2 + label->position] = 1.0;
        for (int r = 0; r < N; r++) {
            rhs[r] += label->weight[s] * z[r] *
                      (label->curvature[s] * label->logit[s] + label->residual[s]);
            for (int c = 0; c < N; c++) {
                h[r][c] += label->weight[s] * label->curvature[s] * z[r] * z[c];
                j[r][c] += label->weight[s] * label->weight[s] * label->residual[s] *
                           label->residual[s] * z[r] * z[c];
            }
        }
    }
    add_prior(h);
    add_prior(j);
    rhs[0] += reference->prior_slope;
    rhs[1] += 2.0 * (reference->prior_level + reference->prior_slope * reference->centre);
    double free_solution[N];
    memcpy(free_solution, rhs, sizeof(rhs));
    memcpy(a, h, sizeof(a));
    solve(N, a, free_solution);
    const double slope = fmax(limit(free_solution[0], reference->slope[s], 1.0), 0.0);
    /* the rest, given that slope: a system of N - 1 */
    double rest[N][N] = {{0}}, rest_rhs[N] = {0};
    for (int r = 1; r < N; r++) {
        rest_rhs[r - 1] = rhs[r] - h[r][0] * slope;
        for (int c = 1; c < N; c++) rest[r - 1][c - 1] = h[r][c];
    }
    solve(N - 1, rest, rest_rhs);
    reference->slope[s] = slope;
    reference->level[s] = rest_rhs[0];
    for (int k = 0; k < K; k++)
        reference->intercept[s][k] = limit(rest_rhs[1 + k], reference->intercept[s][k], 2.0);
    inverse(h, a);
    multiply(a, j, half);
    multiply(half, a, m);
    memcpy(reference->covariance[s], m, sizeof(m));
}

/* Close a window of `steps` steps; `alarm` is what the estimator under test decided. */
static void reference_refit(struct reference *reference, int steps, int alarm)
{
    double sum = 0.0;
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < reference->labels; i++) {
            struct label *label = &reference->label[i];
            if (label->window == reference->window) continue;
            label->weight[s] *= pow(forget[s], steps) * (alarm ? 0.1 : 1.0);
        }
    }
    for (int i = 0; i < reference->labels; i++) sum += reference->label[i].feature;
    const double centre = reference->labels > 0 ? sum / reference->labels : reference->centre;
    for (int s = 0; s < 2; s++) {
        for (int k = 0; k < K; k++)
            reference->intercept[s][k] += reference->slope[s] * (centre - reference->centre);
    }
    reference->centre = centre;
    for (int s = 0; s < 2; s++) reference_solve(reference, s);
    reference->window++;
}

/* ------------------------------------------------------------------------------------- compare */

static void assert_near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance)) {
        print_error("# %.15g, not %.15g\n", got, want);
        fail();
    }
}

/* Variance of slope_weight * slope + level_weight * level + b_k. */
static double variance_of(double covariance[N][N], double slope_weight, double level_weight, int k)
{
    double u[N] = {slope_weight, level_weight}, sum = 0.0;
    if (k >= 0) u[2 + k] = 1.0;
    for (int r = 0; r < N; r++) {
        for (int c = 0; c < N; c++) sum += u[r] * covariance[r][c] * u[c];
    }
    return sum;
}

/* How far the predictions were off along one coordinate, squared: the slope (-2), the level (-1) or
 * a position; shrunk as the estimator's own documentation says. */
static double misfit_of(const struct reference *reference, int coordinate)
{
    double residual[MAX_WINDOWS] = {0}, spread[MAX_WINDOWS] = {0}, curvature[MAX_WINDOWS] = {0};
    double excess = 0.0, weight = 0.0, noise = 0.0;
    assert_true(reference->window <= MAX_WINDOWS);
    for (int i = 0; i < reference->labels; i++) {
        const struct label *label = &reference->label[i];
        const double z = coordinate == -2 ? label->x : 1.0;
        if (coordinate >= 0 && label->position != coordinate) continue;
        residual[label->window] += label->active_residual * z;
        spread[label->window] += label->active_residual * label->active_residual * z * z;
        curvature[label->window] += label->variance * z * z;
    }
    for (int w = 10; w < reference->window; w++) {
        const double keep = pow(0.98, reference->window - 1 - w);
        excess += keep * (residual[w] * residual[w] - spread[w]);
        weight += keep * curvature[w] * curvature[w];
        noise += keep * keep * 2.0 * spread[w] * spread[w];
    }
    if (!(excess > 0.0)) return 0.0;
    return excess / weight / (1.0 + 2.5 * 2.5 * noise / (excess * excess));
}

static void compare(struct reference *reference, const struct online *online)
{
    struct online_summary summary;
    const double c = reference->centre;
    assert_near(online->centre, c, 1e-10);
    for (int s = 0; s < 2; s++) {
        assert_near(online->speed[s].fit.slope, reference->slope[s], 1e-8);
        assert_near(online->speed[s].fit.level, reference->level[s], 1e-8);
        for (int k = 0; k < K; k++)
            assert_near(online->speed[s].fit.intercept[k], reference->intercept[s][k], 1e-8);
    }
    online_summarize(online, &summary);
    const int s = online->active;
    const double level = misfit_of(reference, -1), slope = misfit_of(reference, -2);
    assert_near(summary.level, reference->level[s] - c * reference->slope[s], 1e-8);
    assert_near(summary.slope_se, sqrt(variance_of(reference->covariance[s], 1.0, 0.0, -1) + slope),
                1e-8);
    assert_near(summary.level_se,
                sqrt(variance_of(reference->covariance[s], -c, 1.0, -1) + level + c * c * slope),
                1e-8);
    for (int k = 0; k < K; k++) {
        const double widened = fmax(level, misfit_of(reference, k)) + c * c * slope;
        assert_near(summary.intercept[k], reference->intercept[s][k] - c * reference->slope[s],
                    1e-8);
        assert_near(summary.intercept_se[k],
                    sqrt(variance_of(reference->covariance[s], -c, 0.0, k) + widened), 1e-8);
    }
}

struct stream {
    double slope, level, jump; /* the level changes by `jump` halfway */
    double feature_mean, feature_spread;
    int requests, depth; /* positions drafted in the second half */
};

/* Run both on one stream, comparing at every refit; returns the number of alarms. */
static int replay(const struct stream *stream, int refits, int interval)
{
    struct reference *reference = calloc(1, sizeof(*reference));
    struct online *online = calloc(1, sizeof(*online));
    int alarms = 0;
    assert_non_null(reference);
    assert_non_null(online);
    online_init(online, K, interval, 0.55, -0.4);
    reference->prior_slope = 0.55;
    reference->prior_level = -0.4;
    for (int s = 0; s < 2; s++) {
        reference->slope[s] = 0.55;
        reference->level[s] = -0.4;
        for (int k = 0; k < K; k++) reference->intercept[s][k] = -0.4;
    }
    random_state = 12345;
    for (int t = 0; t < refits * interval; t++) {
        const int late = t >= refits * interval / 2, depth = late ? stream->depth : K;
        for (int r = 0; r < stream->requests; r++) {
            for (int k = 0; k < depth; k++) {
                const double f =
                    stream->feature_mean + stream->feature_spread * (random_uniform() - 0.5);
                const double p = 1.0 / (1.0 + exp(-(stream->slope * f + stream->level - 0.1 * k +
                                                    (late ? stream->jump : 0.0))));
                const double hard = random_uniform() < p ? 1.0 : 0.0;
                const double soft = r % 2 ? 0.5 * (hard + p) : hard;
                reference_add(reference, online->active, k, f, soft);
                online_add_label(online, k, f, soft, hard);
                if (hard == 0.0) break;
            }
        }
        const int done = online_end_step(online);
        assert_int_equal((done & TT_STEP_REJECTED), 0);
        if (!(done & TT_STEP_REFIT)) continue;
        alarms += (done & TT_STEP_DRIFT) != 0;
        reference_refit(reference, interval, done & TT_STEP_DRIFT);
        compare(reference, online);
    }
    free(reference);
    free(online);
    return alarms;
}

/* -------------------------------------------------------------------------------------- tests */

static void refits_match_the_definition(void **state)
{
    (void)state;
    const struct stream stream = {0.7, -0.3, 0.0, 2.0, 6.0, 4, K};
    assert_int_equal(replay(&stream, 40, 20), 0);
}

static void also_for_a_short_interval(void **state)
{
    (void)state;
    const struct stream stream = {0.5, 0.2, 0.0, -1.0, 3.0, 1, K};
    assert_int_equal(replay(&stream, 60, 3), 0);
}

static void also_through_a_drift_alarm(void **state)
{
    (void)state;
    const struct stream stream = {0.6, 0.4, -2.0, 1.0, 5.0, 6, K};
    assert_true(replay(&stream, 40, 20) >= 1);
}

/* The slope wants to be negative: it is projected to zero and the rest solved at zero. */
static void also_at_a_slope_of_zero(void **state)
{
    (void)state;
    const struct stream stream = {-0.8, 0.5, 0.0, 1.0, 5.0, 4, K};
    replay(&stream, 30, 20);
}

/* A steep law and one window of many labels: both caps bind. */
static void also_where_the_caps_bind(void **state)
{
    (void)state;
    const struct stream stream = {4.0, -12.0, 0.0, 3.0, 8.0, 60, K};
    replay(&stream, 6, 20);
}

static void also_with_starved_positions(void **state)
{
    (void)state;
    const struct stream stream = {0.6, 0.0, -1.0, 1.0, 5.0, 3, 1};
    replay(&stream, 80, 20);
}

static void also_for_a_nearly_constant_feature(void **state)
{
    (void)state;
    const struct stream stream = {0.6, -1.5, 0.0, 3.0, 0.002, 6, K};
    assert_int_equal(replay(&stream, 30, 20), 0);
}

/* The drift statistics of the tested windows, from the same residuals. */
static void drift_is_judged_as_defined(void **state)
{
    (void)state;
    struct online online;
    double sum = 0.0, sum_variance = 0.0, window_scale = 1.0, sum_scale = 1.0;
    online_init(&online, K, 20, 0.55, -0.4);
    random_state = 77;
    for (int refit = 0; refit < 60; refit++) {
        double residual = 0.0, variance = 0.0;
        for (int i = 0; i < 200; i++) {
            const double f = 4.0 * random_uniform(), hard = random_uniform() < 0.6 ? 1.0 : 0.0;
            const double p = online_probability(&online, i % K, f);
            residual += hard - p;
            variance += p * (1.0 - p);
            online_add_label(&online, i % K, f, hard, hard);
        }
        for (int t = 0; t < 19; t++) assert_int_equal(online_end_step(&online), 0);
        assert_int_equal(online_end_step(&online), TT_STEP_REFIT);
        if (refit < 10) {
            assert_true(isnan(online.drift_z));
            continue;
        }
        sum = 0.8 * sum + residual;
        sum_variance = 0.64 * sum_variance + variance;
        const double window_raw = residual / sqrt(variance), sum_raw = sum / sqrt(sum_variance);
        const double window_z = window_raw / sqrt(window_scale), sum_z = sum_raw / sqrt(sum_scale);
        assert_near(online.drift_z, fabs(sum_z) > fabs(window_z) ? sum_z : window_z, 1e-9);
        window_scale += 0.02 * (fmin(window_raw * window_raw, 9.0 * window_scale) - window_scale);
        window_scale = fmax(window_scale, 1.0);
        sum_scale += 0.01 * (fmin(sum_raw * sum_raw, 9.0 * sum_scale) - sum_scale);
        sum_scale = fmax(sum_scale, 1.0);
        assert_near(online.drift_window.scale2, window_scale, 1e-9);
        assert_near(online.drift_sum.scale2, sum_scale, 1e-9);
    }
}

/* One window whose residuals sum to this; returns whether it raised an alarm. */
static int window_of(struct online *online, double residual, double variance)
{
    online->window_residual = residual;
    online->window_variance = variance;
    int done = 0;
    for (int t = 0; t < 20; t++) done = online_end_step(online);
    return (done & TT_STEP_DRIFT) != 0;
}

static void start_tested(struct online *online, uint64_t refits)
{
    online_init(online, K, 20, 0.55, -0.4);
    online->refits = refits;
}

static void alarms_begin_where_they_should(void **state)
{
    (void)state;
    static const struct {
        uint64_t refits;
        double residual, variance;
        int alarm;
    } cases[] = {
        {10, 101.0, 400.0, 1},  /* z = 5.05, 0.2525 logit */
        {10, -101.0, 400.0, 1}, /* both directions */
        {9, 101.0, 400.0, 0},   /* not in the first ten refits */
        {10, 99.0, 400.0, 0},   /* 0.2475 logit: significant and too small to matter */
        {10, 44.0, 100.0, 0},   /* z = 4.4 */
        {10, 46.0, 100.0, 1},   /* z = 4.6 */
        {10, 14.0, 4.9, 0},     /* too little evidence to test */
        {10, 14.0, 5.1, 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct online online;
        start_tested(&online, cases[i].refits);
        assert_int_equal(window_of(&online, cases[i].residual, cases[i].variance), cases[i].alarm);
        assert_int_equal(online.drift_events, cases[i].alarm);
    }
}

/* Three windows of z = 3 each: none alarms alone, their forgotten sum does, once. */
static void a_small_lasting_change_is_found_by_the_sum(void **state)
{
    (void)state;
    struct online online;
    start_tested(&online, 10);
    assert_int_equal(window_of(&online, 30.0, 100.0), 0);
    assert_int_equal(window_of(&online, 30.0, 100.0), 0);
    assert_int_equal(window_of(&online, 30.0, 100.0), 1);
    assert_int_equal(window_of(&online, 30.0, 100.0), 0); /* the tested sum was cleared */
    assert_int_equal(online.drift_events, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refits_match_the_definition),
        cmocka_unit_test(also_for_a_short_interval),
        cmocka_unit_test(also_through_a_drift_alarm),
        cmocka_unit_test(also_at_a_slope_of_zero),
        cmocka_unit_test(also_where_the_caps_bind),
        cmocka_unit_test(also_with_starved_positions),
        cmocka_unit_test(also_for_a_nearly_constant_feature),
        cmocka_unit_test(drift_is_judged_as_defined),
        cmocka_unit_test(alarms_begin_where_they_should),
        cmocka_unit_test(a_small_lasting_change_is_found_by_the_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
