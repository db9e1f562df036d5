/* bench_common.c - options, prompts and medians of the benchmarks; see bench.h. */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/bench.h"
#include "controller/given.h"
#include "controller/nearest.h"
#include "controller/number.h"

#define PROMPTS_WANTED "JSON Lines of {\"prompt\": \"…\"}"
#define DEFAULT_MAX_TOKENS 128
#define MOST_OPTIONS 32
#define LEAST_TOKENS 8 /* of a staggered request */

static struct bench_option *find_option(struct bench_option *options, size_t count,
                                        const char *name, size_t length)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(options[i].name) == length && strncmp(options[i].name, name, length) == 0)
            return &options[i];
    return NULL;
}

static void print_options(const char *usage, const struct bench_option *options, size_t count)
{
    printf("usage: trimtab bench %s\n\n", usage);
    for (size_t i = 0; i < count; i++) {
        char left[48];

        snprintf(left, sizeof left, "--%s%s%s", options[i].name, options[i].argument ? " " : "",
                 options[i].argument ? options[i].argument : "");
        printf("  %-24s %s%s%s%s\n", left, options[i].help, options[i].value ? " [" : "",
               options[i].value ? options[i].value : "", options[i].value ? "]" : "");
    }
}

static int refuse(const char *word, const struct bench_option *options, size_t count)
{
    const char *names[MOST_OPTIONS], *near;

    for (size_t i = 0; i < count; i++) names[i] = options[i].name;
    near = nearest_word(word, names, count);
    fprintf(stderr, "trimtab bench: unknown option --%s%s%s\n", word,
            near ? "; did you mean --" : "", near ? near : "");
    return -1;
}

int bench_options_words(int argc, char **argv, const char *usage, struct bench_option *options,
                        size_t count, const char **positional, size_t least, size_t most,
                        size_t *given)
{
    size_t words = 0;

    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        size_t length;
        struct bench_option *option;

        if (strcmp(word, "--help") == 0) {
            print_options(usage, options, count);
            return 1;
        }
        if (strncmp(word, "--", 2) != 0) {
            if (words < most) {
                positional[words++] = word;
                continue;
            }
            fprintf(stderr, "trimtab bench: unexpected argument %s (usage: trimtab bench %s)\n",
                    word, usage);
            return -1;
        }
        length = strcspn(word + 2, "=");
        option = find_option(options, count, word + 2, length);
        if (!option) return refuse(word + 2, options, count);
        if (!option->argument)
            option->value = "true";
        else if (word[2 + length] == '=')
            option->value = word + 3 + length;
        else if (i + 1 < argc)
            option->value = argv[++i];
        else {
            fprintf(stderr, "trimtab bench: %s wants a value (%s)\n", word, option->argument);
            return -1;
        }
    }
    *given = words;
    if (words >= least) return 0;
    fprintf(stderr, "usage: trimtab bench %s\n", usage);
    return -1;
}

int bench_options(int argc, char **argv, const char *usage, struct bench_option *options,
                  size_t count, const char **positional, size_t positional_count)
{
    size_t given;

    return bench_options_words(argc, argv, usage, options, count, positional, positional_count,
                               positional_count, &given);
}

const char *bench_text(const struct bench_option *options, const char *name)
{
    while (strcmp(options->name, name) != 0) options++;
    return options->value;
}

long bench_number(const struct bench_option *options, const char *name, long low, long high)
{
    const char *text = bench_text(options, name);
    int64_t value;

    if (number_read_whole(text, low, high, &value)) return (long)value;
    fprintf(stderr,
            "trimtab bench: --%s wants a whole number from %ld to %ld, in decimal digits, not "
            "\"%s\"\n",
            name, low, high, text);
    exit(2);
}

double bench_real(const struct bench_option *options, const char *name, double low, double high)
{
    const char *text = bench_text(options, name);
    double value;

    if (number_read_real(text, low, high, &value)) return value;
    fprintf(stderr, "trimtab bench: --%s wants a decimal number from %g to %g, not \"%s\"\n", name,
            low, high, text);
    exit(2);
}

