/* bench_decisions.c - what trimtab bench replay says of a record of decisions: how well the node
 * predicted what it verified, and how well fresh estimators would have.
 */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "controller/bench.h"
#include "controller/decisions.h"
#include "controller/lines.h"

bool bench_is_record(const char *path)
{
    struct lines lines;
    char *ignored = NULL;
    bool is = false;

    if (lines_open(&lines, path, &ignored)) {
        is = lines_next(&lines, &ignored) > 0 && decisions_recognise(lines.text);
        lines_close(&lines);
    }
    free(ignored);
    return is;
}

static json_t *row_to_json(int kind, int stratum, const struct decisions_score *score)
{
    double n = (double)score->labels;

    return json_pack("{s:s s:s s:I s:f s:f s:f s:f}", "estimator", decisions_kinds[kind], "stratum",
                     strata_name(stratum), "labels", (json_int_t)score->labels, "accepted_ratio",
                     score->accepted / n, "predicted_ratio", score->predicted / n, "log_loss",
                     score->log_loss / n, "brier", score->squared_error / n);
}

static json_t *report_to_json(const struct decisions *decisions)
{
    json_t *rows = json_array();

    for (int stratum = 0; stratum < STRATA_ESTIMATORS; stratum++)
        for (int kind = 0; kind < DECISIONS_KINDS; kind++)
            if (decisions->score[kind][stratum].labels > 0)
                json_array_append_new(rows,
                                      row_to_json(kind, stratum, &decisions->score[kind][stratum]));
    return json_pack("{s:s s:I s:I s:I s:f s:f s:o}", "schema", "trimtab.bench.decisions/1",
                     "steps", (json_int_t)decisions->steps, "emitted",
                     (json_int_t)decisions->emitted, "skipped", (json_int_t)decisions->skipped,
                     "draft_ms", decisions->draft_ms, "verify_ms", decisions->verify_ms, "rows",
                     rows);
}

static void print_table(const json_t *report)
{
    const json_t *row;
    size_t i;

    printf("%lld steps, %lld tokens; drafting %.1f ms, verification %.1f ms\n",
           (long long)json_integer_value(json_object_get(report, "steps")),
           (long long)json_integer_value(json_object_get(report, "emitted")),
           json_real_value(json_object_get(report, "draft_ms")),
           json_real_value(json_object_get(report, "verify_ms")));
    printf("%-24s %-9s %8s %9s %10s %9s %7s\n", "stratum", "estimator", "labels", "accepted",
           "predicted", "log_loss", "brier");
    json_array_foreach(json_object_get(report, "rows"), i, row)
        printf("%-24s %-9s %8lld %9.4f %10.4f %9.4f %7.4f\n",
               json_string_value(json_object_get(row, "stratum")),
               json_string_value(json_object_get(row, "estimator")),
               (long long)json_integer_value(json_object_get(row, "labels")),
               json_real_value(json_object_get(row, "accepted_ratio")),
               json_real_value(json_object_get(row, "predicted_ratio")),
               json_real_value(json_object_get(row, "log_loss")),
               json_real_value(json_object_get(row, "brier")));
}

int bench_decisions(const char *path, bool as_json)
{
    struct decisions *decisions = malloc(sizeof *decisions);
    char *warning = NULL, *cause = NULL;
    bool ok = decisions && decisions_read(path, decisions, &warning, &cause);

    if (warning) fprintf(stderr, "trimtab bench replay: warning: %s\n", warning);
    if (ok) {
        json_t *report = report_to_json(decisions);

        if (as_json) {
            json_dumpf(report, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
            putchar('\n');
        } else {
            print_table(report);
        }
        json_decref(report);
    } else {
        fprintf(stderr, "trimtab bench replay: %s\n", cause ? cause : "out of memory");
    }
    free(warning);
    free(cause);
    free(decisions);
    return ok ? 0 : 1;
}
