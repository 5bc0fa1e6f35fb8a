/* SPDX-License-Identifier: MIT */
/* check_sketch.c - sketches of keys and the slots chosen by them: every ISA, or an accelerator,
 * against the reference device, to the bit, and the reference against exact logits. Bounds of
 * pages: the same bounds, and scores that no logit exceeds. */
#include "against_ref.h"

#include "base/ints.h"
#include "device/sketch.h"

enum { KV = 3, GROUP = 9, LONG = 8 * SKETCH_PIECE };

struct trial {
    struct sketch_topk s;
    float *k, *q;       /* [n_kv][n][hd], [n_head][hd] */
    uint16_t *row;      /* the keys as f16 */
    uint8_t *sketch[2]; /* of ref, of dev */
    int n;              /* tokens */
    int from;           /* blocks that are not searched, before the others */
};

/* The keys of the first tokens of each 1,024 get what makes the first query heads score high: from
 * these the CPU's kernels guess where the chosen end, and too early then. */
static void mislead(const struct trial *t)
{
    const struct sketch_topk *s = &t->s;

    for (int h = 0; h < s->n_kv; h++)
        for (int j = 0; j < t->n; j++)
            for (int x = 0; j % SKETCH_PIECE < 64 && x < s->hd; x++)
                t->k[((size_t)h * (size_t)t->n + (size_t)j) * (size_t)s->hd + (size_t)x] +=
                    3 * t->q[h * s->n_head / s->n_kv * s->hd + x];
}

/* Only among this many tokens the kernels guess, and this one is misled. */
static int is_long(int c)
{
    return c % 24 == 4;
}

/* Keys of every head wander and have channels of their own ranges; queries look like some keys. */
static struct trial make(int c)
{
    struct trial t;
    struct sketch_topk *s = &t.s;
    const int hd = head_dims[c % 10], group = c % 5 ? 1 + below(GROUP) : 16;
    size_t n_row, i = 0;

    t.from = 0;
    *s = (struct sketch_topk){ .n_kv = is_long(c) ? 1 : 1 + below(KV),
                               .hd = hd,
                               .bits = c % 3 ? 2 : 4 };
    s->half = c / 3 % 2;
    s->n_head = group * s->n_kv;
    s->scale = c % 7 == 3 ? 40.0f : 1 / sqrtf((float)hd);
    s->n_block = is_long(c) ? LONG / SKETCH_BLOCK : 1 + below(c % 4 ? 4 : 24);
    t.n = s->n_block * SKETCH_BLOCK;
    s->head_bytes = (size_t)s->n_block * cb_sketch_bytes(s->bits, hd) + 64;
    n_row = (size_t)s->n_kv * (size_t)t.n;
    t.k = floats(n_row * (size_t)hd);
    t.q = floats((size_t)s->n_head * (size_t)hd);
    for (size_t r = 0; r < n_row; r++)
        for (int x = 0; x < hd; x++, i++)
            t.k[i] = t.k[i] * (x % 13 == 5 ? 9.0f : 1.0f) + (x % 7 == 2 ? 20.0f : 0.0f);
    for (int x = 0; c % 6 == 4 && x < hd; x++) /* a head whose channels do not vary */
        for (int j = 0; j < t.n; j++)
            t.k[(size_t)j * (size_t)hd + (size_t)x] = 3.0f;
    for (int h = 0; c % 2 && h < s->n_head; h++)
        memcpy(t.q + h * hd,
               t.k + ((size_t)(h / group) * (size_t)t.n + (size_t)below(t.n)) * (size_t)hd,
               (size_t)hd * sizeof *t.q);
    if (c % 8 == 4)
        mislead(&t);
    if (c % 8 == 5)
        t.q[0] = NAN;
    t.row = malloc(n_row * (size_t)hd * sizeof *t.row);
    for (i = 0; i < n_row * (size_t)hd; i++)
        t.row[i] = cb_f32_to_f16(t.k[i]);
    for (int d = 0; d < 2; d++)
        t.sketch[d] = malloc((size_t)s->n_kv * s->head_bytes);
    s->q = t.q;
    s->lo = below(6);
    s->hi = t.n - below(70);
    s->k = c % 9 ? below(s->hi - s->lo + 1) : s->hi - s->lo;
    if (c % 8 == 0 || c % 8 == 4)
        s->k = min_int(s->k, 20 + below(t.n / 16));
    if (is_long(c)) /* more than the misled ones, and few enough for a guess */
        s->k = LONG / SKETCH_PIECE * 64 + 100;
    s->miss = c % 10 == 7 ? 0.05f : 0;
    return t;
}

