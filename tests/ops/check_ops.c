/* SPDX-License-Identifier: MIT */
/* check_ops.c - the small ops of the CPU device against the reference device: random cases with odd
 * sizes and outliers. Products of matrices: check_matmul.c; attention: check_attn.c. */
#include "against_ref.h"

START_TEST(rmsnorm)
{
    if (!open_isa(_i, 2))
        return;
    for (int c = 0; c < 60; c++) {
        const int n = 1 + below(300), rows = 1 + below(3), n_tok = below(80);
        const int xs = n * rows + below(7), ys = n * rows + below(7);
        float *x = floats((size_t)xs * n_tok), *w = floats(n);
        float *y = floats((size_t)ys * n_tok), *z = copy(y, (size_t)ys * n_tok);
        if (n_tok)
            x[0] = 1000.0f;
        dev->ops->rmsnorm(dev, x, w, 1e-5f, n, rows, n_tok, xs, y, ys);
        ref->ops->rmsnorm(ref, x, w, 1e-5f, n, rows, n_tok, xs, z, ys);
        same("rmsnorm", y, z, (size_t)ys * n_tok, 2e-6f);
        if (xs >= ys) { /* in place */
            float *z2 = copy(x, (size_t)xs * n_tok);
            dev->ops->rmsnorm(dev, x, w, 1e-5f, n, rows, n_tok, xs, x, xs);
            ref->ops->rmsnorm(ref, z2, w, 1e-5f, n, rows, n_tok, xs, z2, xs);
            same("rmsnorm in place", x, z2, (size_t)xs * n_tok, 2e-6f);
            free(z2);
        }
        free(x), free(w), free(y), free(z);
    }
}
END_TEST

START_TEST(layernorm)
{
    if (!open_isa(_i, 2))
        return;
    for (int c = 0; c < 60; c++) {
        const int n = 2 + below(300), rows = 1 + below(3), n_tok = below(80);
        const int xs = n * rows + below(7), ys = n * rows + below(7);
        float *x = floats((size_t)xs * n_tok), *w = floats(n), *b = c % 2 ? floats(n) : NULL;
        float *y = floats((size_t)ys * n_tok), *z = copy(y, (size_t)ys * n_tok);
        for (int i = 0; i < xs * n_tok; i++)
            x[i] += 3; /* a mean that must go */
        dev->ops->layernorm(dev, x, w, b, 1e-5f, n, rows, n_tok, xs, y, ys);
        ref->ops->layernorm(ref, x, w, b, 1e-5f, n, rows, n_tok, xs, z, ys);
        same("layernorm", y, z, (size_t)ys * n_tok, 8e-6f);
        free(x), free(w), free(b), free(y), free(z);
    }
}
END_TEST

START_TEST(sink)
{
    if (!open_isa(_i, 2))
        return;
    for (int c = 0; c < 40; c++) {
        const int n_tok = below(40), n_head = 1 + below(9), hd = 1 + below(130);
        const size_t rows = (size_t)n_tok * n_head, out = rows * hd;
        float *x = floats(out), *y = copy(x, out), *l = floats(rows), *m, *s = floats(n_head);
        for (size_t r = 0; r < rows; r++)
            l[r] = r % 5 == 1 ? -INFINITY : l[r] * 40;
        for (int h = 0; h < n_head; h++)
            s[h] = h % 3 == 1 ? -INFINITY : s[h] * 20;
        for (size_t r = 0; r < rows; r++)
            l[r] = s[r % n_head] == -INFINITY && l[r] == -INFINITY ? 0 : l[r];
        m = copy(l, rows);
        dev->ops->sink(dev, x, l, s, n_tok, n_head, hd);
        ref->ops->sink(ref, y, m, s, n_tok, n_head, hd);
        same("sink", x, y, out, 4e-6f);
        same("sink lse", l, m, rows, 1e-6f);
        free(x), free(y), free(l), free(m), free(s);
    }
}
END_TEST

