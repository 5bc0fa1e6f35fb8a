/* SPDX-License-Identifier: MIT */
/* check_kivi.c - quantised keys and values: the paper's rounding and residuals, stores that survive
 * any dropping, and attention over them on every ISA, or on an accelerator. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bank/evict.h"
#include "bank/pages.h"
#include "bank/store_state.h"
#include "device/kivi.h"
#include "kit/guard.h"
#include "kit/inside.h"
#include "kit/isa.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { N_KV = 2, HD = 64, CAP = 700 };

static uint32_t seed = 1;

static int below(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)n);
}

static float uniform(void)
{
    return (float)below(1 << 20) / (float)(1 << 19) - 1;
}

/* ---- rounding ---- */

static const struct {
    int bits;
    float x[4], back[4];
    int code[4];
} roundings[] = {
    { 2, { 0.1f, -0.4f, 0.75f, 0.3f }, { -0.016667f, -0.4f, 0.75f, 0.366667f }, { 1, 0, 3, 2 } },
    { 4, { 0.1f, -0.4f, 0.75f, 0.3f }, { 0.136667f, -0.4f, 0.75f, 0.29f }, { 7, 0, 15, 9 } },
    { 2, { 0, 0.5f, 1.5f, 3 }, { 0, 0, 2, 3 }, { 0, 0, 2, 3 } }, /* ties go to even codes */
    { 4, { 2, 2, 2, 2 }, { 2, 2, 2, 2 }, { 0, 0, 0, 0 } },
};

START_TEST(rounds_as_the_formula)
{
    const int bits = roundings[_i].bits, n = 4 * bits;
    uint8_t block[20];
    float x[2 * 32];

    for (int i = 0; i < 32; i++)
        x[2 * i] = roundings[_i].x[i % 4];
    cb_kivi_encode(bits, KIVI_GROUP, x, 2, block);
    for (int i = 0; i < 32; i++) {
        ck_assert_int_eq(block[4 + i % n] >> (i / n * bits) & ((1 << bits) - 1),
                         roundings[_i].code[i % 4]);
        ck_assert_float_eq_tol(cb_kivi_decode(bits, block, i), roundings[_i].back[i % 4], 1e-3f);
    }
}
END_TEST

/* |x - x^| <= step / 2, but for the halves that step and smallest are stored in. */
START_TEST(errors_stay_below_half_a_step)
{
    for (int c = 0; c < 2000; c++) {
        const int bits = c % 2 ? 4 : 2;
        const float scale = powf(2, (float)below(24) - 12), shift = scale * 3 * uniform();
        float x[32], min = INFINITY, max = -INFINITY;
        uint8_t block[20];
        for (int i = 0; i < 32; i++) {
            x[i] = shift + scale * uniform();
            min = fminf(min, x[i]);
            max = fmaxf(max, x[i]);
        }
        cb_kivi_encode(bits, KIVI_GROUP, x, 1, block);
        for (int i = 0; i < 32; i++) {
            const float err = fabsf(cb_kivi_decode(bits, block, i) - x[i]);
            const float step = (max - min) / (float)((1 << bits) - 1);
            ck_assert_float_le(err, step * 0.5f + 2e-3f * (fabsf(max) + fabsf(min)) + 1e-6f);
        }
    }
}
END_TEST

/* ---- stores ---- */

static struct device *dev;

static void setup(void)
{
    ck_assert_ok(cb_device_open("ref", 2, &dev));
}

static void teardown(void)
{
    cb_device_close(dev);
}

/* Groups of keys and values, and first tokens that stay f16 */
static const struct shape_of_groups {
    int k, v, first;
} shapes[] = { { 32, 32, 0 }, { 64, 64, 32 }, { 128, 64, 0 }, { 64, 32, 96 } };
enum { N_SHAPE = sizeof shapes / sizeof *shapes };
static struct shape_of_groups shape = { 32, 32, 0 };

static int at_least(int residual, int group)
{
    return residual < group ? group : residual;
}

static void open_store(struct store *s, int bits_k, int res_k, int bits_v, int res_v)
{
    const struct kivi_form k = { bits_k, at_least(res_k, shape.k), shape.k, shape.first };
    const struct kivi_form v = { bits_v, at_least(res_v, shape.v), shape.v, shape.first };

    ck_assert(!cb_store_open(s, N_KV, HD, CAP, KV_F16, KV_F16, 0));
    ck_assert(!cb_kivi_open(s, k, v));
}

