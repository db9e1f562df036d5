/* verb_control.c - mode and set: changing a running node from a script, with read-back. See
 * verbs.h. */
#include "config.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/nearest.h"
#include "controller/number.h"
#include "tui/session.h"
#include "tui/text.h"
#include "tui/verbs.h"

#define EFFECT_SLACK_S 10  /* a busy node is sampled late; the change lies a little back */
#define READ_BACK_MS 30000 /* a busy remote node may take this long to have switched */
#define POLL_MS 200
#define KEY_MAX 63   /* bytes */
#define VALUE_MAX 63 /* bytes: settings are numbers and words */

/* Say of which node what change was not taken, and why; the exit status. */
static int refuse(const struct client *client, const char *node, const char *asked,
                  enum client_status failed, const struct client_reply *reply)
{
    const char *words = client_reply_words(reply);

    if (failed == CLIENT_REFUSED && reply->http_status == 409) {
        session_say("%s: somebody else changed the node meanwhile (generation %lld); look at it "
                    "and try again",
                    node,
                    (long long)json_integer_value(json_object_get(reply->body, "generation")));
        return EXIT_DEGRADED;
    }
    if (failed != CLIENT_REFUSED) {
        if (failed != CLIENT_INVALID)
            session_say("%s: it is not known whether %s was taken; trimtab status shows it", node,
                        asked);
        return session_complain(client, failed, reply);
    }
    session_say("%s: %s is refused: %s", node, asked, words != NULL ? words : reply->cause);
    if (reply->http_status == 401 || reply->http_status == 403)
        session_say("writing needs the socket's owner, or the write token: --token-file FILE");
    return EXIT_DEGRADED;
}

/* A reason that the daemon would not take, or no text at all, is refused before it is sent. */
static bool reason_fits(const char *reason)
{
    if (reason == NULL || strlen(reason) <= CLIENT_REASON_MAX) return true;
    session_say("--reason has %zu bytes; the decision log takes %d at most", strlen(reason),
                CLIENT_REASON_MAX);
    return false;
}

int control_put_mode(struct client *client, const char *node, enum mode mode, int64_t expect,
                     const char *reason, int64_t *generation)
{
    struct client_reply reply = {0};
    char *path = client_node_path(node, "mode");
    json_t *body = json_pack("{s:s, s:I, s:s}", "mode", mode_name(mode), "expect_generation",
                             (json_int_t)expect, "reason", reason);
    int status = EXIT_USAGE;

    if (body == NULL || path == NULL) {
        session_say(path != NULL ? "the reason is not UTF-8 text" : "out of memory");
    } else {
        enum client_status result = client_put(client, path, body, &reply);

        status = result != CLIENT_OK ? refuse(client, node, mode_name(mode), result, &reply)
                                     : EXIT_HEALTHY;
        *generation = json_integer_value(json_object_get(reply.body, "generation"));
    }
    client_reply_clear(&reply);
    json_decref(body);
    free(path);
    return status;
}

/* Until the node has taken the change of that generation; the exit status, after a message but for
 * EXIT_HEALTHY. */
static int wait_until_taken(struct client *client, const char *node, const char *asked,
                            int64_t generation, struct snapshot *snapshot)
{
    int status = EXIT_DEGRADED;

    for (int waited_ms = 0; waited_ms <= READ_BACK_MS; waited_ms += POLL_MS) {
        if (session_get_snapshot(client, node, snapshot, NULL, &status) != 0) return status;
        if (snapshot->generation >= generation && !snapshot->switching) return EXIT_HEALTHY;
        session_sleep_ms(POLL_MS);
    }
    session_say("%s accepted %s, but does not report it after %d s; watch it with: trimtab top",
                node, asked, READ_BACK_MS / 1000);
    return EXIT_DEGRADED;
}

int control_read_back(struct client *client, const char *node, enum mode wanted, int64_t generation,
                      struct snapshot *snapshot)
{
    int status = wait_until_taken(client, node, mode_name(wanted), generation, snapshot);

