/* SPDX-License-Identifier: MIT */
/* recipe.c - reads recipes of tiny models and makes the models. */
#include "recipe.h"
#include "base/splitmix.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"
#include "tiny.h"

const char *cb_recipe_folder(void)
{
    static char path[4096];
    const char *srcdir = getenv("srcdir");

    snprintf(path, sizeof path, "%s/tests/vectors", srcdir ? srcdir : ".");
    return path;
}

static const char *text(const json_t *x, const char *key)
{
    return json_string_value(json_object_get(x, key));
}

static void put_key(struct gguf_writer *w, const char *key, const char *kind, const json_t *v)
{
    if (!strcmp(kind, "string")) {
        cb_gguf_put_string(w, key, json_string_value(v));
    } else if (!strcmp(kind, "float32")) {
        cb_gguf_put_f32(w, key, (float)json_number_value(v));
    } else if (!strcmp(kind, "bool")) {
        cb_gguf_put_bool(w, key, json_is_true(v));
    } else if (!strcmp(kind, "bools")) {
        unsigned char each[64];
        const size_t n = json_array_size(v);
        ck_assert(n <= sizeof each);
        for (size_t i = 0; i < n; i++)
            each[i] = json_is_true(json_array_get(v, i));
        cb_gguf_put_array(w, key, GGUF_BOOL, each, n);
    } else if (!strcmp(kind, "ints")) {
        int32_t each[64];
        const size_t n = json_array_size(v);
        ck_assert(n <= sizeof each / sizeof *each);
        for (size_t i = 0; i < n; i++)
            each[i] = (int32_t)json_integer_value(json_array_get(v, i));
        cb_gguf_put_array(w, key, GGUF_I32, each, n);
    } else if (!strcmp(kind, "float32s")) {
        float each[64];
        const size_t n = json_array_size(v);
        ck_assert(n <= sizeof each / sizeof *each);
        for (size_t i = 0; i < n; i++)
            each[i] = json_is_null(json_array_get(v, i))
                          ? -INFINITY
                          : (float)json_number_value(json_array_get(v, i));
        cb_gguf_put_array(w, key, GGUF_F32, each, n);
    } else if (!strcmp(kind, "uint32s")) {
        uint32_t each[64];
        const size_t n = json_array_size(v);
        ck_assert(n <= sizeof each / sizeof *each);
        for (size_t i = 0; i < n; i++)
            each[i] = (uint32_t)json_integer_value(json_array_get(v, i));
        cb_gguf_put_array(w, key, GGUF_U32, each, n);
    } else if (!strcmp(kind, "int64s")) {
        int64_t each[64];
        const size_t n = json_array_size(v);
        ck_assert(n <= sizeof each / sizeof *each);
        for (size_t i = 0; i < n; i++)
            each[i] = json_integer_value(json_array_get(v, i));
        cb_gguf_put_array(w, key, GGUF_I64, each, n);
    } else {
        ck_assert_str_eq(kind, "uint32");
        cb_gguf_put_i64(w, key, GGUF_U32, json_integer_value(v));
    }
}

/* The generator that the script has in common with this test. */
static double draw(uint64_t seed, uint64_t i)
{
    return (double)(cb_splitmix_at(seed, i) >> 40) / 8388608.0 - 1;
}

static void put_tensor(struct gguf_make *m, uint64_t number, const json_t *row)
{
    const json_t *shape = json_array_get(row, 1);
    const double mean = json_number_value(json_array_get(row, 2));
    const double width = json_number_value(json_array_get(row, 3));
    const int n_dim = (int)json_array_size(shape);
    int64_t dim[4] = { 1, 1, 1, 1 }, n = 1;
    const int table = json_array_size(row) == 3; /* of numbers below row[2] */
    float *x;

    ck_assert(n_dim > 0 && n_dim <= 3);
    for (int i = 0; i < n_dim; i++)
        n *= dim[i] = json_integer_value(json_array_get(shape, (size_t)i));
    x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = table ? floorf((float)((draw(number, (uint64_t)i) + 1) / 2 * mean))
                     : (float)(mean + width * draw(number, (uint64_t)i));
    cb_make_tensor(m, json_string_value(json_array_get(row, 0)), table ? DT_I32 : DT_F32, n_dim,
                   dim, x);
    free(x);
}

