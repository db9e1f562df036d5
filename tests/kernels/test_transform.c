/* test_transform.c - tt_transform_row against a sorted double-precision oracle, and the selection
 * it stands on. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/select.h"
#include "tests/kernels/row_kinds.h"

#define VOCAB_MAX 49152

struct place {
    float logit;
    size_t token;
};

static int by_rank(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

/* Filters by sorting everything. Returns 0 where a border is too close to call in double precision.
 */
static int oracle_filter(const float *row, size_t vocab, const struct tt_transform *t, char *keep)
{
    static struct place order[VOCAB_MAX];
    const double scale = (double)(1.0f / t->temperature);
    size_t count = 0, kept = 0;
    double total = 0.0, before = 0.0;
    int sure = 1;

    memset(keep, 0, vocab);
    for (size_t i = 0; i < vocab; i++)
        if (row[i] > -INFINITY) order[count++] = (struct place){row[i], i};
    qsort(order, count, sizeof order[0], by_rank);
    if (t->top_k > 0 && (size_t)t->top_k < count) count = (size_t)t->top_k;
    const double max = order[0].logit;
    for (size_t i = 0; i < count; i++) total += exp(((double)order[i].logit - max) * scale);
    for (; kept < count; kept++) {
        const double weight = exp(((double)order[kept].logit - max) * scale);
        if (t->top_p < 1.0f && kept > 0) {
            const double target = (double)t->top_p * total;
            if (before >= target) break;
            if (fabs(before - target) < 1e-11 * total) sure = 0;
        }
        before += weight;
        if (t->min_p > 0.0f && weight < (double)t->min_p) {
            if (fabs(weight / (double)t->min_p - 1.0) < 1e-12) sure = 0;
            break;
        }
        keep[order[kept].token] = 1;
    }
    if (kept < count && t->top_p < 1.0f && fabs(before - (double)t->top_p * total) < 1e-11 * total)
        sure = 0;
    return sure;
}

static void check_filters(tt **handles, size_t isas, const float *row, size_t vocab,
                          const struct tt_transform *t, int *checked)
{
    static float work[VOCAB_MAX], first[VOCAB_MAX];
    static char keep[VOCAB_MAX];
    const int sure = oracle_filter(row, vocab, t, keep);
    for (size_t i = 0; i < isas; i++) {
        memcpy(work, row, vocab * sizeof *work);
        assert_int_equal(tt_transform_row(handles[i], work, vocab, t, NULL, 0), TT_OK);
        if (i == 0) memcpy(first, work, vocab * sizeof *work);
        assert_memory_equal(first, work, vocab * sizeof *work);
    }
    for (size_t i = 0; i < vocab; i++) {
        if (work[i] > -INFINITY) assert_memory_equal(&work[i], &row[i], sizeof work[i]);
        if (sure && (work[i] > -INFINITY) != keep[i])
            fail_msg("vocabulary %zu T %g top-k %d top-p %g min-p %g: token %zu (%g) %s", vocab,
                     (double)t->temperature, (int)t->top_k, (double)t->top_p, (double)t->min_p, i,
                     (double)row[i], keep[i] ? "lost" : "kept");
    }
    *checked += sure;
}

static void test_filters(void **state)
{
    static const size_t sizes[] = {1, 2, 7, 130, 1000, 8193, VOCAB_MAX};
    static const struct tt_transform filters[] = {
        {.temperature = 1.0f, .top_k = 1, .top_p = 1.0f},
        {.temperature = 0.7f, .top_k = 40, .top_p = 1.0f},
        {.temperature = 1.0f, .top_k = 3000, .top_p = 1.0f},
        {.temperature = 1.0f, .top_p = 0.95f},
        {.temperature = 0.3f, .top_p = 0.5f},
        {.temperature = 5.0f, .top_p = 0.999f},
        {.temperature = 1.0f, .top_p = 0.0f},
        {.temperature = 1.0f, .top_p = 1.0f, .min_p = 0.05f},
        {.temperature = 2.0f, .top_p = 1.0f, .min_p = 1.0f},
        {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f, .min_p = 0.02f},
        {.temperature = 1.5f, .top_k = 7, .top_p = 0.4f, .min_p = 0.3f},
        {.temperature = 1.0f, .top_p = 1.0f},
    };
    static float row[VOCAB_MAX];
    tt *handles[ISAS_MAX];
    const size_t isas = open_every_isa(handles, VOCAB_MAX, 1);
    int checked = 0;
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int kind = 0; kind <= ROW_FALLING; kind++) {
            if (kind == ROW_TINY || kind == ROW_LIMITS) continue; /* below */
            row_fill(row, sizes[s], (enum row_kind)kind, 11);
            for (size_t f = 0; f < sizeof filters / sizeof filters[0]; f++)
                check_filters(handles, isas, row, sizes[s], &filters[f], &checked);
        }
    assert_true(checked > 700);
    for (size_t i = 0; i < isas; i++) tt_close(handles[i]);
}

