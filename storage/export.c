/* export.c - reader_export: a stand-alone copy of the store, made while the daemon writes.
 *
 * Everything is read in one transaction, so the copy is one moment of the store however long it
 * takes (a row-wise copy, not sqlite3_backup: only what is newer than `since` is read and written,
 * and an incremental backup starts over at every commit of the daemon). It is made under another
 * name beside its place and renamed at the end.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/reader_internal.h"
#include "storage/schema.h"
#include "storage/sql.h"
#include "storage/views.h"

enum export_form { EXPORT_DATABASE, EXPORT_CSV, EXPORT_JSONL, EXPORT_UNKNOWN };

struct export
{
    struct reader *reader;
    const char *to;
    char *temporary; /* what is made; gone at the end */
    int64_t since_ms;
    void (*progress)(void *state, double done);
    void *state;
};

static void report(const struct export *export, double done)
{
    if (export->progress) export->progress(export->state, done < 1 ? done : 1);
}

static enum export_form form_of(const char *to)
{
    static const struct {
        const char *ending;
        enum export_form form;
    } forms[] = {{".db", EXPORT_DATABASE},
                 {".sqlite", EXPORT_DATABASE},
                 {".sqlite3", EXPORT_DATABASE},
                 {".csv", EXPORT_CSV},
                 {".jsonl", EXPORT_JSONL}};
    size_t length = strlen(to);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        size_t n = strlen(forms[i].ending);
        if (length > n && strcmp(to + length - n, forms[i].ending) == 0) return forms[i].form;
    }
    return EXPORT_UNKNOWN;
}

/* ---- a database */

/* Tables in an order in which every row finds what it refers to. ?1 = since. What has no time of
 * its own follows the rows it belongs to; of each cost cell the latest row is kept, it still holds.
 */
#define OF_RUN "run_id IN (SELECT run_id FROM main.run)"
static const struct {
    const char *table, *where;
} copies[] = {
    {"node", "?1 = ?1"},
    {"run", "end_ms IS NULL OR end_ms >= ?1 OR run_id IN (SELECT run_id FROM src.sample WHERE "
            "time_ms >= ?1)"},
    {"stratum", "?1 = ?1"},
    {"sample", "time_ms >= ?1 AND " OF_RUN},
    {"sample_position", "sample_id IN (SELECT sample_id FROM main.sample WHERE ?1 = ?1)"},
    {"sample_1m", "minute * 60000 + 59999 >= ?1 AND " OF_RUN},
    {"sample_1m_position", "minute * 60000 + 59999 >= ?1 AND " OF_RUN},
    {"sample_1h", "hour * 3600000 + 3599999 >= ?1 AND " OF_RUN},
    {"sample_1h_position", "hour * 3600000 + 3599999 >= ?1 AND " OF_RUN},
    {"rollup_state", "?1 = ?1"},
    {"refit", "time_ms >= ?1 AND " OF_RUN},
    {"refit_intercept", "refit_id IN (SELECT refit_id FROM main.refit WHERE ?1 = ?1)"},
    {"calibration", "minute * 60000 + 59999 >= ?1 AND " OF_RUN},
    {"calibration_1h", "hour * 3600000 + 3599999 >= ?1 AND " OF_RUN},
    {"cost", "(time_ms >= ?1 OR cost_id IN (SELECT max(cost_id) FROM src.cost"
             " GROUP BY run_id, part, tokens, requests, context_band)) AND " OF_RUN},
    {"decision", "time_ms >= ?1 AND (run_id IS NULL OR " OF_RUN ")"},
    {"event", "time_ms >= ?1 AND (run_id IS NULL OR " OF_RUN ")"},
    {"toggle_result", "decision_id IN (SELECT decision_id FROM main.decision WHERE ?1 = ?1)"},
    {"bench_configuration", "?1 = ?1"},
    {"bench_block", "time_ms >= ?1"},
    {"bench_result", "time_ms >= ?1"},
};
#define COPIES (sizeof copies / sizeof *copies)

static int attach_source(sqlite3 *db, const char *uri)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, "ATTACH ?1 AS src", -1, &statement, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_bind_text(statement, 1, uri, -1, SQLITE_STATIC);
        rc = sqlite3_step(statement);
        if (rc == SQLITE_DONE) rc = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    return rc;
}

static int copy_tables(const struct export *export, sqlite3 *db)
{
    int64_t rows[COPIES] = {0}, total = 0, done = 0;
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < COPIES; i++) {
        char *sql = sqlite3_mprintf("SELECT count(*) FROM src.%s", copies[i].table);
        rc = sql ? storage_sql_int(db, sql, NULL, 0, 0, &rows[i]) : SQLITE_NOMEM;
        sqlite3_free(sql);
        total += rows[i];
    }
    for (size_t i = 0; rc == SQLITE_OK && i < COPIES; i++) {
        char *sql = sqlite3_mprintf("INSERT OR REPLACE INTO main.%s SELECT * FROM src.%s WHERE %s",
                                    copies[i].table, copies[i].table, copies[i].where);
        rc = sql ? storage_sql_run(db, sql, &export->since_ms, 1) : SQLITE_NOMEM;
        sqlite3_free(sql);
        done += rows[i];
        report(export, total > 0 ? (double)done / (double)total : 1);
    }
    return rc;
}

