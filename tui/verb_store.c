/* verb_store.c - query and export: the store read directly, with or without a daemon; and bench,
 * which is a program of its own. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "controller/cause.h"
#include "storage/reader.h"
#include "tui/program.h"
#include "tui/session.h"
#include "tui/verbs.h"
#include "tui/when.h"

#define ASK_MS 500 /* how long the daemon may take to say where its store is */
/* systemd's state folder, whatever the prefix */
#define SYSTEM_STORE "/var/lib/trimtab/trimtab.db"

/* The store of the daemon that answers at the chosen place; NULL when none does. */
static char *ask_daemon(const struct options *options)
{
    struct client_options client_options = session_client_options(options, ASK_MS);
    struct client *client = client_new(&client_options, NULL);
    struct client_reply reply = {0};
    const char *path = NULL;
    char *found = NULL;

    if (client != NULL && client_get(client, "/api/v1/nodes", &reply) == CLIENT_OK)
        path =
            json_string_value(json_object_get(json_object_get(reply.body, "daemon"), "store_path"));
    if (path != NULL && path[0] == '/' && access(path, R_OK) == 0) found = strdup(path);
    client_reply_clear(&reply);
    client_free(client);
    return found;
}

/* Where a daemon of this user, else the system's, keeps its store. */
static char *default_store(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char path[PATH_MAX] = SYSTEM_STORE;

    if (state != NULL && state[0] == '/')
        snprintf(path, sizeof path, "%s/trimtab/trimtab.db", state);
    else if (home != NULL && home[0] == '/')
        snprintf(path, sizeof path, "%s/.local/state/trimtab/trimtab.db", home);
    if (access(path, F_OK) != 0 && access(SYSTEM_STORE, F_OK) == 0) return strdup(SYSTEM_STORE);
    return strdup(path);
}

static struct reader *open_store(const struct options *options)
{
    char *path = options->database != NULL ? strdup(options->database) : ask_daemon(options),
         *cause = NULL;
    struct reader *reader = NULL;

    if (path == NULL) path = default_store();
    if (path != NULL) reader = reader_open(path, &cause);
    if (reader == NULL) {
        session_say("%s", cause != NULL ? cause : "out of memory");
        if (options->database == NULL) session_say("name another store with --db FILE");
    }
    free(cause);
    free(path);
    return reader;
}

/* How a query ended, said where it is not whole; the exit status. */
static int tell_end(const struct options *options, enum reader_end end, const char *cause)
{
    switch (end) {
    case READER_DONE:
        return EXIT_HEALTHY;
    case READER_ROW_LIMIT:
        session_say("stopped after %lld rows; there are more: --limit 0 prints all",
                    (long long)options->limit_rows);
        return EXIT_INCOMPLETE;
    case READER_TIME_LIMIT:
        session_say("stopped after %lld s, rows are missing: --timeout S gives it longer",
                    (long long)options->timeout_s);
        return EXIT_INCOMPLETE;
    default:
        session_say("%s", cause != NULL ? cause : "the query failed");
        return EXIT_DEGRADED;
    }
}

int verb_query(const struct options *options)
{
    struct reader_limits limits = {.time_ms = options->timeout_s * 1000,
                                   .rows = options->limit_rows};
    enum reader_format format = options->csv     ? READER_CSV
                                : options->json  ? READER_JSON
                                : options->jsonl ? READER_JSONL
                                                 : READER_TABLE;
    struct reader *reader;
    char *cause = NULL;
    int status;

    if (options->csv + options->json + options->jsonl > 1) {
        session_say("one of --csv, --json and --jsonl, not several");
        return EXIT_USAGE;
    }
    reader = open_store(options);
    if (reader == NULL) return EXIT_DEGRADED;
    status = tell_end(
        options, reader_print(reader, options->words[0], &limits, format, stdout, &cause), cause);
    free(cause);
    reader_close(reader);
    return status;
}

static void show_progress(void *state, double done)
{
    (void)state;
    fprintf(stderr, "\rexporting %3.0f %%", fmin(fmax(done, 0), 1) * 100);
}

static volatile sig_atomic_t stopped; /* by this signal; 0 = not */

static void on_signal(int number)
{
    stopped = number;
}

/* What is half made is removed before a signal ends the program. */
static void watch_signals(struct reader *reader)
{
    struct sigaction action = {.sa_handler = on_signal};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    reader_stop_when(reader, &stopped);
}

/* As the signal would have done. */
static void end_by_signal(void)
{
    if (stopped == 0) return;
    signal(stopped, SIG_DFL);
    raise(stopped);
}

int verb_export(const struct options *options)
{
    bool watched = isatty(STDERR_FILENO) != 0;
    int64_t since_ms = 0;
    struct reader *reader;
    char *cause = NULL;
    int result;

    if (options->export_to == NULL) {
        session_say("where to? name it with --to FILE (.db, .jsonl or .csv)");
        return EXIT_USAGE;
    }
    if (options->since != NULL) {
        int64_t age_ms = when_span_ms(options->since);

        if (age_ms < 0) {
            session_say("--since takes an age like 90s, 30m, 24h or 7d, not \"%.40s\"",
                        options->since);
            return EXIT_USAGE;
        }
        since_ms = (int64_t)time(NULL) * 1000 - age_ms;
    }
    reader = open_store(options);
    if (reader == NULL) return EXIT_DEGRADED;
    watch_signals(reader);
    result = reader_export(reader, options->export_to, since_ms, options->overwrite,
                           watched ? show_progress : NULL, NULL, &cause);
    if (watched) fputs("\r\033[K", stderr);
    if (result != 0) {
        session_say("%s", cause != NULL ? cause : "the export failed");
        if (!options->overwrite && access(options->export_to, F_OK) == 0)
            session_say("--overwrite replaces it");
    } else {
        printf("exported to %s\n", options->export_to);
    }
    free(cause);
    reader_close(reader);
    if (result != 0) end_by_signal();
    return result == 0 ? EXIT_HEALTHY : EXIT_DEGRADED;
}

/* ---- bench */

int verb_bench(const struct options *options)
{
    char path[PATH_MAX], self[PATH_MAX];
    bool found = program_find("TRIMTAB_BENCH", PKGLIBEXECDIR "/trimtab-bench", path, sizeof path);
    char **arguments = calloc((size_t)options->words_count + 2, sizeof *arguments);

    if (!found || arguments == NULL) {
        session_say("trimtab-bench was not found in " PKGLIBEXECDIR
                    ", beside trimtab or as $TRIMTAB_BENCH; "
                    "is trimtab installed whole?");
        free(arguments);
        return EXIT_DEGRADED;
    }
    arguments[0] = strdup("trimtab bench");
    for (int i = 0; i < options->words_count; i++) arguments[i + 1] = options->words[i];
    if (program_self(self, sizeof self))
        setenv("TRIMTAB_CONSOLE", self, 0); /* what it may measure */
    execv(path, arguments);
    session_say("cannot run %s: %s", path, strerror(errno));
    free(arguments[0]);
    free(arguments);
    return EXIT_DEGRADED;
}
