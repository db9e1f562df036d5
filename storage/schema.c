/* schema.c - see schema.h.
 *
 * Sizes decide the forms. Times inside a second are whole microseconds, sums over labels are
 * ten-thousandths (…_e4): SQLite stores a small integer in one to four bytes and a double in eight,
 * and a week of 16 nodes with 16 positions has to stay under 300 MB. Ids grow with time, so that
 * the newest rows are one range of the tree.
 */
#include "config.h"

#include "storage/schema.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "storage/sql.h"
#include "storage/views.h"

/* clang-format off */
/* Sums that a second, a minute and an hour of a node share. */
#define COUNTS                                                                                     \
    " steps INTEGER NOT NULL, drafted INTEGER NOT NULL, admitted INTEGER NOT NULL,"                \
    " verified INTEGER NOT NULL, accepted INTEGER NOT NULL, emitted INTEGER NOT NULL,"             \
    " target_rows INTEGER NOT NULL,"                                                               \
    " draft_us INTEGER, verify_us INTEGER, own_us INTEGER, step_us INTEGER"
#define POSITION_SUMS                                                                              \
    " reached INTEGER NOT NULL, accepted INTEGER NOT NULL, predicted_e4 INTEGER,"                  \
    " squared_error_e4 INTEGER, log_loss_e4 INTEGER"
#define ROLLUP(period, unit)                                                                       \
    "CREATE TABLE sample_" period "("                                                              \
    " run_id INTEGER NOT NULL REFERENCES run, " unit " INTEGER NOT NULL,"                          \
    " mode_id INTEGER NOT NULL REFERENCES mode,"                                                   \
    " seconds INTEGER NOT NULL, busy_seconds INTEGER NOT NULL,"                                    \
    " running_sum INTEGER NOT NULL, queued_sum INTEGER NOT NULL," COUNTS ","                       \
    " PRIMARY KEY(run_id, " unit ", mode_id)) STRICT, WITHOUT ROWID;"                              \
    "CREATE TABLE sample_" period "_position("                                                     \
    " run_id INTEGER NOT NULL REFERENCES run, " unit " INTEGER NOT NULL,"                          \
    " position INTEGER NOT NULL," POSITION_SUMS ","                                                \
    " PRIMARY KEY(run_id, " unit ", position)) STRICT, WITHOUT ROWID;"
#define CALIBRATION(table, unit)                                                                   \
    "CREATE TABLE " table "("                                                                      \
    " run_id INTEGER NOT NULL REFERENCES run, stratum_id INTEGER NOT NULL REFERENCES stratum,"     \
    " " unit " INTEGER NOT NULL, position INTEGER NOT NULL, bin INTEGER NOT NULL,"                 \
    " n INTEGER NOT NULL, sum_p REAL, sum_y REAL,"                                                 \
    " PRIMARY KEY(run_id, stratum_id, " unit ", position, bin)) STRICT, WITHOUT ROWID;"

