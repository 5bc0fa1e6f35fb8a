/* SPDX-License-Identifier: MIT */
/* check_limits.c - what a file or a caller may ask for at most, and what happens when memory runs
 * out while a session opens. This program's calls of the allocation functions go through wrappers
 * (-Wl,--wrap) that refuse one of them. */
#include <check.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bank/store_kivi.h"
#include "base/err.h"
#include "base/number.h"
#include "ctxbank.h"
#include "grammar/grammar.h"
#include "kit/folder.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"
#include "policy/policy.h"
#include "repeated.h"

/* ---- memory that runs out ---- */

static long left = -1; /* calls until one is refused; -1: none is */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
int __real_posix_memalign(void **p, size_t align, size_t n);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
int __wrap_posix_memalign(void **p, size_t align, size_t n);
char *__wrap_strdup(const char *s);

static int refuse(void)
{
    return left >= 0 && left-- == 0;
}

void *__wrap_malloc(size_t n)
{
    return refuse() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refuse() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return refuse() ? NULL : __real_realloc(p, n);
}

int __wrap_posix_memalign(void **p, size_t align, size_t n)
{
    return refuse() ? 12 : __real_posix_memalign(p, align, n);
}

char *__wrap_strdup(const char *s)
{
    return refuse() ? NULL : __real_strdup(s);
}

/* Opens a session again and again, each time without the next one of its allocations, until none is
 * left to refuse. Returns how many were. */
static int open_without_memory(struct cb_model *m, const char *policy, const char *prefill)
{
    struct cb_session_params p = cb_session_defaults();
    struct cb_session *s = NULL;

    p.policy = policy;
    p.prefill = prefill;
    for (int k = 0; k < 10000; k++) {
        int err;
        left = k;
        err = cb_session_open(m, &p, &s);
        left = -1;
        ck_assert_msg(!err || err == CB_ENOMEM, "%s, %s, allocation %d: %d, %s", policy, prefill, k,
                      err, cb_error());
        cb_session_close(s);
        if (!err)
            return k;
    }
    ck_abort_msg("%s, %s: never opens", policy, prefill);
}

START_TEST(no_memory_is_not_wrong_usage)
{
    struct tiny t = cb_tiny_small("llama");
    struct cb_method_info info;
    struct cb_model *m;

    t.n_layer = 4; /* minicache wants a pair in the upper half */
    m = cb_toy_model(&t, "cpu", 1);
    for (int i = 0; !cb_policy_at(i, &info); i++)
        if (strcmp(info.name, "duo") && strcmp(info.name, "own")) /* not for this model */
            ck_assert_int_gt(open_without_memory(m, info.name, "dense"), 10);
    for (int i = 0; !cb_prefill_at(i, &info); i++)
        ck_assert_int_gt(open_without_memory(m, "full", info.name), 10);
    open_without_memory(m, "d2o:protect=0+1", "dense");
    open_without_memory(m, "duo:heads=0", "dense");
    open_without_memory(m, "pod:snap=40,window=8", "dense");
    open_without_memory(m, "omnikv:filter=1,budget=20", "omnikv");
    cb_model_close(m);
}
END_TEST

/* A grammar is made, tokens are picked, and the sampler is copied. */
static int follow_grammar(struct cb_model *m, const float *logits)
{
    static const char schema[] = "{\"type\": \"array\", \"items\": {\"enum\": [\"ab\", 12, "
                                 "{}]}, \"minItems\": 3}";
    cb_grammar *g = NULL;
    cb_sampler *s = NULL, *copy = NULL;
    int rc = cb_grammar_new_json_schema(schema, &g);

    if (!rc)
        rc = cb_sampler_new(NULL, cb_n_vocab(m), &s);
    if (!rc)
        rc = cb_sampler_set_grammar(s, m, g);
    for (int i = 0; i < 4 && rc >= 0; i++) {
        rc = cb_sampler_pick(s, logits);
        if (rc >= 0)
            cb_sampler_accept(s, rc);
    }
    if (rc >= 0)
        rc = cb_sampler_fork(s, &copy);
    if (rc >= 0)
        rc = cb_sampler_pick(copy, logits);
    cb_sampler_free(s);
    cb_sampler_free(copy);
    cb_grammar_free(g);
    return rc;
}

