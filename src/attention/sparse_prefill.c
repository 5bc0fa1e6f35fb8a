/* SPDX-License-Identifier: MIT */
/* sparse_prefill.c - a prompt in chunks, each of which reads itself and a few of the tokens before
 * it. Layers go one after the other, so that what a layer chose for all the chunks is there when
 * those that read it come. What a chunk reads is copied in front of it: one causal run, which a
 * kernel reads as any. */
#include "sparse_prefill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"

enum { BATCH = 128 }; /* queries that choose at a time */

struct prompt {
    struct policy *form;
    struct prompt_plan plan;
    int cap;        /* entries of a KV head below: those chosen, and a chunk */
    uint8_t *k, *v; /* [n_kv][cap] rows */
    struct kv_run *run;
    int32_t *slot;  /* [chunks of the context][k] chosen for each, ascending */
    int n_q;        /* queries that are held */
    float *q, *out; /* [BATCH][n_head * hd] */
    float *lse;     /* [BATCH][n_head] */
    float *vote;    /* [n_ctx] */
    uint64_t bytes;
};

/* ---- open ---- */

/* What the policy's own prompts do must be what a dense one does. */
static int fits(const struct cb_session *s, const struct policy *form)
{
    const char *name = s->policy->m->name;

    if (s->model->hp.window)
        return cb_policy_refuse(form, "the model reads only the last %d tokens in every layer",
                                s->model->hp.window);
    for (int l = 0; l < s->model->hp.n_layer; l++) {
        const struct layer_plan *p = &s->plan[l];
        if (p->kv_of != l || p->raw_keys || p->window || p->read.far_as)
            return cb_policy_refuse(form, "policy %s has a form of its own for prompts", name);
        if ((p->want.when == WHEN_PROMPT || p->want.when == WHEN_ALWAYS) && !p->want.window)
            return cb_policy_refuse(
                form, "policy %s measures every query of a prompt, which must be dense", name);
    }
    return CB_OK;
}

static void *take(struct prompt *p, size_t n, size_t size)
{
    p->bytes += (uint64_t)n * size;
    return cb_alloc_aligned(n, size);
}

static int room(struct cb_session *s, struct prompt *p)
{
    const struct hparams *hp = &s->model->hp;
    const struct store *st = &s->store[0];
    const size_t ctx = (size_t)s->n_ctx, nh = (size_t)hp->n_head, n_kv = (size_t)hp->n_kv;
    const size_t chunks = (ctx + (size_t)p->plan.chunk - 1) / (size_t)p->plan.chunk;
    const size_t most = (size_t)p->plan.k + (size_t)p->plan.chunk;

    p->cap = most < ctx ? (int)most : s->n_ctx;
    p->plan.k = p->plan.k < s->n_ctx ? p->plan.k : s->n_ctx;
    p->k = take(p, n_kv * (size_t)p->cap, st->row_k);
    p->v = take(p, n_kv * (size_t)p->cap, st->row_v);
    p->run = take(p, n_kv, sizeof *p->run);
    p->slot = take(p, chunks * (size_t)p->plan.k, sizeof *p->slot);
    p->q = take(p, BATCH * nh * (size_t)hp->hd, sizeof *p->q);
    p->out = take(p, BATCH * nh * (size_t)hp->hd, sizeof *p->out);
    p->lse = take(p, BATCH * nh, sizeof *p->lse);
    p->vote = take(p, ctx, sizeof *p->vote);
    s->w.bytes += p->bytes;
    return p->k && p->v && p->run && p->slot && p->q && p->out && p->lse && p->vote ? CB_OK
                                                                                    : CB_ENOMEM;
}

static void of_policy(const struct cb_session *s, int *as)
{
    for (int l = 0; l < s->model->hp.n_layer; l++) {
        const struct read *r = &s->plan[l].read;
        as[l] = r->what == READ_AS ? r->as : -1;
    }
    for (int l = 0; l < s->model->hp.n_layer; l++)
        if (as[l] >= 0)
            as[as[l]] = as[l];
}

int cb_prefill_open(struct cb_session *s, const char *spec)
{
    const struct hparams *hp = &s->model->hp;
    const struct shape sh = { hp->n_layer, hp->n_head, hp->n_kv,
                              hp->hd,      s->n_ctx,   s->model->fingerprint };
    struct prompt *p = s->prompt = cb_calloc(1, sizeof *p);

    if (!p || !(p->plan.as = cb_calloc((size_t)hp->n_layer, sizeof *p->plan.as)))
        return CB_ENOMEM;
    TRY(cb_prompt_open(spec ? spec : "dense", &sh, &p->form));
    if (!p->form->m->prompt)
        return CB_OK;
    TRY(fits(s, p->form));
    of_policy(s, p->plan.as);
    TRY(p->form->m->prompt(p->form, &sh, &p->plan));
    return room(s, p);
}

void cb_prefill_close(struct cb_session *s)
{
    struct prompt *p = s->prompt;

    if (!p)
        return;
    cb_policy_close(p->form);
    free(p->plan.as);
    free(p->k);
    free(p->v);
    free(p->run);
    free(p->slot);
    free(p->q);
    free(p->out);
    free(p->lse);
    free(p->vote);
    free(p);
}

/* ---- chunks ---- */

int cb_prefill_is(const struct cb_session *s)
{
    return s->prompt->plan.chunk > 0;
}

int cb_prefill_room(const struct cb_session *s, int i)
{
    const int c = s->prompt->plan.chunk;
    return c ? c - i % c : INT32_MAX;
}

/* Position where the chunk that holds pos begins. */
static int begin_of(const struct cb_session *s, int pos)
{
    return pos - (pos - s->n_seen) % s->prompt->plan.chunk;
}

