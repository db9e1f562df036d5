/* test_engine.c - what is read out of metrics pages: real answers of vLLM (data/vllm), the other
 * engines' names, restarts, data parallel engines, pages that are cut or hostile.
 */
#include "config.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "controller/engine_watch.h"
#include "controller/fetch.h"
#include "controller/http_answer.h"

#define US 1000000

static char *read_file(const char *name, size_t *length)
{
    const char *source = getenv("SRC");
    static char text[1 << 18];
    char path[4096];
    FILE *file;

    snprintf(path, sizeof path, "%s/tests/controller/%s", source ? source : ".", name);
    file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s", path);
    *length = fread(text, 1, sizeof text, file);
    fclose(file);
    return text;
}

/* The page of a file: a raw answer, or the exposition itself. */
static void load(const char *name, struct engine_page *page, struct exposition *reader)
{
    struct buffer body = {0};
    char type[64], *cause = NULL;
    struct exposition own;
    size_t length;
    int status;
    char *text = read_file(name, &length);

    if (http_answer_is(text, length)) {
        if (http_answer_read(text, length, &status, type, sizeof type, &body, &cause) != 0)
            fail_msg("%s: %s", name, cause);
        assert_int_equal(status, 200);
    } else {
        buffer_add(&body, text, length);
    }
    engine_read(page, reader ? reader : &own, body.data, body.length);
    buffer_free(&body);
}

static void expect_text(const char *text, struct engine_page *page)
{
    struct exposition reader;

    engine_read(page, &reader, text, strlen(text));
}

static void expect_near(double value, double expected)
{
    if (!(fabs(value - expected) < 1e-9 * fmax(1, fabs(expected))))
        fail_msg("%.17g is not %.17g", value, expected);
}

/* ---- pages */

static void test_vllm_page(void **state)
{
    static const double at[] = {103, 88, 83, 70};
    static struct engine_page page;
    struct exposition reader;

    (void)state;
    load("data/vllm/ngram-k4-before.resp", &page, &reader);
    assert_int_equal(page.engine, ENGINE_VLLM);
    assert_string_equal(page.model, "smollm2-135m");
    assert_int_equal(page.rows, 1);
    expect_near(engine_total(&page, FIGURE_DRAFTS), 140);
    expect_near(engine_total(&page, FIGURE_DRAFTED), 558);
    expect_near(engine_total(&page, FIGURE_ACCEPTED), 344);
    expect_near(engine_total(&page, FIGURE_EMITTED), 995);
    expect_near(engine_total(&page, FIGURE_PROMPT), 1138);
    expect_near(engine_total(&page, FIGURE_REQUESTS), 28); /* over finished_reason */
    expect_near(engine_total(&page, FIGURE_STEPS), 525);   /* the histogram's count */
    expect_near(engine_total(&page, FIGURE_RUNNING), 3);
    expect_near(engine_total(&page, FIGURE_WAITING), 0);
    expect_near(engine_total(&page, FIGURE_KV), 0.008264462809917328);
    assert_true(isnan(engine_total(&page, FIGURE_VERIFIED))); /* absent is not zero */
    assert_int_equal(engine_positions(&page), 4);
    for (int k = 0; k < 4; k++) expect_near(engine_accepted_at(&page, k), at[k]);
    assert_true(engine_speculates(&page));
    assert_int_equal(page.first_token.buckets, 23);
    assert_int_equal(page.inter_token.buckets, 20);
    expect_near(page.row[0].created, 1.7960000577491e9);
    for (int i = 0; i < EXPOSITION_FAULTS; i++) assert_int_equal(reader.faults[i], 0);
    for (int i = 0; i < ENGINE_FAULTS; i++) assert_int_equal(page.faults[i], 0);
}

static void test_chunked_answer(void **state)
{
    static struct engine_page page;

    (void)state;
    load("data/vllm/ngram-k4-chunked.resp", &page, NULL);
    assert_int_equal(page.engine, ENGINE_VLLM);
    assert_int_equal(engine_positions(&page), 4);
}

