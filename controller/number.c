/* number.c - see number.h. */
#include "config.h"

#include "controller/number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "0123456789"

bool number_read_whole(const char *text, int64_t low, int64_t high, int64_t *out)
{
    const char *digits = text + (text[0] == '-');
    size_t length = strspn(digits, DIGITS);
    long long value;

    if (length == 0 || digits[length] != '\0') return false;
    errno = 0;
    value = strtoll(text, NULL, 10);
    if (errno != 0 || value < low || value > high) return false;
    *out = value;
    return true;
}

/* [-] digits [. digits] [e [+-] digits], digits on one side of the point at least. */
static bool is_real(const char *text)
{
    size_t length;

    if (*text == '-') text++;
    length = strspn(text, DIGITS);
    text += length;
    if (*text == '.') {
        size_t fraction = strspn(++text, DIGITS);

        text += fraction;
        length += fraction;
    }
    if (length == 0) return false;
    if (*text == 'e' || *text == 'E') {
        text++;
        if (*text == '+' || *text == '-') text++;
        length = strspn(text, DIGITS);
        if (length == 0) return false;
        text += length;
    }
    return *text == '\0';
}

bool number_read_real(const char *text, double low, double high, double *out)
{
    double value;

    if (!is_real(text)) return false;
    value = strtod(text, NULL); /* beyond the largest it is an infinity, which no range holds */
    if (!(value >= low && value <= high)) return false;
    *out = value;
    return true;
}
