/* SPDX-License-Identifier: MIT */
/* check_matmul.c - matrix products of the CPU device, every type on every ISA of this machine,
 * against a product in double precision with the same rounding of the activations. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "ctxbank.h"
#include "kit/blocks.h"
#include "kit/guard.h"
#include "kit/isa.h"
#include "kit/suite.h"
#include "kit/tiles.h"
#include "par/affinity.h"

enum { PAD = 5 };

static uint32_t seed = 1;

static uint32_t rnd(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 17;
    seed ^= seed << 5;
    return seed;
}

static float uniform(void) /* -1..1 */
{
    return (float)(rnd() >> 8) * 0x1p-23f - 1;
}

static void *alloc(size_t n, size_t size)
{
    void *p = cb_guarded(n * size);
    return memset(p, 0, n * size);
}

/* Random codes of every kind (also those that a quantiser would not write), sane scales. */
static void random_weight(struct weight *w, enum dtype t, int n_in, int n_out)
{
    const struct dtype_info *info = &cb_dtype[t];
    const size_t bytes = cb_row_bytes(t, (int64_t)n_in * n_out);
    uint8_t *raw = alloc(bytes, 1);

    if (info->block == 1) {
        for (int64_t i = 0; i < (int64_t)n_in * n_out; i++) {
            const float v = uniform() * (rnd() % 50 ? 1 : 30);
            info->from_f32(&v, raw + cb_row_bytes(t, i), 1);
        }
    } else {
        for (size_t i = 0; i < bytes; i++)
            raw[i] = (uint8_t)(rnd() >> 11);
        for (uint8_t *b = raw; b < raw + bytes; b += info->block_bytes) {
            const float d = uniform() * 0.1f, m = uniform() * 0.2f;
            cb_block_steps(t, b, d, m);
        }
    }
    *w = (struct weight){ .name = "w", .type = t, .n_in = n_in, .n_out = n_out, .raw = raw };
}

static float *random_x(int n_tok, int n_in)
{
    float *x = alloc((size_t)n_tok * (size_t)n_in, sizeof *x);

    for (int64_t i = 0; i < (int64_t)n_tok * n_in; i++)
        x[i] = uniform() * (rnd() % 40 ? 1 : 60);
    for (int j = 0; n_tok > 1 && j < n_in && j < 32; j++) /* a block of zeros */
        x[n_in + j] = 0;
    return x;
}

static void fill_nan(float *y, size_t n)
{
    memset(y, 0xff, n * sizeof *y);
}

/* What one element should be, by exact products of the rounded activations, and how far the result
 * may be from that (f32 sums) and from the product with the unrounded ones (half a step of every
 * activation). */
struct expected {
    double value, tol, plain, plain_tol;
};

/* Activations as the product sees them, and half their rounding steps. */
struct rounded {
    float *x, *value, *half;
};

static struct rounded round_x(enum dtype t, float *x, int n_tok, int n_in)
{
    const size_t n = (size_t)n_tok * (size_t)n_in;
    struct rounded r = { x, alloc(n, sizeof *x), alloc(n, sizeof *x) };

    memcpy(r.value, x, n * sizeof *x);
    if (cb_dtype[t].block == 1)
        return r;
    for (size_t b = 0; b < n; b += 32) {
        float amax = 0;
        for (size_t j = b; j < b + 32; j++)
            amax = fmaxf(amax, fabsf(x[j]));
        for (size_t j = b; j < b + 32; j++) {
            r.value[j] = amax > 0 ? rintf(x[j] * (127 / amax)) * (amax / 127) : 0;
            r.half[j] = amax / 127 * 0.501f;
        }
    }
    return r;
}

static void free_rounded(struct rounded r)
{
    free(r.x);
    free(r.value);
    free(r.half);
}

static struct expected expect_dot(const float *w, const struct rounded *x, size_t at, int n)
{
    struct expected e = { 0 };
    double mag = 0;

