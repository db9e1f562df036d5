/* options.c - see options.h. */
#include "config.h"

#include "controller/nearest.h"
#include "tui/options.h"

#include <getopt.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "controller/cause.h"
#include "controller/number.h"
#include "tui/text.h"

enum kind { FLAG, TEXT, COUNT, SCHEME };

#define ANYWHERE NULL
static const struct option_row {
    const char *name;
    char letter; /* 0 = none */
    enum kind kind;
    size_t offset;
    int64_t least, most; /* of a COUNT */
    const char *argument, *text;
    const char *verbs; /* the verbs that take it, ANYWHERE = all and the console */
} rows[] = {
#define AT(member) offsetof(struct options, member)
    {"socket", 's', TEXT, AT(endpoint), 0, 0, "PATH", "the daemon's socket, or its URL", ANYWHERE},
    {"token-file", 0, TEXT, AT(token_file), 0, 0, "FILE",
     "write token (a 0600 file); else $TRIMTAB_TOKEN", ANYWHERE},
    {"key-env", 0, TEXT, AT(key_env), 0, 0, "VARIABLE",
     "environment variable with the key of the engines at the URLs",
     "console status top nodes inspect"},
    {"key-file", 0, TEXT, AT(key_file), 0, 0, "FILE", "file with it (mode 0600)",
     "console status top nodes inspect"},
    {"node", 'n', TEXT, AT(node), 0, 0, "ID", "the node to watch; else the daemon's first",
     "console status top"},
    {"read-only", 'r', FLAG, AT(read_only), 0, 0, NULL, "never change anything", "console"},
    {"interval", 'i', COUNT, AT(interval_ms), 250, 60000, "MS", "time between two samples [1000]",
     "console status top"},
    {"once", '1', FLAG, AT(once), 0, 0, NULL, "print one screen from two samples and exit",
     "console"},
    {"json", 'j', FLAG, AT(json), 0, 0, NULL, "print JSON",
     "console status top nodes query ab inspect"},
    {"plain", 'p', FLAG, AT(plain), 0, 0, NULL, "one fact a line, in words, for screen readers",
     "status top"},
    {"utc", 'u', FLAG, AT(utc), 0, 0, NULL, "show times in UTC", ANYWHERE},
    {"ascii", 'A', FLAG, AT(ascii), 0, 0, NULL,
     "draw with ASCII only (the default in such a locale)", "console"},
    {"no-color", 0, FLAG, AT(no_color), 0, 0, NULL, "the same as --scheme mono; so does $NO_COLOR",
     "console"},
    {"scheme", 0, SCHEME, AT(scheme), 0, 0, "NAME",
     "colours: default, safe (for the colour-blind), mono", "console"},
    {"mouse", 0, FLAG, AT(mouse), 0, 0, NULL, "let the wheel scroll (takes selecting text away)",
     "console"},
    {"script", 0, TEXT, AT(script), 0, 0, "FILE", "run keys from a file without a terminal",
     "console"},
    {"count", 'c', COUNT, AT(count), 1, 1000000000, "N", "stop after N lines", "top"},
    {"reason", 0, TEXT, AT(reason), 0, 0, "TEXT", "why, for the decision log", "mode set"},
    {"minutes", 0, COUNT, AT(minutes), 1, 1440, "N", "how long to compare [10]", "ab"},
    {"window", 0, COUNT, AT(window_s), 3, 3600, "S", "length of one turn [30]", "ab"},
    {"effect", 0, COUNT, AT(effect_s), 5, 300, "S",
     "then count and tell what it did, S seconds before and after", "mode"},
    {"db", 0, TEXT, AT(database), 0, 0, "FILE", "the store; else the daemon's", "query export"},
    {"csv", 0, FLAG, AT(csv), 0, 0, NULL, "print CSV", "query"},
    {"jsonl", 0, FLAG, AT(jsonl), 0, 0, NULL, "print one JSON object a row", "query"},
    {"limit", 0, COUNT, AT(limit_rows), 0, 1000000000, "N", "most rows, 0 = all [10000]", "query"},
    {"timeout", 0, COUNT, AT(timeout_s), 0, 86400, "S", "most seconds, 0 = no limit [30]", "query"},
    {"to", 0, TEXT, AT(export_to), 0, 0, "FILE", "where to: .db, .jsonl, or .csv (a folder)",
     "export"},
    {"since", 0, TEXT, AT(since), 0, 0, "AGE", "only rows younger than this, like 90s 30m 24h 7d",
     "export"},
    {"overwrite", 0, FLAG, AT(overwrite), 0, 0, NULL, "replace what stands at the target",
     "export"},
    {"dump-keys", 0, FLAG, AT(dump_keys), 0, 0, NULL, "print the console's keys and exit",
     "console"},
    {"help", 'h', FLAG, AT(help), 0, 0, NULL, "print this and exit", ANYWHERE},
    {"version", 'V', FLAG, AT(version), 0, 0, NULL, "print the version and exit", ANYWHERE},
#undef AT
};
enum { ROWS = sizeof rows / sizeof rows[0], FIRST_LONG = 256 };

