/* test_history.c - history and decisions of the control API over a real store that is being
 * written. */
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

#include "controller/client.h"
#include "controller/server.h"
#include "storage/store.h"
#include "tests/controller/node_echo.h"

static const int64_t base_ms = INT64_C(1790000000000);

struct world {
    char folder[64], path[96], url[64];
    struct store *store;
    struct node *node;
    struct server *server;
    struct client *client;
};

static int64_t now_ms(void)
{
    return base_ms + 60000;
}
static _Atomic int64_t store_clock_ms = INT64_C(1790000000000); /* the run starts with its rows */
static int64_t store_now_ms(void *state)
{
    (void)state;
    return store_clock_ms;
}

/* A refit of each of two strata every 10 s, and what they cost and were worth. */
static void write_learned(struct store *store, int64_t run_id, int at_s)
{
    static const char *const strata[] = {"model/greedy/t0", "model/ratio/t1"};

    for (int i = 0; i < 2; i++) {
        struct store_refit refit = {.run_id = run_id,
                                    .time_ms = base_ms + at_s * 1000 + i * 100,
                                    .epoch = at_s / 10 + 1,
                                    .stratum = strata[i],
                                    .kind = "online",
                                    .slope = 0.5 + i + at_s / 1000.0,
                                    .slope_se = 0.02,
                                    .level = -0.4,
                                    .centre = 1,
                                    .drift_z = 0.8,
                                    .observations = i == 0 ? 500 : 20,
                                    .positions = 2,
                                    .position = {{-0.3, 0.04, 300}, {-0.5, 0.1, 200}}};
        store_put_refit(store, &refit);
    }
    struct store_calibration calibration = {.run_id = run_id,
                                            .time_ms = base_ms + at_s * 1000,
                                            .stratum = strata[0],
                                            .positions = 1,
                                            .bin[0][6] = {.n = 100, .sum_p = 65, .sum_y = 61}};
    struct store_cost cost = {.run_id = run_id,
                              .time_ms = base_ms + at_s * 1000,
                              .part = "verify",
                              .tokens = 4,
                              .ms = 15 + at_s,
                              .spread_ms = 0.5,
                              .n = at_s};
    struct store_event drift = {.run_id = run_id,
                                .time_ms = base_ms + at_s * 1000,
                                .severity = "info",
                                .kind = "drift",
                                .text = "the law moved"};
    store_put_calibration(store, &calibration);
    store_put_cost(store, &cost);
    store_put_event(store, &drift);
}

static void write_rows(struct store *store)
{
    struct store_run run = {
        .node = "local", .kind = "echo", .engine = "echo", .model = "echo-tiny", .max_draft = 2};
    int64_t run_id = store_begin_run(store, &run);

    assert_true(run_id > 0);
    for (int i = 0; i < 50; i++) {
        struct store_sample sample = {.run_id = run_id,
                                      .time_ms = base_ms + i * 1000,
                                      .running = 2,
                                      .steps = 40,
                                      .drafted = 80,
                                      .admitted = 60,
                                      .verified = 60,
                                      .accepted = 45,
                                      .emitted = 100 + i,
                                      .target_rows = 140,
                                      .draft_ms = 100,
                                      .verify_ms = 800,
                                      .own_ms = 8,
                                      .step_ms = 908,
                                      .budget = 1.5,
                                      .mode = "adaptive",
                                      .positions = 2,
                                      .position = {{.reached = 40, .accepted = 30, .predicted = 28},
                                                   {.reached = 20, .accepted = 15}}};
        store_put_sample(store, &sample);
        if (i % 10 == 0) write_learned(store, run_id, i);
    }
    struct store_decision decision = {.run_id = run_id,
                                      .time_ms = base_ms + 5000,
                                      .who = "uid 0",
                                      .origin = "socket",
                                      .what = "mode",
                                      .before = "fixed",
                                      .after = "adaptive",
                                      .reason = "try \"it\"",
                                      .numbers_json = "{\"gain\":0.18}"};
    store_put_decision(store, &decision);
    struct store_event event = {.run_id = 0,
                                .time_ms = base_ms + 6000,
                                .severity = "warning",
                                .kind = "store",
                                .text = "a gap"};
    store_put_event(store, &event);
    store_clock_ms = now_ms();
    assert_true(store_flush(store));
}

