/* SPDX-License-Identifier: MIT */
/* check_prepack.c - prepacked blocks of keys and values: attention reads the same numbers from them
 * as from the rows they were, to the bit where it multiplies integers in any case, and they become
 * rows again. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctxbank.h"
#include "engine/session.h"
#include "kit/guard.h"
#include "kit/inside.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "model/model.h"

enum { MOST = 1152, MOST_HD = 256, N_KV = 2 };

static struct device *dev, *ref;

static void open_devices(void)
{
    ck_assert(!cb_device_open("cpu", 2, &dev));
    ck_assert(!cb_device_open("ref", 2, &ref));
    ck_assert(dev->ops->reserve(dev, 64, 1024, 1024, 16, MOST_HD, MOST) >= 0);
    ck_assert(ref->ops->reserve(ref, 64, 1024, 1024, 16, MOST_HD, MOST) >= 0);
}

static void close_devices(void)
{
    cb_device_close(dev);
    cb_device_close(ref);
}

/* The device has no such form: then nothing is prepacked, and there is nothing to test. */
static int can_prepack(enum kv_type k, enum kv_type v)
{
    return dev->ops->can_prepack && dev->ops->can_prepack(dev, k, v, 64);
}

/* 1: this type cannot be prepacked here, nor q8_0 where `or_q8`, so the test is skipped */
static int cannot_prepack(enum kv_type t, int or_q8)
{
    if (can_prepack(t, t) || (or_q8 && can_prepack(KV_Q8_0, KV_Q8_0)))
        return 0;
    cb_skip("%s does not prepack %s", dev->isa, cb_kv_type[t].name);
    return 1;
}

/* Rows of which a few dimensions are `most` times as large as the rest, as in real keys */
static void fill(float *x, int n, int hd, float most, uint32_t seed)
{
    for (int i = 0; i < n * hd; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = ((float)(seed >> 8) * 0x1p-23f - 1) * (i % hd % 13 == 5 ? most : 1.0f);
    }
}

/* A KV cache as rows, and the same with its first blocks prepacked. */
struct cache {
    enum kv_type t[2];
    int hd, n, prepacked;
    char *rows[2], *codes[2]; /* [N_KV][MOST] */
    float *step[2];           /* [N_KV][MOST]; NULL: rows hold their scales */
};

static float *steps(const struct cache *c, int h, int v)
{
    return c->step[v] ? c->step[v] + (size_t)h * MOST : NULL;
}

static void cache_open(struct cache *c, enum kv_type type_k, enum kv_type type_v, int hd, int n)
{
    float *x = cb_guarded(sizeof(float) * MOST * (size_t)hd);

    *c = (struct cache){
        .t = { type_k, type_v }, .hd = hd, .n = n, .prepacked = n / KV_PREPACK * KV_PREPACK
    };
    for (int v = 0; v < 2; v++) {
        const enum kv_type t = c->t[v];
        const size_t head = cb_kv_row_bytes(t, hd) * MOST;
        c->rows[v] = cb_guarded(N_KV * head);
        c->codes[v] = cb_guarded(N_KV * head);
        if (cb_kv_type[t].block == 1)
            c->step[v] = cb_guarded(N_KV * MOST * sizeof(float));
        for (int h = 0; h < N_KV; h++) {
            fill(x, n, hd, v ? 1 : 40, (uint32_t)(17 * h + v));
            dev->ops->kv_encode(dev, t, x, n, hd, hd, c->rows[v] + (size_t)h * head);
        }
        memcpy(c->codes[v], c->rows[v], N_KV * head);
        for (int h = 0; h < N_KV; h++)
            dev->ops->prepack(dev, t, v, hd, c->codes[v] + (size_t)h * head, n / KV_PREPACK,
                              steps(c, h, v));
    }
    free(x);
}

