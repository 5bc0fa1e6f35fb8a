/* SPDX-License-Identifier: MIT */
/* check_store_pair.c - two stores that share directions: a worked example, what merging preserves,
 * which slots are retained, and what it saves. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bank/bank.h"
#include "bank/store_pair.h"
#include "bank/store_rows.h"
#include "ctxbank.h"
#include "kit/inside.h"
#include "kit/resident.h"
#include "kit/suite.h"

enum { N_KV = 2 };

static struct device *dev;

/* Two layers, and work space */
struct two {
    struct store of[2];
    struct pair_work work;
    int hd;
};

static struct two *open_two(int hd, enum kv_type type, int cap)
{
    struct two *p = calloc(1, sizeof *p);

    ck_assert_ptr_nonnull(p);
    p->hd = hd;
    for (int l = 0; l < 2; l++)
        ck_assert_int_eq(cb_store_open(&p->of[l], N_KV, hd, cap, type, type, 0), 0);
    ck_assert_int_eq(cb_store_pair(&p->of[0], &p->of[1]), 0);
    p->work.angle = malloc((size_t)cap * sizeof *p->work.angle);
    p->work.first = malloc((size_t)cap * sizeof *p->work.first);
    return p;
}

static void close_two(struct two *p)
{
    for (int l = 0; l < 2; l++)
        cb_store_close(&p->of[l]);
    free(p->work.angle);
    free(p->work.first);
    free(p);
}

/* n tokens after the others: x[n][N_KV][hd] are the keys of layer l, and twice them its values */
static void append(struct two *p, int l, const float *x, int n)
{
    const int row = N_KV * p->hd;
    float *v = malloc(sizeof *v * (size_t)(n * row));

    ck_assert_ptr_nonnull(v);
    for (int i = 0; i < n * row; i++)
        v[i] = 2 * x[i];
    ck_assert_int_eq(cb_store_append(&p->of[l], dev, x, v, row, n, p->of[l].n[0]), 0);
    free(v);
}

/* Layer l's row of a slot, as attention finds it */
static void row_of(const struct two *p, int l, int kv, int v, int slot, float *x)
{
    const struct store *s = &p->of[l];
    uint8_t *to[2];

    if (l) {
        cb_store_get(s, dev, kv, v, slot, x);
        return;
    }
    to[0] = malloc(s->head_k * N_KV);
    to[1] = malloc(s->head_v * N_KV);
    ck_assert(to[0] && to[1]);
    cb_store_pair_restore(s, dev, s->n[0], to[0], to[1]);
    dev->ops->kv_decode(dev, s->type_k, to[v] + s->head_k * (size_t)kv + s->row_k * (size_t)slot,
                        NULL, 1, s->hd, x);
    free(to[0]);
    free(to[1]);
}

/* (3, 4) and (5, 0): their cosine is 0.6, and at 0.6 of the angle lies (0.931995, 0.362471). */
START_TEST(worked_example)
{
    static const float x[] = { 3, 4, 30, 40 }, y[] = { 5, 0, 5, 0 };
    static const float want[2][2] = { { 4.659975f, 1.812356f }, { 46.59975f, 18.12356f } };
    struct two *p = open_two(2, KV_F32, 1);
    float got[2];

    append(p, 0, x, 1);
    append(p, 1, y, 1);
    cb_store_pair_merge(&p->of[0], dev, 1, 0.6, 0, &p->work);
    ck_assert_float_eq_tol(p->work.angle[0], 0.927295f, 1e-6f);
    for (int i = 0; i < 2 * N_KV * 2; i++) {
        const int l = i % 2, v = i / 2 % 2, kv = i / 4;
        row_of(p, l, kv, v, 0, got);
        for (int d = 0; d < 2; d++)
            ck_assert_float_eq_tol(got[d], (float)(1 + v) * want[kv && !l][d], 4e-5f);
    }
    close_two(p);
}
END_TEST

/* ---- random rows ---- */

enum { HD = 32, N = 300 };

static float layer[2][N][N_KV][HD];

static float noise(void)
{
    static uint32_t x = 1;
    x = x * 1664525 + 1013904223;
    return (float)(x >> 8) / (1 << 23) - 1;
}

