/* replay.c - see replay.h. Owns the traces' text and the virtual clock. */
#include "config.h"

#include "tests/controller/replay.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/planner.h"
#include "kernels/trimtab.h"

#define TEXTS_MAX 256
#define STREAMS_MAX 64

struct line {
    int confirmed; /* drafts from here that equal the text */
    float feature[REPLAY_DEPTH];
};

struct text {
    struct line *line;
    int length, capacity;
};

struct replay_traces {
    struct text text[TEXTS_MAX];
    int count;
    long tokens;
};

struct replay_traces *replay_traces_new(void)
{
    return calloc(1, sizeof(struct replay_traces));
}

void replay_traces_free(struct replay_traces *traces)
{
    if (!traces) return;
    for (int t = 0; t < traces->count; t++) free(traces->text[t].line);
    free(traces);
}

static bool text_append(struct text *text, const struct line *line)
{
    if (text->length == text->capacity) {
        int capacity = text->capacity ? 2 * text->capacity : 128;
        struct line *grown = realloc(text->line, (size_t)capacity * sizeof *grown);
        if (!grown) return false;
        text->line = grown;
        text->capacity = capacity;
    }
    text->line[text->length++] = *line;
    return true;
}

static bool read_lines(struct replay_traces *traces, FILE *file, const char *path)
{
    char buffer[256];
    int last = -1;
    for (int number = 1; fgets(buffer, sizeof buffer, file); number++) {
        struct line line;
        int text, index;
        if (sscanf(buffer, "%d %d %d %f %f %f %f %f %f", &text, &index, &line.confirmed,
                   &line.feature[0], &line.feature[1], &line.feature[2], &line.feature[3],
                   &line.feature[4], &line.feature[5]) != 9 ||
            line.confirmed < 0 || line.confirmed > REPLAY_DEPTH) {
            fprintf(stderr, "%s:%d: expected `text i m f0 f1 f2 f3 f4 f5`\n", path, number);
            return false;
        }
        if (text != last) {
            if (traces->count == TEXTS_MAX) {
                fprintf(stderr, "%s:%d: more than %d texts\n", path, number, TEXTS_MAX);
                return false;
            }
            traces->text[traces->count++] = (struct text){0};
            last = text;
        }
        struct text *current = &traces->text[traces->count - 1];
        if (index != current->length || !text_append(current, &line)) {
            fprintf(stderr, "%s:%d: index %d out of turn, or out of memory\n", path, number, index);
            return false;
        }
        traces->tokens++;
    }
    return last >= 0;
}

bool replay_traces_add(struct replay_traces *traces, const char *path)
{
    char command[4096];
    if (strchr(path, '\'') ||
        snprintf(command, sizeof command, "gzip -dc '%s'", path) >= (int)sizeof command) {
        fprintf(stderr, "%s: a path this program cannot quote\n", path);
        return false;
    }
    FILE *file = popen(command, "r");
    if (!file) return false;
    bool ok = read_lines(traces, file, path);
    if (pclose(file) != 0 || !ok) {
        fprintf(stderr, "%s: cannot be read\n", path);
        return false;
    }
    return true;
}

/* ---- clock ---- */

struct stream {
    int text, index;
    int behind; /* tokens that the draft model has not read */
    bool drafted;
    int admitted, accepted;
    float feature[REPLAY_DEPTH], predicted[REPLAY_DEPTH];
};

struct session {
    const struct replay_traces *traces;
    const struct cost_model *cost;
    const struct replay_run *run;
    struct planner *planner;
    tt_estimator *estimator;
    struct stream stream[STREAMS_MAX];
    struct replay_result result;
    uint64_t measurements;
};

static const struct line *stream_line(const struct session *session, const struct stream *stream)
{
    return &session->traces->text[stream->text].line[stream->index];
}

static void stream_place(struct session *session, int r)
{
    /* Streams start in different texts and at different places, as arrivals do. */
    struct stream *stream = &session->stream[r];
    stream->text = (int)((long)r * 7 % session->traces->count);
    stream->behind = session->run->catch_up > 1 ? session->run->catch_up : 1;
    stream->index = r * 13 % session->traces->text[stream->text].length;
}

static void stream_advance(struct session *session, struct stream *stream)
{
    int most = session->run->catch_up;
    bool drafted = stream->drafted;
    stream->behind = drafted ? 1 + (stream->accepted == stream->admitted && stream->admitted > 0)
                             : stream->behind + 1;
    if (stream->behind > most) stream->behind = most > 1 ? most : 1;
    stream->index += stream->accepted + 1;
    if (stream->index < session->traces->text[stream->text].length) return;
    stream->text = (stream->text + 1) % session->traces->count;
    stream->index = 0;
    stream->behind = most > 1 ? most : 1;
}

/* What a clock would show for a forward pass that takes ms. */
static double measured(struct session *session, double ms)
{
    double noise = session->run->noise;
    if (noise <= 0) return ms;
    double u = tt_uniform(11, session->measurements++, 0, TT_DRAFT);
    double spike = tt_uniform(11, session->measurements, 1, TT_DRAFT) < 0.02 ? 3 : 1;
    return ms * (1 + noise * (2 * u - 1)) * spike;
}

/* The draft forward of one depth: tokens read, time taken. */
static double forward_ms(struct session *session, int depth, const int *rows, int live)
{
    int tokens = 0;
    for (int i = 0; i < live; i++) {
        struct stream *stream = &session->stream[rows[i]];
        tokens += depth == 0 ? stream->behind : 1;
        stream->drafted = true;
    }
    double ms = measured(session, cost_draft(session->cost, tokens));
    if (session->run->learned) cost_observe_draft(session->run->learned, tokens, ms);
    return ms;
}

