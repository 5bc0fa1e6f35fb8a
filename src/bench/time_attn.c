/* SPDX-License-Identifier: MIT */
/* time_attn.c - times attention over a bank of each type: one token that reads all rows, one token
 * that reads scattered slots, a prompt, and one token that reads everything in prepacked blocks;
 * and over long banks of f16 a prompt that reads everything, or a part of the blocks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bank/pages.h"
#include "base/err.h"
#include "device/kivi.h"
#include "device/prompt_blocks.h"
#include "time_ops.h"

enum {
    MANY = 512, /* queries of a prompt: the last of PROMPT_CTX tokens */
    FEW = 16,   /* instead of MANY, where MANY takes too long */
    PROMPT_CTX = 4096,
    PART = 8,   /* scattered: one slot of PART is read; of blocks one of PART */
    STRIDE = 8, /* of the estimate that blocks are chosen by: xattention's default */
    SAMPLE = 64 /* random tokens; the others repeat them */
};

static const struct {
    const char *name;
    enum kv_type type;
    int bits; /* KIVI's bits; else 0 */
} form[] = { { "f32", KV_F32, 0 },   { "f16", KV_F16, 0 },   { "bf16", KV_BF16, 0 },
             { "q8_0", KV_Q8_0, 0 }, { "kivi4", KV_F16, 4 }, { "kivi2", KV_F16, 2 } };

/* Keys and values of several layers, so that no call finds the previous call's data in caches. */
struct bank {
    const struct op_shape *s;
    int form, n_layer;
    size_t head_bytes, bytes; /* bytes of a KV head's keys or values; of all */
    char *mem;                /* [n_layer][n_kv][2][head_bytes] */
    struct kv_run *run;       /* [n_layer][n_kv] */
    struct kv_kivi *kivi;     /* [n_layer][n_kv] */
    int32_t *idx;             /* [PART][n_ctx / PART] ascending; the PART lists cover all slots */
    float *step;              /* [n_layer][n_kv][2][n_ctx] steps of prepacked blocks */
    float *q, *out;
};

struct calls {
    struct device *d;
    const struct bank *bank;
    struct attn a;
    int n_layer;
    int scattered, round; /* 1: each round reads other slots */
    struct kv_run *run;   /* NULL: the bank's */
};

static void attend(void *ctx)
{
    struct calls *c = ctx;

    for (int l = 0; l < c->n_layer; l++) {
        struct kv_run *run = c->bank->run + l * c->bank->s->n_kv;
        const int n = c->bank->s->n_ctx / PART;
        for (int h = 0; c->scattered && h < c->bank->s->n_kv; h++) {
            run[h].idx = c->bank->idx + (size_t)(c->round % PART) * (size_t)n;
            run[h].n = n;
        }
        c->a.run = c->run ? c->run : run;
        c->d->ops->attention(c->d, &c->a, 1);
    }
    c->round++;
}

/* Stored bytes of `SAMPLE` tokens: keys (v = 0) or values */
static void encode(struct device *d, const struct bank *k, int v, const float *x, char *out)
{
    const int hd = k->s->hd, bits = form[k->form].bits;
    const size_t block = cb_kivi_block_bytes(bits);

    if (!bits) {
        d->ops->kv_encode(d, form[k->form].type, x, SAMPLE, hd, hd, out);
        cb_device_wait(d); /* a failure comes again when the ops are timed */
        return;
    }
    for (int i = 0; i < SAMPLE * hd / KIVI_GROUP; i++) {
        const int g = i / hd, c = i % hd; /* keys: group of tokens, channel */
        const float *from = v ? x + i * KIVI_GROUP : x + g * KIVI_GROUP * hd + c;
        cb_kivi_encode(bits, KIVI_GROUP, from, v ? 1 : hd, out + (size_t)i * block);
    }
}

static size_t bytes_of(const struct bank *k, int n_tok)
{
    const int bits = form[k->form].bits;

    if (bits)
        return (size_t)n_tok * (size_t)(k->s->hd / KIVI_GROUP) * cb_kivi_block_bytes(bits);
    return (size_t)n_tok * cb_kv_row_bytes(form[k->form].type, k->s->hd);
}

