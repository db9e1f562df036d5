/* fuzz_openai.c - the readers of request bodies against anything: whatever comes in, they either
 * refuse it with a well-formed 400 or hand out a task within its documented ranges, and leak
 * nothing.
 *
 * Alone it replays the corpus with deterministic damage (make check). With libFuzzer:
 *   clang -g -fsanitize=fuzzer,address,undefined -I. -Ibuild …
 * tests/controller/fuzz_openai.c controller/{openai_read,reply,buffer,request}.c -ljansson &&
 * ./a.out tests/controller/corpus/openai
 */
#include "config.h"

#include "controller/openai.h"
#include "tests/support/fuzz_replay.h"

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

const struct fuzz_corpus fuzz_corpus = {.folder = "controller/corpus/openai",
                                        FUZZ_SPICE("{}[]\",:\\0159eE.-ntfu\x00\xff\xc3\xed"),
                                        .least = 10};
