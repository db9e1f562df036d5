/* test_cost.c - the cost model: staircase, outliers, changes of level, bands, cache, tables,
 * changed cells. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "controller/cost.h"

static char folder[] = "test_cost.XXXXXX";

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_text(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void observe_often(struct cost_model *cost, int tokens, double ms, int times)
{
    for (int i = 0; i < times; i++) cost_observe_verify(cost, tokens, 0, ms);
}

/* 1 to 8 tokens take 11 to 18 ms, each measured `times`. */
static struct cost_model *measured_line(int times)
{
    struct cost_model *cost = cost_new(64, 8);
    for (int n = 1; n <= 8; n++) observe_often(cost, n, 10.0 + n, times);
    return cost;
}

/* A change of level is shared out between the tempo and the cell, and settles in a few more. */
static void assert_settled(double value, double expected)
{
    assert_true(fabs(value / expected - 1) < 0.02);
}

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-9 * (1 + fabs(expected))))
        fail_msg("%.12g, expected %.12g", value, expected);
}

/* ---- curve */

static void unknown_until_measured(void **state)
{
    (void)state;
    struct cost_model *cost = cost_new(64, 8);
    assert_true(isnan(cost_verify(cost, 4, 0)));
    assert_true(isnan(cost_draft(cost, 2)));
    assert_true(isnan(cost_own(cost, 2)));
    assert_false(cost_flat(cost));
    cost_observe_draft(cost, 2, 0.5);
    assert_near(cost_draft(cost, 2), 0.5);
    assert_true(isnan(cost_verify(cost, 4, 0)));
    cost_free(cost);
    cost_free(NULL);
}

static void staircase_is_kept(void **state)
{
    (void)state;
    struct cost_model *cost = cost_new(64, 8);
    observe_often(cost, 6, 27.82, 3);
    observe_often(cost, 7, 30.13, 3);
    observe_often(cost, 8, 25.47, 3);
    observe_often(cost, 12, 30.74, 3);
    assert_near(cost_verify(cost, 7, 0), 30.13); /* dearer than 8 */
    assert_near(cost_verify(cost, 8, 0), 25.47);
    assert_near(cost_verify(cost, 10, 0), (25.47 + 30.74) / 2);
    cost_free(cost);
}

static void beyond_the_last_size_its_slope_goes_on(void **state)
{
    (void)state;
    struct cost_model *cost = cost_new(64, 8);
    observe_often(cost, 16, 16, 3);
    observe_often(cost, 8, 10, 3);
    assert_near(cost_verify(cost, 32, 0), 28);   /* 0.75 a token */
    assert_near(cost_verify(cost, 128, 0), 100); /* beyond the table too */
    assert_near(cost_verify(cost, 4, 0), 10);    /* below the first size nothing is cheaper */
    assert_near(cost_verify(cost, 0, 0), 0);
    observe_often(cost, 17, 15.9, 3); /* a falling last stair must not promise free tokens */
    assert_true(cost_verify(cost, 64, 0) > cost_verify(cost, 32, 0));
    cost_free(cost);
}

static void a_table_equals_its_cells_in_any_order(void **state)
{
    (void)state;
    static const int order[] = {8, 1, 32, 4, 16, 2, 64, 12};
    struct cost_model *ahead = cost_new(80, 8), *back = cost_new(80, 8);
    for (int i = 0; i < 8; i++) {
        observe_often(ahead, order[i], 3 + order[i] % 5 + 0.5 * order[i], 3);
        observe_often(back, order[7 - i], 3 + order[7 - i] % 5 + 0.5 * order[7 - i], 3);
    }
    for (int n = 0; n <= 100; n++) assert_near(cost_verify(ahead, n, 0), cost_verify(back, n, 0));
    cost_free(ahead);
    cost_free(back);
}

/* ---- learning */

