/* SPDX-License-Identifier: MIT */
/* http_none.c - the server where libmicrohttpd was missing: it says so. */
#include "base/err.h"
#include "serve.h"

int cb_serve_open(const struct serve_params *p, struct serve **out)
{
    (void)p;
    *out = NULL;
    return cb_fail(CB_EUNSUPPORTED, "serve: this program was built without libmicrohttpd");
}

int cb_serve_port(const struct serve *s)
{
    (void)s;
    return 0;
}

int cb_serve_begin(struct serve *s, const struct serve_models *m)
{
    (void)s;
    (void)m;
    return CB_EUNSUPPORTED;
}

void cb_serve_tidy(struct serve *s)
{
    (void)s;
}

void cb_serve_close(struct serve *s, double grace_s)
{
    (void)s;
    (void)grace_s;
}
