/* test_rows.c - row statistics against a long double oracle, over vocabularies, kinds of rows,
 * element types, strides and temperatures; the same bits from every instruction set; the elementary
 * functions; bad arguments. */
#include "config.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "kernels/row_body.h"
#include "tests/kernels/row_kinds.h"

static const size_t vocabularies[] = {1,    2,    7,    32,    127,   128,   129,    1000,
                                      4096, 4097, 8193, 10000, 49152, 50257, 131072, 151936};
#define VOCABULARIES (sizeof vocabularies / sizeof vocabularies[0])
#define VOCAB_MAX 151936

/* Linked with --wrap=calloc: the n-th allocation from now on fails; 0 for none. */
static int failing_calloc;
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *__wrap_calloc(size_t count, size_t size)
{
    if (failing_calloc > 0 && --failing_calloc == 0) return NULL;
    return __real_calloc(count, size);
}

struct oracle {
    int32_t argmax;
    long double rest;
};

static struct oracle oracle_of(const float *row, size_t vocab, float inverse_temperature)
{
    struct oracle oracle = {0, 0.0L};
    for (size_t i = 1; i < vocab; i++)
        if (row[i] > row[oracle.argmax]) oracle.argmax = (int32_t)i;
    const long double max = row[oracle.argmax];
    for (size_t i = 0; i < vocab; i++)
        if ((int32_t)i != oracle.argmax)
            oracle.rest += expl(((long double)row[i] - max) * (long double)inverse_temperature);
    return oracle;
}

/* Every difference and every product of the fp32 body rounds once: two roundings of the exponent,
 * and the result's own. */
static double tolerance_of(double log_odds)
{
    return 1e-6 + 2.5 * FLT_EPSILON / 2 * fabs(log_odds);
}

static void check_stats(const struct tt_row_stats *stats, const float *row, size_t vocab,
                        enum row_kind kind, float inverse_temperature)
{
    if (row_kind_is_flagged(kind)) {
        assert_int_equal(stats->flags, TT_ROW_FLAGGED);
        assert_int_equal(stats->argmax, -1);
        assert_true(isnan(stats->log_odds));
        return;
    }
    const struct oracle oracle = oracle_of(row, vocab, inverse_temperature);
    const double log_odds = oracle.rest > 0.0L ? (double)-logl(oracle.rest) : INFINITY;
    assert_int_equal(stats->flags, 0);
    assert_int_equal(stats->argmax, oracle.argmax);
    assert_memory_equal(&stats->max, &row[oracle.argmax], sizeof stats->max);
    if (log_odds > 86.9) /* a term below 2^-125.5 counts as nothing */
        assert_true(stats->log_odds > 86.8f);
    else if (fabs((double)stats->log_odds - log_odds) > tolerance_of(log_odds))
        fail_msg("vocabulary %zu kind %d 1/T %g: log-odds %.9g, exactly %.9g", vocab, (int)kind,
                 (double)inverse_temperature, (double)stats->log_odds, log_odds);
    if (isinf(log_odds)) assert_true(stats->rest == 0.0f && isinf(stats->log_odds));
    const double norm =
        (double)row[oracle.argmax] * (double)inverse_temperature + (double)log1pl(oracle.rest);
    if (fabs(norm) < (double)FLT_MAX)
        assert_true(fabs((double)stats->log_norm - norm) <= 2e-6 + fabs(norm) * 1.3e-7);
}

static void test_against_oracle(void **state)
{
    static const float inverse_temperatures[] = {1.0f, 1.0f / 0.7f, 10.0f, 0.25f};
    float *row = malloc(VOCAB_MAX * sizeof *row);
    tt *handles[ISAS_MAX];
    const size_t isas = open_every_isa(handles, VOCAB_MAX, 1);
    (void)state;
    assert_non_null(row);
    assert_true(isas >= 1);
    for (size_t v = 0; v < VOCABULARIES; v++)
        for (int kind = 0; kind < ROW_KINDS; kind++) {
            const size_t vocab = vocabularies[v];
            const float scale = inverse_temperatures[(v + (size_t)kind) % 4];
            struct tt_row_stats first, stats;
            row_fill(row, vocab, (enum row_kind)kind, 1);
            const struct tt_rows rows = {row, TT_F32, 1, vocab, vocab};
            for (size_t i = 0; i < isas; i++) {
                assert_int_equal(tt_row_statistics(handles[i], &rows, &scale, &stats), TT_OK);
                if (i == 0) first = stats;
                assert_memory_equal(&first, &stats, sizeof stats);
            }
            check_stats(&stats, row, vocab, (enum row_kind)kind, scale);
        }
    for (size_t i = 0; i < isas; i++) tt_close(handles[i]);
    free(row);
}

