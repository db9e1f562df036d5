/* collector.c - see collector.h. */
#include "config.h"

#include "tui/collector.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "controller/cause.h"
#include "controller/ticks.h"

#define READ_DEADLINE_MS 5000
#define COMMAND_DEADLINE_MS                                                                        \
    35000 /* a busy vLLM node answers after 8 to 16 s (design), twice that and a little */
#define NODES_EVERY_MS 10000
#define HISTORY_EVERY_MS 60000
#define DECISIONS_EVERY_MS 15000
#define DECISIONS_SHOWN_EVERY_MS 2000
#define COST_LEAST_MS 2000 /* the node's loop answers this one between two steps */
#define HISTORY_POINTS 450 /* about the dot columns of a wide screen */

struct collector {
    struct client *reader, *writer;
    pthread_t read_thread, command_thread;
    bool reading, commanding; /* the threads run */
    int pipe[2];              /* a byte in it: there is news */

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    struct wishes wishes;
    bool anew, stop, command_waiting;
    int64_t commands; /* that ended */
    struct ui_command command;
    bool waiting[NEWS_KINDS];
    struct news news[NEWS_KINDS];
};

void news_clear(struct news *news)
{
    json_decref(news->json);
    free(news->text);
    memset(news, 0, sizeof *news);
}

/* Takes over what `news` holds; the lock is held. */
static void put(struct collector *collector, struct news *news)
{
    if (collector->waiting[news->kind]) news_clear(&collector->news[news->kind]);
    collector->news[news->kind] = *news;
    collector->waiting[news->kind] = true;
}

static void announce(struct collector *collector)
{
    ssize_t written;

    do /* a full pipe is as good as one byte more in it */
        written = write(collector->pipe[1], "", 1);
    while (written < 0 && errno == EINTR);
}

static int64_t commands_ended(struct collector *collector)
{
    int64_t count;

    pthread_mutex_lock(&collector->lock);
    count = collector->commands;
    pthread_mutex_unlock(&collector->lock);
    return count;
}

/* Takes over what was asked for when `commands` had ended. When another one ended meanwhile, nobody
 * can tell whether this was read before it or after it: it is dropped, and all is read anew. */
static void publish(struct collector *collector, struct news *news, int64_t commands)
{
    bool current;

    pthread_mutex_lock(&collector->lock);
    current = collector->commands == commands;
    if (current) put(collector, news);
    pthread_mutex_unlock(&collector->lock);
    if (current)
        announce(collector);
    else
        news_clear(news);
}

bool collector_take(struct collector *collector, struct news *out)
{
    char bytes[64];
    bool found = false;

    while (read(collector->pipe[0], bytes, sizeof bytes) > 0) {}
    pthread_mutex_lock(&collector->lock);
    for (int kind = 0; kind < NEWS_KINDS && !found; kind++) {
        if (!collector->waiting[kind]) continue;
        *out = collector->news[kind];
        memset(&collector->news[kind], 0, sizeof collector->news[kind]);
        collector->waiting[kind] = false;
        found = true;
    }
    pthread_mutex_unlock(&collector->lock);
    return found;
}

/* ---- reading */

struct schedule { /* of the reading thread: when what is due (monotonic) */
    char node[SNAPSHOT_NAME];
    int64_t nodes_ms, snapshot_ms, past_ms, history_ms, decisions_ms, view_ms;
    int64_t window_ms, time_ms; /* time_ms: of the last snapshot, the node's clock */
    int positions;
};

/* Fetch one document and publish it. That it failed is news too: without a document, with the
 * reason. */
static bool fetch(struct collector *collector, const char *path, enum news_kind kind,
                  const char *node)
{
    struct client_reply reply = {0};
    struct news news = {.kind = kind};
    const int64_t commands = commands_ended(collector);
    enum client_status status = client_get(collector->reader, path, &reply);

    if (status != CLIENT_ABORTED) {
        snprintf(news.node, sizeof news.node, "%s", node);
        news.json = status == CLIENT_OK ? reply.body : NULL;
        news.text = reply.cause;
        if (status == CLIENT_OK) reply.body = NULL;
        reply.cause = NULL;
        publish(collector, &news, commands);
    }
    client_reply_clear(&reply);
    return status == CLIENT_OK;
}

