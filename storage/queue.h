/* queue.h - rows on their way to the writer: packed into one of two fixed buffers, so that a put is
 * a copy under a short lock and nothing is allocated.
 *
 * Not thread-safe by itself: the store's mutex guards the front buffer, the writer alone reads the
 * back one.
 */
#ifndef STORAGE_QUEUE_H
#define STORAGE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/store.h"

enum queue_kind {
    QUEUE_SAMPLE,
    QUEUE_REFIT,
    QUEUE_CALIBRATION,
    QUEUE_COST,
    QUEUE_DECISION,
    QUEUE_EVENT,
    QUEUE_KINDS
};

union queue_row {
    struct store_sample sample;
    struct store_refit refit;
    struct store_calibration calibration;
    struct store_cost cost;
    struct store_decision decision;
    struct store_event event;
};

struct store_queue {
    unsigned char *buffer;
    size_t capacity, used;
    uint64_t rows;
};

bool store_queue_init(struct store_queue *queue, size_t capacity);
void store_queue_free(struct store_queue *queue);
void store_queue_clear(struct store_queue *queue);
/* Append a copy of `row` (a struct of the kind), strings included. False when it does not fit. */
bool store_queue_push(struct store_queue *queue, enum queue_kind kind, const void *row);
/* The row at *offset, with strings that point into the buffer; *offset moves on. False at the end.
 */
bool store_queue_next(const struct store_queue *queue, size_t *offset, enum queue_kind *kind,
                      union queue_row *row);

#endif
