/* server.c - see server.h: sockets, threads and the life of a request in libmicrohttpd's callbacks.
 */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "controller/cause.h"
#include "controller/exchange.h"
#include "controller/listen.h"
#include "controller/routes.h"
#include "controller/server.h"
#include "controller/ticks.h"
#include "controller/traffic.h"
#include "controller/watch.h"
#include "controller/work.h"

enum {
    KIB = 1024,
    WORKERS = 2,
    DEFAULT_CONNECTIONS = 256,
    DEFAULT_IDLE_TIMEOUT_S = 120,
    CONNECTION_MEMORY = 32 * KIB, /* request line, headers and output of one connection */
    STREAM_BLOCK = 16 * KIB,      /* most bytes of one chunk */
    BODIES_MAX = 64 * KIB * KIB,  /* buffered bodies of all requests together */
    DISCARD_MAX =
        16 * KIB * KIB, /* an unwanted body is read this far, so that its sender reads the answer */
    STOP_WAIT_MS = 1000, /* for streams to send their last event */
    NODES_MAX = 4096,    /* over the life of the daemon, hidden ones included */
};

struct listener {
    struct server *server;
    struct listen_socket socket;
    struct MHD_Daemon *daemon;
};

struct server {
    struct server_view view; /* first: exchange_server() */
    struct work *work;
    struct node **nodes;
    char *store_path, *model_alias;
    int idle_timeout_s, max_connections;
    int listener_count, tcp_count;
    struct listener listener[LISTEN_MAX + 1];
};

/* ----------------------------------------------------------------------------------- exchanges */

static void set_peer(struct exchange *x, const struct listener *listener)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct ucred credentials;
    socklen_t size = sizeof credentials;

    x->fd = info ? info->connect_fd : -1;
    x->caller.unix_socket = listener->socket.unix_socket;
    if (listener->socket.unix_socket) {
        if (getsockopt(x->fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0) {
            x->caller.uid_known = true;
            x->caller.uid = credentials.uid;
        }
        return;
    }
    struct sockaddr_storage address = {0};
    size = sizeof address;
    if (getpeername(x->fd, (struct sockaddr *)&address, &size) == 0) {
        const void *binary =
            address.ss_family == AF_INET6
                ? (const void *)&((struct sockaddr_in6 *)(void *)&address)->sin6_addr
                : (const void *)&((struct sockaddr_in *)(void *)&address)->sin_addr;
        if (inet_ntop(address.ss_family, binary, x->peer, sizeof x->peer)) x->caller.peer = x->peer;
    }
    x->caller.public_listener = !listener->socket.loopback;
    x->caller.wildcard = listener->socket.wildcard;
    x->caller.bound[0] = listener->socket.bound;
    x->caller.bound[1] = listener->socket.configured[0] ? listener->socket.configured : NULL;
}

