/* session.h - what every verb does first: find the daemon, ask it, and say clearly when there is
 * none. */
#ifndef TUI_SESSION_H
#define TUI_SESSION_H

#include <jansson.h>

#include "controller/client.h"
#include "controller/snapshot.h"
#include "tui/options.h"

/* The client's options: --socket or URL, else $TRIMTAB_SOCKET, else the default; deadline_ms 0 =
 * the default. */
struct client_options session_client_options(const struct options *options, int deadline_ms);
/* NULL after a message on stderr; *status is the exit status then. */
struct client *session_open(const struct options *options, int deadline_ms, int *status);
/* GET. NULL after a message on stderr; *status is EXIT_UNREACHABLE or EXIT_DEGRADED. */
json_t *session_get(struct client *client, const char *path, int *status);
/* What no node can be called is refused before anything is asked, with EXIT_USAGE. */
json_t *session_get_of_node(struct client *client, const char *node, const char *rest, int *status);
int session_get_snapshot(struct client *client, const char *node, struct snapshot *out,
                         json_t **document, int *status);
/* Say why a call failed; returns the exit status. */
int session_complain(const struct client *client, enum client_status failed,
                     const struct client_reply *reply);
/* The node to use: `name`, or the daemon's first; malloc'd. NULL after a message that lists what
 * there is. */
char *session_choose_node(const json_t *nodes, const char *name, int *status);
/* trimtab: SENTENCE on stderr, made safe for a terminal. */
void session_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* EXIT_HEALTHY or EXIT_DEGRADED. */
int session_health(const struct snapshot *snapshot);
void session_sleep_ms(int64_t ms);

/* What the last change of mode did, in one line: `fixed to adaptive at 14:07:00: 348 to 412 tok/s,
 * +18.4 % (95 % +15..+22), step 24.9 to 23.2 ms, 300 s each side`; NULL when nothing is known. */
const char *session_effect(const struct snapshot *snapshot, bool utc, char *out, size_t size);

#endif
