/* lm_none.c - lm.h in a build --without-llama: no model can be opened, and the reason is said. */
#include "config.h"

#include "controller/cause.h"
#include "controller/lm.h"

struct lm *lm_open(const struct lm_options *options, char **cause)
{
    (void)options;
    cause_set(cause, "this build has no model engine (configured --without-llama): rebuild with "
                     "libllama, for example by ./bootstrap run");
    return NULL;
}

struct lm *lm_share(const struct lm *owner, const struct lm_options *options, char **cause)
{
    (void)owner;
    return lm_open(options, cause);
}

int lm_convert(const char *from, const char *to, const char *form, int threads, char **cause)
{
    (void)from, (void)to, (void)form, (void)threads;
    cause_set(cause, "this build has no model engine (configured --without-llama)");
    return -1;
}

void lm_close(struct lm *lm)
{
    (void)lm;
}
const char *lm_engine_version(void)
{
    return "none";
}
const char *lm_engine_build(void)
{
    return lm_engine_version();
}
const char *lm_name(const struct lm *lm)
{
    (void)lm;
    return "";
}
const char *lm_digest(const struct lm *lm)
{
    (void)lm;
    return "";
}
int lm_vocab(const struct lm *lm)
{
    (void)lm;
    return 0;
}
int lm_context_cells(const struct lm *lm)
{
    (void)lm;
    return 0;
}
int lm_sequence_cells(const struct lm *lm)
{
    (void)lm;
    return 0;
}
int lm_batch_limit(const struct lm *lm)
{
    (void)lm;
    return 0;
}
int lm_outputs_limit(const struct lm *lm)
{
    (void)lm;
    return 0;
}
bool lm_can_roll_back(const struct lm *lm)
{
    (void)lm;
    return false;
}
size_t lm_logits_stride(const struct lm *lm)
{
    (void)lm;
    return 0;
}

int lm_decode(struct lm *lm, const struct lm_batch *batch, char **cause)
{
    (void)lm, (void)batch;
    cause_set(cause, "no model");
    return -1;
}

float *lm_logits(struct lm *lm, int row)
{
    (void)lm, (void)row;
    return NULL;
}
const char *lm_device(const struct lm *lm)
{
    (void)lm;
    return NULL;
}
float *lm_device_logits(struct lm *lm, int row)
{
    (void)lm, (void)row;
    return NULL;
}
bool lm_trim(struct lm *lm, int sequence, int from)
{
    (void)lm, (void)sequence, (void)from;
    return false;
}

int lm_tokenize(const struct lm *lm, const char *text, size_t length, bool add_special,
                bool parse_special, int32_t **tokens)
{
    (void)lm, (void)text, (void)length, (void)add_special, (void)parse_special;
    *tokens = NULL;
    return -1;
}

int lm_piece(const struct lm *lm, int32_t token, char *bytes, size_t size)
{
    (void)lm, (void)token, (void)bytes, (void)size;
    return 0;
}

bool lm_is_end(const struct lm *lm, int32_t token)
{
    (void)lm, (void)token;
    return false;
}
int lm_end_tokens(const struct lm *lm, int32_t *tokens, int capacity)
{
    (void)lm, (void)tokens, (void)capacity;
    return 0;
}

char *lm_chat(const struct lm *lm, const struct lm_message *messages, size_t count, char **cause)
{
    (void)lm, (void)messages, (void)count;
    cause_set(cause, "no model");
    return NULL;
}

char *lm_mismatch(const struct lm *target, const struct lm *draft)
{
    (void)target, (void)draft;
    return NULL;
}
