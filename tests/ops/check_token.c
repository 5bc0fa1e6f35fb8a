/* SPDX-License-Identifier: MIT */
/* check_token.c - a decoded token's attention on CUDA devices of both kinds, over rows of 16 bits
 * and q8_0, against the reference: sizes of heads, lengths, windows, caps, chosen slots, rows that
 * are missing on the device, and logits that stay for the host. */
#include "against_ref.h"

enum { MOST_KV = 3 };

/* A call and what it reads */
struct input {
    struct attn a;
    struct kv_run run[MOST_KV];
    void *k[MOST_KV], *v[MOST_KV];
    int32_t *idx;
    float *q;
    size_t slots;
};

/* Rows of one KV head: numbers differ in size from block to block, channel 3 has an outlier. */
static void *rows_of(enum kv_type t, size_t n, int hd, float scale)
{
    float *x = floats(n * (size_t)hd);
    void *rows = cb_guarded(cb_kv_row_bytes(t, hd) * n);

    for (size_t i = 0; i < n * (size_t)hd; i++)
        x[i] *= scale * (i % 97 == 0 ? 8.0f : i / 32 % 3 ? 1.0f : 0.1f);
    for (size_t i = 0; i < n; i++)
        x[i * (size_t)hd + 3] += 4.0f * scale;
    ref->ops->kv_encode(ref, t, x, (int)n, hd, hd, rows);
    free(x);
    return rows;
}

/* scale: of values */
static void make_input(struct input *in, const struct attn *form, int n, int chosen, float scale)
{
    struct attn *a = &in->a;

    *a = *form;
    a->n_tok = 1;
    a->scale = 1.0f / sqrtf((float)a->hd);
    a->q_stride = a->n_head * a->hd;
    a->q = in->q = floats((size_t)a->q_stride);
    for (int i = 0; i < a->q_stride; i++)
        in->q[i] *= 3.0f;
    in->slots = (size_t)(chosen ? 2 * n + 2 : n);
    in->idx = chosen ? ints((size_t)n) : NULL;
    for (int j = 0; chosen && j < n; j++)
        in->idx[j] = 2 * j + below(2);
    for (int h = 0; h < a->n_kv; h++) {
        in->k[h] = rows_of(a->type_k, in->slots, a->hd, 1.0f);
        in->v[h] = rows_of(a->type_v, in->slots, a->hd, scale);
        in->run[h] = (struct kv_run){
            .k = in->k[h], .v = in->v[h], .idx = in->idx, .n = n > 4 && h ? n - 3 : n
        };
    }
    a->run = in->run;
}

static void free_input(struct input *in)
{
    for (int h = 0; h < in->a.n_kv; h++)
        free(in->k[h]), free(in->v[h]);
    free(in->idx), free(in->q);
}

static void watch_rows(struct input *in, int on)
{
    const struct device_memory *m = dev->ops->memory;

    for (int h = 0; h < in->a.n_kv; h++) {
        if (!on) {
            m->unwatch(dev, in->k[h]);
            m->unwatch(dev, in->v[h]);
            continue;
        }
        ck_assert_int_eq(
            m->watch(dev, in->k[h], cb_kv_row_bytes(in->a.type_k, in->a.hd), in->slots), 0);
        ck_assert_int_eq(
            m->watch(dev, in->v[h], cb_kv_row_bytes(in->a.type_v, in->a.hd), in->slots), 0);
    }
}

/* What a device attends to, as parts of `scale` */
static void attend(struct device *d, const struct attn *form, float scale, float *out, float *lse)
{
    struct attn a = *form;

    a.out = out;
    a.lse = lse;
    d->ops->attention(d, &a, 1);
    ck_assert_ok(cb_device_wait(d));
    for (int i = 0; i < a.n_head * a.hd; i++)
        out[i] /= scale;
}

/* The device's attention as the reference's */
static void compare(const struct input *in, float scale, float tolerance)
{
    const struct attn *a = &in->a;
    const size_t n = (size_t)a->n_head * (size_t)a->hd;
    float *out = poisoned(n), *lse = poisoned(a->n_head);
    float *want = poisoned(n), *want_lse = poisoned(a->n_head);
    char what[160];

    snprintf(what, sizeof what, "%s/%s n %d head %d/%d hd %d window %d cap %g chosen %d scale %g",
             cb_kv_type[a->type_k].name, cb_kv_type[a->type_v].name, in->run[0].n, a->n_head,
             a->n_kv, a->hd, a->window, (double)a->softcap, in->idx != NULL, (double)scale);
    attend(dev, a, scale, out, lse);
    attend(ref, a, scale, want, want_lse);
    same(what, out, want, n, tolerance);
    same(what, lse, want_lse, (size_t)a->n_head, tolerance);
    free(out), free(lse), free(want), free(want_lse);
}