size_t bench_list(const struct bench_option *options, const char *name, long low, long high,
                  long *out, size_t most)
{
    const char *text = bench_text(options, name);
    size_t count = 0;

    for (const char *end;; text = end + 1) {
        char one[24]; /* no longer one is a whole number of 64 bits */
        int64_t value;

        end = text + strcspn(text, ",");
        snprintf(one, sizeof one, "%.*s", (int)(end - text), text);
        if ((size_t)(end - text) >= sizeof one || !number_read_whole(one, low, high, &value) ||
            count == most) {
            fprintf(stderr,
                    "trimtab bench: --%s wants at most %zu whole numbers from %ld to %ld, in "
                    "decimal digits, separated by commas, not \"%s\"\n",
                    name, most, low, high, bench_text(options, name));
            exit(2);
        }
        out[count++] = (long)value;
        if (*end == '\0') return count;
    }
}

static bool read_prompt(const char *line, struct bench_prompt *prompt, char *why, size_t size)
{
    json_error_t error;
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, &error);
    const char *text = json_string_value(json_object_get(object, "prompt")),
               *category = json_string_value(json_object_get(object, "category"));
    const json_t *temperature = json_object_get(object, "temperature"),
                 *most = json_object_get(object, "max_tokens");

    prompt->temperature = json_is_number(temperature) ? json_number_value(temperature) : 0;
    prompt->max_tokens = json_is_integer(most) ? (int)json_integer_value(most) : DEFAULT_MAX_TOKENS;
    prompt->text = text ? strdup(text) : NULL;
    prompt->category = strdup(category ? category : "");
    snprintf(why, size, "%s", object ? "no text in \"prompt\"" : error.text);
    json_decref(object);
    if (prompt->text && prompt->category) return true;
    free(prompt->text);
    free(prompt->category);
    return false;
}

int bench_read_prompts(const char *path, struct bench_prompt **prompts)
{
    char *line = NULL, why[200], *cause = NULL;
    FILE *file = given_open(path, PROMPTS_WANTED, &cause);
    size_t size = 0;
    int count = 0, number = 0;

    *prompts = NULL;
    if (!file) {
        fprintf(stderr, "trimtab bench: prompts: %s\n", cause ? cause : "out of memory");
        free(cause);
        return -1;
    }
    errno = 0;
    while (getline(&line, &size, file) >= 0) {
        struct bench_prompt *larger;

        number++;
        if (line[strspn(line, " \t\n")] == '\0') continue;
        larger = realloc(*prompts, (size_t)(count + 1) * sizeof **prompts);
        if (larger) *prompts = larger;
        if (!larger || !read_prompt(line, &(*prompts)[count], why, sizeof why)) {
            fprintf(stderr, "trimtab bench: %s line %d: %s\n", path, number,
                    larger ? why : "out of memory");
            bench_free_prompts(*prompts, count);
            *prompts = NULL;
            count = -1;
            break;
        }
        count++;
    }
    if (count == 0)
        fprintf(stderr, "trimtab bench: prompts: %s: %s; give %s\n", path,
                ferror(file) ? strerror(errno) : "none is in it", PROMPTS_WANTED);
    free(line);
    fclose(file);
    return count == 0 ? -1 : count;
}

void bench_free_prompts(struct bench_prompt *prompts, int count)
{
    for (int i = 0; i < count; i++) {
        free(prompts[i].text);
        free(prompts[i].category);
    }
    free(prompts);
}

int bench_staggered_tokens(int tokens, int at, int load)
{
    if (at < load) tokens = tokens * (at + 1) / load;
    return tokens < LEAST_TOKENS ? LEAST_TOKENS : tokens;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

struct bench_median bench_median(double *values, int count)
{
    struct bench_median out = {NAN, NAN, NAN};
    int reach;

    if (count < 1) return out;
    qsort(values, (size_t)count, sizeof *values, ascending);
    out.median = count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
    reach =
        (int)(0.98 *
              sqrt((double)count)); /* binomial(n, 1/2): half-width of the 95 % interval in ranks */
    out.low = values[(count - 1) / 2 - reach > 0 ? (count - 1) / 2 - reach : 0];
    out.high = values[count / 2 + reach < count - 1 ? count / 2 + reach : count - 1];
    return out;
}
