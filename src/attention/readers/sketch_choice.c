/* SPDX-License-Identifier: MIT */
/* sketch_choice.c - a decoded token scores the sketches of all keys, in each layer and KV head, and
 * attends to the slots with the best scores, the first and the newest ones. With bounds of pages it
 * attends to the pages that score best and the current one; with partial keys, to the slots that
 * partial_keys.c chooses and its own. Nothing is dropped: each token makes its own choice. */
#include "sketch_choice.h"

#include <stdlib.h>

#include "attention/parts.h"
#include "attention/reader.h"
#include "bank/store_ask.h"
#include "bank/store_planes.h"
#include "base/err.h"
#include "base/ints.h"
#include "device/sketch.h"
#include "partial_keys.h"
#include "skew.h"

struct sketch_choice {
    const struct sketch_plan *form; /* of a layer; layers do not differ in bits and pages */
    int n_list;                     /* KV heads, or query heads if each has a choice */
    int32_t *idx;                   /* [n_list][n_ctx] slots that the layer reads, ascending */
    int *n;                         /* [n_list] how many */
    void *work; /* of op sketch_topk; with pages, their scores [n_list][n_page] and a choice of
                   them [n_page]; NULL with partial keys */
    struct partial_keys *partial; /* NULL: slots are found otherwise */
    struct skew *skew;
};

/* What a layer of n slots reads: slots first..lo-1, k of lo..hi-1 (at most k by partial keys), and
 * hi..n-1. Sketches of the slots from..to-1 are scored. */
struct range {
    int first, lo, hi, k, from, to;
};

/* Lists of slots of a layer */
static int lists(const struct attention *a, const struct sketch_plan *form)
{
    const int each = form->page && form->heads == EACH_HEAD;
    return each ? a->model->hp.n_head : a->bank->n_kv;
}

static size_t work_size(const struct attention *a, const struct sketch_plan *form, int n)
{
    struct sketch_work w;

    if (form->columns)
        return 0;
    if (form->page)
        return (size_t)(lists(a, form) + 1) * (size_t)(n / form->page + 1) * sizeof(float);
    return cb_sketch_work(NULL, a->model->hp.n_head, a->bank->n_kv, a->bank->hd, n / SKETCH_BLOCK,
                          SKETCH_MAX_ITEMS, &w);
}

static int supported(const struct ops *ops, const struct sketch_plan *form)
{
    if (form->columns)
        return !ops->memory;
    return form->page ? ops->page_scores != NULL : ops->sketch_topk != NULL;
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
        if (!cb_sketch_choice_is(a, l) && keeps)
            cb_store_may_sketch(s, form->bits, SKETCH_BLOCK, form->sink);
        if (cb_sketch_choice_is(a, l) || keeps)
            TRY(cb_planes_open(s, a->bank->kivi_v));
    }
    return CB_OK;
}

/* The layers' sketches -> their plan */
static const struct sketch_plan *open_stores(struct attention *a)
{
    const struct sketch_plan *form = NULL;

    for (int l = 0; l < a->bank->n_layer; l++) {
        const struct sketch_plan *p = &a->plan[l].sketch;
        if (!cb_sketch_choice_is(a, l))
            continue;
        form = p;
        if (!p->columns)
            cb_store_may_sketch(&a->bank->store[l], p->bits, p->page ? p->page : SKETCH_BLOCK,
                                p->sink);
    }
    return form;
}

static int open(struct attention *a, void **state)
{
    const struct sketch_plan *form = open_stores(a);
    struct sketch_choice *x;

    TRY(open_planes(a, form));
    if (!supported(a->dev->ops, form))
        return cb_fail(CB_EUNSUPPORTED, "policy %s: device %s does not score %s keys",
                       a->policy->m->name, a->dev->name, form->columns ? "partial" : "sketched");
    if (!(x = *state = cb_calloc(1, sizeof *x)))
        return CB_ENOMEM;
    x->form = form;
    x->n_list = lists(a, form);
    /* memory for these is committed page by page as the context grows */
    x->idx = cb_alloc_aligned((size_t)x->n_list * (size_t)a->bank->n_ctx, sizeof *x->idx);
    x->n = cb_calloc((size_t)x->n_list, sizeof *x->n);
    if (!form->columns)
        x->work = cb_alloc_aligned(work_size(a, form, a->bank->n_ctx), 1);
    return x->idx && x->n && (x->work || form->columns) ? CB_OK : CB_ENOMEM;
}

