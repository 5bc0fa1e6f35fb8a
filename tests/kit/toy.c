/* SPDX-License-Identifier: MIT */
/* toy.c - sessions for tests: without weights, and of tiny models. */
#include "toy.h"
#include "inside.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "suite.h"
#include "tiny.h"

static double draw(uint32_t *x)
{
    *x = (1103515245u * *x + 12345u) & 0x7fffffffu;
    return (double)*x / 1073741824.0 - 1;
}

float *cb_toy_row(struct toy *t, int l, int tok)
{
    return t->qkv + (size_t)(l * t->n_tok + tok) * (size_t)t->row;
}

/* Fills n_head heads of all layers and tokens; they begin at float `at` of a row. */
static void fill(struct toy *t, uint32_t *x, int n_head, int at)
{
    const int hd = t->model.hp.hd;

    for (int l = 0; l < t->model.hp.n_layer; l++)
        for (int h = 0; h < n_head; h++)
            for (int i = 0; i < t->n_tok; i++)
                for (int c = 0; c < hd; c++)
                    cb_toy_row(t, l, i)[at + h * hd + c] = (float)draw(x);
}

static void open_toy(struct toy *t, const char *device, int n_threads, const struct hparams *hp,
                     int n_tok, const struct cb_session_params *params, unsigned seed)
{
    uint32_t x = seed;

    memset(t, 0, sizeof *t);
    t->model.hp = *hp;
    t->model.hp.attn_scale = 1 / sqrtf((float)hp->hd);
    t->model.hp.n_ff_max = hp->n_ff;
    t->model.hp.hd_max = hp->hd;
    t->model.hp.kv_max = hp->n_kv * hp->hd;
    t->model.hp.rope[0] =
        (struct rope_params){ .n_rot = hp->n_rot, .base = 10000, .factor = 1, .attn_factor = 1 };
    t->model.arch = cb_arch_at(0);
    t->model.layer = calloc((size_t)hp->n_layer, sizeof *t->model.layer);
    ck_assert_ptr_nonnull(t->model.layer);
    for (int l = 0; l < hp->n_layer; l++)
        t->model.layer[l] = (struct layer){ .n_kv = hp->n_kv, .hd = hp->hd, .window = hp->window };
    ck_assert_ok(cb_device_open(device, n_threads, &t->model.dev));
    t->n_tok = n_tok;
    t->row = (hp->n_head + 2 * hp->n_kv) * hp->hd;
    t->qkv = malloc((size_t)(hp->n_layer * n_tok * t->row) * sizeof *t->qkv);
    ck_assert_ptr_nonnull(t->qkv);
    fill(t, &x, hp->n_head, 0);
    fill(t, &x, hp->n_kv, hp->n_head * hp->hd);
    fill(t, &x, hp->n_kv, (hp->n_head + hp->n_kv) * hp->hd);
    ck_assert_ok(cb_session_open(&t->model, params, &t->s));
}

void cb_toy_open(struct toy *t, const char *device, int n_threads, const struct hparams *hp,
                 int n_tok, const char *policy, const char *type_k, const char *type_v,
                 unsigned seed)
{
    const struct cb_session_params params = {
        .n_ctx = n_tok, .policy = policy, .type_k = type_k, .type_v = type_v
    };
    open_toy(t, device, n_threads, hp, n_tok, &params, seed);
}

void cb_toy_open_prefill(struct toy *t, const char *device, const struct hparams *hp, int n_tok,
                         const char *policy, const char *prefill, unsigned seed)
{
    const struct cb_session_params params = {
        .n_ctx = n_tok, .policy = policy, .type_k = "f32", .type_v = "f32", .prefill = prefill
    };
    open_toy(t, device, 2, hp, n_tok, &params, seed);
}

void cb_toy_close(struct toy *t)
{
    cb_session_close(t->s);
    cb_device_close(t->model.dev);
    free(t->qkv);
    free(t->model.layer);
}

void cb_toy_attend(struct cb_session *s, int l, const float *qkv, int n, int pos0, int pos_end,
                   float *out)
{
    const struct hparams *hp = &s->model->hp;
    const int nq = hp->n_head * hp->hd, nkv = hp->n_kv * hp->hd;
    struct attention_call call = {
        .a = &s->attention,
        .c = { .l = l,
               .q = qkv,
               .k = qkv + nq,
               .v = qkv + nq + nkv,
               .stride = nq + 2 * nkv,
               .n = n,
               .pos0 = pos0,
               .pos_end = pos_end },
        .out = out,
    };

    ck_assert_ok(cb_attend(&call, 1));
}

