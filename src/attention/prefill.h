/* SPDX-License-Identifier: MIT */
/* prefill.h - a way in which a prompt attends to a part of the tokens before it, as a table of
 * functions. A session has one, or none: then prompts attend densely (prefill_table.c). A prompt's
 * parts come from it, or where it makes none from the reader of the layer. */
#ifndef PREFILL_H
#define PREFILL_H

#include "attention.h"
#include "context_split.h"

struct prefill {
    int copies;  /* 1: it reads copies of the rows of layers that the policy acts on */
    int by_head; /* 1: a part has a run for each query head */

    size_t state; /* bytes of its state (state_memory.h), which is its work space */
    int (*open)(struct attention *a, void *x); /* fills it, which is zeros */

    /* The most tokens that go through a layer at once from the i-th of a prompt on */
    int (*room)(const struct attention *a, int i);
    /* The new rows of c are in the store. NULL: nothing is to be done */
    void (*stored)(struct attention *a, const struct chunk *c);
    /* Adds the parts that c reads and returns 1; returns 0 if its layer's reader makes them. */
    int (*parts)(struct attention *a, const struct chunk *c);
    /* c has attended. NULL: nothing is to be done */
    void (*attended)(struct attention *a, const struct chunk *c);
    /* Did the last tokens of the prompt read only a part in layer l? */
    int (*partly)(const struct attention *a, int l);
};

/* Do some layers read a part of a prompt? */
static inline int cb_prefill_is(const struct attention *a)
{
    return a->prompt.how != NULL;
}

/* After how many tokens of a prompt layer l drops slots, besides at its end; 0: never. Where a
 * prompt reads a part of the slots, or ranks compute parts of it, all of them must still be there.
 */
static inline int cb_prefill_drops_every(const struct attention *a, int l)
{
    return cb_prefill_is(a) || cb_context_split_deals_work(a) ? 0 : a->plan[l].drop_every;
}

#endif
