/* profile.c - see profile.h. Sizes are visited round by round, so that a disturbance of a second
 * touches many cells once instead of one cell always; the cost model's own robust mean does the
 * rest.
 */
#include "config.h"

#include "controller/cause.h"
#include "controller/profile.h"
#include "controller/ticks.h"

#define ROUNDS 5
#define CACHED 64 /* tokens that every sequence holds while it is measured */
#define MOST_SIZES 128

struct target {
    struct lm *lm;
    struct lm_batch *batch;
    int sequences, cached;
    bool verifies; /* every row has logits (target), or only the last of a sequence (draft) */
};

/* `count` tokens spread over the sequences as verification rows would be; then forgotten. */
static int time_rows(struct target *target, int count, int sequences, double *ms, char **cause)
{
    int used = count < sequences ? count : sequences;
    double begun;

    lm_batch_clear(target->batch);
    for (int s = 0; s < used; s++) {
        int rows = count / used + (s < count % used);

        for (int i = 0; i < rows; i++)
            lm_batch_add(target->batch, (s + i) % 97, target->cached + i, s,
                         target->verifies || i == rows - 1);
    }
    begun = ticks_ms();
    if (lm_decode(target->lm, target->batch, cause) != 0) return -1;
    *ms = ticks_ms() - begun;
    for (int s = 0; s < used; s++) lm_trim(target->lm, s, target->cached);
    return 0;
}

static int fill_caches(struct target *target, char **cause)
{
    for (int s = 0; s < target->sequences; s++) {
        lm_batch_clear(target->batch);
        for (int i = 0; i < target->cached; i++)
            lm_batch_add(target->batch, (7 * s + i) % 97, i, s, i == target->cached - 1);
        if (lm_decode(target->lm, target->batch, cause) != 0) return -1;
    }
    return 0;
}

static int open_target(struct target *target, struct lm *lm, int sequences, bool verifies,
                       char **cause)
{
    target->lm = lm;
    target->verifies = verifies;
    target->sequences = sequences;
    target->cached = CACHED;
    if (target->cached > lm_batch_limit(lm)) target->cached = lm_batch_limit(lm);
    target->batch = lm_batch_new(lm_batch_limit(lm));
    if (!target->batch) {
        cause_set(cause, "out of memory");
        return -1;
    }
    return fill_caches(target, cause);
}

static void close_target(struct target *target)
{
    if (!target->batch) return;
    for (int s = 0; s < target->sequences; s++) lm_trim(target->lm, s, 0);
    lm_batch_free(target->batch);
}

int profile_costs(const struct profile_options *options, struct cost_model *cost, char **cause)
{
    struct target target = {0}, draft = {0};
    int sizes[MOST_SIZES], draft_sizes[MOST_SIZES];
    int count = cost_profile_sizes(options->parallel, options->max_draft, sizes, MOST_SIZES);
    int draft_count =
        options->draft ? cost_profile_sizes(options->parallel, 0, draft_sizes, MOST_SIZES) : 0;
    int all, done = 0, status = -1;
    const int catch_ups[] = {16, 32, 64}; /* what a draft model reads when it resumes */
    int band = cost_context_band(CACHED * options->parallel);
    double ms;

    for (int i = 0; i < 3 && draft_count > 0 && draft_count < MOST_SIZES; i++)
        if (catch_ups[i] > options->parallel && catch_ups[i] <= lm_batch_limit(options->draft))
            draft_sizes[draft_count++] = catch_ups[i];
    all = ROUNDS * (count + draft_count);
    if (open_target(&target, options->target, options->parallel, true, cause) != 0) goto out;
    if (options->draft && open_target(&draft, options->draft, options->parallel, false, cause) != 0)
        goto out;
    for (int round = -1; round < ROUNDS;
         round++) { /* round -1 warms caches and graphs up and is not kept */
        for (int i = 0; i < count; i++) {
            if (options->stop && atomic_load(options->stop)) goto out;
            if (sizes[i] > lm_outputs_limit(options->target)) continue;
            if (time_rows(&target, sizes[i], options->parallel, &ms, cause) != 0) goto out;
            if (round >= 0) cost_observe_verify(cost, sizes[i], band, ms);
            if (round >= 0 && options->progress) options->progress(options->state, ++done, all);
        }
        for (int i = 0; i < draft_count; i++) {
            if (time_rows(&draft, draft_sizes[i], options->parallel, &ms, cause) != 0) goto out;
            if (round >= 0) cost_observe_draft(cost, draft_sizes[i], ms);
            if (round >= 0 && options->progress) options->progress(options->state, ++done, all);
        }
    }
    status = 0;
out:
    close_target(&target);
    close_target(&draft);
    return status;
}
