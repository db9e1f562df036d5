/* trace.c - see trace.h. Owns the sets and the text form.
 */
#include "config.h"

#include "controller/trace.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "controller/cause.h"
#include "controller/lines.h"

/* ---- sets */

struct trace_set *trace_set_new(void)
{
    return calloc(1, sizeof(struct trace_set));
}

static void free_text(struct trace_text *text)
{
    free(text->prompt);
    free(text->accepted);
    free(text->drafted);
    free(text->token);
    free(text->draft);
    free(text->feature);
    free(text->soft);
}

void trace_set_free(struct trace_set *set)
{
    if (!set) return;
    for (int t = 0; t < set->count; t++) free_text(&set->text[t]);
    free(set->text);
    free(set);
}

void trace_drop_text(struct trace_set *set)
{
    struct trace_text *text = &set->text[--set->count];

    set->tokens -= text->length;
    free_text(text);
}

struct trace_text *trace_add_text(struct trace_set *set, enum tt_rule rule, double temperature)
{
    if (set->count == set->capacity) {
        int capacity = set->capacity ? 2 * set->capacity : 16;
        struct trace_text *larger = realloc(set->text, (size_t)capacity * sizeof *larger);

        if (!larger) return NULL;
        set->text = larger;
        set->capacity = capacity;
    }
    set->text[set->count] = (struct trace_text){.rule = rule, .temperature = (float)temperature};
    return &set->text[set->count++];
}

static bool grow(void *array, size_t count, size_t size)
{
    void **at = array, *larger = realloc(*at, count * size);

    if (larger) *at = larger;
    return larger != NULL;
}

static bool make_room(struct trace_text *text, size_t depth)
{
    size_t capacity = text->capacity ? 2 * (size_t)text->capacity : 128;

    if (text->length < text->capacity) return true;
    if (!grow(&text->accepted, capacity, sizeof(int)) ||
        !grow(&text->drafted, capacity, sizeof(int)) ||
        !grow(&text->token, capacity, sizeof(int32_t)) ||
        !grow(&text->draft, capacity * depth, sizeof(int32_t)) ||
        !grow(&text->feature, capacity * depth, sizeof(float)) ||
        !grow(&text->soft, capacity * depth, sizeof(float)))
        return false;
    text->capacity = (int)capacity;
    return true;
}

bool trace_add_index(struct trace_set *set, const struct trace_index *index)
{
    struct trace_text *text = &set->text[set->count - 1];
    size_t depth = (size_t)set->depth, at = (size_t)text->length;

    if (!make_room(text, depth)) return false;
    text->accepted[at] = index->accepted;
    text->drafted[at] = index->drafted;
    text->token[at] = index->token;
    for (size_t k = 0; k < depth; k++) {
        bool known = (int)k < index->drafted;

        text->draft[at * depth + k] = known && index->draft ? index->draft[k] : -1;
        text->feature[at * depth + k] = known ? index->feature[k] : NAN;
        text->soft[at * depth + k] = known && index->soft ? index->soft[k] : NAN;
    }
    text->length++;
    set->tokens++;
    return true;
}

struct trace_index trace_at(const struct trace_set *set, const struct trace_text *text, int i)
{
    size_t first = (size_t)i * (size_t)set->depth;
    int labelled = text->accepted[i] + 1;

    if (labelled > text->drafted[i]) labelled = text->drafted[i];
    if (labelled > text->length - i) labelled = text->length - i;
    return (struct trace_index){.accepted = text->accepted[i],
                                .labelled = labelled,
                                .drafted = text->drafted[i],
                                .token = text->token[i],
                                .draft = text->draft + first,
                                .feature = text->feature + first,
                                .soft = text->soft + first};
}

/* ---- the text form */

static double temperature_of(const char *path)
{
    const char *name = strrchr(path, '/'), *mark;
    char *end;
    double value;

    name = name ? name + 1 : path;
    mark = strstr(name, "-t");
    while (mark && strstr(mark + 1, "-t")) mark = strstr(mark + 1, "-t");
    if (!mark) return 0;
    value = strtod(mark + 2, &end);
    if (end == mark + 2 || strncmp(end, ".txt", 4) != 0 || !(value >= 0 && value <= 100)) return 0;
    return value;
}

/* A whole number in [0, most]; *line moves behind it. */
static bool parse_count(const char **line, long most, int *out)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(*line, &end, 10);
    if (end == *line || errno || value < 0 || value > most) return false;
    *line = end;
    *out = (int)value;
    return true;
}

/* A feature; `nan` is that of a flagged row. */
static bool parse_feature(const char **line, float *out)
{
    char *end;

    *out = strtof(*line, &end);
    if (end == *line || fabsf(*out) > TRACE_FEATURE_LIMIT) return false;
    *line = end;
    return true;
}

