/* engine_watch.c - see engine_watch.h. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/engine_watch.h"

#define MOMENTS 64 /* readings kept: a minute at one a second */
#define MARKS 7    /* histograms kept, one every MARK_S */
#define MARK_S 10.0
#define WATCH_REACHED 200 /* as the llama node watches its own (sampler.c) */
#define WATCH_PREDICTED 0.9
#define FAST_S 10.0 /* of the running means that a slowdown is told by */
#define SLOW_S 300.0
#define SLOW_LEAST_S 60.0 /* busy time before a slowdown can be told */
#define SLOWED 0.5        /* of the slow mean */
#define RECOVERED 0.7
#define SAME_LOAD 0.8

struct moment { /* sums since the watch began; NaN = never known */
    int64_t us;
    double total[FIGURE_COUNTERS];
    double accepted_at[ENGINE_POSITIONS];
    int64_t unadmitted; /* readings for which nobody told what was admitted */
};

struct mark { /* histograms at one moment */
    int64_t us;
    struct engine_histogram first_token, inter_token;
};

struct position_watch { /* since its last verdict */
    double reached, accepted;
    bool alarmed;
};

struct speed_watch { /* means over busy seconds, weighted exponentially */
    double fast_tps, slow_tps, fast_running, slow_running, busy_s;
    bool alarmed;
};

struct engine_watch {
    struct engine_page page[2]; /* the last and the one before */
    int current;
    struct moment moment[MOMENTS]; /* ring */
    int first, count;
    struct mark mark[MARKS]; /* ring */
    int first_mark, marks;
    int positions;
    struct position_watch position[ENGINE_POSITIONS];
    struct speed_watch speed;
    char trouble[160], slowdown[160];
};

struct engine_watch *engine_watch_new(void)
{
    struct engine_watch *watch = calloc(1, sizeof *watch);

    if (watch)
        for (int i = 0; i < 2; i++) engine_page_clear(&watch->page[i]);
    return watch;
}

void engine_watch_free(struct engine_watch *watch)
{
    free(watch);
}

const struct engine_page *engine_watch_page(const struct engine_watch *watch)
{
    return &watch->page[watch->current];
}

/* --------------------------------------------------------------------------------- differences */

static bool fell(double now, double before)
{
    return now < before; /* false when either is unknown */
}

static bool changed(double now, double before)
{
    return !isnan(now) && !isnan(before) && now != before;
}

static bool row_restarted(const struct engine_row *now, const struct engine_row *before)
{
    if (changed(now->created, before->created)) return true;
    for (int i = 0; i < FIGURE_COUNTERS; i++)
        if (fell(now->value[i], before->value[i])) return true;
    for (int k = 0; k < ENGINE_POSITIONS; k++)
        if (fell(now->accepted_at[k], before->accepted_at[k])) return true;
    return false;
}

static void add_difference(double *sum, double now, double before)
{
    if (isnan(now)) return;
    if (isnan(*sum)) *sum = 0;
    if (!isnan(before)) *sum += now - before;
}

static void clear_second(struct engine_second *second)
{
    second->seconds = 0;
    second->positions = 0;
    for (int i = 0; i < FIGURE_COUNTERS; i++) second->delta[i] = NAN;
    for (int k = 0; k < ENGINE_POSITIONS; k++) second->accepted_at[k] = NAN;
}

/* now less before, engine by engine. True when one of them restarted. */
static bool subtract(const struct engine_page *now, const struct engine_page *before,
                     struct engine_second *out)
{
    bool process = changed(now->process_start, before->process_start), restarted = process;

    for (int i = 0; i < now->rows; i++) {
        const struct engine_row *row = &now->row[i];
        const struct engine_row *was = engine_find_row(before, row->label);

        if (was && (process || row_restarted(row, was))) {
            restarted = true;
            was = NULL;
        }
        if (!was) was = row; /* a new baseline: nothing happened yet */
        for (int k = 0; k < FIGURE_COUNTERS; k++)
            add_difference(&out->delta[k], row->value[k], was->value[k]);
        for (int k = 0; k < row->positions; k++)
            add_difference(&out->accepted_at[k], row->accepted_at[k], was->accepted_at[k]);
    }
    out->positions = engine_positions(now);
    return restarted;
}

static struct moment *newest(struct engine_watch *watch)
{
    return &watch->moment[(watch->first + watch->count - 1) % MOMENTS];
}

static void add_sum(double *sum, double delta)
{
    if (isnan(delta)) return;
    *sum = isnan(*sum) ? delta : *sum + delta;
}

