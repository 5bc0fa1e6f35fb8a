/* SPDX-License-Identifier: MIT */
/* check_gpu.c - an OpenCL or CUDA device: products of every element type, its limits and failures.
 */
#include <dirent.h>
#include <unistd.h>

#include "against_ref.h"
#include "device/limits.h"
#include "kit/blocks.h"
#include "kit/folder.h"
#include "kit/isa.h"
#include "kit/suite.h"
#include "par/affinity.h"

#define NAME (cb_isa[ISA_FROM])

static struct device *open_with(const struct device_want *want)
{
    const struct team_params team = { .n_threads = 2 };
    struct device *d;

    ck_assert_ok(cb_device_open_team(NAME, &team, want, &d));
    return d;
}

/* ---- products ---- */

static struct weight random_weight(enum dtype t, int n_in, int n_out)
{
    const size_t row = cb_row_bytes(t, n_in);
    struct weight w = { .name = "w", .type = t, .n_in = n_in, .n_out = n_out };
    uint8_t *raw = malloc(row * (size_t)n_out);

    for (int i = 0; t < DT_ENCODED && i < n_out; i++) {
        float *x = floats(n_in);
        cb_dtype[t].from_f32(x, raw + (size_t)i * row, n_in);
        free(x);
    }
    for (size_t i = 0; t >= DT_ENCODED && i < row * (size_t)n_out; i++)
        raw[i] = (uint8_t)below(256);
    for (size_t i = 0; t >= DT_ENCODED && i < row * (size_t)n_out; i += cb_dtype[t].block_bytes)
        cb_block_steps(t, raw + i, 0.05f, 0.1f);
    w.raw = raw;
    return w;
}

/* x and y lie in the host's memory, or on the device. Types that it cannot read are the
 * CPU's, which rounds activations. */
static void one_product(struct weight *w, int n_tok, int add, int bits, int on, float tolerance)
{
    const int stride = w->n_out + 3;
    const size_t n_x = (size_t)n_tok * w->n_in, n_y = (size_t)n_tok * stride;
    float *x = floats(n_x), *bias = floats(w->n_out), *y = floats(n_y), *want = copy(y, n_y);
    float *dx = x, *dy = y;
    struct mm m = { w, add ? NULL : bias, want, stride, add, bits };
    struct weight plain = *w;
    char what[96];

    plain.packed = NULL;
    m.w = &plain;
    ref->ops->matmul(ref, &m, 1, x, n_tok);
    if (on) {
        ck_assert_ptr_nonnull(dx = cb_device_alloc(dev, n_x, sizeof *dx));
        ck_assert_ptr_nonnull(dy = cb_device_alloc(dev, n_y, sizeof *dy));
        cb_device_copy(dev, dx, x, n_x * sizeof *x);
        cb_device_copy(dev, dy, y, n_y * sizeof *y);
    }
    m.w = w;
    m.y = dy;
    dev->ops->matmul(dev, &m, 1, dx, n_tok);
    if (on) {
        cb_device_copy(dev, y, dy, n_y * sizeof *y);
        cb_device_free(dev, dx), cb_device_free(dev, dy);
    }
    ck_assert_ok(cb_device_wait(dev));
    snprintf(what, sizeof what, "%s %d x %d, %d tokens, add %d, %d bits", cb_dtype[w->type].name,
             w->n_out, w->n_in, n_tok, add, bits);
    same(what, y, want, n_y, tolerance);
    free(x), free(bias), free(y), free(want);
}

/* Prompts on CUDA devices multiply halves, but for weights of F32. */
static float rounding(enum dtype t, int bits)
{
    return IS_CUDA && !bits && t != DT_F32 ? 1e-2f : 2e-5f;
}