START_TEST(rope)
{
    if (!open_isa(_i, 2))
        return;
    for (int c = 0; c < 120; c++) {
        const int hd = 2 * (1 + below(150)), n_rot = 2 * (1 + below(hd / 2)), heads = 1 + below(5);
        const int n_tok = below(40), stride = hd * heads + below(5);
        const enum rope_kind kind = c % 2 ? ROPE_HALF : ROPE_PAIR;
        float *x = floats((size_t)stride * n_tok), *y = copy(x, (size_t)stride * n_tok);
        float *cs = floats((size_t)n_rot * n_tok);
        dev->ops->rope(dev, kind, x, n_tok, heads, hd, stride, n_rot, cs);
        ref->ops->rope(ref, kind, y, n_tok, heads, hd, stride, n_rot, cs);
        same("rope", x, y, (size_t)stride * n_tok, 5e-7f);
        free(x), free(y), free(cs);
    }
}
END_TEST

START_TEST(glu_add_join)
{
    static const enum act_kind acts[] = { ACT_SILU,       ACT_GELU_TANH, ACT_GELU,
                                          ACT_SWIGLU_OAI, ACT_SIGMOID,   ACT_RELU2 };
    static const enum act_kind alone[] = { ACT_SILU, ACT_GELU_TANH, ACT_GELU, ACT_RELU2,
                                           ACT_SIGMOID };

    if (!open_isa(_i, 2))
        return;
    for (int c = 0; c < 60; c++) {
        const int n = 1 + below(700), n_tok = below(50), hd = 1 + below(130), rows = below(300);
        const size_t all = (size_t)n * n_tok, out = (size_t)rows * hd;
        float *x = floats(all), *u = floats(all), *y;
        for (size_t i = 0; i < all; i++)
            x[i] *= i % 7 ? 6.0f : 100.0f;
        y = copy(x, all);
        dev->ops->glu(dev, acts[c % 6], x, u, n, n_tok);
        ref->ops->glu(ref, acts[c % 6], y, u, n, n_tok);
        same("glu", x, y, all, 2e-6f);
        dev->ops->glu(dev, alone[c % 5], x, NULL, n, n_tok);
        ref->ops->glu(ref, alone[c % 5], y, NULL, n, n_tok);
        same("act", x, y, all, 4e-6f);
        dev->ops->add(dev, x, u, c % 2 ? 1 : -0.37f, all);
        ref->ops->add(ref, y, u, c % 2 ? 1 : -0.37f, all);
        same("add", x, y, all, 4e-6f);
        dev->ops->scale(dev, x, 2.5f, c % 2 ? 0 : 30, all);
        ref->ops->scale(ref, y, 2.5f, c % 2 ? 0 : 30, all);
        same("scale", x, y, all, 8e-6f);
        free(x), free(u), free(y);

        x = floats(out), u = floats(out), y = copy(x, out);
        float *l = floats(rows), *l2 = floats(rows), *m;
        for (int r = 0; r < rows; r++) {
            l[r] = r % 5 == 1 ? -INFINITY : l[r] * 40;
            l2[r] = r % 3 == 1 ? -INFINITY : l2[r] * 40;
        }
        m = copy(l, rows);
        dev->ops->join(dev, x, l, u, l2, rows, hd);
        ref->ops->join(ref, y, m, u, l2, rows, hd);
        same("join", x, y, out, 4e-6f);
        same("join lse", l, m, rows, 1e-6f);
        free(x), free(u), free(y), free(l), free(l2), free(m);
    }
}
END_TEST

