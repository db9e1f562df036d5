/* configuration.c - see configuration.h. */
#include "config.h"

#include <errno.h>
#include <ini.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/cause.h"
#include "controller/configuration.h"
#include "controller/nearest.h"

#define SYSTEM_FILE SYSCONFDIR "/trimtab/trimtab.conf"
#define SECTION "trimtabd"

enum kind { TEXT, INTEGER, REAL, FLAG };

struct option_row {
    const char *name;
    enum kind kind;
    size_t offset;
    const char *argument; /* NULL for flags */
    double low, high;     /* INTEGER, REAL */
    const char *standard; /* default, as it would be written; NULL = none or computed */
    const char *help;
};

#define AT(member) offsetof(struct configuration, member)

static const struct option_row table[] = {
    {"model", TEXT, AT(model), "FILE", 0, 0, NULL, "target model (GGUF); its law is preserved"},
    {"draft", TEXT, AT(draft), "FILE|ngram|none", 0, 0, "ngram",
     "draft model (GGUF), or n-gram drafts, or none"},
    {"replay", TEXT, AT(replay), "FILE", 0, 0, NULL,
     "in place of a model: replay a recorded trace under a virtual clock"},
    {"cost", TEXT, AT(cost), "TABLE", 0, 0, NULL, "what a step of the replay costs"},
    {"speed", REAL, AT(speed), "FACTOR", 0.001, 1000, "1", "pace of the replay's clock"},
    {"name", TEXT, AT(name), "ID", 0, 0, "local",
     "the node's name on screen, in the API and in the store"},
    {"listen", TEXT, AT(listen), "ADDR:PORT", 0, 0, "127.0.0.1:8080",
     "TCP listener; port 0 takes a free one; none = no TCP"},
    {"socket", TEXT, AT(socket), "PATH", 0, 0, NULL,
     "unix socket of the control API [$XDG_RUNTIME_DIR/trimtab.sock, else /run/trimtab/…]"},
    {"state", TEXT, AT(state), "DIR", 0, 0, NULL,
     "where trimtab.db is kept [$XDG_STATE_HOME/trimtab]"},
    {"cache", TEXT, AT(cache), "DIR", 0, 0, NULL,
     "where measured costs are kept [$XDG_CACHE_HOME/trimtab]"},
    {"mode", TEXT, AT(mode), "MODE", 0, 0, "adaptive", "adaptive, fixed, off or shadow"},
    {"parallel", INTEGER, AT(parallel), "N", 1, 256, "8", "requests generated at once"},
    {"ctx", INTEGER, AT(ctx), "N", 0, 1 << 24, "0",
     "KV cells in all; 0 = the model's own, at most 8192"},
    {"threads", INTEGER, AT(threads), "N", 0, 1024, "0",
     "threads of the engine; 0 = one a processor"},
    {"queue", INTEGER, AT(queue), "N", 1, 65536, "64",
     "requests that may wait; further ones get 503"},
    {"prefill-chunk", INTEGER, AT(prefill_chunk), "N", 1, 512, "128",
     "prompt tokens of a step beside decoding requests"},
    {"max-draft", INTEGER, AT(max_draft), "K", 1, TT_MAX_POSITIONS, "6", "most draft positions"},
    {"fixed-draft", INTEGER, AT(fixed_draft), "K", 0, TT_MAX_POSITIONS, "0",
     "uniform K of mode fixed; 0 = the best of the cost table"},
    {"estimator", TEXT, AT(estimator), "KIND", 0, 0, "online",
     "online, or parity (vLLM's rule, to compare)"},
    {"refit-interval-steps", INTEGER, AT(refit_interval_steps), "N", 0, 100000, "0",
     "steps between refits; 0 = the estimator's own"},
    {"min-gain", REAL, AT(min_gain), "RATIO", 0, 1, "0.01",
     "least predicted gain before a plan is changed"},
    {"no-exploration", FLAG, AT(no_exploration), NULL, 0, 0, NULL, "never draft only to learn"},
    {"device", TEXT, AT(device), "DEVICE", 0, 0, "auto", "cpu, cuda:N or auto"},
    {"exact", FLAG, AT(exact), NULL, 0, 0, NULL,
     "bit-equal logits in every batch shape: at most 256 tokens a request"},
    {"record", TEXT, AT(record), "FILE", 0, 0, NULL, "append every step as a JSON line"},
    {"api-key-file", TEXT, AT(api_key_file), "FILE", 0, 0, NULL,
     "keys that guard /v1, one a line (mode 0600)"},
    {"read-token-file", TEXT, AT(read_token_file), "FILE", 0, 0, NULL,
     "token that reading the control API needs (mode 0600)"},
    {"token-file", TEXT, AT(token_file), "FILE", 0, 0, NULL,
     "token that writing over TCP needs (mode 0600)"},
    {"max-connections", INTEGER, AT(max_connections), "N", 1, 65536, "512",
     "HTTP connections at once"},
    {"drain-timeout-s", INTEGER, AT(drain_timeout_s), "S", 0, 86400, "20",
     "how long SIGTERM waits for running requests"},
    {"config", TEXT, AT(config), "FILE", 0, 0, NULL, "configuration file [" SYSTEM_FILE "]"},
    {"version", FLAG, AT(version), NULL, 0, 0, NULL, "print the version"},
    {"help", FLAG, AT(help), NULL, 0, 0, NULL, "print this"},
};
#define ROWS (sizeof table / sizeof table[0])

