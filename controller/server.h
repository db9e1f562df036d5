/* server.h - the HTTP front of trimtabd: the OpenAI API, the control API of docs/api.md and
 * /metrics over TCP and a unix socket.
 *
 * Owns its sockets and threads: one a listener (libmicrohttpd), two for work that may wait
 * (tokenizing, the store), one that watches clients who wait. Talks to nodes through
 * controller/node.h only; they must outlive it.
 */
#ifndef CONTROLLER_SERVER_H
#define CONTROLLER_SERVER_H

#include <stdint.h>

#include "controller/node.h"

struct server;

struct server_options { /* texts are copied */
    const char *listen; /* "127.0.0.1:8080", several separated by comma, "none" or NULL; port 0 =
                           any free one */
    const char *socket_path;  /* unix socket; NULL = none */
    const char *api_key_file; /* guards /v1; NULL = none */
    const char *read_token_file, *write_token_file;
    const char *host_names; /* further names of this machine that a Host header may carry, comma
                               separated */
    const char
        *model_alias; /* name of the first generating node's model in /v1; NULL = the model's own */
    int max_connections;     /* a listener; 0 = 256 */
    int idle_timeout_s;      /* of a connection that neither reads nor writes; 0 = 120 */
    int64_t started_ms;      /* UTC, for /api/v1/nodes */
    const char *store_path;  /* NULL = no history */
    int64_t (*now_ms)(void); /* UTC clock; NULL = the system's */
};

/* Bind everything and answer. NULL with *cause (malloc'd): an address taken or public without a
 * token, a socket on which a daemon answers, an unreadable or too open token file. */
struct server *server_start(const struct server_options *options, struct node *const *nodes,
                            int node_count, char **cause);
/* One more node, which must outlive the server. From the thread that started it. -1 with *cause
 * when there are too many. A node that is not wanted any more is hidden (node.h). */
int server_add_node(struct server *server, struct node *node, char **cause);
/* New generations get 503 from now on and /health says so; what runs goes on. */
void server_drain(struct server *server);
/* Read the token files again (SIGHUP). -1 with *cause: everything stays as it was. */
int server_reload(struct server *server, char **cause);
/* End every stream with an error event, cancel what still runs, close all sockets. NULL-safe;
 * before the nodes close. */
void server_stop(struct server *server);
/* Port of the i-th TCP address of `listen`, or -1. */
int server_port(const struct server *server, int i);

#endif