    for (size_t j = 0; j < (size_t)n; j++) {
        const double p = (double)w[j] * (double)x->value[at + j];
        e.value += p;
        mag += fabs(p);
        e.plain += (double)w[j] * (double)x->x[at + j];
        e.plain_tol += fabs((double)w[j]) * (double)x->half[at + j];
    }
    e.tol = 1e-5 * mag + 1e-6;
    e.plain_tol += e.tol;
    return e;
}

/* part: of half a rounding step, by which the result may be off the sum of x->value */
static void check_near(const struct mm *m, const struct rounded *x, int n_tok, const float *before,
                       double part)
{
    const struct weight *w = m->w;
    float *row = alloc((size_t)w->n_in, sizeof *row);

    for (int r = 0; r < w->n_out; r++) {
        cb_dtype[w->type].to_f32((const char *)w->raw + cb_row_bytes(w->type, (int64_t)w->n_in * r),
                                 row, w->n_in);
        for (int t = 0; t < n_tok; t++) {
            const struct expected e = expect_dot(row, x, (size_t)t * (size_t)w->n_in, w->n_in);
            const size_t at = (size_t)t * (size_t)m->y_stride + (size_t)r;
            const double more =
                (m->bias ? (double)m->bias[r] : 0) + (m->add ? (double)before[at] : 0);
            const double got = (double)m->y[at] - more;
            const double sums = 2e-7 * fabs(more) + part * (e.plain_tol - e.tol);

            ck_assert_msg(fabs(got - e.value) <= e.tol + sums,
                          "%s %dx%d row %d token %d of %d: %g, not %g", cb_dtype[w->type].name,
                          w->n_out, w->n_in, r, t, n_tok, got, e.value);
            ck_assert_msg(fabs(got - e.plain) <= e.plain_tol + sums, "%s: %g far from %g",
                          cb_dtype[w->type].name, got, e.plain);
        }
    }
    for (int t = 0; t < n_tok; t++)
        for (int r = w->n_out; r < m->y_stride; r++)
            ck_assert_msg(isnan(m->y[t * m->y_stride + r]), "wrote past n_out");
    free(row);
}

static void check_product(const struct mm *m, const struct rounded *x, int n_tok,
                          const float *before)
{
    check_near(m, x, n_tok, before, 0);
}

/* One call on every ISA; add and bias by turns. */
static void check_shape(enum dtype t, int n_in, int n_out, int n_tok)
{
    const size_t n_y = (size_t)n_tok * (size_t)(n_out + PAD);
    const struct rounded x = round_x(t, random_x(n_tok, n_in), n_tok, n_in);
    float *y = alloc(n_y, sizeof *y), *before = alloc(n_y, sizeof *y);
    float *bias = random_x(1, n_out);
    struct weight w;

    random_weight(&w, t, n_in, n_out);
    for (int isa = 0; isa < N_ISA_MM; isa++) {
        struct device *d = cb_isa_open(isa, 1 + (int)(rnd() % 2));
        const int add = (int)(rnd() & 1);
        struct mm m = { &w, rnd() & 1 ? bias : NULL, y, n_out + PAD, add, 0 };

        if (!d)
            continue;
        ck_assert_int_eq(d->ops->load(d, &w), 0);
        ck_assert_int_ge(d->ops->reserve(d, n_tok, n_in, n_out, 1, 64, 1), 0);
        fill_nan(y, n_y);
        for (int64_t i = 0; add && i < n_tok; i++)
            for (int r = 0; r < n_out; r++)
                y[i * (n_out + PAD) + r] = uniform();
        memcpy(before, y, n_y * sizeof *y);
        d->ops->matmul(d, &m, 1, x.x, n_tok);
        check_product(&m, &x, n_tok, before);
        d->ops->unload(d, &w);
        cb_device_close(d);
    }
    free((void *)(uintptr_t)w.raw);
    free_rounded(x);
    free(y);
    free(before);
    free(bias);
}

