/* replay_streams.h - inside of the replay: its streams and clock, shared by replay.c (streams, the
 * planner's policy) and replay_policies.c (parity, oracle). Nothing else includes it.
 */
#ifndef CONTROLLER_REPLAY_STREAMS_H
#define CONTROLLER_REPLAY_STREAMS_H

#include "controller/replay.h"

struct stream {
    int text, index;
    int behind;   /* tokens that the draft model has not read */
    bool drafted; /* in this step */
    bool fresh;   /* began a text since the last step */
    int stratum, drafts, admitted, accepted;
    float predicted[TT_MAX_POSITIONS];
};

struct parity_policy; /* replay_policies.c */

struct replay {
    struct replay_options options;
    int depth; /* drafts a block may have */
    struct planner *planner;
    struct strata *strata;
    struct stream *stream;        /* (concurrency) */
    struct planner_request *plan; /* (concurrency) */
    int *admitted, *accepted;     /* (concurrency) */
    double *probability;          /* (concurrency) */
    uint8_t *admit;               /* (concurrency) */
    int *rows;                    /* (concurrency) scratch of the oracle */
    struct parity_policy *parity;
    struct tally tally;
    struct replay_counts counts; /* without its tally */
    uint64_t number, measurements;
};

struct step_times {
    double draft_ms, verify_ms, own_ms;
};

static inline const struct trace_text *stream_text(const struct replay *replay,
                                                   const struct stream *stream)
{
    return &replay->options.traces->text[stream->text];
}

static inline struct trace_index stream_at(const struct replay *replay, const struct stream *stream)
{
    return trace_at(replay->options.traces, stream_text(replay, stream), stream->index);
}

/* Drafts that a block may have here: the text's end and the trace bound it. */
int replay_cap(const struct replay *replay, const struct stream *stream);
/* The draft forward of one depth for `live` streams (rows NULL: the first ones): its time. */
double replay_forward(struct replay *replay, int depth, const int *rows, int live);
/* Streams have admitted: accept, count, learn, advance; the target's forward pass into *times. */
void replay_verify(struct replay *replay, struct step_times *times);

/* ---- replay_policies.c */
struct parity_policy *parity_policy_new(const struct replay *replay);
void parity_policy_free(struct parity_policy *parity); /* NULL-safe */
/* Admit by what was published before; afterwards, on the streams that have advanced, draft. */
void parity_policy_admit(struct replay *replay);
double parity_policy_draft(struct replay *replay);
double oracle_admit(struct replay *replay); /* drafting ms */

#endif
