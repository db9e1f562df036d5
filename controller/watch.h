/* watch.h - one thread that looks after exchanges that wait: it notices clients who left (a
 * suspended connection does not) and wakes streams that tick. Owns its list; an exchange is in it
 * from watch_add to watch_remove.
 */
#ifndef CONTROLLER_WATCH_H
#define CONTROLLER_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct watch;
struct exchange;

struct watch *watch_new(char **cause);
void watch_free(struct watch *watch); /* stops the thread; the list must be empty. NULL-safe */
bool watch_add(struct watch *watch,
               struct exchange *exchange); /* false when the kernel has no room */
void watch_remove(struct watch *watch,
                  struct exchange *exchange); /* waits while it is being looked at; idempotent */
/* First tick one interval from now. */
void watch_set_ticks(struct watch *watch, struct exchange *exchange, int64_t interval_ms);
void watch_wake_all(struct watch *watch);
int watch_count(struct watch *watch);

#endif
