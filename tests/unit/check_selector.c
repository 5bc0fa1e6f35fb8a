/* SPDX-License-Identifier: MIT */
/* check_selector.c - trained selectors: decoded tokens read what scores in double precision choose;
 * a prompt at once, in pieces and in chunks, a fork, a saved bank and a timeline that was cut back
 * give the same bits, below and above top_k; tokens decoded one by one and together agree; other
 * policies and damaged metadata are refused with the reason. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bank/store_areas.h"
#include "engine/session.h"
#include "kit/folder.h"
#include "kit/recipe.h"
#include "kit/suite.h"
#include "kit/toy.h"

enum { N_CTX = 300, N_PROMPT = 90, N_STEP = 8, N_RECIPE = 3 };
static const char *const recipes[N_RECIPE] = { "family-deepseek32.json",
                                               "family-deepseek32yarn.json",
                                               "family-glm-dsa.json" };

static struct recipe recipe;
static cb_model *m;
static char path[4096], bank[4096];

static void setup(void)
{
    const char *folder = cb_folder_make("selector");

    snprintf(path, sizeof path, "%s/model", folder);
    snprintf(bank, sizeof bank, "%s/bank", folder);
}

static void teardown(void)
{
    cb_folder_remove();
}

static void open_recipe(int i)
{
    const struct cb_model_params p = { .n_threads = 2 };
    struct gguf_make make;

    cb_recipe_open(&recipe, recipes[i]);
    cb_recipe_make(&recipe, &make);
    cb_make_save(&make, path);
    ck_assert_ok(cb_model_open(path, &p, &m));
}

static void close_recipe(void)
{
    cb_model_close(m);
    cb_recipe_close(&recipe);
}

static cb_session *open_session(const char *type, const char *policy, int chunk)
{
    const struct cb_session_params p = {
        .n_ctx = N_CTX, .chunk = chunk, .type_k = type, .type_v = type, .policy = policy
    };
    cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    return s;
}

static void same(const cb_session *a, const cb_session *b, const char *what)
{
    ck_assert_msg(
        !memcmp(cb_session_logits(a), cb_session_logits(b), (size_t)recipe.n_vocab * sizeof(float)),
        "%s: off by %g", what, cb_recipe_apart(&recipe, a, b));
}

/* ---- chosen sets ---- */

struct seen {
    cb_session *s;
    int n_layer;
    uint8_t of_layer[8][N_CTX]; /* what each layer has read for the token */
};

/* The stored keys of layer l's selector, f32 rows */
static const float *index_keys(const struct attention *a, int l)
{
    struct area area;

    ck_assert_int_eq(cb_attention_areas(a, l, &area), 1);
    ck_assert_int_eq(area.kind, AREA_INDEX_KEYS);
    return area.at;
}

static double score(const cb_session *s, const float *key)
{
    const struct selector_params *p = &s->model->hp.selector;
    const float *q = s->w.index, *w = q + (p->n_head + 1) * p->hd;
    double sum = 0;

    for (int h = 0; h < p->n_head; h++) {
        double dot = 0;
        for (int c = 0; c < p->hd; c++)
            dot += (double)q[h * p->hd + c] * (double)key[c];
        sum += (double)w[h] * fmax(dot, 0);
    }
    return sum;
}

/* Layer l has attended for the token at position n - 1. Each token that it has read scores as high
 * as each one that it has not, or they are as good as equal. */
static void look(void *arg, const struct attention *a, int l)
{
    struct seen *x = arg;
    const struct selector *y = a->model->layer[l].selector;
    const struct selector_params *p = &a->model->hp.selector;
    const int n = a->bank->n_seen + 1;
    uint8_t *read = x->of_layer[l];
    double least = INFINITY, most = -INFINITY;
    int n_read = 0;

    memset(read, 0, N_CTX);
    for (int h = 0; h < a->model->hp.n_head; h++)
        cb_reads_mark(a, l, h, read);
    for (int i = 0; i < n; i++)
        n_read += read[i];
    ck_assert_int_eq(n_read, n < p->top_k ? n : p->top_k);
    x->n_layer++;
    if (y->back) {
        ck_assert(!memcmp(read, x->of_layer[l - y->back], N_CTX));
        return;
    }
    for (int i = 0; n > p->top_k && i < n; i++) {
        const double z = score(x->s, index_keys(a, l) + (size_t)i * (size_t)p->hd);
        least = read[i] && z < least ? z : least;
        most = !read[i] && z > most ? z : most;
    }
    ck_assert_msg(n <= p->top_k || least >= most - 1e-5 * fabs(most),
                  "layer %d, token %d: %.9g was read, %.9g was not", l, n - 1, least, most);
}

