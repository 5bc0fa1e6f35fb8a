/* SPDX-License-Identifier: MIT */
/* time_search.c - times what policies that search do for a token of a long context, beside what
 * they save: making sketches or bounds of stored keys, finding slots or pages by them, attention
 * over the slots that were found, and attention over everything. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bank/pages.h"
#include "base/err.h"
#include "device/sketch.h"
#include "time_bank.h"

enum {
    SINK = 4,              /* the first slots, which are read in any case */
    FOUND = 512,           /* slots that a search finds: sieve's budget */
    RECENT = SKETCH_BLOCK, /* the newest ones, which have no sketch yet */
    READ = SINK + FOUND + RECENT,
    PAGE = 16,
    POOL = 32,            /* blocks of random keys; sketches of the others repeat them */
    SLOW_BYTES = 64 << 20 /* are enough for what is slower than memory */
};

static const int lengths[] = { 8192, 32768, 131072 };
enum { N_LENGTH = sizeof lengths / sizeof *lengths };

static uint32_t next(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

/* Names the shape, and how many slots a KV head finds, if not 0. */
static void shape_row(const struct op_shape *s, struct op_row *row, int n_found)
{
    const int n =
        snprintf(row->shape, sizeof row->shape, "%d/%d heads of %d", s->n_head, s->n_kv, s->hd);

    if (n_found)
        snprintf(row->shape + n, sizeof row->shape - (size_t)n, ", %d", n_found);
}

/* ---- finding ---- */

static void find_slots(void *ctx), score_pages(void *ctx), choose_pages(void *ctx);

/* By what slots or pages are found: sketches of these bits, of whose channels half may be scored,
 * or bounds, which a device with memory of its own does not score for the host */
static const struct form {
    const char *op, *type;
    void (*find)(void *ctx);
    int bits, half;
} forms[] = { { "sketch_topk", "sketch2", find_slots, 2, 0 },
              { "sketch_topk", "sketch2-half", find_slots, 2, 1 },
              { "sketch_topk", "sketch4", find_slots, 4, 0 },
              { "page_scores", NULL, score_pages, 0, 0 },
              { "page_topk", NULL, choose_pages, 0, 0 } };
enum { N_FORM = sizeof forms / sizeof *forms };

static int has_form(const struct device *d, const struct form *f)
{
    return f->find == choose_pages ? d->ops->page_topk != NULL
                                   : f->find == find_slots || !d->ops->memory;
}

/* Sketches of several layers' keys, or bounds of their pages */
struct search {
    struct device *d;
    const struct op_shape *s;
    const struct form *form;
    int n_ctx, n_layer;
    size_t block_bytes, head_bytes, bytes; /* of SKETCH_BLOCK tokens, of a KV head, of all */
    uint8_t *mem;                          /* [n_layer][n_kv][head_bytes] */
    float *q;                              /* [n_head][hd] */
    void *work;                            /* of sketch_topk */
    int32_t *idx;                          /* [n_kv][FOUND] */
    int *n;                                /* [n_kv] */
    float *score;                          /* [n_kv][n_ctx / PAGE] */
    int refused;                           /* 1: the device has left pages to the CPU */
};

/* The newest tokens are in no block and no page that is searched. */
static int n_block(const struct search *c)
{
    return (c->n_ctx - RECENT) / SKETCH_BLOCK;
}

static const uint8_t *layer_at(const struct search *c, int l)
{
    return c->mem + (size_t)l * (size_t)c->s->n_kv * c->head_bytes;
}

static void find_slots(void *ctx)
{
    const struct search *c = ctx;
    struct sketch_topk of = { .n_head = c->s->n_head,
                              .n_kv = c->s->n_kv,
                              .hd = c->s->hd,
                              .bits = c->form->bits,
                              .half = c->form->half,
                              .scale = 4 / sqrtf((float)c->s->hd),
                              .q = c->q,
                              .head_bytes = c->head_bytes,
                              .n_block = n_block(c),
                              .lo = SINK,
                              .hi = n_block(c) * SKETCH_BLOCK,
                              .k = FOUND,
                              .idx = c->idx,
                              .idx_stride = FOUND,
                              .n = c->n,
                              .work = c->work };

    for (int l = 0; l < c->n_layer; l++) {
        of.sketch = layer_at(c, l);
        c->d->ops->sketch_topk(c->d, &of);
    }
}

static struct page_scores scores_of(const struct search *c, int l)
{
    return (struct page_scores){ .n_head = c->s->n_head,
                                 .n_kv = c->s->n_kv,
                                 .hd = c->s->hd,
                                 .q = c->q,
                                 .bounds = layer_at(c, l),
                                 .head_bytes = c->head_bytes,
                                 .n_page = c->n_ctx / PAGE - 1,
                                 .per = c->s->n_head / c->s->n_kv,
                                 .out = c->score,
                                 .out_stride = c->n_ctx / PAGE };
}

static void score_pages(void *ctx)
{
    const struct search *c = ctx;

    for (int l = 0; l < c->n_layer; l++) {
        const struct page_scores of = scores_of(c, l);
        c->d->ops->page_scores(c->d, &of);
    }
}

static void choose_pages(void *ctx)
{
    struct search *c = ctx;

    for (int l = 0; l < c->n_layer; l++) {
        const struct page_topk of = { .s = scores_of(c, l),
                                      .page = PAGE,
                                      .k = FOUND / PAGE,
                                      .idx = c->idx,
                                      .idx_stride = FOUND };
        c->refused |= !c->d->ops->page_topk(c->d, &of);
    }
}

/* Tells a device with memory of its own that it may mirror the sketches, or bounds. */
static int watch(const struct search *c, int on)
{
    const struct device_memory *m = c->d->ops->memory;
    const size_t bytes = c->form->bits ? c->block_bytes : cb_bounds_bytes(c->s->hd);

    for (int i = 0; m && c->mem && i < c->n_layer * c->s->n_kv; i++) {
        const uint8_t *sketch = c->mem + (size_t)i * c->head_bytes;
        if (on)
            TRY(m->watch(c->d, sketch, bytes, c->head_bytes / bytes));
        else
            m->unwatch(c->d, sketch);
    }
    return CB_OK;
}

static void search_close(struct search *c)
{
    watch(c, 0);
    cb_pages_release(c->mem, c->bytes);
    cb_device_free(c->d, c->q);
    free(c->work);
    free(c->idx);
    free(c->n);
    free(c->score);
}

/* Fills mem with blocks of a pool, in random order. */
static int fill(struct search *c)
{
    const size_t n = (size_t)POOL * SKETCH_BLOCK * (size_t)c->s->hd;
    float *keys = cb_calloc(n, sizeof *keys);
    uint8_t *pool = cb_alloc_aligned(POOL * c->block_bytes, 1);
    const int err = keys && pool ? CB_OK : CB_ENOMEM;
    uint32_t x = 1;

    if (!err) {
        cb_op_fill(keys, n);
        if (c->form->bits)
            c->d->ops->sketch(c->d, KV_F32, keys, POOL, c->s->hd, c->form->bits, 0, pool);
        else
            c->d->ops->bounds(c->d, KV_F32, keys, POOL * SKETCH_BLOCK / PAGE, PAGE, c->s->hd, pool);
        for (size_t at = 0; at < c->bytes; at += c->block_bytes)
            memcpy(c->mem + at, pool + next(&x) % POOL * c->block_bytes, c->block_bytes);
    }
    free(keys);
    free(pool);
    return err;
}

static int search_open(struct op_bench *b, struct search *c)
{
    const struct op_shape *s = c->s;
    struct sketch_work w;
    size_t layer;

    c->block_bytes = c->form->bits ? cb_sketch_bytes(c->form->bits, s->hd)
                                   : SKETCH_BLOCK / PAGE * cb_bounds_bytes(s->hd);
    c->head_bytes = (size_t)(c->n_ctx / SKETCH_BLOCK) * c->block_bytes;
    layer = (size_t)s->n_kv * c->head_bytes;
    c->n_layer = 1 + (int)(b->cold_bytes / layer);
    c->bytes = layer * (size_t)c->n_layer;
    c->q = cb_op_floats(b, (size_t)s->n_head * (size_t)s->hd);
    c->work = cb_alloc_aligned(
        cb_sketch_work(NULL, s->n_head, s->n_kv, s->hd, n_block(c), SKETCH_MAX_ITEMS, &w), 1);
    c->idx = cb_calloc((size_t)s->n_kv * FOUND, sizeof *c->idx);
    c->n = cb_calloc((size_t)s->n_kv, sizeof *c->n);
    c->score = cb_calloc((size_t)s->n_kv * (size_t)(c->n_ctx / PAGE), sizeof *c->score);
    if (!c->q || !c->work || !c->idx || !c->n || !c->score)
        return CB_ENOMEM;
    TRY(cb_op_reserve(c->bytes, &c->mem));
    TRY(watch(c, 1));
    return fill(c);
}

static size_t read_bytes(const struct search *c) /* of a block */
{
    return c->form->half ? cb_sketch_half_bytes(c->form->bits, c->s->hd) : c->block_bytes;
}

static int search(struct op_bench *b, const struct op_shape *s, int n_ctx, const struct form *f)
{
    struct search c = { .d = b->d, .s = s, .n_ctx = n_ctx, .form = f };
    const double n_token = f->bits ? n_block(&c) * SKETCH_BLOCK : n_ctx - PAGE;
    struct op_row row = { .op = f->op,
                          .type = f->type,
                          .model = s->model,
                          .n_tok = 1,
                          .n_ctx = n_ctx,
                          .read = b->limit[LIMIT_READ] };
    uint64_t on_host = cb_device_traffic(b->d).host_sketches;
    int err = search_open(b, &c);

    if (!err) {
        row.s = cb_op_time(b, f->find, &c, 0) / c.n_layer;
        on_host = cb_device_traffic(b->d).host_sketches - on_host;
        row.bytes = n_token / SKETCH_BLOCK * (double)read_bytes(&c) * s->n_kv;
        shape_row(s, &row, f->find == score_pages ? 0 : FOUND);
        if (f->bits) {
            row.flop = 2.0 * s->hd * s->n_head * n_token / (1 + f->half);
            row.peak = b->limit[LIMIT_INT8];
        }
        if (!on_host && !c.refused)
            err = cb_op_emit(b, &row);
    }
    search_close(&c);
    return err;
}

static int searches(struct op_bench *b, const struct op_shape *s, int n_ctx)
{
    for (const struct form *f = forms; f < forms + N_FORM; f++)
        if (has_form(b->d, f) && cb_op_picked(b, KIND_OP, f->op) &&
            (!f->type || cb_op_picked(b, KIND_TYPE, f->type)))
            TRY(search(b, s, n_ctx, f));
    return CB_OK;
}

/* ---- stored keys and values ---- */

struct reads {
    struct device *d;
    const struct op_bank *bank;
    struct attn a;
    int n_layer, n_list;
    int32_t *idx;       /* [n_list][n_kv][READ] */
    struct kv_run *run; /* [n_kv] */
    uint8_t *made;      /* [n_kv] sketches of all slots, or their bounds, which are less */
};

enum { BITS = 2 };

static size_t made_bytes(const struct op_shape *s) /* of a KV head */
{
    return (size_t)(s->n_ctx / SKETCH_BLOCK) * cb_sketch_bytes(BITS, s->hd);
}

static void make_sketches(void *ctx)
{
    const struct reads *c = ctx;
    const struct op_shape *s = c->bank->s;

    for (int i = 0; i < c->n_layer * s->n_kv; i++)
        c->d->ops->sketch(c->d, c->a.type_k, c->bank->run[i].k, s->n_ctx / SKETCH_BLOCK, s->hd,
                          BITS, SINK, c->made + (size_t)(i % s->n_kv) * made_bytes(s));
}

static void make_bounds(void *ctx)
{
    const struct reads *c = ctx;
    const struct op_shape *s = c->bank->s;

    for (int i = 0; i < c->n_layer * s->n_kv; i++)
        c->d->ops->bounds(c->d, c->a.type_k, c->bank->run[i].k, s->n_ctx / PAGE, PAGE, s->hd,
                          c->made + (size_t)(i % s->n_kv) * made_bytes(s));
}

static void read_all(void *ctx)
{
    struct reads *c = ctx;

    for (int l = 0; l < c->n_layer; l++) {
        c->a.run = c->bank->run + l * c->bank->s->n_kv;
        c->d->ops->attention(c->d, &c->a, 1);
    }
}

/* Attention over all lists, in all layers */
static void read_found(void *ctx)
{
    struct reads *c = ctx;
    const int n_kv = c->bank->s->n_kv;

    c->a.run = c->run;
    for (int i = 0; i < c->n_list * c->n_layer; i++) {
        const int l = i % c->n_layer, list = i / c->n_layer;
        for (int h = 0; h < n_kv; h++) {
            c->run[h] = c->bank->run[l * n_kv + h];
            c->run[h].idx = c->idx + (size_t)(list * n_kv + h) * READ;
            c->run[h].n = READ;
        }
        c->d->ops->attention(c->d, &c->a, 1);
    }
}

/* A list of a context of n_ctx tokens */
static void draw_list(int n_ctx, uint32_t *x, int32_t *idx)
{
    const uint32_t step = (uint32_t)(n_ctx - RECENT - SINK) / FOUND;

    for (int i = 0; i < SINK; i++)
        *idx++ = i;
    for (uint32_t i = 0; i < FOUND; i++)
        *idx++ = (int32_t)(SINK + i * step + next(x) % step);
    for (int i = n_ctx - RECENT; i < n_ctx; i++)
        *idx++ = i;
}

/* The newest slots differ from list to list as well, as if some tokens were still to come. */
static int found(struct op_bench *b, struct reads *c)
{
    const struct op_shape *s = c->bank->s;
    const size_t row = cb_kv_row_bytes(c->a.type_k, s->hd);
    const size_t bytes = 2 * READ * (size_t)s->n_kv * row * (size_t)c->n_layer;
    uint32_t x = 1;

    c->n_list = 1 + (int)(b->cold_bytes / bytes);
    c->idx = cb_calloc((size_t)(c->n_list * s->n_kv) * READ, sizeof *c->idx);
    c->run = cb_calloc((size_t)s->n_kv, sizeof *c->run);
    if (!c->idx || !c->run)
        return CB_ENOMEM;
    for (int i = 0; i < c->n_list * s->n_kv; i++)
        draw_list(s->n_ctx - i / s->n_kv * RECENT, &x, c->idx + (size_t)i * READ);
    return cb_op_bank_emit(b, c->bank, "found", 1, READ,
                           cb_op_time(b, read_found, c, 0) / c->n_list / c->n_layer);
}

static int make(struct op_bench *b, struct reads *c, const char *op, void (*fn)(void *ctx))
{
    const struct op_shape *s = c->bank->s;
    const double bytes = (double)cb_kv_row_bytes(c->a.type_k, s->hd) * s->n_kv * s->n_ctx;
    struct reads some = *c;
    struct op_row row = { .op = op,
                          .type = c->bank->form->name,
                          .model = s->model,
                          .n_tok = s->n_ctx,
                          .n_ctx = s->n_ctx,
                          .bytes = bytes,
                          .read = b->limit[LIMIT_READ] };

    if (!cb_op_picked(b, KIND_OP, op))
        return CB_OK;
    some.n_layer = 1 + (int)(SLOW_BYTES / bytes);
    some.n_layer = some.n_layer < c->n_layer ? some.n_layer : c->n_layer;
    row.s = cb_op_time(b, fn, &some, 1) / some.n_layer;
    shape_row(s, &row, 0);
    return cb_op_emit(b, &row);
}

static int reads(struct op_bench *b, struct op_bank *k)
{
    const struct op_shape *s = k->s;
    struct reads c = { .d = b->d,
                       .bank = k,
                       .a = cb_op_bank_attn(k),
                       .n_layer = k->n_layer,
                       .made = cb_alloc_aligned((size_t)s->n_kv * made_bytes(s), 1) };
    int err = c.made ? CB_OK : CB_ENOMEM;

    if (b->d->ops->reserve(b->d, 1, s->n_embd, s->n_embd, s->n_head, s->hd, s->n_ctx) < 0)
        err = CB_ENOMEM;
    if (!err)
        err = make(b, &c, "sketch", make_sketches);
    if (!err)
        err = make(b, &c, "bounds", make_bounds);
    if (!err && k->form->type == KV_F16 && cb_op_picked(b, KIND_OP, "found"))
        err = found(b, &c);
    if (!err && k->form->type == KV_F16 && cb_op_picked(b, KIND_OP, "decode_long")) {
        err = cb_op_bank_prepack(b->d, k);
        if (err >= 0)
            err = cb_op_bank_emit(b, k, "decode_long", 1, s->n_ctx,
                                  cb_op_time(b, read_all, &c, 0) / c.n_layer);
    }
    free(c.idx);
    free(c.run);
    free(c.made);
    return err;
}

static int banks(struct op_bench *b, const struct op_shape *s, int n_ctx)
{
    static const char *const of_all[] = { "sketch", "bounds", NULL }, *const of_f16[] = {
        "found", "decode_long", NULL
    };
    const int any = cb_op_any_picked(b, of_all), any_f16 = cb_op_any_picked(b, of_f16);

    for (const struct op_form *f = cb_op_form; f->name; f++) {
        const int f16 = f->type == KV_F16;
        if (f->bits || (!f16 && n_ctx > *lengths)) /* long banks are of f16 */
            continue;
        if ((any || (f16 && any_f16)) && cb_op_picked(b, KIND_TYPE, f->name))
            TRY(cb_op_bank_with(b, s, f, n_ctx, b->cold_bytes, reads));
    }
    return CB_OK;
}

int cb_bench_search(struct op_bench *b)
{
    const struct ops *op = b->d->ops;

    if (!op->sketch_topk || !op->page_scores)
        return CB_OK;
    for (const struct op_shape *s = cb_op_shape; s->model; s++)
        for (int i = 0; cb_op_picked(b, KIND_MODEL, s->model) && i < N_LENGTH; i++) {
            TRY(searches(b, s, lengths[i]));
            if (!op->memory)
                TRY(banks(b, s, lengths[i]));
        }
    return CB_OK;
}
