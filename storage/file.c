/* file.c - see file.h. */
#include "config.h"

#include "storage/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "storage/sql.h"

#define BUSY_MS 2000 /* another writer (a person with sqlite3) may hold the file this long */
#define CHECK_MS 500 /* most time spent on looking for damage at an open */
#define WAL_KEEP_BYTES "16777216" /* the WAL is cut back to this after a checkpoint */

/* What mkdir says of a folder on the way does not matter when the last one is there. */
static int make_folders(char *folder)
{
    struct stat status;
    int error = 0;
    for (char *slash = folder + 1;; slash++) {
        if (*slash != '/' && *slash != '\0') continue;
        char end = *slash;
        *slash = '\0';
        error = mkdir(folder, 0700) != 0 ? errno : 0;
        *slash = end;
        if (end == '\0') break;
    }
    if (stat(folder, &status) == 0) {
        if (S_ISDIR(status.st_mode)) return 0;
        error = ENOTDIR;
    }
    errno = error;
    return -1;
}

char *store_file_place(const char *path, char **cause)
{
    char *folder = NULL, *name = NULL, *real = NULL, *result = NULL;
    char *folder_copy = strdup(path), *name_copy = strdup(path);
    if (!folder_copy || !name_copy) goto out;
    folder = dirname(folder_copy);
    name = basename(name_copy);
    struct stat status;
    bool is_folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    if (is_folder || *path == '\0' || path[strlen(path) - 1] == '/') {
        storage_fail(cause, "the store's path '%s' names no file%s", path,
                     is_folder ? " but a folder" : "");
        goto out;
    }
    if (make_folders(folder) != 0) {
        storage_fail(cause, "cannot make the store's folder %s: %s", folder, strerror(errno));
        goto out;
    }
    result =
        realpath(path, NULL); /* an existing file: links resolved, so that one file has one lock */
    if (result) goto out;
    real = realpath(folder, NULL);
    if (!real) {
        storage_fail(cause, "cannot use the store's folder %s: %s", folder, strerror(errno));
    } else if (asprintf(&result, "%s/%s", strcmp(real, "/") == 0 ? "" : real, name) < 0) {
        result = NULL;
    }
out:
    if (!result && cause && !*cause) storage_fail(cause, "out of memory");
    free(real);
    free(folder_copy);
    free(name_copy);
    return result;
}

int store_file_lock(const char *path, char **cause)
{
    char *name = NULL, text[32] = "";
    if (asprintf(&name, "%s.lock", path) < 0) return storage_fail(cause, "out of memory");
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) {
        storage_fail(cause, "cannot write beside the store: %s: %s", name, strerror(errno));
        goto out;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        ssize_t n = error == EWOULDBLOCK ? pread(fd, text, sizeof text - 1, 0) : 0;
        long pid = n > 0 ? strtol(text, NULL, 10) : 0;
        if (error != EWOULDBLOCK)
            storage_fail(cause, "cannot lock %s: %s", name, strerror(error));
        else if (pid > 0)
            storage_fail(cause,
                         "%s is in use by another trimtabd (pid %ld); stop it, or give this one "
                         "another file",
                         path, pid);
        else
            storage_fail(cause,
                         "%s is in use by another trimtabd; stop it, or give this one another file",
                         path);
        close(fd);
        fd = -1;
        goto out;
    }
    /* The pid is for the message above only: a full disk must not keep the daemon from starting. */
    int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)length, 0) != length) errno = 0;
out:
    free(name);
    return fd;
}

static bool name_is_free(const char *base)
{
    static const char *const endings[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        char *name = NULL;
        bool taken = asprintf(&name, "%s%s", base, endings[i]) < 0 || access(name, F_OK) == 0;
        free(name);
        if (taken) return false;
    }
    return true;
}

/* Rename path and its -wal to a free name; the WAL belongs to the damaged file and may help to
 * rescue it. */