static uint8_t *sketch_of(const struct trial *t, int which, int head)
{
    return t->sketch[which] + (size_t)head * t->s.head_bytes;
}

/* As the bank's are to a device with memory of its own */
static void watch(const struct trial *t, int on)
{
    const struct device_memory *m = dev->ops->memory;

    for (int h = 0; m && h < t->s.n_kv; h++)
        if (on)
            ck_assert_int_eq(m->watch(dev, sketch_of(t, 1, h), cb_sketch_bytes(t->s.bits, t->s.hd),
                                      (size_t)t->s.n_block),
                             0);
        else
            m->unwatch(dev, sketch_of(t, 1, h));
}

static void draw(const struct trial *t, struct device *d, int which)
{
    const struct sketch_topk *s = &t->s;

    for (int h = 0; h < s->n_kv; h++)
        d->ops->sketch(d, KV_F16, t->row + (size_t)h * (size_t)t->n * (size_t)s->hd, s->n_block,
                       s->hd, s->bits, s->lo, sketch_of(t, which, h));
}

/* As who shares the choice with others: the heads' sums are added up between two calls. */
static void in_two_steps(struct device *d, struct sketch_topk *s)
{
    const int group = s->n_head / s->n_kv, n_piece = cb_sketch_pieces(s->n_block);
    struct sketch_work w;

    cb_sketch_work(s->work, s->n_head, s->n_kv, s->hd, s->n_block, 1, &w);
    s->step = SKETCH_SCORES;
    d->ops->sketch_topk(d, s);
    for (int h = 0; h < s->n_head; h++) {
        const size_t at = (size_t)(h / group * n_piece * group + h % group);
        w.lse[h] = cb_sketch_lse(w.top + at, w.sum + at, n_piece, group);
    }
    s->step = SKETCH_CHOICE;
    d->ops->sketch_topk(d, s);
    for (int h = 0; h < s->n_kv; h++) { /* all that rank before the last one chosen are chosen */
        const uint16_t *rank = w.rank + (size_t)(h * n_piece) * SKETCH_PIECE;
        int last = 0, n = 0;
        for (int i = 0; i < s->n[h]; i++)
            last = max_int(last, rank[s->idx[h * s->idx_stride + i]]);
        for (int j = s->lo; j < s->hi; j++)
            n += rank[j] < last;
        ck_assert_int_le(n, s->n[h]);
    }
}

/* -> idx[n_kv][n + 1], n[n_kv] */
static void choose(const struct trial *t, struct device *d, int which, int steps, int32_t *idx,
                   int *n)
{
    struct sketch_topk s = t->s;
    struct sketch_work w;
    const size_t bytes =
        cb_sketch_work(NULL, s.n_head, s.n_kv, s.hd, s.n_block, SKETCH_MAX_ITEMS, &w);
    uint64_t before;

    s.work = aligned_alloc(64, bytes + 64);
    memset(s.work, 0xa5, bytes + 64);
    for (int i = 0; i < s.n_kv * (t->n + 1); i++)
        idx[i] = -7;
    s.sketch = t->sketch[which] + (size_t)t->from * cb_sketch_bytes(s.bits, s.hd);
    s.idx = idx;
    s.idx_stride = t->n + 1;
    s.n = n;
    before = cb_device_traffic(d).out_bytes;
    if (steps && !d->ops->memory)
        in_two_steps(d, &s);
    else
        d->ops->sketch_topk(d, &s);
    ck_assert_ok(cb_device_wait(d));
    /* The device has done it: what was found comes from there. It has no copies of larger blocks.
     */
    if (d->ops->memory && s.k && cb_sketch_bytes(s.bits, s.hd) <= 16384)
        ck_assert_uint_eq(cb_device_traffic(d).out_bytes - before,
                          (size_t)(s.n_kv * (s.k + 1)) * 4);
    for (size_t i = bytes; i < bytes + 64; i++)
        ck_assert_int_eq(((unsigned char *)s.work)[i], 0xa5);
    free(s.work);
}

static void release(struct trial *t)
{
    free(t->k), free(t->q), free(t->row), free(t->sketch[0]), free(t->sketch[1]);
}

