/* lines.c - see lines.h. */
#include "config.h"

#include "controller/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/cause.h"
#include "controller/given.h"

#define LINE_LIMIT (1 << 20) /* bytes; a longer line is damage */

bool lines_open(struct lines *lines, const char *path, char **cause)
{
    FILE *file = given_open(
        path, "a trace (trimtab bench record makes one) or a record of decisions", cause);
    int fd = file ? dup(fileno(file)) : -1;

    if (!file) return false;
    fclose(file);
    *lines = (struct lines){.path = path, .text = malloc(LINE_LIMIT + 1)};
    lines->file = lines->text && fd >= 0 ? gzdopen(fd, "rb") : NULL;
    if (lines->file) return true;
    cause_set(cause, "%s: %s", path, fd < 0 ? strerror(errno) : "out of memory");
    if (fd >= 0) close(fd);
    free(lines->text);
    return false;
}

void lines_close(struct lines *lines)
{
    gzclose(lines->file);
    free(lines->text);
}

int lines_next(struct lines *lines, char **cause)
{
    int error;
    const char *why;
    size_t length;
    z_off_t from = gztell(lines->file);
    bool odd;

    if (!gzgets(lines->file, lines->text, LINE_LIMIT + 1)) {
        why = gzerror(lines->file, &error);
        lines->cut = error == Z_BUF_ERROR;
        if (error == Z_OK || lines->cut) return 0;
        cause_set(cause, "%s:%d: %s", lines->path, lines->number + 1,
                  error == Z_ERRNO ? strerror(errno) : why);
        return -1;
    }
    lines->number++;
    length = strlen(lines->text);
    odd = gztell(lines->file) - from != (z_off_t)length; /* there is a NUL in it */
    lines->whole = length > 0 && lines->text[length - 1] == '\n';
    if (lines->whole) lines->text[--length] = '\0';
    if (length > 0 && lines->text[length - 1] == '\r') lines->text[length - 1] = '\0';
    if (!odd && (lines->whole || gzeof(lines->file))) return 1;
    if (!odd && length < LINE_LIMIT) { /* a stream cut in the middle of a line */
        (void)gzerror(lines->file, &error);
        lines->cut = error == Z_BUF_ERROR;
        if (lines->cut) return 1;
    }
    cause_set(cause, "%s:%d: not a line of text of at most %d bytes", lines->path, lines->number,
              LINE_LIMIT);
    return -1;
}

bool lines_forgive(const struct lines *lines, char **warning, char **why, char **cause)
{
    if (!lines->whole) {
        cause_set(warning, "%s:%d: the last line is cut short; left out", lines->path,
                  lines->number);
    } else {
        cause_set(cause, "%s:%d: %s", lines->path, lines->number, *why ? *why : "out of memory");
    }
    free(*why);
    *why = NULL;
    return !lines->whole;
}
