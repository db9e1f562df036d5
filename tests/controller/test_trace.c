/* test_trace.c - the readers of teacher-forced traces: both forms, plain and compressed; every kind
 * of damage is named with its file and line; nothing is lost on the way through a file.
 */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "controller/trace.h"

#define HEADER                                                                                     \
    "{\"schema\":\"trimtab.trace/1\",\"rule\":\"ratio\",\"temperature\":1,\"max_draft\":2}\n"
#define BEGIN "{\"text\":0,\"prompt\":\"p\"}\n"
#define ROW(index, label)                                                                          \
    "{\"text\":0,\"index\":" index ",\"token\":5,\"draft\":[5,6],\"feature\":[0.5,null],"          \
    "\"label\":" label ",\"soft\":[0.9,0.25]}\n"
#define END(length) "{\"text\":0,\"end\":" length "}\n"

static char folder[] = "/tmp/trimtab-trace-XXXXXX";

static const char *place(const char *name)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *put(const char *name, const char *text, size_t length)
{
    const char *path = place(name);
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
    return path;
}

/* Read a file of this text; *warning and *cause are the reader's. */
static struct trace_set *read_text(const char *name, const char *text, char **warning, char **cause)
{
    struct trace_set *set = trace_set_new();

    *cause = *warning = NULL;
    if (trace_read(set, put(name, text, strlen(text)), -1, warning, cause)) return set;
    trace_set_free(set);
    return NULL;
}

static void refuses(const char *text, const char *place_and_reason)
{
    char *warning, *cause;
    struct trace_set *set = read_text("bad", text, &warning, &cause);

    assert_null(set);
    assert_non_null(cause);
    if (!strstr(cause, place_and_reason))
        fail_msg("\"%s\" is not in \"%s\"", place_and_reason, cause);
    free(warning);
    free(cause);
}

static void test_text_form(void **state)
{
    char *warning, *cause;
    struct trace_set *set =
        read_text("one-t0.5.txt", "3 0 2 .1 .2 .3 .4 .5 .6\n3 1 0 1 1 1 1 1 1\n7 0 6 1 2 3 4 5 6\n",
                  &warning, &cause);
    struct trace_index at;

    (void)state;
    assert_non_null(set);
    assert_null(warning);
    assert_int_equal(set->count, 2);
    assert_int_equal(set->tokens, 3);
    assert_int_equal(set->text[0].rule, TT_POINT_MASS);
    assert_float_equal(set->text[0].temperature, 0.5, 1e-9);
    at = trace_at(set, &set->text[0], 0);
    assert_int_equal(at.accepted, 2);
    assert_float_equal(at.feature[5], 0.6, 1e-6);
    trace_set_free(set);
}

static void test_text_damage(void **state)
{
    (void)state;
    refuses("0 0 1 1 1 1 1 1\n", "bad:1: expected `text i m");
    refuses("0 0 7 1 1 1 1 1 1\n", "bad:1: expected `text i m");
    refuses("0 0 1 1 1 1 1 1 1 9\n", "bad:1: expected `text i m");
    refuses("0 0 1 inf 1 1 1 1 1\n", "bad:1: expected `text i m");
    refuses("0 0 1 1 1 1 1 1 1e4\n", "features from -1000 to 1000 or nan");
    refuses("4294967296 0 1 1 1 1 1 1 1\n", "bad:1: expected `text i m");
    refuses("-1 0 1 1 1 1 1 1 1\n", "bad:1: expected `text i m");
    refuses("0 0 1 1 1 1 1 1 1\n0 2 1 1 1 1 1 1 1\n",
            "bad:2: index 2 of text 0 where 1 comes next");
    refuses("", "is empty; give a trace");
    refuses("\n\n", "no text in it");
}