START_TEST(chosen_sets)
{
    struct seen x = { 0 };
    const struct read_watch watch = { look, &x };

    open_recipe(_i);
    x.s = open_session("f32", NULL, 0);
    ck_assert_str_eq(x.s->policy->m->name, "own");
    x.s->attention.watch = &watch;
    cb_recipe_steps(&recipe, x.s, 0, 40);
    cb_recipe_prompt(&recipe, x.s, 40, N_PROMPT);
    cb_recipe_steps(&recipe, x.s, 40 + N_PROMPT, N_STEP);
    ck_assert_int_eq(x.n_layer, (40 + N_STEP) * m->hp.n_layer);
    x.s->attention.watch = NULL;
    cb_session_close(x.s);
    close_recipe();
}
END_TEST

/* ---- the same in any way ---- */

static void pieces(const char *type, const char *policy)
{
    cb_session *want = open_session(type, policy, 0), *chunks = open_session(type, policy, 7);
    cb_session *fed = open_session(type, policy, 0);

    cb_recipe_prompt(&recipe, want, 0, N_PROMPT);
    cb_recipe_prompt(&recipe, chunks, 0, N_PROMPT);
    same(want, chunks, "chunks of 7");
    for (int i = 0; i < N_PROMPT; i += 7)
        cb_recipe_prompt(&recipe, fed, i, N_PROMPT - i < 7 ? N_PROMPT - i : 7);
    same(want, fed, "prompts of 7");
    cb_recipe_steps(&recipe, want, N_PROMPT, N_STEP);
    cb_recipe_steps(&recipe, chunks, N_PROMPT, N_STEP);
    cb_recipe_steps(&recipe, fed, N_PROMPT, N_STEP);
    same(want, chunks, "tokens after chunks");
    same(want, fed, "tokens after prompts of 7");
    cb_session_close(want);
    cb_session_close(chunks);
    cb_session_close(fed);
}

/* A fork, a saved bank, and a session that goes back n tokens continue alike. */
static void copies(const char *type, const char *policy, int n)
{
    cb_session *want = open_session(type, policy, 0), *s = open_session(type, policy, 0), *f, *l;

    cb_recipe_prompt(&recipe, want, 0, n);
    cb_recipe_prompt(&recipe, s, 0, n);
    cb_recipe_steps(&recipe, s, 200, N_STEP);
    ck_assert_ok(cb_session_truncate(s, n));
    ck_assert_ok(cb_session_fork(want, &f));
    ck_assert_ok(cb_session_save(want, bank));
    ck_assert_ok(cb_session_load(m, bank, 0, &l));
    for (int i = 0; i < 2; i++) {
        cb_session *const all[] = { want, s, f, l };
        for (int j = 0; j < 4; j++) {
            cb_recipe_prompt(&recipe, all[j], n + 20 * i, 12);
            cb_recipe_steps(&recipe, all[j], n + 20 * i + 12, N_STEP);
        }
        same(want, s, "cut back");
        same(want, f, "fork");
        same(want, l, "saved bank");
    }
    cb_session_close(want);
    cb_session_close(s);
    cb_session_close(f);
    cb_session_close(l);
}

START_TEST(same_in_any_way)
{
    static const char *const how[][2] = { { "f32", "own" },
                                          { "f16", "own:keys=f16" },
                                          { "f16", "own" } };

    open_recipe(_i);
    for (size_t t = 0; t < sizeof how / sizeof *how; t++) {
        pieces(how[t][0], how[t][1]);
        copies(how[t][0], how[t][1], 5); /* below top_k */
        copies(how[t][0], how[t][1], N_PROMPT);
        copies(how[t][0], how[t][1], 130); /* past a block of keys */
    }
    close_recipe();
}
END_TEST

/* Bytes of the bank, index keys among them, its peak, and what a token reads are those planned. */
START_TEST(planned)
{
    static const char *const how[][2] = { { "f32", "own" }, { "f16", "own" } };
    static const int len[] = { 5, N_PROMPT, 127, 131 };

    open_recipe(_i);
    for (size_t i = 0; i < 8; i++) {
        cb_session *s = open_session(how[i / 4][0], how[i / 4][1], 0);
        struct cb_memory plan, now;
        ck_assert_ok(cb_session_plan(s, len[i % 4], N_STEP, &plan));
        cb_recipe_prompt(&recipe, s, 0, len[i % 4]);
        cb_recipe_steps(&recipe, s, 200, N_STEP);
        cb_session_memory(s, &now);
        ck_assert_uint_eq(now.kv_bytes, plan.kv_bytes);
        ck_assert_uint_eq(now.kv_peak_bytes, plan.kv_peak_bytes);
        ck_assert_uint_eq(now.kv_read_bytes_per_token, plan.kv_read_bytes_per_token);
        ck_assert_uint_gt(now.kv_bytes, now.kv_full_bytes);
        ck_assert_ok(cb_session_truncate(s, len[i % 4]));
        cb_session_memory(s, &now);
        ck_assert_ok(cb_session_plan(s, len[i % 4], 0, &plan));
        ck_assert_uint_eq(now.kv_bytes, plan.kv_bytes);
        cb_session_close(s);
    }
    close_recipe();
}
END_TEST

