/* test_reader.c - the read-only half: what a query may not do, its limits, what it prints, and
 * reading beside a daemon, after its death, and in a folder that cannot be written.
 */
#include "config.h"

#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "storage/reader.h"
#include "storage/schema.h"
#include "storage/sql.h"
#include "tests/storage/place.h"

static bool count_row(void *state, int columns, const char *const *names,
                      const struct reader_value *values)
{
    (void)columns;
    (void)names;
    if (values) (*(int64_t *)state)++;
    return true;
}

/* ---- what a query may not do */

static void only_reading_is_allowed(void **state)
{
    struct place *place = *state;
    static const char *const refused[] = {"INSERT INTO node VALUES(9, 'x', 'y')",
                                          "DELETE FROM run",
                                          "UPDATE run SET clean = 1",
                                          "UPDATE sqlite_schema SET sql = ''",
                                          "UPDATE sqlite_master SET sql = ''",
                                          "DROP TABLE sample",
                                          "DROP VIEW throughput",
                                          "CREATE TABLE x(y)",
                                          "CREATE TEMP TABLE x(y)",
                                          "CREATE TEMP VIEW x AS SELECT 1",
                                          "ALTER TABLE node RENAME TO nodes",
                                          "REINDEX",
                                          "ANALYZE",
                                          "VACUUM",
                                          "VACUUM INTO '/dev/shm/trimtab-never'",
                                          "ATTACH '/dev/shm/trimtab-never' AS x",
                                          "DETACH main",
                                          "BEGIN",
                                          "COMMIT",
                                          "ROLLBACK",
                                          "SAVEPOINT x",
                                          "PRAGMA journal_mode = DELETE",
                                          "PRAGMA user_version = 7",
                                          "PRAGMA writable_schema = 1",
                                          "PRAGMA wal_checkpoint",
                                          "PRAGMA query_only = 0",
                                          "PRAGMA temp_store_directory = '/'",
                                          "PRAGMA trusted_schema = 1",
                                          "PRAGMA cache_size = 1000000",
                                          "PRAGMA integrity_check",
                                          "PRAGMA optimize",
                                          "SELECT load_extension('x')",
                                          "SELECT load_extension('x', 'y')",
                                          "SELECT * FROM pragma_integrity_check",
                                          "EXPLAIN DELETE FROM run",
                                          "WITH x AS (SELECT 1) DELETE FROM run",
                                          "INSERT INTO node SELECT * FROM node RETURNING 1",
                                          "DELETE FROM run RETURNING run_id",
                                          "CREATE VIRTUAL TABLE x USING fts5(y)",
                                          "SELECT fts3_tokenizer('simple')",
                                          "SELECT 1; SELECT 2",
                                          "SELECT 1; DELETE FROM run",
                                          "SELECT 1;;DELETE FROM run",
                                          "SELECT 1; nonsense",
                                          "",
                                          "   ",
                                          "-- nothing",
                                          ";",
                                          "nonsense",
                                          "SELECT * FROM nowhere",
                                          "SELECT nothing_like_it FROM runs"};
    struct reader *reader = place_reader(place);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        int64_t rows = 0;
        char *cause = NULL;
        enum reader_end end =
            reader_query(reader, refused[i], NULL, 0, NULL, count_row, &rows, &cause);
        if (end != READER_ERROR || !cause || !*cause || rows) fail_msg("allowed: %s", refused[i]);
        free(cause);
    }
    reader_close(reader);
    assert_int_equal(access("/dev/shm/trimtab-never", F_OK), -1);
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM sample"), 100);
    assert_int_equal(place_integer(place->path, "PRAGMA user_version"), schema_steps.count);
}

