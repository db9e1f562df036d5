/* fetch.c - see fetch.h. */
#include "config.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "controller/cause.h"
#include "controller/fetch.h"

#define CONNECT_MAX_MS 3000L
#define URL_MAX 1024

struct fetch {
    CURL *easy;
    struct curl_slist *headers, *post_headers;
    char *url, *ca_file;
    long deadline_ms;
    struct buffer body;
    size_t limit;
    bool too_large;
    char error[CURL_ERROR_SIZE];
};

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void start_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* ------------------------------------------------------------------------------------ addresses */

/* What follows http:// or https://; NULL when neither does. */
static const char *after_scheme(const char *url)
{
    if (strncasecmp(url, "http://", 7) == 0) return url + 7;
    if (strncasecmp(url, "https://", 8) == 0) return url + 8;
    return NULL;
}

int remote_check_url(const char *url, char **cause)
{
    const char *host = after_scheme(url);
    size_t length = host ? strcspn(host, "/") : 0;

    if (!host || length == 0 || strlen(url) > URL_MAX) {
        cause_set(cause,
                  "an engine's address has the form http://HOST:PORT or https://HOST[/PREFIX]");
        return -1;
    }
    if (memchr(host, '@', length)) { /* not repeated: it may hold a password */
        cause_set(cause, "an address with a user or password in it is refused; put the key into a "
                         "0600 file or the environment");
        return -1;
    }
    for (const char *at = url; *at; at++) {
        if (*at > ' ' && *at <= '~' && !strchr("?#\"<>\\^`{|}", *at)) continue;
        cause_set(cause, "the address %.100s has a character that no address has", url);
        return -1;
    }
    return 0;
}

bool remote_is_loopback(const char *url)
{
    const char *host = after_scheme(url);
    struct in_addr address;
    char name[64];
    size_t length;

    if (!host) return false;
    if (strncmp(host, "[::1]", 5) == 0) return true;
    length = strcspn(host, ":/");
    if (length >= sizeof name) return false;
    memcpy(name, host, length);
    name[length] = '\0';
    if (strcasecmp(name, "localhost") == 0) return true;
    return inet_pton(AF_INET, name, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

int remote_copy(struct remote *out, const struct remote *from)
{
    size_t length = strlen(from->url);

    *out = (struct remote){.deadline_ms = from->deadline_ms};
    while (length > 0 && from->url[length - 1] == '/') length--;
    out->url = strndup(from->url, length);
    out->key = from->key ? strdup(from->key) : NULL;
    out->ca_file = from->ca_file ? strdup(from->ca_file) : NULL;
    if (out->url && !out->key == !from->key && !out->ca_file == !from->ca_file) return 0;
    remote_clear(out);
    return -1;
}

void remote_clear(struct remote *remote)
{
    if (remote->key) explicit_bzero(remote->key, strlen(remote->key));
    free(remote->url);
    free(remote->key);
    free(remote->ca_file);
    *remote = (struct remote){0};
}

/* ---------------------------------------------------------------------------------- one transfer
 */

static size_t on_bytes(char *bytes, size_t one, size_t count, void *state)
{
    struct fetch *fetch = state;

    (void)one; /* always 1 */
    if (fetch->body.length + count > fetch->limit) {
        fetch->too_large = true;
        return 0;
    }
    buffer_add(&fetch->body, bytes, count);
    return fetch->body.failed ? 0 : count;
}

static struct curl_slist *headers_with(const char *key, const char *content_type)
{
    struct curl_slist *list = content_type ? curl_slist_append(NULL, content_type) : NULL;
    char *line = NULL;

    if (!key || asprintf(&line, "Authorization: Bearer %s", key) < 0) return list;
    list = curl_slist_append(list, line);
    explicit_bzero(line, strlen(line));
    free(line);
    return list;
}

static bool make_headers(struct fetch *fetch, const char *key)
{
    fetch->headers = headers_with(key, NULL);
    fetch->post_headers = headers_with(key, "Content-Type: application/json");
    return fetch->post_headers && (fetch->headers || !key);
}

static void free_headers(struct curl_slist *list)
{
    for (struct curl_slist *at = list; at; at = at->next)
        explicit_bzero(at->data, strlen(at->data)); /* one of them holds the key */
    curl_slist_free_all(list);
}

static void set_options(struct fetch *fetch)
{
    CURL *easy = fetch->easy;

    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                     fetch->deadline_ms < CONNECT_MAX_MS ? fetch->deadline_ms : CONNECT_MAX_MS);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, fetch->deadline_ms);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, fetch);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, fetch->error);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "trimtab/" PACKAGE_VERSION);
    if (fetch->ca_file) curl_easy_setopt(easy, CURLOPT_CAINFO, fetch->ca_file);
}

struct fetch *fetch_new(const struct remote *remote, char **cause)
{
    struct fetch *fetch = calloc(1, sizeof *fetch);

