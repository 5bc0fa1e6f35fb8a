/* SPDX-License-Identifier: MIT */
/* check_attn.c - attention and the scores of its second pass, of the CPU device against the
 * reference device: random forms with odd sizes, empty runs, outliers. */
#include "against_ref.h"

struct input {
    struct attn a;
    struct kv_run run[MAX_HEAD];
    char *k[MAX_HEAD], *v[MAX_HEAD];
    int32_t *idx[MAX_HEAD];
    float *q;
};

/* n rows that are stored as t; channel 3 is huge and nearly the same everywhere, as a bias makes it
 */
static char *stored(enum kv_type t, int n, int hd, float outlier)
{
    float *x = floats((size_t)n * hd);
    char *rows = cb_guarded(cb_kv_row_bytes(t, hd) * n);

    for (int i = 0; i < n; i++)
        x[(size_t)i * hd + 3] += outlier;
    ref->ops->kv_encode(ref, t, x, n, hd, hd, rows);
    free(x);
    return rows;
}

static void make_input(struct input *in, const struct attn *form, int n, int use_idx, float outlier)
{
    struct attn *a = &in->a;
    const int slots = use_idx ? 2 * n + 3 : n;

    *a = *form;
    a->q_stride = a->n_head * a->hd + below(9);
    a->q = in->q = floats((size_t)a->q_stride * (a->n_tok ? a->n_tok : 1));
    for (int i = 0; i < a->q_stride * a->n_tok; i++)
        in->q[i] *= 3.0f;
    for (int h = 0; h < a->n_kv; h++) {
        const int mine = use_idx && n > 5 ? n - below(5) : n;
        in->k[h] = stored(a->type_k, slots, a->hd, outlier);
        in->v[h] = stored(a->type_v, slots, a->hd, 0.0f);
        in->idx[h] = use_idx ? ints(n) : NULL;
        for (int j = 0; use_idx && j < n; j++)
            in->idx[h][j] = 2 * j + below(2);
        in->run[h] = (struct kv_run){ .k = in->k[h], .v = in->v[h], .idx = in->idx[h], .n = mine };
    }
    a->run = in->run;
}

static void free_input(struct input *in)
{
    for (int h = 0; h < in->a.n_kv; h++)
        free(in->k[h]), free(in->v[h]), free(in->idx[h]);
    free(in->q);
}

static void run_attn(struct device *d, const struct attn *form, float **out, float **lse)
{
    struct attn a = *form;
    const size_t rows = (size_t)a.n_tok * a.n_head;

    a.out = *out = poisoned(rows * a.hd);
    a.lse = *lse = poisoned(rows);
    d->ops->attention(d, &a, 1);
}

static const int groups[] = { 7, 1, 2, 3, 4, 8, 16, 5 };

static struct attn random_form(int c, int *n)
{
    struct attn f = { 0 };

    f.type_k = (enum kv_type)(c % KV_TYPE_COUNT);
    f.type_v = (enum kv_type)(c / 4 % KV_TYPE_COUNT);
    f.hd = head_dims[below(10)];
    if (f.type_k == KV_Q8_0 || f.type_v == KV_Q8_0)
        f.hd = (f.hd + 31) / 32 * 32;
    f.n_kv = 1 + below(2);
    f.n_head = groups[below(8)] * f.n_kv;
    f.n_tok = c % 3 == 0 ? 1 : 1 + below(c % 5 ? 9 : 60);
    *n = c % 11 == 0 ? below(3) : 1 + below(c % 4 ? 300 : 1100);
    f.causal = below(2);
    if (f.causal && *n < f.n_tok)
        *n = f.n_tok + below(3);
    f.window = below(3) ? 0 : 1 + below(400);
    f.scale = 1.0f / sqrtf((float)f.hd);
    f.softcap = below(4) ? 0.0f : 20.0f;
    return f;
}

static int is_half(enum kv_type t)
{
    return t == KV_F16 || t == KV_BF16;
}

/* Does the device round queries, or probabilities, to 11 bits? The CPU may for rows of 16 bits that
 * many queries share, a CUDA device for prompts whose rows are not f32. */
static int rounds(const struct attn *f)
{
    if (IS_CUDA && f->causal && f->type_k != KV_F32 && f->type_v != KV_F32)
        return 1;
    return (f->causal || f->n_head / f->n_kv >= 4) && (is_half(f->type_k) || is_half(f->type_v));
}

