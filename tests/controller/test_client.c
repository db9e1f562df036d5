/* test_client.c - the client of the control API against the real front and against servers that
 * misbehave: streams cut anywhere, redirects, endless bodies, silence; deadlines and abort; tokens.
 */
#include "config.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "controller/client.h"
#include "controller/server.h"
#include "tests/controller/node_echo.h"

static long long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ------------------------------------------------------------------------------ the real front */

struct front {
    char folder[64], socket[96], token[96], url[64];
    struct node *node;
    struct server *server;
};

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
}

static int front_start(void **state)
{
    struct front *front = calloc(1, sizeof *front);
    struct server_options options = {.listen = "127.0.0.1:0"};
    char *cause = NULL;

    strcpy(front->folder, "/tmp/trimtab-client-XXXXXX");
    if (!mkdtemp(front->folder)) return -1;
    snprintf(front->socket, sizeof front->socket, "%s/t.sock", front->folder);
    snprintf(front->token, sizeof front->token, "%s/token", front->folder);
    write_file(front->token, "secret-token\n", 0600);
    options.socket_path = front->socket;
    options.write_token_file = front->token;
    front->node = node_echo_new("a node/1");
    front->server = server_start(&options, &front->node, 1, &cause);
    if (!front->server) return -1;
    snprintf(front->url, sizeof front->url, "http://127.0.0.1:%d", server_port(front->server, 0));
    *state = front;
    return 0;
}

static int front_stop(void **state)
{
    struct front *front = *state;

    server_stop(front->server);
    front->node->ops->close(front->node);
    unlink(front->token);
    rmdir(front->folder);
    free(front);
    return 0;
}

static struct client *client_for(const char *address, const char *token_file, int deadline_ms)
{
    struct client_options options = {
        .address = address, .token_file = token_file, .deadline_ms = deadline_ms};
    char *cause = NULL;
    struct client *client = client_new(&options, &cause);

    if (!client) fail_msg("%s", cause);
    return client;
}

static void test_calls_over_the_socket(void **state)
{
    struct front *front = *state;
    struct client *client = client_for(front->socket, NULL, 0);
    struct client_reply reply;

    assert_string_equal(client_address(client), front->socket);
    assert_int_equal(client_get(client, "/api/v1/nodes", &reply), CLIENT_OK);
    assert_int_equal(reply.http_status, 200);
    assert_true(json_is_false(json_object_get(reply.body, "read_only")));
    client_reply_clear(&reply);

    char *path = client_node_path("a node/1", "mode");
    assert_string_equal(path, "/api/v1/nodes/a%20node%2F1/mode");
    free(path);
    client_free(client);
}

static void test_calls_over_tcp(void **state)
{
    struct front *front = *state;
    struct client *reader = client_for(front->url, NULL, 0),
                  *writer = client_for(front->url, front->token, 0);
    json_t *body = json_pack("{s:s, s:i}", "mode", "fixed", "expect_generation", 99);
    struct client_reply reply;

    assert_int_equal(client_put(reader, "/api/v1/nodes/x/mode", body, &reply), CLIENT_REFUSED);
    assert_int_equal(reply.http_status, 401);
    assert_non_null(strstr(reply.cause, "write token"));
    client_reply_clear(&reply);
    assert_int_equal(client_put(writer, "/api/v1/nodes/x/mode", body, &reply), CLIENT_REFUSED);
    assert_int_equal(reply.http_status, 404);
    assert_null(strstr(reply.cause, "secret"));
    client_reply_clear(&reply);
    assert_int_equal(client_delete(writer, "/api/v1/nodes/x/requests/1", &reply), CLIENT_REFUSED);
    assert_int_equal(reply.http_status, 404);
    client_reply_clear(&reply);
    json_decref(body);
    client_free(reader);

    assert_int_equal(setenv("TRIMTAB_TOKEN", "wrong", 1), 0);
    reader = client_for(front->url, NULL, 0);
    assert_int_equal(client_delete(reader, "/api/v1/nodes/x/requests/1", &reply), CLIENT_REFUSED);
    assert_int_equal(reply.http_status, 401);
    client_reply_clear(&reply);
    client_free(reader);
    assert_int_equal(setenv("TRIMTAB_TOKEN", "secret-token", 1), 0);
    reader = client_for(front->url, NULL, 0);
    assert_int_equal(client_delete(reader, "/api/v1/nodes/x/requests/1", &reply), CLIENT_REFUSED);
    assert_int_equal(reply.http_status, 404);
    client_reply_clear(&reply);
    client_free(reader);
    unsetenv("TRIMTAB_TOKEN");

    client_free(writer);
}

/* ------------------------------------------------------------------- a server that is scripted */

