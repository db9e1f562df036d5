/* verb_inspect.c - inspect: what the daemon's scraper understands of a page of metrics, series by
 * series, and what it leaves out and why. See verbs.h.
 *
 * The page comes from an engine, from a file, or from standard input; a raw HTTP answer with its
 * headers is taken apart first. Uses the scraper's own reader (controller/engine_table.h), so that
 * what is said here is what a node would see.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "controller/engine_table.h"
#include "controller/fetch.h"
#include "controller/http_answer.h"
#include "controller/json_number.h"
#include "controller/secret.h"
#include "tui/session.h"
#include "tui/text.h"
#include "tui/verbs.h"

#define DEADLINE_MS 10000
#define NOT_IN_TABLE 1000000 /* a choice that engine_take does not know */
#define SERIES_MAX 300       /* bytes shown of one */
#define SERIES_COLS 78

struct page { /* what is looked at */
    const char *source;
    struct buffer body;
    bool openmetrics;
};

struct inspection {
    const struct page *page;
    struct engine_page counts;
    struct exposition reader;
    bool whole;
    json_t *series, *ignored; /* ignored: [{reason, count, first: {line, name}}] */
};

/* ---- getting it */

static bool is_url(const char *word)
{
    return strncasecmp(word, "http://", 7) == 0 || strncasecmp(word, "https://", 8) == 0;
}

/* The engine's own address, when that of its metrics was given. */
static char *base_of(const char *url)
{
    size_t length = strlen(url);
    const char path[] = "/metrics";

    while (length > 0 && url[length - 1] == '/') length--;
    if (length > sizeof path && strncmp(url + length - (sizeof path - 1), path, 8) == 0)
        length -= sizeof path - 1;
    return strndup(url, length);
}

static int fetch_page(const struct options *options, const char *url, struct page *page)
{
    struct remote remote = {.url = base_of(url), .deadline_ms = DEADLINE_MS};
    struct fetch_answer answer = {.status = 0};
    struct fetch *fetch = NULL;
    char *cause = NULL;
    int status = EXIT_USAGE;

    if (remote.url == NULL || remote_check_url(remote.url, &cause) != 0 ||
        secret_read_key(options->key_file, options->key_env, &remote.key, &cause) != 0) {
        session_say("%s", cause != NULL ? cause : "out of memory");
        goto out;
    }
    fetch = fetch_new(&remote, &cause);
    if (fetch == NULL) goto out;
    fetch_run(fetch, "/metrics", FETCH_METRICS_MAX, &answer);
    if (!answer.ok) {
        session_say("%s/metrics: %s", remote.url, answer.why);
        status = answer.status == 0 ? EXIT_UNREACHABLE : EXIT_DEGRADED;
        goto out;
    }
    buffer_add(&page->body, answer.body, answer.length);
    page->openmetrics = strstr(answer.type, "openmetrics") != NULL;
    status = EXIT_HEALTHY;
out:
    fetch_free(fetch);
    remote_clear(&remote);
    free(cause);
    return status;
}

static int read_file(const char *path, struct buffer *out)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    char block[16384];
    size_t got = 1;
    bool failed = file == NULL;

    while (!failed && got > 0 && out->length <= FETCH_METRICS_MAX) {
        got = fread(block, 1, sizeof block, file);
        buffer_add(out, block, got);
        failed = ferror(file) != 0;
    }
    if (failed) session_say("cannot read %s: %s", path, strerror(errno));
    if (file != NULL && file != stdin) fclose(file);
    if (!failed && out->length > FETCH_METRICS_MAX) {
        session_say("%s is larger than %u MiB: no page of metrics is", path,
                    FETCH_METRICS_MAX >> 20);
        failed = true;
    }
    return failed ? EXIT_DEGRADED : EXIT_HEALTHY;
}

/* A file may hold the page, or the whole HTTP answer with it. */
static int load_page(const char *path, struct page *page)
{
    struct buffer raw = {0};
    char type[80] = "", *cause = NULL;
    int code = 200, status = read_file(path, &raw);

    if (status == EXIT_HEALTHY && !http_answer_is(raw.data ? raw.data : "", raw.length)) {
        page->body = raw;
        return status;
    }
    if (status == EXIT_HEALTHY && http_answer_read(raw.data, raw.length, &code, type, sizeof type,
                                                   &page->body, &cause) != 0) {
        session_say("%s: %s", path, cause != NULL ? cause : "out of memory");
        status = EXIT_DEGRADED;
    } else if (status == EXIT_HEALTHY && code != 200) {
        session_say("%s: the answer is an error, status %d, not a page; ask the engine anew", path,
                    code);
        status = EXIT_DEGRADED;
    }
    page->openmetrics = strstr(type, "openmetrics") != NULL;
    free(cause);
    buffer_free(&raw);
    return status;
}

