/* buffer.c - see buffer.h. */
#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/buffer.h"

enum { FIRST_CAPACITY = 512 };

void buffer_free(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){0};
}

void buffer_clear(struct buffer *buffer)
{
    buffer->length = 0;
    buffer->failed = false;
}

/* Room for `more` bytes; their place, or NULL. */
static char *buffer_reserve(struct buffer *buffer, size_t more)
{
    if (buffer->failed) return NULL;
    if (more > SIZE_MAX / 2 - buffer->length) goto fail;
    if (buffer->length + more > buffer->capacity) {
        size_t capacity = buffer->capacity ? buffer->capacity : FIRST_CAPACITY;
        while (capacity < buffer->length + more) capacity *= 2;
        char *data = realloc(buffer->data, capacity);
        if (!data) goto fail;
        buffer->data = data;
        buffer->capacity = capacity;
    }
    return buffer->data + buffer->length;
fail:
    buffer->failed = true;
    return NULL;
}

void buffer_add(struct buffer *buffer, const void *bytes, size_t count)
{
    if (count == 0) return;
    char *at = buffer_reserve(buffer, count);
    if (!at) return;
    memcpy(at, bytes, count);
    buffer->length += count;
}

void buffer_add_text(struct buffer *buffer, const char *text)
{
    buffer_add(buffer, text, strlen(text));
}

void buffer_add_format(struct buffer *buffer, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *at = length < 0 ? NULL : buffer_reserve(buffer, (size_t)length + 1);
    if (!at) {
        buffer->failed = true;
        return;
    }
    va_start(arguments, format);
    vsnprintf(at, (size_t)length + 1, format, arguments);
    va_end(arguments);
    buffer->length += (size_t)length;
}

/* Well-formed as in the Unicode standard's table 3-7: no overlong forms, no surrogates, nothing
 * above U+10FFFF. */
size_t utf8_length(const char *text, size_t available)
{
    const unsigned char *byte = (const unsigned char *)text;
    unsigned char low = 0x80, high = 0xBF;
    size_t length;

    if (available == 0) return 0;
    if (byte[0] < 0x80) return 1;
    if (byte[0] < 0xC2 || byte[0] > 0xF4) return 0;
    length = byte[0] < 0xE0 ? 2 : byte[0] < 0xF0 ? 3 : 4;
    if (length > available) return 0;
    if (byte[0] == 0xE0) low = 0xA0;
    if (byte[0] == 0xED) high = 0x9F;
    if (byte[0] == 0xF0) low = 0x90;
    if (byte[0] == 0xF4) high = 0x8F;
    if (byte[1] < low || byte[1] > high) return 0;
    for (size_t i = 2; i < length; i++) {
        if ((byte[i] & 0xC0) != 0x80) return 0;
    }
    return length;
}

size_t utf8_prefix(const char *text)
{
    size_t length = strlen(text), at = 0, step;

    while ((step = utf8_length(text + at, length - at)) > 0) at += step;
    return at;
}

static void add_escape(struct buffer *buffer, unsigned char byte)
{
    static const char letters[] = {['"'] = '"',  ['\\'] = '\\', ['\b'] = 'b', ['\f'] = 'f',
                                   ['\n'] = 'n', ['\r'] = 'r',  ['\t'] = 't'};
    if (byte < sizeof letters && letters[byte]) {
        const char pair[2] = {'\\', letters[byte]};
        buffer_add(buffer, pair, 2);
    } else {
        buffer_add_format(buffer, "\\u%04x", byte);
    }
}

void buffer_add_json(struct buffer *buffer, const char *text, size_t length)
{
    size_t from = 0, at = 0; /* [from, at) may be copied as it is */

    buffer_add(buffer, "\"", 1);
    while (at < length) {
        unsigned char byte = (unsigned char)text[at];
        size_t character = utf8_length(text + at, length - at);
        if (character > 0 && byte >= 0x20 && byte != '"' && byte != '\\') {
            at += character;
            continue;
        }
        buffer_add(buffer, text + from, at - from);
        if (character > 0)
            add_escape(buffer, byte);
        else
            buffer_add_text(buffer, "\xEF\xBF\xBD");
        from = ++at;
    }
    buffer_add(buffer, text + from, at - from);
    buffer_add(buffer, "\"", 1);
}

void buffer_add_number(struct buffer *buffer, double value, int digits)
{
    char text[40];

    if (!isfinite(value)) {
        buffer_add_text(buffer, "null");
        return;
    }
    snprintf(text, sizeof text, "%.*g", digits, value);
    for (char *c = text; *c; c++) { /* the locale's decimal point */
        if (*c == ',') *c = '.';
    }
    buffer_add_text(buffer, text);
}
