/* SPDX-License-Identifier: MIT */
/* check_latent.c - latent attention, whose bank holds one row as key and value: every policy and
 * form of the bank saves, loads, forks and plans such rows, or is refused with the reason; types of
 * rows and of weights agree with f32; files of both forms that do not fit are refused. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/session.h"
#include "gguf/dtype.h"
#include "kit/folder.h"
#include "kit/recipe.h"
#include "kit/settings.h"
#include "kit/suite.h"
#include "kit/toy.h"

enum { N_PROMPT = 200, N_STEP = 12, N_CTX = 400 };

static struct recipe recipe; /* of the form with kv_b by head */
static cb_model *m;
static char path[4096], bank[4096];

static cb_model *open_as(const char *isa)
{
    const struct cb_model_params p = { .n_threads = 2, .isa = isa };
    cb_model *x;

    return cb_model_open(path, &p, &x) ? NULL : x;
}

static void setup(void)
{
    struct gguf_make make;
    const char *folder = cb_folder_make("latent");

    snprintf(path, sizeof path, "%s/model", folder);
    snprintf(bank, sizeof bank, "%s/bank", folder);
    cb_recipe_open(&recipe, "family-deepseek3.json");
    cb_recipe_make(&recipe, &make);
    cb_make_save(&make, path);
    m = open_as(NULL);
    ck_assert_msg(m != NULL, "%s", cb_error());
}

static void teardown(void)
{
    cb_model_close(m);
    cb_recipe_close(&recipe);
    cb_folder_remove();
}

static void same(const cb_session *a, const cb_session *b, const char *what)
{
    struct cb_memory x, y;

    ck_assert_msg(
        !memcmp(cb_session_logits(a), cb_session_logits(b), (size_t)recipe.n_vocab * sizeof(float)),
        "%s", what);
    cb_session_memory(a, &x);
    cb_session_memory(b, &y);
    ck_assert_msg(x.kv_bytes == y.kv_bytes && x.kv_peak_bytes == y.kv_peak_bytes, "%s: bytes",
                  what);
}

/* ---- every setting ---- */

static int is_refused(const struct setting *r)
{
    const struct cb_session_params p = {
        .n_ctx = N_CTX, .type_k = r->type, .type_v = cb_toy_values(r->type), .policy = r->policy
    };
    cb_session *s;

    if (!strncmp(r->policy, "infinigen", 9)) {
        ck_assert_int_lt(cb_session_open(m, &p, &s), 0);
        ck_assert_msg(strstr(cb_error(), "latent attention") != NULL, "%s", cb_error());
        return 1;
    }
    if (strncmp(r->type, "kivi", 4) && strcmp(r->type, "planes") &&
        !cb_setting_parts_rows(r->policy))
        return 0;
    ck_assert_int_lt(cb_session_open(m, &p, &s), 0);
    ck_assert_msg(strstr(cb_error(), "one row as key and value") != NULL, "%s", cb_error());
    return 1;
}

/* The plan is right to 1%: a head may have one row more than slots. */
static void check_plan(const cb_session *s, const char *what)
{
    struct cb_memory now, plan;

    cb_session_memory(s, &now);
    ck_assert_ok(cb_session_plan(s, N_PROMPT, N_STEP, &plan));
    ck_assert_msg((double)now.kv_bytes <= 1.01 * (double)plan.kv_bytes &&
                      (plan.at_most || (double)now.kv_bytes >= 0.99 * (double)plan.kv_bytes),
                  "%s: %llu bytes, planned %llu", what, (unsigned long long)now.kv_bytes,
                  (unsigned long long)plan.kv_bytes);
    ck_assert_msg((double)now.kv_peak_bytes <= 1.01 * (double)plan.kv_peak_bytes,
                  "%s: peak of %llu bytes, planned %llu", what,
                  (unsigned long long)now.kv_peak_bytes, (unsigned long long)plan.kv_peak_bytes);
}

START_TEST(settings)
{
    const struct setting *r = &cb_setting[_i];
    cb_session *s, *l, *f;

    if (is_refused(r))
        return;
    s = cb_setting_session(m, r, N_CTX);
    cb_recipe_prompt(&recipe, s, 0, N_PROMPT);
    cb_recipe_steps(&recipe, s, N_PROMPT, N_STEP);
    check_plan(s, r->policy);
    ck_assert_ok(cb_session_save(s, bank));
    ck_assert_ok(cb_session_load(m, bank, 0, &l));
    ck_assert_ok(cb_session_fork(s, &f));
    for (int i = 0; i < 2; i++) {
        cb_recipe_steps(&recipe, s, 300, N_STEP);
        cb_recipe_steps(&recipe, l, 300, N_STEP);
        cb_recipe_steps(&recipe, f, 300, N_STEP);
        same(s, l, r->policy);
        same(s, f, r->policy);
        if (!i) {
            cb_recipe_prompt(&recipe, s, 350, 60);
            cb_recipe_prompt(&recipe, l, 350, 60);
            cb_recipe_prompt(&recipe, f, 350, 60);
        }
    }
    cb_session_close(s);
    cb_session_close(l);
    cb_session_close(f);
}
END_TEST

/* ---- the bank ---- */

static cb_session *filled(cb_model *x, const char *type_k, const char *type_v)
{
    const struct cb_session_params p = { .n_ctx = N_CTX, .type_k = type_k, .type_v = type_v };
    cb_session *s;

    ck_assert_ok(cb_session_open(x, &p, &s));
    cb_recipe_prompt(&recipe, s, 0, N_PROMPT);
    cb_recipe_steps(&recipe, s, N_PROMPT, N_STEP);
    return s;
}