static bool fetch_of_node(struct collector *collector, const struct schedule *schedule,
                          const char *rest, enum news_kind kind)
{
    char *path = client_node_path(schedule->node, rest);
    bool ok = path != NULL && fetch(collector, path, kind, schedule->node);

    free(path);
    return ok;
}

char *collector_history_path(const char *node, int64_t to_ms, int64_t window_ms, int positions)
{
    int64_t step_ms =
        window_ms / HISTORY_POINTS < 1000 ? 1000 : window_ms / HISTORY_POINTS / 1000 * 1000;
    char rest[8192], label[24];
    int used = snprintf(rest, sizeof rest,
                        "history?from=%" PRId64 "&to=%" PRId64 "&step=%" PRId64 "&series=",
                        to_ms - window_ms, to_ms, step_ms);

    for (int i = 0; i < SERIES_COUNT; i++) {
        if (i >= SERIES_NODE_COUNT && (i - SERIES_NODE_COUNT) % SNAPSHOT_MAX_POSITIONS >= positions)
            continue;
        model_series_label(i, label, sizeof label);
        used += snprintf(rest + used, sizeof rest - (size_t)used, "%s%s", i > 0 ? "," : "", label);
    }
    return client_node_path(node, rest);
}

static bool fetch_snapshot(struct collector *collector, struct schedule *schedule)
{
    char *path = client_node_path(schedule->node, "snapshot");
    struct client_reply reply = {0};
    struct news news = {.kind = NEWS_SNAPSHOT};
    const int64_t commands = commands_ended(collector);
    enum client_status status =
        path != NULL ? client_get(collector->reader, path, &reply) : CLIENT_INVALID;
    bool ok = status == CLIENT_OK;

    snprintf(news.node, sizeof news.node, "%s", schedule->node);
    if (ok) {
        const json_t *estimator = json_object_get(reply.body, "estimator");

        schedule->time_ms = json_integer_value(json_object_get(reply.body, "time_ms"));
        schedule->positions = (int)json_array_size(json_object_get(estimator, "positions"));
        news.json = reply.body;
        reply.body = NULL;
    } else {
        news.text = reply.cause;
        reply.cause = NULL;
    }
    if (status == CLIENT_ABORTED)
        news_clear(&news);
    else
        publish(collector, &news, commands);
    client_reply_clear(&reply);
    free(path);
    return ok;
}

/* The daemon's first node, when none was named. */
static void choose_first(struct collector *collector, struct schedule *schedule)
{
    struct client_reply reply = {0};

    if (client_get(collector->reader, "/api/v1/nodes", &reply) == CLIENT_OK) {
        const json_t *first = json_array_get(json_object_get(reply.body, "nodes"), 0);
        const char *id = json_string_value(json_object_get(first, "id"));

        snprintf(schedule->node, sizeof schedule->node, "%s", id != NULL ? id : "");
    }
    client_reply_clear(&reply);
}

static void fetch_history(struct collector *collector, const struct schedule *schedule,
                          const struct wishes *wishes)
{
    int64_t to_ms = wishes->at_ms > 0 ? wishes->at_ms + 1 : schedule->time_ms;
    const int positions = wishes->view == VIEW_POSITIONS ? schedule->positions : 0;
    char *path = collector_history_path(schedule->node, to_ms, wishes->window_ms, positions);

    if (path != NULL)
        fetch(collector, path, wishes->at_ms > 0 ? NEWS_PAST_HISTORY : NEWS_HISTORY,
              schedule->node);
    free(path);
}

/* The moment does not change: once is enough, when it worked. */
static bool fetch_past(struct collector *collector, const struct schedule *schedule, int64_t at_ms)
{
    char rest[48];

    snprintf(rest, sizeof rest, "past?at=%" PRId64, at_ms);
    return fetch_of_node(collector, schedule, rest, NEWS_PAST);
}

