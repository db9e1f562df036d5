/* estimator_body.h - what an estimator does with a label, whichever its kind: one text for C
 * (estimator.c: request by request) and CUDA (estimator.cu: a thread a sum).
 */
#ifndef KERNELS_ESTIMATOR_BODY_H
#define KERNELS_ESTIMATOR_BODY_H

#include <stdbool.h>

#include "kernels/calibration_body.h"
#include "kernels/estimator_handle.h"
#include "kernels/online_body.h"
#include "kernels/parity_body.h"

/* Forgetting of the count that tells whether a position is starved of labels. */
#define STARVED_FORGET 0.99 /* a step */

/* Probability of acceptance given reached; 0 for a NaN feature. */
LANE_FN double estimator_probability(const struct tt_estimator *estimator, int32_t position,
                                     float feature)
{
    if (feature != feature) return 0.0;
    const double p = estimator->kind == TT_PARITY
                         ? (double)parity_probability(&estimator->u.parity, position, feature)
                         : online_probability(&estimator->u.online, position, (double)feature);
    return double_is_nan(p) ? 0.0 : p; /* parity: slope 0 times an infinite feature */
}

/* Positions that carry a label: those reached. */
LANE_FN int32_t observation_reached(const struct tt_observation *observation)
{
    return observation->accepted < observation->admitted ? observation->accepted + 1
                                                         : observation->admitted;
}

LANE_FN bool observation_valid(const struct tt_observation *observation, int32_t positions)
{
    if (observation->admitted < 0 || observation->admitted > positions ||
        observation->accepted < 0 || observation->accepted > observation->admitted ||
        (observation->admitted > 0 && observation->feature == NULL))
        return false;
    if (observation->soft != NULL) {
        for (int32_t k = 0; k < observation_reached(observation); k++) {
            if (!(observation->soft[k] >= 0.0F && observation->soft[k] <= 1.0F)) return false;
        }
    }
    if (observation->predicted != NULL) { /* NaN: none was made, as for a flagged row */
        for (int32_t k = 0; k < observation->admitted; k++) {
            if (observation->predicted[k] < 0.0F || observation->predicted[k] > 1.0F) return false;
        }
    }
    return true;
}

/* A reached position with a usable feature. */
struct estimator_label {
    double feature, soft;
    double predicted; /* what was acted on, else what the coefficients in force say */
    int hard;
};

/* False where the feature is not finite: then the position is flagged, and no label. Calibration
 * judges the prediction that was acted on; fitting grades at the coefficients in force. */
LANE_FN bool estimator_read_label(const struct tt_estimator *estimator,
                                  const struct tt_observation *observation, int32_t position,
                                  struct estimator_label *out)
{
    const float feature = observation->feature[position];
    if (!double_is_finite((double)feature)) return false;
    out->feature = (double)feature;
    out->hard = position < observation->accepted;
    out->soft = observation->soft != NULL ? (double)observation->soft[position] : (double)out->hard;
    const float *acted = observation->predicted;
    out->predicted = acted != NULL && acted[position] == acted[position]
                         ? (double)acted[position]
                         : estimator_probability(estimator, position, feature);
    return true;
}

LANE_FN void estimator_count_label(struct tt_estimator *estimator, int32_t position)
{
    estimator->position_labels[position]++;
    estimator->recent_labels[position] += 1.0;
}

/* The end of a step, as far as it concerns the counts of one position. */
LANE_FN void estimator_age_position(struct tt_estimator *estimator, int32_t position)
{
    estimator->recent_labels[position] *= STARVED_FORGET;
}

#endif