static void reading_is_allowed(void **state)
{
    static const char *const allowed[] = {
        "SELECT * FROM throughput",
        "select 1;",
        " SELECT 1 ; -- the end",
        "SELECT 1 /* a */ ; /* b */ ;",
        "VALUES(1)",
        "WITH RECURSIVE n(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM n LIMIT 5) SELECT x FROM n",
        "SELECT sum(x) OVER (ORDER BY x) FROM (SELECT 1 AS x)",
        "SELECT json_extract('{\"a\":1}', '$.a')",
        "SELECT value FROM json_each('[1,2]')",
        "PRAGMA user_version",
        "PRAGMA table_info(sample)",
        "SELECT name FROM pragma_table_info('throughput')",
        "SELECT name FROM sqlite_schema",
        "EXPLAIN QUERY PLAN SELECT 1",
        "SELECT sqrt(4), exp(0), datetime(0, 'unixepoch'), printf('%d', 3)",
        "SELECT a.node FROM runs a, runs b"};
    struct reader *reader = place_reader(*state);
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        int64_t rows = 0;
        char *cause = NULL;
        if (reader_query(reader, allowed[i], NULL, 0, NULL, count_row, &rows, &cause) !=
                READER_DONE ||
            rows < 1)
            fail_msg("%s: %s", allowed[i], cause ? cause : "no rows");
    }
    reader_close(reader);
}

static void errors_help(void **state)
{
    struct reader *reader = place_reader(*state);
    int64_t rows = 0;
    char *cause = NULL;
    assert_int_equal(
        reader_query(reader, "SELECT * FROM acceptance", NULL, 0, NULL, count_row, &rows, &cause),
        READER_ERROR);
    assert_non_null(strstr(cause, "acceptance_by_position")); /* the views that there are */
    free(cause);
    assert_int_equal(
        reader_query(reader, "DELETE FROM run", NULL, 0, NULL, count_row, &rows, &cause),
        READER_ERROR);
    assert_non_null(strstr(cause, "only reading"));
    free(cause);
    /* the refusal before is not the reason of the next error */
    assert_int_equal(reader_query(reader, "SELEC 1", NULL, 0, NULL, count_row, &rows, &cause),
                     READER_ERROR);
    assert_non_null(strstr(cause, "syntax error"));
    free(cause);
    struct reader_value bind[2] = {{.type = READER_INTEGER, .integer = 1}, {.type = READER_NULL}};
    assert_int_equal(reader_query(reader, "SELECT ?1", bind, 2, NULL, count_row, &rows, &cause),
                     READER_ERROR);
    assert_non_null(strstr(cause, "2 values for 1"));
    free(cause);
    reader_close(reader);
}

/* ---- limits */

static void limits_end_a_query(void **state)
{
    struct reader *reader = place_reader(*state);
    static const char endless[] =
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT %s FROM n";
    char sql[160], *cause = NULL;
    int64_t rows = 0, begin_ms = storage_monotonic_ms();
    struct reader_limits limits = {.time_ms = 50, .rows = 10};
    snprintf(sql, sizeof sql, endless, "count(*)"); /* never a row */
    assert_int_equal(reader_query(reader, sql, NULL, 0, &limits, count_row, &rows, &cause),
                     READER_TIME_LIMIT);
    assert_in_range(storage_monotonic_ms() - begin_ms, 45, 2000);
    assert_int_equal(rows, 0);
    snprintf(sql, sizeof sql, endless, "x");
    assert_int_equal(reader_query(reader, sql, NULL, 0, &limits, count_row, &rows, &cause),
                     READER_ROW_LIMIT);
    assert_int_equal(rows, 10);
    rows = 0; /* exactly as many as allowed is not too many */
    assert_int_equal(reader_query(reader, "SELECT * FROM throughput LIMIT 10", NULL, 0, &limits,
                                  count_row, &rows, &cause),
                     READER_DONE);
    assert_int_equal(rows, 10);
    assert_null(cause);
    /* memory has a limit, too */
    limits.time_ms = 5000;
    assert_int_equal(reader_query(reader, "SELECT length(randomblob(900000000))", NULL, 0, &limits,
                                  count_row, &rows, &cause),
                     READER_ERROR);
    free(cause);
    reader_close(reader);
}

