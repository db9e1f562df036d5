/* nearest.c - see nearest.h. */
#include "config.h"

#include <stdbool.h>
#include <string.h>

#include "controller/nearest.h"

#define LONGEST 40 /* longer words are not names of ours */

static int distance(const char *a, const char *b)
{
    int cost[LONGEST + 1][LONGEST + 1];
    int rows = (int)strlen(a), cols = (int)strlen(b);

    if (rows > LONGEST || cols > LONGEST) return LONGEST;
    for (int i = 0; i <= rows; i++) cost[i][0] = i;
    for (int j = 0; j <= cols; j++) cost[0][j] = j;
    for (int i = 1; i <= rows; i++) {
        for (int j = 1; j <= cols; j++) {
            int best = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

            if (cost[i - 1][j] + 1 < best) best = cost[i - 1][j] + 1;
            if (cost[i][j - 1] + 1 < best) best = cost[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                cost[i - 2][j - 2] + 1 < best)
                best = cost[i - 2][j - 2] + 1;
            cost[i][j] = best;
        }
    }
    return cost[rows][cols];
}

int nearest_index(const char *word, const char *const *words, size_t count)
{
    int best = -1, least = (int)strlen(word) / 3 + 1; /* a third of the letters may be wrong */

    for (size_t i = 0; i < count; i++) {
        int far = distance(word, words[i]);
        bool begins = strlen(word) >= 3 && strncmp(word, words[i], strlen(word)) == 0;

        if (begins && far > 1) far = 1; /* an unfinished word is the likeliest of all mistakes */
        if (far < least || (far == least && best < 0)) {
            best = (int)i;
            least = far;
        }
    }
    return best;
}

const char *nearest_word(const char *word, const char *const *words, size_t count)
{
    int index = nearest_index(word, words, count);

    return index >= 0 ? words[index] : NULL;
}