static void same_choice(const struct trial *t, int c)
{
    const int all = t->s.n_kv * (t->n + 1);
    int32_t *a = malloc((size_t)all * sizeof *a), *b = malloc((size_t)all * sizeof *b);
    int n[2][KV];

    choose(t, ref, 0, c % 3 == 2, a, n[0]);
    choose(t, dev, 1, c % 2, b, n[1]);
    ck_assert_mem_eq(n[0], n[1], (size_t)t->s.n_kv * sizeof(int));
    ck_assert_msg(!memcmp(a, b, (size_t)all * sizeof *a), "case %d: others chosen", c);
    for (int h = 0; h < t->s.n_kv; h++) {
        const int32_t *x = a + h * (t->n + 1);
        ck_assert(t->s.miss > 0 ? n[0][h] <= t->s.k : n[0][h] == t->s.k);
        for (int i = 0; i < n[0][h]; i++)
            ck_assert(x[i] >= t->s.lo && x[i] < t->s.hi && (!i || x[i] > x[i - 1]));
        ck_assert_int_eq(x[n[0][h]], -7);
    }
    free(a), free(b);
}

/* A search that leaves out the first block */
static struct trial later(const struct trial *t)
{
    struct trial x = *t;

    x.from = 1;
    x.n -= SKETCH_BLOCK;
    x.s.n_block--;
    x.s.lo = 0;
    x.s.hi = x.n - 1;
    x.s.k = min_int(x.s.k, x.s.hi);
    return x;
}

/* Other keys take the place of the last block's. */
static void replace(const struct trial *t)
{
    const size_t each = (size_t)SKETCH_BLOCK * (size_t)t->s.hd, all = (size_t)t->s.n_block * each;

    for (int h = 0; h < t->s.n_kv; h++)
        for (size_t i = all - each; i < all; i++)
            t->row[(size_t)h * all + i] = cb_f32_to_f16(3 * uniform());
}

START_TEST(every_isa_chooses_what_the_reference_chooses)
{
    for (int threads = 1; threads < (ISA_FROM ? 2 : 4); threads += 2) {
        if (!open_isa(_i, threads))
            return;
        seed = 88172645463325252ULL;
        for (int c = 0; c < cb_test_cases(90); c++) {
            struct trial t = make(c), behind = later(&t);
            watch(&t, 1);
            for (int again = 0; again < 2; again++) {
                draw(&t, ref, 0);
                draw(&t, dev, 1);
                for (int h = 0; h < t.s.n_kv; h++)
                    ck_assert_mem_eq(sketch_of(&t, 0, h), sketch_of(&t, 1, h), t.s.head_bytes - 64);
                same_choice(&t, c);
                if (behind.s.n_block)
                    same_choice(&behind, c);
                replace(&t);
            }
            watch(&t, 0);
            release(&t);
        }
        cb_device_close(dev);
        dev = NULL;
    }
}
END_TEST

/* The log-sum-exp is integers, at most a unit from the real one: half for what it rounds to, and
 * what the shifts of weights leave out. */
START_TEST(the_log_of_weights_is_a_log)
{
    seed = 88172645463325252ULL;
    for (int c = 0; c < 2000; c++) {
        const int n = 1 + below(c % 3 ? 8 : 200);
        int16_t top[200];
        uint32_t sum[200];
        double all = 0, real;
        for (int p = 0; p < n; p++) {
            top[p] = (int16_t)(below(c % 5 ? 900 : 60000) - 30000);
            sum[p] =
                SKETCH_ONE + (uint32_t)below(c % 2 ? 1 << 20 : (SKETCH_PIECE - 1) * SKETCH_ONE);
            all += sum[p] / (double)SKETCH_ONE * exp2(top[p] / (double)SKETCH_UNIT);
        }
        real = SKETCH_UNIT * log2(all);
        real = real < INT16_MAX ? real : INT16_MAX;
        ck_assert_msg(fabs(cb_sketch_lse(top, sum, n, 1) - real) < 0.51, "%d of %g",
                      cb_sketch_lse(top, sum, n, 1), real);
    }
}
END_TEST

