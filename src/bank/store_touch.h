/* SPDX-License-Identifier: MIT */
/* store_touch.h - puts pages near the threads that will read them, on NUMA machines. */
#ifndef STORE_TOUCH_H
#define STORE_TOUCH_H

#include "store_state.h"

/* Call before n rows of each head h are written from row[h] on: pages that begin there are first
 * touched by threads near their readers. */
void cb_store_touch(struct store *s, struct par *par, const int *row, int n);

#endif
