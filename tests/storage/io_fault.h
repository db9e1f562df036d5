/* io_fault.h - an SQLite VFS over the real one that fails on demand: full disk, I/O error,
 * read-only, damage.
 */
#ifndef TESTS_STORAGE_IO_FAULT_H
#define TESTS_STORAGE_IO_FAULT_H

#include <stdbool.h>

/* Make it the default VFS of this process. */
void io_fault_install(void);

/* From the `after`-th write, sync or truncation on, `count` of them (-1 = all) return the SQLite
 * code `rc`. */
void io_fault_set(int rc, int after, int count);
void io_fault_clear(void);
/* How many calls failed since io_fault_set. */
int io_fault_hits(void);

#endif
