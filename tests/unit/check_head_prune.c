/* SPDX-License-Identifier: MIT */
/* check_head_prune.c - some rows of a product; the largest logits by way of a preview, against the
 * whole product: the same bits. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session.h"
#include "kit/inside.h"
#include "kit/isa.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"
#include "model/head_prune.h"

enum { IN = 512, OUT = 5057, TWIN = 2500 };

static const enum dtype types[] = { DT_Q8_0, DT_Q6_K, DT_Q5_1, DT_F16, DT_F32 };
enum { N_TYPE = 1 + (sizeof types / sizeof *types - 1) / CB_SLOWED };

static uint32_t seed = 1;

static float normal(void)
{
    float sum = -6;
    for (int i = 0; i < 12; i++) {
        seed = seed * 1664525u + 1013904223u;
        sum += (float)(seed >> 8) * 0x1p-24f;
    }
    return sum;
}

static void *alloc(size_t n, size_t size)
{
    void *p = calloc(n, size);
    ck_assert_ptr_nonnull(p);
    return p;
}

/* Rows of different sizes; from TWIN on the first ones again, a little off, so that places are
 * disputed. */
static struct weight matrix(enum dtype t)
{
    const size_t bytes = cb_row_bytes(t, IN);
    uint8_t *raw = alloc(OUT, bytes);
    float x[IN];

    for (int r = 0; r < OUT; r++) {
        const float size = 0.5f + (float)(r % 7) * 0.1f;
        if (r < TWIN)
            for (int i = 0; i < IN; i++)
                x[i] = size * normal() * (i % 97 ? 1 : 4);
        else
            cb_dtype[t].to_f32(raw + (size_t)(r - TWIN) % TWIN * bytes, x, IN);
        x[r % IN] += r < TWIN ? 0 : 0.05f;
        cb_dtype[t].from_f32(x, raw + (size_t)r * bytes, IN);
    }
    return (struct weight){ .name = "w", .type = t, .n_in = IN, .n_out = OUT, .raw = raw };
}

/* Activations of even size; with outliers; one of which is nearly all. */
static void activations(int kind, float *x)
{
    for (int i = 0; i < IN; i++)
        x[i] = normal() * (kind == 1 && i % 50 == 3 ? 30 : 1);
    if (kind == 2)
        x[77] = 500;
}

static int larger_first(const void *pa, const void *pb)
{
    const float a = *(const float *)pa, b = *(const float *)pb;
    return (a < b) - (a > b);
}

/* Are the k largest of y those of `all`, to the bit? And were this many others not made? */
static void same_top(const float *all, const float *y, int k, int left, const char *what)
{
    float *sorted = alloc(OUT, sizeof *sorted);
    int n = 0;

    memcpy(sorted, all, OUT * sizeof *sorted);
    qsort(sorted, OUT, sizeof *sorted, larger_first);
    for (int r = 0; r < OUT; r++) {
        if (all[r] >= sorted[k - 1])
            ck_assert_msg(!memcmp(&all[r], &y[r], sizeof *y), "%s, top %d: row %d is %g, not %g",
                          what, k, r, (double)y[r], (double)all[r]);
        else
            ck_assert_msg(y[r] < sorted[k - 1], "%s, top %d: row %d has come up", what, k, r);
        n += all[r] != y[r];
    }
    ck_assert_msg(n >= left, "%s, top %d: only %d logits were left to the preview", what, k, n);
    free(sorted);
}

static void top_of(struct device *d, struct weight *w, const char *what)
{
    static const int tops[] = { 1, 2, 20, 78 };
    const struct mm mm = { w, NULL, alloc(OUT, sizeof(float)), OUT, 0, 16 };
    float *y = alloc(OUT, sizeof *y), x[IN];
    struct head_prune_stats stats = { 0 };
    struct head_prune *p;

    ck_assert_ok(cb_head_prune_new(d, w, OUT * cb_row_bytes(w->type, IN), &p));
    ck_assert_ptr_nonnull(p);
    for (int kind = 0; kind < 3; kind++) {
        activations(kind, x);
        d->ops->matmul(d, &mm, 1, x, 1);
        for (size_t i = 0; i < sizeof tops / sizeof *tops; i++) {
            cb_head_prune_top(d, p, &stats, tops[i], 16, x, y);
            /* beside one large activation, or of nearly as many places as blocks, any row may be
             * one */
            const int left = kind == 2 || tops[i] > 20 ? 0 : OUT / 4;
            same_top(mm.y, y, tops[i], left, what);
        }
        cb_head_prune_top(d, p, &stats, OUT / 2, 16, x, y); /* as many as that are not looked for */
        ck_assert_msg(!memcmp(mm.y, y, OUT * sizeof *y), "%s: half of all", what);
    }
    memset(x, 0, sizeof x); /* any row may be the largest */
    cb_head_prune_top(d, p, &stats, 1, 16, x, y);
    for (int r = 0; r < OUT; r++)
        ck_assert(y[r] == 0);
    cb_head_prune_free(d, p);
    free(mm.y);
    free(y);
}

