/* engine_table.c - see engine_table.h. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "controller/engine_table.h"

/* ------------------------------------------------------------------------------------ the table */

enum shape { COUNTER, GAUGE, POSITION, HISTOGRAM, HISTOGRAM_COUNT, PROCESS_START };

static const struct table_row {
    const char *name;
    enum engine engine;
    enum shape shape;
    enum figure figure;
} table[] = {
    {"vllm:spec_decode_num_drafts_total", ENGINE_VLLM, COUNTER, FIGURE_DRAFTS},
    {"vllm:spec_decode_num_draft_tokens_total", ENGINE_VLLM, COUNTER, FIGURE_DRAFTED},
    {"vllm:spec_decode_num_accepted_tokens_total", ENGINE_VLLM, COUNTER, FIGURE_ACCEPTED},
    {"vllm:spec_decode_num_accepted_tokens_per_pos_total", ENGINE_VLLM, POSITION,
     FIGURE_ACCEPTED_AT},
    {"vllm:generation_tokens_total", ENGINE_VLLM, COUNTER, FIGURE_EMITTED},
    {"vllm:prompt_tokens_total", ENGINE_VLLM, COUNTER, FIGURE_PROMPT},
    {"vllm:request_success_total", ENGINE_VLLM, COUNTER, FIGURE_REQUESTS},
    {"vllm:iteration_tokens_total", ENGINE_VLLM, HISTOGRAM_COUNT, FIGURE_STEPS},
    {"vllm:num_requests_running", ENGINE_VLLM, GAUGE, FIGURE_RUNNING},
    {"vllm:num_requests_waiting", ENGINE_VLLM, GAUGE, FIGURE_WAITING},
    {"vllm:kv_cache_usage_perc", ENGINE_VLLM, GAUGE, FIGURE_KV},
    {"vllm:gpu_cache_usage_perc", ENGINE_VLLM, GAUGE, FIGURE_KV}, /* its name before 0.10 */
    {"vllm:time_to_first_token_seconds", ENGINE_VLLM, HISTOGRAM, FIGURE_FIRST_TOKEN},
    {"vllm:inter_token_latency_seconds", ENGINE_VLLM, HISTOGRAM, FIGURE_INTER_TOKEN},
    {"vllm:time_per_output_token_seconds", ENGINE_VLLM, HISTOGRAM, FIGURE_INTER_TOKEN},
    /* trimtab's own daemon speaks vLLM's names and adds these */
    {"trimtab_steps_total", ENGINE_TRIMTAB, COUNTER, FIGURE_STEPS},
    {"trimtab_admitted_tokens_total", ENGINE_TRIMTAB, COUNTER, FIGURE_ADMITTED},
    {"trimtab_verified_tokens_total", ENGINE_TRIMTAB, COUNTER, FIGURE_VERIFIED},
    {"llamacpp:spec_decode_num_drafts_total", ENGINE_LLAMA_SERVER, COUNTER, FIGURE_DRAFTS},
    {"llamacpp:spec_decode_num_draft_tokens_total", ENGINE_LLAMA_SERVER, COUNTER, FIGURE_DRAFTED},
    {"llamacpp:spec_decode_num_accepted_tokens_total", ENGINE_LLAMA_SERVER, COUNTER,
     FIGURE_ACCEPTED},
    {"llamacpp:spec_decode_num_accepted_tokens_per_pos_total", ENGINE_LLAMA_SERVER, POSITION,
     FIGURE_ACCEPTED_AT},
    {"llamacpp:tokens_predicted_total", ENGINE_LLAMA_SERVER, COUNTER, FIGURE_EMITTED},
    {"llamacpp:prompt_tokens_total", ENGINE_LLAMA_SERVER, COUNTER, FIGURE_PROMPT},
    {"llamacpp:requests_processing", ENGINE_LLAMA_SERVER, GAUGE, FIGURE_RUNNING},
    {"llamacpp:requests_deferred", ENGINE_LLAMA_SERVER, GAUGE, FIGURE_WAITING},
    {"llamacpp:kv_cache_usage_ratio", ENGINE_LLAMA_SERVER, GAUGE, FIGURE_KV}, /* older ones */
    {"sglang:generation_tokens_total", ENGINE_SGLANG, COUNTER, FIGURE_EMITTED},
    {"sglang:prompt_tokens_total", ENGINE_SGLANG, COUNTER, FIGURE_PROMPT},
    {"sglang:num_requests_total", ENGINE_SGLANG, COUNTER, FIGURE_REQUESTS},
    {"sglang:num_running_reqs", ENGINE_SGLANG, GAUGE, FIGURE_RUNNING},
    {"sglang:num_queue_reqs", ENGINE_SGLANG, GAUGE, FIGURE_WAITING},
    {"sglang:token_usage", ENGINE_SGLANG, GAUGE, FIGURE_KV},
    {"sglang:spec_accept_length", ENGINE_SGLANG, GAUGE, FIGURE_LENGTH},
    {"sglang:time_to_first_token_seconds", ENGINE_SGLANG, HISTOGRAM, FIGURE_FIRST_TOKEN},
    {"sglang:inter_token_latency_seconds", ENGINE_SGLANG, HISTOGRAM, FIGURE_INTER_TOKEN},
    {"trtllm_spec_decode_num_draft_tokens_total", ENGINE_TENSORRT_LLM, COUNTER, FIGURE_DRAFTED},
    {"trtllm_spec_decode_num_accepted_tokens_total", ENGINE_TENSORRT_LLM, COUNTER, FIGURE_ACCEPTED},
    {"trtllm_spec_decode_acceptance_length", ENGINE_TENSORRT_LLM, GAUGE, FIGURE_LENGTH},
    {"trtllm_request_success_total", ENGINE_TENSORRT_LLM, COUNTER, FIGURE_REQUESTS},
    {"trtllm_num_requests_running", ENGINE_TENSORRT_LLM, GAUGE, FIGURE_RUNNING},
    {"trtllm_num_requests_waiting", ENGINE_TENSORRT_LLM, GAUGE, FIGURE_WAITING},
    {"trtllm_kv_cache_utilization", ENGINE_TENSORRT_LLM, GAUGE, FIGURE_KV},
    {"trtllm_time_to_first_token_seconds", ENGINE_TENSORRT_LLM, HISTOGRAM, FIGURE_FIRST_TOKEN},
    {"trtllm_time_per_output_token_seconds", ENGINE_TENSORRT_LLM, HISTOGRAM, FIGURE_INTER_TOKEN},
    {"process_start_time_seconds", ENGINE_UNKNOWN, PROCESS_START, FIGURES},
};
#define ROWS ((int)(sizeof table / sizeof table[0]))