START_TEST(products)
{
    static const int outs[] = { 1, 33, 70 }, toks[] = { 1, 3, 8, 9, 40 };
    const enum dtype t = (enum dtype)_i;

    dev = open_with(NULL);
    for (int o = 0; o < 3; o++) {
        struct weight w = random_weight(t, cb_dtype[t].block == 1 ? 77 : 512, outs[o]);
        ck_assert_msg(!dev->ops->load(dev, &w), "%s", cb_error());
        for (int n = 0; n < 5; n++) {
            const int bits = t >= DT_ENCODED || (toks[n] < 9 && n % 3) ? 16 : 0;
            one_product(&w, toks[n], n % 2, bits, (n + o) % 2,
                        t < DT_ENCODED ? rounding(t, bits) : 2e-2f);
        }
        dev->ops->unload(dev, &w);
        free((void *)(uintptr_t)w.raw);
    }
}
END_TEST

/* Whole numbers, and each token's multiplied by a power of two of its own: products of halves are
 * exact as well, however large or small. On CUDA devices of both kinds. */
START_TEST(exact_products)
{
    static const int ins[] = { 77, 160 }, outs[] = { 1, 130, 257 }, toks[] = { 1, 40, 64, 131 };

    setenv("PRETEND_CUDA", _i ? "capability=75" : "", 1);
    dev = open_with(NULL);
    for (int c = 0; c < 2 * 3 * 4; c++) {
        const int n_in = ins[c % 2], n_out = outs[c / 2 % 3], n_tok = toks[c / 6];
        const size_t n_w = (size_t)n_in * n_out, n_x = (size_t)n_tok * n_in;
        const size_t n_y = (size_t)n_tok * n_out;
        float *x = floats(n_x), *y = poisoned(n_y), *want = poisoned(n_y), *row = floats(n_in);
        struct weight w = { .name = "w", .type = DT_F16, .n_in = n_in, .n_out = n_out }, plain;
        uint8_t *raw = malloc(2 * n_w);
        struct mm m = { &plain, NULL, want, n_out, 0, 0 };
        for (int o = 0; o < n_out; o++) {
            for (int i = 0; i < n_in; i++)
                row[i] = (float)(below(9) - 4);
            cb_dtype[DT_F16].from_f32(row, raw + (size_t)o * 2 * n_in, n_in);
        }
        for (size_t i = 0; i < n_x; i++)
            x[i] = ldexpf((float)(below(17) - 8), (int)(i / (size_t)n_in) % 61 - 30);
        w.raw = raw;
        plain = w;
        ref->ops->matmul(ref, &m, 1, x, n_tok);
        ck_assert_msg(!dev->ops->load(dev, &w), "%s", cb_error());
        m = (struct mm){ &w, NULL, y, n_out, 0, 0 };
        dev->ops->matmul(dev, &m, 1, x, n_tok);
        ck_assert_ok(cb_device_wait(dev));
        same("exact products", y, want, n_y, 0.0f);
        dev->ops->unload(dev, &w);
        free(x), free(y), free(want), free(row), free(raw);
    }
    unsetenv("PRETEND_CUDA");
}
END_TEST

/* A token's product has the same bits in any batch of decoded tokens, and in any chunk of a prompt.
 */
START_TEST(batches)
{
    enum { OUT = 70, TOK = 75 };
    static const int steps[] = { 1, 7, 8, 9, 64 };
    const enum dtype t = (enum dtype)(_i / 2);
    const int n_in = cb_dtype[t].block == 1 ? 77 : 256;
    struct weight w = random_weight(t, n_in, OUT);
    float *x = floats((size_t)TOK * n_in), *all = poisoned(TOK * OUT), *part = poisoned(TOK * OUT);
    struct mm m = { &w, NULL, all, OUT, 0, _i % 2 ? 16 : 0 };

    dev = open_with(NULL);
    ck_assert(!dev->ops->load(dev, &w));
    dev->ops->matmul(dev, &m, 1, x, TOK);
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
        for (int at = 0; at < TOK; at += steps[s]) {
            const int n = steps[s] < TOK - at ? steps[s] : TOK - at;
            m.y = part;
            dev->ops->matmul(dev, &m, 1, x + at * n_in, n);
            ck_assert_msg(!memcmp(part, all + at * OUT, (size_t)(n * OUT) * sizeof *part),
                          "%s, %d bits: %d tokens from %d on", cb_dtype[t].name, m.bits, n, at);
        }
    ck_assert_ok(cb_device_wait(dev));
    dev->ops->unload(dev, &w);
    free(x), free(all), free(part), free((void *)(uintptr_t)w.raw);
}
END_TEST