START_TEST(top)
{
    struct weight w = matrix(types[_i]);

    for (int isa = 0; isa < N_ISA; isa++) {
        struct device *d = cb_isa_open(isa, 1 + isa % 3);
        char what[64];

        if (!d)
            continue;
        snprintf(what, sizeof what, "%s %s", cb_isa[isa], cb_dtype[w.type].name);
        ck_assert_ok(d->ops->load(d, &w));
        ck_assert_int_ge(d->ops->reserve(d, 1, IN, OUT, 1, 64, 1), 0);
        top_of(d, &w, what);
        d->ops->unload(d, &w);
        cb_device_close(d);
    }
    free((void *)(uintptr_t)w.raw);
}
END_TEST

/* ---- the bound's promise ---- */

static double dot(const float *x, const float *y)
{
    double sum = 0;
    for (int i = 0; i < IN; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

static void add(float *x, double c, const float *y)
{
    for (int i = 0; i < IN; i++)
        x[i] += (float)(c * (double)y[i]);
}

/* What the preview's five bits take from a row */
static void rounding(const float *row, float *e)
{
    uint8_t block[IN];

    cb_dtype[DT_Q5_0].from_f32(row, block, IN);
    cb_dtype[DT_Q5_0].to_f32(block, e, IN);
    for (int i = 0; i < IN; i++)
        e[i] = row[i] - e[i];
}

/* By how many standard deviations the rounding of a row changes its logit */
static double spreads(const float *e, const float *x)
{
    return dot(e, x) / sqrt(dot(e, e) * dot(x, x) / IN);
}

/* Activations for which `best` is the largest logit by a little, the preview takes five and a half
 * deviations from it, and adds as many to the logit of `rival`. */
static void disputed(const float *best, const float *rival, float *x)
{
    float e[2][IN], difference[IN];
    double gap;

    rounding(best, e[0]);
    rounding(rival, e[1]);
    for (int i = 0; i < IN; i++) {
        x[i] = normal();
        difference[i] = best[i] - rival[i];
    }
    add(x, 8 / sqrt(dot(best, best)), best);
    add(x, 8 / sqrt(dot(rival, rival)), rival);
    for (int round = 0; round < 20; round++) { /* the three wishes hardly touch one another */
        add(x, (5.5 - spreads(e[0], x)) / sqrt(dot(e[0], e[0])), e[0]);
        add(x, (-5.5 - spreads(e[1], x)) / sqrt(dot(e[1], e[1])), e[1]);
        gap = 0.2 * sqrt(dot(e[0], e[0]) * dot(x, x) / IN);
        add(x, (gap - dot(difference, x)) / dot(difference, difference), difference);
    }
    ck_assert_double_eq_tol(spreads(e[0], x), 5.5, 0.3);
    ck_assert_double_eq_tol(spreads(e[1], x), -5.5, 0.3);
}

/* A row whose preview is far too small, within the bound, is found, wherever it lies. */
START_TEST(a_row_that_the_preview_hides_is_found)
{
    static const int places[] = { 0, 15, 63, 64, 2047, 4991, 4992, OUT - 1 };
    const int best = places[_i], rival = 1234;
    struct weight w = { .name = "w", .type = DT_F32, .n_in = IN, .n_out = OUT };
    float *raw = alloc((size_t)OUT * IN, sizeof *raw), *y = alloc(OUT, sizeof *y), x[IN];
    struct head_prune_stats stats = { 0 };
    struct head_prune *p;
    struct device *d;
    struct mm all = { &w, NULL, alloc(OUT, sizeof(float)), OUT, 0, 1 };

    for (int i = 0; i < OUT * IN; i++)
        raw[i] = 0.2f * normal();
    w.raw = raw;
    disputed(raw + (size_t)best * IN, raw + (size_t)rival * IN, x);
    ck_assert_ok(cb_device_open("cpu", 2, &d));
    ck_assert_ok(d->ops->load(d, &w));
    ck_assert_int_ge(d->ops->reserve(d, 1, IN, OUT, 1, 64, 1), 0);
    ck_assert_ok(cb_head_prune_new(d, &w, OUT * cb_row_bytes(DT_F32, IN), &p));
    d->ops->matmul(d, &all, 1, x, 1);
    cb_head_prune_top(d, p, &stats, 1, 16, x, y);
    same_top(all.y, y, 1, OUT / 2, "a hidden row");
    ck_assert_float_eq(y[best], all.y[best]);
    ck_assert_float_gt(all.y[best], all.y[rival]);
    cb_head_prune_free(d, p);
    d->ops->unload(d, &w);
    cb_device_close(d);
    free(raw);
    free(y);
    free(all.y);
}
END_TEST

/* Rows that were asked for are those of the whole product; what is not in their groups stays. */
START_TEST(some_rows)
{
    static const int32_t rows[] = { 0, 1, 15, 16, 700, 701, 2222, 4999, 5000, OUT - 1 };
    enum { N = sizeof rows / sizeof *rows };
    struct weight w = matrix(types[_i]);
    float *all = alloc(OUT, sizeof *all), *y = alloc(OUT, sizeof *y), x[IN];

    activations(0, x);
    for (int isa = 0; isa < N_ISA; isa++)
        for (int k = 0; k < 4; k++) {
            const int bits = k % 2 ? 16 : 8, threads = 1 + k / 2;
            struct device *d = cb_isa_open(isa, threads);
            int n = 0;

            if (!d)
                continue;
            ck_assert_ok(d->ops->load(d, &w));
            ck_assert_int_ge(d->ops->reserve(d, 1, IN, OUT, 1, 64, 1), 0);
            memset(y, 0xff, OUT * sizeof *y);
            d->ops->matmul(d, &(struct mm){ &w, NULL, all, OUT, 0, bits }, 1, x, 1);
            d->ops->matmul_rows(d, &(struct mm){ &w, NULL, y, OUT, 0, bits }, rows, N, x);
            for (int i = 0; i < N; i++)
                ck_assert_msg(y[rows[i]] == all[rows[i]], "%s %s: row %d", cb_isa[isa],
                              cb_dtype[w.type].name, rows[i]);
            for (int r = 0; r < OUT; r++) {
                ck_assert(isnan(y[r]) || y[r] == all[r]);
                n += !isnan(y[r]);
            }
            ck_assert_msg(n <= N * 16, "%d rows for %d", n, N);
            d->ops->unload(d, &w);
            cb_device_close(d);
        }
    free((void *)(uintptr_t)w.raw);
    free(all);
    free(y);
}
END_TEST

/* Not where rows have hardly more bits, or where they are a small part of what a token reads. */
START_TEST(pays)
{
    struct weight w = matrix(DT_Q4_0);
    const size_t bytes = OUT * cb_row_bytes(DT_Q8_0, IN);
    struct device *d;
    struct head_prune *p;

    ck_assert_ok(cb_device_open("cpu", 1, &d));
    ck_assert_ok(cb_head_prune_new(d, &w, bytes, &p));
    ck_assert_ptr_null(p);
    ck_assert_uint_eq(cb_head_prune_bytes(p), 0);
    w.type = DT_Q8_0; /* twice the bytes, which are not read */
    ck_assert_ok(cb_head_prune_new(d, &w, 20 * bytes, &p));
    ck_assert_ptr_null(p);
    cb_device_close(d);
    free((void *)(uintptr_t)w.raw);
}
END_TEST

static int32_t largest(const float *y, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = y[i] > y[best] ? i : best;
    return best;
}

/* The same greedy text, token by token, with logits of which others differ. */
START_TEST(same_text)
{
    enum { N = 60 };
    const struct tiny tiny = cb_tiny_get("qwen2");
    struct cb_model *m = cb_toy_model(&tiny, "cpu", 2);
    struct cb_session *s[2] = { cb_toy_session(m, "full", "f16", 64),
                                cb_toy_session(m, "full", "f16", 64) };
    const size_t n_vocab = (size_t)m->hp.n_vocab;
    int differs = 0;

    ck_assert_ok(cb_session_want_top(s[0], 1));
    ck_assert_ptr_nonnull(m->head_prune);
    ck_assert_int_eq(cb_session_want_top(s[0], -1), CB_EARG);
    for (int i = 0; i < 2; i++)
        ck_assert_ok(cb_session_prefill(s[i], cb_toy_text(m), 100, NULL));
    ck_assert(!memcmp(cb_session_logits(s[0]), cb_session_logits(s[1]), n_vocab * sizeof(float)));
    for (int i = 0; i < N; i++) {
        const float *a = cb_session_logits(s[0]), *b = cb_session_logits(s[1]);
        const int32_t id = largest(b, (int)n_vocab);
        ck_assert_int_eq(largest(a, (int)n_vocab), id);
        ck_assert(a[id] == b[id]);
        differs += !!memcmp(a, b, n_vocab * sizeof *a);
        for (int j = 0; j < 2; j++)
            ck_assert_ok(cb_session_decode(s[j], id));
    }
    ck_assert_int_gt(differs, N / 2);
    ck_assert_ok(cb_session_want_top(s[0], 0));
    for (int j = 0; j < 2; j++)
        ck_assert_ok(cb_session_decode(s[j], 1));
    ck_assert(!memcmp(cb_session_logits(s[0]), cb_session_logits(s[1]), n_vocab * sizeof(float)));
    for (int j = 0; j < 2; j++)
        cb_session_close(s[j]);
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("preview");
    TCase *tc = tcase_create("preview");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, top, 0, N_TYPE);
    tcase_add_loop_test(tc, a_row_that_the_preview_hides_is_found, 0, 8);
    tcase_add_loop_test(tc, some_rows, 0, N_TYPE);
    tcase_add_test(tc, pays);
    tcase_add_test(tc, same_text);
    suite_add_tcase(suite, tc);
    return cb_suite_run(suite);
}
