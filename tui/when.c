/* when.c - see when.h. */
#include "config.h"

#include "tui/when.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "controller/number.h"

#define DAY_MS INT64_C(86400000)
#define MOST_UNITS 999999 /* of a span */

int64_t when_span_ms(const char *text)
{
    static const struct {
        char unit;
        int64_t ms;
    } units[] = {{'s', 1000}, {'m', 60000}, {'h', 3600000}, {'d', DAY_MS}, {'w', 7 * DAY_MS}};
    char count[32];
    size_t length = strlen(text);
    double number;

    if (length < 2 || length > sizeof count) return -1;
    snprintf(count, sizeof count, "%.*s", (int)(length - 1), text);
    if (!number_read_real(count, 0, MOST_UNITS, &number) || !(number > 0)) return -1;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (units[i].unit == text[length - 1]) return (int64_t)(number * (double)units[i].ms);
    return -1;
}

static int64_t to_ms(struct tm fields, bool utc)
{
    fields.tm_isdst = -1; /* the zone's rules say */
    return (int64_t)(utc ? timegm(&fields) : mktime(&fields)) * 1000;
}

bool when_parse(const char *text, int64_t now_ms, bool utc, int64_t *out)
{
    /* What a moment that lies ahead was meant to be: yesterday's, last year's; else it is refused.
     */
    enum repeat { NEVER, DAILY, YEARLY };
    static const struct {
        const char *format;
        enum repeat repeat;
    } forms[] = {
        {"%H:%M:%S", DAILY},       {"%H:%M", DAILY},    {"%Y-%m-%d %H:%M:%S", NEVER},
        {"%Y-%m-%d %H:%M", NEVER}, {"%Y-%m-%d", NEVER}, {"%m-%d %H:%M", YEARLY},
        {"%m-%d", YEARLY},
    };
    const time_t now = (time_t)(now_ms / 1000);
    int64_t span_ms = when_span_ms(text + (text[0] == '-'));

    if (span_ms > 0) {
        *out = now_ms - span_ms;
        return *out > 0;
    }
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct tm fields, today;
        const char *end;
        int64_t time_ms;

        if ((utc ? gmtime_r(&now, &today) : localtime_r(&now, &today)) == NULL) return false;
        fields = (struct tm){.tm_year = today.tm_year, .tm_mon = today.tm_mon, .tm_mday = 1};
        if (forms[i].repeat == DAILY) fields.tm_mday = today.tm_mday;
        end = strptime(text, forms[i].format, &fields);
        if (end == NULL || *end != '\0') continue;
        time_ms = to_ms(fields, utc);
        if (time_ms > now_ms && forms[i].repeat == DAILY) fields.tm_mday--;
        if (time_ms > now_ms && forms[i].repeat == YEARLY) fields.tm_year--;
        *out = to_ms(fields, utc);
        return *out > 0 && *out <= now_ms;
    }
    return false;
}
