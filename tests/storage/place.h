/* place.h - what every storage test needs: a folder that goes away, a store in it, rows that are
 * told apart, and a look into the file with plain SQLite, apart from the code under test.
 */
#ifndef TESTS_STORAGE_PLACE_H
#define TESTS_STORAGE_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "storage/reader.h"
#include "storage/store.h"

struct place {
    _Atomic int64_t now_ms; /* the store's clock: stands still, an hour after PLACE_START_MS */
    char folder[64];
    char path[96]; /* of the store */
};
void place_make(struct place *place); /* aborts the test when it cannot */
void place_remove(struct place *place);
char *place_name(const struct place *place,
                 const char *name); /* malloc'd path of a file in the folder */

/* The first column of the first row, through a connection of its own; the test fails when it does
 * not run. */
int64_t place_integer(const char *path, const char *sql);
double place_real(const char *path, const char *sql);
char *place_text(const char *path, const char *sql); /* malloc'd; "" for NULL or no row */
void place_execute(const char *path, const char *sql);

/* With the clock of `place`. The test fails with the cause when it cannot. */
struct store *place_open(struct place *place);
int64_t place_begin(struct store *store, const char *node);

#define PLACE_START_MS INT64_C(1790000040000) /* a whole minute, not a whole hour */
/* The second `i` after PLACE_START_MS of a run, with `positions` positions; its numbers follow from
 * i. */
void place_sample(struct store_sample *sample, int64_t run_id, int64_t i, int positions);
void place_refit(struct store_refit *refit, int64_t run_id, int64_t i, int positions);
void place_calibration(struct store_calibration *calibration, int64_t run_id, int64_t minute,
                       int positions);

bool place_bench(const struct place *place); /* one result of the load benchmark at the start */

/* cmocka fixtures: *state is a place whose closed store holds 100 samples of one run; and its end.
 */
int place_setup_samples(void **state);
int place_teardown(void **state);
/* The test fails with the cause when it cannot. */
struct reader *place_reader(const struct place *place);

int64_t place_now_ms(void *state); /* a clock for store_options: state is the place's now_ms */

#endif
