/* strata.c - see strata.h. */
#include "config.h"

#include <assert.h>
#include <math.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/cause.h"
#include "controller/strata.h"

#define FILE_MAGIC "trimtab strata 1\n"
#define LARGEST_BLOB (1 << 20)

struct strata {
    tt_estimator *estimator[STRATA_ESTIMATORS], *rival[STRATA_ESTIMATORS];
    unsigned long long labels[STRATA_ESTIMATORS];
    bool stepped[STRATA_ESTIMATORS]; /* saw labels since its last prior */
    tt_estimator *pooled;
    enum tt_estimator_kind kind;
    int positions, refit_interval_steps;
};

/* Model drafts: greedy, then point mass, ratio and coupled in two bands. N-gram drafts: greedy,
 * point mass, coupled. */
static const char *const names[2 * STRATA_ESTIMATORS] = {
    "model/greedy/t0",        "model/point/low",       "model/point/high",
    "model/ratio/low",        "model/ratio/high",      "model/coupled/low",
    "model/coupled/high",     "ngram/greedy/t0",       "ngram/point/low",
    "ngram/point/high",       "ngram/coupled/low",     "ngram/coupled/high",
    "model/greedy/t0/adj",    "model/point/low/adj",   "model/point/high/adj",
    "model/ratio/low/adj",    "model/ratio/high/adj",  "model/coupled/low/adj",
    "model/coupled/high/adj", "ngram/greedy/t0/adj",   "ngram/point/low/adj",
    "ngram/point/high/adj",   "ngram/coupled/low/adj", "ngram/coupled/high/adj",
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

static tt_estimator *new_estimator(int positions, enum tt_estimator_kind kind,
                                   int refit_interval_steps)
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
    strata->positions = positions;
    strata->refit_interval_steps = refit_interval_steps;
    strata->pooled = new_estimator(positions, kind, refit_interval_steps);
    for (int i = 0; i < STRATA_ESTIMATORS; i++) {
        strata->estimator[i] = new_estimator(positions, kind, refit_interval_steps);
        strata->rival[i] = new_estimator(positions, kind == TT_ONLINE ? TT_PARITY : TT_ONLINE, 0);
        complete = complete && strata->estimator[i] && strata->rival[i];
    }
    if (complete && strata->pooled) return strata;
    strata_free(strata);
    return NULL;
}

void strata_free(struct strata *strata)
{
    if (!strata) return;
    for (int i = 0; i < STRATA_ESTIMATORS; i++) {
        tt_estimator_free(strata->estimator[i]);
        tt_estimator_free(strata->rival[i]);
    }
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
    if (stratum >= STRATA_ESTIMATORS)
        return -1; /* an adjusted request gives no label: nothing to explore */
    return tt_estimator_starved(strata->estimator[stratum]);
}

/* The rival is judged by its own predictions, and fitted to them where its kind wants that. */
static void observe_rival(tt_estimator *rival, const struct tt_observation *observation)
{
    float predicted[TT_MAX_POSITIONS];
    struct tt_observation own = *observation;

    for (int k = 0; k < observation->admitted; k++) {
        double probability = 0;
        tt_estimator_predict(rival, k, &observation->feature[k], 1, &probability);
        predicted[k] = (float)probability;
    }
    own.predicted = predicted;
    tt_estimator_observe(rival, &own);
}

