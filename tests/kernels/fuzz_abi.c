/* fuzz_abi.c - libtrimtab under hostile calls: bytes become sequences of calls with null pointers,
 * impossible shapes, numbers that are none and blobs that were tampered with.
 *
 * What must hold: a refused call gives a status of the header and words for it, and changes nothing
 * (outputs, rows, the estimator's blob); a call that succeeds keeps to its documented ranges. Sizes
 * that would be accepted are within the arrays given; absurd ones must be refused before anything
 * is read.
 *
 * Alone it runs random inputs, then the corpus with deterministic damage (make check). With
 * libFuzzer:
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined … tests/kernels/fuzz_abi.c and the
 *   library's sources, then ./a.out tests/kernels/corpus/abi
 */
#include "config.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "kernels/trimtab.h"
#include "tests/support/fuzz_replay.h"

enum { VOCAB = 140, STRIDE = VOCAB + 3, ROWS = 3, BLOCK_ROWS = TT_MAX_POSITIONS + 1, LIST = 4 };
enum { BLOB_BYTES = 1 << 16, CALLS_MAX = 48, REQUESTS = 5 };

#define COUNT(ARRAY) (sizeof(ARRAY) / sizeof(ARRAY)[0])

struct world {
    const uint8_t *data;
    size_t size, at;
    tt *handle;
    tt_estimator *estimator;
    int32_t positions;
    float target[BLOCK_ROWS * STRIDE], draft[BLOCK_ROWS * STRIDE];
    struct tt_row_stats stats[BLOCK_ROWS];
};

/* ---- what a byte means */

static uint8_t next(struct world *w)
{
    return w->at < w->size ? w->data[w->at++] : 0;
}

static int chance(struct world *w) /* seldom */
{
    return next(w) >= 0xe0;
}

static float any_float(struct world *w)
{
    static const float odd[] = {0.0f,  -0.0f,  1.0f,     -1.0f,     0.5f,    2.0f,
                                NAN,   -NAN,   INFINITY, -INFINITY, FLT_MAX, -FLT_MAX,
                                1e30f, -1e30f, FLT_MIN,  1e-45f,    -1e-45f, 16.0f};
    const uint8_t byte = next(w);

    return byte < 128 ? (float)(byte - 64) / 8.0f : odd[byte % COUNT(odd)];
}

static double any_double(struct world *w)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, DBL_MAX, -DBL_MAX, 5e-324, -0.0, 1e300};
    const uint8_t byte = next(w);

    return byte < 200 ? (double)(byte - 100) / 50.0 : odd[byte % COUNT(odd)];
}

static int32_t any_int(struct world *w)
{
    static const int32_t odd[] = {
        -1, INT32_MIN, INT32_MAX, TT_MAX_POSITIONS, TT_MAX_POSITIONS + 1, VOCAB - 1, VOCAB, -2};
    const uint8_t byte = next(w);

    return byte < 192 ? byte % 8 : odd[byte % COUNT(odd)];
}

static const char *any_word(struct world *w)
{
    static const char *const words[] = {"cpu", "baseline",         "",  "avx3",
                                        "CPU", "cuda:99999999999", NULL};

    return words[next(w) % COUNT(words)];
}

static size_t any_size(struct world *w)
{
    static const size_t odd[] = {0,
                                 1,
                                 (size_t)INT32_MAX,
                                 (size_t)INT32_MAX + 1,
                                 SIZE_MAX,
                                 SIZE_MAX / 2,
                                 SIZE_MAX / 2 + 1,
                                 SIZE_MAX / 4 + 1,
                                 SIZE_MAX / 8,
                                 VOCAB + 1};
    return odd[next(w) % COUNT(odd)];
}

static float any_scale(struct world *w)
{
    return chance(w) ? any_float(w) : 0.25f * (float)(1 + next(w) % 8);
}

/* ---- what must hold */

static int require_status(int status)
{
    REQUIRE(status <= 0 && status >= -8);
    REQUIRE(strcmp(tt_strerror(status), "unknown status") != 0);
    return status;
}

