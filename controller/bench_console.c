/* bench_console.c - trimtab bench console: what the console costs its machine and its line. It runs
 * on a terminal of its own against a running daemon: time to the first screen, bytes a second and
 * CPU while nobody touches it, and memory over many simulated hours of live figures.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "controller/bench.h"
#include "controller/client.h"
#include "controller/ticks.h"

#define ROWS 24
#define COLS 80
#define SETTLE_MS 3000 /* history, lists and the first samples are in by then */
#define FIRST_PAINT_TARGET_MS 100
#define CPU_TARGET_PERCENT 0.5
#define BYTES_TARGET 2048  /* a second */
#define RSS_TARGET_KIB 256 /* growth that is no growth: pages that were touched late */

struct figures {
    double first_paint_ms, cpu_percent, bytes_a_second, redraws_a_second;
    long rss_begin_kib, rss_end_kib; /* -1 = not measured */
    double simulated_h;
};

/* User and system time of a process so far, in ms; -1 when it is gone. */
static double cpu_ms(pid_t pid)
{
    char path[64], line[1024];
    unsigned long user, kernel;
    const char *after;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (!file) return -1;
    after = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL; /* behind the name */
    fclose(file);
    if (!after || sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                         &kernel) != 2)
        return -1;
    return (double)(user + kernel) * 1e3 / (double)sysconf(_SC_CLK_TCK);
}

/* Counted page by page: the sums in `status` lag by some hundred KiB. */
static long rss_kib(pid_t pid)
{
    char path[64], line[256];
    long kib = -1;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Rss: %ld", &kib) == 1) break;
    if (file) fclose(file);
    return kib;
}

/* ------------------------------------------------------------------ the console on a terminal */

struct watched {
    int terminal;
    size_t bytes, reads;
    bool ended;
};

/* Take what the console writes until `until_ms`, or until it has drawn something when first is
 * set. */
static void watch(struct watched *watched, double until_ms, bool first)
{
    char buffer[4096];

    for (;;) {
        struct pollfd poller = {.fd = watched->terminal, .events = POLLIN};
        double left_ms = until_ms - ticks_ms();
        ssize_t count;

        if (left_ms <= 0 || watched->ended) return;
        if (poll(&poller, 1, (int)left_ms + 1) <= 0) continue;
        count = read(watched->terminal, buffer, sizeof buffer);
        if (count <= 0) {
            watched->ended = true;
            return;
        }
        watched->bytes += (size_t)count;
        watched->reads++;
        if (first && memmem(buffer, (size_t)count, "trimtab", strlen("trimtab"))) return;
    }
}

static bool may_be_run(const char *program)
{
    struct stat status;
    bool folder = stat(program, &status) == 0 && S_ISDIR(status.st_mode);

    if (!folder && access(program, X_OK) == 0) return true;
    fprintf(stderr, "trimtab bench console: %s: %s; give the program trimtab\n", program,
            strerror(folder ? EISDIR : errno));
    return false;
}

static pid_t start_console(const char *program, const char *address, int *terminal)
{
    struct winsize size = {.ws_row = ROWS, .ws_col = COLS};
    pid_t pid = forkpty(terminal, NULL, NULL, &size);

    if (pid != 0) return pid;
    setenv("TERM", "xterm-256color", 1);
    if (address)
        execlp(program, program, "--socket", address, (char *)NULL);
    else
        execlp(program, program, (char *)NULL);
    _exit(127);
}

/* Idle: nobody presses a key. Returns 0, or -1 after complaining. */
static int measure_idle(const char *program, const char *address, long seconds,
                        struct figures *figures)
{
    struct watched watched = {0};
    double begin_ms = ticks_ms(), cpu_begin_ms, cpu_end_ms;
    pid_t pid = start_console(program, address, &watched.terminal);
    int status;

