/* estimator_handle.h - what a tt_estimator holds; shared by estimator.c (behaviour) and
 * estimator_blob.c (save, load). Internal to libtrimtab. */
#ifndef TRIMTAB_KERNELS_ESTIMATOR_HANDLE_H
#define TRIMTAB_KERNELS_ESTIMATOR_HANDLE_H

#include "kernels/calibration.h"
#include "kernels/online.h"
#include "kernels/parity.h"
#include "kernels/trimtab.h"

struct tt_estimator {
    enum tt_estimator_kind kind;
    int32_t positions;
    uint64_t steps, labels, flagged;
    uint64_t position_labels[TT_MAX_POSITIONS];
    double recent_labels[TT_MAX_POSITIONS]; /* forgotten by 0.99 a step: starvation */
    struct calibration calibration;
    union { /* by kind */
        struct online online;
        struct parity parity;
    } u;
};

#endif
