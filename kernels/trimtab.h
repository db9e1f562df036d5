/* trimtab.h - the C interface of libtrimtab: statistics of logits rows, sampling, transforms,
 * verification of speculative drafts, the online acceptance estimator, and the allocation of a
 * verification budget.
 *
 * Conventions
 *   Every function that can fail returns 0 (TT_OK) or a negative enum tt_status; nothing exits or
 *   prints. Shapes are (rows, vocab); vocab is contiguous, rows are `stride` elements apart.
 *   The caller owns every array it passes; the library owns its workspace, sized at open: no call
 *   after an open allocates. A handle serves one thread at a time; distinct ones are independent.
 *   T = 0 (greedy) counts as temperature 1 wherever a law is needed (feature, statistics).
 *   Positions are 0-based places inside a draft block. Token ids are int32; -1 is padding, never
 *   read as an id.
 *
 * Sources: vLLM pull requests 52228 and 47808; speculative sampling, arXiv 2211.17192 and
 * 2302.01318; coupled (drafter-invariant) sampling, arXiv 2408.07978; Philox, Salmon et al., SC
 * 2011.
 */
#ifndef TRIMTAB_H
#define TRIMTAB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__) && __GNUC__ >= 4
#pragma GCC visibility push(default)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* C++: a function may be named like its struct */
#endif

#define TT_MAX_POSITIONS 32 /* most draft positions an estimator or a draft block may have */
#define TT_CALIBRATION_BINS 10

enum tt_status {
    TT_OK = 0,
    TT_EINVAL = -1,  /* an argument is outside its documented range */
    TT_ENOMEM = -2,  /* allocation failed (open and new only) */
    TT_ENOTSUP = -3, /* the backend, ISA or type is not in this build or on this machine */
    TT_ELIMIT = -4,  /* larger than what the handle was opened for */
    TT_EDEVICE = -5, /* the device failed: the handle can only be closed */
};

const char *tt_strerror(int status);
const char *tt_version(void);

/* ------------------------------------------------------------------------------------ handle */

typedef struct tt tt;

struct tt_options {
    /* "cpu", "cuda" (device 0), "cuda:N", "auto"; NULL = auto: cuda where there is a device and no
     * isa is named, else cpu */
    const char *backend;
    const char *isa; /* CPU: "baseline", "avx2", "avx512"; NULL = the best of this machine */
    size_t vocab;    /* largest vocabulary of any row passed later, >= 1 */
    size_t max_rows; /* most rows of one call, >= 1 */
};

/* Open a handle with its workspace. *out is NULL on failure: TT_EINVAL for an unknown name or an
 * empty size, TT_ENOTSUP for a backend or ISA that this build or machine lacks, TT_ELIMIT for sizes
 * whose workspace overflows, TT_ENOMEM, TT_EDEVICE; tt_message(NULL) then says why. Every ISA and a
 * CUDA device give the same bits. With backend "cuda" logits may lie in host or in device memory,
 * everything else is the host's, and calls wait for their result; calls that wait for nothing are
 * in trimtab_cuda.h. */
int tt_open(tt **out, const struct tt_options *options);
void tt_close(tt *handle); /* NULL-safe */
/* The last error of this handle in words; valid until the next call on it. NULL: of this thread's
 * last tt_open. Never NULL. */
const char *tt_message(const tt *handle);
const char *tt_isa(const tt *handle); /* "baseline", "avx2", "avx512" or "cuda:sm_90" */

/* ---------------------------------------------------------------------------- row statistics */

enum tt_dtype { TT_F32 = 0, TT_F16 = 1, TT_BF16 = 2 };

struct tt_rows {
    const void *data;
    enum tt_dtype dtype;
    size_t rows, vocab, stride; /* stride in elements, >= vocab */
};

enum {
    TT_ROW_FLAGGED = 1,  /* the row holds a NaN or +inf, or no finite value */
    TT_DRAFT_FLAGGED = 2 /* verdicts only: a reached draft row was flagged, see tt_verdict */
};

