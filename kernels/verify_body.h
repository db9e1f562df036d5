/* verify_body.h - accept, reject, recover: the decisions of speculative verification, one text for
 * the CPU (verify_core.c) and for CUDA (cuda_verify.cu).
 *
 * One loop over the reached positions, the same for every rule; a rule says how a token is accepted
 * and what is drawn after a rejection. The output law equals the target's whatever the draft was:
 *   greedy       accept the mode;                    then the mode
 *   point mass   accept with probability p(x);       then p without x
 *   ratio        accept with min(1, p(x) / q(x));    then max(p - q, 0)  (arXiv 2211.17192, th. 1)
 *   coupled      accept the race's winner;           then that winner    (arXiv 2408.07978)
 * After the last admitted token the bonus comes from p (or is the mode, or the race's winner).
 *
 * Whoever includes this defines VERIFY_VIEW, the type through which the rows of a block are seen,
 * VERIFY_FN, the kind of function the text is made of, and before the inclusion:
 *   int     view_reach(VERIFY_VIEW *, int32_t k, int with_draft)   enum verify_reached, or a status
 *   int32_t view_mode(VERIFY_VIEW *, int32_t k)
 *   double  view_target(VERIFY_VIEW *, int32_t k, int32_t token)
 *   double  view_draft(VERIFY_VIEW *, int32_t k, int32_t token)
 *   int     view_coin(VERIFY_VIEW *, const struct choice_site *, double probability)
 *   int32_t view_draw(VERIFY_VIEW *, int32_t k, enum verify_remainder, int32_t without,
 *                     const struct choice_site *)
 *   int32_t view_race(VERIFY_VIEW *, int32_t k, uint64_t token_index)
 */
#ifndef KERNELS_VERIFY_BODY_H
#define KERNELS_VERIFY_BODY_H

#include "kernels/verify_core.h"

/* A block ends at its first padding. */
VERIFY_FN int32_t verify_admitted(const struct verify_task *task)
{
    int32_t k = 0;
    while (k < task->admitted && task->tokens[k] >= 0) k++;
    return k;
}

VERIFY_FN struct choice_site verify_site(const struct verify_task *task, int32_t k,
                                         enum tt_purpose purpose)
{
    struct choice_site site;
    site.token_index = task->token_index + (uint64_t)k;
    site.position = (uint32_t)k;
    site.purpose = purpose;
    return site;
}

struct verify_decision {
    int accepted;
    float soft;   /* label for fitting */
    int32_t next; /* the token instead, when rejected */
};

VERIFY_FN void verify_ratio(const struct verify_task *task, VERIFY_VIEW *view, int32_t k,
                            struct verify_decision *out)
{
    const int32_t x = task->tokens[k];
    const struct choice_site accept = verify_site(task, k, TT_ACCEPT);
    const struct choice_site recover = verify_site(task, k, TT_RESIDUAL);
    const double p = view_target(view, k, x), q = view_draft(view, k, x);
    /* q = 0 cannot have been drawn; the token is refused, as the strict comparison u q < p refuses
     * p = 0. */
    const double ratio = !(q > 0.0) ? 0.0 : p >= q ? 1.0 : p / q;

    out->soft = (float)ratio;
    out->accepted = view_coin(view, &accept, ratio);
    if (!out->accepted) out->next = view_draw(view, k, VERIFY_RESIDUAL, x, &recover);
}

VERIFY_FN void verify_point_mass(const struct verify_task *task, VERIFY_VIEW *view, int32_t k,
                                 struct verify_decision *out)
{
    const int32_t x = task->tokens[k];
    const struct choice_site accept = verify_site(task, k, TT_ACCEPT);
    const struct choice_site recover = verify_site(task, k, TT_RESIDUAL);

    out->accepted = view_coin(view, &accept, view_target(view, k, x));
    out->soft = out->accepted ? 1.0f : 0.0f;
    if (!out->accepted) out->next = view_draw(view, k, VERIFY_WITHOUT, x, &recover);
}

/* What the target alone would emit at k under a rule that knows its token beforehand, or the bonus
 * draw. */
VERIFY_FN int32_t verify_emit(const struct verify_task *task, VERIFY_VIEW *view, int32_t k)
{
    const struct choice_site bonus = verify_site(task, k, TT_BONUS);

    if (task->rule == TT_GREEDY) return view_mode(view, k);
    if (task->rule == TT_COUPLED) return view_race(view, k, bonus.token_index);
    return view_draw(view, k, VERIFY_WHOLE, -1, &bonus);
}

VERIFY_FN void verify_decide(const struct verify_task *task, VERIFY_VIEW *view, int32_t k,
                             struct verify_decision *out)
{
    out->accepted = 0;
    out->soft = 0.0f;
    out->next = -1;
    if (task->rule == TT_RATIO) {
        verify_ratio(task, view, k, out);
    } else if (task->rule == TT_POINT_MASS) {
        verify_point_mass(task, view, k, out);
    } else {
        out->next = verify_emit(task, view, k);
        out->accepted = out->next == task->tokens[k];
        out->soft = out->accepted ? 1.0f : 0.0f;
    }
}

/* Decide one block; *out was cleared. Returns 0, or the negative status that reaching a row
 * returned. */
VERIFY_FN int verify_block(const struct verify_task *task, VERIFY_VIEW *view,
                           struct tt_verdict *out)
{
    const int32_t admitted = verify_admitted(task);

    out->next = -1;
    for (int32_t k = 0; k <= admitted; k++) {
        const int reached = view_reach(view, k, task->rule == TT_RATIO && k < admitted);
        if (reached < 0) return reached;
        if (reached == VERIFY_TARGET_FLAGGED) {
            out->flags |= TT_ROW_FLAGGED;
            break;
        }
        if (reached == VERIFY_DRAFT_FLAGGED) out->flags |= TT_DRAFT_FLAGGED;
        if (reached == VERIFY_DRAFT_FLAGGED || k == admitted) {
            out->next = verify_emit(task, view, k);
            break;
        }
        struct verify_decision decision;
        verify_decide(task, view, k, &decision);
        out->soft[out->labels++] = decision.soft;
        if (!decision.accepted) {
            out->next = decision.next;
            break;
        }
        out->accepted++;
    }
    return TT_OK;
}

#endif
