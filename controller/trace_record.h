/* trace_record.h - record a teacher-forced trace: the target emits a text by itself, and at every
 * index of it the draft model proposes K tokens of which is known how many would be accepted.
 *
 * Greedy: the draft model's own greedy chain; a draft is accepted where it equals the text.
 *
 * Ratio (T > 0): the text y is a sample of the target's law p. Each draft x ~ q is drawn *given* y
 * so that (x, y) has the joint law of a draft and of what the ratio rule makes of it: x = y with
 * probability min(1, q(y)/p(y)), else x from the excess of q over p. That is the ratio rule with
 * the parts of p and q exchanged, so the product's own verification draws it. Every policy that the
 * replay walks through the text then has the law that it would have live. After the first rejection
 * a chain goes on from q alone: the planner sees those features, nothing ever accepts them.
 *
 * Source: arXiv 2211.17192, theorem 1 (the coupling is its own mirror image).
 */
#ifndef CONTROLLER_TRACE_RECORD_H
#define CONTROLLER_TRACE_RECORD_H

#include <stdint.h>
#include <stdio.h>

#include "controller/pair.h"

struct trace_recorder;

struct trace_recorder_options {
    const struct pair
        *pair; /* opened for one sequence, with a draft model; outlives the recorder */
    int max_draft, max_tokens;
    double temperature; /* 0 = greedy */
    uint64_t seed;
};

/* NULL with *cause. */
struct trace_recorder *trace_recorder_new(const struct trace_recorder_options *options,
                                          char **cause);
void trace_recorder_free(struct trace_recorder *recorder); /* NULL-safe */
/* Record text number `text` of `prompt` (put into the model's chat template) as lines of the file,
 * its end included. Returns the text's length, or -1 with *cause: the file then ends in the middle
 * of a text. */
int trace_recorder_text(struct trace_recorder *recorder, FILE *file, int text, const char *prompt,
                        char **cause);

#endif
