/* inprocess.h - a model pair and its loop in this thread, without daemon or HTTP: for benchmarks
 * and end-to-end tests. */
#ifndef CONTROLLER_INPROCESS_H
#define CONTROLLER_INPROCESS_H

#include <stdbool.h>

#include "controller/loop.h"
#include "controller/pair.h"

struct inprocess {
    struct pair pair;
    struct cost_model *cost;
    struct loop *loop;
    struct inprocess_run *run; /* what is under way; NULL = nothing */
};

struct inprocess_options {
    struct pair_options pair;
    bool profile; /* measure costs first, else a flat guess learns online */
    enum draft_choice choice;
    int fixed_draft; /* K of mode fixed; 0 = the best of the costs, which go by the machine */
};

/* 0, or -1 with *cause; then inprocess_close is harmless. */
int inprocess_open(struct inprocess *process, const struct inprocess_options *options,
                   char **cause);
void inprocess_close(struct inprocess *process);

/* A second loop, with contexts, cost model and estimators of its own, over the models of `owner`,
 * which outlives it. Both may have requests, and take turns step by step. */
int inprocess_share(struct inprocess *process, const struct inprocess *owner,
                    const struct inprocess_options *options, char **cause);
/* Let go of every text that the contexts hold, so that the next run reads all of its prompts. No
 * request may run. */
void inprocess_forget(struct inprocess *process);

struct inprocess_job {
    const char *prompt; /* raw text; special tokens are parsed */
    float temperature;
    bool seeded, ignore_eos;
    uint64_t seed;
    int max_tokens;
    /* results, freed by inprocess_clear */
    char *text;
    int tokens;
    double first_ms; /* submit to first token */
    enum request_finish finish;
};

/* Run all jobs, at most `concurrency` at a time, in order. between(state, steps), if given, is
 * called between steps (to toggle modes). Returns 0, or -1 with *cause when a job failed. */
int inprocess_run(struct inprocess *process, struct inprocess_job *jobs, int count, int concurrency,
                  void (*between)(void *state, struct loop *loop, long steps), void *state,
                  char **cause);

/* The same in parts, so that several loops can take turns on one thread. Jobs stay the caller's and
 * outlive the run. Begin: 0, or -1 with *cause and nothing begun. */
int inprocess_begin(struct inprocess *process, struct inprocess_job *jobs, int count,
                    int concurrency, char **cause);
/* Submit what there is room for, and one step of the loop. 1 while jobs are left, 0 when all are
 * done, -1 with *cause when one failed. */
int inprocess_step(struct inprocess *process, char **cause);
/* Cancel what still runs. Harmless when nothing was begun. */
void inprocess_end(struct inprocess *process);

void inprocess_clear(struct inprocess_job *jobs, int count);

/* The prompt in the model's chat template; malloc'd, or NULL with *cause. */
char *inprocess_chat(const struct inprocess *process, const char *prompt, char **cause);

#endif