static void cache_close(struct cache *c)
{
    for (int v = 0; v < 2; v++) {
        free(c->rows[v]);
        free(c->codes[v]);
        free(c->step[v]);
    }
}

struct result {
    float *out, *lse, *logit;
};

/* Attention over the rows, or over what is prepacked of them. */
static struct result attend(struct device *d, const struct cache *c, int prepacked, int n_tok,
                            int group, int window, const float *q)
{
    const int n_head = N_KV * group;
    const size_t head_k = cb_kv_row_bytes(c->t[0], c->hd) * MOST;
    const size_t head_v = cb_kv_row_bytes(c->t[1], c->hd) * MOST;
    struct result r = { cb_guarded(sizeof(float) * (size_t)(n_tok * n_head * c->hd)),
                        cb_guarded(sizeof(float) * (size_t)(n_tok * n_head)),
                        cb_guarded(sizeof(float) * (size_t)n_head * MOST) };
    struct kv_run run[N_KV] = { 0 };
    const struct attn a = { .n_tok = n_tok,
                            .n_head = n_head,
                            .n_kv = N_KV,
                            .hd = c->hd,
                            .scale = 0.1f,
                            .causal = n_tok > 1,
                            .window = window,
                            .type_k = c->t[0],
                            .type_v = c->t[1],
                            .run = run,
                            .q = q,
                            .q_stride = n_head * c->hd,
                            .logit_stride = MOST,
                            .out = r.out,
                            .lse = r.lse };

    for (int h = 0; h < N_KV; h++) {
        run[h].k = (prepacked ? c->codes[0] : c->rows[0]) + (size_t)h * head_k;
        run[h].v = (prepacked ? c->codes[1] : c->rows[1]) + (size_t)h * head_v;
        run[h].n = c->n;
        run[h].prepacked = prepacked ? c->prepacked : 0;
        run[h].step_k = steps(c, h, 0);
        run[h].step_v = steps(c, h, 1);
        run[h].logit = n_tok == 1 ? r.logit + (size_t)(h * group) * MOST : NULL;
    }
    d->ops->attention(d, &a, 1);
    return r;
}

static void result_free(struct result *r)
{
    free(r->out);
    free(r->lse);
    free(r->logit);
}

static void near(const char *what, const float *got, const float *want, int n, float tol)
{
    for (int i = 0; i < n; i++)
        ck_assert_msg(fabsf(got[i] - want[i]) <= tol * (1 + fabsf(want[i])),
                      "%s: [%d] is %g, not %g", what, i, (double)got[i], (double)want[i]);
}

static void compare(enum kv_type k, enum kv_type v, int hd, int n, int n_tok, int group, int window)
{
    const int n_head = N_KV * group, q8 = k == KV_Q8_0 && v == KV_Q8_0;
    const int integers = n_tok > 1 || group >= 4 || q8;
    const float tol = 1e-3f * sqrtf((float)hd); /* some dimensions of keys are 40 */
    float *q;
    struct result got, rows, plain;
    struct cache c;

    if (!can_prepack(k, v))
        return;
    cache_open(&c, k, v, hd, n);
    q = cb_guarded(sizeof(float) * (size_t)(n_tok * n_head * hd));
    fill(q, n_tok * n_head, hd, 1, 99);
    got = attend(dev, &c, 1, n_tok, group, window, q);
    rows = attend(dev, &c, 0, n_tok, group, window, q);
    plain = attend(ref, &c, 0, n_tok, group, window, q);
    if (integers)
        ck_assert_msg(!memcmp(got.out, rows.out, sizeof(float) * (size_t)(n_tok * n_head * hd)),
                      "%s and %s, hd %d, %d entries, %d tokens, group %d", cb_kv_type[k].name,
                      cb_kv_type[v].name, hd, n, n_tok, group);
    near("out", got.out, plain.out, n_tok * n_head * hd, tol);
    near("lse", got.lse, plain.lse, n_tok * n_head, tol);
    if (n_tok == 1 && window == 0)
        for (int h = 0; h < n_head; h++)
            near("logits", got.logit + h * MOST, plain.logit + h * MOST, n, tol);
    result_free(&got);
    result_free(&rows);
    result_free(&plain);
    cache_close(&c);
    free(q);
}

