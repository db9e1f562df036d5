/* decisions.h - read a record of decisions (trimtab.record/1, `trimtabd --record`) again: give its
 * labels, in their order, to fresh estimators, and say how well those would have predicted, beside
 * what the node predicted then.
 *
 * What was trimmed is unknown in a record, so that it says nothing about other plans; it does say
 * which estimator knew better what was verified.
 */
#ifndef CONTROLLER_DECISIONS_H
#define CONTROLLER_DECISIONS_H

#include <stdbool.h>

#include "controller/strata.h"

struct decisions_score { /* of one stratum, over its graded labels */
    long labels;
    double accepted;            /* sum of outcomes */
    double predicted, log_loss; /* sums over the labels */
    double squared_error;
};

enum { DECISIONS_RECORDED, DECISIONS_ONLINE, DECISIONS_PARITY, DECISIONS_KINDS };
extern const char *const decisions_kinds[DECISIONS_KINDS]; /* "recorded", "online", "parity" */

struct decisions {
    long steps, emitted,
        skipped; /* skipped: rows of strata that an estimator does not learn from */
    double draft_ms, verify_ms;
    struct decisions_score score[DECISIONS_KINDS][STRATA_ESTIMATORS];
};

/* Is this the first line of such a record? */
bool decisions_recognise(const char *line);
/* Read a whole file, plain or compressed. False with *cause ("FILE:LINE: what is wrong"); a last
 * line that was cut short is left out, with *warning. */
bool decisions_read(const char *path, struct decisions *out, char **warning, char **cause);

#endif
