/* draft.c - plan and draft, depth by depth (algorithm 5): a draft forward runs only where the
 * planner finds it worth its cost; once q_k is known for all, the planner admits; only then is x_k
 * drawn. What was drawn is verified.
 *
 * The draft context follows a request lazily: at B = 0 no drafter runs at all, prompts included.
 * When drafting starts (or the window is full) it restarts on the last LOOP_CATCH_UP tokens; any q
 * is exact, a short memory only costs acceptance.
 */
#include "config.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "controller/loop.h"
#include "controller/request_node.h"
#include "controller/ticks.h"

const char *draft_choice_name(enum draft_choice choice)
{
    static const char *const name[] = {"auto", "model", "ngram", "none"};

    return name[choice];
}

bool draft_choice_parse(const char *name, enum draft_choice *choice)
{
    for (int i = DRAFT_AUTO; i <= DRAFT_NONE; i++) {
        if (strcmp(name, draft_choice_name((enum draft_choice)i)) != 0) continue;
        *choice = (enum draft_choice)i;
        return true;
    }
    return false;
}

/* The drafter that is used without a choice. */
static enum drafter drafter_of(const struct loop *loop)
{
    switch (loop->options.choice) {
    case DRAFT_NONE:
        return DRAFTER_NONE;
    case DRAFT_NGRAM:
        return DRAFTER_NGRAM;
    case DRAFT_MODEL:
        return loop->draft ? DRAFTER_MODEL : DRAFTER_NONE;
    default:
        return loop->draft ? DRAFTER_MODEL : DRAFTER_NGRAM;
    }
}

/* Most drafts this request may take: its output limit, and end tokens may not become possible
 * inside a block. */
static int draft_cap(const struct loop *loop, const struct slot *slot)
{
    const struct request_params *params = request_params_of(slot->request);
    int cap = slot->limit - slot->count - 1;
    int forced = params->min_tokens - slot_emitted(slot) - 1;

    if (forced >= 0 && forced < cap) cap = forced;
    if (cap > loop->max_draft) cap = loop->max_draft;
    if (!lm_can_roll_back(loop->target)) cap = 0;
    return cap > 0 ? cap : 0;
}

/* Tokens the draft model must read before its first draft; 1 = in step. Restarts when it is too far
 * behind or full. */
static int catch_up(const struct loop *loop, const struct slot *slot)
{
    int behind = slot->count - slot->draft_end;
    bool full = slot->count - slot->draft_base + loop->max_draft > loop->draft_window;

    if (slot->draft_end == 0 || behind > LOOP_CATCH_UP || full)
        return slot->count < LOOP_CATCH_UP ? slot->count : LOOP_CATCH_UP;
    return behind;
}

static void use_drafter(struct loop *loop, struct slot *slot, enum drafter drafter,
                        struct planner_request *plan)
{
    slot->drafter = drafter;
    slot->step_rule =
        drafter == DRAFTER_NGRAM && slot->rule == TT_RATIO ? TT_POINT_MASS : slot->rule;
    slot->stratum = strata_index(drafter, slot->step_rule, slot->temperature, slot->adjusted);
    *plan =
        (struct planner_request){.cap = drafter == DRAFTER_NONE ? 0 : draft_cap(loop, slot),
                                 .stratum = slot->stratum,
                                 .catch_up = drafter == DRAFTER_MODEL ? catch_up(loop, slot) : 1,
                                 .free_draft = drafter == DRAFTER_NGRAM,
                                 .starved = strata_starved(loop->strata, slot->stratum)};
}

/* Look the last tokens up: the proposal, its features and predictions are known at once. */
static void propose(struct loop *loop, struct slot *slot, struct planner_request *plan)
{
    plan->cap = plan->cap > 0 ? ngram_propose(loop->ngram, slot->index, plan->cap, slot->draft,
                                              slot->feature, &slot->match)
                              : 0;
    slot->proposed = plan->cap;
    memcpy(slot->proposal, slot->draft, (size_t)slot->proposed * sizeof *slot->proposal);
    for (int k = 0; k < plan->cap; k++)
        slot->predicted[k] = strata_predict(loop->strata, slot->stratum, k, slot->feature[k]);
    plan->known = slot->predicted;
}

/* Which drafter, if there is a choice, is decided here: before the draft model's first draw, from
 * the request's history alone. */
