/* SPDX-License-Identifier: MIT */
/* tok_impl.c - the result of an encode call; lookup of tokens by spelling. */
#include "tok_impl.h"

#include <string.h>

int cb_tok_push(struct tok_work *w, int32_t id)
{
    TRY(cb_grow(&w->ids, &w->cap, w->n + 1, sizeof *w->ids));
    w->ids[w->n++] = id;
    return CB_OK;
}

uint32_t cb_tok_hash(const struct tok *t, const char *s, size_t n)
{
    return (uint32_t)cb_siphash(&t->key, s, n);
}

int32_t cb_tok_lookup(const struct tok *t, const char *s, size_t n)
{
    uint32_t h;

    if (n > t->max_len)
        return -1;
    h = cb_tok_hash(t, s, n);
    for (uint32_t i = h & t->slot_mask; t->slot[i].id >= 0; i = (i + 1) & t->slot_mask) {
        const struct vocab_slot *e = &t->slot[i];
        const struct piece *p = &t->piece[e->id];
        if (e->hash == h && p->n == n && memcmp(p->s, s, n) == 0)
            return e->id;
    }
    return -1;
}

int cb_tok_is_special(const struct tok *t, int32_t id)
{
    return id >= 0 && id < t->n_vocab &&
           (t->piece[id].type == TT_CONTROL || t->piece[id].type == TT_UNKNOWN);
}
