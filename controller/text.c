/* text.c - see text.h. UTF-8 as in RFC 3629: no overlong forms, no surrogates, nothing above
 * U+10FFFF. */
#include "config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "controller/text.h"

struct text {
    char *bytes;
    size_t length, capacity;
    char *const *stops;
    int stop_count;
    size_t longest_stop;
    bool stopped;
};

struct text *text_new(char *const *stops, int count)
{
    struct text *text = calloc(1, sizeof *text);

    if (!text) return NULL;
    text->stops = stops;
    text->stop_count = count;
    for (int i = 0; i < count; i++) {
        size_t length = strlen(stops[i]);

        if (length > text->longest_stop) text->longest_stop = length;
    }
    return text;
}

void text_free(struct text *text)
{
    if (!text) return;
    free(text->bytes);
    free(text);
}

static bool reserve(struct text *text, size_t length)
{
    size_t capacity = text->capacity ? text->capacity : 64;
    char *bytes;

    while (capacity < length) capacity *= 2;
    if (capacity == text->capacity) return true;
    bytes = realloc(text->bytes, capacity);
    if (!bytes) return false;
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

/* Start of the earliest stop string that ends after `from`, or SIZE_MAX. */
static size_t find_stop(const struct text *text, size_t from)
{
    size_t earliest = SIZE_MAX;

    for (int i = 0; i < text->stop_count; i++) {
        size_t length = strlen(text->stops[i]);
        size_t begin = from + 1 > length ? from + 1 - length : 0;
        const char *found;

        if (text->length < length) continue;
        found = memmem(text->bytes + begin, text->length - begin, text->stops[i], length);
        if (found && (size_t)(found - text->bytes) < earliest)
            earliest = (size_t)(found - text->bytes);
    }
    return earliest;
}

bool text_add(struct text *text, const char *bytes, size_t length)
{
    size_t from = text->length;
    size_t stop;

    if (text->stopped || length == 0) return text->stopped;
    if (!reserve(text, text->length + length)) return false;
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    stop = find_stop(text, from);
    if (stop == SIZE_MAX) return false;
    text->length = stop;
    text->stopped = true;
    return true;
}

/* Length of the longest end of the text that begins some stop string. */
static size_t possible_stop(const struct text *text)
{
    size_t longest = text->longest_stop < text->length + 1 ? text->longest_stop : text->length + 1;

    for (size_t tail = longest ? longest - 1 : 0; tail > 0; tail--) {
        for (int i = 0; i < text->stop_count; i++) {
            if (strlen(text->stops[i]) > tail &&
                memcmp(text->bytes + text->length - tail, text->stops[i], tail) == 0)
                return tail;
        }
    }
    return 0;
}

/* Length of the character at s (1..4), 0 when the bytes can never start one, -1 when more bytes are
 * needed. */
static int character_length(const unsigned char *s, size_t available)
{
    unsigned char low = 0x80, high = 0xbf;
    int length;

    if (s[0] < 0x80) return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    length = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (s[0] == 0xe0) low = 0xa0;
    if (s[0] == 0xed) high = 0x9f;
    if (s[0] == 0xf0) low = 0x90;
    if (s[0] == 0xf4) high = 0x8f;
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= available) return -1;
        if (s[i] < low || s[i] > high) return 0;
        low = 0x80;
        high = 0xbf;
    }
    return length;
}

char *text_take(struct text *text, bool final, size_t *length)
{
    static const char replacement[] = "\xef\xbf\xbd";
    size_t end = text->length, at = 0, filled = 0;
    char *out;

    *length = 0;
    if (!text->stopped && !final) end -= possible_stop(text);
    if (end == 0) return NULL;
    out = malloc(3 * end + 1);
    if (!out) return NULL;
    while (at < end) {
        int size = character_length((const unsigned char *)text->bytes + at, end - at);

        if (size < 0 && !final && !text->stopped) break;
        if (size > 0) {
            memcpy(out + filled, text->bytes + at, (size_t)size);
            filled += (size_t)size;
            at += (size_t)size;
        } else {
            memcpy(out + filled, replacement, 3);
            filled += 3;
            at = size < 0 ? end : at + 1;
        }
    }
    memmove(text->bytes, text->bytes + at, text->length - at);
    text->length -= at;
    if (filled == 0) {
        free(out);
        return NULL;
    }
    out[filled] = '\0';
    *length = filled;
    return out;
}
