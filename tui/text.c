/* text.c - see text.h. UTF-8 decoding after RFC 3629 (no surrogates, no overlong forms). */
#include "config.h"

#include "tui/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

uint32_t text_next(const char **text)
{
    const unsigned char *byte = (const unsigned char *)*text;
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t character = byte[0];
    int length = byte[0] < 0x80             ? 1
                 : (byte[0] & 0xe0) == 0xc0 ? 2
                 : (byte[0] & 0xf0) == 0xe0 ? 3
                 : (byte[0] & 0xf8) == 0xf0 ? 4
                                            : 0;

    if (character == 0) return 0;
    if (length > 1) character &= 0x7fu >> length;
    for (int i = 1; i < length; i++) {
        if ((byte[i] & 0xc0) != 0x80) { /* also the terminating zero */
            length = 0;
            break;
        }
        character = character << 6 | (byte[i] & 0x3fu);
    }
    if (length == 0 || character < least[length] || character > 0x10ffff ||
        (character >= 0xd800 && character < 0xe000)) {
        *text += 1;
        return TEXT_REPLACEMENT;
    }
    *text += length;
    return character;
}

size_t text_encode(uint32_t character, char out[5])
{
    size_t length = 0;

    if (character < 0x80) {
        out[length++] = (char)character;
    } else if (character < 0x800) {
        out[length++] = (char)(0xc0 | character >> 6);
    } else if (character < 0x10000) {
        out[length++] = (char)(0xe0 | character >> 12);
        out[length++] = (char)(0x80 | (character >> 6 & 0x3f));
    } else {
        out[length++] = (char)(0xf0 | character >> 18);
        out[length++] = (char)(0x80 | (character >> 12 & 0x3f));
        out[length++] = (char)(0x80 | (character >> 6 & 0x3f));
    }
    if (character >= 0x80) out[length++] = (char)(0x80 | (character & 0x3f));
    out[length] = '\0';
    return length;
}

/* Bidirectional controls, invisible separators and the like: they can make a line read differently
 * than it is. */
static bool is_invisible(uint32_t c)
{
    return c == 0xad || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xe0000 && c <= 0xe0fff) ||
           (c >= 0xfe00 && c <= 0xfe0f);
}

int text_char_width(uint32_t character)
{
    int width;

    if (character < 0x20 || (character >= 0x7f && character < 0xa0) || is_invisible(character))
        return 0;
    if (character < 0x7f) return 1;
    width = wcwidth((wchar_t)character);
    return width < 0 ? 1 : width; /* unknown to the locale: drawn as `?` */
}

int text_width(const char *text)
{
    int columns = 0;
    uint32_t character;

    while ((character = text_next(&text)) != 0) columns += text_char_width(character);
    return columns;
}

/* Copy at most `columns` columns; returns false when something was left out. */
static bool copy_columns(char *out, size_t size, const char *text, int columns)
{
    size_t used = 0;
    uint32_t character;
    bool whole = true;

    while ((character = text_next(&text)) != 0) {
        char bytes[5];
        size_t length;
        int width;

        if (character == '\n' || character == '\t' || character == '\r') character = ' ';
        width = text_char_width(character);
        if (width == 0) continue;
        length = text_encode(character, bytes);
        if (width > columns || used + length >= size) {
            whole = false;
            break;
        }
        memcpy(out + used, bytes, length);
        used += length;
        columns -= width;
    }
    if (size > 0) out[used] = '\0';
    return whole;
}

char *text_clean(char *out, size_t size, const char *text)
{
    copy_columns(out, size, text, 1 << 30);
    return out;
}

char *text_shorten(char *out, size_t size, const char *text, int columns)
{
    if (columns < 1) columns = 0;
    if (!copy_columns(out, size, text, columns) && columns > 0) {
        copy_columns(out, size > 4 ? size - 4 : 0, text, columns - 1);
        if (size > 4) strcat(out, "\xe2\x80\xa6"); /* … */
    }
    return out;
}

char *text_significant(char out[TEXT_NUMBER], double value)
{
    static const char *const suffix[] = {"", "k", "M", "G", "T"};
    double size = fabs(value);
    int step = 0, decimals;

    if (!isfinite(value)) return strcpy(out, TEXT_UNKNOWN);
    while (size >= 999.5 && step < 4) {
        size /= 1000;
        step++;
    }
    decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 || size == 0 ? 2 : 3;
    snprintf(out, TEXT_NUMBER, "%s%.*f%s", value < 0 && size >= 0.0005 ? "-" : "", decimals, size,
             suffix[step]);
    return out;
}

char *text_decimal(char out[TEXT_NUMBER], double value, int decimals)
{
    double half = 0.5 * pow(10, -decimals);

    if (!isfinite(value) || fabs(value) > 1e12) return strcpy(out, TEXT_UNKNOWN);
    snprintf(out, TEXT_NUMBER, "%.*f", decimals, fabs(value) < half ? 0.0 : value);
    return out;
}

