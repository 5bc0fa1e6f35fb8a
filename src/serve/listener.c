/* SPDX-License-Identifier: MIT */
/* listener.c - a TCP socket that listens. */
#include "listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/macos.h"

static int listen_at(const struct addrinfo *a)
{
    const int yes = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);

    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, SOMAXCONN))
        return fd;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

int cb_listen(const char *host, int port)
{
    const struct addrinfo want = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
    struct addrinfo *found;
    char service[16];
    int fd = -1, rc;

    snprintf(service, sizeof service, "%d", port);
    rc = getaddrinfo(host, service, &want, &found);
    if (rc)
        return cb_fail(CB_EARG, "host: %s: %s", host, gai_strerror(rc));
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next)
        fd = listen_at(a);
    rc = errno;
    freeaddrinfo(found);
    return fd < 0 ? cb_fail(CB_EIO, "%s port %d: %s", host, port, strerror(rc)) : fd;
}

int cb_listener_port(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage all;
    } a = { .all = { 0 } };
    socklen_t n = sizeof a;

    if (getsockname(fd, &a.any, &n))
        return 0;
    return a.any.sa_family == AF_INET6  ? ntohs(a.v6.sin6_port)
           : a.any.sa_family == AF_INET ? ntohs(a.v4.sin_port)
                                        : 0;
}
