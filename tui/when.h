/* when.h - moments and spans of time as people write them. */
#ifndef TUI_WHEN_H
#define TUI_WHEN_H

#include <stdbool.h>
#include <stdint.h>

/* 90s 30m 24h 7d 2w in milliseconds; -1 when it is none of these. */
int64_t when_span_ms(const char *text);

/* A moment before now_ms (UTC ms): `12:04`, `12:04:31` (the last time it was that late),
 * `11-29 12:04`, `2026-11-29`, `2026-11-29 12:04[:31]`, or an age, `2h` or `-2h`; in local time, or
 * in UTC. False: it is none of these, or lies ahead. */
bool when_parse(const char *text, int64_t now_ms, bool utc, int64_t *out);

#endif
