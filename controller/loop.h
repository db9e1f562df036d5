/* loop.h - the step that trimtab exists for: admit, draft, plan, verify, observe, refit, publish.
 *
 * loop.c shows it whole; each verb is one call into one file (admit.c, draft.c, verify.c,
 * observe.c). One thread runs the loop and owns everything here but the queue and the tally, which
 * are thread-safe.
 */
#ifndef CONTROLLER_LOOP_H
#define CONTROLLER_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "controller/cost.h"
#include "controller/lm.h"
#include "controller/ngram.h"
#include "controller/planner.h"
#include "controller/queue.h"
#include "controller/slot.h"
#include "controller/snapshot.h"
#include "controller/strata.h"
#include "controller/tally.h"

#define LOOP_DRAFT_WINDOW                                                                          \
    512 /* positions a small draft model was trained for; it restarts when they are used up */
#define LOOP_CATCH_UP 64         /* tokens read when the draft model restarts on a request */
#define LOOP_PREFILL_BATCH 512   /* most prompt tokens of one step */
#define LOOP_FEATURE_CLAMP 16.0F /* design, algorithm 1 */

enum draft_choice { DRAFT_AUTO, DRAFT_MODEL, DRAFT_NGRAM, DRAFT_NONE };
const char *draft_choice_name(enum draft_choice choice);
bool draft_choice_parse(const char *name, enum draft_choice *choice);

struct loop_options {
    struct lm *target, *draft; /* draft may be NULL; both outlive the loop */
    struct cost_model *cost;   /* outlives the loop */
    int parallel, max_draft, prefill_chunk;
    enum draft_choice choice;
    struct planner_options planner;
    enum tt_estimator_kind estimator;
    int refit_interval_steps;           /* 0 = the kind's own */
    uint64_t (*fresh_key)(void *state); /* 64 random bits, for requests without a seed */
    void *fresh_state;
    /* Called by the loop's thread after a step in which stratum's estimator did something
     * (TT_STEP_* bits). */
    void (*refitted)(void *state, int stratum, int bits);
    /* Called after every step, `step_end` (record). */
    void (*stepped)(void *state, const struct slot *slot, int slots);
    void *state;
};

struct step { /* one target forward pass */
    uint64_t number;
    int decoding;                 /* requests that decode: rows of the plan */
    int finishing;                /* prefills that sample their first token */
    struct planner_request *plan; /* (parallel) */
    int *slot;                    /* (parallel) plan row -> slot */
    int *admitted, *accepted;     /* (parallel) by plan row */
    double begun_ms, draft_ms, verify_ms;
    bool failed;
};

struct loop {
    struct loop_options options;
    struct lm *target, *draft;
    struct lm_batch *target_batch, *draft_batch;
    tt *rows;          /* kernels for rows in host memory */
    tt *device_rows;   /* kernels for rows that the engine leaves on a device; NULL: all are read
                          from host memory */
    char *device_note; /* why so, where the engine has a device; or NULL */
    size_t vocab, draft_vocab;
    int parallel, max_draft, draft_window;
    int32_t *end_tokens;
    int end_count;
    struct planner *planner;
    struct cost_model *cost;
    struct strata *strata;
    struct ngram *ngram;
    struct queue *queue;
    struct slot *slot; /* (parallel) */
    enum mode mode;
    int fixed_draft; /* K in force in mode fixed; -1 otherwise */
    struct step step;
    struct tally tally;
    struct tt_row_stats *stats; /* (parallel or max_draft + 1) scratch of draft.c and verify.c */
    float *inverse_temperature; /* (parallel) scratch */
    double *probability;        /* (parallel) scratch */
    uint8_t *admit;             /* (parallel) scratch */
    float *raw; /* (max_draft + 1, vocab) scratch of verify.c: rows before their transforms */
    struct request_token *tokens; /* (max_draft + 1) scratch of verify.c: logprobs */
};

/* NULL with *cause when memory is out or the kernels cannot serve this machine. */
struct loop *loop_new(const struct loop_options *options, int queue_capacity, char **cause);
void loop_free(struct loop *loop); /* fails whatever is unfinished; NULL-safe */

/* One step. False when there was nothing to do. */
bool loop_step(struct loop *loop);
/* Before a step. Returns the uniform K of mode fixed, else -1. */
int loop_set_mode(struct loop *loop, enum mode mode);
/* New planner options, drafter choice and estimator; between steps. False when memory is out:
 * nothing changed. */
bool loop_set_policy(struct loop *loop, const struct planner_options *planner,
                     enum draft_choice choice, enum tt_estimator_kind estimator,
                     int refit_interval_steps);
/* Most tokens of prompt and output that one request may have. */
int loop_request_cells(const struct loop *loop);
/* Requests in slots. */
int loop_running(const struct loop *loop);
/* Row `row` of the model's last decode: on the device where it can be read there, unless `host`
 * says that the caller needs the copy in host memory. data is NULL if it was not wanted. */
struct logits loop_logits(const struct loop *loop, struct lm *lm, int row, bool host);

/* ---- the verbs, for loop.c only */
/* Bring waiting requests into free slots and give prefills their share of this step. False: nothing
 * to do. */
bool loop_admit(struct loop *loop);
/* Plan and draft depth by depth; admission is final at the draw. */
void loop_draft(struct loop *loop);
/* One target forward pass over last tokens, admitted drafts and prefill chunks; verdicts; emit. */
void loop_verify(struct loop *loop);
/* Labels to the estimators (which may refit), outcome to planner and cost model. */
void loop_observe(struct loop *loop);
/* Take a slot out of service: `finish` its request (error in words or NULL). */
void loop_release(struct loop *loop, struct slot *slot, enum request_finish finish,
                  const char *error);

#endif
