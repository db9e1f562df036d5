/* row_ops.h - the vectorised loops of one CPU instruction set, chosen when a handle is opened.
 *
 * rows_cpu.c is compiled once per instruction set and defines one table each time; all tables give
 * the same bits. Shapes: a row is (vocab) elements; chunks of ROW_CHUNK and groups of ROW_GROUP
 * cover it, the last ones shorter.
 */
#ifndef KERNELS_ROW_OPS_H
#define KERNELS_ROW_OPS_H

#include "kernels/law_body.h"
#include "kernels/trimtab.h"

struct row_ops {
    const char *isa;
    /* partials (chunks) of a row. */
    void (*partials)(const void *row, enum tt_dtype dtype, size_t vocab, float inverse_temperature,
                     struct row_partial *partials);
    /* One partial again, for x[from .. end). */
    struct row_partial (*partial)(const void *row, enum tt_dtype dtype, size_t from, size_t end,
                                  float inverse_temperature);
    /* First index in [from, end) whose value equals `value`; end when none does. */
    size_t (*find)(const void *row, enum tt_dtype dtype, size_t from, size_t end, float value);
    /* maxima (groups) of a row; returns 1 when it holds a NaN. */
    int (*group_maxima)(const void *row, enum tt_dtype dtype, size_t vocab, float *maxima);
    /* weight (ROW_CHUNK) = exp((x[from + j] - max) * inverse_temperature), 0 beyond end; sums
     * (ROW_CHUNK_GROUPS). */
    void (*weights)(const void *row, enum tt_dtype dtype, size_t from, size_t end, float max,
                    float inverse_temperature, float *weight, float *sums);
    /* The same for max(p - q, 0); tokens >= q->vocab have q = 0. */
    void (*residuals)(const struct row_law *p, const struct row_law *q, size_t from, size_t end,
                      float *weight, float *sums);
    /* masses (chunks) of max(p - q, 0). */
    void (*residual_masses)(const struct row_law *p, const struct row_law *q, float *masses);
    /* Sum over the row of exp((x - max) * inverse_temperature) in double precision. */
    double (*mass)(const float *row, size_t vocab, float max, float inverse_temperature);
    /* Remove (-inf) every token below `value`, and those equal to it with an index above `last`. */
    void (*keep_from)(float *row, size_t vocab, float value, size_t last);
    /* Noise of the coupled race, one group of ROW_GROUP tokens: arrival times (ROW_GROUP), each
     * exponential of rate 1, given the group's first arrival and its place. */
    void (*arrivals)(uint64_t key, uint64_t token_index, uint32_t group, float first,
                     uint32_t place, float *arrival);
    /* first (groups) and place (groups): the earliest arrival in each group and which token has it.
     */
    void (*first_arrivals)(uint64_t key, uint64_t token_index, size_t groups, float *first,
                           uint32_t *place);
};

extern const struct row_ops row_ops_baseline;
#ifdef ROW_OPS_X86
extern const struct row_ops row_ops_avx2;
extern const struct row_ops row_ops_avx512;
#endif

static inline size_t row_chunks(size_t vocab)
{
    return (vocab + ROW_CHUNK - 1) / ROW_CHUNK;
}
static inline size_t row_groups(size_t vocab)
{
    return (vocab + ROW_GROUP - 1) / ROW_GROUP;
}

#endif
