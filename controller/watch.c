/* watch.c - see watch.h. epoll(7) on the connections' own descriptors: one event each, for a
 * hang-up. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "controller/cause.h"
#include "controller/exchange.h"
#include "controller/ticks.h"
#include "controller/watch.h"

enum {
    EVENTS = 32,
    LATE_TICKS = 8
}; /* events of one epoll_wait; ticks missed before the rhythm starts anew */

struct watch {
    int epoll, wakeup; /* wakeup: an eventfd, serial 0 */
    pthread_t thread;
    bool started;
    atomic_bool stop;
    pthread_mutex_t lock; /* guards the list, serials and the exchanges' tick fields; taken before
                             an exchange's lock */
    struct exchange *first;
    int count;
    uint64_t last_serial;
};

static void wakeup(struct watch *watch)
{
    uint64_t one = 1;
    ssize_t written = write(watch->wakeup, &one, sizeof one);
    (void)written; /* full = already awake */
}

/* Under the lock: wake what is due; milliseconds until the next, or -1. */
static int run_ticks(struct watch *watch, int64_t now)
{
    int64_t next = -1;

    for (struct exchange *x = watch->first; x; x = x->next) {
        if (x->tick_interval_ms == 0) continue;
        if (x->tick_due_ms <= now) {
            exchange_tick(x);
            x->tick_due_ms += x->tick_interval_ms;
            if (x->tick_due_ms + LATE_TICKS * x->tick_interval_ms <= now)
                x->tick_due_ms = now + x->tick_interval_ms; /* the machine slept */
        }
        if (next < 0 || x->tick_due_ms < next) next = x->tick_due_ms;
    }
    if (next < 0) return -1;
    return next <= now ? 0 : (int)(next - now);
}

static void hang_up(struct watch *watch, uint64_t serial)
{
    for (struct exchange *x = watch->first; x; x = x->next) {
        if (x->serial != serial) continue;
        exchange_set_gone(x);
        return;
    }
}

static void *watch_run(void *state)
{
    struct watch *watch = state;
    struct epoll_event events[EVENTS];
    int timeout = -1;

    while (!atomic_load(&watch->stop)) {
        int count = epoll_wait(watch->epoll, events, EVENTS, timeout);
        pthread_mutex_lock(&watch->lock);
        for (int i = 0; i < count; i++) {
            if (events[i].data.u64 != 0) {
                hang_up(watch, events[i].data.u64);
            } else {
                uint64_t sink;
                ssize_t got = read(watch->wakeup, &sink, sizeof sink);
                (void)got;
            }
        }
        timeout = run_ticks(watch, monotonic_ms());
        pthread_mutex_unlock(&watch->lock);
    }
    return NULL;
}

struct watch *watch_new(char **cause)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct watch *watch = calloc(1, sizeof *watch);

    if (!watch) {
        cause_set(cause, "out of memory");
        return NULL;
    }
    pthread_mutex_init(&watch->lock, NULL);
    atomic_init(&watch->stop, false);
    watch->epoll = epoll_create1(EPOLL_CLOEXEC);
    watch->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watch->epoll < 0 || watch->wakeup < 0 ||
        epoll_ctl(watch->epoll, EPOLL_CTL_ADD, watch->wakeup, &event) != 0 ||
        pthread_create(&watch->thread, NULL, watch_run, watch) != 0) {
        cause_set(cause, "cannot start the thread that watches clients: %s", strerror(errno));
        watch_free(watch);
        return NULL;
    }
    watch->started = true;
    return watch;
}

void watch_free(struct watch *watch)
{
    if (!watch) return;
    if (watch->started) {
        atomic_store(&watch->stop, true);
        wakeup(watch);
        pthread_join(watch->thread, NULL);
    }
    if (watch->epoll >= 0) close(watch->epoll);
    if (watch->wakeup >= 0) close(watch->wakeup);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

bool watch_add(struct watch *watch, struct exchange *exchange)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT};
    bool added;

    pthread_mutex_lock(&watch->lock);
    exchange->serial = ++watch->last_serial;
    event.data.u64 = exchange->serial;
    added = epoll_ctl(watch->epoll, EPOLL_CTL_ADD, exchange->fd, &event) == 0;
    if (added) {
        exchange->watched = true;
        exchange->next = watch->first;
        exchange->previous = NULL;
        if (watch->first) watch->first->previous = exchange;
        watch->first = exchange;
        watch->count++;
    }
    pthread_mutex_unlock(&watch->lock);
    return added;
}

void watch_remove(struct watch *watch, struct exchange *exchange)
{
    pthread_mutex_lock(&watch->lock);
    if (exchange->watched) {
        epoll_ctl(watch->epoll, EPOLL_CTL_DEL, exchange->fd, NULL);
        if (exchange->previous)
            exchange->previous->next = exchange->next;
        else
            watch->first = exchange->next;
        if (exchange->next) exchange->next->previous = exchange->previous;
        exchange->watched = false;
        watch->count--;
    }
    pthread_mutex_unlock(&watch->lock);
}

void watch_set_ticks(struct watch *watch, struct exchange *exchange, int64_t interval_ms)
{
    pthread_mutex_lock(&watch->lock);
    exchange->tick_interval_ms = interval_ms;
    exchange->tick_due_ms = monotonic_ms() + interval_ms;
    pthread_mutex_unlock(&watch->lock);
    wakeup(watch);
}

void watch_wake_all(struct watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    for (struct exchange *x = watch->first; x; x = x->next) exchange_wake(x);
    pthread_mutex_unlock(&watch->lock);
}

int watch_count(struct watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    int count = watch->count;
    pthread_mutex_unlock(&watch->lock);
    return count;
}