/* ---- printing */

static char *print(struct reader *reader, const char *sql, enum reader_format format,
                   int64_t most_rows, enum reader_end wanted)
{
    char *text = NULL, *cause = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    struct reader_limits limits = {.time_ms = 5000, .rows = most_rows};
    enum reader_end end = reader_print(reader, sql, &limits, format, out, &cause);
    if (end == READER_ERROR) fail_msg("%s", cause);
    assert_int_equal(end, wanted);
    fclose(out);
    return text;
}

static void assert_prints(struct reader *reader, const char *sql, enum reader_format format,
                          const char *expected)
{
    char *text = print(reader, sql, format, 0, READER_DONE);
    assert_string_equal(text, expected);
    free(text);
}

static void tables_line_up(void **state)
{
    struct reader *reader = place_reader(*state);
    assert_prints(
        reader,
        "SELECT 'a' AS name, 1 AS n, 0.5 AS share UNION ALL SELECT 'longer name', 1234567, NULL"
        " UNION ALL SELECT NULL, -3, 1234.56789",
        READER_TABLE,
        "name               n    share\n"
        "-----------  -------  -------\n"
        "a                  1      0.5\n"
        "longer name  1234567       --\n"
        "--                -3  1234.57\n");
    assert_prints(reader, "SELECT 1 AS a WHERE 0", READER_TABLE, "a\n-\n");
    /* from outside: nothing reaches the terminal that would act on it */
    assert_prints(reader,
                  "SELECT char(27) || '[2J' AS a, 'x' || char(10) || 'y' AS b, x'00ff' AS c, "
                  "CAST(x'61ff' AS TEXT) AS d",
                  READER_TABLE,
                  "a        b     c          d\n"
                  "-------  ----  ---------  -----\n"
                  "\\x1b[2J  x\\ny  (2 bytes)  a\\xff\n");
    reader_close(reader);
}

static void long_tables_flow(void **state)
{
    struct reader *reader = place_reader(*state);
    char *text = print(reader,
                       "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < "
                       "12000) SELECT x, 'r' AS r"
                       " FROM n",
                       READER_TABLE, 0, READER_DONE);
    int lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++) lines++;
    assert_int_equal(lines, 12002);
    assert_non_null(strstr(text, "\n12000  r\n"));
    free(text);
    reader_close(reader);
}

static void csv_is_rfc_4180(void **state)
{
    struct reader *reader = place_reader(*state);
    assert_prints(
        reader,
        "SELECT 'a,b' AS \"x,y\", 'say \"hi\"' AS q, 'two' || char(10) || 'lines' AS l, '' AS "
        "empty, NULL AS none,"
        " 0.1 AS r, 1.0 / 3 AS third, -7 AS i, x'0aff' AS b",
        READER_CSV,
        "\"x,y\",q,l,empty,none,r,third,i,b\n"
        "\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\",\"\",,0.1,0.3333333333333333,-7,0aff\n");
    reader_close(reader);
}