static void a_spike_is_dropped_and_counted(void **state)
{
    (void)state;
    struct cost_model *cost = cost_new(64, 8);
    observe_often(cost, 4, 10, 6);
    assert_false(cost_observe_verify(cost, 4, 0, 100));
    assert_false(cost_observe_verify(cost, 4, 0, 1));
    assert_near(cost_verify(cost, 4, 0), 10);
    assert_true(cost_observe_verify(cost, 4, 0, 10.3));
    assert_true(cost_verify(cost, 4, 0) < 10.3);
    json_t *json = cost_to_json(cost), *cell = json_array_get(json_object_get(json, "verify"), 0);
    assert_int_equal(json_integer_value(json_object_get(cell, "dropped")), 2);
    assert_int_equal(json_integer_value(json_object_get(cell, "n")), 7);
    json_decref(json);
    cost_free(cost);
}

static void a_new_level_is_learned_in_a_few_observations(void **state)
{
    (void)state;
    struct cost_model *cost = cost_new(64, 8);
    observe_often(cost, 4, 10, 50);
    int dropped = 0;
    while (!cost_observe_verify(cost, 4, 0, 20) && dropped < 20) dropped++;
    assert_in_range(dropped, 3, 6);
    observe_often(cost, 4, 20, 12);
    assert_settled(cost_verify(cost, 4, 0), 20);
    dropped = 0;
    while (!cost_observe_verify(cost, 4, 0, 6) && dropped < 20) dropped++;
    assert_in_range(dropped, 3, 6);
    observe_often(cost, 4, 6, 12);
    assert_settled(cost_verify(cost, 4, 0), 6);
    cost_free(cost);
}

static void spikes_now_and_then_never_move_a_cell(void **state)
{
    (void)state;
    struct cost_model *cost = cost_new(64, 8);
    for (int i = 0; i < 400; i++)
        cost_observe_verify(cost, 4, 0, i % 4 == 3 ? 45 : 10 + 0.1 * (i % 3));
    assert_true(fabs(cost_verify(cost, 4, 0) - 10.1) < 0.2);
    cost_free(cost);
}

/* A latency spike at the first visit of a size must not kill that size (vllm 54011 and its kind).
 */
static void a_first_value_out_of_proportion_waits(void **state)
{
    (void)state;
    struct cost_model *cost = cost_new(64, 8);
    observe_often(cost, 4, 10, 3);
    observe_often(cost, 8, 14, 3);
    assert_false(cost_observe_verify(cost, 6, 0, 80));
    assert_near(cost_verify(cost, 6, 0), 12); /* still the line */
    assert_true(cost_observe_verify(cost, 6, 0, 13));
    assert_near(cost_verify(cost, 6, 0), 13);
    assert_false(cost_observe_verify(cost, 5, 0, 90)); /* but three of them are the truth */
    assert_false(cost_observe_verify(cost, 5, 0, 90));
    assert_true(cost_observe_verify(cost, 5, 0, 90));
    assert_near(cost_verify(cost, 5, 0), 90);
    cost_free(cost);
}

/* A table made on another day, or on a busy machine: what is not looked at any more is not believed
 * for ever, and what is looked at keeps its own value (vllm 52057, 54065). */
static void stale_cells_follow_the_pace(void **state)
{
    (void)state;
    struct cost_model *cost = cost_new(64, 8);
    for (int n = 1; n <= 8; n++) observe_often(cost, n, n == 7 ? 30 : 10.0 + n, 5);
    for (int i = 0; i < 400; i++)
        for (int n = 1; n <= 3; n++) cost_observe_verify(cost, n, 0, 1.5 * (10 + n));
    assert_settled(cost_verify(cost, 2, 0), 18);
    assert_settled(cost_verify(cost, 8, 0), 27); /* never seen since */
    assert_settled(cost_verify(cost, 7, 0), 45); /* and the staircase is still one */
    observe_often(cost, 8, 20, 12);
    assert_settled(cost_verify(cost, 8, 0), 20); /* seen: its own value again */
    for (int i = 0; i < 400; i++)
        for (int n = 1; n <= 3; n++) cost_observe_verify(cost, n, 0, 10 + n);
    assert_settled(cost_verify(cost, 7, 0), 30);
    cost_free(cost);
}

/* The machine is slower for some seconds, or the contexts grow: the sizes that are not in use are
 * dearer too, at once, or what is in use would be compared with what the others took before. */