void strata_observe(struct strata *strata, int stratum, const struct tt_observation *observation)
{
    int labels = observation->accepted < observation->admitted ? observation->accepted + 1
                                                               : observation->admitted;

    if (stratum >= STRATA_ESTIMATORS || labels == 0) return;
    if (tt_estimator_observe(strata->estimator[stratum], observation) != TT_OK) return;
    tt_estimator_observe(strata->pooled, observation);
    observe_rival(strata->rival[stratum], observation);
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

void strata_end_step(struct strata *strata, void (*refitted)(void *state, int stratum, int bits),
                     void *state)
{
    int bits = tt_estimator_end_step(strata->pooled);

    if (bits > 0 && (bits & TT_STEP_REFIT)) share_pooled(strata);
    for (int i = 0; i < STRATA_ESTIMATORS; i++) {
        if (strata->labels[i] == 0) continue;
        bits = tt_estimator_end_step(strata->estimator[i]);
        tt_estimator_end_step(strata->rival[i]);
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

bool strata_rival(const struct strata *strata, int stratum, struct tt_estimator_report *out)
{
    if (stratum >= STRATA_ESTIMATORS || strata->labels[stratum] == 0) return false;
    return tt_estimator_report(strata->rival[stratum], out) == TT_OK && out->labels > 0;
}

/* ----------------------------------------------------------------------------------------------------
 * the file */

/* Magic, one line of key and settings, then for each estimator its labels, blob size and blob; the
 * pooled one is last. */

static void print_key(const struct strata *strata, const char *key, char *line, size_t size)
{
    snprintf(line, size, "%s|kind %d|positions %d|interval %d\n", key, (int)strata->kind,
             strata->positions, strata->refit_interval_steps);
}

static bool write_one(FILE *file, const tt_estimator *estimator, unsigned long long labels)
{
    size_t size = 0;
    void *blob = NULL;
    bool written = false;

    if (tt_estimator_save(estimator, NULL, 0, &size) != TT_OK || !(blob = malloc(size))) goto out;
    written = tt_estimator_save(estimator, blob, size, NULL) == TT_OK &&
              fwrite(&labels, sizeof labels, 1, file) == 1 &&
              fwrite(&size, sizeof size, 1, file) == 1 && fwrite(blob, 1, size, file) == size;
out:
    free(blob);
    return written;
}

bool strata_save(const struct strata *strata, const char *path, const char *key, char **cause)
{
    char part[4096], line[1024];
    FILE *file;
    bool written;

    snprintf(part, sizeof part, "%s.part", path);
    print_key(strata, key, line, sizeof line);
    file = fopen(part, "we");
    written = file && fputs(FILE_MAGIC, file) >= 0 && fputs(line, file) >= 0;
    for (int i = 0; i < STRATA_ESTIMATORS && written; i++)
        written = write_one(file, strata->estimator[i], strata->labels[i]);
    if (written) written = write_one(file, strata->pooled, 0);
    if (file && fclose(file) != 0) written = false;
    if (written && rename(part, path) == 0) return true;
    cause_set(cause, "cannot keep what was learned in %s: %s", path, strerror(errno));
    unlink(part);
    return false;
}

static tt_estimator *read_one(FILE *file, unsigned long long *labels)
{
    tt_estimator *estimator = NULL;
    size_t size = 0;
    void *blob = NULL;

    if (fread(labels, sizeof *labels, 1, file) != 1 || fread(&size, sizeof size, 1, file) != 1 ||
        size == 0 || size > LARGEST_BLOB || !(blob = malloc(size)) ||
        fread(blob, 1, size, file) != size || tt_estimator_load(&estimator, blob, size) != TT_OK)
        estimator = NULL;
    free(blob);
    return estimator;
}

bool strata_load(struct strata *strata, const char *path, const char *key)
{
    struct strata fresh = *strata;
    char line[1024], found[1024];
    FILE *file = fopen(path, "re");
    bool complete;

    if (!file) return false;
    memset(fresh.estimator, 0, sizeof fresh.estimator);
    fresh.pooled = NULL;
    print_key(strata, key, line, sizeof line);
    complete = fgets(found, sizeof found, file) && strcmp(found, FILE_MAGIC) == 0 &&
               fgets(found, sizeof found, file) && strcmp(found, line) == 0;
    for (int i = 0; i < STRATA_ESTIMATORS && complete; i++)
        complete = (fresh.estimator[i] = read_one(file, &fresh.labels[i])) != NULL;
    if (complete) {
        unsigned long long unused;

        complete = (fresh.pooled = read_one(file, &unused)) != NULL && fgetc(file) == EOF;
    }
    fclose(file);
    for (int i = 0; i < STRATA_ESTIMATORS; i++)
        tt_estimator_free(complete ? strata->estimator[i] : fresh.estimator[i]);
    tt_estimator_free(complete ? strata->pooled : fresh.pooled);
    if (complete) *strata = fresh;
    return complete;
}
