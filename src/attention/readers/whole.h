/* SPDX-License-Identifier: MIT */
/* whole.h - what a decoded token reads of whole rows. */
#ifndef WHOLE_H
#define WHOLE_H

#include "attention/reader.h"

/* As the hook read_bytes() */
uint64_t cb_whole_read_bytes(const struct attention *a, int l, int n, const struct planned *p,
                             uint64_t *scanned);
/* Keys and values of n slots of every KV head, the newest of which is not settled yet */
uint64_t cb_whole_rows_bytes(const struct store *st, int n);
/* What layer l, which reads the slots of an earlier one, reads of n of them */
uint64_t cb_whole_lent_bytes(const struct attention *a, int l, int n);

#endif
