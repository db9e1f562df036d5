/* loop.c - the step, whole: admit -> draft (plan) -> verify -> observe (refit) -> publish. See
 * loop.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "controller/cause.h"
#include "controller/loop.h"
#include "controller/request_node.h"
#include "controller/ticks.h"

#define MOST_END_TOKENS 64

bool loop_step(struct loop *loop)
{
    struct step *step = &loop->step;

    step->begun_ms = ticks_ms();
    step->draft_ms = step->verify_ms = 0;
    step->failed = false;
    if (!loop_admit(loop)) return false;
    loop_draft(loop);
    loop_verify(loop);
    loop_observe(loop);
    if (loop->options.stepped)
        loop->options.stepped(loop->options.state, loop->slot, loop->parallel);
    step->number++;
    return true;
}

int loop_set_mode(struct loop *loop, enum mode mode)
{
    loop->mode = mode;
    loop->fixed_draft = planner_set_mode(loop->planner, mode);
    return loop->fixed_draft;
}

int loop_running(const struct loop *loop)
{
    int running = 0;

    for (int i = 0; i < loop->parallel; i++) running += loop->slot[i].phase != SLOT_FREE;
    return running;
}

void loop_release(struct loop *loop, struct slot *slot, enum request_finish finish,
                  const char *error)
{
    request_set_usage(slot->request, &slot->usage);
    request_finish(slot->request, finish, error);
    request_unref(slot->request);
    slot->request = NULL;
    slot->phase = SLOT_FREE;
    slot->reserved = 0;
    slot->prefill = 0;
    text_free(slot->text);
    slot->text = NULL;
    pthread_mutex_lock(&loop->tally.lock);
    loop->tally.counts.failed += finish == REQUEST_FAILED;
    loop->tally.counts.cancelled += finish == REQUEST_CANCELLED;
    pthread_mutex_unlock(&loop->tally.lock);
}

bool loop_set_policy(struct loop *loop, const struct planner_options *planner,
                     enum draft_choice choice, enum tt_estimator_kind estimator,
                     int refit_interval_steps)
{
    struct loop_options *options = &loop->options;

    if (estimator != options->estimator || refit_interval_steps != options->refit_interval_steps) {
        struct strata *strata = strata_new(loop->max_draft, estimator, refit_interval_steps);

        if (!strata) return false;
        strata_free(loop->strata);
        loop->strata = strata;
        options->estimator = estimator;
        options->refit_interval_steps = refit_interval_steps;
    }
    options->planner = *planner;
    options->choice = choice;
    planner_set_options(loop->planner, planner);
    return true;
}

struct logits loop_logits(const struct loop *loop, struct lm *lm, int row, bool host)
{
    float *data = loop->device_rows && !host ? lm_device_logits(lm, row) : NULL;

    if (data) return (struct logits){loop->device_rows, data};
    return (struct logits){loop->rows, lm_logits(lm, row)};
}

/* Kernels for the device on which the engine leaves its logits; without them the CPU reads the
 * copies in host memory, with the same results. */
static void open_device_kernels(struct loop *loop, struct tt_options options)
{
    const char *target = lm_device(loop->target);
    const char *draft = loop->draft ? lm_device(loop->draft) : NULL;

    options.backend = target ? target : draft;
    if (!options.backend) return;
    if (target && draft && strcmp(target, draft) != 0)
        cause_set(&loop->device_note,
                  "the target's logits lie on %s and the draft's on %s: the CPU reads both; "
                  "--device %s puts the models together",
                  target, draft, target);
    else if (tt_open(&loop->device_rows, &options) != TT_OK)
        cause_set(&loop->device_note,
                  "the engine leaves logits on %s, which the kernels cannot read, so the CPU does: "
                  "%s",
                  options.backend, tt_message(NULL));
}

static bool open_kernels(struct loop *loop, char **cause)
{
    size_t vocab = loop->vocab > loop->draft_vocab ? loop->vocab : loop->draft_vocab;
    size_t rows =
        (size_t)(loop->parallel > loop->max_draft + 1 ? loop->parallel : loop->max_draft + 1);
    struct tt_options options = {.backend = "cpu", .vocab = vocab, .max_rows = rows};
    int status = tt_open(&loop->rows, &options);

    if (status != TT_OK) cause_set(cause, "the kernels cannot start: %s", tt_strerror(status));
    if (status == TT_OK) open_device_kernels(loop, options);
    return status == TT_OK;
}

