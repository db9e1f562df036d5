/* client.c - see client.h. libcurl's multi interface, so that client_abort can wake a call that
 * waits. */
#include "config.h"

#include <ctype.h>
#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "controller/buffer.h"
#include "controller/cause.h"
#include "controller/client.h"
#include "controller/secret.h"
#include "controller/sse.h"
#include "controller/ticks.h"

#define SYSTEM_SOCKET "/run/trimtab/trimtab.sock" /* of docs/trimtabd.service.in */

enum {
    DEADLINE_DEFAULT_MS = 5000,
    CONNECT_MAX_MS = 5000,
    BODY_MAX = 16 << 20, /* bytes of one reply */
    EVENT_MAX = 1 << 20, /* bytes of one server-sent event */
    REQUEST_BODY_MAX = 64 << 10,
    POLL_MS = 1000,
};

struct client {
    char *shown;       /* the address for people */
    char *socket_path; /* NULL = TCP */
    char *base;        /* "http://localhost" or the URL without a final slash */
    char *token;       /* NULL = none */
    long deadline_ms;
    atomic_bool aborted;
    CURLM *multi;
    CURL *easy;
};

/* One call in progress. */
struct call {
    struct client *client;
    struct client_reply *out;
    struct buffer body; /* a whole reply, but a stream's events */
    struct sse events;
    bool stream, too_large, bad_json, stopped;
    bool (*on_event)(void *state, const json_t *object);
    void *state;
    long long heard_ms; /* monotonic, of the last bytes */
};

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void curl_start(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* --------------------------------------------------------------------------- address and token */

char *client_default_socket(void)
{
    const char *folder = getenv("XDG_RUNTIME_DIR");
    char *path = NULL;

    if (folder && folder[0] == '/') {
        if (asprintf(&path, "%s/trimtab.sock", folder) < 0) return NULL;
        if (access(path, F_OK) == 0 || access(SYSTEM_SOCKET, F_OK) != 0) return path;
        free(path); /* none of one's own, but the machine runs one */
    }
    return strdup(SYSTEM_SOCKET);
}

/* A path of a socket, relative ones too: a slash with something behind it, in what is no URL. */
static bool is_path(const char *address)
{
    const char *slash = strstr(address, "://") ? NULL : strchr(address, '/');

    return slash && slash[strspn(slash, "/")] != '\0';
}

static int set_socket(struct client *client, const char *path, char **cause)
{
    const size_t room = sizeof((struct sockaddr_un *)NULL)->sun_path;

    if (strlen(path) >= room) {
        cause_set(cause, "the socket path %.100s... is too long: %zu bytes, of at most %zu", path,
                  strlen(path), room - 1);
        return -1;
    }
    client->socket_path = strdup(path);
    client->shown = strdup(path);
    client->base = strdup("http://localhost");
    return 0;
}

static int set_url(struct client *client, const char *address, char **cause)
{
    const char *after = strstr(address, "://");
    char *url = NULL;

    if (after && strncmp(address, "http://", 7) != 0 && strncmp(address, "https://", 8) != 0) {
        cause_set(cause, "%.200s: only http, https and unix sockets are spoken", address);
        return -1;
    }
    const char *host = after ? after + 3 : address;
    if (*host == '\0' || *host == '/' || strpbrk(host, " @?#\t\r\n")) {
        cause_set(cause,
                  "%.200s is not an address: give /path/to.sock, host:port or http://host:port",
                  address);
        return -1;
    }
    if (asprintf(&url, "%s%s", after ? "" : "http://", address) < 0) url = NULL;
    for (size_t length = url ? strlen(url) : 0; length > 0 && url[length - 1] == '/'; length--)
        url[length - 1] = '\0';
    client->base = url;
    client->shown = url ? strdup(url) : NULL;
    return 0;
}

static int set_address(struct client *client, const char *address, char **cause)
{
    char *fallback = NULL;
    int result;

    if (!address) address = fallback = client_default_socket();
    if (!address) return 0; /* out of memory; seen by the caller */
    if (strncmp(address, "unix:", 5) == 0)
        result = set_socket(client, address + 5, cause);
    else if (address[0] == '.' || is_path(address))
        result = set_socket(client, address, cause);
    else
        result = set_url(client, address, cause);
    free(fallback);
    return result;
}

struct client *client_new(const struct client_options *options, char **cause)
{
    struct client *client = calloc(1, sizeof *client);
    const char *token = getenv("TRIMTAB_TOKEN");

    if (!client) {
        cause_set(cause, "out of memory");
        return NULL;
    }
    pthread_once(&curl_once, curl_start);
    atomic_init(&client->aborted, false);
    client->deadline_ms = options->deadline_ms > 0 ? options->deadline_ms : DEADLINE_DEFAULT_MS;
    if (set_address(client, options->address, cause) != 0) goto fail;
    if (secret_read_key(options->token_file, token && *token ? "TRIMTAB_TOKEN" : NULL,
                        &client->token, cause) != 0)
        goto fail;
    client->multi = curl_multi_init();
    client->easy = curl_easy_init();
    if (client->base && client->shown && client->multi && client->easy) return client;
    cause_set(cause, "out of memory");
fail:
    client_free(client);
    return NULL;
}

void client_free(struct client *client)
{
    if (!client) return;
    if (client->easy) curl_easy_cleanup(client->easy);
    if (client->multi) curl_multi_cleanup(client->multi);
    free(client->shown);
    free(client->socket_path);
    free(client->base);
    free(client->token);
    free(client);
}

const char *client_address(const struct client *client)
{
    return client->shown;
}

void client_abort(struct client *client)
{
    atomic_store(&client->aborted, true);
    curl_multi_wakeup(client->multi);
}

void client_reply_clear(struct client_reply *reply)
{
    json_decref(reply->body);
    free(reply->cause);
    *reply = (struct client_reply){0};
}

/* -------------------------------------------------------------------------- server-sent events */

static bool take_event(void *state, const char *data, size_t length)
{
    struct call *call = state;
    json_t *object = json_loadb(data, length, 0, NULL);

    call->bad_json = !json_is_object(object);
    if (!call->bad_json && !call->on_event(call->state, object)) call->stopped = true;
    json_decref(object);
    return !call->bad_json && !call->stopped;
}

static size_t on_bytes(char *bytes, size_t size, size_t count, void *state)
{
    struct call *call = state;
    long status = 0;

    count *= size;
    call->heard_ms = monotonic_ms();
    if (count == 0) return 0;
    curl_easy_getinfo(call->client->easy, CURLINFO_RESPONSE_CODE, &status);
    if (call->stream && status == 200) {
        if (sse_take(&call->events, bytes, count)) return count;
        call->too_large = call->events.too_large;
        return 0;
    }
    buffer_add(&call->body, bytes, count);
    call->too_large = call->body.length > BODY_MAX || call->body.failed;
    return call->too_large ? 0 : count;
}

/* -------------------------------------------------------------------------------------- a call */

static enum client_status fail(struct call *call, enum client_status status, const char *sentence)
{
    cause_set(&call->out->cause, "%s: %s", call->client->shown, sentence);
    return status;
}

/* Drives the transfer to its end; CLIENT_OK when libcurl ended it, with its result in *code. */
static enum client_status drive(struct call *call, long long deadline_ms, long long idle_ms,
                                CURLcode *code)
{
    struct client *client = call->client;
    int running = 1, left;

    call->heard_ms = monotonic_ms();
    while (running) {
        if (atomic_load(&client->aborted)) return CLIENT_ABORTED;
        if (curl_multi_perform(client->multi, &running) != CURLM_OK) return CLIENT_INVALID;
        if (!running) break;
        long long now = monotonic_ms(), end = deadline_ms;
        if (idle_ms > 0) end = call->heard_ms + idle_ms;
        if (now >= end) return CLIENT_DEADLINE;
        long long wait = end - now < POLL_MS ? end - now : POLL_MS;
        if (curl_multi_poll(client->multi, NULL, 0, (int)wait, NULL) != CURLM_OK)
            return CLIENT_INVALID;
    }
    CURLMsg *message = curl_multi_info_read(client->multi, &left);
    *code = message && message->msg == CURLMSG_DONE ? message->data.result : CURLE_FAILED_INIT;
    return CLIENT_OK;
}

static struct curl_slist *make_headers(const struct client *client, bool body, bool *failed)
{
    struct curl_slist *list = NULL, *longer;
    char *line = NULL;

    if (client->token && asprintf(&line, "Authorization: Bearer %s", client->token) < 0)
        line = NULL;
    *failed = client->token && !line;
    const char *const lines[] = {line, body ? "Content-Type: application/json" : NULL, "Expect:"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines && !*failed; i++) {
        if (!lines[i]) continue;
        longer = curl_slist_append(list, lines[i]);
        *failed = !longer;
        if (longer) list = longer;
    }
    free(line);
    return list;
}

static void set_options(struct call *call, const char *url, const char *method, const char *body,
                        size_t length, struct curl_slist *headers)
{
    CURL *easy = call->client->easy;

    curl_easy_reset(easy); /* keeps the connection */
    curl_easy_setopt(easy, CURLOPT_URL, url);
    if (call->client->socket_path)
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, call->client->socket_path);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY,
                     ""); /* a token must not travel through the environment's proxy */
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MAX_MS);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "trimtab/" PACKAGE_VERSION);
    if (strcmp(method, "GET") != 0) curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    if (body) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)length);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
    }
}

