/* SPDX-License-Identifier: MIT */
/* opts_foreign.h - options of llama.cpp that this program, or one of its commands, does not
 * have. */
#ifndef OPTS_FOREIGN_H
#define OPTS_FOREIGN_H

#include <stddef.h>

/* typed[n]: the option, with =VALUE after it or not; next: the argument after it, or NULL. 0: it
 * is not known. 1: *instead says what to use in its place, or is NULL: it changes nothing here, and
 * takes *used of the next arguments. */
int cb_opts_foreign(const char *typed, size_t n, const char *next, int *used, const char **instead);

#endif
