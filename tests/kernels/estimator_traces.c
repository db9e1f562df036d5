/* estimator_traces.c - both estimators on recorded traces of a model pair, and two variants of
 * `online` that might do better: labels for fitting that are hard outcomes only, and predictions
 * corrected by the reliability bins.
 *
 * usage: estimator_traces [--requests N] FILE...    files of one temperature; a table
 *
 * Every draft is verified, so that all see the same labels; N texts are read side by side. Judged
 * are the predictions of every position that was reached, after the first 200 blocks, against what
 * happened: log loss in nats, and the gap between predicted and accepted in ten bins.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/trace.h"

#define WARM_BLOCKS 200
#define BINS 10
#define BIN_PRIOR 20.0 /* labels' worth of trust in the prediction, for the correction by bins */

enum variant { ONLINE_SOFT, ONLINE_HARD, ONLINE_BINS, PARITY, FREQUENCY, VARIANTS };

static const char *const variant_name[VARIANTS] = {"online, as shipped", "online, hard labels",
                                                   "online, corrected by bins", "parity",
                                                   "acceptance per position, no feature"};

struct score {
    double loss, labels;
    double gap[BINS];
};

struct judge {
    struct trace_set *set;
    int depth;
    tt_estimator *estimator[FREQUENCY];
    double reached[TT_MAX_POSITIONS], accepted[TT_MAX_POSITIONS];
    struct score score[VARIANTS];
    long blocks;
};

static tt_estimator *estimator_new(enum tt_estimator_kind kind, int positions)
{
    const struct tt_estimator_options options = {
        .kind = kind, .positions = positions, .prior_slope = NAN, .prior_level = NAN};
    tt_estimator *estimator = NULL;
    if (tt_estimator_new(&estimator, &options) != TT_OK) abort();
    return estimator;
}

static double predict(const struct judge *judge, enum variant variant, int position, float feature)
{
    double p = NAN;
    if (variant == FREQUENCY)
        return (judge->accepted[position] + 1.0) / (judge->reached[position] + 2.0);
    if (tt_estimator_predict(judge->estimator[variant], position, &feature, 1, &p) != TT_OK)
        abort();
    if (variant != ONLINE_BINS) return p;
    struct tt_calibration_bin bin[TT_CALIBRATION_BINS];
    if (tt_estimator_calibration(judge->estimator[variant], position, bin) != TT_OK) abort();
    const struct tt_calibration_bin *own = &bin[p < 1.0 ? (int)(p * TT_CALIBRATION_BINS) : 9];
    return fmin(fmax(p + (own->sum_y - own->sum_p) / (own->n + BIN_PRIOR), 0.001), 0.999);
}

static void judge_label(struct score *score, double p, int accepted)
{
    const double bounded = fmin(fmax(p, 1e-12), 1.0 - 1e-12);
    score->loss -= accepted ? log(bounded) : log1p(-bounded);
    score->labels += 1.0;
    score->gap[p < 1.0 ? (int)(p * BINS) : BINS - 1] += accepted - p;
}

/* One block of drafts, all of them verified. */
static void judge_block(struct judge *judge, const struct trace_index *index)
{
    const int labelled = index->labelled < judge->depth ? index->labelled : judge->depth;
    const int accepted = index->accepted < judge->depth ? index->accepted : judge->depth;
    struct tt_observation observation = {.feature = index->feature, .accepted = accepted};
    /* a block that the text's end cut short ended for another reason than a rejection */
    observation.admitted = labelled > accepted ? judge->depth : accepted;
    for (int k = 0; k < labelled; k++) {
        for (int v = 0; v < VARIANTS && judge->blocks >= WARM_BLOCKS; v++)
            judge_label(&judge->score[v], predict(judge, (enum variant)v, k, index->feature[k]),
                        k < accepted);
        judge->reached[k] += 1.0;
        judge->accepted[k] += k < accepted;
    }
    for (int v = 0; v < FREQUENCY; v++) {
        const int soft = v != ONLINE_HARD && index->soft != NULL && labelled > 0 &&
                         !isnan(index->soft[labelled - 1]);
        observation.soft = soft ? index->soft : NULL;
        if (tt_estimator_observe(judge->estimator[v], &observation) != TT_OK) abort();
    }
    judge->blocks++;
}

/* `requests` texts side by side, each walked as verification would. */
static void judge_texts(struct judge *judge, int requests)
{
    const struct trace_set *set = judge->set;
    int *text = calloc((size_t)requests, sizeof(*text)),
        *at = calloc((size_t)requests, sizeof(*at));
    int next = 0, open = requests;
    if (text == NULL || at == NULL) abort();
    for (int r = 0; r < requests; r++) text[r] = next < set->count ? next++ : -1;
    while (open > 0) {
        open = 0;
        for (int r = 0; r < requests; r++) {
            while (text[r] >= 0 && at[r] >= set->text[text[r]].length) {
                text[r] = next < set->count ? next++ : -1;
                at[r] = 0;
            }
            if (text[r] < 0) continue;
            const struct trace_index index = trace_at(set, &set->text[text[r]], at[r]);
            judge_block(judge, &index);
            at[r] += index.accepted + 1;
            open++;
        }
        for (int v = 0; v < FREQUENCY; v++) {
            if (tt_estimator_end_step(judge->estimator[v]) < 0) abort();
        }
    }
    free(text);
    free(at);
}

static void print_scores(const struct judge *judge, int requests)
{
    printf("%ld blocks of up to %d drafts, %d texts side by side; nats a label, ECE %%\n",
           judge->blocks, judge->depth, requests);
    for (int v = 0; v < VARIANTS; v++) {
        const struct score *score = &judge->score[v];
        double gap = 0.0;
        for (int b = 0; b < BINS; b++) gap += fabs(score->gap[b]);
        printf("  %-36s %.4f %6.2f\n", variant_name[v], score->loss / score->labels,
               100.0 * gap / score->labels);
    }
}

int main(int argc, char **argv)
{
    struct judge judge = {.set = trace_set_new()};
    int requests = 1, first = 1;
    char *cause = NULL, *warning = NULL;
    if (argc > 2 && strcmp(argv[1], "--requests") == 0) {
        requests = atoi(argv[2]);
        first = 3;
    }
    if (first >= argc || requests < 1 || judge.set == NULL) {
        fprintf(stderr, "usage: estimator_traces [--requests N] FILE...\n");
        trace_set_free(judge.set);
        return 2;
    }
    for (int i = first; i < argc; i++) {
        const bool read = trace_read(judge.set, argv[i], -1.0, &warning, &cause);
        if (warning != NULL) fprintf(stderr, "%s\n", warning);
        free(warning);
        warning = NULL;
        if (read) continue;
        fprintf(stderr, "%s\n", cause);
        free(cause);
        trace_set_free(judge.set);
        return 1;
    }
    judge.depth = judge.set->depth;
    for (int v = 0; v < FREQUENCY; v++)
        judge.estimator[v] = estimator_new(v == PARITY ? TT_PARITY : TT_ONLINE, judge.depth);
    judge_texts(&judge, requests);
    print_scores(&judge, requests);
    for (int v = 0; v < FREQUENCY; v++) tt_estimator_free(judge.estimator[v]);
    trace_set_free(judge.set);
    return 0;
}
