/* calibration_body.h - the arithmetic of the calibration sums, one text for C and CUDA. What they
 * mean is told in calibration.c, the state in calibration.h.
 *
 * A label is sorted into its bins once; then every sum adds its terms in the order of the labels,
 * so that a device that gives each sum a thread of its own finds the bits of the CPU.
 */
#ifndef KERNELS_CALIBRATION_BODY_H
#define KERNELS_CALIBRATION_BODY_H

#include <stdbool.h>

#include "kernels/calibration.h"
#include "kernels/estimator_maths.h"

#define CALIBRATION_UNIT_LIMIT 1e9 /* where the growing unit is divided out again */

/* One label, sorted. */
struct calibration_label {
    double probability;
    double outcome;       /* 0 or 1 */
    int bin, feature_bin; /* of the probability; of the feature, in its outcome's histogram */
    double surprise;      /* -log of the probability of what happened */
};

LANE_FN int calibration_bin_of(double value, double low, double high, int bins)
{
    const int bin = (int)((value - low) / (high - low) * bins);
    return bin < 0 ? 0 : bin >= bins ? bins - 1 : bin;
}

LANE_FN void calibration_sort(double feature, double probability, int outcome,
                              struct calibration_label *out)
{
    const double y = outcome ? 1.0 : 0.0;
    const double f = double_clamp(feature, -CALIBRATION_FEATURE_LIMIT, CALIBRATION_FEATURE_LIMIT);
    out->probability = probability;
    out->outcome = y;
    out->bin = calibration_bin_of(probability, 0.0, 1.0, TT_CALIBRATION_BINS);
    out->feature_bin = calibration_bin_of(f, -CALIBRATION_FEATURE_LIMIT, CALIBRATION_FEATURE_LIMIT,
                                          CALIBRATION_FEATURE_BINS);
    out->surprise = surprise_double(outcome ? probability : 1.0 - probability);
}

LANE_FN void calibration_add_bin(struct tt_calibration_bin *__restrict bin, double unit,
                                 const struct calibration_label *__restrict label)
{
    bin->n += unit;
    bin->sum_p += unit * label->probability;
    bin->sum_y += unit * label->outcome;
}

LANE_FN void calibration_add_position(struct calibration *__restrict calibration, double unit,
                                      int32_t position,
                                      const struct calibration_label *__restrict label)
{
    calibration->reached[position] += unit;
    calibration->accepted[position] += unit * label->outcome;
    calibration->predicted[position] += unit * label->probability;
}

LANE_FN void calibration_add_scores(struct calibration *__restrict calibration, double unit,
                                    const struct calibration_label *__restrict label)
{
    const double error = label->outcome - label->probability;
    calibration->n += unit;
    calibration->squared_error += unit * error * error;
    calibration->surprise += unit * label->surprise;
}

/* End of a step; true when every sum must now be scaled by 1 / unit, and the unit by itself. */
LANE_FN bool calibration_age(struct calibration *calibration)
{
    calibration->unit /= CALIBRATION_FORGET;
    return calibration->unit > CALIBRATION_UNIT_LIMIT;
}

LANE_FN void calibration_scale_position(struct calibration *calibration, double scale,
                                        int32_t position)
{
    for (int b = 0; b < TT_CALIBRATION_BINS; b++) {
        struct tt_calibration_bin *bin = &calibration->bin[position][b];
        bin->n *= scale;
        bin->sum_p *= scale;
        bin->sum_y *= scale;
    }
    calibration->reached[position] *= scale;
    calibration->accepted[position] *= scale;
    calibration->predicted[position] *= scale;
}

LANE_FN void calibration_scale_feature(struct calibration *calibration, double scale, int bin)
{
    calibration->by_feature[0][bin] *= scale;
    calibration->by_feature[1][bin] *= scale;
}

/* The sums that belong to no bin; last, because it makes the unit 1 again. */
LANE_FN void calibration_scale_scores(struct calibration *calibration, double scale)
{
    calibration->n *= scale;
    calibration->squared_error *= scale;
    calibration->surprise *= scale;
    calibration->unit = 1.0;
}

#endif
