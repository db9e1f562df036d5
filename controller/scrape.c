/* scrape.c - see scrape.h. */
#include "config.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#include "controller/cause.h"
#include "controller/scrape.h"
#include "controller/ticks.h"

#define POLL_MOST_MS 1000
#define IDLE_CONNECTIONS 4096L /* kept open, of all targets */

struct scrape_target {
    struct fetch *fetch;
    scrape_done *done;
    void *state;
    struct scrape_next next;
    int64_t due_us; /* when `next` is asked; the thread's alone, as is `running` */
    bool fresh;     /* not asked what to do yet */
    bool running;
    bool leaving; /* under the scraper's lock */
    struct scrape_target *after;
};

struct scraper {
    CURLM *multi;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* guards the list, `leaving` and `stop` */
    pthread_cond_t left;  /* a target was taken off the list */
    struct scrape_target *first;
    bool stop;
};

static void ask_owner(struct scrape_target *target, const struct fetch_answer *answer)
{
    target->done(target->state, answer, &target->next);
    target->due_us = ticks_us() + target->next.wait_ms * 1000;
}

static void start(struct scraper *scraper, struct scrape_target *target)
{
    fetch_begin(target->fetch, target->next.path, target->next.limit);
    curl_easy_setopt(fetch_handle(target->fetch), CURLOPT_PRIVATE, target);
    target->running =
        curl_multi_add_handle(scraper->multi, fetch_handle(target->fetch)) == CURLM_OK;
    if (!target->running) target->due_us = ticks_us() + POLL_MOST_MS * 1000;
}

/* Take off and free what is leaving. Under the lock. */
static void drop_leaving(struct scraper *scraper)
{
    struct scrape_target **link = &scraper->first;
    bool any = false;

    while (*link) {
        struct scrape_target *target = *link;

        if (!target->leaving) {
            link = &target->after;
            continue;
        }
        *link = target->after;
        if (target->running) curl_multi_remove_handle(scraper->multi, fetch_handle(target->fetch));
        fetch_free(target->fetch);
        free(target);
        any = true;
    }
    if (any) pthread_cond_broadcast(&scraper->left);
}

/* Start what is due; milliseconds until the next is. Owners are asked without the lock: only this
 * thread takes targets off, so `target->after` stays. */
static int run_due(struct scraper *scraper)
{
    int64_t now = ticks_us(), wait = (int64_t)POLL_MOST_MS * 1000;
    struct scrape_target *target;

    pthread_mutex_lock(&scraper->lock);
    drop_leaving(scraper);
    target = scraper->first;
    pthread_mutex_unlock(&scraper->lock);
    for (; target; target = target->after) {
        if (target->running) continue;
        if (target->fresh) {
            target->fresh = false;
            ask_owner(target, NULL);
        }
        if (target->due_us <= now)
            start(scraper, target);
        else if (target->due_us - now < wait)
            wait = target->due_us - now;
    }
    return (int)((wait + 999) / 1000);
}

static void finish(struct scraper *scraper)
{
    const struct CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(scraper->multi, &left))) {
        struct scrape_target *target = NULL;
        struct fetch_answer answer;

        if (message->msg != CURLMSG_DONE) continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&target);
        fetch_end(target->fetch, message->data.result, &answer);
        curl_multi_remove_handle(scraper->multi, fetch_handle(target->fetch));
        target->running = false;
        ask_owner(target, &answer);
    }
}

static void *scrape_run(void *state)
{
    struct scraper *scraper = state;
    bool stop = false;

    while (!stop) {
        int running, wait_ms = run_due(scraper);

        curl_multi_poll(scraper->multi, NULL, 0, wait_ms, NULL); /* at once for what just began */
        curl_multi_perform(scraper->multi, &running);
        finish(scraper);
        pthread_mutex_lock(&scraper->lock);
        stop = scraper->stop;
        pthread_mutex_unlock(&scraper->lock);
    }
    return NULL;
}

static bool start_thread(struct scraper *scraper)
{
    sigset_t all, before;

    sigfillset(&all); /* signals belong to the main thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    scraper->started = pthread_create(&scraper->thread, NULL, scrape_run, scraper) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return scraper->started;
}

struct scraper *scraper_new(char **cause)
{
    struct scraper *scraper = calloc(1, sizeof *scraper);

    if (scraper) {
        pthread_mutex_init(&scraper->lock, NULL);
        pthread_cond_init(&scraper->left, NULL);
        scraper->multi = curl_multi_init();
        if (scraper->multi) {
            curl_multi_setopt(scraper->multi, CURLMOPT_MAXCONNECTS, IDLE_CONNECTIONS);
            if (start_thread(scraper)) return scraper;
        }
    }
    cause_set(cause, "cannot start the thread that asks the nodes");
    scraper_free(scraper);
    return NULL;
}

void scraper_stop(struct scraper *scraper)
{
    if (!scraper->started) return;
    pthread_mutex_lock(&scraper->lock);
    scraper->stop = true;
    pthread_mutex_unlock(&scraper->lock);
    curl_multi_wakeup(scraper->multi);
    pthread_join(scraper->thread, NULL);
    scraper->started = false;
}

void scraper_free(struct scraper *scraper)
{
    if (!scraper) return;
    scraper_stop(scraper);
    if (scraper->multi) curl_multi_cleanup(scraper->multi);
    pthread_mutex_destroy(&scraper->lock);
    pthread_cond_destroy(&scraper->left);
    free(scraper);
}

struct scrape_target *scraper_add(struct scraper *scraper, const struct remote *remote,
                                  scrape_done *done, void *state, char **cause)
{
    struct scrape_target *target = calloc(1, sizeof *target);

    if (!target) {
        cause_set(cause, "out of memory");
        return NULL;
    }
    target->fetch = fetch_new(remote, cause);
    if (!target->fetch) {
        free(target);
        return NULL;
    }
    target->done = done;
    target->state = state;
    target->fresh = true;
    pthread_mutex_lock(&scraper->lock);
    target->after = scraper->first;
    scraper->first = target;
    pthread_mutex_unlock(&scraper->lock);
    curl_multi_wakeup(scraper->multi);
    return target;
}

static bool is_listed(const struct scraper *scraper, const struct scrape_target *target)
{
    const struct scrape_target *at = scraper->first;

    while (at && at != target) at = at->after;
    return at != NULL;
}

void scraper_remove(struct scraper *scraper, struct scrape_target *target)
{
    if (!target) return;
    pthread_mutex_lock(&scraper->lock);
    target->leaving = true;
    if (!scraper->started) drop_leaving(scraper);
    curl_multi_wakeup(scraper->multi);
    while (is_listed(scraper, target)) pthread_cond_wait(&scraper->left, &scraper->lock);
    pthread_mutex_unlock(&scraper->lock);
}