/* Weights beyond the working set are the CPU's; many tokens are multiplied here all the same. */
START_TEST(weights_that_do_not_fit)
{
    enum { N = 6 };
    const struct device_want want = { .working_set = 4 << 20 };
    struct weight w[N];

    dev = open_with(&want);
    ck_assert_int_ge(dev->ops->reserve(dev, 100, 512, 1000, 4, 64, 64), 0);
    for (int i = 0; i < N; i++) {
        w[i] = random_weight(DT_Q8_0, 512, 1000); /* 0.5 MiB each */
        ck_assert_msg(!dev->ops->load(dev, &w[i]), "%s", cb_error());
    }
    ck_assert_uint_lt(cb_device_traffic(dev).weights_bytes, 6 * cb_row_bytes(DT_Q8_0, 512) * 1000);
    for (int i = 0; i < N; i++) {
        /* the CPU rounds activations to 8 bits, so only products on the device are as exact */
        one_product(&w[i], 100, 0, 0, 0, rounding(DT_Q8_0, 0));
        ck_assert_uint_le(cb_device_traffic(dev).peak_bytes, want.working_set);
    }
    for (int i = 0; i < N; i++) {
        dev->ops->unload(dev, &w[i]);
        free((void *)(uintptr_t)w[i].raw);
    }
    ck_assert_uint_eq(cb_device_traffic(dev).weights_bytes, 0);
}
END_TEST

/* ---- failures ---- */

/* The last error names the device. */
static void said(const char *what)
{
    char text[64];

    snprintf(text, sizeof text, "device %s%s", NAME, what);
    ck_assert_msg(strstr(cb_error(), text), "%s", cb_error());
}

START_TEST(too_much_memory)
{
    const struct device_want want = { .working_set = 4 << 20 };
    void *p;

    dev = open_with(&want);
    ck_assert_ptr_null(cb_device_alloc(dev, 5, 1 << 20));
    said(":0: out of memory");
    ck_assert_ptr_nonnull(p = cb_device_alloc(dev, 3, 1 << 20)); /* it still works */
    cb_device_free(dev, p);
    ck_assert_uint_le(cb_device_traffic(dev).peak_bytes, want.working_set);
}
END_TEST

/* An operand that finds no room: the wait says so, once, and the device goes on. */
START_TEST(an_op_that_fails)
{
    const struct device_want want = { .working_set = 1 << 20 };
    const size_t n = 1 << 20;
    float *x = floats(n), *y = floats(n);

    dev = open_with(&want);
    dev->ops->add(dev, y, x, 1, n);
    ck_assert_int_eq(cb_device_wait(dev), CB_ENOMEM);
    said(":0");
    ck_assert_int_eq(cb_device_wait(dev), 0);
    x[0] = 1, y[0] = 2;
    dev->ops->add(dev, y, x, 1, 1);
    ck_assert_int_eq(cb_device_wait(dev), 0);
    ck_assert_float_eq(y[0], 3);
    free(x), free(y);
}
END_TEST

START_TEST(refused)
{
    const struct team_params team = { .n_threads = 1 };
    const struct device_want little = { .working_set = 1000 };
    struct device *d;

    char name[32];

    snprintf(name, sizeof name, "%s:99", NAME);
    ck_assert_int_eq(cb_device_open_team(name, &team, NULL, &d), CB_EARG);
    said(":99: there are");
    snprintf(name, sizeof name, "%s:x", NAME);
    ck_assert_int_eq(cb_device_open_team(name, &team, NULL, &d), CB_EARG);
    ck_assert_int_eq(cb_device_open_team(NAME, &team, &little, &d), CB_EARG);
    ck_assert_int_eq(cb_device_open_team("cpu", &team, &little, &d), CB_EARG);
}
END_TEST

/* Rows of the bank, which threads of the host read while commands are queued */
struct reading {
    const void *rows; /* READ_ROWS of READ_HD halves */
    float *y;
};
enum { READ_ROWS = 64, READ_HD = 64 };

static void read_row(void *ctx, int i, int thread)
{
    const struct reading *r = ctx;

    (void)thread;
    dev->ops->kv_decode(dev, KV_F16, r->rows, &i, 1, READ_HD, r->y + (size_t)i * READ_HD);
}

