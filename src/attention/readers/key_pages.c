/* SPDX-License-Identifier: MIT */
/* key_pages.c - a decoded token scores pages of keys by bounds that hold for each key of a page,
 * and attends to the pages that score best and the current one (Quest, Tang et al. 2024). */
#include "attention/context_split.h"
#include "attention/parts.h"
#include "attention/rank_choice.h"
#include "bank/store_planes.h"
#include "base/err.h"
#include "base/ints.h"
#include "slot_lists.h"

static int claims(const struct claim *c)
{
    return c->row->sketch.page > 0;
}

/* ---- open ---- */

/* Of scores of pages [n_list][n_page], and a choice of them [n_page] */
static size_t work_size(int n_list, int page, int n)
{
    return (size_t)(n_list + 1) * (size_t)(n / page + 1) * sizeof(float);
}

static int open(struct attention *a, void *x)
{
    const struct sketch_plan *form = &a->plan[cb_reader_first(a, x)].sketch;
    const int n_list = form->heads == EACH_HEAD ? a->model->hp.n_head : a->bank->n_kv;

    for (int l = 0; l < a->bank->n_layer; l++)
        if (cb_reader_state(a, l) == x)
            cb_store_may_sketch(&a->bank->store[l], 0, a->plan[l].sketch.page,
                                a->plan[l].sketch.sink);
    TRY(cb_slot_lists_device(a, a->dev->ops->page_scores != NULL, "sketched keys"));
    return cb_slot_lists_open(a, x, n_list, work_size(n_list, form->page, a->bank->n_ctx));
}

static size_t work_bytes(const struct attention *a, const void *x, int n_feed, int n_most)
{
    const int n_list = ((const struct slot_lists *)x)->n_list;

    (void)n_feed;
    return work_size(n_list, a->plan[cb_reader_first(a, x)].sketch.page, n_most) +
           cb_slot_lists_bytes(x, n_most);
}

/* ---- choosing ---- */

/* The n-th slot's page is the current one: it is read, and the pages before it are candidates. */
static struct slot_range range_of(const struct attention *a, int l, int n)
{
    const struct sketch_plan *p = &a->plan[l].sketch;
    struct slot_range r = { .first = cb_slot_lists_first(a, l, n) };
    const int budget = p->share > 0 ? (int)(p->share * (n - r.first)) : p->k;

    r.hi = (n - 1) / p->page * p->page;
    r.lo = min_int(r.hi, (r.first + p->page - 1) / p->page * p->page);
    r.k = (max_int(3, budget / p->page) - 1) * p->page;
    r.from = r.lo;
    r.to = r.hi;
    return r;
}

/* The scores of the rank's pages in the range -> score[n_list][pages] */
static struct page_scores scores_of(const struct attention *a, int l, const float *q,
                                    const struct slot_range *own, float *score)
{
    const struct store *st = &a->bank->store[l];
    const int page = a->plan[l].sketch.page, n = (own->hi - own->lo) / page;
    const struct attn at = cb_parts_attn(a, l);
    const struct slot_lists *x = cb_reader_state(a, l);

    return (struct page_scores){ .n_head = at.n_head,
                                 .n_kv = at.n_kv,
                                 .hd = at.hd,
                                 .q = q,
                                 .bounds = cb_store_sketch_at(st, 0, own->lo),
                                 .head_bytes = st->head_sketch,
                                 .n_page = n,
                                 .per = at.n_head / x->n_list,
                                 .mean = a->plan[l].sketch.heads == PER_KV_HEAD_MEAN,
                                 .out = score,
                                 .out_stride = n };
}

/* 1: the device has scored and chosen. */
static int device_chooses(struct attention *a, int l, const struct page_scores *s,
                          const struct slot_range *own, int k)
{
    const struct slot_lists *x = cb_reader_state(a, l);
    const struct page_topk t = { .s = *s,
                                 .page = a->plan[l].sketch.page,
                                 .lo = own->lo,
                                 .k = k,
                                 .idx = cb_slot_lists_at(a, l, own, 0),
                                 .idx_stride = a->bank->n_ctx,
                                 .later = 1,
                                 .before = own->lo - own->first,
                                 .after = a->bank->store[l].n[0] - own->hi };

    if (!a->dev->ops->page_topk || !a->dev->ops->page_topk(a->dev, &t))
        return 0;
    for (int h = 0; h < x->n_list; h++)
        x->n[h] = k * t.page;
    return 1;
}

/* List h reads n pages of the range, whose first one is page 0. */
static void read_pages(struct attention *a, int l, const struct slot_range *own, int h,
                       const int32_t *best, int n)
{
    const int page = a->plan[l].sketch.page;
    const struct slot_lists *x = cb_reader_state(a, l);
    int32_t *idx = cb_slot_lists_at(a, l, own, h);

    for (int i = 0; i < n * page; i++)
        idx[i] = own->lo + best[i / page] * page + i % page;
    x->n[h] = n * page;
}

