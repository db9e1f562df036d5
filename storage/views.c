/* views.c - see views.h.
 *
 * The interval of toggle_effect: seconds next to each other are alike (a long request lasts many),
 * so the variance of a mean over n of them is that of n(1-r)/(1+r) independent ones, r being the
 * correlation of neighbours (first-order autoregression; r corrected for its bias of -(1+3r)/n,
 * Kendall 1954, and held in 0 … 0.95). Welch's two-sample interval (Welch 1947) on the logarithm of
 * the ratio, by the delta method; Student's quantile by its expansion around the normal one
 * (Abramowitz & Stegun 26.7.5).
 */
#include "config.h"

#include "storage/views.h"

#include <stdio.h>

#include "storage/sql.h"

/* clang-format off */
#define STATE(key) "(SELECT value FROM rollup_state WHERE name = '" key "')"
#define NODE_OF(alias) \
    " JOIN run AS r ON r.run_id = " alias ".run_id JOIN node AS n USING (node_id)"
#define COUNTS \
    " steps, drafted, admitted, verified, accepted, emitted, target_rows," \
    " draft_us, verify_us, own_us, step_us"
#define ROLLED \
    " mode_id, seconds, busy_seconds, running_sum, queued_sum," \
    " 1.0 * admitted / nullif(steps, 0) AS budget," COUNTS
#define POSITION_SUMS " reached, accepted, predicted_e4, squared_error_e4, log_loss_e4"

static const char runs_sql[] =
    "SELECT n.name AS node, r.run_id, n.kind, r.engine, r.version, r.model, r.model_digest,"
    " r.draft, r.draft_digest, r.hardware, r.settings, r.max_draft, r.start_ms, r.end_ms, r.clean"
    " FROM run AS r JOIN node AS n USING (node_id)";

/* Seconds while they are kept, then minutes, then hours. */
static const char throughput_sql[] =
    "SELECT n.name AS node, t.run_id, t.time_ms, t.period_s, m.name AS mode, t.seconds,"
    " t.busy_seconds,"
    " 1.0 * t.emitted / t.seconds AS throughput_tps,"
    " 1.0 * t.emitted / nullif(t.steps, 0) AS tokens_per_step,"
    " t.step_us / 1000.0 / nullif(t.steps, 0) AS step_ms,"
    " t.draft_us / 1000.0 / nullif(t.steps, 0) AS draft_ms,"
    " t.verify_us / 1000.0 / nullif(t.steps, 0) AS verify_ms,"
    " t.own_us / 1000.0 / nullif(t.steps, 0) AS own_ms,"
    " 1.0 * t.own_us / nullif(t.step_us, 0) AS own_ratio,"
    " 1.0 * t.running_sum / t.seconds AS running,"
    " 1.0 * t.queued_sum / t.seconds AS queued,"
    " t.budget,"
    " 1.0 * t.accepted / nullif(t.verified, 0) AS accepted_verified_ratio,"
    " t.steps, t.drafted, t.admitted, t.verified, t.accepted, t.emitted, t.target_rows"
    " FROM (SELECT run_id, time_ms, 1 AS period_s, mode_id, 1 AS seconds,"
    "  coalesce(steps, emitted, 0) > 0 AS busy_seconds, running AS running_sum, queued AS queued_sum, budget," COUNTS
    "  FROM sample WHERE time_ms >= " STATE("second_from_ms")
    " UNION ALL SELECT run_id, minute * 60000, 60," ROLLED
    "  FROM sample_1m WHERE minute >= " STATE("minute_from_ms") " / 60000"
    "  AND minute < " STATE("second_from_ms") " / 60000"
    " UNION ALL SELECT run_id, hour * 3600000, 3600," ROLLED
    "  FROM sample_1h WHERE hour < " STATE("minute_from_ms") " / 3600000) AS t"
    NODE_OF("t") " JOIN mode AS m USING (mode_id)";

