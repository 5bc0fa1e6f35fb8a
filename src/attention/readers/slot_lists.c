/* SPDX-License-Identifier: MIT */
/* slot_lists.c - lists of slots that a decoded token reads: those before the candidates, those that
 * a reader has found, and the newest. */
#include "slot_lists.h"

#include "attention/context_split.h"
#include "attention/parts.h"
#include "attention/state_memory.h"
#include "bank/store_planes.h"
#include "bank/store_prefetch.h"
#include "base/err.h"
#include "base/ints.h"
#include "device/sketch.h"

int cb_slot_lists_open(const struct attention *a, struct slot_lists *x, int n_list,
                       size_t work_bytes)
{
    x->n_list = n_list;
    x->idx = cb_state_slots(x, (size_t)n_list, a->bank->n_ctx, sizeof *x->idx);
    x->n = cb_state_calloc(x, (size_t)n_list, sizeof *x->n);
    x->work = work_bytes ? cb_state_alloc(x, work_bytes, 1) : NULL;
    return cb_state_status(x);
}

int cb_slot_lists_device(const struct attention *a, int scores, const char *what)
{
    return scores ? CB_OK
                  : cb_fail(CB_EUNSUPPORTED, "policy %s: device %s does not score %s",
                            a->policy->m->name, a->dev->name, what);
}

size_t cb_slot_lists_bytes(const struct slot_lists *x, int n_most)
{
    return (size_t)x->n_list * (size_t)n_most * sizeof *x->idx;
}

int cb_slot_lists_first(const struct attention *a, int l, int n)
{
    const int window = cb_attention_window(a, l);

    return window ? max_int(0, n - window) : 0;
}

struct slot_range cb_slot_lists_own(const struct attention *a, int l, const struct slot_range *r)
{
    const int n = cb_context_split_deals(a, l) ? cb_context_split_ranks(a) : 1;

    return (struct slot_range){ .first = cb_context_split_own(a, l, r->first),
                                .lo = cb_context_split_own(a, l, r->lo),
                                .hi = cb_context_split_own(a, l, r->hi),
                                .k = (r->k + n - 1) / n,
                                .from = cb_context_split_own(a, l, r->from),
                                .to = cb_context_split_own(a, l, r->to) };
}

int32_t *cb_slot_lists_at(const struct attention *a, int l, const struct slot_range *r, int i)
{
    const struct slot_lists *x = cb_reader_state(a, l);

    return x->idx + (size_t)i * (size_t)a->bank->n_ctx + (r->lo - r->first);
}

void cb_slot_lists_prefetch(const struct attention *a, int l)
{
    const struct store *st = &a->bank->store[l];

    for (int h = 0; a->cold_pages && h < st->n_kv; h++)
        cb_store_prefetch_sketches(st, h);
}

int cb_slot_lists_part(struct attention *a, const struct chunk *c, const struct slot_range *r)
{
    const struct store *st = &a->bank->store[c->l];
    const struct slot_lists *x = cb_reader_state(a, c->l);
    struct part p = cb_parts_of(a, c);
    struct kv_run *run;

    p.window = 0; /* the choice lies within the window */
    p.by_head = x->n_list > st->n_kv;
    TRY(cb_parts_add(a, &p, &run));
    for (int h = 0; h < x->n_list; h++) {
        int32_t *idx = x->idx + (size_t)h * (size_t)a->bank->n_ctx;
        for (int j = r->first; j < r->lo; j++)
            idx[j - r->first] = j;
        x->n[h] += r->lo - r->first;
        for (int j = r->hi; j < st->n[0]; j++)
            idx[x->n[h]++] = j;
        run[h] = cb_store_run(st, h * st->n_kv / x->n_list, 0, st->n[0]);
        run[h].idx = idx;
        run[h].n = x->n[h];
    }
    return 1;
}

/* Keys and values of n slots of a KV head; the newest is not settled yet */
static uint64_t rows_bytes(const struct store *st, int n)
{
    return n ? cb_store_bytes_of(st, 0, n - 1) - cb_store_beside_of(st, n - 1) +
                   cb_store_slot_bytes(st)
             : 0;
}

uint64_t cb_slot_lists_scored(const struct attention *a, int l, const struct slot_range *r)
{
    const struct store *st = &a->bank->store[l];

    return (uint64_t)st->n_kv *
           (cb_store_sketch_bytes(st, r->to) - cb_store_sketch_bytes(st, r->from));
}

uint64_t cb_slot_lists_read(const struct attention *a, int l, int n, const struct slot_range *r)
{
    const struct slot_lists *x = cb_reader_state(a, l);
    const struct store *st = &a->bank->store[l];
    const int sketched = max_int(0, n - 1) / SKETCH_BLOCK * SKETCH_BLOCK;
    const uint64_t rows = rows_bytes(st, n);
    const int unread = r->first + max_int(0, r->hi - r->lo - r->k);
    const uint64_t n_list = (uint64_t)(x->n_list / st->n_kv);

    if (r->k >= r->hi - r->lo)
        return rows - cb_store_old_bytes(st, r->first) +
               cb_kivi_first_plane(st, max_int(0, sketched - max_int(r->first, st->sketch_out)));
    return n_list * (rows - cb_store_old_bytes(st, unread));
}
