/* SPDX-License-Identifier: MIT */
/* stream_mix.c - hyper-connections: what a block reads of several residual streams, and how much of
 * its result each of them gets (Zhu et al. 2024; the gated form of Qwen4-exp). */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "binder.h"
#include "hparams.h"

/* The norm of each stream has weights of its own. */
int cb_stream_norm(struct binder *b, const char *name, struct norm *out)
{
    const int n = b->m->hp.n_stream, ne = b->m->hp.n_embd;

    *out = (struct norm){ .n = ne, .n_set = n };
    return cb_bind_vector(b, name, REQUIRED, n * ne, &out->w);
}

/* The part of a name that differs: hc_attn, hc_ffn, output_hc */
static const char *part(char (*buf)[40], const char *name, const char *what)
{
    snprintf(*buf, sizeof *buf, "%s_%s.weight", name, what);
    return *buf;
}

static const char *named(struct binder *b, int l, const char *name)
{
    if (l >= 0)
        return cb_bind_in_layer(b, l, name);
    snprintf(b->name, sizeof b->name, "%s", name);
    return b->name;
}

int cb_stream_mix_bind(struct binder *b, int l, const char *name, struct stream_mix **out)
{
    const struct hparams *hp = &b->m->hp;
    const int n = hp->n_stream, ne = hp->n_embd, wide = n * ne, rank = hp->stream_rank;
    struct stream_mix *x = *out = cb_calloc(1, sizeof *x);
    const struct gguf_tensor *t;
    char buf[40];

    if (!x)
        return CB_ENOMEM;
    x->n = n;
    TRY(cb_stream_norm(b, named(b, l, part(&buf, name, "norm")), &x->norm));
    TRY(cb_bind_matrix(b, named(b, l, part(&buf, name, "down")), wide, rank, &x->down));
    TRY(cb_bind_need(b, named(b, l, part(&buf, name, "up")), &t));
    TRY(cb_bind_check_shape(b, t, b->name, rank, wide, 1));
    for (int i = 0; i < n; i++)
        cb_bind_take_rows(b, t, b->name, (int64_t)i * ne, ne, &x->up[i]);
    return l < 0 ? CB_OK
                 : cb_bind_matrix(b, named(b, l, part(&buf, name, "inject")), wide, n, &x->inject);
}

struct weight *cb_stream_mix_weight(struct stream_mix *x, int i)
{
    if (i < x->n)
        return &x->up[i];
    i -= x->n;
    return i == 0 ? &x->down : i == 1 && x->inject.raw ? &x->inject : NULL;
}

void cb_stream_mix_free(struct stream_mix *x)
{
    if (x)
        cb_bind_free_norm(&x->norm);
    free(x);
}
