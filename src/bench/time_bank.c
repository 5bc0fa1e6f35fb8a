/* SPDX-License-Identifier: MIT */
/* time_bank.c - random keys and values of several layers, which attention is timed over. */
#include "time_bank.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bank/pages.h"
#include "base/err.h"
#include "device/kivi.h"

enum { SAMPLE = 64 /* random tokens; the others repeat them */ };

const struct op_form cb_op_form[] = { { "f32", KV_F32, 0 },   { "f16", KV_F16, 0 },
                                      { "bf16", KV_BF16, 0 }, { "q8_0", KV_Q8_0, 0 },
                                      { "kivi4", KV_F16, 4 }, { "kivi2", KV_F16, 2 },
                                      { .name = NULL } };

/* Stored bytes of `SAMPLE` tokens: keys (v = 0) or values */
static void encode(struct device *d, const struct op_bank *k, int v, const float *x, char *out)
{
    const int hd = k->s->hd, bits = k->form->bits;
    const size_t block = cb_kivi_block_bytes(bits);

    if (!bits) {
        d->ops->kv_encode(d, k->form->type, x, SAMPLE, hd, hd, out);
        cb_device_wait(d); /* a failure comes again when the ops are timed */
        return;
    }
    for (int i = 0; i < SAMPLE * hd / KIVI_GROUP; i++) {
        const int g = i / hd, c = i % hd; /* keys: group of tokens, channel */
        const float *from = v ? x + i * KIVI_GROUP : x + g * KIVI_GROUP * hd + c;
        cb_kivi_encode(bits, KIVI_GROUP, from, v ? 1 : hd, out + (size_t)i * block);
    }
}

static size_t bytes_of(const struct op_bank *k, int n_tok)
{
    const int bits = k->form->bits;

    if (bits)
        return (size_t)n_tok * (size_t)(k->s->hd / KIVI_GROUP) * cb_kivi_block_bytes(bits);
    return (size_t)n_tok * cb_kv_row_bytes(k->form->type, k->s->hd);
}

