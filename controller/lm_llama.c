/* lm_llama.c - lm.h over libllama: the one file that knows it.
 *
 * Written against the header of the pinned version (struct layouts change under one SONAME):
 * lm_open refuses another. libllama aborts the process on over-limit batches (GGML_ASSERT), so
 * every limit is checked here before a call.
 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <llama.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "controller/cause.h"
#include "controller/given.h"
#include "controller/library.h"
#include "controller/lm.h"

#define PINNED_VERSION "0.5.0"
#define EXACT_CELLS 256 /* cells a sequence up to which attention sums are bit-equal (measured) */
#define EXACT_UBATCH 63 /* at 64 rows and more another matrix kernel is chosen (measured) */
#define DEFAULT_UBATCH 512
#define DEFAULT_CELLS 8192
#define DIGEST_CHUNK 65536
#define DIGEST_CHUNKS 64

struct lm {
    struct llama_model *model;
    bool borrowed; /* the model belongs to another lm */
    struct llama_context *context;
    const struct llama_vocab *vocab;
    llama_memory_t memory;
    int vocab_size, cells, sequence_cells, batch_limit, outputs_limit, sequences;
    bool can_roll_back;
    char name[96], digest[17];
    struct { /* logits where the engine computed them; see keep_device_rows */
        const struct ggml_tensor *tensor; /* of the last decode; NULL: not on `name` */
        int passes;                       /* of the last decode; the tensor is the last one's */
        char name[16];                    /* "cuda:N", or "" */
    } device;
    /* scratch of lm_decode: libllama wants a pointer a token */
    int32_t *sequence_count;
    llama_seq_id **sequence_pointer;
};

/* The engine's first complaint since forget_complaint, which names the root of what follows;
 * guarded by complaint_lock. */
static char complaint[400];
static pthread_mutex_t complaint_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t backend_once = PTHREAD_ONCE_INIT;

static void keep_complaint(enum ggml_log_level level, const char *text, void *state)
{
    (void)state;
    if (level != GGML_LOG_LEVEL_ERROR) return;
    pthread_mutex_lock(&complaint_lock);
    if (!complaint[0]) snprintf(complaint, sizeof complaint, "%s", text);
    complaint[strcspn(complaint, "\n")] = '\0';
    pthread_mutex_unlock(&complaint_lock);
    if (getenv("TRIMTAB_ENGINE_LOG")) fputs(text, stderr);
}

static void start_backend(void)
{
    llama_log_set(keep_complaint, NULL);
    llama_backend_init();
}

static void forget_complaint(void)
{
    pthread_mutex_lock(&complaint_lock);
    complaint[0] = '\0';
    pthread_mutex_unlock(&complaint_lock);
}

static void copy_complaint(char *out, size_t size)
{
    pthread_mutex_lock(&complaint_lock);
    snprintf(out, size, "%s", complaint[0] ? complaint : "the engine gave no reason");
    pthread_mutex_unlock(&complaint_lock);
}

const char *lm_engine_version(void)
{
    static char version[48];

    if (!version[0]) snprintf(version, sizeof version, "libllama %s", llama_version());
    return version;
}

/* By the size and time of the library's file. */
const char *lm_engine_build(void)
{
    static char build[96];
    const char *path;
    struct stat file;

    if (build[0]) return build;
    snprintf(build, sizeof build, "%s", lm_engine_version());
    path = library_file((void (*)(void))llama_version);
    if (path && stat(path, &file) == 0)
        snprintf(build, sizeof build, "%s %lld@%lld", lm_engine_version(), (long long)file.st_size,
                 (long long)file.st_mtime);
    return build;
}

static bool version_fits(char **cause)
{
    const char *version = llama_version();

    if (strncmp(version, PINNED_VERSION, strlen(PINNED_VERSION)) == 0) return true;
    cause_set(cause,
              "libllama %s is loaded, but trimtab was built for %s: run ./bootstrap, or configure "
              "--with-llama=PREFIX of that version",
              version, PINNED_VERSION);
    return false;
}

/* A GGUF file starts with its magic; everything else about it is the engine's to judge. */
static bool file_is_gguf(const char *path, char **cause)
{
    char magic[4] = {0};
    FILE *file = given_open(path, "a model in GGUF", cause);

    if (!file) return false;
    if (fread(magic, 1, sizeof magic, file) != sizeof magic || memcmp(magic, "GGUF", 4) != 0) {
        fclose(file);
        cause_set(cause, "%s is not a GGUF model file; give a model in GGUF", path);
        return false;
    }
    fclose(file);
    return true;
}