START_TEST(attention_is_that_of_the_rows)
{
    static const int hd[] = { 32, 64, 96, 128, 256 }, length[] = { 127, 128, 300, 640, 1100 };

    if (cannot_prepack(KV_F16, 1))
        return;
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++)
            for (int group = 1; group <= 8; group += 2) {
                const enum kv_type half = j % 2 ? KV_BF16 : KV_F16;
                compare(KV_F16, KV_F16, hd[i], length[j], 1, group, 0);
                compare(half, half, hd[i], length[j], 1, group, 200);
                compare(KV_Q8_0, KV_Q8_0, hd[i], length[j], 1, group, 0);
                compare(KV_Q8_0, KV_Q8_0, hd[i], length[j], 1, group, 200);
                if (group != 1 + 2 * (j % 4))
                    continue;
                compare(KV_Q8_0, half, hd[i], length[j], 1, group, 0);
                compare(half, KV_Q8_0, hd[i], length[j], 1, group, 0);
            }
}
END_TEST

START_TEST(a_prompt_reads_what_is_prepacked_before_it)
{
    if (cannot_prepack(KV_F16, 1))
        return;
    for (int hd = 64; hd <= 128; hd += 64) {
        compare(KV_F16, KV_F16, hd, 300, 40, 7, 0);
        compare(KV_F16, KV_F16, hd, 1100, 60, 3, 0);
        compare(KV_BF16, KV_BF16, hd, 700, 33, 2, 150);
        compare(KV_Q8_0, KV_Q8_0, hd, 300, 40, 7, 0);
        compare(KV_Q8_0, KV_F16, hd, 1100, 60, 3, 0);
        compare(KV_BF16, KV_Q8_0, hd, 700, 33, 2, 150);
    }
}
END_TEST

/* Only the first entries of prepacked blocks are read, as where tokens are left out that lie after
 * them. */
START_TEST(a_run_ends_in_a_prepacked_block)
{
    static const enum kv_type type[] = { KV_F16, KV_BF16, KV_Q8_0 };

    if (cannot_prepack(KV_F16, 1))
        return;
    for (int i = 0; i < 3; i++)
        for (int n = 1; n < 300; n += 37) {
            const int hd = 64, group = 7, whole = 384;
            struct result got, want;
            struct cache c;
            float *q;
            if (!can_prepack(type[i], type[i]))
                continue;
            cache_open(&c, type[i], type[i], hd, whole);
            q = cb_guarded(sizeof(float) * (size_t)(N_KV * group * hd));
            fill(q, N_KV * group, hd, 1, 7);
            c.n = n;
            got = attend(dev, &c, 1, 1, group, 0, q);
            want = attend(dev, &c, 0, 1, group, 0, q);
            ck_assert(!memcmp(got.out, want.out, sizeof(float) * (size_t)(N_KV * group * hd)));
            result_free(&got);
            result_free(&want);
            cache_close(&c);
            free(q);
        }
}
END_TEST

/* A block that rows enter one by one is the block that they make together, and gives them back
 * alone. */
