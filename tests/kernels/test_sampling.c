/* test_sampling.c - random streams, draws and coupled draws: known answers, laws by chi-square,
 * tail tokens, the same tokens from every instruction set, and the coupled race against a run over
 * every token.
 *
 * All keys are fixed, so that every outcome is deterministic; bounds are five standard deviations.
 */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/choice.h"
#include "kernels/philox.h"
#include "kernels/race_body.h"
#include "kernels/row_ops.h"
#include "tests/kernels/enumerate.h"
#include "tests/kernels/row_kinds.h"

#define KEY 0x0123456789abcdefu

static tt *open_handle(size_t vocab)
{
    const struct tt_options options = {.vocab = vocab, .max_rows = 2};
    tt *handle;
    assert_int_equal(tt_open(&handle, &options), TT_OK);
    return handle;
}

static struct tt_rows one_row(const float *row, size_t vocab)
{
    return (struct tt_rows){row, TT_F32, 1, vocab, vocab};
}

/* The vectors that Random123 publishes for philox4x32-10, through the counter layout of philox.h.
 */
static void test_philox_known_answers(void **state)
{
    static const uint32_t zero[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static const uint32_t ones[] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    static const uint32_t pi[] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    (void)state;
    const philox4x32_ctr_t a = philox_block(0, 0, 0, 0, 0);
    const philox4x32_ctr_t b = philox_block(UINT64_MAX, UINT64_MAX, 0xffffff, 0xff, UINT32_MAX);
    const philox4x32_ctr_t c =
        philox_block(0x299f31d0a4093822u, 0x13198a2e85a308d3u, 0x707344, 0x03, 0x243f6a88);
    assert_memory_equal(a.v, zero, sizeof zero);
    assert_memory_equal(b.v, ones, sizeof ones);
    assert_memory_equal(c.v, pi, sizeof pi);
}

static void test_streams(void **state)
{
    double seen[6], sum = 0.0, squares = 0.0;
    enum { N = 100000 };
    (void)state;
    /* 53 bits of the first two words. */
    const philox4x32_ctr_t block = philox_block(KEY, 5, 2, TT_ACCEPT, 0);
    const uint64_t bits = (uint64_t)block.v[1] << 32 | block.v[0];
    assert_true(tt_uniform(KEY, 5, 2, TT_ACCEPT) == (double)(bits >> 11) * 0x1p-53);
    for (int purpose = TT_DRAFT; purpose <= TT_GUMBEL; purpose++) {
        seen[purpose] = tt_uniform(KEY, 5, 2, (enum tt_purpose)purpose);
        for (int other = 0; other < purpose; other++) assert_true(seen[other] != seen[purpose]);
    }
    assert_true(tt_uniform(KEY, 5, 2, TT_DRAFT) != tt_uniform(KEY, 5, 3, TT_DRAFT));
    assert_true(tt_uniform(KEY, 5, 2, TT_DRAFT) != tt_uniform(KEY, 6, 2, TT_DRAFT));
    assert_true(tt_uniform(KEY, 5, 2, TT_DRAFT) != tt_uniform(KEY, 5 + (1ull << 32), 2, TT_DRAFT));
    assert_true(tt_uniform(KEY, 5, 2, TT_DRAFT) != tt_uniform(KEY + 1, 5, 2, TT_DRAFT));
    for (uint64_t i = 0; i < N; i++) {
        const double u = tt_uniform(KEY, i, 0, TT_BONUS);
        assert_true(u > 0.0 && u < 1.0);
        sum += u;
        squares += u * u;
    }
    assert_true(fabs(sum / N - 0.5) < 5.0 / sqrt(12.0 * N));
    assert_true(fabs(squares / N - 1.0 / 3.0) < 5.0 * sqrt(4.0 / 45.0 / N));
}

static void test_stream_keys(void **state)
{
    const uint64_t base = tt_stream_key(7, 0, 0);
    (void)state;
    assert_true(base == tt_stream_key(7, 0, 0));
    assert_true(base != 7 && base != tt_stream_key(8, 0, 0));
    assert_true(base != tt_stream_key(7, 1, 0) && base != tt_stream_key(7, 0, 1));
    assert_true(tt_stream_key(7, 1, 0) != tt_stream_key(7, 0, 1));
}

/* Pearson's statistic against its mean plus five standard deviations. Rare tokens share a cell;
 * impossible ones may not occur at all. */
static void check_chi_square(const unsigned *count, const double *law, size_t vocab, double n)
{
    double statistic = 0.0, freedom = -1.0, rare = 0.0, rare_count = 0.0;
    for (size_t i = 0; i < vocab; i++) {
        if (law[i] == 0.0) assert_int_equal(count[i], 0);
        if (law[i] * n < 5.0) {
            rare += law[i] * n;
            rare_count += count[i];
            continue;
        }
        statistic += pow(count[i] - law[i] * n, 2.0) / (law[i] * n);
        freedom += 1.0;
    }
    if (rare > 0.0) statistic += pow(rare_count - rare, 2.0) / rare;
    if (rare > 0.0) freedom += 1.0;
    if (statistic > freedom + 5.0 * sqrt(2.0 * freedom) + 5.0)
        fail_msg("chi-square %g with %g degrees of freedom", statistic, freedom);
}

static void law_of_row(const float *row, size_t vocab, double inverse_temperature, double *law)
{
    double max = -INFINITY, sum = 0.0;
    for (size_t i = 0; i < vocab; i++) max = fmax(max, (double)row[i]);
    for (size_t i = 0; i < vocab; i++)
        sum += law[i] = exp(((double)row[i] - max) * inverse_temperature);
    for (size_t i = 0; i < vocab; i++) law[i] /= sum;
}

static void test_laws_by_chi_square(void **state)
{
    enum { VOCAB = 300, N = 40000 / TEST_SLOWNESS };
    float row[VOCAB];
    double law[VOCAB];
    unsigned drawn[VOCAB] = {0}, raced[VOCAB] = {0};
    struct tt_row_stats stats;
    const float scale = 1.25f;
    (void)state;
    tt *handle = open_handle(VOCAB);
    row_fill(row, VOCAB, ROW_NORMAL, 3);
    for (int i = 0; i < VOCAB; i++)
        row[i] = i % 5 == 0 ? -INFINITY : row[i] * 0.25f + (i > 200 ? 1.0f : 0.0f);
    const struct tt_rows rows = one_row(row, VOCAB);
    law_of_row(row, VOCAB, (double)scale, law);
    assert_int_equal(tt_row_statistics(handle, &rows, &scale, &stats), TT_OK);
    for (uint64_t i = 0; i < N; i++) {
        int32_t token;
        assert_int_equal(tt_sample(handle, &rows, scale, &stats, KEY, i, 0, TT_BONUS, &token),
                         TT_OK);
        drawn[token]++;
        assert_int_equal(tt_sample_coupled(handle, &rows, scale, KEY, i, &token), TT_OK);
        raced[token]++;
    }
    check_chi_square(drawn, law, VOCAB, N);
    check_chi_square(raced, law, VOCAB, N);
    tt_close(handle);
}

/* A thousand tokens of probability 2^-25 each: below the reach of 24-bit uniforms. */
static void test_tail_tokens(void **state)
{
    enum { VOCAB = 1001, N = 150000 / TEST_SLOWNESS };
    float row[VOCAB];
    struct tt_row_stats stats;
    int tails[2] = {0};
    (void)state;
    tt *handle = open_handle(VOCAB);
    for (int i = 0; i < VOCAB; i++) row[i] = (float)(-25.0 * log(2.0));
    row[500] = 0.0f;
    const struct tt_rows rows = one_row(row, VOCAB);
    assert_int_equal(tt_row_statistics(handle, &rows, NULL, &stats), TT_OK);
    for (uint64_t i = 0; i < N; i++) {
        int32_t token;
        assert_int_equal(tt_sample(handle, &rows, 1.0f, &stats, KEY, i, 0, TT_BONUS, &token),
                         TT_OK);
        tails[0] += token != 500;
        assert_int_equal(tt_sample_coupled(handle, &rows, 1.0f, KEY, i, &token), TT_OK);
        tails[1] += token != 500;
    }
    for (int i = 0; i < 2; i++)
        if ((N >= 150000 && tails[i] < 1) || tails[i] > 16)
            fail_msg("%d tail tokens, %g expected", tails[i], N * 1000.0 * 0x1p-25);
    tt_close(handle);
}

/* Drawn from q, verified against p under the ratio rule, all on one stream: the output has the law
 * p. Shared bits between draft, accept and residual would show here. */
static void test_ratio_on_one_stream(void **state)
{
    enum { VOCAB = 8, N = 40000 / TEST_SLOWNESS };
    float p[VOCAB], q[VOCAB], target[2 * VOCAB];
    double law[VOCAB];
    unsigned count[VOCAB] = {0};
    struct tt_row_stats stats;
    (void)state;
    tt *handle = open_handle(VOCAB);
    row_fill(p, VOCAB, ROW_NORMAL, 5);
    row_fill(q, VOCAB, ROW_NORMAL, 6);
    for (int i = 0; i < VOCAB; i++) {
        p[i] *= 0.5f;
        q[i] *= 0.5f;
    }
    law_of_row(p, VOCAB, 1.0, law);
    const struct tt_rows draft = one_row(q, VOCAB);
    assert_int_equal(tt_row_statistics(handle, &draft, NULL, &stats), TT_OK);
    for (uint64_t i = 0; i < N; i++) {
        int32_t token;
        struct tt_verdict verdict;
        assert_int_equal(tt_sample(handle, &draft, 1.0f, &stats, KEY, i, 0, TT_DRAFT, &token),
                         TT_OK);
        memcpy(target, p, sizeof p);
        memcpy(target + VOCAB, p, sizeof p);
        const struct tt_block block = {.rule = TT_RATIO,
                                       .target = target,
                                       .target_stride = VOCAB,
                                       .vocab = VOCAB,
                                       .draft = q,
                                       .draft_stride = VOCAB,
                                       .draft_vocab = VOCAB,
                                       .tokens = &token,
                                       .admitted = 1,
                                       .temperature = 1.0f,
                                       .key = KEY,
                                       .token_index = i};
        assert_int_equal(tt_verify(handle, &block, &verdict), TT_OK);
        count[verdict.accepted ? token : verdict.next]++;
    }
    check_chi_square(count, law, VOCAB, N);
    tt_close(handle);
}

/* Two parties with the same key agree as often as the exact joint law of two races says. */
static void test_coupled_agreement(void **state)
{
    enum { VOCAB = 6, N = 60000 / TEST_SLOWNESS };
    float p[VOCAB], q[VOCAB];
    double p_law[VOCAB], q_law[VOCAB], agree = 0.0;
    int agreed = 0;
    (void)state;
    tt *handle = open_handle(VOCAB);
    row_fill(p, VOCAB, ROW_NORMAL, 8);
    row_fill(q, VOCAB, ROW_NORMAL, 9);
    law_of_row(p, VOCAB, 0.5, p_law);
    law_of_row(q, VOCAB, 0.5, q_law);
    for (size_t i = 0; i < VOCAB; i++) agree += enumerator_joint_race(q_law, p_law, VOCAB, i, i);
    const struct tt_rows target = one_row(p, VOCAB), draft = one_row(q, VOCAB);
    for (uint64_t i = 0; i < N; i++) {
        int32_t x, y;
        assert_int_equal(tt_sample_coupled(handle, &draft, 0.5f, KEY, i, &x), TT_OK);
        assert_int_equal(tt_sample_coupled(handle, &target, 0.5f, KEY, i, &y), TT_OK);
        agreed += x == y;
    }
    assert_true(fabs(agreed - agree * N) < 5.0 * sqrt(N * agree * (1.0 - agree)));
    tt_close(handle);
}

/* The race without any skipping, straight from its definition. */
static int32_t race_over_all(const float *row, size_t vocab, float scale, uint64_t index)
{
    float max = -INFINITY, best = -INFINITY, arrival[ROW_GROUP];
    int32_t winner = -1;
    for (size_t i = 0; i < vocab; i++) max = row[i] > max ? row[i] : max;
    for (size_t g = 0; g < row_groups(vocab); g++) {
        uint32_t word, place;
        race_first(KEY, index, (uint32_t)g, &word, &place);
        row_ops_baseline.arrivals(KEY, index, (uint32_t)g, race_first_arrival(word), place,
                                  arrival);
        for (size_t i = g * ROW_GROUP; i < vocab && i < (g + 1) * ROW_GROUP; i++) {
            if (row[i] == -INFINITY) continue;
            const float score = (row[i] - max) * scale - log_lane(arrival[i - g * ROW_GROUP]);
            if (score > best || winner < 0) {
                best = score;
                winner = (int32_t)i;
            }
        }
    }
    return winner;
}

static void test_race_skips_nothing_that_could_win(void **state)
{
    static const size_t sizes[] = {1, 2, 127, 129, 1000, 8193};
    tt *handles[ISAS_MAX];
    float *row = malloc(8193 * sizeof *row);
    const size_t isas = open_every_isa(handles, 8193, 1);
    (void)state;
    assert_non_null(row);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int kind = 0; kind <= ROW_FALLING; kind++) {
            const size_t vocab = sizes[s];
            const struct tt_rows rows = one_row(row, vocab);
            row_fill(row, vocab, (enum row_kind)kind, 2);
            for (uint64_t index = 0; index < 8; index++) {
                const float scale = index % 2 ? 1.0f : 0.2f;
                const int32_t want = race_over_all(row, vocab, scale, index);
                for (size_t i = 0; i < isas; i++) {
                    int32_t token = -1;
                    assert_int_equal(
                        tt_sample_coupled(handles[i], &rows, scale, KEY, index, &token), TT_OK);
                    assert_int_equal(token, want);
                }
            }
        }
    for (size_t i = 0; i < isas; i++) tt_close(handles[i]);
    free(row);
}