static int start(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct store_options store = {.now_ms = store_now_ms};
    struct server_options options = {.listen = "127.0.0.1:0", .now_ms = now_ms};
    struct client_options client = {0};
    char *cause = NULL;

    strcpy(w->folder, "/tmp/trimtab-history-XXXXXX");
    if (!mkdtemp(w->folder)) return -1;
    snprintf(w->path, sizeof w->path, "%s/trimtab.db", w->folder);
    store.path = options.store_path = w->path;
    w->store = store_open(&store, &cause);
    if (!w->store) fail_msg("%s", cause);
    write_rows(w->store);
    w->node = node_echo_new("local");
    w->server = server_start(&options, &w->node, 1, &cause);
    if (!w->server) fail_msg("%s", cause);
    snprintf(w->url, sizeof w->url, "127.0.0.1:%d", server_port(w->server, 0));
    client.address = w->url;
    w->client = client_new(&client, &cause);
    *state = w;
    return 0;
}

static int stop(void **state)
{
    struct world *w = *state;
    char command[128];

    client_free(w->client);
    server_stop(w->server);
    w->node->ops->close(w->node);
    store_close(w->store);
    snprintf(command, sizeof command, "rm -r %s", w->folder);
    int failed = system(command);
    free(w);
    return failed;
}

static json_t *get(struct world *w, const char *path, int wanted)
{
    struct client_reply reply;

    client_get(w->client, path, &reply);
    if (reply.http_status != wanted) fail_msg("%s: %d: %s", path, reply.http_status, reply.cause);
    json_t *body = json_incref(reply.body);
    client_reply_clear(&reply);
    return body;
}

static void test_history(void **state)
{
    struct world *w = *state;
    char path[256];

    snprintf(
        path, sizeof path,
        "/api/v1/nodes/local/history?series=throughput_tps,intercept.9&from=%lld&to=%lld&step=1000",
        (long long)base_ms, (long long)base_ms + 50000);
    json_t *body = get(w, path, 200);
    assert_string_equal(json_string_value(json_object_get(body, "schema")), "trimtab.history/1");
    json_t *points = json_object_get(json_object_get(body, "series"), "throughput_tps");
    assert_int_equal(json_array_size(points), 50);
    assert_int_equal(json_integer_value(json_array_get(json_array_get(points, 3), 0)),
                     base_ms + 3000);
    assert_true(json_number_value(json_array_get(json_array_get(points, 3), 1)) == 103);
    assert_int_equal(
        json_array_size(json_object_get(json_object_get(body, "series"), "intercept.9")),
        0); /* a gap, no zeros */
    assert_int_equal(json_integer_value(json_object_get(body, "step_ms")), 1000);
    json_decref(body);
    body =
        get(w, "/api/v1/nodes/local/history?series=throughput_tps", 200); /* the last 15 minutes */
    assert_int_equal(json_integer_value(json_object_get(body, "to_ms")), now_ms());
    assert_int_equal(json_integer_value(json_object_get(body, "from_ms")),
                     now_ms() - 15 * 60 * 1000);
    json_decref(body);
}

