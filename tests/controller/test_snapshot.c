/* test_snapshot.c - the JSON form of a snapshot: everything survives both ways, unknown stays
 * unknown, and a reader names what is wrong. The loops run over the keys of a real object, so that
 * no key is forgotten.
 */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "controller/snapshot.h"

/* Every number another one. */
static void fill(struct snapshot *s)
{
    snapshot_clear(s);
    strcpy(s->node.id, "local");
    strcpy(s->node.kind, "llama");
    strcpy(s->node.engine, "libllama");
    strcpy(s->node.version, "0.5.0");
    strcpy(s->node.model, "Modell \xC3\xBC");
    strcpy(s->node.draft, "draft");
    strcpy(s->node.capabilities, "mode,settings");
    s->node.tier = 2;
    s->mode = MODE_SHADOW;
    s->switching = true;
    s->fixed_draft = 3;
    s->max_draft = 6;
    s->generation = 7;
    s->time_ms = INT64_C(1790000000001);
    s->read_ms = INT64_C(1789999999000);
    s->restarts = 2;
    s->restarted_ms = INT64_C(1789999990000);
    s->node.engines = 4;
    strcpy(s->node.unable, "read-only: there is no switch");
    strcpy(s->node.rates, "per request end");
    double *real[] = {&s->uptime_s,
                      &s->window_ms,
                      &s->throughput_tps,
                      &s->tokens_per_step,
                      &s->step_ms,
                      &s->draft_ms,
                      &s->verify_ms,
                      &s->own_ms,
                      &s->own_ratio,
                      &s->drafted_per_step,
                      &s->verified_per_step,
                      &s->accepted_verified_ratio,
                      &s->budget,
                      &s->predicted_tps,
                      &s->predicted_step_ms,
                      &s->cost_error_ratio,
                      &s->cost_bias_ratio,
                      &s->mean_length,
                      &s->accepted_drafted_ratio,
                      &s->first_token_p50_ms,
                      &s->first_token_p95_ms,
                      &s->inter_token_p50_ms,
                      &s->inter_token_p95_ms,
                      &s->kv_ratio,
                      &s->estimator.slope,
                      &s->estimator.slope_se,
                      &s->estimator.level,
                      &s->estimator.drift_z,
                      &s->estimator.ece,
                      &s->estimator.auc};
    for (size_t i = 0; i < sizeof real / sizeof *real; i++) *real[i] = 1.0 / (double)(i + 3) - 0.2;
    int64_t *count[] = {&s->steps,
                        &s->drafted_total,
                        &s->admitted_total,
                        &s->verified_total,
                        &s->accepted_total,
                        &s->emitted_total,
                        &s->requests_total,
                        &s->target_rows_total,
                        &s->failed_total,
                        &s->drafts_total,
                        &s->prompt_tokens_total,
                        &s->estimator.refits,
                        &s->estimator.drift_events,
                        &s->estimator.last_drift_ms};
    for (size_t i = 0; i < sizeof count / sizeof *count; i++)
        *count[i] = INT64_C(5000000000) + (int64_t)i;
    s->running = 8;
    s->queued = 0;
    strcpy(s->estimator.kind, "online");
    strcpy(s->estimator.stratum, "model/greedy/t0");
    s->estimator.positions_count = 2;
    s->estimator.position[0] =
        (struct snapshot_position){-0.31, 0.02, 0.712, 0.708, 1840, 91840, 1310};
    s->estimator.position[1] = (struct snapshot_position){NAN, NAN, NAN, NAN, 0, -1, -1};
    s->store.ok = true;
    s->store.since_ms = 5;
    strcpy(s->store.reason, "because");
    strcpy(s->health.state, "degraded");
    strcpy(s->health.reason, "slow");
    s->toggle.known = true;
    s->toggle.time_ms = 99;
    strcpy(s->toggle.before, "fixed");
    strcpy(s->toggle.after, "adaptive");
    s->toggle.gain = 0.184;
    s->toggle.gain_low = 0.15;
    s->toggle.gain_high = NAN;
    s->toggle.n = 600;
    s->toggle.window_s = 300;
}

static json_t *through_text(const struct snapshot *s)
{
    json_t *object = snapshot_to_json(s);
    assert_non_null(object);
    char *text = json_dumps(object, 0);
    json_decref(object);
    object = json_loads(text, 0, NULL);
    free(text);
    assert_non_null(object);
    return object;
}

