/* exposition.c - see exposition.h. One pass; what a line is decides its first byte. */
#include "config.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "controller/exposition.h"

#define NUMBER_MAX 63   /* bytes; longer ones carry no further digit that a double could hold */
#define EXACT_DIGITS 15 /* whole numbers of so many digits are exact in a double */

const char *exposition_type_name(enum exposition_type type)
{
    static const char *const names[] = {"untyped", "counter", "gauge", "histogram", "summary"};

    return names[type];
}

const char *exposition_fault_text(enum exposition_fault fault)
{
    static const char *const texts[EXPOSITION_FAULTS] = {
        [EXPOSITION_BAD_NAME] = "not the name of a metric",
        [EXPOSITION_BAD_LABELS] = "the labels are not of the form {name=\"value\",...}",
        [EXPOSITION_BAD_VALUE] = "the value is not a number",
        [EXPOSITION_BAD_REST] = "something other than a timestamp follows the value",
        [EXPOSITION_BAD_TYPE] = "a # TYPE line without a known type",
        [EXPOSITION_BAD_LENGTH] = "the line is too long",
        [EXPOSITION_AFTER_EOF] = "it stands after # EOF",
    };

    return texts[fault];
}

bool exposition_slice_is(const struct exposition_slice *slice, const char *text)
{
    return strlen(text) == slice->length && memcmp(slice->text, text, slice->length) == 0;
}

/* ------------------------------------------------------------------------------------- numbers */

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Most values are whole numbers, written as 12 or 12.0. */
static bool read_whole(const char *text, size_t length, double *out)
{
    uint64_t number = 0;
    size_t at = 0;

    while (at < length && at < EXACT_DIGITS && is_digit(text[at]))
        number = number * 10 + (uint64_t)(text[at++] - '0');
    if (at == 0 || (at < length && !(length - at == 2 && text[at] == '.' && text[at + 1] == '0')))
        return false;
    *out = (double)number;
    return true;
}

static bool read_special(const char *text, size_t length, double *out)
{
    bool minus = length > 0 && text[0] == '-';

    if (length > 0 && (text[0] == '-' || text[0] == '+')) {
        text++;
        length--;
    }
    if ((length == 3 && strncasecmp(text, "inf", 3) == 0) ||
        (length == 8 && strncasecmp(text, "infinity", 8) == 0))
        *out = minus ? -INFINITY : INFINITY;
    else if (length == 3 && strncasecmp(text, "nan", 3) == 0)
        *out = NAN;
    else
        return false;
    return true;
}

bool exposition_number(const char *text, size_t length, double *out)
{
    char copy[NUMBER_MAX + 1], *end;
    size_t at = 0;

    if (read_whole(text, length, out)) return true;
    if (length == 0 || length > NUMBER_MAX) return false;
    while (at < length && (is_digit(text[at]) || (text[at] != '\0' && strchr("+-.eE", text[at]))))
        at++;
    if (at < length) return read_special(text, length, out); /* no hexadecimal, no words */
    memcpy(copy, text, length);
    copy[length] = '\0';
    pthread_once(&c_locale_once, make_c_locale);
    if (!c_locale) return false;
    *out = strtod_l(copy, &end, c_locale);
    return end == copy + length;
}

/* -------------------------------------------------------------------------------------- labels */

static bool is_name_byte(char c, bool first, bool colon)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (colon && c == ':') ||
           (!first && is_digit(c));
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    return at;
}

static const char *skip_name(const char *at, const char *end, bool colon)
{
    const char *start = at;

    while (at < end && is_name_byte(*at, at == start, colon)) at++;
    return at;
}

/* From behind the opening quote to behind the closing one; NULL when it does not close. */
static const char *skip_quoted(const char *at, const char *end)
{
    while (at < end && *at != '"') {
        if (*at == '\\') at++;
        at++;
    }
    return at < end ? at + 1 : NULL;
}

