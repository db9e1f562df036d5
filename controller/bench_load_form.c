/* bench_load_form.c - where the target's forms and the results are, and what tells a file from
 * another; see bench_load.h. The cache is the one that bootstrap fills: the packaged target and, in
 * a folder of the engine's version, what was made of it. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/bench_load.h"
#include "controller/cause.h"
#include "controller/library.h"
#include "controller/lm.h"
#include "storage/file.h"

#define DEFAULT_TARGET "SmolLM2-135M-Instruct.Q4_1.gguf"

/* The cache of models; malloc'd, or NULL. */
static char *cache_folder(void)
{
    const char *own = getenv("TRIMTAB_CACHE"), *xdg = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    char *folder = NULL;

    if (own && own[0])
        cause_set(&folder, "%s/models", own);
    else if (xdg && xdg[0] == '/')
        cause_set(&folder, "%s/trimtab/models", xdg);
    else if (home && home[0] == '/')
        cause_set(&folder, "%s/.cache/trimtab/models", home);
    return folder;
}

char *load_form_target(char **cause)
{
    char *folder = cache_folder(), *path = NULL;

    if (folder) cause_set(&path, "%s/" DEFAULT_TARGET, folder);
    if (path && access(path, R_OK) != 0) {
        cause_set(cause, "there is no %s; ./bootstrap build gets it, or name a model with --target",
                  path);
        free(path);
        path = NULL;
    } else if (!path) {
        cause_set(cause, "HOME is not set; name a model with --target");
    }
    free(folder);
    return path;
}

/* "0.5.0" of "libllama 0.5.0-dev" */
static int engine_number(const char **number)
{
    const char *space = strchr(lm_engine_version(), ' ');

    *number = space ? space + 1 : lm_engine_version();
    return (int)strcspn(*number, "- +");
}

/* NAME of NAME.FORM.gguf or NAME.gguf: how long it is; what follows is in *rest. */
static int stem_length(const char *name, const char **rest)
{
    const char *end = strstr(name, ".gguf"), *dot = NULL;

    if (!end) end = name + strlen(name);
    for (const char *at = name; at < end; at++)
        if (*at == '.') dot = at;
    *rest = dot ? dot : end;
    return (int)(*rest - name);
}

char *load_form_path(const char *target, const char *form)
{
    const char *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target, *rest, *number;
    int stem = stem_length(name, &rest), digits = engine_number(&number);
    char *path = NULL, *folder, *own = NULL;

    cause_set(&own, ".%s.gguf", form);
    if (strcmp(form, LOAD_FORM_AS_IS) == 0 || (own && strcmp(rest, own) == 0)) {
        free(own);
        return strdup(target);
    }
    free(own);
    folder = cache_folder();
    if (folder)
        cause_set(&path, "%s/llama-%.*s/%.*s.%s.gguf", folder, digits, number, stem, name, form);
    free(folder);
    return path;
}

int load_form_make(const char *target, const char *path, const char *form, int threads,
                   char **cause)
{
    char *place;
    int status;

    if (strcmp(path, target) == 0 || access(path, R_OK) == 0) return 0;
    place = store_file_place(path, cause); /* its folder, too */
    if (!place) return -1;
    status = bench_make_form(target, place, form, threads, cause);
    free(place);
    return status;
}

void load_file_digest(const char *path, char out[LOAD_DIGEST_SIZE])
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a over words: told apart, not proven */
    uint64_t words[8192];
    FILE *file = fopen(path, "re");
    size_t bytes;

    memset(words, 0, sizeof words);
    while (file && (bytes = fread(words, 1, sizeof words, file)) > 0) {
        for (size_t i = 0; i < (bytes + 7) / 8; i++)
            hash = (hash ^ words[i]) * UINT64_C(0x100000001b3);
        memset(words, 0, sizeof words);
    }
    if (file) fclose(file);
    for (const char *at = path; !file && *at; at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    snprintf(out, LOAD_DIGEST_SIZE, "%016llx", (unsigned long long)hash);
}

json_t *load_build_digest(void)
{
    const char *library = library_file((void (*)(void))tt_strerror);
    char program[LOAD_DIGEST_SIZE], kernels[LOAD_DIGEST_SIZE] = "";

    load_file_digest("/proc/self/exe", program);
    if (library) load_file_digest(library, kernels);
    return json_sprintf("%s-%s", program, kernels);
}

char *load_default_database(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char *path = NULL;

    if (state && state[0] == '/')
        cause_set(&path, "%s/trimtab/bench.db", state);
    else if (home && home[0] == '/')
        cause_set(&path, "%s/.local/state/trimtab/bench.db", home);
    return path;
}
