/* SPDX-License-Identifier: MIT */
/* parts.c - the list of parts that a call of attention reads, and the call itself. */
#include "parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bank/store_prefetch.h"
#include "base/array.h"
#include "base/err.h"
#include "base/ints.h"
#include "context_split.h"
#include "prefill.h"

struct parts {
    int n, n_run;
    size_t cap;
    struct part *part;  /* [cap] */
    struct kv_run *run; /* [cap][n_run] */
    float *lse;         /* [chunk][n_head] */
    float *out2,
        *lse2;  /* [chunk][n_head * hd], [chunk][n_head] of a part that joins; NULL: none does */
    int *skips; /* [n_head] 1 = the head skips the part */
};

/* ---- open ---- */

int cb_parts_open(struct attention *a)
{
    const size_t n = (size_t)a->chunk * (size_t)a->model->hp.n_head;
    struct parts *x = a->parts = cb_calloc(1, sizeof *x);

    if (!x || !(x->lse = cb_alloc_aligned(n, sizeof *x->lse)))
        return CB_ENOMEM;
    x->n_run = (a->traits & READ_BY_HEAD) || (a->prompt.how && a->prompt.how->by_head)
                   ? a->model->hp.n_head
                   : a->bank->n_kv;
    for (int l = 0; l < a->bank->n_layer; l++)
        x->n_run = max_int(x->n_run, a->model->layer[l].n_kv);
    if (!a->prompt.joins && !(a->traits & READ_JOINS))
        return CB_OK;
    x->out2 = cb_alloc_aligned((size_t)a->chunk * cb_attention_row(a), sizeof *x->out2);
    x->lse2 = cb_alloc_aligned(n, sizeof *x->lse2);
    x->skips = cb_calloc((size_t)a->model->hp.n_head, sizeof *x->skips);
    return x->out2 && x->lse2 && x->skips ? CB_OK : CB_ENOMEM;
}

void cb_parts_close(struct attention *a)
{
    struct parts *x = a->parts;

    if (!x)
        return;
    free(x->part);
    free(x->run);
    free(x->lse);
    free(x->out2);
    free(x->lse2);
    free(x->skips);
    free(x);
}

size_t cb_parts_bytes(const struct attention *a)
{
    const size_t n = (size_t)a->chunk * (size_t)a->model->hp.n_head;
    return sizeof(float) * (a->parts->out2 ? 2 * n + (size_t)a->chunk * cb_attention_row(a) : n);
}

/* ---- the list ---- */

void cb_parts_clear(struct attention *a)
{
    a->parts->n = 0;
}

int cb_parts_add(struct attention *a, const struct part *p, struct kv_run **run)
{
    struct parts *x = a->parts;
    const size_t n_run = (size_t)x->n_run;
    size_t cap = x->cap;

    TRY(cb_grow(&x->part, &cap, (size_t)x->n + 1, sizeof *x->part));
    TRY(cb_grow(&x->run, &x->cap, (size_t)x->n + 1, n_run * sizeof *x->run));
    x->part[x->n] = *p;
    *run = cb_parts_runs(a, x->n);
    memset(*run, 0, n_run * sizeof **run);
    x->n++;
    return CB_OK;
}

struct part cb_parts_of(const struct attention *a, const struct chunk *c)
{
    return (struct part){ .n = c->n,
                          .q = c->q,
                          .q_stride = c->stride,
                          .causal = !a->bank->decoding,
                          .window = cb_attention_window(a, c->l),
                          .skip = 2 };
}

/* A part of token i of c that reads all it sees, for the caller to narrow */
static int add_token(struct attention *a, const struct chunk *c, int i, struct kv_run **run)
{
    const struct store *st = &a->bank->store[c->l];
    struct part p = cb_parts_of(a, c);

    p.first = i;
    p.n = 1;
    p.q = c->q + (size_t)i * (size_t)c->stride;
    p.causal = 0;
    TRY(cb_parts_add(a, &p, run));
    for (int h = 0; h < st->n_kv; h++)
        (*run)[h] = cb_store_run(st, h, 0, c->pos0 + i + 1);
    return CB_OK;
}