/* Signed zeros are ties; differences that overflow are mass 0; flagged rows are left for the
 * statistics to flag. */
static void test_awkward_rows(void **state)
{
    static const struct tt_transform both = {.temperature = 1.0f, .top_k = 3, .top_p = 0.9f};
    float zeros[] = {-0.0f, -1.0f, 0.0f, -0.0f, 0.0f}, row[1000], before[1000];
    const struct tt_options options = {.vocab = 1000, .max_rows = 1};
    tt *handle;
    (void)state;
    assert_int_equal(tt_open(&handle, &options), TT_OK);
    assert_int_equal(tt_transform_row(handle, zeros, 5, &both, NULL, 0), TT_OK);
    assert_true(zeros[0] == 0.0f && isinf(zeros[1]) && zeros[2] == 0.0f && zeros[3] == 0.0f &&
                isinf(zeros[4]));
    row_fill(row, 1000, ROW_LIMITS, 1);
    assert_int_equal(tt_transform_row(handle, row, 1000, &both, NULL, 0), TT_OK);
    int kept = 0;
    for (int i = 0; i < 1000; i++) kept += row[i] > -INFINITY;
    assert_int_equal(kept, 3);
    for (int kind = ROW_NAN_FIRST; kind < ROW_KINDS; kind++) {
        row_fill(row, 1000, (enum row_kind)kind, 1);
        memcpy(before, row, sizeof row);
        assert_int_equal(tt_transform_row(handle, row, 1000, &both, NULL, 0), TT_OK);
        assert_memory_equal(before, row, sizeof row);
    }
    tt_close(handle);
}

static void test_bias_and_penalties(void **state)
{
    static const struct tt_logit_bias bias[] = {{0, 2.5f}, {3, -INFINITY}, {0, 0.5f}};
    static const struct tt_token_count counts[] = {{1, 2}, {2, 1}, {4, 0}};
    static const int32_t extra[] = {2, 5, 5};
    struct tt_transform t = {.temperature = 0.0f,
                             .top_p = 1.0f,
                             .top_k = 1, /* skipped: greedy keeps the mode anyway */
                             .presence_penalty = 0.25f,
                             .frequency_penalty = 0.5f,
                             .repetition_penalty = 2.0f,
                             .bias = bias,
                             .bias_count = 3,
                             .counts = counts,
                             .counts_count = 3};
    float row[] = {1.0f, 4.0f, -2.0f, 9.0f, 1.0f, 3.0f, 7.0f};
    const struct tt_options options = {.vocab = 7, .max_rows = 1};
    tt *handle;
    (void)state;
    assert_int_equal(tt_open(&handle, &options), TT_OK);
    assert_int_equal(tt_transform_row(handle, row, 7, &t, extra, 3), TT_OK);
    assert_true(row[0] == 4.0f);
    assert_true(row[1] == 4.0f / 2.0f - 2.0f * 0.5f - 0.25f);
    assert_true(row[2] == -2.0f * 2.0f - 2.0f * 0.5f - 0.25f); /* once before, once in the block */
    assert_true(isinf(row[3]));
    assert_true(row[4] == 1.0f); /* counted zero times */
    assert_true(row[5] == 3.0f / 2.0f - 2.0f * 0.5f - 0.25f);
    assert_true(row[6] == 7.0f);
    tt_close(handle);
}

/* Bias and penalties as trimtab.h words them, token by token, in single precision. */
static void oracle_penalties(float *row, size_t vocab, const struct tt_transform *t,
                             const int32_t *extra, size_t extra_count)
{
    for (size_t i = 0; i < t->bias_count; i++) row[t->bias[i].token] += t->bias[i].bias;
    for (size_t v = 0; v < vocab; v++) {
        int64_t n = 0;
        for (size_t i = 0; i < t->counts_count; i++)
            if ((size_t)t->counts[i].token == v) n += t->counts[i].count;
        for (size_t i = 0; i < extra_count; i++) n += (size_t)extra[i] == v;
        if (n <= 0) continue;
        if (t->repetition_penalty > 0.0f)
            row[v] =
                row[v] > 0.0f ? row[v] / t->repetition_penalty : row[v] * t->repetition_penalty;
        row[v] -= (float)n * t->frequency_penalty;
        row[v] -= t->presence_penalty;
    }
}

