/* session.c - see session.h. */
#include "config.h"

#include "tui/session.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tui/text.h"

void session_say(const char *format, ...)
{
    char text[1024], clean[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "trimtab: %s\n", text_clean(clean, sizeof clean, text));
}

void session_sleep_ms(int64_t ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};

    while (nanosleep(&left, &left) != 0 && errno == EINTR) {}
}

struct client_options session_client_options(const struct options *options, int deadline_ms)
{
    const char *variable = getenv("TRIMTAB_SOCKET");
    struct client_options client = {.address = options->endpoint,
                                    .token_file = options->token_file,
                                    .deadline_ms = deadline_ms};

    if (client.address == NULL && variable != NULL && variable[0] != '\0')
        client.address = variable;
    return client;
}

struct client *session_open(const struct options *options, int deadline_ms, int *status)
{
    struct client_options client_options = session_client_options(options, deadline_ms);
    char *cause = NULL;
    struct client *client = client_new(&client_options, &cause);

    if (client == NULL) {
        session_say("%s", cause != NULL ? cause : "out of memory");
        *status = EXIT_USAGE;
    }
    free(cause);
    return client;
}

int session_complain(const struct client *client, enum client_status failed,
                     const struct client_reply *reply)
{
    const char *cause = reply->cause != NULL ? reply->cause : "no reason is known";

    (void)client;
    session_say("%s", cause);
    if (failed == CLIENT_UNREACHABLE)
        session_say(
            "is the daemon running? start it with: trimtabd --model MODEL.gguf --draft DRAFT.gguf; "
            "one at another place is named with --socket PATH or its URL");
    return failed == CLIENT_UNREACHABLE || failed == CLIENT_DEADLINE || failed == CLIENT_BAD_REPLY
               ? EXIT_UNREACHABLE
               : EXIT_DEGRADED;
}

json_t *session_get(struct client *client, const char *path, int *status)
{
    struct client_reply reply = {0};
    enum client_status result = client_get(client, path, &reply);
    json_t *body = NULL;

    if (result == CLIENT_OK) {
        body = reply.body;
        reply.body = NULL;
    } else {
        *status = session_complain(client, result, &reply);
    }
    client_reply_clear(&reply);
    return body;
}

json_t *session_get_of_node(struct client *client, const char *node, const char *rest, int *status)
{
    char *path;
    json_t *body = NULL;

    if (strlen(node) >= SNAPSHOT_NAME) {
        session_say("no node has a name of %zu bytes (%d at most); trimtab nodes lists them",
                    strlen(node), SNAPSHOT_NAME - 1);
        *status = EXIT_USAGE;
        return NULL;
    }
    path = client_node_path(node, rest);
    if (path != NULL) {
        body = session_get(client, path, status);
    } else {
        session_say("out of memory");
        *status = EXIT_DEGRADED;
    }
    free(path);
    return body;
}

int session_get_snapshot(struct client *client, const char *node, struct snapshot *out,
                         json_t **document, int *status)
{
    json_t *body = session_get_of_node(client, node, "snapshot", status);
    char *cause = NULL;
    int result = -1;

    if (body == NULL) return -1;
    result = snapshot_from_json(body, out, &cause);
    if (result != 0) {
        session_say("%s", cause != NULL ? cause : "out of memory");
        *status = EXIT_DEGRADED;
    }
    free(cause);
    if (document != NULL && result == 0)
        *document = body;
    else
        json_decref(body);
    return result;
}

char *session_choose_node(const json_t *nodes, const char *name, int *status)
{
    const json_t *list = json_object_get(nodes, "nodes"), *item;
    char known[600] = "";
    size_t i, used = 0;

    *status = EXIT_DEGRADED;
    json_array_foreach(list, i, item)
    {
        const char *id = json_string_value(json_object_get(item, "id"));

        if (id == NULL) continue;
        if (name == NULL || strcmp(id, name) == 0) return strdup(id);
        if (used + strlen(id) + 3 < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s",
                                     used > 0 ? ", " : "", id);
    }
    if (name == NULL)
        session_say("the daemon watches no node yet");
    else if (used == 0)
        session_say("there is no node \"%.100s\": the daemon watches none yet", name);
    else
        session_say("there is no node \"%.100s\"; the daemon watches: %s", name, known);
    return NULL;
}

int session_health(const struct snapshot *snapshot)
{
    return strcmp(snapshot->health.state, "ok") == 0 && snapshot->store.ok ? EXIT_HEALTHY
                                                                           : EXIT_DEGRADED;
}

const char *session_effect(const struct snapshot *s, bool utc, char *out, size_t size)
{
    char clock[TEXT_NUMBER], n[7][TEXT_NUMBER];

    if (!s->toggle.known) return NULL;
    snprintf(
        out, size,
        "%s to %s at %s: %s to %s tok/s, %s %% (95 %% %s..%s), step %s to %s ms, %.0f s each side",
        s->toggle.before, s->toggle.after,
        text_moment_brief(clock, s->toggle.time_ms, s->time_ms, utc),
        text_significant(n[0], s->toggle.tps_before), text_significant(n[1], s->toggle.tps_after),
        text_signed(n[2], s->toggle.gain * 100, 1), text_signed(n[3], s->toggle.gain_low * 100, 1),
        text_signed(n[4], s->toggle.gain_high * 100, 1),
        text_significant(n[5], s->toggle.step_ms_before),
        text_significant(n[6], s->toggle.step_ms_after), s->toggle.window_s);
    return out;
}
