/* number.h - numbers as people write them: in the configuration, on the command line, in the
 * arguments of the API. One rule for all of them.
 *
 * A whole number is decimal digits, a minus sign before them where it may be below 0. A real number
 * may have a point among its digits and a decimal exponent after them: 0.01, 1e-2. Nothing else is
 * a number: no blank, no plus sign in front, no 0x10, no 1e2 for a count, no inf and no nan.
 */
#ifndef CONTROLLER_NUMBER_H
#define CONTROLLER_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* The whole text is such a number in [low, high]; *out is left alone when it is not. */
bool number_read_whole(const char *text, int64_t low, int64_t high, int64_t *out);
bool number_read_real(const char *text, double low, double high, double *out);

#endif
