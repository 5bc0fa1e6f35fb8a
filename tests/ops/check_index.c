/* SPDX-License-Identifier: MIT */
/* check_index.c - keys of trained selectors in strips: what a key comes back as, and scores of
 * every ISA against the reference device. */
#include "against_ref.h"

#include "device/index_strips.h"

enum { CASES = 40, MOST = 700 };

static const int widths[] = { 128, 64, 40, 6, 20, 90, 128, 576 };

static void *blocks_of(const float *k, int n, int stride, int hd)
{
    void *p = cb_guarded(cb_strips_bytes(hd, n));

    memset(p, 0xa5, cb_strips_bytes(hd, n)); /* what a block had before */
    for (int i = 0; i < n;) {                /* in pieces of any length */
        const int some = 1 + below(n - i);
        cb_strips_put(k + (size_t)i * (size_t)stride, some, stride, hd, i, p);
        i += some;
    }
    return p;
}

/* Keys with outliers, all zero, and in every place of a block */
START_TEST(keys_come_back)
{
    for (int c = 0; c < cb_test_cases(CASES); c++) {
        const int hd = widths[c % 8], n = 1 + below(300), stride = hd + below(5);
        float *k = floats((size_t)n * (size_t)stride), *y = poisoned((size_t)n * (size_t)hd);
        int32_t *idx = ints((size_t)n);
        void *p;
        for (int i = 0; i < hd; i++)
            k[i + (n - 1) * stride] = 0;
        if (c % 3 == 1)
            k[below(hd)] = 50;
        p = blocks_of(k, n, stride, hd);
        for (int j = 0; j < n; j++)
            idx[j] = n - 1 - j;
        cb_strips_get(p, idx, n, hd, y);
        for (int j = 0; j < n; j++) {
            const float *x = k + (size_t)idx[j] * (size_t)stride;
            float most = 0;
            for (int i = 0; i < hd; i++)
                most = fmaxf(most, fabsf(x[i]));
            for (int i = 0; i < hd; i++) /* a step is 1/127 of the largest, in 15 parts */
                ck_assert_float_le(fabsf(y[j * hd + i] - x[i]), most / 127 / 15 * 0.51f + 1e-7f);
        }
        free(k), free(y), free(idx), free(p);
    }
}
END_TEST

/* Blocks as earlier versions saved them: the codes in strips, the steps after all of them */
START_TEST(earlier_blocks)
{
    for (int c = 0; c < cb_test_cases(CASES); c++) {
        const int hd = c % 2 ? 128 : 64, n = 1 + below(300), n_block = (n - 1) / STRIP_BLOCK + 1;
        const size_t bytes = cb_strips_bytes(hd, n), block = cb_strip_bytes(hd);
        float *k = floats((size_t)n * (size_t)hd);
        uint8_t *p = blocks_of(k, n, hd, hd), *old = cb_guarded(bytes);
        memcpy(old, p, bytes); /* the rests stay */
        for (int b = 0; b < n_block; b++) {
            uint8_t *to = old + (size_t)b * block, *from = p + (size_t)b * block;
            for (int j = 0; j < STRIP_BLOCK; j++)
                for (int i = 0; i < hd; i++)
                    to[((j / 16 * hd / 4 + i / 4) * 16 + j % 16) * 4 + i % 4] =
                        (uint8_t)cb_strip_code(hd, from, j, i);
            memcpy(to + STRIP_BLOCK * hd, cb_strip_steps(hd, from), STRIP_BLOCK * sizeof(float));
        }
        ck_assert(memcmp(old, p, bytes));
        cb_strips_renew(hd, old, bytes);
        ck_assert_mem_eq(old, p, bytes);
        free(k), free(p), free(old);
    }
}
END_TEST

static float *work_of(const struct index_scan *s)
{
    return aligned_alloc(64,
                         cb_index_scan_bytes(NULL, s->n_tok, s->n_head, s->hd, s->n, s->k, NULL));
}

