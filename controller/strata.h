/* strata.h - one acceptance estimator a stratum: sampling regimes do not share coefficients
 * (algorithm 2).
 *
 * A stratum is (drafter, rule, temperature band). A twin of each, "adjusted", holds requests whose
 * target-only transforms (penalties, bias) change p but not q: they are predicted by the plain
 * twin's estimator and give it no labels. A pooled estimator sees every label and gives the others
 * their prior mean. Beside each stratum's estimator a rival of the other kind learns from the same
 * labels and predicts them, but nothing is decided by it: an operator sees what it would have
 * said. Owned by the loop's thread.
 */
#ifndef CONTROLLER_STRATA_H
#define CONTROLLER_STRATA_H

#include <stdbool.h>

#include "kernels/trimtab.h"

enum drafter { DRAFTER_NONE, DRAFTER_MODEL, DRAFTER_NGRAM };
const char *drafter_name(enum drafter drafter);

#define STRATA_ESTIMATORS                                                                          \
    12 /* plain strata; the planner also tells their adjusted twins apart: twice as many */

struct strata;

struct strata *strata_new(int positions, enum tt_estimator_kind kind, int refit_interval_steps);
void strata_free(struct strata *strata); /* NULL-safe */
/* Stratum of a request under `drafter`; `adjusted` picks the twin. Below 2 * STRATA_ESTIMATORS. */
int strata_index(enum drafter drafter, enum tt_rule rule, float temperature, bool adjusted);
const char *strata_name(int stratum); /* "model/greedy/t0" */

/* Probability of acceptance at `position` given reached. 0 for a NaN feature. */
double strata_predict(const struct strata *strata, int stratum, int position, float feature);
/* First starved position of a stratum's estimator, -1 = none. */
int strata_starved(const struct strata *strata, int stratum);
void strata_observe(struct strata *strata, int stratum, const struct tt_observation *observation);
/* End of a step: calls refitted(state, stratum, TT_STEP_* bits) for every estimator that did
 * something. */
void strata_end_step(struct strata *strata, void (*refitted)(void *state, int stratum, int bits),
                     void *state);
/* Report of a plain stratum. False when it never saw a label. */
bool strata_report(const struct strata *strata, int stratum, struct tt_estimator_report *out);
/* The same of its rival, which has been learning since the start (it is not kept in the file). */
bool strata_rival(const struct strata *strata, int stratum, struct tt_estimator_report *out);
/* Keep everything that was learned, so that a restart does not start cold. `key` names what it was
 * learned on. Atomic; false with *cause when it could not be written. */
bool strata_save(const struct strata *strata, const char *path, const char *key, char **cause);
/* Take it up again. False, and nothing changed, when the file is missing, damaged, of another key
 * or for other settings. */
bool strata_load(struct strata *strata, const char *path, const char *key);

#endif
