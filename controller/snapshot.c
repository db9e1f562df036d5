/* snapshot.c - the JSON form of a snapshot (schema trimtab.snapshot/1), both ways from one table of
 * fields.
 *
 * Unknown (NaN, a count of -1) is null. Reading is strict about what it knows (a missing key or a
 * wrong type is named) and blind to what it does not, so that a newer daemon can be watched by an
 * older console.
 */
#include "config.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "controller/buffer.h"
#include "controller/cause.h"
#include "controller/json_number.h"
#include "controller/snapshot.h"

static const char *const mode_names[] = {[MODE_OFF] = "off",
                                         [MODE_FIXED] = "fixed",
                                         [MODE_ADAPTIVE] = "adaptive",
                                         [MODE_SHADOW] = "shadow"};
enum { MODES = sizeof mode_names / sizeof *mode_names };

const char *mode_name(enum mode mode)
{
    if (mode == MODE_UNKNOWN) return "unknown";
    assert((unsigned)mode < MODES);
    return mode_names[mode];
}

const char *mode_describe(enum mode mode, int fixed_draft, char *out, size_t size)
{
    if (mode == MODE_FIXED && fixed_draft >= 0)
        snprintf(out, size, "fixed K=%d", fixed_draft);
    else
        snprintf(out, size, "%s", mode_name(mode));
    return out;
}

bool mode_parse(const char *name, enum mode *mode)
{
    for (int i = 0; i < MODES; i++) {
        if (strcmp(name, mode_names[i]) == 0) {
            *mode = (enum mode)i;
            return true;
        }
    }
    return false;
}

/* ----------------------------------------------------------------------------- the field table */

enum kind {
    TEXT,
    REAL,
    COUNT,
    INTEGER,
    TIME,
    FLAG,
    MODE
}; /* COUNT: int, INTEGER and TIME: int64_t */

struct field {
    const char *key;
    enum kind kind;
    size_t offset, size; /* size: of a TEXT */
    bool optional;       /* added after the first release of the schema */
};

#define FIELD(KIND, TYPE, MEMBER, KEY)                                                             \
    {                                                                                              \
        KEY, KIND, offsetof(TYPE, MEMBER), sizeof(((TYPE *)0)->MEMBER), false                      \
    }
#define ADDED(KIND, TYPE, MEMBER, KEY)                                                             \
    {                                                                                              \
        KEY, KIND, offsetof(TYPE, MEMBER), sizeof(((TYPE *)0)->MEMBER), true                       \
    }
#define TOP(KIND, MEMBER) FIELD(KIND, struct snapshot, MEMBER, #MEMBER)
#define COUNT_OF(TABLE) (sizeof(TABLE) / sizeof *(TABLE))

static const struct field top_fields[] = {
    TOP(MODE, mode),
    TOP(FLAG, switching),
    TOP(COUNT, fixed_draft),
    TOP(COUNT, max_draft),
    TOP(INTEGER, generation),
    TOP(TIME, time_ms),
    TOP(REAL, uptime_s),
    TOP(REAL, window_ms),
    TOP(REAL, throughput_tps),
    TOP(REAL, tokens_per_step),
    TOP(REAL, step_ms),
    TOP(REAL, draft_ms),
    TOP(REAL, verify_ms),
    TOP(REAL, own_ms),
    TOP(REAL, own_ratio),
    TOP(COUNT, running),
    TOP(COUNT, queued),
    TOP(INTEGER, steps),
    TOP(INTEGER, drafted_total),
    TOP(INTEGER, admitted_total),
    TOP(INTEGER, verified_total),
    TOP(INTEGER, accepted_total),
    TOP(INTEGER, emitted_total),
    TOP(INTEGER, requests_total),
    TOP(INTEGER, target_rows_total),
    TOP(INTEGER, failed_total),
    ADDED(INTEGER, struct snapshot, drafts_total, "drafts_total"),
    ADDED(INTEGER, struct snapshot, prompt_tokens_total, "prompt_tokens_total"),
    TOP(REAL, drafted_per_step),
    TOP(REAL, verified_per_step),
    TOP(REAL, accepted_verified_ratio),
    TOP(REAL, budget),
    TOP(REAL, predicted_tps),
    ADDED(REAL, struct snapshot, mean_length, "mean_length"),
    ADDED(REAL, struct snapshot, accepted_drafted_ratio, "accepted_drafted_ratio"),
    ADDED(REAL, struct snapshot, first_token_p50_ms, "first_token_p50_ms"),
    ADDED(REAL, struct snapshot, first_token_p95_ms, "first_token_p95_ms"),
    ADDED(REAL, struct snapshot, inter_token_p50_ms, "inter_token_p50_ms"),
    ADDED(REAL, struct snapshot, inter_token_p95_ms, "inter_token_p95_ms"),
    ADDED(REAL, struct snapshot, kv_ratio, "kv_ratio"),
    ADDED(TIME, struct snapshot, read_ms, "read_ms"),
    ADDED(INTEGER, struct snapshot, restarts, "restarts"),
    ADDED(TIME, struct snapshot, restarted_ms, "restarted_ms"),
    ADDED(REAL, struct snapshot, predicted_step_ms, "predicted_step_ms"),
    ADDED(REAL, struct snapshot, cost_error_ratio, "cost_error_ratio"),
    ADDED(REAL, struct snapshot, cost_bias_ratio, "cost_bias_ratio"),
};

