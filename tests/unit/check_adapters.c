/* SPDX-License-Identifier: MIT */
/* check_adapters.c - models with adapters: logits against PyTorch in f64 on every device and ISA;
 * against the same model with merged weights, where matrices are fused or experts; saved banks,
 * which belong to a model with its adapters; and files that must be refused. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctxbank.h"
#include "kit/folder.h"
#include "kit/recipe.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

static const struct {
    const char *device, *isa;
} devices[] = {
    { "ref", NULL },   { "cpu", "scalar" }, { "cpu", "avx2" }, { "cpu", "avx512" },
    { "cpu", "neon" }, { "cpu", "i8mm" },   { "cpu", "bf16" },
};
enum { N_DEVICES = sizeof devices / sizeof *devices, RANK = 2 };

static const double tolerance = 1e-4; /* of a logit; they are of size 8 */

static char all[4096], some[4096]; /* the adapters of tiny-llama */

static void vector_path(const char *name, char (*path)[4096])
{
    snprintf(*path, sizeof *path, "%s/%s", cb_recipe_folder(), name);
}

/* NULL: this machine or this build has no such ISA. */
static cb_model *open_model(const char *path, int device, const struct cb_adapter *x, int n)
{
    const struct cb_model_params p = { .n_threads = 2,
                                       .device = devices[device].device,
                                       .isa = devices[device].isa,
                                       .adapters = x,
                                       .n_adapter = n };

    return cb_toy_open_file(path, &p);
}

/* ---- PyTorch ---- */

struct vector {
    json_t *root;
    int32_t ids[64];
    int n, n_compared;
    double worst;
};

static void read_vector(struct vector *v)
{
    const json_t *ids;
    json_error_t e;
    char path[4096];

    vector_path("tiny-llama-lora.json", &path);
    vector_path("tiny-lora-all.gguf", &all);
    vector_path("tiny-lora-some.gguf", &some);
    *v = (struct vector){ .root = json_load_file(path, 0, &e) };
    ck_assert_msg(v->root != NULL, "%s: %s", path, e.text);
    ids = json_object_get(v->root, "ids");
    v->n = (int)json_array_size(ids);
    ck_assert(v->n > 0 && v->n <= 64);
    for (int i = 0; i < v->n; i++)
        v->ids[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
}

static void compare(void *arg, int i, const float *logits)
{
    struct vector *v = arg;
    const json_t *after = json_object_get(v->root, "after"), *row = NULL;

    for (size_t j = 0; j < json_array_size(after); j++)
        if (json_integer_value(json_array_get(after, j)) == i)
            row = json_array_get(json_object_get(v->root, "logits"), j);
    for (size_t t = 0; t < json_array_size(row); t++) {
        const double d = fabs((double)logits[t] - json_number_value(json_array_get(row, t)));
        v->n_compared++;
        if (!(d <= v->worst)) /* NaN counts */
            v->worst = d;
    }
}

static cb_model *open_both(int device)
{
    const struct cb_adapter x[] = { { all, 0 }, { some, -0.5f } };
    char path[4096];

    vector_path("tiny-llama.gguf", &path);
    return open_model(path, device, x, 2);
}

/* Loop index: device. A prompt at once, one in chunks, and single tokens */
START_TEST(logits_are_those_of_pytorch)
{
    static const int chunk[] = { 0, 7, 0 };
    struct vector v;
    const struct cb_prefill how = { .logits = compare, .logits_arg = &v };
    cb_model *m;

    read_vector(&v);
    m = open_both(_i);
    for (int i = 0; m && i < 3; i++) {
        cb_session *s = cb_toy_exact_session(m, 64, chunk[i]);
        v.n_compared = 0;
        if (i < 2)
            ck_assert_ok(cb_session_prefill(s, v.ids, v.n, &how));
        for (int t = 0; i == 2 && t < v.n; t++) {
            ck_assert_ok(cb_session_decode(s, v.ids[t]));
            compare(&v, t, cb_session_logits(s));
        }
        ck_assert_int_gt(v.n_compared, 2000);
        ck_assert_msg(v.worst < tolerance, "%s %s, way %d: off by %g", devices[_i].device,
                      devices[_i].isa ? devices[_i].isa : "", i, v.worst);
        cb_session_close(s);
    }
    cb_model_close(m);
    json_decref(v.root);
}
END_TEST

/* A batch has the bits of single tokens. */
START_TEST(batches)
{
    enum { N = 5 };
    const size_t bytes = 260 * sizeof(float);
    cb_session *s[N], *alone;
    int32_t next[N];
    struct vector v;
    cb_model *m;

    read_vector(&v);
    m = open_both(_i);
    for (int i = 0; m && i < N; i++) {
        s[i] = cb_toy_exact_session(m, 64, 0);
        ck_assert(!cb_session_prefill(s[i], v.ids, 3 + i, NULL));
        next[i] = v.ids[20 + i];
    }
    if (m)
        ck_assert_ok(cb_decode_batch(s, next, N));
    for (int i = 0; m && i < N; i++) {
        alone = cb_toy_exact_session(m, 64, 0);
        ck_assert(!cb_session_prefill(alone, v.ids, 3 + i, NULL));
        ck_assert(!cb_session_decode(alone, next[i]));
        ck_assert_mem_eq(cb_session_logits(alone), cb_session_logits(s[i]), bytes);
        cb_session_close(alone);
        cb_session_close(s[i]);
    }
    cb_model_close(m);
    json_decref(v.root);
}
END_TEST

/* ---- merged weights ---- */

static const char *const families[] = { "phi3",     "falcon",  "mixtral", "qwen2moe",
                                        "gpt-oss",  "llama4",  "gemma2",  "cohere2",
                                        "qwen3moe", "gptneox", "glm4" };
enum { N_FAMILIES = sizeof families / sizeof *families };

static int is_matrix(const struct gguf_tensor *t)
{
    char name[80];

    snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.s);
    return t->n_dim > 1 && t->dim[1] >= RANK && !strstr(name, "norm") && !strstr(name, "bias") &&
           !strstr(name, "token_embd") && !strstr(name, "rope");
}

