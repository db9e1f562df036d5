/* enumerate.c - depth-first enumeration of choices by replay; see enumerate.h. */
#include "config.h"

#include "tests/kernels/enumerate.h"

#include <math.h>
#include <string.h>

static size_t next_option(const struct enumerator_branch *branch, size_t from)
{
    while (from < branch->count && !(branch->probability[from] > 0.0)) from++;
    return from;
}

/* The branch at this depth: prescribed, or new with its first possible option. */
static size_t take(struct enumerator *e, const double *probability, size_t count)
{
    if (e->depth >= ENUMERATOR_DEPTH_MAX || count > ENUMERATOR_OPTIONS_MAX) {
        e->failure = "a path has too many choices, or a choice too many options";
        return 0;
    }
    struct enumerator_branch *branch = &e->branch[e->depth++];
    if (e->depth <= e->recorded) return branch->taken;
    branch->count = count;
    memcpy(branch->probability, probability, count * sizeof *probability);
    branch->taken = next_option(branch, 0);
    if (branch->taken == count) {
        e->failure = "a choice without any possible option";
        branch->taken = 0;
    }
    e->recorded = e->depth;
    return branch->taken;
}

static int normalise(struct enumerator *e, const double *weights, size_t count, double *law)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        if (!(weights[i] >= 0.0)) e->failure = "a negative weight";
        sum += weights[i];
    }
    if (!(sum > 0.0) || !isfinite(sum)) e->failure = "weights without a finite positive sum";
    for (size_t i = 0; i < count; i++) law[i] = weights[i] / sum;
    return e->failure == NULL;
}

static size_t enumerate_draw(struct choice *choice, const struct choice_site *site, uint32_t level,
                             const double *weights, size_t count)
{
    struct enumerator *e = (struct enumerator *)(void *)choice;
    double law[ENUMERATOR_OPTIONS_MAX];
    (void)site;
    (void)level;
    if (count > ENUMERATOR_OPTIONS_MAX) e->failure = "a draw over too many options";
    if (e->failure || !normalise(e, weights, count, law)) return 0;
    return take(e, law, count);
}

static int enumerate_coin(struct choice *choice, const struct choice_site *site, double probability)
{
    struct enumerator *e = (struct enumerator *)(void *)choice;
    const double clamped = fmin(fmax(probability, 0.0), 1.0);
    const double law[2] = {1.0 - clamped, clamped};
    (void)site;
    if (isnan(probability)) e->failure = "a coin that is not a number";
    if (e->failure) return 0;
    return (int)take(e, law, 2);
}

/* Integral of 1 / D(t)^2 with D(t) = low + slope * t from `from` to `to`, which may be infinite. */
static double segment(double low, double slope, double from, double to)
{
    if (isinf(to)) return 1.0 / (slope * (low + slope * from));
    return (to - from) / ((low + slope * from) * (low + slope * to));
}

/* With a = E_i, b = E_j = a t: i wins under q and j under p where q_j/q_i <= t <= p_j/p_i, and all
 * others are late with density exp(-a (1 + t + sum max(q_m/q_i, t p_m/p_j))). Integrating over a
 * leaves 1 / D(t)^2, D piecewise linear. */
static double joint_different(const double *q, const double *p, size_t count, size_t i, size_t j)
{
    const double end = p[i] > 0.0 ? p[j] / p[i] : INFINITY;
    double from = q[j] / q[i], total = 0.0;

    while (from < end) {
        double to = end, low = 1.0, slope = 1.0;
        for (size_t m = 0; m < count; m++) {
            if (m == i || m == j) continue;
            const double flat = q[m] / q[i], rise = p[m] / p[j];
            const double bend = rise > 0.0 ? flat / rise : INFINITY;
            if (bend > from) {
                low += flat;
                to = fmin(to, bend);
            } else {
                slope += rise;
            }
        }
        total += segment(low, slope, from, to);
        from = to;
    }
    return total;
}

double enumerator_joint_race(const double *q, const double *p, size_t count, size_t i, size_t j)
{
    if (!(q[i] > 0.0) || !(p[j] > 0.0)) return 0.0;
    if (i != j) return joint_different(q, p, count, i, j);
    double late = 0.0;
    for (size_t m = 0; m < count; m++) late += fmax(q[m] / q[i], p[m] / p[i]);
    return 1.0 / late;
}

