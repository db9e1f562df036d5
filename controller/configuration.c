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
#include "controller/fetch.h"
#include "controller/listen.h"
#include "controller/nearest.h"
#include "controller/number.h"

#define SYSTEM_FILE SYSCONFDIR "/trimtab/trimtab.conf"
#define SECTION "trimtabd"
#define NODE_SECTION "node "
#define NODE_NAME_MAX 64
#define NODE_NAME_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@-"

enum kind { TEXT, INTEGER, REAL, FLAG, NODE };

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
    {"node", NODE, AT(nodes), "[NAME=]URL", 0, 0, NULL,
     "watch an engine in another process; may be given more than once"},
    {"node-key-env", TEXT, AT(node_defaults.key_env), "VARIABLE", 0, 0, NULL,
     "environment variable with the key of such engines"},
    {"node-key-file", TEXT, AT(node_defaults.key_file), "FILE", 0, 0, NULL,
     "file with the key of such engines (mode 0600)"},
    {"node-ca-file", TEXT, AT(node_defaults.ca_file), "FILE", 0, 0, NULL,
     "certificates that https engines are checked by"},
    {"node-interval-ms", INTEGER, AT(node_defaults.interval_ms), "MS", 1000, 60000, "1000",
     "time between two readings of an engine's metrics"},
    {"node-timeout-ms", INTEGER, AT(node_defaults.timeout_ms), "MS", 100, 60000, "5000",
     "how long an engine's answer is waited for"},
    {"max-connections", INTEGER, AT(max_connections), "N", 1, 65536, "512",
     "HTTP connections at once"},
    {"drain-timeout-s", INTEGER, AT(drain_timeout_s), "S", 0, 86400, "20",
     "how long SIGTERM waits for running requests"},
    {"config", TEXT, AT(config), "FILE", 0, 0, NULL, "configuration file [" SYSTEM_FILE "]"},
    {"version", FLAG, AT(version), NULL, 0, 0, NULL, "print the version"},
    {"help", FLAG, AT(help), NULL, 0, 0, NULL, "print this"},
};
#define ROWS (sizeof table / sizeof table[0])

#define NODE_AT(member) offsetof(struct configured_node, member)

/* The keys of a section [node NAME]. */
static const struct option_row node_table[] = {
    {"url", TEXT, NODE_AT(url), "URL", 0, 0, NULL, NULL},
    {"key-env", TEXT, NODE_AT(key_env), "VARIABLE", 0, 0, NULL, NULL},
    {"key-file", TEXT, NODE_AT(key_file), "FILE", 0, 0, NULL, NULL},
    {"ca-file", TEXT, NODE_AT(ca_file), "FILE", 0, 0, NULL, NULL},
    {"interval-ms", INTEGER, NODE_AT(interval_ms), "MS", 1000, 60000, NULL, NULL},
    {"timeout-ms", INTEGER, NODE_AT(timeout_ms), "MS", 100, 60000, NULL, NULL},
};
#define NODE_ROWS (sizeof node_table / sizeof node_table[0])