/* With `miss` the chosen end as soon as the others weigh no more. */
START_TEST(the_chosen_end_where_little_is_left)
{
    seed = 88172645463325252ULL;
    for (int c = 0; c < 300; c++) {
        uint32_t count[SKETCH_BUCKETS] = { 0 };
        double rest[SKETCH_BUCKETS + 1] = { 0 };
        const float miss = (1 + (float)below(100)) / 200;
        int limit, n_equal, n = 0, got;
        for (int b = 0; b < SKETCH_BUCKETS; b++)
            count[b] = below(9) ? 0 : (uint32_t)below(1 + b / 4);
        for (int b = SKETCH_BUCKETS - 1; b >= 0; b--)
            rest[b] = rest[b + 1] + count[b] * exp2(-b / (double)SKETCH_UNIT);
        got = cb_sketch_limit(count, SKETCH_BUCKETS, INT32_MAX, miss, &limit, &n_equal);
        for (int b = 0; b < limit; b++)
            n += (int)count[b];
        ck_assert_int_eq(got, n);
        ck_assert_int_eq(n_equal, 0);
        ck_assert_double_le(rest[limit], (double)miss * 1.001);
        ck_assert_double_ge(rest[limit ? limit - 1 : 0] * 1.001, limit ? (double)miss : 0);
    }
}
END_TEST

/* ---- what the choice is worth ---- */

/* The softmax of a query head over the KV head's n keys -> p[n] */
static void softmax(const struct trial *t, int head, double *p)
{
    const struct sketch_topk *s = &t->s;
    const float *k = t->k + (size_t)(head / (s->n_head / s->n_kv)) * (size_t)t->n * (size_t)s->hd;
    double max = -INFINITY, sum = 0;

    for (int j = 0; j < t->n; j++) {
        p[j] = 0;
        for (int c = 0; c < s->hd; c++)
            p[j] +=
                (double)t->q[head * s->hd + c] * (double)k[(size_t)j * (size_t)s->hd + (size_t)c];
        p[j] *= (double)s->scale;
        max = p[j] > max ? p[j] : max;
    }
    for (int j = 0; j < t->n; j++)
        sum += p[j] = exp(p[j] - max);
    for (int j = 0; j < t->n; j++)
        p[j] /= sum;
}