static float *draw(uint64_t *rng, int64_t n, double size)
{
    float *x = calloc((size_t)n, sizeof *x);

    ck_assert_ptr_nonnull(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)size * cb_rand_normal(rng);
    return x;
}

/* w[planes][out][in] += a scale of 3 * B A */
static void merge(const struct gguf_tensor *t, float *w, const float *a, const float *b)
{
    const int64_t in = t->dim[0], out = t->dim[1];

    for (int64_t p = 0; p < t->dim[2]; p++)
        for (int64_t o = 0; o < out; o++)
            for (int64_t i = 0; i < in; i++)
                for (int r = 0; r < RANK; r++)
                    w[(p * out + o) * in + i] +=
                        3 * b[(p * out + o) * RANK + r] * a[(p * RANK + r) * in + i];
}

/* Puts random A and B of t into the adapter, and t with them into the merged model. */
static void add_pair(const struct gguf_tensor *t, uint64_t *rng, struct gguf_make *adapter,
                     struct gguf_make *merged)
{
    const int64_t n = t->dim[0] * t->dim[1] * t->dim[2];
    const int64_t dim_a[] = { t->dim[0], RANK, t->dim[2] },
                  dim_b[] = { RANK, t->dim[1], t->dim[2] };
    float *a = draw(rng, t->dim[0] * RANK * t->dim[2], 1 / sqrt((double)t->dim[0]));
    float *b = draw(rng, t->dim[1] * RANK * t->dim[2], 0.3);
    float *w = calloc((size_t)n, sizeof *w);
    char name[100];

