/* api_history.c - see api.h: what the control API reads from the store, one reader a request
 * (storage/reader.h). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "controller/api.h"
#include "controller/api_common.h"
#include "storage/reader.h"

enum {
    SERIES_MAX = 160, /* all of a node with 32 positions */
    SERIES_NAME_MAX = 64,
    POINTS_MAX = 20000, /* of one series */
    POINTS_DEFAULT = 300,
    DECISIONS_DEFAULT = 100,
    DECISIONS_MAX = 1000,
    READ_TIME_MS = 2000,
};
static const int64_t window_default_ms = INT64_C(15) * 60 * 1000;

struct reader *api_open_store(struct exchange *x)
{
    const struct server_view *server = exchange_server(x);
    struct reader *reader = NULL;
    char *cause = NULL;

    if (!server->store_path) {
        reply_error(&x->reply, 503, NULL, "no_store", "this daemon keeps no history");
        return NULL;
    }
    reader = reader_open(server->store_path, &cause);
    if (!reader)
        reply_error(&x->reply, 503, NULL, "store_unavailable", "%s",
                    cause ? cause : "the store cannot be read");
    free(cause);
    return reader;
}

/* from and to (UTC ms, [from, to)), the last window by default. */
static bool read_window(struct exchange *x, int64_t *from_ms, int64_t *to_ms)
{
    *to_ms = exchange_server(x)->now_ms();
    if (!api_integer_argument(x, "to", 0, API_TIME_MAX_MS, to_ms)) return false;
    *from_ms = *to_ms > window_default_ms ? *to_ms - window_default_ms : 0;
    if (!api_integer_argument(x, "from", 0, API_TIME_MAX_MS, from_ms)) return false;
    if (*from_ms < *to_ms) return true;
    reply_error(&x->reply, 400, "from", "invalid_value", "'from' must be earlier than 'to'");
    return false;
}

/* ------------------------------------------------------------------------------------- history */

static void add_point(void *state, int64_t time_ms, double value)
{
    json_array_append_new(state, json_pack("[I, f]", (json_int_t)time_ms, value));
}

struct window {
    int64_t from_ms, to_ms, step_ms;
};

/* Adds one series to `out`; false with the reply filled. */
static bool read_series(struct exchange *x, struct reader *reader, const char *name,
                        const struct window *window, json_t *out)
{
    json_t *points = json_array();
    char *cause = NULL;

    if (!reader_series_known(name)) {
        reply_error(&x->reply, 400, "series", "invalid_value", "there is no series '%s'", name);
        json_decref(points);
        return false;
    }
    if (reader_series(reader, x->segment[0], name, window->from_ms, window->to_ms, window->step_ms,
                      add_point, points, &cause) < 0) {
        reply_error(&x->reply, 503, NULL, "store_unavailable", "%s",
                    cause ? cause : "the store cannot be read");
        free(cause);
        json_decref(points);
        return false;
    }
    return json_object_set_new(out, name, points) == 0;
}

/* Adds every series of the comma separated list. */
static bool read_list(struct exchange *x, struct reader *reader, const char *list,
                      const struct window *window, json_t *out)
{
    char name[SERIES_NAME_MAX];
    int count = 0;

    while (*list) {
        size_t length = strcspn(list, ",");
        if (length > 0) {
            if (length >= sizeof name || ++count > SERIES_MAX) {
                reply_error(&x->reply, 400, "series", "invalid_value", "'series' is too long");
                return false;
            }
            memcpy(name, list, length);
            name[length] = '\0';
            if (!read_series(x, reader, name, window, out)) return false;
        }
        list += length + (list[length] == ',');
    }
    return true;
}

void api_history(struct exchange *x)
{
    const char *list = exchange_argument(x, "series");
    struct window window;
    struct reader *reader;

    if (!api_find_node(x) || !read_window(x, &window.from_ms, &window.to_ms)) return;
    int64_t span_ms = window.to_ms - window.from_ms;
    window.step_ms = span_ms / POINTS_DEFAULT > 1000 ? span_ms / POINTS_DEFAULT : 1000;
    if (!api_integer_argument(x, "step", 1, API_TIME_MAX_MS, &window.step_ms)) return;
    if (span_ms / window.step_ms > POINTS_MAX) {
        reply_error(&x->reply, 400, "step", "invalid_value", "'step' asks for more than %d points",
                    POINTS_MAX);
        return;
    }
    if (!list || !*list) {
        reply_error(&x->reply, 400, "series", "invalid_value", "'series' is required");
        return;
    }
    if (!(reader = api_open_store(x))) return;
    json_t *series = json_object();
    if (series && read_list(x, reader, list, &window, series)) {
        reply_json(&x->reply, 200,
                   json_pack("{s:s, s:I, s:I, s:I, s:O}", "schema", "trimtab.history/1", "from_ms",
                             (json_int_t)window.from_ms, "to_ms", (json_int_t)window.to_ms,
                             "step_ms", (json_int_t)window.step_ms, "series", series));
    } else if (x->reply.status == 0) {
        reply_json(&x->reply, 500, NULL);
    }
    json_decref(series);
    reader_close(reader);
}

