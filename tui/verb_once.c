/* verb_once.c - --once, status, top and nodes: looking without a console. See verbs.h. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "controller/ticks.h"
#include "tui/collector.h"
#include "tui/session.h"
#include "tui/text.h"
#include "tui/verbs.h"

#define ONCE_ROWS 24
#define ONCE_COLS 80
#define WINDOW_MS 900000
#define HEAD_EVERY 20 /* lines of top between two heads */

/* ---- --once */

/* Figures of the time between two samples; a restart between them leaves all unknown. */
static json_t *rates_to_json(const struct snapshot *first, const struct snapshot *second)
{
    static const struct {
        const char *key;
        size_t offset;
    } counts[] = {
        {"steps_per_s", offsetof(struct snapshot, steps)},
        {"drafted_tps", offsetof(struct snapshot, drafted_total)},
        {"verified_tps", offsetof(struct snapshot, verified_total)},
        {"accepted_tps", offsetof(struct snapshot, accepted_total)},
        {"emitted_tps", offsetof(struct snapshot, emitted_total)},
        {"requests_per_s", offsetof(struct snapshot, requests_total)},
    };
    double seconds = (double)(second->time_ms - first->time_ms) / 1000;
    bool restarted = second->uptime_s < first->uptime_s || second->steps < first->steps;
    json_t *rates = json_object();

    json_object_set_new(rates, "interval_s", json_real(seconds));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        int64_t before = *(const int64_t *)(const void *)((const char *)first + counts[i].offset);
        int64_t after = *(const int64_t *)(const void *)((const char *)second + counts[i].offset);
        bool known = seconds > 0 && !restarted && before >= 0 && after >= before;

        json_object_set_new(rates, counts[i].key,
                            known ? json_real((double)(after - before) / seconds) : json_null());
    }
    return rates;
}

static int print_once_json(const struct snapshot sample[2], json_t *document)
{
    int status = session_health(&sample[1]);
    json_t *rates = rates_to_json(&sample[0], &sample[1]);
    json_t *once = json_pack("{s:s, s:b, s:i, s:o, s:O}", "schema", "trimtab.once/1", "healthy",
                             status == EXIT_HEALTHY, "exit_status", status, "rates", rates,
                             "snapshot", document);

    if (once == NULL || json_dumpf(once, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(10)) != 0) {
        session_say("cannot print the figures: out of memory");
        status = EXIT_DEGRADED;
    }
    putchar('\n');
    json_decref(once);
    return status;
}

/* What the charts and the list of decisions need; missing parts stay unknown on the screen. */
static void add_past(struct client *client, struct model *model, const char *node, int64_t time_ms)
{
    char *paths[2] = {collector_history_path(node, time_ms, WINDOW_MS, 0),
                      client_node_path(node, "decisions?limit=20")};

    for (int i = 0; i < 2; i++) {
        struct client_reply reply = {0};

        if (paths[i] != NULL && client_get(client, paths[i], &reply) == CLIENT_OK) {
            char *cause = NULL;

            if (i == 0)
                (void)model_take_history(model, reply.body, &cause);
            else
                (void)model_take_decisions(model, reply.body, &cause);
            free(cause);
        }
        client_reply_clear(&reply);
        free(paths[i]);
    }
}

static int print_once_screen(struct client *client, const struct ui_options *ui_options,
                             const json_t *nodes, const char *node, json_t *const document[2],
                             const struct snapshot *last)
{
    struct ui *ui = ui_new(ui_options);
    struct winsize size = {0};
    struct screen *screen;
    int rows = ONCE_ROWS, cols = ONCE_COLS;
    char *cause = NULL;

    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
        size.ws_col >= ONCE_COLS) {
        cols = size.ws_col;
        rows = size.ws_row - 2 > ONCE_ROWS ? size.ws_row - 2
                                           : ONCE_ROWS; /* the prompt stays in sight */
    }
    screen = screen_new(rows, cols, ui_options->ascii);
    if (ui == NULL || screen == NULL) {
        session_say("out of memory");
        ui_free(ui);
        screen_free(screen);
        return EXIT_DEGRADED;
    }
    (void)model_take_nodes(ui_model(ui), nodes, 0, &cause);
    model_watch(ui_model(ui), node);
    (void)model_take_snapshot(ui_model(ui), document[0], 0, &cause);
    add_past(client, ui_model(ui), node, last->time_ms);
    (void)model_take_snapshot(ui_model(ui), document[1], 0, &cause);
    free(cause);
    ui_set_time(ui, 0, utc_ms());
    ui_data_arrived(ui);
    ui_draw(ui, screen);
    screen_write_rows(screen, rows - 1, stdout); /* the last one is for keys */
    ui_free(ui);
    screen_free(screen);
    return session_health(last);
}

