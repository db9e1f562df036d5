/* test_law.c - the output law of verification, by exact enumeration.
 *
 * Every branch of drafting, trimming, verification and of plain decoding afterwards is run with its
 * weight. The law of the first K + 1 tokens must be the target's: to 1e-12 through the
 * double-precision tables, to 1e-5 total variation through the fp32 rows. Faults that were found in
 * the field, seeded on purpose, must show.
 */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/verify_core.h"
#include "kernels/verify_rows.h"
#include "tests/kernels/enumerate.h"
#include "tests/kernels/law_world.h"

#define SEQUENCES_MAX 256 /* WORLD_VOCAB_MAX ^ WORLD_LENGTH_MAX */
#define TEMPERATURE 0.8

/* How a block is admitted: soundly, or with a fault that lets a token's fate depend on its own
 * value. */
enum admission {
    ADMIT_BEFORE_DRAW, /* decided by everything known before the draw */
    ADMIT_LIVE_ARGMAX, /* the fault: kept if it turned out to be likely */
    ADMIT_WITHDRAW,    /* the fault: withdrawn after the draw, by its value */
    ADMIT_LATER_DRAFT, /* the fault: kept or not by what was drawn after it */
};

enum path { PATH_TABLES, PATH_ROWS, PATH_WRONG_RESIDUAL };

struct scenario {
    const struct world *world;
    enum tt_rule rule;
    enum admission admission;
    enum path path;
    tt *handle;    /* PATH_ROWS */
    int32_t top_k; /* PATH_ROWS: a filter on the target, 0 for none */
};

static double temperature_of(enum tt_rule rule)
{
    return rule == TT_GREEDY ? 1.0 : TEMPERATURE;
}

/* Remove all but the k largest, the smaller index first among equals. */
static void filter_logits(float *logits, size_t vocab, int32_t k)
{
    float kept[WORLD_VOCAB_MAX];
    for (size_t i = 0; i < vocab; i++) {
        int32_t better = 0;
        for (size_t j = 0; j < vocab; j++)
            better += logits[j] > logits[i] || (logits[j] == logits[i] && j < i);
        kept[i] = better < k ? logits[i] : -INFINITY;
    }
    memcpy(logits, kept, vocab * sizeof *kept);
}

/* The target's law after a prefix; under greedy the mode for certain. */
static void target_law(const struct scenario *scenario, const int32_t *prefix, int32_t length,
                       double *law)
{
    const struct world *world = scenario->world;
    float logits[WORLD_VOCAB_MAX];
    world_target(world, prefix, length, logits);
    if (scenario->top_k > 0) filter_logits(logits, world->vocab, scenario->top_k);
    world_softmax(logits, world->vocab, temperature_of(scenario->rule), law);
    if (scenario->rule != TT_GREEDY) return;
    size_t mode = 0;
    for (size_t i = 1; i < world->vocab; i++)
        if (logits[i] > logits[mode]) mode = i;
    for (size_t i = 0; i < world->vocab; i++) law[i] = i == mode ? 1.0 : 0.0;
}

static void draft_law(const struct scenario *scenario, const int32_t *prefix, int32_t length,
                      double *law)
{
    float logits[WORLD_VOCAB_MAX];
    world_draft(scenario->world, prefix, length, logits);
    world_softmax(logits, scenario->world->draft_vocab, temperature_of(scenario->rule), law);
}

static int32_t draft_token(const struct scenario *scenario, struct enumerator *e,
                           const int32_t *prefix, int32_t k, const double *q)
{
    const struct world *world = scenario->world;
    const struct choice_site site = {(uint64_t)k, (uint32_t)k, TT_DRAFT};
    switch (scenario->rule) {
    case TT_RATIO:
        return (int32_t)choice_draw(&e->base, &site, 0, q, world->draft_vocab);
    case TT_COUPLED:
        return (int32_t)choice_race(&e->base, (uint64_t)k, q, world->draft_vocab);
    default:
        return (int32_t)(world_hash(world, prefix, k, 77) % world->draft_vocab);
    }
}

