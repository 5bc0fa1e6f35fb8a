/* SPDX-License-Identifier: MIT */
/* check_model.c - whole models: logits of tiny ones against PyTorch in f64, on every device and ISA
 * that the machine has, in one prompt, in chunks and token by token; and each tensor type against
 * the reference device. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctxbank.h"
#include "kit/suite.h"
#include "kit/tiles.h"
#include "kit/tiny.h"
#include "kit/toy.h"

static const char *const names[] = {
    "llama", "llama3.1", "linear", "mistral", "qwen2", "qwen2tied"
};
static const struct {
    const char *device, *isa;
} devices[] = {
    { "ref", NULL },       { "cpu", "scalar" }, { "cpu", "avx2" }, { "cpu", "avxvnni" },
    { "cpu", "avx512bw" }, { "cpu", "avx512" }, { "cpu", "amx" },  { "cpu", "neon" },
    { "cpu", "i8mm" },     { "cpu", "bf16" },
};
enum { N_NAMES = sizeof names / sizeof *names, N_DEVICES = sizeof devices / sizeof *devices };

static const double tolerance = 1e-4; /* of a logit; they are of size 8 */

/* NULL: this machine or this build has no such ISA. */
static cb_model *open_model(const char *path, int device, int n_threads)
{
    const struct cb_model_params p = { .n_threads = n_threads,
                                       .device = devices[device].device,
                                       .isa = devices[device].isa };
    cb_model *m;

    cb_tiles_show(p.isa && !strcmp(p.isa, "amx"));
    m = cb_toy_open_file(path, &p);
    cb_tiles_show(0);
    return m;
}

/* ---- vectors ---- */

enum { MAX_TOKENS = 64 };

struct vector {
    json_t *root, *after, *logits;
    int32_t ids[MAX_TOKENS];
    int n, n_vocab;
    double worst;
};

static void in_vectors(const char *name, const char *suffix, char (*path)[4096])
{
    const char *srcdir = getenv("srcdir");

    snprintf(*path, sizeof *path, "%s/tests/vectors/tiny-%s.%s", srcdir ? srcdir : ".", name,
             suffix);
}