int verb_once(const struct options *options, const struct ui_options *ui_options)
{
    int status = EXIT_DEGRADED;
    struct client *client = session_open(options, 0, &status);
    struct snapshot sample[2];
    json_t *nodes = NULL, *document[2] = {NULL, NULL};
    char *node = NULL;

    if (client == NULL) return status;
    nodes = session_get(client, "/api/v1/nodes", &status);
    if (nodes == NULL || (node = session_choose_node(nodes, options->node, &status)) == NULL)
        goto out;
    if (session_get_snapshot(client, node, &sample[0], &document[0], &status) != 0) goto out;
    session_sleep_ms(options->interval_ms);
    if (session_get_snapshot(client, node, &sample[1], &document[1], &status) != 0) goto out;
    status = options->json
                 ? print_once_json(sample, document[1])
                 : print_once_screen(client, ui_options, nodes, node, document, &sample[1]);
out:
    json_decref(document[0]);
    json_decref(document[1]);
    json_decref(nodes);
    free(node);
    client_free(client);
    return status;
}

/* ---- status */

static void print_field(const char *text, int cols)
{
    char shown[300];

    text_shorten(shown, sizeof shown, text[0] != '\0' ? text : TEXT_UNKNOWN, abs(cols));
    if (cols > 0) printf("%*s", cols - text_width(shown), "");
    fputs(shown, stdout);
    if (cols < 0) printf("%*s", -cols - text_width(shown), "");
    putchar(' ');
}

/* ---- one fact a line, for a screen reader: no columns, no signs, units in words */

static void print_fact(const struct snapshot *s, const char *name, const char *value,
                       const char *unit)
{
    char clean[400];

    if (value[0] == '\0') return;
    printf("%s %s: %s%s%s\n", s->node.id, name,
           strcmp(value, TEXT_UNKNOWN) == 0 ? "unknown" : text_clean(clean, sizeof clean, value),
           unit[0] != '\0' && strcmp(value, TEXT_UNKNOWN) != 0 ? " " : "",
           strcmp(value, TEXT_UNKNOWN) != 0 ? unit : "");
}

static void print_position_facts(const struct snapshot *s, int position)
{
    const struct snapshot_position *p = &s->estimator.position[position];
    char name[48], number[TEXT_NUMBER];

    snprintf(name, sizeof name, "position %d intercept", position);
    print_fact(s, name, text_decimal(number, p->intercept, 2), "");
    snprintf(name, sizeof name, "position %d accepted", position);
    print_fact(s, name, text_decimal(number, 100 * p->accepted_ratio, 1), "percent");
    snprintf(name, sizeof name, "position %d predicted", position);
    print_fact(s, name, text_decimal(number, 100 * p->predicted_ratio, 1), "percent");
}

static void print_toggle_facts(const struct snapshot *s)
{
    char text[160], gain[TEXT_NUMBER], low[TEXT_NUMBER], high[TEXT_NUMBER];

    if (!s->toggle.known) return;
    snprintf(text, sizeof text, "%s to %s", s->toggle.before, s->toggle.after);
    print_fact(s, "last toggle", text, "");
    snprintf(text, sizeof text, "%s percent, between %s and %s",
             text_signed(gain, 100 * s->toggle.gain, 1),
             text_signed(low, 100 * s->toggle.gain_low, 1),
             text_signed(high, 100 * s->toggle.gain_high, 1));
    print_fact(s, "its effect on throughput", text, "");
}

