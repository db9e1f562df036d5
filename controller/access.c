/* access.c - see access.h. */
#include "config.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "controller/access.h"
#include "controller/cause.h"
#include "controller/secret.h"

struct token {
    size_t length;
    char text[ACCESS_TOKEN_MAX];
};

struct token_set { /* of one file; none configured = 0 tokens and no path */
    char *path;
    int count;
    struct token token[ACCESS_TOKENS_MAX];
};

enum role { ROLE_API, ROLE_READ, ROLE_WRITE, ROLES };
static const char *const role_names[ROLES] = {"API key", "read token", "write token"};

struct access {
    char *host_names;
    uid_t owner;
    pthread_mutex_t lock; /* guards the tokens of `set`; paths never change */
    struct token_set set[ROLES];
};

/* --------------------------------------------------------------------------------- token files */

/* Tokens are visible ASCII without spaces, so that they fit a header. */
static int token_set_parse(struct token_set *set, const char *role, const char *text, size_t length,
                           char **cause)
{
    int line = 0;

    for (size_t at = 0; at < length; at++) {
        size_t start = at;
        while (at < length && text[at] != '\n') at++;
        size_t end = at;
        line++;
        while (end > start &&
               (text[end - 1] == '\r' || text[end - 1] == ' ' || text[end - 1] == '\t'))
            end--;
        if (end == start) continue;
        if (set->count == ACCESS_TOKENS_MAX) {
            cause_set(cause, "%s file %s: more than %d tokens", role, set->path, ACCESS_TOKENS_MAX);
            return -1;
        }
        if (end - start > ACCESS_TOKEN_MAX) {
            cause_set(cause, "%s file %s, line %d: longer than %d bytes", role, set->path, line,
                      ACCESS_TOKEN_MAX);
            return -1;
        }
        for (size_t i = start; i < end; i++) {
            if (text[i] <= ' ' || text[i] > '~') {
                cause_set(
                    cause,
                    "%s file %s, line %d: a token is letters, digits and signs without spaces",
                    role, set->path, line);
                return -1;
            }
        }
        struct token *token = &set->token[set->count++];
        token->length = end - start;
        memcpy(token->text, text + start, token->length);
    }
    if (set->count == 0) {
        cause_set(
            cause,
            "%s file %s is empty; write one token into it (for example: openssl rand -hex 24)",
            role, set->path);
        return -1;
    }
    return 0;
}

/* Fills set->token from set->path. */
static int token_set_read(struct token_set *set, const char *role, char **cause)
{
    char text[ACCESS_TOKENS_MAX * (ACCESS_TOKEN_MAX + 2) + 1], what[32];
    size_t length;

    set->count = 0;
    snprintf(what, sizeof what, "%s file", role);
    if (secret_read_file(set->path, what, text, sizeof text, &length, cause) != 0) return -1;
    return token_set_parse(set, role, text, length, cause);
}

int access_reload(struct access *access, char **cause)
{
    struct token_set *fresh = calloc(ROLES, sizeof *fresh);
    int result = -1;

    if (!fresh) {
        cause_set(cause, "out of memory");
        return -1;
    }
    for (int i = 0; i < ROLES; i++) {
        fresh[i].path = access->set[i].path; /* borrowed */
        if (fresh[i].path && token_set_read(&fresh[i], role_names[i], cause) != 0) goto out;
    }
    pthread_mutex_lock(&access->lock);
    for (int i = 0; i < ROLES; i++) { /* paths stay: they are read without the lock */
        access->set[i].count = fresh[i].count;
        memcpy(access->set[i].token, fresh[i].token, sizeof access->set[i].token);
    }
    pthread_mutex_unlock(&access->lock);
    result = 0;
out:
    free(fresh);
    return result;
}

struct access *access_new(const struct access_options *options, char **cause)
{
    const char *paths[ROLES] = {options->api_key_file, options->read_token_file,
                                options->write_token_file};
    struct access *access = calloc(1, sizeof *access);

    if (!access) goto no_memory;
    pthread_mutex_init(&access->lock, NULL);
    access->owner = geteuid();
    for (int i = 0; i < ROLES; i++) {
        if (paths[i] && !(access->set[i].path = strdup(paths[i]))) goto no_memory;
    }
    if (options->host_names && !(access->host_names = strdup(options->host_names))) goto no_memory;
    if (access_reload(access, cause) != 0) {
        access_free(access);
        return NULL;
    }
    return access;
no_memory:
    cause_set(cause, "out of memory");
    access_free(access);
    return NULL;
}

