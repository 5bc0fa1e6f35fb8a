/* SPDX-License-Identifier: MIT */
/* check_gpu_codes.c - products of decoded tokens with weights of codes on an accelerator, which
 * computes several of a call at once: against the reference, for rows of many lengths, and exactly
 * where numbers are whole. */
#include "against_ref.h"
#include "kit/isa.h"
#include "kit/suite.h"
#include "par/affinity.h"

enum { N = 4, MOST_IN = 2304, MOST_OUT = 40, FIRST = DT_Q4_0, TYPES = DT_ENCODED - DT_Q4_0 };

static struct weight weight_of(enum dtype t, int n_in, int n_out, int whole)
{
    const size_t row = cb_row_bytes(t, n_in);
    struct weight w = { .name = "w", .type = t, .n_in = n_in, .n_out = n_out };
    uint8_t *raw = malloc(row * (size_t)n_out);

    for (int o = 0; o < n_out; o++) {
        float *x = floats((size_t)n_in);
        for (int i = 0; whole && i < n_in; i++)
            x[i] = i % 32 ? (float)(below(255) - 127) : 127.0f; /* the step of Q8_0 is 1 */
        cb_dtype[t].from_f32(x, raw + (size_t)o * row, n_in);
        free(x);
    }
    w.raw = raw;
    return w;
}

/* Four weights, of which some have the same type, and, unless numbers are whole, some biases and
 * one adds. x and the results lie on the device or in the host's memory. */
static void check_call(struct device *d, struct weight *w, const float *x, int n_tok, int on,
                       int whole)
{
    const int n_in = w->n_in, stride = MOST_OUT + 3;
    const size_t n_y = (size_t)n_tok * (size_t)stride, n_x = (size_t)n_tok * (size_t)n_in;
    float *y[N], *want[N], *dy[N], *bias = floats(MOST_OUT), *dx = NULL;
    struct mm m[N];
    char what[96];

    for (int i = 0; i < N; i++) {
        struct weight plain = w[i];
        y[i] = floats(n_y);
        want[i] = copy(y[i], n_y);
        dy[i] = y[i];
        plain.packed = NULL;
        m[i] = (struct mm){ &plain, i % 2 && !whole ? bias : NULL, want[i],
                            stride, i == N - 1 && !whole,          16 };
        ref->ops->matmul(ref, &m[i], 1, x, n_tok);
        if (on) {
            ck_assert_ptr_nonnull(dy[i] = cb_device_alloc(d, n_y, sizeof(float)));
            cb_device_copy(d, dy[i], y[i], n_y * sizeof(float));
        }
        m[i].w = &w[i];
        m[i].y = dy[i];
    }
    if (on) {
        ck_assert_ptr_nonnull(dx = cb_device_alloc(d, n_x, sizeof(float)));
        cb_device_copy(d, dx, x, n_x * sizeof(float));
    }
    d->ops->matmul(d, m, N, on ? dx : x, n_tok);
    for (int i = 0; i < N; i++) {
        if (on) {
            cb_device_copy(d, y[i], dy[i], n_y * sizeof(float));
            cb_device_free(d, dy[i]);
        }
        snprintf(what, sizeof what, "%s %d x %d, number %d of a call, %d tokens",
                 cb_dtype[w[i].type].name, w[i].n_out, n_in, i, n_tok);
        same(what, y[i], want[i], n_y, whole ? 0.0f : 2e-5f);
        free(y[i]), free(want[i]);
    }
    cb_device_free(d, dx);
    ck_assert_ok(cb_device_wait(d));
    free(bias);
}

static struct device *open_as(const char *pretend)
{
    const struct team_params team = { .n_threads = 2 };
    struct device *d;

    ck_assert_int_ge(ref->ops->reserve(ref, 100, MOST_IN, MOST_OUT, 1, 64, 64), 0);
    setenv("PRETEND_CUDA", pretend, 1);
    ck_assert_ok(cb_device_open_team(cb_isa[ISA_FROM], &team, NULL, &d));
    return d;
}

static void check_shape(struct device *d, enum dtype t, int n_in, int n_out, const int *toks,
                        int n_toks, int whole)
{
    const enum dtype other = n_in % 256 ? DT_Q4_1 : DT_Q5_K;
    struct weight w[N];

    for (int i = 0; i < N; i++) {
        w[i] = weight_of(i == 2 && !whole ? other : t, n_in, i == 1 ? MOST_OUT : n_out, whole);
        ck_assert_msg(!d->ops->load(d, &w[i]), "%s", cb_error());
    }
    for (int k = 0; k < n_toks; k++) {
        float *x = floats((size_t)toks[k] * (size_t)n_in);
        for (int i = 0; i < toks[k] * n_in; i++) {
            const int tok = i / n_in;
            x[i] = whole ? ldexpf((float)(below(17) - 8), tok % 61 - 30)
                         : x[i] * (i % 97 == 5 ? 10.0f : 1.0f);
        }
        check_call(d, w, x, toks[k], (k + n_out) % 2, whole);
        free(x);
    }
    for (int i = 0; i < N; i++) {
        d->ops->unload(d, &w[i]);
        free((void *)(uintptr_t)w[i].raw);
    }
}

/* Each type; a row may have fewer blocks than a group has warps, and as many as several rounds
 * take.
 */
START_TEST(products)
{
    static const int ins[] = { 32, 96, 544, 896, 2080, 256, 512, 2304 }, outs[] = { 1, 16, 33 };
    static const int toks[] = { 1, 5, 8, 9, 33 };
    const enum dtype t = (enum dtype)(FIRST + _i);
    struct device *d = open_as("");

    for (int c = 0; c < 8; c++)
        if (ins[c] % cb_dtype[t].block == 0)
            check_shape(d, t, ins[c], outs[c % 3], toks + (c % 2 ? 2 : 0), 3, 0);
    cb_device_close(d);
}
END_TEST

