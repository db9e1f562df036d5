/* rollup.h - tiers: seconds become minutes and hours.
 *
 * Every sample is added, once, to its minute and to its hour; `rolled_sample_id` says up to which
 * sample that is done, so late rows and clock steps neither lose nor double anything.
 * `second_from_ms` and `minute_from_ms` (retention.h) say from when the finer tier is complete:
 * views and charts take the finer one from there on and the coarser one before.
 */
#ifndef STORAGE_ROLLUP_H
#define STORAGE_ROLLUP_H

#include <sqlite3.h>
#include <stdint.h>

/* Add the samples of finished minutes to their minute and hour, and keep the effect of mode changes
 * whose seconds are complete. One transaction. Returns an SQLite result code. */
int rollup_advance(sqlite3 *db, int64_t now_ms);

#endif
