/* lossless.c - text is a function of prompt, seed and target alone, on the real pair (TAP).
 *
 * --exact configuration (Q8_0 form): greedy and seeded text byte for byte the same with speculation
 * off, fixed and adaptive, at 1 and 8 concurrent, and with modes toggled mid-stream. Default
 * configuration: logits are not bit-equal across batch shapes, so a first difference must be a
 * near-tie when both contenders are scored again: raising the loser's logit by what shapes were
 * seen to differ by must turn the choice.
 *
 * Environment: TRIMTAB_TARGET_Q8_0, TRIMTAB_TARGET, TRIMTAB_DRAFT (GGUF files), SRC.
 * TRIMTAB_LOSSLESS_PROMPTS, TRIMTAB_LOSSLESS_TOKENS shorten the run.
 */
#include "config.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/inprocess.h"
#include "controller/ticks.h"

#define MOST_PROMPTS 60
#define MAX_DRAFT 6

static int tests, failures, prompt_count = 40, token_count = 48;
static char *prompts[MOST_PROMPTS];

static void __attribute__((format(printf, 2, 3))) result(bool good, const char *format, ...)
{
    va_list arguments;

    printf("%sok %d - ", good ? "" : "not ", ++tests);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
    failures += !good;
}

static void __attribute__((format(printf, 1, 2), noreturn)) give_up(const char *format, ...)
{
    va_list arguments;

    printf("Bail out! ");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    exit(1);
}

static void read_prompts(void)
{
    const char *source = getenv("SRC");
    char path[4096], line[4096];
    FILE *file;
    int count = 0;

    snprintf(path, sizeof path, "%s/tests/e2e/eval-prompts.jsonl", source ? source : ".");
    file = fopen(path, "r");
    if (!file) give_up("cannot read %s", path);
    while (count < MOST_PROMPTS && fgets(line, sizeof line, file)) {
        json_t *object = json_loads(line, 0, NULL);
        const char *text = json_string_value(json_object_get(object, "prompt"));

        if (text) prompts[count++] = strdup(text);
        json_decref(object);
    }
    fclose(file);
    if (count < prompt_count) give_up("%s holds only %d prompts", path, count);
}

static int from_environment(const char *name, int standard, int most)
{
    const char *text = getenv(name);
    int value = text ? atoi(text) : standard;

    return value >= 1 && value <= most ? value : standard;
}

/* Spread over the kinds of text, which stand in blocks in the file. */
static const char *prompt_at(int i)
{
    return prompts[(i * 7) % MOST_PROMPTS];
}

static void fill(struct inprocess *process, struct inprocess_job *jobs, float temperature)
{
    char *cause = NULL;

    memset(jobs, 0, (size_t)prompt_count * sizeof *jobs);
    for (int i = 0; i < prompt_count; i++) {
        char *text = inprocess_chat(process, prompt_at(i), &cause);

        if (!text) give_up("%s", cause);
        jobs[i] = (struct inprocess_job){.prompt = text,
                                         .temperature = temperature,
                                         .seeded = temperature > 0,
                                         .seed = (uint64_t)(1000 + i),
                                         .max_tokens = token_count};
    }
}

static void drop(struct inprocess_job *jobs)
{
    for (int i = 0; i < prompt_count; i++) free((char *)(uintptr_t)jobs[i].prompt);
    inprocess_clear(jobs, prompt_count);
}

static void toggle(void *state, struct loop *loop, long steps)
{
    static const enum mode modes[] = {MODE_ADAPTIVE, MODE_FIXED, MODE_OFF};

    (void)state;
    if (steps % 13 == 0) loop_set_mode(loop, modes[steps / 13 % 3]);
}

static struct inprocess open_process(const char *target, const char *draft, bool exact)
{
    struct inprocess_options options = {.pair = {.target = target,
                                                 .draft = draft,
                                                 .parallel = 8,
                                                 .max_draft = MAX_DRAFT,
                                                 .exact = exact},
                                        .profile = true};
    struct inprocess process;
    char *cause = NULL;

    if (inprocess_open(&process, &options, &cause) != 0) give_up("%s", cause);
    return process;
}

static void run(struct inprocess *process, struct inprocess_job *jobs, int concurrency,
                bool toggled)
{
    char *cause = NULL;

    if (inprocess_run(process, jobs, prompt_count, concurrency, toggled ? toggle : NULL, NULL,
                      &cause) != 0)
        give_up("%s", cause);
}

/* The setting that the runs of one comparison differ in. */
struct setting {
    const char *name;
    enum mode mode;
    int fixed_draft, concurrency;
    bool toggled;
};

static void apply(struct inprocess *process, const struct setting *setting)
{
    struct planner_options planner = process->loop->options.planner;

    planner.fixed_draft = setting->fixed_draft;
    planner_set_options(process->loop->planner, &planner);
    loop_set_mode(process->loop, setting->mode);
}