struct tt_row_stats {
    int32_t argmax; /* mode: smallest index among equal maxima; -1 when flagged */
    float max;      /* logit of the mode, before the temperature */
    float rest;     /* sum over all but the mode of exp((l - max) / T) */
    float log_odds; /* -log(rest), not clamped; +inf for one-hot rows, NaN when flagged */
    float log_norm; /* log of the sum of exp(l / T) over the row = max / T + log1p(rest) */
    uint32_t flags;
};

/* One read of each row. inverse_temperature is (rows) or NULL for 1; each entry > 0 and finite.
 * Algorithm: loser accumulation (the mode never enters the sum; nothing is subtracted). A term
 * below 2^-125 of its row's mode counts as 0. The handle remembers where the mass of these rows
 * lies, until the next call of this function: a tt_sample from one of them, unchanged and with the
 * statistics given here, reads 4096 of its elements. */
int tt_row_statistics(tt *handle, const struct tt_rows *rows, const float *inverse_temperature,
                      struct tt_row_stats *out);

/* The estimator's feature: log-odds of the mode, clamped to +-clamp; NaN for a flagged row. */
float tt_feature(const struct tt_row_stats *stats, float clamp);

/* ---------------------------------------------------------------------------- random streams */

/* Philox4x32-10; key = stream key; counter = (token index, position, purpose, block). Purposes
 * never share bits. */
enum tt_purpose {
    TT_DRAFT = 0,
    TT_ACCEPT = 1,
    TT_RESIDUAL = 2,
    TT_BONUS = 3,
    TT_EXPLORE = 4,
    TT_GUMBEL = 5
};

/* Key of a request's stream from its seed, choice index (`n`) and prompt index. */
uint64_t tt_stream_key(uint64_t seed, uint32_t choice, uint32_t prompt);

/* A uniform in (0, 1) with 53 random bits. */
double tt_uniform(uint64_t key, uint64_t token_index, uint32_t position, enum tt_purpose purpose);

/* ------------------------------------------------------------------- sampling and transforms */

struct tt_logit_bias {
    int32_t token;
    float bias;
};
struct tt_token_count {
    int32_t token;
    int32_t count;
};

/* What a client asked for. Order, as documented to clients: logit bias, penalties, temperature,
 * top-k, top-p, min-p. Each filter works on what the one before it has left, renormalised. Neutral
 * values switch a stage off: top_k <= 0, top_p >= 1 (0 keeps the mode alone!), min_p <= 0, presence
 * and frequency penalty 0, repetition penalty 1 or 0. Penalties of a token that was generated n > 0
 * times: a positive logit is divided by the repetition penalty, another one multiplied; then n *
 * frequency_penalty + presence_penalty is subtracted. */
struct tt_transform {
    float temperature; /* 0 = greedy: top-k, top-p, min-p are skipped (they keep the mode) */
    int32_t top_k;
    float top_p;
    float min_p;
    float presence_penalty, frequency_penalty, repetition_penalty;
    const struct tt_logit_bias *bias; /* (bias_count) */
    size_t bias_count;
    const struct tt_token_count *counts; /* (counts_count) generated so far; each token once */
    size_t counts_count;
};

/* Apply every stage to one fp32 row in place; removed tokens become -inf; the row stays unscaled
 * (divide by T later). `extra` (extra_count) are further generated tokens that count for penalties
 * (drafts accepted earlier in the block). Exact and deterministic; equal values at a top-k or top-p
 * border are kept by smallest index first. A flagged row gets bias and penalties only. TT_EINVAL
 * for a number or an id out of range: the row is then unchanged. */
int tt_transform_row(tt *handle, float *row, size_t vocab, const struct tt_transform *transform,
                     const int32_t *extra, size_t extra_count);

/* Draw one token from softmax(row / T); never one of probability 0. stats are the row's own at that
 * temperature. TT_EINVAL for a flagged row, or statistics of another: *token is then unchanged. */
int tt_sample(tt *handle, const struct tt_rows *row, float inverse_temperature,
              const struct tt_row_stats *stats, uint64_t key, uint64_t token_index,
              uint32_t position, enum tt_purpose purpose, int32_t *token);

