/* SPDX-License-Identifier: MIT */
/* check_variants.c - two files that say the same in different ways: a key left out, under its first
 * name, or with a number for each layer. Their logits are the same, bit for bit. Files that ask for
 * what is not supported are refused, and the error names the key. Variants that llama.cpp computes
 * are recipes of check_families (tests/vectors/make_variants.py). */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctxbank.h"
#include "kit/recipe.h"
#include "kit/suite.h"
#include "model/model.h"

enum { EDITS = 3 };

/* The key, without the family's name, becomes `value`, JSON; kind NULL: it is dropped */
struct edit {
    const char *key, *kind, *value;
};

static const char file[] = "check_variants.gguf";

static void edit(struct recipe *r, const struct edit *e)
{
    json_t *kv = json_object_get(r->root, "kv");
    char key[128];

    snprintf(key, sizeof key, "%s.%s", json_string_value(json_object_get(r->root, "arch")), e->key);
    for (size_t i = json_array_size(kv); i-- > 0;)
        if (!strcmp(json_string_value(json_array_get(json_array_get(kv, i), 0)), key))
            json_array_remove(kv, i);
    if (e->kind)
        json_array_append_new(
            kv, json_pack("[s,s,o]", key, e->kind, json_loads(e->value, JSON_DECODE_ANY, NULL)));
}

static void save(struct recipe *r, const char *recipe, const struct edit *e)
{
    struct gguf_make m;

    cb_recipe_open(r, recipe);
    for (int i = 0; i < EDITS && e[i].key; i++)
        edit(r, &e[i]);
    cb_recipe_make(r, &m);
    cb_make_save(&m, file);
}

/* Logits after the last token of the recipe with these edits, and the hash of its weights; caller
 * frees */
static float *logits_of(const char *recipe, const struct edit *e, size_t *bytes, uint64_t *hash)
{
    const struct cb_model_params how = { .n_threads = 1 };
    struct recipe r;
    cb_session *s;
    cb_model *m;
    float *out;

    save(&r, recipe, e);
    ck_assert_ok(cb_model_open(file, &how, &m));
    ck_assert_ok(cb_model_weights_hash(m, hash));
    ck_assert_ok(cb_session_open(m, &(struct cb_session_params){ .n_ctx = r.n_ctx }, &s));
    ck_assert_ok(cb_session_prefill(s, r.ids, r.n, NULL));
    *bytes = (size_t)r.n_vocab * sizeof *out;
    out = malloc(*bytes);
    ck_assert_ptr_nonnull(out);
    memcpy(out, cb_session_logits(s), *bytes);
    cb_session_close(s);
    cb_model_close(m);
    cb_recipe_close(&r);
    unlink(file);
    return out;
}

#define LINEAR                                                                                     \
    {                                                                                              \
        { "rope.scaling.type", "string", "\"linear\"" },                                           \
        {                                                                                          \
            "rope.scaling.factor", "float32", "4"                                                  \
        }                                                                                          \
    }

static const struct {
    const char *recipe;
    struct edit a[EDITS], b[EDITS];
} pairs[] = {
    { "family-gemma2.json",
      { { "attn_logit_softcapping", "float32", "50" },
        { "final_logit_softcapping", "float32", "30" },
        { "attention.sliding_window", "uint32", "4096" } },
      { { "attn_logit_softcapping", 0, 0 },
        { "final_logit_softcapping", 0, 0 },
        { "attention.sliding_window", 0, 0 } } },
    { "family-glm-dsa.json",
      { { "expert_gating_func", "uint32", "2" } },
      { { "expert_gating_func", 0, 0 } } },
    { "family-afmoe.json",
      { { "expert_weights_norm", "bool", "true" } },
      { { "expert_weights_norm", 0, 0 } } },
    { "family-qwen3.json", LINEAR, { { "rope.scale_linear", "float32", "4" } } },
    { "family-qwen3.json", LINEAR, { { "rope.scaling.factor", "float32", "4" } } },
    { "family-qwen3.json", { { 0 } }, { { "rope.scaling.type", "string", "\"linear\"" } } },
    { "family-qwen3.json", { { 0 } }, { { "attention.head_count", "ints", "[4, 4]" } } },
    { "family-qwen3moe.json",
      { { 0 } },
      { { "expert_used_count", "ints", "[3, 3]" },
        { "expert_feed_forward_length", "ints", "[32, 32]" } } },
    { "family-deepseek3.json", /* the factor is 4 */
      { { "rope.scaling.yarn_log_multiplier", 0, 0 } },
      { { "rope.scaling.yarn_log_multiplier", "float32", "1e-9" },
        { "rope.scaling.attn_factor", "float32", "1.1386294" } } },
    { "family-gemma3.json",
      { { 0 } },
      { { "attention.sliding_window_pattern", "uint32s", "[1, 1, 1, 1, 1, 0, 1]" } } },
};

