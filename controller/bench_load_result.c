/* bench_load_result.c - what the runs of a cell say; see bench_load.h.
 *
 * The best of off and fixed K is chosen on odd blocks and compared on even ones, and the other way
 * round: the best of several noisy figures, compared with itself, flatters itself, and this way
 * every block still counts. Ratios are paired by block, on the logarithm, since policies of a block
 * meet the same requests within a minute of each other; the interval is Student's over blocks.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "controller/bench_load.h"
#include "controller/ticks.h"

/* A fixed K that reaches less than this of another policy so far, or is slower than it with all of
 * the interval, is left out of further blocks. */
#define KEEP_RATIO 0.93
#define KEEP_BLOCKS 3 /* the least that make an interval worth the name */
/* The promise: adaptive reaches this part of the best policy, and its interval ends above that. */
#define TARGET_RATIO 0.99
#define TARGET_LOW 0.97

int load_policy_count(const struct load_policies *policies)
{
    return policies->max_draft + 2;
}

int load_policy_adaptive(const struct load_policies *policies)
{
    return policies->max_draft + 1;
}

void load_policy_name(const struct load_policies *policies, int policy, char *out, size_t size)
{
    if (policy == load_policy_adaptive(policies))
        snprintf(out, size, "adaptive");
    else if (policy == 0)
        snprintf(out, size, "off");
    else
        snprintf(out, size, "fixed-%d", policy);
}

int load_policy_parse(const struct load_policies *policies, const char *name)
{
    char known[LOAD_POLICY_NAME];

    for (int policy = 0; policy < load_policy_count(policies); policy++) {
        load_policy_name(policies, policy, known, sizeof known);
        if (strcmp(known, name) == 0) return policy;
    }
    return -1;
}

void load_cell_clear(struct load_cell *cell)
{
    for (int policy = 0; policy < LOAD_MOST_POLICIES; policy++)
        for (int i = 0; i < LOAD_MOST_BLOCKS; i++) cell->tps[policy][i] = NAN;
    cell->oracle_to_best = cell->oracle_to_off = NAN;
}

int load_cell_blocks(const struct load_cell *cell, int policy)
{
    int blocks = 0;

    for (int i = 0; i < LOAD_MOST_BLOCKS; i++) blocks += isfinite(cell->tps[policy][i]);
    return blocks;
}

/* Student's 97.5 % quantile: exact for one and two degrees of freedom, else its expansion around
 * the normal one (Abramowitz & Stegun 26.7.5). */
static double student(int freedom)
{
    double f = freedom;

    if (freedom == 1) return 12.706;
    if (freedom == 2) return 4.303;
    return 1.96 + 2.372 / f + 2.822 / (f * f) + 2.556 / (f * f * f);
}

struct load_interval load_interval(const double *values, int count)
{
    struct load_interval out = {NAN, NAN};
    double sum = 0, square = 0;

    if (count < 1) return out;
    for (int i = 0; i < count; i++) sum += values[i];
    out.mean = sum / count;
    for (int i = 0; i < count; i++) square += (values[i] - out.mean) * (values[i] - out.mean);
    if (count > 1) out.half = student(count - 1) * sqrt(square / (count - 1) / count);
    return out;
}

enum half { ODD = 1, EVEN = 2 }; /* of the blocks, by its first one */

/* log(a / b) in the blocks of one half that both ran in, below `end`. */
static int paired(const struct load_cell *cell, int a, int b, enum half half, int end, double *out)
{
    int count = 0;

    for (int block = (int)half; block < end && block <= LOAD_MOST_BLOCKS; block += 2) {
        double ratio = log(cell->tps[a][block - 1] / cell->tps[b][block - 1]);

        if (isfinite(ratio)) out[count++] = ratio;
    }
    return count;
}

/* Mean log ratio to off; -inf when it did not run. */
static double merit(const struct load_cell *cell, int policy, enum half half)
{
    double ratio[LOAD_MOST_BLOCKS];
    int count = paired(cell, policy, 0, half, LOAD_MOST_BLOCKS + 1, ratio);

    return count > 0 ? load_interval(ratio, count).mean : -INFINITY;
}

/* Does another policy beat this one clearly, on the odd blocks before `block` that both ran in? */
static bool is_out(const struct load_cell *cell, int policy, int block)
{
    for (int other = 0; other <= cell->policies.max_draft; other++) {
        double ratio[LOAD_MOST_BLOCKS];
        int count = paired(cell, policy, other, ODD, block, ratio);
        struct load_interval interval = load_interval(ratio, count);

        if (count > 0 && interval.mean < log(KEEP_RATIO)) return true;
        if (count >= KEEP_BLOCKS && interval.mean + interval.half < 0) return true;
    }
    return false;
}

/* The best of off and fixed K by one half of the blocks, among those not left out; -1 = none ran.
 * One that is left out stays so: it runs no more, so that what speaks against it stays. Hence the
 * best ran in every block; so did off, which is taken where noise beats each by another. */
