/* rows.h - one row of store.h into its tables, by prepared statements. Owns the statements of one
 * write connection.
 */
#ifndef STORAGE_ROWS_H
#define STORAGE_ROWS_H

#include <sqlite3.h>

#include "storage/queue.h"
#include "storage/store.h"

struct rows;

struct rows *rows_open(sqlite3 *db, char **cause); /* NULL with *cause */
void rows_close(struct rows *rows);                /* NULL-safe; before the connection */

/* All return SQLite result codes; `run_id` is the id in this file (0 = none). */
int rows_put(struct rows *rows, enum queue_kind kind, const union queue_row *row, int64_t run_id);
/* Insert the run, with the id *run_id if that is free, else with a new one that is put there. */
int rows_begin_run(struct rows *rows, const struct store_run *run, int64_t start_ms,
                   int64_t *run_id);
int rows_end_run(struct rows *rows, int64_t run_id, int64_t end_ms, bool clean);

#endif
