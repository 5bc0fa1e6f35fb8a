/* SPDX-License-Identifier: MIT */
/* rolling.h - attention at rolling positions: as if nothing had been dropped (StreamingLLM, Xiao et
 * al. 2023, section 3.2). */
#ifndef ROLLING_H
#define ROLLING_H

#include "attention.h"

int cb_rolling_open(struct attention *a); /* nothing where the plan has no such layer */
void cb_rolling_close(struct attention *a);
size_t cb_rolling_bytes(const struct attention *a);
/* Before the parts are made, for n queries: the store's rows are brought into an order that they
 * can be read in. */
void cb_rolling_prepare(struct attention *a, int l, int n);
/* The parts of chunk c where something lies between the two runs: 1; else nothing: 0. */
int cb_rolling_parts(struct attention *a, const struct chunk *c);

#endif
