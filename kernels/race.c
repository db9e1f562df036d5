/* race.c - who wins the coupled race.
 *
 * The noise comes top-down (race_body.h): a group's best conceivable score is its largest logit
 * with its earliest arrival. The group with the highest such bound is run first; every group whose
 * bound stays below the best score found is skipped, which leaves the winner exactly what a run
 * over all tokens would give.
 */
#include "config.h"

#include "kernels/race.h"
#include "kernels/race_body.h"

#include <math.h>

struct race {
    uint64_t key, token_index;
    const struct choice_row *row;
    float max;     /* scores are relative to the row's largest logit */
    float leading; /* score and token of the leader */
    int32_t token;
};

/* Run the group's tokens against the leader. */
static void race_group(tt *handle, struct race *race, size_t group)
{
    float arrival[ROW_GROUP];
    const struct choice_row *row = race->row;
    const size_t from = group * ROW_GROUP;
    const size_t count = row->vocab - from < ROW_GROUP ? row->vocab - from : ROW_GROUP;

    handle->ops->arrivals(race->key, race->token_index, (uint32_t)group, handle->group_first[group],
                          handle->group_place[group], arrival);
    for (size_t j = 0; j < count; j++) {
        const float x = row_value(row->logits, (enum row_dtype)row->dtype, from + j);
        if (!(x > -row_infinity())) continue;
        const float score = (x - race->max) * row->inverse_temperature - log_lane(arrival[j]);
        const int32_t token = (int32_t)(from + j);
        if (race->token < 0 || score > race->leading ||
            (score == race->leading && token < race->token)) {
            race->leading = score;
            race->token = token;
        }
    }
}

/* Bounds of all groups; returns the group with the highest. */
static size_t race_bounds(tt *handle, const struct race *race, const float *maxima, size_t groups)
{
    float *bound = handle->group_bound;
    size_t best = 0;
    for (size_t g = 0; g < groups; g++) {
        bound[g] = race_bound(maxima[g], race->max, race->row->inverse_temperature,
                              handle->group_first[g]);
        if (bound[g] > bound[best]) best = g;
    }
    return best;
}

int32_t race_row(tt *handle, uint64_t key, uint64_t token_index, const struct choice_row *row)
{
    const size_t groups = row_groups(row->vocab);
    const float *maxima = row->group_max;
    struct race race = {key, token_index, row, -row_infinity(), -row_infinity(), -1};

    if (!maxima) {
        (void)handle->ops->group_maxima(row->logits, row->dtype, row->vocab, handle->group_max);
        maxima = handle->group_max;
    }
    for (size_t g = 0; g < groups; g++) race.max = maxima[g] > race.max ? maxima[g] : race.max;
    if (race.max == -row_infinity()) return -1;
    handle->ops->first_arrivals(key, token_index, groups, handle->group_first, handle->group_place);

    const size_t best = race_bounds(handle, &race, maxima, groups);
    race_group(handle, &race, best);
    for (size_t g = 0; g < groups; g++) {
        if (g != best && handle->group_bound[g] >= race.leading - race_slack(race.leading))
            race_group(handle, &race, g);
    }
    return race.token;
}

size_t race_weights(uint64_t key, uint64_t token_index, const double *weights, size_t count)
{
    size_t winner = 0;
    double soonest = INFINITY;

    for (size_t from = 0; from < count; from += ROW_GROUP) {
        const size_t group = from / ROW_GROUP;
        float arrival[ROW_GROUP];
        uint32_t word, place;
        race_first(key, token_index, (uint32_t)group, &word, &place);
        row_ops_baseline.arrivals(key, token_index, (uint32_t)group, race_first_arrival(word),
                                  place, arrival);
        for (size_t j = 0; j < ROW_GROUP && from + j < count; j++) {
            if (!(weights[from + j] > 0.0)) continue;
            const double time = (double)arrival[j] / weights[from + j];
            if (time < soonest) {
                soonest = time;
                winner = from + j;
            }
        }
    }
    return winner;
}
