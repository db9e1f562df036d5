/* exposition.h - reads a page of metrics: Prometheus text exposition 0.0.4 and 1.0.0, and
 * OpenMetrics 1.0, sample by sample.
 *
 * Borrows the text, allocates nothing, never fails as a whole: a line that it cannot read is left
 * out, counted by its fault, and the first of them are noted with their line. Numbers are read in
 * the C locale whatever the program's. A type comes from `# TYPE` only, never from how a name ends:
 * vLLM's iteration_tokens_total is a histogram. Samples named …_created are the moment when a
 * counter began, not data. Source: the formats' own pages (prometheus.io "Exposition formats",
 * openmetrics.io 1.0).
 */
#ifndef CONTROLLER_EXPOSITION_H
#define CONTROLLER_EXPOSITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPOSITION_NOTES 64   /* faults noted with their line; all are counted */
#define EXPOSITION_LINE 16384 /* bytes of the longest line that is read */
#define EXPOSITION_UNWANTED (-1)

struct exposition_slice { /* part of the text, not terminated */
    const char *text;
    size_t length;
};

enum exposition_type {
    EXPOSITION_UNTYPED, /* no # TYPE before it, or a type without counts: info, stateset */
    EXPOSITION_COUNTER,
    EXPOSITION_GAUGE,
    EXPOSITION_HISTOGRAM,
    EXPOSITION_SUMMARY,
};
const char *exposition_type_name(enum exposition_type type);

enum exposition_role { /* of a sample in its family */
                       EXPOSITION_VALUE,
                       EXPOSITION_BUCKET,
                       EXPOSITION_SUM,
                       EXPOSITION_COUNT,
                       EXPOSITION_QUANTILE,
                       EXPOSITION_CREATED, /* UTC seconds of the series' start */
};

enum exposition_fault {
    EXPOSITION_BAD_NAME,
    EXPOSITION_BAD_LABELS,
    EXPOSITION_BAD_VALUE,
    EXPOSITION_BAD_REST, /* what follows the value is neither a timestamp nor an exemplar */
    EXPOSITION_BAD_TYPE, /* a # TYPE line */
    EXPOSITION_BAD_LENGTH,
    EXPOSITION_AFTER_EOF,
    EXPOSITION_FAULTS
};
const char *exposition_fault_text(enum exposition_fault fault);

struct exposition_sample {
    struct exposition_slice name;   /* as written */
    struct exposition_slice family; /* as # TYPE names it, else the name; without _created */
    struct exposition_slice labels; /* between the braces; well-formed */
    enum exposition_type type;
    enum exposition_role role;
    double value; /* may be NaN or infinite */
    int choice;   /* what `choose` said of the family */
    int line;     /* from 1 */
};

struct exposition {
    const char *at, *end;
    int line;
    struct exposition_slice family; /* of the last # TYPE */
    enum exposition_type type;
    int choice;
    bool ended; /* # EOF was there */
    /* Which families are wanted: any number, handed back in the samples, or EXPOSITION_UNWANTED
     * (their lines are counted, not read). NULL = all, choice 0. */
    int (*choose)(void *state, const struct exposition_slice *family);
    void *state;
    int64_t samples, unwanted, faults[EXPOSITION_FAULTS];
    int notes_count;
    struct {
        int line;
        enum exposition_fault fault;
    } note[EXPOSITION_NOTES];
};

/* Is the page complete? It ends with its last line's end; OpenMetrics also with # EOF. A page cut
 * short must be dropped whole: its last number may be half a number. */
bool exposition_is_whole(const char *text, size_t length, bool openmetrics);

void exposition_begin(struct exposition *reader, const char *text, size_t length,
                      int (*choose)(void *state, const struct exposition_slice *family),
                      void *state);
/* The next sample; false at the end. */
bool exposition_next(struct exposition *reader, struct exposition_sample *out);

/* The value of a label into out, unescaped and terminated, cut at its size. False when it is not
 * there. */
bool exposition_label(const struct exposition_sample *sample, const char *name, char *out,
                      size_t size);
/* A number as the format writes it: decimal, NaN, +Inf, -Inf, Inf. */
bool exposition_number(const char *text, size_t length, double *out);
bool exposition_slice_is(const struct exposition_slice *slice, const char *text);

#endif
