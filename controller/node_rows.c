/* node_rows.c - see node_rows.h. */
#include "config.h"

#include "controller/node_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "controller/json_number.h"
#include "controller/planner.h"
#include "controller/ticks.h"

#define REGIME_TOLD_MS 60000

#define COST_CHANGES 64 /* cells a call */

/* ---- decisions */

const struct node_actor rows_planner_actor = {"planner", "daemon"};

void rows_decision(struct store *store, int64_t run_id, const struct node_actor *actor,
                   const char *what, const char *before, const char *after, const char *reason,
                   const char *numbers)
{
    struct store_decision decision = {run_id, utc_ms(), actor->who, actor->origin, what,
                                      before, after,    reason,     numbers};

    if (store) store_put_decision(store, &decision);
}

void rows_settings(struct store *store, int64_t run_id, const struct node_actor *actor,
                   const struct policy *before, const struct policy *after, const char *reason)
{
    json_t *old = policy_to_json(before), *new = policy_to_json(after), *value;
    const char *key;

    json_object_foreach(new, key, value)
    {
        json_t *was = json_object_get(old, key);
        char *from, *to;

        if (json_equal(was, value)) continue;
        from = json_dumps(was, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        to = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        rows_decision(store, run_id, actor, key, from, to, reason, NULL);
        free(from);
        free(to);
    }
    json_decref(old);
    json_decref(new);
}

void rows_event(struct store *store, int64_t run_id, const char *severity, const char *kind,
                const char *text, const char *numbers)
{
    struct store_event event = {run_id, utc_ms(), severity, kind, text, numbers};

    if (store) store_put_event(store, &event);
}

static void tell_fall_back(struct store *store, int64_t run_id, const struct planner_change *change,
                           const char *numbers)
{
    char text[200];

    if (change->to > 0) {
        snprintf(text, sizeof text,
                 "drafts pay again: K=%d, %+.1f %% predicted over %.1f tok/s without any",
                 change->to, 100 * change->gain, change->plain_tps);
        rows_event(store, run_id, "info", "resume", text, numbers);
        return;
    }
    if (isfinite(change->measured_tps))
        snprintf(text, sizeof text,
                 "drafts made %.1f tok/s where none would make %.1f: they stop for %d steps",
                 change->measured_tps, change->plain_tps, change->pause_steps);
    else
        snprintf(
            text, sizeof text,
            "drafts do not pay: %.1f tok/s predicted without any, %.1f with K=%d; probes go on",
            change->plain_tps, change->draft_tps, change->from);
    rows_event(store, run_id, isfinite(change->measured_tps) ? "warning" : "info", "fallback", text,
               numbers);
}

static void put_regime(struct store *store, int64_t run_id, const struct planner_change *change,
                       struct regime_log *log)
{
    const bool between_depths = change->from != 0 && change->to != 0;
    const int from = log->told_ms > 0 ? log->told : change->from;
    const int64_t now_ms = utc_ms();
    char before[16], after[16];

    if (between_depths && (now_ms - log->told_ms < REGIME_TOLD_MS || change->to == from)) return;
    *log = (struct regime_log){.told = change->to, .told_ms = now_ms};
    json_t *object = json_pack(
        "{s:o s:o s:o s:o s:o s:o}", "predicted_gain", json_number(change->gain), "plain_tps",
        json_number(change->plain_tps), "draft_tps", json_number(change->draft_tps), "measured_tps",
        json_number(change->measured_tps), "accepted_ratio", json_number(change->accepted_ratio),
        "steps", json_integer(change->steps));
    char *numbers = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;

    snprintf(before, sizeof before, "K=%d", from);
    snprintf(after, sizeof after, "K=%d", change->to);
    rows_decision(store, run_id, &rows_planner_actor, "regime", before, after,
                  isfinite(change->measured_tps) ? "measured: drafts made less than none would"
                                                 : "the best uniform plan by cost and acceptance",
                  numbers);
    if ((change->from == 0) != (change->to == 0)) tell_fall_back(store, run_id, change, numbers);
    free(numbers);
    json_decref(object);
}

void rows_regime(struct store *store, int64_t run_id, struct planner *planner,
                 struct regime_log *log)
{
    int from, to;
    double gain;

    if (planner_take_change(planner, &from, &to, &gain))
        put_regime(store, run_id, planner_last_change(planner), log);
}

/* ---- estimators and costs */

void rows_refit(struct store *store, int64_t run_id, int stratum, int bits,
                const struct tt_estimator_report *report)
{
    struct store_refit row = {
        .run_id = run_id,
        .time_ms = utc_ms(),
        .epoch = (int64_t)report->refits,
        .stratum = strata_name(stratum),
        .kind = estimator_name(report->kind),
        .slope = report->slope,
        .slope_se = report->slope_se,
        .level = report->level,
        .centre = report->centre,
        .drift_z = report->drift_z,
        .observations = (int64_t)report->labels,
        .reset = (bits & TT_STEP_DRIFT) != 0,
        .rejected = bits & TT_STEP_REJECTED
                        ? "the window's sums were not finite or its slope step was refused"
                        : NULL,
        .positions = report->positions,
    };

    for (int k = 0; k < report->positions; k++) {
        row.position[k].intercept = report->position[k].intercept;
        row.position[k].intercept_se = report->position[k].intercept_se;
        row.position[k].observations = (int64_t)report->position[k].n;
    }
    if (store) store_put_refit(store, &row);
}

void rows_costs(struct store *store, int64_t run_id, struct cost_model *cost)
{
    struct cost_cell cells[COST_CHANGES];
    int count = cost_take_changed(cost, cells, COST_CHANGES);

    for (int i = 0; i < count && store; i++) {
        struct store_cost row = {run_id,          utc_ms(),           cells[i].part,
                                 cells[i].tokens, cells[i].requests,  cells[i].context_band,
                                 cells[i].ms,     cells[i].spread_ms, cells[i].n};

        store_put_cost(store, &row);
    }
}

/* ---- seconds */

void rows_sample(struct store *store, int64_t run_id, const struct rates_second *second, int queued,
                 int positions)
{
    const struct tally_counts *delta = &second->delta;
    struct store_sample sample = {
        .run_id = run_id,
        .time_ms = second->time_ms,
        .running = second->running,
        .queued = queued,
        .drafted = delta->drafted,
        .admitted = delta->admitted,
        .verified = delta->verified,
        .accepted = delta->accepted,
        .emitted = delta->emitted,
        .steps = delta->steps,
        .target_rows = delta->target_rows,
        .draft_ms = delta->draft_ms,
        .verify_ms = delta->verify_ms,
        .own_ms = delta->own_ms,
        .step_ms = delta->step_ms,
        .predicted_ms = delta->predicted_ms,
        .priced_ms = delta->priced_ms,
        .missed_ms = delta->missed_ms,
        .budget = delta->steps ? (double)delta->admitted / (double)delta->steps : NAN,
        .mode = mode_name(second->mode),
        .positions = positions,
    };

    for (int k = 0; k < sample.positions; k++) {
        const struct tally_position *position = &delta->position[k];

        sample.position[k] =
            (struct store_position){position->reached, position->accepted, position->predicted,
                                    position->squared_error, position->log_loss};
    }
    if (store) store_put_sample(store, &sample);
}

/* What this minute added to a stratum's bins; they begin anew. False when it added nothing. */
static bool take_calibration(struct tally *tally, int stratum, struct store_calibration *row)
{
    int64_t labels = 0;

    pthread_mutex_lock(&tally->lock);
    for (int k = 0; k < row->positions; k++) {
        for (int b = 0; b < STORE_CALIBRATION_BINS; b++) {
            struct tally_bin *bin = &tally->calibration[stratum][k][b];

            row->bin[k][b].n = bin->n;
            row->bin[k][b].sum_p = bin->sum_p;
            row->bin[k][b].sum_y = bin->sum_y;
            labels += bin->n;
            *bin = (struct tally_bin){0};
        }
    }
    pthread_mutex_unlock(&tally->lock);
    return labels > 0;
}

void rows_calibration(struct store *store, int64_t run_id, struct tally *tally, int positions)
{
    int64_t now = utc_ms();

    for (int i = 0; i < STRATA_ESTIMATORS; i++) {
        struct store_calibration row = {
            .run_id = run_id, .time_ms = now, .stratum = strata_name(i), .positions = positions};

        if (take_calibration(tally, i, &row) && store) store_put_calibration(store, &row);
    }
}