/* Minutes while they are kept, then hours; seconds not rolled up yet come as their minute. */
static const char acceptance_sql[] =
    "SELECT n.name AS node, a.run_id, a.time_ms, a.period_s, a.position, a.reached, a.accepted,"
    " 1.0 * a.accepted / nullif(a.reached, 0) AS accepted_ratio,"
    " a.predicted_e4 / 1e4 / nullif(a.reached, 0) AS predicted_ratio,"
    " a.squared_error_e4 / 1e4 / nullif(a.reached, 0) AS brier,"
    " a.log_loss_e4 / 1e4 / nullif(a.reached, 0) AS log_loss"
    " FROM (SELECT run_id, minute * 60000 AS time_ms, 60 AS period_s, position," POSITION_SUMS
    "  FROM sample_1m_position WHERE minute >= " STATE("minute_position_from_ms") " / 60000"
    " UNION ALL SELECT run_id, hour * 3600000, 3600, position," POSITION_SUMS
    "  FROM sample_1h_position WHERE hour < " STATE("minute_position_from_ms") " / 3600000"
    " UNION ALL SELECT s.run_id, s.time_ms / 60000 * 60000, 60, p.position, sum(p.reached),"
    "  sum(p.accepted), sum(p.predicted_e4), sum(p.squared_error_e4), sum(p.log_loss_e4)"
    "  FROM sample AS s JOIN sample_position AS p USING (sample_id)"
    "  WHERE s.sample_id > " STATE("rolled_sample_id")
    "  GROUP BY s.run_id, s.time_ms / 60000, p.position) AS a" NODE_OF("a");

static const char coefficient_sql[] =
    "SELECT n.name AS node, f.run_id, f.time_ms, s.name AS stratum, f.kind, f.epoch, i.position,"
    " i.intercept, i.intercept_se, i.observations, f.slope, f.slope_se, f.level, f.reset,"
    " f.rejected"
    " FROM refit AS f JOIN refit_intercept AS i USING (refit_id)"
    " JOIN stratum AS s USING (stratum_id)" NODE_OF("f");

static const char slope_sql[] =
    "SELECT n.name AS node, f.run_id, f.time_ms, s.name AS stratum, f.kind, f.epoch,"
    " f.slope, f.slope_se,"
    " f.slope - 1.96 * f.slope_se AS slope_low, f.slope + 1.96 * f.slope_se AS slope_high,"
    " f.slope - lag(f.slope) OVER (PARTITION BY f.run_id, f.stratum_id ORDER BY f.refit_id)"
    "  AS slope_change,"
    " f.level, f.centre, f.observations, f.drift_z, f.reset, f.rejected"
    " FROM refit AS f JOIN stratum AS s USING (stratum_id)" NODE_OF("f");

/* 300 s a side, cut at the neighbouring mode changes and (by run_id) at restarts; the second around
 * a change belongs to neither side; only seconds with steps. 0 = before, 1 = after. */