START_TEST(kv_rows)
{
    if (!open_isa(_i, 2))
        return;
    for (int c = 0; c < 160; c++) {
        const enum kv_type t = (enum kv_type)(c % KV_TYPE_COUNT);
        const int hd = cb_kv_type[t].block * (1 + below(t == KV_Q8_0 ? 8 : 200)), n = below(60);
        const int stride = hd + below(9);
        const size_t row = cb_kv_row_bytes(t, hd), all = (size_t)hd * n;
        float *x = floats((size_t)stride * n), *y = poisoned(all), *z = poisoned(all);
        float *there = cb_device_alloc(dev, all, sizeof *there);
        char *a = cb_guarded(row * n), *b = cb_guarded(row * n);
        int32_t *idx = ints(n);
        for (int i = 0; i < n; i++)
            idx[i] = n - 1 - i;
        for (int i = 0; i < stride * n; i++)
            x[i] *= i % 50 == 3 ? 300.0f : i % 50 == 4 ? 1e-7f : 1.0f;
        memset(a, 0x5a, row * n), memset(b, 0x5a, row * n);
        dev->ops->kv_encode(dev, t, x, n, stride, hd, a);
        ref->ops->kv_encode(ref, t, x, n, stride, hd, b);
        if (memcmp(a, b, row * n))
            ck_abort_msg("kv_encode %s: bytes differ, hd %d n %d", cb_kv_type[t].name, hd, n);
        dev->ops->kv_decode(dev, t, b, c % 3 ? NULL : idx, n, hd, y);
        ref->ops->kv_decode(ref, t, b, c % 3 ? NULL : idx, n, hd, z);
        same("kv_decode", y, z, all, 0.0f);
        dev->ops->kv_decode(dev, t, b, c % 3 ? NULL : idx, n, hd, there);
        cb_device_copy(dev, y, there, all * sizeof *y);
        same("kv_decode there", y, z, all, 0.0f);
        cb_device_free(dev, there);
        free(x), free(y), free(z), free(a), free(b), free(idx);
    }
}
END_TEST

START_TEST(best_head)
{
    if (!open_isa(_i, 2))
        return;
    for (int c = 0; c < 60; c++) {
        const int n_head = 1 + below(20), n = 1 + below(c % 10 ? 300 : MAX_CTX);
        const int stride = n + below(9);
        float *x = floats(n_head * stride), *a = floats(n), *b = floats(n);
        for (int i = 0; i < n_head * stride; i++)
            x[i] = x[i] * 40.0f + (c % 3 ? 0.0f : 300.0f); /* sums of e^x do not fit in a float */
        for (int normed = 0; normed < 2; normed++) {
            dev->ops->best_head(dev, x, stride, n_head, n, normed, a);
            ref->ops->best_head(ref, x, stride, n_head, n, normed, b);
            same("best_head", a, b, n, c % 3 ? 2e-6f : 2e-5f);
        }
        free(x), free(a), free(b);
    }
}
END_TEST

START_TEST(head_lse)
{
    if (!open_isa(_i, 2) || !dev->ops->head_lse)
        return;
    for (int c = 0; c < 60; c++) {
        const int n_head = 1 + below(20), n = c % 7 ? below(c % 10 ? 300 : MAX_CTX) : 0;
        const int stride = n + 1 + below(9);
        float *x = floats(n_head * stride), *a = floats(n_head), *b = floats(n_head);
        for (int i = 0; i < n_head * stride; i++)
            x[i] = x[i] * 40.0f + (c % 3 ? 0.0f : 300.0f);
        dev->ops->head_lse(dev, x, stride, n_head, n, a);
        ref->ops->head_lse(ref, x, stride, n_head, n, b);
        for (int h = 0; !n && h < n_head; h++)
            ck_assert(isinf(a[h]) && isinf(b[h]) && a[h] < 0 && b[h] < 0);
        if (n)
            same("head_lse", a, b, n_head, 2e-6f);
        free(x), free(a), free(b);
    }
}
END_TEST

START_TEST(topk)
{
    if (!open_isa(_i, 2))
        return;
    for (int c = 0; c < 200; c++) {
        const int n = 1 + below(c % 10 ? 300 : MAX_CTX), k = c % 7 ? below(n + 1) : n;
        float *x = floats(n);
        int32_t *a = ints(k), *b = ints(k);
        for (int i = 0; c % 2 && i < n; i++)
            x[i] = (float)(below(5) - 2) * (i % 2 ? 1.0f : -1.0f); /* ties, -0 */
        if (n > 3)
            x[n / 2] = c % 3 ? INFINITY : -INFINITY;
        dev->ops->topk(dev, x, n, k, a);
        ref->ops->topk(ref, x, n, k, b);
        ck_assert_mem_eq(a, b, k * sizeof *a);
        for (int i = 1; i < k; i++)
            ck_assert_int_lt(a[i - 1], a[i]);
        free(x), free(a), free(b);
    }
}
END_TEST

