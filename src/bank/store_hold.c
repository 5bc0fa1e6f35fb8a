/* SPDX-License-Identifier: MIT */
/* store_hold.c - rows are copied in blocks of KV_PREPACK, as they lie: a prepacked row is spread
 * over its block, and would be rounded once more on its way out and back. The next n tokens replace
 * the rows of the first n slots, which lie side by side but for one wrap, and may fill the last
 * block: few blocks of each head. */
#include "store_hold.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "base/ints.h"
#include "pages.h"
#include "store.h"
#include "store_prepack.h"
#include "store_rows.h"

/* A head's numbers */
struct head {
    int n, rows, hole, mixed, gap_lo, gap_hi;
};

struct block {
    int kv, row;    /* its first row */
    uint8_t *at[2]; /* keys, values */
    float *step[2];
};

struct store_hold {
    int window, n_kv, cap_slot;
    int prepacked, dropped_at, sketched, had_pos;
    struct head *head;   /* [n_kv] */
    int32_t *pos, *row;  /* [n_kv][cap_slot] */
    struct block *block; /* [n] in use of [cap] */
    size_t n, cap, bytes;
};

static size_t block_bytes(const struct store *s)
{
    return KV_PREPACK * (cb_store_slot_bytes(s) + 2 * sizeof(float));
}

/* The memory of one more block: keys, values, and the steps of both */
static int add_memory(struct store_hold *x, const struct store *s)
{
    uint8_t *p = cb_alloc_aligned(block_bytes(s), 1);
    struct block *b;

    if (!p || cb_grow_by_one(&x->block, x->cap, sizeof *x->block)) {
        free(p);
        return CB_ENOMEM;
    }
    b = &x->block[x->cap++];
    b->at[0] = p;
    b->at[1] = p + KV_PREPACK * s->row_k;
    b->step[0] = (float *)(void *)(p + KV_PREPACK * cb_store_slot_bytes(s));
    b->step[1] = b->step[0] + KV_PREPACK;
    x->bytes += block_bytes(s);
    return CB_OK;
}

/* Blocks of a head that a draft touches: two of a window, three where it wraps */
static int usual_blocks(int window)
{
    return window > KV_PREPACK ? 3 : 1;
}

int cb_store_hold_new(const struct store *s, int window, struct store_hold **out)
{
    struct store_hold *x = *out = cb_calloc(1, sizeof *x);

    if (!x)
        return CB_ENOMEM;
    x->window = window;
    x->n_kv = s->n_kv;
    x->cap_slot = min_int(window, s->cap);
    x->head = cb_calloc((size_t)s->n_kv, sizeof *x->head);
    x->pos = cb_calloc((size_t)s->n_kv * (size_t)x->cap_slot + 1, sizeof *x->pos);
    x->row = cb_calloc((size_t)s->n_kv * (size_t)x->cap_slot + 1, sizeof *x->row);
    x->bytes = (size_t)s->n_kv * (sizeof *x->head + 2 * (size_t)x->cap_slot * sizeof *x->pos);
    if (!x->head || !x->pos || !x->row)
        return CB_ENOMEM;
    for (int i = 0; i < s->n_kv * usual_blocks(window); i++)
        TRY(add_memory(x, s));
    return CB_OK;
}

void cb_store_hold_free(struct store_hold *x)
{
    if (!x)
        return;
    for (size_t i = 0; i < x->cap; i++)
        free(x->block[i].at[0]);
    free(x->block);
    free(x->head);
    free(x->pos);
    free(x->row);
    free(x);
}

size_t cb_store_hold_bytes(const struct store_hold *x)
{
    return x->bytes;
}

/* ---- taking ---- */

static int has_block(const struct store_hold *x, int kv, int row)
{
    for (size_t i = x->n; i > 0 && x->block[i - 1].kv == kv; i--)
        if (x->block[i - 1].row == row)
            return 1;
    return 0;
}

/* Copies the block that has a row of head kv, unless it is there. */
static int add(struct store_hold *x, const struct store *s, int kv, int row)
{
    struct block *b;

    row -= row % KV_PREPACK;
    if (has_block(x, kv, row))
        return CB_OK;
    if (x->n == x->cap)
        TRY(add_memory(x, s));
    b = &x->block[x->n++];
    b->kv = kv;
    b->row = row;
    for (int v = 0; v < cb_store_sides(s); v++) {
        const int most = min_int(s->cap - row, KV_PREPACK);
        const float *step = cb_store_steps(s, kv, v, row);
        memcpy(b->at[v], cb_store_row(s, kv, v, row), (size_t)most * (v ? s->row_v : s->row_k));
        if (step && row < s->prepacked)
            memcpy(b->step[v], step, KV_PREPACK * sizeof *step);
    }
    return CB_OK;
}

