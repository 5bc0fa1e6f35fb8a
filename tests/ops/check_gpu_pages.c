/* SPDX-License-Identifier: MIT */
/* check_gpu_pages.c - pages that an accelerator chooses by bounds of their keys, against the
 * reference's scores. */
#include "against_ref.h"

#include "device/sketch.h"

enum { KV = 3, GROUP = 9 };

/* Numbers whose products and sums are exact, so that many pages score alike */
static void make_whole(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = rintf(x[i] * 3);
}

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

static void watch_bounds(const struct page_scores *s, const uint8_t *bounds, int n, int on)
{
    const struct device_memory *m = dev->ops->memory;

    for (int h = 0; h < s->n_kv; h++)
        if (on)
            ck_assert_ok(m->watch(dev, bounds + (size_t)h * s->head_bytes, cb_bounds_bytes(s->hd),
                                  (size_t)n));
        else
            m->unwatch(dev, bounds + (size_t)h * s->head_bytes);
}

/* The device scores, not the CPU, and again once keys have changed. */
START_TEST(a_device_chooses_the_best_pages)
{
    if (!open_isa(_i, 3))
        return;
    seed = 88172645463325252ULL;
    for (int c = 0; c < cb_test_cases(40); c++) {
        const int hd = head_dims[c % 10], group = c % 5 ? 1 + below(GROUP) : 16;
        const int n_kv = 1 + below(KV), page = 1 + below(20), whole = c % 2, from = c % 3;
        const int n_page = 2 + below(c % 4 ? 40 : 700), n = n_page + from, per = c % 7 ? group : 1;
        const size_t n_k = (size_t)(n_kv * n * page * hd), bytes = cb_bounds_bytes(hd);
        float *k = floats(n_k), *q = floats((size_t)(n_kv * group * hd));
        uint8_t *bounds = malloc((size_t)(n_kv * n) * bytes);
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
        watch_bounds(&s, bounds, n, 1);
        for (int again = 0; again < 2; again++) {
            const uint64_t out = cb_device_traffic(dev).out_bytes;
            for (size_t i = 0; again && i < n_k; i++)
                k[i] = -k[i];
            if (whole)
                make_whole(k, (int)n_k), make_whole(q, n_kv * group * hd);
            memset(t.idx, 0xff, n_idx * sizeof *t.idx);
            for (int l = 0; l < s.n_head / per; l++)
                t.idx[(size_t)l * (size_t)t.idx_stride + (size_t)(t.k * page)] = -7;
            for (int h = 0; h < n_kv; h++)
                dev->ops->bounds(dev, KV_F32, k + (size_t)(h * n * page * hd), n, page, hd,
                                 bounds + (size_t)h * s.head_bytes);
            ref->ops->page_scores(ref, &s);
            t.s = s;
            ck_assert_int_eq(dev->ops->page_topk(dev, &t), 1);
            ck_assert_ok(cb_device_wait(dev));
            same_pages(&t, &s, whole);
            ck_assert_uint_eq(cb_device_traffic(dev).out_bytes - out,
                              (size_t)(s.n_head / per * (t.k * page + 1)) * 4);
        }
        watch_bounds(&s, bounds, n, 0);
        ck_assert_int_eq(dev->ops->page_topk(dev, &t), 0); /* no memory of the bank's */
        free(k), free(q), free(bounds), free(s.out), free(t.idx);
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
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
