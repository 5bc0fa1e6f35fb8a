/* SPDX-License-Identifier: MIT */
/* partial_keys.c - the choice of InfiniGen (Lee et al., 2024, section 4.3). While a layer computes
 * a token, its input is multiplied with the next layer's query matrix: a guess of the next layer's
 * queries, as the input changes little from layer to layer. Their first columns, skewed, give
 * logits with the partial keys. A query head counts the slots whose logits come within alpha of its
 * largest; every list has as many slots as query heads count on average. The paper has a list for
 * each query head; by default those of a KV head share one. */
#include <math.h>
#include <string.h>

#include "attention/parts.h"
#include "attention/state_memory.h"
#include "base/err.h"
#include "base/ints.h"
#include "skew.h"
#include "slot_lists.h"

enum { LANES = 8 };

struct partial_keys {
    struct slot_lists lists;
    float *guess; /* [MOST_DRAFT + 1][n_head * hd] for tokens that are decoded together */
    float *q;     /* [n_head][columns] one token's, skewed */
    float *logit; /* [n_head][n_ctx] */
    int *n_near;  /* [n_head] slots that a query head counts */
    struct kv_run *run;
    struct skew *skew;
};

static int claims(const struct claim *c)
{
    return c->row->sketch.columns > 0;
}

/* ---- open ---- */

static int open(struct attention *a, void *state)
{
    const size_t nh = (size_t)a->model->hp.n_head;
    struct partial_keys *x = state;
    const struct sketch_plan *form = &a->plan[cb_reader_first(a, x)].sketch;
    const int n_list = form->heads == EACH_HEAD ? a->model->hp.n_head : a->bank->n_kv;

    for (int l = 0; l < a->bank->n_layer; l++)
        if (cb_reader_state(a, l) == x)
            TRY(cb_store_may_skew(&a->bank->store[l], form->columns));
    TRY(cb_slot_lists_device(a, !a->dev->ops->memory, "partial keys"));
    TRY(cb_slot_lists_open(a, &x->lists, n_list, 0));
    x->guess = cb_state_alloc(x, (MOST_DRAFT + 1) * cb_attention_row(a), sizeof *x->guess);
    x->q = cb_state_alloc(x, nh * (size_t)form->columns, sizeof *x->q);
    x->logit = cb_state_slots(x, nh, a->bank->n_ctx, sizeof *x->logit);
    x->n_near = cb_state_calloc(x, nh, sizeof *x->n_near);
    x->run = cb_state_calloc(x, (size_t)a->bank->n_kv, sizeof *x->run);
    return cb_skew_open(a, x, &x->skew);
}

/* q: of token i of those that are decoded together */
static void guess(struct attention *a, int l, int i, const float *q)
{
    const struct partial_keys *x = cb_reader_state(a, l);
    const size_t row = cb_attention_row(a);

    memcpy(x->guess + (size_t)i * row, q, row * sizeof *q);
}

/* ---- choosing ---- */

/* Logits of the slots lo..hi-1 by the guessed queries -> x->logit */
static void guess_logits(struct attention *a, struct partial_keys *x, int l, int lo, int hi)
{
    const struct store *st = &a->bank->store[l];
    const int group = cb_attention_group(a), n_col = a->plan[l].sketch.columns;
    const float *guess = x->guess + (size_t)a->draft_index * cb_attention_row(a);
    struct score sc = {
        .a = cb_parts_attn(a, l), .logit = 1, .out = x->logit, .out_stride = a->bank->n_ctx
    };

    for (int h = 0; h < sc.a.n_head; h++) {
        cb_store_skewed(st, h / group, guess + h * st->hd, x->q + h * n_col);
        memset(x->logit + (size_t)h * (size_t)sc.out_stride, 0,
               (size_t)(hi - lo) * sizeof *x->logit);
    }
    for (int h = 0; h < st->n_kv; h++) {
        const uint8_t *k = cb_store_sketch_at(st, h, lo);
        x->run[h] = (struct kv_run){ .k = k, .v = k, .n = hi - lo };
    }
    sc.a.n_tok = 1;
    sc.a.causal = sc.a.window = 0;
    sc.a.softcap = 0; /* it changes no order */
    sc.a.type_k = sc.a.type_v = KV_F16;
    sc.a.hd = n_col;
    sc.a.q = x->q;
    sc.a.q_stride = sc.a.n_head * n_col;
    sc.a.run = x->run;
    a->dev->ops->score(a->dev, &sc);
}

static float largest(const float *x, int n)
{
    float most[LANES], best;
    int j = 0;

    for (int i = 0; i < LANES; i++)
        most[i] = -INFINITY;
    for (; j + LANES <= n; j += LANES)
        for (int i = 0; i < LANES; i++)
            most[i] = x[j + i] > most[i] ? x[j + i] : most[i];
    best = most[0];
    for (int i = 1; i < LANES; i++)
        best = most[i] > best ? most[i] : best;
    for (; j < n; j++)
        best = x[j] > best ? x[j] : best;
    return best;
}

