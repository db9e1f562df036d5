/* http_echo.c - the front over an echo node as a program, steered by lines on stdin; tests drive it
 * through sockets.
 *
 * Prints "port N" for every TCP listener and "ready", then answers each command with one line.
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/routes.h"
#include "controller/server.h"
#include "tests/controller/node_echo.h"

static void print_params(struct node *node)
{
    struct request_params p;
    char stop[64];

    node_echo_get_params(node, &p, stop, sizeof stop);
    printf("{\"temperature\":%.6g,\"top_p\":%.6g,\"min_p\":%.6g,\"top_k\":%d,\"presence_penalty\":%"
           ".6g,"
           "\"frequency_penalty\":%.6g,\"repetition_penalty\":%.6g,\"seeded\":%d,\"seed\":%llu,"
           "\"choice\":%u,"
           "\"prompt\":%u,\"max_tokens\":%d,\"min_tokens\":%d,\"ignore_eos\":%d,\"logprobs\":%d,"
           "\"stop_count\":%d,"
           "\"bias_count\":%zu,\"rule_given\":%d,\"rule\":%d,\"stop\":\"%s\"}\n",
           (double)p.temperature, (double)p.top_p, (double)p.min_p, p.top_k,
           (double)p.presence_penalty, (double)p.frequency_penalty, (double)p.repetition_penalty,
           p.seeded, (unsigned long long)p.seed, p.choice, p.prompt, p.max_tokens, p.min_tokens,
           p.ignore_eos, p.logprobs, p.stop_count, p.bias_count, p.rule_given, (int)p.rule, stop);
}

/* False on "quit" and on what is no command. */
static bool obey(struct server *server, struct node *node, char *line)
{
    char *cause = NULL, *value = strchr(line, ' ');
    struct node_echo_counts counts;

    if (value) *value++ = '\0';
    int number = value ? atoi(value) : 0;
    if (strcmp(line, "params") == 0) {
        print_params(node);
        return true;
    }
    if (strcmp(line, "counts") == 0) {
        node_echo_get_counts(node, &counts);
        printf("%d %d %d %d\n", counts.live, counts.submitted, counts.finished, counts.cancelled);
        return true;
    }
    if (strcmp(line, "reload") == 0) {
        printf("%s\n", server_reload(server, &cause) == 0 ? "ok" : cause);
        free(cause);
        return true;
    }
    if (strcmp(line, "delay") == 0)
        node_echo_set_delay(node, number);
    else if (strcmp(line, "hold") == 0)
        node_echo_hold(node, number != 0);
    else if (strcmp(line, "full") == 0)
        node_echo_set_full(node, number != 0);
    else if (strcmp(line, "fail") == 0)
        node_echo_fail_next(node, number);
    else if (strcmp(line, "drafted") == 0)
        node_echo_add_record(node, number);
    else if (strcmp(line, "health") == 0 && value)
        node_echo_set_health(node, value);
    else if (strcmp(line, "drain") == 0)
        server_drain(server);
    else
        return false;
    puts("ok");
    return true;
}

static int64_t fixed_now_ms(void)
{
    return 1790000000000;
}

static int print_routes(void)
{
    const struct route *route;

    for (size_t i = 0; (route = routes_at(i)); i++) printf("%s %s\n", route->method, route->path);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--routes") == 0) return print_routes();
    struct server_options options = {.started_ms = 1789999990000, .now_ms = fixed_now_ms};
    struct node *node = node_echo_new("local");
    struct server *server;
    char *cause = NULL, line[256];

    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--listen") == 0)
            options.listen = value;
        else if (strcmp(argv[i], "--socket") == 0)
            options.socket_path = value;
        else if (strcmp(argv[i], "--api-key-file") == 0)
            options.api_key_file = value;
        else if (strcmp(argv[i], "--read-token-file") == 0)
            options.read_token_file = value;
        else if (strcmp(argv[i], "--token-file") == 0)
            options.write_token_file = value;
        else if (strcmp(argv[i], "--host-names") == 0)
            options.host_names = value;
        else if (strcmp(argv[i], "--alias") == 0)
            options.model_alias = value;
        else if (strcmp(argv[i], "--store") == 0)
            options.store_path = value;
        else if (strcmp(argv[i], "--max-connections") == 0)
            options.max_connections = atoi(value);
        else if (strcmp(argv[i], "--idle-timeout") == 0)
            options.idle_timeout_s = atoi(value);
        else
            return 2;
    }
    if (!node) return 2;
    server = server_start(&options, &node, 1, &cause);
    if (!server) {
        printf("error %s\n", cause);
        free(cause);
        node->ops->close(node);
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; server_port(server, i) >= 0; i++) printf("port %d\n", server_port(server, i));
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (!obey(server, node, line)) break;
    }
    server_stop(server);
    node->ops->close(node);
    puts("stopped");
    return 0;
}