/* ---- reading it */

static int choose_all(void *state, const struct exposition_slice *family)
{
    int choice = engine_choose(state, family);

    return choice == EXPOSITION_UNWANTED ? NOT_IN_TABLE : choice;
}

static json_t *text_of(const char *text, size_t length)
{
    json_t *json = json_stringn(text, length);

    return json != NULL ? json : json_string("(not UTF-8)");
}

static void ignore(struct inspection *inspection, const char *reason, int line, json_t *name,
                   int64_t count)
{
    json_t *row;
    size_t i;

    json_array_foreach(inspection->ignored, i, row)
    {
        json_int_t before = json_integer_value(json_object_get(row, "count"));

        if (strcmp(json_string_value(json_object_get(row, "reason")), reason) != 0) continue;
        json_object_set_new(row, "count", json_integer(before + count));
        json_decref(name);
        return;
    }
    json_array_append_new(inspection->ignored,
                          json_pack("{s:s, s:I, s:i, s:o}", "reason", reason, "count",
                                    (json_int_t)count, "first_line", line, "first_name", name));
}

static const char *why_unused(const struct exposition_sample *sample,
                              const struct engine_verdict *verdict)
{
    if (verdict->has_fault) return engine_fault_text(verdict->fault);
    if (sample->role == EXPOSITION_CREATED) return "when a series began, which is no count";
    if (sample->choice == NOT_IN_TABLE) return "says nothing of speculation, load or latency";
    return "a part of a histogram that is not needed";
}

static void take_sample(struct inspection *inspection, const struct exposition_sample *sample)
{
    struct engine_verdict verdict = engine_take(&inspection->counts, sample);
    json_t *name = text_of(sample->name.text, sample->name.length);

    if (!verdict.used && !verdict.start) {
        ignore(inspection, why_unused(sample, &verdict), sample->line, name, 1);
        return;
    }
    json_array_append_new(
        inspection->series,
        json_pack("{s:i, s:o, s:o, s:o, s:s, s:s}", "line", sample->line, "name", name, "labels",
                  text_of(sample->labels.text, sample->labels.length), "value",
                  json_number(sample->value), "type", exposition_type_name(sample->type), "figure",
                  verdict.start ? "began" : figure_name(verdict.figure)));
}

static void inspect_page(struct inspection *inspection)
{
    const struct buffer *body = &inspection->page->body;
    struct exposition *reader = &inspection->reader;
    struct exposition_sample sample;
    const char *text = body->data != NULL ? body->data : "";

    inspection->series = json_array();
    inspection->ignored = json_array();
    inspection->whole = exposition_is_whole(text, body->length, inspection->page->openmetrics);
    engine_page_clear(&inspection->counts);
    exposition_begin(reader, text, body->length, choose_all, NULL);
    while (exposition_next(reader, &sample)) take_sample(inspection, &sample);
    for (int i = 0; i < EXPOSITION_FAULTS; i++) {
        int line = 0;

        for (int k = reader->notes_count - 1; k >= 0; k--)
            if (reader->note[k].fault == (enum exposition_fault)i) line = reader->note[k].line;
        if (reader->faults[i] > 0)
            ignore(inspection, exposition_fault_text((enum exposition_fault)i), line, json_null(),
                   reader->faults[i]);
    }
}

/* ---- saying it */

static json_t *quantiles_of(const struct engine_histogram *histogram)
{
    static const struct engine_histogram none;

    if (histogram->buckets == 0) return json_null();
    return json_pack("{s:o, s:o}", "p50", json_number(engine_quantile(histogram, &none, 0.5)),
                     "p95", json_number(engine_quantile(histogram, &none, 0.95)));
}

static json_t *totals_of(const struct engine_page *page)
{
    json_t *totals = json_object(), *at = json_array();

    for (int i = 0; i < FIGURE_SCALARS; i++)
        json_object_set_new(totals, figure_name((enum figure)i),
                            json_number(engine_total(page, (enum figure)i)));
    for (int k = 0; k < engine_positions(page); k++)
        json_array_append_new(at, json_number(engine_accepted_at(page, k)));
    json_object_set_new(totals, figure_name(FIGURE_ACCEPTED_AT), at);
    json_object_set_new(totals, figure_name(FIGURE_FIRST_TOKEN), quantiles_of(&page->first_token));
    json_object_set_new(totals, figure_name(FIGURE_INTER_TOKEN), quantiles_of(&page->inter_token));
    return totals;
}

