/* api_common.h - what the handlers of the control API share. Internal to controller/api*.c. */
#ifndef CONTROLLER_API_COMMON_H
#define CONTROLLER_API_COMMON_H

#include "controller/exchange.h"

/* The node of the path, or NULL with the reply filled (404). */
struct node *api_find_node(struct exchange *exchange);

/* Query argument `name` into *value, which keeps its default when the argument is absent. False
 * with the reply filled (400) when it is no integer in [low, high]. */
bool api_integer_argument(struct exchange *exchange, const char *name, int64_t low, int64_t high,
                          int64_t *value);

/* A reader of the store, or NULL with the reply filled (503). */
struct reader *api_open_store(struct exchange *exchange);

#define API_TIME_MAX_MS (INT64_C(1) << 53) /* of a time argument: exact in every JSON reader */

#endif