static const enum kv_type types[][2] = { { KV_Q8_0, KV_Q8_0 }, { KV_F16, KV_F16 },
                                         { KV_BF16, KV_BF16 }, { KV_Q8_0, KV_F16 },
                                         { KV_F16, KV_Q8_0 },  { KV_BF16, KV_F16 } };
enum { TYPES = sizeof types / sizeof *types };
static const int q8_dims[] = { 64, 128, 32, 256, 96, 224 };
static const int lengths[] = { 1, 15, 16, 17, 64, 65, 128, 129, 300, 1300, 2300 };

/* Every other case is of q8_0 alone; 72 have all sizes of heads with all types. */
static struct attn form_of(int c)
{
    const int t = c % 2 ? 0 : (c / 2 + c / 12) % TYPES;
    struct attn f = { .n_kv = 1 + c % MOST_KV,
                      .hd = q8_dims[c / 2 % 6],
                      .window = c % 5 == 2 ? 1 + below(90) : 0,
                      .softcap = c % 7 == 3 ? 20.0f : 0.0f,
                      .type_k = types[t][0],
                      .type_v = types[t][1] };
    f.n_head = f.n_kv * (1 + below(10));
    return f;
}

/* Values of any size keep their digits, though the steps of their blocks become halves. */
START_TEST(attention)
{
    static const float scales[] = { 1.0f, 1.0f, 1e-4f, 1.0f, 200.0f };

    setenv("PRETEND_CUDA", _i ? "capability=75" : "", 1);
    if (!open_isa(ISA_FROM, 2))
        return;
    for (int c = 0; c < cb_test_cases(72); c++) {
        const struct attn f = form_of(c);
        const float scale = scales[c % 5];
        struct input in;
        make_input(&in, &f, lengths[c % 11], !f.window && c % 4 == 1, scale);
        /* numbers of bf16 become halves, which may be small ones */
        compare(&in, scale, f.type_v == KV_BF16 && scale < 1.0f ? 1e-3f : 1e-5f);
        free_input(&in);
    }
    unsetenv("PRETEND_CUDA");
}
END_TEST

/* Rows of the bank, in pages of which some find no room; their entries are the CPU's, which rounds.
 */
START_TEST(missing_pages)
{
    const struct team_params team = { .n_threads = 2 };
    const struct device_want want = { .working_set = 1 << 20 };
    uint64_t hit = 0, host = 0;

    ck_assert_ok(cb_device_open_team(cb_isa[ISA_FROM], &team, &want, &dev));
    ck_assert_int_ge(dev->ops->reserve(dev, 1, 768, 768, 6, 128, 2500), 0);
    for (int c = 0; c < 8; c++) {
        const struct attn f = { .n_head = 6,
                                .n_kv = 2,
                                .hd = c % 4 < 2 ? 64 : 128,
                                .window = c / 4 ? 900 : 0,
                                .type_k = types[c % 2][0],
                                .type_v = types[c % 2][1] };
        struct input in;
        make_input(&in, &f, 2500, 0, 1.0f);
        watch_rows(&in, 1);
        for (int again = 0; again < 2; again++)
            compare(&in, 1.0f, 1e-4f);
        watch_rows(&in, 0);
        free_input(&in);
    }
    hit = cb_device_traffic(dev).hit_rows;
    host = cb_device_traffic(dev).host_rows;
    ck_assert_uint_gt(hit, 0);
    ck_assert_uint_gt(host, 0);
}
END_TEST

/* Chosen rows of the bank lie on the device, one after another or as the bank has them. */
START_TEST(chosen_rows_of_the_bank)
{
    if (!open_isa(ISA_FROM, 2))
        return;
    for (int c = 0; c < 6; c++) {
        const struct attn f = {
            .n_head = 4, .n_kv = 2, .hd = q8_dims[c % 3], .type_k = KV_Q8_0, .type_v = KV_Q8_0
        };
        struct input in;
        make_input(&in, &f, 400, 1, 1.0f);
        watch_rows(&in, 1);
        for (int again = 0; again < 3; again++) {
            compare(&in, 1.0f, 1e-5f);
            for (int j = 0; j < 400; j += 1 + below(9))
                in.idx[j] = 2 * j + below(2);
        }
        watch_rows(&in, 0);
        free_input(&in);
    }
}
END_TEST

