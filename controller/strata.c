/* strata.c - see strata.h. */
#include "config.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "controller/strata.h"

struct strata {
    tt_estimator *estimator[STRATA_ESTIMATORS];
    unsigned long long labels[STRATA_ESTIMATORS];
    bool stepped[STRATA_ESTIMATORS]; /* saw labels since its last prior */
    tt_estimator *pooled;
    enum tt_estimator_kind kind;
};

/* Model drafts: greedy, then point mass, ratio and coupled in two bands. N-gram drafts: greedy, point mass, coupled. */
static const char *const names[2 * STRATA_ESTIMATORS] = {
    "model/greedy/t0",     "model/point/low",      "model/point/high",  "model/ratio/low",
    "model/ratio/high",    "model/coupled/low",    "model/coupled/high", "ngram/greedy/t0",
    "ngram/point/low",     "ngram/point/high",     "ngram/coupled/low", "ngram/coupled/high",
    "model/greedy/t0/adj", "model/point/low/adj",  "model/point/high/adj", "model/ratio/low/adj",
    "model/ratio/high/adj", "model/coupled/low/adj", "model/coupled/high/adj", "ngram/greedy/t0/adj",
    "ngram/point/low/adj", "ngram/point/high/adj", "ngram/coupled/low/adj", "ngram/coupled/high/adj",
};

const char *drafter_name(enum drafter drafter)
{
    static const char *const name[] = {"none", "model", "ngram"};

    return name[drafter];
}

int strata_index(enum drafter drafter, enum tt_rule rule, float temperature, bool adjusted)
{
    int high = temperature >= 0.5f;
    int index = 0;

    if (drafter == DRAFTER_NGRAM)
        index = rule == TT_GREEDY ? 7 : rule == TT_COUPLED ? 10 + high : 8 + high;
    else if (rule == TT_POINT_MASS)
        index = 1 + high;
    else if (rule == TT_RATIO)
        index = 3 + high;
    else if (rule == TT_COUPLED)
        index = 5 + high;
    return adjusted ? index + STRATA_ESTIMATORS : index;
}

const char *strata_name(int stratum)
{
    assert(stratum >= 0 && stratum < 2 * STRATA_ESTIMATORS);
    return names[stratum];
}

static tt_estimator *new_estimator(int positions, enum tt_estimator_kind kind, int refit_interval_steps)
{
    struct tt_estimator_options options = {kind, positions, refit_interval_steps, NAN, NAN};
    tt_estimator *estimator = NULL;

    return tt_estimator_new(&estimator, &options) == TT_OK ? estimator : NULL;
}

struct strata *strata_new(int positions, enum tt_estimator_kind kind, int refit_interval_steps)
{
    struct strata *strata = calloc(1, sizeof *strata);
    bool complete = true;

    if (!strata) return NULL;
    strata->kind = kind;
    strata->pooled = new_estimator(positions, kind, refit_interval_steps);
    for (int i = 0; i < STRATA_ESTIMATORS; i++) {
        strata->estimator[i] = new_estimator(positions, kind, refit_interval_steps);
        complete = complete && strata->estimator[i];
    }
    if (complete && strata->pooled) return strata;
    strata_free(strata);
    return NULL;
}

void strata_free(struct strata *strata)
{
    if (!strata) return;
    for (int i = 0; i < STRATA_ESTIMATORS; i++) tt_estimator_free(strata->estimator[i]);
    tt_estimator_free(strata->pooled);
    free(strata);
}

double strata_predict(const struct strata *strata, int stratum, int position, float feature)
{
    double probability = 0;

    if (tt_estimator_predict(strata->estimator[stratum % STRATA_ESTIMATORS], position, &feature, 1,
                             &probability) != TT_OK)
        return 0;
    return probability;
}

int strata_starved(const struct strata *strata, int stratum)
{
    if (stratum >= STRATA_ESTIMATORS) return -1; /* an adjusted request gives no label: nothing to explore */
    return tt_estimator_starved(strata->estimator[stratum]);
}

void strata_observe(struct strata *strata, int stratum, const struct tt_observation *observation)
{
    int labels = observation->accepted < observation->admitted ? observation->accepted + 1 : observation->admitted;

    if (stratum >= STRATA_ESTIMATORS || labels == 0) return;
    if (tt_estimator_observe(strata->estimator[stratum], observation) != TT_OK) return;
    tt_estimator_observe(strata->pooled, observation);
    strata->labels[stratum] += (unsigned)labels;
    strata->stepped[stratum] = true;
}

/* The pooled fit becomes the prior mean of every stratum (online only: parity has no prior). */
static void share_pooled(struct strata *strata)
{
    struct tt_estimator_report report;

    if (strata->kind != TT_ONLINE || tt_estimator_report(strata->pooled, &report) != TT_OK) return;
    if (!isfinite(report.slope) || !isfinite(report.level)) return;
    for (int i = 0; i < STRATA_ESTIMATORS; i++)
        tt_estimator_set_prior(strata->estimator[i], report.slope, report.level);
}

void strata_end_step(struct strata *strata, void (*refitted)(void *state, int stratum, int bits), void *state)
{
    int bits = tt_estimator_end_step(strata->pooled);

    if (bits > 0 && (bits & TT_STEP_REFIT)) share_pooled(strata);
    for (int i = 0; i < STRATA_ESTIMATORS; i++) {
        if (strata->labels[i] == 0) continue;
        bits = tt_estimator_end_step(strata->estimator[i]);
        if (bits > 0 && strata->stepped[i]) {
            strata->stepped[i] = false;
            refitted(state, i, bits);
        }
    }
}

bool strata_report(const struct strata *strata, int stratum, struct tt_estimator_report *out)
{
    if (stratum >= STRATA_ESTIMATORS || strata->labels[stratum] == 0) return false;
    return tt_estimator_report(strata->estimator[stratum], out) == TT_OK;
}

unsigned long long strata_labels(const struct strata *strata, int stratum)
{
    return stratum < STRATA_ESTIMATORS ? strata->labels[stratum] : 0;
}