const char *engine_name(enum engine engine)
{
    static const char *const names[ENGINES] = {"unknown", "vllm",   "llama-server",
                                               "trimtab", "sglang", "tensorrt-llm"};

    return names[engine];
}

bool engine_counts_at_end(enum engine engine)
{
    return engine == ENGINE_LLAMA_SERVER;
}

const char *figure_name(enum figure figure)
{
    static const char *const names[FIGURES] = {
        [FIGURE_DRAFTS] = "drafts",
        [FIGURE_DRAFTED] = "drafted",
        [FIGURE_ADMITTED] = "admitted",
        [FIGURE_VERIFIED] = "verified",
        [FIGURE_ACCEPTED] = "accepted",
        [FIGURE_EMITTED] = "emitted",
        [FIGURE_PROMPT] = "prompt_tokens",
        [FIGURE_REQUESTS] = "requests",
        [FIGURE_STEPS] = "steps",
        [FIGURE_RUNNING] = "running",
        [FIGURE_WAITING] = "queued",
        [FIGURE_KV] = "kv_ratio",
        [FIGURE_LENGTH] = "mean_length",
        [FIGURE_ACCEPTED_AT] = "accepted_at",
        [FIGURE_FIRST_TOKEN] = "first_token_s",
        [FIGURE_INTER_TOKEN] = "inter_token_s",
    };

    return names[figure];
}