struct script {
    const char *text; /* sent for every connection after its request arrived */
    size_t length;
    int pause_us; /* between bytes; -1 = all at once */
    int repeat;   /* the text from `body` on is sent so often more */
    const char *body;
    bool hold; /* keep the connection open afterwards */
    int listener, port;
    pthread_t thread;
    char request[4096]; /* of the last connection */
    bool stop;
};

static void *script_run(void *state)
{
    struct script *script = state;
    int fd, on = 1;

    while ((fd = accept(script->listener, NULL, NULL)) >= 0) {
        size_t got = 0;
        ssize_t part;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        while (got + 1 < sizeof script->request &&
               (part = recv(fd, script->request + got, sizeof script->request - 1 - got, 0)) > 0) {
            got += (size_t)part;
            script->request[got] = '\0';
            if (strstr(script->request, "\r\n\r\n")) break;
        }
        for (size_t i = 0; i < script->length && script->pause_us >= 0; i++) {
            if (send(fd, script->text + i, 1, MSG_NOSIGNAL) != 1) break;
            if (script->pause_us) usleep((useconds_t)script->pause_us);
        }
        if (script->pause_us < 0) send(fd, script->text, script->length, MSG_NOSIGNAL);
        for (int i = 0; i < script->repeat; i++) {
            if (send(fd, script->body, strlen(script->body), MSG_NOSIGNAL) < 0) break;
        }
        if (script->hold)
            recv(fd, script->request, sizeof script->request, 0); /* until the client leaves */
        close(fd);
    }
    return NULL;
}

static struct script *script_start(const char *text, int pause_us)
{
    struct script *script = calloc(1, sizeof *script);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;

    script->text = text;
    script->length = strlen(text);
    script->pause_us = pause_us;
    script->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(script->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(script->listener, 4), 0);
    getsockname(script->listener, (struct sockaddr *)&address, &size);
    script->port = ntohs(address.sin_port);
    return script;
}

static struct client *script_client(struct script *script, const char *token_file, int deadline_ms)
{
    char url[64];

    assert_int_equal(pthread_create(&script->thread, NULL, script_run, script), 0);
    snprintf(url, sizeof url, "127.0.0.1:%d", script->port);
    return client_for(url, token_file, deadline_ms);
}

static void script_end(struct script *script, struct client *client)
{
    client_free(client);
    shutdown(script->listener, SHUT_RDWR);
    pthread_join(script->thread, NULL);
    close(script->listener);
    free(script);
}

struct seen {
    int count, stop_after;
    char names[8][32];
};

static bool see(void *state, const json_t *object)
{
    struct seen *seen = state;
    const char *name = json_string_value(json_object_get(object, "n"));

    if (seen->count < 8)
        snprintf(seen->names[seen->count], sizeof seen->names[0], "%s", name ? name : "?");
    return ++seen->count != seen->stop_after;
}

#define EVENT_STREAM                                                                               \
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"

static void test_events_survive_any_split(void **state)
{
    static const char text[] =
        EVENT_STREAM ": a comment\n\n"
                     "data: {\"n\":\"one\"}\n\n"
                     "event: x\r\nid: 5\r\ndata: {\"n\":\r\ndata:\"two\"}\r\n\r\n"
                     "\n\n\ndata:{\"n\":\"three \xE6\x97\xA5\"}\n\n"
                     "data: {\"n\":\"unfinished\"}";
    (void)state;
    static const int pauses_us[] = {-1, 0, 200};
    for (size_t i = 0; i < sizeof pauses_us / sizeof *pauses_us; i++) {
        struct script *script = script_start(text, pauses_us[i]);
        struct client *client = script_client(script, NULL, 0);
        struct seen seen = {0};
        struct client_reply reply;
        assert_int_equal(client_stream(client, "/s", 2000, see, &seen, &reply), CLIENT_UNREACHABLE);
        assert_non_null(strstr(reply.cause, "ended"));
        assert_int_equal(seen.count, 3);
        assert_string_equal(seen.names[0], "one");
        assert_string_equal(seen.names[1], "two");
        assert_string_equal(seen.names[2], "three \xE6\x97\xA5");
        client_reply_clear(&reply);
        script_end(script, client);
    }
}

static void expect_stream(const char *text, int repeat, const char *body, enum client_status wanted,
                          const char *words)
{
    struct script *script = script_start(text, -1);
    script->repeat = repeat;
    script->body = body;
    struct client *client = script_client(script, NULL, 2000);
    struct seen seen = {0};
    struct client_reply reply;

    assert_int_equal(client_stream(client, "/s", 1000, see, &seen, &reply), wanted);
    if (!reply.cause || !strstr(reply.cause, words))
        fail_msg("\"%s\" lacks \"%s\"", reply.cause, words);
    client_reply_clear(&reply);
    script_end(script, client);
}