static void the_others_follow_the_moment(void **state)
{
    (void)state;
    struct cost_model *cost = measured_line(30);
    observe_often(cost, 4, 14, 50);
    for (int round = 0; round < 3; round++) {
        observe_often(cost, 4, 1.16 * 14, 10);
        assert_settled(cost_verify(cost, 8, 0), 1.16 * 18);
        observe_often(cost, 4, 14, 10);
        assert_settled(cost_verify(cost, 8, 0), 18);
    }
    cost_free(cost);
}

/* One size that jumps is no pace. */
static void one_size_moves_no_other(void **state)
{
    (void)state;
    struct cost_model *cost = measured_line(5);
    for (int i = 0; i < 400; i++)
        for (int n = 1; n <= 3; n++) cost_observe_verify(cost, n, 0, n == 2 ? 36 : 10 + n);
    assert_near(cost_verify(cost, 2, 0), 36);
    assert_near(cost_verify(cost, 1, 0), 11);
    assert_true(fabs(cost_verify(cost, 8, 0) - 18) < 0.1);
    cost_free(cost);
}

static void a_copy_learns_on_its_own(void **state)
{
    (void)state;
    struct cost_model *cost = measured_line(5), *copy;
    cost_observe_draft(cost, 2, 3);
    copy = cost_copy(cost);
    assert_non_null(copy);
    json_t *before = cost_to_json(cost), *same = cost_to_json(copy);
    assert_true(json_equal(before, same));
    assert_near(cost_verify(copy, 40, 1), cost_verify(cost, 40, 1));
    assert_near(cost_draft(copy, 2), 3);
    observe_often(copy, 4, 42, 20);
    assert_settled(cost_verify(copy, 4, 0), 42);
    json_t *after = cost_to_json(cost);
    assert_true(json_equal(before, after));
    json_decref(before);
    json_decref(same);
    json_decref(after);
    cost_free(cost);
    cost_free(copy);
}

/* A size that became three times as dear is avoided; the planner, which never sees it again, must
 * learn when that is over (vllm 54065). */
static void a_dear_cell_is_tried_again(void **state)
{
    (void)state;
    struct cost_model *cost = measured_line(5);
    observe_often(cost, 4, 42, 20);
    assert_settled(cost_verify(cost, 4, 0), 42);
    observe_often(cost, 1, 11, 400);
    assert_true(cost_verify(cost, 4, 0) > 28); /* for some hundred steps it is believed */
    observe_often(cost, 1, 11, 200);
    assert_true(cost_verify(cost, 4, 0) < 15); /* then doubted */
    observe_often(cost, 4, 42, 2);
    assert_settled(cost_verify(cost, 4, 0),
                   42); /* two looks are enough to see that nothing changed */
    observe_often(cost, 1, 11, 600);
    observe_often(cost, 4, 14, 1);
    assert_true(cost_verify(cost, 4, 0) < 15); /* or that it did */
    observe_often(cost, 4, 14, 8);
    assert_true(fabs(cost_verify(cost, 4, 0) - 14) < 0.5);
    cost_free(cost);
}

/* A size that is looked at only now and then: its last values are of another time and must not keep
 * the truth out, and a spike must not become the truth either. */
static void a_rare_look_is_believed_in_part(void **state)
{
    (void)state;
    struct cost_model *cost = measured_line(30);
    observe_often(cost, 4, 21, 30);
    observe_often(cost, 8, 18, 100);
    assert_true(cost_observe_verify(cost, 4, 0, 14)); /* a quarter of 0.3 of the price at most */
    assert_true(cost_verify(cost, 4, 0) < 20.5 && cost_verify(cost, 4, 0) > 20.99 - 0.3 * 21 / 4);
    for (int look = 0; look < 40; look++) {
        observe_often(cost, 8, 18, 100);
        assert_true(cost_observe_verify(cost, 4, 0, 14));
    }
    assert_settled(cost_verify(cost, 4, 0), 14);
    observe_often(cost, 8, 18, 100);
    cost_observe_verify(cost, 4, 0, 300);
    assert_true(cost_verify(cost, 4, 0) < 1.1 * 14.1);
    cost_free(cost);
}

/* The machine is slower for a while, as it is beside others: a look then says nothing of the size
 * that the sizes around it do not say of theirs. */
