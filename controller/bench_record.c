/* bench_record.c - trimtab bench record: a teacher-forced trace of a model pair on real prompts
 * (docs/replay.md), written beside its place and renamed when it is whole. A file that was left
 * half done is taken up behind its last whole text, when it is of the same models and settings.
 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/bench.h"
#include "controller/cause.h"
#include "controller/given.h"
#include "controller/trace.h"
#include "controller/trace_record.h"

struct bench {
    struct pair pair;
    struct bench_prompt *prompt;
    int prompts;
    const char *output;
    char *part; /* output with .part */
    FILE *file;
    int next; /* text to record */
    long tokens;
};

static int complain(char *cause)
{
    fprintf(stderr, "trimtab bench record: %s\n", cause ? cause : "out of memory");
    free(cause);
    return 1;
}

static void progress(const struct bench *bench)
{
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[Kbench record: text %d of %d, %ld tokens", bench->next, bench->prompts,
            bench->tokens);
    if (bench->next == bench->prompts) fputc('\n', stderr);
}

/* FNV-1a, 64 bits, over the prompts: whether a file goes on with the same ones. */
static uint64_t prompts_digest(const struct bench *bench)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (int i = 0; i < bench->prompts; i++)
        for (const char *c = bench->prompt[i].text;; c++) {
            hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
            if (!*c) break;
        }
    return hash;
}

static json_t *model_to_json(const struct lm *lm)
{
    return json_pack("{s:s s:s}", "name", lm_name(lm), "digest", lm_digest(lm));
}

static char *make_header(const struct bench *bench, const struct trace_recorder_options *options,
                         const char *prompts)
{
    const char *name = strrchr(prompts, '/');
    char digest[17], *text;
    json_t *header;

    snprintf(digest, sizeof digest, "%016" PRIx64, prompts_digest(bench));
    header = json_pack(
        "{s:s s:s s:f s:i s:i s:I s:s s:s s:o s:o s:{s:s s:i s:s}}", "schema", TRACE_SCHEMA, "rule",
        options->temperature > 0 ? "ratio" : "greedy", "temperature", options->temperature,
        "max_draft", options->max_draft, "max_tokens", options->max_tokens, "seed",
        (json_int_t)options->seed, "trimtab", PACKAGE_VERSION, "engine", lm_engine_version(),
        "target", model_to_json(bench->pair.target), "draft", model_to_json(bench->pair.draft),
        "prompts", "file", name ? name + 1 : prompts, "count", bench->prompts, "digest", digest);
    text = header ? json_dumps(header, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(header);
    return text;
}

/* Behind the last whole text of the part; the next text and the tokens so far. */
static bool find_end(struct bench *bench, const char *header, off_t *end, char **cause)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t length = getline(&line, &size, bench->file);
    bool same = length > 0 && line[length - 1] == '\n' && (size_t)length == strlen(header) + 1 &&
                strncmp(line, header, (size_t)length - 1) == 0;

    if (length <= 0) same = true; /* an empty one */
    *end = length > 0 && same ? ftello(bench->file) : 0;
    while (same && (length = getline(&line, &size, bench->file)) > 0) {
        json_t *object = line[length - 1] == '\n' ? json_loads(line, 0, NULL) : NULL;
        const json_t *last = json_object_get(object, "end");

        if (last) {
            *end = ftello(bench->file);
            bench->next = (int)json_integer_value(json_object_get(object, "text")) + 1;
            bench->tokens += (long)json_integer_value(last);
        }
        json_decref(object);
    }
    free(line);
    if (!same)
        cause_set(cause,
                  "%s was begun with other models, prompts or settings: finish it with those, or "
                  "remove it",
                  bench->part);
    return same;
}

static bool open_part(struct bench *bench, const char *header, char **cause)
{
    off_t end = 0;

    if (given_check_output(bench->output, cause) != 0) return false;
    if (access(bench->output, F_OK) == 0) {
        cause_set(cause, "%s is there already: remove it or name another file", bench->output);
        return false;
    }
    if (asprintf(&bench->part, "%s.part", bench->output) < 0) {
        bench->part = NULL;
        return false;
    }
    bench->file = fopen(bench->part, "a+e");
    if (!bench->file) {
        cause_set(cause, "%s: %s", bench->part, strerror(errno));
        return false;
    }
    rewind(bench->file);
    if (!find_end(bench, header, &end, cause)) return false;
    if (fflush(bench->file) != 0 || ftruncate(fileno(bench->file), end) != 0 ||
        fseeko(bench->file, 0, SEEK_END) != 0 ||
        (end == 0 && fprintf(bench->file, "%s\n", header) < 0)) {
        cause_set(cause, "%s: %s", bench->part, strerror(errno));
        return false;
    }
    if (bench->next > 0)
        fprintf(stderr, "trimtab bench record: %s goes on after text %d of %d\n", bench->part,
                bench->next, bench->prompts);
    return true;
}

