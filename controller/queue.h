/* queue.h - requests that wait for a slot: first come, first served, bounded. Thread-safe; holds a
 * reference each. */
#ifndef CONTROLLER_QUEUE_H
#define CONTROLLER_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "controller/request.h"

struct queue;

struct queue *queue_new(int capacity);
void queue_free(struct queue *queue); /* fails what is left; NULL-safe */
/* False when it is full or closed. */
bool queue_push(struct queue *queue, struct request *request);
/* The oldest request and when it came (monotonic us), without removing it; NULL when empty. Only
 * the loop removes. */
struct request *queue_peek(struct queue *queue, int64_t *since_us);
void queue_pop(struct queue *queue); /* the oldest; its reference passes to the caller */
int queue_length(struct queue *queue);
void queue_close(struct queue *queue); /* refuse further pushes */
/* Ask the request with this id to stop; false when it does not wait here. */
bool queue_ask_stop(struct queue *queue, uint64_t id);
/* Call visit for each waiting request, oldest first, under the lock. */
void queue_visit(struct queue *queue,
                 void (*visit)(void *state, struct request *request, int64_t since_us),
                 void *state);

#endif
