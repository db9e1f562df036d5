/* test_loop.c - the whole loop (admit, draft, plan, verify, observe) over the synthetic model: text
 * is the same whatever drafts, plans, loads and toggles do; counts add up; nothing leaks from one
 * request into the next.
 *
 * Compiled once more with TEST_PLACE as shim_loop: logits lie on a device, with the CUDA shim
 * behind the kernels, and every text is that of logits in host memory.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/inprocess.h"
#include "controller/request_node.h"
#include "tests/support/lm_synthetic.h"

#ifdef TEST_PLACE
#include "tests/kernels/shim/shim.h"
#else
#define TEST_PLACE ""
#define TEST_ON_HOST
#endif
#define HOST_TARGET "synthetic:target:0:0"
#define HOST_DRAFT "synthetic:draft:0:0"
#define TARGET HOST_TARGET TEST_PLACE
#define DRAFT HOST_DRAFT TEST_PLACE
#define BROKEN "synthetic:broken:0:0" TEST_PLACE

#define JOBS 10
#define TOKENS 60

static const char *const prompts[JOBS] = {
    "the quick brown fox",
    "a",
    "to be or not to be",
    "hello hello hello hello hello",
    "once upon a time there was",
    "the quick brown fox jumps",
    "numbers and letters",
    "zzz",
    "why",
    "a longer prompt that fills a few more cells",
};

static struct inprocess open_models(const char *target, const char *draft, int parallel,
                                    enum draft_choice choice)
{
    struct inprocess_options options = {
        .pair = {.target = target, .draft = draft, .parallel = parallel, .max_draft = 4},
        .profile = true,
        .choice = choice,
        .fixed_draft = 3, /* or the text of some rules would go by how busy the machine was */
    };
    struct inprocess process;
    char *cause = NULL;

    if (inprocess_open(&process, &options, &cause) != 0) fail_msg("%s", cause);
    return process;
}

static struct inprocess open_pair(const char *draft, int parallel, enum draft_choice choice)
{
    return open_models(TARGET, draft, parallel, choice);
}

static void fill(struct inprocess_job *jobs, float temperature)
{
    memset(jobs, 0, JOBS * sizeof *jobs);
    for (int i = 0; i < JOBS; i++)
        jobs[i] = (struct inprocess_job){.prompt = prompts[i],
                                         .temperature = temperature,
                                         .seeded = temperature > 0,
                                         .seed = (uint64_t)(100 + i),
                                         .max_tokens = TOKENS - i};
}

static void toggle(void *state, struct loop *loop, long steps)
{
    static const enum mode modes[] = {MODE_ADAPTIVE, MODE_FIXED, MODE_OFF, MODE_SHADOW};

    (void)state;
    if (steps % 7 == 0) loop_set_mode(loop, modes[steps / 7 % 4]);
}

static void run(struct inprocess *process, struct inprocess_job *jobs, int concurrency,
                void (*between)(void *, struct loop *, long))
{
    char *cause = NULL;

    if (inprocess_run(process, jobs, JOBS, concurrency, between, NULL, &cause) != 0)
        fail_msg("%s", cause);
}

static void expect_same(const struct inprocess_job *a, const struct inprocess_job *b,
                        const char *what)
{
    for (int i = 0; i < JOBS; i++) {
        if (a[i].finish != b[i].finish) fail_msg("%s: prompt %d ends otherwise", what, i);
        if (strcmp(a[i].text, b[i].text) != 0)
            fail_msg("%s: prompt %d\n  \"%s\"\n  \"%s\"", what, i, a[i].text, b[i].text);
    }
}

static void compare_modes(float temperature, const char *draft, enum draft_choice choice)
{
    static const enum mode modes[] = {MODE_OFF, MODE_FIXED, MODE_ADAPTIVE, MODE_SHADOW};
    struct inprocess_job plain[JOBS], other[JOBS];
    struct inprocess process = open_models(HOST_TARGET, NULL, 1, DRAFT_NONE);
    char what[80];

    loop_set_mode(process.loop, MODE_OFF);
    fill(plain, temperature);
    run(&process, plain, 1, NULL);
    inprocess_close(&process);
    for (int parallel = 1; parallel <= 8; parallel += 7) {
        for (int m = 0; m <= 4; m++) {
            process = open_pair(draft, parallel, choice);
            if (m < 4) loop_set_mode(process.loop, modes[m]);
            fill(other, temperature);
            run(&process, other, parallel, m < 4 ? NULL : toggle);
            snprintf(what, sizeof what, "T %.1f, %s, %d at once", (double)temperature,
                     m < 4 ? mode_name(modes[m]) : "toggled", parallel);
            expect_same(plain, other, what);
            inprocess_clear(other, JOBS);
            inprocess_close(&process);
        }
    }
    inprocess_clear(plain, JOBS);
}

