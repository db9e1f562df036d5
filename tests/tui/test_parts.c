/* test_parts.c - text, numbers, series, charts, screen, command line and the console's memory, each
 * alone. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/nearest.h"
#include "tui/chart.h"
#include "tui/model.h"
#include "tui/options.h"
#include "tui/screen.h"
#include "tui/series.h"
#include "tui/text.h"
#include "tui/when.h"

/* ---- text */

static void test_damaged_utf8_is_replaced(void **state)
{
    static const char *const damaged[] = {"\x80",         "\xc0\xaf",         "\xe2\x82",
                                          "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"};

    (void)state;
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        const char *at = damaged[i];

        assert_int_equal(text_next(&at), TEXT_REPLACEMENT);
        while (text_next(&at) != 0) {}
        assert_int_equal(*at, '\0');
    }
}

static void test_every_character_survives_encoding(void **state)
{
    (void)state;
    for (uint32_t c = 1; c <= 0x10ffff; c += c < 0x3000 ? 1 : 97) {
        char bytes[5];
        const char *at = bytes;

        if (c >= 0xd800 && c < 0xe000) continue;
        text_encode(c, bytes);
        assert_int_equal(text_next(&at), c);
        assert_int_equal(*at, '\0');
    }
}

static void test_control_characters_go(void **state)
{
    char out[64];

    (void)state;
    assert_string_equal(text_clean(out, sizeof out, "a\033[31mb\007\nc\td\x7f\xc2\x9b"),
                        "a[31mb c d");
    assert_string_equal(text_clean(out, sizeof out, "x\xe2\x80\xaey\xe2\x80\x8bz"),
                        "xyz"); /* U+202E, U+200B */
    assert_string_equal(text_clean(out, 4, "abcdef"), "abc");
    assert_string_equal(text_clean(out, 4, "ab\xe6\xa8\xa1"), "ab"); /* never half a character */
}

static void test_shortening_counts_columns(void **state)
{
    char out[64];

    (void)state;
    assert_string_equal(text_shorten(out, sizeof out, "abcdef", 6), "abcdef");
    assert_string_equal(text_shorten(out, sizeof out, "abcdef", 4), "abc\xe2\x80\xa6");
    for (int columns = 0; columns < 12; columns++) /* five wide characters */
        assert_true(
            text_width(text_shorten(out, sizeof out,
                                    "\xe6\xa8\xa1\xe5\x9e\x8b\xe6\xa8\xa1\xe5\x9e\x8b\xe6\xa8\xa1",
                                    columns)) <= columns);
}

static void test_numbers(void **state)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0.00"},        {412.4, "412"},     {2.314, "2.31"},   {23.44, "23.4"},
        {99.96, "100"},     {999.4, "999"},     {999.6, "1.00k"},  {1840, "1.84k"},
        {91840, "91.8k"},   {1.5e6, "1.50M"},   {0.0123, "0.012"}, {-3.14159, "-3.14"},
        {-0.0001, "0.000"}, {1e18, "1000000T"},
    };
    char out[TEXT_NUMBER];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(text_significant(out, cases[i].value), cases[i].text);
    assert_string_equal(text_significant(out, (double)NAN), "--");
    assert_string_equal(text_significant(out, (double)INFINITY), "--");
    assert_string_equal(text_decimal(out, (double)NAN, 2), "--");
    assert_string_equal(text_decimal(out, -0.001, 2), "0.00");
    assert_string_equal(text_decimal(out, 1e300, 2), "--");
    assert_string_equal(text_signed(out, 0.8, 1), "+0.8");
    assert_string_equal(text_count(out, -1), "--");
    assert_string_equal(text_count(out, 999999), "999999");
    assert_string_equal(text_count(out, INT64_MAX), "9223372T");
    assert_string_equal(text_uptime(out, 761.2), "00:12:41");
    assert_string_equal(text_uptime(out, 90061), "1d 01:01");
    assert_string_equal(text_uptime(out, -1), "--");
    assert_string_equal(text_age(out, 12.9), "12 s");
    assert_string_equal(text_age(out, 600), "10 min");
    assert_string_equal(text_clock(out, 1790000000000, true), "14:13:20");
    assert_string_equal(text_clock(out, 0, true), "--");
    assert_string_equal(text_clock(out, INT64_MAX, true), "--");
}