static void test_everything_survives(void **state)
{
    struct snapshot s, back;
    char *cause = NULL;

    (void)state;
    fill(&s);
    json_t *object = through_text(&s);
    assert_int_equal(snapshot_from_json(object, &back, &cause), 0);
    assert_null(cause);
    json_t *again = snapshot_to_json(&back);
    assert_true(json_equal(object, again));
    json_decref(again);
    /* not only the same JSON: the same memory where it means something */
    assert_string_equal(back.node.model, s.node.model);
    assert_string_equal(back.node.capabilities, "mode,settings");
    assert_int_equal(back.mode, MODE_SHADOW);
    assert_true(back.switching);
    assert_true(back.uptime_s == s.uptime_s && back.estimator.auc == s.estimator.auc);
    assert_true(back.drafted_total == s.drafted_total);
    assert_true(isnan(back.estimator.position[1].intercept));
    assert_int_equal(back.estimator.position[1].n, -1);
    assert_int_equal(back.estimator.position[0].accepted_total, 1310);
    assert_true(back.toggle.known && isnan(back.toggle.gain_high));
    json_decref(object);
}

static void test_unknown_is_null(void **state)
{
    struct snapshot s, back;
    char *cause = NULL;

    (void)state;
    snapshot_clear(&s);
    json_t *object = through_text(&s);
    assert_true(json_is_null(json_object_get(object, "throughput_tps")));
    assert_true(json_is_null(json_object_get(object, "drafted_total")));
    assert_true(json_is_null(json_object_get(object, "fixed_draft")));
    assert_true(json_is_null(json_object_get(object, "toggle")));
    assert_int_equal(json_integer_value(json_object_get(object, "generation")), 0);
    assert_int_equal(snapshot_from_json(object, &back, &cause), 0);
    assert_true(isnan(back.throughput_tps));
    assert_int_equal(back.drafted_total, -1);
    assert_int_equal(back.running, -1);
    assert_int_equal(back.mode, MODE_UNKNOWN);
    assert_false(back.toggle.known);
    assert_int_equal(back.estimator.last_drift_ms, 0);
    json_decref(object);
    s.throughput_tps = INFINITY; /* JSON has none */
    object = snapshot_to_json(&s);
    assert_true(json_is_null(json_object_get(object, "throughput_tps")));
    json_decref(object);
}

/* Refused, and the cause names the key. */
static void expect_refusal(const json_t *object, const char *key)
{
    struct snapshot back;
    char *cause = NULL;

    assert_int_equal(snapshot_from_json(object, &back, &cause), -1);
    assert_non_null(cause);
    if (!strstr(cause, key)) fail_msg("\"%s\" does not name %s", cause, key);
    free(cause);
}

/* `group` is `root` or an object in it: each key missing, each key of a wrong type. */
static void damage_each_key(json_t *root, json_t *group, bool is_position)
{
    static const char *const added[] = {"drafts_total",
                                        "prompt_tokens_total",
                                        "predicted_step_ms",
                                        "cost_error_ratio",
                                        "cost_bias_ratio",
                                        "advice",
                                        "reason_since_ms",
                                        "tps_before",
                                        "tps_after",
                                        "step_ms_before",
                                        "step_ms_after",
                                        "mean_length",
                                        "accepted_drafted_ratio",
                                        "first_token_p50_ms",
                                        "first_token_p95_ms",
                                        "inter_token_p50_ms",
                                        "inter_token_p95_ms",
                                        "kv_ratio",
                                        "read_ms",
                                        "restarts",
                                        "restarted_ms",
                                        "unable",
                                        "engines",
                                        "rates"};
    const char *key;
    json_t *value, *copy = json_deep_copy(group);

    json_object_foreach(copy, key, value)
    {
        struct snapshot back;
        bool optional = is_position && strcmp(key, "accepted_total") == 0;
        for (size_t i = 0; i < sizeof added / sizeof *added; i++)
            optional |= strcmp(key, added[i]) == 0;
        json_object_del(group, key);
        if (optional)
            assert_int_equal(snapshot_from_json(root, &back, NULL), 0);
        else
            expect_refusal(root, key);
        json_object_set_new(group, key, json_is_array(value) ? json_object() : json_pack("[i]", 5));
        expect_refusal(root, key);
        json_object_set(group, key, value);
        assert_int_equal(snapshot_from_json(root, &back, NULL), 0);
    }
    json_decref(copy);
}

