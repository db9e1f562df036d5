/* test_docs.c - docs/sql.md is true: every view has its section with exactly its columns, and every
 * example runs.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "storage/reader.h"
#include "storage/views.h"
#include "tests/storage/place.h"

static char *page; /* docs/sql.md */
static struct place place;

static int make(void **state)
{
    (void)state;
    char name[4096];
    const char *source = getenv("SRC");
    snprintf(name, sizeof name, "%s/docs/sql.md", source ? source : ".");
    FILE *file = fopen(name, "re");
    if (!file) return -1;
    page = calloc(1, 1 << 16);
    size_t size = fread(page, 1, (1 << 16) - 1, file);
    fclose(file);
    place_make(&place);
    struct store *store = place_open(&place);
    int64_t run = place_begin(store, "local");
    struct store_sample sample;
    struct store_refit refit;
    struct store_calibration calibration;
    for (int i = 0; i < 240; i++) {
        place_sample(&sample, run, i, 3);
        store_put_sample(store, &sample);
    }
    for (int i = 0; i < 20; i++) {
        place_refit(&refit, run, i, 3);
        refit.reset = i == 10;
        store_put_refit(store, &refit);
        store_put_cost(
            store, &(struct store_cost){run, PLACE_START_MS, "verify", i, 1, 0, 10.0 + i, 1, 5});
    }
    place_calibration(&calibration, run, 0, 3);
    store_put_calibration(store, &calibration);
    store_put_decision(store,
                       &(struct store_decision){run, PLACE_START_MS + 120500, "uid 0", "socket",
                                                "mode", "fixed", "adaptive", NULL, NULL});
    store_put_event(store,
                    &(struct store_event){0, PLACE_START_MS, "warning", "store", "a gap", NULL});
    bool flushed = store_flush(store);
    store_close(store);
    flushed = flushed && place_bench(&place);
    return size > 0 && flushed ? 0 : -1;
}

static int clean(void **state)
{
    (void)state;
    free(page);
    place_remove(&place);
    return 0;
}

struct result {
    char columns[4096];
    int rows;
};

static bool take_row(void *state, int columns, const char *const *names,
                     const struct reader_value *values)
{
    struct result *result = state;
    if (values) {
        result->rows++;
        return true;
    }
    for (int i = 0; i < columns; i++) {
        strcat(result->columns, i ? " " : "");
        strcat(result->columns, names[i]);
    }
    return true;
}

static void run_query(const char *sql, struct result *result)
{
    char *cause = NULL;
    const struct reader_limits limits = {5000, 1000};
    *result = (struct result){.rows = 0};
    struct reader *reader = reader_open(place.path, &cause);
    if (!reader) fail_msg("%s", cause);
    if (reader_query(reader, sql, NULL, 0, &limits, take_row, result, &cause) != READER_DONE)
        fail_msg("%s\n%s", sql, cause ? cause : "a limit was hit");
    reader_close(reader);
}

static void every_example_runs_and_finds_rows(void **state)
{
    (void)state;
    int examples = 0;
    for (const char *at = page; (at = strstr(at, "```sql\n")); examples++) {
        at += strlen("```sql\n");
        const char *end = strstr(at, "```");
        assert_non_null(end);
        char *sql = strndup(at, (size_t)(end - at));
        struct result result;
        run_query(sql, &result);
        if (result.rows == 0) fail_msg("no rows from\n%s", sql);
        free(sql);
        at = end + 3;
    }
    assert_true(examples >= views_count);
}

static void every_view_is_described(void **state)
{
    (void)state;
    for (int i = 0; i < views_count; i++) {
        char heading[128], sql[128], listed[4096] = "", *to = listed;
        struct result result;
        snprintf(heading, sizeof heading, "\n## %s\n", views[i].name);
        const char *section = strstr(page, heading);
        if (!section) fail_msg("docs/sql.md has no section on %s", views[i].name);
        const char *from = strstr(section, "Columns: `");
        assert_non_null(from);
        for (from += strlen("Columns: `"); *from && *from != '`'; from++)
            *to++ = *from == '\n' ? ' ' : *from;
        *to = '\0';
        snprintf(sql, sizeof sql, "SELECT * FROM %s", views[i].name);
        run_query(sql, &result);
        assert_string_equal(result.columns, listed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_example_runs_and_finds_rows),
        cmocka_unit_test(every_view_is_described),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