/* Logits that the host wants */
START_TEST(logits)
{
    if (!open_isa(ISA_FROM, 2))
        return;
    for (int c = 0; c < 12; c++) {
        struct attn f = form_of(2 * c + 1);
        const int n = lengths[c % 11], stride = n + below(5), group = f.n_head / f.n_kv;
        const size_t all = (size_t)f.n_head * (size_t)stride;
        float *got = floats(all), *expected = copy(got, all), *out, *lse;
        struct score s = { .logit = 1, .out = expected, .out_stride = stride };
        struct input in;
        f.window = 0;
        make_input(&in, &f, n, 0, 1.0f);
        in.a.logit_stride = stride;
        out = poisoned((size_t)f.n_head * (size_t)f.hd);
        lse = poisoned((size_t)f.n_head);
        for (int h = 0; h < f.n_kv; h++) {
            in.run[h].logit = got + (size_t)(h * group) * (size_t)stride;
            for (int i = 0; i < group; i++)
                memset(expected + (size_t)(h * group + i) * (size_t)stride, 0,
                       (size_t)in.run[h].n * sizeof *expected);
        }
        attend(dev, &in.a, 1.0f, out, lse);
        s.a = in.a;
        s.a.lse = lse;
        ref->ops->score(ref, &s);
        same("logits", got, expected, all, 1e-5f);
        free(got), free(expected), free(out), free(lse);
        free_input(&in);
    }
}
END_TEST

/* A query has the same bits whatever stands beside it. */
START_TEST(queries_alone)
{
    if (!open_isa(ISA_FROM, 2))
        return;
    for (int c = 0; c < 9; c++) {
        const struct attn f = { .n_head = 7,
                                .n_kv = 1,
                                .hd = q8_dims[c / 3],
                                .type_k = types[c % 3][0],
                                .type_v = types[c % 3][1] };
        const size_t hd = (size_t)f.hd;
        float *out = poisoned(7 * hd), *one = poisoned(hd), lse[7], one_lse;
        struct input in;
        make_input(&in, &f, 333, 0, 1.0f);
        attend(dev, &in.a, 1.0f, out, lse);
        in.a.n_head = 1;
        for (int h = 0; h < 7; h++) {
            in.a.q = in.q + (size_t)h * hd;
            attend(dev, &in.a, 1.0f, one, &one_lse);
            ck_assert(!memcmp(one, out + (size_t)h * hd, hd * sizeof *one));
            ck_assert(!memcmp(&one_lse, &lse[h], sizeof one_lse));
        }
        free(out), free(one);
        free_input(&in);
    }
}
END_TEST

static const char *const kernels[] = { "attend_few_q8", "attend_few", "attend_few_bf16", "attend" };

/* Which kernel serves which types: another one may fail. */
START_TEST(kernel)
{
    const int t = _i / 4, k = _i % 4, serves = t < 3 ? t : 3;
    const struct attn f = {
        .n_head = 2, .n_kv = 1, .hd = 64, .type_k = types[t][0], .type_v = types[t][1]
    };
    float out[128], lse[2];
    struct input in;
    char fault[64];

    if (!cb_isa_pretends())
        return;
    snprintf(fault, sizeof fault, "fault=%s", kernels[k]);
    setenv("PRETEND_CUDA", fault, 1);
    if (!open_isa(ISA_FROM, 2))
        return;
    make_input(&in, &f, 40, 0, 1.0f);
    in.a.out = out;
    in.a.lse = lse;
    dev->ops->attention(dev, &in.a, 1);
    ck_assert_msg((cb_device_wait(dev) != 0) == (serves == k), "%s", kernels[k]);
    free_input(&in);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("token");
    TCase *tc = tcase_create("token");

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, attention, 0, 2);
    tcase_add_test(tc, missing_pages);
    tcase_add_test(tc, chosen_rows_of_the_bank);
    tcase_add_test(tc, logits);
    tcase_add_test(tc, queries_alone);
    tcase_add_loop_test(tc, kernel, 0, 4 * TYPES);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