static const struct setting settings[] = {
    {"off, 8 at once", MODE_OFF, 0, 8, false},
    {"fixed K=3, 1 at once", MODE_FIXED, 3, 1, false},
    {"fixed K=6, 8 at once", MODE_FIXED, 6, 8, false},
    {"adaptive, 1 at once", MODE_ADAPTIVE, 0, 1, false},
    {"adaptive, 8 at once", MODE_ADAPTIVE, 0, 8, false},
    {"toggled mid-stream, 8 at once", MODE_ADAPTIVE, 2, 8, true},
};

static void compare_exact(struct inprocess *process, float temperature)
{
    struct inprocess_job plain[MOST_PROMPTS], other[MOST_PROMPTS];
    const struct setting alone = {"off, 1 at once", MODE_OFF, 0, 1, false};

    apply(process, &alone);
    fill(process, plain, temperature);
    run(process, plain, 1, false);
    for (size_t s = 0; s < sizeof settings / sizeof settings[0]; s++) {
        struct tally_counts before, after;
        int same = 0, first = -1;

        apply(process, &settings[s]);
        fill(process, other, temperature);
        tally_copy(&process->loop->tally, &before);
        run(process, other, settings[s].concurrency, settings[s].toggled);
        tally_copy(&process->loop->tally, &after);
        for (int i = 0; i < prompt_count; i++) {
            if (strcmp(plain[i].text, other[i].text) == 0 && plain[i].finish == other[i].finish)
                same++;
            else if (first < 0)
                first = i;
        }
        result(same == prompt_count,
               "exact, T %.1f, %s: %d of %d texts as alone without drafts (%lld drafts verified, "
               "%lld accepted)",
               (double)temperature, settings[s].name, same, prompt_count,
               (long long)(after.verified - before.verified),
               (long long)(after.accepted - before.accepted));
        if (first >= 0)
            printf("# prompt %d\n# alone: %.200s\n# other: %.200s\n", first, plain[first].text,
                   other[first].text);
        if (settings[s].mode == MODE_FIXED && after.accepted == before.accepted)
            result(false, "no draft was accepted: nothing was tested");
        drop(other);
    }
    drop(plain);
}

/* ------------------------------------------------------------------------------------- default
 * configuration */

/* Logits after `count` tokens: the last one decoded alone, or as the first of `rows` rows. */
static void score(struct lm *lm, const int32_t *tokens, int count, int rows, float *out)
{
    struct lm_batch *batch = lm_batch_new(lm_batch_limit(lm));
    char *cause = NULL;

    lm_trim(lm, 0, 0);
    for (int at = 0; at < count - 1;) {
        lm_batch_clear(batch);
        for (int i = 0; i < 256 && at < count - 1; i++, at++)
            lm_batch_add(batch, tokens[at], at, 0, false);
        if (lm_decode(lm, batch, &cause) != 0) give_up("%s", cause);
    }
    lm_batch_clear(batch);
    lm_batch_add(batch, tokens[count - 1], count - 1, 0, true);
    for (int r = 1; r < rows; r++)
        lm_batch_add(batch, tokens[(count - 1 + r) % count], count - 1 + r, 0, true);
    if (lm_decode(lm, batch, &cause) != 0) give_up("%s", cause);
    memcpy(out, lm_logits(lm, 0), (size_t)lm_vocab(lm) * sizeof *out);
    lm_trim(lm, 0, 0);
    lm_batch_free(batch);
}

static int32_t choose(tt *rows, float *logits, int vocab, float temperature, uint64_t key,
                      uint64_t index)
{
    struct tt_rows row = {logits, TT_F32, 1, (size_t)vocab, (size_t)vocab};
    struct tt_row_stats stats;
    int32_t token = -1;

    if (temperature > 0)
        tt_sample_coupled(rows, &row, 1 / temperature, key, index, &token);
    else if (tt_row_statistics(rows, &row, NULL, &stats) == TT_OK)
        token = stats.argmax;
    return token;
}

/* How far the logit of `wanted` must rise for it to be chosen. */
static double rise_needed(tt *rows, float *logits, int vocab, float temperature, uint64_t key,
                          uint64_t index, int32_t wanted)
{
    double low = 0, high = 64;
    float kept = logits[wanted];

    if (choose(rows, logits, vocab, temperature, key, index) == wanted) return 0;
    for (int i = 0; i < 24; i++) {
        double middle = (low + high) / 2;

        logits[wanted] = kept + (float)middle;
        if (choose(rows, logits, vocab, temperature, key, index) == wanted)
            high = middle;
        else
            low = middle;
    }
    logits[wanted] = kept;
    return high;
}

struct near {
    int differences, ties;
    double widest, shape_delta;
};

