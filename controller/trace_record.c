/* trace_record.c - see trace_record.h. Owns the rows of one text's target laws and one draft chain.
 * Both models run one sequence; the draft model reads what it would read in the node: it restarts
 * on the last LOOP_CATCH_UP tokens at a text's begin and whenever its window is full.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "controller/cause.h"
#include "controller/loop.h"
#include "controller/trace.h"
#include "controller/trace_record.h"

enum { STREAM_TEXT, STREAM_DRAFTS }; /* choice indices: the two streams of a text never meet */

struct trace_recorder {
    struct trace_recorder_options options;
    struct lm *target, *draft;
    struct lm_batch *target_batch, *draft_batch;
    tt *rows;
    size_t vocab, draft_vocab; /* rows of q are padded to `vocab` by -inf */
    float inverse_temperature;
    enum tt_rule rule;
    int window;

    /* The text in hand. */
    int32_t *tokens; /* (prompt + max_tokens) */
    int prompt, count;
    float *law;                 /* (max_tokens, vocab) target logits at every index */
    struct tt_row_stats *stats; /* (max_tokens) of those rows */
    int base, end;              /* the draft context holds tokens [base .. end) */
    float *q;                   /* (2, vocab) the draft row in hand, twice */
};

/* ---- life */

static bool make_buffers(struct trace_recorder *recorder)
{
    size_t most = (size_t)recorder->options.max_tokens;

    recorder->target_batch = lm_batch_new(lm_batch_limit(recorder->target));
    recorder->draft_batch = lm_batch_new(lm_batch_limit(recorder->draft));
    recorder->law = calloc(most * recorder->vocab, sizeof *recorder->law);
    recorder->stats = calloc(most, sizeof *recorder->stats);
    recorder->q = calloc(2 * recorder->vocab, sizeof *recorder->q);
    return recorder->target_batch && recorder->draft_batch && recorder->law && recorder->stats &&
           recorder->q;
}

struct trace_recorder *trace_recorder_new(const struct trace_recorder_options *options,
                                          char **cause)
{
    struct trace_recorder *recorder = calloc(1, sizeof *recorder);
    struct tt_options kernels = {.backend = "cpu", .max_rows = 1};
    int status = TT_ENOMEM;

    if (!recorder) goto fail;
    recorder->options = *options;
    recorder->target = options->pair->target;
    recorder->draft = options->pair->draft;
    recorder->draft_vocab = (size_t)lm_vocab(recorder->draft);
    recorder->vocab = (size_t)lm_vocab(recorder->target);
    if (recorder->draft_vocab > recorder->vocab) recorder->vocab = recorder->draft_vocab;
    recorder->rule = options->temperature > 0 ? TT_RATIO : TT_GREEDY;
    recorder->inverse_temperature =
        options->temperature > 0 ? 1.0F / (float)options->temperature : 1.0F;
    recorder->window = lm_sequence_cells(recorder->draft);
    if (recorder->window > LOOP_DRAFT_WINDOW) recorder->window = LOOP_DRAFT_WINDOW;
    kernels.vocab = recorder->vocab;
    if (!make_buffers(recorder)) goto fail;
    status = tt_open(&recorder->rows, &kernels);
    if (status == TT_OK) return recorder;
fail:
    cause_set(cause, "the recorder cannot start: %s", tt_strerror(status));
    trace_recorder_free(recorder);
    return NULL;
}

void trace_recorder_free(struct trace_recorder *recorder)
{
    if (!recorder) return;
    lm_batch_free(recorder->target_batch);
    lm_batch_free(recorder->draft_batch);
    tt_close(recorder->rows);
    free(recorder->tokens);
    free(recorder->law);
    free(recorder->stats);
    free(recorder->q);
    free(recorder);
}

/* ---- the text */

/* Copy a row of logits, -inf beyond the model's own vocabulary; its statistics. */
static bool keep_row(struct trace_recorder *recorder, const float *from, size_t own, float *to,
                     struct tt_row_stats *stats, char **cause)
{
    struct tt_rows row = {to, TT_F32, 1, recorder->vocab, recorder->vocab};

    memcpy(to, from, own * sizeof *to);
    for (size_t v = own; v < recorder->vocab; v++) to[v] = -INFINITY;
    if (tt_row_statistics(recorder->rows, &row, &recorder->inverse_temperature, stats) == TT_OK &&
        stats->argmax >= 0)
        return true;
    cause_set(cause, "a model gave logits that are not numbers");
    return false;
}