START_TEST(scores)
{
    if (!open_isa(_i, 3))
        return;
    for (int c = 0; c < cb_test_cases(CASES); c++) {
        const int hd = widths[c % 8], n = 1 + below(MOST), n_head = 1 + below(70);
        const int stride = n_head * (hd + 1) + below(7), n_tok = 1 + below(3);
        const size_t out_stride = (size_t)(n + STRIP_BLOCK - 1) / STRIP_BLOCK * STRIP_BLOCK;
        float *k = floats((size_t)n * (size_t)hd), *q = floats((size_t)n_tok * (size_t)stride);
        float *x = poisoned((size_t)n_tok * out_stride), *y = poisoned((size_t)n_tok * out_stride);
        void *p = blocks_of(k, n, hd, hd);
        struct index_scan s = { .n_tok = n_tok,
                                .n_head = n_head,
                                .hd = hd,
                                .n = n,
                                .keys = p,
                                .q = q,
                                .weight = c % 4 ? q + (size_t)n_head * (size_t)hd : NULL,
                                .stride = stride,
                                .out = x,
                                .out_stride = out_stride };
        if (c % 5 == 2)
            q[below(n_head * hd)] = 90;
        s.work = work_of(&s);
        dev->ops->index_scan(dev, &s);
        s.out = y;
        ref->ops->index_scan(ref, &s);
        for (int i = 0; i < n_tok; i++)
            same("scores", x + (size_t)i * out_stride, y + (size_t)i * out_stride, (size_t)n,
                 1e-5f * (c % 5 == 2 ? 90.0f : 1.0f) * (float)n_head);
        free(s.work);
        free(k), free(q), free(x), free(y), free(p);
    }
}
END_TEST

static const float *by; /* scores that higher() compares */

static int higher(const void *a, const void *b)
{
    const float x = by[*(const int *)a], y = by[*(const int *)b];

    return (x < y) - (x > y);
}

/* How many of the k best scores y[n] are in x, where others may be -inf */
static int found(const float *x, const float *y, int n, int k)
{
    int *order = malloc((size_t)n * sizeof *order), m = 0;

    for (int j = 0; j < n; j++)
        order[j] = j;
    by = y;
    qsort(order, (size_t)n, sizeof *order, higher);
    for (int j = 0; j < k; j++)
        m += x[order[j]] > -INFINITY;
    free(order);
    return m;
}

/* Number i of the queries becomes what makes each second head the opposite of the one before it,
 * with the same weight: what the heads give a key is even in it, and no line tells it. */
static void mirror(float *q, int i, int stride, int hd, int n_head)
{
    const int c = i % stride;

    if (c < n_head * hd && c / hd % 2)
        q[i] = -q[i - hd];
    if (c >= n_head * hd && (c - n_head * hd) % 2)
        q[i] = q[i - 1];
}

/* Where k of the scores are wanted, those that are given are exact, and at least 99.8% of the k
 * best are: with keys that wander, with some heads that weigh much, with equal keys, with the best
 * in a place that no sample has, and with heads that are opposites. A query's scores are the same
 * beside others that see more keys. */