static int open_partial(struct attention *a, void **state)
{
    struct sketch_choice *x;

    for (int l = 0; l < a->bank->n_layer; l++)
        if (a->plan[l].sketch.columns)
            TRY(cb_store_may_skew(&a->bank->store[l], a->plan[l].sketch.columns));
    TRY(open(a, state));
    x = *state;
    TRY(cb_partial_keys_open(a, x->form->columns, &x->partial));
    return cb_skew_open(a, &x->skew);
}

static void close(struct attention *a, void *state)
{
    struct sketch_choice *x = state;

    (void)a;
    cb_partial_keys_close(x->partial);
    cb_skew_close(x->skew);
    free(x->idx);
    free(x->n);
    free(x->work);
    free(x);
}

static size_t work_bytes(const struct attention *a, const void *state, int n_feed, int n_most)
{
    const struct sketch_choice *x = state;
    const size_t partial =
        x->partial ? cb_partial_keys_bytes(a, x->form->columns, n_most) + cb_skew_bytes(a) : 0;

    (void)n_feed;
    return work_size(a, x->form, n_most) + (size_t)x->n_list * (size_t)n_most * sizeof(int32_t) +
           partial;
}

/* ---- choosing ---- */

/* The n-th slot's page is the current one: it is read, and the pages before it are candidates. */
static void range_of_pages(const struct sketch_plan *p, int n, struct range *r)
{
    const int budget = p->share > 0 ? (int)(p->share * (n - r->first)) : p->k;

    r->hi = (n - 1) / p->page * p->page;
    r->lo = min_int(r->hi, (r->first + p->page - 1) / p->page * p->page);
    r->k = (max_int(3, budget / p->page) - 1) * p->page;
    r->from = r->lo;
    r->to = r->hi;
}

/* All slots but the newest have a partial key. */
static void range_of_partial(const struct sketch_plan *p, int n, struct range *r)
{
    r->lo = r->from = r->first;
    r->hi = r->to = max_int(r->first, n - 1);
    r->k = p->share > 0 ? max_int(1, (int)(p->share * (r->hi - r->lo))) : p->k;
}

/* Are sketches scored? Where heads may miss some of their attention, as with partial keys, few may
 * be chosen though all would be allowed. */
static int scores(const struct sketch_plan *p, const struct range *r)
{
    return p->columns || p->miss > 0 ? r->hi > r->lo : r->k < r->hi - r->lo;
}

/* Bytes of a KV head's sketches that scores of this range read */
static uint64_t scored_bytes(const struct attention *a, int l, const struct range *r)
{
    const struct store *st = &a->bank->store[l];

    if (a->plan[l].sketch.half)
        return (uint64_t)((r->to - r->from) / SKETCH_BLOCK) *
               cb_sketch_half_bytes(st->sketch_bits, st->hd);
    return cb_store_sketch_bytes(st, r->to) - cb_store_sketch_bytes(st, r->from);
}

static struct range range_of(const struct attention *a, int l, int n, int sketched)
{
    const struct sketch_plan *p = &a->plan[l].sketch;
    const int window = cb_attention_window(a, l);
    struct range r = { .first = window ? max_int(0, n - window) : 0 };

    if (p->page)
        range_of_pages(p, n, &r);
    if (p->columns)
        range_of_partial(p, n, &r);
    if (p->page || p->columns)
        return r;
    r.lo = max_int(r.first, min_int(p->sink, n));
    r.hi = max_int(r.lo, min_int(sketched, n - p->recent));
    r.k = p->share > 0 ? max_int(1, (int)(p->share * (r.hi - r.lo))) : p->k;
    r.from = r.first / SKETCH_BLOCK * SKETCH_BLOCK;
    r.to = (r.hi + SKETCH_BLOCK - 1) / SKETCH_BLOCK * SKETCH_BLOCK;
    return r;
}

/* List i, after the slots before the candidates */
static int32_t *chosen_at(const struct attention *a, int l, const struct range *r, int i)
{
    const struct sketch_choice *x = cb_reader_state(a, l);
    return x->idx + (size_t)i * (size_t)a->bank->n_ctx + (r->lo - r->first);
}

static void choose_slots(struct attention *a, int l, const float *q, const struct range *r)
{
    const struct store *st = &a->bank->store[l];
    struct sketch_choice *x = cb_reader_state(a, l);
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
                             .idx = chosen_at(a, l, r, 0),
                             .idx_stride = a->bank->n_ctx,
                             .n = x->n,
                             .work = x->work };

    a->dev->ops->sketch_topk(a->dev, &s);
    for (int h = 0; h < at.n_kv && r->from; h++)
        for (int i = 0; i < x->n[h]; i++)
            s.idx[h * s.idx_stride + i] += r->from;
}