/* FNV-1a over the size and evenly spaced chunks: enough to tell two weight files apart without
 * reading gigabytes. */
static bool digest_file(const char *path, char out[17])
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    unsigned char *chunk = malloc(DIGEST_CHUNK);
    FILE *file = fopen(path, "rb");
    bool done = false;
    off_t size;

    if (!chunk || !file || fseeko(file, 0, SEEK_END) != 0 || (size = ftello(file)) < 0) goto out;
    for (unsigned shift = 0; shift < 64; shift += 8)
        hash = (hash ^ (((uint64_t)size >> shift) & 0xff)) * UINT64_C(0x100000001b3);
    for (int i = 0; i < DIGEST_CHUNKS; i++) {
        off_t at = size > DIGEST_CHUNK ? (size - DIGEST_CHUNK) / (DIGEST_CHUNKS - 1) * i : 0;
        size_t length;

        if (fseeko(file, at, SEEK_SET) != 0) goto out;
        length = fread(chunk, 1, DIGEST_CHUNK, file);
        for (size_t j = 0; j < length; j++) hash = (hash ^ chunk[j]) * UINT64_C(0x100000001b3);
        if (size <= DIGEST_CHUNK) break;
    }
    snprintf(out, 17, "%016" PRIx64, hash);
    done = true;
out:
    free(chunk);
    if (file) fclose(file);
    return done;
}

struct progress {
    void (*report)(float done, void *state);
    void *state;
};

static bool forward_progress(float done, void *state)
{
    const struct progress *progress = state;

    progress->report(done, progress->state);
    return true;
}

static int default_threads(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);

    return processors > 0 ? (int)processors : 1;
}

static bool load_model(struct lm *lm, const struct lm_options *options, char **cause)
{
    struct llama_model_params params = llama_model_default_params();
    struct progress progress = {options->progress, options->progress_state};
    char why[sizeof complaint];

    if (options->device && strcmp(options->device, "cpu") == 0) params.n_gpu_layers = 0;
    if (options->device && strncmp(options->device, "cuda:", 5) == 0) {
        if (!llama_supports_gpu_offload()) {
            cause_set(cause, "--device %s: this libllama was built without CUDA", options->device);
            return false;
        }
        params.main_gpu = atoi(options->device + 5);
        params.split_mode = LLAMA_SPLIT_MODE_NONE;
    }
    if (options->progress) {
        params.progress_callback = forward_progress;
        params.progress_callback_user_data = &progress;
    }
    forget_complaint();
    lm->model = llama_model_load_from_file(options->path, params);
    if (!lm->model) {
        copy_complaint(why, sizeof why);
        cause_set(cause, "cannot load the model %s (truncated, damaged or of an unknown kind): %s",
                  options->path, why);
        return false;
    }
    lm->vocab = llama_model_get_vocab(lm->model);
    lm->vocab_size = llama_vocab_n_tokens(lm->vocab);
    if (llama_model_has_encoder(lm->model) || !llama_model_has_decoder(lm->model) ||
        llama_model_is_diffusion(lm->model) || lm->vocab_size < 1) {
        cause_set(cause, "%s is not a decoder-only text model", options->path);
        return false;
    }
    return true;
}

/* The kernels' name of the CUDA device on which the logits lie; false when they lie elsewhere. */
static bool name_device(const struct lm *lm, const struct ggml_tensor *logits, char name[16])
{
    ggml_backend_dev_t device;
    int ordinal;

    if (!logits->buffer || ggml_backend_buffer_is_host(logits->buffer)) return false;
    if (logits->type != GGML_TYPE_F32 || logits->ne[0] != lm->vocab_size ||
        !ggml_is_contiguous(logits))
        return false;
    device = ggml_backend_buft_get_device(ggml_backend_buffer_get_type(logits->buffer));
    if (!device || sscanf(ggml_backend_dev_name(device), "CUDA%d", &ordinal) != 1) return false;
    snprintf(name, 16, "cuda:%d", ordinal);
    return true;
}

/* The engine's callback: asked before a tensor of a pass is computed whether it is of interest;
 * for the logits alone called again when they are. */