/* a number that tells token, head, element and which of K and V, in [-1, 1) */
static float mark(int tok, int h, int c, int v)
{
    uint32_t x = (uint32_t)(tok * 7919 + h * 104729 + c * 1299709 + v * 15485863);
    x = (x ^ x >> 13) * 0x5bd1e995u;
    return (float)(x >> 8 & 0xffff) / 32768.0f - 1;
}

static void append(struct store *s, int pos0, int n)
{
    const int row = N_KV * HD;
    float *k = cb_guarded(sizeof(float) * (size_t)(n * row) * 2), *v = k + n * row;

    for (int i = 0; i < n * row; i++) {
        k[i] = mark(pos0 + i / row, i % row / HD, i % HD, 0);
        v[i] = mark(pos0 + i / row, i % row / HD, i % HD, 1);
    }
    ck_assert(!cb_store_append(s, dev, k, v, row, n, pos0));
    free(k);
}

/* Every slot holds the token that pos says, as near as `err`. */
static void expect(const struct store *s, float err)
{
    float x[HD];

    for (int h = 0; h < N_KV; h++)
        for (int i = 0; i < s->n[h]; i++)
            for (int v = 0; v < 2; v++) {
                const int tok = cb_store_pos(s, h, i);
                cb_store_get(s, dev, h, v, i, x);
                for (int c = 0; c < HD; c++)
                    ck_assert_msg(fabsf(x[c] - mark(tok, h, c, v)) <= err,
                                  "head %d slot %d of %d (token %d) %s[%d]: %g, not %g", h, i,
                                  s->n[h], tok, v ? "v" : "k", c, (double)x[c],
                                  (double)mark(tok, h, c, v));
            }
}

static const struct {
    int n, n_k, n_v;
} residuals[] = { { 1, 0, 0 },     { 127, 0, 0 },     { 128, 128, 0 },
                  { 129, 128, 1 }, { 256, 256, 128 }, { 300, 256, 172 } };

START_TEST(residuals_of_128)
{
    for (size_t i = 0; i < sizeof residuals / sizeof *residuals; i++) {
        struct store s;
        open_store(&s, 4, 128, 4, 128);
        for (int t = 0; t < residuals[i].n; t += _i ? 1 : residuals[i].n) { /* steps, or a prompt */
            append(&s, t, _i ? 1 : residuals[i].n);
            ck_assert(!cb_kivi_advance(&s, dev));
        }
        ck_assert_int_eq(s.kivi->head[0].n_k, residuals[i].n_k);
        ck_assert_int_eq(s.kivi->head[1].n_v, residuals[i].n_v);
        ck_assert_uint_eq(cb_store_bytes(&s), N_KV * cb_store_bytes_of(&s, 0, residuals[i].n));
        expect(&s, 0.07f);
        cb_store_close(&s);
    }
}
END_TEST

static double as_half(double x)
{
    return (double)cb_f16_to_f32(cb_f32_to_f16((float)x));
}

/* x[n] at a stride, as the paper's section 3.1 rounds a group; which = the number wanted */
static double rounded(const float *x, int n, int stride, int bits, int which)
{
    double min = (double)x[0], max = min, step;

    for (int i = 1; i < n; i++) {
        min = fmin(min, (double)x[i * stride]);
        max = fmax(max, (double)x[i * stride]);
    }
    step = as_half((max - min) / ((1 << bits) - 1));
    min = as_half(min);
    return min + step * fmin(fmax(nearbyint(((double)x[which * stride] - min) / step), 0),
                             (1 << bits) - 1);
}

/* Section 3.2: keys share a step over some tokens of a channel, values over some channels of a
 * token. Channels and tokens differ in size by orders, so an exchange of the two is far off. */
