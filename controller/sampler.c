/* sampler.c - once a second: differences of the tally become a row of the store, rates, events of
 * the watchdog and the health line. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "controller/node_llama_state.h"
#include "controller/node_rows.h"
#include "controller/ticks.h"
#include "controller/watchdog.h"

#define SAMPLE_MS 1000
#define CALIBRATION_S 60

struct sampler {
    struct llama_node *node;
    struct tally_counts last;
    int64_t last_us;
    int seconds;
    struct watchdog watchdog;
};

/* What the watchdog finds becomes events. */
static void watch(struct sampler *sampler, const struct tally_counts *delta)
{
    struct watchdog_finding finding[WATCHDOG_FINDINGS];
    int count = watchdog_second(&sampler->watchdog, delta, finding);

    for (int i = 0; i < count; i++)
        rows_event(sampler->node->options.store, sampler->node->run_id, finding[i].severity,
                   finding[i].kind, finding[i].text, finding[i].numbers);
}

/* One line: the store's trouble before the watchdog's. Since when: the moment it was first said. */
static struct node_health judge_health(const struct sampler *sampler)
{
    const struct llama_node *node = sampler->node;
    struct store_health store = {.ok = true};
    struct node_health health = {0};

    if (node->options.store) store_get_health(node->options.store, &store);
    if (!store.ok) {
        snprintf(health.reason, sizeof health.reason, "store: not writing (%s)", store.reason);
        snprintf(health.advice, sizeof health.advice,
                 "free space on its disk, or give the daemon its folder back; serving goes on");
        health.since_ms = store.since_ms;
    } else if (sampler->watchdog.reason[0]) {
        snprintf(health.reason, sizeof health.reason, "%s", sampler->watchdog.reason);
        snprintf(health.advice, sizeof health.advice, "%s", sampler->watchdog.advice);
        health.since_ms =
            strcmp(health.reason, node->health.reason) == 0 ? node->health.since_ms : utc_ms();
    }
    return health;
}

static void take_second(struct sampler *sampler)
{
    struct llama_node *node = sampler->node;
    struct rates_second second = {.time_ms = utc_ms()};
    struct tally_counts now;
    struct node_health health;
    int64_t now_us = ticks_us();

    tally_copy(&node->loop->tally, &now);
    second.delta = now;
    tally_accumulate(&second.delta, &sampler->last, -1);
    second.seconds = (double)(now_us - sampler->last_us) / 1e6;
    sampler->last = now;
    sampler->last_us = now_us;
    watch(sampler, &second.delta);
    health = judge_health(sampler);
    pthread_mutex_lock(&node->lock);
    second.mode = node->force.mode;
    second.fixed_draft = node->fixed_draft;
    second.running = node->running;
    rates_add(&node->rates, &second);
    node->effect_known = rates_toggle_effect(&node->rates, &node->effect);
    node->health = health;
    pthread_mutex_unlock(&node->lock);
    rows_sample(node->options.store, node->run_id, &second, queue_length(node->loop->queue),
                node->options.max_draft);
    if (++sampler->seconds % CALIBRATION_S == 0)
        rows_calibration(node->options.store, node->run_id, &node->loop->tally,
                         node->options.max_draft);
}

void *llama_node_sample(void *state)
{
    struct sampler sampler = {.node = state, .last_us = ticks_us()};
    struct llama_node *node = state;
    struct timespec next;
    bool stop = false;

    watchdog_init(&sampler.watchdog, node->options.max_draft);
    clock_gettime(CLOCK_MONOTONIC, &next);
    while (!stop) {
        next.tv_sec += SAMPLE_MS / 1000;
        pthread_mutex_lock(&node->lock);
        while (!node->stop && pthread_cond_timedwait(&node->changed, &node->lock, &next) == 0)
            continue;
        stop = node->stop;
        pthread_mutex_unlock(&node->lock);
        take_second(&sampler);
    }
    return NULL;
}
