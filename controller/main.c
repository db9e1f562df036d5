/* main.c - trimtabd: read the configuration, open the store, the node and the front, serve until a
 * signal says otherwise.
 *
 * SIGTERM and SIGINT drain (running requests finish, within a deadline; a second one stops at
 * once); SIGHUP reads the configuration and the tokens again. Exit status: 0 after a clean stop, 1
 * when something could not start, 2 for usage.
 */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "controller/cause.h"
#include "controller/configuration.h"
#include "controller/fleet.h"
#include "controller/node_llama.h"
#include "controller/node_replay.h"
#include "controller/notify.h"
#include "controller/output.h"
#include "controller/server.h"
#include "controller/ticks.h"
#include "storage/store.h"

#define DRAIN_POLL_US 50000
#define SPIN_COUNT                                                                                 \
    "1000" /* as fast as the default on idle cores, three times as fast on shared ones */

struct daemon {
    struct configuration configuration;
    int argc;
    char **argv;
    struct store *store;
    struct node *node;   /* its own engine; NULL when it only watches others */
    struct fleet *fleet; /* the others */
    struct server *server;
    char store_path[4096];
};

static int complain(const char *what, char *cause, int status)
{
    fprintf(stderr, "trimtabd: %s%s%s\n", what, *what ? ": " : "", cause ? cause : "out of memory");
    free(cause);
    return status;
}

/* One line a task, rewritten in place on a terminal. */
static void show_progress(const char *what, double done)
{
    static int last = -1;
    int percent = (int)(done * 100);

    if (percent == last || (!isatty(STDERR_FILENO) && percent < 100)) return;
    last = percent == 100 ? -1 : percent;
    fprintf(stderr, "%strimtabd: %s %3d %%%s", isatty(STDERR_FILENO) ? "\r" : "", what, percent,
            percent < 100 ? "" : "\n");
}

/* mkdir -p with mode 0700. */
static int make_folder(const char *path, char **cause)
{
    char part[4096];

    snprintf(part, sizeof part, "%s", path);
    for (char *slash = part + 1; *slash; slash++) {
        if (*slash != '/') continue;
        *slash = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST) break;
        *slash = '/';
    }
    if (mkdir(part, 0700) == 0 || errno == EEXIST) return 0;
    cause_set(cause, "cannot make the folder %s: %s", path, strerror(errno));
    return -1;
}

static int make_socket_folder(const char *socket, char **cause)
{
    char folder[4096];
    char *slash;

    snprintf(folder, sizeof folder, "%s", socket);
    slash = strrchr(folder, '/');
    if (!slash || slash == folder) return 0;
    *slash = '\0';
    return make_folder(folder, cause);
}

static int open_store(struct daemon *daemon, char **cause)
{
    struct store_options options = {.path = daemon->store_path};

    if (make_folder(daemon->configuration.state, cause) != 0) return -1;
    snprintf(daemon->store_path, sizeof daemon->store_path, "%s/trimtab.db",
             daemon->configuration.state);
    daemon->store = store_open(&options, cause);
    return daemon->store ? 0 : -1;
}

static int open_replay(struct daemon *daemon, char **cause)
{
    const struct configuration *from = &daemon->configuration;
    struct node_replay_options options = {
        .id = from->name,
        .trace = from->replay,
        .cost = from->cost,
        .speed = from->speed,
        .concurrency = from->parallel,
        .store = daemon->store,
    };
    const char *draft;
    char *warning = NULL;

    configuration_policy(from, &options.policy, &draft);
    daemon->node = node_replay_open(&options, &warning, cause);
    if (warning) fprintf(stderr, "trimtabd: warning: %s\n", warning);
    free(warning);
    return daemon->node ? 0 : -1;
}

static int open_llama(struct daemon *daemon, char **cause)
{
    const struct configuration *from = &daemon->configuration;
    struct node_llama_options options = {
        .id = from->name,
        .model = from->model,
        .device = from->device,
        .parallel = from->parallel,
        .context = from->ctx,
        .threads = from->threads,
        .max_draft = from->max_draft,
        .queue = from->queue,
        .prefill_chunk = from->prefill_chunk,
        .exact = from->exact,
        .store = daemon->store,
        .cache_dir = from->cache,
        .state_dir = from->state,
        .record = from->record,
        .progress = show_progress,
    };
    char *ignored = NULL;

    if (make_folder(from->cache, &ignored) != 0) { /* costs are then measured at every start */
        fprintf(stderr, "trimtabd: %s; measured costs are not kept\n", ignored ? ignored : "");
        options.cache_dir = NULL;
    }
    free(ignored);
    configuration_policy(from, &options.policy, &options.draft);
    daemon->node = node_llama_open(&options, cause);
    return daemon->node ? 0 : -1;
}

