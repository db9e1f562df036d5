/* fuzz_replay.h - a libFuzzer target without libFuzzer: its corpus, file by file, as it is and with
 * deterministic damage. What `make check` runs.
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

/* Body of main. The corpus is argv[1], else tests/`corpus` of the sources ($SRC); damage puts bytes
 * of `spice` (spice_size) into it. One TAP line a file; fails when there are fewer than `least`. */
int fuzz_replay(int argc, char **argv, const char *corpus, const char *spice, size_t spice_size,
                int least);

#endif