static void test_json_damage(void **state)
{
    (void)state;
    refuses("{\"schema\":\"other/1\"}\n", "bad:1: the schema is \"other/1\"");
    refuses("{}\n", "bad:1: the schema is missing");
    refuses("{\"schema\":\"trimtab.record/1\",\"step\":1}\n", "bad:1: a record of decisions");
    refuses(
        "{\"schema\":\"trimtab.trace/1\",\"rule\":\"ratio\",\"temperature\":0,\"max_draft\":2}\n",
        "bad:1: temperature must be");
    refuses(
        "{\"schema\":\"trimtab.trace/1\",\"rule\":\"greedy\",\"temperature\":0,\"max_draft\":99}\n",
        "bad:1: max_draft must be an integer from 1 to 32");
    refuses(HEADER "{\"text\":0,\"prompt\":7}\n", "bad:2: prompt must be a string");
    refuses(HEADER ROW("0", "[1,0]"), "bad:2: text 0 has not begun");
    refuses(HEADER BEGIN ROW("1", "[1,0]"), "bad:3: index 1 of text 0 where 0 comes next");
    refuses(HEADER BEGIN ROW("0", "[0,1]"), "bad:3: label must be 1 for what is accepted");
    refuses(HEADER BEGIN ROW("0", "[0.5,null]"), "bad:3: label must be 1 for what is accepted");
    refuses(HEADER BEGIN ROW("0", "[1]"), "bad:3: label must be an array of 2 numbers");
    refuses(HEADER BEGIN ROW("0", "[1,0]") END("2"), "bad:4: text 0 ends at 2, but 1 indices");
    refuses(HEADER BEGIN BEGIN, "bad:3: text 0 has no end before text 0 begins");
    refuses(HEADER BEGIN "nonsense\n", "bad:3: not JSON");
    refuses(HEADER BEGIN "[1]\n", "bad:3: not a JSON object");
}

static void test_missing_file(void **state)
{
    struct trace_set *set = trace_set_new();
    char *warning, *cause = NULL;

    (void)state;
    assert_false(trace_read(set, place("none"), -1, &warning, &cause));
    assert_non_null(strstr(cause, "No such file"));
    free(cause);
    trace_set_free(set);
}

static void test_depths_do_not_mix(void **state)
{
    struct trace_set *set = trace_set_new();
    char *warning, *cause = NULL;
    const char *text = "0 0 1 1 1 1 1 1 1\n", *json = HEADER BEGIN ROW("0", "[1,0]") END("1");

    (void)state;
    assert_true(trace_read(set, put("a.txt", text, strlen(text)), -1, &warning, &cause));
    assert_false(trace_read(set, put("b", json, strlen(json)), -1, &warning, &cause));
    assert_non_null(strstr(cause, "b:1: max_draft is 2 where the files before it have 6"));
    free(cause);
    trace_set_free(set);
}

/* A last line that was being written when its writer died costs that line's text, with a warning.
 */
static void test_cut_short(void **state)
{
    char *warning, *cause;
    struct trace_set *set =
        read_text("cut.txt", "0 0 2 1 1 1 1 1 1\n0 1 0 1 1 1", &warning, &cause);

    (void)state;
    assert_non_null(set);
    assert_int_equal(set->tokens, 1);
    assert_non_null(strstr(warning, "cut.txt:2: the last line is cut short"));
    free(warning);
    trace_set_free(set);

    set = read_text("cut",
                    HEADER BEGIN ROW("0", "[1,0]") END("1") "{\"text\":1,\"prompt\":\"q\"}\n"
                                                            "{\"text\":1,\"ind",
                    &warning, &cause);
    assert_non_null(set);
    assert_int_equal(set->count, 1);
    assert_int_equal(set->tokens, 1);
    assert_non_null(strstr(warning, "cut:6: the last line is cut short"));
    free(warning);
    trace_set_free(set);

    set =
        read_text("cut", HEADER BEGIN ROW("0", "[1,0]") END("1") "{\"text\":1,\"prompt\":\"q\"}\n",
                  &warning, &cause);
    assert_non_null(set);
    assert_int_equal(set->count, 1);
    assert_non_null(strstr(warning, "the last text has no end"));
    free(warning);
    trace_set_free(set);
}

/* A text whose first line is wrong and has no end holds nothing, so that it must not be there: a
 * replay would begin at an index of it. */
static void test_cut_at_a_begin(void **state)
{
    char *warning, *cause;
    struct trace_set *set =
        read_text("cut.txt", "0 0 2 1 1 1 1 1 1\n1 5 0 1 1 1 1 1 1", &warning, &cause);

    (void)state;
    assert_non_null(set);
    assert_int_equal(set->count, 1);
    assert_int_equal(set->tokens, 1);
    free(warning);
    trace_set_free(set);

    set = read_text("cut.txt", "3 5 0 1 1 1 1 1 1", &warning, &cause);
    assert_null(set);
    assert_non_null(strstr(cause, "no text in it"));
    free(warning);
    free(cause);
}

