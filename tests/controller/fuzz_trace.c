/* fuzz_trace.c - the readers of recorded files against anything: teacher-forced traces in both
 * forms, records of decisions and tables of costs. Whatever comes in, they refuse it with a reason
 * that names the file, or hand out what every policy can be run on; plain and compressed are one.
 *
 * Alone it replays the corpus with deterministic damage (make check). With libFuzzer:
 *   clang -g -no-pie -fsanitize=fuzzer,address,undefined -I. -Ibuild …
 * tests/controller/fuzz_trace.c controller/{acceptance,cause,cost,cost_file,decisions,given,grade,
 * lines,parity_budget,planner,planner_regime,planner_value,replay,replay_policies,strata,trace,
 * trace_json}.c kernels/{allocate,calibration,estimator,online,parity,philox,race}.c
 * -Wl,--unresolved-symbols=ignore-all -ljansson -lz -lm && ./a.out tests/controller/corpus/trace
 */
#include "config.h"

#include <math.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "controller/decisions.h"
#include "controller/replay.h"
#include "tests/support/fuzz_replay.h"

#define LARGEST_TABLE 4096 /* sizes of a table that a replay is run on */

static const char sound_trace[] = "0 0 2 1 1 1 1 1 1\n0 1 0 1 1 1 1 1 1\n0 2 6 1 1 1 1 1 1\n"
                                  "0 3 1 1 1 1 1 1 1\n0 4 0 1 1 1 1 1 1\n";
static const char sound_table[] = "V 1 10\nV 8 12\nD 1 1\n";
static char plain[64], packed[64], sound[64]; /* files, their content rewritten for every input */
static struct trace_set *small;               /* sound_trace */
static struct cost_model *cheap;              /* sound_table */

static void make_file(char *path, size_t size)
{
    const char *folder = getenv("TMPDIR");
    int fd;

    snprintf(path, size, "%.40s/trimtab-XXXXXX", folder ? folder : "/tmp");
    fd = mkstemp(path);
    REQUIRE(fd >= 0 && close(fd) == 0);
}

