/* trace_json.c - the JSONL form of a teacher-forced trace (trimtab.trace/1): one object a line.
 *
 *     {"schema":"trimtab.trace/1","rule":"greedy"|"ratio","temperature":T,"max_draft":K,…}
 *     {"text":t,"prompt":"…"}
 *     {"text":t,"index":i,"token":y,"draft":[…],"feature":[…],"label":[…],"soft":[…]}
 *     {"text":t,"end":n}
 *
 * docs/replay.md says what every member means. Unknown members are passed over, so that more may be
 * added.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "controller/cause.h"
#include "controller/json_number.h"
#include "controller/trace.h"

struct trace_reader {
    struct trace_set *set;
    enum tt_rule rule;
    double temperature;
    int depth;
    int text;  /* number of the text that is open or was last; -1 = none yet */
    bool open; /* it has begun and not ended */
};

/* ---- header */

static bool check_header(struct trace_reader *reader, const json_t *header, char **cause)
{
    const char *schema = json_string_value(json_object_get(header, "schema")),
               *rule = json_string_value(json_object_get(header, "rule"));
    const json_t *temperature = json_object_get(header, "temperature"),
                 *depth = json_object_get(header, "max_draft");

    if (schema && strncmp(schema, "trimtab.record/", 15) == 0) {
        cause_set(cause, "a record of decisions (trimtabd --record): what was trimmed is unknown "
                         "in it, so that no other plan can be replayed on it");
        return false;
    }
    if (!schema || strcmp(schema, TRACE_SCHEMA) != 0) {
        cause_set(cause, "the schema is %s%s%s, not \"" TRACE_SCHEMA "\"", schema ? "\"" : "",
                  schema ? schema : "missing", schema ? "\"" : "");
        return false;
    }
    if (!rule || (strcmp(rule, "greedy") != 0 && strcmp(rule, "ratio") != 0)) {
        cause_set(cause, "rule must be \"greedy\" or \"ratio\"");
        return false;
    }
    reader->rule = rule[0] == 'g' ? TT_GREEDY : TT_RATIO;
    reader->temperature = json_number_value(temperature);
    if (!json_is_number(temperature) || !(reader->temperature >= 0 && reader->temperature <= 100) ||
        (reader->temperature > 0) != (reader->rule == TT_RATIO)) {
        cause_set(cause, "temperature must be a number from 0 to 100: 0 with greedy, above it with "
                         "ratio");
        return false;
    }
    if (!json_is_integer(depth) || json_integer_value(depth) < 1 ||
        json_integer_value(depth) > TT_MAX_POSITIONS) {
        cause_set(cause, "max_draft must be an integer from 1 to %d", TT_MAX_POSITIONS);
        return false;
    }
    reader->depth = (int)json_integer_value(depth);
    if (reader->set->depth != 0 && reader->set->depth != reader->depth) {
        cause_set(cause, "max_draft is %d where the files before it have %d: replay them apart",
                  reader->depth, reader->set->depth);
        return false;
    }
    reader->set->depth = reader->depth;
    return true;
}

static json_t *load_object(const char *line, char **cause)
{
    json_error_t error;
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, &error);

    if (!object)
        cause_set(cause, "not JSON: %s (column %d)", error.text, error.column);
    else if (!json_is_object(object))
        cause_set(cause, "not a JSON object");
    if (json_is_object(object)) return object;
    json_decref(object);
    return NULL;
}

struct trace_reader *trace_reader_new(struct trace_set *set, const char *header, char **cause)
{
    struct trace_reader *reader = calloc(1, sizeof *reader);
    json_t *object;
    bool ok;

    if (!reader) {
        cause_set(cause, "out of memory");
        return NULL;
    }
    reader->set = set;
    reader->text = -1;
    object = load_object(header, cause);
    ok = object && check_header(reader, object, cause);
    json_decref(object);
    if (ok) return reader;
    free(reader);
    return NULL;
}

void trace_reader_free(struct trace_reader *reader)
{
    free(reader);
}

/* ---- lines */

static bool get_integer(const json_t *object, const char *key, long low, long high, long *out,
                        char **cause)
{
    const json_t *value = json_object_get(object, key);

    if (json_is_integer(value) && json_integer_value(value) >= low &&
        json_integer_value(value) <= high) {
        *out = (long)json_integer_value(value);
        return true;
    }
    cause_set(cause, "%s must be an integer from %ld to %ld", key, low, high);
    return false;
}

/* An array of `depth` numbers in [low, high]; null = NaN where that is allowed. */
static bool get_numbers(const json_t *object, const char *key, int depth, double low, double high,
                        bool nulls, float *out, char **cause)
{
    const json_t *array = json_object_get(object, key);

    for (int k = 0; k < depth; k++) {
        const json_t *value = json_array_get(array, (size_t)k);
        double number = json_number_value(value);

        if (!json_is_array(array) || json_array_size(array) != (size_t)depth ||
            !((nulls && json_is_null(value)) ||
              (json_is_number(value) && number >= low && number <= high))) {
            cause_set(cause, "%s must be an array of %d numbers from %g to %g%s", key, depth, low,
                      high, nulls ? ", null where unknown" : "");
            return false;
        }
        out[k] = json_is_null(value) ? NAN : (float)number;
    }
    return true;
}

/* Labels are 1 while accepted, 0 at a rejection inside the text, null behind that or the text's
 * end. */
