/* SPDX-License-Identifier: MIT */
/* chooser.h - layers that read everything and choose the slots that later layers read. */
#ifndef CHOOSER_H
#define CHOOSER_H

#include "attention/attention.h"

enum { CHOICES = MOST_DRAFT + 1 }; /* most tokens of a session that are decoded together */

/* The number of slots that a layer chooses from n candidates */
int cb_chooser_k(const struct choice_plan *r, int n);
/* How many of n tokens are in the tail after a prompt of n_prompt. When it has grown too long, its
 * older part joins the candidates, and it grows from tail_left again. */
int cb_chooser_tail(const struct choice_plan *r, int n, int n_prompt);
/* Ranks deal out single slots. */
static inline int cb_chooser_deals_by(const struct attention *a, int l)
{
    (void)a, (void)l;
    return 1;
}
/* The *n slots that layer l chose; NULL: all. */
const int32_t *cb_chooser_slots(const struct attention *a, int l, int *n);

#endif