static const char version_1[] =
    "CREATE TABLE node("
    " node_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL) STRICT;"
    "CREATE TABLE run("
    " run_id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL REFERENCES node,"
    " engine TEXT, version TEXT, model TEXT, model_digest TEXT, draft TEXT, draft_digest TEXT,"
    " hardware TEXT, settings TEXT, max_draft INTEGER,"
    " start_ms INTEGER NOT NULL, end_ms INTEGER, clean INTEGER) STRICT;"
    "CREATE INDEX run_by_node ON run(node_id, start_ms);"
    "CREATE INDEX run_open ON run(run_id) WHERE end_ms IS NULL;"
    "CREATE TABLE mode(mode_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;"
    "INSERT INTO mode VALUES"
    "(0, 'unknown'), (1, 'off'), (2, 'fixed'), (3, 'adaptive'), (4, 'shadow');"
    "CREATE TABLE stratum(stratum_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;"
    /* seconds */
    "CREATE TABLE sample("
    " sample_id INTEGER PRIMARY KEY, run_id INTEGER NOT NULL REFERENCES run,"
    " time_ms INTEGER NOT NULL, mode_id INTEGER NOT NULL REFERENCES mode,"
    " running INTEGER NOT NULL, queued INTEGER NOT NULL," COUNTS ", budget REAL) STRICT;"
    "CREATE INDEX sample_by_time ON sample(run_id, time_ms);"
    "CREATE TABLE sample_position("
    " sample_id INTEGER NOT NULL REFERENCES sample ON DELETE CASCADE,"
    " position INTEGER NOT NULL," POSITION_SUMS ","
    " PRIMARY KEY(sample_id, position)) STRICT, WITHOUT ROWID;"
    /* minutes (UTC ms / 60000) and hours */
    ROLLUP("1m", "minute")
    ROLLUP("1h", "hour")
    /* how far the rollup got, and from when each tier is complete */
    "CREATE TABLE rollup_state("
    " name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "INSERT INTO rollup_state VALUES('rolled_sample_id', 0), ('second_from_ms', 0),"
    " ('minute_from_ms', 0), ('minute_position_from_ms', 0), ('calibration_from_ms', 0),"
    " ('thin_until_ms', 0), ('thinned_refit_id', 0),"
    " ('sparse_until_ms', 0), ('sparse_refit_id', 0),"
    " ('position_from_id', 0), ('cost_from_id', 0), ('event_from_id', 0),"
    " ('decision_from_id', 0);"
    /* what was learned */
    "CREATE TABLE refit("
    " refit_id INTEGER PRIMARY KEY, run_id INTEGER NOT NULL REFERENCES run,"
    " stratum_id INTEGER NOT NULL REFERENCES stratum, time_ms INTEGER NOT NULL, kind TEXT,"
    " epoch INTEGER NOT NULL, slope REAL, slope_se REAL, level REAL, centre REAL, drift_z REAL,"
    " observations INTEGER NOT NULL, reset INTEGER NOT NULL, rejected TEXT) STRICT;"
    "CREATE INDEX refit_by_time ON refit(run_id, stratum_id, time_ms);"
    "CREATE TABLE refit_intercept("
    " refit_id INTEGER NOT NULL REFERENCES refit ON DELETE CASCADE, position INTEGER NOT NULL,"
    " intercept REAL, intercept_se REAL, observations INTEGER NOT NULL,"
    " PRIMARY KEY(refit_id, position)) STRICT, WITHOUT ROWID;"
    CALIBRATION("calibration", "minute")
    CALIBRATION("calibration_1h", "hour")
    "CREATE TABLE cost("
    " cost_id INTEGER PRIMARY KEY, run_id INTEGER NOT NULL REFERENCES run,"
    " time_ms INTEGER NOT NULL, part TEXT NOT NULL, tokens INTEGER NOT NULL,"
    " requests INTEGER NOT NULL, context_band INTEGER NOT NULL,"
    " ms REAL, spread_ms REAL, n INTEGER NOT NULL) STRICT;"
    "CREATE INDEX cost_cell ON cost(run_id, part, tokens, requests, context_band, cost_id);"
    /* what was done and what happened */
    "CREATE TABLE decision("
    " decision_id INTEGER PRIMARY KEY, run_id INTEGER REFERENCES run, time_ms INTEGER NOT NULL,"
    " who TEXT, origin TEXT, what TEXT NOT NULL, before TEXT, after TEXT, reason TEXT,"
    " numbers TEXT) STRICT;"
    "CREATE INDEX decision_by_time ON decision(time_ms);"
    "CREATE INDEX decision_mode ON decision(run_id, time_ms) WHERE what = 'mode';"
    "CREATE TABLE event("
    " event_id INTEGER PRIMARY KEY, run_id INTEGER REFERENCES run, time_ms INTEGER NOT NULL,"
    " severity TEXT NOT NULL, kind TEXT NOT NULL, text TEXT, numbers TEXT) STRICT;"
    "CREATE INDEX event_by_time ON event(time_ms);"
    /* a mode change's effect, kept when the seconds that it was computed from are gone */
    "CREATE TABLE toggle_result("
    " decision_id INTEGER PRIMARY KEY REFERENCES decision ON DELETE CASCADE,"
    " seconds_before INTEGER NOT NULL, seconds_after INTEGER NOT NULL,"
    " tps_before REAL, tps_after REAL, gain REAL, gain_low REAL, gain_high REAL,"
    " step_ms_before REAL, step_ms_after REAL) STRICT;";

