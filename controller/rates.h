/* rates.h - the last ten minutes of a node, second by second: means over a window, and what a
 * change of mode did.
 *
 * Every figure is made from differences of counters between two seconds; a second without steps is
 * idle and counts for time, not for step means. Not thread-safe: the sampler's.
 */
#ifndef CONTROLLER_RATES_H
#define CONTROLLER_RATES_H

#include <stdbool.h>
#include <stdint.h>

#include "controller/snapshot.h"
#include "controller/tally.h"

#define RATES_SECONDS 600
#define RATES_WINDOW_S 5 /* of the snapshot's rates and means */

struct rates_second {
    int64_t time_ms; /* UTC */
    double seconds;  /* true length, monotonic */
    enum mode mode;
    int fixed_draft;
    int running;
    struct tally_counts delta;
};

struct rates {
    struct rates_second second[RATES_SECONDS]; /* ring */
    int first, count;
};

void rates_add(struct rates *rates, const struct rates_second *second);
/* Sums over the last window_s seconds into *sum (sum->seconds = their length); mode and time from
 * the newest. */
void rates_window(const struct rates *rates, int window_s, struct rates_second *sum);

struct rates_effect {
    enum mode before, after;
    double tps_before, tps_after, step_ms_before, step_ms_after; /* means */
    double gain, low, high; /* tok/s after over before, less 1, and its 95 % interval */
    int64_t n;              /* seconds with work, both sides */
    double window_s;        /* the shorter side */
    int64_t time_ms;        /* of the change */
};
/* Effect of the last change of mode, from the busy ones of up to 300 seconds on both sides, no
 * other change between. False until each side has at least 5. The interval is that of the store's
 * view toggle_effect: what is shown live is what is read later. */
bool rates_toggle_effect(const struct rates *rates, struct rates_effect *effect);

#endif