static void begin_slot(struct loop *loop, struct slot *slot, int decoding,
                       struct planner_request *plan)
{
    enum drafter drafter = drafter_of(loop);
    struct planner_request free_draft;

    slot->proposed = 0;
    if (drafter == DRAFTER_NGRAM ||
        (drafter == DRAFTER_MODEL && loop->options.choice == DRAFT_AUTO)) {
        use_drafter(loop, slot, DRAFTER_NGRAM, &free_draft);
        propose(loop, slot, &free_draft);
        *plan = free_draft;
        if (drafter == DRAFTER_NGRAM) return;
    }
    use_drafter(loop, slot, drafter, plan);
    if (slot->proposed == 0 || !planner_prefers_free(loop->planner, plan, &free_draft, decoding))
        return;
    use_drafter(loop, slot, DRAFTER_NGRAM, plan);
    plan->cap = free_draft.cap;
    plan->known = free_draft.known;
}

static int begin_plan(struct loop *loop)
{
    struct step *step = &loop->step;
    int base = 0, cells = 0, decoding = 0;

    step->decoding = 0;
    for (int i = 0; i < loop->parallel; i++) decoding += loop->slot[i].phase == SLOT_DECODE;
    for (int i = 0; i < loop->parallel; i++) {
        struct slot *slot = &loop->slot[i];

        slot->drafted = slot->admitted = slot->accepted = slot->emitted = slot->labelled = 0;
        slot->sampled = slot->flagged = false;
        cells += slot->in_target;
        base += slot->prefill;
        if (slot->phase != SLOT_DECODE) continue;
        begin_slot(loop, slot, decoding, &step->plan[step->decoding]);
        step->slot[step->decoding++] = i;
    }
    planner_begin(loop->planner, step->plan, step->decoding, base + step->decoding, step->finishing,
                  cells, step->number);
    return step->decoding;
}

/* Tokens that depth `depth` of this slot must read, into the draft batch; the last one's logits are
 * wanted. */
static void add_draft_tokens(struct loop *loop, struct slot *slot, int depth)
{
    if (depth == 0) {
        int read = catch_up(loop, slot);

        if (slot->count - read != slot->draft_end) { /* restart on the last tokens */
            lm_trim(loop->draft, slot->sequence, 0);
            slot->draft_base = slot->draft_end = slot->count - read;
        }
        for (; slot->draft_end < slot->count; slot->draft_end++)
            lm_batch_add(loop->draft_batch, slot->tokens[slot->draft_end],
                         slot->draft_end - slot->draft_base, slot->sequence,
                         slot->draft_end == slot->count - 1);
        return;
    }
    lm_batch_add(loop->draft_batch, slot->draft[depth - 1], slot->draft_end - slot->draft_base,
                 slot->sequence, true);
    slot->draft_end++;
}

/* One draft forward for the live requests that draft by model: their rows, statistics and features
 * at this depth. */
static bool run_forward(struct loop *loop, int depth, const int *rows, int live)
{
    struct tt_rows logits = {.dtype = TT_F32,
                             .vocab = loop->draft_vocab,
                             .stride = loop->draft ? lm_logits_stride(loop->draft) : 0};
    struct logits first = {NULL, NULL};
    double begun;

    lm_batch_clear(loop->draft_batch);
    for (int i = 0; i < live; i++) {
        struct slot *slot = &loop->slot[loop->step.slot[rows[i]]];

        if (slot->drafter != DRAFTER_MODEL) continue;
        add_draft_tokens(loop, slot, depth);
        slot->row = loop->draft_batch->count - 1;
        loop->inverse_temperature[logits.rows++] = slot->inverse_temperature;
    }
    if (logits.rows == 0) return true;
    begun = ticks_ms();
    if (lm_decode(loop->draft, loop->draft_batch, NULL) != 0) return false;
    begun = ticks_ms() - begun;
    loop->step.draft_ms += begun;
    cost_observe_draft(loop->cost, loop->draft_batch->count, begun);
    for (int i = 0, row = 0; i < live; i++) {
        struct slot *slot = &loop->slot[loop->step.slot[rows[i]]];

        if (slot->drafter != DRAFTER_MODEL) continue;
        slot->draft_row = loop_logits(loop, loop->draft, slot->row, false);
        if (row == 0) first = slot->draft_row;
        assert(slot->draft_row.kernels == first.kernels &&
               slot->draft_row.data == first.data + (size_t)row * logits.stride);
        row++;
    }
    logits.data = first.data;
    if (tt_row_statistics(first.kernels, &logits, loop->inverse_temperature, loop->stats) != TT_OK)
        return false;
    for (int i = 0, row = 0; i < live; i++) {
        struct slot *slot = &loop->slot[loop->step.slot[rows[i]]];

        if (slot->drafter != DRAFTER_MODEL) continue;
        slot->stats = loop->stats[row++];
        slot->feature[depth] = tt_feature(&slot->stats, LOOP_FEATURE_CLAMP);
    }
    return true;
}

