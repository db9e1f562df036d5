/* api_past.c - see api.h: a node as it was at one moment, from the store: what the console shows
 * when an operator goes back in time.
 *
 * The documents inside have the form of the live ones, so that one reader takes both. What the
 * store does not keep (totals, queued requests, health, predictions for uniform K) is unknown
 * there. Rates come from the finest tier that still holds the moment.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/api.h"
#include "controller/api_common.h"
#include "controller/json_number.h"
#include "controller/ratio.h"
#include "controller/snapshot.h"
#include "storage/reader.h"

enum { READ_TIME_MS = 2000, STRATA_MAX = 32, BINS = 10, PARTS = 3 };
static const int64_t stratum_together_ms = 60000; /* refits this close count as equally recent */

struct past_stratum {
    char name[48], kind[16];
    double slope, slope_se, level, centre, drift_z;
    int64_t refits, labels, time_ms;
    int positions_count;
    struct snapshot_position position[SNAPSHOT_MAX_POSITIONS];
    struct {
        double n, sum_p, sum_y;
    } bin[BINS];
};

struct past {
    struct exchange *x;
    struct reader *reader;
    int64_t run_id, at_ms; /* run_id 0: the node had not run yet */
    bool ended;            /* that run was over: there are no rates */
    struct snapshot snapshot;
    int strata_count;
    struct past_stratum stratum[STRATA_MAX];
    json_t *cost[PARTS]; /* verify, draft, own */
};
static const char *const part_names[PARTS] = {"verify", "draft", "own"};
static const char *const part_sizes[PARTS] = {"tokens", "requests", "requests"};

/* ------------------------------------------------------------------------------ values of a row */

static double real_of(const struct reader_value *value)
{
    return value->type == READER_INTEGER || value->type == READER_REAL ? value->real : NAN;
}

static int64_t integer_of(const struct reader_value *value)
{
    return value->type == READER_INTEGER ? value->integer : -1;
}

static void copy_of(char *out, size_t size, const struct reader_value *value)
{
    snprintf(out, size, "%s", value->type == READER_TEXT ? value->text : "");
}
#define COPY(field, value) copy_of(field, sizeof(field), value)

/* Runs `sql` with ?1 = `first` and ?2 = the moment. False with the reply filled. */
static bool query_first(struct past *past, const char *sql, const struct reader_value *first,
                        reader_row_fn *row)
{
    const struct reader_limits limits = {.time_ms = READ_TIME_MS};
    const struct reader_value bind[] = {
        *first,
        {.type = READER_INTEGER, .integer = past->at_ms, .real = (double)past->at_ms},
    };
    char *cause = NULL;
    bool done = reader_query(past->reader, sql, bind, 2, &limits, row, past, &cause) == READER_DONE;

    if (!done)
        reply_error(&past->x->reply, 503, NULL, "store_unavailable", "%s",
                    cause ? cause : "reading the store took too long; try again");
    free(cause);
    return done;
}

/* The same with ?1 = the run. */
static bool query(struct past *past, const char *sql, reader_row_fn *row)
{
    const struct reader_value run = {
        .type = READER_INTEGER, .integer = past->run_id, .real = (double)past->run_id};

    return query_first(past, sql, &run, row);
}

/* -------------------------------------------------------------------------------------- the run */

static bool take_run(void *state, int columns, const char *const *names,
                     const struct reader_value *value)
{
    struct past *past = state;
    struct snapshot *s = &past->snapshot;

    (void)columns;
    (void)names;
    if (!value) return true;
    past->run_id = value[0].integer;
    COPY(s->node.kind, &value[1]);
    COPY(s->node.engine, &value[2]);
    COPY(s->node.version, &value[3]);
    COPY(s->node.model, &value[4]);
    COPY(s->node.draft, &value[5]);
    s->max_draft = (int)integer_of(&value[6]);
    s->uptime_s = (double)(past->at_ms - value[7].integer) / 1000;
    past->ended = value[8].type == READER_INTEGER && value[8].integer < past->at_ms;
    return true;
}

static bool read_run(struct past *past, const char *node)
{
    static const char sql[] =
        "SELECT r.run_id, n.kind, r.engine, r.version, r.model, r.draft, r.max_draft, r.start_ms,"
        " r.end_ms FROM node AS n JOIN run AS r USING (node_id)"
        " WHERE n.name = ?1 AND r.start_ms <= ?2 ORDER BY r.start_ms DESC, r.run_id DESC LIMIT 1";
    const struct reader_value name = {.type = READER_TEXT, .text = node, .length = strlen(node)};

    if (!query_first(past, sql, &name, take_run)) return false;
    if (past->run_id == 0)
        reply_error(&past->x->reply, 404, "at", "no_history",
                    "nothing is stored of '%s' that far back", node);
    return past->run_id != 0;
}

