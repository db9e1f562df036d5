/* rows.c - see rows.h. */
#include "config.h"

#include "storage/rows.h"

#include <math.h>
#include <stdlib.h>

#include "storage/sql.h"

enum statement {
    PUT_SAMPLE,
    PUT_POSITION,
    PUT_STRATUM,
    GET_STRATUM,
    PUT_REFIT,
    PUT_INTERCEPT,
    PUT_BIN,
    PUT_BIN_1H,
    PUT_COST,
    PUT_DECISION,
    PUT_EVENT,
    PUT_NODE,
    PUT_RUN,
    END_RUN,
    STATEMENTS
};

/* clang-format off */
#define BIN_SQL(table, unit) \
    "INSERT INTO " table "(run_id, stratum_id, " unit ", position, bin, n, sum_p, sum_y)" \
    " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO UPDATE SET n = n + excluded.n," \
    " sum_p = sum_p + excluded.sum_p, sum_y = sum_y + excluded.sum_y"

static const char *const statement_sql[STATEMENTS] = {
    [PUT_SAMPLE] =
        "INSERT INTO sample(sample_id, run_id, time_ms, mode_id, running, queued,"
        " steps, drafted, admitted, verified, accepted, emitted, target_rows,"
        " draft_us, verify_us, own_us, step_us, unpriced_us, late_us, missed_us, budget)"
        " VALUES(?1, ?2, ?3, coalesce((SELECT mode_id FROM mode WHERE name = ?4), 0), ?5, ?6,"
        " ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)",
    [PUT_POSITION] = "INSERT INTO sample_position VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    [PUT_STRATUM] = "INSERT INTO stratum(name) VALUES(?1)",
    [GET_STRATUM] = "SELECT stratum_id FROM stratum WHERE name = ?1",
    [PUT_REFIT] =
        "INSERT INTO refit(run_id, stratum_id, time_ms, kind, epoch, slope, slope_se, level,"
        " centre, drift_z, observations, reset, rejected)"
        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    [PUT_INTERCEPT] = "INSERT INTO refit_intercept VALUES(?1, ?2, ?3, ?4, ?5)",
    [PUT_BIN] = BIN_SQL("calibration", "minute"),
    [PUT_BIN_1H] = BIN_SQL("calibration_1h", "hour"),
    [PUT_COST] =
        "INSERT INTO cost(run_id, time_ms, part, tokens, requests, context_band, ms, spread_ms, n)"
        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    [PUT_DECISION] =
        "INSERT INTO decision(run_id, time_ms, who, origin, what, before, after, reason, numbers)"
        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, CASE WHEN json_valid(?9) THEN ?9 END)",
    [PUT_EVENT] =
        "INSERT INTO event(run_id, time_ms, severity, kind, text, numbers)"
        " VALUES(?1, ?2, ?3, ?4, ?5, CASE WHEN json_valid(?6) THEN ?6 END)",
    [PUT_NODE] =
        "INSERT INTO node(name, kind) VALUES(?1, ?2)"
        " ON CONFLICT(name) DO UPDATE SET kind = excluded.kind",
    [PUT_RUN] =
        "INSERT INTO run(run_id, node_id, engine, version, model, model_digest, draft,"
        " draft_digest, hardware, settings, max_draft, start_ms)"
        " VALUES(CASE WHEN EXISTS(SELECT 1 FROM run WHERE run_id = ?1) THEN NULL ELSE ?1 END,"
        " (SELECT node_id FROM node WHERE name = ?2), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    [END_RUN] =
        "UPDATE run SET end_ms = max(?2, start_ms), clean = ?3"
        " WHERE run_id = ?1 AND end_ms IS NULL",
};
/* clang-format on */

struct rows {
    sqlite3 *db;
    sqlite3_stmt *statement[STATEMENTS];
    int64_t next_sample_id; /* never that of an earlier row, not even of a deleted one: the rollup
                               counts by it */
};

