/* SPDX-License-Identifier: MIT */
/* assisted.c - opens pairs of a target and its assistant from their recipes. */
#include "assisted.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/assistant_drafter.h"
#include "engine/session.h"
#include "suite.h"

static const char *const names[ASSISTED] = { "assistant-gemma4.json",
                                             "assistant-gemma4dense.json" };

void cb_assisted_recipes(struct assisted *x, int i)
{
    *x = (struct assisted){ .m = NULL };
    cb_recipe_open(&x->own, names[i]);
    cb_recipe_open(&x->target, json_string_value(json_object_get(x->own.root, "target")));
}

static int width_of(const struct recipe *r)
{
    return (int)json_integer_value(json_array_get(cb_headed_key(r, ".embedding_length"), 2));
}

/* All sizes of tensors that are `from` become `to`. */
static void resize(const struct recipe *r, int from, int to)
{
    json_t *t = json_object_get(r->root, "tensors");

    json_array_set_new(cb_headed_key(r, ".embedding_length"), 2, json_integer(to));
    for (size_t i = 0; i < json_array_size(t); i++) {
        json_t *shape = json_array_get(json_array_get(t, i), 1);
        for (size_t j = 0; j < json_array_size(shape); j++)
            if (json_integer_value(json_array_get(shape, j)) == from)
                json_array_set_new(shape, j, json_integer(to));
    }
}

static void still(const struct recipe *r)
{
    static const char *const outs[] = { "attn_output.weight", "ffn_down.weight", "proj.weight" };

    for (size_t i = 0; i < sizeof outs / sizeof *outs; i++)
        cb_headed_level(r, outs[i]);
    cb_headed_level(r, "output_norm.weight");
}

/* An output matrix under this name, the same each time */
static void put_output(const struct recipe *r, struct gguf_make *g, const char *name, int ne)
{
    const int64_t dim[] = { ne, r->n_vocab };
    float *x = calloc((size_t)r->n_vocab * (size_t)ne, sizeof *x);
    uint64_t seed = 5;

    for (int64_t i = 0; i < dim[0] * dim[1]; i++)
        x[i] = cb_rand_normal(&seed);
    cb_make_tensor(g, name, DT_F32, 2, dim, x);
    free(x);
}

/* [1 0]: the embedding goes through, and the state does not. */
static void put_join(struct gguf_make *g, int ne)
{
    const int64_t dim[] = { 2 * ne, ne };
    float *x = calloc(2 * (size_t)ne * (size_t)ne, sizeof *x);

    for (int i = 0; i < ne; i++)
        x[(size_t)i * 2 * (size_t)ne + (size_t)i] = 1;
    cb_make_tensor(g, "nextn.pre_projection.weight", DT_F32, 2, dim, x);
    free(x);
}

static int open_made(struct gguf_make *g, const char *device, cb_model **out)
{
    const struct cb_model_params p = { .n_threads = 2, .device = device };
    char file[64];
    int err;

    snprintf(file, sizeof file, "assisted.%d.gguf", (int)getpid());
    cb_make_save(g, file);
    err = cb_model_open(file, &p, out);
    unlink(file);
    return err;
}

cb_model *cb_assisted_model(const struct recipe *r, const char *device)
{
    struct gguf_make g;
    cb_model *m;

    cb_recipe_make(r, &g);
    ck_assert_ok(open_made(&g, device, &m));
    return m;
}

int cb_assisted_fails(const struct recipe *r, const char *device)
{
    struct gguf_make g;
    cb_model *m;
    int err;

    cb_recipe_make(r, &g);
    err = open_made(&g, device, &m);
    cb_model_close(m);
    return err;
}

static void open_agreeing(struct assisted *x, const char *device)
{
    const int ne = width_of(&x->target);
    struct gguf_make g;

    still(&x->target);
    cb_recipe_make(&x->target, &g);
    put_output(&x->target, &g, "output.weight", ne);
    ck_assert_ok(open_made(&g, device, &x->m));
    still(&x->own);
    cb_headed_remove(&x->own, -1, "token_embd.weight");
    cb_headed_remove(&x->own, -1, "nextn.pre_projection.weight");
    resize(&x->own, width_of(&x->own), ne);
    cb_recipe_make(&x->own, &g);
    put_output(&x->target, &g, "token_embd.weight", ne);
    put_join(&g, ne);
    ck_assert_ok(open_made(&g, device, &x->a));
}

void cb_assisted_open(struct assisted *x, const char *device, int agrees)
{
    if (agrees) {
        open_agreeing(x, device);
        return;
    }
    x->m = cb_assisted_model(&x->target, device);
    x->a = cb_assisted_model(&x->own, device);
}

void cb_assisted_close(struct assisted *x)
{
    cb_model_close(x->m);
    cb_model_close(x->a);
    cb_recipe_close(&x->target);
    cb_recipe_close(&x->own);
}

cb_session *cb_assisted_target(const struct assisted *x, const char *policy, const char *type,
                               int chunk)
{
    const struct cb_session_params p = {
        .n_ctx = ASSISTED_CTX, .chunk = chunk, .policy = policy, .type_k = type, .type_v = type
    };
    cb_session *s;

    ck_assert_ok(cb_session_open(x->m, &p, &s));
    return s;
}

cb_session *cb_assisted_drafter(const struct assisted *x)
{
    const struct cb_session_params p = { .n_ctx = ASSISTED_CTX };
    cb_session *s;

    ck_assert_ok(cb_session_open(x->a, &p, &s));
    return s;
}

int cb_assisted_guess(cb_session *s, cb_session *of, int32_t id, int32_t *draft, int most)
{
    ck_assert_ok(cb_session_note_tokens(of, &id, 1));
    return cb_assistant_guess(s, of, draft, most);
}