/* Sums of up to 1100 terms in single precision; with logits near 100 their last bit is 1e-5.
 * Products of q8_0 rows may round queries and probabilities to 15 bits of the largest. */
static float tolerance(const struct attn *f, float outlier)
{
    const int q8 = f->type_k == KV_Q8_0 || f->type_v == KV_Q8_0;
    const int half = rounds(f);

    if (half)
        return outlier > 0.0f ? 1e-2f : f->hd > 128 ? 2e-3f : 1e-3f;
    if (q8)
        return outlier > 0.0f ? 2e-3f : 1e-4f;
    return outlier > 0.0f ? 1e-4f : 5e-6f;
}

/* One form of attention over n entries, as the reference's */
static void one_attention(int c, const struct attn *f, int n, int use_idx, float outlier)
{
    struct input in;
    float *o, *l, *o2, *l2;
    char what[160];

    make_input(&in, f, n, use_idx, outlier);
    run_attn(dev, &in.a, &o, &l);
    run_attn(ref, &in.a, &o2, &l2);
    snprintf(what, sizeof what,
             "case %d %s/%s n_tok %d n %d head %d/%d hd %d causal %d window %d cap %g", c,
             cb_kv_type[f->type_k].name, cb_kv_type[f->type_v].name, f->n_tok, n, f->n_head,
             f->n_kv, f->hd, f->causal, f->window, (double)f->softcap);
    same(what, o, o2, (size_t)f->n_tok * f->n_head * f->hd, tolerance(f, outlier));
    same(what, l, l2, (size_t)f->n_tok * f->n_head, tolerance(f, outlier));
    free(o), free(l), free(o2), free(l2);
    free_input(&in);
}

START_TEST(attention)
{
    if (!open_isa(_i, 3))
        return;
    for (int c = 0; c < cb_test_cases(128 / FEWER); c++) {
        const float outlier = c % 6 == 5 ? 100.0f : 0.0f;
        int n;
        const struct attn f = random_form(c, &n);
        one_attention(c, &f, n, !f.causal && below(2), outlier);
    }
}
END_TEST

/* Prompts on CUDA devices of both kinds: all sizes of heads, types, shares of query heads, with
 * windows and caps, in chunks of any length after other tokens */
START_TEST(prompts)
{
    static const int n_tok[] = { 1, 3, 16, 33, 64, 70 }, past[] = { 0, 1, 31, 64, 150, 7, 100 };
    static const float caps[] = { 0.0f, 20.0f, 0.0f };

    setenv("PRETEND_CUDA", _i ? "capability=75" : "", 1);
    if (!open_isa(CB_ISA_CUDA, 1))
        return;
    for (int c = 0; c < 40; c++) {
        struct attn f = { .n_tok = n_tok[c % 6],
                          .n_kv = 1 + c % 2,
                          .hd = head_dims[c % 10],
                          .causal = 1,
                          .window = c % 4 == 3 ? 1 + below(90) : 0,
                          .softcap = caps[c % 3],
                          .type_k = (enum kv_type)(1 + c % 3),
                          .type_v = (enum kv_type)(1 + c / 3 % 3) };
        if (f.type_k == KV_Q8_0 || f.type_v == KV_Q8_0)
            f.hd = (f.hd + 31) / 32 * 32;
        f.n_head = groups[c % 8] * f.n_kv;
        f.scale = 1.0f / sqrtf((float)f.hd);
        one_attention(c, &f, f.n_tok + past[c % 7], 0, c % 5 == 4 ? 100.0f : 0.0f);
    }
    unsetenv("PRETEND_CUDA");
}
END_TEST

/* The last tokens of long prompts on a CUDA device, which cuts their contexts: as the reference,
 * and the same bits in chunks, where a chunk reads more or fewer of the pieces. */