static void put_given(struct gguf_make *m, const char *name, const json_t *list)
{
    const int64_t n = (int64_t)json_array_size(list);
    float x[RECIPE_TOKENS];

    ck_assert(n <= RECIPE_TOKENS);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)json_number_value(json_array_get(list, (size_t)i));
    cb_make_tensor(m, name, DT_F32, 1, &n, x);
}

void cb_recipe_make(const struct recipe *r, struct gguf_make *m)
{
    const struct tiny vocab = { .pre = "qwen2" };
    const json_t *kv = json_object_get(r->root, "kv"), *t = json_object_get(r->root, "tensors");
    json_t *given = json_object_get(r->root, "given"), *v;
    const char *name;

    cb_make_init(m);
    cb_gguf_put_string(&m->w, "general.architecture", text(r->root, "arch"));
    for (size_t i = 0; i < json_array_size(kv); i++) {
        const json_t *row = json_array_get(kv, i);
        put_key(&m->w, json_string_value(json_array_get(row, 0)),
                json_string_value(json_array_get(row, 1)), json_array_get(row, 2));
    }
    ck_assert_int_le(cb_tiny_put_vocab(&vocab, m), r->n_vocab);
    for (size_t i = 0; i < json_array_size(t); i++)
        put_tensor(m, i + 1, json_array_get(t, i));
    json_object_foreach(given, name, v)
    {
        put_given(m, name, v);
    }
}

void cb_recipe_open(struct recipe *r, const char *name)
{
    char path[4200];
    json_error_t e;
    json_t *ids;

    snprintf(path, sizeof path, "%s/%s", cb_recipe_folder(), name);
    r->root = json_load_file(path, 0, &e);
    ck_assert_msg(r->root != NULL, "%s: %s", path, e.text);
    ids = json_object_get(r->root, "ids");
    r->after = json_object_get(r->root, "after");
    r->logits = json_object_get(r->root, "logits");
    r->n = (int)json_array_size(ids);
    r->n_vocab = (int)json_array_size(json_array_get(r->logits, 0));
    r->n_ctx = (int)json_integer_value(json_object_get(r->root, "n_ctx"));
    ck_assert(r->n > 0 && r->n <= RECIPE_TOKENS && r->n_vocab > 0);
    for (int i = 0; i < r->n; i++)
        r->ids[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
}

void cb_recipe_close(struct recipe *r)
{
    json_decref(r->root);
}

int32_t cb_recipe_id(const struct recipe *r, int i)
{
    return r->ids[(i * 7 + i / r->n) % r->n];
}

void cb_recipe_prompt(const struct recipe *r, cb_session *s, int from, int n)
{
    int32_t *ids = calloc((size_t)n, sizeof *ids);

    ck_assert_ptr_nonnull(ids);
    for (int i = 0; i < n; i++)
        ids[i] = cb_recipe_id(r, from + i);
    ck_assert_ok(cb_session_prefill(s, ids, n, NULL));
    free(ids);
}

void cb_recipe_steps(const struct recipe *r, cb_session *s, int from, int n)
{
    for (int i = from; i < from + n; i++)
        ck_assert_ok(cb_session_decode(s, cb_recipe_id(r, i)));
}

double cb_recipe_apart(const struct recipe *r, const cb_session *a, const cb_session *b)
{
    double most = 0, off = 0;

    for (int i = 0; i < r->n_vocab; i++) {
        const double x = (double)cb_session_logits(a)[i], y = (double)cb_session_logits(b)[i];
        most = fabs(x) > most ? fabs(x) : most;
        off = fabs(x - y) <= off ? off : fabs(x - y); /* NaN counts */
    }
    return off / most;
}
