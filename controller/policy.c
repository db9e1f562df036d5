/* policy.c - see policy.h. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "controller/cause.h"
#include "controller/policy.h"

const char *estimator_name(enum tt_estimator_kind kind)
{
    return kind == TT_PARITY ? "parity" : "online";
}

bool estimator_parse(const char *name, enum tt_estimator_kind *kind)
{
    if (strcmp(name, "online") != 0 && strcmp(name, "parity") != 0) return false;
    *kind = strcmp(name, "parity") == 0 ? TT_PARITY : TT_ONLINE;
    return true;
}

static int set_integer(const char *key, const json_t *value, long low, long high, int *out,
                       char **cause)
{
    if (!json_is_integer(value) || json_integer_value(value) < low ||
        json_integer_value(value) > high) {
        cause_set(cause, "%s must be an integer from %ld to %ld", key, low, high);
        return -1;
    }
    *out = (int)json_integer_value(value);
    return 0;
}

static int set_one(struct policy *policy, const char *key, const json_t *value, int opened,
                   bool has_draft, char **cause)
{
    if (strcmp(key, "max_draft") == 0)
        return set_integer(key, value, 1, opened, &policy->max_draft, cause);
    if (strcmp(key, "fixed_draft") == 0)
        return set_integer(key, value, 0, opened, &policy->fixed_draft, cause);
    if (strcmp(key, "refit_interval_steps") == 0)
        return set_integer(key, value, 0, 100000, &policy->refit_interval_steps, cause);
    if (strcmp(key, "exploration") == 0) {
        if (!json_is_boolean(value)) {
            cause_set(cause, "exploration must be true or false");
            return -1;
        }
        policy->exploration = json_is_true(value);
        return 0;
    }
    if (strcmp(key, "min_gain") == 0) {
        double gain = json_number_value(value);

        if (!json_is_number(value) || !(gain >= 0 && gain <= 1)) {
            cause_set(cause, "min_gain must be a number from 0 to 1 (0.01 is one per cent)");
            return -1;
        }
        policy->min_gain = gain;
        return 0;
    }
    if (strcmp(key, "estimator") == 0) {
        if (json_is_string(value) && estimator_parse(json_string_value(value), &policy->estimator))
            return 0;
        cause_set(cause, "estimator must be \"online\" or \"parity\"");
        return -1;
    }
    if (strcmp(key, "draft") == 0) {
        if (!json_is_string(value) ||
            !draft_choice_parse(json_string_value(value), &policy->draft)) {
            cause_set(cause, "draft must be \"auto\", \"model\", \"ngram\" or \"none\"");
            return -1;
        }
        if (policy->draft != DRAFT_MODEL || has_draft) return 0;
        cause_set(cause, "draft \"model\": this node was started without a draft model");
        return -1;
    }
    if (strcmp(key, "expect_generation") == 0 || strcmp(key, "reason") == 0) return 0;
    cause_set(cause,
              "unknown setting \"%s\": it is one of max_draft fixed_draft exploration estimator "
              "refit_interval_steps min_gain draft",
              key);
    return -1;
}

int policy_change(struct policy *policy, const json_t *settings, int opened_max_draft,
                  bool has_draft_model, char **cause)
{
    struct policy changed = *policy;
    const char *key;
    json_t *value;

    if (!json_is_object(settings)) {
        cause_set(cause, "settings must be an object");
        return -1;
    }
    json_object_foreach((json_t *)(uintptr_t)settings, key, value)
    {
        if (set_one(&changed, key, value, opened_max_draft, has_draft_model, cause) != 0) return -1;
    }
    if (changed.fixed_draft > changed.max_draft) {
        cause_set(cause, "fixed_draft %d is above max_draft %d", changed.fixed_draft,
                  changed.max_draft);
        return -1;
    }
    *policy = changed;
    return 0;
}

bool policy_conflict(int64_t expect, int64_t generation, char **cause)
{
    if (expect < 0 || expect == generation) return false;
    cause_set(cause,
              "generation is %lld, not %lld: somebody else changed the node; look again and repeat",
              (long long)generation, (long long)expect);
    return true;
}

json_t *policy_to_json(const struct policy *policy)
{
    return json_pack("{s:i s:i s:b s:s s:i s:f s:s}", "max_draft", policy->max_draft, "fixed_draft",
                     policy->fixed_draft, "exploration", policy->exploration, "estimator",
                     estimator_name(policy->estimator), "refit_interval_steps",
                     policy->refit_interval_steps, "min_gain", policy->min_gain, "draft",
                     draft_choice_name(policy->draft));
}
