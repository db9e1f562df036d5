/* verify_rows.h - tt_verify with a choice of the caller's: what the law tests enumerate. Internal
 * to kernels/. */
#ifndef KERNELS_VERIFY_ROWS_H
#define KERNELS_VERIFY_ROWS_H

#include "kernels/choice.h"

/* The block has been checked. Returns 0 or a negative status. */
int verify_rows(tt *handle, const struct tt_block *block, struct choice *choice,
                struct tt_verdict *out);

#endif
