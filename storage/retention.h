/* retention.h - what is too old or too much goes, in small chunks.
 *
 * Seconds are kept for a day and minutes for 30 (both configurable), hours for ever. Every table
 * that grows with nodes x positions has a most number of rows as well, so that a large fleet keeps
 * a shorter fine history instead of filling the disk. Refits beyond that are thinned to one in five
 * minutes (resets and rejections stay), after 30 days to one an hour. Looking (counting rows) is
 * done every few minutes, and what it decided stands in rollup_state; deleting then looks no
 * further.
 */
#ifndef STORAGE_RETENTION_H
#define STORAGE_RETENTION_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

struct retention_limits {
    int64_t keep_second_ms, keep_minute_ms;
    /* most rows of a table */
    int64_t samples, positions, minute_positions, intercepts, calibrations, costs, events;
};
/* A day, 30 days, and rows for 300 MB in all with 16 nodes of 16 positions. */
void retention_limits_default(struct retention_limits *limits);

/* Decide from when on rows are kept. One transaction. Both return SQLite result codes. */
int retention_set_horizon(sqlite3 *db, const struct retention_limits *limits, int64_t now_ms);

/* Delete one chunk of what is beyond the horizon. *more is set when there may be another. */
int retention_delete_chunk(sqlite3 *db, bool *more);

#endif