static int sync_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    int rc = fsync(fd);
    close(fd);
    return rc;
}

static int export_database(const struct export *export, char **cause)
{
    sqlite3 *db = NULL;
    int64_t version = 0;
    int rc = sqlite3_open_v2(export->temporary, &db,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI, NULL);
    if (rc == SQLITE_OK)
        sqlite3_progress_handler(db, READER_CHECK_STEPS, reader_check, export->reader);
    /* no journal: a failed export is deleted, and a good one is synchronised once */
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", NULL, NULL,
                          NULL);
    if (rc == SQLITE_OK) rc = attach_source(db, export->reader->uri);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    if (rc == SQLITE_OK) rc = storage_sql_int(db, "PRAGMA src.user_version", NULL, 0, 0, &version);
    if (rc == SQLITE_OK && version != schema_steps.count)
        rc = SQLITE_SCHEMA; /* migrated meanwhile */
    if (rc == SQLITE_OK) rc = schema_create(db);
    if (rc == SQLITE_OK) rc = copy_tables(export, db);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (rc != SQLITE_OK)
        storage_fail(cause, "cannot export to %s: %s", export->to,
                     db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
    sqlite3_close(db);
    if (rc == SQLITE_OK && sync_file(export->temporary) != 0) {
        storage_fail(cause, "cannot write %s: %s", export->to, strerror(errno));
        rc = SQLITE_IOERR;
    }
    return rc == SQLITE_OK ? 0 : -1;
}

/* ---- views as text */

static int export_view(const struct export *export, const struct view *view,
                       enum reader_format format, FILE *out, char **cause)
{
    struct reader_value since = {.type = READER_INTEGER, .integer = export->since_ms};
    enum reader_end end;
    char *name =
        format == READER_JSONL ? sqlite3_mprintf("%Q AS view, ", view->name) : sqlite3_mprintf("");
    char *sql = name ? sqlite3_mprintf("SELECT %s* FROM %s WHERE %s >= ?1", name, view->name,
                                       view->until_ms)
                     : NULL;
    char *why = NULL;
    int rc = sql ? reader_print_bound(export->reader, sql, &since, 1, NULL, format, out, &end, &why)
                 : -1;
    if (rc != 0)
        storage_fail(cause, "cannot export to %s: %s", export->to, why ? why : "out of memory");
    free(why);
    sqlite3_free(sql);
    sqlite3_free(name);
    return rc;
}

/* Close `out` so that what was written is on the disk. */
static int finish_file(FILE *out, const char *name, int rc, char **cause)
{
    if (rc == 0 && (fflush(out) != 0 || fsync(fileno(out)) != 0))
        rc = storage_fail(cause, "cannot write %s: %s", name, strerror(errno));
    if (fclose(out) != 0 && rc == 0)
        rc = storage_fail(cause, "cannot write %s: %s", name, strerror(errno));
    return rc;
}

static int export_lines(const struct export *export, char **cause)
{
    FILE *out = fopen(export->temporary, "wxe");
    if (!out) return storage_fail(cause, "cannot write %s: %s", export->to, strerror(errno));
    int rc = 0;
    for (int i = 0; rc == 0 && i < views_count; i++) {
        rc = export_view(export, &views[i], READER_JSONL, out, cause);
        report(export, (i + 1.0) / views_count);
    }
    return finish_file(out, export->to, rc, cause);
}

static int export_folder(const struct export *export, char **cause)
{
    if (mkdir(export->temporary, 0777) != 0)
        return storage_fail(cause, "cannot make %s: %s", export->to, strerror(errno));
    int rc = 0;
    for (int i = 0; rc == 0 && i < views_count; i++) {
        char *name = NULL;
        FILE *out = asprintf(&name, "%s/%s.csv", export->temporary, views[i].name) < 0
                        ? NULL
                        : fopen(name, "wxe");
        rc = out ? finish_file(out, export->to,
                               export_view(export, &views[i], READER_CSV, out, cause), cause)
                 : storage_fail(cause, "cannot write in %s: %s", export->to, strerror(errno));
        free(name);
        report(export, (i + 1.0) / views_count);
    }
    return rc;
}

/* ---- places */

