/* test_ngram.c - prompt-lookup drafts: longest and latest match, periods, fixed memory, statistics;
 * against a plain search on random text.
 */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "controller/ngram.h"
#include "kernels/trimtab.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) < 1e-6)) fail_msg("%.9g, expected %.9g", value, expected);
}

static void what_followed_is_proposed(void **state)
{
    (void)state;
    static const int32_t text[] = {1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4};
    struct ngram *ngram = ngram_new();
    struct ngram_index *index = ngram_index_new(32);
    int32_t token[3];
    float feature[3];
    int match;
    assert_int_equal(ngram_index_append(index, text, COUNT(text)), 0);
    assert_int_equal(ngram_propose(ngram, index, 3, token, feature, &match), 3);
    assert_int_equal(match, 4);
    assert_int_equal(token[0], 5);
    assert_int_equal(token[1], 6);
    assert_int_equal(token[2], 7);
    for (int k = 0; k < 3; k++) assert_near(feature[k], 0); /* nothing known: even odds */
    ngram_index_free(index);
    ngram_free(ngram);
}

static void the_longest_match_wins_and_then_the_latest(void **state)
{
    (void)state;
    static const int32_t longest[] = {9, 1,  2, 30, 0, 0, 1,
                                      2, 40, 0, 9,  1, 2}; /* 9 1 2 -> 30 beats 1 2 -> 40 */
    static const int32_t latest[] = {1, 2, 30, 0, 5, 1, 2, 40, 0, 7, 1, 2};
    struct ngram *ngram = ngram_new();
    struct ngram_index *index = ngram_index_new(32);
    int32_t token;
    float feature;
    int match;
    ngram_index_append(index, longest, COUNT(longest));
    assert_int_equal(ngram_propose(ngram, index, 1, &token, &feature, &match), 1);
    assert_int_equal(match, 3);
    assert_int_equal(token, 30);
    ngram_index_reset(index);
    ngram_index_append(index, latest, COUNT(latest));
    assert_int_equal(ngram_propose(ngram, index, 1, &token, &feature, &match), 1);
    assert_int_equal(match, 2);
    assert_int_equal(token, 40);
    ngram_index_free(index);
    ngram_free(ngram);
}

static void a_period_goes_on(void **state)
{
    (void)state;
    static const int32_t text[] = {8, 7, 9, 8, 7, 9, 8, 7};
    struct ngram *ngram = ngram_new();
    struct ngram_index *index = ngram_index_new(16);
    int32_t token[8];
    float feature[8];
    int match;
    ngram_index_append(index, text, COUNT(text));
    assert_int_equal(ngram_propose(ngram, index, 8, token, feature, &match), 8);
    static const int32_t expected[] = {9, 8, 7, 9, 8, 7, 9, 8};
    assert_memory_equal(token, expected, sizeof expected);
    ngram_index_free(index);
    ngram_free(ngram);
}

static void no_match_no_proposal(void **state)
{
    (void)state;
    static const int32_t text[] = {1, 2, 3, 4, 5};
    struct ngram *ngram = ngram_new();
    struct ngram_index *index = ngram_index_new(8);
    int32_t token;
    float feature;
    int match = 77;
    for (int count = 0; count <= COUNT(text); count++) {
        ngram_index_reset(index);
        assert_int_equal(ngram_index_append(index, text, count), 0);
        assert_int_equal(ngram_propose(ngram, index, 1, &token, &feature, &match), 0);
        assert_int_equal(match, 0);
    }
    static const int32_t again[] = {1, 2};
    ngram_index_append(index, again, 2);
    assert_int_equal(ngram_propose(ngram, index, 1, &token, &feature, &match), 1);
    assert_int_equal(ngram_propose(ngram, index, 0, &token, &feature, &match), 0);
    ngram_index_free(index);
    ngram_free(ngram);
    ngram_index_free(NULL);
    ngram_free(NULL);
}

static void beyond_the_capacity_nothing_is_appended(void **state)
{
    (void)state;
    static const int32_t text[] = {1, 2, 3, 1, 2};
    struct ngram *ngram = ngram_new();
    struct ngram_index *index = ngram_index_new(5);
    int32_t token;
    float feature;
    int match;
    assert_int_equal(ngram_index_append(index, text, 5), 0);
    assert_int_equal(ngram_index_append(index, text, 1), -1);
    assert_int_equal(ngram_index_append(index, text, 0), 0);
    assert_int_equal(ngram_index_append(index, text, -1), -1);
    assert_int_equal(ngram_propose(ngram, index, 1, &token, &feature, &match), 1);
    assert_int_equal(token, 3);
    ngram_index_free(index);
    ngram_free(ngram);
}