static bool get_labels(const json_t *object, int depth, int *accepted, char **cause)
{
    float label[TT_MAX_POSITIONS];
    int k = 0;

    if (!get_numbers(object, "label", depth, 0, 1, true, label, cause)) return false;
    while (k < depth && label[k] == 1) k++;
    *accepted = k;
    if (k < depth && !isnan(label[k]) && label[k++] != 0) goto wrong;
    for (; k < depth; k++)
        if (!isnan(label[k])) goto wrong;
    return true;
wrong:
    cause_set(cause, "label must be 1 for what is accepted, 0 at the first rejection, null behind");
    return false;
}

static bool get_drafts(const json_t *object, int depth, int32_t *draft, char **cause)
{
    const json_t *array = json_object_get(object, "draft");

    for (int k = 0; k < depth; k++) {
        const json_t *value = json_array_get(array, (size_t)k);

        if (!json_is_array(array) || json_array_size(array) != (size_t)depth ||
            !json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) > INT32_MAX) {
            cause_set(cause, "draft must be an array of %d token ids", depth);
            return false;
        }
        draft[k] = (int32_t)json_integer_value(value);
    }
    return true;
}

static bool add_index(struct trace_reader *reader, const json_t *object, char **cause)
{
    float feature[TT_MAX_POSITIONS], soft[TT_MAX_POSITIONS];
    int32_t draft[TT_MAX_POSITIONS];
    struct trace_index index = {
        .drafted = reader->depth, .draft = draft, .feature = feature, .soft = soft};
    const struct trace_text *text = &reader->set->text[reader->set->count - 1];
    long i, token;

    if (!get_integer(object, "index", 0, INT32_MAX, &i, cause)) return false;
    if (i != text->length) {
        cause_set(cause, "index %ld of text %d where %d comes next", i, reader->text, text->length);
        return false;
    }
    if (!get_integer(object, "token", 0, INT32_MAX, &token, cause) ||
        !get_drafts(object, reader->depth, draft, cause) ||
        !get_numbers(object, "feature", reader->depth, -TRACE_FEATURE_LIMIT, TRACE_FEATURE_LIMIT,
                     true, feature, cause) ||
        !get_labels(object, reader->depth, &index.accepted, cause) ||
        !get_numbers(object, "soft", reader->depth, 0, 1, true, soft, cause))
        return false;
    index.token = (int32_t)token;
    if (trace_add_index(reader->set, &index)) return true;
    cause_set(cause, "out of memory");
    return false;
}

static bool begin_text(struct trace_reader *reader, long number, const json_t *object, char **cause)
{
    const char *prompt = json_string_value(json_object_get(object, "prompt"));
    struct trace_text *text;

    if (reader->open) {
        cause_set(cause, "text %d has no end before text %ld begins", reader->text, number);
        return false;
    }
    if (!prompt) {
        cause_set(cause, "prompt must be a string");
        return false;
    }
    text = trace_add_text(reader->set, reader->rule, reader->temperature);
    if (text) text->prompt = strdup(prompt);
    if (!text || !text->prompt) {
        cause_set(cause, "out of memory");
        return false;
    }
    reader->open = true;
    reader->text = (int)number;
    return true;
}

static bool end_text(struct trace_reader *reader, const json_t *object, char **cause)
{
    int length = reader->set->text[reader->set->count - 1].length;
    long end;

    if (!get_integer(object, "end", 0, INT32_MAX, &end, cause)) return false;
    if (end != length) {
        cause_set(cause, "text %d ends at %ld, but %d indices were read", reader->text, end,
                  length);
        return false;
    }
    reader->open = false;
    if (length == 0) trace_drop_text(reader->set); /* the target ended at once */
    return true;
}

bool trace_reader_line(struct trace_reader *reader, const char *line, char **cause)
{
    json_t *object = load_object(line, cause);
    long text;
    bool ok = false;

    if (!object) return false;
    if (!get_integer(object, "text", 0, INT32_MAX, &text, cause)) goto out;
    if (json_object_get(object, "prompt")) {
        ok = begin_text(reader, text, object, cause);
        goto out;
    }
    if (!reader->open || text != reader->text) {
        cause_set(cause, "text %ld has not begun (a line with its prompt)", text);
        goto out;
    }
    ok = json_object_get(object, "end") ? end_text(reader, object, cause)
                                        : add_index(reader, object, cause);
out:
    json_decref(object);
    return ok;
}

bool trace_reader_end(struct trace_reader *reader)
{
    if (!reader->open) return false;
    trace_drop_text(reader->set);
    reader->open = false;
    return true;
}

/* ---- writing */

static bool write_line(FILE *file, json_t *object)
{
    bool ok = object && json_dumpf(object, file, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0 &&
              fputc('\n', file) != EOF;

    json_decref(object);
    return ok;
}

bool trace_write_text(FILE *file, int text, const char *prompt)
{
    return write_line(file, json_pack("{s:i s:s}", "text", text, "prompt", prompt));
}

bool trace_write_index(FILE *file, int text, int i, int depth, const struct trace_index *index)
{
    json_t *draft = json_array(), *feature = json_array(), *label = json_array(),
           *soft = json_array();

    for (int k = 0; k < depth; k++) {
        json_array_append_new(draft, json_integer(index->draft[k]));
        json_array_append_new(feature, json_number(index->feature[k]));
        json_array_append_new(label, k < index->labelled ? json_integer(k < index->accepted)
                                                         : json_null());
        json_array_append_new(soft, json_number(index->soft[k]));
    }
    return write_line(file, json_pack("{s:i s:i s:i s:o s:o s:o s:o}", "text", text, "index", i,
                                      "token", (int)index->token, "draft", draft, "feature",
                                      feature, "label", label, "soft", soft));
}

bool trace_write_end(FILE *file, int text, int length)
{
    return write_line(file, json_pack("{s:i s:i}", "text", text, "end", length));
}