/* Arrivals of a race: exponential of rate 1, the group's first one included, and independent of the
 * vocabulary's size. */
static void test_race_noise(void **state)
{
    enum { GROUPS = 400 };
    double sum = 0.0, squares = 0.0;
    float arrival[ROW_GROUP], row[300];
    const double n = GROUPS * (double)ROW_GROUP;
    (void)state;
    for (uint32_t g = 0; g < GROUPS; g++) {
        uint32_t word, place;
        race_first(KEY, 3, g, &word, &place);
        assert_in_range(place, 0, ROW_GROUP - 1);
        row_ops_baseline.arrivals(KEY, 3, g, race_first_arrival(word), place, arrival);
        for (int j = 0; j < ROW_GROUP; j++) {
            assert_true(arrival[j] >= arrival[place] && arrival[place] > 0.0f);
            sum += (double)arrival[j];
            squares += (double)arrival[j] * (double)arrival[j];
        }
    }
    assert_true(fabs(sum / n - 1.0) < 5.0 / sqrt(n));
    assert_true(fabs(squares / n - 2.0) < 5.0 * sqrt(20.0 / n));
    tt *handle = open_handle(300);
    for (int i = 0; i < 300; i++) row[i] = i < 200 ? (float)(i % 7) : -INFINITY;
    for (uint64_t index = 0; index < 100; index++) {
        const struct tt_rows small = one_row(row, 200), large = one_row(row, 300);
        int32_t a, b;
        assert_int_equal(tt_sample_coupled(handle, &small, 1.0f, KEY, index, &a), TT_OK);
        assert_int_equal(tt_sample_coupled(handle, &large, 1.0f, KEY, index, &b), TT_OK);
        assert_int_equal(a, b);
    }
    tt_close(handle);
}

