/* reader.c - see reader.h: the read-only connection, what a statement may do, and how long.
 *
 * Three things keep a query from doing harm: the connection cannot write, the authorizer refuses
 * whatever is not reading (so a new kind of statement is refused until it is known), and the limits
 * end it. A long reader does not stop the writer (WAL), but keeps the WAL growing: that is what the
 * time limit is for.
 */
#include "config.h"

#include "storage/reader.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/reader_internal.h"
#include "storage/schema.h"
#include "storage/sql.h"
#include "storage/views.h"

#define BUSY_MS 1000
#define VALUE_BYTES (16 << 20) /* longest string or blob that a query may make */

/* ---- what a statement may do */

static bool is_listed(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (sqlite3_stricmp(name, *list) == 0) return true;
    return false;
}

/* Pragmas that only tell something; with_argument: even with one, as it names a table. */
static bool is_harmless_pragma(const char *name, const char *argument)
{
    static const char *const with_argument[] = {"table_info",       "table_xinfo", "table_list",
                                                "index_list",       "index_info",  "index_xinfo",
                                                "foreign_key_list", NULL};
    static const char *const without[] = {"user_version",  "application_id", "compile_options",
                                          "database_list", "function_list",  "collation_list",
                                          "page_count",    "page_size",      "freelist_count",
                                          "encoding",      "journal_mode",   NULL};
    if (!name) return false;
    return is_listed(name, with_argument) || (!argument && is_listed(name, without));
}

static bool is_harmless_function(const char *name)
{
    static const char *const refused[] = {"load_extension", "readfile", "writefile", "edit",
                                          "fts3_tokenizer", "lsdir",    "lsmode",    NULL};
    return name && !is_listed(name, refused);
}

static int authorize(void *state, int action, const char *first, const char *second,
                     const char *database, const char *inner)
{
    struct reader *reader = state;
    (void)database;
    (void)inner;
    if (reader->trusted) return SQLITE_OK;
    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
        return SQLITE_OK;
    case SQLITE_UPDATE:
        /* How SQLite declares json_each and the pragma functions to itself. A statement that says
         * so is refused by SQLite, by the connection and as not read-only. */
        if (first && strcmp(first, "sqlite_master") == 0) return SQLITE_OK;
        snprintf(reader->denied, sizeof reader->denied, "UPDATE");
        break;
    case SQLITE_FUNCTION:
        if (is_harmless_function(second)) return SQLITE_OK;
        snprintf(reader->denied, sizeof reader->denied, "the function %s", second ? second : "?");
        break;
    case SQLITE_PRAGMA:
        if (is_harmless_pragma(first, second)) return SQLITE_OK;
        snprintf(reader->denied, sizeof reader->denied, "this PRAGMA %s", first ? first : "?");
        break;
    case SQLITE_ATTACH:
    case SQLITE_DETACH:
        snprintf(reader->denied, sizeof reader->denied, "ATTACH");
        break;
    default:
        snprintf(reader->denied, sizeof reader->denied, "a statement that changes something");
    }
    return SQLITE_DENY;
}

int reader_check(void *state)
{
    struct reader *reader = state;
    if (reader->stop && *reader->stop) return 1;
    if (reader->deadline_ms == 0 || storage_monotonic_ms() < reader->deadline_ms) return 0;
    reader->timed_out = true;
    return 1;
}

/* ---- opening */

/* SQLite's file name as a URI: '%', '?' and '#' mean something there. */
static char *uri_of(const char *path, bool immutable)
{
    static const char ending[] = "?mode=ro&immutable=1";
    char *uri = malloc(3 * strlen(path) + sizeof "file:" + sizeof ending), *to = uri;
    if (!uri) return NULL;
    to = stpcpy(to, "file:");
    for (; *path; path++) {
        if (strchr("%?#", *path))
            to += sprintf(to, "%%%02x", (unsigned char)*path);
        else
            *to++ = *path;
    }
    strcpy(to, immutable ? ending : "?mode=ro");
    return uri;
}

static void sqrt_function(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    double value = sqlite3_value_double(values[0]);
    if (sqlite3_value_type(values[0]) != SQLITE_NULL && value >= 0)
        sqlite3_result_double(context, sqrt(value));
}

static void exp_function(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    if (sqlite3_value_type(values[0]) != SQLITE_NULL)
        sqlite3_result_double(context, exp(sqlite3_value_double(values[0])));
}

static enum schema_state connect_reader(struct reader *reader, bool immutable, char **cause)
{
    int version = 0;
    free(reader->uri);
    sqlite3_close(reader->db);
    reader->db = NULL;
    reader->uri = uri_of(reader->path, immutable);
    if (!reader->uri) {
        storage_fail(cause, "out of memory");
        return SCHEMA_ERROR;
    }
    int rc = sqlite3_open_v2(reader->uri, &reader->db,
                             SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK) {
        storage_fail(cause, "cannot open %s: %s", reader->path, sqlite3_errstr(rc));
        return SCHEMA_ERROR;
    }
    sqlite3_busy_timeout(reader->db, BUSY_MS);
    return schema_inspect(reader->db, reader->path, &schema_steps, &version, cause);
}

