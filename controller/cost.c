/* cost.c - the measured cost of a step: cells, robust learning, prediction.
 *
 * Owns the cells. A cell is a forgotten mean of what was measured at exactly that size; between
 * measured sizes the curve is linear and beyond the largest it goes on with the last slope, so a
 * staircase (7 tokens dearer than 8) stays one. The gate is the median of the last nine
 * observations of the cell: what lies more than five median absolute deviations from it is dropped
 * and counted. One spike never moves the median; a real change of level is the median after five
 * observations, and then the mean starts again from it.
 *
 * What comes and goes within seconds, a neighbour on the machine or contexts that grow inside their
 * band, makes all sizes of a curve dearer alike. Were it left to the means, the size in use would
 * be compared with what the others took before. So a curve has a tempo, how the last few
 * observations went against the means of their sizes: means are of tempo 1, and what is believed of
 * any size is its mean times the tempo. An observation moves its mean with nine tenths of the tempo
 * taken out, so that what stays passes over into the means of the sizes in use, in some 500
 * observations.
 *
 * A cell that nobody visits grows stale while the machine changes (another clock, a neighbour that
 * came or went). Once it was not seen for so long it follows the pace: the median, over the cells
 * that are being seen, of their mean against what they started from. So a table made on another
 * day, or on a busy machine, is neither believed for ever where it is not looked at, nor compared
 * with fresh values as if both were of today.
 *
 * A mean stands for fewer observations the longer its size was not seen. One that was not seen for
 * some dozens cannot be gated by its last ones, which are of another moment: a look at it is
 * believed whatever it is, but never a change by much at once, since it may be a spike.
 *
 * A stale cell that is out of all proportion to its neighbours is doubted: it is priced as they
 * are, so that the planner goes there again and sees. A size that was never measured is doubted
 * while its first value is out of all proportion to its measured neighbours, so that a spike cannot
 * become the price of a size that the planner would then never visit again.
 */
#include "config.h"

#include "controller/cost.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/cost_cells.h"

#define OUTLIER_DEVIATIONS 5.0 /* design, algorithm 5: beyond 5 median absolute deviations */
#define SPREAD_FLOOR                                                                               \
    0.02 /* of the median: timers are not better than this, a gate must not be narrower than 10 %  \
          */
#define LEAST_GAIN 0.02     /* of one observation on a settled mean: a memory of some 50 */
#define HALVING_ABSENCE 5.0 /* after so many observations of other sizes it stands for half, … */
#define LEAST_WEIGHT 3.0    /* … in the end for so many: a look moves it by a quarter at most */
#define DOUBT_FACTOR                                                                               \
    2.0 /* a first value this far from its neighbours' line waits for a second opinion */
#define TRUSTED_COUNT 3 /* observations whose median is believed whatever the neighbours say */
#define STALE_OBSERVATIONS 500 /* a cell not seen for so long follows the pace */
#define PACE_OBSERVATIONS 64   /* how often the pace is taken */
#define AWAY_OBSERVATIONS 64   /* a cell not seen for so long: its last values gate nothing, */
#define AWAY_CHANGE 0.3        /* and a look is believed a change by so much at most */
#define TEMPO_GAIN 0.25        /* some four observations */
#define TEMPO_MOST 1.5         /* and its inverse: a larger change is the cell's own */
#define TEMPO_SHARE 0.9        /* is the moment's; the rest passes over into the means */
#define FLAT_RATIO 1.02        /* a curve that rises by less is flat */
#define DENSE_REQUESTS 16      /* of so many, every size up to a draft each is profiled */

/* ---- curves ---- */

static bool curve_init(struct curve *curve, int size)
{
    *curve = (struct curve){.size = size};
    curve->cell = calloc((size_t)size + 1, sizeof *curve->cell);
    curve->ms = calloc((size_t)size + 1, sizeof *curve->ms);
    curve->ratio = calloc((size_t)size + 1, sizeof *curve->ratio);
    curve->pace = curve->tempo = 1;
    for (int i = 0; i < COST_MOMENTS; i++) curve->moment[i] = 1;
    if (!curve->cell || !curve->ms || !curve->ratio) return false;
    for (int i = 0; i <= size; i++) curve->ms[i] = NAN;
    return true;
}

