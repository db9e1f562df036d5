/* engine_table.h - what the metrics of known engines mean in trimtab's words, and a page of them
 * read into counts.
 *
 * One table maps names to figures; a page is read into one row an `engine` label (data parallel
 * engines report side by side), so that sums never overwrite and one engine's restart is seen.
 * A figure that no series of the page carries is unknown, which is not zero. Sources: vLLM 0.32 and
 * 0.33 (vllm/v1/metrics, vllm/v1/spec_decode/metrics.py), llama.cpp's server (server-task.cpp of
 * the pinned engine), SGLang (metrics_collector.py), TensorRT-LLM (metrics/collector.py).
 */
#ifndef CONTROLLER_ENGINE_TABLE_H
#define CONTROLLER_ENGINE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "controller/exposition.h"

#define ENGINE_POSITIONS 32
#define ENGINE_ROWS 64    /* data parallel engines of one page */
#define ENGINE_BUCKETS 48 /* of one histogram */
#define ENGINE_LABEL 24

enum engine {
    ENGINE_UNKNOWN,
    ENGINE_VLLM,
    ENGINE_LLAMA_SERVER,
    ENGINE_TRIMTAB,
    ENGINE_SGLANG,
    ENGINE_TENSORRT_LLM,
    ENGINES
};
const char *engine_name(enum engine engine); /* "vllm" …; "unknown" */
/* Do its counters move only when a request ends? (llama-server) Rates need a longer window then. */
bool engine_counts_at_end(enum engine engine);

enum figure {
    /* counters, summed over engines */
    FIGURE_DRAFTS, /* draft blocks */
    FIGURE_DRAFTED,
    FIGURE_ADMITTED,
    FIGURE_VERIFIED,
    FIGURE_ACCEPTED,
    FIGURE_EMITTED,
    FIGURE_PROMPT,
    FIGURE_REQUESTS,
    FIGURE_STEPS,
    FIGURE_COUNTERS, /* how many */
    /* gauges */
    FIGURE_RUNNING = FIGURE_COUNTERS,
    FIGURE_WAITING,
    FIGURE_KV,     /* used part of the KV cache, 0 … 1; of several engines the fullest */
    FIGURE_LENGTH, /* mean tokens a step and request, where no counters give it; their mean */
    FIGURE_SCALARS,
    /* by position */
    FIGURE_ACCEPTED_AT = FIGURE_SCALARS,
    /* histograms, seconds */
    FIGURE_FIRST_TOKEN,
    FIGURE_INTER_TOKEN,
    FIGURES
};
const char *figure_name(enum figure figure); /* "drafted", "running" … */

struct engine_row { /* one engine of the page; NaN = unknown */
    char label[ENGINE_LABEL];
    double value[FIGURE_SCALARS];
    double accepted_at[ENGINE_POSITIONS];
    int positions;  /* 1 + the highest position reported */
    double created; /* UTC seconds when its counters began */
};

struct engine_histogram { /* summed over engines */
    int buckets;          /* 0 = unknown */
    double bound[ENGINE_BUCKETS];
    double cumulated[ENGINE_BUCKETS];
};

enum engine_fault {                      /* why a sample of the table was left out */
                    ENGINE_BAD_VALUE,    /* a count that is negative or not finite */
                    ENGINE_BAD_POSITION, /* no position label, or beyond ENGINE_POSITIONS */
                    ENGINE_BAD_BUCKET,   /* no le label, or too many */
                    ENGINE_BAD_TYPE,     /* # TYPE says something other than the table expects */
                    ENGINE_TOO_MANY,     /* more than ENGINE_ROWS engines */
                    ENGINE_COPY,         /* another rank's copy of the same requests */
                    ENGINE_FAULTS
};
const char *engine_fault_text(enum engine_fault fault);

struct engine_page {
    enum engine engine;
    int rows;
    struct engine_row row[ENGINE_ROWS];
    struct engine_histogram first_token, inter_token;
    double process_start; /* UTC seconds; NaN = unknown */
    char model[96];       /* the model_name label, if any */
    int64_t faults[ENGINE_FAULTS];
    int64_t used;
};

/* What became of one sample: for those who show it (trimtab inspect). */
struct engine_verdict {
    bool used;
    enum figure figure; /* when used, or when it has a fault */
    bool start;         /* it tells when counters began */
    bool has_fault;
    enum engine_fault fault;
};

void engine_page_clear(struct engine_page *page);
/* For exposition_begin: wants the families of the table only. `state` is not used. */
int engine_choose(void *state, const struct exposition_slice *family);
/* Take one sample whose `choice` is engine_choose's. */
struct engine_verdict engine_take(struct engine_page *page, const struct exposition_sample *sample);
/* Reads a whole text; `reader` is left for its counts. */
void engine_read(struct engine_page *page, struct exposition *reader, const char *text,
                 size_t length);

/* Sum, mean or maximum over engines as the figure demands; NaN when no row knows it. Rows that do
 * not know it are left out. */
double engine_total(const struct engine_page *page, enum figure figure);
double engine_accepted_at(const struct engine_page *page, int position); /* sum; NaN = unknown */
int engine_positions(const struct engine_page *page);
/* Are there counters of speculation at all? */
bool engine_speculates(const struct engine_page *page);
const struct engine_row *engine_find_row(const struct engine_page *page, const char *label);

/* The q-quantile (0 … 1) of what happened between two readings, interpolated inside its bucket as
 * Prometheus does; NaN when nothing happened. `before` may have no buckets: since the start. The
 * last bucket has no upper bound: its lower one is handed out. */
double engine_quantile(const struct engine_histogram *now, const struct engine_histogram *before,
                       double q);

#endif