#define NODE(KIND, MEMBER) FIELD(KIND, struct snapshot, node.MEMBER, #MEMBER)
static const struct field node_fields[] = {
    NODE(TEXT, id),
    NODE(TEXT, kind),
    NODE(TEXT, engine),
    NODE(TEXT, version),
    NODE(TEXT, model),
    NODE(TEXT, draft),
    NODE(COUNT, tier),
    ADDED(TEXT, struct snapshot, node.unable, "unable"),
    ADDED(COUNT, struct snapshot, node.engines, "engines"),
    ADDED(TEXT, struct snapshot, node.rates, "rates"),
};

#define ESTIMATOR(KIND, MEMBER) FIELD(KIND, struct snapshot, estimator.MEMBER, #MEMBER)
static const struct field estimator_fields[] = {
    ESTIMATOR(TEXT, kind),          ESTIMATOR(TEXT, stratum),
    ESTIMATOR(REAL, slope),         ESTIMATOR(REAL, slope_se),
    ESTIMATOR(REAL, level),         ESTIMATOR(REAL, drift_z),
    ESTIMATOR(REAL, ece),           ESTIMATOR(REAL, auc),
    ESTIMATOR(INTEGER, refits),     ESTIMATOR(INTEGER, drift_events),
    ESTIMATOR(TIME, last_drift_ms),
};

#define POSITION(KIND, MEMBER) FIELD(KIND, struct snapshot_position, MEMBER, #MEMBER)
static const struct field position_fields[] = {
    POSITION(REAL, intercept),
    POSITION(REAL, intercept_se),
    POSITION(REAL, accepted_ratio),
    POSITION(REAL, predicted_ratio),
    POSITION(INTEGER, reached),
    POSITION(INTEGER, n),
    ADDED(INTEGER, struct snapshot_position, accepted_total, "accepted_total"),
};

static const struct field store_fields[] = {
    FIELD(FLAG, struct snapshot, store.ok, "ok"),
    FIELD(TIME, struct snapshot, store.since_ms, "since_ms"),
    FIELD(TEXT, struct snapshot, store.reason, "reason"),
};

static const struct field health_fields[] = {
    FIELD(TEXT, struct snapshot, health.state, "state"),
    FIELD(TEXT, struct snapshot, health.reason, "reason"),
    ADDED(TEXT, struct snapshot, health.advice, "advice"),
    ADDED(TIME, struct snapshot, health.since_ms, "reason_since_ms"),
};

#define TOGGLE(KIND, MEMBER) FIELD(KIND, struct snapshot, toggle.MEMBER, #MEMBER)
static const struct field toggle_fields[] = {
    TOGGLE(TIME, time_ms),
    TOGGLE(TEXT, before),
    TOGGLE(TEXT, after),
    TOGGLE(REAL, gain),
    TOGGLE(REAL, gain_low),
    TOGGLE(REAL, gain_high),
    TOGGLE(INTEGER, n),
    TOGGLE(REAL, window_s),
    ADDED(REAL, struct snapshot, toggle.tps_before, "tps_before"),
    ADDED(REAL, struct snapshot, toggle.tps_after, "tps_after"),
    ADDED(REAL, struct snapshot, toggle.step_ms_before, "step_ms_before"),
    ADDED(REAL, struct snapshot, toggle.step_ms_after, "step_ms_after"),
};

