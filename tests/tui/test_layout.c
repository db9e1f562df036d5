/* test_layout.c - the layout's promises at every size, the key table's, and that every view draws
 * at any size. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tui/keys.h"
#include "tui/layout.h"
#include "tui/ui.h"

#define MOST_ROWS 80
#define MOST_COLS 250

static void check_parts(const struct layout *layout, int rows, int cols)
{
    static unsigned char owner[MOST_ROWS][MOST_COLS];

    memset(owner, 0, sizeof owner);
    for (int i = 0; i < LAYOUT_PARTS; i++) {
        const struct rect *r = &layout->part[i];

        if (r->rows == 0 || r->cols == 0) continue;
        if (r->rows < 0 || r->cols < 0 || r->row < 0 || r->col < 0 || r->row + r->rows > rows ||
            r->col + r->cols > cols)
            fail_msg("part %d leaves the %dx%d screen", i, cols, rows);
        for (int row = r->row; row < r->row + r->rows; row++) {
            for (int col = r->col; col < r->col + r->cols; col++) {
                if (owner[row][col] != 0)
                    fail_msg("parts %d and %d overlap at %d,%d of %dx%d", owner[row][col] - 1, i,
                             row, col, cols, rows);
                owner[row][col] = (unsigned char)(i + 1);
            }
        }
    }
}

static void test_no_overlap_and_none_outside(void **state)
{
    static const int positions[] = {0, 1, 6, 16, 32};

    (void)state;
    for (int rows = 1; rows <= MOST_ROWS; rows++) {
        for (int cols = 1; cols <= MOST_COLS; cols++) {
            for (int i = 0; i < 5; i++) {
                struct layout layout;

                layout_compute(LAYOUT_OVERVIEW, rows, cols, positions[i], 0, &layout);
                if (cols % 10 == 0 || cols < 3)
                    check_parts(&layout, rows, cols); /* cells: rows matter, cols are all alike */
                assert_int_equal(layout.part[LAYOUT_TOO_SMALL].rows,
                                 rows < LAYOUT_MIN_ROWS || cols < LAYOUT_MIN_COLS);
                if (rows >= LAYOUT_MIN_ROWS && cols >= LAYOUT_MIN_COLS) {
                    assert_int_equal(layout.part[LAYOUT_HEADER].rows, 1);
                    assert_int_equal(layout.part[LAYOUT_FOOTER].row, rows - 1);
                    assert_true(layout.part[LAYOUT_POSITIONS].rows >= 3);
                }
            }
        }
        for (int detail = 0; detail < 60; detail += 7) {
            struct layout layout;

            layout_compute(LAYOUT_LIST, rows, 80, 0, detail, &layout);
            check_parts(&layout, rows, 80);
            layout_compute(LAYOUT_LIST_DETAIL, rows, 80, 0, detail, &layout);
            check_parts(&layout, rows, 80);
        }
    }
}

static void test_taller_never_loses_a_part(void **state)
{
    (void)state;
    for (int positions = 1; positions <= 16; positions++) {
        struct layout before;

        layout_compute(LAYOUT_OVERVIEW, LAYOUT_MIN_ROWS, 80, positions, 0, &before);
        for (int rows = LAYOUT_MIN_ROWS + 1; rows <= MOST_ROWS; rows++) {
            struct layout layout;

            layout_compute(LAYOUT_OVERVIEW, rows, 80, positions, 0, &layout);
            for (int i = 0; i < LAYOUT_PARTS; i++)
                if (before.part[i].rows > 0 && layout.part[i].rows == 0)
                    fail_msg("part %d is there at %d rows and gone at %d", i, rows - 1, rows);
            before = layout;
        }
    }
}

static void test_columns_stay_apart(void **state)
{
    (void)state;
    for (int cols = LAYOUT_MIN_COLS; cols <= MOST_COLS; cols++) {
        struct layout_span span[LAYOUT_COLUMNS];
        int end = 0;

        layout_positions(cols, span);
        for (int i = 0; i < LAYOUT_COLUMNS; i++) {
            if (span[i].cols == 0) continue;
            if (span[i].col < end || span[i].col + span[i].cols > cols)
                fail_msg("column %d is misplaced at %d columns", i, cols);
            end = span[i].col + span[i].cols + 1;
        }
        assert_true(span[COLUMN_BAR].cols >= 5);
        assert_true(span[COLUMN_N].cols > 0);
    }
}