/* Every instruction set draws the same tokens, of every element type, remembered or not, and never
 * an impossible one. */
static void test_same_tokens_everywhere(void **state)
{
    static const size_t sizes[] = {1, 129, 8193, 49152};
    tt *handles[ISAS_MAX];
    const size_t isas = open_every_isa(handles, 49152, 1);
    float *row = malloc(49152 * sizeof *row);
    uint16_t *half = malloc(49152 * sizeof *half), *copy = malloc(49152 * sizeof *copy);
    (void)state;
    assert_true(row && half && copy);
    for (size_t s = 0; s < 4; s++)
        for (int dtype = TT_F16; dtype <= TT_BF16; dtype++) {
            const size_t vocab = sizes[s];
            row_fill(row, vocab, s == 2 ? ROW_MASKED : ROW_NORMAL, 4);
            for (size_t i = 0; i < vocab; i++)
                row[i] = row_narrow(row[i], (enum tt_dtype)dtype, &half[i]);
            memcpy(copy, half, vocab * sizeof *half);
            const struct tt_rows wide = one_row(row, vocab);
            const struct tt_rows narrow = {half, (enum tt_dtype)dtype, 1, vocab, vocab};
            const struct tt_rows other = {copy, (enum tt_dtype)dtype, 1, vocab, vocab};
            for (uint64_t index = 0; index < 20; index++) {
                int32_t want = -1, want_raced = -1, token, raced;
                for (size_t i = 0; i < isas; i++) {
                    struct tt_row_stats stats;
                    assert_int_equal(tt_row_statistics(handles[i], &wide, NULL, &stats), TT_OK);
                    tt_sample(handles[i], &wide, 1.0f, &stats, KEY, index, 1, TT_DRAFT, &token);
                    tt_sample_coupled(handles[i], &wide, 1.0f, KEY, index, &raced);
                    if (i == 0) want = token, want_raced = raced;
                    assert_true(token == want && raced == want_raced);
                    assert_true(row[token] > -INFINITY && row[raced] > -INFINITY);
                    assert_int_equal(tt_row_statistics(handles[i], &narrow, NULL, &stats), TT_OK);
                    tt_sample(handles[i], &narrow, 1.0f, &stats, KEY, index, 1, TT_DRAFT, &token);
                    assert_int_equal(token, want);
                    tt_sample(handles[i], &other, 1.0f, &stats, KEY, index, 1, TT_DRAFT, &token);
                    assert_int_equal(token, want);
                    tt_sample_coupled(handles[i], &narrow, 1.0f, KEY, index, &raced);
                    assert_int_equal(raced, want_raced);
                }
            }
        }
    for (size_t i = 0; i < isas; i++) tt_close(handles[i]);
    free(copy);
    free(half);
    free(row);
}