const char *engine_fault_text(enum engine_fault fault)
{
    static const char *const texts[ENGINE_FAULTS] = {
        [ENGINE_BAD_VALUE] = "negative, or not a finite number",
        [ENGINE_BAD_POSITION] = "no position label from 0 to 31",
        [ENGINE_BAD_BUCKET] = "no le label, or more buckets than can be kept",
        [ENGINE_BAD_TYPE] = "its # TYPE is not the one that this name has",
        [ENGINE_TOO_MANY] = "more engines than can be kept apart",
        [ENGINE_COPY] = "another rank's copy of the same requests",
    };

    return texts[fault];
}

/* Counters are known by their 0.0.4 name (…_total); OpenMetrics names the family without it. The
 * same for …_created, which stands beside the family's name without _total. */
static bool names_row(const struct exposition_slice *family, const struct table_row *row)
{
    size_t length = strlen(row->name), stem = length;
    bool total = length > 6 && strcmp(row->name + length - 6, "_total") == 0;

    if (total) stem -= 6;
    if (family->length < stem || memcmp(family->text, row->name, stem) != 0) return false;
    if (family->length == length) return memcmp(family->text + stem, "_total", length - stem) == 0;
    if (family->length == stem) return total && row->shape != HISTOGRAM_COUNT;
    return row->figure == FIGURE_EMITTED && family->length == stem + 8 &&
           memcmp(family->text + stem, "_created", 8) == 0;
}

int engine_choose(void *state, const struct exposition_slice *family)
{
    (void)state;
    for (int i = 0; i < ROWS; i++)
        if (names_row(family, &table[i])) return i;
    return EXPOSITION_UNWANTED;
}

/* ------------------------------------------------------------------------------------- the page */

static void clear_row(struct engine_row *row, const char *label)
{
    memset(row, 0, sizeof *row);
    strcpy(row->label, label);
    for (int i = 0; i < FIGURE_SCALARS; i++) row->value[i] = NAN;
    for (int k = 0; k < ENGINE_POSITIONS; k++) row->accepted_at[k] = NAN;
    row->created = NAN;
}

void engine_page_clear(struct engine_page *page)
{
    page->engine = ENGINE_UNKNOWN;
    page->rows = 0;
    page->first_token.buckets = page->inter_token.buckets = 0;
    page->process_start = NAN;
    page->model[0] = '\0';
    memset(page->faults, 0, sizeof page->faults);
    page->used = 0;
}

const struct engine_row *engine_find_row(const struct engine_page *page, const char *label)
{
    for (int i = 0; i < page->rows; i++)
        if (strcmp(page->row[i].label, label) == 0) return &page->row[i];
    return NULL;
}

/* The row of a sample's engine; NULL when there are too many. */
static struct engine_row *row_of(struct engine_page *page, const struct exposition_sample *sample)
{
    char label[ENGINE_LABEL];
    struct engine_row *row;

    if (!exposition_label(sample, "engine", label, sizeof label) &&
        !exposition_label(sample, "dp_rank", label, sizeof label)) /* SGLang */
        label[0] = '\0';
    for (int i = page->rows - 1; i >= 0; i--)
        if (strcmp(page->row[i].label, label) == 0) return &page->row[i];
    if (page->rows == ENGINE_ROWS) return NULL;
    row = &page->row[page->rows++];
    clear_row(row, label);
    return row;
}

static void add_to(double *sum, double value)
{
    *sum = isnan(*sum) ? value : *sum + value;
}

/* True when the bucket could be added. */
static bool add_bucket(struct engine_histogram *histogram, const struct exposition_sample *sample)
{
    char text[32];
    double bound;
    int at;

    if (!exposition_label(sample, "le", text, sizeof text) ||
        !exposition_number(text, strlen(text), &bound) || isnan(bound))
        return false;
    for (at = 0; at < histogram->buckets && histogram->bound[at] < bound;) at++;
    if (at == histogram->buckets || histogram->bound[at] > bound) {
        if (histogram->buckets == ENGINE_BUCKETS) return false;
        memmove(&histogram->bound[at + 1], &histogram->bound[at],
                (size_t)(histogram->buckets - at) * sizeof histogram->bound[0]);
        memmove(&histogram->cumulated[at + 1], &histogram->cumulated[at],
                (size_t)(histogram->buckets - at) * sizeof histogram->cumulated[0]);
        histogram->bound[at] = bound;
        histogram->cumulated[at] = 0;
        histogram->buckets++;
    }
    histogram->cumulated[at] += sample->value;
    return true;
}

