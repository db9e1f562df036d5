/* node_echo.h - a real node without a model, for tests of the front: text from a tiny vocabulary,
 * at a chosen speed.
 *
 * Output token i of a request is word (sum of the prompt's ids + seed + 7 choice + 3 prompt index +
 * i) of a fixed list, ECHO_NATURAL_TOKENS of them unless max_tokens says less, one, two or three a
 * step. Tokens 0 .. 255 are bytes, so that any text tokenizes; node_echo_lm.c holds the vocabulary.
 */
#ifndef TESTS_NODE_ECHO_H
#define TESTS_NODE_ECHO_H

#include <stdbool.h>
#include <stdint.h>

#include "controller/node.h"
#include "controller/request.h"

enum {
    ECHO_WORDS = 64,
    ECHO_FIRST_WORD = 256,
    ECHO_END = 320,
    ECHO_VOCAB = 322,
    ECHO_NATURAL_TOKENS = 200,
    ECHO_CONTEXT = 4096,
    ECHO_PARALLEL = 64
};

struct lm;
extern const struct lm echo_lm;
const char *echo_word(int index); /* any index; wraps */

struct node *node_echo_new(const char *id); /* capabilities: all; closed with ops->close */

void node_echo_set_delay(struct node *node, int step_us); /* between steps; 0 = none */
void node_echo_hold(struct node *node, bool hold);        /* running requests make no progress */
void node_echo_set_full(struct node *node, bool full);    /* submit refuses */
void node_echo_set_health(struct node *node, const char *state);
void node_echo_fail_next(
    struct node *node,
    int after_tokens); /* the next request fails after so many tokens; -1 = none */
void node_echo_add_record(struct node *node, int64_t drafted);

struct node_echo_counts {
    int live, submitted, finished, cancelled;
};
void node_echo_get_counts(struct node *node, struct node_echo_counts *out);
/* Of the last submitted request: numbers only (no stop strings, no bias), the first stop string
 * separately. */
void node_echo_get_params(struct node *node, struct request_params *out, char *stop, size_t size);

#endif