/* Several rows, apart by a stride; the gaps hold NaN, which nobody may read. fp16 and bf16 against
 * the rounded row. */
static void test_types_and_strides(void **state)
{
    enum { ROWS = 3 };
    static const size_t sizes[] = {1, 7, 129, 1000, 8193, 50257};
    static const enum row_kind kinds[ROWS] = {ROW_NORMAL, ROW_TIED, ROW_PEAKED};
    tt *handles[ISAS_MAX];
    const size_t isas = open_every_isa(handles, 50257, ROWS);
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int dtype = TT_F32; dtype <= TT_BF16; dtype++) {
            const size_t vocab = sizes[s], stride = vocab + 5;
            float *wide = malloc(ROWS * stride * sizeof *wide);
            uint16_t *narrow = malloc(ROWS * stride * sizeof *narrow);
            const float scales[ROWS] = {1.0f, 0.5f, 2.0f};
            struct tt_row_stats first[ROWS], stats[ROWS];
            assert_true(wide && narrow);
            for (size_t i = 0; i < ROWS * stride; i++) {
                wide[i] = NAN;
                narrow[i] = 0xffff;
            }
            for (size_t r = 0; r < ROWS; r++) {
                row_fill(wide + r * stride, vocab, kinds[r], (uint32_t)r);
                for (size_t i = 0; dtype != TT_F32 && i < vocab; i++)
                    wide[r * stride + i] = row_narrow(wide[r * stride + i], (enum tt_dtype)dtype,
                                                      &narrow[r * stride + i]);
            }
            const struct tt_rows rows = {dtype == TT_F32 ? (const void *)wide : narrow,
                                         (enum tt_dtype)dtype, ROWS, vocab, stride};
            for (size_t i = 0; i < isas; i++) {
                assert_int_equal(tt_row_statistics(handles[i], &rows, scales, stats), TT_OK);
                if (i == 0) memcpy(first, stats, sizeof first);
                assert_memory_equal(first, stats, sizeof stats);
            }
            for (size_t r = 0; r < ROWS; r++)
                check_stats(&stats[r], wide + r * stride, vocab, kinds[r], scales[r]);
            free(narrow);
            free(wide);
        }
    for (size_t i = 0; i < isas; i++) tt_close(handles[i]);
}

/* A NaN flags its row wherever it stands and whatever its bits are: payloads survive arithmetic on
 * some machines, and others make one NaN of all of them. */
static void test_every_nan_flags(void **state)
{
    static const uint32_t nans[] = {0x7fc00000u, 0x7fc00001u, 0x7fffffffu, 0x7f800001u,
                                    0xffc00000u, 0xffc00155u, 0xffffffffu, 0xff80007fu};
    static const size_t places[] = {0, 1, 4095, 4096, 8191, 8192, 8200};
    enum { VOCAB = 8201 };
    static float row[VOCAB];
    tt *handles[ISAS_MAX];
    const size_t isas = open_every_isa(handles, VOCAB, 1);
    (void)state;
    row_fill(row, VOCAB, ROW_NORMAL, 1);
    for (size_t p = 0; p < sizeof places / sizeof places[0]; p++)
        for (size_t n = 0; n < sizeof nans / sizeof nans[0]; n++) {
            const struct tt_rows rows = {row, TT_F32, 1, VOCAB, VOCAB};
            struct tt_row_stats stats;
            const float kept = row[places[p]];
            memcpy(&row[places[p]], &nans[n], sizeof row[0]);
            for (size_t i = 0; i < isas; i++) {
                assert_int_equal(tt_row_statistics(handles[i], &rows, NULL, &stats), TT_OK);
                if (stats.flags != TT_ROW_FLAGGED)
                    fail_msg("%s: NaN %08x at %zu goes unseen", tt_isa(handles[i]),
                             (unsigned)nans[n], places[p]);
            }
            row[places[p]] = kept;
        }
    for (size_t i = 0; i < isas; i++) tt_close(handles[i]);
}

