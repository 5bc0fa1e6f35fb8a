/* SPDX-License-Identifier: MIT */
/* sparse_prefill.c - a prompt in chunks, each of which reads itself and a few selected tokens
 * before it. Prefill goes layer by layer, so what a layer chose for every chunk is ready when later
 * layers read it. The chosen rows are copied in front of the chunk's own: one causal run, which
 * kernels read like any other. */
#include <string.h>

#include "attention/parts.h"
#include "attention/prefill.h"
#include "attention/state_memory.h"
#include "base/err.h"
#include "base/ints.h"

enum { BATCH = 128 }; /* queries that vote at a time */

struct sparse_prefill {
    struct prompt_plan plan; /* `as` is the session's */
    int cap;                 /* entries of a KV head in k and v: chosen slots, then a chunk */
    uint8_t *k, *v;          /* [n_kv][cap] rows */
    struct kv_run *run;
    int32_t *slot;  /* [chunks of the context][k] slots chosen for each, ascending */
    int *by;        /* [chunks of the context] the layer that chose last; -1: none */
    int n_q;        /* queries held in q */
    float *q, *out; /* [BATCH][n_head * hd] */
    float *lse;     /* [BATCH][n_head] */
    float *vote;    /* [n_ctx] */
};

/* ---- open ---- */

static int make_room(struct attention *a, struct sparse_prefill *p)
{
    const struct hparams *hp = &a->model->hp;
    const struct store *st = cb_attention_typical(a);
    const size_t ctx = (size_t)a->bank->n_ctx, nh = (size_t)hp->n_head, n_kv = (size_t)hp->n_kv;
    const size_t chunks = (ctx + (size_t)p->plan.chunk - 1) / (size_t)p->plan.chunk;
    const size_t most = (size_t)p->plan.k + (size_t)p->plan.chunk;

    p->cap = most < ctx ? (int)most : a->bank->n_ctx;
    p->plan.k = p->plan.k < a->bank->n_ctx ? p->plan.k : a->bank->n_ctx;
    p->k = cb_state_alloc(p, n_kv * (size_t)p->cap, st->row_k);
    p->v = cb_state_alloc(p, n_kv * (size_t)p->cap, st->row_v);
    p->run = cb_state_alloc(p, n_kv, sizeof *p->run);
    p->slot = cb_state_alloc(p, chunks * (size_t)p->plan.k, sizeof *p->slot);
    p->by = cb_state_alloc(p, chunks, sizeof *p->by);
    p->q = cb_state_device(p, a->dev, BATCH * nh * (size_t)hp->hd, sizeof *p->q);
    p->out = cb_state_alloc(p, BATCH * nh * (size_t)hp->hd, sizeof *p->out);
    p->lse = cb_state_alloc(p, BATCH * nh, sizeof *p->lse);
    p->vote = cb_state_alloc(p, ctx, sizeof *p->vote);
    return cb_state_status(p);
}

static int open(struct attention *a, void *state)
{
    int *as = a->prompt.plan.as;
    struct sparse_prefill *p = state;

    p->plan = a->prompt.plan;
    for (int l = 0; l < a->bank->n_layer; l++) /* windows differ: the layer reads all */
        if (as[l] >= 0 && cb_attention_window(a, l) != cb_attention_window(a, as[l]))
            as[l] = -1;
    return make_room(a, p);
}

/* ---- chunks ---- */

static struct sparse_prefill *sparse_of(const struct attention *a)
{
    return a->prompt.x;
}

static int room(const struct attention *a, int i)
{
    const int c = sparse_of(a)->plan.chunk;
    return c - i % c;
}

/* Position where the chunk that holds pos begins. */
static int begin_of(const struct attention *a, int pos)
{
    return pos - (pos - a->bank->n_seen) % sparse_of(a)->plan.chunk;
}

/* The candidates of the chunk at position `begin`: the tokens before it that all of its queries
 * see. Returns the first one's position; the candidates end before `begin`. */
static int first_candidate(const struct attention *a, int l, int begin)
{
    const int window = cb_attention_window(a, l), c = sparse_of(a)->plan.chunk;
    return window && begin + c > window ? min_int(begin, begin + c - window) : 0;
}

/* Are there more candidates than slots to choose? If not, the chunk reads all of them. */
static int selects(const struct attention *a, int l, int begin)
{
    return begin - first_candidate(a, l, begin) > sparse_of(a)->plan.k;
}

static int chunk_of(const struct attention *a, int begin)
{
    return (begin - a->bank->n_seen) / sparse_of(a)->plan.chunk;
}

/* Do the tokens of layer l from position pos on (the last is before `end`) read only selected
 * tokens before their chunk? */
static int partly(const struct attention *a, int l, int pos, int end)
{
    const struct sparse_prefill *p = sparse_of(a);
    const int as = p->plan.as[l];

    if (a->bank->decoding || as < 0 || as == l)
        return 0;
    return p->by[chunk_of(a, begin_of(a, pos))] == as && cb_store_is_whole(&a->bank->store[l], end);
}

static int partly_at_end(const struct attention *a, int l)
{
    const int end = a->bank->n_seen + a->bank->n_feed;
    return partly(a, l, end - 1, end);
}

static int32_t *slots_for(const struct attention *a, int begin)
{
    const struct sparse_prefill *p = sparse_of(a);
    return p->slot + (size_t)chunk_of(a, begin) * (size_t)p->plan.k;
}

