/* SPDX-License-Identifier: MIT */
/* check_gpu_prompts.c - products of a prompt's tokens on a CUDA device, for weights whose rows are
 * unpacked to halves: against sums of the same halves in double precision, for sizes that are no
 * multiples of tiles; and their bits, which depend neither on the tokens beside a token nor on how
 * many rows are unpacked at a time. */
#include "against_ref.h"
#include "kit/isa.h"
#include "kit/suite.h"
#include "par/affinity.h"

enum { TYPES = DT_ENCODED - DT_F16, PAD = 3, MOST_CALLS = 7 };

static struct device *open_with(const char *pretend, uint64_t working_set)
{
    const struct team_params team = { .n_threads = 2 };
    const struct device_want want = { .working_set = working_set };
    struct device *d;

    setenv("PRETEND_CUDA", pretend, 1);
    ck_assert_ok(cb_device_open_team(cb_isa[ISA_FROM], &team, &want, &d));
    return d;
}

static struct weight weight_of(enum dtype t, int n_in, int n_out)
{
    const size_t row = cb_row_bytes(t, n_in);
    struct weight w = { .name = "w", .type = t, .n_in = n_in, .n_out = n_out };
    uint8_t *raw = malloc(row * (size_t)n_out);

    for (int o = 0; o < n_out; o++) {
        float *x = floats((size_t)n_in);
        cb_dtype[t].from_f32(x, raw + (size_t)o * row, n_in);
        free(x);
    }
    w.raw = raw;
    return w;
}

/* Numbers of different size, which keep their digits as halves */
static float *tokens(int n_tok, int n_in)
{
    float *x = floats((size_t)n_tok * (size_t)n_in);

    for (int i = 0; i < n_tok * n_in; i++)
        x[i] = (x[i] + (x[i] < 0 ? -0.1f : 0.1f)) * (i % 97 == 5 ? 30.0f : 1.0f);
    return x;
}

static void round_to_halves(float *x, size_t n)
{
    uint16_t *half = malloc(n * sizeof *half);

    cb_dtype[DT_F16].from_f32(x, half, (int64_t)n);
    cb_dtype[DT_F16].to_f32(half, x, (int64_t)n);
    free(half);
}

/* A product that adds, with a bias, and rows of y that are longer than the weight has */
struct call {
    const struct weight *w;
    const float *bias, *before, *x;
    int n_tok, add;
};

static size_t y_floats(const struct call *c)
{
    return (size_t)c->n_tok * (size_t)(c->w->n_out + PAD);
}

/* The product with `step` tokens at a time; operands on the device or in the host's memory */
static float *product(struct device *d, const struct call *c, int step, int on)
{
    const size_t n_y = y_floats(c), n_x = (size_t)c->n_tok * (size_t)c->w->n_in;
    const int stride = c->w->n_out + PAD;
    float *y = copy(c->before, n_y), *dy = y, *dx = (float *)(uintptr_t)c->x;

    if (on) {
        ck_assert_ptr_nonnull(dx = cb_device_alloc(d, n_x, sizeof(float)));
        ck_assert_ptr_nonnull(dy = cb_device_alloc(d, n_y, sizeof(float)));
        cb_device_copy(d, dx, c->x, n_x * sizeof(float));
        cb_device_copy(d, dy, y, n_y * sizeof(float));
    }
    for (int at = 0; at < c->n_tok; at += step) {
        const struct mm m = { c->w, c->bias, dy + (size_t)at * (size_t)stride, stride, c->add, 0 };
        d->ops->matmul(d, &m, 1, dx + (size_t)at * (size_t)c->w->n_in,
                       step < c->n_tok - at ? step : c->n_tok - at);
    }
    if (on) {
        cb_device_copy(d, y, dy, n_y * sizeof(float));
        cb_device_free(d, dx);
        cb_device_free(d, dy);
    }
    ck_assert_ok(cb_device_wait(d));
    return y;
}

static void check_sums(const struct call *c, const float *y)
{
    const struct weight *w = c->w;
    const size_t n_in = (size_t)w->n_in, stride = (size_t)(w->n_out + PAD);
    float *row = floats(n_in), *x = copy(c->x, n_in * (size_t)c->n_tok);

    round_to_halves(x, n_in * (size_t)c->n_tok);
    for (int o = 0; o < w->n_out; o++) {
        cb_dtype[w->type].to_f32((const char *)w->raw + cb_row_bytes(w->type, (int64_t)w->n_in * o),
                                 row, w->n_in);
        round_to_halves(row, n_in);
        for (int t = 0; t < c->n_tok; t++) {
            const size_t at = (size_t)t * stride + (size_t)o;
            double want = (c->bias ? (double)c->bias[o] : 0) + (c->add ? (double)c->before[at] : 0);
            double size = fabs(want);
            for (size_t i = 0; i < n_in; i++) {
                const double p = (double)row[i] * (double)x[(size_t)t * n_in + i];
                want += p;
                size += fabs(p);
            }
            /* A number in the middle between two halves may become either. */
            ck_assert_msg(fabs((double)y[at] - want) <= 5e-5 * size + 1e-6,
                          "%s %d x %d, row %d, token %d of %d: %.9g, should be %.9g",
                          cb_dtype[w->type].name, w->n_out, w->n_in, o, t, c->n_tok, (double)y[at],
                          want);
        }
    }
    for (size_t t = 0; t < (size_t)c->n_tok; t++)
        for (size_t o = (size_t)w->n_out; o < stride; o++)
            ck_assert_msg(y[t * stride + o] == c->before[t * stride + o], "wrote past n_out");
    free(row);
    free(x);
}