START_TEST(shapes)
{
    static const int outs[] = { 1, 15, 16, 17, 33, 70 }, blocks[] = { 1, 3, 9 };
    static const int toks[] = { 0, 1, 2, 3, 4, 5, 7, 17 };
    const enum dtype t = (enum dtype)_i;

    for (size_t o = 0; o < sizeof outs / sizeof *outs; o++)
        for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
            for (size_t n = (o + b + t) % 2; n < sizeof toks / sizeof *toks; n += 2)
                check_shape(t, blocks[b] * cb_dtype[t].block, outs[o], toks[n]);
    check_shape(t, cb_dtype[t].block == 1 ? 77 : 512, 40, 64);
    check_shape(t, cb_dtype[t].block == 1 ? 33 : 256, 19, 513);
}
END_TEST

/* Tiles of every width that a panel is multiplied with */
START_TEST(tiles)
{
    static const int toks[] = { 7, 14, 15, 16, 17 };
    const int n_in = cb_dtype[_i].block == 1 ? 77 : cb_dtype[_i].block == 32 ? 288 : 512;

    for (size_t n = 0; n < sizeof toks / sizeof *toks; n++)
        check_shape((enum dtype)_i, n_in, 17, toks[n]);
}
END_TEST

/* Several matrices of different types in one call. */
START_TEST(many)
{
    enum { N = 4, IN = 512, TOK = 9 };
    static const enum dtype types[N] = { DT_Q4_K, DT_Q6_K, DT_F16, DT_Q8_0 };
    static const int outs[N] = { 130, 7, 33, 512 };
    const struct rounded quant = round_x(DT_Q8_0, random_x(TOK, IN), TOK, IN);
    const struct rounded plain = { quant.x, quant.x, alloc(TOK * IN, sizeof(float)) };

    for (int isa = 0; isa < N_ISA_MM; isa++)
        for (int n_tok = 1; n_tok <= TOK; n_tok += 4) {
            struct device *d = cb_isa_open(isa, 2);
            struct weight w[N];
            struct mm m[N];

            if (!d)
                continue;
            for (int i = 0; i < N; i++) {
                const size_t n_y = (size_t)TOK * (size_t)(outs[i] + PAD);
                random_weight(&w[i], types[i], IN, outs[i]);
                ck_assert_int_eq(d->ops->load(d, &w[i]), 0);
                m[i] = (struct mm){ &w[i], NULL, alloc(n_y, sizeof(float)), outs[i] + PAD, 0, 0 };
                fill_nan(m[i].y, n_y);
            }
            ck_assert_int_ge(d->ops->reserve(d, n_tok, IN, 512, 1, 64, 1), 0);
            d->ops->matmul(d, m, N, quant.x, n_tok);
            for (int i = 0; i < N; i++) {
                check_product(&m[i], types[i] == DT_F16 ? &plain : &quant, n_tok, NULL);
                d->ops->unload(d, &w[i]);
                free((void *)(uintptr_t)w[i].raw);
                free(m[i].y);
            }
            cb_device_close(d);
        }
    free(plain.half);
    free_rounded(quant);
}
END_TEST

/* A gate and what it lets through, at once and one after the other: the same bits. The
 * work space is what load reserves, and the rows are so many that panels of both fill it. */
