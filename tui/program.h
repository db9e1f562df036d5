/* program.h - where the other programs of trimtab are: installed, or beside this one in a build
 * tree. */
#ifndef TUI_PROGRAM_H
#define TUI_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

/* The file of this very program; false: unknown. */
bool program_self(char *path, size_t size);
/* $variable, else `installed` (a whole path), else a file of the same name beside this program.
 * False when none can be run. */
bool program_find(const char *variable, const char *installed, char *path, size_t size);

#endif
