/* logprobs.c - see logprobs.h. One pass with a short sorted list: count is at most
 * REQUEST_MAX_LOGPROBS. */
#include "config.h"

#include "controller/logprobs.h"

void logprobs_top(const float *logits, size_t vocab, float log_norm, int count,
                  struct request_token *entry)
{
    struct request_logprob *best = entry->alternative;
    int filled = 0;

    for (size_t token = 0; token < vocab && count > 0; token++) {
        float value = logits[token];
        int at;

        if (filled == count && !(value > best[filled - 1].logprob)) continue;
        at = filled < count ? filled++ : filled - 1;
        while (at > 0 && value > best[at - 1].logprob) {
            best[at] = best[at - 1];
            at--;
        }
        best[at] = (struct request_logprob){(int32_t)token, value};
    }
    for (int i = 0; i < filled; i++) best[i].logprob -= log_norm;
    entry->alternatives = filled;
}
