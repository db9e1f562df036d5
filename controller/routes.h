/* routes.h - the paths of the front and who answers them (exchange.h says how a handler answers).
 */
#ifndef CONTROLLER_ROUTES_H
#define CONTROLLER_ROUTES_H

#include <stddef.h>

#include "controller/exchange.h"

/* The route of a path and a method; fills the exchange's segments. NULL: *allow is NULL when no
 * route has this path, else the methods that it takes (static text). */
const struct route *routes_find(const char *method, const char *path, struct exchange *exchange,
                                const char **allow);

/* The i-th route, NULL beyond the last (for documentation tests). */
const struct route *routes_at(size_t i);

#endif
