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

struct side {
    double n, sum, squares;
};

/* Busy seconds from `back` on while the mode stays; returns where it stopped. */
static int gather(const struct rates *rates, int back, struct side *side)
{
    enum mode mode = newest(rates, back)->mode;

    for (int taken = 0; back < rates->count && newest(rates, back)->mode == mode; back++) {
        const struct rates_second *second = newest(rates, back);
        double rate = (double)second->delta.emitted / second->seconds;

        if (second->delta.steps == 0 || taken >= SIDE_SECONDS) continue;
        side->n++;
        side->sum += rate;
        side->squares += rate * rate;
        taken++;
    }
    return back;
}

/* Relative variance of the mean. */
static double relative_variance(const struct side *side)
{
    double mean = side->sum / side->n;
    double variance = (side->squares - side->n * mean * mean) / (side->n - 1);

    return variance > 0 ? variance / side->n / (mean * mean) : 0;
}

bool rates_toggle_effect(const struct rates *rates, struct rates_effect *effect)
{
    struct side after = {0}, before = {0};
    int change, end;
    double ratio, spread;

    if (rates->count == 0) return false;
    change = gather(rates, 0, &after);
    if (change + SETTLE_SECONDS >= rates->count) return false;
    end = gather(rates, change + SETTLE_SECONDS, &before);
    if (newest(rates, change)->mode != newest(rates, end - 1)->mode) return false;
    if (after.n < LEAST_SECONDS || before.n < LEAST_SECONDS || after.sum <= 0 || before.sum <= 0)
        return false;
    ratio = after.sum / after.n / (before.sum / before.n);
    spread = 1.96 * sqrt(relative_variance(&after) + relative_variance(&before));
    *effect = (struct rates_effect){
        .before = newest(rates, change)->mode,
        .after = newest(rates, 0)->mode,
        .gain = ratio - 1,
        .low = ratio * exp(-spread) - 1,
        .high = ratio * exp(spread) - 1,
        .n = (int64_t)(after.n + before.n),
        .window_s = after.n < before.n ? after.n : before.n,
        .time_ms = newest(rates, change - 1)->time_ms,
    };
    return true;
}