/* Ranks of one SGLang engine may each report the same requests: the first one counts. */
static bool is_copy(const struct exposition_sample *sample)
{
    char rank[8];

    return (exposition_label(sample, "tp_rank", rank, sizeof rank) && strcmp(rank, "0") != 0) ||
           (exposition_label(sample, "pp_rank", rank, sizeof rank) && strcmp(rank, "0") != 0);
}

static bool type_fits(enum shape shape, const struct exposition_sample *sample)
{
    bool histogram = sample->type == EXPOSITION_HISTOGRAM;

    switch (shape) {
    case COUNTER:
    case POSITION:
        return sample->type == EXPOSITION_COUNTER || sample->type == EXPOSITION_UNTYPED;
    case GAUGE:
    case PROCESS_START:
        return sample->type == EXPOSITION_GAUGE || sample->type == EXPOSITION_UNTYPED;
    default:
        return histogram;
    }
}

static int position_of(const struct exposition_sample *sample)
{
    char text[8];
    double number;

    if (!exposition_label(sample, "position", text, sizeof text) ||
        !exposition_number(text, strlen(text), &number) || number != floor(number) || number < 0 ||
        number >= ENGINE_POSITIONS)
        return -1;
    return (int)number;
}

static struct engine_verdict fault_of(struct engine_page *page, enum figure figure,
                                      enum engine_fault fault)
{
    page->faults[fault]++;
    return (struct engine_verdict){.figure = figure, .has_fault = true, .fault = fault};
}

/* Most specific wins: a trimtab daemon also has vLLM's names. */
static void recognise(struct engine_page *page, enum engine engine)
{
    if (page->engine == ENGINE_UNKNOWN || engine == ENGINE_TRIMTAB) page->engine = engine;
}

static struct engine_verdict take_value(struct engine_page *page, const struct table_row *row,
                                        const struct exposition_sample *sample)
{
    struct engine_verdict used = {.used = true, .figure = row->figure};
    struct engine_row *out = row_of(page, sample);
    double value = sample->value;
    int position;

    if (!out) return fault_of(page, row->figure, ENGINE_TOO_MANY);
    switch (row->shape) {
    case POSITION:
        position = position_of(sample);
        if (position < 0) return fault_of(page, row->figure, ENGINE_BAD_POSITION);
        add_to(&out->accepted_at[position], value);
        if (position >= out->positions) out->positions = position + 1;
        break;
    default:
        add_to(&out->value[row->figure], value);
        break;
    }
    page->used++;
    if (page->model[0] == '\0')
        exposition_label(sample, "model_name", page->model, sizeof page->model);
    return used;
}

static struct engine_verdict take_bucket(struct engine_page *page, const struct table_row *row,
                                         const struct exposition_sample *sample)
{
    struct engine_histogram *histogram =
        row->figure == FIGURE_FIRST_TOKEN ? &page->first_token : &page->inter_token;

    if (!add_bucket(histogram, sample)) return fault_of(page, row->figure, ENGINE_BAD_BUCKET);
    page->used++;
    return (struct engine_verdict){.used = true, .figure = row->figure};
}

struct engine_verdict engine_take(struct engine_page *page, const struct exposition_sample *sample)
{
    const struct table_row *row;
    struct engine_row *out;