static void test_no_speculation_is_unknown(void **state)
{
    static struct engine_page page;

    (void)state;
    load("data/vllm/nospec.resp", &page, NULL);
    assert_int_equal(page.engine, ENGINE_VLLM);
    assert_false(engine_speculates(&page));
    assert_true(isnan(engine_total(&page, FIGURE_DRAFTED)));
    assert_true(engine_total(&page, FIGURE_EMITTED) > 0);
}

static void test_data_parallel(void **state)
{
    static struct engine_page page;
    const struct engine_row *first, *second;

    (void)state;
    load("data/vllm/dp2-k3-before.resp", &page, NULL);
    assert_int_equal(page.rows, 2);
    first = engine_find_row(&page, "0");
    second = engine_find_row(&page, "1");
    assert_non_null(first);
    assert_non_null(second);
    expect_near(first->value[FIGURE_DRAFTS], 0);
    expect_near(second->value[FIGURE_DRAFTS], 11);
    expect_near(engine_total(&page, FIGURE_DRAFTED), 33);
    assert_true(isnan(first->value[FIGURE_RUNNING])); /* has not reported yet */
    expect_near(engine_total(&page, FIGURE_RUNNING), 2);
    assert_true(isnan(first->created)); /* none there */
}

static void test_other_engines(void **state)
{
    static struct engine_page page;
    static const struct {
        const char *file;
        enum engine engine;
        double drafted, accepted, emitted, running, waiting, kv, length, steps, verified;
    } pages[] = {
        {"llama-server", ENGINE_LLAMA_SERVER, 900, 450, 1234570, 2, 1, NAN, NAN, NAN, NAN},
        {"sglang", ENGINE_SGLANG, NAN, NAN, 4400, 6, 3, 0.5, 2.5, NAN, NAN},
        {"tensorrt-llm", ENGINE_TENSORRT_LLM, 300, 120, NAN, 5, 0, 0.62, 2.2, NAN, NAN},
        {"trimtab", ENGINE_TRIMTAB, NAN, NAN, 100, NAN, NAN, NAN, NAN, 50, 70},
    };

    (void)state;
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        const double expected[] = {pages[i].drafted, pages[i].accepted, pages[i].emitted,
                                   pages[i].running, pages[i].waiting,  pages[i].kv,
                                   pages[i].length,  pages[i].steps,    pages[i].verified};
        static const enum figure figures[] = {FIGURE_DRAFTED, FIGURE_ACCEPTED, FIGURE_EMITTED,
                                              FIGURE_RUNNING, FIGURE_WAITING,  FIGURE_KV,
                                              FIGURE_LENGTH,  FIGURE_STEPS,    FIGURE_VERIFIED};
        char name[64];

        snprintf(name, sizeof name, "corpus/metrics/%s.txt", pages[i].file);
        load(name, &page, NULL);
        assert_int_equal(page.engine, pages[i].engine);
        for (size_t k = 0; k < sizeof figures / sizeof *figures; k++) {
            double total = engine_total(&page, figures[k]);

            if (isnan(expected[k]) && !isnan(total))
                fail_msg("%s: %s is known", name, figure_name(figures[k]));
            if (!isnan(expected[k])) expect_near(total, expected[k]);
        }
    }
    assert_true(engine_counts_at_end(ENGINE_LLAMA_SERVER));
    assert_false(engine_counts_at_end(ENGINE_VLLM));
    load("corpus/metrics/llama-server.txt", &page, NULL);
    assert_int_equal(engine_positions(&page), 3);
    load("corpus/metrics/sglang.txt", &page, NULL);
    assert_int_equal(page.faults[ENGINE_COPY], 1); /* tp_rank 1 */
    expect_text("# TYPE other_total counter\nother_total 5\n", &page);
    assert_int_equal(page.engine, ENGINE_UNKNOWN);
}

/* ---- the format */

