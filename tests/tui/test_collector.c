/* test_collector.c - what the console's two threads make of answers that cross: a stand-in daemon
 * on a unix socket, whose answers to GETs are held back until the test lets them go. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "controller/ticks.h"
#include "tui/collector.h"

#define PATIENCE_MS 20000
#define MOST_CONNECTIONS 8

/* GETs are answered one by one: `let` of them may be, `asked` have come. What they say is of the
 * moment when they came. */
static struct {
    int listener;
    char path[64];
    pthread_t accepting, connection[MOST_CONNECTIONS];
    int socket[MOST_CONNECTIONS], connections;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    int asked, let, max_draft;
    bool over;
} daemon_ = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Waits until *count >= least; the lock is held. */
static void wait_for(const int *count, int least)
{
    while (*count < least && !daemon_.over) pthread_cond_wait(&daemon_.changed, &daemon_.lock);
}

static void document(const char *path, int max_draft, char *out, size_t size)
{
    if (strstr(path, "/settings"))
        snprintf(out, size, "{\"schema\":\"trimtab.settings/1\",\"max_draft\":%d,\"generation\":1}",
                 max_draft);
    else if (strstr(path, "/snapshot"))
        snprintf(out, size, "{\"schema\":\"trimtab.snapshot/1\",\"max_draft\":%d,\"time_ms\":1}",
                 max_draft);
    else
        snprintf(out, size, "{\"schema\":\"trimtab.nodes/1\",\"nodes\":[{\"id\":\"local\"}]}");
}

static void answer(int fd, const char *request)
{
    char path[256] = "", body[256], head[128];
    const char *blank = strstr(request, "\r\n\r\n");
    int length, max_draft;

    sscanf(request, "%*s %255s", path);
    pthread_mutex_lock(&daemon_.lock);
    if (strncmp(request, "PUT ", 4) == 0) {
        const char *value = strstr(blank, "\"max_draft\":");

        if (value) daemon_.max_draft = atoi(value + strlen("\"max_draft\":"));
        max_draft = daemon_.max_draft;
    } else {
        int turn = ++daemon_.asked;

        max_draft = daemon_.max_draft;
        pthread_cond_broadcast(&daemon_.changed);
        wait_for(&daemon_.let, turn);
    }
    pthread_mutex_unlock(&daemon_.lock);
    document(path, max_draft, body, sizeof body);
    length = snprintf(head, sizeof head,
                      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                      "\r\n",
                      strlen(body));
    (void)send(fd, head, (size_t)length, MSG_NOSIGNAL | MSG_MORE); /* it may be gone */
    (void)send(fd, body, strlen(body), MSG_NOSIGNAL);
}

/* The whole request is there: its head, and as much body as that says. */
static bool is_whole(const char *request)
{
    const char *blank = strstr(request, "\r\n\r\n"), *length = strstr(request, "Content-Length: ");

    if (!blank) return false;
    return !length || length > blank ||
           strlen(blank + 4) >= (size_t)atoi(length + strlen("Content-Length: "));
}

static void *serve(void *state)
{
    char request[4096];
    size_t used = 0;
    int fd = *(int *)state;
    ssize_t got;

    while ((got = read(fd, request + used, sizeof request - 1 - used)) > 0) {
        used += (size_t)got;
        request[used] = '\0';
        if (!is_whole(request)) continue;
        answer(fd, request);
        used = 0;
    }
    return NULL;
}

static void *accept_all(void *state)
{
    (void)state;
    while (daemon_.connections < MOST_CONNECTIONS) {
        int n = daemon_.connections;

        daemon_.socket[n] = accept(daemon_.listener, NULL, NULL);
        if (daemon_.socket[n] < 0) break;
        if (pthread_create(&daemon_.connection[n], NULL, serve, &daemon_.socket[n]) != 0) abort();
        daemon_.connections++;
    }
    return NULL;
}

static int start_daemon(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char folder[] = "/tmp/trimtab-collector-XXXXXX";

    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(daemon_.path, sizeof daemon_.path, "%s/sock", folder);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", daemon_.path);
    daemon_.max_draft = 6;
    daemon_.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(daemon_.listener, (struct sockaddr *)&address, sizeof address) != 0) return -1;
    if (listen(daemon_.listener, MOST_CONNECTIONS) != 0) return -1;
    return pthread_create(&daemon_.accepting, NULL, accept_all, NULL);
}

