/* estimator_sim.c - both estimators on simulated acceptance streams, against the law that made
 * them.
 *
 * usage: estimator_sim [--steps N] [--seeds N] [--only SCENARIO]    a table of figures
 *        estimator_sim --check                                      a short run with bounds, in TAP
 *
 * Each scenario draws features and outcomes from a known law p_k(f, t); `online` and `parity` see
 * the same labels. Figures: excess log loss over the oracle that knows p (nats a label, x 1000),
 * coverage of the nominal 95 % intervals of slope and intercepts, drift alarms in 10,000 steps,
 * refits until the level is found again after a jump. Everything is seeded; the same arguments
 * print the same figures.
 */
#include "config.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/trimtab.h"

#define K 6
#define WARM_STEPS 400 /* not judged: both start from nothing */
#define RECOVERED 0.2  /* logit: the level counts as found again within this */
#define TRIM_BELOW 0.2 /* starvation: drafts whose predicted survival is lower are not verified */
#define EXPLORE 0.005  /* starvation: request-steps that probe down to the starved position */

/* ----------------------------------------------------------------------------------- randomness */

struct generator {
    uint64_t state;
};

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t next_word(struct generator *g)
{
    uint64_t z = g->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double uniform(struct generator *g)
{
    return ((double)(next_word(g) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(struct generator *g)
{
    return sqrt(-2.0 * log(uniform(g))) * cos(6.283185307179586 * uniform(g));
}

static double sigmoid(double u)
{
    return 1.0 / (1.0 + exp(-u));
}

/* ------------------------------------------------------------------------------------ scenarios */

enum scenario {
    WELL_SPECIFIED,
    SOFT_LABELS,
    WRONG_LINK,
    LEVEL_JUMP,
    DEEP_COLLAPSE,
    RANDOM_WALK,
    STARVATION,
    NEAR_CONSTANT,
    NEGATIVE_SLOPE,
    MIXED_TEMPERATURE,
    POISONED,
    SCENARIOS
};

static const char *const scenario_name[SCENARIOS] = {
    "well specified", "soft labels",       "wrong link",     "level jump",
    "deep collapse",  "random walk",       "starvation",     "near-constant f",
    "negative slope", "mixed temperature", "poisoned labels"};

/* Whether the law has a slope and intercepts of the model's form, for intervals to cover. */
static bool has_coefficients(enum scenario scenario)
{
    return scenario != WRONG_LINK && scenario != NEGATIVE_SLOPE && scenario != MIXED_TEMPERATURE &&
           scenario != POISONED;
}

struct law {
    enum scenario scenario;
    int steps;
    double slope, intercept[K];
    double walk; /* random walk of the common level */
    double jump; /* current offset of the level */
    double deep; /* current offset of positions 3 and deeper alone */
};

static void law_start(struct law *law, enum scenario scenario, int steps)
{
    memset(law, 0, sizeof(*law));
    law->scenario = scenario;
    law->steps = steps;
    law->slope = scenario == NEGATIVE_SLOPE ? -0.3 : 0.62;
    for (int k = 0; k < K; k++) law->intercept[k] = -0.25 - 0.06 * k + (k % 2 ? 0.08 : 0.0);
}

/* Move the law to step t. */
static void law_step(struct law *law, int t, struct generator *g)
{
    const bool middle = t >= law->steps / 3 && t < 2 * law->steps / 3;
    if (law->scenario == LEVEL_JUMP) law->jump = middle ? -0.8 : 0.0;
    if (law->scenario == STARVATION) law->jump = middle ? -2.5 : 0.0;
    if (law->scenario == DEEP_COLLAPSE) law->deep = middle ? -2.0 : 0.0;
    if (law->scenario == RANDOM_WALK) law->walk = 0.9995 * law->walk + 0.015 * normal(g);
}

static double draw_feature(const struct law *law, struct generator *g)
{
    if (law->scenario == NEAR_CONSTANT) return 3.0 + 0.03 * normal(g);
    /* skewed, as real log-odds are: most near 0 to 3, a tail of certain tokens */
    const double z = normal(g);
    return fmin(fmax(0.8 + 1.6 * z + 0.7 * z * z, -6.0), 16.0);
}

/* A request's own deviation: which of two temperatures, or a hostile client. */
static int draw_class(const struct law *law, struct generator *g)
{
    if (law->scenario == MIXED_TEMPERATURE) return uniform(g) < 0.5;
    if (law->scenario == POISONED) return uniform(g) < 0.05 ? 2 : 0;
    return 0;
}

/* The true intercept at feature 0. */
static double law_intercept(const struct law *law, int position)
{
    return law->intercept[position] + law->jump + law->walk + (position >= 3 ? law->deep : 0.0);
}

static double law_probability(const struct law *law, int position, double f, int class)
{
    if (law->scenario == WRONG_LINK) return 0.03 + 0.9 * pow(sigmoid(0.9 * f - 0.2), 1.5);
    if (class == 1) return sigmoid(0.92 * f + 0.25 + law->intercept[position] + 0.3);
    if (class == 2) return 0.0; /* always rejected, whatever the draft says */
    return sigmoid(law->slope * f + law_intercept(law, position));
}

/* -------------------------------------------------------------------------------------- figures */

struct figures {
    double excess[2]; /* by kind: sum over labels of KL(p || predicted) */
    double labels;
    double covered, intervals;            /* online, scenarios with true coefficients */
    double alarms, steps;                 /* online */
    double recovery, recoveries;          /* refits, summed over jumps */
    double starved_error, starved_checks; /* starvation: |deep intercept - truth| at the end */
    double parity_error;
    bool unsound; /* a non-finite coefficient */
};

static double divergence(double p, double q)
{
    double sum = 0.0;
    q = fmin(fmax(q, 1e-12), 1.0 - 1e-12);
    if (p > 0.0) sum += p * log(p / q);
    if (p < 1.0) sum += (1.0 - p) * log((1.0 - p) / (1.0 - q));
    return sum;
}

static void judge_intervals(const struct law *law, const struct tt_estimator_report *report,
                            struct figures *figures)
{
    figures->covered += fabs(report->slope - law->slope) < 1.96 * report->slope_se;
    figures->intervals += 1.0;
    for (int k = 0; k < K; k++) {
        const struct tt_position_report *position = &report->position[k];
        figures->covered +=
            fabs(position->intercept - law_intercept(law, k)) < 1.96 * position->intercept_se;
        figures->intervals += 1.0;
    }
}

static double predict(const tt_estimator *estimator, int position, float feature)
{
    double p = NAN;
    if (tt_estimator_predict(estimator, position, &feature, 1, &p) != TT_OK) abort();
    return p;
}

/* How many of a request's drafts are verified: all, or under starvation those that seem worth it,
 * and probes. */
static int draw_admitted(const struct law *law, const tt_estimator *estimator, const float *feature,
                         int t, struct generator *g)
{
    if (law->scenario != STARVATION || t < 60) return K;
    const double coin = uniform(g);
    const int starved = tt_estimator_starved(estimator);
    if (starved >= 0 && coin < EXPLORE) return starved + 1;
    double survival = 1.0;
    for (int k = 0; k < K; k++) {
        survival *= predict(estimator, k, feature[k]);
        if (survival < TRIM_BELOW) return k;
    }
    return K;
}

/* One request: draw, judge the predictions, show the outcome to both. */
static void request_step(const struct law *law, tt_estimator *const kind[2], int t, bool judged,
                         struct generator *g, struct figures *figures)
{
    float feature[K], shown[K], soft[K];
    const int class = draw_class(law, g);
    for (int k = 0; k < K; k++) feature[k] = (float)draw_feature(law, g);
    memcpy(shown, feature, sizeof(shown));
    if (law->scenario == POISONED && uniform(g) < 0.02) shown[(int)(uniform(g) * K)] = NAN;
    const int admitted = draw_admitted(law, kind[0], feature, t, g);
    int accepted = 0;
    for (int k = 0; k < admitted; k++) {
        const double p = law_probability(law, k, (double)feature[k], class);
        if (judged && class != 2 && !isnan(shown[k])) {
            for (int e = 0; e < 2; e++)
                figures->excess[e] += divergence(p, predict(kind[e], k, feature[k]));
            figures->labels += 1.0;
        }
        /* p(x)/q(x) of the drawn token: its mean is p, its spread less than an outcome's */
        soft[k] = law->scenario != SOFT_LABELS ? 0.0F
                  : p > 0.5                    ? (uniform(g) < 2.0 * p - 1.0 ? 1.0F : 0.5F)
                                               : (uniform(g) < 2.0 * p ? 0.5F : 0.0F);
        if (uniform(g) >= (law->scenario == SOFT_LABELS ? (double)soft[k] : p)) break;
        accepted++;
    }
    const struct tt_observation observation = {.feature = shown,
                                               .soft = law->scenario == SOFT_LABELS ? soft : NULL,
                                               .admitted = admitted,
                                               .accepted = accepted};
    for (int e = 0; e < 2; e++) {
        if (tt_estimator_observe(kind[e], &observation) != TT_OK) abort();
    }
}

/* Refits since the last jump, -1 once the level has been found again. */
static void judge_recovery(const struct law *law, const struct tt_estimator_report *report, int t,
                           int *since, struct figures *figures)
{
    const int third = law->steps / 3;
    if (law->scenario != LEVEL_JUMP) return;
    if (t / third != (t - 20) / third && t >= third) *since = 0;
    if (*since < 0) return;
    ++*since;
    double error = 0.0;
    for (int k = 0; k < 3; k++)
        error += (report->position[k].intercept - law_intercept(law, k)) / 3.0;
    if (fabs(error) > RECOVERED) return;
    figures->recovery += *since;
    figures->recoveries += 1.0;
    *since = -1;
}

static void run(enum scenario scenario, int requests, int steps, uint64_t seed,
                struct figures *figures)
{
    struct generator g = {seed * 1000003 + (uint64_t)scenario * 101 + (uint64_t)requests};
    struct law law;
    tt_estimator *kind[2];
    struct tt_estimator_options options = {.positions = K, .prior_slope = NAN, .prior_level = NAN};
    for (int e = 0; e < 2; e++) {
        options.kind = e == 0 ? TT_ONLINE : TT_PARITY;
        if (tt_estimator_new(&kind[e], &options) != TT_OK) abort();
    }
    int since = -1;
    law_start(&law, scenario, steps);
    for (int t = 0; t < steps; t++) {
        law_step(&law, t, &g);
        for (int r = 0; r < requests; r++)
            request_step(&law, kind, t, t >= WARM_STEPS, &g, figures);
        const int done = tt_estimator_end_step(kind[0]);
        if (tt_estimator_end_step(kind[1]) < 0 || done < 0) abort();
        figures->alarms += (done & TT_STEP_DRIFT) != 0;
        if (!(done & TT_STEP_REFIT)) continue;
        struct tt_estimator_report report;
        tt_estimator_report(kind[0], &report);
        if (!isfinite(report.slope + report.level + report.slope_se + report.level_se))
            figures->unsound = true;
        if (t >= WARM_STEPS && t % 200 == 199) judge_intervals(&law, &report, figures);
        judge_recovery(&law, &report, t, &since, figures);
        if (scenario == STARVATION && t > steps - 100) {
            struct tt_estimator_report other;
            tt_estimator_report(kind[1], &other);
            for (int k = 3; k < K; k++) {
                figures->starved_error += fabs(report.position[k].intercept - law.intercept[k]);
                figures->parity_error += fabs(other.position[k].intercept - law.intercept[k]);
                figures->starved_checks += 1.0;
            }
        }
    }
    figures->steps += steps;
    tt_estimator_free(kind[0]);
    tt_estimator_free(kind[1]);
}

/* ---------------------------------------------------------------------------------------- table */

static void print_row(enum scenario scenario, int requests, const struct figures *f)
{
    printf("%-18s %4d %10.3f %10.3f", scenario_name[scenario], requests,
           1000.0 * f->excess[0] / f->labels, 1000.0 * f->excess[1] / f->labels);
    if (!has_coefficients(scenario))
        printf("        --");
    else
        printf(" %9.3f", f->covered / f->intervals);
    printf(" %9.2f", 1e4 * f->alarms / f->steps);
    if (f->recoveries > 0.0)
        printf(" %9.1f", f->recovery / f->recoveries);
    else
        printf("        --");
    if (f->starved_checks > 0.0)
        printf("   deep intercepts off by %.2f, parity %.2f", f->starved_error / f->starved_checks,
               f->parity_error / f->starved_checks);
    printf("%s\n", f->unsound ? "   UNSOUND" : "");
}

static void table(int steps, int seeds, const char *only)
{
    static const int loads[] = {1, 4, 64};
    printf("%d steps, %d seeds; excess log loss in nats per 1000 labels; level found again within "
           "%.1f\n",
           steps, seeds, RECOVERED);
    printf("%-18s %4s %10s %10s %9s %9s %9s\n", "scenario", "R", "online", "parity", "coverage",
           "alarms/1e4", "refits");
    for (int s = 0; s < SCENARIOS; s++) {
        if (strstr(scenario_name[s], only) == NULL) continue;
        for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
            struct figures figures = {0};
            for (int seed = 1; seed <= seeds; seed++)
                run((enum scenario)s, loads[i], steps, (uint64_t)seed, &figures);
            print_row((enum scenario)s, loads[i], &figures);
            fflush(stdout);
        }
    }
}

/* ---------------------------------------------------------------------------------------- check */

static int tap_count, tap_failed;

static void check(bool passed, const char *what, double got)
{
    tap_count++;
    tap_failed += !passed;
    printf("%s %d - %s (%.3g)\n", passed ? "ok" : "not ok", tap_count, what, got);
}

static struct figures sample(enum scenario scenario, int requests, int steps, int seeds)
{
    struct figures figures = {0};
    for (int seed = 1; seed <= seeds; seed++)
        run(scenario, requests, steps, (uint64_t)seed, &figures);
    printf("# %s, %d requests\n", scenario_name[scenario], requests);
    check(!figures.unsound && figures.labels > 1000.0, "every coefficient is finite",
          figures.labels);
    check(figures.excess[0] < figures.excess[1], "online is nearer to the law than parity",
          figures.excess[0] / figures.excess[1]);
    return figures;
}

static double excess(const struct figures *figures)
{
    return 1000.0 * figures->excess[0] / figures->labels;
}

static double coverage(const struct figures *figures)
{
    return figures->covered / figures->intervals;
}

/* Positions 0 and 1 alone are drafted while the common level falls by 1.5: the others follow
 * without one label. */
static void check_starved_positions_follow(void)
{
    struct generator g = {99};
    struct law law;
    tt_estimator *estimator = NULL;
    const struct tt_estimator_options options = {
        .kind = TT_ONLINE, .positions = K, .prior_slope = NAN, .prior_level = NAN};
    struct tt_estimator_report report;
    double worst = 0.0;
    if (tt_estimator_new(&estimator, &options) != TT_OK) abort();
    law_start(&law, WELL_SPECIFIED, 4000);
    for (int t = 0; t < 5000; t++) {
        const int admitted = t < 1000 ? K : 2;
        law.jump = t < 1000 ? 0.0 : -1.5;
        for (int r = 0; r < 8; r++) {
            float feature[K];
            int accepted = 0;
            for (int k = 0; k < K; k++) feature[k] = (float)draw_feature(&law, &g);
            while (accepted < admitted &&
                   uniform(&g) < law_probability(&law, accepted, (double)feature[accepted], 0))
                accepted++;
            const struct tt_observation observation = {
                .feature = feature, .admitted = admitted, .accepted = accepted};
            if (tt_estimator_observe(estimator, &observation) != TT_OK) abort();
        }
        tt_estimator_end_step(estimator);
    }
    tt_estimator_report(estimator, &report);
    for (int k = 2; k < K; k++)
        worst = fmax(worst, fabs(report.position[k].intercept - law_intercept(&law, k)));
    /* The level's own prior holds back a third of the way while two positions of six have labels.
     */
    check(worst < 0.9, "starved positions follow the level's fall of 1.5", worst);
    check(report.position[5].intercept_se > 4.0 * report.position[0].intercept_se,
          "and their intervals say so", report.position[5].intercept_se);
    check(tt_estimator_starved(estimator) == 2, "the first starved position is named", 2.0);
    tt_estimator_free(estimator);
}

static int check_all(void)
{
    struct figures f = sample(WELL_SPECIFIED, 4, 10000, 3);
    check(coverage(&f) > 0.90 && coverage(&f) < 0.99, "coverage of 95 % intervals", coverage(&f));
    check(f.alarms <= 2.0, "false drift alarms in 30,000 steps", f.alarms);
    check(excess(&f) < 0.6, "excess log loss, nats per 1000 labels", excess(&f));

    f = sample(SOFT_LABELS, 4, 5000, 2);
    check(coverage(&f) > 0.88 && coverage(&f) < 0.995, "coverage of 95 % intervals", coverage(&f));
    check(f.alarms <= 1.0, "false drift alarms", f.alarms);

    f = sample(WRONG_LINK, 4, 5000, 2);
    check(f.alarms <= 1.0, "false drift alarms", f.alarms);

    f = sample(LEVEL_JUMP, 16, 6000, 2);
    check(f.recoveries >= 4.0, "every jump is followed", f.recoveries);
    check(f.recovery <= 5.0 * f.recoveries, "refits until the level is found",
          f.recovery / f.recoveries);
    check(f.alarms >= 3.0 && f.alarms <= 12.0, "drift alarms for 4 jumps", f.alarms);

    f = sample(LEVEL_JUMP, 1, 6000, 2);
    check(f.recovery <= 20.0 * f.recoveries, "refits until the level is found, one request",
          f.recovery / f.recoveries);

    f = sample(STARVATION, 4, 6000, 2);
    check(f.starved_error < 0.6 * f.starved_checks, "deep intercepts come back after a trap",
          f.starved_error / f.starved_checks);

    f = sample(NEAR_CONSTANT, 4, 5000, 1);
    check(excess(&f) < 2.0, "excess log loss, nats per 1000 labels", excess(&f));

    f = sample(NEGATIVE_SLOPE, 4, 5000, 1);
    check(f.alarms <= 1.0, "false drift alarms", f.alarms);

    f = sample(MIXED_TEMPERATURE, 4, 5000, 1);
    check(f.alarms <= 1.0, "false drift alarms", f.alarms);

    f = sample(POISONED, 4, 5000, 1);
    check(excess(&f) < 4.0, "one request in twenty hostile: excess log loss", excess(&f));

    check_starved_positions_follow();
    printf("1..%d\n", tap_count);
    return tap_failed == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    int steps = 10000, seeds = 4;
    const char *only = "";
    bool checking = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--check") == 0)
            checking = true;
        else if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc)
            steps = atoi(argv[++i]);
        else if (strcmp(argv[i], "--seeds") == 0 && i + 1 < argc)
            seeds = atoi(argv[++i]);
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
        else
            steps = 0;
    }
    if (steps < 3 * WARM_STEPS || seeds < 1) {
        fprintf(stderr,
                "usage: estimator_sim [--check] [--steps N] [--seeds N] [--only SCENARIO]\n"
                "N is at least %d steps, 1 seed\n",
                3 * WARM_STEPS);
        return 2;
    }
    if (checking) return check_all();
    table(steps, seeds, only);
    return 0;
}
