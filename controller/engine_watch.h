/* engine_watch.h - what successive pages of one remote engine say together: differences, rates over
 * a window, quantiles, restarts, and whether speculation looks broken.
 *
 * Differences are made engine by engine and then summed, so one engine of several that restarts (a
 * counter fell, or says that it began at another time) gives a new baseline for itself and never a
 * negative rate. An engine that appears late starts from what it says first. Pure: time is passed
 * in. Not thread-safe.
 *
 * Reached: the engines tell how many drafts were accepted at a position, not how many were tried
 * there. It is taken as the accepted of the position before (draft blocks for the first): an upper
 * bound where last blocks are clipped or drafts are trimmed.
 */
#ifndef CONTROLLER_ENGINE_WATCH_H
#define CONTROLLER_ENGINE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "controller/engine_table.h"

struct engine_watch;

struct engine_second { /* what happened between two readings; NaN = unknown */
    double seconds;    /* true length; 0 = there is no earlier reading */
    double delta[FIGURE_COUNTERS];
    double accepted_at[ENGINE_POSITIONS];
    int positions;
};

enum { /* what engine_watch_take noticed */
       ENGINE_NEWS_FIRST = 1,
       ENGINE_NEWS_RESTARTED = 2,
       ENGINE_NEWS_BROKEN = 4, /* a position accepts none or all; engine_watch_trouble says it */
       ENGINE_NEWS_MENDED = 8,
       ENGINE_NEWS_SLOWED = 16, /* throughput fell at no less load; engine_watch_slowdown */
};

struct engine_watch *engine_watch_new(void); /* NULL when out of memory */
void engine_watch_free(struct engine_watch *watch);

/* Take a page that was read at now_us (monotonic). `admitted` is how many drafts were admitted,
 * which is what an engine verifies, since the last page by another account than the page's own, for
 * engines whose pages do not tell; NaN = unknown. `predicted` (ENGINE_POSITIONS) are the ratios of
 * accepted to reached that an estimator expects now, NaN = unknown; NULL = none is known: that a
 * position accepts all can only be judged against a prediction. Returns news bits; *second (may be
 * NULL) is what happened since the last page. */
unsigned engine_watch_take(struct engine_watch *watch, const struct engine_page *page,
                           double admitted, const double *predicted, int64_t now_us,
                           struct engine_second *second);
/* The last page; rows 0 before the first. */
const struct engine_page *engine_watch_page(const struct engine_watch *watch);

/* Sums over the last window_s seconds (at most a minute); seconds 0 when there are no two pages in
 * it. What was admitted and verified is unknown where a part of the window is. */
void engine_watch_window(const struct engine_watch *watch, double window_s,
                         struct engine_second *sum);
double engine_second_reached(const struct engine_second *second, int position);
/* The q-quantile, in seconds, of what happened in about the last minute. */
double engine_watch_quantile(const struct engine_watch *watch, enum figure histogram, double q);

/* A sentence about the position that accepts none or all of its last 200; empty = none. */
const char *engine_watch_trouble(const struct engine_watch *watch);
const char *engine_watch_slowdown(const struct engine_watch *watch);

#endif
