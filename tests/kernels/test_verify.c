/* test_verify.c - tt_verify on fp32 rows: what is read and when, labels, padding, flags, penalties
 * inside a block, the same verdict from every instruction set, and bad arguments. The output law is
 * test_law.c's. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/row_kinds.h"

enum { VOCAB = 300, STRIDE = 303, ADMITTED = 3, DRAFT_VOCAB = 280 };

struct fixture {
    tt *handle;
    float target[(ADMITTED + 1) * STRIDE], draft[ADMITTED * STRIDE];
    int32_t tokens[ADMITTED];
    struct tt_block block;
};

static int set_up(void **state)
{
    static struct fixture fixture;
    struct fixture *f = &fixture;
    const struct tt_options options = {.vocab = VOCAB, .max_rows = 4};
    memset(f, 0, sizeof *f);
    if (tt_open(&f->handle, &options)) return -1;
    for (size_t i = 0; i < sizeof f->target / sizeof f->target[0]; i++) f->target[i] = NAN;
    for (size_t i = 0; i < sizeof f->draft / sizeof f->draft[0]; i++) f->draft[i] = NAN;
    for (uint32_t k = 0; k <= ADMITTED; k++)
        row_fill(f->target + k * STRIDE, VOCAB, ROW_NORMAL, k + 1);
    for (uint32_t k = 0; k < ADMITTED; k++) {
        row_fill(f->draft + k * STRIDE, DRAFT_VOCAB, ROW_NORMAL, k + 50);
        f->tokens[k] = (int32_t)(20 + k);
    }
    f->block = (struct tt_block){.rule = TT_GREEDY,
                                 .target = f->target,
                                 .target_stride = STRIDE,
                                 .vocab = VOCAB,
                                 .draft = f->draft,
                                 .draft_stride = STRIDE,
                                 .draft_vocab = DRAFT_VOCAB,
                                 .tokens = f->tokens,
                                 .admitted = ADMITTED,
                                 .key = 42,
                                 .token_index = 7};
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    tt_close(((struct fixture *)*state)->handle);
    return 0;
}

static int32_t mode_of(const float *row, size_t vocab)
{
    size_t mode = 0;
    for (size_t i = 1; i < vocab; i++)
        if (row[i] > row[mode]) mode = i;
    return (int32_t)mode;
}

static void use_rule(struct fixture *f, enum tt_rule rule)
{
    f->block.rule = rule;
    f->block.temperature = rule == TT_GREEDY ? 0.0f : 0.9f;
}

static void test_greedy(void **state)
{
    struct fixture *f = *state;
    struct tt_verdict verdict;
    for (int32_t right = 0; right <= ADMITTED; right++) {
        for (int32_t k = 0; k < ADMITTED; k++)
            f->tokens[k] = k < right ? mode_of(f->target + k * STRIDE, VOCAB) : 0;
        assert_int_equal(tt_verify(f->handle, &f->block, &verdict), TT_OK);
        assert_int_equal(verdict.accepted, right);
        assert_int_equal(verdict.next, mode_of(f->target + right * STRIDE, VOCAB));
        assert_int_equal(verdict.labels, right < ADMITTED ? right + 1 : ADMITTED);
        for (int32_t k = 0; k < verdict.labels; k++)
            assert_true(verdict.soft[k] == (k < right ? 1.0f : 0.0f));
    }
    f->block.admitted = 0;
    f->block.tokens = NULL;
    assert_int_equal(tt_verify(f->handle, &f->block, &verdict), TT_OK);
    assert_int_equal(verdict.accepted, 0);
    assert_int_equal(verdict.labels, 0);
    assert_int_equal(verdict.next, mode_of(f->target, VOCAB));
}

/* Equal maxima: the smallest id, in any place of the row. */
static void test_greedy_ties(void **state)
{
    struct fixture *f = *state;
    struct tt_verdict verdict;
    f->target[299] = f->target[130] = f->target[127] = f->target[128] = 50.0f;
    f->tokens[0] = 128;
    assert_int_equal(tt_verify(f->handle, &f->block, &verdict), TT_OK);
    assert_int_equal(verdict.accepted, 0);
    assert_int_equal(verdict.next, 127);
}

