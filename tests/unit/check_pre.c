/* SPDX-License-Identifier: MIT */
/* check_pre.c - ids of 1,000 texts in 30 scripts under each pre-tokenizer, and of the models that
 * are there, against the original tokenizers (vectors/make_pre_tokenizers.py); unknown names. */
#include <check.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "gguf/gguf.h"
#include "kit/suite.h"
#include "text/tok.h"
#include "text/tok_pre.h"

static json_t *vectors;

static void vector_path(char *path, size_t n, const char *name)
{
    const char *dir = getenv("srcdir");
    snprintf(path, n, "%s/tests/vectors/%s", dir ? dir : ".", name);
}

static void load(void)
{
    char path[1024];
    json_error_t e;

    vector_path(path, sizeof path, "tok-pre.json");
    vectors = json_load_file(path, 0, &e);
    ck_assert_msg(vectors != NULL, "%s: %s", path, e.text);
}

static void unload(void)
{
    json_decref(vectors);
}

/* The vocabulary's file: beside the vectors, or a model in the cache; 0 = in neither */
static int find_file(const char *file, char *path, size_t n)
{
    const char *cache = getenv("CTXBANK_CACHE"), *home = getenv("HOME");
    FILE *f;

    vector_path(path, n, file);
    if (!(f = fopen(path, "rb"))) {
        snprintf(path, n, "%s%s/models/%s",
                 cache  ? cache
                 : home ? home
                        : "",
                 cache ? "" : "/.cache/ctxbank", file);
        f = fopen(path, "rb");
    }
    if (f)
        fclose(f);
    return f != NULL;
}

static uint32_t hash(const int32_t *ids, int n)
{
    uint64_t h = 0xCBF29CE484222325u;

    for (int i = 0; i < 4 * n; i++)
        h = (h ^ ((uint32_t)ids[i / 4] >> (i % 4 * 8) & 0xFF)) * 0x100000001B3u;
    return (uint32_t)(h >> 32 ^ h);
}

static void check_row(const struct tok *t, json_t *row, const char *name)
{
    json_t *texts = json_object_get(vectors, "texts"), *text;
    json_t *hashes = json_object_get(row, "hashes");
    size_t i, other = 0;

    ck_assert_uint_eq(json_array_size(texts), 1000);
    ck_assert_uint_eq(json_array_size(hashes), 1000);
    json_array_foreach(texts, i, text)
    {
        const char *want = json_string_value(json_array_get(hashes, i));
        int32_t *ids;
        char got[16];
        int n;
        ck_assert_int_eq(
            cb_tok_encode(t, json_string_value(text), json_string_length(text), 0, &ids, &n), 0);
        snprintf(got, sizeof got, "%08" PRIx32, hash(ids, n));
        if (strcmp(got, want) != 0 && other++ < 10)
            fprintf(stderr, "%s: text %zu: %s\n", name, i, json_string_value(text));
        free(ids);
    }
    ck_assert_msg(!other, "%s: %zu texts differ", name, other);
}

START_TEST(ids_are_the_originals)
{
    json_t *rows = json_object_get(vectors, "rows"), *row;
    size_t i;

    ck_assert_uint_ge(json_array_size(rows), 18);
    json_array_foreach(rows, i, row)
    {
        const char *pre = json_string_value(json_object_get(row, "pre"));
        const char *file = json_string_value(json_object_get(row, "file"));
        char path[1024];
        struct gguf *g;
        struct tok *t;
        if (!find_file(file, path, sizeof path)) {
            ck_assert_ptr_null(pre);
            printf("skipped: %s is not there\n", path);
            continue;
        }
        ck_assert_msg(cb_gguf_open(path, &g) == 0, "%s", cb_error());
        ck_assert_msg(cb_tok_open_as(g, pre, &t) == 0, "%s", cb_error());
        check_row(t, row, pre ? pre : file);
        cb_tok_close(t);
        cb_gguf_close(g);
    }
}
END_TEST

static struct gguf *open_vector(const char *name)
{
    char path[1024];
    struct gguf *g;

    vector_path(path, sizeof path, name);
    ck_assert_msg(cb_gguf_open(path, &g) == 0, "%s", cb_error());
    return g;
}

START_TEST(names)
{
    struct gguf *bpe = open_vector("tok-gpt2.gguf"), *spm = open_vector("tok-spm.gguf");
    struct tok *t = NULL;

    ck_assert_int_eq(cb_tok_open_as(bpe, "no-such", &t), CB_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(cb_error(), "no-such"));
    for (int i = 0; cb_tok_pre_row(i); i++) { /* every row is named in the message */
        const char *all = cb_tok_pre_row(i)->names;
        const size_t n = strcspn(all, " ");
        char first[64];
        snprintf(first, sizeof first, "%.*s", (int)n, all);
        ck_assert_msg(strstr(cb_error(), first), "%s: %s", first, cb_error());
        ck_assert_ptr_eq(cb_tok_pre(all, n), cb_tok_pre_row(i));
        ck_assert_ptr_null(cb_tok_pre(all, n - 1));
    }
    ck_assert_ptr_null(cb_tok_pre("", 0));
    ck_assert_ptr_null(cb_tok_pre("gpt2 gpt-2", 10));
    ck_assert_int_eq(cb_tok_open_as(spm, "gpt2", &t), CB_EARG);
    ck_assert_ptr_null(t);
    cb_gguf_close(bpe);
    cb_gguf_close(spm);
}
END_TEST

/* Texts on which an expression that backtracks would take quadratic time */
START_TEST(no_text_is_slow)
{
    static const char *const units[] = { " ", "\n",       " \n",          "A",       "a", "Aa", "1",
                                         "'", "\xCC\x81", "\xE4\xB8\x80", "\xCA\xB0" };
    static const char *const ends[] = { "x", "\xE4\xB8\x80" };
    enum { BYTES = 1 << 18 };
    struct gguf *g = open_vector("tok-llama-bpe.gguf");
    const struct tok_pre *pre = cb_tok_pre_row(_i);
    char *text = malloc(BYTES + 8), name[64];
    struct tok *t;

    ck_assert_ptr_nonnull(text);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(pre->names, " "), pre->names);
    ck_assert_msg(cb_tok_open_as(g, name, &t) == 0, "%s", cb_error());
    for (size_t u = 0; u < sizeof units / sizeof *units; u++)
        for (size_t e = 0; e < sizeof ends / sizeof *ends; e++) {
            const size_t len = strlen(units[u]);
            size_t n = 0;
            int32_t *ids;
            int n_ids;
            while (n + len <= BYTES) {
                memcpy(text + n, units[u], len);
                n += len;
            }
            memcpy(text + n, ends[e], strlen(ends[e]));
            n += strlen(ends[e]);
            ck_assert_int_eq(cb_tok_encode(t, text, n, 0, &ids, &n_ids), 0);
            free(ids);
        }
    cb_tok_close(t);
    cb_gguf_close(g);
    free(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pre");
    TCase *c = tcase_create("pre");
    int n = 0;

    while (cb_tok_pre_row(n))
        n++;
    tcase_add_checked_fixture(c, load, unload);
    tcase_set_timeout(c, 60); /* a quadratic text takes minutes */
    tcase_add_test(c, ids_are_the_originals);
    tcase_add_test(c, names);
    tcase_add_loop_test(c, no_text_is_slow, 0, n);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