START_TEST(long_prompts)
{
    static const struct {
        int n_head, n_kv, hd, n, window, type_k, type_v;
    } cases[] = {
        { 2, 1, 64, 2080, 0, KV_F16, KV_F16 },     { 2, 2, 128, 4990, 4500, KV_F16, KV_F16 },
        { 17, 1, 64, 4099, 0, KV_F16, KV_Q8_0 },   { 1, 1, 192, 2052, 0, KV_BF16, KV_F16 },
        { 1, 1, 64, 4990, 300, KV_Q8_0, KV_BF16 },
    };
    const int size = cases[_i].hd * cases[_i].n_head, m = cases[_i].n_head > 2 ? 7 : 44;
    const struct attn f = { .n_tok = m,
                            .n_head = cases[_i].n_head,
                            .n_kv = cases[_i].n_kv,
                            .hd = cases[_i].hd,
                            .scale = 0.125f,
                            .causal = 1,
                            .window = cases[_i].window,
                            .type_k = (enum kv_type)cases[_i].type_k,
                            .type_v = (enum kv_type)cases[_i].type_v };
    struct input in;
    float *want, *want_lse, *o, *l;

    if (!open_isa(CB_ISA_CUDA, 1))
        return;
    make_input(&in, &f, cases[_i].n, 0, 5.0f);
    run_attn(dev, &in.a, &want, &want_lse);
    run_attn(ref, &in.a, &o, &l);
    same("out", want, o, (size_t)(m * size), 2e-3f);
    same("lse", want_lse, l, (size_t)(m * f.n_head), 2e-3f);
    for (int from = 0, chunk = 1, n; from < m; from += n, chunk = chunk * 2 + 3) {
        struct attn a = in.a;
        struct kv_run run[2];
        float *out, *lse;
        n = m - from < chunk ? m - from : chunk;
        for (int h = 0; h < f.n_kv; h++)
            run[h] = (struct kv_run){ .k = in.k[h], .v = in.v[h], .n = cases[_i].n - m + from + n };
        a.run = run;
        a.n_tok = n;
        a.q += (size_t)from * (size_t)a.q_stride;
        run_attn(dev, &a, &out, &lse);
        ck_assert(!memcmp(out, want + from * size, (size_t)(n * size) * sizeof *out));
        ck_assert(!memcmp(lse, want_lse + from * f.n_head, (size_t)(n * f.n_head) * sizeof *lse));
        free(out), free(lse);
    }
    free(want), free(want_lse), free(o), free(l);
    free_input(&in);
}
END_TEST

enum { BRIEFLY = IS_CUDA || CB_SLOWED > 1 }; /* what computes a prompt takes ten times as long */

/* The same bits for any number of threads, for any chunks of a prompt, with or without a window. */
START_TEST(determinism)
{
    enum { N = BRIEFLY ? 200 : 700 };
    static const int chunks[] = { N, 1, 5, 64, N / 2 - 17 };
    struct input in;
    float *want, *want_lse;

    if (!open_isa(_i, 1))
        return;
    for (int c = 0; c<2 * KV_TYPE_COUNT; c += FEWER> 1 || cb_test_nth() > 1 ? 3 : 1) {
        const enum kv_type t = (enum kv_type)(c / 2);
        const struct attn f = { .n_tok = N,
                                .n_head = 6,
                                .n_kv = 2,
                                .hd = 64,
                                .scale = 0.125f,
                                .causal = 1,
                                .window = c % 2 ? N - 100 : 0,
                                .type_k = t,
                                .type_v = t };
        make_input(&in, &f, N, 0, 5.0f);
        run_attn(dev, &in.a, &want, &want_lse);
        for (int threads = 1; threads <= 4; threads += 3) {
            struct device *d = cb_isa_open(_i, threads);
            ck_assert_ptr_nonnull(d);
            reserve(d);
            for (int i = 0; i < 5; i++) {
                float *out = poisoned(N * 6 * 64), *lse = poisoned(N * 6);
                for (int from = 0, m; from < N; from += m) {
                    struct attn a = in.a;
                    struct kv_run run[2];
                    m = N - from < chunks[i] ? N - from : chunks[i];
                    for (int h = 0; h < 2; h++)
                        run[h] = (struct kv_run){ .k = in.k[h], .v = in.v[h], .n = from + m };
                    a.run = run;
                    a.n_tok = m;
                    a.q = in.q + (size_t)from * a.q_stride;
                    a.out = out + (size_t)from * 6 * 64;
                    a.lse = lse + (size_t)from * 6;
                    d->ops->attention(d, &a, 1);
                }
                if (memcmp(out, want, N * 6 * 64 * sizeof *out) ||
                    memcmp(lse, want_lse, N * 6 * sizeof *lse))
                    ck_abort_msg("%s: chunks of %d with %d threads differ", cb_kv_type[t].name,
                                 chunks[i], threads);
                free(out), free(lse);
            }
            cb_device_close(d);
        }
        free(want), free(want_lse);
        free_input(&in);
    }
}
END_TEST

