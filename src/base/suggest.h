/* SPDX-License-Identifier: MIT */
/* suggest.h - looks a name up in a table, and finds the nearest name if it is not there. */
#ifndef SUGGEST_H
#define SUGGEST_H

#include <stddef.h>

/* the i-th name of a table; NULL past the last */
typedef const char *(*name_fn)(const void *ctx, int i);

int cb_name_find(const char *name, size_t n, name_fn at, const void *ctx); /* index or -1 */
/* the name with the smallest edit distance; NULL if all differ by more than a third */
const char *cb_name_nearest(const char *name, size_t n, name_fn at, const void *ctx);

/* all names, separated by commas -> list[cap]; names that do not fit are left out */
void cb_name_list(char *list, size_t cap, name_fn at, const void *ctx);

#endif
