/* request_node.h - the node's side of a request (controller/request.h): what to generate, and where
 * its tokens go.
 *
 * Called by a node's own thread, one thread at a time for one request. A node takes a reference
 * when it accepts a request (request_ref) and drops it (request_unref) after request_finish.
 */
#ifndef CONTROLLER_REQUEST_NODE_H
#define CONTROLLER_REQUEST_NODE_H

#include "controller/request.h"

/* Unique in this process, from 1. */
uint64_t request_id(const struct request *request);
const struct request_params *request_params_of(const struct request *request);
/* (*count) token ids, owned by the request. */
const int32_t *request_prompt_of(const struct request *request, int *count);

/* True once the client went away or an operator cancelled: stop at the next step. Cheap; any
 * thread. */
bool request_is_cancelled(const struct request *request);

/* Hand over one step's worth: `length` bytes of valid UTF-8 that never split a character (may be
 * 0), `tokens` emitted tokens, and with logprobs `token_count` records whose offsets point into
 * `text` (else NULL, 0). Everything is copied. False when memory ran out: finish the request as
 * failed. After a cancellation it does nothing and returns true. */
bool request_push_piece(struct request *request, const char *text, size_t length, int tokens,
                        const struct request_token *token, int token_count);

/* The end, exactly one: later calls change nothing. `error` is copied and kept for REQUEST_FAILED
 * only. */
void request_finish(struct request *request, enum request_finish finish, const char *error);

/* What the request used so far; may be called again at any time, last before request_finish. */
void request_set_usage(struct request *request, const struct request_usage *usage);

/* An operator's cancellation (node_ops.cancel): the node sees request_is_cancelled and ends the
 * request as REQUEST_CANCELLED; the front is still notified, unlike after request_cancel. Any
 * thread. */
void request_ask_stop(struct request *request);

#endif
