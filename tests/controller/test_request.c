/* test_request.c - the pipe between a node's thread and the front: order, ends, usage, and
 * cancelling while the other side works.
 */
#include "config.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "controller/request_node.h"

static void count_notify(void *state)
{
    atomic_fetch_add((atomic_int *)state, 1);
}

static struct request *make(atomic_int *notified)
{
    struct request_params params;
    int32_t *prompt = malloc(3 * sizeof *prompt);

    request_params_default(&params);
    params.stop[0] = strdup("END");
    params.stop_count = 1;
    params.bias = calloc(1, sizeof *params.bias);
    params.bias_count = 1;
    for (int i = 0; i < 3; i++) prompt[i] = 10 + i;
    return request_new(&params, prompt, 3, notified ? count_notify : NULL, notified);
}

static void test_defaults(void **state)
{
    struct request_params p;

    (void)state;
    request_params_default(&p);
    assert_true(p.temperature == 1 && p.top_p == 1 && p.min_p == 0 && p.repetition_penalty == 1);
    assert_int_equal(p.logprobs, -1);
    assert_int_equal(p.max_tokens + p.min_tokens + p.top_k + p.stop_count, 0);
    assert_false(p.seeded || p.rule_given || p.ignore_eos);
}

static void test_pieces_come_in_order(void **state)
{
    struct request_token token = {.token = 5, .logprob = -1, .alternatives = 1, .text_length = 2};
    struct request_usage usage = {.prompt_tokens = 3, .completion_tokens = 2, .cached_tokens = 1},
                         got;
    enum request_finish finish;
    const char *error;
    atomic_int notified = 0;
    struct request *request = make(&notified);
    int count;

    (void)state;
    assert_int_equal(request_prompt_of(request, &count)[2], 12);
    assert_int_equal(count, 3);
    assert_string_equal(request_params_of(request)->stop[0], "END");
    assert_null(request_take(request));
    assert_false(request_ended(request, &finish, &error));
    token.alternative[0].token = 77;
    assert_true(request_push_piece(request, "ab", 2, 1, &token, 1));
    assert_true(request_push_piece(request, "", 0, 1, NULL, 0));
    assert_true(request_push_piece(request, "\xC3\xA9", 2, 1, NULL, 0));
    struct request_piece *list = request_take(request);
    assert_string_equal(list->text, "ab");
    assert_int_equal(list->token[0].alternative[0].token, 77);
    assert_int_equal(list->next->length, 0);
    assert_null(list->next->token);
    assert_string_equal(list->next->next->text, "\xC3\xA9");
    assert_null(list->next->next->next);
    request_piece_free(list);
    assert_null(request_take(request));
    request_set_usage(request, &usage);
    request_finish(request, REQUEST_LENGTH, "ignored");
    request_finish(request, REQUEST_FAILED, "too late");
    assert_true(request_ended(request, &finish, &error));
    assert_int_equal(finish, REQUEST_LENGTH);
    assert_null(error);
    request_get_usage(request, &got);
    assert_memory_equal(&got, &usage, sizeof got);
    assert_int_equal(atomic_load(&notified), 4);
    request_unref(request);
}

static void test_failure_keeps_its_words(void **state)
{
    enum request_finish finish;
    const char *error;
    char words[] = "no finite logits";
    struct request *request = make(NULL);

    (void)state;
    request_finish(request, REQUEST_FAILED, words);
    words[0] = 'X';
    assert_true(request_ended(request, &finish, &error));
    assert_string_equal(error, "no finite logits");
    request_unref(request);
    request = make(NULL);
    request_finish(request, REQUEST_FAILED, NULL);
    assert_true(request_ended(request, &finish, &error));
    assert_non_null(error);
    request_unref(request);
    request_unref(NULL);
}

static void test_ids_differ(void **state)
{
    struct request *a = make(NULL), *b = make(NULL);

    (void)state;
    assert_true(request_id(a) > 0);
    assert_true(request_id(b) > request_id(a));
    request_unref(a);
    request_unref(b);
}

static void test_operators_stop_still_notifies(void **state)
{
    atomic_int notified = 0;
    struct request *request = make(&notified);

    (void)state;
    assert_false(request_is_cancelled(request));
    request_ask_stop(request);
    assert_true(request_is_cancelled(request));
    request_push_piece(request, "x", 1, 1, NULL, 0);
    request_finish(request, REQUEST_CANCELLED, NULL);
    assert_int_equal(atomic_load(&notified), 2);
    struct request_piece *list = request_take(request);
    assert_non_null(list);
    request_piece_free(list);
    request_unref(request);
}

/* --------------------------------------------------------------------------------- two threads */

enum { PIECES = 20000, ROUNDS = 2000 };

static void *produce(void *state)
{
    struct request *request = state;
    char text[16];

    for (int i = 0; i < PIECES; i++) {
        int length = snprintf(text, sizeof text, "%d,", i);
        if (!request_push_piece(request, text, (size_t)length, 1, NULL, 0)) abort();
    }
    request_finish(request, REQUEST_STOP, NULL);
    request_unref(request);
    return NULL;
}

static void test_nothing_is_lost_between_threads(void **state)
{
    enum request_finish finish;
    const char *error;
    atomic_int notified = 0;
    struct request *request = make(&notified);
    pthread_t thread;
    int next = 0;
    bool ended = false;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, produce, request_ref(request)), 0);
    while (!ended) {
        ended =
            request_ended(request, &finish, &error); /* before taking: then nothing comes after */
        struct request_piece *list = request_take(request);
        for (struct request_piece *piece = list; piece; piece = piece->next)
            assert_int_equal(atoi(piece->text), next++);
        request_piece_free(list);
    }
    assert_int_equal(next, PIECES);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&notified), PIECES + 1);
    request_unref(request);
}

struct watched { /* what notify touches; freed right after request_cancel, as a front does */
    int *alive;
};

static void touch(void *state)
{
    struct watched *watched = state;

    ++*watched->alive; /* memory checkers see a notify after the free */
}

static void *push_until_cancelled(void *state)
{
    struct request *request = state;

    while (!request_is_cancelled(request)) request_push_piece(request, "x", 1, 1, NULL, 0);
    for (int i = 0; i < 3; i++) request_push_piece(request, "late", 4, 1, NULL, 0);
    request_finish(request, REQUEST_CANCELLED, NULL);
    request_unref(request);
    return NULL;
}

static void test_no_notify_after_cancel(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct watched *watched = malloc(sizeof *watched);
        struct request_params params;
        pthread_t thread;

        watched->alive = calloc(1, sizeof *watched->alive);
        request_params_default(&params);
        struct request *request = request_new(&params, NULL, 0, touch, watched);
        assert_int_equal(pthread_create(&thread, NULL, push_until_cancelled, request_ref(request)),
                         0);
        if (round % 2) request_piece_free(request_take(request));
        request_cancel(request);
        free(watched->alive);
        memset(watched, 0xEE,
               sizeof *watched); /* a late notify would crash even without a checker */
        free(watched);
        request_unref(request);
        pthread_join(thread, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_pieces_come_in_order),
        cmocka_unit_test(test_failure_keeps_its_words),
        cmocka_unit_test(test_ids_differ),
        cmocka_unit_test(test_operators_stop_still_notifies),
        cmocka_unit_test(test_nothing_is_lost_between_threads),
        cmocka_unit_test(test_no_notify_after_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