/* Rows of two layers that lie more or less apart; slots 0 to 4 are special in head 0. */
static void make_layers(void)
{
    for (int i = 0; i < N; i++)
        for (int h = 0; h < N_KV; h++) {
            const float apart = fabsf(noise());
            for (int d = 0; d < HD; d++) {
                layer[0][i][h][d] = noise();
                layer[1][i][h][d] = layer[0][i][h][d] + 2 * apart * noise();
            }
        }
    for (int d = 0; d < HD; d++) {
        layer[0][0][0][d] = 3 * layer[1][0][0][d];  /* one direction */
        layer[0][1][0][d] = -2 * layer[1][1][0][d]; /* opposite ones */
        layer[0][2][0][d] = layer[1][2][0][d] = 0;  /* none */
        layer[0][3][0][d] = 0;
        layer[1][4][0][d] = 0;
    }
}

static double length(const float *x)
{
    double sum = 0;

    for (int d = 0; d < HD; d++)
        sum += (double)x[d] * (double)x[d];
    return sqrt(sum);
}

static double cosine(const float *x, const float *y)
{
    double sum = 0;

    for (int d = 0; d < HD; d++)
        sum += (double)x[d] * (double)y[d];
    return sum / length(x) / length(y);
}

static struct two *merged(int retain, int n, double t)
{
    struct two *p = open_two(HD, KV_F32, N);

    make_layers();
    for (int l = 0; l < 2; l++)
        append(p, l, &layer[l][0][0][0], N);
    cb_store_pair_merge(&p->of[0], dev, n, t, retain, &p->work);
    return p;
}

START_TEST(lengths_and_angles)
{
    struct two *p = merged(0, N, 0.25);
    float x[HD], y[HD];

    for (int i = 5; i < N; i++)
        for (int h = 0; h < N_KV; h++) {
            const float *a = layer[0][i][h], *b = layer[1][i][h];
            const double angle = acos(cosine(a, b));
            row_of(p, 0, h, 0, i, x);
            row_of(p, 1, h, 0, i, y);
            ck_assert_double_eq_tol(length(x) / length(a), 1, 1e-6);
            ck_assert_double_eq_tol(length(y) / length(b), 1, 1e-6);
            ck_assert_double_eq_tol(cosine(x, y), 1, 1e-6);
            ck_assert_double_eq_tol(acos(cosine(x, a)), 0.25 * angle, 1e-3);
            ck_assert_double_eq_tol(acos(cosine(y, b)), 0.75 * angle, 1e-3);
        }
    close_two(p);
}
END_TEST

START_TEST(where_no_arc_leads)
{
    struct two *p = merged(0, N, 0.6);
    float x[HD], y[HD];

    for (int i = 0; i < 5; i++) {
        const float *a = layer[0][i][0], *b = layer[1][i][0];
        row_of(p, 0, 0, 0, i, x);
        row_of(p, 1, 0, 0, i, y);
        for (int d = 0; d < HD; d++) {
            ck_assert_float_eq_tol(y[d], b[d], 1e-5f);
            /* opposite directions: a straight line, on which the later layer weighs more */
            ck_assert_float_eq_tol(x[d], i == 1 ? -a[d] : i == 4 ? 0 : a[d], 1e-5f);
        }
    }
    close_two(p);
}
END_TEST

/* The angle of slot i, as float: the farthest are retained, the earlier slot of equal ones */
static float angle_at(int h, int i)
{
    const float *a = layer[0][i][h], *b = layer[1][i][h];

    if (length(a) > 0 && length(b) > 0)
        return (float)acos(fmax(-1, fmin(1, cosine(a, b))));
    return length(a) + length(b) > 0 ? (float)acos(-1) : 0;
}

START_TEST(the_farthest_are_retained)
{
    enum { RETAIN = 40 };
    struct two *p = merged(RETAIN, N, 0.6);
    float x[HD], y[HD];

    for (int h = 0; h < N_KV; h++)
        for (int v = 0; v < 2; v++) {
            const float *ratio = cb_store_col(&p->of[0], h, v);
            float least = 9, most = 0;
            int n = 0;
            for (int i = 0; i < N; i++) {
                const float angle = angle_at(h, i);
                n += ratio[i] < 0;
                if (ratio[i] < 0)
                    least = fminf(least, angle);
                else
                    most = fmaxf(most, angle);
                row_of(p, 0, h, v, i, x);
                row_of(p, 1, h, v, i, y);
                for (int d = 0; ratio[i] < 0 && d < HD; d++) {
                    ck_assert_float_eq(x[d], (float)(1 + v) * layer[0][i][h][d]);
                    ck_assert_float_eq(y[d], (float)(1 + v) * layer[1][i][h][d]);
                }
            }
            ck_assert_int_eq(n, RETAIN);
            ck_assert_int_eq(*cb_store_retained(&p->of[0], h, v), RETAIN);
            ck_assert_float_ge(least, most - 1e-5f);
        }
    close_two(p);
}
END_TEST