static int best_of(const struct load_cell *cell, enum half half)
{
    int best = -1;

    for (int policy = 0; policy <= cell->policies.max_draft; policy++) {
        double own = merit(cell, policy, half);

        if (!isfinite(own) || is_out(cell, policy, LOAD_MOST_BLOCKS + 1)) continue;
        if (best < 0 || own > merit(cell, best, half)) best = policy;
    }
    return best < 0 && isfinite(merit(cell, 0, half)) ? 0 : best;
}

bool load_cell_wants(const struct load_cell *cell, int policy, int block)
{
    return policy == 0 || policy > cell->policies.max_draft || !is_out(cell, policy, block);
}

struct ratio {
    double mean, low, high;
};

/* The ratio of a policy to what was chosen on the other half of the blocks; NaN without any. */
static struct ratio ratio_to(const struct load_cell *cell, int policy, int by_odd, int by_even)
{
    double values[LOAD_MOST_BLOCKS];
    int count = 0;
    struct load_interval interval;

    if (by_odd >= 0) count = paired(cell, policy, by_odd, EVEN, LOAD_MOST_BLOCKS + 1, values);
    if (by_even >= 0)
        count += paired(cell, policy, by_even, ODD, LOAD_MOST_BLOCKS + 1, values + count);
    interval = load_interval(values, count);
    return (struct ratio){exp(interval.mean), exp(interval.mean - interval.half),
                          exp(interval.mean + interval.half)};
}

static void fill_row(const struct load_cell *cell, int policy, int by_odd, int by_even,
                     struct bench_result *row)
{
    double tps[LOAD_MOST_BLOCKS];
    struct load_interval interval;
    struct ratio best = ratio_to(cell, policy, by_odd, by_even), off = ratio_to(cell, policy, 0, 0);

    for (int i = 0; i < LOAD_MOST_BLOCKS; i++)
        if (isfinite(cell->tps[policy][i])) tps[row->blocks++] = cell->tps[policy][i];
    interval = load_interval(tps, row->blocks);
    row->time_ms = utc_ms();
    row->tps = interval.mean;
    row->tps_ci95 = interval.half;
    row->ratio_to_best_fixed = best.mean;
    row->ratio_to_best_fixed_low = best.low;
    row->ratio_to_best_fixed_high = best.high;
    row->ratio_to_off = off.mean;
    row->ratio_to_off_low = off.low;
    row->ratio_to_off_high = off.high;
}

/* What was chosen: on odd blocks, and, where that is another one, on even ones. */
static void name_best(const struct load_cell *cell, int by_odd, int by_even, char *out, size_t size)
{
    char odd[LOAD_POLICY_NAME], even[LOAD_POLICY_NAME];

    if (by_odd < 0) return;
    load_policy_name(&cell->policies, by_odd, odd, sizeof odd);
    load_policy_name(&cell->policies, by_even < 0 ? by_odd : by_even, even, sizeof even);
    if (strcmp(odd, even) == 0)
        snprintf(out, size, "%s", odd);
    else
        snprintf(out, size, "%s,%s", odd, even);
}

static const char *verdict(const struct bench_result *row)
{
    if (!isfinite(row->ratio_to_best_fixed_low)) return NULL;
    return row->ratio_to_best_fixed >= TARGET_RATIO && row->ratio_to_best_fixed_low >= TARGET_LOW
               ? "pass"
               : "fail";
}

/* A bound, not a run: no rate, no interval. */
static void add_oracle(const struct load_cell *cell, struct load_summary *summary)
{
    summary->row[summary->count++] =
        (struct bench_result){.policy = LOAD_ORACLE,
                              .best_fixed = summary->best[0] ? summary->best : NULL,
                              .time_ms = utc_ms(),
                              .tps = NAN,
                              .tps_ci95 = NAN,
                              .ratio_to_best_fixed = cell->oracle_to_best,
                              .ratio_to_best_fixed_low = NAN,
                              .ratio_to_best_fixed_high = NAN,
                              .ratio_to_off = cell->oracle_to_off,
                              .ratio_to_off_low = NAN,
                              .ratio_to_off_high = NAN};
}

void load_cell_summarize(const struct load_cell *cell, struct load_summary *summary)
{
    int by_odd = best_of(cell, ODD), by_even = best_of(cell, EVEN);

    memset(summary, 0, sizeof *summary);
    summary->adaptive = -1;
    name_best(cell, by_odd, by_even, summary->best, sizeof summary->best);
    for (int policy = 0; policy < load_policy_count(&cell->policies); policy++) {
        struct bench_result *row = &summary->row[summary->count];

        if (load_cell_blocks(cell, policy) == 0) continue;
        fill_row(cell, policy, by_odd, by_even, row);
        load_policy_name(&cell->policies, policy, summary->name[summary->count],
                         sizeof summary->name[0]);
        row->policy = summary->name[summary->count];
        row->best_fixed = summary->best[0] ? summary->best : NULL;
        if (policy == load_policy_adaptive(&cell->policies)) {
            summary->adaptive = summary->count;
            row->verdict = verdict(row);
        }
        summary->count++;
    }
    if (isfinite(cell->oracle_to_best) && summary->count > 0) add_oracle(cell, summary);
}
