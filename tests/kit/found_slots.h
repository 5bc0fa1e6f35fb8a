/* SPDX-License-Identifier: MIT */
/* found_slots.h - the slots that a reader's search has found, for tests. */
#ifndef FOUND_SLOTS_H
#define FOUND_SLOTS_H

#include "attention/readers/slot_lists.h"

/* The *n slots of list i of layer l, the last layer that has attended */
static inline const int32_t *cb_slot_lists_slots(const struct attention *a, int l, int i, int *n)
{
    const struct slot_lists *x = cb_reader_state(a, l);

    *n = x->n[i];
    return x->idx + (size_t)i * (size_t)a->bank->n_ctx;
}

#endif
