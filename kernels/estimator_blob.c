/* estimator_blob.c - an estimator as a blob and back, so that a restarted daemon continues where it
 * stopped.
 *
 * Format: "TTEB" and a version, the kind and the number of positions, then every number of the
 * state (doubles and floats by value, floats widened), each 64 bits little-endian; last an FNV-1a
 * sum of all before. One walk over the state serves size, save and load, so the three cannot
 * disagree.
 *
 * Any change of what is walked raises BLOB_VERSION; another version is refused and the caller
 * starts afresh.
 */
#include "config.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/estimator_handle.h"

#define BLOB_MAGIC 0x42455454U /* "TTEB" */
#define BLOB_VERSION 2U
#define WORD sizeof(uint64_t)

/* Where a walk stands. Writing: out set. Reading: in set. Neither: only counting. */
struct walk {
    unsigned char *out;
    const unsigned char *in;
    size_t offset, size;
    bool short_of; /* a read ran past the end */
};

static void walk_word(struct walk *walk, uint64_t *word)
{
    if (walk->out != NULL) {
        for (size_t i = 0; i < WORD; i++)
            walk->out[walk->offset + i] = (unsigned char)(*word >> (8 * i));
    } else if (walk->in != NULL) {
        if (walk->offset + WORD > walk->size) {
            walk->short_of = true;
            return;
        }
        *word = 0;
        for (size_t i = 0; i < WORD; i++) *word |= (uint64_t)walk->in[walk->offset + i] << (8 * i);
    }
    walk->offset += WORD;
}

static void walk_double(struct walk *walk, double *value)
{
    /* one NaN for all: machines differ in the one they make */
    const double written = isnan(*value) ? (double)NAN : *value;
    uint64_t word;
    memcpy(&word, &written, sizeof(word));
    walk_word(walk, &word);
    memcpy(value, &word, sizeof(word));
}

static void walk_float(struct walk *walk, float *value)
{
    double wide = (double)*value;
    walk_double(walk, &wide);
    *value = (float)wide;
}

static void walk_int(struct walk *walk, int32_t *value)
{
    uint64_t word = (uint64_t)(int64_t)*value;
    walk_word(walk, &word);
    *value = (int32_t)(uint32_t)word;
}

static void walk_doubles(struct walk *walk, double *values, int32_t count)
{
    for (int32_t i = 0; i < count; i++) walk_double(walk, &values[i]);
}

static void walk_vector(struct walk *walk, struct online_vector *vector, int32_t positions)
{
    walk_double(walk, &vector->slope);
    walk_doubles(walk, vector->intercept, positions);
}

static void walk_arrowhead(struct walk *walk, struct online_arrowhead *sums, int32_t positions)
{
    walk_double(walk, &sums->slope);
    walk_doubles(walk, sums->cross, positions);
    walk_doubles(walk, sums->corner, positions);
}

static void walk_speed(struct walk *walk, struct online_speed *speed, int32_t positions)
{
    walk_double(walk, &speed->forget);
    walk_double(walk, &speed->fit.slope);
    walk_double(walk, &speed->fit.level);
    walk_doubles(walk, speed->fit.intercept, positions);
    walk_vector(walk, &speed->target, positions);
    walk_arrowhead(walk, &speed->curvature, positions);
    walk_arrowhead(walk, &speed->scatter, positions);
    walk_vector(walk, &speed->window_gradient, positions);
    walk_arrowhead(walk, &speed->window_curvature, positions);
    walk_arrowhead(walk, &speed->window_scatter, positions);
    walk_double(walk, &speed->window_loss);
    walk_double(walk, &speed->loss);
}

static void walk_drift(struct walk *walk, struct online_drift_sum *sum)
{
    walk_double(walk, &sum->residual);
    walk_double(walk, &sum->variance);
    walk_double(walk, &sum->weight);
    walk_double(walk, &sum->scale2);
}

static void walk_misfit(struct walk *walk, struct online_misfit *misfit)
{
    walk_double(walk, &misfit->excess);
    walk_double(walk, &misfit->weight);
    walk_double(walk, &misfit->noise);
}