/* Drafts of one depth: features, predictions, admission. */
static void draft_depth(struct session *session, int depth, const int *rows, int live)
{
    double probability[STREAMS_MAX];
    uint8_t admit[STREAMS_MAX];
    for (int i = 0; i < live; i++) {
        struct stream *stream = &session->stream[rows[i]];
        stream->feature[depth] = stream_line(session, stream)->feature[depth];
        int status = tt_estimator_predict(session->estimator, depth, &stream->feature[depth], 1,
                                          &probability[i]);
        assert(status == 0);
        (void)status;
        stream->predicted[depth] = (float)probability[i];
    }
    planner_admit(session->planner, depth, probability, admit);
    for (int i = 0; i < live; i++) session->stream[rows[i]].admitted += admit[i];
    session->result.drafted += live;
}

static void observe(struct session *session, const struct stream *stream)
{
    struct tt_observation observation = {.feature = stream->feature,
                                         .predicted = stream->predicted,
                                         .admitted = stream->admitted,
                                         .accepted = stream->accepted};
    if (stream->admitted == 0) return;
    int status = tt_estimator_observe(session->estimator, &observation);
    assert(status == 0);
    (void)status;
}

static void count_step(struct session *session, const struct planner_report *report, double ms,
                       int admitted)
{
    struct replay_result *result = &session->result;
    int from, to;
    double gain;
    result->steps++;
    result->ms += ms;
    result->plain_steps += admitted == 0;
    if (!strcmp(report->why, "probe")) {
        result->probes++;
        result->probe_ms += ms - cost_verify(session->cost, session->run->concurrency, 0);
    }
    result->explored += !strcmp(report->why, "explore");
    result->regime_changes += planner_take_change(session->planner, &from, &to, &gain);
}

static void step(struct session *session, uint64_t number)
{
    struct planner_request request[STREAMS_MAX];
    int admitted[STREAMS_MAX], accepted[STREAMS_MAX], count = session->run->concurrency, total = 0;
    struct planner_outcome outcome = {.admitted = admitted, .accepted = accepted};
    int starved = tt_estimator_starved(session->estimator);
    for (int r = 0; r < count; r++) {
        struct stream *stream = &session->stream[r];
        int left = session->traces->text[stream->text].length - stream->index;
        stream->admitted = 0;
        stream->drafted = false;
        request[r] = (struct planner_request){
            .cap = left - 1, .catch_up = stream->behind, .starved = starved};
    }
    planner_begin(session->planner, request, count, count, 0, 128 * count, number);
    const int *rows;
    for (int depth = 0, live; (live = planner_draft(session->planner, depth, &rows)) > 0; depth++) {
        outcome.draft_ms += forward_ms(session, depth, rows, live);
        draft_depth(session, depth, rows, live);
    }
    if (outcome.draft_ms > 0) outcome.own_ms = session->run->own_ms;
    for (int r = 0; r < count; r++) {
        struct stream *stream = &session->stream[r];
        int confirmed = stream_line(session, stream)->confirmed;
        stream->accepted = confirmed < stream->admitted ? confirmed : stream->admitted;
        admitted[r] = stream->admitted;
        accepted[r] = stream->accepted;
        total += stream->admitted;
        session->result.admitted += stream->admitted;
        session->result.accepted += stream->accepted;
        session->result.tokens += stream->accepted + 1;
        observe(session, stream);
        stream_advance(session, stream);
    }
    int band = cost_context_band(128 * count);
    outcome.verify_ms = measured(session, cost_verify(session->cost, count + total, band));
    if (session->run->learned)
        cost_observe_verify(session->run->learned, count + total, band, outcome.verify_ms);
    struct planner_report report;
    planner_get_report(session->planner, &report);
    planner_end(session->planner, &outcome);
    int status = tt_estimator_end_step(session->estimator);
    assert(status >= 0);
    (void)status;
    count_step(session, &report, outcome.draft_ms + outcome.verify_ms + outcome.own_ms, total);
}

struct replay_result replay(const struct replay_traces *traces, const struct cost_model *cost,
                            const struct replay_run *run)
{
    static struct session session; /* large; one run at a time */
    struct planner_options options = {.max_draft = REPLAY_DEPTH,
                                      .max_requests = STREAMS_MAX,
                                      .fixed_draft = run->fixed_draft,
                                      .min_gain = 0.01,
                                      .exploration = true,
                                      .key = 0x7472696d746162};
    struct tt_estimator_options estimator = {
        .kind = TT_ONLINE, .positions = REPLAY_DEPTH, .prior_slope = NAN, .prior_level = NAN};
    session = (struct session){.traces = traces, .cost = cost, .run = run};
    assert(run->concurrency >= 1 && run->concurrency <= STREAMS_MAX);
    session.planner = planner_new(&options, run->learned ? run->learned : cost);
    if (!session.planner || tt_estimator_new(&session.estimator, &estimator) != 0) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    planner_set_mode(session.planner, run->mode);
    for (int r = 0; r < run->concurrency; r++) stream_place(&session, r);
    long enough = (long)(run->passes * (double)traces->tokens * run->concurrency);
    for (uint64_t number = 0; session.result.tokens < enough; number++) step(&session, number);
    session.result.tokens_per_ms = (double)session.result.tokens / session.result.ms;
    planner_free(session.planner);
    tt_estimator_free(session.estimator);
    return session.result;
}
