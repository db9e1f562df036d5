/* test_backends.c - every instruction set and a CUDA device give the same bits: one hash a backend
 * over statistics, draws, transforms and verdicts, for every vocabulary, kind of row, element type,
 * stride and rule. Linked with the shim the device's threads run in three orders. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/row_kinds.h"

enum { ROWS = 2, POSITIONS = 3, GAP = 5 };
static const size_t vocabularies[] = {1, 2, 7, 32, 1000, 8193, 49152, 50257, 151936};
#define VOCABULARIES (sizeof vocabularies / sizeof vocabularies[0])
#define VOCAB_MAX 151936
#define ROOM ((POSITIONS + 1) * (size_t)(VOCAB_MAX + GAP))

/* Of the shim, where this is linked with it. */
void shim_set_order(uint32_t order) __attribute__((weak));

struct buffers {
    float *target, *work, *draft;
    uint16_t *half;
};

static void buffers_new(struct buffers *b)
{
    b->target = malloc(ROOM * sizeof *b->target);
    b->work = malloc(ROOM * sizeof *b->work);
    b->draft = malloc(ROOM * sizeof *b->draft);
    b->half = malloc(ROOM * sizeof *b->half);
    assert_true(b->target && b->work && b->draft && b->half);
}

static void buffers_free(struct buffers *b)
{
    free(b->half);
    free(b->draft);
    free(b->work);
    free(b->target);
}

/* FNV-1a, 64 bits. */
static void mix(uint64_t *hash, const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++) *hash = (*hash ^ byte[i]) * 0x100000001b3u;
}

/* A flagged row's figures are NaN of any sign: its flags alone count. */
static void mix_stats(uint64_t *hash, const struct tt_row_stats *stats)
{
    mix(hash, &stats->flags, sizeof stats->flags);
    if (!stats->flags) mix(hash, stats, sizeof *stats);
}

static void hash_rows(tt *handle, const struct tt_rows *rows, uint64_t *hash)
{
    static const float scales[ROWS] = {1.0f, 1.0f / 0.7f};
    struct tt_row_stats stats[ROWS];
    assert_int_equal(tt_row_statistics(handle, rows, scales, stats), TT_OK);
    for (size_t r = 0; r < rows->rows; r++) {
        const size_t width = rows->dtype == TT_F32 ? 4 : 2;
        const struct tt_rows row = {(const char *)rows->data + r * rows->stride * width,
                                    rows->dtype, 1, rows->vocab, rows->stride};
        int32_t token = -1;
        mix_stats(hash, &stats[r]);
        const float feature = tt_feature(&stats[r], 16.0f);
        if (!isnan(feature)) mix(hash, &feature, sizeof feature);
        for (uint64_t index = 0; index < 3; index++) {
            int status =
                tt_sample(handle, &row, scales[r], &stats[r], 9, index, 1, TT_BONUS, &token);
            mix(hash, &status, sizeof status);
            mix(hash, &token, sizeof token);
            status = tt_sample_coupled(handle, &row, scales[r], 9, index, &token);
            mix(hash, &status, sizeof status);
            mix(hash, &token, sizeof token);
        }
    }
}

static void hash_all_rows(tt *handle, const struct buffers *b, size_t vocab, enum row_kind kind,
                          uint64_t *hash)
{
    /* Aligned rows and others. */
    const size_t stride = vocab % 4 == 0 ? vocab + 4 : vocab + GAP;
    for (size_t i = 0; i < ROWS * stride; i++) b->target[i] = NAN;
    for (uint32_t r = 0; r < ROWS; r++) row_fill(b->target + r * stride, vocab, kind, r + 3);
    hash_rows(handle, &(struct tt_rows){b->target, TT_F32, ROWS, vocab, stride}, hash);
    for (int dtype = TT_F16; dtype <= TT_BF16; dtype++) {
        for (size_t i = 0; i < ROWS * stride; i++)
            (void)row_narrow(b->target[i], (enum tt_dtype)dtype, &b->half[i]);
        hash_rows(handle, &(struct tt_rows){b->half, (enum tt_dtype)dtype, ROWS, vocab, stride},
                  hash);
    }
}

static struct tt_transform transform_number(int number, float temperature)
{
    static const struct tt_transform transforms[] = {
        {.top_p = 1.0f, .top_k = 5},
        {.top_p = 0.9f},
        {.top_p = 1.0f, .min_p = 0.05f},
        {.top_p = 0.5f, .top_k = 40, .min_p = 0.001f, .presence_penalty = 0.5f},
        {.top_p = 0.0f, .repetition_penalty = 1.3f, .frequency_penalty = 0.25f},
        {.top_p = 0.999f, .top_k = 3000},
    };
    struct tt_transform transform = transforms[number % 6];
    transform.temperature = temperature;
    return transform;
}

