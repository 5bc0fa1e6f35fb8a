/* SPDX-License-Identifier: MIT */
/* check_block_selectors.c - models whose selectors name blocks (MiniMax M3, Qwen3.8-Flash-Next),
 * far beyond the tokens that a query reads: chunks, forks, saved banks and cuts within a block
 * leave the bits of a prompt at once; damaged metadata is refused by its key. That the right blocks
 * are read: check_families.c. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctxbank.h"
#include "kit/folder.h"
#include "kit/recipe.h"
#include "kit/suite.h"

enum { N_PROMPT = 211, N_STEP = 9, N_IDS = 320, N_CTX = 1024 };

static const char *const recipe[] = { "family-minimax-m3.json", "family-minimax-m3local.json",
                                      "family-qwen4exp.json" };
enum { N_RECIPES = sizeof recipe / sizeof *recipe };

static cb_model *m;
static int32_t ids[N_IDS];
static char folder[4096], bank[4200];

static const char *model_file(char (*buf)[4200])
{
    snprintf(*buf, sizeof *buf, "%s/model.gguf", folder);
    return *buf;
}

/* The recipe's key becomes another value, or goes; a key that it lacks comes. */
static void change(json_t *kv, const char *key, const char *kind, const char *value)
{
    for (size_t i = 0; i < json_array_size(kv); i++)
        if (!strcmp(json_string_value(json_array_get(json_array_get(kv, i), 0)), key))
            json_array_remove(kv, i--);
    if (kind)
        json_array_append_new(kv, json_pack("[s, s, o]", key, kind,
                                            strcmp(kind, "string")
                                                ? json_loads(value, JSON_DECODE_ANY, NULL)
                                                : json_string(value)));
}

/* block: of the selector, two of which are read; 0: the recipe's */
static void open_blocks_of(int i, const char *block)
{
    const struct cb_model_params p = { .n_threads = 2, .device = "cpu" };
    struct recipe r;
    struct gguf_make make;
    char file[4200];
    uint32_t x = 7;

    snprintf(folder, sizeof folder, "%s", cb_folder_make("selectors"));
    snprintf(bank, sizeof bank, "%s/bank", folder);
    cb_recipe_open(&r, recipe[i]);
    if (block) {
        json_t *kv = json_object_get(r.root, "kv");
        change(kv, "minimax-m3.attention.indexer.block_size", "uint32", block);
        change(kv, "minimax-m3.attention.indexer.top_k", "uint32", "2");
        change(kv, "minimax-m3.context_length", "uint32", "1024");
    }
    cb_recipe_make(&r, &make);
    cb_make_save(&make, model_file(&file));
    cb_recipe_close(&r);
    ck_assert_ok(cb_model_open(file, &p, &m));
    for (int j = 0; j < N_IDS; j++) {
        x = 1103515245u * x + 12345u;
        ids[j] = (int32_t)((x >> 8) % (uint32_t)cb_n_vocab(m));
    }
}

static void open_model(int i)
{
    open_blocks_of(i, NULL);
}

static void close_model(void)
{
    cb_model_close(m);
    cb_folder_remove();
}

static cb_session *session(int chunk)
{
    const struct cb_session_params p = { .n_ctx = N_CTX, .chunk = chunk };
    cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    return s;
}

static void prompt(cb_session *s, int from, int n)
{
    ck_assert_ok(cb_session_prefill(s, ids + from, n, NULL));
}

static void steps(cb_session *s, int from, int n)
{
    for (int i = from; i < from + n; i++)
        ck_assert_ok(cb_session_decode(s, ids[i]));
}

static void same(const cb_session *a, const cb_session *b, const char *what)
{
    const size_t n = (size_t)cb_n_vocab(m);

    ck_assert_msg(!memcmp(cb_session_logits(a), cb_session_logits(b), n * sizeof(float)), "%s",
                  what);
}

