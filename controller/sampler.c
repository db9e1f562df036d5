/* sampler.c - once a second: differences of the tally become a row of the store, rates and the
 * health line.
 *
 * Also watches for speculation that is broken although the engine notices nothing: a reached
 * position that accepts none of 200, or all of 200 though it was predicted below 0.9.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "controller/node_llama_state.h"
#include "controller/node_rows.h"
#include "controller/ticks.h"

#define SAMPLE_MS 1000
#define WATCH_REACHED 200
#define WATCH_PREDICTED 0.9
#define CALIBRATION_S 60

struct watch { /* of one position, since its last verdict */
    int64_t reached, accepted, graded;
    double predicted;
    bool alarmed;
};

struct sampler {
    struct llama_node *node;
    struct tally_counts last;
    int64_t last_us;
    int seconds;
    struct watch watch[TT_MAX_POSITIONS];
    char broken[160]; /* what the watch says now */
};

/* A position that accepts nothing, or everything against its prediction, is reported once until it
 * behaves again. */
static void watch_positions(struct sampler *sampler, const struct tally_counts *delta)
{
    sampler->broken[0] = '\0';
    for (int k = 0; k < sampler->node->options.max_draft; k++) {
        struct watch *watch = &sampler->watch[k];
        char text[160] = "";

        watch->reached += delta->position[k].reached;
        watch->accepted += delta->position[k].accepted;
        watch->graded += delta->position[k].graded;
        watch->predicted += delta->position[k].predicted;
        if (watch->alarmed)
            snprintf(sampler->broken, sizeof sampler->broken,
                     "position %d accepts abnormally; see decisions", k);
        if (watch->reached < WATCH_REACHED) continue;
        if (watch->accepted == 0)
            snprintf(text, sizeof text, "position %d accepted none of its last %lld drafts", k,
                     (long long)watch->reached);
        else if (watch->accepted == watch->reached && watch->graded > 0 &&
                 watch->predicted / (double)watch->graded < WATCH_PREDICTED)
            snprintf(text, sizeof text,
                     "position %d accepted all of its last %lld drafts though %.2f were predicted",
                     k, (long long)watch->reached, watch->predicted / (double)watch->graded);
        if (text[0] && !watch->alarmed)
            llama_node_event(sampler->node, "warning", "acceptance", text);
        *watch = (struct watch){.alarmed = text[0] != '\0'};
    }
}

static void judge_health(struct sampler *sampler, char *reason, size_t size)
{
    struct llama_node *node = sampler->node;
    struct store_health store = {.ok = true};

    reason[0] = '\0';
    if (node->options.store) store_get_health(node->options.store, &store);
    if (!store.ok)
        snprintf(reason, size, "store: not writing (%s)", store.reason);
    else if (sampler->broken[0])
        snprintf(reason, size, "%s", sampler->broken);
}

static void take_second(struct sampler *sampler)
{
    struct llama_node *node = sampler->node;
    struct rates_second second = {.time_ms = utc_ms()};
    struct tally_counts now;
    int64_t now_us = ticks_us();
    char reason[sizeof node->health];

    tally_copy(&node->loop->tally, &now);
    second.delta = now;
    tally_accumulate(&second.delta, &sampler->last, -1);
    second.seconds = (double)(now_us - sampler->last_us) / 1e6;
    sampler->last = now;
    sampler->last_us = now_us;
    watch_positions(sampler, &second.delta);
    judge_health(sampler, reason, sizeof reason);
    pthread_mutex_lock(&node->lock);
    second.mode = node->force.mode;
    second.fixed_draft = node->fixed_draft;
    second.running = node->running;
    rates_add(&node->rates, &second);
    node->effect_known = rates_toggle_effect(&node->rates, &node->effect);
    snprintf(node->health, sizeof node->health, "%s", reason);
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