int cb_parts_add_list(struct attention *a, const struct chunk *c, int i, const int32_t *list, int n)
{
    struct kv_run *run;

    TRY(add_token(a, c, i, &run));
    for (int h = 0; h < a->bank->store[c->l].n_kv; h++) {
        run[h].idx = list;
        run[h].n = n;
    }
    return CB_OK;
}

int cb_parts_add_lists(struct attention *a, const struct chunk *c, int i, const int32_t *list,
                       size_t stride, const int *n)
{
    struct kv_run *run;

    TRY(add_token(a, c, i, &run));
    for (int h = 0; h < a->bank->store[c->l].n_kv; h++) {
        run[h].idx = list + (size_t)h * stride;
        run[h].n = n[h];
    }
    return CB_OK;
}

/* How many of a layer's slots the chunk does not see yet: where the layer reads those of an earlier
 * one, which has stored all of a prompt */
static int unseen(const struct attention *a, const struct chunk *c)
{
    return a->model->layer[c->l].kv_back && !a->bank->decoding ? c->pos_end - c->pos0 - c->n : 0;
}

int cb_parts_whole(struct attention *a, const struct chunk *c, float *logit)
{
    const struct store *st = cb_attention_store(a, c->l);
    const size_t group = (size_t)(a->model->hp.n_head / st->n_kv);
    const size_t stride = group * (size_t)a->bank->n_ctx;
    struct part p = cb_parts_of(a, c);
    const int not_read = unseen(a, c) + cb_context_split_unread(a, c, &p.causal);
    struct kv_run *run;

    TRY(cb_parts_add(a, &p, &run));
    for (int h = 0; h < st->n_kv; h++) {
        run[h] = cb_store_run(st, h, 0, st->n[h] - not_read);
        run[h].logit = logit ? logit + (size_t)h * stride : NULL;
    }
    return CB_OK;
}

/* Runs of a part */
static int n_run(const struct attention *a, int l, const struct part *p)
{
    return p->by_head ? a->model->hp.n_head : a->model->layer[l].n_kv;
}

void cb_parts_deal(struct attention *a, const struct chunk *c)
{
    struct part *p = a->parts->part;
    struct kv_run *run = a->parts->run;

    if (a->parts->n != 1 || p->n != c->n || !p->causal || p->blocks || cb_prefill_is(a))
        return;
    p->n = cb_context_split_queries(a, c, &p->first);
    p->dealt = p->n < c->n;
    p->q += (size_t)p->first * (size_t)p->q_stride;
    for (int r = 0; p->dealt && r < n_run(a, c->l, p); r++)
        run[r].n -= c->n - p->first - p->n;
}

int cb_parts_n(const struct attention *a)
{
    return a->parts->n;
}

const struct part *cb_parts_at(const struct attention *a, int i)
{
    return &a->parts->part[i];
}

struct kv_run *cb_parts_runs(const struct attention *a, int i)
{
    return a->parts->run + (size_t)i * (size_t)a->parts->n_run;
}

int cb_parts_left_out(const struct attention *a, int i, int h)
{
    return a->bank->decoding && cb_parts_at(a, i)->skip <= 1 && a->parts->skips[h];
}

/* ---- attending ---- */

void cb_parts_prefetch(const struct attention *a, int l)
{
    const struct store *st = cb_attention_store(a, l);

    for (int i = 0; i < a->parts->n; i++) {
        const int n = n_run(a, l, cb_parts_at(a, i));
        for (int r = 0; r < n && !cb_parts_at(a, i)->elsewhere; r++) {
            const struct kv_run *run = cb_parts_runs(a, i) + r;
            const int h = r * st->n_kv / n;
            cb_store_prefetch(st, h, run->idx, run->idx ? run->n : st->rows[h]);
        }
    }
}

