/* SPDX-License-Identifier: MIT */
/* sketched_keys.c - a decoded token scores the sketches of all keys, in each layer and KV head, and
 * attends to the slots with the best scores, the first and the newest ones. Nothing is dropped:
 * each token makes its own choice. */
#include <stdlib.h>
#include <string.h>

#include "attention/context_split.h"
#include "attention/parts.h"
#include "attention/rank_choice.h"
#include "bank/store_planes.h"
#include "base/err.h"
#include "base/ints.h"
#include "device/sketch.h"
#include "slot_lists.h"

static int claims(const struct claim *c)
{
    return c->row->sketch.bits > 0;
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
static int open_planes(struct attention *a, const void *x, const struct sketch_plan *form)
{
    if (!cb_bank_in_planes(a->bank))
        return CB_OK;
    if (a->dev->ops->memory)
        return cb_policy_refuse(a->policy, "device %s does not read keys of type planes",
                                a->dev->name);
    for (int l = 0; l < a->bank->n_layer; l++) {
        struct store *s = &a->bank->store[l];
        const int is_in = cb_reader_state(a, l) == x;
        const int keeps = cb_policy_index(a->policy, l) >= 0 && !a->model->layer[l].window;
        if (!is_in && keeps)
            cb_store_may_sketch(s, form->bits, SKETCH_BLOCK, form->sink);
        if (is_in || keeps)
            TRY(cb_planes_open(s, a->bank->kivi_v));
    }
    return CB_OK;
}

static int open(struct attention *a, void *x)
{
    const struct sketch_plan *form = &a->plan[cb_reader_first(a, x)].sketch;

    for (int l = 0; l < a->bank->n_layer; l++)
        if (cb_reader_state(a, l) == x)
            cb_store_may_sketch(&a->bank->store[l], form->bits, SKETCH_BLOCK, form->sink);
    TRY(open_planes(a, x, form));
    TRY(cb_slot_lists_device(a, a->dev->ops->sketch_topk != NULL, "sketched keys"));
    return cb_slot_lists_open(a, x, a->bank->n_kv, work_size(a, a->bank->n_ctx));
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

/* The op for slots of this rank, of which it has at least one */
static struct sketch_topk call_of(const struct attention *a, int l, const float *q,
                                  const struct slot_range *own, int k, double miss)
{
    const struct store *st = &a->bank->store[l];
    const struct slot_lists *x = cb_reader_state(a, l);
    const struct attn at = cb_parts_attn(a, l);

    return (struct sketch_topk){ .n_head = at.n_head,
                                 .n_kv = at.n_kv,
                                 .hd = at.hd,
                                 .bits = st->sketch_bits,
                                 .scale = at.scale,
                                 .q = q,
                                 .half = a->plan[l].sketch.half,
                                 .sketch = cb_store_sketch_at(st, 0, own->from),
                                 .head_bytes = st->head_sketch,
                                 .n_block = (own->to - own->from) / SKETCH_BLOCK,
                                 .lo = own->lo - own->from,
                                 .hi = own->hi - own->from,
                                 .k = k,
                                 .miss = (float)miss,
                                 .idx = cb_slot_lists_at(a, l, own, 0),
                                 .idx_stride = a->bank->n_ctx,
                                 .n = x->n,
                                 .work = x->work };
}

static int choose(struct attention *a, int l, const float *q, const struct slot_range *r)
{
    struct sketch_topk s = call_of(a, l, q, r, r->k, a->plan[l].sketch.miss);

    s.later = !r->from && s.miss <= 0;
    s.before = r->lo - r->first;
    s.after = a->bank->store[l].n[0] - r->hi;
    a->dev->ops->sketch_topk(a->dev, &s);
    for (int h = 0; h < s.n_kv && r->from; h++)
        for (int i = 0; i < s.n[h]; i++)
            s.idx[h * s.idx_stride + i] += r->from;
    return CB_OK;
}

/* ---- choosing over ranks ---- */

/* Blocks that are dealt out are whole pieces, so that pieces are those of one process. */
static int deals_by(const struct attention *a, int l)
{
    return a->plan[l].sketch.half ? 0 : SKETCH_PIECE; /* half: by a block that one rank has */
}

/* What a piece adds to the log-sum-exp of a query head */
struct piece_sum {
    uint32_t sum;
    int32_t top;
};

static int most_pieces(const struct attention *a, int l, const struct slot_range *r)
{
    const int most = cb_context_split_most_own(a, l, r->from, r->to);

    return (most + SKETCH_PIECE - 1) / SKETCH_PIECE;
}

/* all[ranks][most][n_kv][group] -> the log-sum-exp of query head i of KV head kv */
static int16_t lse_of(const struct sketch_topk *s, const struct piece_sum *all, int n, int kv,
                      int i, int16_t *top, uint32_t *sum)
{
    for (int p = 0; p < n; p++) {
        const struct piece_sum *x = all + (size_t)p * (size_t)s->n_head;
        top[p] = (int16_t)x[kv * (s->n_head / s->n_kv) + i].top;
        sum[p] = x[kv * (s->n_head / s->n_kv) + i].sum;
    }
    return cb_sketch_lse(top, sum, n, 1);
}

/* The sums of the rank's pieces -> mine[most][n_head] */
static void pack_sums(const struct sketch_topk *s, const struct sketch_work *w, int most,
                      struct piece_sum *mine)
{
    const int group = s->n_head / s->n_kv, n = cb_sketch_pieces(s->n_block);

    for (int p = 0; p < most; p++)
        for (int h = 0; h < s->n_head; h++) {
            const size_t at = ((size_t)(h / group * n + p) * (size_t)group + (size_t)(h % group));
            *mine++ = p < n ? (struct piece_sum){ w->sum[at], w->top[at] }
                            : (struct piece_sum){ 0, INT16_MIN };
        }
}

/* Scores the sketches of all ranks -> w->lse of the query heads */
static int score_over_ranks(struct attention *a, struct sketch_topk *s, int most,
                            const struct sketch_work *w)
{
    const int n = most * cb_context_split_ranks(a), group = s->n_head / s->n_kv;
    const size_t n_mine = (size_t)most * (size_t)s->n_head;
    struct piece_sum *mine = cb_calloc(n_mine + (size_t)n, sizeof *mine);
    uint32_t *sum = mine ? (uint32_t *)(mine + n_mine) : NULL;
    int16_t *top = mine ? (int16_t *)(sum + n) : NULL;
    const void *all;
    int err;

    if (!mine)
        return CB_ENOMEM;
    s->step = SKETCH_SCORES;
    if (s->n_block)
        a->dev->ops->sketch_topk(a->dev, s);
    pack_sums(s, w, most, mine);
    err = cb_rank_choice_share(cb_context_split_choice(a), mine, n_mine * sizeof *mine, &all);
    for (int h = 0; !err && h < s->n_head; h++)
        w->lse[h] = lse_of(s, all, n, h / group, h % group, top, sum);
    free(mine);
    return err;
}

/* How many slots each KV head reads of all ranks' -> k[n_kv]: fewer than the budget where these
 * hold enough. The ranks share how many of their candidates have each rank. */
static int limits(const struct attention *a, const struct sketch_topk *s,
                  const struct sketch_work *w, float miss, int budget, int *k)
{
    const size_t n = (size_t)s->n_kv * SKETCH_BUCKETS;
    const size_t of_head = (size_t)cb_sketch_pieces(s->n_block) * SKETCH_PIECE;
    uint32_t *count = cb_calloc(n, sizeof *count);
    const void *all;
    int err, limit, n_equal;

    if (!count)
        return CB_ENOMEM;
    for (int h = 0; h < s->n_kv; h++)
        for (int j = s->lo; j < s->hi; j++)
            count[(size_t)h * SKETCH_BUCKETS + w->rank[(size_t)h * of_head + (size_t)j]]++;
    err = cb_rank_choice_share(cb_context_split_choice(a), count, n * sizeof *count, &all);
    memset(count, 0, n * sizeof *count);
    for (size_t i = 0; !err && i < n * (size_t)cb_context_split_ranks(a); i++)
        count[i % n] += ((const uint32_t *)all)[i];
    for (int h = 0; !err && h < s->n_kv; h++)
        k[h] = cb_sketch_limit(count + (size_t)h * SKETCH_BUCKETS, SKETCH_BUCKETS, budget, miss,
                               &limit, &n_equal);
    free(count);
    return err;
}

/* This rank's best slots -> those of them that are chosen over all ranks */
static int merge(struct attention *a, int l, const struct sketch_topk *s,
                 const struct sketch_work *w, const struct slot_range *r)
{
    const double miss = a->plan[l].sketch.miss;
    struct rank_choice *choice = cb_context_split_choice(a);
    const size_t of_head = (size_t)cb_sketch_pieces(s->n_block) * SKETCH_PIECE;
    const int most = min_int(r->k, cb_context_split_most_own(a, l, r->lo, r->hi));

    TRY(cb_rank_choice_begin(choice, s->n_kv, most));
    for (int h = 0; s->n_block && h < s->n_kv; h++)
        for (int i = 0; i < s->n[h]; i++) {
            const int j = s->idx[h * s->idx_stride + i];
            cb_rank_choice_add(choice, h, -(float)w->rank[(size_t)h * of_head + (size_t)j],
                               cb_store_pos(&a->bank->store[l], 0, j));
        }
    for (int h = 0; h < s->n_kv; h++)
        s->n[h] = r->k;
    if (miss > 0)
        TRY(limits(a, s, w, (float)miss, r->k, s->n));
    TRY(cb_rank_choice_end(choice, a->dev, s->n));
    for (int h = 0; h < s->n_kv; h++) {
        const int32_t *pos = cb_rank_choice_of(choice, h, &s->n[h]);
        for (int i = 0; i < s->n[h]; i++)
            s->idx[h * s->idx_stride + i] = cb_context_split_own(a, l, pos[i]);
    }
    return CB_OK;
}

static int choose_over_ranks(struct attention *a, int l, const float *q, const struct slot_range *r,
                             const struct slot_range *own)
{
    struct sketch_topk s = call_of(a, l, q, own, r->k, 0);
    struct sketch_work w;

    cb_sketch_work(s.work, s.n_head, s.n_kv, s.hd, s.n_block, SKETCH_MAX_ITEMS, &w);
    TRY(score_over_ranks(a, &s, most_pieces(a, l, r), &w));
    s.step = SKETCH_CHOICE;
    if (s.n_block)
        a->dev->ops->sketch_topk(a->dev, &s);
    return merge(a, l, &s, &w, r);
}

/* ---- what a token reads ---- */

static int parts(struct attention *a, const struct chunk *c)
{
    const int dealt = cb_context_split_deals(a, c->l), n = cb_context_split_len(a, c);
    const int sketched =
        dealt ? (n - 1) / SKETCH_BLOCK * SKETCH_BLOCK : a->bank->store[c->l].sketched;
    const struct slot_range r = range_of(a, c->l, n, sketched);
    const struct slot_range own = cb_slot_lists_own(a, c->l, &r);

    if (!a->bank->decoding || !scores(&a->plan[c->l].sketch, &r))
        return 0;
    cb_slot_lists_prefetch(a, c->l);
    TRY(dealt ? choose_over_ranks(a, c->l, c->q, &r, &own) : choose(a, c->l, c->q, &r));
    a->bank->read_bytes += scored_bytes(a, c->l, &own);
    return cb_slot_lists_part(a, c, &own);
}

static uint64_t read_bytes(const struct attention *a, int l, int n, const struct planned *p,
                           uint64_t *scanned)
{
    const int all = cb_context_split_deals(a, l) ? p->n_prompt + p->n_gen : n;
    const struct slot_range r =
        range_of(a, l, all, max_int(0, all - 1) / SKETCH_BLOCK * SKETCH_BLOCK);
    const struct slot_range own = cb_slot_lists_own(a, l, &r);

    *scanned = scores(&a->plan[l].sketch, &r) ? scored_bytes(a, l, &own) : 0;
    return *scanned + (uint64_t)a->bank->n_kv * cb_slot_lists_read(a, l, n, &own);
}

static uint64_t choice_bytes(const struct attention *a, int l, int n, int *messages)
{
    const struct sketch_plan *p = &a->plan[l].sketch;
    const struct slot_range r = range_of(a, l, n, max_int(0, n - 1) / SKETCH_BLOCK * SKETCH_BLOCK);
    const int n_kv = a->bank->n_kv;
    const int most = min_int(r.k, cb_context_split_most_own(a, l, r.lo, r.hi));

    *messages = !scores(p, &r) ? 0 : p->miss > 0 ? 3 : 2;
    if (!*messages)
        return 0;
    return (uint64_t)most_pieces(a, l, &r) * (uint64_t)a->model->hp.n_head *
               sizeof(struct piece_sum) +
           (p->miss > 0 ? (uint64_t)n_kv * SKETCH_BUCKETS * sizeof(uint32_t) : 0) +
           cb_rank_choice_sends(n_kv, most);
}

const struct reader cb_reader_sketched_keys = {
    .name = "slots that sketched keys find",
    .traits = READ_DENSE | READ_EXTENDS | READ_PROMPT | READ_PLANES | READ_SHARES,
    .claims = claims,
    .state = sizeof(struct slot_lists),
    .open = open,
    .work_bytes = work_bytes,
    .parts = parts,
    .deals_by = deals_by,
    .choice_bytes = choice_bytes,
    .read_bytes = read_bytes,
};