/* what the load benchmark measured (bench.h) */
#define BENCH_CELL                                                                                 \
    " bench_configuration_id INTEGER NOT NULL REFERENCES bench_configuration,"                     \
    " form TEXT NOT NULL, mix TEXT NOT NULL, temperature REAL NOT NULL,"                           \
    " concurrency INTEGER NOT NULL, policy TEXT NOT NULL,"
static const char version_2[] =
    "CREATE TABLE bench_configuration("
    " bench_configuration_id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;"
    "CREATE TABLE bench_block(" BENCH_CELL
    " block INTEGER NOT NULL, time_ms INTEGER NOT NULL, tokens INTEGER NOT NULL, seconds REAL,"
    " steps INTEGER NOT NULL, drafted INTEGER NOT NULL, admitted INTEGER NOT NULL,"
    " accepted INTEGER NOT NULL, draft_ms REAL, verify_ms REAL, own_ms REAL,"
    " PRIMARY KEY(bench_configuration_id, form, mix, temperature, concurrency, policy, block))"
    " STRICT, WITHOUT ROWID;"
    "CREATE TABLE bench_result(" BENCH_CELL
    " best_fixed TEXT, verdict TEXT, time_ms INTEGER NOT NULL, blocks INTEGER NOT NULL,"
    " tps REAL, tps_ci95 REAL, ratio_to_best_fixed REAL, ratio_to_best_fixed_low REAL,"
    " ratio_to_best_fixed_high REAL, ratio_to_off REAL, ratio_to_off_low REAL,"
    " ratio_to_off_high REAL,"
    " PRIMARY KEY(bench_configuration_id, form, mix, temperature, concurrency, policy))"
    " STRICT, WITHOUT ROWID;";

/* Predicted step time against measured: of the step time, what was not priced (NULL: nothing was);
 * of the rest, measured less predicted, and the sum of both deviations. Small numbers take few
 * bytes. */
#define PRICES(table)                                                                              \
    "ALTER TABLE " table " ADD COLUMN unpriced_us INTEGER;"                                        \
    "ALTER TABLE " table " ADD COLUMN late_us INTEGER;"                                            \
    "ALTER TABLE " table " ADD COLUMN missed_us INTEGER;"
static const char version_3[] = PRICES("sample") PRICES("sample_1m") PRICES("sample_1h");

/* A count that an engine does not tell is NULL, not 0. ALTER TABLE cannot drop a NOT NULL, so the
 * tables are made anew. Until now engines in other processes had 0 for what only trimtab's own
 * nodes tell. */
#define KNOWN_COUNTS                                                                               \
    " steps INTEGER, drafted INTEGER, admitted INTEGER, verified INTEGER, accepted INTEGER,"       \
    " emitted INTEGER, target_rows INTEGER,"                                                       \
    " draft_us INTEGER, verify_us INTEGER, own_us INTEGER, step_us INTEGER"
#define KNOWN_PRICES ", unpriced_us INTEGER, late_us INTEGER, missed_us INTEGER"
#define REPLACE(table)                                                                             \
    "INSERT INTO " table "_4 SELECT * FROM " table ";"                                             \
    "DROP TABLE " table "; ALTER TABLE " table "_4 RENAME TO " table ";"
#define KNOWN_ROLLUP(period, unit)                                                                 \
    "CREATE TABLE sample_" period "_4("                                                            \
    " run_id INTEGER NOT NULL REFERENCES run, " unit " INTEGER NOT NULL,"                          \
    " mode_id INTEGER NOT NULL REFERENCES mode,"                                                   \
    " seconds INTEGER NOT NULL, busy_seconds INTEGER NOT NULL,"                                    \
    " running_sum INTEGER, queued_sum INTEGER," KNOWN_COUNTS KNOWN_PRICES ","                      \
    " PRIMARY KEY(run_id, " unit ", mode_id)) STRICT, WITHOUT ROWID;" REPLACE("sample_" period)