static void test_bad_streams(void **state)
{
    char block[4097];

    (void)state;
    memset(block, 'x', sizeof block - 1);
    block[sizeof block - 1] = '\0';
    expect_stream(EVENT_STREAM "data: {\"n\":\n\n", 0, "", CLIENT_BAD_REPLY, "not a JSON object");
    expect_stream(EVENT_STREAM "data: [1]\n\n", 0, "", CLIENT_BAD_REPLY, "not a JSON object");
    expect_stream(EVENT_STREAM "data: {\"n\":\"", 1000, block, CLIENT_BAD_REPLY, "too large");
    memcpy(block, "data: ", 6);
    block[sizeof block - 2] = '\n';
    expect_stream(EVENT_STREAM, 1000, block, CLIENT_BAD_REPLY, "too large");
    expect_stream("HTTP/1.1 404 Not Found\r\nContent-Length: "
                  "33\r\n\r\n{\"error\":{\"message\":\"no stream\"}}",
                  0, "", CLIENT_REFUSED, "no stream");
}

static void expect_get(const char *text, int repeat, const char *body, enum client_status wanted,
                       const char *words)
{
    struct script *script = script_start(text, -1);
    script->repeat = repeat;
    script->body = body;
    struct client *client = script_client(script, NULL, 2000);
    struct client_reply reply;

    assert_int_equal(client_get(client, "/x", &reply), wanted);
    if (wanted == CLIENT_OK)
        assert_null(reply.cause);
    else if (!reply.cause || !strstr(reply.cause, words))
        fail_msg("\"%s\" lacks \"%s\"", reply.cause, words);
    client_reply_clear(&reply);
    script_end(script, client);
}

static void test_bad_replies(void **state)
{
    char block[65537];

    (void)state;
    memset(block, ' ', sizeof block - 1);
    block[sizeof block - 1] = '\0';
    expect_get("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}", 0, "", CLIENT_OK, "");
    expect_get("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 0, "", CLIENT_BAD_REPLY,
               "not JSON");
    expect_get("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, "", CLIENT_BAD_REPLY, "not JSON");
    expect_get("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"a\":1}", 0, "", CLIENT_UNREACHABLE,
               "127.0.0.1");
    expect_get("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
               0, "", CLIENT_BAD_REPLY, "redirect");
    expect_get("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", 0, "", CLIENT_REFUSED, "500");
    expect_get("HTTP/1.1 503 Oh\r\nContent-Length: 3\r\n\r\nhmm", 0, "", CLIENT_REFUSED, "503");
    expect_get("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", 400, block, CLIENT_BAD_REPLY,
               "too large");
    expect_get("SSH-2.0-OpenSSH\r\n", 0, "", CLIENT_UNREACHABLE, "127.0.0.1");
    expect_get("", 0, "", CLIENT_UNREACHABLE, "127.0.0.1");
}

static void test_the_token_goes_into_its_header_only(void **state)
{
    struct front *front = *state;
    struct script *script = script_start(
        "HTTP/1.1 302 F\r\nLocation: http://127.0.0.1:1/secret\r\nContent-Length: 0\r\n\r\n", -1);
    struct client *client = script_client(script, front->token, 1000);
    struct client_reply reply;

    assert_int_equal(setenv("http_proxy", "http://127.0.0.1:9", 1), 0);
    assert_int_equal(client_get(client, "/x", &reply), CLIENT_BAD_REPLY);
    unsetenv("http_proxy");
    assert_null(strstr(reply.cause, "secret"));
    assert_non_null(strstr(script->request, "\r\nAuthorization: Bearer secret-token\r\n"));
    client_reply_clear(&reply);
    script_end(script, client);
}

static void test_silence_meets_the_deadline(void **state)
{
    struct script *script = script_start("HTTP/1.1 200 OK\r\n", -1);
    struct client_reply reply;

    (void)state;
    script->hold = true;
    struct client *client = script_client(script, NULL, 150);
    long long start = now_ms();
    assert_int_equal(client_get(client, "/x", &reply), CLIENT_DEADLINE);
    assert_true(now_ms() - start >= 140 && now_ms() - start < 1500);
    client_reply_clear(&reply);
    script_end(script, client);

    script = script_start(EVENT_STREAM "data: {\"n\":\"one\"}\n\n", -1);
    script->hold = true;
    client = script_client(script, NULL, 5000);
    struct seen seen = {0};
    start = now_ms();
    assert_int_equal(client_stream(client, "/x", 150, see, &seen, &reply), CLIENT_DEADLINE);
    assert_int_equal(seen.count, 1);
    assert_true(now_ms() - start < 1500);
    client_reply_clear(&reply);
    script_end(script, client);
}

static void *abort_soon(void *client)
{
    usleep(50000);
    client_abort(client);
    return NULL;
}

static void test_abort_is_immediate(void **state)
{
    struct script *script = script_start("HTTP/1.1 200 OK\r\n", -1);
    struct client_reply reply;
    pthread_t thread;

    (void)state;
    script->hold = true;
    struct client *client = script_client(script, NULL, 60000);
    long long start = now_ms();
    assert_int_equal(pthread_create(&thread, NULL, abort_soon, client), 0);
    assert_int_equal(client_get(client, "/x", &reply), CLIENT_ABORTED);
    assert_true(now_ms() - start < 500);
    client_reply_clear(&reply);
    assert_int_equal(client_get(client, "/x", &reply), CLIENT_ABORTED);
    client_reply_clear(&reply);
    pthread_join(thread, NULL);
    script_end(script, client);
}

static void test_snapshots_stream(void **state)
{
    struct front *front = *state;
    struct node *node = node_echo_new("local");
    struct server_options options = {.listen = "127.0.0.1:0"};
    struct server *server = server_start(&options, &node, 1, NULL);
    struct seen seen = {.stop_after = 3};
    struct client_reply reply;
    char url[64];

    (void)front;
    assert_non_null(server);
    snprintf(url, sizeof url, "127.0.0.1:%d", server_port(server, 0));
    struct client *client = client_for(url, NULL, 0);
    assert_int_equal(client_stream(client, "/api/v1/nodes/local/stream?interval_ms=200", 2000, see,
                                   &seen, &reply),
                     CLIENT_OK);
    assert_int_equal(seen.count, 3);
    client_reply_clear(&reply);
    assert_int_equal(client_get(client, "/api/v1/nodes/local/snapshot", &reply),
                     CLIENT_OK); /* goes on working */
    client_reply_clear(&reply);
    client_free(client);
    server_stop(server);
    node->ops->close(node);
}

static void test_nobody_there(void **state)
{
    static const char *const addresses[] = {"/nonexistent/x.sock", "unix:/nonexistent/x.sock",
                                            "127.0.0.1:1", "http://127.0.0.1:1"};
    struct client_reply reply;

    (void)state;
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        struct client *client = client_for(addresses[i], NULL, 1000);
        assert_int_equal(client_get(client, "/x", &reply), CLIENT_UNREACHABLE);
        assert_non_null(strstr(reply.cause, client_address(client)));
        client_reply_clear(&reply);
        client_free(client);
    }
}