START_TEST(read_by_threads)
{
    enum { N = READ_ROWS * READ_HD, QUEUED = 8 };
    float *x = floats(N), *want = poisoned(N), *there;
    uint16_t *rows = cb_guarded(N * sizeof *rows);

    ref->ops->kv_encode(ref, KV_F16, x, READ_ROWS, READ_HD, READ_HD, rows);
    ref->ops->kv_decode(ref, KV_F16, rows, NULL, READ_ROWS, READ_HD, want);
    dev = open_with(NULL);
    ck_assert_ptr_nonnull(there = cb_device_alloc(dev, N, sizeof *there));
    cb_device_copy(dev, there, x, N * sizeof *x);
    for (int round = 0; round < 100; round++) {
        struct reading r = { rows, poisoned(N) };
        for (int i = 0; i < QUEUED; i++)
            dev->ops->scale(dev, there, 1.0f, 0.0f, N);
        cb_par_for(dev->par, READ_ROWS, read_row, &r);
        ck_assert_ok(cb_device_wait(dev));
        same("kv_decode", r.y, want, N, 0.0f);
        free(r.y);
    }
    cb_device_free(dev, there);
    free(x), free(want), free(rows);
}
END_TEST

/* Limits are measured in whatever memory there is, all of which is given back. */
START_TEST(limits)
{
    const struct device_want want = { .working_set = _i ? 1 << 20 : 0 };
    const enum limit known[] = { LIMIT_READ, LIMIT_F32, LIMIT_IN, LIMIT_OUT, LIMIT_LAUNCH };
    double what[LIMIT_COUNT];
    int n = 0;

    dev = open_with(&want);
    ck_assert_ok(cb_device_limits(dev, what));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        ck_assert_msg(what[known[i]] > 0 && isfinite(what[known[i]]), "%s: %g",
                      cb_limit_name[known[i]], what[known[i]]);
    for (int l = 0; l < LIMIT_COUNT; l++)
        n += what[l] > 0;
    ck_assert_int_eq(n, 5);
    ck_assert_uint_eq(cb_device_traffic(dev).used_bytes, 0);
    ck_assert_uint_le(cb_device_traffic(dev).peak_bytes, cb_device_traffic(dev).limit_bytes);
}
END_TEST

/* What is compiled is kept; a damaged file counts as none. */
START_TEST(kernel_cache)
{
    const char *dir = cb_folder_make("kernels.tmp");
    const struct device_want want = { .cache_dir = dir };
    struct dirent *e;
    int n = 0;
    DIR *at;

    for (int round = 0; round < 3; round++) {
        float x = 1, y = 2;
        dev = open_with(&want);
        dev->ops->add(dev, &y, &x, 1, 1);
        ck_assert_float_eq(y, 3);
        cb_device_close(dev);
        dev = NULL;
        ck_assert_ptr_nonnull(at = opendir(dir));
        for (n = 0; (e = readdir(at));)
            if (strstr(e->d_name, ".bin")) {
                char path[512];
                n++;
                snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
                ck_assert(round != 1 || !truncate(path, 100));
                ck_assert(round != 2 || !unlink(path));
            }
        closedir(at);
        ck_assert_int_gt(n, 0);
    }
    cb_folder_remove();
}
END_TEST

int main(void)
{
    Suite *s = suite_create(NAME);
    TCase *tc = tcase_create(NAME);

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, products, 0, DT_COUNT);
    tcase_add_loop_test(tc, exact_products, 0, IS_CUDA ? 2 : 1);
    tcase_add_loop_test(tc, batches, 0, 2 * DT_COUNT);
    tcase_add_test(tc, weights_that_do_not_fit);
    tcase_add_test(tc, too_much_memory);
    tcase_add_test(tc, an_op_that_fails);
    tcase_add_test(tc, refused);
    tcase_add_test(tc, read_by_threads);
    tcase_add_loop_test(tc, limits, 0, 2);
    if ((int)ISA_FROM == CB_ISA_OPENCL)
        tcase_add_test(tc, kernel_cache);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
