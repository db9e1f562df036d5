/* trim.c - one step of a speculating engine with libtrimtab: draft, trim, verify, learn.
 * Build: cc trim.c $(pkg-config --cflags --libs trimtab) -lm -o trim */
#include <math.h>
#include <stdio.h>
#include <trimtab.h>

enum { VOCAB = 1000, K = 4, BUDGET = 3 }; /* at most BUDGET drafts are worth verifying */

static float draft[K][VOCAB], target[K + 1][VOCAB];

static void run_models(void) /* stands for the engine's two forward passes */
{
    for (int k = 0; k <= K; k++)
        for (int v = 0; v < VOCAB; v++) {
            target[k][v] = 6.0f * sinf((float)(v * (k + 3)));
            if (k < K) draft[k][v] = target[k][v] + sinf((float)v);
        }
}

static int done(int status) /* 0 or more is success */
{
    if (status < 0) fprintf(stderr, "trim: %s\n", tt_strerror(status));
    return status >= 0;
}

int main(void)
{
    const struct tt_options options = {"cpu", NULL, VOCAB, K};
    const struct tt_estimator_options learning = {TT_ONLINE, K, 0, (double)NAN, (double)NAN};
    const uint64_t key = tt_stream_key(42, 0, 0),
                   index = 0; /* the request's stream, and its place */
    const int32_t drafted = K;
    struct tt_row_stats stats[K];
    static struct tt_block block;
    struct tt_verdict verdict;
    tt *handle;
    tt_estimator *estimator;
    float feature[K], predicted[K];
    double probability[K], survival[K];
    int32_t tokens[K], admitted;

    if (!done(tt_open(&handle, &options)) || !done(tt_estimator_new(&estimator, &learning)))
        return 1;
    run_models();
    for (int k = 0; k < K; k++) { /* a draft, and the chance that it will be accepted */
        const struct tt_rows row = {draft[k], TT_F32, 1, VOCAB, VOCAB};
        if (!done(tt_row_statistics(handle, &row, NULL, &stats[k])) ||
            !done(tt_sample(handle, &row, 1.0f, &stats[k], key, index + (uint64_t)k, (uint32_t)k,
                            TT_DRAFT, &tokens[k])))
            return 1;
        feature[k] = tt_feature(&stats[k], 16.0f);
        if (!done(tt_estimator_predict(estimator, k, &feature[k], 1, &probability[k]))) return 1;
        predicted[k] = (float)probability[k];
    }
    if (!done(tt_survival(probability, K, survival)) ||
        !done(tt_allocate(survival, 1, K, &drafted, BUDGET, &admitted))) /* all requests at once */
        return 1;
    block.rule = TT_RATIO;
    block.target = &target[0][0];
    block.draft = &draft[0][0];
    block.vocab = block.target_stride = block.draft_vocab = block.draft_stride = VOCAB;
    block.tokens = tokens;
    block.admitted = admitted;
    block.temperature = 1.0f;
    block.key = key;
    block.token_index = index;
    block.draft_stats = stats;
    if (!done(tt_verify(handle, &block, &verdict))) return 1;
    const struct tt_observation seen = {feature, verdict.soft, predicted, admitted,
                                        verdict.accepted};
    if (!done(tt_estimator_observe(estimator, &seen)) || !done(tt_estimator_end_step(estimator)))
        return 1;
    printf("drafted %d, admitted %d, accepted %d, then token %d\n", K, admitted, verdict.accepted,
           verdict.next);
    tt_estimator_free(estimator);
    tt_close(handle);
    return 0;
}
