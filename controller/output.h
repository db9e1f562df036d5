/* output.h - the end of a program that prints: a report that could not be written is a failure. */
#ifndef CONTROLLER_OUTPUT_H
#define CONTROLLER_OUTPUT_H

/* Flush the standard output. Returns `status`; but when some of the output could not be written,
 * says so on standard error under the program's name, and returns 1 in place of 0. */
int output_finish(const char *program, int status);

#endif
