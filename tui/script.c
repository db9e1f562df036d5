/* script.c - see script.h. */
#include "config.h"

#include "tui/script.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/cause.h"
#include "controller/number.h"

#define LINE_MAX_BYTES 8192
#define START_MS 1790000000000 /* 2026-09-21; the clock before the first `time` */

struct script {
    const char *path;
    int line;
    struct ui_options options;
    struct ui *ui; /* NULL until the first command that needs it */
    struct screen *screen;
    int rows, cols;
    int64_t start_ms, now_ms;
    json_t *nodes, *snapshot; /* the last ones, for patch */
};

typedef int command_fn(struct script *script, char *rest, char **cause);

static int fail(const struct script *script, char **cause, const char *text, const char *what)
{
    char *old = *cause;

    *cause = NULL;
    cause_set(cause, "%s:%d: %s%s%s%s", script->path, script->line, text, what,
              old != NULL ? ": " : "", old != NULL ? old : "");
    free(old);
    return -1;
}

/* The ui and its screen, made when first needed; they know the time. */
static int need_ui(struct script *script, char **cause)
{
    if (script->ui == NULL) {
        script->ui = ui_new(&script->options);
        script->screen = screen_new(script->rows, script->cols, script->options.ascii);
        if (script->ui == NULL || script->screen == NULL)
            return fail(script, cause, "out of memory", "");
    }
    ui_set_time(script->ui, script->now_ms - script->start_ms, script->now_ms);
    return 0;
}

static int do_size(struct script *script, char *rest, char **cause)
{
    char *by = strchr(rest, 'x');
    int64_t rows, cols;
    bool read;

    if (by != NULL) *by = '\0';
    read = by != NULL && number_read_whole(rest, 1, SCREEN_MAX_COLS, &cols) &&
           number_read_whole(by + 1, 1, SCREEN_MAX_ROWS, &rows);
    if (by != NULL) *by = 'x';
    if (!read) return fail(script, cause, "a size reads like 80x24, not ", rest);
    script->rows = (int)rows;
    script->cols = (int)cols;
    if (script->screen != NULL && !screen_resize(script->screen, script->rows, script->cols))
        return fail(script, cause, "out of memory", "");
    return 0;
}

static int do_option(struct script *script, char *rest, char **cause)
{
    if (script->ui != NULL)
        return fail(script, cause, "options come before the first load, key or dump", "");
    if (strcmp(rest, "ascii") == 0)
        script->options.ascii = true;
    else if (strcmp(rest, "utc") == 0)
        script->options.utc = true;
    else if (strcmp(rest, "read-only") == 0)
        script->options.read_only = true;
    else if (strncmp(rest, "interval ", 9) == 0 &&
             number_read_whole(rest + 9, 1, INT64_MAX, &script->options.interval_ms))
        return 0;
    else
        return fail(script, cause, "no such option: ", rest);
    return 0;
}

static int parse_ms(struct script *script, const char *text, int64_t *out, char **cause)
{
    if (number_read_whole(text, 0, INT64_MAX, out)) return 0;
    return fail(script, cause, "milliseconds are a whole number, not ", text);
}

static int do_time(struct script *script, char *rest, char **cause)
{
    int64_t ms;

    if (parse_ms(script, rest, &ms, cause) != 0) return -1;
    if (script->ui == NULL) script->start_ms = ms;
    if (ms < script->now_ms && script->ui != NULL)
        return fail(script, cause, "time does not go back, to ", rest);
    script->now_ms = ms;
    return script->ui != NULL ? need_ui(script, cause) : 0;
}

static int do_wait(struct script *script, char *rest, char **cause)
{
    int64_t ms;

    if (parse_ms(script, rest, &ms, cause) != 0) return -1;
    script->now_ms += ms;
    return need_ui(script, cause);
}