static int require_words(const struct world *w, int status)
{
    if (require_status(status) < 0) REQUIRE(strlen(tt_message(w->handle)) > 5);
    return status;
}

static void require_statistics(const struct tt_row_stats *stats, size_t vocab)
{
    if (stats->flags & TT_ROW_FLAGGED) {
        REQUIRE(stats->argmax == -1 && isnan(stats->log_odds) && isnan(tt_feature(stats, 16.0f)));
        return;
    }
    REQUIRE(stats->argmax >= 0 && (size_t)stats->argmax < vocab && isfinite(stats->max));
    REQUIRE(stats->rest >= 0.0f && !isnan(stats->log_odds) && !isnan(stats->log_norm));
    REQUIRE(fabsf(tt_feature(stats, 16.0f)) <= 16.0f);
}

static size_t estimator_blob(const tt_estimator *estimator, unsigned char *blob)
{
    size_t needed = 0;

    REQUIRE(tt_estimator_save(estimator, blob, BLOB_BYTES, &needed) == TT_OK);
    REQUIRE(needed > 0 && needed <= BLOB_BYTES);
    return needed;
}

/* ---- rows */

static void fill_rows(struct world *w)
{
    float *const rows = chance(w) ? w->draft : w->target;
    const uint8_t seed = next(w);

    for (size_t i = 0; i < BLOCK_ROWS * STRIDE; i++)
        rows[i] = (float)((i * 37 + seed * i / 5) % 61) / 6.0f - 5.0f;
    for (int odd = next(w) % 8; odd > 0; odd--) {
        const size_t row = next(w) % 4, token = next(w) % VOCAB;

        rows[row * STRIDE + token] = any_float(w);
    }
}

/* Shapes that the library may accept lie within the draft rows. */
static struct tt_rows any_rows(struct world *w)
{
    struct tt_rows rows = {w->draft, (enum tt_dtype)(next(w) % 3), 1 + next(w) % ROWS,
                           1 + next(w) % VOCAB, STRIDE};

    if (chance(w)) rows.data = NULL;
    if (chance(w)) rows.dtype = (enum tt_dtype)any_int(w);
    if (chance(w)) rows.rows = any_size(w);
    if (chance(w)) rows.vocab = any_size(w);
    if (chance(w)) rows.stride = any_size(w);
    if (rows.rows > 1 && rows.stride > STRIDE && rows.stride <= SIZE_MAX / 4) rows.stride = STRIDE;
    return rows;
}

static void call_statistics(struct world *w)
{
    const struct tt_rows rows = any_rows(w);
    float scale[ROWS + 1];
    struct tt_row_stats stats[ROWS + 1], before[ROWS + 1];

    for (size_t r = 0; r <= ROWS; r++) scale[r] = any_scale(w);
    memset(stats, 0x5a, sizeof stats);
    memcpy(before, stats, sizeof stats);
    const int status = tt_row_statistics(w->handle, chance(w) ? NULL : &rows,
                                         chance(w) ? NULL : scale, chance(w) ? NULL : stats);
    if (require_words(w, status) < 0)
        REQUIRE(memcmp(stats, before, sizeof stats) == 0);
    else if (memcmp(stats, before, sizeof stats) != 0)
        for (size_t r = 0; r < rows.rows; r++) {
            require_statistics(&stats[r], rows.vocab);
            w->stats[r] = stats[r];
        }
}

static void call_sample(struct world *w)
{
    struct tt_rows row = any_rows(w);
    const int coupled = next(w) % 2;
    const float scale[ROWS] = {any_scale(w), 1.0f, 1.0f};
    struct tt_row_stats stats[ROWS] = {w->stats[next(w) % ROWS]};
    const enum tt_purpose purpose = (enum tt_purpose)(next(w) % 7);
    int32_t token[2] = {77777, 77777};

    if (!chance(w)) row.rows = 1;
    if (chance(w)) stats->rest = any_float(w);
    if (chance(w)) stats->argmax = any_int(w);
    if (next(w) % 2 && tt_row_statistics(w->handle, &row, scale, stats) != TT_OK) return;
    for (int i = 0; i < 2; i++) {
        const int status =
            coupled ? tt_sample_coupled(w->handle, &row, scale[0], 5, 9, &token[i])
                    : tt_sample(w->handle, &row, scale[0], stats, 5, 9, 1, purpose, &token[i]);

        if (require_words(w, status) < 0)
            REQUIRE(token[i] == 77777);
        else
            REQUIRE(token[i] >= 0 && (size_t)token[i] < row.vocab);
    }
    REQUIRE(token[0] == token[1]);
}