    ck_assert_ptr_nonnull(w);
    cb_dtype[t->type].to_f32(t->data, w, n);
    merge(t, w, a, b);
    snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.s);
    cb_make_tensor(merged, name, DT_F32, t->n_dim, t->dim, w);
    snprintf(name, sizeof name, "%.*s.lora_a", (int)t->name.n, t->name.s);
    cb_make_tensor(adapter, name, DT_F32, t->n_dim, dim_a, a);
    snprintf(name, sizeof name, "%.*s.lora_b", (int)t->name.n, t->name.s);
    cb_make_tensor(adapter, name, DT_F32, t->n_dim, dim_b, b);
    free(a);
    free(b);
    free(w);
}

static void copy_tensor(const struct gguf_tensor *t, struct gguf_make *m)
{
    char name[100];

    ck_assert_int_eq(t->type, DT_F32);
    snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.s);
    cb_make_tensor(m, name, DT_F32, t->n_dim, t->dim, t->data);
}

static void begin_adapter(struct gguf_make *m, const char *arch)
{
    cb_make_init(m);
    cb_gguf_put_string(&m->w, "general.architecture", arch);
    cb_gguf_put_string(&m->w, "general.type", "adapter");
    cb_gguf_put_string(&m->w, "adapter.type", "lora");
    cb_gguf_put_f32(&m->w, "adapter.lora.alpha", 2 * RANK);
}

/* base.gguf -> adapter.gguf of all its matrices, to be used at scale 1.5, and merged.gguf */
static void make_files(const struct recipe *r, const char *base, const char *adapter,
                       const char *merged)
{
    struct gguf_make base_make, a, m;
    uint64_t rng = 5;
    struct gguf *g;

    cb_recipe_make(r, &base_make);
    cb_make_save(&base_make, base);
    ck_assert_ok(cb_gguf_open(base, &g));
    begin_adapter(&a, json_string_value(json_object_get(r->root, "arch")));
    cb_make_init(&m);
    for (uint64_t i = 0; cb_gguf_kv_at(g, i); i++)
        cb_gguf_put_copy(&m.w, cb_gguf_kv_at(g, i));
    for (uint64_t i = 0; i < cb_gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = cb_gguf_tensor_at(g, i);
        if (is_matrix(t))
            add_pair(t, &rng, &a, &m);
        else
            copy_tensor(t, &m);
    }
    ck_assert_uint_gt(a.w.n_tensor, 8);
    cb_make_save(&a, adapter);
    cb_make_save(&m, merged);
    cb_gguf_close(g);
}

/* Logits after a prompt and a decoded token -> out[2][n_vocab] */
static void logits_of(cb_model *m, const struct recipe *r, float *out)
{
    cb_session *s = cb_toy_exact_session(m, 64, 16);
    const size_t n = (size_t)cb_n_vocab(m);

    ck_assert_ok(cb_session_prefill(s, r->ids, r->n - 1, NULL));
    memcpy(out, cb_session_logits(s), n * sizeof *out);
    ck_assert(!cb_session_decode(s, r->ids[r->n - 1]));
    memcpy(out + n, cb_session_logits(s), n * sizeof *out);
    cb_session_close(s);
}

static double furthest(const float *x, const float *y, int n)
{
    double worst = 0;

    for (int i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)x[i] - (double)y[i]));
    return worst;
}