struct rows *rows_open(sqlite3 *db, char **cause)
{
    struct rows *rows = calloc(1, sizeof *rows);
    if (!rows) {
        storage_fail(cause, "out of memory");
        return NULL;
    }
    rows->db = db;
    int rc = storage_sql_int(db,
                             "SELECT 1 + max(coalesce((SELECT max(sample_id) FROM sample), 0),"
                             " (SELECT value FROM rollup_state WHERE name = 'rolled_sample_id'))",
                             NULL, 0, 1, &rows->next_sample_id);
    for (int i = 0; rc == SQLITE_OK && i < STATEMENTS; i++)
        rc = sqlite3_prepare_v3(db, statement_sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                                &rows->statement[i], NULL);
    if (rc == SQLITE_OK) return rows;
    storage_fail(cause, "the store's tables cannot be used: %s", sqlite3_errmsg(db));
    rows_close(rows);
    return NULL;
}

void rows_close(struct rows *rows)
{
    if (!rows) return;
    for (int i = 0; i < STATEMENTS; i++) sqlite3_finalize(rows->statement[i]);
    free(rows);
}

/* ---- parameters. Errors of bind are those of the step that follows (a NULL where none may be) or
 * out of memory. */

static void bind_integer(sqlite3_stmt *statement, int at, int64_t value)
{
    sqlite3_bind_int64(statement, at, value);
}

/* a count; below 0 is unknown */
static void bind_count(sqlite3_stmt *statement, int at, int64_t count)
{
    if (count >= 0)
        sqlite3_bind_int64(statement, at, count);
    else
        sqlite3_bind_null(statement, at);
}

static void bind_text(sqlite3_stmt *statement, int at, const char *text)
{
    sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC); /* NULL binds NULL */
}

static void bind_real(sqlite3_stmt *statement, int at, double value)
{
    if (isfinite(value))
        sqlite3_bind_double(statement, at, value);
    else
        sqlite3_bind_null(statement, at);
}

/* value * scale as a whole number; NULL when unknown or beyond what a whole number can hold */
static void bind_scaled(sqlite3_stmt *statement, int at, double value, double scale)
{
    double scaled = value * scale;
    if (isfinite(scaled) && fabs(scaled) < 9e18)
        sqlite3_bind_int64(statement, at, (int64_t)llround(scaled));
    else
        sqlite3_bind_null(statement, at);
}

static void bind_run(sqlite3_stmt *statement, int at, int64_t run_id)
{
    if (run_id > 0)
        sqlite3_bind_int64(statement, at, run_id);
    else
        sqlite3_bind_null(statement, at);
}