static void choose_pages(struct attention *a, int l, const float *q, const struct range *r)
{
    const struct store *st = &a->bank->store[l];
    const int page = a->plan[l].sketch.page, n = (r->hi - r->lo) / page;
    const struct attn at = cb_parts_attn(a, l);
    struct sketch_choice *x = cb_reader_state(a, l);
    float *score = x->work;
    int32_t *best = (int32_t *)(score + (size_t)x->n_list * (size_t)n);
    const struct page_scores s = { .n_head = at.n_head,
                                   .n_kv = at.n_kv,
                                   .hd = at.hd,
                                   .q = q,
                                   .bounds = cb_store_sketch_at(st, 0, r->lo),
                                   .head_bytes = st->head_sketch,
                                   .n_page = n,
                                   .per = at.n_head / x->n_list,
                                   .mean = a->plan[l].sketch.heads == PER_KV_HEAD_MEAN,
                                   .out = score,
                                   .out_stride = n };

    a->dev->ops->page_scores(a->dev, &s);
    for (int h = 0; h < x->n_list; h++) {
        int32_t *idx = chosen_at(a, l, r, h);
        a->dev->ops->topk(a->dev, score + (size_t)h * (size_t)n, n, r->k / page, best);
        for (int i = 0; i < r->k; i++)
            idx[i] = r->lo + best[i / page] * page + i % page;
        x->n[h] = r->k;
    }
}

static void choose_partial(struct attention *a, int l, const struct range *r)
{
    struct sketch_choice *x = cb_reader_state(a, l);
    const int n = cb_partial_keys_choose(a, x->partial, l, r->lo, r->hi, r->k,
                                         chosen_at(a, l, r, 0), a->bank->n_ctx);

    for (int h = 0; h < x->n_list; h++)
        x->n[h] = n;
}

/* Returns 0 if the token reads everything. */
static int choose(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    struct sketch_choice *x = cb_reader_state(a, c->l);
    const struct range r = range_of(a, c->l, st->n[0], st->sketched);

    if (!scores(x->form, &r))
        return 0;
    for (int h = 0; a->cold && h < st->n_kv; h++)
        cb_store_ask_sketches(st, h);
    if (x->form->columns)
        choose_partial(a, c->l, &r);
    else
        (x->form->page ? choose_pages : choose_slots)(a, c->l, c->q, &r);
    a->bank->read_bytes += (uint64_t)st->n_kv * scored_bytes(a, c->l, &r);
    if (x->form->columns && x->n[0] == r.hi - r.lo)
        return 0;
    for (int h = 0; h < x->n_list; h++) {
        int32_t *idx = x->idx + (size_t)h * (size_t)a->bank->n_ctx;
        for (int j = r.first; j < r.lo; j++)
            idx[j - r.first] = j;
        x->n[h] += r.lo - r.first;
        for (int j = r.hi; j < st->n[0]; j++)
            idx[x->n[h]++] = j;
    }
    return 1;
}

static int parts(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    const struct sketch_choice *x = cb_reader_state(a, c->l);
    struct part p = cb_parts_of(a, c);
    struct kv_run *run;

    if (!a->bank->decoding)
        return 0;
    if (!choose(a, c))
        return 0;
    p.window = 0; /* the choice lies within the window */
    p.by_head = x->n_list > st->n_kv;
    TRY(cb_parts_add(a, &p, &run));
    for (int h = 0; h < x->n_list; h++) {
        run[h] = cb_store_run(st, h * st->n_kv / x->n_list, 0, st->n[0]);
        run[h].idx = x->idx + (size_t)h * (size_t)a->bank->n_ctx;
        run[h].n = x->n[h];
    }
    return 1;
}

const int32_t *cb_sketch_choice_slots(const struct attention *a, int l, int i, int *n)
{
    const struct sketch_choice *x = cb_reader_state(a, l);

    *n = x->n[i];
    return x->idx + (size_t)i * (size_t)a->bank->n_ctx;
}

/* ---- what it reads ---- */

/* Bytes of a KV head's sketches that a decoded token reads among n slots */
static uint64_t scanned_bytes(const struct attention *a, int l, int n)
{
    const struct range r = range_of(a, l, n, max_int(0, n - 1) / SKETCH_BLOCK * SKETCH_BLOCK);

    return scores(&a->plan[l].sketch, &r) ? scored_bytes(a, l, &r) : 0;
}

