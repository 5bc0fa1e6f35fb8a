/* SPDX-License-Identifier: MIT */
/* check_gpu_pages.c - bounds of the keys of pages that an accelerator draws, and pages that it
 * chooses by them, and blocks that it chooses by their keys, against the reference. */
#include "against_ref.h"

#include "device/sketch.h"

enum { KV = 3, GROUP = 9, MANY = 8193 };

/* The k best of ref's scores, and what they have at least */
static float best_of(const struct page_scores *s, int list, int k, int32_t *best)
{
    const float *of = s->out + (size_t)list * (size_t)s->out_stride;
    float least = INFINITY;

    ref->ops->topk(ref, of, s->n_page, k, best);
    for (int i = 0; i < k; i++)
        least = fminf(least, of[best[i]]);
    return least;
}

/* The lists are those of ref's scores: to the page where these are whole numbers */
static void same_pages(const struct page_topk *t, const struct page_scores *s, int whole)
{
    int32_t *best = malloc((size_t)t->k * sizeof *best);
    const int n = t->k * t->page;

    for (int l = 0; l < s->n_head / s->per; l++) {
        const float least = best_of(s, l, t->k, best);
        const int32_t *x = t->idx + (size_t)l * (size_t)t->idx_stride;
        for (int i = 0; i < n; i++) {
            const int p = (x[i] - t->lo) / t->page;
            ck_assert_int_eq(x[i], t->lo + p * t->page + i % t->page);
            ck_assert(p >= 0 && p < s->n_page && (!i || x[i] > x[i - 1]));
            ck_assert_float_ge(s->out[l * s->out_stride + p], least - 1e-4f * (1 + fabsf(least)));
            ck_assert(!whole || p == best[i / t->page]);
        }
        ck_assert_int_eq(x[n], -7);
    }
    free(best);
}

/* Bounds of the n pages' keys k[n_kv][n * page][hd], which the device stores first if there are
 * rows -> bounds */
static void draw(const struct page_scores *s, const float *k, int n, int page, uint8_t *rows,
                 uint8_t *bounds)
{
    for (int h = 0; h < s->n_kv; h++) {
        const size_t at = (size_t)(h * n * page * s->hd);
        const float *from = k + at;
        uint8_t *row = rows ? rows + at * sizeof *k : NULL;
        if (row)
            dev->ops->kv_encode(dev, KV_F32, from, n * page, s->hd, s->hd, row);
        dev->ops->bounds(dev, KV_F32, row ? (const void *)row : from, n, page, s->hd,
                         bounds + (size_t)h * s->head_bytes);
    }
    ck_assert_ok(cb_device_wait(dev));
}

/* The device scores, not the CPU, and again once keys have changed. */
START_TEST(a_device_chooses_the_best_pages)
{
    if (!open_isa(_i, 3))
        return;
    seed = 88172645463325252ULL;
    for (int c = 0; c < cb_test_cases(40); c++) {
        const int many = c % 20 == 9; /* several groups choose */
        const int hd = many ? 32 : head_dims[c % 10], group = c % 5 ? 1 + below(GROUP) : 16;
        const int n_kv = 1 + below(KV), page = 1 + below(many ? 2 : 20), whole = c % 2;
        const int n_page = many ? MANY + below(MANY) : 2 + below(c % 4 ? 40 : 700);
        const int from = c % 3, n = n_page + from, per = c % 7 ? group : 1;
        const size_t n_k = (size_t)(n_kv * n * page * hd), bytes = cb_bounds_bytes(hd);
        float *k = floats(n_k), *q = floats((size_t)(n_kv * group * hd));
        const size_t k_bytes = n_k / (size_t)n_kv * sizeof *k;
        uint8_t *bounds = malloc((size_t)(n_kv * n) * bytes);
        uint8_t *rows = c / 2 % 2 ? malloc(n_k * sizeof *k) : NULL;
        struct page_scores s = { .n_head = n_kv * group,
                                 .n_kv = n_kv,
                                 .hd = hd,
                                 .q = q,
                                 .bounds = bounds + (size_t)from * bytes,
                                 .head_bytes = bytes * (size_t)n,
                                 .n_page = n_page,
                                 .per = per,
                                 .mean = c % 3 == 2,
                                 .out = poisoned((size_t)(n_kv * group * n_page)),
                                 .out_stride = n_page };
        struct page_topk t = { .page = page,
                               .lo = from * page,
                               .k = 1 + below(n_page - 1),
                               .idx_stride = n_page * page + 1,
                               .later = c % 2 };
        const size_t n_idx = (size_t)(n_kv * group * t.idx_stride);
        t.idx = ints(n_idx);
        watch_areas(bounds, n_kv, s.head_bytes, n, 1);
        if (rows)
            watch_areas(rows, n_kv, k_bytes, n * page, 1);
        for (int again = 0; again < 2; again++) {
            uint64_t out;
            for (size_t i = 0; again && i < n_k; i++)
                k[i] = -k[i];
            if (whole)
                make_whole(k, (int)n_k), make_whole(q, n_kv * group * hd);
            memset(t.idx, 0xff, n_idx * sizeof *t.idx);
            for (int l = 0; l < s.n_head / per; l++)
                t.idx[(size_t)l * (size_t)t.idx_stride + (size_t)(t.k * page)] = -7;
            draw(&s, k, n, page, rows, bounds);
            out = cb_device_traffic(dev).out_bytes;
            ref->ops->page_scores(ref, &s);
            t.s = s;
            ck_assert_int_eq(dev->ops->page_topk(dev, &t), 1);
            ck_assert_ok(cb_device_wait(dev));
            same_pages(&t, &s, whole);
            ck_assert_uint_eq(cb_device_traffic(dev).out_bytes - out,
                              (size_t)(s.n_head / per * (t.k * page + 1)) * 4);
        }
        watch_areas(bounds, n_kv, s.head_bytes, n, 0);
        if (rows)
            watch_areas(rows, n_kv, k_bytes, n * page, 0);
        ck_assert_int_eq(dev->ops->page_topk(dev, &t), 0); /* no memory of the bank's */
        free(k), free(q), free(rows), free(bounds), free(s.out), free(t.idx);
    }
}
END_TEST