START_TEST(gates)
{
    enum { IN = 512, OUT = 420, TOK = 29 };
    static const enum dtype types[][2] = {
        { DT_Q5_0, DT_Q5_0 }, { DT_Q4_K, DT_Q6_K }, { DT_F16, DT_BF16 }, { DT_Q8_0, DT_F32 }
    };
    static const int n_tok[] = { 1, 2, 7, TOK };
    const enum act_kind act = _i % 2 ? ACT_GELU_TANH : ACT_SILU;
    float *x = random_x(TOK, IN), *y[4];
    struct weight w[2];

    for (int i = 0; i < 4; i++)
        y[i] = alloc(TOK * OUT, sizeof *y[i]);
    for (int i = 0; i < 2; i++)
        random_weight(&w[i], types[_i][i], IN, OUT);
    for (int isa = 0; isa < N_ISA_MM; isa++) {
        struct device *d = cb_isa_open(isa, 2);

        if (!d)
            continue;
        for (int i = 0; i < 2; i++)
            ck_assert_int_eq(d->ops->load(d, &w[i]), 0);
        for (int k = 0; k < 8; k++) {
            const int n = n_tok[k / 2], bits = n == 1 && k % 2 ? 16 : 0;
            struct mm m[4];

            for (int i = 0; i < 4; i++) {
                m[i] = (struct mm){ &w[i % 2], NULL, y[i], OUT, 0, bits };
                fill_nan(y[i], TOK * OUT);
            }
            d->ops->matmul(d, m, 2, x, n);
            d->ops->glu(d, act, y[0], y[1], OUT, n);
            d->ops->matmul_glu(d, m + 2, act, x, n);
            ck_assert_msg(!memcmp(y[0], y[2], (size_t)(n * OUT) * sizeof *y[0]),
                          "%s: %s %s, %d tokens", cb_isa[isa], cb_dtype[types[_i][0]].name,
                          cb_dtype[types[_i][1]].name, n);
            ck_assert_msg(n == TOK || isnan(y[2][n * OUT]), "wrote past its tokens");
        }
        for (int i = 0; i < 2; i++)
            d->ops->unload(d, &w[i]);
        cb_device_close(d);
    }
    for (int i = 0; i < 2; i++)
        free((void *)(uintptr_t)w[i].raw);
    for (int i = 0; i < 4; i++)
        free(y[i]);
    free(x);
}
END_TEST

/* A token's result is the same bits for any number of threads and for any split of the call. */
START_TEST(same_bits)
{
    enum { OUT = 150, TOK = 29 };
    const enum dtype t = (enum dtype)_i;
    const int n_in = cb_dtype[t].block == 1 ? 77 : 1024;
    static const int steps[] = { TOK, 1, 2, 3, 4, 5, 6, 13 };
    float *x = random_x(TOK, n_in);
    float *first = alloc(TOK * OUT, sizeof *first), *y = alloc(TOK * OUT, sizeof *y);
    struct weight w;

    random_weight(&w, t, n_in, OUT);
    for (int isa = 0; isa < N_ISA_MM; isa++)
        for (int threads = 1; threads <= 3; threads++) {
            struct device *d = cb_isa_open(isa, threads);

            if (!d)
                continue;
            ck_assert_int_eq(d->ops->load(d, &w), 0);
            for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
                fill_nan(y, TOK * OUT);
                for (int at = 0; at < TOK; at += steps[s]) {
                    struct mm m = { &w, NULL, y + at * OUT, OUT, 0, 0 };
                    const int n = steps[s] < TOK - at ? steps[s] : TOK - at;
                    d->ops->matmul(d, &m, 1, x + at * n_in, n);
                }
                if (threads == 1 && s == 0)
                    memcpy(first, y, TOK * OUT * sizeof *y);
                ck_assert_msg(!memcmp(first, y, TOK * OUT * sizeof *y),
                              "%s %s: %d threads, %d a call", cb_isa[isa], cb_dtype[t].name,
                              threads, steps[s]);
            }
            d->ops->unload(d, &w);
            cb_device_close(d);
        }
    free((void *)(uintptr_t)w.raw);
    free(x);
    free(first);
    free(y);
}
END_TEST

/* With `16-bit` a decoded token's activations keep 16 bits: 120 times closer to the unrounded
 * product at least. */
