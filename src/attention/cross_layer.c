/* SPDX-License-Identifier: MIT */
/* cross_layer.c - layers that take the logits of distant tokens from an earlier layer (PoD, Ma et
 * al. 2024, section 2.2). Per KV head, a follower has keys of its own only for the first and the
 * most recent tokens; for those between, its queries and keys are its leader's, its values its own.
 * The parts are joined by their log-sum-exp, which is the paper's gate. A prompt keeps the leader's
 * queries until the block ends; a decoded token leaves its logits. */
#include "cross_layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

struct cross_layer {
    struct kv_run *run;      /* [n_kv] */
    float *logit;            /* [n_head][n_ctx] the leaders', of the token that is decoded */
    float *q;                /* [cap_q][n_head * hd] the leaders' queries of a prompt */
    int cap_q;               /* tokens */
    int32_t *near;           /* [n_kv][n_ctx] */
    float *out, *lse, *lse2; /* [chunk][n_head * hd], 2 x [chunk][n_head] */
    int *skips;              /* [n_head] 1 = the far part is left out */
};

/* What follower kv of layer l reads of its n slots: near are [0, lo) and [hi, n), far those
 * between. */
struct span {
    int lo, hi, n;
};

/* ---- open ---- */

static int any_cross_layer(const struct cb_session *s)
{
    for (int l = 0; l < s->model->hp.n_layer; l++)
        if (cb_cross_layer_is(s, l))
            return 1;
    return 0;
}

int cb_cross_layer_open(struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;
    const size_t ctx = (size_t)s->n_ctx, n = (size_t)s->chunk * (size_t)hp->n_head;
    struct cross_layer *sh;

    if (!any_cross_layer(s))
        return CB_OK;
    if (hp->window)
        return cb_policy_refuse(s->policy, "the model reads only the last %d tokens in every layer",
                                hp->window);
    if (s->kivi_k.bits || s->kivi_v.bits)
        return cb_policy_refuse(s->policy,
                                "not with quantised keys or values (kivi): layers hold keys "
                                "for different tokens");
    sh = s->cross_layer = cb_calloc(1, sizeof *sh);
    if (!sh)
        return CB_ENOMEM;
    /* pages of these come as the context grows */
    sh->run = cb_calloc((size_t)hp->n_kv, sizeof *sh->run);
    sh->logit = cb_alloc_aligned((size_t)hp->n_head * ctx, sizeof *sh->logit);
    sh->near = cb_alloc_aligned((size_t)hp->n_kv * ctx, sizeof *sh->near);
    sh->out = cb_alloc_aligned(n * (size_t)hp->hd, sizeof *sh->out);
    sh->lse = cb_alloc_aligned(n, sizeof *sh->lse);
    sh->lse2 = cb_alloc_aligned(n, sizeof *sh->lse2);
    sh->skips = cb_calloc((size_t)hp->n_head, sizeof *sh->skips);
    return sh->skips && sh->run && sh->logit && sh->near && sh->out && sh->lse && sh->lse2
               ? CB_OK
               : CB_ENOMEM;
}

void cb_cross_layer_close(struct cb_session *s)
{
    struct cross_layer *sh = s->cross_layer;

    if (!sh)
        return;
    free(sh->run);
    free(sh->logit);
    free(sh->q);
    free(sh->near);
    free(sh->out);
    free(sh->lse);
    free(sh->lse2);
    free(sh->skips);
    free(sh);
}

static size_t row_floats(const struct cb_session *s)
{
    return (size_t)s->model->hp.n_head * (size_t)s->model->hp.hd;
}

size_t cb_cross_layer_bytes(const struct cb_session *s, int n_feed, int n_most)
{
    const struct hparams *hp = &s->model->hp;
    const size_t nh = (size_t)hp->n_head, chunk = (size_t)s->chunk;

    if (!s->cross_layer)
        return 0;
    return (nh + (size_t)hp->n_kv) * (size_t)n_most * sizeof(float) +
           ((size_t)n_feed * row_floats(s) + chunk * (row_floats(s) + 2 * nh)) * sizeof(float);
}

void cb_cross_layer_end(struct cb_session *s)
{
    if (!s->cross_layer)
        return;
    free(s->cross_layer->q);
    s->cross_layer->q = NULL;
    s->cross_layer->cap_q = 0;
}

