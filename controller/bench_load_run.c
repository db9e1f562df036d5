/* bench_load_run.c - the policies over one block of requests, side by side; see bench_load.h.
 *
 * Every policy has a loop of its own, with contexts of its own over one pair of models. The
 * adaptive one serves nothing else from the first warm-up to the last block, so that it knows what
 * the same server in production would: the cost profile of its start, what its own steps cost
 * since, and the labels of its own drafts. Off and fixed K teach it nothing.
 *
 * Within a block they take turns of a tenth of a second, the one that is furthest behind next: all
 * are as far at any time, so that a machine that is slower for some seconds is so for each of them.
 * A policy's clock runs in its own steps alone.
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

#define LEAST_REQUESTS 4 /* of a block */
#define TURN_MS 100

volatile sig_atomic_t load_stopped;

struct load_server {
    struct load_policies policies;
    struct inprocess process[LOAD_MOST_POLICIES]; /* by policy */
};

static struct inprocess *adaptive(struct load_server *server)
{
    return &server->process[load_policy_adaptive(&server->policies)];
}

/* Off and a given K ask no cost model: theirs is not measured first. */
static bool open_others(struct load_server *server, struct inprocess_options *options, char **cause)
{
    options->profile = false;
    for (int policy = 0; policy <= server->policies.max_draft; policy++) {
        struct inprocess *process = &server->process[policy];

        options->fixed_draft = policy;
        if (inprocess_share(process, adaptive(server), options, cause) != 0) return false;
        loop_set_mode(process->loop, policy == 0 ? MODE_OFF : MODE_FIXED);
    }
    return true;
}

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
    server->policies.max_draft = options->max_draft;
    if (inprocess_open(adaptive(server), &process, cause) == 0) {
        loop_set_mode(adaptive(server)->loop, MODE_ADAPTIVE);
        if (open_others(server, &process, cause)) return server;
    }
    load_server_close(server);
    return NULL;
}

void load_server_close(struct load_server *server)
{
    if (!server) return;
    for (int policy = 0; policy < load_policy_count(&server->policies); policy++)
        inprocess_close(&server->process[policy]); /* the owner of the models is the last one */
    free(server);
}

char *load_server_chat(struct load_server *server, const char *prompt, char **cause)
{
    return inprocess_chat(adaptive(server), prompt, cause);
}

struct trace_set *load_server_record(struct load_server *server, const struct load_texts *texts,
                                     char **cause)
{
    inprocess_forget(adaptive(server));
    return load_oracle_record(&adaptive(server)->pair, texts, cause);
}

const struct cost_model *load_server_cost(struct load_server *server)
{
    return adaptive(server)->cost;
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
        int at = requests->block * measured + i;

        jobs[i] = (struct inprocess_job){
            .prompt = requests->prompt[at % requests->prompts],
            .temperature = requests->temperature,
            .seeded = requests->temperature > 0,
            .seed = (uint64_t)at,
            .ignore_eos = true,
            .max_tokens = bench_staggered_tokens(requests->tokens, i, requests->concurrency),
        };
    }
    return jobs;
}

struct course { /* of one policy through a block */
    struct inprocess *process;
    struct inprocess_job *job; /* (count), of which the first (measured) are the block's */
    int count, measured, concurrency;
    bool running, done;
    double clock_ms;
    struct tally_counts begun, before, after; /* at its begin; as the clock started; by now */
};

static bool begin_course(struct course *course, struct inprocess *process,
                         const struct load_requests *requests, char **cause)
{
    *course = (struct course){.process = process,
                              .measured = measured_requests(requests->concurrency),
                              .concurrency = requests->concurrency};
    course->job = make_jobs(requests, &course->count);
    if (!course->job) {
        cause_set(cause, "out of memory");
        return false;
    }
    inprocess_forget(process);
    tally_copy(&process->loop->tally, &course->begun);
    course->after = course->begun;
    return inprocess_begin(process, course->job, course->count, course->concurrency, cause) == 0;
}

static void end_course(struct course *course)
{
    if (!course->job) return;
    inprocess_end(course->process);
    inprocess_clear(course->job, course->count);
    free(course->job);
    course->job = NULL;
}