/* Rows that were not reached may hold anything, and stay as they are. */
static void test_only_reached_rows_are_touched(void **state)
{
    struct fixture *f = *state;
    static const struct tt_transform greedy = {.presence_penalty = 1.0f, .top_p = 1.0f};
    static const struct tt_transform sampled = {.temperature = 0.9f, .top_k = 5, .top_p = 0.9f};
    struct tt_verdict verdict;
    float before[ADMITTED * STRIDE];
    for (int rule = TT_GREEDY; rule <= TT_COUPLED; rule++) {
        use_rule(f, (enum tt_rule)rule);
        f->block.transform = rule == TT_GREEDY ? &greedy : &sampled;
        row_fill(f->target, VOCAB, ROW_NORMAL, 1);
        f->target[20] = -INFINITY; /* certainly rejected */
        for (size_t i = STRIDE; i < (ADMITTED + 1) * STRIDE; i++) f->target[i] = NAN;
        for (size_t i = STRIDE; i < ADMITTED * STRIDE; i++) f->draft[i] = NAN;
        memcpy(before, f->target + STRIDE, sizeof before);
        assert_int_equal(tt_verify(f->handle, &f->block, &verdict), TT_OK);
        assert_int_equal(verdict.accepted, 0);
        assert_int_equal(verdict.labels, 1);
        assert_int_equal(verdict.flags, 0);
        assert_in_range(verdict.next, 0, VOCAB - 1);
        assert_true(verdict.next != 20 && verdict.soft[0] == 0.0f);
        assert_memory_equal(before, f->target + STRIDE, sizeof before);
    }
}

/* Without a transform the target stays as it was, the rejected token's place included. */
static void test_target_is_kept(void **state)
{
    struct fixture *f = *state;
    struct tt_verdict verdict;
    float before[(ADMITTED + 1) * STRIDE];
    int rejected = 0;
    memcpy(before, f->target, sizeof before);
    for (int rule = TT_GREEDY; rule <= TT_COUPLED; rule++) {
        use_rule(f, (enum tt_rule)rule);
        for (uint64_t index = 0; index < 20; index++) {
            f->block.token_index = index;
            assert_int_equal(tt_verify(f->handle, &f->block, &verdict), TT_OK);
            rejected += verdict.accepted < ADMITTED;
            if (verdict.accepted < ADMITTED)
                assert_true(verdict.next != f->tokens[verdict.accepted]);
            assert_memory_equal(before, f->target, sizeof before);
        }
    }
    assert_true(rejected > 20);
}

static void test_flagged_rows(void **state)
{
    struct fixture *f = *state;
    static const enum row_kind kinds[] = {ROW_NAN_FIRST, ROW_NAN_LAST, ROW_NAN_IN_MASK,
                                          ROW_INFINITE, ROW_EMPTY};
    struct tt_verdict verdict;
    for (int rule = TT_GREEDY; rule <= TT_COUPLED; rule++)
        for (size_t i = 0; i < 5; i++) {
            use_rule(f, (enum tt_rule)rule);
            row_fill(f->target, VOCAB, ROW_ONE_HOT, 1);
            f->tokens[0] = mode_of(f->target, VOCAB);
            if (f->tokens[0] >= DRAFT_VOCAB) fail_msg("choose another seed");
            row_fill(f->target + STRIDE, VOCAB, kinds[i], 1);
            assert_int_equal(tt_verify(f->handle, &f->block, &verdict), TT_OK);
            assert_int_equal(verdict.accepted, 1);
            assert_int_equal(verdict.labels, 1);
            assert_int_equal(verdict.next, -1);
            assert_int_equal(verdict.flags, TT_ROW_FLAGGED);
        }
}

/* A draft row without a law ends the block before it; the token comes from the target alone. */
static void test_flagged_draft_row(void **state)
{
    struct fixture *f = *state;
    struct tt_verdict verdict;
    use_rule(f, TT_RATIO);
    f->draft[5] = NAN;
    assert_int_equal(tt_verify(f->handle, &f->block, &verdict), TT_OK);
    assert_int_equal(verdict.accepted, 0);
    assert_int_equal(verdict.labels, 0);
    assert_int_equal(verdict.flags, TT_DRAFT_FLAGGED);
    assert_in_range(verdict.next, 0, VOCAB - 1);
}

