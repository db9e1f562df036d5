/* estimator_world.c - see estimator_world.h. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "tests/kernels/estimator_world.h"

#define K WORLD_POSITIONS
#define CLASSES 3 /* 0: the law itself; 1: another temperature; 2: hostile */

const char *const scenario_name[SCENARIOS] = {"well specified",  "soft labels",    "wrong link",
                                              "near-constant f", "negative slope", "mixed temps",
                                              "poisoned",        "drift",          "starvation",
                                              "crash",           "deep collapse",  "random walk"};

bool scenario_has_coefficients(enum scenario scenario)
{
    return scenario != WRONG_LINK && scenario != NEGATIVE_SLOPE && scenario != MIXED_TEMPERATURE &&
           scenario != POISONED && scenario != CRASH;
}

bool scenario_is_stationary(enum scenario scenario)
{
    return scenario < DRIFT;
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t next_word(struct generator *g)
{
    uint64_t z = g->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double generator_uniform(struct generator *g)
{
    return ((double)(next_word(g) >> 11) + 0.5) / 9007199254740992.0;
}

double generator_normal(struct generator *g)
{
    return sqrt(-2.0 * log(generator_uniform(g))) * cos(6.283185307179586 * generator_uniform(g));
}

static double sigmoid(double u)
{
    return 1.0 / (1.0 + exp(-u));
}

void world_start(struct world *world, enum scenario scenario, int steps, uint64_t seed)
{
    memset(world, 0, sizeof(*world));
    world->scenario = scenario;
    world->steps = steps;
    world->generator.state = seed * 1000003 + (uint64_t)scenario * 101;
    world->slope = scenario == NEGATIVE_SLOPE ? -0.3 : 0.62;
    for (int k = 0; k < K; k++) world->intercept[k] = -0.25 - 0.06 * k + (k % 2 ? 0.08 : 0.0);
}

bool world_step(struct world *world, int t)
{
    const bool middle = t >= world->steps / 3 && t < 2 * world->steps / 3;
    const bool crashed = t >= world->steps / 3 && t < world->steps / 3 + world->steps / 10;
    const double level = world->level, deep = world->deep;
    switch (world->scenario) {
    case DRIFT:
        world->level = middle ? -0.8 : 0.0;
        break;
    case STARVATION:
        world->level = middle ? -2.5 : 0.0;
        break;
    case CRASH:
        world->level = crashed ? -30.0 : 0.0;
        break;
    case DEEP_COLLAPSE:
        world->deep = middle ? -2.0 : 0.0;
        break;
    case RANDOM_WALK:
        world->level = 0.9995 * level + 0.015 * generator_normal(&world->generator);
        return false;
    default:
        break;
    }
    return world->level != level || world->deep != deep;
}

double world_intercept(const struct world *world, int position)
{
    return world->intercept[position] + world->level + (position >= 3 ? world->deep : 0.0);
}

static double draw_feature(struct world *world)
{
    struct generator *g = &world->generator;
    if (world->scenario == NEAR_CONSTANT) return 3.0 + 0.03 * generator_normal(g);
    /* skewed, as real log-odds are: most near 0 to 3, a tail of certain tokens */
    const double z = generator_normal(g);
    return fmin(fmax(0.8 + 1.6 * z + 0.7 * z * z, -6.0), 16.0);
}

/* How many of the requests are of each class. */
static void class_shares(const struct world *world, double share[CLASSES])
{
    share[1] = world->scenario == MIXED_TEMPERATURE ? 0.5 : 0.0;
    share[2] = world->scenario == POISONED ? 0.05 : 0.0;
    share[0] = 1.0 - share[1] - share[2];
}

static double law_probability(const struct world *world, int position, double f, int class)
{
    if (world->scenario == WRONG_LINK) return 0.03 + 0.9 * pow(sigmoid(0.9 * f - 0.2), 1.5);
    if (class == 1) return sigmoid(0.92 * f + 0.55 + world->intercept[position]);
    if (class == 2) return 0.0; /* always rejected, whatever the draft says */
    return sigmoid(world->slope * f + world_intercept(world, position));
}

void world_draw(struct world *world, struct draft_block *out)
{
    struct generator *g = &world->generator;
    double share[CLASSES], coin = generator_uniform(g);
    class_shares(world, share);
    const int class = coin < share[0] ? 0 : coin < share[0] + share[1] ? 1 : 2;
    out->coin = generator_uniform(g);
    out->matched = -1;
    for (int k = 0; k < K; k++) {
        const double f = draw_feature(world),
                     p = law_probability(world, k, (double)(float)f, class);
        /* P(accepted | reached): the classes that got so far, by Bayes */
        double reached = 0.0, accepted = 0.0;
        for (int c = 0; c < CLASSES; c++) {
            reached += share[c];
            share[c] *= law_probability(world, k, (double)(float)f, c);
            accepted += share[c];
        }
        out->feature[k] = (float)f;
        out->p[k] = reached > 0.0 ? accepted / reached : 0.0;
        /* p(x)/q(x) of the drawn token: its mean is p, its spread less than an outcome's */
        const double spread = 0.8 * fmin(p, 1.0 - p);
        const double ratio = p + spread * (2.0 * generator_uniform(g) - 1.0);
        out->soft[k] = (float)ratio;
        const double accept = world->scenario == SOFT_LABELS ? (double)out->soft[k] : p;
        if (generator_uniform(g) >= accept && out->matched < 0) out->matched = k;
    }
    if (out->matched < 0) out->matched = K;
    if (world->scenario == POISONED && generator_uniform(g) < 0.02)
        out->feature[(int)(generator_uniform(g) * K)] = NAN;
}
