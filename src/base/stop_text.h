/* SPDX-License-Identifier: MIT */
/* stop_text.h - texts that end a generation, looked for while it grows. */
#ifndef STOP_TEXT_H
#define STOP_TEXT_H

#include <stddef.h>

/* Where the first of stop[n_stop] begins in s[n], or n. *which, if not NULL: its index, or -1. */
size_t cb_stop_find(const char *s, size_t n, const char *const *stop, int n_stop, int *which);
/* Bytes at the head of s[n] that belong to no stop text, whatever follows. */
size_t cb_stop_safe(const char *s, size_t n, const char *const *stop, int n_stop);

#endif