static void test_padding(void **state)
{
    struct fixture *f = *state;
    struct tt_verdict verdict;
    for (int rule = TT_GREEDY; rule <= TT_COUPLED; rule++) {
        use_rule(f, (enum tt_rule)rule);
        row_fill(f->target, VOCAB, ROW_ONE_HOT, 1);
        f->tokens[0] = mode_of(f->target, VOCAB);
        row_fill(f->target + STRIDE, VOCAB, ROW_NORMAL, 2);
        f->tokens[1] = -1;
        f->tokens[2] = 17; /* beyond the padding: never looked at */
        for (size_t i = 2 * STRIDE; i < (ADMITTED + 1) * STRIDE; i++) f->target[i] = NAN;
        assert_int_equal(tt_verify(f->handle, &f->block, &verdict), TT_OK);
        assert_int_equal(verdict.accepted, 1);
        assert_int_equal(verdict.labels, 1);
        assert_int_equal(verdict.flags, 0);
        assert_in_range(verdict.next, 0, VOCAB - 1);
    }
}

/* p = q: nothing is ever rejected, and the residual that is zero everywhere is never needed. */
static void test_same_law(void **state)
{
    struct fixture *f = *state;
    struct tt_verdict verdict;
    use_rule(f, TT_RATIO);
    f->block.draft = f->target;
    f->block.draft_stride = STRIDE;
    f->block.draft_vocab = VOCAB;
    for (uint64_t index = 0; index < 500; index++) {
        f->block.token_index = index;
        for (int k = 0; k < ADMITTED; k++)
            f->tokens[k] = (int32_t)((index * 7 + (uint64_t)k) % VOCAB);
        assert_int_equal(tt_verify(f->handle, &f->block, &verdict), TT_OK);
        assert_int_equal(verdict.accepted, ADMITTED);
        for (int k = 0; k < ADMITTED; k++) assert_true(verdict.soft[k] == 1.0f);
    }
}

/* The soft label is min(1, p / q) at every labelled position. */
static void test_soft_labels(void **state)
{
    struct fixture *f = *state;
    struct tt_verdict verdict;
    struct tt_row_stats p_stats[ADMITTED], q_stats[ADMITTED];
    const float scale[ADMITTED] = {1.0f / 0.9f, 1.0f / 0.9f, 1.0f / 0.9f};
    int labels = 0;
    use_rule(f, TT_RATIO);
    const struct tt_rows p = {f->target, TT_F32, ADMITTED, VOCAB, STRIDE};
    const struct tt_rows q = {f->draft, TT_F32, ADMITTED, DRAFT_VOCAB, STRIDE};
    assert_int_equal(tt_row_statistics(f->handle, &p, scale, p_stats), TT_OK);
    assert_int_equal(tt_row_statistics(f->handle, &q, scale, q_stats), TT_OK);
    for (uint64_t index = 0; index < 200; index++) {
        static float target[(ADMITTED + 1) * STRIDE];
        memcpy(target, f->target, sizeof target);
        f->block.target = target;
        f->block.token_index = index;
        for (int k = 0; k < ADMITTED; k++)
            f->tokens[k] = (int32_t)((index + 31 * (uint64_t)k) % DRAFT_VOCAB);
        f->block.draft_stats = NULL;
        assert_int_equal(tt_verify(f->handle, &f->block, &verdict), TT_OK);
        for (int k = 0; k < verdict.labels; k++, labels++) {
            const size_t x = (size_t)f->tokens[k];
            const double lp = (double)f->target[(size_t)k * STRIDE + x] * (double)scale[k] -
                              (double)p_stats[k].log_norm;
            const double lq = (double)f->draft[(size_t)k * STRIDE + x] * (double)scale[k] -
                              (double)q_stats[k].log_norm;
            assert_true(fabs((double)verdict.soft[k] - fmin(1.0, exp(lp - lq))) < 1e-5);
        }
        /* Statistics handed in give the verdict that statistics worked out gave. */
        struct tt_verdict again;
        f->block.draft_stats = q_stats;
        memcpy(target, f->target, sizeof target);
        assert_int_equal(tt_verify(f->handle, &f->block, &again), TT_OK);
        assert_memory_equal(&again, &verdict, sizeof again);
    }
    assert_true(labels > 200);
}