/* First differing token of two texts, scored again in two shapes. */
static void judge_difference(struct inprocess *process, const struct inprocess_job *a,
                             const struct inprocess_job *b, struct near *near)
{
    int vocab = lm_vocab(process->pair.target), prompt, na, nb, at = 0;
    int32_t *tp, *ta, *tb, *prefix;
    float *alone = calloc((size_t)vocab, sizeof *alone),
          *batched = calloc((size_t)vocab, sizeof *batched);
    uint64_t key = tt_stream_key(a->seed, 0, 0);
    double rise, delta = 0;

    prompt = lm_tokenize(process->pair.target, a->prompt, strlen(a->prompt), true, true, &tp);
    na = lm_tokenize(process->pair.target, a->text, strlen(a->text), false, false, &ta);
    nb = lm_tokenize(process->pair.target, b->text, strlen(b->text), false, false, &tb);
    while (at < na && at < nb && ta[at] == tb[at]) at++;
    near->differences++;
    if (at < na && at < nb) {
        double other;

        prefix = calloc((size_t)(prompt + at + 1), sizeof *prefix);
        memcpy(prefix, tp, (size_t)prompt * sizeof *tp);
        memcpy(prefix + prompt, ta, (size_t)at * sizeof *ta);
        score(process->pair.target, prefix, prompt + at, 1, alone);
        score(process->pair.target, prefix, prompt + at, 12, batched);
        for (int v = 0; v < vocab; v++)
            if (fabs((double)alone[v] - (double)batched[v]) > delta)
                delta = fabs((double)alone[v] - (double)batched[v]);
        if (delta > near->shape_delta) near->shape_delta = delta;
        rise = fmax(rise_needed(process->loop->rows, alone, vocab, a->temperature, key,
                                (uint64_t)at, ta[at]),
                    rise_needed(process->loop->rows, alone, vocab, a->temperature, key,
                                (uint64_t)at, tb[at]));
        other = fmax(rise_needed(process->loop->rows, batched, vocab, a->temperature, key,
                                 (uint64_t)at, ta[at]),
                     rise_needed(process->loop->rows, batched, vocab, a->temperature, key,
                                 (uint64_t)at, tb[at]));
        if (other < rise) rise = other;
        if (rise > near->widest) near->widest = rise;
        printf("# differs at token %d of \"%.40s…\": the other choice needs %.3f (shapes differ by "
               "up to %.3f here)\n",
               at, a->prompt + 21, rise, delta);
        free(prefix);
    } else {
        near->ties++; /* one text ends where the other goes on: the end token was the choice, not
                         visible in the text */
    }
    free(tp);
    free(ta);
    free(tb);
    free(alone);
    free(batched);
}

#define TIE                                                                                        \
    1.0 /* logits: shapes, rolled back cells and a shared cache were measured to move a logit by   \
           up to 0.7 each way */

static void compare_default(const char *target, const char *draft, float temperature)
{
    struct inprocess process = open_process(target, draft, false);
    struct inprocess_job plain[MOST_PROMPTS], other[MOST_PROMPTS];
    const struct setting alone = {"off, 1 at once", MODE_OFF, 0, 1, false},
                         busy = {"adaptive, 8 at once", MODE_ADAPTIVE, 0, 8, false};
    struct near near = {0};

    apply(&process, &alone);
    fill(&process, plain, temperature);
    run(&process, plain, 1, false);
    apply(&process, &busy);
    fill(&process, other, temperature);
    run(&process, other, 8, false);
    for (int i = 0; i < prompt_count; i++)
        if (strcmp(plain[i].text, other[i].text) != 0)
            judge_difference(&process, &plain[i], &other[i], &near);
    result(near.widest <= TIE,
           "default, T %.1f: %d of %d texts differ from those alone without drafts, each first at "
           "a near-tie (widest %.3f logits; shapes differ by up to %.3f)",
           (double)temperature, near.differences, prompt_count, near.widest, near.shape_delta);
    drop(plain);
    drop(other);
    inprocess_close(&process);
}

int main(void)
{
    const char *exact = getenv("TRIMTAB_TARGET_Q8_0"), *target = getenv("TRIMTAB_TARGET"),
               *draft = getenv("TRIMTAB_DRAFT");
    static const float temperatures[] = {0, 0.7f, 1.0f};
    struct inprocess process;

    if (!exact || !target || !draft) {
        printf("1..0 # SKIP TRIMTAB_TARGET_Q8_0, TRIMTAB_TARGET and TRIMTAB_DRAFT must name model "
               "files\n");
        return 0;
    }
    prompt_count = from_environment("TRIMTAB_LOSSLESS_PROMPTS", prompt_count, MOST_PROMPTS);
    token_count = from_environment("TRIMTAB_LOSSLESS_TOKENS", token_count, 128);
    read_prompts();
    process = open_process(exact, draft, true);
    for (size_t t = 0; t < 3; t++) compare_exact(&process, temperatures[t]);
    inprocess_close(&process);
    for (size_t t = 0; t < 2; t++) compare_default(target, draft, temperatures[t]);
    printf("1..%d\n", tests);
    for (int i = 0; i < MOST_PROMPTS; i++) free(prompts[i]);
    return failures > 0;
}
