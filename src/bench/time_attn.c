/* SPDX-License-Identifier: MIT */
/* time_attn.c - times attention over a bank of each type: one token that reads all rows, one token
 * that reads scattered slots, a prompt, and one token that reads everything in prepacked blocks;
 * and over long banks of f16 a prompt that reads everything, or a part of the blocks. */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "device/prompt_blocks.h"
#include "time_bank.h"

enum {
    MANY = OP_BANK_QUERIES, /* queries of a prompt: the last of PROMPT_CTX tokens */
    FEW = 16,               /* instead of MANY, where MANY takes too long */
    PROMPT_CTX = 4096,
    PART = 8,  /* scattered: one slot of PART is read; of blocks one of PART */
    STRIDE = 8 /* of the estimate that blocks are chosen by: xattention's default */
};

struct calls {
    struct device *d;
    const struct op_bank *bank;
    struct attn a;
    int n_layer;
    int32_t *idx; /* [PART][n_ctx / PART] ascending, together all slots: each round reads other
                     slots; NULL: all */
    int round;
    struct kv_run *run; /* NULL: the bank's */
};

static void attend(void *ctx)
{
    struct calls *c = ctx;

    for (int l = 0; l < c->n_layer; l++) {
        struct kv_run *run = c->bank->run + l * c->bank->s->n_kv;
        const int n = c->bank->s->n_ctx / PART;
        for (int h = 0; c->idx && h < c->bank->s->n_kv; h++) {
            run[h].idx = c->idx + (size_t)(c->round % PART) * (size_t)n;
            run[h].n = n;
        }
        c->a.run = c->run ? c->run : run;
        c->d->ops->attention(c->d, &c->a, 1);
    }
    c->round++;
}

static int prompt(struct op_bench *b, struct op_bank *k, struct calls *c)
{
    double few_s;

    c->n_layer = 1;
    c->a.causal = 1;
    for (int h = 0; h < k->s->n_kv; h++)
        k->run[h].n = PROMPT_CTX;
    c->a.n_tok = FEW;
    few_s = cb_op_time(b, attend, c, 1);
    if (few_s * MANY / FEW < 0.5)
        c->a.n_tok = MANY;
    return cb_op_bank_emit(b, k, "prompt", c->a.n_tok, PROMPT_CTX, cb_op_time(b, attend, c, 0));
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

static int emit_long(struct op_bench *b, const struct op_bank *k, const char *op, int n_ctx,
                     double flop, double seconds)
{
    struct op_row row = { .op = op,
                          .type = k->form->name,
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
    const struct op_bank *k = c->bank;
    const struct op_shape *s = k->s;
    const struct attn_blocks blocks = { reads, 0, ROWS, n_ctx / KV_PREPACK, 0 };
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
    if (b->d->ops->reserve_blocks)
        TRY(b->d->ops->reserve_blocks(b->d, s->n_head, s->hd, n_ctx));
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

static int long_prompts(struct op_bench *b, struct op_bank *k)
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
    c.a = cb_op_bank_attn(k);
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

/* Attention of one token over the slots of a list, another one in each round */
static int gather(struct op_bench *b, struct op_bank *k, struct calls *c)
{
    const int n = k->s->n_ctx / PART;
    uint32_t x = 1;
    double seconds;

    c->idx = cb_calloc((size_t)k->s->n_ctx, sizeof *c->idx);
    if (!c->idx)
        return CB_ENOMEM;
    for (int i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        for (uint32_t r = 0; r < PART; r++)
            c->idx[r * (uint32_t)n + (uint32_t)i] =
                (int32_t)((uint32_t)i * PART + ((x >> 8) + r) % PART);
    }
    seconds = cb_op_time(b, attend, c, 0) / k->n_layer;
    free(c->idx);
    c->idx = NULL;
    for (int i = 0; i < k->n_layer * k->s->n_kv; i++) {
        k->run[i].idx = NULL;
        k->run[i].n = k->s->n_ctx;
    }
    return cb_op_bank_emit(b, k, "gather", 1, n, seconds);
}

static int prepacked(struct op_bench *b, struct op_bank *k, struct calls *c)
{
    const int done = cb_op_bank_prepack(c->d, k);

    if (done <= 0)
        return done;
    c->n_layer = k->n_layer;
    c->a.causal = 0;
    c->a.n_tok = 1;
    return cb_op_bank_emit(b, k, "prepacked", 1, k->s->n_ctx,
                           cb_op_time(b, attend, c, 0) / k->n_layer);
}

static int run_bank(struct op_bench *b, struct op_bank *k)
{
    const struct op_shape *s = k->s;
    struct calls c = { .d = b->d, .bank = k, .n_layer = k->n_layer };

    if (b->d->ops->reserve(b->d, MANY, s->n_embd, s->n_embd, s->n_head, s->hd, s->n_ctx) < 0)
        return CB_ENOMEM;
    c.a = cb_op_bank_attn(k);
    if (cb_op_picked(b, KIND_OP, "decode"))
        TRY(cb_op_bank_emit(b, k, "decode", 1, s->n_ctx,
                            cb_op_time(b, attend, &c, 0) / k->n_layer));
    if (cb_op_picked(b, KIND_OP, "gather"))
        TRY(gather(b, k, &c));
    if (cb_op_picked(b, KIND_OP, "prompt"))
        TRY(prompt(b, k, &c));
    return cb_op_picked(b, KIND_OP, "prepacked") ? prepacked(b, k, &c) : CB_OK;
}

int cb_bench_attn(struct op_bench *b)
{
    static const char *const op[] = { "decode", "gather", "prompt", "prepacked", NULL },
                             *const of_blocks[] = { "prompt_long", "prompt_blocks", "block_mass",
                                                    NULL };
    const int any = cb_op_any_picked(b, op), any_long = cb_op_any_picked(b, of_blocks);

    for (const struct op_shape *s = cb_op_shape; s->model; s++)
        for (const struct op_form *f = cb_op_form; f->name; f++) {
            if (!cb_op_picked(b, KIND_MODEL, s->model) || !cb_op_picked(b, KIND_TYPE, f->name))
                continue;
            if (any)
                TRY(cb_op_bank_with(b, s, f, 0, b->cold_bytes, run_bank));
            if (any_long && !f->bits && f->type == KV_F16)
                TRY(cb_op_bank_with(b, s, f, LONGEST, b->cold_bytes, long_prompts));
        }
    return CB_OK;
}