char *text_signed(char out[TEXT_NUMBER], double value, int decimals)
{
    double half = 0.5 * pow(10, -decimals);

    if (!isfinite(value) || fabs(value) > 1e12) return strcpy(out, TEXT_UNKNOWN);
    snprintf(out, TEXT_NUMBER, "%+.*f", decimals, fabs(value) < half ? 0.0 : value);
    return out;
}

char *text_count(char out[TEXT_NUMBER], int64_t count)
{
    if (count < 0) return strcpy(out, TEXT_UNKNOWN);
    if (count < 1000000) {
        snprintf(out, TEXT_NUMBER, "%lld", (long long)count);
        return out;
    }
    return text_significant(out, (double)count);
}

char *text_uptime(char out[TEXT_NUMBER], double seconds)
{
    long long whole;

    if (!isfinite(seconds) || seconds < 0 || seconds > 1e11) return strcpy(out, TEXT_UNKNOWN);
    whole = (long long)seconds;
    if (whole < 86400)
        snprintf(out, TEXT_NUMBER, "%02lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                 whole % 60);
    else
        snprintf(out, TEXT_NUMBER, "%lldd %02lld:%02lld", whole / 86400, whole / 3600 % 24,
                 whole / 60 % 60);
    return out;
}

char *text_age(char out[TEXT_NUMBER], double seconds)
{
    if (!isfinite(seconds) || seconds < 0 || seconds > 1e11) return strcpy(out, TEXT_UNKNOWN);
    if (seconds < 100)
        snprintf(out, TEXT_NUMBER, "%.0f s", floor(seconds));
    else if (seconds < 6000)
        snprintf(out, TEXT_NUMBER, "%.0f min", floor(seconds / 60));
    else if (seconds < 48 * 3600)
        snprintf(out, TEXT_NUMBER, "%.0f h", floor(seconds / 3600));
    else
        snprintf(out, TEXT_NUMBER, "%.0f d", floor(seconds / 86400));
    return out;
}

char *text_young_age(char out[TEXT_NUMBER], double seconds)
{
    if (!(seconds >= 0 && seconds < 10)) return text_age(out, seconds);
    snprintf(out, TEXT_NUMBER, "%.1f s", seconds);
    return out;
}

#define YEAR_9999_MS 253402300799999

static char *format_time(char out[TEXT_NUMBER], int64_t time_ms, bool utc, const char *format)
{
    time_t seconds = (time_t)(time_ms / 1000);
    struct tm parts;

    if (time_ms <= 0 || time_ms > YEAR_9999_MS ||
        (utc ? gmtime_r(&seconds, &parts) : localtime_r(&seconds, &parts)) == NULL)
        return strcpy(out, TEXT_UNKNOWN);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (strftime(out, TEXT_NUMBER, format, &parts) == 0) strcpy(out, TEXT_UNKNOWN);
#pragma GCC diagnostic pop
    return out;
}

char *text_clock(char out[TEXT_NUMBER], int64_t time_ms, bool utc)
{
    return format_time(out, time_ms, utc, "%H:%M:%S");
}

char *text_date(char out[TEXT_NUMBER], int64_t time_ms, bool utc)
{
    return format_time(out, time_ms, utc, "%Y-%m-%d %H:%M:%S");
}

char *text_moment(char out[TEXT_NUMBER], int64_t time_ms, int64_t now_ms, bool utc)
{
    char today[TEXT_NUMBER];

    text_date(today, now_ms, utc);
    text_date(out, time_ms, utc);
    return strncmp(out, today, sizeof "2026-11-30" - 1) == 0 ? text_clock(out, time_ms, utc) : out;
}

char *text_moment_brief(char out[TEXT_NUMBER], int64_t time_ms, int64_t now_ms, bool utc)
{
    char today[TEXT_NUMBER];

    text_date(today, now_ms, utc);
    text_date(out, time_ms, utc);
    if (strncmp(out, today, sizeof "2026-11-30" - 1) == 0) return text_clock(out, time_ms, utc);
    return format_time(out, time_ms, utc,
                       strncmp(out, today, sizeof "2026" - 1) == 0 ? "%m-%d %H:%M" : "%Y-%m-%d");
}

char *text_span(char out[TEXT_NUMBER], int64_t span_ms)
{
    const int64_t minutes = span_ms / 60000;

    if (minutes <= 60)
        snprintf(out, TEXT_NUMBER, "%d min", (int)minutes);
    else if (minutes <= 48 * 60)
        snprintf(out, TEXT_NUMBER, "%d h", (int)(minutes / 60));
    else
        snprintf(out, TEXT_NUMBER, "%d d", (int)(minutes / (24 * 60)));
    return out;
}

char *text_zone(char out[TEXT_NUMBER], int64_t time_ms, bool utc)
{
    if (utc) return strcpy(out, "UTC");
    return format_time(out, time_ms, false, "%Z");
}