/* Calls that share a loop get the bits of calls by themselves, whatever their lengths and numbers
 * of queries, also where there are more than the work space holds together, and whichever are said
 * to read the same memory. */
START_TEST(several_calls)
{
    enum { CALLS = 20 };
    static const int n_tok[] = { 1, 1, 1, 2, 0, 1, BRIEFLY ? 100 : 700, 3, 5, 1 };

    for (int threads = 1; threads <= 3; threads += 2) {
        struct input in[CALLS];
        struct attn a[CALLS];
        float *want[CALLS], *want_lse[CALLS];
        cb_device_close(dev);
        if (!open_isa(_i, threads))
            return;
        for (int i = 0; i < CALLS; i++) {
            const int few = n_tok[i % 10];
            const struct attn f = { .n_tok = threads > 1 && few ? 1 : few,
                                    .n_head = 14,
                                    .n_kv = 2,
                                    .hd = 64,
                                    .scale = 0.125f,
                                    .causal = i % 3 == 0,
                                    .type_k = (enum kv_type)(i / 4 % KV_TYPE_COUNT),
                                    .type_v = (enum kv_type)(i / 4 % KV_TYPE_COUNT) };
            make_input(&in[i], &f, i % 7 == 3 ? 700 : 700 + 150 * i, 0, 0);
            run_attn(dev, &in[i].a, &want[i], &want_lse[i]);
            a[i] = in[i].a;
            a[i].family = i % 6 > 1 ? &in[i / 6] : NULL;
            a[i].out = poisoned((size_t)f.n_tok * 14 * 64);
            a[i].lse = poisoned((size_t)f.n_tok * 14);
        }
        dev->ops->attention(dev, a, CALLS);
        for (int i = 0; i < CALLS; i++) {
            const size_t rows = (size_t)a[i].n_tok * 14;
            ck_assert_msg(!memcmp(a[i].out, want[i], rows * 64 * sizeof(float)), "call %d", i);
            ck_assert_msg(!memcmp(a[i].lse, want_lse[i], rows * sizeof(float)), "call %d", i);
            free(a[i].out), free(a[i].lse), free(want[i]), free(want_lse[i]);
            free_input(&in[i]);
        }
    }
}
END_TEST

/* The scores of this machine's device -> x, those of the reference -> y */
static void both_score(struct score s, float *x, float *y)
{
    s.out = x;
    dev->ops->score(dev, &s);
    s.out = y;
    ref->ops->score(ref, &s);
}

/* Scores of the input's queries, with weights or without, on both devices: n numbers */
static void same_scores(const char *what, const struct input *in, struct score s, size_t n,
                        float tol)
{
    float *o, *l, *w, *x, *y;

    run_attn(ref, &in->a, &o, &l);
    w = floats(in->a.n_tok);
    x = floats(n), y = copy(x, n);
    s.a = in->a;
    s.a.lse = l;
    s.weight = below(2) ? w : NULL;
    both_score(s, x, y);
    same(what, x, y, n, tol);
    free(o), free(l), free(w), free(x), free(y);
}

START_TEST(score)
{
    if (!open_isa(_i, 3))
        return;
    for (int c = 0; c < cb_test_cases(80 / FEWER); c++) {
        struct input in;
        int n;
        const struct attn f = random_form(c, &n);
        struct score s = { .logit = c % 5 == 2, .out_stride = n + 3 };
        const size_t all = (size_t)f.n_head * s.out_stride;
        make_input(&in, &f, n, !f.causal && below(2), c % 6 == 5 ? 30.0f : 0.0f);
        same_scores("score", &in, s, all,
                    2 * tolerance(&f, c % 6 == 5 ? 30.0f : 0.0f) *
                        (s.logit ? sqrtf((float)f.n_tok) : 1.0f)); /* a sum of n_tok logits */
        free_input(&in);
    }
}
END_TEST