/* Loop index: family, and the reference device or the CPU */
START_TEST(the_same_as_merged)
{
    const char *folder = cb_folder_make("adapters");
    char base[4200], adapter[4200], merged[4200];
    const struct cb_adapter x = { adapter, 1.5f };
    struct cb_model_params p = { .n_threads = 2, .device = _i % 2 ? "cpu" : "ref" };
    struct recipe r;
    float *out;
    cb_model *m;
    int n;

    snprintf(base, sizeof base, "%s/base.gguf", folder);
    snprintf(merged, sizeof merged, "%s/merged.gguf", folder);
    snprintf(adapter, sizeof adapter, "family-%s.json", families[_i / 2]);
    cb_recipe_open(&r, adapter);
    snprintf(adapter, sizeof adapter, "%s/adapter.gguf", folder);
    make_files(&r, base, adapter, merged);
    n = 2 * r.n_vocab;
    out = calloc(3 * (size_t)n, sizeof *out);
    ck_assert_ptr_nonnull(out);
    for (int i = 0; i < 3; i++) {
        p.adapters = i == 1 ? &x : NULL;
        p.n_adapter = i == 1;
        ck_assert_ok(cb_model_open(i == 2 ? merged : base, &p, &m));
        logits_of(m, &r, out + i * n);
        cb_model_close(m);
    }
    ck_assert_msg(furthest(out + n, out + 2 * n, n) < tolerance, "%s: off by %g", families[_i / 2],
                  furthest(out + n, out + 2 * n, n));
    ck_assert_double_gt(furthest(out, out + n, n), 0.5);
    free(out);
    cb_recipe_close(&r);
    cb_folder_remove();
}
END_TEST

/* ---- saved banks ---- */

static cb_model *open_scaled(float scale)
{
    const struct cb_adapter x = { all, scale };
    char path[4096];

    vector_path("tiny-llama.gguf", &path);
    return open_model(path, 1, &x, scale != 0);
}

START_TEST(banks_belong_to_the_adapters)
{
    const char *folder = cb_folder_make("adapters");
    static const float scale[] = { 0, 1, 0.5f, 1 };
    struct vector v;
    char bank[4200];

    read_vector(&v);
    snprintf(bank, sizeof bank, "%s/saved.bank", folder);
    for (int i = 0; i < 4; i++) {
        cb_model *m = open_scaled(scale[i]);
        cb_session *s;
        int err;
        if (i == 0) {
            cb_model *with = open_scaled(1);
            s = cb_toy_exact_session(with, 64, 0);
            ck_assert(!cb_session_prefill(s, v.ids, v.n, NULL));
            ck_assert_ok(cb_session_save(s, bank));
            cb_session_close(s);
            cb_model_close(with);
        }
        err = cb_session_load(m, bank, 0, &s);
        if (scale[i] == 1)
            ck_assert_msg(!err, "%s", cb_error());
        else
            ck_assert_int_eq(err, CB_EUNSUPPORTED);
        cb_session_close(s);
        cb_model_close(m);
    }
    json_decref(v.root);
    cb_folder_remove();
}
END_TEST

/* The text of one adapter is never that of another. */
START_TEST(folders_of_banks)
{
    enum { N = 300 };
    static const float scale[] = { 1, 0, -1, 1 };
    const struct cb_session_params p = { .n_ctx = 512 };
    const char *folder = cb_folder_make("adapters");
    char path[4200];
    int32_t ids[N];
    cb_bank_dir *dir;
    struct vector v;

    read_vector(&v);
    snprintf(path, sizeof path, "%s/dir", folder);
    ck_assert(!cb_bank_dir_open(path, NULL, &dir));
    for (int i = 0; i < N; i++)
        ids[i] = v.ids[i * 7 % v.n];
    for (int i = 0; i < 4; i++) {
        cb_model *m = open_scaled(scale[i]);
        cb_session *s;
        int hit;
        ck_assert_ok(cb_bank_dir_find(dir, m, &p, ids, N, &s, &hit));
        ck_assert_int_eq(hit, i == 3 ? N : 0);
        if (!hit) {
            ck_assert(!cb_session_prefill(s, ids, N, NULL));
            ck_assert_ok(cb_bank_dir_put(dir, s));
        }
        cb_session_close(s);
        cb_model_close(m);
    }
    cb_bank_dir_close(dir);
    json_decref(v.root);
    cb_folder_remove();
}
END_TEST

/* ---- files that are refused ---- */

/* What is wrong with the file: keys, the shapes of A and B for blk.0.ffn_down.weight [48][80] or
 * another name, and a number in B */