static void test_moments(void **state)
{
    const int64_t now_ms = INT64_C(1790000000000); /* 2026-09-21 14:13:20 UTC */
    static const struct {
        const char *text;
        int64_t ago_s; /* -1 = refused */
    } moments[] = {
        {"14:13:20", 0},
        {"14:00", 800},
        {"14:13:21", 86399}, /* yesterday's */
        {"2026-09-21", 51200},
        {"2026-09-20 14:13:20", 86400},
        {"09-21 13:13", 3620},
        {"09-22", 364 * 86400 + 51200},
        {"2h", 7200},
        {"-90s", 90},
        {"1.5d", 129600},
        {"2026-09-22", -1},
        {"", -1},
        {"25:00", -1},
        {"14:13:20x", -1},
        {"0h", -1},
        {"now", -1},
        {"99999999d", -1},
        {"2026-13-01", -1},
        {"-", -1},
    };
    int64_t out;

    (void)state;
    for (size_t i = 0; i < sizeof moments / sizeof moments[0]; i++) {
        bool known = when_parse(moments[i].text, now_ms, true, &out);

        if (known != (moments[i].ago_s >= 0) || (known && out != now_ms - moments[i].ago_s * 1000))
            fail_msg("\"%s\": %lld s ago", moments[i].text,
                     known ? (long long)(now_ms - out) / 1000 : -1);
    }
    assert_true(when_span_ms("90s") == 90000 && when_span_ms("2w") == INT64_C(1209600000));
    assert_true(when_span_ms("1.5h") == 5400000 && when_span_ms("0x2h") == -1);
    assert_true(when_span_ms("+2h") == -1 && when_span_ms(" 2h") == -1);
    assert_true(when_span_ms("2 h") == -1 && when_span_ms("h") == -1 && when_span_ms("-2h") == -1);
}

static void test_nearest_word(void **state)
{
    static const char *const words[] = {"status", "top", "nodes", "mode", "query", "export"};

    (void)state;
    assert_int_equal(nearest_index("staus", words, 6), 0);
    assert_int_equal(nearest_index("stauts", words, 6), 0);
    assert_int_equal(nearest_index("quer", words, 6), 4);
    assert_int_equal(nearest_index("expotr", words, 6), 5);
    assert_int_equal(nearest_index("zzzzzz", words, 6), -1);
    assert_int_equal(nearest_index("", words, 6), -1);
}

/* ---- series and charts */

static void test_series_is_bounded_and_ordered(void **state)
{
    struct series series = {0};

    (void)state;
    for (int i = 0; i < 3 * SERIES_POINTS; i++) assert_true(series_add(&series, i, i));
    assert_true(series.count <= SERIES_POINTS);
    assert_int_equal(series.point[series.count - 1].time_ms, 3 * SERIES_POINTS - 1);
    series_add(&series, 5, 0); /* late */
    for (int i = 1; i < series.count; i++)
        assert_true(series.point[i].time_ms > series.point[i - 1].time_ms);
    series_free(&series);
}

static void test_history_replaces_the_past_only(void **state)
{
    struct series series = {0};
    const struct series_point history[] = {{0, 1}, {10, 2}, {20, 3}};

    (void)state;
    for (int i = 0; i <= 40; i++) series_add(&series, i, 100);
    assert_true(series_merge(&series, history, 3, 10));
    assert_int_equal(series.count, 3 + 11); /* 30 .. 40 are live */
    assert_int_equal(series.point[2].time_ms, 20);
    assert_int_equal(series.point[3].time_ms, 30);
    assert_true(series.point[3].value == 100);
    series_free(&series);
}

static void test_history_larger_than_memory(void **state)
{
    struct series series = {0};
    struct series_point *history = calloc(2 * SERIES_POINTS, sizeof *history);

    (void)state;
    assert_non_null(history);
    for (int i = 0; i < 2 * SERIES_POINTS; i++) history[i] = (struct series_point){i, i};
    for (int i = 0; i < 100; i++) series_add(&series, 3 * SERIES_POINTS + i, 7);
    assert_true(series_merge(&series, history, 2 * SERIES_POINTS, 1));
    assert_int_equal(series.count, SERIES_POINTS);
    assert_int_equal(series.point[SERIES_POINTS - 1].time_ms, 3 * SERIES_POINTS + 99);
    free(history);
    series_free(&series);
}

static void test_gaps_stay_gaps(void **state)
{
    struct series series = {0};
    double bucket[10];

    (void)state;
    series_add(&series, 5, 1);
    series_add(&series, 25, 3); /* joined: 20 apart */
    series_add(&series, 75, 5); /* not joined: 50 apart */
    series_add(&series, 76, (double)NAN);
    series_add(&series, 95, 7); /* near, but a restart lies between */
    series_bucket(&series, 0, 100, 100, 30, bucket, 10);
    assert_true(bucket[0] == 1 && bucket[2] == 3 && bucket[7] == 5 && bucket[9] == 7);
    assert_true(fabs(bucket[1] - 2) < 1e-9);
    for (int i = 3; i < 7; i++) assert_true(isnan(bucket[i]));
    assert_true(isnan(bucket[8]));
    series_bucket(&series, 0, 100, 90, 30, bucket, 10);
    assert_true(isnan(bucket[9])); /* held still by pause */
    series_free(&series);
}