/* Scores of KV heads and their squares, which start where sums have left off */
START_TEST(score_with_squares)
{
    if (!open_isa(_i, 3))
        return;
    for (int c = 0; c < cb_test_cases(80 / FEWER); c++) {
        const float outlier = c % 6 == 5 ? 30.0f : 0.0f;
        struct input in;
        int n;
        const struct attn f = random_form(c, &n);
        struct score s = { .per = f.n_head / f.n_kv, .out_stride = n + 3 };
        const size_t all = (size_t)f.n_kv * (size_t)s.out_stride;
        float *o, *l, *w = floats(f.n_tok), *x = floats(2 * all), *y = copy(x, 2 * all);
        make_input(&in, &f, n, !f.causal && below(2), outlier);
        run_attn(ref, &in.a, &o, &l);
        s.a = in.a;
        s.a.lse = l;
        s.weight = below(2) ? w : NULL;
        s.out = x, s.squares = x + all;
        dev->ops->score(dev, &s);
        s.out = y, s.squares = y + all;
        ref->ops->score(ref, &s);
        same("scores", x, y, all, 2 * tolerance(&f, outlier) * (float)s.per);
        same("squares", x + all, y + all, all, 4 * tolerance(&f, outlier) * (float)s.per);
        free(o), free(l), free(w), free(x), free(y);
        free_input(&in);
    }
}
END_TEST

START_TEST(score_of_given_logits)
{
    if (!open_isa(_i, 3))
        return;
    for (int c = 0; c < cb_test_cases(60); c++) {
        const int group = groups[below(8)], n_kv = 1 + below(3), n = 1 + below(1200),
                  stride = n + 5;
        const size_t all = (size_t)(group * n_kv) * stride;
        float *s = floats(all), *lse = floats(group * n_kv), *x = floats(all), *y = copy(x, all);
        int32_t *order = ints(n);
        struct kv_run run[3];
        struct score sc = { .a = { .n_tok = 1,
                                   .n_head = group * n_kv,
                                   .n_kv = n_kv,
                                   .hd = 64,
                                   .run = run,
                                   .lse = lse,
                                   .logit_stride = stride },
                            .per = c % 3 == 0   ? 0
                                   : c % 3 == 1 ? group
                                                : group * n_kv,
                            .out_stride = stride };
        for (int j = 0; j < n; j++)
            order[j] = n - 1 - j;
        for (size_t i = 0; i < all; i++)
            s[i] *= i % 9 ? 5.0f : 60.0f;
        for (int h = 0; h < group * n_kv; h++)
            lse[h] = 60.0f + lse[h];
        for (int h = 0; h < n_kv; h++)
            run[h] = (struct kv_run){ .n = c % 3 == 2 ? n : n - below(n),
                                      .given = 1,
                                      .logit = s + h * group * stride,
                                      .order = c % 2 ? order : NULL };
        both_score(sc, x, y);
        same("score of given logits", x, y, all, 2e-5f);
        free(s), free(lse), free(x), free(y), free(order);
    }
}
END_TEST

/* Logarithms of scores, which start where a sum has left off */
START_TEST(the_largest_scores)
{
    if (!open_isa(_i, 3))
        return;
    for (int c = 0; c < cb_test_cases(80 / FEWER); c++) {
        struct input in;
        int n;
        const struct attn f = random_form(c, &n);
        const float outlier = c % 6 == 5 ? 30.0f : 0.0f;
        const int group = f.n_head / f.n_kv;
        struct score s = { .most = 1, .per = below(2) ? group : 1, .out_stride = n + 3 };
        const size_t all = (size_t)(f.n_head / s.per) * (size_t)s.out_stride;
        float *o, *l, *x = floats(all), *y;
        make_input(&in, &f, n, !f.causal && below(2), outlier);
        run_attn(ref, &in.a, &o, &l);
        for (size_t i = 0; i < all; i++)
            x[i] = below(3) ? -INFINITY : 4 * x[i] - 8;
        y = copy(x, all);
        s.a = in.a;
        s.a.lse = l;
        both_score(s, x, y);
        for (size_t i = 0; i < all; i++) {
            x[i] = exp2f(x[i]);
            y[i] = exp2f(y[i]);
        }
        same("largest scores", x, y, all, 2 * tolerance(&f, outlier));
        free(o), free(l), free(x), free(y);
        free_input(&in);
    }
}
END_TEST