START_TEST(keys_by_channel_values_by_token)
{
    enum { TOK = 384, ROW = N_KV * HD };
    static float k[TOK][ROW], v[TOK][ROW];
    const int bits = _i % 2 ? 4 : 2;
    struct store s;
    float x[HD];

    for (int t = 0; t < TOK; t++)
        for (int c = 0; c < ROW; c++) {
            k[t][c] = (float)as_half((double)(uniform() * powf(2, (float)(c % 11))));
            v[t][c] = (float)as_half((double)(uniform() * powf(2, (float)(t % 11))));
        }
    shape = shapes[_i / 2];
    open_store(&s, bits, 32, bits, 32);
    ck_assert(!cb_store_append(&s, dev, k[0], v[0], ROW, TOK, 0));
    ck_assert(!cb_kivi_advance(&s, dev));
    for (int h = 0; h < N_KV; h++)
        for (int t = 0; t < TOK - 128; t++) {
            const int g = shape.k, w = shape.v, row = t - shape.first;
            cb_store_get(&s, dev, h, 0, t, x);
            for (int c = 0; c < HD; c++)
                ck_assert_double_eq_tol((double)x[c],
                                        row < 0 ? (double)k[t][h * HD + c]
                                                : rounded(&k[shape.first + row / g * g][h * HD + c],
                                                          g, ROW, bits, row % g),
                                        1e-4);
            cb_store_get(&s, dev, h, 1, t, x);
            for (int c = 0; c < HD; c++)
                ck_assert_double_eq_tol((double)x[c],
                                        row < 0
                                            ? (double)v[t][h * HD + c]
                                            : rounded(&v[t][h * HD + c / w * w], w, 1, bits, c % w),
                                        1e-4);
        }
    cb_store_close(&s);
}
END_TEST

/* Llama-3-8B's shape at 32768 tokens, 4 GiB in f16 */
START_TEST(bytes_as_the_formula)
{
    struct store s;
    const uint64_t heads = 32 * 8;

    for (int i = 0; i < 3; i++) {
        static const int bits[] = { 2, 4, 4 }, residual[] = { 128, 128, 32 };
        static const double factor[] = { 5.288573, 3.186309, 3.196566 };
        ck_assert(!cb_store_open(&s, 1, 128, 64, KV_F16, KV_F16, 0));
        ck_assert(!cb_kivi_open(&s, (struct kivi_form){ bits[i], residual[i], 0, 0 },
                                (struct kivi_form){ bits[i], residual[i], 0, 0 }));
        if (i == 0)
            ck_assert_uint_eq(heads * cb_store_bytes_of(&s, 0, 32768), 812122112);
        ck_assert_double_eq_tol(4294967296.0 / (double)(heads * cb_store_bytes_of(&s, 0, 32768)),
                                factor[i], 1e-6);
        cb_store_close(&s);
    }
}
END_TEST

/* Of 100 tokens 96 keys are quantised, 32 in a group, which is read whole, and 68 values. */
START_TEST(bytes_of_quantised_slots)
{
    static const int32_t some[] = { 0, 1, 57, 60, 89 };
    const uint64_t row = HD * sizeof(uint16_t), group = HD * cb_kivi_group_bytes(4, 32);
    const uint64_t value = HD / 32 * cb_kivi_group_bytes(4, 32);
    struct store s;
    struct kv_run run = { .n = 100 };
    int keep[99];

    open_store(&s, 4, 32, 4, 32);
    append(&s, 0, 100);
    ck_assert(!cb_kivi_advance(&s, dev));
    run.kivi = &s.kivi->head[0];
    ck_assert_uint_eq(cb_store_run_bytes(&s, &run), 3 * group + 4 * row + 68 * value + 32 * row);
    run.n = 40;
    ck_assert_uint_eq(cb_store_run_bytes(&s, &run), 2 * group + 40 * value);
    run.first = 60;
    ck_assert_uint_eq(cb_store_run_bytes(&s, &run), 2 * group + 4 * row + 8 * value + 32 * row);
    run.first = 10; /* slots 10, 11, 67, 70 and 99 */
    run.idx = some;
    run.n = 5;
    ck_assert_uint_eq(cb_store_run_bytes(&s, &run), group + row + 3 * value + 2 * row);
    ck_assert_uint_eq(cb_store_value_bytes(&s, &(struct kv_run){ .kivi = run.kivi, .n = 70 }),
                      68 * value + 2 * row);
    ck_assert_uint_eq(cb_kivi_old_bytes(&s, 64), 2 * group + 64 * value);
    ck_assert_uint_eq(cb_kivi_bytes(&s, 0), 3 * group + 4 * row + 68 * value + 32 * row);
    for (int i = 0; i < 99; i++)
        keep[i] = i + (i >= 5);
    ck_assert(!cb_store_keep(&s, 0, keep, 99)); /* rows stay, and maps say where */
    ck_assert_uint_eq(cb_kivi_bytes(&s, 0),
                      3 * group + 4 * row + 68 * value + 32 * row + (95 + 67) * sizeof(int32_t));
    cb_store_close(&s);
}
END_TEST