/* argmax over tokens of row / T + Gumbel(key, token_index, token): a draw from softmax(row / T)
 * that two parties with the same key agree on often (arXiv 2408.07978), whatever their
 * vocabularies. Smallest index wins ties. TT_EINVAL for a flagged row: *token is then unchanged. */
int tt_sample_coupled(tt *handle, const struct tt_rows *row, float inverse_temperature,
                      uint64_t key, uint64_t token_index, int32_t *token);

/* ------------------------------------------------------------------------------ verification */

enum tt_rule { TT_GREEDY = 0, TT_POINT_MASS = 1, TT_RATIO = 2, TT_COUPLED = 3 };

struct tt_block {
    enum tt_rule rule;
    /* (admitted + 1, vocab) target logits; transformed in place, row by row, as they are reached */
    float *target;
    size_t target_stride; /* elements */
    size_t vocab;         /* the target's */
    /* TT_RATIO only: (admitted, draft_vocab) logits the tokens were drawn from, after their
     * transform; q = 0 for token >= draft_vocab */
    const float *draft;
    size_t draft_stride, draft_vocab;
    const int32_t *tokens; /* (admitted) draft tokens; a -1 is padding and ends the block there */
    int32_t admitted;      /* >= 0; 0 is plain decoding */
    float temperature;     /* 0 with TT_GREEDY, > 0 otherwise */
    const struct tt_transform *transform; /* NULL = none; its temperature equals `temperature` */
    uint64_t key;                         /* the request's stream */
    uint64_t token_index; /* index in the request's output of the token at position 0 */
    /* TT_RATIO only: (admitted) statistics of the draft rows at `temperature`; NULL = computed */
    const struct tt_row_stats *draft_stats;
};

struct tt_verdict {
    int32_t accepted; /* 0 .. admitted */
    int32_t next;     /* bonus or recovered token; -1 when the deciding row was flagged */
    /* TT_ROW_FLAGGED: a reached row was flagged; `accepted` ends before it, next = -1.
     * TT_DRAFT_FLAGGED: a reached draft row was; the block ended before it, next is valid. */
    uint32_t flags;
    int32_t labels; /* positions that carry a label: min(accepted + 1, admitted), less flagged */
    /* (labels) labels for fitting: min(1, p/q) under TT_RATIO, else 0 or 1 */
    float soft[TT_MAX_POSITIONS];
};

/* Verify one request's block against the target. The output law equals the target's for every rule
 * (proof by enumeration in tests/kernels). Only reached rows are read; they are changed by the
 * transform alone, and keep its result. The handle's max_rows does not bound a block. TT_EINVAL,
 * TT_ELIMIT: nothing was read or changed. Source: arXiv 2211.17192 theorem 1. */
int tt_verify(tt *handle, const struct tt_block *block, struct tt_verdict *out);

/* --------------------------------------------------------------------------------- estimator */

typedef struct tt_estimator tt_estimator;
enum tt_estimator_kind { TT_ONLINE = 0, TT_PARITY = 1 };

struct tt_estimator_options {
    enum tt_estimator_kind kind;
    int32_t positions;               /* K, 1 .. TT_MAX_POSITIONS */
    int32_t refit_interval_steps;    /* 0 = the kind's own: 20 (online), 100 (parity) */
    double prior_slope, prior_level; /* NaN = the defaults 0.55 and -0.4 */
};

/* What one request's step revealed. Positions 0 .. min(accepted, admitted - 1) carry labels. A
 * block that ended for another reason than a rejection (a stop token, a flagged target row) is
 * given with admitted = accepted: the position where it ended is no label. */
struct tt_observation {
    /* (admitted) features as drafted; not finite = no label at that position */
    const float *feature;
    /* (labels) labels for fitting, in [0, 1], or NULL for the hard ones */
    const float *soft;
    /* (admitted) predictions made when drafted, or NULL; calibration judges them, `parity` is
     * fitted to them, `online` grades at the coefficients in force */
    const float *predicted;
    int32_t admitted, accepted;
};

/* What tt_estimator_end_step did (bits). */
enum { TT_STEP_REFIT = 1, TT_STEP_DRIFT = 2, TT_STEP_REJECTED = 4 };

