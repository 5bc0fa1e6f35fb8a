/* SPDX-License-Identifier: MIT */
/* http_framing.c - the path that a request names, where its body ends, and how that is packed
 * (RFC 9112, sections 3.2 and 6). */
#include "http_framing.h"

#include <string.h>
#include <strings.h>

struct framing {
    const char *length; /* the first Content-Length */
    int differ;         /* a later Content-Length is another */
    int chunked, other; /* kinds of Transfer-Encoding */
    int packed;         /* Content-Encoding other than identity */
};

static enum MHD_Result read_header(void *arg, enum MHD_ValueKind kind, const char *key,
                                   const char *value)
{
    struct framing *f = arg;
    const char *v = value ? value : "";

    (void)kind;
    if (!strcasecmp(key, "Content-Length")) {
        f->differ |= f->length && strcmp(f->length, v) != 0;
        f->length = f->length ? f->length : v;
    } else if (!strcasecmp(key, "Transfer-Encoding")) {
        const int chunked = !strcasecmp(v, "chunked");
        f->chunked |= chunked;
        f->other |= !chunked;
    } else if (!strcasecmp(key, "Content-Encoding")) {
        f->packed |= *v && strcasecmp(v, "identity") != 0;
    }
    return MHD_YES;
}

/* A proxy in front may see another end of the body: what follows would be another's request. */
int cb_http_framing_why_not(struct MHD_Connection *c, const char **why)
{
    struct framing f = { 0 };

    MHD_get_connection_values(c, MHD_HEADER_KIND, read_header, &f);
    if (f.differ) {
        *why = "Content-Length: given with different values";
        return 400;
    }
    if (f.other) {
        *why = "Transfer-Encoding: only chunked is known";
        return 400;
    }
    if (f.length && f.chunked) {
        *why = "Content-Length: given beside Transfer-Encoding";
        return 400;
    }
    if (f.packed) {
        *why = "Content-Encoding: bodies are not unpacked; send the JSON as it is";
        return 415;
    }
    return 0;
}

const char *cb_http_path(const char *target)
{
    const char *host = *target == '/' ? NULL : strstr(target, "://");
    const char *path = host ? strchr(host + 3, '/') : target;

    return path ? path : "/";
}