static void fill_bank(struct device *d, struct bank *k, const float *x)
{
    const int bits = form[k->form].bits, n_ctx = k->s->n_ctx;
    const size_t sample = bytes_of(k, SAMPLE);

    for (int i = 0; i < k->n_layer * k->s->n_kv; i++) {
        char *keys = k->mem + 2 * (size_t)i * k->head_bytes, *values = keys + k->head_bytes;

        encode(d, k, 0, x, keys);
        encode(d, k, 1, x, values);
        for (size_t at = sample; at < k->head_bytes; at += sample) {
            memcpy(keys + at, keys, sample);
            memcpy(values + at, values, sample);
        }
        k->run[i] = (struct kv_run){ .k = keys, .v = values, .n = n_ctx };
        if (!bits)
            continue;
        k->kivi[i] = (struct kv_kivi){ .bits_k = bits,
                                       .bits_v = bits,
                                       .n_k = n_ctx,
                                       .n_v = n_ctx,
                                       .k = (const uint8_t *)keys,
                                       .v = (const uint8_t *)values };
        k->run[i].kivi = &k->kivi[i];
    }
}

/* Attention of one token */
static struct attn attn_of(const struct bank *k)
{
    return (struct attn){ .n_tok = 1,
                          .n_head = k->s->n_head,
                          .n_kv = k->s->n_kv,
                          .hd = k->s->hd,
                          .scale = 1 / sqrtf((float)k->s->hd),
                          .type_k = form[k->form].type,
                          .type_v = form[k->form].type,
                          .q = k->q,
                          .q_stride = k->s->n_head * k->s->hd,
                          .out = k->out };
}

/* Tells a device with memory of its own which rows it may mirror. */
static int watch(struct device *d, const struct bank *k, int on)
{
    const struct device_memory *m = d->ops->memory;
    const int bits = form[k->form].bits;

    for (int i = 0; m && k->run && i < k->n_layer * k->s->n_kv; i++)
        for (int v = 0; v < 2; v++) {
            const void *rows = v ? k->run[i].v : k->run[i].k;
            const int tokens = bits && !v ? KIVI_GROUP : 1; /* a row */
            if (rows && !on)
                m->unwatch(d, rows);
            else if (rows)
                TRY(m->watch(d, rows, bytes_of(k, tokens), (size_t)(k->s->n_ctx / tokens)));
        }
    return CB_OK;
}

static void bank_close(struct device *d, struct bank *k)
{
    watch(d, k, 0);
    cb_pages_release(k->mem, k->bytes);
    free(k->run);
    free(k->kivi);
    free(k->idx);
    free(k->step);
    cb_device_free(d, k->q);
    cb_device_free(d, k->out);
}

static int bank_open(struct op_bench *b, struct bank *k)
{
    struct device *d = b->d;
    const struct op_shape *s = k->s;
    const size_t row = (size_t)s->n_head * (size_t)s->hd;
    size_t layer, n;
    float *sample;
    uint32_t x = 1;

    k->head_bytes = bytes_of(k, s->n_ctx);
    layer = 2 * k->head_bytes * (size_t)s->n_kv;
    k->n_layer = 1 + (int)(OP_COLD_BYTES / layer);
    k->bytes = layer * (size_t)k->n_layer;
    n = (size_t)k->n_layer * (size_t)s->n_kv;
    k->run = cb_calloc(n, sizeof *k->run);
    k->kivi = cb_calloc(n, sizeof *k->kivi);
    k->idx = cb_calloc((size_t)s->n_ctx, sizeof *k->idx);
    k->q = cb_op_floats(b, MANY * row);
    k->out = cb_device_alloc(d, MANY * row, sizeof *k->out);
    if (!k->run || !k->kivi || !k->idx || !k->q || !k->out)
        return CB_ENOMEM;
    TRY(cb_op_reserve(k->bytes, &k->mem));
    sample = cb_calloc(SAMPLE, (size_t)s->hd * sizeof *sample);
    if (!sample)
        return CB_ENOMEM;
    cb_op_fill(sample, SAMPLE * (size_t)s->hd);
    fill_bank(d, k, sample);
    free(sample);
    TRY(watch(d, k, 1));
    for (int i = 0; i < s->n_ctx / PART; i++) {
        x = x * 1664525u + 1013904223u;
        for (uint32_t r = 0; r < PART; r++)
            k->idx[r * (uint32_t)(s->n_ctx / PART) + (uint32_t)i] =
                (int32_t)((uint32_t)i * PART + ((x >> 8) + r) % PART);
    }
    return CB_OK;
}

