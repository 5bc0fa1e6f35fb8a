/* SPDX-License-Identifier: MIT */
/* block_prefill.c - before a chunk attends, each query head chooses, for each block of its queries,
 * the blocks of tokens that they read. Blocks begin at multiples of 128 slots, as the kernels' do.
 * Every query head has a list of its own, so attention goes head by head.
 *
 * A sample of the other blocks may stand for them: one token in `sample`, drawn for each head and
 * block of queries, with the weight of all. So what is left out adds to the softmax's sum and to
 * the values without a bias, where it is spread over many tokens. */
#include "block_prefill.h"

#include <stdlib.h>
#include <string.h>

#include "attention/parts.h"
#include "attention/prefill.h"
#include "attention/state_memory.h"
#include "bank/store_prepack.h"
#include "base/err.h"
#include "base/ints.h"
#include "block_patterns.h"
#include "device/prompt_blocks.h"
#include "device/sketch.h"
#include "packed_copy.h"

enum { BLOCK = KV_PREPACK, SINK = 4 }; /* SINK: outliers that sketches leave out of their range */

struct block_prefill {
    struct block_plan plan;
    int n_row;           /* most blocks of queries in a chunk */
    int n_col;           /* most blocks of tokens */
    float *mass;         /* [n_head][n_row][n_col] what is estimated to be in a block */
    struct found *found; /* the same, to be sorted */
    uint8_t *reads;      /* the same: 1 = read */
    struct attn_blocks blocks;
    /* Sketched keys of the layer that the prompt goes through: NULL, or [n_kv] heads */
    uint8_t *sketch;
    size_t head_bytes;
    int sketched;             /* blocks */
    uint8_t *row;             /* [BLOCK] keys of a prepacked block, as rows */
    struct packed_copy *copy; /* NULL: blocks are read where they are stored */
    /* Of tokens outside the blocks read, for each head and row: NULL, or [n_head][n_row][n_sample]
     */
    int32_t *sample;
    int *sampled; /* how many */
    int n_sample; /* most of them */
    /* NULL: blocks are chosen by what is estimated to be in them */
    struct block_patterns *patterns;
};

/* ---- open ---- */

static int open_sketches(const struct attention *a, struct block_prefill *p)
{
    const struct bank *b = a->bank;

    p->head_bytes = (size_t)p->n_col * cb_sketch_bytes(p->plan.bits, b->hd);
    p->sketch = cb_state_alloc(p, (size_t)b->n_kv, p->head_bytes);
    p->row = cb_state_alloc(p, BLOCK, cb_kv_row_bytes(b->type_k, b->hd));
    return cb_state_status(p);
}

static int open(struct attention *a, void *state)
{
    const struct policy *form = a->prompt.form;
    const struct block_plan *plan = &a->prompt.plan.blocks;
    struct block_prefill *p = state;
    const int n_ctx = a->bank->n_ctx, least = plan->chunk ? plan->chunk : BLOCK;
    size_t n;

    if (a->dev->ops->memory || !a->dev->ops->block_mass)
        return cb_policy_refuse(form, "not on device %s", a->dev->name);
    if (a->chunk < least && a->chunk < n_ctx)
        return cb_policy_refuse(form, "needs chunks of %d tokens at least, not %d", least,
                                a->chunk);
    if (a->dev->ops->reserve_blocks)
        TRY(a->dev->ops->reserve_blocks(a->dev, a->model->hp.n_head, a->model->hp.hd_max, n_ctx));
    p->plan = *plan;
    a->prompt.joins = plan->rule == BLOCKS_BY_PATTERNS || plan->sample;
    p->n_row = a->chunk / BLOCK + 1;
    p->n_col = n_ctx / BLOCK + 1;
    n = (size_t)a->model->hp.n_head * (size_t)p->n_row * (size_t)p->n_col;
    p->mass = cb_state_alloc(p, n, sizeof *p->mass);
    p->found = cb_state_alloc(p, n, sizeof *p->found);
    p->reads = cb_state_alloc(p, n, sizeof *p->reads);
    if (!p->mass || !p->found || !p->reads)
        return CB_ENOMEM;
    TRY(cb_packed_copy_open(a, p, &p->copy));
    if (plan->rule == BLOCKS_BY_PATTERNS)
        return cb_block_patterns_open(a, p, plan, &p->patterns);
    if (plan->sample) {
        p->n_sample = p->n_col * (BLOCK / plan->sample);
        p->sample =
            cb_state_alloc(p, n / (size_t)p->n_col * (size_t)p->n_sample, sizeof *p->sample);
        p->sampled = cb_state_alloc(p, n / (size_t)p->n_col, sizeof *p->sampled);
        if (!p->sample || !p->sampled)
            return CB_ENOMEM;
    }
    return plan->bits ? open_sketches(a, p) : CB_OK;
}