/* ---- reading ---- */

struct copy {
    struct attention *a;
    int l, begin, from, to; /* the chunk's position; its slots to copy */
};

/* Copies one KV head's keys or values: the chosen slots when the chunk begins, then slots
 * from..to-1. */
static void copy_item(void *ctx, int i, int thread)
{
    const struct copy *c = ctx;
    const struct sparse_prefill *p = sparse_of(c->a);
    const struct store *st = &c->a->bank->store[c->l];
    const int kv = i / 2, v = i % 2;
    const size_t bytes = v ? st->row_v : st->row_k;
    const int32_t *slot = slots_for(c->a, c->begin);
    uint8_t *to = (v ? p->v : p->k) + (size_t)kv * (size_t)p->cap * bytes;

    (void)thread;
    for (int j = 0; c->from == c->begin && j < p->plan.k; j++)
        memcpy(to + (size_t)j * bytes, cb_store_row(st, kv, v, slot[j]), bytes);
    memcpy(to + (size_t)(p->plan.k + c->from - c->begin) * bytes, cb_store_row(st, kv, v, c->from),
           (size_t)(c->to - c->from) * bytes);
}

static int parts(struct attention *a, const struct chunk *c)
{
    struct sparse_prefill *p = sparse_of(a);
    const struct store *st = &a->bank->store[c->l];
    const int end = c->pos0 + c->n;
    struct part part = cb_parts_of(a, c);
    struct copy copy = { a, c->l, 0, c->pos0, end };
    struct kv_run *run;

    if (!partly(a, c->l, c->pos0, end))
        return 0;
    copy.begin = begin_of(a, c->pos0);
    TRY(cb_device_wait(a->dev)); /* for the chunk's rows */
    cb_par_for(a->dev->par, 2 * st->n_kv, copy_item, &copy);
    part.slot = slots_for(a, copy.begin);
    part.n_slot = p->plan.k;
    part.after = copy.begin;
    part.window = 0; /* every query sees all candidates and the chunk up to itself */
    TRY(cb_parts_add(a, &part, &run));
    for (int h = 0; h < st->n_kv; h++)
        run[h] = (struct kv_run){ .k = p->k + (size_t)h * (size_t)p->cap * st->row_k,
                                  .v = p->v + (size_t)h * (size_t)p->cap * st->row_v,
                                  .n = p->plan.k + end - copy.begin };
    return 1;
}

/* ---- choosing ---- */

/* Adds the votes of the held queries: for each candidate, a query's largest attention score of any
 * head (a softmax over the candidates). */
static void count_votes(struct attention *a, int l, int begin)
{
    struct sparse_prefill *p = sparse_of(a);
    const struct store *st = &a->bank->store[l];
    const int first = first_candidate(a, l, begin);
    struct score sc = { .a = cb_parts_attn(a, l), .peak = 1, .out = p->vote + first };

    if (!p->n_q)
        return;
    for (int h = 0; h < st->n_kv; h++)
        p->run[h] = cb_store_run(st, h, first, begin);
    sc.a.n_tok = p->n_q;
    sc.a.causal = sc.a.window = 0;
    sc.a.run = p->run;
    sc.a.q = p->q;
    sc.a.out = p->out;
    sc.a.lse = p->lse;
    a->dev->ops->attention(a->dev, &sc.a, 1);
    a->dev->ops->score(a->dev, &sc);
    p->n_q = 0;
}

/* A choosing layer makes its choice. */
static void attended(struct attention *a, const struct chunk *c)
{
    struct sparse_prefill *p = sparse_of(a);
    const size_t row = cb_attention_row(a);
    int begin, end, first;

    if (a->bank->decoding || p->plan.as[c->l] != c->l)
        return;
    begin = begin_of(a, c->pos0);
    end = min_int(begin + p->plan.chunk, c->pos_end);
    first = first_candidate(a, c->l, begin);
    if (c->pos0 == begin)
        p->by[chunk_of(a, begin)] = -1;
    if (!selects(a, c->l, begin) || !cb_store_is_whole(&a->bank->store[c->l], c->pos0 + c->n))
        return;
    if (c->pos0 == begin) {
        memset(p->vote, 0, (size_t)begin * sizeof *p->vote);
        p->n_q = 0;
    }
    for (int i = 0; i < c->n; i++) {
        if ((end - 1 - c->pos0 - i) % p->plan.stride)
            continue;
        cb_device_copy(a->dev, p->q + (size_t)p->n_q * row, c->q + (size_t)i * (size_t)c->stride,
                       row * sizeof *c->q);
        if (++p->n_q == BATCH)
            count_votes(a, c->l, begin);
    }
    if (c->pos0 + c->n < end)
        return;
    count_votes(a, c->l, begin);
    a->dev->ops->topk(a->dev, p->vote + first, begin - first, p->plan.k, slots_for(a, begin));
    for (int j = 0; first && j < p->plan.k; j++)
        slots_for(a, begin)[j] += first;
    p->by[chunk_of(a, begin)] = c->l;
}

const struct prefill cb_prefill_chunks = {
    .copies = 1,
    .state = sizeof(struct sparse_prefill),
    .open = open,
    .room = room,
    .parts = parts,
    .attended = attended,
    .partly = partly_at_end,
};