static void test_bad_options(void **state)
{
    struct front *front = *state;
    static const char *const addresses[] = {"ftp://x",   "http://",   "a b",
                                            "user@host", "http:///x", ""};
    struct client_options options = {0};
    char *cause = NULL, path[128], longer[256];

    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        options.address = addresses[i];
        assert_null(client_new(&options, &cause));
        assert_non_null(cause);
        free(cause);
        cause = NULL;
    }
    memset(longer, 'x', sizeof longer - 1);
    longer[0] = '/';
    longer[sizeof longer - 1] = '\0';
    options.address = longer;
    assert_null(client_new(&options, &cause));
    options.address = "host:1";
    snprintf(path, sizeof path, "%s/bad", front->folder);
    static const struct {
        const char *text, *words;
        mode_t mode;
    } files[] = {{"x", "chmod 600", 0644},
                 {"", "empty", 0600},
                 {"a b", "one key", 0600},
                 {"a\nb", "one key", 0600}};
    options.token_file = path;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_file(path, files[i].text, files[i].mode);
        assert_null(client_new(&options, &cause));
        if (!strstr(cause, files[i].words)) fail_msg("%s", cause);
    }
    unlink(path);
    assert_null(client_new(&options, &cause));
    assert_non_null(strstr(cause, "No such file"));
    options.token_file = front->folder;
    assert_null(client_new(&options, &cause));
    assert_non_null(strstr(cause, "regular"));
    free(cause);
}

static void test_default_socket(void **state)
{
    (void)state;
    assert_int_equal(setenv("XDG_RUNTIME_DIR", "/run/user/7", 1), 0);
    char *path = client_default_socket();
    assert_string_equal(path, "/run/user/7/trimtab.sock");
    free(path);
    unsetenv("XDG_RUNTIME_DIR");
    path = client_default_socket();
    assert_string_equal(path, "/run/trimtab/trimtab.sock");
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_over_the_socket),
        cmocka_unit_test(test_calls_over_tcp),
        cmocka_unit_test(test_events_survive_any_split),
        cmocka_unit_test(test_bad_streams),
        cmocka_unit_test(test_bad_replies),
        cmocka_unit_test(test_the_token_goes_into_its_header_only),
        cmocka_unit_test(test_silence_meets_the_deadline),
        cmocka_unit_test(test_abort_is_immediate),
        cmocka_unit_test(test_snapshots_stream),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_default_socket),
    };
    unsetenv("TRIMTAB_TOKEN");
    return cmocka_run_group_tests(tests, front_start, front_stop);
}