/* Numbers of all sizes: some are beyond halves, some smaller than the smallest one */
static void spread(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = i % 97 ? ldexpf(x[i], below(50) - 30) : i % 2 ? 0.0f : -0.0f;
}

/* Rows that the device has stored get bounds there, to the bit those of the reference, without a
 * wait: all rows at first, then those of a page, one by one, which other rows take the place of. */
START_TEST(a_device_draws_bounds)
{
    enum { PAGES = 70, MORE = 3 };

    if (!open_isa(_i, 3))
        return;
    seed = 88172645463325252ULL;
    for (int c = 0; c < cb_test_cases(40); c++) {
        const enum kv_type t = c % KV_TYPE_COUNT;
        const int hd = t == KV_Q8_0 ? 32 * (1 + below(16)) : head_dims[c % 8]; /* mirrored */
        const int page = 1 + below(20), first = below(PAGES);
        const size_t n = (size_t)((PAGES + MORE) * page), row = cb_kv_row_bytes(t, hd);
        const size_t bytes = cb_bounds_bytes(hd), all = bytes * (PAGES + MORE);
        float *x = floats(n * (size_t)hd);
        uint8_t *rows = malloc(n * row), *bounds = malloc(all), *want = malloc(all);
        uint64_t waits;
        if (t != KV_Q8_0) /* whose steps would be beyond halves */
            spread(x, n * (size_t)hd);
        watch_areas(rows, 1, n * row, (int)n, 1);
        watch_areas(bounds, 1, all, PAGES + MORE, 1);
        memset(bounds, 0xff, all);
        dev->ops->kv_encode(dev, t, x, PAGES * page, hd, hd, rows);
        waits = cb_device_traffic(dev).waits;
        dev->ops->bounds(dev, t, rows, PAGES, page, hd, bounds);
        ck_assert_uint_eq(cb_device_traffic(dev).waits, waits);
        for (int p = 0; p < 2 * MORE; p++) {
            const int at = p < MORE ? PAGES + p : first + p - MORE;
            if (p == MORE)
                ck_assert_ok(cb_device_wait(dev));
            for (int j = at * page; j < (at + 1) * page; j++)
                dev->ops->kv_encode(dev, t, x + below((int)n) * hd, 1, hd, hd,
                                    rows + (size_t)j * row);
            waits = cb_device_traffic(dev).waits;
            dev->ops->bounds(dev, t, rows + (size_t)(at * page) * row, 1, page, hd,
                             bounds + (size_t)at * bytes);
            ck_assert_uint_eq(cb_device_traffic(dev).waits, waits);
        }
        ck_assert_ok(cb_device_wait(dev));
        ref->ops->bounds(ref, t, rows, PAGES + MORE, page, hd, want);
        ck_assert_mem_eq(bounds, want, all);
        watch_areas(rows, 1, n * row, (int)n, 0);
        watch_areas(bounds, 1, all, PAGES + MORE, 0);
        free(x), free(rows), free(bounds), free(want);
    }
}
END_TEST

