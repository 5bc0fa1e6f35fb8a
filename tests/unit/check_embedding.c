/* SPDX-License-Identifier: MIT */
/* check_embedding.c - embeddings of tiny models against PyTorch in f64, on every device and ISA
 * that the machine has; what files say about them; and models that have none. */
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

static const char *const names[] = { "llama", "mistral", "qwen2tied" };
static const char *const pools[] = { "mean", "cls", "last" };
static const struct {
    const char *device, *isa;
} devices[] = {
    { "ref", NULL },   { "cpu", "scalar" }, { "cpu", "avx2" }, { "cpu", "avx512" },
    { "cpu", "neon" }, { "cpu", "i8mm" },   { "cpu", "bf16" },
};
enum { N_NAMES = 3, N_DEVICES = sizeof devices / sizeof *devices, MOST = 64 };

/* NULL: this machine or this build has no such ISA. */
static cb_model *open_model(const char *path, int device)
{
    const struct cb_model_params p = { .n_threads = 2,
                                       .device = devices[device].device,
                                       .isa = devices[device].isa };

    return cb_toy_open_file(path, &p);
}

/* Numbers of a JSON list -> x; returns how many */
static int read_list(const json_t *list, double *x, int most)
{
    const int n = (int)json_array_size(list);

    ck_assert(n > 0 && n <= most);
    for (int i = 0; i < n; i++)
        x[i] = json_number_value(json_array_get(list, (size_t)i));
    return n;
}

/* ---- PyTorch ---- */

static void compare(cb_session *s, const json_t *of, int pool)
{
    const json_t *want_list = json_object_get(of, pools[pool]);
    struct cb_embedding how = { (enum cb_pooling)(CB_POOL_MEAN + pool), 0 };
    double id[MOST], want[MOST], length = 0;
    const int n = read_list(json_object_get(of, "ids"), id, MOST);
    const int n_embd = read_list(want_list, want, MOST);
    float out[MOST];
    int32_t ids[MOST];

    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)id[i];
    ck_assert_ok(cb_session_embed(s, ids, n, &how, out));
    ck_assert_int_eq(cb_session_len(s), n);
    for (int i = 0; i < n_embd; i++) {
        ck_assert_msg(fabs((double)out[i] - want[i]) < 2e-5, "%s, number %d: %g, not %g",
                      pools[pool], i, (double)out[i], want[i]);
        length += want[i] * want[i];
    }
    how.normalize = 1;
    ck_assert_ok(cb_session_embed(s, ids, n, &how, out));
    for (int i = 0; i < n_embd; i++)
        ck_assert_double_lt(fabs((double)out[i] - want[i] / sqrt(length)), 1e-5);
}

/* Loop index: model, device */
START_TEST(embeddings_are_those_of_pytorch)
{
    const char *name = names[_i / N_DEVICES];
    static const int chunk[] = { 0, 7 };
    json_error_t e;
    char path[4200];
    json_t *all;
    cb_model *m;

    snprintf(path, sizeof path, "%s/tiny-embeddings.json", cb_recipe_folder());
    all = json_load_file(path, 0, &e);
    ck_assert_msg(all != NULL, "%s: %s", path, e.text);
    snprintf(path, sizeof path, "%s/tiny-%s.gguf", cb_recipe_folder(), name);
    m = open_model(path, _i % N_DEVICES);
    for (int i = 0; m && i < 2; i++) {
        cb_session *s = cb_toy_exact_session(m, MOST, chunk[i]);
        for (int pool = 0; pool < 3; pool++)
            compare(s, json_object_get(all, name), pool);
        cb_session_close(s);
    }
    cb_model_close(m);
    json_decref(all);
}
END_TEST

/* ---- what a file says ---- */

/* A tiny model whose file says so; pooling -1, eos -1: nothing */
static const char *save(int pooling, int eos, int causal)
{
    struct tiny t = cb_tiny_small("qwen2");
    static char path[4200];
    struct gguf_make m;

    snprintf(path, sizeof path, "%s/says.gguf", cb_folder_make("embedding"));
    cb_tiny_make(&t, &m);
    if (pooling >= 0)
        cb_gguf_put_i64(&m.w, "qwen2.pooling_type", GGUF_U32, pooling);
    if (eos >= 0)
        cb_gguf_put_bool(&m.w, "tokenizer.ggml.add_eos_token", eos);
    if (!causal)
        cb_gguf_put_bool(&m.w, "qwen2.attention.causal", 0);
    cb_make_save(&m, path);
    return path;
}