/* ---- transforms and verification */

struct wishes { /* a transform with its lists */
    struct tt_transform transform;
    struct tt_logit_bias bias[LIST];
    struct tt_token_count counts[LIST];
};

static const struct tt_transform *any_transform(struct world *w, struct wishes *wishes)
{
    for (size_t i = 0; i < LIST; i++) {
        wishes->bias[i] = (struct tt_logit_bias){any_int(w), any_float(w)};
        wishes->counts[i] = (struct tt_token_count){any_int(w), any_int(w)};
    }
    wishes->transform = (struct tt_transform){.temperature = any_scale(w),
                                              .top_k = any_int(w),
                                              .top_p = any_float(w),
                                              .min_p = any_float(w),
                                              .presence_penalty = any_float(w),
                                              .frequency_penalty = any_float(w),
                                              .repetition_penalty = any_float(w),
                                              .bias = chance(w) ? NULL : wishes->bias,
                                              .bias_count = next(w) % (LIST + 1),
                                              .counts = chance(w) ? NULL : wishes->counts,
                                              .counts_count = next(w) % (LIST + 1)};
    return &wishes->transform;
}

static void call_transform(struct world *w)
{
    struct wishes wishes;
    const struct tt_transform *transform = any_transform(w, &wishes);
    const int32_t extra[] = {any_int(w), any_int(w), any_int(w)};
    const size_t vocab = chance(w) ? any_size(w) : (size_t)(1 + next(w) % VOCAB);
    float before[STRIDE], *row = w->target;
    size_t kept = 0;

    memcpy(before, row, sizeof before);
    const int status =
        tt_transform_row(w->handle, chance(w) ? NULL : row, vocab, chance(w) ? NULL : transform,
                         chance(w) ? NULL : extra, next(w) % (COUNT(extra) + 1));
    if (require_words(w, status) < 0) {
        REQUIRE(memcmp(before, row, sizeof before) == 0);
        return;
    }
    REQUIRE(memcmp(before + vocab, row + vocab, (STRIDE - vocab) * sizeof *row) == 0);
    for (size_t i = 0; i < vocab; i++) kept += !isnan(row[i]);
    REQUIRE(kept <= vocab);
}

static struct tt_block any_block(struct world *w, int32_t *tokens, struct wishes *wishes)
{
    struct tt_block block = {.rule = (enum tt_rule)(next(w) % 4),
                             .target = w->target,
                             .target_stride = STRIDE,
                             .vocab = VOCAB - next(w) % 20,
                             .draft = w->draft,
                             .draft_stride = STRIDE,
                             .draft_vocab = VOCAB - 20 - next(w) % 20,
                             .tokens = tokens,
                             .admitted = next(w) % 4,
                             .temperature = any_scale(w),
                             .key = next(w),
                             .token_index = any_size(w)};

    for (size_t i = 0; i < TT_MAX_POSITIONS; i++) tokens[i] = (int32_t)(i * 7 % 100);
    for (int odd = next(w) % 4; odd > 0; odd--) tokens[next(w) % 4] = any_int(w);
    if (block.rule == TT_GREEDY && !chance(w)) block.temperature = 0.0f;
    if (next(w) % 2) {
        block.transform = any_transform(w, wishes);
        if (!chance(w)) wishes->transform.temperature = block.temperature;
    }
    if (next(w) % 2) block.draft_stats = w->stats;
    if (chance(w)) block.rule = (enum tt_rule)any_int(w);
    if (chance(w)) block.admitted = any_int(w);
    if (chance(w)) block.target = NULL;
    if (chance(w)) block.draft = NULL;
    if (chance(w)) block.tokens = NULL;
    if (chance(w)) block.vocab = any_size(w);
    if (chance(w)) block.draft_vocab = any_size(w);
    if (chance(w)) block.target_stride = any_size(w);
    if (chance(w)) block.draft_stride = any_size(w);
    return block;
}

