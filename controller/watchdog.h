/* watchdog.h - speculation that is broken although the engine notices nothing: seen in what a
 * second counted, said once, and taken back when it is over.
 *
 * Five things are watched, each over a number of outcomes and not of seconds: a reached position
 * that accepts none of 200, or all of 200 though it was predicted below 0.9 (vllm-ascend 13470);
 * acceptance far below what was predicted (vllm 54011); predictions that are off by more than
 * chance and by enough to matter; step times far from what the cost table predicted (vllm 52057);
 * throughput far below the plan's. Falling back is the planner's: it goes by predicted and measured
 * value (planner_regime.c). Pure; the sampler's.
 */
#ifndef CONTROLLER_WATCHDOG_H
#define CONTROLLER_WATCHDOG_H

#include <stdbool.h>

#include "controller/tally.h"

#define WATCHDOG_FINDINGS (TT_MAX_POSITIONS + 4) /* most of one second */

struct watchdog_finding { /* an event of the store */
    const char *severity, *kind;
    char text[160], numbers[160]; /* numbers: a JSON object */
};

struct watchdog_position { /* since its last verdict */
    int64_t reached, accepted, graded;
    double predicted;
    bool alarmed;
};

struct watchdog {
    int positions;
    struct watchdog_position position[TT_MAX_POSITIONS];
    struct {
        int64_t graded, accepted;
        double predicted;
        bool alarmed;
    } acceptance;
    struct {
        int64_t steps;
        double predicted_ms, priced_ms, missed_ms;
        int bad; /* verdicts in a row */
        bool alarmed;
    } cost;
    struct {
        double graded, accepted, predicted, squared_error;
        int bad; /* verdicts in a row */
        bool alarmed;
    } calibration;
    struct {
        double steps, emitted, step_ms, planned_tokens, planned_ms, prompt_tokens, target_rows;
        int bad;
        bool alarmed;
    } throughput;
    /* What stands now, for the health line, and what to try; "" = nothing. */
    char reason[160], advice[160];
};

void watchdog_init(struct watchdog *watchdog, int positions);
/* One more second. Fills finding (WATCHDOG_FINDINGS), returns how many. */
int watchdog_second(struct watchdog *watchdog, const struct tally_counts *delta,
                    struct watchdog_finding *finding);

#endif