static int admits_before_draw(const struct scenario *scenario, const int32_t *prefix, int32_t k,
                              const double *q)
{
    return q[0] < 0.9 && world_hash(scenario->world, prefix, k, 55) % 4 != 0;
}

/* Draft a block; returns the admitted length. Tokens beyond it are padding. */
static int32_t draft_block(const struct scenario *scenario, struct enumerator *e, int32_t *tokens)
{
    const int32_t drafts = scenario->world->drafts;
    double q[WORLD_VOCAB_MAX];
    int32_t admitted = 0;

    for (int32_t k = 0; k < drafts; k++) tokens[k] = -1;
    for (; admitted < drafts; admitted++) {
        const int32_t k = admitted;
        draft_law(scenario, tokens, k, q);
        if (scenario->admission == ADMIT_BEFORE_DRAW && !admits_before_draw(scenario, tokens, k, q))
            break;
        tokens[k] = draft_token(scenario, e, tokens, k, q);
        const int kept = scenario->admission == ADMIT_LIVE_ARGMAX ? q[tokens[k]] > 0.4
                         : scenario->admission == ADMIT_WITHDRAW  ? tokens[k] == 0
                                                                  : 1;
        if (!kept) {
            tokens[k] = -1;
            break;
        }
    }
    if (scenario->admission == ADMIT_LATER_DRAFT && admitted == drafts && drafts > 1 &&
        tokens[1] == 0) {
        admitted = 1;
        tokens[1] = -1;
    }
    return admitted;
}

/* ---- the three ways to verify */

static void verify_tables(const struct scenario *scenario, struct enumerator *e,
                          const int32_t *tokens, int32_t admitted, struct tt_verdict *verdict)
{
    const struct world *world = scenario->world;
    double p[WORLD_LENGTH_MAX][WORLD_VOCAB_MAX], q[WORLD_LENGTH_MAX][WORLD_VOCAB_MAX];
    double p_table[WORLD_LENGTH_MAX * WORLD_VOCAB_MAX], q_table[WORLD_LENGTH_MAX * WORLD_VOCAB_MAX];
    const struct verify_tables tables = {p_table, q_table, world->vocab, world->draft_vocab};
    /* Padding beyond the admitted tokens, and rows that nobody may read. */
    const struct verify_task task = {scenario->rule, tokens, world->drafts, 0};

    for (int32_t k = 0; k <= world->drafts; k++) {
        for (size_t i = 0; i < WORLD_VOCAB_MAX; i++) p[k][i] = q[k][i] = NAN;
        if (k <= admitted) target_law(scenario, tokens, k, p[k]);
        if (k < admitted) draft_law(scenario, tokens, k, q[k]);
        memcpy(p_table + (size_t)k * world->vocab, p[k], world->vocab * sizeof(double));
        memcpy(q_table + (size_t)k * world->draft_vocab, q[k], world->draft_vocab * sizeof(double));
    }
    assert_int_equal(tt_verify_tables(&task, &tables, &e->base, verdict), TT_OK);
}

static void verify_through_rows(const struct scenario *scenario, struct enumerator *e,
                                const int32_t *tokens, int32_t admitted, struct tt_verdict *verdict)
{
    const struct world *world = scenario->world;
    enum { STRIDE = WORLD_VOCAB_MAX + 3 };
    float target[WORLD_LENGTH_MAX * STRIDE], draft[WORLD_LENGTH_MAX * STRIDE];
    const struct tt_transform transform = {
        .temperature = (float)TEMPERATURE, .top_k = scenario->top_k, .top_p = 1.0f};
    struct tt_block block = {
        .rule = scenario->rule,
        .target = target,
        .target_stride = STRIDE,
        .vocab = world->vocab,
        .draft = draft,
        .draft_stride = STRIDE,
        .draft_vocab = world->draft_vocab,
        .tokens = tokens,
        .admitted = world->drafts,
        .temperature = scenario->rule == TT_GREEDY ? 0.0f : (float)TEMPERATURE,
        .transform = scenario->top_k > 0 ? &transform : NULL,
    };

    for (size_t i = 0; i < WORLD_LENGTH_MAX * STRIDE; i++) target[i] = draft[i] = NAN;
    for (int32_t k = 0; k <= admitted; k++) {
        world_target(world, tokens, k, target + (size_t)k * STRIDE);
        if (k < admitted) world_draft(world, tokens, k, draft + (size_t)k * STRIDE);
    }
    assert_int_equal(verify_rows(scenario->handle, &block, &e->base, verdict), TT_OK);
}