/* An inverse temperature at the end of the floats: the mode alone is left. */
static void test_extreme_temperatures(void **state)
{
    static const float row[] = {1.0f, 3.0f, 3.0f, -INFINITY, 2.0f}, scales[] = {FLT_MAX, FLT_MIN};
    static const float rests[] = {1.0f, 3.0f};
    tt *handles[ISAS_MAX];
    const size_t isas = open_every_isa(handles, 5, 1);
    (void)state;
    for (size_t i = 0; i < isas; i++)
        for (size_t s = 0; s < 2; s++) {
            struct tt_row_stats stats;
            assert_int_equal(tt_row_statistics(handles[i], &(struct tt_rows){row, TT_F32, 1, 5, 5},
                                               &scales[s], &stats),
                             TT_OK);
            assert_int_equal(stats.flags, 0);
            assert_int_equal(stats.argmax, 1);
            assert_true(stats.rest == rests[s]);
        }
    for (size_t i = 0; i < isas; i++) tt_close(handles[i]);
}

/* All 65536 halves against their definition. */
static void test_every_half(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const int exponent = (int)(bits >> 10 & 31);
        const double fraction = (double)(bits & 1023) / 1024.0;
        double want = exponent == 31 ? (fraction > 0.0 ? NAN : INFINITY)
                      : exponent > 0 ? ldexp(1.0 + fraction, exponent - 15)
                                     : ldexp(fraction, -14);
        if (bits >> 15) want = -want;
        const float got = float_of_half((uint16_t)bits);
        if (isnan(want))
            assert_true(isnan(got));
        else
            assert_true((double)got == want &&
                        signbit(got) == (int)(bits >> 15 ? signbit(got) : 0));
        if (!isnan(want)) assert_int_equal(!!signbit(got), bits >> 15);
    }
}

/* The text's fused multiply-add, with or without the machine's own, against libm's. */
static void test_fused(void **state)
{
    (void)state;
    uint32_t random = 1;
    for (int i = 0; i < 2000000; i++) {
        float value[3];
        for (int k = 0; k < 3; k++) {
            random = random * 1664525u + 1013904223u;
            /* exponents close to each other: where double rounding hides */
            value[k] = float_of_bits((random & 0x807fffffu) | (120u + (random >> 28)) << 23);
        }
        if (i % 3 == 0) value[2] = -(value[0] * value[1]); /* what is lost is all there is */
        const float got = fused_lane(value[0], value[1], value[2]),
                    want = fmaf(value[0], value[1], value[2]);
        assert_true(bits_of_float(got) == bits_of_float(want) || (got == 0.0f && want == 0.0f));
    }
    assert_true(isnan(fused_lane(NAN, 1.0f, 1.0f)) && isnan(fused_lane(INFINITY, 0.0f, 1.0f)));
    assert_true(fused_lane(INFINITY, 1.0f, 1.0f) == INFINITY);
    assert_true(fused_lane(1e30f, 1e30f, -INFINITY) == -INFINITY);
}

/* The library's own elementary functions against libm's long double. */
static void test_elementary_functions(void **state)
{
    (void)state;
    for (int i = 0; i <= 200000; i++) {
        const float x = -86.9f * (float)i / 200000.0f;
        const long double e = expl((long double)x);
        assert_true(fabsl((long double)exp_lane(x) - e) <= (1.9e-7L - 1.4e-8L * x) * e);
        const double d = -700.0 * i / 200000.0;
        const long double ed = expl((long double)d);
        assert_true(fabsl((long double)exp_double(d) - ed) <= 6e-16L * ed);
    }
    assert_true(exp_lane(0.0f) == 1.0f && exp_double(0.0) == 1.0);
    assert_true(exp_lane(-INFINITY) == 0.0f && exp_double(-INFINITY) == 0.0);
    assert_true(isnan(exp_lane(NAN)) && isnan(exp_double(NAN)));
    assert_true(exp_lane(-87.0f) == 0.0f && exp_lane(-FLT_MAX) == 0.0f);
    for (int i = 1; i <= 200000; i++) {
        const float v = (float)i / 200001.0f, small = v * 1e-9f, large = v * 1e6f;
        assert_true(fabsl((long double)log_lane(large) - logl((long double)large)) <=
                    2e-7L * fmaxl(1.0L, fabsl(logl((long double)large))));
        assert_true(fabsl((long double)exponential_lane(v) + log1pl(-(long double)v)) <=
                    -4e-7L * log1pl(-(long double)v));
        assert_true(fabsl((long double)exponential_lane(small) + log1pl(-(long double)small)) <=
                    4e-7L * (long double)small);
        const double x = ldexp(1.0 + i / 200001.0, i % 2000 - 1000);
        assert_true(fabsl((long double)log_double(x) - logl((long double)x)) <=
                    4e-16L * fmaxl(1.0L, fabsl(logl((long double)x))));
        assert_true(fabsl((long double)log1p_double((double)small) - log1pl((long double)small)) <=
                    1e-15L * (long double)small);
    }
    assert_true(log_double(1.0) == 0.0 && log_lane(1.0f) == 0.0f);
}