static const struct option_row *find_row(const struct option_row *rows, size_t count,
                                         const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

static void *field(void *base, const struct option_row *row)
{
    return (char *)base + row->offset;
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

/* ---- nodes */

static void clear_node(struct configured_node *node)
{
    for (size_t i = 0; i < NODE_ROWS; i++)
        if (node_table[i].kind == TEXT) free(*(char **)field(node, &node_table[i]));
    free(node->name);
    *node = (struct configured_node){0};
}

/* 0, or -1 with *cause: a name that no path of the API or row of the screen could hold. */
static int check_name(const char *name, char **cause)
{
    if (*name && strlen(name) <= NODE_NAME_MAX && !name[strspn(name, NODE_NAME_BYTES)]) return 0;
    cause_set(cause, "a node's name is 1 to %d letters, digits and . _ : @ - signs, not \"%.80s\"",
              NODE_NAME_MAX, name);
    return -1;
}

/* The node of that name, made when it is new. NULL with *cause. */
static struct configured_node *find_node(struct configuration *configuration, const char *name,
                                         char **cause)
{
    struct configured_node *longer;

    if (check_name(name, cause) != 0) return NULL;
    for (int i = 0; i < configuration->nodes_count; i++)
        if (strcmp(configuration->nodes[i].name, name) == 0) return &configuration->nodes[i];
    longer = realloc(configuration->nodes,
                     (size_t)(configuration->nodes_count + 1) * sizeof *configuration->nodes);
    if (longer) {
        configuration->nodes = longer;
        longer += configuration->nodes_count;
        *longer = (struct configured_node){.name = strdup(name)};
        if (longer->name) {
            configuration->nodes_count++;
            return longer;
        }
    }
    cause_set(cause, "out of memory");
    return NULL;
}

/* "http://gpu1:8000/a" is named gpu1:8000_a. */
static void name_of_url(const char *url, char *name, size_t size)
{
    const char *host = strstr(url, "://");
    size_t length;

    snprintf(name, size, "%s", host ? host + 3 : url);
    length = strlen(name);
    while (length > 0 && name[length - 1] == '/') name[--length] = '\0';
    for (char *at = name; *at; at++)
        if (!strchr(NODE_NAME_BYTES, *at)) *at = '_';
}

/* "NAME=URL" or "URL". */
static int add_node(struct configuration *configuration, const char *value, char **cause)
{
    const char *equal = strchr(value, '='), *url = value;
    struct configured_node *node;
    char name[2 * NODE_NAME_MAX]; /* longer than may be, so that a longer one is refused */

    if (equal && equal < value + strcspn(value, ":/")) {
        snprintf(name, sizeof name, "%.*s", (int)(equal - value), value);
        url = equal + 1;
    } else {
        name_of_url(value, name, NODE_NAME_MAX + 1);
    }
    if (remote_check_url(url, cause) != 0) return -1;
    node = find_node(configuration, name, cause);
    if (!node) return -1;
    if (node->url) {
        cause_set(cause, "two nodes are named %s; name them: --node NAME=URL", name);
        return -1;
    }
    return set_text(&node->url, url, cause);
}

/* What is the same for all, into those that do not say it; and what no line alone can tell. */
static int settle_nodes(struct configuration *configuration, char **cause)
{
    const struct configured_node *defaults = &configuration->node_defaults;

    for (int i = 0; i < configuration->nodes_count; i++) {
        struct configured_node *node = &configuration->nodes[i];

        if (!node->url) {
            cause_set(cause, "[node %s] has no url", node->name);
            return -1;
        }
        if (strcmp(node->name, configuration->name) == 0) {
            cause_set(cause, "the node %s has the name of this daemon's own node (--name)",
                      node->name);
            return -1;
        }
        if (!node->key_env && !node->key_file) {
            if (defaults->key_file && set_text(&node->key_file, defaults->key_file, cause) != 0)
                return -1;
            if (defaults->key_env && set_text(&node->key_env, defaults->key_env, cause) != 0)
                return -1;
        }
        if (!node->ca_file && defaults->ca_file &&
            set_text(&node->ca_file, defaults->ca_file, cause) != 0)
            return -1;
        if (node->interval_ms == 0) node->interval_ms = defaults->interval_ms;
        if (node->timeout_ms == 0) node->timeout_ms = defaults->timeout_ms;
    }
    return 0;
}

/* ---- values */

static int check_mode(const char *value, char **cause)
{
    enum mode ignored;

    if (mode_parse(value, &ignored)) return 0;
    cause_set(cause, "mode is one of adaptive, fixed, off, shadow, not \"%s\"", value);
    return -1;
}

static int check_estimator(const char *value, char **cause)
{
    enum tt_estimator_kind ignored;

    if (estimator_parse(value, &ignored)) return 0;
    cause_set(cause, "estimator is online or parity, not \"%s\"", value);
    return -1;
}

static int check_device(const char *value, char **cause)
{
    const char *number = strncmp(value, "cuda:", 5) == 0 ? value + 5 : "";

    if (strcmp(value, "auto") == 0 || strcmp(value, "cpu") == 0) return 0;
    if (*number && strlen(number) <= 3 && !number[strspn(number, "0123456789")]) return 0;
    cause_set(cause, "device is cpu, cuda:N or auto, not \"%s\"", value);
    return -1;
}

static int check_text(const struct option_row *row, const char *value, char **cause)
{
    static const struct {
        const char *name;
        int (*check)(const char *value, char **cause);
    } checks[] = {{"name", check_name},
                  {"mode", check_mode},
                  {"estimator", check_estimator},
                  {"device", check_device},
                  {"listen", listen_check}};

    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        if (strcmp(row->name, checks[i].name) == 0) return checks[i].check(value, cause);
    return 0;
}

/* `base` is what the row's table describes. */
static int set_value(void *base, const struct option_row *row, const char *value, char **cause)
{
    void *slot = field(base, row);
    int64_t whole;

    switch (row->kind) {
    case NODE:
        return add_node(base, value, cause);
    case TEXT:
        if (value[0] && check_text(row, value, cause) != 0) return -1;
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
    case INTEGER:
        if (number_read_whole(value, (int64_t)row->low, (int64_t)row->high, &whole)) {
            *(int *)slot = (int)whole;
            return 0;
        }
        cause_set(cause, "%s wants a whole number from %.0f to %.0f, in decimal digits, not \"%s\"",
                  row->name, row->low, row->high, value);
        return -1;
    case REAL:
        if (number_read_real(value, row->low, row->high, slot)) return 0;
        cause_set(cause, "%s wants a decimal number from %g to %g, not \"%s\"", row->name, row->low,
                  row->high, value);
        return -1;
    }
    return -1;
}

static void unknown(const struct option_row *rows, size_t count, const char *what, const char *name,
                    char **cause)
{
    const char *names[ROWS], *near;

    for (size_t i = 0; i < count; i++) names[i] = rows[i].name;
    near = nearest_word(name, names, count);
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
        row = find_row(table, ROWS, name);
        if (!row) {
            unknown(table, ROWS, "option", name, cause);
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

#define SECTION_MAX 49 /* bytes of a section's name that inih keeps */

struct file_state {
    struct configuration *configuration;
    FILE *file;
    int line, cause_line; /* read so far; of the first fault */
    char *cause;
};

static int read_node_pair(struct file_state *file, const char *node_name, const char *name,
                          const char *value)
{
    const struct option_row *row = find_row(node_table, NODE_ROWS, name);
    struct configured_node *node = find_node(file->configuration, node_name, &file->cause);

    if (!node) return 0;
    if (!row) {
        unknown(node_table, NODE_ROWS, "key of a node,", name, &file->cause);
        return 0;
    }
    if (row->offset == NODE_AT(url) && remote_check_url(value, &file->cause) != 0) return 0;
    return set_value(node, row, value, &file->cause) == 0;
}

static int take_pair(struct file_state *file, const char *section, const char *name,
                     const char *value)
{
    const struct option_row *row = find_row(table, ROWS, name);

    if (strncmp(section, NODE_SECTION, sizeof NODE_SECTION - 1) == 0)
        return read_node_pair(file, section + sizeof NODE_SECTION - 1, name, value);
    if (strcmp(section, SECTION) != 0) {
        cause_set(&file->cause,
                  "unknown section [%s]: [" SECTION "] and [" NODE_SECTION "NAME] are known",
                  section);
        return 0;
    }
    if (!row || row->offset == AT(config) || row->offset == AT(help) ||
        row->offset == AT(version)) {
        unknown(table, ROWS, "key", name, &file->cause);
        return 0;
    }
    return set_value(file->configuration, row, value, &file->cause) == 0;
}

/* For inih: the first fault stands, whatever comes behind it. */
static int read_pair(void *state, const char *section, const char *name, const char *value)
{
    struct file_state *file = state;

    if (file->cause) return 0;
    file->cause_line = file->line;
    return take_pair(file, section, name, value);
}

/* The line in hand is passed over; true when its fault is the first. */
static bool is_first_fault(struct file_state *file, char *line)
{
    line[0] = '\0';
    if (file->cause) return false;
    file->cause_line = file->line;
    return true;
}

/* For inih, which would cut a long line or section in two in silence, and take an indented line for
 * more of the value before it. */
static char *read_line(char *line, int size, void *state)
{
    struct file_state *file = state;
    size_t length;

    if (!fgets(line, size, file->file)) return NULL;
    file->line++;
    length = strlen(line);
    if ((length == 0 || line[length - 1] != '\n') && !feof(file->file)) {
        int byte = 0;

        if ((int)length == size - 1)
            while (byte != '\n' && byte != EOF) byte = fgetc(file->file);
        if (is_first_fault(file, line))
            cause_set(&file->cause,
                      "not a line of text of at most %d bytes; on the command line an option may "
                      "be longer",
                      size - 2);
        return line;
    }
    memmove(line, line + strspn(line, " \t"), length + 1 - strspn(line, " \t"));
    if (line[0] == '[' && strcspn(line + 1, "]") > SECTION_MAX && is_first_fault(file, line))
        cause_set(&file->cause,
                  "the name of a section has at most %d bytes; a key `node = NAME=URL` may hold a "
                  "longer one",
                  SECTION_MAX);
    return line;
}

static int read_file(struct configuration *configuration, const char *path, char **cause)
{
    struct file_state state = {.configuration = configuration, .file = fopen(path, "re")};
    bool ok = false;
    int status = state.file ? ini_parse_stream(read_line, &state, read_pair, &state) : -1;

    if (!state.file || ferror(state.file))
        cause_set(cause, "cannot read the configuration %s: %s", path, strerror(errno));
    else if (status == -2)
        cause_set(cause, "out of memory");
    else if (state.cause && (status == 0 || status >= state.cause_line))
        cause_set(cause, "%s line %d: %s", path, state.cause_line, state.cause);
    else if (status != 0)
        cause_set(cause, "%s line %d: not of the form key = value", path, status);
    else
        ok = true;
    if (state.file) fclose(state.file);
    free(state.cause);
    return ok ? 0 : -1;
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

static int check_drafts(const struct configuration *configuration, char **cause)
{
    if (configuration->fixed_draft <= configuration->max_draft) return 0;
    cause_set(cause, "--fixed-draft %d is above --max-draft %d", configuration->fixed_draft,
              configuration->max_draft);
    return -1;
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
    if (check_drafts(configuration, cause) != 0) goto out;
    if (settle_nodes(configuration, cause) != 0) goto out;
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
    for (int i = 0; i < configuration->nodes_count; i++) clear_node(&configuration->nodes[i]);
    free(configuration->nodes);
    memset(configuration, 0, sizeof *configuration);
}

void configuration_print_help(FILE *out)
{
    fputs(
        "usage: trimtabd --model FILE [--draft FILE] [OPTION]…\n"
        "       trimtabd --replay FILE --cost TABLE [OPTION]…\n"
        "       trimtabd --node [NAME=]URL… [OPTION]…\n"
        "Serve a GGUF model with adaptive verification of speculative drafts, and watch vLLM and\n"
        "other engines; see trimtabd(8).\n\n",
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

void configuration_policy(const struct configuration *configuration, struct policy *policy,
                          const char **draft_file)
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
    mode_parse(configuration->mode, &policy->mode);
    estimator_parse(configuration->estimator, &policy->estimator);
    if (strcmp(draft, "ngram") == 0)
        policy->draft = DRAFT_NGRAM;
    else if (strcmp(draft, "none") == 0)
        policy->draft = DRAFT_NONE;
    else
        *draft_file = draft;
}
