/* abi_layout.c - the layout of the public structs and the values of the public constants, one a
 * line: the half of the ABI that a symbol table does not show. abi.test compares it with
 * kernels/libtrimtab.symbols, and with the headers for completeness. */
#include <stddef.h>
#include <stdio.h>

#include "kernels/trimtab_cuda.h"

#define STRUCT(name) printf("struct %s %zu\n", #name, sizeof(struct name))
#define MEMBER(name, member)                                                                       \
    printf("member %s.%s %zu %zu\n", #name, #member, offsetof(struct name, member),                \
           sizeof(((struct name *)0)->member))
#define VALUE(name) printf("value %s %d\n", #name, (int)name)

static void print_structs(void)
{
    STRUCT(tt_options);
    MEMBER(tt_options, backend);
    MEMBER(tt_options, isa);
    MEMBER(tt_options, vocab);
    MEMBER(tt_options, max_rows);
    STRUCT(tt_rows);
    MEMBER(tt_rows, data);
    MEMBER(tt_rows, dtype);
    MEMBER(tt_rows, rows);
    MEMBER(tt_rows, vocab);
    MEMBER(tt_rows, stride);
    STRUCT(tt_row_stats);
    MEMBER(tt_row_stats, argmax);
    MEMBER(tt_row_stats, max);
    MEMBER(tt_row_stats, rest);
    MEMBER(tt_row_stats, log_odds);
    MEMBER(tt_row_stats, log_norm);
    MEMBER(tt_row_stats, flags);
    STRUCT(tt_logit_bias);
    MEMBER(tt_logit_bias, token);
    MEMBER(tt_logit_bias, bias);
    STRUCT(tt_token_count);
    MEMBER(tt_token_count, token);
    MEMBER(tt_token_count, count);
    STRUCT(tt_transform);
    MEMBER(tt_transform, temperature);
    MEMBER(tt_transform, top_k);
    MEMBER(tt_transform, top_p);
    MEMBER(tt_transform, min_p);
    MEMBER(tt_transform, presence_penalty);
    MEMBER(tt_transform, frequency_penalty);
    MEMBER(tt_transform, repetition_penalty);
    MEMBER(tt_transform, bias);
    MEMBER(tt_transform, bias_count);
    MEMBER(tt_transform, counts);
    MEMBER(tt_transform, counts_count);
    STRUCT(tt_block);
    MEMBER(tt_block, rule);
    MEMBER(tt_block, target);
    MEMBER(tt_block, target_stride);
    MEMBER(tt_block, vocab);
    MEMBER(tt_block, draft);
    MEMBER(tt_block, draft_stride);
    MEMBER(tt_block, draft_vocab);
    MEMBER(tt_block, tokens);
    MEMBER(tt_block, admitted);
    MEMBER(tt_block, temperature);
    MEMBER(tt_block, transform);
    MEMBER(tt_block, key);
    MEMBER(tt_block, token_index);
    MEMBER(tt_block, draft_stats);
    STRUCT(tt_verdict);
    MEMBER(tt_verdict, accepted);
    MEMBER(tt_verdict, next);
    MEMBER(tt_verdict, flags);
    MEMBER(tt_verdict, labels);
    MEMBER(tt_verdict, soft);
    STRUCT(tt_estimator_options);
    MEMBER(tt_estimator_options, kind);
    MEMBER(tt_estimator_options, positions);
    MEMBER(tt_estimator_options, refit_interval_steps);
    MEMBER(tt_estimator_options, prior_slope);
    MEMBER(tt_estimator_options, prior_level);
    STRUCT(tt_observation);
    MEMBER(tt_observation, feature);
    MEMBER(tt_observation, soft);
    MEMBER(tt_observation, predicted);
    MEMBER(tt_observation, admitted);
    MEMBER(tt_observation, accepted);
    STRUCT(tt_position_report);
    MEMBER(tt_position_report, intercept);
    MEMBER(tt_position_report, intercept_se);
    MEMBER(tt_position_report, reached);
    MEMBER(tt_position_report, accepted);
    MEMBER(tt_position_report, predicted);
    MEMBER(tt_position_report, n);
    STRUCT(tt_calibration_bin);
    MEMBER(tt_calibration_bin, n);
    MEMBER(tt_calibration_bin, sum_p);
    MEMBER(tt_calibration_bin, sum_y);
    STRUCT(tt_estimator_report);
    MEMBER(tt_estimator_report, kind);
    MEMBER(tt_estimator_report, positions);
    MEMBER(tt_estimator_report, slope);
    MEMBER(tt_estimator_report, slope_se);
    MEMBER(tt_estimator_report, level);
    MEMBER(tt_estimator_report, level_se);
    MEMBER(tt_estimator_report, centre);
    MEMBER(tt_estimator_report, steps);
    MEMBER(tt_estimator_report, refits);
    MEMBER(tt_estimator_report, rejected);
    MEMBER(tt_estimator_report, labels);
    MEMBER(tt_estimator_report, drift_events);
    MEMBER(tt_estimator_report, flagged);
    MEMBER(tt_estimator_report, drift_z);
    MEMBER(tt_estimator_report, ece);
    MEMBER(tt_estimator_report, brier);
    MEMBER(tt_estimator_report, log_loss);
    MEMBER(tt_estimator_report, auc);
    MEMBER(tt_estimator_report, position);
    MEMBER(tt_estimator_report, bin);
    STRUCT(tt_cuda_rows);
    MEMBER(tt_cuda_rows, data);
    MEMBER(tt_cuda_rows, dtype);
    MEMBER(tt_cuda_rows, rows);
    MEMBER(tt_cuda_rows, vocab);
    MEMBER(tt_cuda_rows, stride);
    MEMBER(tt_cuda_rows, inverse_temperature);
    STRUCT(tt_cuda_sites);
    MEMBER(tt_cuda_sites, key);
    MEMBER(tt_cuda_sites, token_index);
    MEMBER(tt_cuda_sites, position);
    MEMBER(tt_cuda_sites, purpose);
    STRUCT(tt_cuda_step);
    MEMBER(tt_cuda_step, requests);
    MEMBER(tt_cuda_step, positions);
    MEMBER(tt_cuda_step, rule);
    MEMBER(tt_cuda_step, all_rule);
    MEMBER(tt_cuda_step, rules);
    MEMBER(tt_cuda_step, target);
    MEMBER(tt_cuda_step, target_stride);
    MEMBER(tt_cuda_step, vocab);
    MEMBER(tt_cuda_step, first_row);
    MEMBER(tt_cuda_step, draft);
    MEMBER(tt_cuda_step, draft_stride);
    MEMBER(tt_cuda_step, draft_vocab);
    MEMBER(tt_cuda_step, draft_stats);
    MEMBER(tt_cuda_step, tokens);
    MEMBER(tt_cuda_step, admitted);
    MEMBER(tt_cuda_step, temperature);
    MEMBER(tt_cuda_step, key);
    MEMBER(tt_cuda_step, token_index);
    MEMBER(tt_cuda_step, transform);
    MEMBER(tt_cuda_step, verdict);
    STRUCT(tt_cuda_outcomes);
    MEMBER(tt_cuda_outcomes, rows);
    MEMBER(tt_cuda_outcomes, feature);
    MEMBER(tt_cuda_outcomes, feature_stride);
    MEMBER(tt_cuda_outcomes, predicted);
    MEMBER(tt_cuda_outcomes, predicted_stride);
    MEMBER(tt_cuda_outcomes, admitted);
    MEMBER(tt_cuda_outcomes, verdict);
    MEMBER(tt_cuda_outcomes, accepted);
    MEMBER(tt_cuda_outcomes, soft);
    MEMBER(tt_cuda_outcomes, soft_stride);
    MEMBER(tt_cuda_outcomes, step_bits);
    STRUCT(tt_cuda_drafts);
    MEMBER(tt_cuda_drafts, rows);
    MEMBER(tt_cuda_drafts, feature);
    MEMBER(tt_cuda_drafts, feature_stride);
    MEMBER(tt_cuda_drafts, drafted);
    MEMBER(tt_cuda_drafts, budget);
    MEMBER(tt_cuda_drafts, admitted);
    MEMBER(tt_cuda_drafts, total);
    MEMBER(tt_cuda_drafts, predicted);
    MEMBER(tt_cuda_drafts, predicted_stride);
    MEMBER(tt_cuda_drafts, survival);
    MEMBER(tt_cuda_drafts, survival_stride);
    STRUCT(tt_cuda_estimator_counts);
    MEMBER(tt_cuda_estimator_counts, refused_rows);
    MEMBER(tt_cuda_estimator_counts, step_bits);
}