static void test_openmetrics(void **state)
{
    static struct engine_page page;
    struct exposition reader;
    size_t length;
    char *text = read_file("corpus/metrics/openmetrics.txt", &length);

    (void)state;
    assert_true(exposition_is_whole(text, length, true));
    assert_true(exposition_is_whole(text, length - 1, true)); /* the last line's end is optional */
    assert_false(exposition_is_whole(text, length - 3, true));
    load("corpus/metrics/openmetrics.txt", &page, &reader);
    expect_near(engine_total(&page, FIGURE_DRAFTS), 140);
    expect_near(engine_total(&page, FIGURE_EMITTED), 995);
    expect_near(page.row[0].created, 1520879607.789);
    assert_int_equal(page.first_token.buckets, 2);
    assert_int_equal(reader.faults[EXPOSITION_BAD_REST], 0);
    load("corpus/metrics/after-eof.txt", &page, &reader);
    expect_near(engine_total(&page, FIGURE_RUNNING), 1);
    assert_int_equal(reader.faults[EXPOSITION_AFTER_EOF], 1);
    assert_int_equal(reader.note[0].line, 3);
}

static void test_label_escapes(void **state)
{
    struct exposition reader;
    struct exposition_sample sample;
    size_t length;
    char *text = read_file("corpus/metrics/labels.txt", &length), value[64];

    (void)state;
    exposition_begin(&reader, text, length, NULL, NULL);
    assert_true(exposition_next(&reader, &sample));
    assert_true(exposition_label(&sample, "engine", value, sizeof value));
    assert_string_equal(value, "a}b,c#d");
    assert_true(exposition_label(&sample, "model_name", value, sizeof value));
    assert_string_equal(value, "say \"hi\" \\ \n end");
    assert_false(exposition_label(&sample, "name", value, sizeof value));
    expect_near(sample.value, 7);
    assert_true(exposition_next(&reader, &sample));
    assert_true(exposition_label(&sample, "engine", value, sizeof value));
    assert_string_equal(value, "1");
    expect_near(sample.value, 8);
    assert_true(exposition_next(&reader, &sample));
    assert_int_equal(sample.labels.length, 0);
    assert_true(exposition_next(&reader, &sample)); /* no blank before the value */
    expect_near(sample.value, 15);
    assert_false(exposition_next(&reader, &sample));
    assert_int_equal(reader.faults[EXPOSITION_BAD_LABELS], 4);
    assert_int_equal(reader.faults[EXPOSITION_BAD_NAME], 1);
    assert_int_equal(reader.note[0].line, 5);
}

static void test_numbers(void **state)
{
    static struct engine_page page;
    struct exposition reader;
    double value;

    (void)state;
    setlocale(LC_ALL, "de_DE.UTF-8"); /* where there is one: its comma must not matter */
    load("corpus/metrics/numbers.txt", &page, &reader);
    expect_near(engine_total(&page, FIGURE_RUNNING), 1e6 + 12 + 99999999999999999999.0);
    assert_int_equal(page.faults[ENGINE_BAD_VALUE], 5); /* NaN, both infinities, 1e999, -3 */
    assert_int_equal(reader.faults[EXPOSITION_BAD_VALUE], 5);
    assert_int_equal(reader.faults[EXPOSITION_BAD_REST], 1);
    assert_true(exposition_number("1.7960000577487597e+09", 22, &value));
    expect_near(value, 1796000057.7487597);
    assert_true(exposition_number("-0.5", 4, &value));
    expect_near(value, -0.5);
    assert_true(exposition_number("+Inf", 4, &value) && value > 0 && isinf(value));
    assert_false(exposition_number("", 0, &value));
    assert_false(exposition_number("0x1", 3, &value));
    assert_false(exposition_number("1_000", 5, &value));
    setlocale(LC_ALL, "C");
}

static void test_types_come_from_type_lines(void **state)
{
    static struct engine_page page;
    struct exposition reader;

    (void)state;
    load("corpus/metrics/types.txt", &page, &reader);
    expect_near(engine_total(&page, FIGURE_STEPS), 9);
    assert_true(isnan(engine_total(&page, FIGURE_RUNNING))); /* said to be a counter */
    assert_true(isnan(engine_total(&page, FIGURE_EMITTED))); /* said to be a gauge */
    assert_int_equal(page.faults[ENGINE_BAD_TYPE], 2);
    assert_int_equal(reader.faults[EXPOSITION_BAD_TYPE], 2);
    expect_near(engine_total(&page, FIGURE_PROMPT), 4); /* of an unknown type: as untyped */
}