/* ---------------------------------------------------------------------------------------- rates */

/* clang-format off */
/* One row over everything that `where` selects; of the mode, the latest one's. */
#define SUMS(time, seconds, running, queued)                                                       \
    "SELECT max(" time "), m.name, sum(" seconds "), sum(" running "), sum(" queued "),"           \
    " sum(steps), sum(drafted), sum(verified), sum(admitted), sum(accepted), sum(emitted),"        \
    " sum(draft_us), sum(verify_us), sum(own_us), sum(step_us)"
static const char *const sums_sql[] = {
    SUMS("time_ms", "1", "running", "queued")
    " FROM sample JOIN mode AS m USING (mode_id)"
    " WHERE run_id = ?1 AND time_ms > ?2 - 5000 AND time_ms <= ?2",
    SUMS("minute", "seconds", "running_sum", "queued_sum")
    " FROM sample_1m JOIN mode AS m USING (mode_id) WHERE run_id = ?1 AND minute = ?2 / 60000",
    SUMS("hour", "seconds", "running_sum", "queued_sum")
    " FROM sample_1h JOIN mode AS m USING (mode_id) WHERE run_id = ?1 AND hour = ?2 / 3600000",
};
#define POSITION_SUMS                                                                              \
    "SELECT position, sum(reached), sum(p.accepted), sum(predicted_e4) / 1e4"
static const char *const positions_sql[] = {
    POSITION_SUMS " FROM sample AS s JOIN sample_position AS p USING (sample_id)"
    " WHERE s.run_id = ?1 AND s.time_ms > ?2 - 60000 AND s.time_ms <= ?2 GROUP BY position",
    POSITION_SUMS " FROM sample_1m_position AS p"
    " WHERE run_id = ?1 AND minute = ?2 / 60000 GROUP BY position",
    POSITION_SUMS " FROM sample_1h_position AS p"
    " WHERE run_id = ?1 AND hour = ?2 / 3600000 GROUP BY position",
};
/* clang-format on */
enum { TIERS = sizeof sums_sql / sizeof *sums_sql };

/* The mean of a sum over the seconds, to the next whole; -1 when the engine did not tell. */
static int mean_count(const struct reader_value *sum, double seconds)
{
    double mean = ratio(real_of(sum), seconds);

    return isfinite(mean) ? (int)lround(mean) : -1;
}

static bool take_sums(void *state, int columns, const char *const *names,
                      const struct reader_value *value)
{
    struct snapshot *s = &((struct past *)state)->snapshot;
    double seconds, steps;

    (void)columns;
    (void)names;
    if (!value || value[0].type == READER_NULL) return true;
    if (!mode_parse(value[1].text, &s->mode)) s->mode = MODE_UNKNOWN;
    seconds = real_of(&value[2]);
    steps = real_of(&value[5]);
    s->window_ms = seconds * 1000;
    s->running = mean_count(&value[3], seconds);
    s->queued = mean_count(&value[4], seconds);
    s->throughput_tps = ratio(real_of(&value[10]), seconds);
    s->tokens_per_step = ratio(real_of(&value[10]), steps);
    s->drafted_per_step = ratio(real_of(&value[6]), steps);
    s->verified_per_step = ratio(real_of(&value[7]), steps);
    s->budget = ratio(real_of(&value[8]), steps);
    s->accepted_verified_ratio = ratio(real_of(&value[9]), real_of(&value[7]));
    s->draft_ms = ratio(real_of(&value[11]), steps) / 1000;
    s->verify_ms = ratio(real_of(&value[12]), steps) / 1000;
    s->own_ms = ratio(real_of(&value[13]), steps) / 1000;
    s->step_ms = ratio(real_of(&value[14]), steps) / 1000;
    s->own_ratio = ratio(real_of(&value[13]), real_of(&value[14]));
    return true;
}

static bool take_position(void *state, int columns, const char *const *names,
                          const struct reader_value *value)
{
    struct snapshot *s = &((struct past *)state)->snapshot;
    int64_t position = value ? value[0].integer : -1;

    (void)columns;
    (void)names;
    if (position < 0 || position >= SNAPSHOT_MAX_POSITIONS) return true;
    struct snapshot_position *p = &s->estimator.position[position];
    p->reached = integer_of(&value[1]);
    p->accepted_ratio = ratio(real_of(&value[2]), real_of(&value[1]));
    p->predicted_ratio = ratio(real_of(&value[3]), real_of(&value[1]));
    if (position >= s->estimator.positions_count) s->estimator.positions_count = (int)position + 1;
    return true;
}

