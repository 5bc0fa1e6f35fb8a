/* SPDX-License-Identifier: MIT */
/* check_planes.c - keys in two planes: the codes beside the formula in doubles, attention and
 * scores on every ISA beside rows of the decoded keys, and stores that grow, are cut and grow
 * again. */
#include "against_ref.h"

#include "bank/store.h"
#include "bank/store_areas.h"
#include "bank/store_planes.h"
#include "bank/store_rows.h"
#include "bank/store_sketch.h"
#include "device/kivi.h"
#include "device/planes.h"
#include "kit/tiny.h"
#include "kit/toy.h"

/* ---- codes ---- */

/* Channels of their own ranges, one far from 0, one constant; token 0 is an outlier */
static float *keys(int n, int hd)
{
    float *k = floats((size_t)n * (size_t)hd);

    for (int j = 0; j < n; j++)
        for (int c = 0; c < hd; c++) {
            float *x = &k[j * hd + c];
            *x = c % 13 == 5 ? 100 + *x : c % 7 == 2 ? 9 * *x : c % 11 == 3 ? 3.25f : *x;
            *x *= j ? 1 : 20;
        }
    return k;
}

static uint16_t *halves(const float *x, size_t n)
{
    uint16_t *h = cb_guarded(n * sizeof *h);

    for (size_t i = 0; i < n; i++)
        h[i] = cb_f32_to_f16(x[i]);
    return h;
}

/* One token's number in channel c, as planes.h has it */
static double by_formula(int bits, int hd, const uint8_t *block, int token, const uint8_t *row,
                         int c, double *part)
{
    float step[KV_MAX_HD], min[KV_MAX_HD];
    int shift;
    const size_t at = cb_sketch_at(bits, hd, token, c, &shift);
    const int code = block[4 * hd + (int)at] >> shift & ((1 << bits) - 1), n = 1 << (8 - bits);
    const uint8_t *of = row + c / 16 * (bits == 2 ? 12 : 8);
    int rest = of[c % 16 / 8 * 4 + c % 4] >> c / 4 % 2 * 4 & 15;

    cb_sketch_steps(hd, block, step, min);
    rest += bits == 2 ? (of[8 + c % 4] >> c % 16 / 4 * 2 & 3) << 4 : 0;
    *part = (double)step[c] / n;
    return (double)min[c] + (double)step[c] * (code - 0.5 + (rest + 0.5) / n);
}

START_TEST(codes_are_those_of_the_formula)
{
    static const int head[] = { 64, 128, 16, 80, 256 };

    for (int i = 0; i < 10; i++) {
        const int hd = head[i / 2], bits = i % 2 ? 4 : 2;
        float *k = keys(SKETCH_BLOCK, hd), step[KV_MAX_HD], min[KV_MAX_HD];
        uint16_t *h = halves(k, (size_t)(SKETCH_BLOCK * hd)), y[KV_MAX_HD];
        uint8_t *block = cb_guarded(cb_sketch_bytes(bits, hd));
        uint8_t *row = cb_guarded(cb_planes_row_bytes(bits, hd));
        ref->ops->sketch(ref, KV_F16, h, 1, hd, bits, 1, block);
        cb_sketch_steps(hd, block, step, min);
        for (int j = 0; j < SKETCH_BLOCK; j++) {
            cb_planes_put(bits, hd, k + j * hd, j, step, min, block, row);
            cb_planes_get(bits, hd, block, j, row, y);
            for (int c = 0; c < hd; c++) {
                double part;
                const double want = by_formula(bits, hd, block, j, row, c, &part);
                const double got = (double)cb_f16_to_f32(y[c]), half = fabs(want) * 0x1p-11;
                ck_assert_msg(fabs(got - want) <= half + 1e-7, "%g, not %g", got, want);
                if (j) /* the outlier gets the nearest end */
                    ck_assert_msg(fabs(got - (double)k[j * hd + c]) <= part / 2 + 2 * half + 1e-6,
                                  "bits %d, token %d, channel %d: %g, not %g; part %g", bits, j, c,
                                  got, (double)k[j * hd + c], part);
            }
        }
    }
}
END_TEST

/* ---- attention ---- */

enum { N_KV = 2, N = 700, SPAN = N / SKETCH_BLOCK * SKETCH_BLOCK };

/* The same keys in planes and, as they decode, in rows */
struct pair {
    struct kv_kivi planes[N_KV];
    struct kv_run in_planes[N_KV], in_rows[N_KV];
};