START_TEST(grammars_without_memory)
{
    const struct tiny t = cb_tiny_small("llama");
    float *logits;
    int rc = -1, k;

    for (k = 0; k < 10000 && rc < 0; k++) {
        struct cb_model *m = cb_toy_model(&t, "cpu", 1); /* a new one has no trie yet */
        logits = calloc((size_t)cb_n_vocab(m), sizeof *logits);
        left = k;
        rc = follow_grammar(m, logits);
        left = -1;
        ck_assert_msg(rc >= 0 || rc == CB_ENOMEM, "allocation %d: %d, %s", k, rc, cb_error());
        cb_model_close(m);
        free(logits);
    }
    ck_assert_int_gt(k, 50);
    ck_assert_int_ge(rc, 0);
}
END_TEST

/* ---- sizes ---- */

/* A head size that no key names is checked too: kernels have rows of 512 on their stacks. */
START_TEST(heads_that_are_too_large)
{
    struct tiny t = cb_tiny_small("llama");
    struct cb_model *m;
    char path[4096];

    cb_folder_make("limits");
    snprintf(path, sizeof path, "%s", cb_folder_put("large.gguf", ""));
    t.n_embd = t.hd = 1024;
    t.n_head = t.n_kv = 1;
    cb_tiny_save(&t, path);
    ck_assert_int_eq(cb_model_open(path, NULL, &m), CB_EFORMAT);
    ck_assert_ptr_nonnull(strstr(cb_error(), "1024 is not between 2 and 576"));
    cb_folder_remove();
}
END_TEST

START_TEST(kivi_of_a_huge_context)
{
    const struct kivi_form form = { 4, 128, 0, 0 };
    struct store s;

    ck_assert_int_eq(cb_store_open(&s, 2, 64, 1 << 30, KV_F16, KV_F16, 0), 0);
    ck_assert_int_eq(cb_kivi_open(&s, form, form), CB_EARG);
    ck_assert_str_eq(cb_error(), "context of 1073741824 tokens: kivi holds up to 1073741311");
    cb_store_close(&s);
    ck_assert_int_eq(cb_store_open(&s, 2, 64, 1073741311, KV_F16, KV_F16, 0), 0);
    ck_assert_ok(cb_kivi_open(&s, form, form));
    cb_store_close(&s);
}
END_TEST

/* ---- numbers ---- */

/* Steps whose inverse is infinite: the weights become 0. */
START_TEST(weights_next_to_nothing)
{
    static const float size[] = { 1e-40f, 1e-45f, 1e-38f };
    float x[256], y[256];
    unsigned char bytes[256 * 4], zeros[256 * 4];

    for (int t = 0; t < DT_ENCODED; t++)
        for (int k = 0; k < 3; k++) {
            const int is_plain = t == DT_Q4_0 || t == DT_Q5_0 || t == DT_Q8_0;
            memset(x, 0, sizeof x);
            memset(zeros, 0, sizeof zeros);
            cb_dtype[t].from_f32(x, zeros, 256);
            for (int i = 0; i < 256; i++)
                x[i] = i % 7 ? size[k] * (float)(i % 5) : 0;
            cb_dtype[t].from_f32(x, bytes, 256);
            cb_dtype[t].to_f32(bytes, y, 256);
            for (int i = 0; i < 256; i++)
                ck_assert_msg(fabsf(y[i]) <= 1e-37f, "%s: %g", cb_dtype[t].name, (double)y[i]);
            if (is_plain)
                ck_assert_mem_eq(bytes, zeros, cb_row_bytes((enum dtype)t, 256));
        }
}
END_TEST