static bool read_rates(struct past *past)
{
    for (int tier = 0; tier < TIERS && !isfinite(past->snapshot.window_ms); tier++)
        if (!query(past, sums_sql[tier], take_sums)) return false;
    for (int tier = 0; tier < TIERS && past->snapshot.estimator.positions_count == 0; tier++)
        if (!query(past, positions_sql[tier], take_position)) return false;
    return true;
}

/* ------------------------------------------------------------------------------------ estimator */

/* The last refit of every stratum, a row an intercept: index seeks, however long the history. */
static const char refits_sql[] =
    "SELECT s.name, f.kind, f.slope, f.slope_se, f.level, f.centre, f.drift_z, f.epoch,"
    " f.observations, f.time_ms, i.position, i.intercept, i.intercept_se, i.observations"
    " FROM stratum AS s JOIN refit AS f ON f.refit_id = (SELECT x.refit_id FROM refit AS x"
    "  WHERE x.run_id = ?1 AND x.stratum_id = s.stratum_id AND x.time_ms <= ?2"
    "  ORDER BY x.time_ms DESC, x.refit_id DESC LIMIT 1)"
    " LEFT JOIN refit_intercept AS i USING (refit_id) ORDER BY s.stratum_id, i.position";

static struct past_stratum *stratum_named(struct past *past, const char *name, bool add)
{
    for (int i = 0; i < past->strata_count; i++)
        if (strcmp(past->stratum[i].name, name) == 0) return &past->stratum[i];
    if (!add || past->strata_count == STRATA_MAX) return NULL;
    struct past_stratum *stratum = &past->stratum[past->strata_count++];
    snprintf(stratum->name, sizeof stratum->name, "%s", name);
    return stratum;
}

static bool take_refit(void *state, int columns, const char *const *names,
                       const struct reader_value *value)
{
    struct past *past = state;
    struct past_stratum *stratum;

    (void)columns;
    (void)names;
    if (!value || !(stratum = stratum_named(past, value[0].text, true))) return true;
    COPY(stratum->kind, &value[1]);
    stratum->slope = real_of(&value[2]);
    stratum->slope_se = real_of(&value[3]);
    stratum->level = real_of(&value[4]);
    stratum->centre = real_of(&value[5]);
    stratum->drift_z = real_of(&value[6]);
    stratum->refits = integer_of(&value[7]);
    stratum->labels = integer_of(&value[8]);
    stratum->time_ms = integer_of(&value[9]);
    int64_t position = integer_of(&value[10]);
    if (position < 0 || position >= SNAPSHOT_MAX_POSITIONS) return true;
    stratum->position[position].intercept = real_of(&value[11]);
    stratum->position[position].intercept_se = real_of(&value[12]);
    stratum->position[position].n = integer_of(&value[13]);
    stratum->positions_count = (int)position + 1;
    return true;
}

/* clang-format off */
#define BIN_SUMS "SELECT s.name, c.bin, sum(c.n), sum(c.sum_p), sum(c.sum_y) FROM"
#define BIN_WHERE " AS c JOIN stratum AS s USING (stratum_id)"                                     \
    " WHERE c.run_id = ?1 AND c.stratum_id IN (SELECT stratum_id FROM stratum)"
/* The last hour by minutes, or the hour where minutes are gone. */
static const char *const bins_sql[] = {
    BIN_SUMS " calibration" BIN_WHERE
    " AND c.minute > ?2 / 60000 - 60 AND c.minute <= ?2 / 60000 GROUP BY c.stratum_id, c.bin",
    BIN_SUMS " calibration_1h" BIN_WHERE
    " AND c.hour = ?2 / 3600000 GROUP BY c.stratum_id, c.bin",
};
/* clang-format on */

static bool take_bin(void *state, int columns, const char *const *names,
                     const struct reader_value *value)
{
    struct past *past = state;
    struct past_stratum *stratum;
    int64_t bin = value ? value[1].integer : -1;

    (void)columns;
    (void)names;
    if (bin < 0 || bin >= BINS || !(stratum = stratum_named(past, value[0].text, false)))
        return true;
    stratum->bin[bin].n = real_of(&value[2]);
    stratum->bin[bin].sum_p = real_of(&value[3]);
    stratum->bin[bin].sum_y = real_of(&value[4]);
    return true;
}