static int larger(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* One query head a KV head: the weight that is chosen, as a share of the weight of the k largest */
static double recall(struct trial *t, const int32_t *idx, const int *n)
{
    double *p = malloc((size_t)t->n * sizeof *p), got = 0, best = 0;

    for (int h = 0; h < t->s.n_kv; h++) {
        softmax(t, h, p);
        for (int i = 0; i < n[h]; i++)
            got += p[idx[h * (t->n + 1) + i]];
        qsort(p, (size_t)t->n, sizeof *p, larger);
        for (int i = 0; i < n[h]; i++)
            best += p[i];
    }
    free(p);
    return got / best;
}

START_TEST(the_choice_holds_most_of_the_weight)
{
    double sum[2] = { 0 };
    int count[2] = { 0 };

    for (int c = 0; c < 40; c++) {
        struct trial t = make(2 * c + 1);
        int n[KV];
        int32_t *idx;
        if (t.s.n_block < 4 || t.s.scale > 1 || isnan(t.q[0])) {
            release(&t);
            continue;
        }
        idx = malloc((size_t)(t.s.n_kv * (t.n + 1)) * sizeof *idx);
        t.s.n_head = t.s.n_kv;
        for (int h = 0; h < t.s.n_kv; h++)
            memcpy(t.q + h * t.s.hd,
                   t.k + ((size_t)h * (size_t)t.n + (size_t)(100 + h)) * (size_t)t.s.hd,
                   (size_t)t.s.hd * sizeof *t.q);
        for (int i = 0; i < t.s.n_kv * t.s.hd; i++)
            t.q[i] *= i % t.s.hd % 7 == 2 ? 0 : 0.5f;
        t.s.lo = 0;
        t.s.hi = t.n;
        t.s.k = 32;
        t.s.miss = 0;
        draw(&t, ref, 0);
        choose(&t, ref, 0, 0, idx, n);
        sum[t.s.bits == 4] += recall(&t, idx, n);
        count[t.s.bits == 4]++;
        free(idx);
        release(&t);
    }
    for (int b = 0; b < 2; b++) {
        ck_assert_int_gt(count[b], 0);
        ck_assert_msg(sum[b] / count[b] > (b ? 0.97 : 0.85), "%d bits: recall %.3f", b ? 4 : 2,
                      sum[b] / count[b]);
    }
}
END_TEST

/* ---- pages ---- */

/* The specification's example: q = (1, -2), pages A, B and C of two keys */
START_TEST(bounds_of_the_example)
{
    static const float key[3][2][2] = { { { 0.5f, -1 }, { 0.2f, 0.3f } },
                                        { { -0.4f, 0.8f }, { 1.1f, 0.6f } },
                                        { { 0.9f, -0.2f }, { -0.3f, -0.9f } } };
    static const float q[2][2] = { { 1, -2 }, { 0, 0 } }, want[3] = { 2.5f, -0.1f, 2.7f };
    uint16_t bounds[3 * 4];
    float score[3];

    if (!open_isa(_i, 1))
        return;
    dev->ops->bounds(dev, KV_F32, key, 3, 2, 2, bounds);
    for (int mean = 0; mean < 2; mean++) {
        const struct page_scores s = { .n_head = 1 + mean,
                                       .n_kv = 1,
                                       .hd = 2,
                                       .q = q[0],
                                       .bounds = (const uint8_t *)bounds,
                                       .n_page = 3,
                                       .per = 1 + mean,
                                       .mean = mean,
                                       .out = score };
        dev->ops->page_scores(dev, &s);
        for (int p = 0; p < 3; p++)
            ck_assert_msg(fabsf(score[p] * (float)(1 + mean) - want[p]) < 3e-3f, "page %d: %g", p,
                          (double)score[p]);
    }
}
END_TEST

static float product(const float *x, const float *y, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return (float)sum;
}

START_TEST(no_key_exceeds_its_page)
{
    if (!open_isa(_i, 3))
        return;
    seed = 88172645463325252ULL;
    for (int c = 0; c < cb_test_cases(60); c++) {
        const int hd = head_dims[c % 10], group = 1 + below(GROUP), n_kv = 1 + below(KV);
        const int page = 1 + below(40), n_page = 1 + below(c % 5 ? 9 : 300), n = page * n_page;
        const size_t n_row = (size_t)n_kv * (size_t)n, bytes = cb_bounds_bytes(hd);
        float *k = floats(n_row * (size_t)hd), *q = floats((size_t)(n_kv * group * hd));
        uint8_t *b[2];
        float *out[2];
        struct page_scores s = { .n_head = n_kv * group,
                                 .n_kv = n_kv,
                                 .hd = hd,
                                 .q = q,
                                 .head_bytes = bytes * (size_t)n_page,
                                 .n_page = n_page,
                                 .per = c % 4 == 1 ? 1 : group,
                                 .mean = c % 3 == 2,
                                 .out_stride = n_page + 1 };
        if (c % 7 == 3)
            k[0] = 1e30f, k[1] = -1e30f; /* beyond halves */
        for (int d = 0; d < 2; d++) {
            struct device *on = d ? dev : ref;
            b[d] = malloc(bytes * (size_t)(n_kv * n_page));
            out[d] = calloc((size_t)s.n_head * (size_t)(n_page + 1), sizeof(float));
            on->ops->bounds(on, KV_F32, k, n_kv * n_page, page, hd, b[d]);
            s.bounds = b[d];
            s.out = out[d];
            on->ops->page_scores(on, &s);
        }
        ck_assert_mem_eq(b[0], b[1], bytes * (size_t)(n_kv * n_page));
        for (int r = 0; r < s.n_head / s.per; r++)
            for (int p = 0; p <= n_page; p++) {
                const float x = out[0][r * (n_page + 1) + p], y = out[1][r * (n_page + 1) + p];
                const int kv = r * s.per / group;
                float most = -INFINITY, size = 0;
                for (int h = r * s.per; p < n_page && h < (r + 1) * s.per; h++)
                    for (int j = p * page; j < (p + 1) * page; j++) {
                        const float *key = k + ((size_t)kv * (size_t)n + (size_t)j) * (size_t)hd;
                        most = fmaxf(most, product(q + h * hd, key, hd));
                        size = fmaxf(size, sqrtf(product(q + h * hd, q + h * hd, hd)) *
                                               sqrtf(product(key, key, hd)));
                    }
                ck_assert_msg(fabsf(x - y) <= 1e-5f * (size + fabsf(x)), "%g and %g", (double)x,
                              (double)y);
                ck_assert(s.mean || c % 7 == 3 || p == n_page || x >= most - 1e-5f * size);
            }
        for (int d = 0; d < 2; d++)
            free(b[d]), free(out[d]);
        free(k), free(q);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sketch");
    TCase *tc = tcase_create("sketch");

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, every_isa_chooses_what_the_reference_chooses, ISA_FROM, ISA_TO);
    tcase_add_test(tc, the_log_of_weights_is_a_log);
    tcase_add_test(tc, the_chosen_end_where_little_is_left);
    tcase_add_test(tc, the_choice_holds_most_of_the_weight);
    tcase_add_loop_test(tc, bounds_of_the_example, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, no_key_exceeds_its_page, ISA_FROM, ISA_TO);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