void access_free(struct access *access)
{
    if (!access) return;
    for (int i = 0; i < ROLES; i++) free(access->set[i].path);
    free(access->host_names);
    pthread_mutex_destroy(&access->lock);
    free(access);
}

/* -------------------------------------------------------------------------------------- tokens */

bool access_token_equal(const char *left, size_t left_length, const char *right,
                        size_t right_length)
{
    unsigned char padded[2][ACCESS_TOKEN_MAX] = {{0}};
    volatile unsigned difference = left_length != right_length;

    if (left_length > ACCESS_TOKEN_MAX || right_length > ACCESS_TOKEN_MAX) return false;
    memcpy(padded[0], left, left_length);
    memcpy(padded[1], right, right_length);
    for (int i = 0; i < ACCESS_TOKEN_MAX; i++)
        difference = difference | (unsigned)(padded[0][i] ^ padded[1][i]);
    return difference == 0;
}

static bool token_set_has(struct access *access, enum role role, const char *token, size_t length)
{
    bool found = false;

    pthread_mutex_lock(&access->lock);
    for (int i = 0; i < access->set[role].count; i++) { /* all of them: no early exit */
        const struct token *known = &access->set[role].token[i];
        found |= access_token_equal(known->text, known->length, token, length);
    }
    pthread_mutex_unlock(&access->lock);
    return found;
}

/* The token of "Bearer TOKEN"; NULL when there is none. */
static const char *bearer_token(const char *authorization, size_t *length)
{
    static const char scheme[] = "Bearer";

    if (!authorization || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0) return NULL;
    authorization += sizeof scheme - 1;
    if (*authorization != ' ') return NULL;
    while (*authorization == ' ') authorization++;
    *length = strlen(authorization);
    while (*length > 0 && authorization[*length - 1] == ' ') (*length)--;
    return *length > 0 ? authorization : NULL;
}

bool access_has_token(struct access *access)
{
    return access->set[ROLE_READ].path || access->set[ROLE_WRITE].path;
}

/* ---------------------------------------------------------------------------------- host names */

/* "name:port", "[v6]:port", "name" -> the name alone, lower case, without a final dot. */
static bool host_name(const char *host, char *name, size_t size)
{
    size_t length;

    if (*host == '[') {
        host++;
        length = strcspn(host, "]");
        if (host[length] != ']') return false;
    } else {
        length = strcspn(host, ":");
        if (length > 0 && host[length - 1] == '.') length--;
    }
    if (length == 0 || length >= size) return false;
    for (size_t i = 0; i < length; i++) name[i] = (char)tolower((unsigned char)host[i]);
    name[length] = '\0';
    return true;
}

static bool in_list(const char *list, const char *name)
{
    size_t length = strlen(name);

    while (list && *list) {
        list += strspn(list, " ,");
        size_t word = strcspn(list, " ,");
        if (word == length && strncasecmp(list, name, length) == 0) return true;
        list += word;
    }
    return false;
}

static bool host_is_ours(const struct access *access, const struct access_caller *caller)
{
    unsigned char binary[sizeof(struct in6_addr)];
    char name[256], own[256];

    if (caller->unix_socket) return true; /* no name leads a browser here */
    if (!caller->host || !host_name(caller->host, name, sizeof name)) return false;
    for (int i = 0; i < 2; i++) {
        if (caller->bound[i] && strcasecmp(caller->bound[i], name) == 0) return true;
    }
    if (in_list(access->host_names, name)) return true;
    if (!caller->public_listener || caller->wildcard) {
        if (strcmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0 ||
            strcmp(name, "::1") == 0)
            return true;
    }
    if (!caller->wildcard) return false;
    /* An attacker's page has a name of its own; an address literal or this machine's name is none
     * of his. */
    if (inet_pton(AF_INET, name, binary) == 1 || inet_pton(AF_INET6, name, binary) == 1)
        return true;
    return gethostname(own, sizeof own) == 0 && strcasecmp(own, name) == 0;
}

/* ------------------------------------------------------------------------------------- verdict */

static bool is_owner(const struct access *access, const struct access_caller *caller)
{
    return caller->unix_socket && caller->uid_known &&
           (caller->uid == access->owner || caller->uid == 0);
}