static void json_is_valid(void **state)
{
    struct reader *reader = place_reader(*state);
    static const char sql[] = "SELECT 'q\"\\' || char(10, 9, 1, 127, 228, 128512) AS text, "
                              "CAST(x'ff61c3' AS TEXT) AS broken, 1 AS a, 2 AS a,"
                              " NULL AS n, 9e999 AS inf, 0.1 AS r, 9007199254740993 AS big, "
                              "x'00ff' AS bytes UNION ALL SELECT 'b', 'c', 3, 4,"
                              " 5, 6, 7, 8, 9";
    json_error_t error;
    char *text = print(reader, sql, READER_JSON, 0, READER_DONE);
    json_t *rows = json_loads(text, 0, &error);
    if (!rows) fail_msg("%s in %s", error.text, text);
    assert_int_equal(json_array_size(rows), 2);
    json_t *row = json_array_get(rows, 0);
    assert_string_equal(json_string_value(json_object_get(row, "text")),
                        "q\"\\\n\t\x01\x7f\xc3\xa4\xf0\x9f\x98\x80");
    assert_string_equal(json_string_value(json_object_get(row, "broken")), "\xef\xbf\xbd"
                                                                           "a\xef\xbf\xbd");
    assert_int_equal(json_integer_value(json_object_get(row, "a")), 1);
    assert_int_equal(json_integer_value(json_object_get(row, "a_2")), 2);
    assert_true(json_is_null(json_object_get(row, "n")));
    assert_true(json_is_null(json_object_get(row, "inf")));
    assert_true(json_real_value(json_object_get(row, "r")) == 0.1);
    assert_true(json_integer_value(json_object_get(row, "big")) == 9007199254740993);
    assert_string_equal(json_string_value(json_object_get(row, "bytes")), "00ff");
    json_decref(rows);
    free(text);
    assert_prints(reader, "SELECT 1 AS a WHERE 0", READER_JSON, "[]\n");
    assert_prints(reader, "SELECT 1 AS a UNION ALL SELECT NULL", READER_JSONL,
                  "{\"a\":1}\n{\"a\":null}\n");
    reader_close(reader);
}

static void limits_are_told_and_json_stays_valid(void **state)
{
    struct reader *reader = place_reader(*state);
    char *text = print(reader, "SELECT time_ms FROM throughput", READER_JSON, 7, READER_ROW_LIMIT);
    json_t *rows = json_loads(text, 0, NULL);
    assert_int_equal(json_array_size(rows), 7);
    json_decref(rows);
    free(text);
    reader_close(reader);
}

static void a_full_output_is_an_error(void **state)
{
    struct reader *reader = place_reader(*state);
    char *cause = NULL;
    FILE *full = fopen("/dev/full", "we");
    if (!full) skip();
    assert_int_equal(
        reader_print(reader, "SELECT * FROM throughput", NULL, READER_CSV, full, &cause), -1);
    assert_string_equal(cause, "cannot write the result: No space left on device");
    free(cause);
    fclose(full);
    reader_close(reader);
}

/* ---- opening */

static void assert_not_opened(const char *path, const char *expected)
{
    char *cause = NULL;
    assert_null(reader_open(path, &cause));
    if (!strstr(cause, expected)) fail_msg("%s", cause);
    free(cause);
}

static void what_is_no_store_is_told(void **state)
{
    struct place *place = *state;
    char *name = place_name(place, "other");
    assert_not_opened(name, "there is no store");
    FILE *file = fopen(name, "we");
    fclose(file);
    assert_not_opened(name, "is empty");
    file = fopen(name, "we");
    fprintf(file, "%4096d", 1);
    fclose(file);
    assert_not_opened(name, "is damaged");
    unlink(name);
    sqlite3 *db = NULL;
    sqlite3_open(name, &db);
    sqlite3_exec(db, "CREATE TABLE x(y)", NULL, NULL, NULL);
    sqlite3_close(db);
    assert_not_opened(name, "another program");
    assert_not_opened(place->folder, "");
    place_execute(place->path, "PRAGMA user_version = 99");
    assert_not_opened(place->path, "newer trimtab");
    free(name);
}

static void odd_names_work(void **state)
{
    struct place *place = *state;
    char *name = place_name(place, "100% odd?mode=rw#name.db");
    assert_int_equal(rename(place->path, name), 0);
    char *cause = NULL;
    struct reader *reader = reader_open(name, &cause);
    if (!reader) fail_msg("%s", cause);
    reader_close(reader);
    free(name);
}

