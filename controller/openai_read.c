/* openai_read.c - see openai.h: request bodies of the OpenAI API. */
#include "config.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/openai.h"

/* Below this a temperature is greedy, as in vLLM: its inverse would only amplify rounding. */
static const float least_temperature = 1e-5F;

enum kind { INTEGER, NUMBER, BOOLEAN };

struct field {
    const char *name;
    enum kind kind;
    double low, high; /* both allowed */
    size_t offset;    /* in struct openai_task: int, float, bool */
};

#define AT(MEMBER) offsetof(struct openai_task, MEMBER)
static const struct field fields[] = {
    {"temperature", NUMBER, 0, 2, AT(params.temperature)},
    {"top_p", NUMBER, 0, 1, AT(params.top_p)},
    {"min_p", NUMBER, 0, 1, AT(params.min_p)},
    {"top_k", INTEGER, -1, INT_MAX, AT(params.top_k)},
    {"presence_penalty", NUMBER, -2, 2, AT(params.presence_penalty)},
    {"frequency_penalty", NUMBER, -2, 2, AT(params.frequency_penalty)},
    {"repetition_penalty", NUMBER, 0.01, 100, AT(params.repetition_penalty)},
    {"max_tokens", INTEGER, 1, INT_MAX, AT(params.max_tokens)},
    {"max_completion_tokens", INTEGER, 1, INT_MAX,
     AT(params.max_tokens)}, /* after max_tokens: it wins */
    {"min_tokens", INTEGER, 0, INT_MAX, AT(params.min_tokens)},
    {"ignore_eos", BOOLEAN, 0, 0, AT(params.ignore_eos)},
    {"n", INTEGER, 1, OPENAI_MAX_CHOICES, AT(n)},
    {"stream", BOOLEAN, 0, 0, AT(stream)},
};

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

static int wrong_type(struct reply *error, const char *name, const char *wanted,
                      const json_t *value)
{
    reply_error(error, 400, name, "invalid_type", "'%s' must be %s, not %s", name, wanted,
                type_name(value));
    return -1;
}

static int invalid(struct reply *error, const char *name, const char *sentence)
{
    reply_error(error, 400, name, "invalid_value", "'%s' %s", name, sentence);
    return -1;
}

static int no_memory(struct reply *error)
{
    reply_error(error, 500, NULL, "out_of_memory", "out of memory for the request");
    return -1;
}

/* The value of a field, or NULL when it is absent or null. */
static const json_t *given(const json_t *body, const char *name)
{
    const json_t *value = json_object_get(body, name);

    return json_is_null(value) ? NULL : value;
}

/* -------------------------------------------------------------------------------- plain fields */

static int read_field(const json_t *body, const struct field *field, struct openai_task *task,
                      struct reply *error)
{
    static const char *const wanted[] = {"an integer", "a number", "a boolean"};
    const json_t *value = given(body, field->name);
    char *at = (char *)task + field->offset;
    bool fits;

    if (!value) return 0;
    fits = field->kind == BOOLEAN   ? json_is_boolean(value)
           : field->kind == INTEGER ? json_is_integer(value)
                                    : json_is_number(value);
    if (!fits) return wrong_type(error, field->name, wanted[field->kind], value);
    if (field->kind == BOOLEAN) {
        *(bool *)(void *)at = json_is_true(value);
        return 0;
    }
    double number = json_number_value(value);
    if (!(number >= field->low && number <= field->high)) {
        reply_error(error, 400, field->name, "invalid_value",
                    "'%s' must be between %.12g and %.12g, not %.12g", field->name, field->low,
                    field->high, number);
        return -1;
    }
    if (field->kind == INTEGER)
        *(int *)(void *)at = (int)json_integer_value(value);
    else
        *(float *)(void *)at = (float)number;
    return 0;
}

static int read_seed(const json_t *body, struct openai_task *task, struct reply *error)
{
    const json_t *seed = given(body, "seed");

    if (!seed) return 0;
    if (!json_is_integer(seed)) return wrong_type(error, "seed", "an integer", seed);
    task->params.seeded = true;
    task->params.seed = (uint64_t)json_integer_value(seed);
    return 0;
}