/* Whether a block that the library may accept would read beyond the arrays. */
static int reads_beyond(const struct tt_block *block)
{
    const int several = block->admitted > 0;

    return (several && block->target_stride > STRIDE && block->target_stride <= SIZE_MAX / 512) ||
           (block->admitted > 1 && block->draft_stride > STRIDE &&
            block->draft_stride <= SIZE_MAX / 512);
}

static void require_verdict(const struct tt_block *block, const struct tt_verdict *verdict)
{
    REQUIRE(verdict->accepted >= 0 && verdict->accepted <= block->admitted);
    REQUIRE(verdict->labels == verdict->accepted || verdict->labels == verdict->accepted + 1);
    REQUIRE(verdict->labels <= block->admitted);
    REQUIRE(verdict->next >= -1 && verdict->next < (int32_t)block->vocab);
    REQUIRE((verdict->next == -1) == ((verdict->flags & TT_ROW_FLAGGED) != 0));
    for (int32_t k = 0; k < verdict->labels; k++)
        REQUIRE(verdict->soft[k] >= 0.0f && verdict->soft[k] <= 1.0f);
}

static void call_verify(struct world *w)
{
    struct wishes wishes;
    int32_t tokens[TT_MAX_POSITIONS];
    const struct tt_block block = any_block(w, tokens, &wishes);
    static float before[BLOCK_ROWS * STRIDE];
    struct tt_verdict verdict, untouched;

    if (reads_beyond(&block)) return;
    memset(&verdict, 0x5a, sizeof verdict);
    untouched = verdict;
    memcpy(before, w->target, sizeof before);
    const int status = tt_verify(w->handle, chance(w) ? NULL : &block, chance(w) ? NULL : &verdict);
    if (require_words(w, status) < 0) {
        REQUIRE(memcmp(&verdict, &untouched, sizeof verdict) == 0);
        REQUIRE(memcmp(before, w->target, sizeof before) == 0);
        return;
    }
    require_verdict(&block, &verdict);
    if (!block.transform) REQUIRE(memcmp(before, w->target, sizeof before) == 0);
}

/* ---- estimator and allocation */

static void call_observe(struct world *w)
{
    static unsigned char before[BLOB_BYTES], after[BLOB_BYTES];
    float feature[TT_MAX_POSITIONS], soft[TT_MAX_POSITIONS], predicted[TT_MAX_POSITIONS];
    const size_t size = estimator_blob(w->estimator, before);

    for (size_t i = 0; i < TT_MAX_POSITIONS; i++) {
        feature[i] = i < 6 ? any_float(w) : (float)i;
        soft[i] = i < 3 && chance(w) ? any_float(w) : 0.5f;
        predicted[i] = i < 3 && chance(w) ? any_float(w) : 0.25f;
    }
    struct tt_observation observation = {.feature = chance(w) ? NULL : feature,
                                         .soft = next(w) % 2 ? NULL : soft,
                                         .predicted = next(w) % 2 ? NULL : predicted,
                                         .admitted = any_int(w),
                                         .accepted = any_int(w)};
    if (next(w) % 2 && observation.admitted > 0 && observation.admitted <= w->positions)
        observation.accepted = observation.accepted & observation.admitted;
    const int status = tt_estimator_observe(w->estimator, chance(w) ? NULL : &observation);
    if (require_status(status) < 0)
        REQUIRE(estimator_blob(w->estimator, after) == size && memcmp(before, after, size) == 0);
}

static void call_predict(struct world *w)
{
    const float feature[] = {any_float(w), any_float(w), any_float(w)};
    double probability[COUNT(feature)] = {-5, -5, -5};
    const int32_t position = any_int(w);
    const size_t count = next(w) % (COUNT(feature) + 1);
    const int status = tt_estimator_predict(w->estimator, position, chance(w) ? NULL : feature,
                                            count, probability);

    require_status(status);
    for (size_t i = 0; i < COUNT(feature); i++)
        if (status < 0 || i >= count)
            REQUIRE(probability[i] == -5.0);
        else
            REQUIRE(probability[i] >= 0.0 && probability[i] <= 1.0);
}

