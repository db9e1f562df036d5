/* record.h - what happened in a step, as one JSON line: for replaying decisions and for bug
 * reports. */
#ifndef CONTROLLER_RECORD_H
#define CONTROLLER_RECORD_H

#include <stdio.h>

#include "controller/loop.h"

/* {"schema":"trimtab.record/1","step":N,"time_ms":…,"rows":…,"draft_ms":…,"verify_ms":…,"requests":[{"id","stratum","drafted","admitted",
 * "accepted","emitted","feature":[…],"predicted":[…]}]}. Features of trimmed positions that were
 * drafted are included. */
void record_step(FILE *file, const struct step *step, const struct slot *slot, int slots);

#endif