/* `trimtab_rule`: which verification rule to use; the law of the text is the same under each. */
static int read_rule(const json_t *body, struct openai_task *task, struct reply *error)
{
    static const char *const names[] = {[TT_GREEDY] = "greedy",
                                        [TT_POINT_MASS] = "point_mass",
                                        [TT_RATIO] = "ratio",
                                        [TT_COUPLED] = "coupled"};
    const json_t *rule = given(body, "trimtab_rule");
    bool greedy = task->params.temperature == 0;

    if (!rule) return 0;
    if (!json_is_string(rule)) return wrong_type(error, "trimtab_rule", "a string", rule);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(json_string_value(rule), names[i]) != 0) continue;
        if ((i == TT_GREEDY) != greedy)
            return invalid(error, "trimtab_rule",
                           greedy ? "must be greedy at temperature 0"
                                  : "can be greedy only at temperature 0");
        task->params.rule_given = true;
        task->params.rule = (enum tt_rule)i;
        return 0;
    }
    return invalid(error, "trimtab_rule", "must be greedy, point_mass, ratio or coupled");
}

static int add_stop(struct openai_task *task, const json_t *text, struct reply *error)
{
    struct request_params *params = &task->params;

    if (!json_is_string(text))
        return wrong_type(error, "stop", "a string or an array of strings", text);
    if (json_string_length(text) == 0)
        return invalid(error, "stop", "must not hold an empty string");
    if (params->stop_count == REQUEST_MAX_STOPS)
        return invalid(error, "stop", "holds more than 16 strings");
    params->stop[params->stop_count] = strdup(json_string_value(text));
    if (!params->stop[params->stop_count]) return no_memory(error);
    params->stop_count++;
    return 0;
}

static int read_stop(const json_t *body, struct openai_task *task, struct reply *error)
{
    const json_t *stop = given(body, "stop");

    if (!stop) return 0;
    if (!json_is_array(stop)) return add_stop(task, stop, error);
    for (size_t i = 0; i < json_array_size(stop); i++) {
        if (add_stop(task, json_array_get(stop, i), error) != 0) return -1;
    }
    return 0;
}

static int read_logit_bias(const json_t *body, struct openai_task *task, struct reply *error)
{
    const json_t *bias = given(body, "logit_bias");
    void *place;

    if (!bias) return 0;
    if (!json_is_object(bias)) return wrong_type(error, "logit_bias", "an object", bias);
    if (json_object_size(bias) == 0) return 0;
    task->params.bias = calloc(json_object_size(bias), sizeof *task->params.bias);
    if (!task->params.bias) return no_memory(error);
    /* iterators want a pointer to non-const, but only read */
    for (place = json_object_iter((json_t *)(uintptr_t)bias); place;
         place = json_object_iter_next((json_t *)(uintptr_t)bias, place)) {
        const char *key = json_object_iter_key(place);
        const json_t *value = json_object_iter_value(place);
        size_t digits = strspn(key, "0123456789");
        if (digits == 0 || key[digits] || digits > 10 || atoll(key) > INT32_MAX)
            return invalid(error, "logit_bias", "must have token ids as keys");
        if (!json_is_number(value))
            return wrong_type(error, "logit_bias", "an object of numbers", value);
        double amount = json_number_value(value);
        if (!(amount >= -100 && amount <= 100))
            return invalid(error, "logit_bias", "must hold values between -100 and 100");
        task->params.bias[task->params.bias_count++] =
            (struct tt_logit_bias){.token = (int32_t)atoll(key), .bias = (float)amount};
    }
    return 0;
}

static int read_alternatives(const json_t *value, const char *name, struct openai_task *task,
                             struct reply *error)
{
    if (!json_is_integer(value)) return wrong_type(error, name, "an integer", value);
    if (json_integer_value(value) < 0 || json_integer_value(value) > REQUEST_MAX_LOGPROBS)
        return invalid(error, name, "must be between 0 and 20");
    task->params.logprobs = (int)json_integer_value(value);
    return 0;
}

