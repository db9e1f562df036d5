/* lm_synthetic.c - lm.h in closed form, for tests without a model file: a byte vocabulary whose
 * next-token law is a hash of the last tokens. Logits are bit-equal in every batch shape, the KV
 * bookkeeping of a real engine is enforced (consecutive positions, cell counts, limits), and a
 * decode costs what its path says.
 *
 * Path: "synthetic:ROLE[:MICROSECONDS_A_STEP[:MICROSECONDS_A_TOKEN[:deviceN]]]"; ROLE is "target",
 * "draft" (a blurred target), "other" (another vocabulary) or "broken" (a target whose logits turn
 * into NaN after the text "!!"). With "deviceN" logits lie on device N too, but for decodes that
 * an engine would cut into several passes. Any other path is refused as a real engine refuses a
 * file that is not a model.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "controller/cause.h"
#include "controller/lm.h"
#include "tests/support/lm_synthetic.h"

#define BYTES 256
#define TOKEN_BEGIN 256
#define TOKEN_END 257
#define TOKEN_TURN 258
#define VOCAB 260
#define SEQUENCE_CELLS 1024
#define PASS_TOKENS 12 /* most of a decode that leaves its logits on the device */

const struct lm_synthetic_device *lm_synthetic_device;

struct lm {
    bool draft, other, broken;
    long decodes;
    int sequences, cells, batch_limit, outputs_limit, used;
    long step_us, token_us;
    int *length;     /* (sequences) */
    int *first;      /* (sequences) position of the first cell */
    int32_t *tokens; /* (sequences, SEQUENCE_CELLS) */
    float *logits;   /* (outputs_limit, VOCAB) */
    int *row;        /* (batch_limit) output of a batch row, -1 = not wanted */
    int rows;
    float *device_logits; /* (outputs_limit, VOCAB) on the device, or NULL */
    bool on_device;       /* so are those of the last decode */
    char device[16];      /* "cuda:N" */
    struct synthetic_reads reads;
};

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

static float noise(uint32_t a, uint32_t b)
{
    return (float)(mix(a * 0x9e3779b9u + b) >> 8) / 16777216.0f;
}

/* A few letters follow each pair of tokens with high probability; the third token back tilts the
 * choice. */
static void fill_logits(const struct lm *lm, const int32_t *tokens, int count, float *logits)
{
    uint32_t a = count > 0 ? (uint32_t)tokens[count - 1] : TOKEN_BEGIN;
    uint32_t b = count > 1 ? (uint32_t)tokens[count - 2] : TOKEN_BEGIN;
    uint32_t c = count > 2 ? (uint32_t)tokens[count - 3] : TOKEN_BEGIN;
    uint32_t pair = mix(a * 1009u + b), triple = mix(pair + c);

    for (uint32_t v = 0; v < VOCAB; v++) {
        float base = -4.0f + 3.0f * noise(pair, v);
        bool letter = (v >= 'a' && v <= 'z') || v == ' ';

        if (letter) base += 3.0f + 6.0f * noise(pair, v + 1000) * noise(pair, v + 2000);
        base += (lm->draft ? 0.6f : 2.5f) * noise(triple, v);
        if (v == TOKEN_END) base = count > 24 ? 0.5f : -6.0f;
        if (v == TOKEN_BEGIN || v == TOKEN_TURN || v >= TOKEN_TURN) base = -30.0f;
        if (v >= 128 && v < 256) base -= 8.0f;
        logits[v] = lm->broken && a == '!' && b == '!' ? NAN : base;
    }
}

struct lm *lm_open(const struct lm_options *options, char **cause)
{
    struct lm *lm = NULL;
    char role[16] = "";
    long step_us = 0, token_us = 0;
    unsigned ordinal = 0;
    bool device;
    int fields = sscanf(options->path, "synthetic:%15[a-z]:%ld:%ld:device%u", role, &step_us,
                        &token_us, &ordinal);