/* Feed tokens [from .. count) to the target; keep the law of what follows as that of index i. */
static bool target_forward(struct trace_recorder *recorder, int from, int i, char **cause)
{
    size_t own = (size_t)lm_vocab(recorder->target);
    int row = -1;

    for (int at = from; at < recorder->count;) {
        lm_batch_clear(recorder->target_batch);
        for (; at < recorder->count &&
               recorder->target_batch->count < recorder->target_batch->capacity;
             at++)
            row = lm_batch_add(recorder->target_batch, recorder->tokens[at], at, 0,
                               at == recorder->count - 1);
        if (lm_decode(recorder->target, recorder->target_batch, cause) != 0) return false;
    }
    return keep_row(recorder, lm_logits(recorder->target, row), own,
                    recorder->law + (size_t)i * recorder->vocab, &recorder->stats[i], cause);
}

static bool choose_token(struct trace_recorder *recorder, int text, int i, int32_t *token)
{
    struct tt_rows row = {recorder->law + (size_t)i * recorder->vocab, TT_F32, 1, recorder->vocab,
                          recorder->vocab};

    *token = recorder->stats[i].argmax;
    if (recorder->rule == TT_GREEDY) return true;
    return tt_sample(recorder->rows, &row, recorder->inverse_temperature, &recorder->stats[i],
                     tt_stream_key(recorder->options.seed, STREAM_TEXT, (uint32_t)text),
                     (uint64_t)i, 0, TT_BONUS, token) == TT_OK;
}

/* Tokens of the prompt in the chat template, with room for the text. */
static bool begin_text(struct trace_recorder *recorder, const char *prompt, char **cause)
{
    struct lm_message message = {"user", prompt};
    char *chat = lm_chat(recorder->target, &message, 1, cause);
    int32_t *tokens = NULL, *larger;
    int most = lm_sequence_cells(recorder->target) - recorder->options.max_tokens;

    if (!chat) return false;
    recorder->prompt = lm_tokenize(recorder->target, chat, strlen(chat), true, true, &tokens);
    free(chat);
    if (recorder->prompt < 1 || recorder->prompt > most) {
        if (recorder->prompt > 0) free(tokens);
        cause_set(cause, "a prompt of %d tokens; from 1 to %d fit this context beside the text",
                  recorder->prompt, most);
        return false;
    }
    recorder->count = recorder->prompt;
    larger = realloc(tokens, ((size_t)recorder->prompt + (size_t)recorder->options.max_tokens) *
                                 sizeof *larger);
    free(recorder->tokens);
    recorder->tokens = larger ? larger : tokens;
    if (!larger) cause_set(cause, "out of memory");
    return larger != NULL;
}

/* The target's own text, with the law at every index. Its length, or -1 with *cause. */
static int emit_text(struct trace_recorder *recorder, int text, char **cause)
{
    int length = 0, from = 0;
    bool ended = false;

    lm_trim(recorder->target, 0, 0);
    while (length < recorder->options.max_tokens && !ended) {
        int32_t token;

        if (!target_forward(recorder, from, length, cause)) return -1;
        if (!choose_token(recorder, text, length, &token)) {
            cause_set(cause, "a token could not be drawn");
            return -1;
        }
        from = recorder->count;
        recorder->tokens[recorder->count++] = token;
        length++;
        ended = lm_is_end(recorder->target, token);
    }
    return length;
}

/* ---- the drafts of one index */

/* Before its first draft at `known` tokens of text the draft model reads what it lacks. */
static void add_unread(struct trace_recorder *recorder, int known)
{
    int behind = known - recorder->end;
    bool full = known - recorder->base + recorder->options.max_draft > recorder->window;

    if (recorder->end == 0 || behind > LOOP_CATCH_UP || full) {
        lm_trim(recorder->draft, 0, 0);
        recorder->base = recorder->end = known > LOOP_CATCH_UP ? known - LOOP_CATCH_UP : 0;
    }
    for (; recorder->end < known; recorder->end++)
        lm_batch_add(recorder->draft_batch, recorder->tokens[recorder->end],
                     recorder->end - recorder->base, 0, recorder->end == known - 1);
}

static bool draft_forward(struct trace_recorder *recorder, int known, int k, int32_t before,
                          struct tt_row_stats *stats, char **cause)
{
    lm_batch_clear(recorder->draft_batch);
    if (k == 0)
        add_unread(recorder, known);
    else
        lm_batch_add(recorder->draft_batch, before, known + k - 1 - recorder->base, 0, true);
    if (lm_decode(recorder->draft, recorder->draft_batch, cause) != 0) return false;
    return keep_row(recorder, lm_logits(recorder->draft, recorder->draft_batch->count - 1),
                    recorder->draft_vocab, recorder->q, stats, cause);
}

struct draw {
    uint64_t key, token_index; /* of their own for every draft of the text */
    bool follows;              /* the chain is the text so far, which goes on */
    int at;                    /* index of the text that this draft stands for */
    int32_t token;             /* the text's there */
};