static void fill_bank(struct device *d, struct op_bank *k, const float *x)
{
    const int bits = k->form->bits, n_ctx = k->s->n_ctx;
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

/* Tells a device with memory of its own which rows it may mirror. */
static int watch(struct device *d, const struct op_bank *k, int on)
{
    const struct device_memory *m = d->ops->memory;
    const int bits = k->form->bits;

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

static void bank_close(struct device *d, struct op_bank *k)
{
    watch(d, k, 0);
    cb_pages_release(k->mem, k->bytes);
    free(k->run);
    free(k->kivi);
    free(k->step);
    cb_device_free(d, k->q);
    cb_device_free(d, k->out);
}

static int bank_open(struct op_bench *b, struct op_bank *k, size_t cold_bytes)
{
    struct device *d = b->d;
    const struct op_shape *s = k->s;
    const size_t row = (size_t)s->n_head * (size_t)s->hd;
    size_t layer, n;
    float *sample;

    k->head_bytes = bytes_of(k, s->n_ctx);
    layer = 2 * k->head_bytes * (size_t)s->n_kv;
    k->n_layer = 1 + (int)(cold_bytes / layer);
    k->bytes = layer * (size_t)k->n_layer;
    n = (size_t)k->n_layer * (size_t)s->n_kv;
    k->run = cb_calloc(n, sizeof *k->run);
    k->kivi = cb_calloc(n, sizeof *k->kivi);
    k->q = cb_op_floats(b, OP_BANK_QUERIES * row);
    k->out = cb_device_alloc(d, OP_BANK_QUERIES * row, sizeof *k->out);
    if (!k->run || !k->kivi || !k->q || !k->out)
        return CB_ENOMEM;
    TRY(cb_op_reserve(k->bytes, &k->mem));
    sample = cb_calloc(SAMPLE, (size_t)s->hd * sizeof *sample);
    if (!sample)
        return CB_ENOMEM;
    cb_op_fill(sample, SAMPLE * (size_t)s->hd);
    fill_bank(d, k, sample);
    free(sample);
    return watch(d, k, 1);
}

int cb_op_bank_with(struct op_bench *b, const struct op_shape *shape, const struct op_form *form,
                    int n_ctx, size_t cold_bytes, int (*run)(struct op_bench *b, struct op_bank *k))
{
    struct op_shape s = *shape;
    struct op_bank k = { .s = &s, .form = form };
    int err;

    if (n_ctx)
        s.n_ctx = n_ctx;
    err = bank_open(b, &k, cold_bytes);
    if (!err)
        err = run(b, &k);
    bank_close(b->d, &k);
    return err;
}

struct attn cb_op_bank_attn(const struct op_bank *k)
{
    return (struct attn){ .n_tok = 1,
                          .n_head = k->s->n_head,
                          .n_kv = k->s->n_kv,
                          .hd = k->s->hd,
                          .scale = 1 / sqrtf((float)k->s->hd),
                          .type_k = k->form->type,
                          .type_v = k->form->type,
                          .q = k->q,
                          .q_stride = k->s->n_head * k->s->hd,
                          .out = k->out };
}

int cb_op_bank_prepack(struct device *d, struct op_bank *k)
{
    const struct op_shape *s = k->s;
    const struct ops *op = d->ops;
    const enum kv_type t = k->form->type;
    const int n_run = k->n_layer * s->n_kv, n_block = s->n_ctx / KV_PREPACK;

    if (k->form->bits || !op->can_prepack || !op->can_prepack(d, t, t, s->hd))
        return 0;
    k->step = cb_calloc(2 * (size_t)n_run, (size_t)s->n_ctx * sizeof *k->step);
    if (!k->step)
        return CB_ENOMEM;
    for (int i = 0; i < n_run; i++) {
        char *keys = k->mem + 2 * (size_t)i * k->head_bytes, *values = keys + k->head_bytes;
        float *step_k = k->step + 2 * (size_t)i * (size_t)s->n_ctx, *step_v = step_k + s->n_ctx;
        op->prepack(d, t, 0, s->hd, keys, n_block, step_k);
        op->prepack(d, t, 1, s->hd, values, n_block, step_v);
        k->run[i] = (struct kv_run){ .k = keys,
                                     .v = values,
                                     .n = s->n_ctx,
                                     .prepacked = n_block * KV_PREPACK,
                                     .step_k = step_k,
                                     .step_v = step_v };
    }
    return 1;
}

int cb_op_bank_emit(struct op_bench *b, const struct op_bank *k, const char *op, int n_tok,
                    int n_read, double seconds)
{
    const struct op_shape *s = k->s;
    const double pairs = n_tok > 1 ? n_tok * (n_read - (n_tok - 1) / 2.0) : n_read;
    const enum kv_type t = k->form->type;
    /* with AVX-512, KIVI codes are multiplied as bytes, except in prompts */
    const int bytes = t == KV_Q8_0 || (k->form->bits && n_tok == 1 && b->limit[LIMIT_BF16] > 0);
    const enum limit unit = t == KV_F32 ? LIMIT_F32 : bytes ? LIMIT_INT8 : LIMIT_BF16;
    const int scattered = n_tok == 1 && n_read < s->n_ctx;
    struct op_row row = { .op = op,
                          .type = k->form->name,
                          .model = s->model,
                          .n_tok = n_tok,
                          .n_ctx = n_tok > 1 ? n_read : s->n_ctx,
                          .s = seconds,
                          .bytes = 2.0 * (double)bytes_of(k, n_read) * s->n_kv,
                          .flop = 4.0 * s->hd * s->n_head * pairs,
                          .read = b->limit[LIMIT_READ],
                          .peak = b->limit[unit] > 0 ? b->limit[unit] : b->limit[LIMIT_F32] };

    if (scattered && b->limit[LIMIT_GATHER_128] > 0)
        row.read = b->limit[bytes_of(k, 1) < 512 ? LIMIT_GATHER_128 : LIMIT_GATHER_512];
    snprintf(row.shape, sizeof row.shape, "%d/%d heads of %d", s->n_head, s->n_kv, s->hd);
    return cb_op_emit(b, &row);
}