static const char *header(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

static struct exchange *exchange_new(struct listener *listener, struct MHD_Connection *connection)
{
    struct exchange *x = calloc(1, sizeof *x);

    if (!x) return NULL;
    x->server = listener->server;
    x->connection = connection;
    pthread_mutex_init(&x->lock, NULL);
    set_peer(x, listener);
    x->caller.authorization = header(x, MHD_HTTP_HEADER_AUTHORIZATION);
    x->caller.host = header(x, MHD_HTTP_HEADER_HOST);
    x->caller.origin = header(x, MHD_HTTP_HEADER_ORIGIN);
    return x;
}

static void exchange_free(struct exchange *x)
{
    watch_remove(x->server->view.watch, x);
    if (x->release) x->release(x);
    pthread_mutex_lock(&x->lock); /* the worker that resumed it may still be on its way out */
    pthread_mutex_unlock(&x->lock);
    atomic_fetch_sub(&x->server->view.body_bytes, x->body.capacity);
    buffer_free(&x->body);
    buffer_free(&x->out);
    reply_free(&x->reply);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

static void body_too_large(struct exchange *x)
{
    if (x->route->body_limit == 0)
        reply_error(&x->reply, 413, NULL, "body_too_large", "this path takes no body");
    else
        reply_error(&x->reply, 413, NULL, "body_too_large",
                    "the body is larger than the limit of %zu bytes", x->route->body_limit);
}

/* Everything that can be decided from the request line and the headers; an error goes to x->reply.
 */
static void begin(struct exchange *x, const char *method, const char *url)
{
    const char *allow = NULL, *why, *length = header(x, MHD_HTTP_HEADER_CONTENT_LENGTH);

    x->route = routes_find(method, url, x, &allow);
    if (!x->route && allow) {
        reply_error(&x->reply, 405, NULL, "method_not_allowed", "%.200s takes %s, not %.16s", url,
                    allow, method);
        x->reply.allow = allow;
        return;
    }
    if (!x->route) {
        reply_error(&x->reply, 404, NULL, "not_found", "no such path: %.200s", url);
        return;
    }
    enum access_verdict verdict =
        access_check(x->server->view.access, x->route->access, &x->caller, &x->actor, &why);
    if (verdict != ACCESS_ALLOWED) {
        reply_error(&x->reply, (int)verdict, NULL,
                    verdict == ACCESS_FORBIDDEN        ? "forbidden"
                    : x->route->access == ACCESS_INFER ? "invalid_api_key"
                                                       : "invalid_token",
                    "%s", why);
        return;
    }
    if (length && strtoull(length, NULL, 10) > x->route->body_limit) body_too_large(x);
}

static void take_body(struct exchange *x, const char *bytes, size_t count)
{
    struct server_view *view = &x->server->view;
    size_t before = x->body.capacity;

    if (x->reply.status == 0 && x->body.length + count > x->route->body_limit) body_too_large(x);
    if (x->reply.status != 0) {
        x->discarded += count;
        return;
    }
    if (atomic_load(&view->body_bytes) + count > BODIES_MAX) {
        reply_error(&x->reply, 503, NULL, "overloaded",
                    "too many large requests at once; try again");
        x->reply.retry_after_s = 1;
        return;
    }
    buffer_add(&x->body, bytes, count);
    atomic_fetch_add(&view->body_bytes, x->body.capacity - before);
    if (x->body.failed)
        reply_error(&x->reply, 503, NULL, "out_of_memory", "out of memory for the body");
}

static enum MHD_Result queue_reply(struct exchange *x)
{
    struct MHD_Response *response;
    struct reply *reply = &x->reply;
    char seconds[16];
    enum MHD_Result queued;

    if (x->fill) {
        response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, exchange_read,
                                                     x, NULL);
    } else {
        if (reply->body.failed) reply_error(reply, 500, NULL, "out_of_memory", "out of memory");
        response = MHD_create_response_from_buffer(reply->body.length, reply->body.data,
                                                   MHD_RESPMEM_MUST_COPY);
    }
    if (!response) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply->content_type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (reply->allow) MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, reply->allow);
    if (reply->status == 401)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (reply->retry_after_s > 0) {
        snprintf(seconds, sizeof seconds, "%d", reply->retry_after_s);
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    }
    queued = MHD_queue_response(x->connection, (unsigned)reply->status, response);
    MHD_destroy_response(response);
    return queued;
}

/* After the headers: can and should the answer go out before the body was read? */
static bool answer_at_once(const struct exchange *x)
{
    const char *length = header(x, MHD_HTTP_HEADER_CONTENT_LENGTH),
               *expect = header(x, MHD_HTTP_HEADER_EXPECT);

    if (x->reply.status == 0) return false;
    if (expect && strcasecmp(expect, "100-continue") == 0) return true;
    return length && strtoull(length, NULL, 10) > DISCARD_MAX;
}

/* After the handler ran: where to go on. */
static enum exchange_phase phase_after_handler(const struct exchange *x)
{
    return x->finish ? PHASE_WAITING : PHASE_ANSWERING;
}

static void start_work(struct exchange *x)
{
    x->phase = PHASE_WORKING;
    exchange_begin_work(x);
    if (work_add(x->server->work, x)) return;
    reply_error(&x->reply, 503, NULL, "shutting_down", "the server is shutting down");
    exchange_end_work(x);
}

