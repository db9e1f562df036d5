/* traffic.c - see traffic.h. The buckets are those of vLLM's histograms, so that its dashboards'
 * quantiles are right. */
#include "config.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "controller/metrics.h"
#include "controller/traffic.h"

static const double first_token_bounds_s[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                              0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                              20,    40,    80,   160,  640,  2560};
static const double latency_bounds_s[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                          30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
enum {
    FIRST_TOKEN_BOUNDS = sizeof first_token_bounds_s / sizeof *first_token_bounds_s,
    LATENCY_BOUNDS = sizeof latency_bounds_s / sizeof *latency_bounds_s,
    BOUNDS_MAX = FIRST_TOKEN_BOUNDS,
};
_Static_assert(LATENCY_BOUNDS <= BOUNDS_MAX, "a histogram has room for its buckets");

enum end { END_STOP, END_LENGTH, END_ABORT, END_ERROR, ENDS };
static const char *const end_names[ENDS] = {"stop", "length", "abort", "error"};

struct histogram {
    uint64_t bucket[BOUNDS_MAX]; /* not cumulated */
    uint64_t count;
    double sum_s;
};

struct record {
    uint64_t ends[ENDS];
    struct histogram first_token, latency;
};

struct traffic {
    pthread_mutex_t lock; /* guards the records */
    int nodes;
    struct record record[]; /* (nodes) */
};

struct traffic *traffic_new(int nodes)
{
    struct traffic *traffic = calloc(1, sizeof *traffic + (size_t)nodes * sizeof *traffic->record);

    if (!traffic) return NULL;
    traffic->nodes = nodes;
    pthread_mutex_init(&traffic->lock, NULL);
    return traffic;
}

void traffic_free(struct traffic *traffic)
{
    if (!traffic) return;
    pthread_mutex_destroy(&traffic->lock);
    free(traffic);
}

static void add(struct histogram *histogram, const double *bounds, int count, double seconds)
{
    for (int i = 0; i < count; i++) {
        if (seconds > bounds[i]) continue;
        histogram->bucket[i]++;
        break;
    }
    histogram->count++;
    histogram->sum_s += seconds;
}

void traffic_add_first_token(struct traffic *traffic, int node, double seconds)
{
    pthread_mutex_lock(&traffic->lock);
    add(&traffic->record[node].first_token, first_token_bounds_s, FIRST_TOKEN_BOUNDS, seconds);
    pthread_mutex_unlock(&traffic->lock);
}

void traffic_add_end(struct traffic *traffic, int node, enum request_finish finish, double seconds)
{
    enum end end = finish == REQUEST_STOP     ? END_STOP
                   : finish == REQUEST_LENGTH ? END_LENGTH
                   : finish == REQUEST_FAILED ? END_ERROR
                                              : END_ABORT;

    pthread_mutex_lock(&traffic->lock);
    traffic->record[node].ends[end]++;
    add(&traffic->record[node].latency, latency_bounds_s, LATENCY_BOUNDS, seconds);
    pthread_mutex_unlock(&traffic->lock);
}

/* ---------------------------------------------------------------------------------------- text */

static void put_histogram(struct buffer *out, const char *name, const struct snapshot *snapshot,
                          int engine, const struct histogram *histogram, const double *bounds,
                          int count)
{
    char sample[64], bound[32];
    uint64_t below = 0;

    snprintf(sample, sizeof sample, "%s_bucket", name);
    for (int i = 0; i < count; i++) {
        struct buffer text = {0};
        below += histogram->bucket[i];
        buffer_add_number(&text, bounds[i], 6);
        snprintf(bound, sizeof bound, "%.*s", (int)text.length, text.data ? text.data : "");
        buffer_free(&text);
        metrics_put_sample(out, sample, snapshot, engine, "le", bound, (double)below);
    }
    metrics_put_sample(out, sample, snapshot, engine, "le", "+Inf", (double)histogram->count);
    snprintf(sample, sizeof sample, "%s_count", name);
    metrics_put_sample(out, sample, snapshot, engine, NULL, NULL, (double)histogram->count);
    snprintf(sample, sizeof sample, "%s_sum", name);
    metrics_put_sample(out, sample, snapshot, engine, NULL, NULL, histogram->sum_s);
}

void traffic_put(struct buffer *out, struct traffic *traffic, const struct snapshot *snapshots,
                 const bool *generates, int count)
{
    static const char ends[] = "vllm:request_success_total",
                      first[] = "vllm:time_to_first_token_seconds",
                      latency[] = "vllm:e2e_request_latency_seconds";
    int first_node = 0;

    while (first_node < count && !generates[first_node]) first_node++;
    if (first_node == count) return;
    pthread_mutex_lock(&traffic->lock);
    metrics_put_header(out, ends, "counter", "Generations by how they ended.");
    for (int i = first_node; i < count; i++) {
        for (int end = 0; end < ENDS && generates[i]; end++)
            metrics_put_sample(out, ends, &snapshots[i], i, "finished_reason", end_names[end],
                               (double)traffic->record[i].ends[end]);
    }
    metrics_put_header(out, first, "histogram",
                       "From the arrival of a request to its first token.");
    for (int i = first_node; i < count; i++) {
        if (generates[i])
            put_histogram(out, first, &snapshots[i], i, &traffic->record[i].first_token,
                          first_token_bounds_s, FIRST_TOKEN_BOUNDS);
    }
    metrics_put_header(out, latency, "histogram", "From the arrival of a request to its end.");
    for (int i = first_node; i < count; i++) {
        if (generates[i])
            put_histogram(out, latency, &snapshots[i], i, &traffic->record[i].latency,
                          latency_bounds_s, LATENCY_BOUNDS);
    }
    pthread_mutex_unlock(&traffic->lock);
}
