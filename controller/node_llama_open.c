/* node_llama_open.c - see node_llama_open.h. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "controller/cause.h"
#include "controller/node_llama_open.h"
#include "controller/profile.h"

static void report_loading(void *state, const char *what, double done)
{
    struct llama_node *node = state;

    if (node->options.progress) node->options.progress(what, done);
}

static void report_profile(void *state, int done, int all)
{
    struct llama_node *node = state;

    if (node->options.progress) node->options.progress("measuring step costs", (double)done / all);
}

int llama_open_models(struct llama_node *node, char **cause)
{
    const struct node_llama_options *options = &node->options;
    struct pair_options pair = {
        .target = node->model,
        .draft = node->draft,
        .device = node->device,
        .parallel = options->parallel,
        .max_draft = options->max_draft,
        .context = options->context,
        .threads = options->threads,
        .exact = options->exact,
        .progress = report_loading,
        .state = node,
    };

    if (node->record) {
        node->record_file = fopen(node->record, "ae");
        if (!node->record_file) {
            cause_set(cause, "--record %s: %s", node->record, strerror(errno));
            return -1;
        }
    }
    return pair_open(&node->pair, &pair, cause);
}

void llama_open_hardware(char *out, size_t size)
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

/* Everything that a measured cost depends on. */
static void cost_key(const struct llama_node *node, char *key, size_t size)
{
    const struct node_llama_options *options = &node->options;
    char hardware[128];

    llama_open_hardware(hardware, sizeof hardware);
    snprintf(key, size, "%s|%s|%s|%s|%s|threads %d|parallel %d|draft %d|cells %d|exact %d|%s",
             lm_digest(node->pair.target), node->pair.draft ? lm_digest(node->pair.draft) : "-",
             lm_engine_version(), hardware, node->device ? node->device : "auto", options->threads,
             options->parallel, options->max_draft, lm_context_cells(node->pair.target),
             options->exact, PACKAGE_VERSION);
}

static bool cost_path(const struct llama_node *node, const char *key, char *path, size_t size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    if (!node->cache_dir) return false;
    for (; *key; key++) hash = (hash ^ (unsigned char)*key) * UINT64_C(0x100000001b3);
    return (size_t)snprintf(path, size, "%s/cost-%016llx.json", node->cache_dir,
                            (unsigned long long)hash) < size;
}

int llama_open_costs(struct llama_node *node, char **cause)
{
    const struct node_llama_options *options = &node->options;
    struct profile_options profile = {
        .target = node->pair.target,
        .draft = node->pair.draft,
        .parallel = options->parallel,
        .max_draft = lm_can_roll_back(node->pair.target) ? options->max_draft : 0,
        .stop = &node->leaving,
        .progress = report_profile,
        .state = node,
    };
    char key[512], path[512];
    bool kept;

    node->cost = pair_cost_new(options->parallel, options->max_draft);
    if (!node->cost) {
        cause_set(cause, "out of memory");
        return -1;
    }
    cost_key(node, key, sizeof key);
    kept = cost_path(node, key, path, sizeof path);
    if (kept && cost_load(node->cost, path, key)) return 0;
    if (profile_costs(&profile, node->cost, cause) != 0) return -1;
    llama_open_save_costs(node);
    return 0;
}

void llama_open_save_costs(struct llama_node *node)
{
    char key[512], path[512], *cause = NULL;

    if (cost_unsteady(node->cost)) return;
    cost_key(node, key, sizeof key);
    if (!cost_path(node, key, path, sizeof path)) return;
    if (!cost_save(node->cost, path, key, &cause))
        llama_node_event(node, "warning", "cost", cause ? cause : "not cached");
    free(cause);
}

static bool learned_path(const struct llama_node *node, char *path, size_t size)
{
    return node->state_dir &&
           (size_t)snprintf(path, size, "%s/learned-%s.bin", node->state_dir, node->node.id) <
               size &&
           !strchr(node->node.id, '/');
}

static void learned_key(const struct llama_node *node, char *key, size_t size)
{
    snprintf(key, size, "%s|%s", lm_digest(node->pair.target),
             node->pair.draft ? lm_digest(node->pair.draft) : "-");
}

void llama_open_learned(struct llama_node *node)
{
    char key[64], path[4096];

    learned_key(node, key, sizeof key);
    if (learned_path(node, path, sizeof path)) strata_load(node->loop->strata, path, key);
}

void llama_open_save_learned(struct llama_node *node)
{
    char key[64], path[4096], *cause = NULL;

    learned_key(node, key, sizeof key);
    if (!learned_path(node, path, sizeof path)) return;
    if (!strata_save(node->loop->strata, path, key, &cause))
        llama_node_event(node, "warning", "state", cause ? cause : path);
    free(cause);
}