    if (pid < 0) {
        fprintf(stderr, "trimtab bench console: no terminal to run it on: %s\n", strerror(errno));
        return -1;
    }
    watch(&watched, begin_ms + 10000, true);
    figures->first_paint_ms = ticks_ms() - begin_ms;
    watch(&watched, ticks_ms() + SETTLE_MS, false);
    watched.bytes = watched.reads = 0;
    cpu_begin_ms = cpu_ms(pid);
    begin_ms = ticks_ms();
    watch(&watched, begin_ms + (double)seconds * 1e3, false);
    cpu_end_ms = cpu_ms(pid);
    figures->bytes_a_second = (double)watched.bytes / ((ticks_ms() - begin_ms) / 1e3);
    figures->redraws_a_second = (double)watched.reads / ((ticks_ms() - begin_ms) / 1e3);
    figures->cpu_percent = 100 * (cpu_end_ms - cpu_begin_ms) / (ticks_ms() - begin_ms);
    if (!watched.ended && write(watched.terminal, "q", 1) != 1) kill(pid, SIGTERM);
    watch(&watched, ticks_ms() + 2000, false);
    kill(pid, SIGKILL); /* it has left by now */
    waitpid(pid, &status, 0);
    close(watched.terminal);
    if (cpu_begin_ms >= 0 && cpu_end_ms >= 0) return 0;
    fprintf(stderr,
            "trimtab bench console: %s ended at once; does it reach the daemon? try: %s status\n",
            program, program);
    return -1;
}

/* --------------------------------------------------------------- a long time, without a terminal
 */

/* A script that shows `seconds` of live figures, starting with those of the daemon. */
static int write_script(const char *folder, const json_t *nodes, const json_t *snapshot,
                        long seconds, char *path, size_t size)
{
    char name[512];
    FILE *file;

    snprintf(name, sizeof name, "%s/nodes.json", folder);
    if (json_dump_file(nodes, name, 0) != 0) return -1;
    snprintf(name, sizeof name, "%s/snapshot.json", folder);
    if (json_dump_file(snapshot, name, 0) != 0) return -1;
    snprintf(path, size, "%s/live.script", folder);
    file = fopen(path, "we");
    if (!file) return -1;
    /* The first hours fill what is bounded: series, marks. */
    fprintf(file, "load nodes.json\nload snapshot.json\nlive 20000\n:dump %s/filled\nlive %ld\n",
            folder, seconds);
    return fclose(file);
}

static void remove_folder(const char *folder)
{
    static const char *const names[] = {"nodes.json", "snapshot.json", "live.script", "filled"};
    char name[512];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(name, sizeof name, "%s/%s", folder, names[i]);
        unlink(name);
    }
    rmdir(folder);
}

/* Memory once everything bounded is full, and at the end. */
static int watch_memory(const char *program, const char *folder, const char *script,
                        struct figures *figures)
{
    char filled[512];
    pid_t pid = fork(), ended = 0;
    int status = 0;

    if (pid == 0) {
        execlp(program, program, "--script", script, (char *)NULL);
        _exit(127);
    }
    snprintf(filled, sizeof filled, "%s/filled", folder);
    figures->rss_begin_kib = figures->rss_end_kib = -1;
    while (pid > 0 && ended == 0) {
        const struct timespec pause = {0, 20000000};
        long kib = rss_kib(pid);

        if (kib > 0 && access(filled, F_OK) == 0) {
            if (figures->rss_begin_kib < 0) figures->rss_begin_kib = kib;
            figures->rss_end_kib = kib;
        }
        nanosleep(&pause, NULL);
        ended = waitpid(pid, &status, WNOHANG);
    }
    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 && figures->rss_end_kib > 0)
        return 0;
    fprintf(stderr, "trimtab bench console: %s --script did not run to its end\n", program);
    return -1;
}

static int measure_memory(const char *program, struct client *client, long seconds,
                          struct figures *figures)
{
    struct client_reply nodes = {0}, snapshot = {0};
    const char *temporary = getenv("TMPDIR"), *id = NULL;
    char folder[256], script[512], *path = NULL;
    int result = -1;

    snprintf(folder, sizeof folder, "%s/trimtab-bench-XXXXXX",
             temporary && *temporary ? temporary : "/tmp");
    if (client_get(client, "/api/v1/nodes", &nodes) == CLIENT_OK)
        id = json_string_value(
            json_object_get(json_array_get(json_object_get(nodes.body, "nodes"), 0), "id"));
    if (id) path = client_node_path(id, "snapshot");
    if (!path || client_get(client, path, &snapshot) != CLIENT_OK) {
        fprintf(stderr, "trimtab bench console: no node to show: %s\n",
                nodes.cause      ? nodes.cause
                : snapshot.cause ? snapshot.cause
                                 : "the daemon watches none");
    } else if (!mkdtemp(folder)) {
        fprintf(stderr, "trimtab bench console: no folder for the script: %s\n", strerror(errno));
    } else {
        if (write_script(folder, nodes.body, snapshot.body, seconds, script, sizeof script) == 0)
            result = watch_memory(program, folder, script, figures);
        else
            fprintf(stderr, "trimtab bench console: cannot write %s\n", folder);
        remove_folder(folder);
    }
    figures->simulated_h = (double)seconds / 3600;
    free(path);
    client_reply_clear(&nodes);
    client_reply_clear(&snapshot);
    return result;
}