/* A draft accepted earlier in the block counts for the penalties of later positions. */
static void test_penalties_inside_a_block(void **state)
{
    struct fixture *f = *state;
    static const struct tt_transform t = {
        .temperature = 0.0f, .top_p = 1.0f, .presence_penalty = 100.0f};
    struct tt_verdict verdict;
    f->block.transform = &t;
    for (size_t k = 0; k <= ADMITTED; k++) {
        f->target[k * STRIDE + 9] = 50.0f;
        f->target[k * STRIDE + 11] = 40.0f;
    }
    f->tokens[0] = f->tokens[1] = 9;
    assert_int_equal(tt_verify(f->handle, &f->block, &verdict), TT_OK);
    assert_int_equal(verdict.accepted, 1);
    assert_int_equal(verdict.next, 11);
}

/* Coupled: the text does not depend on what was drafted, nor on whether anything was. */
static void test_coupled_text_is_the_targets(void **state)
{
    struct fixture *f = *state;
    struct tt_verdict plain, drafted;
    use_rule(f, TT_COUPLED);
    for (uint64_t index = 0; index < 300; index++) {
        f->block.token_index = index;
        f->block.admitted = 0;
        assert_int_equal(tt_verify(f->handle, &f->block, &plain), TT_OK);
        f->block.admitted = 1;
        for (int32_t guess = 0; guess < 2; guess++) {
            f->tokens[0] = guess ? plain.next : (plain.next + 1) % VOCAB;
            assert_int_equal(tt_verify(f->handle, &f->block, &drafted), TT_OK);
            assert_int_equal(drafted.accepted, guess);
            if (!guess) assert_int_equal(drafted.next, plain.next);
        }
        /* And the drafter's call draws from the same noise. */
        const struct tt_rows row = {f->target, TT_F32, 1, VOCAB, VOCAB};
        int32_t token;
        assert_int_equal(
            tt_sample_coupled(f->handle, &row, 1.0f / 0.9f, f->block.key, index, &token), TT_OK);
        assert_int_equal(token, plain.next);
    }
}

/* A draft that is all but certain, and a thousand tokens of 2^-25 each in the target: below the
 * reach of 24-bit uniforms, both as an acceptance and as what is drawn after a rejection. */
static void test_tail_tokens(void **state)
{
    enum { TAIL_VOCAB = 1001, SURE = 500, N = 150000 };
    static float target[2 * TAIL_VOCAB], draft[TAIL_VOCAB];
    static const int32_t token = SURE;
    const struct tt_options options = {.backend = "cpu", .vocab = TAIL_VOCAB, .max_rows = 1};
    tt *handle;
    (void)state;
    assert_int_equal(tt_open(&handle, &options), TT_OK);
    for (int i = 0; i < TAIL_VOCAB; i++) {
        target[i] = target[TAIL_VOCAB + i] = i == SURE ? 0.0f : (float)(-25.0 * log(2.0));
        draft[i] = i == SURE ? 0.0f : -INFINITY;
    }
    for (int rule = TT_POINT_MASS; rule <= TT_RATIO; rule++) {
        struct tt_block block = {.rule = (enum tt_rule)rule,
                                 .target = target,
                                 .target_stride = TAIL_VOCAB,
                                 .vocab = TAIL_VOCAB,
                                 .draft = draft,
                                 .draft_stride = TAIL_VOCAB,
                                 .draft_vocab = TAIL_VOCAB,
                                 .tokens = &token,
                                 .admitted = 1,
                                 .temperature = 1.0f,
                                 .key = 77};
        int tails = 0;
        for (block.token_index = 0; block.token_index < N; block.token_index++) {
            struct tt_verdict verdict;
            assert_int_equal(tt_verify(handle, &block, &verdict), TT_OK);
            if (verdict.accepted) continue;
            assert_in_range(verdict.next, 0, TAIL_VOCAB - 1);
            assert_int_not_equal(verdict.next, SURE);
            tails++;
        }
        if (tails < 1 || tails > 16) fail_msg("rule %d: %d tail tokens, 4.5 expected", rule, tails);
    }
    tt_close(handle);
}

