/* SPDX-License-Identifier: MIT */
/* check_gpu_index.c - keys of a trained selector that an accelerator makes and chooses from,
 * against the reference's scores. */
#include "against_ref.h"

#include "device/index_strips.h"

enum { CASES = 30, MOST = 1500, MANY = 9000 };

static const int widths[] = { 128, 64, 40, 6, 20, 90, 8, 104 };

/* Strips that the device mirrors */
struct keys {
    int hd, n;
    float *x;
    uint8_t *at;
};

static void open_keys(struct keys *k, int hd, int n)
{
    *k = (struct keys){ hd, n, floats((size_t)n * (size_t)hd), cb_guarded(cb_strips_bytes(hd, n)) };
    memset(k->at, 0, cb_strips_bytes(hd, n));
    ck_assert_ok(dev->ops->memory->watch(dev, k->at, cb_strip_row_bytes(hd),
                                         cb_strips_bytes(hd, n) / cb_strip_row_bytes(hd)));
}

static void close_keys(struct keys *k)
{
    dev->ops->memory->unwatch(dev, k->at);
    free(k->x);
    free(k->at);
}

/* Keys from..from+n-1 are stored: by the device, one by one as tokens come, or by the host */
static void put(struct keys *k, int from, int n, int far)
{
    const float *x = k->x + (size_t)from * (size_t)k->hd;
    const size_t first = (size_t)(from / STRIP_BLOCK) * cb_strip_bytes(k->hd);

    for (int i = 0; far && i < n; i++)
        dev->ops->strips_put(dev, x + (size_t)i * (size_t)k->hd, 1, k->hd, k->hd, from + i, k->at);
    if (far)
        return;
    cb_strips_put(x, n, k->hd, k->hd, from, k->at);
    dev->ops->memory->wrote(dev, k->at + first, cb_strips_bytes(k->hd, from + n) - first);
}

/* What the host has of keys that the device has made is what it makes itself, but for rounding. */
START_TEST(new_keys)
{
    if (!open_isa(_i, 2))
        return;
    for (int c = 0; c < cb_test_cases(CASES); c++) {
        const int hd = widths[c % 8], n = 1 + below(300);
        float *y = poisoned((size_t)n * (size_t)hd);
        int32_t *idx = ints((size_t)n);
        struct keys k;
        open_keys(&k, hd, n);
        if (c % 3 == 1)
            k.x[below(n * hd)] = 50;
        for (int i = 0; i < hd; i++)
            k.x[(n - 1) * hd + i] = 0;
        if (c % 4 == 3)
            dev->ops->strips_put(dev, k.x, n, hd, hd, 0, k.at);
        else
            put(&k, 0, n, 1);
        ck_assert_ok(cb_device_wait(dev));
        for (int j = 0; j < n; j++)
            idx[j] = j;
        cb_strips_get(k.at, idx, n, hd, y);
        for (int j = 0; j < n; j++) {
            float most = 0;
            for (int i = 0; i < hd; i++)
                most = fmaxf(most, fabsf(k.x[j * hd + i]));
            for (int i = 0; i < hd; i++)
                ck_assert_float_le(fabsf(y[j * hd + i] - k.x[j * hd + i]),
                                   most / 127 / 15 * 0.52f + 1e-7f);
        }
        close_keys(&k);
        free(y), free(idx);
    }
}
END_TEST

/* ---- choices ---- */

struct query {
    int n_head;
    float *q, *weight;
};

/* Each key's score by all its bits -> exact[n], and by 8 bits, as the reference has it -> scan[n]
 */
static void score(const struct keys *k, const struct query *q, int n, float *exact, float *scan)
{
    const size_t work = cb_index_scan_bytes(NULL, 1, q->n_head, k->hd, n, 0, NULL);
    struct index_scan s = { .n_tok = 1,
                            .n_head = q->n_head,
                            .hd = k->hd,
                            .n = n,
                            .keys = k->at,
                            .q = q->q,
                            .weight = q->weight,
                            .stride = q->n_head * k->hd,
                            .out = scan,
                            .out_stride = (size_t)n + STRIP_BLOCK,
                            .work = aligned_alloc(64, work) };
    float y[KV_MAX_HD];

    ref->ops->index_scan(ref, &s);
    free(s.work);
    for (int32_t j = 0; j < n; j++) {
        double all = 0;
        cb_strips_get(k->at, &j, 1, k->hd, y);
        for (int h = 0; h < q->n_head; h++) {
            double sum = 0;
            for (int i = 0; i < k->hd; i++)
                sum += (double)q->q[h * k->hd + i] * (double)y[i];
            all += sum > 0 ? sum * (q->weight ? (double)q->weight[h] : 1) : 0;
        }
        exact[j] = (float)all;
    }
}

