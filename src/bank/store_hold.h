/* SPDX-License-Identifier: MIT */
/* store_hold.h - a copy of what the next tokens of a store will replace: a layer with a window
 * drops a slot for each of them, and blocks are prepacked. With it the store becomes again, to the
 * bit, what it was. */
#ifndef STORE_HOLD_H
#define STORE_HOLD_H

#include "store_state.h"

struct store_hold;

/* For a store whose heads drop slots down to `window`, or that drops nothing (0). CB_ENOMEM */
int cb_store_hold_new(const struct store *s, int window, struct store_hold **out);
void cb_store_hold_free(struct store_hold *x);
size_t cb_store_hold_bytes(const struct store_hold *x);
/* Notes the store as it is now, before n more tokens are decoded. CB_ENOMEM */
int cb_store_hold_take(struct store_hold *x, const struct store *s, int n);
/* The store is again as it was noted. Since then it has only had tokens decoded, at most n. */
void cb_store_hold_restore(const struct store_hold *x, struct store *s);

#endif