static void test_ranges_are_round_and_hold_all(void **state)
{
    const double noise[] = {411, 412, 413}, negative[] = {-3.2, -0.1}, unknown[] = {(double)NAN};
    struct chart_range range;

    (void)state;
    assert_true(chart_choose_range(noise, 3, 20, 0.4, &range));
    assert_true(range.low <= 411 && range.high >= 413 && range.high - range.low >= 160);
    assert_true(chart_choose_range(negative, 2, 0.1, 0, &range));
    assert_true(range.low <= -3.2 && range.high >= -0.1);
    assert_false(chart_choose_range(unknown, 1, 1, 0, &range));
}

/* Every finite bucket must light something, no unknown one may. */
static void test_curve_is_drawn_where_data_is(void **state)
{
    struct screen *screen = screen_new(3, 8, false);
    const struct rect area = {0, 0, 3, 8};
    const struct chart_range range = {0, 1};
    double bucket[16];

    (void)state;
    for (int i = 0; i < 16; i++) bucket[i] = i == 6 || i == 7 ? (double)NAN : (i % 5) / 4.0;
    chart_draw(screen, &area, CHART_CURVE, ELEMENT_CURVE, bucket, NULL, 16, &range);
    for (int col = 0; col < 8; col++) {
        bool lit = false;

        for (int row = 0; row < 3; row++) lit |= screen_cell(screen, row, col)->character != ' ';
        assert_int_equal(lit, col != 3);
    }
    screen_free(screen);
}

/* ---- screen */

static void test_nothing_is_drawn_outside_the_clip(void **state)
{
    struct screen *screen = screen_new(4, 10, false);
    const struct rect clip = {1, 2, 2, 4};

    (void)state;
    screen_clip(screen, &clip);
    for (int row = -2; row < 6; row++)
        screen_put(screen, row, -3, -1, ELEMENT_TEXT, "################");
    for (int row = 0; row < 4; row++)
        for (int col = 0; col < 10; col++)
            assert_int_equal(screen_cell(screen, row, col)->character,
                             row >= 1 && row < 3 && col >= 2 && col < 6 ? '#' : ' ');
    screen_free(screen);
}

static void test_half_a_wide_character_is_never_left(void **state)
{
    struct screen *screen = screen_new(1, 6, false);

    (void)state;
    screen_put(screen, 0, 0, -1, ELEMENT_TEXT, "\xe6\xa8\xa1\xe5\x9e\x8b\xe6\xa8\xa1");
    screen_put(screen, 0, 1, 1, ELEMENT_TEXT, "x"); /* cuts the first one */
    screen_put(screen, 0, 4, 1, ELEMENT_TEXT, "y"); /* and the last one */
    assert_int_equal(screen_cell(screen, 0, 0)->character, ' ');
    assert_int_equal(screen_cell(screen, 0, 1)->character, 'x');
    assert_int_equal(screen_cell(screen, 0, 2)->character, 0x578b);
    assert_int_equal(screen_cell(screen, 0, 3)->character, 0);
    assert_int_equal(screen_cell(screen, 0, 5)->character, ' ');
    assert_int_equal(screen_put(screen, 0, 0, 3, ELEMENT_TEXT, "\xe6\xa8\xa1\xe5\x9e\x8b"),
                     2); /* no room for both */
    screen_free(screen);
}

/* ---- command line */

static int parse(char *const *words, struct options *out, const struct verb **verb, char **cause)
{
    static char *argv[16];
    int count = 1;

    argv[0] = (char[]){"trimtab"};
    for (; words[count - 1] != NULL; count++) argv[count] = words[count - 1];
    argv[count] = NULL;
    *cause = NULL;
    return options_parse(count, argv, out, verb, cause);
}

#define WORDS(...) ((char *[]){__VA_ARGS__, NULL})
#define W(text) ((char[]){text})

static void test_command_lines(void **state)
{
    struct options options;
    const struct verb *verb;
    char *cause;

    (void)state;
    assert_int_equal(parse(WORDS(W("/run/x.sock"), W("--read-only"), W("-i"), W("500")), &options,
                           &verb, &cause),
                     0);
    assert_null(verb);
    assert_string_equal(options.endpoint, "/run/x.sock");
    assert_true(options.read_only && options.interval_ms == 500);
    assert_int_equal(
        parse(WORDS(W("mode"), W("local"), W("off"), W("--reason=x y")), &options, &verb, &cause),
        0);
    assert_string_equal(verb->name, "mode");
    assert_int_equal(options.words_count, 2);
    assert_int_equal(parse(WORDS(W("bench"), W("loop"), W("--json")), &options, &verb, &cause), 0);
    assert_int_equal(options.words_count, 2); /* its options are its own */
}

