/* exchange.h - one HTTP request on its way through the front, and how it waits without a thread.
 *
 * Internal to the front. A handler decides the answer in one of three ways:
 *   reply   it fills exchange->reply: done;
 *   wait    it sets `finish`, called now and after every exchange_wake until it returns true with
 * `reply` filled; stream  it sets `fill` and reply.status/content_type; `fill` appends what is
 * ready and returns false at the end. Whatever it keeps hangs at `state`, released by `release`
 * when the request is over for whatever reason.
 *
 * Waiting is libmicrohttpd's suspend and resume. Its rules, and how they are kept: a suspended
 * connection notices neither a client that left nor a timeout (watch.c polls it); nothing may be
 * suspended at MHD_stop_daemon (exchange_sleep refuses once the server stops, then all are woken);
 * a wake between "nothing is ready" and the suspend must not be lost (`pending`, under `lock`).
 */
#ifndef CONTROLLER_EXCHANGE_H
#define CONTROLLER_EXCHANGE_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "controller/access.h"
#include "controller/buffer.h"
#include "controller/reply.h"
#include "controller/server.h"

struct exchange;

enum {
    ROUTE_WORK = 1,
    ROUTE_STREAM = 2
}; /* may wait: runs on a worker thread; never answers HEAD */

struct route {
    const char *method, *path; /* {} stands for one path segment */
    enum access_kind access;
    int flags;
    size_t body_limit; /* bytes; 0 = takes no body */
    void (*handle)(struct exchange *exchange);
};

#define EXCHANGE_SEGMENTS 2 /* most {} in a path */
#define EXCHANGE_SEGMENT_MAX 128

enum exchange_phase { PHASE_RECEIVING, PHASE_WORKING, PHASE_WAITING, PHASE_ANSWERING };

struct exchange {
    struct server *server;
    struct MHD_Connection *connection;
    int fd;
    const struct route *route; /* NULL: the reply is an error already */
    char segment[EXCHANGE_SEGMENTS][EXCHANGE_SEGMENT_MAX];
    struct access_caller caller;
    char peer[64];
    struct node_actor actor;
    enum exchange_phase phase;
    struct buffer body;
    size_t discarded; /* bytes of a body that nobody wants */

    struct reply reply;
    bool (*finish)(struct exchange *exchange);
    bool (*fill)(struct exchange *exchange, struct buffer *out);
    void (*release)(struct exchange *exchange);
    void *state;
    struct buffer out; /* of fill */
    size_t out_at;
    bool ended;

    pthread_mutex_t lock; /* guards the five below and is held over MHD_suspend/resume_connection */
    bool suspended;
    bool working; /* a worker holds it: not to be resumed */
    bool pending; /* something happened since the last look */
    bool gone;    /* the client left */
    bool ticked;  /* a tick is due that nobody took */

    struct exchange *next_job;        /* the worker queue's */
    struct exchange *next, *previous; /* watch.c's */
    bool watched;
    uint64_t serial;
    int64_t tick_due_ms, tick_interval_ms; /* monotonic; 0 = no ticks */
};

/* Something is ready: look again. Any thread, never blocks. */
void exchange_wake(struct exchange *exchange);
void exchange_set_gone(struct exchange *exchange);
void exchange_tick(struct exchange *exchange);
bool exchange_take_tick(struct exchange *exchange);
/* Suspend unless something is pending; true when suspended. Connection's thread only. */
bool exchange_sleep(struct exchange *exchange);
/* Hand over to a worker: suspended until exchange_end_work. */
void exchange_begin_work(struct exchange *exchange);
void exchange_end_work(struct exchange *exchange);
/* Forget what was pending; false when the client has left. */
bool exchange_begin_look(struct exchange *exchange);

/* The reader of a streamed response (MHD_ContentReaderCallback). */
ssize_t exchange_read(void *exchange, uint64_t position, char *bytes, size_t size);

/* Query argument, or NULL. */
const char *exchange_argument(const struct exchange *exchange, const char *name);

/* A tick now and every interval_ms (server-sent snapshots). */
void exchange_set_ticks(struct exchange *exchange, int64_t interval_ms);

/* -------------------------------------------------------------- the server, seen from handlers */

struct watch;
struct traffic;

struct server_view {           /* what handlers may know; the first member of struct server */
    struct node *const *nodes; /* grows at the end only, and none goes before the server does */
    atomic_int node_count;
    struct access *access;
    struct watch *watch;
    struct traffic *traffic;
    const char *store_path, *model_alias;
    int64_t started_ms;
    int64_t (*now_ms)(void);
    atomic_bool draining, stopping;
    atomic_size_t body_bytes; /* buffered bodies of all requests */
};

static inline struct server_view *exchange_server(const struct exchange *exchange)
{
    return (struct server_view *)(void *)exchange->server;
}

#endif
