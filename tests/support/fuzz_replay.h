/* fuzz_replay.h - a libFuzzer target without libFuzzer: its corpus, file by file, as it is and with
 * deterministic damage. What `make check` runs: fuzz_replay.c is the main program of every target,
 * which libFuzzer's takes the place of.
 */
#ifndef TESTS_SUPPORT_FUZZ_REPLAY_H
#define TESTS_SUPPORT_FUZZ_REPLAY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* For targets: say where, and end, when what must hold does not. */
#define REQUIRE(CONDITION)                                                                         \
    do {                                                                                           \
        if (!(CONDITION)) {                                                                        \
            fprintf(stderr, "# %s:%d: %s\n", __FILE__, __LINE__, #CONDITION);                      \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* What a target says of its corpus. */
struct fuzz_corpus {
    const char *folder; /* below tests; another one may be given to the program */
    const char *spice;  /* bytes that damage puts into a file */
    size_t spice_size;
    int least;            /* files; fewer are a failure */
    void (*before)(void); /* run first; NULL = nothing is */
};
extern const struct fuzz_corpus fuzz_corpus;

#define FUZZ_SPICE(TEXT) .spice = (TEXT), .spice_size = sizeof(TEXT) - 1

#endif
