/* SPDX-License-Identifier: MIT */
/* http_access.h - who may use the server over HTTP. */
#ifndef HTTP_ACCESS_H
#define HTTP_ACCESS_H

#include <microhttpd.h>

#include "serve.h"

/* The index of the request's key, 0 where the server asks for none, -1: none fits */
int cb_http_tenant(struct MHD_Connection *c, const struct serve_params *p);
/* 0, or the status that refuses the request for its Host or Origin, and *why */
int cb_http_why_not(struct MHD_Connection *c, const struct serve_params *p, const char **why);

#endif
