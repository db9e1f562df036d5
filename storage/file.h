/* file.h - the store as a file: its folder, the lock that keeps a second daemon out, the write
 * connection, and moving a damaged file aside.
 */
#ifndef STORAGE_FILE_H
#define STORAGE_FILE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "storage/schema.h"

/* Make the folder of path (0700, parents too) and return the path with links resolved (malloc'd),
 * or NULL with *cause. */
char *store_file_place(const char *path, char **cause);

/* Take the lock "PATH.lock", which dies with the process. The descriptor, or -1 with *cause naming
 * the holder's pid. */
int store_file_lock(const char *path, char **cause);

struct store_file {
    sqlite3 *db;
    /* of the file that is or was open, 0 = none yet: tells when the path became another */
    uint64_t device, inode;
    char *notice; /* what was found and done, in words, for an event: moved aside, migrated. Or NULL
                   */
};

/* Open for writing, creating or migrating it as needed. A damaged file is moved aside and a new one
 * begun; `damage` says why it is known to be one, or is NULL. Returns 0, or -1 with *cause. */
int store_file_open(struct store_file *file, const char *path, const struct schema_steps *steps,
                    const char *damage, char **cause);
void store_file_close(struct store_file *file);
/* Is what stands at path still the file that is or was open? */
bool store_file_same(const struct store_file *file, const char *path);

#endif
