/* exchange.c - see exchange.h: waiting, waking and streaming of one HTTP request. */
#include "config.h"

#include <string.h>

#include "controller/exchange.h"
#include "controller/watch.h"

/* Under the lock. */
static void resume(struct exchange *exchange)
{
    if (!exchange->suspended || exchange->working) return;
    exchange->suspended = false;
    MHD_resume_connection(exchange->connection);
}

void exchange_wake(struct exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->pending = true;
    resume(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

void exchange_set_gone(struct exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->gone = true;
    resume(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

void exchange_tick(struct exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->ticked = exchange->pending = true;
    resume(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

bool exchange_take_tick(struct exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    bool ticked = exchange->ticked;
    exchange->ticked = false;
    pthread_mutex_unlock(&exchange->lock);
    return ticked;
}

bool exchange_sleep(struct exchange *exchange)
{
    bool sleeps;

    pthread_mutex_lock(&exchange->lock);
    sleeps =
        !exchange->pending && !exchange->gone && !atomic_load(&exchange_server(exchange)->stopping);
    if (sleeps) {
        exchange->suspended = true;
        MHD_suspend_connection(exchange->connection);
    }
    pthread_mutex_unlock(&exchange->lock);
    return sleeps;
}

void exchange_begin_work(struct exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->working = true;
    exchange->suspended = true;
    MHD_suspend_connection(exchange->connection);
    pthread_mutex_unlock(&exchange->lock);
}

void exchange_end_work(struct exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->working = false;
    exchange->pending = true;
    resume(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

bool exchange_begin_look(struct exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->pending = false;
    bool here = !exchange->gone;
    pthread_mutex_unlock(&exchange->lock);
    return here;
}

/* libmicrohttpd asks whenever it can send. Returning 0 without having suspended would make it ask
 * again at once. */
ssize_t exchange_read(void *state, uint64_t position, char *bytes, size_t size)
{
    struct exchange *exchange = state;
    struct buffer *out = &exchange->out;

    (void)position;
    for (;;) {
        if (exchange->out_at < out->length) {
            size_t count = out->length - exchange->out_at;
            if (count > size) count = size;
            memcpy(bytes, out->data + exchange->out_at, count);
            exchange->out_at += count;
            return (ssize_t)count;
        }
        if (exchange->ended) return MHD_CONTENT_READER_END_OF_STREAM;
        if (!exchange_begin_look(exchange)) return MHD_CONTENT_READER_END_WITH_ERROR;
        buffer_clear(out);
        exchange->out_at = 0;
        exchange->ended = !exchange->fill(exchange, out);
        if (out->failed) return MHD_CONTENT_READER_END_WITH_ERROR;
        if (out->length == 0 && !exchange->ended && exchange_sleep(exchange)) return 0;
    }
}

const char *exchange_argument(const struct exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(exchange->connection, MHD_GET_ARGUMENT_KIND, name);
}

void exchange_set_ticks(struct exchange *exchange, int64_t interval_ms)
{
    exchange_tick(exchange);
    watch_set_ticks(exchange_server(exchange)->watch, exchange, interval_ms);
}
