/* bench_traffic.c - demonstration traffic: N chat completions at a time against a running server,
 * prompts in turn.
 *
 * Ends by --seconds, --requests or a signal; then prints one JSON object of what was asked and
 * answered. Plain HTTP, as any client would: nothing here knows the daemon.
 *
 * --steady is the constant load of bench load, over HTTP. The first requests have staggered
 * lengths, so that they end one after another; the clock runs from when all of them have sent text
 * until --requests are answered, while others, whose text counts as far as they got, fill the slots
 * behind them and are given up then. What counts is text, since a stream tells tokens only at its
 * end: bytes by the clock, times tokens a byte of the answers that are whole.
 */
#include "config.h"

#include <curl/curl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/bench.h"
#include "controller/sse.h"
#include "controller/ticks.h"

#define MOST_LOAD 256
#define RETRY_MS 500
#define REPLY_LIMIT (1 << 20)

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
}

struct client {
    CURL *easy;
    char *body;
    struct buffer reply; /* a whole one */
    struct sse events;   /* or a stream, of which this is kept: */
    json_t *usage;
    size_t text; /* bytes of text */
    bool busy, measured;
    int asked_tokens;
    double not_before_ms;
};

struct clock {
    double begun_ms, ended_ms; /* 0 = it does not run yet */
    size_t before;             /* bytes of text when it began */
};

struct traffic {
    const char *url, *socket, *model;
    struct bench_prompt *prompt;
    int prompts, next, load;
    int max_tokens;     /* of every request; 0 = as the prompts say */
    double temperature; /* of every request; < 0 = as the prompts say */
    bool ignore_eos, steady;
    long long asked, answered, refused, failed, tokens, prompt_tokens;
    long long cut;              /* answered with fewer tokens than asked for */
    size_t text, answered_text; /* bytes that came; of whole answers */
    struct clock clock;
    struct curl_slist *headers;
    struct client client[MOST_LOAD];
    CURLM *multi;
};

static size_t keep_reply(char *bytes, size_t size, size_t count, void *state)
{
    struct buffer *reply = &((struct client *)state)->reply;

    buffer_add(reply, bytes, size * count);
    return reply->failed || reply->length > REPLY_LIMIT ? 0 : size * count;
}

/* ---- a stream */

static bool take_event(void *state, const char *data, size_t length)
{
    struct client *client = state;
    json_t *event = json_loadb(data, length, 0, NULL); /* NULL: [DONE] */
    json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    json_t *usage = json_object_get(event, "usage");

    client->text +=
        json_string_length(json_object_get(json_object_get(choice, "delta"), "content"));
    if (json_is_object(usage)) {
        json_decref(client->usage);
        client->usage = json_incref(usage);
    }
    json_decref(event);
    return true;
}

static size_t keep_events(char *bytes, size_t size, size_t count, void *state)
{
    struct client *client = state;

    return sse_take(&client->events, bytes, size * count) ? size * count : 0;
}

/* ---- a request */

static int wanted_tokens(const struct traffic *traffic, const struct bench_prompt *prompt)
{
    int tokens = traffic->max_tokens > 0 ? traffic->max_tokens : prompt->max_tokens;

    if (!traffic->steady || traffic->asked >= traffic->load) return tokens;
    return bench_staggered_tokens(tokens, (int)traffic->asked, traffic->load);
}

