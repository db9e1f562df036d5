/* print.c - query results as a table, CSV (RFC 4180 with plain newlines), JSON or JSON Lines.
 *
 * A table needs its widths before its first line: the first rows are kept, later ones use those
 * widths. What comes from outside may hold anything: control characters and broken UTF-8 are made
 * visible, never passed on to a terminal.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "storage/reader_internal.h"
#include "storage/sql.h"

#define TABLE_ROWS_KEPT 5000
#define TABLE_GAP "  "

struct cell {
    char *text;
    int width;   /* columns on a terminal */
    bool number; /* right-aligned */
};

struct printer {
    FILE *out;
    enum reader_format format;
    int columns;
    int64_t rows;
    bool failed; /* out of memory */
    int error;   /* errno of the first write that failed; 0 = none */
    bool begun;
    char **names;      /* (columns), unique */
    int *name_width;   /* (columns) */
    int *width;        /* (columns) */
    bool *numeric;     /* (columns): no text seen so far */
    struct cell *kept; /* (rows x columns) until the widths are known */
    size_t kept_count, kept_capacity;
    bool flowing; /* widths are known: rows go straight out */
};

/* ---- text */

/* The character at text: its bytes, or 1 with *point = -1 when it is broken UTF-8. */
static size_t decode_utf8(const char *text, size_t length, int32_t *point)
{
    const unsigned char *s = (const unsigned char *)text;
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t bytes = s[0] < 0x80                   ? 1
                   : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                   : s[0] >= 0xe0                ? 3
                   : s[0] >= 0xc2                ? 2
                                                 : 0;
    *point = -1;
    if (bytes == 0 || s[0] >= 0xf5 || bytes > length) return 1;
    int32_t value = bytes == 1 ? s[0] : s[0] & (0xff >> (bytes + 1));
    for (size_t i = 1; i < bytes; i++) {
        if ((s[i] & 0xc0) != 0x80) return 1;
        value = value << 6 | (s[i] & 0x3f);
    }
    if (value < least[bytes] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return 1;
    *point = value;
    return bytes;
}

static bool is_control(int32_t point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0);
}

/* A copy that may go to a terminal, and its width there. */
static char *visible_text(const char *text, size_t length, int *width)
{
    char *copy = malloc(4 * length + 1), *to = copy;
    *width = 0;
    if (!copy) return NULL;
    for (size_t i = 0; i < length;) {
        int32_t point;
        size_t bytes = decode_utf8(text + i, length - i, &point);
        if (point < 0 || is_control(point)) {
            int shown =
                point == '\n' ? sprintf(to, "\\n") : sprintf(to, "\\x%02x", (unsigned char)text[i]);
            to += shown;
            *width += shown;
        } else {
            int columns = wcwidth((wchar_t)point);
            memcpy(to, text + i, bytes);
            to += bytes;
            *width += columns < 0 ? 1 : columns; /* -1 outside a UTF-8 locale */
        }
        i += bytes;
    }
    *to = '\0';
    return copy;
}

/* The shortest decimal that reads back as the same double. */
static const char *exact_real(double value, char out[32])
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, value);
        if (strtod(out, NULL) == value) break;
    }
    return out;
}

static void put_json_string(FILE *out, const char *text, size_t length)
{
    putc('"', out);
    for (size_t i = 0; i < length;) {
        int32_t point;
        size_t bytes = decode_utf8(text + i, length - i, &point);
        if (point < 0)
            fputs("\\ufffd", out);
        else if (point == '"' || point == '\\')
            fprintf(out, "\\%c", (char)point);
        else if (point == '\n')
            fputs("\\n", out);
        else if (is_control(point))
            fprintf(out, "\\u%04x", (unsigned)point);
        else
            fwrite(text + i, 1, bytes, out);
        i += bytes;
    }
    putc('"', out);
}

static void put_hex(FILE *out, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) fprintf(out, "%02x", (unsigned char)bytes[i]);
}

static void put_json_value(FILE *out, const struct reader_value *value)
{
    char number[32];
    switch (value->type) {
    case READER_NULL:
        fputs("null", out);
        break;
    case READER_INTEGER:
        fprintf(out, "%lld", (long long)value->integer);
        break;
    case READER_REAL:
        fputs(isfinite(value->real) ? exact_real(value->real, number) : "null", out);
        break;
    case READER_TEXT:
        put_json_string(out, value->text, value->length);
        break;
    case READER_BLOB:
        putc('"', out);
        put_hex(out, value->text, value->length);
        putc('"', out);
        break;
    }
}

static void put_csv_text(FILE *out, const char *text, size_t length)
{
    bool quote = length == 0; /* "" is the empty string, nothing is NULL */
    for (size_t i = 0; i < length && !quote; i++) quote = strchr(",\"\r\n", text[i]) != NULL;
    if (!quote) {
        fwrite(text, 1, length, out);
        return;
    }
    putc('"', out);
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '"') putc('"', out);
        putc(text[i], out);
    }
    putc('"', out);
}

