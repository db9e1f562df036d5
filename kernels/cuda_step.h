/* cuda_step.h - how a kernel finds the rows of a ragged step (struct tt_cuda_step). Included by .cu
 * files alone.
 */
#ifndef KERNELS_CUDA_STEP_H
#define KERNELS_CUDA_STEP_H

#include "kernels/cuda_body.h"

/* One request of a step. */
struct step_request {
    enum tt_rule rule;
    int32_t admitted; /* up to the first padding */
    float inverse_temperature;
};

CUDA_FN float *step_target(const struct tt_cuda_step *step, size_t r, size_t k)
{
    const size_t first = step->first_row ? (size_t)step->first_row[r] : r * (step->positions + 1);
    return step->target + (first + k) * step->target_stride;
}

CUDA_FN const float *step_draft(const struct tt_cuda_step *step, size_t r, size_t k)
{
    return step->draft + (r * step->positions + k) * step->draft_stride;
}

CUDA_FN bool is_positive(float x)
{
    return x > 0.0f && x < row_infinity();
}

/* Whether the request's numbers and tokens are in range. What is written of one that is not: a
 * verdict with TT_REQUEST_REFUSED. */
CUDA_FN bool step_request_of(const struct tt_cuda_step *step, size_t r, struct step_request *out)
{
    const int32_t rule = step->rule ? step->rule[r] : (int32_t)step->all_rule;
    const float temperature = step->temperature[r];
    const int32_t admitted = step->admitted[r];

    if (rule < TT_GREEDY || rule > TT_COUPLED || !(step->rules >> rule & 1u)) return false;
    if (admitted < 0 || (size_t)admitted > step->positions) return false;
    if (rule == TT_GREEDY ? temperature != 0.0f
                          : !is_positive(temperature) || !is_positive(1.0f / temperature))
        return false;
    if (step->first_row && step->first_row[r] < 0) return false;
    const size_t vocab = rule == TT_RATIO ? step->draft_vocab : step->vocab;
    out->rule = (enum tt_rule)rule;
    out->admitted = admitted;
    out->inverse_temperature = rule == TT_GREEDY ? 1.0f : 1.0f / temperature;
    for (int32_t k = admitted; k-- > 0;) {
        const int32_t token = step->tokens[r * step->positions + (size_t)k];
        if (token < -1 || (token >= 0 && (size_t)token >= vocab)) return false;
        if (token == -1) out->admitted = k;
    }
    return true;
}

/* Whether draft row k of a request is measured here. */
CUDA_FN bool step_measures_draft(const struct tt_cuda_step *step,
                                 const struct step_request *request, size_t k)
{
    return request->rule == TT_RATIO && !step->draft_stats && k < (size_t)request->admitted;
}

#endif
