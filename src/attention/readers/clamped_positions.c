/* SPDX-License-Identifier: MIT */
/* clamped_positions.c - a window, read as it is, and the first tokens, which are as far away as the
 * window is long (LM-Infinite, Han et al. 2024). Logits depend on differences of positions alone:
 * a copy of the first keys is turned to position 0, and queries are turned to the window's length.
 * A token within the window is read there alone. */

#include "attention/parts.h"
#include "attention/reader.h"
#include "attention/state_memory.h"
#include "attention/turned_queries.h"
#include "base/err.h"
#include "base/ints.h"

enum { MANY = CB_STORE_MANY };

struct clamped_positions {
    int sink;       /* first tokens; layers do not differ */
    float *cs;      /* [ROPE_TABLES][sink][n_rot] what turns them to position 0 */
    float *x;       /* [MANY][hd] */
    uint8_t *k, *v; /* [n_kv][sink] rows */
};

static int claims(const struct claim *c)
{
    return c->row->rolling == ROLL_CLAMPED;
}

static int open(struct attention *a, void *state)
{
    const size_t n_kv = (size_t)a->bank->n_kv, n_rot = (size_t)a->model->hp.n_rot;
    struct clamped_positions *x = state;
    const int sink = x->sink = a->plan[cb_reader_first(a, x)].prompt_sink;
    const size_t n = (size_t)(sink ? sink : 1);

    x->cs = cb_state_alloc(x, ROPE_TABLES * n * n_rot, sizeof *x->cs);
    x->x = cb_state_alloc(x, (size_t)MANY * (size_t)a->bank->hd, sizeof *x->x);
    x->k = cb_state_alloc(x, n_kv * n, cb_attention_typical(a)->row_k);
    x->v = cb_state_alloc(x, n_kv * n, cb_attention_typical(a)->row_v);
    if (!x->cs || !x->x || !x->k || !x->v)
        return CB_ENOMEM;
    for (int t = 0; t < ROPE_TABLES; t++)
        for (int i = 0; i < sink && a->rope[t].n_rot == (int)n_rot; i++)
            cb_rope_turn(&a->rope[t], -i, x->cs + ((size_t)t * n + (size_t)i) * n_rot);
    return CB_OK;
}

/* The first n tokens of a KV head as rows, keys turned to position 0 */
static struct kv_run first_tokens(struct attention *a, int l, int kv, int n)
{
    const struct hparams *hp = &a->model->hp;
    const struct store *st = &a->bank->store[l];
    const int table = a->model->layer[l].rope;
    struct clamped_positions *x = cb_reader_state(a, l);
    uint8_t *k = x->k + (size_t)(kv * x->sink) * st->row_k;
    uint8_t *v = x->v + (size_t)(kv * x->sink) * st->row_v;

    for (int i = 0; i < n; i += MANY) {
        const int m = min_int(MANY, n - i);
        cb_store_get_range(st, a->dev, kv, 0, i, m, x->x);
        if (table >= 0)
            a->dev->ops->rope(a->dev, a->model->hp.rope_kind, x->x, m, 1, hp->hd, hp->hd, hp->n_rot,
                              x->cs + (size_t)(table * x->sink + i) * (size_t)hp->n_rot);
        a->dev->ops->kv_encode(a->dev, st->type_k, x->x, m, hp->hd, hp->hd,
                               k + (size_t)i * st->row_k);
        cb_store_get_range(st, a->dev, kv, 1, i, m, x->x);
        a->dev->ops->kv_encode(a->dev, st->type_v, x->x, m, hp->hd, hp->hd,
                               v + (size_t)i * st->row_v);
    }
    return (struct kv_run){ .k = k, .v = v, .n = n };
}

/* Queries from..to-1 of the chunk read the first n tokens; with causal each query one more than the
 * query before it, up to n. q: the chunk's query `from`, turned to the window's length */
static int add_first(struct attention *a, const struct chunk *c, int from, int to, int causal,
                     int n, const float *q)
{
    struct part p = cb_parts_some(a, c, from, to - from);
    struct kv_run *run;

    p.q = q;
    p.q_stride = (int)cb_attention_row(a);
    p.causal = causal;
    p.window = 0;
    p.joins = 1;
    TRY(cb_parts_add(a, &p, &run));
    for (int h = 0; h < a->bank->n_kv; h++)
        run[h] = first_tokens(a, c->l, h, n);
    return CB_OK;
}

static int parts(struct attention *a, const struct chunk *c)
{
    const int sink = a->plan[c->l].prompt_sink, window = a->plan[c->l].prompt_window;
    const int near = max_int(0, min_int(window - c->pos0, c->n));
    /* from here on all first tokens are outside the window */
    const int far = max_int(near, min_int(window + sink - 1 - c->pos0, c->n));
    struct part p = cb_parts_some(a, c, 0, near);
    const float *q;

    if (near == c->n)
        return 0;
    p.window = 0;
    if (near)
        TRY(cb_parts_add_slots(a, c, &p, 0, c->n - near, NULL));
    p = cb_parts_some(a, c, near, c->n - near);
    p.window = window;
    TRY(cb_parts_add_slots(a, c, &p, 0, 0, NULL));
    if (!sink)
        return 1;
    TRY(cb_device_wait(a->dev)); /* the host reads the rows that ops have stored */
    q = cb_turned_queries(a, c, near, c->pos0 + near - window, 1);
    if (far > near)
        TRY(add_first(a, c, near, far, 1, c->pos0 + far - window, q));
    if (far < c->n)
        TRY(add_first(a, c, far, c->n, 0, sink, q + (size_t)(far - near) * cb_attention_row(a)));
    return 1;
}

const struct reader cb_reader_clamped_positions = {
    .name = "the first tokens from one distance",
    .traits =
        READ_EXTENDS | READ_PREPACKS | READ_ANY_ORDER | READ_JOINS | READ_TURNS | READ_BY_PARTS,
    .claims = claims,
    .state = sizeof(struct clamped_positions),
    .open = open,
    .parts = parts,
};