static int falls(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x < y) - (x > y);
}

/* The k-th largest of x[n] where of[n] is above `least`; fewer than k are: -inf */
static float kth(const float *x, const float *of, float least, int n, int k)
{
    float *y = malloc((size_t)n * sizeof *y), end;
    int m = 0;

    for (int j = 0; j < n; j++)
        if (of[j] > least)
            y[m++] = x[j];
    qsort(y, (size_t)m, sizeof *y, falls);
    end = m < k ? -INFINITY : y[k - 1];
    free(y);
    return end;
}

/* The tokens of `top` keys -> the keys, in place */
static void keys_of_tokens(int32_t *idx, int top, int per)
{
    for (int i = 0; i < top; i++) {
        for (int t = 0; t < per; t++)
            ck_assert_int_eq(idx[i * per + t], idx[i * per] + t);
        ck_assert_int_eq(idx[i * per] % per, 0);
        idx[i] = idx[i * per] / per;
    }
}

/* The k of the first n keys, as tokens, with some after them: among the n_near best by 8 bits, and
 * the best of those by all bits */
static void choose(const struct keys *k, const struct query *q, int n, int top, int n_near)
{
    float *exact = floats((size_t)n), *scan = floats((size_t)n + STRIP_BLOCK), near, least, tol;
    const int per = 1 + n % 3, after = n % per, n_list = top * per + after;
    int32_t *idx = ints((size_t)n_list + 1);
    const struct index_topk t = { .s = { .n_tok = 1,
                                         .n_head = q->n_head,
                                         .hd = k->hd,
                                         .n = n,
                                         .keys = k->at,
                                         .q = q->q,
                                         .weight = q->weight },
                                  .k = top,
                                  .n_near = n_near,
                                  .per = per,
                                  .idx = idx,
                                  .after = after,
                                  .later = top % 2 };

    idx[n_list] = -7;
    ck_assert_int_eq(dev->ops->index_topk(dev, &t), 1);
    ck_assert_ok(cb_device_wait(dev));
    ck_assert_int_eq(idx[n_list], -7);
    for (int j = 0; j < after; j++)
        ck_assert_int_eq(idx[top * per + j], n * per + j);
    keys_of_tokens(idx, top, per);
    score(k, q, n, exact, scan);
    tol = 1e-5f * (1 + fabsf(kth(scan, scan, -INFINITY, n, 1)));
    near = kth(scan, scan, -INFINITY, n, n_near);
    least = kth(exact, scan, near + tol, n, top);
    for (int i = 0; i < top; i++) {
        ck_assert_int_ge(idx[i], i ? idx[i - 1] + 1 : 0);
        ck_assert_int_lt(idx[i], n);
        ck_assert_msg(scan[idx[i]] >= near - tol && exact[idx[i]] >= least - tol,
                      "%d of %d, %d near: key %d scores %g (%g) of %g (%g)", top, n, n_near, idx[i],
                      (double)exact[idx[i]], (double)scan[idx[i]], (double)least, (double)near);
    }
    free(exact), free(scan), free(idx);
}

/* Some keys are a prompt's, which the host has stored, and some the device's; after a cut others
 * take the place of the last ones. */