static void test_bounds(void **state)
{
    static struct engine_page page;
    static char line[EXPOSITION_LINE + 64];
    struct exposition reader;

    (void)state;
    load("corpus/metrics/positions.txt", &page, NULL);
    assert_int_equal(engine_positions(&page), 32);
    assert_int_equal(page.faults[ENGINE_BAD_POSITION], 5);
    load("corpus/metrics/engines.txt", &page, NULL);
    assert_int_equal(page.rows, ENGINE_ROWS);
    assert_int_equal(page.faults[ENGINE_TOO_MANY], 6);
    memset(line, 'x', sizeof line - 1);
    memcpy(line + sizeof line - 4, " 1\n", 4);
    engine_read(&page, &reader, line, sizeof line - 1);
    assert_int_equal(reader.faults[EXPOSITION_BAD_LENGTH], 1);
}

/* ---- answers */

static void test_cut_pages_are_told(void **state)
{
    static const struct {
        const char *file, *words;
    } answers[] = {
        {"chunk-cut", "cut short"},     {"length-cut", "cut short: 28 bytes of 500"},
        {"head-cut", "cut short"},      {"chunk-too-long", "longer than its size"},
        {"chunk-huge", "not a number"}, {"gzip", "compressed"},
    };
    struct buffer body = {0};
    char type[32], *cause = NULL, name[64];
    size_t length;
    int status;
    char *text = read_file("corpus/metrics/cut-in-a-number.txt", &length);

    (void)state;
    assert_false(exposition_is_whole(text, length, false));
    assert_true(exposition_is_whole("", 0, false));
    assert_false(exposition_is_whole("", 0, true));
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        snprintf(name, sizeof name, "corpus/metrics/%s.resp", answers[i].file);
        text = read_file(name, &length);
        assert_int_equal(http_answer_read(text, length, &status, type, sizeof type, &body, &cause),
                         -1);
        if (!strstr(cause, answers[i].words)) fail_msg("%s: %s", name, cause);
    }
    free(cause);
    buffer_free(&body);
}

static void test_addresses(void **state)
{
    static const char *const good[] = {"http://host:8000", "https://h/prefix/", "http://[::1]:80",
                                       "HTTP://127.0.0.1"};
    static const char *const bad[] = {"host:8000",      "ftp://h",           "http://",
                                      "http://u:p@h",   "http://h/?x=1",     "http://h/a b",
                                      "http://h/\x80",  "https://tok@h:1/x", "file:///etc/passwd",
                                      "http:///nothing"};
    char *cause = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(remote_check_url(good[i], &cause), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(remote_check_url(bad[i], &cause), -1);
        assert_null(strstr(cause, "u:p"));
        assert_null(strstr(cause, "tok@"));
    }
    free(cause);
    assert_true(remote_is_loopback("http://127.0.0.1:8000"));
    assert_true(remote_is_loopback("http://127.9.9.9"));
    assert_true(remote_is_loopback("http://localhost:1/x"));
    assert_true(remote_is_loopback("http://[::1]:1"));
    assert_false(remote_is_loopback("http://10.0.0.1:8000"));
    assert_false(remote_is_loopback("http://127.0.0.1.example.org"));
    assert_false(remote_is_loopback("http://localhost.example.org"));
}

/* ---- successive pages */

static struct engine_watch *watch;

static int start_watch(void **state)
{
    (void)state;
    watch = engine_watch_new();
    return watch ? 0 : -1;
}

static int end_watch(void **state)
{
    (void)state;
    engine_watch_free(watch);
    return 0;
}