/* In two steps, with room for some of the later slots: these are chosen among themselves. */
START_TEST(merged_in_steps)
{
    struct two *p = merged(100, 200, 0.6);
    const float *ratio = cb_store_col(&p->of[0], 1, 0);
    int n[2] = { 0 };
    float x[HD];

    row_of(p, 0, 1, 1, 250, x);
    for (int d = 0; d < HD; d++) /* a slot that is not merged yet */
        ck_assert_float_eq(x[d], 2 * layer[0][250][1][d]);
    cb_store_pair_merge(&p->of[0], dev, N, 0.6, 107, &p->work);
    for (int i = 0; i < N; i++)
        n[i >= 200] += ratio[i] < 0;
    ck_assert_int_eq(n[0], 100);
    ck_assert_int_eq(n[1], 7);
    cb_store_pair_merge(&p->of[0], dev, N, 0.6, N, &p->work); /* nothing is left to merge */
    ck_assert_int_eq(*cb_store_retained(&p->of[0], 1, 0), 107);
    for (int i = 0; i < N; i++) {
        row_of(p, 0, 1, 0, i, x);
        ck_assert_double_eq_tol(length(x) / length(layer[0][i][1]), 1, 1e-6);
        for (int d = 0; ratio[i] < 0 && d < HD; d++)
            ck_assert_float_eq(x[d], layer[0][i][1][d]);
    }
    close_two(p);
}
END_TEST

/* All retained: every bit stays. */
START_TEST(all_are_retained)
{
    struct two *p = merged(N, N, 0.6);
    float x[HD];

    for (int i = 0; i < 2 * N * N_KV; i++) {
        const int l = i % 2, h = i / 2 % N_KV, j = i / 2 / N_KV;
        row_of(p, l, h, 0, j, x);
        ck_assert(!memcmp(x, layer[l][j][h], sizeof x));
    }
    close_two(p);
}
END_TEST

/* ---- sizes ---- */

/* 12,000 tokens of f16 rows of 128, of which 1,024 are retained: the later layer has all of its
 * rows, the earlier one those of retained slots and a ratio for each slot. */
START_TEST(memory_falls)
{
    enum { HEAD = 128, TOK = 12000, RETAIN = 1024, ROW = N_KV * HEAD };
    struct two *p = open_two(HEAD, KV_F16, TOK);
    float *x = malloc(sizeof *x * TOK * ROW);
    uint64_t full, now;
    double layers; /* of 32, of which the last 16 are pairs */
    long before;

    ck_assert_ptr_nonnull(x);
    for (int l = 0; l < 2; l++) {
        for (int i = 0; i < TOK * ROW; i++)
            x[i] = noise();
        append(p, l, x, TOK);
    }
    full = (uint64_t)2 * TOK * N_KV * HEAD * 2 * 2;
    ck_assert_uint_eq(cb_store_bytes(&p->of[0]) + cb_store_bytes(&p->of[1]),
                      full + TOK * N_KV * 2 * sizeof(float));
    before = cb_resident_bytes();
    cb_store_pair_merge(&p->of[0], dev, TOK, 0.6, RETAIN, &p->work);
    now = cb_store_bytes(&p->of[0]) + cb_store_bytes(&p->of[1]);
    ck_assert_uint_eq(now, (uint64_t)N_KV * 2 * (TOK * (2 * HEAD + 4) + RETAIN * 2 * HEAD));
    layers = 32.0 / (16 + 16 * (double)now / (double)full);
    ck_assert_double_eq_tol(layers, 1.28992, 1e-5);
    if (CB_SLOWED == 1) /* sanitizers keep more */
        ck_assert_int_gt(before - cb_resident_bytes(), (long)(full - now) * 9 / 10);
    cb_store_cut(&p->of[0], 0);
    ck_assert_int_eq(p->of[0].merged + *cb_store_retained(&p->of[0], 0, 1), 0);
    ck_assert_uint_eq(cb_store_bytes(&p->of[0]), 0);
    free(x);
    close_two(p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store pair");
    TCase *t = tcase_create("slots");
    int rc;

    if (cb_device_open("cpu", 2, &dev)) {
        fprintf(stderr, "%s\n", cb_error());
        return EXIT_FAILURE;
    }
    suite_add_tcase(suite, t);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, worked_example);
    tcase_add_test(t, lengths_and_angles);
    tcase_add_test(t, where_no_arc_leads);
    tcase_add_test(t, the_farthest_are_retained);
    tcase_add_test(t, merged_in_steps);
    tcase_add_test(t, all_are_retained);
    tcase_add_test(t, memory_falls);
    rc = cb_suite_run(suite);
    cb_device_close(dev);
    return rc;
}