START_TEST(score_of_the_largest_head)
{
    if (!open_isa(_i, 3))
        return;
    for (int c = 0; c < cb_test_cases(80 / FEWER); c++) {
        struct input in;
        int n;
        struct attn f = random_form(c, &n);
        struct score s = { .peak = 1 };
        f.causal = f.window = 0;
        make_input(&in, &f, n, below(2), c % 6 == 5 ? 30.0f : 0.0f);
        for (int h = 0; h < f.n_kv; h++)
            in.run[h].n = n;
        same_scores("score of the largest head", &in, s, n,
                    2 * tolerance(&f, c % 6 == 5 ? 30.0f : 0.0f));
        free_input(&in);
    }
}
END_TEST

/* Sums over the heads of what logits have above 0, a row for each query */
START_TEST(rectified_scores)
{
    if (!open_isa(_i, 3))
        return;
    for (int c = 0; !dev->ops->memory && c < cb_test_cases(80 / FEWER); c++) {
        const float outlier = c % 6 == 5 ? 30.0f : 0.0f;
        struct input in;
        int n;
        struct attn f = random_form(c, &n);
        struct score s = { .logit = 1, .rectified = 1, .out_stride = n + 3 };
        const size_t all = (size_t)f.n_tok * (size_t)s.out_stride;
        float *w, *x, *y;
        f.n_head /= f.n_kv;
        f.n_kv = 1;
        make_input(&in, &f, n, !f.causal && below(2), outlier);
        w = floats((size_t)in.a.q_stride * (size_t)f.n_tok);
        x = floats(all), y = copy(x, all);
        s.a = in.a;
        s.weight = c % 5 ? w : NULL;
        both_score(s, x, y);
        same("rectified scores", x, y, all, 2 * tolerance(&f, outlier) * sqrtf((float)f.n_head));
        free(w), free(x), free(y);
        free_input(&in);
    }
}
END_TEST

/* A random form, and scores of each of its queries and heads in rows of their own */
struct scored {
    struct input in;
    struct score s;
    float *x, *y; /* [all] the device's and the reference's, which begin alike */
    size_t all;
    float tol;
};

/* Case c; pieces: the largest logits of pieces, else all logits */
static void open_scored(struct scored *r, int c, int pieces)
{
    const float outlier = c % 6 == 5 ? 30.0f : 0.0f;
    int n;
    struct attn f = random_form(c, &n);

    r->s = (struct score){ .logit = 1, .out_stride = n + 3 };
    if (pieces) {
        r->s.piece = c % 3 ? 1 + below(300) : 16 << below(7);
        r->s.out_stride = cb_score_piece(r->s.piece, n) + 3;
        f.softcap = 0;
    }
    make_input(&r->in, &f, n, !f.causal && below(2), outlier);
    r->s.a = r->in.a;
    r->s.tok_stride = (size_t)f.n_head * (size_t)r->s.out_stride;
    r->all = (size_t)f.n_tok * r->s.tok_stride;
    r->x = floats(r->all);
    r->y = copy(r->x, r->all);
    r->tol = 2 * tolerance(&f, outlier);
}

static void close_scored(struct scored *r)
{
    free(r->x), free(r->y);
    free_input(&r->in);
}

/* Entries that a query does not see stay. */
START_TEST(logits_of_each_query)
{
    if (!open_isa(_i, 3))
        return;
    for (int c = 0; !dev->ops->memory && c < cb_test_cases(80 / FEWER); c++) {
        struct scored r;
        open_scored(&r, c, 0);
        both_score(r.s, r.x, r.y);
        same("logits of each query", r.x, r.y, r.all, r.tol);
        close_scored(&r);
    }
}
END_TEST

/* The largest logits of pieces; what no query sees stays. */
START_TEST(largest_logits_of_pieces)
{
    if (!open_isa(_i, 3))
        return;
    for (int c = 0; !dev->ops->memory && c < cb_test_cases(80 / FEWER); c++) {
        struct scored r;
        open_scored(&r, c, 1);
        for (size_t i = 0; i < r.all; i++)
            r.x[i] = r.y[i] = i % 5 ? -INFINITY : r.x[i];
        both_score(r.s, r.x, r.y);
        for (size_t i = 0; i < r.all; i++)
            r.x[i] = isinf(r.y[i]) && isinf(r.x[i]) ? (r.y[i] = 0) : r.x[i];
        same("largest logits", r.x, r.y, r.all, r.tol);
        close_scored(&r);
    }
}
END_TEST

