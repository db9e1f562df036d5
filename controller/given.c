/* given.c - see given.h. */
#include "config.h"

#include "controller/given.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "controller/cause.h"

FILE *given_open(const char *path, const char *wanted, char **cause)
{
    FILE *file = fopen(path, "rbe");
    struct stat status;

    if (!file || fstat(fileno(file), &status) != 0)
        cause_set(cause, "%s: %s; give %s", path, strerror(errno), wanted);
    else if (S_ISDIR(status.st_mode))
        cause_set(cause, "%s is a folder; give %s", path, wanted);
    else if (S_ISREG(status.st_mode) && status.st_size == 0)
        cause_set(cause, "%s is empty; give %s", path, wanted);
    else
        return file;
    if (file) fclose(file);
    return NULL;
}

int given_check_output(const char *path, char **cause)
{
    struct stat status;

    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode)) return 0;
    cause_set(cause, "%s is a folder; give the name of a file to write", path);
    return -1;
}

int given_check_folder(const char *path, char **cause)
{
    struct stat status;

    if (stat(path, &status) != 0 || S_ISDIR(status.st_mode)) return 0;
    cause_set(cause, "%s is no folder; give one to write to, or a name for it", path);
    return -1;
}