static void add_moment(struct engine_watch *watch, const struct engine_second *second,
                       int64_t now_us)
{
    struct moment next;

    if (watch->count > 0) {
        next = *newest(watch);
    } else {
        for (int i = 0; i < FIGURE_COUNTERS; i++) next.total[i] = NAN;
        for (int k = 0; k < ENGINE_POSITIONS; k++) next.accepted_at[k] = NAN;
        next.unadmitted = 0;
    }
    next.us = now_us;
    if (isnan(second->delta[FIGURE_ADMITTED])) next.unadmitted++;
    for (int i = 0; i < FIGURE_COUNTERS; i++) add_sum(&next.total[i], second->delta[i]);
    for (int k = 0; k < ENGINE_POSITIONS; k++)
        add_sum(&next.accepted_at[k], second->accepted_at[k]);
    if (watch->count == MOMENTS)
        watch->first = (watch->first + 1) % MOMENTS;
    else
        watch->count++;
    *newest(watch) = next;
}

static void add_mark(struct engine_watch *watch, const struct engine_page *page, int64_t now_us,
                     bool anew)
{
    struct mark *last = &watch->mark[(watch->first_mark + watch->marks - 1 + MARKS) % MARKS];

    if (anew) watch->marks = 0;
    if (watch->marks > 0 && (double)(now_us - last->us) / 1e6 < MARK_S) return;
    if (watch->marks == MARKS)
        watch->first_mark = (watch->first_mark + 1) % MARKS;
    else
        watch->marks++;
    last = &watch->mark[(watch->first_mark + watch->marks - 1) % MARKS];
    *last = (struct mark){now_us, page->first_token, page->inter_token};
}

/* --------------------------------------------------------------------------------------- alarms */

double engine_second_reached(const struct engine_second *second, int position)
{
    return position == 0 ? second->delta[FIGURE_DRAFTS] : second->accepted_at[position - 1];
}

/* Speculation that is broken although the engine notices nothing: a position that accepts none of
 * 200, or all of them against its prediction. */
static unsigned watch_positions(struct engine_watch *watch, const double *predicted,
                                const struct engine_second *second)
{
    bool was = watch->trouble[0] != '\0', broken = false;

    for (int k = 0; k < second->positions; k++) {
        struct position_watch *position = &watch->position[k];
        double reached = engine_second_reached(second, k), accepted = second->accepted_at[k];

        if (isnan(reached) || isnan(accepted)) continue;
        position->reached += reached;
        position->accepted += accepted;
        if (position->reached >= WATCH_REACHED) {
            bool none = position->accepted <= 0, all = predicted &&
                                                       predicted[k] < WATCH_PREDICTED &&
                                                       position->accepted >= position->reached;

            if (none)
                snprintf(watch->trouble, sizeof watch->trouble,
                         "position %d accepted none of its last %.0f drafts", k, position->reached);
            else if (all)
                snprintf(watch->trouble, sizeof watch->trouble,
                         "position %d accepted all of its last %.0f drafts though %.2f were "
                         "predicted",
                         k, position->reached, predicted[k]);
            *position = (struct position_watch){.alarmed = none || all};
        }
        broken |= position->alarmed;
    }
    if (!broken) watch->trouble[0] = '\0';
    return broken == was ? 0 : broken ? ENGINE_NEWS_BROKEN : ENGINE_NEWS_MENDED;
}

static double blend(double mean, double value, double seconds, double over_s)
{
    double weight = 1 - exp(-seconds / over_s);

    return mean + weight * (value - mean);
}

/* Throughput that falls while the load does not. Alarm on throughput, never on accepted over
 * drafted: drafts are counted before trimming, so that ratio falls when trimming works. */
