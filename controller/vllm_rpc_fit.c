/* vllm_rpc_fit.c - see vllm_rpc_internal.h: take over, follow, give back. */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "controller/vllm_rpc_internal.h"

#define COEFFICIENT_STEP 1e-4 /* smaller moves are not worth a call */

/* Write the fit's coefficients where the engine's kernels read them. */
static bool write_coefficients(struct vllm_rpc *rpc, const struct vllm_coefficients *to, char *why,
                               size_t size)
{
    json_t *intercepts = json_array();
    struct vllm_reply reply = {0};
    bool good;

    for (int k = 0; k < to->positions; k++)
        json_array_append_new(intercepts, json_real(to->intercept[k]));
    good = rpc_command(rpc, "trimtab_set_coefficients", json_pack("[f, o]", to->slope, intercepts),
                       why, size, &reply);
    if (good && !vllm_coefficients_equal(&reply.coefficients, to)) {
        snprintf(why, size, "the coefficients do not read back as written");
        rpc_restore(rpc);
        good = false;
    }
    vllm_reply_clear(&reply);
    return good;
}

void rpc_want_fit(struct vllm_rpc *rpc, bool trimtab)
{
    rpc->wants_fit = trimtab;
    pthread_mutex_lock(&rpc->lock);
    rpc->view.trimtab_wanted = trimtab;
    pthread_mutex_unlock(&rpc->lock);
}

bool rpc_hold(struct vllm_rpc *rpc, bool held, char *why, size_t size)
{
    struct vllm_reply reply = {0};
    bool good = rpc_command(rpc, "trimtab_hold", json_pack("[i]", (int)held), why, size, &reply);

    vllm_reply_clear(&reply);
    return good;
}

static void give_up_fit(struct vllm_rpc *rpc, const char *why)
{
    rpc_want_fit(rpc, false);
    rpc_say(rpc, "warning", "estimator", "the engine fits again: %s", why);
    pthread_mutex_lock(&rpc->lock);
    snprintf(rpc->view.reason, sizeof rpc->view.reason, "the engine fits again: %.300s", why);
    pthread_mutex_unlock(&rpc->lock);
}

static void take_over(struct vllm_rpc *rpc, const struct vllm_coefficients *fitted)
{
    char why[sizeof rpc->view.reason];

    rpc->engines_own = rpc->in_force;
    vllm_fit_set_reference(rpc->fit, &rpc->engines_own);
    if (!rpc_hold(rpc, true, why, sizeof why) || !write_coefficients(rpc, fitted, why, sizeof why))
        give_up_fit(rpc, why);
    else
        rpc_say(rpc, "info", "estimator",
                "trimtab's coefficients are in force (slope %.3f, was %.3f)", fitted->slope,
                rpc->engines_own.slope);
}

/* The engine's own coefficients again, and its refit goes on from them. */
static void revert(struct vllm_rpc *rpc, double nats)
{
    char why[sizeof rpc->view.reason], undone[sizeof rpc->view.reason];

    snprintf(why, sizeof why,
             "trimtab's predictions were worse than those of the coefficients that it replaced, by "
             "%.4f nats a label; those are in force again",
             nats);
    if (!write_coefficients(rpc, &rpc->engines_own, undone, sizeof undone) ||
        !rpc_hold(rpc, false, undone, sizeof undone))
        snprintf(why, sizeof why, "%.390s", undone);
    give_up_fit(rpc, why);
}

static bool moved(const struct vllm_coefficients *a, const struct vllm_coefficients *b)
{
    bool far = fabs(a->slope - b->slope) > COEFFICIENT_STEP;

    for (int k = 0; k < a->positions; k++)
        far = far || fabs(a->intercept[k] - b->intercept[k]) > COEFFICIENT_STEP;
    return far;
}

void rpc_work_on_fit(struct vllm_rpc *rpc, const struct vllm_reply *reply,
                     const struct vllm_coefficients *graded)
{
    struct vllm_coefficients fitted;
    char why[sizeof rpc->view.reason];
    double nats;
    int refits;

    if (!rpc->fit && rpc->wants_fit && reply->coefficients.positions > 0)
        rpc->fit = vllm_fit_new(reply->coefficients.positions);
    if (!rpc->fit || reply->label_steps < 0) return;
    refits = vllm_fit_observe(rpc->fit, reply, graded);
    pthread_mutex_lock(&rpc->lock);
    vllm_fit_report(rpc->fit, &rpc->report);
    rpc->report_known = true;
    pthread_mutex_unlock(&rpc->lock);
    if (!rpc->wants_fit || refits == 0) return;
    vllm_fit_coefficients(rpc->fit, &fitted);
    if (fitted.positions != rpc->in_force.positions) return;
    if (!reply->held) {
        if (vllm_fit_ready(rpc->fit)) take_over(rpc, &fitted);
    } else if (vllm_fit_is_worse(rpc->fit, &nats)) {
        revert(rpc, nats);
    } else if (moved(&fitted, &rpc->in_force) &&
               !write_coefficients(rpc, &fitted, why, sizeof why)) {
        give_up_fit(rpc, why);
    }
}
