/* rows_cuda.h - row statistics on a CUDA device: the C interface of rows.cu. Internal to kernels/.
 *
 * The kernels are the bodies of the CPU objects (row_body.h), one warp a chunk, and give the same
 * bits.
 */
#ifndef KERNELS_ROWS_CUDA_H
#define KERNELS_ROWS_CUDA_H

#include "kernels/trimtab.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Name of the device as "cuda:sm_90", or NULL where there is none that this build can run on. */
const char *rows_cuda_device(void);

/* Statistics of rows in host memory: copied over, computed, copied back. inverse_temperature is
 * (rows) or NULL for 1. 0, TT_ENOTSUP without a device, TT_ENOMEM. */
int rows_cuda_statistics(const struct tt_rows *rows, const float *inverse_temperature,
                         struct tt_row_stats *out);

#ifdef __cplusplus
}
#endif
#endif
