/* SPDX-License-Identifier: MIT */
/* http_access.c - who asks: the key of a request, its host and its origin. */
#include "http_access.h"

#include <string.h>
#include <strings.h>

#include "own_host.h"

/* Its time depends on what was sent alone, so it tells nothing of the key. */
static int same_key(const char *key, const char *sent)
{
    const size_t n = strlen(sent), m = strlen(key);
    unsigned differ = n != m;

    for (size_t i = 0; i < n; i++)
        differ |= (unsigned)(unsigned char)sent[i] ^ (unsigned char)key[i % (m + 1)];
    return !differ;
}

static const char *header(struct MHD_Connection *c, const char *name)
{
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

int cb_http_tenant(struct MHD_Connection *c, const struct serve_params *p)
{
    const char *sent = header(c, "Authorization");

    if (!p->n_key)
        return 0;
    if (sent && !strncasecmp(sent, "Bearer ", 7))
        sent += 7;
    else
        sent = header(c, "x-api-key");
    for (int i = 0; sent && i < p->n_key; i++)
        if (same_key(p->key[i], sent))
            return i;
    return -1;
}

/* 1: a page of another site asks, by a browser of somebody who can reach this server */
static int is_cross_site(struct MHD_Connection *c, const struct serve_params *p)
{
    const char *origin = header(c, "Origin"), *host = header(c, "Host");
    const char *at = origin ? strstr(origin, "://") : NULL;

    if (!origin || (p->cors && (!strcmp(p->cors, "*") || !strcasecmp(p->cors, origin))))
        return 0;
    return !at || !host || strcasecmp(at + 3, host) != 0;
}

/* Without a key, who can reach the server may use it: so must no page that makes a browser do it.
 */
static int is_for_another(struct MHD_Connection *c, const struct serve_params *p)
{
    const char *host = header(c, "Host");

    return !p->n_key && host && !cb_host_is_own(host, p->host ? p->host : "127.0.0.1");
}

static enum MHD_Result count_host(void *arg, enum MHD_ValueKind kind, const char *key,
                                  const char *value)
{
    int *n = arg;

    (void)kind;
    (void)value;
    *n += !strcasecmp(key, "Host");
    return MHD_YES;
}

/* Which of several hosts is meant, a proxy in front may see otherwise. */
static int has_one_host(struct MHD_Connection *c)
{
    int n = 0;

    MHD_get_connection_values(c, MHD_HEADER_KIND, count_host, &n);
    return n < 2;
}

int cb_http_why_not(struct MHD_Connection *c, const struct serve_params *p, const char **why)
{
    if (!has_one_host(c)) {
        *why = "more than one Host header";
        return 400;
    }
    if (is_for_another(c, p)) {
        *why = "the Host header names another server: use localhost, or the address of --host, or "
               "let the server ask for a key";
        return 403;
    }
    if (is_cross_site(c, p)) {
        *why = "pages of other origins may not use this server";
        return 403;
    }
    return 0;
}
