/* record.h - what happened in a step, as one JSON line: for replaying decisions and for bug
 * reports. */
#ifndef CONTROLLER_RECORD_H
#define CONTROLLER_RECORD_H

#include <stdio.h>

#include "controller/loop.h"

/* One line of the schema trimtab.record/1, described in docs/replay.md: the step, its measured
 * times, and of every request that sampled its slot, stratum, counts, features and predictions.
 * Features of trimmed positions that were drafted are included. controller/decisions.h reads it. */
void record_step(FILE *file, const struct step *step, const struct slot *slot, int slots);

#endif