/* Where rounding leaves the target weight unreached the last possible index is taken; zeros never
 * are. */
static void test_draw_edges(void **state)
{
    static const double weights[] = {0.0, 1e-300, 0.0, 1e300, 0.0};
    struct choice_philox philox;
    (void)state;
    choice_philox_init(&philox, NULL, KEY);
    for (uint64_t i = 0; i < 1000; i++) {
        const struct choice_site site = {i, 0, TT_BONUS};
        assert_int_equal(choice_draw(&philox.base, &site, 0, weights, 5), 3);
        assert_int_equal(choice_draw(&philox.base, &site, 1, weights, 3), 1);
        assert_int_equal(choice_coin(&philox.base, &site, 0.0), 0);
        assert_int_equal(choice_coin(&philox.base, &site, 1.0), 1);
        assert_int_equal(choice_race(&philox.base, i, weights, 3), 1);
    }
}

static void expect_refusal(int status, const tt *handle, const char *words)
{
    assert_int_equal(status, TT_EINVAL);
    assert_non_null(strstr(tt_message(handle), words));
}

static void test_bad_arguments(void **state)
{
    float row[4] = {1.0f, 2.0f, 3.0f, 2.5f}, bad[4] = {0.0f, NAN, 0.0f, 0.0f};
    struct tt_row_stats stats, flagged;
    int32_t token = 77;
    struct tt_rows rows = one_row(row, 4), bad_rows = one_row(bad, 4);
    (void)state;
    tt *handle = open_handle(4);
    assert_int_equal(tt_row_statistics(handle, &bad_rows, NULL, &flagged), TT_OK);
    assert_int_equal(tt_row_statistics(handle, &rows, NULL, &stats), TT_OK);
    expect_refusal(tt_sample(handle, &rows, 1.0f, &flagged, KEY, 0, 0, TT_DRAFT, &token), handle,
                   "no law");
    expect_refusal(tt_sample(handle, &rows, 1.0f, NULL, KEY, 0, 0, TT_DRAFT, &token), handle,
                   "statistics");
    expect_refusal(tt_sample(handle, &rows, 0.0f, &stats, KEY, 0, 0, TT_DRAFT, &token), handle,
                   "temperature");
    expect_refusal(tt_sample(handle, &rows, 1.0f, &stats, KEY, 0, 0, (enum tt_purpose)9, &token),
                   handle, "purpose");
    expect_refusal(tt_sample(handle, &rows, 1.0f, &stats, KEY, 0, 0, TT_DRAFT, NULL), handle,
                   "token");
    row[2] = 9.0f; /* the row changed under its statistics */
    expect_refusal(tt_sample(handle, &rows, 1.0f, &stats, KEY, 0, 0, TT_DRAFT, &token), handle,
                   "not this row");
    expect_refusal(tt_sample_coupled(handle, &bad_rows, 1.0f, KEY, 0, &token), handle, "no law");
    bad[1] = INFINITY;
    expect_refusal(tt_sample_coupled(handle, &bad_rows, 1.0f, KEY, 0, &token), handle, "no law");
    for (int i = 0; i < 4; i++) bad[i] = -INFINITY;
    expect_refusal(tt_sample_coupled(handle, &bad_rows, 1.0f, KEY, 0, &token), handle, "no law");
    rows.rows = 2;
    expect_refusal(tt_sample_coupled(handle, &rows, 1.0f, KEY, 0, &token), handle, "one row");
    assert_int_equal(tt_sample_coupled(NULL, &rows, 1.0f, KEY, 0, &token), TT_EINVAL);
    assert_int_equal(token, 77);
    tt_close(handle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_stream_keys),
        cmocka_unit_test(test_laws_by_chi_square),
        cmocka_unit_test(test_tail_tokens),
        cmocka_unit_test(test_ratio_on_one_stream),
        cmocka_unit_test(test_coupled_agreement),
        cmocka_unit_test(test_race_skips_nothing_that_could_win),
        cmocka_unit_test(test_race_noise),
        cmocka_unit_test(test_same_tokens_everywhere),
        cmocka_unit_test(test_draw_edges),
        cmocka_unit_test(test_bad_arguments),
    };
    return cmocka_run_group_tests_name("sampling", tests, NULL, NULL);
}
