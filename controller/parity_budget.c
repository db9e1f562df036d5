/* parity_budget.c - the released budget rule, for reproduction and comparison. Source: see the
 * header.
 *
 * Owns the arrays of struct parity_confidences; everything else is the caller's.
 */
#include "config.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "controller/parity_budget.h"

/* --------------------------------------------------------------------------------------- tables */

/* Cost at the i-th point after making the curve monotone. */
static double running_maximum(const struct parity_cost_point *curve, size_t i)
{
    double most = curve[0].ms;
    for (size_t j = 1; j <= i; j++) most = curve[j].ms > most ? curve[j].ms : most;
    return most;
}

static double between(const struct parity_cost_point *curve, size_t low, size_t high, int32_t size)
{
    const double a = running_maximum(curve, low), b = running_maximum(curve, high);
    const double slope = (b - a) / (double)(curve[high].size - curve[low].size);
    /* anchored at the nearer known end: inside the interval at its start, beyond the curve at its
     * end */
    return size <= curve[high].size ? a + slope * (double)(size - curve[low].size)
                                    : b + slope * (double)(size - curve[high].size);
}

static double table_entry(const struct parity_cost_point *curve, size_t points,
                          int32_t capture_limit, int32_t size)
{
    size_t above = 0; /* first point at or above this size */
    while (above < points && curve[above].size < size) above++;
    if (above == points)
        return points < 2 ? running_maximum(curve, points - 1)
                          : between(curve, points - 2, points - 1, size);
    const bool padded = capture_limit == 0 || size <= capture_limit;
    const bool measured_below = above > 0 && curve[above - 1].size > capture_limit;
    if (padded || !measured_below) return running_maximum(curve, above);
    return between(curve, above - 1, above, size);
}

void parity_table_build(const struct parity_cost_point *curve, size_t points, int32_t capture_limit,
                        double *table, size_t entries)
{
    assert(points >= 1);
    for (size_t i = 0; i < entries; i++)
        table[i] = table_entry(curve, points, capture_limit, (int32_t)i);
}

/* --------------------------------------------------------------------------------------- budget */

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

int64_t parity_budget_choose(const struct parity_budget_request *request, double *scratch)
{
    if (request->rows >= request->draft_entries || request->base_tokens < 0 ||
        (size_t)request->base_tokens >= request->verify_entries)
        return -1;
    size_t count = 0;
    for (size_t r = 0; r < request->rows; r++) {
        double survival = 1.0;
        for (int32_t k = 0; k < request->drafted[r]; k++) {
            survival *= (double)request->confidence[r * request->positions + (size_t)k];
            scratch[count++] = survival;
        }
    }
    qsort(scratch, count, sizeof(*scratch), descending);

    int64_t most = (int64_t)count;
    const int64_t room = (int64_t)request->verify_entries - 1 - request->base_tokens;
    if (most > room) most = room;
    if (request->max_logits >= 0 && most > request->max_logits - request->sampling_requests)
        most = request->max_logits - request->sampling_requests;
    const double drafting = request->draft_table[request->rows];
    double value = (double)request->sampling_requests;
    int64_t best = 0;
    double best_rate = value / (drafting + request->verify_table[request->base_tokens]);
    for (int64_t n = 1; n <= most; n++) {
        value += scratch[n - 1];
        const double rate = value / (drafting + request->verify_table[request->base_tokens + n]);
        if (rate > best_rate) {
            best_rate = rate;
            best = n;
        }
    }
    return best;
}

void parity_budget_split(const int32_t *drafted, const int32_t *non_draft, size_t rows,
                         int64_t budget, int32_t *tokens)
{
    int64_t total = 0, drafting = 0, seen = 0;
    for (size_t r = 0; r < rows; r++) {
        total += drafted[r];
        drafting += drafted[r] > 0;
    }
    for (size_t r = 0; r < rows; r++) {
        int64_t share = drafted[r];
        if (budget != total && drafted[r] > 0) {
            share = budget / drafting + (seen < budget % drafting);
            seen++;
        }
        tokens[r] = non_draft[r] + (int32_t)share;
    }
}

/* ---------------------------------------------------------------------------------- confidences */

int parity_confidences_init(struct parity_confidences *store, size_t slots, size_t positions)
{
    memset(store, 0, sizeof(*store));
    store->latest = calloc(slots, positions * sizeof(float));
    store->previous = calloc(slots, positions * sizeof(float));
    store->latest_step = calloc(slots, sizeof(int64_t));
    if (store->latest == NULL || store->previous == NULL || store->latest_step == NULL) {
        parity_confidences_free(store);
        return -1;
    }
    store->slots = slots;
    store->positions = positions;
    for (size_t slot = 0; slot < slots; slot++) parity_confidences_add(store, slot);
    return 0;
}

void parity_confidences_free(struct parity_confidences *store)
{
    free(store->latest);
    free(store->previous);
    free(store->latest_step);
    memset(store, 0, sizeof(*store));
}

void parity_confidences_add(struct parity_confidences *store, size_t slot)
{
    assert(slot < store->slots);
    for (size_t k = 0; k < store->positions; k++) {
        store->latest[slot * store->positions + k] = 1.0F;
        store->previous[slot * store->positions + k] = 1.0F;
    }
    store->latest_step[slot] = store->step;
}

const float *parity_confidences_for_budget(const struct parity_confidences *store, size_t slot)
{
    assert(slot < store->slots);
    const bool old_enough = store->latest_step[slot] <= store->step - 2;
    return (old_enough ? store->latest : store->previous) + slot * store->positions;
}

const float *parity_confidences_for_allocation(const struct parity_confidences *store, size_t slot)
{
    assert(slot < store->slots);
    return store->latest + slot * store->positions;
}

void parity_confidences_publish(struct parity_confidences *store, size_t slot,
                                const float *confidence)
{
    assert(slot < store->slots);
    float *latest = store->latest + slot * store->positions;
    memcpy(store->previous + slot * store->positions, latest, store->positions * sizeof(float));
    memcpy(latest, confidence, store->positions * sizeof(float));
    store->latest_step[slot] = store->step;
}

void parity_confidences_end_step(struct parity_confidences *store)
{
    store->step++;
}
