/* SPDX-License-Identifier: MIT */
/* draft_rows.c - takes drafted tokens back: a store returns to its state before the first held
 * token, then stores the accepted tokens again by the same steps: dropped slot, new row, prepacked
 * block. So it has the bits that it would have if the other tokens had never been decoded. */
#include "draft_rows.h"

#include <stdlib.h>

#include "bank/store_hold.h"
#include "bank/store_prepack.h"
#include "base/err.h"
#include "base/ints.h"

struct held {
    struct store_hold *before; /* NULL: the layer needs none */
    float *kv; /* [most][2][n_kv * hd] keys and values of the tokens, on the device where it has
                  memory of its own */
    int n;     /* tokens that it has taken */
};

struct draft_rows {
    int most;           /* tokens that there is room for */
    int base, n;        /* n tokens may be taken back from position base on; 0: none */
    int together;       /* 1: they are decoded in one call */
    struct held *layer; /* [n_layer] */
    size_t bytes;
};

static size_t row(const struct attention *a, int l)
{
    return (size_t)a->bank->store[l].n_kv * (size_t)a->bank->store[l].hd;
}

/* ---- memory ---- */

static void close_layers(struct attention *a)
{
    struct draft_rows *x = a->draft;

    for (int l = 0; x->layer && l < a->bank->n_layer; l++) {
        cb_store_hold_free(x->layer[l].before);
        cb_device_free(a->dev, x->layer[l].kv);
    }
    free(x->layer);
    *x = (struct draft_rows){ 0 };
}

void cb_draft_rows_close(struct attention *a)
{
    if (!a->draft)
        return;
    close_layers(a);
    free(a->draft);
    a->draft = NULL;
}

size_t cb_draft_rows_bytes(const struct attention *a)
{
    size_t sum = a->draft ? a->draft->bytes : 0;

    for (int l = 0; sum && l < a->bank->n_layer; l++)
        if (a->draft->layer[l].before)
            sum += cb_store_hold_bytes(a->draft->layer[l].before);
    return sum;
}

/* Does a token change the store of layer l in a way that cb_store_cut() does not undo? */
static int needs(const struct attention *a, int l, int window)
{
    return a->bank->store[l].n_kv && !a->model->layer[l].kv_back &&
           (window || a->model->layer[l].lends);
}

static int any(const struct attention *a, window_of *window)
{
    for (int l = 0; l < a->bank->n_layer; l++)
        if (needs(a, l, window(a, l)))
            return 1;
    return 0;
}

static int open_layers(struct attention *a, int n, window_of *window)
{
    struct draft_rows *x = a->draft;

    x->layer = cb_calloc((size_t)a->bank->n_layer, sizeof *x->layer);
    if (!x->layer)
        return CB_ENOMEM;
    for (int l = 0; l < a->bank->n_layer; l++) {
        const size_t floats = 2 * (size_t)n * row(a, l);
        if (!needs(a, l, window(a, l)))
            continue;
        TRY(cb_store_hold_new(&a->bank->store[l], window(a, l), &x->layer[l].before));
        x->layer[l].kv = cb_device_alloc(a->dev, floats, sizeof(float));
        if (!x->layer[l].kv)
            return CB_ENOMEM;
        x->bytes += floats * sizeof(float);
    }
    x->most = n;
    return CB_OK;
}

int cb_draft_rows_fit(struct attention *a, int n, window_of *window)
{
    int err;

    if ((a->draft && n <= a->draft->most) || n < 2 || !any(a, window))
        return CB_OK;
    if (!a->draft && !(a->draft = cb_calloc(1, sizeof *a->draft)))
        return CB_ENOMEM;
    close_layers(a);
    err = open_layers(a, n, window);
    if (err)
        cb_draft_rows_close(a);
    return err;
}

/* ---- what is held ---- */

void cb_draft_rows_begin(struct attention *a, int n, int together)
{
    struct draft_rows *x = a->draft;

    if (!x)
        return;
    x->base = a->bank->n_seen;
    x->n = min_int(n, x->most);
    x->together = together;
    for (int l = 0; l < a->bank->n_layer; l++)
        x->layer[l].n = 0;
}

