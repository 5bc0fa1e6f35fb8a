/* SPDX-License-Identifier: MIT */
/* adapters.c - opens LoRA adapters and binds their tensors, NAME.lora_a and NAME.lora_b, to the
 * model's matrices. A part of a fused tensor has the same A, and its rows of B. */
#include "adapters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "weights.h"

/* ---- the file ---- */

static int is(struct gguf_str s, const char *text)
{
    return s.n == strlen(text) && !memcmp(s.s, text, s.n);
}

/* Fails unless the file says that `key` is `want`. */
static int must_say(const struct gguf *g, const char *key, const char *want, const char *why)
{
    struct gguf_str s = { "", 0 };
    const int got = cb_gguf_string(g, key, &s);

    if (got < 0)
        return got;
    if (got && is(s, want))
        return CB_OK;
    return cb_fail(got ? CB_EUNSUPPORTED : CB_EFORMAT, "%s: key %s: '%.*s': %s", cb_gguf_path(g),
                   key, (int)(s.n < 40 ? s.n : 40), s.s, why);
}

static int check_file(const struct cb_model *m, const struct gguf *g)
{
    char why[100];

    TRY(must_say(g, "general.type", "adapter", "only an adapter can be put onto a model"));
    TRY(must_say(g, "adapter.type", "lora", "only adapters of type lora are supported"));
    snprintf(why, sizeof why, "the model's family is %s", m->arch->name);
    TRY(must_say(g, "general.architecture", m->arch->name, why));
    if (cb_gguf_find(g, "adapter.alora.invocation_tokens"))
        return cb_fail(CB_EUNSUPPORTED, "%s: an adapter that waits for its tokens (aLoRA)",
                       cb_gguf_path(g));
    return CB_OK;
}

/* ---- one matrix ---- */

/* NAME.lora_a or NAME.lora_b -> *out; NULL if there is none */
static void find_tensor(struct adapter *x, const char *name, char which,
                        const struct gguf_tensor **out)
{
    char full[80];

    snprintf(full, sizeof full, "%s.lora_%c", name, which);
    *out = cb_gguf_tensor(x->gguf, full);
    if (*out)
        x->bound[*out - cb_gguf_tensor_at(x->gguf, 0)] = 1;
}

static int bad_shape(const struct adapter *x, const struct gguf_tensor *t, const char *expected)
{
    return cb_fail(CB_EFORMAT, "%s: tensor %.*s: shape %lldx%lldx%lld, expected %s",
                   cb_gguf_path(x->gguf), (int)t->name.n, t->name.s, (long long)t->dim[0],
                   (long long)t->dim[1], (long long)t->dim[2], expected);
}

/* A is [planes][rank][n_in] and B is [planes][n_out][rank] for a tensor [planes][n_out][n_in]. */
static int check_shapes(const struct adapter *x, const struct gguf_tensor *a,
                        const struct gguf_tensor *b, const struct gguf_tensor *of)
{
    const long long in = of->dim[0], out = of->dim[1], planes = of->dim[2];
    const long long most = in < out ? in : out, rank = a->dim[1];
    char expected[100];

    if (a->type == DT_I32 || b->type == DT_I32)
        return cb_fail(CB_EFORMAT, "%s: tensor %.*s: type I32 holds no weights",
                       cb_gguf_path(x->gguf), (int)a->name.n, a->name.s);
    snprintf(expected, sizeof expected, "%lldxRANKx%lld, with a rank of 1 to %lld", in, planes,
             most);
    if (a->dim[0] != in || rank < 1 || rank > most || a->dim[2] != planes || a->dim[3] != 1)
        return bad_shape(x, a, expected);
    snprintf(expected, sizeof expected, "%lldx%lldx%lld", rank, out, planes);
    if (b->dim[0] != rank || b->dim[1] != out || b->dim[2] != planes || b->dim[3] != 1)
        return bad_shape(x, b, expected);
    return CB_OK;
}

/* Rows [row, row + n_out) of t -> w */
static void take_rows(struct cb_model *m, const struct gguf_tensor *t, int64_t row, int n_out,
                      struct weight *w)
{
    const size_t row_bytes = cb_row_bytes(t->type, t->dim[0]);

    snprintf(w->name, sizeof w->name, "%.*s", (int)t->name.n, t->name.s);
    w->type = t->type;
    w->n_in = (int)t->dim[0];
    w->n_out = n_out;
    w->raw = (const char *)t->data + (size_t)row * row_bytes;
    m->weights_bytes += (size_t)n_out * row_bytes;
}

/* A number that is not finite would make every logit NaN. */
static int check_finite(const struct adapter *x, const struct weight *w)
{
    const size_t row_bytes = cb_row_bytes(w->type, w->n_in);
    float *row = cb_calloc((size_t)w->n_in, sizeof *row);
    int fine = 1;

    if (!row)
        return CB_ENOMEM;
    for (int i = 0; fine && i < w->n_out; i++) {
        cb_dtype[w->type].to_f32((const char *)w->raw + (size_t)i * row_bytes, row, w->n_in);
        for (int j = 0; j < w->n_in; j++)
            fine &= isfinite(row[j]) != 0;
    }
    free(row);
    return fine ? CB_OK
                : cb_fail(CB_EFORMAT, "%s: tensor %s: a number is infinite or NaN",
                          cb_gguf_path(x->gguf), w->name);
}

