/* vllm_reply.c - see vllm_reply.h. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "controller/cause.h"
#include "controller/vllm_reply.h"

/* ------------------------------------------------------------------------------- small readers */

/* A text of the engine into out: cut, control characters as '?'. */
static void copy_text(const json_t *value, char *out, size_t size)
{
    snprintf(out, size, "%s", json_is_string(value) ? json_string_value(value) : "");
    for (char *at = out; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
}

static int64_t count_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_integer(value) && json_integer_value(value) >= 0 ? json_integer_value(value)
                                                                    : -1;
}

static bool flag_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_true(value) || json_integer_value(value) == 1;
}

/* ---------------------------------------------------------------------------------- server_info */

/* CUDA graphs of whole steps: vLLM writes its enumeration as a name, as a number (0 none, 1
 * piecewise, 2 full) or as a pair of them. */
static bool lacks_full_graphs(const json_t *mode)
{
    const char *name = json_string_value(mode);

    if (name) return strcasecmp(name, "NONE") == 0 || strcasecmp(name, "PIECEWISE") == 0;
    return json_is_integer(mode) && json_integer_value(mode) < 2;
}

/* The first thing that keeps adaptive verification from running, whatever is asked for. */
static void find_exclusion(const json_t *config, struct vllm_info *out)
{
    const json_t *lora = json_object_get(config, "lora_config"),
                 *model = json_object_get(config, "model_config"),
                 *graphs = json_object_get(json_object_get(config, "compilation_config"),
                                           "cudagraph_mode");
    int64_t stages = count_at(json_object_get(config, "parallel_config"), "pipeline_parallel_size");

    if (strncmp(out->method, "ngram", 5) == 0)
        snprintf(out->excluded, sizeof out->excluded, "n-gram drafts are never trimmed");
    else if (lora && !json_is_null(lora))
        snprintf(out->excluded, sizeof out->excluded, "LoRA is on (--enable-lora)");
    else if (stages > 1)
        snprintf(out->excluded, sizeof out->excluded, "pipeline parallelism is on (%lld stages)",
                 (long long)stages);
    else if (flag_at(model, "enforce_eager"))
        snprintf(out->excluded, sizeof out->excluded, "eager mode is on (--enforce-eager)");
    else if (lacks_full_graphs(graphs))
        snprintf(out->excluded, sizeof out->excluded,
                 "full CUDA graphs are off (cudagraph_mode of --compilation-config)");
}

int vllm_info_read(const char *body, size_t length, struct vllm_info *out, char **cause)
{
    json_t *document = json_loadb(body, length, JSON_REJECT_DUPLICATES, NULL);
    const json_t *config = json_object_get(document, "vllm_config"),
                 *parallel = json_object_get(config, "parallel_config"),
                 *speculative = json_object_get(config, "speculative_config");

    *out = (struct vllm_info){.engines = 1};
    if (!json_is_object(parallel)) {
        cause_set(cause, "/server_info does not describe the engine as vLLM 0.32 and 0.33 do");
        json_decref(document);
        return -1;
    }
    copy_text(json_object_get(parallel, "worker_extension_cls"), out->extension,
              sizeof out->extension);
    copy_text(json_object_get(speculative, "method"), out->method, sizeof out->method);
    out->adaptive = flag_at(speculative, "enable_adaptive_verification");
    if (count_at(parallel, "data_parallel_size") > 0)
        out->engines = count_at(parallel, "data_parallel_size");
    find_exclusion(config, out);
    json_decref(document);
    return 0;
}

/* ------------------------------------------------------------------------------ collective_rpc */

bool vllm_coefficients_equal(const struct vllm_coefficients *a, const struct vllm_coefficients *b)
{
    if (a->positions != b->positions || (a->positions > 0 && a->slope != b->slope)) return false;
    for (int k = 0; k < a->positions; k++)
        if (a->intercept[k] != b->intercept[k]) return false;
    return true;
}

static void read_coefficients(const json_t *part, struct vllm_coefficients *out)
{
    const json_t *slope = json_object_get(part, "slope"),
                 *intercepts = json_object_get(part, "intercepts");
    size_t count = json_array_size(intercepts);

    *out = (struct vllm_coefficients){0};
    if (!json_is_number(slope) || count == 0 || count > SNAPSHOT_MAX_POSITIONS) return;
    out->slope = json_number_value(slope);
    for (size_t k = 0; k < count; k++) {
        const json_t *value = json_array_get(intercepts, k);

        if (!json_is_number(value)) return; /* null: not finite in the engine */
        out->intercept[k] = json_number_value(value);
    }
    out->positions = (int)count;
}

static void read_missing(const json_t *part, char *out, size_t size)
{
    const json_t *list = json_object_get(part, "missing");
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < json_array_size(list) && used + 2 < size; i++) {
        char name[96];

        copy_text(json_array_get(list, i), name, sizeof name);
        used += (size_t)snprintf(out + used, size - used, "%s%s", i > 0 ? ", " : "", name);
    }
}