static void a_rare_look_is_compared_with_the_moment(void **state)
{
    (void)state;
    struct cost_model *cost = measured_line(30);
    for (int look = 0; look < 20; look++) {
        observe_often(cost, 8, 18, 100);
        observe_often(cost, 8, 1.08 * 18, 8);
        cost_observe_verify(cost, 4, 0, 1.08 * 14);
    }
    assert_settled(cost_verify(cost, 4, 0), 1.08 * 14);
    cost_free(cost);
}

/* Repeats that scatter show a busy machine. */
static void scatter_tells_a_busy_machine(void **state)
{
    (void)state;
    struct cost_model *steady = cost_new(64, 8), *busy = cost_new(64, 8);
    assert_true(isnan(cost_scatter(steady)));
    for (int round = 0; round < 5; round++)
        for (int n = 1; n <= 8; n++) {
            cost_observe_verify(steady, n, 0, (10.0 + n) * (1 + 0.01 * (round % 3)));
            cost_observe_verify(busy, n, 0, (10.0 + n) * (1 + 0.3 * ((round + n) % 3)));
        }
    assert_true(cost_scatter(steady) < 0.02);
    assert_true(cost_scatter(busy) > 0.1);
    assert_null(cost_unsteady(busy));
    cost_set_unsteady(busy, "repeats scatter");
    assert_string_equal(cost_unsteady(busy), "repeats scatter");
    cost_free(steady);
    cost_free(busy);
}

static void drift_is_followed(void **state)
{
    (void)state;
    struct cost_model *cost = cost_new(64, 8);
    for (int i = 0; i < 2000; i++) cost_observe_verify(cost, 4, 0, 10 + 10.0 * i / 2000);
    assert_true(fabs(cost_verify(cost, 4, 0) - 20) < 0.5);
    cost_free(cost);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    struct cost_model *cost = cost_new(8, 4);
    assert_false(cost_observe_verify(cost, 0, 0, 5));
    assert_false(cost_observe_verify(cost, 9, 0, 5));
    assert_false(cost_observe_verify(cost, 4, 0, 0));
    assert_false(cost_observe_verify(cost, 4, 0, -1));
    assert_false(cost_observe_verify(cost, 4, 0, NAN));
    assert_false(cost_observe_verify(cost, 4, 0, INFINITY));
    assert_false(cost_observe_draft(cost, 5, 5));
    cost_observe_own(cost, 99, 1);
    assert_true(isnan(cost_verify(cost, 4, 0)));
    assert_true(isnan(cost_own(cost, 1)));
    cost_free(cost);
}

/* ---- context bands */

static void a_band_borrows_the_staircase_of_the_profile(void **state)
{
    (void)state;
    assert_int_equal(cost_context_band(0), 0);
    assert_int_equal(cost_context_band(511), 0);
    assert_int_equal(cost_context_band(512), 1);
    assert_int_equal(cost_context_band(2048), 2);
    assert_int_equal(cost_context_band(8192), 3);
    struct cost_model *cost = cost_new(64, 8);
    observe_often(cost, 4, 10, 3);
    observe_often(cost, 7, 18, 3);
    observe_often(cost, 8, 12, 3);
    assert_near(cost_verify(cost, 7, 2), 18); /* nothing known of the band: the profile */
    for (int i = 0; i < 20; i++) cost_observe_verify(cost, 4, 2, 15);
    assert_near(cost_verify(cost, 4, 2), 15);
    assert_near(cost_verify(cost, 7, 2), 27); /* 1.5 times the profile, stair and all */
    assert_near(cost_verify(cost, 8, 2), 18);
    assert_near(cost_verify(cost, 4, 0), 10);
    cost_free(cost);
}

/* ---- profile sizes, flat curve */

static void profile_covers_what_can_be_scheduled(void **state)
{
    (void)state;
    int sizes[64];
    int count = cost_profile_sizes(8, 6, sizes, 64);
    assert_int_equal(sizes[0], 1);
    assert_int_equal(sizes[count - 1], 56);
    for (int i = 1; i < count; i++) assert_true(sizes[i] > sizes[i - 1]);
    for (int n = 1; n <= 8; n++) assert_int_equal(sizes[n - 1], n);
    for (int k = 0; k <= 6; k++) {
        int found = 0;
        for (int i = 0; i < count; i++) found += sizes[i] == 8 * (k + 1);
        assert_int_equal(found, 1); /* every uniform K at full load */
    }
    assert_int_equal(cost_profile_sizes(1, 0, sizes, 64), 1);
    assert_int_equal(cost_profile_sizes(256, 32, sizes, 10), 10);
    assert_int_equal(sizes[9], 256 * 33);
}

