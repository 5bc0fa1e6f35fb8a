/* SPDX-License-Identifier: MIT */
/* base64.h - bytes as text, with the alphabet of RFC 4648, section 4. */
#ifndef BASE64_H
#define BASE64_H

#include <stddef.h>

#include "buf.h"

void cb_base64_write(const void *bytes, size_t n, struct buf *out);
/* 1: s[n] is such a text, with or without its end of '='; its bytes are added to *out. */
int cb_base64_read(const char *s, size_t n, struct buf *out);

#endif