static void feed(struct toy *t, int n, int chunk, float *out)
{
    const int nq = t->model.hp.n_head * t->model.hp.hd, pos0 = t->s->bank.n_seen;
    float *tmp = malloc((size_t)(n * nq) * sizeof *tmp);

    t->s->bank.n_feed = n;
    for (int l = 0; l < t->model.hp.n_layer; l++) {
        for (int i = 0; i < n; i += chunk) {
            const int m = n - i < chunk ? n - i : chunk;
            cb_toy_attend(t->s, l, cb_toy_row(t, l, pos0 + i), m, pos0 + i, pos0 + n,
                          tmp + (size_t)(i * nq));
        }
        ck_assert_ok(cb_attend_end(&t->s->attention, l));
        if (out)
            memcpy(out + (size_t)(l * n * nq), tmp, (size_t)(n * nq) * sizeof *tmp);
    }
    t->s->bank.n_seen += n;
    t->s->bank.n_feed = 0;
    free(tmp);
}

void cb_toy_prompt(struct toy *t, int n, int chunk, float *out)
{
    t->s->bank.decoding = 0;
    feed(t, n, chunk, out);
    t->s->bank.prompt_end = t->s->bank.n_seen;
}

void cb_toy_decode(struct toy *t, float *out)
{
    t->s->bank.decoding = 1;
    t->s->bank.read_bytes = 0;
    feed(t, 1, 1, out);
}

const char *cb_toy_values(const char *type_k)
{
    return type_k && !strcmp(type_k, "planes") ? "q8_0" : type_k;
}

struct cb_model *cb_toy_model(const struct tiny *tiny, const char *device, int n_threads)
{
    return cb_toy_model_with(tiny,
                             &(struct cb_model_params){ .n_threads = n_threads, .device = device });
}

struct cb_model *cb_toy_model_with(const struct tiny *tiny, const struct cb_model_params *params)
{
    struct cb_model *m;
    char path[64];

    snprintf(path, sizeof path, "toy.%d.tmp", (int)getpid());
    cb_tiny_save(tiny, path);
    ck_assert_ok(cb_model_open(path, params, &m));
    unlink(path);
    return m;
}

struct cb_session *cb_toy_session(struct cb_model *m, const char *policy, const char *type_kv,
                                  int chunk)
{
    const struct cb_session_params params = {
        .policy = policy, .type_k = type_kv, .type_v = type_kv, .chunk = chunk
    };
    struct cb_session *s;

    ck_assert_ok(cb_session_open(m, &params, &s));
    return s;
}

void cb_toy_refused(struct cb_model *m, const struct cb_session_params *params, const char *why)
{
    struct cb_session *s;

    ck_assert_int_eq(cb_session_open(m, params, &s), CB_EARG);
    ck_assert_msg(strstr(cb_error(), why), "%s: %s", params->policy, cb_error());
}

const int32_t *cb_toy_text(const struct cb_model *m)
{
    static int32_t t[TOY_TEXT];
    uint64_t rng = 3;

    for (int i = 0; i < TOY_TEXT; i++)
        t[i] = (int32_t)(cb_rand_u64(&rng) % (uint64_t)m->hp.n_vocab);
    return t;
}

cb_model *cb_toy_open_file(const char *path, const struct cb_model_params *p)
{
    cb_model *m;
    const int err = cb_model_open(path, p, &m);

    if (err == CB_EUNSUPPORTED && strstr(cb_error(), "instruction set")) {
        ck_assert_str_ne(p->isa, "scalar");
        return NULL;
    }
    ck_assert_msg(!err, "%s", cb_error());
    return m;
}

cb_session *cb_toy_exact_session(cb_model *m, int n_ctx, int chunk)
{
    const struct cb_session_params p = {
        .n_ctx = n_ctx, .chunk = chunk, .type_k = "f32", .type_v = "f32"
    };
    cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    return s;
}

void cb_toy_all_refused(cb_model *m, const char *const (*bad)[2], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct cb_session_params p = { .policy = bad[i][0] };
        cb_toy_refused(m, &p, bad[i][1]);
    }
}
