/* golden_set.h - reading recorded sets (gzip'd JSON; NaN is null, infinities are strings) and
 * reporting on each in TAP. */
#ifndef TRIMTAB_TESTS_KERNELS_GOLDEN_SET_H
#define TRIMTAB_TESTS_KERNELS_GOLDEN_SET_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Note what went wrong in the set under test; only the first is kept. */
void golden_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool golden_sound(void); /* nothing has gone wrong in this set */
/* Report on the set and start the next. */
void golden_tap_line(const char *name, const char *summary);
/* The plan; returns the exit status. */
int golden_tap_end(void);

json_t *golden_load(const char *path); /* NULL when it cannot be read; the caller's reference */
double golden_number(const json_t *value);
double golden_item(const json_t *array, size_t i);
size_t golden_length(const json_t *object, const char *key);
int32_t golden_int(const json_t *object, const char *key, size_t i);
void golden_floats(const json_t *array, float *out, size_t count);
void golden_ints(const json_t *object, const char *key, int32_t *out, size_t count);

void golden_expect_ints(const json_t *object, const char *key, const int32_t *got, size_t count);
void golden_expect_integer(const json_t *object, const char *key, int64_t got);
void golden_expect_floats(const float *got, const json_t *want, size_t count, double tolerance,
                          const char *what, size_t step);

#endif