static void test_bad_questions(void **state)
{
    static const struct {
        const char *query;
        int status;
    } bad[] = {
        {"history", 400},
        {"history?series=", 400},
        {"history?series=speed", 400},
        {"history?series=slope,speed", 400},
        {"history?series=slope&from=x", 400},
        {"history?series=slope&from=5&to=5", 400},
        {"history?series=slope&step=0", 400},
        {"history?series=slope&from=0&to=1790000000000&step=1", 400},
        {"history?series=slope&from=-1", 400},
        {"decisions?limit=0", 400},
        {"decisions?limit=1e2", 400}, /* a count is decimal digits */
        {"decisions?limit=0x10", 400},
        {"decisions?limit=%2010", 400},
        {"decisions?limit=1001", 400},
        {"decisions?around=noon", 400},
        {"decisions?from=99999999999999999999", 400},
        {"past?at=yesterday", 400},
        {"past?at=-1", 400},
        {"past?at=1000", 404}, /* before the first run */
    };
    struct world *w = *state;
    char path[256];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(path, sizeof path, "/api/v1/nodes/local/%s", bad[i].query);
        json_t *body = get(w, path, bad[i].status);
        assert_true(json_is_string(json_object_get(json_object_get(body, "error"), "message")));
        json_decref(body);
    }
    json_decref(get(w, "/api/v1/nodes/other/history?series=slope", 404));
}

static void test_decisions(void **state)
{
    struct world *w = *state;
    json_t *body = get(w, "/api/v1/nodes/local/decisions", 200),
           *list = json_object_get(body, "decisions");
    json_t *mode = NULL, *gap = NULL, *one;
    json_int_t last = INT64_MAX;
    size_t i;

    assert_string_equal(json_string_value(json_object_get(body, "schema")), "trimtab.decisions/1");
    json_array_foreach(list, i, one)
    {
        const char *what = json_string_value(json_object_get(one, "what"));
        assert_true(json_integer_value(json_object_get(one, "time_ms")) <= last); /* newest first */
        last = json_integer_value(json_object_get(one, "time_ms"));
        if (strcmp(what, "mode") == 0) mode = one;
        if (strcmp(what, "store") == 0) gap = one;
        assert_int_equal(json_object_size(one), 10);
    }
    assert_non_null(mode);
    assert_non_null(gap); /* the daemon's own */
    json_t *wanted =
        json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:{s:f}}", "time_ms",
                  (json_int_t)(base_ms + 5000), "kind", "decision", "severity", "info", "what",
                  "mode", "before", "fixed", "after", "adaptive", "who", "uid 0", "origin",
                  "socket", "text", "try \"it\"", "numbers", "gain", 0.18);
    assert_true(json_equal(mode, wanted));
    json_decref(wanted);
    assert_string_equal(json_string_value(json_object_get(gap, "severity")), "warning");
    assert_true(json_array_size(list) > 2);
    for (i = 1; i < json_array_size(list); i++) { /* the two nearest, however many are newer */
        const json_int_t at_ms =
            json_integer_value(json_object_get(json_array_get(list, i), "time_ms"));
        json_t *near_by, *two;
        char path[120];

        if (json_integer_value(json_object_get(json_array_get(list, i - 1), "time_ms")) == at_ms)
            continue;
        snprintf(path, sizeof path, "/api/v1/nodes/local/decisions?limit=2&around=%lld",
                 (long long)at_ms);
        near_by = get(w, path, 200);
        two = json_object_get(near_by, "decisions");
        assert_int_equal(json_array_size(two), 2);
        assert_true(json_integer_value(json_object_get(json_array_get(two, 0), "time_ms")) > at_ms);
        assert_int_equal(json_integer_value(json_object_get(json_array_get(two, 1), "time_ms")),
                         at_ms);
        json_decref(near_by);
    }
    json_decref(body);
    body = get(w, "/api/v1/nodes/local/decisions?limit=1", 200);
    assert_int_equal(json_array_size(json_object_get(body, "decisions")), 1);
    json_decref(body);
    body = get(w, "/api/v1/nodes/local/decisions?from=1&to=2", 200);
    assert_int_equal(json_array_size(json_object_get(body, "decisions")), 0);
    json_decref(body);
}

static json_t *at_path(json_t *object, const char *a, const char *b)
{
    return json_object_get(json_object_get(object, a), b);
}

static bool near(json_t *value, double wanted)
{
    return fabs(json_number_value(value) - wanted) < 1e-9;
}