START_TEST(act16)
{
    enum { OUT = 37, TOK = 3 };
    const enum dtype t = (enum dtype)_i;
    const int n_in = cb_dtype[t].block == 1 ? 77 : 768;
    struct rounded x = round_x(t, random_x(TOK, n_in), TOK, n_in);
    float *y = alloc(TOK * (OUT + PAD), sizeof *y);
    struct weight w;

    random_weight(&w, t, n_in, OUT);
    memcpy(x.value, x.x, sizeof(float) * TOK * (size_t)n_in);
    for (int isa = 0; isa < N_ISA_MM; isa++) {
        struct device *d = cb_isa_open(isa, 2);
        struct mm m = { &w, NULL, y, OUT + PAD, 0, 16 };

        if (!d)
            continue;
        ck_assert_int_eq(d->ops->load(d, &w), 0);
        fill_nan(y, TOK * (OUT + PAD));
        d->ops->matmul(d, &m, 1, x.x, TOK);
        /* a rest of half a step is cut to 127 of 128 */
        check_near(&m, &x, TOK, NULL, 1.0 / 120);
        d->ops->unload(d, &w);
        cb_device_close(d);
    }
    free((void *)(uintptr_t)w.raw);
    free_rounded(x);
    free(y);
}
END_TEST

/* Several matrices of one shape, each with tokens of its own that lie apart: the bits of a call for
 * each, whether the work space holds the tokens of all or of one. */
static void check_sets(struct device *d, const struct weight *w, int n, int n_tok, int bits)
{
    const int n_in = w->n_in, n_out = w->n_out, step = n_in + 3, stride = n * step + 2;
    float *x = random_x(n_tok, stride), *y = alloc((size_t)(n_tok * n * n_out), sizeof *y);
    float *own = alloc((size_t)(n_tok * n_in), sizeof *own);
    float *want = alloc((size_t)(n_tok * n * n_out), sizeof *want);
    struct mm mm[8];

    fill_nan(y, (size_t)(n_tok * n * n_out));
    for (int i = 0; i < n; i++) {
        const struct mm m = { &w[i], NULL, want + i * n_out, n * n_out, 0, bits };
        mm[i] = m;
        mm[i].y = y + i * n_out;
        for (int t = 0; t < n_tok; t++)
            memcpy(own + t * n_in, x + t * stride + i * step, (size_t)n_in * sizeof *x);
        d->ops->matmul(d, &m, 1, own, n_tok);
    }
    d->ops->matmul_sets(d, mm, n, x, (size_t)step, (size_t)stride, n_tok);
    ck_assert_msg(!memcmp(y, want, (size_t)(n_tok * n * n_out) * sizeof *y),
                  "%s %s: %d of %d tokens, %d bits", d->isa, cb_dtype[w->type].name, n, n_tok,
                  bits);
    free(x);
    free(y);
    free(own);
    free(want);
}

START_TEST(sets)
{
    enum { N = 8, TOKS = 5 };
    static const int n_tok[TOKS] = { 1, 2, 7, 23, 100 }, bits[] = { 16, 8, 0 };
    const enum dtype t = (enum dtype)_i;
    struct weight w[N];

    for (int i = 0; i < N; i++)
        random_weight(&w[i], t, cb_dtype[t].block == 1 ? 77 : cb_dtype[t].block, 19);
    for (int isa = 0; isa < N_ISA_MM; isa++) {
        struct device *d = cb_isa_open(isa, 1 + isa % 2 * 2);

        if (!d)
            continue;
        for (int i = 0; i < N; i++)
            ck_assert_int_eq(d->ops->load(d, &w[i]), 0);
        for (int k = 0; k < 6; k++) {
            if (k == 3) /* before: only what load reserves */
                ck_assert_int_ge(d->ops->reserve(d, 32, N * 256, 19, 1, 64, 1), 0);
            for (int i = 0; i < (bits[k % 3] ? TOKS - 1 : TOKS); i++)
                check_sets(d, w, k < 3 ? N : 3, n_tok[i], bits[k % 3]);
        }
        for (int i = 0; i < N; i++)
            d->ops->unload(d, &w[i]);
        cb_device_close(d);
    }
    for (int i = 0; i < N; i++)
        free((void *)(uintptr_t)w[i].raw);
}
END_TEST

