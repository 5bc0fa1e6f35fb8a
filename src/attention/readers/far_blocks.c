/* SPDX-License-Identifier: MIT */
/* far_blocks.c - three parts. A query reads the last `local` slots as they are. All slots before
 * them have one distance, local - 1: keys that have left the window of every later query are turned
 * to position 0 where they lie, and queries to position local - 1. A query reads the first of these
 * slots, the chosen blocks, and the slots that are not yet in a block. In a prompt, slots leave the
 * window of some queries of a chunk and not of others: their turned keys are a copy, until the
 * chunk has attended.
 *
 * A block is represented, for each query head, by the mean of its keys that had the largest weights
 * while they were near. All of that follows from the slots, their columns, and their number. */
#include <string.h>

#include "attention/parts.h"
#include "attention/reader.h"
#include "attention/state_memory.h"
#include "attention/turned_queries.h"
#include "base/err.h"
#include "base/ints.h"

enum { MANY = CB_STORE_MANY };

/* Slots before position n: the first ones, then blocks up to `end`, then others up to `turned`,
 * then those that the next query sees at their distances */
struct places {
    int sink, n_block, end, turned;
};

struct far_blocks {
    int cap;            /* blocks of a layer */
    int *n_rep;         /* [n_layer] blocks that have a representative */
    float **rep;        /* [n_layer], each [n_head][cap][hd]; NULL: no such layer */
    float *q;           /* [chunk][n_head * hd] turned queries, for the host */
    float *mean;        /* [n_head * hd] of them */
    float *vote;        /* [n_head][cap] */
    float *logit;       /* [n_head][n_ctx] of a decoded token's near slots */
    int32_t *idx;       /* [n_ctx] slots of the far part */
    int32_t *best;      /* [cap] */
    uint8_t *k;         /* [n_kv][chunk] turned keys of slots that leave the window in the chunk */
    float *x, *cs;      /* [MANY][hd], [MANY][n_rot] */
    struct kv_run *run; /* [n_head] */
};

static struct places places_of(const struct far_plan *f, int n)
{
    struct places p = { .sink = max_int(0, min_int(f->sink, n - f->local)) };

    p.n_block = max_int(0, n - f->sink - f->local) / f->block;
    p.end = p.sink + p.n_block * f->block;
    p.turned = max_int(0, n - f->local + 1);
    return p;
}

/* ---- open ---- */

static int fits(const struct attention *a, int l)
{
    const struct far_plan *f = &a->plan[l].far;
    const int window = a->model->layer[l].window, chunk = min_int(f->chunk, a->bank->n_ctx);

    if (chunk > a->chunk)
        return cb_policy_refuse(a->policy,
                                "its prompts choose %d tokens at a time (chunk=%d), which is more "
                                "than the %d that the session processes together",
                                chunk, f->chunk, a->chunk);
    if (window && window < f->local)
        return cb_policy_refuse(a->policy, "local=%d: the model's layers see %d tokens", f->local,
                                window);
    if (cb_bank_has_kivi(a->bank))
        return cb_policy_refuse(a->policy,
                                "not with keys of type kivi: distant keys are turned to another "
                                "position, and their group has no room for it");
    return CB_OK;
}

static int open_layers(struct attention *a, struct far_blocks *x)
{
    const size_t row = cb_attention_row(a), n_layer = (size_t)a->bank->n_layer;

    x->n_rep = cb_state_calloc(x, n_layer, sizeof *x->n_rep);
    x->rep = cb_state_calloc(x, n_layer, sizeof *x->rep);
    if (!x->n_rep || !x->rep)
        return CB_ENOMEM;
    /* memory for these is committed page by page as the context grows */
    for (int l = 0; l < a->bank->n_layer; l++)
        if (cb_reader_state(a, l) == x &&
            !(x->rep[l] = cb_state_alloc(x, row * (size_t)x->cap, sizeof **x->rep)))
            return CB_ENOMEM;
    return CB_OK;
}

static int open(struct attention *a, void *state)
{
    const size_t nh = (size_t)a->model->hp.n_head, n_ctx = (size_t)a->bank->n_ctx;
    const size_t row = cb_attention_row(a), chunk = (size_t)a->chunk;
    struct far_blocks *x = state;

    for (int l = 0; l < a->bank->n_layer; l++)
        if (cb_reader_state(a, l) == x)
            TRY(fits(a, l));
    x->cap = a->bank->n_ctx / a->plan[cb_reader_first(a, x)].far.block + 1;
    TRY(open_layers(a, x));
    x->q = cb_state_alloc(x, chunk * row, sizeof *x->q);
    x->mean = cb_state_alloc(x, row, sizeof *x->mean);
    x->vote = cb_state_alloc(x, nh * (size_t)x->cap, sizeof *x->vote);
    x->logit = cb_state_alloc(x, nh * n_ctx, sizeof *x->logit);
    x->idx = cb_state_alloc(x, n_ctx, sizeof *x->idx);
    x->best = cb_state_alloc(x, (size_t)x->cap, sizeof *x->best);
    x->k = cb_state_alloc(x, (size_t)a->bank->n_kv * chunk, cb_attention_typical(a)->row_k);
    x->x = cb_state_alloc(x, (size_t)MANY * (size_t)a->bank->hd, sizeof *x->x);
    x->cs = cb_state_alloc(x, (size_t)MANY * (size_t)a->model->hp.n_rot, sizeof *x->cs);
    x->run = cb_state_calloc(x, nh, sizeof *x->run);
    return CB_OK;
}

