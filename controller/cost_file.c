/* cost_file.c - the cost model on disk and on the wire: cache file, the text tables of traces,
 * JSON, changed cells.
 *
 * Owns the cache format `trimtab.cost-cache/1`: a JSON object with the key of everything that must
 * match, the cells, and a checksum of both. A file that is not exactly that is not used: measuring
 * again costs seconds, a wrong price costs for as long as it is believed.
 */
#include "config.h"

#include "controller/cost.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/cost_cells.h"
#include "controller/given.h"

#define CACHE_SCHEMA "trimtab.cost-cache/1"
#define SIZE_LIMIT (1 << 20) /* a cell beyond is damage, not a size */
#define MS_LIMIT 1e7         /* likewise a step of hours */
#define FILE_LIMIT (4 << 20) /* bytes */

/* All curves under the names of the file and the store. */
static const struct {
    const char *part;
    int band; /* verify only */
} curve_names[] = {{"verify", 0}, {"verify", 1}, {"verify", 2},
                   {"verify", 3}, {"draft", 0},  {"own", 0}};
#define CURVES ((int)(sizeof curve_names / sizeof *curve_names))

static struct curve *curve_get(struct cost_model *cost, int i)
{
    return i < COST_CONTEXT_BANDS    ? &cost->verify[i]
           : i == COST_CONTEXT_BANDS ? &cost->draft
                                     : &cost->own;
}

static void set_cause(char **cause, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void set_cause(char **cause, const char *format, ...)
{
    if (!cause) return;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(cause, format, arguments) < 0) *cause = NULL;
    va_end(arguments);
}

/* ---- JSON ---- */

static json_t *cells_to_json(const struct curve *curve, int band)
{
    bool verify = band >= 0;
    json_t *array = json_array();
    for (int i = 1; array && i <= curve->size; i++) {
        const struct cell *cell = &curve->cell[i];
        if (cell->n == 0) continue;
        json_t *object = json_pack("{s:i, s:f, s:f, s:I, s:I}", verify ? "tokens" : "requests", i,
                                   "ms", curve_cell_ms(curve, i), "spread_ms", cell->spread_ms, "n",
                                   (json_int_t)cell->n, "dropped", (json_int_t)cell->dropped);
        if (object && verify) json_object_set_new(object, "context_band", json_integer(band));
        json_array_append_new(array, object);
    }
    return array;
}

json_t *cost_to_json(const struct cost_model *cost)
{
    json_t *verify = json_array();
    for (int band = 0; verify && band < COST_CONTEXT_BANDS; band++) {
        json_t *cells = cells_to_json(&cost->verify[band], band);
        if (cells) json_array_extend(verify, cells);
        json_decref(cells);
    }
    return json_pack("{s:o, s:o, s:o}", "verify", verify, "draft", cells_to_json(&cost->draft, -1),
                     "own", cells_to_json(&cost->own, -1));
}

/* ---- cache ---- */