static unsigned watch_speed(struct engine_watch *watch, const struct engine_page *page,
                            const struct engine_second *second)
{
    struct speed_watch *speed = &watch->speed;
    double running = engine_total(page, FIGURE_RUNNING), tps;

    if (!(second->seconds > 0) || !(running > 0) || engine_counts_at_end(page->engine)) return 0;
    tps = second->delta[FIGURE_EMITTED] / second->seconds;
    if (isnan(tps)) return 0;
    if (speed->busy_s <= 0) *speed = (struct speed_watch){tps, tps, running, running, 0, false};
    speed->busy_s += second->seconds;
    speed->fast_tps = blend(speed->fast_tps, tps, second->seconds, FAST_S);
    speed->fast_running = blend(speed->fast_running, running, second->seconds, FAST_S);
    speed->slow_tps = blend(speed->slow_tps, tps, second->seconds, SLOW_S);
    speed->slow_running = blend(speed->slow_running, running, second->seconds, SLOW_S);
    if (speed->alarmed) {
        speed->alarmed = speed->fast_tps < RECOVERED * speed->slow_tps;
        if (!speed->alarmed) watch->slowdown[0] = '\0';
        return 0;
    }
    if (speed->busy_s < SLOW_LEAST_S || speed->fast_tps >= SLOWED * speed->slow_tps ||
        speed->fast_running < SAME_LOAD * speed->slow_running)
        return 0;
    speed->alarmed = true;
    snprintf(watch->slowdown, sizeof watch->slowdown,
             "throughput fell from %.0f to %.0f tok/s at %.1f running requests (%.1f before)",
             speed->slow_tps, speed->fast_tps, speed->fast_running, speed->slow_running);
    return ENGINE_NEWS_SLOWED;
}

const char *engine_watch_trouble(const struct engine_watch *watch)
{
    return watch->trouble;
}

const char *engine_watch_slowdown(const struct engine_watch *watch)
{
    return watch->slowdown;
}

/* ----------------------------------------------------------------------------------------- take */

/* What the page does not tell of admitted and verified drafts, by the other account. */
static void add_admitted(struct engine_second *second, double admitted)
{
    if (isnan(second->delta[FIGURE_ADMITTED])) second->delta[FIGURE_ADMITTED] = admitted;
    if (isnan(second->delta[FIGURE_VERIFIED])) second->delta[FIGURE_VERIFIED] = admitted;
}

unsigned engine_watch_take(struct engine_watch *watch, const struct engine_page *page,
                           double admitted, const double *predicted, int64_t now_us,
                           struct engine_second *second)
{
    const struct engine_page *before = engine_watch_page(watch);
    struct engine_second own;
    unsigned news = 0;

    if (!second) second = &own;
    clear_second(second);
    if (watch->count == 0) news |= ENGINE_NEWS_FIRST;
    if (subtract(page, watch->count > 0 ? before : page, second)) news |= ENGINE_NEWS_RESTARTED;
    if (watch->count > 0) second->seconds = (double)(now_us - newest(watch)->us) / 1e6;
    if (news == 0) add_admitted(second, admitted);
    watch->current = !watch->current;
    watch->page[watch->current] = *page;
    add_moment(watch, second, now_us);
    add_mark(watch, page, now_us, news & ENGINE_NEWS_RESTARTED);
    if (news & ENGINE_NEWS_RESTARTED) {
        memset(watch->position, 0, sizeof watch->position);
        memset(&watch->speed, 0, sizeof watch->speed);
        watch->slowdown[0] = '\0';
    }
    news |= watch_positions(watch, predicted, second);
    return news | watch_speed(watch, page, second);
}

void engine_watch_window(const struct engine_watch *watch, double window_s,
                         struct engine_second *sum)
{
    const struct moment *last, *from;
    int back = 1;

    clear_second(sum);
    sum->positions = engine_positions(engine_watch_page(watch));
    if (watch->count < 2) return;
    last = &watch->moment[(watch->first + watch->count - 1) % MOMENTS];
    do {
        from = &watch->moment[(watch->first + watch->count - 1 - back) % MOMENTS];
    } while (++back < watch->count && (double)(last->us - from->us) / 1e6 < window_s);
    sum->seconds = (double)(last->us - from->us) / 1e6;
    for (int i = 0; i < FIGURE_COUNTERS; i++)
        sum->delta[i] = last->total[i] - (isnan(from->total[i]) ? 0 : from->total[i]);
    if (last->unadmitted != from->unadmitted)
        sum->delta[FIGURE_ADMITTED] = sum->delta[FIGURE_VERIFIED] = NAN;
    for (int k = 0; k < ENGINE_POSITIONS; k++)
        sum->accepted_at[k] =
            last->accepted_at[k] - (isnan(from->accepted_at[k]) ? 0 : from->accepted_at[k]);
}

double engine_watch_quantile(const struct engine_watch *watch, enum figure histogram, double q)
{
    const struct engine_page *page = engine_watch_page(watch);
    const struct mark *from = &watch->mark[watch->first_mark];
    bool first_token = histogram == FIGURE_FIRST_TOKEN;

    if (watch->marks == 0) return NAN;
    return engine_quantile(first_token ? &page->first_token : &page->inter_token,
                           first_token ? &from->first_token : &from->inter_token, q);
}