static void read_vector(const char *name, struct vector *v)
{
    char path[4096];
    json_error_t e;
    json_t *ids;

    in_vectors(name, "json", &path);
    v->root = json_load_file(path, 0, &e);
    ck_assert_msg(v->root != NULL, "%s: %s", path, e.text);
    ids = json_object_get(v->root, "ids");
    v->after = json_object_get(v->root, "after");
    v->logits = json_object_get(v->root, "logits");
    v->n = (int)json_array_size(ids);
    v->n_vocab = (int)json_array_size(json_array_get(v->logits, 0));
    v->worst = 0;
    ck_assert(v->n > 0 && v->n <= MAX_TOKENS && v->n_vocab > 0);
    for (int i = 0; i < v->n; i++)
        v->ids[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
}

/* Logits after token i; those that the file does not have are not compared. */
static void compare(void *arg, int i, const float *logits)
{
    struct vector *v = arg;
    const json_t *row = NULL;

    for (size_t j = 0; j < json_array_size(v->after); j++)
        if (json_integer_value(json_array_get(v->after, j)) == i)
            row = json_array_get(v->logits, j);
    for (int t = 0; row && t < v->n_vocab; t++) {
        const double want = json_number_value(json_array_get(row, (size_t)t));
        const double d = fabs((double)logits[t] - want);
        if (!(d <= v->worst)) /* NaN counts */
            v->worst = d;
    }
}

/* Loop index: model, device. chunk 0: the default */
static void check_prefill(int which, int chunk, int n_threads)
{
    const char *name = names[which / N_DEVICES];
    const int device = which % N_DEVICES;
    struct cb_model_info info;
    struct vector v;
    const struct cb_prefill how = { .logits = compare, .logits_arg = &v };
    char path[4096];
    cb_model *m;
    cb_session *s;

    in_vectors(name, "gguf", &path);
    m = open_model(path, device, n_threads);
    if (!m)
        return;
    read_vector(name, &v);
    cb_model_get_info(m, &info);
    ck_assert_int_eq(info.n_vocab, v.n_vocab);
    s = cb_toy_exact_session(m, 64, chunk);
    ck_assert_ok(cb_session_prefill(s, v.ids, v.n, &how));
    ck_assert_msg(v.worst < tolerance, "%s on %s %s: off by %g", name, devices[device].device,
                  devices[device].isa ? devices[device].isa : "", v.worst);
    compare(&v, v.n - 1, cb_session_logits(s));
    ck_assert_double_lt(v.worst, tolerance);
    cb_session_close(s);
    cb_model_close(m);
    json_decref(v.root);
}

START_TEST(prompt_at_once)
{
    check_prefill(_i, 0, 2);
}
END_TEST

START_TEST(prompt_in_chunks)
{
    check_prefill(_i, 7, 1);
}
END_TEST

START_TEST(token_by_token)
{
    const char *name = names[_i / N_DEVICES];
    struct vector v;
    char path[4096];
    cb_model *m;
    cb_session *s;

    in_vectors(name, "gguf", &path);
    m = open_model(path, _i % N_DEVICES, 1);
    if (!m)
        return;
    read_vector(name, &v);
    s = cb_toy_exact_session(m, 64, 0);
    for (int i = 0; i < v.n; i++) {
        ck_assert_ok(cb_session_decode(s, v.ids[i]));
        compare(&v, i, cb_session_logits(s));
    }
    ck_assert_int_eq(cb_session_len(s), v.n);
    ck_assert_msg(v.worst < tolerance, "%s: off by %g", name, v.worst);
    cb_session_close(s);
    cb_model_close(m);
    json_decref(v.root);
}
END_TEST

/* ---- devices and tensor types ---- */

enum { N_TOKENS = 33 };

/* Logits after a prompt and three decoded tokens; the caller frees. NULL: no such ISA. */
static float *run(const char *path, int device)
{
    cb_model *m = open_model(path, device, 1);
    struct cb_model_info info;
    cb_session *s;
    int32_t ids[N_TOKENS];
    float *out;
    uint64_t rng = 3;

    if (!m)
        return NULL;
    cb_model_get_info(m, &info);
    s = cb_toy_exact_session(m, 64, 0);
    for (int i = 0; i < N_TOKENS; i++)
        ids[i] = (int32_t)(cb_rand_u64(&rng) % (uint64_t)info.n_vocab);
    ck_assert_ok(cb_session_prefill(s, ids, N_TOKENS - 3, NULL));
    for (int i = N_TOKENS - 3; i < N_TOKENS; i++)
        ck_assert_ok(cb_session_decode(s, ids[i]));
    out = malloc(sizeof *out * (size_t)info.n_vocab);
    memcpy(out, cb_session_logits(s), sizeof *out * (size_t)info.n_vocab);
    cb_session_close(s);
    cb_model_close(m);
    return out;
}

/* |x - y| / |y| over 256 logits, which every vocabulary here has */
static double distance(const float *x, const float *y)
{
    double d = 0, n = 0;

    for (int i = 0; i < 256; i++) {
        d += pow((double)x[i] - (double)y[i], 2);
        n += pow((double)y[i], 2);
    }
    return sqrt(d / n);
}

/* Tiers that differ only in how they add integers give the same bits. */
static void check_twins(const struct tiny *t, float *const *got)
{
    static const char *const twins[][2] = { { "avx512bw", "avx512" },
                                            { "avx2", "avxvnni" },
                                            { "amx", "avx512" } };

    for (int i = 0; i < 3; i++) {
        const float *x[2] = { NULL, NULL };
        for (int d = 1; d < N_DEVICES; d++)
            for (int j = 0; j < 2; j++)
                if (!strcmp(devices[d].isa, twins[i][j]))
                    x[j] = got[d];
        if (x[0] && x[1])
            ck_assert_msg(!memcmp(x[0], x[1], 256 * sizeof *x[0]), "%s %s: %s and %s differ",
                          t->name, cb_dtype[t->type].name, twins[i][0], twins[i][1]);
    }
}

/* Every device gives what `ref` gives, but for the rounding that `most` allows. */
static void agree(const struct tiny *t, double most)
{
    char path[64];
    float *want, *got[N_DEVICES] = { NULL };

    snprintf(path, sizeof path, "check_model.%d.gguf", (int)getpid());
    cb_tiny_save(t, path);
    want = run(path, 0);
    for (int d = 1; d < N_DEVICES; d++) {
        got[d] = run(path, d);
        if (got[d])
            ck_assert_msg(distance(got[d], want) < most, "%s %s on %s: off by %g", t->name,
                          cb_dtype[t->type].name, devices[d].isa, distance(got[d], want));
    }
    check_twins(t, got);
    for (int d = 1; d < N_DEVICES; d++)
        free(got[d]);
    free(want);
    unlink(path);
}

START_TEST(families_agree)
{
    agree(&cb_tiny[_i], 1e-5);
}
END_TEST

/* Kernels may round activations to 8 bits a block when weights are quantised: about 0.5 % a
 * product, of which some thirty follow one another. */
START_TEST(tensor_types_agree)
{
    struct tiny t = cb_tiny_get("llama");

    t.type = (enum dtype)_i;
    agree(&t, cb_dtype[_i].block > 1 ? 0.05 : 0.02);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model");
    TCase *v = tcase_create("vectors"), *a = tcase_create("devices");
    SRunner *r = srunner_create(suite);
    int n = 0, failed;

    tcase_set_timeout(v, 60);
    tcase_add_loop_test(v, prompt_at_once, 0, N_NAMES * N_DEVICES);
    tcase_add_loop_test(v, prompt_in_chunks, 0, N_NAMES * N_DEVICES);
    tcase_add_loop_test(v, token_by_token, 0, N_NAMES * N_DEVICES);
    suite_add_tcase(suite, v);
    while (cb_tiny[n].name)
        n++;
    tcase_set_timeout(a, 60);
    tcase_add_loop_test(a, families_agree, 0, n);
    tcase_add_loop_test(a, tensor_types_agree, 0, DT_COUNT);
    suite_add_tcase(suite, a);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
