/* verb_ab.c - ab: is adaptive faster than fixed on this node, now? Windows of both by turns, in
 * pairs whose order alternates, and the mean ratio of a pair with its 95 % interval. See verbs.h.
 *
 * The mode that was in force comes back whatever ends the run; the verdict goes into the decision
 * log as the reason of that last change. Ratios are compared as logarithms, by the paired t test:
 * what drifts slower than a pair cancels.
 */
#include "config.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "controller/json_number.h"
#include "controller/ticks.h"
#include "tui/session.h"
#include "tui/verbs.h"

enum {
    PAIRS_LEAST = 2,
    PAIRS_MAX = 4096,
    SAMPLE_MS = 1000,
    NAP_MS = 200,
    SETTLE_SHARE = 5, /* of a window: what a switch disturbs is not measured */
};

struct window {
    double tps, step_ms;
    bool valid; /* something was emitted, and the node did not restart */
};

struct pair {
    struct window fixed, adaptive;
};

struct effect { /* adaptive against fixed */
    int pairs;
    double fixed, adaptive; /* means */
    double gain, low, high; /* ratio - 1 with its 95 % interval; NaN = unknown */
};

struct run {
    const struct options *options;
    const char *node;
    struct client *client;
    struct snapshot before; /* as the node was found */
    int64_t generation;     /* of our last change */
    bool changed;           /* the mode is ours to put back */
    int windows, done;
    int64_t window_ms;
    struct pair *pair;
    int pairs;
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    stopped = number;
}

/* ---------------------------------------------------------------------------------- the verdict */

/* Two-sided 95 % quantile of Student's t: exact to 0.5 % (Cornish-Fisher in 1/df; table below 5).
 */
static double t_quantile(int df)
{
    static const double few[] = {NAN, 12.706, 4.303, 3.182, 2.776};
    double z = 1.959964, z3 = z * z * z, z5 = z3 * z * z;

    if (df < 1) return NAN;
    if (df < 5) return few[df];
    return z + (z3 + z) / (4.0 * df) + (5 * z5 + 16 * z3 + 3 * z) / (96.0 * df * df);
}

static struct effect compare(const struct pair *pair, int pairs, bool steps)
{
    struct effect effect = {.gain = NAN, .low = NAN, .high = NAN};
    double sum = 0, squares = 0, half;

    for (int i = 0; i < pairs; i++) {
        double fixed = steps ? pair[i].fixed.step_ms : pair[i].fixed.tps;
        double adaptive = steps ? pair[i].adaptive.step_ms : pair[i].adaptive.tps;

        if (!pair[i].fixed.valid || !pair[i].adaptive.valid || !(fixed > 0) || !(adaptive > 0))
            continue;
        effect.pairs++;
        effect.fixed += fixed;
        effect.adaptive += adaptive;
        sum += log(adaptive / fixed);
        squares += log(adaptive / fixed) * log(adaptive / fixed);
    }
    if (effect.pairs == 0) return effect;
    effect.fixed /= effect.pairs;
    effect.adaptive /= effect.pairs;
    effect.gain = exp(sum / effect.pairs) - 1;
    if (effect.pairs < PAIRS_LEAST) return effect;
    half = t_quantile(effect.pairs - 1) *
           sqrt(fmax(0, squares - sum * sum / effect.pairs) / (effect.pairs - 1) / effect.pairs);
    effect.low = exp(sum / effect.pairs - half) - 1;
    effect.high = exp(sum / effect.pairs + half) - 1;
    return effect;
}

static void print_effect(const char *name, const struct effect *effect, char *out, size_t size)
{
    if (effect->pairs == 0)
        snprintf(out, size, "%s unknown", name);
    else if (isnan(effect->low))
        snprintf(out, size, "%s fixed %.4g, adaptive %.4g, %+.1f %%", name, effect->fixed,
                 effect->adaptive, effect->gain * 100);
    else
        snprintf(out, size, "%s fixed %.4g, adaptive %.4g, %+.1f %% [%+.1f, %+.1f]", name,
                 effect->fixed, effect->adaptive, effect->gain * 100, effect->low * 100,
                 effect->high * 100);
}

static json_t *effect_to_json(const struct effect *effect)
{
    return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "pairs", effect->pairs, "fixed",
                     json_number(effect->pairs > 0 ? effect->fixed : NAN), "adaptive",
                     json_number(effect->pairs > 0 ? effect->adaptive : NAN), "gain",
                     json_number(effect->gain), "gain_low", json_number(effect->low), "gain_high",
                     json_number(effect->high));
}

