/* given.h - files that a person names: refused with what is wrong with them and what to give,
 * before anything else is made of them. */
#ifndef CONTROLLER_GIVEN_H
#define CONTROLLER_GIVEN_H

#include <stdio.h>

/* Open a file to be read. NULL with *cause, "PATH …; give WANTED", when it is not there, may not be
 * read, is a folder or is empty. */
FILE *given_open(const char *path, const char *wanted, char **cause);
/* 0 when a file of that name may be made; -1 with *cause when it is a folder. */
int given_check_output(const char *path, char **cause);
/* 0 when the path is a folder or nothing yet; -1 with *cause when it is something else. */
int given_check_folder(const char *path, char **cause);

#endif