static bool no_bins(const struct past *past)
{
    double n = 0;

    for (int i = 0; i < past->strata_count; i++)
        for (int b = 0; b < BINS; b++) n += past->stratum[i].bin[b].n;
    return n <= 0;
}

/* Expected calibration error: how far predicted and observed lie apart, weighted by labels. */
static double calibration_error(const struct past_stratum *stratum)
{
    double n = 0, apart = 0;

    for (int b = 0; b < BINS; b++) {
        n += stratum->bin[b].n;
        apart += fabs(stratum->bin[b].sum_p - stratum->bin[b].sum_y);
    }
    return ratio(apart, n);
}

/* The stratum that the overview shows: of those refitted last, the one with most labels. */
static const struct past_stratum *leading_stratum(const struct past *past)
{
    const struct past_stratum *best = NULL;
    int64_t newest_ms = 0;

    for (int i = 0; i < past->strata_count; i++)
        if (past->stratum[i].time_ms > newest_ms) newest_ms = past->stratum[i].time_ms;
    for (int i = 0; i < past->strata_count; i++) {
        const struct past_stratum *stratum = &past->stratum[i];
        if (newest_ms - stratum->time_ms > stratum_together_ms) continue;
        if (!best || stratum->labels > best->labels) best = stratum;
    }
    return best;
}

static bool take_drift(void *state, int columns, const char *const *names,
                       const struct reader_value *value)
{
    struct snapshot *s = &((struct past *)state)->snapshot;

    (void)columns;
    (void)names;
    if (!value) return true;
    s->estimator.drift_events = integer_of(&value[0]);
    s->estimator.last_drift_ms = value[1].type == READER_INTEGER ? value[1].integer : 0;
    return true;
}

static void show_stratum(struct snapshot *s, const struct past_stratum *stratum)
{
    snprintf(s->estimator.kind, sizeof s->estimator.kind, "%s", stratum->kind);
    snprintf(s->estimator.stratum, sizeof s->estimator.stratum, "%s", stratum->name);
    s->estimator.slope = stratum->slope;
    s->estimator.slope_se = stratum->slope_se;
    s->estimator.level = stratum->level;
    s->estimator.drift_z = stratum->drift_z;
    s->estimator.refits = stratum->refits;
    s->estimator.ece = calibration_error(stratum);
    if (stratum->positions_count > s->estimator.positions_count)
        s->estimator.positions_count = stratum->positions_count;
    for (int k = 0; k < stratum->positions_count; k++) {
        s->estimator.position[k].intercept = stratum->position[k].intercept;
        s->estimator.position[k].intercept_se = stratum->position[k].intercept_se;
        s->estimator.position[k].n = stratum->position[k].n;
    }
}

static bool read_estimator(struct past *past)
{
    static const char drift_sql[] = "SELECT count(*), max(time_ms) FROM event"
                                    " WHERE run_id = ?1 AND kind = 'drift' AND time_ms <= ?2";
    const struct past_stratum *leading;

    if (!query(past, refits_sql, take_refit) || !query(past, bins_sql[0], take_bin)) return false;
    if (no_bins(past) && !query(past, bins_sql[1], take_bin)) return false;
    if ((leading = leading_stratum(past))) show_stratum(&past->snapshot, leading);
    return query(past, drift_sql, take_drift);
}

static json_t *count(int64_t value)
{
    return value >= 0 ? json_integer(value) : json_null();
}

static json_t *stratum_to_json(const struct past_stratum *stratum)
{
    json_t *bins = json_array();

    for (int b = 0; b < BINS; b++)
        json_array_append_new(bins,
                              json_pack("{s:f, s:f, s:f}", "n", stratum->bin[b].n, "sum_p",
                                        stratum->bin[b].sum_p, "sum_y", stratum->bin[b].sum_y));
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "stratum", stratum->name,
                     "kind", stratum->kind, "slope", json_number(stratum->slope), "slope_se",
                     json_number(stratum->slope_se), "level", json_number(stratum->level), "centre",
                     json_number(stratum->centre), "drift_z", json_number(stratum->drift_z),
                     "refits", count(stratum->refits), "ece",
                     json_number(calibration_error(stratum)), "bins", bins);
}

static json_t *strata_to_json(const struct past *past)
{
    json_t *strata = json_array();

    for (int i = 0; i < past->strata_count; i++)
        json_array_append_new(strata, stratum_to_json(&past->stratum[i]));
    return json_pack("{s:s, s:o}", "schema", "trimtab.calibration/1", "strata", strata);
}

/* ----------------------------------------------------------------------------------------- cost */

