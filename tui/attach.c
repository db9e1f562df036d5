/* attach.c - see attach.h. */
#include "config.h"

#include "tui/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tui/program.h"
#include "tui/session.h"

#define PROBE_MS 3000  /* to ask whether a daemon is there */
#define START_MS 15000 /* for the private one to answer */
#define READ_MS 4000   /* for it to have rates of every engine, or to know why not */
#define STOP_MS 5000   /* for it to end */
#define STEP_MS 50
#define SOCKET_PATH_MAX 100 /* bytes; sun_path holds 108 */

static struct {
    int pipe; /* its end tells the keeper; -1 = none */
    pid_t keeper;
    char folder[SOCKET_PATH_MAX], socket[SOCKET_PATH_MAX + 16];
} private_daemon = {.pipe = -1};

/* ------------------------------------------------------------------------- a process that cleans
 * up */

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

/* Let it end by itself, then not. */
static void stop_daemon(pid_t daemon)
{
    kill(daemon, SIGTERM);
    for (int waited_ms = 0; waited_ms < STOP_MS; waited_ms += STEP_MS) {
        if (waitpid(daemon, NULL, WNOHANG) == daemon) return;
        session_sleep_ms(STEP_MS);
    }
    kill(daemon, SIGKILL);
    waitpid(daemon, NULL, 0);
}

/* The keeper: runs the daemon, waits until either ends, leaves nothing behind. Does not return. */
static void keep(const char *program, const char **arguments, int end)
{
    struct pollfd watched = {.fd = end, .events = POLLIN};
    pid_t daemon;
    bool ended = false;

    setsid(); /* the terminal's signals are for the console */
    daemon = fork();
    if (daemon == 0) {
        close(end);
        execv(program, (char *const *)(void *)arguments); /* execv changes none */
        fprintf(stderr, "cannot run %s: %s\n", program, strerror(errno));
        _exit(127);
    }
    while (daemon > 0 && !ended && poll(&watched, 1, STEP_MS * 4) == 0)
        ended = waitpid(daemon, NULL, WNOHANG) == daemon;
    if (daemon > 0 && !ended) stop_daemon(daemon);
    while (poll(&watched, 1, -1) < 0 && errno == EINTR) {} /* the log is read until then */
    nftw(private_daemon.folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    _exit(0);
}

/* -------------------------------------------------------------------------------------- starting
 */

static bool make_folder(void)
{
    const char *places[] = {getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), P_tmpdir};

    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (places[i] == NULL || places[i][0] != '/') continue;
        if (snprintf(private_daemon.folder, sizeof private_daemon.folder, "%s/trimtab-XXXXXX",
                     places[i]) >= (int)sizeof private_daemon.folder)
            continue;
        if (mkdtemp(private_daemon.folder) == NULL) continue; /* of mode 0700 */
        snprintf(private_daemon.socket, sizeof private_daemon.socket, "%s/socket",
                 private_daemon.folder);
        return true;
    }
    session_say("no folder for a private daemon: neither $XDG_RUNTIME_DIR nor the temporary folder "
                "can be written");
    return false;
}

/* "--node", URL, … and the rest; the caller frees the array, not the texts. */
static const char **make_arguments(const struct options *options, const char *state,
                                   const char *cache)
{
    const char *const fixed[] = {
        "trimtabd", "--config", "/dev/null", "--listen", "none", "--socket", private_daemon.socket,
        "--state",  state,      "--cache",   cache};
    size_t count = sizeof fixed / sizeof fixed[0];
    const char **arguments = calloc(count + 2 * (size_t)options->urls_count + 5, sizeof *arguments);

    if (arguments == NULL) return NULL;
    memcpy(arguments, fixed, sizeof fixed);
    for (int i = 0; i < options->urls_count; i++) {
        arguments[count++] = "--node";
        arguments[count++] = options->urls[i];
    }
    if (options->key_env != NULL) {
        arguments[count++] = "--node-key-env";
        arguments[count++] = options->key_env;
    }
    if (options->key_file != NULL) {
        arguments[count++] = "--node-key-file";
        arguments[count++] = options->key_file;
    }
    return arguments;
}

