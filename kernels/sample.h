/* sample.h - draws from fp32 rows through a choice: chunk, then group, then token. Internal to
 * kernels/. */
#ifndef KERNELS_SAMPLE_H
#define KERNELS_SAMPLE_H

#include "kernels/choice.h"
#include "kernels/handle.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Refusals: the row has no law; the statistics are those of another row. */
int sample_flagged(tt *handle);
int sample_foreign(tt *handle);

/* A token from softmax(row * inverse_temperature), given its partials and its largest logit. Never
 * a token of weight 0. */
int32_t sample_partials(tt *handle, const struct tt_rows *row, float inverse_temperature, float max,
                        const struct row_partial *partials, struct choice *choice,
                        const struct choice_site *site);

/* A token from max(p - q, 0), renormalised; -1 where that is 0 everywhere. */
int32_t sample_residual(tt *handle, const struct row_law *p, const struct row_law *q,
                        struct choice *choice, const struct choice_site *site);

#ifdef __cplusplus
}
#endif
#endif
