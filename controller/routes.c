/* routes.c - see routes.h. One table; docs/api.md describes the same paths and a test compares
 * them. */
#include "config.h"

#include <string.h>

#include "controller/api.h"
#include "controller/generate.h"
#include "controller/metrics.h"
#include "controller/routes.h"

enum { KIB = 1024, GENERATION_BODY = 8 * KIB * KIB, CONTROL_BODY = 64 * KIB };

static const struct route routes[] = {
    {"GET", "/health", ACCESS_OPEN, 0, 0, api_health},
    {"GET", "/version", ACCESS_OPEN, 0, 0, api_version},
    {"GET", "/metrics", ACCESS_READ, ROUTE_WORK, 0, metrics_handle},
    {"GET", "/v1/models", ACCESS_INFER, 0, 0, generate_models},
    {"GET", "/v1/models/{}", ACCESS_INFER, 0, 0, generate_model},
    {"POST", "/v1/completions", ACCESS_INFER, ROUTE_WORK, GENERATION_BODY, generate_completion},
    {"POST", "/v1/chat/completions", ACCESS_INFER, ROUTE_WORK, GENERATION_BODY, generate_chat},
    {"GET", "/api/v1/nodes", ACCESS_READ, 0, 0, api_nodes},
    {"GET", "/api/v1/nodes/{}/snapshot", ACCESS_READ, 0, 0, api_snapshot},
    {"GET", "/api/v1/nodes/{}/stream", ACCESS_READ, ROUTE_STREAM, 0, api_stream},
    {"GET", "/api/v1/nodes/{}/history", ACCESS_READ, ROUTE_WORK, 0, api_history},
    {"GET", "/api/v1/nodes/{}/decisions", ACCESS_READ, ROUTE_WORK, 0, api_decisions},
    {"GET", "/api/v1/nodes/{}/past", ACCESS_READ, ROUTE_WORK, 0, api_past},
    {"GET", "/api/v1/nodes/{}/requests", ACCESS_READ, ROUTE_WORK, 0, api_requests},
    {"GET", "/api/v1/nodes/{}/cost", ACCESS_READ, ROUTE_WORK, 0, api_cost},
    {"GET", "/api/v1/nodes/{}/calibration", ACCESS_READ, ROUTE_WORK, 0, api_calibration},
    {"GET", "/api/v1/nodes/{}/settings", ACCESS_READ, ROUTE_WORK, 0, api_settings},
    {"PUT", "/api/v1/nodes/{}/settings", ACCESS_WRITE, ROUTE_WORK, CONTROL_BODY, api_set},
    {"PUT", "/api/v1/nodes/{}/mode", ACCESS_WRITE, ROUTE_WORK, CONTROL_BODY, api_set_mode},
    {"DELETE", "/api/v1/nodes/{}/requests/{}", ACCESS_WRITE, ROUTE_WORK, 0, api_cancel},
};
enum { ROUTES = sizeof routes / sizeof *routes };

const struct route *routes_at(size_t i)
{
    return i < ROUTES ? &routes[i] : NULL;
}

static bool path_matches(const char *pattern, const char *path, struct exchange *exchange)
{
    int segments = 0;

    while (*pattern) {
        if (strncmp(pattern, "{}", 2) != 0) {
            if (*pattern++ != *path++) return false;
            continue;
        }
        size_t length = strcspn(path, "/");
        if (length == 0 || length >= EXCHANGE_SEGMENT_MAX) return false;
        memcpy(exchange->segment[segments], path, length);
        exchange->segment[segments++][length] = '\0';
        pattern += 2;
        path += length;
    }
    return *path == '\0';
}

static const char *allow_of(bool get, bool put, bool post, bool delete)
{
    if (get && put) return "GET, HEAD, PUT";
    if (get) return "GET, HEAD";
    if (put) return "PUT";
    if (post) return "POST";
    return delete ? "DELETE" : NULL;
}

const struct route *routes_find(const char *method, const char *path, struct exchange *exchange,
                                const char **allow)
{
    bool get = false, put = false, post = false, delete = false;

    for (size_t i = 0; i < ROUTES; i++) {
        const struct route *route = &routes[i];
        if (!path_matches(route->path, path, exchange)) continue;
        if (strcmp(route->method, method) == 0) return route;
        /* libmicrohttpd leaves the body of an answer to HEAD away by itself */
        if (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0 &&
            !(route->flags & ROUTE_STREAM))
            return route;
        get |= route->method[0] == 'G';
        put |= strcmp(route->method, "PUT") == 0;
        post |= strcmp(route->method, "POST") == 0;
        delete |= route->method[0] == 'D';
    }
    *allow = allow_of(get, put, post, delete);
    return NULL;
}
