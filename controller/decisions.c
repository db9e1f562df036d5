/* decisions.c - see decisions.h. */
#include "config.h"

#include "controller/decisions.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/cause.h"
#include "controller/lines.h"
#include "controller/trace.h"

#define SCHEMA "trimtab.record/1"
#define MS_LIMIT 1e7    /* a step of hours is damage */
#define SURE (1 - 1e-9) /* a prediction beyond it would make a miss infinitely wrong */

const char *const decisions_kinds[DECISIONS_KINDS] = {"recorded", "online", "parity"};

struct reader {
    struct decisions *out;
    struct strata *strata[DECISIONS_KINDS]; /* [DECISIONS_RECORDED] is NULL */
};

struct row { /* one request's step */
    int stratum, admitted, accepted;
    float feature[TT_MAX_POSITIONS], predicted[TT_MAX_POSITIONS];
};

bool decisions_recognise(const char *line)
{
    return line[0] == '{' && strstr(line, "\"schema\":\"" SCHEMA "\"") != NULL;
}

/* ---- a line */

static bool get_count(const json_t *object, const char *key, int most, int *out, char **cause)
{
    const json_t *value = json_object_get(object, key);

    if (json_is_integer(value) && json_integer_value(value) >= 0 &&
        json_integer_value(value) <= most) {
        *out = (int)json_integer_value(value);
        return true;
    }
    cause_set(cause, "%s must be an integer from 0 to %d", key, most);
    return false;
}

static bool get_time(const json_t *object, const char *key, double *sum, char **cause)
{
    const json_t *value = json_object_get(object, key);

    if (json_is_number(value) && json_number_value(value) >= 0 &&
        json_number_value(value) <= MS_LIMIT) {
        *sum += json_number_value(value);
        return true;
    }
    cause_set(cause, "%s must be a number of milliseconds from 0 to %g", key, MS_LIMIT);
    return false;
}

/* (count) numbers in [low, high], null = NaN. */
static bool get_numbers(const json_t *object, const char *key, int count, double low, double high,
                        float *out, char **cause)
{
    const json_t *array = json_object_get(object, key);

    if (!json_is_array(array) || json_array_size(array) != (size_t)count) goto wrong;
    for (int k = 0; k < count; k++) {
        const json_t *value = json_array_get(array, (size_t)k);
        double number = json_number_value(value);

        if (!json_is_null(value) && !(json_is_number(value) && number >= low && number <= high))
            goto wrong;
        out[k] = json_is_null(value) ? NAN : (float)number;
    }
    return true;
wrong:
    cause_set(cause,
              "%s must be an array of %d numbers from %g to %g or null, one a drafted position",
              key, count, low, high);
    return false;
}

/* A plain stratum, or -1: the estimators learn from no other. */
static int stratum_of(const char *name)
{
    for (int i = 0; i < STRATA_ESTIMATORS; i++)
        if (strcmp(name, strata_name(i)) == 0) return i;
    return -1;
}

static bool get_row(const json_t *object, struct row *row, int *emitted, char **cause)
{
    const char *stratum = json_string_value(json_object_get(object, "stratum"));
    int drafted;

    if (!stratum) {
        cause_set(cause, "stratum must be a string");
        return false;
    }
    row->stratum = stratum_of(stratum);
    if (!get_count(object, "drafted", TT_MAX_POSITIONS, &drafted, cause) ||
        !get_count(object, "admitted", drafted, &row->admitted, cause) ||
        !get_count(object, "accepted", row->admitted, &row->accepted, cause) ||
        !get_count(object, "emitted", TT_MAX_POSITIONS + 1, emitted, cause) ||
        !get_numbers(object, "feature", drafted, -TRACE_FEATURE_LIMIT, TRACE_FEATURE_LIMIT,
                     row->feature, cause) ||
        !get_numbers(object, "predicted", drafted, 0, 1, row->predicted, cause))
        return false;
    /* Positions behind a stop token carry no label. */
    if (row->admitted > *emitted) row->admitted = *emitted;
    if (row->accepted > row->admitted) row->accepted = row->admitted;
    return true;
}

/* ---- scores */