START_TEST(single_rows_are_prepacked)
{
    static const enum kv_type type[] = { KV_F16, KV_BF16, KV_Q8_0 };
    static char codes[KV_PREPACK * 2 * 256], row[2 * 256], block[KV_PREPACK * 2 * 256];
    static float step[KV_PREPACK];

    if (cannot_prepack(KV_F16, 1))
        return;
    for (int i = 0; i < 3; i++)
        for (int hd = 32; hd <= 256; hd += 32)
            for (int v = 0; v < 2 && can_prepack(type[i], type[i]); v++) {
                const enum kv_type t = type[i];
                const size_t bytes = cb_kv_row_bytes(t, hd);
                struct cache c;
                cache_open(&c, t, t, hd, KV_PREPACK);
                memset(codes, 0x55, sizeof codes);
                for (int j = 0; j < KV_PREPACK; j++) {
                    const int at = (j * 37 + 5) % KV_PREPACK;
                    dev->ops->prepack_row(dev, t, v, hd, c.rows[v] + (size_t)at * bytes, at, codes,
                                          t == KV_Q8_0 ? NULL : step);
                }
                ck_assert(!memcmp(codes, c.codes[v], KV_PREPACK * bytes));
                ck_assert(t == KV_Q8_0 || !memcmp(step, steps(&c, 0, v), sizeof step));
                dev->ops->unpack(dev, t, v, hd, codes, step, 0, KV_PREPACK, block);
                for (int j = 0; j < KV_PREPACK; j++) {
                    dev->ops->unpack(dev, t, v, hd, codes, step, j, 1, row);
                    ck_assert(!memcmp(row, block + (size_t)j * bytes, bytes));
                }
                cache_close(&c);
            }
}
END_TEST

/* What is rounded off twice is what was rounded off once. */
START_TEST(rows_come_back)
{
    const int hd = 64, n = 256;
    const size_t block = KV_PREPACK * cb_kv_row_bytes(KV_F16, hd);
    struct cache c;
    float *x = cb_guarded(sizeof(float) * (size_t)(KV_PREPACK * hd)),
          *y = cb_guarded(sizeof(float) * (size_t)(KV_PREPACK * hd)), step[KV_PREPACK];
    char *again = cb_guarded(block);

    if (cannot_prepack(KV_F16, 0))
        return;
    cache_open(&c, KV_F16, KV_F16, hd, n);
    for (int v = 0; v < 2; v++) {
        dev->ops->unpack(dev, KV_F16, v, hd, c.codes[v] + block, c.step[v] + KV_PREPACK, 0,
                         KV_PREPACK, again);
        dev->ops->kv_decode(dev, KV_F16, again, NULL, KV_PREPACK, hd, x);
        dev->ops->kv_decode(dev, KV_F16, c.rows[v] + block, NULL, KV_PREPACK, hd, y);
        near("row", x, y, KV_PREPACK * hd, 40.0f / 8191);
        dev->ops->prepack(dev, KV_F16, v, hd, again, 1, step);
        ck_assert(!memcmp(again, c.codes[v] + block, block));
        ck_assert(!memcmp(step, c.step[v] + KV_PREPACK, sizeof step));
    }
    cache_close(&c);
    free(x);
    free(y);
    free(again);
}
END_TEST

/* Rows of a largest magnitude `top`, as stored, and of all those from `x` on that are no larger:
 * they come back with the same codes and steps. Returns the first one that is left. */
static int codes_come_back(enum kv_type t, int top, int x)
{
    enum { HD = 64 };
    static uint16_t codes[KV_PREPACK * HD], again[KV_PREPACK * HD];
    static float step[KV_PREPACK], step_again[KV_PREPACK];

    for (int v = 0; v < 2; v++) {
        int next = x;
        for (int i = 0; i < KV_PREPACK * HD; i++) {
            codes[i] = (uint16_t)(i % HD && next < top ? next++ : top);
            codes[i] |= (uint16_t)(i % 3 ? 0 : 0x8000); /* signs */
        }
        dev->ops->prepack(dev, t, v, HD, codes, 1, step);
        dev->ops->unpack(dev, t, v, HD, codes, step, 0, KV_PREPACK, again);
        dev->ops->prepack(dev, t, v, HD, again, 1, step_again);
        ck_assert_msg(!memcmp(codes, again, sizeof codes) && !memcmp(step, step_again, sizeof step),
                      "%s: largest %x, from %x", cb_kv_type[t].name, (unsigned)top, (unsigned)x);
    }
    return x + KV_PREPACK * (HD - 1);
}