/* n_tok queries that read n_read slots each, or as a prompt does */
static int emit(struct op_bench *b, const struct bank *k, const char *op, int n_tok, int n_read,
                double seconds)
{
    const struct op_shape *s = k->s;
    const double pairs = n_tok > 1 ? n_tok * (n_read - (n_tok - 1) / 2.0) : n_read;
    const enum kv_type t = form[k->form].type;
    /* with AVX-512, KIVI codes are multiplied as bytes, except in prompts */
    const int bytes =
        t == KV_Q8_0 || (form[k->form].bits && n_tok == 1 && b->limit[LIMIT_BF16] > 0);
    const enum limit unit = t == KV_F32 ? LIMIT_F32 : bytes ? LIMIT_INT8 : LIMIT_BF16;
    struct op_row row = { .op = op,
                          .type = form[k->form].name,
                          .model = s->model,
                          .n_tok = n_tok,
                          .n_ctx = n_tok > 1 ? n_read : s->n_ctx,
                          .s = seconds,
                          .bytes = 2.0 * (double)bytes_of(k, n_read) * s->n_kv,
                          .flop = 4.0 * s->hd * s->n_head * pairs,
                          .read = b->limit[LIMIT_READ],
                          .peak = b->limit[unit] > 0 ? b->limit[unit] : b->limit[LIMIT_F32] };

    if (!strcmp(op, "gather") && b->limit[LIMIT_GATHER_128] > 0)
        row.read = b->limit[bytes_of(k, 1) < 512 ? LIMIT_GATHER_128 : LIMIT_GATHER_512];
    snprintf(row.shape, sizeof row.shape, "%d/%d heads of %d", s->n_head, s->n_kv, s->hd);
    return cb_op_emit(b, &row);
}

static int prompt(struct op_bench *b, struct bank *k, struct calls *c)
{
    double few_s;

    c->n_layer = 1;
    c->a.causal = 1;
    for (int h = 0; h < k->s->n_kv; h++) {
        k->run[h].idx = NULL;
        k->run[h].n = PROMPT_CTX;
    }
    c->a.n_tok = FEW;
    few_s = cb_op_time(b, attend, c, 1);
    if (few_s * MANY / FEW < 0.5)
        c->a.n_tok = MANY;
    return emit(b, k, "prompt", c->a.n_tok, PROMPT_CTX, cb_op_time(b, attend, c, 0));
}

/* ---- a chunk of a long prompt ---- */

static const int long_ctx[] = { 8192, 16384, 32768 };

enum { LONGEST = 32768, ROWS = MANY / KV_PREPACK };

static void block_mass(void *ctx)
{
    const struct block_mass *m = ((void **)ctx)[1];
    struct device *d = ((void **)ctx)[0];

    d->ops->block_mass(d, m);
}

/* Marks the first block, the one of a row's own tokens, and of those between one of PART.
 * -> pairs of query and token that a head reads */
static double mark(const struct attn_blocks *x, int n_head, uint8_t *reads)
{
    const double block = KV_PREPACK;
    double pairs = 0;
    uint32_t r = 1;

    for (int i = 0; i < n_head * x->n_row; i++) {
        uint8_t *row = reads + (size_t)i * (size_t)x->n_col;
        const int own = x->n_col - x->n_row + i % x->n_row;
        for (int j = 0; j <= own; j++) {
            r = r * 1664525u + 1013904223u;
            row[j] = j == 0 || j == own || (r >> 8) % PART == 0;
            pairs += row[j] * (j < own ? block * block : block * (block + 1) / 2);
        }
    }
    return pairs / n_head;
}