static int read_logprobs(const json_t *body, struct openai_task *task, struct reply *error)
{
    const json_t *logprobs = given(body, "logprobs"), *top = given(body, "top_logprobs");

    if (!task->chat) return logprobs ? read_alternatives(logprobs, "logprobs", task, error) : 0;
    if (logprobs && !json_is_boolean(logprobs))
        return wrong_type(error, "logprobs", "a boolean", logprobs);
    if (json_is_true(logprobs)) task->params.logprobs = 0;
    if (!top) return 0;
    if (read_alternatives(top, "top_logprobs", task, error) != 0) return -1;
    if (json_is_true(logprobs)) return 0;
    if (task->params.logprobs > 0)
        return invalid(error, "top_logprobs", "needs 'logprobs' to be true");
    task->params.logprobs = -1;
    return 0;
}

static int read_stream_options(const json_t *body, struct openai_task *task, struct reply *error)
{
    const json_t *options = given(body, "stream_options"), *usage;

    if (!options) return 0;
    if (!json_is_object(options)) return wrong_type(error, "stream_options", "an object", options);
    if (!task->stream)
        return invalid(error, "stream_options", "is allowed only with 'stream': true");
    usage = given(options, "include_usage");
    if (usage && !json_is_boolean(usage))
        return wrong_type(error, "stream_options.include_usage", "a boolean", usage);
    task->include_usage = json_is_true(usage);
    return 0;
}

/* ------------------------------------------------------------------------- what is not offered */

static int refuse_completion_extras(const json_t *body, const struct openai_task *task,
                                    struct reply *error)
{
    const json_t *echo = given(body, "echo"), *suffix = given(body, "suffix"),
                 *best_of = given(body, "best_of");

    if (echo && !json_is_boolean(echo)) return wrong_type(error, "echo", "a boolean", echo);
    if (json_is_true(echo)) return invalid(error, "echo", "is not supported by this server");
    if (suffix && !json_is_string(suffix)) return wrong_type(error, "suffix", "a string", suffix);
    if (suffix && json_string_length(suffix) > 0)
        return invalid(error, "suffix", "is not supported by this server");
    if (best_of && !json_is_integer(best_of))
        return wrong_type(error, "best_of", "an integer", best_of);
    if (best_of && json_integer_value(best_of) != task->n)
        return invalid(error, "best_of", "is not supported by this server unless it equals 'n'");
    return 0;
}

static int refuse_chat_extras(const json_t *body, struct reply *error)
{
    const json_t *tools = given(body, "tools"), *choice = given(body, "tool_choice");
    const json_t *format = given(body, "response_format");
    const char *type;

    if (tools && !json_is_array(tools)) return wrong_type(error, "tools", "an array", tools);
    if (json_array_size(tools) > 0 &&
        !(json_is_string(choice) && strcmp(json_string_value(choice), "none") == 0))
        return invalid(
            error, "tools",
            "are not supported by this server; send 'tool_choice': \"none\" to go on without");
    if (format && !json_is_object(format))
        return wrong_type(error, "response_format", "an object", format);
    type = json_string_value(json_object_get(format, "type"));
    if (format && (!type || strcmp(type, "text") != 0))
        return invalid(error, "response_format",
                       "other than {\"type\":\"text\"} is not supported by this server");
    return 0;
}

/* ------------------------------------------------------------------------------------- prompts */

static int prompt_from_text(struct openai_prompt *prompt, const json_t *text, struct reply *error)
{
    prompt->text = strdup(json_string_value(text)); /* no NUL inside: the JSON reader refuses it */
    prompt->length = json_string_length(text);
    return prompt->text ? 0 : no_memory(error);
}

static int prompt_from_ids(struct openai_prompt *prompt, const json_t *ids, struct reply *error)
{
    size_t count = json_array_size(ids);

    if (count == 0) return invalid(error, "prompt", "must not be empty");
    if (count > INT_MAX) return invalid(error, "prompt", "is too long");
    prompt->token = malloc(count * sizeof *prompt->token);
    if (!prompt->token) return no_memory(error);
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id))
            return wrong_type(error, "prompt", "an array of token ids throughout", id);
        if (json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
            return invalid(error, "prompt", "holds a token id that is not in the vocabulary");
        prompt->token[prompt->count++] = (int32_t)json_integer_value(id);
    }
    return 0;
}

