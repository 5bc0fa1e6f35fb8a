/* SPDX-License-Identifier: MIT */
/* whole.c - every query reads all stored slots within its window. */
#include "whole.h"

/* Keys and values that the last of n slots reads, of every KV head, within the layer's window; of
 * which `unsettled` are not quantised yet */
static uint64_t window_bytes(const struct attention *a, int l, const struct store *st, int n,
                             int unsettled)
{
    const int window = cb_attention_window(a, l);
    const int first = window && n > window ? n - window : 0;
    uint64_t sum = 0;

    for (int h = 0; h < st->n_kv; h++)
        sum += cb_store_bytes_from(st, h, first, n - unsettled) +
               cb_store_beside_of(st, n - unsettled) +
               (uint64_t)unsettled * cb_store_slot_bytes(st);
    return sum;
}

uint64_t cb_whole_rows_bytes(const struct store *st, int n)
{
    uint64_t sum = 0;

    for (int h = 0; n && h < st->n_kv; h++)
        sum += cb_store_bytes_of(st, h, n - 1) + cb_store_slot_bytes(st);
    return sum;
}

uint64_t cb_whole_lent_bytes(const struct attention *a, int l, int n)
{
    return window_bytes(a, l, cb_attention_store(a, l), n, 0);
}

uint64_t cb_whole_read_bytes(const struct attention *a, int l, int n, const struct planned *p,
                             uint64_t *scanned)
{
    const struct store *st = &a->bank->store[l];
    const int window = cb_attention_window(a, l);

    (void)p, (void)scanned;
    if (st->kivi)
        return n ? window_bytes(a, l, st, n, 1) : 0;
    return cb_whole_rows_bytes(st, window && n > window ? window : n);
}

const struct reader cb_reader_whole = {
    .name = "the whole store",
    .traits = READ_PLAIN | READ_DENSE | READ_EXTENDS | READ_PROMPT | READ_STEP | READ_PREPACKS |
              READ_ANY_ORDER | READ_SHARES,
    .read_bytes = cb_whole_read_bytes,
};