/* Hand one document to the model by its schema. */
static int take(struct script *script, json_t *document, char **cause)
{
    const char *schema = json_string_value(json_object_get(document, "schema"));
    struct model *model = ui_model(script->ui);
    int result = -1;

    if (schema == NULL) {
        cause_set(cause, "the document has no \"schema\"");
    } else if (strncmp(schema, "trimtab.nodes/", 14) == 0) {
        json_decref(script->nodes);
        script->nodes = json_incref(document);
        result = model_take_nodes(model, document, script->now_ms - script->start_ms, cause);
    } else if (strncmp(schema, "trimtab.snapshot/", 17) == 0) {
        json_decref(script->snapshot);
        script->snapshot = json_incref(document);
        result = model_take_snapshot(model, document, script->now_ms - script->start_ms, cause);
        if (result == 0) ui_set_trouble(script->ui, NULL);
    } else if (strncmp(schema, "trimtab.history/", 16) == 0) {
        result = ui_at_ms(script->ui) > 0 ? model_take_past_history(model, document, cause)
                                          : model_take_history(model, document, cause);
    } else if (strncmp(schema, "trimtab.past/", 13) == 0) {
        result = model_take_past(model, document, cause);
    } else if (strncmp(schema, "trimtab.requests/", 17) == 0) {
        result = model_take_requests(model, document, cause);
    } else if (strncmp(schema, "trimtab.calibration/", 20) == 0) {
        result = model_take_calibration(model, document, cause);
    } else if (strncmp(schema, "trimtab.cost/", 13) == 0) {
        result = model_take_cost(model, document, cause);
    } else if (strncmp(schema, "trimtab.settings/", 17) == 0) {
        result = model_take_settings(model, document, cause);
    } else if (strncmp(schema, "trimtab.decisions/", 18) == 0) {
        result = model_take_decisions(model, document, cause);
    } else {
        cause_set(cause, "unknown schema %s", schema);
    }
    if (result == 0) ui_data_arrived(script->ui);
    return result;
}

static json_t *read_document(struct script *script, const char *file, char **cause)
{
    const char *slash = strrchr(script->path, '/');
    char path[4096];
    json_error_t error;
    json_t *document;

    snprintf(path, sizeof path, "%.*s%s",
             file[0] == '/' || slash == NULL ? 0 : (int)(slash - script->path + 1), script->path,
             file);
    document = json_load_file(path, 0, &error);
    if (document == NULL) fail(script, cause, "cannot load: ", error.text);
    return document;
}

static int do_load(struct script *script, char *rest, char **cause)
{
    json_t *document, *part;
    const char *key;
    int result = 0;

    if (need_ui(script, cause) != 0) return -1;
    document = read_document(script, rest, cause);
    if (document == NULL) return -1;
    if (json_object_get(document, "schema") != NULL) {
        result = take(script, document, cause);
    } else {
        json_object_foreach(document, key, part)
        {
            result = take(script, part, cause);
            if (result != 0) break;
        }
    }
    json_decref(document);
    return result == 0 ? 0 : fail(script, cause, "cannot load ", rest);
}

static int do_base(struct script *script, char *rest, char **cause)
{
    json_t *document = read_document(script, rest, cause), **slot;
    const char *schema;

    if (document == NULL) return -1;
    schema = json_string_value(json_object_get(document, "schema"));
    slot = schema != NULL && strncmp(schema, "trimtab.nodes/", 14) == 0 ? &script->nodes
                                                                        : &script->snapshot;
    json_decref(*slot);
    *slot = document;
    return 0;
}

/* Replace keys, object by object; null is a value. */
static void merge(json_t *into, json_t *patch)
{
    const char *key;
    json_t *value;

    json_object_foreach(patch, key, value)
    {
        json_t *old = json_object_get(into, key);

        if (json_is_object(old) && json_is_object(value))
            merge(old, value);
        else
            json_object_set(into, key, value);
    }
}

static int do_patch(struct script *script, char *rest, char **cause)
{
    char *json = strchr(rest, ' ');
    json_t *patch, *document;
    json_error_t error;
    int result;

    if (json == NULL) return fail(script, cause, "patch needs a document and JSON, not ", rest);
    *json++ = '\0';
    document = strcmp(rest, "nodes") == 0      ? script->nodes
               : strcmp(rest, "snapshot") == 0 ? script->snapshot
                                               : NULL;
    if (document == NULL) return fail(script, cause, "nothing loaded that is called ", rest);
    patch = json_loads(json, 0, &error);
    if (patch == NULL) return fail(script, cause, "the patch is not JSON: ", error.text);
    document = json_deep_copy(document);
    merge(document, patch);
    json_decref(patch);
    if (need_ui(script, cause) != 0) {
        json_decref(document);
        return -1;
    }
    result = take(script, document, cause);
    json_decref(document);
    return result == 0 ? 0 : fail(script, cause, "cannot use the patched ", rest);
}