static void test_same_verdict_everywhere(void **state)
{
    struct fixture *f = *state;
    static const struct tt_transform t = {
        .temperature = 0.9f, .top_k = 100, .top_p = 0.98f, .min_p = 0.001f};
    tt *handles[ISAS_MAX];
    const size_t isas = open_every_isa(handles, VOCAB, 1);
    static float target[(ADMITTED + 1) * STRIDE];
    f->block.target = target;
    for (int rule = TT_POINT_MASS; rule <= TT_COUPLED; rule++)
        for (uint64_t index = 0; index < 100; index++) {
            struct tt_verdict first, verdict;
            use_rule(f, (enum tt_rule)rule);
            f->block.transform = index % 2 ? &t : NULL;
            f->block.token_index = index;
            for (int k = 0; k < ADMITTED; k++)
                f->tokens[k] = mode_of(f->target + k * STRIDE, DRAFT_VOCAB);
            for (size_t i = 0; i < isas; i++) {
                memcpy(target, f->target, sizeof target);
                assert_int_equal(tt_verify(handles[i], &f->block, &verdict), TT_OK);
                if (i == 0) first = verdict;
                assert_memory_equal(&first, &verdict, sizeof first);
            }
        }
    for (size_t i = 0; i < isas; i++) tt_close(handles[i]);
}

/* Statistics that are some row's, but not this one's: the law is wrong, the verdict is still one.
 */
static void test_statistics_of_another_row(void **state)
{
    struct fixture *f = *state;
    struct tt_row_stats stats[ADMITTED];
    struct tt_verdict verdict;
    static const float max[] = {-1e30f, -5.0f, 0.0f, 1e30f}, rest[] = {0.0f, 1.0f, 1e30f};
    use_rule(f, TT_RATIO);
    f->block.draft_stats = stats;
    f->draft[3] = NAN;
    for (size_t m = 0; m < 4; m++)
        for (size_t r = 0; r < 3; r++)
            for (uint64_t index = 0; index < 50; index++) {
                for (int k = 0; k < ADMITTED; k++)
                    stats[k] = (struct tt_row_stats){.argmax = 7, .max = max[m], .rest = rest[r]};
                f->block.token_index = index;
                assert_int_equal(tt_verify(f->handle, &f->block, &verdict), TT_OK);
                assert_in_range(verdict.accepted, 0, ADMITTED);
                assert_in_range(verdict.next, 0, VOCAB - 1);
                for (int32_t k = 0; k < verdict.labels; k++)
                    assert_true(verdict.soft[k] >= 0.0f && verdict.soft[k] <= 1.0f);
            }
}

static void expect_refusal(struct fixture *f, const struct tt_block *block, int status,
                           const char *words)
{
    struct tt_verdict verdict, before;
    float target[(ADMITTED + 1) * STRIDE];
    memset(&verdict, 0x5a, sizeof verdict);
    before = verdict;
    memcpy(target, f->target, sizeof target);
    assert_int_equal(tt_verify(f->handle, block, &verdict), status);
    if (!strstr(tt_message(f->handle), words))
        fail_msg("\"%s\" in \"%s\"", words, tt_message(f->handle));
    assert_memory_equal(&verdict, &before, sizeof verdict);
    assert_memory_equal(target, f->target, sizeof target);
}