/* FNV-1a, 64 bits, of the canonical dump: finds damage, not malice. */
static bool checksum(const json_t *cells, const char *key, char text[17])
{
    char *dump = json_dumps(cells, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    if (!dump) return false;
    uint64_t hash = 14695981039346656037u;
    for (const char *c = dump; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    for (const char *c = key; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    free(dump);
    snprintf(text, 17, "%016" PRIx64, hash);
    return true;
}

/* One cell of the file. False = damage. A size this model has no room for is sound, but of no use:
 * *size = 0. */
static bool parse_cell(const json_t *object, bool verify, const struct cost_model *cost, int *at,
                       struct cell *cell, int *size)
{
    json_int_t place = 0, n = 0, dropped = 0, band = 0;
    if (json_unpack((json_t *)(uintptr_t)object, "{s:I, s:F, s:F, s:I, s:I, s?I}",
                    verify ? "tokens" : "requests", &place, "ms", &cell->ms, "spread_ms",
                    &cell->spread_ms, "n", &n, "dropped", &dropped, "context_band", &band) < 0)
        return false;
    if (place < 1 || place > SIZE_LIMIT || n < 1 || dropped < 0 || band < 0 ||
        band >= COST_CONTEXT_BANDS)
        return false;
    if (!(cell->ms > 0) || cell->ms > MS_LIMIT || !(cell->spread_ms >= 0) ||
        cell->spread_ms > MS_LIMIT)
        return false;
    cell->n = n;
    cell->dropped = dropped;
    if (verify) *at = (int)band;
    const struct curve *curve = curve_get((struct cost_model *)(uintptr_t)cost, *at);
    *size = place <= curve->size ? (int)place : 0;
    return true;
}

/* Check (apply = false) or take over (apply = true) every cell of the file. */
static bool walk_cells(struct cost_model *cost, const json_t *cells, bool apply)
{
    static const char *const part[] = {"verify", "draft", "own"};
    for (int p = 0; p < 3; p++) {
        const json_t *array = json_object_get(cells, part[p]);
        if (!json_is_array(array)) return false;
        for (size_t i = 0; i < json_array_size(array); i++) {
            struct cell cell = {0};
            int at = p == 1 ? COST_CONTEXT_BANDS : COST_CONTEXT_BANDS + 1, size = 0;
            if (!parse_cell(json_array_get(array, i), p == 0, cost, &at, &cell, &size))
                return false;
            if (apply && size > 0)
                curve_set(curve_get(cost, at), size, cell.ms, cell.spread_ms, cell.n, cell.dropped);
        }
    }
    return true;
}

bool cost_load(struct cost_model *cost, const char *path, const char *key)
{
    bool ok = false;
    char sum[17];
    const char *schema = NULL, *stored_key = NULL, *stored_sum = NULL;
    json_t *cells = NULL, *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    if (!root) return false;
    if (json_unpack(root, "{s:s, s:s, s:s, s:o}", "schema", &schema, "key", &stored_key, "sum",
                    &stored_sum, "cells", &cells) < 0)
        goto out;
    if (strcmp(schema, CACHE_SCHEMA) != 0 || strcmp(stored_key, key) != 0) goto out;
    if (!checksum(cells, key, sum) || strcmp(sum, stored_sum) != 0) goto out;
    if (!walk_cells(cost, cells, false)) goto out;
    ok = walk_cells(cost, cells, true);
    cost_settle(cost);
out:
    json_decref(root);
    return ok;
}

static bool write_all(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, text, length);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        text += written;
        length -= (size_t)written;
    }
    return true;
}

/* Write beside the file, sync, rename: a reader finds the old file or the new one, whole. */
static bool replace_file(const char *path, const char *text, char **cause)
{
    bool ok = false;
    char *temporary = NULL;
    if (asprintf(&temporary, "%s.XXXXXX", path) < 0) {
        set_cause(cause, "out of memory");
        return false;
    }
    int fd = mkstemp(temporary);
    if (fd < 0) {
        set_cause(cause, "cannot create %s: %s", temporary, strerror(errno));
        goto out;
    }
    bool written = write_all(fd, text, strlen(text)) && fsync(fd) == 0;
    int error = errno;
    if (close(fd) < 0 && written) {
        written = false;
        error = errno;
    }
    if (!written) {
        set_cause(cause, "cannot write %s: %s", temporary, strerror(error));
    } else if (rename(temporary, path) < 0) {
        set_cause(cause, "cannot replace %s: %s", path, strerror(errno));
    } else {
        ok = true;
    }
    if (!ok) unlink(temporary);
out:
    free(temporary);
    return ok;
}

bool cost_save(const struct cost_model *cost, const char *path, const char *key, char **cause)
{
    bool ok = false;
    char sum[17] = "", *text = NULL;
    if (cause) *cause = NULL;
    json_t *root = NULL, *cells = cost_to_json(cost);
    if (cells && checksum(cells, key, sum))
        root = json_pack("{s:s, s:s, s:s, s:O}", "schema", CACHE_SCHEMA, "key", key, "sum", sum,
                         "cells", cells);
    if (root) text = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    if (text)
        ok = replace_file(path, text, cause);
    else
        set_cause(cause, "out of memory, or a key that is not UTF-8");
    free(text);
    json_decref(root);
    json_decref(cells);
    return ok;
}

/* ---- trace tables ---- */

struct table_line {
    char part; /* 'V' or 'D' */
    int size;
    double ms;
};

/* 1 = a measurement, 0 = blank or comment, -1 = neither. */
static int parse_line(const char *text, struct table_line *line)
{
    text += strspn(text, " \t\r\n");
    if (*text == '\0' || *text == '#') return 0;
    line->part = *text++;
    if ((line->part != 'V' && line->part != 'D') || strspn(text, " \t") == 0) return -1;
    char *end;
    errno = 0;
    long size = strtol(text, &end, 10);
    if (end == text || errno || size < 1 || size > SIZE_LIMIT || strspn(end, " \t") == 0) return -1;
    text = end;
    line->ms = strtod(text, &end);
    if (end == text || !(line->ms > 0) || line->ms > MS_LIMIT) return -1;
    if (end[strspn(end, " \t\r\n")] != '\0') return -1;
    line->size = (int)size;
    return 1;
}

/* One pass over the file: with cost == NULL it only finds the largest sizes. False with *cause
 * naming the line. */
static bool read_table(FILE *file, const char *path, struct cost_model *cost, int largest[2],
                       char **cause)
{
    char text[256];
    struct table_line line;
    for (int number = 1; fgets(text, sizeof text, file); number++) {
        bool whole = strchr(text, '\n') || feof(file);
        int kind = whole ? parse_line(text, &line) : -1;
        if (kind < 0) {
            set_cause(cause,
                      "%s:%d: expected `V tokens ms` or `D requests ms`, both numbers above 0",
                      path, number);
            return false;
        }
        if (kind == 0) continue;
        int part = line.part == 'D';
        if (line.size > largest[part]) largest[part] = line.size;
        if (cost) curve_set(part ? &cost->draft : &cost->verify[0], line.size, line.ms, 0, 1, 0);
    }
    if (ferror(file)) {
        set_cause(cause, "%s: %s", path, strerror(errno));
        return false;
    }
    return true;
}

static struct cost_model *read_text_table(FILE *file, const char *path, char **cause)
{
    struct cost_model *cost;
    int largest[2] = {0, 0};
    if (!read_table(file, path, NULL, largest, cause)) return NULL;
    if (largest[0] == 0) {
        set_cause(cause, "%s: no line `V tokens ms`: the target's cost is needed", path);
        return NULL;
    }
    cost = cost_new(largest[0], largest[1] > 0 ? largest[1] : 1);
    if (!cost) {
        set_cause(cause, "out of memory");
        return NULL;
    }
    rewind(file);
    if (read_table(file, path, cost, largest, cause)) {
        cost_settle(cost);
        return cost;
    }
    cost_free(cost);
    return NULL;
}

/* ---- JSON tables ---- */

/* The largest tokens and requests of the cells; 0 where there are none. */
static void largest_sizes(const json_t *cells, int largest[2])
{
    static const char *const part[] = {"verify", "draft", "own"};
    for (int p = 0; p < 3; p++) {
        const json_t *array = json_object_get(cells, part[p]);
        for (size_t i = 0; i < json_array_size(array); i++) {
            const json_t *size =
                json_object_get(json_array_get(array, i), p == 0 ? "tokens" : "requests");
            json_int_t value = json_integer_value(size);
            if (value > largest[p > 0] && value <= SIZE_LIMIT) largest[p > 0] = (int)value;
        }
    }
}

/* {"cells":{"verify":[...],"draft":[...],"own":[...]}}, or those three arrays alone. */
static struct cost_model *read_json_table(FILE *file, const char *path, char **cause)
{
    json_error_t error;
    struct cost_model *cost = NULL;
    int largest[2] = {0, 0};
    json_t *root = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        set_cause(cause, "%s:%d: not JSON: %s", path, error.line, error.text);
        return NULL;
    }
    const json_t *cells = json_object_get(root, "cells");
    if (!cells) cells = root;
    largest_sizes(cells, largest);
    if (largest[0] == 0) {
        set_cause(cause, "%s: no cells \"verify\" with \"tokens\": the target's cost is needed",
                  path);
        goto out;
    }
    cost = cost_new(largest[0], largest[1] > 0 ? largest[1] : 1);
    if (!cost) {
        set_cause(cause, "out of memory");
    } else if (!walk_cells(cost, cells, true)) {
        set_cause(cause,
                  "%s: a cell is damaged; each has tokens or requests, ms, spread_ms, n, dropped",
                  path);
        cost_free(cost);
        cost = NULL;
    } else {
        cost_settle(cost);
    }
out:
    json_decref(root);
    return cost;
}