START_TEST(the_best)
{
    enum { N = 40000, HD = 64, HEADS = 48, TOK = 3, STRIDE = HEADS * (HD + 1), K = 600 };
    const size_t row = (N + STRIP_BLOCK - 1) / STRIP_BLOCK * STRIP_BLOCK;

    if (_i % cb_test_nth() != cb_test_nth() - 1) /* a sample of tiers: cases draw in turn */
        return;
    for (int c = 0; open_isa(_i, 3) && c < 5; c++) {
        ck_assert(dev->ops->reserve(dev, 8, HD, HD, HEADS, HD, N) >= 0);
        float *k = floats((size_t)N * HD), *q = floats((size_t)TOK * STRIDE), *w = q + HEADS * HD;
        float *x = poisoned(TOK * row), *y = poisoned(TOK * row), *z = poisoned(row);
        const int seen[TOK] = { N - 500, 8 * K - 1, N };
        struct index_scan s = { .n_tok = TOK,
                                .n_head = HEADS,
                                .hd = HD,
                                .n = N,
                                .n_key = seen,
                                .k = K,
                                .q = q,
                                .weight = w,
                                .stride = STRIDE,
                                .out = x,
                                .out_stride = row };
        int left = 0;
        for (int j = 1; c == 1 && j < N; j++)
            for (int i = 0; i < HD; i++)
                k[j * HD + i] = 0.9f * k[(j - 1) * HD + i] + 0.4f * k[j * HD + i];
        for (int t = 0; c == 2 && t < TOK; t++)
            w[t * STRIDE + 30] = 9;
        for (int j = 0; c == 3 && j < N; j++) /* all equal but for a run of more than k */
            memcpy(k + j * HD, j >= 33000 && j < 34000 ? q : k, HD * sizeof *k);
        for (int i = 0; c == 4 && i < TOK * STRIDE; i++)
            mirror(q, i, STRIDE, HD, HEADS);
        s.keys = blocks_of(k, N, HD, HD);
        s.work = work_of(&s);
        dev->ops->index_scan(dev, &s);
        s.out = y;
        ref->ops->index_scan(ref, &s);
        for (int t = 0; t < TOK; t++) {
            const float *got = x + (size_t)t * row, *want = y + (size_t)t * row;
            for (int j = 0; j < seen[t]; j++)
                left += got[j] == -INFINITY;
            for (int j = 0; j < seen[t]; j++)
                ck_assert(got[j] == -INFINITY || fabsf(got[j] - want[j]) < 1e-3f);
            ck_assert_int_ge(found(got, want, seen[t], K), K - K / 500);
        }
        ck_assert(strcmp(dev->name, "cpu") || c >= 3 || left > N); /* of two queries */
        s.n_tok = 1;
        s.n_key = NULL;
        s.n = seen[0];
        s.out = z;
        dev->ops->index_scan(dev, &s);
        ck_assert(!memcmp(x, z, (size_t)seen[0] * sizeof *z));
        free(s.work), free((void *)(uintptr_t)s.keys);
        free(k), free(q), free(x), free(y), free(z);
        cb_device_close(dev);
        dev = NULL;
    }
}
END_TEST

/* Of one query, by any team, and with other queries: the same bits */
START_TEST(bits)
{
    enum { N = 5000, HD = 128, HEADS = 64, TOK = 3, STRIDE = HEADS * (HD + 1), ROW = 5120 };
    float *k = floats((size_t)N * HD), *q = floats((size_t)TOK * STRIDE);
    float *x = poisoned((size_t)TOK * ROW), *y = poisoned(ROW);
    void *p = blocks_of(k, N, HD, HD);
    struct index_scan s = { .n_tok = TOK,
                            .n_head = HEADS,
                            .hd = HD,
                            .n = N,
                            .keys = p,
                            .q = q,
                            .weight = q + (size_t)HEADS * HD,
                            .stride = STRIDE,
                            .out = x,
                            .out_stride = ROW };

    s.work = work_of(&s);
    if (open_isa(_i, 3))
        dev->ops->index_scan(dev, &s);
    for (int threads = 1; dev && threads < 3; threads++) {
        cb_device_close(dev);
        if (!open_isa(_i, threads))
            break;
        s.n_tok = 1;
        s.out = y;
        s.q = q + (size_t)threads * STRIDE;
        s.weight = s.q + (size_t)HEADS * HD;
        dev->ops->index_scan(dev, &s);
        ck_assert(!memcmp(y, x + (size_t)threads * ROW, N * sizeof *y));
    }
    free(s.work);
    free(k), free(q), free(x), free(y), free(p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("index");
    TCase *tc = tcase_create("index");

    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, keys_come_back);
    tcase_add_test(tc, earlier_blocks);
    tcase_add_loop_test(tc, scores, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, the_best, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, bits, ISA_FROM, ISA_TO);
    suite_add_tcase(suite, tc);
    return cb_suite_run(suite);
}
