/* lines.h - the lines of a recorded file, plain or compressed by gzip (zlib reads both), each with
 * its number, for errors that say where.
 */
#ifndef CONTROLLER_LINES_H
#define CONTROLLER_LINES_H

#include <stdbool.h>
#include <zlib.h>

struct lines {
    gzFile file;
    const char *path; /* the caller's */
    char *text;       /* the line in hand, without its newline */
    int number;       /* of it, from 1 */
    bool whole;       /* it ended in a newline */
    bool cut;         /* the compressed stream ended too early */
};

/* False with *cause; then lines_close must not be called. */
bool lines_open(struct lines *lines, const char *path, char **cause);
void lines_close(struct lines *lines);
/* 1 = a line, 0 = the end, -1 = cannot be read, with *cause. */
int lines_next(struct lines *lines, char **cause);
/* The line in hand is wrong, *why (malloc'd, freed here) says how. It was cut short if it has no
 * end: true with *warning, and what came before stands. Else false with *cause, "FILE:LINE: why".
 */
bool lines_forgive(const struct lines *lines, char **warning, char **why, char **cause);

#endif
