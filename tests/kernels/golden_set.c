/* golden_set.c - what golden_vectors needs to read a recorded set and to report on it.
 *
 * Owns the count of sets and the first fault of the set under test.
 */
#include "config.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/golden_set.h"

static int tap_count, tap_failed;

/* The first thing that went wrong in the set under test; empty while all is well. */
static char fault[512];

void golden_fail(const char *format, ...)
{
    if (!golden_sound()) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault, sizeof(fault), format, arguments);
    va_end(arguments);
}

bool golden_sound(void)
{
    return fault[0] == '\0';
}

void golden_tap_line(const char *name, const char *summary)
{
    tap_count++;
    if (golden_sound()) {
        printf("ok %d - %s: %s\n", tap_count, name, summary);
        return;
    }
    tap_failed++;
    printf("not ok %d - %s\n# %s\n", tap_count, name, fault);
    fault[0] = '\0';
}

int golden_tap_end(void)
{
    printf("1..%d\n%d passed, %d failed\n", tap_count, tap_count - tap_failed, tap_failed);
    return tap_failed == 0 && tap_count > 0 ? 0 : 1;
}

json_t *golden_load(const char *path)
{
    char command[PATH_MAX + NAME_MAX + 32];
    if (strchr(path, '\'') != NULL) return NULL;
    snprintf(command, sizeof(command), "gzip -dc '%s'", path);
    FILE *pipe = popen(command, "r");
    if (pipe == NULL) return NULL;
    json_t *root = json_loadf(pipe, 0, NULL);
    if (pclose(pipe) != 0) {
        json_decref(root);
        return NULL;
    }
    return root;
}

/* NaN is null, infinities are strings; anything else that is no number is a fault of the file. */
double golden_number(const json_t *value)
{
    if (json_is_number(value)) return json_number_value(value);
    if (json_is_null(value)) return NAN;
    const char *text = json_string_value(value);
    if (text != NULL && strcmp(text, "inf") == 0) return INFINITY;
    if (text != NULL && strcmp(text, "-inf") == 0) return -INFINITY;
    golden_fail("a number is missing in the file");
    return NAN;
}

size_t golden_length(const json_t *object, const char *key)
{
    return json_array_size(json_object_get(object, key));
}

double golden_item(const json_t *array, size_t i)
{
    return golden_number(json_array_get(array, i));
}

int32_t golden_int(const json_t *object, const char *key, size_t i)
{
    return (int32_t)json_integer_value(json_array_get(json_object_get(object, key), i));
}

void golden_floats(const json_t *array, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = (float)golden_item(array, i);
}

void golden_ints(const json_t *object, const char *key, int32_t *out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = golden_int(object, key, i);
}

void golden_expect_ints(const json_t *object, const char *key, const int32_t *got, size_t count)
{
    if (golden_length(object, key) != count)
        golden_fail("%s has %zu entries", key, golden_length(object, key));
    for (size_t i = 0; i < count; i++) {
        if (got[i] != golden_int(object, key, i))
            golden_fail("%s[%zu] is %d, not %d", key, i, got[i], golden_int(object, key, i));
    }
}

void golden_expect_integer(const json_t *object, const char *key, int64_t got)
{
    const int64_t want = json_integer_value(json_object_get(object, key));
    if (got != want) golden_fail("%s is %" PRId64 ", not %" PRId64, key, got, want);
}

void golden_expect_floats(const float *got, const json_t *want, size_t count, double tolerance,
                          const char *what, size_t step)
{
    for (size_t k = 0; k < count; k++) {
        if (!(fabs((double)got[k] - (double)(float)golden_item(want, k)) <= tolerance))
            golden_fail("step %zu: %s[%zu] is %.9g, not %.9g", step, what, k, (double)got[k],
                        golden_item(want, k));
    }
}
