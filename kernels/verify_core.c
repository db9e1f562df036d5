/* verify_core.c - the decisions of verify_body.h over laws behind function pointers, with every
 * random choice through a `choice`. */
#include "config.h"

#include "kernels/verify_core.h"

#include <assert.h>
#include <string.h>

struct verify_view {
    const struct verify_law *law;
    struct choice *choice;
};
#define VERIFY_VIEW const struct verify_view
#define VERIFY_FN static

VERIFY_FN int view_reach(VERIFY_VIEW *view, int32_t k, int with_draft)
{
    return view->law->reach(view->law->context, k, with_draft);
}

VERIFY_FN int32_t view_mode(VERIFY_VIEW *view, int32_t k)
{
    return view->law->mode(view->law->context, k);
}

VERIFY_FN double view_target(VERIFY_VIEW *view, int32_t k, int32_t token)
{
    return view->law->target(view->law->context, k, token);
}

VERIFY_FN double view_draft(VERIFY_VIEW *view, int32_t k, int32_t token)
{
    return view->law->draft(view->law->context, k, token);
}

VERIFY_FN int view_coin(VERIFY_VIEW *view, const struct choice_site *site, double probability)
{
    return choice_coin(view->choice, site, probability);
}

VERIFY_FN int32_t view_draw(VERIFY_VIEW *view, int32_t k, enum verify_remainder remainder,
                            int32_t without, const struct choice_site *site)
{
    return view->law->draw(view->law->context, k, remainder, without, view->choice, site);
}

VERIFY_FN int32_t view_race(VERIFY_VIEW *view, int32_t k, uint64_t token_index)
{
    return view->law->race(view->law->context, k, view->choice, token_index);
}

#include "kernels/verify_body.h"

int tt_verify_core(const struct verify_task *task, const struct verify_law *law,
                   struct choice *choice, struct tt_verdict *out)
{
    const struct verify_view view = {law, choice};

    memset(out, 0, sizeof *out);
    const int status = verify_block(task, &view, out);
    if (status) return status;
    assert(out->accepted >= 0 && out->accepted <= verify_admitted(task));
    assert(out->labels == out->accepted || out->labels == out->accepted + 1);
    return TT_OK;
}
