/* scrape.h - asks many engines again and again, from one thread: libcurl's multi interface.
 *
 * Each target has its own rhythm, deadline and connection; one that is dead, slow or sends garbage
 * delays no other. What is asked next, and when, its owner says each time an answer came.
 */
#ifndef CONTROLLER_SCRAPE_H
#define CONTROLLER_SCRAPE_H

#include <stdint.h>

#include "controller/fetch.h"

struct scraper;
struct scrape_target;

struct scrape_next {
    const char *path; /* static */
    size_t limit;     /* bytes */
    int64_t wait_ms;  /* from now */
};

/* Runs on the scraper's thread; must not wait. `answer` is NULL the first time: nothing was asked
 * yet. Fills *next. */
typedef void scrape_done(void *state, const struct fetch_answer *answer, struct scrape_next *next);

struct scraper *scraper_new(char **cause);
/* Ends the thread: nothing is asked from now on, and removing a target waits for nobody. */
void scraper_stop(struct scraper *scraper);
/* Stops; every target must have been removed. NULL-safe. */
void scraper_free(struct scraper *scraper);

/* NULL with *cause. Any thread. */
struct scrape_target *scraper_add(struct scraper *scraper, const struct remote *remote,
                                  scrape_done *done, void *state, char **cause);
/* After this returns, `done` is not called any more; frees. Any thread but the scraper's.
 * NULL-safe.
 */
void scraper_remove(struct scraper *scraper, struct scrape_target *target);

#endif