static void test_wrong_command_lines_are_explained(void **state)
{
    const struct {
        char *words[4];
        const char *part;
    } cases[] = {
        {{W("--scoket"), W("x")}, "did you mean --socket"},
        {{W("--soc=x")}, NULL}, /* a unique beginning is fine */
        {{W("staus")}, "did you mean \"status\""},
        {{W("--interval"), W("fast")}, "whole number"},
        {{W("--interval"), W("1e3")}, "decimal digits"},
        {{W("--interval"), W("0x400")}, "decimal digits"},
        {{W("--interval"), W("1")}, "from 250"},
        {{W("--interval")}, "needs a value"},
        {{W("--socket"), W("")}, "not empty"},
        {{W("--scheme"), W("pink")}, "default, safe, mono"},
        {{W("mode"), W("local")}, "use trimtab mode"},
        {{W("status"), W("--csv")}, "belongs to: query"},
        {{W("--csv")}, "needs a command"},
        {{W("-Z")}, "unknown option -Z"},
        {{W("--once=1")}, "--once"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct options options;
        const struct verb *verb;
        char *cause;
        int result = parse(cases[i].words, &options, &verb, &cause);

        if (cases[i].part == NULL) {
            assert_int_equal(result, 0);
            continue;
        }
        if (result == 0 || cause == NULL || strstr(cause, cases[i].part) == NULL)
            fail_msg("%s: %s", cases[i].words[0], cause != NULL ? cause : "was taken");
        free(cause);
    }
}

/* ---- model */

static void test_documents_of_another_schema_change_nothing(void **state)
{
    struct model *model = model_new();
    static const char *const texts[] = {"{}", "{\"schema\":\"trimtab.nodes/2\",\"nodes\":[]}",
                                        "{\"schema\":\"trimtab.nodes/1\"}", "[]"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        json_t *document = json_loads(texts[i], 0, NULL);
        char *cause = NULL;

        assert_int_equal(model_take_nodes(model, document, 0, &cause), -1);
        assert_non_null(cause);
        free(cause);
        cause = NULL;
        assert_int_equal(model_take_snapshot(model, document, 0, &cause), -1);
        assert_non_null(cause);
        free(cause);
        cause = NULL;
        assert_int_equal(model_take_decisions(model, document, &cause), -1);
        free(cause);
        json_decref(document);
    }
    assert_false(model->nodes_known || model->snapshot_known || model->decisions_known);
    model_free(model);
}

static void test_odd_documents_are_survived(void **state)
{
    struct model *model = model_new();
    static const char *const texts[] = {
        "{\"schema\":\"trimtab.history/"
        "1\",\"step_ms\":0,\"series\":{\"slope\":[1,[2],[3,null],[4,5],[4,6],[\"x\",1]],"
        "\"intercept.99\":[[1,2]]}}",
        "{\"schema\":\"trimtab.history/1\",\"series\":7}",
        "{\"schema\":\"trimtab.decisions/"
        "1\",\"decisions\":[null,5,{\"numbers\":[1]},{\"numbers\":{\"a\":null,\"b\":{\"c\":1}}}]}",
        "{\"schema\":\"trimtab.requests/"
        "1\",\"requests\":[null,{\"id\":\"12\"},{\"id\":1e300,\"age_s\":\"x\"}]}",
    };
    char *cause = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        json_t *document = json_loads(texts[i], 0, NULL);

        assert_non_null(document);
        assert_int_equal(i < 2    ? model_take_history(model, document, &cause)
                         : i == 2 ? model_take_decisions(model, document, &cause)
                                  : model_take_requests(model, document, &cause),
                         0);
        json_decref(document);
    }
    assert_int_equal(model->series[SERIES_SLOPE].count, 1);
    assert_int_equal(model->decisions_count, 4);
    assert_int_equal(model->request[1].id, 12);
    assert_true(isnan(model->request[2].age_s));
    model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damaged_utf8_is_replaced),
        cmocka_unit_test(test_every_character_survives_encoding),
        cmocka_unit_test(test_control_characters_go),
        cmocka_unit_test(test_shortening_counts_columns),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_nearest_word),
        cmocka_unit_test(test_series_is_bounded_and_ordered),
        cmocka_unit_test(test_history_replaces_the_past_only),
        cmocka_unit_test(test_history_larger_than_memory),
        cmocka_unit_test(test_gaps_stay_gaps),
        cmocka_unit_test(test_ranges_are_round_and_hold_all),
        cmocka_unit_test(test_curve_is_drawn_where_data_is),
        cmocka_unit_test(test_nothing_is_drawn_outside_the_clip),
        cmocka_unit_test(test_half_a_wide_character_is_never_left),
        cmocka_unit_test(test_command_lines),
        cmocka_unit_test(test_wrong_command_lines_are_explained),
        cmocka_unit_test(test_documents_of_another_schema_change_nothing),
        cmocka_unit_test(test_odd_documents_are_survived),
    };

    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
