/* SPDX-License-Identifier: MIT */
/* attn_tile.c - tiles of queries and blocks of keys. */
#include "attn_tile.h"

#include <stdint.h>
#include <string.h>

int cb_tile_rows(int hd)
{
    const int rows = 28 * 1024 / hd;
    return rows < 512 ? rows : 512;
}

int cb_tile_tokens(const struct device *d, const struct attn *a)
{
    const int group = a->n_head / a->n_kv, busy = 4 * cb_par_threads(d->par);
    const int most = cb_tile_rows(a->hd) / group, fair = a->n_tok * a->n_kv / busy;
    int n = fair < most ? fair : most;

    n = n * group < 96 ? 96 / group : n; /* below 96 rows the cost of packing keys shows */
    return n > 0 ? n : 1;
}

static size_t round64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

/* The largest size of a packed query (key = 0) or key, over all types */
static size_t packed_bytes(const struct kern_attn *k, int key, int hd)
{
    size_t most = 0;

    for (int t = 0; t <= KV_TYPE_COUNT; t++) {
        const struct kern_qk *qk = t < KV_TYPE_COUNT ? k->qk[t] : k->qk_half;
        const size_t n = !qk ? 0 : key ? qk->k_bytes(hd) : qk->q_bytes(hd);
        most = n > most ? n : most;
    }
    return most;
}

size_t cb_packed_key_bytes(const struct kern_attn *k, int hd)
{
    return packed_bytes(k, 1, hd);
}

size_t cb_tile_bytes(const struct kern_attn *k, int rows, int hd)
{
    return round64((size_t)rows * packed_bytes(k, 0, hd)) +
           2 * round64((size_t)rows * sizeof(int)) + round64((size_t)rows * sizeof(float *));
}

/* Tiles of nearly equal height: 7 rows are 4 + 3, not 6 + 1. */
static int even_height(int rows, int mr)
{
    const int n = (rows + mr - 1) / mr;
    return (rows + n - 1) / n;
}

static void row_ranges(struct tile *t)
{
    const struct attn *a = t->a;

    for (int r = 0; r < t->rows; r++) {
        const int i = t->tok + r / t->group;
        const int hi = a->causal ? t->run->n - a->n_tok + 1 + i : t->run->n;
        t->row_hi[r] = hi;
        t->row_lo[r] = a->window > 0 && hi > a->window ? hi - a->window : 0;
    }
    t->lo = t->row_lo[0];
    t->hi = t->row_hi[t->rows - 1];
}

void cb_tile_open(struct tile *t, const struct kern_attn *k, const struct attn *a, int kv, int tok,
                  int n_tok, int each, char **mem)
{
    const float log2e = 1.44269504f;

    *t = (struct tile){ .k = k, .a = a, .run = &a->run[kv], .kv = kv, .tok = tok, .n_tok = n_tok };
    t->qk = cb_qk_of(k, a);
    t->group = a->n_head / a->n_kv;
    t->rows = n_tok * t->group;
    t->unit = each ? t->group : t->rows;
    t->mr = even_height(t->unit, k->mr);
    t->hd_pad = cb_hd_pad(k, a->hd);
    t->cap = a->softcap > 0.0f ? a->softcap * log2e : 0.0f;
    t->scale = a->softcap > 0.0f ? a->scale / a->softcap : a->scale * log2e;
    t->row_lo = cb_take(mem, (size_t)t->rows * sizeof(int));
    t->row_hi = cb_take(mem, (size_t)t->rows * sizeof(int));
    row_ranges(t);
    t->q = cb_take(mem, (size_t)t->rows * sizeof *t->q);
    for (int r = 0; r < t->rows; r++)
        t->q[r] = a->q + (int64_t)(tok + r / t->group) * a->q_stride +
                  (int64_t)(kv * t->group + r % t->group) * a->hd;
    t->qp = cb_take(mem, (size_t)t->rows * t->qk->q_bytes(a->hd));
    for (int r = 0; r < t->rows; r += t->unit)
        t->qk->pack_q(t->q + r, t->scale, t->unit, t->mr, a->hd,
                      (char *)t->qp + (size_t)r * t->qk->q_bytes(a->hd));
}

static void row_addresses(const void *base, size_t bytes, const int32_t *idx, int from, int n,
                          const char **row)
{
    const uintptr_t p = (uintptr_t)base + (size_t)from * bytes;

    if (idx)
        for (int j = 0; j < n; j++)
            row[j] = (const char *)base + (size_t)idx[from + j] * bytes;
    else
        for (int j = 0; j < n; j++)
            row[j] = (const char *)(p + (uintptr_t)j * bytes);
    for (int j = n; j & (MAX_PANEL - 1); j++)
        row[j] = row[n - 1];
}

/* The second half of the previous block becomes the first half of this one. */
static void next_addresses(const void *base, size_t bytes, const struct kv_run *run, int from,
                           int n, int goes_on, const char **row)
{
    const int have = goes_on ? (n < KEY_BLOCK ? n : KEY_BLOCK) : 0;

    if (have)
        memcpy(row, row + KEY_BLOCK, KEY_BLOCK * sizeof *row);
    if (n > have)
        row_addresses(base, bytes, run->idx, from + have, n - have, row + have);
}

/* Asks for scattered rows that no block before them has asked for, all at once. */
static void ask(const struct kern_rows *x)
{
    for (int j = 0; j < x->n; j++)
        for (size_t at = 0; at < x->bytes; at += 64)
            __builtin_prefetch(x->row[j] + at, 0, 2);
}

void cb_block_open(struct block *b, const struct attn *a, const struct kv_run *run, int from,
                   int end)
{
    const int left = run->n - from, n = left < 2 * KEY_BLOCK ? left : 2 * KEY_BLOCK;
    const int goes_on = b->run == run && b->from + KEY_BLOCK == from;

    b->run = run;
    b->from = from;
    b->n = end - from < KEY_BLOCK ? end - from : KEY_BLOCK;
    b->k = (struct kern_rows){ .t = a->type_k, .n = b->n, .row = b->k_row };
    b->v = (struct kern_rows){ .t = a->type_v, .n = b->n, .row = b->v_row };
    b->prepacked = from < run->prepacked;
    if (b->prepacked || (run->kivi && run->kivi->bits_v)) { /* not read by row addresses */
        b->run = NULL;
        return;
    }
    b->k.bytes = cb_kv_row_bytes(a->type_k, a->hd);
    b->v.bytes = cb_kv_row_bytes(a->type_v, a->hd);
    if (!run->given && !run->kivi)
        next_addresses(run->k, b->k.bytes, run, from, n, goes_on, b->k_row);
    next_addresses((const void *)((uintptr_t)run->v + (size_t)run->first * b->v.bytes), b->v.bytes,
                   run, from, n, goes_on, b->v_row);
    if (run->idx && !goes_on && !run->given && !run->kivi)
        ask(&b->k);
    if (run->idx && !goes_on)
        ask(&b->v);
    b->k.ahead = b->k_row + KEY_BLOCK;
    b->v.ahead = b->v_row + KEY_BLOCK;
    b->k.n_ahead = b->v.n_ahead = n > KEY_BLOCK ? n - KEY_BLOCK : 0;
}