/* The fault of a recovered token drawn from p instead of the residual. */
static void verify_wrong_residual(const struct scenario *scenario, struct enumerator *e,
                                  const int32_t *tokens, int32_t admitted,
                                  struct tt_verdict *verdict)
{
    verify_tables(scenario, e, tokens, admitted, verdict);
    if (verdict->accepted == admitted) return;
    const struct choice_site site = {99, 0, TT_RESIDUAL};
    double p[WORLD_VOCAB_MAX];
    target_law(scenario, tokens, verdict->accepted, p);
    verdict->next = (int32_t)choice_draw(&e->base, &site, 0, p, scenario->world->vocab);
}

static void check_verdict(const struct scenario *scenario, const struct tt_verdict *verdict,
                          int32_t admitted)
{
    assert_true(verdict->accepted >= 0 && verdict->accepted <= admitted);
    assert_int_equal(verdict->flags, 0);
    assert_true(verdict->next >= 0 && verdict->next < (int32_t)scenario->world->vocab);
    assert_int_equal(verdict->labels,
                     verdict->accepted < admitted ? verdict->accepted + 1 : admitted);
    for (int32_t k = 0; k < verdict->labels; k++)
        assert_true(verdict->soft[k] >= 0.0f && verdict->soft[k] <= 1.0f);
}

/* One path: draft, verify, and go on with plain decoding until K + 1 tokens stand. */
static void run_path(const struct scenario *scenario, struct enumerator *e, int32_t *sequence)
{
    const struct world *world = scenario->world;
    int32_t tokens[WORLD_LENGTH_MAX] = {0};
    struct tt_verdict verdict;
    double p[WORLD_VOCAB_MAX];

    const int32_t admitted = draft_block(scenario, e, tokens);
    switch (scenario->path) {
    case PATH_TABLES:
        verify_tables(scenario, e, tokens, admitted, &verdict);
        break;
    case PATH_ROWS:
        verify_through_rows(scenario, e, tokens, admitted, &verdict);
        break;
    case PATH_WRONG_RESIDUAL:
        verify_wrong_residual(scenario, e, tokens, admitted, &verdict);
        break;
    }
    if (e->failure) return;
    check_verdict(scenario, &verdict, admitted);
    memcpy(sequence, tokens, (size_t)verdict.accepted * sizeof *sequence);
    sequence[verdict.accepted] = verdict.next;
    for (int32_t k = verdict.accepted + 1; k <= world->drafts; k++) {
        const struct choice_site site = {(uint64_t)k, 100, TT_BONUS};
        target_law(scenario, sequence, k, p);
        sequence[k] = (int32_t)choice_draw(&e->base, &site, 0, p, world->vocab);
    }
}

static double expected(const struct scenario *scenario, const int32_t *sequence)
{
    double law[WORLD_VOCAB_MAX], product = 1.0;
    for (int32_t k = 0; k <= scenario->world->drafts; k++) {
        target_law(scenario, sequence, k, law);
        product *= law[sequence[k]];
    }
    return product;
}

/* Total variation between what comes out and the target's law; *worst is the largest single
 * difference. */
