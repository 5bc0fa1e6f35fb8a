/* SPDX-License-Identifier: MIT */
/* sketched_keys.c - a decoded token scores the sketches of all keys, in each layer and KV head, and
 * attends to the slots with the best scores, the first and the newest ones. Nothing is dropped:
 * each token makes its own choice. */
#include "attention/parts.h"
#include "bank/store_planes.h"
#include "base/err.h"
#include "base/ints.h"
#include "device/sketch.h"
#include "slot_lists.h"

extern const struct reader cb_reader_sketched_keys;

static int claims(const struct claim *c)
{
    return c->row->sketch.bits > 0;
}

static int is_in(const struct attention *a, int l)
{
    return cb_reader_is(a, l, &cb_reader_sketched_keys);
}

/* ---- open ---- */

static size_t work_size(const struct attention *a, int n)
{
    struct sketch_work w;

    return cb_sketch_work(NULL, a->model->hp.n_head, a->bank->n_kv, a->bank->hd, n / SKETCH_BLOCK,
                          SKETCH_MAX_ITEMS, &w);
}

/* All layers that the policy acts on have keys in planes, if they keep all slots: those that read
 * everything as well. */
static int open_planes(struct attention *a, const struct sketch_plan *form)
{
    if (!cb_bank_in_planes(a->bank))
        return CB_OK;
    if (a->dev->ops->memory)
        return cb_policy_refuse(a->policy, "device %s does not read keys of type planes",
                                a->dev->name);
    for (int l = 0; l < a->bank->n_layer; l++) {
        struct store *s = &a->bank->store[l];
        const int keeps = cb_policy_index(a->policy, l) >= 0 && !a->model->layer[l].window;
        if (!is_in(a, l) && keeps)
            cb_store_may_sketch(s, form->bits, SKETCH_BLOCK, form->sink);
        if (is_in(a, l) || keeps)
            TRY(cb_planes_open(s, a->bank->kivi_v));
    }
    return CB_OK;
}

static int open(struct attention *a, void **state)
{
    const struct sketch_plan *form = NULL;

    for (int l = 0; l < a->bank->n_layer; l++)
        if (is_in(a, l)) {
            form = &a->plan[l].sketch; /* layers do not differ in bits and sinks */
            cb_store_may_sketch(&a->bank->store[l], form->bits, SKETCH_BLOCK, form->sink);
        }
    TRY(open_planes(a, form));
    TRY(cb_slot_lists_device(a, a->dev->ops->sketch_topk != NULL, "sketched keys"));
    return cb_slot_lists_new(a, sizeof(struct slot_lists), a->bank->n_kv,
                             work_size(a, a->bank->n_ctx), state);
}

static size_t work_bytes(const struct attention *a, const void *x, int n_feed, int n_most)
{
    (void)n_feed;
    return work_size(a, n_most) + cb_slot_lists_bytes(x, n_most);
}

/* ---- choosing ---- */

static struct slot_range range_of(const struct attention *a, int l, int n, int sketched)
{
    const struct sketch_plan *p = &a->plan[l].sketch;
    struct slot_range r = { .first = cb_slot_lists_first(a, l, n) };

    r.lo = max_int(r.first, min_int(p->sink, n));
    r.hi = max_int(r.lo, min_int(sketched, n - p->recent));
    r.k = p->share > 0 ? max_int(1, (int)(p->share * (r.hi - r.lo))) : p->k;
    r.from = r.first / SKETCH_BLOCK * SKETCH_BLOCK;
    r.to = (r.hi + SKETCH_BLOCK - 1) / SKETCH_BLOCK * SKETCH_BLOCK;
    return r;
}

/* Are sketches scored? Where heads may miss some of their attention, few may be chosen though all
 * would be allowed. */
static int scores(const struct sketch_plan *p, const struct slot_range *r)
{
    return p->miss > 0 ? r->hi > r->lo : r->k < r->hi - r->lo;
}

/* Bytes of all KV heads' sketches that scores of this range read */
static uint64_t scored_bytes(const struct attention *a, int l, const struct slot_range *r)
{
    const struct store *st = &a->bank->store[l];
    const uint64_t blocks = (uint64_t)st->n_kv * (uint64_t)((r->to - r->from) / SKETCH_BLOCK);

    return a->plan[l].sketch.half ? blocks * cb_sketch_half_bytes(st->sketch_bits, st->hd)
                                  : cb_slot_lists_scored(a, l, r);
}

static void choose(struct attention *a, int l, const float *q, const struct slot_range *r)
{
    const struct store *st = &a->bank->store[l];
    const struct slot_lists *x = cb_reader_state(a, l);
    const struct attn at = cb_parts_attn(a, l);
    struct sketch_topk s = { .n_head = at.n_head,
                             .n_kv = at.n_kv,
                             .hd = at.hd,
                             .bits = st->sketch_bits,
                             .scale = at.scale,
                             .q = q,
                             .half = a->plan[l].sketch.half,
                             .sketch = cb_store_sketch_at(st, 0, r->from),
                             .head_bytes = st->head_sketch,
                             .n_block = (r->to - r->from) / SKETCH_BLOCK,
                             .lo = r->lo - r->from,
                             .hi = r->hi - r->from,
                             .k = r->k,
                             .miss = (float)a->plan[l].sketch.miss,
                             .idx = cb_slot_lists_at(a, l, r, 0),
                             .idx_stride = a->bank->n_ctx,
                             .n = x->n,
                             .work = x->work };

    a->dev->ops->sketch_topk(a->dev, &s);
    for (int h = 0; h < at.n_kv && r->from; h++)
        for (int i = 0; i < s.n[h]; i++)
            s.idx[h * s.idx_stride + i] += r->from;
}

static int parts(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    const struct slot_range r = range_of(a, c->l, st->n[0], st->sketched);

    if (!a->bank->decoding || !scores(&a->plan[c->l].sketch, &r))
        return 0;
    cb_slot_lists_prefetch(a, c->l);
    choose(a, c->l, c->q, &r);
    a->bank->read_bytes += scored_bytes(a, c->l, &r);
    return cb_slot_lists_part(a, c, &r);
}

static uint64_t read_bytes(const struct attention *a, int l, int n, const struct planned *p,
                           uint64_t *scanned)
{
    const struct slot_range r = range_of(a, l, n, max_int(0, n - 1) / SKETCH_BLOCK * SKETCH_BLOCK);

    (void)p;
    *scanned = scores(&a->plan[l].sketch, &r) ? scored_bytes(a, l, &r) : 0;
    return *scanned + (uint64_t)a->bank->n_kv * cb_slot_lists_read(a, l, n, &r);
}

const struct reader cb_reader_sketched_keys = {
    .name = "slots that sketched keys find",
    .traits = READ_DENSE | READ_EXTENDS | READ_PROMPT | READ_PLANES | READ_SHARES,
    .claims = claims,
    .open = open,
    .work_bytes = work_bytes,
    .parts = parts,
    .read_bytes = read_bytes,
};