static void near(const cb_session *a, const cb_session *b, const char *what)
{
    for (int i = 0; i < cb_n_vocab(m); i++)
        ck_assert_msg(fabsf(cb_session_logits(a)[i] - cb_session_logits(b)[i]) < 1e-3f,
                      "%s: logit %d is %g and %g", what, i, (double)cb_session_logits(a)[i],
                      (double)cb_session_logits(b)[i]);
}

/* A prompt in pieces of 7, and token by token */
START_TEST(pieces)
{
    cb_session *a, *b, *c;

    open_model(_i);
    a = session(0);
    b = session(7);
    c = session(0);
    prompt(a, 0, N_PROMPT);
    prompt(b, 0, N_PROMPT);
    same(a, b, "chunks of 7");
    prompt(c, 0, 20);
    steps(c, 20, N_PROMPT - 20);
    steps(a, N_PROMPT, N_STEP);
    steps(b, N_PROMPT, N_STEP);
    steps(c, N_PROMPT, N_STEP);
    same(a, b, "tokens after chunks of 7");
    near(a, c, "token by token");
    cb_session_close(a);
    cb_session_close(b);
    cb_session_close(c);
    close_model();
}
END_TEST

/* Blocks of the kernels' size, or of several: the queries of a prompt share keys and values, which
 * changes no bit and no choice. One case has a smaller size, where they have lists. */
START_TEST(large_blocks)
{
    static const char *const block[] = { "128", "64", "256" };
    const int n = _i == 2 ? 618 : 318;
    cb_session *a, *b, *c;
    struct cb_memory plan, now;

    open_blocks_of(0, block[_i]);
    a = session(0);
    b = session(_i ? 100 : 7);
    c = session(0);
    for (int i = 0; i < n; i += N_IDS / 2) {
        prompt(a, i % N_IDS, n - i < N_IDS / 2 ? n - i : N_IDS / 2);
        prompt(b, i % N_IDS, n - i < N_IDS / 2 ? n - i : N_IDS / 2);
    }
    prompt(c, 0, 20);
    for (int i = 20; i < n; i++)
        steps(c, i % N_IDS, 1);
    same(a, b, "chunks");
    steps(a, 300, N_STEP);
    steps(b, 300, N_STEP);
    steps(c, 300, N_STEP);
    same(a, b, "tokens after chunks");
    near(a, c, "token by token");
    cb_session_memory(a, &now);
    ck_assert_ok(cb_session_plan(a, n, N_STEP, &plan));
    ck_assert_uint_eq(now.kv_bytes, plan.kv_bytes);
    cb_session_close(a);
    cb_session_close(b);
    cb_session_close(c);
    close_model();
}
END_TEST

START_TEST(forks_and_batches)
{
    cb_session *a, *b, *alone;

    open_model(_i);
    a = session(0);
    alone = session(0);
    prompt(a, 0, N_PROMPT);
    prompt(alone, 0, N_PROMPT);
    ck_assert_ok(cb_session_fork(a, &b));
    steps(b, 250, N_STEP); /* which leave the first one as it was */
    steps(a, N_PROMPT, N_STEP);
    steps(alone, N_PROMPT, N_STEP);
    same(a, alone, "after a fork");
    for (int i = 0; i < N_STEP; i++) {
        cb_session *const both[2] = { b, a };
        const int32_t next[2] = { ids[i], ids[230 + i] };
        ck_assert_ok(cb_decode_batch(both, next, 2));
        steps(alone, 230 + i, 1);
        near(a, alone, "in a batch");
    }
    cb_session_close(a);
    cb_session_close(b);
    cb_session_close(alone);
    close_model();
}
END_TEST

