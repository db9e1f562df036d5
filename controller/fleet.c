/* fleet.c - see fleet.h. */
#include "config.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "controller/cause.h"
#include "controller/fleet.h"
#include "controller/node_vllm.h"
#include "controller/scrape.h"
#include "controller/secret.h"
#include "controller/server.h"

struct member {
    struct remote remote;
    int interval_ms;
    struct node *node;
    bool retired;
};

struct fleet {
    struct store *store;
    struct scraper *scraper;
    struct member *member; /* (count) retired ones too */
    int count;
};

struct fleet *fleet_new(struct store *store, char **cause)
{
    struct fleet *fleet = calloc(1, sizeof *fleet);

    if (!fleet) {
        cause_set(cause, "out of memory");
        return NULL;
    }
    fleet->store = store;
    fleet->scraper = scraper_new(cause);
    if (fleet->scraper) return fleet;
    free(fleet);
    return NULL;
}

void fleet_free(struct fleet *fleet)
{
    if (!fleet) return;
    scraper_stop(fleet->scraper);
    for (int i = 0; i < fleet->count; i++) {
        fleet->member[i].node->ops->close(fleet->member[i].node);
        remote_clear(&fleet->member[i].remote);
    }
    scraper_free(fleet->scraper);
    free(fleet->member);
    free(fleet);
}

/* Where the node is, with its key read. */
static int make_remote(const struct configured_node *node, struct remote *out, char **cause)
{
    struct remote borrowed = {
        .url = node->url, .ca_file = node->ca_file, .deadline_ms = node->timeout_ms};
    char *why = NULL;
    int result;

    if (secret_read_key(node->key_file, node->key_env, &borrowed.key, &why) != 0) {
        cause_set(cause, "node %s: %s", node->name, why ? why : "out of memory");
        free(why);
        return -1;
    }
    result = remote_copy(out, &borrowed);
    if (result != 0) cause_set(cause, "out of memory");
    if (borrowed.key) explicit_bzero(borrowed.key, strlen(borrowed.key));
    free(borrowed.key);
    return result;
}

static bool same_text(const char *left, const char *right)
{
    return left && right ? strcmp(left, right) == 0 : left == right;
}

static bool same_remote(const struct remote *left, const struct remote *right)
{
    return same_text(left->url, right->url) && same_text(left->key, right->key) &&
           same_text(left->ca_file, right->ca_file) && left->deadline_ms == right->deadline_ms;
}

static struct member *find_member(struct fleet *fleet, const char *name)
{
    for (int i = 0; i < fleet->count; i++)
        if (!fleet->member[i].retired && strcmp(fleet->member[i].node->id, name) == 0)
            return &fleet->member[i];
    return NULL;
}

static void retire(struct member *member)
{
    node_vllm_retire(member->node);
    member->retired = true;
}

/* Takes over *remote on success. */
static int add_member(struct fleet *fleet, const struct configured_node *from,
                      struct remote *remote, struct server *server, char **cause)
{
    const struct node_vllm_options options = {.id = from->name,
                                              .remote = remote,
                                              .interval_ms = from->interval_ms,
                                              .store = fleet->store,
                                              .scraper = fleet->scraper};
    struct member *longer =
        realloc(fleet->member, (size_t)(fleet->count + 1) * sizeof *fleet->member);
    struct node *node;

    if (!longer) {
        cause_set(cause, "out of memory");
        return -1;
    }
    fleet->member = longer;
    node = node_vllm_open(&options, cause);
    if (!node) return -1;
    if (server && server_add_node(server, node, cause) != 0) {
        node->ops->close(node);
        return -1;
    }
    fleet->member[fleet->count++] = (struct member){*remote, from->interval_ms, node, false};
    *remote = (struct remote){0};
    return 0;
}

/* One node of the configuration; consumes *remote. */
static int apply_one(struct fleet *fleet, const struct configured_node *from, struct remote *remote,
                     struct server *server, char **cause)
{
    struct member *member = find_member(fleet, from->name);
    int result = 0;

    if (!member || member->interval_ms != from->interval_ms ||
        !same_remote(&member->remote, remote)) {
        if (member) retire(member);
        result = add_member(fleet, from, remote, server, cause);
    }
    remote_clear(remote);
    return result;
}

static bool is_named(const struct configured_node *nodes, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(nodes[i].name, name) == 0) return true;
    return false;
}

int fleet_apply(struct fleet *fleet, const struct configured_node *nodes, int count,
                struct server *server, char **cause)
{
    struct remote *remotes = calloc((size_t)count + 1, sizeof *remotes);
    int result = remotes ? 0 : -1;

    if (!remotes) cause_set(cause, "out of memory");
    for (int i = 0; i < count && result == 0; i++)
        result = make_remote(&nodes[i], &remotes[i], cause);
    if (result == 0)
        for (int i = 0; i < fleet->count; i++)
            if (!fleet->member[i].retired && !is_named(nodes, count, fleet->member[i].node->id))
                retire(&fleet->member[i]);
    for (int i = 0; i < count && remotes; i++) {
        if (result == 0) result = apply_one(fleet, &nodes[i], &remotes[i], server, cause);
        remote_clear(&remotes[i]);
    }
    free(remotes);
    return result;
}

int fleet_count(const struct fleet *fleet)
{
    int count = 0;

    for (int i = 0; i < fleet->count; i++) count += !fleet->member[i].retired;
    return count;
}

struct node *fleet_node(const struct fleet *fleet, int i)
{
    for (int k = 0; k < fleet->count; k++)
        if (!fleet->member[k].retired && i-- == 0) return fleet->member[k].node;
    return NULL;
}