static bool keep_device_rows(struct ggml_tensor *tensor, bool ask, void *state)
{
    struct lm *lm = state;
    char name[sizeof lm->device.name];

    if (ask) return strcmp(ggml_get_name(tensor), "result_output") == 0;
    lm->device.passes++;
    lm->device.tensor = NULL;
    if (name_device(lm, tensor, name) &&
        (!lm->device.name[0] || strcmp(name, lm->device.name) == 0))
        lm->device.tensor = tensor;
    return true;
}

static bool make_context(struct lm *lm, const struct lm_options *options, char **cause)
{
    struct llama_context_params params = llama_context_default_params();
    int trained = llama_model_n_ctx_train(lm->model);
    int cells = options->context;
    char why[sizeof complaint];

    if (options->exact) {
        cells = options->parallel * EXACT_CELLS;
        params.kv_unified = false;
        params.n_ubatch = EXACT_UBATCH;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    } else {
        if (cells == 0) {
            cells = trained * options->parallel;
            if (cells > DEFAULT_CELLS) cells = DEFAULT_CELLS;
        }
        params.kv_unified = true; /* otherwise a ragged batch is cut into several forward passes */
        params.n_ubatch =
            options->batch < DEFAULT_UBATCH ? (uint32_t)options->batch : DEFAULT_UBATCH;
    }
    params.n_ctx = (uint32_t)cells;
    params.n_batch = (uint32_t)options->batch;
    params.n_seq_max = (uint32_t)options->parallel;
    params.n_outputs_max = (uint32_t)options->outputs;
    params.n_threads = options->threads > 0 ? options->threads : default_threads();
    params.n_threads_batch = params.n_threads;
    params.swa_full = true; /* a sliding window that was overwritten cannot be rolled back */
    params.no_perf = true;
    if (llama_supports_gpu_offload() && !options->exact &&
        !(options->device && strcmp(options->device, "cpu") == 0)) {
        params.cb_eval = keep_device_rows;
        params.cb_eval_user_data = lm;
    }
    forget_complaint();
    lm->context = llama_init_from_model(lm->model, params);
    if (!lm->context) {
        copy_complaint(why, sizeof why);
        cause_set(cause, "cannot make a context of %d cells for %s: %s", cells, options->path, why);
        return false;
    }
    lm->memory = llama_get_memory(lm->context);
    lm->cells = (int)llama_n_ctx(lm->context);
    lm->sequence_cells = (int)llama_n_ctx_seq(lm->context);
    if (lm->sequence_cells > trained) lm->sequence_cells = trained;
    if (options->exact && lm->sequence_cells > EXACT_CELLS) lm->sequence_cells = EXACT_CELLS;
    lm->batch_limit = (int)llama_n_batch(lm->context);
    if (lm->batch_limit > options->batch) lm->batch_limit = options->batch;
    lm->outputs_limit = options->outputs;
    lm->sequences = options->parallel;
    return true;
}

/* Recurrent and hybrid memories refuse to forget a part of a sequence: find out by trying. */
static bool try_roll_back(struct lm *lm)
{
    struct lm_batch *batch = lm_batch_new(2);
    int32_t token = llama_vocab_bos(lm->vocab);
    bool can = false;

    if (!batch) return false;
    if (token < 0) token = 0;
    lm_batch_add(batch, token, 0, 0, false);
    lm_batch_add(batch, token, 1, 0, true);
    if (!llama_model_is_recurrent(lm->model) && !llama_model_is_hybrid(lm->model) &&
        lm_decode(lm, batch, NULL) == 0)
        can = lm_trim(lm, 0, 1);
    lm_trim(lm, 0, 0);
    lm_batch_free(batch);
    return can;
}

/* After the decode of try_roll_back: where its logits lie, if they are what the engine copied to
 * the host. */
static void find_device(struct lm *lm)
{
    const struct ggml_tensor *tensor = lm->device.tensor;
    size_t size = (size_t)lm->vocab_size * sizeof(float);
    const float *host;
    float *copy;

    if (!tensor || lm->device.passes != 1 || !(host = llama_get_logits(lm->context))) return;
    copy = malloc(size);
    if (!copy) return;
    ggml_backend_tensor_get(tensor, copy, 0, size);
    if (memcmp(copy, host, size) == 0) name_device(lm, tensor, lm->device.name);
    free(copy);
}

