/* snapshot.h - everything the overview shows of one node at one moment, and its JSON form (schema
 * trimtab.snapshot/1).
 *
 * The one contract between daemon and console. NaN (numbers) and -1 (counts) are unknown: null in
 * JSON, `--` on the screen. Counters are totals since the node's start; rates and means are over
 * `window_ms`. The five counts are those of the glossary.
 */
#ifndef CONTROLLER_SNAPSHOT_H
#define CONTROLLER_SNAPSHOT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define SNAPSHOT_SCHEMA "trimtab.snapshot/1"
#define SNAPSHOT_MAX_POSITIONS 32
#define SNAPSHOT_NAME 96

/* A remote engine does not always tell its mode: unknown, null in JSON. */
enum mode { MODE_UNKNOWN = -1, MODE_OFF, MODE_FIXED, MODE_ADAPTIVE, MODE_SHADOW };
const char *mode_name(enum mode mode); /* "off" …, "unknown" */
/* As people and decisions name a mode: "adaptive", "fixed K=3" (fixed_draft < 0: unknown, "fixed").
 * Returns out, which holds size bytes; 24 are enough. */
const char *mode_describe(enum mode mode, int fixed_draft, char *out, size_t size);
bool mode_parse(const char *name, enum mode *mode); /* not "unknown": nobody can ask for it */

struct snapshot_position {
    double intercept, intercept_se;
    double accepted_ratio, predicted_ratio; /* of reached, over the estimator's memory */
    int64_t reached, n;                     /* reached in the window; labels ever */
    int64_t accepted_total; /* accepted at this position since the node's start; not only labels */
};

struct snapshot {
    struct {
        char id[SNAPSHOT_NAME], kind[16], engine[32], version[32], model[SNAPSHOT_NAME],
            draft[SNAPSHOT_NAME];
        int tier;              /* 0 watch only, 1 steer, 2 in-process */
        char capabilities[64]; /* "mode,settings": what can be done now */
        char unable[420];      /* why a capability is missing; empty when none is */
        int engines;           /* data parallel engines behind this node */
        char rates[32];        /* how its counters move, when not step by step: "per request end" */
    } node;
    enum mode mode;
    bool switching;  /* the mode is set but not yet in force */
    int fixed_draft; /* K of mode fixed; -1 = unknown */
    int max_draft;
    int64_t generation; /* grows with every change of mode or setting */
    int64_t time_ms;    /* UTC */
    double uptime_s, window_ms;
    double throughput_tps, tokens_per_step, step_ms, draft_ms, verify_ms, own_ms, own_ratio;
    int running, queued;
    int64_t steps, drafted_total, admitted_total, verified_total, accepted_total, emitted_total,
        requests_total, target_rows_total, failed_total;
    int64_t drafts_total; /* draft blocks: one a request and step with drafts (vLLM's num_drafts) */
    int64_t prompt_tokens_total;
    double drafted_per_step, verified_per_step, accepted_verified_ratio; /* over the window */
    double budget;                                                       /* mean admitted a step */
    /* Over the window: tokens a request and step (1 + accepted / draft blocks), accepted of drafted
     * (drafts are counted before trimming: falls when trimming works, never an alarm) */
    double mean_length, accepted_drafted_ratio;
    double first_token_p50_ms, first_token_p95_ms, inter_token_p50_ms, inter_token_p95_ms;
    double kv_ratio; /* used part of the KV cache */
    /* Of an engine in another process: when these figures were read (UTC), restarts since it is
     * watched and the last one's time; 0 = never. */
    int64_t read_ms, restarts, restarted_ms;
    double predicted_tps; /* what the plan expected */
    /* Over the window's steps whose cost was predicted: mean predicted step, mean absolute and
     * signed error as parts of the measured time (bias above 0: slower than predicted). */
    double predicted_step_ms, cost_error_ratio, cost_bias_ratio;
    struct {
        char kind[16], stratum[48];
        double slope, slope_se, level, drift_z, ece, auc;
        int64_t refits, drift_events, last_drift_ms; /* UTC; 0 = never */
        int positions_count;
        struct snapshot_position position[SNAPSHOT_MAX_POSITIONS];
    } estimator;
    struct {
        bool ok;
        int64_t since_ms;
        char reason[160];
    } store;
    struct {
        char state[16], reason[200];
        char advice[160]; /* what to try */
        int64_t since_ms; /* UTC, of the reason; 0 = unknown */
    } health;             /* state: "ok" "degraded" "starting" "draining" "failed" */
    struct {
        bool known;
        int64_t time_ms;
        char before[16], after[16];
        double tps_before, tps_after, step_ms_before, step_ms_after;
        double gain, gain_low, gain_high;
        int64_t n;
        double window_s;
    } toggle; /* effect of the last mode change on tok/s, as ratios - 1 */
};

/* Every number unknown, every name empty; generation and last_drift_ms are 0. */
void snapshot_clear(struct snapshot *snapshot);
/* New JSON object; NULL when out of memory. */
json_t *snapshot_to_json(const struct snapshot *snapshot);
/* 0, or -1 with *cause (malloc'd) naming the key that is missing or of a wrong type. Unknown keys
 * are ignored. */
int snapshot_from_json(const json_t *object, struct snapshot *out, char **cause);

#endif