/* First tokens that stay f16 were dropped; of the next timeline others do. */
START_TEST(first_tokens_of_a_cleared_store)
{
    int keep[90];
    struct store s;

    shape.first = 32;
    open_store(&s, 4, 32, 4, 32);
    for (int round = 0; round < 2; round++) {
        append(&s, 0, 100);
        ck_assert(!cb_kivi_advance(&s, dev));
        ck_assert_int_eq(s.kivi->head[0].lo_k, 32);
        ck_assert_int_eq(s.kivi->head[0].lo_v, 32);
        ck_assert_uint_eq(cb_kivi_bytes(&s, 0), cb_kivi_bytes_of(&s, 0, 0, 100));
        for (int i = 0; i < 90; i++)
            keep[i] = i + 10;
        for (int h = 0; h < N_KV; h++)
            ck_assert(!cb_store_keep(&s, h, keep, 90));
        ck_assert_int_eq(s.kivi->head[0].lo_v, 22);
        cb_store_cut(&s, 0);
    }
    shape.first = 0;
    cb_store_close(&s);
}
END_TEST

/* Appends, drops, cuts and merges at random: what stays is what it was. Requantised keys lose a
 * step more each time, which is seldom. */
START_TEST(stores_survive_any_dropping)
{
    static const int bits[][2] = { { 4, 4 }, { 2, 4 }, { 4, 0 }, { 0, 2 } };
    const int rounds = (_i < 4 ? 300 : 80) / CB_SLOWED; /* the first shape is the usual one */
    struct store s;
    int tok = 0, keep[CAP];

    seed = (uint32_t)_i + 5;
    shape = shapes[_i / 4 % N_SHAPE];
    open_store(&s, bits[_i % 4][0], 32, bits[_i % 4][1], 64);
    for (int round = 0; round < rounds; round++) {
        const int free_slots = CAP - cb_store_max_len(&s);
        const int n = below(8) ? 1 + below(4) : 1 + below(200);
        if (n <= free_slots) {
            append(&s, tok, n);
            tok += n;
        }
        for (int h = 0; h < N_KV; h++) {
            const int len = s.n[h], most = below(10) ? len - len / 400 - 1 : len / 3 + 1;
            int m = 0;
            for (int i = 0; i < len; i++)
                if (len - i <= most - m || below(len) < most)
                    keep[m++] = i;
            if (below(2) || len > CAP - 250)
                ck_assert(!cb_store_keep(&s, h, keep, m));
        }
        ck_assert(!cb_kivi_advance(&s, dev));
        if (round % 10 == 9)
            expect(&s, bits[_i % 4][0] == 2 || bits[_i % 4][1] == 2 ? 0.9f : 0.25f);
        if (round == rounds / 2)
            cb_store_cut(&s, 40);
    }
    cb_store_cut(&s, 0);
    ck_assert_uint_eq(cb_store_bytes(&s), 0);
    append(&s, 0, 400);
    ck_assert(!cb_kivi_advance(&s, dev));
    ck_assert_int_eq(s.kivi->head[0].lo_k, shape.first);
    expect(&s, bits[_i % 4][0] == 2 || bits[_i % 4][1] == 2 ? 0.35f : 0.07f);
    cb_store_close(&s);
}
END_TEST

/* A few slots of a full store are dropped again and again, which leaves most rows without a slot:
 * they are packed before the memory that was reserved for rows ends, and not at once. */
START_TEST(rows_stay_within_what_is_reserved)
{
    struct store s;
    int keep[CAP], tok = 0, most_k = 0, most_v = 0;

    open_store(&s, 4, 32, 4, 32);
    for (int round = 0; round < 40; round++) {
        const int n = CAP - s.n[0];
        int m = 0;
        append(&s, tok, n);
        tok += n;
        ck_assert(!cb_kivi_advance(&s, dev));
        most_k = s.kivi->rows_k[0] > most_k ? s.kivi->rows_k[0] : most_k;
        most_v = s.kivi->rows_v[0] > most_v ? s.kivi->rows_v[0] : most_v;
        ck_assert_int_le(most_k, cb_kivi_most_rows(&s));
        ck_assert_int_le(most_v, cb_kivi_most_rows(&s));
        for (int i = 0; i < CAP; i++)
            if (i < 64 || i >= 96)
                keep[m++] = i;
        for (int h = 0; h < N_KV; h++)
            ck_assert(!cb_store_keep(&s, h, keep, m));
    }
    ck_assert_int_gt(most_k, 2 * CAP);
    ck_assert_int_gt(most_v, 2 * CAP);
    expect(&s, 0.25f);
    cb_store_close(&s);
}
END_TEST