static void walk_online(struct walk *walk, struct online *online)
{
    walk_int(walk, &online->refit_interval_steps);
    walk_double(walk, &online->prior_slope);
    walk_double(walk, &online->prior_level);
    walk_double(walk, &online->centre);
    walk_double(walk, &online->feature_sum);
    walk_word(walk, &online->feature_count);
    walk_int(walk, &online->active);
    for (int s = 0; s < ONLINE_SPEEDS; s++) walk_speed(walk, &online->speed[s], online->positions);
    walk_int(walk, &online->window_steps);
    walk_double(walk, &online->window_feature_sum);
    walk_word(walk, &online->window_labels);
    walk_double(walk, &online->window_residual);
    walk_double(walk, &online->window_variance);
    walk_drift(walk, &online->drift_window);
    walk_drift(walk, &online->drift_sum);
    walk_double(walk, &online->drift_z);
    walk_word(walk, &online->refits);
    walk_word(walk, &online->rejected);
    walk_word(walk, &online->drift_events);
    walk_misfit(walk, &online->misfit_slope);
    walk_misfit(walk, &online->misfit_level);
    for (int32_t k = 0; k < online->positions; k++) walk_misfit(walk, &online->misfit_position[k]);
}

static void walk_sums(struct walk *walk, struct parity_sums *sums, int32_t positions)
{
    for (int32_t k = 0; k < positions; k++) {
        for (int i = 0; i < 3; i++) walk_float(walk, &sums->position[k].info[i]);
        for (int i = 0; i < 2; i++) walk_float(walk, &sums->position[k].gradient[i]);
    }
}

static void walk_parity(struct walk *walk, struct parity *parity)
{
    walk_int(walk, &parity->refit_interval_steps);
    walk_float(walk, &parity->slope);
    for (int32_t k = 0; k < parity->positions; k++) {
        walk_float(walk, &parity->intercept[k]);
        walk_word(walk, &parity->count[k]);
    }
    walk_sums(walk, &parity->window, parity->positions);
    walk_int(walk, &parity->window_steps);
    walk_word(walk, &parity->refits);
    walk_word(walk, &parity->refused);
    uint64_t rows = parity->rows;
    walk_word(walk, &rows);
    parity->rows = (uint32_t)rows;
    for (int level = 0; level < PARITY_TREE_LEVELS; level++) {
        if ((parity->rows >> level) & 1U) walk_sums(walk, &parity->tree[level], parity->positions);
    }
}

static void walk_calibration(struct walk *walk, struct calibration *calibration)
{
    walk_double(walk, &calibration->unit);
    for (int32_t k = 0; k < calibration->positions; k++) {
        for (int b = 0; b < TT_CALIBRATION_BINS; b++) {
            walk_double(walk, &calibration->bin[k][b].n);
            walk_double(walk, &calibration->bin[k][b].sum_p);
            walk_double(walk, &calibration->bin[k][b].sum_y);
        }
        walk_double(walk, &calibration->reached[k]);
        walk_double(walk, &calibration->accepted[k]);
        walk_double(walk, &calibration->predicted[k]);
    }
    walk_double(walk, &calibration->squared_error);
    walk_double(walk, &calibration->surprise);
    walk_double(walk, &calibration->n);
    walk_doubles(walk, calibration->by_feature[0], CALIBRATION_FEATURE_BINS);
    walk_doubles(walk, calibration->by_feature[1], CALIBRATION_FEATURE_BINS);
}

/* Everything after the kind and the number of positions. */
static void walk_body(struct walk *walk, struct tt_estimator *estimator)
{
    walk_word(walk, &estimator->steps);
    walk_word(walk, &estimator->labels);
    walk_word(walk, &estimator->flagged);
    for (int32_t k = 0; k < estimator->positions; k++)
        walk_word(walk, &estimator->position_labels[k]);
    walk_doubles(walk, estimator->recent_labels, estimator->positions);
    walk_calibration(walk, &estimator->calibration);
    if (estimator->kind == TT_PARITY)
        walk_parity(walk, &estimator->u.parity);
    else
        walk_online(walk, &estimator->u.online);
}

static uint64_t blob_sum(const unsigned char *bytes, size_t size)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325); /* FNV-1a, 64 bit */
    for (size_t i = 0; i < size; i++) sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    return sum;
}