/* A draft given the text's token, by the ratio rule with p and q exchanged. */
static bool draw_given(struct trace_recorder *recorder, const struct draw *draw, int32_t *x)
{
    struct tt_block block = {
        .rule = TT_RATIO,
        .target = recorder->q,
        .target_stride = recorder->vocab,
        .vocab = recorder->vocab,
        .draft = recorder->law + (size_t)draw->at * recorder->vocab,
        .draft_stride = recorder->vocab,
        .draft_vocab = recorder->vocab,
        .tokens = &draw->token,
        .admitted = 1,
        .temperature = (float)recorder->options.temperature,
        .key = draw->key,
        .token_index = draw->token_index,
        .draft_stats = &recorder->stats[draw->at],
    };
    struct tt_verdict verdict;

    /* the row behind an accepted token: read, and its token not used */
    memcpy(recorder->q + recorder->vocab, recorder->q, recorder->vocab * sizeof *recorder->q);
    if (tt_verify(recorder->rows, &block, &verdict) != TT_OK || verdict.next < 0) return false;
    *x = verdict.accepted == 1 ? draw->token : verdict.next;
    return true;
}

static bool draw_draft(struct trace_recorder *recorder, const struct draw *draw,
                       const struct tt_row_stats *stats, int32_t *x)
{
    struct tt_rows row = {recorder->q, TT_F32, 1, recorder->vocab, recorder->vocab};

    *x = stats->argmax;
    if (recorder->rule == TT_GREEDY) return true;
    if (draw->follows) return draw_given(recorder, draw, x);
    return tt_sample(recorder->rows, &row, recorder->inverse_temperature, stats, draw->key,
                     draw->token_index, 0, TT_DRAFT, x) == TT_OK;
}

/* min(1, p(x)/q(x)); under the greedy rule the hard outcome. */
static float soft_label(const struct trace_recorder *recorder, const struct draw *draw,
                        const struct tt_row_stats *stats, int32_t x)
{
    const float *law = recorder->law + (size_t)draw->at * recorder->vocab;
    double log_p, log_q;

    if (recorder->rule == TT_GREEDY) return x == draw->token;
    log_p = (double)law[x] * (double)recorder->inverse_temperature -
            (double)recorder->stats[draw->at].log_norm;
    log_q =
        (double)recorder->q[x] * (double)recorder->inverse_temperature - (double)stats->log_norm;
    return (float)exp(fmin(0, log_p - log_q));
}

/* All drafts at index i of a text of `length` tokens, as a line of the file. */
static bool record_index(struct trace_recorder *recorder, FILE *file, int text, int i, int length,
                         char **cause)
{
    int depth = recorder->options.max_draft, known = recorder->prompt + i;
    const int32_t *tokens = recorder->tokens + recorder->prompt;
    float feature[TT_MAX_POSITIONS], soft[TT_MAX_POSITIONS];
    int32_t draft[TT_MAX_POSITIONS];
    struct trace_index index = {
        .drafted = depth, .token = tokens[i], .draft = draft, .feature = feature, .soft = soft};
    struct draw draw = {.key = tt_stream_key(recorder->options.seed, STREAM_DRAFTS, (uint32_t)text),
                        .follows = true};

    for (int k = 0; k < depth; k++) {
        struct tt_row_stats stats;

        if (!draft_forward(recorder, known, k, k > 0 ? draft[k - 1] : -1, &stats, cause))
            return false;
        feature[k] = tt_feature(&stats, LOOP_FEATURE_CLAMP);
        soft[k] = NAN;
        draw.at = i + k;
        draw.token_index = (uint64_t)i * TT_MAX_POSITIONS + (uint64_t)k;
        draw.follows = draw.follows && draw.at < length;
        if (draw.follows) draw.token = tokens[draw.at];
        if (!draw_draft(recorder, &draw, &stats, &draft[k])) {
            cause_set(cause, "a draft could not be drawn");
            return false;
        }
        if (!draw.follows) continue;
        soft[k] = soft_label(recorder, &draw, &stats, draft[k]);
        index.labelled++;
        draw.follows = draft[k] == draw.token;
        index.accepted += draw.follows;
    }
    lm_trim(recorder->draft, 0, known - recorder->base);
    if (trace_write_index(file, text, i, depth, &index)) return true;
    cause_set(cause, "the trace cannot be written");
    return false;
}

int trace_recorder_text(struct trace_recorder *recorder, FILE *file, int text, const char *prompt,
                        char **cause)
{
    int length;

    if (!begin_text(recorder, prompt, cause)) return -1;
    length = emit_text(recorder, text, cause);
    if (length < 0) return -1;
    if (!trace_write_text(file, text, prompt)) goto unwritten;
    lm_trim(recorder->draft, 0, 0);
    recorder->base = recorder->end = 0;
    for (int i = 0; i < length; i++)
        if (!record_index(recorder, file, text, i, length, cause)) return -1;
    if (trace_write_end(file, text, length)) return length;
unwritten:
    cause_set(cause, "the trace cannot be written");
    return -1;
}