static int move_aside(const char *path, char **moved, char **cause)
{
    time_t now = (time_t)(storage_clock_ms() / 1000);
    struct tm utc;
    char stamp[32] = "0", *name = NULL, *from = NULL, *to = NULL;
    if (gmtime_r(&now, &utc)) strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
    for (int i = 0; i < 1000 && !name; i++) {
        if ((i == 0 ? asprintf(&name, "%s.damaged-%s", path, stamp)
                    : asprintf(&name, "%s.damaged-%s.%d", path, stamp, i)) < 0)
            return storage_fail(cause, "out of memory");
        if (!name_is_free(name)) {
            free(name);
            name = NULL;
        }
    }
    if (!name) return storage_fail(cause, "no free name to move the damaged %s to", path);
    /* The WAL goes first: if the next rename fails, the main file without it is still only moved by
     * the next start. */
    if (asprintf(&from, "%s-wal", path) >= 0 && asprintf(&to, "%s-wal", name) >= 0 &&
        (rename(from, to) == 0 || errno == ENOENT) &&
        (rename(path, name) == 0 || errno == ENOENT)) {
        char *shm = NULL;
        if (asprintf(&shm, "%s-shm", path) >= 0) unlink(shm); /* an index of the WAL, no data */
        free(shm);
        free(from);
        free(to);
        *moved = name;
        return 0;
    }
    storage_fail(cause, "%s is damaged and cannot be moved to %s: %s; move it away by hand", path,
                 name, strerror(errno));
    free(from);
    free(to);
    free(name);
    return -1;
}

static int stop_at_deadline(void *deadline_ms)
{
    return storage_monotonic_ms() > *(const int64_t *)deadline_ms;
}

/* Look through the pages for damage, for CHECK_MS at most (a small file is seen whole, a large one
 * in part). */
static bool is_sound(sqlite3 *db, const char *path, char **why)
{
    int64_t deadline_ms = storage_monotonic_ms() + CHECK_MS;
    sqlite3_stmt *statement = NULL;
    bool sound = true;
    sqlite3_progress_handler(db, 2000, stop_at_deadline, &deadline_ms);
    int rc = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &statement, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(statement, 0);
        const char *line = text ? strrchr(text, '\n') : NULL; /* below a heading */
        sound = text && strcmp(text, "ok") == 0;
        if (!sound) storage_fail(why, "%s is damaged: %s", path, line ? line + 1 : text);
    } else if ((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB) {
        sound = false;
        storage_fail(why, "%s is damaged: %s", path, sqlite3_errmsg(db));
    }
    sqlite3_finalize(statement);
    sqlite3_progress_handler(db, 0, NULL, NULL);
    return sound;
}