/* `text i m f0 … f5` into *index and its feature array. False when it is not that. */
static bool parse_text_line(const char *line, int *text, int *i, float *feature,
                            struct trace_index *index)
{
    if (!parse_count(&line, INT_MAX, text) || !parse_count(&line, INT_MAX, i) ||
        !parse_count(&line, TRACE_TEXT_DEPTH, &index->accepted))
        return false;
    for (int k = 0; k < TRACE_TEXT_DEPTH; k++)
        if (!parse_feature(&line, &feature[k])) return false;
    return line[strspn(line, " \t")] == '\0';
}

static bool add_text_line(struct trace_set *set, const char *line, double temperature, int *last,
                          char **why)
{
    float feature[TRACE_TEXT_DEPTH];
    struct trace_index index = {.drafted = TRACE_TEXT_DEPTH, .token = -1, .feature = feature};
    int text, i, next;

    if (!parse_text_line(line, &text, &i, feature, &index)) {
        cause_set(why,
                  "expected `text i m f0 f1 f2 f3 f4 f5` with m from 0 to %d, features from %d to "
                  "%d or nan",
                  TRACE_TEXT_DEPTH, -TRACE_FEATURE_LIMIT, TRACE_FEATURE_LIMIT);
        return false;
    }
    next = text == *last ? set->text[set->count - 1].length : 0;
    if (i != next) {
        cause_set(why, "index %d of text %d where %d comes next", i, text, next);
        return false;
    }
    if (text != *last &&
        !trace_add_text(set, temperature > 0 ? TT_POINT_MASS : TT_GREEDY, temperature)) {
        cause_set(why, "out of memory");
        return false;
    }
    *last = text;
    if (trace_add_index(set, &index)) return true;
    cause_set(why, "out of memory");
    return false;
}

static bool take_depth(struct trace_set *set, int depth, char **why)
{
    if (set->depth == 0) set->depth = depth;
    if (set->depth == depth) return true;
    cause_set(why, "%d drafts an index where the files before it have %d: replay them apart", depth,
              set->depth);
    return false;
}

/* The first line is in `lines`. */
static bool read_text(struct trace_set *set, struct lines *lines, double temperature,
                      char **warning, char **cause)
{
    int last = -1, status = 1;
    char *why = NULL;

    if (temperature < 0) temperature = temperature_of(lines->path);
    if (!take_depth(set, TRACE_TEXT_DEPTH, &why)) {
        lines->whole = true; /* whatever its end, nothing of the file can be used */
        return lines_forgive(lines, warning, &why, cause);
    }
    for (; status > 0; status = lines_next(lines, cause)) {
        if (lines->text[0] == '\0') continue;
        if (!add_text_line(set, lines->text, temperature, &last, &why))
            return lines_forgive(lines, warning, &why, cause);
    }
    return status == 0;
}

/* ---- JSONL */

static bool read_json_lines(struct trace_reader *reader, struct lines *lines, char **warning,
                            char **cause)
{
    char *why = NULL;
    int status;

    while ((status = lines_next(lines, cause)) > 0) {
        if (lines->text[0] == '\0') continue;
        if (!trace_reader_line(reader, lines->text, &why))
            return lines_forgive(lines, warning, &why, cause);
    }
    return status == 0;
}

static bool read_json(struct trace_set *set, struct lines *lines, char **warning, char **cause)
{
    char *why = NULL;
    struct trace_reader *reader = trace_reader_new(set, lines->text, &why);
    bool ok;

    if (!reader) {
        lines->whole = true; /* nothing can be read without the header */
        return lines_forgive(lines, warning, &why, cause);
    }
    ok = read_json_lines(reader, lines, warning, cause);
    if (ok && trace_reader_end(reader) && !*warning)
        cause_set(warning, "%s:%d: the last text has no end; left out", lines->path, lines->number);
    trace_reader_free(reader);
    return ok;
}

bool trace_read(struct trace_set *set, const char *path, double temperature, char **warning,
                char **cause)
{
    struct lines lines;
    int before = set->count, status;
    bool ok = false;

    *warning = NULL;
    if (!lines_open(&lines, path, cause)) return false;
    do status = lines_next(&lines, cause);
    while (status > 0 && lines.text[0] == '\0');
    if (status > 0)
        ok = lines.text[0] == '{' ? read_json(set, &lines, warning, cause)
                                  : read_text(set, &lines, temperature, warning, cause);
    if (ok && lines.cut && !*warning)
        cause_set(warning, "%s:%d: the compressed file is cut short", path, lines.number);
    if (status == 0 || (ok && set->count == before)) {
        cause_set(cause, "%s: no text in it", path);
        ok = false;
    }
    lines_close(&lines);
    return ok;
}
