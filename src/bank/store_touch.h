/* SPDX-License-Identifier: MIT */
/* store_touch.h - pages near the threads that will read them, where memory has nodes. */
#ifndef STORE_TOUCH_H
#define STORE_TOUCH_H

#include "store_state.h"

/* Before n rows of every head are written from row[n_kv] on: pages that begin there are touched by
 * threads near those that will read them. */
void cb_store_touch(struct store *s, struct par *par, const int *row, int n);

#endif