static void clear(struct attention *a, void *state)
{
    struct far_blocks *x = state;

    memset(x->n_rep, 0, (size_t)a->bank->n_layer * sizeof *x->n_rep);
}

/* Its slots are plain rows of all positions. */
static int check(const struct attention *a, int l)
{
    const struct store *st = &a->bank->store[l];
    int plain = !st->pos && !st->prepacker && !st->any_order;

    for (int h = 0; h < st->n_kv; h++)
        plain &= st->n[h] == a->bank->n_seen && !st->mixed[h];
    return plain ? CB_OK : cb_fail(CB_EFORMAT, "its counts of slots contradict its policy");
}

static size_t work_bytes(const struct attention *a, const void *x, int n_feed, int n_most)
{
    const size_t row = cb_attention_row(a), nh = (size_t)a->model->hp.n_head, n = (size_t)n_most;
    size_t floats;

    (void)n_feed;
    floats = (size_t)(a->chunk + 1) * row + (nh + 1) * n +
             (size_t)MANY * (size_t)(a->bank->hd + a->model->hp.n_rot);
    for (int l = 0; l < a->bank->n_layer; l++)
        if (cb_reader_state(a, l) == x) {
            const size_t blocks = (size_t)places_of(&a->plan[l].far, n_most).n_block;
            floats += blocks * (row + (l ? 0 : nh + 1));
        }
    return floats * sizeof(float) +
           (size_t)a->bank->n_kv * (size_t)a->chunk * cb_attention_typical(a)->row_k;
}

/* Tokens of a chunk choose together, the prompt's last one alone. */
static int room(const struct attention *a, int l, int i)
{
    const int chunk = a->plan[l].far.chunk, last = a->bank->n_feed - 1;

    if (i >= last)
        return INT32_MAX;
    return min_int(chunk - i % chunk, last - i);
}

/* ---- turning ---- */

/* Keys of slots from..from+n-1 of a KV head, n <= MANY, turned to position 0 -> x->x */
static void turned_keys(struct attention *a, int l, int kv, int from, int n)
{
    const struct hparams *hp = &a->model->hp;
    const int table = a->model->layer[l].rope;
    struct far_blocks *x = cb_reader_state(a, l);

    cb_store_get_range(&a->bank->store[l], a->dev, kv, 0, from, n, x->x);
    if (table < 0)
        return;
    for (int i = 0; i < n; i++)
        cb_rope_turn(&a->rope[table], -(from + i), x->cs + (size_t)i * (size_t)hp->n_rot);
    a->dev->ops->rope(a->dev, a->model->hp.rope_kind, x->x, n, 1, hp->hd, hp->hd, hp->n_rot, x->cs);
}

/* Turns the keys of slots from..to-1 where they lie. */
static void turn_slots(struct attention *a, int l, int from, int to)
{
    const struct far_blocks *x = cb_reader_state(a, l);
    struct store *st = &a->bank->store[l];
    const size_t hd = (size_t)st->hd;

    for (int h = 0; h < st->n_kv; h++)
        for (int i = from; i < to; i += MANY) {
            const int n = min_int(MANY, to - i);
            turned_keys(a, l, h, i, n);
            for (int j = 0; j < n; j++)
                cb_store_set(st, a->dev, h, 0, i + j, x->x + (size_t)j * hd);
        }
}

/* Turned keys of a KV head's slots from..from+n-1 as rows, beside their values as they lie */
static struct kv_run leaving(struct attention *a, int l, int kv, int from, int n)
{
    const struct far_blocks *x = cb_reader_state(a, l);
    const struct store *st = &a->bank->store[l];
    uint8_t *k = x->k + (size_t)kv * (size_t)a->chunk * st->row_k;

    for (int i = 0; i < n; i += MANY) {
        const int m = min_int(MANY, n - i);
        turned_keys(a, l, kv, from + i, m);
        a->dev->ops->kv_encode(a->dev, st->type_k, x->x, m, st->hd, st->hd,
                               k + (size_t)i * st->row_k);
    }
    return (struct kv_run){ .k = k, .v = cb_store_value(st, kv, from), .n = n };
}