static int open_connection(sqlite3 **db, const char *path, char **cause)
{
    int rc = sqlite3_open_v2(
        path, db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK) {
        int error = *db ? sqlite3_system_errno(*db) : 0;
        storage_fail(cause, "cannot open the store %s: %s%s%s", path, sqlite3_errstr(rc),
                     error ? ": " : "", error ? strerror(error) : "");
        sqlite3_close(*db);
        *db = NULL;
        return -1;
    }
    sqlite3_extended_result_codes(*db, 1);
    sqlite3_busy_timeout(*db, BUSY_MS);
    sqlite3_db_config(*db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(*db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    return 0;
}

/* Before any other access: a file that was opened in another journal mode first would stay in it
 * for its readers. */
static int set_journal(sqlite3 *db, const char *path, bool new_file, char **cause)
{
    sqlite3_stmt *statement = NULL;
    int rc = SQLITE_OK;
    if (new_file) rc = sqlite3_exec(db, "PRAGMA auto_vacuum = INCREMENTAL", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, "PRAGMA journal_mode = WAL", -1, &statement, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(statement);
    bool wal = rc == SQLITE_ROW &&
               sqlite3_stricmp((const char *)sqlite3_column_text(statement, 0), "wal") == 0;
    sqlite3_finalize(statement);
    if (rc == SQLITE_ROW && !wal)
        return storage_fail(
            cause,
            "the file system of %s cannot share memory between processes, which the "
            "store needs (WAL); give a file on a local disk",
            path);
    if (rc == SQLITE_ROW)
        rc = sqlite3_exec(db,
                          "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;"
                          "PRAGMA secure_delete = OFF; PRAGMA journal_size_limit = " WAL_KEEP_BYTES,
                          NULL, NULL, NULL);
    if (rc == SQLITE_OK) return 0;
    int error = sqlite3_system_errno(db);
    return storage_fail(cause, "cannot write to the store %s: %s%s%s", path, sqlite3_errmsg(db),
                        error ? ": " : "", error ? strerror(error) : "");
}

/* A WAL beside a missing or empty file: SQLite would delete it as left over. */
static bool is_orphaned_wal(const char *path)
{
    struct stat status;
    char *wal = NULL;
    bool orphaned = (stat(path, &status) != 0 || status.st_size == 0) &&
                    asprintf(&wal, "%s-wal", path) >= 0 && stat(wal, &status) == 0 &&
                    status.st_size > 0;
    free(wal);
    return orphaned;
}

static int begin_new(struct store_file *file, const char *path, const char *why, char **cause)
{
    char *moved = NULL;
    if (!why) return storage_fail(cause, "out of memory");
    /* The damaged file stays as it was found: nothing of its WAL is written into it now. */
    if (file->db) sqlite3_db_config(file->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    sqlite3_close(file->db);
    file->db = NULL;
    if (move_aside(path, &moved, cause) != 0) return -1;
    storage_fail(&file->notice, "%s; it was moved to %s and a new one begun", why, moved);
    free(moved);
    return open_connection(&file->db, path, cause);
}

int store_file_open(struct store_file *file, const char *path, const struct schema_steps *steps,
                    const char *damage, char **cause)
{
    char *why = NULL, *backup = NULL;
    int version = 0, result = -1;
    store_file_close(file);
    if (damage || is_orphaned_wal(path)) {
        storage_fail(&why, "%s is damaged: %s", path,
                     damage ? damage : "its write-ahead log stands alone");
        if (begin_new(file, path, why, cause) != 0) goto out;
    } else if (open_connection(&file->db, path, cause) != 0) {
        goto out;
    }
    enum schema_state state = schema_inspect(file->db, path, steps, &version, &why);
    if (state == SCHEMA_NEWER || state == SCHEMA_FOREIGN || state == SCHEMA_ERROR) {
        storage_fail(cause, "%s", why ? why : "out of memory");
        goto out;
    }
    if (state != SCHEMA_DAMAGED && state != SCHEMA_EMPTY && !is_sound(file->db, path, &why))
        state = SCHEMA_DAMAGED;
    if (state == SCHEMA_DAMAGED) {
        if (begin_new(file, path, why, cause) != 0) goto out;
        state = SCHEMA_EMPTY;
        version = 0;
    }
    if (set_journal(file->db, path, state == SCHEMA_EMPTY, cause) != 0) goto out;
    if (state != SCHEMA_CURRENT) {
        if (schema_migrate(file->db, path, steps, version, &backup, cause) != 0) goto out;
        if (backup)
            storage_fail(&file->notice,
                         "the store was migrated from schema %d to %d; the earlier file is %s",
                         version, steps->count, backup);
    }
    struct stat status;
    if (stat(path, &status) != 0) {
        storage_fail(cause, "%s: %s", path, strerror(errno));
        goto out;
    }
    file->device = (uint64_t)status.st_dev;
    file->inode = (uint64_t)status.st_ino;
    result = 0;
out:
    free(why);
    free(backup);
    if (result != 0) {
        if (file->notice && cause && *cause) { /* what was moved must be said in any case */
            char *reason = *cause;
            *cause = NULL;
            storage_fail(cause, "%s; %s", file->notice, reason);
            free(reason);
        }
        store_file_close(file);
    }
    return result;
}

void store_file_close(struct store_file *file)
{
    sqlite3_close(file->db);
    free(file->notice);
    file->db = NULL;
    file->notice = NULL;
}

bool store_file_same(const struct store_file *file, const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && (uint64_t)status.st_dev == file->device &&
           (uint64_t)status.st_ino == file->inode;
}