START_TEST(the_best_keys)
{
    if (!open_isa(_i, 2))
        return;
    for (int c = 0; c < cb_test_cases(CASES); c++) {
        const int hd = widths[c % 8], n_head = 1 + below(70), many = c % 9 == 4;
        const int n = (many ? MANY : 2) + below(MOST), few = n < 200 ? n : 200;
        const int told = many || c % 3 ? n - below(few) : below(few), cut = n - below(few);
        struct query q = { n_head, floats((size_t)(n_head * hd)),
                           c % 4 ? floats((size_t)n_head) : NULL };
        struct keys k;
        open_keys(&k, hd, n);
        for (size_t i = 0; c % 5 == 1 && i < (size_t)n * (size_t)hd; i++) /* many are the same */
            k.x[i] = k.x[i % (size_t)(7 * hd)];
        put(&k, 0, told, 0);
        if (told > 1 && !many)
            choose(&k, &q, told, 1 + below(told - 1), told);
        put(&k, told, n - told, 1);
        for (int more = 0; more < 2; more++) {
            const int top = 1 + below(many ? 300 : n - 1), more_near = many ? 100 : n - top + 1;
            choose(&k, &q, n, top, top + below(more_near));
            for (size_t i = (size_t)cut * (size_t)hd; !more && i < (size_t)n * (size_t)hd; i++)
                k.x[i] = uniform();
            if (!more)
                put(&k, cut, n - cut, c % 2);
        }
        close_keys(&k);
        free(q.q), free(q.weight);
    }
}
END_TEST

/* ---- means ---- */

/* Rows that the device stores one by one have their mean there, without a wait. */
START_TEST(means_of_rows)
{
    enum { ROWS = 300 };

    if (!open_isa(_i, 2))
        return;
    for (int c = 0; c < cb_test_cases(CASES); c++) {
        const enum kv_type t = c % 2 ? KV_F16 : KV_F32;
        const int hd = widths[c % 8], n = 1 + below(9), at = ROWS - n - below(ROWS - n);
        const size_t row = cb_kv_row_bytes(t, hd);
        float *x = floats((size_t)(ROWS * hd)), *y = floats((size_t)hd);
        float *want = calloc((size_t)hd, sizeof *want);
        float *on = cb_device_alloc(dev, (size_t)hd, sizeof *on);
        uint8_t *rows = calloc(ROWS, row);
        uint64_t waits;
        ck_assert_ok(dev->ops->memory->watch(dev, rows, row, ROWS));
        if (c % 3)
            dev->ops->kv_encode(dev, t, x, at, hd, hd, rows);
        else /* as a prompt leaves them */
            ref->ops->kv_encode(ref, t, x, at + n - 1, hd, hd, rows);
        ck_assert_ok(cb_device_wait(dev));
        for (int i = c % 3 ? at : at + n - 1; i < at + n; i++)
            dev->ops->kv_encode(dev, t, x + i * hd, 1, hd, hd, rows + (size_t)i * row);
        waits = cb_device_traffic(dev).waits;
        ck_assert_int_eq(dev->ops->mean_rows(dev, t, rows + (size_t)at * row, n, hd, on), 1);
        ck_assert_uint_eq(cb_device_traffic(dev).waits, waits);
        cb_device_copy(dev, y, on, (size_t)hd * sizeof *y);
        for (int i = 0; i < n * hd; i++)
            want[i % hd] += x[at * hd + i] / (float)n;
        same("mean", y, want, (size_t)hd, t == KV_F16 ? 1e-3f : 1e-6f);
        dev->ops->memory->unwatch(dev, rows);
        ck_assert_int_eq(dev->ops->mean_rows(dev, t, rows, n, hd, on), 0); /* nobody watches */
        cb_device_free(dev, on);
        free(x), free(y), free(want), free(rows);
    }
}
END_TEST

/* Without a mirror the host makes the keys and chooses. */
START_TEST(keys_that_nobody_watches)
{
    uint8_t *at = calloc(1, cb_strips_bytes(64, 3));
    float *x = floats(3 * 64), y[64];
    int32_t idx[2] = { 2, -1 };
    const struct index_topk t = {
        .s = { .n_tok = 1, .n_head = 1, .hd = 64, .n = 3, .keys = at, .q = x },
        .k = 1,
        .n_near = 3,
        .per = 1,
        .idx = idx
    };

    if (!open_isa(_i, 2))
        return;
    dev->ops->strips_put(dev, x, 3, 64, 64, 0, at);
    ck_assert_int_eq(dev->ops->index_topk(dev, &t), 0);
    ck_assert_ok(cb_device_wait(dev));
    cb_strips_get(at, idx, 1, 64, y);
    same("key", y, x + 2 * 64, 64, 1e-3f);
    free(at), free(x);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("a selector's keys");
    TCase *tc = tcase_create("keys");

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, new_keys, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, the_best_keys, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, means_of_rows, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, keys_that_nobody_watches, ISA_FROM, ISA_TO);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
