/* SPDX-License-Identifier: MIT */
/* prefill_table.h - which form of prefill a session has. */
#ifndef PREFILL_TABLE_H
#define PREFILL_TABLE_H

#include "attention.h"

/* spec: a form with options; NULL = "dense". Call close() even after a failure. */
int cb_prefill_open(struct attention *a, const char *spec);
void cb_prefill_close(struct attention *a);

#endif