struct attn cb_parts_attn(const struct attention *a, int l)
{
    const struct hparams *hp = &a->model->hp;
    const struct layer *y = &a->model->layer[l];

    return (struct attn){ .n_head = hp->n_head,
                          .n_kv = y->n_kv,
                          .hd = y->hd,
                          .scale = hp->attn_scale,
                          .softcap = hp->attn_cap,
                          .causal = 1,
                          .window = cb_attention_window(a, l),
                          .type_k = cb_attention_store(a, l)->type_k,
                          .type_v = cb_attention_store(a, l)->type_v,
                          .q_stride = hp->n_head * y->hd,
                          .logit_stride = a->bank->n_ctx };
}

struct attn cb_parts_attn_of(const struct attention *a, int l, int i)
{
    const struct part *p = cb_parts_at(a, i);
    struct attn at = cb_parts_attn(a, l);

    at.n_kv = p->by_head ? at.n_head : at.n_kv;
    at.n_tok = p->n;
    at.q = p->q;
    at.q_stride = p->q_stride;
    at.causal = p->causal;
    at.prompt = !a->bank->decoding;
    at.window = p->window;
    at.blocks = p->blocks;
    at.run = cb_parts_runs(a, i);
    return at;
}

/* Bytes that a decoded token reads of one run. */
static uint64_t run_bytes(const struct attention *a, int l, const struct part *p,
                          const struct kv_run *run)
{
    const struct store *st = cb_attention_store(a, l);
    struct kv_run r = *run;
    int skip = 0;

    if (p->window && p->window < r.n) {
        *(r.idx ? &skip : &r.first) += r.n - p->window;
        r.idx = r.idx ? r.idx + skip : NULL;
        r.n = p->window;
    }
    if (!r.given)
        return cb_store_run_bytes(st, &r);
    return cb_store_value_bytes(st, &r) +
           (uint64_t)r.n * (uint64_t)cb_attention_group(a) * sizeof(float);
}

static double log_sum_exp(const float *x, int n)
{
    double max = -INFINITY, sum = 0;

    for (int j = 0; j < n; j++)
        max = (double)x[j] > max ? (double)x[j] : max;
    for (int j = 0; j < n; j++)
        sum += exp((double)x[j] - max);
    return max + log(sum);
}

/* Marks the heads that skip the part. The softmax share of the parts already read is known before
 * any value of this part is read. If all heads of a KV head skip it, its run becomes empty. */
static void gate(const struct attention *a, const struct part *p, struct kv_run *run,
                 const float *lse)
{
    const int group = cb_attention_group(a);

    for (int kv = 0; kv < a->bank->n_kv; kv++) {
        int all = run[kv].n > 0;
        for (int i = 0; run[kv].n > 0 && i < group; i++) {
            const int h = kv * group + i;
            const float *logit = run[kv].logit + (size_t)i * (size_t)a->bank->n_ctx;
            const double share = 1 / (1 + exp(log_sum_exp(logit, run[kv].n) - (double)lse[h]));
            a->parts->skips[h] = share >= (double)p->skip;
            all &= a->parts->skips[h];
        }
        if (all)
            run[kv].n = 0;
    }
}

/* Leaves the part just attended out of the join where the parts before it hold enough. */
static void leave_out(struct attention *a, const struct part *p, const float *lse)
{
    const int n = p->n * a->model->hp.n_head;

    for (int i = 0; i < n; i++)
        if (1 / (1 + exp((double)a->parts->lse2[i] - (double)lse[i])) >= (double)p->skip)
            a->parts->lse2[i] = -INFINITY;
}

/* Does the call read one part, with nothing to join? */
static int is_single(const struct attention *a)
{
    return a->parts->n == 1 && !a->parts->part[0].joins;
}

