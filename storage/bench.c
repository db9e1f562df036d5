/* bench.c - see bench.h. */
#include "config.h"

#include "storage/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/file.h"
#include "storage/sql.h"

struct bench_store {
    char *path;
    int lock;
    struct store_file file;
    int64_t configuration_id;
};

static int failed(struct bench_store *store, char **cause)
{
    return storage_fail(cause, "%s: %s", store->path, sqlite3_errmsg(store->file.db));
}

/* A statement whose first parameters name the cell: ?1 configuration … ?5 concurrency. */
static sqlite3_stmt *prepare(struct bench_store *store, const char *sql,
                             const struct bench_cell *cell)
{
    sqlite3_stmt *statement = NULL;

    if (sqlite3_prepare_v2(store->file.db, sql, -1, &statement, NULL) != SQLITE_OK) return NULL;
    sqlite3_bind_int64(statement, 1, store->configuration_id);
    sqlite3_bind_text(statement, 2, cell->form, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 3, cell->mix, -1, SQLITE_STATIC);
    sqlite3_bind_double(statement, 4, cell->temperature);
    sqlite3_bind_int(statement, 5, cell->concurrency);
    return statement;
}

/* Run a statement that gives no rows, and let go of it. */
static int finish(struct bench_store *store, sqlite3_stmt *statement, char **cause)
{
    bool done = statement && sqlite3_step(statement) == SQLITE_DONE;
    int result = done ? 0 : failed(store, cause);

    sqlite3_finalize(statement);
    return result;
}

static int name_configuration(struct bench_store *store, const char *configuration, char **cause)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(store->file.db,
                                "INSERT INTO bench_configuration(text) VALUES(?1)"
                                " ON CONFLICT(text) DO UPDATE SET text = text"
                                " RETURNING bench_configuration_id",
                                -1, &statement, NULL);

    if (rc == SQLITE_OK) sqlite3_bind_text(statement, 1, configuration, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK && (rc = sqlite3_step(statement)) == SQLITE_ROW)
        store->configuration_id = sqlite3_column_int64(statement, 0);
    if (rc == SQLITE_ROW) rc = sqlite3_step(statement); /* the row is written at the end */
    sqlite3_finalize(statement);
    return rc == SQLITE_DONE ? 0 : failed(store, cause);
}

struct bench_store *bench_store_open(const char *path, const char *configuration, char **cause)
{
    struct bench_store *store = calloc(1, sizeof *store);

    if (!store) {
        storage_fail(cause, "out of memory");
        return NULL;
    }
    store->lock = -1;
    store->path = store_file_place(path, cause);
    if (store->path && (store->lock = store_file_lock(store->path, cause)) >= 0 &&
        store_file_open(&store->file, store->path, &schema_steps, NULL, cause) == 0 &&
        name_configuration(store, configuration, cause) == 0)
        return store;
    bench_store_close(store);
    return NULL;
}

void bench_store_close(struct bench_store *store)
{
    if (!store) return;
    store_file_close(&store->file);
    if (store->lock >= 0) close(store->lock);
    free(store->path);
    free(store);
}

#define CELL                                                                                       \
    "bench_configuration_id = ?1 AND form = ?2 AND mix = ?3 AND temperature = ?4"                  \
    " AND concurrency = ?5"
#define CELL_COLUMNS "bench_configuration_id, form, mix, temperature, concurrency"
#define CELL_VALUES "?1, ?2, ?3, ?4, ?5"

int bench_store_put_block(struct bench_store *store, const struct bench_cell *cell,
                          const char *policy, const struct bench_block *block, char **cause)
{
    sqlite3_stmt *statement =
        prepare(store,
                "INSERT OR REPLACE INTO bench_block(" CELL_COLUMNS ", policy, block, time_ms,"
                " tokens, seconds, steps, drafted, admitted, accepted, draft_ms, verify_ms, own_ms)"
                " VALUES(" CELL_VALUES ", ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
                cell);
    const int64_t counts[] = {block->steps, block->drafted, block->admitted, block->accepted};

    sqlite3_bind_text(statement, 6, policy, -1, SQLITE_STATIC);
    sqlite3_bind_int(statement, 7, block->block);
    sqlite3_bind_int64(statement, 8, block->time_ms);
    sqlite3_bind_int64(statement, 9, block->tokens);
    sqlite3_bind_double(statement, 10, block->seconds);
    for (int i = 0; i < 4; i++) sqlite3_bind_int64(statement, 11 + i, counts[i]);
    sqlite3_bind_double(statement, 15, block->draft_ms);
    sqlite3_bind_double(statement, 16, block->verify_ms);
    sqlite3_bind_double(statement, 17, block->own_ms);
    return finish(store, statement, cause);
}