static void same_bits(const struct call *c, const float *got, const float *want, const char *what)
{
    ck_assert_msg(!memcmp(got, want, y_floats(c) * sizeof *got), "%s %d x %d, %d tokens: %s",
                  cb_dtype[c->w->type].name, c->w->n_out, c->w->n_in, c->n_tok, what);
}

/* The product, and the same bits with a few tokens at a time; what it is, unless y has place for
 * it */
static void check_call(struct device *d, struct weight *w, int n_tok, int form, float **y)
{
    float *bias = floats((size_t)w->n_out), *x = tokens(n_tok, w->n_in), *all, *some;
    struct call c = { w, form & 1 ? bias : NULL, NULL, x, n_tok, form >> 1 & 1 };
    float *before = floats(y_floats(&c));

    c.before = before;
    all = product(d, &c, n_tok, form >> 2 & 1);
    some = product(d, &c, n_tok / 3 + 1, ~form >> 2 & 1);
    check_sums(&c, all);
    same_bits(&c, some, all, "fewer at a time");
    free(bias), free(x), free(before), free(some);
    if (y)
        *y = all;
    else
        free(all);
}

static void check_shape(struct device *d, enum dtype t, int n_in, int n_out, int n_tok, int form)
{
    struct weight w = weight_of(t, n_in, n_out);

    ck_assert_msg(!d->ops->load(d, &w), "%s", cb_error());
    check_call(d, &w, n_tok, form, NULL);
    d->ops->unload(d, &w);
    free((void *)(uintptr_t)w.raw);
}

/* Each type; rows of floats may end anywhere, and begin at any even address. */
START_TEST(products)
{
    static const int blocks[] = { 1, 3, 2, 9 }, floats_in[] = { 31, 40, 257, 64, 1, 96 };
    static const int outs[] = { 1, 64, 65, 130, 200, 300 }, toks[] = { 1, 300, 64, 65, 2, 129 };
    const enum dtype t = (enum dtype)(DT_F16 + _i);
    const int block = cb_dtype[t].block;
    struct device *d = open_with("", 0);

    for (int c = 0; c < 6; c++)
        check_shape(d, t, block == 1 ? floats_in[c] : blocks[c % 4] * block, outs[(c + _i) % 6],
                    toks[c], c + _i);
    cb_device_close(d);
}
END_TEST

/* So many rows and tokens that the large tile is taken; with fewer tokens at a time it is the
 * small one. On CUDA devices of both kinds. */
START_TEST(large)
{
    struct device *d = open_with(_i ? "capability=75" : "", 0);

    check_shape(d, DT_Q4_0, 160, 1030, 1155, 7);
    check_shape(d, DT_F16, 32, 1160, 1030, 0);
    cb_device_close(d);
}
END_TEST

/* Working sets in which slabs have a few rows, or some tiles: the bits of one that has room for all
 */
START_TEST(slabs)
{
    static const int shapes[][2] = { { 2048, 150 }, { 256, 420 }, { 4096, 70 } };
    struct device *tight = open_with("", 2 << 20), *roomy = open_with("", 0);

    for (int i = 0; i < 3; i++) {
        struct weight w = weight_of(DT_Q4_0, shapes[i][0], shapes[i][1]);
        const uint64_t was = seed;
        float *y[2];
        for (int k = 0; k < 2; k++) {
            struct device *d = k ? roomy : tight;
            seed = was;
            ck_assert_msg(!d->ops->load(d, &w), "%s", cb_error());
            check_call(d, &w, 20, 7, &y[k]);
            d->ops->unload(d, &w);
        }
        ck_assert_mem_eq(y[0], y[1], 20 * (size_t)(w.n_out + PAD) * sizeof(float));
        free(y[0]), free(y[1]);
        free((void *)(uintptr_t)w.raw);
    }
    ck_assert_uint_le(cb_device_traffic(tight).peak_bytes, 2 << 20);
    cb_device_close(tight);
    cb_device_close(roomy);
}
END_TEST

