/* cost_cache.c - see cost_cache.h. Owns the key: a cost that was measured under another is measured
 * again.
 */
#include "config.h"

#include "controller/cost_cache.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "controller/cause.h"
#include "controller/profile.h"

void cost_cache_hardware(char *out, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256], name[96] = "unknown processor";

    while (file && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');

        if (strncmp(line, "model name", 10) != 0 || !value) continue;
        snprintf(name, sizeof name, "%s", value + 2);
        name[strcspn(name, "\n")] = '\0';
        break;
    }
    if (file) fclose(file);
    snprintf(out, size, "%s, %ld processors", name, sysconf(_SC_NPROCESSORS_ONLN));
}

static void make_key(const struct cost_cache_options *options, struct cost_cache *cache)
{
    const struct pair *pair = options->pair;
    char hardware[128];

    cost_cache_hardware(hardware, sizeof hardware);
    snprintf(cache->key, sizeof cache->key,
             "%s|%s|%s|%s|%s|threads %d|parallel %d|draft %d|cells %d|exact %d|%s",
             lm_digest(pair->target), pair->draft ? lm_digest(pair->draft) : "-", lm_engine_build(),
             hardware, options->device ? options->device : "auto", options->threads,
             options->parallel, options->max_draft, lm_context_cells(pair->target), options->exact,
             PACKAGE_VERSION);
}

/* The file is named by its key's FNV-1a, so that several pairs share a folder. */
static void make_path(const char *dir, struct cost_cache *cache)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    cache->path[0] = '\0';
    if (!dir) return;
    for (const char *c = cache->key; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    if ((size_t)snprintf(cache->path, sizeof cache->path, "%s/cost-%016llx.json", dir,
                         (unsigned long long)hash) >= sizeof cache->path)
        cache->path[0] = '\0';
}

static int measure(const struct cost_cache_options *options, struct cost_model *cost, char **cause)
{
    struct profile_options profile = {
        .target = options->pair->target,
        .draft = options->pair->draft,
        .parallel = options->parallel,
        .max_draft = lm_can_roll_back(options->pair->target) ? options->max_draft : 0,
        .stop = options->stop,
        .progress = options->progress,
        .state = options->state,
    };

    return profile_costs(&profile, cost, cause);
}

int cost_cache_open(const struct cost_cache_options *options, struct cost_model **cost,
                    struct cost_cache *cache, char **warning, char **cause)
{
    *cache = (struct cost_cache){.found = false};
    *cost = pair_cost_new(options->parallel, options->max_draft);
    if (!*cost) {
        cause_set(cause, "out of memory");
        return -1;
    }
    make_key(options, cache);
    make_path(options->dir, cache);
    cache->found = !options->fresh && cache->path[0] && cost_load(*cost, cache->path, cache->key);
    if (cache->found) return 0;
    if (measure(options, *cost, cause) == 0) {
        cost_cache_save(cache, *cost, warning);
        return 0;
    }
    cost_free(*cost);
    *cost = NULL;
    return -1;
}

bool cost_cache_save(const struct cost_cache *cache, const struct cost_model *cost, char **cause)
{
    return !cache->path[0] || cost_unsteady(cost) ||
           cost_save(cost, cache->path, cache->key, cause);
}