static void read_part(const json_t *part, struct vllm_reply *out)
{
    const char *mode = json_string_value(json_object_get(part, "mode"));
    const json_t *rows = json_object_get(part, "rows");

    out->adaptive = flag_at(part, "adaptive");
    out->mode_known = mode && mode_parse(mode, &out->mode);
    out->held = flag_at(part, "held");
    out->generation = count_at(part, "generation");
    out->steps = count_at(part, "steps");
    out->scheduled = count_at(part, "scheduled");
    out->admitted = count_at(part, "admitted");
    out->faults = count_at(part, "faults");
    out->refits = count_at(part, "refits");
    copy_text(json_object_get(part, "runner"), out->runner, sizeof out->runner);
    read_missing(part, out->missing, sizeof out->missing);
    read_coefficients(part, &out->coefficients);
    out->label_steps = count_at(part, "label_steps");
    out->labels_dropped = count_at(part, "labels_dropped");
    out->rows = json_is_array(rows) ? rows : NULL;
}

static void note_error(const json_t *part, int64_t rank, struct vllm_reply *out)
{
    char text[320];

    copy_text(json_object_get(part, "error"), text, sizeof text);
    if (text[0] && !out->error[0])
        snprintf(out->error, sizeof out->error, "rank %lld: %s", (long long)rank, text);
}

/* What must be the same on every rank: they decide the same budgets, each by itself. */
static void compare(const struct vllm_reply *first, const json_t *part, int64_t rank,
                    struct vllm_reply *out)
{
    struct vllm_reply other = {0};
    const char *what = NULL;

    read_part(part, &other);
    if (other.adaptive != first->adaptive)
        what = "whether they trim";
    else if (other.mode_known != first->mode_known ||
             (other.mode_known && other.mode != first->mode))
        what = "the mode";
    else if (other.generation != first->generation)
        what = "the generation";
    else if (other.held != first->held)
        what = "who refits";
    else if (!vllm_coefficients_equal(&other.coefficients, &first->coefficients))
        what = "the coefficients";
    if (what && !out->disagree[0])
        snprintf(out->disagree, sizeof out->disagree, "ranks 0 and %lld differ in %s",
                 (long long)rank, what);
}

/* One rank's part: its rank, or -1 when it is not an answer to this call. */
static int64_t check_part(const json_t *part, const char *nonce, char **cause)
{
    const char *carried = json_string_value(json_object_get(part, "nonce"));
    int64_t rank = count_at(part, "rank");

    if (!carried || rank < 0) {
        cause_set(cause, "an answer is not the extension's");
        return -1;
    }
    if (strcmp(carried, nonce) != 0) {
        cause_set(cause, "rank %lld answered another call", (long long)rank);
        return -1;
    }
    if (count_at(part, "protocol") != VLLM_PROTOCOL) {
        cause_set(cause, "the extension speaks another protocol than this trimtab (%lld, not %d)",
                  (long long)count_at(part, "protocol"), VLLM_PROTOCOL);
        return -1;
    }
    return rank;
}

int vllm_reply_read(const char *body, size_t length, const char *nonce, struct vllm_reply *out,
                    char **cause)
{
    const json_t *results;
    bool seen[VLLM_RANKS_MAX] = {false};
    size_t count;

    *out = (struct vllm_reply){0};
    out->document = json_loadb(body, length, JSON_REJECT_DUPLICATES, NULL);
    results = json_object_get(out->document, "results");
    count = json_array_size(results);
    if (count == 0 || count > VLLM_RANKS_MAX) {
        cause_set(cause, "the answer holds no results of ranks");
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *part = json_array_get(results, i);
        int64_t rank = check_part(part, nonce, cause);

        if (rank < 0) return -1;
        if (rank >= (int64_t)count || seen[rank]) {
            cause_set(cause, "rank %lld answered, of %zu answers", (long long)rank, count);
            return -1;
        }
        seen[rank] = true;
        note_error(part, rank, out);
        if (i == 0)
            read_part(part, out);
        else
            compare(out, part, rank, out);
    }
    out->ranks = (int)count;
    return 0;
}

void vllm_reply_clear(struct vllm_reply *reply)
{
    json_decref(reply->document);
    *reply = (struct vllm_reply){0};
}

bool vllm_reply_row(const struct vllm_reply *reply, size_t i, struct vllm_row *out)
{
    const json_t *row = json_array_get(reply->rows, i), *step = json_array_get(row, 0),
                 *accepted = json_array_get(row, 1);
    size_t size = json_array_size(row);

    if (size < 3 || size - 2 > SNAPSHOT_MAX_POSITIONS || !json_is_integer(step) ||
        !json_is_integer(accepted))
        return false;
    *out = (struct vllm_row){.step = json_integer_value(step), .admitted = (int)(size - 2)};
    if (out->step < 0 || json_integer_value(accepted) < 0 ||
        json_integer_value(accepted) > out->admitted)
        return false;
    out->accepted = (int)json_integer_value(accepted);
    for (int k = 0; k < out->admitted; k++) {
        const json_t *feature = json_array_get(row, (size_t)k + 2);

        out->feature[k] = json_is_number(feature) ? (float)json_number_value(feature) : NAN;
    }
    return true;
}