static int resident_pages(uint8_t *from, const uint8_t *to)
{
    const size_t page = cb_pages_up(1), n = (size_t)(to - from) / page;
    unsigned char in[64];
    int sum = 0;

    ck_assert_uint_le(n, sizeof in);
    ck_assert(!mincore(from - (uintptr_t)from % page, n * page, in));
    for (size_t i = 0; i < n; i++)
        sum += in[i] & 1;
    return sum;
}

/* Quantised tokens leave no f16 rows in memory, also where rows of one token are smaller than a
 * page; the first tokens keep theirs. */
START_TEST(rows_of_quantised_slots_are_freed)
{
    struct store s;

    shape = shapes[_i];
    open_store(&s, 4, 32, 4, 32);
    for (int i = 0; i < CAP; i++) {
        append(&s, i, 1);
        ck_assert(!cb_kivi_advance(&s, dev));
    }
    for (int h = 0; h < N_KV; h++)
        for (int v = 0; v < 2; v++) { /* 700 rows have 22 pages */
            const int had = resident_pages(cb_store_row(&s, h, v, 0), cb_store_row(&s, h, v, CAP));
            ck_assert_int_le(had, 4 + (shape.first + shape.k) / 32);
        }
    expect(&s, 0.25f);
    cb_store_close(&s);
}
END_TEST

START_TEST(a_merged_slot_is_what_was_set)
{
    struct store s;
    float x[HD], y[HD];

    open_store(&s, 4, 32, 4, 32);
    append(&s, 0, 100);
    ck_assert(!cb_kivi_advance(&s, dev));
    for (int c = 0; c < HD; c++)
        x[c] = 0.5f * uniform();
    for (int v = 0; v < 2; v++) {
        cb_store_set(&s, dev, 1, v, 7, x);
        cb_store_get(&s, dev, 1, v, 7, y);
        for (int c = 0; c < HD; c++)
            ck_assert_float_eq_tol(y[c], x[c], 0.07f);
        cb_store_set(&s, dev, 1, v, 7, y); /* its neighbours lost no more than a step */
    }
    for (int i = 0; i < 100; i++) {
        cb_store_get(&s, dev, 1, 0, i, y);
        for (int c = 0; c < HD && i != 7; c++)
            ck_assert_float_eq_tol(y[c], mark(i, 1, c, 0), 0.2f);
    }
    cb_store_close(&s);
}
END_TEST

/* An eviction drops the slot that it was given, quantised or not. */
START_TEST(the_given_slot_is_dropped)
{
    static const int drop[] = { 0, 7, 63, 64, 99 };
    struct store s;
    struct bank b = { .dev = dev, .store = &s, .n_layer = 1, .n_kv = N_KV, .hd = HD, .n_ctx = CAP };
    struct eviction *e;

    open_store(&s, 4, 32, 4, 32);
    append(&s, 0, 100);
    ck_assert(!cb_kivi_advance(&s, dev));
    ck_assert(!cb_evict_new(&b, "test", -1, &e));
    cb_evict_begin(e, 0, 0);
    for (int h = 0; h < N_KV; h++)
        ck_assert(!cb_evict_drop(e, h, drop[_i]));
    ck_assert(!cb_evict_apply(e));
    for (int h = 0; h < N_KV; h++) {
        ck_assert_int_eq(s.n[h], 99);
        for (int i = 0; i < 99; i++)
            ck_assert_int_eq(cb_store_pos(&s, h, i), i + (i >= drop[_i]));
    }
    expect(&s, 0.2f);
    cb_evict_free(e);
    cb_store_close(&s);
}
END_TEST

/* ---- attention ---- */

static struct device *open_isa(int isa)
{
    struct device *d = cb_isa_open_or_skip(isa, 2);

    if (d)
        ck_assert_int_ge(d->ops->reserve(d, 64, 1024, 1024, 14, HD, CAP), 0);
    return d;
}

