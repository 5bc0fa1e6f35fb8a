/* SPDX-License-Identifier: MIT */
/* random.h - numbers that nobody can guess. */
#ifndef RANDOM_H
#define RANDOM_H

#include <stddef.h>

/* n bytes from the system. CB_EIO: it has none, and *out is zero */
int cb_random(void *out, size_t n) __attribute__((warn_unused_result));

#endif
