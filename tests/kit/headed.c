/* SPDX-License-Identifier: MIT */
/* headed.c - recipes get a block that guesses later tokens. */
#include "headed.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/session.h"
#include "suite.h"

static const char *const recipes[HEADED] = { "qwen35", "qwen35moe", "qwen3next", "glm4moe",
                                             "deepseek3" };

static const char *name_of(const json_t *row)
{
    return json_string_value(json_array_get(row, 0));
}

json_t *cb_headed_key(const struct recipe *r, const char *name)
{
    json_t *kv = json_object_get(r->root, "kv");

    for (size_t i = 0; i < json_array_size(kv); i++)
        if (strstr(name_of(json_array_get(kv, i)), name))
            return json_array_get(kv, i);
    return NULL;
}

/* Does a name end so? */
static int ends(const char *s, const char *with)
{
    const size_t n = strlen(s), k = strlen(with);

    return n >= k && !strcmp(s + n - k, with) && (n == k || s[n - k - 1] == '.');
}

/* Removes the tensors of block l, or those that end so. */
void cb_headed_remove(const struct recipe *r, int l, const char *end)
{
    json_t *t = json_object_get(r->root, "tensors");

    for (size_t i = json_array_size(t); i-- > 0;) {
        const char *name = name_of(json_array_get(t, i));
        int at = -1;
        sscanf(name, "blk.%d.", &at);
        if (end ? ends(name, end) : at == l)
            json_array_remove(t, i);
    }
}

void cb_headed_row(const struct recipe *r, int l, const char *name, int a, int b, double mean,
                   double width)
{
    json_t *shape = b ? json_pack("[i, i]", a, b) : json_pack("[i]", a);
    char full[80];

    snprintf(full, sizeof full, "blk.%d.%s", l, name);
    json_array_append_new(json_object_get(r->root, "tensors"),
                          json_pack("[s, o, f, f]", full, shape, mean, width));
}

/* The last block with attention becomes block l as well. */
static void copy_block(const struct recipe *r, int l)
{
    json_t *t = json_object_get(r->root, "tensors");
    const size_t n = json_array_size(t);
    int from = -1, at;

    for (size_t i = 0; i < n; i++)
        if (sscanf(name_of(json_array_get(t, i)), "blk.%d.", &at) == 1 && at < l && at > from &&
            ends(name_of(json_array_get(t, i)), "attn_output.weight"))
            from = at;
    ck_assert_int_ge(from, 0);
    for (size_t i = 0; i < n; i++) {
        json_t *row = json_array_get(t, i);
        char name[80];
        int end = 0;
        if (sscanf(name_of(row), "blk.%d.%n", &at, &end) != 1 || at != from)
            continue;
        snprintf(name, sizeof name, "blk.%d.%s", l, name_of(row) + end);
        row = json_deep_copy(row);
        json_array_set_new(row, 0, json_string(name));
        json_array_append_new(t, row);
    }
}

static int width_of_embedding(const struct recipe *r)
{
    return (int)json_integer_value(json_array_get(cb_headed_key(r, ".embedding_length"), 2));
}

/* Gives the recipe a head, in the block after its layers. */
void cb_headed_add(const struct recipe *r)
{
    const char *arch = json_string_value(json_object_get(r->root, "arch"));
    json_t *blocks = cb_headed_key(r, ".block_count");
    const int ne = width_of_embedding(r);
    int n = (int)json_integer_value(json_array_get(blocks, 2));
    char name[80];

    if (cb_headed_key(r, "nextn_predict_layers")) {
        n--;
    } else {
        snprintf(name, sizeof name, "%s.nextn_predict_layers", arch);
        json_array_append_new(json_object_get(r->root, "kv"),
                              json_pack("[s, s, i]", name, "uint32", 1));
        json_array_set_new(blocks, 2, json_integer(n + 1));
    }
    cb_headed_remove(r, n, NULL);
    copy_block(r, n);
    cb_headed_row(r, n, "nextn.enorm.weight", ne, 0, 1, 0.3);
    cb_headed_row(r, n, "nextn.hnorm.weight", ne, 0, 1, 0.3);
    cb_headed_row(r, n, "nextn.shared_head_norm.weight", ne, 0, 1, 0.3);
    cb_headed_row(r, n, "nextn.eh_proj.weight", 2 * ne, ne, 0, 0.2);
}