/* Loop index: a pair */
START_TEST(same_logits)
{
    size_t n_a, n_b;
    uint64_t hash;
    float *a = logits_of(pairs[_i].recipe, pairs[_i].a, &n_a, &hash);
    float *b = logits_of(pairs[_i].recipe, pairs[_i].b, &n_b, &hash);

    ck_assert_uint_eq(n_a, n_b);
    ck_assert_msg(!memcmp(a, b, n_a), "%s with %s: other logits", pairs[_i].recipe,
                  pairs[_i].b[0].key);
    free(a);
    free(b);
}
END_TEST

/* These edits change logits, and those of keys and values the hash that saved banks have. */
static const struct {
    const char *recipe;
    struct edit e[EDITS];
    int hashed;
} others[] = {
    { "family-qwen3.json", LINEAR, 1 },
    { "family-glm4.json", { { "rope.dimension_sections", "ints", "[2, 1, 1, 0]" } }, 1 },
    { "family-qwen3moe.json", { { "expert_used_count", "ints", "[3, 2]" } }, 1 },
    { "family-afmoe.json", { { "expert_weights_norm", "bool", "false" } }, 0 },
};

/* Loop index: an edit */
START_TEST(other_logits)
{
    static const struct edit none[EDITS];
    uint64_t before, after;
    size_t n;
    float *a = logits_of(others[_i].recipe, none, &n, &before);
    float *b = logits_of(others[_i].recipe, others[_i].e, &n, &after);

    ck_assert_msg(memcmp(a, b, n) != 0, "%s: the same logits", others[_i].recipe);
    if (others[_i].hashed)
        ck_assert_uint_ne(before, after);
    free(a);
    free(b);
}
END_TEST

static const struct {
    const char *recipe;
    struct edit e[EDITS];
    const char *says;
} refused[] = {
    { "family-qwen3.json",
      { { "attention.head_count", "ints", "[4, 2]" } },
      "key qwen3.attention.head_count: layers of 4 and of 2: not supported" },
    { "family-qwen3.json",
      { { "attention.head_count", "ints", "[0, 0]" } },
      "key qwen3.attention.head_count: 0 is not" },
    { "family-qwen3.json",
      { { "rope.scale_linear", "float32", "-1" } },
      "key qwen3.rope.scale_linear: -1 is not" },
    { "family-qwen3moe.json",
      { { "expert_used_count", "ints", "[3, 0]" } },
      "key qwen3moe.expert_used_count: 0 is not" },
    { "family-gemma3.json",
      { { "attention.sliding_window_pattern", "ints", "[1, 1, 1, 1, 1, 0, 2]" } },
      "key gemma3.attention.sliding_window_pattern: 2 is not" },
    { "family-glm4.json",
      { { "rope.dimension_sections", "string", "\"8\"" } },
      "key glm4.rope.dimension_sections: is no array" },
};

/* Loop index: a file */
START_TEST(refusals)
{
    struct recipe r;
    cb_model *m;

    save(&r, refused[_i].recipe, refused[_i].e);
    ck_assert_int_lt(cb_model_open(file, NULL, &m), 0);
    ck_assert_msg(strstr(cb_error(), refused[_i].says) != NULL, "%s", cb_error());
    cb_recipe_close(&r);
    unlink(file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("variants");
    TCase *t = tcase_create("variants");

    tcase_add_loop_test(t, same_logits, 0, (int)(sizeof pairs / sizeof *pairs));
    tcase_add_loop_test(t, other_logits, 0, (int)(sizeof others / sizeof *others));
    tcase_add_loop_test(t, refusals, 0, (int)(sizeof refused / sizeof *refused));
    suite_add_tcase(suite, t);
    return cb_suite_run(suite);
}