static bool curve_copy(struct curve *curve, const struct curve *from)
{
    struct curve own;

    if (!curve_init(&own, from->size)) {
        *curve = own; /* whatever was had is released with it */
        return false;
    }
    memcpy(own.cell, from->cell, ((size_t)from->size + 1) * sizeof *own.cell);
    memcpy(own.ms, from->ms, ((size_t)from->size + 1) * sizeof *own.ms);
    *curve = *from;
    curve->cell = own.cell;
    curve->ms = own.ms;
    curve->ratio = own.ratio;
    return true;
}

static void curve_release(struct curve *curve)
{
    free(curve->cell);
    free(curve->ms);
    free(curve->ratio);
}

static bool is_stale(const struct curve *curve, const struct cell *cell)
{
    return curve->clock - cell->stamp > STALE_OBSERVATIONS;
}

static bool is_away(const struct curve *curve, const struct cell *cell)
{
    return cell->n > 0 && curve->clock - cell->stamp > AWAY_OBSERVATIONS;
}

static int previous_measured(const struct curve *curve, int size)
{
    do size--;
    while (size > 0 && curve->cell[size].n == 0);
    return size; /* 0 = none */
}

static int next_measured(const struct curve *curve, int size)
{
    do size++;
    while (size <= curve->size && curve->cell[size].n == 0);
    return size <= curve->size ? size : 0;
}

/* The line between the measured neighbours; NaN at the ends. */
static double neighbours_line(const struct curve *curve, int size)
{
    int before = previous_measured(curve, size), after = next_measured(curve, size);
    if (!before || !after) return NAN;
    double low = curve->cell[before].ms, high = curve->cell[after].ms;
    return low + (high - low) * (size - before) / (after - before);
}

double curve_cell_ms(const struct curve *curve, int size)
{
    const struct cell *cell = &curve->cell[size];
    if (!is_stale(curve, cell)) return cell->ms;
    double line = neighbours_line(curve, size);
    bool doubted = cell->ms > DOUBT_FACTOR * line; /* worth another try */
    return (doubted ? line : cell->ms) * curve->pace / cell->pace;
}

static void fill_between(struct curve *curve, int from, int to)
{
    double low = curve_cell_ms(curve, from), step = (curve_cell_ms(curve, to) - low) / (to - from);
    for (int i = from + 1; i < to; i++) curve->ms[i] = low + step * (i - from);
}

/* The slope beyond the last size. A falling last stair says nothing about larger sizes: then the
 * whole curve's. */
static double end_slope(const struct curve *curve)
{
    if (curve->first == curve->last) return curve_cell_ms(curve, curve->last) / curve->last;
    /* Neighbouring sizes measured online would make a slope of their noise: take one a good way
     * off. */
    int before = previous_measured(curve, curve->last);
    while (before > curve->first && before > curve->last * 3 / 4)
        before = previous_measured(curve, before);
    double slope =
        (curve_cell_ms(curve, curve->last) - curve_cell_ms(curve, before)) / (curve->last - before);
    if (slope <= 0)
        slope = (curve_cell_ms(curve, curve->last) - curve_cell_ms(curve, curve->first)) /
                (curve->last - curve->first);
    return slope > 0 ? slope : 0;
}

static void fill_ends(struct curve *curve)
{
    /* once: of a stale cell it looks for neighbours, and there are none beyond */
    const double first = curve_cell_ms(curve, curve->first),
                 last = curve_cell_ms(curve, curve->last);

    curve->slope = end_slope(curve);
    for (int i = 1; i < curve->first; i++) curve->ms[i] = first;
    for (int i = curve->last + 1; i <= curve->size; i++)
        curve->ms[i] = last + curve->slope * (i - curve->last);
}

/* Cell `size` has a new value: repair the curve around it. */
static void curve_refresh(struct curve *curve, int size)
{
    bool at_end = curve->first == 0 || size <= curve->first || size >= curve->last;
    if (curve->first == 0 || size < curve->first) curve->first = size;
    if (size > curve->last) curve->last = size;
    curve->ms[size] = curve_cell_ms(curve, size);
    int before = previous_measured(curve, size), after = next_measured(curve, size);
    if (before) fill_between(curve, before, size);
    if (after) fill_between(curve, size, after);
    if (at_end || !after || after == curve->last) fill_ends(curve);
}

/* At tempo 1: the mean, or the line between means. */
static double curve_level(const struct curve *curve, int size)
{
    if (curve->last == 0) return NAN;
    if (size <= 0) return 0;
    if (size <= curve->size) return curve->ms[size];
    return curve_cell_ms(curve, curve->last) + curve->slope * (size - curve->last);
}