struct cost_model *cost_read_table(const char *path, char **cause)
{
    struct cost_model *cost;
    FILE *file;
    int first = ' ';
    if (cause) *cause = NULL;
    file = given_open(path, "a table of costs (trimtab bench cost --json makes one)", cause);
    if (!file) return NULL;
    while (first == ' ' || first == '\n' || first == '\t' || first == '\r') first = fgetc(file);
    rewind(file);
    cost = first == '{' ? read_json_table(file, path, cause) : read_text_table(file, path, cause);
    fclose(file);
    return cost;
}

/* ---- store ---- */

int cost_take_changed(struct cost_model *cost, struct cost_cell *cells, int capacity)
{
    int count = 0;
    for (int c = 0; c < CURVES; c++) {
        struct curve *curve = curve_get(cost, c);
        bool verify = c < COST_CONTEXT_BANDS;
        for (int i = 1; i <= curve->size && count < capacity; i++) {
            struct cell *cell = &curve->cell[i];
            if (!cell->changed || cell->n == 0) continue;
            cells[count++] = (struct cost_cell){.part = curve_names[c].part,
                                                .tokens = verify ? i : 0,
                                                .requests = verify ? 0 : i,
                                                .context_band = curve_names[c].band,
                                                .ms = curve_cell_ms(curve, i),
                                                .spread_ms = cell->spread_ms,
                                                .n = cell->n};
            cell->changed = false;
        }
    }
    return count;
}
