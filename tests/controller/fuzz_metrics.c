/* fuzz_metrics.c - the readers of metrics pages and raw HTTP answers against anything: whatever
 * comes in, what they hand out points into the text, is counted once, and every figure is unknown
 * or within its range.
 *
 * With libFuzzer: clang -g -fsanitize=fuzzer,address,undefined -I. -Ibuild …
 * tests/controller/fuzz_metrics.c
 * controller/{exposition,engine_table,engine_watch,http_answer,buffer,cause}.c -lm && ./a.out
 * tests/controller/corpus/metrics
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "controller/engine_watch.h"
#include "controller/http_answer.h"
#include "tests/support/fuzz_replay.h"

static void require_inside(const struct exposition_slice *slice, const char *text, size_t size)
{
    REQUIRE(slice->text >= text && slice->length <= size);
    REQUIRE(slice->text + slice->length <= text + size);
}

/* Every sample, wanted or not. */
static void read_all(const char *text, size_t size)
{
    struct exposition reader;
    struct exposition_sample sample;
    char value[16];
    int64_t count = 0, faults = 0;

    exposition_begin(&reader, text, size, NULL, NULL);
    while (exposition_next(&reader, &sample)) {
        require_inside(&sample.name, text, size);
        require_inside(&sample.family, text, size);
        require_inside(&sample.labels, text, size);
        REQUIRE(sample.name.length > 0 && sample.family.length > 0);
        REQUIRE(sample.line > 0 && sample.line <= reader.line);
        if (exposition_label(&sample, "le", value, sizeof value))
            REQUIRE(strlen(value) < sizeof value);
        count++;
    }
    REQUIRE(count == reader.samples && reader.unwanted == 0);
    for (int i = 0; i < EXPOSITION_FAULTS; i++) faults += reader.faults[i];
    REQUIRE(reader.notes_count <= faults && count + faults <= reader.line);
}

static void require_page(const struct engine_page *page)
{
    REQUIRE(page->rows >= 0 && page->rows <= ENGINE_ROWS);
    REQUIRE(page->first_token.buckets <= ENGINE_BUCKETS);
    for (int i = 0; i < FIGURE_SCALARS; i++) {
        double total = engine_total(page, (enum figure)i);
        REQUIRE(isnan(total) || total >= 0);
    }
    REQUIRE(engine_positions(page) <= ENGINE_POSITIONS);
    for (int i = 1; i < page->first_token.buckets; i++)
        REQUIRE(page->first_token.bound[i - 1] < page->first_token.bound[i]);
}

static void read_page(const char *text, size_t size)
{
    static struct engine_page page;
    static struct engine_watch *watch;
    static int64_t now_us;
    struct exposition reader;
    struct engine_second second;
    double quantile;

    engine_read(&page, &reader, text, size);
    require_page(&page);
    if (!watch) watch = engine_watch_new();
    REQUIRE(watch);
    now_us += 1000000;
    engine_watch_take(watch, &page, NAN, NULL, now_us, &second);
    for (int i = 0; i < FIGURE_COUNTERS; i++)
        REQUIRE(isnan(second.delta[i]) || second.delta[i] >= 0);
    engine_watch_window(watch, 5, &second);
    for (int i = 0; i < FIGURE_COUNTERS; i++)
        REQUIRE(isnan(second.delta[i]) || second.delta[i] >= 0);
    quantile = engine_watch_quantile(watch, FIGURE_FIRST_TOKEN, 0.5);
    REQUIRE(isnan(quantile) || isfinite(quantile));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct buffer body = {0};
    char type[32], *cause = NULL;
    int status;

    read_all(text, size);
    read_page(text, size);
    if (http_answer_read(text, size, &status, type, sizeof type, &body, &cause) == 0) {
        REQUIRE(body.length <= size && status >= 0 && status <= 999);
        read_all(body.data ? body.data : "", body.length);
    } else {
        REQUIRE(cause && *cause);
    }
    free(cause);
    buffer_free(&body);
    return 0;
}

const struct fuzz_corpus fuzz_corpus = {.folder = "controller/corpus/metrics",
                                        FUZZ_SPICE("{}\",=\\#\n\r 019eE.-+_:NIa\x00\xff"),
                                        .least = 20};