/* Now. */
static double curve_at(const struct curve *curve, int size)
{
    return curve->tempo * curve_level(curve, size);
}

void curve_set(struct curve *curve, int size, double ms, double spread_ms, int64_t n,
               int64_t dropped)
{
    assert(size >= 1 && size <= curve->size && ms > 0 && n > 0);
    struct cell *cell = &curve->cell[size];
    *cell = (struct cell){
        .ms = ms, .spread_ms = spread_ms, .n = n, .dropped = dropped, .changed = true};
    cell->base_ms = ms / curve->pace;
    cell->pace = curve->pace;
    cell->weight = fmin((double)n, 1 / LEAST_GAIN);
    cell->stamp = curve->clock;
    /* The stored level gets a majority in the gate, or the first observation after a restart would
     * be the median. */
    for (int i = 0; i < TRUSTED_COUNT; i++) cell->recent[i] = ms;
    cell->recent_count = cell->recent_next = TRUSTED_COUNT;
    curve_refresh(curve, size);
}

/* ---- learning ---- */

static double median_of(const double *value, int count, double centre)
{
    double sorted[COST_RECENT];
    assert(count >= 1 && count <= COST_RECENT);
    for (int i = 0; i < count; i++) {
        double x = isnan(centre) ? value[i] : fabs(value[i] - centre);
        int at = i;
        for (; at > 0 && sorted[at - 1] > x; at--) sorted[at] = sorted[at - 1];
        sorted[at] = x;
    }
    return count % 2 ? sorted[count / 2] : 0.5 * (sorted[count / 2 - 1] + sorted[count / 2]);
}

/* Is this first value out of proportion to the line between the measured neighbours? */
static bool doubtful(const struct curve *curve, int size, double ms)
{
    if (size < curve->first || size > curve->last || curve->first == curve->last) return false;
    double line = curve->ms[size];
    return ms > DOUBT_FACTOR * line || ms * DOUBT_FACTOR < line;
}

static bool drop(struct cell *cell)
{
    cell->dropped++;
    cell->changed = true;
    return false;
}

