/* cost.h - what a step costs on this machine: D(requests) a draft forward, V(tokens, context) a
 * target forward, o the rest.
 *
 * Measured at start over schedulable sizes, kept on disk under a strict key, updated online by a
 * robust mean a cell (beyond 5 median absolute deviations: dropped and counted). What changes
 * within seconds moves all sizes of a curve alike; cells that nobody sees for long follow the pace
 * of those that are seen. Never assumed monotone: between measured sizes linear, at a measured size
 * its own value (the staircase is kept). Single-threaded (the loop's); cost_to_json locks nothing.
 */
#ifndef CONTROLLER_COST_H
#define CONTROLLER_COST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct cost_model;

#define COST_CONTEXT_BANDS 4 /* mean KV cells in use: < 512, < 2048, < 8192, more */

struct cost_model *cost_new(int max_tokens, int max_requests);
/* One that begins with what `from` knows and learns on its own; NULL when out of memory. */
struct cost_model *cost_copy(const struct cost_model *from);
void cost_free(struct cost_model *cost); /* NULL-safe */
int cost_context_band(int cells);

/* Record one measurement. tokens/requests within the limits given to cost_new; ms > 0. Returns
 * false when dropped as an outlier. */
bool cost_observe_verify(struct cost_model *cost, int tokens, int band, double ms);
bool cost_observe_draft(struct cost_model *cost, int requests, double ms);
void cost_observe_own(struct cost_model *cost, int requests, double ms);

/* Predicted milliseconds; NaN only when nothing at all was ever measured. */
double cost_verify(const struct cost_model *cost, int tokens, int band);
double cost_draft(const struct cost_model *cost, int requests);
double cost_own(const struct cost_model *cost, int requests);

/* Sizes worth profiling for `parallel` requests of up to max_draft drafts; fills sizes (at most
 * capacity), returns the count. */
int cost_profile_sizes(int parallel, int max_draft, int *sizes, int capacity);
/* The verify curve never rises, so trimming can never pay: worth a warning. False with one size. */
bool cost_flat(const struct cost_model *cost);

/* How much repeats of one size scatter: median over the sizes of the verify curve of their median
 * absolute deviation over their mean. NaN without repeats. */
double cost_scatter(const struct cost_model *cost);
/* The table was measured while the machine was busy with something else: good enough to begin with,
 * since it is corrected online, and not to be kept. why: by what that shows, in words, copied; NULL
 * = it is steady. */
void cost_set_unsteady(struct cost_model *cost, const char *why);
const char *cost_unsteady(const struct cost_model *cost);

/* Cache. key: every part that must match (model and draft digest, engine version, CPU, threads,
 * build). False when the file is missing, damaged or of another key (fails closed). Saving is
 * atomic (rename). */
bool cost_load(struct cost_model *cost, const char *path, const char *key);
bool cost_save(const struct cost_model *cost, const char *path, const char *key, char **cause);
/* A table of costs: text, lines `V n ms`, `D r ms`, `#` comments; or JSON, a cache file or what
 * `trimtab bench cost --json` prints. NULL with *cause naming the line, or what is wrong. */
struct cost_model *cost_read_table(const char *path, char **cause);

/* {"verify":[{"tokens","context_band","ms","spread_ms","n","dropped"}],
 *  "draft":[{"requests",…}],"own":[…]} */
json_t *cost_to_json(const struct cost_model *cost);
/* Cells changed since the last call, for the store. */
struct cost_cell {
    const char *part;
    int tokens, requests, context_band;
    double ms, spread_ms;
    int64_t n;
};
int cost_take_changed(struct cost_model *cost, struct cost_cell *cells, int capacity);

#endif