static void fill(struct pair *p, int kv, int hd, int bits, int lo, enum kv_type t_v)
{
    const float *k = keys(N, hd), *v = floats((size_t)(N * hd));
    const size_t bytes = cb_planes_row_bytes(bits, hd);
    uint16_t *rows = halves(k, (size_t)(N * hd)), *other = halves(k, (size_t)(N * hd));
    uint8_t *block = cb_guarded(SPAN / SKETCH_BLOCK * cb_sketch_bytes(bits, hd));
    uint8_t *rest = cb_guarded((size_t)(SPAN - lo) * bytes);
    char *values = cb_guarded(N * cb_kv_row_bytes(t_v, hd));
    float step[KV_MAX_HD], min[KV_MAX_HD];

    ref->ops->sketch(ref, KV_F16, rows, SPAN / SKETCH_BLOCK, hd, bits, lo, block);
    ref->ops->kv_encode(ref, t_v, v, N, hd, hd, values);
    for (int j = lo; j < SPAN; j++) {
        const uint8_t *b = block + (size_t)(j / SKETCH_BLOCK) * cb_sketch_bytes(bits, hd);
        uint8_t *to = rest + (size_t)(j - lo) * bytes;
        cb_sketch_steps(hd, b, step, min);
        cb_planes_put(bits, hd, k + j * hd, j % SKETCH_BLOCK, step, min, b, to);
        cb_planes_get(bits, hd, b, j % SKETCH_BLOCK, to, rows + j * hd);
        memset(other + j * hd, 0xff, (size_t)hd * sizeof *other); /* nobody reads it */
    }
    p->planes[kv] = (struct kv_kivi){ .bits_k = KIVI_PLANES,
                                      .group_k = 1,
                                      .lo_k = lo,
                                      .n_k = SPAN,
                                      .k = rest,
                                      .plane = block,
                                      .plane_bits = bits };
    p->in_rows[kv] = (struct kv_run){ .k = rows, .v = values, .n = N };
    p->in_planes[kv] = (struct kv_run){ .k = other, .v = values, .n = N, .kivi = &p->planes[kv] };
}

/* Some slots, ascending: neighbours and far ones */
static int some(int32_t *idx)
{
    int n = 0;

    for (int j = 0; j < N; j += below(8) ? 1 + below(9) : 1)
        idx[n++] = j;
    return n;
}

static void equal(const char *what, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(a[i] == b[i], "%s: [%zu] is %.9g, with rows %.9g", what, i, (double)a[i],
                      (double)b[i]);
}

/* Attention and scores of n_tok queries; a prompt, or tokens that read slots idx or all */
static void compare(struct device *d, struct pair *p, int hd, int group, int n_tok, int causal,
                    const int32_t *idx, int n, enum kv_type t_v)
{
    const int n_head = N_KV * group;
    const size_t n_out = (size_t)(n_tok * n_head * hd), n_lse = (size_t)(n_tok * n_head);
    float *out[2], *lse[2], *score[2], *q = floats(n_out);

    for (int i = 0; i < 2; i++) {
        struct kv_run run[N_KV];
        struct attn a = { .n_tok = n_tok,
                          .n_head = n_head,
                          .n_kv = N_KV,
                          .hd = hd,
                          .scale = 1 / sqrtf((float)hd) / 20,
                          .causal = causal,
                          .type_k = KV_F16,
                          .type_v = t_v,
                          .run = run,
                          .q = q,
                          .q_stride = n_head * hd,
                          .out = out[i] = poisoned(n_out),
                          .lse = lse[i] = poisoned(n_lse) };
        struct score s;
        for (int h = 0; h < N_KV; h++) {
            run[h] = i ? p->in_rows[h] : p->in_planes[h];
            run[h].idx = idx;
            run[h].n = n;
        }
        d->ops->attention(d, &a, 1);
        score[i] = floats((size_t)(N_KV * N));
        memset(score[i], 0, (size_t)(N_KV * N) * sizeof *score[i]);
        s = (struct score){ .a = a, .per = group, .out = score[i], .out_stride = N };
        d->ops->score(d, &s);
    }
    equal("out", out[0], out[1], n_out);
    equal("lse", lse[0], lse[1], n_lse);
    equal("scores", score[0], score[1], (size_t)(N_KV * N));
}

/* from: where a sample of the cases begins */
static void compare_all(struct device *d, int from)
{
    static const int head[] = { 64, 128, 80, 16, 96, 32 };

    for (int c = from % cb_test_nth(); c < 12; c += cb_test_nth()) {
        const int hd = head[c % 6], group = c % 3 == 1 ? 7 : 2;
        const enum kv_type t_v = c % 4 == 1 && hd % 32 == 0 ? KV_Q8_0 : KV_F16;
        int32_t idx[N];
        struct pair p;
        const int n = some(idx);
        for (int kv = 0; kv < N_KV; kv++)
            fill(&p, kv, hd, c / 6 ? 4 : 2, c % 2 ? 4 : 0, t_v);
        compare(d, &p, hd, group, 1, 0, idx, n, t_v);
        compare(d, &p, hd, group, 1, 0, NULL, N, t_v);
        compare(d, &p, hd, group, 37, 1, NULL, N, t_v);
    }
}

