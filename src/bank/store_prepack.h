/* SPDX-License-Identifier: MIT */
/* store_prepack.h - rows that are read for every token, in blocks that attention multiplies as they
 * are. */
#ifndef STORE_PREPACK_H
#define STORE_PREPACK_H

#include "store_state.h"

/* From now on cb_store_prepack() prepacks whole blocks, where the device can. */
void cb_store_may_prepack(struct store *s, struct device *d);
int cb_store_prepack(struct store *s); /* what is whole and is not yet */
void cb_store_prepack_close(struct store *s);
int cb_store_need_steps(struct store *s, int v); /* room for those of keys (v = 0) or values */
/* No block from row `from` on is prepacked any more; those that hold rows below n are rows again.
 */
void cb_store_unpack(struct store *s, int from, int n);
/* Those of a row and the ones behind it; NULL: there are none */
float *cb_store_steps(const struct store *s, int kv, int v, int row);
/* Bytes of the steps of a head's n rows once they are prepacked */
uint64_t cb_store_step_bytes(const struct store *s, int n);

#endif
