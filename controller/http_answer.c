/* http_answer.c - see http_answer.h. RFC 9112, the parts that an answer to GET needs. */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "controller/cause.h"
#include "controller/http_answer.h"

static const char mark[] = "HTTP/1.";

struct head { /* what the headers say */
    bool chunked;
    bool has_length;
    uint64_t length;
};

bool http_answer_is(const char *text, size_t length)
{
    return length >= sizeof mark - 1 && memcmp(text, mark, sizeof mark - 1) == 0;
}

/* Length of the line at `at` without its end; *next is where the following one begins. False when
 * no line ends. */
static bool take_line(const char *at, const char *end, size_t *length, const char **next)
{
    const char *stop = memchr(at, '\n', (size_t)(end - at));

    if (!stop) return false;
    *next = stop + 1;
    *length = (size_t)(stop - at);
    if (*length > 0 && at[*length - 1] == '\r') --*length;
    return true;
}

/* Is the line the header `name`? Its value then. */
static bool header_is(const char *line, size_t length, const char *name, const char **value,
                      size_t *value_length)
{
    size_t name_length = strlen(name);

    if (length <= name_length || line[name_length] != ':' ||
        strncasecmp(line, name, name_length) != 0)
        return false;
    line += name_length + 1;
    length -= name_length + 1;
    while (length > 0 && (*line == ' ' || *line == '\t')) {
        line++;
        length--;
    }
    *value = line;
    *value_length = length;
    return true;
}

/* Digits only, of base 10 or 16. False on anything else or when it does not fit. */
static bool read_size(const char *text, size_t length, unsigned base, uint64_t *out)
{
    static const char digits[] = "0123456789abcdef";

    *out = 0;
    for (size_t i = 0; i < length; i++) {
        const char *digit = memchr(digits, text[i] | 0x20, base);

        if (!digit || *out > (UINT64_MAX >> 8)) return false;
        *out = *out * base + (uint64_t)(digit - digits);
    }
    return length > 0;
}

static int read_header(const char *line, size_t length, struct head *head, char *type,
                       size_t type_size, char **cause)
{
    const char *value;
    size_t value_length;

    if (header_is(line, length, "content-type", &value, &value_length)) {
        snprintf(type, type_size, "%.*s", (int)(value_length < 200 ? value_length : 200), value);
    } else if (header_is(line, length, "transfer-encoding", &value, &value_length)) {
        head->chunked = value_length == 7 && strncasecmp(value, "chunked", 7) == 0;
        if (head->chunked) return 0;
        cause_set(cause, "the answer's transfer encoding is not chunked");
        return -1;
    } else if (header_is(line, length, "content-length", &value, &value_length)) {
        head->has_length = read_size(value, value_length, 10, &head->length);
        if (head->has_length) return 0;
        cause_set(cause, "the answer's content length is not a number");
        return -1;
    } else if (header_is(line, length, "content-encoding", &value, &value_length) &&
               !(value_length == 8 && strncasecmp(value, "identity", 8) == 0)) {
        cause_set(cause, "the answer is compressed (%.*s)", (int)(value_length & 31), value);
        return -1;
    }
    return 0;
}

static int read_chunks(const char *at, const char *end, struct buffer *body, char **cause)
{
    uint64_t size;
    size_t length;
    const char *next;

    for (;;) {
        if (!take_line(at, end, &length, &next)) break;
        for (size_t i = 0; i < length; i++)
            if (at[i] == ';' || at[i] == ' ') length = i; /* extensions say nothing to us */
        if (!read_size(at, length, 16, &size)) {
            cause_set(cause, "a chunk's size is not a number");
            return -1;
        }
        at = next;
        if (size == 0) return 0;
        if (size > (uint64_t)(end - at)) break;
        buffer_add(body, at, (size_t)size);
        at += size;
        if (!take_line(at, end, &length, &next)) break;
        if (length != 0) {
            cause_set(cause, "a chunk is longer than its size says");
            return -1;
        }
        at = next;
    }
    cause_set(cause, "the answer is cut short: its last chunk is missing");
    return -1;
}

static int read_body(const char *at, const char *end, const struct head *head, struct buffer *body,
                     char **cause)
{
    if (head->chunked) return read_chunks(at, end, body, cause);
    if (head->has_length && head->length > (uint64_t)(end - at)) {
        cause_set(cause, "the answer is cut short: %zu bytes of %llu", (size_t)(end - at),
                  (unsigned long long)head->length);
        return -1;
    }
    buffer_add(body, at, head->has_length ? (size_t)head->length : (size_t)(end - at));
    return 0;
}

int http_answer_read(const char *text, size_t length, int *status, char *type, size_t type_size,
                     struct buffer *body, char **cause)
{
    const char *at = text, *end = text + length, *next;
    struct head head = {0};
    size_t line;
    uint64_t code;

    type[0] = '\0';
    if (!http_answer_is(text, length) || !take_line(at, end, &line, &next) || line < 12 ||
        !read_size(at + 9, 3, 10, &code)) {
        cause_set(cause, "the answer has no HTTP status line");
        return -1;
    }
    *status = (int)code;
    for (at = next; take_line(at, end, &line, &next); at = next) {
        if (line == 0) return read_body(next, end, &head, body, cause);
        if (read_header(at, line, &head, type, type_size, cause) != 0) return -1;
    }
    cause_set(cause, "the answer is cut short inside its headers");
    return -1;
}
