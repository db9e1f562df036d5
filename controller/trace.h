/* trace.h - teacher-forced traces: what the draft model would have proposed, and what of it would
 * have been accepted, at every index of texts that the target really emitted.
 *
 * From such a trace every policy can be replayed: a block of l drafts at index i is accepted
 * min(l, accepted) deep and the text goes on at i + that + 1. Two forms are read, plain or
 * compressed by gzip; docs/replay.md describes both:
 *
 *     text    `text i m f0 … f5`, one line an index
 *     JSONL   trimtab.trace/1: a header, then lines of texts, indices and ends (`trimtab bench
 *             record`); the file pair trace_json.c writes and reads it
 */
#ifndef CONTROLLER_TRACE_H
#define CONTROLLER_TRACE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/trimtab.h"

#define TRACE_SCHEMA "trimtab.trace/1"
#define TRACE_TEXT_DEPTH 6 /* drafts of a line of the text form */
#define TRACE_FEATURE_LIMIT                                                                        \
    1000 /* a feature beyond is damage, in a trace and in a record: the estimators clamp at ±16 */

/* One index of a text. Arrays are (depth) of its set. */
struct trace_index {
    int accepted; /* leading drafts that are accepted, 0 .. drafted */
    int labelled; /* leading drafts that were reached inside the text, so that it is known whether
                     they are accepted; computed when read */
    int drafted; /* drafts proposed, at most the set's depth; fewer only where the text form says */
    int32_t token; /* what the target emitted here; -1 = not recorded (text form) */
    const int32_t *draft;
    const float *feature;
    const float *soft; /* acceptance probability of each draft that is reached, else NaN */
};

struct trace_text {
    int length, capacity;
    enum tt_rule rule;
    float temperature;
    char *prompt;   /* NULL in the text form */
    int *accepted;  /* (length) */
    int *drafted;   /* (length) */
    int32_t *token; /* (length) */
    int32_t *draft; /* (length, depth) */
    float *feature; /* (length, depth) */
    float *soft;    /* (length, depth) */
};

struct trace_set {
    int depth; /* K of every text; 0 = nothing read yet */
    int count, capacity;
    struct trace_text *text;
    long tokens; /* indices of all texts */
};

struct trace_set *trace_set_new(void);
void trace_set_free(struct trace_set *set); /* NULL-safe */

/* Append the texts of a file. temperature: of the text form, which does not carry it; < 0 takes it
 * from a name that ends in `-tT.txt[.gz]`, else 0. On failure false with *cause: "FILE:LINE: what
 * is wrong"; the set is then only good for freeing. A last line, or a last text, that was cut short
 * is left out: *warning (malloc'd) says so. */
bool trace_read(struct trace_set *set, const char *path, double temperature, char **warning,
                char **cause);

/* ---- building a set: readers and tests */
/* A new empty text at the end of the set. NULL when out of memory. */
struct trace_text *trace_add_text(struct trace_set *set, enum tt_rule rule, double temperature);
/* Take the last text out again. */
void trace_drop_text(struct trace_set *set);
/* Append an index to the last text; arrays are copied. draft and soft may be NULL. */
bool trace_add_index(struct trace_set *set, const struct trace_index *index);
/* Index i of a text: pointers into it. */
struct trace_index trace_at(const struct trace_set *set, const struct trace_text *text, int i);

/* ---- the JSONL form, line by line: trace_json.c */

struct trace_reader; /* what the lines so far have said */

/* Begin with the header. NULL with *cause (no place in it). */
struct trace_reader *trace_reader_new(struct trace_set *set, const char *header, char **cause);
/* The next line. False with *cause. */
bool trace_reader_line(struct trace_reader *reader, const char *line, char **cause);
/* The end: takes an unfinished text back out of the set; true when there was one. */
bool trace_reader_end(struct trace_reader *reader);
void trace_reader_free(struct trace_reader *reader); /* NULL-safe */

/* Write lines; false when the file cannot be written. */
bool trace_write_text(FILE *file, int text, const char *prompt);
bool trace_write_index(FILE *file, int text, int i, int depth, const struct trace_index *index);
bool trace_write_end(FILE *file, int text, int length);

#endif
