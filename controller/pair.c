/* pair.c - see pair.h. */
#include "config.h"

#include <stdlib.h>

#include "controller/cause.h"
#include "controller/loop.h"
#include "controller/pair.h"

struct report {
    const struct pair_options *options;
    const char *what;
};

static void forward_progress(float done, void *state)
{
    struct report *report = state;

    if (report->options->progress)
        report->options->progress(report->options->state, report->what, done);
}

static struct lm *open_lm(const struct lm *owner, const struct lm_options *options, char **cause)
{
    return owner ? lm_share(owner, options, cause) : lm_open(options, cause);
}

static struct lm *open_target(const struct lm *owner, const struct pair_options *options,
                              char **cause)
{
    int block = options->max_draft + 1;
    struct report report = {options, "loading the target model"};
    struct lm_options target = {
        .path = options->target,
        .device = options->device,
        .parallel = options->parallel,
        .context = options->context,
        .batch = options->parallel * block + LOOP_PREFILL_BATCH,
        .outputs = options->parallel * block,
        .threads = options->threads,
        .exact = options->exact,
        .progress = forward_progress,
        .progress_state = &report,
    };

    return open_lm(owner, &target, cause);
}

static struct lm *open_draft(const struct lm *owner, const struct pair_options *options,
                             char **cause)
{
    struct report report = {options, "loading the draft model"};
    struct lm_options draft = {
        .path = options->draft,
        .device = options->device,
        .parallel = options->parallel,
        .context = options->parallel * (LOOP_DRAFT_WINDOW + options->max_draft + 1),
        .batch = options->parallel * (LOOP_CATCH_UP + 1),
        .outputs = options->parallel,
        .threads = options->threads,
        .progress = forward_progress,
        .progress_state = &report,
    };

    return open_lm(owner, &draft, cause);
}

int pair_open(struct pair *pair, const struct pair_options *options, char **cause)
{
    char *why = NULL;

    *pair = (struct pair){NULL, NULL};
    pair->target = open_target(NULL, options, cause);
    if (!pair->target) return -1;
    if (!options->draft) return 0;
    pair->draft = open_draft(NULL, options, cause);
    if (!pair->draft) return -1;
    why = lm_mismatch(pair->target, pair->draft);
    if (!why && !lm_can_roll_back(pair->draft)) cause_set(&why, "its memory cannot be rolled back");
    if (!why) return 0;
    cause_set(cause, "%s cannot draft for %s: %s", options->draft, options->target, why);
    free(why);
    return -1;
}

int pair_share(struct pair *pair, const struct pair *owner, const struct pair_options *options,
               char **cause)
{
    *pair = (struct pair){NULL, NULL};
    pair->target = open_target(owner->target, options, cause);
    if (!pair->target) return -1;
    if (owner->draft) pair->draft = open_draft(owner->draft, options, cause);
    return !owner->draft || pair->draft ? 0 : -1;
}

void pair_close(struct pair *pair)
{
    lm_close(pair->draft);
    lm_close(pair->target);
    *pair = (struct pair){NULL, NULL};
}

struct cost_model *pair_cost_new(int parallel, int max_draft)
{
    return cost_new(parallel * (max_draft + 1) + LOOP_PREFILL_BATCH,
                    parallel * (LOOP_CATCH_UP + 1));
}
