/* bench_load_run.c - one policy's run over one block of requests; see bench_load.h.
 *
 * Two loops over one pair of models. The adaptive one does nothing else from the first warm-up to
 * the last block, so that it knows what the same server in production would: the cost profile of
 * its start, what its own steps cost since, and the labels of its own drafts. The other one serves
 * off and fixed K, and teaches it nothing.
 *
 * Concurrency is constant while the clock runs: the first requests have staggered lengths, so that
 * they end one after another; it starts when all of them decode, and stops when the block's last
 * request is done, while others, which count as far as they got, still fill the slots behind it.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "controller/bench_load.h"
#include "controller/cause.h"
#include "controller/ticks.h"

#define LEAST_TOKENS 8   /* of a staggered request */
#define LEAST_REQUESTS 4 /* of a block */

volatile sig_atomic_t load_stopped;

struct load_server {
    struct inprocess adaptive, other;
};

struct load_server *load_server_open(const struct load_server_options *options, char **cause)
{
    struct load_server *server = calloc(1, sizeof *server);
    struct inprocess_options process = {
        .pair = {.target = options->target,
                 .draft = options->draft,
                 .parallel = options->parallel,
                 .max_draft = options->max_draft,
                 .threads = options->threads,
                 .progress = options->progress,
                 .state = options->state},
        .profile = true,
    };

    if (!server) {
        cause_set(cause, "out of memory");
        return NULL;
    }
    if (inprocess_open(&server->adaptive, &process, cause) == 0) {
        process.profile = false; /* off and a given K ask no cost model */
        if (inprocess_share(&server->other, &server->adaptive, &process, cause) == 0) {
            loop_set_mode(server->adaptive.loop, MODE_ADAPTIVE);
            return server;
        }
    }
    load_server_close(server);
    return NULL;
}

void load_server_close(struct load_server *server)
{
    if (!server) return;
    inprocess_close(&server->other);
    inprocess_close(&server->adaptive);
    free(server);
}

char *load_server_chat(const struct load_server *server, const char *prompt, char **cause)
{
    return inprocess_chat(&server->adaptive, prompt, cause);
}

static void forget(struct load_server *server)
{
    inprocess_forget(&server->adaptive);
    inprocess_forget(&server->other);
}

struct trace_set *load_server_record(struct load_server *server, const struct load_texts *texts,
                                     char **cause)
{
    forget(server);
    return load_oracle_record(&server->adaptive.pair, texts, cause);
}

const struct cost_model *load_server_cost(const struct load_server *server)
{
    return server->adaptive.cost;
}

static int measured_requests(int concurrency)
{
    return 2 * concurrency > LEAST_REQUESTS ? 2 * concurrency : LEAST_REQUESTS;
}

/* The block's requests, and behind them those that fill the slots at its end. */
static struct inprocess_job *make_jobs(const struct load_requests *requests, int *count)
{
    int measured = measured_requests(requests->concurrency);
    struct inprocess_job *jobs;

    *count = measured + 2 * requests->concurrency;
    jobs = calloc((size_t)*count, sizeof *jobs);
    for (int i = 0; jobs && i < *count; i++) {
        int at = requests->block * measured + i, tokens = requests->tokens;

        if (i < requests->concurrency) tokens = tokens * (i + 1) / requests->concurrency;
        jobs[i] = (struct inprocess_job){
            .prompt = requests->prompt[at % requests->prompts],
            .temperature = requests->temperature,
            .seeded = requests->temperature > 0,
            .seed = (uint64_t)at,
            .ignore_eos = true,
            .max_tokens = tokens < LEAST_TOKENS ? LEAST_TOKENS : tokens,
        };
    }
    return jobs;
}

struct watch { /* of a run: the clock */
    struct inprocess *process;
    const struct inprocess_job *jobs;
    int measured, concurrency;
    bool running, done;
    double begun_ms, ended_ms;
    struct tally_counts before, after;
};

static bool all_decode(const struct loop *loop, int concurrency)
{
    int decoding = 0;

    for (int i = 0; i < loop->parallel; i++) decoding += loop->slot[i].phase == SLOT_DECODE;
    return decoding == concurrency;
}

static void end_watch(struct watch *watch)
{
    watch->ended_ms = ticks_ms();
    tally_copy(&watch->process->loop->tally, &watch->after);
    watch->done = true;
}

static void between_steps(void *state, struct loop *loop, long steps)
{
    struct watch *watch = state;
    bool finished = true;

    (void)steps;
    if (load_stopped) watch->process->enough = true;
    if (!watch->running && all_decode(loop, watch->concurrency)) {
        watch->running = true;
        tally_copy(&loop->tally, &watch->before);
        watch->begun_ms = ticks_ms();
    }
    for (int i = 0; i < watch->measured && finished; i++)
        finished = watch->jobs[i].finish != REQUEST_RUNNING;
    if (!finished) return;
    end_watch(watch);
    watch->process->enough = true;
}

static void take_counts(const struct watch *watch, int block, struct bench_block *out)
{
    const struct tally_counts *from = &watch->before, *to = &watch->after;

    *out = (struct bench_block){
        .block = block,
        .time_ms = utc_ms(),
        .tokens = to->emitted - from->emitted,
        .steps = to->steps - from->steps,
        .drafted = to->drafted - from->drafted,
        .admitted = to->admitted - from->admitted,
        .accepted = to->accepted - from->accepted,
        .seconds = (watch->ended_ms - watch->begun_ms) / 1000,
        .draft_ms = to->draft_ms - from->draft_ms,
        .verify_ms = to->verify_ms - from->verify_ms,
        .own_ms = to->own_ms - from->own_ms,
    };
}

static bool set_policy(struct load_server *server, const struct load_policies *policies, int policy)
{
    struct loop *loop = server->other.loop;
    struct planner_options planner = loop->options.planner;

    if (policy == load_policy_adaptive(policies)) return true;
    planner.fixed_draft = policy;
    if (!loop_set_policy(loop, &planner, loop->options.choice, loop->options.estimator,
                         loop->options.refit_interval_steps))
        return false;
    loop_set_mode(loop, policy == 0 ? MODE_OFF : MODE_FIXED);
    return true;
}

int load_server_run(struct load_server *server, const struct load_policies *policies, int policy,
                    const struct load_requests *requests, struct bench_block *out, char **cause)
{
    struct inprocess *process =
        policy == load_policy_adaptive(policies) ? &server->adaptive : &server->other;
    int count, status;
    struct inprocess_job *jobs = make_jobs(requests, &count);
    struct watch watch = {.process = process,
                          .jobs = jobs,
                          .measured = measured_requests(requests->concurrency),
                          .concurrency = requests->concurrency};

    if (!jobs || !set_policy(server, policies, policy)) {
        free(jobs);
        cause_set(cause, "out of memory");
        return -1;
    }
    forget(server);
    status =
        inprocess_run(process, jobs, count, requests->concurrency, between_steps, &watch, cause);
    if (status == 0 && load_stopped) status = 1;
    if (status == 0 && !(watch.running && watch.done)) {
        cause_set(cause,
                  "%d requests were over before all of them decoded at once; give more --tokens",
                  requests->concurrency);
        status = -1;
    }
    if (status == 0) take_counts(&watch, requests->block, out);
    inprocess_clear(jobs, count);
    free(jobs);
    return status;
}
