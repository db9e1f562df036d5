/* json_number.h - a figure in JSON, where one that is not known is null. */
#ifndef CONTROLLER_JSON_NUMBER_H
#define CONTROLLER_JSON_NUMBER_H

#include <jansson.h>
#include <math.h>

/* NaN and infinities become null. The caller owns it; NULL when out of memory. */
static inline json_t *json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

#endif
