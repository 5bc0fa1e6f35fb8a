/* SPDX-License-Identifier: MIT */
/* store_copy.h - a store becomes what another one is. */
#ifndef STORE_COPY_H
#define STORE_COPY_H

#include "store_state.h"

/* `to` was opened as `from` was, and becomes what `from` is, whatever it held. After a failure it
 * must be cut to nothing, or closed. */
int cb_store_copy(struct store *to, const struct store *from);

#endif