/* The newest ones, or the neighbours on both sides of the moment that is looked at. */
static void fetch_decisions(struct collector *collector, const struct schedule *schedule,
                            const struct wishes *wishes)
{
    char rest[64] = "decisions?limit=500";

    if (wishes->at_ms > 0)
        snprintf(rest, sizeof rest, "decisions?limit=500&around=%" PRId64, wishes->at_ms);
    fetch_of_node(collector, schedule, rest, NEWS_DECISIONS);
}

static void read_due(struct collector *collector, struct schedule *schedule,
                     const struct wishes *wishes)
{
    int64_t now_ms = monotonic_ms();

    if (now_ms >= schedule->nodes_ms) {
        bool ok = fetch(collector, "/api/v1/nodes", NEWS_NODES, "");

        if (ok && schedule->node[0] == '\0') choose_first(collector, schedule);
        schedule->nodes_ms = now_ms + (ok && schedule->node[0] != '\0' && wishes->view != VIEW_FLEET
                                           ? NODES_EVERY_MS
                                           : wishes->interval_ms);
    }
    if (schedule->node[0] == '\0') {
        schedule->snapshot_ms = schedule->nodes_ms;
        return;
    }
    if (now_ms >= schedule->snapshot_ms) {
        bool ok = fetch_snapshot(collector, schedule);

        schedule->snapshot_ms += wishes->interval_ms;
        if (schedule->snapshot_ms <= monotonic_ms())
            schedule->snapshot_ms = monotonic_ms() + wishes->interval_ms;
        if (!ok)
            return; /* the rest would fail the same way, and each may take its whole deadline */
    }
    if (wishes->at_ms > 0 && now_ms >= schedule->past_ms)
        schedule->past_ms = fetch_past(collector, schedule, wishes->at_ms)
                                ? INT64_MAX
                                : now_ms + wishes->interval_ms;
    if (now_ms >= schedule->history_ms && schedule->time_ms > 0) {
        fetch_history(collector, schedule, wishes);
        schedule->history_ms = wishes->at_ms > 0 ? INT64_MAX : now_ms + HISTORY_EVERY_MS;
    }
    if (now_ms >= schedule->decisions_ms) {
        fetch_decisions(collector, schedule, wishes);
        schedule->decisions_ms = now_ms + (wishes->view == VIEW_DECISIONS ? DECISIONS_SHOWN_EVERY_MS
                                                                          : DECISIONS_EVERY_MS);
    }
    if (now_ms >= schedule->view_ms) { /* what only one view shows is fetched only for it */
        int64_t every_ms = wishes->interval_ms;

        if (wishes->view == VIEW_REQUESTS) {
            fetch_of_node(collector, schedule, "requests", NEWS_REQUESTS);
        } else if (wishes->view == VIEW_SETTINGS) {
            fetch_of_node(collector, schedule, "settings", NEWS_SETTINGS);
        } else if (wishes->at_ms > 0) { /* came with the past */
        } else if (wishes->view == VIEW_ESTIMATOR) {
            fetch_of_node(collector, schedule, "calibration", NEWS_CALIBRATION);
        } else if (wishes->view == VIEW_COST) {
            fetch_of_node(collector, schedule, "cost", NEWS_COST);
            if (every_ms < COST_LEAST_MS) every_ms = COST_LEAST_MS;
        }
        schedule->view_ms = now_ms + every_ms;
    }
}

/* Wait until something is due or wished; false = stop. */
static bool wait_for_work(struct collector *collector, const struct schedule *schedule,
                          struct wishes *wishes, bool *anew)
{
    int64_t due_ms =
        schedule->snapshot_ms < schedule->nodes_ms ? schedule->snapshot_ms : schedule->nodes_ms;
    struct timespec due = {due_ms / 1000, due_ms % 1000 * 1000000};
    bool go_on;