START_TEST(attention_is_that_over_the_decoded_keys)
{
    if (open_isa(_i, 2))
        compare_all(dev, _i);
}
END_TEST

START_TEST(the_reference_decodes_the_same_keys)
{
    compare_all(ref, 0);
}
END_TEST

/* ---- stores ---- */

enum { HD = 32, CAP = 600, OUT = 4 };

static void open_store(struct store *s, int bits)
{
    ck_assert_ok(cb_store_open(s, N_KV, HD, CAP, KV_F16, KV_Q8_0, 0));
    cb_store_may_sketch(s, bits, SKETCH_BLOCK, OUT);
    ck_assert_ok(cb_planes_open(s, (struct kivi_form){ 0 }));
}

/* Tokens from..to-1 of k[][N_KV * HD], in pieces */
static void grow(struct store *s, const float *k, int from, int to, int piece)
{
    for (int n; from < to; from += n) {
        n = to - from < piece ? to - from : piece;
        const float *x = k + from * N_KV * HD;
        ck_assert_ok(cb_store_append(s, ref, x, x, N_KV * HD, n, from));
        ck_assert_ok(cb_store_sketch(s, ref));
        cb_planes_advance(s, ref);
    }
}

static void get_all(const struct store *s, float *x)
{
    for (int h = 0; h < N_KV; h++)
        for (int j = 0; j < s->n[h]; j++)
            cb_store_get(s, ref, h, 0, j, x + (h * CAP + j) * HD);
}

START_TEST(a_store_grows_is_cut_and_grows_again)
{
    const int bits = _i ? 4 : 2, n = 500;
    float *k = keys(n, N_KV * HD), *x = poisoned(N_KV * CAP * HD), *y = poisoned(N_KV * CAP * HD);
    struct store a, b;

    open_store(&a, bits);
    open_store(&b, bits);
    grow(&a, k, 0, n, n);
    grow(&b, k, 0, n, 1);
    ck_assert_int_eq(a.kivi->head[1].n_k, 384);
    ck_assert_int_eq(a.kivi->head[1].lo_k, OUT);
    get_all(&a, x);
    get_all(&b, y);
    for (int h = 0; h < N_KV; h++)
        equal("in pieces", x + h * CAP * HD, y + h * CAP * HD, (size_t)(n * HD));
    for (int h = 0; h < N_KV; h++) /* rows as they were, and planes near them */
        for (int j = 0; j < n * HD; j++) {
            const float was = k[(j / HD * N_KV + h) * HD + j % HD], is = x[h * CAP * HD + j];
            const int slot = j / HD, row = slot < OUT || slot >= 384;
            ck_assert_msg(fabsf(was - is) <= (row ? 0.001f : 0.05f) * (1 + fabsf(was)),
                          "slot %d: %g, not %g", slot, (double)is, (double)was);
        }
    ck_assert_uint_eq(cb_store_bytes(&a), N_KV * cb_store_bytes_of(&a, 0, n));
    for (int cut = 400; cut; cut = cut > 300 ? 300 : cut > 128 ? 128 : cut > 2 ? 2 : 0) {
        cb_store_cut(&a, cut);
        ck_assert_int_eq(a.kivi->head[0].n_k, cut < 384 ? cut / 128 * 128 : 384);
        ck_assert_uint_eq(cb_store_bytes(&a), N_KV * cb_store_bytes_of(&a, 0, cut));
        get_all(&a, y);
        for (int h = 0; h < N_KV; h++) /* a block that is opened loses nothing */
            equal("cut", y + h * CAP * HD, x + h * CAP * HD, (size_t)(cut * HD));
    }
    cb_store_cut(&a, 0);
    ck_assert_uint_eq(cb_store_bytes(&a), 0);
    grow(&a, k, 0, n, 100);
    get_all(&a, y);
    for (int h = 0; h < N_KV; h++)
        equal("again", x + h * CAP * HD, y + h * CAP * HD, (size_t)(n * HD));
    cb_store_close(&a);
    cb_store_close(&b);
}
END_TEST

