/* golden_features.c - row statistics against the recorded log-odds of the released estimator's own
 * kernel.
 *
 * Compared with `exact_log_odds`, the float64 figure of each recorded row, clamped: the released
 * kernel's float32 saturates above 12 and is not reproduced. See data/vectors/README.
 */
#include "config.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/trimtab.h"
#include "tests/kernels/golden_features.h"
#include "tests/kernels/golden_set.h"

#define CLAMP 40.0f
#define VOCAB_MAX 262144
#define ROWS_MAX 64

/* Three roundings on the way to the exponent, and the result's own. */
static double tolerance_of(double log_odds)
{
    return 1e-6 + 1.5 * FLT_EPSILON * fabs(log_odds);
}

static double clamped(double log_odds)
{
    return fmin(fmax(log_odds, -(double)CLAMP), (double)CLAMP);
}

static void expect_feature(const struct tt_row_stats *stats, double exact, const char *what,
                           size_t row)
{
    const double got = (double)tt_feature(stats, CLAMP), want = clamped(exact);
    if (!(fabs(got - want) <= tolerance_of(want)))
        golden_fail("%s, row %zu: log-odds %.9g, exactly %.9g", what, row, got, want);
}

static float inverse_of(const json_t *set)
{
    const float temperature = (float)golden_number(json_object_get(set, "temperature"));
    return temperature > 0.0f ? 1.0f / temperature : 1.0f;
}

/* cases: rows listed in full, at several temperatures. */
static size_t check_case(tt *handle, const json_t *logits, const json_t *one)
{
    static float rows[ROWS_MAX * 1024];
    struct tt_row_stats stats[ROWS_MAX];
    float scales[ROWS_MAX];
    char what[64];
    const char *reference = json_string_value(json_object_get(one, "logits_ref"));
    const json_t *list = reference ? json_object_get(logits, reference) : NULL;
    const json_t *exact = json_object_get(one, "exact_log_odds");
    const size_t count = json_array_size(list), vocab = json_array_size(json_array_get(list, 0));

    if (count == 0 || count > ROWS_MAX || vocab == 0 || vocab > 1024 ||
        json_array_size(exact) != count) {
        golden_fail("a case without its rows");
        return 0;
    }
    snprintf(what, sizeof what, "vocabulary %zu, 1/T %g", vocab, (double)inverse_of(one));
    for (size_t r = 0; r < count; r++) {
        golden_floats(json_array_get(list, r), rows + r * vocab, vocab);
        scales[r] = inverse_of(one);
    }
    const struct tt_rows view = {rows, TT_F32, count, vocab, vocab};
    if (tt_row_statistics(handle, &view, scales, stats)) golden_fail("%s", tt_message(handle));
    for (size_t r = 0; r < count; r++) expect_feature(&stats[r], golden_item(exact, r), what, r);
    return count;
}

/* generated: large vocabularies from a hash of row and column, as data/vectors/README defines it.
 */
static float generated_logit(uint32_t row, uint32_t column, float scale)
{
    uint32_t x = column * 2654435761u + row * 40503u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return ((float)(x >> 8 & 1023u) - 512.0f) / 64.0f * scale;
}

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16); /* nearest, ties to even */
}

static size_t check_generated(tt *handle, const json_t *one)
{
    static float wide[VOCAB_MAX];
    static uint16_t narrow[VOCAB_MAX];
    const size_t vocab = (size_t)golden_number(json_object_get(one, "V"));
    const float scale = (float)golden_number(json_object_get(one, "scale")),
                inverse = inverse_of(one);
    const char *type = json_string_value(json_object_get(one, "dtype"));
    const int is_bf16 = type && !strcmp(type, "bf16");
    const json_t *rows = json_object_get(one, "rows"),
                 *exact = json_object_get(one, "exact_log_odds");
    char what[96];

    if (vocab == 0 || vocab > VOCAB_MAX || json_array_size(rows) == 0) {
        golden_fail("a generated set without rows");
        return 0;
    }
    snprintf(what, sizeof what, "generated %zu %s scale %g 1/T %g", vocab, type, (double)scale,
             (double)inverse);
    for (size_t r = 0; r < json_array_size(rows); r++) {
        struct tt_row_stats stats;
        for (size_t v = 0; v < vocab; v++) {
            wide[v] = generated_logit((uint32_t)golden_item(rows, r), (uint32_t)v, scale);
            narrow[v] = to_bf16(wide[v]);
        }
        const struct tt_rows view = {is_bf16 ? (const void *)narrow : wide,
                                     is_bf16 ? TT_BF16 : TT_F32, 1, vocab, vocab};
        if (tt_row_statistics(handle, &view, &inverse, &stats))
            golden_fail("%s", tt_message(handle));
        expect_feature(&stats, golden_item(exact, r), what, r);
    }
    return json_array_size(rows);
}

/* nan: rows that must be flagged. */
static size_t check_flagged(tt *handle)
{
    static const float rows[3][4] = {
        {0.0f, NAN, 1.0f, 2.0f}, {NAN, NAN, NAN, NAN}, {0.0f, INFINITY, 1.0f, 2.0f}};
    struct tt_row_stats stats[3];
    const struct tt_rows view = {rows, TT_F32, 3, 4, 4};
    if (tt_row_statistics(handle, &view, NULL, stats)) golden_fail("%s", tt_message(handle));
    for (size_t r = 0; r < 3; r++)
        if (!(stats[r].flags & TT_ROW_FLAGGED) || !isnan(tt_feature(&stats[r], CLAMP)))
            golden_fail("row %zu of the flagged kinds got a feature", r);
    return 3;
}

void golden_features_replay(const char *name, const json_t *set)
{
    const struct tt_options options = {.backend = "cpu", .vocab = VOCAB_MAX, .max_rows = ROWS_MAX};
    size_t listed = 0, generated = 0, flagged, i;
    char summary[96];
    const json_t *one;
    tt *handle;

    if (tt_open(&handle, &options) != TT_OK) {
        golden_fail("no handle");
        golden_tap_line(name, "");
        return;
    }
    json_array_foreach(json_object_get(set, "cases"), i, one) listed +=
        check_case(handle, json_object_get(set, "logits"), one);
    json_array_foreach(json_object_get(set, "generated"), i, one) generated +=
        check_generated(handle, one);
    flagged = check_flagged(handle);
    if (listed == 0) golden_fail("nothing was compared");
    snprintf(summary, sizeof summary, "%zu listed, %zu generated and %zu flagged rows", listed,
             generated, flagged);
    tt_close(handle);
    golden_tap_line(name, summary);
}