/* Runs the exchange until it answers or sleeps. */
static enum MHD_Result proceed(struct exchange *x)
{
    for (;;) {
        switch (x->phase) {
        case PHASE_RECEIVING:
            if (x->reply.status != 0) {
                x->phase = PHASE_ANSWERING;
                break;
            }
            if ((x->route->flags & (ROUTE_WORK | ROUTE_STREAM)) &&
                !watch_add(x->server->view.watch, x)) {
                reply_error(&x->reply, 503, NULL, "overloaded", "too many connections");
                x->phase = PHASE_ANSWERING;
                break;
            }
            if (x->route->flags & ROUTE_WORK) {
                start_work(x);
                return MHD_YES;
            }
            x->route->handle(x);
            x->phase = phase_after_handler(x);
            break;
        case PHASE_WORKING:
            x->phase = phase_after_handler(x);
            break;
        case PHASE_WAITING:
            if (!exchange_begin_look(x)) return MHD_NO;
            if (x->finish(x))
                x->phase = PHASE_ANSWERING;
            else if (exchange_sleep(x))
                return MHD_YES;
            break;
        case PHASE_ANSWERING:
            return queue_reply(x);
        }
    }
}

static void run_work(struct exchange *x)
{
    x->route->handle(x);
    exchange_end_work(x);
}

/* ------------------------------------------------------------------- libmicrohttpd's callbacks */

static enum MHD_Result on_request(void *state, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **own)
{
    struct exchange *x = *own;

    (void)version;
    if (!x) {
        *own = x = exchange_new(state, connection);
        if (!x) return MHD_NO;
        begin(x, method, url);
        if (!answer_at_once(x)) return MHD_YES;
        x->phase = PHASE_ANSWERING;
        return queue_reply(x);
    }
    if (*upload_size > 0) {
        take_body(x, upload, *upload_size);
        *upload_size = 0;
        return x->discarded > DISCARD_MAX ? MHD_NO : MHD_YES;
    }
    return proceed(x);
}

static void on_completed(void *state, struct MHD_Connection *connection, void **own,
                         enum MHD_RequestTerminationCode code)
{
    (void)state, (void)connection, (void)code;
    if (*own) exchange_free(*own);
    *own = NULL;
}

static void on_connection(void *state, struct MHD_Connection *connection, void **own,
                          enum MHD_ConnectionNotificationCode code)
{
    const struct listener *listener = state;
    const union MHD_ConnectionInfo *info;
    int on = 1;

    (void)own;
    if (code != MHD_CONNECTION_NOTIFY_STARTED || listener->socket.unix_socket) return;
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!info) return;
    setsockopt(info->connect_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(info->connect_fd, SOL_SOCKET, SO_KEEPALIVE, &on,
               sizeof on); /* a peer whose machine died */
}

/* ------------------------------------------------------------------------------ start and stop */

static int start_listener(struct server *server, struct listener *listener, char **cause)
{
    listener->server = server;
    listener->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
        on_request, listener, MHD_OPTION_LISTEN_SOCKET, listener->socket.fd,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, listener, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, listener, MHD_OPTION_CONNECTION_LIMIT, (unsigned)server->max_connections,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)server->idle_timeout_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_END);
    if (listener->daemon) return 0;
    cause_set(cause, "the HTTP server on %s did not start: %s",
              listener->socket.path ? listener->socket.path : listener->socket.bound,
              strerror(errno));
    return -1;
}

static int open_sockets(struct server *server, const struct server_options *options, char **cause)
{
    struct listen_socket sockets[LISTEN_MAX];
    int count;

    for (int i = 0; i <= LISTEN_MAX; i++) server->listener[i].socket.fd = -1;
    count = listen_open_tcp(options->listen, access_has_token(server->view.access), sockets,
                            LISTEN_MAX, cause);
    if (count < 0) return -1;
    for (int i = 0; i < count; i++) server->listener[i].socket = sockets[i];
    server->tcp_count = server->listener_count = count;
    if (options->socket_path && options->socket_path[0]) {
        if (listen_open_unix(options->socket_path, &server->listener[count].socket, cause) != 0)
            return -1;
        server->listener_count++;
    }
    return 0;
}

static int copy_options(struct server *server, const struct server_options *options,
                        struct node *const *nodes, int node_count, char **cause)
{
    struct server_view *view = &server->view;

