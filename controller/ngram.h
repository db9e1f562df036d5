/* ngram.h - drafts by looking the last tokens up in the request's own history (prompt and output).
 *
 * Deterministic: the point-mass, greedy and coupled rules apply. The feature of a draft token is
 * the logit of a Laplace estimate (accepted + 1) / (observed + 2) per (match-length bucket,
 * position), forgotten slowly.
 */
#ifndef CONTROLLER_NGRAM_H
#define CONTROLLER_NGRAM_H

#include <stdint.h>

struct ngram;       /* acceptance statistics shared by all requests */
struct ngram_index; /* the index of one request's tokens */

struct ngram *ngram_new(void);
void ngram_free(struct ngram *ngram);
struct ngram_index *
ngram_index_new(int capacity); /* most tokens it will hold; nothing is allocated after */
void ngram_index_free(struct ngram_index *index);
void ngram_index_reset(struct ngram_index *index);
/* 0, or -1 and nothing appended beyond the capacity. */
int ngram_index_append(struct ngram_index *index, const int32_t *tokens, int count);

/* Propose up to max tokens that followed the latest place where the index's last 4 tokens stand,
 * else the last 3, else 2. Fills tokens and feature (max); *match is the match length, followed
 * back up to 16 (0 = none). Returns the count: 0 or max (at most TT_MAX_POSITIONS). O(max). */
int ngram_propose(const struct ngram *ngram, const struct ngram_index *index, int max,
                  int32_t *tokens, float *feature, int *match);
void ngram_observe(struct ngram *ngram, int match, int admitted, int accepted);

#endif