/* --------------------------------------------------------------------------------------- clear */

static void fields_clear(const struct field *fields, size_t count, void *base)
{
    for (size_t i = 0; i < count; i++) {
        char *at = (char *)base + fields[i].offset;
        if (fields[i].kind == REAL) {
            *(double *)(void *)at = NAN;
        } else if (fields[i].kind == COUNT) {
            *(int *)(void *)at = -1;
        } else if (fields[i].kind == INTEGER) {
            *(int64_t *)(void *)at = -1;
        }
    }
}

void snapshot_clear(struct snapshot *snapshot)
{
    memset(snapshot, 0, sizeof *snapshot);
    snapshot->mode = MODE_UNKNOWN;
    fields_clear(top_fields, COUNT_OF(top_fields), snapshot);
    fields_clear(node_fields, COUNT_OF(node_fields), snapshot);
    fields_clear(estimator_fields, COUNT_OF(estimator_fields), snapshot);
    fields_clear(toggle_fields, COUNT_OF(toggle_fields), snapshot);
    for (int i = 0; i < SNAPSHOT_MAX_POSITIONS; i++)
        fields_clear(position_fields, COUNT_OF(position_fields), &snapshot->estimator.position[i]);
    snapshot->node.tier = 0;
    snapshot->generation = 0; /* a node that cannot be steered never leaves it */
}

/* --------------------------------------------------------------------------------------- write */

static json_t *integer_or_null(int64_t value)
{
    return value < 0 ? json_null() : json_integer(value);
}

static json_t *field_to_json(const struct field *field, const void *base)
{
    const char *at = (const char *)base + field->offset;

    switch (field->kind) {
    case TEXT:
        return json_stringn(at, utf8_prefix(at)); /* a name may have been cut inside a character */
    case REAL: {
        double value = *(const double *)(const void *)at;
        return json_number(value);
    }
    case COUNT:
        return integer_or_null(*(const int *)(const void *)at);
    case INTEGER:
    case TIME:
        return integer_or_null(*(const int64_t *)(const void *)at);
    case FLAG:
        return json_boolean(*(const bool *)(const void *)at);
    case MODE: {
        enum mode mode = *(const enum mode *)(const void *)at;
        return mode == MODE_UNKNOWN ? json_null() : json_string(mode_name(mode));
    }
    }
    return NULL;
}

static int fields_to_json(const struct field *fields, size_t count, const void *base,
                          json_t *object)
{
    for (size_t i = 0; i < count; i++) {
        if (json_object_set_new(object, fields[i].key, field_to_json(&fields[i], base)) != 0)
            return -1;
    }
    return 0;
}

/* Adds object[key] = {fields}; the new object, borrowed, or NULL. */
static json_t *group_to_json(json_t *object, const char *key, const struct field *fields,
                             size_t count, const void *base)
{
    json_t *group = json_object();

    if (!group || fields_to_json(fields, count, base, group) != 0) {
        json_decref(group);
        return NULL;
    }
    return json_object_set_new(object, key, group) == 0 ? group : NULL;
}

/* "mode,settings" as ["mode","settings"]. */
static json_t *capabilities_to_json(const char *names)
{
    json_t *array = json_array();

    while (array && *names) {
        size_t length = strcspn(names, ",");
        if (length > 0) json_array_append_new(array, json_stringn(names, length));
        names += length + (names[length] == ',');
    }
    return array;
}

static int positions_to_json(const struct snapshot *snapshot, json_t *estimator)
{
    json_t *positions = json_array();

    if (!positions || json_object_set_new(estimator, "positions", positions) != 0) return -1;
    for (int i = 0; i < snapshot->estimator.positions_count && i < SNAPSHOT_MAX_POSITIONS; i++) {
        json_t *position = json_object();
        if (json_array_append_new(positions, position) != 0) return -1;
        if (json_object_set_new(position, "position", json_integer(i)) != 0) return -1;
        if (fields_to_json(position_fields, COUNT_OF(position_fields),
                           &snapshot->estimator.position[i], position) != 0)
            return -1;
    }
    return 0;
}