/* Room for the leaders' queries of a prompt of n tokens. */
static int room(struct cb_session *s, int n)
{
    struct cross_layer *sh = s->cross_layer;

    if (n <= sh->cap_q)
        return CB_OK;
    cb_cross_layer_end(s);
    sh->q = cb_alloc_aligned((size_t)n * row_floats(s), sizeof *sh->q);
    if (!sh->q)
        return CB_ENOMEM;
    sh->cap_q = n;
    return CB_OK;
}

/* ---- who reads what ---- */

static int leader(const struct cb_session *s, int l, int kv)
{
    return s->plan[l].read.far_as[kv];
}

static int group_of(const struct cb_session *s)
{
    return s->model->hp.n_head / s->model->hp.n_kv;
}

/* Tokens that the layer reads with its own keys, besides the first. */
static int recent_of(const struct cb_session *s, int l)
{
    const struct read *r = &s->plan[l].read;
    return s->store[l].pos && r->recent_after ? r->recent_after : r->recent;
}

/* First slot of a KV head at or behind position pos. */
static int slot_at(const struct store *st, int kv, int pos)
{
    int lo = 0, hi = st->n[kv];

    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (cb_store_pos(st, kv, mid) < pos)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* As the query at position pos sees it; only the first n slots are before or at it. */
static struct span span_of(const struct cb_session *s, int l, int kv, int pos)
{
    const struct read *r = &s->plan[l].read;
    const struct store *st = &s->store[l];
    struct span x = { .n = st->n[kv] };

    x.lo = slot_at(st, kv, r->sink);
    x.hi = slot_at(st, kv, pos - recent_of(s, l) + 1);
    x.hi = x.hi > x.lo ? x.hi : x.lo;
    return x;
}

static float *logits_of(const struct cb_session *s, int kv)
{
    return s->cross_layer->logit + (size_t)(kv * group_of(s)) * (size_t)s->n_ctx;
}

static void count(struct cb_session *s, int keys, int values, int logits, const struct store *st)
{
    s->kv_read_bytes += (uint64_t)keys * st->row_k + (uint64_t)values * st->row_v +
                        (uint64_t)logits * (uint64_t)group_of(s) * sizeof(float);
}

/* ---- a decoded token ---- */

/* Leaders read all and leave their logits, followers what is near. Returns 1 if anything is far. */
static int decode_near(struct cb_session *s, int l, int pos)
{
    struct cross_layer *sh = s->cross_layer;
    const struct store *st = &s->store[l];
    int any = 0;

    for (int kv = 0; kv < st->n_kv; kv++) {
        const struct span x = span_of(s, l, kv, pos);
        const int follows = leader(s, l, kv) != l && x.hi > x.lo;
        int32_t *near = sh->near + (size_t)kv * (size_t)s->n_ctx;
        sh->run[kv] = cb_store_run(st, kv, 0, x.n);
        const int n = follows ? x.n - (x.hi - x.lo) : x.n;
        count(s, n, n, 0, st);
        any |= follows;
        if (leader(s, l, kv) == l)
            sh->run[kv].logit = logits_of(s, kv);
        if (!follows)
            continue;
        sh->run[kv].idx = near;
        sh->run[kv].n = n;
        for (int i = 0; i < x.lo; i++)
            *near++ = i;
        for (int i = x.hi; i < x.n; i++)
            *near++ = i;
    }
    return any;
}

/* log-sum-exp of a head's far logits */
static double far_lse(const float *x, int n)
{
    double max = -INFINITY, sum = 0;

    for (int j = 0; j < n; j++)
        max = (double)x[j] > max ? (double)x[j] : max;
    for (int j = 0; j < n; j++)
        sum += exp((double)x[j] - max);
    return max + log(sum);
}

/* Whether a query head leaves the far part out: the near part's share is known before its values
 * are read. Returns 1 if all heads of the group do. */
static int gate(struct cb_session *s, int l, int kv, const struct span *x, const float *lse)
{
    const float *logit = logits_of(s, kv) + x->lo;
    int all = 1;

    for (int i = 0; i < group_of(s); i++) {
        const int h = kv * group_of(s) + i;
        const double far = far_lse(logit + (size_t)i * (size_t)s->n_ctx, x->hi - x->lo);
        const double g = 1 / (1 + exp(far - (double)lse[h]));
        s->cross_layer->skips[h] = g >= (double)s->plan[l].read.skip;
        all &= s->cross_layer->skips[h];
    }
    return all;
}

/* Values of what is far, weighed by the leaders' logits. */
static void decode_far(struct cb_session *s, int l, int pos, const struct attn *near)
{
    const struct hparams *hp = &s->model->hp;
    struct cross_layer *sh = s->cross_layer;
    const struct store *st = &s->store[l];
    const int can_skip = s->plan[l].read.skip <= 1;
    struct attn far = *near;

    memset(sh->skips, 0, (size_t)hp->n_head * sizeof *sh->skips);
    for (int kv = 0; kv < st->n_kv; kv++) {
        const struct span x = span_of(s, l, kv, pos);
        sh->run[kv] = cb_store_run(st, kv, x.lo, x.hi);
        sh->run[kv].logit = logits_of(s, kv) + x.lo;
        sh->run[kv].given = 1;
        if (leader(s, l, kv) == l)
            sh->run[kv].n = 0;
        if (can_skip && sh->run[kv].n > 0 && gate(s, l, kv, &x, near->lse))
            sh->run[kv].n = 0;
        if (sh->run[kv].n > 0)
            count(s, 0, x.hi - x.lo, x.hi - x.lo, st);
    }
    far.out = sh->out;
    far.lse = sh->lse2;
    s->dev->ops->attention(s->dev, &far);
    for (int h = 0; h < hp->n_head; h++)
        if (sh->skips[h])
            sh->lse2[h] = -INFINITY;
    s->dev->ops->join(s->dev, near->out, near->lse, sh->out, sh->lse2, hp->n_head, hp->hd);
}

static void decode(struct cb_session *s, int l, const struct attn *at, int pos)
{
    struct attn near = *at;
    const int far = decode_near(s, l, pos);

    near.run = s->cross_layer->run;
    near.lse = at->lse ? at->lse : s->cross_layer->lse;
    near.logit_stride = s->n_ctx;
    s->dev->ops->attention(s->dev, &near);
    if (far)
        decode_far(s, l, pos, &near);
}

/* ---- a prompt ---- */

enum part { LEADERS, RECENT, SINKS, FAR };

/* The runs of one part of leaders or followers, for queries of which the last is at position pos
 * and sees n_less slots less than there are. */
static void prompt_runs(struct cb_session *s, int l, enum part part, int pos, int n_less)
{
    struct kv_run *run = s->cross_layer->run;
    const struct store *st = &s->store[l];

    for (int kv = 0; kv < st->n_kv; kv++) {
        const int lead = leader(s, l, kv), n = st->n[kv] - n_less;
        const struct span x = span_of(s, l, kv, pos);
        run[kv] = (struct kv_run){ .n = 0 };
        if ((lead == l) != (part == LEADERS))
            continue;
        if (part == LEADERS || (part == RECENT && !st->pos))
            run[kv] = cb_store_run(st, kv, 0, n);
        else if (part == RECENT)
            run[kv] = cb_store_run(st, kv, x.hi, n);
        else if (part == SINKS)
            run[kv] = cb_store_run(st, kv, 0, x.lo);
        else {
            run[kv] = cb_store_run(st, kv, x.lo, x.hi);
            run[kv].k = cb_store_run(&s->store[lead], kv, x.lo, x.hi).k;
        }
    }
}

/* One part more of `at`: its queries -> joined to out and lse. */
static void add_part(struct cb_session *s, const struct attn *at, const struct attn *part)
{
    struct attn a = *part;

    a.out = s->cross_layer->out;
    a.lse = s->cross_layer->lse2;
    s->dev->ops->attention(s->dev, &a);
    s->dev->ops->join(s->dev, at->out, at->lse, a.out, a.lse, at->n_tok * at->n_head, at->hd);
}

/* Queries that all have something far; the first is query `from` of the feed, the last is at
 * position pos. One query alone, where slots are not positions. */
static void prompt_far(struct cb_session *s, int l, const struct attn *at, int pos, int from,
                       int n_less)
{
    struct attn a = *at;

    prompt_runs(s, l, LEADERS, pos, n_less);
    s->dev->ops->attention(s->dev, &a); /* nothing for the followers, which come now */
    prompt_runs(s, l, RECENT, pos, n_less);
    a.window = s->store[l].pos ? 0 : recent_of(s, l);
    add_part(s, at, &a);
    prompt_runs(s, l, SINKS, pos, n_less);
    a.window = a.causal = 0;
    add_part(s, at, &a);
    prompt_runs(s, l, FAR, pos, n_less);
    a.causal = at->causal;
    a.q = s->cross_layer->q + (size_t)from * row_floats(s);
    a.q_stride = (int)row_floats(s);
    add_part(s, at, &a);
}

/* The leaders' queries stay for their followers. */
static void keep_queries(struct cb_session *s, int l, const struct attn *at, int from)
{
    const size_t head = (size_t)(group_of(s) * s->model->hp.hd);

    if (l + 1 == s->model->hp.n_layer)
        return;
    for (int kv = 0; kv < s->model->hp.n_kv; kv++)
        for (int i = 0; leader(s, l + 1, kv) == l && i < at->n_tok; i++)
            memcpy(s->cross_layer->q + (size_t)(from + i) * row_floats(s) + (size_t)kv * head,
                   at->q + (size_t)i * (size_t)at->q_stride + (size_t)kv * head,
                   head * sizeof(float));
}

static int all_lead(const struct cb_session *s, int l)
{
    for (int kv = 0; kv < s->model->hp.n_kv; kv++)
        if (leader(s, l, kv) != l)
            return 0;
    return 1;
}

/* Queries i..n-1 of `at`, as an attention of their own. */
static struct attn queries(const struct cb_session *s, const struct attn *at, int i, int n)
{
    struct attn a = *at;

    a.n_tok = n - i;
    a.q += (size_t)i * (size_t)a.q_stride;
    a.out += (size_t)i * row_floats(s);
    a.lse += (size_t)i * (size_t)a.n_head;
    return a;
}

/* The first n queries of a chunk see nothing far. */
static void prompt_near(struct cb_session *s, int l, const struct attn *at, int n)
{
    const struct attn a = queries(s, at, 0, n);

    for (int kv = 0; kv < at->n_kv; kv++)
        s->cross_layer->run[kv] =
            cb_store_run(&s->store[l], kv, 0, s->store[l].n[kv] - at->n_tok + n);
    s->dev->ops->attention(s->dev, &a);
}

static void prompt(struct cb_session *s, int l, const struct attn *at, int pos0)
{
    const struct read *r = &s->plan[l].read;
    const int from = pos0 - s->n_seen, n = at->n_tok; /* query 0 in the feed */
    int first = r->sink + recent_of(s, l) - pos0;     /* query that has something far */
    struct attn a = *at;

    keep_queries(s, l, at, from);
    a.run = s->cross_layer->run;
    a.lse = at->lse ? at->lse : s->cross_layer->lse;
    first = all_lead(s, l) || first > n ? n : first > 0 ? first : 0;
    if (first > 0)
        prompt_near(s, l, &a, first);
    while (first < n) {
        const int end = s->store[l].pos ? first + 1 : n;
        const struct attn b = queries(s, &a, first, end);
        prompt_far(s, l, &b, pos0 + end - 1, from + first, n - end);
        first = end;
    }
}

/* Keys that no later query reads. */
static void drop_keys(struct cb_session *s, int l)
{
    const struct store *st = &s->store[l];
    const int32_t last = cb_store_pos(st, 0, st->n[0] - 1);

    for (int kv = 0; kv < st->n_kv; kv++)
        if (leader(s, l, kv) != l) {
            const struct span x = span_of(s, l, kv, last);
            cb_store_drop_keys(&s->store[l], kv, x.lo, x.hi);
        }
}

int cb_cross_layer_attention(struct cb_session *s, int l, const struct attn *at, int pos0,
                             int pos_end)
{
    if (s->decoding) {
        decode(s, l, at, pos0);
    } else {
        TRY(room(s, pos_end - s->n_seen));
        prompt(s, l, at, pos0);
    }
    drop_keys(s, l);
    return CB_OK;
}

/* ---- memory ---- */

static int followers(const struct cb_session *s, int l)
{
    int n = 0;
    for (int kv = 0; cb_cross_layer_is(s, l) && kv < s->model->hp.n_kv; kv++)
        n += leader(s, l, kv) != l;
    return n;
}

/* Of n tokens that were fed, n_slot are left. */
static int n_far(const struct cb_session *s, int l, int n, int n_slot)
{
    const struct read *r = &s->plan[l].read;
    const int far = n_slot - r->sink - (n_slot == n ? r->recent : r->recent_after);

    return far > 0 && (n_slot == n || r->recent_after) ? far : 0;
}

uint64_t cb_cross_layer_saved(const struct cb_session *s, int l, int n, int n_slot)
{
    return (uint64_t)followers(s, l) * (uint64_t)n_far(s, l, n, n_slot) * s->store[l].row_k;
}

int64_t cb_cross_layer_read(const struct cb_session *s, int l, int n, int n_slot)
{
    return (int64_t)followers(s, l) * n_far(s, l, n, n_slot) *
           (group_of(s) * (int)sizeof(float) - (int)s->store[l].row_k);
}