/* All numbers that have a code beside all largest ones: a cut may unpack a block. A power of two
 * changes nothing, so the largest ones are those of one, and those that f16 rounds to its least. */
START_TEST(all_codes_come_back)
{
    static const struct {
        enum kv_type t;
        int from, to, below; /* largest magnitudes; how much smaller ones may be */
    } all[] = { { KV_F16, 0x3c00, 0x4000, 14 << 10 },
                { KV_F16, 0, 0x400, 0x400 },
                { KV_BF16, 0x3f80, 0x4000, 14 << 7 },
                { KV_BF16, 0x0d00, 0x0d80, 14 << 7 } };
    const int n = cb_test_brief() ? 3 : 1;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int top = all[i].from; top < all[i].to && can_prepack(all[i].t, all[i].t); top += n) {
            int x = top > all[i].below ? top - all[i].below : 0;
            do
                x = codes_come_back(all[i].t, top, x);
            while (x < top);
        }
    (void)cannot_prepack(KV_F16, 0);
}
END_TEST

/* A scale and codes are moved alone, whatever they are. */
START_TEST(blocks_of_scales_come_back_as_they_were)
{
    const int hd = 96;
    const size_t block = KV_PREPACK * cb_kv_row_bytes(KV_Q8_0, hd);
    unsigned char *rows = cb_guarded(block), *codes = cb_guarded(block);
    uint32_t seed = 5;

    if (cannot_prepack(KV_F16, 1))
        return;
    for (int v = 0; v < 2 && can_prepack(KV_Q8_0, KV_Q8_0); v++) {
        for (size_t i = 0; i < block; i++)
            rows[i] = codes[i] = (unsigned char)((seed = seed * 1664525u + 1013904223u) >> 24);
        dev->ops->prepack(dev, KV_Q8_0, v, hd, codes, 1, NULL);
        ck_assert(memcmp(rows, codes, block));
        dev->ops->unpack(dev, KV_Q8_0, v, hd, codes, NULL, 0, KV_PREPACK, codes);
        ck_assert(!memcmp(rows, codes, block));
    }
    free(rows);
    free(codes);
}
END_TEST

/* ---- a store ---- */

enum { STORE_HD = 32 };

/* Appends tokens pos0.. whose keys and values tell them apart. */
static void append(struct store *s, int pos0, int n)
{
    float *x = cb_guarded(sizeof(float) * (size_t)(n * N_KV * STORE_HD));

    for (int i = 0; i < n * N_KV * STORE_HD; i++)
        x[i] = sinf((float)(pos0 * N_KV * STORE_HD + i) * 0.7f);
    ck_assert(!cb_store_append(s, dev, x, x, N_KV * STORE_HD, n, pos0));
    free(x);
}

/* Every slot holds its token, as near as prepacked blocks of sines are. */
static void expect_tokens(const struct store *s)
{
    float x[STORE_HD], want[STORE_HD];

    for (int h = 0; h < N_KV; h++)
        for (int i = 0; i < s->n[h]; i++)
            for (int v = 0; v < 2; v++) {
                const int at = (cb_store_pos(s, h, i) * N_KV + h) * STORE_HD;
                for (int d = 0; d < STORE_HD; d++)
                    want[d] = sinf((float)(at + d) * 0.7f);
                cb_store_get(s, dev, h, v, i, x);
                near("slot", x, want, STORE_HD, 1e-3f);
            }
}

/* Two slots dropped without a token between them: the last row goes into the first one's hole, so
 * its block is rows again, and is prepacked again when it is full. */