static double distance(const struct scenario *scenario, double *worst)
{
    static struct enumerator e;
    const struct world *world = scenario->world;
    double total[SEQUENCES_MAX] = {0}, weight = 0.0, variation = 0.0;
    int32_t sequence[WORLD_LENGTH_MAX];

    enumerator_start(&e);
    while (enumerator_next(&e)) {
        run_path(scenario, &e, sequence);
        total[world_index(world, sequence)] += enumerator_weight(&e);
        weight += enumerator_weight(&e);
    }
    if (e.failure) fail_msg("enumerator: %s", e.failure);
    assert_true(fabs(weight - 1.0) < 1e-12);
    *worst = 0.0;
    for (size_t s = 0; s < world_sequences(world); s++) {
        size_t rest = s;
        for (int32_t k = world->drafts; k >= 0; k--, rest /= world->vocab)
            sequence[k] = (int32_t)(rest % world->vocab);
        const double difference = fabs(total[s] - expected(scenario, sequence));
        variation += difference / 2.0;
        *worst = fmax(*worst, difference);
    }
    return variation;
}

static struct world world_of(enum world_kind kind, size_t vocab, int32_t drafts, uint32_t seed)
{
    return (struct world){kind, vocab, kind == WORLD_SHORT ? vocab - 1 : vocab, drafts, seed};
}

static void each_world(enum tt_rule rule, enum path path, tt *handle, double variation_max,
                       double worst_max)
{
    for (int kind = 0; kind < WORLD_KINDS; kind++)
        for (size_t vocab = 2; vocab <= WORLD_VOCAB_MAX; vocab++)
            for (int32_t drafts = 0; drafts < WORLD_LENGTH_MAX; drafts++)
                for (uint32_t seed = 1; seed <= 3; seed++) {
                    const struct world world = world_of((enum world_kind)kind, vocab, drafts, seed);
                    const struct scenario scenario = {&world, rule,   ADMIT_BEFORE_DRAW,
                                                      path,   handle, 0};
                    double worst;
                    const double variation = distance(&scenario, &worst);
                    if (variation > variation_max || worst > worst_max)
                        fail_msg("rule %d kind %d vocabulary %zu drafts %d seed %u: variation %g, "
                                 "worst %g",
                                 rule, kind, vocab, (int)drafts, seed, variation, worst);
                }
}

static void test_tables(void **state)
{
    (void)state;
    for (int rule = TT_GREEDY; rule <= TT_COUPLED; rule++)
        each_world((enum tt_rule)rule, PATH_TABLES, NULL, 1e-12, 1e-12);
}

static void test_rows(void **state)
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const struct tt_options options = {.isa = isas[i], .vocab = 4, .max_rows = 1};
        tt *handle;
        const int status = tt_open(&handle, &options);
        if (status == TT_ENOTSUP) continue;
        assert_int_equal(status, TT_OK);
        for (int rule = TT_GREEDY; rule <= TT_COUPLED; rule++)
            each_world((enum tt_rule)rule, PATH_ROWS, handle, 1e-5, 1e-5);
        tt_close(handle);
    }
}

static void test_seeded_faults_show(void **state)
{
    static const enum admission faults[] = {ADMIT_LIVE_ARGMAX, ADMIT_WITHDRAW, ADMIT_LATER_DRAFT};
    (void)state;
    for (size_t f = 0; f < 3; f++) {
        double largest = 0.0, worst;
        for (uint32_t seed = 1; seed <= 4; seed++) {
            const struct world world = world_of(WORLD_RANDOM, 3, 2, seed);
            const struct scenario scenario = {&world, TT_RATIO, faults[f], PATH_TABLES, NULL, 0};
            largest = fmax(largest, distance(&scenario, &worst));
        }
        if (largest < 1e-3) fail_msg("fault %zu goes unnoticed: variation %g", f, largest);
    }
    const struct world world = world_of(WORLD_RANDOM, 3, 2, 1);
    const struct scenario scenario = {&world, TT_RATIO, ADMIT_BEFORE_DRAW, PATH_WRONG_RESIDUAL,
                                      NULL,   0};
    double worst;
    assert_true(distance(&scenario, &worst) > 1e-3);
}

/* Coupled is the exception: any trimming rule is sound, because the draft side never touches the
 * output. */
