/* listen.h - the sockets that the daemon answers on: TCP addresses and one unix socket of mode
 * 0600. */
#ifndef CONTROLLER_LISTEN_H
#define CONTROLLER_LISTEN_H

#include <stdbool.h>
#include <sys/types.h>

#define LISTEN_MAX 8

struct listen_socket {
    int fd; /* -1 = none */
    bool unix_socket;
    bool loopback, wildcard;
    int port;
    char configured[256]; /* host part as configured; "" for a wildcard */
    char bound[64]; /* address as bound, numeric; the path's place for a unix socket is `path` */
    char *path;     /* unix socket; owned */
    dev_t device;   /* of the path, so that only our own is removed */
    ino_t inode;
};

/* Is every address of such a list well-formed? 0, or -1 with *cause; nothing is opened or looked
 * up.
 */
int listen_check(const char *list, char **cause);
/* Open every address of a comma-separated list
 * ("127.0.0.1:8080,[::1]:8080,localhost:8080,:8080,8080"; "none" or NULL = none; port 0 = any free
 * one). Returns the count, or -1 with *cause and nothing left open. */
int listen_open_tcp(const char *list, bool public_allowed, struct listen_socket *sockets,
                    int capacity, char **cause);
/* A stale socket file is replaced, one on which a daemon answers is refused and the daemon named.
 * 0, or -1 with *cause. */
int listen_open_unix(const char *path, struct listen_socket *out, char **cause);
/* Close and, for a unix socket that is still ours, remove the file. */
void listen_close(struct listen_socket *socket);
/* Remove the file only: the descriptor was given away. */
void listen_forget(struct listen_socket *socket);

#endif