static int emit_long(struct op_bench *b, const struct bank *k, const char *op, int n_ctx,
                     double flop, double seconds)
{
    struct op_row row = { .op = op,
                          .type = form[k->form].name,
                          .model = k->s->model,
                          .n_tok = MANY,
                          .n_ctx = n_ctx,
                          .s = seconds,
                          .flop = flop,
                          .peak = b->limit[LIMIT_BF16] > 0 ? b->limit[LIMIT_BF16]
                                                           : b->limit[LIMIT_F32] };

    snprintf(row.shape, sizeof row.shape, "%d/%d heads of %d", k->s->n_head, k->s->n_kv, k->s->hd);
    return cb_op_emit(b, &row);
}

/* A chunk whose last token has the number n_ctx. run: room for a run a query head; mass, reads:
 * [n_head][ROWS][n_ctx / KV_PREPACK] */
static int long_chunk(struct op_bench *b, struct calls *c, int n_ctx, struct kv_run *run,
                      float *mass, uint8_t *reads)
{
    const struct bank *k = c->bank;
    const struct op_shape *s = k->s;
    const struct attn_blocks blocks = { reads, 0, ROWS, n_ctx / KV_PREPACK };
    const struct block_mass m = { .n_tok = MANY,
                                  .n_head = s->n_head,
                                  .n_kv = s->n_kv,
                                  .hd = s->hd,
                                  .first = n_ctx - MANY,
                                  .stride = STRIDE,
                                  .scale = c->a.scale,
                                  .type_k = c->a.type_k,
                                  .run = k->run,
                                  .q = k->q,
                                  .q_stride = c->a.q_stride,
                                  .out = mass,
                                  .n_row = ROWS,
                                  .n_col = n_ctx / KV_PREPACK };
    const void *estimate[] = { b->d, &m };
    const double pair = 4.0 * s->hd * s->n_head, all = MANY * (n_ctx - (MANY - 1) / 2.0);
    struct calls by_head = *c;
    double pairs;

    for (int h = 0; h < s->n_kv; h++)
        k->run[h].n = n_ctx;
    if (cb_op_picked(b, KIND_OP, "prompt_long"))
        TRY(emit_long(b, k, "prompt_long", n_ctx, pair * all, cb_op_time(b, attend, c, 1)));
    if (b->d->ops->memory || !b->d->ops->block_mass)
        return CB_OK; /* such a device's prompts read everything */
    if (cb_op_picked(b, KIND_OP, "block_mass"))
        TRY(emit_long(b, k, "block_mass", n_ctx, pair / 2 * all / STRIDE,
                      cb_op_time(b, block_mass, estimate, 1)));
    if (!cb_op_picked(b, KIND_OP, "prompt_blocks"))
        return CB_OK;
    pairs = mark(&blocks, s->n_head, reads);
    for (int h = 0; h < s->n_head; h++)
        run[h] = k->run[h / (s->n_head / s->n_kv)];
    by_head.a.n_kv = s->n_head;
    by_head.a.blocks = &blocks;
    by_head.run = run;
    return emit_long(b, k, "prompt_blocks", n_ctx, pair * pairs,
                     cb_op_time(b, attend, &by_head, 1));
}

static int long_prompts(struct op_bench *b, struct bank *k)
{
    const struct op_shape *s = k->s;
    const size_t n = (size_t)s->n_head * ROWS * (LONGEST / KV_PREPACK);
    struct kv_run *run = cb_calloc((size_t)s->n_head, sizeof *run);
    float *mass = cb_alloc_aligned(n, sizeof *mass);
    uint8_t *reads = cb_alloc_aligned(n, 1);
    struct calls c = { .d = b->d, .bank = k, .n_layer = 1 };
    int err = run && mass && reads ? CB_OK : CB_ENOMEM;

    if (!err)
        err = b->d->ops->reserve(b->d, MANY, s->n_embd, s->n_embd, s->n_head, s->hd, LONGEST) < 0
                  ? CB_ENOMEM
                  : CB_OK;
    c.a = attn_of(k);
    c.a.causal = 1;
    c.a.n_tok = MANY;
    for (size_t i = 0; !err && i < sizeof long_ctx / sizeof *long_ctx; i++)
        err = long_chunk(b, &c, long_ctx[i], run, mass, reads);
    free(run);
    free(mass);
    free(reads);
    return err;
}

/* ---- one token, and a prompt's end ---- */

