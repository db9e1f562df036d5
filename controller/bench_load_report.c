/* bench_load_report.c - the load benchmark's figures as a table with a plot, or as JSON; see
 * bench_load.h. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "controller/bench_load.h"
#include "controller/json_number.h"

#define PLOT_LEFT 0.8 /* ratios at the plot's edges */
#define PLOT_RIGHT 1.3
#define PLOT_WIDTH 41

static bool same_group(const struct load_cell *a, const struct load_cell *b)
{
    return strcmp(a->load.form, b->load.form) == 0 && strcmp(a->load.mix, b->load.mix) == 0 &&
           a->load.temperature == b->load.temperature;
}

static bool has_blocks(const struct load_cell *cell)
{
    return load_cell_blocks(cell, 0) > 0;
}

static void print_rate(FILE *out, double mean, double half)
{
    char text[24] = "--";

    if (isfinite(half))
        snprintf(text, sizeof text, "%.1f±%.1f", mean, half);
    else if (isfinite(mean))
        snprintf(text, sizeof text, "%.1f", mean);
    fprintf(out, "%*s%s", 12 - (int)strlen(text) + (isfinite(half) ? 1 : 0), "", text);
}

/* Tokens/s: a row a concurrency, a column a policy. */
static void print_rates(FILE *out, const struct load_cell *cells, size_t count)
{
    const struct load_policies *policies = &cells->policies;

    fprintf(out, "\n%s, %s, temperature %g: tokens/s ± 95 %%\n  %4s", cells->load.form,
            cells->load.mix, cells->load.temperature, "x");
    for (int policy = 0; policy < load_policy_count(policies); policy++) {
        char name[LOAD_POLICY_NAME];

        load_policy_name(policies, policy, name, sizeof name);
        fprintf(out, " %12s", name);
    }
    fputc('\n', out);
    for (size_t i = 0; i < count && same_group(cells, &cells[i]); i++) {
        struct load_summary summary;

        if (!has_blocks(&cells[i])) continue;
        load_cell_summarize(&cells[i], &summary);
        fprintf(out, "  %4d", cells[i].load.concurrency);
        for (int policy = 0, row = 0; policy < load_policy_count(policies); policy++) {
            bool ran = load_cell_blocks(&cells[i], policy) > 0;

            fputc(' ', out);
            print_rate(out, ran ? summary.row[row].tps : NAN,
                       ran ? summary.row[row].tps_ci95 : NAN);
            row += ran;
        }
        fputc('\n', out);
    }
}

static int column(double ratio)
{
    double at = (ratio - PLOT_LEFT) / (PLOT_RIGHT - PLOT_LEFT) * (PLOT_WIDTH - 1);

    if (!(at > 0)) return 0;
    return at < PLOT_WIDTH - 1 ? (int)lround(at) : PLOT_WIDTH - 1;
}

/* One line of the plot: the interval as dashes, the ratio as a star, the oracle's bound as an o,
 * 1.0 as a bar. */
static void plot_line(char out[PLOT_WIDTH + 1], const struct bench_result *row, double oracle)
{
    memset(out, ' ', PLOT_WIDTH);
    out[PLOT_WIDTH] = '\0';
    if (isfinite(row->ratio_to_best_fixed_low))
        for (int i = column(row->ratio_to_best_fixed_low);
             i <= column(row->ratio_to_best_fixed_high); i++)
            out[i] = '-';
    out[column(1)] = '|';
    if (isfinite(oracle)) out[column(oracle)] = 'o';
    if (isfinite(row->ratio_to_best_fixed)) out[column(row->ratio_to_best_fixed)] = '*';
}

static void print_ratio(FILE *out, double ratio, double low, double high)
{
    char text[32] = "--";

    if (isfinite(low))
        snprintf(text, sizeof text, "%.3f %.3f..%.3f", ratio, low, high);
    else if (isfinite(ratio))
        snprintf(text, sizeof text, "%.3f", ratio);
    fprintf(out, "  %-18s", text);
}