/* Two parts joined are the attention over both. */
START_TEST(parts_join)
{
    if (!open_isa(_i, 2))
        return;
    for (int cut = 0; cut <= 700; cut += 175) {
        const struct attn f = { .n_tok = 3,
                                .n_head = 14,
                                .n_kv = 2,
                                .hd = 64,
                                .scale = 0.125f,
                                .type_k = KV_F16,
                                .type_v = KV_F16 };
        const size_t row = cb_kv_row_bytes(KV_F16, 64), all = 3 * 14 * 64;
        struct kv_run left[2], right[2];
        struct input in;
        struct attn a;
        float *o, *l, *o1, *l1, *o2, *l2;
        make_input(&in, &f, 700, 0, 0.0f);
        for (int h = 0; h < 2; h++) {
            left[h] = right[h] = in.run[h];
            left[h].n = cut;
            right[h].n = 700 - cut;
            right[h].k = in.k[h] + row * cut;
            right[h].v = in.v[h] + row * cut;
        }
        run_attn(dev, &in.a, &o, &l);
        a = in.a;
        a.run = left;
        run_attn(dev, &a, &o1, &l1);
        a.run = right;
        run_attn(dev, &a, &o2, &l2);
        dev->ops->join(dev, o1, l1, o2, l2, 3 * 14, 64);
        same("joined", o1, o, all, 1e-4f);
        same("joined lse", l1, l, 3 * 14, 1e-5f);
        free(o), free(l), free(o1), free(l1), free(o2), free(l2);
        free_input(&in);
    }
}
END_TEST

/* Logits that one query's attention leaves are the scores' ones; read in place of keys, they give
 * the same attention again, over other keys too. */
START_TEST(logits_left_and_given)
{
    if (!open_isa(_i, 2))
        return;
    for (int c = 0; c < cb_test_cases(24 / FEWER); c++) {
        const struct attn f = { .n_tok = 1,
                                .n_head = groups[c % 8] * 2,
                                .n_kv = 2,
                                .hd = c % 3 ? 64 : 40,
                                .scale = 0.125f,
                                .softcap = c % 5 ? 0.0f : 20.0f,
                                .type_k = c % 2 ? KV_F16 : KV_F32,
                                .type_v = KV_F16 };
        const int n = 1 + below(1200), group = groups[c % 8], stride = n + below(5);
        float *logit = floats((size_t)f.n_head * stride), *want = floats((size_t)f.n_head * stride);
        float *o, *l, *o2, *l2;
        struct score sc = { .logit = 1, .out = want, .out_stride = stride };
        struct input in;
        make_input(&in, &f, n, c % 4 == 1, 0.0f);
        in.a.logit_stride = stride;
        for (int h = 0; h < 2; h++)
            in.run[h].logit = logit + (size_t)h * group * stride;
        memset(logit, 0, (size_t)f.n_head * stride * sizeof *logit);
        run_attn(dev, &in.a, &o, &l);
        memset(want, 0, (size_t)f.n_head * stride * sizeof *want);
        sc.a = in.a;
        sc.a.lse = l;
        ref->ops->score(ref, &sc);
        same("logits", logit, want, (size_t)f.n_head * stride, fmaxf(1e-5f, tolerance(&f, 0.0f)));
        for (int h = 0; h < 2; h++) {
            in.run[h].k = NULL;
            in.run[h].given = 1;
        }
        run_attn(dev, &in.a, &o2, &l2);
        same("given", o2, o, (size_t)f.n_head * f.hd, 0x1p-16f); /* weights of 16 bits */
        same("given lse", l2, l, f.n_head, 1e-6f);
        free(o), free(l), free(o2), free(l2), free(logit), free(want);
        free_input(&in);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("attn");
    TCase *tc = tcase_create("attn");

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, attention, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, prompts, 0, IS_CUDA ? 2 : 0);
    tcase_add_loop_test(tc, long_prompts, 0, IS_CUDA ? 5 : 0);
    tcase_add_loop_test(tc, determinism, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, several_calls, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, score, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, score_with_squares, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, score_of_given_logits, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, the_largest_scores, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, score_of_the_largest_head, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, rectified_scores, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, logits_of_each_query, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, largest_logits_of_pieces, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, parts_join, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, logits_left_and_given, ISA_FROM, ISA_TO);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
