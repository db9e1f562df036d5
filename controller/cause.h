/* cause.h - why something failed, in words: the malloc'd sentence that functions hand back through
 * `char **cause`. */
#ifndef CONTROLLER_CAUSE_H
#define CONTROLLER_CAUSE_H

/* Set *cause (when cause is not NULL) to the formatted sentence, freeing what stood there; NULL
 * when out of memory. */
void cause_set(char **cause, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
