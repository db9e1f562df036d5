/* logprobs.h - log-probabilities of the target's own law (before any transform) for clients that
 * ask for them. */
#ifndef CONTROLLER_LOGPROBS_H
#define CONTROLLER_LOGPROBS_H

#include "controller/request.h"

/* The `count` most likely tokens of a row of logits (vocab) and log_norm = log sum exp(logits) over
 * it, most likely first, smaller ids first among equals. Fills entry->alternative and
 * ->alternatives; ->token is the caller's. */
void logprobs_top(const float *logits, size_t vocab, float log_norm, int count,
                  struct request_token *entry);

#endif
