/* program.c - see program.h. */
#include "config.h"

#include "tui/program.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool program_self(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);

    if (length > 0) path[length] = '\0';
    return length > 0;
}

bool program_find(const char *variable, const char *installed, char *path, size_t size)
{
    const char *given = getenv(variable), *name = strrchr(installed, '/');
    char self[PATH_MAX], *slash;

    if (given != NULL && given[0] != '\0') return snprintf(path, size, "%s", given) < (int)size;
    snprintf(path, size, "%s", installed);
    if (access(path, X_OK) == 0) return true;
    if (!program_self(self, sizeof self) || (slash = strrchr(self, '/')) == NULL) return false;
    *slash = '\0';
    return snprintf(path, size, "%s%s", self, name) < (int)size && access(path, X_OK) == 0;
}
