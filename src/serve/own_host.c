/* SPDX-License-Identifier: MIT */
/* own_host.c - whether a request means this server. */
#include "own_host.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

/* "NAME:PORT", "[ADDRESS]:PORT", or without a port -> out. 0: it is no such text. */
static int name_of(const char *host, char *out, size_t cap)
{
    const int in_brackets = *host == '[';
    const size_t n = in_brackets ? strcspn(++host, "]") : strcspn(host, ":");
    const char *rest = host + n + (in_brackets && host[n]);

    if (!n || n >= cap || (in_brackets && !host[n]) || (*rest && *rest != ':') ||
        (*rest && rest[1 + strspn(rest + 1, "0123456789")]))
        return 0;
    memcpy(out, host, n);
    out[n] = '\0';
    if (!in_brackets && out[n - 1] == '.') /* a name that is complete */
        out[n - 1] = '\0';
    return *out != '\0';
}

static int is_loopback(const char *name)
{
    struct in_addr v4;
    struct in6_addr v6;

    return !strcasecmp(name, "localhost") ||
           (inet_pton(AF_INET, name, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127) ||
           (inet_pton(AF_INET6, name, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6));
}

static int is_address(const char *name)
{
    struct in6_addr any;

    return inet_pton(AF_INET, name, &any) == 1 || inet_pton(AF_INET6, name, &any) == 1;
}

int cb_host_is_own(const char *host, const char *own)
{
    char name[256];

    if (!name_of(host, name, sizeof name))
        return 0;
    if (is_loopback(name) || !strcasecmp(name, own))
        return 1;
    return (!strcmp(own, "0.0.0.0") || !strcmp(own, "::")) && is_address(name);
}
