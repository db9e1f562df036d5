/* listen.c - see listen.h. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "controller/cause.h"
#include "controller/listen.h"

enum { BACKLOG = 512 };

/* ----------------------------------------------------------------------------------------- TCP */

/* Splits "host:port", "[v6]:port", ":port", "port". */
static int split_address(const char *text, size_t length, char *host, size_t host_size, char *port,
                         size_t port_size)
{
    const char *end = text + length, *colon = NULL;
    size_t host_length;

    for (const char *c = text; c < end; c++) {
        if (*c == ':') colon = c;
    }
    if (length > 0 && *text == '[') {
        if (!colon || colon == text || colon[-1] != ']') return -1;
        host_length = (size_t)(colon - text) - 2;
        text++;
    } else if (!colon) { /* a port alone means loopback */
        if (length == 0 || length >= port_size || host_size < sizeof "127.0.0.1") return -1;
        memcpy(port, text, length);
        port[length] = '\0';
        strcpy(host, "127.0.0.1");
        goto check_port;
    } else {
        host_length = (size_t)(colon - text);
        if (memchr(text, ':', host_length)) return -1; /* IPv6 needs brackets */
    }
    if (host_length >= host_size || (size_t)(end - colon - 1) >= port_size) return -1;
    memcpy(host, text, host_length);
    host[host_length] = '\0';
    memcpy(port, colon + 1, (size_t)(end - colon - 1));
    port[end - colon - 1] = '\0';
check_port:
    if (*port == '\0' || strspn(port, "0123456789") != strlen(port) || strlen(port) > 5 ||
        atoi(port) > 65535)
        return -1;
    return 0;
}

static void describe(const struct sockaddr *address, struct listen_socket *out)
{
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
        out->loopback = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
        out->wildcard = IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
        out->port = ntohs(v6->sin6_port);
        inet_ntop(AF_INET6, &v6->sin6_addr, out->bound, sizeof out->bound);
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        out->loopback = ntohl(v4->sin_addr.s_addr) >> 24 == 127;
        out->wildcard = v4->sin_addr.s_addr == htonl(INADDR_ANY);
        out->port = ntohs(v4->sin_port);
        inet_ntop(AF_INET, &v4->sin_addr, out->bound, sizeof out->bound);
    }
}

static int bind_address(const struct addrinfo *info, struct listen_socket *out)
{
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof bound;
    int on = 1, fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (info->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &size) != 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    describe((const struct sockaddr *)&bound, out);
    out->fd = fd;
    return 0;
}

/* The parts of one address of a list; -1 with *cause. */
static int read_address(const char *text, size_t length, char host[256], char port[8], char **cause)
{
    if (split_address(text, length, host, 256, port, 8) == 0) return 0;
    cause_set(
        cause,
        "listen address \"%.*s\" is not ADDRESS:PORT (for example 127.0.0.1:8080, [::1]:8080, "
        "or none)",
        (int)length, text);
    return -1;
}

static int open_one(const char *text, size_t length, bool public_allowed, struct listen_socket *out,
                    char **cause)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *info = NULL;
    char port[8];
    int shown = (int)length, failed;

    *out = (struct listen_socket){.fd = -1};
    if (read_address(text, length, out->configured, port, cause) != 0) return -1;
    if (strcmp(out->configured, "*") == 0) out->configured[0] = '\0';
    if (out->configured[0] == '\0') hints.ai_family = AF_INET;
    failed = getaddrinfo(out->configured[0] ? out->configured : NULL, port, &hints, &info);
    if (failed) {
        cause_set(cause, "listen address \"%.*s\": %s", shown, text, gai_strerror(failed));
        return -1;
    }
    describe(info->ai_addr, out);
    if (!out->loopback && !public_allowed) {
        cause_set(cause,
                  "listen address \"%.*s\" can be reached from other machines: give --token-file "
                  "first, or "
                  "listen on 127.0.0.1",
                  shown, text);
        freeaddrinfo(info);
        return -1;
    }
    failed = bind_address(info, out);
    freeaddrinfo(info);
    if (failed == 0) return 0;
    if (errno == EADDRINUSE)
        cause_set(cause,
                  "listen address \"%.*s\" is taken by another program: stop it, or choose another "
                  "port with "
                  "--listen",
                  shown, text);
    else
        cause_set(cause, "listen address \"%.*s\": %s", shown, text, strerror(errno));
    return -1;
}