json_t *snapshot_to_json(const struct snapshot *snapshot)
{
    json_t *object = json_pack("{s:s}", "schema", SNAPSHOT_SCHEMA), *group;

    if (!object) return NULL;
    group = group_to_json(object, "node", node_fields, COUNT_OF(node_fields), snapshot);
    if (!group) goto fail;
    if (json_object_set_new(group, "capabilities",
                            capabilities_to_json(snapshot->node.capabilities)) != 0)
        goto fail;
    if (fields_to_json(top_fields, COUNT_OF(top_fields), snapshot, object) != 0) goto fail;
    group =
        group_to_json(object, "estimator", estimator_fields, COUNT_OF(estimator_fields), snapshot);
    if (!group || positions_to_json(snapshot, group) != 0) goto fail;
    if (!group_to_json(object, "store", store_fields, COUNT_OF(store_fields), snapshot)) goto fail;
    if (!group_to_json(object, "health", health_fields, COUNT_OF(health_fields), snapshot))
        goto fail;
    if (!snapshot->toggle.known) {
        if (json_object_set_new(object, "toggle", json_null()) != 0) goto fail;
    } else if (!group_to_json(object, "toggle", toggle_fields, COUNT_OF(toggle_fields), snapshot)) {
        goto fail;
    }
    return object;
fail:
    json_decref(object);
    return NULL;
}

/* ---------------------------------------------------------------------------------------- read */

/* Copies at most size - 1 bytes and never half a UTF-8 character. */
static void copy_text(char *out, size_t size, const char *text)
{
    size_t length = strlen(text);

    if (length >= size) {
        length = size - 1;
        while (length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80) length--;
    }
    memcpy(out, text, length);
    out[length] = '\0';
}

static int integer_from_json(const json_t *value, int64_t low, int64_t high, int64_t *out)
{
    *out = -1;
    if (json_is_null(value)) return 0;
    if (!json_is_integer(value)) return -1;
    json_int_t number = json_integer_value(value);
    if (number < low || number > high) return -1;
    *out = number;
    return 0;
}

/* 0, or -1 when the value is of a wrong type. */
static int field_from_json(const struct field *field, const json_t *value, void *base)
{
    char *at = (char *)base + field->offset;
    int64_t number;

    switch (field->kind) {
    case TEXT:
        if (json_is_null(value)) return 0;
        if (!json_is_string(value)) return -1;
        copy_text(at, field->size, json_string_value(value));
        return 0;
    case REAL:
        if (!json_is_null(value) && !json_is_number(value)) return -1;
        *(double *)(void *)at = json_is_null(value) ? NAN : json_number_value(value);
        return 0;
    case COUNT:
        if (integer_from_json(value, 0, INT32_MAX, &number) != 0) return -1;
        *(int *)(void *)at = (int)number;
        return 0;
    case INTEGER:
    case TIME:
        return integer_from_json(value, 0, INT64_MAX, (int64_t *)(void *)at);
    case FLAG:
        if (!json_is_boolean(value)) return -1;
        *(bool *)(void *)at = json_is_true(value);
        return 0;
    case MODE:
        *(enum mode *)(void *)at = MODE_UNKNOWN;
        if (json_is_null(value)) return 0;
        if (!json_is_string(value)) return -1;
        return mode_parse(json_string_value(value), (enum mode *)(void *)at) ? 0 : -1;
    }
    return -1;
}

static const char *json_kind(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "another string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "another number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

static int fields_from_json(const struct field *fields, size_t count, const json_t *object,
                            const char *group, void *base, char **cause)
{
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_object_get(object, fields[i].key);
        if (!value && fields[i].optional) continue;
        if (!value) {
            cause_set(cause, "snapshot: the key \"%s%s\" is missing", group, fields[i].key);
            return -1;
        }
        if (field_from_json(&fields[i], value, base) != 0) {
            cause_set(cause, "snapshot: \"%s%s\" has a wrong type or value (%s)", group,
                      fields[i].key, json_kind(value));
            return -1;
        }
    }
    return 0;
}

