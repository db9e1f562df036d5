/* secret.h - reads what nobody else may know, a token or a key, from where it may stand: a file of
 * mode 0600 or an environment variable, never an argument.
 *
 * Messages name the place, never what stands there.
 */
#ifndef CONTROLLER_SECRET_H
#define CONTROLLER_SECRET_H

#include <stddef.h>

/* The whole of a regular file that only its owner may read or write and that belongs to this
 * process's user or to root, into text (size bytes, not terminated). 0 with *length, or -1 with
 * *cause; `what` begins the sentence ("write token file"). A file of `size` bytes or more is
 * refused. */
int secret_read_file(const char *path, const char *what, char *text, size_t size, size_t *length,
                     char **cause);

/* One key from `path` (or, when that is NULL, from the environment variable `variable`; NULL too =
 * no key): without the blanks around it, visible ASCII, so that it fits a header. 0 with *key
 * malloc'd, or NULL when none is asked for; -1 with *cause. */
int secret_read_key(const char *path, const char *variable, char **key, char **cause);

#endif