START_TEST(pooling_of_the_file)
{
    /* file -> what it is used as; without a word, and with "none", the last token */
    static const enum cb_pooling used[] = { CB_POOL_LAST, CB_POOL_LAST, CB_POOL_MEAN, CB_POOL_CLS,
                                            CB_POOL_LAST };
    const int32_t ids[] = { 5, 6, 7, 8 };

    for (int file = -1; file <= 3; file++) {
        struct cb_embedding how = { CB_POOL_MODEL, 0 };
        cb_model *m = open_model(save(file, -1, 1), 1);
        cb_session *s = cb_toy_exact_session(m, MOST, 0);
        struct cb_model_info info;
        float own[1024], asked[1024];
        cb_model_get_info(m, &info);
        ck_assert_int_eq(info.pooling, file > 0 ? file : CB_POOL_MODEL);
        ck_assert_int_le(info.n_embd, 1024);
        ck_assert_ok(cb_session_embed(s, ids, 4, NULL, own));
        how.pooling = used[file + 1];
        ck_assert(!cb_session_embed(s, ids, 4, &how, asked));
        ck_assert_mem_eq(own, asked, (size_t)info.n_embd * sizeof *own);
        cb_session_close(s);
        cb_model_close(m);
        cb_folder_remove();
    }
}
END_TEST

START_TEST(end_of_texts)
{
    for (int eos = -1; eos <= 1; eos++) {
        cb_model *m = open_model(save(-1, eos, 1), 1);
        struct cb_model_info info;
        int32_t *plain, *ended;
        int n_plain, n;
        cb_model_get_info(m, &info);
        ck_assert(!cb_tokenize(m, "two words", 9, CB_TOK_BOS, &plain, &n_plain));
        ck_assert(!cb_tokenize(m, "two words", 9, CB_TOK_BOS | CB_TOK_EOS, &ended, &n));
        ck_assert_int_eq(n, n_plain + (eos == 1));
        ck_assert_mem_eq(plain, ended, (size_t)n_plain * sizeof *plain);
        if (eos == 1)
            ck_assert_int_eq(ended[n - 1], info.eos);
        free(plain);
        free(ended);
        cb_model_close(m);
        cb_folder_remove();
    }
}
END_TEST

/* ---- what is refused ---- */

START_TEST(models_without_embeddings)
{
    const int32_t ids[] = { 5, 6 };
    float out[1024];
    cb_session *s;
    cb_model *m;

    ck_assert_int_eq(cb_model_open(save(-1, -1, 0), NULL, &m), CB_EUNSUPPORTED);
    ck_assert_msg(strstr(cb_error(), "an encoder") != NULL, "%s", cb_error());
    cb_folder_remove();
    m = open_model(save(4, -1, 1), 1); /* it ranks */
    s = cb_toy_exact_session(m, MOST, 0);
    ck_assert_int_eq(cb_session_embed(s, ids, 2, NULL, out), CB_EUNSUPPORTED);
    ck_assert_msg(strstr(cb_error(), "ranks") != NULL, "%s", cb_error());
    ck_assert(!cb_session_embed(s, ids, 2, &(struct cb_embedding){ CB_POOL_MEAN, 0 }, out));
    cb_session_close(s);
    cb_model_close(m);
    cb_folder_remove();
}
END_TEST

static void no_logits(void *arg, int i, const float *logits)
{
    (void)arg, (void)i, (void)logits;
    ck_abort();
}

START_TEST(bad_arguments)
{
    const struct cb_prefill both = { .logits = no_logits, .states = no_logits };
    cb_model *m = open_model(save(-1, -1, 1), 1);
    cb_session *s = cb_toy_exact_session(m, MOST, 0);
    int32_t ids[MOST + 1] = { 5, 6 };
    float out[1024];

    ck_assert_int_eq(cb_session_embed(s, ids, 0, NULL, out), CB_EARG);
    ck_assert_int_eq(cb_session_embed(s, ids, MOST + 1, NULL, out), CB_EFULL);
    ck_assert_int_eq(
        cb_session_embed(s, ids, 2, &(struct cb_embedding){ (enum cb_pooling)4, 0 }, out), CB_EARG);
    ck_assert_int_eq(cb_session_prefill(s, ids, 2, &both), CB_EARG);
    ck_assert(!cb_session_prefill_begin(s, ids, 2, NULL));
    ck_assert_int_eq(cb_session_embed(s, ids, 2, NULL, out), CB_EARG);
    cb_session_prefill_cancel(s);
    ck_assert(!cb_session_embed(s, ids, 2, NULL, out));
    ck_assert(!cb_session_decode(s, 7)); /* and the timeline goes on */
    ck_assert_int_eq(cb_session_len(s), 3);
    cb_session_close(s);
    cb_model_close(m);
    cb_folder_remove();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("embedding");
    TCase *t = tcase_create("embedding");

    tcase_add_loop_test(t, embeddings_are_those_of_pytorch, 0, N_NAMES * N_DEVICES);
    tcase_add_test(t, pooling_of_the_file);
    tcase_add_test(t, end_of_texts);
    tcase_add_test(t, models_without_embeddings);
    tcase_add_test(t, bad_arguments);
    tcase_set_timeout(t, 120);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
