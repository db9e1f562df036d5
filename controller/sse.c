/* sse.c - see sse.h. */
#include "config.h"

#include "controller/sse.h"

#include <string.h>

/* One line, without its end. False when the stream shall stop. */
static bool take_line(struct sse *sse, const char *line, size_t length)
{
    static const char field[] = "data:";
    bool more;

    if (length > 0 && line[length - 1] == '\r') length--;
    if (length >= sizeof field - 1 && memcmp(line, field, sizeof field - 1) == 0) {
        size_t skip = sizeof field - 1;

        if (skip < length && line[skip] == ' ') skip++;
        if (sse->data.length > 0) buffer_add(&sse->data, "\n", 1);
        buffer_add(&sse->data, line + skip, length - skip);
        sse->too_large |= sse->data.length > sse->limit || sse->data.failed;
        return !sse->too_large;
    }
    if (length > 0 || sse->data.length == 0) return true;
    more = sse->event(sse->state, sse->data.data, sse->data.length);
    buffer_clear(&sse->data);
    return more;
}

bool sse_take(struct sse *sse, const char *bytes, size_t count)
{
    struct buffer *line = &sse->line;
    size_t start = 0;
    char *newline;

    if (count == 0) return true;
    buffer_add(line, bytes, count);
    if (line->failed) {
        sse->too_large = true;
        return false;
    }
    while ((newline = memchr(line->data + sse->scanned, '\n', line->length - sse->scanned))) {
        size_t end = (size_t)(newline - line->data);

        if (!take_line(sse, line->data + start, end - start)) return false;
        start = sse->scanned = end + 1;
    }
    memmove(line->data, line->data + start, line->length - start);
    line->length -= start;
    sse->scanned = line->length;
    sse->too_large |= line->length > sse->limit;
    return !sse->too_large;
}

void sse_clear(struct sse *sse)
{
    buffer_clear(&sse->line);
    buffer_clear(&sse->data);
    sse->scanned = 0;
    sse->too_large = false;
}

void sse_free(struct sse *sse)
{
    buffer_free(&sse->line);
    buffer_free(&sse->data);
}