static int run_statement(sqlite3_stmt *statement)
{
    int rc = sqlite3_step(statement);
    sqlite3_reset(statement);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static int count_positions(int positions)
{
    return positions < 0 ? 0 : positions > STORE_MAX_POSITIONS ? STORE_MAX_POSITIONS : positions;
}

/* ---- rows */

static int put_sample(struct rows *rows, const struct store_sample *s, int64_t run_id)
{
    sqlite3_stmt *statement = rows->statement[PUT_SAMPLE];
    int64_t sample_id = rows->next_sample_id;
    const int64_t counts[] = {s->running,  s->queued,   s->steps,   s->drafted,    s->admitted,
                              s->verified, s->accepted, s->emitted, s->target_rows};
    const double times[] = {s->draft_ms,
                            s->verify_ms,
                            s->own_ms,
                            s->step_ms,
                            s->step_ms - s->priced_ms,
                            s->priced_ms - s->predicted_ms,
                            s->missed_ms};
    bind_integer(statement, 1, sample_id);
    bind_run(statement, 2, run_id);
    bind_integer(statement, 3, s->time_ms);
    bind_text(statement, 4, s->mode);
    for (int i = 0; i < 9; i++) bind_count(statement, 5 + i, counts[i]);
    for (int i = 0; i < 7; i++) bind_scaled(statement, 14 + i, times[i], 1e3);
    bind_real(statement, 21, s->budget);
    int rc = run_statement(statement);
    if (rc != SQLITE_OK) return rc;
    rows->next_sample_id++;
    statement = rows->statement[PUT_POSITION];
    for (int k = 0; rc == SQLITE_OK && k < count_positions(s->positions); k++) {
        const struct store_position *p = &s->position[k];
        if (p->reached <= 0 || p->accepted < 0) continue; /* says nothing */
        bind_integer(statement, 1, sample_id);
        bind_integer(statement, 2, k);
        bind_integer(statement, 3, p->reached);
        bind_integer(statement, 4, p->accepted);
        bind_scaled(statement, 5, p->predicted, 1e4);
        bind_scaled(statement, 6, p->squared_error, 1e4);
        bind_scaled(statement, 7, p->log_loss, 1e4);
        rc = run_statement(statement);
    }
    return rc;
}

static int stratum_id(struct rows *rows, const char *name, int64_t *id)
{
    sqlite3_stmt *statement = rows->statement[GET_STRATUM];
    if (!name) name = "unknown";
    bind_text(statement, 1, name);
    int rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW) *id = sqlite3_column_int64(statement, 0);
    sqlite3_reset(statement);
    if (rc != SQLITE_DONE) return rc == SQLITE_ROW ? SQLITE_OK : rc;
    bind_text(rows->statement[PUT_STRATUM], 1, name);
    rc = run_statement(rows->statement[PUT_STRATUM]);
    *id = sqlite3_last_insert_rowid(rows->db);
    return rc;
}

static int put_refit(struct rows *rows, const struct store_refit *f, int64_t run_id)
{
    sqlite3_stmt *statement = rows->statement[PUT_REFIT];
    int64_t stratum = 0;
    int rc = stratum_id(rows, f->stratum, &stratum);
    if (rc != SQLITE_OK) return rc;
    const double values[] = {f->slope, f->slope_se, f->level, f->centre, f->drift_z};
    bind_run(statement, 1, run_id);
    bind_integer(statement, 2, stratum);
    bind_integer(statement, 3, f->time_ms);
    bind_text(statement, 4, f->kind);
    bind_integer(statement, 5, f->epoch);
    for (int i = 0; i < 5; i++) bind_real(statement, 6 + i, values[i]);
    bind_count(statement, 11, f->observations);
    bind_integer(statement, 12, f->reset);
    bind_text(statement, 13, f->rejected);
    rc = run_statement(statement);
    int64_t refit_id = sqlite3_last_insert_rowid(rows->db);
    statement = rows->statement[PUT_INTERCEPT];
    for (int k = 0; rc == SQLITE_OK && k < count_positions(f->positions); k++) {
        bind_integer(statement, 1, refit_id);
        bind_integer(statement, 2, k);
        bind_real(statement, 3, f->position[k].intercept);
        bind_real(statement, 4, f->position[k].intercept_se);
        bind_count(statement, 5, f->position[k].observations);
        rc = run_statement(statement);
    }
    return rc;
}

static int put_calibration(struct rows *rows, const struct store_calibration *c, int64_t run_id)
{
    int64_t stratum = 0;
    int rc = stratum_id(rows, c->stratum, &stratum);
    for (int which = PUT_BIN; rc == SQLITE_OK && which <= PUT_BIN_1H; which++) {
        sqlite3_stmt *statement = rows->statement[which];
        bind_run(statement, 1, run_id);
        bind_integer(statement, 2, stratum);
        bind_integer(statement, 3, c->time_ms / (which == PUT_BIN ? 60000 : 3600000));
        for (int k = 0; k < count_positions(c->positions); k++) {
            for (int bin = 0; rc == SQLITE_OK && bin < STORE_CALIBRATION_BINS; bin++) {
                if (c->bin[k][bin].n == 0) continue;
                bind_integer(statement, 4, k);
                bind_integer(statement, 5, bin);
                bind_integer(statement, 6, c->bin[k][bin].n);
                bind_real(statement, 7, c->bin[k][bin].sum_p);
                bind_real(statement, 8, c->bin[k][bin].sum_y);
                rc = run_statement(statement);
            }
        }
    }
    return rc;
}