/* False after a message. */
static bool start_keeper(const struct options *options, const char *program)
{
    char state[PATH_MAX], cache[PATH_MAX], log[PATH_MAX];
    const char **arguments;
    int ends[2], file;

    snprintf(state, sizeof state, "%s/state", private_daemon.folder);
    snprintf(cache, sizeof cache, "%s/cache", private_daemon.folder);
    snprintf(log, sizeof log, "%s/log", private_daemon.folder);
    arguments = make_arguments(options, state, cache);
    if (arguments == NULL || pipe2(ends, O_CLOEXEC) != 0) {
        session_say("cannot start a private daemon: %s", strerror(errno));
        free(arguments);
        return false;
    }
    private_daemon.keeper = fork();
    if (private_daemon.keeper == 0) {
        close(ends[1]);
        file = open(log, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        if (file >= 0) dup2(file, STDERR_FILENO);
        file = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (file >= 0) {
            dup2(file, STDIN_FILENO);
            dup2(file, STDOUT_FILENO);
        }
        keep(program, arguments, ends[0]);
    }
    close(ends[0]);
    private_daemon.pipe = ends[1];
    free(arguments);
    if (private_daemon.keeper > 0) return true;
    session_say("cannot start a private daemon: %s", strerror(errno));
    return false;
}

/* What it said last, when it did not come up. */
static void say_log(void)
{
    char path[PATH_MAX], line[600] = "it said nothing";
    FILE *file;

    snprintf(path, sizeof path, "%s/log", private_daemon.folder);
    file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) line[strcspn(line, "\n")] = '\0';
    if (file != NULL) fclose(file);
    session_say("the private trimtabd did not start: %s",
                strncmp(line, "trimtabd: ", 10) == 0 ? line + 10 : line);
}

static bool all_read(const json_t *document)
{
    const json_t *node;
    size_t i;

    json_array_foreach(json_object_get(document, "nodes"), i, node)
    {
        const char *state =
            json_string_value(json_object_get(json_object_get(node, "health"), "state"));
        bool rates = json_is_number(json_object_get(node, "throughput_tps"));

        if (state == NULL || (strcmp(state, "failed") != 0 && !rates)) return false;
    }
    return true;
}

/* Wait until it answers, then until it has rates of every engine. False: it never answered.
 */
static bool wait_until_read(void)
{
    struct client_options client_options = {.address = private_daemon.socket,
                                            .deadline_ms = PROBE_MS};
    struct client *client = client_new(&client_options, NULL);
    bool answers = false, read = false;

    for (int waited_ms = 0; client != NULL && !read && waited_ms < (answers ? READ_MS : START_MS);
         waited_ms += STEP_MS) {
        struct client_reply reply = {0};

        if (client_get(client, "/api/v1/nodes", &reply) == CLIENT_OK) {
            answers = true;
            read = all_read(reply.body);
        }
        client_reply_clear(&reply);
        if (!read) session_sleep_ms(STEP_MS);
    }
    client_free(client);
    return answers;
}

/* ------------------------------------------------------------------------------- is it an engine?
 */

/* A daemon answers the control API, or asks for a token in its way; who answers anything else is an
 * engine. Who does not answer is taken for the daemon that it may be. */
static bool is_engine(const char *url)
{
    struct client_options client_options = {.address = url, .deadline_ms = PROBE_MS};
    struct client *client = client_new(&client_options, NULL);
    struct client_reply reply = {0};
    enum client_status status = CLIENT_INVALID;
    const char *schema;
    bool engine;

    if (client != NULL) status = client_get(client, "/api/v1/nodes", &reply);
    schema = json_string_value(json_object_get(reply.body, "schema"));
    engine = (status == CLIENT_OK && (schema == NULL || strncmp(schema, "trimtab.", 8) != 0)) ||
             (status == CLIENT_REFUSED && reply.http_status != 401 && reply.http_status != 403) ||
             (status == CLIENT_BAD_REPLY && reply.http_status > 0);
    client_reply_clear(&reply);
    client_free(client);
    return engine;
}

static bool names_engines(const struct options *options)
{
    if (options->urls_count == 0) return false;
    if (options->urls_count > 1 || options->key_env != NULL || options->key_file != NULL)
        return true;
    return is_engine(options->urls[0]);
}

int attach_begin(struct options *options)
{
    char program[PATH_MAX];

    if (!names_engines(options)) return 0;
    if (!program_find("TRIMTABD", SBINDIR "/trimtabd", program, sizeof program)) {
        session_say("trimtabd was not found in " SBINDIR
                    ", beside trimtab or as $TRIMTABD; is trimtab installed whole?");
        return EXIT_DEGRADED;
    }
    if (!make_folder()) return EXIT_DEGRADED;
    session_say("watching %d engine%s through a private trimtabd that ends with this, its history "
                "too; trimtabd --node URL keeps one",
                options->urls_count, options->urls_count == 1 ? "" : "s");
    if (!start_keeper(options, program)) return EXIT_DEGRADED;
    if (!wait_until_read()) {
        say_log();
        return EXIT_UNREACHABLE;
    }
    options->endpoint = private_daemon.socket;
    return 0;
}

void attach_end(void)
{
    if (private_daemon.pipe < 0) return;
    close(private_daemon.pipe);
    private_daemon.pipe = -1;
    while (waitpid(private_daemon.keeper, NULL, 0) < 0 && errno == EINTR) {}
}
