/* cause.c - see cause.h. */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "controller/cause.h"

void cause_set(char **cause, const char *format, ...)
{
    va_list arguments;
    char *text = NULL;

    if (!cause) return;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0) text = NULL;
    va_end(arguments);
    free(*cause); /* format may have used it; not before */
    *cause = text;
}
