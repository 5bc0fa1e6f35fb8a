/* SPDX-License-Identifier: MIT */
/* store_touch.c - first touch: a page lies on the node of the thread that writes to it first.
 * Attention reads head after head, so a head's pages are touched in a loop over heads. */
#include "store_touch.h"

#include <unistd.h>

#include "pages.h"

struct touch {
    struct store *s;
    const int *row;
    int n;
    size_t page;
};

/* The first page that begins in [from, from + bytes) */
static uint8_t *first_page(uint8_t *from, size_t bytes, size_t page)
{
    uint8_t *p = from + (page - (uintptr_t)from % page) % page;
    return p < from + bytes ? p : NULL;
}

static void touch_rows(uint8_t *from, size_t bytes, size_t page)
{
    for (uint8_t *p = first_page(from, bytes, page); p && p < from + bytes; p += page)
        *(volatile uint8_t *)p = 0; /* nothing has been written there yet */
}

static uint8_t *rows_of(const struct touch *t, int kv, int v)
{
    return cb_store_row(t->s, kv, v, t->row[kv]);
}

static void touch_head(void *ctx, int kv, int thread)
{
    const struct touch *t = ctx;

    (void)thread;
    touch_rows(rows_of(t, kv, 0), t->s->row_k * (size_t)t->n, t->page);
    touch_rows(rows_of(t, kv, 1), t->s->row_v * (size_t)t->n, t->page);
}

void cb_store_touch(struct store *s, struct par *par, const int *row, int n)
{
    struct touch t = { s, row, n, cb_pages_up(1) };
    int any = 0;

    if (cb_par_nodes(par) == 1)
        return;
    for (int h = 0; h < s->n_kv; h++) /* a decoded token seldom begins a page */
        any |= first_page(rows_of(&t, h, 0), s->row_k * (size_t)n, t.page) ||
               first_page(rows_of(&t, h, 1), s->row_v * (size_t)n, t.page);
    if (any)
        cb_par_for(par, s->n_kv, touch_head, &t);
}