static const struct bad {
    const char *type, *adapter, *arch, *name, *key;
    int64_t a[3], b[3];
    float number;
    int only_a;
    const char *why;
} bad[] = {
    { .type = "model", .why = "general.type: 'model'" },
    { .adapter = "control", .why = "adapter.type: 'control'" },
    { .arch = "qwen2", .why = "the model's family is llama" },
    { .key = "adapter.alora.invocation_tokens", .why = "aLoRA" },
    { .key = "adapter.lora.alpha", .why = "adapter.lora.alpha" },
    { .name = "blk.2.ffn_down.weight", .why = "no matrix for it" },
    { .name = "token_embd.weight", .why = "no matrix for it" },
    { .name = "blk.0.ffn_norm.weight", .why = "no matrix for it" },
    { .a = { 80, 3, 1 }, .b = { 2, 48, 1 }, .why = "shape 2x48x1, expected 3x48x1" },
    { .a = { 48, 2, 1 }, .b = { 2, 80, 1 }, .why = "shape 48x2x1, expected 80xRANKx1" },
    { .a = { 80, 49, 1 }, .b = { 49, 48, 1 }, .why = "a rank of 1 to 48" },
    { .a = { 80, 2, 2 }, .b = { 2, 48, 2 }, .why = "shape 80x2x2" },
    { .a = { 80, 2, 1 }, .b = { 2, 47, 1 }, .why = "shape 2x47x1" },
    { .number = NAN, .why = "infinite or NaN" },
    { .number = -INFINITY, .why = "infinite or NaN" },
    { .only_a = 1, .why = "blk.0.ffn_down.weight.lora_b: missing" },
};
enum { N_BAD = sizeof bad / sizeof *bad };

static const char *or_else(const char *text, const char *other)
{
    return text ? text : other;
}

static void make_bad(const struct bad *x, const char *path)
{
    const int64_t dim_a[] = { x->a[0] ? x->a[0] : 80, x->a[0] ? x->a[1] : 2,
                              x->a[0] ? x->a[2] : 1 };
    const int64_t dim_b[] = { x->b[0] ? x->b[0] : 2, x->b[0] ? x->b[1] : 48,
                              x->b[0] ? x->b[2] : 1 };
    const char *name = or_else(x->name, "blk.0.ffn_down.weight");
    const int alpha = x->key && !strcmp(x->key, "adapter.lora.alpha");
    float *zeros = calloc(80 * 80, sizeof *zeros);
    char full[100];
    struct gguf_make m;

    ck_assert_ptr_nonnull(zeros);
    cb_make_init(&m);
    cb_gguf_put_string(&m.w, "general.architecture", or_else(x->arch, "llama"));
    cb_gguf_put_string(&m.w, "general.type", or_else(x->type, "adapter"));
    cb_gguf_put_string(&m.w, "adapter.type", or_else(x->adapter, "lora"));
    if (x->key && !alpha)
        cb_gguf_put_array(&m.w, x->key, GGUF_U32, zeros, 2);
    cb_gguf_put_f32(&m.w, "adapter.lora.alpha", alpha ? INFINITY : 4);
    snprintf(full, sizeof full, "%s.lora_a", name);
    cb_make_tensor(&m, full, DT_F32, dim_a[2] > 1 ? 3 : 2, dim_a, zeros);
    snprintf(full, sizeof full, "%s.lora_b", name);
    zeros[11] = x->number;
    if (!x->only_a)
        cb_make_tensor(&m, full, DT_F32, dim_b[2] > 1 ? 3 : 2, dim_b, zeros);
    cb_make_save(&m, path);
    free(zeros);
}

