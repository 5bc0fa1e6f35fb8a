/* SPDX-License-Identifier: MIT */
/* prepacked.h - prepacked blocks as the CPU's instruction sets lay them out, in plain C, for
 * whoever finds blocks that the device at hand does not read. */
#ifndef PREPACKED_H
#define PREPACKED_H

#include "device.h"

/* What blocks of this instruction set are called: those of sets with the same form have one name */
const char *cb_prepacked_form(const char *isa);
/* Keys that the instruction set `isa` puts side by side; 0: it has no known form */
int cb_prepacked_panel(const char *isa);
/* A block of KV_PREPACK keys (v = 0) or values in panels of these keys -> rows, which may be the
 * block. Types with step[] come back rounded. x: room for KV_PREPACK * hd floats */
void cb_prepacked_open(struct device *d, enum kv_type t, int v, int hd, int panel,
                       const void *codes, const float *step, float *x, void *rows);

#endif