    pthread_mutex_lock(&collector->lock);
    while (!collector->stop && !collector->anew)
        if (pthread_cond_timedwait(&collector->changed, &collector->lock, &due) == ETIMEDOUT) break;
    *wishes = collector->wishes;
    *anew = collector->anew;
    collector->anew = false;
    go_on = !collector->stop;
    pthread_mutex_unlock(&collector->lock);
    return go_on;
}

static void *read_thread(void *state)
{
    struct collector *collector = state;
    struct schedule schedule = {0};
    struct wishes wishes;
    bool anew;

    while (wait_for_work(collector, &schedule, &wishes, &anew)) {
        if (anew) {
            struct schedule fresh = {.time_ms = schedule.time_ms, .positions = schedule.positions};

            memcpy(fresh.node, schedule.node, sizeof fresh.node);
            schedule = fresh;
        }
        if (wishes.node[0] != '\0' && strcmp(wishes.node, schedule.node) != 0) {
            memset(&schedule, 0, sizeof schedule);
            snprintf(schedule.node, sizeof schedule.node, "%s", wishes.node);
        }
        read_due(collector, &schedule, &wishes);
    }
    return NULL;
}

/* ---- commands */

static json_t *command_body(const struct ui_command *command)
{
    json_t *value;

    if (command->kind == COMMAND_MODE)
        return json_pack("{s:s, s:I, s:s}", "mode", mode_name(command->mode), "expect_generation",
                         (json_int_t)command->expect_generation, "reason",
                         "toggled from the console");
    value = json_loads(command->value, JSON_DECODE_ANY, NULL);
    return json_pack("{s:o, s:I, s:s}", command->setting, value, "expect_generation",
                     (json_int_t)command->expect_generation, "reason", "set from the console");
}

static enum client_status ask_node(struct client *client, const struct ui_command *command,
                                   struct client_reply *reply)
{
    char rest[48];
    json_t *body = NULL;
    char *path = NULL;
    enum client_status status = CLIENT_INVALID;

    if (command->kind == COMMAND_CANCEL) {
        snprintf(rest, sizeof rest, "requests/%" PRId64, command->request);
        path = client_node_path(command->node, rest);
        if (path != NULL) status = client_delete(client, path, reply);
    } else {
        path = client_node_path(command->node, command->kind == COMMAND_MODE ? "mode" : "settings");
        body = command_body(command);
        if (path != NULL && body != NULL) status = client_put(client, path, body, reply);
    }
    json_decref(body);
    free(path);
    return status;
}

static void send_command(struct collector *collector, const struct ui_command *command)
{
    struct client_reply reply = {0};
    struct news news = {.kind = NEWS_ANSWER}, settings = {.kind = NEWS_SETTINGS};
    enum client_status status = ask_node(collector->writer, command, &reply);

    snprintf(news.node, sizeof news.node, "%s", command->node);
    news.generation = json_integer_value(json_object_get(reply.body, "generation"));
    news.answer = status == CLIENT_OK                                    ? ANSWER_OK
                  : status == CLIENT_REFUSED && reply.http_status == 409 ? ANSWER_CONFLICT
                  : status == CLIENT_REFUSED || status == CLIENT_INVALID ? ANSWER_REFUSED
                                                                         : ANSWER_UNREACHABLE;
    if (status == CLIENT_REFUSED && client_reply_words(&reply) != NULL) {
        news.text = strdup(client_reply_words(&reply)); /* the node is named where it is shown */
    } else {
        news.text = reply.cause;
        reply.cause = NULL;
    }
    if (status == CLIENT_OK && command->kind == COMMAND_SET) { /* all settings as they are now */
        snprintf(settings.node, sizeof settings.node, "%s", command->node);
        settings.json = reply.body;
        reply.body = NULL;
    }
    pthread_mutex_lock(&collector->lock);
    collector->commands++;
    collector->anew = true; /* read back at once */
    if (settings.json != NULL) put(collector, &settings);
    put(collector, &news);
    pthread_cond_broadcast(&collector->changed);
    pthread_mutex_unlock(&collector->lock);
    announce(collector);
    client_reply_clear(&reply);
}