/* Token by token or at once, and after a reset, the index is the same. */
static void how_text_arrives_makes_no_difference(void **state)
{
    (void)state;
    int32_t text[400];
    uint64_t place = 0;
    for (int i = 0; i < 400; i++) text[i] = (int32_t)(tt_uniform(5, place++, 0, TT_DRAFT) * 6);
    struct ngram *ngram = ngram_new();
    struct ngram_index *whole = ngram_index_new(400), *parts = ngram_index_new(400);
    ngram_index_append(parts, text + 7, 300);
    ngram_index_reset(parts);
    ngram_index_append(whole, text, 400);
    for (int i = 0; i < 400; i++) ngram_index_append(parts, text + i, 1);
    int32_t a[6], b[6];
    float feature[6];
    int match_a, match_b;
    assert_int_equal(ngram_propose(ngram, whole, 6, a, feature, &match_a),
                     ngram_propose(ngram, parts, 6, b, feature, &match_b));
    assert_int_equal(match_a, match_b);
    assert_memory_equal(a, b, sizeof a);
    ngram_index_free(whole);
    ngram_index_free(parts);
    ngram_free(ngram);
}

/* The latest place before the end where the last n tokens stand, by plain search. */
static int search(const int32_t *text, int count, int n)
{
    for (int place = count - 1; place >= n; place--)
        if (!memcmp(&text[place - n], &text[count - n], (size_t)n * sizeof *text)) return place;
    return 0;
}

static void it_agrees_with_plain_search(void **state)
{
    (void)state;
    enum { LENGTH = 3000 };
    static int32_t text[LENGTH];
    struct ngram *ngram = ngram_new();
    struct ngram_index *index = ngram_index_new(LENGTH);
    uint64_t place = 0;
    int agreed = 0, matches = 0;
    for (int i = 0; i < LENGTH; i++) {
        /* runs copied from earlier text, and fresh tokens */
        bool copy = i > 50 && tt_uniform(6, place, 1, TT_DRAFT) < 0.8;
        text[i] =
            copy ? text[i - 37 - (i / 500)] : (int32_t)(tt_uniform(6, place, 0, TT_DRAFT) * 900);
        place++;
        ngram_index_append(index, &text[i], 1);
        int32_t token;
        float feature;
        int match, best = 0;
        for (int n = 4; n >= 2 && best == 0; n--)
            if (n <= i + 1) best = search(text, i + 1, n);
        int got = ngram_propose(ngram, index, 1, &token, &feature, &match);
        if (got) assert_true(match >= 2 && match <= 16);
        matches += best > 0;
        agreed += best > 0 ? got == 1 && token == text[best] : got == 0;
    }
    assert_true(matches > 1000);
    assert_true(agreed >=
                LENGTH -
                    LENGTH / 200); /* a full neighbourhood of the table may forget an old n-gram */
    ngram_index_free(index);
    ngram_free(ngram);
}

static void features_are_laplace_estimates(void **state)
{
    (void)state;
    static const int32_t text[] = {1, 2, 3, 4, 1, 2};
    struct ngram *ngram = ngram_new();
    struct ngram_index *index = ngram_index_new(8);
    int32_t token[2];
    float feature[2];
    int match;
    ngram_index_append(index, text, COUNT(text));
    for (int i = 0; i < 3; i++)
        ngram_observe(ngram, 2, 2, 1); /* position 0 accepted, position 1 rejected */
    ngram_observe(ngram, 2, 2, 0);
    ngram_observe(ngram, 9, 2, 2); /* another bucket */
    ngram_observe(ngram, 0, 2, 2); /* no match: nothing to learn */
    ngram_observe(ngram, 2, 0, 0);
    ngram_propose(ngram, index, 2, token, feature, &match);
    assert_int_equal(match, 2);
    assert_true(fabs(feature[0] - log(4.0 / 2.0)) < 0.02); /* 3 of 4, slowly forgotten */
    assert_true(fabs(feature[1] - log(1.0 / 4.0)) < 0.02); /* 0 of 3 */
    for (int i = 0; i < 20000; i++) ngram_observe(ngram, 2, 1, 1);
    ngram_propose(ngram, index, 2, token, feature, &match);
    assert_true(feature[0] > 5 && feature[0] < 7); /* memory is finite */
    ngram_index_free(index);
    ngram_free(ngram);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_followed_is_proposed),
        cmocka_unit_test(the_longest_match_wins_and_then_the_latest),
        cmocka_unit_test(a_period_goes_on),
        cmocka_unit_test(no_match_no_proposal),
        cmocka_unit_test(beyond_the_capacity_nothing_is_appended),
        cmocka_unit_test(how_text_arrives_makes_no_difference),
        cmocka_unit_test(it_agrees_with_plain_search),
        cmocka_unit_test(features_are_laplace_estimates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
