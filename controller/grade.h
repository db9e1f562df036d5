/* grade.h - one reached position's outcome against its prediction, into the tally. */
#ifndef CONTROLLER_GRADE_H
#define CONTROLLER_GRADE_H

#include <stdbool.h>

#include "controller/tally.h"

/* Position k of a block of `stratum` was reached and its draft accepted or not. A prediction of 0
 * (or NaN) is none; the bins are of plain strata. The tally's lock is held. */
void grade_position(struct tally *tally, int stratum, int k, double predicted, bool accepted);

#endif
