/* nearest.h - the known word that a mistyped one is nearest to: "did you mean". Used by both
 * programs. */
#ifndef CONTROLLER_NEAREST_H
#define CONTROLLER_NEAREST_H

#include <stddef.h>

/* Index of the word of `words` (count) that `word` is meant to be, or -1: the least edit distance
 * with swaps of neighbours (Damerau, restricted), at most a third of the letters; the beginning of
 * a word counts as one mistake. Long words are never near. */
int nearest_index(const char *word, const char *const *words, size_t count);
/* That word, or NULL. */
const char *nearest_word(const char *word, const char *const *words, size_t count);

#endif