START_TEST(saved_banks)
{
    cb_session *a, *b;

    open_model(_i);
    a = session(0);
    prompt(a, 0, N_PROMPT);
    steps(a, N_PROMPT, 3);
    ck_assert_ok(cb_session_save(a, bank));
    ck_assert_ok(cb_bank_verify(bank));
    ck_assert_ok(cb_session_load(m, bank, 0, &b));
    steps(a, 230, N_STEP);
    steps(b, 230, N_STEP);
    same(a, b, "tokens after loading");
    prompt(a, 250, 40);
    prompt(b, 250, 40);
    same(a, b, "a prompt after loading");
    cb_session_close(a);
    cb_session_close(b);
    close_model();
}
END_TEST

/* Bytes of the bank, index keys among them, its peak, and what a token reads are those planned. */
START_TEST(planned)
{
    struct cb_memory plan, now;
    cb_session *s;

    open_model(_i);
    s = session(0);
    ck_assert_ok(cb_session_plan(s, N_PROMPT, N_STEP, &plan));
    prompt(s, 0, N_PROMPT);
    steps(s, N_PROMPT, N_STEP);
    cb_session_memory(s, &now);
    ck_assert_uint_eq(now.kv_bytes, plan.kv_bytes);
    ck_assert_uint_eq(now.kv_peak_bytes, plan.kv_peak_bytes);
    ck_assert_uint_le(now.kv_read_bytes_per_token,
                      plan.kv_read_bytes_per_token); /* part of a block */
    ck_assert_uint_ge(now.kv_read_bytes_per_token, plan.kv_read_bytes_per_token * 4 / 5);
    ck_assert_uint_gt(now.kv_bytes, now.kv_full_bytes);
    ck_assert_ok(cb_session_truncate(s, 134));
    cb_session_memory(s, &now);
    ck_assert_ok(cb_session_plan(s, 134, 0, &plan));
    ck_assert_uint_eq(now.kv_bytes, plan.kv_bytes);
    cb_session_close(s);
    close_model();
}
END_TEST

/* A cut within a block, and what comes instead */
START_TEST(cuts)
{
    static const int at[] = { 130, 131, 134, 181, 210 };

    open_model(_i);
    for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
        cb_session *a = session(0), *b = session(0);
        prompt(a, 0, N_PROMPT);
        steps(a, N_PROMPT, 2);
        ck_assert_ok(cb_session_truncate(a, at[k]));
        prompt(b, 0, at[k]);
        prompt(a, 260, 21);
        prompt(b, 260, 21);
        same(a, b, "a prompt after a cut");
        steps(a, 290, N_STEP);
        steps(b, 290, N_STEP);
        same(a, b, "tokens after a cut");
        cb_session_close(a);
        cb_session_close(b);
    }
    close_model();
}
END_TEST

/* ---- damaged metadata ---- */