static void a_flat_curve_is_called_flat(void **state)
{
    (void)state;
    struct cost_model *cost = cost_new(64, 8);
    observe_often(cost, 1, 10, 3);
    assert_false(cost_flat(cost)); /* one size is no curve */
    observe_often(cost, 32, 10.1, 3);
    assert_true(cost_flat(cost));
    observe_often(cost, 16, 13, 3);
    assert_false(cost_flat(cost));
    cost_free(cost);
}

/* ---- cache */

static struct cost_model *sample(void)
{
    struct cost_model *cost = cost_new(64, 8);
    for (int n = 1; n <= 64; n *= 2) observe_often(cost, n, 5 + n / 3.0, 3);
    for (int r = 1; r <= 8; r++) cost_observe_draft(cost, r, 0.1 * r);
    cost_observe_verify(cost, 4, 1, 9.5);
    cost_observe_own(cost, 2, 0.07);
    return cost;
}

static void the_cache_gives_back_what_was_saved(void **state)
{
    (void)state;
    char *cause = NULL;
    struct cost_model *saved = sample(), *loaded = cost_new(64, 8), *small = cost_new(16, 4);
    assert_true(cost_save(saved, path_of("cache"), "model a, 2 threads", &cause));
    assert_null(cause);
    assert_true(cost_load(loaded, path_of("cache"), "model a, 2 threads"));
    for (int n = 1; n <= 80; n++)
        for (int band = 0; band < COST_CONTEXT_BANDS; band++)
            assert_near(cost_verify(loaded, n, band), cost_verify(saved, n, band));
    for (int r = 1; r <= 8; r++) assert_near(cost_draft(loaded, r), cost_draft(saved, r));
    assert_near(cost_own(loaded, 2), 0.07);
    assert_true(
        cost_load(small, path_of("cache"), "model a, 2 threads")); /* fewer sizes than stored */
    assert_near(cost_verify(small, 16, 0), cost_verify(saved, 16, 0));
    cost_free(saved);
    cost_free(loaded);
    cost_free(small);
}

static void a_loaded_level_resists_a_spike_and_follows_a_change(void **state)
{
    (void)state;
    struct cost_model *saved = sample(), *loaded = cost_new(64, 8);
    assert_true(cost_save(saved, path_of("cache"), "k", NULL));
    assert_true(cost_load(loaded, path_of("cache"), "k"));
    double before = cost_verify(loaded, 8, 0);
    assert_false(cost_observe_verify(loaded, 8, 0, 5 * before));
    assert_near(cost_verify(loaded, 8, 0), before);
    observe_often(loaded, 8, 2 * before, 15);
    assert_settled(cost_verify(loaded, 8, 0), 2 * before);
    cost_free(saved);
    cost_free(loaded);
}

static void another_key_is_refused(void **state)
{
    (void)state;
    struct cost_model *saved = sample(), *loaded = cost_new(64, 8);
    assert_true(cost_save(saved, path_of("cache"), "model a", NULL));
    assert_false(cost_load(loaded, path_of("cache"), "model b"));
    assert_false(cost_load(loaded, path_of("cache"), ""));
    assert_false(cost_load(loaded, path_of("no such file"), "model a"));
    assert_true(isnan(cost_verify(loaded, 4, 0)));
    cost_free(saved);
    cost_free(loaded);
}