/* Seconds of live figures, each drawn: the last snapshot goes on, its throughput wanders. */
static int do_live(struct script *script, char *rest, char **cause)
{
    int64_t seconds;
    json_t *live;
    int result = 0;

    if (script->snapshot == NULL) return fail(script, cause, "no snapshot is loaded yet", "");
    if (parse_ms(script, rest, &seconds, cause) != 0 || need_ui(script, cause) != 0) return -1;
    live = json_deep_copy(script->snapshot);
    for (int64_t i = 0; i < seconds && result == 0; i++) {
        script->now_ms += 1000;
        json_object_set_new(live, "time_ms", json_integer(script->now_ms));
        json_object_set_new(live, "throughput_tps", json_real(400 + (double)(i * 7919 % 97)));
        need_ui(script, cause);
        result = take(script, live, cause);
        ui_draw(script->ui, script->screen);
    }
    json_decref(live);
    return result == 0 ? 0 : fail(script, cause, "cannot go on: ", rest);
}

static int do_trouble(struct script *script, char *rest, char **cause)
{
    if (need_ui(script, cause) != 0) return -1;
    ui_set_trouble(script->ui, rest[0] != '\0' ? rest : NULL);
    return 0;
}

static int do_refuse(struct script *script, char *rest, char **cause)
{
    static const char *const names[] = {"nodes",       "requests", "decisions",
                                        "calibration", "cost",     "settings"};
    size_t length = strcspn(rest, " ");

    if (need_ui(script, cause) != 0) return -1;
    for (int i = 0; i < LIST_COUNT; i++) {
        if (strlen(names[i]) != length || strncmp(rest, names[i], length) != 0) continue;
        model_refuse(ui_model(script->ui), (enum model_list)i,
                     rest[length] != '\0' ? rest + length + 1 : "");
        return 0;
    }
    if (length == 4 && strncmp(rest, "past", length) == 0) {
        model_refuse_past(ui_model(script->ui), rest[length] != '\0' ? rest + length + 1 : "");
        return 0;
    }
    return fail(script, cause, "no such list: ", rest);
}

static int do_key(struct script *script, char *rest, char **cause)
{
    if (need_ui(script, cause) != 0) return -1;
    for (char *save = NULL, *name = strtok_r(rest, " ", &save); name != NULL;
         name = strtok_r(NULL, " ", &save)) {
        uint32_t key = key_parse(name);

        if (key == KEY_CODE_NONE) return fail(script, cause, "no such key: ", name);
        ui_key(script->ui, key);
        ui_draw(script->ui, script->screen);
    }
    return 0;
}

static int do_type(struct script *script, char *rest, char **cause)
{
    if (need_ui(script, cause) != 0) return -1;
    for (const char *c = rest; *c != '\0'; c++) ui_key(script->ui, (unsigned char)*c);
    return 0;
}

static int do_expect(struct script *script, char *rest, char **cause)
{
    struct ui_command command;
    char found[128] = "command none";

    if (need_ui(script, cause) != 0) return -1;
    if (ui_take_command(script->ui, &command)) {
        if (command.kind == COMMAND_MODE)
            snprintf(found, sizeof found, "command %s %" PRId64, mode_name(command.mode),
                     command.expect_generation);
        else if (command.kind == COMMAND_SET)
            snprintf(found, sizeof found, "command %s=%s %" PRId64, command.setting, command.value,
                     command.expect_generation);
        else
            snprintf(found, sizeof found, "command cancel %" PRId64, command.request);
    }
    return strcmp(found, rest) == 0 ? 0 : fail(script, cause, "found instead: ", found);
}