static void hash_block(tt *handle, const struct buffers *b, const struct tt_block *base, int number,
                       uint64_t *hash)
{
    struct tt_block block = *base;
    struct tt_verdict verdict;
    int32_t first = (int32_t)(block.vocab / 2);
    const struct tt_logit_bias bias[] = {{0, 1.5f}, {first, -2.0f}, {0, 0.25f}};
    const struct tt_token_count counts[] = {{first, 3}, {0, 1}};
    struct tt_transform transform = transform_number(number, block.temperature);

    transform.bias = bias;
    transform.bias_count = 3;
    transform.counts = counts;
    transform.counts_count = block.vocab > 1 ? 2 : 1;
    if (number % 7 != 6) block.transform = &transform;
    memcpy(b->work, b->target, (POSITIONS + 1) * block.target_stride * sizeof *b->work);
    block.target = b->work;
    memset(&verdict, 0, sizeof verdict);
    assert_int_equal(tt_verify(handle, &block, &verdict), TT_OK);
    mix(hash, &verdict, sizeof verdict);
    if (!verdict.flags)
        for (int32_t k = 0; k <= block.admitted; k++)
            mix(hash, b->work + (size_t)k * block.target_stride, block.vocab * sizeof *b->work);
}

/* Draft tokens: mostly modes, so that all rules accept some; one case in five is padded. */
static void fill_tokens(const struct buffers *b, size_t vocab, size_t stride, size_t draft_vocab,
                        int number, int32_t *tokens)
{
    for (int32_t k = 0; k < POSITIONS; k++) {
        const float *row = b->target + (size_t)k * stride;
        size_t mode = 0;
        for (size_t i = 1; i < vocab; i++)
            if (row[i] > row[mode]) mode = i;
        tokens[k] = (int32_t)((number + k) % 3 && mode < draft_vocab
                                  ? mode
                                  : (size_t)(number * 37 + k) % draft_vocab);
    }
    if (number % 5 == 4) tokens[number % POSITIONS] = -1;
}

static void hash_blocks(tt *handle, const struct buffers *b, size_t vocab, enum row_kind kind,
                        uint64_t *hash)
{
    const size_t stride = vocab + (vocab % 2 ? GAP : 4);
    const size_t draft_vocab = vocab > 40 ? vocab - 30 : vocab;
    int32_t tokens[POSITIONS];
    for (size_t i = 0; i < (POSITIONS + 1) * stride; i++) b->target[i] = b->draft[i] = NAN;
    for (uint32_t k = 0; k <= POSITIONS; k++) {
        row_fill(b->target + k * stride, vocab, k == 2 ? kind : ROW_NORMAL, k + 1);
        row_fill(b->draft + k * stride, draft_vocab, k == 1 ? kind : ROW_NORMAL, k + 1);
    }
    for (int number = 0; number < 8; number++) {
        const enum tt_rule rule = (enum tt_rule)(number % 4);
        fill_tokens(b, vocab, stride, rule == TT_RATIO ? draft_vocab : vocab, number, tokens);
        const struct tt_block block = {.rule = rule,
                                       .target_stride = stride,
                                       .vocab = vocab,
                                       .draft = b->draft,
                                       .draft_stride = stride,
                                       .draft_vocab = draft_vocab,
                                       .tokens = tokens,
                                       .admitted = number == 7 ? 0 : POSITIONS,
                                       .temperature = rule == TT_GREEDY ? 0.0f : 0.8f,
                                       .key = 77,
                                       .token_index = (uint64_t)number};
        hash_block(handle, b, &block, number + (int)kind, hash);
    }
}

static uint64_t hash_backend(tt *handle, const struct buffers *b, size_t vocab)
{
    uint64_t hash = 0xcbf29ce484222325u;
    /* Long rows in fewer kinds: they say nothing new about a kind. */
    for (int kind = 0; kind<ROW_KINDS; kind += vocab> 10000 ? 5 : 1) {
        hash_all_rows(handle, b, vocab, (enum row_kind)kind, &hash);
        hash_blocks(handle, b, vocab, (enum row_kind)kind, &hash);
    }
    return hash;
}

static void compare_backends(size_t vocab_max)
{
    struct buffers b;
    tt *handles[ISAS_MAX];
    buffers_new(&b);
    for (size_t v = 0; v < VOCABULARIES && vocabularies[v] <= vocab_max; v++) {
        const size_t handle_count = open_every_isa(handles, vocabularies[v], ROWS);
        const uint64_t want = hash_backend(handles[0], &b, vocabularies[v]);
        for (size_t i = 1; i < handle_count; i++) {
            const uint64_t got = hash_backend(handles[i], &b, vocabularies[v]);
            if (got != want)
                fail_msg("vocabulary %zu: %s gives %016llx, %s %016llx", vocabularies[v],
                         tt_isa(handles[i]), (unsigned long long)got, tt_isa(handles[0]),
                         (unsigned long long)want);
        }
        for (size_t i = 0; i < handle_count; i++) tt_close(handles[i]);
    }
    buffers_free(&b);
}

static void test_same_bits(void **state)
{
    (void)state;
    compare_backends(VOCAB_MAX);
}

static void test_same_bits_in_reverse(void **state)
{
    (void)state;
    shim_set_order(1);
    compare_backends(8193);
}

static void test_same_bits_in_random_order(void **state)
{
    (void)state;
    shim_set_order(12345);
    compare_backends(8193);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits)};
    const struct CMUnitTest orders[] = {
        /* of the shim's threads; a device has none to choose */
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_same_bits_in_reverse),
        cmocka_unit_test(test_same_bits_in_random_order),
    };
    if (shim_set_order) return cmocka_run_group_tests_name("orders", orders, NULL, NULL);
    return cmocka_run_group_tests_name("backends", tests, NULL, NULL);
}
