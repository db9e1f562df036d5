/* fetch.h - one request to a remote engine, the way trimtab asks: bounded, with a deadline, to the
 * named host and nowhere else.
 *
 * No redirect, no proxy, no netrc is followed; TLS certificates are verified; the key goes into an
 * Authorization header and never into a message. One fetch is used again and again (its connection
 * stays); it runs either by itself (fetch_run) or inside a libcurl multi handle (scrape.h).
 */
#ifndef CONTROLLER_FETCH_H
#define CONTROLLER_FETCH_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

#include "controller/buffer.h"

#define FETCH_METRICS_MAX (4u << 20) /* bytes of a page of metrics */
#define FETCH_REPLY_MAX (256u << 10) /* of any other answer */

struct remote {    /* where an engine is; texts are owned by whoever made it */
    char *url;     /* "http://host:8000" or "https://host/prefix", without a final slash */
    char *key;     /* NULL = none */
    char *ca_file; /* certificates to trust; NULL = the system's */
    long deadline_ms;
};

/* Is the text a URL of an engine? 0, or -1 with *cause: another scheme, a user or password in it (a
 * key belongs in a 0600 file or the environment), blanks, a query. */
int remote_check_url(const char *url, char **cause);
/* Deep copy with final slashes cut; remote_clear frees. -1 when out of memory. */
int remote_copy(struct remote *out, const struct remote *from);
void remote_clear(struct remote *remote);
/* Does the address stay on this machine: localhost, 127.0.0.0/8, [::1]? */
bool remote_is_loopback(const char *url);

struct fetch;

struct fetch *fetch_new(const struct remote *remote, char **cause); /* copies what it needs */
void fetch_free(struct fetch *fetch);                               /* NULL-safe */
CURL *fetch_handle(struct fetch *fetch);                            /* for a multi handle */

/* Make ready for `path` ("/metrics"), at most `limit` bytes. */
void fetch_begin(struct fetch *fetch, const char *path, size_t limit);
/* The same, to POST a JSON text (copied). */
void fetch_begin_post(struct fetch *fetch, const char *path, const char *json, size_t limit);

struct fetch_answer {
    bool ok;          /* status 200 and the whole body is there */
    int status;       /* 0 = none arrived */
    bool refused;     /* 401 or 403 */
    const char *body; /* (length); valid until the next fetch_begin */
    size_t length;
    char type[80]; /* content type; empty = unnamed */
    char why[200]; /* a sentence for the person, when !ok */
};
/* What the finished transfer means. */
void fetch_end(struct fetch *fetch, CURLcode result, struct fetch_answer *out);
/* begin, transfer, end: waits at most the deadline. */
void fetch_run(struct fetch *fetch, const char *path, size_t limit, struct fetch_answer *out);

#endif