static int do_answer(struct script *script, char *rest, char **cause)
{
    static const char *const names[] = {[ANSWER_OK] = "ok",
                                        [ANSWER_CONFLICT] = "conflict",
                                        [ANSWER_REFUSED] = "refused",
                                        [ANSWER_UNREACHABLE] = "unreachable"};
    struct ui_command command;
    size_t length = strcspn(rest, " ");
    const char *text = rest[length] != '\0' ? rest + length + 1 : "";

    if (need_ui(script, cause) != 0) return -1;
    for (int i = ANSWER_OK; i <= ANSWER_UNREACHABLE; i++) {
        if (strlen(names[i]) != length || strncmp(rest, names[i], length) != 0) continue;
        ui_take_command(script->ui, &command);
        ui_take_answer(script->ui, (enum answer)i, atoll(text), text);
        return 0;
    }
    return fail(script, cause, "an answer is ok, conflict, refused or unreachable, not ", rest);
}

static int write_screen(struct script *script, const char *file, char **cause,
                        void (*write)(const struct screen *, FILE *))
{
    FILE *out;
    int result = 0;

    if (need_ui(script, cause) != 0) return -1;
    out = strcmp(file, "-") == 0 ? stdout : fopen(file, "w");
    if (out == NULL) return fail(script, cause, "cannot write ", file);
    ui_draw(script->ui, script->screen);
    write(script->screen, out);
    if (out == stdout ? fflush(out) != 0 : fclose(out) != 0)
        result = fail(script, cause, "cannot write ", file);
    return result;
}

static int do_dump(struct script *script, char *rest, char **cause)
{
    return write_screen(script, rest, cause, screen_write);
}

static int do_styles(struct script *script, char *rest, char **cause)
{
    return write_screen(script, rest, cause, screen_write_styles);
}

static const struct {
    const char *name;
    command_fn *run;
    bool bare; /* works without an argument */
} commands[] = {
    {"size", do_size, false},      {"option", do_option, false},  {"time", do_time, false},
    {"wait", do_wait, false},      {"load", do_load, false},      {"base", do_base, false},
    {"patch", do_patch, false},    {"trouble", do_trouble, true}, {"key", do_key, false},
    {"refuse", do_refuse, false},  {"type", do_type, false},      {"expect", do_expect, false},
    {"answer", do_answer, false},  {"live", do_live, false},      {":dump", do_dump, false},
    {":styles", do_styles, false},
};

static int run_line(struct script *script, char *line, char **cause)
{
    char *rest = line + strcspn(line, " ");

    if (line[0] == '#' || line[0] == '\0') return 0;
    if (*rest != '\0') *rest++ = '\0';
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(line, commands[i].name) != 0) continue;
        if (*rest == '\0' && !commands[i].bare)
            return fail(script, cause, line, " needs an argument");
        return commands[i].run(script, rest, cause);
    }
    return fail(script, cause, "unknown command: ", line);
}

int script_run(const char *path, const struct ui_options *options, char **cause)
{
    struct script script = {.path = path,
                            .options = *options,
                            .rows = 24,
                            .cols = 80,
                            .start_ms = START_MS,
                            .now_ms = START_MS};
    char line[LINE_MAX_BYTES];
    FILE *file = fopen(path, "r");
    int result = 0;

    if (file == NULL) {
        cause_set(cause, "cannot read the script %s: %s", path, strerror(errno));
        return -1;
    }
    while (result == 0 && fgets(line, sizeof line, file) != NULL) {
        size_t length = strlen(line);

        script.line++;
        if (length + 1 == sizeof line) {
            result = fail(&script, cause, "the line is too long", "");
            break;
        }
        while (length > 0 && strchr(" \t\r\n", line[length - 1]) != NULL) line[--length] = '\0';
        result = run_line(&script, line, cause);
    }
    if (result == 0 && ferror(file)) {
        cause_set(cause, "cannot read the script %s: %s", path, strerror(errno));
        result = -1;
    }
    fclose(file);
    json_decref(script.nodes);
    json_decref(script.snapshot);
    ui_free(script.ui);
    screen_free(script.screen);
    return result;
}
