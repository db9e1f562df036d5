/* fuzz_openai.c - the readers of request bodies against anything: whatever comes in, they either
 * refuse it with a well-formed 400 or hand out a task within its documented ranges, and leak
 * nothing.
 *
 * Alone it replays the corpus with deterministic damage (make check). With libFuzzer:
 *   clang -g -fsanitize=fuzzer,address,undefined -DFUZZER -I. -Ibuild …
 * tests/controller/fuzz_openai.c controller/{openai_read,reply,buffer,request}.c -ljansson &&
 * ./a.out tests/controller/corpus/openai
 */
#include "config.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/openai.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(CONDITION)                                                                         \
    do {                                                                                           \
        if (!(CONDITION)) {                                                                        \
            fprintf(stderr, "# %s:%d: %s\n", __FILE__, __LINE__, #CONDITION);                      \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void require_error(const struct reply *error)
{
    json_t *body = json_loadb(error->body.data, error->body.length, 0, NULL),
           *object = json_object_get(body, "error");

    REQUIRE(error->status == 400);
    REQUIRE(json_is_string(json_object_get(object, "message")));
    REQUIRE(json_is_string(json_object_get(object, "type")));
    REQUIRE(json_object_get(object, "param") && json_is_string(json_object_get(object, "code")));
    json_decref(body);
}

static void require_task(const struct openai_task *task)
{
    const struct request_params *p = &task->params;
    struct request_params copy;

    REQUIRE(p->temperature >= 0 && p->temperature <= 2 && p->top_p >= 0 && p->top_p <= 1);
    REQUIRE(p->min_p >= 0 && p->min_p <= 1 && p->top_k >= -1);
    REQUIRE(p->max_tokens >= (task->chat ? 0 : 1) && p->min_tokens >= 0);
    REQUIRE(p->logprobs >= -1 && p->logprobs <= REQUEST_MAX_LOGPROBS);
    REQUIRE(p->stop_count >= 0 && p->stop_count <= REQUEST_MAX_STOPS);
    REQUIRE(task->n >= 1 && task->n <= OPENAI_MAX_CHOICES);
    REQUIRE(task->chat ? task->message_count > 0 : task->prompt_count > 0);
    REQUIRE(task->prompt_count * task->n <= OPENAI_MAX_CHOICES);
    for (size_t i = 0; i < task->message_count; i++)
        REQUIRE(task->message[i].role && task->message[i].content);
    for (int i = 0; i < task->prompt_count; i++)
        REQUIRE(task->prompt[i].text || task->prompt[i].count > 0);
    REQUIRE(openai_copy_params(task, 0, 0, &copy));
    REQUIRE(copy.stop_count == p->stop_count && copy.bias_count == p->bias_count);
    openai_clear_params(&copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int chat = 0; chat < 2; chat++) {
        struct openai_task task;
        struct reply error = {0};
        if (openai_read((const char *)data, size, chat, &task, &error) == 0)
            require_task(&task);
        else
            require_error(&error);
        openai_task_clear(&task);
        reply_free(&error);
    }
    return 0;
}

#ifndef FUZZER

enum { SIZE_MAX_BYTES = 1 << 16, DAMAGES = 300 };

static uint32_t random_next(uint32_t *state) /* xorshift32, Marsaglia 2003 */
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

/* The file as it is, cut at every length, and with bytes exchanged, doubled and dropped. */
static void replay(const uint8_t *data, size_t size)
{
    static const char spice[] = "{}[]\",:\\0159eE.-ntfu\x00\xff\xc3\xed";
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
                damaged[at] = (uint8_t)spice[random_next(&random) % (sizeof spice - 1)];
        }
        LLVMFuzzerTestOneInput(damaged, length);
    }
    free(damaged);
}

int main(int argc, char **argv)
{
    const char *source = getenv("SRC");
    static uint8_t data[SIZE_MAX_BYTES];
    char path[4096];
    struct dirent **entries;
    int number = 0;

    snprintf(path, sizeof path, "%s/tests/controller/corpus/openai", source ? source : ".");
    const char *folder = argc > 1 ? argv[1] : path;
    char *root = strdup(folder);
    int count = scandir(root, &entries, NULL, alphasort);
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
    free(root);
    if (number == 0) printf("not ok %d - the corpus is there\n", ++number);
    printf("1..%d\n", number);
    return number < 10;
}

#endif