#define SIDE(side, column) "max(CASE WHEN is_after = " side " THEN " column " END)"
static const char toggle_sql[] =
    "WITH change AS (SELECT decision_id, run_id, time_ms,"
    "  lag(time_ms) OVER w AS previous_ms, lead(time_ms) OVER w AS next_ms FROM decision"
    "  WHERE what = 'mode' AND before IS NOT after AND run_id IS NOT NULL"
    "  WINDOW w AS (PARTITION BY run_id ORDER BY time_ms, decision_id)),"
    " fresh AS (SELECT * FROM change"
    "  WHERE decision_id NOT IN (SELECT decision_id FROM toggle_result)),"
    " side_second AS (SELECT c.decision_id, s.time_ms > c.time_ms AS is_after, s.time_ms,"
    "  s.emitted AS rate, s.steps, s.step_us"
    "  FROM fresh AS c JOIN sample AS s ON s.run_id = c.run_id"
    "  AND s.time_ms >= max(c.time_ms - 300000, coalesce(c.previous_ms, 0) + 1000)"
    "  AND s.time_ms <= min(c.time_ms + 300000, coalesce(c.next_ms, 9e15) - 1000)"
    "  AND abs(s.time_ms - c.time_ms) >= 1000 AND coalesce(s.steps, s.emitted) > 0),"
    " centred AS (SELECT *, rate - avg(rate) OVER w AS d,"
    "  lag(rate) OVER (w ORDER BY time_ms) - avg(rate) OVER w AS d_previous FROM side_second"
    "  WINDOW w AS (PARTITION BY decision_id, is_after)),"
    " moments AS (SELECT decision_id, is_after, count(*) AS n, avg(rate) AS mean,"
    "  sum(d * d) AS ss, coalesce(sum(d * d_previous) / nullif(sum(d * d), 0), 0) AS r,"
    "  sum(step_us) / 1000.0 / sum(steps) AS step_ms FROM centred GROUP BY decision_id, is_after),"
    " correlated AS (SELECT *,"
    "  max(0.0, min(0.95, (r + 1.0 / n) / max(0.1, 1 - 3.0 / n))) AS rho FROM moments),"
    " effective AS (SELECT *, n * (1 - rho) / (1 + rho) AS n_effective FROM correlated),"
    " side AS (SELECT *, ss / (n - 1) / n_effective / (mean * mean) AS variance,"
    "  max(1.0, n_effective - 1) AS freedom FROM effective),"
    " pair AS (SELECT decision_id, " SIDE("0", "n") " AS n0, " SIDE("1", "n") " AS n1,"
    "  " SIDE("0", "mean") " AS m0, " SIDE("1", "mean") " AS m1,"
    "  " SIDE("0", "step_ms") " AS step0, " SIDE("1", "step_ms") " AS step1,"
    "  " SIDE("0", "variance") " + " SIDE("1", "variance") " AS v,"
    "  " SIDE("0", "variance * variance / freedom")
    "  + " SIDE("1", "variance * variance / freedom") " AS v_freedom"
    "  FROM side GROUP BY decision_id),"
    " degrees AS (SELECT *, CASE WHEN n0 >= 5 AND n1 >= 5"
    "  THEN max(1.0, coalesce(v * v / nullif(v_freedom, 0), 1e9)) END AS f FROM pair),"
    " result AS (SELECT c.decision_id, coalesce(n0, 0) AS seconds_before,"
    "  coalesce(n1, 0) AS seconds_after, m0 AS tps_before, m1 AS tps_after,"
    "  m1 / nullif(m0, 0) - 1 AS gain,"
    "  (1.96 + 2.372 / f + 2.822 / (f * f) + 2.556 / (f * f * f)) * sqrt(v) AS half,"
    "  step0 AS step_ms_before, step1 AS step_ms_after"
    "  FROM fresh AS c LEFT JOIN degrees USING (decision_id)),"
    " known AS (SELECT decision_id, seconds_before, seconds_after, tps_before, tps_after, gain,"
    "  (1 + gain) * exp(-half) - 1 AS gain_low, (1 + gain) * exp(half) - 1 AS gain_high,"
    "  step_ms_before, step_ms_after FROM result UNION ALL SELECT * FROM toggle_result)"
    " SELECT n.name AS node, d.run_id, d.decision_id, d.time_ms, d.who, d.before, d.after,"
    " d.reason, k.seconds_before, k.seconds_after, k.tps_before, k.tps_after,"
    " k.gain, k.gain_low, k.gain_high, k.step_ms_before, k.step_ms_after"
    " FROM known AS k JOIN decision AS d USING (decision_id)" NODE_OF("d");

static const char calibration_sql[] =
    "SELECT n.name AS node, c.run_id, c.hour * 3600000 AS time_ms, s.name AS stratum, c.position,"
    " sum(c.n) AS n, sum(c.sum_p) / sum(c.n) AS predicted_ratio,"
    " sum(c.sum_y) / sum(c.n) AS accepted_ratio,"
    " sum(c.sum_p - c.sum_y) / sum(c.n) AS bias,"
    " sum(abs(c.sum_p - c.sum_y)) / sum(c.n) AS ece"
    " FROM calibration_1h AS c JOIN stratum AS s USING (stratum_id)" NODE_OF("c")
    " GROUP BY c.run_id, c.stratum_id, c.hour, c.position";

/* What is believed of each cell now: its latest row. */
static const char cost_sql[] =
    "SELECT n.name AS node, c.run_id, c.time_ms, c.part, c.tokens, c.requests, c.context_band,"
    " c.ms, c.spread_ms, c.n FROM cost AS c" NODE_OF("c")
    " WHERE c.cost_id = (SELECT max(x.cost_id) FROM cost AS x WHERE x.run_id = c.run_id"
    "  AND x.part = c.part AND x.tokens = c.tokens AND x.requests = c.requests"
    "  AND x.context_band = c.context_band)";