#define NEVER_TOLD(table)                                                                          \
    "UPDATE " table " SET admitted = NULL, verified = NULL, target_rows = NULL WHERE run_id IN"    \
    " (SELECT run_id FROM run JOIN node USING (node_id) WHERE kind = 'vllm'"                       \
    "  AND engine IS NOT 'trimtab');"
static const char version_4[] =
    "CREATE TABLE sample_4("
    " sample_id INTEGER PRIMARY KEY, run_id INTEGER NOT NULL REFERENCES run,"
    " time_ms INTEGER NOT NULL, mode_id INTEGER NOT NULL REFERENCES mode,"
    " running INTEGER, queued INTEGER," KNOWN_COUNTS ", budget REAL" KNOWN_PRICES ") STRICT;"
    REPLACE("sample")
    "CREATE INDEX sample_by_time ON sample(run_id, time_ms);"
    KNOWN_ROLLUP("1m", "minute") KNOWN_ROLLUP("1h", "hour")
    NEVER_TOLD("sample") NEVER_TOLD("sample_1m") NEVER_TOLD("sample_1h")
    "CREATE TABLE refit_4("
    " refit_id INTEGER PRIMARY KEY, run_id INTEGER NOT NULL REFERENCES run,"
    " stratum_id INTEGER NOT NULL REFERENCES stratum, time_ms INTEGER NOT NULL, kind TEXT,"
    " epoch INTEGER NOT NULL, slope REAL, slope_se REAL, level REAL, centre REAL, drift_z REAL,"
    " observations INTEGER, reset INTEGER NOT NULL, rejected TEXT) STRICT;"
    REPLACE("refit")
    "CREATE INDEX refit_by_time ON refit(run_id, stratum_id, time_ms);"
    "CREATE TABLE refit_intercept_4("
    " refit_id INTEGER NOT NULL REFERENCES refit ON DELETE CASCADE, position INTEGER NOT NULL,"
    " intercept REAL, intercept_se REAL, observations INTEGER,"
    " PRIMARY KEY(refit_id, position)) STRICT, WITHOUT ROWID;"
    REPLACE("refit_intercept");
/* clang-format on */

static const char *const steps_sql[] = {version_1, version_2, version_3, version_4};
const struct schema_steps schema_steps = {steps_sql, sizeof steps_sql / sizeof *steps_sql};

static enum schema_state state_of_error(sqlite3 *db, const char *path, char **cause)
{
    int rc = sqlite3_errcode(db) & 0xff;
    if (rc == SQLITE_NOTADB || rc == SQLITE_CORRUPT) {
        storage_fail(cause, "%s is damaged: %s", path, sqlite3_errmsg(db));
        return SCHEMA_DAMAGED;
    }
    storage_fail(cause, "%s cannot be read: %s", path, sqlite3_errmsg(db));
    return SCHEMA_ERROR;
}

enum schema_state schema_inspect(sqlite3 *db, const char *path, const struct schema_steps *steps,
                                 int *version, char **cause)
{
    int64_t application = 0, user_version = 0, objects = 0;
    *version = 0;
    if (storage_sql_int(db, "PRAGMA application_id", NULL, 0, 0, &application) ||
        storage_sql_int(db, "PRAGMA user_version", NULL, 0, 0, &user_version) ||
        storage_sql_int(db, "SELECT count(*) FROM sqlite_schema", NULL, 0, 0, &objects))
        return state_of_error(db, path, cause);
    if (application == 0 && user_version == 0 && objects == 0) return SCHEMA_EMPTY;
    if (application != SCHEMA_APPLICATION_ID) {
        storage_fail(cause, "%s is a database of another program; give trimtab a file of its own",
                     path);
        return SCHEMA_FOREIGN;
    }
    *version = (int)user_version;
    if (user_version > steps->count) {
        storage_fail(cause,
                     "%s was written by a newer trimtab (schema %d, this one knows up to %d); "
                     "install that version again or give another file",
                     path, (int)user_version, steps->count);
        return SCHEMA_NEWER;
    }
    if (user_version < 1 || objects == 0) {
        storage_fail(cause, "%s is damaged: its tables are missing", path);
        return SCHEMA_DAMAGED;
    }
    return user_version < steps->count ? SCHEMA_OLDER : SCHEMA_CURRENT;
}

