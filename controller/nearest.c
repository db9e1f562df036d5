/* nearest.c - see nearest.h. Levenshtein distance over one row; words longer than LONGEST are never
 * near. */
#include "config.h"

#include <string.h>

#include "controller/nearest.h"

#define LONGEST 64

static size_t distance(const char *a, const char *b)
{
    size_t row[LONGEST + 1], length = strlen(b);

    if (strlen(a) > LONGEST || length > LONGEST) return LONGEST;
    for (size_t j = 0; j <= length; j++) row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= length; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[length];
}

const char *nearest_word(const char *word, const char *const *words, size_t count)
{
    const char *best = NULL;
    size_t least = strlen(word) / 3 + 2;

    for (size_t i = 0; i < count; i++) {
        size_t far = distance(word, words[i]);

        if (far >= least) continue;
        least = far;
        best = words[i];
    }
    return best;
}