void cb_draft_rows_end(struct attention *a)
{
    if (a->draft)
        a->draft->n = 0;
}

void cb_draft_rows_feed(struct attention *a)
{
    if (a->draft && a->draft->together)
        a->draft->n = 0;
}

/* Can layers go back to n tokens? */
static int reach(const struct attention *a, int n)
{
    const struct draft_rows *x = a->draft;

    return x && x->n && n >= x->base && a->bank->n_seen <= x->base + x->n;
}

int cb_draft_rows_has(const struct attention *a, int l, int n)
{
    return reach(a, n) && a->draft->layer[l].before && a->draft->layer[l].n > 0;
}

static float *held_row(const struct attention *a, int l, int i)
{
    return a->draft->layer[l].kv + 2 * (size_t)i * row(a, l);
}

int cb_draft_rows_note(struct attention *a, const struct chunk *c)
{
    struct draft_rows *x = a->draft;
    const size_t bytes = row(a, c->l) * sizeof(float);
    struct held *h = x && x->n ? &x->layer[c->l] : NULL;
    float *to;

    if (!h)
        return CB_OK;
    if (c->n != 1 || c->pos0 < x->base || c->pos0 >= x->base + x->n) {
        x->n = 0;
        return CB_OK;
    }
    if (!h->before)
        return CB_OK;
    if (c->pos0 == x->base)
        TRY(cb_store_hold_take(h->before, &a->bank->store[c->l], x->n));
    h->n = c->pos0 - x->base + 1;
    to = held_row(a, c->l, h->n - 1);
    cb_device_copy(a->dev, to, c->k, bytes);
    cb_device_copy(a->dev, to + row(a, c->l), c->v, bytes);
    return CB_OK;
}

/* ---- going back ---- */

/* The i-th held token comes to layer l again. */
static int again(struct attention *a, int l, int i, store_chunk *store)
{
    struct store *st = &a->bank->store[l];
    const float *k = held_row(a, l, i);
    const struct chunk c = { .l = l,
                             .k = k,
                             .v = k + row(a, l),
                             .stride = (int)(2 * row(a, l)),
                             .n = 1,
                             .pos0 = a->draft->base + i,
                             .pos_end = a->draft->base + i + 1 };

    TRY(store(a, &c));
    TRY(cb_device_wait(a->dev)); /* prepacking reads the rows */
    return cb_store_prepack(st);
}

static int restore(struct attention *a, int l)
{
    TRY(cb_device_wait(a->dev)); /* the host writes rows that ops have read */
    cb_store_hold_restore(a->draft->layer[l].before, &a->bank->store[l]);
    return CB_OK;
}

int cb_draft_rows_lend(struct attention *a, const struct chunk *c, store_chunk *store)
{
    const int l = c->l - a->model->layer[c->l].kv_back, i = a->draft_index;

    if (!a->draft || !a->draft->n || !a->draft->together)
        return CB_OK;
    if (!i)
        TRY(restore(a, l));
    return again(a, l, i, store);
}

int cb_draft_rows_cut(struct attention *a, int n, store_chunk *store)
{
    struct draft_rows *x = a->draft;
    const int was = a->bank->decoding;
    int err = CB_OK;

    if (!x || !x->n)
        return CB_OK;
    if (!reach(a, n) || n >= a->bank->n_seen) {
        x->n = n < a->bank->n_seen ? 0 : x->n;
        return CB_OK;
    }
    a->bank->decoding = 1;
    for (int l = 0; !err && l < a->bank->n_layer; l++) {
        if (!x->layer[l].before || !x->layer[l].n)
            continue;
        err = restore(a, l);
        for (int i = 0; !err && i < n - x->base; i++)
            err = again(a, l, i, store);
        x->layer[l].n = n - x->base;
    }
    a->bank->decoding = was;
    if (x->together)
        x->n = 0;
    return err;
}