static void test_feature_clamp(void **state)
{
    const float row[] = {50.0f, 0.0f}, flat[] = {0.0f, 0.0f, 0.0f, 0.0f}, bad[] = {0.0f, NAN};
    const struct tt_options options = {.vocab = 4, .max_rows = 1};
    struct tt_row_stats stats;
    tt *handle;
    (void)state;
    assert_int_equal(tt_open(&handle, &options), TT_OK);
    tt_row_statistics(handle, &(struct tt_rows){row, TT_F32, 1, 2, 2}, NULL, &stats);
    assert_true(tt_feature(&stats, 40.0f) == 40.0f && tt_feature(&stats, 60.0f) == 50.0f);
    tt_row_statistics(handle, &(struct tt_rows){row, TT_F32, 1, 1, 1}, NULL, &stats);
    assert_true(tt_feature(&stats, 16.0f) == 16.0f); /* certain: +inf before the clamp */
    tt_row_statistics(handle, &(struct tt_rows){flat, TT_F32, 1, 4, 4}, NULL, &stats);
    assert_true(fabsf(tt_feature(&stats, 16.0f) + logf(3.0f)) < 1e-6f);
    assert_true(tt_feature(&stats, 1.0f) == -1.0f);
    tt_row_statistics(handle, &(struct tt_rows){bad, TT_F32, 1, 2, 2}, NULL, &stats);
    assert_true(isnan(tt_feature(&stats, 16.0f)));
    tt_close(handle);
}

/* Rows further apart than 2^32 bytes: reserved address space that reads as zero. */
static void test_far_apart_rows(void **state)
{
    const size_t stride = (size_t)3 << 29, vocab = 1000, rows = 3; /* 6 GB a row */
    const size_t bytes = (2 * stride + vocab) * sizeof(float);
    const struct tt_options options = {.vocab = vocab, .max_rows = rows};
    struct tt_row_stats stats[3];
    tt *handle;
    (void)state;
    if (sizeof(size_t) < 8) skip();
    float *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
        print_message("# no address space of 12 GB here\n");
        skip();
    }
    data[stride + 17] = 3.0f;
    data[2 * stride + 999] = 4.0f;
    assert_int_equal(tt_open(&handle, &options), TT_OK);
    assert_int_equal(tt_row_statistics(handle, &(struct tt_rows){data, TT_F32, rows, vocab, stride},
                                       NULL, stats),
                     TT_OK);
    assert_int_equal(stats[0].argmax, 0);
    assert_int_equal(stats[1].argmax, 17);
    assert_int_equal(stats[2].argmax, 999);
    tt_close(handle);
    munmap(data, bytes);
}

static void expect_refusal(tt *handle, struct tt_rows rows, const float *scale, int status,
                           const char *words)
{
    struct tt_row_stats stats, before;
    memset(&stats, 0x5a, sizeof stats);
    before = stats;
    assert_int_equal(tt_row_statistics(handle, &rows, scale, &stats), status);
    assert_non_null(strstr(tt_message(handle), words));
    assert_memory_equal(&stats, &before, sizeof stats);
}

static void test_bad_arguments(void **state)
{
    const float row[8] = {0}, bad_scales[] = {0.0f, -1.0f, INFINITY, NAN};
    const struct tt_options options = {.vocab = 8, .max_rows = 2};
    const struct tt_rows good = {row, TT_F32, 1, 8, 8};
    struct tt_rows rows;
    struct tt_row_stats stats;
    tt *handle;
    (void)state;
    assert_int_equal(tt_open(&handle, &options), TT_OK);
    assert_int_equal(tt_row_statistics(NULL, &good, NULL, &stats), TT_EINVAL);
    assert_int_equal(tt_row_statistics(handle, NULL, NULL, &stats), TT_EINVAL);
    assert_int_equal(tt_row_statistics(handle, &good, NULL, NULL), TT_EINVAL);
    rows = good;
    rows.data = NULL;
    expect_refusal(handle, rows, NULL, TT_EINVAL, "no data");
    rows = good;
    rows.vocab = 0;
    expect_refusal(handle, rows, NULL, TT_EINVAL, "empty");
    rows = good;
    rows.vocab = 9;
    expect_refusal(handle, rows, NULL, TT_ELIMIT, "opened for 8");
    rows = good;
    rows.rows = 3;
    expect_refusal(handle, rows, NULL, TT_ELIMIT, "opened for 2");
    rows = good;
    rows.stride = 7;
    expect_refusal(handle, rows, NULL, TT_EINVAL, "stride");
    rows = good;
    rows.rows = 2;
    rows.stride = SIZE_MAX / 4;
    expect_refusal(handle, rows, NULL, TT_EINVAL, "address space");
    rows.stride = SIZE_MAX;
    expect_refusal(handle, rows, NULL, TT_EINVAL, "address space");
    rows = good;
    rows.dtype = (enum tt_dtype)9;
    expect_refusal(handle, rows, NULL, TT_ENOTSUP, "type");
    for (size_t i = 0; i < 4; i++)
        expect_refusal(handle, good, &bad_scales[i], TT_EINVAL, "temperature");
    rows = good;
    rows.rows = 0;
    rows.data = NULL;
    assert_int_equal(tt_row_statistics(handle, &rows, NULL, NULL), TT_OK);
    tt_close(handle);
}