/* ----------------------------------------------------------------------------------- decisions */

static json_t *value_to_json(const struct reader_value *value)
{
    switch (value->type) {
    case READER_INTEGER:
        return json_integer(value->integer);
    case READER_REAL:
        return json_real(value->real);
    case READER_TEXT:
        return reply_text(value->text);
    default:
        return json_null();
    }
}

/* The numbers behind a decision are stored as JSON. */
static json_t *numbers_to_json(const struct reader_value *value)
{
    json_t *numbers =
        value->type == READER_TEXT ? json_loadb(value->text, value->length, 0, NULL) : NULL;

    if (json_is_object(numbers)) return numbers;
    json_decref(numbers);
    return json_object();
}

static bool add_decision(void *state, int columns, const char *const *names,
                         const struct reader_value *values)
{
    static const char *const texts[] = {"time_ms", "kind", "severity", "what", "before",
                                        "after",   "who",  "origin",   "text"};
    json_t *decision;

    if (!values) return true;
    decision = json_pack("{s:{}}", "numbers");
    for (int i = 0; i < columns && decision; i++) {
        if (strncmp(names[i], "numbers", strlen("numbers")) == 0)
            json_object_set_new(decision, "numbers", numbers_to_json(&values[i]));
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            if (strcmp(names[i], texts[k]) == 0)
                json_object_set_new(decision, texts[k], value_to_json(&values[i]));
        }
    }
    return json_array_append_new(state, decision) == 0;
}

/* Events of the daemon itself belong to no node and are shown with each. */
#define OF_NODE " AND (node = ?3 OR node IS NULL) ORDER BY time_ms "
static const char decisions_sql[] =
    "SELECT * FROM decisions WHERE time_ms >= ?1 AND time_ms < ?2" OF_NODE "DESC LIMIT ?4";
/* The neighbours of the moment ?5 in that span, half of them before it or at it. */
static const char around_sql[] =
    "SELECT * FROM (SELECT * FROM decisions WHERE time_ms >= ?1 AND time_ms < ?2"
    " AND time_ms <= ?5" OF_NODE "DESC LIMIT (?4 + 1) / 2)"
    " UNION ALL "
    "SELECT * FROM (SELECT * FROM decisions WHERE time_ms >= ?1 AND time_ms < ?2"
    " AND time_ms > ?5" OF_NODE "LIMIT ?4 / 2) ORDER BY time_ms DESC";
#undef OF_NODE

void api_decisions(struct exchange *x)
{
    struct node *node = api_find_node(x);
    struct reader_limits limits = {.time_ms = READ_TIME_MS, .rows = DECISIONS_MAX};
    int64_t from_ms = 0, to_ms, around_ms = -1, limit = DECISIONS_DEFAULT;
    struct reader *reader;
    char *cause = NULL;

    if (!node) return;
    to_ms = exchange_server(x)->now_ms() + 1;
    if (!api_integer_argument(x, "to", 0, API_TIME_MAX_MS, &to_ms) ||
        !api_integer_argument(x, "from", 0, API_TIME_MAX_MS, &from_ms) ||
        !api_integer_argument(x, "around", 0, API_TIME_MAX_MS, &around_ms) ||
        !api_integer_argument(x, "limit", 1, DECISIONS_MAX, &limit) ||
        !(reader = api_open_store(x)))
        return;
    struct reader_value bind[] = {
        {.type = READER_INTEGER, .integer = from_ms, .real = (double)from_ms},
        {.type = READER_INTEGER, .integer = to_ms, .real = (double)to_ms},
        {.type = READER_TEXT, .text = node->id, .length = strlen(node->id)},
        {.type = READER_INTEGER, .integer = limit, .real = (double)limit},
        {.type = READER_INTEGER, .integer = around_ms, .real = (double)around_ms},
    };
    const bool around = around_ms >= 0;
    json_t *list = json_array();
    enum reader_end end = list ? reader_query(reader, around ? around_sql : decisions_sql, bind,
                                              around ? 5 : 4, &limits, add_decision, list, &cause)
                               : READER_STOPPED;
    if (end == READER_DONE || end == READER_ROW_LIMIT)
        reply_json(&x->reply, 200,
                   json_pack("{s:s, s:O}", "schema", "trimtab.decisions/1", "decisions", list));
    else if (end == READER_STOPPED)
        reply_json(&x->reply, 500, NULL);
    else
        reply_error(&x->reply, 503, NULL, "store_unavailable", "%s",
                    cause ? cause : "reading the store took too long; ask for a shorter span");
    json_decref(list);
    free(cause);
    reader_close(reader);
}