START_TEST(a_filled_hole_unpacks_the_last_block)
{
    static const int drops[][2] = { { 5, 9 }, { 200, 3 }, { 5, 253 } };
    struct store s;

    if (cannot_prepack(KV_F16, 0))
        return;
    ck_assert(!cb_store_open(&s, N_KV, STORE_HD, MOST, KV_F16, KV_F16, 0));
    cb_store_may_prepack(&s, dev);
    s.any_order = 1;
    append(&s, 0, 256);
    ck_assert(!cb_store_prepack(&s));
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(s.prepacked, 256);
        for (int h = 0; h < N_KV; h++)
            ck_assert(!cb_store_drop(&s, h, drops[_i][i]));
    }
    ck_assert_int_eq(s.prepacked, 128);
    ck_assert_int_eq(s.rows[0], 255);
    expect_tokens(&s);
    append(&s, 256, 3);
    ck_assert(!cb_store_prepack(&s));
    ck_assert_int_eq(s.prepacked, 256);
    expect_tokens(&s);
    cb_store_close(&s);
}
END_TEST

/* ---- a session ---- */

enum { N_PROMPT = 300, N_STEP = 150, N_CTX = 800 };
enum { ROWS_PROMPT = 140, ROWS_STEP = 3 }; /* where types cannot be prepacked */

static char path[64];
static cb_model *model;
static int32_t text[N_CTX];

static void open_model(void)
{
    struct tiny t = cb_tiny_get("llama");
    const struct cb_model_params p = { .n_threads = 2 };

    open_devices();
    t.n_head = 8;
    t.n_kv = 2;
    t.hd = 32;
    t.n_embd = t.n_ff = 64; /* attention is what is tested */
    snprintf(path, sizeof path, "check_seal_%d.gguf", (int)getpid());
    cb_tiny_save(&t, path);
    ck_assert_ok(cb_model_open(path, &p, &model));
    for (int i = 0; i < N_CTX; i++)
        text[i] = (i * 7919 + i / 3) % model->hp.n_vocab;
}

static void close_model(void)
{
    cb_model_close(model);
    unlink(path);
    close_devices();
}

struct types {
    enum kv_type k, v;
};
static const struct types types[] = {
    { KV_F16, KV_F16 }, { KV_Q8_0, KV_Q8_0 }, { KV_Q8_0, KV_F16 }, { KV_BF16, KV_Q8_0 }
};
enum { N_TYPES = sizeof types / sizeof *types };

static cb_session *open_session(const char *policy, struct types t, int prepack)
{
    const struct cb_session_params p = { .n_ctx = N_CTX,
                                         .chunk = 64,
                                         .policy = policy,
                                         .type_k = cb_kv_type[t.k].name,
                                         .type_v = cb_kv_type[t.v].name };
    cb_session *s;

    model->rows_only = !prepack; /* of sessions that are opened from now on */
    ck_assert_msg(!cb_session_open(model, &p, &s), "%s: %s", policy, cb_error());
    return s;
}

static void near_logits(const cb_session *a, const cb_session *b, float within, const char *when)
{
    const float *x = cb_session_logits(a), *y = cb_session_logits(b);

    for (int i = 0; i < model->hp.n_vocab; i++)
        ck_assert_msg(fabsf(x[i] - y[i]) <= within, "%s: %g beside %g", when, (double)x[i],
                      (double)y[i]);
}

static void same_logits(const cb_session *a, const cb_session *b, const char *when)
{
    near_logits(a, b, 0, when);
}

static int prepacked(const cb_session *s)
{
    return s->bank.store[0].prepacked;
}

/* most: slots that are prepacked at the end of the answer, where the types can be; else both
 * sessions do the same, and a few tokens tell. within: how far logits may be apart */