static bool has_wal(const char *path)
{
    struct stat status;
    char *name = NULL;
    bool found =
        asprintf(&name, "%s-wal", path) >= 0 && stat(name, &status) == 0 && status.st_size > 0;
    free(name);
    return found;
}

static int check_state(struct reader *reader, enum schema_state state, char **cause)
{
    switch (state) {
    case SCHEMA_CURRENT:
        return 0;
    case SCHEMA_EMPTY:
        return storage_fail(cause, "%s is empty: no trimtabd has written to it yet", reader->path);
    case SCHEMA_OLDER:
        return storage_fail(
            cause,
            "%s has an older schema; start trimtabd on it once, which migrates it and "
            "keeps a copy",
            reader->path);
    case SCHEMA_DAMAGED:
    case SCHEMA_FOREIGN:
    case SCHEMA_NEWER:
    case SCHEMA_ERROR:
        break; /* *cause is set */
    }
    return -1;
}

static int open_reader(struct reader *reader, char **cause)
{
    struct stat status;
    if (stat(reader->path, &status) == 0 && S_ISDIR(status.st_mode))
        return storage_fail(cause, "%s is a folder; name the file in it, like %s/trimtab.db",
                            reader->path, reader->path);
    if (access(reader->path, R_OK) != 0) {
        if (errno == ENOENT)
            return storage_fail(cause, "there is no store at %s; start trimtabd, or name its file",
                                reader->path);
        return storage_fail(cause, "cannot read %s: %s", reader->path, strerror(errno));
    }
    enum schema_state state = connect_reader(reader, false, cause);
    if (state == SCHEMA_ERROR && access(reader->path, W_OK) != 0) {
        /* A store at rest in a folder where no shared memory can be made beside it: nobody can be
         * writing to it, so it may be read as a file that never changes. Not with a WAL, whose rows
         * would be missing. */
        if (has_wal(reader->path))
            return storage_fail(
                cause,
                "%s was not closed cleanly and its folder cannot be written; copy it "
                "together with %s-wal to read it",
                reader->path, reader->path);
        state = connect_reader(reader, true, cause);
    }
    if (check_state(reader, state, cause) != 0) return -1;
    if (cause) {
        free(*cause); /* of a first attempt */
        *cause = NULL;
    }
    return 0;
}