/* Pages that a list sends of a rank, at most */
static int most_pages(const struct attention *a, int l, const struct slot_range *r)
{
    return min_int(r->k, cb_context_split_most_own(a, l, r->lo, r->hi)) / a->plan[l].sketch.page;
}

static void add_pages(struct attention *a, int l, const struct slot_range *own, int h,
                      const float *score, const int32_t *best, int n)
{
    const int page = a->plan[l].sketch.page;

    for (int i = 0; i < n; i++)
        cb_rank_choice_add(cb_context_split_choice(a), h, score[best[i]],
                           cb_store_pos(&a->bank->store[l], 0, own->lo + best[i] * page));
}

/* The pages that are chosen over all ranks -> those that this rank has of them */
static int choose_over_ranks(struct attention *a, int l, const struct slot_range *r,
                             const struct slot_range *own, int32_t *best)
{
    const int page = a->plan[l].sketch.page;
    struct rank_choice *choice = cb_context_split_choice(a);
    const struct slot_lists *x = cb_reader_state(a, l);

    for (int h = 0; h < x->n_list; h++)
        x->n[h] = r->k / page;
    TRY(cb_rank_choice_end(choice, a->dev, x->n));
    for (int h = 0, n; h < x->n_list; h++) {
        const int32_t *pos = cb_rank_choice_of(choice, h, &n);
        for (int i = 0; i < n; i++)
            best[i] = (cb_context_split_own(a, l, pos[i]) - own->lo) / page;
        read_pages(a, l, own, h, best, n);
    }
    return CB_OK;
}

static int choose(struct attention *a, int l, const float *q, const struct slot_range *r,
                  const struct slot_range *own)
{
    const int page = a->plan[l].sketch.page, n = (own->hi - own->lo) / page;
    const int dealt = cb_context_split_deals(a, l), k = min_int(n, r->k / page);
    const struct slot_lists *x = cb_reader_state(a, l);
    float *score = x->work;
    int32_t *best = (int32_t *)(score + (size_t)x->n_list * (size_t)n);
    const struct page_scores s = scores_of(a, l, q, own, score);

    if (dealt)
        TRY(cb_rank_choice_begin(cb_context_split_choice(a), x->n_list, most_pages(a, l, r)));
    else if (device_chooses(a, l, &s, own, k))
        return CB_OK;
    if (n)
        a->dev->ops->page_scores(a->dev, &s);
    for (int h = 0; h < x->n_list; h++) {
        const float *of = score + (size_t)h * (size_t)n;
        a->dev->ops->topk(a->dev, of, n, k, best);
        if (dealt)
            add_pages(a, l, own, h, of, best, k);
        else
            read_pages(a, l, own, h, best, k);
    }
    return dealt ? choose_over_ranks(a, l, r, own, best) : CB_OK;
}

static int parts(struct attention *a, const struct chunk *c)
{
    const struct slot_range r = range_of(a, c->l, cb_context_split_len(a, c));
    const struct slot_range own = cb_slot_lists_own(a, c->l, &r);

    if (!a->bank->decoding || r.k >= r.hi - r.lo)
        return 0;
    cb_slot_lists_prefetch(a, c->l);
    TRY(choose(a, c->l, c->q, &r, &own));
    a->bank->read_bytes += cb_slot_lists_scored(a, c->l, &own);
    return cb_slot_lists_part(a, c, &own);
}

/* ---- the plan ---- */

static uint64_t read_bytes(const struct attention *a, int l, int n, const struct planned *p,
                           uint64_t *scanned)
{
    const int all = cb_context_split_deals(a, l) ? p->n_prompt + p->n_gen : n;
    const struct slot_range r = range_of(a, l, all), own = cb_slot_lists_own(a, l, &r);

    *scanned = r.k < r.hi - r.lo ? cb_slot_lists_scored(a, l, &own) : 0;
    return *scanned + (uint64_t)a->bank->n_kv * cb_slot_lists_read(a, l, n, &own);
}

static int deals_by(const struct attention *a, int l)
{
    return a->plan[l].sketch.page;
}

static uint64_t choice_bytes(const struct attention *a, int l, int n, int *messages)
{
    const struct slot_range r = range_of(a, l, n);

    *messages = r.k < r.hi - r.lo;
    return *messages ? cb_rank_choice_sends(((struct slot_lists *)cb_reader_state(a, l))->n_list,
                                            most_pages(a, l, &r))
                     : 0;
}

const struct reader cb_reader_key_pages = {
    .name = "pages that bounds of keys find",
    .traits = READ_DENSE | READ_EXTENDS | READ_PROMPT | READ_BY_HEAD | READ_SHARES,
    .claims = claims,
    .state = sizeof(struct slot_lists),
    .open = open,
    .work_bytes = work_bytes,
    .parts = parts,
    .deals_by = deals_by,
    .choice_bytes = choice_bytes,
    .read_bytes = read_bytes,
};
