/* grade.c - see grade.h. */
#include "config.h"

#include "controller/grade.h"

#include <math.h>

#define CERTAIN (1 - 1e-9) /* a prediction of 1 would make a miss infinitely wrong */

void grade_position(struct tally *tally, int stratum, int k, double predicted, bool accepted)
{
    struct tally_position *position = &tally->counts.position[k];
    double p = predicted > CERTAIN ? CERTAIN : predicted, y = accepted;
    struct tally_bin *bin;

    position->reached++;
    position->accepted += accepted;
    if (!(p > 0)) return;
    position->graded++;
    position->predicted += p;
    position->squared_error += (y - p) * (y - p);
    position->log_loss -= accepted ? log(p) : log1p(-p);
    if (stratum >= STRATA_ESTIMATORS) return; /* not the estimator's own law */
    bin = &tally->calibration[stratum][k][(int)(p * TT_CALIBRATION_BINS)];
    bin->n++;
    bin->sum_p += p;
    bin->sum_y += y;
}