static bool make_slots(struct loop *loop)
{
    int capacity = loop_request_cells(loop) + loop->max_draft + 2;

    loop->slot = calloc((size_t)loop->parallel, sizeof *loop->slot);
    if (!loop->slot) return false;
    for (int i = 0; i < loop->parallel; i++)
        if (!slot_init(&loop->slot[i], i, capacity, loop->max_draft, loop->draft_vocab, true,
                       loop->end_count))
            return false;
    return true;
}

static bool make_scratch(struct loop *loop, int queue_capacity)
{
    size_t parallel = (size_t)loop->parallel, block = (size_t)loop->max_draft + 1;
    size_t rows = parallel > block ? parallel : block;
    int catch_up = loop->draft ? lm_batch_limit(loop->draft) : 1;

    loop->target_batch = lm_batch_new(lm_batch_limit(loop->target));
    loop->draft_batch = lm_batch_new(catch_up);
    loop->step.plan = calloc(parallel, sizeof *loop->step.plan);
    loop->step.slot = calloc(parallel, sizeof *loop->step.slot);
    loop->step.admitted = calloc(parallel, sizeof *loop->step.admitted);
    loop->step.accepted = calloc(parallel, sizeof *loop->step.accepted);
    loop->stats = calloc(rows, sizeof *loop->stats);
    loop->inverse_temperature = calloc(parallel, sizeof *loop->inverse_temperature);
    loop->probability = calloc(parallel, sizeof *loop->probability);
    loop->admit = calloc(parallel, sizeof *loop->admit);
    loop->tokens = calloc(block, sizeof *loop->tokens);
    loop->raw = calloc(block * loop->vocab, sizeof *loop->raw);
    loop->end_tokens = calloc(MOST_END_TOKENS, sizeof *loop->end_tokens);
    loop->queue = queue_new(queue_capacity);
    if (!loop->target_batch || !loop->draft_batch || !loop->step.plan || !loop->step.slot ||
        !loop->step.admitted || !loop->step.accepted || !loop->stats ||
        !loop->inverse_temperature || !loop->probability || !loop->admit || !loop->tokens ||
        !loop->raw || !loop->end_tokens || !loop->queue)
        return false;
    loop->end_count = lm_end_tokens(loop->target, loop->end_tokens, MOST_END_TOKENS);
    if (loop->end_count > MOST_END_TOKENS) loop->end_count = MOST_END_TOKENS;
    return true;
}

struct loop *loop_new(const struct loop_options *options, int queue_capacity, char **cause)
{
    struct loop *loop = calloc(1, sizeof *loop);

    if (!loop) goto fail;
    loop->options = *options;
    loop->target = options->target;
    loop->draft = options->draft;
    loop->cost = options->cost;
    loop->parallel = options->parallel;
    loop->max_draft = options->max_draft;
    loop->vocab = (size_t)lm_vocab(options->target);
    loop->draft_vocab = options->draft ? (size_t)lm_vocab(options->draft) : 0;
    if (options->draft) {
        loop->draft_window = lm_sequence_cells(options->draft);
        if (loop->draft_window > LOOP_DRAFT_WINDOW) loop->draft_window = LOOP_DRAFT_WINDOW;
    }
    tally_init(&loop->tally);
    loop->planner = planner_new(&options->planner, loop->cost);
    loop->strata =
        strata_new(options->max_draft, options->estimator, options->refit_interval_steps);
    loop->ngram = ngram_new();
    if (!loop->planner || !loop->strata || !loop->ngram || !make_scratch(loop, queue_capacity) ||
        !open_kernels(loop, cause) || !make_slots(loop))
        goto fail;
    return loop;
fail:
    if (cause && !*cause) cause_set(cause, "out of memory");
    loop_free(loop);
    return NULL;
}

void loop_free(struct loop *loop)
{
    if (!loop) return;
    for (int i = 0; loop->slot && i < loop->parallel; i++) {
        if (loop->slot[i].request)
            loop_release(loop, &loop->slot[i], REQUEST_FAILED, "the node is stopping");
        slot_destroy(&loop->slot[i]);
    }
    free(loop->slot);
    queue_free(loop->queue);
    planner_free(loop->planner);
    strata_free(loop->strata);
    ngram_free(loop->ngram);
    tt_close(loop->device_rows);
    free(loop->device_note);
    tt_close(loop->rows);
    lm_batch_free(loop->target_batch);
    lm_batch_free(loop->draft_batch);
    free(loop->step.plan);
    free(loop->step.slot);
    free(loop->step.admitted);
    free(loop->step.accepted);
    free(loop->stats);
    free(loop->inverse_temperature);
    free(loop->probability);
    free(loop->admit);
    free(loop->tokens);
    free(loop->raw);
    free(loop->end_tokens);
    free(loop);
}