    if (fetch) {
        pthread_once(&curl_once, start_curl);
        fetch->deadline_ms = remote->deadline_ms;
        fetch->url = strdup(remote->url);
        fetch->ca_file = remote->ca_file ? strdup(remote->ca_file) : NULL;
        fetch->easy = curl_easy_init();
        if (fetch->url && fetch->easy && !fetch->ca_file == !remote->ca_file &&
            make_headers(fetch, remote->key)) {
            set_options(fetch);
            return fetch;
        }
    }
    cause_set(cause, "out of memory");
    fetch_free(fetch);
    return NULL;
}

void fetch_free(struct fetch *fetch)
{
    if (!fetch) return;
    if (fetch->easy) curl_easy_cleanup(fetch->easy);
    free_headers(fetch->headers);
    free_headers(fetch->post_headers);
    buffer_free(&fetch->body);
    free(fetch->url);
    free(fetch->ca_file);
    free(fetch);
}

CURL *fetch_handle(struct fetch *fetch)
{
    return fetch->easy;
}

static void begin(struct fetch *fetch, const char *path, size_t limit)
{
    char url[URL_MAX + 128];

    snprintf(url, sizeof url, "%s%s", fetch->url, path);
    curl_easy_setopt(fetch->easy, CURLOPT_URL, url); /* copied */
    buffer_clear(&fetch->body);
    fetch->limit = limit;
    fetch->too_large = false;
    fetch->error[0] = '\0';
}

void fetch_begin(struct fetch *fetch, const char *path, size_t limit)
{
    begin(fetch, path, limit);
    curl_easy_setopt(fetch->easy, CURLOPT_HTTPGET, 1L);
    curl_easy_setopt(fetch->easy, CURLOPT_HTTPHEADER, fetch->headers);
}

void fetch_begin_post(struct fetch *fetch, const char *path, const char *json, size_t limit)
{
    begin(fetch, path, limit);
    curl_easy_setopt(fetch->easy, CURLOPT_POSTFIELDSIZE, (long)strlen(json));
    curl_easy_setopt(fetch->easy, CURLOPT_COPYPOSTFIELDS, json);
    curl_easy_setopt(fetch->easy, CURLOPT_HTTPHEADER, fetch->post_headers);
}

/* Why the transfer failed, in words of the person who gave the address. */
static void say_failure(const struct fetch *fetch, CURLcode result, char *why, size_t size)
{
    switch (result) {
    case CURLE_COULDNT_RESOLVE_HOST:
        snprintf(why, size, "the host's name is not known");
        break;
    case CURLE_COULDNT_CONNECT:
        snprintf(why, size, "nothing listens there: connection refused or no route");
        break;
    case CURLE_OPERATION_TIMEDOUT:
        snprintf(why, size, "no answer within %ld ms", fetch->deadline_ms);
        break;
    case CURLE_PARTIAL_FILE:
        snprintf(why, size, "the answer was cut short and is dropped");
        break;
    case CURLE_GOT_NOTHING:
        snprintf(why, size, "the connection was closed without an answer");
        break;
    case CURLE_PEER_FAILED_VERIFICATION:
        snprintf(why, size, "its TLS certificate is not trusted: %.100s", fetch->error);
        break;
    default:
        snprintf(why, size, "%.150s", fetch->error[0] ? fetch->error : curl_easy_strerror(result));
        break;
    }
}

/* What an engine's error status means to who named its address. */
static const char *explain_status(long status)
{
    if (status == 404 || status == 405)
        return "it has nothing there; give the engine's own address, without a path";
    if (status == 408 || status == 429 || status == 502 || status == 503 || status == 504)
        return "it is busy or not up yet, or a proxy does not reach it";
    if (status >= 500) return "it failed inside; its log says why";
    return "it does not answer this; is it an engine's address?";
}

void fetch_end(struct fetch *fetch, CURLcode result, struct fetch_answer *out)
{
    const char *type = NULL;
    long status = 0;

    *out = (struct fetch_answer){.body = fetch->body.data ? fetch->body.data : "",
                                 .length = fetch->body.length};
    curl_easy_getinfo(fetch->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(fetch->easy, CURLINFO_CONTENT_TYPE, &type);
    out->status = (int)status;
    snprintf(out->type, sizeof out->type, "%s", type ? type : "");
    out->refused = status == 401 || status == 403;
    if (fetch->too_large)
        snprintf(out->why, sizeof out->why, "the answer is larger than %zu KiB and is dropped",
                 fetch->limit >> 10);
    else if (fetch->body.failed)
        snprintf(out->why, sizeof out->why, "out of memory for the answer");
    else if (result != CURLE_OK)
        say_failure(fetch, result, out->why, sizeof out->why);
    else if (out->refused)
        snprintf(out->why, sizeof out->why, "status %ld: it wants a key, or another one", status);
    else if (status >= 300 && status < 400)
        snprintf(out->why, sizeof out->why,
                 "status %ld: it redirects, which is not followed; give the final address", status);
    else if (status != 200)
        snprintf(out->why, sizeof out->why, "status %ld: %s", status, explain_status(status));
    out->ok = out->why[0] == '\0';
}

void fetch_run(struct fetch *fetch, const char *path, size_t limit, struct fetch_answer *out)
{
    fetch_begin(fetch, path, limit);
    fetch_end(fetch, curl_easy_perform(fetch->easy), out);
}
