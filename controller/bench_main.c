/* bench_main.c - see bench.h. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "controller/bench.h"
#include "controller/lm.h"
#include "controller/nearest.h"
#include "controller/output.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} verbs[] = {
    {"console", bench_console, "what the console costs: first screen, CPU, bytes, memory"},
    {"convert", bench_convert, "rewrite a model file in another form (BF16, Q8_0, …)"},
    {"cost", bench_cost, "what a step costs here: the measured staircase"},
    {"kernels", bench_kernels, "libtrimtab against the speed of memory, and what its calls cost"},
    {"load", bench_load,
     "off, fixed K and adaptive under constant loads: is adaptive never slower?"},
    {"loop", bench_loop, "what trimtab's own work costs beside a bare libllama loop"},
    {"record", bench_record, "a teacher-forced trace of a model pair, for replays"},
    {"replay", bench_replay, "policies on recorded text under a virtual clock"},
    {"traffic", bench_traffic, "demonstration traffic against a running server"},
};
#define VERBS (sizeof verbs / sizeof verbs[0])

static int usage(FILE *out, int status)
{
    fputs("usage: trimtab-bench VERB [OPTION]…    (trimtab bench VERB …; VERB --help lists its "
          "options)\n\n",
          out);
    for (size_t i = 0; i < VERBS; i++) fprintf(out, "  %-10s %s\n", verbs[i].name, verbs[i].help);
    return status;
}

static int run(int argc, char **argv)
{
    const char *names[VERBS], *near;

    if (argc < 2) return usage(stderr, 2);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) return usage(stdout, 0);
    if (strcmp(argv[1], "--version") == 0) {
        printf("trimtab-bench %s (%s)\n", PACKAGE_VERSION, lm_engine_version());
        return 0;
    }
    for (size_t i = 0; i < VERBS; i++) {
        if (strcmp(argv[1], verbs[i].name) == 0) return verbs[i].run(argc - 1, argv + 1);
        names[i] = verbs[i].name;
    }
    near = nearest_word(argv[1], names, VERBS);
    fprintf(stderr, "trimtab-bench: unknown verb %s%s%s\n", argv[1], near ? "; did you mean " : "",
            near ? near : "");
    return usage(stderr, 2);
}

int main(int argc, char **argv)
{
    return output_finish("trimtab bench", run(argc, argv));
}