static void put(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");

    REQUIRE(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static void pack(const char *path, const void *data, size_t size)
{
    gzFile file = gzopen(path, "wb1");

    REQUIRE(file && (size == 0 || gzwrite(file, data, (unsigned)size) == (int)size));
    REQUIRE(gzclose(file) == Z_OK);
}

static void remove_files(void)
{
    unlink(plain);
    unlink(packed);
    unlink(sound);
    trace_set_free(small);
    cost_free(cheap);
}

static void begin(void)
{
    char *warning, *cause = NULL;

    make_file(plain, sizeof plain);
    make_file(packed, sizeof packed);
    make_file(sound, sizeof sound);
    atexit(remove_files);
    put(sound, sound_trace, strlen(sound_trace));
    small = trace_set_new();
    REQUIRE(small && trace_read(small, sound, 0, &warning, &cause) && !warning);
    put(sound, sound_table, strlen(sound_table));
    cheap = cost_read_table(sound, &cause);
    REQUIRE(cheap);
}

/* A refusal says which file, and why. */
static void require_cause(const char *cause, const char *path)
{
    REQUIRE(cause && strncmp(cause, path, strlen(path)) == 0 && strlen(cause) > strlen(path) + 2);
}

/* Every policy walks a few steps through what was read, and time goes on. */
static void require_replay(const struct trace_set *set, const struct cost_model *cost)
{
    static const enum replay_policy policies[] = {REPLAY_PLANNER, REPLAY_PARITY, REPLAY_ORACLE};

    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        struct replay_options options = {.traces = set,
                                         .cost = cost,
                                         .concurrency = 3,
                                         .policy = policies[p],
                                         .mode = MODE_ADAPTIVE,
                                         .planner = {.max_draft = set->depth, .exploration = true},
                                         .estimator = TT_ONLINE,
                                         .refit_interval_steps = 2,
                                         .lambda = 0.1};
        struct replay *replay = replay_new(&options);
        const struct tally_counts *counts;

        REQUIRE(replay);
        for (int step = 0; step < 6; step++) {
            double ms = replay_step(replay);

            REQUIRE(isfinite(ms) && ms > 0);
        }
        counts = &replay_counts(replay)->tally;
        REQUIRE(counts->accepted >= 0 && counts->accepted <= counts->admitted);
        REQUIRE(counts->admitted <= counts->drafted && counts->emitted >= counts->steps);
        replay_free(replay);
    }
}

static void require_set(const struct trace_set *set)
{
    long tokens = 0;

    REQUIRE(set->count > 0 && set->depth >= 1 && set->depth <= TT_MAX_POSITIONS);
    for (int t = 0; t < set->count; t++) {
        const struct trace_text *text = &set->text[t];

        REQUIRE(text->length > 0 && text->temperature >= 0 && text->temperature <= 100);
        tokens += text->length;
        for (int i = 0; i < text->length; i++) {
            struct trace_index at = trace_at(set, text, i);

            REQUIRE(at.drafted >= 0 && at.drafted <= set->depth);
            REQUIRE(at.accepted >= 0 && at.accepted <= at.drafted);
            REQUIRE(at.labelled >= 0 && at.labelled <= at.drafted &&
                    i + at.labelled <= text->length);
            for (int k = 0; k < set->depth; k++) {
                REQUIRE(isnan(at.feature[k]) || fabsf(at.feature[k]) <= TRACE_FEATURE_LIMIT);
                REQUIRE(isnan(at.soft[k]) || (at.soft[k] >= 0 && at.soft[k] <= 1));
            }
        }
    }
    REQUIRE(tokens == set->tokens);
}

/* The tokens read, or -1; everything found out about the set is checked. */
static long read_trace(const char *path, bool deeply)
{
    struct trace_set *set = trace_set_new();
    char *warning = NULL, *cause = NULL;
    long tokens = -1;

    REQUIRE(set);
    if (trace_read(set, path, -1, &warning, &cause)) {
        REQUIRE(!cause && (!warning || strncmp(warning, path, strlen(path)) == 0));
        require_set(set);
        tokens = set->tokens;
        if (deeply) require_replay(set, cheap);
    } else {
        require_cause(cause, path);
    }
    free(warning);
    free(cause);
    trace_set_free(set);
    return tokens;
}

static void require_score(const struct decisions_score *score)
{
    double n = (double)score->labels;

    REQUIRE(score->labels >= 0 && score->accepted >= 0 && score->accepted <= n);
    REQUIRE(score->predicted >= 0 && score->predicted <= n);
    REQUIRE(score->squared_error >= 0 && score->squared_error <= n);
    REQUIRE(isfinite(score->log_loss) && score->log_loss >= 0);
}

static long read_record(const char *path)
{
    struct decisions decisions;
    char *warning = NULL, *cause = NULL;
    long steps = -1;

    if (decisions_read(path, &decisions, &warning, &cause)) {
        REQUIRE(!cause && isfinite(decisions.draft_ms) && isfinite(decisions.verify_ms));
        for (int kind = 0; kind < DECISIONS_KINDS; kind++)
            for (int i = 0; i < STRATA_ESTIMATORS; i++) require_score(&decisions.score[kind][i]);
        steps = decisions.steps;
    } else {
        require_cause(cause, path);
    }
    free(warning);
    free(cause);
    return steps;
}

static void read_costs(const char *path)
{
    char *cause = NULL;
    struct cost_model *cost = cost_read_table(path, &cause);
    double largest = cost ? cost_verify(cost, LARGEST_TABLE, 0) : 0;

    if (cost) {
        REQUIRE(!cause && isfinite(largest) && largest > 0);
        for (int size = 1; size <= LARGEST_TABLE; size += 1 + size / 8)
            REQUIRE(cost_verify(cost, size, 0) > 0 && isfinite(cost_verify(cost, size, 3)));
        (void)cost_flat(cost);
        json_decref(cost_to_json(cost));
        if (isfinite(cost_draft(cost, 1))) require_replay(small, cost);
        cost_free(cost);
    } else {
        require_cause(cause, path);
    }
    free(cause);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!small) begin();
    put(plain, data, size);
    pack(packed, data, size);
    REQUIRE(read_trace(plain, true) == read_trace(packed, false));
    REQUIRE(read_record(plain) == read_record(packed));
    read_costs(plain);
    return 0;
}

const struct fuzz_corpus fuzz_corpus = {.folder = "controller/corpus/trace",
                                        FUZZ_SPICE("{}[]\",:\n\r\t 0159-+.eExVD#nif\x00\xff"),
                                        .least = 15};