/* What getopt is given: made from the rows, so that they are the only list. */
struct parser {
    struct option option[ROWS + 1];
    char letters[3 * ROWS + 3];
};

static void make_parser(struct parser *parser)
{
    char *letter = parser->letters;

    memset(parser, 0, sizeof *parser);
    *letter++ = ':'; /* tell a missing argument from an unknown option */
    for (int i = 0; i < ROWS; i++) {
        parser->option[i] =
            (struct option){rows[i].name, rows[i].kind == FLAG ? no_argument : required_argument,
                            NULL, FIRST_LONG + i};
        if (rows[i].letter == 0) continue;
        *letter++ = rows[i].letter;
        if (rows[i].kind != FLAG) *letter++ = ':';
    }
}

static const struct option_row *find_row(int code)
{
    for (int i = 0; i < ROWS; i++)
        if (code == FIRST_LONG + i || (rows[i].letter != 0 && code == rows[i].letter))
            return &rows[i];
    return NULL;
}

static int unknown_option(const char *word, char **cause)
{
    const char *names[ROWS];
    char name[64], clean[64];
    int nearest;

    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    for (int i = 0; i < ROWS; i++) names[i] = rows[i].name;
    nearest = strncmp(name, "--", 2) == 0 ? nearest_index(name + 2, names, ROWS) : -1;
    text_clean(clean, sizeof clean, name);
    if (nearest >= 0)
        cause_set(cause, "unknown option %s; did you mean --%s?", clean, names[nearest]);
    else
        cause_set(cause, "unknown option %s; see trimtab --help", clean);
    return -1;
}

static int store(const struct option_row *row, const char *value, struct options *out, char **cause)
{
    char *at = (char *)out + row->offset;

    switch (row->kind) {
    case FLAG:
        *(bool *)(void *)at = true;
        return 0;
    case TEXT:
        if (value[0] == '\0') {
            cause_set(cause, "--%s needs a value that is not empty", row->name);
            return -1;
        }
        *(const char **)(void *)at = value;
        return 0;
    case COUNT:
        if (number_read_whole(value, row->least, row->most, (int64_t *)(void *)at)) return 0;
        cause_set(cause,
                  "--%s takes a whole number from %lld to %lld, in decimal digits, not \"%.40s\"",
                  row->name, (long long)row->least, (long long)row->most, value);
        return -1;
    case SCHEME:
        out->scheme_given = true;
        if (scheme_parse(value, (enum scheme *)(void *)at)) return 0;
        cause_set(cause, "--scheme is one of default, safe, mono, not \"%.40s\"", value);
        return -1;
    }
    return -1;
}

static bool word_in(const char *word, const char *list)
{
    size_t length = strlen(word);

    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return true;
    return false;
}

static bool looks_like_endpoint(const char *word)
{
    return strchr(word, '/') != NULL || strchr(word, ':') != NULL;
}

/* The words that name a daemon or engines, from the first on. */
static int take_endpoints(struct options *out, char **cause)
{
    int count = 0;

    while (count < out->words_count && looks_like_endpoint(out->words[count])) {
        if (out->urls_count > 0 && strstr(out->words[count], "://") == NULL) {
            cause_set(cause, "\"%.100s\" is no URL; several addresses are those of engines",
                      out->words[count]);
            return -1;
        }
        out->urls_count = ++count;
    }
    if (count == 0) return 0;
    if (out->endpoint != NULL) {
        cause_set(cause, "two daemons are named, %.100s and %.100s; one can be watched",
                  out->endpoint, out->words[0]);
        return -1;
    }
    out->endpoint = out->words[0];
    out->urls = out->words;
    if (strstr(out->words[0], "://") == NULL && count == 1) out->urls_count = 0; /* a socket */
    out->words += count;
    out->words_count -= count;
    return 0;
}

static int find_verb(struct options *out, const struct verb **verb, char **cause)
{
    const char *names[32];
    char clean[64];
    int nearest;

    *verb = NULL;
    if (take_endpoints(out, cause) != 0) return -1;
    if (out->words_count == 0) return 0;
    for (int i = 0; i < verbs_count && i < 32; i++) {
        names[i] = verbs[i].name;
        if (strcmp(verbs[i].name, out->words[0]) != 0) continue;
        *verb = &verbs[i];
        out->words++;
        out->words_count--;
        return verbs[i].words_most == 0 && out->urls_count == 0 ? take_endpoints(out, cause) : 0;
    }
    nearest = nearest_index(out->words[0], names, (size_t)verbs_count);
    text_clean(clean, sizeof clean, out->words[0]);
    if (nearest >= 0)
        cause_set(cause, "unknown command \"%s\"; did you mean \"%s\"?", clean, names[nearest]);
    else
        cause_set(cause,
                  "unknown command \"%s\"; see trimtab --help (a socket is named by its path, a "
                  "daemon by its URL)",
                  clean);
    return -1;
}

