/* SPDX-License-Identifier: MIT */
/* scoring.h - what a prompt's slots are scored by, as a table of functions. A layer whose plan asks
 * for scores of prompts has one, which it gets when the session opens (scoring_table.c). */
#ifndef SCORING_H
#define SCORING_H

#include "attention.h"

struct scoring {
    int shared;    /* 1: sessions that share a prompt and a plan gather its scores once */
    int reads;     /* 1: prompt() reads stored rows, so the device must be done */
    int by_repeat; /* 1: by a repetition of the prompt, whose chunks come to chunk() */

    /* Does a layer's plan ask for this scoring? The layer takes the first one of the table. */
    int (*claims)(const struct layer_plan *row);
    size_t state; /* bytes of its state in the session, of all layers (state_memory.h); 0: none */
    int (*open)(struct attention *a, void *x); /* fills it, which is zeros */

    /* Adds chunk c, from the parts in the list of `read`: a itself, or its leader, whose chunk may
     * be longer. lse[c->n][n_head]: the parts' log-sum-exp. first: the prompt begins with c, or the
     * layer has just dropped slots */
    int (*chunk)(struct attention *a, const struct chunk *c, const struct attention *read,
                 const float *lse, int first);
    /* The prompt has gone through layer l on all ranks, each of which has added the chunks that it
     * computes: afterwards this one has what it needs of all. NULL: it needs all chunks */
    int (*share)(struct attention *a, int l);
    /* The prompt has gone through layer l. */
    void (*prompt)(struct attention *a, int l, struct scores *out);
};

/* The state of layer l's scoring */
static inline void *cb_scoring_state(const struct attention *a, int l)
{
    return a->scored[l]->x;
}

#endif