static void check_near(const char *policy, struct types t, int most, float within)
{
    const int packs = can_prepack(t.k, t.v), n_step = packs ? N_STEP : ROWS_STEP;
    const int n_prompt = packs ? N_PROMPT : ROWS_PROMPT;
    cb_session *with = open_session(policy, t, 1), *without = open_session(policy, t, 0);
    struct cb_memory plan, got;

    ck_assert(!cb_session_plan(with, n_prompt, n_step, &plan));
    for (int i = 0; i < 2; i++) {
        cb_session *s = i ? with : without;
        ck_assert(!cb_session_prefill(s, text, n_prompt, NULL));
    }
    same_logits(with, without, "prompt");
    for (int i = 0; i < n_step; i++) {
        ck_assert(!cb_session_decode(with, text[n_prompt + i]));
        ck_assert(!cb_session_decode(without, text[n_prompt + i]));
        near_logits(with, without, within, policy);
    }
    ck_assert_int_eq(prepacked(without), 0);
    ck_assert_int_eq(prepacked(with), packs ? most : 0);
    cb_session_memory(with, &got);
    if (!plan.at_most)
        ck_assert_double_eq_tol((double)got.kv_bytes / (double)plan.kv_bytes, 1, 0.01);
    ck_assert(!cb_session_prefill(with, text, 60, NULL));
    ck_assert(!cb_session_prefill(without, text, 60, NULL));
    near_logits(with, without, within, "second prompt");
    cb_session_close(with);
    cb_session_close(without);
}

static void check_session(const char *policy, struct types t, int most)
{
    check_near(policy, t, most, 0);
}

START_TEST(sessions_say_the_same)
{
    for (int i = 0; i < N_TYPES; i++) {
        check_session("full", types[i], 384);
        check_session("omnikv:filter=0,budget=40", types[i], 384);
    }
}
END_TEST

/* Rows until it is known that a layer is not lazy, and when it is asked about again; a lazy one was
 * prepacked as long as there was nothing to drop. */
START_TEST(what_is_not_lazy_is_prepacked)
{
    for (int i = 0; i < N_TYPES; i++) {
        check_session("simlayerkv:threshold=1,recent=40", types[i], 384);
        check_session("simlayerkv:threshold=1,recent=40,mode=prefill", types[i], 384);
        check_session("simlayerkv:threshold=-1,recent=40", types[i], 0);
        check_session("simlayerkv:threshold=-1,recent=398", types[i], 384);
    }
}
END_TEST

/* What was prepacked before tokens go one by one stays so: the next one takes its entry. */
START_TEST(sessions_that_drop_say_the_same)
{
    for (int i = 0; i < N_TYPES; i++) {
        check_session("snapkv:budget=150", types[i], 256);
        check_session("h2o:budget=140", types[i], 128);
        if (cb_test_brief())
            continue;
        check_session("window:budget=270", types[i], 256);
        check_session("streamingllm:budget=270", types[i], 256);
        check_session("streamingllm:budget=270,positions=kept", types[i], 256);
        check_session("tova:budget=256", types[i], 256);
        check_session("h2o:budget=140,group=mean", types[i], 128);
        check_session("h2o:budget=90", types[i], 0);
    }
}
END_TEST

/* What is merged is rounded once more when it was prepacked. */
START_TEST(merged_ones_say_nearly_the_same)
{
    for (int i = 0; i < N_TYPES; i++)
        check_near("d2o:budget=280,layers=uniform", types[i], 256, 0.01f);
}
END_TEST

START_TEST(the_first_token_decides)
{
    cb_session *s = open_session("simlayerkv:threshold=1,recent=40", types[_i], 1);
    const int most = can_prepack(types[_i].k, types[_i].v) ? 256 : 0;

    ck_assert(!cb_session_prefill(s, text, 300, NULL));
    ck_assert_int_eq(prepacked(s), 0);
    ck_assert(!cb_session_decode(s, text[300]));
    ck_assert_int_eq(prepacked(s), most);
    cb_session_close(s);
}
END_TEST

static int stop_late(void *arg, int64_t done, int64_t total)
{
    (void)arg;
    return done > total * 3 / 4;
}