/* The file's name tells forms of one model apart; general.name often tells of its training. */
static void name_model(struct lm *lm, const char *path)
{
    const char *base = strrchr(path, '/');
    size_t length;

    snprintf(lm->name, sizeof lm->name, "%s", base ? base + 1 : path);
    length = strlen(lm->name);
    if (length > 5 && strcmp(lm->name + length - 5, ".gguf") == 0) lm->name[length - 5] = '\0';
}

static bool parallel_fits(const struct lm_options *options, char **cause)
{
    if (options->parallel >= 1 && (size_t)options->parallel <= llama_max_parallel_sequences())
        return true;
    cause_set(cause, "--parallel %d: libllama takes 1 to %zu sequences", options->parallel,
              llama_max_parallel_sequences());
    return false;
}

/* What a model needs to decode: context, scratch, and what can be found out only by decoding. */
static bool prepare_to_decode(struct lm *lm, const struct lm_options *options, char **cause)
{
    if (!make_context(lm, options, cause)) return false;
    lm->sequence_count = calloc((size_t)options->batch, sizeof *lm->sequence_count);
    lm->sequence_pointer = calloc((size_t)options->batch, sizeof *lm->sequence_pointer);
    if (!lm->sequence_count || !lm->sequence_pointer) return false;
    for (int i = 0; i < options->batch; i++) lm->sequence_count[i] = 1;
    lm->can_roll_back = try_roll_back(lm);
    find_device(lm);
    return true;
}

static struct lm *fail_to_open(struct lm *lm, const struct lm_options *options, char **cause)
{
    if (cause && !*cause) cause_set(cause, "out of memory while loading %s", options->path);
    lm_close(lm);
    return NULL;
}

struct lm *lm_open(const struct lm_options *options, char **cause)
{
    struct lm *lm;

    if (!version_fits(cause) || !file_is_gguf(options->path, cause) ||
        !parallel_fits(options, cause))
        return NULL;
    pthread_once(&backend_once, start_backend);
    lm = calloc(1, sizeof *lm);
    if (!lm || !load_model(lm, options, cause) || !digest_file(options->path, lm->digest) ||
        !prepare_to_decode(lm, options, cause))
        return fail_to_open(lm, options, cause);
    name_model(lm, options->path);
    return lm;
}

struct lm *lm_share(const struct lm *owner, const struct lm_options *options, char **cause)
{
    struct lm *lm;

    if (!parallel_fits(options, cause)) return NULL;
    lm = calloc(1, sizeof *lm);
    if (!lm) return fail_to_open(NULL, options, cause);
    lm->model = owner->model;
    lm->borrowed = true;
    lm->vocab = owner->vocab;
    lm->vocab_size = owner->vocab_size;
    memcpy(lm->name, owner->name, sizeof lm->name);
    memcpy(lm->digest, owner->digest, sizeof lm->digest);
    return prepare_to_decode(lm, options, cause) ? lm : fail_to_open(lm, options, cause);
}

void lm_close(struct lm *lm)
{
    if (!lm) return;
    if (lm->context) llama_free(lm->context);
    if (lm->model && !lm->borrowed) llama_model_free(lm->model);
    free(lm->sequence_count);
    free(lm->sequence_pointer);
    free(lm);
}

static const struct form {
    const char *name;
    enum llama_ftype type;
} forms[] = {{"BF16", LLAMA_FTYPE_MOSTLY_BF16},
             {"F16", LLAMA_FTYPE_MOSTLY_F16},
             {"Q8_0", LLAMA_FTYPE_MOSTLY_Q8_0},
             {"Q4_0", LLAMA_FTYPE_MOSTLY_Q4_0}};

int lm_convert(const char *from, const char *to, const char *form, int threads, char **cause)
{
    struct llama_model_quantize_params params = llama_model_quantize_default_params();
    size_t i = 0;
    char why[sizeof complaint];

    while (i < sizeof forms / sizeof forms[0] && strcasecmp(form, forms[i].name) != 0) i++;
    if (i == sizeof forms / sizeof forms[0]) {
        cause_set(cause, "unknown form %s: it is one of BF16, F16, Q8_0, Q4_0", form);
        return -1;
    }
    if (!version_fits(cause) || !file_is_gguf(from, cause)) return -1;
    pthread_once(&backend_once, start_backend);
    params.ftype = forms[i].type;
    params.allow_requantize = true;
    params.nthread = threads;
    forget_complaint();
    if (llama_model_quantize(from, to, &params) != 0) {
        copy_complaint(why, sizeof why);
        unlink(to);
        cause_set(cause, "cannot write %s as %s: %s", to, form, why);
        return -1;
    }
    return 0;
}