static void call_prior(struct world *w)
{
    static unsigned char before[BLOB_BYTES], after[BLOB_BYTES];
    const size_t size = estimator_blob(w->estimator, before);
    const double slope = any_double(w), level = any_double(w);

    if (require_status(tt_estimator_set_prior(w->estimator, slope, level)) < 0)
        REQUIRE(estimator_blob(w->estimator, after) == size && memcmp(before, after, size) == 0);
}

static void call_report(struct world *w)
{
    struct tt_estimator_report report;
    struct tt_calibration_bin bins[TT_CALIBRATION_BINS];

    REQUIRE(tt_estimator_report(w->estimator, &report) == TT_OK);
    REQUIRE(report.positions == w->positions);
    require_status(tt_estimator_calibration(w->estimator, any_int(w), bins));
    REQUIRE(tt_estimator_starved(w->estimator) >= -1);
    REQUIRE(tt_estimator_starved(w->estimator) < w->positions);
    REQUIRE(tt_estimator_report(w->estimator, NULL) == TT_EINVAL);
    REQUIRE(tt_estimator_calibration(w->estimator, 0, NULL) == TT_EINVAL);
}

static void sign_blob(unsigned char *blob, size_t size)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325); /* FNV-1a, as estimator_blob.c writes it */

    for (size_t i = 0; i + 8 < size; i++) sum = (sum ^ blob[i]) * UINT64_C(0x100000001b3);
    for (size_t i = 0; i < 8; i++) blob[size - 8 + i] = (unsigned char)(sum >> 8 * i);
}

/* A blob with numbers exchanged, sometimes signed again: refused, or an estimator that works. */
static void call_load(struct world *w)
{
    static unsigned char blob[BLOB_BYTES];
    size_t size = estimator_blob(w->estimator, blob);
    tt_estimator *loaded = (tt_estimator *)(void *)blob;

    for (int damage = next(w) % 5; damage > 0; damage--) {
        const size_t word = ((size_t)next(w) << 8 | next(w)) % (size / 8);
        const double number = any_double(w);
        const uint64_t integer = (uint64_t)any_size(w);

        memcpy(blob + 8 * word, next(w) % 2 ? (const void *)&number : &integer, 8);
    }
    if (chance(w)) size = any_size(w) < size ? any_size(w) % (size + 1) : size - next(w) % 9;
    if (next(w) % 4 && size >= 8) sign_blob(blob, size);
    if (require_status(tt_estimator_load(&loaded, blob, size)) < 0) {
        REQUIRE(loaded == NULL);
        return;
    }
    tt_estimator_free(w->estimator);
    w->estimator = loaded;
    struct tt_estimator_report report;
    REQUIRE(tt_estimator_report(loaded, &report) == TT_OK);
    REQUIRE(report.positions >= 1 && report.positions <= TT_MAX_POSITIONS);
    w->positions = report.positions;
    call_report(w);
}

static void call_save(struct world *w)
{
    static unsigned char whole[BLOB_BYTES], part[BLOB_BYTES], again[BLOB_BYTES];
    const size_t size = estimator_blob(w->estimator, whole), room = size - 1 - next(w) % size;
    tt_estimator *copy;
    size_t needed = 0;

    memset(part, 0x5a, sizeof part);
    REQUIRE(tt_estimator_save(w->estimator, part, room, &needed) == TT_ELIMIT && needed == size);
    for (size_t i = 0; i < size; i++) REQUIRE(part[i] == 0x5a);
    REQUIRE(tt_estimator_load(&copy, whole, size) == TT_OK);
    REQUIRE(estimator_blob(copy, again) == size && memcmp(whole, again, size) == 0);
    tt_estimator_free(copy);
}

