/* node_llama_open.c - see node_llama_open.h. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "controller/cause.h"
#include "controller/node_llama_open.h"

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

int llama_open_costs(struct llama_node *node, char **cause)
{
    struct cost_cache_options options = {
        .pair = &node->pair,
        .device = node->device,
        .threads = node->options.threads,
        .parallel = node->options.parallel,
        .max_draft = node->options.max_draft,
        .exact = node->options.exact,
        .dir = node->cache_dir,
        .stop = &node->leaving,
        .progress = report_profile,
        .state = node,
    };
    char *warning = NULL;
    int status = cost_cache_open(&options, &node->cost, &node->cost_cache, &warning, cause);

    if (warning) llama_node_event(node, "warning", "cost", warning);
    free(warning);
    return status;
}

void llama_open_save_costs(struct llama_node *node)
{
    char *cause = NULL;

    if (!cost_cache_save(&node->cost_cache, node->cost, &cause))
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