static const struct {
    int recipe;
    const char *key, *kind, *value; /* JSON */
    const char *says;
} damage[] = {
    { 0, "minimax-m3.attention.indexer.head_count", "uint32", "3", "indexer.head_count" },
    { 0, "minimax-m3.attention.indexer.head_count", "uint32", "0", "indexer.head_count" },
    { 0, "minimax-m3.attention.indexer.key_length", "uint32", "13", "indexer.k" },
    { 0, "minimax-m3.attention.indexer.top_k", "uint32", "0", "indexer.top_k" },
    { 0, "minimax-m3.attention.indexer.block_size", "uint32", "0", "indexer.block_size" },
    { 0, "minimax-m3.attention.indexer.local_blocks", "uint32", "4", "indexer.local_blocks" },
    { 0, "minimax-m3.attention.indexer.block_size", NULL, NULL, "indexer.block_size: missing" },
    { 0, "minimax-m3.attention.sliding_window", "uint32", "8", "has an indexer" },
    { 2, "qwen4exp.attention.compress_ratios", "uint32s", "[0, 11, 0, 5]", "compress_ratios" },
    { 2, "qwen4exp.attention.compress_ratios", "uint32s", "[0, 3]", "compress_ratios" },
    { 2, "qwen4exp.attention.compress_ratios", "uint32s", "[0, 0, 0, 5]", "no place for it" },
    { 2, "qwen4exp.attention.compress_ratios", NULL, NULL, "compress_ratios: missing" },
    { 2, "qwen4exp.hyper_connection.count", "uint32", "1", "hyper_connection.count" },
    { 2, "qwen4exp.hyper_connection.count", "uint32", "5", "hc_attn_norm" },
    { 2, "qwen4exp.hyper_connection.low_rank", "uint32", "0", "hyper_connection.low_rank" },
    { 2, "qwen4exp.ple.layers", "uint32s", "[1, 2]", "ple.layers" },
    { 2, "qwen4exp.ple.layers", "uint32s", "[4]", "ple.layers" },
    { 2, "qwen4exp.ple.layers", "string", "2", "ple.layers" },
    { 2, "qwen4exp.ple.ngram_size", "uint32", "1", "ple.ngram_size" },
    { 2, "qwen4exp.ple.ngram_size", "uint32", "4", "ple.layer_multipliers" },
    { 2, "qwen4exp.ple.heads_per_ngram", "uint32", "3", "ple.head_offsets" },
    { 2, "qwen4exp.ple.heads_per_ngram", "uint32", "100000", "ple.heads_per_ngram" },
    { 2, "qwen4exp.ple.conv_kernel", "uint32", "9", "ple.conv_kernel" },
    { 2, "qwen4exp.ple.eos_token_id", NULL, NULL, "ple.eos_token_id" },
    { 2, "qwen4exp.ple.head_vocab_sizes", "int64s", "[23, 0, 31, 37]", "ple.head_vocab_sizes" },
    { 2, "qwen4exp.ple.head_vocab_sizes", "int64s", "[23, 29, 31, 38]", "ple.head_offsets" },
    { 2, "qwen4exp.ple.head_offsets", "int64s", "[0, 23, 52, -1]", "ple.head_offsets" },
    { 2, "qwen4exp.ple.head_offsets", "int64s", "[0, 23, 52, 9223372036854775807]",
      "ple.head_offsets" },
    { 2, "qwen4exp.ple.layer_multipliers", "bools", "[true, true, true]", "ple.layer_multipliers" },
    { 2, "qwen4exp.embedding_length_per_layer_input", "uint32", "7", "per_layer_token_embd" },
};

START_TEST(damaged)
{
    const struct cb_model_params p = { .n_threads = 1, .device = "cpu" };
    struct gguf_make make;
    struct recipe r;
    char file[4200];
    int err;

    snprintf(folder, sizeof folder, "%s", cb_folder_make("selectors"));
    cb_recipe_open(&r, recipe[damage[_i].recipe]);
    change(json_object_get(r.root, "kv"), damage[_i].key, damage[_i].kind, damage[_i].value);
    cb_recipe_make(&r, &make);
    cb_make_save(&make, model_file(&file));
    cb_recipe_close(&r);
    err = cb_model_open(file, &p, &m);
    ck_assert_msg(err == CB_EFORMAT || err == CB_EUNSUPPORTED, "%s = %s: %d", damage[_i].key,
                  damage[_i].value ? damage[_i].value : "nothing", err);
    ck_assert_msg(strstr(cb_error(), damage[_i].says) != NULL, "%s", cb_error());
    cb_folder_remove();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("block_selectors");
    TCase *t = tcase_create("block_selectors");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, pieces, 0, N_RECIPES);
    tcase_add_loop_test(t, large_blocks, 0, 3);
    tcase_add_loop_test(t, forks_and_batches, 0, N_RECIPES);
    tcase_add_loop_test(t, saved_banks, 0, N_RECIPES);
    tcase_add_loop_test(t, planned, 0, N_RECIPES);
    tcase_add_loop_test(t, cuts, 0, N_RECIPES);
    tcase_add_loop_test(t, damaged, 0, sizeof damage / sizeof *damage);
    suite_add_tcase(suite, t);
    return cb_suite_run(suite);
}
