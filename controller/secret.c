/* secret.c - see secret.h. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "controller/cause.h"
#include "controller/secret.h"

#define KEY_MAX 512 /* bytes */

/* 0, or -1 with *cause when others may see or change the file. */
static int check_guarded(int fd, const char *path, const char *what, char **cause)
{
    struct stat status;

    if (fstat(fd, &status) != 0) {
        cause_set(cause, "%s %s: %s", what, path, strerror(errno));
    } else if (!S_ISREG(status.st_mode)) {
        cause_set(cause, "%s %s is not a regular file", what, path);
    } else if (status.st_mode & (S_IRWXG | S_IRWXO)) {
        cause_set(cause, "%s %s may be read or written by others (mode %04o); run: chmod 600 %s",
                  what, path, (unsigned)(status.st_mode & 07777), path);
    } else if (status.st_uid != geteuid() && status.st_uid != 0) {
        cause_set(cause, "%s %s belongs to uid %ld, not to the user of this program", what, path,
                  (long)status.st_uid);
    } else {
        return 0;
    }
    return -1;
}

int secret_read_file(const char *path, const char *what, char *text, size_t size, size_t *length,
                     char **cause)
{
    int result = -1, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t got = 1;

    *length = 0;
    if (fd < 0) {
        cause_set(cause, "%s %s: %s", what, path, strerror(errno));
        return -1;
    }
    if (check_guarded(fd, path, what, cause) != 0) goto out;
    while (*length < size && got != 0) {
        got = read(fd, text + *length, size - *length);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            cause_set(cause, "%s %s: %s", what, path, strerror(errno));
            goto out;
        }
        *length += (size_t)got;
    }
    if (*length == size)
        cause_set(cause, "%s %s is too large", what, path);
    else
        result = 0;
out:
    close(fd);
    return result;
}

static char *trim_key(const char *text, size_t length, const char *source, char **cause)
{
    static const char blanks[] = " \t\r\n";
    char *key;

    while (length > 0 && strchr(blanks, text[length - 1])) length--;
    while (length > 0 && strchr(blanks, *text)) {
        text++;
        length--;
    }
    for (size_t i = 0; i < length; i++) {
        if (text[i] > ' ' && text[i] <= '~') continue;
        cause_set(cause, "%s does not hold one key of letters, digits and signs without spaces",
                  source);
        return NULL;
    }
    if (length == 0) {
        cause_set(cause, "%s is empty; it shall hold the key", source);
        return NULL;
    }
    key = strndup(text, length);
    if (!key) cause_set(cause, "out of memory");
    return key;
}

int secret_read_key(const char *path, const char *variable, char **key, char **cause)
{
    char text[KEY_MAX + 1], source[600];
    const char *value;
    size_t length;

    *key = NULL;
    if (path) {
        if (secret_read_file(path, "key file", text, sizeof text, &length, cause) != 0) return -1;
        snprintf(source, sizeof source, "key file %s", path);
        *key = trim_key(text, length, source, cause);
        explicit_bzero(text, sizeof text);
    } else if (variable) {
        value = getenv(variable);
        snprintf(source, sizeof source, "the environment variable %s", variable);
        *key = trim_key(value ? value : "", value ? strlen(value) : 0, source, cause);
    } else {
        return 0;
    }
    return *key ? 0 : -1;
}
