/* SPDX-License-Identifier: MIT */
/* parts_attend.c - takes a list of parts: prefetches their rows, attends to each part, joins the
 * results, and counts the rows. */
#include <math.h>
#include <string.h>

#include "bank/store_prefetch.h"
#include "base/err.h"
#include "base/ints.h"
#include "context_split.h"
#include "parts.h"
#include "prefill.h"

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

int cb_parts_left_out(const struct attention *a, int i, int h)
{
    return a->bank->decoding && cb_parts_at(a, i)->skip <= 1 && a->parts->skips[h];
}

/* ---- what is read ---- */

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

/* ---- parts that join ---- */

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
    const int far = lse == x->far_lse;
    const int n_head = at.n_head, skips = p->skip <= 1, gated = skips && a->bank->decoding;
    const float weight = logf((float)max_int(1, p->stands_for));

    out = at.out;
    lse = at.lse;
    if (gated) {
        memset(x->skips, 0, (size_t)n_head * sizeof *x->skips);
        gate(a, p, cb_parts_runs(a, i), lse);
    }
    at.out = far ? x->far_out2 : x->out2;
    at.lse = far ? x->far_lse2 : x->lse2;
    a->dev->ops->attention(a->dev, &at, 1);
    for (int h = 0; gated && h < n_head; h++)
        if (x->skips[h])
            x->lse2[h] = -INFINITY;
    for (int t = 0; p->stands_for > 1 && t < p->n * n_head; t++)
        x->lse2[t] += weight;
    if (skips && !gated)
        leave_out(a, p, lse);
    a->dev->ops->join(a->dev, out, lse, at.out, at.lse, p->n * n_head, at.hd);
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

/* ---- calls ---- */

/* Does the call read one part, with nothing to join? */
static int is_single(const struct attention *a)
{
    return a->parts->n == 1 && !a->parts->part[0].joins;
}

/* Does the host look at what a part that joins has read? */
static int is_looked_at(const struct part *p)
{
    return p->skip <= 1 || p->stands_for > 1;
}

/* Where the log-sum-exp of a call goes; NULL: nobody wants it. host: the caller looks at it */
static float *lse_of(const struct attention *a, int l, int host)
{
    const struct parts *x = a->parts;
    int joins = 0;

    host |= cb_context_split_joins(a, l);
    for (int i = 0; i < x->n; i++) {
        joins |= x->part[i].joins;
        host |= x->part[i].joins && (is_looked_at(&x->part[i]) || !x->far_out2 || !x->far_lse2);
    }
    if (!host && !joins && !a->model->layer[l].sinks)
        return NULL;
    return host || !x->far_lse ? x->lse : x->far_lse;
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