/* The next address of the list: its length, 0 at the end. */
static size_t next_address(const char **list)
{
    *list += strspn(*list, " ,");
    return strcspn(*list, " ,");
}

int listen_check(const char *list, char **cause)
{
    char host[256], port[8];
    size_t length;

    if (!list || strcmp(list, "none") == 0) return 0;
    for (; (length = next_address(&list)) > 0; list += length)
        if (read_address(list, length, host, port, cause) != 0) return -1;
    return 0;
}

int listen_open_tcp(const char *list, bool public_allowed, struct listen_socket *sockets,
                    int capacity, char **cause)
{
    int count = 0;
    size_t length;

    if (!list || strcmp(list, "none") == 0) return 0;
    for (; (length = next_address(&list)) > 0; list += length) {
        if (count == capacity) {
            cause_set(cause, "more than %d listen addresses", capacity);
            goto fail;
        }
        if (open_one(list, length, public_allowed, &sockets[count], cause) != 0) goto fail;
        count++;
    }
    return count;
fail:
    while (count > 0) listen_close(&sockets[--count]);
    return -1;
}

/* ---------------------------------------------------------------------------------------- unix */

/* Is the socket file at `address` answered by somebody? Then says so in *cause. */
static bool is_answered(const struct sockaddr_un *address, char **cause)
{
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool answered;

    if (fd < 0) return false;
    answered =
        connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 || errno == EAGAIN;
    if (answered) {
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
        cause_set(
            cause,
            "socket %s is in use by process %ld: another trimtabd runs; stop it, or choose another "
            "--socket",
            address->sun_path, (long)peer.pid);
    }
    close(fd);
    return answered;
}

/* Makes room at the path: a stale socket goes away, anything else stays and is an error. */
static int clear_path(const struct sockaddr_un *address, char **cause)
{
    struct stat status;

    if (lstat(address->sun_path, &status) != 0) return 0;
    if (!S_ISSOCK(status.st_mode)) {
        cause_set(cause, "socket %s: a file that is not a socket is in its place; move it away",
                  address->sun_path);
        return -1;
    }
    if (is_answered(address, cause)) return -1;
    if (unlink(address->sun_path) != 0 && errno != ENOENT) {
        cause_set(cause, "socket %s is stale and cannot be removed: %s", address->sun_path,
                  strerror(errno));
        return -1;
    }
    return 0;
}

static void make_parent(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash || slash == path) return;
    char *parent = strndup(path, (size_t)(slash - path));
    if (parent) (void)mkdir(parent, 0700); /* bind says what is wrong, if it is */
    free(parent);
}

int listen_open_unix(const char *path, struct listen_socket *out, char **cause)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat status;

    *out = (struct listen_socket){.fd = -1, .unix_socket = true, .loopback = true};
    if (strlen(path) >= sizeof address.sun_path) {
        cause_set(cause, "socket path %s is longer than %zu bytes", path,
                  sizeof address.sun_path - 1);
        return -1;
    }
    strcpy(address.sun_path, path);
    make_parent(path);
    if (clear_path(&address, cause) != 0) return -1;
    out->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (out->fd < 0) goto fail;
    /* Linux gives the file the mode of the descriptor: it is never open to others, not even for a
     * moment. */
    if (fchmod(out->fd, 0600) != 0) goto fail;
    if (bind(out->fd, (const struct sockaddr *)&address, sizeof address) != 0) goto fail;
    if (chmod(path, 0600) != 0 || lstat(path, &status) != 0 || !(out->path = strdup(path))) {
        int saved = errno;
        unlink(path);
        errno = saved;
        goto fail;
    }
    out->device = status.st_dev;
    out->inode = status.st_ino;
    if (listen(out->fd, BACKLOG) != 0) goto fail;
    return 0;
fail:
    cause_set(cause, "socket %s: %s", path, strerror(errno));
    listen_close(out);
    return -1;
}

void listen_forget(struct listen_socket *socket)
{
    struct stat status;

    if (socket->path && lstat(socket->path, &status) == 0 && status.st_dev == socket->device &&
        status.st_ino == socket->inode)
        unlink(socket->path);
    free(socket->path);
    socket->path = NULL;
    socket->fd = -1;
}

void listen_close(struct listen_socket *socket)
{
    if (socket->fd >= 0) close(socket->fd);
    listen_forget(socket);
}