/* Run `work` as a user without rights, whoever runs the test. */
static void as_nobody(int (*work)(const struct place *place), const struct place *place)
{
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && setuid(65534) != 0) _exit(90);
        _exit(work(place));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int count_hundred(const struct place *place)
{
    char *cause = NULL;
    int64_t rows = 0;
    struct reader *reader = reader_open(place->path, &cause);
    if (!reader) return 91;
    if (reader_query(reader, "SELECT * FROM throughput", NULL, 0, NULL, count_row, &rows, &cause) !=
        READER_DONE)
        return 92;
    reader_close(reader);
    return rows == 100 ? 0 : 93;
}

static int refuse_with_advice(const struct place *place)
{
    char *cause = NULL;
    if (reader_open(place->path, &cause)) return 94;
    return strstr(cause, "not closed cleanly") ? 0 : 95;
}

static void reads_in_a_read_only_folder(void **state)
{
    struct place *place = *state;
    assert_int_equal(chmod(place->path, 0444), 0);
    assert_int_equal(chmod(place->folder, 0555), 0);
    as_nobody(count_hundred, place);
    /* with rows in a WAL that cannot be read there, it says so instead of leaving them out */
    char *wal = place_name(place, "t.db-wal");
    assert_int_equal(chmod(place->folder, 0755), 0);
    FILE *file = fopen(wal, "we");
    fprintf(file, "%64d", 1);
    fclose(file);
    assert_int_equal(chmod(place->folder, 0555), 0);
    as_nobody(refuse_with_advice, place);
    free(wal);
}

static void reads_beside_a_daemon_and_after_its_death(void **state)
{
    struct place *place = *state;
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct store *store = place_open(place);
        int64_t run = place_begin(store, "local");
        struct store_sample sample;
        place_sample(&sample, run, 100, 2);
        store_put_sample(store, &sample);
        if (!store_flush(store) || write(ready[1], "y", 1) != 1) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    for (int pass = 0; pass < 2; pass++) {
        struct reader *reader = place_reader(place);
        int64_t rows = 0;
        char *cause = NULL;
        assert_int_equal(reader_query(reader, "SELECT * FROM throughput", NULL, 0, NULL, count_row,
                                      &rows, &cause),
                         READER_DONE);
        assert_int_equal(rows, 101);
        reader_close(reader);
        if (pass == 0) {
            int status;
            kill(child, SIGKILL);
            assert_int_equal(waitpid(child, &status, 0), child);
        }
    }
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_reading_is_allowed, place_setup_samples,
                                        place_teardown),
        cmocka_unit_test_setup_teardown(reading_is_allowed, place_setup_samples, place_teardown),
        cmocka_unit_test_setup_teardown(errors_help, place_setup_samples, place_teardown),
        cmocka_unit_test_setup_teardown(limits_end_a_query, place_setup_samples, place_teardown),
        cmocka_unit_test_setup_teardown(tables_line_up, place_setup_samples, place_teardown),
        cmocka_unit_test_setup_teardown(long_tables_flow, place_setup_samples, place_teardown),
        cmocka_unit_test_setup_teardown(csv_is_rfc_4180, place_setup_samples, place_teardown),
        cmocka_unit_test_setup_teardown(json_is_valid, place_setup_samples, place_teardown),
        cmocka_unit_test_setup_teardown(limits_are_told_and_json_stays_valid, place_setup_samples,
                                        place_teardown),
        cmocka_unit_test_setup_teardown(a_full_output_is_an_error, place_setup_samples,
                                        place_teardown),
        cmocka_unit_test_setup_teardown(what_is_no_store_is_told, place_setup_samples,
                                        place_teardown),
        cmocka_unit_test_setup_teardown(odd_names_work, place_setup_samples, place_teardown),
        cmocka_unit_test_setup_teardown(reads_in_a_read_only_folder, place_setup_samples,
                                        place_teardown),
        cmocka_unit_test_setup_teardown(reads_beside_a_daemon_and_after_its_death,
                                        place_setup_samples, place_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