/* out, lse of attention over x, the whole store's entries as f32: plain C in double */
static void plain(const struct store *s, const struct attn *a, float *out, float *lse)
{
    const int group = a->n_head / N_KV;
    float k[HD], v[HD];

    for (int i = 0; i < a->n_tok; i++)
        for (int h = 0; h < a->n_head; h++) {
            const struct kv_run *run = &a->run[h / group];
            const int n = a->causal ? run->n - a->n_tok + 1 + i : run->n;
            const float *q = a->q + i * a->q_stride + h * HD;
            double sum = 0, o[HD] = { 0 };
            for (int j = 0; j < n; j++) {
                const int slot = (run->idx ? run->idx[j] : j) + run->first;
                double p = 0;
                cb_store_get(s, dev, h / group, 0, slot, k);
                cb_store_get(s, dev, h / group, 1, slot, v);
                for (int c = 0; c < HD; c++)
                    p += (double)q[c] * (double)k[c] * (double)a->scale;
                p = exp(p);
                sum += p;
                for (int c = 0; c < HD; c++)
                    o[c] += p * (double)v[c];
            }
            for (int c = 0; c < HD; c++)
                out[(i * a->n_head + h) * HD + c] = (float)(o[c] / sum);
            lse[i * a->n_head + h] = (float)log(sum);
        }
}

static void near(const char *what, const float *x, const float *want, int n, float tol)
{
    for (int i = 0; i < n; i++)
        ck_assert_msg(fabsf(x[i] - want[i]) <= tol * (1 + fabsf(want[i])),
                      "%s: [%d of %d] %g, not %g", what, i, n, (double)x[i], (double)want[i]);
}

/* form 0: all slots; 1: a slice; 2: an index list; 3: a causal chunk */
static void one_attention(const struct store *s, struct device *d, int form, int group)
{
    struct kv_run run[N_KV];
    int32_t idx[CAP];
    struct attn a = { .n_tok = form == 3 ? 37 : 1,
                      .n_head = N_KV * group,
                      .n_kv = N_KV,
                      .hd = HD,
                      .scale = 0.125f,
                      .causal = form == 3,
                      .type_k = KV_F16,
                      .type_v = KV_F16,
                      .run = run,
                      .q_stride = N_KV * group * HD };
    const int n = cb_store_min_len(s), nq = a.n_tok * a.n_head;
    /* there a token's queries and weights times steps become bytes */
    const float tol = form != 3 && !strcmp(d->isa, "avx512vbmi") ? 6e-3f : 3e-4f;
    float *q = cb_guarded((size_t)(nq * HD) * 3 * sizeof *q), *out = q + nq * HD,
          *want = out + nq * HD, *lse = cb_guarded((size_t)nq * 2 * sizeof *lse),
          *score = calloc((size_t)(a.n_head * CAP) * 2, sizeof *score);
    int m = 0;

    for (int i = 0; i < nq * HD; i++)
        q[i] = 3 * uniform();
    for (int i = 0; i < n; i++)
        if (!below(3) || i % 200 < 70)
            idx[m++] = i;
    for (int h = 0; h < N_KV; h++) {
        run[h] = cb_store_run(s, h, form == 1 ? 13 : 0, n);
        if (form == 2) {
            run[h].idx = idx;
            run[h].n = m;
        }
    }
    a.q = q;
    a.out = out;
    a.lse = lse;
    d->ops->attention(d, &a, 1);
    plain(s, &a, want, lse + nq);
    near("out", out, want, nq * HD, tol);
    near("lse", lse, lse + nq, nq, tol);
    d->ops->score(d, &(struct score){ .a = a, .out = score, .out_stride = CAP });
    dev->ops->score(dev,
                    &(struct score){ .a = a, .out = score + a.n_head * CAP, .out_stride = CAP });
    near("mass", score, score + a.n_head * CAP, a.n_head * CAP, 3e-4f);
    free(q);
    free(lse);
    free(score);
}

