/* verify_core.c - accept, reject, recover: the decisions of speculative verification.
 *
 * One loop over the reached positions, the same for every rule; a rule says how a token is accepted
 * and what is drawn after a rejection. The output law equals the target's whatever the draft was:
 *   greedy       accept the mode;                    then the mode
 *   point mass   accept with probability p(x);       then p without x
 *   ratio        accept with min(1, p(x) / q(x));    then max(p - q, 0)     (arXiv 2211.17192,
 * theorem 1) coupled      accept the race's winner;           then that winner       (arXiv
 * 2408.07978) After the last admitted token the bonus comes from p (or is the mode, or the race's
 * winner).
 */
#include "config.h"

#include "kernels/verify_core.h"

#include <assert.h>
#include <string.h>

/* A block ends at its first padding. */
static int32_t admitted_of(const struct verify_task *task)
{
    int32_t k = 0;
    while (k < task->admitted && task->tokens[k] >= 0) k++;
    return k;
}

struct decision {
    int accepted;
    float soft;   /* label for fitting */
    int32_t next; /* the token instead, when rejected */
};

static struct decision decide_ratio(const struct verify_task *task, const struct verify_law *law,
                                    struct choice *choice, int32_t k)
{
    const int32_t x = task->tokens[k];
    const uint64_t index = task->token_index + (uint64_t)k;
    const struct choice_site accept = {index, (uint32_t)k, TT_ACCEPT};
    const struct choice_site recover = {index, (uint32_t)k, TT_RESIDUAL};
    const double p = law->target(law->context, k, x), q = law->draft(law->context, k, x);
    /* q = 0 cannot have been drawn; the token is refused, as the strict comparison u q < p refuses
     * p = 0. */
    const double ratio = !(q > 0.0) ? 0.0 : p >= q ? 1.0 : p / q;
    struct decision decision = {0, (float)ratio, -1};

    decision.accepted = choice_coin(choice, &accept, ratio);
    if (!decision.accepted)
        decision.next = law->draw(law->context, k, VERIFY_RESIDUAL, x, choice, &recover);
    return decision;
}

static struct decision decide_point_mass(const struct verify_task *task,
                                         const struct verify_law *law, struct choice *choice,
                                         int32_t k)
{
    const int32_t x = task->tokens[k];
    const uint64_t index = task->token_index + (uint64_t)k;
    const struct choice_site accept = {index, (uint32_t)k, TT_ACCEPT};
    const struct choice_site recover = {index, (uint32_t)k, TT_RESIDUAL};
    struct decision decision = {0, 0.0f, -1};

    decision.accepted = choice_coin(choice, &accept, law->target(law->context, k, x));
    decision.soft = decision.accepted ? 1.0f : 0.0f;
    if (!decision.accepted)
        decision.next = law->draw(law->context, k, VERIFY_WITHOUT, x, choice, &recover);
    return decision;
}

/* What the target alone would emit at k under a rule that knows its token beforehand, or the bonus
 * draw. */
static int32_t emit_target(const struct verify_task *task, const struct verify_law *law,
                           struct choice *choice, int32_t k)
{
    const uint64_t index = task->token_index + (uint64_t)k;
    const struct choice_site bonus = {index, (uint32_t)k, TT_BONUS};

    if (task->rule == TT_GREEDY) return law->mode(law->context, k);
    if (task->rule == TT_COUPLED) return law->race(law->context, k, choice, index);
    return law->draw(law->context, k, VERIFY_WHOLE, -1, choice, &bonus);
}

static struct decision decide(const struct verify_task *task, const struct verify_law *law,
                              struct choice *choice, int32_t k)
{
    if (task->rule == TT_RATIO) return decide_ratio(task, law, choice, k);
    if (task->rule == TT_POINT_MASS) return decide_point_mass(task, law, choice, k);
    const int32_t own = emit_target(task, law, choice, k);
    const int same = own == task->tokens[k];
    return (struct decision){same, same ? 1.0f : 0.0f, own};
}

int tt_verify_core(const struct verify_task *task, const struct verify_law *law,
                   struct choice *choice, struct tt_verdict *out)
{
    const int32_t admitted = admitted_of(task);

    memset(out, 0, sizeof *out);
    out->next = -1;
    for (int32_t k = 0; k <= admitted; k++) {
        const int reached = law->reach(law->context, k, task->rule == TT_RATIO && k < admitted);
        if (reached < 0) return reached;
        if (reached == VERIFY_TARGET_FLAGGED) {
            out->flags |= TT_ROW_FLAGGED;
            break;
        }
        if (reached == VERIFY_DRAFT_FLAGGED) out->flags |= TT_DRAFT_FLAGGED;
        if (reached == VERIFY_DRAFT_FLAGGED || k == admitted) {
            out->next = emit_target(task, law, choice, k);
            break;
        }
        const struct decision decision = decide(task, law, choice, k);
        out->soft[out->labels++] = decision.soft;
        if (!decision.accepted) {
            out->next = decision.next;
            break;
        }
        out->accepted++;
    }
    assert(out->accepted >= 0 && out->accepted <= admitted);
    assert(out->labels == out->accepted || out->labels == out->accepted + 1);
    return TT_OK;
}