/* A token takes n_rot + rank numbers in each layer, and nothing else. */
START_TEST(bytes)
{
    const struct hparams *hp = &m->hp;
    cb_session *s = filled(m, NULL, NULL);
    struct cb_memory x;

    cb_session_memory(s, &x);
    ck_assert_int_eq(hp->hd, hp->n_rot + hp->latent.rank);
    ck_assert_uint_eq(x.kv_bytes, (uint64_t)(N_PROMPT + N_STEP) * (uint64_t)hp->n_layer *
                                      (uint64_t)hp->hd * sizeof(uint16_t));
    ck_assert_uint_eq(x.kv_bytes, x.kv_full_bytes);
    ck_assert_uint_eq(x.kv_bytes, x.kv_read_bytes_per_token);
    cb_session_close(s);
}
END_TEST

/* Types of rows, on every ISA, beside f32 */
START_TEST(types)
{
    static const char *const isas[] = { "scalar", "avx2", "avx512", "neon", "i8mm", "bf16" };
    static const struct {
        const char *name;
        double most;
    } type[] = { { "f32", 1e-5 }, { "f16", 3e-3 }, { "bf16", 3e-2 }, { "q8_0", 3e-2 } };
    cb_session *want = filled(m, "f32", "f32");

    for (int i = 0; i < 4; i++) {
        cb_model *x = open_as(isas[i]);
        for (int t = 0; x && t < 4; t++) {
            cb_session *s = filled(x, type[t].name, type[t].name);
            const double off = cb_recipe_apart(&recipe, want, s);
            ck_assert_msg(off < type[t].most, "%s, %s: off by %g", isas[i], type[t].name, off);
            cb_session_close(s);
        }
        cb_model_close(x);
    }
    cb_session_close(want);
}
END_TEST

START_TEST(two_types)
{
    const struct cb_session_params p = { .n_ctx = 64, .type_k = "f16", .type_v = "q8_0" };
    const struct cb_session_params q = { .n_ctx = 64, .policy = "d2o:merge_keys=0" };
    cb_session *s;

    ck_assert_int_eq(cb_session_open(m, &p, &s), CB_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(cb_error(), "must be the same"));
    cb_toy_refused(m, &q, "one row as key and value");
}
END_TEST

/* ---- files ---- */

static const json_t *tensor_of(const struct recipe *r, const char *name)
{
    const json_t *all = json_object_get(r->root, "tensors");

    for (size_t i = 0; i < json_array_size(all); i++)
        if (!strcmp(json_string_value(json_array_get(json_array_get(all, i), 0)), name))
            return json_array_get(all, i);
    ck_abort_msg("%s", name);
}

/* Tensors or keys that contradict each other */
START_TEST(refused)
{
    static const struct {
        const char *tensor, *says;
        int dim, size;
    } bad[] = {
        { "blk.1.attn_k_b.weight", "attn_k_b.weight: shape", 0, 15 },
        { "blk.1.attn_v_b.weight", "attn_v_b.weight: shape", 2, 3 },
        { "blk.2.attn_kv_a_mqa.weight", "attn_kv_a_mqa.weight: shape", 1, 31 },
        { "blk.0.attn_kv_a_norm.weight", "attn_kv_a_norm.weight: shape", 0, 8 },
        { "blk.0.attn_output.weight", "attn_output.weight: shape", 0, 64 },
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct recipe r;
        struct gguf_make make;
        cb_model *x;
        cb_recipe_open(&r, "family-deepseek3.json");
        json_array_set_new(json_array_get(tensor_of(&r, bad[i].tensor), 1), (size_t)bad[i].dim,
                           json_integer(bad[i].size));
        cb_recipe_make(&r, &make);
        cb_make_save(&make, bank);
        ck_assert_int_eq(cb_model_open(bank, NULL, &x), CB_EFORMAT);
        ck_assert_msg(strstr(cb_error(), bad[i].says) != NULL, "%s", cb_error());
        cb_recipe_close(&r);
    }
}
END_TEST

START_TEST(refused_sizes)
{
    static const struct {
        const char *key, *says;
        int value;
    } bad[] = {
        { "deepseek2.attention.kv_lora_rank", "do not fit a latent", 8 },
        { "deepseek2.attention.kv_lora_rank", "must be even, and at most", 576 },
        { "deepseek2.attention.kv_lora_rank", "must be even, and at most", 23 },
        { "deepseek2.attention.key_length_mla", "do not fit a latent", 8 },
        { "deepseek2.attention.value_length_mla", "do not fit a latent", 25 },
        { "deepseek2.expert_group_count", "cannot be chosen", 3 },
        { "deepseek2.expert_group_used_count", "cannot be chosen", 1 },
        { "deepseek2.expert_group_count", "is not between", 100000 },
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct recipe r;
        struct gguf_make make;
        cb_model *x;
        json_t *kv, *row;
        size_t j;
        cb_recipe_open(&r, "family-deepseek3.json");
        kv = json_object_get(r.root, "kv");
        json_array_foreach(kv, j, row)
        {
            if (!strcmp(json_string_value(json_array_get(row, 0)), bad[i].key))
                json_array_set_new(row, 2, json_integer(bad[i].value));
        }
        cb_recipe_make(&r, &make);
        cb_make_save(&make, bank);
        ck_assert_int_eq(cb_model_open(bank, NULL, &x), CB_EFORMAT);
        ck_assert_msg(strstr(cb_error(), bad[i].says) != NULL, "%zu: %s", i, cb_error());
        cb_recipe_close(&r);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("latent");
    TCase *t = tcase_create("latent");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, settings, 0, cb_n_setting);
    tcase_add_test(t, bytes);
    tcase_add_test(t, types);
    tcase_add_test(t, two_types);
    tcase_add_test(t, refused);
    tcase_add_test(t, refused_sizes);
    suite_add_tcase(suite, t);
    return cb_suite_run(suite);
}