static void greedy_text_is_the_same_everywhere(void **state)
{
    (void)state;
    compare_modes(0, DRAFT, DRAFT_AUTO);
}

static void seeded_text_is_the_same_everywhere(void **state)
{
    (void)state;
    compare_modes(0.7f, DRAFT, DRAFT_AUTO);
    compare_modes(1.0f, DRAFT, DRAFT_MODEL);
}

static void ngram_drafts_change_no_text(void **state)
{
    (void)state;
    compare_modes(0, NULL, DRAFT_NGRAM);
    compare_modes(1.0f, DRAFT, DRAFT_NGRAM);
}

static void counts_add_up(void **state)
{
    struct inprocess_job jobs[JOBS];
    struct inprocess process = open_pair(DRAFT, 4, DRAFT_AUTO);
    struct tally_counts counts;
    int64_t tokens = 0, by_position = 0;

    (void)state;
    loop_set_mode(process.loop, MODE_FIXED);
    fill(jobs, 1.0f);
    run(&process, jobs, 4, NULL);
    tally_copy(&process.loop->tally, &counts);
    for (int i = 0; i < JOBS; i++) tokens += jobs[i].tokens;
    for (int k = 0; k < TT_MAX_POSITIONS; k++) by_position += counts.position[k].accepted_any;
    assert_int_equal(counts.emitted, tokens);
    assert_int_equal(counts.requests, JOBS);
    assert_int_equal(counts.verified, counts.admitted);
    assert_true(counts.admitted <= counts.drafted);
    assert_true(counts.accepted > 0 && counts.accepted <= counts.verified);
    assert_int_equal(by_position, counts.accepted);
    /* Every emitted token is an accepted draft or one row's own token, but for blocks cut at an
     * end. */
    assert_true(counts.target_rows >=
                counts.prompt_tokens + counts.verified + (counts.emitted - counts.accepted) - JOBS);
    assert_int_equal(lm_synthetic_used(process.pair.draft) >= 0, 1);
    inprocess_clear(jobs, JOBS);
    inprocess_close(&process);
}

static void no_drafter_runs_without_drafts(void **state)
{
    struct inprocess_job jobs[JOBS];
    struct inprocess process = open_pair(DRAFT, 4, DRAFT_AUTO);
    long before = lm_synthetic_decodes(process.pair.draft);

    (void)state;
    loop_set_mode(process.loop, MODE_OFF);
    fill(jobs, 0);
    run(&process, jobs, 4, NULL);
    assert_int_equal(lm_synthetic_decodes(process.pair.draft), before);
    inprocess_clear(jobs, JOBS);
    loop_set_mode(process.loop,
                  MODE_FIXED); /* off -> on: the draft model takes up requests it never saw */
    fill(jobs, 0);
    run(&process, jobs, 4, NULL);
    assert_true(lm_synthetic_decodes(process.pair.draft) > before);
    inprocess_clear(jobs, JOBS);
    inprocess_close(&process);
}

/* ------------------------------------------------------------------------------------------ single
 * requests */

static void ignore(void *state)
{
    (void)state;
}

static struct request *submit(struct inprocess *process, const char *prompt,
                              struct request_params *params)
{
    int32_t *tokens;
    int count = lm_tokenize(process->pair.target, prompt, strlen(prompt), true, true, &tokens);
    struct request *request = request_new(params, tokens, count, ignore, NULL);

    assert_non_null(request);
    assert_true(queue_push(process->loop->queue, request));
    return request;
}

