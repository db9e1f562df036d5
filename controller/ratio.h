/* ratio.h - a part of a whole, where there may be no whole. */
#ifndef CONTROLLER_RATIO_H
#define CONTROLLER_RATIO_H

#include <math.h>

/* part / whole; NaN, which is unknown, where the whole is not above 0 or either is unknown. */
static inline double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : (double)NAN;
}

#endif