static void test_damage_is_named(void **state)
{
    static const char *const groups[] = {"node", "estimator", "store", "health", "toggle"};
    struct snapshot s;

    (void)state;
    fill(&s);
    json_t *object = through_text(&s);
    damage_each_key(object, object, false);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        damage_each_key(object, json_object_get(object, groups[i]), false);
    json_t *positions = json_object_get(json_object_get(object, "estimator"), "positions");
    damage_each_key(object, json_array_get(positions, 1), true);
    json_decref(object);
    expect_refusal(NULL, "schema");
}

static void test_values_are_checked(void **state)
{
    static const struct {
        const char *key, *json;
    } bad[] = {
        {"mode", "\"on\""},
        {"mode", "\"unknown\""},
        {"schema", "\"trimtab.snapshot/2\""},
        {"running", "-1"},
        {"running", "3000000000"},
        {"steps", "-5"},
        {"steps", "1.5"},
        {"switching", "1"},
        {"toggle", "false"},
        {"throughput_tps", "\"1\""},
    };
    struct snapshot s;

    (void)state;
    fill(&s);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *object = through_text(&s);
        json_object_set_new(object, bad[i].key, json_loads(bad[i].json, JSON_DECODE_ANY, NULL));
        expect_refusal(object, bad[i].key);
        json_decref(object);
    }
}

static void test_newer_daemons_can_be_read(void **state)
{
    struct snapshot s, back;

    (void)state;
    fill(&s);
    json_t *object = through_text(&s), *estimator = json_object_get(object, "estimator");
    json_object_set_new(object, "a_new_key", json_pack("{s:i}", "x", 1));
    json_object_set_new(estimator, "another", json_true());
    json_t *positions = json_object_get(estimator, "positions");
    for (int i = 2; i < SNAPSHOT_MAX_POSITIONS + 3; i++) {
        json_t *position = json_deep_copy(json_array_get(positions, 0));
        json_object_set_new(position, "position", json_integer(i));
        json_array_append_new(positions, position);
    }
    json_array_append_new(json_object_get(json_object_get(object, "node"), "capabilities"),
                          json_string("fly"));
    assert_int_equal(snapshot_from_json(object, &back, NULL), 0);
    assert_int_equal(back.estimator.positions_count, SNAPSHOT_MAX_POSITIONS);
    assert_string_equal(back.node.capabilities, "mode,settings,fly");
    /* a gap in the positions is an error: they are addressed by place */
    json_object_set_new(json_array_get(positions, 1), "position", json_integer(2));
    expect_refusal(object, "position");
    json_decref(object);
}

static void test_long_names_are_cut_between_characters(void **state)
{
    struct snapshot s, back;
    char name[SNAPSHOT_NAME + 40];

    (void)state;
    fill(&s);
    json_t *object = through_text(&s);
    memset(name, 'x', sizeof name);
    memcpy(name + SNAPSHOT_NAME - 3, "\xE6\x97\xA5", 3); /* ends one byte beyond the room */
    name[sizeof name - 1] = '\0';
    json_object_set_new(json_object_get(object, "node"), "model", json_string(name));
    assert_int_equal(snapshot_from_json(object, &back, NULL), 0);
    assert_int_equal(strlen(back.node.model), SNAPSHOT_NAME - 3);
    json_decref(object);
    /* a name that was cut inside a character on its way in still becomes JSON */
    strcpy(s.node.model, "ab\xE6\x97");
    object = snapshot_to_json(&s);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(object, "node"), "model")), "ab");
    json_decref(object);
}

static void test_modes(void **state)
{
    enum mode mode;

    (void)state;
    for (int i = MODE_OFF; i <= MODE_SHADOW; i++) {
        assert_true(mode_parse(mode_name((enum mode)i), &mode));
        assert_int_equal(mode, i);
    }
    assert_false(mode_parse("", &mode));
    assert_false(mode_parse("Off", &mode));
    assert_false(mode_parse("fixed ", &mode));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_survives),
        cmocka_unit_test(test_unknown_is_null),
        cmocka_unit_test(test_damage_is_named),
        cmocka_unit_test(test_values_are_checked),
        cmocka_unit_test(test_newer_daemons_can_be_read),
        cmocka_unit_test(test_long_names_are_cut_between_characters),
        cmocka_unit_test(test_modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