START_TEST(bad_files)
{
    char file[4200], path[4096];
    const struct cb_adapter x = { file, 0 };
    const struct cb_model_params p = { .n_threads = 1, .adapters = &x, .n_adapter = 1 };
    cb_model *m;

    snprintf(file, sizeof file, "%s/bad.gguf", cb_folder_make("adapters"));
    vector_path("tiny-llama.gguf", &path);
    make_bad(&bad[_i], file);
    ck_assert_int_ne(cb_model_open(path, &p, &m), CB_OK);
    ck_assert_ptr_null(m);
    ck_assert_msg(strstr(cb_error(), bad[_i].why) != NULL, "%s: not %s", cb_error(), bad[_i].why);
    ck_assert_msg(strstr(cb_error(), "bad.gguf") != NULL, "%s", cb_error());
    cb_folder_remove();
}
END_TEST

/* The file cut at many places: refused, whatever is missing */
START_TEST(cut_files)
{
    char file[4200], path[4096];
    const struct cb_adapter x = { file, 0 };
    const struct cb_model_params p = { .n_threads = 1, .adapters = &x, .n_adapter = 1 };
    static unsigned char bytes[1 << 16];
    struct vector v;
    size_t n;
    FILE *f;

    read_vector(&v);
    snprintf(file, sizeof file, "%s/cut.gguf", cb_folder_make("adapters"));
    vector_path("tiny-llama.gguf", &path);
    ck_assert_ptr_nonnull(f = fopen(some, "rb"));
    n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    ck_assert(n > 4096 && n < sizeof bytes);
    for (size_t i = 0; i < n - 16; i += i < 3000 ? 97 : 997) {
        cb_model *m;
        cb_write_file(file, bytes, i);
        ck_assert_int_ne(cb_model_open(path, &p, &m), CB_OK);
        ck_assert_msg(strstr(cb_error(), "cut.gguf") != NULL, "%s", cb_error());
    }
    json_decref(v.root);
    cb_folder_remove();
}
END_TEST

START_TEST(bad_params)
{
    struct cb_adapter x = { "/nowhere/x.gguf", 1 };
    struct cb_model_params p = { .n_threads = 1, .adapters = &x, .n_adapter = 1 };
    char path[4096];
    struct vector v;
    cb_model *m;

    read_vector(&v);
    vector_path("tiny-llama.gguf", &path);
    ck_assert_int_eq(cb_model_open(path, &p, &m), CB_EIO);
    x = (struct cb_adapter){ all, NAN };
    ck_assert_int_eq(cb_model_open(path, &p, &m), CB_EARG);
    x = (struct cb_adapter){ NULL, 1 };
    ck_assert_int_eq(cb_model_open(path, &p, &m), CB_EARG);
    p.n_adapter = -1;
    ck_assert_int_eq(cb_model_open(path, &p, &m), CB_EARG);
    ck_assert_int_eq(cb_model_open(all, NULL, &m), CB_EUNSUPPORTED); /* not a model */
    ck_assert_msg(strstr(cb_error(), "an adapter") != NULL, "%s", cb_error());
    json_decref(v.root);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("adapters");
    TCase *logits = tcase_create("logits"), *banks = tcase_create("banks"),
          *refused = tcase_create("refused");

    tcase_add_loop_test(logits, logits_are_those_of_pytorch, 0, N_DEVICES);
    tcase_add_loop_test(logits, batches, 0, N_DEVICES);
    tcase_add_loop_test(logits, the_same_as_merged, 0, 2 * N_FAMILIES);
    tcase_add_test(banks, banks_belong_to_the_adapters);
    tcase_add_test(banks, folders_of_banks);
    tcase_add_loop_test(refused, bad_files, 0, N_BAD);
    tcase_add_test(refused, cut_files);
    tcase_add_test(refused, bad_params);
    tcase_set_timeout(logits, 120);
    tcase_set_timeout(banks, 120);
    tcase_set_timeout(refused, 120);
    suite_add_tcase(s, logits);
    suite_add_tcase(s, banks);
    suite_add_tcase(s, refused);
    return cb_suite_run(s);
}