/* Draw x_k of an admitted position from its draft law; under the ratio rule the law is kept for the
 * verification. */
static bool draw_token(struct loop *loop, struct slot *slot, int depth)
{
    struct tt_rows row = {slot->draft_row.data, TT_F32, 1, loop->draft_vocab, loop->draft_vocab};
    tt *kernels = slot->draft_row.kernels;
    struct tt_transform transform = slot->transform;
    struct tt_row_stats stats = slot->stats;
    float *q;

    if (slot->drafter == DRAFTER_NGRAM) return true; /* proposed at the step's start */
    if (slot->step_rule == TT_GREEDY || slot->step_rule == TT_POINT_MASS) {
        slot->draft[depth] = stats.argmax;
        return stats.argmax >= 0;
    }
    q = slot->q + (size_t)depth * loop->draft_vocab;
    if (slot->step_rule == TT_RATIO || slot->transforms)
        memcpy(q, lm_logits(loop->draft, slot->row), loop->draft_vocab * sizeof *q);
    if (slot->transforms) { /* the shape of the client's law, without what only the target sees */
        transform.presence_penalty = transform.frequency_penalty = 0;
        transform.repetition_penalty = 1;
        transform.bias_count = 0;
        if (tt_transform_row(loop->rows, q, loop->draft_vocab, &transform, NULL, 0) != TT_OK)
            return false;
        row.data = q;
        kernels = loop->rows;
        if (tt_row_statistics(loop->rows, &row, &slot->inverse_temperature, &stats) != TT_OK)
            return false;
    }
    slot->q_stats[depth] = stats;
    if (slot->step_rule == TT_COUPLED)
        return tt_sample_coupled(kernels, &row, slot->inverse_temperature, slot->key,
                                 (uint64_t)(slot_emitted(slot) + depth),
                                 &slot->draft[depth]) == TT_OK &&
               slot->draft[depth] >= 0;
    return tt_sample(kernels, &row, slot->inverse_temperature, &stats, slot->key,
                     (uint64_t)slot_emitted(slot), (uint32_t)depth, TT_DRAFT,
                     &slot->draft[depth]) == TT_OK &&
           slot->draft[depth] >= 0;
}

/* A draft forward or draw that failed ends drafting for this step: what is already drawn stays
 * admitted. */
static void draft_failed(struct loop *loop)
{
    for (int i = 0; i < loop->parallel; i++) {
        struct slot *slot = &loop->slot[i];

        lm_trim(loop->draft, slot->sequence, 0);
        slot->draft_base = slot->draft_end = 0;
    }
}

void loop_draft(struct loop *loop)
{
    struct step *step = &loop->step;
    const int *rows;
    int live;

    if (begin_plan(loop) == 0) return;
    for (int depth = 0; (live = planner_draft(loop->planner, depth, &rows)) > 0; depth++) {
        int kept;

        if (!run_forward(loop, depth, rows, live)) {
            draft_failed(loop);
            return;
        }
        for (int i = 0; i < live; i++) {
            struct slot *slot = &loop->slot[step->slot[rows[i]]];

            slot->predicted[depth] =
                strata_predict(loop->strata, slot->stratum, depth, slot->feature[depth]);
            loop->probability[i] = slot->predicted[depth];
            slot->drafted++;
        }
        kept = planner_admit(loop->planner, depth, loop->probability, loop->admit);
        for (int i = 0; i < live && kept > 0; i++) {
            struct slot *slot = &loop->slot[step->slot[rows[i]]];

            if (!loop->admit[i]) continue;
            if (!draw_token(loop, slot,
                            depth)) { /* a flagged draft row: nothing of it can be verified */
                draft_failed(loop);
                return;
            }
            slot->admitted = depth + 1;
        }
    }
}
