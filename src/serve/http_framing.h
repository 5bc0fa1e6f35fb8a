/* SPDX-License-Identifier: MIT */
/* http_framing.h - the path that a request names, where its body ends, and how that is packed. */
#ifndef HTTP_FRAMING_H
#define HTTP_FRAMING_H

#include <microhttpd.h>

/* 0, or the status that refuses a body by its headers, and *why */
int cb_http_framing_why_not(struct MHD_Connection *c, const char **why);
/* The path of a request's target, which may be a whole URL (RFC 9112, section 3.2.2) */
const char *cb_http_path(const char *target);

#endif