static void test_coupled_survives_any_trimming(void **state)
{
    (void)state;
    for (int fault = ADMIT_LIVE_ARGMAX; fault <= ADMIT_LATER_DRAFT; fault++)
        for (uint32_t seed = 1; seed <= 3; seed++) {
            const struct world world = world_of(WORLD_RANDOM, 3, 2, seed);
            const struct scenario scenario = {&world,      TT_COUPLED, (enum admission)fault,
                                              PATH_TABLES, NULL,       0};
            double worst;
            assert_true(distance(&scenario, &worst) < 1e-12);
        }
}

static void test_design_example(void **state)
{
    /* Withdraw x when it is 1: accepted 0 with .5, else p: .5 + .5 * .7. */
    static const double p[] = {0.7, 0.3}, q[] = {0.5, 0.5};
    const struct verify_tables tables = {p, q, 2, 2};
    static struct enumerator e;
    double zero[2] = {0};
    (void)state;
    for (int withdraw = 0; withdraw < 2; withdraw++) {
        double p_rows[4] = {0.7, 0.3, 0.7, 0.3};
        struct verify_tables both = tables;
        both.p = p_rows;
        enumerator_start(&e);
        while (enumerator_next(&e)) {
            const struct choice_site site = {0, 0, TT_DRAFT};
            const int32_t x = (int32_t)choice_draw(&e.base, &site, 0, q, 2);
            const struct verify_task task = {TT_RATIO, &x, withdraw && x == 1 ? 0 : 1, 0};
            struct tt_verdict verdict;
            assert_int_equal(tt_verify_tables(&task, &both, &e.base, &verdict), TT_OK);
            const int32_t first = verdict.accepted ? x : verdict.next;
            if (first == 0) zero[withdraw] += enumerator_weight(&e);
        }
        assert_null(e.failure);
    }
    assert_true(fabs(zero[0] - 0.7) < 1e-12);
    assert_true(fabs(zero[1] - 0.85) < 1e-12);
}

/* The closed form of two races against what it must sum to. */
static void test_joint_race(void **state)
{
    static const double q[] = {0.5, 0.2, 0.3, 0.0}, p[] = {0.1, 0.6, 0.0, 0.3};
    double all = 0.0;
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        double row = 0.0, column = 0.0;
        for (size_t j = 0; j < 4; j++) {
            row += enumerator_joint_race(q, p, 4, i, j);
            column += enumerator_joint_race(q, p, 4, j, i);
        }
        assert_true(fabs(row - q[i]) < 1e-14);
        assert_true(fabs(column - p[i]) < 1e-14);
        all += row;
    }
    assert_true(fabs(all - 1.0) < 1e-14);
    assert_true(fabs(enumerator_joint_race(q, q, 4, 0, 0) - 0.5) < 1e-14);
    assert_true(enumerator_joint_race(q, q, 4, 0, 1) == 0.0);
}

/* p is the law after the client's filters, q is not filtered: the output is the filtered law. */
static void test_filtered_rows(void **state)
{
    const struct tt_options options = {.vocab = 4, .max_rows = 1};
    tt *handle;
    (void)state;
    assert_int_equal(tt_open(&handle, &options), TT_OK);
    for (int rule = TT_POINT_MASS; rule <= TT_COUPLED; rule++)
        for (int kind = 0; kind < WORLD_KINDS; kind++)
            for (int32_t top_k = 1; top_k <= 3; top_k++) {
                const struct world world = world_of((enum world_kind)kind, 4, 2, 5);
                const struct scenario scenario = {
                    &world, (enum tt_rule)rule, ADMIT_BEFORE_DRAW, PATH_ROWS, handle, top_k};
                double worst;
                assert_true(distance(&scenario, &worst) < 1e-5);
            }
    tt_close(handle);
}

/* Rows of several chunks: the draws go down chunk, group and token. Support is sparse, so that it
 * can be enumerated. */