static int stop_daemon(void **state)
{
    (void)state;
    pthread_mutex_lock(&daemon_.lock);
    daemon_.over = true;
    pthread_cond_broadcast(&daemon_.changed);
    pthread_mutex_unlock(&daemon_.lock);
    shutdown(daemon_.listener, SHUT_RDWR);
    pthread_join(daemon_.accepting, NULL);
    for (int i = 0; i < daemon_.connections; i++) {
        shutdown(daemon_.socket[i], SHUT_RDWR);
        pthread_join(daemon_.connection[i], NULL);
        close(daemon_.socket[i]);
    }
    close(daemon_.listener);
    unlink(daemon_.path);
    *strrchr(daemon_.path, '/') = '\0';
    return rmdir(daemon_.path);
}

/* Let so many GETs be answered, and see the next one come: what the last one let go said was dealt
 * with by then, for one thread asks them in turn. */
static void let_and_see_next(int let)
{
    pthread_mutex_lock(&daemon_.lock);
    daemon_.let = let;
    pthread_cond_broadcast(&daemon_.changed);
    wait_for(&daemon_.asked, let + 1);
    pthread_mutex_unlock(&daemon_.lock);
}

/* max_draft of what is there of that kind; 0 = there is none. */
static int take_max_draft(struct collector *collector, enum news_kind kind)
{
    struct news news;
    int value = 0;

    while (collector_take(collector, &news)) {
        if (news.kind == kind)
            value = (int)json_integer_value(json_object_get(news.json, "max_draft"));
        news_clear(&news);
    }
    return value;
}

static void wait_for_answer(struct collector *collector, int *max_draft)
{
    int64_t end_ms = monotonic_ms() + PATIENCE_MS;
    bool answered = false;

    *max_draft = 0;
    while (!answered && monotonic_ms() < end_ms) {
        struct pollfd poller = {.fd = collector_descriptor(collector), .events = POLLIN};
        struct news news;

        poll(&poller, 1, 100);
        while (collector_take(collector, &news)) {
            if (news.kind == NEWS_SETTINGS)
                *max_draft = (int)json_integer_value(json_object_get(news.json, "max_draft"));
            if (news.kind == NEWS_ANSWER) {
                assert_int_equal(news.answer, ANSWER_OK);
                answered = true;
            }
            news_clear(&news);
        }
    }
    assert_true(answered);
}

/* The GETs of the reader come in this order: nodes, snapshot, history, decisions, settings. */
enum { SNAPSHOT_GET = 2, SETTINGS_GET = 5 };

/* A command changes max_draft from `before` to `after` while GET number `turn` is in flight. */
static void change_during(struct collector *collector, int turn, enum news_kind kind, int after)
{
    struct ui_command command = {.kind = COMMAND_SET, .node = "local", .setting = "max_draft"};
    int max_draft;

    let_and_see_next(turn - 1);
    (void)take_max_draft(collector, kind);
    snprintf(command.value, sizeof command.value, "%d", after);
    collector_command(collector, &command);
    wait_for_answer(collector, &max_draft);
    assert_int_equal(max_draft, after); /* the PUT's own answer */
    let_and_see_next(turn);
    assert_int_equal(take_max_draft(collector, kind), 0); /* the old one is no news */
}

static void test_what_was_asked_before_a_command_ended_is_no_state_after_it(void **state)
{
    const struct wishes wishes = {
        .node = "local", .view = VIEW_SETTINGS, .interval_ms = 60000, .window_ms = 60000};
    const struct client_options options = {.address = daemon_.path, .deadline_ms = PATIENCE_MS};
    char *cause = NULL;
    struct collector *collector = collector_new(&options, &wishes, &cause);

    (void)state;
    assert_non_null(collector);
    change_during(collector, SETTINGS_GET, NEWS_SETTINGS, 4);
    /* all is read anew, and that counts */
    let_and_see_next(SETTINGS_GET + SNAPSHOT_GET);
    assert_int_equal(take_max_draft(collector, NEWS_SNAPSHOT), 4);
    collector_free(collector);
}

static void test_nor_is_a_snapshot(void **state)
{
    const struct wishes wishes = {
        .node = "local", .view = VIEW_SETTINGS, .interval_ms = 60000, .window_ms = 60000};
    const struct client_options options = {.address = daemon_.path, .deadline_ms = PATIENCE_MS};
    char *cause = NULL;
    struct collector *collector;
    int asked;

    (void)state;
    pthread_mutex_lock(&daemon_.lock); /* the first test's last GET was never answered */
    asked = daemon_.let = daemon_.asked;
    pthread_cond_broadcast(&daemon_.changed);
    pthread_mutex_unlock(&daemon_.lock);
    collector = collector_new(&options, &wishes, &cause);
    assert_non_null(collector);
    change_during(collector, asked + SNAPSHOT_GET, NEWS_SNAPSHOT, 3);
    collector_free(collector);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_asked_before_a_command_ended_is_no_state_after_it),
        cmocka_unit_test(test_nor_is_a_snapshot),
    };

    return cmocka_run_group_tests(tests, start_daemon, stop_daemon);
}