struct reader *reader_open(const char *path, char **cause)
{
    if (cause) *cause = NULL;
    struct reader *reader = calloc(1, sizeof *reader);
    if (!reader || !(reader->path = strdup(path))) {
        storage_fail(cause, "out of memory");
        reader_close(reader);
        return NULL;
    }
    if (open_reader(reader, cause) != 0) {
        reader_close(reader);
        return NULL;
    }
    sqlite3_limit(reader->db, SQLITE_LIMIT_LENGTH, VALUE_BYTES);
    sqlite3_db_config(reader->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(reader->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    if (!sqlite3_compileoption_used("ENABLE_MATH_FUNCTIONS")) {
        const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
        sqlite3_create_function(reader->db, "sqrt", 1, flags, NULL, sqrt_function, NULL, NULL);
        sqlite3_create_function(reader->db, "exp", 1, flags, NULL, exp_function, NULL, NULL);
    }
    sqlite3_progress_handler(reader->db, READER_CHECK_STEPS, reader_check, reader);
    sqlite3_set_authorizer(reader->db, authorize, reader);
    return reader;
}

void reader_close(struct reader *reader)
{
    if (!reader) return;
    sqlite3_close(reader->db);
    free(reader->uri);
    free(reader->path);
    free(reader);
}

void reader_stop_when(struct reader *reader, const volatile sig_atomic_t *stop)
{
    reader->stop = stop;
}

int reader_run(struct reader *reader, const char *sql, char **cause)
{
    reader->trusted = true;
    int rc = sqlite3_exec(reader->db, sql, NULL, NULL, NULL);
    reader->trusted = false;
    return rc == SQLITE_OK
               ? 0
               : storage_fail(cause, "%s: %s", reader->path, sqlite3_errmsg(reader->db));
}

/* ---- one query */

static void list_views(char *out, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < views_count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", views[i].name);
}

static int explain_error(struct reader *reader, char **cause)
{
    const char *message = sqlite3_errmsg(reader->db);
    char names[512];
    if (reader->denied[0])
        return storage_fail(cause, "only reading is allowed here, not %s", reader->denied);
    if (strncmp(message, "no such table", 13) == 0) {
        list_views(names, sizeof names);
        return storage_fail(cause, "%s; there are: %s", message, names);
    }
    return storage_fail(cause, "%s", message);
}

/* The one statement of `sql`; comments and a semicolon may follow it, nothing else. */
static int prepare_query(struct reader *reader, const char *sql, sqlite3_stmt **statement,
                         char **cause)
{
    const char *tail = NULL;
    sqlite3_stmt *second = NULL;
    reader->denied[0] = '\0';
    if (sqlite3_prepare_v2(reader->db, sql, -1, statement, &tail) != SQLITE_OK)
        return explain_error(reader, cause);
    if (!*statement) return storage_fail(cause, "there is no statement");
    while (*tail) {
        int rc = sqlite3_prepare_v2(reader->db, tail, -1, &second, &tail);
        sqlite3_finalize(second);
        if (rc != SQLITE_OK || second) return storage_fail(cause, "only one statement at a time");
    }
    if (!sqlite3_stmt_readonly(*statement) || sqlite3_column_count(*statement) == 0)
        return storage_fail(cause, "only reading is allowed here: a SELECT");
    return 0;
}

static int bind_values(sqlite3_stmt *statement, const struct reader_value *bind, int count)
{
    int rc = SQLITE_OK;
    for (int i = 0; rc == SQLITE_OK && i < count; i++) {
        const struct reader_value *value = &bind[i];
        switch (value->type) {
        case READER_NULL:
            rc = sqlite3_bind_null(statement, i + 1);
            break;
        case READER_INTEGER:
            rc = sqlite3_bind_int64(statement, i + 1, value->integer);
            break;
        case READER_REAL:
            rc = sqlite3_bind_double(statement, i + 1, value->real);
            break;
        case READER_TEXT:
            rc =
                sqlite3_bind_text(statement, i + 1, value->text, (int)value->length, SQLITE_STATIC);
            break;
        case READER_BLOB:
            rc =
                sqlite3_bind_blob(statement, i + 1, value->text, (int)value->length, SQLITE_STATIC);
            break;
        }
    }
    return rc;
}

static struct reader_value value_of(sqlite3_stmt *statement, int column)
{
    struct reader_value value = {.type = READER_NULL};
    switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
        value.type = READER_INTEGER;
        value.integer = sqlite3_column_int64(statement, column);
        value.real = (double)value.integer;
        break;
    case SQLITE_FLOAT:
        value.type = READER_REAL;
        value.real = sqlite3_column_double(statement, column);
        break;
    case SQLITE_TEXT:
        value.type = READER_TEXT;
        value.text = (const char *)sqlite3_column_text(statement, column);
        value.length = (size_t)sqlite3_column_bytes(statement, column);
        if (!value.text) value.text = ""; /* out of memory in a conversion */
        break;
    case SQLITE_BLOB:
        value.type = READER_BLOB;
        value.text = sqlite3_column_blob(statement, column);
        value.length = (size_t)sqlite3_column_bytes(statement, column);
        if (!value.text) value.text = "";
        break;
    default:
        break;
    }
    return value;
}

static enum reader_end step_rows(struct reader *reader, sqlite3_stmt *statement, int64_t most_rows,
                                 reader_row_fn *row, void *state, char **cause)
{
    int columns = sqlite3_column_count(statement), rc = SQLITE_OK;
    enum reader_end end = READER_ERROR;
    const char **names = calloc((size_t)columns, sizeof *names);
    struct reader_value *values = calloc((size_t)columns, sizeof *values);
    if (!names || !values) {
        storage_fail(cause, "out of memory");
        goto out;
    }
    for (int i = 0; i < columns; i++) {
        names[i] = sqlite3_column_name(statement, i);
        if (!names[i]) names[i] = "";
    }
    end = READER_STOPPED;
    if (!row(state, columns, names, NULL)) goto out;
    for (int64_t count = 0; (rc = sqlite3_step(statement)) == SQLITE_ROW; count++) {
        if (most_rows > 0 && count == most_rows) {
            end = READER_ROW_LIMIT;
            goto out;
        }
        for (int i = 0; i < columns; i++) values[i] = value_of(statement, i);
        if (!row(state, columns, names, values)) goto out;
    }
    end = rc == SQLITE_DONE ? READER_DONE : reader->timed_out ? READER_TIME_LIMIT : READER_ERROR;
    if (end == READER_ERROR) explain_error(reader, cause);
out:
    free(values);
    free(names);
    return end;
}

enum reader_end reader_query(struct reader *reader, const char *sql,
                             const struct reader_value *bind, int bind_count,
                             const struct reader_limits *limits, reader_row_fn *row, void *state,
                             char **cause)
{
    sqlite3_stmt *statement = NULL;
    enum reader_end end = READER_ERROR;
    if (cause) *cause = NULL;
    reader->timed_out = false;
    reader->deadline_ms =
        limits && limits->time_ms > 0 ? storage_monotonic_ms() + limits->time_ms : 0;
    if (prepare_query(reader, sql, &statement, cause) != 0) goto out;
    if (bind_values(statement, bind, bind_count) != SQLITE_OK) {
        storage_fail(cause, "%d values for %d parameters: %s", bind_count,
                     sqlite3_bind_parameter_count(statement), sqlite3_errmsg(reader->db));
        goto out;
    }
    end = step_rows(reader, statement, limits ? limits->rows : 0, row, state, cause);
out:
    sqlite3_finalize(statement);
    reader->deadline_ms = 0;
    return end;
}
