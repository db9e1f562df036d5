/* vllm_fit.h - trimtab's own fit of a vLLM node's acceptance (`online`) from what its verification
 * revealed, and the guard over it: are its predictions worse than those of the coefficients that it
 * replaced?
 *
 * The guard compares log losses of the same labels, each under the coefficients in force and under
 * the reference, with what is older forgotten by 0.9 a reading: a difference that is both
 * noticeable (0.005 nats a label) and clear (three of its standard errors, 300 labels) means worse.
 */
#ifndef CONTROLLER_VLLM_FIT_H
#define CONTROLLER_VLLM_FIT_H

#include <stdbool.h>
#include <stdint.h>

#include "controller/vllm_reply.h"
#include "kernels/trimtab.h"

enum { /* enough seen to take over */
       VLLM_FIT_READY_REFITS = 10,
       VLLM_FIT_READY_LABELS = 500
};

struct vllm_fit;

struct vllm_fit *
vllm_fit_new(int positions);              /* NULL when out of memory or positions out of range */
void vllm_fit_free(struct vllm_fit *fit); /* NULL-safe */
/* The coefficients that the fit takes the place of; the guard begins anew. */
void vllm_fit_set_reference(struct vllm_fit *fit, const struct vllm_coefficients *reference);
/* One reading: its rows were drafted under `in_force`. Returns how many refits happened. */
int vllm_fit_observe(struct vllm_fit *fit, const struct vllm_reply *reply,
                     const struct vllm_coefficients *in_force);
/* Enough seen to take over. */
bool vllm_fit_ready(const struct vllm_fit *fit);
/* As the engine can take them; positions 0 when they are not finite. */
void vllm_fit_coefficients(const struct vllm_fit *fit, struct vllm_coefficients *out);
void vllm_fit_report(const struct vllm_fit *fit, struct tt_estimator_report *out);
/* Predictions in force are worse than the reference's: by *nats a label. */
bool vllm_fit_is_worse(const struct vllm_fit *fit, double *nats);

#endif