/* What stands behind a NUL would be passed over in silence. */
static void test_nul(void **state)
{
    static const char middle[] = "0 0 2 1 1 1 1 1 1\0 x\n0 1 0 1 1 1 1 1 1\n",
                      end[] = "0 0 2 1 1 1 1 1 1\n0 1 0 1 1 1 1 1 1\0 x\n";
    const char *const text[] = {middle, end};
    const size_t size[] = {sizeof middle - 1, sizeof end - 1};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct trace_set *set = trace_set_new();
        char *warning, *cause = NULL;

        assert_false(trace_read(set, put("bad", text[i], size[i]), -1, &warning, &cause));
        assert_non_null(strstr(cause, "not a line of text"));
        free(cause);
        trace_set_free(set);
    }
}

static void test_compressed(void **state)
{
    struct trace_set *set = trace_set_new();
    char *warning, *cause = NULL, packed[4096];
    gzFile zipped = gzopen(place("z.gz"), "wb");
    FILE *file;
    size_t length;

    (void)state;
    for (int i = 0; i < 500; i++)
        gzprintf(zipped, "0 %d %d %d 1 1 1 1 1\n", i, i % 7, i * 7919 % 97);
    assert_int_equal(gzclose(zipped), Z_OK);
    assert_true(trace_read(set, place("z.gz"), -1, &warning, &cause));
    assert_null(warning);
    assert_int_equal(set->tokens, 500);
    trace_set_free(set);

    file = fopen(place("z.gz"), "r");
    length = fread(packed, 1, sizeof packed, file);
    fclose(file);
    set = trace_set_new();
    assert_true(trace_read(set, put("half.gz", packed, length / 2), -1, &warning, &cause));
    assert_in_range(set->tokens, 1, 499);
    assert_non_null(warning);
    free(warning);
    trace_set_free(set);
}

/* What the writer writes is what the reader returns, bit by bit. */
static void test_round_trip(void **state)
{
    const int32_t draft[3] = {4, 0, 49151};
    const float feature[3] = {0.1f, -15.9999f, NAN}, soft[3] = {0.3333333f, 1.f, NAN};
    struct trace_index index = {.accepted = 1,
                                .labelled = 2,
                                .drafted = 3,
                                .token = 17,
                                .draft = draft,
                                .feature = feature,
                                .soft = soft},
                       at;
    struct trace_set *set = trace_set_new();
    char *warning, *cause = NULL;
    FILE *file = fopen(place("trip"), "w");

    (void)state;
    fprintf(file,
            "{\"schema\":\"%s\",\"rule\":\"ratio\",\"temperature\":0.7,\"max_draft\":3,"
            "\"more\":[]}\n",
            TRACE_SCHEMA);
    assert_true(trace_write_text(file, 4, "say \"hello\"\n\xc3\xa9"));
    assert_true(trace_write_index(file, 4, 0, 3, &index));
    index.accepted = 1;
    index.labelled = 1; /* the text ends here */
    assert_true(trace_write_index(file, 4, 1, 3, &index));
    assert_true(trace_write_end(file, 4, 2));
    fclose(file);
    assert_true(trace_read(set, place("trip"), -1, &warning, &cause));
    assert_null(warning);
    assert_int_equal(set->depth, 3);
    assert_int_equal(set->text[0].rule, TT_RATIO);
    assert_string_equal(set->text[0].prompt, "say \"hello\"\n\xc3\xa9");
    at = trace_at(set, &set->text[0], 0);
    assert_int_equal(at.accepted, 1);
    assert_int_equal(at.token, 17);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(at.draft[k], draft[k]);
        assert_true(at.feature[k] == feature[k] || (isnan(at.feature[k]) && isnan(feature[k])));
        assert_true(at.soft[k] == soft[k] || (isnan(at.soft[k]) && isnan(soft[k])));
    }
    assert_int_equal(at.labelled, 2);
    at = trace_at(set, &set->text[0], 1);
    assert_int_equal(at.accepted, 1);
    assert_int_equal(at.labelled, 1);
    trace_set_free(set);
}

static int clean_up(void **state)
{
    static const char *const names[] = {"bad", "one-t0.5.txt", "a.txt",   "b",   "cut.txt",
                                        "cut", "z.gz",         "half.gz", "trip"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(place(names[i]));
    return rmdir(folder);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_form),         cmocka_unit_test(test_text_damage),
        cmocka_unit_test(test_json_damage),       cmocka_unit_test(test_missing_file),
        cmocka_unit_test(test_depths_do_not_mix), cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_cut_at_a_begin),    cmocka_unit_test(test_nul),
        cmocka_unit_test(test_compressed),        cmocka_unit_test(test_round_trip),
    };

    return cmocka_run_group_tests(tests, make_folder, clean_up);
}