static void print_values(void)
{
    VALUE(TT_MAX_POSITIONS);
    VALUE(TT_CALIBRATION_BINS);
    VALUE(TT_OK);
    VALUE(TT_EINVAL);
    VALUE(TT_ENOMEM);
    VALUE(TT_ENOTSUP);
    VALUE(TT_ELIMIT);
    VALUE(TT_EDEVICE);
    VALUE(TT_F32);
    VALUE(TT_F16);
    VALUE(TT_BF16);
    VALUE(TT_ROW_FLAGGED);
    VALUE(TT_DRAFT_FLAGGED);
    VALUE(TT_DRAFT);
    VALUE(TT_ACCEPT);
    VALUE(TT_RESIDUAL);
    VALUE(TT_BONUS);
    VALUE(TT_EXPLORE);
    VALUE(TT_GUMBEL);
    VALUE(TT_GREEDY);
    VALUE(TT_POINT_MASS);
    VALUE(TT_RATIO);
    VALUE(TT_COUPLED);
    VALUE(TT_ONLINE);
    VALUE(TT_PARITY);
    VALUE(TT_STEP_REFIT);
    VALUE(TT_STEP_DRIFT);
    VALUE(TT_STEP_REJECTED);
    VALUE(TT_REQUEST_REFUSED);
}

int main(void)
{
    print_structs();
    print_values();
    return 0;
}