static void call_new(struct world *w)
{
    const struct tt_estimator_options options = {.kind = (enum tt_estimator_kind)(any_int(w) % 3),
                                                 .positions = any_int(w),
                                                 .refit_interval_steps = any_int(w),
                                                 .prior_slope = any_double(w),
                                                 .prior_level = any_double(w)};
    tt_estimator *made = (tt_estimator *)(void *)w;

    if (require_status(tt_estimator_new(&made, &options)) < 0) {
        REQUIRE(made == NULL);
        return;
    }
    tt_estimator_free(w->estimator);
    w->estimator = made;
    w->positions = options.positions;
}

static void call_survival(struct world *w)
{
    double probability[4], survival[4] = {-5, -5, -5, -5};
    const size_t count = next(w) % 5;

    for (size_t i = 0; i < 4; i++) probability[i] = any_double(w);
    const int status = tt_survival(chance(w) ? NULL : probability, count, survival);
    require_status(status);
    for (size_t i = 0; i < 4; i++)
        if (status < 0 || i >= count)
            REQUIRE(survival[i] == -5.0);
        else
            REQUIRE(survival[i] >= 0.0 && survival[i] <= (i > 0 ? survival[i - 1] : 1.0));
}

static void call_allocate(struct world *w)
{
    static const int64_t budgets[] = {-1, 0, 1, 2, 7, 40, INT64_MAX, INT64_MIN};
    double survival[REQUESTS * 4];
    int32_t drafted[REQUESTS], admitted[REQUESTS];
    size_t rows = next(w) % (REQUESTS + 1), positions = next(w) % 5;
    int64_t total = 0, budget = budgets[next(w) % COUNT(budgets)];

    for (size_t i = 0; i < COUNT(survival); i++) survival[i] = any_double(w);
    for (size_t r = 0; r < REQUESTS; r++) {
        drafted[r] = chance(w) ? any_int(w) : (int32_t)(positions - next(w) % (positions + 1));
        admitted[r] = -5;
    }
    if (chance(w)) rows = (size_t)INT32_MAX + any_size(w) % INT32_MAX;
    if (chance(w)) positions = TT_MAX_POSITIONS + 1 + any_size(w) / 2;
    const int status = tt_allocate(chance(w) ? NULL : survival, rows, positions,
                                   chance(w) ? NULL : drafted, budget, admitted);
    if (status < 0) require_status(status);
    for (size_t r = 0; r < REQUESTS; r++) {
        if (status < 0 || r >= rows) {
            REQUIRE(admitted[r] == -5);
        } else {
            REQUIRE(admitted[r] >= 0 && admitted[r] <= drafted[r]);
            total += admitted[r];
        }
    }
    if (status >= 0) REQUIRE(total == status && total <= budget);
}

/* ---- a run */

static void call_open(struct world *w)
{
    const struct tt_options options = {.backend = any_word(w),
                                       .isa = any_word(w),
                                       .vocab = chance(w) ? VOCAB : any_size(w),
                                       .max_rows = any_size(w)};
    tt *handle = (tt *)(void *)w;

    /* Fair, and too large for a test. */
    if (options.vocab == (size_t)INT32_MAX && options.max_rows <= VOCAB + 1) return;
    if (options.max_rows >= (size_t)INT32_MAX && options.max_rows <= (size_t)INT32_MAX + 1) return;
    if (require_status(tt_open(&handle, &options)) < 0)
        REQUIRE(handle == NULL);
    else
        tt_close(handle);
    REQUIRE(tt_open(NULL, &options) == TT_EINVAL && tt_open(&handle, NULL) == TT_EINVAL);
}