/* ---------------------------------------------------------------------------------- the report */

static void print_line(const char *what, double value, const char *unit, double most)
{
    printf("  %-34s %8.4g %-5s  target < %g  %s\n", what, value, unit, most,
           value < most ? "met" : "NOT met");
}

static void print_table(const struct figures *f)
{
    printf("The console at %dx%d, one sample a second\n", COLS, ROWS);
    print_line("first screen after", f->first_paint_ms, "ms", FIRST_PAINT_TARGET_MS);
    print_line("CPU, nobody touches it", f->cpu_percent, "%", CPU_TARGET_PERCENT);
    print_line("to the terminal", f->bytes_a_second, "B/s", BYTES_TARGET);
    if (f->rss_begin_kib < 0) return;
    printf("  memory over %.0f simulated hours: %ld KiB, then %ld KiB\n", f->simulated_h,
           f->rss_begin_kib, f->rss_end_kib);
    print_line("growth", (double)(f->rss_end_kib - f->rss_begin_kib), "KiB", RSS_TARGET_KIB);
}

static void print_json(const struct figures *f)
{
    json_t *object = json_pack(
        "{s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "schema", "trimtab.bench.console/1",
        "rows", ROWS, "cols", COLS, "first_paint_ms", f->first_paint_ms, "cpu_percent",
        f->cpu_percent, "bytes_per_second", f->bytes_a_second, "redraws_per_second",
        f->redraws_a_second, "simulated_hours", f->simulated_h, "rss_begin_kib",
        f->rss_begin_kib < 0 ? json_null() : json_integer(f->rss_begin_kib), "rss_end_kib",
        f->rss_end_kib < 0 ? json_null() : json_integer(f->rss_end_kib));

    json_dumpf(object, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(object);
}

int bench_console(int argc, char **argv)
{
    enum { OPTIONS = 5 };
    struct bench_option options[OPTIONS] = {
        {"socket", "PATH", "the daemon's socket, or its URL; else $TRIMTAB_SOCKET", NULL},
        {"seconds", "S", "how long to watch it idle", "30"},
        {"simulate", "HOURS", "hours of live figures for the memory; 0 = leave it out", "168"},
        {"console", "PATH", "the console to measure", NULL},
        {"json", NULL, "print JSON", NULL},
    };
    struct figures figures = {.rss_begin_kib = -1, .rss_end_kib = -1};
    int parsed = bench_options(argc, argv, "console [OPTION]…", options, OPTIONS, NULL, 0);
    const char *program, *address;
    long seconds, hours;
    char *cause = NULL;
    struct client *client;

    if (parsed != 0) return parsed > 0 ? 0 : 2;
    seconds = bench_number(options, "seconds", 1, 86400);
    hours = bench_number(options, "simulate", 0, 24 * 366);
    address = bench_text(options, "socket");
    if (!address) address = getenv("TRIMTAB_SOCKET");
    program = bench_text(options, "console");
    if (!program) program = getenv("TRIMTAB_CONSOLE"); /* set by `trimtab bench`: the very same */
    if (!program) program = "trimtab";
    if (strchr(program, '/') && !may_be_run(program)) return 2;
    client = client_new(&(struct client_options){.address = address}, &cause);
    if (!client) {
        fprintf(stderr, "trimtab bench console: %s\n", cause ? cause : "out of memory");
        free(cause);
        return 2;
    }
    parsed = hours > 0 ? measure_memory(program, client, hours * 3600, &figures) : 0;
    if (parsed == 0) parsed = measure_idle(program, address, seconds, &figures);
    client_free(client);
    if (parsed != 0) return 1;
    if (bench_text(options, "json"))
        print_json(&figures);
    else
        print_table(&figures);
    return 0;
}
