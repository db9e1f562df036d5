/* allocate.c - survivals of a draft block, and the allocation of a verification budget in the
 * strict order (survival descending, position ascending, row ascending).
 *
 * The order is strict on purpose: a tie broken by anything that depends on a drawn token would
 * change the output law. Survivals do not increase along a row, so the best `budget` drafts are a
 * prefix of every row; a row that increases all the same is read as its running minimum.
 *
 * Method: the budget-th largest survival is found by radix selection on the bit patterns of the
 * doubles (for non-negative doubles the order of the bits is the order of the values): eight
 * counting passes, a fixed table on the stack, no workspace, cost independent of the budget.
 *
 * Source: vLLM pull request 47808 (allocation by survival); arXiv 2607.05147.
 */
#include "config.h"

#include <limits.h>
#include <string.h>

#include "kernels/allocate_body.h"
#include "kernels/trimtab.h"

int tt_survival(const double *probability, size_t count, double *survival)
{
    if (count > 0 && (probability == NULL || survival == NULL)) return TT_EINVAL;
    for (size_t k = 0; k < count; k++) {
        if (probability[k] < 0.0 || probability[k] > 1.0) return TT_EINVAL;
    }
    double product = 1.0;
    for (size_t k = 0; k < count; k++) {
        product = survival_next(product, probability[k]);
        survival[k] = product;
    }
    return TT_OK;
}

struct table {
    const double *survival; /* (rows, positions) */
    size_t rows, positions;
    const int32_t *drafted;
};

/* Key of the budget-th best draft; *strictly receives how many drafts are better than it. */
static uint64_t select_threshold(const struct table *table, int64_t budget, int64_t *strictly)
{
    uint64_t prefix = 0, mask = 0;
    int64_t better = 0; /* drafts whose masked key is above the prefix */
    for (int digit = ALLOCATE_DIGITS - 1; digit >= 0; digit--) {
        const int shift = digit * ALLOCATE_DIGIT_BITS;
        int64_t count[ALLOCATE_DIGIT_VALUES];
        memset(count, 0, sizeof(count));
        for (size_t r = 0; r < table->rows; r++) {
            const double *row = table->survival + r * table->positions;
            uint64_t key = UINT64_MAX;
            for (int32_t k = 0; k < table->drafted[r]; k++) {
                key = allocate_key(row[k], key);
                if ((key & mask) == prefix) count[(key >> shift) % ALLOCATE_DIGIT_VALUES]++;
            }
        }
        unsigned value = ALLOCATE_DIGIT_VALUES - 1;
        while (better + count[value] < budget) better += count[value--];
        prefix |= (uint64_t)value << shift;
        mask |= (uint64_t)(ALLOCATE_DIGIT_VALUES - 1) << shift;
    }
    *strictly = better;
    return prefix;
}

/* Admit everything above the threshold, then ties by position and row until the budget is spent. */
static void admit(const struct table *table, uint64_t threshold, int64_t ties, int32_t *admitted)
{
    for (size_t r = 0; r < table->rows; r++) {
        const double *row = table->survival + r * table->positions;
        admitted[r] = allocate_above(row, table->drafted[r], threshold);
    }
    for (size_t k = 0; k < table->positions && ties > 0; k++) {
        for (size_t r = 0; r < table->rows && ties > 0; r++) {
            const double *row = table->survival + r * table->positions;
            if ((size_t)admitted[r] != k ||
                !allocate_ties(row, table->drafted[r], admitted[r], threshold))
                continue;
            admitted[r]++;
            ties--;
        }
    }
}

int tt_allocate(const double *survival, size_t rows, size_t positions, const int32_t *drafted,
                int64_t budget, int32_t *admitted)
{
    if (budget < 0 || positions > TT_MAX_POSITIONS) return TT_EINVAL;
    if (rows == 0) return 0;
    if (drafted == NULL || admitted == NULL || (positions > 0 && survival == NULL))
        return TT_EINVAL;
    if (rows > INT_MAX / TT_MAX_POSITIONS) return TT_ELIMIT;
    int64_t total = 0;
    for (size_t r = 0; r < rows; r++) {
        if (drafted[r] < 0 || (size_t)drafted[r] > positions) return TT_EINVAL;
        total += drafted[r];
    }
    const struct table table = {survival, rows, positions, drafted};
    if (budget >= total) {
        memcpy(admitted, drafted, rows * sizeof(*admitted));
        return (int)total;
    }
    if (budget == 0) {
        memset(admitted, 0, rows * sizeof(*admitted));
        return 0;
    }
    int64_t better;
    const uint64_t threshold = select_threshold(&table, budget, &better);
    admit(&table, threshold, budget - better, admitted);
    return (int)budget;
}
