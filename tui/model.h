/* model.h - what the console knows: the daemon's nodes, one node's snapshot and past, its decisions
 * and requests.
 *
 * Owned and used by one thread (the screen's). Fed with parsed JSON of docs/api.md; a document that
 * cannot be read changes nothing and says why. Unknown stays unknown (NaN, -1, empty), up to the
 * screen. Times: `time_ms` are the daemon's clock (UTC ms), `mono_ms` are this program's monotonic
 * clock, passed in.
 */
#ifndef TUI_MODEL_H
#define TUI_MODEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "controller/snapshot.h"
#include "tui/series.h"

#define MODEL_NODES 1024
#define MODEL_REQUESTS 512
#define MODEL_DECISIONS 500
#define MODEL_MARKS 256
#define MODEL_STRATA 32
#define MODEL_BINS 10
#define MODEL_COSTS 256
#define MODEL_UNIFORM 33 /* K = 0 .. 32 */
#define MODEL_SETTINGS 24
#define MODEL_SETTING_NAME 32
#define MODEL_VALUE 40

enum series_name {
    SERIES_SLOPE,
    SERIES_THROUGHPUT,
    SERIES_STEP,
    SERIES_TOKENS_PER_STEP,
    SERIES_ACCEPTED,
    SERIES_BUDGET,
    SERIES_ROWS, /* target rows a step */
    SERIES_SLOPE_SE,
    SERIES_DRIFT_Z,
    SERIES_NODE_COUNT, /* from here on one a position */
    SERIES_INTERCEPT = SERIES_NODE_COUNT,
    SERIES_INTERCEPT_SE = SERIES_INTERCEPT + SNAPSHOT_MAX_POSITIONS,
    SERIES_POSITION_ACCEPTED = SERIES_INTERCEPT_SE + SNAPSHOT_MAX_POSITIONS,
    SERIES_POSITION_PREDICTED = SERIES_POSITION_ACCEPTED + SNAPSHOT_MAX_POSITIONS,
    SERIES_COUNT = SERIES_POSITION_PREDICTED + SNAPSHOT_MAX_POSITIONS
};

struct model_node {
    char id[SNAPSHOT_NAME], kind[16], model[SNAPSHOT_NAME], mode[16], state[16], reason[200];
    char engine[32];
    char unable[200]; /* why a capability is missing */
    double throughput_tps, mean_length, accepted_verified_ratio, slope, drift_z;
    double age_s; /* of its figures, when the daemon made the list */
    int64_t queued;
    int tier; /* -1 = unknown */
    bool can_set_mode, can_set;
};

struct model_request {
    int64_t id, prompt_tokens, emitted;
    char phase[16], drafter[16], rule[16];
    double age_s, tokens_per_step, temperature;
    bool seeded;
};

struct model_decision {
    int64_t time_ms;
    bool is_event;
    char severity[12], what[32], before[64], after[64], who[64], origin[64], text[240];
    char numbers[240]; /* "gain 0.184 · n 600" */
};

struct model_stratum {
    char stratum[48], kind[16];
    double slope, slope_se, level, drift_z, ece, brier, log_loss, auc;
    int64_t refits, drift_events;
    struct {
        double n, sum_p, sum_y;
    } bin[MODEL_BINS]; /* tenths of predicted probability */
    struct {
        char kind[16]; /* of the estimator that learns beside; empty = there is none */
        double slope, ece, brier, log_loss;
    } rival;
};

struct model_cost { /* one measured cell of the target's forward pass */
    int64_t tokens, n, dropped;
    int context_band;
    double ms, spread_ms;
};

enum mark_kind { MARK_TOGGLE, MARK_DRIFT, MARK_RESTART };
enum model_list {
    LIST_NODES,
    LIST_REQUESTS,
    LIST_DECISIONS,
    LIST_CALIBRATION,
    LIST_COST,
    LIST_SETTINGS,
    LIST_COUNT
};

struct model_setting {
    char name[MODEL_SETTING_NAME];
    char value[MODEL_VALUE];   /* in force; as JSON: 6, true, "auto" */
    char pending[MODEL_VALUE]; /* accepted, but not in force yet; empty = nothing is */
};