/* ---- representatives ---- */

/* The mean key of a block's `reps` slots from..to-1 with the largest sums in column s; of equal
 * ones the lower slots -> out[hd] */
static void represent(struct attention *a, int l, int kv, const float *s, int from, int to,
                      float *out)
{
    const struct far_plan *f = &a->plan[l].far;
    const int reps = min_int(f->reps, f->block), hd = a->bank->hd;
    const struct far_blocks *own = cb_reader_state(a, l);
    float *x = own->x;
    int32_t *idx = own->idx;

    a->dev->ops->topk(a->dev, s + from, to - from, reps, idx);
    memset(out, 0, (size_t)hd * sizeof *out);
    for (int i = 0; i < reps; i++) {
        cb_store_get(&a->bank->store[l], a->dev, kv, 0, from + idx[i], x);
        for (int c = 0; c < hd; c++)
            out[c] += x[c] / (float)reps;
    }
}

/* Blocks that have none yet get their representatives. */
static void represent_all(struct attention *a, int l, const struct places *p)
{
    const int hd = a->bank->hd, group = cb_attention_group(a), block = a->plan[l].far.block;
    struct far_blocks *x = cb_reader_state(a, l);

    for (int b = x->n_rep[l]; b < p->n_block; b++)
        for (int h = 0; h < a->model->hp.n_head; h++)
            represent(a, l, h / group, cb_store_col(&a->bank->store[l], h / group, h % group),
                      p->sink + b * block, p->sink + (b + 1) * block,
                      x->rep[l] + ((size_t)h * (size_t)x->cap + (size_t)b) * (size_t)hd);
    x->n_rep[l] = max_int(x->n_rep[l], p->n_block);
}

/* ---- choosing ---- */

/* The chunk's mean turned query -> x->mean */
static void average(struct attention *a, int l, const float *q, int n)
{
    const size_t row = cb_attention_row(a);
    struct far_blocks *x = cb_reader_state(a, l);

    cb_device_copy(a->dev, x->q, q, (size_t)n * row * sizeof *x->q);
    memset(x->mean, 0, row * sizeof *x->mean);
    for (int i = 0; i < n; i++)
        for (size_t c = 0; c < row; c++)
            x->mean[c] += x->q[(size_t)i * row + c] / (float)n;
}

/* The k of n blocks whose representatives have the largest products with the mean query, summed
 * over the query heads -> x->best */
static void choose(struct attention *a, int l, int n, int k)
{
    const int nh = a->model->hp.n_head, hd = a->bank->hd;
    struct far_blocks *x = cb_reader_state(a, l);
    struct score sc = { .a = { .n_tok = 1,
                               .n_head = nh,
                               .n_kv = nh,
                               .hd = hd,
                               .scale = 1,
                               .type_k = KV_F32,
                               .type_v = KV_F32,
                               .run = x->run,
                               .q = x->mean,
                               .q_stride = nh * hd },
                        .logit = 1,
                        .out = x->vote,
                        .out_stride = x->cap };

    memset(x->vote, 0, (size_t)nh * (size_t)x->cap * sizeof *x->vote);
    for (int h = 0; h < nh; h++) {
        const float *rep = x->rep[l] + (size_t)h * (size_t)x->cap * (size_t)hd;
        x->run[h] = (struct kv_run){ .k = rep, .v = rep, .n = n };
    }
    a->dev->ops->score(a->dev, &sc);
    for (int h = 1; h < nh; h++)
        for (int b = 0; b < n; b++)
            x->vote[b] += x->vote[(size_t)h * (size_t)x->cap + (size_t)b];
    a->dev->ops->topk(a->dev, x->vote, n, k, x->best);
}

static int put_range(int32_t *idx, int n, int from, int to)
{
    for (int j = from; j < to; j++)
        idx[n++] = j;
    return n;
}

/* The slots of the far part, for queries q[n] -> x->idx, count */
static int far_slots(struct attention *a, int l, const struct places *p, const float *q, int n)
{
    const struct far_plan *f = &a->plan[l].far;
    struct far_blocks *x = cb_reader_state(a, l);
    const int all = p->n_block <= f->k;
    int m;

    if (!all)
        represent_all(a, l, p);
    m = put_range(x->idx, 0, 0, all ? p->end : p->sink);
    if (!all) {
        average(a, l, q, n);
        choose(a, l, p->n_block, f->k);
        for (int i = 0; i < f->k; i++)
            m = put_range(x->idx, m, p->sink + x->best[i] * f->block,
                          p->sink + (x->best[i] + 1) * f->block);
        if (a->bank->decoding)
            a->bank->read_bytes += (uint64_t)p->n_block * cb_attention_row(a) * sizeof(float);
    }
    return put_range(x->idx, m, p->end, p->turned);
}