/* The first free name PATH.schema-V[.N].bak: an earlier backup is never overwritten. */
static char *backup_name(const char *path, int version)
{
    char *name = NULL;
    for (int i = 0; i < 1000; i++) {
        if ((i == 0 ? asprintf(&name, "%s.schema-%d.bak", path, version)
                    : asprintf(&name, "%s.schema-%d.%d.bak", path, version, i)) < 0)
            return NULL;
        if (access(name, F_OK) != 0) return name;
        free(name);
    }
    return NULL;
}

static int copy_database(sqlite3 *from, const char *to, char **cause)
{
    sqlite3 *db = NULL;
    int rc = sqlite3_open_v2(to, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_backup *backup = sqlite3_backup_init(db, "main", from, "main");
        if (backup) {
            rc = sqlite3_backup_step(backup, -1);
            sqlite3_backup_finish(backup);
            rc = rc == SQLITE_DONE ? SQLITE_OK : rc;
        } else {
            rc = sqlite3_errcode(db);
        }
        /* the copy stands alone: no -wal beside it */
        if (rc == SQLITE_OK) rc = storage_sql_run(db, "PRAGMA journal_mode = DELETE", NULL, 0);
    }
    if (rc != SQLITE_OK)
        storage_fail(cause,
                     "cannot make the backup %s before the migration: %s; nothing was changed", to,
                     sqlite3_errstr(rc));
    sqlite3_close(db);
    if (rc != SQLITE_OK) unlink(to);
    return rc == SQLITE_OK ? 0 : -1;
}

static int run_steps(sqlite3 *db, const struct schema_steps *steps, int version)
{
    char pragma[64];
    int rc = views_drop(db);
    for (int i = version; rc == SQLITE_OK && i < steps->count; i++)
        rc = sqlite3_exec(db, steps->sql[i], NULL, NULL, NULL);
    if (rc == SQLITE_OK) rc = views_create(db);
    if (rc == SQLITE_OK) {
        snprintf(pragma, sizeof pragma, "PRAGMA user_version = %d", steps->count);
        rc = sqlite3_exec(db, pragma, NULL, NULL, NULL);
    }
    if (rc == SQLITE_OK) {
        snprintf(pragma, sizeof pragma, "PRAGMA application_id = %d", SCHEMA_APPLICATION_ID);
        rc = sqlite3_exec(db, pragma, NULL, NULL, NULL);
    }
    return rc;
}

int schema_migrate(sqlite3 *db, const char *path, const struct schema_steps *steps, int version,
                   char **backup, char **cause)
{
    char *copy = NULL;
    if (version > 0) {
        copy = backup_name(path, version);
        if (!copy) return storage_fail(cause, "no free name for a backup of %s", path);
        if (copy_database(db, copy, cause) != 0) {
            free(copy);
            return -1;
        }
    }
    /* A step may rebuild a table: foreign keys are checked once, at the end. The switch only works
     * outside. */
    int rc = sqlite3_exec(db, "PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc == SQLITE_OK) rc = run_steps(db, steps, version);
    int64_t orphans = 0;
    if (rc == SQLITE_OK)
        rc = storage_sql_int(db, "SELECT count(*) FROM pragma_foreign_key_check", NULL, 0, 0,
                             &orphans);
    if (rc == SQLITE_OK && orphans == 0) rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (rc != SQLITE_OK || orphans > 0) {
        storage_fail(cause, "%s %s from schema %d to %d: %s; the file is as it was",
                     version ? "cannot migrate" : "cannot create", path, version, steps->count,
                     orphans ? "rows would lose what they refer to" : sqlite3_errmsg(db));
        if (!sqlite3_get_autocommit(db)) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
        if (copy) unlink(copy); /* nothing changed: the copy says nothing new */
        free(copy);
        copy = NULL;
        rc = SQLITE_ERROR;
    }
    sqlite3_exec(db, "PRAGMA foreign_keys = ON", NULL, NULL, NULL);
    if (backup)
        *backup = copy;
    else
        free(copy);
    return rc == SQLITE_OK ? 0 : -1;
}

int schema_create(sqlite3 *db)
{
    return run_steps(db, &schema_steps, 0);
}