    if (fields < 1) {
        cause_set(cause, "%s is not a GGUF model file", options->path);
        return NULL;
    }
    device = fields == 4;
    if (device && !lm_synthetic_device) {
        cause_set(cause, "%s: this program is not linked with a device", options->path);
        return NULL;
    }
    lm = calloc(1, sizeof *lm);
    if (!lm) return NULL;
    lm->draft = strcmp(role, "draft") == 0;
    lm->other = strcmp(role, "other") == 0;
    lm->broken = strcmp(role, "broken") == 0;
    lm->sequences = options->parallel;
    lm->cells = options->context ? options->context : options->parallel * SEQUENCE_CELLS;
    lm->batch_limit = options->batch;
    lm->outputs_limit = options->outputs;
    lm->step_us = step_us;
    lm->token_us = token_us;
    lm->length = calloc((size_t)lm->sequences, sizeof *lm->length);
    lm->first = calloc((size_t)lm->sequences, sizeof *lm->first);
    lm->tokens = calloc((size_t)lm->sequences * SEQUENCE_CELLS, sizeof *lm->tokens);
    lm->logits = calloc((size_t)lm->outputs_limit * VOCAB, sizeof *lm->logits);
    lm->row = calloc((size_t)lm->batch_limit, sizeof *lm->row);
    snprintf(lm->device, sizeof lm->device, "cuda:%u", ordinal);
    if (device)
        lm->device_logits = lm_synthetic_device->allocate((size_t)lm->outputs_limit * VOCAB);
    if (lm->length && lm->first && lm->tokens && lm->logits && lm->row &&
        (!device || lm->device_logits))
        return lm;
    lm_close(lm);
    cause_set(cause, "out of memory");
    return NULL;
}

struct lm *lm_share(const struct lm *owner, const struct lm_options *options, char **cause)
{
    (void)owner;
    return lm_open(options, cause);
}

void lm_close(struct lm *lm)
{
    if (!lm) return;
    if (lm->device_logits) lm_synthetic_device->release(lm->device_logits);
    free(lm->length);
    free(lm->first);
    free(lm->tokens);
    free(lm->logits);
    free(lm->row);
    free(lm);
}

int lm_convert(const char *from, const char *to, const char *form, int threads, char **cause)
{
    (void)from, (void)to, (void)form, (void)threads;
    cause_set(cause, "the synthetic model has one form");
    return -1;
}

const char *lm_engine_version(void)
{
    return "synthetic 1";
}
const char *lm_engine_build(void)
{
    return lm_engine_version();
}
const char *lm_name(const struct lm *lm)
{
    return lm->draft ? "synthetic-draft" : "synthetic-target";
}
const char *lm_digest(const struct lm *lm)
{
    return lm->draft ? "d000000000000001" : "7000000000000001";
}
int lm_vocab(const struct lm *lm)
{
    (void)lm;
    return VOCAB;
}
int lm_context_cells(const struct lm *lm)
{
    return lm->cells;
}
int lm_sequence_cells(const struct lm *lm)
{
    return lm->cells < SEQUENCE_CELLS ? lm->cells : SEQUENCE_CELLS;
}
int lm_batch_limit(const struct lm *lm)
{
    return lm->batch_limit;
}
int lm_outputs_limit(const struct lm *lm)
{
    return lm->outputs_limit;
}
bool lm_can_roll_back(const struct lm *lm)
{
    (void)lm;
    return true;
}
size_t lm_logits_stride(const struct lm *lm)
{
    (void)lm;
    return VOCAB;
}

static void spend(long microseconds)
{
    struct timespec pause = {microseconds / 1000000, microseconds % 1000000 * 1000};

    if (microseconds > 0) nanosleep(&pause, NULL);
}

