/* SPDX-License-Identifier: MIT */
/* view.c - what the hooks of a method may see of the bank. */
#include "bank/bank.h"
#include "policy.h"

int cb_view_len(const struct policy *p, int l, int kv)
{
    return p->bank->store[l].n[kv];
}

int cb_view_seen(const struct policy *p)
{
    return p->bank->n_seen + p->bank->n_feed;
}

int cb_view_prompt_end(const struct policy *p)
{
    return p->bank->prompt_end;
}

int cb_view_fed(const struct policy *p)
{
    return p->bank->n_feed;
}

const int32_t *cb_view_pos(const struct policy *p, int l, int kv)
{
    const struct store *st = &p->bank->store[l];
    return st->pos ? st->pos + (size_t)kv * (size_t)st->cap : NULL;
}

float *cb_view_col(struct policy *p, int l, int kv, int col)
{
    const struct store *st = &p->bank->store[l];
    return st->col + ((size_t)kv * (size_t)st->n_col + (size_t)col) * (size_t)st->cap;
}

void cb_view_kv(const struct policy *p, int l, int kv, int v, int slot, float *out)
{
    cb_store_get(&p->bank->store[l], p->bank->dev, kv, v, slot, out);
}