static void call_null(struct world *w)
{
    const struct tt_rows rows = any_rows(w);
    struct tt_row_stats stats = w->stats[0];
    tt_estimator *out;
    int32_t token = 3;
    float row[2] = {0};

    tt_close(NULL);
    tt_estimator_free(NULL);
    REQUIRE(tt_message(NULL) && tt_isa(NULL) && tt_strerror(any_int(w)) && tt_version());
    REQUIRE(tt_row_statistics(NULL, &rows, NULL, &stats) == TT_EINVAL);
    REQUIRE(tt_sample(NULL, &rows, 1.0f, &stats, 1, 1, 1, TT_DRAFT, &token) == TT_EINVAL);
    REQUIRE(tt_sample_coupled(NULL, &rows, 1.0f, 1, 1, &token) == TT_EINVAL);
    REQUIRE(tt_transform_row(NULL, row, 2, NULL, NULL, 0) == TT_EINVAL);
    REQUIRE(tt_verify(NULL, NULL, NULL) == TT_EINVAL);
    REQUIRE(tt_estimator_new(NULL, NULL) == TT_EINVAL && tt_estimator_new(&out, NULL) == TT_EINVAL);
    REQUIRE(tt_estimator_predict(NULL, 0, NULL, 0, NULL) == TT_EINVAL);
    REQUIRE(tt_estimator_observe(NULL, NULL) == TT_EINVAL);
    REQUIRE(tt_estimator_end_step(NULL) == TT_EINVAL && tt_estimator_starved(NULL) == -1);
    REQUIRE(tt_estimator_set_prior(NULL, 0.5, 0.0) == TT_EINVAL);
    REQUIRE(tt_estimator_report(NULL, NULL) == TT_EINVAL);
    REQUIRE(tt_estimator_save(NULL, NULL, 0, NULL) == TT_EINVAL);
    REQUIRE(tt_estimator_load(NULL, NULL, 0) == TT_EINVAL);
    REQUIRE(tt_estimator_load(&out, NULL, 9) == TT_EINVAL && out == NULL);
    REQUIRE(isnan(tt_feature(NULL, 1.0f)));
    REQUIRE(token == 3);
}

static void call_end_step(struct world *w)
{
    const int bits = tt_estimator_end_step(w->estimator);

    REQUIRE(bits >= 0 && bits <= (TT_STEP_REFIT | TT_STEP_DRIFT | TT_STEP_REJECTED));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const calls[])(struct world *) = {
        call_statistics, call_sample,   call_transform, call_verify, call_observe, call_predict,
        call_end_step,   call_prior,    call_report,    call_load,   call_save,    call_new,
        call_survival,   call_allocate, call_open,      call_null,   fill_rows};
    static struct world w;
    const struct tt_options options = {.backend = "cpu", .vocab = VOCAB, .max_rows = ROWS};

    memset(&w, 0, sizeof w);
    w.data = data;
    w.size = size;
    w.positions = 1 + next(&w) % TT_MAX_POSITIONS;
    const struct tt_estimator_options learning = {.kind = next(&w) % 2 ? TT_ONLINE : TT_PARITY,
                                                  .positions = w.positions,
                                                  .refit_interval_steps = 1 + next(&w) % 3,
                                                  .prior_slope = NAN,
                                                  .prior_level = NAN};
    REQUIRE(tt_open(&w.handle, &options) == TT_OK);
    REQUIRE(tt_estimator_new(&w.estimator, &learning) == TT_OK);
    fill_rows(&w);
    for (int i = 0; i < CALLS_MAX && w.at < w.size; i++) calls[next(&w) % COUNT(calls)](&w);
    tt_estimator_free(w.estimator);
    tt_close(w.handle);
    return 0;
}

enum { RANDOM_INPUTS = 4000, RANDOM_BYTES = 700 };

static void run_random_inputs(void)
{
    uint8_t data[RANDOM_BYTES];

    for (uint64_t i = 0; i < RANDOM_INPUTS; i++) {
        for (size_t at = 0; at < sizeof data; at++)
            data[at] = (uint8_t)(256.0 * tt_uniform(1, i, (uint32_t)at, TT_EXPLORE));
        LLVMFuzzerTestOneInput(data, 1 + (size_t)(i * 7 % sizeof data));
    }
    printf("# %d random inputs\n", RANDOM_INPUTS);
}

const struct fuzz_corpus fuzz_corpus = {
    .folder = "kernels/corpus/abi",
    FUZZ_SPICE("\x00\x01\x02\x03\x07\x3f\x7f\x80\xc1\xdf\xe0\xe9\xf3\xff"),
    .least = 10,
    .before = run_random_inputs};