int bench_store_put_result(struct bench_store *store, const struct bench_cell *cell,
                           const struct bench_result *result, char **cause)
{
    sqlite3_stmt *statement = prepare(
        store,
        "INSERT OR REPLACE INTO bench_result(" CELL_COLUMNS ", policy, best_fixed, verdict,"
        " time_ms, blocks, tps, tps_ci95, ratio_to_best_fixed, ratio_to_best_fixed_low,"
        " ratio_to_best_fixed_high, ratio_to_off, ratio_to_off_low, ratio_to_off_high)"
        " VALUES(" CELL_VALUES ", ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
        cell);
    const double figures[] = {result->tps,
                              result->tps_ci95,
                              result->ratio_to_best_fixed,
                              result->ratio_to_best_fixed_low,
                              result->ratio_to_best_fixed_high,
                              result->ratio_to_off,
                              result->ratio_to_off_low,
                              result->ratio_to_off_high};

    sqlite3_bind_text(statement, 6, result->policy, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 7, result->best_fixed, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 8, result->verdict, -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 9, result->time_ms);
    sqlite3_bind_int(statement, 10, result->blocks);
    for (int i = 0; i < 8; i++) sqlite3_bind_double(statement, 11 + i, figures[i]);
    return finish(store, statement, cause);
}

int bench_store_each_block(struct bench_store *store, const struct bench_cell *cell,
                           void (*take)(void *state, const char *policy,
                                        const struct bench_block *block),
                           void *state, char **cause)
{
    sqlite3_stmt *statement =
        prepare(store,
                "SELECT policy, block, time_ms, tokens, seconds, steps, drafted, admitted,"
                " accepted, draft_ms, verify_ms, own_ms FROM bench_block WHERE " CELL
                " ORDER BY policy, block",
                cell);
    int rc;

    while ((rc = sqlite3_step(statement)) == SQLITE_ROW)
        take(state, (const char *)sqlite3_column_text(statement, 0),
             &(struct bench_block){
                 .block = sqlite3_column_int(statement, 1),
                 .time_ms = sqlite3_column_int64(statement, 2),
                 .tokens = sqlite3_column_int64(statement, 3),
                 .seconds = sqlite3_column_double(statement, 4),
                 .steps = sqlite3_column_int64(statement, 5),
                 .drafted = sqlite3_column_int64(statement, 6),
                 .admitted = sqlite3_column_int64(statement, 7),
                 .accepted = sqlite3_column_int64(statement, 8),
                 .draft_ms = sqlite3_column_double(statement, 9),
                 .verify_ms = sqlite3_column_double(statement, 10),
                 .own_ms = sqlite3_column_double(statement, 11),
             });
    sqlite3_finalize(statement);
    return rc == SQLITE_DONE ? 0 : failed(store, cause);
}

static double column_real(sqlite3_stmt *statement, int column)
{
    return sqlite3_column_type(statement, column) == SQLITE_NULL
               ? NAN
               : sqlite3_column_double(statement, column);
}

int bench_store_get_ratios(struct bench_store *store, const struct bench_cell *cell,
                           const char *policy, double *to_best_fixed, double *to_off, char **cause)
{
    sqlite3_stmt *statement = prepare(store,
                                      "SELECT ratio_to_best_fixed, ratio_to_off FROM bench_result"
                                      " WHERE " CELL " AND policy = ?6",
                                      cell);
    int rc;

    *to_best_fixed = *to_off = NAN;
    sqlite3_bind_text(statement, 6, policy, -1, SQLITE_STATIC);
    rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW) {
        *to_best_fixed = column_real(statement, 0);
        *to_off = column_real(statement, 1);
    }
    sqlite3_finalize(statement);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : failed(store, cause);
}

int bench_store_forget(struct bench_store *store, const struct bench_cell *cell, char **cause)
{
    if (finish(store, prepare(store, "DELETE FROM bench_block WHERE " CELL, cell), cause) != 0)
        return -1;
    return finish(store, prepare(store, "DELETE FROM bench_result WHERE " CELL, cell), cause);
}