void cb_headed_level(const struct recipe *r, const char *end)
{
    json_t *t = json_object_get(r->root, "tensors");

    for (size_t i = 0; i < json_array_size(t); i++)
        if (ends(name_of(json_array_get(t, i)), end))
            json_array_set_new(json_array_get(t, i), 3, json_real(0));
}

/* No layer adds anything to the residual stream. */
static void still(const struct recipe *r)
{
    static const char *const outs[] = { "attn_output.weight", "ffn_down.weight", "ssm_out.weight",
                                        "ffn_down_exps.weight", "ffn_down_shexp.weight" };

    for (size_t i = 0; i < sizeof outs / sizeof *outs; i++)
        cb_headed_level(r, outs[i]);
}

/* An output of its own, and for AGREES a head that hands on the next token's embedding: it then
 * gives what the model gives after that token. */
static void own_tensors(const struct recipe *r, struct gguf_make *g, int agrees)
{
    const int ne = width_of_embedding(r);
    const int64_t out[] = { ne, r->n_vocab }, join[] = { 2 * ne, ne };
    float *x = calloc((size_t)r->n_vocab * (size_t)ne, sizeof *x);
    float *y = calloc(2 * (size_t)ne * (size_t)ne, sizeof *y);
    const int l = (int)json_integer_value(json_array_get(cb_headed_key(r, ".block_count"), 2)) - 1;
    uint64_t seed = 5;
    char name[80];

    for (int64_t i = 0; i < out[0] * out[1]; i++)
        x[i] = cb_rand_normal(&seed);
    cb_make_tensor(g, "output.weight", DT_F32, 2, out, x);
    for (int i = 0; i < ne; i++)
        y[(size_t)i * 2 * (size_t)ne + (size_t)i] = 1;
    snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", l);
    if (agrees)
        cb_make_tensor(g, name, DT_F32, 2, join, y);
    free(x);
    free(y);
}

void cb_headed_make(struct headed *h, int i, int what)
{
    struct recipe *r = &h->recipe;
    struct gguf_make g;
    char name[80];
    uint32_t x = 7;

    snprintf(name, sizeof name, "family-%s.json", recipes[i]);
    cb_recipe_open(r, name);
    cb_headed_add(r);
    if (what != HEAD_RANDOM) {
        still(r);
        cb_headed_remove(r, -1, "output.weight");
    }
    if (what == HEAD_AGREES) {
        cb_headed_level(r, "nextn.enorm.weight");
        cb_headed_remove(r, -1, "nextn.eh_proj.weight");
        cb_headed_remove(r, -1, "nextn.shared_head_norm.weight");
    }
    snprintf(h->file, sizeof h->file, "headed.%d.gguf", (int)getpid());
    cb_recipe_make(r, &g);
    if (what != HEAD_RANDOM)
        own_tensors(r, &g, what == HEAD_AGREES);
    cb_make_save(&g, h->file);
    for (int j = 0; j < HEADED_IDS; j++) {
        x = 1103515245u * x + 12345u;
        h->ids[j] = (int32_t)((x >> 8) % (uint32_t)r->n_vocab);
    }
}

void cb_headed_open(struct headed *h, int draft)
{
    const struct cb_model_params p = { .n_threads = 2, .draft_mtp = draft };

    ck_assert_ok(cb_model_open(h->file, &p, &h->m));
}

void cb_headed_new(struct headed *h, int i, int what, int draft)
{
    cb_headed_make(h, i, what);
    cb_headed_open(h, draft);
    ck_assert_ptr_nonnull(h->m->mtp);
}

void cb_headed_close(struct headed *h)
{
    cb_model_close(h->m);
    unlink(h->file);
    cb_recipe_close(&h->recipe);
}

cb_session *cb_headed_session(const struct headed *h, const char *policy, int chunk)
{
    const struct cb_session_params p = { .n_ctx = HEADED_CTX, .chunk = chunk, .policy = policy };
    cb_session *s;

    ck_assert_ok(cb_session_open(h->m, &p, &s));
    return s;
}

int cb_headed_guess(cb_session *s, int32_t id, int most)
{
    ck_assert_ok(cb_session_note_tokens(s, &id, 1));
    return cb_session_mtp_guess(s, most);
}