static int32_t row_of(const struct store *s, int kv, int slot)
{
    return s->mixed[kv] ? s->row[cb_store_at(s, kv, slot)] : slot;
}

static int take_head(struct store_hold *x, const struct store *s, int kv, int n)
{
    const size_t len = (size_t)min_int(s->n[kv], x->cap_slot) * sizeof(int32_t);
    const size_t at = (size_t)kv * (size_t)x->cap_slot;
    const int replaced = x->window ? min_int(n, s->n[kv]) : 0, last = s->rows[kv] % KV_PREPACK;

    x->head[kv] = (struct head){ s->n[kv],     s->rows[kv],   s->hole[kv],
                                 s->mixed[kv], s->gap_lo[kv], s->gap_hi[kv] };
    if (s->pos)
        memcpy(x->pos + at, s->pos + cb_store_at(s, kv, 0), len);
    if (s->mixed[kv])
        memcpy(x->row + at, s->row + cb_store_at(s, kv, 0), len);
    for (int i = 0; i < replaced && s->n[kv] + n >= x->window; i++)
        TRY(add(x, s, kv, row_of(s, kv, i)));
    if (s->hole[kv] >= 0)
        TRY(add(x, s, kv, s->hole[kv]));
    return s->prepacker && last && last + n >= KV_PREPACK ? add(x, s, kv, s->rows[kv]) : CB_OK;
}

int cb_store_hold_take(struct store_hold *x, const struct store *s, int n)
{
    x->n = 0;
    x->prepacked = s->prepacked;
    x->dropped_at = s->dropped_at;
    x->sketched = s->sketched;
    x->had_pos = s->pos != NULL;
    for (int h = 0; h < s->n_kv; h++)
        TRY(take_head(x, s, h, n));
    return CB_OK;
}

/* ---- going back ---- */

static void put_block(const struct block *b, struct store *s)
{
    for (int v = 0; v < cb_store_sides(s); v++) {
        const int most = min_int(s->cap - b->row, KV_PREPACK);
        const size_t bytes = (size_t)most * (v ? s->row_v : s->row_k);
        float *step = cb_store_steps(s, b->kv, v, b->row);
        memcpy(cb_store_row(s, b->kv, v, b->row), b->at[v], bytes);
        cb_store_wrote(s, cb_store_row(s, b->kv, v, b->row), bytes);
        if (step && b->row < s->prepacked)
            memcpy(step, b->step[v], KV_PREPACK * sizeof *step);
    }
}

static void put_head(const struct store_hold *x, struct store *s, int kv)
{
    const struct head *h = &x->head[kv];
    const size_t len = (size_t)min_int(h->n, x->cap_slot) * sizeof(int32_t);
    const size_t at = (size_t)kv * (size_t)x->cap_slot;

    for (int v = 0; v < cb_store_sides(s) && h->rows < s->rows[kv]; v++)
        cb_store_give_back(s, cb_store_row(s, kv, v, h->rows), cb_store_row(s, kv, v, s->rows[kv]));
    s->n[kv] = h->n;
    s->rows[kv] = h->rows;
    s->hole[kv] = h->hole;
    s->mixed[kv] = h->mixed;
    s->gap_lo[kv] = h->gap_lo;
    s->gap_hi[kv] = h->gap_hi;
    if (x->had_pos)
        memcpy(s->pos + cb_store_at(s, kv, 0), x->pos + at, len);
    if (h->mixed)
        memcpy(s->row + cb_store_at(s, kv, 0), x->row + at, len);
}

void cb_store_hold_restore(const struct store_hold *x, struct store *s)
{
    s->prepacked = x->prepacked;
    s->dropped_at = x->dropped_at;
    s->sketched = x->sketched;
    for (int h = 0; h < s->n_kv; h++)
        put_head(x, s, h);
    for (size_t i = 0; i < x->n; i++)
        put_block(&x->block[i], s);
    if (!x->had_pos)
        cb_store_forget_positions(s);
}
