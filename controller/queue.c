/* queue.c - see queue.h. A ring under one mutex, which guards every field. */
#include "config.h"

#include <pthread.h>
#include <stdlib.h>

#include "controller/queue.h"
#include "controller/request_node.h"
#include "controller/ticks.h"

struct queue {
    pthread_mutex_t lock; /* guards all below */
    struct request **request;
    int64_t *since_us;
    int capacity, first, count;
    bool closed;
};

struct queue *queue_new(int capacity)
{
    struct queue *queue = calloc(1, sizeof *queue);

    if (!queue) return NULL;
    queue->capacity = capacity;
    queue->request = calloc((size_t)capacity, sizeof *queue->request);
    queue->since_us = calloc((size_t)capacity, sizeof *queue->since_us);
    pthread_mutex_init(&queue->lock, NULL);
    if (queue->request && queue->since_us) return queue;
    queue_free(queue);
    return NULL;
}

void queue_free(struct queue *queue)
{
    if (!queue) return;
    for (int i = 0; i < queue->count; i++) {
        struct request *request = queue->request[(queue->first + i) % queue->capacity];

        request_finish(request, REQUEST_FAILED, "the node is stopping");
        request_unref(request);
    }
    pthread_mutex_destroy(&queue->lock);
    free(queue->request);
    free(queue->since_us);
    free(queue);
}

bool queue_push(struct queue *queue, struct request *request)
{
    bool pushed = false;

    pthread_mutex_lock(&queue->lock);
    if (!queue->closed && queue->count < queue->capacity) {
        int at = (queue->first + queue->count++) % queue->capacity;

        queue->request[at] = request_ref(request);
        queue->since_us[at] = ticks_us();
        pushed = true;
    }
    pthread_mutex_unlock(&queue->lock);
    return pushed;
}

struct request *queue_peek(struct queue *queue, int64_t *since_us)
{
    struct request *request = NULL;

    pthread_mutex_lock(&queue->lock);
    if (queue->count > 0) {
        request = queue->request[queue->first];
        *since_us = queue->since_us[queue->first];
    }
    pthread_mutex_unlock(&queue->lock);
    return request;
}

void queue_pop(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    if (queue->count > 0) {
        queue->first = (queue->first + 1) % queue->capacity;
        queue->count--;
    }
    pthread_mutex_unlock(&queue->lock);
}

int queue_length(struct queue *queue)
{
    int count;

    pthread_mutex_lock(&queue->lock);
    count = queue->count;
    pthread_mutex_unlock(&queue->lock);
    return count;
}

void queue_close(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->closed = true;
    pthread_mutex_unlock(&queue->lock);
}

bool queue_ask_stop(struct queue *queue, uint64_t id)
{
    bool found = false;

    pthread_mutex_lock(&queue->lock);
    for (int i = 0; i < queue->count && !found; i++) {
        struct request *request = queue->request[(queue->first + i) % queue->capacity];

        if (request_id(request) != id) continue;
        request_ask_stop(request);
        found = true;
    }
    pthread_mutex_unlock(&queue->lock);
    return found;
}

void queue_visit(struct queue *queue,
                 void (*visit)(void *state, struct request *request, int64_t since_us), void *state)
{
    pthread_mutex_lock(&queue->lock);
    for (int i = 0; i < queue->count; i++) {
        int at = (queue->first + i) % queue->capacity;

        visit(state, queue->request[at], queue->since_us[at]);
    }
    pthread_mutex_unlock(&queue->lock);
}