/* Keys and values of n slots of a KV head; the newest is not settled yet */
static uint64_t rows_bytes(const struct store *st, int n)
{
    return n ? cb_store_bytes_of(st, 0, n - 1) - cb_store_beside_of(st, n - 1) +
                   cb_store_slot_bytes(st)
             : 0;
}

uint64_t cb_sketch_choice_read(const struct attention *a, int l, int n)
{
    const struct sketch_choice *x = cb_reader_state(a, l);
    const struct store *st = &a->bank->store[l];
    const int sketched = max_int(0, n - 1) / SKETCH_BLOCK * SKETCH_BLOCK;
    const struct range r = range_of(a, l, n, sketched);
    const uint64_t rows = rows_bytes(st, n);
    const int unread = r.first + max_int(0, r.hi - r.lo - r.k);
    const uint64_t n_list = (uint64_t)(x->n_list / st->n_kv);

    if (r.k >= r.hi - r.lo)
        return rows - cb_store_old_bytes(st, r.first) + scanned_bytes(a, l, n) +
               cb_kivi_first_plane(st, max_int(0, sketched - max_int(r.first, st->sketch_out)));
    return n_list * (rows - cb_store_old_bytes(st, unread)) + scanned_bytes(a, l, n);
}

static uint64_t read_bytes(const struct attention *a, int l, int n, const struct planned *p,
                           uint64_t *scanned)
{
    (void)p;
    *scanned = (uint64_t)a->bank->n_kv * scanned_bytes(a, l, n);
    return (uint64_t)a->bank->n_kv * cb_sketch_choice_read(a, l, n);
}

/* ---- the tables ---- */

static int claims_sketched(const struct layer_plan *row, int n_layer, int l, const struct layer *y)
{
    (void)n_layer, (void)y;
    return row[l].sketch.bits > 0 && !row[l].sketch.page && !row[l].sketch.columns;
}

const struct reader cb_reader_sketched_keys = {
    .name = "slots that sketched keys find",
    .traits = READ_DENSE | READ_EXTENDS | READ_PROMPT | READ_PLANES,
    .claims = claims_sketched,
    .open = open,
    .close = close,
    .work_bytes = work_bytes,
    .parts = parts,
    .read_bytes = read_bytes,
};

static int claims_pages(const struct layer_plan *row, int n_layer, int l, const struct layer *y)
{
    (void)n_layer, (void)y;
    return row[l].sketch.page > 0 && !row[l].sketch.columns;
}

const struct reader cb_reader_pages = {
    .name = "pages that bounds of keys find",
    .traits = READ_DENSE | READ_EXTENDS | READ_PROMPT | READ_BY_HEAD,
    .claims = claims_pages,
    .open = open,
    .close = close,
    .work_bytes = work_bytes,
    .parts = parts,
    .read_bytes = read_bytes,
};

static int claims_partial(const struct layer_plan *row, int n_layer, int l, const struct layer *y)
{
    (void)n_layer, (void)y;
    return row[l].sketch.columns > 0;
}

static void guess(struct attention *a, int l, int i, const float *q)
{
    const struct sketch_choice *x = cb_reader_state(a, l);

    cb_partial_keys_guess(a, x->partial, i, q);
}

static int attended(struct attention *a, const struct chunk *c, const float *lse)
{
    const struct sketch_choice *x = cb_reader_state(a, c->l);

    (void)lse;
    cb_skew_chunk(a, x->skew, c);
    return CB_OK;
}

static int settle(struct attention *a, int l)
{
    const struct sketch_choice *x = cb_reader_state(a, l);

    cb_skew_make(a, x->skew, l);
    return CB_OK;
}

static const char *uncut(const struct attention *a, const void *state, int n)
{
    (void)state;
    for (int l = 0; l < a->bank->n_layer; l++)
        if (a->bank->store[l].skewed_at > n)
            return "its keys are skewed by all of the first prompt";
    return NULL;
}

const struct reader cb_reader_partial_keys = {
    .name = "slots that partial keys find",
    .traits = READ_DENSE | READ_PROMPT,
    .together = MOST_DRAFT + 1,
    .claims = claims_partial,
    .open = open_partial,
    .close = close,
    .work_bytes = work_bytes,
    .uncut = uncut,
    .guess = guess,
    .parts = parts,
    .attended = attended,
    .settle = settle,
    .read_bytes = read_bytes,
};
