/* SPDX-License-Identifier: MIT */
/* binder.c - binds one tensor of the file to its place. */
#include "binder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "health.h"
#include "hparams.h"

const struct gguf_tensor *cb_bind_find(const struct binder *b, const char *name)
{
    return cb_gguf_tensor(b->m->gguf, name);
}

static int need(struct binder *b, const char *name, int table, const struct gguf_tensor **out)
{
    *out = cb_bind_find(b, name);
    if (!*out)
        return cb_fail(CB_EFORMAT, "%s: tensor %s: missing", cb_gguf_path(b->m->gguf), name);
    if (((*out)->type == DT_I32) != table)
        return cb_fail(CB_EFORMAT, "%s: tensor %s: type %s, expected %s", cb_gguf_path(b->m->gguf),
                       name, cb_dtype[(*out)->type].name, table ? "I32" : "that of a weight");
    b->bound[*out - cb_gguf_tensor_at(b->m->gguf, 0)] = 1;
    return CB_OK;
}

int cb_bind_need(struct binder *b, const char *name, const struct gguf_tensor **out)
{
    return need(b, name, 0, out);
}

int cb_bind_table(struct binder *b, const char *name, int n_in, int n_out, int below, int32_t **out)
{
    const struct gguf_tensor *t;
    const size_t n = (size_t)n_in * (size_t)n_out;

    TRY(need(b, name, 1, &t));
    TRY(cb_bind_check_shape(b, t, name, n_in, n_out, 1));
    if (!(*out = cb_calloc(n, sizeof **out)))
        return CB_ENOMEM;
    memcpy(*out, t->data, n * sizeof **out);
    for (size_t i = 0; i < n; i++)
        if ((*out)[i] < 0 || (*out)[i] >= below)
            return cb_fail(CB_EFORMAT,
                           "%s: tensor %s: number %d of row %zu is not between 0 and %d",
                           cb_gguf_path(b->m->gguf), name, (*out)[i], i / (size_t)n_in, below - 1);
    b->m->weights_bytes += t->size;
    return CB_OK;
}

int cb_bind_check_shape(const struct binder *b, const struct gguf_tensor *t, const char *name,
                        int64_t d0, int64_t d1, int64_t d2)
{
    char more[24] = "";

    if (t->dim[0] == d0 && t->dim[1] == d1 && t->dim[2] == d2 && t->dim[3] == 1)
        return CB_OK;
    if (d2 > 1)
        snprintf(more, sizeof more, "x%lld", (long long)d2);
    return cb_fail(CB_EFORMAT, "%s: tensor %s: shape %lldx%lldx%lldx%lld, expected %lldx%lld%s",
                   cb_gguf_path(b->m->gguf), name, (long long)t->dim[0], (long long)t->dim[1],
                   (long long)t->dim[2], (long long)t->dim[3], (long long)d0, (long long)d1, more);
}

void cb_bind_take_rows(struct binder *b, const struct gguf_tensor *t, const char *name, int64_t row,
                       int n_out, struct weight *w)
{
    const int n_in = (int)t->dim[0];

    snprintf(w->name, sizeof w->name, "%s", name);
    w->type = t->type;
    w->n_in = n_in;
    w->n_out = n_out;
    w->raw = (const char *)t->data + (size_t)row * cb_row_bytes(t->type, n_in);
    b->m->weights_bytes += (size_t)n_out * cb_row_bytes(t->type, n_in);
    b->m->n_params += (int64_t)n_in * n_out;
}

int cb_bind_matrix(struct binder *b, const char *name, int n_in, int n_out, struct weight *w)
{
    const struct gguf_tensor *t;

    TRY(cb_bind_need(b, name, &t));
    TRY(cb_bind_check_shape(b, t, name, n_in, n_out, 1));
    cb_bind_take_rows(b, t, name, 0, n_out, w);
    return CB_OK;
}

int cb_bind_f32(struct binder *b, const struct gguf_tensor *t, int64_t n, float **out)
{
    *out = cb_calloc((size_t)n, sizeof **out);
    if (!*out)
        return CB_ENOMEM;
    cb_dtype[t->type].to_f32(t->data, *out, n);
    if (!cb_all_finite(*out, (size_t)n)) {
        free(*out);
        *out = NULL;
        return cb_fail(CB_EFORMAT, "%s: damaged: the tensor %.*s is not finite",
                       cb_gguf_path(b->m->gguf), (int)t->name.n, t->name.s);
    }
    b->m->weights_bytes += t->size;
    b->m->n_params += n;
    return CB_OK;
}

int cb_bind_vector(struct binder *b, const char *name, int must, int n, float **out)
{
    const struct gguf_tensor *t;

    if (must == OPTIONAL && !cb_bind_find(b, name))
        return CB_OK;
    TRY(cb_bind_need(b, name, &t));
    TRY(cb_bind_check_shape(b, t, name, n, 1, 1));
    return cb_bind_f32(b, t, n, out);
}

const char *cb_bind_part(char (*buf)[72], const char *name, const char *what)
{
    snprintf(*buf, sizeof *buf, "%s.%s", name, what);
    return *buf;
}

int cb_bind_norm(struct binder *b, const char *name, int must, int n, struct norm *out)
{
    char buf[72];

    *out = (struct norm){ .n = n, .n_set = 1 };
    TRY(cb_bind_vector(b, cb_bind_part(&buf, name, "weight"), must, n, &out->w));
    return cb_bind_vector(b, cb_bind_part(&buf, name, "bias"), OPTIONAL, n, &out->b);
}

const char *cb_bind_in_layer(struct binder *b, int l, const char *name)
{
    snprintf(b->name, sizeof b->name, "blk.%d.%s", l, name);
    return b->name;
}

int cb_bind_plain_norm(int n, struct norm *out)
{
    *out = (struct norm){ .n = n, .n_set = 1, .w = cb_calloc((size_t)n, sizeof *out->w) };
    if (!out->w)
        return CB_ENOMEM;
    for (int i = 0; i < n; i++)
        out->w[i] = 1;
    return CB_OK;
}

/* Part of a fused bias, rows [from, from + n) of x -> *out */
int cb_bind_cut(const float *x, int from, int n, float **out)
{
    if (!x)
        return CB_OK;
    *out = cb_calloc((size_t)n, sizeof **out);
    if (!*out)
        return CB_ENOMEM;
    memcpy(*out, x + from, (size_t)n * sizeof **out);
    return CB_OK;
}

void cb_bind_free_norm(struct norm *x)
{
    free(x->w);
    free(x->b);
}

void cb_bind_free_ffn(struct ffn *f)
{
    free(f->gate_bias);
    free(f->up_bias);
    free(f->down_bias);
    free(f->xielu);
}
