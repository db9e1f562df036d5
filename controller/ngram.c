/* ngram.c - prompt-lookup drafts: what followed the last tokens the last time they stood in this
 * text.
 *
 * Owns the per-request index: for n = 4, 3, 2 a table of fixed size from the hash of n tokens to
 * the place after their latest occurrence that has a continuation. Entries are verified against the
 * text, so a collision costs a match and never a wrong one. The features are the log-odds of
 * Laplace estimates (design, algorithm 1).
 */
#include "config.h"

#include "controller/ngram.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/trimtab.h"

#define SHORTEST 2
#define LONGEST 4
#define TABLES (LONGEST - SHORTEST + 1)
#define PROBES 8       /* places an entry may stand in; then the oldest of them gives way */
#define MATCH_LIMIT 16 /* how far a match is followed back: nothing changes beyond */
#define MEMORY 0.998   /* forgetting an observation of one cell */
#define BUCKETS 5

struct ngram {
    struct {
        double observed, accepted;
    } cell[BUCKETS][TT_MAX_POSITIONS];
};

struct ngram_index {
    int capacity, count;
    uint32_t mask;         /* slots of one table - 1 */
    int32_t *token;        /* (capacity) */
    int32_t *next[TABLES]; /* (mask + 1) place after the n-gram; 0 = empty */
};

/* ---- statistics ---- */

static int bucket_of(int match)
{
    return match <= 2 ? 0 : match == 3 ? 1 : match == 4 ? 2 : match <= 8 ? 3 : 4;
}

struct ngram *ngram_new(void)
{
    return calloc(1, sizeof(struct ngram));
}

void ngram_free(struct ngram *ngram)
{
    free(ngram);
}

void ngram_observe(struct ngram *ngram, int match, int admitted, int accepted)
{
    assert(accepted >= 0 && accepted <= admitted && admitted <= TT_MAX_POSITIONS);
    if (match < SHORTEST) return;
    for (int k = 0; k < admitted && k <= accepted; k++) {
        double *observed = &ngram->cell[bucket_of(match)][k].observed;
        double *positive = &ngram->cell[bucket_of(match)][k].accepted;
        *observed = MEMORY * *observed + 1;
        *positive = MEMORY * *positive + (k < accepted);
    }
}

static float feature_of(const struct ngram *ngram, int match, int position)
{
    double observed = ngram->cell[bucket_of(match)][position].observed;
    double accepted = ngram->cell[bucket_of(match)][position].accepted;
    return (float)log((accepted + 1) / (observed - accepted + 1));
}

/* ---- index ---- */

struct ngram_index *ngram_index_new(int capacity)
{
    assert(capacity >= 1 && capacity <= 1 << 28);
    struct ngram_index *index = calloc(1, sizeof *index);
    if (!index) return NULL;
    uint32_t slots = 16;
    while (slots < 2 * (uint32_t)capacity) slots *= 2;
    index->capacity = capacity;
    index->mask = slots - 1;
    index->token = calloc((size_t)capacity, sizeof *index->token);
    bool ok = index->token != NULL;
    for (int t = 0; t < TABLES; t++) {
        index->next[t] = calloc(slots, sizeof *index->next[t]);
        ok = ok && index->next[t];
    }
    if (ok) return index;
    ngram_index_free(index);
    return NULL;
}

void ngram_index_free(struct ngram_index *index)
{
    if (!index) return;
    for (int t = 0; t < TABLES; t++) free(index->next[t]);
    free(index->token);
    free(index);
}

void ngram_index_reset(struct ngram_index *index)
{
    index->count = 0;
    for (int t = 0; t < TABLES; t++)
        memset(index->next[t], 0, ((size_t)index->mask + 1) * sizeof *index->next[t]);
}

/* FNV-1a over the n tokens before `end`, finished by a multiply-shift since the low bits choose the
 * slot. */
static uint32_t hash_before(const struct ngram_index *index, int end, int n)
{
    uint64_t hash = 14695981039346656037u;
    for (int i = end - n; i < end; i++) hash = (hash ^ (uint32_t)index->token[i]) * 1099511628211u;
    return (uint32_t)((hash * 0x9e3779b97f4a7c15u) >> 32);
}

static bool same_before(const struct ngram_index *index, int a, int b, int n)
{
    return memcmp(&index->token[a - n], &index->token[b - n], (size_t)n * sizeof *index->token) ==
           0;
}

/* The slot that holds the n-gram that ends before `end`, or the one where it belongs. */
static int32_t *find_slot(const struct ngram_index *index, int end, int n)
{
    int32_t *table = index->next[n - SHORTEST], *oldest = NULL;
    uint32_t hash = hash_before(index, end, n);
    for (uint32_t probe = 0; probe < PROBES; probe++) {
        int32_t *slot = &table[(hash + probe) & index->mask];
        if (*slot == 0 || same_before(index, *slot, end, n)) return slot;
        if (!oldest || *slot < *oldest) oldest = slot;
    }
    return oldest;
}

int ngram_index_append(struct ngram_index *index, const int32_t *tokens, int count)
{
    if (count < 0 || count > index->capacity - index->count) return -1;
    for (int i = 0; i < count; i++) {
        /* The new token is the continuation of what ends before it; only now is that n-gram of use.
         */
        for (int n = SHORTEST; n <= LONGEST && n <= index->count; n++)
            *find_slot(index, index->count, n) = index->count;
        index->token[index->count++] = tokens[i];
    }
    return 0;
}

int ngram_propose(const struct ngram *ngram, const struct ngram_index *index, int max,
                  int32_t *tokens, float *feature, int *match)
{
    int place = 0, length = 0;
    *match = 0;
    for (int n = LONGEST; n >= SHORTEST && place == 0; n--) {
        if (n > index->count) continue;
        int32_t found = *find_slot(index, index->count, n);
        if (found == 0 || !same_before(index, found, index->count, n)) continue;
        place = found;
        length = n;
    }
    if (place == 0) return 0;
    while (length < MATCH_LIMIT && length < place &&
           index->token[place - length - 1] == index->token[index->count - length - 1])
        length++;
    *match = length;
    if (max > TT_MAX_POSITIONS) max = TT_MAX_POSITIONS;
    for (int k = 0; k < max; k++) {
        /* A match that reaches the end of the text is a period: it goes on with what was just
         * proposed. */
        int from = place + k;
        tokens[k] = from < index->count ? index->token[from] : tokens[from - index->count];
        feature[k] = feature_of(ngram, length, k);
    }
    return max > 0 ? max : 0;
}