/* Each head's largest product with the rows of blocks -> s->out */
static void score_blocks(const struct block_topk *t, const struct page_scores *s)
{
    const int n = t->block * t->n_block;
    float *y = floats((size_t)(n * t->hd));

    ref->ops->kv_decode(ref, t->type, t->keys, NULL, n, t->hd, y);
    for (int i = 0; i < t->n_head * t->n_block; i++) {
        const int h = i / t->n_block, first = i % t->n_block * t->block;
        float most = -INFINITY;
        for (int j = first; j < first + t->block; j++) {
            double sum = 0;
            for (int c = 0; c < t->hd; c++)
                sum += (double)t->q[h * t->hd + c] * (double)y[j * t->hd + c];
            most = fmaxf(most, (float)sum);
        }
        s->out[i] = most;
    }
    free(y);
}

/* Rows that the device has stored, and again once some are others. Many blocks score alike where
 * numbers are whole. */
START_TEST(a_device_chooses_the_best_blocks)
{
    if (!open_isa(_i, 3))
        return;
    seed = 88172645463325252ULL;
    for (int c = 0; c < cb_test_cases(40); c++) {
        const enum kv_type type = c % KV_TYPE_COUNT;
        const int hd = type == KV_Q8_0 ? 32 * (1 + below(4)) : head_dims[c % 10];
        const int whole = c % 2 && type != KV_Q8_0, n_head = 1 + below(c % 5 ? 4 : 20);
        const int block = 1 + below(c % 3 ? 9 : 140), n_block = 2 + below(c % 7 ? 30 : 400);
        const int after = c % 3 * below(block + 1), n = n_block * block + after;
        const int k = 1 + below(n_block - 1), stride = n + 1;
        const size_t row = cb_kv_row_bytes(type, hd);
        float *x = floats((size_t)(n * hd)), *q = floats((size_t)(n_head * hd));
        uint8_t *rows = malloc((size_t)n * row);
        const struct page_scores s = { .n_head = n_head,
                                       .per = 1,
                                       .n_page = n_block,
                                       .out = poisoned((size_t)(n_head * n_block)),
                                       .out_stride = n_block };
        const struct block_topk t = { .type = type,
                                      .keys = rows,
                                      .q = q,
                                      .n_head = n_head,
                                      .hd = hd,
                                      .block = block,
                                      .n_block = n_block,
                                      .k = k,
                                      .idx = ints((size_t)(n_head * stride)),
                                      .idx_stride = stride,
                                      .after = after,
                                      .later = c / 2 % 2 };
        const struct page_topk as_pages = {
            .page = block, .k = k, .idx = t.idx, .idx_stride = stride
        };
        if (whole)
            make_whole(x, n * hd), make_whole(q, n_head * hd);
        watch_areas(rows, 1, (size_t)n * row, n, 1);
        for (int again = 0; again < 2; again++) {
            const int from = again ? below(n) : 0;
            for (int i = from * hd; again && i < n * hd; i++)
                x[i] = -x[i];
            dev->ops->kv_encode(dev, type, x + from * hd, n - from, hd, hd,
                                rows + (size_t)from * row);
            for (int h = 0; h < n_head; h++)
                t.idx[h * stride + k * block + after] = -7;
            ck_assert_int_eq(dev->ops->block_topk(dev, &t), 1);
            ck_assert_ok(cb_device_wait(dev));
            for (int h = 0; h < n_head; h++) {
                int32_t *end = t.idx + h * stride + k * block;
                ck_assert_int_eq(end[after], -7);
                for (int j = 0; j < after; j++)
                    ck_assert_int_eq(end[j], n_block * block + j);
                end[0] = -7;
            }
            score_blocks(&t, &s);
            same_pages(&as_pages, &s, whole);
        }
        watch_areas(rows, 1, (size_t)n * row, n, 0);
        ck_assert_int_eq(dev->ops->block_topk(dev, &t), 0); /* no memory of the bank's */
        free(x), free(q), free(rows), free(s.out), free(t.idx);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pages");
    TCase *tc = tcase_create("pages");

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_device_chooses_the_best_pages, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, a_device_draws_bounds, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, a_device_chooses_the_best_blocks, ISA_FROM, ISA_TO);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