/* Numbers x[n_tok][n] on the device and in the host's memory */
struct both {
    float *on, *host;
};

static struct both both_of(struct device *d, size_t n)
{
    struct both b = { cb_device_alloc(d, n, sizeof(float)), floats(n) };

    ck_assert_ptr_nonnull(b.on);
    cb_device_copy(d, b.on, b.host, n * sizeof(float));
    return b;
}

/* y: memory of the device, since a result of the host's would end what the device has prepared */
static void check_product(struct device *d, const struct weight *w, const float *on,
                          const float *host, int n_tok, float *y, const char *after)
{
    const size_t n = (size_t)n_tok * (size_t)w->n_out;
    float *got = poisoned(n), *want = poisoned(n);
    struct weight plain = *w;
    struct mm m = { w, NULL, y, w->n_out, 0, 16 };
    char what[96];

    d->ops->matmul(d, &m, 1, on, n_tok);
    cb_device_copy(d, got, y, n * sizeof(float));
    plain.packed = NULL;
    m = (struct mm){ &plain, NULL, want, w->n_out, 0, 16 };
    ref->ops->matmul(ref, &m, 1, host, n_tok);
    snprintf(what, sizeof what, "%d tokens of %d numbers after %s", n_tok, w->n_in, after);
    same(what, got, want, n, 1e-4f);
    free(got), free(want);
}

/* Products of what a norm and a gate leave, and of what others then write over it: a device may
 * have prepared the first for products, but not the second. */
static void check_rewritten(struct device *d, enum act_kind act, int n, int n_tok)
{
    const size_t all = (size_t)n * (size_t)n_tok;
    struct weight w = weight_of(DT_Q8_0, n, 5, 0);
    struct both x = both_of(d, all), y = both_of(d, all), norm = both_of(d, (size_t)n);
    struct both to = both_of(d, 5 * (size_t)n_tok);

    ck_assert_ok(d->ops->load(d, &w));
    check_product(d, &w, y.on, y.host, n_tok, to.on, "a copy");
    d->ops->rmsnorm(d, x.on, norm.on, 1e-5f, n, 1, n_tok, n, y.on, n);
    ref->ops->rmsnorm(ref, x.host, norm.host, 1e-5f, n, 1, n_tok, n, y.host, n);
    check_product(d, &w, y.on, y.host, n_tok, to.on, "a norm");
    d->ops->add(d, y.on, x.on, 0.5f, all);
    ref->ops->add(ref, y.host, x.host, 0.5f, all);
    check_product(d, &w, y.on, y.host, n_tok, to.on, "a sum");
    d->ops->glu(d, act, y.on, x.on, n, n_tok);
    ref->ops->glu(ref, act, y.host, x.host, n, n_tok);
    check_product(d, &w, y.on, y.host, n_tok, to.on, "a gate");
    cb_device_copy(d, y.on, x.host, all * sizeof(float));
    check_product(d, &w, y.on, x.host, n_tok, to.on, "another copy");
    d->ops->rmsnorm(d, y.on, norm.on, 1e-5f, n, 1, n_tok, n, y.on, n);
    ref->ops->rmsnorm(ref, x.host, norm.host, 1e-5f, n, 1, n_tok, n, x.host, n);
    check_product(d, &w, y.on, x.host, n_tok, to.on, "a norm in its place");
    for (int i = 0; i < 3; i++) { /* the device may keep a weight of the host's; it changes */
        d->ops->rmsnorm(d, y.on, norm.host, 1e-5f, n, 1, n_tok, n, y.on, n);
        ref->ops->rmsnorm(ref, x.host, norm.host, 1e-5f, n, 1, n_tok, n, x.host, n);
        check_product(d, &w, y.on, x.host, n_tok, to.on, "a norm by the host's weight");
        norm.host[n / 2] += (float)i;
    }
    cb_device_free(d, x.on), cb_device_free(d, y.on);
    cb_device_free(d, norm.on), cb_device_free(d, to.on);
    free(x.host), free(y.host), free(norm.host), free(to.host);
    d->ops->unload(d, &w);
    free((void *)(uintptr_t)w.raw);
    ck_assert_ok(cb_device_wait(d));
}

START_TEST(rewritten)
{
    static const int ns[] = { 32, 96, 4160, 14400, 33184, 16416 }, toks[] = { 3, 33, 1, 2, 2, 1 };
    static const enum act_kind acts[] = { ACT_SILU, ACT_SILU, ACT_GELU,
                                          ACT_SILU, ACT_SILU, ACT_SWIGLU_OAI };
    struct device *d = open_as("");

    ck_assert_int_ge(ref->ops->reserve(ref, 100, 33184, MOST_OUT, 1, 64, 64), 0);
    for (int i = 0; i < 6; i++)
        check_rewritten(d, acts[i], ns[i], toks[i]);
    cb_device_close(d);
}
END_TEST

/* Whole numbers and powers of two: no digit of a code, an activation or a sum may be lost. On CUDA
 * devices of both kinds. */
START_TEST(exact)
{
    static const int toks[] = { 1, 13, 61 };
    struct device *d = open_as(_i ? "capability=75" : "");

    check_shape(d, DT_Q8_0, 1056, 33, toks, 3, 1);
    cb_device_close(d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("codes");
    TCase *c = tcase_create("codes");

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_set_timeout(c, 300);
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_loop_test(c, products, 0, TYPES);
    tcase_add_loop_test(c, exact, 0, 1 + IS_CUDA);
    tcase_add_test(c, rewritten);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