static void test_no_key_means_two_things(void **state)
{
    (void)state;
    for (int i = 0; i < key_bindings_count; i++)
        for (int j = 0; j < key_bindings_count; j++)
            for (int a = 0; a < 3; a++)
                for (int b = 0; b < 3; b++) {
                    uint32_t key = key_bindings[i].key[a];

                    if ((i == j && a == b) || key == 0 || key != key_bindings[j].key[b]) continue;
                    if ((key_bindings[i].views & key_bindings[j].views) != 0)
                        fail_msg("key %#x is \"%s\" and \"%s\"", key, key_bindings[i].shown,
                                 key_bindings[j].shown);
                }
}

static void test_function_keys_have_a_letter(void **state)
{
    (void)state;
    for (int i = 0; i < key_bindings_count; i++) {
        const struct key_binding *binding = &key_bindings[i];
        bool function = false, letter = false;

        for (int a = 0; a < 3; a++) {
            function |= binding->key[a] >= KEY_CODE_F1 && binding->key[a] <= KEY_CODE_F10;
            letter |= binding->key[a] > ' ' && binding->key[a] < 0x7f;
        }
        if (function && !letter) fail_msg("\"%s\" has a function key only", binding->shown);
        assert_true(binding->shown == NULL || binding->text != NULL);
        assert_true(binding->shown == NULL ||
                    strlen(binding->text) <= 62); /* the help screen at 80 columns */
    }
}

static json_t *load(const char *name)
{
    const char *source = getenv("SRC");
    char path[4096];
    json_error_t error;
    json_t *document;

    snprintf(path, sizeof path, "%s/tests/tui/data/%s", source != NULL ? source : ".", name);
    document = json_load_file(path, 0, &error);
    if (document == NULL) fail_msg("%s: %s", path, error.text);
    return document;
}

/* Every view, prompt and state at sizes over the whole range: nothing may be drawn out of bounds
 * (ASan watches). */
static void test_every_view_draws_at_any_size(void **state)
{
    static const char *const files[] = {"fleet.json",      "history.json",     "decisions.json",
                                        "requests.json",   "calibration.json", "cost.json",
                                        "snapshot-16.json"};
    static const char *const keys = "123456/7?";

    (void)state;
    for (int ascii = 0; ascii <= 1; ascii++) {
        const struct ui_options options = {.utc = true, .ascii = ascii != 0, .interval_ms = 1000};
        struct ui *ui = ui_new(&options);
        struct screen *screen = screen_new(1, 1, ascii != 0);
        char *cause = NULL;

        assert_non_null(ui);
        assert_non_null(screen);
        ui_set_time(ui, 0, 1790000000000);
        for (int i = 0; i < 8; i++) { /* 0: nothing is known yet */
            json_t *document = i > 0 ? load(files[i - 1]) : NULL;

            if (i == 1) assert_int_equal(model_take_nodes(ui_model(ui), document, 0, &cause), 0);
            if (i == 2) assert_int_equal(model_take_history(ui_model(ui), document, &cause), 0);
            if (i == 3) assert_int_equal(model_take_decisions(ui_model(ui), document, &cause), 0);
            if (i == 4) assert_int_equal(model_take_requests(ui_model(ui), document, &cause), 0);
            if (i == 5) assert_int_equal(model_take_calibration(ui_model(ui), document, &cause), 0);
            if (i == 6) assert_int_equal(model_take_cost(ui_model(ui), document, &cause), 0);
            if (i == 7) assert_int_equal(model_take_snapshot(ui_model(ui), document, 0, &cause), 0);
            ui_data_arrived(ui);
            json_decref(document);
            for (const char *key = keys; *key != '\0' && (i == 0 || i == 7); key++) {
                ui_key(ui, (unsigned char)*key);
                for (int rows = 1; rows <= MOST_ROWS; rows += rows < 40 ? 1 : 5)
                    for (int cols = 1; cols <= MOST_COLS;
                         cols += cols >= 57 && cols < 140 ? 3 : 13) {
                        assert_true(screen_resize(screen, rows, cols));
                        ui_draw(ui, screen);
                    }
                if (*key == '/') ui_key(ui, KEY_CODE_ESCAPE);
                ui_key(ui, 'G');
                ui_draw(ui, screen);
                ui_key(ui, 'g');
            }
            ui_key(ui, '1');
        }
        ui_free(ui);
        screen_free(screen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_overlap_and_none_outside),
        cmocka_unit_test(test_taller_never_loses_a_part),
        cmocka_unit_test(test_columns_stay_apart),
        cmocka_unit_test(test_no_key_means_two_things),
        cmocka_unit_test(test_function_keys_have_a_letter),
        cmocka_unit_test(test_every_view_draws_at_any_size),
    };

    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