/* Prepacks the bank, which then stays prepacked. */
static int prepacked(struct op_bench *b, struct bank *k, struct calls *c)
{
    const struct op_shape *s = k->s;
    const struct ops *op = c->d->ops;
    const enum kv_type t = form[k->form].type;
    const int n_run = k->n_layer * s->n_kv, n_block = s->n_ctx / KV_PREPACK;

    if (form[k->form].bits || !op->can_prepack || !op->can_prepack(c->d, t, t, s->hd))
        return CB_OK;
    k->step = cb_calloc(2 * (size_t)n_run, (size_t)s->n_ctx * sizeof *k->step);
    if (!k->step)
        return CB_ENOMEM;
    for (int i = 0; i < n_run; i++) {
        char *keys = k->mem + 2 * (size_t)i * k->head_bytes, *values = keys + k->head_bytes;
        float *step_k = k->step + 2 * (size_t)i * (size_t)s->n_ctx, *step_v = step_k + s->n_ctx;
        op->prepack(c->d, t, 0, s->hd, keys, n_block, step_k);
        op->prepack(c->d, t, 1, s->hd, values, n_block, step_v);
        k->run[i] = (struct kv_run){ .k = keys,
                                     .v = values,
                                     .n = s->n_ctx,
                                     .prepacked = n_block * KV_PREPACK,
                                     .step_k = step_k,
                                     .step_v = step_v };
    }
    c->n_layer = k->n_layer;
    c->a.causal = 0;
    c->a.n_tok = 1;
    return emit(b, k, "prepacked", 1, s->n_ctx, cb_op_time(b, attend, c, 0) / k->n_layer);
}

static int run_bank(struct op_bench *b, struct bank *k)
{
    const struct op_shape *s = k->s;
    struct calls c = { .d = b->d, .bank = k, .n_layer = k->n_layer };

    if (b->d->ops->reserve(b->d, MANY, s->n_embd, s->n_embd, s->n_head, s->hd, s->n_ctx) < 0)
        return CB_ENOMEM;
    c.a = attn_of(k);
    if (cb_op_picked(b, KIND_OP, "decode"))
        TRY(emit(b, k, "decode", 1, s->n_ctx, cb_op_time(b, attend, &c, 0) / k->n_layer));
    c.scattered = 1;
    if (cb_op_picked(b, KIND_OP, "gather"))
        TRY(emit(b, k, "gather", 1, s->n_ctx / PART, cb_op_time(b, attend, &c, 0) / k->n_layer));
    c.scattered = 0;
    if (cb_op_picked(b, KIND_OP, "prompt"))
        TRY(prompt(b, k, &c));
    return cb_op_picked(b, KIND_OP, "prepacked") ? prepacked(b, k, &c) : CB_OK;
}

/* Opens the bank of a form with tokens of its own or, if n_ctx is 0, the shape's; runs it. */
static int with_bank(struct op_bench *b, const struct op_shape *shape, int f, int n_ctx,
                     int (*run)(struct op_bench *b, struct bank *k))
{
    struct op_shape s = *shape;
    struct bank k = { .s = &s, .form = f };
    int err;

    if (n_ctx)
        s.n_ctx = n_ctx;
    err = bank_open(b, &k);
    if (!err)
        err = run(b, &k);
    bank_close(b->d, &k);
    return err;
}

int cb_bench_attn(struct op_bench *b)
{
    static const char *const op[] = { "decode", "gather", "prompt", "prepacked", NULL },
                             *const of_blocks[] = { "prompt_long", "prompt_blocks", "block_mass",
                                                    NULL };
    const int any = cb_op_any_picked(b, op), any_long = cb_op_any_picked(b, of_blocks);

    for (const struct op_shape *s = cb_op_shape; s->model; s++)
        for (int f = 0; f < (int)(sizeof form / sizeof *form); f++) {
            if (!cb_op_picked(b, KIND_MODEL, s->model) || !cb_op_picked(b, KIND_TYPE, form[f].name))
                continue;
            if (any)
                TRY(with_bank(b, s, f, 0, run_bank));
            if (any_long && !form[f].bits && form[f].type == KV_F16)
                TRY(with_bank(b, s, f, LONGEST, long_prompts));
        }
    return CB_OK;
}