/* Every truncation and every changed byte: either the same meaning or no model at all. */
static void damage_is_refused(void **state)
{
    (void)state;
    struct cost_model *saved = sample();
    assert_true(cost_save(saved, path_of("cache"), "k", NULL));
    FILE *file = fopen(path_of("cache"), "r");
    assert_non_null(file);
    static char text[1 << 16], bad[1 << 16];
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    assert_true(length > 100 && length < sizeof text - 1);
    int refused = 0, tried = 0;
    for (size_t at = 0; at < length; at += 7) {
        for (int kind = 0; kind < 2; kind++) {
            memcpy(bad, text, length + 1);
            if (kind == 0)
                bad[at] = '\0';
            else
                bad[at] = bad[at] == '7' ? '8' : '7';
            write_text("damaged", bad);
            struct cost_model *loaded = cost_new(64, 8);
            bool taken = cost_load(loaded, path_of("damaged"), "k");
            if (!taken) assert_true(isnan(cost_verify(loaded, 4, 0)));
            for (int n = 1; taken && n <= 64; n++)
                assert_near(cost_verify(loaded, n, 0), cost_verify(saved, n, 0));
            refused += !taken;
            tried++;
            cost_free(loaded);
        }
    }
    assert_true(refused > tried * 8 / 10); /* the rest hit white space that means nothing */
    cost_free(saved);
}

static void a_checksum_is_no_licence_for_nonsense(void **state)
{
    (void)state;
    static const char *const broken[] = {
        "",
        "[]",
        "{}",
        "null",
        "{\"schema\":\"trimtab.cost-cache/"
        "1\",\"key\":\"k\",\"sum\":\"0000000000000000\",\"cells\":{}}",
        "{\"schema\":\"trimtab.cost-cache/"
        "9\",\"key\":\"k\",\"sum\":\"\",\"cells\":{\"verify\":[],\"draft\":[],\"own\":[]}}",
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        struct cost_model *cost = cost_new(8, 8);
        write_text("broken", broken[i]);
        assert_false(cost_load(cost, path_of("broken"), "k"));
        cost_free(cost);
    }
}

static void saving_fails_with_a_cause_and_keeps_the_old_file(void **state)
{
    (void)state;
    struct cost_model *saved = sample(), *loaded = cost_new(64, 8);
    char *cause = NULL;
    assert_false(cost_save(saved, path_of("no/such/folder/cache"), "k", &cause));
    assert_non_null(cause);
    assert_non_null(strstr(cause, "no/such/folder"));
    free(cause);
    assert_true(cost_save(saved, path_of("cache"), "old", NULL));
    assert_false(cost_save(saved, path_of("cache"), "not \xff UTF-8", &cause));
    assert_non_null(cause);
    free(cause);
    assert_true(cost_load(loaded, path_of("cache"), "old"));
    cost_free(saved);
    cost_free(loaded);
}

/* ---- tables */

static void a_trace_table_is_read(void **state)
{
    (void)state;
    char *cause = NULL;
    write_text("table", "# staircase\nV 1 6.55\n\nV 7 30.13\r\nV 8 25.47\nD 1 .45\nD 4 .68\n");
    struct cost_model *cost = cost_read_table(path_of("table"), &cause);
    assert_non_null(cost);
    assert_near(cost_verify(cost, 1, 0), 6.55);
    assert_near(cost_verify(cost, 7, 0), 30.13);
    assert_near(cost_verify(cost, 8, 0), 25.47);
    assert_near(cost_verify(cost, 8, 3), 25.47);
    assert_near(cost_draft(cost, 4), .68);
    assert_false(cost_flat(cost));
    cost_free(cost);
}

static void a_bad_line_is_named(void **state)
{
    (void)state;
    static const char *const lines[] = {"V",       "V 1",    "V x 3",        "V 1 x", "V 0 3",
                                        "V -1 3",  "V 1 -3", "V 1 nan",      "W 1 3", "V 1 3 4",
                                        "V 1.5 3", "VV 1 3", "V 99999999 3", "V1 3"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char text[128], *cause = NULL;
        snprintf(text, sizeof text, "V 2 3\n# fine\n%s\n", lines[i]);
        write_text("table", text);
        struct cost_model *cost = cost_read_table(path_of("table"), &cause);
        assert_null(cost);
        assert_non_null(cause);
        assert_non_null(strstr(cause, ":3:"));
        free(cause);
    }
    char *cause = NULL;
    write_text("table", "D 1 .5\n");
    assert_null(cost_read_table(path_of("table"), &cause));
    assert_non_null(strstr(cause, "V tokens ms"));
    free(cause);
    assert_null(cost_read_table(path_of("nowhere"), &cause));
    assert_non_null(strstr(cause, "nowhere"));
    free(cause);
    assert_null(cost_read_table(path_of("nowhere"), NULL));
}