const char *client_reply_words(const struct client_reply *reply)
{
    return json_string_value(json_object_get(json_object_get(reply->body, "error"), "message"));
}

/* What an error status means that came without the daemon's words: from the HTTP server below it,
 * from a proxy before it, or from something that is no daemon. */
static const char *explain_status(int status, char *out, size_t size)
{
    const char *text = NULL;

    if (status == 401 || status == 403 || status == 407)
        text = "it wants to know who asks: name a token with --token-file FILE, and see that no "
               "proxy is in between";
    else if (status == 404 || status == 405)
        text = "it does not know what was asked: is this a trimtabd, of the same version?";
    else if (status == 408 || status == 429)
        text = "it is too busy: try again later";
    else if (status == 413 || status == 414 || status == 431)
        text = "what was asked is too long for it: give shorter arguments";
    else if (status == 502 || status == 503 || status == 504)
        text = "it cannot answer now, or a proxy does not reach the daemon: try again later";
    else if (status >= 500)
        text = "it failed inside: its log says why";
    else
        text = "it refuses and does not say why: is this a trimtabd?";
    snprintf(out, size, "%s (HTTP status %d)", text, status);
    return out;
}

/* What a finished reply means. */
static enum client_status judge(struct call *call)
{
    struct client_reply *out = call->out;
    char sentence[200];

