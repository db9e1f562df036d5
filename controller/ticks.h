/* ticks.h - the two clocks: monotonic for intervals, UTC for what is stored. */
#ifndef CONTROLLER_TICKS_H
#define CONTROLLER_TICKS_H

#include <stdint.h>
#include <time.h>

static inline int64_t ticks_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Whole milliseconds, for what is due when. */
static inline int64_t monotonic_ms(void)
{
    return ticks_us() / 1000;
}

static inline double ticks_ms(void)
{
    return (double)ticks_us() / 1000.0;
}

static inline int64_t utc_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

#endif