static bool all_decode(const struct loop *loop, int concurrency)
{
    int decoding = 0;

    for (int i = 0; i < loop->parallel; i++) decoding += loop->slot[i].phase == SLOT_DECODE;
    return decoding == concurrency;
}

static bool all_finished(const struct course *course)
{
    for (int i = 0; i < course->measured; i++)
        if (course->job[i].finish == REQUEST_RUNNING) return false;
    return true;
}

static int step(struct course *course, char **cause)
{
    struct loop *loop = course->process->loop;
    double begun_ms;
    int status;

    if (!course->running && all_decode(loop, course->concurrency)) {
        course->running = true;
        tally_copy(&loop->tally, &course->before);
    }
    begun_ms = ticks_ms();
    status = inprocess_step(course->process, cause);
    if (course->running) course->clock_ms += ticks_ms() - begun_ms;
    course->done = status == 0 || all_finished(course);
    return status < 0 ? -1 : 0;
}

static int take_turn(struct course *course, char **cause)
{
    double end_ms = ticks_ms() + TURN_MS;
    int status = 0;

    while (status == 0 && !course->done && !load_stopped && ticks_ms() < end_ms)
        status = step(course, cause);
    tally_copy(&course->process->loop->tally, &course->after);
    return status;
}

/* Tokens so far, those before the clock ran included. */
static int64_t emitted(const struct course *course)
{
    return course->after.emitted - course->begun.emitted;
}

/* The one that is furthest behind; of equals, those from `first` on. NULL: all are done. */
static struct course *next_course(struct course *courses, int count, int first)
{
    struct course *next = NULL;

    for (int i = 0; i < count; i++) {
        struct course *course = &courses[(first + i) % count];

        if (!course->done && (!next || emitted(course) < emitted(next))) next = course;
    }
    return next;
}

/* 0, 1 when load_stopped ended it, -1 with *cause. */
static int run_courses(struct course *courses, int count, const struct load_requests *requests,
                       char **cause)
{
    struct course *course;
    int status = 0;

    while (status == 0 && !load_stopped &&
           (course = next_course(courses, count, requests->block)) != NULL)
        status = take_turn(course, cause);
    for (int i = 0; i < count && status == 0 && !load_stopped; i++) {
        if (courses[i].running) continue;
        cause_set(cause,
                  "%d requests were over before all of them decoded at once; give more --tokens",
                  requests->concurrency);
        status = -1;
    }
    return status == 0 && load_stopped ? 1 : status;
}

static struct bench_block counts_of(const struct course *course, int block)
{
    const struct tally_counts *from = &course->before, *to = &course->after;

    return (struct bench_block){
        .block = block,
        .time_ms = utc_ms(),
        .tokens = to->emitted - from->emitted,
        .steps = to->steps - from->steps,
        .drafted = to->drafted - from->drafted,
        .admitted = to->admitted - from->admitted,
        .accepted = to->accepted - from->accepted,
        .seconds = course->clock_ms / 1000,
        .draft_ms = to->draft_ms - from->draft_ms,
        .verify_ms = to->verify_ms - from->verify_ms,
        .own_ms = to->own_ms - from->own_ms,
    };
}

int load_server_run(struct load_server *server, const bool *wanted,
                    const struct load_requests *requests, struct bench_block *out, char **cause)
{
    int policies = load_policy_count(&server->policies), count = 0, status = 0;
    struct course courses[LOAD_MOST_POLICIES];
    int policy_of[LOAD_MOST_POLICIES];

    for (int policy = 0; policy < policies && status == 0; policy++) {
        if (!wanted[policy]) continue;
        if (!begin_course(&courses[count], &server->process[policy], requests, cause)) status = -1;
        policy_of[count++] = policy;
    }
    if (status == 0) status = run_courses(courses, count, requests, cause);
    for (int i = 0; i < count; i++) {
        if (status == 0) out[policy_of[i]] = counts_of(&courses[i], requests->block);
        end_course(&courses[i]);
    }
    return status;
}