    if (call->body.length > 0) out->body = json_loadb(call->body.data, call->body.length, 0, NULL);
    if (out->http_status >= 200 && out->http_status < 300) {
        if (call->stream) return fail(call, CLIENT_UNREACHABLE, "the stream ended");
        return out->body ? CLIENT_OK : fail(call, CLIENT_BAD_REPLY, "the reply is not JSON");
    }
    if (out->http_status >= 300 && out->http_status < 400)
        return fail(call, CLIENT_BAD_REPLY, "the server redirects; give the daemon's own address");
    if (client_reply_words(out)) return fail(call, CLIENT_REFUSED, client_reply_words(out));
    return fail(call, CLIENT_REFUSED, explain_status(out->http_status, sentence, sizeof sentence));
}

static enum client_status run(struct call *call, long long idle_ms)
{
    struct client *client = call->client;
    long status = 0;
    CURLcode code = CURLE_OK;
    enum client_status result;

    if (curl_multi_add_handle(client->multi, client->easy) != CURLM_OK)
        return fail(call, CLIENT_INVALID, "the call could not be started");
    result = drive(call, monotonic_ms() + client->deadline_ms, idle_ms, &code);
    curl_easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(client->multi, client->easy);
    call->out->http_status = (int)status;
    if (result == CLIENT_ABORTED) return fail(call, result, "the call was given up");
    if (result == CLIENT_DEADLINE) return fail(call, result, "no answer in time");
    if (result != CLIENT_OK) return fail(call, result, "the call failed");
    if (call->stopped) return CLIENT_OK;
    if (call->too_large) return fail(call, CLIENT_BAD_REPLY, "the reply is too large");
    if (call->bad_json)
        return fail(call, CLIENT_BAD_REPLY, "an event of the stream is not a JSON object");
    if (code != CURLE_OK) return fail(call, CLIENT_UNREACHABLE, curl_easy_strerror(code));
    return judge(call);
}

