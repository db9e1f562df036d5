/* test_rates.c - what a change of mode did, counted live, is what the store's view says later. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "controller/rates.h"
#include "storage/reader.h"
#include "storage/store.h"

#define START_MS INT64_C(1790000000000)

static int64_t clock_ms(void *state)
{
    (void)state;
    return START_MS + 600000;
}

/* Second i of a node that becomes adaptive after `change` of them: a wandering rate, alike from one
 * second to the next. */
static struct rates_second second_at(int i, int change)
{
    struct rates_second second = {.time_ms = START_MS + i * 1000,
                                  .seconds = 1,
                                  .mode = i < change ? MODE_FIXED : MODE_ADAPTIVE};

    second.delta.steps = i % 40 == 7 ? 0 : 20; /* an idle second now and then */
    second.delta.emitted =
        second.delta.steps == 0 ? 0 : (i < change ? 300 : 360) + 30 * (i / 5 % 4) + i % 3;
    second.delta.step_ms = second.delta.steps * (i < change ? 25.0 : 23.5);
    return second;
}

struct effect {
    double gain, low, high, tps_before, tps_after, step_before, step_after;
    int rows;
};

static bool take(void *state, int columns, const char *const *names,
                 const struct reader_value *value)
{
    struct effect *effect = state;

    (void)columns;
    (void)names;
    if (!value) return true;
    *effect = (struct effect){value[0].real, value[1].real, value[2].real, value[3].real,
                              value[4].real, value[5].real, value[6].real, effect->rows + 1};
    return true;
}

/* The same seconds, through the store. */
static void read_view(int seconds, int change, struct effect *effect)
{
    static const char sql[] = "SELECT gain, gain_low, gain_high, tps_before, tps_after,"
                              " step_ms_before, step_ms_after FROM toggle_effect";
    char folder[] = "/tmp/trimtab-rates-XXXXXX", path[96], *cause = NULL;
    const struct reader_limits limits = {0};

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/trimtab.db", folder);
    struct store *store =
        store_open(&(struct store_options){.path = path, .now_ms = clock_ms}, &cause);
    if (!store) fail_msg("%s", cause);
    int64_t run = store_begin_run(store, &(struct store_run){.node = "local", .kind = "replay"});
    for (int i = 0; i < seconds; i++) {
        const struct rates_second second = second_at(i, change);
        const struct store_sample sample = {.run_id = run,
                                            .time_ms = second.time_ms,
                                            .steps = second.delta.steps,
                                            .emitted = second.delta.emitted,
                                            .step_ms = second.delta.step_ms,
                                            .mode = mode_name(second.mode)};
        store_put_sample(store, &sample);
    }
    store_put_decision(store, &(struct store_decision){.run_id = run,
                                                       .time_ms = START_MS + change * 1000,
                                                       .what = "mode",
                                                       .before = "fixed",
                                                       .after = "adaptive"});
    assert_true(store_flush(store));
    store_close(store);
    struct reader *reader = reader_open(path, &cause);
    assert_non_null(reader);
    *effect = (struct effect){.rows = 0};
    assert_int_equal(reader_query(reader, sql, NULL, 0, &limits, take, effect, &cause),
                     READER_DONE);
    reader_close(reader);
    unlink(path);
    snprintf(path, sizeof path, "rm -r %s", folder);
    assert_int_equal(system(path), 0);
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-6 * (1 + fabs(b));
}

static void live_is_what_the_view_says(void **state)
{
    static const struct {
        int seconds, change;
    } cases[] = {{40, 20}, {200, 100}, {600, 300}, {590, 200}};
    static struct rates rates;
    struct rates_effect live;
    struct effect stored;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memset(&rates, 0, sizeof rates);
        for (int s = 0; s < cases[i].seconds; s++) {
            /* the second of the change belongs to neither side: the live one drops it, too */
            const struct rates_second second = second_at(s, cases[i].change);
            rates_add(&rates, &second);
        }
        assert_true(rates_toggle_effect(&rates, &live));
        read_view(cases[i].seconds, cases[i].change, &stored);
        assert_int_equal(stored.rows, 1);
        print_message("# %d s: live %+.4f (%+.4f %+.4f), stored %+.4f (%+.4f %+.4f)\n",
                      cases[i].seconds, live.gain, live.low, live.high, stored.gain, stored.low,
                      stored.high);
        /* they differ by a second at the ends */
        const double slack = 0.005 + 0.02 * (stored.high - stored.low);
        assert_true(fabs(live.gain - stored.gain) < 0.01);
        assert_true(fabs(live.low - stored.low) < slack);
        assert_true(fabs(live.high - stored.high) < slack);
        assert_true(near(live.step_ms_before, 25) && near(stored.step_before, 25));
        assert_true(near(live.step_ms_after, 23.5) && near(stored.step_after, 23.5));
        assert_true(fabs(live.tps_before / stored.tps_before - 1) < 0.01);
    }
}

static void short_sides_are_unknown(void **state)
{
    static struct rates rates;
    struct rates_effect effect;

    (void)state;
    memset(&rates, 0, sizeof rates);
    assert_false(rates_toggle_effect(&rates, &effect));
    for (int s = 0; s < 24; s++) {
        const struct rates_second second = second_at(s, 20);
        rates_add(&rates, &second);
        assert_false(rates_toggle_effect(&rates, &effect));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live_is_what_the_view_says),
        cmocka_unit_test(short_sides_are_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