/* Products of a call, of which some are one launch: the bits that each has alone */
static void check_calls(struct device *d, const enum dtype *types, const int *outs, int n, int n_in,
                        int n_tok)
{
    float *x = tokens(n_tok, n_in), *bias[MOST_CALLS], *before[MOST_CALLS], *y[MOST_CALLS];
    struct weight w[MOST_CALLS];
    struct call c[MOST_CALLS];
    struct mm m[MOST_CALLS];

    for (int i = 0; i < n; i++) {
        w[i] = weight_of(types[i], n_in, outs[i]);
        ck_assert_msg(!d->ops->load(d, &w[i]), "%s", cb_error());
        bias[i] = floats((size_t)outs[i]);
        c[i] = (struct call){ &w[i], i % 2 ? bias[i] : NULL, NULL, x, n_tok, i == n - 1 };
        before[i] = floats(y_floats(&c[i]));
        c[i].before = before[i];
        y[i] = copy(before[i], y_floats(&c[i]));
        m[i] = (struct mm){ &w[i], c[i].bias, y[i], outs[i] + PAD, c[i].add, 0 };
    }
    d->ops->matmul(d, m, n, x, n_tok);
    ck_assert_ok(cb_device_wait(d));
    for (int i = 0; i < n; i++) {
        float *alone = product(d, &c[i], n_tok, 0);
        same_bits(&c[i], y[i], alone, "beside others");
        free(alone), free(bias[i]), free(before[i]), free(y[i]);
    }
    for (int i = 0; i < n; i++) {
        d->ops->unload(d, &w[i]);
        free((void *)(uintptr_t)w[i].raw);
    }
    free(x);
}

START_TEST(calls)
{
    static const enum dtype types[] = {
        DT_Q4_0, DT_Q4_K, DT_BF16, DT_Q8_0, DT_F16, DT_Q6_K, DT_Q5_1
    };
    static const int outs[] = { 130, 1, 70, 200, 65, 128, 64 };
    static const enum dtype two[] = { DT_Q4_0, DT_Q8_0, DT_Q4_0 };
    static const int many[] = { 1030, 1153, 40 };
    struct device *d = open_with("", _i ? 2 << 20 : 0);

    check_calls(d, types, outs, 7, 512, 70);
    if (!_i)
        check_calls(d, two, many, 3, 64, 1030);
    cb_device_close(d);
}
END_TEST

/* Attention of a chunk over a long context in a little working set: queries in parts, so that what
 * the splits of the context leave is little, and the bits are those of all at once. */
START_TEST(queries_in_parts)
{
    enum { N = 4500, TOK = 600, HEADS = 4, KV = 2, HD = 64, SET = 8 << 20 };
    const size_t row = cb_kv_row_bytes(KV_F16, HD), n_out = (size_t)TOK * HEADS * HD;
    uint8_t *rows = malloc(2 * KV * N * row);
    float *x = floats((size_t)N * HD), *q = floats(n_out), *out[2], *lse[2];
    struct kv_run run[KV];

    for (int h = 0; h < KV; h++)
        run[h] = (struct kv_run){ .k = rows + (size_t)(2 * h) * N * row,
                                  .v = rows + (size_t)(2 * h + 1) * N * row,
                                  .n = N };
    for (int i = 0; i < 2 * KV; i++)
        ref->ops->kv_encode(ref, KV_F16, x, N, HD, HD, rows + (size_t)i * N * row);
    for (int k = 0; k < 2; k++) {
        struct device *d = open_with("", k ? 0 : SET);
        const struct attn a = { .n_tok = TOK,
                                .n_head = HEADS,
                                .n_kv = KV,
                                .hd = HD,
                                .scale = 0.125f,
                                .causal = 1,
                                .prompt = 1,
                                .type_k = KV_F16,
                                .type_v = KV_F16,
                                .run = run,
                                .q = q,
                                .q_stride = HEADS * HD,
                                .out = out[k] = poisoned(n_out),
                                .lse = lse[k] = poisoned((size_t)TOK * HEADS) };
        struct device_traffic t;
        for (int i = 0; i < 2 * KV; i++)
            ck_assert_ok(d->ops->memory->watch(d, rows + (size_t)i * N * row, row, N));
        d->ops->attention(d, &a, 1);
        ck_assert_ok(cb_device_wait(d));
        t = cb_device_traffic(d);
        ck_assert_uint_eq(t.host_rows, 0);
        ck_assert(k || t.peak_bytes - t.kv_bytes < SET / 4);
        for (int i = 0; i < 2 * KV; i++)
            d->ops->memory->unwatch(d, rows + (size_t)i * N * row);
        cb_device_close(d);
    }
    ck_assert_mem_eq(out[0], out[1], n_out * sizeof **out);
    ck_assert_mem_eq(lse[0], lse[1], (size_t)TOK * HEADS * sizeof **lse);
    for (int k = 0; k < 2; k++)
        free(out[k]), free(lse[k]);
    free(rows), free(x), free(q);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("prompts");
    TCase *c = tcase_create("prompts");

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_set_timeout(c, 300);
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_loop_test(c, products, 0, TYPES);
    tcase_add_loop_test(c, large, 0, cb_isa_pretends() ? 2 : 1);
    tcase_add_test(c, slabs);
    tcase_add_test(c, queries_in_parts);
    tcase_add_loop_test(c, calls, 0, 2);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