static void print_bound(FILE *out, double ratio)
{
    if (isfinite(ratio))
        fprintf(out, "  %-6.3f", ratio);
    else
        fprintf(out, "  %-6s", "--");
}

static void print_plot(FILE *out, const struct load_cell *cells, size_t count)
{
    fprintf(out, "  %4s %-15s  %-18s  %-18s  %-6s  %-4s  %-*.1f%*.1f\n", "x", "best",
            "adaptive/best 95 %", "adaptive/off 95 %", "oracle", "", PLOT_WIDTH / 2, PLOT_LEFT,
            PLOT_WIDTH - PLOT_WIDTH / 2, PLOT_RIGHT);
    for (size_t i = 0; i < count && same_group(cells, &cells[i]); i++) {
        struct load_summary summary;
        const struct bench_result *row;
        char line[PLOT_WIDTH + 1];

        if (!has_blocks(&cells[i])) continue;
        load_cell_summarize(&cells[i], &summary);
        if (summary.adaptive < 0) continue;
        row = &summary.row[summary.adaptive];
        plot_line(line, row, cells[i].oracle_to_best);
        fprintf(out, "  %4d %-15s", cells[i].load.concurrency, summary.best);
        print_ratio(out, row->ratio_to_best_fixed, row->ratio_to_best_fixed_low,
                    row->ratio_to_best_fixed_high);
        print_ratio(out, row->ratio_to_off, row->ratio_to_off_low, row->ratio_to_off_high);
        print_bound(out, cells[i].oracle_to_best);
        fprintf(out, "  %-4s  %s\n",
                !row->verdict                       ? "--"
                : strcmp(row->verdict, "pass") == 0 ? "PASS"
                                                    : "FAIL",
                line);
    }
}

void load_report_print(FILE *out, const struct load_cell *cells, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool begins = i == 0 || !same_group(&cells[i - 1], &cells[i]), any = false;

        for (size_t j = i; begins && j < count && same_group(&cells[i], &cells[j]); j++)
            any = any || has_blocks(&cells[j]);
        if (!any) continue;
        print_rates(out, &cells[i], count - i);
        print_plot(out, &cells[i], count - i);
    }
}

static void set_number(json_t *row, const char *key, double value)
{
    json_object_set_new(row, key, json_number(value));
}

static json_t *row_to_json(const struct load_cell *cell, const struct bench_result *result)
{
    json_t *row =
        json_pack("{s:s s:s s:f s:i s:s s:i s:s? s:s?}", "form", cell->load.form, "mix",
                  cell->load.mix, "temperature", cell->load.temperature, "concurrency",
                  cell->load.concurrency, "policy", result->policy, "blocks", result->blocks,
                  "best_fixed", result->best_fixed, "verdict", result->verdict);

    set_number(row, "tps", result->tps);
    set_number(row, "tps_ci95", result->tps_ci95);
    set_number(row, "ratio_to_best_fixed", result->ratio_to_best_fixed);
    set_number(row, "ratio_to_best_fixed_low", result->ratio_to_best_fixed_low);
    set_number(row, "ratio_to_best_fixed_high", result->ratio_to_best_fixed_high);
    set_number(row, "ratio_to_off", result->ratio_to_off);
    set_number(row, "ratio_to_off_low", result->ratio_to_off_low);
    set_number(row, "ratio_to_off_high", result->ratio_to_off_high);
    return row;
}

void load_report_json(FILE *out, const struct load_cell *cells, size_t count, json_t *about)
{
    json_t *rows = json_array();

    for (size_t i = 0; i < count; i++) {
        struct load_summary summary;

        load_cell_summarize(&cells[i], &summary);
        for (int row = 0; row < summary.count; row++)
            json_array_append_new(rows, row_to_json(&cells[i], &summary.row[row]));
    }
    json_object_set_new(about, "rows", rows);
    json_dumpf(about, out, JSON_COMPACT | JSON_REAL_PRECISION(6));
    fputc('\n', out);
}