static struct block_prefill *blocks_of(const struct attention *a)
{
    return a->prompt.x;
}

/* Chunks end with blocks. */
static int room(const struct attention *a, int i)
{
    const int asked = blocks_of(a)->plan.chunk, n = asked ? asked : a->chunk / BLOCK * BLOCK;
    return n ? n - (a->bank->n_seen + i) % n : INT32_MAX;
}

/* ---- choosing ---- */

/* Is layer l one of the last ones, which read the same blocks whatever they hold? */
static int is_upper(const struct attention *a, int l)
{
    return l >= a->bank->n_layer - blocks_of(a)->plan.n_upper;
}

/* May the tokens of layer l before `end`, the last of a chunk, choose blocks? */
static int may_choose(const struct attention *a, int l, int end)
{
    return !a->bank->decoding && (blocks_of(a)->plan.keep < 1 || is_upper(a, l)) &&
           !cb_attention_window(a, l) && cb_store_is_whole(&a->bank->store[l], end);
}

/* Do they? The first block and their own are read in any case. */
static int chooses(const struct attention *a, int l, int end)
{
    return may_choose(a, l, end) && end > 2 * BLOCK && end >= blocks_of(a)->plan.least;
}

static int partly(const struct attention *a, int l)
{
    return chooses(a, l, a->bank->n_seen + a->bank->n_feed);
}

/* Sketches n blocks of a KV head from block b on. */
static void sketch(struct attention *a, const struct store *st, int kv, int b, int n)
{
    const struct block_prefill *p = blocks_of(a);
    const void *keys = cb_store_key_block(st, kv, b, p->row);

    a->dev->ops->sketch(a->dev, st->type_k, keys, n, st->hd, p->plan.bits, b ? 0 : SINK,
                        p->sketch + (size_t)kv * p->head_bytes +
                            (size_t)b * cb_sketch_bytes(p->plan.bits, st->hd));
}

/* Sketches the blocks of c's layer that have none: whole ones up to the chunk's end. Layers share
 * the memory, since a prompt goes through one after the other. */
static void sketch_new(struct attention *a, const struct chunk *c)
{
    struct block_prefill *p = blocks_of(a);
    const struct store *st = &a->bank->store[c->l];
    const int end = (c->pos0 + c->n) / BLOCK;

    while (p->sketched < end) {
        const int n = p->sketched * BLOCK < st->prepacked ? 1 : end - p->sketched;
        for (int kv = 0; kv < st->n_kv; kv++)
            sketch(a, st, kv, p->sketched, n);
        p->sketched += n;
    }
}

static void estimate(struct attention *a, const struct chunk *c)
{
    const struct block_prefill *p = blocks_of(a);
    const struct attn at = cb_parts_attn(a, c->l);
    struct kv_run *run = cb_parts_runs(a, 0);
    const struct block_mass m = { .n_tok = c->n,
                                  .n_head = at.n_head,
                                  .n_kv = at.n_kv,
                                  .hd = at.hd,
                                  .first = c->pos0,
                                  .stride = p->plan.stride,
                                  .scale = at.scale,
                                  .type_k = at.type_k,
                                  .run = run,
                                  .q = c->q,
                                  .q_stride = c->stride,
                                  .bits = p->plan.bits,
                                  .sketch = p->sketch,
                                  .head_bytes = p->head_bytes,
                                  .out = p->mass,
                                  .n_row = p->blocks.n_row,
                                  .n_col = p->blocks.n_col };

    for (int h = 0; h < at.n_kv; h++)
        run[h] = cb_store_run(&a->bank->store[c->l], h, 0, c->pos0 + c->n);
    a->dev->ops->block_mass(a->dev, &m);
}

