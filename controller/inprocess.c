/* inprocess.c - see inprocess.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "controller/cause.h"
#include "controller/inprocess.h"
#include "controller/profile.h"
#include "controller/request_node.h"
#include "controller/ticks.h"

static void ignore_refit(void *state, int stratum, int bits)
{
    (void)state, (void)stratum, (void)bits;
}

static uint64_t counting_key(void *state)
{
    static uint64_t key = 1;

    (void)state;
    return key++ * UINT64_C(0x9e3779b97f4a7c15);
}

static int open_costs(struct inprocess *process, const struct inprocess_options *options,
                      char **cause)
{
    struct profile_options profile = {
        .target = process->pair.target,
        .draft = process->pair.draft,
        .parallel = options->pair.parallel,
        .max_draft = options->pair.max_draft,
    };

    process->cost = pair_cost_new(options->pair.parallel, options->pair.max_draft);
    if (!process->cost) {
        cause_set(cause, "out of memory");
        return -1;
    }
    return options->profile ? profile_costs(&profile, process->cost, cause) : 0;
}

static int open_loop(struct inprocess *process, const struct inprocess_options *options,
                     char **cause)
{
    struct loop_options loop = {
        .target = process->pair.target,
        .draft = process->pair.draft,
        .cost = process->cost,
        .parallel = options->pair.parallel,
        .max_draft = options->pair.max_draft,
        .prefill_chunk = 128,
        .choice = options->choice,
        .planner = {.max_draft = options->pair.max_draft,
                    .max_requests = options->pair.parallel,
                    .fixed_draft = options->fixed_draft,
                    .min_gain = 0.01,
                    .exploration = true,
                    .key = 1},
        .fresh_key = counting_key,
        .refitted = ignore_refit,
    };

    process->loop = loop_new(&loop, 2 * options->pair.parallel, cause);
    return process->loop ? 0 : -1;
}

int inprocess_open(struct inprocess *process, const struct inprocess_options *options, char **cause)
{
    memset(process, 0, sizeof *process);
    if (pair_open(&process->pair, &options->pair, cause) != 0 ||
        open_costs(process, options, cause) != 0)
        return -1;
    return open_loop(process, options, cause);
}

int inprocess_share(struct inprocess *process, const struct inprocess *owner,
                    const struct inprocess_options *options, char **cause)
{
    memset(process, 0, sizeof *process);
    if (pair_share(&process->pair, &owner->pair, &options->pair, cause) != 0 ||
        open_costs(process, options, cause) != 0)
        return -1;
    return open_loop(process, options, cause);
}

void inprocess_forget(struct inprocess *process)
{
    for (int i = 0; i < process->loop->parallel; i++) {
        struct slot *slot = &process->loop->slot[i];

        lm_trim(process->pair.target, i, 0);
        if (process->pair.draft) lm_trim(process->pair.draft, i, 0);
        slot->in_target = slot->draft_base = slot->draft_end = 0;
    }
}

void inprocess_close(struct inprocess *process)
{
    loop_free(process->loop);
    cost_free(process->cost);
    pair_close(&process->pair);
    memset(process, 0, sizeof *process);
}

/* A job on its way. */
struct flight {
    struct inprocess_job *job;
    struct request *request;
    double begun_ms;
    size_t length;
};

struct inprocess_run {
    struct inprocess_job *job; /* (count) */
    int count, concurrency, next, flying;
    struct flight flight[]; /* (concurrency) */
};

static void no_notify(void *state)
{
    (void)state;
}

static bool submit(struct inprocess *process, struct flight *flight, struct inprocess_job *job)
{
    struct request_params params;
    int32_t *tokens;
    int count =
        lm_tokenize(process->pair.target, job->prompt, strlen(job->prompt), true, true, &tokens);

    if (count < 1) return false;
    request_params_default(&params);
    params.temperature = job->temperature;
    params.seeded = job->seeded;
    params.seed = job->seed;
    params.ignore_eos = job->ignore_eos;
    params.max_tokens = job->max_tokens;
    *flight = (struct flight){.job = job, .begun_ms = ticks_ms()};
    flight->request = request_new(&params, tokens, count, no_notify, NULL);
    return flight->request && queue_push(process->loop->queue, flight->request);
}