static void put_csv_value(FILE *out, const struct reader_value *value)
{
    char number[32];
    switch (value->type) {
    case READER_NULL:
        break;
    case READER_INTEGER:
        fprintf(out, "%lld", (long long)value->integer);
        break;
    case READER_REAL:
        fputs(exact_real(value->real, number), out);
        break;
    case READER_TEXT:
        put_csv_text(out, value->text, value->length);
        break;
    case READER_BLOB:
        put_hex(out, value->text, value->length);
        break;
    }
}

/* ---- the table */

static bool make_cell(const struct reader_value *value, struct cell *cell)
{
    char number[32] = "--";
    *cell = (struct cell){.number = value->type == READER_INTEGER || value->type == READER_REAL};
    switch (value->type) {
    case READER_TEXT:
        cell->text = visible_text(value->text, value->length, &cell->width);
        return cell->text;
    case READER_BLOB:
        snprintf(number, sizeof number, "(%zu bytes)", value->length);
        break;
    case READER_INTEGER:
        snprintf(number, sizeof number, "%lld", (long long)value->integer);
        break;
    case READER_REAL:
        snprintf(number, sizeof number, "%.6g", value->real);
        break;
    case READER_NULL:
        cell->number = true;
        break;
    }
    cell->text = strdup(number);
    cell->width = (int)strlen(number);
    return cell->text;
}

static void put_cell(const struct printer *printer, int column, const char *text, int width,
                     bool right)
{
    int padding = printer->width[column] > width ? printer->width[column] - width : 0;
    bool last = column == printer->columns - 1;
    if (column > 0) fputs(TABLE_GAP, printer->out);
    if (right)
        fprintf(printer->out, "%*s%s", padding, "", text);
    else
        fprintf(printer->out, "%s%*s", text, last ? 0 : padding,
                ""); /* no blanks at the end of a line */
}

static void put_table_head(struct printer *printer)
{
    for (int i = 0; i < printer->columns; i++) {
        put_cell(printer, i, printer->names[i], printer->name_width[i], printer->numeric[i]);
    }
    putc('\n', printer->out);
    for (int i = 0; i < printer->columns; i++) {
        if (i > 0) fputs(TABLE_GAP, printer->out);
        for (int k = 0; k < printer->width[i]; k++) putc('-', printer->out);
    }
    putc('\n', printer->out);
}

static void put_table_row(const struct printer *printer, const struct cell *cells)
{
    for (int i = 0; i < printer->columns; i++) {
        const struct cell *cell = &cells[i];
        put_cell(printer, i, cell->text, cell->width, cell->number && printer->numeric[i]);
    }
    putc('\n', printer->out);
}

static void free_kept(struct printer *printer)
{
    for (size_t i = 0; i < printer->kept_count; i++) free(printer->kept[i].text);
    printer->kept_count = 0;
}

/* The widths are known now: print what was kept. */
static void flush_table(struct printer *printer)
{
    put_table_head(printer);
    for (size_t i = 0; i + (size_t)printer->columns <= printer->kept_count;
         i += (size_t)printer->columns)
        put_table_row(printer, printer->kept + i);
    free_kept(printer);
    printer->flowing = true;
}

static bool keep_row(struct printer *printer, const struct reader_value *values)
{
    size_t needed = printer->kept_count + (size_t)printer->columns;
    if (needed > printer->kept_capacity) {
        size_t capacity = needed * 2;
        struct cell *larger = realloc(printer->kept, capacity * sizeof *larger);
        if (!larger) return false;
        printer->kept = larger;
        printer->kept_capacity = capacity;
    }
    for (int i = 0; i < printer->columns; i++) {
        struct cell *cell = &printer->kept[printer->kept_count];
        if (!make_cell(&values[i], cell)) return false;
        printer->kept_count++;
        if (cell->width > printer->width[i]) printer->width[i] = cell->width;
        if (!cell->number) printer->numeric[i] = false;
    }
    return true;
}

static bool add_table_row(struct printer *printer, const struct reader_value *values)
{
    if (!keep_row(printer, values)) return false;
    if (printer->flowing) {
        put_table_row(printer, printer->kept);
        free_kept(printer);
    } else if (printer->kept_count >= (size_t)TABLE_ROWS_KEPT * (size_t)printer->columns) {
        flush_table(printer);
    }
    return true;
}

/* ---- rows as they come */

/* Two columns of one name would be one key in JSON: the later ones are numbered. */
static char *unique_name(const struct printer *printer, int column, const char *name)
{
    char *unique = strdup(name);
    for (int number = 2; unique; number++) {
        bool taken = false;
        for (int i = 0; i < column && !taken; i++) taken = strcmp(printer->names[i], unique) == 0;
        if (!taken) break;
        free(unique);
        if (asprintf(&unique, "%s_%d", name, number) < 0) unique = NULL;
    }
    return unique;
}

