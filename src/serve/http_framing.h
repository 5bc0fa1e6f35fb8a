/* SPDX-License-Identifier: MIT */
/* http_framing.h - where the body of a request ends, and how it is packed. */
#ifndef HTTP_FRAMING_H
#define HTTP_FRAMING_H

#include <microhttpd.h>

/* 0, or the status that refuses a body by its headers, and *why */
int cb_http_framing_why_not(struct MHD_Connection *c, const char **why);

#endif
