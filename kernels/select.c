/* select.c - weighted quickselect (Hoare's FIND) with a heap sort behind it for hostile input.
 *
 * Each round splits the open interval at a pivot and keeps the side in which the target weight is
 * reached. Keys are unique, so a round always shrinks the interval.
 */
#include "config.h"

#include "kernels/select.h"

#include <string.h>

#define SELECT_SMALL 24 /* below this many an insertion sort is quicker */

static void swap(struct candidate *a, struct candidate *b)
{
    const struct candidate t = *a;
    *a = *b;
    *b = t;
}

static void insertion_sort(struct candidate *list, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (size_t j = i; j > 0 && list[j].key < list[j - 1].key; j--)
            swap(&list[j], &list[j - 1]);
}

static void sift_down(struct candidate *list, size_t root, size_t count)
{
    for (size_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && list[child + 1].key > list[child].key) child++;
        if (list[root].key >= list[child].key) return;
        swap(&list[root], &list[child]);
    }
}

static void heap_sort(struct candidate *list, size_t count)
{
    for (size_t i = count / 2; i-- > 0;) sift_down(list, i, count);
    for (size_t i = count; i-- > 1;) {
        swap(&list[0], &list[i]);
        sift_down(list, 0, i);
    }
}

static uint64_t median(uint64_t a, uint64_t b, uint64_t c)
{
    const uint64_t low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

static uint64_t pivot_of(const struct candidate *list, size_t count)
{
    const size_t step = count / 9;
    uint64_t middle[3];
    for (size_t i = 0; i < 3; i++)
        middle[i] = median(list[3 * i * step].key, list[(3 * i + 1) * step].key,
                           list[(3 * i + 2) * step].key);
    return median(middle[0], middle[1], middle[2]);
}

/* Keys <= pivot to the front; returns how many, and their weight. */
static size_t split(struct candidate *list, size_t count, uint64_t pivot, double *weight)
{
    size_t front = 0;
    *weight = 0.0;
    for (size_t i = 0; i < count; i++) {
        if (list[i].key > pivot) continue;
        *weight += list[i].weight;
        swap(&list[i], &list[front++]);
    }
    return front;
}

size_t select_head(struct candidate *list, size_t count, double target)
{
    size_t low = 0, high = count;
    double reached = 0.0; /* weight of list[0 .. low) */
    int rounds = 4;

    for (size_t n = count; n > 0; n /= 2) rounds += 2;
    while (high - low > SELECT_SMALL && rounds-- > 0) {
        double weight;
        const uint64_t pivot = pivot_of(list + low, high - low);
        const size_t front = split(list + low, high - low, pivot, &weight);
        if (reached + weight >= target) {
            high = low + front;
            if (front < 2) break;
        } else {
            reached += weight;
            low += front;
        }
    }
    if (high - low > SELECT_SMALL)
        heap_sort(list + low, high - low);
    else
        insertion_sort(list + low, high - low);
    for (size_t i = low; i < high; i++) {
        reached += list[i].weight;
        if (reached >= target) return i + 1;
    }
    return high > 0 ? high : count;
}