/* Entries that query i of a run reads */
static int n_read(const struct attn *at, int r, int i)
{
    const struct attn_blocks *b = at->blocks;
    const int n = at->run[r].n, all = at->causal ? n - at->n_tok + 1 + i : n;
    const int row = b ? cb_attn_blocks_row(b, i) : 0, own = (all - 1) / KV_PREPACK;
    const uint8_t *reads;
    int sum = 0;

    if (!b)
        return at->window && at->window < all ? at->window : all;
    reads = b->reads + ((size_t)r * (size_t)b->n_row + (size_t)row) * (size_t)b->n_col;
    for (int j = 0; j < own; j++)
        sum += KV_PREPACK * reads[j];
    return sum + (reads[own] ? all - own * KV_PREPACK : 0);
}

/* After part i of layer l is attended to in a prompt. Queries of a row of blocks read the same ones
 * before their own. */
static void count_pairs(struct attention *a, int l, int i)
{
    const struct attn at = cb_parts_attn_of(a, l, i);
    const uint64_t heads = (uint64_t)(at.n_head / at.n_kv);

    for (int r = 0; r < at.n_kv; r++)
        for (int t = 0, n = 0; t < at.n_tok; t++) {
            const int same_row =
                at.blocks && !at.blocks->each && t && (at.blocks->first + t) % KV_PREPACK;
            n = same_row ? n + 1 : n_read(&at, r, t);
            a->bank->pairs_read += heads * (uint64_t)n;
        }
}

/* A dense prompt's pairs of the same queries, and of those that were left out before them */
static void count_all_pairs(const struct attention_call *call)
{
    const struct attention *a = call->a;
    const struct chunk *c = &call->c;
    const int window = a->model->layer[c->l].window;
    const struct part *p = a->parts->n ? cb_parts_at(a, 0) : NULL;
    const int works = cb_context_split_works(a);
    const int left = c->pos && !works && c->pos0 > a->bank->n_seen; /* tokens before it too */
    int first = left ? c->pos[-1] + 1 : !c->pos ? c->pos0 : works ? c->pos[0] : a->bank->n_seen;
    int end = c->pos ? c->pos[c->n - 1] + 1 : c->pos0 + c->n;

    if (p && p->dealt) { /* by this rank */
        first += p->first;
        end = first + p->n;
    }
    for (int i = first; !a->bank->decoding && i < end; i++)
        a->bank->pairs_all +=
            (uint64_t)a->model->hp.n_head * (uint64_t)(window && window <= i ? window : i + 1);
}

void cb_parts_count_all(const struct attention_call *call)
{
    struct bank *b = call->a->bank;
    const uint64_t had = b->pairs_all;

    count_all_pairs(call);
    b->pairs_read += b->pairs_all - had;
}

/* After part i of layer l is attended to */
static void count_read(struct attention *a, int l, int i)
{
    const struct part *p = cb_parts_at(a, i);

    if (!a->bank->decoding)
        count_pairs(a, l, i);
    for (int r = 0; a->bank->decoding && r < n_run(a, l, p); r++)
        a->bank->read_bytes += run_bytes(a, l, p, &cb_parts_runs(a, i)[r]);
}

/* The op's arguments for a part that joins nothing */
static struct attn call_of(const struct attention *a, int l, int i, float *out, float *lse)
{
    const size_t first = (size_t)cb_parts_at(a, i)->first;
    struct attn at = cb_parts_attn_of(a, l, i);

    at.out = out + first * (size_t)at.n_head * (size_t)at.hd;
    at.lse = lse ? lse + first * (size_t)at.n_head : NULL;
    return at;
}