static char *request_body(const struct traffic *traffic, const struct bench_prompt *prompt,
                          int most)
{
    double temperature = traffic->temperature < 0 ? prompt->temperature : traffic->temperature;
    json_t *body =
        json_pack("{s:s s:[{s:s s:s}] s:f s:i}", "model",
                  traffic->model ? traffic->model : "default", "messages", "role", "user",
                  "content", prompt->text, "temperature", temperature, "max_tokens", most);
    char *text;

    if (!traffic->model) json_object_del(body, "model");
    if (traffic->ignore_eos) json_object_set_new(body, "ignore_eos", json_true());
    if (traffic->steady) {
        json_object_set_new(body, "stream", json_true());
        json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    }
    text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

static void forget_answer(struct client *client)
{
    buffer_clear(&client->reply);
    sse_clear(&client->events);
    json_decref(client->usage);
    client->usage = NULL;
    client->text = 0;
}

static bool ask(struct traffic *traffic, struct client *client, bool measured)
{
    struct bench_prompt *prompt = &traffic->prompt[traffic->next++ % traffic->prompts];
    char url[512];

    free(client->body);
    client->asked_tokens = wanted_tokens(traffic, prompt);
    client->body = request_body(traffic, prompt, client->asked_tokens);
    client->measured = measured;
    forget_answer(client);
    if (!client->body) return false;
    if (!client->easy) client->easy = curl_easy_init();
    if (!client->easy) return false;
    snprintf(url, sizeof url, "%s/v1/chat/completions", traffic->url);
    curl_easy_setopt(client->easy, CURLOPT_URL, url);
    if (traffic->socket) curl_easy_setopt(client->easy, CURLOPT_UNIX_SOCKET_PATH, traffic->socket);
    curl_easy_setopt(client->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(client->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(client->easy, CURLOPT_HTTPHEADER, traffic->headers);
    curl_easy_setopt(client->easy, CURLOPT_POSTFIELDS, client->body);
    curl_easy_setopt(client->easy, CURLOPT_WRITEFUNCTION,
                     traffic->steady ? keep_events : keep_reply);
    curl_easy_setopt(client->easy, CURLOPT_WRITEDATA, client);
    curl_easy_setopt(client->easy, CURLOPT_TIMEOUT, 600L);
    if (curl_multi_add_handle(traffic->multi, client->easy) != CURLM_OK) return false;
    client->busy = true;
    traffic->asked++;
    return true;
}

static void count_answer(struct traffic *traffic, struct client *client)
{
    json_t *reply = NULL, *usage = client->usage;
    long long tokens;

    if (!traffic->steady) {
        reply = json_loadb(client->reply.data, client->reply.length, 0, NULL);
        usage = json_object_get(reply, "usage");
    }
    tokens = json_integer_value(json_object_get(usage, "completion_tokens"));
    traffic->answered++;
    traffic->cut += tokens < client->asked_tokens;
    traffic->tokens += tokens;
    traffic->prompt_tokens += json_integer_value(json_object_get(usage, "prompt_tokens"));
    traffic->answered_text += client->text;
    json_decref(reply);
}

static void take_reply(struct traffic *traffic, CURL *easy, CURLcode code)
{
    long status = 0;
    struct client *client = NULL;

    for (int i = 0; i < traffic->load; i++)
        if (traffic->client[i].easy == easy) client = &traffic->client[i];
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(traffic->multi, easy);
    if (!client) return;
    client->busy = false;
    traffic->text += client->text;
    if (code == CURLE_OK && status == 200) {
        if (client->measured) count_answer(traffic, client);
    } else {
        if (code == CURLE_OK && status == 503)
            traffic->refused++;
        else
            traffic->failed++;
        client->not_before_ms = ticks_ms() + RETRY_MS;
    }
    client->text = 0;
}

/* ---- a steady load */

static size_t text_so_far(const struct traffic *traffic)
{
    size_t text = traffic->text;

    for (int i = 0; i < traffic->load; i++) text += traffic->client[i].text;
    return text;
}

static bool all_send(const struct traffic *traffic)
{
    for (int i = 0; i < traffic->load; i++)
        if (!traffic->client[i].busy || traffic->client[i].text == 0) return false;
    return true;
}

static bool measured_are_done(const struct traffic *traffic, long long requests)
{
    if (traffic->asked < requests) return false;
    for (int i = 0; i < traffic->load; i++)
        if (traffic->client[i].busy && traffic->client[i].measured) return false;
    return true;
}

/* False when it has stopped. */
static bool run_clock(struct traffic *traffic, long long requests)
{
    struct clock *clock = &traffic->clock;

    if (clock->begun_ms == 0 && all_send(traffic)) {
        clock->begun_ms = ticks_ms();
        clock->before = text_so_far(traffic);
    }
    return !measured_are_done(traffic, requests);
}

static void drive(struct traffic *traffic, double until_ms, long long requests)
{
    long long most = traffic->steady ? 0 : requests;
    int running = 0;

    do {
        CURLMsg *message;
        int left;

        for (int i = 0; i < traffic->load && !stopped; i++) {
            struct client *client = &traffic->client[i];

            if (client->busy || ticks_ms() < client->not_before_ms || ticks_ms() >= until_ms)
                continue;
            if (most > 0 && traffic->asked >= most) break;
            if (!ask(traffic, client, !traffic->steady || traffic->asked < requests))
                traffic->failed++;
        }
        curl_multi_perform(traffic->multi, &running);
        while ((message = curl_multi_info_read(traffic->multi, &left)))
            if (message->msg == CURLMSG_DONE)
                take_reply(traffic, message->easy_handle, message->data.result);
        if (traffic->steady && !run_clock(traffic, requests)) break;
        curl_multi_wait(traffic->multi, NULL, 0, 100, NULL);
        if (most > 0 && traffic->asked >= most && running == 0) break;
    } while (!stopped && (ticks_ms() < until_ms || running > 0));
}

/* While the clock ran; NaN when nothing that was answered tells how many tokens a text has. */
static double tokens_timed(const struct traffic *traffic)
{
    double text = (double)(text_so_far(traffic) - traffic->clock.before);

    if (!traffic->steady) return (double)traffic->tokens;
    return text * (double)traffic->tokens / (double)traffic->answered_text;
}

static int report(const struct traffic *traffic)
{
    const struct clock *clock = &traffic->clock;
    double seconds = clock->begun_ms > 0 ? (clock->ended_ms - clock->begun_ms) / 1000 : 0;
    double rate = tokens_timed(traffic) / seconds;
    json_t *object = json_pack(
        "{s:s s:I s:I s:I s:I s:I s:I s:I s:f s:o}", "schema", "trimtab.traffic/1", "asked",
        (json_int_t)traffic->asked, "answered", (json_int_t)traffic->answered, "refused",
        (json_int_t)traffic->refused, "failed", (json_int_t)traffic->failed, "cut",
        (json_int_t)traffic->cut, "prompt_tokens", (json_int_t)traffic->prompt_tokens,
        "completion_tokens", (json_int_t)traffic->tokens, "seconds", seconds, "tokens_per_s",
        isfinite(rate) ? json_real(rate) : json_null());

    json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(object);
    return traffic->failed > 0 && traffic->answered == 0;
}

static void release(struct traffic *traffic)
{
    for (int i = 0; i < traffic->load; i++) {
        struct client *client = &traffic->client[i];

        if (client->busy) curl_multi_remove_handle(traffic->multi, client->easy);
        if (client->easy) curl_easy_cleanup(client->easy);
        free(client->body);
        buffer_free(&client->reply);
        sse_free(&client->events);
        json_decref(client->usage);
    }
    curl_multi_cleanup(traffic->multi);
    curl_slist_free_all(traffic->headers);
    curl_global_cleanup();
    bench_free_prompts(traffic->prompt, traffic->prompts);
}

int bench_traffic(int argc, char **argv)
{
    struct bench_option options[] = {
        {"url", "URL", "the server", "http://127.0.0.1:8080"},
        {"socket", "PATH", "its unix socket, in place of TCP", NULL},
        {"model", "NAME", "model to name in the requests", NULL},
        {"load", "N", "requests at a time", "4"},
        {"prompts", "FILE", "JSON Lines of {\"prompt\", \"temperature\", \"max_tokens\"}",
         PKGDATADIR "/demo-prompts.jsonl"},
        {"seconds", "S", "stop asking after so long; 0 = until a signal", "0"},
        {"requests", "N", "stop after so many; 0 = no limit", "0"},
        {"skip", "N", "begin behind so many prompts", "0"},
        {"max-tokens", "N", "tokens of every request; 0 = as the prompts say", "0"},
        {"temperature", "T", "of every request; -1 = as the prompts say", "-1"},
        {"ignore-eos", NULL, "ask for all tokens, whatever the model would end with", NULL},
        {"steady", NULL, "keep --load until --requests are answered, and time only that", NULL},
    };
    struct traffic traffic = {0};
    int status = bench_options(argc, argv, "traffic [OPTION]…", options,
                               sizeof options / sizeof options[0], NULL, 0);
    double begun;
    long seconds, requests;

    if (status != 0) return status > 0 ? 0 : 2;
    traffic.url = bench_text(options, "url");
    traffic.socket = bench_text(options, "socket");
    traffic.model = bench_text(options, "model");
    traffic.load = (int)bench_number(options, "load", 1, MOST_LOAD);
    seconds = bench_number(options, "seconds", 0, 1 << 30);
    requests = bench_number(options, "requests", 0, 1 << 30);
    traffic.next = (int)bench_number(options, "skip", 0, 1 << 30);
    traffic.max_tokens = (int)bench_number(options, "max-tokens", 0, 1 << 20);
    traffic.temperature = bench_real(options, "temperature", -1, 2);
    traffic.ignore_eos = bench_text(options, "ignore-eos") != NULL;
    traffic.steady = bench_text(options, "steady") != NULL;
    if (traffic.steady && requests < traffic.load) {
        fprintf(stderr, "trimtab bench traffic: --steady wants --requests, at least --load\n");
        return 2;
    }
    traffic.prompts = bench_read_prompts(bench_text(options, "prompts"), &traffic.prompt);
    if (traffic.prompts < 0) return 1;
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    signal(SIGPIPE, SIG_IGN);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    traffic.multi = curl_multi_init();
    for (int i = 0; i < traffic.load; i++) {
        struct client *client = &traffic.client[i];

        client->events = (struct sse){.event = take_event, .state = client, .limit = REPLY_LIMIT};
    }
    traffic.headers = curl_slist_append(NULL, "Content-Type: application/json");
    begun = ticks_ms();
    if (!traffic.steady) traffic.clock.begun_ms = begun;
    drive(&traffic, seconds > 0 ? begun + 1000.0 * (double)seconds : 1e300, requests);
    traffic.clock.ended_ms = ticks_ms();
    status = report(&traffic);
    release(&traffic);
    return status;
}