static const struct option_row *find_row(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

static void *field(struct configuration *configuration, const struct option_row *row)
{
    return (char *)configuration + row->offset;
}

static int set_text(char **slot, const char *value, char **cause)
{
    char *copy = strdup(value);

    if (!copy) {
        cause_set(cause, "out of memory");
        return -1;
    }
    free(*slot);
    *slot = copy;
    return 0;
}

static int set_value(struct configuration *configuration, const struct option_row *row,
                     const char *value, char **cause)
{
    void *slot = field(configuration, row);
    char *end = NULL;
    double number;

    switch (row->kind) {
    case TEXT:
        if (value[0]) return set_text(slot, value, cause);
        cause_set(cause, "%s wants a value (%s)", row->name, row->argument);
        return -1;
    case FLAG:
        if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0) {
            cause_set(cause, "%s is true or false, not \"%s\"", row->name, value);
            return -1;
        }
        *(bool *)slot = value[0] == 't';
        return 0;
    default:
        errno = 0;
        number = strtod(value, &end);
        if (errno || end == value || *end || !(number >= row->low && number <= row->high) ||
            (row->kind == INTEGER && number != (double)(long)number)) {
            cause_set(cause,
                      row->kind == INTEGER ? "%s wants a whole number from %.0f to %.0f, not \"%s\""
                                           : "%s wants a number from %g to %g, not \"%s\"",
                      row->name, row->low, row->high, value);
            return -1;
        }
        if (row->kind == INTEGER)
            *(int *)slot = (int)number;
        else
            *(double *)slot = number;
        return 0;
    }
}

static void unknown(const char *what, const char *name, char **cause)
{
    const char *names[ROWS], *near;

    for (size_t i = 0; i < ROWS; i++) names[i] = table[i].name;
    near = nearest_word(name, names, ROWS);
    if (near)
        cause_set(cause, "unknown %s %s: did you mean %s? (trimtabd --help lists them)", what, name,
                  near);
    else
        cause_set(cause, "unknown %s %s (trimtabd --help lists them)", what, name);
}

/* ------------------------------------------------------------------------------------------------
 * arguments */

static int read_arguments(struct configuration *configuration, int argc, char **argv, char **cause)
{
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i], *value = NULL;
        char name[64];
        const struct option_row *row;
        size_t length;

        if (strncmp(argument, "--", 2) != 0 || !argument[2]) {
            cause_set(cause, "unexpected argument \"%s\": options begin with --", argument);
            return -1;
        }
        length = strcspn(argument + 2, "=");
        snprintf(name, sizeof name, "%.*s", (int)length, argument + 2);
        row = find_row(name);
        if (!row) {
            unknown("option", name, cause);
            return -1;
        }
        if (argument[2 + length] == '=')
            value = argument + 3 + length;
        else if (row->kind == FLAG)
            value = "true";
        else if (i + 1 < argc)
            value = argv[++i];
        if (!value) {
            cause_set(cause, "--%s wants a value (%s)", row->name, row->argument);
            return -1;
        }
        if (set_value(configuration, row, value, cause) != 0) return -1;
    }
    return 0;
}

/* -------------------------------------------------------------------------------------------------
 * the file */

struct file_state {
    struct configuration *configuration;
    char *cause;
};

static int read_pair(void *state, const char *section, const char *name, const char *value)
{
    struct file_state *file = state;
    const struct option_row *row = find_row(name);

    if (strcmp(section, SECTION) != 0) {
        cause_set(&file->cause, "unknown section [%s]: only [" SECTION "] is known", section);
        return 0;
    }
    if (!row || row->offset == AT(config) || row->offset == AT(help) ||
        row->offset == AT(version)) {
        unknown("key", name, &file->cause);
        return 0;
    }
    return set_value(file->configuration, row, value, &file->cause) == 0;
}

static int read_file(struct configuration *configuration, const char *path, char **cause)
{
    struct file_state state = {configuration, NULL};
    int status = ini_parse(path, read_pair, &state);

    if (status == 0) return 0;
    if (status == -1)
        cause_set(cause, "cannot read the configuration %s: %s", path, strerror(errno));
    else if (status == -2)
        cause_set(cause, "out of memory");
    else
        cause_set(cause, "%s line %d: %s", path, status,
                  state.cause ? state.cause : "not of the form key = value");
    free(state.cause);
    return -1;
}