static int read_prompt(const json_t *body, struct openai_task *task, struct reply *error)
{
    static const char wanted[] =
        "a string, an array of strings, an array of token ids, or an array of such arrays";
    const json_t *value = given(body, "prompt"), *first;
    bool several;

    if (!value) return invalid(error, "prompt", "is required");
    if (!json_is_string(value) && !json_is_array(value))
        return wrong_type(error, "prompt", wanted, value);
    first = json_array_get(value, 0);
    if (json_is_array(value) && !first) return invalid(error, "prompt", "must not be empty");
    several = json_is_string(first) || json_is_array(first);
    size_t count = several ? json_array_size(value) : 1;
    if (count * (size_t)task->n > OPENAI_MAX_CHOICES)
        return invalid(error, "prompt", "asks for more than 128 choices (prompts times n)");
    task->prompt = calloc(count, sizeof *task->prompt);
    if (!task->prompt) return no_memory(error);
    task->prompt_count = (int)count;
    for (size_t i = 0; i < count; i++) {
        const json_t *one = several ? json_array_get(value, i) : value;
        int failed = json_is_string(one)  ? prompt_from_text(&task->prompt[i], one, error)
                     : json_is_array(one) ? prompt_from_ids(&task->prompt[i], one, error)
                                          : wrong_type(error, "prompt", wanted, one);
        if (failed) return -1;
        if (several && json_typeof(one) != json_typeof(first))
            return wrong_type(error, "prompt", wanted, one);
    }
    return 0;
}

/* ------------------------------------------------------------------------------------ messages */

/* The text parts of an array, joined. */
static int join_parts(const json_t *parts, size_t message, char **out, struct reply *error)
{
    struct buffer text = {0};
    char name[64];

    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *piece = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        snprintf(name, sizeof name, "messages[%zu].content[%zu]", message, i);
        if (!type || (strcmp(type, "text") != 0 && strcmp(type, "input_text") != 0)) {
            reply_error(error, 400, name, "invalid_value",
                        "'%s' is not a text part; images, audio and files are not supported", name);
            goto fail;
        }
        if (!json_is_string(piece)) {
            reply_error(error, 400, name, "invalid_type", "'%s.text' must be a string", name);
            goto fail;
        }
        buffer_add(&text, json_string_value(piece), json_string_length(piece));
    }
    buffer_add(&text, "", 1);
    if (text.failed) {
        no_memory(error);
        goto fail;
    }
    *out = text.data;
    return 0;
fail:
    buffer_free(&text);
    return -1;
}

static int read_content(const json_t *content, size_t index, char **out, struct reply *error)
{
    char name[64];

    if (json_is_array(content)) return join_parts(content, index, out, error);
    if (!content || json_is_null(content)) { /* an assistant's message that only called tools */
        *out = strdup("");
    } else if (json_is_string(content)) {
        *out = strdup(json_string_value(content));
    } else {
        snprintf(name, sizeof name, "messages[%zu].content", index);
        return wrong_type(error, name, "a string or an array of text parts", content);
    }
    return *out ? 0 : no_memory(error);
}

static int read_message(const json_t *message, size_t index, struct lm_message *out,
                        struct reply *error)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool", "function"};
    const char *role = json_string_value(json_object_get(message, "role"));
    char name[64], *text = NULL;

    snprintf(name, sizeof name, "messages[%zu]", index);
    if (!json_is_object(message)) return wrong_type(error, name, "an object", message);
    snprintf(name, sizeof name, "messages[%zu].role", index);
    if (!role) return invalid(error, name, "must be a string");
    if (strcmp(role, "developer") == 0) role = "system"; /* its newer name */
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(role, roles[i]) == 0) out->role = roles[i];
    }
    if (!out->role)
        return invalid(error, name, "must be system, developer, user, assistant or tool");
    if (read_content(json_object_get(message, "content"), index, &text, error) != 0) return -1;
    out->content = text;
    return 0;
}

