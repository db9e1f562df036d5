/* bench_traffic.c - demonstration traffic: N chat completions at a time against a running server,
 * prompts in turn.
 *
 * Ends by --seconds, --requests or a signal; then prints one JSON object of what was asked and
 * answered. Plain HTTP, as any client would: nothing here knows the daemon.
 */
#include "config.h"

#include <curl/curl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/bench.h"
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
    char *reply;
    size_t length;
    bool busy;
    double not_before_ms;
};

struct traffic {
    const char *url, *socket, *model;
    struct bench_prompt *prompt;
    int prompts, next, load;
    int max_tokens;     /* of every request; 0 = as the prompts say */
    double temperature; /* of every request; < 0 = as the prompts say */
    bool ignore_eos;
    long long asked, answered, refused, failed, tokens, prompt_tokens;
    struct curl_slist *headers;
    struct client client[MOST_LOAD];
    CURLM *multi;
};

static size_t keep_reply(char *bytes, size_t size, size_t count, void *state)
{
    struct client *client = state;
    size_t length = size * count;
    char *larger;

    if (client->length + length > REPLY_LIMIT) return 0;
    larger = realloc(client->reply, client->length + length + 1);
    if (!larger) return 0;
    client->reply = larger;
    memcpy(client->reply + client->length, bytes, length);
    client->length += length;
    client->reply[client->length] = '\0';
    return length;
}

static char *request_body(const struct traffic *traffic, const struct bench_prompt *prompt)
{
    double temperature = traffic->temperature < 0 ? prompt->temperature : traffic->temperature;
    int most = traffic->max_tokens > 0 ? traffic->max_tokens : prompt->max_tokens;
    json_t *body =
        json_pack("{s:s s:[{s:s s:s}] s:f s:i}", "model",
                  traffic->model ? traffic->model : "default", "messages", "role", "user",
                  "content", prompt->text, "temperature", temperature, "max_tokens", most);
    char *text;

    if (!traffic->model) json_object_del(body, "model");
    if (traffic->ignore_eos) json_object_set_new(body, "ignore_eos", json_true());
    text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

static bool ask(struct traffic *traffic, struct client *client)
{
    struct bench_prompt *prompt = &traffic->prompt[traffic->next++ % traffic->prompts];
    char url[512];

    free(client->body);
    client->body = request_body(traffic, prompt);
    client->length = 0;
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
    curl_easy_setopt(client->easy, CURLOPT_WRITEFUNCTION, keep_reply);
    curl_easy_setopt(client->easy, CURLOPT_WRITEDATA, client);
    curl_easy_setopt(client->easy, CURLOPT_TIMEOUT, 600L);
    if (curl_multi_add_handle(traffic->multi, client->easy) != CURLM_OK) return false;
    client->busy = true;
    traffic->asked++;
    return true;
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
    if (code == CURLE_OK && status == 200) {
        json_t *reply = json_loads(client->reply ? client->reply : "", 0, NULL), *usage;

        traffic->answered++;
        usage = json_object_get(reply, "usage");
        traffic->tokens += json_integer_value(json_object_get(usage, "completion_tokens"));
        traffic->prompt_tokens += json_integer_value(json_object_get(usage, "prompt_tokens"));
        json_decref(reply);
        return;
    }
    if (code == CURLE_OK && status == 503)
        traffic->refused++;
    else
        traffic->failed++;
    client->not_before_ms = ticks_ms() + RETRY_MS;
}

static void drive(struct traffic *traffic, double until_ms, long long requests)
{
    int running = 0;

    do {
        CURLMsg *message;
        int left;

        for (int i = 0; i < traffic->load && !stopped; i++) {
            struct client *client = &traffic->client[i];

            if (client->busy || ticks_ms() < client->not_before_ms || ticks_ms() >= until_ms)
                continue;
            if (requests > 0 && traffic->asked >= requests) break;
            if (!ask(traffic, client)) traffic->failed++;
        }
        curl_multi_perform(traffic->multi, &running);
        while ((message = curl_multi_info_read(traffic->multi, &left)))
            if (message->msg == CURLMSG_DONE)
                take_reply(traffic, message->easy_handle, message->data.result);
        curl_multi_wait(traffic->multi, NULL, 0, 100, NULL);
        if (requests > 0 && traffic->asked >= requests && running == 0) break;
    } while (!stopped && (ticks_ms() < until_ms || running > 0));
}

static int report(const struct traffic *traffic, double seconds)
{
    json_t *object = json_pack(
        "{s:s s:I s:I s:I s:I s:I s:I s:f s:f}", "schema", "trimtab.traffic/1", "asked",
        (json_int_t)traffic->asked, "answered", (json_int_t)traffic->answered, "refused",
        (json_int_t)traffic->refused, "failed", (json_int_t)traffic->failed, "prompt_tokens",
        (json_int_t)traffic->prompt_tokens, "completion_tokens", (json_int_t)traffic->tokens,
        "seconds", seconds, "tokens_per_s", seconds > 0 ? (double)traffic->tokens / seconds : 0.0);

    json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(object);
    return traffic->failed > 0 && traffic->answered == 0;
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
    traffic.prompts = bench_read_prompts(bench_text(options, "prompts"), &traffic.prompt);
    if (traffic.prompts < 0) return 1;
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    signal(SIGPIPE, SIG_IGN);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    traffic.multi = curl_multi_init();
    traffic.headers = curl_slist_append(NULL, "Content-Type: application/json");
    begun = ticks_ms();
    drive(&traffic, seconds > 0 ? begun + 1000.0 * (double)seconds : 1e300, requests);
    status = report(&traffic, (ticks_ms() - begun) / 1000);
    for (int i = 0; i < traffic.load; i++) {
        struct client *client = &traffic.client[i];

        if (client->busy) curl_multi_remove_handle(traffic.multi, client->easy);
        if (client->easy) curl_easy_cleanup(client->easy);
        free(client->body);
        free(client->reply);
    }
    curl_multi_cleanup(traffic.multi);
    curl_slist_free_all(traffic.headers);
    curl_global_cleanup();
    bench_free_prompts(traffic.prompt, traffic.prompts);
    return status;
}
