/* SPDX-License-Identifier: MIT */
/* prefill_table.h - which form of prefill a session has. */
#ifndef PREFILL_TABLE_H
#define PREFILL_TABLE_H

#include "attention.h"

/* spec: a form with options; NULL = "dense". Call close() even after a failure. */
int cb_prefill_open(struct attention *a, const char *spec);
void cb_prefill_close(struct attention *a);
size_t cb_prefill_bytes(const struct attention *a);
/* Why a policy does not go with a form of prefill: its layers lack the keys that the prompt chooses
 * from, drop them early, or want scores of all queries. NULL: it does */
const char *cb_prefill_refuses(const struct method *form, const struct layer_plan *row,
                               int n_layer);

#endif