/* One `name="value"` at `at`: its parts, and where it ends. NULL when malformed. */
static const char *read_label(const char *at, const char *end, struct exposition_slice *name,
                              struct exposition_slice *value)
{
    const char *start = skip_blanks(at, end);

    at = skip_name(start, end, false);
    *name = (struct exposition_slice){start, (size_t)(at - start)};
    at = skip_blanks(at, end);
    if (name->length == 0 || at == end || *at != '=') return NULL;
    at = skip_blanks(at + 1, end);
    if (at == end || *at != '"') return NULL;
    start = at + 1;
    at = skip_quoted(start, end);
    if (!at) return NULL;
    *value = (struct exposition_slice){start, (size_t)(at - 1 - start)};
    return skip_blanks(at, end);
}

/* From behind `{` to behind `}`; NULL when malformed. */
static const char *skip_labels(const char *at, const char *end)
{
    struct exposition_slice name, value;

    at = skip_blanks(at, end);
    while (at < end && *at != '}') {
        at = read_label(at, end, &name, &value);
        if (!at || at == end) return NULL;
        if (*at == ',')
            at = skip_blanks(at + 1, end); /* a comma may stand before the brace */
        else if (*at != '}')
            return NULL;
    }
    return at < end ? at + 1 : NULL;
}

static void unescape(const struct exposition_slice *value, char *out, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < value->length && used + 1 < size; i++) {
        char c = value->text[i];

        if (c == '\\' && i + 1 < value->length) {
            c = value->text[++i];
            if (c == 'n') c = '\n';
        }
        out[used++] = c;
    }
    out[used] = '\0';
}

bool exposition_label(const struct exposition_sample *sample, const char *name, char *out,
                      size_t size)
{
    const char *at = sample->labels.text, *end = at + sample->labels.length;
    struct exposition_slice key, value;

    while (at < end) {
        at = read_label(at, end, &key, &value);
        if (!at) return false;
        if (exposition_slice_is(&key, name)) {
            unescape(&value, out, size);
            return true;
        }
        if (at < end && *at == ',') at = skip_blanks(at + 1, end);
    }
    return false;
}

/* --------------------------------------------------------------------------------------- lines */

bool exposition_is_whole(const char *text, size_t length, bool openmetrics)
{
    static const char mark[] = "# EOF";
    size_t last = length;

    if (length == 0) return !openmetrics;
    while (last > 0 && (text[last - 1] == '\n' || text[last - 1] == '\r')) last--;
    if (last >= sizeof mark - 1 && memcmp(text + last - (sizeof mark - 1), mark, 5) == 0 &&
        (last == sizeof mark - 1 || text[last - sizeof mark] == '\n'))
        return true;
    return !openmetrics && text[length - 1] == '\n';
}

void exposition_begin(struct exposition *reader, const char *text, size_t length,
                      int (*choose)(void *state, const struct exposition_slice *family),
                      void *state)
{
    memset(reader, 0, sizeof *reader);
    reader->at = text;
    reader->end = text + length;
    reader->choose = choose;
    reader->state = state;
    reader->family.text = "";
}

static void note(struct exposition *reader, enum exposition_fault fault)
{
    reader->faults[fault]++;
    if (reader->notes_count == EXPOSITION_NOTES) return;
    reader->note[reader->notes_count].line = reader->line;
    reader->note[reader->notes_count++].fault = fault;
}

static int choose(const struct exposition *reader, const struct exposition_slice *family)
{
    return reader->choose ? reader->choose(reader->state, family) : 0;
}

static bool has_suffix(const struct exposition_slice *name, const char *suffix)
{
    size_t length = strlen(suffix);

    return name->length > length && memcmp(name->text + name->length - length, suffix, length) == 0;
}

static bool cut_suffix(struct exposition_slice *name, const char *suffix)
{
    if (!has_suffix(name, suffix)) return false;
    name->length -= strlen(suffix);
    return true;
}

