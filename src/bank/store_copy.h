/* SPDX-License-Identifier: MIT */
/* store_copy.h - copies one store to another. */
#ifndef STORE_COPY_H
#define STORE_COPY_H

#include "store_state.h"

/* Copies `from` to `to`, which was opened with the same arguments, and replaces what it held. After
 * a failure `to` must be cut to 0 tokens, or closed. */
int cb_store_copy(struct store *to, const struct store *from);

#endif
