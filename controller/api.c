/* api.c - see api.h: the control API over live nodes. What comes from the store is api_history.c.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/api.h"
#include "controller/api_common.h"
#include "controller/client.h" /* what both sides hold to */
#include "controller/number.h"

#define LENGTH(ARRAY) (sizeof(ARRAY) / sizeof *(ARRAY))

enum {
    INTERVAL_DEFAULT_MS = 1000,
    INTERVAL_LEAST_MS = 200,
    INTERVAL_MOST_MS = 60000,
};

/* ---------------------------------------------------------------------- shared by the handlers */

struct node *api_find_node(struct exchange *x)
{
    const struct server_view *server = exchange_server(x);

    for (int i = 0; i < server->node_count; i++) {
        struct node *node = server->nodes[i];

        if (!atomic_load(&node->hidden) && strcmp(node->id, x->segment[0]) == 0) return node;
    }
    reply_error(&x->reply, 404, NULL, "node_not_found", "no node '%s' here; see /api/v1/nodes",
                x->segment[0]);
    return NULL;
}

bool api_integer_argument(struct exchange *x, const char *name, int64_t low, int64_t high,
                          int64_t *value)
{
    const char *text = exchange_argument(x, name);

    if (!text || number_read_whole(text, low, high, value)) return true;
    reply_error(&x->reply, 400, name, "invalid_value",
                "'%s' must be an integer between %lld and %lld, in decimal digits", name,
                (long long)low, (long long)high);
    return false;
}

/* -------------------------------------------------------------------------- health and version */

/* The daemon is well when one of its own engines serves; one that only watches others is well when
 * it answers. */
void api_health(struct exchange *x)
{
    const struct server_view *server = exchange_server(x);
    struct snapshot snapshot;
    char state[sizeof snapshot.health.state] = "ok";
    bool any = false, serves = false;

    for (int i = 0; i < server->node_count; i++) {
        struct node *node = server->nodes[i];
        if (!(node->capabilities & NODE_CAN_GENERATE)) continue;
        any = true;
        node->ops->snapshot(node, &snapshot);
        bool well = strcmp(snapshot.health.state, "ok") == 0 ||
                    strcmp(snapshot.health.state, "degraded") == 0;
        if (serves && !well) continue;
        memcpy(state, snapshot.health.state, sizeof state);
        serves |= well;
    }
    if (atomic_load(&server->draining)) {
        any = true;
        serves = false;
        strcpy(state, "draining");
    }
    reply_json(&x->reply, any && !serves ? 503 : 200, json_pack("{s:s}", "status", state));
}

void api_version(struct exchange *x)
{
    reply_json(&x->reply, 200, json_pack("{s:s}", "version", PACKAGE_VERSION));
}

/* --------------------------------------------------------------------------------------- nodes */

/* What a row of the fleet shows beside the node's names. */
static const char *const fleet_keys[] = {
    "mode",        "generation",   "health",          "throughput_tps",
    "mean_length", "running",      "queued",          "accepted_verified_ratio",
    "uptime_s",    "time_ms",      "read_ms",         "accepted_drafted_ratio",
    "restarts",    "restarted_ms", "tokens_per_step",
};
static const char *const fleet_estimator_keys[] = {"slope", "slope_se", "drift_z", "drift_events",
                                                   "last_drift_ms"};

static int copy_keys(json_t *to, const json_t *from, const char *const *keys, size_t count)
{
    int failed = 0;

    for (size_t i = 0; i < count; i++)
        failed |= json_object_set(to, keys[i], json_object_get(from, keys[i]));
    return failed;
}

