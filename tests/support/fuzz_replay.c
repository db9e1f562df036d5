/* fuzz_replay.c - see fuzz_replay.h. */
#include "config.h"

#include <dirent.h>
#include <string.h>

#include "tests/support/fuzz_replay.h"

enum { SIZE_MAX_BYTES = 1 << 17, DAMAGES = 300 };

static uint32_t random_next(uint32_t *state) /* xorshift32, Marsaglia 2003 */
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

/* The file as it is, cut at every length, and with bytes exchanged, doubled and dropped. */
static void replay(const uint8_t *data, size_t size)
{
    uint8_t *damaged = malloc(size + 2);
    uint32_t random = 2463534242u + (uint32_t)size;

    LLVMFuzzerTestOneInput(data, size);
    for (size_t length = 0; length < size; length += size / 100 + 1)
        LLVMFuzzerTestOneInput(data, length);
    for (int i = 0; i < DAMAGES && size > 0; i++) {
        size_t length = size;
        memcpy(damaged, data, size);
        for (uint32_t k = random_next(&random) % 3 + 1; k > 0 && length > 0; k--) {
            size_t at = random_next(&random) % length;
            if (random_next(&random) % 4 == 0) /* drop one */
                memmove(damaged + at, damaged + at + 1, --length - at);
            else
                damaged[at] =
                    (uint8_t)fuzz_corpus.spice[random_next(&random) % fuzz_corpus.spice_size];
        }
        LLVMFuzzerTestOneInput(damaged, length);
    }
    free(damaged);
}

/* The corpus is argv[1], else that of the sources ($SRC). One TAP line a file. */
int main(int argc, char **argv)
{
    const char *source = getenv("SRC");
    static uint8_t data[SIZE_MAX_BYTES];
    char path[4096], root[2048];
    struct dirent **entries;
    int number = 0, count;

    if (fuzz_corpus.before) fuzz_corpus.before();
    if (argc > 1)
        snprintf(root, sizeof root, "%s", argv[1]);
    else
        snprintf(root, sizeof root, "%s/tests/%s", source ? source : ".", fuzz_corpus.folder);
    count = scandir(root, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", root, entries[i]->d_name);
        FILE *file = entries[i]->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (file) {
            size_t size = fread(data, 1, sizeof data, file);
            fclose(file);
            replay(data, size);
            printf("ok %d - %s\n", ++number, entries[i]->d_name);
        }
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    if (number < fuzz_corpus.least) {
        number++;
        printf("not ok %d - the corpus has %d files or more\n", number, fuzz_corpus.least);
        printf("1..%d\n", number);
        return 1;
    }
    printf("1..%d\n", number);
    return 0;
}