static void all_attentions(struct device *d)
{
    static const int groups[] = { 1, 3, 7, 16 };
    int keep[CAP], k = 0;

    seed = 3;
    for (int c = 0; c < 6 * N_SHAPE; c++) {
        struct store s;
        const int n = 40 + c % 6 * 97;
        if (c % 6 % CB_SLOWED || (c >= 6 && c % 6 != c / 6 % 3 && c % 6 != 5 - c / 6 % 3))
            continue; /* the first shape is the usual one, others have two lengths */
        if (k++ % cb_test_nth())
            continue;
        shape = shapes[c / 6];
        open_store(&s, c % 3 ? 4 : 2, 32, c % 3 == 1 ? 2 : 4, 64);
        append(&s, 0, n);
        ck_assert(!cb_kivi_advance(&s, dev));
        append(&s, n, 45);
        for (int form = 0; form < 4 && cb_kivi_any(&s); form++)
            one_attention(&s, d, form, groups[c % 4]);
        for (int h = 0; h < N_KV; h++) { /* quantised rows of dropped slots stay */
            int m = 0;
            for (int i = 0; i < s.n[h]; i++)
                if (i < 40 || i % 5)
                    keep[m++] = i;
            ck_assert(!cb_store_keep(&s, h, keep, m));
        }
        for (int form = 0; form < 4 && cb_kivi_any(&s); form++)
            one_attention(&s, d, form, groups[c % 4]);
        cb_store_close(&s);
    }
}

START_TEST(attention_reads_what_is_stored)
{
    struct device *d = _i ? open_isa(_i - 1) : dev;

    if (!d)
        return; /* not on this machine */
    all_attentions(d);
    if (_i)
        cb_device_close(d);
}
END_TEST

/* A decoded token's scores are its weights on the keys as they are stored. */
START_TEST(scores_of_a_step)
{
    enum { TOK = 98, SIZE = 32 };
    static const char *const devices[] = { "ref", "cpu" };
    const struct hparams hp = {
        .n_layer = 1, .n_head = 2, .n_kv = 1, .hd = SIZE, .n_ctx_train = TOK
    };
    const double tol = _i ? 2e-4 : 1e-6;
    double want[TOK] = { 0 }, before[TOK] = { 0 };
    struct store *st;
    struct toy t;

    cb_toy_open(&t, devices[_i], 2, &hp, TOK, "h2o:budget=1000,group=mean", "kivi2:32", "kivi2:32",
                5);
    cb_toy_prompt(&t, TOK - 1, 40, NULL);
    st = &t.s->bank.store[0];
    ck_assert_int_eq(st->kivi->head[0].n_k, 96);
    for (int j = 0; j < TOK - 1; j++)
        before[j] = (double)cb_store_col(st, 0, 0)[j];
    for (int h = 0; h < 2; h++) {
        const float *q = cb_toy_row(&t, 0, TOK - 1) + h * SIZE;
        double p[TOK], sum = 0;
        for (int j = 0; j < TOK; j++) {
            float k[SIZE];
            double x = 0;
            if (j < TOK - 1)
                cb_store_get(st, t.s->dev, 0, 0, j, k);
            for (int c = 0; c < SIZE; c++)
                x += (double)q[c] * (j < TOK - 1
                                         ? (double)k[c]
                                         : as_half((double)cb_toy_row(&t, 0, j)[2 * SIZE + c]));
            sum += p[j] = exp(x / sqrt(SIZE));
        }
        for (int j = 0; j < TOK; j++)
            want[j] += p[j] / sum;
    }
    cb_toy_decode(&t, NULL);
    for (int j = 0; j < TOK; j++)
        ck_assert_double_eq_tol((double)cb_store_col(st, 0, 0)[j] - before[j], want[j], tol);
    cb_toy_close(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kivi");
    TCase *c = tcase_create("all");

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, attention_reads_what_is_stored, ISA_FROM ? 1 + ISA_FROM : 0, 1 + ISA_TO);
    if (!ISA_FROM) { /* what is the host's */
        tcase_add_loop_test(c, rounds_as_the_formula, 0, sizeof roundings / sizeof *roundings);
        tcase_add_test(c, errors_stay_below_half_a_step);
        tcase_add_loop_test(c, residuals_of_128, 0, 2);
        tcase_add_loop_test(c, keys_by_channel_values_by_token, 0, 2 * N_SHAPE);
        tcase_add_loop_test(c, scores_of_a_step, 0, 2);
        tcase_add_test(c, bytes_as_the_formula);
        tcase_add_test(c, bytes_of_quantised_slots);
        tcase_add_test(c, first_tokens_of_a_cleared_store);
        tcase_add_loop_test(c, stores_survive_any_dropping, 0, 4 * N_SHAPE);
        tcase_add_loop_test(c, rows_of_quantised_slots_are_freed, 0, N_SHAPE);
        tcase_add_test(c, rows_stay_within_what_is_reserved);
        tcase_add_test(c, a_merged_slot_is_what_was_set);
        tcase_add_loop_test(c, the_given_slot_is_dropped, 0, 5);
    }
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    return cb_suite_run(suite);
}
