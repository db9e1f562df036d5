/* work.c - see work.h. The queue is a list through the exchanges, bounded by the number of
 * connections. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "controller/cause.h"
#include "controller/exchange.h"
#include "controller/work.h"

enum { THREADS_MAX = 8 };

struct work {
    void (*run)(struct exchange *exchange);
    pthread_t thread[THREADS_MAX];
    int threads;
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t changed;
    struct exchange *first, **last;
    bool closed;
};

static void *work_run(void *state)
{
    struct work *work = state;

    pthread_mutex_lock(&work->lock);
    for (;;) {
        struct exchange *exchange = work->first;
        if (!exchange && work->closed) break;
        if (!exchange) {
            pthread_cond_wait(&work->changed, &work->lock);
            continue;
        }
        work->first = exchange->next_job;
        if (!work->first) work->last = &work->first;
        pthread_mutex_unlock(&work->lock);
        work->run(exchange);
        pthread_mutex_lock(&work->lock);
    }
    pthread_mutex_unlock(&work->lock);
    return NULL;
}

struct work *work_new(int threads, void (*run)(struct exchange *exchange), char **cause)
{
    struct work *work = calloc(1, sizeof *work);

    if (!work) {
        cause_set(cause, "out of memory");
        return NULL;
    }
    work->run = run;
    work->last = &work->first;
    pthread_mutex_init(&work->lock, NULL);
    pthread_cond_init(&work->changed, NULL);
    while (work->threads < threads && work->threads < THREADS_MAX) {
        int failed = pthread_create(&work->thread[work->threads], NULL, work_run, work);
        if (failed) {
            cause_set(cause, "cannot start a worker thread: %s", strerror(failed));
            work_free(work);
            return NULL;
        }
        work->threads++;
    }
    return work;
}

bool work_add(struct work *work, struct exchange *exchange)
{
    pthread_mutex_lock(&work->lock);
    bool open = !work->closed;
    if (open) {
        exchange->next_job = NULL;
        *work->last = exchange;
        work->last = &exchange->next_job;
        pthread_cond_signal(&work->changed);
    }
    pthread_mutex_unlock(&work->lock);
    return open;
}

void work_close(struct work *work)
{
    pthread_mutex_lock(&work->lock);
    work->closed = true;
    pthread_cond_broadcast(&work->changed);
    pthread_mutex_unlock(&work->lock);
    for (int i = 0; i < work->threads; i++) pthread_join(work->thread[i], NULL);
    work->threads = 0;
}

void work_free(struct work *work)
{
    if (!work) return;
    work_close(work);
    pthread_mutex_destroy(&work->lock);
    pthread_cond_destroy(&work->changed);
    free(work);
}
