/* collector.h - fetches from the daemon in threads of its own, so that drawing and `q` never wait
 * for a network.
 *
 * Two threads, one reads and one sends commands, each with its own client. News waits in one place
 * a kind (the latest replaces what was not taken: memory stays flat while the screen is suspended)
 * and is announced through a descriptor.
 */
#ifndef TUI_COLLECTOR_H
#define TUI_COLLECTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "controller/client.h"
#include "tui/ui.h"

struct collector;

enum news_kind {
    NEWS_NODES,
    NEWS_SNAPSHOT,
    NEWS_HISTORY,
    NEWS_REQUESTS,
    NEWS_DECISIONS,
    NEWS_CALIBRATION,
    NEWS_COST,
    NEWS_SETTINGS,
    NEWS_PAST,
    NEWS_PAST_HISTORY,
    NEWS_ANSWER,
    NEWS_KINDS
};

struct news {
    enum news_kind kind;
    char node[SNAPSHOT_NAME]; /* whose it is; empty for NODES */
    json_t *json;             /* the document; NULL for ANSWER, and when it could not be fetched */
    char *text;               /* why it could not be fetched, or why an ANSWER is not OK */
    enum answer answer;
    int64_t generation;
};

struct wishes {               /* what the screen wants to know */
    char node[SNAPSHOT_NAME]; /* empty = the daemon's first */
    enum view view;
    int64_t interval_ms, window_ms;
    int64_t at_ms; /* the moment that is looked at; 0 = now */
};

/* Starts the threads. NULL with *cause (malloc'd): bad address or token file, no threads. */
struct collector *collector_new(const struct client_options *options, const struct wishes *wishes,
                                char **cause);
/* Stops both threads within 100 ms, whatever they wait for. NULL-safe. */
void collector_free(struct collector *collector);
const char *collector_address(const struct collector *collector);

int collector_descriptor(const struct collector *collector); /* readable when there is news */
bool collector_take(struct collector *collector,
                    struct news *out); /* false: nothing more; the caller clears */
void news_clear(struct news *news);

/* anew: fetch everything at once, not when it is due. */
void collector_wish(struct collector *collector, const struct wishes *wishes, bool anew);
void collector_command(struct collector *collector, const struct ui_command *command);

/* The path of the history that the charts need, up to and without to_ms, with the series of the
 * first `positions` positions, which only the positions view draws; malloc'd, NULL when out of
 * memory. For --once too. */
char *collector_history_path(const char *node, int64_t to_ms, int64_t window_ms, int positions);

#endif