/* Every stage at once, at random: the order of the stages is part of what clients are promised. */
static void test_everything_together(void **state)
{
    enum { VOCAB = 400, LIST = 5, ROUNDS = 400 };
    static const float penalties[] = {0.0f, 0.5f, -0.7f, 2.0f},
                       repetition[] = {0.0f, 1.0f, 1.3f, 0.8f}, top_p[] = {1.0f, 0.9f, 0.5f, 0.99f},
                       min_p[] = {0.0f, 0.02f, 0.2f, 0.001f};
    static const int32_t top_k[] = {0, 20, 3, 399};
    float row[VOCAB], want[VOCAB];
    char keep[VOCAB];
    tt *handles[ISAS_MAX];
    const size_t isas = open_every_isa(handles, VOCAB, 1);
    uint32_t seed = 1;
    int checked = 0;
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct tt_logit_bias bias[LIST];
        struct tt_token_count counts[LIST];
        int32_t extra[LIST];
#define PICK(list) list[(seed = seed * 1664525u + 1013904223u) >> 30]
        for (int i = 0; i < LIST; i++) {
            bias[i] = (struct tt_logit_bias){(round * 31 + i * 7) % VOCAB, PICK(penalties) * 2.0f};
            counts[i] = (struct tt_token_count){(round * 13 + i * 11) % VOCAB, i % 3};
            extra[i] = (round * 13 + (i / 2) * 22) % VOCAB;
        }
        struct tt_transform t = {.temperature = 0.5f + (float)(round % 3) * 0.5f,
                                 .bias = bias,
                                 .bias_count = LIST,
                                 .counts = counts,
                                 .counts_count = LIST};
        t.top_k = PICK(top_k); /* one by one: an initialiser has no order */
        t.top_p = PICK(top_p);
        t.min_p = PICK(min_p);
        t.presence_penalty = PICK(penalties);
        t.frequency_penalty = PICK(penalties);
        t.repetition_penalty = PICK(repetition);
#undef PICK
        row_fill(want, VOCAB, round % 2 ? ROW_NORMAL : ROW_MASKED, (uint32_t)round);
        for (size_t i = 0; i < isas; i++) {
            row_fill(row, VOCAB, round % 2 ? ROW_NORMAL : ROW_MASKED, (uint32_t)round);
            if (i == 0) oracle_penalties(want, VOCAB, &t, extra, LIST);
            assert_int_equal(tt_transform_row(handles[i], row, VOCAB, &t, extra, LIST), TT_OK);
            const int sure = oracle_filter(want, VOCAB, &t, keep);
            for (size_t v = 0; v < VOCAB; v++) {
                if (row[v] > -INFINITY) assert_memory_equal(&row[v], &want[v], sizeof row[v]);
                if (sure && (row[v] > -INFINITY) != keep[v])
                    fail_msg("round %d: token %zu %s", round, v, keep[v] ? "lost" : "kept");
            }
            checked += sure;
        }
    }
    assert_true(checked > ROUNDS * 9 / 10);
    for (size_t i = 0; i < isas; i++) tt_close(handles[i]);
}

/* A count at the end of its type, and the block's own token on top of it. */
static void test_largest_count(void **state)
{
    static const struct tt_token_count counts[] = {{1, INT32_MAX}, {2, INT32_MIN}};
    static const int32_t extra[] = {1, 2};
    const struct tt_transform t = {
        .top_p = 1.0f, .frequency_penalty = 1e-9f, .counts = counts, .counts_count = 2};
    float row[] = {0.0f, 3.0f, 3.0f, 0.0f};
    const struct tt_options options = {.backend = "cpu", .vocab = 4, .max_rows = 1};
    tt *handle;
    (void)state;
    assert_int_equal(tt_open(&handle, &options), TT_OK);
    assert_int_equal(tt_transform_row(handle, row, 4, &t, extra, 2), TT_OK);
    assert_true(fabsf(row[1] - (3.0f - 2.147484f)) < 1e-5f && row[2] == 3.0f);
    tt_close(handle);
}

