/* bench_load_result.c - what the runs of a cell say; see bench_load.h.
 *
 * The best of off and fixed K is chosen on odd blocks and compared on even ones: the best of
 * several noisy figures flatters itself. Ratios are paired by block, on the logarithm, since
 * policies of a block meet the same requests within a minute of each other; the interval is
 * Student's over blocks.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "controller/bench_load.h"
#include "controller/ticks.h"

/* A fixed K that reaches less than this of another policy so far is left out of further blocks. */
#define KEEP_RATIO 0.93
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

/* log(a / b) in the blocks that both ran in, from `first` in twos, below `end`. */
static int paired(const struct load_cell *cell, int a, int b, int first, int end, double *out)
{
    int count = 0;

    for (int block = first; block < end && block <= LOAD_MOST_BLOCKS; block += 2) {
        double ratio = log(cell->tps[a][block - 1] / cell->tps[b][block - 1]);

        if (isfinite(ratio)) out[count++] = ratio;
    }
    return count;
}

/* Mean log ratio to off on the odd blocks before `block`; -inf when it did not run. */
static double odd_merit(const struct load_cell *cell, int policy, int block)
{
    double ratio[LOAD_MOST_BLOCKS];
    int count = paired(cell, policy, 0, 1, block, ratio);

    return count > 0 ? load_interval(ratio, count).mean : -INFINITY;
}

/* Does another policy beat this one clearly, on the odd blocks that both ran in? */
static bool is_out(const struct load_cell *cell, int policy, int block)
{
    for (int other = 0; other <= cell->policies.max_draft; other++) {
        double ratio[LOAD_MOST_BLOCKS];
        int count = paired(cell, policy, other, 1, block, ratio);

        if (count > 0 && load_interval(ratio, count).mean < log(KEEP_RATIO)) return true;
    }
    return false;
}

/* One that is left out stays so: it runs no more, so that what speaks against it stays. Hence the
 * best ran in every block; so did off, which is taken where noise beats each by another. */
int load_cell_best(const struct load_cell *cell, int block)
{
    int best = -1;

    for (int policy = 0; policy <= cell->policies.max_draft; policy++) {
        double merit = odd_merit(cell, policy, block);

        if (!isfinite(merit) || is_out(cell, policy, block)) continue;
        if (best < 0 || merit > odd_merit(cell, best, block)) best = policy;
    }
    return best < 0 && isfinite(odd_merit(cell, 0, block)) ? 0 : best;
}

bool load_cell_wants(const struct load_cell *cell, int policy, int block)
{
    return policy == 0 || policy > cell->policies.max_draft || !is_out(cell, policy, block);
}

/* The ratio of two policies on even blocks. */
static void even_ratio(const struct load_cell *cell, int policy, int to, double *ratio, double *low,
                       double *high)
{
    double values[LOAD_MOST_BLOCKS];
    int count = paired(cell, policy, to, 2, LOAD_MOST_BLOCKS + 1, values);
    struct load_interval interval = load_interval(values, count);

    *ratio = exp(interval.mean);
    *low = exp(interval.mean - interval.half);
    *high = exp(interval.mean + interval.half);
}

static void fill_row(const struct load_cell *cell, int policy, int best, struct bench_result *row)
{
    double tps[LOAD_MOST_BLOCKS];
    struct load_interval interval;

    for (int i = 0; i < LOAD_MOST_BLOCKS; i++)
        if (isfinite(cell->tps[policy][i])) tps[row->blocks++] = cell->tps[policy][i];
    interval = load_interval(tps, row->blocks);
    row->time_ms = utc_ms();
    row->tps = interval.mean;
    row->tps_ci95 = interval.half;
    even_ratio(cell, policy, best, &row->ratio_to_best_fixed, &row->ratio_to_best_fixed_low,
               &row->ratio_to_best_fixed_high);
    even_ratio(cell, policy, 0, &row->ratio_to_off, &row->ratio_to_off_low,
               &row->ratio_to_off_high);
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
    int best = load_cell_best(cell, LOAD_MOST_BLOCKS + 1);

    memset(summary, 0, sizeof *summary);
    summary->adaptive = -1;
    if (best >= 0) load_policy_name(&cell->policies, best, summary->best, sizeof summary->best);
    for (int policy = 0; policy < load_policy_count(&cell->policies); policy++) {
        struct bench_result *row = &summary->row[summary->count];

        if (load_cell_blocks(cell, policy) == 0) continue;
        fill_row(cell, policy, best >= 0 ? best : 0, row);
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