/* Products of a batch of decoded tokens: a few matrices at once, with bias and add, and a gate. */
struct batch {
    struct weight *w; /* [3]; the first two of the same size */
    const float *bias;
    int n_in, bits;
    float *y[3], *gate; /* [n_tok][stride], [n_tok][n_out] */
    float *up;          /* work space */
};

enum { BATCH_OUT = 37, BATCH_STRIDE = BATCH_OUT + PAD, BATCH_MOST = 33 };

/* Tokens at..at+n-1 in one call of each op */
static void multiply_batch(struct device *d, const struct batch *b, const float *x, int at, int n)
{
    const size_t y0 = (size_t)at * BATCH_STRIDE, gate0 = (size_t)at * BATCH_OUT;
    const struct mm m[] = { { &b->w[0], b->bias, b->y[0] + y0, BATCH_STRIDE, 0, b->bits },
                            { &b->w[1], NULL, b->y[1] + y0, BATCH_STRIDE, 1, b->bits },
                            { &b->w[2], b->bias, b->y[2] + y0, BATCH_STRIDE, 1, b->bits } };
    const struct mm glu[] = { { &b->w[0], NULL, b->gate + gate0, BATCH_OUT, 0, b->bits },
                              { &b->w[1], NULL, b->up, BATCH_OUT, 0, b->bits } };

    x += (size_t)at * (size_t)b->n_in;
    d->ops->matmul(d, m, 3, x, n);
    d->ops->matmul_glu(d, glu, ACT_SILU, x, n);
}

/* What y holds before a call, which adds to it or leaves it */
static float before_batch(int j)
{
    return (float)(j % 101) * 0.37f - 9;
}

static void start_batch(const struct batch *b)
{
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < BATCH_MOST * BATCH_STRIDE; j++)
            b->y[i][j] = before_batch(j);
    fill_nan(b->gate, BATCH_MOST * BATCH_OUT);
}

static void check_batch(struct device *d, const struct batch *b, const struct batch *alone,
                        const float *x, int n)
{
    start_batch(b);
    multiply_batch(d, b, x, 0, n);
    for (int i = 0; i < 3; i++)
        ck_assert_msg(!memcmp(b->y[i], alone->y[i], (size_t)(n * BATCH_STRIDE) * sizeof(float)),
                      "%s: %s, number %d of a call: %d tokens of %d bits", d->isa,
                      cb_dtype[b->w[i].type].name, i, n, b->bits);
    ck_assert_msg(!memcmp(b->gate, alone->gate, (size_t)(n * BATCH_OUT) * sizeof(float)),
                  "%s: %s, gate: %d tokens of %d bits", d->isa, cb_dtype[b->w->type].name, n,
                  b->bits);
    for (int j = n * BATCH_OUT; j < BATCH_MOST * BATCH_OUT; j++)
        ck_assert_msg(isnan(b->gate[j]), "wrote past its tokens");
    for (int i = 0; i < 3; i++)
        for (int j = n * BATCH_STRIDE; j < BATCH_MOST * BATCH_STRIDE; j++)
            ck_assert_msg(b->y[i][j] == before_batch(j), "wrote past its tokens");
}

/* In a batch of decoded tokens each one's results are, to the bit, those of the token alone. The
 * third matrix is of another type, by turns a float one, which limits tiles. */