static void expect_refusal(tt *handle, const struct tt_transform *t, const int32_t *extra,
                           size_t extra_count, const char *words)
{
    float row[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    static const float before[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    assert_int_equal(tt_transform_row(handle, row, 4, t, extra, extra_count), TT_EINVAL);
    if (!strstr(tt_message(handle), words)) fail_msg("\"%s\" in \"%s\"", words, tt_message(handle));
    assert_memory_equal(row, before, sizeof row);
}

static void test_bad_arguments(void **state)
{
    static const struct tt_logit_bias far[] = {{0, 1.0f}, {4, 1.0f}}, nan[] = {{0, 1.0f}, {1, NAN}};
    static const struct tt_token_count counts[] = {{-1, 1}};
    static const int32_t extra[] = {4};
    const struct tt_transform good = {.temperature = 1.0f, .top_p = 1.0f, .top_k = 1};
    const struct tt_options options = {.vocab = 4, .max_rows = 1};
    float row[5] = {0};
    struct tt_transform t;
    tt *handle;
    (void)state;
    assert_int_equal(tt_open(&handle, &options), TT_OK);
    assert_int_equal(tt_transform_row(NULL, row, 4, &good, NULL, 0), TT_EINVAL);
    assert_int_equal(tt_transform_row(handle, NULL, 4, &good, NULL, 0), TT_EINVAL);
    assert_int_equal(tt_transform_row(handle, row, 5, &good, NULL, 0), TT_ELIMIT);
    expect_refusal(handle, NULL, NULL, 0, "no transform");
    expect_refusal(handle, &good, NULL, 1, "extra");
    expect_refusal(handle, &good, extra, 1, "extra token 4");
    t = good, t.temperature = -1.0f;
    expect_refusal(handle, &t, NULL, 0, "temperature");
    t = good, t.temperature = 1e-42f;
    expect_refusal(handle, &t, NULL, 0, "temperature");
    t = good, t.top_p = NAN;
    expect_refusal(handle, &t, NULL, 0, "top-p");
    t = good, t.top_p = -0.5f;
    expect_refusal(handle, &t, NULL, 0, "top-p");
    t = good, t.min_p = 1.5f;
    expect_refusal(handle, &t, NULL, 0, "min-p");
    t = good, t.min_p = NAN;
    expect_refusal(handle, &t, NULL, 0, "min-p");
    t = good, t.presence_penalty = INFINITY;
    expect_refusal(handle, &t, NULL, 0, "penalties");
    t = good, t.repetition_penalty = -1.0f;
    expect_refusal(handle, &t, NULL, 0, "penalties");
    t = good, t.bias = far, t.bias_count = 2;
    expect_refusal(handle, &t, NULL, 0, "bias for token 4");
    t = good, t.bias = nan, t.bias_count = 2;
    expect_refusal(handle, &t, NULL, 0, "not finite");
    t = good, t.bias_count = 1;
    expect_refusal(handle, &t, NULL, 0, "missing");
    t = good, t.counts = counts, t.counts_count = 1;
    expect_refusal(handle, &t, NULL, 0, "count for token -1");
    tt_close(handle);
}

static int by_key(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* The head is the sorted head, for random, sorted and organ-pipe lists, at every target. */
static void test_select_head(void **state)
{
    enum { N = 700 };
    static struct candidate list[N], sorted[N];
    (void)state;
    for (int shape = 0; shape < 5; shape++)
        for (size_t want = 1; want <= N + 1; want += want < 40 ? 1 : 37) {
            for (size_t i = 0; i < N; i++) {
                const uint32_t hash = (uint32_t)i * 2654435761u;
                const uint64_t key = shape == 0   ? hash
                                     : shape == 1 ? i
                                     : shape == 2 ? N - i
                                     : shape == 3 ? (i < N / 2 ? 2 * i : 2 * (N - i) - 1)
                                                  : i % 2 * N + i;
                list[i] = (struct candidate){key, shape == 0 ? 1.0 : 0.5};
            }
            memcpy(sorted, list, sizeof list);
            qsort(sorted, N, sizeof sorted[0], by_key);
            const double target = (double)want * list[0].weight;
            const size_t head = select_head(list, N, target);
            const size_t expected = want > N ? N : want;
            assert_int_equal(head, expected);
            assert_true(list[head - 1].key == sorted[head - 1].key);
            qsort(list, head, sizeof list[0], by_key);
            for (size_t i = 0; i < head; i++) assert_true(list[i].key == sorted[i].key);
        }
    assert_int_equal(select_head(list, 1, 0.0), 1);
}

static void test_candidate_keys(void **state)
{
    static const float falling[] = {INFINITY, 3e38f, 1.0f,   1e-45f,   0.0f,
                                    -1e-45f,  -2.0f, -3e38f, -INFINITY};
    (void)state;
    for (size_t i = 0; i < sizeof falling / sizeof falling[0]; i++) {
        const uint64_t key = candidate_key(falling[i], 9);
        assert_true(candidate_logit(key) == falling[i]);
        assert_int_equal(candidate_token(key), 9);
        assert_true(candidate_key(falling[i], 8) < key);
        if (i > 0) assert_true(candidate_key(falling[i - 1], 1000) < key);
    }
    assert_true(candidate_key(0.0f, 1) == candidate_key(-0.0f, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_candidate_keys),
        cmocka_unit_test(test_select_head),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_awkward_rows),
        cmocka_unit_test(test_bias_and_penalties),
        cmocka_unit_test(test_everything_together),
        cmocka_unit_test(test_largest_count),
        cmocka_unit_test(test_bad_arguments),
    };
    return cmocka_run_group_tests_name("transform", tests, NULL, NULL);
}