/* Of many, where a sample tells where to look: most are -inf, as a selector's scores are; all are
 * alike; the sampled places hold the largest, or none of them; NaN */
START_TEST(topk_of_many)
{
    enum { MANY = 60000, CASES = 12 };

    for (int threads = 1; threads < 4 && open_isa(_i, threads); threads++) {
        ck_assert(dev->ops->reserve(dev, 8, MAX_IN, MAX_IN, MAX_HEAD, MAX_HD, MANY) >= 0);
        for (int c = 0; c < CASES; c++) {
            const int n = 8192 + below(MANY - 8192), k = c < 9 ? 1 + below(3000) : n / (c - 8);
            const int every = n / 2048;
            float *x = floats(n);
            int32_t *a = ints(k), *b = ints(k);
            for (int i = 0; i < n; i++) {
                if (c % 6 == 1 && i % 50)
                    x[i] = -INFINITY;
                if (c % 6 == 2)
                    x[i] = (float)below(2) * (i % 3 ? 1.0f : -1.0f); /* ties, -0 */
                if (c % 6 == 3 && !(i % every))
                    x[i] += 2;
                if (c % 6 == 4 && !(i % every))
                    x[i] = -INFINITY;
                if (c % 6 == 5 && !below(9))
                    x[i] = below(2) ? NAN : -NAN;
            }
            dev->ops->topk(dev, x, n, k, a);
            ref->ops->topk(ref, x, n, k, b);
            ck_assert_mem_eq(a, b, k * sizeof *a);
            free(x), free(a), free(b);
        }
        cb_device_close(dev);
        dev = NULL;
    }
}
END_TEST

START_TEST(nearest)
{
    if (!open_isa(_i, 3))
        return;
    for (int c = 0; c < 40; c++) {
        const int hd = head_dims[below(10)], n = below(c % 4 ? 60 : 900),
                  m = 1 + below(c % 3 ? 40 : 400);
        float *x = floats((size_t)n * hd), *y = floats((size_t)m * hd), *d1 = poisoned(n),
              *d2 = poisoned(n);
        int32_t *i1 = ints(n), *i2 = ints(n);
        if (m > 2) /* two rows alike: the lower one counts */
            memcpy(y + (size_t)(m - 1) * hd, y + (size_t)(m / 2) * hd, hd * sizeof *y);
        if (n > 1)
            memcpy(x, y + (size_t)(m / 2) * hd, hd * sizeof *x);
        dev->ops->nearest(dev, x, n, y, m, hd, i1, d1);
        ref->ops->nearest(ref, x, n, y, m, hd, i2, d2);
        same("nearest", d1, d2, n, 3e-5f);
        for (int i = 0; i < n; i++)
            if (i1[i] != i2[i]) { /* only where rounding decides */
                double a = 0, b = 0;
                for (int k = 0; k < hd; k++) {
                    a += (double)x[i * hd + k] * (double)y[i1[i] * hd + k];
                    b += (double)x[i * hd + k] * (double)y[i2[i] * hd + k];
                }
                ck_assert_msg(b - a > 0 && b - a < 1e-4, "row %d: %d, not %d", i, i1[i], i2[i]);
            }
        free(x), free(y), free(d1), free(d2), free(i1), free(i2);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ops");
    TCase *tc = tcase_create("ops");

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, rmsnorm, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, layernorm, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, sink, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, rope, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, glu_add_join, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, kv_rows, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, best_head, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, head_lse, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, topk, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, topk_of_many, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, nearest, ISA_FROM, ISA_TO);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