static const char cost_sql[] =
    "SELECT part, tokens, requests, context_band, ms, spread_ms, n FROM cost WHERE cost_id IN"
    " (SELECT max(cost_id) FROM cost WHERE run_id = ?1 AND time_ms <= ?2"
    "  GROUP BY part, tokens, requests, context_band)"
    " ORDER BY part, context_band, tokens, requests";

static bool take_cost(void *state, int columns, const char *const *names,
                      const struct reader_value *value)
{
    struct past *past = state;

    (void)columns;
    (void)names;
    for (int part = 0; value && part < PARTS; part++) {
        if (strcmp(value[0].text, part_names[part]) != 0) continue;
        json_array_append_new(past->cost[part],
                              json_pack("{s:I, s:I, s:o, s:o, s:I}", part_sizes[part],
                                        (json_int_t)(part == 0 ? value[1] : value[2]).integer,
                                        "context_band", (json_int_t)value[3].integer, "ms",
                                        json_number(real_of(&value[4])), "spread_ms",
                                        json_number(real_of(&value[5])), "n",
                                        (json_int_t)value[6].integer));
    }
    return true;
}

static json_t *cost_to_json_at(const struct past *past)
{
    return json_pack("{s:s, s:O, s:O, s:O}", "schema", "trimtab.cost/1", part_names[0],
                     past->cost[0], part_names[1], past->cost[1], part_names[2], past->cost[2]);
}

/* --------------------------------------------------------------------------------- toggle effect
 */

static bool take_toggle(void *state, int columns, const char *const *names,
                        const struct reader_value *value)
{
    struct snapshot *s = &((struct past *)state)->snapshot;

    (void)columns;
    (void)names;
    if (!value || value[3].type == READER_NULL) return true;
    s->toggle.known = true;
    s->toggle.time_ms = integer_of(&value[0]);
    COPY(s->toggle.before, &value[1]);
    COPY(s->toggle.after, &value[2]);
    s->toggle.gain = real_of(&value[3]);
    s->toggle.gain_low = real_of(&value[4]);
    s->toggle.gain_high = real_of(&value[5]);
    s->toggle.n = integer_of(&value[6]);
    s->toggle.window_s = real_of(&value[7]);
    s->toggle.tps_before = real_of(&value[8]);
    s->toggle.tps_after = real_of(&value[9]);
    s->toggle.step_ms_before = real_of(&value[10]);
    s->toggle.step_ms_after = real_of(&value[11]);
    return true;
}

static bool read_toggle(struct past *past)
{
    static const char sql[] =
        "SELECT time_ms, before, after, gain, gain_low, gain_high, seconds_before + seconds_after,"
        " min(seconds_before, seconds_after), tps_before, tps_after, step_ms_before, step_ms_after"
        " FROM toggle_effect"
        " WHERE run_id = ?1 AND time_ms <= ?2 ORDER BY time_ms DESC LIMIT 1";

    return query(past, sql, take_toggle);
}

/* ----------------------------------------------------------------------------------- the answer */

static void reply_past(struct past *past)
{
    json_t *snapshot = snapshot_to_json(&past->snapshot);

    reply_json(&past->x->reply, 200,
               snapshot
                   ? json_pack("{s:s, s:I, s:o, s:o, s:o}", "schema", "trimtab.past/1", "at_ms",
                               (json_int_t)past->at_ms, "snapshot", snapshot, "calibration",
                               strata_to_json(past), "cost", cost_to_json_at(past))
                   : NULL);
}

void api_past(struct exchange *x)
{
    struct node *node = api_find_node(x);
    struct past *past;

    if (!node) return;
    if (!(past = calloc(1, sizeof *past))) {
        reply_json(&x->reply, 500, NULL);
        return;
    }
    past->x = x;
    past->at_ms = exchange_server(x)->now_ms();
    snapshot_clear(&past->snapshot);
    snprintf(past->snapshot.node.id, sizeof past->snapshot.node.id, "%s", node->id);
    for (int part = 0; part < PARTS; part++) past->cost[part] = json_array();
    if (api_integer_argument(x, "at", 0, API_TIME_MAX_MS, &past->at_ms) &&
        (past->reader = api_open_store(x)) && read_run(past, node->id)) {
        past->snapshot.time_ms = past->at_ms;
        past->snapshot.store.ok = true;
        if ((past->ended || read_rates(past)) && read_estimator(past) && read_toggle(past) &&
            query(past, cost_sql, take_cost))
            reply_past(past);
    }
    for (int part = 0; part < PARTS; part++) json_decref(past->cost[part]);
    reader_close(past->reader);
    free(past);
}