/* TT_EINVAL: positions, interval or prior out of range (slope 0 .. 10, level -40 .. 40). *out is
 * NULL on failure. */
int tt_estimator_new(tt_estimator **out, const struct tt_estimator_options *options);
void tt_estimator_free(tt_estimator *estimator); /* NULL-safe */
/* Probability of acceptance given reached, (count) values for position `position` each; NaN feature
 * -> 0. */
int tt_estimator_predict(const tt_estimator *estimator, int32_t position, const float *feature,
                         size_t count, double *probability);
/* Learn from one request's step. TT_EINVAL: not 0 <= accepted <= admitted <= positions, or a soft
 * label or prediction outside [0, 1]; nothing changes then. `online` clamps features to +-16. */
int tt_estimator_observe(tt_estimator *estimator, const struct tt_observation *observation);
/* End of a step (one target forward pass), labelled or not. Returns TT_STEP_* bits >= 0, or a
 * negative status. TT_STEP_REJECTED: the window was not used (`online`), the slope step was refused
 * (`parity`). */
int tt_estimator_end_step(tt_estimator *estimator);
/* A new prior mean, e.g. the pooled fit for a stratum; in force from the next refit, at once before
 * the first label. TT_ENOTSUP for `parity`, which has no prior. */
int tt_estimator_set_prior(tt_estimator *estimator, double slope, double level);
/* First position that is starved of labels (forgotten count below 5), or -1. */
int32_t tt_estimator_starved(const tt_estimator *estimator);

struct tt_position_report {
    double intercept, intercept_se; /* at feature 0; NaN = unknown */
    /* Counts, forgotten by 0.999 a step, as every forgotten figure here. */
    double reached, accepted;
    double predicted; /* forgotten sum of predicted probabilities */
    uint64_t n;       /* labels ever */
};

struct tt_calibration_bin {
    double n, sum_p, sum_y; /* forgotten: labels, predicted probability, acceptances */
};

struct tt_estimator_report {
    enum tt_estimator_kind kind;
    int32_t positions;
    /* level at feature 0; centre: mean of labelled features */
    double slope, slope_se, level, level_se, centre;
    uint64_t steps, refits, rejected, labels, drift_events;
    uint64_t flagged; /* reached positions without a label because their feature was not finite */
    double drift_z;   /* last drift statistic, in standard units */
    double ece, brier, log_loss, auc; /* of hard outcomes; NaN until there are labels */
    struct tt_position_report position[TT_MAX_POSITIONS];
    struct tt_calibration_bin bin[TT_CALIBRATION_BINS]; /* pooled over positions */
};
int tt_estimator_report(const tt_estimator *estimator, struct tt_estimator_report *out);

/* The calibration bins of one position: probability in [b/10, (b+1)/10). */
int tt_estimator_calibration(const tt_estimator *estimator, int32_t position,
                             struct tt_calibration_bin out[TT_CALIBRATION_BINS]);

/* Write everything the estimator knows as a versioned, machine-independent blob. *needed (NULL
 * allowed) receives its size; buffer NULL asks for the size only. TT_ELIMIT when size is too small,
 * nothing written then. */
int tt_estimator_save(const tt_estimator *estimator, void *buffer, size_t size, size_t *needed);
/* A new estimator that continues exactly where the saved one stood. TT_EINVAL for a blob that is
 * damaged or of another version; *out is NULL then, and the caller starts afresh. */
int tt_estimator_load(tt_estimator **out, const void *buffer, size_t size);

/* -------------------------------------------------------------------------------- allocation */

/* Survival S_k = p_0 ... p_k of one request's block, (count) values. */
int tt_survival(const double *probability, size_t count, double *survival);

/* Admit the best `budget` of all drafts in the strict order (survival descending, position
 * ascending, row ascending). survival is (rows, positions) row-major, non-increasing along a row;
 * drafted (rows) <= positions. admitted (rows) receives each request's admitted length. Returns the
 * number admitted, or a negative status. */
int tt_allocate(const double *survival, size_t rows, size_t positions, const int32_t *drafted,
                int64_t budget, int32_t *admitted);

#if defined(__GNUC__) && __GNUC__ >= 4
#pragma GCC diagnostic pop
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
