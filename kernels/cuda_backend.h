/* cuda_backend.h - backend "cuda" as the C files see it: opened with a handle, asked after a call's
 * arguments were checked. A build without CUDA links cuda_none.c, which refuses to open. Internal
 * to kernels/.
 *
 * Rows may lie in host or in device memory; the rest of the arguments is the host's. Every call
 * waits for its result. An error of the device becomes TT_EDEVICE with words in the handle's
 * message, then and ever after.
 */
#ifndef KERNELS_CUDA_BACKEND_H
#define KERNELS_CUDA_BACKEND_H

#include "kernels/choice.h"
#include "kernels/trimtab.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_backend;
struct row_partial;

/* A workspace on device `ordinal`. TT_ENOTSUP without one, TT_ENOMEM, TT_EDEVICE; words (room) then
 * say what is missing. *out is NULL on failure. */
int cuda_backend_open(struct cuda_backend **out, const struct tt_options *options, int ordinal,
                      char *words, size_t room);
void cuda_backend_close(struct cuda_backend *backend); /* NULL-safe */
const char *cuda_backend_isa(const struct cuda_backend *backend);
/* Room for what tt_row_statistics remembers, on the device; see struct row_memory. */
struct row_partial *cuda_backend_memory(const struct cuda_backend *backend);

int cuda_row_statistics(tt *handle, const struct tt_rows *rows, const float *inverse_temperature,
                        struct tt_row_stats *out);
/* partials: those remembered of the row, or NULL. */
int cuda_sample(tt *handle, const struct tt_rows *row, float inverse_temperature,
                const struct tt_row_stats *stats, const struct row_partial *partials, uint64_t key,
                const struct choice_site *site, int32_t *token);
int cuda_sample_coupled(tt *handle, const struct tt_rows *row, float inverse_temperature,
                        uint64_t key, uint64_t token_index, int32_t *token);
int cuda_transform_row(tt *handle, float *row, size_t vocab, const struct tt_transform *transform,
                       const int32_t *extra, size_t extra_count);
int cuda_verify(tt *handle, const struct tt_block *block, struct tt_verdict *out);

#ifdef __cplusplus
}
#endif
#endif