static bool record_texts(struct bench *bench, const struct trace_recorder_options *options,
                         char **cause)
{
    struct trace_recorder *recorder = trace_recorder_new(options, cause);
    bool ok = recorder != NULL;

    while (ok && bench->next < bench->prompts) {
        int length;

        progress(bench);
        length = trace_recorder_text(recorder, bench->file, bench->next,
                                     bench->prompt[bench->next].text, cause);
        ok = length >= 0 && fflush(bench->file) == 0;
        if (length >= 0 && !ok) cause_set(cause, "%s: %s", bench->part, strerror(errno));
        if (!ok) break;
        bench->next++;
        bench->tokens += length;
    }
    progress(bench);
    trace_recorder_free(recorder);
    return ok;
}

static bool finish(struct bench *bench, char **cause)
{
    bool ok = fflush(bench->file) == 0 && fsync(fileno(bench->file)) == 0;

    ok = fclose(bench->file) == 0 && ok;
    bench->file = NULL;
    if (ok && rename(bench->part, bench->output) == 0) return true;
    cause_set(cause, "%s: %s", bench->part, strerror(errno));
    return false;
}

static bool record(struct bench *bench, const struct pair_options *pair,
                   struct trace_recorder_options *options, const char *prompts, char **cause)
{
    char *header = NULL;
    bool ok;

    if (pair_open(&bench->pair, pair, cause) != 0) return false;
    options->pair = &bench->pair;
    header = make_header(bench, options, prompts);
    ok = header && open_part(bench, header, cause) && record_texts(bench, options, cause) &&
         finish(bench, cause);
    free(header);
    return ok;
}

/* -o FILE is --output FILE. */
static void long_output(int argc, char **argv)
{
    static char output[] = "--output";

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-o") == 0) argv[i] = output;
}

int bench_record(int argc, char **argv)
{
    struct bench_option options[] = {
        {"output", "FILE", "where the trace goes (-o)", NULL},
        {"model", "FILE", "target (GGUF)", NULL},
        {"draft", "FILE", "draft model (GGUF)", NULL},
        {"prompts", "FILE", "JSON Lines of prompts", PKGDATADIR "/demo-prompts.jsonl"},
        {"temperature", "T", "0 = greedy, above it the ratio rule", "0"},
        {"max-draft", "K", "drafts at every index", "6"},
        {"max-tokens", "N", "most tokens of a text", "120"},
        {"seed", "N", "of the texts and drafts", "1"},
        {"threads", "N", "threads; 0 = one a processor", "0"},
    };
    struct bench bench = {0};
    struct pair_options pair = {.parallel = 1};
    struct trace_recorder_options record_options = {0};
    const char *prompts;
    char *cause = NULL;
    int status;

    long_output(argc, argv);
    status = bench_options(argc, argv, "record -o FILE --model FILE --draft FILE [OPTION]…",
                           options, sizeof options / sizeof options[0], NULL, 0);
    if (status != 0) return status > 0 ? 0 : 2;
    bench.output = bench_text(options, "output");
    pair.target = bench_text(options, "model");
    pair.draft = bench_text(options, "draft");
    pair.threads = (int)bench_number(options, "threads", 0, 1024);
    record_options.temperature = bench_real(options, "temperature", 0, 100);
    record_options.max_draft = (int)bench_number(options, "max-draft", 1, TT_MAX_POSITIONS);
    record_options.max_tokens = (int)bench_number(options, "max-tokens", 1, 512);
    record_options.seed = (uint64_t)bench_number(options, "seed", 0, INT32_MAX);
    pair.max_draft = record_options.max_draft;
    if (!bench.output || !pair.target || !pair.draft) {
        fprintf(stderr, "trimtab bench record: give -o FILE, --model and --draft\n");
        return 2;
    }
    prompts = bench_text(options, "prompts");
    bench.prompts = bench_read_prompts(prompts, &bench.prompt);
    if (bench.prompts < 0) return 1;
    if (!record(&bench, &pair, &record_options, prompts, &cause))
        status = complain(cause);
    else
        fprintf(stderr, "trimtab bench record: %d texts, %ld tokens in %s\n", bench.prompts,
                bench.tokens, bench.output);
    if (bench.file) fclose(bench.file);
    pair_close(&bench.pair);
    bench_free_prompts(bench.prompt, bench.prompts);
    free(bench.part);
    return status;
}