static void test_rates(void **state)
{
    static struct engine_page page;
    struct engine_second second, window;

    (void)state;
    load("data/vllm/ngram-k4-before.resp", &page, NULL);
    assert_int_equal(engine_watch_take(watch, &page, NAN, NULL, 0, &second), ENGINE_NEWS_FIRST);
    assert_true(second.seconds == 0);
    engine_watch_window(watch, 5, &window);
    assert_true(window.seconds == 0);
    load("data/vllm/ngram-k4-after.resp", &page, NULL);
    assert_int_equal(engine_watch_take(watch, &page, NAN, NULL, 2 * US, &second), 0);
    expect_near(second.seconds, 2);
    expect_near(second.delta[FIGURE_DRAFTS], engine_total(&page, FIGURE_DRAFTS) - 140);
    expect_near(second.delta[FIGURE_EMITTED], engine_total(&page, FIGURE_EMITTED) - 995);
    expect_near(second.accepted_at[3], engine_accepted_at(&page, 3) - 70);
    expect_near(engine_second_reached(&second, 0), second.delta[FIGURE_DRAFTS]);
    expect_near(engine_second_reached(&second, 2), second.accepted_at[1]);
    assert_true(isnan(second.delta[FIGURE_VERIFIED]));
    engine_watch_window(watch, 5, &window);
    expect_near(window.seconds, 2);
    expect_near(window.delta[FIGURE_ACCEPTED], second.delta[FIGURE_ACCEPTED]);
    assert_true(engine_watch_quantile(watch, FIGURE_FIRST_TOKEN, 0.5) > 0);
    assert_true(engine_watch_quantile(watch, FIGURE_INTER_TOKEN, 0.95) >=
                engine_watch_quantile(watch, FIGURE_INTER_TOKEN, 0.5));
    /* nothing happens: zero, and no quantile of nothing */
    for (int i = 3; i < 75; i++)
        engine_watch_take(watch, &page, NAN, NULL, (int64_t)i * US, &second);
    expect_near(second.delta[FIGURE_EMITTED], 0);
    assert_true(isnan(engine_watch_quantile(watch, FIGURE_FIRST_TOKEN, 0.5)));
    engine_watch_window(watch, 5, &window);
    expect_near(window.seconds, 5);
    expect_near(window.delta[FIGURE_EMITTED], 0);
}

static void test_admitted_by_another_account(void **state)
{
    static struct engine_page page;
    struct engine_second second, window;

    (void)state;
    load("data/vllm/ngram-k4-before.resp", &page, NULL);
    engine_watch_take(watch, &page, 7, NULL, 0, &second);
    assert_true(isnan(second.delta[FIGURE_ADMITTED])); /* the first page: since when? */
    engine_watch_take(watch, &page, NAN, NULL, US, NULL);
    for (int i = 2; i <= 4; i++) {
        page.row[0].value[FIGURE_ACCEPTED] += 20;
        engine_watch_take(watch, &page, 30, NULL, i * US, &second);
        expect_near(second.delta[FIGURE_VERIFIED], 30);
        expect_near(second.delta[FIGURE_ADMITTED], 30);
    }
    engine_watch_window(watch, 3, &window); /* a second and its window tell the same */
    expect_near(window.delta[FIGURE_VERIFIED], 90);
    expect_near(window.delta[FIGURE_ACCEPTED], 60);
    engine_watch_window(watch, 4, &window); /* a part of it is unknown: so is the whole */
    assert_true(isnan(window.delta[FIGURE_VERIFIED]) && isnan(window.delta[FIGURE_ADMITTED]));
    page.row[0].created += 60;
    assert_int_equal(engine_watch_take(watch, &page, 9, NULL, 5 * US, &second),
                     ENGINE_NEWS_RESTARTED);
    assert_true(isnan(second.delta[FIGURE_VERIFIED])); /* nothing of the process before */
}