/* Everything a call needs around run(). */
static enum client_status perform(struct call *call, const char *method, const char *path,
                                  const json_t *body, long long idle_ms)
{
    struct client *client = call->client;
    char *url = NULL, *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    struct curl_slist *headers = NULL;
    enum client_status result;
    bool failed = false;

    *call->out = (struct client_reply){0};
    if (atomic_load(&client->aborted)) return fail(call, CLIENT_ABORTED, "the call was given up");
    if (asprintf(&url, "%s%s", client->base, path) < 0) url = NULL;
    headers = make_headers(client, body != NULL, &failed);
    if (!url || failed || (body && !text)) {
        result = fail(call, CLIENT_INVALID, "out of memory");
    } else if (text && strlen(text) > REQUEST_BODY_MAX) {
        result = fail(call, CLIENT_INVALID,
                      "what is asked is longer than any daemon takes (64 KiB): shorten it");
    } else {
        set_options(call, url, method, text, text ? strlen(text) : 0, headers);
        result = run(call, idle_ms);
        curl_easy_reset(client->easy); /* nothing of this call is pointed to any more */
    }
    curl_slist_free_all(headers);
    buffer_free(&call->body);
    sse_free(&call->events);
    free(text);
    free(url);
    return result;
}

enum client_status client_get(struct client *client, const char *path, struct client_reply *out)
{
    struct call call = {.client = client, .out = out};

    return perform(&call, "GET", path, NULL, 0);
}

enum client_status client_put(struct client *client, const char *path, const json_t *body,
                              struct client_reply *out)
{
    struct call call = {.client = client, .out = out};

    return perform(&call, "PUT", path, body, 0);
}

enum client_status client_delete(struct client *client, const char *path, struct client_reply *out)
{
    struct call call = {.client = client, .out = out};

    return perform(&call, "DELETE", path, NULL, 0);
}

enum client_status client_stream(struct client *client, const char *path, int idle_ms,
                                 bool (*event)(void *state, const json_t *object), void *state,
                                 struct client_reply *out)
{
    struct call call = {.client = client,
                        .out = out,
                        .events = {.event = take_event, .state = &call, .limit = EVENT_MAX},
                        .stream = true,
                        .on_event = event,
                        .state = state};

    return perform(&call, "GET", path, NULL, idle_ms > 0 ? idle_ms : client->deadline_ms);
}

/* --------------------------------------------------------------------------------------- paths */

char *client_node_path(const char *node_id, const char *rest)
{
    static const char hex[] = "0123456789ABCDEF";
    struct buffer path = {0};

    buffer_add_text(&path, "/api/v1/nodes/");
    for (const char *c = node_id; *c; c++) {
        unsigned char byte = (unsigned char)*c;
        const char escaped[3] = {'%', hex[byte >> 4], hex[byte & 15]};
        if (isalnum(byte) || strchr("-._~", byte))
            buffer_add(&path, c, 1);
        else
            buffer_add(&path, escaped, sizeof escaped);
    }
    buffer_add_text(&path, "/");
    buffer_add_text(&path, rest);
    buffer_add(&path, "", 1);
    if (!path.failed) return path.data;
    buffer_free(&path);
    return NULL;
}
