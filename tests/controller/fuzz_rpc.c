/* fuzz_rpc.c - the readers of a vLLM engine's answers against anything: whatever comes in, they
 * either refuse it with a sentence or hand out figures within their documented ranges, and leak
 * nothing.
 *
 * Alone it replays the corpus with deterministic damage (make check). With libFuzzer:
 *   clang -g -fsanitize=fuzzer,address,undefined -I. -Ibuild …
 * tests/controller/fuzz_rpc.c controller/{vllm_reply,cause,snapshot}.c -ljansson -lm &&
 * ./a.out tests/controller/corpus/rpc
 */
#include "config.h"

#include <math.h>

#include "controller/vllm_reply.h"
#include "tests/support/fuzz_replay.h"

#define NONCE "n-1" /* of every answer in the corpus that is meant to be read */

static void require_printable(const char *text)
{
    for (; *text; text++) REQUIRE((unsigned char)*text >= ' ' && *text != 0x7f);
}

static void require_coefficients(const struct vllm_coefficients *coefficients)
{
    REQUIRE(coefficients->positions >= 0 && coefficients->positions <= SNAPSHOT_MAX_POSITIONS);
    if (coefficients->positions == 0) return;
    REQUIRE(isfinite(coefficients->slope));
    for (int k = 0; k < coefficients->positions; k++) REQUIRE(isfinite(coefficients->intercept[k]));
    REQUIRE(vllm_coefficients_equal(coefficients, coefficients));
}

static void require_rows(const struct vllm_reply *reply)
{
    for (size_t i = 0; i < json_array_size(reply->rows); i++) {
        struct vllm_row row;

        if (!vllm_reply_row(reply, i, &row)) continue;
        REQUIRE(row.step >= 0 && row.admitted >= 1 && row.admitted <= SNAPSHOT_MAX_POSITIONS);
        REQUIRE(row.accepted >= 0 && row.accepted <= row.admitted);
    }
}

static void require_reply(const struct vllm_reply *reply)
{
    REQUIRE(reply->ranks >= 1 && reply->ranks <= VLLM_RANKS_MAX && reply->document);
    REQUIRE(!reply->mode_known || (reply->mode >= MODE_OFF && reply->mode <= MODE_SHADOW));
    REQUIRE(reply->generation >= -1 && reply->steps >= -1 && reply->scheduled >= -1);
    REQUIRE(reply->admitted >= -1 && reply->faults >= -1 && reply->refits >= -1);
    REQUIRE(reply->label_steps >= -1 && reply->labels_dropped >= -1);
    require_printable(reply->error);
    require_printable(reply->disagree);
    require_printable(reply->runner);
    require_printable(reply->missing);
    require_coefficients(&reply->coefficients);
    require_rows(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vllm_reply reply;
    struct vllm_info info;
    char *cause = NULL;

    if (vllm_reply_read((const char *)data, size, NONCE, &reply, &cause) == 0)
        require_reply(&reply);
    else
        REQUIRE(cause && *cause);
    vllm_reply_clear(&reply);
    free(cause);
    cause = NULL;
    if (vllm_info_read((const char *)data, size, &info, &cause) == 0) {
        REQUIRE(info.engines >= 1);
        require_printable(info.extension);
        require_printable(info.method);
    } else {
        REQUIRE(cause && *cause);
    }
    free(cause);
    return 0;
}

const struct fuzz_corpus fuzz_corpus = {
    .folder = "controller/corpus/rpc",
    FUZZ_SPICE("{}[]\",:\\0159eE.-nulltruefalse\x00\xff\xc3\xed"),
    .least = 19};