static int open_fleet(struct daemon *daemon, char **cause)
{
    const struct configuration *from = &daemon->configuration;

    daemon->fleet = fleet_new(daemon->store, cause);
    if (!daemon->fleet) return -1;
    return fleet_apply(daemon->fleet, from->nodes, from->nodes_count, NULL, cause);
}

/* (*count) its own node first, then the others; the caller frees. */
static struct node **list_nodes(const struct daemon *daemon, int *count)
{
    int others = fleet_count(daemon->fleet);
    struct node **nodes = calloc((size_t)others + 1, sizeof *nodes);

    *count = 0;
    if (!nodes) return NULL;
    if (daemon->node) nodes[(*count)++] = daemon->node;
    for (int i = 0; i < others; i++) nodes[(*count)++] = fleet_node(daemon->fleet, i);
    return nodes;
}

static int open_server(struct daemon *daemon, char **cause)
{
    struct node **nodes;
    int count;
    const struct configuration *from = &daemon->configuration;
    struct server_options options = {
        .listen = from->listen,
        .socket_path = from->socket,
        .api_key_file = from->api_key_file,
        .read_token_file = from->read_token_file,
        .write_token_file = from->token_file,
        .max_connections = from->max_connections,
        .started_ms = utc_ms(),
        .store_path = daemon->store_path,
    };

    if (make_socket_folder(from->socket, cause) != 0) return -1;
    nodes = list_nodes(daemon, &count);
    if (nodes) daemon->server = server_start(&options, nodes, count, cause);
    free(nodes);
    return daemon->server ? 0 : -1;
}

static void say_ready(const struct daemon *daemon)
{
    const char *listen = daemon->configuration.listen;
    int port = server_port(daemon->server, 0);
    const char *colon = strrchr(listen, ':');

    notify_manager("READY=1");
    if (port > 0)
        fprintf(stderr, "trimtabd: listening on http://%.*s:%d and %s\n",
                colon ? (int)(colon - listen) : (int)strlen(listen), listen, port,
                daemon->configuration.socket);
    else
        fprintf(stderr, "trimtabd: listening on %s\n", daemon->configuration.socket);
}

/* Policy of its own engine, where the file asks for another one than before. */
static void reload_policy(struct daemon *daemon, const struct configuration *fresh, char **cause)
{
    static const struct node_actor actor = {"SIGHUP", "signal"};
    struct node *node = daemon->node;
    struct policy before, after;
    const char *draft;
    int64_t generation;

    configuration_policy(fresh, &after, &draft);
    configuration_policy(&daemon->configuration, &before, &draft);
    if (!node) return;
    if (after.mode != before.mode)
        node->ops->set_mode(node, after.mode, -1, "configuration reloaded", &actor, &generation,
                            cause);
    if (after.max_draft > daemon->configuration.max_draft)
        after.max_draft = daemon->configuration.max_draft;
    after.draft = before.draft; /* another draft needs a restart */
    after.mode = before.mode;
    if (memcmp(&after, &before, sizeof after) != 0) {
        json_t *settings = policy_to_json(&after);

        json_object_del(settings, "draft");
        node->ops->set(node, settings, -1, "configuration reloaded", &actor, &generation, cause);
        json_decref(settings);
    }
}

/* Settings that may change while serving are taken from the file again; the others are named. */
static void reload(struct daemon *daemon)
{
    struct configuration fresh;
    char *cause = NULL;

    notify_manager("RELOADING=1");
    if (server_reload(daemon->server, &cause) != 0) complain("reload", cause, 0);
    cause = NULL;
    if (configuration_read(&fresh, daemon->argc, daemon->argv, &cause) != 0) {
        complain("reload: nothing changed", cause, 0);
        return;
    }
    reload_policy(daemon, &fresh, &cause);
    if (cause) complain("reload", cause, 0);
    cause = NULL;
    if (fleet_apply(daemon->fleet, fresh.nodes, fresh.nodes_count, daemon->server, &cause) != 0)
        complain("reload: the nodes", cause, 0);
    else
        fprintf(stderr,
                "trimtabd: configuration read again, %d other nodes watched (model, draft, "
                "listeners and sizes need a restart)\n",
                fleet_count(daemon->fleet));
    configuration_clear(&daemon->configuration);
    daemon->configuration = fresh;
    notify_manager("READY=1");
}