START_TEST(numbers_in_any_locale)
{
    static const char *const with_comma[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE",
                                              "ru_RU.UTF-8" };
    char *end;

    for (size_t i = 0; i < sizeof with_comma / sizeof *with_comma; i++)
        if (setlocale(LC_NUMERIC, with_comma[i]))
            break; /* else only the C locale is here */
    ck_assert_double_eq(cb_number("0.5,x", &end), 0.5);
    ck_assert_str_eq(end, ",x");
    ck_assert_double_eq(cb_number("1,5", &end), 1);
    ck_assert_str_eq(end, ",5");
    ck_assert_double_eq(cb_number("max 1", &end), 0);
    ck_assert_str_eq(end, "max 1");
    setlocale(LC_NUMERIC, "C");
}
END_TEST

struct purse {
    size_t left, held;
};

static int pay(void *user, size_t bytes)
{
    struct purse *p = user;

    if (bytes > p->left)
        return CB_EFULL;
    p->left -= bytes;
    p->held += bytes;
    return CB_OK;
}

/* Memory is asked for before it is taken, and what a grammar takes at its end was asked for. */
START_TEST(memory_is_asked_for)
{
    char *text[] = { many("[a-z] \"b\"? ", 20000, "root ::= ", "\n"),
                     many("{\"properties\":{\"a\":{\"maxLength\":3}}},", 2000, "{\"allOf\":[",
                          "{}]}"),
                     many("[a-z]b?", 20000, "", "") };

    for (int kind = 0; kind < 3; kind++) {
        struct purse rich = { .left = SIZE_MAX }, poor = { .left = 1 << 17 };
        struct grammar_limits limits = { .hold = pay, .user = &rich };
        cb_grammar *g;
        ck_assert_ok(cb_grammar_new((enum grammar_kind)kind, text[kind], &limits, &g));
        ck_assert_uint_gt(rich.held, cb_grammar_bytes(g) / 2);
        ck_assert_uint_gt(rich.held, 1 << 17);
        cb_grammar_free(g);
        limits.user = &poor;
        ck_assert_int_eq(cb_grammar_new((enum grammar_kind)kind, text[kind], &limits, &g),
                         CB_EFULL);
        ck_assert_ptr_null(g);
        free(text[kind]);
    }
}
END_TEST

/* Wherever memory is refused, the reading ends. */
START_TEST(memory_is_refused_anywhere)
{
    char *text[] = { many("[a-z] \"b\"? x ", 1000, "root ::= ", "\nx ::= \"b\"\n"),
                     many("{\"properties\":{\"a\":{\"pattern\":\"^a.b$\"}}},", 60, "{\"allOf\":[",
                          "{}]}"),
                     many("[a-z]b?(c|d.)", 1000, "", "") };

    for (int kind = 0; kind < 3; kind++) {
        int rc = CB_EUNSUPPORTED, n = 0;
        for (size_t bytes = 64; rc; bytes += bytes / 64 + 8, n++) {
            const struct grammar_limits limits = { .memory_bytes = bytes };
            cb_grammar *g;
            rc = cb_grammar_new((enum grammar_kind)kind, text[kind], &limits, &g);
            ck_assert_msg(!rc || rc == CB_EUNSUPPORTED, "%zu: %s", bytes, cb_error());
            cb_grammar_free(g);
        }
        ck_assert_int_gt(n, 100);
        free(text[kind]);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("limits");
    TCase *c = tcase_create("limits");

    tcase_set_timeout(c, 120);
    tcase_add_test(c, no_memory_is_not_wrong_usage);
    tcase_add_test(c, grammars_without_memory);
    tcase_add_test(c, memory_is_asked_for);
    tcase_add_test(c, memory_is_refused_anywhere);
    tcase_add_test(c, heads_that_are_too_large);
    tcase_add_test(c, kivi_of_a_huge_context);
    tcase_add_test(c, weights_next_to_nothing);
    tcase_add_test(c, numbers_in_any_locale);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