static int by_mass(const void *x, const void *y)
{
    const struct found *a = x, *b = y;
    return a->mass != b->mass ? (a->mass < b->mass) - (a->mass > b->mass) : a->at - b->at;
}

void cb_block_prefill_mark(const float *mass, int own, double keep, struct found *found,
                           uint8_t *reads)
{
    double all = 0, sum = 0;
    int n = 0;

    for (int j = 0; j <= own; j++) {
        all += (double)mass[j];
        if (j && j < own)
            found[n++] = (struct found){ mass[j], j };
    }
    reads[0] = reads[own] = 1;
    sum = (double)mass[0] + (own ? (double)mass[own] : 0);
    qsort(found, (size_t)n, sizeof *found, by_mass);
    for (int i = 0; i < n && sum < keep * all; i++) {
        reads[found[i].at] = 1;
        sum += (double)found[i].mass;
    }
}

int cb_block_prefill_sampled(int own, int h, int first, int n)
{
    uint32_t x = ((uint32_t)own * 251 + (uint32_t)h) * 0x9e3779b1U + (uint32_t)first;

    x = (x ^ x >> 16) * 0x7feb352dU;
    x = (x ^ x >> 15) * 0x846ca68bU;
    return first + (int)((x ^ x >> 16) & (uint32_t)(n - 1));
}

/* Samples the blocks before `own` that reads[] leaves out -> slot[]; their number */
static int sample(const struct block_plan *plan, const uint8_t *reads, int own, int h,
                  int32_t *slot)
{
    int n = 0;

    for (int b = 0; b < own; b++)
        for (int j = 0; !reads[b] && j < BLOCK; j += plan->sample)
            slot[n++] = cb_block_prefill_sampled(own, h, b * BLOCK + j, plan->sample);
    return n;
}

struct marking {
    const struct block_prefill *p;
    int upper; /* 1: the layer does not choose */
    int first; /* the chunk's first block */
    int whole; /* blocks of queries from here on read everything */
};

static void mark_item(void *ctx, int i, int thread)
{
    const struct marking *m = ctx;
    const struct block_prefill *p = m->p;
    const size_t at = (size_t)i * (size_t)p->blocks.n_col;
    const int own = m->first + i % p->blocks.n_row;

    (void)thread;
    memset(p->reads + at, 0, (size_t)p->blocks.n_col);
    if (own >= m->whole)
        memset(p->reads + at, 1, (size_t)own + 1);
    else if (m->upper)
        p->reads[at] = p->reads[at + (size_t)own] = p->reads[at + (size_t)max_int(own - 1, 0)] = 1;
    else
        cb_block_prefill_mark(p->mass + at, own, p->plan.keep, p->found + at, p->reads + at);
    if (p->sample)
        p->sampled[i] = 0;
    if (p->sample && !m->upper)
        p->sampled[i] = sample(&p->plan, p->reads + at, own, i / p->blocks.n_row,
                               p->sample + (size_t)i * (size_t)p->n_sample);
}

/* Marks the blocks that chunk c reads. */
static void choose(struct attention *a, const struct chunk *c)
{
    struct block_prefill *p = blocks_of(a);
    const int end = a->bank->n_seen + a->bank->n_feed; /* of the prompt */
    struct marking m = { p, is_upper(a, c->l), c->pos0 / BLOCK, INT32_MAX };

    if (p->plan.last)
        m.whole = max_int(0, end - p->plan.last) / BLOCK;

    if (p->patterns) {
        cb_block_patterns_choose(a, p->patterns, c, &p->blocks, p->reads);
        return;
    }
    if (!m.upper)
        estimate(a, c);
    cb_par_for(a->dev->par, a->model->hp.n_head * p->blocks.n_row, mark_item, &m);
}