/* Counts of a file that would lead outside the planes are refused. */
START_TEST(hostile_counts_are_refused)
{
    enum { MAP_KEYS = 6, N_STORE = 8, BITS = 6, LO = 7, N_K = 9, ROWS = 11 };
    static const struct {
        int at, value;
    } bad[] = { { MAP_KEYS, 1 },          { N_STORE + BITS, 0 },  { N_STORE + BITS, 2 },
                { N_STORE + LO, 0 },      { N_STORE + N_K, 300 }, { N_STORE + N_K, 512 },
                { N_STORE + ROWS, 0x100 } };
    const float *k = keys(500, N_KV * HD);
    int32_t count[64];
    struct store a, b;

    open_store(&a, 2);
    grow(&a, k, 0, 500, 500);
    ck_assert_int_le(cb_store_n_counts(&a), 64);
    cb_store_counts(&a, count);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int32_t c[64];
        memcpy(c, count, sizeof c);
        ck_assert_int_ne(c[bad[i].at], bad[i].value);
        c[bad[i].at] = bad[i].value;
        open_store(&b, 2);
        ck_assert_int_eq(cb_store_set_counts(&b, ref, c), CB_EFORMAT);
        cb_store_close(&b);
    }
    open_store(&b, 2);
    ck_assert_ok(cb_store_set_counts(&b, ref, count));
    ck_assert_uint_eq(cb_store_bytes(&a), cb_store_bytes(&b));
    cb_store_close(&a);
    cb_store_close(&b);
}
END_TEST

/* ---- sessions ---- */

static cb_model *tiny_model(void)
{
    struct tiny t = cb_tiny_small("qwen2");

    t.hd = HD;
    t.n_ctx = 512;
    return cb_toy_model(&t, "cpu", 2);
}

static int open_session(cb_model *m, const char *policy, const char *k, const char *v,
                        cb_session **s)
{
    const struct cb_session_params p = { .policy = policy, .type_k = k, .type_v = v };
    return cb_session_open(m, &p, s);
}

START_TEST(memory_is_as_planned)
{
    static const char *const policy[] = { "sieve:budget=40", "sieve:budget=40,dense=1",
                                          "sieve:budget=40,sink=70,bits=4" };
    cb_model *m = tiny_model();
    const int32_t *tok = cb_toy_text(m);

    for (int i = 0; i < 6; i++) {
        struct cb_memory plan, got;
        cb_session *s;
        ck_assert_ok(open_session(m, policy[i / 2], "planes", i % 2 ? "q8_0" : "kivi4:32", &s));
        ck_assert_ok(cb_session_prefill(s, tok, 250, NULL));
        for (int n = 1; n <= 140; n++) { /* two blocks fill */
            ck_assert_ok(cb_session_decode(s, tok[n]));
            ck_assert_ok(cb_session_plan(s, 250, n, &plan));
            cb_session_memory(s, &got);
            ck_assert_uint_eq(plan.kv_bytes, got.kv_bytes);
            ck_assert_uint_eq(plan.kv_peak_bytes, got.kv_peak_bytes);
            ck_assert_uint_eq(plan.kv_beside_bytes, got.kv_beside_bytes);
            ck_assert_msg(
                fabs((double)plan.kv_read_bytes_per_token / (double)got.kv_read_bytes_per_token -
                     1) < 0.01,
                "%s, %d: reads %llu, planned %llu", policy[i / 2], n,
                (unsigned long long)got.kv_read_bytes_per_token,
                (unsigned long long)plan.kv_read_bytes_per_token);
        }
        cb_session_close(s);
    }
    cb_model_close(m);
}
END_TEST

START_TEST(others_refuse_them)
{
    static const char *const bad[][4] = {
        { "full", "planes", "f16", "policy full: not with keys of type planes" },
        { "quest:dense=0", "planes", "f16", "policy quest: not with keys of type planes" },
        { "infinigen", "planes", "f16", "not with keys of type planes" },
        { "h2o:budget=64", "planes", "f16", "policy h2o: not with keys of type planes" },
        { "omnikv:filter=0", "planes", "f16", "not with keys of type planes" },
        { "sieve", "planes", "planes", "type of values planes: only keys are searched" },
        { "sieve", "f32", "kivi4:32", "kivi goes with" },
        { "sieve", "planes:4", "f16", "unknown type" },
    };
    cb_model *m = tiny_model();
    cb_session *s;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_ne(open_session(m, bad[i][0], bad[i][1], bad[i][2], &s), CB_OK);
        ck_assert_msg(strstr(cb_error(), bad[i][3]), "%s", cb_error());
    }
    ck_assert_ok(open_session(m, "sieve:dense=1", "planes", "f32", &s));
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("planes");
    TCase *c = tcase_create("all");

    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, codes_are_those_of_the_formula);
    tcase_add_loop_test(c, attention_is_that_over_the_decoded_keys, ISA_FROM, ISA_TO);
    tcase_add_test(c, the_reference_decodes_the_same_keys);
    tcase_add_loop_test(c, a_store_grows_is_cut_and_grows_again, 0, 2);
    tcase_add_test(c, hostile_counts_are_refused);
    tcase_add_test(c, memory_is_as_planned);
    tcase_add_test(c, others_refuse_them);
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    return cb_suite_run(suite);
}
