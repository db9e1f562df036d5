/* access.h - who may do what over HTTP (docs/api.md, "Access").
 *
 * The socket's owner and root may do everything; everybody else needs a token wherever reading is
 * guarded, and always to write. A web page may do nothing: requests that would be served without a
 * token must name this listener as their Host and carry no Origin, the control API's must so
 * always. Tokens are compared in constant time.
 */
#ifndef CONTROLLER_ACCESS_H
#define CONTROLLER_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "controller/node.h"

#define ACCESS_TOKEN_MAX 256 /* bytes of one token */
#define ACCESS_TOKENS_MAX 16 /* tokens of one file, one a line */

struct access;

struct access_options {           /* paths; NULL = not configured. Copied. */
    const char *api_key_file;     /* guards /v1 */
    const char *read_token_file;  /* guards reading of the control API and /metrics */
    const char *write_token_file; /* allows changes */
    const char
        *host_names; /* further names under which clients reach TCP listeners, comma separated */
};

/* NULL with *cause: a file is missing, unreadable, empty, readable by others, or holds something
 * that is no token. */
struct access *access_new(const struct access_options *options, char **cause);
void access_free(struct access *access); /* NULL-safe */
/* Read the files again. On failure (-1 with *cause) every token stays as it was. Thread-safe. */
int access_reload(struct access *access, char **cause);
bool access_has_token(struct access *access); /* a read or a write token is configured */

enum access_kind {
    ACCESS_OPEN,  /* health, version */
    ACCESS_INFER, /* /v1 */
    ACCESS_READ,
    ACCESS_WRITE,
};

struct access_caller { /* of one request; texts live as long as the request */
    bool unix_socket;
    bool uid_known; /* peer credentials, unix socket only */
    uid_t uid;
    bool public_listener; /* bound beyond loopback */
    bool wildcard;        /* bound to every address: any address literal is its Host */
    const char *
        bound[2]; /* the listener's address as bound and as configured, without port; may be NULL */
    const char *authorization, *host, *origin; /* headers; NULL = absent */
    const char *peer;                          /* "127.0.0.1", for the decision log */
};

enum access_verdict { ACCESS_ALLOWED = 0, ACCESS_UNAUTHORIZED = 401, ACCESS_FORBIDDEN = 403 };

/* *why is a static sentence for everything but ACCESS_ALLOWED; actor (may be NULL) says who it is.
 */
enum access_verdict access_check(struct access *access, enum access_kind kind,
                                 const struct access_caller *caller, struct node_actor *actor,
                                 const char **why);

/* Equal, in a time that depends on neither content nor length (both at most ACCESS_TOKEN_MAX). */
bool access_token_equal(const char *left, size_t left_length, const char *right,
                        size_t right_length);

#endif