    server->max_connections =
        options->max_connections > 0 ? options->max_connections : DEFAULT_CONNECTIONS;
    server->idle_timeout_s =
        options->idle_timeout_s > 0 ? options->idle_timeout_s : DEFAULT_IDLE_TIMEOUT_S;
    server->nodes = calloc(NODES_MAX, sizeof *server->nodes);
    if (!server->nodes) goto no_memory;
    if (node_count > NODES_MAX) {
        cause_set(cause, "at most %d nodes can be watched", NODES_MAX);
        return -1;
    }
    for (int i = 0; i < node_count; i++) server->nodes[i] = nodes[i];
    if (options->store_path && !(server->store_path = strdup(options->store_path))) goto no_memory;
    if (options->model_alias && !(server->model_alias = strdup(options->model_alias)))
        goto no_memory;
    view->traffic = traffic_new(node_count);
    if (!view->traffic) goto no_memory;
    view->nodes = server->nodes;
    view->node_count = node_count;
    view->store_path = server->store_path;
    view->model_alias = server->model_alias;
    view->started_ms = options->started_ms;
    view->now_ms = options->now_ms ? options->now_ms : utc_ms;
    return 0;
no_memory:
    cause_set(cause, "out of memory");
    return -1;
}

static int start_threads(struct server *server, char **cause)
{
    sigset_t all, before;
    int result = -1;

    sigfillset(&all); /* signals belong to the main thread; new threads inherit the mask */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    server->work = work_new(WORKERS, run_work, cause);
    if (server->work) server->view.watch = watch_new(cause);
    if (!server->view.watch) goto out;
    for (int i = 0; i < server->listener_count; i++) {
        if (start_listener(server, &server->listener[i], cause) != 0) goto out;
    }
    result = 0;
out:
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return result;
}

struct server *server_start(const struct server_options *options, struct node *const *nodes,
                            int node_count, char **cause)
{
    struct server *server = calloc(1, sizeof *server);
    struct access_options access = {.api_key_file = options->api_key_file,
                                    .read_token_file = options->read_token_file,
                                    .write_token_file = options->write_token_file,
                                    .host_names = options->host_names};

    if (!server) {
        cause_set(cause, "out of memory");
        return NULL;
    }
    if (copy_options(server, options, nodes, node_count, cause) != 0) goto fail;
    server->view.access = access_new(&access, cause);
    if (!server->view.access) goto fail;
    if (open_sockets(server, options, cause) != 0) goto fail;
    if (start_threads(server, cause) != 0) goto fail;
    return server;
fail:
    server_stop(server);
    return NULL;
}

int server_add_node(struct server *server, struct node *node, char **cause)
{
    int count = atomic_load(&server->view.node_count);

    if (count == NODES_MAX) {
        cause_set(cause, "%d nodes have been watched since the start; restart trimtabd", NODES_MAX);
        return -1;
    }
    server->nodes[count] = node;
    atomic_store(&server->view.node_count, count + 1); /* readers see the node first */
    return 0;
}

void server_drain(struct server *server)
{
    atomic_store(&server->view.draining, true);
}

int server_reload(struct server *server, char **cause)
{
    return access_reload(server->view.access, cause);
}

int server_port(const struct server *server, int i)
{
    return i >= 0 && i < server->tcp_count ? server->listener[i].socket.port : -1;
}

/* Streams send a last event once woken; give them a moment for it. */
static void wait_for_streams(struct watch *watch)
{
    const struct timespec pause = {.tv_nsec = 5000000};

    for (int waited_ms = 0; waited_ms < STOP_WAIT_MS && watch_count(watch) > 0; waited_ms += 5)
        nanosleep(&pause, NULL);
}

void server_stop(struct server *server)
{
    if (!server) return;
    atomic_store(&server->view.draining, true);
    atomic_store(&server->view.stopping, true); /* nobody falls asleep from here on */
    if (server->work) work_close(server->work);
    if (server->view.watch) {
        watch_wake_all(server->view.watch);
        wait_for_streams(server->view.watch);
    }
    for (int i = 0; i < server->listener_count; i++) {
        struct listener *listener = &server->listener[i];
        if (listener->daemon) {
            MHD_stop_daemon(listener->daemon); /* closes the descriptor too */
            listen_forget(&listener->socket);
        } else {
            listen_close(&listener->socket);
        }
    }
    watch_free(server->view.watch);
    work_free(server->work);
    access_free(server->view.access);
    traffic_free(server->view.traffic);
    free(server->nodes);
    free(server->store_path);
    free(server->model_alias);
    free(server);
}