static int report(const struct run *run, const struct effect *tokens, const struct effect *steps,
                  bool restored)
{
    char line[200];

    if (run->options->json) {
        json_t *object = json_pack(
            "{s:s, s:s, s:i, s:i, s:i, s:o, s:o, s:s, s:b}", "schema", "trimtab.ab/1", "node",
            run->node, "window_s", (int)(run->window_ms / 1000), "pairs", run->pairs, "pairs_used",
            tokens->pairs, "throughput_tps", effect_to_json(tokens), "step_ms",
            effect_to_json(steps), "mode", mode_name(run->before.mode), "restored", (int)restored);

        if (object == NULL || json_dumpf(object, stdout, JSON_INDENT(2)) != 0) {
            json_decref(object);
            return EXIT_DEGRADED;
        }
        printf("\n");
        json_decref(object);
    } else {
        printf("%s: adaptive against fixed, %d of %d pairs of %d s windows\n", run->node,
               tokens->pairs, run->pairs, (int)(run->window_ms / 1000));
        print_effect("  tok/s  ", tokens, line, sizeof line);
        printf("%s\n", line);
        print_effect("  step ms", steps, line, sizeof line);
        printf("%s\n", line);
        if (restored) printf("  %s is in force again\n", mode_name(run->before.mode));
    }
    return EXIT_HEALTHY;
}

/* -------------------------------------------------------------------------------- one window */