static void read_type(struct exposition *reader, const char *at, const char *end)
{
    static const struct {
        const char *word;
        enum exposition_type type;
    } types[] = {{"counter", EXPOSITION_COUNTER},     {"gauge", EXPOSITION_GAUGE},
                 {"histogram", EXPOSITION_HISTOGRAM}, {"gaugehistogram", EXPOSITION_UNTYPED},
                 {"summary", EXPOSITION_SUMMARY},     {"untyped", EXPOSITION_UNTYPED},
                 {"unknown", EXPOSITION_UNTYPED},     {"info", EXPOSITION_UNTYPED},
                 {"stateset", EXPOSITION_UNTYPED}};
    struct exposition_slice family, word;

    at = skip_blanks(at, end);
    family = (struct exposition_slice){at, 0};
    at = skip_name(at, end, true);
    family.length = (size_t)(at - family.text);
    at = skip_blanks(at, end);
    word = (struct exposition_slice){at, (size_t)(end - at)};
    for (size_t i = 0; i < sizeof types / sizeof types[0] && family.length > 0; i++) {
        if (!exposition_slice_is(&word, types[i].word)) continue;
        reader->family = family;
        reader->type = types[i].type;
        reader->choice = choose(reader, &family);
        return;
    }
    reader->family.length = 0;
    note(reader, EXPOSITION_BAD_TYPE);
}

static void read_comment(struct exposition *reader, const char *at, const char *end)
{
    at = skip_blanks(at + 1, end);
    if (end - at > 5 && memcmp(at, "TYPE ", 5) == 0)
        read_type(reader, at + 5, end);
    else if (end - at == 3 && memcmp(at, "EOF", 3) == 0)
        reader->ended = true;
}

/* Does a name belong to the family of the last # TYPE, and as what? */
static bool fits_family(const struct exposition *reader, const struct exposition_slice *name,
                        enum exposition_role *role)
{
    static const struct {
        const char *suffix;
        enum exposition_role role;
        unsigned types; /* bits */
    } suffixes[] = {
        {"", EXPOSITION_VALUE, 1u << EXPOSITION_COUNTER | 1u << EXPOSITION_GAUGE | 1u},
        {"", EXPOSITION_QUANTILE, 1u << EXPOSITION_SUMMARY},
        {"_total", EXPOSITION_VALUE, 1u << EXPOSITION_COUNTER},
        {"_bucket", EXPOSITION_BUCKET, 1u << EXPOSITION_HISTOGRAM},
        {"_count", EXPOSITION_COUNT, 1u << EXPOSITION_HISTOGRAM | 1u << EXPOSITION_SUMMARY},
        {"_sum", EXPOSITION_SUM, 1u << EXPOSITION_HISTOGRAM | 1u << EXPOSITION_SUMMARY},
        {"_created", EXPOSITION_CREATED,
         1u << EXPOSITION_COUNTER | 1u << EXPOSITION_HISTOGRAM | 1u << EXPOSITION_SUMMARY},
    };
    const struct exposition_slice *family = &reader->family;
    struct exposition_slice rest;

    if (family->length == 0 || name->length < family->length ||
        memcmp(name->text, family->text, family->length) != 0)
        return false;
    rest = (struct exposition_slice){name->text + family->length, name->length - family->length};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        if (!(suffixes[i].types >> reader->type & 1u) ||
            !exposition_slice_is(&rest, suffixes[i].suffix))
            continue;
        *role = suffixes[i].role;
        return true;
    }
    return false;
}

