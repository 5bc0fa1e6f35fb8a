/* SPDX-License-Identifier: MIT */
/* view.c - what the hooks of a method may see of the bank. */
#include "bank/bank.h"
#include "policy.h"

static struct store *store_of(const struct policy *p, int l)
{
    return &p->bank->store[p->sh.at ? p->sh.at[l] : l];
}

int cb_view_len(const struct policy *p, int l, int kv)
{
    return store_of(p, l)->n[kv];
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

int cb_view_tail(const struct policy *p, int limit)
{
    const int n = cb_view_seen(p) - cb_view_prompt_end(p);
    return n > limit ? limit + 1 : n;
}

float *cb_view_col(struct policy *p, int l, int kv, int col)
{
    return cb_store_col(store_of(p, l), kv, col);
}
