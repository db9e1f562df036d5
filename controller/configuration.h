/* configuration.h - what trimtabd was told: command line over configuration file over defaults.
 *
 * One table (configuration.c) makes the parser of both, --help and the list that the man page is
 * checked against.
 */
#ifndef CONTROLLER_CONFIGURATION_H
#define CONTROLLER_CONFIGURATION_H

#include <stdbool.h>
#include <stdio.h>

#include "controller/policy.h"

struct configured_node { /* an engine in another process; NULL and 0 = as the `node-…` keys say */
    char *name, *url;
    char *key_env, *key_file, *ca_file;
    int interval_ms, timeout_ms;
};

struct configuration {
    char *config, *model, *draft, *name;
    char *replay, *cost; /* a replay in place of a model */
    char *listen, *socket, *state, *cache, *device, *record;
    char *api_key_file, *read_token_file, *token_file;
    char *mode, *estimator;
    int parallel, ctx, threads, queue, prefill_chunk;
    int max_draft, fixed_draft, refit_interval_steps, drain_timeout_s, max_connections;
    bool exact, no_exploration;
    struct configured_node *nodes; /* (nodes_count) names and addresses are checked, names differ */
    int nodes_count;
    struct configured_node node_defaults; /* no name, no url */
    double min_gain, speed;
    /* What was asked for instead of running. */
    bool help, version;
};

/* Defaults, then the file (--config, else the system's when it exists), then the arguments. 0, or
 * -1 with *cause: an unknown option comes with the nearest match, an error of the file with its
 * line; name, mode, estimator, device and listen hold what they may. */
int configuration_read(struct configuration *configuration, int argc, char **argv, char **cause);
void configuration_clear(struct configuration *configuration);
void configuration_print_help(FILE *out);
/* The policy that the configuration asks for; *draft_file: its draft model, else NULL. */
void configuration_policy(const struct configuration *configuration, struct policy *policy,
                          const char **draft_file);

#endif
