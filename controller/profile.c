/* profile.c - see profile.h. Sizes are visited round by round, so that a disturbance of a second
 * touches many cells once instead of one cell always; the cost model's own robust mean does the
 * rest.
 *
 * A machine that is busy with something else shows in two ways: repeats of one size scatter, and
 * the thread loses its processor in the middle of its work (involuntary context switches). Then the
 * rounds are repeated for a while; what is still unsteady at the end is marked, and not for
 * keeping.
 */
#include "config.h"

#include <stdio.h>
#include <sys/resource.h>

#include "controller/cause.h"
#include "controller/profile.h"
#include "controller/ticks.h"

#define ROUNDS 5
#define MOST_ROUNDS 10          /* on a busy machine */
#define STEADY_SCATTER 0.08     /* of a size's mean; an idle machine shows 0.01 to 0.03 */
#define STEADY_PREEMPTIONS 50.0 /* a second of measuring: a scheduler shares by some hundred */
#define CACHED 64               /* tokens that every sequence holds while it is measured */
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

struct session {
    const struct profile_options *options;
    struct cost_model *cost;
    struct target target, draft;
    int sizes[MOST_SIZES], draft_sizes[MOST_SIZES];
    int count, draft_count, band, done, all;
};

static void choose_sizes(struct session *session)
{
    const struct profile_options *options = session->options;
    const int catch_ups[] = {16, 32, 64}; /* what a draft model reads when it resumes */

    session->count =
        cost_profile_sizes(options->parallel, options->max_draft, session->sizes, MOST_SIZES);
    session->band = cost_context_band(CACHED * options->parallel);
    if (options->draft)
        session->draft_count =
            cost_profile_sizes(options->parallel, 0, session->draft_sizes, MOST_SIZES);
    for (int i = 0; i < 3 && session->draft_count > 0 && session->draft_count < MOST_SIZES; i++)
        if (catch_ups[i] > options->parallel && catch_ups[i] <= lm_batch_limit(options->draft))
            session->draft_sizes[session->draft_count++] = catch_ups[i];
    session->all = ROUNDS * (session->count + session->draft_count);
}

static void report(const struct session *session)
{
    if (session->options->progress)
        session->options->progress(session->options->state, session->done, session->all);
}

/* One more measurement; all of them only at the end, since a busy machine takes more rounds. */
static void count_measured(struct session *session)
{
    if (session->done < session->all - 1) session->done++;
    report(session);
}

/* Every size once. keep: what was measured goes into the table. 0, or -1 with *cause or because of
 * the stop. */
static int measure_round(struct session *session, bool keep, char **cause)
{
    int parallel = session->options->parallel;
    double ms;

    for (int i = 0; i < session->count; i++) {
        if (session->options->stop && atomic_load(session->options->stop)) return -1;
        if (session->sizes[i] > lm_outputs_limit(session->target.lm)) continue;
        if (time_rows(&session->target, session->sizes[i], parallel, &ms, cause) != 0) return -1;
        if (!keep) continue;
        cost_observe_verify(session->cost, session->sizes[i], session->band, ms);
        count_measured(session);
    }
    for (int i = 0; i < session->draft_count; i++) {
        if (time_rows(&session->draft, session->draft_sizes[i], parallel, &ms, cause) != 0)
            return -1;
        if (!keep) continue;
        cost_observe_draft(session->cost, session->draft_sizes[i], ms);
        count_measured(session);
    }
    return 0;
}

/* Involuntary context switches of this thread so far. */
static double preemptions(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_THREAD, &usage) == 0 ? (double)usage.ru_nivcsw : 0;
}

/* Say whether the machine was busy with something else. preempted: a second. */
static void judge(struct cost_model *cost, double preempted)
{
    double scatter = cost_scatter(cost);
    char why[96];

    if (scatter > STEADY_SCATTER)
        snprintf(why, sizeof why, "repeats of one size scatter by %.0f %% (at most %.0f is steady)",
                 100 * scatter, 100 * STEADY_SCATTER);
    else if (preempted > STEADY_PREEMPTIONS)
        snprintf(why, sizeof why,
                 "it lost its processor %.0f times a second (at most %.0f is steady)", preempted,
                 STEADY_PREEMPTIONS);
    else
        why[0] = '\0';
    cost_set_unsteady(cost, why);
}

static int measure(struct session *session, char **cause)
{
    /* the first round warms caches and graphs up */
    if (measure_round(session, false, cause) != 0) return -1;
    for (int round = 1; round <= MOST_ROUNDS; round++) {
        double begun = ticks_ms(), lost = preemptions();

        if (measure_round(session, true, cause) != 0) return -1;
        if (round < ROUNDS) continue;
        judge(session->cost, (preemptions() - lost) / (ticks_ms() - begun) * 1000);
        if (!cost_unsteady(session->cost)) break;
    }
    session->done = session->all;
    report(session);
    return 0;
}

int profile_costs(const struct profile_options *options, struct cost_model *cost, char **cause)
{
    struct session session = {.options = options, .cost = cost};
    int status = -1;

    choose_sizes(&session);
    if (open_target(&session.target, options->target, options->parallel, true, cause) == 0 &&
        (!options->draft ||
         open_target(&session.draft, options->draft, options->parallel, false, cause) == 0))
        status = measure(&session, cause);
    close_target(&session.target);
    close_target(&session.draft);
    return status;
}