static const json_t *object_at(const json_t *object, const char *key, char **cause)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_object(value)) {
        cause_set(cause, "snapshot: \"%s\" is %s, not an object", key,
                  value ? json_kind(value) : "missing");
        return NULL;
    }
    return value;
}

static int capabilities_from_json(const json_t *array, char *out, size_t size, char **cause)
{
    size_t used = 0;

    out[0] = '\0';
    if (!json_is_array(array)) {
        cause_set(cause, "snapshot: \"node.capabilities\" is %s, not an array",
                  array ? json_kind(array) : "missing");
        return -1;
    }
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *name = json_string_value(json_array_get(array, i));
        if (!name) {
            cause_set(cause, "snapshot: \"node.capabilities[%zu]\" is not a string", i);
            return -1;
        }
        size_t length = strlen(name);
        if (used + length + 2 > size) break; /* more than this version can know */
        if (used > 0) out[used++] = ',';
        memcpy(out + used, name, length + 1);
        used += length;
    }
    return 0;
}

static int positions_from_json(const json_t *positions, struct snapshot *out, char **cause)
{
    if (!json_is_array(positions)) {
        cause_set(cause, "snapshot: \"estimator.positions\" is %s, not an array",
                  positions ? json_kind(positions) : "missing");
        return -1;
    }
    size_t count = json_array_size(positions);
    if (count > SNAPSHOT_MAX_POSITIONS) count = SNAPSHOT_MAX_POSITIONS;
    for (size_t i = 0; i < count; i++) {
        const json_t *position = json_array_get(positions, i),
                     *index = json_object_get(position, "position");
        if (!json_is_integer(index) || json_integer_value(index) != (json_int_t)i) {
            cause_set(cause, "snapshot: \"estimator.positions[%zu].position\" is not %zu", i, i);
            return -1;
        }
        if (fields_from_json(position_fields, COUNT_OF(position_fields), position,
                             "estimator.positions[].", &out->estimator.position[i], cause) != 0)
            return -1;
    }
    out->estimator.positions_count = (int)count;
    return 0;
}

int snapshot_from_json(const json_t *object, struct snapshot *out, char **cause)
{
    const char *schema = json_string_value(json_object_get(object, "schema"));
    const json_t *group;

    snapshot_clear(out);
    if (!schema || strcmp(schema, SNAPSHOT_SCHEMA) != 0) {
        cause_set(cause, "snapshot: the schema is %s, this program reads " SNAPSHOT_SCHEMA,
                  schema ? schema : "missing");
        return -1;
    }
    if (fields_from_json(top_fields, COUNT_OF(top_fields), object, "", out, cause) != 0) return -1;
    if (!(group = object_at(object, "node", cause))) return -1;
    if (fields_from_json(node_fields, COUNT_OF(node_fields), group, "node.", out, cause) != 0)
        return -1;
    if (capabilities_from_json(json_object_get(group, "capabilities"), out->node.capabilities,
                               sizeof out->node.capabilities, cause) != 0)
        return -1;
    if (!(group = object_at(object, "estimator", cause))) return -1;
    if (fields_from_json(estimator_fields, COUNT_OF(estimator_fields), group, "estimator.", out,
                         cause) != 0)
        return -1;
    if (positions_from_json(json_object_get(group, "positions"), out, cause) != 0) return -1;
    if (!(group = object_at(object, "store", cause))) return -1;
    if (fields_from_json(store_fields, COUNT_OF(store_fields), group, "store.", out, cause) != 0)
        return -1;
    if (!(group = object_at(object, "health", cause))) return -1;
    if (fields_from_json(health_fields, COUNT_OF(health_fields), group, "health.", out, cause) != 0)
        return -1;
    if (!json_object_get(object, "toggle")) {
        cause_set(cause, "snapshot: the key \"toggle\" is missing");
        return -1;
    }
    if (json_is_null(json_object_get(object, "toggle"))) return 0;
    if (!(group = object_at(object, "toggle", cause))) return -1;
    if (fields_from_json(toggle_fields, COUNT_OF(toggle_fields), group, "toggle.", out, cause) != 0)
        return -1;
    out->toggle.known = true;
    return 0;
}