static void grade(struct decisions_score *score, double p, bool accepted)
{
    double y = accepted;

    if (!(p > 0) || p > 1) return;
    if (p > SURE) p = SURE;
    score->labels++;
    score->accepted += y;
    score->predicted += p;
    score->squared_error += (y - p) * (y - p);
    score->log_loss -= accepted ? log(p) : log1p(-p);
}

static void take_row(struct reader *reader, const struct row *row)
{
    for (int kind = 0; kind < DECISIONS_KINDS; kind++) {
        const struct strata *strata = reader->strata[kind];
        float predicted[TT_MAX_POSITIONS];
        struct tt_observation observation = {.feature = row->feature,
                                             .predicted = predicted,
                                             .admitted = row->admitted,
                                             .accepted = row->accepted};

        for (int k = 0; k < row->admitted; k++)
            predicted[k] = strata ? (float)strata_predict(strata, row->stratum, k, row->feature[k])
                                  : row->predicted[k];
        for (int k = 0; k < row->admitted && k <= row->accepted; k++)
            grade(&reader->out->score[kind][row->stratum], (double)predicted[k], k < row->accepted);
        if (strata) strata_observe(reader->strata[kind], row->stratum, &observation);
    }
}

static void ignore_refit(void *state, int stratum, int bits)
{
    (void)state, (void)stratum, (void)bits;
}

static bool take_step(struct reader *reader, const json_t *step, char **cause)
{
    const json_t *requests = json_object_get(step, "requests"), *request;
    const char *schema = json_string_value(json_object_get(step, "schema"));
    size_t i;

    if (!schema || strcmp(schema, SCHEMA) != 0) {
        cause_set(cause, "the schema is not \"" SCHEMA "\"");
        return false;
    }
    if (!json_is_array(requests)) {
        cause_set(cause, "requests must be an array");
        return false;
    }
    if (!get_time(step, "draft_ms", &reader->out->draft_ms, cause) ||
        !get_time(step, "verify_ms", &reader->out->verify_ms, cause))
        return false;
    json_array_foreach(requests, i, request)
    {
        struct row row;
        int emitted;

        if (!get_row(request, &row, &emitted, cause)) return false;
        reader->out->emitted += emitted;
        if (row.stratum >= 0)
            take_row(reader, &row);
        else
            reader->out->skipped++;
    }
    for (int kind = 0; kind < DECISIONS_KINDS; kind++)
        if (reader->strata[kind]) strata_end_step(reader->strata[kind], ignore_refit, NULL);
    reader->out->steps++;
    return true;
}

static bool take_line(struct reader *reader, const char *line, char **cause)
{
    json_error_t error;
    json_t *step = json_loads(line, JSON_REJECT_DUPLICATES, &error);
    bool ok = false;

    if (step)
        ok = take_step(reader, step, cause);
    else
        cause_set(cause, "not JSON: %s (column %d)", error.text, error.column);
    json_decref(step);
    return ok;
}

/* ---- a file */

static bool read_lines(struct reader *reader, struct lines *lines, char **warning, char **cause)
{
    char *why = NULL;
    int status;

    while ((status = lines_next(lines, cause)) > 0) {
        if (lines->text[0] == '\0') continue;
        if (!take_line(reader, lines->text, &why))
            return lines_forgive(lines, warning, &why, cause);
    }
    return status == 0;
}

bool decisions_read(const char *path, struct decisions *out, char **warning, char **cause)
{
    struct reader reader = {.out = out};
    struct lines lines;
    bool ok = false;

    *out = (struct decisions){0};
    *warning = NULL;
    if (!lines_open(&lines, path, cause)) return false;
    reader.strata[DECISIONS_ONLINE] = strata_new(TT_MAX_POSITIONS, TT_ONLINE, 0);
    reader.strata[DECISIONS_PARITY] = strata_new(TT_MAX_POSITIONS, TT_PARITY, 0);
    if (reader.strata[DECISIONS_ONLINE] && reader.strata[DECISIONS_PARITY])
        ok = read_lines(&reader, &lines, warning, cause);
    else
        cause_set(cause, "out of memory");
    if (ok && lines.number == 0) {
        cause_set(cause, "%s: no step in it", path);
        ok = false;
    }
    lines_close(&lines);
    for (int kind = 0; kind < DECISIONS_KINDS; kind++) strata_free(reader.strata[kind]);
    return ok;
}