static enum request_finish finish_of(struct inprocess *process, struct request *request, char *text,
                                     size_t size, int *tokens)
{
    enum request_finish finish;
    const char *error;

    text[0] = '\0';
    *tokens = 0;
    do {
        struct request_piece *list;

        loop_step(process->loop);
        list = request_take(request);
        for (struct request_piece *piece = list; piece; piece = piece->next) {
            snprintf(text + strlen(text), size - strlen(text), "%s", piece->text);
            *tokens += piece->tokens;
            if (piece->token) {
                assert_int_equal(piece->token_count, piece->tokens);
                for (int i = 0; i < piece->token_count; i++) {
                    assert_true(piece->token[i].logprob <= 0);
                    assert_int_equal(piece->token[i].alternatives, 3);
                    assert_true(piece->token[i].alternative[0].logprob >= piece->token[i].logprob);
                }
            }
        }
        request_piece_free(list);
    } while (!request_ended(request, &finish, &error));
    return finish;
}

static void stop_strings_cut_the_text(void **state)
{
    struct inprocess process = open_pair(DRAFT, 2, DRAFT_AUTO);
    struct request_params params;
    struct request *request;
    char whole[200], cut[200], stop[4];
    int tokens;

    (void)state;
    loop_set_mode(process.loop, MODE_FIXED);
    request_params_default(&params);
    params.temperature = 0;
    params.max_tokens = 20;
    request = submit(&process, "stop test", &params);
    finish_of(&process, request, whole, sizeof whole, &tokens);
    request_unref(request);
    assert_true(strlen(whole) > 10);
    snprintf(stop, sizeof stop, "%.3s", whole + 5);
    request_params_default(&params);
    params.temperature = 0;
    params.max_tokens = 20;
    params.stop[0] = strdup(stop);
    params.stop_count = 1;
    request = submit(&process, "stop test", &params);
    assert_int_equal(finish_of(&process, request, cut, sizeof cut, &tokens), REQUEST_STOP);
    assert_int_equal(strlen(cut), strstr(whole, stop) - whole);
    assert_memory_equal(cut, whole, strlen(cut));
    request_unref(request);
    inprocess_close(&process);
}

static void limits_and_logprobs_hold(void **state)
{
    struct inprocess process = open_pair(DRAFT, 2, DRAFT_AUTO);
    char text[900];
    int tokens;

    (void)state;
    loop_set_mode(process.loop, MODE_FIXED);
    for (int most = 1; most <= 12; most++) {
        struct request_params params;
        struct request *request;

        request_params_default(&params);
        params.max_tokens = most;
        params.min_tokens = most;
        params.logprobs = 3;
        params.temperature = most % 2 ? 0 : 1;
        params.top_k = most % 3 ? 0 : 20;
        params.presence_penalty = most % 4 ? 0 : 0.5f;
        request = submit(&process, "limits", &params);
        assert_int_equal(finish_of(&process, request, text, sizeof text, &tokens), REQUEST_LENGTH);
        assert_int_equal(tokens, most);
        request_unref(request);
    }
    inprocess_close(&process);
}

static void a_cancelled_request_frees_its_slot(void **state)
{
    struct inprocess process = open_pair(DRAFT, 1, DRAFT_AUTO);
    struct request_params params;
    struct request *first, *second;
    char text[200];
    int tokens;

    (void)state;
    loop_set_mode(process.loop, MODE_ADAPTIVE);
    request_params_default(&params);
    params.ignore_eos = true;
    params.max_tokens = 500;
    first = submit(&process, "first", &params);
    request_params_default(&params);
    params.max_tokens = 5;
    params.min_tokens = 5;
    second = submit(&process, "second", &params);
    for (int i = 0; i < 10; i++) loop_step(process.loop);
    assert_int_equal(queue_length(process.loop->queue), 1);
    request_cancel(first);
    request_unref(first);
    assert_int_equal(finish_of(&process, second, text, sizeof text, &tokens), REQUEST_LENGTH);
    request_unref(second);
    assert_false(loop_step(process.loop));
    assert_int_equal(loop_running(process.loop), 0);
    inprocess_close(&process);
}