/* The matrix w, called `name` in adapters, is rows of tensor `of`. */
static int bind(struct cb_model *m, struct adapter *x, const char *name,
                const struct gguf_tensor *of, struct weight *w)
{
    const int64_t at = (const char *)w->raw - (const char *)of->data;
    int64_t row, plane;
    const struct gguf_tensor *a, *b;
    struct lora *y, **end = &w->lora;

    find_tensor(x, name, 'a', &a);
    find_tensor(x, name, 'b', &b);
    if (!a && !b)
        return CB_OK;
    if (!a || !b)
        return cb_fail(CB_EFORMAT, "%s: tensor %s.lora_%c: missing", cb_gguf_path(x->gguf), name,
                       a ? 'b' : 'a');
    if (at < 0 || at >= (int64_t)of->size)
        return cb_fail(CB_EUNSUPPORTED, "%s: tensor %s.lora_a: the model has its matrix transposed",
                       cb_gguf_path(x->gguf), name);
    row = at / (int64_t)cb_row_bytes(w->type, w->n_in);
    plane = row / of->dim[1];
    TRY(check_shapes(x, a, b, of));
    if (!(y = cb_calloc(1, sizeof *y)))
        return CB_ENOMEM;
    while (*end)
        end = &(*end)->next;
    *end = y;
    take_rows(m, a, plane * a->dim[1], (int)a->dim[1], &y->a);
    take_rows(m, b, row, w->n_out, &y->b);
    y->scale = x->scale * (x->alpha != 0 ? x->alpha / (float)y->a.n_out : 1);
    m->max_rank = y->a.n_out > m->max_rank ? y->a.n_out : m->max_rank;
    TRY(check_finite(x, &y->a));
    return check_finite(x, &y->b);
}

static int check_all_bound(const struct adapter *x)
{
    for (uint64_t i = 0; i < cb_gguf_n_tensor(x->gguf); i++) {
        const struct gguf_str s = cb_gguf_tensor_at(x->gguf, i)->name;
        if (!x->bound[i])
            return cb_fail(CB_EUNSUPPORTED, "%s: tensor %.*s: the model has no matrix for it",
                           cb_gguf_path(x->gguf), (int)(s.n < 80 ? s.n : 80), s.s);
    }
    return CB_OK;
}

/* ---- all of them ---- */

static int bind_all(struct cb_model *m, struct adapter *x)
{
    const struct gguf *g = m->gguf;
    struct weight *w;

    for (int l = 0; l < m->hp.n_layer; l++)
        for (int i = 0; (w = cb_weights_at(&m->layer[l], i, m->hp.moe.n_expert)); i++)
            if (w->raw)
                TRY(bind(m, x, w->name, cb_gguf_tensor(g, w->name), w));
    TRY(bind(m, x, "output.weight", cb_gguf_tensor(g, m->output.name), &m->output));
    return check_all_bound(x);
}

static int open_one(struct cb_model *m, const struct cb_adapter *given, struct adapter *x)
{
    if (!given->path)
        return cb_fail(CB_EARG, "adapter: no path");
    if (!isfinite(given->scale))
        return cb_fail(CB_EARG, "%s: scale %g is not a number", given->path, (double)given->scale);
    x->scale = given->scale != 0 ? given->scale : 1;
    TRY(cb_gguf_open(given->path, &x->gguf));
    x->bound = cb_calloc((size_t)cb_gguf_n_tensor(x->gguf) + 1, 1);
    if (!x->bound)
        return CB_ENOMEM;
    TRY(check_file(m, x->gguf));
    if (cb_gguf_f32(x->gguf, "adapter.lora.alpha", &x->alpha) < 0)
        return CB_EFORMAT;
    TRY(bind_all(m, x));
    cb_model_log(m, CB_LOG_DETAIL, "adapter %s: %llu tensors, scale %g", given->path,
                 (unsigned long long)cb_gguf_n_tensor(x->gguf), (double)x->scale);
    return CB_OK;
}

int cb_adapters_open(struct cb_model *m, const struct cb_model_params *p)
{
    if (p->n_adapter < 0)
        return cb_fail(CB_EARG, "%d adapters", p->n_adapter);
    if (!p->n_adapter)
        return CB_OK;
    m->adapter = cb_calloc((size_t)p->n_adapter, sizeof *m->adapter);
    if (!m->adapter)
        return CB_ENOMEM;
    m->n_adapter = p->n_adapter;
    for (int i = 0; i < m->n_adapter; i++)
        TRY(open_one(m, &p->adapters[i], &m->adapter[i]));
    return CB_OK;
}

static void unbind(struct weight *w)
{
    for (struct lora *y = w->lora, *next; y; y = next) {
        next = y->next;
        free(y);
    }
    w->lora = NULL;
}

void cb_adapters_close(struct cb_model *m)
{
    struct weight *w;

    if (!m->n_adapter)
        return;
    for (int l = 0; l < m->hp.n_layer; l++)
        for (int i = 0; (w = cb_weights_at(&m->layer[l], i, m->hp.moe.n_expert)); i++)
            unbind(w);
    unbind(&m->output);
    for (int i = 0; i < m->n_adapter; i++) {
        cb_gguf_close(m->adapter[i].gguf);
        free(m->adapter[i].bound);
    }
    free(m->adapter);
}
