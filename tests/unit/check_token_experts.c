/* SPDX-License-Identifier: MIT */
/* check_token_experts.c - a single token's experts work together, a batch's one after the other:
 * the same logits, to the bit, for any number of threads. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctxbank.h"
#include "engine/session.h"
#include "engine/token_experts.h"
#include "kit/recipe.h"
#include "kit/suite.h"

enum { PROMPT = 9, STEPS = 12 };

/* together: whether experts of this family fit: those of llama4 read what their weight scales, and
 * nemotron_h_moe has no gates */
static const struct {
    const char *name;
    int together;
} families[] = {
    { "mixtral", 1 },    { "gpt-oss", 1 },    { "qwen3moe", 1 }, { "qwen2moe", 1 },
    { "deepseek2", 1 },  { "deepseek4", 1 },  { "glm4moe", 1 },  { "gemma4moe", 1 },
    { "minimax-m3", 1 }, { "granitemoe", 1 }, { "llama4", 0 },   { "nemotron_h_moe", 0 },
    { "afmoe", 1 },      { "minimax-m2", 1 },
};
enum { N_FAMILY = sizeof families / sizeof *families };

static struct cb_model *open_family(const char *name, int n_threads)
{
    const struct cb_model_params p = { .n_threads = n_threads };
    struct cb_model *m;
    struct gguf_make g;
    struct recipe r;
    char path[80];

    snprintf(path, sizeof path, "family-%s.json", name);
    cb_recipe_open(&r, path);
    snprintf(path, sizeof path, "check_token_experts.%d.gguf", (int)getpid());
    cb_recipe_make(&r, &g);
    cb_make_save(&g, path);
    ck_assert_ok(cb_model_open(path, &p, &m));
    unlink(path);
    cb_recipe_close(&r);
    return m;
}

static cb_session *open_session(struct cb_model *m, int from)
{
    const struct cb_session_params p = { .n_ctx = 64, .type_k = "f32", .type_v = "f32" };
    int32_t prompt[PROMPT];
    cb_session *s;

    for (int i = 0; i < PROMPT; i++)
        prompt[i] = (from + 29 * i) % 256;
    ck_assert_ok(cb_session_open(m, &p, &s));
    ck_assert_ok(cb_session_prefill(s, prompt, PROMPT, NULL));
    return s;
}

/* Whether the first experts of the first layer that has some fit */
static int fit(const struct cb_model *m, const struct cb_session *s)
{
    const struct ffn *f[2];
    int l = 0;

    while (!m->layer[l].moe)
        l++;
    f[0] = &m->layer[l].moe->expert[0];
    f[1] = &m->layer[l].moe->expert[1];
    return !m->hp.moe.of_input && cb_token_experts_fit(s, f, 2);
}

START_TEST(alone_as_in_a_batch)
{
    struct cb_model *one = open_family(families[_i].name, 1);
    struct cb_model *three = open_family(families[_i].name, 3);
    const size_t bytes = (size_t)one->hp.n_vocab * sizeof(float);
    cb_session *alone = open_session(one, 1), *other = open_session(three, 1);
    cb_session *batch[2] = { open_session(one, 1), open_session(one, 77) };

    ck_assert_int_eq(fit(one, alone), families[_i].together);
    for (int k = 0; k < STEPS; k++) {
        const int32_t tok[2] = { 5 + 17 * k, 200 - 11 * k };
        ck_assert_ok(cb_session_decode(alone, tok[0]));
        ck_assert_ok(cb_session_decode(other, tok[0]));
        ck_assert_ok(cb_decode_batch(batch, tok, 2));
        ck_assert_mem_eq(cb_session_logits(alone), cb_session_logits(batch[0]), bytes);
        ck_assert_mem_eq(cb_session_logits(alone), cb_session_logits(other), bytes);
    }
    for (int i = 0; i < 2; i++)
        cb_session_close(batch[i]);
    cb_session_close(alone);
    cb_session_close(other);
    cb_model_close(one);
    cb_model_close(three);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("token_experts");
    TCase *c = tcase_create("all");

    tcase_add_loop_test(c, alone_as_in_a_batch, 0, N_FAMILY);
    tcase_set_timeout(c, 60);
    suite_add_tcase(suite, c);
    return cb_suite_run(suite);
}
