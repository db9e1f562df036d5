/* bench_load.h - the parts of `trimtab bench load`: what is run (bench_load.c, bench_load_grid.c,
 * bench_load_form.c), the policies over one block of requests (bench_load_run.c), what the runs
 * say (bench_load_result.c) and how it is shown (bench_load_report.c).
 *
 * A cell is a load: form of the target, mix of prompts, temperature, concurrency. Its policies meet
 * the same requests in the same block: off, fixed K = 1 …, adaptive. Blocks are counted from 1.
 */
#ifndef CONTROLLER_BENCH_LOAD_H
#define CONTROLLER_BENCH_LOAD_H

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

#include "controller/bench.h"
#include "controller/inprocess.h"
#include "controller/trace.h"
#include "storage/bench.h"

#define LOAD_MOST_DRAFT 16
#define LOAD_MOST_POLICIES (LOAD_MOST_DRAFT + 2) /* off, fixed K, adaptive */
#define LOAD_MOST_BLOCKS 64
#define LOAD_POLICY_NAME 24
#define LOAD_MOST_CONCURRENCY 64

extern volatile sig_atomic_t load_stopped; /* a signal asked for the end */

/* ---- bench_load_grid.c */

#define LOAD_MOST_FORMS 8
#define LOAD_MOST_MIXES 8
#define LOAD_MOST_TEMPERATURES 8
#define LOAD_MOST_LEVELS 16

struct load_form {
    char name[16];
    char *path;
    char *configuration; /* JSON: whatever a figure of it depends on */
};

struct load_grid {
    struct load_form form[LOAD_MOST_FORMS];
    char mix[LOAD_MOST_MIXES][16];
    double temperature[LOAD_MOST_TEMPERATURES];
    long concurrency[LOAD_MOST_LEVELS];
    size_t forms, mixes, temperatures, levels;
};

/* Read the lists `a,b,c` of forms, mixes and temperatures. False after complaining. */
bool load_grid_read(struct load_grid *grid, const char *forms, const char *mixes,
                    const char *temperatures);
/* Does a mix hold this prompt? Has every mix one of (count)? False after complaining of the file.
 */
bool load_in_mix(const struct bench_prompt *prompt, const char *mix);
bool load_grid_has_prompts(const struct load_grid *grid, const struct bench_prompt *prompts,
                           int count, const char *path);

/* ---- bench_load_result.c */

/* A policy's index: 0 = off, K = fixed K, max_draft + 1 = adaptive. */
struct load_policies {
    int max_draft;
};
int load_policy_count(const struct load_policies *policies);
int load_policy_adaptive(const struct load_policies *policies);
void load_policy_name(const struct load_policies *policies, int policy, char *out, size_t size);
int load_policy_parse(const struct load_policies *policies, const char *name); /* or -1 */

struct load_cell {
    struct bench_cell load;
    struct load_policies policies;
    double tps[LOAD_MOST_POLICIES][LOAD_MOST_BLOCKS]; /* [block - 1]; NaN = not run */
    double oracle_to_best, oracle_to_off;             /* replayed; NaN = unknown */
};
void load_cell_clear(struct load_cell *cell);
/* Blocks in which the policy ran. */
int load_cell_blocks(const struct load_cell *cell, int policy);
/* Is the policy worth a run in this block? Off and adaptive always are; a fixed K is left out once
 * the odd blocks before say that it is clearly not the best. */
bool load_cell_wants(const struct load_cell *cell, int policy, int block);

struct load_interval {
    double mean, half; /* half-width at 95 %; NaN with fewer than two values */
};
/* Student's interval of the mean of (count) independent values. */
struct load_interval load_interval(const double *values, int count);

#define LOAD_ORACLE "oracle"
/* One row a policy that ran, and one of the oracle's bound when it is known. Names stand in the
 * summary. */
struct load_summary {
    int count, adaptive; /* row of adaptive, -1 = it did not run */
    struct bench_result row[LOAD_MOST_POLICIES + 1];
    char name[LOAD_MOST_POLICIES + 1][LOAD_POLICY_NAME];
    char best[2 * LOAD_POLICY_NAME]; /* `fixed-2`; `off,fixed-2` where the halves choose two */
};
void load_cell_summarize(const struct load_cell *cell, struct load_summary *summary);

/* ---- bench_load_form.c */

#define LOAD_FORM_AS_IS "as-is" /* the target's file, whatever its form */
#define LOAD_DIGEST_SIZE 17

/* The default target, where the set-up put it; malloc'd, or NULL with *cause. */
char *load_form_target(char **cause);
/* Where that form of a target is kept: the file itself when it is of that form, else in the cache.
 * malloc'd, or NULL when out of memory or without a home. */
char *load_form_path(const char *target, const char *form);
/* Make the form at that path unless it is there. 0, or -1 with *cause. */
int load_form_make(const char *target, const char *path, const char *form, int threads,
                   char **cause);
/* Tells the contents of a file (of a name, when there is no such file) from others. */
void load_file_digest(const char *path, char out[LOAD_DIGEST_SIZE]);
/* This program and the library of its kernels, told from any other build; a new string. */
json_t *load_build_digest(void);
/* bench.db in the user's state folder; malloc'd, or NULL without a home. */
char *load_default_database(void);

/* ---- bench_load_oracle.c */

struct load_texts {            /* what is recorded: the mix's prompts, as they are in their file */
    const char *const *prompt; /* (count) */
    int count, tokens, max_draft;
};
/* Record greedy texts on a pair whose contexts are empty, and leaves something in them. NULL when
 * load_stopped ended it, or with *cause. */
struct trace_set *load_oracle_record(const struct pair *pair, const struct load_texts *texts,
                                     char **cause);
/* The oracle's rate over the best of off and fixed K, and over off, into the cell. False when out
 * of memory. */
bool load_oracle_bound(const struct trace_set *traces, const struct cost_model *cost,
                       struct load_cell *cell);

/* ---- bench_load_run.c */

struct load_server; /* a pair of models with a loop a policy */

struct load_server_options {
    const char *target, *draft;
    int parallel, max_draft, threads;
    void (*progress)(void *state, const char *what, double done); /* 0..1 */
    void *state;
};
struct load_server *load_server_open(const struct load_server_options *options, char **cause);
void load_server_close(struct load_server *server); /* NULL-safe */
/* The prompt in the target's chat template; malloc'd, or NULL with *cause. */
char *load_server_chat(struct load_server *server, const char *prompt, char **cause);

/* Record for the oracle; no policy runs meanwhile. As load_oracle_record. */
struct trace_set *load_server_record(struct load_server *server, const struct load_texts *texts,
                                     char **cause);
/* The adaptive loop's; the server's own. */
const struct cost_model *load_server_cost(struct load_server *server);

struct load_requests {   /* of one block */
    char *const *prompt; /* (prompts) in the chat template */
    int prompts, block, concurrency, tokens;
    float temperature;
};
/* Run the wanted policies over a block, side by side. 0 with their out[policy]; 1 when load_stopped
 * ended it; -1 with *cause. wanted, out: (policies). */
int load_server_run(struct load_server *server, const bool *wanted,
                    const struct load_requests *requests, struct bench_block *out, char **cause);

/* ---- bench_load_report.c */

/* Table and plot of the cells that have blocks; or one JSON object, `about` (an object) included.
 */
void load_report_print(FILE *out, const struct load_cell *cells, size_t count);
void load_report_json(FILE *out, const struct load_cell *cells, size_t count, json_t *about);

#endif
