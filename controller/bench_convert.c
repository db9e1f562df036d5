/* bench_convert.c - rewrite a model file in another form: the set-up makes the served form of the
 * packaged target so. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/bench.h"
#include "controller/cause.h"
#include "controller/lm.h"

int bench_convert(int argc, char **argv)
{
    struct bench_option options[] = {{"threads", "N", "threads; 0 = one a processor", "0"}};
    const char *word[3];
    char *part = NULL, *cause = NULL;
    int threads, status;

    status = bench_options(argc, argv, "convert FROM.gguf TO.gguf FORM [--threads N]", options, 1,
                           word, 3);
    if (status != 0) return status > 0 ? 0 : 2;
    threads = (int)bench_number(options, "threads", 0, 1024);
    if (threads == 0) threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    cause_set(&part, "%s.part", word[1]);
    if (!part || lm_convert(word[0], part, word[2], threads, &cause) != 0) {
        fprintf(stderr, "trimtab bench convert: %s\n", cause ? cause : "out of memory");
        free(part);
        free(cause);
        return 1;
    }
    status = rename(part, word[1]) == 0 ? 0 : 1;
    if (status != 0) {
        perror(word[1]);
        unlink(part);
    }
    free(part);
    return status;
}