const char *lm_name(const struct lm *lm)
{
    return lm->name;
}
const char *lm_digest(const struct lm *lm)
{
    return lm->digest;
}
int lm_vocab(const struct lm *lm)
{
    return lm->vocab_size;
}
int lm_context_cells(const struct lm *lm)
{
    return lm->cells;
}
int lm_sequence_cells(const struct lm *lm)
{
    return lm->sequence_cells;
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
    return lm->can_roll_back;
}
size_t lm_logits_stride(const struct lm *lm)
{
    return (size_t)lm->vocab_size;
}

static bool batch_fits(const struct lm *lm, const struct lm_batch *batch, char **cause)
{
    int outputs = 0;

    if (batch->count < 1 || batch->count > lm->batch_limit) {
        cause_set(cause, "a batch of %d tokens where the engine takes 1 to %d", batch->count,
                  lm->batch_limit);
        return false;
    }
    for (int i = 0; i < batch->count; i++) {
        outputs += batch->want[i] != 0;
        if (batch->token[i] < 0 || batch->token[i] >= lm->vocab_size || batch->position[i] < 0 ||
            batch->sequence[i] < 0 || batch->sequence[i] >= lm->sequences) {
            cause_set(cause, "row %d of a batch has token %d, position %d, sequence %d", i,
                      batch->token[i], batch->position[i], batch->sequence[i]);
            return false;
        }
    }
    if (outputs > lm->outputs_limit) {
        cause_set(cause, "a batch of %d logits rows where the engine gives at most %d", outputs,
                  lm->outputs_limit);
        return false;
    }
    return true;
}

int lm_decode(struct lm *lm, const struct lm_batch *batch, char **cause)
{
    struct llama_batch view = {
        .n_tokens = batch->count,
        .token = batch->token,
        .pos = batch->position,
        .n_seq_id = lm->sequence_count,
        .seq_id = lm->sequence_pointer,
        .logits = (int8_t *)batch->want,
    };
    char why[sizeof complaint];
    int status;

    if (!batch_fits(lm, batch, cause)) return -1;
    for (int i = 0; i < batch->count; i++) lm->sequence_pointer[i] = &batch->sequence[i];
    forget_complaint();
    lm->device.tensor = NULL;
    lm->device.passes = 0;
    status = llama_decode(lm->context, view);
    if (status == 0) llama_synchronize(lm->context);
    if (status == 0) return 0;
    copy_complaint(why, sizeof why);
    cause_set(cause,
              status == 1 ? "the engine found no room for %d tokens in its KV cache (%s)"
                          : "the engine failed on a batch of %d tokens: %s",
              batch->count, why);
    return -1;
}

float *lm_logits(struct lm *lm, int row)
{
    return llama_get_logits_ith(lm->context, row);
}

const char *lm_device(const struct lm *lm)
{
    return lm->device.name[0] ? lm->device.name : NULL;
}

/* One pass keeps the order of rows in a batch that lists the tokens of a sequence together, as the
 * loop's do; the rows of several passes were overwritten. */
float *lm_device_logits(struct lm *lm, int row)
{
    const struct ggml_tensor *tensor = lm->device.tensor;
    const float *host;

    if (!lm->device.name[0] || !tensor || lm->device.passes != 1) return NULL;
    host = llama_get_logits_ith(lm->context, row);
    if (!host) return NULL;
    return (float *)tensor->data + (host - llama_get_logits(lm->context));
}

bool lm_trim(struct lm *lm, int sequence, int from)
{
    return llama_memory_seq_rm(lm->memory, sequence, from, -1);
}

int lm_tokenize(const struct lm *lm, const char *text, size_t length, bool add_special,
                bool parse_special, int32_t **tokens)
{
    int capacity;
    int count;

    *tokens = NULL;
    if (length > INT32_MAX / 2) return -1;
    capacity = (int)length + 8;
    *tokens = malloc((size_t)capacity * sizeof **tokens);
    if (!*tokens) return -1;
    count = llama_tokenize(lm->vocab, text, (int32_t)length, *tokens, capacity, add_special,
                           parse_special);
    if (count < 0 && count != INT32_MIN) {
        int32_t *larger = realloc(*tokens, (size_t)-count * sizeof **tokens);

        if (larger) {
            *tokens = larger;
            count = llama_tokenize(lm->vocab, text, (int32_t)length, *tokens, -count, add_special,
                                   parse_special);
        }
    }
    if (count < 0) {
        free(*tokens);
        *tokens = NULL;
        return -1;
    }
    return count;
}