/* Periods as in throughput. The error is of the time, not of the count: a long step weighs more. */
#define PRICED " mode_id, step_us - unpriced_us AS priced_us, late_us, missed_us"
static const char cost_error_sql[] =
    "SELECT n.name AS node, t.run_id, t.time_ms, t.period_s, m.name AS mode,"
    " (t.priced_us - t.late_us) / 1e3 AS predicted_ms, t.priced_us / 1e3 AS measured_ms,"
    " 1.0 * t.missed_us / t.priced_us AS error_ratio,"
    " 1.0 * t.late_us / t.priced_us AS bias_ratio"
    " FROM (SELECT run_id, time_ms, 1 AS period_s," PRICED
    "  FROM sample WHERE time_ms >= " STATE("second_from_ms")
    " UNION ALL SELECT run_id, minute * 60000, 60," PRICED
    "  FROM sample_1m WHERE minute >= " STATE("minute_from_ms") " / 60000"
    "  AND minute < " STATE("second_from_ms") " / 60000"
    " UNION ALL SELECT run_id, hour * 3600000, 3600," PRICED
    "  FROM sample_1h WHERE hour < " STATE("minute_from_ms") " / 3600000) AS t"
    NODE_OF("t") " JOIN mode AS m USING (mode_id) WHERE t.priced_us > 0";

static const char decisions_sql[] =
    "SELECT n.name AS node, d.run_id, d.time_ms, d.kind, d.severity, d.what, d.before, d.after,"
    " d.who, d.origin, d.text, d.numbers FROM"
    " (SELECT run_id, time_ms, 'decision' AS kind, 'info' AS severity, what, before, after, who,"
    "  origin, reason AS text, numbers FROM decision"
    " UNION ALL SELECT run_id, time_ms, 'event', severity, kind, NULL, NULL, NULL, NULL, text,"
    "  numbers FROM event) AS d"
    " LEFT JOIN run AS r ON r.run_id = d.run_id LEFT JOIN node AS n USING (node_id)";

static const char bench_load_sql[] =
    "SELECT b.time_ms, b.form, b.mix, b.temperature, b.concurrency, b.policy, b.blocks, b.tps,"
    " b.tps_ci95, b.ratio_to_best_fixed, b.ratio_to_best_fixed_low, b.ratio_to_best_fixed_high,"
    " b.ratio_to_off, b.ratio_to_off_low, b.ratio_to_off_high, b.best_fixed, b.verdict,"
    " c.text AS configuration"
    " FROM bench_result AS b JOIN bench_configuration AS c USING (bench_configuration_id)";
/* clang-format on */

const struct view views[] = {
    {"runs", "coalesce(end_ms, 9e18)", runs_sql},
    {"throughput", "time_ms + period_s * 1000 - 1", throughput_sql},
    {"acceptance_by_position", "time_ms + period_s * 1000 - 1", acceptance_sql},
    {"coefficient_history", "time_ms", coefficient_sql},
    {"slope_drift", "time_ms", slope_sql},
    {"toggle_effect", "time_ms", toggle_sql},
    {"calibration_error", "time_ms + 3599999", calibration_sql},
    {"cost_curve", "time_ms", cost_sql},
    {"cost_error", "time_ms + period_s * 1000 - 1", cost_error_sql},
    {"decisions", "time_ms", decisions_sql},
    {"bench_load", "time_ms", bench_load_sql},
};
const int views_count = sizeof views / sizeof *views;

int views_create(sqlite3 *db)
{
    int rc = SQLITE_OK;
    for (int i = 0; rc == SQLITE_OK && i < views_count; i++) {
        char *sql = sqlite3_mprintf("CREATE VIEW main.%s AS %s", views[i].name, views[i].sql);
        rc = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
        sqlite3_free(sql);
    }
    return rc;
}

int views_drop(sqlite3 *db)
{
    int rc = SQLITE_OK;
    for (int i = 0; rc == SQLITE_OK && i < views_count; i++) {
        char *sql = sqlite3_mprintf("DROP VIEW IF EXISTS main.%s", views[i].name);
        rc = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
        sqlite3_free(sql);
    }
    return rc;
}