    if (status != EXIT_HEALTHY || snapshot->mode == wanted) return status;
    session_say("asked for %s, but %s is in force: somebody else changed it since",
                mode_name(wanted), mode_name(snapshot->mode));
    return EXIT_DEGRADED;
}

/* Count until both sides are long enough, `seconds` of them; the line is kept up to date on a
 * terminal. What was seen when it is stopped earlier has been said. */
static int tell_effect(const struct options *options, struct client *client, const char *node,
                       int64_t changed_ms)
{
    const bool watched = isatty(STDOUT_FILENO) != 0;
    int64_t seconds = options->effect_s;
    struct snapshot s;
    char text[240];
    int status = EXIT_DEGRADED;

    for (int64_t waited_s = 0; waited_s < seconds + EFFECT_SLACK_S; waited_s++) {
        bool known;

        session_sleep_ms(1000);
        if (session_get_snapshot(client, node, &s, NULL, &status) != 0) return status;
        known = s.toggle.known && s.toggle.time_ms >= changed_ms - EFFECT_SLACK_S * 1000;
        if (watched && known) {
            printf("\r\033[K%s", session_effect(&s, options->utc, text, sizeof text));
            fflush(stdout);
        }
        if (known && s.toggle.window_s >= (double)seconds) break;
    }
    if (!s.toggle.known || s.toggle.time_ms < changed_ms - EFFECT_SLACK_S * 1000) {
        session_say("%s has not enough seconds with work on both sides of the change to tell",
                    node);
        return EXIT_DEGRADED;
    }
    printf("%s%s\n", watched ? "\r\033[K" : "",
           session_effect(&s, options->utc, text, sizeof text));
    return EXIT_HEALTHY;
}

int verb_mode(const struct options *options)
{
    static const char *const names[] = {"adaptive", "fixed", "off", "shadow"};
    const char *node = options->words[0], *name = options->words[1];
    struct client *client;
    struct snapshot snapshot;
    enum mode mode;
    int64_t generation = 0;
    int status = EXIT_USAGE, nearest;
    char words[40];

    if (!mode_parse(name, &mode)) {
        nearest = nearest_index(name, names, 4);
        session_say("a mode is adaptive, fixed, off or shadow, not \"%.40s\"%s%s%s", name,
                    nearest >= 0 ? "; did you mean " : "", nearest >= 0 ? names[nearest] : "",
                    nearest >= 0 ? "?" : "");
        return EXIT_USAGE;
    }
    if (!reason_fits(options->reason)) return EXIT_USAGE;
    client = session_open(options, CONTROL_DEADLINE_MS, &status);
    if (client == NULL) return status;
    if (session_get_snapshot(client, node, &snapshot, NULL, &status) == 0)
        status = control_put_mode(client, node, mode, snapshot.generation,
                                  options->reason != NULL ? options->reason : "trimtab mode",
                                  &generation);
    if (status == EXIT_HEALTHY)
        status = control_read_back(client, node, mode, generation, &snapshot);
    if (status == EXIT_HEALTHY) {
        printf("%s: %s is in force (generation %lld)\n", node,
               mode_describe(snapshot.mode, snapshot.fixed_draft, words, sizeof words),
               (long long)snapshot.generation);
        fflush(stdout);
        if (options->effect_s > 0) status = tell_effect(options, client, node, snapshot.time_ms);
    }
    client_free(client);
    return status;
}

/* A value as its shortest JSON reading: number, true or false, else text. */
static json_t *parse_value(const char *text)
{
    int64_t integer;
    double real;

    if (strcmp(text, "true") == 0 || strcmp(text, "on") == 0) return json_true();
    if (strcmp(text, "false") == 0 || strcmp(text, "off") == 0) return json_false();
    if (number_read_whole(text, INT64_MIN, INT64_MAX, &integer)) return json_integer(integer);
    if (number_read_real(text, -DBL_MAX, DBL_MAX, &real)) return json_real(real);
    return json_string(text);
}