int tt_estimator_save(const tt_estimator *estimator, void *buffer, size_t size, size_t *needed)
{
    if (estimator == NULL) return TT_EINVAL;
    /* A walk that writes or counts changes nothing, but its pointers are the reader's: walk a copy.
     */
    struct tt_estimator copy = *estimator;
    uint64_t head = ((uint64_t)BLOB_VERSION << 32) | BLOB_MAGIC;
    uint64_t shape = ((uint64_t)(uint32_t)copy.positions << 32) | (uint32_t)copy.kind;
    struct walk count = {0};
    walk_body(&count, &copy);
    const size_t total = count.offset + 3 * WORD;
    if (needed != NULL) *needed = total;
    if (buffer == NULL) return TT_OK;
    if (size < total) return TT_ELIMIT;

    struct walk write = {.out = buffer, .size = total};
    walk_word(&write, &head);
    walk_word(&write, &shape);
    walk_body(&write, &copy);
    uint64_t sum = blob_sum(buffer, write.offset);
    walk_word(&write, &sum);
    return TT_OK;
}

static bool misfit_valid(const struct online_misfit *misfit)
{
    return isfinite(misfit->excess) && isfinite(misfit->weight) && isfinite(misfit->noise) &&
           misfit->noise >= 0.0 && (misfit->weight > 0.0 || misfit->excess <= 0.0);
}

/* The fields that later arithmetic or indexing relies on; a blob passes the sum and is still not to
 * be trusted. */
static bool state_valid(const struct tt_estimator *estimator)
{
    if (!(estimator->calibration.unit >= 1.0) || !isfinite(estimator->calibration.unit))
        return false;
    if (estimator->kind == TT_PARITY) {
        const struct parity *parity = &estimator->u.parity;
        return parity->refit_interval_steps >= 1 && parity->window_steps >= 0 &&
               parity->window_steps < parity->refit_interval_steps &&
               parity->rows < (1U << PARITY_TREE_LEVELS);
    }
    const struct online *online = &estimator->u.online;
    if (online->refit_interval_steps < 1 || online->window_steps < 0 ||
        online->window_steps >= online->refit_interval_steps || online->active < 0 ||
        online->active >= ONLINE_SPEEDS || !isfinite(online->centre) ||
        !isfinite(online->feature_sum) || !isfinite(online->prior_slope + online->prior_level) ||
        !(online->drift_window.scale2 >= 1.0) || !(online->drift_sum.scale2 >= 1.0) ||
        !misfit_valid(&online->misfit_slope) || !misfit_valid(&online->misfit_level))
        return false;
    for (int32_t k = 0; k < online->positions; k++) {
        if (!misfit_valid(&online->misfit_position[k])) return false;
    }
    for (int s = 0; s < ONLINE_SPEEDS; s++) {
        double total = online->speed[s].fit.slope + online->speed[s].fit.level;
        for (int32_t k = 0; k < online->positions; k++)
            total += online->speed[s].fit.intercept[k] + online->speed[s].target.intercept[k] +
                     online->speed[s].curvature.cross[k] + online->speed[s].curvature.corner[k];
        if (!isfinite(total) || !(online->speed[s].forget > 0.0 && online->speed[s].forget <= 1.0))
            return false;
    }
    return true;
}

int tt_estimator_load(tt_estimator **out, const void *buffer, size_t size)
{
    if (out == NULL) return TT_EINVAL;
    *out = NULL;
    if (buffer == NULL || size < 3 * WORD) return TT_EINVAL;
    struct walk read = {.in = buffer, .size = size - WORD};
    struct walk tail = {.in = buffer, .offset = size - WORD, .size = size};
    uint64_t head = 0, shape = 0, sum = 0;
    walk_word(&read, &head);
    walk_word(&read, &shape);
    walk_word(&tail, &sum);
    if (head != (((uint64_t)BLOB_VERSION << 32) | BLOB_MAGIC) ||
        sum != blob_sum(buffer, size - WORD))
        return TT_EINVAL;

    const struct tt_estimator_options options = {.kind =
                                                     (enum tt_estimator_kind)(shape & 0xffffffffU),
                                                 .positions = (int32_t)(shape >> 32),
                                                 .prior_slope = NAN,
                                                 .prior_level = NAN};
    tt_estimator *estimator = NULL;
    const int status = tt_estimator_new(&estimator, &options); /* checks kind and positions */
    if (status != TT_OK) return status;
    walk_body(&read, estimator);
    if (read.short_of || read.offset != size - WORD || !state_valid(estimator)) {
        tt_estimator_free(estimator);
        return TT_EINVAL;
    }
    *out = estimator;
    return TT_OK;
}
