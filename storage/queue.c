/* queue.c - see queue.h.
 *
 * A packed row is a header, the struct up to its last used position, and its strings. One table
 * says, per kind, where the positions and the strings are.
 */
#include "config.h"

#include "storage/queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STRINGS 7
#define STRING_LIMIT 16384 /* bytes of one string; the rest is cut off */
#define NULL_STRING UINT32_MAX

struct header {
    uint32_t kind;
    uint32_t bytes;               /* of the struct's used part */
    uint32_t length[MAX_STRINGS]; /* without the NUL, or NULL_STRING */
};

struct layout {
    size_t size;
    size_t array,
        element; /* offset of the last member, an array a position; its element's size; 0 = none */
    size_t positions; /* offset of the count, an int */
    int strings;
    size_t string[MAX_STRINGS];
};

#define OFFSET(type, member) offsetof(struct type, member)
#define ELEMENT(type, member) sizeof(((struct type *)0)->member[0])
static const struct layout layouts[QUEUE_KINDS] = {
    [QUEUE_SAMPLE] = {sizeof(struct store_sample),
                      OFFSET(store_sample, position),
                      ELEMENT(store_sample, position),
                      OFFSET(store_sample, positions),
                      1,
                      {OFFSET(store_sample, mode)}},
    [QUEUE_REFIT] = {sizeof(struct store_refit),
                     OFFSET(store_refit, position),
                     ELEMENT(store_refit, position),
                     OFFSET(store_refit, positions),
                     3,
                     {OFFSET(store_refit, stratum), OFFSET(store_refit, kind),
                      OFFSET(store_refit, rejected)}},
    [QUEUE_CALIBRATION] = {sizeof(struct store_calibration),
                           OFFSET(store_calibration, bin),
                           ELEMENT(store_calibration, bin),
                           OFFSET(store_calibration, positions),
                           1,
                           {OFFSET(store_calibration, stratum)}},
    [QUEUE_COST] = {sizeof(struct store_cost), 0, 0, 0, 1, {OFFSET(store_cost, part)}},
    [QUEUE_DECISION] = {sizeof(struct store_decision),
                        0,
                        0,
                        0,
                        7,
                        {OFFSET(store_decision, who), OFFSET(store_decision, origin),
                         OFFSET(store_decision, what), OFFSET(store_decision, before),
                         OFFSET(store_decision, after), OFFSET(store_decision, reason),
                         OFFSET(store_decision, numbers_json)}},
    [QUEUE_EVENT] = {sizeof(struct store_event),
                     0,
                     0,
                     0,
                     4,
                     {OFFSET(store_event, severity), OFFSET(store_event, kind),
                      OFFSET(store_event, text), OFFSET(store_event, numbers_json)}},
};

bool store_queue_init(struct store_queue *queue, size_t capacity)
{
    *queue = (struct store_queue){.buffer = malloc(capacity), .capacity = capacity};
    return queue->buffer != NULL;
}

void store_queue_free(struct store_queue *queue)
{
    free(queue->buffer);
    *queue = (struct store_queue){0};
}

void store_queue_clear(struct store_queue *queue)
{
    queue->used = 0;
    queue->rows = 0;
}

static size_t used_bytes(const struct layout *layout, const void *row)
{
    if (layout->element == 0) return layout->size;
    int positions;
    memcpy(&positions, (const char *)row + layout->positions, sizeof positions);
    if (positions < 0) positions = 0;
    if (positions > STORE_MAX_POSITIONS) positions = STORE_MAX_POSITIONS;
    return layout->array + layout->element * (size_t)positions;
}

static const char *string_of(const struct layout *layout, const void *row, int i)
{
    const char *string;
    memcpy(&string, (const char *)row + layout->string[i], sizeof string);
    return string;
}

bool store_queue_push(struct store_queue *queue, enum queue_kind kind, const void *row)
{
    assert(kind < QUEUE_KINDS);
    const struct layout *layout = &layouts[kind];
    struct header header = {.kind = kind, .bytes = (uint32_t)used_bytes(layout, row)};
    size_t total = sizeof header + header.bytes;
    for (int i = 0; i < layout->strings; i++) {
        const char *string = string_of(layout, row, i);
        header.length[i] = string ? (uint32_t)strnlen(string, STRING_LIMIT) : NULL_STRING;
        total += string ? header.length[i] + 1 : 0;
    }
    if (total > queue->capacity - queue->used) return false;
    unsigned char *to = queue->buffer + queue->used;
    memcpy(to, &header, sizeof header);
    memcpy(to + sizeof header, row, header.bytes);
    to += sizeof header + header.bytes;
    for (int i = 0; i < layout->strings; i++) {
        if (header.length[i] == NULL_STRING) continue;
        memcpy(to, string_of(layout, row, i), header.length[i]);
        to[header.length[i]] = '\0';
        to += header.length[i] + 1;
    }
    queue->used += total;
    queue->rows++;
    return true;
}

bool store_queue_next(const struct store_queue *queue, size_t *offset, enum queue_kind *kind,
                      union queue_row *row)
{
    struct header header;
    if (*offset >= queue->used) return false;
    const unsigned char *from = queue->buffer + *offset;
    memcpy(&header, from, sizeof header);
    assert(header.kind < QUEUE_KINDS);
    const struct layout *layout = &layouts[header.kind];
    *kind = (enum queue_kind)header.kind;
    memcpy(row, from + sizeof header, header.bytes);
    size_t at = *offset + sizeof header + header.bytes;
    for (int i = 0; i < layout->strings; i++) {
        const char *string = NULL;
        if (header.length[i] != NULL_STRING) {
            string = (const char *)queue->buffer + at;
            at += header.length[i] + 1;
        }
        memcpy((char *)row + layout->string[i], &string, sizeof string);
    }
    *offset = at;
    return true;
}