struct model_mark { /* a moment to show in charts */
    enum mark_kind kind;
    int64_t time_ms;
    char text[48];
};

struct model {
    char node_id[SNAPSHOT_NAME]; /* the node that is watched; empty before the first list */
    bool nodes_known, read_only; /* read_only: the daemon's word about our right */
    int nodes_count;
    int64_t nodes_mono_ms; /* when the list came */
    struct model_node node[MODEL_NODES];
    bool snapshot_known;
    struct snapshot snapshot;  /* the last one */
    int64_t advanced_mono_ms;  /* when its time last moved on */
    int64_t restarted_time_ms; /* the node's last restart that was seen; 0 = none */
    struct series series[SERIES_COUNT];
    struct {             /* the moment that is looked at; strata and costs are then of it too */
        int64_t time_ms; /* 0 = now: nothing of this is used */
        bool known;
        struct snapshot snapshot;
        struct series series[SERIES_COUNT];
        char refusal[160]; /* why it could not be fetched */
    } past;
    bool requests_known, decisions_known, strata_known, costs_known, settings_known;
    int requests_count, decisions_count, marks_count, strata_count, costs_count, uniform_count,
        settings_count;
    struct model_setting setting[MODEL_SETTINGS];
    char settings_await[200]; /* what the pending ones wait for */
    struct model_request request[MODEL_REQUESTS];
    struct model_decision decision[MODEL_DECISIONS]; /* newest first */
    struct model_mark mark[MODEL_MARKS];
    struct model_stratum stratum[MODEL_STRATA];
    struct model_cost cost[MODEL_COSTS];
    double uniform_tps[MODEL_UNIFORM]; /* what a fixed K would give now */
    char refusal[LIST_COUNT][160];     /* why the last fetch of a list failed; empty = it did not */
};

struct model *model_new(void); /* NULL when out of memory */
void model_free(struct model *model);
/* Watch another node: its figures are unknown until they come. */
void model_watch(struct model *model, const char *node_id);

/* Look at another moment (UTC ms), or at now (0): its figures are unknown until they come. */
void model_look(struct model *model, int64_t time_ms);

/* Each returns 0, or -1 with *cause (malloc'd); documents of another node than the watched one are
 * ignored. */
int model_take_nodes(struct model *model, const json_t *nodes, int64_t mono_ms, char **cause);
int model_take_snapshot(struct model *model, const json_t *snapshot, int64_t mono_ms, char **cause);
int model_take_history(struct model *model, const json_t *history, char **cause);
int model_take_requests(struct model *model, const json_t *requests, char **cause);
int model_take_calibration(struct model *model, const json_t *calibration, char **cause);
int model_take_cost(struct model *model, const json_t *cost, char **cause);
int model_take_decisions(struct model *model, const json_t *decisions, char **cause);
int model_take_settings(struct model *model, const json_t *settings, char **cause);
/* Of the moment that is looked at; those of another one are ignored. */
int model_take_past(struct model *model, const json_t *past, char **cause);
int model_take_past_history(struct model *model, const json_t *history, char **cause);

/* The daemon has nothing of that moment. */
void model_refuse_past(struct model *model, const char *why);
/* The daemon refused this list: views say why instead of waiting. */
void model_refuse(struct model *model, enum model_list list, const char *why);

/* Of now, or of the moment that is looked at. */
const struct snapshot *model_snapshot(const struct model *model);
const struct series *model_series(const struct model *model, int series);
bool model_is_known(const struct model *model);

/* The setting of that name, or NULL. */
const struct model_setting *model_setting_named(const struct model *model, const char *name);

/* The row of the watched node, or NULL. */
const struct model_node *model_watched(const struct model *model);
/* Nothing new for longer than max(3 intervals, 5 s)? (console, rule 3) */
bool model_is_stale(const struct model *model, int64_t mono_ms, int64_t interval_ms);
/* The same of the list of nodes, which is fetched every interval where it is shown. */
bool model_nodes_are_stale(const struct model *model, int64_t mono_ms, int64_t interval_ms);
/* Names for the history API: `slope`, `intercept.3`, … */
void model_series_label(int series, char *out, size_t size);

#endif
