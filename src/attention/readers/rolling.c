/* SPDX-License-Identifier: MIT */
/* rolling.c - attention to a run of first tokens and a run of last ones, at rolling positions or at
 * the true ones. Keys stay rotated as stored; queries are turned instead. Rotated logits depend
 * only on differences of positions, so queries read the last run as they are, and the first run
 * turned back by the gap. The two parts are joined. */
#include "rolling.h"

#include <stdlib.h>
#include <string.h>

#include "attention/parts.h"
#include "base/err.h"
#include "base/ints.h"

struct rolling {
    float *q;    /* [chunk][n_head * hd] turned queries */
    float *turn; /* [chunk][n_rot / 2][2] cos, sin */
};

int cb_rolling_open(struct attention *a)
{
    struct rolling *x;
    int any = 0;

    for (int l = 0; l < a->bank->n_layer; l++)
        any |= a->plan[l].rolling || a->plan[l].far.block;
    if (!any)
        return CB_OK;
    x = a->rolling = cb_calloc(1, sizeof *x);
    if (!x)
        return CB_ENOMEM;
    x->q = cb_device_alloc(a->dev, (size_t)a->chunk * cb_attention_row(a), sizeof *x->q);
    x->turn = cb_alloc_aligned((size_t)a->chunk * (size_t)a->model->hp.n_rot, sizeof *x->turn);
    return x->q && x->turn ? CB_OK : CB_ENOMEM;
}

void cb_rolling_close(struct attention *a)
{
    if (!a->rolling)
        return;
    cb_device_free(a->dev, a->rolling->q);
    free(a->rolling->turn);
    free(a->rolling);
}

size_t cb_rolling_bytes(const struct attention *a)
{
    const size_t row = cb_attention_row(a) + (size_t)a->model->hp.n_rot;
    return a->rolling ? (size_t)a->chunk * row * sizeof(float) : 0;
}

/* Slots [0, *first) hold positions 0.., the slots after them a run of consecutive positions.
 * Returns the gap between the two runs, in positions. */
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

/* A single query can read all rows as they lie, prepacked ones too; its window hides the first
 * run. */
static int reads_rows_as_they_lie(const struct store *st, int n, int first)
{
    return n == 1 && st->any_order && in_front(st, first);
}

void cb_rolling_prepare(struct attention *a, int l, int n)
{
    struct store *st = &a->bank->store[l];
    const int windowed = !a->bank->decoding && a->plan[l].prompt_window;
    int first;

    if (windowed || (a->plan[l].rolling == ROLL_RUNS && gap(st, &first) &&
                     !reads_rows_as_they_lie(st, n, first)))
        cb_store_unpack(st, 0, st->prepacked);
}

const float *cb_rolling_turn(struct attention *a, const struct chunk *c, int from, int shift,
                             int more)
{
    const struct hparams *hp = &a->model->hp;
    const int table = a->model->layer[c->l].rope;
    struct rolling *x = a->rolling;
    const size_t row = cb_attention_row(a);
    const int n = c->n - from;

    cb_device_copy_rows(a->dev, x->q, row * sizeof *x->q, c->q + (size_t)from * (size_t)c->stride,
                        (size_t)c->stride * sizeof *c->q, row * sizeof *x->q, n);
    if (table < 0)
        return x->q;
    for (int i = 0; i < (more ? n : 1); i++)
        cb_rope_turn(&a->rope[table], -(shift + i * more), x->turn + (size_t)i * (size_t)hp->n_rot);
    a->dev->ops->rope(a->dev, a->model->arch->rope, x->q, more ? n : 1,
                      more ? hp->n_head : n * hp->n_head, hp->hd, (int)row, hp->n_rot, x->turn);
    return x->q;
}

/* Queries first.. of the chunk read the first n_first slots, all of them. */
static int add_front(struct attention *a, const struct chunk *c, int first, const float *q,
                     int q_stride, int n_first)
{
    const struct store *st = &a->bank->store[c->l];
    struct part p = cb_parts_of(a, c);
    struct kv_run *run;

    p.first = first;
    p.n = c->n - first;
    p.q = q;
    p.q_stride = q_stride;
    p.causal = p.window = 0;
    p.joins = 1;
    TRY(cb_parts_add(a, &p, &run));
    for (int h = 0; h < st->n_kv; h++) {
        run[h] =
            cb_store_run(st, h, 0, st->n[h]); /* prepacked rows are read from the first one on */
        run[h].n = n_first;
    }
    return CB_OK;
}

/* The first n queries see everything before them. */
static int add_near(struct attention *a, const struct chunk *c, int n)
{
    const struct store *st = &a->bank->store[c->l];
    struct part p = cb_parts_of(a, c);
    struct kv_run *run;

    p.n = n;
    TRY(cb_parts_add(a, &p, &run));
    for (int h = 0; h < st->n_kv; h++)
        run[h] = cb_store_run(st, h, 0, st->n[h] - c->n + n);
    return CB_OK;
}

/* A prompt whose queries see the first tokens and a window. A query within sink + window slots sees
 * all of them; the others are at the same rank, so that is the position from which they see the
 * first tokens. */
static int windowed_parts(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    const struct layer_plan *plan = &a->plan[c->l];
    const int sink = plan->prompt_sink, rank = sink + plan->prompt_window - 1;
    const int n = st->n[0], slot = n - c->n;
    const int near = st->pos && cb_store_pos(st, 0, n - 1) > n - 1
                         ? 0
                         : max_int(0, min_int(rank + 1 - slot, c->n));
    const float *q = c->q + (size_t)near * (size_t)c->stride;
    struct part p = cb_parts_of(a, c);
    struct kv_run *run;

    if (near > 0)
        TRY(add_near(a, c, near));
    if (near == c->n)
        return 1;
    p.first = near;
    p.n = c->n - near;
    p.q = q;
    p.window = plan->prompt_window;
    p.after = sink;
    TRY(cb_parts_add(a, &p, &run));
    for (int h = 0; h < st->n_kv; h++)
        run[h] = cb_store_run(st, h, sink, n);
    if (!sink)
        return 1;
    if (!plan->rolling)
        TRY(add_front(a, c, near, q, c->stride, sink));
    else
        TRY(add_front(a, c, near, cb_rolling_turn(a, c, near, c->pos0 + near - rank, 1),
                      (int)cb_attention_row(a), sink));
    return 1;
}

int cb_rolling_parts(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    struct part last = cb_parts_of(a, c);
    struct kv_run *run;
    int first = 0;
    const int shift = a->plan[c->l].rolling == ROLL_RUNS ? gap(st, &first) : 0;
    const int whole = shift && reads_rows_as_they_lie(st, c->n, first);

    if (!a->bank->decoding && a->plan[c->l].prompt_window)
        return windowed_parts(a, c);
    if (!shift)
        return 0;
    last.after = whole ? 0 : first;
    if (whole)
        last.window = st->n[0] - first;
    TRY(cb_parts_add(a, &last, &run));
    for (int h = 0; h < st->n_kv; h++)
        run[h] = cb_store_run(st, h, last.after, st->n[h]);
    TRY(add_front(a, c, 0, cb_rolling_turn(a, c, 0, shift, 0), (int)cb_attention_row(a), first));
    return 1;
}
