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

/* The *n slots that KV head i of layer l, the last one that has attended, reads; query head i, if
 * each has a choice. */
const int32_t *cb_sketch_choice_slots(const struct attention *a, int l, int i, int *n);

/* Bytes that a decoded token reads of a KV head of layer l, which then holds n slots. */
uint64_t cb_sketch_choice_read(const struct attention *a, int l, int n);

#endif
