/* series.h - the past of one figure for charts: points in time order, bounded, from history and
 * from live samples.
 *
 * Memory is fixed once the first point came (SERIES_POINTS); the oldest points go first. A NaN
 * point is a break: a restart.
 */
#ifndef TUI_SERIES_H
#define TUI_SERIES_H

#include <stdbool.h>
#include <stdint.h>

#define SERIES_POINTS 4096 /* an hour at 1 Hz and more */

struct series_point {
    int64_t time_ms;
    double value;
};

struct series {
    int count;
    struct series_point *point; /* (SERIES_POINTS), NULL before the first one */
};

void series_free(struct series *series); /* empties it */
/* Append; a point that is not later than the last one is dropped. False when out of memory. */
bool series_add(struct series *series, int64_t time_ms, double value);
/* Put the (count) ascending points of history in place of everything up to the last of them +
 * step_ms; later live points stay. */
bool series_merge(struct series *series, const struct series_point *history, int count,
                  int64_t step_ms);
/* Means over `count` equal buckets of [from_ms, to_ms); NaN where nothing is known. Points up to
 * join_ms apart are joined by a straight line, wider holes and breaks stay. Points from until_ms on
 * are left out. */
void series_bucket(const struct series *series, int64_t from_ms, int64_t to_ms, int64_t until_ms,
                   int64_t join_ms, double *bucket, int count);

#endif
