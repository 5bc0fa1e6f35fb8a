/* SPDX-License-Identifier: MIT */
/* suggest.h - a name looked up in a table, and the nearest one where it is not there. */
#ifndef NEAREST_H
#define NEAREST_H

#include <stddef.h>

/* the i-th name of a table; NULL past the last */
typedef const char *(*name_fn)(const void *ctx, int i);

int cb_name_find(const char *name, size_t n, name_fn at, const void *ctx); /* index or -1 */
/* the name with the smallest edit distance, NULL when none is near (more than a third differs) */
const char *cb_name_nearest(const char *name, size_t n, name_fn at, const void *ctx);

/* all names, commas between them -> list[cap]; those that do not fit are left out */
void cb_name_list(char *list, size_t cap, name_fn at, const void *ctx);

#endif
