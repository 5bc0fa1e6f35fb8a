/* SPDX-License-Identifier: MIT */
/* rolling.c - attention to a run of first tokens and a run of last ones, at rolling positions or at
 * the true ones. Keys stay rotated as stored; queries are turned instead. Rotated logits depend
 * only on differences of positions, so queries read the last run as they are, and the first run
 * turned back by the gap. The two parts are joined. */
#include "attention/parts.h"
#include "attention/reader.h"
#include "attention/turned_queries.h"
#include "base/err.h"
#include "base/ints.h"

/* Slots [0, *first) hold positions 0.., the slots after them a run of consecutive positions.
 * Returns the gap between the two runs, in positions. */
static int gap(const struct store *st, int *first)
{
    const int n = st->n[0], shift = cb_store_pos(st, 0, n - 1) - (n - 1);
    int lo = 0, hi = n - 1;

    while (lo < hi) { /* the first slot after the gap */
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

static int stored(struct attention *a, const struct chunk *c)
{
    struct store *st = &a->bank->store[c->l];
    const int windowed = !a->bank->decoding && a->plan[c->l].prompt_window;
    int first;

    if (windowed ||
        (a->plan[c->l].rolling && gap(st, &first) && !reads_rows_as_they_lie(st, c->n, first)))
        cb_store_unpack(st, 0, st->prepacked);
    return CB_OK;
}

/* Queries first.. of the chunk read the first n_first slots, all of them. */
static int add_front(struct attention *a, const struct chunk *c, int first, const float *q,
                     int q_stride, int n_first)
{
    const struct store *st = &a->bank->store[c->l];
    struct part p = cb_parts_some(a, c, first, c->n - first);
    struct kv_run *run;

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
    struct part p = cb_parts_some(a, c, near, c->n - near);

    if (near > 0)
        TRY(cb_parts_add_first(a, c, near));
    if (near == c->n)
        return 1;
    p.window = plan->prompt_window;
    p.after = sink;
    TRY(cb_parts_add_slots(a, c, &p, sink, 0, NULL));
    if (!sink)
        return 1;
    if (!plan->rolling)
        TRY(add_front(a, c, near, p.q, c->stride, sink));
    else
        TRY(add_front(a, c, near, cb_turned_queries(a, c, near, c->pos0 + near - rank, 1),
                      (int)cb_attention_row(a), sink));
    return 1;
}

static int parts(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    struct part last = cb_parts_of(a, c);
    int first = 0;
    const int shift = a->plan[c->l].rolling ? gap(st, &first) : 0;
    const int whole = shift && reads_rows_as_they_lie(st, c->n, first);

    if (!a->bank->decoding && a->plan[c->l].prompt_window)
        return windowed_parts(a, c);
    if (!shift)
        return 0;
    last.after = whole ? 0 : first;
    if (whole)
        last.window = st->n[0] - first;
    TRY(cb_parts_add_slots(a, c, &last, last.after, 0, NULL));
    TRY(add_front(a, c, 0, cb_turned_queries(a, c, 0, shift, 0), (int)cb_attention_row(a), first));
    return 1;
}

/* At rolling positions */
static int claims(const struct claim *c)
{
    return c->row->rolling == ROLL_RUNS;
}

const struct reader cb_reader_rolling = {
    .name = "at rolling positions",
    .traits = READ_DENSE | READ_EXTENDS | READ_PREPACKS | READ_ANY_ORDER | READ_JOINS | READ_TURNS |
              READ_BY_PARTS | READ_FIRST,
    .claims = claims,
    .stored = stored,
    .parts = parts,
};

/* At the true positions, where only a prompt's queries see the ends alone */
static int claims_ends(const struct claim *c)
{
    return c->row->prompt_window && !c->row->rolling;
}

const struct reader cb_reader_ends = {
    .name = "the first and the last tokens of a prompt",
    .traits = READ_DENSE | READ_EXTENDS | READ_PREPACKS | READ_ANY_ORDER | READ_JOINS,
    .claims = claims_ends,
    .stored = stored,
    .parts = parts,
};
