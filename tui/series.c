/* series.c - see series.h. */
#include "config.h"

#include "tui/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void series_free(struct series *series)
{
    free(series->point);
    series->point = NULL;
    series->count = 0;
}

static bool reserve(struct series *series)
{
    if (series->point == NULL) series->point = malloc(SERIES_POINTS * sizeof series->point[0]);
    return series->point != NULL;
}

bool series_add(struct series *series, int64_t time_ms, double value)
{
    if (series->count > 0 && time_ms <= series->point[series->count - 1].time_ms) return true;
    if (!reserve(series)) return false;
    if (series->count == SERIES_POINTS) { /* a quarter at a time: moving is rare */
        series->count -= SERIES_POINTS / 4;
        memmove(series->point, series->point + SERIES_POINTS / 4,
                (size_t)series->count * sizeof series->point[0]);
    }
    series->point[series->count++] = (struct series_point){time_ms, value};
    return true;
}

bool series_merge(struct series *series, const struct series_point *history, int count,
                  int64_t step_ms)
{
    int keep_from = 0, kept;

    if (count <= 0) return true;
    if (!reserve(series)) return false;
    if (count > SERIES_POINTS) {
        history += count - SERIES_POINTS;
        count = SERIES_POINTS;
    }
    while (keep_from < series->count &&
           series->point[keep_from].time_ms < history[count - 1].time_ms + step_ms)
        keep_from++;
    kept = series->count - keep_from;
    if (kept + count > SERIES_POINTS) { /* the oldest history has to go */
        history += kept + count - SERIES_POINTS;
        count = SERIES_POINTS - kept;
    }
    memmove(series->point + count, series->point + keep_from,
            (size_t)kept * sizeof series->point[0]);
    if (count > 0) memcpy(series->point, history, (size_t)count * sizeof series->point[0]);
    series->count = count + kept;
    return true;
}

/* Index of the bucket a time falls into. */
static int bucket_at(int64_t time_ms, int64_t from_ms, int64_t to_ms, int count)
{
    return (int)((double)(time_ms - from_ms) * count / (double)(to_ms - from_ms));
}

void series_bucket(const struct series *series, int64_t from_ms, int64_t to_ms, int64_t until_ms,
                   int64_t join_ms, double *bucket, int count)
{
    const struct series_point *before = NULL;
    int filled = -1, n = 0; /* the bucket being averaged, and its points */

    for (int i = 0; i < count; i++) bucket[i] = NAN;
    if (to_ms <= from_ms || count < 1) return;
    for (int i = 0; i < series->count; i++) {
        const struct series_point *point = &series->point[i];
        int at;

        if (point->time_ms >= to_ms || point->time_ms >= until_ms) break;
        if (!isfinite(point->value)) {
            before = NULL;
            continue;
        }
        if (point->time_ms < from_ms) {
            before = point;
            continue;
        }
        at = bucket_at(point->time_ms, from_ms, to_ms, count);
        if (at == filled) {
            bucket[at] += (point->value - bucket[at]) / ++n;
        } else {
            int64_t apart = before == NULL ? 0 : point->time_ms - before->time_ms;

            for (int j = filled + 1; before != NULL && apart <= join_ms && j < at; j++) {
                double time = (double)from_ms + (j + 0.5) * (double)(to_ms - from_ms) / count -
                              (double)before->time_ms;

                if (time < 0) continue;
                bucket[j] = before->value + (point->value - before->value) * time / (double)apart;
            }
            bucket[at] = point->value;
            filled = at;
            n = 1;
        }
        before = point;
    }
}