/* Are the slots of layer l the positions up to `end`, each a row? What a policy dropped cannot be
 * chosen, so what is left is read whole. */
static int whole(const struct cb_session *s, int l, int end)
{
    const struct store *st = &s->store[l];
    return !st->pos && st->n[0] == end && !cb_kivi_any(st);
}

/* Do the tokens at position pos.. (the last is before `end`) of layer l read a part of those before
 * their chunk? */
static int partly(const struct cb_session *s, int l, int pos, int end)
{
    const struct prompt *p = s->prompt;
    const int as = p->plan.as[l];

    if (!p->plan.chunk || s->decoding || as < 0 || as == l)
        return 0;
    return begin_of(s, pos) > p->plan.k && whole(s, l, end) && whole(s, as, s->n_seen + s->n_feed);
}

int cb_prefill_partly(const struct cb_session *s, int l)
{
    const int end = s->n_seen + s->n_feed;
    return partly(s, l, end - 1, end);
}

static int32_t *slots_for(const struct cb_session *s, int begin)
{
    const struct prompt *p = s->prompt;
    return p->slot + (size_t)((begin - s->n_seen) / p->plan.chunk) * (size_t)p->plan.k;
}

/* ---- reading ---- */

struct copy {
    struct cb_session *s;
    int l, begin, from, to; /* the chunk; of it, the slots to copy */
};

/* One KV head's keys or values: those chosen, when the chunk begins, and slots from..to-1 behind.
 */
static void copy_item(void *ctx, int i, int thread)
{
    const struct copy *c = ctx;
    const struct prompt *p = c->s->prompt;
    const struct store *st = &c->s->store[c->l];
    const int kv = i / 2, v = i % 2;
    const size_t bytes = v ? st->row_v : st->row_k;
    const int32_t *slot = slots_for(c->s, c->begin);
    uint8_t *to = (v ? p->v : p->k) + (size_t)kv * (size_t)p->cap * bytes;

    (void)thread;
    for (int j = 0; c->from == c->begin && j < p->plan.k; j++)
        memcpy(to + (size_t)j * bytes, cb_store_row(st, kv, v, slot[j]), bytes);
    memcpy(to + (size_t)(p->plan.k + c->from - c->begin) * bytes, cb_store_row(st, kv, v, c->from),
           (size_t)(c->to - c->from) * bytes);
}

int cb_prefill_runs(struct cb_session *s, int l, int pos0, int n, struct kv_run *run)
{
    struct prompt *p = s->prompt;
    const struct store *st = &s->store[l];
    struct copy c = { s, l, 0, pos0, pos0 + n };

    if (!partly(s, l, pos0, pos0 + n))
        return 0;
    c.begin = begin_of(s, pos0);
    cb_par_for(s->dev->par, 2 * st->n_kv, copy_item, &c);
    for (int h = 0; h < st->n_kv; h++)
        run[h] = (struct kv_run){ .k = p->k + (size_t)h * (size_t)p->cap * st->row_k,
                                  .v = p->v + (size_t)h * (size_t)p->cap * st->row_v,
                                  .n = p->plan.k + pos0 + n - c.begin };
    return 1;
}

/* ---- choosing ---- */

/* The votes of the queries that are held: of the n tokens before the chunk, each query's largest
 * score of any head (a softmax over these tokens alone). */
static void count_votes(struct cb_session *s, int l, int n)
{
    const struct hparams *hp = &s->model->hp;
    struct prompt *p = s->prompt;
    struct score sc = { .a = { .n_tok = p->n_q,
                               .n_head = hp->n_head,
                               .n_kv = hp->n_kv,
                               .hd = hp->hd,
                               .scale = 1.0f / sqrtf((float)hp->hd),
                               .type_k = s->store[l].type_k,
                               .type_v = s->store[l].type_v,
                               .run = p->run,
                               .q = p->q,
                               .q_stride = hp->n_head * hp->hd,
                               .out = p->out,
                               .lse = p->lse },
                        .peak = 1,
                        .out = p->vote };

    if (!p->n_q)
        return;
    for (int h = 0; h < hp->n_kv; h++)
        p->run[h] = cb_store_run(&s->store[l], h, 0, n);
    s->dev->ops->attention(s->dev, &sc.a);
    s->dev->ops->score(s->dev, &sc);
    p->n_q = 0;
}

void cb_prefill_chose(struct cb_session *s, int l, const float *q, int stride, int n, int pos0,
                      int pos_end)
{
    struct prompt *p = s->prompt;
    const size_t row = (size_t)s->model->hp.n_head * (size_t)s->model->hp.hd;
    int begin, end;

    if (!p->plan.chunk || s->decoding || p->plan.as[l] != l)
        return;
    begin = begin_of(s, pos0);
    end = min_int(begin + p->plan.chunk, pos_end);
    if (begin <= p->plan.k || !whole(s, l, pos0 + n))
        return;
    if (pos0 == begin) {
        memset(p->vote, 0, (size_t)begin * sizeof *p->vote);
        p->n_q = 0;
    }
    for (int i = 0; i < n; i++) {
        if ((end - 1 - pos0 - i) % p->plan.stride)
            continue;
        memcpy(p->q + (size_t)p->n_q * row, q + (size_t)i * (size_t)stride, row * sizeof *q);
        if (++p->n_q == BATCH)
            count_votes(s, l, begin);
    }
    if (pos0 + n < end)
        return;
    count_votes(s, l, begin);
    s->dev->ops->topk(s->dev, p->vote, begin, p->plan.k, slots_for(s, begin));
}