int lm_piece(const struct lm *lm, int32_t token, char *bytes, size_t size)
{
    int length;

    if (token < 0 || token >= lm->vocab_size) return 0;
    length = llama_token_to_piece(lm->vocab, token, bytes, (int32_t)size, 0, false);
    return length > 0 ? length : 0;
}

bool lm_is_end(const struct lm *lm, int32_t token)
{
    return token >= 0 && token < lm->vocab_size && llama_vocab_is_eog(lm->vocab, token);
}

int lm_end_tokens(const struct lm *lm, int32_t *tokens, int capacity)
{
    int count = 0;

    for (int32_t token = 0; token < lm->vocab_size; token++) {
        if (!llama_vocab_is_eog(lm->vocab, token)) continue;
        if (count < capacity) tokens[count] = token;
        count++;
    }
    return count;
}

char *lm_chat(const struct lm *lm, const struct lm_message *messages, size_t count, char **cause)
{
    const char *template = llama_model_chat_template(lm->model, NULL);
    struct llama_chat_message *chat = calloc(count ? count : 1, sizeof *chat);
    size_t size = 256;
    char *text = NULL;
    int length;

    if (!chat) goto memory;
    if (!template) {
        cause_set(cause, "the model %s carries no chat template: use /v1/completions", lm->name);
        goto out;
    }
    for (size_t i = 0; i < count; i++) {
        chat[i] = (struct llama_chat_message){messages[i].role, messages[i].content};
        size += 2 * (strlen(messages[i].role) + strlen(messages[i].content)) + 64;
    }
    if (size > INT32_MAX) size = INT32_MAX;
    text = malloc(size + 1);
    if (!text) goto memory;
    length = llama_chat_apply_template(template, chat, count, true, text, (int32_t)size);
    if (length > (int)size) {
        char *larger = realloc(text, (size_t)length + 1);

        if (!larger) goto memory;
        text = larger;
        length = llama_chat_apply_template(template, chat, count, true, text, length);
    }
    if (length < 0) {
        cause_set(cause,
                  "libllama does not know the chat template of %s (it starts \"%.60s\"): use "
                  "/v1/completions",
                  lm->name, template);
        free(text);
        text = NULL;
        goto out;
    }
    text[length] = '\0';
    goto out;
memory:
    free(text);
    text = NULL;
    cause_set(cause, "out of memory");
out:
    free(chat);
    return text;
}

char *lm_mismatch(const struct lm *target, const struct lm *draft)
{
    const struct llama_vocab *a = target->vocab, *b = draft->vocab;
    int shared = target->vocab_size < draft->vocab_size ? target->vocab_size : draft->vocab_size;
    char *why = NULL;

    if (llama_vocab_type(a) != llama_vocab_type(b)) {
        cause_set(&why, "the draft's tokenizer is of another type (%d) than the target's (%d)",
                  (int)llama_vocab_type(b), (int)llama_vocab_type(a));
        return why;
    }
    if (abs(target->vocab_size - draft->vocab_size) > 128) {
        cause_set(&why, "the draft's vocabulary has %d tokens, the target's %d", draft->vocab_size,
                  target->vocab_size);
        return why;
    }
    if (llama_vocab_bos(a) != llama_vocab_bos(b) || llama_vocab_eos(a) != llama_vocab_eos(b) ||
        llama_vocab_get_add_bos(a) != llama_vocab_get_add_bos(b)) {
        cause_set(
            &why,
            "the special tokens differ: begin %d and end %d in the draft, %d and %d in the target",
            llama_vocab_bos(b), llama_vocab_eos(b), llama_vocab_bos(a), llama_vocab_eos(a));
        return why;
    }
    for (int32_t token = 0; token < shared; token++) {
        const char *x = llama_vocab_get_text(a, token), *y = llama_vocab_get_text(b, token);

        if (strcmp(x, y) == 0) continue;
        cause_set(&why, "token %d is \"%.40s\" in the draft and \"%.40s\" in the target", token, y,
                  x);
        return why;
    }
    return NULL;
}