/* KEY=VALUE into the body; false after a message. What no daemon would take is not sent. */
static bool take_setting(const char *word, json_t *body)
{
    const char *equals = strchr(word, '=');
    size_t length = equals != NULL ? (size_t)(equals - word) : 0;
    char key[KEY_MAX + 1];

    if (length == 0) {
        session_say("\"%.60s\" is not KEY=VALUE, like max_draft=4", word);
        return false;
    }
    if (length > KEY_MAX) {
        session_say("no setting has a name of %zu bytes; trimtab set NODE lists them", length);
        return false;
    }
    snprintf(key, sizeof key, "%.*s", (int)length, word);
    if (strlen(equals + 1) > VALUE_MAX) {
        session_say("the value of %s has %zu bytes; no setting takes more than %d", key,
                    strlen(equals + 1), VALUE_MAX);
        return false;
    }
    if (json_object_set_new(body, key, parse_value(equals + 1)) == 0) return true;
    session_say("the value of %s is not UTF-8 text", key);
    return false;
}

static json_t *parse_settings(const struct options *options)
{
    json_t *body = json_object();
    bool good = true;

    for (int i = 1; good && i < options->words_count; i++)
        good = take_setting(options->words[i], body);
    if (good) return body;
    json_decref(body);
    return NULL;
}

static void print_setting(const char *before, const char *key, const json_t *value,
                          const char *after)
{
    char *text = json_is_string(value) ? strdup(json_string_value(value))
                                       : json_dumps(value, JSON_ENCODE_ANY),
         clean[300];

    if (text != NULL)
        printf("%s%s=%s%s\n", before, key, text_clean(clean, sizeof clean, text), after);
    free(text);
}

/* KEY=VALUE of what is in force, then what was accepted and is not yet, with what it waits for. */
static void print_settings(const json_t *settings)
{
    static const char *const others[] = {"schema", "pending", "pending_reason"};
    const char *key, *why = json_string_value(json_object_get(settings, "pending_reason"));
    char clean[300], after[320] = "";
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)settings, key, value)
    {
        bool other = false;

        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
            other = other || strcmp(key, others[i]) == 0;
        if (!other) print_setting("", key, value, "");
    }
    if (why != NULL) snprintf(after, sizeof after, " (%s)", text_clean(clean, sizeof clean, why));
    json_object_foreach(json_object_get(settings, "pending"), key, value)
    {
        print_setting("pending: ", key, value, after);
    }
}

/* After a change that was accepted: what the node has made of it. */
static int tell_settings(struct client *client, const char *node, const json_t *accepted)
{
    int64_t generation = json_integer_value(json_object_get(accepted, "generation"));
    struct snapshot snapshot;
    int status = wait_until_taken(client, node, "the change", generation, &snapshot);
    json_t *now = NULL;

    if (status == EXIT_HEALTHY) now = session_get_of_node(client, node, "settings", &status);
    if (now != NULL) print_settings(now);
    json_decref(now);
    return status;
}

int verb_set(const struct options *options)
{
    const char *node = options->words[0];
    struct client_reply reply = {0};
    int status = EXIT_USAGE;
    json_t *body = parse_settings(options), *present = NULL;
    struct client *client = NULL;
    enum client_status result;
    char *path = NULL;

    if (body == NULL || !reason_fits(options->reason)) {
        json_decref(body);
        return EXIT_USAGE;
    }
    client = session_open(options, CONTROL_DEADLINE_MS, &status);
    if (client == NULL) goto out;
    present = session_get_of_node(client, node, "settings", &status);
    if (present == NULL) goto out;
    if (options->words_count == 1) {
        print_settings(present);
        status = EXIT_HEALTHY;
        goto out;
    }
    if (json_is_integer(json_object_get(present, "generation")))
        json_object_set(body, "expect_generation", json_object_get(present, "generation"));
    json_object_set_new(body, "reason",
                        json_string(options->reason != NULL ? options->reason : "trimtab set"));
    path = client_node_path(node, "settings");
    result = path != NULL ? client_put(client, path, body, &reply) : CLIENT_INVALID;
    if (result == CLIENT_OK) {
        status = tell_settings(client, node, reply.body);
    } else {
        status = refuse(client, node, "the change", result, &reply);
    }
out:
    client_reply_clear(&reply);
    json_decref(body);
    json_decref(present);
    free(path);
    client_free(client);
    return status;
}