struct ranking {
    const struct attention *a;
    struct partial_keys *x;
    int n; /* slots */
    float alpha;
};

/* Counts the slots that each query head of a KV head has near its largest logit. If they share a
 * list, the logits of the first one become the ranks of slots: how far below the largest they are
 * for the query head that wants them most. */
static void rank_slots(void *ctx, int kv, int thread)
{
    const struct ranking *r = ctx;
    const int group = cb_attention_group(r->a), stride = r->a->bank->n_ctx;
    const int shared = r->x->lists.n_list == r->a->bank->n_kv;
    float *rank = r->x->logit + (size_t)(kv * group) * (size_t)stride;

    (void)thread;
    for (int g = 0; g < group; g++) {
        const float *x = rank + (size_t)g * (size_t)stride;
        const float top = largest(x, r->n), least = top - r->alpha;
        int near = 0;
        for (int j = 0; j < r->n; j++)
            near += x[j] >= least;
        for (int j = 0; j < r->n && shared; j++) {
            const float y = x[j] - top;
            rank[j] = g && rank[j] > y ? rank[j] : y;
        }
        r->x->n_near[kv * group + g] = near;
    }
}

/* As many slots of the range for each list, at most r->k, ascending -> how many */
static int choose(struct attention *a, int l, const struct slot_range *r)
{
    struct partial_keys *x = cb_reader_state(a, l);
    struct ranking rank = { a, x, r->hi - r->lo, a->plan[l].sketch.alpha };
    const int n_head = a->model->hp.n_head, all = r->hi - r->lo, per = n_head / x->lists.n_list;
    int64_t sum = 0;
    int n;

    guess_logits(a, x, l, r->lo, r->hi);
    cb_par_for(a->dev->par, a->bank->n_kv, rank_slots, &rank);
    for (int h = 0; h < n_head; h++)
        sum += x->n_near[h];
    n = min_int(max_int(1, (int)(sum / n_head)), min_int(r->k, all));
    for (int h = 0; h < x->lists.n_list; h++) {
        int32_t *idx = cb_slot_lists_at(a, l, r, h);
        x->lists.n[h] = n;
        if (n == all)
            continue;
        a->dev->ops->topk(a->dev, x->logit + (size_t)(h * per) * (size_t)a->bank->n_ctx, all, n,
                          idx);
        for (int i = 0; i < n && r->lo; i++)
            idx[i] += r->lo;
    }
    return n;
}

/* All slots but the newest have a partial key. */
static struct slot_range range_of(const struct attention *a, int l, int n)
{
    const struct sketch_plan *p = &a->plan[l].sketch;
    struct slot_range r = { .first = cb_slot_lists_first(a, l, n) };

    r.lo = r.from = r.first;
    r.hi = r.to = max_int(r.first, n - 1);
    r.k = p->share > 0 ? max_int(1, (int)(p->share * (r.hi - r.lo))) : p->k;
    return r;
}

static int parts(struct attention *a, const struct chunk *c)
{
    const struct slot_range r = range_of(a, c->l, a->bank->store[c->l].n[0]);
    int n;

    if (!a->bank->decoding || r.hi <= r.lo)
        return 0;
    cb_slot_lists_prefetch(a, c->l);
    n = choose(a, c->l, &r);
    a->bank->read_bytes += cb_slot_lists_scored(a, c->l, &r);
    return n == r.hi - r.lo ? 0 : cb_slot_lists_part(a, c, &r);
}

static int attended(struct attention *a, const struct chunk *c, const float *lse)
{
    const struct partial_keys *x = cb_reader_state(a, c->l);

    (void)lse;
    cb_skew_chunk(a, x->skew, c);
    return CB_OK;
}

static int settle(struct attention *a, int l)
{
    const struct partial_keys *x = cb_reader_state(a, l);

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

static uint64_t read_bytes(const struct attention *a, int l, int n, const struct planned *p,
                           uint64_t *scanned)
{
    const struct slot_range r = range_of(a, l, n);

    (void)p;
    *scanned = r.hi > r.lo ? cb_slot_lists_scored(a, l, &r) : 0;
    return *scanned + (uint64_t)a->bank->n_kv * cb_slot_lists_read(a, l, n, &r);
}

const struct reader cb_reader_partial_keys = {
    .name = "slots that partial keys find",
    .traits = READ_DENSE | READ_PROMPT,
    .max_step = MOST_DRAFT + 1,
    .claims = claims,
    .state = sizeof(struct partial_keys),
    .open = open,
    .uncut = uncut,
    .guess = guess,
    .parts = parts,
    .attended = attended,
    .settle = settle,
    .read_bytes = read_bytes,
};
