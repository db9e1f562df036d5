/* client.h - a client of the control API (docs/api.md), over the daemon's unix socket or http(s).
 *
 * Calls block the calling thread until the reply, the deadline or client_abort; one client serves
 * one thread. Redirects and proxies are never followed, replies are bounded. The token comes from a
 * 0600 file or from the environment variable TRIMTAB_TOKEN, never from an argument, and is never
 * part of a message.
 */
#ifndef CONTROLLER_CLIENT_H
#define CONTROLLER_CLIENT_H

#include <jansson.h>
#include <stdbool.h>

#define CLIENT_REASON_MAX 400 /* bytes: the daemon takes no longer reason of a change */

struct client;

struct client_options {
    const char *address;    /* "/path/to.sock", "unix:/path/to.sock", "http://host:port[/prefix]",
                             * "host:port"; NULL = the default socket (client_default_socket) */
    const char *token_file; /* NULL = $TRIMTAB_TOKEN, if set */
    int deadline_ms;        /* of one whole call; 0 = 5000 */
};

enum client_status {
    CLIENT_OK = 0,
    CLIENT_UNREACHABLE = -1, /* nobody listens, name unknown, connection lost */
    CLIENT_DEADLINE = -2,
    CLIENT_ABORTED = -3,
    CLIENT_REFUSED = -4,   /* an error status: http_status, the body's own message in `cause` */
    CLIENT_BAD_REPLY = -5, /* not JSON, too large, a redirect */
    CLIENT_INVALID = -6,   /* this program's fault: body too large, out of memory */
};

struct client_reply {
    int http_status; /* 0 = none arrived */
    json_t
        *body; /* NULL when there is none; also that of an error reply (409 carries "generation") */
    char *cause; /* everything but CLIENT_OK: a sentence for the person */
};

/* NULL with *cause: malformed address, unreadable token file or one that others may read. Does not
 * connect. */
struct client *client_new(const struct client_options *options, char **cause);
void client_free(struct client *client); /* NULL-safe */
/* The address as a person would type it, for messages and the screen. */
const char *client_address(const struct client *client);

/* `path` is absolute and percent-encoded ("/api/v1/nodes"); fills *out, which the caller clears. */
enum client_status client_get(struct client *client, const char *path, struct client_reply *out);
enum client_status client_put(struct client *client, const char *path, const json_t *body,
                              struct client_reply *out);
enum client_status client_delete(struct client *client, const char *path, struct client_reply *out);
void client_reply_clear(struct client_reply *reply);
/* The daemon's own words of a refusal, without the address that `cause` begins with; NULL when the
 * reply has none. Valid until the reply is cleared. */
const char *client_reply_words(const struct client_reply *reply);

/* Server-sent events of JSON objects. Runs until event() returns false (CLIENT_OK), the server ends
 * the stream (CLIENT_UNREACHABLE), nothing arrived for idle_ms (CLIENT_DEADLINE), or client_abort.
 * *out as for client_get; no body on success. `object` is valid during the call. */
enum client_status client_stream(struct client *client, const char *path, int idle_ms,
                                 bool (*event)(void *state, const json_t *object), void *state,
                                 struct client_reply *out);

/* From any thread: the call in progress and every later one return CLIENT_ABORTED at once (well
 * under 100 ms). */
void client_abort(struct client *client);

/* "/api/v1/nodes/ID/REST" with ID percent-encoded; malloc'd, NULL when out of memory. REST may
 * carry a query. */
char *client_node_path(const char *node_id, const char *rest);
/* $XDG_RUNTIME_DIR/trimtab.sock, or /run/trimtab/trimtab.sock where that is unset or where only the
 * latter exists; malloc'd. The daemon's own default. */
char *client_default_socket(void);

#endif
