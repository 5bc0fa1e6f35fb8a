/* SPDX-License-Identifier: MIT */
/* check_gpu.c - an OpenCL or CUDA device: products of every element type, its limits and failures,
 * and sessions whose rows are all mirrored, partly, or hardly. */
#include <dirent.h>
#include <unistd.h>

#include "against_ref.h"
#include "attention/chooser.h"
#include "device/limits.h"
#include "engine/session.h"
#include "kit/blocks.h"
#include "kit/folder.h"
#include "kit/isa.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"
#include "model/weights.h"
#include "par/affinity.h"

#define NAME (cb_isa[ISA_FROM])

static struct device *open_with(const struct device_want *want)
{
    const struct team_params team = { .n_threads = 2 };
    struct device *d;

    ck_assert_msg(!cb_device_open_team(NAME, &team, want, &d), "%s", cb_error());
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
    ck_assert_msg(!cb_device_wait(dev), "%s", cb_error());
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
        ck_assert_msg(!cb_device_wait(dev), "%s", cb_error());
        same("exact products", y, want, n_y, 0.0f);
        dev->ops->unload(dev, &w);
        free(x), free(y), free(want), free(row), free(raw);
    }
    unsetenv("PRETEND_CUDA");
}
END_TEST

/* A token's 16-bit product has the same bits in any batch. */
START_TEST(batches)
{
    enum { IN = 512, OUT = 60, TOK = 19 };
    struct weight w = random_weight(DT_Q4_K, IN, OUT);
    float *x = floats(TOK * IN), *all = poisoned(TOK * OUT), *one = poisoned(OUT);
    struct mm m = { &w, NULL, all, OUT, 0, 16 };

    dev = open_with(NULL);
    ck_assert(!dev->ops->load(dev, &w));
    dev->ops->matmul(dev, &m, 1, x, TOK);
    m.y = one;
    for (int t = 0; t < TOK; t++) {
        dev->ops->matmul(dev, &m, 1, x + t * IN, 1);
        ck_assert_mem_eq(one, all + t * OUT, OUT * sizeof *one);
    }
    dev->ops->unload(dev, &w);
    free(x), free(all), free(one), free((void *)(uintptr_t)w.raw);
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
        ck_assert_msg(!cb_device_wait(dev), "%s", cb_error());
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
    ck_assert_msg(!cb_device_limits(dev, what), "%s", cb_error());
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

/* ---- sessions ---- */

enum { PROMPT = 900, SECOND = 70, ANSWER = 24 };

static struct cb_model *model_with(const char *family, const struct cb_model_params *p)
{
    struct tiny tiny = cb_tiny_small(family);

    tiny.hd = 32;
    tiny.n_ctx = 1100;
    return cb_toy_model_with(&tiny, p);
}

static struct cb_model *model_of(const char *family, const char *device, uint64_t working_set)
{
    return model_with(family, &(struct cb_model_params){
                                  .device = device, .n_threads = 2, .working_set = working_set });
}

/* What two layers chose for the last token */
static struct chosen {
    int layer;    /* 0: none */
    int n, fresh; /* slots; of them those that the token before did not have, but for its own */
    int32_t slot[1024];
} chosen[2];

static void note_chosen(const struct cb_session *s, struct chosen *c)
{
    int n = 0, i = 0;
    const int32_t *slot = c->layer ? cb_chooser_slots(&s->attention, c->layer, &n) : NULL;

    if (!slot)
        return;
    c->fresh = -1;
    for (int j = 0; j < n; j++) {
        while (i < c->n && c->slot[i] < slot[j])
            i++;
        c->fresh += i == c->n || c->slot[i] != slot[j];
    }
    memcpy(c->slot, slot, (size_t)n * sizeof *slot);
    c->n = n;
}

/* The logits after each feed */
static float *answer(struct cb_model *m, const char *policy, const char *prefill, const char *kv,
                     struct cb_memory *mem)
{
    const struct cb_session_params p = {
        .n_ctx = 1024, .chunk = 64, .type_k = kv, .type_v = kv, .policy = policy, .prefill = prefill
    };
    const int32_t *text = cb_toy_text(m);
    const size_t n_vocab = (size_t)cb_n_vocab(m);
    float *out = malloc((ANSWER + 2) * n_vocab * sizeof *out);
    int32_t all[PROMPT + SECOND];
    struct cb_session *s;

    for (int i = 0; i < PROMPT + SECOND; i++)
        all[i] = text[i % TOY_TEXT];
    cb_toy_ok(cb_session_open(m, &p, &s));
    cb_toy_ok(cb_session_prefill(s, all, PROMPT, NULL));
    memcpy(out, cb_session_logits(s), n_vocab * sizeof *out);
    cb_toy_ok(cb_session_prefill(s, all + PROMPT, SECOND, NULL));
    memcpy(out + n_vocab, cb_session_logits(s), n_vocab * sizeof *out);
    for (int i = 0; i < ANSWER; i++) {
        cb_toy_ok(cb_session_decode(s, text[i]));
        memcpy(out + (size_t)(i + 2) * n_vocab, cb_session_logits(s), n_vocab * sizeof *out);
        note_chosen(s, &chosen[0]);
        note_chosen(s, &chosen[1]);
    }
    cb_session_memory(s, mem);
    cb_session_close(s);
    return out;
}

/* The largest difference of two answers' logits, as a share of the largest logit */
static double apart(struct cb_model *m, const float *a, const float *b)
{
    const size_t n = (ANSWER + 2) * (size_t)cb_n_vocab(m);
    double most = 0, size = 0;

    for (size_t i = 0; i < n; i++) {
        ck_assert(isfinite(a[i]));
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        size = fmax(size, fabs((double)b[i]));
    }
    return most / size;
}

/* Where a difference in the last digits of halves would choose other slots, rows are f32. */
static const struct {
    const char *policy, *prefill, *kv;
} cases[] = {
    { "full", NULL, "f16" },
    { "full", NULL, "q8_0" },
    { "full", NULL, "f32" },
    { "full", NULL, "kivi4:32" },
    { "streamingllm:budget=256,positions=rolled", NULL, "bf16" },
    { "h2o:budget=256", NULL, "f16" },
    { "tova:budget=256", NULL, "f16" },
    { "snapkv:budget=256", NULL, "f16" },
    { "snapkv:budget=256", NULL, "kivi2:32" },
    { "d2o:budget=256", NULL, "f32" },
    { "pod:sinks=4,recent=64", NULL, "f16" },
    { "omnikv:filter=0,budget=128", NULL, "f16" },
    { "sieve:budget=128,recent=32", NULL, "f32" },
    { "quest:budget=128,dense=0", NULL, "f16" },
    { "infllm:local=16,sink=16,block=32,blocks=3", NULL, "f16" },
    { "full", "omnikv:filter=0,chunk=128,ratio=0.5", "f16" },
};

/* Each policy: all rows on the device, and a working set that holds few of them */
START_TEST(policies)
{
    static const char *const family[] = { "llama", "mistral" };

    for (int f = 0; f < 2; f++) {
        struct cb_model *plain = model_of(family[f], "ref", 0);
        struct cb_memory mem;
        float *want = answer(plain, cases[_i].policy, cases[_i].prefill, cases[_i].kv, &mem);
        ck_assert_uint_eq(mem.device_limit_bytes, 0);
        /* of CUDA's, whose driver pretends, each family and each set with half of the cases */
        for (int little = IS_CUDA && (_i + f) % 2; little < 2; little += 1 + IS_CUDA) {
            const uint64_t set = little ? 3 << 19 : 0;
            struct cb_model *m = model_of(family[f], NAME, set);
            float *got = answer(m, cases[_i].policy, cases[_i].prefill, cases[_i].kv, &mem);
            const double off = apart(m, got, want);
            /* a code of few bits that rounds the other way is a large step */
            const double tol = strstr(cases[_i].kv, "kivi2")   ? 0.06
                               : strstr(cases[_i].kv, "kivi4") ? 1e-2
                               : strstr(cases[_i].kv, "q8_0")  ? 4e-3
                                                               : 2e-3;
            ck_assert_msg(off < tol, "%s, %s %s, working set %d: off by %g", family[f],
                          cases[_i].policy, cases[_i].kv, (int)set, off);
            ck_assert_uint_le(mem.device_peak_bytes, mem.device_limit_bytes);
            ck_assert(little || mem.device_rows > 0);
            free(got);
            cb_model_close(m);
        }
        free(want);
        cb_model_close(plain);
    }
}
END_TEST

/* In a working set that holds a part of the rows, both sides read some. */
START_TEST(both_read)
{
    struct cb_memory mem;
    struct cb_model *plain = model_of("llama", "ref", 0), *m = model_of("llama", NAME, 3 << 19);
    float *want = answer(plain, "full", NULL, "f32", &mem);
    float *got = answer(m, "full", NULL, "f32", &mem);

    ck_assert_double_lt(apart(m, got, want), 1e-4);
    ck_assert_uint_gt(mem.host_rows, 0);
    ck_assert_uint_gt(mem.device_rows, 0);
    ck_assert_uint_lt(mem.device_kv_bytes, mem.kv_bytes);
    free(want), free(got);
    cb_model_close(plain);
    cb_model_close(m);
}
END_TEST

/* ---- what crosses over for a token ---- */

enum { KV = 2 * 32 * 2, HELD = PROMPT + SECOND + ANSWER }; /* bytes of a KV head's f16 slot */

/* Rows of all layers' KV heads */
static uint64_t heads(const struct cb_model *m)
{
    struct cb_model_info info;

    cb_model_get_info(m, &info);
    return (uint64_t)info.n_layer * (uint64_t)info.n_kv;
}

/* All rows are mirrored: a token brings its own, which are copied back. */
START_TEST(bytes_of_a_mirror)
{
    struct cb_model *m = model_of("llama", NAME, 0);
    struct cb_memory mem;

    free(answer(m, "full", NULL, "f16", &mem));
    ck_assert_uint_eq(mem.device_kv_in_bytes_per_token, 0);
    ck_assert_uint_eq(mem.device_kv_out_bytes_per_token, heads(m) * KV);
    ck_assert_uint_eq(mem.device_rows_per_token, heads(m) * HELD);
    ck_assert_uint_eq(mem.host_rows_per_token, 0);
    ck_assert_double_eq(mem.device_gather_s_per_token, 0);
    cb_model_close(m);
}
END_TEST

/* Each layer's rows are copied in for each token, also where the mirror would hold all of them; a
 * working set that holds one layer is enough. */
START_TEST(bytes_of_streamed_layers)
{
    const struct cb_model_params p = {
        .device = NAME, .n_threads = 2, .working_set = _i ? 3 << 19 : 0, .stream_kv = 1
    };
    struct cb_model *plain = model_of("llama", "ref", 0), *m = model_with("llama", &p);
    struct cb_memory mem;
    float *want = answer(plain, "full", NULL, "f16", &mem);
    float *got = answer(m, "full", NULL, "f16", &mem);

    ck_assert_double_lt(apart(m, got, want), 2e-3);
    ck_assert_uint_eq(mem.device_kv_in_bytes_per_token, heads(m) * HELD * KV);
    ck_assert_uint_eq(mem.device_kv_out_bytes_per_token, heads(m) * KV);
    ck_assert_uint_eq(mem.device_rows_per_token, heads(m) * HELD);
    ck_assert_uint_eq(mem.host_rows_per_token, 0);
    ck_assert_uint_le(mem.device_peak_bytes, mem.device_limit_bytes);
    free(want), free(got);
    cb_model_close(plain);
    cb_model_close(m);
}
END_TEST

/* What is planned is what is moved, where layers differ in what they hold or read. */
static const struct {
    const char *family, *policy;
} unequal[] = {
    { "mistral", "full" },
    { "llama", "pyramidkv:budget=96" },
    { "llama", "streamingllm:budget=100" },
    { "llama", "omnikv:filter=0,budget=64" },
    { "llama", "sieve:budget=32,recent=16" },
    { "llama", "quest:budget=48,dense=1" },
};

START_TEST(plan_of_streamed_layers)
{
    const struct cb_model_params p = { .device = NAME, .n_threads = 2, .stream_kv = 1 };
    struct cb_model *m = model_with(unequal[_i].family, &p);
    const int32_t *text = cb_toy_text(m);
    struct cb_memory plan, mem;
    struct cb_session *s;

    cb_toy_ok(cb_session_open(
        m, &(struct cb_session_params){ .n_ctx = 1024, .chunk = 64, .policy = unequal[_i].policy },
        &s));
    cb_toy_ok(cb_session_plan(s, 380, ANSWER, &plan));
    cb_toy_ok(cb_session_prefill(s, text, 380, NULL));
    for (int i = 0; i < ANSWER; i++)
        cb_toy_ok(cb_session_decode(s, text[i]));
    cb_session_memory(s, &mem);
    ck_assert_uint_gt(plan.device_kv_in_bytes_per_token, 0);
    ck_assert_uint_eq(plan.device_kv_in_bytes_per_token, mem.device_kv_in_bytes_per_token);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* Layers 0 to 2 read all of the context, 3 to 5 the CHOSEN slots and the answer. */
enum { LAYERS = 6, DENSE = 3, CHOSEN = 128 };
enum sent { NONE, FRESH, ALL };

static const struct {
    uint64_t working_set; /* 0: all */
    int stream_kv;
    enum sent sent;
    int dense_fit;
} sets[] = {
    { 2 << 20, 0, FRESH, 0 }, /* no room for a mirror */
    { 3 << 20, 0, FRESH, 1 }, /* for three layers */
    { 0, 0, NONE, 1 },
    { 0, 1, ALL, 1 },
};

static struct cb_model *deep_model(const struct cb_model_params *p)
{
    struct tiny tiny = cb_tiny_small("llama");

    tiny.hd = 32;
    tiny.n_ctx = 1100;
    tiny.n_layer = LAYERS;
    return cb_toy_model_with(&tiny, p);
}

/* Layers that are read whole have the mirror before those whose slots are chosen for each token.
 * Of these slots, those come that the last token had not, in one copy for all layers. */
START_TEST(bytes_of_chosen_slots)
{
    const struct cb_model_params p = { .device = NAME,
                                       .n_threads = 2,
                                       .working_set = sets[_i].working_set,
                                       .stream_kv = sets[_i].stream_kv };
    struct cb_model *m = deep_model(&p);
    struct cb_memory mem;
    uint64_t n_kv = heads(m) / LAYERS, sparse = n_kv * (LAYERS - DENSE), sent, here, host;

    chosen[0].layer = 1;
    free(answer(m, "omnikv:filter=1,wait=1,budget=128", NULL, "f16", &mem));
    ck_assert_int_eq(chosen[0].n, CHOSEN + ANSWER);
    ck_assert_int_gt(chosen[0].fresh, 0);
    ck_assert_int_lt(chosen[0].fresh, CHOSEN);
    sent = sparse * (uint64_t)(sets[_i].sent == FRESH ? chosen[0].fresh
                               : sets[_i].sent == ALL ? CHOSEN + ANSWER
                                                      : 0);
    ck_assert_uint_eq(mem.device_gathered_rows_per_token, sent);
    ck_assert_uint_eq(mem.device_gathers_per_token, sets[_i].sent == FRESH ? 1
                                                    : sets[_i].sent == ALL ? 2 * sparse
                                                                           : 0);
    sent += sets[_i].stream_kv ? n_kv * DENSE * HELD : 0;
    here = sparse * (CHOSEN + ANSWER) + (sets[_i].dense_fit ? n_kv * DENSE * HELD : 0);
    host = sets[_i].dense_fit ? 0 : n_kv * DENSE * HELD;
    ck_assert_uint_eq(mem.device_kv_in_bytes_per_token, sent * KV);
    ck_assert_uint_eq(mem.device_kv_out_bytes_per_token, heads(m) * KV);
    ck_assert_uint_eq(mem.device_rows_per_token, here);
    ck_assert_uint_eq(mem.host_rows_per_token, host);
    ck_assert_uint_le(mem.device_peak_bytes, mem.device_limit_bytes);
    ck_assert((mem.device_gather_s_per_token > 0) == (sets[_i].sent != NONE));
    cb_model_close(m);
}
END_TEST

/* The formula of OmniKV's paper, without what is there already: layers behind the filter layers x
 * chosen tokens, and no more loads than there are filter layers. */
START_TEST(bytes_of_two_filters)
{
    const struct cb_model_params p = { .device = NAME, .n_threads = 2, .working_set = 2 << 20 };
    struct cb_model *m = deep_model(&p);
    const uint64_t n_kv = heads(m) / LAYERS;
    struct cb_memory mem;
    uint64_t rows;

    chosen[0].layer = 1; /* read by layer 2 */
    chosen[1].layer = 3; /* by layers 4 and 5 */
    free(answer(m, "omnikv:filter=1+3,budget=128", NULL, "f16", &mem));
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(chosen[i].n, CHOSEN + ANSWER);
        ck_assert_int_gt(chosen[i].fresh, 0);
    }
    rows = n_kv * (uint64_t)(chosen[0].fresh + 2 * chosen[1].fresh);
    ck_assert_uint_eq(mem.device_gathered_rows_per_token, rows);
    ck_assert_uint_eq(mem.device_kv_in_bytes_per_token, rows * KV);
    ck_assert_uint_eq(mem.device_gathers_per_token, 2);
    cb_model_close(m);
}
END_TEST

START_TEST(partial_keys_are_refused)
{
    const struct cb_model_params p = { .device = NAME, .n_threads = 1 };
    const struct cb_session_params sp = { .policy = "infinigen" };
    struct cb_model *m = deep_model(&p);
    cb_session *s;

    ck_assert_int_eq(cb_session_open(m, &sp, &s), CB_EUNSUPPORTED);
    ck_assert_msg(strstr(cb_error(), "does not score partial keys"), "%s", cb_error());
    cb_model_close(m);
}
END_TEST

/* Layers that choose for themselves, a list for each KV head, bring what is new as well. */
START_TEST(bytes_of_searched_slots)
{
    static const char *const policy[] = { "sieve:budget=32,recent=16", "quest:budget=64,dense=0" };
    const struct cb_model_params p = { .device = NAME, .n_threads = 2, .working_set = 5 << 19 };
    struct cb_model *m = deep_model(&p);
    struct cb_memory mem;

    free(answer(m, policy[_i], NULL, "f16", &mem));
    ck_assert_uint_gt(mem.device_gathered_rows_per_token, 0);
    ck_assert_uint_lt(mem.device_gathered_rows_per_token, mem.device_rows_per_token);
    ck_assert_uint_eq(mem.device_kv_in_bytes_per_token, mem.device_gathered_rows_per_token * KV);
    ck_assert_uint_gt(mem.device_gathers_per_token, 0);
    ck_assert_uint_le(mem.device_gathers_per_token, LAYERS);
    ck_assert_uint_eq(mem.host_rows_per_token, 0);
    cb_model_close(m);
}
END_TEST

/* Rows of chosen slots that a cut takes back are not those that are stored next. */
static float *cut_answer(struct cb_model *m, const char *policy)
{
    const struct cb_session_params p = {
        .n_ctx = 1024, .chunk = 64, .type_k = "f32", .type_v = "f32", .policy = policy
    };
    const int32_t *text = cb_toy_text(m);
    const size_t n_vocab = (size_t)cb_n_vocab(m);
    float *out = calloc((ANSWER + 2) * n_vocab, sizeof *out);
    struct cb_session *s;

    cb_toy_ok(cb_session_open(m, &p, &s));
    cb_toy_ok(cb_session_prefill(s, text, 380, NULL));
    for (int i = 0; i < ANSWER; i++) {
        if (i == 12)
            cb_toy_ok(cb_session_truncate(s, 383));
        cb_toy_ok(cb_session_decode(s, text[7 * i]));
        memcpy(out + (size_t)i * n_vocab, cb_session_logits(s), n_vocab * sizeof *out);
    }
    cb_session_close(s);
    return out;
}

START_TEST(chosen_after_a_cut)
{
    static const char *const policy[] = { "omnikv:filter=1,wait=1,budget=32",
                                          "sieve:budget=32,recent=16",
                                          "quest:budget=48,dense=0,group=each" };
    struct cb_model *plain =
        deep_model(&(struct cb_model_params){ .device = "ref", .n_threads = 2 });
    struct cb_model *m = deep_model(
        &(struct cb_model_params){ .device = NAME, .n_threads = 2, .working_set = 2 << 20 });
    float *want = cut_answer(plain, policy[_i]), *got = cut_answer(m, policy[_i]);

    ck_assert_double_lt(apart(m, got, want), 1e-4);
    free(want), free(got);
    cb_model_close(plain);
    cb_model_close(m);
}
END_TEST

/* Weights beyond the working set are copied once for each prompt, however many chunks it has, a
 * layer ahead. */
START_TEST(bytes_of_streamed_weights)
{
    enum { DEEP = 20, TOKENS = 128 };
    struct tiny tiny = cb_tiny_small("llama");
    const struct cb_session_params p = {
        .n_ctx = 400, .chunk = 64, .type_k = "f32", .type_v = "f32"
    };
    uint64_t all = 0, away = 0;
    float *want = NULL;

    tiny.n_layer = DEEP;
    tiny.n_ff = 320;
    tiny.n_vocab = 4096; /* its output matrix stays with the CPU */
    tiny.type = DT_F32;
    for (int here = 0; here < 2; here++) {
        struct cb_model *m = cb_toy_model_with(
            &tiny, &(struct cb_model_params){ .device = here ? NAME : "ref",
                                              .n_threads = 2,
                                              .working_set = here ? 6 << 20 : 0 });
        const size_t n_vocab = (size_t)cb_n_vocab(m);
        struct cb_memory mem, plan;
        struct cb_session *s;
        struct weight *w;
        for (int l = 0; here && l < DEEP; l++)
            for (int i = 0; (w = cb_weights_at(&m->layer[l], i, 0)); i++)
                all += w->raw ? cb_row_bytes(w->type, w->n_in) * (uint64_t)w->n_out : 0;
        cb_toy_ok(cb_session_open(m, &p, &s));
        cb_toy_ok(cb_session_plan(s, TOKENS, 0, &plan));
        for (int i = 0; i < 2; i++) {
            cb_toy_ok(cb_session_prefill(s, cb_toy_text(m) + i * TOKENS, TOKENS, NULL));
            cb_session_memory(s, &mem);
            away = here ? all - mem.device_weights_bytes : 0;
            ck_assert_uint_eq(mem.device_weights_in_bytes, (uint64_t)(i + 1) * away);
            ck_assert_uint_le(mem.device_peak_bytes, mem.device_limit_bytes);
        }
        ck_assert(!here || (away > all / 8 && plan.device_work_bytes > mem.device_work_bytes));
        if (here)
            same("logits", cb_session_logits(s), want, n_vocab, 1e-4f);
        else
            want = copy(cb_session_logits(s), n_vocab);
        cb_session_close(s);
        cb_model_close(m);
    }
    free(want);
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
    tcase_add_test(tc, batches);
    tcase_add_test(tc, weights_that_do_not_fit);
    tcase_add_test(tc, too_much_memory);
    tcase_add_test(tc, an_op_that_fails);
    tcase_add_test(tc, refused);
    tcase_add_test(tc, partial_keys_are_refused);
    tcase_add_test(tc, read_by_threads);
    tcase_add_loop_test(tc, limits, 0, 2);
    if ((int)ISA_FROM == CB_ISA_OPENCL)
        tcase_add_test(tc, kernel_cache);
    tcase_add_loop_test(tc, policies, 0, sizeof cases / sizeof *cases);
    tcase_add_test(tc, both_read);
    tcase_add_test(tc, bytes_of_a_mirror);
    tcase_add_loop_test(tc, bytes_of_streamed_layers, 0, 2);
    tcase_add_loop_test(tc, plan_of_streamed_layers, 0, sizeof unequal / sizeof *unequal);
    tcase_add_loop_test(tc, bytes_of_chosen_slots, 0, sizeof sets / sizeof *sets);
    tcase_add_test(tc, bytes_of_two_filters);
    tcase_add_loop_test(tc, bytes_of_searched_slots, 0, 2);
    tcase_add_loop_test(tc, chosen_after_a_cut, 0, 3);
    tcase_add_test(tc, bytes_of_streamed_weights);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