static void print_facts(const struct snapshot *s)
{
    char number[TEXT_NUMBER], mode[40];

    snprintf(mode, sizeof mode, "%s", mode_name(s->mode));
    if (s->mode == MODE_FIXED && s->fixed_draft >= 0)
        snprintf(mode, sizeof mode, "fixed, K %d", s->fixed_draft);
    print_fact(s, "health", s->health.state, "");
    print_fact(s, "reason", s->health.reason, "");
    print_fact(s, "what to try", s->health.advice, "");
    print_fact(s, "store", s->store.ok ? "writing" : "not writing", "");
    print_fact(s, "store reason", s->store.ok ? "" : s->store.reason, "");
    print_fact(s, "model", s->node.model, "");
    print_fact(s, "mode", mode, "");
    print_fact(s, "changes", s->node.unable, "");
    print_fact(s, "throughput", text_significant(number, s->throughput_tps), "tokens a second");
    print_fact(s, "tokens a step", text_decimal(number, s->tokens_per_step, 2), "");
    print_fact(s, "step time", text_significant(number, s->step_ms), "milliseconds");
    print_fact(s, "running", text_count(number, s->running), "requests");
    print_fact(s, "waiting", text_count(number, s->queued), "requests");
    print_fact(s, "drafted a step", text_significant(number, s->drafted_per_step), "tokens");
    print_fact(s, "verified a step", text_significant(number, s->verified_per_step), "tokens");
    print_fact(s, "accepted of verified", text_decimal(number, 100 * s->accepted_verified_ratio, 1),
               "percent");
    print_fact(s, "slope", text_decimal(number, s->estimator.slope, 3), "");
    print_fact(s, "calibration error", text_decimal(number, s->estimator.ece, 3), "");
    print_fact(s, "drift events", text_count(number, s->estimator.drift_events), "");
    for (int i = 0; i < s->estimator.positions_count; i++) print_position_facts(s, i);
    print_toggle_facts(s);
}

static void print_status(const struct snapshot *s, bool utc)
{
    char mode[40], tps[TEXT_NUMBER], tokens[TEXT_NUMBER], up[TEXT_NUMBER], running[TEXT_NUMBER],
        queued[TEXT_NUMBER];
    char clean[400], reason[400], effect[240], clock[TEXT_NUMBER];

    mode_describe(s->mode, s->fixed_draft, mode, sizeof mode);
    print_field(s->node.id, -16);
    print_field(mode, -10);
    print_field(s->health.state, -9);
    printf("%6s tok/s %5s tok/step %4s run %4s wait  up %s  %s\n",
           text_significant(tps, s->throughput_tps), text_significant(tokens, s->tokens_per_step),
           text_count(running, s->running), text_count(queued, s->queued),
           text_uptime(up, s->uptime_s), text_clean(clean, sizeof clean, s->node.model));
    if (s->health.reason[0] != '\0')
        printf("  %s%s%s\n", text_clean(reason, sizeof reason, s->health.reason),
               s->health.since_ms > 0 ? " since " : "",
               s->health.since_ms > 0
                   ? text_moment_brief(clock, s->health.since_ms, s->time_ms, utc)
                   : "");
    if (s->health.advice[0] != '\0')
        printf("  try: %s\n", text_clean(reason, sizeof reason, s->health.advice));
    if (s->node.unable[0] != '\0')
        printf("  %s\n", text_clean(reason, sizeof reason, s->node.unable));
    if (session_effect(s, utc, effect, sizeof effect) != NULL) printf("  %s\n", effect);
    if (!s->store.ok)
        printf("  store: not writing: %s\n", text_clean(reason, sizeof reason, s->store.reason));
}

/* Where who asks may change nothing: why, in the daemon's words. */
static void print_right(const json_t *nodes)
{
    const char *why = json_string_value(json_object_get(nodes, "read_only_reason"));
    char text[400];

    if (!json_is_true(json_object_get(nodes, "read_only"))) return;
    if (why != NULL && why[0] != '\0')
        printf("read-only: %s\n", text_clean(text, sizeof text, why));
    printf("to change a node be the socket's owner, or name the write token: --token-file FILE\n");
}

int verb_status(const struct options *options)
{
    int status = EXIT_DEGRADED, worst = EXIT_HEALTHY;
    struct client *client = session_open(options, 0, &status);
    json_t *nodes = NULL, *item, *snapshots = json_array();
    bool found = false;
    size_t i;

    if (client == NULL) goto out;
    nodes = session_get(client, "/api/v1/nodes", &status);
    if (nodes == NULL) goto out;
    json_array_foreach(json_object_get(nodes, "nodes"), i, item)
    {
        const char *id = json_string_value(json_object_get(item, "id"));
        struct snapshot snapshot;
        json_t *document = NULL;

        if (id == NULL || (options->node != NULL && strcmp(id, options->node) != 0)) continue;
        found = true;
        if (session_get_snapshot(client, id, &snapshot, &document, &status) != 0) {
            if (status > worst) worst = status;
            continue;
        }
        if (session_health(&snapshot) > worst) worst = session_health(&snapshot);
        if (options->plain && !options->json)
            print_facts(&snapshot);
        else if (!options->json)
            print_status(&snapshot, options->utc);
        json_array_append_new(snapshots, document);
    }
    if (!found && options->node != NULL) {
        free(session_choose_node(nodes, options->node, &worst)); /* says what there is */
    } else if (!found && !options->json) {
        puts("the daemon watches no node yet");
    }
    if (!options->json) print_right(nodes);
    if (options->json) {
        json_t *all = json_pack("{s:s, s:i, s:b, s:O*, s:O, s:O}", "schema", "trimtab.status/1",
                                "exit_status", worst, "read_only",
                                (int)json_is_true(json_object_get(nodes, "read_only")),
                                "read_only_reason", json_object_get(nodes, "read_only_reason"),
                                "nodes", json_object_get(nodes, "nodes"), "snapshots", snapshots);

        json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(10));
        putchar('\n');
        json_decref(all);
    }
    status = worst;