static void test_past(void **state)
{
    struct world *w = *state;
    struct snapshot snapshot;
    char path[128], *cause = NULL;

    /* 24.5 s in: seconds 20 … 24, refits of second 20 */
    snprintf(path, sizeof path, "/api/v1/nodes/local/past?at=%lld", (long long)base_ms + 24500);
    json_t *body = get(w, path, 200);
    assert_string_equal(json_string_value(json_object_get(body, "schema")), "trimtab.past/1");
    if (snapshot_from_json(json_object_get(body, "snapshot"), &snapshot, &cause) != 0)
        fail_msg("%s", cause);
    assert_string_equal(snapshot.node.model, "echo-tiny");
    assert_int_equal(snapshot.mode, MODE_ADAPTIVE);
    assert_true(snapshot.time_ms == base_ms + 24500);
    assert_true(snapshot.window_ms == 5000 && snapshot.throughput_tps == 122);
    assert_true(snapshot.running == 2 && snapshot.queued == 0);
    assert_true(fabs(snapshot.tokens_per_step - 122 / 40.0) < 1e-9);
    assert_true(fabs(snapshot.accepted_verified_ratio - 0.75) < 1e-9);
    assert_true(fabs(snapshot.step_ms - 908 / 40.0) < 1e-9);
    assert_true(snapshot.steps == -1 && snapshot.health.state[0] == '\0'); /* not stored */
    /* both strata were refitted together: the one with more labels leads */
    assert_string_equal(snapshot.estimator.stratum, "model/greedy/t0");
    assert_true(fabs(snapshot.estimator.slope - 0.52) < 1e-9 && snapshot.estimator.refits == 3);
    assert_true(snapshot.estimator.positions_count == 2);
    assert_true(fabs(snapshot.estimator.position[0].accepted_ratio - 0.75) < 1e-9);
    assert_true(fabs(snapshot.estimator.position[0].predicted_ratio - 0.7) < 1e-9);
    assert_true(snapshot.estimator.position[1].n == 200);
    assert_true(fabs(snapshot.estimator.ece - 0.04) < 1e-9);
    assert_true(snapshot.estimator.drift_events == 3 &&
                snapshot.estimator.last_drift_ms == base_ms + 20000);
    json_t *strata = at_path(body, "calibration", "strata");
    assert_int_equal(json_array_size(strata), 2);
    json_t *bin = json_array_get(json_object_get(json_array_get(strata, 0), "bins"), 6);
    assert_true(near(json_object_get(bin, "n"), 400)); /* whole minutes: up to second 30 */
    json_t *cell = json_array_get(at_path(body, "cost", "verify"), 0);
    assert_true(near(json_object_get(cell, "ms"), 35)); /* the latest belief then */
    json_decref(body);
}

static void test_without_a_store(void **state)
{
    struct world *w = *state;
    char missing[128], url[64];
    const char *const paths[] = {NULL, missing};
    struct client_reply reply;

    snprintf(missing, sizeof missing, "%s/none.db", w->folder);
    for (int i = 0; i < 2; i++) {
        struct server_options options = {.listen = "127.0.0.1:0", .store_path = paths[i]};
        struct server *server = server_start(&options, &w->node, 1, NULL);
        assert_non_null(server);
        snprintf(url, sizeof url, "127.0.0.1:%d", server_port(server, 0));
        struct client_options client_options = {.address = url};
        struct client *client = client_new(&client_options, NULL);
        assert_int_equal(client_get(client, "/api/v1/nodes/local/history?series=slope", &reply),
                         CLIENT_REFUSED);
        assert_int_equal(reply.http_status, 503);
        client_reply_clear(&reply);
        assert_int_equal(client_get(client, "/api/v1/nodes/local/snapshot", &reply), CLIENT_OK);
        client_reply_clear(&reply);
        client_free(client);
        server_stop(server);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_history),         cmocka_unit_test(test_bad_questions),
        cmocka_unit_test(test_decisions),       cmocka_unit_test(test_past),
        cmocka_unit_test(test_without_a_store),
    };
    unsetenv("TRIMTAB_TOKEN");
    return cmocka_run_group_tests(tests, start, stop);
}