/* ---- for the store and the API */

static void changed_cells_are_taken_once(void **state)
{
    (void)state;
    struct cost_model *cost = cost_new(64, 8);
    struct cost_cell cells[8];
    observe_often(cost, 3, 7, 3);
    cost_observe_verify(cost, 5, 1, 8);
    cost_observe_draft(cost, 2, 0.5);
    cost_observe_own(cost, 2, 0.1);
    assert_int_equal(cost_take_changed(cost, cells, 2), 2);
    assert_string_equal(cells[0].part, "verify");
    assert_int_equal(cells[0].tokens, 3);
    assert_int_equal(cells[0].n, 3);
    assert_int_equal(cells[1].context_band, 1);
    assert_int_equal(cost_take_changed(cost, cells, 8), 2);
    assert_string_equal(cells[0].part, "draft");
    assert_int_equal(cells[0].requests, 2);
    assert_string_equal(cells[1].part, "own");
    assert_int_equal(cost_take_changed(cost, cells, 8), 0);
    observe_often(cost, 3, 7, 1);
    assert_int_equal(cost_take_changed(cost, cells, 8), 1);
    cost_free(cost);
}

static void json_names_every_cell(void **state)
{
    (void)state;
    struct cost_model *cost = sample();
    json_t *json = cost_to_json(cost);
    assert_int_equal(json_array_size(json_object_get(json, "verify")), 8);
    assert_int_equal(json_array_size(json_object_get(json, "draft")), 8);
    assert_int_equal(json_array_size(json_object_get(json, "own")), 1);
    json_t *cell = json_array_get(json_object_get(json, "draft"), 1);
    assert_int_equal(json_integer_value(json_object_get(cell, "requests")), 2);
    assert_near(json_real_value(json_object_get(cell, "ms")), 0.2);
    cell = json_array_get(json_object_get(json, "verify"), 7);
    assert_int_equal(json_integer_value(json_object_get(cell, "context_band")), 1);
    json_decref(json);
    cost_free(cost);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"cache", "damaged", "broken", "table"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(path_of(names[i]));
    return rmdir(folder); /* fails when a save left something behind */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_until_measured),
        cmocka_unit_test(staircase_is_kept),
        cmocka_unit_test(beyond_the_last_size_its_slope_goes_on),
        cmocka_unit_test(a_table_equals_its_cells_in_any_order),
        cmocka_unit_test(a_spike_is_dropped_and_counted),
        cmocka_unit_test(a_new_level_is_learned_in_a_few_observations),
        cmocka_unit_test(spikes_now_and_then_never_move_a_cell),
        cmocka_unit_test(a_first_value_out_of_proportion_waits),
        cmocka_unit_test(stale_cells_follow_the_pace),
        cmocka_unit_test(the_others_follow_the_moment),
        cmocka_unit_test(one_size_moves_no_other),
        cmocka_unit_test(a_copy_learns_on_its_own),
        cmocka_unit_test(a_dear_cell_is_tried_again),
        cmocka_unit_test(a_rare_look_is_believed_in_part),
        cmocka_unit_test(a_rare_look_is_compared_with_the_moment),
        cmocka_unit_test(scatter_tells_a_busy_machine),
        cmocka_unit_test(drift_is_followed),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(a_band_borrows_the_staircase_of_the_profile),
        cmocka_unit_test(profile_covers_what_can_be_scheduled),
        cmocka_unit_test(a_flat_curve_is_called_flat),
        cmocka_unit_test(the_cache_gives_back_what_was_saved),
        cmocka_unit_test(a_loaded_level_resists_a_spike_and_follows_a_change),
        cmocka_unit_test(another_key_is_refused),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(a_checksum_is_no_licence_for_nonsense),
        cmocka_unit_test(saving_fails_with_a_cause_and_keeps_the_old_file),
        cmocka_unit_test(a_trace_table_is_read),
        cmocka_unit_test(a_bad_line_is_named),
        cmocka_unit_test(changed_cells_are_taken_once),
        cmocka_unit_test(json_names_every_cell),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