static void *command_thread(void *state)
{
    struct collector *collector = state;
    struct ui_command command;

    pthread_mutex_lock(&collector->lock);
    while (!collector->stop) {
        if (!collector->command_waiting) {
            pthread_cond_wait(&collector->changed, &collector->lock);
            continue;
        }
        command = collector->command;
        collector->command_waiting = false;
        pthread_mutex_unlock(&collector->lock);
        send_command(collector, &command);
        pthread_mutex_lock(&collector->lock);
    }
    pthread_mutex_unlock(&collector->lock);
    return NULL;
}

/* ---- life */

static int make_pipe(int fd[2])
{
    if (pipe(fd) != 0) return -1;
    for (int i = 0; i < 2; i++) {
        fcntl(fd[i], F_SETFD, FD_CLOEXEC);
        fcntl(fd[i], F_SETFL, O_NONBLOCK);
    }
    return 0;
}

/* Signals belong to the screen's thread: both threads start with all of them blocked, but for
 * faults of their own, whose handler puts the terminal back. */
static int start_threads(struct collector *collector)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP};
    sigset_t all, before;

    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    collector->reading = pthread_create(&collector->read_thread, NULL, read_thread, collector) == 0;
    collector->commanding =
        pthread_create(&collector->command_thread, NULL, command_thread, collector) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return collector->reading && collector->commanding ? 0 : -1;
}

struct collector *collector_new(const struct client_options *options, const struct wishes *wishes,
                                char **cause)
{
    struct collector *collector = calloc(1, sizeof *collector);
    struct client_options reading = *options, commanding = *options;
    pthread_condattr_t attributes;

    if (collector == NULL) {
        cause_set(cause, "out of memory");
        return NULL;
    }
    reading.deadline_ms = READ_DEADLINE_MS;
    commanding.deadline_ms = COMMAND_DEADLINE_MS;
    collector->wishes = *wishes;
    collector->pipe[0] = collector->pipe[1] = -1;
    pthread_mutex_init(&collector->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&collector->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if ((collector->reader = client_new(&reading, cause)) == NULL ||
        (collector->writer = client_new(&commanding, cause)) == NULL)
        goto fail;
    if (make_pipe(collector->pipe) != 0 || start_threads(collector) != 0) {
        cause_set(cause, "cannot start the threads that fetch: %s", strerror(errno));
        goto fail;
    }
    return collector;
fail:
    collector_free(collector);
    return NULL;
}

void collector_free(struct collector *collector)
{
    if (collector == NULL) return;
    pthread_mutex_lock(&collector->lock);
    collector->stop = true;
    pthread_cond_broadcast(&collector->changed);
    pthread_mutex_unlock(&collector->lock);
    if (collector->reader != NULL) client_abort(collector->reader);
    if (collector->writer != NULL) client_abort(collector->writer);
    if (collector->reading) pthread_join(collector->read_thread, NULL);
    if (collector->commanding) pthread_join(collector->command_thread, NULL);
    for (int i = 0; i < NEWS_KINDS; i++) news_clear(&collector->news[i]);
    for (int i = 0; i < 2; i++)
        if (collector->pipe[i] >= 0) close(collector->pipe[i]);
    client_free(collector->reader);
    client_free(collector->writer);
    pthread_cond_destroy(&collector->changed);
    pthread_mutex_destroy(&collector->lock);
    free(collector);
}

const char *collector_address(const struct collector *collector)
{
    return client_address(collector->reader);
}

int collector_descriptor(const struct collector *collector)
{
    return collector->pipe[0];
}

void collector_wish(struct collector *collector, const struct wishes *wishes, bool anew)
{
    pthread_mutex_lock(&collector->lock);
    collector->wishes = *wishes;
    if (anew) collector->anew = true;
    pthread_cond_broadcast(&collector->changed);
    pthread_mutex_unlock(&collector->lock);
}

void collector_command(struct collector *collector, const struct ui_command *command)
{
    pthread_mutex_lock(&collector->lock);
    collector->command = *command;
    collector->command_waiting = true;
    pthread_cond_broadcast(&collector->changed);
    pthread_mutex_unlock(&collector->lock);
}