static bool begin_output(struct printer *printer, int columns, const char *const *names)
{
    size_t count = (size_t)columns;
    printer->names = calloc(count, sizeof *printer->names);
    printer->name_width = calloc(count, sizeof *printer->name_width);
    printer->width = calloc(count, sizeof *printer->width);
    printer->numeric = calloc(count, sizeof *printer->numeric);
    if (!printer->names || !printer->name_width || !printer->width || !printer->numeric)
        return false;
    printer->columns = columns;
    for (int i = 0; i < columns; i++) {
        int width;
        char *shown = visible_text(names[i], strlen(names[i]), &width);
        printer->names[i] = shown ? unique_name(printer, i, shown) : NULL;
        if (printer->names[i]) width += (int)(strlen(printer->names[i]) - strlen(shown));
        free(shown);
        if (!printer->names[i]) return false;
        printer->name_width[i] = printer->width[i] = width;
        printer->numeric[i] = true;
    }
    printer->begun = true;
    if (printer->format == READER_JSON) putc('[', printer->out);
    for (int i = 0; printer->format == READER_CSV && i < columns; i++) {
        if (i > 0) putc(',', printer->out);
        put_csv_text(printer->out, printer->names[i], strlen(printer->names[i]));
    }
    if (printer->format == READER_CSV) putc('\n', printer->out);
    return true;
}

static void put_json_row(struct printer *printer, const struct reader_value *values)
{
    if (printer->format == READER_JSON) fputs(printer->rows == 0 ? "\n" : ",\n", printer->out);
    putc('{', printer->out);
    for (int i = 0; i < printer->columns; i++) {
        if (i > 0) putc(',', printer->out);
        put_json_string(printer->out, printer->names[i], strlen(printer->names[i]));
        putc(':', printer->out);
        put_json_value(printer->out, &values[i]);
    }
    fputs(printer->format == READER_JSON ? "}" : "}\n", printer->out);
}

static void put_csv_row(struct printer *printer, const struct reader_value *values)
{
    for (int i = 0; i < printer->columns; i++) {
        if (i > 0) putc(',', printer->out);
        put_csv_value(printer->out, &values[i]);
    }
    putc('\n', printer->out);
}

static void note_error(struct printer *printer)
{
    if (printer->error == 0 && ferror(printer->out)) printer->error = errno ? errno : EIO;
}

static bool print_row(void *state, int columns, const char *const *names,
                      const struct reader_value *values)
{
    struct printer *printer = state;
    bool good = true;
    if (!values) {
        good = begin_output(printer, columns, names);
    } else {
        if (printer->format == READER_TABLE)
            good = add_table_row(printer, values);
        else if (printer->format == READER_CSV)
            put_csv_row(printer, values);
        else
            put_json_row(printer, values);
        printer->rows++;
    }
    printer->failed = !good;
    note_error(printer);
    return good && printer->error == 0;
}

static void end_output(struct printer *printer)
{
    if (!printer->begun) return;
    if (printer->format == READER_TABLE && !printer->flowing) flush_table(printer);
    if (printer->format == READER_JSON) fputs(printer->rows ? "\n]\n" : "]\n", printer->out);
}

int reader_print_bound(struct reader *reader, const char *sql, const struct reader_value *bind,
                       int bind_count, const struct reader_limits *limits,
                       enum reader_format format, FILE *out, enum reader_end *end, char **cause)
{
    struct printer printer = {.out = out, .format = format};
    *end = reader_query(reader, sql, bind, bind_count, limits, print_row, &printer, cause);
    end_output(
        &printer); /* also after an error in the middle: what was printed stays well-formed */
    note_error(&printer);
    if (fflush(out) != 0) note_error(&printer);
    if (printer.failed) {
        storage_fail(cause, "out of memory");
    } else if (*end != READER_ERROR && printer.error != 0) {
        storage_fail(cause, "cannot write the result: %s", strerror(printer.error));
        *end = READER_ERROR;
    }
    free_kept(&printer);
    free(printer.kept);
    for (int i = 0; i < printer.columns; i++) free(printer.names[i]);
    free(printer.names);
    free(printer.name_width);
    free(printer.width);
    free(printer.numeric);
    return *end == READER_ERROR || *end == READER_STOPPED ? -1 : 0;
}

enum reader_end reader_print(struct reader *reader, const char *sql,
                             const struct reader_limits *limits, enum reader_format format,
                             FILE *out, char **cause)
{
    enum reader_end end;
    int result = reader_print_bound(reader, sql, NULL, 0, limits, format, out, &end, cause);
    return result == 0 ? end : READER_ERROR;
}
