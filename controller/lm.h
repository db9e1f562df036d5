/* lm.h - one language model with a decoding context: what the loop needs of a model engine, and no
 * more.
 *
 * Exactly one implementation is linked: lm_llama.c (libllama, the only file that includes llama.h),
 * lm_none.c in a build --without-llama (lm_open says so), or tests/support/lm_synthetic.c, a small
 * closed-form model whose logits are bit-equal in every batch shape.
 *
 * A context is used by one thread at a time, and no two contexts may decode at once (spinning
 * OpenMP threads).
 */
#ifndef CONTROLLER_LM_H
#define CONTROLLER_LM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lm; /* a model and a context */

struct lm_options {
    const char *path;   /* GGUF file */
    const char *device; /* "auto", "cpu", "cuda:N" */
    int parallel;       /* sequences, 1 .. 256 */
    int context; /* KV cells in all (unified), or a sequence (exact); 0 = from the model, bounded */
    int batch;   /* most tokens of one lm_decode */
    int outputs; /* most rows with logits of one lm_decode */
    int threads; /* 0 = one a physical core */
    bool exact;  /* bit-equal logits in every batch shape (nodes page): non-unified KV, small ubatch
                  */
    void (*progress)(float done, void *state); /* loading, 0..1; may be NULL */
    void *progress_state;
};

struct lm_batch {
    int count, capacity;
    int32_t *token, *position, *sequence; /* (capacity) */
    uint8_t *want;                        /* (capacity) 1 = logits of this token are wanted */
};

/* Load the model and make its context. On failure returns NULL and *cause (malloc'd) says what is
 * wrong and what to do. */
struct lm *lm_open(const struct lm_options *options, char **cause);
/* Another context over the model of `owner`, which outlives it and whose weights are not loaded
 * twice. As lm_open; the path is only named in errors. */
struct lm *lm_share(const struct lm *owner, const struct lm_options *options, char **cause);
void lm_close(struct lm *lm); /* NULL-safe */
/* Rewrite a model file in another form ("BF16", "Q8_0", "Q4_0", "F16"). 0, or -1 with *cause;
 * nothing is left at `to`. */
int lm_convert(const char *from, const char *to, const char *form, int threads, char **cause);
/* Engine name and version, e.g. "libllama 0.5.0"; works without a model. */
const char *lm_engine_version(void);
/* The same and which build of it this is: what a measured cost depends on. Two builds of a version
 * differ, the same one is the same again. */
const char *lm_engine_build(void);

const char *lm_name(const struct lm *lm); /* the file's base name, less ".gguf" */
const char *
lm_digest(const struct lm *lm); /* identifies the weights: hex, for the cost cache and the store */
int lm_vocab(const struct lm *lm);
int lm_context_cells(const struct lm *lm);  /* KV cells in all */
int lm_sequence_cells(const struct lm *lm); /* most tokens one sequence may hold */
int lm_batch_limit(const struct lm *lm);
int lm_outputs_limit(const struct lm *lm);
bool lm_can_roll_back(const struct lm *lm); /* false: recurrent or hybrid memory, no speculation */
size_t lm_logits_stride(const struct lm *lm); /* floats between consecutive wanted rows */

struct lm_batch *lm_batch_new(int capacity); /* NULL when out of memory */
void lm_batch_free(struct lm_batch *batch);
static inline void lm_batch_clear(struct lm_batch *batch)
{
    batch->count = 0;
}
/* Append one token; returns its row, or -1 when the batch is full. */
int lm_batch_add(struct lm_batch *batch, int32_t token, int32_t position, int32_t sequence,
                 bool want);

/* One forward pass. 0 on success; on failure a negative value, *cause (malloc'd), memory as before
 * the call where the engine can promise it. Checks every engine limit first: no input reaches an
 * abort of the engine. */
int lm_decode(struct lm *lm, const struct lm_batch *batch, char **cause);
/* Logits (vocab) of row `row` of the last decode, writable, valid until the next decode; NULL if it
 * was not wanted. */
float *lm_logits(struct lm *lm, int row);
/* The device on which the engine leaves logits too, as tt_open names it ("cuda:0"); NULL: none. Its
 * rows can be read and changed by kernels that were opened there. */
const char *lm_device(const struct lm *lm);
/* The same row as lm_logits gives, with the same stride, where it lies on lm_device; valid and
 * writable until the next decode, and NULL when it is in host memory alone. */
float *lm_device_logits(struct lm *lm, int row);
/* Forget positions >= from of a sequence (from 0: all of it). */
bool lm_trim(struct lm *lm, int sequence, int from);

/* Text. Thread-safe. */
/* Token ids of text; *tokens is malloc'd. Returns the count, or -1 (out of memory or invalid). */
int lm_tokenize(const struct lm *lm, const char *text, size_t length, bool add_special,
                bool parse_special, int32_t **tokens);
/* Bytes of one token (not terminated, may split a UTF-8 character); returns the length, at most
 * size, 0 for control tokens. */
int lm_piece(const struct lm *lm, int32_t token, char *bytes, size_t size);
bool lm_is_end(const struct lm *lm, int32_t token); /* an end-of-generation token */
/* All end-of-generation tokens, ascending; fills at most capacity, returns how many there are. */
int lm_end_tokens(const struct lm *lm, int32_t *tokens, int capacity);
/* The model's own chat template applied; malloc'd text, or NULL with *cause naming the unknown
 * template. */
struct lm_message {
    const char *role, *content;
};
char *lm_chat(const struct lm *lm, const struct lm_message *messages, size_t count, char **cause);
/* First difference that forbids `draft` to draft for `target` (vocabulary type, special ids, sizes,
 * a token's text), as a malloc'd sentence; NULL when they fit. */
char *lm_mismatch(const struct lm *target, const struct lm *draft);

#endif
