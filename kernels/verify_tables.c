/* verify_tables.c - tt_verify_core over plain double-precision tables: the laws of the exact tests,
 * and of anyone who has probabilities instead of logits. */
#include "config.h"

#include "kernels/verify_core.h"

#include <math.h>

static const double *row_p(const struct verify_tables *tables, int32_t k)
{
    return tables->p + (size_t)k * tables->vocab;
}

static double value_q(const struct verify_tables *tables, int32_t k, size_t token)
{
    return token < tables->draft_vocab ? tables->q[(size_t)k * tables->draft_vocab + token] : 0.0;
}

static int has_law(const double *row, size_t count)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) sum += row[i];
    return isfinite(sum) && sum > 0.0;
}

static int tables_reach(void *context, int32_t k, int with_draft)
{
    const struct verify_tables *tables = context;
    if (!has_law(row_p(tables, k), tables->vocab)) return VERIFY_TARGET_FLAGGED;
    if (with_draft && !has_law(tables->q + (size_t)k * tables->draft_vocab, tables->draft_vocab))
        return VERIFY_DRAFT_FLAGGED;
    return VERIFY_READY;
}

static int32_t tables_mode(void *context, int32_t k)
{
    const struct verify_tables *tables = context;
    const double *p = row_p(tables, k);
    size_t mode = 0;
    for (size_t i = 1; i < tables->vocab; i++)
        if (p[i] > p[mode]) mode = i;
    return (int32_t)mode;
}

static double tables_target(void *context, int32_t k, int32_t token)
{
    return row_p(context, k)[token];
}

static double tables_draft(void *context, int32_t k, int32_t token)
{
    return value_q(context, k, (size_t)token);
}

static int32_t tables_draw(void *context, int32_t k, enum verify_remainder remainder,
                           int32_t without, struct choice *choice, const struct choice_site *site)
{
    const struct verify_tables *tables = context;
    const double *p = row_p(tables, k);
    double weights[VERIFY_TABLE_VOCAB_MAX], sum = 0.0;

    for (size_t i = 0; i < tables->vocab; i++) {
        weights[i] = p[i];
        if (remainder == VERIFY_WITHOUT && (int32_t)i == without) weights[i] = 0.0;
        if (remainder == VERIFY_RESIDUAL) weights[i] = fmax(p[i] - value_q(tables, k, i), 0.0);
        sum += weights[i];
    }
    if (!(sum > 0.0)) return (int32_t)choice_draw(choice, site, 0, p, tables->vocab);
    return (int32_t)choice_draw(choice, site, 0, weights, tables->vocab);
}

static int32_t tables_race(void *context, int32_t k, struct choice *choice, uint64_t token_index)
{
    const struct verify_tables *tables = context;
    return (int32_t)choice_race(choice, token_index, row_p(tables, k), tables->vocab);
}

int tt_verify_tables(const struct verify_task *task, const struct verify_tables *tables,
                     struct choice *choice, struct tt_verdict *out)
{
    struct verify_tables own = *tables; /* the law's context is not const */
    const struct verify_law law = {
        .context = &own,
        .reach = tables_reach,
        .mode = tables_mode,
        .target = tables_target,
        .draft = tables_draft,
        .draw = tables_draw,
        .race = tables_race,
    };

    if (tables->vocab < 1 || task->admitted < 0 || task->admitted > TT_MAX_POSITIONS)
        return TT_EINVAL;
    if (tables->vocab > VERIFY_TABLE_VOCAB_MAX) return TT_ELIMIT;
    for (int32_t k = 0; k < task->admitted; k++)
        if (task->tokens[k] < -1 || task->tokens[k] >= (int64_t)tables->vocab) return TT_EINVAL;
    return tt_verify_core(task, &law, choice, out);
}