static void test_wide_rows(void **state)
{
    enum { VOCAB = 8193, SUPPORT = 6 };
    static const int32_t support[SUPPORT] = {3, 130, 4095, 4096, 5000, 8192};
    static float target[2 * VOCAB], draft[VOCAB], clean[2 * VOCAB];
    static struct enumerator e;
    const struct tt_options options = {.vocab = VOCAB, .max_rows = 1};
    tt *handle;
    double p[SUPPORT], q[SUPPORT];
    float logits[SUPPORT], draft_logits[SUPPORT];
    (void)state;

    assert_int_equal(tt_open(&handle, &options), TT_OK);
    for (size_t i = 0; i < 2 * VOCAB; i++) clean[i] = -INFINITY;
    for (size_t i = 0; i < VOCAB; i++) draft[i] = -INFINITY;
    for (int i = 0; i < SUPPORT; i++) {
        logits[i] = clean[support[i]] = clean[VOCAB + support[i]] = (float)sin(3.0 * i);
        draft_logits[i] = draft[support[i]] = (float)cos(5.0 * i);
    }
    for (int rule = TT_POINT_MASS; rule <= TT_RATIO; rule++)
        for (int lacking = 0; lacking <= 1; lacking++) {
            const int known = SUPPORT - lacking; /* the draft model may not know the last token */
            double total[SUPPORT] = {0};
            world_softmax(logits, SUPPORT, TEMPERATURE, p);
            world_softmax(draft_logits, (size_t)known, TEMPERATURE, q);
            enumerator_start(&e);
            while (enumerator_next(&e)) {
                const struct choice_site site = {0, 0, TT_DRAFT};
                const size_t drawn =
                    rule == TT_RATIO ? choice_draw(&e.base, &site, 0, q, (size_t)known) : 2;
                struct tt_block block = {.rule = (enum tt_rule)rule,
                                         .target = target,
                                         .target_stride = VOCAB,
                                         .vocab = VOCAB,
                                         .draft = draft,
                                         .draft_stride = VOCAB,
                                         .draft_vocab = lacking ? 8000 : VOCAB,
                                         .tokens = &support[drawn],
                                         .admitted = 1,
                                         .temperature = (float)TEMPERATURE};
                struct tt_verdict verdict;
                memcpy(target, clean, sizeof target);
                assert_int_equal(verify_rows(handle, &block, &e.base, &verdict), TT_OK);
                const int32_t first = verdict.accepted ? support[drawn] : verdict.next;
                int i = 0;
                while (i < SUPPORT && support[i] != first) i++;
                assert_in_range(i, 0, SUPPORT - 1);
                total[i] += enumerator_weight(&e);
            }
            assert_null(e.failure);
            for (int i = 0; i < SUPPORT; i++) assert_true(fabs(total[i] - p[i]) < 2e-6);
        }
    tt_close(handle);
}

static void verdict_of(enum tt_rule rule, const double *p, const double *q, const int32_t *tokens,
                       int32_t admitted, struct tt_verdict *verdict)
{
    static struct enumerator e;
    const struct verify_tables tables = {p, q, 2, 2};
    const struct verify_task task = {rule, tokens, admitted, 0};
    enumerator_start(&e);
    assert_true(enumerator_next(&e));
    assert_int_equal(tt_verify_tables(&task, &tables, &e.base, verdict), TT_OK);
    assert_null(e.failure);
}