static void logits_that_are_no_numbers_fail_one_request(void **state)
{
    struct inprocess_options options = {
        .pair = {.target = BROKEN, .draft = DRAFT, .parallel = 2, .max_draft = 4},
        .profile = true,
        .fixed_draft = 3};
    struct inprocess process;
    struct request_params params;
    struct request *good, *bad;
    enum request_finish finish;
    const char *error;
    char text[200], *cause = NULL;
    int tokens;

    (void)state;
    assert_int_equal(inprocess_open(&process, &options, &cause), 0);
    loop_set_mode(process.loop, MODE_FIXED);
    request_params_default(&params);
    params.temperature = 0;
    params.max_tokens = 10;
    bad = submit(&process, "broken!!", &params);
    request_params_default(&params);
    params.temperature = 0;
    params.max_tokens = 10;
    params.min_tokens = 10;
    good = submit(&process, "whole", &params);
    assert_int_equal(finish_of(&process, good, text, sizeof text, &tokens), REQUEST_LENGTH);
    assert_true(request_ended(bad, &finish, &error));
    assert_int_equal(finish, REQUEST_FAILED);
    assert_non_null(strstr(error, "not numbers"));
    request_unref(bad);
    request_unref(good);
    inprocess_close(&process);
}

#ifndef TEST_ON_HOST
/* ------------------------------------------------------------------------------------------ logits
 * on a device */

static const struct law {
    const char *name;
    float temperature, top_p, presence_penalty;
    int top_k, logprobs;
    enum tt_rule rule;
    bool host_target, host_draft; /* rows that host work needs, so that the CPU reads them */
} laws[] = {
    {"greedy", 0, 1, 0, 0, -1, TT_GREEDY, false, false},
    {"greedy with a penalty", 0, 1, 0.7F, 0, -1, TT_GREEDY, false, false},
    {"greedy with log probabilities", 0, 1, 0, 0, 3, TT_GREEDY, true, false},
    {"point mass", 0.9F, 1, 0, 0, -1, TT_POINT_MASS, false, false},
    {"point mass with top-k", 0.9F, 1, 0, 6, -1, TT_POINT_MASS, false, false},
    {"ratio", 1, 1, 0, 0, -1, TT_RATIO, true, true},
    {"ratio with top-p and a penalty", 0.8F, 0.9F, 0.4F, 0, -1, TT_RATIO, true, true},
    {"coupled", 0.8F, 1, 0, 0, -1, TT_COUPLED, false, false},
    {"coupled with top-k and top-p", 0.8F, 0.9F, 0, 12, -1, TT_COUPLED, false, true},
};

static struct request *submit_law(struct inprocess *process, const struct law *law)
{
    struct request_params params;

    request_params_default(&params);
    params.temperature = law->temperature;
    params.top_p = law->top_p;
    params.top_k = law->top_k;
    params.presence_penalty = law->presence_penalty;
    params.logprobs = law->logprobs;
    params.seeded = params.rule_given = true;
    params.seed = 7;
    params.rule = law->rule;
    params.max_tokens = params.min_tokens = TOKENS;
    return submit(process, "why", &params);
}

static void generate(struct inprocess *process, const struct law *law, char *text, size_t size)
{
    struct request *request = submit_law(process, law);
    int tokens;

    assert_int_equal(finish_of(process, request, text, size, &tokens), REQUEST_LENGTH);
    request_unref(request);
}

static struct synthetic_reads reads_since(const struct lm *lm, struct synthetic_reads before)
{
    struct synthetic_reads now = lm_synthetic_reads(lm);

    return (struct synthetic_reads){now.host - before.host, now.device - before.device};
}

/* The same text from either place, and rows are read on the device unless host work needs them. */
static void every_law_is_the_same_on_a_device(void **state)
{
    struct inprocess host = open_models(HOST_TARGET, HOST_DRAFT, 1, DRAFT_MODEL);
    struct inprocess device = open_models(TARGET, DRAFT, 1, DRAFT_MODEL);

    (void)state;
    loop_set_mode(host.loop, MODE_FIXED);
    loop_set_mode(device.loop, MODE_FIXED);
    assert_null(device.loop->device_note);
    for (size_t i = 0; i < sizeof laws / sizeof laws[0]; i++) {
        struct synthetic_reads target = lm_synthetic_reads(device.pair.target);
        struct synthetic_reads draft = lm_synthetic_reads(device.pair.draft);
        char expected[400], text[400];

        generate(&host, &laws[i], expected, sizeof expected);
        generate(&device, &laws[i], text, sizeof text);
        if (strcmp(text, expected) != 0)
            fail_msg("%s:\n  \"%s\"\n  \"%s\"", laws[i].name, expected, text);
        target = reads_since(device.pair.target, target);
        draft = reads_since(device.pair.draft, draft);
        if ((target.host > 0) != laws[i].host_target || (draft.host > 0) != laws[i].host_draft)
            fail_msg("%s: %ld target and %ld draft rows read by the host", laws[i].name,
                     target.host, draft.host);
        if (draft.device == 0 || (!laws[i].host_target && target.device == 0))
            fail_msg("%s: no rows read on the device", laws[i].name);
    }
    inprocess_close(&host);
    inprocess_close(&device);
}