/* Delete a file, or a folder that holds nothing but files named after views. */
static int remove_export(const char *path)
{
    if (unlink(path) == 0 || errno == ENOENT) return 0;
    if (errno != EISDIR && errno != EPERM) return -1;
    for (int i = 0; i < views_count; i++) {
        char *name = NULL;
        if (asprintf(&name, "%s/%s.csv", path, views[i].name) >= 0) unlink(name);
        free(name);
    }
    return rmdir(path);
}

/* Only what an earlier export made may be replaced. */
static bool holds_only_exports(const char *path)
{
    DIR *folder = opendir(path);
    bool only = folder != NULL;
    for (struct dirent *entry; only && (entry = readdir(folder));) {
        only = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        for (int i = 0; i < views_count && !only; i++) {
            size_t length = strlen(views[i].name);
            only = strncmp(entry->d_name, views[i].name, length) == 0 &&
                   strcmp(entry->d_name + length, ".csv") == 0;
        }
    }
    if (folder) closedir(folder);
    return only;
}

static int check_place(const struct export *export, enum export_form form, bool overwrite,
                       char **cause)
{
    struct stat there, source;
    const char *to = export->to;
    if (form == EXPORT_UNKNOWN)
        return storage_fail(
            cause,
            "'%s' should end in .db or .sqlite (a database), .csv (a folder of one file a "
            "view) or .jsonl",
            to);
    if (stat(to, &there) != 0) return 0;
    if (stat(export->reader->path, &source) == 0 && there.st_dev == source.st_dev &&
        there.st_ino == source.st_ino)
        return storage_fail(cause, "%s is the store itself; give another name", to);
    if (!overwrite)
        return storage_fail(cause, "%s exists; give another name, or ask for it to be replaced",
                            to);
    if (form == EXPORT_CSV ? !S_ISDIR(there.st_mode) || !holds_only_exports(to)
                           : !S_ISREG(there.st_mode))
        return storage_fail(cause, "%s is not an earlier export and is not replaced", to);
    char *wal = NULL;
    bool in_use =
        form == EXPORT_DATABASE && asprintf(&wal, "%s-wal", to) >= 0 && access(wal, F_OK) == 0;
    free(wal);
    if (in_use)
        return storage_fail(cause, "%s is in use (%s-wal is there) and is not replaced", to, to);
    return 0;
}

/* Rename over nothing that is there. */
static int rename_new(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return -1;
    if (access(to, F_OK) != 0)
        return rename(from, to); /* a file system that cannot do both at once */
    errno = EEXIST;
    return -1;
}

/* A folder cannot be renamed over a full one: the old one steps aside first, and back when that
 * fails. */
static int replace_folder(const char *from, const char *to)
{
    char *old = NULL;
    if (asprintf(&old, "%s.old-%ld", to, (long)getpid()) < 0) return -1;
    int rc = rename(to, old);
    if (rc == 0) {
        rc = rename(from, to);
        int error = errno;
        if (rc == 0)
            remove_export(old);
        else if (rename(old, to) == 0)
            errno = error;
    }
    free(old);
    return rc;
}

/* Put the finished copy in its place: at once, and over nothing that came meanwhile unless asked.
 */
static int put_in_place(const struct export *export, enum export_form form, bool overwrite,
                        char **cause)
{
    int rc;
    if (!overwrite)
        rc = rename_new(export->temporary, export->to);
    else if (form == EXPORT_CSV && access(export->to, F_OK) == 0)
        rc = replace_folder(export->temporary, export->to);
    else
        rc = rename(export->temporary, export->to);
    return rc == 0 ? 0
                   : storage_fail(cause, "cannot put the export at %s: %s", export->to,
                                  strerror(errno));
}

int reader_export(struct reader *reader, const char *to, int64_t since_ms, bool overwrite,
                  void (*progress)(void *state, double done), void *state, char **cause)
{
    struct export export = {
        .reader = reader, .to = to, .since_ms = since_ms, .progress = progress, .state = state};
    enum export_form form = form_of(to);
    int rc = -1;
    if (cause) *cause = NULL;
    if (check_place(&export, form, overwrite, cause) != 0) return -1;
    if (asprintf(&export.temporary, "%s.tmp-%ld", to, (long)getpid()) < 0)
        return storage_fail(cause, "out of memory");
    remove_export(export.temporary); /* of a killed process with this pid */
    if (form == EXPORT_DATABASE) {
        rc = export_database(&export, cause);
    } else if (reader_run(reader, "BEGIN", cause) == 0) {
        rc = form == EXPORT_CSV ? export_folder(&export, cause) : export_lines(&export, cause);
        char *ignored =
            NULL; /* nothing was written: the end of the transaction cannot lose anything */
        reader_run(reader, "COMMIT", &ignored);
        free(ignored);
    }
    if (rc == 0) rc = put_in_place(&export, form, overwrite, cause);
    if (rc != 0) remove_export(export.temporary);
    free(export.temporary);
    return rc;
}
