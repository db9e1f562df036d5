/* work.h - a few threads for what may wait (tokenizing a long prompt, reading the store), so that
 * the threads which serve every connection never do.
 */
#ifndef CONTROLLER_WORK_H
#define CONTROLLER_WORK_H

#include <stdbool.h>

struct work;
struct exchange;

/* `run` is called on one of `threads` threads for every exchange given. NULL with *cause. */
struct work *work_new(int threads, void (*run)(struct exchange *exchange), char **cause);
bool work_add(struct work *work, struct exchange *exchange); /* false once closed */
void work_close(struct work *work); /* refuses more, finishes what was given, ends the threads */
void work_free(struct work *work);  /* closes; nobody may call work_add any more. NULL-safe */

#endif