int lm_decode(struct lm *lm, const struct lm_batch *batch, char **cause)
{
    int outputs = 0;

    if (batch->count < 1 || batch->count > lm->batch_limit || lm->used + batch->count > lm->cells) {
        cause_set(cause, "synthetic engine: batch of %d (limit %d), %d cells used of %d",
                  batch->count, lm->batch_limit, lm->used, lm->cells);
        return -1;
    }
    for (int i = 0; i < batch->count; i++) {
        int sequence = batch->sequence[i];
        int32_t *tokens = lm->tokens + (size_t)sequence * SEQUENCE_CELLS;

        if (sequence < 0 || sequence >= lm->sequences || batch->token[i] < 0 ||
            batch->token[i] >= VOCAB)
            abort();
        if (lm->length[sequence] == 0) lm->first[sequence] = batch->position[i];
        if (batch->position[i] != lm->first[sequence] + lm->length[sequence] ||
            lm->length[sequence] >= SEQUENCE_CELLS)
            abort(); /* positions of a sequence must be consecutive: a bug in the caller */
        tokens[lm->length[sequence]++] = batch->token[i];
        lm->used++;
        lm->row[i] = -1;
        if (!batch->want[i]) continue;
        if (outputs >= lm->outputs_limit) abort();
        fill_logits(lm, tokens, lm->length[sequence], lm->logits + (size_t)outputs * VOCAB);
        lm->row[i] = outputs++;
    }
    lm->rows = batch->count;
    lm->on_device =
        lm->device_logits && batch->count <= PASS_TOKENS &&
        lm_synthetic_device->upload(lm->device_logits, lm->logits, (size_t)outputs * VOCAB);
    lm->decodes++;
    spend(lm->step_us + lm->token_us * batch->count);
    return 0;
}

long lm_synthetic_decodes(const struct lm *lm)
{
    return lm->decodes;
}
int lm_synthetic_used(const struct lm *lm)
{
    return lm->used;
}
struct synthetic_reads lm_synthetic_reads(const struct lm *lm)
{
    return lm->reads;
}

float *lm_logits(struct lm *lm, int row)
{
    if (row < 0 || row >= lm->rows || lm->row[row] < 0) return NULL;
    lm->reads.host++;
    return lm->logits + (size_t)lm->row[row] * VOCAB;
}

const char *lm_device(const struct lm *lm)
{
    return lm->device_logits ? lm->device : NULL;
}

float *lm_device_logits(struct lm *lm, int row)
{
    if (!lm->on_device || row < 0 || row >= lm->rows || lm->row[row] < 0) return NULL;
    lm->reads.device++;
    return lm->device_logits + (size_t)lm->row[row] * VOCAB;
}

bool lm_trim(struct lm *lm, int sequence, int from)
{
    int keep = from - lm->first[sequence];

    if (keep < 0) keep = 0;
    if (keep >= lm->length[sequence]) return true;
    lm->used -= lm->length[sequence] - keep;
    lm->length[sequence] = keep;
    return true;
}

int lm_tokenize(const struct lm *lm, const char *text, size_t length, bool add_special,
                bool parse_special, int32_t **tokens)
{
    int count = 0;

    (void)lm, (void)parse_special;
    *tokens = calloc(length + 1, sizeof **tokens);
    if (!*tokens) return -1;
    if (add_special) (*tokens)[count++] = TOKEN_BEGIN;
    for (size_t i = 0; i < length; i++) (*tokens)[count++] = (unsigned char)text[i];
    return count;
}

int lm_piece(const struct lm *lm, int32_t token, char *bytes, size_t size)
{
    (void)lm;
    if (token < 0 || token >= BYTES || size < 1) return 0;
    bytes[0] = (char)token;
    return 1;
}

bool lm_is_end(const struct lm *lm, int32_t token)
{
    (void)lm;
    return token == TOKEN_END;
}

int lm_end_tokens(const struct lm *lm, int32_t *tokens, int capacity)
{
    (void)lm;
    if (capacity > 0) tokens[0] = TOKEN_END;
    return 1;
}

char *lm_chat(const struct lm *lm, const struct lm_message *messages, size_t count, char **cause)
{
    size_t size = 16;
    char *text;

    (void)lm;
    for (size_t i = 0; i < count; i++)
        size += strlen(messages[i].role) + strlen(messages[i].content) + 4;
    text = calloc(size, 1);
    if (!text) {
        cause_set(cause, "out of memory");
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        strcat(text, messages[i].role);
        strcat(text, ": ");
        strcat(text, messages[i].content);
        strcat(text, "\n");
    }
    return text;
}

char *lm_mismatch(const struct lm *target, const struct lm *draft)
{
    char *why = NULL;

    if (target->other != draft->other)
        cause_set(&why, "token 0 is \"other\" in the draft and \"target\" in the target");
    return why;
}
