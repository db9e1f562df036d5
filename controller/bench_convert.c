/* bench_convert.c - rewrite a model file in another form: the set-up makes the served form of the
 * packaged target so. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/bench.h"
#include "controller/cause.h"
#include "controller/given.h"
#include "controller/lm.h"

int bench_make_form(const char *from, const char *to, const char *form, int threads, char **cause)
{
    char *part = NULL;
    int status = -1;

    if (given_check_output(to, cause) != 0) return -1;
    if (threads == 0) threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    cause_set(&part, "%s.part", to);
    if (!part) {
        cause_set(cause, "out of memory");
        return -1;
    }
    if (lm_convert(from, part, form, threads, cause) == 0) {
        status = rename(part, to);
        if (status != 0) {
            cause_set(cause, "%s: %s", to, strerror(errno));
            unlink(part);
        }
    }
    free(part);
    return status;
}

int bench_convert(int argc, char **argv)
{
    struct bench_option options[] = {{"threads", "N", "threads; 0 = one a processor", "0"}};
    const char *word[3];
    char *cause = NULL;
    int status;

    status = bench_options(argc, argv, "convert FROM.gguf TO.gguf FORM [--threads N]", options, 1,
                           word, 3);
    if (status != 0) return status > 0 ? 0 : 2;
    if (bench_make_form(word[0], word[1], word[2], (int)bench_number(options, "threads", 0, 1024),
                        &cause) == 0)
        return 0;
    fprintf(stderr, "trimtab bench convert: %s\n", cause ? cause : "out of memory");
    free(cause);
    return 1;
}