static void test_restart_makes_no_negative_rate(void **state)
{
    static struct engine_page page;
    struct engine_second second;

    (void)state;
    load("data/vllm/ngram-k4-after.resp", &page, NULL);
    engine_watch_take(watch, &page, NAN, NULL, 0, NULL);
    load("data/vllm/ngram-k4-restarted.resp", &page, NULL);
    assert_int_equal(engine_watch_take(watch, &page, NAN, NULL, US, &second),
                     ENGINE_NEWS_RESTARTED);
    for (int i = 0; i < FIGURE_COUNTERS; i++)
        assert_true(isnan(second.delta[i]) || second.delta[i] == 0);
    /* the same values, another birth: a restart all the same */
    page.row[0].created += 60;
    page.process_start = NAN;
    assert_int_equal(engine_watch_take(watch, &page, NAN, NULL, 2 * US, &second),
                     ENGINE_NEWS_RESTARTED);
    page.row[0].value[FIGURE_EMITTED] += 10;
    assert_int_equal(engine_watch_take(watch, &page, NAN, NULL, 3 * US, &second), 0);
    expect_near(second.delta[FIGURE_EMITTED], 10);
}

static void test_one_engine_of_two_restarts(void **state)
{
    static struct engine_page page;
    struct engine_second second;

    (void)state;
    load("data/vllm/dp2-k3-after.resp", &page, NULL);
    engine_watch_take(watch, &page, NAN, NULL, 0, NULL);
    /* the sum over engines still grows, yet one began anew */
    page.row[0].value[FIGURE_EMITTED] = 3;
    page.row[1].value[FIGURE_EMITTED] += 5000;
    assert_int_equal(engine_watch_take(watch, &page, NAN, NULL, US, &second),
                     ENGINE_NEWS_RESTARTED);
    expect_near(second.delta[FIGURE_EMITTED], 5000);
}

static void test_late_engine_and_series(void **state)
{
    static struct engine_page page;
    struct engine_second second;

    (void)state;
    expect_text("vllm:generation_tokens_total{engine=\"0\"} 100\n", &page);
    engine_watch_take(watch, &page, NAN, NULL, 0, NULL);
    expect_text("vllm:generation_tokens_total{engine=\"0\"} 110\n"
                "vllm:generation_tokens_total{engine=\"1\"} 90000\n"
                "vllm:spec_decode_num_drafts_total{engine=\"0\"} 70\n",
                &page);
    assert_int_equal(engine_watch_take(watch, &page, NAN, NULL, US, &second), 0);
    expect_near(second.delta[FIGURE_EMITTED], 10);
    expect_near(second.delta[FIGURE_DRAFTS], 0);
}

static void test_broken_positions_are_told(void **state)
{
    static struct engine_page page;
    unsigned news;

    (void)state;
    load("data/vllm/draft-k5-before.resp", &page, NULL);
    assert_int_equal(engine_watch_take(watch, &page, NAN, NULL, 0, NULL), ENGINE_NEWS_FIRST);
    load("data/vllm/draft-k5-after.resp", &page, NULL); /* 477 drafts, 136 at 0, none behind */
    assert_int_equal(engine_watch_take(watch, &page, NAN, NULL, US, NULL),
                     0); /* position 1: 136 reached */
    page.row[0].value[FIGURE_DRAFTS] += 300;
    page.row[0].accepted_at[0] += 90;
    news = engine_watch_take(watch, &page, NAN, NULL, 2 * US, NULL);
    assert_int_equal(news, ENGINE_NEWS_BROKEN);
    assert_string_equal(engine_watch_trouble(watch),
                        "position 1 accepted none of its last 226 drafts");
    assert_int_equal(engine_watch_take(watch, &page, NAN, NULL, 3 * US, NULL), 0); /* told once */
    page.row[0].value[FIGURE_DRAFTS] += 500;
    page.row[0].accepted_at[0] += 250;
    page.row[0].accepted_at[1] += 100;
    assert_int_equal(engine_watch_take(watch, &page, NAN, NULL, 4 * US, NULL), ENGINE_NEWS_MENDED);
    assert_string_equal(engine_watch_trouble(watch), "");
}