static void expect_the_cpu(struct inprocess *process, const char *why)
{
    char expected[400], text[400];
    struct inprocess host = open_models(HOST_TARGET, HOST_DRAFT, 1, DRAFT_MODEL);

    assert_null(process->loop->device_rows);
    assert_non_null(process->loop->device_note);
    if (!strstr(process->loop->device_note, why)) fail_msg("%s", process->loop->device_note);
    loop_set_mode(host.loop, MODE_FIXED);
    loop_set_mode(process->loop, MODE_FIXED);
    generate(&host, &laws[0], expected, sizeof expected);
    generate(process, &laws[0], text, sizeof text);
    assert_string_equal(text, expected);
    assert_int_equal(lm_synthetic_reads(process->pair.target).device, 0);
    inprocess_close(&host);
    inprocess_close(process);
}

/* Kernels that cannot use the engine's device say why, and the CPU does the work. */
static void a_device_that_kernels_cannot_use_leaves_the_cpu(void **state)
{
    struct inprocess process;

    (void)state;
    shim_set_devices(1, 70);
    process = open_models(TARGET, DRAFT, 1, DRAFT_MODEL);
    shim_set_devices(1, 90);
    expect_the_cpu(&process, "cuda:0");
    process = open_models(TARGET, HOST_DRAFT ":device1", 1, DRAFT_MODEL);
    expect_the_cpu(&process, "the draft's on cuda:1");
}

/* A device that fails at any call of its runtime: the text is right, or its request ends with the
 * device's words. */
static void a_failing_device_changes_no_text(void **state)
{
    struct inprocess process = open_models(HOST_TARGET, HOST_DRAFT, 1, DRAFT_MODEL);
    const struct law *law = &laws[4];
    char expected[400], text[400];
    int failed = 0, tokens;

    (void)state;
    loop_set_mode(process.loop, MODE_FIXED);
    generate(&process, law, expected, sizeof expected);
    inprocess_close(&process);
    for (unsigned call = 1; call < 120; call += 7) {
        struct request *request;
        enum request_finish finish;
        const char *error = NULL;

        process = open_models(TARGET, DRAFT, 1, DRAFT_MODEL);
        loop_set_mode(process.loop, MODE_FIXED);
        request = submit_law(&process, law);
        shim_fail(call);
        finish = finish_of(&process, request, text, sizeof text, &tokens);
        assert_int_equal(shim_fail(0), 0);
        assert_memory_equal(text, expected, strlen(text));
        assert_true(request_ended(request, &finish, &error));
        failed += finish == REQUEST_FAILED;
        if (finish == REQUEST_FAILED && !strstr(error, "cuda")) fail_msg("%u: %s", call, error);
        if (finish != REQUEST_FAILED) assert_string_equal(text, expected);
        request_unref(request);
        inprocess_close(&process);
    }
    assert_true(failed > 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_text_is_the_same_everywhere),
        cmocka_unit_test(seeded_text_is_the_same_everywhere),
        cmocka_unit_test(ngram_drafts_change_no_text),
        cmocka_unit_test(counts_add_up),
        cmocka_unit_test(no_drafter_runs_without_drafts),
        cmocka_unit_test(stop_strings_cut_the_text),
        cmocka_unit_test(limits_and_logprobs_hold),
        cmocka_unit_test(a_cancelled_request_frees_its_slot),
        cmocka_unit_test(logits_that_are_no_numbers_fail_one_request),
#ifndef TEST_ON_HOST
        cmocka_unit_test(every_law_is_the_same_on_a_device),
        cmocka_unit_test(a_device_that_kernels_cannot_use_leaves_the_cpu),
        cmocka_unit_test(a_failing_device_changes_no_text),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
