/* golden_features.h - the set of features among the golden vectors. */
#ifndef TESTS_KERNELS_GOLDEN_FEATURES_H
#define TESTS_KERNELS_GOLDEN_FEATURES_H

#include <jansson.h>

/* Compare row statistics with the set's log-odds; one TAP line. */
void golden_features_replay(const char *name, const json_t *set);

#endif