/* Family, type, role and choice of a sample, from its name and the last # TYPE. */
static void place_sample(const struct exposition *reader, struct exposition_sample *out)
{
    if (fits_family(reader, &out->name, &out->role)) {
        out->family = reader->family;
        out->type = reader->type;
        out->choice = reader->choice;
    } else {
        out->family = out->name;
        out->type = EXPOSITION_UNTYPED;
        out->role = EXPOSITION_VALUE;
        out->choice = choose(reader, &out->name);
    }
    /* the older format has no creation times; client libraries write them as gauges of their own */
    if (out->role == EXPOSITION_VALUE && out->type != EXPOSITION_COUNTER &&
        cut_suffix(&out->family, "_created"))
        out->role = EXPOSITION_CREATED;
}

/* What may follow a value: a timestamp, an exemplar. */
static bool is_rest(const char *at, const char *end)
{
    const char *start = at;
    double ignored;

    if (at == end) return true;
    if (*at != '#') {
        while (at < end && *at != ' ' && *at != '\t') at++;
        if (!exposition_number(start, (size_t)(at - start), &ignored)) return false;
        at = skip_blanks(at, end);
    }
    return at == end || *at == '#';
}

/* Returns false after noting why. */
static bool read_sample(struct exposition *reader, const char *at, const char *end,
                        struct exposition_sample *out)
{
    const char *start = at;

    at = skip_name(at, end, true);
    out->name = (struct exposition_slice){start, (size_t)(at - start)};
    out->labels = (struct exposition_slice){at, 0};
    if (out->name.length == 0) {
        note(reader, EXPOSITION_BAD_NAME);
        return false;
    }
    at = skip_blanks(at, end);
    if (at < end && *at == '{') {
        start = at + 1;
        at = skip_labels(start, end);
        if (!at) {
            note(reader, EXPOSITION_BAD_LABELS);
            return false;
        }
        out->labels = (struct exposition_slice){start, (size_t)(at - 1 - start)};
        at = skip_blanks(at, end);
    }
    start = at;
    while (at < end && *at != ' ' && *at != '\t') at++;
    if (!exposition_number(start, (size_t)(at - start), &out->value)) {
        note(reader, out->labels.length == 0 && start < end && !is_digit(*start) &&
                             start == out->name.text + out->name.length
                         ? EXPOSITION_BAD_NAME
                         : EXPOSITION_BAD_VALUE);
        return false;
    }
    if (!is_rest(skip_blanks(at, end), end)) {
        note(reader, EXPOSITION_BAD_REST);
        return false;
    }
    out->line = reader->line;
    place_sample(reader, out);
    return true;
}

/* A line of the present family when that is unwanted: told by its beginning, not read further. */
static bool is_unwanted(const struct exposition *reader, const char *at, const char *end)
{
    struct exposition_slice name;
    enum exposition_role role;

    if (reader->family.length == 0 || reader->choice != EXPOSITION_UNWANTED ||
        (size_t)(end - at) <= reader->family.length ||
        memcmp(at, reader->family.text, reader->family.length) != 0)
        return false;
    name = (struct exposition_slice){at, (size_t)(skip_name(at, end, true) - at)};
    return fits_family(reader, &name, &role);
}

bool exposition_next(struct exposition *reader, struct exposition_sample *out)
{
    while (reader->at < reader->end) {
        const char *line = reader->at;
        const char *end = memchr(line, '\n', (size_t)(reader->end - line));

        if (!end) end = reader->end;
        reader->at = end < reader->end ? end + 1 : end;
        reader->line++;
        if (end > line && end[-1] == '\r') end--;
        line = skip_blanks(line, end);
        if (line == end) continue;
        if (reader->ended) {
            note(reader, EXPOSITION_AFTER_EOF);
        } else if (end - line > EXPOSITION_LINE) {
            note(reader, EXPOSITION_BAD_LENGTH);
        } else if (*line == '#') {
            read_comment(reader, line, end);
        } else if (is_unwanted(reader, line, end)) {
            reader->unwanted++;
        } else if (read_sample(reader, line, end, out)) {
            if (out->choice != EXPOSITION_UNWANTED) {
                reader->samples++;
                return true;
            }
            reader->unwanted++;
        }
    }
    return false;
}