static int compare_ratios(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Take the pace from the cells that are being seen, and let the others follow it. */
static void take_pace(struct curve *curve)
{
    size_t fresh = 0;
    for (int i = curve->first; i > 0 && i <= curve->last; i++) {
        const struct cell *cell = &curve->cell[i];
        if (cell->n > 0 && cell->base_ms > 0 && !is_stale(curve, cell) &&
            cell->weight > TRUSTED_COUNT)
            curve->ratio[fresh++] = cell->ms / cell->base_ms;
    }
    if (fresh == 0) return;
    qsort(curve->ratio, fresh, sizeof *curve->ratio, compare_ratios);
    curve->pace = 0.5 * (curve->ratio[(fresh - 1) / 2] + curve->ratio[fresh / 2]);
    for (int i = curve->first; i <= curve->last; i++)
        if (curve->cell[i].n > 0 && is_stale(curve, &curve->cell[i])) curve_refresh(curve, i);
}

static void keep_recent(struct cell *cell, double ms)
{
    cell->recent[cell->recent_next] = ms;
    cell->recent_next = (uint8_t)((cell->recent_next + 1) % COST_RECENT);
    if (cell->recent_count < COST_RECENT) cell->recent_count++;
}

static void begin_window(struct cell *cell, double ms)
{
    cell->recent_count = cell->recent_next = 0;
    keep_recent(cell, ms);
}

static void move_mean(struct cell *cell, double difference_ms)
{
    cell->weight = fmin(cell->weight + 1, 1 / LEAST_GAIN);
    cell->ms += difference_ms / cell->weight;
}

/* Of three, the one in the middle: a spike is no tempo. */
static void take_tempo(struct curve *curve, const struct cell *cell, double ms)
{
    if (cell->weight <= TRUSTED_COUNT) return;
    curve->moment[curve->clock % COST_MOMENTS] =
        fmin(fmax(ms / cell->ms, 1 / TEMPO_MOST), TEMPO_MOST);
    curve->tempo += TEMPO_GAIN * (median_of(curve->moment, COST_MOMENTS, NAN) - curve->tempo);
}

/* What the size took some time ago may have changed since. */
static void weigh_absence(const struct curve *curve, struct cell *cell)
{
    double absence = (double)(curve->clock - cell->stamp);
    double most = 1 / (LEAST_GAIN * (1 + absence / HALVING_ABSENCE));
    cell->weight = fmin(cell->weight, fmax(most, LEAST_WEIGHT));
}

static bool curve_observe(struct curve *curve, int size, double ms)
{
    if (size < 1 || size > curve->size || !(ms > 0) || !isfinite(ms)) return false;
    struct cell *cell = &curve->cell[size];
    bool away = is_away(curve, cell);
    if (away) {
        cell->ms = curve_cell_ms(curve, size); /* of a stale one what is believed now */
        ms /= curve->tempo;
    } else {
        take_tempo(curve, cell, ms);
        ms /= 1 + TEMPO_SHARE * (curve->tempo - 1);
    }
    weigh_absence(curve, cell);
    cell->pace = curve->pace;
    cell->stamp = ++curve->clock;
    keep_recent(cell, ms);

    double median = median_of(cell->recent, cell->recent_count, NAN);
    cell->spread_ms = median_of(cell->recent, cell->recent_count, median);
    double gate = OUTLIER_DEVIATIONS * fmax(cell->spread_ms, SPREAD_FLOOR * median);
    if (cell->n == 0 && cell->recent_count < TRUSTED_COUNT && doubtful(curve, size, ms))
        return drop(cell);
    bool outside = cell->recent_count >= TRUSTED_COUNT && fabs(ms - median) > gate;
    if (outside && !away) return drop(cell);

    if (outside) {
        begin_window(cell, ms);
        double most = AWAY_CHANGE * cell->ms;
        move_mean(cell, fmin(fmax(ms - cell->ms, -most), most));
    } else if (cell->recent_count <= TRUSTED_COUNT && cell->n < TRUSTED_COUNT) {
        cell->ms = cell->n == 0 && cell->recent_count < TRUSTED_COUNT ? ms : median;
        cell->weight = cell->recent_count;
    } else if (fabs(cell->ms - median) > gate) {
        cell->ms = ms; /* the level has changed: what the tempo left of that is the cell's own */
        cell->weight = TRUSTED_COUNT;
    } else {
        move_mean(cell, ms - cell->ms);
    }
    cell->n++;
    cell->changed = true;
    if (cell->base_ms <= 0 && cell->n >= TRUSTED_COUNT) cell->base_ms = cell->ms / curve->pace;
    curve_refresh(curve, size);
    if (curve->clock % PACE_OBSERVATIONS == 0) take_pace(curve);
    return true;
}

/* ---- life, bands ---- */

struct cost_model *cost_new(int max_tokens, int max_requests)
{
    assert(max_tokens >= 1 && max_requests >= 1);
    struct cost_model *cost = calloc(1, sizeof *cost);
    if (!cost) return NULL;
    bool ok = curve_init(&cost->draft, max_requests);
    ok = curve_init(&cost->own, max_requests) && ok;
    for (int band = 0; band < COST_CONTEXT_BANDS; band++) {
        ok = curve_init(&cost->verify[band], max_tokens) && ok;
        cost->scale[band] = 1;
    }
    cost->base = -1;
    if (ok) return cost;
    cost_free(cost);
    return NULL;
}

struct cost_model *cost_copy(const struct cost_model *from)
{
    struct cost_model *cost = malloc(sizeof *cost);
    bool ok;

    if (!cost) return NULL;
    *cost = *from;
    ok = curve_copy(&cost->draft, &from->draft);
    ok = curve_copy(&cost->own, &from->own) && ok;
    for (int band = 0; band < COST_CONTEXT_BANDS; band++)
        ok = curve_copy(&cost->verify[band], &from->verify[band]) && ok;
    if (ok) return cost;
    cost_free(cost);
    return NULL;
}

void cost_free(struct cost_model *cost)
{
    if (!cost) return;
    curve_release(&cost->draft);
    curve_release(&cost->own);
    for (int band = 0; band < COST_CONTEXT_BANDS; band++) curve_release(&cost->verify[band]);
    free(cost);
}

int cost_context_band(int cells)
{
    return cells < 512 ? 0 : cells < 2048 ? 1 : cells < 8192 ? 2 : 3;
}

static void learn_scale(struct cost_model *cost, int band, int tokens, double ms)
{
    double base = curve_level(&cost->verify[cost->base], tokens);
    ms /= cost->verify[band].tempo;
    if (band == cost->base || !(base > 0)) return;
    cost->scale_weight[band] = fmin(cost->scale_weight[band] + 1, 1 / LEAST_GAIN);
    cost->scale[band] += (ms / base - cost->scale[band]) / cost->scale_weight[band];
}

void cost_settle(struct cost_model *cost)
{
    int most = 0;
    for (int band = 0; band < COST_CONTEXT_BANDS; band++) {
        int measured = 0;
        for (int i = 1; i <= cost->verify[band].size; i++)
            measured += cost->verify[band].cell[i].n > 0;
        if (measured > most) {
            most = measured;
            cost->base = band;
        }
    }
    for (int band = 0; band < COST_CONTEXT_BANDS; band++) {
        cost->scale[band] = 1;
        cost->scale_weight[band] = 0;
        for (int i = 1; i <= cost->verify[band].size; i++)
            if (cost->verify[band].cell[i].n > 0)
                learn_scale(cost, band, i, cost->verify[band].cell[i].ms);
    }
}

bool cost_observe_verify(struct cost_model *cost, int tokens, int band, double ms)
{
    assert(band >= 0 && band < COST_CONTEXT_BANDS);
    if (!curve_observe(&cost->verify[band], tokens, ms)) return false;
    if (cost->base < 0) cost->base = band;
    learn_scale(cost, band, tokens, ms);
    return true;
}

bool cost_observe_draft(struct cost_model *cost, int requests, double ms)
{
    return curve_observe(&cost->draft, requests, ms);
}

void cost_observe_own(struct cost_model *cost, int requests, double ms)
{
    (void)curve_observe(&cost->own, requests, ms); /* a dropped one is counted in its cell */
}

/* ---- prediction ---- */

double cost_verify(const struct cost_model *cost, int tokens, int band)
{
    assert(band >= 0 && band < COST_CONTEXT_BANDS);
    if (cost->base < 0) return NAN;
    const struct curve *own = &cost->verify[band];
    if (band == cost->base || (tokens >= 1 && tokens <= own->size && own->cell[tokens].n > 0))
        return curve_at(own, tokens);
    return cost->scale[band] * own->tempo * curve_level(&cost->verify[cost->base], tokens);
}

double cost_draft(const struct cost_model *cost, int requests)
{
    return curve_at(&cost->draft, requests);
}

double cost_own(const struct cost_model *cost, int requests)
{
    return curve_at(&cost->own, requests);
}

double cost_scatter(const struct cost_model *cost)
{
    if (cost->base < 0) return NAN;
    const struct curve *curve = &cost->verify[cost->base];
    size_t count = 0;
    for (int i = curve->first; i <= curve->last; i++)
        if (curve->cell[i].recent_count > TRUSTED_COUNT)
            curve->ratio[count++] = curve->cell[i].spread_ms / curve->cell[i].ms;
    if (count == 0) return NAN;
    qsort(curve->ratio, count, sizeof *curve->ratio, compare_ratios);
    return curve->ratio[count / 2];
}

void cost_set_unsteady(struct cost_model *cost, const char *why)
{
    snprintf(cost->unsteady, sizeof cost->unsteady, "%s", why ? why : "");
}

const char *cost_unsteady(const struct cost_model *cost)
{
    return cost->unsteady[0] ? cost->unsteady : NULL;
}

bool cost_flat(const struct cost_model *cost)
{
    if (cost->base < 0) return false;
    const struct curve *curve = &cost->verify[cost->base];
    if (curve->first == curve->last) return false; /* one size shows no shape */
    for (int i = curve->first + 1; i <= curve->last; i++)
        if (curve->ms[i] > FLAT_RATIO * curve->ms[curve->first]) return false;
    return true;
}

/* 1 .. 8, then two sizes a doubling: 12 16 24 32 … */
static bool on_ladder(int size)
{
    if (size <= 8) return true;
    while (size % 2 == 0 && size > 3) size /= 2;
    return size == 1 || size == 3 || size == 2;
}

/* Every size up to 8 (a CPU's staircase is there), two a doubling, every uniform K at full load,
 * and the largest; of few requests every size up to one draft each: a step that trims is there, and
 * an unmeasured size between two stairs would be believed cheaper than it is. */
int cost_profile_sizes(int parallel, int max_draft, int *sizes, int capacity)
{
    assert(parallel >= 1 && max_draft >= 0 && capacity >= 1);
    int largest = parallel * (max_draft + 1), count = 0;
    for (int size = 1; size < largest && count < capacity - 1; size++)
        if (on_ladder(size) || size % parallel == 0 ||
            (parallel <= DENSE_REQUESTS && size < 2 * parallel))
            sizes[count++] = size;
    sizes[count++] = largest; /* interpolation needs the end more than the steps before it */
    return count;
}