static void print_json(const struct inspection *inspection)
{
    const struct engine_page *counts = &inspection->counts;
    json_t *document = json_pack(
        "{s:s, s:s, s:s, s:s?, s:i, s:b, s:I, s:b, s:O, s:o, s:O}", "schema", "trimtab.inspect/1",
        "source", inspection->page->source, "engine", engine_name(counts->engine), "model",
        counts->model[0] != '\0' ? counts->model : NULL, "engines", counts->rows, "whole",
        inspection->whole, "samples", (json_int_t)inspection->reader.samples, "speculates",
        engine_speculates(counts), "series", inspection->series, "totals", totals_of(counts),
        "ignored", inspection->ignored);

    if (document == NULL || json_dumpf(document, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(17)))
        session_say("cannot print: out of memory");
    putchar('\n');
    json_decref(document);
}

static void print_series(const json_t *series)
{
    const json_t *row;
    size_t i;

    json_array_foreach(series, i, row)
    {
        const char *labels = json_string_value(json_object_get(row, "labels"));
        char text[SERIES_MAX], clean[SERIES_MAX], value[40] = TEXT_UNKNOWN;

        snprintf(text, sizeof text, "%s%s%s%s", json_string_value(json_object_get(row, "name")),
                 labels[0] != '\0' ? "{" : "", labels, labels[0] != '\0' ? "}" : "");
        if (json_is_number(json_object_get(row, "value")))
            snprintf(value, sizeof value, "%.10g",
                     json_number_value(json_object_get(row, "value")));
        printf("%5lld  %-*s  %14s  %s\n",
               (long long)json_integer_value(json_object_get(row, "line")), SERIES_COLS,
               text_clean(clean, sizeof clean, text), value,
               json_string_value(json_object_get(row, "figure")));
    }
}

static void print_total(const char *key, const json_t *value)
{
    const json_t *part;
    size_t i;

    printf("  %-14s", key);
    if (json_is_object(value))
        printf(" p50 %.4g  p95 %.4g", json_number_value(json_object_get(value, "p50")),
               json_number_value(json_object_get(value, "p95")));
    else if (json_is_array(value) && json_array_size(value) > 0)
        json_array_foreach(value, i, part) printf(" %.10g", json_number_value(part));
    else if (json_is_number(value))
        printf(" %.10g", json_number_value(value));
    else
        printf(" " TEXT_UNKNOWN);
    putchar('\n');
}

static void print_text(const struct inspection *inspection)
{
    const struct engine_page *counts = &inspection->counts;
    json_t *totals = totals_of(counts);
    const json_t *row;
    const char *key;
    char clean[SERIES_MAX];
    size_t i;

    printf("%s: %s%s%s, %d engine%s, %zu of %lld samples used\n",
           text_clean(clean, sizeof clean, inspection->page->source), engine_name(counts->engine),
           counts->model[0] != '\0' ? ", model " : "", counts->model, counts->rows,
           counts->rows == 1 ? "" : "s", json_array_size(inspection->series),
           (long long)inspection->reader.samples);
    printf("\n line  %-*s  %14s  meaning\n", SERIES_COLS, "series", "value");
    print_series(inspection->series);
    printf("\nTotals over engines\n");
    json_object_foreach(totals, key, row) print_total(key, row);
    printf("\nLeft out\n");
    json_array_foreach(inspection->ignored, i, row)
    {
        const char *name = json_string_value(json_object_get(row, "first_name"));

        printf("  %6lld  %s (first: line %lld%s%s)\n",
               (long long)json_integer_value(json_object_get(row, "count")),
               json_string_value(json_object_get(row, "reason")),
               (long long)json_integer_value(json_object_get(row, "first_line")),
               name != NULL ? ", " : "", text_clean(clean, sizeof clean, name != NULL ? name : ""));
    }
    json_decref(totals);
}

int verb_inspect(const struct options *options)
{
    struct page page = {.source = options->words[0]};
    struct inspection inspection = {.page = &page};
    int status = is_url(page.source) ? fetch_page(options, page.source, &page)
                                     : load_page(page.source, &page);

    if (status == EXIT_HEALTHY) {
        inspect_page(&inspection);
        if (options->json)
            print_json(&inspection);
        else
            print_text(&inspection);
        if (inspection.counts.used == 0) {
            session_say("no series of an engine that is known%s",
                        inspection.whole ? ""
                                         : ", and no end of its last line: no page of metrics, or "
                                           "the beginning of one");
            status = EXIT_DEGRADED;
        } else if (!inspection.whole) {
            session_say("the page is cut short: a node drops it whole");
            status = EXIT_DEGRADED;
        }
        json_decref(inspection.series);
        json_decref(inspection.ignored);
    }
    buffer_free(&page.body);
    return status;
}