static void test_all_accepted_against_a_prediction(void **state)
{
    static struct engine_page page;
    double predicted[ENGINE_POSITIONS] = {0.95, 0.5, NAN};

    (void)state;
    load("data/vllm/ngram-k4-restarted.resp", &page, NULL);
    engine_watch_take(watch, &page, NAN, predicted, 0, NULL);
    page.row[0].value[FIGURE_DRAFTS] += 1000;
    for (int k = 0; k < 4; k++) page.row[0].accepted_at[k] += k < 3 ? 1000 : 500;
    assert_int_equal(engine_watch_take(watch, &page, NAN, predicted, US, NULL), ENGINE_NEWS_BROKEN);
    assert_string_equal(engine_watch_trouble(watch),
                        "position 1 accepted all of its last 1000 drafts though 0.50 were "
                        "predicted");
}

static void test_slowdown_at_no_less_load(void **state)
{
    static struct engine_page page;
    unsigned news = 0;
    int told_s = 0;

    (void)state;
    expect_text("vllm:generation_tokens_total 0\nvllm:num_requests_running 8\n", &page);
    for (int i = 0; i < 200; i++) {
        page.row[0].value[FIGURE_EMITTED] += 1000;
        news |= engine_watch_take(watch, &page, NAN, NULL, (int64_t)i * US, NULL);
    }
    assert_false(news & ENGINE_NEWS_SLOWED);
    page.row[0].value[FIGURE_RUNNING] = 2; /* less to do: no alarm */
    for (int i = 200; i < 230; i++) {
        page.row[0].value[FIGURE_EMITTED] += 300;
        news |= engine_watch_take(watch, &page, NAN, NULL, (int64_t)i * US, NULL);
    }
    assert_false(news & ENGINE_NEWS_SLOWED);
    page.row[0].value[FIGURE_RUNNING] = 8;
    for (int i = 230; i < 280; i++) {
        page.row[0].value[FIGURE_EMITTED] += 100;
        news = engine_watch_take(watch, &page, NAN, NULL, (int64_t)i * US, NULL);
        if (news & ENGINE_NEWS_SLOWED) told_s = i;
    }
    assert_true(told_s > 230);
    assert_non_null(strstr(engine_watch_slowdown(watch), "throughput fell"));
}

static void test_quantiles(void **state)
{
    struct engine_histogram now = {3, {0.1, 1, INFINITY}, {10, 30, 40}},
                            before = {3, {0.1, 1, INFINITY}, {10, 10, 10}}, none = {0};

    (void)state;
    expect_near(engine_quantile(&now, &none, 0.25), 0.1);
    expect_near(engine_quantile(&now, &none, 0.5), 0.1 + 0.9 * 10 / 20);
    expect_near(engine_quantile(&now, &none, 1), 1); /* beyond the last bound: at least that */
    expect_near(engine_quantile(&now, &before, 0.5), 0.1 + 0.9 * 15 / 20);
    assert_true(isnan(engine_quantile(&now, &now, 0.5)));
    assert_true(isnan(engine_quantile(&none, &none, 0.5)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vllm_page),
        cmocka_unit_test(test_chunked_answer),
        cmocka_unit_test(test_no_speculation_is_unknown),
        cmocka_unit_test(test_data_parallel),
        cmocka_unit_test(test_other_engines),
        cmocka_unit_test(test_openmetrics),
        cmocka_unit_test(test_label_escapes),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_types_come_from_type_lines),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_cut_pages_are_told),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test_setup_teardown(test_rates, start_watch, end_watch),
        cmocka_unit_test_setup_teardown(test_admitted_by_another_account, start_watch, end_watch),
        cmocka_unit_test_setup_teardown(test_restart_makes_no_negative_rate, start_watch,
                                        end_watch),
        cmocka_unit_test_setup_teardown(test_one_engine_of_two_restarts, start_watch, end_watch),
        cmocka_unit_test_setup_teardown(test_late_engine_and_series, start_watch, end_watch),
        cmocka_unit_test_setup_teardown(test_broken_positions_are_told, start_watch, end_watch),
        cmocka_unit_test_setup_teardown(test_all_accepted_against_a_prediction, start_watch,
                                        end_watch),
        cmocka_unit_test_setup_teardown(test_slowdown_at_no_less_load, start_watch, end_watch),
        cmocka_unit_test(test_quantiles),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
