/* rollup.h - tiers and retention: seconds become minutes and hours, what is too old or too much
 * goes, in small chunks.
 *
 * Tiers. Every sample is added, once, to its minute and to its hour; `rolled_sample_id` says up to
 * which sample that is done, so late rows and clock steps neither lose nor double anything.
 * `second_from_ms` and `minute_from_ms` say from when the finer tier is complete: views and charts
 * take the finer one from there on and the coarser one before.
 *
 * Retention. Seconds are kept for a day and minutes for 30 (both configurable), hours for ever.
 * Every table that grows with nodes x positions has a most number of rows as well, so that a large
 * fleet keeps a shorter fine history instead of filling the disk. Refits beyond that are thinned to
 * one in five minutes (resets and rejections stay), after 30 days to one an hour.
 */
#ifndef STORAGE_ROLLUP_H
#define STORAGE_ROLLUP_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

struct rollup_limits {
    int64_t keep_second_ms, keep_minute_ms;
    /* most rows of a table */
    int64_t samples, positions, minute_positions, intercepts, calibrations, costs, events;
};
/* A day, 30 days, and rows for 300 MB in all with 16 nodes of 16 positions. */
void rollup_limits_default(struct rollup_limits *limits);

/* Add the samples of finished minutes to their minute and hour, and keep the effect of mode changes
 * whose seconds are complete. One transaction. All functions return SQLite result codes. */
int rollup_advance(sqlite3 *db, int64_t now_ms);

/* Decide from when on each tier is kept (a transaction; every few minutes). */
int rollup_set_horizon(sqlite3 *db, const struct rollup_limits *limits, int64_t now_ms);

/* Delete one chunk of what is beyond the horizon. *more is set when there may be another. */
int rollup_delete_chunk(sqlite3 *db, const struct rollup_limits *limits, int64_t now_ms,
                        bool *more);

#endif
