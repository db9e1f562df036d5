/* sql.h - what every module of storage needs around SQLite: an error to hand out, a small statement
 * run at once, a time in words. Owns nothing.
 */
#ifndef STORAGE_SQL_H
#define STORAGE_SQL_H

#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/* Set *cause to a new formatted message (malloc'd; an earlier one is freed; nothing when cause is
 * NULL). Returns -1, so that `return storage_fail(cause, …)` is one statement. */
int storage_fail(char **cause, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Run a statement with `count` integer parameters ?1… to its end. Returns an SQLite result code. */
int storage_sql_run(sqlite3 *db, const char *sql, const int64_t *values, int count);
/* The same, and the first column of the first row into *out (`absent` without a row or when it is
 * NULL). */
int storage_sql_int(sqlite3 *db, const char *sql, const int64_t *values, int count, int64_t absent,
                    int64_t *out);

/* End the transaction that began before: keep its work when rc is SQLITE_OK. Returns what came of
 * it. */
int storage_end_transaction(sqlite3 *db, int rc);

/* The numbers of rollup_state: how far upkeep got. They only grow: a clock that is set back brings
 * nothing back. */
int storage_state_get(sqlite3 *db, const char *name, int64_t *value); /* 0 without a row */
int storage_state_advance(sqlite3 *db, const char *name, int64_t value);

/* "2026-01-31T12:00:00Z" into out; returns out. */
#define STORAGE_TIME_SIZE 32
const char *storage_time(int64_t time_ms, char out[STORAGE_TIME_SIZE]);

int64_t storage_clock_ms(void);     /* CLOCK_REALTIME: what is stored */
int64_t storage_monotonic_ms(void); /* CLOCK_MONOTONIC: what is waited for */

#endif