/* ---- parts ---- */

static int add_far(struct attention *a, const struct chunk *c, const float *q, int n)
{
    const struct far_blocks *x = cb_reader_state(a, c->l);
    struct part p = cb_parts_of(a, c);

    p.q = q;
    p.q_stride = (int)cb_attention_row(a);
    p.causal = p.window = 0;
    p.joins = 1;
    return cb_parts_add_list(a, c, &p, x->idx, n);
}

/* The n slots from `from` on leave the window of the chunk's last n queries one by one. */
static int add_leaving(struct attention *a, const struct chunk *c, const float *q, int from, int n)
{
    struct part p = cb_parts_some(a, c, c->n - n, n);
    struct kv_run *run;

    p.q = q + (size_t)p.first * cb_attention_row(a);
    p.q_stride = (int)cb_attention_row(a);
    p.window = 0;
    p.joins = 1;
    TRY(cb_parts_add(a, &p, &run));
    for (int h = 0; h < a->bank->n_kv; h++)
        run[h] = leaving(a, c->l, h, from, n);
    return CB_OK;
}

static int parts(struct attention *a, const struct chunk *c)
{
    const struct far_plan *f = &a->plan[c->l].far;
    const struct far_blocks *x = cb_reader_state(a, c->l);
    const struct places p = places_of(f, c->pos0);
    const int n_leaving = c->pos0 + c->n - f->local - p.turned;
    struct part near = cb_parts_of(a, c);
    const float *q;

    near.window = n_leaving > 0 ? f->local : 0; /* 0: every query sees all of them */
    near.after = p.turned;
    TRY(cb_parts_add_slots(a, c, &near, p.turned, 0, a->bank->decoding ? x->logit : NULL));
    if (!p.turned && n_leaving <= 0)
        return 1;
    TRY(cb_device_wait(a->dev)); /* the host reads the rows that ops have stored */
    q = cb_turned_queries(a, c, 0, c->pos0 - f->local + 1, 1);
    if (p.turned)
        TRY(add_far(a, c, q, far_slots(a, c->l, &p, q, c->n)));
    if (n_leaving > 0)
        TRY(add_leaving(a, c, q, p.turned, n_leaving));
    return 1;
}

/* Adds the weights of near slots to the columns, and turns the keys that no later query sees at
 * their distances. */
static int attended(struct attention *a, const struct chunk *c, const float *lse)
{
    const struct far_blocks *x = cb_reader_state(a, c->l);
    struct store *st = &a->bank->store[c->l];
    const struct far_plan *f = &a->plan[c->l].far;
    const struct kv_run *run = cb_parts_runs(a, 0);
    const int from = cb_parts_at(a, 0)->after;
    struct score sc = { .a = cb_parts_attn_of(a, c->l, 0),
                        .out = cb_store_col(st, 0, 0) + from,
                        .out_stride = st->cap };

    for (int h = 0; h < st->n_kv; h++) {
        x->run[h] = run[h];
        x->run[h].given = a->bank->decoding;
    }
    sc.a.run = x->run;
    sc.a.lse = (float *)(uintptr_t)lse; /* only read */
    a->dev->ops->score(a->dev, &sc);
    TRY(cb_device_wait(a->dev));
    turn_slots(a, c->l, places_of(f, c->pos0).turned, places_of(f, c->pos0 + c->n).turned);
    return CB_OK;
}

/* ---- what it reads ---- */

/* A token chooses from the blocks of the slots before it, and reads those of k that it chose. */
static uint64_t read_bytes(const struct attention *a, int l, int n, const struct planned *planned,
                           uint64_t *scanned)
{
    const struct far_plan *f = &a->plan[l].far;
    const struct places p = places_of(f, n - 1);
    const int left_out = max_int(0, p.n_block - f->k);
    uint64_t sum = left_out ? (uint64_t)p.n_block * cb_attention_row(a) * sizeof(float) : 0;

    (void)planned, (void)scanned;
    for (int h = 0; h < a->bank->n_kv; h++)
        sum += cb_store_bytes_of(&a->bank->store[l], h, n - left_out * f->block);
    return sum;
}

static int claims(const struct claim *c)
{
    return c->row->far.block > 0;
}

const struct reader cb_reader_far_blocks = {
    .name = "chosen blocks from one distance",
    .traits = READ_JOINS | READ_TURNS | READ_LSE | READ_UNDOES,
    .undraftable = "it measures, drops or merges tokens as they come",
    .no_choice = "its prompts choose blocks of their own",
    .claims = claims,
    .state = sizeof(struct far_blocks),
    .open = open,
    .clear = clear,
    .work_bytes = work_bytes,
    .room = room,
    .parts = parts,
    .attended = attended,
    .read_bytes = read_bytes,
    .check = check,
};