static void test_open(void **state)
{
    struct tt_options options = {.vocab = 8, .max_rows = 2};
    tt *handle = (tt *)&options;
    (void)state;
    assert_int_equal(tt_open(NULL, &options), TT_EINVAL);
    assert_int_equal(tt_open(&handle, NULL), TT_EINVAL);
    assert_null(handle);
    options.vocab = 0;
    assert_int_equal(tt_open(&handle, &options), TT_EINVAL);
    options.vocab = (size_t)INT32_MAX + 1;
    assert_int_equal(tt_open(&handle, &options), TT_EINVAL);
    options.vocab = 8;
    options.max_rows = 0;
    assert_int_equal(tt_open(&handle, &options), TT_EINVAL);
    options.max_rows = SIZE_MAX / 2;
    assert_int_equal(tt_open(&handle, &options), TT_ELIMIT);
    options.max_rows = 2;
    options.backend = "abacus";
    assert_int_equal(tt_open(&handle, &options), TT_EINVAL);
    assert_non_null(strstr(tt_message(NULL), "abacus"));
    options.backend = "cuda:x";
    assert_int_equal(tt_open(&handle, &options), TT_EINVAL);
    options.backend = "cuda:999";
    assert_int_equal(tt_open(&handle, &options), TT_ENOTSUP);
    assert_non_null(strstr(tt_message(NULL), "backend cuda: "));
    options.backend = "cuda";
    if (tt_open(&handle, &options) == TT_OK)
        assert_memory_equal(tt_isa(handle), "cuda:sm_", 8);
    else
        assert_non_null(strstr(tt_message(NULL), "backend cuda: "));
    tt_close(handle);
    options.backend = "auto";
    options.isa = "mmx";
    assert_int_equal(tt_open(&handle, &options), TT_EINVAL);
    options.isa = "baseline";
    assert_int_equal(tt_open(&handle, &options), TT_OK);
    assert_string_equal(tt_isa(handle), "baseline");
    assert_string_equal(tt_message(handle), "");
    tt_close(handle);
    tt_close(NULL);
    for (int status = TT_ELIMIT; status <= TT_OK; status++)
        assert_true(strlen(tt_strerror(status)) > 5);
    assert_string_equal(tt_version(), PACKAGE_VERSION);
}

/* Whichever allocation of an open fails, it says so, leaves no handle and (under the sanitizer) no
 * leak; and no later call allocates anything. */
static void test_out_of_memory(void **state)
{
    const struct tt_options options = {.backend = "cpu", .vocab = 300, .max_rows = 2};
    float row[300];
    struct tt_row_stats stats;
    int failures = 0, status;
    tt *handle;
    (void)state;
    for (;; failures++) {
        failing_calloc = failures + 1;
        status = tt_open(&handle, &options);
        if (status == TT_OK) break;
        assert_int_equal(status, TT_ENOMEM);
        assert_null(handle);
    }
    assert_true(failures >= 10);
    failing_calloc = 1;
    row_fill(row, 300, ROW_NORMAL, 1);
    const struct tt_rows rows = {row, TT_F32, 1, 300, 300};
    assert_int_equal(tt_row_statistics(handle, &rows, NULL, &stats), TT_OK);
    assert_int_equal(failing_calloc, 1);
    failing_calloc = 0;
    tt_close(handle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_elementary_functions),
        cmocka_unit_test(test_every_nan_flags),
        cmocka_unit_test(test_extreme_temperatures),
        cmocka_unit_test(test_every_half),
        cmocka_unit_test(test_against_oracle),
        cmocka_unit_test(test_types_and_strides),
        cmocka_unit_test(test_feature_clamp),
        cmocka_unit_test(test_far_apart_rows),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