    if (sample->choice < 0 || sample->choice >= ROWS) return (struct engine_verdict){0};
    row = &table[sample->choice];
    if (row->engine != ENGINE_UNKNOWN) recognise(page, row->engine);
    if (sample->role == EXPOSITION_CREATED) {
        if (row->figure != FIGURE_EMITTED || !isfinite(sample->value) ||
            !(out = row_of(page, sample)))
            return (struct engine_verdict){0};
        out->created = sample->value;
        return (struct engine_verdict){.start = true};
    }
    if (row->shape == PROCESS_START) {
        page->process_start = sample->value;
        return (struct engine_verdict){.start = true};
    }
    if (!type_fits(row->shape, sample)) return fault_of(page, row->figure, ENGINE_BAD_TYPE);
    if (is_copy(sample)) return fault_of(page, row->figure, ENGINE_COPY);
    if (sample->role == (row->shape == HISTOGRAM         ? EXPOSITION_BUCKET
                         : row->shape == HISTOGRAM_COUNT ? EXPOSITION_COUNT
                                                         : EXPOSITION_VALUE)) {
        if (!(isfinite(sample->value) && sample->value >= 0))
            return fault_of(page, row->figure, ENGINE_BAD_VALUE);
        return row->shape == HISTOGRAM ? take_bucket(page, row, sample)
                                       : take_value(page, row, sample);
    }
    return (struct engine_verdict){0}; /* a histogram's sum */
}

/* A trimtab daemon also tells of the nodes that it only watches: those have no vLLM names. */
static void drop_watched(struct engine_page *page)
{
    int kept = 0;

    if (page->engine != ENGINE_TRIMTAB) return;
    for (int i = 0; i < page->rows; i++)
        if (!isnan(page->row[i].value[FIGURE_EMITTED])) page->row[kept++] = page->row[i];
    page->rows = kept;
}

void engine_read(struct engine_page *page, struct exposition *reader, const char *text,
                 size_t length)
{
    struct exposition_sample sample;

    engine_page_clear(page);
    exposition_begin(reader, text, length, engine_choose, NULL);
    while (exposition_next(reader, &sample)) engine_take(page, &sample);
    drop_watched(page);
}

/* --------------------------------------------------------------------------------------- totals */

double engine_total(const struct engine_page *page, enum figure figure)
{
    double sum = NAN, most = NAN;
    int known = 0;

    for (int i = 0; i < page->rows; i++) {
        double value = page->row[i].value[figure];

        if (isnan(value)) continue;
        add_to(&sum, value);
        most = fmax(most, value);
        known++;
    }
    if (figure == FIGURE_KV) return most;
    return figure == FIGURE_LENGTH && known > 0 ? sum / known : sum;
}

double engine_accepted_at(const struct engine_page *page, int position)
{
    double sum = NAN;

    for (int i = 0; i < page->rows; i++)
        if (!isnan(page->row[i].accepted_at[position]))
            add_to(&sum, page->row[i].accepted_at[position]);
    return sum;
}

int engine_positions(const struct engine_page *page)
{
    int most = 0;

    for (int i = 0; i < page->rows; i++)
        if (page->row[i].positions > most) most = page->row[i].positions;
    return most;
}

bool engine_speculates(const struct engine_page *page)
{
    return !isnan(engine_total(page, FIGURE_DRAFTED)) ||
           !isnan(engine_total(page, FIGURE_ACCEPTED)) ||
           !isnan(engine_total(page, FIGURE_LENGTH)) || engine_positions(page) > 0;
}

static double cumulated_at(const struct engine_histogram *histogram, double bound)
{
    for (int i = 0; i < histogram->buckets; i++)
        if (histogram->bound[i] >= bound) return histogram->cumulated[i];
    return 0;
}

double engine_quantile(const struct engine_histogram *now, const struct engine_histogram *before,
                       double q)
{
    double all, below = 0, lower = 0, wanted;

    if (now->buckets == 0) return NAN;
    all = now->cumulated[now->buckets - 1] - cumulated_at(before, now->bound[now->buckets - 1]);
    if (!(all > 0)) return NAN;
    wanted = q * all;
    for (int i = 0; i < now->buckets; i++) {
        double bound = now->bound[i], upto = now->cumulated[i] - cumulated_at(before, bound);

        if (upto >= wanted && upto > below)
            return isinf(bound)
                       ? lower
                       : lower + (bound - lower) * fmax(0, wanted - below) / (upto - below);
        if (upto > below) below = upto;
        lower = bound;
    }
    return lower;
}