/* The earlier race of this token index, the one with the same law where there is one. */
static const struct enumerator_race *earlier_race(struct enumerator *e, uint64_t token_index,
                                                  const double *law, size_t count, int *is_same)
{
    const struct enumerator_race *other = NULL;
    int others = 0;
    *is_same = 0;
    for (size_t r = 0; r < e->races; r++) {
        const struct enumerator_race *race = &e->race[r];
        if (race->token_index != token_index) continue;
        *is_same = race->count == count && !memcmp(race->law, law, count * sizeof *law);
        if (*is_same) return race;
        other = race;
        others++;
    }
    if (others > 1) e->failure = "three different races at one token index";
    return other;
}

static size_t enumerate_race(struct choice *choice, uint64_t token_index, const double *weights,
                             size_t count)
{
    struct enumerator *e = (struct enumerator *)(void *)choice;
    double law[ENUMERATOR_RACE_WIDTH_MAX], given[ENUMERATOR_RACE_WIDTH_MAX];
    int is_same;

    if (count > ENUMERATOR_RACE_WIDTH_MAX || e->races >= ENUMERATOR_RACES_MAX)
        e->failure = "a race over too many tokens, or too many races";
    if (e->failure || !normalise(e, weights, count, law)) return 0;
    const struct enumerator_race *other = earlier_race(e, token_index, law, count, &is_same);
    if (e->failure) return 0;
    if (is_same) return other->winner;
    if (other) {
        /* Both over the same tokens; the shorter law is 0 beyond its end. */
        double q[ENUMERATOR_RACE_WIDTH_MAX] = {0}, p[ENUMERATOR_RACE_WIDTH_MAX] = {0};
        const size_t width = count > other->count ? count : other->count;
        memcpy(q, other->law, other->count * sizeof *q);
        memcpy(p, law, count * sizeof *p);
        for (size_t j = 0; j < count; j++)
            given[j] = enumerator_joint_race(q, p, width, other->winner, j) / q[other->winner];
    } else {
        memcpy(given, law, count * sizeof *law);
    }
    struct enumerator_race *race = &e->race[e->races++];
    race->token_index = token_index;
    race->count = count;
    memcpy(race->law, law, count * sizeof *law);
    race->winner = take(e, given, count);
    return race->winner;
}

static int32_t enumerate_race_row(struct choice *choice, uint64_t token_index,
                                  const struct choice_row *row)
{
    struct enumerator *e = (struct enumerator *)(void *)choice;
    const float *logits = row->logits;
    double weights[ENUMERATOR_RACE_WIDTH_MAX], max = -INFINITY;

    if (row->dtype != TT_F32 || row->vocab > ENUMERATOR_RACE_WIDTH_MAX) {
        e->failure = "a race over a row that is not small or not fp32";
        return 0;
    }
    for (size_t i = 0; i < row->vocab; i++) max = fmax(max, (double)logits[i]);
    for (size_t i = 0; i < row->vocab; i++)
        weights[i] = exp(((double)logits[i] - max) * (double)row->inverse_temperature);
    return (int32_t)enumerate_race(choice, token_index, weights, row->vocab);
}

void enumerator_start(struct enumerator *enumerator)
{
    static const struct choice_ops ops = {enumerate_draw, enumerate_coin, enumerate_race,
                                          enumerate_race_row};
    memset(enumerator, 0, sizeof *enumerator);
    enumerator->base.ops = &ops;
}

int enumerator_next(struct enumerator *e)
{
    if (e->failure) return 0;
    if (e->started) {
        /* Drop exhausted branches from the end, then move the last one on. */
        e->recorded = e->depth;
        while (e->recorded > 0) {
            struct enumerator_branch *last = &e->branch[e->recorded - 1];
            const size_t option = next_option(last, last->taken + 1);
            if (option < last->count) {
                last->taken = option;
                break;
            }
            e->recorded--;
        }
        if (e->recorded == 0) return 0;
    }
    e->started = 1;
    e->depth = 0;
    e->races = 0;
    return 1;
}

double enumerator_weight(const struct enumerator *e)
{
    double weight = 1.0;
    for (size_t d = 0; d < e->depth; d++) weight *= e->branch[d].probability[e->branch[d].taken];
    return weight;
}
