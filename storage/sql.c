/* sql.c - see sql.h. */
#include "config.h"

#include "storage/sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int storage_fail(char **cause, const char *format, ...)
{
    if (!cause) return -1;
    free(*cause);
    *cause = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(cause, format, args) < 0) *cause = NULL;
    va_end(args);
    return -1;
}

static int prepare(sqlite3 *db, const char *sql, const int64_t *values, int count,
                   sqlite3_stmt **statement)
{
    int rc = sqlite3_prepare_v2(db, sql, -1, statement, NULL);
    for (int i = 0; rc == SQLITE_OK && i < count; i++)
        rc = sqlite3_bind_int64(*statement, i + 1, values[i]);
    return rc;
}

int storage_sql_run(sqlite3 *db, const char *sql, const int64_t *values, int count)
{
    sqlite3_stmt *statement = NULL;
    int rc = prepare(db, sql, values, count, &statement);
    if (rc == SQLITE_OK) {
        do rc = sqlite3_step(statement);
        while (rc == SQLITE_ROW);
        if (rc == SQLITE_DONE) rc = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    return rc;
}

int storage_sql_int(sqlite3 *db, const char *sql, const int64_t *values, int count, int64_t absent,
                    int64_t *out)
{
    sqlite3_stmt *statement = NULL;
    *out = absent;
    int rc = prepare(db, sql, values, count, &statement);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW && sqlite3_column_type(statement, 0) != SQLITE_NULL)
            *out = sqlite3_column_int64(statement, 0);
        if (rc == SQLITE_ROW || rc == SQLITE_DONE) rc = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    return rc;
}

const char *storage_time(int64_t time_ms, char out[STORAGE_TIME_SIZE])
{
    time_t seconds = (time_t)(time_ms / 1000);
    struct tm utc;
    if (!gmtime_r(&seconds, &utc) || !strftime(out, STORAGE_TIME_SIZE, "%Y-%m-%dT%H:%M:%SZ", &utc))
        snprintf(out, STORAGE_TIME_SIZE, "%lld ms", (long long)time_ms);
    return out;
}

static int64_t clock_ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t storage_clock_ms(void)
{
    return clock_ms(CLOCK_REALTIME);
}
int64_t storage_monotonic_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

int storage_state_get(sqlite3 *db, const char *name, int64_t *value)
{
    sqlite3_stmt *statement = NULL;
    *value = 0;
    int rc = sqlite3_prepare_v2(db, "SELECT value FROM rollup_state WHERE name = ?1", -1,
                                &statement, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW) *value = sqlite3_column_int64(statement, 0);
        if (rc == SQLITE_ROW || rc == SQLITE_DONE) rc = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    return rc;
}

int storage_state_advance(sqlite3 *db, const char *name, int64_t value)
{
    sqlite3_stmt *statement = NULL;
    int rc =
        sqlite3_prepare_v2(db, "UPDATE rollup_state SET value = ?2 WHERE name = ?1 AND value < ?2",
                           -1, &statement, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
        sqlite3_bind_int64(statement, 2, value);
        rc = sqlite3_step(statement);
        if (rc == SQLITE_DONE) rc = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    return rc;
}

int storage_end_transaction(sqlite3 *db, int rc)
{
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (rc != SQLITE_OK && !sqlite3_get_autocommit(db))
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}
