/* output.c - see output.h. */
#include "config.h"

#include "controller/output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int output_finish(const char *program, int status)
{
    int failed = ferror(stdout);

    errno = 0;
    if (fflush(stdout) == 0 && !failed) return status;
    fprintf(stderr, "%s: cannot write the output%s%s\n", program, errno ? ": " : "",
            errno ? strerror(errno) : "");
    return status == 0 ? 1 : status;
}