static int put_cost(struct rows *rows, const struct store_cost *c, int64_t run_id)
{
    sqlite3_stmt *statement = rows->statement[PUT_COST];
    bind_run(statement, 1, run_id);
    bind_integer(statement, 2, c->time_ms);
    bind_text(statement, 3, c->part);
    bind_integer(statement, 4, c->tokens);
    bind_integer(statement, 5, c->requests);
    bind_integer(statement, 6, c->context_band);
    bind_real(statement, 7, c->ms);
    bind_real(statement, 8, c->spread_ms);
    bind_integer(statement, 9, c->n);
    return run_statement(statement);
}

static int put_decision(struct rows *rows, const struct store_decision *d, int64_t run_id)
{
    sqlite3_stmt *statement = rows->statement[PUT_DECISION];
    const char *const texts[] = {d->who,   d->origin, d->what,        d->before,
                                 d->after, d->reason, d->numbers_json};
    bind_run(statement, 1, run_id);
    bind_integer(statement, 2, d->time_ms);
    for (int i = 0; i < 7; i++) bind_text(statement, 3 + i, texts[i]);
    return run_statement(statement);
}

static int put_event(struct rows *rows, const struct store_event *e, int64_t run_id)
{
    sqlite3_stmt *statement = rows->statement[PUT_EVENT];
    bind_run(statement, 1, run_id);
    bind_integer(statement, 2, e->time_ms);
    bind_text(statement, 3, e->severity ? e->severity : "info");
    bind_text(statement, 4, e->kind ? e->kind : "unknown");
    bind_text(statement, 5, e->text);
    bind_text(statement, 6, e->numbers_json);
    return run_statement(statement);
}

int rows_put(struct rows *rows, enum queue_kind kind, const union queue_row *row, int64_t run_id)
{
    switch (kind) {
    case QUEUE_SAMPLE:
        return put_sample(rows, &row->sample, run_id);
    case QUEUE_REFIT:
        return put_refit(rows, &row->refit, run_id);
    case QUEUE_CALIBRATION:
        return put_calibration(rows, &row->calibration, run_id);
    case QUEUE_COST:
        return put_cost(rows, &row->cost, run_id);
    case QUEUE_DECISION:
        return put_decision(rows, &row->decision, run_id);
    case QUEUE_EVENT:
        return put_event(rows, &row->event, run_id);
    case QUEUE_KINDS:
        break;
    }
    return SQLITE_MISUSE;
}

int rows_begin_run(struct rows *rows, const struct store_run *run, int64_t start_ms,
                   int64_t *run_id)
{
    sqlite3_stmt *statement = rows->statement[PUT_NODE];
    bind_text(statement, 1, run->node);
    bind_text(statement, 2, run->kind);
    int rc = run_statement(statement);
    if (rc != SQLITE_OK) return rc;
    statement = rows->statement[PUT_RUN];
    const char *const texts[] = {run->node,         run->engine,       run->version,
                                 run->model,        run->model_digest, run->draft,
                                 run->draft_digest, run->hardware,     run->settings_json};
    bind_integer(statement, 1, *run_id);
    for (int i = 0; i < 9; i++) bind_text(statement, 2 + i, texts[i]);
    bind_count(statement, 11, run->max_draft);
    bind_integer(statement, 12, start_ms);
    rc = run_statement(statement);
    if (rc == SQLITE_OK) *run_id = sqlite3_last_insert_rowid(rows->db);
    return rc;
}

int rows_end_run(struct rows *rows, int64_t run_id, int64_t end_ms, bool clean)
{
    sqlite3_stmt *statement = rows->statement[END_RUN];
    bind_integer(statement, 1, run_id);
    bind_integer(statement, 2, end_ms);
    bind_integer(statement, 3, clean);
    return run_statement(statement);
}
