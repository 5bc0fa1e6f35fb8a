/* SPDX-License-Identifier: MIT */
/* store_planes.h - a store whose keys are in two planes (device/planes.h), a form of quantised keys
 * (store_kivi.h). The first plane is the sketch of whole blocks; the first tokens, which count for
 * no sketch's range, and those of a block that is not full stay f16 rows. */
#ifndef STORE_PLANES_H
#define STORE_PLANES_H

#include "store_kivi.h"

/* The store was just opened, sketches its keys (cb_store_may_sketch), and keeps all slots. v: form
 * of the values */
int cb_planes_open(struct store *s, struct kivi_form v);

/* The keys of sketched blocks that are still rows become rows of the second plane. Does nothing in
 * a store without planes, nor does the next. */
void cb_planes_advance(struct store *s, struct device *d);
/* Before slots from n on are forgotten, and the sketch of the block that n lies in: its keys before
 * n become f16 rows again, as the planes have them. */
void cb_planes_cut(struct store *s, int kv, int n);
#endif
