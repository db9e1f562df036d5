/* nearest.h - the known word that a mistyped one is nearest to. */
#ifndef CONTROLLER_NEAREST_H
#define CONTROLLER_NEAREST_H

#include <stddef.h>

/* Of (count) words the one with the smallest edit distance to `word`, or NULL when none is near
 * (more than a third of its letters differ). */
const char *nearest_word(const char *word, const char *const *words, size_t count);

#endif
