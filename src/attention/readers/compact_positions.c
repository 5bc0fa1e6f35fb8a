/* SPDX-License-Identifier: MIT */
/* compact_positions.c - attention to slots at the positions of their ranks, as if they were
 * adjacent (H2O for streams, Zhang et al. 2023, published code: the cache is numbered again at each
 * step). Any slots may be left, so their distances differ from the true ones by different gaps.
 * Keys stay rotated as stored; queries read a copy of them, each turned back by its own gap. */
#include <assert.h>
#include <string.h>

#include "attention/parts.h"
#include "attention/reader.h"
#include "attention/state_memory.h"
#include "attention/turned_queries.h"
#include "base/err.h"
#include "base/ints.h"

enum {
    TURNS = 4096, /* turns that are remembered: gaps change little from one token to the next */
    MANY = CB_STORE_MANY
};

struct compact_positions {
    uint8_t *key;         /* [n_kv][n_ctx] turned keys, in the rows of the stored ones */
    float *x;             /* [MANY][hd] keys being turned */
    float *cs;            /* [MANY][n_rot] their cos and sin */
    uint8_t *row;         /* [MANY] the same keys as rows */
    float *turn;          /* [TURNS][n_rot] cos and sin of gap g at g % TURNS */
    int64_t *of;          /* [TURNS] the turn that is there + 1; 0: none */
    struct kv_kivi *kivi; /* [n_kv] stores whose keys are all rows */
};

static int open(struct attention *a, void *state)
{
    const size_t n_rot = (size_t)a->model->hp.n_rot, hd = (size_t)a->bank->hd;
    const size_t n_kv = (size_t)a->bank->n_kv, row = cb_kv_row_bytes(a->bank->type_k, a->bank->hd);
    struct compact_positions *x = state;

    x->key = cb_state_slots(x, n_kv, a->bank->n_ctx, row);
    x->x = cb_state_alloc(x, MANY * hd, sizeof *x->x);
    x->cs = cb_state_alloc(x, MANY * n_rot, sizeof *x->cs);
    x->row = cb_state_alloc(x, MANY, row);
    x->turn = cb_state_alloc(x, TURNS * n_rot, sizeof *x->turn);
    x->of = cb_state_calloc(x, TURNS, sizeof *x->of);
    x->kivi = cb_state_calloc(x, n_kv, sizeof *x->kivi);
    return CB_OK;
}

/* cos and sin that turn back by `by` positions */
static const float *turn_of(struct attention *a, struct compact_positions *x, int table, int by)
{
    const int64_t id = (int64_t)by * ROPE_TABLES + table + 1;
    float *cs = x->turn + (size_t)(by % TURNS) * (size_t)a->model->hp.n_rot;

    if (x->of[by % TURNS] != id) {
        cb_rope_turn(&a->rope[table], -by, cs);
        x->of[by % TURNS] = id;
    }
    return cs;
}

/* Turns keys of slots from..from+n-1, n <= MANY */
static void turn_some(struct attention *a, int l, int kv, int from, int n)
{
    const struct hparams *hp = &a->model->hp;
    const struct store *st = &a->bank->store[l];
    const int table = a->model->layer[l].rope, mixed = st->mixed[kv];
    struct compact_positions *x = cb_reader_state(a, l);
    const size_t row = st->row_k, n_rot = (size_t)hp->n_rot;
    uint8_t *key = x->key + (size_t)kv * (size_t)a->bank->n_ctx * row;

    for (int i = 0; i < n; i++) {
        const int gap = cb_store_pos(st, kv, from + i) - (from + i);
        memcpy(x->cs + (size_t)i * n_rot, turn_of(a, x, table, gap), n_rot * sizeof *x->cs);
    }
    cb_store_get_range(st, a->dev, kv, 0, from, n, x->x);
    a->dev->ops->rope(a->dev, a->model->hp.rope_kind, x->x, n, 1, hp->hd, hp->hd, hp->n_rot, x->cs);
    a->dev->ops->kv_encode(a->dev, st->type_k, x->x, n, hp->hd, hp->hd, x->row);
    for (int i = 0; i < n; i++) {
        const int at = mixed ? st->row[cb_store_at(st, kv, from + i)] : from + i;
        memcpy(key + (size_t)at * row, x->row + (size_t)i * row, row);
    }
}

/* The KV head's slots, with the turned keys in place of the stored ones */
static struct kv_run turned_run(struct attention *a, int l, int kv)
{
    const struct store *st = &a->bank->store[l];
    struct compact_positions *x = cb_reader_state(a, l);
    struct kv_run run = cb_store_run(st, kv, 0, st->n[kv]);

    assert(!run.prepacked && st->n[kv] == st->n[0]);
    for (int i = 0; i < run.n; i += MANY)
        turn_some(a, l, kv, i, min_int(MANY, run.n - i));
    run.k = x->key + (size_t)kv * (size_t)a->bank->n_ctx * st->row_k;
    if (run.kivi) {
        x->kivi[kv] = *run.kivi;
        x->kivi[kv].n_k = 0;
        run.kivi = &x->kivi[kv];
    }
    return run;
}

static int parts(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    const int n = st->n[0], gap = c->pos0 + c->n - n;
    struct part p = cb_parts_of(a, c);
    struct kv_run *run;

    if (!gap || a->model->layer[c->l].rope < 0)
        return 0;
    TRY(cb_device_wait(a->dev)); /* the host reads the rows that ops have stored */
    p.q = cb_turned_queries(a, c, 0, gap, 0);
    p.q_stride = (int)cb_attention_row(a);
    TRY(cb_parts_add(a, &p, &run));
    for (int h = 0; h < st->n_kv; h++)
        run[h] = turned_run(a, c->l, h);
    return 1;
}

static int claims(const struct claim *c)
{
    return c->row->rolling == ROLL_COMPACT;
}

/* Parts are as long as the first KV head's. */
static int check(const struct attention *a, int l)
{
    const struct store *st = &a->bank->store[l];

    for (int h = 0; h < st->n_kv; h++)
        if (st->n[h] != st->n[0])
            return cb_fail(CB_EFORMAT, "its KV heads hold different numbers of slots");
    return CB_OK;
}

const struct reader cb_reader_compact_positions = {
    .name = "at the positions of ranks",
    /* the copy is made of rows, so these are not prepacked */
    .traits = READ_DENSE | READ_EXTENDS | READ_ANY_ORDER | READ_TURNS | READ_BY_PARTS,
    .claims = claims,
    .state = sizeof(struct compact_positions),
    .open = open,
    .parts = parts,
    .check = check,
};
