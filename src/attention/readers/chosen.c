/* SPDX-License-Identifier: MIT */
/* chosen.c - a layer whose decoded tokens read the slots that an earlier layer has chosen for them
 * (chooser.c). */
#include "attention/context_split.h"
#include "attention/parts.h"
#include "attention/reader.h"
#include "base/err.h"
#include "base/ints.h"
#include "chooser.h"
#include "whole.h"

/* Reads the slots that layer `as` chose, in all KV heads, if its window is that of layer c->l. */
static int chosen_parts(struct attention *a, const struct chunk *c)
{
    const int as = a->plan[c->l].reads;
    struct part p = cb_parts_of(a, c);
    const int32_t *slot;
    int n;

    if (!a->bank->decoding)
        return 0;
    slot = cb_chooser_slots(a, as, &n);
    if (!slot || cb_attention_window(a, as) != cb_attention_window(a, c->l))
        return 0;
    p.window = 0; /* the choice already lies within the window */
    TRY(cb_parts_add_list(a, c, &p, slot, n));
    return 1;
}

/* The slots that a token reads of a choice out of n, and how many of them are the tail */
static int n_chosen(const struct choice_plan *r, int n, int n_prompt, int *tail)
{
    *tail = cb_chooser_tail(r, n, n_prompt);
    return cb_chooser_k(r, n - *tail) + *tail;
}

static uint64_t chosen_bytes(const struct attention *a, int l, int n, const struct planned *p,
                             uint64_t *scanned)
{
    const int window = cb_attention_window(a, l), lost = window && n > window ? n - window : 0;
    const struct choice_plan *r = &a->plan[a->plan[l].reads].choice;
    int tail, reads;

    (void)scanned;
    if (cb_context_split_deals(a, l)) { /* this rank has a part of the chosen slots */
        const int all = p->n_prompt + p->n_gen, n_rank = cb_context_split_ranks(a);
        reads = (n_chosen(r, all, p->n_prompt, &tail) - tail + n_rank - 1) / n_rank + n -
                cb_context_split_own(a, l, all - tail);
        return cb_whole_rows_bytes(&a->bank->store[l], min_int(n, reads));
    }
    reads = n_chosen(r, n - lost, max_int(0, p->n_prompt - lost), &tail);
    return cb_whole_rows_bytes(&a->bank->store[l], min_int(n - lost, reads));
}

static int claims_chosen(const struct claim *c)
{
    return c->row->reads >= 0;
}

const struct reader cb_reader_chosen = {
    .name = "what another layer chose",
    .traits = READ_DENSE | READ_EXTENDS | READ_PROMPT | READ_SORTED | READ_SHARES,
    .claims = claims_chosen,
    .parts = chosen_parts,
    .deals_by = cb_chooser_deals_by,
    .read_bytes = chosen_bytes,
};
