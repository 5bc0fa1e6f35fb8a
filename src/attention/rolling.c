/* SPDX-License-Identifier: MIT */
/* rolling.c - attention with positions as if nothing had been dropped: keys stay rotated as they
 * are stored, and queries are turned. */
#include "rolling.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

struct rolling {
    float *q, *out; /* [chunk][n_head * hd] the part of the first tokens */
    float *lse2;    /* [chunk][n_head] */
    float *turn;    /* [n_rot / 2][2] cos, sin */
};

int cb_rolling_open(struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;
    const size_t n = (size_t)s->chunk * (size_t)hp->n_head;
    struct rolling *x;
    int any = 0;

    for (int l = 0; l < hp->n_layer; l++)
        any |= s->plan[l].pos == POS_SLOT;
    if (!any)
        return CB_OK;
    x = s->rolling = cb_calloc(1, sizeof *x);
    if (!x)
        return CB_ENOMEM;
    x->q = cb_alloc_aligned(n * (size_t)hp->hd, sizeof *x->q);
    x->out = cb_alloc_aligned(n * (size_t)hp->hd, sizeof *x->out);
    x->lse2 = cb_alloc_aligned(n, sizeof *x->lse2);
    x->turn = cb_alloc_aligned((size_t)hp->n_rot, sizeof *x->turn);
    return x->q && x->out && x->lse2 && x->turn ? CB_OK : CB_ENOMEM;
}

void cb_rolling_close(struct cb_session *s)
{
    struct rolling *x = s->rolling;

    if (!x)
        return;
    free(x->q);
    free(x->out);
    free(x->lse2);
    free(x->turn);
    free(x);
}

size_t cb_rolling_bytes(const struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;
    const size_t n = (size_t)s->chunk * (size_t)hp->n_head;

    return s->rolling ? (n * (2 * (size_t)hp->hd + 1) + (size_t)hp->n_rot) * sizeof(float) : 0;
}

/* Slots [0, *first) hold positions 0.., those after them a run of neighbours. How far the second
 * run is from where it would be if it followed the first. */
static int gap(const struct store *st, int *first)
{
    const int n = st->n[0], shift = cb_store_pos(st, 0, n - 1) - (n - 1);
    int lo = 0, hi = n - 1;

    while (lo < hi) { /* the first slot that is behind the gap */
        const int mid = (lo + hi) / 2;
        if (cb_store_pos(st, 0, mid) > mid)
            hi = mid;
        else
            lo = mid + 1;
    }
    *first = lo;
    return shift;
}

/* Do the first slots of every head lie in the first rows? They do unless some of them were dropped.
 */
static int in_front(const struct store *st, int first)
{
    for (int h = 0; h < st->n_kv; h++)
        for (int i = 0; st->mixed[h] && i < first; i++)
            if (st->row[cb_store_at(st, h, i)] != i)
                return 0;
    return 1;
}

/* The second run of every head, for the queries of `at`. One query can read rows as they lie,
 * prepacked ones among them: all of them, of which it sees what is behind the first run. */
static void second_run(struct cb_session *s, int l, int first, struct attn *at, struct kv_run *run)
{
    struct store *st = &s->store[l];
    const int whole = at->n_tok == 1 && st->any_order && in_front(st, first);

    if (!whole)
        cb_store_unpack(st, 0, st->prepacked);
    for (int h = 0; h < st->n_kv; h++)
        run[h] = cb_store_run(st, h, whole ? 0 : first, st->n[h]);
    if (whole)
        at->window = st->n[0] - first;
}

static void first_run(const struct store *st, int first, struct kv_run *run)
{
    for (int h = 0; h < st->n_kv; h++) {
        run[h] = cb_store_run(st, h, 0, st->n[h]);
        run[h].n = first;
    }
}

/* Rotated logits depend on differences of positions alone: the queries see the second run as they
 * are, and the first one turned back by the gap. Two parts, joined. */
int cb_rolling(struct cb_session *s, int l, const struct attn *all, struct kv_run *run, float *lse)
{
    const struct hparams *hp = &s->model->hp;
    const struct ops *op = s->dev->ops;
    struct rolling *x = s->rolling;
    const struct store *st = &s->store[l];
    const size_t row = (size_t)hp->n_head * (size_t)hp->hd;
    struct attn at = *all;
    int first = 0;
    const int shift = s->plan[l].pos == POS_SLOT ? gap(st, &first) : 0;

    if (!shift)
        return 0;
    second_run(s, l, first, &at, run);
    at.lse = lse;
    op->attention(s->dev, &at);
    for (int i = 0; i < at.n_tok; i++)
        memcpy(x->q + (size_t)i * row, at.q + (size_t)i * (size_t)at.q_stride, row * sizeof *x->q);
    cb_model_rope_table(s->model, -shift, 1, x->turn);
    op->rope(s->dev, s->model->arch->rope, x->q, 1, at.n_tok * hp->n_head, hp->hd, 0, hp->n_rot,
             x->turn);
    first_run(st, first, run);
    at.window = 0;
    at.causal = 0;
    at.q = x->q;
    at.q_stride = (int)row;
    at.out = x->out;
    at.lse = x->lse2;
    op->attention(s->dev, &at);
    op->join(s->dev, all->out, lse, x->out, x->lse2, at.n_tok * hp->n_head, hp->hd);
    for (int h = 0; h < hp->n_kv; h++) /* for the count of what was read */
        run[h].n = st->n[h];
    return 1;
}