/* An option that a verb would ignore is refused: it was meant to do something. */
static int check_fits(const bool given[ROWS], const struct verb *verb, char **cause)
{
    const char *name = verb != NULL ? verb->name : "console";

    for (int i = 0; i < ROWS; i++) {
        if (!given[i] || rows[i].verbs == ANYWHERE || word_in(name, rows[i].verbs)) continue;
        if (verb != NULL)
            cause_set(cause, "--%s means nothing to \"%s\"; it belongs to: %s", rows[i].name, name,
                      rows[i].verbs);
        else
            cause_set(cause, "--%s needs a command: %s", rows[i].name, rows[i].verbs);
        return -1;
    }
    return 0;
}

static int check_words(const struct options *out, const struct verb *verb, char **cause)
{
    if (verb == NULL) return 0; /* find_verb took all there may be */
    if (out->words_count < verb->words_least ||
        (verb->words_most >= 0 && out->words_count > verb->words_most)) {
        cause_set(cause, "%s: use trimtab %s%s%s", verb->name, verb->name,
                  verb->arguments[0] ? " " : "", verb->arguments);
        return -1;
    }
    return 0;
}

int options_parse(int argc, char **argv, struct options *out, const struct verb **verb,
                  char **cause)
{
    struct parser parser;
    bool given[ROWS] = {false};
    int code;

    memset(out, 0, sizeof *out);
    out->interval_ms = 1000;
    out->limit_rows = 10000;
    out->timeout_s = 30;
    out->minutes = 10;
    out->window_s = 30;
    *verb = NULL;
    if (argc > 1 && strcmp(argv[1], "bench") == 0) { /* its options are its own */
        out->words = argv + 1;
        out->words_count = argc - 1;
        return find_verb(out, verb, cause);
    }
    make_parser(&parser);
    opterr = 0;
    optind = 0; /* a full restart, for tests */
    while ((code = getopt_long(argc, argv, parser.letters, parser.option, NULL)) != -1) {
        const struct option_row *row = find_row(code);

        if (code == ':') {
            cause_set(cause, "%s needs a value", argv[optind - 1]);
            return -1;
        }
        if (row == NULL) {
            char letter[3] = {'-', (char)optopt, '\0'};

            return unknown_option(optopt != 0 && optopt < FIRST_LONG ? letter : argv[optind - 1],
                                  cause);
        }
        given[row - rows] = true;
        if (store(row, optarg, out, cause) != 0) return -1;
    }
    out->words = argv + optind;
    out->words_count = argc - optind;
    if (out->help || out->version || out->dump_keys) return 0;
    if (find_verb(out, verb, cause) != 0) return -1;
    if (check_fits(given, *verb, cause) != 0) return -1;
    return check_words(out, *verb, cause);
}

void options_print_help(FILE *out)
{
    fputs("trimtab " PACKAGE_VERSION " - watch and steer speculative decoding\n\n"
          "  trimtab [OPTION...] [SOCKET | URL...]         the console\n"
          "  trimtab [OPTION...] COMMAND [ARGUMENT...]\n\nCommands\n",
          out);
    for (int i = 0; i < verbs_count; i++) {
        char left[64];

        snprintf(left, sizeof left, "%s %s", verbs[i].name, verbs[i].arguments);
        fprintf(out, "  %-38s %s\n", left, verbs[i].text);
    }
    fputs("\nOptions\n", out);
    for (int i = 0; i < ROWS; i++) {
        char left[64], letter[5] = "    ";

        if (rows[i].letter != 0) snprintf(letter, sizeof letter, "-%c, ", rows[i].letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, rows[i].name,
                 rows[i].argument != NULL ? " " : "",
                 rows[i].argument != NULL ? rows[i].argument : "");
        fprintf(
            out, "  %-26s %s%s%s%s\n", left, rows[i].text, rows[i].verbs != ANYWHERE ? " (" : "",
            rows[i].verbs != ANYWHERE ? rows[i].verbs : "", rows[i].verbs != ANYWHERE ? ")" : "");
    }
    fputs("\nThe daemon is found at --socket, else $TRIMTAB_SOCKET, else "
          "$XDG_RUNTIME_DIR/trimtab.sock, else\n"
          "/run/trimtab/trimtab.sock. Without a terminal the console acts as --once.\n"
          "Exit status: 0 healthy or done, 1 degraded, refused or failed, 2 no daemon answers, 64 "
          "wrong usage.\n",
          out);
}