/* The slots that head h's queries of row r of the chunk's blocks read besides -> *idx; how many */
static int columns(const struct block_prefill *p, int h, int r, const int32_t **idx)
{
    const int i = h * p->blocks.n_row + r;

    if (p->patterns)
        return cb_block_patterns_columns(p->patterns, h, r, idx);
    *idx = p->sample + (size_t)i * (size_t)p->n_sample;
    return p->sampled[i];
}

/* Adds them. */
static int add_columns(struct attention *a, const struct chunk *c, int r)
{
    const struct block_prefill *p = blocks_of(a);
    const struct store *st = &a->bank->store[c->l];
    const int begin = max_int(0, r * BLOCK - p->blocks.first), n_head = a->model->hp.n_head;
    const int32_t *idx;
    struct part part = cb_parts_of(a, c);
    struct kv_run *run;
    int any = 0;

    for (int h = 0; h < n_head; h++)
        any |= columns(p, h, r, &idx);
    if (!any)
        return CB_OK;
    part.first = begin;
    part.n = min_int(c->n, (r + 1) * BLOCK - p->blocks.first) - begin;
    part.q = c->q + (size_t)begin * (size_t)c->stride;
    part.causal = 0;
    part.by_head = part.joins = 1;
    part.stands_for = p->plan.sample;
    TRY(cb_parts_add(a, &part, &run));
    for (int h = 0; h < n_head; h++) {
        run[h] = cb_store_run(st, h / cb_attention_group(a), 0, st->n[0]);
        run[h].n = columns(p, h, r, &idx);
        run[h].idx = idx;
    }
    return CB_OK;
}

static void stored(struct attention *a, const struct chunk *c)
{
    struct block_prefill *p = blocks_of(a);
    struct store *st = &a->bank->store[c->l];
    const int begin = a->bank->n_seen;

    if (a->bank->decoding)
        return;
    if (st->n[0] == begin + c->n) { /* the first chunk of the prompt */
        p->sketched = 0;
        cb_packed_copy_begin(p->copy);
        if (p->patterns)
            cb_block_patterns_begin(p->patterns);
    }
    if (a->prompt.joins && chooses(a, c->l, st->n[0])) /* columns are read row by row */
        cb_store_unpack(st, 0, st->prepacked);
}

static int parts(struct attention *a, const struct chunk *c)
{
    struct block_prefill *p = blocks_of(a);
    const struct store *st = &a->bank->store[c->l];
    const int end = c->pos0 + c->n;
    struct part part = cb_parts_of(a, c);
    struct kv_run *run;
    int copied;

    if (p->sketch && may_choose(a, c->l, end) && !is_upper(a, c->l))
        sketch_new(a, c);
    if (!chooses(a, c->l, end))
        return 0;
    part.by_head = 1;
    part.blocks = &p->blocks;
    TRY(cb_parts_add(a, &part, &run));
    p->blocks = (struct attn_blocks){ .reads = p->reads,
                                      .first = c->pos0 % BLOCK,
                                      .n_row = (end + BLOCK - 1) / BLOCK - c->pos0 / BLOCK,
                                      .n_col = (end + BLOCK - 1) / BLOCK };
    choose(a, c);
    copied = p->copy && !st->prepacked;
    if (copied)
        cb_packed_copy_follow(p->copy, st, end);
    for (int h = 0; h < a->model->hp.n_head; h++) {
        const int kv = h / cb_attention_group(a);
        run[h] = copied ? cb_packed_copy_run(p->copy, kv) : cb_store_run(st, kv, 0, end);
    }
    for (int r = 0; a->prompt.joins && r < p->blocks.n_row; r++)
        TRY(add_columns(a, c, r));
    return 1;
}

const struct prefill cb_prefill_blocks = {
    .by_head = 1,
    .state = sizeof(struct block_prefill),
    .open = open,
    .room = room,
    .stored = stored,
    .parts = parts,
    .partly = partly,
};