/* One by one, together as a draft is, and in a batch of sessions: to the bit the same */
START_TEST(together)
{
    cb_session *one, *all, *more[2];
    int32_t ids[N_STEP];
    const float *row;

    open_recipe(_i);
    one = open_session("f32", NULL, 0);
    all = open_session("f32", NULL, 0);
    for (int i = 0; i < 2; i++)
        more[i] = open_session("f32", i ? "full" : NULL, 0);
    cb_recipe_prompt(&recipe, one, 0, N_PROMPT);
    cb_recipe_prompt(&recipe, all, 0, N_PROMPT);
    cb_recipe_prompt(&recipe, more[0], 0, N_PROMPT);
    cb_recipe_prompt(&recipe, more[1], 0, N_PROMPT - 3);
    for (int i = 0; i < N_STEP; i++)
        ids[i] = cb_recipe_id(&recipe, N_PROMPT + i);
    ck_assert_ok(cb_session_decode_all(all, ids, N_STEP, &row));
    for (int i = 0; i < N_STEP; i++) {
        const int32_t next[2] = { ids[i], ids[i] };
        ck_assert_ok(cb_session_decode(one, ids[i]));
        ck_assert_ok(cb_decode_batch(more, next, 2));
        ck_assert_msg(!memcmp(cb_session_logits(one), row + (size_t)i * (size_t)recipe.n_vocab,
                              (size_t)recipe.n_vocab * sizeof *row),
                      "token %d of those decoded together", i);
        same(one, more[0], "a batch");
    }
    same(one, all, "after tokens decoded together");
    cb_session_close(one);
    cb_session_close(all);
    cb_session_close(more[0]);
    cb_session_close(more[1]);
    close_recipe();
}
END_TEST

/* ---- refused ---- */

START_TEST(policies)
{
    const struct cb_session_params sieve = { .n_ctx = 64, .policy = "sieve" };
    const struct cb_session_params sparse = { .n_ctx = 64, .prefill = "sieve" };
    const struct cb_session_params full = { .n_ctx = 64, .policy = "full", .prefill = "sieve" };
    cb_session *s;

    open_recipe(_i);
    cb_toy_refused(m, &sieve, "policy sieve: the model was trained to read what its own selector");
    cb_toy_refused(m, &sparse, "not with policy own: the model's own selector");
    cb_toy_refused(m, &full, "not with policy full: the model was trained");
    s = open_session("f32", "full", 0);
    ck_assert_ptr_nonnull(strstr(cb_session_note(s), "policy own uses the selector"));
    cb_session_close(s);
    close_recipe();
}
END_TEST

static void set_key(const char *key, json_t *value)
{
    json_t *row;
    size_t j;

    json_array_foreach(json_object_get(recipe.root, "kv"), j, row)
    {
        if (!strcmp(json_string_value(json_array_get(row, 0)), key))
            json_array_set(row, 2, value);
    }
    json_decref(value);
}

START_TEST(metadata)
{
    static const struct {
        const char *key, *says;
        int value; /* -1: no layer scores */
    } bad[] = {
        { "glm-dsa.attention.indexer.head_count", "is not between", 0 },
        { "glm-dsa.attention.indexer.head_count", "is not between", 1 << 30 },
        { "glm-dsa.attention.indexer.key_length", "must be even", 9 },
        { "glm-dsa.attention.indexer.key_length", "at least the 8 numbers", 6 },
        { "glm-dsa.attention.indexer.key_length", "is not between", 1 << 20 },
        { "glm-dsa.attention.indexer.top_k", "is not between", 0 },
        { "glm-dsa.attention.indexer.head_count", "attn_q_b.weight: shape", 2 },
        { "glm-dsa.attention.indexer.types", "no layer before it", -1 },
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct gguf_make make;
        cb_model *x;
        cb_recipe_open(&recipe, recipes[2]);
        set_key(bad[i].key, bad[i].value < 0 ? json_pack("[b, b, b, b]", 0, 0, 0, 0)
                                             : json_integer(bad[i].value));
        cb_recipe_make(&recipe, &make);
        cb_make_save(&make, path);
        ck_assert_int_eq(cb_model_open(path, NULL, &x), CB_EFORMAT);
        ck_assert_msg(strstr(cb_error(), bad[i].says) != NULL, "%zu: %s", i, cb_error());
        cb_recipe_close(&recipe);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("selector");
    TCase *t = tcase_create("selector");

    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, chosen_sets, 0, N_RECIPE);
    tcase_add_loop_test(t, same_in_any_way, 0, N_RECIPE);
    tcase_add_loop_test(t, planned, 0, N_RECIPE);
    tcase_add_loop_test(t, together, 0, N_RECIPE);
    tcase_add_loop_test(t, policies, 0, 1);
    tcase_add_test(t, metadata);
    suite_add_tcase(suite, t);
    return cb_suite_run(suite);
}