static int read_messages(const json_t *body, struct openai_task *task, struct reply *error)
{
    const json_t *messages = given(body, "messages");

    if (!messages) return invalid(error, "messages", "is required");
    if (!json_is_array(messages)) return wrong_type(error, "messages", "an array", messages);
    if (json_array_size(messages) == 0) return invalid(error, "messages", "must not be empty");
    task->message = calloc(json_array_size(messages), sizeof *task->message);
    if (!task->message) return no_memory(error);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        task->message_count = i + 1;
        if (read_message(json_array_get(messages, i), i, &task->message[i], error) != 0) return -1;
    }
    return 0;
}

/* ----------------------------------------------------------------------------------- the whole */

static int read_body(const json_t *body, struct openai_task *task, struct reply *error)
{
    const json_t *model = given(body, "model");

    if (model && !json_is_string(model)) return wrong_type(error, "model", "a string", model);
    if (model && !(task->model = strdup(json_string_value(model)))) return no_memory(error);
    if (!task->chat) task->params.max_tokens = OPENAI_COMPLETION_MAX_TOKENS;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (read_field(body, &fields[i], task, error) != 0) return -1;
    }
    if (task->params.temperature < least_temperature) task->params.temperature = 0;
    if (task->params.max_tokens > 0 && task->params.min_tokens > task->params.max_tokens)
        return invalid(error, "min_tokens", "must not be larger than 'max_tokens'");
    if (read_seed(body, task, error) || read_rule(body, task, error) ||
        read_stop(body, task, error) || read_logit_bias(body, task, error) ||
        read_logprobs(body, task, error) || read_stream_options(body, task, error))
        return -1;
    if (task->chat) return refuse_chat_extras(body, error) ? -1 : read_messages(body, task, error);
    return refuse_completion_extras(body, task, error) ? -1 : read_prompt(body, task, error);
}

int openai_read(const char *body, size_t length, bool chat, struct openai_task *task,
                struct reply *error)
{
    json_error_t where;
    json_t *root;
    int result;

    *task = (struct openai_task){.chat = chat, .n = 1};
    request_params_default(&task->params);
    root = json_loadb(body ? body : "", length, 0, &where);
    if (!root) {
        reply_error(error, 400, NULL, "invalid_json",
                    "the body is not valid JSON: line %d, column %d: %s", where.line, where.column,
                    where.text);
        return -1;
    }
    if (!json_is_object(root)) {
        reply_error(error, 400, NULL, "invalid_json", "the body must be a JSON object, not %s",
                    type_name(root));
        json_decref(root);
        return -1;
    }
    result = read_body(root, task, error);
    json_decref(root);
    return result;
}

void openai_task_clear(struct openai_task *task)
{
    free(task->model);
    for (int i = 0; i < task->prompt_count; i++) {
        free(task->prompt[i].text);
        free(task->prompt[i].token);
    }
    free(task->prompt);
    for (size_t i = 0; i < task->message_count; i++)
        free((char *)(uintptr_t)task->message[i].content);
    free(task->message);
    openai_clear_params(&task->params);
    *task = (struct openai_task){0};
}

void openai_clear_params(struct request_params *params)
{
    for (int i = 0; i < params->stop_count; i++) free(params->stop[i]);
    free(params->bias);
    params->stop_count = 0;
    params->bias = NULL;
    params->bias_count = 0;
}

bool openai_copy_params(const struct openai_task *task, int prompt, int choice,
                        struct request_params *out)
{
    size_t bias = task->params.bias_count * sizeof *out->bias;

    *out = task->params;
    out->prompt = (uint32_t)prompt;
    out->choice = (uint32_t)choice;
    out->stop_count = 0;
    out->bias = NULL;
    for (int i = 0; i < task->params.stop_count; i++) {
        if (!(out->stop[i] = strdup(task->params.stop[i]))) goto fail;
        out->stop_count++;
    }
    if (bias == 0) return true;
    if (!(out->bias = malloc(bias))) goto fail;
    memcpy(out->bias, task->params.bias, bias);
    return true;
fail:
    openai_clear_params(out);
    return false;
}