/* The snapshot's node object and what a list needs beside it. */
static json_t *node_to_json(struct node *node)
{
    struct snapshot snapshot;
    json_t *object, *whole;

    node->ops->snapshot(node, &snapshot);
    whole = snapshot_to_json(&snapshot);
    if (!whole) return NULL;
    object = json_copy(json_object_get(whole, "node"));
    if (json_object_set_new(object, "id", json_string(node->id)) != 0 ||
        copy_keys(object, whole, fleet_keys, LENGTH(fleet_keys)) != 0 ||
        copy_keys(object, json_object_get(whole, "estimator"), fleet_estimator_keys,
                  LENGTH(fleet_estimator_keys)) != 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(whole);
    return object;
}

void api_nodes(struct exchange *x)
{
    const struct server_view *server = exchange_server(x);
    int count = server->node_count; /* one that comes meanwhile is the next answer's */
    json_t *nodes = json_array();
    const char *why; /* empty where the caller may change things */
    bool read_only =
        access_check(server->access, ACCESS_WRITE, &x->caller, NULL, &why) != ACCESS_ALLOWED;

    for (int i = 0; i < count && nodes; i++) {
        if (atomic_load(&server->nodes[i]->hidden)) continue;
        if (json_array_append_new(nodes, node_to_json(server->nodes[i])) == 0) continue;
        json_decref(nodes);
        nodes = NULL;
    }
    if (!nodes) {
        reply_json(&x->reply, 500, NULL);
        return;
    }
    reply_json(&x->reply, 200,
               json_pack("{s:s, s:b, s:s, s:{s:s, s:i, s:I, s:s?}, s:o}", "schema",
                         "trimtab.nodes/1", "read_only", (int)read_only, "read_only_reason", why,
                         "daemon", "version", PACKAGE_VERSION, "pid", (int)getpid(), "started_ms",
                         (json_int_t)server->started_ms, "store_path", server->store_path, "nodes",
                         nodes));
}

/* ----------------------------------------------------------------------------------- snapshots */

void api_snapshot(struct exchange *x)
{
    struct node *node = api_find_node(x);
    struct snapshot snapshot;

    if (!node) return;
    node->ops->snapshot(node, &snapshot);
    reply_json(&x->reply, 200, snapshot_to_json(&snapshot));
}

static bool fill_snapshot(struct exchange *x, struct buffer *out)
{
    struct node *node = x->state;
    struct snapshot snapshot;

    if (atomic_load(&exchange_server(x)->stopping)) return false;
    if (!exchange_take_tick(x)) return true;
    node->ops->snapshot(node, &snapshot);
    json_t *object = snapshot_to_json(&snapshot);
    buffer_add_text(out, "data: ");
    if (object)
        reply_put_json(out, object);
    else
        out->failed = true;
    buffer_add_text(out, "\n\n");
    json_decref(object);
    return true;
}

void api_stream(struct exchange *x)
{
    int64_t interval_ms = INTERVAL_DEFAULT_MS;

    x->state = api_find_node(x);
    if (!x->state ||
        !api_integer_argument(x, "interval_ms", INTERVAL_LEAST_MS, INTERVAL_MOST_MS, &interval_ms))
        return;
    x->fill = fill_snapshot;
    x->reply.status = 200;
    x->reply.content_type = "text/event-stream; charset=utf-8";
    exchange_set_ticks(x, interval_ms);
}

/* -------------------------------------------------------------------------------------- tables */

static void reply_unable(struct exchange *x, struct node *node, const char *what)
{
    struct snapshot snapshot;

    node->ops->snapshot(node, &snapshot);
    reply_error(&x->reply, 501, NULL, "unable", "the node '%s' has no %s%s%s", node->id, what,
                snapshot.node.unable[0] ? ": " : "", snapshot.node.unable);
}

/* {"schema":schema, ...object}; takes over object. */
static void reply_object(struct exchange *x, struct node *node, const char *what,
                         const char *schema, json_t *object)
{
    if (!object) {
        reply_unable(x, node, what);
        return;
    }
    if (json_object_set_new(object, "schema", json_string(schema)) != 0) {
        json_decref(object);
        object = NULL;
    }
    reply_json(&x->reply, 200, object);
}

void api_requests(struct exchange *x)
{
    struct node *node = api_find_node(x);

    if (!node) return;
    json_t *list = node->ops->requests ? node->ops->requests(node) : NULL;
    reply_object(x, node, "list of requests", "trimtab.requests/1",
                 list ? json_pack("{s:o}", "requests", list) : NULL);
}

void api_cost(struct exchange *x)
{
    struct node *node = api_find_node(x);

    if (node)
        reply_object(x, node, "cost table", "trimtab.cost/1",
                     node->ops->cost ? node->ops->cost(node) : NULL);
}

void api_calibration(struct exchange *x)
{
    struct node *node = api_find_node(x);

    if (node)
        reply_object(x, node, "calibration", "trimtab.calibration/1",
                     node->ops->calibration ? node->ops->calibration(node) : NULL);
}

static void reply_settings(struct exchange *x, struct node *node)
{
    json_t *settings = node->ops->settings ? node->ops->settings(node) : NULL;
    struct snapshot snapshot;

    if (settings && !json_object_get(settings, "generation")) {
        node->ops->snapshot(node, &snapshot);
        json_object_set_new(settings, "generation", json_integer(snapshot.generation));
    }
    reply_object(x, node, "settings", "trimtab.settings/1", settings);
}

void api_settings(struct exchange *x)
{
    struct node *node = api_find_node(x);

    if (node) reply_settings(x, node);
}

/* ------------------------------------------------------------------------------------- changes */

struct change {                /* what every change carries */
    int64_t expect_generation; /* -1 = any */
    const char *reason;        /* in the body */
};

/* The body as an object, or NULL with the reply filled. */
static json_t *read_change(struct exchange *x, struct change *change)
{
    json_error_t where;
    json_t *body = json_loadb(x->body.data ? x->body.data : "", x->body.length, 0, &where);
    const json_t *generation = json_object_get(body, "expect_generation"),
                 *reason = json_object_get(body, "reason");

    *change = (struct change){.expect_generation = -1, .reason = ""};
    if (!json_is_object(body)) {
        reply_error(&x->reply, 400, NULL, "invalid_json", "the body must be a JSON object%s%s",
                    body ? "" : ": ", body ? "" : where.text);
        goto fail;
    }
    if (generation && !json_is_null(generation)) {
        if (!json_is_integer(generation) || json_integer_value(generation) < 0) {
            reply_error(&x->reply, 400, "expect_generation", "invalid_type",
                        "'expect_generation' must be an integer from 0, or null");
            goto fail;
        }
        change->expect_generation = json_integer_value(generation);
    }
    if (reason && !json_is_null(reason)) {
        if (!json_is_string(reason) || json_string_length(reason) > CLIENT_REASON_MAX) {
            reply_error(&x->reply, 400, "reason", "invalid_type",
                        "'reason' must be a string of at most %d bytes", CLIENT_REASON_MAX);
            goto fail;
        }
        change->reason = json_string_value(reason);
    }
    return body;
fail:
    json_decref(body);
    return NULL;
}

/* The answer to everything but NODE_OK. */
static void reply_refused(struct exchange *x, enum node_status status, const char *cause,
                          int64_t generation)
{
    struct reply *reply = &x->reply;

    switch (status) {
    case NODE_CONFLICT:
        reply->status = 409;
        reply->content_type = "application/json";
        buffer_clear(&reply->body);
        buffer_add_text(&reply->body, "{");
        reply_put_error(&reply->body, 409, "expect_generation", "generation_conflict",
                        cause ? cause : "somebody changed the node meanwhile");
        buffer_add_format(&reply->body, ",\"generation\":%lld}", (long long)generation);
        return;
    case NODE_INVALID:
        reply_error(reply, 400, NULL, "invalid_value", "%s", cause ? cause : "invalid value");
        return;
    case NODE_UNABLE:
        reply_error(reply, 501, NULL, "unable", "%s", cause ? cause : "the node cannot do this");
        return;
    default:
        reply_error(reply, 503, NULL, "unavailable", "%s",
                    cause ? cause : "the node cannot do this now");
        reply->retry_after_s = 1;
        return;
    }
}

void api_set_mode(struct exchange *x)
{
    struct node *node = api_find_node(x);
    struct change change;
    enum mode mode;
    int64_t generation = 0;
    char *cause = NULL;
    json_t *body = node ? read_change(x, &change) : NULL;
    const char *name = json_string_value(json_object_get(body, "mode"));

    if (!body) return;
    if (!name || !mode_parse(name, &mode)) {
        reply_error(&x->reply, 400, "mode", "invalid_value",
                    "'mode' must be adaptive, fixed, off or shadow");
    } else if (!(node->capabilities & NODE_CAN_SET_MODE) || !node->ops->set_mode) {
        reply_unable(x, node, "switch for its mode");
    } else {
        enum node_status status = node->ops->set_mode(
            node, mode, change.expect_generation, change.reason, &x->actor, &generation, &cause);
        if (status == NODE_OK)
            reply_json(&x->reply, 200,
                       json_pack("{s:s, s:I}", "mode", mode_name(mode), "generation",
                                 (json_int_t)generation));
        else
            reply_refused(x, status, cause, generation);
    }
    free(cause);
    json_decref(body);
}

/* Only settings that exist, of their types; values are the node's to judge. */
static bool settings_are_typed(struct exchange *x, const json_t *settings)
{
    enum type { INTEGER, NUMBER, BOOLEAN, TEXT };
    static const struct {
        const char *name;
        enum type type;
    } known[] = {
        {"max_draft", INTEGER}, {"fixed_draft", INTEGER}, {"exploration", BOOLEAN},
        {"estimator", TEXT},    {"min_gain", NUMBER},     {"refit_interval_steps", INTEGER},
        {"draft", TEXT},
    };
    static const char *const types[] = {"an integer", "a number", "a boolean", "a string"};
    size_t matched = 0;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const json_t *value = json_object_get(settings, known[i].name);
        if (!value) continue;
        matched++;
        bool fits = known[i].type == INTEGER   ? json_is_integer(value)
                    : known[i].type == NUMBER  ? json_is_number(value)
                    : known[i].type == BOOLEAN ? json_is_boolean(value)
                                               : json_is_string(value);
        if (fits) continue;
        reply_error(&x->reply, 400, known[i].name, "invalid_type", "'%s' must be %s", known[i].name,
                    types[known[i].type]);
        return false;
    }
    if (matched > 0 && matched == json_object_size(settings)) return true;
    reply_error(&x->reply, 400, NULL, "invalid_value",
                "the body must hold settings only (max_draft, fixed_draft, exploration, estimator, "
                "refit_interval_steps, min_gain, draft), expect_generation and reason");
    return false;
}