static void test_bad_arguments(void **state)
{
    struct fixture *f = *state;
    static const struct tt_transform other = {.temperature = 0.5f, .top_p = 1.0f};
    static const struct tt_transform wrong = {.temperature = 0.9f, .top_p = NAN};
    const struct tt_block greedy = f->block;
    struct tt_block b;
    struct tt_verdict verdict;
    use_rule(f, TT_RATIO);
    const struct tt_block ratio = f->block;
    assert_int_equal(tt_verify(NULL, &greedy, &verdict), TT_EINVAL);
    assert_int_equal(tt_verify(f->handle, NULL, &verdict), TT_EINVAL);
    assert_int_equal(tt_verify(f->handle, &greedy, NULL), TT_EINVAL);
    b = greedy, b.admitted = -1;
    expect_refusal(f, &b, TT_EINVAL, "admitted");
    b = greedy, b.admitted = TT_MAX_POSITIONS + 1;
    expect_refusal(f, &b, TT_EINVAL, "admitted");
    b = greedy, b.temperature = 0.5f;
    expect_refusal(f, &b, TT_EINVAL, "greedy needs 0");
    b = ratio, b.temperature = 0.0f;
    expect_refusal(f, &b, TT_EINVAL, "temperature");
    b = ratio, b.temperature = NAN;
    expect_refusal(f, &b, TT_EINVAL, "temperature");
    b = ratio, b.rule = (enum tt_rule)4;
    expect_refusal(f, &b, TT_EINVAL, "rule");
    b = ratio, b.draft = NULL;
    expect_refusal(f, &b, TT_EINVAL, "draft rows");
    b = ratio, b.draft_stride = DRAFT_VOCAB - 1;
    expect_refusal(f, &b, TT_EINVAL, "draft rows");
    b = ratio, b.draft_vocab = VOCAB + 1;
    expect_refusal(f, &b, TT_EINVAL, "larger than the target");
    b = ratio, b.draft_stride = SIZE_MAX / 4;
    expect_refusal(f, &b, TT_EINVAL, "address space");
    b = ratio, b.target_stride = SIZE_MAX / 8;
    expect_refusal(f, &b, TT_EINVAL, "address space");
    b = greedy, b.admitted = 0, b.target_stride = SIZE_MAX / 2 + 1; /* no second row, and yet */
    expect_refusal(f, &b, TT_EINVAL, "address space");
    b = greedy, b.target_stride = VOCAB - 1;
    expect_refusal(f, &b, TT_EINVAL, "stride");
    b = greedy, b.vocab = VOCAB + 1, b.target_stride = VOCAB + 1;
    expect_refusal(f, &b, TT_ELIMIT, "opened for");
    b = greedy, b.target = NULL;
    expect_refusal(f, &b, TT_EINVAL, "no data");
    b = greedy, b.tokens = NULL;
    expect_refusal(f, &b, TT_EINVAL, "tokens");
    b = ratio, b.transform = &other;
    expect_refusal(f, &b, TT_EINVAL, "is not the block's");
    b = ratio, b.transform = &wrong;
    expect_refusal(f, &b, TT_EINVAL, "top-p");
    static const struct tt_row_stats never[] = {{.argmax = -1, .max = 1.0f},
                                                {.argmax = DRAFT_VOCAB, .max = 1.0f},
                                                {.argmax = 1, .max = NAN},
                                                {.argmax = 1, .max = 1.0f, .rest = -1.0f},
                                                {.argmax = 1, .max = 1.0f, .rest = INFINITY},
                                                {.argmax = 1, .max = 1.0f, .rest = NAN}};
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        const struct tt_row_stats stats[ADMITTED] = {
            {.flags = TT_ROW_FLAGGED}, {.argmax = 1}, never[i]};
        b = ratio, b.draft_stats = stats;
        expect_refusal(f, &b, TT_EINVAL, "draft statistics of position 2");
    }
    f->tokens[2] = VOCAB;
    expect_refusal(f, &greedy, TT_EINVAL, "token 300 at position 2");
    f->tokens[2] = DRAFT_VOCAB; /* the draft model cannot have drawn it */
    expect_refusal(f, &ratio, TT_EINVAL, "token 280 at position 2");
    f->tokens[2] = -2;
    expect_refusal(f, &greedy, TT_EINVAL, "token -2 at position 2");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_greedy),
        TEST(test_greedy_ties),
        TEST(test_only_reached_rows_are_touched),
        TEST(test_target_is_kept),
        TEST(test_flagged_rows),
        TEST(test_flagged_draft_row),
        TEST(test_padding),
        TEST(test_same_law),
        TEST(test_soft_labels),
        TEST(test_penalties_inside_a_block),
        TEST(test_coupled_text_is_the_targets),
        TEST(test_tail_tokens),
        TEST(test_same_verdict_everywhere),
        TEST(test_statistics_of_another_row),
        TEST(test_bad_arguments),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
