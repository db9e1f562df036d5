/* rpc_drive.c - drives the client of collective_rpc from a script: what it was told to do, what it
 * then knows, and its events, a line each.
 *
 * usage: rpc_drive URL COMMAND...
 *   tick        as a scrape does, and wait until that is done
 *   ticks:N     N of them, a second apart
 *   until:WORD  ticks until a line would hold WORD (a minute at most)
 *   fixed, adaptive, off, trimtab, engine   the commands
 *   unwell      its /health says so
 *   restarted   the engine is another process now
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/vllm_rpc.h"

#define WAIT_MS 45000

static const char *const states[] = {"probing", "ready", "unable", "poisoned"};

static void on_event(void *state, const char *severity, const char *kind, const char *text)
{
    (void)state;
    printf("event %s %s: %s\n", severity, kind, text);
    fflush(stdout);
}

static void put_number(FILE *out, const char *name, double value)
{
    if (isfinite(value))
        fprintf(out, " %s=%.4f", name, value);
    else
        fprintf(out, " %s=?", name);
}

static void describe(struct vllm_rpc *rpc, char *line, size_t size)
{
    struct vllm_rpc_view view;
    struct snapshot snapshot;
    FILE *out = fmemopen(line, size, "w");

    if (!out) abort();
    vllm_rpc_look(rpc, &view);
    snapshot_clear(&snapshot);
    vllm_rpc_fill(rpc, &snapshot);
    fprintf(out, "%s ranks=%d mode=%s open=%d fits=%s", states[view.state], view.ranks,
            mode_name(view.mode), view.open, view.trimtab_fits ? "trimtab" : "engine");
    put_number(out, "slope", snapshot.estimator.slope);
    put_number(out, "slope_se", snapshot.estimator.slope_se);
    put_number(out, "intercept0", snapshot.estimator.position[0].intercept);
    put_number(out, "budget", snapshot.budget);
    fprintf(out, " admitted=%lld positions=%d reason=%s", (long long)snapshot.admitted_total,
            snapshot.estimator.positions_count, view.reason);
    fclose(out);
}

/* Until everything asked for is done. */
static void wait_idle(struct vllm_rpc *rpc)
{
    struct vllm_rpc_view view = {.busy = true};

    for (int waited = 0; waited < WAIT_MS && view.busy; waited += 10) {
        usleep(10000);
        vllm_rpc_look(rpc, &view);
    }
}

static void tick(struct vllm_rpc *rpc)
{
    vllm_rpc_tick(rpc);
    wait_idle(rpc);
}

static void show(struct vllm_rpc *rpc)
{
    char line[1024];

    describe(rpc, line, sizeof line);
    printf("%s\n", line);
    fflush(stdout);
}

static void tick_until(struct vllm_rpc *rpc, const char *word)
{
    char line[1024] = "";

    for (int i = 0; i < 60 && !strstr(line, word); i++) {
        tick(rpc);
        describe(rpc, line, sizeof line);
        if (!strstr(line, word)) usleep(1050000);
    }
    printf("%s\n", line);
    fflush(stdout);
}

static void command(struct vllm_rpc *rpc, const char *word)
{
    static const char *const outcomes[] = {"refused", "done", "pending"};
    enum vllm_rpc_outcome outcome;
    enum mode mode;
    char *cause = NULL;

    if (mode_parse(word, &mode))
        outcome = vllm_rpc_set_mode(rpc, mode, WAIT_MS, &cause);
    else
        outcome = vllm_rpc_set_estimator(rpc, strcmp(word, "trimtab") == 0, WAIT_MS, &cause);
    printf("%s: %s%s%s\n", word, outcomes[outcome + 1], cause ? ": " : "", cause ? cause : "");
    fflush(stdout);
    free(cause);
}

int main(int argc, char **argv)
{
    struct remote remote = {
        .url = argc > 1 ? argv[1] : NULL, .key = getenv("RPC_KEY"), .deadline_ms = 5000};
    struct vllm_rpc_options options = {.remote = &remote, .event = on_event};
    char *cause = NULL;
    struct vllm_rpc *rpc;

    if (argc < 3) {
        fprintf(stderr, "usage: rpc_drive URL COMMAND...\n");
        return 64;
    }
    rpc = vllm_rpc_new(&options, &cause);
    if (!rpc) {
        fprintf(stderr, "rpc_drive: %s\n", cause ? cause : "out of memory");
        return 1;
    }
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "tick") == 0) {
            tick(rpc);
            show(rpc);
        } else if (strncmp(argv[i], "ticks:", 6) == 0) {
            for (int n = atoi(argv[i] + 6); n > 0; n--) {
                tick(rpc);
                if (n > 1) usleep(1050000);
            }
            show(rpc);
        } else if (strncmp(argv[i], "until:", 6) == 0) {
            tick_until(rpc, argv[i] + 6);
        } else if (strcmp(argv[i], "unwell") == 0) {
            vllm_rpc_unwell(rpc);
            wait_idle(rpc);
            show(rpc);
        } else if (strcmp(argv[i], "restarted") == 0) {
            vllm_rpc_restarted(rpc);
            wait_idle(rpc);
        } else {
            command(rpc, argv[i]);
        }
    }
    vllm_rpc_free(rpc);
    return 0;
}