static void show_progress(const struct run *run, const char *what)
{
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[Kwindow %d of %d: %s", run->done + 1, run->windows, what);
    fflush(stderr);
}

static void end_progress(void)
{
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K");
}

/* False when the run shall stop. */
static bool rest(int64_t until_ms)
{
    while (!stopped && monotonic_ms() < until_ms) {
        int64_t left = until_ms - monotonic_ms();

        session_sleep_ms(left < NAP_MS ? left : NAP_MS);
    }
    return !stopped;
}

static int switch_to(struct run *run, enum mode mode, const char *reason)
{
    struct snapshot snapshot = {0};
    int64_t generation;
    int status =
        control_put_mode(run->client, run->node, mode, run->generation, reason, &generation);

    if (status != EXIT_HEALTHY) return status;
    run->changed = true;
    run->generation = generation;
    status = control_read_back(run->client, run->node, mode, generation, &snapshot);
    if (status == EXIT_HEALTHY)
        run->generation = snapshot.generation;
    else if (snapshot.generation > generation)
        run->changed = false; /* another's choice now: it stays */
    return status;
}

/* Between two snapshots: by our own clock, but the counters of an engine elsewhere are of when it
 * was read. */
static int64_t spent_between(const struct snapshot *first, const struct snapshot *last,
                             int64_t own_ms)
{
    return first->read_ms > 0 && last->read_ms > 0 ? last->read_ms - first->read_ms : own_ms;
}

/* What the counters and the node's own step time say between two moments. */
static void conclude(const struct snapshot *first, const struct snapshot *last, int64_t own_ms,
                     double step_sum, int step_samples, struct window *out)
{
    int64_t emitted = last->emitted_total - first->emitted_total,
            steps = last->steps - first->steps, spent_ms = spent_between(first, last, own_ms);

    *out = (struct window){.tps = NAN, .step_ms = NAN};
    if (first->emitted_total < 0 || emitted <= 0 || spent_ms <= 0) return;
    if (first->restarts != last->restarts) return;
    out->valid = true;
    out->tps = (double)emitted * 1000 / (double)spent_ms;
    if (step_samples > 0)
        out->step_ms = step_sum / step_samples;
    else if (first->steps >= 0 && steps > 0)
        out->step_ms = (double)spent_ms / (double)steps;
}

static int measure(struct run *run, enum mode mode, struct window *out)
{
    struct snapshot first, last;
    int64_t began_ms, end_ms;
    double step_sum = 0;
    int step_samples = 0, status;
    char reason[96];

    *out = (struct window){.tps = NAN, .step_ms = NAN};
    snprintf(reason, sizeof reason, "trimtab ab: window %d of %d", run->done + 1, run->windows);
    show_progress(run, "switching");
    status = switch_to(run, mode, reason);
    if (status != EXIT_HEALTHY) return status;
    show_progress(run, mode_name(mode));
    end_ms = monotonic_ms() + run->window_ms;
    if (!rest(monotonic_ms() + run->window_ms / SETTLE_SHARE)) return EXIT_DEGRADED;
    if (session_get_snapshot(run->client, run->node, &first, NULL, &status) != 0) return status;
    began_ms = monotonic_ms();
    last = first;
    while (monotonic_ms() < end_ms) {
        if (!rest(monotonic_ms() + SAMPLE_MS < end_ms ? monotonic_ms() + SAMPLE_MS : end_ms))
            return EXIT_DEGRADED;
        if (session_get_snapshot(run->client, run->node, &last, NULL, &status) != 0) return status;
        if (last.generation != run->generation) {
            run->changed = false;
            session_say("somebody else changed %s: the comparison ends, their choice stays",
                        run->node);
            return EXIT_DEGRADED;
        }
        if (last.mode != mode && last.mode != MODE_UNKNOWN && !last.switching) {
            session_say(
                "%s went back to %s by itself: the comparison ends; trimtab query decisions "
                "says why",
                run->node, mode_name(last.mode));
            return EXIT_DEGRADED;
        }
        if (last.step_ms > 0) {
            step_sum += last.step_ms;
            step_samples++;
        }
    }
    conclude(&first, &last, monotonic_ms() - began_ms, step_sum, step_samples, out);
    run->done++;
    return EXIT_HEALTHY;
}

/* ---------------------------------------------------------------------------------- the whole */

static int compare_by_turns(struct run *run)
{
    for (int i = 0; i < run->windows / 2; i++) {
        bool fixed_first = i % 2 == 0;
        struct pair *pair = &run->pair[i];
        int status = measure(run, fixed_first ? MODE_FIXED : MODE_ADAPTIVE,
                             fixed_first ? &pair->fixed : &pair->adaptive);

        if (status == EXIT_HEALTHY)
            status = measure(run, fixed_first ? MODE_ADAPTIVE : MODE_FIXED,
                             fixed_first ? &pair->adaptive : &pair->fixed);
        if (status != EXIT_HEALTHY) return status;
        run->pairs++;
    }
    return EXIT_HEALTHY;
}

/* The mode as it was found, with the verdict as its reason. */
static bool put_back(struct run *run, const struct effect *tokens, const struct effect *steps)
{
    char reason[CLIENT_REASON_MAX], first[160], second[160];

    if (!run->changed) return false;
    print_effect("tok/s", tokens, first, sizeof first);
    print_effect("step ms", steps, second, sizeof second);
    snprintf(reason, sizeof reason, "trimtab ab, %d pairs of %d s: %s; %s", tokens->pairs,
             (int)(run->window_ms / 1000), first, second);
    if (switch_to(run, run->before.mode, reason) == EXIT_HEALTHY) return true;
    session_say("the mode was not put back; do it with: trimtab mode %s %s", run->node,
                mode_name(run->before.mode));
    return false;
}

/* May this be done here at all? Asked before anything is changed. */
static int check_allowed(struct run *run)
{
    int status = EXIT_DEGRADED;
    json_t *nodes = session_get(run->client, "/api/v1/nodes", &status);
    bool read_only = json_is_true(json_object_get(nodes, "read_only"));

    json_decref(nodes);
    if (nodes == NULL) return status;
    if (read_only) {
        session_say("ab changes the node's mode, which needs the socket's owner, or the write "
                    "token: --token-file FILE; nothing was changed");
        return EXIT_DEGRADED;
    }
    if (session_get_snapshot(run->client, run->node, &run->before, NULL, &status) != 0)
        return status;
    if (strstr(run->before.node.capabilities, "mode") == NULL) {
        session_say("%s cannot be switched: %s", run->node,
                    run->before.node.unable[0] != '\0' ? run->before.node.unable
                                                       : "trimtab status says how it is");
        return EXIT_DEGRADED;
    }
    if (run->before.mode == MODE_UNKNOWN) {
        session_say("%s does not tell its mode now, which is to be put back; try again when it "
                    "answers",
                    run->node);
        return EXIT_DEGRADED;
    }
    run->generation = run->before.generation;
    return EXIT_HEALTHY;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

int verb_ab(const struct options *options)
{
    struct run run = {.options = options, .node = options->words[0]};
    struct effect tokens, steps;
    bool restored;
    int status = EXIT_USAGE, reported;

    run.window_ms = options->window_s * 1000;
    run.windows = (int)(options->minutes * 60000 / run.window_ms) / 2 * 2;
    if (run.windows < 2 * PAIRS_LEAST || run.windows > 2 * PAIRS_MAX) {
        session_say("%lld minutes hold %d windows of %lld s; a comparison needs 4 to %d: choose "
                    "--minutes and --window so",
                    (long long)options->minutes, run.windows, (long long)options->window_s,
                    2 * PAIRS_MAX);
        return EXIT_USAGE;
    }
    run.client = session_open(options, CONTROL_DEADLINE_MS, &status);
    if (run.client == NULL) return status;
    run.pair = calloc((size_t)run.windows / 2, sizeof *run.pair);
    status = run.pair != NULL ? check_allowed(&run) : EXIT_DEGRADED;
    if (status == EXIT_HEALTHY) {
        catch_signals();
        status = compare_by_turns(&run);
        end_progress();
        if (stopped) session_say("stopped after %d of %d windows", run.done, run.windows);
        tokens = compare(run.pair, run.pairs, false);
        steps = compare(run.pair, run.pairs, true);
        restored = put_back(&run, &tokens, &steps);
        reported = report(&run, &tokens, &steps, restored);
        if (status == EXIT_HEALTHY) status = restored ? reported : EXIT_DEGRADED;
        if (status == EXIT_HEALTHY && tokens.pairs < PAIRS_LEAST) {
            session_say("nothing was generated in most windows: no verdict; try it under load");
            status = EXIT_DEGRADED;
        }
    }
    free(run.pair);
    client_free(run.client);
    return status;
}