/* Half of the layers have prepacked what the rest will never see. */
START_TEST(a_stopped_prompt_is_forgotten)
{
    const struct cb_prefill stop = { .progress = stop_late };
    cb_session *s = open_session("full", types[_i], 1);
    cb_session *own = open_session("full", types[_i], 1);

    ck_assert(!cb_session_prefill(s, text, 200, NULL));
    ck_assert(!cb_session_prefill(own, text, 200, NULL));
    ck_assert_int_eq(cb_session_prefill(s, text + 200, 300, &stop), CB_ECANCEL);
    ck_assert_int_eq(cb_session_len(s), 200);
    ck_assert_int_eq(prepacked(s), prepacked(own));
    ck_assert(!cb_session_prefill(s, text + 200, 90, NULL));
    ck_assert(!cb_session_prefill(own, text + 200, 90, NULL));
    same_logits(s, own, "after the stop");
    cb_session_close(s);
    cb_session_close(own);
}
END_TEST

/* What was dropped does not come back: then all is forgotten, and rows lie as in a new session. */
START_TEST(a_stopped_prompt_after_drops_forgets_all)
{
    static const char *const policy[] = { "h2o:budget=200", "d2o:budget=200",
                                          "streamingllm:budget=200", "window:budget=200" };
    const struct cb_prefill stop = { .progress = stop_late };

    for (int i = 0; i < 4; i++) {
        cb_session *s = open_session(policy[i], types[_i], 1);
        cb_session *fresh = open_session(policy[i], types[_i], 1);
        ck_assert(!cb_session_prefill(s, text, 250, NULL));
        for (int t = 0; t < 20; t++)
            ck_assert(!cb_session_decode(s, text[250 + t]));
        ck_assert_int_eq(cb_session_prefill(s, text + 270, 300, &stop), CB_ECANCEL);
        ck_assert_int_eq(cb_session_len(s), 0);
        for (int j = 0; j < 2; j++)
            ck_assert(!cb_session_prefill(j ? s : fresh, text, 250, NULL));
        for (int t = 0; t < 20; t++) {
            ck_assert(!cb_session_decode(s, text[250 + t]));
            ck_assert(!cb_session_decode(fresh, text[250 + t]));
            same_logits(s, fresh, policy[i]);
        }
        cb_session_close(s);
        cb_session_close(fresh);
    }
}
END_TEST

static TCase *blocks(void)
{
    TCase *c = tcase_create("blocks");

    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, open_devices, close_devices);
    tcase_add_test(c, attention_is_that_of_the_rows);
    tcase_add_test(c, a_prompt_reads_what_is_prepacked_before_it);
    tcase_add_test(c, a_run_ends_in_a_prepacked_block);
    tcase_add_test(c, single_rows_are_prepacked);
    tcase_add_test(c, rows_come_back);
    tcase_add_test(c, all_codes_come_back);
    tcase_add_test(c, blocks_of_scales_come_back_as_they_were);
    tcase_add_loop_test(c, a_filled_hole_unpacks_the_last_block, 0, 3);
    return c;
}

static TCase *sessions(void)
{
    TCase *c = tcase_create("sessions");

    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, open_model, close_model);
    tcase_add_test(c, sessions_say_the_same);
    tcase_add_test(c, sessions_that_drop_say_the_same);
    if (cb_test_brief())
        return c;
    tcase_add_test(c, what_is_not_lazy_is_prepacked);
    tcase_add_test(c, merged_ones_say_nearly_the_same);
    tcase_add_loop_test(c, the_first_token_decides, 0, N_TYPES);
    tcase_add_loop_test(c, a_stopped_prompt_is_forgotten, 0, N_TYPES);
    tcase_add_loop_test(c, a_stopped_prompt_after_drops_forgets_all, 0, N_TYPES);
    return c;
}

int main(void)
{
    Suite *s = suite_create("prepack");

    suite_add_tcase(s, blocks());
    suite_add_tcase(s, sessions());
    return cb_suite_run(s);
}