START_TEST(batches)
{
    static const int n_tok[] = { 1, 2, 3, 4, 5, 7, 8, 16, 17, BATCH_MOST };
    const enum dtype t = (enum dtype)(_i % DT_COUNT);
    const enum dtype other = _i / DT_COUNT % 2 == 0 ? DT_F16 : t == DT_Q6_K ? DT_Q4_K : DT_Q6_K;
    const int bits = _i < 2 * DT_COUNT ? 16 : 8;
    const int n_in = other != DT_F16 ? 768 : cb_dtype[t].block == 1 ? 77 : 9 * cb_dtype[t].block;
    float *x = random_x(BATCH_MOST, n_in), *bias = random_x(1, BATCH_OUT);
    struct weight w[3];
    struct batch b[2];

    for (int i = 0; i < 3; i++)
        random_weight(&w[i], i == 2 ? other : t, n_in, BATCH_OUT);
    for (int k = 0; k < 2; k++) {
        b[k] = (struct batch){ .w = w, .bias = bias, .n_in = n_in, .bits = bits };
        for (int i = 0; i < 3; i++)
            b[k].y[i] = alloc(BATCH_MOST * BATCH_STRIDE, sizeof(float));
        b[k].gate = alloc(BATCH_MOST * BATCH_OUT, sizeof(float));
        b[k].up = alloc(BATCH_MOST * BATCH_OUT, sizeof(float));
    }
    for (int isa = 0; isa < N_ISA_MM; isa++)
        for (int threads = 1; threads <= 3; threads += 2) {
            struct device *d = cb_isa_open(isa, threads);

            if (!d)
                continue;
            for (int i = 0; i < 3; i++)
                ck_assert_int_eq(d->ops->load(d, &w[i]), 0);
            if (threads > 1) /* else only what load reserves: several passes */
                ck_assert_int_ge(d->ops->reserve(d, BATCH_MOST, n_in, BATCH_OUT, 1, 64, 1), 0);
            if (threads == 1) {
                start_batch(&b[1]);
                for (int i = 0; i < BATCH_MOST; i++)
                    multiply_batch(d, &b[1], x, i, 1);
            }
            for (size_t i = 0; i < sizeof n_tok / sizeof *n_tok; i++)
                check_batch(d, &b[0], &b[1], x, n_tok[i]);
            for (int i = 0; i < 3; i++)
                d->ops->unload(d, &w[i]);
            cb_device_close(d);
        }
    for (int i = 0; i < 3; i++)
        free((void *)(uintptr_t)w[i].raw);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 3; i++)
            free(b[k].y[i]);
        free(b[k].gate);
        free(b[k].up);
    }
    free(bias);
    free(x);
}
END_TEST

/* Libraries instead of our kernels: unrounded activations. */
#ifdef HAVE_ISA_AMX
/* Tiles multiply batches from 4 tokens on, of 16 and of 8 bits. */
START_TEST(batches_take_tiles)
{
    enum { IN = 512, OUT = 64, TOK = 16 };
    struct device *d = cb_isa_open(ISA_AMX, 1);
    float *x = random_x(TOK, IN), *y = alloc(TOK * OUT, sizeof *y);
    struct weight w;

    if (d) {
        random_weight(&w, DT_Q4_K, IN, OUT);
        ck_assert_int_eq(d->ops->load(d, &w), 0);
        ck_assert_int_ge(d->ops->reserve(d, TOK, IN, OUT, 1, 64, 1), 0);
        for (int n = 1; n <= TOK; n++)
            for (int bits = 8; bits <= 16; bits += 8) {
                const struct mm m = { &w, NULL, y, OUT, 0, bits };
                const int before = cb_tiles_tried();
                d->ops->matmul(d, &m, 1, x, n);
                ck_assert_int_eq(cb_tiles_tried() > before, n >= (bits == 16 ? 4 : 5));
            }
        d->ops->unload(d, &w);
        free((void *)(uintptr_t)w.raw);
        cb_device_close(d);
    }
    free(x);
    free(y);
}
END_TEST
#endif

