/* rates.c - see rates.h. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "controller/rates.h"

#define SIDE_SECONDS 300
#define LEAST_SECONDS 5
#define SETTLE_SECONDS 1 /* the second of the change belongs to neither side */

static const struct rates_second *newest(const struct rates *rates, int back)
{
    return &rates->second[(rates->first + rates->count - 1 - back + RATES_SECONDS) % RATES_SECONDS];
}

void rates_add(struct rates *rates, const struct rates_second *second)
{
    if (rates->count == RATES_SECONDS) {
        rates->first = (rates->first + 1) % RATES_SECONDS;
        rates->count--;
    }
    rates->second[(rates->first + rates->count++) % RATES_SECONDS] = *second;
}

void rates_window(const struct rates *rates, int window_s, struct rates_second *sum)
{
    memset(sum, 0, sizeof *sum);
    for (int back = 0; back < window_s && back < rates->count; back++) {
        const struct rates_second *second = newest(rates, back);

        if (back == 0) {
            sum->time_ms = second->time_ms;
            sum->mode = second->mode;
            sum->fixed_draft = second->fixed_draft;
            sum->running = second->running;
        }
        sum->seconds += second->seconds;
        tally_accumulate(&sum->delta, &second->delta, 1);
    }
}

/* Busy seconds of one side of a change of mode, oldest first. */
struct side {
    int n;
    double rate[SIDE_SECONDS];      /* tok/s */
    double seconds;                 /* of them */
    double step_ms;                 /* sum of step times, then its mean */
    double mean, variance, freedom; /* relative variance of the mean; its degrees of freedom */
};

/* Seconds from `back` towards the past while the mode stays, at most SIDE_SECONDS of them; returns
 * where the mode changed. */
static int gather(const struct rates *rates, int back, struct side *side)
{
    const enum mode mode = newest(rates, back)->mode;
    int64_t steps = 0;

    for (int taken = 0; back < rates->count && newest(rates, back)->mode == mode; back++, taken++) {
        const struct rates_second *second = newest(rates, back);

        if (second->delta.steps == 0 || taken >= SIDE_SECONDS) continue;
        side->rate[side->n++] = (double)second->delta.emitted / second->seconds;
        side->seconds += second->seconds;
        side->step_ms += second->delta.step_ms;
        steps += second->delta.steps;
    }
    side->step_ms = steps > 0 ? side->step_ms / (double)steps : (double)NAN;
    return back;
}

/* Neighbouring seconds are alike (a long request lasts many): n of them count as n(1-r)/(1+r)
 * independent ones, r their correlation corrected for its bias (Kendall 1954). As in the store's
 * view toggle_effect. */
static void judge(struct side *side)
{
    double squares = 0, products = 0, r, effective;

    for (int i = 0; i < side->n; i++) side->mean += side->rate[i] / side->n;
    for (int i = 0; i < side->n; i++) {
        double d = side->rate[i] - side->mean;

        squares += d * d;
        if (i > 0) products += d * (side->rate[i - 1] - side->mean);
    }
    r = squares > 0 ? products / squares : 0;
    r = (r + 1.0 / side->n) / fmax(0.1, 1 - 3.0 / side->n);
    r = fmin(fmax(r, 0), 0.95);
    effective = side->n * (1 - r) / (1 + r);
    side->variance = squares / (side->n - 1) / effective / (side->mean * side->mean);
    side->freedom = fmax(1, effective - 1);
}

/* Half of the 95 % interval of the logarithm of the ratio of two means: Welch 1947 by the delta
 * method; Student's quantile by Abramowitz & Stegun 26.7.5. */
static double half_width(const struct side *a, const struct side *b)
{
    double v = a->variance + b->variance,
           f = v * v /
               (a->variance * a->variance / a->freedom + b->variance * b->variance / b->freedom);

    f = isfinite(f) ? fmax(1, f) : 1e9;
    return (1.96 + 2.372 / f + 2.822 / (f * f) + 2.556 / (f * f * f)) * sqrt(v);
}

bool rates_toggle_effect(const struct rates *rates, struct rates_effect *effect)
{
    struct side after = {0}, before = {0};
    int change, end;
    double ratio, half;

    if (rates->count == 0) return false;
    change = gather(rates, 0, &after);
    if (change + SETTLE_SECONDS >= rates->count) return false;
    end = gather(rates, change + SETTLE_SECONDS, &before);
    if (newest(rates, change)->mode != newest(rates, end - 1)->mode) return false;
    if (after.n < LEAST_SECONDS || before.n < LEAST_SECONDS) return false;
    judge(&after);
    judge(&before);
    if (!(after.mean > 0 && before.mean > 0)) return false;
    ratio = after.mean / before.mean;
    half = half_width(&before, &after);
    *effect = (struct rates_effect){
        .before = newest(rates, change)->mode,
        .after = newest(rates, 0)->mode,
        .tps_before = before.mean,
        .tps_after = after.mean,
        .step_ms_before = before.step_ms,
        .step_ms_after = after.step_ms,
        .gain = ratio - 1,
        .low = ratio * exp(-half) - 1,
        .high = ratio * exp(half) - 1,
        .n = after.n + before.n,
        .window_s = fmin(after.seconds, before.seconds),
        .time_ms = newest(rates, change - 1)->time_ms,
    };
    return true;
}