/* Attends to part i and joins it to those before it. */
static void attend_join(struct attention *a, int l, int i, float *out, float *lse)
{
    const struct part *p = cb_parts_at(a, i);
    struct parts *x = a->parts;
    struct attn at = call_of(a, l, i, out, lse);
    const int n_head = at.n_head, skips = p->skip <= 1, gated = skips && a->bank->decoding;
    const float weight = logf((float)max_int(1, p->stands_for));

    out = at.out;
    lse = at.lse;
    if (gated) {
        memset(x->skips, 0, (size_t)n_head * sizeof *x->skips);
        gate(a, p, cb_parts_runs(a, i), lse);
    }
    at.out = x->out2;
    at.lse = x->lse2;
    a->dev->ops->attention(a->dev, &at, 1);
    for (int h = 0; gated && h < n_head; h++)
        if (x->skips[h])
            x->lse2[h] = -INFINITY;
    for (int t = 0; p->stands_for > 1 && t < p->n * n_head; t++)
        x->lse2[t] += weight;
    if (skips && !gated)
        leave_out(a, p, lse);
    a->dev->ops->join(a->dev, out, lse, x->out2, x->lse2, p->n * n_head, at.hd);
}

/* Attends to the parts from i on that join nothing, as many as go into one call; returns how many.
 */
static int attend_apart(struct attention *a, int l, int i, float *out, float *lse)
{
    struct attn at[ATTENTION_CALLS];
    int n = 0;

    while (n < ATTENTION_CALLS && i + n < a->parts->n && !cb_parts_at(a, i + n)->joins) {
        at[n] = call_of(a, l, i + n, out, lse);
        n++;
    }
    a->dev->ops->attention(a->dev, at, n);
    return n;
}

/* Attends to the parts of a list in their order. */
static void attend_list(struct attention *a, int l, float *out, float *lse)
{
    for (int i = 0, n; i < a->parts->n; i += n) {
        n = 1;
        if (cb_parts_at(a, i)->joins)
            attend_join(a, l, i, out, lse);
        else
            n = attend_apart(a, l, i, out, lse);
        for (int j = i; j < i + n; j++)
            count_read(a, l, j);
    }
}

/* Where the log-sum-exp of a call goes; NULL: nobody wants it */
static float *lse_of(const struct attention *a, int l, int wanted)
{
    wanted |= a->model->layer[l].sinks != NULL || cb_context_split_joins(a, l);
    for (int i = 0; i < a->parts->n; i++)
        wanted |= a->parts->part[i].joins;
    return wanted ? a->parts->lse : NULL;
}

/* Adds a call to at[n], after others of its family. */
static void add_to_family(struct attn *at, int n, const struct attn *one)
{
    int i = n;

    while (one->family && i && at[i - 1].family != one->family)
        i--;
    i = one->family && i ? i : n;
    memmove(at + i + 1, at + i, (size_t)(n - i) * sizeof *at);
    at[i] = *one;
}

int cb_parts_attend(struct attention_call *call, int n)
{
    struct attn at[ATTENTION_CALLS];
    int n_single = 0;

    for (int i = 0; i < n; i++) {
        struct attention *a = call[i].a;
        call[i].lse = lse_of(a, call[i].c.l, call[i].wants_lse);
        if (is_single(a)) {
            struct attn one = call_of(a, call[i].c.l, 0, call[i].out, call[i].lse);
            one.family = call[i].family;
            add_to_family(at, n_single++, &one);
        }
        count_all_pairs(&call[i]);
    }
    if (n_single)
        call[0].a->dev->ops->attention(call[0].a->dev, at, n_single);
    for (int i = 0; i < n; i++) {
        struct attention *a = call[i].a;
        const struct layer *y = &a->model->layer[call[i].c.l];
        if (is_single(a))
            count_read(a, call[i].c.l, 0);
        else
            attend_list(a, call[i].c.l, call[i].out, call[i].lse);
        if (cb_context_split_joins(a, call[i].c.l))
            TRY(cb_context_split_join(a, &call[i]));
        if (a->parts->n == 1 && a->parts->part[0].dealt)
            TRY(cb_context_split_share_out(a, &call[i]));
        if (y->sinks)
            a->dev->ops->sink(a->dev, call[i].out, call[i].lse, y->sinks, call[i].c.n,
                              a->model->hp.n_head, y->hd);
    }
    return CB_OK;
}