out:
    json_decref(snapshots);
    json_decref(nodes);
    client_free(client);
    return status;
}

/* ---- top */

static void print_top_head(void)
{
    puts("    time mode        tok/s tok/step step-ms drafted verified acc/ver   slope  run wait  "
         "health");
}

static void print_top_line(const struct snapshot *s, bool utc)
{
    char clock[TEXT_NUMBER], mode[24], n[9][TEXT_NUMBER], health[40];

    mode_describe(s->mode, s->fixed_draft, mode, sizeof mode);
    printf("%8s %-10s %6s %8s %7s %7s %8s %7s %7s %4s %4s  %s\n",
           text_clock(clock, s->time_ms, utc), mode, text_significant(n[0], s->throughput_tps),
           text_decimal(n[1], s->tokens_per_step, 2), text_significant(n[2], s->step_ms),
           text_significant(n[3], s->drafted_per_step),
           text_significant(n[4], s->verified_per_step),
           text_decimal(n[5], s->accepted_verified_ratio, 2),
           text_decimal(n[6], s->estimator.slope, 3), text_count(n[7], s->running),
           text_count(n[8], s->queued), text_clean(health, sizeof health, s->health.state));
}

int verb_top(const struct options *options)
{
    int status = EXIT_DEGRADED;
    struct client *client = session_open(options, 0, &status);
    json_t *nodes = NULL;
    char *node = NULL;

    if (client == NULL) return status;
    nodes = session_get(client, "/api/v1/nodes", &status);
    if (nodes == NULL || (node = session_choose_node(nodes, options->node, &status)) == NULL)
        goto out;
    for (int64_t line = 0; options->count == 0 || line < options->count; line++) {
        struct snapshot snapshot;
        json_t *document = NULL;

        if (line > 0) session_sleep_ms(options->interval_ms);
        if (session_get_snapshot(client, node, &snapshot, &document, &status) != 0) break;
        status = session_health(&snapshot);
        if (options->json) {
            json_dumpf(document, stdout, JSON_COMPACT | JSON_REAL_PRECISION(10));
            putchar('\n');
        } else if (options->plain) {
            print_facts(&snapshot);
        } else {
            if (line % HEAD_EVERY == 0) print_top_head();
            print_top_line(&snapshot, options->utc);
        }
        json_decref(document);
        if (fflush(stdout) != 0) break; /* the reader went away */
    }
out:
    json_decref(nodes);
    free(node);
    client_free(client);
    return status;
}

/* ---- nodes */

/* Why a node cannot be steered, on a line of its own. */
static void print_unable(const json_t *node)
{
    const char *why = json_string_value(json_object_get(node, "unable"));
    char text[512];

    if (why != NULL && why[0] != '\0') printf("  %s\n", text_clean(text, sizeof text, why));
}

int verb_nodes(const struct options *options)
{
    static const char *const keys[] = {"id", "kind", "mode", NULL, "version", "model"};
    static const int widths[] = {-20, -8, -10, -10, -10, -32};
    int status = EXIT_DEGRADED;
    struct client *client = session_open(options, 0, &status);
    json_t *nodes = client != NULL ? session_get(client, "/api/v1/nodes", &status) : NULL, *item;
    size_t i;

    if (nodes == NULL) goto out;
    status = EXIT_HEALTHY;
    if (options->json) {
        json_dumpf(nodes, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(10));
        putchar('\n');
        goto out;
    }
    puts("node                 kind     mode       health     version    model");
    json_array_foreach(json_object_get(nodes, "nodes"), i, item)
    {
        for (size_t j = 0; j < sizeof keys / sizeof keys[0]; j++) {
            const json_t *value = keys[j] != NULL
                                      ? json_object_get(item, keys[j])
                                      : json_object_get(json_object_get(item, "health"), "state");
            const char *text = json_string_value(value);

            print_field(text != NULL ? text : "", widths[j]);
        }
        putchar('\n');
        print_unable(item);
    }
out:
    json_decref(nodes);
    client_free(client);
    return status;
}