static void actor_set(struct node_actor *actor, const struct access_caller *caller,
                      const char *token)
{
    if (!actor) return;
    if (token)
        snprintf(actor->who, sizeof actor->who, "%s", token);
    else if (caller->uid_known)
        snprintf(actor->who, sizeof actor->who, "uid %lu", (unsigned long)caller->uid);
    else
        snprintf(actor->who, sizeof actor->who, "anyone");
    if (caller->unix_socket)
        snprintf(actor->origin, sizeof actor->origin, "socket");
    else
        snprintf(actor->origin, sizeof actor->origin, "tcp %.50s",
                 caller->peer ? caller->peer : "?");
}

static enum access_verdict refuse(enum access_verdict verdict, const char **why,
                                  const char *sentence)
{
    *why = sentence;
    return verdict;
}

/* NULL, or why a web page might be behind this request. */
static const char *foreign_page(const struct access *access, const struct access_caller *caller)
{
    if (caller->origin)
        return "requests with an Origin header are refused: a web page must not reach this node";
    if (!host_is_ours(access, caller))
        return "the Host header names another machine than this listener";
    return NULL;
}

static enum access_verdict check_infer(struct access *access, const struct access_caller *caller,
                                       const char *token, size_t length, const char **why)
{
    bool keyed = access->set[ROLE_API].path != NULL;

    if (keyed && token && token_set_has(access, ROLE_API, token, length)) return ACCESS_ALLOWED;
    if (keyed)
        return refuse(ACCESS_UNAUTHORIZED, why,
                      "missing or wrong API key: send Authorization: Bearer KEY");
    if (!caller->public_listener) {
        const char *page = foreign_page(access, caller);
        return page ? refuse(ACCESS_FORBIDDEN, why, page) : ACCESS_ALLOWED;
    }
    if (token && (token_set_has(access, ROLE_READ, token, length) ||
                  token_set_has(access, ROLE_WRITE, token, length)))
        return ACCESS_ALLOWED;
    return refuse(ACCESS_UNAUTHORIZED, why,
                  "this listener is public: send Authorization: Bearer TOKEN");
}

static enum access_verdict check_read(struct access *access, const struct access_caller *caller,
                                      const char *token, size_t length, struct node_actor *actor,
                                      const char **why)
{
    bool guarded = access->set[ROLE_READ].path || caller->public_listener;

    if (is_owner(access, caller)) return ACCESS_ALLOWED;
    if (token && token_set_has(access, ROLE_WRITE, token, length)) {
        actor_set(actor, caller, role_names[ROLE_WRITE]);
        return ACCESS_ALLOWED;
    }
    if (token && token_set_has(access, ROLE_READ, token, length)) {
        actor_set(actor, caller, role_names[ROLE_READ]);
        return ACCESS_ALLOWED;
    }
    if (!guarded) return ACCESS_ALLOWED;
    return refuse(ACCESS_UNAUTHORIZED, why,
                  "missing or wrong token: send Authorization: Bearer TOKEN");
}

static enum access_verdict check_write(struct access *access, const struct access_caller *caller,
                                       const char *token, size_t length, struct node_actor *actor,
                                       const char **why)
{
    if (is_owner(access, caller)) return ACCESS_ALLOWED;
    if (token && token_set_has(access, ROLE_WRITE, token, length)) {
        actor_set(actor, caller, role_names[ROLE_WRITE]);
        return ACCESS_ALLOWED;
    }
    if (token && token_set_has(access, ROLE_READ, token, length))
        return refuse(ACCESS_FORBIDDEN, why,
                      "this token may read only; changes need the write token");
    if (access->set[ROLE_WRITE].path)
        return refuse(ACCESS_UNAUTHORIZED, why,
                      "changes need the write token: send Authorization: Bearer TOKEN");
    return refuse(ACCESS_FORBIDDEN, why,
                  caller->unix_socket ? "only the daemon's own user may make changes on this socket"
                                      : "changes over TCP need a write token; start trimtabd with "
                                        "--token-file, or use its socket");
}

enum access_verdict access_check(struct access *access, enum access_kind kind,
                                 const struct access_caller *caller, struct node_actor *actor,
                                 const char **why)
{
    size_t length = 0;
    const char *token = bearer_token(caller->authorization, &length), *page;

    *why = "";
    actor_set(actor, caller, NULL);
    if (kind == ACCESS_OPEN) return ACCESS_ALLOWED;
    if (kind == ACCESS_INFER) return check_infer(access, caller, token, length, why);
    page = foreign_page(access, caller);
    if (page) return refuse(ACCESS_FORBIDDEN, why, page);
    if (kind == ACCESS_READ) return check_read(access, caller, token, length, actor, why);
    return check_write(access, caller, token, length, actor, why);
}