void api_set(struct exchange *x)
{
    struct node *node = api_find_node(x);
    struct change change;
    int64_t generation = 0;
    char *cause = NULL;
    json_t *body = node ? read_change(x, &change) : NULL, *settings = json_copy(body);

    if (!body || !settings) goto out;
    json_object_del(settings, "expect_generation");
    json_object_del(settings, "reason");
    if (!settings_are_typed(x, settings)) goto out;
    if (!(node->capabilities & NODE_CAN_SET) || !node->ops->set) {
        reply_unable(x, node, "settings to change");
        goto out;
    }
    enum node_status status = node->ops->set(node, settings, change.expect_generation,
                                             change.reason, &x->actor, &generation, &cause);
    if (status == NODE_OK)
        reply_settings(x, node);
    else
        reply_refused(x, status, cause, generation);
out:
    if (body && !settings) reply_json(&x->reply, 500, NULL);
    free(cause);
    json_decref(settings);
    json_decref(body);
}

void api_cancel(struct exchange *x)
{
    struct node *node = api_find_node(x);
    int64_t id = 0;

    if (!node) return;
    if (!number_read_whole(x->segment[1], 0, INT64_MAX, &id)) {
        reply_error(&x->reply, 400, NULL, "invalid_value", "'%s' is not the number of a request",
                    x->segment[1]);
    } else if (!node->ops->cancel) {
        reply_unable(x, node, "requests that can be cancelled");
    } else if (!node->ops->cancel(node, (uint64_t)id)) {
        reply_error(&x->reply, 404, NULL, "request_not_found", "no request %lld runs or waits here",
                    (long long)id);
    } else {
        reply_json(&x->reply, 200, json_pack("{s:I, s:b}", "id", (json_int_t)id, "cancelled", 1));
    }
}