/* Let what runs finish; a further signal or the deadline ends that. */
static void drain(struct daemon *daemon, const sigset_t *signals)
{
    int64_t deadline = ticks_us() + (int64_t)daemon->configuration.drain_timeout_s * 1000000;
    struct timespec poll = {0, DRAIN_POLL_US * 1000};

    notify_manager("STOPPING=1");
    fprintf(stderr, "trimtabd: draining (at most %d s; a second signal stops at once)\n",
            daemon->configuration.drain_timeout_s);
    server_drain(daemon->server);
    if (daemon->node) daemon->node->ops->drain(daemon->node);
    while (daemon->node && !daemon->node->ops->idle(daemon->node) && ticks_us() < deadline) {
        int signal = sigtimedwait(signals, NULL, &poll);

        if (signal == SIGTERM || signal == SIGINT) break;
    }
}

static int serve(struct daemon *daemon, const sigset_t *signals)
{
    bool replay = daemon->configuration.replay != NULL, model = daemon->configuration.model;
    char *cause = NULL;

    if (open_store(daemon, &cause) != 0) return complain("", cause, 1);
    if ((replay && open_replay(daemon, &cause) != 0) || (model && open_llama(daemon, &cause) != 0))
        return complain("", cause, 1);
    if (open_fleet(daemon, &cause) != 0) return complain("", cause, 1);
    if (open_server(daemon, &cause) != 0) return complain("", cause, 1);
    if (model && node_llama_wait(daemon->node, &cause) != 0) return complain("", cause, 1);
    say_ready(daemon);
    for (;;) {
        int signal = sigwaitinfo(signals, NULL);

        if (signal == SIGHUP) reload(daemon);
        if (signal == SIGTERM || signal == SIGINT) break;
    }
    drain(daemon, signals);
    return 0;
}

static void close_daemon(struct daemon *daemon)
{
    server_stop(daemon->server);
    fleet_free(daemon->fleet);
    if (daemon->node) daemon->node->ops->close(daemon->node);
    store_close(daemon->store);
    configuration_clear(&daemon->configuration);
}

/* libgomp's default spin makes every thread of the engine crawl once the cores are shared with
 * other work; its threads read this when the library is loaded, so the program starts once more. */
static void calm_threads(char **argv)
{
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    if (setenv("GOMP_SPINCOUNT", SPIN_COUNT, 1) == 0) execv("/proc/self/exe", argv);
    /* Where that is impossible it runs all the same. */
}

/* One model, or one trace with its costs, or other engines to watch. */
static bool knows_what_to_run(const struct configuration *configuration, char **cause)
{
    if (configuration->model && configuration->replay)
        cause_set(cause, "--model and --replay exclude each other: a replay runs no model");
    else if (configuration->replay && !configuration->cost)
        cause_set(cause, "--replay wants --cost TABLE: what a step costs (trimtab bench cost "
                         "--json prints one)");
    else if (!configuration->replay && !configuration->model && configuration->nodes_count == 0)
        cause_set(cause, "give --model FILE (a GGUF model), or --node URL (an engine to watch); "
                         "trimtabd --help lists the options");
    else
        return true;
    return false;
}

int main(int argc, char **argv)
{
    struct daemon daemon = {.argc = argc, .argv = argv};
    sigset_t signals;
    char *cause = NULL;
    int status;

    calm_threads(argv);
    if (configuration_read(&daemon.configuration, argc, argv, &cause) != 0)
        return complain("", cause, 2);
    if (daemon.configuration.help || daemon.configuration.version) {
        if (daemon.configuration.help)
            configuration_print_help(stdout);
        else
            printf("trimtabd %s (%s)\n", PACKAGE_VERSION, lm_engine_version());
        configuration_clear(&daemon.configuration);
        return output_finish("trimtabd", 0);
    }
    if (!knows_what_to_run(&daemon.configuration, &cause)) {
        configuration_clear(&daemon.configuration);
        return complain("", cause, 2);
    }
    /* Signals are taken by sigwaitinfo here; every thread inherits the block. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    status = serve(&daemon, &signals);
    close_daemon(&daemon);
    return status;
}
