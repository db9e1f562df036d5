/* test_bench.c - the load benchmark's rows: a broken run finds its blocks again, another
 * configuration does not, and two writers never share a file.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

#include "storage/bench.h"
#include "tests/storage/place.h"

static const struct bench_cell cell = {"BF16", "json", 0, 4};
static const struct bench_cell warm = {"BF16", "json", 1, 4};

static struct bench_store *open_bench(const struct place *place, const char *configuration)
{
    char *cause = NULL;
    struct bench_store *store = bench_store_open(place->path, configuration, &cause);

    if (!store) fail_msg("%s", cause);
    return store;
}

static void put(struct bench_store *store, const struct bench_cell *where, const char *policy,
                int block, int64_t tokens)
{
    const struct bench_block row = {
        .block = block, .time_ms = PLACE_START_MS, .tokens = tokens, .seconds = 2, .own_ms = 7};

    assert_int_equal(bench_store_put_block(store, where, policy, &row, NULL), 0);
}

struct seen {
    int blocks;
    int64_t tokens;
    double own_ms;
    char order[64];
};

static void see(void *state, const char *policy, const struct bench_block *block)
{
    struct seen *seen = state;

    seen->blocks++;
    seen->tokens += block->tokens;
    seen->own_ms += block->own_ms;
    strncat(seen->order, policy, 1);
    strncat(seen->order, block->block == 1 ? "1" : "2", 2);
}

static struct seen look(struct bench_store *store, const struct bench_cell *where)
{
    struct seen seen = {0};

    assert_int_equal(bench_store_each_block(store, where, see, &seen, NULL), 0);
    return seen;
}

static void a_broken_run_finds_its_blocks(void **state)
{
    struct place *place = *state;
    struct bench_store *store = open_bench(place, "{\"build\": 1}");
    struct seen seen;

    put(store, &cell, "off", 2, 10);
    put(store, &cell, "off", 1, 20);
    put(store, &cell, "adaptive", 1, 40);
    put(store, &cell, "adaptive", 1, 80); /* measured again: the newer one counts */
    put(store, &warm, "off", 1, 1000);
    bench_store_close(store);
    store = open_bench(place, "{\"build\": 1}");
    seen = look(store, &cell);
    assert_int_equal(seen.blocks, 3);
    assert_int_equal(seen.tokens, 110);
    assert_float_equal(seen.own_ms, 21, 1e-9);
    assert_string_equal(seen.order, "a1o1o2");
    bench_store_close(store);
}

static void another_configuration_begins_anew(void **state)
{
    struct place *place = *state;
    struct bench_store *store = open_bench(place, "{\"build\": 1}");

    put(store, &cell, "off", 1, 10);
    bench_store_close(store);
    store = open_bench(place, "{\"build\": 2}");
    assert_int_equal(look(store, &cell).blocks, 0);
    bench_store_close(store);
}

static void forgetting_a_cell_leaves_the_others(void **state)
{
    struct place *place = *state;
    struct bench_store *store = open_bench(place, "{}");
    const struct bench_result result = {.policy = "off", .tps = NAN};

    put(store, &cell, "off", 1, 10);
    put(store, &warm, "off", 1, 10);
    assert_int_equal(bench_store_put_result(store, &cell, &result, NULL), 0);
    assert_int_equal(place_integer(place->path, "SELECT tps IS NULL FROM bench_load"), 1);
    assert_int_equal(bench_store_forget(store, &cell, NULL), 0);
    assert_int_equal(look(store, &cell).blocks, 0);
    assert_int_equal(look(store, &warm).blocks, 1);
    assert_int_equal(place_integer(place->path, "SELECT count(*) FROM bench_load"), 0);
    bench_store_close(store);
}

static void ratios_are_found_again(void **state)
{
    struct place *place = *state;
    struct bench_store *store = open_bench(place, "{}");
    const struct bench_result result = {
        .policy = "oracle", .ratio_to_best_fixed = 1.25, .ratio_to_off = NAN};
    double to_best, to_off;

    assert_int_equal(bench_store_get_ratios(store, &cell, "oracle", &to_best, &to_off, NULL), 0);
    assert_true(isnan(to_best) && isnan(to_off));
    assert_int_equal(bench_store_put_result(store, &cell, &result, NULL), 0);
    assert_int_equal(bench_store_get_ratios(store, &cell, "oracle", &to_best, &to_off, NULL), 0);
    assert_float_equal(to_best, 1.25, 1e-9);
    assert_true(isnan(to_off));
    bench_store_close(store);
}

static void a_file_has_one_writer(void **state)
{
    struct place *place = *state;
    struct bench_store *store = open_bench(place, "{}");
    char *cause = NULL;

    assert_null(bench_store_open(place->path, "{}", &cause));
    assert_non_null(cause);
    free(cause);
    bench_store_close(store);
}

static int setup(void **state)
{
    struct place *place = calloc(1, sizeof *place);

    place_make(place);
    *state = place;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_broken_run_finds_its_blocks, setup, place_teardown),
        cmocka_unit_test_setup_teardown(another_configuration_begins_anew, setup, place_teardown),
        cmocka_unit_test_setup_teardown(forgetting_a_cell_leaves_the_others, setup, place_teardown),
        cmocka_unit_test_setup_teardown(ratios_are_found_again, setup, place_teardown),
        cmocka_unit_test_setup_teardown(a_file_has_one_writer, setup, place_teardown),
    };

    return cmocka_run_group_tests_name("storage: the load benchmark's rows", tests, NULL, NULL);
}
