/* SPDX-License-Identifier: MIT */
/* sketch_choice.h - layers whose decoded tokens find the slots that they read by sketched keys, or
 * by bounds of pages of keys, or by partial keys. */
#ifndef SKETCH_CHOICE_H
#define SKETCH_CHOICE_H

#include "attention/attention.h"

static inline int cb_sketch_choice_is(const struct attention *a, int l)
{
    return cb_plan_sketches(&a->plan[l]);
}

int cb_sketch_choice_open(struct attention *a); /* does nothing where the plan has no such layer */
void cb_sketch_choice_close(struct attention *a);
size_t cb_sketch_choice_bytes(const struct attention *a, int n_most); /* work space, n_most slots */

/* Adds the part of decoded token c and returns 1; returns 0 if it reads everything. */
int cb_sketch_choice_parts(struct attention *a, const struct chunk *c);

/* The *n slots that KV head i of the last layer with a choice read; query head i, if each has a
 * choice. */
const int32_t *cb_sketch_choice_slots(const struct attention *a, int i, int *n);

/* Bytes that a decoded token reads of a KV head of layer l, which then holds n slots. */
uint64_t cb_sketch_choice_read(const struct attention *a, int l, int n);
/* Of them, bytes of sketches */
uint64_t cb_sketch_choice_scanned(const struct attention *a, int l, int n);

#endif
