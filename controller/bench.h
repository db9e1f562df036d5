/* bench.h - trimtab-bench, the measuring half of trimtab (`trimtab bench …` runs it): its verbs and
 * what they share. */
#ifndef CONTROLLER_BENCH_H
#define CONTROLLER_BENCH_H

#include <stdbool.h>
#include <stddef.h>

/* A verb: argv[0] is its name. Returns the exit status. */
int bench_console(int argc, char **argv);
int bench_convert(int argc, char **argv);
int bench_cost(int argc, char **argv);
int bench_kernels(int argc, char **argv);
int bench_load(int argc, char **argv);
int bench_loop(int argc, char **argv);
int bench_record(int argc, char **argv);
int bench_replay(int argc, char **argv);
int bench_traffic(int argc, char **argv);

/* Options of a verb: one row each, values as text (NULL = not given; flags become "true"). */
struct bench_option {
    const char *name, *argument; /* argument NULL = flag */
    const char *help;
    const char *value; /* default, then what was given */
};
/* Parse argv[1 …] into the rows. 0; 1 when --help was answered; -1 after complaining. `positional`
 * takes up to positional_count words that are no options. */
int bench_options(int argc, char **argv, const char *usage, struct bench_option *options,
                  size_t count, const char **positional, size_t positional_count);
/* The same for a verb that takes from `least` to `most` words; *given is how many there were. */
int bench_options_words(int argc, char **argv, const char *usage, struct bench_option *options,
                        size_t count, const char **positional, size_t least, size_t most,
                        size_t *given);
const char *bench_text(const struct bench_option *options, const char *name);
/* A whole number in [low, high]; complains and ends the program with status 2 otherwise. */
long bench_number(const struct bench_option *options, const char *name, long low, long high);

/* Likewise a number, and a list of whole numbers `a,b,c` (at most `most`): returns how many. */
double bench_real(const struct bench_option *options, const char *name, double low, double high);
size_t bench_list(const struct bench_option *options, const char *name, long low, long high,
                  long *out, size_t most);

/* Rewrite the model `from` as `to` in another form of its weights, whole or not at all; threads 0 =
 * one a processor. 0, or -1 with *cause. */
int bench_make_form(const char *from, const char *to, const char *form, int threads, char **cause);

/* Of bench replay: is the file a record of decisions; what it says of estimators. Exit status. */
bool bench_is_record(const char *path);
int bench_decisions(const char *path, bool as_json);

struct bench_prompt {
    char *text, *category; /* category "" when none is given */
    double temperature;
    int max_tokens;
};
/* Read JSON Lines of {"prompt", "category"?, "temperature"?, "max_tokens"?}. Returns the count, or
 * -1 after complaining with the line. */
int bench_read_prompts(const char *path, struct bench_prompt **prompts);
void bench_free_prompts(struct bench_prompt *prompts, int count);
/* Tokens of request `at` (from 0) of a constant load of `load` at a time, where each has `tokens`:
 * the first ones are staggered, so that they end one after another as on a server that has been
 * running for a while. */
int bench_staggered_tokens(int tokens, int at, int load);

/* Median, and the 95 % interval of it by order statistics (sorts values). */
struct bench_median {
    double median, low, high;
};
struct bench_median bench_median(double *values, int count);

#endif
