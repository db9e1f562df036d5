/* test_history.c - history and decisions of the control API over a real store that is being
 * written. */
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
static int64_t store_now_ms(void *state)
{
    (void)state;
    return now_ms();
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
                                      .mode = "adaptive"};
        store_put_sample(store, &sample);
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

    snprintf(path, sizeof path,
             "/api/v1/nodes/local/history?series=throughput_tps,slope&from=%lld&to=%lld&step=1000",
             (long long)base_ms, (long long)base_ms + 50000);
    json_t *body = get(w, path, 200);
    assert_string_equal(json_string_value(json_object_get(body, "schema")), "trimtab.history/1");
    json_t *points = json_object_get(json_object_get(body, "series"), "throughput_tps");
    assert_int_equal(json_array_size(points), 50);
    assert_int_equal(json_integer_value(json_array_get(json_array_get(points, 3), 0)),
                     base_ms + 3000);
    assert_true(json_number_value(json_array_get(json_array_get(points, 3), 1)) == 103);
    assert_int_equal(json_array_size(json_object_get(json_object_get(body, "series"), "slope")),
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
        {"decisions?limit=1001", 400},
        {"decisions?from=99999999999999999999", 400},
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
    json_decref(body);
    body = get(w, "/api/v1/nodes/local/decisions?limit=1", 200);
    assert_int_equal(json_array_size(json_object_get(body, "decisions")), 1);
    json_decref(body);
    body = get(w, "/api/v1/nodes/local/decisions?from=1&to=2", 200);
    assert_int_equal(json_array_size(json_object_get(body, "decisions")), 0);
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
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_bad_questions),
        cmocka_unit_test(test_decisions),
        cmocka_unit_test(test_without_a_store),
    };
    unsetenv("TRIMTAB_TOKEN");
    return cmocka_run_group_tests(tests, start, stop);
}
