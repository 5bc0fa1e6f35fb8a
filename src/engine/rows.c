/* SPDX-License-Identifier: MIT */
/* rows.c - which rows of a prompt are read after the model's last layer. */
#include "rows.h"

#include "base/ints.h"
#include "layer_ring.h"

int cb_rows_wanted(const struct cb_session *s, const struct cb_prefill *how)
{
    const int n = s->bank.n_feed;

    if (how && how->states)
        return n;
    if (how && how->logits)
        return max_int(1, n - how->logits_from);
    return s->attention.repeated.to || (s->partial_prompt && !s->bank.decoding) ? 0 : 1;
}

int cb_rows_unread(const struct cb_session *s, const struct cb_prefill *how, int l, int i, int m)
{
    const struct hparams *hp = &s->model->hp;
    const int one_stream = hp->n_stream == 1 && !hp->altup && !hp->compress.n_group;

    if (l < hp->n_layer - 1 || !cb_ring_ends(s) || s->bank.decoding || !one_stream || s->follower ||
        s->model->mtp_of || s->attention.split)
        return 0;
    return max_int(0, min_int(m, s->next.n_tok - cb_rows_wanted(s, how) - i));
}

struct rows cb_rows_read(const struct rows *all)
{
    const struct cb_session *s = all->s[0];
    const size_t n = (size_t)all->unread;
    struct rows r = *all;

    if (!n)
        return r;
    r.unread = 0;
    r.n_tok -= all->unread;
    r.pos0 += all->unread;
    r.pos = all->pos ? all->pos + n : NULL;
    r.id = all->id ? all->id + n : NULL;
    r.x += n * cb_stream_row(s);
    for (int t = 0; t < ROPE_TABLES; t++)
        r.cs[t] = all->cs[t] ? all->cs[t] + n * (size_t)s->rope[t].n_rot : NULL;
    return r;
}
