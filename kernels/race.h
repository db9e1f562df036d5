/* race.h - the exponential race of coupled sampling over one row or one table of weights. Internal
 * to kernels/. */
#ifndef KERNELS_RACE_H
#define KERNELS_RACE_H

#include "kernels/choice.h"
#include "kernels/handle.h"

/* argmax over tokens of logits[i] * inverse_temperature - log(arrival_i); smallest index wins ties;
 * -1 when no token is finite. Groups that cannot win are not expanded. */
int32_t race_row(tt *handle, uint64_t key, uint64_t token_index, const struct choice_row *row);

/* The same race over weights (count); at least one is positive. */
size_t race_weights(uint64_t key, uint64_t token_index, const double *weights, size_t count);

#endif