START_TEST(providers)
{
    static const char *const names[] = { "onednn", "openblas" };
    enum { OUT = 37, TOK = 40, IN = 512 };
    const enum dtype t = (enum dtype)_i;
    const struct rounded x = round_x(DT_F32, random_x(TOK, IN), TOK, IN);
    float *bias = random_x(1, OUT), *y = alloc(TOK * (OUT + PAD), sizeof *y);
    float *before = alloc(TOK * (OUT + PAD), sizeof *y);
    struct weight w;

    random_weight(&w, t, IN, OUT);
    for (int i = 0; i < 2; i++) {
        struct mm m = { .w = &w, .bias = bias, .y = y, .y_stride = OUT + PAD, .add = 1 };
        struct device *d;

        d = cb_isa_open_with(0, 2, names[i]);
        if (!d)
            continue; /* not built in */
        ck_assert_int_eq(d->ops->load(d, &w), 0);
        fill_nan(y, TOK * (OUT + PAD));
        for (int j = 0; j < TOK * OUT; j++)
            y[j / OUT * (OUT + PAD) + j % OUT] = uniform();
        memcpy(before, y, TOK * (OUT + PAD) * sizeof *y);
        d->ops->matmul(d, &m, 1, x.x, TOK);
        check_product(&m, &x, TOK, before);
        d->ops->unload(d, &w);
        cb_device_close(d);
    }
    ck_assert_ptr_null(cb_isa_open_with(0, 1, "abacus"));
    ck_assert_ptr_nonnull(strstr(cb_error(), "abacus"));
    free((void *)(uintptr_t)w.raw);
    free_rounded(x);
    free(bias);
    free(y);
    free(before);
}
END_TEST

START_TEST(rows)
{
    const int32_t ids[] = { 3, 0, 3, 19 };
    const enum dtype t = (enum dtype)_i;
    const int n_in = cb_dtype[t].block == 1 ? 5 : cb_dtype[t].block;
    float *y = alloc((size_t)n_in * 4, sizeof *y), *row = alloc((size_t)n_in, sizeof *row);
    struct device *d = cb_isa_open(0, 1);
    struct weight w;

    random_weight(&w, t, n_in, 20);
    d->ops->get_rows(d, &w, ids, 4, y);
    for (int i = 0; i < 4; i++) {
        cb_dtype[t].to_f32((const char *)w.raw + cb_row_bytes(t, (int64_t)n_in * ids[i]), row,
                           n_in);
        ck_assert_mem_eq(y + i * n_in, row, (size_t)n_in * sizeof *row);
    }
    cb_device_close(d);
    free((void *)(uintptr_t)w.raw);
    free(y);
    free(row);
}
END_TEST

START_TEST(unknown_isa)
{
    const struct device_want want = { .isa = "abacus" };
    const struct team_params team = { .n_threads = 1 };
    struct device *d = NULL;

    ck_assert_int_eq(cb_device_open_team("cpu", &team, &want, &d), CB_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(cb_error(), "abacus"));
}
END_TEST

/* Every kernel once */
static TCase *kernels(void)
{
    TCase *c = tcase_create("kernels");

    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, act16, 0, DT_COUNT);
    tcase_add_loop_test(c, rows, 0, DT_COUNT);
    tcase_add_loop_test(c, tiles, 0, DT_COUNT);
    tcase_add_loop_test(c, sets, 0, DT_COUNT);
    return c;
}

static TCase *calls(void)
{
    TCase *c = tcase_create("calls");

    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, shapes, 0, DT_COUNT);
    tcase_add_test(c, many);
    tcase_add_loop_test(c, gates, 0, 4);
    tcase_add_loop_test(c, same_bits, 0, DT_COUNT);
    tcase_add_loop_test(c, batches, 0, 4 * DT_COUNT);
#ifdef HAVE_ISA_AMX
    tcase_add_test(c, batches_take_tiles);
#endif
    tcase_add_loop_test(c, providers, 0, DT_COUNT);
    tcase_add_test(c, unknown_isa);
    return c;
}

int main(void)
{
    Suite *s = suite_create("matmul");

    suite_add_tcase(s, kernels());
    if (!cb_test_brief())
        suite_add_tcase(s, calls());
    return cb_suite_run(s);
}