static bool take_pieces(struct flight *flight)
{
    struct request_piece *list = request_take(flight->request);

    for (struct request_piece *piece = list; piece; piece = piece->next) {
        char *larger = realloc(flight->job->text, flight->length + piece->length + 1);

        if (!larger) return false;
        flight->job->text = larger;
        memcpy(larger + flight->length, piece->text, piece->length);
        flight->length += piece->length;
        larger[flight->length] = '\0';
        if (flight->job->tokens == 0) flight->job->first_ms = ticks_ms() - flight->begun_ms;
        flight->job->tokens += piece->tokens;
    }
    request_piece_free(list);
    return true;
}

/* Collect what came; true when the flight ended. */
static bool landed(struct flight *flight, char **cause)
{
    enum request_finish finish;
    const char *error;

    if (!take_pieces(flight)) cause_set(cause, "out of memory");
    if (!request_ended(flight->request, &finish, &error)) return false;
    flight->job->finish = finish;
    if (finish == REQUEST_FAILED) cause_set(cause, "%s", error ? error : "a request failed");
    request_unref(flight->request);
    flight->request = NULL;
    return true;
}

int inprocess_begin(struct inprocess *process, struct inprocess_job *jobs, int count,
                    int concurrency, char **cause)
{
    struct inprocess_run *run =
        calloc(1, sizeof *run + (size_t)concurrency * sizeof run->flight[0]);

    if (!run) {
        cause_set(cause, "out of memory");
        return -1;
    }
    run->job = jobs;
    run->count = count;
    run->concurrency = concurrency;
    process->run = run;
    return 0;
}

int inprocess_step(struct inprocess *process, char **cause)
{
    struct inprocess_run *run = process->run;
    char *why = NULL;

    for (int i = 0; i < run->concurrency && run->next < run->count && !why; i++) {
        if (run->flight[i].request) continue;
        if (!submit(process, &run->flight[i], &run->job[run->next++]))
            cause_set(&why, "a prompt could not be submitted");
        run->flying++;
    }
    if (!why) loop_step(process->loop);
    for (int i = 0; i < run->concurrency; i++)
        if (run->flight[i].request && landed(&run->flight[i], &why)) run->flying--;
    if (!why) return run->next < run->count || run->flying > 0;
    cause_set(cause, "%s", why);
    free(why);
    return -1;
}

void inprocess_end(struct inprocess *process)
{
    struct inprocess_run *run = process->run;

    if (!run) return;
    for (int i = 0; i < run->concurrency; i++) {
        if (!run->flight[i].request) continue;
        request_cancel(run->flight[i].request);
        request_unref(run->flight[i].request);
    }
    while (loop_step(process->loop)) continue; /* lets go of what was cancelled */
    free(run);
    process->run = NULL;
}

int inprocess_run(struct inprocess *process, struct inprocess_job *jobs, int count, int concurrency,
                  void (*between)(void *state, struct loop *loop, long steps), void *state,
                  char **cause)
{
    int status = inprocess_begin(process, jobs, count, concurrency, cause);
    long steps = 0;

    if (status != 0) return status;
    do {
        if (between) between(state, process->loop, steps++);
        status = inprocess_step(process, cause);
    } while (status > 0);
    inprocess_end(process);
    return status;
}

void inprocess_clear(struct inprocess_job *jobs, int count)
{
    for (int i = 0; i < count; i++) {
        free(jobs[i].text);
        jobs[i].text = NULL;
        jobs[i].tokens = 0;
    }
}

char *inprocess_chat(const struct inprocess *process, const char *prompt, char **cause)
{
    struct lm_message message = {"user", prompt};

    return lm_chat(process->pair.target, &message, 1, cause);
}