/* --------------------------------------------------------------------------------------------------
 * defaults */

static int set_place(char **slot, const char *variable, const char *below_home,
                     const char *root_place, const char *leaf, char **cause)
{
    const char *base = getenv(variable), *home = getenv("HOME");
    char path[PATH_MAX];

    if (*slot) return 0;
    if (base && base[0] == '/')
        snprintf(path, sizeof path, "%s/%s", base, leaf);
    else if (below_home && home && home[0] == '/' && !(geteuid() == 0 && getenv("INVOCATION_ID")))
        snprintf(path, sizeof path, "%s/%s/%s", home, below_home, leaf);
    else
        snprintf(path, sizeof path, "%s/%s", root_place, leaf);
    return set_text(slot, path, cause);
}

static int set_places(struct configuration *configuration, char **cause)
{
    /* as client_default_socket looks for it */
    if (set_place(&configuration->socket, "XDG_RUNTIME_DIR", NULL, "/run/trimtab", "trimtab.sock",
                  cause) != 0)
        return -1;
    if (set_place(&configuration->state, "XDG_STATE_HOME", ".local/state", "/var/lib", "trimtab",
                  cause) != 0)
        return -1;
    return set_place(&configuration->cache, "XDG_CACHE_HOME", ".cache", "/var/cache", "trimtab",
                     cause);
}

int configuration_read(struct configuration *configuration, int argc, char **argv, char **cause)
{
    struct configuration early = {0};
    int status = -1;

    memset(configuration, 0, sizeof *configuration);
    for (size_t i = 0; i < ROWS; i++)
        if (table[i].standard && set_value(configuration, &table[i], table[i].standard, cause) != 0)
            return -1;
    if (read_arguments(&early, argc, argv, cause) != 0) goto out; /* where is the file? */
    if (early.config && read_file(configuration, early.config, cause) != 0) goto out;
    if (!early.config && access(SYSTEM_FILE, R_OK) == 0 &&
        read_file(configuration, SYSTEM_FILE, cause) != 0)
        goto out;
    if (read_arguments(configuration, argc, argv, cause) != 0) goto out;
    status = set_places(configuration, cause);
out:
    configuration_clear(&early);
    if (status != 0) configuration_clear(configuration);
    return status;
}

void configuration_clear(struct configuration *configuration)
{
    for (size_t i = 0; i < ROWS; i++)
        if (table[i].kind == TEXT) free(*(char **)field(configuration, &table[i]));
    memset(configuration, 0, sizeof *configuration);
}

void configuration_print_help(FILE *out)
{
    fputs(
        "usage: trimtabd --model FILE [--draft FILE] [OPTION]…\n"
        "       trimtabd --replay FILE --cost TABLE [OPTION]…\n"
        "Serve a GGUF model with adaptive verification of speculative drafts; see trimtabd(8).\n\n",
        out);
    for (size_t i = 0; i < ROWS; i++) {
        char left[40];

        snprintf(left, sizeof left, "--%s%s%s", table[i].name, table[i].argument ? " " : "",
                 table[i].argument ? table[i].argument : "");
        fprintf(out, "  %-27s %s", left, table[i].help);
        if (table[i].standard) fprintf(out, " [%s]", table[i].standard);
        fputc('\n', out);
    }
}

int configuration_policy(const struct configuration *configuration, struct policy *policy,
                         const char **draft_file, char **cause)
{
    const char *draft = configuration->draft;

    *policy = (struct policy){
        .max_draft = configuration->max_draft,
        .fixed_draft = configuration->fixed_draft,
        .exploration = !configuration->no_exploration,
        .refit_interval_steps = configuration->refit_interval_steps,
        .min_gain = configuration->min_gain,
        .draft = DRAFT_AUTO,
    };
    *draft_file = NULL;
    if (!mode_parse(configuration->mode, &policy->mode)) {
        cause_set(cause, "--mode %s: it is one of adaptive, fixed, off, shadow",
                  configuration->mode);
        return -1;
    }
    if (!estimator_parse(configuration->estimator, &policy->estimator)) {
        cause_set(cause, "--estimator %s: it is online or parity", configuration->estimator);
        return -1;
    }
    if (policy->fixed_draft > policy->max_draft) {
        cause_set(cause, "--fixed-draft %d is above --max-draft %d", policy->fixed_draft,
                  policy->max_draft);
        return -1;
    }
    if (strcmp(draft, "ngram") == 0)
        policy->draft = DRAFT_NGRAM;
    else if (strcmp(draft, "none") == 0)
        policy->draft = DRAFT_NONE;
    else
        *draft_file = draft;
    return 0;
}