static void test_flags_and_padding(void **state)
{
    static const double sure[] = {1.0, 0.0, 1.0, 0.0, 1.0, 0.0}, bad_q[] = {1.0, 0.0, NAN, 1.0};
    static const double bad_p[] = {1.0, 0.0, NAN, 0.0, 1.0, 0.0};
    static const int32_t zeros[] = {0, 0}, padded[] = {0, -1}, empty[] = {-1, 0};
    struct tt_verdict verdict;
    (void)state;

    for (int rule = TT_GREEDY; rule <= TT_COUPLED; rule++) {
        verdict_of((enum tt_rule)rule, sure, sure, zeros, 2, &verdict);
        assert_int_equal(verdict.accepted, 2);
        assert_int_equal(verdict.labels, 2);
        verdict_of((enum tt_rule)rule, bad_p, sure, zeros, 2, &verdict);
        assert_int_equal(verdict.accepted, 1);
        assert_int_equal(verdict.next, -1);
        assert_int_equal(verdict.labels, 1);
        assert_int_equal(verdict.flags, TT_ROW_FLAGGED);
        /* Row 1 of bad_p is the bonus row of a padded block: reached, and flagged. */
        verdict_of((enum tt_rule)rule, bad_p, sure, padded, 2, &verdict);
        assert_int_equal(verdict.accepted, 1);
        assert_int_equal(verdict.next, -1);
        verdict_of((enum tt_rule)rule, sure, sure, padded, 2, &verdict);
        assert_int_equal(verdict.accepted, 1);
        assert_int_equal(verdict.labels, 1);
        assert_int_equal(verdict.next, 0);
        verdict_of((enum tt_rule)rule, sure, sure, empty, 2, &verdict);
        assert_int_equal(verdict.accepted, 0);
        assert_int_equal(verdict.labels, 0);
        assert_int_equal(verdict.next, 0);
    }
    verdict_of(TT_RATIO, sure, bad_q, zeros, 2, &verdict);
    assert_int_equal(verdict.accepted, 1);
    assert_int_equal(verdict.next, 0);
    assert_int_equal(verdict.flags, TT_DRAFT_FLAGGED);
}

/* A token that the target cannot emit is never accepted, however the coin falls; one it must emit
 * always is. */
static void test_certainties(void **state)
{
    static const double p[] = {1.0, 0.0, 0.5, 0.5}, q[] = {0.5, 0.5};
    static const int32_t impossible[] = {1}, certain[] = {0};
    static struct enumerator e;
    (void)state;
    for (int rule = TT_POINT_MASS; rule <= TT_RATIO; rule++)
        for (int which = 0; which < 2; which++) {
            const struct verify_tables tables = {p, q, 2, 2};
            const struct verify_task task = {(enum tt_rule)rule, which ? certain : impossible, 1,
                                             0};
            enumerator_start(&e);
            while (enumerator_next(&e)) {
                struct tt_verdict verdict;
                assert_int_equal(tt_verify_tables(&task, &tables, &e.base, &verdict), TT_OK);
                assert_int_equal(verdict.accepted, which);
                if (!which) assert_int_equal(verdict.next, 0);
            }
            assert_null(e.failure);
        }
}

static void test_bad_tables(void **state)
{
    static const double p[] = {0.5, 0.5, 0.5, 0.5};
    static const int32_t beyond[] = {2}, below[] = {-2};
    static struct enumerator e;
    struct tt_verdict verdict;
    struct verify_tables tables = {p, p, 2, 2};
    struct verify_task task = {TT_POINT_MASS, beyond, 1, 0};
    (void)state;
    enumerator_start(&e);
    assert_int_equal(tt_verify_tables(&task, &tables, &e.base, &verdict), TT_EINVAL);
    task.tokens = below;
    assert_int_equal(tt_verify_tables(&task, &tables, &e.base, &verdict), TT_EINVAL);
    task.admitted = TT_MAX_POSITIONS + 1;
    assert_int_equal(tt_verify_tables(&task, &tables, &e.base, &verdict), TT_EINVAL);
    task.admitted = 0;
    tables.vocab = VERIFY_TABLE_VOCAB_MAX + 1;
    assert_int_equal(tt_verify_tables(&task, &tables, &e.base, &verdict), TT_ELIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joint_race),
        cmocka_unit_test(test_design_example),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_filtered_rows),
        cmocka_unit_test(test_wide_rows),
        cmocka_unit_test(test_seeded_faults_show),
        cmocka_unit_test(test_coupled_survives_any_trimming),
        cmocka_unit_test(test_flags_and_padding),
        cmocka_unit_test(test_certainties),
        cmocka_unit_test(test_bad_tables),
    };
    return cmocka_run_group_tests_name("law", tests, NULL, NULL);
}
